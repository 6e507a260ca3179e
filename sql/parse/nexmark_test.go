package parse

import (
	"testing"

	"github.com/millrace-stream/millrace/sql/diag"
)

// nexmark are queries of the kind that the auction benchmark asks, in our own words.
var nexmark = []string{
	`CREATE TABLE events (
  event_type INT,
  person ROW<id BIGINT, name VARCHAR, emailAddress VARCHAR, creditCard VARCHAR, city VARCHAR, state VARCHAR, ` + "`dateTime`" + ` TIMESTAMP(3), extra VARCHAR>,
  auction ROW<id BIGINT, itemName VARCHAR, initialBid BIGINT, reserve BIGINT, ` + "`dateTime`" + ` TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT>,
  bid ROW<auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, ` + "`dateTime`" + ` TIMESTAMP(3), extra VARCHAR>,
  ` + "`dateTime`" + ` AS CASE WHEN event_type = 0 THEN person.` + "`dateTime`" + ` WHEN event_type = 1 THEN auction.` + "`dateTime`" + ` ELSE bid.` + "`dateTime`" + ` END,
  WATERMARK FOR ` + "`dateTime`" + ` AS ` + "`dateTime`" + ` - INTERVAL '4' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'events', 'properties.bootstrap.servers' = '${BROKERS:-localhost:9092}', 'format' = 'json');
CREATE VIEW bid AS SELECT bid.auction, bid.bidder, bid.price, bid.channel, bid.url, ` + "`dateTime`" + `, bid.extra FROM events WHERE event_type = 2;
INSERT INTO q0 SELECT auction, bidder, price, ` + "`dateTime`" + `, extra FROM bid;`,
	`SELECT auction, bidder, 0.908 * price AS price, ` + "`dateTime`" + `, extra FROM bid WHERE MOD(auction, 123) = 0`,
	`SELECT p.name, p.city, p.state, a.id FROM auction AS a INNER JOIN person AS p ON a.seller = p.id
WHERE a.category = 10 AND (p.state = 'OR' OR p.state = 'ID' OR p.state = 'CA')`,
	`SELECT q.category, AVG(q.final) FROM (
  SELECT MAX(b.price) AS final, a.category FROM auction a, bid b
  WHERE a.id = b.auction AND b.` + "`dateTime`" + ` BETWEEN a.` + "`dateTime`" + ` AND a.expires GROUP BY a.id, a.category) q GROUP BY q.category`,
	`SELECT n.auction, n.num FROM (
  SELECT auction, COUNT(*) AS num, window_start AS s, window_end AS e
  FROM TABLE(HOP(TABLE bid, DESCRIPTOR(` + "`dateTime`" + `), INTERVAL '2' SECOND, INTERVAL '10' SECOND)) GROUP BY auction, window_start, window_end) AS n
JOIN (SELECT MAX(num) AS top, s, e FROM (
  SELECT COUNT(*) AS num, window_start AS s, window_end AS e
  FROM TABLE(HOP(TABLE bid, DESCRIPTOR(` + "`dateTime`" + `), INTERVAL '2' SECOND, INTERVAL '10' SECOND)) GROUP BY auction, window_start, window_end)
GROUP BY s, e) AS m ON n.s = m.s AND n.e = m.e AND n.num >= m.top`,
	`SELECT bidder, COUNT(*) AS n, SESSION_START(` + "`dateTime`" + `, INTERVAL '10' SECOND) AS s, SESSION_END(` + "`dateTime`" + `, INTERVAL '10' SECOND) AS e
FROM bid GROUP BY bidder, SESSION(` + "`dateTime`" + `, INTERVAL '10' SECOND)`,
	`SELECT b.auction, b.price, s.value_ FROM (SELECT *, PROCTIME() AS pt FROM bid) b
JOIN side FOR SYSTEM_TIME AS OF b.pt AS s ON MOD(b.auction, 10000) = s.key`,
	`SELECT DATE_FORMAT(` + "`dateTime`" + `, 'yyyy-MM-dd') AS d, COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS r2,
COUNT(DISTINCT bidder) FILTER (WHERE price < 10000) AS b1 FROM bid GROUP BY DATE_FORMAT(` + "`dateTime`" + `, 'yyyy-MM-dd')`,
	`SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number FROM bid) WHERE rank_number <= 10`,
	`SELECT auction, CASE WHEN HOUR(` + "`dateTime`" + `) >= 8 AND HOUR(` + "`dateTime`" + `) <= 18 THEN 'dayTime' WHEN HOUR(` + "`dateTime`" + `) <= 6 OR HOUR(` + "`dateTime`" + `) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS t,
CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS c FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000`,
	`SELECT CASE LOWER(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id FROM bid
WHERE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) IS NOT NULL OR LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu')`,
	`SELECT * FROM bid MATCH_RECOGNIZE (PARTITION BY auction, bidder ORDER BY ` + "`dateTime`" + `
MEASURES S.` + "`dateTime`" + ` AS start_ts, LAST(D.` + "`dateTime`" + `) AS bottom, LAST(U.` + "`dateTime`" + `) AS end_ts ONE ROW PER MATCH AFTER MATCH SKIP TO LAST U
PATTERN (S D+ U) DEFINE D AS (LAST(D.price, 1) IS NULL AND D.price < S.price) OR D.price < LAST(D.price, 1), U AS U.price > LAST(D.price, 1))`,
}

func TestAuctionQueriesParse(t *testing.T) {
	for _, q := range nexmark {
		if _, errs := Script(diag.NewSource("q", q), nil); len(errs) > 0 {
			t.Error(errs.Text())
		}
		roundTrip(t, q, nil)
	}
}

// BenchmarkStatement has 20 us a statement as its bound: these are 14 statements of 300 bytes each.
func BenchmarkStatement(b *testing.B) {
	statements := 0
	var sources []*diag.Source
	for _, q := range nexmark {
		script, _ := Script(diag.NewSource("q", q), nil)
		statements += len(script.Stmts)
		sources = append(sources, diag.NewSource("q", q))
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, s := range sources {
			_, _ = Script(s, nil)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(statements), "ns/statement")
}
