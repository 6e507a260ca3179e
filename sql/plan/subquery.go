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
		width := x.Input.Schema().Len()
		in, exprs, ok := p.scalars(x.Input, x.Exprs)
		if !ok {
			return nil
		}
		if in.Schema().Len() == width {
			return x
		}
		return newProject(in, exprs, x.Out.Names, x.At())
	case *rel.Correlate:
		return p.lateral(x)
	case *rel.Join:
		if hasSubquery(x.Cond) {
			if x.Kind != rel.Inner {
				p.fail(x.Cond.Where(), "E3701", "a subquery in ON of an outer join is not supported").WithNote("move it into WHERE, or into a query that is joined")
				return nil
			}
			k := *x
			cond := x.Cond
			k.Cond = nil
			return p.decorrelate(newFilter(&k, cond, x.At()))
		}
	}
	return n
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
	sub, preds, ok := p.pullUp(n.Right)
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
		case s != nil && s.Kind != rel.ScalarQuery:
			p.fail(s.At, "E3702", "%s ANY and ALL over a query are not supported", s.Op).WithNote("compare with (SELECT MIN(..) ..) or (SELECT MAX(..) ..)")
			return nil
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
	sub := p.decorrelate(s.Node)
	if sub == nil {
		return nil
	}
	cols := sub.Schema().Len()
	sub, preds, ok := p.pullUp(sub)
	if !ok {
		return nil
	}
	kind := rel.Semi
	mayBeEqual := false
	if anti {
		kind = rel.Anti
		if x != nil && (nullableAny(x) || nullableColumns(sub, len(x))) {
			// With NULL a value may be equal to one of the query. The operator of NOT IN knows one query for all rows and
			// compares columns; else the condition says it.
			constant := func(e rel.Expr) bool { return !reads(e, func(int) bool { return true }) }
			if mayBeEqual = len(preds) > 0 || slices.ContainsFunc(x, constant); !mayBeEqual {
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
		equal, ok := p.equals(s, right)
		if !ok {
			return nil
		}
		if mayBeEqual {
			equal = rel.NewCall(row.Boolean().NotNull(), builtin("IS NOT FALSE"), []rel.Expr{equal}, s.At)
		}
		cond = conjunction(cond, equal)
	}
	ls := in.Schema()
	return &rel.Join{Base: rel.MakeBase(ls.Names, ls.Types, s.At), Kind: kind, Left: in, Right: sub, Cond: cond}
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
	p.fail(s.At, "E3702", "%s ANY and ALL over a query are not supported", s.Op).WithNote("compare with (SELECT MIN(..) ..) or (SELECT MAX(..) ..)")
	return nil, nil
}

// counted is COUNT(*) of a query, and COUNT of its first column.
func counted(n rel.Node, at rel.Place) rel.Node {
	t := row.BigInt().NotNull()
	count := func(name string, args ...rel.Expr) rel.AggCall {
		return rel.AggCall{Func: builtin("COUNT"), Args: args, Type: t, Name: name, At: at}
	}
	return &rel.Aggregate{Base: rel.MakeBase([]string{"rows", "known"}, []*row.Type{t, t}, at), Input: n,
		Aggs: []rel.AggCall{count("rows"), count("known", column(n, 0))}}
}

// existsValue is EXISTS as a value: whether a query has rows.
func (p *planner) existsValue(in rel.Node, s *rel.Subquery) (rel.Node, rel.Expr) {
	t := row.BigInt().NotNull()
	n, rows := p.scalar(in, rel.NewSubquery(t.Nullable(true), rel.ScalarQuery, nil, "", false, counted(s.Node, s.At), s.At))
	if n == nil {
		return nil, nil
	}
	truth := row.Boolean().NotNull()
	var yes rel.Expr = rel.NewCall(row.Boolean(), builtin(">"), []rel.Expr{rows, rel.NewCast(t, number(0, s.At), false, true, s.At)}, s.At)
	yes = rel.NewCall(truth, builtin("IS TRUE"), []rel.Expr{yes}, s.At)
	if s.Not {
		yes = rel.NewCall(truth, builtin("NOT"), []rel.Expr{yes}, s.At)
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
	// add joins a query at the right; cols are the columns of the query in the join.
	add := func(kind rel.JoinKind, sub rel.Node, with func(cols []rel.Expr) (rel.Expr, bool)) (cols []rel.Expr, ok bool) {
		if sub = p.decorrelate(sub); sub == nil {
			return nil, false
		}
		sub, preds, ok := p.pullUp(sub)
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
		if counts, ok = add(rel.Inner, counted(s.Node, s.At), func([]rel.Expr) (rel.Expr, bool) { return nil, true }); !ok {
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
	truth := row.Boolean().NotNull()
	literal := func(v uint64, text string) rel.Expr {
		return rel.NewLiteral(truth, fn.Const{X: v}, text, s.At)
	}
	found, ok := add(rel.Left, newProject(distinct, append(slices.Clone(exprs), literal(1, "TRUE")), append(slices.Clone(qs.Names[:k]), "found"), s.At),
		func(cols []rel.Expr) (rel.Expr, bool) { return p.equals(s, cols) })
	if !ok {
		return nil, nil
	}
	typ := truth
	if unknown {
		typ = row.Boolean()
	}
	value := func(e rel.Expr) rel.Expr {
		if typ != truth {
			return rel.NewCast(typ, e, false, true, s.At)
		}
		return e
	}
	yes, no := value(literal(1, "TRUE")), value(literal(0, "FALSE"))
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

// equals says that the columns of a query equal the values of IN.
func (p *planner) equals(s *rel.Subquery, cols []rel.Expr) (cond rel.Expr, ok bool) {
	for i, e := range s.X {
		left, right, ok := comparable(e, cols[i])
		if !ok {
			p.fail(e.Where(), "E3703", "IN compares %s with %s", e.Type(), cols[i].Type()).WithNote("cast one of them")
			return nil, false
		}
		cond = conjunction(cond, rel.NewCall(row.Boolean(), builtin("="), []rel.Expr{left, right}, s.At))
	}
	return cond, true
}

// scalar joins one scalar subquery; col is its value.
func (p *planner) scalar(in rel.Node, s *rel.Subquery) (rel.Node, rel.Expr) {
	sub := p.decorrelate(s.Node)
	if sub == nil {
		return nil, nil
	}
	counts := countsRows(sub)
	sub, preds, ok := p.pullUp(sub)
	if !ok {
		return nil, nil
	}
	kind := rel.Single
	lw := in.Schema().Len()
	if len(preds) > 0 {
		if !oneRow(sub, preds) {
			kind = rel.Single
		} else {
			kind = rel.Left
		}
	}
	ls, rs := in.Schema(), sub.Schema()
	j := &rel.Join{Base: rel.MakeBase(slices.Concat(ls.Names, rs.Names), slices.Concat(ls.Types, nullable(rs.Types)), s.At), Kind: kind, Left: in, Right: sub, Cond: p.correlated(preds, lw)}
	var col rel.Expr = rel.NewColumn(rs.Types[0].Nullable(true), lw, 0, rs.Names[0], s.At)
	if counts && len(preds) > 0 {
		// COUNT over no rows is 0, and there is no group without rows.
		t := rs.Types[0].NotNull()
		isNull := rel.NewCall(row.Boolean().NotNull(), builtin("IS NULL"), []rel.Expr{col}, s.At)
		zero := number(0, s.At)
		col = rel.NewCase(t, []rel.When{{Cond: isNull, Then: rel.NewLiteral(t, zero.Const, "0", s.At)}}, rel.NewCast(t, col, false, true, s.At), s.At)
	}
	if col.Type() != s.Typ {
		if col.Type().Plain() == s.Typ.Plain() {
			col = rel.NewCast(s.Typ, col, false, true, s.At)
		}
	}
	return j, col
}

// countsRows says whether the first column of a query is COUNT without GROUP BY.
func countsRows(n rel.Node) bool {
	i := 0
	for {
		switch x := n.(type) {
		case *rel.Project:
			if i = plain(x.Exprs[i]); i < 0 {
				return false
			}
			n = x.Input
		case *rel.Aggregate:
			return len(x.Groups) == 0 && i < len(x.Aggs) && x.Aggs[i].Func.Name == "COUNT"
		default:
			return false
		}
	}
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
			return p.uncorrelated(x, x.Exprs...)
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

func (p *planner) uncorrelated(n rel.Node, exprs ...rel.Expr) (rel.Node, []rel.Expr, bool) {
	for _, e := range exprs {
		if outward(e) {
			p.refuseCorrelated(e.Where())
			return nil, nil, false
		}
	}
	return n, nil, true
}

func (p *planner) refuseCorrelated(at rel.Place) {
	p.fail(at, "E3705", "a subquery that reads the row around it is supported where it does so in WHERE, with = below an aggregate").
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
