package plan

import (
	"slices"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
)

// decorrelate turns subqueries in expressions into joins. nil after an error, which has been told.
func (p *planner) decorrelate(n rel.Node) rel.Node {
	n = children(n, p.decorrelate)
	if n == nil {
		return nil
	}
	switch x := n.(type) {
	case *rel.Filter:
		return p.unnestFilter(x)
	case *rel.Project:
		if !slices.ContainsFunc(x.Exprs, hasSubquery) {
			return x
		}
		in, exprs, ok := p.scalars(x.Input, x.Exprs)
		if !ok {
			return nil
		}
		return newProject(in, exprs, x.Out.Names, x.At())
	case *rel.Correlate:
		return p.lateral(x)
	case *rel.Join:
		if hasSubquery(x.Cond) {
			if x.Kind != rel.Inner {
				return p.onOuter(x)
			}
			k := *x
			cond := x.Cond
			k.Cond = nil
			return p.decorrelate(newFilter(&k, cond, x.At()))
		}
	}
	return n
}

// onOuter puts the values of subqueries in ON of an outer join beside the rows of its right side.
func (p *planner) onOuter(x *rel.Join) rel.Node {
	lw, rw := x.Left.Schema().Len(), x.Right.Schema().Len()
	refuse := func(s *rel.Subquery) {
		p.fail(s.At, "E3701", "a subquery in ON of an outer join must be a value or EXISTS that reads nothing of the rows around it").
			WithNote("move it into WHERE, or into a query that is joined")
	}
	right, ok := x.Right, x.AsOf == nil
	cond := rel.MapExpr(x.Cond, func(e rel.Expr) rel.Expr {
		s, isSub := e.(*rel.Subquery)
		if !isSub || !ok {
			return e
		}
		if s.Kind != rel.ScalarQuery && s.Kind != rel.ExistsQuery || outwardNode(s.Node) {
			refuse(s)
			ok = false
			return e
		}
		in, value := p.value(right, s)
		if in == nil {
			ok = false
			return e
		}
		right = in
		return rel.Remap(value, func(c int) int { return c + lw })
	})
	if !ok {
		return nil
	}
	k := *x
	k.Right, k.Cond = right, cond
	more := right.Schema()
	k.Base = rel.MakeBase(slices.Concat(x.Out.Names, more.Names[rw:]), slices.Concat(x.Out.Types, nullable(more.Types[rw:])), x.At())
	return firstColumns(&k, lw+rw, x.At())
}

// lateral makes a join of a LATERAL query that is more than a function or an array: its conditions on the left side become
// those of the join.
func (p *planner) lateral(n *rel.Correlate) rel.Node {
	for below := n.Right; ; {
		switch x := below.(type) {
		case *rel.Project:
			below = x.Input
			continue
		case *rel.Filter:
			below = x.Input
			continue
		case *rel.TableFunc, *rel.Unnest:
			return n
		}
		break
	}
	if n.Kind == rel.Left {
		if agg, values := overAggregate(n.Right); agg != nil {
			j, values := p.aggregateValues(n.Left, agg, values, n.At())
			if j == nil {
				return nil
			}
			exprs := make([]rel.Expr, 0, n.Schema().Len())
			for i := range n.Left.Schema().Types {
				exprs = append(exprs, column(j, i))
			}
			return newProject(j, append(exprs, values...), n.Out.Names, n.At())
		}
	}
	sub, preds, ok := p.uncorrelated(n.Left, n.Right, false)
	if !ok {
		return nil
	}
	ls, rs := n.Left.Schema(), sub.Schema()
	rt := rs.Types
	if n.Kind == rel.Left {
		rt = nullable(rt)
	}
	lw, rw := ls.Len(), n.Right.Schema().Len()
	j := &rel.Join{Base: rel.MakeBase(slices.Concat(ls.Names, rs.Names), slices.Concat(ls.Types, rt), n.At()), Kind: n.Kind, Left: n.Left, Right: sub, Cond: p.correlated(preds, lw)}
	return firstColumns(j, lw+rw, n.At())
}

func hasSubquery(e rel.Expr) (yes bool) {
	visit(e, func(x rel.Expr) {
		if _, ok := x.(*rel.Subquery); ok {
			yes = true
		}
	})
	return yes
}

func (p *planner) unnestFilter(f *rel.Filter) rel.Node {
	if !hasSubquery(f.Cond) {
		return f
	}
	width := f.Schema().Len()
	in := f.Input
	var stay []rel.Expr
	for _, c := range conjuncts(f.Cond) {
		s, not := asSubquery(c)
		switch {
		case s == nil && !hasSubquery(c):
			stay = append(stay, c)
		case s != nil && s.Kind == rel.ExistsQuery:
			if in = p.semi(in, s, nil, s.Not != not); in == nil {
				return nil
			}
		case s != nil && (s.Kind == rel.InQuery || s.Kind == rel.AnyQuery && s.Op == "=" && !not && !s.Not || s.Kind == rel.AllQuery && s.Op == "<>" && !not && !s.Not):
			if in = p.semi(in, s, s.X, (s.Not != not) != (s.Kind == rel.AllQuery)); in == nil {
				return nil
			}
		default:
			var ok bool
			var es []rel.Expr
			if in, es, ok = p.scalars(in, []rel.Expr{c}); !ok {
				return nil
			}
			stay = append(stay, es...)
		}
	}
	return firstColumns(newFilter(in, conjunction(stay...), f.At()), width, f.At())
}

// asSubquery is the subquery that a condition is, perhaps below NOT.
func asSubquery(e rel.Expr) (s *rel.Subquery, not bool) {
	switch e := e.(type) {
	case *rel.Subquery:
		return e, false
	case *rel.Call:
		if e.Func.Name == "NOT" || e.Func.Name == "IS NOT TRUE" {
			if s, not := asSubquery(e.Args[0]); s != nil {
				return s, !not
			}
		}
		if e.Func.Name == "IS TRUE" {
			return asSubquery(e.Args[0])
		}
	}
	return nil, false
}

// semi joins a subquery of EXISTS or IN: x are the values that the columns of the query must equal.
func (p *planner) semi(in rel.Node, s *rel.Subquery, x []rel.Expr, anti bool) rel.Node {
	node := s.Node
	if x == nil {
		var yes bool
		if node, yes = existing(node); yes {
			return newFilter(in, truth(!anti, s.At), s.At)
		}
	}
	sub := p.decorrelate(node)
	if sub == nil {
		return nil
	}
	cols := sub.Schema().Len()
	sub, preds, ok := p.uncorrelated(in, sub, true)
	if !ok {
		return nil
	}
	kind := rel.Semi
	mayBeEqual := false
	if anti {
		kind = rel.Anti
		if x != nil && (nullableAny(x) || nullableColumns(sub, len(x))) {
			// With NULL a value may be equal to one of the query. The operator of NOT IN knows one query for all rows and
			// compares a column; else the condition says it.
			constant := func(e rel.Expr) bool { return !reads(e, func(int) bool { return true }) }
			if mayBeEqual = len(preds) > 0 || len(x) > 1 || slices.ContainsFunc(x, constant); !mayBeEqual {
				kind = rel.NullAwareAnti
			}
		}
	}
	lw := in.Schema().Len()
	cond := p.correlated(preds, lw)
	if x != nil {
		right := make([]rel.Expr, cols)
		for i := range right {
			c := column(sub, i)
			right[i] = rel.NewColumn(c.Typ, lw+i, 0, c.Name, c.At)
		}
		equal, ok := p.equals(s, right, mayBeEqual)
		if !ok {
			return nil
		}
		cond = conjunction(cond, equal)
	}
	ls := in.Schema()
	return &rel.Join{Base: rel.MakeBase(ls.Names, ls.Types, s.At), Kind: kind, Left: in, Right: sub, Cond: cond}
}

// existing is a query of which it matters only whether it has rows: without its order, and without a LIMIT. yes: it has one
// at all times, being an aggregate without GROUP BY.
func existing(n rel.Node) (out rel.Node, yes bool) {
	for {
		switch x := n.(type) {
		case *rel.Sort:
			n = x.Input
			continue
		case *rel.Limit:
			if x.Offset == 0 && x.Fetch != 0 {
				n = x.Input
				continue
			}
		}
		break
	}
	below := n
	for {
		pr, ok := below.(*rel.Project)
		if !ok {
			break
		}
		below = pr.Input
	}
	a, ok := below.(*rel.Aggregate)
	return n, ok && len(a.Groups) == 0 && a.Sets == nil && a.Window == nil
}

func nullableAny(x []rel.Expr) bool {
	return slices.ContainsFunc(x, func(e rel.Expr) bool { return e.Type().IsNullable() })
}

func nullableColumns(n rel.Node, cols int) bool {
	return slices.ContainsFunc(n.Schema().Types[:cols], func(t *row.Type) bool { return t.IsNullable() })
}

// comparable casts two sides of an equality to one type.
func comparable(a, b rel.Expr) (rel.Expr, rel.Expr, bool) {
	f := builtin("=")
	r, err := f.Resolve(argsOf(a, b))
	if err != nil {
		return nil, nil, false
	}
	return castTo(a, r.Args[0]), castTo(b, r.Args[1]), true
}

func castTo(e rel.Expr, t *row.Type) rel.Expr {
	if e.Type().Plain() == t.Plain() {
		return e
	}
	return rel.NewCast(t.Nullable(e.Type().IsNullable()), e, false, true, e.Where())
}

// correlated puts conditions over a query (depth 0) and the row around it (depth 1) over both sides of a join.
func (p *planner) correlated(preds []rel.Expr, lw int) (cond rel.Expr) {
	for _, c := range preds {
		cond = conjunction(cond, rel.MapExpr(c, func(x rel.Expr) rel.Expr {
			if c, ok := x.(*rel.Column); ok {
				if c.Depth == 0 {
					return rel.NewColumn(c.Typ, lw+c.Index, 0, c.Name, c.At)
				}
				return rel.NewColumn(c.Typ, c.Index, c.Depth-1, c.Name, c.At)
			}
			return x
		}))
	}
	return cond
}

// scalars joins the subqueries of expressions and puts their values in their place.
func (p *planner) scalars(in rel.Node, exprs []rel.Expr) (rel.Node, []rel.Expr, bool) {
	ok := true
	out := make([]rel.Expr, len(exprs))
	for i, e := range exprs {
		if !hasSubquery(e) {
			out[i] = e
			continue
		}
		out[i] = rel.MapExpr(e, func(x rel.Expr) rel.Expr {
			s, isSub := x.(*rel.Subquery)
			if !isSub || !ok {
				return x
			}
			joined, col := p.value(in, s)
			if joined == nil {
				ok = false
				return x
			}
			in = joined
			return col
		})
	}
	return in, out, ok
}

// value joins a subquery of an expression; nil after an error, which has been told.
func (p *planner) value(in rel.Node, s *rel.Subquery) (rel.Node, rel.Expr) {
	switch {
	case s.Kind == rel.ScalarQuery:
		return p.scalar(in, s)
	case s.Kind == rel.ExistsQuery:
		return p.existsValue(in, s)
	case s.Kind == rel.InQuery || s.Kind == rel.AnyQuery && s.Op == "=":
		return p.inValue(in, s, s.Not)
	case s.Kind == rel.AllQuery && s.Op == "<>":
		return p.inValue(in, s, !s.Not)
	}
	return p.quantified(in, s)
}

// quantified is a comparison other than = ANY and <> ALL with all rows of a query, as a value: what the least and the greatest
// of them say, and whether one is NULL. As with IN, rows come once the query has rows itself, unless it reads those around it.
func (p *planner) quantified(in rel.Node, s *rel.Subquery) (rel.Node, rel.Expr) {
	at := s.At
	if len(s.X) != 1 {
		p.fail(at, "E3702", "%s ANY and ALL compare one value with a query of one column", s.Op).WithNote("compare the columns one by one")
		return nil, nil
	}
	counts := counted(s.Node, at)
	arg := column(s.Node, 0)
	for _, name := range []string{"MIN", "MAX"} {
		f := builtin(name)
		r, err := f.Resolve(argsOf(arg))
		if err != nil {
			p.fail(at, "E3703", "%s %s ANY or ALL: %s", s.X[0].Type(), s.Op, err)
			return nil, nil
		}
		counts.Aggs = append(counts.Aggs, rel.AggCall{Func: f, Args: []rel.Expr{arg}, Type: r.Result.Nullable(true), Name: name, At: at})
		counts.Out.Names, counts.Out.Types = append(counts.Out.Names, name), append(counts.Out.Types, r.Result.Nullable(true))
	}
	unknown := nullableAny(s.X) || nullableColumns(s.Node, 1)
	sub := p.decorrelate(counts)
	if sub == nil {
		return nil, nil
	}
	sub, preds, ok := p.uncorrelated(in, sub, emptyAggregate(s.Node))
	if !ok {
		return nil, nil
	}
	kind := rel.Inner
	ls, rs := in.Schema(), sub.Schema()
	lw, rt := ls.Len(), rs.Types
	if len(preds) > 0 {
		kind, rt = rel.Left, nullable(rt)
	}
	cols := make([]rel.Expr, 4)
	for i := range cols {
		cols[i] = rel.NewColumn(rt[i], lw+i, 0, rs.Names[i], at)
	}
	out := &rel.Join{Base: rel.MakeBase(slices.Concat(ls.Names, rs.Names), slices.Concat(ls.Types, rt), at), Kind: kind, Left: in, Right: sub, Cond: p.correlated(preds, lw)}
	call := func(name string, args ...rel.Expr) rel.Expr {
		return rel.NewCall(row.Boolean(), builtin(name), args, at)
	}
	with := func(bound rel.Expr) rel.Expr {
		l, r, fits := comparable(s.X[0], bound)
		if ok = ok && fits; !fits {
			return nil
		}
		return call(s.Op, l, r)
	}
	all := s.Kind == rel.AllQuery
	least, most := with(cols[2]), with(cols[3])
	if !ok {
		p.fail(at, "E3703", "%s ANY and ALL compare %s with %s", s.Op, s.X[0].Type(), arg.Type()).WithNote("cast one of them")
		return nil, nil
	}
	var holds rel.Expr
	switch {
	case s.Op == "<>":
		holds = call("OR", least, most)
	case s.Op == "=":
		holds = call("AND", least, most)
	case (s.Op[0] == '>') != all:
		holds = least
	default:
		holds = most
	}
	typ := row.Boolean().Nullable(unknown)
	value := func(e rel.Expr) rel.Expr {
		if e.Type() == typ {
			return e
		}
		return rel.NewCast(typ, e, false, true, at)
	}
	is := func(yes bool) rel.Expr {
		return value(truth(yes, at))
	}
	zero := rel.NewCast(cols[0].Type().NotNull(), number(0, at), false, true, at)
	decides := "IS TRUE"
	if all {
		decides = "IS FALSE"
	}
	whens := []rel.When{
		{Cond: call("IS NOT TRUE", call(">", cols[0], zero)), Then: is(all)}, // no rows
		{Cond: call(decides, holds), Then: is(!all)},
	}
	if unknown {
		null := rel.NewLiteral(typ, fn.Const{Null: true}, "NULL", at)
		whens = append(whens, rel.When{Cond: call("<", cols[1], cols[0]), Then: null})
	}
	var result rel.Expr = rel.NewCase(typ, whens, value(holds), at)
	if s.Not {
		result = rel.NewCall(typ, builtin("NOT"), []rel.Expr{result}, at)
	}
	return out, result
}

// truth is a literal.
func truth(yes bool, at rel.Place) rel.Expr {
	if yes {
		return rel.NewLiteral(row.Boolean().NotNull(), fn.Const{X: 1}, "TRUE", at)
	}
	return rel.NewLiteral(row.Boolean().NotNull(), fn.Const{}, "FALSE", at)
}

// counted is COUNT(*) of a query, and COUNT of its first column.
func counted(n rel.Node, at rel.Place) *rel.Aggregate {
	t := row.BigInt().NotNull()
	count := func(name string, args ...rel.Expr) rel.AggCall {
		return rel.AggCall{Func: builtin("COUNT"), Args: args, Type: t, Name: name, At: at}
	}
	return &rel.Aggregate{Base: rel.MakeBase([]string{"rows", "known"}, []*row.Type{t, t}, at), Input: n,
		Aggs: []rel.AggCall{count("rows"), count("known", column(n, 0))}}
}

// existsValue is EXISTS as a value: whether a query has rows.
func (p *planner) existsValue(in rel.Node, s *rel.Subquery) (rel.Node, rel.Expr) {
	node, always := existing(s.Node)
	if always {
		return in, truth(!s.Not, s.At)
	}
	t := row.BigInt().NotNull()
	n, rows := p.scalar(in, rel.NewSubquery(t.Nullable(true), rel.ScalarQuery, nil, "", false, counted(node, s.At), s.At))
	if n == nil {
		return nil, nil
	}
	known := row.Boolean().NotNull()
	var yes rel.Expr = rel.NewCall(row.Boolean(), builtin(">"), []rel.Expr{rows, rel.NewCast(t, number(0, s.At), false, true, s.At)}, s.At)
	yes = rel.NewCall(known, builtin("IS TRUE"), []rel.Expr{yes}, s.At)
	if s.Not {
		yes = rel.NewCall(known, builtin("NOT"), []rel.Expr{yes}, s.At)
	}
	return n, yes
}

// inValue is IN as a value. A row is joined with the distinct rows of the query, and where NULL plays a part with the counts
// of its rows: x IN (..) is NULL if it is not found and x or some row is NULL. Of a query that reads nothing of the row around
// it, rows come once it has rows itself, as in Flink.
func (p *planner) inValue(in rel.Node, s *rel.Subquery, not bool) (rel.Node, rel.Expr) {
	unknown := nullableAny(s.X) || nullableColumns(s.Node, len(s.X))
	if unknown && len(s.X) > 1 {
		p.fail(s.At, "E3704", "IN over several columns that may be NULL is supported as a condition of WHERE, alone or with AND").
			WithNote("write it as a join, or test the columns with IS NOT NULL in the query")
		return nil, nil
	}
	around := in
	// add joins a query at the right; cols are the columns of the query in the join.
	add := func(kind rel.JoinKind, sub rel.Node, exact bool, with func(cols []rel.Expr) (rel.Expr, bool)) (cols []rel.Expr, ok bool) {
		if sub = p.decorrelate(sub); sub == nil {
			return nil, false
		}
		sub, preds, ok := p.uncorrelated(around, sub, exact)
		if !ok {
			return nil, false
		}
		ls, rs := in.Schema(), sub.Schema()
		lw := ls.Len()
		if len(preds) > 0 {
			kind = rel.Left
		}
		rt := rs.Types
		if kind == rel.Left {
			rt = nullable(rt)
		}
		for i := range rs.Types {
			cols = append(cols, rel.NewColumn(rt[i], lw+i, 0, rs.Names[i], s.At))
		}
		cond, ok := with(cols)
		if !ok {
			return nil, false
		}
		in = &rel.Join{Base: rel.MakeBase(slices.Concat(ls.Names, rs.Names), slices.Concat(ls.Types, rt), s.At), Kind: kind,
			Left: in, Right: sub, Cond: conjunction(p.correlated(preds, lw), cond)}
		return cols, true
	}
	call := func(name string, args ...rel.Expr) rel.Expr {
		return rel.NewCall(row.Boolean(), builtin(name), args, s.At)
	}
	var counts []rel.Expr
	if unknown {
		var ok bool
		if counts, ok = add(rel.Inner, counted(s.Node, s.At), emptyAggregate(s.Node), func([]rel.Expr) (rel.Expr, bool) { return nil, true }); !ok {
			return nil, nil
		}
	}
	qs := s.Node.Schema()
	k := len(s.X)
	distinct := &rel.Aggregate{Base: rel.MakeBase(qs.Names[:k], qs.Types[:k], s.At), Input: s.Node, Groups: count(k)}
	exprs := make([]rel.Expr, k)
	for i := range exprs {
		exprs[i] = column(distinct, i)
	}
	found, ok := add(rel.Left, newProject(distinct, append(slices.Clone(exprs), truth(true, s.At)), append(slices.Clone(qs.Names[:k]), "found"), s.At), true,
		func(cols []rel.Expr) (rel.Expr, bool) { return p.equals(s, cols, false) })
	if !ok {
		return nil, nil
	}
	typ := row.Boolean().Nullable(unknown)
	value := func(e rel.Expr) rel.Expr {
		if unknown {
			return rel.NewCast(typ, e, false, true, s.At)
		}
		return e
	}
	yes, no := value(truth(true, s.At)), value(truth(false, s.At))
	if not {
		yes, no = no, yes
	}
	whens := []rel.When{{Cond: call("IS NOT NULL", found[k]), Then: yes}}
	if unknown {
		null := rel.NewLiteral(typ, fn.Const{Null: true}, "NULL", s.At)
		zero := rel.NewCast(counts[0].Type().NotNull(), number(0, s.At), false, true, s.At)
		whens = append(whens,
			rel.When{Cond: call("IS NOT TRUE", call(">", counts[0], zero)), Then: no},
			rel.When{Cond: call("IS NULL", s.X[0]), Then: null},
			rel.When{Cond: call("<", counts[1], counts[0]), Then: null})
	}
	return in, rel.NewCase(typ, whens, no, s.At)
}

// equals says that the columns of a query equal the values of IN; mayBe: or may do so, where one is NULL.
func (p *planner) equals(s *rel.Subquery, cols []rel.Expr, mayBe bool) (cond rel.Expr, ok bool) {
	for i, e := range s.X {
		left, right, ok := comparable(e, cols[i])
		if !ok {
			p.fail(e.Where(), "E3703", "IN compares %s with %s", e.Type(), cols[i].Type()).WithNote("cast one of them")
			return nil, false
		}
		equal := rel.NewCall(row.Boolean(), builtin("="), []rel.Expr{left, right}, s.At)
		if mayBe && (left.Type().IsNullable() || right.Type().IsNullable()) {
			equal = rel.NewCall(row.Boolean().NotNull(), builtin("IS NOT FALSE"), []rel.Expr{equal}, s.At)
		}
		cond = conjunction(cond, equal)
	}
	return cond, true
}

// scalar joins one scalar subquery; col is its value.
func (p *planner) scalar(in rel.Node, s *rel.Subquery) (rel.Node, rel.Expr) {
	sub := p.decorrelate(s.Node)
	if sub == nil {
		return nil, nil
	}
	if outwardNode(sub) {
		if agg, values := overAggregate(sub); agg != nil {
			j, values := p.aggregateValues(in, agg, values, s.At)
			if j == nil {
				return nil, nil
			}
			return j, ofType(values[0], s)
		}
	}
	sub, preds, ok := p.uncorrelated(in, sub, true)
	if !ok {
		return nil, nil
	}
	kind := rel.Single
	if len(preds) > 0 && oneRow(sub, preds) {
		kind = rel.Left
	}
	lw := in.Schema().Len()
	var col rel.Expr = rel.NewColumn(sub.Schema().Types[0].Nullable(true), lw, 0, sub.Schema().Names[0], s.At)
	return p.besides(in, sub, kind, preds, s.At), ofType(col, s)
}

// ofType is a value with the type that the subquery has.
func ofType(value rel.Expr, s *rel.Subquery) rel.Expr {
	if value.Type() != s.Typ && value.Type().Plain() == s.Typ.Plain() {
		return rel.NewCast(s.Typ, value, false, true, s.At)
	}
	return value
}

// besides puts the columns of a query beside those of the rows around it, NULL where it has no row.
func (p *planner) besides(in, sub rel.Node, kind rel.JoinKind, preds []rel.Expr, at rel.Place) *rel.Join {
	ls, rs := in.Schema(), sub.Schema()
	return &rel.Join{Base: rel.MakeBase(slices.Concat(ls.Names, rs.Names), slices.Concat(ls.Types, nullable(rs.Types)), at), Kind: kind, Left: in, Right: sub,
		Cond: p.correlated(preds, ls.Len())}
}

// overAggregate is the aggregate without GROUP BY that a query is, and its columns: expressions over those of the aggregate.
func overAggregate(n rel.Node) (*rel.Aggregate, []rel.Expr) {
	values := make([]rel.Expr, n.Schema().Len())
	for i := range values {
		values[i] = column(n, i)
	}
	for {
		switch x := n.(type) {
		case *rel.Project:
			if slices.ContainsFunc(x.Exprs, outward) {
				return nil, nil
			}
			for i, v := range values {
				values[i] = rel.Substitute(v, x.Exprs)
			}
			n = x.Input
			continue
		case *rel.Aggregate:
			if len(x.Groups) == 0 && x.Sets == nil && x.Window == nil {
				return x, values
			}
		}
		return nil, nil
	}
}

// aggregateValues joins a query that is an aggregate without GROUP BY: it has one row for each row around it, over no rows too.
// Its columns are computed behind the join.
func (p *planner) aggregateValues(in rel.Node, agg *rel.Aggregate, values []rel.Expr, at rel.Place) (*rel.Join, []rel.Expr) {
	sub, preds, ok := p.uncorrelated(in, agg, emptyAggregate(agg.Input))
	if !ok {
		return nil, nil
	}
	lw := in.Schema().Len()
	cols := make([]rel.Expr, len(agg.Aggs))
	for i, c := range agg.Aggs {
		cols[i] = ofNoRows(rel.NewColumn(c.Type.Nullable(true), lw+i, 0, c.Name, c.At), c)
	}
	for i, v := range values {
		values[i] = rel.Substitute(v, cols)
	}
	return p.besides(in, sub, rel.Left, preds, at), values
}

// oneRow says whether a query gives one row at most for the columns that preds set equal: it is an aggregate by these.
func oneRow(n rel.Node, preds []rel.Expr) bool {
	for {
		switch x := n.(type) {
		case *rel.Project:
			n = x.Input
		case *rel.Aggregate:
			return len(x.Groups) <= len(preds)
		default:
			return false
		}
	}
}

// pullUp takes the conditions out of a query that speak of the row around it. The query keeps its columns and may have more
// behind them, which the conditions read.
func (p *planner) pullUp(n rel.Node) (rel.Node, []rel.Expr, bool) {
	switch x := n.(type) {
	case *rel.Filter:
		in, preds, ok := p.pullUp(x.Input)
		if !ok {
			return nil, nil, false
		}
		var stay []rel.Expr
		for _, c := range conjuncts(x.Cond) {
			if outward(c) {
				preds = append(preds, c)
			} else {
				stay = append(stay, c)
			}
		}
		return newFilter(in, conjunction(stay...), x.At()), preds, true
	case *rel.Project:
		in, preds, ok := p.pullUp(x.Input)
		if !ok {
			return nil, nil, false
		}
		if len(preds) == 0 {
			return p.inward(x, x.Exprs...)
		}
		exprs, names := slices.Clone(x.Exprs), slices.Clone(x.Out.Names)
		for _, e := range x.Exprs {
			if outward(e) {
				p.refuseCorrelated(e.Where())
				return nil, nil, false
			}
		}
		place := map[int]int{}
		for i, c := range preds {
			preds[i] = rel.Remap(c, func(col int) int {
				to, ok := place[col]
				if !ok {
					to = len(exprs)
					place[col] = to
					exprs, names = append(exprs, column(in, col)), append(names, in.Schema().Names[col])
				}
				return to
			})
		}
		return newProject(in, exprs, names, x.At()), preds, true
	case *rel.Aggregate:
		in, preds, ok := p.pullUp(x.Input)
		if !ok {
			return nil, nil, false
		}
		if len(preds) == 0 {
			return n, nil, true
		}
		if x.Window != nil || x.Sets != nil {
			p.refuseCorrelated(x.At())
			return nil, nil, false
		}
		// The columns that are set equal to something outside become groups.
		k := *x
		k.Input = in
		k.Groups = slices.Clone(x.Groups)
		place := map[int]int{}
		for _, c := range preds {
			call, isCall := c.(*rel.Call)
			if !isCall || call.Func.Name != "=" {
				p.refuseCorrelated(c.Where())
				return nil, nil, false
			}
			visit(c, func(e rel.Expr) {
				if col, ok := e.(*rel.Column); ok && col.Depth == 0 {
					if _, done := place[col.Index]; !done {
						if g := slices.Index(k.Groups, col.Index); g >= 0 {
							place[col.Index] = g
						} else {
							place[col.Index] = len(k.Groups)
							k.Groups = append(k.Groups, col.Index)
						}
					}
				}
			})
		}
		var names []string
		var types []*row.Type
		for _, g := range k.Groups {
			names, types = append(names, in.Schema().Names[g]), append(types, in.Schema().Types[g])
		}
		for _, a := range x.Aggs {
			names, types = append(names, a.Name), append(types, a.Type)
		}
		k.Base = rel.MakeBase(names, types, x.At())
		// The old columns first, then the new groups.
		var exprs []rel.Expr
		var out []string
		for i := range x.Groups {
			exprs, out = append(exprs, column(&k, i)), append(out, x.Out.Names[i])
		}
		for i := range x.Aggs {
			exprs, out = append(exprs, column(&k, len(k.Groups)+i)), append(out, x.Out.Names[len(x.Groups)+i])
		}
		at := map[int]int{}
		for g := len(x.Groups); g < len(k.Groups); g++ {
			at[g] = len(exprs)
			exprs, out = append(exprs, column(&k, g)), append(out, names[g])
		}
		for i, c := range preds {
			preds[i] = rel.Remap(c, func(col int) int {
				g := place[col]
				if to, ok := at[g]; ok {
					return to
				}
				return g
			})
		}
		return newProject(&k, exprs, out, x.At()), preds, true
	case *rel.Join:
		if outwardNode(x) {
			if x.Kind != rel.Inner || x.AsOf != nil {
				p.refuseCorrelated(x.At())
				return nil, nil, false
			}
			l, lp, ok1 := p.pullUp(x.Left)
			r, rp, ok2 := p.pullUp(x.Right)
			if !ok1 || !ok2 {
				return nil, nil, false
			}
			if l.Schema().Len() != x.Left.Schema().Len() || r.Schema().Len() != x.Right.Schema().Len() {
				p.refuseCorrelated(x.At())
				return nil, nil, false
			}
			lw := l.Schema().Len()
			preds := lp
			for _, c := range rp {
				preds = append(preds, rel.Remap(c, func(i int) int { return i + lw }))
			}
			k := *x
			k.Left, k.Right = l, r
			var stay []rel.Expr
			for _, c := range conjuncts(x.Cond) {
				if outward(c) {
					preds = append(preds, c)
				} else {
					stay = append(stay, c)
				}
			}
			k.Cond = conjunction(stay...)
			return &k, preds, true
		}
		return n, nil, true
	}
	if outwardNode(n) {
		p.refuseCorrelated(n.At())
		return nil, nil, false
	}
	return n, nil, true
}

func (p *planner) inward(n rel.Node, exprs ...rel.Expr) (rel.Node, []rel.Expr, bool) {
	for _, e := range exprs {
		if outward(e) {
			p.refuseCorrelated(e.Where())
			return nil, nil, false
		}
	}
	return n, nil, true
}

func (p *planner) refuseCorrelated(at rel.Place) {
	p.fail(at, "E3705", "a subquery that reads the row around it cannot do so here, below LIMIT, MATCH_RECOGNIZE, a window or an outer join").
		WithNote("write it as a join")
}

// outward says whether an expression reads the row around its query.
func outward(e rel.Expr) (yes bool) {
	visit(e, func(x rel.Expr) {
		if c, ok := x.(*rel.Column); ok && c.Depth > 0 {
			yes = true
		}
	})
	return yes
}

// outwardNode says whether a query reads the row around it, in the nodes that can be asked.
func outwardNode(n rel.Node) bool {
	switch x := n.(type) {
	case *rel.Filter:
		if outward(x.Cond) {
			return true
		}
	case *rel.Project:
		if slices.ContainsFunc(x.Exprs, outward) {
			return true
		}
	case *rel.Join:
		if outward(x.Cond) {
			return true
		}
	case *rel.Correlate:
		return outwardNode(x.Left) // its right side reads the left one
	}
	return slices.ContainsFunc(n.Children(), outwardNode)
}
