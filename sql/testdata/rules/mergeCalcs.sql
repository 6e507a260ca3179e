CREATE TABLE bid (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, ts TIMESTAMP(3), pt AS PROCTIME(), WATERMARK FOR ts AS ts - INTERVAL '4' SECOND);
SELECT p + 1 FROM (SELECT price * 2 AS p, channel FROM bid WHERE bidder > 1) WHERE channel = 'x';
