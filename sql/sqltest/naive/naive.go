// Package naive says what a query must give: it evaluates the bound tree, before any rule, on all rows that came in, by
// nested loops, by sorting, and by listing all windows. It keeps no state between calls and shares nothing with the planner
// and the operators, whose answers it is compared with; only functions of values are those of package fn.
//
// It does not know MATCH_RECOGNIZE, processing time, lookups, zones and user functions: [Eval] returns ErrUnsupported then.
package naive

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/catalog"
	"github.com/millrace-stream/millrace/sql/rel"
)

// ErrUnsupported is returned for what this package does not know.
var ErrUnsupported = errors.New("not known to the naive evaluator")

// Event is a row of a table as it came in: Values has one value for each column that is neither computed nor metadata. Line
// is its number among the events of all tables, from 1.
type Event struct {
	Line   int
	Kind   row.RowKind
	Values []row.Value
}

// Input is what a query reads.
type Input struct {
	// Tables are the events by name of the table, in order of arrival.
	Tables map[string][]Event
	// Anyhow says that rows may have come in another order than that of their lines: an answer that depends on it is ambiguous.
	Anyhow bool
	// Late says whether the row of a line came too late for a window that ends at a time (exclusive, ms); nil = none did.
	Late func(line int, end int64) bool
}

// Result is the bag of rows that a query gives.
type Result struct {
	Rows [][]row.Value
	// Ambiguous says why other rows would be right as well: what is asked for depends on an order that the query leaves
	// open. "" = there is one answer.
	Ambiguous string
}

// Eval evaluates a query. It fails where the query fails at run time.
func Eval(n rel.Node, in *Input) (res *Result, err error) {
	e := &eval{in: in}
	defer func() {
		if p := recover(); p != nil {
			f, ok := p.(failure)
			if !ok {
				panic(p)
			}
			res, err = nil, f.error
		}
	}()
	b := e.node(n)
	res = &Result{Ambiguous: e.ambiguous}
	for _, t := range b.rows {
		res.Rows = append(res.Rows, t.v)
	}
	return res, nil
}

// failure is a panic that Eval turns into an error.
type failure struct{ error }

func fail(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

func unsupported(what any) {
	panic(failure{fmt.Errorf("%w: %v", ErrUnsupported, what)})
}

// tuple is a row and the line that made it.
type tuple struct {
	v    []row.Value
	line int
}

// bag is rows. inOrder says that they lie in the order in which a stream would have them.
type bag struct {
	rows    []tuple
	inOrder bool
}

type eval struct {
	in        *Input
	ambiguous string
	// outer are the rows of the queries around, the innermost last.
	outer [][]row.Value
	// asValue: subqueries are asked for a value, and not whether a row passes.
	asValue bool
	// emptyRow: an aggregate without GROUP BY has a row over no rows too, as in a query for each row around it.
	emptyRow bool
}

// leftOpen notes that the order that matters is not defined.
func (e *eval) leftOpen(why string) {
	if e.ambiguous == "" {
		e.ambiguous = why
	}
}

// within evaluates a node once for a row of the query around it.
func (e *eval) within(v []row.Value, n rel.Node) bag {
	asValue := e.asValue
	e.outer, e.asValue = append(e.outer, v), false
	defer func() { e.outer, e.asValue = e.outer[:len(e.outer)-1], asValue }()
	return e.node(n)
}

func (e *eval) node(n rel.Node) bag {
	switch n := n.(type) {
	case *rel.Scan:
		return e.scan(n)
	case *rel.Watermark:
		return e.node(n.Input)
	case *rel.Values:
		var out bag
		for _, r := range n.Rows {
			out.rows = append(out.rows, tuple{e.exprs(r, nil), 0})
		}
		return out
	case *rel.Project:
		in := e.node(n.Input)
		out := bag{inOrder: in.inOrder && !asks(n.Exprs...)}
		e.asValue = true
		defer func() { e.asValue = false }()
		for _, t := range in.rows {
			out.rows = append(out.rows, tuple{e.exprs(n.Exprs, t.v), t.line})
		}
		return out
	case *rel.Filter:
		in := e.node(n.Input)
		out := bag{inOrder: in.inOrder && !asks(n.Cond)}
		for _, t := range in.rows {
			if e.passes(n.Cond, t.v) {
				out.rows = append(out.rows, t)
			}
		}
		return out
	case *rel.Join:
		return e.join(n)
	case *rel.Correlate:
		return e.correlate(n)
	case *rel.Unnest:
		return e.unnest(n)
	case *rel.Aggregate:
		return e.aggregate(n)
	case *rel.WindowTVF:
		return e.window(n)
	case *rel.SetOp:
		return e.setOp(n)
	case *rel.Over:
		return e.over(n)
	case *rel.Sort:
		return e.sort(n)
	case *rel.Limit:
		return e.limit(n)
	}
	unsupported(n)
	return bag{}
}

// passes says whether a row passes a filter: all parts of AND do.
func (e *eval) passes(cond rel.Expr, v []row.Value) bool {
	c, ok := cond.(*rel.Call)
	if ok && c.Func.Name == "AND" {
		return !slices.ContainsFunc(c.Args, func(a rel.Expr) bool { return !e.passes(a, v) })
	}
	alone := cond
	if ok && c.Func.Name == "NOT" {
		alone = c.Args[0]
	}
	_, alonePasses := alone.(*rel.Subquery)
	e.asValue = !alonePasses
	defer func() { e.asValue = false }()
	return e.holds(cond, v)
}

// asks says whether expressions have subqueries: then rows are put out anew when these give something else.
func asks(list ...rel.Expr) (yes bool) {
	for _, x := range list {
		rel.WalkExpr(x, func(x rel.Expr) bool {
			_, is := x.(*rel.Subquery)
			yes = yes || is
			return true
		})
	}
	return yes
}

// scan folds what came in: an upsert table has the last row of each key, one with changes what was not taken back.
func (e *eval) scan(n *rel.Scan) bag {
	t := n.Table
	out := bag{inOrder: !e.in.Anyhow}
	events, ok := e.in.Tables[t.Path.Name]
	if !ok {
		unsupported("table " + t.Path.Name)
	}
	place := map[int]int{} // of a column of the table among the values
	for i := range t.Columns {
		if t.Columns[i].Kind == catalog.Physical {
			place[i] = len(place)
		}
	}
	project := func(ev Event) []row.Value {
		v := make([]row.Value, len(n.Columns))
		for i, c := range n.Columns {
			at, ok := place[c]
			if !ok {
				unsupported("column " + t.Columns[c].Name)
			}
			v[i] = ev.Values[at]
		}
		return v
	}
	upsert := t.Options["changelog-mode"] == "upsert"
	var live []Event
	for _, ev := range events {
		same := func(o Event) bool { return keyOf(o.Values...) == keyOf(ev.Values...) }
		if upsert {
			key := func(o Event) string {
				var k []row.Value
				for _, c := range t.Key {
					k = append(k, o.Values[place[c]])
				}
				return keyOf(k...)
			}
			same = func(o Event) bool { return key(o) == key(ev) }
		}
		at := slices.IndexFunc(live, same)
		switch {
		case ev.Kind.Adds() && upsert && at >= 0:
			if keyOf(live[at].Values...) != keyOf(ev.Values...) {
				live = append(slices.Delete(live, at, at+1), ev)
				out.inOrder = false // it stays where it was if no column that is read has changed
			}
		case ev.Kind.Adds():
			live = append(live, ev)
		case at >= 0:
			live = slices.Delete(live, at, at+1)
			if slices.ContainsFunc(live, func(o Event) bool { return alike(o, ev) }) {
				out.inOrder = false // which of two rows goes that are equal in the columns that are read?
			}
		}
	}
	for _, ev := range live {
		out.rows = append(out.rows, tuple{project(ev), ev.Line})
	}
	return out
}

// alike says whether two rows have a column in common.
func alike(a, b Event) bool {
	for i := range a.Values {
		if keyOf(a.Values[i]) == keyOf(b.Values[i]) {
			return true
		}
	}
	return false
}

func concat(a, b []row.Value) []row.Value { return slices.Concat(a, b) }

func (e *eval) join(n *rel.Join) bag {
	if n.AsOf != nil {
		return e.temporal(n)
	}
	l, r := e.node(n.Left), e.node(n.Right)
	lw, rw := n.Left.Schema().Len(), n.Right.Schema().Len()
	var out bag
	met := make([]bool, len(r.rows))
	for _, a := range l.rows {
		found := false
		for i, b := range r.rows {
			v := concat(a.v, b.v)
			if n.Cond == nil || e.holds(n.Cond, v) {
				found, met[i] = true, true
				out.rows = append(out.rows, tuple{v, max(a.line, b.line)})
			}
		}
		if !found && (n.Kind == rel.Left || n.Kind == rel.Full) {
			out.rows = append(out.rows, tuple{concat(a.v, make([]row.Value, rw)), a.line})
		}
	}
	if n.Kind == rel.Right || n.Kind == rel.Full {
		for i, b := range r.rows {
			if !met[i] {
				out.rows = append(out.rows, tuple{concat(make([]row.Value, lw), b.v), b.line})
			}
		}
	}
	return out
}

// temporal joins each left row with the version of the right table at its time: the row of the key with the greatest time
// that is not after it. The right side is an upsert table or a deduplication, so all versions are those of its events.
func (e *eval) temporal(n *rel.Join) bag {
	mark, ok := n.Right.(*rel.Watermark)
	if !ok {
		unsupported("FOR SYSTEM_TIME AS OF something that is no table")
	}
	scan, ok := mark.Input.(*rel.Scan)
	if !ok || scan.Table.Options["changelog-mode"] != "upsert" || scan.Table.Key == nil {
		unsupported("FOR SYSTEM_TIME AS OF a table that has no versions")
	}
	var out bag
	for _, a := range e.node(n.Left).rows {
		at := e.expr(n.AsOf, a.v)
		// The last version of each key: of equal times the later arrival.
		best := map[string]Event{}
		live := map[string]bool{}
		var order []string
		for _, ev := range e.in.Tables[scan.Table.Path.Name] {
			var k []row.Value
			for _, c := range scan.Table.Key {
				k = append(k, ev.Values[c])
			}
			key := keyOf(k...)
			if !ev.Kind.Adds() && !live[key] {
				continue // the deletion of a row that is not there
			}
			live[key] = ev.Kind.Adds()
			if at == nil || ev.Values[mark.Column] == nil || order3(ev.Values[mark.Column], at) > 0 {
				continue
			}
			old, there := best[key]
			if !there {
				order = append(order, key)
			}
			if !there || order3(ev.Values[mark.Column], old.Values[mark.Column]) >= 0 {
				best[key] = ev
			}
		}
		found := false
		for _, k := range order {
			ev := best[k]
			v := concat(a.v, ev.Values)
			if ev.Kind.Adds() && e.holds(n.Cond, v) {
				found = true
				out.rows = append(out.rows, tuple{v, max(a.line, ev.Line)})
			}
		}
		if !found && n.Kind == rel.Left {
			out.rows = append(out.rows, tuple{concat(a.v, make([]row.Value, n.Right.Schema().Len())), a.line})
		}
	}
	return out
}

func (e *eval) correlate(n *rel.Correlate) bag {
	in := e.node(n.Left)
	out := bag{inOrder: in.inOrder}
	rel.Walk(n.Right, func(r rel.Node) bool { // of a table, rows come when the table changes, too
		_, table := r.(*rel.Scan)
		out.inOrder = out.inOrder && !table
		return true
	})
	for _, a := range in.rows {
		right := e.within(a.v, n.Right)
		for _, b := range right.rows {
			out.rows = append(out.rows, tuple{concat(a.v, b.v), max(a.line, b.line)})
		}
		if len(right.rows) == 0 && n.Kind == rel.Left {
			out.rows = append(out.rows, tuple{concat(a.v, make([]row.Value, n.Right.Schema().Len())), a.line})
		}
	}
	return out
}

// unnest gives the elements of collections side by side; the shorter ones are filled up with NULL.
func (e *eval) unnest(n *rel.Unnest) bag {
	var lists [][][]row.Value
	var widths []int
	longest := 0
	for _, x := range n.Exprs {
		var list [][]row.Value
		width := 1
		t := x.Type()
		if t.Kind() == row.KindMap {
			width = 2
		} else if t.Elem().Kind() == row.KindRow {
			width = t.Elem().NumFields()
		}
		switch v := e.expr(x, nil).(type) {
		case nil:
		case []row.Value:
			for _, el := range v {
				switch fields, isRow := el.([]row.Value); {
				case t.Elem().Kind() == row.KindRow && isRow:
					list = append(list, fields)
				case t.Elem().Kind() == row.KindRow:
					list = append(list, make([]row.Value, width))
				default:
					list = append(list, []row.Value{el})
				}
			}
		case []row.Entry:
			if t.Kind() == row.KindMultiset {
				unsupported("UNNEST of a MULTISET")
			}
			for _, en := range v {
				list = append(list, []row.Value{en.Key, en.Value})
			}
		}
		lists, widths = append(lists, list), append(widths, width)
		longest = max(longest, len(list))
	}
	out := bag{inOrder: true}
	for i := range longest {
		var v []row.Value
		for k, list := range lists {
			if i < len(list) {
				v = append(v, list[i]...)
			} else {
				v = append(v, make([]row.Value, widths[k])...)
			}
		}
		if n.Ordinality {
			v = append(v, int64(i+1))
		}
		out.rows = append(out.rows, tuple{v, 0})
	}
	return out
}

func (e *eval) setOp(n *rel.SetOp) bag {
	var ins []bag
	for _, in := range n.Inputs {
		ins = append(ins, e.node(in))
	}
	count := func(b bag) map[string]int {
		m := map[string]int{}
		for _, t := range b.rows {
			m[keyOf(t.v...)]++
		}
		return m
	}
	var out bag
	switch n.Kind {
	case rel.Union:
		for _, in := range ins {
			out.rows = append(out.rows, in.rows...)
		}
		if !n.All {
			out = distinct(out)
		}
		return out
	case rel.Intersect, rel.Except:
		out = ins[0]
		out.inOrder = false
		for _, in := range ins[1:] {
			other := count(in)
			var kept []tuple
			for _, t := range out.rows {
				k := keyOf(t.v...)
				in := other[k] > 0
				if n.All {
					other[k]--
				}
				if in == (n.Kind == rel.Intersect) {
					kept = append(kept, t)
				}
			}
			out.rows = kept
		}
	}
	if !n.All {
		out = distinct(out)
	}
	return out
}

func distinct(in bag) bag {
	seen := map[string]bool{}
	var out bag
	for _, t := range in.rows {
		if k := keyOf(t.v...); !seen[k] {
			seen[k] = true
			out.rows = append(out.rows, t)
		}
	}
	return out
}

// group is the rows of a key, in order.
type group struct {
	key  []row.Value
	rows []tuple
}

// by groups rows, in the order in which the keys first appear.
func by(rows []tuple, columns []int) []*group {
	var out []*group
	at := map[string]*group{}
	for _, t := range rows {
		key := pick(t.v, columns)
		k := keyOf(key...)
		if at[k] == nil {
			at[k] = &group{key: key}
			out = append(out, at[k])
		}
		at[k].rows = append(at[k].rows, t)
	}
	return out
}

func pick(v []row.Value, columns []int) []row.Value {
	out := make([]row.Value, len(columns))
	for i, c := range columns {
		out[i] = v[c]
	}
	return out
}

// byKeys compares rows by sort keys.
func byKeys(keys []rel.SortKey) func(a, b tuple) int {
	return func(a, b tuple) int {
		for _, k := range keys {
			x, y := a.v[k.Column], b.v[k.Column]
			var c int
			switch {
			case x == nil && y == nil:
				continue
			case x == nil || y == nil:
				c = -1
				if (y == nil) != k.NullsLast {
					c = 1
				}
			default:
				c = order3(x, y)
				if k.Desc {
					c = -c
				}
			}
			if c != 0 {
				return c
			}
		}
		return 0
	}
}

// sorted sorts rows; equal ones stay in order of arrival, if there is one.
func (e *eval) sorted(rows []tuple, inOrder bool, keys []rel.SortKey) []tuple {
	rows = slices.Clone(rows)
	compare := byKeys(keys)
	slices.SortStableFunc(rows, compare)
	for i := 1; i < len(rows) && !inOrder; i++ {
		if compare(rows[i-1], rows[i]) == 0 && keyOf(rows[i-1].v...) != keyOf(rows[i].v...) {
			e.leftOpen("rows are equal in ORDER BY")
		}
	}
	return rows
}

func (e *eval) sort(n *rel.Sort) bag {
	in := e.node(n.Input)
	return bag{e.sorted(in.rows, true, n.Keys), false} // alone, it changes no bag
}

func (e *eval) limit(n *rel.Limit) bag {
	var rows []tuple
	if s, ok := n.Input.(*rel.Sort); ok {
		in := e.node(s.Input)
		rows = e.sorted(in.rows, in.inOrder, s.Keys)
	} else {
		in := e.node(n.Input)
		if !in.inOrder {
			e.leftOpen("LIMIT without ORDER BY")
		}
		rows = in.rows
	}
	rows = rows[min(n.Offset, int64(len(rows))):]
	if n.Fetch >= 0 {
		rows = rows[:min(n.Fetch, int64(len(rows)))]
	}
	return bag{rows: rows}
}

// keyOf is a text that is the same for equal values, and only for these. Values of one type are compared only.
func keyOf(vs ...row.Value) string {
	var b strings.Builder
	for _, v := range vs {
		switch v := v.(type) {
		case nil:
			b.WriteString("-,")
		case []row.Value:
			fmt.Fprintf(&b, "[%s],", keyOf(v...))
		case []row.Entry:
			entries := make([]string, len(v))
			for i, en := range v {
				entries[i] = keyOf(en.Key, en.Value)
			}
			slices.Sort(entries)
			fmt.Fprintf(&b, "{%s},", strings.Join(entries, ";"))
		case string:
			fmt.Fprintf(&b, "%q,", v)
		case []byte:
			fmt.Fprintf(&b, "x%x,", v)
		default:
			fmt.Fprintf(&b, "%v,", v)
		}
	}
	return b.String()
}
