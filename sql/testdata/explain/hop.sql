CREATE TABLE bid (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '4' SECOND);
CREATE TABLE item (id BIGINT, category INT, opened TIMESTAMP(3), WATERMARK FOR opened AS opened - INTERVAL '4' SECOND, PRIMARY KEY (id) NOT ENFORCED);
SELECT auction, window_start, COUNT(*) FROM TABLE(HOP(TABLE bid, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND)) WHERE price > 10 GROUP BY auction, window_start, window_end;
