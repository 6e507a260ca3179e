package expr_test

import (
	"testing"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/bind"
	"github.com/millrace-stream/millrace/sql/diag"
	"github.com/millrace-stream/millrace/sql/expr"
	"github.com/millrace-stream/millrace/sql/parse"
	"github.com/millrace-stream/millrace/sql/rel"
)

// overBids binds an expression over the columns of an auction's bid.
func overBids(t testing.TB, text string) (rel.Expr, *row.Layout) {
	t.Helper()
	ddl := diag.NewSource("ddl", "CREATE TABLE bid (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` TIMESTAMP(3));")
	script, errs := parse.Script(ddl, nil)
	if errs.Err() != nil {
		t.Fatal(errs)
	}
	s := bind.NewSession()
	if _, errs := s.Statement(script.Stmts[0], ddl); errs.Err() != nil {
		t.Fatal(errs)
	}
	src := diag.NewSource("test", text)
	e, errs := parse.Expr(src, nil)
	if errs.Err() != nil {
		t.Fatal(errs)
	}
	node, errs := s.Expr(e, "bid", src)
	if errs.Err() != nil {
		t.Fatal(errs)
	}
	l := row.NewLayout(row.BigInt(), row.BigInt(), row.BigInt(), row.String(), row.String(), row.Timestamp(3))
	return node.(*rel.Project).Exprs[0], l
}

var hot = []struct{ name, text string }{
	{"filter", "price % 3 <> 0 AND channel <> 'Apple'"},
	{"case", "CASE WHEN price % 3 <> 0 AND channel <> 'Apple' THEN price + auction * 2 ELSE 0 END"},
	{"decimal", "0.908 * price"},
	{"day", "DATE_FORMAT(`dateTime`, 'yyyy-MM-dd')"},
	{"minute", "DATE_FORMAT(`dateTime`, 'HH:mm')"},
	{"hour", "EXTRACT(HOUR FROM `dateTime`)"},
	{"split", "SPLIT_INDEX(url, '/', 3)"},
	{"lower", "LOWER(channel)"},
	{"like", "url LIKE '%item.htm%'"},
	{"in", "auction IN (1007, 1020, 2001, 2019, 2087)"},
	{"regexp", "REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2)"},
}

func bid(l *row.Layout) *row.Row {
	return l.RowOf(int64(1007), int64(2), int64(1000), "Google", "https://www.nexmark.com/googl/item.htm?query=1", row.Stamp{Ms: 1717200000123})
}

func project(t testing.TB, text string) (*expr.Projection, *row.Row, func()) {
	e, l := overBids(t, text)
	env := newEnv()
	p, err := expr.Project(env, l, []rel.Expr{e})
	if err != nil {
		t.Fatal(err)
	}
	out, in := p.Layout().New(), bid(l)
	return p, out, func() {
		env.Arena.Reset()
		p.Apply(out, in)
	}
}

func TestHotExpressionsDoNotAllocate(t *testing.T) {
	for _, h := range hot {
		_, _, f := project(t, h.text)
		f()
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations a row", h.text, n)
		}
	}
}

func BenchmarkExpressions(b *testing.B) {
	for _, h := range hot {
		b.Run(h.name, func(b *testing.B) {
			_, _, f := project(b, h.text)
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
		})
	}
}

func TestProjectionWritesDefaultsOfNotNullTypes(t *testing.T) {
	// A NOT NULL column of a source may hold NULL all the same.
	l := row.NewLayout(row.Int().NotNull(), row.String().NotNull(), row.Decimal(5, 2).NotNull())
	in := l.New()
	for i := range 3 {
		in.SetNull(i)
	}
	col := func(i int) rel.Expr { return rel.NewColumn(l.Type(i), i, 0, "c", rel.Place{}) }
	one := rel.NewLiteral(row.Int().NotNull(), one(), "1", rel.Place{})
	sum := rel.NewCall(row.Int().NotNull(), function(t, "+"), []rel.Expr{col(0), one}, rel.Place{})
	low := rel.NewCall(row.VarChar(row.MaxLength).NotNull(), function(t, "LOWER"), []rel.Expr{col(1)}, rel.Place{})
	p, err := expr.Project(newEnv(), l, []rel.Expr{sum, low, col(1)})
	if err != nil {
		t.Fatal(err)
	}
	out := p.Layout().New()
	p.Apply(out, in)
	// A bare column stays as it is: no value was made.
	if got, want := string(p.Layout().AppendResult(nil, out)), `[-1, "", null]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
