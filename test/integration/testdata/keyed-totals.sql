-- What was spent by each user, with where the user lives. Both topics are keyed by the user: nothing is sent to another partition.
CREATE TABLE events (
  `user` STRING,
  amount DECIMAL(10, 2)
) WITH ('connector' = 'kafka', 'topic' = '${IN}', 'scan.startup.mode' = 'earliest-offset',
  'key.format' = 'raw', 'key.fields' = 'user', 'value.format' = 'json', 'partitioned-by' = 'key');

CREATE TABLE people (`user` STRING, city STRING, PRIMARY KEY (`user`) NOT ENFORCED)
WITH ('connector' = 'upsert-kafka', 'topic' = '${PEOPLE}', 'key.format' = 'raw', 'value.format' = 'json', 'partitioned-by' = 'key');

CREATE TABLE totals (`user` STRING, city STRING, `count` BIGINT, `sum` DECIMAL(38, 2), PRIMARY KEY (`user`) NOT ENFORCED)
WITH ('connector' = 'upsert-kafka', 'topic' = '${OUT}', 'key.format' = 'raw', 'value.format' = 'json');

INSERT INTO totals
SELECT t.`user`, p.city, t.n, t.total
FROM (SELECT `user`, COUNT(*) AS n, SUM(amount) AS total FROM events GROUP BY `user`) AS t
JOIN people AS p ON t.`user` = p.`user`;
