-- What examples/window-count does: events of each user in windows of ten seconds.
CREATE TABLE events (
  `user` STRING,
  amount DECIMAL(10, 2),
  ts     BIGINT,
  seen   AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR seen AS seen - INTERVAL '2' SECOND
) WITH ('connector' = 'kafka', 'topic' = '${IN}', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json');

CREATE TABLE counts (`user` STRING, `start` BIGINT, `end` BIGINT, `count` BIGINT, `sum` DECIMAL(38, 2))
WITH ('connector' = 'kafka', 'topic' = '${OUT}', 'key.format' = 'raw', 'key.fields' = 'user', 'value.format' = 'json');

INSERT INTO counts
SELECT `user`, 1000 * CAST(TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', window_start) AS BIGINT),
  1000 * CAST(TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', window_end) AS BIGINT), COUNT(*), SUM(amount)
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(seen), INTERVAL '10' SECOND))
GROUP BY `user`, window_start, window_end;
