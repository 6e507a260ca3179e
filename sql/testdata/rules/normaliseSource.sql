CREATE TABLE rates (id BIGINT, rate INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts, PRIMARY KEY (id) NOT ENFORCED) WITH ('upsert' = 'true');
SELECT id, rate FROM rates;
