package plan

import (
	"slices"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
)

// rank recognises WHERE rownum <= n above ROW_NUMBER() OVER (..): Top-N, deduplication, and both in windows. used are the
// columns of the filter that are needed above it, nil = all.
func (p *planner) rank(n *rel.Filter, used []bool) (rel.Physical, bool) {
	// The filter's columns in terms of those of the OVER, through projections of plain columns.
	s := n.Schema()
	exprs := make([]rel.Expr, s.Len())
	for i := range exprs {
		exprs[i] = column(n, i)
	}
	below := n.Input
	for {
		pr, ok := below.(*rel.Project)
		if !ok {
			break
		}
		for i := range exprs {
			exprs[i] = rel.Substitute(exprs[i], pr.Exprs)
		}
		below = pr.Input
	}
	over, ok := below.(*rel.Over)
	if !ok || len(over.Calls) != 1 {
		return nil, false
	}
	call := over.Calls[0]
	rankCol := over.Input.Schema().Len()
	cond := rel.Substitute(n.Cond, exprs)
	from, to, toColumn, rest, ok := rankRange(cond, rankCol)
	if !ok || call.Func.Name != "ROW_NUMBER" {
		return nil, false
	}
	in := p.node(over.Input)
	if in == nil {
		return nil, true
	}
	needed := func(e rel.Expr) bool { return reads(e, func(c int) bool { return c == rankCol }) }
	withRank := false
	for i, e := range exprs {
		if (used == nil || used[i]) && needed(e) {
			withRank = true
		}
	}
	for _, r := range rest {
		withRank = withRank || needed(r)
	}
	out := p.rankNode(over, in, from, to, toColumn, withRank)
	if out == nil {
		return nil, true
	}
	// Without the rank its column is NULL for whoever asks: nobody does.
	if !withRank {
		for i, e := range exprs {
			if needed(e) {
				exprs[i] = rel.NewCast(e.Type().Nullable(true), null(e.Type(), n.At()), false, true, n.At())
			}
		}
	}
	return p.calc(out, conjunction(rest...), exprs, s.Names, n.At()), true
}

// rankNode makes the operator: window rank where the partition has the columns of a window, deduplication where the first or
// last row by time is asked for, else Top-N.
func (p *planner) rankNode(over *rel.Over, in rel.Physical, from, to int64, toColumn int, withRank bool) rel.Physical {
	s := in.Schema()
	names, types := s.Names, s.Types
	alive := slices.Clone(p.info[in].alive)
	if withRank {
		c := over.Calls[0]
		names, types = append(slices.Clone(names), c.Name), append(slices.Clone(types), c.Type)
		alive = append(alive, false)
	}
	base := phys(names, types, over.At(), in)
	if w := p.info[in].window; w != nil && slices.Contains(over.Partition, w.start) && slices.Contains(over.Partition, w.end) && toColumn < 0 {
		var rest []int
		for _, c := range over.Partition {
			if c != w.start && c != w.end && c != w.time {
				rest = append(rest, c)
			}
		}
		return p.changes(p.add(&rel.PWindowRank{Phys: base, Start: w.start, End: w.end, Spec: w.spec, Partition: rest, Order: over.Order, From: from, To: to, Rank: withRank}, alive, w))
	}
	if from == 1 && to == 1 && toColumn < 0 && !withRank && len(over.Order) == 1 && !retracts(in) {
		k := over.Order[0]
		if mark := types[k.Column].Mark(); mark != row.NoMark && p.info[in].alive[k.Column] {
			return p.changes(p.add(&rel.PDedup{Phys: base, Key: over.Partition, Time: k.Column, Last: k.Desc, Proc: mark == row.Proctime, TTL: p.ttl(nil)}, alive, p.info[in].window))
		}
	}
	top := &rel.PTopN{Phys: base, Partition: over.Partition, Order: over.Order, From: from, To: to, ToColumn: toColumn, Rank: withRank, Retracts: retracts(in), TTL: p.ttl(nil)}
	return p.changes(p.add(top, alive, p.info[in].window))
}

// rankRange reads the bounds of a rank out of a condition; rest is what does not speak of it.
func rankRange(cond rel.Expr, rank int) (from, to int64, toColumn int, rest []rel.Expr, ok bool) {
	from, to, toColumn = 1, -1, -1
	bounded := false
	for _, c := range conjuncts(cond) {
		call, isCall := c.(*rel.Call)
		if !isCall || len(call.Args) != 2 {
			rest = append(rest, c)
			continue
		}
		op := call.Func.Name
		x, y := call.Args[0], call.Args[1]
		if stripped(y) == rank {
			x, y, op = y, x, mirrored(op)
		}
		if stripped(x) != rank {
			rest = append(rest, c)
			continue
		}
		v, constant := integer(y)
		col := stripped(y)
		if col == rank {
			col = -1
		}
		switch {
		case constant && op == "<=":
			to, bounded = least(to, v), true
		case constant && op == "<":
			to, bounded = least(to, v-1), true
		case constant && op == "=":
			from, to, bounded = max(from, v), least(to, v), true
		case constant && op == ">=":
			from = max(from, v)
		case constant && op == ">":
			from = max(from, v+1)
		case op == "<=" && col >= 0 && toColumn < 0:
			toColumn, bounded = col, true
		case op == "=" && col >= 0 && toColumn < 0:
			toColumn, bounded = col, true
			rest = append(rest, c)
		default:
			rest = append(rest, c)
		}
	}
	return from, to, toColumn, rest, bounded
}

func least(a, b int64) int64 {
	if a < 0 {
		return b
	}
	return min(a, b)
}

// stripped is the column that e is, whatever casts are around it; -1 if none.
func stripped(e rel.Expr) int {
	if c, ok := e.(*rel.Cast); ok && c.Implicit {
		return stripped(c.X)
	}
	return plain(e)
}

// integer is the value of an integer literal, perhaps below implicit casts.
func integer(e rel.Expr) (int64, bool) {
	switch e := e.(type) {
	case *rel.Cast:
		if e.Implicit {
			return integer(e.X)
		}
	case *rel.Literal:
		if e.Typ.Kind().Integer() && !e.Null {
			return int64(e.X), true
		}
	}
	return 0, false
}

func mirrored(op string) string {
	switch op {
	case "<":
		return ">"
	case "<=":
		return ">="
	case ">":
		return "<"
	case ">=":
		return "<="
	}
	return op
}

func null(t *row.Type, at rel.Place) rel.Expr {
	return rel.NewLiteral(t.Nullable(true), fn.Const{Null: true}, "NULL", at)
}

// over plans window functions that are no Top-N.
func (p *planner) over(n *rel.Over) rel.Physical {
	in := p.node(n.Input)
	if in == nil {
		return nil
	}
	alive := append(slices.Clone(p.info[in].alive), make([]bool, len(n.Calls))...)
	if _, ok := n.Input.(*rel.Over); ok {
		p.fail(n.At(), "E3305", "OVER clauses of one SELECT must have the same PARTITION BY and ORDER BY").
			WithNote("compute one of them in a query in FROM (..)")
		return nil
	}
	if len(n.Order) == 0 {
		p.fail(n.At(), "E3301", "OVER without ORDER BY: the order of a stream is that of a time attribute").
			WithNote("add ORDER BY a column with a watermark, or PROCTIME()")
		return nil
	}
	k := n.Order[0]
	t := in.Schema().Types[k.Column]
	if t.Mark() != row.NoMark && p.info[in].alive[k.Column] {
		if k.Desc {
			p.fail(n.At(), "E3302", "OVER (ORDER BY %s DESC): a stream can be ordered by time in ascending order only", in.Schema().Names[k.Column])
			return nil
		}
		o := &rel.POverTime{Phys: like(n, in), Partition: n.Partition, Order: n.Order, Frame: n.Frame, Calls: n.Calls, Proc: t.Mark() == row.Proctime}
		return p.changes(p.add(o, alive, p.info[in].window))
	}
	for _, c := range n.Calls {
		switch c.Func.Name {
		case "RANK", "DENSE_RANK", "LEAD", "LAG", "NTILE", "PERCENT_RANK", "CUME_DIST", "ROW_NUMBER":
			p.fail(c.At, "E3303", "%s over %q, which is no time attribute, is possible only as Top-N", c.Func.Name, in.Schema().Names[k.Column]).
				WithNote("use ROW_NUMBER() and keep its first rows: WHERE rownum <= 10")
			return nil
		}
	}
	if !n.Frame.Rows && n.Frame.From >= 0 {
		p.fail(n.At(), "E3306", "RANGE back by an interval over %q, which is no time attribute", in.Schema().Names[k.Column]).
			WithNote("use ROWS BETWEEN n PRECEDING, or order by a column with a watermark")
		return nil
	}
	o := &rel.POverColumn{Phys: like(n, in), Partition: n.Partition, Order: n.Order, Frame: n.Frame, Calls: n.Calls, Retracts: retracts(in), TTL: p.ttl(nil)}
	return p.changes(p.add(o, alive, nil))
}

func (p *planner) sort(n *rel.Sort) rel.Physical {
	in := p.node(n.Input)
	if in == nil {
		return nil
	}
	k := n.Keys[0]
	t := in.Schema().Types[k.Column]
	if t.Mark() == row.NoMark || k.Desc || !p.info[in].alive[k.Column] {
		p.fail(n.At(), "E3304", "ORDER BY %s: a stream without end can be sorted by a time attribute, ascending, only", in.Schema().Names[k.Column]).
			WithNote("add LIMIT for the first rows of a changing table (Top-N), or sort where the result is read")
		return nil
	}
	return p.changes(p.add(&rel.PTimeSort{Phys: like(n, in), Keys: n.Keys, Proc: t.Mark() == row.Proctime}, slices.Clone(p.info[in].alive), p.info[in].window))
}

func (p *planner) limit(n *rel.Limit) rel.Physical {
	if s, ok := n.Input.(*rel.Sort); ok && n.Fetch >= 0 {
		in := p.node(s.Input)
		if in == nil {
			return nil
		}
		top := &rel.PTopN{Phys: like(n, in), Order: s.Keys, From: n.Offset + 1, To: n.Offset + n.Fetch, ToColumn: -1, Retracts: retracts(in), TTL: p.ttl(nil)}
		return p.changes(p.add(top, slices.Clone(p.info[in].alive), nil))
	}
	in := p.node(n.Input)
	if in == nil {
		return nil
	}
	return p.changes(p.add(&rel.PLimit{Phys: like(n, in), Offset: n.Offset, Fetch: n.Fetch, Retracts: retracts(in)}, slices.Clone(p.info[in].alive), nil))
}

func (p *planner) match(n *rel.Match) rel.Physical {
	in := p.node(n.Input)
	if in == nil {
		return nil
	}
	proc := false
	if len(n.Order) > 0 {
		k := n.Order[0]
		t := in.Schema().Types[k.Column]
		if t.Mark() == row.NoMark || !p.info[in].alive[k.Column] || k.Desc {
			p.fail(n.At(), "E3401", "MATCH_RECOGNIZE wants ORDER BY a time attribute, ascending, first; %q is none", in.Schema().Names[k.Column])
			return nil
		}
		proc = t.Mark() == row.Proctime
	}
	m := &rel.PMatch{Phys: like(n, in), Partition: n.Partition, Order: n.Order, Pattern: n.Pattern, Variables: n.Variables, Subsets: n.Subsets, Defines: n.Defines, Measures: n.Measures,
		Skip: n.Skip, SkipTo: n.SkipTo, Within: n.Within, Proc: proc}
	alive := make([]bool, n.Schema().Len())
	for i, t := range n.Schema().Types {
		alive[i] = i >= len(n.Partition) && t.Mark() != row.NoMark
	}
	return p.changes(p.add(m, alive, nil))
}
