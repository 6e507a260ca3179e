package naive_test

import (
	"math/rand/v2"
	"testing"

	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/diag"
	"github.com/millrace-stream/millrace/sql/parse"
)

// subqueries are queries with subqueries that cannot become joins by moving conditions alone: they compare otherwise than with =
// below an aggregate, read the row around in SELECT or deeper, or stand where a value is wanted.
var subqueries = []string{
	"SELECT a, (SELECT MAX(b) FROM r WHERE r.x < l.x) AS m FROM l",
	"SELECT a, (SELECT COUNT(*) FROM r WHERE r.x < l.x) AS m FROM l",
	"SELECT a, (SELECT COALESCE(SUM(b), 0) + COUNT(*) FROM r WHERE r.x = l.x) AS m FROM l",
	"SELECT a, (SELECT CASE WHEN MAX(b) IS NULL THEN -1 ELSE MAX(b) END FROM r WHERE r.x = l.x AND b <> l.a) AS m FROM l",
	"SELECT a, (SELECT MAX(b + l.a) FROM r WHERE r.x = l.x) AS m FROM l",
	"SELECT a, (SELECT MAX(b) FROM r WHERE r.x < l.x AND r.b <> l.a) AS m FROM l",
	"SELECT a FROM l WHERE a > (SELECT MIN(b) FROM r WHERE r.x <= l.x)",
	"SELECT a, EXISTS (SELECT 1 FROM r WHERE r.x < l.x) AS e FROM l",
	"SELECT a, NOT EXISTS (SELECT 1 FROM r WHERE r.x > l.x) AS e FROM l",
	"SELECT a FROM l WHERE EXISTS (SELECT COUNT(*) FROM r WHERE r.x = l.x)",
	"SELECT a FROM l WHERE EXISTS (SELECT b FROM r WHERE r.x = l.x LIMIT 1)",
	"SELECT a FROM l WHERE EXISTS (SELECT b FROM r WHERE r.x = l.x AND EXISTS (SELECT c FROM u WHERE u.c = l.a))",
	"SELECT a FROM l WHERE NOT EXISTS (SELECT b FROM r WHERE r.x < l.x AND NOT EXISTS (SELECT c FROM u WHERE u.c = l.a AND u.x <= r.x))",
	"SELECT a, (SELECT COUNT(*) FROM r WHERE r.x = l.x AND r.b > (SELECT COUNT(*) FROM u WHERE u.c < l.a)) AS m FROM l",
	"SELECT a, (SELECT MAX(u.c) FROM r LEFT JOIN u ON r.b = u.c WHERE r.x < l.x) AS m FROM l",
	"SELECT a FROM l WHERE EXISTS (SELECT 1 FROM r LEFT JOIN u ON r.b = u.c AND u.x = l.x WHERE r.x <> l.a)",
	"SELECT a, (SELECT COUNT(*) FROM r JOIN u ON r.b = u.c WHERE u.x < l.x) AS m FROM l",
	"SELECT a FROM l WHERE EXISTS (SELECT b FROM r WHERE r.x = l.x UNION ALL SELECT c FROM u WHERE u.x < l.x)",
	"SELECT a FROM l WHERE EXISTS (SELECT b FROM r WHERE r.x < l.x INTERSECT SELECT c FROM u WHERE u.x < l.x)",
	"SELECT a, (SELECT MAX(z) FROM (SELECT b AS z, x FROM r UNION ALL SELECT c, x FROM u) AS q WHERE q.x < l.x) AS m FROM l",
	"SELECT a FROM l WHERE EXISTS (SELECT SUM(b) FROM r WHERE r.x < l.x GROUP BY ROLLUP(b) HAVING SUM(b) > 1)",
	"SELECT a, x FROM l WHERE a IN (SELECT MAX(b) FROM r WHERE r.x <= l.x GROUP BY r.x)",
	"SELECT a, a IN (SELECT b FROM r WHERE r.x < l.x) AS i FROM l",
	"SELECT a, a NOT IN (SELECT b FROM r WHERE r.x < l.x) AS i FROM l",
	"SELECT a FROM l WHERE a NOT IN (SELECT b FROM r WHERE r.x < l.x)",
	"SELECT a FROM l WHERE (a, x) NOT IN (SELECT b, x FROM r)",
	"SELECT a FROM l WHERE (a, x) NOT IN (SELECT b, x FROM r WHERE r.b < l.a)",
	"SELECT a FROM l WHERE a IN (SELECT COUNT(*) FROM r WHERE r.x < l.x)",
	"SELECT a FROM l WHERE 0 IN (SELECT COUNT(*) FROM r WHERE r.x = l.x)",
	"SELECT a FROM l WHERE a NOT IN (SELECT COUNT(*) FROM r WHERE r.x = l.x)",
	"SELECT a, a IN (SELECT COUNT(*) FROM r WHERE r.x = l.x) AS i FROM l",
	"SELECT a FROM l WHERE EXISTS (SELECT 1 FROM r WHERE r.x = l.x HAVING COUNT(*) = 0)",
	"SELECT a, (SELECT MAX(n) FROM (SELECT COUNT(*) AS n FROM r WHERE r.x = l.x) AS q) AS m FROM l",
	"SELECT a, m FROM l, LATERAL (SELECT MAX(b) AS m FROM r WHERE r.x < l.x GROUP BY r.b)",
	"SELECT a, s FROM l, LATERAL (SELECT b + l.a AS s FROM r WHERE r.x < l.x)",
	"SELECT a, s FROM l LEFT JOIN LATERAL (SELECT b + l.a AS s FROM r WHERE r.x < l.x) ON TRUE",
	"SELECT a, a > ANY (SELECT b FROM r) AS q FROM l",
	"SELECT a, a <= ALL (SELECT b FROM r) AS q FROM l",
	"SELECT a, a <> ANY (SELECT b FROM r) AS q FROM l",
	"SELECT a, a = ALL (SELECT b FROM r) AS q FROM l",
	"SELECT a, a < ANY (SELECT b FROM r WHERE r.x <> l.x) AS q FROM l",
	"SELECT a FROM l WHERE a >= ALL (SELECT b FROM r WHERE r.x = l.x)",
	"SELECT a FROM l WHERE NOT (a > ANY (SELECT b FROM r WHERE r.x = l.x))",
	"SELECT l.a, r.b FROM l LEFT JOIN r ON l.x = r.x AND r.b = (SELECT MAX(c) FROM u)",
	"SELECT l.a, r.b FROM l FULL JOIN r ON l.x = r.x AND EXISTS (SELECT c FROM u WHERE c > 1)",
	"SELECT l.a, r.b FROM l RIGHT JOIN r ON l.x = r.x AND l.a >= (SELECT MIN(c) FROM u)",
}

// TestSubqueries compares them with the naive evaluator, which asks the subquery anew for each row, over random data, as
// TestRandomQueries does.
func TestSubqueries(t *testing.T) {
	seeds, first := setting(t, "MILLRACE_SQL_SEEDS", 400), setting(t, "MILLRACE_SQL_FIRST", 1)
	compared := 0
	for i, text := range subqueries {
		script, errs := parse.Script(diag.NewSource("query", text), nil)
		if errs.Err() != nil {
			t.Fatal(errs)
		}
		for seed := first; seed < first+max(2, seeds/100); seed++ {
			g := &gen{r: rand.New(rand.NewPCG(uint64(seed), uint64(i)))}
			for _, name := range []string{"l a", "r b", "u c"} {
				tab := &table{name: name[:1], time: -1, columns: []column{{name[2:], "INT", whole}, {"x", "INT", whole}}}
				if g.chance(40) {
					tab.mode = "all"
				}
				if g.chance(20) {
					tab.key, tab.mode = 1, "upsert"
				}
				g.tables = append(g.tables, tab)
			}
			p := &pair{seed: uint64(seed), tables: g.tables, query: script.Stmts[0].(*ast.QueryStmt).Query}
			g.rows(p)
			v := p.check()
			if v.compared {
				compared++
			}
			if v.fault != "" || v.refused != "" && v.refused != "fails" {
				t.Errorf("seed %d: %s %s\n%s", seed, v.fault, v.refused, p)
			}
		}
	}
	if compared < len(subqueries) {
		t.Errorf("%d pairs compared, too few", compared)
	}
}
