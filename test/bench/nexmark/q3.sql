CREATE TABLE results (name STRING, city STRING, state STRING, id BIGINT) WITH (
  'connector' = 'kafka', 'topic' = '${OUT}', 'properties.bootstrap.servers' = '${BROKERS}', 'properties.transaction.timeout.ms' = '900000',
  'format' = 'json', 'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '${GROUP}'
);
