-- Needs nothing: rows are made up, go through a topic, and are counted.
CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '1000',
  'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '500');
CREATE TABLE counts (odd BOOLEAN, n BIGINT, total BIGINT, PRIMARY KEY (odd) NOT ENFORCED)
  WITH ('connector' = 'upsert-kafka', 'topic' = 'counts', 'key.format' = 'json', 'value.format' = 'json');
INSERT INTO counts SELECT n % 2 = 1, COUNT(*), SUM(n) FROM numbers GROUP BY n % 2 = 1;
