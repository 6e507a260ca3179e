SELECT b.bidder, b.price, b.channel, b.url, b.extra AS bid_extra, p.id AS person_id, p.name, p.emailAddress, p.creditCard, p.city, p.state, p.extra AS person_extra,
  a.itemName, a.description, a.initialBid, a.reserve, a.`dateTime` AS auction_dateTime, a.expires, a.seller, a.category, a.extra AS auction_extra
FROM bid b JOIN person p ON b.bidder = p.id JOIN auction a ON b.bidder = a.seller;
