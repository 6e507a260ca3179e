CREATE TABLE bid (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '4' SECOND);
CREATE TABLE item (id BIGINT, category INT, opened TIMESTAMP(3), WATERMARK FOR opened AS opened - INTERVAL '4' SECOND, PRIMARY KEY (id) NOT ENFORCED);
SELECT price FROM bid b WHERE EXISTS (SELECT 1 FROM item i WHERE i.id = b.auction AND i.category = 10) AND price > (SELECT MAX(category) FROM item);
