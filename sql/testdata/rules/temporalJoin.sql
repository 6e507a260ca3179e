CREATE TABLE bid (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, ts TIMESTAMP(3), pt AS PROCTIME(), WATERMARK FOR ts AS ts - INTERVAL '4' SECOND);
CREATE TABLE rates (id BIGINT, rate INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts, PRIMARY KEY (id) NOT ENFORCED) WITH ('upsert' = 'true');
SELECT price * rate FROM bid JOIN rates FOR SYSTEM_TIME AS OF bid.ts ON auction = id;
