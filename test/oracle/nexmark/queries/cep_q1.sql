SELECT * FROM bid MATCH_RECOGNIZE (
  PARTITION BY auction, bidder ORDER BY `dateTime`
  MEASURES FIRST(A.`dateTime`) AS start_tstamp, LAST(A.`dateTime`) AS end_tstamp, AVG(A.price) AS avg_price
  ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A+ B)
  DEFINE A AS AVG(A.price) < 10000
);
