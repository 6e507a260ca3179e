-- Orders per user in windows of ten seconds, and what each user has spent so far.
SET 'pipeline.name' = 'order-totals';
SET 'table.exec.state.ttl' = '30 d';

CREATE TABLE orders (
  id     BIGINT,
  `user` STRING,
  amount DECIMAL(10, 2),
  ts     TIMESTAMP_LTZ(3),
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH (
  'connector' = 'kafka',
  'topic' = '${PREFIX:-}orders',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE order_counts (
  `user`       STRING,
  window_start TIMESTAMP_LTZ(3),
  n            BIGINT,
  amount       DECIMAL(38, 2)
) WITH (
  'connector' = 'kafka',
  'topic' = '${PREFIX:-}order-counts',
  'format' = 'json'
);

CREATE TABLE user_totals (
  `user` STRING,
  n      BIGINT,
  amount DECIMAL(38, 2),
  PRIMARY KEY (`user`) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka',
  'topic' = '${PREFIX:-}user-totals',
  'key.format' = 'json',
  'value.format' = 'json'
);

INSERT INTO order_counts
SELECT `user`, window_start, COUNT(*), SUM(amount)
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY `user`, window_start, window_end;

INSERT INTO user_totals
SELECT `user`, COUNT(*), SUM(amount) FROM orders GROUP BY `user`;
