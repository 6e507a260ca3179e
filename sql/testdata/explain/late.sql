CREATE TABLE bid (auction BIGINT, price BIGINT, note STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '4' SECOND) WITH ('late-records' = 'late_bids');
CREATE TABLE late_bids (auction BIGINT, note STRING, reason STRING, ts TIMESTAMP(3)) WITH ('append' = 'true');
SELECT auction, MAX(price) FROM bid GROUP BY auction, TUMBLE(ts, INTERVAL '10' SECOND);
