package plan

import (
	"slices"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
)

func (p *planner) aggregate(n *rel.Aggregate) rel.Physical {
	in := p.node(n.Input)
	if in == nil {
		return nil
	}
	if n.Window != nil {
		return p.legacyWindow(n, in)
	}
	if n.Sets != nil {
		return p.groupingSets(n, in)
	}
	return p.grouped(n, in, n.Groups, n.Aggs, n.Schema())
}

// grouped plans an aggregate without grouping sets: by window if the keys have its start and its end, else unbounded. out
// has the groups, then the aggregates.
func (p *planner) grouped(n *rel.Aggregate, in rel.Physical, groups []int, aggs []rel.AggCall, out *rel.Schema) rel.Physical {
	if w := p.info[in].window; w != nil && slices.Contains(groups, w.start) && slices.Contains(groups, w.end) {
		return p.windowAggregate(n, in, w, groups, aggs, out)
	}
	// A group by one bound of a window is an ordinary one, for ever, as in Flink.
	agg := &rel.PGroupAgg{Phys: phys(out.Names, out.Types, n.At(), in), Groups: groups, Aggs: aggs, Retracts: retracts(in), TTL: p.ttl(n.TTL)}
	return p.changes(p.add(agg, nil, nil))
}

// groupingSets is one aggregate over the union of the input by set: each with NULL in the columns that it has not, and the
// number of the set as one more group.
func (p *planner) groupingSets(n *rel.Aggregate, in rel.Physical) rel.Physical {
	s := in.Schema()
	width := s.Len()
	names := append(slices.Clone(s.Names), "$set")
	types := slices.Clone(s.Types)
	for _, g := range n.Groups {
		types[g] = types[g].Nullable(true)
	}
	types = append(types, row.Int().NotNull())
	// A column that is a group and an argument too must be there twice.
	argument := make([]bool, width)
	for _, a := range n.Aggs {
		for _, x := range a.Args {
			columns(x, argument)
		}
		columns(a.Filter, argument)
	}
	copyOf := map[int]int{}
	for _, g := range n.Groups {
		if argument[g] {
			copyOf[g] = len(types)
			names, types = append(names, s.Names[g]), append(types, s.Types[g])
		}
	}
	var branches []rel.Physical
	for i, set := range n.Sets {
		exprs := make([]rel.Expr, len(types))
		for c := range width {
			exprs[c] = column(in, c)
		}
		for k, g := range n.Groups {
			if slices.Contains(set, k) {
				if s.Types[g] != types[g] {
					exprs[g] = rel.NewCast(types[g], column(in, g), false, true, n.At())
				}
				continue
			}
			exprs[g] = rel.NewLiteral(types[g], fn.Const{Null: true}, "NULL", n.At())
		}
		exprs[width] = number(int64(i), n.At())
		for g, at := range copyOf {
			exprs[at] = column(in, g)
		}
		branches = append(branches, p.calc(in, nil, exprs, names, n.At()))
	}
	union := branches[0]
	if len(branches) > 1 {
		alive := slices.Clone(p.info[branches[0]].alive)
		w := p.info[branches[0]].window
		for _, b := range branches[1:] { // in a set without its start or end rows have no window
			if o := p.info[b].window; w != nil && (o == nil || o.start != w.start || o.end != w.end) {
				w = nil
			}
		}
		union = p.changes(p.add(&rel.PUnion{Phys: phys(names, types, n.At(), branches...)}, alive, w))
	}
	// GROUPING and the like depend on the set alone.
	var aggs []rel.AggCall
	for _, a := range n.Aggs {
		if grouping(a.Func.Name) {
			continue
		}
		for i, x := range a.Args {
			a.Args = slices.Clone(a.Args)
			a.Args[i] = rel.Remap(x, func(c int) int { return at(copyOf, c) })
		}
		if a.Filter != nil {
			a.Filter = rel.Remap(a.Filter, func(c int) int { return at(copyOf, c) })
		}
		aggs = append(aggs, a)
	}
	groups := append(slices.Clone(n.Groups), width)
	out := &rel.Schema{}
	for _, g := range groups {
		out.Names, out.Types = append(out.Names, names[g]), append(out.Types, types[g])
	}
	for _, a := range aggs {
		out.Names, out.Types = append(out.Names, a.Name), append(out.Types, a.Type)
	}
	agg := p.grouped(n, union, groups, aggs, out)
	if agg == nil {
		return nil
	}
	// Back to the columns that were asked for.
	var exprs []rel.Expr
	for i := range n.Groups {
		exprs = append(exprs, column(agg, i))
	}
	next := len(groups)
	for _, a := range n.Aggs {
		if !grouping(a.Func.Name) {
			exprs = append(exprs, column(agg, next))
			next++
			continue
		}
		var ids []int64
		for _, set := range n.Sets {
			ids = append(ids, groupingID(a, set, n.Groups))
		}
		exprs = append(exprs, pick(column(agg, len(n.Groups)), ids, a.Type, n.At()))
	}
	return p.calc(agg, nil, exprs, n.Schema().Names, n.At())
}

func at(m map[int]int, c int) int {
	if to, ok := m[c]; ok {
		return to
	}
	return c
}

func grouping(name string) bool {
	return name == "GROUPING" || name == "GROUPING_ID" || name == "GROUP_ID"
}

// groupingID is GROUPING_ID of columns in a set: a bit for each, the first the highest; 1 = the set has it not.
func groupingID(a rel.AggCall, set, groups []int) (id int64) {
	if a.Func.Name == "GROUP_ID" {
		return 0
	}
	for _, x := range a.Args {
		id <<= 1
		if k := slices.Index(groups, plain(x)); !slices.Contains(set, k) {
			id |= 1
		}
	}
	return id
}

// pick is the i-th number where set has the value i.
func pick(set rel.Expr, ids []int64, t *row.Type, at rel.Place) rel.Expr {
	value := func(id int64) rel.Expr {
		l := number(id, at)
		return rel.NewLiteral(t.NotNull(), l.Const, l.Text, at)
	}
	var whens []rel.When
	for i, id := range ids[:len(ids)-1] {
		eq := rel.NewCall(row.Boolean().NotNull(), builtin("="), []rel.Expr{set, number(int64(i), at)}, at)
		whens = append(whens, rel.When{Cond: eq, Then: value(id)})
	}
	if len(whens) == 0 {
		return value(ids[0])
	}
	return rel.NewCase(t.NotNull(), whens, value(ids[len(ids)-1]), at)
}

// number is an INT literal.
func number(v int64, at rel.Place) *rel.Literal {
	return rel.NewLiteral(row.Int().NotNull(), fn.Const{X: uint64(v)}, itoa(v), at)
}
