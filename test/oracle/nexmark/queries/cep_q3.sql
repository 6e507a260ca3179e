SELECT * FROM bid MATCH_RECOGNIZE (
  PARTITION BY auction, bidder ORDER BY `dateTime`
  MEASURES C.`dateTime` AS drop_time, A.price - C.price AS drop_diff
  ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A B* C) WITHIN INTERVAL '5' SECOND
  DEFINE B AS B.price > A.price - 50, C AS C.price < A.price - 50
);
