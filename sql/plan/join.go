package plan

import (
	"slices"
	"time"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
)

// equi is a pair of equal columns, each of its own side.
type equi struct{ left, right int }

// sides is a join condition taken apart: equal columns, and the rest over both sides.
type sides struct {
	keys []equi
	rest []rel.Expr
}

// join plans a join of two inputs.
func (p *planner) join(n *rel.Join) rel.Physical {
	if n.AsOf != nil {
		return p.asOf(n)
	}
	left := p.node(n.Left)
	right := p.node(n.Right)
	if left == nil || right == nil {
		return nil
	}
	left, right, on := p.split(left, right, n.Cond)
	if w := p.windowJoin(n, left, right, on); w != nil {
		return p.trim(n, w, left, right)
	}
	if j := p.intervalJoin(n, left, right, on); j != nil {
		return p.trim(n, j, left, right)
	}
	j := &rel.PJoin{Phys: p.joined(n, left, right), Kind: n.Kind, Cond: conjunction(on.rest...)}
	for _, k := range on.keys {
		j.Keys[0], j.Keys[1] = append(j.Keys[0], k.left), append(j.Keys[1], k.right)
	}
	j.TTL = [2]time.Duration{p.ttl(n.TTL[0]), p.ttl(n.TTL[1])}
	for i, in := range []rel.Physical{left, right} {
		for _, u := range in.Common().UpsertKeys {
			if subset(u, j.Keys[i]) {
				j.Unique[i] = true
			}
			if j.UniqueKey[i] == nil {
				j.UniqueKey[i] = u
			}
		}
	}
	// No time attribute lives on behind a regular join.
	return p.trim(n, p.changes(p.add(j, nil, nil)), left, right)
}

// joined is the Phys of a join of two physical inputs.
func (p *planner) joined(n *rel.Join, left, right rel.Physical) rel.Phys {
	l, r := left.Schema(), right.Schema()
	lt, rt := l.Types, r.Types
	switch n.Kind {
	case rel.Semi, rel.Anti, rel.NullAwareAnti:
		return phys(l.Names, lt, n.At(), left, right)
	case rel.Left, rel.Single:
		rt = nullable(rt)
	case rel.Right:
		lt = nullable(lt)
	case rel.Full:
		lt, rt = nullable(lt), nullable(rt)
	}
	return phys(slices.Concat(l.Names, r.Names), slices.Concat(lt, rt), n.At(), left, right)
}

// trim drops columns that split added for keys.
func (p *planner) trim(n *rel.Join, j, left, right rel.Physical) rel.Physical {
	if j == nil {
		return nil
	}
	want := n.Schema().Len()
	if j.Schema().Len() == want {
		return j
	}
	lw := n.Left.Schema().Len()
	exprs := make([]rel.Expr, 0, want)
	for i := range want {
		at := i
		if i >= lw {
			at = left.Schema().Len() + i - lw
		}
		exprs = append(exprs, column(j, at))
	}
	return p.calc(j, nil, exprs, n.Schema().Names, n.At())
}

// split takes a join condition apart. Equal expressions that are no columns become columns of their side.
func (p *planner) split(left, right rel.Physical, cond rel.Expr) (l, r rel.Physical, out sides) {
	lw := left.Schema().Len()
	ofLeft := func(e rel.Expr) bool { return !reads(e, func(c int) bool { return c >= lw }) }
	ofRight := func(e rel.Expr) bool { return !reads(e, func(c int) bool { return c < lw }) }
	some := func(e rel.Expr) bool { return reads(e, func(int) bool { return true }) }
	type pair struct{ l, r rel.Expr } // each over its own side
	var pairs []pair
	toRight := func(c int) int { return c - lw }
	for _, c := range conjuncts(cond) {
		call, ok := c.(*rel.Call)
		if ok && call.Func.Name == "=" {
			x, y := call.Args[0], call.Args[1]
			if some(x) && some(y) {
				if ofLeft(x) && ofRight(y) {
					pairs = append(pairs, pair{x, rel.Remap(y, toRight)})
					continue
				}
				if ofLeft(y) && ofRight(x) {
					pairs = append(pairs, pair{y, rel.Remap(x, toRight)})
					continue
				}
			}
		}
		out.rest = append(out.rest, c)
	}
	if len(pairs) == 0 {
		// Without equal columns all rows lie under one key. Of columns that may be NULL both, the key has a value for NULL, and the
		// condition stays.
		for _, c := range out.rest {
			if call, ok := c.(*rel.Call); ok && call.Func.Name == "IS NOT DISTINCT FROM" {
				x, y := call.Args[0], call.Args[1]
				if plain(x) >= lw {
					x, y = y, x
				}
				if a, b := plain(x), plain(y); a >= 0 && a < lw && b >= lw && x.Type().Plain() == y.Type().Plain() && !x.Type().Kind().Nested() {
					pairs = append(pairs, pair{notNullOf(x), rel.Remap(notNullOf(y), toRight)})
				}
			}
		}
	}
	key := func(in rel.Physical, e rel.Expr, more *[]rel.Expr) int {
		if c := plain(e); c >= 0 {
			return c
		}
		for i, m := range *more {
			if Canonical(m) == Canonical(e) {
				return in.Schema().Len() + i
			}
		}
		*more = append(*more, e)
		return in.Schema().Len() + len(*more) - 1
	}
	var moreL, moreR []rel.Expr
	for _, q := range pairs {
		k := equi{key(left, q.l, &moreL), key(right, q.r, &moreR)}
		if !slices.Contains(out.keys, k) {
			out.keys = append(out.keys, k)
		}
	}
	l, r = p.widen(left, moreL), p.widen(right, moreR)
	if add := len(moreL); add > 0 {
		for i := range out.rest {
			out.rest[i] = rel.Remap(out.rest[i], func(c int) int {
				if c >= lw {
					return c + add
				}
				return c
			})
		}
	}
	return l, r, out
}

// notNullOf is a value with zero or the empty text in place of NULL.
func notNullOf(e rel.Expr) rel.Expr {
	if !e.Type().IsNullable() {
		return e
	}
	t := e.Type().NotNull()
	zero := fn.Const{}
	if k := t.Kind(); k.Text() || k.Bytes() {
		zero.B = []byte{}
	}
	return rel.NewCall(t, builtin("COALESCE"), []rel.Expr{e, rel.NewLiteral(t, zero, "0", e.Where())}, e.Where())
}

// widen adds columns to an input.
func (p *planner) widen(in rel.Physical, more []rel.Expr) rel.Physical {
	if len(more) == 0 {
		return in
	}
	s := in.Schema()
	var exprs []rel.Expr
	for i := range s.Types {
		exprs = append(exprs, column(in, i))
	}
	names := slices.Clone(s.Names)
	for range more {
		names = append(names, "$key")
	}
	return p.calc(in, nil, append(exprs, more...), names, in.At())
}

func subset(a, b []int) bool {
	for _, x := range a {
		if !slices.Contains(b, x) {
			return false
		}
	}
	return true
}

// windowJoin is a join of rows of equal windows: start and end of both are equal.
func (p *planner) windowJoin(n *rel.Join, left, right rel.Physical, on sides) rel.Physical {
	lw, rw := p.info[left].window, p.info[right].window
	if lw == nil || rw == nil || n.Kind == rel.NullAwareAnti || n.Kind == rel.Single {
		return nil
	}
	start, end := slices.Contains(on.keys, equi{lw.start, rw.start}), slices.Contains(on.keys, equi{lw.end, rw.end})
	if lw.start < 0 || lw.end < 0 || rw.start < 0 || rw.end < 0 || !start || !end {
		return nil
	}
	if retracts(left) || retracts(right) {
		return nil
	}
	j := &rel.PWindowJoin{Phys: p.joined(n, left, right), Kind: n.Kind, Spec: lw.spec, Start: [2]int{lw.start, rw.start}, End: [2]int{lw.end, rw.end}, Cond: conjunction(on.rest...)}
	for _, k := range on.keys {
		if k.left != lw.start && k.left != lw.end && k.left != lw.time {
			j.Keys[0], j.Keys[1] = append(j.Keys[0], k.left), append(j.Keys[1], k.right)
		}
	}
	alive := slices.Clone(p.info[left].alive)
	for i := range alive {
		alive[i] = i == lw.time
	}
	w := &window{start: lw.start, end: lw.end, time: lw.time, spec: lw.spec, session: lw.session}
	off := left.Schema().Len()
	if j.Schema().Len() > off {
		for i := range right.Schema().Types {
			alive = append(alive, i == rw.time)
		}
		if n.Kind == rel.Right {
			w = &window{start: shift(rw.start, off), end: shift(rw.end, off), time: shift(rw.time, off), spec: rw.spec, session: rw.session}
		}
	}
	if n.Kind == rel.Full {
		w = nil
	}
	return p.changes(p.add(j, alive, w))
}

func shift(c, by int) int {
	if c < 0 {
		return c
	}
	return c + by
}

// intervalJoin is a join with bounds on the difference of two living time attributes.
func (p *planner) intervalJoin(n *rel.Join, left, right rel.Physical, on sides) rel.Physical {
	switch n.Kind {
	case rel.Inner, rel.Left, rel.Right, rel.Full:
	default:
		return nil
	}
	lw := left.Schema().Len()
	timeOf := func(c int) bool {
		if c < lw {
			return p.info[left].alive[c]
		}
		return p.info[right].alive[c-lw]
	}
	const none = int64(-1) << 62
	lower, upper := none, -none // lower <= left time - right time <= upper
	lt, rt := -1, -1
	var rest []rel.Expr
	// Equal times are an interval of no length: they are among the keys.
	var keys []equi
	for _, k := range on.keys {
		if lt < 0 && timeOf(k.left) && timeOf(lw+k.right) && sameClock(left, right, k.left, k.right) {
			lt, rt, lower, upper = k.left, k.right, 0, 0
			continue
		}
		keys = append(keys, k)
	}
	for _, c := range on.rest {
		b, ok := timeBound(c)
		if !ok || !timeOf(b.x) || !timeOf(b.y) || (b.x < lw) == (b.y < lw) {
			rest = append(rest, c)
			continue
		}
		// x - y <= d, as left - right.
		l, r := b.x, b.y-lw
		low, high := none, b.d
		if b.x >= lw {
			l, r = b.y, b.x-lw
			low, high = -b.d, -none
		}
		if lt >= 0 && (l != lt || r != rt) || !sameClock(left, right, l, r) {
			rest = append(rest, c)
			continue
		}
		lt, rt = l, r
		lower, upper = max(lower, low), min(upper, high)
	}
	if lt < 0 || lower == none || upper == -none {
		return nil
	}
	j := &rel.PIntervalJoin{Phys: p.joined(n, left, right), Kind: n.Kind, Time: [2]int{lt, rt}, Lower: lower, Upper: upper, Cond: conjunction(rest...),
		Proc: left.Schema().Types[lt].Mark() == row.Proctime}
	for _, k := range keys {
		j.Keys[0], j.Keys[1] = append(j.Keys[0], k.left), append(j.Keys[1], k.right)
	}
	alive := slices.Concat(p.info[left].alive, p.info[right].alive)
	return p.changes(p.add(j, alive, nil))
}

func sameClock(left, right rel.Physical, l, r int) bool {
	return left.Schema().Types[l].Mark() == right.Schema().Types[r].Mark()
}

// bound is x - y <= d ms, of two columns.
type bound struct {
	x, y int
	d    int64
}

// timeBound reads a comparison of two time columns with constant intervals added.
func timeBound(e rel.Expr) (b bound, ok bool) {
	call, isCall := e.(*rel.Call)
	if !isCall || len(call.Args) != 2 {
		return b, false
	}
	x, dx, ok1 := timeAndOffset(call.Args[0])
	y, dy, ok2 := timeAndOffset(call.Args[1])
	if !ok1 || !ok2 {
		return b, false
	}
	// x + dx op y + dy
	switch call.Func.Name {
	case "<=":
		return bound{x, y, dy - dx}, true
	case "<":
		return bound{x, y, dy - dx - 1}, true
	case ">=":
		return bound{y, x, dx - dy}, true
	case ">":
		return bound{y, x, dx - dy - 1}, true
	}
	return b, false
}

// timeAndOffset reads a column plus a constant interval of ms.
func timeAndOffset(e rel.Expr) (col int, offset int64, ok bool) {
	if c := stripped(e); c >= 0 {
		return c, 0, true
	}
	switch e := e.(type) {
	case *rel.Cast:
		if e.Implicit {
			return timeAndOffset(e.X)
		}
	case *rel.Call:
		if len(e.Args) == 2 && (e.Func.Name == "+" || e.Func.Name == "-") {
			x, y := e.Args[0], e.Args[1]
			if e.Func.Name == "+" {
				if _, isInterval := interval(x); isInterval {
					x, y = y, x
				}
			}
			c, off, ok := timeAndOffset(x)
			d, isInterval := interval(y)
			if !ok || !isInterval {
				return 0, 0, false
			}
			if e.Func.Name == "-" {
				d = -d
			}
			return c, off + d, true
		}
	}
	return 0, 0, false
}

// interval is the ms of a constant day-time interval.
func interval(e rel.Expr) (int64, bool) {
	switch e := e.(type) {
	case *rel.Literal:
		if e.Typ.Kind() == row.KindIntervalDay && !e.Null {
			return int64(e.X), true
		}
	case *rel.Call:
		if e.Func.Name == "NEGATE" {
			v, ok := interval(e.Args[0])
			return -v, ok
		}
		if e.Func.Name == "*" {
			if v, ok := interval(e.Args[0]); ok {
				n, ok := integer(e.Args[1])
				return v * n, ok
			}
			if v, ok := interval(e.Args[1]); ok {
				n, ok := integer(e.Args[0])
				return v * n, ok
			}
		}
	case *rel.Cast:
		if e.Implicit {
			return interval(e.X)
		}
	}
	return 0, false
}

// asOf plans FOR SYSTEM_TIME AS OF: a lookup at processing time, or the version of a table at the row's event time.
func (p *planner) asOf(n *rel.Join) rel.Physical {
	if n.Kind != rel.Inner && n.Kind != rel.Left {
		p.fail(n.At(), "E3501", "FOR SYSTEM_TIME AS OF allows JOIN and LEFT JOIN, not a %s join", n.Kind)
		return nil
	}
	left := p.node(n.Left)
	if left == nil {
		return nil
	}
	at := plain(n.AsOf)
	mark := n.AsOf.Type().Mark()
	if mark == row.NoMark || at >= 0 && !p.info[left].alive[at] {
		p.fail(n.AsOf.Where(), "E3502", "FOR SYSTEM_TIME AS OF wants a time attribute of the left table")
		return nil
	}
	if mark == row.Proctime {
		return p.lookup(n, left)
	}
	right := p.node(n.Right)
	if right == nil {
		return nil
	}
	rt := slices.IndexFunc(p.info[right].alive, func(a bool) bool { return a })
	if rt < 0 || right.Schema().Types[rt].Mark() != row.Rowtime {
		p.fail(n.At(), "E3503", "the table of FOR SYSTEM_TIME AS OF an event time needs a watermark: its versions are ordered by it")
		return nil
	}
	if norm, ok := right.(*rel.PNormalize); ok {
		norm.Time = rt // a version ends when it is deleted
	}
	l, r, on := p.split(left, right, n.Cond)
	if len(on.keys) == 0 {
		p.fail(n.At(), "E3504", "FOR SYSTEM_TIME AS OF needs equal keys: ON left.key = table.key")
		return nil
	}
	keyed := false
	var rk []int
	for _, k := range on.keys {
		rk = append(rk, k.right)
	}
	for _, u := range r.Common().UpsertKeys {
		keyed = keyed || subset(u, rk)
	}
	if !keyed {
		p.fail(n.At(), "E3505", "the table of FOR SYSTEM_TIME AS OF an event time needs a PRIMARY KEY, and ON must have all of its columns").
			WithNote("a versioned table is one with a primary key and a watermark, or a view that keeps the last row of a key (deduplication)")
		return nil
	}
	j := &rel.PTemporalJoin{Phys: p.joined(n, l, r), Kind: n.Kind, Time: [2]int{at, rt}, Cond: conjunction(on.rest...)}
	for _, k := range on.keys {
		j.Keys[0], j.Keys[1] = append(j.Keys[0], k.left), append(j.Keys[1], k.right)
	}
	alive := append(slices.Clone(p.info[l].alive), make([]bool, r.Schema().Len())...)
	return p.trim(n, p.changes(p.add(j, alive, p.info[l].window)), l, r)
}

// lookup plans a join with a table that is asked by key. What stands between the table and the join (computed columns,
// filters of a view) is done after the answer.
func (p *planner) lookup(n *rel.Join, left rel.Physical) rel.Physical {
	right := n.Right
	var conds []rel.Expr
	var exprs []rel.Expr
	for {
		switch r := right.(type) {
		case *rel.Watermark:
			right = r.Input
			continue
		case *rel.Project:
			if exprs == nil {
				exprs = r.Exprs
			} else {
				exprs = slices.Clone(exprs)
				for i := range exprs {
					exprs[i] = rel.Substitute(exprs[i], r.Exprs)
				}
			}
			for i := range conds {
				conds[i] = rel.Substitute(conds[i], r.Exprs)
			}
			right = r.Input
			continue
		case *rel.Filter:
			conds = append(conds, r.Cond)
			right = r.Input
			continue
		}
		break
	}
	s, ok := right.(*rel.Scan)
	if !ok {
		p.fail(n.At(), "E3506", "FOR SYSTEM_TIME AS OF a processing time wants a table on the right side, not a query")
		return nil
	}
	tr, ok := p.traits(s.Table, s.At())
	if !ok {
		return nil
	}
	if !tr.Lookup {
		p.fail(n.At(), "E3507", "table %s cannot be asked by key: its connector has no lookup", s.Table.Path).
			WithNote("use a regular join, or FOR SYSTEM_TIME AS OF an event time with a versioned table")
		return nil
	}
	lw := left.Schema().Len()
	under := func(e rel.Expr) rel.Expr { // the columns of the join's right side in terms of the scan's
		if exprs == nil {
			return e
		}
		return rel.MapExpr(e, func(x rel.Expr) rel.Expr {
			if c, ok := x.(*rel.Column); ok && c.Depth == 0 && c.Index >= lw {
				return rel.Remap(exprs[c.Index-lw], func(i int) int { return i + lw })
			}
			return x
		})
	}
	j := &rel.PLookupJoin{Kind: n.Kind, Table: s.Table, Columns: s.Columns, Options: s.Options}
	j.Hint = n.Lookup
	var rest []rel.Expr
	for _, c := range conds {
		rest = append(rest, rel.Remap(c, func(i int) int { return i + lw }))
	}
	for _, c := range conjuncts(under(n.Cond)) {
		if call, ok := c.(*rel.Call); ok && call.Func.Name == "=" {
			x, y := call.Args[0], call.Args[1]
			if stripped(x) >= lw {
				x, y = y, x
			}
			if k := plain(y); k >= lw && !reads(x, func(i int) bool { return i >= lw }) {
				j.Keys = append(j.Keys, rel.LookupKey{Column: s.Columns[k-lw], Value: x})
				continue
			}
		}
		rest = append(rest, c)
	}
	if len(j.Keys) == 0 {
		p.fail(n.At(), "E3508", "a lookup join needs a column of %s that equals something of the left side", s.Table.Path)
		return nil
	}
	j.Cond = conjunction(rest...)
	ls, rs := left.Schema(), s.Schema()
	rt := rs.Types
	if n.Kind == rel.Left {
		rt = nullable(rt)
	}
	j.Phys = phys(slices.Concat(ls.Names, rs.Names), slices.Concat(ls.Types, rt), n.At(), left)
	alive := append(slices.Clone(p.info[left].alive), make([]bool, rs.Len())...)
	out := p.changes(p.add(j, alive, p.info[left].window))
	if exprs == nil {
		return out
	}
	var all []rel.Expr
	for i := range lw {
		all = append(all, column(out, i))
	}
	for _, e := range exprs {
		all = append(all, rel.Remap(e, func(i int) int { return i + lw }))
	}
	return p.calc(out, nil, all, n.Schema().Names, n.At())
}
