CREATE TABLE bid (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, ts TIMESTAMP(3), pt AS PROCTIME(), WATERMARK FOR ts AS ts - INTERVAL '4' SECOND);
SELECT price + 1 FROM (SELECT auction, price, COUNT(*) AS n FROM bid GROUP BY auction, price);
