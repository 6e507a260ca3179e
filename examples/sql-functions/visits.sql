-- Visits by network, with functions of the program in this folder.
CREATE FUNCTION network AS 'example.network';
CREATE FUNCTION longest AS 'example.longest';

CREATE TABLE visits (address STRING, path STRING) WITH (
  'connector' = 'kafka', 'topic' = 'visits', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json'
);

CREATE TABLE networks (net STRING, n BIGINT, longest_path STRING, PRIMARY KEY (net) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'networks', 'key.format' = 'json', 'value.format' = 'json'
);

INSERT INTO networks
SELECT net, COUNT(*), longest(path)
FROM (SELECT network(address, 24) AS net, path FROM visits)
WHERE net IS NOT NULL
GROUP BY net;
