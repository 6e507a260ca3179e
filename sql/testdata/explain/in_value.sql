CREATE TABLE bid (auction BIGINT, price BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '4' SECOND);
CREATE TABLE item (id BIGINT, category INT);
SELECT auction, auction IN (SELECT id FROM item WHERE category = 10) AS ten FROM bid;
