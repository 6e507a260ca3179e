-- Orders per user and window; what comes too late goes to a table of its own, as it was read.
CREATE TABLE orders (
  id BIGINT, `user` STRING, amount DECIMAL(10, 2), note STRING, ts TIMESTAMP(3),
  doubled AS amount * 2,
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'append', 'late-records' = 'late_orders');
CREATE TABLE late_orders (id BIGINT, note STRING, doubled DECIMAL(12, 2), reason STRING, ts TIMESTAMP(3)) WITH ('connector' = 'append');
CREATE TABLE counts (`user` STRING, start_ts TIMESTAMP(3), n BIGINT) WITH ('connector' = 'append');
CREATE VIEW dear AS SELECT UPPER(`user`) AS u, ts FROM orders WHERE amount > 1;
INSERT INTO counts
  SELECT u, window_start, COUNT(*) FROM TABLE(HOP(TABLE dear, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)) GROUP BY u, window_start, window_end;
