SELECT c.auction, c.num FROM (
  SELECT auction, COUNT(*) AS num, window_start AS s, window_end AS e
  FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND)) GROUP BY auction, window_start, window_end
) c JOIN (
  SELECT MAX(num) AS most, s, e FROM (
    SELECT COUNT(*) AS num, window_start AS s, window_end AS e
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND)) GROUP BY auction, window_start, window_end
  ) GROUP BY s, e
) m ON c.s = m.s AND c.e = m.e AND c.num >= m.most;
