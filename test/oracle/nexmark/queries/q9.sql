SELECT id, itemName, description, initialBid, reserve, `dateTime`, expires, seller, category, extra, auction, bidder, price, bid_dateTime, bid_extra FROM (
  SELECT a.*, b.auction, b.bidder, b.price, b.`dateTime` AS bid_dateTime, b.extra AS bid_extra,
    ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.`dateTime` ASC) AS n
  FROM auction a, bid b WHERE a.id = b.auction AND b.`dateTime` BETWEEN a.`dateTime` AND a.expires
) WHERE n <= 1;
