CREATE TABLE results (bidder BIGINT, bid_count BIGINT, starttime TIMESTAMP(3), endtime TIMESTAMP(3)) WITH (
  'connector' = 'kafka', 'topic' = '${OUT}', 'properties.bootstrap.servers' = '${BROKERS}', 'properties.transaction.timeout.ms' = '900000',
  'format' = 'json', 'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '${GROUP}'
);
