package plan

import (
	"slices"

	"github.com/millrace-stream/millrace/sql/catalog"
	"github.com/millrace-stream/millrace/sql/rel"
)

// place puts exchanges where an operator wants rows of equal keys together and they do not lie so yet.
func (p *planner) place(plan *rel.Plan) {
	done := map[rel.Physical]rel.Physical{}
	for _, s := range plan.Sinks {
		for i, in := range s.In {
			s.In[i] = p.placed(in, done)
		}
		// Two transactions have no order: rows of one key of an upsert sink must leave from one subtask.
		if s.Key != nil && s.In[0].Common().Kinds != rel.Inserts {
			if d := s.In[0].Common().Dist; d.Kind != rel.SingleDist && !(d.Kind == rel.KeyedDist && subset(d.Keys, s.Key)) {
				s.In[0] = p.exchange(s.In[0], s.Key)
			} else {
				relied(s.In[0])
			}
		}
	}
}

func (p *planner) placed(n rel.Physical, done map[rel.Physical]rel.Physical) rel.Physical {
	if out, ok := done[n]; ok {
		return out
	}
	ph := n.Common()
	for i, in := range ph.In {
		ph.In[i] = p.placed(in, done)
	}
	done[n] = n
	first := rel.Distribution{}
	if len(ph.In) > 0 {
		first = ph.In[0].Common().Dist
	}
	switch n := n.(type) {
	case *rel.PUnion:
		p.untangle(ph.In)
	case *rel.PScan:
		ph.Dist = p.inTopic(n)
		return n
	}
	switch want, keyed := demand(n); {
	case keyed && len(ph.In) == 0: // constants, in the only subtask of their own
		ph.Dist = rel.Distribution{Kind: rel.SingleDist}
	case !keyed: // as the input lies
		ph.Dist = kept(n, first)
	case len(ph.In) == 2 && aligned(ph.In, want):
		relied(ph.In[0])
		relied(ph.In[1])
		ph.Dist = kept(n, first)
	default:
		for i := range ph.In {
			in := ph.In[i]
			if ph.In[i] = p.together(ph.In, i, want); ph.In[i] != in {
				p.twoPhase(n, in)
			} else {
				relied(in)
			}
		}
		ph.Dist = kept(n, ph.In[0].Common().Dist)
	}
	return n
}

// together gives input i the distribution that a demand asks for.
func (p *planner) together(ins []rel.Physical, i int, want [][]int) rel.Physical {
	in := ins[i]
	keys := want[i]
	d := in.Common().Dist
	switch {
	case len(keys) == 0:
		if d.Kind == rel.SingleDist {
			return in
		}
	case len(ins) == 1 && d.Kind == rel.KeyedDist && len(d.Keys) > 0 && subset(d.Keys, keys):
		return in
	case len(ins) == 2 && d.Kind == rel.KeyedDist && d.Topic == "" && slices.Equal(d.Keys, keys):
		return in
	}
	return p.exchange(in, keys)
}

// aligned says whether the rows of two inputs that match lie on one subtask since their topics have equal keys: these are
// among the columns that must be equal, at the same places.
func aligned(ins []rel.Physical, want [][]int) bool {
	l, r := ins[0].Common().Dist, ins[1].Common().Dist
	if l.Topic == "" || l.Topic != r.Topic || len(l.Keys) != len(r.Keys) {
		return false
	}
	for i, k := range l.Keys {
		pair := func(at int) bool { return want[0][at] == k && want[1][at] == r.Keys[i] }
		if !slices.ContainsFunc(count(len(want[0])), pair) {
			return false
		}
	}
	return true
}

// relied notes at the tables below a node, up to the next exchanges, that their records must lie where their keys say.
func relied(n rel.Physical) {
	if n.Common().Dist.Topic == "" {
		return
	}
	if s, ok := n.(*rel.PScan); ok {
		s.Routed = true
	}
	for _, in := range n.Common().In {
		relied(in)
	}
}

// inTopic is how the rows of a table lie if its records are on partitions by columns that are read.
func (p *planner) inTopic(n *rel.PScan) rel.Distribution {
	if p.opts.Table == nil || p.without("elideExchange") {
		return rel.Distribution{}
	}
	t, err := p.opts.Table(n.Table)
	if err != nil || len(t.Keyed) == 0 {
		return rel.Distribution{}
	}
	d := rel.Distribution{Kind: rel.KeyedDist, Topic: t.KeyForm}
	for _, c := range t.Keyed {
		i := slices.Index(n.Columns, c)
		if i < 0 {
			return rel.Distribution{}
		}
		d.Keys = append(d.Keys, i)
	}
	return d
}

// untangle exchanges inputs of a union whose tables another input reads through an exchange: without one of its own the
// rows before and behind that exchange would be on one subtask, which would feed itself.
func (p *planner) untangle(ins []rel.Physical) {
	for i, in := range ins {
		near, _ := tables(in)
		for k, other := range ins {
			if _, far := tables(other); k != i && slices.ContainsFunc(near, func(t *catalog.Table) bool { return slices.Contains(far, t) }) {
				ins[i] = p.exchange(in, count(in.Schema().Len()))
				break
			}
		}
	}
}

// tables are those that a node reads on its own subtask, and those behind an exchange.
func tables(n rel.Physical) (near, far []*catalog.Table) {
	if s, ok := n.(*rel.PScan); ok {
		return []*catalog.Table{s.Table}, nil
	}
	for _, in := range n.Common().In {
		a, b := tables(in)
		near, far = append(near, a...), append(far, b...)
	}
	if _, ok := n.(*rel.PExchange); ok {
		return nil, append(far, near...)
	}
	return near, far
}

func (p *planner) exchange(in rel.Physical, keys []int) rel.Physical {
	x := &rel.PExchange{Phys: like(in, in), Keys: keys}
	x.Traits = in.Common().Traits
	x.Dist = rel.Distribution{Kind: rel.KeyedDist, Keys: keys}
	if len(keys) == 0 {
		x.Dist.Kind = rel.SingleDist
	}
	p.info[x] = p.info[in]
	return x
}

// demand is by which columns of each input an operator wants its rows together; no columns = all on one subtask.
func demand(n rel.Physical) (keys [][]int, ok bool) {
	one := func(k []int) ([][]int, bool) { return [][]int{k}, true }
	switch n := n.(type) {
	case *rel.PNormalize:
		return one(n.Key)
	case *rel.PMaterialize:
		return one(n.Key)
	case *rel.PGroupAgg:
		return one(n.Groups)
	case *rel.PWindowAgg:
		return one(n.Groups)
	case *rel.PWindow:
		if n.Spec.Kind == rel.Session {
			return one(n.Spec.Partition)
		}
	case *rel.PWindowRank:
		return one(n.Partition)
	case *rel.PTopN:
		return one(n.Partition)
	case *rel.PLimit, *rel.PTimeSort, *rel.PValues:
		return one(nil)
	case *rel.PDedup:
		return one(n.Key)
	case *rel.POverTime:
		return one(n.Partition)
	case *rel.POverColumn:
		return one(n.Partition)
	case *rel.PMatch:
		return one(n.Partition)
	case *rel.PWindowJoin:
		return n.Keys[:], true
	case *rel.PJoin:
		if n.Kind == rel.NullAwareAnti { // one NULL on the right takes every row away
			return [][]int{nil, nil}, true
		}
		return n.Keys[:], true
	case *rel.PIntervalJoin:
		return n.Keys[:], true
	case *rel.PTemporalJoin:
		return n.Keys[:], true
	case *rel.PSetCount:
		all := count(n.Schema().Len())
		return [][]int{all, all}, true
	}
	return nil, false
}

// kept is how the rows of a node lie when its input lies so.
func kept(n rel.Physical, d rel.Distribution) rel.Distribution {
	if d.Kind != rel.KeyedDist {
		return d
	}
	move := func(to func(c int) int) rel.Distribution {
		out := rel.Distribution{Kind: rel.KeyedDist, Topic: d.Topic}
		for _, c := range d.Keys {
			t := to(c)
			if t < 0 {
				return rel.Distribution{}
			}
			out.Keys = append(out.Keys, t)
		}
		return out
	}
	switch n := n.(type) {
	case *rel.PCalc:
		return move(func(c int) int {
			return slices.IndexFunc(n.Exprs, func(e rel.Expr) bool { return plain(e) == c })
		})
	case *rel.PGroupAgg:
		return move(func(c int) int { return slices.Index(n.Groups, c) })
	case *rel.PWindowAgg:
		return move(func(c int) int { return slices.Index(n.Groups, c) })
	case *rel.PMatch:
		return move(func(c int) int { return slices.Index(n.Partition, c) })
	case *rel.PUnion:
		for _, in := range n.In[1:] {
			if o := in.Common().Dist; o.Kind != d.Kind || o.Topic != d.Topic || !slices.Equal(o.Keys, d.Keys) {
				return rel.Distribution{}
			}
		}
		return d
	case *rel.PJoin:
		if n.Kind == rel.Right || n.Kind == rel.Full {
			return rel.Distribution{}
		}
	case *rel.PIntervalJoin:
		if n.Kind == rel.Right || n.Kind == rel.Full {
			return rel.Distribution{}
		}
	case *rel.PWindowJoin:
		if n.Kind == rel.Right || n.Kind == rel.Full {
			return rel.Distribution{}
		}
	}
	return d
}
