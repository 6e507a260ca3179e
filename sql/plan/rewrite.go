package plan

import (
	"slices"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/rel"
)

// rewrite brings a logical plan into the form that operators are chosen for: no subqueries, conditions where they belong,
// no column that nobody reads.
func (p *planner) rewrite(n rel.Node) rel.Node {
	for _, r := range Rules() {
		if r.rewrite == nil || r.Optional && p.without(r.Name) {
			continue
		}
		before := n
		if n = r.rewrite(p, n); n == nil {
			return nil
		}
		if p.opts.Trace != nil {
			p.opts.Trace(r.Name, rel.Tree(before), rel.Tree(n))
		}
	}
	return n
}

// children rebuilds a node with f of each child.
func children(n rel.Node, f func(rel.Node) rel.Node) rel.Node {
	in := n.Children()
	if len(in) == 0 {
		return n
	}
	out := make([]rel.Node, len(in))
	changed := false
	for i, c := range in {
		out[i] = f(c)
		if out[i] == nil {
			return nil
		}
		changed = changed || out[i] != c
	}
	if !changed {
		return n
	}
	return n.WithChildren(out)
}

func newFilter(in rel.Node, cond rel.Expr, at rel.Place) rel.Node {
	if cond == nil || rel.IsTrue(cond) {
		return in
	}
	s := in.Schema()
	return &rel.Filter{Base: rel.MakeBase(s.Names, s.Types, at), Input: in, Cond: cond}
}

func newProject(in rel.Node, exprs []rel.Expr, names []string, at rel.Place) rel.Node {
	types := make([]*row.Type, len(exprs))
	for i, e := range exprs {
		types[i] = e.Type()
	}
	return &rel.Project{Base: rel.MakeBase(names, types, at), Input: in, Exprs: exprs}
}

// firstColumns is the projection to the first n columns.
func firstColumns(in rel.Node, n int, at rel.Place) rel.Node {
	s := in.Schema()
	if s.Len() == n {
		return in
	}
	exprs := make([]rel.Expr, n)
	for i := range exprs {
		exprs[i] = column(in, i)
	}
	return newProject(in, exprs, s.Names[:n], at)
}

// pushFilters moves conditions into joins and to their sides. It never goes below a watermark: what is filtered out still
// moves time on.
func pushFilters(n rel.Node) rel.Node {
	switch x := n.(type) {
	case *rel.Scan, *rel.Watermark:
		return n
	case *rel.Filter:
		if inner, ok := x.Input.(*rel.Filter); ok {
			return pushFilters(newFilter(inner.Input, conjunction(inner.Cond, x.Cond), x.At()))
		}
		if pr, ok := x.Input.(*rel.Project); ok && overJoin(pr) {
			cond := rel.Substitute(x.Cond, pr.Exprs)
			if onlyCheap(x.Cond, pr.Exprs) {
				return pushFilters(newProject(newFilter(pr.Input, cond, x.At()), pr.Exprs, pr.Out.Names, pr.At()))
			}
		}
		if j, ok := x.Input.(*rel.Join); ok {
			if out, ok := pushIntoJoin(j, x); ok {
				return pushFilters(out)
			}
		}
	case *rel.Join:
		if out, ok := pushOn(x); ok {
			return pushFilters(out)
		}
	}
	return children(n, pushFilters)
}

// overJoin says whether there is a join below projections and filters.
func overJoin(n rel.Node) bool {
	for {
		switch x := n.(type) {
		case *rel.Project:
			n = x.Input
		case *rel.Filter:
			n = x.Input
		case *rel.Join:
			return true
		default:
			return false
		}
	}
}

func onlyCheap(cond rel.Expr, exprs []rel.Expr) bool {
	return !reads(cond, func(c int) bool { return !cheap(exprs[c]) })
}

// pushIntoJoin moves conditions above a join into it.
func pushIntoJoin(j *rel.Join, f *rel.Filter) (rel.Node, bool) {
	lw := j.Left.Schema().Len()
	var left, right, on, stay []rel.Expr
	for _, c := range conjuncts(f.Cond) {
		usesL := reads(c, func(i int) bool { return i < lw })
		usesR := reads(c, func(i int) bool { return i >= lw })
		switch {
		case usesL && !usesR && (j.Kind == rel.Inner || j.Kind == rel.Left || j.Kind == rel.Semi || j.Kind == rel.Anti || j.Kind == rel.NullAwareAnti):
			left = append(left, c)
		case usesR && !usesL && j.AsOf == nil && (j.Kind == rel.Inner || j.Kind == rel.Right):
			right = append(right, rel.Remap(c, func(i int) int { return i - lw }))
		case usesL && usesR && j.Kind == rel.Inner && j.AsOf == nil:
			on = append(on, c)
		default:
			stay = append(stay, c)
		}
	}
	if len(left)+len(right)+len(on) == 0 {
		return nil, false
	}
	k := *j
	k.Left = newFilter(j.Left, conjunction(left...), f.At())
	k.Right = newFilter(j.Right, conjunction(right...), f.At())
	k.Cond = conjunction(append([]rel.Expr{j.Cond}, on...)...)
	return newFilter(&k, conjunction(stay...), f.At()), true
}

// pushOn moves conditions of ON that speak of one side to that side, where it pads nothing.
func pushOn(j *rel.Join) (rel.Node, bool) {
	if j.AsOf != nil || j.Kind == rel.NullAwareAnti || j.Kind == rel.Single {
		return nil, false
	}
	lw := j.Left.Schema().Len()
	var left, right, on []rel.Expr
	for _, c := range conjuncts(j.Cond) {
		usesL := reads(c, func(i int) bool { return i < lw })
		usesR := reads(c, func(i int) bool { return i >= lw })
		switch {
		case usesL && !usesR && (j.Kind == rel.Inner || j.Kind == rel.Right || j.Kind == rel.Semi):
			left = append(left, c)
		case usesR && !usesL && (j.Kind == rel.Inner || j.Kind == rel.Left || j.Kind == rel.Semi || j.Kind == rel.Anti):
			right = append(right, rel.Remap(c, func(i int) int { return i - lw }))
		default:
			on = append(on, c)
		}
	}
	if len(left)+len(right) == 0 {
		return nil, false
	}
	k := *j
	k.Left = newFilter(j.Left, conjunction(left...), j.At())
	k.Right = newFilter(j.Right, conjunction(right...), j.At())
	k.Cond = conjunction(on...)
	return &k, true
}

// prune drops columns that nobody reads.
func (p *planner) prune(n rel.Node) rel.Node {
	need := make([]bool, n.Schema().Len())
	for i := range need {
		need[i] = true
	}
	out, _ := p.pruned(n, need)
	return out
}

// pruned is a node with at least the columns that are needed, in their order; to says where each old column is, -1 = gone.
func (p *planner) pruned(n rel.Node, need []bool) (out rel.Node, to []int) {
	width := n.Schema().Len()
	same := func(n rel.Node) (rel.Node, []int) { return n, count(width) }
	// keep makes the Base of the columns that stay.
	keep := func(stay []bool) (rel.Base, []int) {
		s := n.Schema()
		var names []string
		var types []*row.Type
		to := make([]int, len(stay))
		for i, yes := range stay {
			to[i] = -1
			if yes {
				to[i] = len(names)
				names, types = append(names, s.Names[i]), append(types, s.Types[i])
			}
		}
		return rel.MakeBase(names, types, n.At()), to
	}
	mapped := func(to []int) func(int) int { return func(i int) int { return to[i] } }
	columnsTo := func(cs, to []int) []int {
		out := make([]int, len(cs))
		for i, c := range cs {
			out[i] = to[c]
		}
		return out
	}
	// outOf is where the columns of a node are that passes its input's columns on and adds more behind them.
	outOf := func(in rel.Node, inTo []int, more int) (rel.Base, []int) {
		s := n.Schema()
		is := in.Schema()
		names, types := slices.Clone(is.Names), slices.Clone(is.Types)
		to := slices.Clone(inTo)
		for i, t := range inTo {
			if t >= 0 {
				types[t] = s.Types[i]
				names[t] = s.Names[i]
			}
		}
		for i := range more {
			to = append(to, len(names))
			names, types = append(names, s.Names[len(inTo)+i]), append(types, s.Types[len(inTo)+i])
		}
		return rel.MakeBase(names, types, n.At()), to
	}
	switch n := n.(type) {
	case *rel.Scan:
		stay := slices.Clone(need)
		if tr, ok := p.traits(n.Table, n.At()); !ok || tr.Reads != 0 {
			for i, c := range n.Columns {
				if slices.Contains(n.Table.Key, c) {
					stay[i] = true
				}
			}
		}
		c := *n
		c.Base, to = keep(stay)
		c.Columns = nil
		for i, yes := range stay {
			if yes {
				c.Columns = append(c.Columns, n.Columns[i])
			}
		}
		return &c, to
	case *rel.Watermark:
		want := slices.Clone(need)
		want[n.Column] = true
		columns(n.Expr, want)
		for _, name := range p.late[tableOf(n)] { // they are written if the row is late
			want[slices.Index(n.Out.Names, name)] = true
		}
		in, inTo := p.pruned(n.Input, want)
		c := *n
		c.Input, c.Column, c.Expr = in, inTo[n.Column], rel.Remap(n.Expr, mapped(inTo))
		c.Base, to = outOf(in, inTo, 0)
		return &c, to
	case *rel.Project:
		want := make([]bool, n.Input.Schema().Len())
		for i, e := range n.Exprs {
			if need[i] {
				columns(e, want)
			}
		}
		in, inTo := p.pruned(n.Input, want)
		c := *n
		c.Input, c.Exprs = in, nil
		for i, e := range n.Exprs {
			if need[i] {
				c.Exprs = append(c.Exprs, rel.Remap(e, mapped(inTo)))
			}
		}
		c.Base, to = keep(need)
		return &c, to
	case *rel.Filter:
		want := slices.Clone(need)
		columns(n.Cond, want)
		in, inTo := p.pruned(n.Input, want)
		c := *n
		c.Input, c.Cond = in, rel.Remap(n.Cond, mapped(inTo))
		c.Base, to = outOf(in, inTo, 0)
		return &c, to
	case *rel.Join:
		lw := n.Left.Schema().Len()
		rw := n.Right.Schema().Len()
		want := make([]bool, lw+rw)
		copy(want, need)
		columns(n.Cond, want)
		columns(n.AsOf, want)
		if n.AsOf != nil {
			for i := lw; i < lw+rw; i++ { // its time and its key are found by the planner
				want[i] = true
			}
		}
		l, lTo := p.pruned(n.Left, want[:lw])
		r, rTo := p.pruned(n.Right, want[lw:])
		nl := l.Schema().Len()
		both := func(i int) int {
			if i < lw {
				return lTo[i]
			}
			return rTo[i-lw] + nl
		}
		c := *n
		c.Left, c.Right, c.Cond = l, r, rel.Remap(n.Cond, both)
		c.AsOf = rel.Remap(n.AsOf, both)
		to = make([]int, width)
		total := nl
		if width > lw {
			total += r.Schema().Len()
		}
		names, types := make([]string, total), make([]*row.Type, total)
		for i := range to {
			to[i] = -1
			if i < lw && lTo[i] >= 0 || i >= lw && rTo[i-lw] >= 0 {
				to[i] = both(i)
				names[to[i]], types[to[i]] = n.Out.Names[i], n.Out.Types[i]
			}
		}
		c.Base = rel.MakeBase(names, types, n.At())
		return &c, to
	case *rel.Aggregate:
		want := make([]bool, n.Input.Schema().Len())
		for _, g := range n.Groups {
			want[g] = true
		}
		stay := make([]bool, width)
		for i := range stay {
			stay[i] = true
		}
		c := *n
		c.Aggs = nil
		for i, a := range n.Aggs {
			if !need[len(n.Groups)+i] {
				stay[len(n.Groups)+i] = false
				continue
			}
			for _, x := range a.Args {
				columns(x, want)
			}
			columns(a.Filter, want)
			for _, k := range a.OrderBy {
				want[k.Column] = true
			}
		}
		if n.Window != nil {
			want[n.Window.Time] = true
		}
		in, inTo := p.pruned(n.Input, want)
		c.Input, c.Groups = in, columnsTo(n.Groups, inTo)
		for i, a := range n.Aggs {
			if stay[len(n.Groups)+i] {
				c.Aggs = append(c.Aggs, aggTo(a, inTo))
			}
		}
		if n.Window != nil {
			w := *n.Window
			w.Time, w.Partition = inTo[w.Time], columnsTo(w.Partition, inTo)
			c.Window = &w
		}
		c.Base, to = keep(stay)
		return &c, to
	case *rel.WindowTVF:
		iw := n.Input.Schema().Len()
		want := slices.Clone(need[:iw])
		want[n.Time] = true
		for _, k := range n.Partition {
			want[k] = true
		}
		in, inTo := p.pruned(n.Input, want)
		c := *n
		c.Input, c.Time, c.Partition = in, inTo[n.Time], columnsTo(n.Partition, inTo)
		c.Base, to = outOf(in, inTo, 3)
		return &c, to
	case *rel.Over:
		iw := n.Input.Schema().Len()
		if !slices.Contains(need[iw:], true) {
			in, inTo := p.pruned(n.Input, need[:iw])
			for range n.Calls {
				inTo = append(inTo, -1)
			}
			return in, inTo
		}
		want := slices.Clone(need[:iw])
		for _, k := range n.Partition {
			want[k] = true
		}
		for _, k := range n.Order {
			want[k.Column] = true
		}
		for _, a := range n.Calls {
			for _, x := range a.Args {
				columns(x, want)
			}
			columns(a.Filter, want)
		}
		in, inTo := p.pruned(n.Input, want)
		c := *n
		c.Input, c.Partition, c.Order, c.Calls = in, columnsTo(n.Partition, inTo), keysTo(n.Order, inTo), nil
		for _, a := range n.Calls {
			c.Calls = append(c.Calls, aggTo(a, inTo))
		}
		c.Base, to = outOf(in, inTo, len(n.Calls))
		return &c, to
	case *rel.Sort:
		want := slices.Clone(need)
		for _, k := range n.Keys {
			want[k.Column] = true
		}
		in, inTo := p.pruned(n.Input, want)
		c := *n
		c.Input, c.Keys = in, keysTo(n.Keys, inTo)
		c.Base, to = outOf(in, inTo, 0)
		return &c, to
	case *rel.Limit:
		in, inTo := p.pruned(n.Input, need)
		c := *n
		c.Input = in
		c.Base, to = outOf(in, inTo, 0)
		return &c, to
	case *rel.SetOp:
		if n.Kind == rel.Union && n.All {
			c := *n
			c.Inputs = nil
			for _, i := range n.Inputs {
				in, inTo := p.pruned(i, need)
				// All branches have exactly the needed columns.
				c.Inputs = append(c.Inputs, onlyNeeded(in, inTo, need))
			}
			c.Base, to = keep(need)
			return &c, to
		}
	}
	return same(children(n, p.prune))
}

// onlyNeeded drops what pruned kept beyond what was needed.
func onlyNeeded(in rel.Node, to []int, need []bool) rel.Node {
	var exprs []rel.Expr
	var names []string
	for i, yes := range need {
		if yes {
			exprs, names = append(exprs, column(in, to[i])), append(names, in.Schema().Names[to[i]])
		}
	}
	if len(exprs) == in.Schema().Len() {
		return in
	}
	return newProject(in, exprs, names, in.At())
}

func keysTo(ks []rel.SortKey, to []int) []rel.SortKey {
	out := slices.Clone(ks)
	for i := range out {
		out[i].Column = to[out[i].Column]
	}
	return out
}

func aggTo(a rel.AggCall, to []int) rel.AggCall {
	f := func(i int) int { return to[i] }
	a.Args = slices.Clone(a.Args)
	for i, x := range a.Args {
		a.Args[i] = rel.Remap(x, f)
	}
	a.Filter = rel.Remap(a.Filter, f)
	a.OrderBy = keysTo(a.OrderBy, to)
	return a
}
