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
	out    *row.Row
	number int64 // from 1
	rank   int64 // of the first row with an equal order key
	dense  int64
	lag    func(n int) *row.Row // the row n before; nil = none
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
		other := func(out *row.Row) { out.SetNull(col) }
		if len(call.Args) > 2 {
			def, err := expr.Compile(env, o.in, call.Args[2])
			if err != nil {
				return nil, err
			}
			put := expr.Store(o.out, col, def, fn.Place{})
			other = func(out *row.Row) { put(out, nil) }
		}
		return func(p *position) {
			if r := p.lag(n); r != nil {
				set(p.out, r)
				return
			}
			other(p.out)
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
	p.out = o.row
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

// overTime is POverTime: OVER ordered by time. Rows come when the watermark passes their time.
type overTime struct {
	c       Context
	n       *rel.POverTime
	in      *row.Layout
	keys    *row.KeyEncoder
	calls   *overCalls
	waiting *timedRows
	past    *timedRows // rows that frames and LAG still need
	main    *valueState[fn.State]
	word    int
	key     []byte

	pool  []*row.Row // rows that are used again: the first used ones are at work
	used  int
	all   []*row.Row
	frame fn.State
}

// copyOf is a copy of a row that lives until used is set back.
func (o *overTime) copyOf(r *row.Row) *row.Row {
	if o.used == len(o.pool) {
		o.pool = append(o.pool, o.in.New())
	}
	c := o.pool[o.used]
	o.used++
	o.in.Copy(c, r)
	return c
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
	var err error
	if o.calls, err = newOverCalls(c, in, rel.Layout(n), n.Calls, n.Frame, n.Order); err != nil {
		return nil, err
	}
	if o.waiting, err = newTimedRows(c, "waiting", in, n.Partition, true); err != nil {
		return nil, err
	}
	if o.past, err = newTimedRows(c, "past", in, n.Partition, false); err != nil {
		return nil, err
	}
	a := o.calls.groups.agg
	o.main, err = openTable(c, "main", keysOf(o.keys, in, n.Partition), statestore.Codec[fn.State](accumulators{overWords + a.words, a.views, "over " + a.schema}), 0)
	return o, err
}

// Start is of Starter.
func (o *overTime) Start() error {
	if at, ok := o.waiting.timers.Next(); ok {
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
		o.used = 0
		o.copyOf(r)
		return o.rows(g, k, o.c.Env().Now, o.pool[:1:1])
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
	o.waiting.add(g, k, at, r, 0)
	o.waiting.timers.Set(at, g, k, 0)
	if wm < math.MaxInt64 {
		at = max(at, wm+1)
	}
	o.c.Due(at)
	return nil
}

// OnWatermark is of Timed.
func (o *overTime) OnWatermark(_, watermark int64) error {
	for {
		at, g, k, _, ok := o.waiting.timers.Pop(watermark)
		if !ok {
			break
		}
		err := o.c.Atomic(g, at, bytesOf(k), func() error {
			o.used = 0
			o.waiting.each(g, k, at, at, func(_ string, _ *sideRow, r *row.Row) bool {
				o.copyOf(r)
				return true
			})
			rows := o.pool[:o.used:o.used]
			if len(o.n.Order) > 1 {
				slices.SortStableFunc(rows, func(a, b *row.Row) int {
					return slices.Compare(o.calls.order.Append(nil, a), o.calls.order.Append(nil, b))
				})
			}
			o.waiting.drop(g, k, at, at)
			return o.rows(g, k, at, rows)
		})
		if err != nil {
			return err
		}
	}
	return o.Start()
}

// rows puts out the rows of a key and time.
func (o *overTime) rows(g statestore.Group, k string, at int64, rows []*row.Row) error {
	s, existed := o.main.Update(g, k)
	agg := o.calls.groups.agg
	if !existed {
		var a fn.State
		agg.init(&a)
		s.W, s.S = append(make([]uint64, overWords), a.W...), a.S
	}
	part := func() fn.State { return fn.State{W: s.W[overWords:], S: s.S} }
	// History: the rows before these that frames and LAG look at, oldest first.
	all := o.all[:0]
	need := o.calls.back
	if o.bounded() && o.n.Frame.Rows {
		need = max(need, int(o.n.Frame.From))
	}
	keep := o.bounded() || o.calls.back > 0
	if keep {
		from := int64(math.MinInt64)
		o.past.each(g, k, from, at, func(_ string, _ *sideRow, r *row.Row) bool {
			all = append(all, o.copyOf(r))
			return true
		})
	}
	first := len(all)
	all = append(all, rows...)
	o.all = all
	one := func(i int, st fn.State) error {
		number := int64(s.W[overWords])
		p := position{number: number, rank: int64(s.W[wordRank]), dense: int64(s.W[wordDense])}
		p.lag = func(n int) *row.Row {
			if i-n < 0 {
				return nil
			}
			return all[i-n]
		}
		out := o.calls.fill(all[i], st, &p)
		out.Kind, out.Time = row.Insert, all[i].Time
		return o.c.Emit(out)
	}
	frame := func(i, last int) fn.State { // of a bounded frame that ends with row last
		lo := 0
		if o.n.Frame.Rows {
			lo = max(0, i-int(o.n.Frame.From))
		}
		o.calls.groups.evaluate(&o.frame, func(yield func(r *row.Row)) {
			for _, r := range all[lo : last+1] {
				if o.n.Frame.Rows || o.timeOf(r, at) >= at-o.n.Frame.From {
					yield(r)
				}
			}
		})
		return o.frame
	}
	advance := func(i int) {
		s.W[overWords]++
		if n := s.W[overWords]; n == 1 || s.W[wordLast] != uint64(at)+1 || o.n.Proc {
			s.W[wordRank] = n
			s.W[wordDense]++
		}
		s.W[wordLast] = uint64(at) + 1
		if !o.bounded() {
			o.calls.groups.count(part(), all[i])
		}
	}
	if o.n.Frame.Rows || o.positions() {
		for i := first; i < len(all); i++ {
			advance(i)
			st := part()
			if o.bounded() {
				st = frame(i, i)
			}
			if err := one(i, st); err != nil {
				return err
			}
		}
	} else {
		for i := first; i < len(all); i++ {
			advance(i)
		}
		for i := first; i < len(all); i++ {
			st := part()
			if o.bounded() {
				st = frame(i, len(all)-1)
			}
			if err := one(i, st); err != nil {
				return err
			}
		}
	}
	if !keep {
		return nil
	}
	for _, r := range rows {
		o.past.add(g, k, at, r, 0)
	}
	o.trim(g, k, at, len(all), need)
	return nil
}

// positions says whether there are functions of the position alone: each row counts then.
func (o *overTime) positions() bool { return len(o.calls.place) > 0 && len(o.calls.agg) == 0 }

func (o *overTime) timeOf(r *row.Row, at int64) int64 {
	if o.n.Proc {
		return at
	}
	return r.Int64(o.word)
}

// trim forgets history that no frame looks at any more.
func (o *overTime) trim(g statestore.Group, k string, at int64, have, need int) {
	var old []string
	i := 0
	o.past.rows.All(g, k, func(id string, _ *sideRow) bool {
		left := have - i // rows from this one on
		i++
		if left <= need {
			return false
		}
		if o.bounded() && !o.n.Frame.Rows && timeAt(id) >= at-o.n.Frame.From {
			return false
		}
		old = append(old, id)
		return true
	})
	for _, id := range old {
		o.past.rows.Delete(g, k, id)
	}
}

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
				o.calls.groups.evaluate(&cur, func(yield func(r *row.Row)) {
					for _, r := range rows[max(0, x-int(o.n.Frame.From)):end] {
						yield(r)
					}
				})
			}
			p := position{number: int64(x + 1), lag: func(n int) *row.Row {
				if x-n < 0 {
					return nil
				}
				return rows[x-n]
			}}
			out = append(out, resultOf{ids[x], o.out.Pack(nil, o.calls.fill(rows[x], cur, &p))})
		}
		i = j
	}
	return out
}
