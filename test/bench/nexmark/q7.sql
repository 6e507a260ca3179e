CREATE TABLE results (auction BIGINT, price BIGINT, bidder BIGINT, `dateTime` TIMESTAMP(3), extra STRING) WITH (
  'connector' = 'kafka', 'topic' = '${OUT}', 'properties.bootstrap.servers' = '${BROKERS}', 'properties.transaction.timeout.ms' = '900000',
  'format' = 'json', 'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '${GROUP}'
);
