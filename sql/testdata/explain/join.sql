CREATE TABLE bid (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '4' SECOND);
CREATE TABLE item (id BIGINT, category INT, opened TIMESTAMP(3), WATERMARK FOR opened AS opened - INTERVAL '4' SECOND, PRIMARY KEY (id) NOT ENFORCED);
SELECT b.price, i.category FROM bid b, item i WHERE b.auction = i.id AND i.category = 10 AND b.price > 5;
