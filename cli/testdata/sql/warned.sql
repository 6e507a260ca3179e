SET 'pipeline.name' = 'warned app';
SET 'table.exec.stat.ttl' = '1 d';
SET 'parallelism.default' = '4';
SET 'execution.checkpointing.interval' = '3 min';
CREATE TABLE hits (page STRING, ts TIMESTAMP(3)) WITH ('connector' = 'kafka', 'topic' = 'hits', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json');
CREATE TABLE pages (page STRING, n BIGINT, PRIMARY KEY (page) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'pages', 'key.format' = 'json', 'value.format' = 'json');
INSERT INTO pages SELECT page, COUNT(*) FROM hits GROUP BY page;
