package naive_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/sqltest/naive"
)

// class is what expressions are grown by: columns of one class can be compared.
type class uint8

const (
	whole class = iota // TINYINT to BIGINT
	decimal
	double
	str
	boolean
	stamp
	array // of INT
)

// column is a column of a table or of a query that is being grown.
type column struct {
	name  string
	typ   string
	class class
}

// table is a table and what comes in for it.
type table struct {
	name    string
	columns []column
	// mode is "", "all" or "upsert"; key counts the columns of its PRIMARY KEY, the first ones.
	mode   string
	key    int
	time   int // column of the watermark, -1 = none
	delay  int // s
	events []naive.Event
}

// gen grows a pair of a query and its data from a seed.
type gen struct {
	r      *rand.Rand
	tables []*table
	// timed: tables have watermarks, and the query has operators that wait for them.
	timed bool
	names int
}

// baseTime is the time around which times lie: 2024-01-01 00:00:00.
const baseTime = 1704067200000

func (g *gen) one(in ...string) string { return in[g.r.IntN(len(in))] }

// chance is true in n of 100 cases.
func (g *gen) chance(n int) bool { return g.r.IntN(100) < n }

func (g *gen) name(prefix string) string {
	g.names++
	return prefix + strconv.Itoa(g.names)
}

// grow makes the pair of a seed.
func grow(seed uint64) *pair {
	g := &gen{r: rand.New(rand.NewPCG(seed, 1))}
	g.timed = g.chance(35)
	for i := range 1 + g.r.IntN(3) {
		g.tables = append(g.tables, g.table(i))
	}
	var q grown
	if g.timed && g.chance(15) {
		q = g.temporalJoin()
	} else if g.timed {
		q = g.timedQuery()
	} else {
		q = g.query(1 + g.r.IntN(3))
	}
	p := &pair{seed: seed, tables: g.tables, query: q.q, timed: g.timed, quiet: q.quiet, end: q.end}
	if p.end > 0 {
		p.endName = q.columns[p.end].name
		p.late = !q.session && g.chance(50)
	}
	g.rows(p)
	return p
}

func (g *gen) table(i int) *table {
	t := &table{name: "t" + strconv.Itoa(i), time: -1}
	types := []column{{typ: "INT", class: whole}, {typ: "BIGINT", class: whole}, {typ: "SMALLINT", class: whole}, {typ: "TINYINT", class: whole},
		{typ: "DECIMAL(10, 2)", class: decimal}, {typ: "DECIMAL(30, 3)", class: decimal}, {typ: "DOUBLE", class: double},
		{typ: "STRING", class: str}, {typ: "STRING", class: str}, {typ: "BOOLEAN", class: boolean}, {typ: "TIMESTAMP(3)", class: stamp}, {typ: "ARRAY<INT>", class: array}}
	t.columns = []column{{"k", "INT", whole}, {"s", "STRING", str}}
	if g.chance(30) {
		t.columns[0].typ = "BIGINT"
	}
	for c := range 1 + g.r.IntN(4) {
		col := types[g.r.IntN(len(types))]
		col.name = "c" + strconv.Itoa(c)
		t.columns = append(t.columns, col)
	}
	if g.timed {
		t.time, t.delay = len(t.columns), g.r.IntN(6)
		t.columns = append(t.columns, column{"ts", "TIMESTAMP(3)", stamp})
		return t
	}
	switch g.r.IntN(5) {
	case 0, 1:
		t.mode = "all"
	case 2:
		t.mode, t.key = "upsert", 1+g.r.IntN(2)
	}
	return t
}

// ddl is the statement that declares the table.
func (t *table) ddl() string {
	var parts []string
	for i, c := range t.columns {
		s := c.name + " " + c.typ
		if i < t.key {
			s += " NOT NULL"
		}
		parts = append(parts, s)
	}
	if t.key > 0 {
		var key []string
		for _, c := range t.columns[:t.key] {
			key = append(key, c.name)
		}
		parts = append(parts, "PRIMARY KEY ("+strings.Join(key, ", ")+") NOT ENFORCED")
	}
	if t.time >= 0 {
		parts = append(parts, fmt.Sprintf("WATERMARK FOR ts AS ts - INTERVAL '%d' SECOND", t.delay))
	}
	out := "CREATE TABLE " + t.name + " (" + strings.Join(parts, ", ") + ")"
	if t.mode != "" {
		out += " WITH ('changelog-mode' = '" + t.mode + "')"
	}
	return out + ";"
}

// value is a random value of a column: few different ones, so that keys meet, and now and then an extreme one.
func (g *gen) value(c column) row.Value {
	switch c.class {
	case whole:
		if g.chance(3) {
			bits := map[string]uint{"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}[c.typ]
			return []int64{-1 << (bits - 1), 1<<(bits-1) - 1}[g.r.IntN(2)]
		}
		return int64(min(g.r.IntN(6), g.r.IntN(6))) - int64(g.r.IntN(2))
	case decimal:
		if g.chance(3) {
			most := row.DecInt(1)
			digits := 10
			if c.typ == "DECIMAL(30, 3)" {
				digits = 30
			}
			return most.Mul10(digits).Sub(row.DecInt(1))
		}
		return row.DecInt([]int64{0, 150, -150, 1, 99, 1000}[g.r.IntN(6)])
	case double:
		return float64(g.r.IntN(9)-4) / 4
	case str:
		return g.one("a", "a", "b", "b", "c", "", "ab", "A", "\u00e4%", "x_y")
	case boolean:
		return g.chance(50)
	case stamp:
		return row.Stamp{Ms: baseTime + int64(g.r.IntN(20))*1000}
	default:
		var list []row.Value
		for range g.r.IntN(4) {
			var v row.Value
			if !g.chance(15) {
				v = int64(g.r.IntN(4))
			}
			list = append(list, v)
		}
		if list == nil {
			return []row.Value{}
		}
		return list
	}
}

func (g *gen) row(t *table) []row.Value {
	v := make([]row.Value, len(t.columns))
	for i, c := range t.columns {
		if i >= t.key && g.chance(12) {
			continue
		}
		v[i] = g.value(c)
	}
	return v
}

// rows makes what comes in for all tables.
func (g *gen) rows(p *pair) {
	live := map[*table][][]row.Value{}
	clock := map[*table]int64{}
	n := 4 + g.r.IntN(22)
	for line := 1; line <= n; line++ {
		t := g.tables[g.r.IntN(len(g.tables))]
		put := func(kind row.RowKind, v []row.Value) {
			t.events = append(t.events, naive.Event{Line: line, Kind: kind, Values: v})
		}
		switch {
		case t.time >= 0:
			// Times go on, are equal, and come in disorder, but, unless the pair is about that, never so late that an operator
			// may drop a row: all of those wait while the watermark is below the time, which is so if a row is less than the
			// delay behind the latest.
			v := g.row(t)
			clock[t] += int64(max(0, g.r.IntN(8)-3)) * 1000
			behind := int64(0)
			if t.delay > 1 {
				behind = int64(g.r.IntN(t.delay)) * 1000
			}
			if t.delay == 0 {
				clock[t] += 1000
			}
			if p.late && g.chance(20) {
				behind += int64(g.r.IntN(12)) * 1000
			}
			v[t.time] = row.Stamp{Ms: baseTime + clock[t] - behind}
			kind := row.Insert
			if t.mode == "upsert" {
				kind = []row.RowKind{row.Insert, row.UpdateAfter, row.Delete}[g.r.IntN(3)]
			}
			put(kind, v)
		case t.mode == "all" && len(live[t]) > 0 && g.chance(40):
			at := g.r.IntN(len(live[t]))
			old := live[t][at]
			live[t] = slices.Delete(live[t], at, at+1)
			if line < n && g.chance(50) {
				put(row.UpdateBefore, old)
				line++
				v := slices.Clone(old)
				for range 1 + g.r.IntN(2) {
					i := g.r.IntN(len(v))
					v[i] = g.row(t)[i]
				}
				put(row.UpdateAfter, v)
				live[t] = append(live[t], v)
				continue
			}
			put(row.Delete, old)
		case t.mode == "upsert":
			kind := []row.RowKind{row.Insert, row.UpdateAfter, row.UpdateAfter, row.Delete}[g.r.IntN(4)]
			put(kind, g.row(t))
		default:
			v := g.row(t)
			put(row.Insert, v)
			live[t] = append(live[t], v)
		}
	}
}

// ---- queries

// grown is a query and its columns.
type grown struct {
	q       ast.Query
	columns []column
	// quiet: every update changes what is put out.
	quiet bool
	// end is the column of the end of the window that the rows are of, which they come at; 0 = they are of none.
	end int
	// session: the window is one, so that what is late depends on the rows before.
	session bool
}

// source is an item of FROM with an alias.
type source struct {
	ref     ast.TableRef
	alias   string
	columns []column
}

func ident(s string) ast.Ident { return ast.Ident{Name: s} }

func ref(parts ...string) *ast.ColumnRef {
	n := ast.Name{}
	for _, p := range parts {
		n.Parts = append(n.Parts, ident(p))
	}
	return &ast.ColumnRef{Name: n}
}

func call(name string, args ...ast.Expr) *ast.Call {
	return &ast.Call{Name: ast.Name{Parts: []ast.Ident{ident(name)}}, Args: args}
}

func infix(op ast.InfixOp, x, y ast.Expr) ast.Expr { return &ast.Infix{Op: op, X: x, Y: y} }

func number(v int) ast.Expr {
	if v < 0 {
		return &ast.Unary{Op: ast.Minus, X: number(-v)}
	}
	return &ast.Number{Text: strconv.Itoa(v)}
}

func text(s string) ast.Expr { return &ast.String{Value: s} }

func seconds(n int) ast.Expr {
	return &ast.Interval{Text: ast.String{Value: strconv.Itoa(n)}, Unit: ast.IntervalUnit{From: "SECOND", Precision: -1, Scale: -1}}
}

func alias(name string) *ast.Alias { return &ast.Alias{Name: ident(name)} }

func simple(name string) ast.Type { return &ast.SimpleType{Name: name, Precision: -1, Scale: -1} }

// scope is the columns that an expression may use: "alias.name".
type scope []source

func (s scope) of(c class) (out []ast.Expr) {
	for _, src := range s {
		for _, col := range src.columns {
			if col.class == c {
				out = append(out, ref(src.alias, col.name))
			}
		}
	}
	return out
}

func (s scope) all() (out []item) {
	for _, src := range s {
		for _, col := range src.columns {
			out = append(out, item{ref(src.alias, col.name), col})
		}
	}
	return out
}

// item is an expression of the select list and its column.
type item struct {
	expr ast.Expr
	column
}

func (g *gen) tableSource() source {
	t := g.tables[g.r.IntN(len(g.tables))]
	a := g.name("a")
	return source{&ast.TableName{Name: ast.Name{Parts: []ast.Ident{ident(t.name)}}, Alias: alias(a)}, a, t.columns}
}

func (g *gen) derived(q grown) source {
	a := g.name("q")
	return source{&ast.Derived{Query: q.q, Alias: alias(a)}, a, q.columns}
}

func (g *gen) source(depth int) source {
	if depth <= 0 || g.chance(35) {
		return g.tableSource()
	}
	return g.derived(g.query(depth - 1))
}

// sel makes a SELECT of items.
func (g *gen) sel(items []item, s *ast.Select) grown {
	out := grown{q: s}
	for _, it := range items {
		n := g.name("o")
		s.Items = append(s.Items, ast.SelectItem{Expr: it.expr, Alias: &ast.Ident{Name: n}})
		out.columns = append(out.columns, column{n, it.typ, it.class})
	}
	return out
}

// someItems are columns and expressions over a scope.
func (g *gen) someItems(s scope) []item {
	all := s.all()
	var out []item
	for range 1 + g.r.IntN(4) {
		if g.chance(70) {
			out = append(out, all[g.r.IntN(len(all))])
			continue
		}
		out = append(out, g.computed(s))
	}
	return out
}

func (g *gen) computed(s scope) item {
	c := []class{whole, whole, str, boolean, decimal}[g.r.IntN(5)]
	typ := map[class]string{whole: "BIGINT", str: "STRING", boolean: "BOOLEAN", decimal: "DECIMAL(38, 3)"}[c]
	return item{g.expr(s, c, 2), column{typ: typ, class: c}}
}

// expr grows an expression of a class.
func (g *gen) expr(s scope, c class, depth int) ast.Expr {
	columns := s.of(c)
	if len(columns) > 0 && (depth <= 0 || g.chance(40)) {
		return columns[g.r.IntN(len(columns))]
	}
	sub := func(c class) ast.Expr { return g.expr(s, c, depth-1) }
	if depth > 0 && g.chance(15) {
		cs := &ast.Case{Whens: []ast.When{{Cond: sub(boolean), Then: sub(c)}}}
		if g.chance(60) {
			cs.Else = sub(c)
		}
		return cs
	}
	if depth > 0 && g.chance(8) {
		return call("COALESCE", sub(c), sub(c))
	}
	switch c {
	case whole:
		if depth <= 0 {
			return number(g.r.IntN(7) - 2)
		}
		switch g.r.IntN(6) {
		case 0, 1:
			return infix([]ast.InfixOp{ast.Add, ast.Subtract, ast.Multiply}[g.r.IntN(3)], sub(whole), sub(whole))
		case 2:
			return call("CHAR_LENGTH", sub(str))
		case 3:
			return call("MOD", sub(whole), number(2+g.r.IntN(3)))
		case 4:
			return &ast.Unary{Op: ast.Minus, X: sub(whole)}
		}
		return number(g.r.IntN(7) - 2)
	case decimal:
		if depth <= 0 || g.chance(40) {
			return &ast.Number{Kind: ast.DecimalNumber, Text: g.one("0.5", "1.50", "0.01", "100.0")}
		}
		return infix([]ast.InfixOp{ast.Add, ast.Subtract}[g.r.IntN(2)], sub(decimal), sub(decimal))
	case double:
		return &ast.Number{Kind: ast.FloatNumber, Text: g.one("0e0", "25e-2", "1e0")}
	case str:
		if depth <= 0 {
			return text(g.one("a", "b", "", "z"))
		}
		switch g.r.IntN(6) {
		case 0:
			return call("UPPER", sub(str))
		case 1:
			return infix(ast.Concat, sub(str), sub(str))
		case 2:
			return call("SUBSTRING", sub(str), number(1+g.r.IntN(2)), number(g.r.IntN(3)))
		case 3:
			return &ast.Cast{X: sub(whole), Type: simple("STRING")}
		}
		return text(g.one("a", "b", "", "z"))
	case boolean:
		return g.cond(s, depth)
	case stamp:
		return &ast.Time{Kind: ast.TimestampLiteral, Text: ast.String{Value: g.one("2024-01-01 00:00:05.000", "2024-01-01 00:00:10.000")}}
	}
	return &ast.Array{Items: []ast.Expr{number(1), number(2)}}
}

// cond grows a condition.
func (g *gen) cond(s scope, depth int) ast.Expr {
	if depth > 1 {
		switch g.r.IntN(6) {
		case 0:
			return infix(ast.And, g.cond(s, depth-1), g.cond(s, depth-1))
		case 1:
			return infix(ast.Or, g.cond(s, depth-1), g.cond(s, depth-1))
		case 2:
			return &ast.Unary{Op: ast.Not, X: g.cond(s, depth-1)}
		}
	}
	c := []class{whole, whole, whole, str, str, decimal, double, stamp, boolean}[g.r.IntN(9)]
	cols := s.of(c)
	if len(cols) == 0 {
		c = whole
		cols = s.of(c)
	}
	var x ast.Expr
	if len(cols) > 0 {
		x = cols[g.r.IntN(len(cols))]
	} else {
		x = g.expr(s, c, 1)
	}
	y := g.expr(s, c, depth-1)
	switch g.r.IntN(8) {
	case 0:
		return &ast.Is{X: x, Not: g.chance(70)}
	case 1:
		return &ast.IsDistinct{X: x, Y: y, Not: g.chance(50)}
	case 2:
		if c == boolean {
			return x
		}
		return &ast.Between{X: x, Low: g.expr(s, c, 0), High: y, Not: g.chance(30)}
	case 3:
		switch c {
		case whole:
			return &ast.In{X: x, List: []ast.Expr{number(1), number(2), number(g.r.IntN(5))}, Not: g.chance(30)}
		case str:
			return &ast.LikeExpr{X: x, Pattern: text(g.one("a%", "_", "%b", "%")), Not: g.chance(30)}
		}
	}
	ops := []ast.InfixOp{ast.Eq, ast.NotEq, ast.Less, ast.LessEq, ast.Greater, ast.GreaterEq}
	return infix(ops[g.r.IntN(len(ops))], x, y)
}

// query grows a query without operators that wait for a watermark.
func (g *gen) query(depth int) grown {
	switch n := g.r.IntN(17); {
	case depth <= 0 || n < 2:
		return g.project(depth)
	case n < 5:
		return g.group(g.source(depth))
	case n < 6:
		q := g.project(depth)
		q.q.(*ast.Select).Distinct = true
		return q
	case n < 9:
		return g.join(depth)
	case n < 11:
		return g.semi(depth)
	case n < 12:
		return g.setOp(depth)
	case n < 13:
		return g.topN(g.source(depth), g.chance(50))
	case n < 14:
		return g.limit(depth)
	case n < 15:
		return g.overColumn(depth)
	case n < 16:
		return g.scalar(depth)
	case g.chance(20):
		return g.values()
	}
	return g.unnest(depth)
}

// values is constants, perhaps beside a table.
func (g *gen) values() grown {
	v := &ast.Values{}
	for range 1 + g.r.IntN(3) {
		v.Rows = append(v.Rows, &ast.Row{Items: []ast.Expr{number(g.r.IntN(4)), text(g.one("a", "b", ""))}})
	}
	d := g.derived(grown{q: v})
	d.ref.(*ast.Derived).Alias.Columns = []ast.Ident{ident("n"), ident("s")}
	d.columns = []column{{"n", "INT", whole}, {"s", "STRING", str}}
	if g.chance(50) {
		return g.sel(scope{d}.all(), &ast.Select{From: d.ref})
	}
	l := g.tableSource()
	return g.sel(scope{l, d}.all(), &ast.Select{From: &ast.Join{Kind: ast.LeftJoin, Left: l.ref, Right: d.ref, On: g.joinCond(l, d)}})
}

func (g *gen) project(depth int) grown {
	src := g.source(depth)
	s := scope{src}
	sel := &ast.Select{From: src.ref}
	if g.chance(50) {
		sel.Where = g.cond(s, 2)
	}
	q := g.sel(g.someItems(s), sel)
	if depth > 0 && g.chance(10) {
		// The source as a table of WITH.
		if d, ok := src.ref.(*ast.Derived); ok {
			name := g.name("w")
			sel.From = &ast.TableName{Name: ast.Name{Parts: []ast.Ident{ident(name)}}, Alias: alias(src.alias)}
			q.q = &ast.With{Tables: []ast.CTE{{Name: ident(name), Query: d.Query}}, Body: sel}
			return grown{q: &ast.Select{Items: []ast.SelectItem{{Expr: &ast.Star{}}}, From: &ast.Derived{Query: q.q, Alias: alias(g.name("v"))}}, columns: q.columns}
		}
	}
	return q
}

// aggregates makes calls over a scope. retracted and order say that FIRST_VALUE and the like have an answer.
func (g *gen) aggregates(s scope, arrival bool) []item {
	var out []item
	for range 1 + g.r.IntN(3) {
		all := s.all()
		it := all[g.r.IntN(len(all))]
		for it.class == array {
			it = item{g.expr(s, whole, 0), column{typ: "INT", class: whole}}
		}
		if g.chance(15) {
			it = g.computed(s)
		}
		var c *ast.Call
		typ := it.column
		switch n := g.r.IntN(12); {
		case n == 0:
			c, typ = call("COUNT"), column{typ: "BIGINT", class: whole}
			c.Star = true
		case n < 3:
			c, typ = call("COUNT", it.expr), column{typ: "BIGINT", class: whole}
		case n < 5 && it.class <= double:
			c = call("SUM", it.expr)
		case n < 6 && it.class <= double:
			c = call("AVG", it.expr)
		case n < 7 && (it.class == double || it.class == whole && strings.Contains("TINYINT SMALLINT", it.typ)):
			c = call(g.one("STDDEV_POP", "VAR_POP", "STDDEV_SAMP", "VAR_SAMP"), it.expr)
		case n < 8 && arrival:
			c = call(g.one("FIRST_VALUE", "LAST_VALUE"), it.expr)
			if it.class == str && g.chance(50) {
				c = call("LISTAGG", it.expr)
			}
		default:
			c = call(g.one("MIN", "MAX"), it.expr)
		}
		name := c.Name.Parts[0].Name
		if !c.Star && name != "FIRST_VALUE" && name != "LAST_VALUE" && !strings.Contains(name, "_") && g.chance(25) {
			c.Distinct = true
		}
		if g.chance(20) {
			c.Filter = g.cond(s, 1)
		}
		out = append(out, item{c, typ})
	}
	return out
}

// keys picks columns to group by.
func (g *gen) keys(s scope, least int) []item {
	all := slices.DeleteFunc(s.all(), func(it item) bool { return it.class == array || it.class == double })
	g.r.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	return all[:min(len(all), least+g.r.IntN(2))]
}

func (g *gen) group(src source) grown {
	s := scope{src}
	sel := &ast.Select{From: src.ref}
	if g.chance(30) {
		sel.Where = g.cond(s, 2)
	}
	keys := g.keys(s, g.r.IntN(2))
	_, plain := src.ref.(*ast.TableName)
	items := slices.Clone(keys)
	aggs := g.aggregates(s, plain)
	items = append(items, aggs...)
	var by []ast.Expr
	for _, k := range keys {
		by = append(by, k.expr)
	}
	switch {
	case len(by) == 0:
	case g.chance(25):
		kind := []ast.GroupingKind{ast.Rollup, ast.Cube, ast.Sets}[g.r.IntN(3)]
		sets := &ast.GroupingSets{Kind: kind, Items: by}
		if kind == ast.Sets && g.chance(50) {
			sets.Items = append(slices.Clone(by), &ast.Row{})
		}
		sel.GroupBy = []ast.Expr{sets}
		if g.chance(40) {
			items = append(items, item{call("GROUPING", by[0]), column{typ: "BIGINT", class: whole}})
		}
	default:
		sel.GroupBy = by
	}
	if g.chance(20) {
		a := aggs[g.r.IntN(len(aggs))]
		if a.class == whole {
			sel.Having = infix(ast.Greater, a.expr, number(g.r.IntN(3)-1))
		} else {
			sel.Having = &ast.Is{X: a.expr, Not: true}
		}
	}
	q := g.sel(items, sel)
	q.quiet = sel.Having == nil // which lets half of an update through
	return q
}

// equals is an equality between columns of two sources, nil if they have none of one class.
func (g *gen) equals(l, r source) ast.Expr {
	for range 8 {
		a := l.columns[g.r.IntN(len(l.columns))]
		b := r.columns[g.r.IntN(len(r.columns))]
		if a.class == b.class && a.class != array && a.class != double {
			return infix(ast.Eq, ref(l.alias, a.name), ref(r.alias, b.name))
		}
	}
	return nil
}

func (g *gen) joinCond(l, r source) ast.Expr {
	cond := g.equals(l, r)
	if cond == nil || g.chance(25) {
		other := g.cond(scope{l, r}, 2)
		if cond != nil {
			return infix(ast.And, cond, other)
		}
		return other
	}
	if e := g.equals(l, r); e != nil && g.chance(15) {
		return infix(ast.And, cond, e)
	}
	return cond
}

func (g *gen) join(depth int) grown {
	l, r := g.source(depth-1), g.source(depth-1)
	kind := []ast.JoinKind{ast.InnerJoin, ast.InnerJoin, ast.LeftJoin, ast.RightJoin, ast.FullJoin}[g.r.IntN(5)]
	sel := &ast.Select{From: &ast.Join{Kind: kind, Left: l.ref, Right: r.ref, On: g.joinCond(l, r)}}
	s := scope{l, r}
	if g.chance(30) {
		sel.Where = g.cond(s, 2)
	}
	items := g.someItems(s)
	if g.chance(50) {
		items = s.all()
	}
	return g.sel(items, sel)
}

func (g *gen) semi(depth int) grown {
	l := g.source(depth - 1)
	sel := &ast.Select{From: l.ref}
	s := scope{l}
	if g.chance(40) {
		sel.Where = g.cond(s, 1)
	}
	var cond ast.Expr
	if g.chance(50) {
		r := g.source(depth - 1)
		where := g.joinCond(l, r)
		cond = &ast.Exists{Query: &ast.Select{Items: []ast.SelectItem{{Expr: number(1)}}, From: r.ref, Where: where}}
		if g.chance(50) {
			cond = &ast.Unary{Op: ast.Not, X: cond}
		}
	} else {
		c := []class{whole, str}[g.r.IntN(2)]
		x := g.expr(s, c, 0)
		r := g.source(depth - 1)
		inner := &ast.Select{From: r.ref, Items: []ast.SelectItem{{Expr: g.expr(scope{r}, c, 0)}}}
		if g.chance(40) {
			inner.Where = g.cond(scope{r}, 1)
		} else if g.chance(30) {
			inner.Where = g.equals(l, r)
		}
		cond = &ast.In{X: x, Query: inner, Not: g.chance(40)}
	}
	switch g.r.IntN(8) {
	case 0: // as a value
		return g.sel(append(g.someItems(s), item{cond, column{typ: "BOOLEAN", class: boolean}}), sel)
	case 1:
		cond = infix(ast.Or, cond, g.cond(s, 1))
	}
	if sel.Where != nil {
		cond = infix(ast.And, sel.Where, cond)
	}
	sel.Where = cond
	return g.sel(s.all(), sel)
}

func (g *gen) setOp(depth int) grown {
	side := func(shape []column) grown {
		src := g.source(depth - 1)
		s := scope{src}
		sel := &ast.Select{From: src.ref}
		if g.chance(40) {
			sel.Where = g.cond(s, 1)
		}
		var items []item
		for _, c := range shape {
			items = append(items, item{g.expr(s, c.class, 0), c})
		}
		return g.sel(items, sel)
	}
	var shape []column
	for range 1 + g.r.IntN(2) {
		shape = append(shape, []column{{typ: "BIGINT", class: whole}, {typ: "STRING", class: str}, {typ: "DECIMAL(38, 3)", class: decimal}}[g.r.IntN(3)])
	}
	l, r := side(shape), side(shape)
	kind := []ast.SetKind{ast.Union, ast.Union, ast.Intersect, ast.Except}[g.r.IntN(4)]
	return grown{q: &ast.SetOp{Kind: kind, All: g.chance(50), Left: l.q, Right: r.q}, columns: l.columns}
}

// order makes ORDER BY of columns; with all, every column is in it, so that nothing is left open.
func (g *gen) order(s scope, all bool) []ast.OrderItem {
	items := slices.DeleteFunc(s.all(), func(it item) bool { return it.class == array })
	g.r.Shuffle(len(items), func(i, k int) { items[i], items[k] = items[k], items[i] })
	if !all {
		items = items[:min(1+g.r.IntN(2), len(items))]
	}
	var out []ast.OrderItem
	for _, it := range items {
		o := ast.OrderItem{Expr: it.expr, Desc: g.chance(50)}
		if g.chance(15) {
			o.Nulls = []ast.NullsOrder{ast.NullsFirst, ast.NullsLast}[g.r.IntN(2)]
		}
		out = append(out, o)
	}
	return out
}

// ranked is SELECT *, ROW_NUMBER() OVER (..) AS rn of a source, and the filter around it.
func (g *gen) ranked(src source, partition []ast.Expr, order []ast.OrderItem, n int, rank bool) grown {
	rn := g.name("rn")
	rows := call("ROW_NUMBER")
	rows.Over = &ast.Over{Spec: &ast.Window{PartitionBy: partition, OrderBy: order}}
	var items []ast.SelectItem
	for _, c := range src.columns {
		items = append(items, ast.SelectItem{Expr: ref(src.alias, c.name)})
	}
	inner := &ast.Select{From: src.ref, Items: append(items, ast.SelectItem{Expr: rows, Alias: &ast.Ident{Name: rn}})}
	out := g.derived(grown{q: inner, columns: append(slices.Clone(src.columns), column{rn, "BIGINT", whole})})
	s := scope{out}
	all := s.all()
	if !rank {
		all = all[:len(all)-1]
	}
	op := ast.LessEq
	if g.chance(15) {
		op = ast.Eq
	}
	return g.sel(all, &ast.Select{From: out.ref, Where: infix(op, ref(rn), number(n))})
}

func (g *gen) topN(src source, rank bool) grown {
	s := scope{src}
	var partition []ast.Expr
	for _, k := range g.keys(s, g.r.IntN(2)) {
		partition = append(partition, k.expr)
	}
	return g.ranked(src, partition, g.order(s, g.chance(80)), 1+g.r.IntN(3), rank)
}

func (g *gen) limit(depth int) grown {
	src := g.source(depth)
	s := scope{src}
	q := g.sel(s.all(), &ast.Select{From: src.ref})
	o := &ast.Ordered{Body: q.q, Limit: number(1 + g.r.IntN(4))}
	if g.chance(80) {
		o.OrderBy = g.order(s, g.chance(80))
	}
	if g.chance(20) {
		o.Offset = number(g.r.IntN(3))
	}
	d := g.derived(grown{q: o, columns: q.columns})
	return g.sel(scope{d}.all(), &ast.Select{From: d.ref})
}

// overCalls makes aggregates over one window.
func (g *gen) overCalls(s scope, w *ast.Window, arrival bool) []item {
	calls := g.aggregates(s, arrival)
	for i := range calls {
		c := calls[i].expr.(*ast.Call)
		c.Filter = nil
		c.Over = &ast.Over{Spec: w}
	}
	return calls
}

func (g *gen) overColumn(depth int) grown {
	src := g.source(depth)
	s := scope{src}
	w := &ast.Window{OrderBy: g.order(s, g.chance(50))}
	for _, k := range g.keys(s, g.r.IntN(2)) {
		w.PartitionBy = append(w.PartitionBy, k.expr)
	}
	if g.chance(40) {
		w.Frame = &ast.Frame{Rows: true, Start: ast.Bound{Kind: ast.UnboundedPreceding}, End: ast.Bound{Kind: ast.CurrentRow}}
		if g.chance(60) {
			w.Frame.Start = ast.Bound{Kind: ast.Preceding, Offset: number(1 + g.r.IntN(2))}
		}
		w.OrderBy = g.order(s, true)
	}
	return g.sel(append(s.all(), g.overCalls(s, w, false)...), &ast.Select{From: src.ref})
}

func (g *gen) scalar(depth int) grown {
	l, r := g.source(depth-1), g.source(depth-1)
	sel := &ast.Select{From: l.ref}
	rs := scope{r}
	agg := g.aggregates(rs, false)[0]
	inner := &ast.Select{From: r.ref, Items: []ast.SelectItem{{Expr: agg.expr}}}
	if g.chance(60) {
		inner.Where = g.equals(l, r)
	} else if g.chance(50) {
		inner.Where = g.cond(rs, 1)
	}
	if g.chance(25) && agg.expr.(*ast.Call).Name.Parts[0].Name != "COUNT" {
		// As a row of its own beside the left one.
		a, v := g.name("v"), g.name("m")
		inner.Items[0].Alias = &ast.Ident{Name: v}
		sel.From = &ast.Join{Kind: ast.LeftJoin, Left: l.ref, Right: &ast.Derived{Lateral: true, Query: inner, Alias: alias(a)}, On: &ast.Bool{Value: ast.True}}
		return g.sel(append(g.someItems(scope{l}), item{ref(a, v), agg.column}), sel)
	}
	var value ast.Expr = &ast.QueryExpr{Query: inner}
	if g.chance(30) && agg.class == whole {
		sel.Where = infix(ast.GreaterEq, g.expr(scope{l}, whole, 0), value)
		return g.sel(scope{l}.all(), sel)
	}
	items := append(g.someItems(scope{l}), item{value, agg.column})
	return g.sel(items, sel)
}

func (g *gen) unnest(depth int) grown {
	src := g.source(depth)
	s := scope{src}
	x := g.expr(s, array, 0)
	u := g.name("u")
	un := &ast.Unnest{Exprs: []ast.Expr{x}, Alias: &ast.Alias{Name: ident(u), Columns: []ast.Ident{ident("e")}}}
	cols := []column{{"e", "INT", whole}}
	if g.chance(30) {
		un.Ordinality = true
		un.Alias.Columns = append(un.Alias.Columns, ident("n"))
		cols = append(cols, column{"n", "INT", whole})
	}
	j := &ast.Join{Kind: ast.CrossJoin, Left: src.ref, Right: un}
	if g.chance(50) {
		j.Kind, j.On = ast.LeftJoin, &ast.Bool{Value: ast.True}
	}
	s = append(s, source{alias: u, columns: cols})
	sel := &ast.Select{From: j}
	if g.chance(30) {
		sel.Where = g.cond(s, 1)
	}
	return g.sel(s.all(), sel)
}

// ---- queries over time

func (g *gen) timedQuery() grown {
	var q grown
	switch g.r.IntN(10) {
	case 0, 1:
		q = g.windowAgg()
	case 2:
		q = g.cascade()
	case 3:
		q = g.windowJoin()
	case 4:
		q = g.windowRank()
	case 5:
		q = g.intervalJoin()
	case 6, 7:
		q = g.overTime()
	case 8:
		q = g.legacyWindow()
	default:
		q = g.dedup()
	}
	switch g.r.IntN(8) {
	case 0:
		return g.group(g.derived(q))
	case 1:
		d := g.derived(q)
		s := scope{d}
		return g.sel(g.someItems(s), &ast.Select{From: d.ref, Where: g.cond(s, 2)})
	}
	return q
}

// timeSource is a table, perhaps behind a filter, whose ts is a time attribute.
func (g *gen) timeSource() source {
	src := g.tableSource()
	if !g.chance(30) {
		return src
	}
	s := scope{src}
	var items []ast.SelectItem
	for _, c := range src.columns {
		items = append(items, ast.SelectItem{Expr: ref(src.alias, c.name)})
	}
	return g.derived(grown{q: &ast.Select{Items: items, From: src.ref, Where: g.cond(s, 1)}, columns: src.columns})
}

// windowed is a window function over a table or a query.
func (g *gen) windowed(kind string) source {
	src := g.timeSource()
	arg := &ast.TableArg{}
	if t, ok := src.ref.(*ast.TableName); ok {
		arg.Name = &t.Name
	} else {
		arg.Query = src.ref.(*ast.Derived).Query
	}
	args := []ast.Expr{arg, &ast.Descriptor{Columns: []ast.Ident{ident("ts")}}}
	size := 2 + g.r.IntN(6)
	switch kind {
	case "TUMBLE":
		args = append(args, seconds(size))
		if g.chance(25) {
			args = append(args, seconds(g.r.IntN(size)))
		}
	case "HOP":
		args = append(args, seconds(size), seconds(size*(1+g.r.IntN(3))))
	case "CUMULATE":
		args = append(args, seconds(size), seconds(size*(1+g.r.IntN(3))))
	case "SESSION":
		args = append(args, seconds(size))
		arg.PartitionBy = []ast.Expr{ref("k")}
	}
	a := g.name("w")
	cols := slices.Clone(src.columns)
	cols = append(cols, column{"window_start", "TIMESTAMP(3)", stamp}, column{"window_end", "TIMESTAMP(3)", stamp})
	return source{&ast.TableFunc{Call: call(kind, args...), Alias: alias(a)}, a, cols}
}

func (g *gen) windowAgg() grown { return g.windowAggOf(g.one("TUMBLE", "HOP", "CUMULATE", "SESSION")) }

func (g *gen) windowAggOf(kind string) grown {
	src := g.windowed(kind)
	n := len(src.columns)
	s := scope{source{src.ref, src.alias, src.columns[:n-2]}}
	keys := g.keys(s, g.r.IntN(2))
	if kind == "SESSION" {
		keys = []item{{ref(src.alias, "k"), src.columns[0]}}
	}
	sel := &ast.Select{From: src.ref}
	if kind != "SESSION" && g.chance(25) { // below sessions the planner puts it, and so does Flink
		sel.Where = g.cond(s, 1)
	}
	window := []item{{ref(src.alias, "window_start"), src.columns[n-2]}, {ref(src.alias, "window_end"), src.columns[n-1]}}
	items := append(slices.Clone(window), keys...)
	aggs := g.aggregates(s, false)
	items = append(items, aggs...)
	var by []ast.Expr
	for _, k := range keys {
		by = append(by, k.expr)
	}
	w := []ast.Expr{window[0].expr, window[1].expr}
	if len(by) > 0 && kind != "SESSION" && g.chance(20) {
		sel.GroupBy = append(w, &ast.GroupingSets{Kind: ast.Rollup, Items: by})
	} else {
		sel.GroupBy = append(w, by...)
	}
	if g.chance(20) && aggs[0].class == whole {
		sel.Having = infix(ast.Greater, aggs[0].expr, number(0))
	}
	q := g.sel(items, sel)
	q.end, q.session = 1, kind == "SESSION"
	return q
}

// cascade aggregates windows of windows, by the time of the first ones.
func (g *gen) cascade() grown {
	kind := g.one("TUMBLE", "HOP", "CUMULATE")
	src := g.windowed(kind)
	s := scope{source{src.ref, src.alias, src.columns[:len(src.columns)-2]}}
	k := item{ref(src.alias, "k"), src.columns[0]}
	inner := &ast.Select{From: src.ref, GroupBy: []ast.Expr{ref(src.alias, "window_start"), ref(src.alias, "window_end"), ref(src.alias, "window_time"), k.expr}}
	q := g.sel(append([]item{k}, g.aggregates(s, false)...), inner)
	inner.Items = append(inner.Items, ast.SelectItem{Expr: ref(src.alias, "window_time"), Alias: &ast.Ident{Name: "wt"}})
	a := g.name("w")
	size := 4 * (1 + g.r.IntN(4))
	outer := source{&ast.TableFunc{Call: call("TUMBLE", &ast.TableArg{Query: q.q}, &ast.Descriptor{Columns: []ast.Ident{ident("wt")}}, seconds(size)), Alias: alias(a)}, a, q.columns}
	window := []item{{ref(a, "window_start"), column{typ: "TIMESTAMP(3)", class: stamp}}, {ref(a, "window_end"), column{typ: "TIMESTAMP(3)", class: stamp}}}
	return g.sel(append(window, g.aggregates(scope{outer}, false)...), &ast.Select{From: outer.ref, GroupBy: []ast.Expr{window[0].expr, window[1].expr}})
}

func (g *gen) windowJoin() grown {
	kind := g.one("TUMBLE", "HOP", "CUMULATE")
	l := g.windowed(kind)
	// The right side has the same windows.
	args := l.ref.(*ast.TableFunc).Call.Args
	r := g.windowed(kind)
	right := r.ref.(*ast.TableFunc).Call
	right.Args = append(slices.Clone(right.Args[:2]), args[2:]...)
	same := func(name string) ast.Expr { return infix(ast.Eq, ref(l.alias, name), ref(r.alias, name)) }
	cond := infix(ast.And, same("window_start"), same("window_end"))
	plain := func(s source) source { return source{s.ref, s.alias, s.columns[:len(s.columns)-2]} }
	cond = infix(ast.And, cond, infix(ast.Eq, ref(l.alias, "k"), ref(r.alias, "k")))
	if g.chance(30) {
		cond = infix(ast.And, cond, g.cond(scope{plain(l), plain(r)}, 1))
	}
	if g.chance(30) {
		var exists ast.Expr = &ast.Exists{Query: &ast.Select{Items: []ast.SelectItem{{Expr: number(1)}}, From: r.ref, Where: cond}}
		if g.chance(50) {
			exists = &ast.Unary{Op: ast.Not, X: exists}
		}
		return g.sel(scope{l}.all(), &ast.Select{From: l.ref, Where: exists})
	}
	join := []ast.JoinKind{ast.InnerJoin, ast.LeftJoin, ast.RightJoin, ast.FullJoin}[g.r.IntN(4)]
	return g.sel(scope{l, r}.all(), &ast.Select{From: &ast.Join{Kind: join, Left: l.ref, Right: r.ref, On: cond}})
}

func (g *gen) windowRank() grown {
	src := g.windowed(g.one("TUMBLE", "HOP", "CUMULATE"))
	if g.chance(40) {
		q := g.windowAggOf(g.one("TUMBLE", "HOP"))
		src = g.derived(q)
		partition := []ast.Expr{ref(src.alias, q.columns[0].name), ref(src.alias, q.columns[1].name)}
		return g.ranked(src, partition, g.order(scope{src}, true), 1+g.r.IntN(2), g.chance(50))
	}
	partition := []ast.Expr{ref(src.alias, "window_start"), ref(src.alias, "window_end")}
	if g.chance(60) {
		partition = append(partition, ref(src.alias, "k"))
	}
	order := g.order(scope{src}, true)
	if g.chance(20) {
		order = []ast.OrderItem{{Expr: ref(src.alias, "ts"), Desc: g.chance(50)}}
	}
	return g.ranked(src, partition, order, 1+g.r.IntN(2), g.chance(50))
}

func (g *gen) intervalJoin() grown {
	l, r := g.timeSource(), g.timeSource()
	lt, rt := ref(l.alias, "ts"), ref(r.alias, "ts")
	low := infix(ast.Subtract, rt, seconds(g.r.IntN(4)))
	high := infix(ast.Add, rt, seconds(g.r.IntN(4)))
	cond := infix(ast.And, infix(ast.Eq, ref(l.alias, "k"), ref(r.alias, "k")), &ast.Between{X: lt, Low: low, High: high})
	if g.chance(25) {
		cond = infix(ast.And, cond, g.cond(scope{l, r}, 1))
	}
	kind := []ast.JoinKind{ast.InnerJoin, ast.LeftJoin, ast.RightJoin, ast.FullJoin}[g.r.IntN(4)]
	return g.sel(scope{l, r}.all(), &ast.Select{From: &ast.Join{Kind: kind, Left: l.ref, Right: r.ref, On: cond}})
}

func (g *gen) overTime() grown {
	src := g.timeSource()
	s := scope{src}
	w := &ast.Window{OrderBy: []ast.OrderItem{{Expr: ref(src.alias, "ts")}}}
	for _, k := range g.keys(scope{{src.ref, src.alias, src.columns[:len(src.columns)-1]}}, g.r.IntN(2)) {
		w.PartitionBy = append(w.PartitionBy, k.expr)
	}
	from := ast.Bound{Kind: ast.UnboundedPreceding}
	rows := g.chance(50)
	if g.chance(60) {
		from = ast.Bound{Kind: ast.Preceding, Offset: seconds(g.r.IntN(5))}
		if rows {
			from.Offset = number(1 + g.r.IntN(3))
		}
	}
	if rows || from.Kind != ast.UnboundedPreceding || g.chance(50) {
		w.Frame = &ast.Frame{Rows: rows, Start: from, End: ast.Bound{Kind: ast.CurrentRow}}
	}
	items := append(s.all(), g.overCalls(s, w, rows)...)
	if w.Frame == nil && g.chance(30) {
		n := call(g.one("ROW_NUMBER", "LAG"))
		if n.Name.Parts[0].Name == "LAG" {
			n.Args = []ast.Expr{ref(src.alias, "k"), number(1 + g.r.IntN(2))}
		}
		n.Over = &ast.Over{Spec: w}
		items = append(s.all(), item{n, column{typ: "BIGINT", class: whole}})
	}
	return g.sel(items, &ast.Select{From: src.ref})
}

func (g *gen) legacyWindow() grown {
	src := g.timeSource()
	s := scope{src}
	ts := ref(src.alias, "ts")
	kind := g.one("TUMBLE", "HOP", "SESSION")
	size := 2 + g.r.IntN(6)
	args := []ast.Expr{ts, seconds(size)}
	if kind == "HOP" {
		args = []ast.Expr{ts, seconds(size), seconds(size*(1+g.r.IntN(3)) + g.r.IntN(2))}
	}
	keys := g.keys(scope{{src.ref, src.alias, src.columns[:len(src.columns)-1]}}, g.r.IntN(2))
	by := []ast.Expr{call(kind, args...)}
	for _, k := range keys {
		by = append(by, k.expr)
	}
	items := append(slices.Clone(keys), item{call(kind+"_START", args...), column{typ: "TIMESTAMP(3)", class: stamp}}, item{call(kind+"_END", args...), column{typ: "TIMESTAMP(3)", class: stamp}})
	return g.sel(append(items, g.aggregates(s, false)...), &ast.Select{From: src.ref, GroupBy: by})
}

// temporalJoin joins a table with the versions of another one.
func (g *gen) temporalJoin() grown {
	l := g.timeSource()
	v := g.table(len(g.tables))
	v.mode, v.key = "upsert", 1
	v.columns[0].typ = l.columns[0].typ
	g.tables = append(g.tables, v)
	a := g.name("a")
	r := source{&ast.TableName{Name: ast.Name{Parts: []ast.Ident{ident(v.name)}}, Period: ref(l.alias, "ts"), Alias: alias(a)}, a, v.columns}
	kind := []ast.JoinKind{ast.InnerJoin, ast.LeftJoin}[g.r.IntN(2)]
	cond := infix(ast.Eq, ref(l.alias, "k"), ref(a, "k"))
	return g.sel(scope{l, r}.all(), &ast.Select{From: &ast.Join{Kind: kind, Left: l.ref, Right: r.ref, On: cond}})
}

// dedup keeps the first or last row of a key by time.
func (g *gen) dedup() grown {
	src := g.timeSource()
	order := []ast.OrderItem{{Expr: ref(src.alias, "ts"), Desc: g.chance(50)}}
	q := g.ranked(src, []ast.Expr{ref(src.alias, "k")}, order, 1, g.chance(20))
	return q
}
