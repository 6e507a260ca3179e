package exec

import (
	"fmt"
	"math"
	"slices"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/expr"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
	"github.com/millrace-stream/millrace/statestore"
)

// overCalls computes the calls of an OVER for rows in order: aggregates over a frame, and functions of the position.
type overCalls struct {
	in, out *row.Layout
	frame   rel.Frame
	groups  *groups // the aggregates
	agg     []int   // output columns of the aggregates
	place   []func(p *position)
	order   *row.KeyEncoder
	back    int // rows before the current one that LAG needs
	row     *row.Row
	scratch *row.Row // of the aggregates' columns
	aggOut  *row.Layout
}

// position is where a row stands in its partition.
type position struct {
	in     *row.Row
	out    *row.Row
	number int64 // from 1
	rank   int64 // of the first row with an equal order key
	dense  int64
	at     int
	before func(i int) *row.Row // row i of those at hand, of which this is number at
}

// lag is the row n before; nil = none is at hand.
func (p *position) lag(n int) *row.Row {
	if p.at < n {
		return nil
	}
	return p.before(p.at - n)
}

func newOverCalls(c Context, in, out *row.Layout, calls []rel.AggCall, frame rel.Frame, order []rel.SortKey) (*overCalls, error) {
	o := &overCalls{in: in, out: out, frame: frame, row: out.New(), order: row.NewSortEncoder(in, sortColumns(order)...)}
	var aggs []rel.AggCall
	var types []*row.Type
	for i := range calls {
		call := &calls[i]
		col := in.Len() + i
		if call.Func.Agg == nil || !call.Func.Agg.OverOnly {
			o.agg = append(o.agg, col)
			aggs, types = append(aggs, *call), append(types, out.Type(col))
			continue
		}
		f, err := o.positional(c.Env(), call, col)
		if err != nil {
			return nil, err
		}
		o.place = append(o.place, f)
	}
	o.aggOut = row.NewLayout(types...)
	o.scratch = o.aggOut.New()
	var err error
	o.groups, err = newGroups(memoryOnly{c}, in, aggs, false, tailKeys(""), o.aggOut, 0, 0)
	return o, err
}

// positional makes a function of the position.
func (o *overCalls) positional(env *fn.Env, call *rel.AggCall, col int) (func(p *position), error) {
	w := o.out.Place(col).Index
	number := func(f func(p *position) int64) func(p *position) {
		return func(p *position) {
			p.out.ClearNull(col)
			p.out.SetInt64(w, f(p))
		}
	}
	switch call.Func.Name {
	case "ROW_NUMBER":
		return number(func(p *position) int64 { return p.number }), nil
	case "RANK":
		return number(func(p *position) int64 { return p.rank }), nil
	case "DENSE_RANK":
		return number(func(p *position) int64 { return p.dense }), nil
	case "LAG":
		n := 1
		if len(call.Args) > 1 {
			l, ok := call.Args[1].(*rel.Literal)
			if !ok || l.Null || int64(l.X) < 0 {
				return nil, fmt.Errorf("LAG: the offset must be a number")
			}
			n = int(int64(l.X))
		}
		o.back = max(o.back, n)
		value, err := expr.Compile(env, o.in, call.Args[0])
		if err != nil {
			return nil, err
		}
		set := expr.Store(o.out, col, value, fn.Place{})
		other := func(out, _ *row.Row) { out.SetNull(col) }
		if len(call.Args) > 2 {
			def, err := expr.Compile(env, o.in, call.Args[2])
			if err != nil {
				return nil, err
			}
			other = expr.Store(o.out, col, def, fn.Place{})
		}
		return func(p *position) {
			if r := p.lag(n); r != nil {
				set(p.out, r)
				return
			}
			other(p.out, p.in)
		}, nil
	}
	return nil, fmt.Errorf("%s is not supported over a stream", call.Func.Name)
}

// fill makes the output row of a row: its columns, the aggregates of st, and what depends on the position.
func (o *overCalls) fill(r *row.Row, st fn.State, p *position) *row.Row {
	for i := range o.in.Len() {
		o.out.CopyColumn(o.row, i, o.in, r, i)
	}
	o.groups.result(o.scratch, st)
	for i, col := range o.agg {
		o.out.CopyColumn(o.row, col, o.aggOut, o.scratch, i)
	}
	p.in, p.out = r, o.row
	for _, f := range o.place {
		f(p)
	}
	return o.row
}

// wholeFrame gives an unbounded frame a bound that no row reaches if there are DISTINCT calls, which need all rows.
func wholeFrame(f rel.Frame, calls []rel.AggCall) rel.Frame {
	if f.From < 0 && slices.ContainsFunc(calls, func(c rel.AggCall) bool { return c.Distinct }) {
		f.From = math.MaxInt64
	}
	return f
}

// overTime is POverTime: OVER ordered by time. Rows come when the watermark passes their time, and stay as long as frames and
// LAG look at them.
type overTime struct {
	c     Context
	n     *rel.POverTime
	in    *row.Layout
	keys  *row.KeyEncoder
	calls *overCalls
	kept  *timedRows
	main  *valueState[fn.State]
	word  int
	key   []byte

	pool  []*row.Row // rows that are used again: the first used ones are at work
	used  int
	all   []placed
	frame fn.State
	pos   position
	// What step puts out: the rows of a key and time.
	g    statestore.Group
	k    string
	at   int64
	time int64 // of what is put out: at, or of processing time that of the row
	step func() error
}

// placed is a row with its key in kept, "" if it is not there.
type placed struct {
	id string
	r  *row.Row
}

// next is a row that lives until used is set back.
func (o *overTime) next() *row.Row {
	if o.used == len(o.pool) {
		o.pool = append(o.pool, o.in.New())
	}
	o.used++
	return o.pool[o.used-1]
}

// The words of the accumulator in front of those of the aggregates: rows so far is word 0 of theirs.
const (
	wordLast  = iota // the last time put out, plus one; 0 = none
	wordRank         // of the last row
	wordDense        //
	overWords
)

func newOverTime(n *rel.POverTime, c Context) (Operator, error) {
	in := rel.Layout(n.In[0])
	n = &rel.POverTime{Phys: n.Phys, Partition: n.Partition, Order: n.Order, Frame: wholeFrame(n.Frame, n.Calls), Calls: n.Calls, Proc: n.Proc}
	o := &overTime{c: c, n: n, in: in, keys: row.NewKeyEncoder(in, n.Partition...), word: in.Place(n.Order[0].Column).Index}
	o.step = o.rows
	o.pos.before = func(i int) *row.Row { return o.all[i].r }
	var err error
	if o.calls, err = newOverCalls(c, in, rel.Layout(n), n.Calls, n.Frame, n.Order); err != nil {
		return nil, err
	}
	if o.kept, err = newTimedRows(c, "rows", in, n.Partition, true); err != nil {
		return nil, err
	}
	a := o.calls.groups.agg
	o.main, err = openTable(c, "main", keysOf(o.keys, in, n.Partition), statestore.Codec[fn.State](accumulators{overWords + a.words, a.views, "over " + a.schema}), 0)
	return o, err
}

// Start is of Starter.
func (o *overTime) Start() error {
	if at, ok := o.kept.timers.Next(); ok {
		if wm := o.c.Watermark(); wm < math.MaxInt64 { // what is behind it waits for the next one
			at = max(at, wm+1)
		}
		o.c.Due(at)
	}
	return nil
}

func (o *overTime) bounded() bool { return o.n.Frame.From >= 0 }

// Process is of Operator.
func (o *overTime) Process(input int, r *row.Row) error {
	o.key = o.keys.Append(o.key[:0], r)
	g, k := o.c.Group(o.key), view(o.key)
	if o.n.Proc {
		o.g, o.k, o.at, o.time = g, k, o.c.Env().Now, r.Time
		if o.keeps() {
			o.kept.add(g, k, o.at, r, 0)
			return o.rows()
		}
		o.all = append(o.all[:0], placed{r: r})
		return o.put(0)
	}
	if r.Null(o.n.Order[0].Column) {
		panic(&fn.Failure{Message: "OVER ordered by a time that is NULL"})
	}
	at := r.Int64(o.word)
	wm := o.c.Watermark()
	late := at <= wm
	if o.bounded() {
		late = false
		if s := o.main.Get(g, k); s != nil && s.W[wordLast] != 0 {
			late = at <= int64(s.W[wordLast]-1)
		}
	}
	if late {
		o.c.Late(input, r)
		return nil
	}
	o.kept.add(g, k, at, r, 0)
	o.kept.timers.Set(at, g, k, 0)
	if wm < math.MaxInt64 {
		at = max(at, wm+1)
	}
	o.c.Due(at)
	return nil
}

// OnWatermark is of Timed.
func (o *overTime) OnWatermark(_, watermark int64) error {
	for {
		at, g, k, _, ok := o.kept.timers.Pop(watermark)
		if !ok {
			break
		}
		o.g, o.k, o.at, o.time = g, k, at, at
		if err := o.c.Atomic(g, at, bytesOf(k), o.step); err != nil {
			return err
		}
	}
	return o.Start()
}

// keeps says whether rows that are out are still needed.
func (o *overTime) keeps() bool { return o.bounded() || o.calls.back > 0 }

// rows puts out the rows of a key and time, of processing time the last one, and forgets what is not needed any more.
func (o *overTime) rows() error {
	o.used = 0
	o.all = o.all[:0]
	lo, hi := o.kept.between(math.MinInt64, o.at)
	o.kept.rows.Range(o.g, o.k, lo, hi, func(id string, v *sideRow) bool {
		r := o.next()
		if err := o.in.Unpack(v.row, r); err != nil {
			damaged("OVER", err)
		}
		o.all = append(o.all, placed{id, r})
		return true
	})
	if len(o.n.Order) > 1 && !o.n.Proc {
		slices.SortStableFunc(o.all, func(a, b placed) int {
			return slices.Compare(o.calls.order.Append(nil, a.r), o.calls.order.Append(nil, b.r))
		})
	}
	first := len(o.all)
	for first > 0 && timeAt(o.all[first-1].id) == o.at && (!o.n.Proc || first == len(o.all)) {
		first--
	}
	if err := o.put(first); err != nil {
		return err
	}
	need := o.calls.back
	if o.bounded() && o.n.Frame.Rows {
		need = max(need, int(o.n.Frame.From))
	}
	for i, p := range o.all {
		if len(o.all)-i <= need || o.bounded() && !o.n.Frame.Rows && timeAt(p.id) >= o.from() {
			break
		}
		o.kept.rows.Delete(o.g, o.k, p.id)
	}
	return nil
}

// from is the first time of a RANGE frame.
func (o *overTime) from() int64 {
	if o.at < math.MinInt64+o.n.Frame.From {
		return math.MinInt64
	}
	return o.at - o.n.Frame.From
}

// put puts out the rows from first on; those before are history.
func (o *overTime) put(first int) error {
	s, existed := o.main.Update(o.g, o.k)
	groups := o.calls.groups
	if !existed {
		var a fn.State
		groups.agg.init(&a)
		s.W, s.S = append(make([]uint64, overWords, overWords+len(a.W)), a.W...), a.S
	}
	part := fn.State{W: s.W[overWords:], S: s.S}
	bounded := o.bounded()
	// Each row has a frame of its own, or all have that of the last.
	each := o.n.Frame.Rows || o.positions()
	for i := first; i < len(o.all); i++ {
		s.W[overWords]++
		if n := s.W[overWords]; n == 1 || s.W[wordLast] != uint64(o.at)+1 || o.n.Proc {
			s.W[wordRank] = n
			s.W[wordDense]++
		}
		s.W[wordLast] = uint64(o.at) + 1
		if !bounded {
			groups.count(part, o.all[i].r)
		}
		if each {
			st := part
			if bounded {
				st = o.framed(i, i)
			}
			if err := o.one(i, s, st); err != nil {
				return err
			}
		}
	}
	if each {
		return nil
	}
	st := part
	if bounded {
		st = o.framed(first, len(o.all)-1)
	}
	for i := first; i < len(o.all); i++ {
		if err := o.one(i, s, st); err != nil {
			return err
		}
	}
	return nil
}

// one puts out a row.
func (o *overTime) one(i int, s *fn.State, st fn.State) error {
	o.pos.at, o.pos.number, o.pos.rank, o.pos.dense = i, int64(s.W[overWords]), int64(s.W[wordRank]), int64(s.W[wordDense])
	r := o.all[i].r
	out := o.calls.fill(r, st, &o.pos)
	out.Kind, out.Time = row.Insert, o.time
	return o.c.Emit(out)
}

// framed computes the aggregates of a bounded frame of row i that ends with row last.
func (o *overTime) framed(i, last int) fn.State {
	lo := 0
	if o.n.Frame.Rows {
		lo = max(0, i-int(o.n.Frame.From))
	} else {
		from := o.from()
		for timeAt(o.all[lo].id) < from {
			lo++
		}
	}
	groups := o.calls.groups
	groups.begin(&o.frame)
	for _, p := range o.all[lo : last+1] {
		groups.with(&o.frame, p.r)
	}
	return o.frame
}

// positions says whether there are functions of the position alone: each row counts then.
func (o *overTime) positions() bool { return len(o.calls.place) > 0 && len(o.calls.agg) == 0 }

// count adds a row to aggregates in memory; DISTINCT is not for it.
func (o *groups) count(s fn.State, r *row.Row) {
	for i := range o.agg.calls {
		a := &o.agg.calls[i]
		if a.filter == nil || a.filter(r) {
			a.acc.Add(a.part(s), r)
		}
	}
}

// overColumn is POverColumn: OVER ordered by an ordinary column. A row changes the results of those behind it.
type overColumn struct {
	c     Context
	n     *rel.POverColumn
	in    *row.Layout
	keys  *row.KeyEncoder
	calls *overCalls
	rows  *mapState[packed]
	out   *row.Layout
	key   []byte
	at    []byte
	buf   []byte
}

func newOverColumn(n *rel.POverColumn, c Context) (Operator, error) {
	in := rel.Layout(n.In[0])
	n = &rel.POverColumn{Phys: n.Phys, Partition: n.Partition, Order: n.Order, Frame: wholeFrame(n.Frame, n.Calls), Calls: n.Calls, Retracts: n.Retracts, TTL: n.TTL}
	o := &overColumn{c: c, n: n, in: in, out: rel.Layout(n), keys: row.NewKeyEncoder(in, n.Partition...)}
	var err error
	if o.calls, err = newOverCalls(c, in, o.out, n.Calls, n.Frame, n.Order); err != nil {
		return nil, err
	}
	o.rows, err = openMap(c, "rows", keysOf(o.keys, in, n.Partition), tailKeys(o.calls.order.Schema()+" seq"), statestore.Codec[packed](packedOf(in)), n.TTL)
	return o, err
}

// resultOf is the output of a row, by its place.
type resultOf struct {
	at  string
	out packed
}

// Process is of Operator.
func (o *overColumn) Process(_ int, r *row.Row) error {
	o.key = o.keys.Append(o.key[:0], r)
	g, k := o.c.Group(o.key), view(o.key)
	before := o.results(g, k)
	o.at = o.calls.order.Append(o.at[:0], r)
	if r.Kind.Adds() {
		o.at = behindEqual(o.rows, g, k, o.at)
		o.rows.Put(g, k, view(o.at), o.in.Pack(nil, r))
	} else {
		o.buf = o.in.Pack(o.buf[:0], r)
		found := ""
		o.rows.Range(g, k, string(o.at), string(o.at)+beyond, func(at string, v *packed) bool {
			if string(*v) == string(o.buf) {
				found = at
				return false
			}
			return true
		})
		if found == "" {
			return nil
		}
		o.rows.Delete(g, k, found)
	}
	after := o.results(g, k)
	at := r.Time
	for len(before) > 0 || len(after) > 0 {
		switch {
		case len(after) == 0 || len(before) > 0 && before[0].at < after[0].at:
			if err := o.emit(row.Delete, before[0].out, at); err != nil {
				return err
			}
			before = before[1:]
		case len(before) == 0 || after[0].at < before[0].at:
			if err := o.emit(row.Insert, after[0].out, at); err != nil {
				return err
			}
			after = after[1:]
		default:
			if string(before[0].out) != string(after[0].out) {
				if o.n.Form != rel.After {
					if err := o.emit(row.UpdateBefore, before[0].out, at); err != nil {
						return err
					}
				}
				if err := o.emit(row.UpdateAfter, after[0].out, at); err != nil {
					return err
				}
			}
			before, after = before[1:], after[1:]
		}
	}
	return nil
}

func (o *overColumn) emit(kind row.RowKind, p packed, at int64) error {
	out := o.calls.row
	if err := o.out.Unpack(p, out); err != nil {
		damaged("OVER", err)
	}
	out.Kind, out.Time = kind, at
	return o.c.Emit(out)
}

// results computes the rows of a partition.
func (o *overColumn) results(g statestore.Group, k string) (out []resultOf) {
	var rows []*row.Row
	var ids []string
	o.rows.All(g, k, func(at string, v *packed) bool {
		r := o.in.New()
		if err := o.in.Unpack(*v, r); err != nil {
			damaged("OVER", err)
		}
		rows, ids = append(rows, r), append(ids, at)
		return true
	})
	var st fn.State
	o.calls.groups.agg.init(&st)
	p := position{before: func(i int) *row.Row { return rows[i] }}
	for i := 0; i < len(rows); {
		// The rows of one order key count together, unless the frame is in rows.
		j := i + 1
		for !o.n.Frame.Rows && j < len(rows) && ids[j][:len(ids[j])-8] == ids[i][:len(ids[i])-8] {
			j++
		}
		for x := i; x < j; x++ {
			st.W[0]++
			if o.n.Frame.From < 0 {
				o.calls.groups.count(st, rows[x])
			}
		}
		for x := i; x < j; x++ {
			cur := st
			if o.n.Frame.From >= 0 {
				end := x + 1
				if !o.n.Frame.Rows {
					end = j
				}
				cur = fn.State{}
				o.calls.groups.begin(&cur)
				for _, r := range rows[max(0, x-int(o.n.Frame.From)):end] {
					o.calls.groups.with(&cur, r)
				}
			}
			p.number, p.at = int64(x+1), x
			out = append(out, resultOf{ids[x], o.out.Pack(nil, o.calls.fill(rows[x], cur, &p))})
		}
		i = j
	}
	return out
}
