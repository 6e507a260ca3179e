SELECT b.auction, b.bidder, b.price, b.`dateTime`, s.`value` FROM (SELECT *, PROCTIME() AS p FROM bid) b
JOIN side_input FOR SYSTEM_TIME AS OF b.p AS s ON MOD(b.auction, 10000) = s.`key`;
