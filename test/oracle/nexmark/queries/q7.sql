SELECT b.auction, b.price, b.bidder, b.`dateTime`, b.extra FROM bid b JOIN (
  SELECT MAX(price) AS top, window_end AS e FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
  GROUP BY window_start, window_end
) m ON b.price = m.top WHERE b.`dateTime` BETWEEN m.e - INTERVAL '10' SECOND AND m.e;
