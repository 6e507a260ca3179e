-- Orders per user in windows of ten seconds, and each user's total.
CREATE TABLE orders (
  id BIGINT, `user` STRING, amount DECIMAL(10, 2), ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'append', 'topic' = '${PREFIX:-}orders');
CREATE TABLE counts (`user` STRING, start_ts TIMESTAMP(3), n BIGINT) WITH ('connector' = 'append');
CREATE TABLE totals (`user` STRING, total DECIMAL(38, 2), PRIMARY KEY (`user`) NOT ENFORCED) WITH ('connector' = 'upsert');
INSERT INTO counts
  SELECT `user`, window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY `user`, window_start, window_end;
INSERT INTO totals SELECT `user`, SUM(amount) FROM orders GROUP BY `user`;
