CREATE TABLE bid (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '4' SECOND);
CREATE TABLE item (id BIGINT, category INT, opened TIMESTAMP(3), WATERMARK FOR opened AS opened - INTERVAL '4' SECOND, PRIMARY KEY (id) NOT ENFORCED);
CREATE VIEW j AS SELECT b.price, b.ts FROM bid b JOIN item i ON b.auction = i.id;
SELECT window_start, window_end, COUNT(*) FROM TABLE(TUMBLE(TABLE j, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end;
