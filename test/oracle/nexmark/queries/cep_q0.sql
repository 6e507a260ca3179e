SELECT * FROM bid MATCH_RECOGNIZE (
  PARTITION BY auction, bidder ORDER BY `dateTime`
  MEASURES FIRSTROW.`dateTime` AS start_tstamp, LAST(DOWN.`dateTime`) AS bottom_tstamp, LAST(UP.`dateTime`) AS end_tstamp
  ONE ROW PER MATCH AFTER MATCH SKIP TO LAST UP
  PATTERN (FIRSTROW DOWN+ UP)
  DEFINE DOWN AS (LAST(DOWN.price, 1) IS NULL AND DOWN.price < FIRSTROW.price) OR DOWN.price < LAST(DOWN.price, 1),
    UP AS UP.price > LAST(DOWN.price, 1)
);
