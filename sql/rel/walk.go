package rel

import "slices"

// Walk calls f for a node and, where f says so, for its inputs, parents first. The plans of subqueries are not visited.
func Walk(n Node, f func(Node) bool) {
	if !f(n) {
		return
	}
	for _, c := range n.Children() {
		Walk(c, f)
	}
}

// Map rebuilds a plan from the leaves up: f is called for each node after its inputs have been replaced. Nodes whose inputs
// stay are handed to f as they are.
func Map(n Node, f func(Node) Node) Node {
	in := n.Children()
	var out []Node
	for i, c := range in {
		if d := Map(c, f); d != c {
			if out == nil {
				out = slices.Clone(in)
			}
			out[i] = d
		}
	}
	if out != nil {
		n = n.WithChildren(out)
	}
	return f(n)
}

// operands lists the expressions right below e, without nil ones.
func operands(e Expr) []Expr {
	switch e := e.(type) {
	case *Call:
		return e.Args
	case *Cast:
		return []Expr{e.X}
	case *Case:
		out := make([]Expr, 0, 2*len(e.Whens)+1)
		for _, w := range e.Whens {
			out = append(out, w.Cond, w.Then)
		}
		if e.Else != nil {
			out = append(out, e.Else)
		}
		return out
	case *Field:
		return []Expr{e.X}
	case *Subquery:
		return e.X
	case *PatternAgg:
		return e.Args
	}
	return nil
}

// withOperands is e with other operands, as operands lists them.
func withOperands(e Expr, in []Expr) Expr {
	switch e := e.(type) {
	case *Call:
		c := *e
		c.Args = in
		return &c
	case *Cast:
		c := *e
		c.X = in[0]
		return &c
	case *Case:
		c := *e
		c.Whens = make([]When, len(e.Whens))
		for i := range c.Whens {
			c.Whens[i] = When{in[2*i], in[2*i+1]}
		}
		if e.Else != nil {
			c.Else = in[len(in)-1]
		}
		return &c
	case *Field:
		c := *e
		c.X = in[0]
		return &c
	case *Subquery:
		c := *e
		c.X = in
		return &c
	case *PatternAgg:
		c := *e
		c.Args = in
		return &c
	}
	return e
}

// WalkExpr calls f for e and, where f says so, for what is below it, parents first. It does not go into the plans of
// subqueries, but into what they compare with.
func WalkExpr(e Expr, f func(Expr) bool) {
	if e == nil || !f(e) {
		return
	}
	for _, x := range operands(e) {
		WalkExpr(x, f)
	}
}

// MapExpr rebuilds an expression from the leaves up: f is called for each part after its operands have been replaced. It
// does not go into the plans of subqueries. nil stays nil.
func MapExpr(e Expr, f func(Expr) Expr) Expr {
	if e == nil {
		return nil
	}
	in := operands(e)
	var out []Expr
	for i, x := range in {
		if y := MapExpr(x, f); y != x {
			if out == nil {
				out = slices.Clone(in)
			}
			out[i] = y
		}
	}
	if out != nil {
		e = withOperands(e, out)
	}
	return f(e)
}

// Exprs lists the expressions of a node, without those of its inputs: conditions, projections, the constants of Values, the
// arguments and filters of aggregates. Column ordinals that stand alone (groups, sort keys) are not among them.
func Exprs(n Node) []Expr {
	var out []Expr
	MapExprs(n, func(e Expr) Expr {
		out = append(out, e)
		return e
	})
	return out
}

// MapExprs is a node with its expressions replaced, in the order of Exprs; f is never called with nil and must return a
// *Call for the call of a table function. The node itself is returned if nothing changed. DEFINE conditions come in the
// order of Variables.
func MapExprs(n Node, f func(Expr) Expr) Node {
	m := &exprMapper{f: f}
	var out Node
	switch n := n.(type) {
	case *Watermark:
		c := *n
		c.Expr, out = m.one(n.Expr), &c
	case *Values:
		c := *n
		c.Rows, out = m.rows(n.Rows), &c
	case *Project:
		c := *n
		c.Exprs, out = m.list(n.Exprs), &c
	case *Filter:
		c := *n
		c.Cond, out = m.one(n.Cond), &c
	case *Join:
		c := *n
		c.Cond, c.AsOf, out = m.one(n.Cond), m.one(n.AsOf), &c
	case *TableFunc:
		c := *n
		c.Call, out = m.tableCall(n.Call), &c
	case *Unnest:
		c := *n
		c.Exprs, out = m.list(n.Exprs), &c
	case *Aggregate:
		c := *n
		c.Aggs, out = m.calls(n.Aggs), &c
	case *Over:
		c := *n
		c.Calls, out = m.calls(n.Calls), &c
	case *Match:
		c := *n
		c.Defines, c.Measures, out = m.defines(n.Variables, n.Defines), m.list(n.Measures), &c
	case *PScan:
		c := *n
		c.Computed, c.Watermark, out = m.list(n.Computed), m.one(n.Watermark), &c
	case *PValues:
		c := *n
		c.Rows, out = m.rows(n.Rows), &c
	case *PCalc:
		c := *n
		c.Cond, c.Exprs, out = m.one(n.Cond), m.list(n.Exprs), &c
	case *PCorrelate:
		c := *n
		c.Func, c.Unnest, c.Cond, out = m.tableCall(n.Func), m.list(n.Unnest), m.one(n.Cond), &c
	case *PNormalize:
		c := *n
		c.Cond, out = m.one(n.Cond), &c
	case *PGroupAgg:
		c := *n
		c.Aggs, out = m.calls(n.Aggs), &c
	case *PLocalAgg:
		c := *n
		c.Aggs, out = m.calls(n.Aggs), &c
	case *PWindowAgg:
		c := *n
		c.Aggs, out = m.calls(n.Aggs), &c
	case *PWindowJoin:
		c := *n
		c.Cond, out = m.one(n.Cond), &c
	case *PJoin:
		c := *n
		c.Cond, out = m.one(n.Cond), &c
	case *PIntervalJoin:
		c := *n
		c.Cond, out = m.one(n.Cond), &c
	case *PTemporalJoin:
		c := *n
		c.Cond, out = m.one(n.Cond), &c
	case *PLookupJoin:
		c := *n
		c.Keys = slices.Clone(n.Keys)
		for i := range c.Keys {
			c.Keys[i].Value = m.one(c.Keys[i].Value)
		}
		c.Cond, out = m.one(n.Cond), &c
	case *POverTime:
		c := *n
		c.Calls, out = m.calls(n.Calls), &c
	case *POverColumn:
		c := *n
		c.Calls, out = m.calls(n.Calls), &c
	case *PMatch:
		c := *n
		c.Defines, c.Measures, out = m.defines(n.Variables, n.Defines), m.list(n.Measures), &c
	}
	if m.changed {
		return out
	}
	return n
}

type exprMapper struct {
	f       func(Expr) Expr
	changed bool
}

func (m *exprMapper) one(e Expr) Expr {
	if e == nil {
		return nil
	}
	x := m.f(e)
	m.changed = m.changed || x != e
	return x
}

func (m *exprMapper) list(in []Expr) []Expr {
	if in == nil {
		return nil
	}
	out := make([]Expr, len(in))
	for i, e := range in {
		out[i] = m.one(e)
	}
	return out
}

func (m *exprMapper) rows(in [][]Expr) [][]Expr {
	out := make([][]Expr, len(in))
	for i, r := range in {
		out[i] = m.list(r)
	}
	return out
}

func (m *exprMapper) calls(in []AggCall) []AggCall {
	out := slices.Clone(in)
	for i := range out {
		out[i].Args = m.list(out[i].Args)
		out[i].Filter = m.one(out[i].Filter)
	}
	return out
}

func (m *exprMapper) defines(variables []string, in map[string]Expr) map[string]Expr {
	out := make(map[string]Expr, len(in))
	for _, v := range variables {
		if e := in[v]; e != nil {
			out[v] = m.one(e)
		}
	}
	return out
}

func (m *exprMapper) tableCall(c *Call) *Call {
	if c == nil {
		return nil
	}
	return m.one(c).(*Call)
}

// WalkColumns calls f for every Column of an expression and of the plans of its subqueries that belongs to the row which e
// is evaluated on, or to one further out: up is how many rows further out, 0 = the own input.
func WalkColumns(e Expr, f func(c *Column, up int)) { walkColumns(e, 0, f) }

func walkColumns(e Expr, inside int, f func(c *Column, up int)) {
	WalkExpr(e, func(e Expr) bool {
		switch e := e.(type) {
		case *Column:
			if e.Depth >= inside {
				f(e, e.Depth-inside)
			}
		case *Subquery:
			walkNodeColumns(e.Node, inside+1, f)
		}
		return true
	})
}

func walkNodeColumns(n Node, inside int, f func(c *Column, up int)) {
	for _, e := range Exprs(n) {
		walkColumns(e, inside, f)
	}
	if c, ok := n.(*Correlate); ok {
		walkNodeColumns(c.Left, inside, f)
		walkNodeColumns(c.Right, inside+1, f)
		return
	}
	for _, c := range n.Children() {
		walkNodeColumns(c, inside, f)
	}
}

// WalkOuter calls f for every Column in a plan that belongs to a row outside of it: up 1 is the row of the query around it.
func WalkOuter(n Node, f func(c *Column, up int)) {
	walkNodeColumns(n, 1, func(c *Column, up int) { f(c, up+1) })
}

// Correlated says whether a plan uses columns of a row outside of it.
func Correlated(n Node) bool {
	found := false
	WalkOuter(n, func(*Column, int) { found = true })
	return found
}

// Used lists the columns of the own input that expressions use, in ascending order, also from inside of subqueries and by
// PatternRefs.
func Used(exprs ...Expr) []int {
	var out []int
	for _, e := range exprs {
		WalkColumns(e, func(c *Column, up int) {
			if up == 0 {
				out = append(out, c.Index)
			}
		})
		WalkExpr(e, func(e Expr) bool {
			if r, ok := e.(*PatternRef); ok {
				out = append(out, r.Column)
			}
			return true
		})
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// MapColumns rebuilds an expression with every Column of its own row, or one further out, replaced by what f gives for it;
// up as in WalkColumns, inside is how many plans of subqueries (and right sides of Correlate) lie between e and the column: f
// gives a Column that it replaces a Depth of up + inside.
func MapColumns(e Expr, f func(c *Column, up, inside int) Expr) Expr { return mapColumns(e, 0, f) }

func mapColumns(e Expr, inside int, f func(c *Column, up, inside int) Expr) Expr {
	return MapExpr(e, func(e Expr) Expr {
		switch e := e.(type) {
		case *Column:
			if e.Depth >= inside {
				return f(e, e.Depth-inside, inside)
			}
		case *Subquery:
			if n := mapNodeColumns(e.Node, inside+1, f); n != e.Node {
				c := *e
				c.Node = n
				return &c
			}
		}
		return e
	})
}

func mapNodeColumns(n Node, inside int, f func(c *Column, up, inside int) Expr) Node {
	in := n.Children()
	out := slices.Clone(in)
	changed := false
	for i, c := range in {
		deeper := inside
		if _, ok := n.(*Correlate); ok && i == 1 {
			deeper++
		}
		out[i] = mapNodeColumns(c, deeper, f)
		changed = changed || out[i] != c
	}
	if changed {
		n = n.WithChildren(out)
	}
	return MapExprs(n, func(e Expr) Expr { return mapColumns(e, inside, f) })
}

// MapOuter rebuilds a plan with every Column of a row outside of it replaced: up and inside as in MapColumns, seen from the
// row around the plan, so that up 0 is that row and inside is at least 1.
func MapOuter(n Node, f func(c *Column, up, inside int) Expr) Node { return mapNodeColumns(n, 1, f) }

// Remap moves columns of the own row: index i becomes to(i), also inside of subqueries and in PatternRefs.
func Remap(e Expr, to func(index int) int) Expr {
	e = MapColumns(e, func(c *Column, up, _ int) Expr {
		if up != 0 {
			return c
		}
		i := to(c.Index)
		if i == c.Index {
			return c
		}
		d := *c
		d.Index = i
		return &d
	})
	return MapExpr(e, func(e Expr) Expr {
		if r, ok := e.(*PatternRef); ok {
			if i := to(r.Column); i != r.Column {
				d := *r
				d.Column = i
				return &d
			}
		}
		return e
	})
}

// Shift moves columns of the own row by a number of places: those from index from on.
func Shift(e Expr, from, by int) Expr {
	return Remap(e, func(i int) int {
		if i >= from {
			return i + by
		}
		return i
	})
}

// RemapList moves a list of columns.
func RemapList(columns []int, to func(index int) int) []int {
	if columns == nil {
		return nil
	}
	out := make([]int, len(columns))
	for i, c := range columns {
		out[i] = to(c)
	}
	return out
}

// RemapKeys moves the columns of sort keys.
func RemapKeys(keys []SortKey, to func(index int) int) []SortKey {
	out := slices.Clone(keys)
	for i := range out {
		out[i].Column = to(out[i].Column)
	}
	return out
}

// RemapAggs moves the columns of aggregates: arguments, filters and orders.
func RemapAggs(calls []AggCall, to func(index int) int) []AggCall {
	out := slices.Clone(calls)
	for i := range out {
		out[i].Args = slices.Clone(out[i].Args)
		for j, a := range out[i].Args {
			out[i].Args[j] = Remap(a, to)
		}
		out[i].Filter = Remap(out[i].Filter, to)
		out[i].OrderBy = RemapKeys(out[i].OrderBy, to)
	}
	return out
}

// Substitute replaces columns of the own row by expressions over another row, which must be free of Columns further in
// than their own row: the rule that merges two projections. Columns inside of subqueries are replaced too, their depths
// raised.
func Substitute(e Expr, by []Expr) Expr {
	return MapColumns(e, func(c *Column, up, inside int) Expr {
		if up != 0 {
			return c
		}
		return Deepen(by[c.Index], inside)
	})
}

// Deepen is an expression as it is written by subqueries further in: the Depth of all Columns of its own row and of rows
// further out rises.
func Deepen(e Expr, by int) Expr {
	if by == 0 {
		return e
	}
	return MapColumns(e, func(c *Column, _, _ int) Expr {
		d := *c
		d.Depth += by
		return &d
	})
}

// MapDown rebuilds an expression from the top: where f says true, its result stands for the whole part and what is below is
// not visited. It does not go into the plans of subqueries. nil stays nil.
func MapDown(e Expr, f func(Expr) (Expr, bool)) Expr {
	if e == nil {
		return nil
	}
	if x, ok := f(e); ok {
		return x
	}
	in := operands(e)
	var out []Expr
	for i, x := range in {
		if y := MapDown(x, f); y != x {
			if out == nil {
				out = slices.Clone(in)
			}
			out[i] = y
		}
	}
	if out == nil {
		return e
	}
	return withOperands(e, out)
}
