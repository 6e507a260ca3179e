-- Needs nothing installed: millrace run --embedded --duration 15s examples/sql/page-views.sql
-- Page views are made up and written to a topic; pages are counted in windows of two seconds, and a topic keeps the newest
-- row of each page and window.
CREATE TABLE made_up (
  page INT,
  took INT
) WITH (
  'connector' = 'datagen',
  'rows-per-second' = '20',
  'number-of-rows' = '2000',
  'fields.page.min' = '1',
  'fields.page.max' = '3',
  'fields.took.min' = '5',
  'fields.took.max' = '500'
);

CREATE TABLE page_views (
  page STRING,
  took INT,
  ts   TIMESTAMP_LTZ(3),
  WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH (
  'connector' = 'kafka',
  'topic' = 'page-views',
  'scan.startup.mode' = 'earliest-offset',
  'scan.watermark.idle-timeout' = '2 s', -- a partition without views holds nothing up
  'format' = 'json'
);

CREATE TABLE page_stats (
  page    STRING,
  since   TIMESTAMP_LTZ(3),
  n       BIGINT,
  slowest INT,
  PRIMARY KEY (page, since) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka',
  'topic' = 'page-stats',
  'key.format' = 'json',
  'value.format' = 'json'
);

EXECUTE STATEMENT SET
BEGIN
  INSERT INTO page_views SELECT '/page-' || CAST(page AS STRING), took, CURRENT_TIMESTAMP FROM made_up;

  INSERT INTO page_stats
  SELECT page, window_start, COUNT(*), MAX(took)
  FROM TABLE(TUMBLE(TABLE page_views, DESCRIPTOR(ts), INTERVAL '2' SECOND))
  GROUP BY page, window_start, window_end;
END;
