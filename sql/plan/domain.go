package plan

import (
	"slices"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
)

// uncorrelated takes out of a query what it reads of the rows of in around it: preds are conditions over both, as pullUp makes
// them. Where conditions alone do not say it, the query is computed once for each combination of values that it reads. exact:
// an aggregate without GROUP BY has a row for values without rows too; where the row is joined all the same, and where Flink
// has none (LATERAL), it need not. ok is false after an error, which has been told.
func (p *planner) uncorrelated(in, sub rel.Node, exact bool) (out rel.Node, preds []rel.Expr, ok bool) {
	told := len(p.errs)
	if !exact || !emptyAggregate(sub) {
		if out, preds, ok = p.pullUp(sub); ok {
			return out, preds, true
		}
	}
	errs := slices.Clone(p.errs[told:])
	p.errs = p.errs[:told]
	if out, preds, ok = p.perValue(in, sub, exact); ok {
		return out, preds, true
	}
	p.errs = append(p.errs, errs...)
	return nil, nil, false
}

// emptyAggregate says whether there is an aggregate without GROUP BY above conditions on the row around.
func emptyAggregate(n rel.Node) (yes bool) {
	rel.Walk(n, func(n rel.Node) bool {
		a, ok := n.(*rel.Aggregate)
		yes = yes || ok && len(a.Groups) == 0 && a.Sets == nil && a.Window == nil && outwardNode(a)
		return true
	})
	return yes
}

// domain is the combinations of values that a query reads of the rows around it: the distinct values of columns of theirs.
type domain struct {
	p       *planner
	columns []int    // of the rows around
	node    rel.Node // has these columns
	exact   bool
}

// perValue computes a query for each combination of the values that it reads of the rows of in. The values stand behind the
// columns of the query, and preds say that they are those of the row.
func (p *planner) perValue(in, sub rel.Node, exact bool) (out rel.Node, preds []rel.Expr, ok bool) {
	d := &domain{p: p, exact: exact}
	deeper := true
	rel.Walk(sub, func(n rel.Node) bool {
		if c, correlates := n.(*rel.Correlate); correlates && !inwardOnly(c.Right) {
			deeper = false
		}
		for _, e := range rel.Exprs(n) {
			visit(e, func(x rel.Expr) {
				if c, isColumn := x.(*rel.Column); isColumn && c.Depth == 1 && !slices.Contains(d.columns, c.Index) {
					d.columns = append(d.columns, c.Index)
				}
			})
		}
		_, correlates := n.(*rel.Correlate)
		return !correlates
	})
	if !deeper {
		return nil, nil, false
	}
	if len(d.columns) == 0 { // it reads what is further out
		return rel.Map(sub, func(n rel.Node) rel.Node {
			return rel.MapExprs(n, func(e rel.Expr) rel.Expr { return d.expr(e, 0) })
		}), nil, true
	}
	slices.Sort(d.columns)
	s := in.Schema()
	var names []string
	var types []*row.Type
	for _, c := range d.columns {
		names, types = append(names, s.Names[c]), append(types, s.Types[c].WithMark(row.NoMark))
	}
	d.node = &rel.Aggregate{Base: rel.MakeBase(names, types, sub.At()), Input: in, Groups: d.columns}
	w := sub.Schema().Len()
	if out, ok = d.attach(sub); !ok {
		return nil, nil, false
	}
	for i, c := range d.columns {
		t := types[i]
		preds = append(preds, same(rel.NewColumn(s.Types[c], c, 1, names[i], sub.At()), rel.NewColumn(t, w+i, 0, names[i], sub.At())))
	}
	return out, preds, true
}

// inwardOnly says whether the right side of a Correlate reads nothing but the left one and its own.
func inwardOnly(n rel.Node) bool {
	yes := true
	rel.Walk(n, func(n rel.Node) bool {
		for _, e := range rel.Exprs(n) {
			visit(e, func(x rel.Expr) {
				if c, ok := x.(*rel.Column); ok && c.Depth > 1 {
					yes = false
				}
			})
		}
		return yes
	})
	return yes
}

// same says that two values are equal, or both NULL.
func same(a, b rel.Expr) rel.Expr {
	name := "="
	if a.Type().IsNullable() || b.Type().IsNullable() {
		name = "IS NOT DISTINCT FROM"
	}
	return rel.NewCall(row.Boolean().NotNull(), builtin(name), []rel.Expr{a, b}, a.Where())
}

// expr is an expression of the query in which the columns of the domain, which stand at a place, are those of the rows around.
func (d *domain) expr(e rel.Expr, at int) rel.Expr {
	return rel.MapExpr(e, func(x rel.Expr) rel.Expr {
		c, ok := x.(*rel.Column)
		switch {
		case !ok || c.Depth == 0:
			return x
		case c.Depth > 1:
			return rel.NewColumn(c.Typ, c.Index, c.Depth-1, c.Name, c.At)
		}
		return rel.NewColumn(c.Typ, at+slices.Index(d.columns, c.Index), 0, c.Name, c.At)
	})
}

// join joins two parts; the columns are those of both.
func (d *domain) join(kind rel.JoinKind, l, r rel.Node, cond rel.Expr, at rel.Place) *rel.Join {
	ls, rs := l.Schema(), r.Schema()
	rt := rs.Types
	if kind == rel.Left || kind == rel.Single {
		rt = nullable(rt)
	}
	return &rel.Join{Base: rel.MakeBase(slices.Concat(ls.Names, rs.Names), slices.Concat(ls.Types, rt), at), Kind: kind, Left: l, Right: r, Cond: cond}
}

// equal says that the columns of the domain at two places are the same.
func (d *domain) equal(n rel.Node, a, b int) (cond rel.Expr) {
	for i := range d.columns {
		cond = conjunction(cond, same(column(n, a+i), column(n, b+i)))
	}
	return cond
}

// chosenColumns is the projection to some columns.
func chosenColumns(n rel.Node, columns []int, at rel.Place) rel.Node {
	exprs, names := make([]rel.Expr, len(columns)), make([]string, len(columns))
	for i, c := range columns {
		exprs[i], names[i] = column(n, c), n.Schema().Names[c]
	}
	return newProject(n, exprs, names, at)
}

// span is n numbers from one on.
func span(from, n int) []int {
	out := count(n)
	for i := range out {
		out[i] += from
	}
	return out
}

// attach is a part of the query with the columns of the domain behind its own: its rows for each combination of values.
func (d *domain) attach(n rel.Node) (rel.Node, bool) {
	w, dw := n.Schema().Len(), len(d.columns)
	if !outwardNode(n) {
		return d.join(rel.Inner, n, d.node, nil, n.At()), true
	}
	switch x := n.(type) {
	case *rel.Filter:
		in, ok := d.attach(x.Input)
		if !ok {
			return nil, false
		}
		return newFilter(in, d.expr(x.Cond, w), x.At()), true
	case *rel.Project:
		in, ok := d.attach(x.Input)
		if !ok {
			return nil, false
		}
		wi := x.Input.Schema().Len()
		var exprs []rel.Expr
		for _, e := range x.Exprs {
			exprs = append(exprs, d.expr(e, wi))
		}
		names := slices.Clone(x.Out.Names)
		for i := range dw {
			exprs, names = append(exprs, column(in, wi+i)), append(names, in.Schema().Names[wi+i])
		}
		return newProject(in, exprs, names, x.At()), true
	case *rel.Aggregate:
		return d.aggregate(x)
	case *rel.Join:
		return d.joined(x)
	case *rel.SetOp:
		k := *x
		k.Inputs = nil
		for _, i := range x.Inputs {
			in, ok := d.attach(i)
			if !ok {
				return nil, false
			}
			k.Inputs = append(k.Inputs, in)
		}
		ds := d.node.Schema()
		k.Base = rel.MakeBase(slices.Concat(x.Out.Names, ds.Names), slices.Concat(x.Out.Types, ds.Types), x.At())
		return &k, true
	case *rel.Over:
		in, ok := d.attach(x.Input)
		if !ok {
			return nil, false
		}
		wi := x.Input.Schema().Len()
		k := *x
		k.Input = in
		k.Partition = slices.Concat(x.Partition, span(wi, dw))
		is, calls := in.Schema(), x.Out
		k.Base = rel.MakeBase(slices.Concat(is.Names, calls.Names[wi:]), slices.Concat(is.Types, calls.Types[wi:]), x.At())
		return chosenColumns(&k, slices.Concat(count(wi), span(wi+dw, w-wi), span(wi, dw)), x.At()), true
	}
	return nil, false
}

// aggregate attaches the domain to an aggregate: its columns become groups.
func (d *domain) aggregate(x *rel.Aggregate) (rel.Node, bool) {
	in, ok := d.attach(x.Input)
	if !ok || x.Window != nil {
		return nil, false
	}
	wi, dw, g, a := x.Input.Schema().Len(), len(d.columns), len(x.Groups), len(x.Aggs)
	k := *rel.MapExprs(x, func(e rel.Expr) rel.Expr { return d.expr(e, wi) }).(*rel.Aggregate)
	k.Input = in
	k.Groups = slices.Concat(x.Groups, span(wi, dw))
	k.Sets = nil
	for _, s := range x.Sets {
		k.Sets = append(k.Sets, slices.Concat(s, span(g, dw)))
	}
	ds, out := d.node.Schema(), x.Out
	k.Base = rel.MakeBase(slices.Concat(out.Names[:g], ds.Names, out.Names[g:]), slices.Concat(out.Types[:g], ds.Types, out.Types[g:]), x.At())
	if g > 0 || x.Sets != nil || !d.exact {
		return chosenColumns(&k, slices.Concat(count(g), span(g+dw, a), span(g, dw)), x.At()), true
	}
	j := d.join(rel.Left, d.node, &k, nil, x.At())
	j.Cond = d.equal(j, 0, dw)
	var exprs []rel.Expr
	for i, c := range x.Aggs {
		exprs = append(exprs, ofNoRows(column(j, 2*dw+i), c))
	}
	for i := range dw {
		exprs = append(exprs, column(j, i))
	}
	return newProject(j, exprs, slices.Concat(out.Names, ds.Names), x.At()), true
}

// ofNoRows is the value of an aggregate from a column that is NULL where there are no rows: that counts them.
func ofNoRows(col rel.Expr, c rel.AggCall) rel.Expr {
	if c.Type.IsNullable() || !c.Type.Kind().Integer() {
		return col
	}
	at := col.Where()
	isNull := rel.NewCall(row.Boolean().NotNull(), builtin("IS NULL"), []rel.Expr{col}, at)
	return rel.NewCase(c.Type, []rel.When{{Cond: isNull, Then: rel.NewLiteral(c.Type, fn.Const{}, "0", at)}}, rel.NewCast(c.Type, col, false, true, at), at)
}

// joined attaches the domain to a join: to the left side, and to the right one too if that reads the rows around.
func (d *domain) joined(x *rel.Join) (rel.Node, bool) {
	onlyLeft := x.Kind == rel.Semi || x.Kind == rel.Anti || x.Kind == rel.NullAwareAnti
	both := outwardNode(x.Right)
	if x.AsOf != nil || x.Kind == rel.Right || x.Kind == rel.Full || x.Kind == rel.NullAwareAnti && (both || outward(x.Cond)) {
		return nil, false
	}
	l, ok := d.attach(x.Left)
	r := x.Right
	if ok && both {
		r, ok = d.attach(r)
	}
	if !ok {
		return nil, false
	}
	lw, rw, dw := x.Left.Schema().Len(), x.Right.Schema().Len(), len(d.columns)
	cond := d.expr(rel.Remap(x.Cond, func(c int) int {
		if c >= lw {
			return c + dw
		}
		return c
	}), lw)
	k := *x
	k.Left, k.Right = l, r
	wide := d.join(x.Kind, l, r, nil, x.At())
	if both {
		cond = conjunction(cond, d.equal(wide, lw, lw+dw+rw))
	}
	k.Cond = cond
	if onlyLeft {
		k.Base = rel.MakeBase(l.Schema().Names, l.Schema().Types, x.At())
		return &k, true
	}
	k.Base = wide.Base
	return chosenColumns(&k, slices.Concat(count(lw), span(lw+dw, rw), span(lw, dw)), x.At()), true
}
