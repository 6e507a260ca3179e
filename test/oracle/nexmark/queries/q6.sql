SELECT seller, AVG(final) OVER (PARTITION BY seller ORDER BY `dateTime` ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) FROM (
  SELECT MAX(b.price) AS final, a.seller, b.`dateTime` FROM auction a, bid b
  WHERE a.id = b.auction AND b.`dateTime` BETWEEN a.`dateTime` AND a.expires GROUP BY a.id, a.seller
);
