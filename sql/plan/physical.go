package plan

import (
	"slices"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/catalog"
	"github.com/millrace-stream/millrace/sql/rel"
)

// add registers a physical node. alive nil = no column is.
func (p *planner) add(n rel.Physical, alive []bool, w *window) rel.Physical {
	if alive == nil {
		alive = make([]bool, n.Schema().Len())
	}
	p.info[n] = &info{alive: alive, window: w}
	t := &n.Common().Traits
	t.Alive = slices.Index(alive, true)
	return n
}

func phys(names []string, types []*row.Type, at rel.Place, in ...rel.Physical) rel.Phys {
	return rel.Phys{Base: rel.MakeBase(names, types, at), In: in}
}

// like is a Phys with the schema of a logical node.
func like(n rel.Node, in ...rel.Physical) rel.Phys {
	s := n.Schema()
	return phys(s.Names, s.Types, n.At(), in...)
}

// node makes the physical form of a logical node. nil after an error, which has been told.
func (p *planner) node(n rel.Node) rel.Physical {
	switch n := n.(type) {
	case *rel.Scan, *rel.Watermark:
		return p.scan(n)
	case *rel.LateRows:
		return p.changes(p.add(&rel.PLateRows{Phys: like(n), Table: n.Table}, nil, nil))
	case *rel.Values:
		return p.add(&rel.PValues{Phys: like(n), Rows: n.Rows}, nil, nil)
	case *rel.Project:
		return p.project(n)
	case *rel.Filter:
		return p.filter(n, nil)
	case *rel.Join:
		return p.join(n)
	case *rel.Correlate:
		return p.correlate(n)
	case *rel.Aggregate:
		return p.aggregate(n)
	case *rel.SetOp:
		return p.setOp(n)
	case *rel.WindowTVF:
		return p.windowTVF(n)
	case *rel.Over:
		return p.over(n)
	case *rel.Sort:
		return p.sort(n)
	case *rel.Limit:
		return p.limit(n)
	case *rel.Match:
		return p.match(n)
	}
	p.fail(n.At(), "E3001", "this cannot be planned: %s", n)
	return nil
}

// scan takes Watermark(Project(Scan)) together: nothing comes between a table and its watermark.
func (p *planner) scan(n rel.Node) rel.Physical {
	out := &rel.PScan{Phys: like(n), Rowtime: -1}
	alive := make([]bool, n.Schema().Len())
	if w, ok := n.(*rel.Watermark); ok {
		out.Rowtime, out.Watermark, out.FromSource = w.Column, w.Expr, w.Expr == nil
		alive[w.Column] = true
		n = w.Input
	}
	var exprs []rel.Expr
	if pr, ok := n.(*rel.Project); ok {
		exprs, n = pr.Exprs, pr.Input
	}
	s, ok := n.(*rel.Scan)
	if !ok {
		p.fail(n.At(), "E3001", "a watermark can be declared for a table only")
		return nil
	}
	out.Table, out.Columns, out.Options = s.Table, s.Columns, s.Options
	if tr, ok := p.traits(s.Table, s.At()); ok {
		out.Changes = tr.Reads
	} else {
		return nil
	}
	for i, t := range out.Out.Types {
		if t.Mark() == row.Proctime {
			alive[i] = true
		}
	}
	out.LateRowTable = s.Options[rel.LateRecords]
	if exprs == nil {
		return p.changes(p.add(out, alive, nil))
	}
	return p.changes(p.computed(out, s, exprs, alive))
}

// computed puts computed columns into a scan: its columns become those of the table and the computed ones behind them, and
// a calc puts them into the declared order if that is another one.
func (p *planner) computed(out *rel.PScan, s *rel.Scan, exprs []rel.Expr, alive []bool) rel.Physical {
	in := s.Schema()
	n := in.Len()
	place := make([]int, len(exprs)) // of a declared column in the scan
	names, types := slices.Clone(in.Names), slices.Clone(in.Types)
	ordered := true
	for i, e := range exprs {
		if c := plain(e); c >= 0 && e.Type().Mark() == in.Types[c].Mark() {
			place[i] = c
		} else {
			place[i] = n + len(out.Computed)
			out.Computed = append(out.Computed, e)
			names, types = append(names, out.Out.Names[i]), append(types, e.Type())
		}
		ordered = ordered && place[i] == i
	}
	declared := out.Out
	for i := range exprs {
		types[place[i]] = declared.Types[i] // with the mark of the rowtime
		names[place[i]] = declared.Names[i]
	}
	live := make([]bool, len(names))
	for i, a := range alive {
		live[place[i]] = live[place[i]] || a
	}
	out.Base = rel.MakeBase(names, types, out.Pos)
	if out.Rowtime >= 0 {
		out.Rowtime = place[out.Rowtime]
		out.Watermark = rel.Remap(out.Watermark, func(i int) int { return place[i] })
	}
	scan := p.add(out, live, nil)
	if ordered && len(exprs) == len(names) {
		return scan
	}
	back := make([]rel.Expr, len(exprs))
	for i := range exprs {
		back[i] = rel.NewColumn(declared.Types[i], place[i], 0, declared.Names[i], out.Pos)
	}
	return p.calc(scan, nil, back, declared.Names, out.Pos)
}

func (p *planner) traits(t *catalog.Table, at rel.Place) (Traits, bool) {
	if p.opts.Table == nil {
		return Traits{Reads: catalog.Append, Writes: catalog.Retract, Lookup: true}, true
	}
	tr, err := p.opts.Table(t)
	if err != nil {
		if err.Source == nil {
			err.Source, err.Span = at.Source, at.Span
		}
		p.errs = append(p.errs, err)
		return tr, false
	}
	return tr, true
}

// calc filters and projects (exprs nil: to all columns); it goes into a calc below it where nothing would be evaluated twice.
func (p *planner) calc(in rel.Physical, cond rel.Expr, exprs []rel.Expr, names []string, at rel.Place) rel.Physical {
	if exprs == nil {
		s := in.Schema()
		names = s.Names
		for i := range s.Types {
			exprs = append(exprs, column(in, i))
		}
	}
	if below, ok := in.(*rel.PCalc); ok && p.mergeable(below, cond, exprs) {
		exprs = slices.Clone(exprs)
		for i := range exprs {
			exprs[i] = rel.Substitute(exprs[i], below.Exprs)
		}
		cond = conjunction(below.Cond, rel.Substitute(cond, below.Exprs))
		in = below.In[0]
	}
	if cond == nil && identity(exprs, in.Schema()) && slices.Equal(names, in.Schema().Names) {
		return in
	}
	types := make([]*row.Type, len(exprs))
	from := p.info[in]
	alive := make([]bool, len(exprs))
	var w *window
	if from.window != nil {
		w = &window{-1, -1, -1, from.window.spec, from.window.session}
	}
	for i, e := range exprs {
		types[i] = e.Type()
		c := plain(e)
		if c < 0 {
			if m, ok := e.(*rel.Marker); ok && m.Kind == rel.ProcTime {
				alive[i] = true
			}
			continue
		}
		alive[i] = from.alive[c] && e.Type().Mark() != row.NoMark
		if w != nil {
			w.take(from.window, c, i)
		}
	}
	if w != nil && w.start < 0 && w.end < 0 {
		w = nil
	}
	return p.changes(p.add(&rel.PCalc{Phys: phys(names, types, at, in), Cond: cond, Exprs: exprs}, alive, w))
}

// take notes that column from of a node with window w is column to of another.
func (w *window) take(from *window, c, to int) {
	if c == from.start && w.start < 0 {
		w.start = to
	}
	if c == from.end && w.end < 0 {
		w.end = to
	}
	if c == from.time && w.time < 0 {
		w.time = to
	}
}

func (p *planner) mergeable(below *rel.PCalc, cond rel.Expr, exprs []rel.Expr) bool {
	uses := make([]int, len(below.Exprs))
	count := func(e rel.Expr) {
		visit(e, func(x rel.Expr) {
			if c, ok := x.(*rel.Column); ok && c.Depth == 0 {
				uses[c.Index]++
			}
		})
	}
	for _, e := range exprs {
		count(e)
	}
	count(cond)
	for i, e := range below.Exprs {
		if uses[i] > 1 && !cheap(e) {
			return false
		}
	}
	return true
}

func (p *planner) project(n *rel.Project) rel.Physical {
	exprs := append([]rel.Expr{}, n.Exprs...) // not nil without columns
	if f, ok := n.Input.(*rel.Filter); ok {
		used := make([]bool, f.Schema().Len())
		for _, e := range n.Exprs {
			columns(e, used)
		}
		in := p.filter(f, used)
		if in == nil {
			return nil
		}
		return p.calc(in, nil, exprs, n.Schema().Names, n.At())
	}
	in := p.node(n.Input)
	if in == nil {
		return nil
	}
	return p.calc(in, nil, exprs, n.Schema().Names, n.At())
}

// filter plans a filter; used are the columns that are needed above it, nil = all.
func (p *planner) filter(n *rel.Filter, used []bool) rel.Physical {
	if out, ok := p.rank(n, used); ok {
		return out
	}
	in := p.node(n.Input)
	if in == nil {
		return nil
	}
	return p.calc(in, n.Cond, nil, nil, n.At())
}

func (p *planner) correlate(n *rel.Correlate) rel.Physical {
	in := p.node(n.Left)
	if in == nil {
		return nil
	}
	width := in.Schema().Len()
	out := &rel.PCorrelate{Phys: like(n, in), Outer: n.Kind == rel.Left}
	right := n.Right
	var conds []rel.Expr
	var exprs []rel.Expr // of a projection over the function's columns
	// Columns of depth 1 are those of the left side, of depth 0 those of the function.
	up := func(e rel.Expr) rel.Expr {
		return rel.MapExpr(e, func(x rel.Expr) rel.Expr {
			if c, ok := x.(*rel.Column); ok {
				if c.Depth == 0 {
					return rel.NewColumn(c.Typ, width+c.Index, 0, c.Name, c.At)
				}
				return rel.NewColumn(c.Typ, c.Index, c.Depth-1, c.Name, c.At)
			}
			return x
		})
	}
	for {
		switch r := right.(type) {
		case *rel.Filter:
			conds = append(conds, r.Cond)
			right = r.Input
			continue
		case *rel.Project:
			if exprs == nil {
				exprs = r.Exprs
			} else {
				for i := range exprs {
					exprs[i] = rel.Substitute(exprs[i], r.Exprs)
				}
			}
			for i := range conds {
				conds[i] = rel.Substitute(conds[i], r.Exprs)
			}
			right = r.Input
			continue
		case *rel.TableFunc:
			out.Func = outer(r.Call).(*rel.Call)
		case *rel.Unnest:
			for _, e := range r.Exprs {
				out.Unnest = append(out.Unnest, outer(e))
			}
			out.Ordinality = r.Ordinality
		default:
			p.fail(n.At(), "E3101", "a LATERAL query that reads columns of the row beside it is not supported here").
				WithNote("use a join, UNNEST or a table function in LATERAL TABLE(..)")
			return nil
		}
		break
	}
	for _, c := range conds {
		out.Cond = conjunction(out.Cond, up(c))
	}
	fs := right.Schema()
	ls := in.Schema()
	types := slices.Concat(ls.Types, fs.Types)
	if out.Outer {
		types = slices.Concat(ls.Types, nullable(fs.Types))
	}
	out.Base = rel.MakeBase(slices.Concat(ls.Names, fs.Names), types, n.At())
	alive := append(slices.Clone(p.info[in].alive), make([]bool, fs.Len())...)
	c := p.changes(p.add(out, alive, p.info[in].window))
	if exprs == nil {
		return c
	}
	all := make([]rel.Expr, 0, n.Schema().Len())
	for i := range width {
		all = append(all, column(c, i))
	}
	for _, e := range exprs {
		all = append(all, up(e))
	}
	return p.calc(c, nil, all, n.Schema().Names, n.At())
}

// outer takes columns of depth 1 as those of the input.
func outer(e rel.Expr) rel.Expr {
	return rel.MapExpr(e, func(x rel.Expr) rel.Expr {
		if c, ok := x.(*rel.Column); ok && c.Depth > 0 {
			return rel.NewColumn(c.Typ, c.Index, c.Depth-1, c.Name, c.At)
		}
		return x
	})
}

func (p *planner) setOp(n *rel.SetOp) rel.Physical {
	var in []rel.Physical
	for _, c := range n.Inputs {
		i := p.node(c)
		if i == nil {
			return nil
		}
		in = append(in, i)
	}
	if n.Kind == rel.Union {
		alive := slices.Clone(p.info[in[0]].alive)
		u := p.changes(p.add(&rel.PUnion{Phys: like(n, in...)}, alive, nil))
		if n.All {
			return u
		}
		all := make([]int, n.Schema().Len())
		for i := range all {
			all[i] = i
		}
		return p.changes(p.add(&rel.PGroupAgg{Phys: like(n, u), Groups: all, Retracts: retracts(u), TTL: p.ttl(nil)}, nil, nil))
	}
	if len(in) != 2 {
		p.fail(n.At(), "E3001", "this cannot be planned: %s of %d inputs", n, len(in))
		return nil
	}
	return p.changes(p.add(&rel.PSetCount{Phys: like(n, in...), Kind: n.Kind, All: n.All, TTL: p.ttl(nil)}, nil, nil))
}

// retracts says whether a node withdraws rows.
func retracts(n rel.Physical) bool { return n.Common().Kinds&^rel.Inserts != 0 }
