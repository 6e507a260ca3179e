CREATE TABLE bid (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, ts TIMESTAMP(3), pt AS PROCTIME(), WATERMARK FOR ts AS ts - INTERVAL '4' SECOND);
CREATE TABLE auction (id BIGINT, category INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts);
SELECT price, category FROM bid JOIN auction ON auction = id AND bid.ts BETWEEN auction.ts AND auction.ts + INTERVAL '1' MINUTE;
