CREATE TABLE bid (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, ts TIMESTAMP(3), pt AS PROCTIME(), WATERMARK FOR ts AS ts - INTERVAL '4' SECOND);
CREATE TABLE auction (id BIGINT, category INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts);
SELECT price FROM bid WHERE auction IN (SELECT id FROM auction) AND EXISTS (SELECT 1 FROM auction WHERE id = bidder);
