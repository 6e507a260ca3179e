SELECT auction, bidder, price, channel, url, b.`dateTime`, b.extra, itemName, description, initialBid, reserve, a.`dateTime`, expires, seller, category, a.extra
FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10;
