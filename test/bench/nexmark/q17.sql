CREATE TABLE results (auction BIGINT, `day` STRING, total_bids BIGINT, rank1_bids BIGINT, rank2_bids BIGINT, rank3_bids BIGINT,
  min_price BIGINT, max_price BIGINT, avg_price BIGINT, sum_price BIGINT,
  PRIMARY KEY (auction, `day`) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = '${OUT}', 'properties.bootstrap.servers' = '${BROKERS}', 'properties.transaction.timeout.ms' = '900000',
  'key.format' = 'json', 'value.format' = 'json', 'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '${GROUP}'
);
