CREATE TABLE bid (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '4' SECOND);
CREATE TABLE item (id BIGINT, category INT, opened TIMESTAMP(3), WATERMARK FOR opened AS opened - INTERVAL '4' SECOND, PRIMARY KEY (id) NOT ENFORCED);
CREATE TABLE sink (auction BIGINT, n BIGINT) WITH ('append' = 'true');
INSERT INTO sink SELECT auction, COUNT(*) FROM bid GROUP BY auction;
