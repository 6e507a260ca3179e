package exec

import (
	"math"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/expr"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
	"github.com/millrace-stream/millrace/statestore"
)

// timedRows keeps rows by key in order of time, and timers for them.
type timedRows struct {
	l      *row.Layout
	keys   *row.KeyEncoder
	rows   *mapState[sideRow]
	timers *statestore.Timers[string]
	row    *row.Row
	at     []byte
	lo, hi []byte
	gone   []string
}

func newTimedRows(c Context, name string, l *row.Layout, columns []int, timers bool) (*timedRows, error) {
	o := &timedRows{l: l, keys: row.NewKeyEncoder(l, columns...), row: l.New()}
	keys := keysOf(o.keys, l, columns)
	var err error
	if o.rows, err = openMap(c, name, keys, tailKeys("time, seq"), statestore.Codec[sideRow](sideRows{"timed " + l.Schema()}), 0); err != nil {
		return nil, err
	}
	if !timers {
		return o, nil
	}
	spec, open := c.Store(StoreSpec{Name: name + "-timers", Kind: statestore.KindTimers, Key: keys.Schema()})
	if open {
		if o.timers, err = statestore.NewTimers(c.State(), spec, timerKeysOf(o.keys, l, columns)); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// add keeps a row, behind those of its time.
func (o *timedRows) add(g statestore.Group, k string, at int64, r *row.Row, matches int64) {
	o.at = behindEqual(o.rows, g, k, appendEnd(o.at[:0], at))
	o.rows.Put(g, k, view(o.at), sideRow{n: 1, matches: matches, row: o.l.Pack(nil, r)})
}

// each calls f for the rows of a key with from <= time <= to.
func (o *timedRows) each(g statestore.Group, k string, from, to int64, f func(at string, v *sideRow, r *row.Row) bool) {
	lo, hi := o.between(from, to)
	o.rows.Range(g, k, lo, hi, func(at string, v *sideRow) bool {
		if err := o.l.Unpack(v.row, o.row); err != nil {
			damaged("a row that waits", err)
		}
		return f(at, v, o.row)
	})
}

// drop forgets the rows of a key with from <= time <= to.
func (o *timedRows) drop(g statestore.Group, k string, from, to int64) {
	lo, hi := o.between(from, to)
	o.gone = o.gone[:0]
	o.rows.Range(g, k, lo, hi, func(at string, _ *sideRow) bool { o.gone = append(o.gone, at); return true })
	for _, at := range o.gone {
		o.rows.Delete(g, k, at)
	}
}

// between are the bounds of the keys of rows with from <= time <= to, valid until the next call: Range looks at them first.
func (o *timedRows) between(from, to int64) (lo, hi string) {
	o.lo = appendEnd(o.lo[:0], from)
	o.hi = append(appendEnd(o.hi[:0], to), beyond...)
	return view(o.lo), view(o.hi)
}

func timeAt(at string) int64 {
	var v uint64
	for i := range 8 {
		v = v<<8 | uint64(at[i])
	}
	return int64(v ^ 1<<63)
}

// intervalJoin is PIntervalJoin: Lower <= left time - right time <= Upper. Pairs come at once; a row without partner, of an
// outer side, once none can come any more.
type intervalJoin struct {
	clock
	n     *rel.PIntervalJoin
	sides [2]*timedRows
	word  [2]int
	outer [2]bool
	both  *row.Layout
	pair  *row.Row
	cond  func(r *row.Row) bool
	key   []byte
	hits  []hit
	// What step forgets: rows of a side and key up to a time.
	side int
	g    statestore.Group
	k    string
	upTo int64
	step func() error
}

func newIntervalJoin(n *rel.PIntervalJoin, c Context) (Operator, error) {
	l, r := rel.Layout(n.In[0]), rel.Layout(n.In[1])
	o := &intervalJoin{clock: clock{c: c, proc: n.Proc}, n: n, both: bothLayout(l, r)}
	o.fire, o.step = o.expire, o.forget
	o.pair = o.both.New()
	o.outer = [2]bool{n.Kind == rel.Left || n.Kind == rel.Full, n.Kind == rel.Right || n.Kind == rel.Full}
	for i, side := range []*row.Layout{l, r} {
		var err error
		if o.sides[i], err = newTimedRows(c, [...]string{"left", "right"}[i], side, n.Keys[i], true); err != nil {
			return nil, err
		}
		o.word[i] = side.Place(n.Time[i]).Index
	}
	if n.Cond != nil {
		var err error
		if o.cond, err = expr.Condition(c.Env(), o.both, n.Cond); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// Delay is of Delayer: a padded row comes when its time is so far behind.
func (o *intervalJoin) Delay() int64 { return max(-o.n.Lower, o.n.Upper, 0) }

// hit is a row of an outer side that has found its first partner.
type hit struct {
	at  string
	row sideRow
}

// partners are the times of the other side that a row of this time can match.
func (o *intervalJoin) partners(side int, at int64) (from, to int64) {
	if side == 0 {
		return at - o.n.Upper, at - o.n.Lower
	}
	return at + o.n.Lower, at + o.n.Upper
}

// Start is of Starter.
func (o *intervalJoin) Start() error {
	for _, s := range o.sides {
		if at, ok := s.timers.Next(); ok {
			o.due(at)
		}
	}
	return nil
}

// Process is of Operator.
func (o *intervalJoin) Process(input int, r *row.Row) error {
	s, other := o.sides[input], 1-input
	t := o.sides[other]
	at := o.c.Env().Now
	if !o.n.Proc {
		if r.Null(o.n.Time[input]) {
			panic(&fn.Failure{Message: "an interval join over a time that is NULL"})
		}
		at = r.Int64(o.word[input])
	}
	null := s.keys.HasNull(r) // equal to nothing: it only waits for its padding
	if null && !o.outer[input] {
		return nil
	}
	o.key = s.keys.Append(o.key[:0], r)
	g, k := o.c.Group(o.key), view(o.key)
	from, to := o.partners(input, at)
	matches := int64(0)
	var err error
	o.hits = o.hits[:0]
	t.each(g, k, from, to, func(id string, v *sideRow, partner *row.Row) bool {
		if null {
			return false
		}
		o.fill(input, r, partner)
		if o.cond != nil && !o.cond(o.pair) {
			return true
		}
		matches++
		if o.outer[other] && v.matches == 0 {
			o.hits = append(o.hits, hit{id, sideRow{n: 1, matches: 1, row: v.row}})
		}
		o.pair.Kind, o.pair.Time = row.Insert, max(at, timeAt(id))
		err = o.c.Emit(o.pair)
		return err == nil
	})
	if err != nil {
		return err
	}
	for _, h := range o.hits {
		t.rows.Put(g, k, h.at, h.row)
	}
	if o.now() < to || to == math.MaxInt64 {
		s.add(g, k, at, r, matches)
		s.timers.Set(to+1, g, k, 0)
		o.due(to + 1)
		return nil
	}
	if matches > 0 {
		return nil
	}
	if o.outer[input] {
		return o.emit(input, r, nil, r.Time)
	}
	o.c.Late(input, r)
	return nil
}

func (o *intervalJoin) fill(input int, r, partner *row.Row) {
	if input == 1 {
		r, partner = partner, r
	}
	fillPair(o.both, o.pair, o.sides[0].l, r, o.sides[1].l, partner)
}

func (o *intervalJoin) emit(input int, r, partner *row.Row, at int64) error {
	o.fill(input, r, partner)
	o.pair.Kind, o.pair.Time = row.Insert, at
	return o.c.Emit(o.pair)
}

// expire forgets rows whose partners cannot come any more.
func (o *intervalJoin) expire(upTo int64) error {
	for side, s := range o.sides {
		for {
			due, g, k, _, ok := s.timers.Pop(upTo)
			if !ok {
				break
			}
			// Rows whose last partner is due-1.
			o.side, o.g, o.k, o.upTo = side, g, k, due-1+o.n.Lower
			if side == 1 {
				o.upTo = due - 1 - o.n.Upper
			}
			if err := o.c.Atomic(g, due, bytesOf(k), o.step); err != nil {
				return err
			}
		}
	}
	return o.Start()
}

// forget forgets rows of a side and key, and puts out those of an outer side that have matched none.
func (o *intervalJoin) forget() (err error) {
	s := o.sides[o.side]
	if o.outer[o.side] {
		s.each(o.g, o.k, math.MinInt64, o.upTo, func(at string, v *sideRow, r *row.Row) bool {
			if v.matches == 0 {
				err = o.emit(o.side, r, nil, timeAt(at))
			}
			return err == nil
		})
	}
	if err == nil {
		s.drop(o.g, o.k, math.MinInt64, o.upTo)
	}
	return err
}

// temporalJoin is PTemporalJoin: each row of the left side with the version of the right side at its time, once both
// watermarks have passed it.
type temporalJoin struct {
	c     Context
	n     *rel.PTemporalJoin
	sides [2]*timedRows
	word  [2]int
	both  *row.Layout
	pair  *row.Row
	cond  func(r *row.Row) bool
	key   []byte
}

func newTemporalJoin(n *rel.PTemporalJoin, c Context) (Operator, error) {
	l, r := rel.Layout(n.In[0]), rel.Layout(n.In[1])
	o := &temporalJoin{c: c, n: n, both: bothLayout(l, r)}
	o.pair = o.both.New()
	var err error
	for i, side := range []*row.Layout{l, r} {
		if o.sides[i], err = newTimedRows(c, [...]string{"left", "versions"}[i], side, n.Keys[i], true); err != nil {
			return nil, err
		}
		o.word[i] = side.Place(n.Time[i]).Index
	}
	if n.Cond != nil {
		if o.cond, err = expr.Condition(c.Env(), o.both, n.Cond); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// Start is of Starter.
func (o *temporalJoin) Start() error {
	for _, s := range o.sides {
		if at, ok := s.timers.Next(); ok {
			o.c.Due(at)
		}
	}
	return nil
}

// Process is of Operator.
func (o *temporalJoin) Process(input int, r *row.Row) error {
	s := o.sides[input]
	if r.Null(o.n.Time[input]) {
		panic(&fn.Failure{Message: "a join with the version at a time that is NULL"})
	}
	at := r.Int64(o.word[input])
	if r.Kind == row.Delete && input == 1 && r.Time != math.MinInt64 {
		at = r.Time // of an upsert table it has the columns of the version that ends, with the time at which it does
	}
	if s.keys.HasNull(r) && input == 1 {
		return nil
	}
	if input == 1 && r.Kind == row.UpdateBefore {
		return nil // the new version says all
	}
	o.key = s.keys.Append(o.key[:0], r)
	g, k := o.c.Group(o.key), view(o.key)
	// matches has the kind. Of two versions of one time the later counts: it stands behind the other.
	s.add(g, k, at, r, int64(r.Kind))
	s.timers.Set(at, g, k, 0)
	// A row that is behind the watermark already waits for the next one.
	if wm := o.c.Watermark(); wm < math.MaxInt64 {
		at = max(at, wm+1)
	}
	o.c.Due(at)
	return nil
}

// OnWatermark is of Timed: rows come in the order of their time.
func (o *temporalJoin) OnWatermark(_, watermark int64) error {
	left, right := o.sides[0], o.sides[1]
	for {
		at, g, k, _, ok := left.timers.Pop(watermark)
		if !ok {
			break
		}
		err := o.c.Atomic(g, at, bytesOf(k), func() error { return o.join(g, k, at) })
		if err != nil {
			return err
		}
	}
	// Of the versions up to the watermark the last one is needed.
	for {
		at, g, k, _, ok := right.timers.Pop(watermark)
		if !ok {
			break
		}
		err := o.c.Atomic(g, at, bytesOf(k), func() error {
			last := ""
			gone := false
			right.each(g, k, math.MinInt64, watermark, func(at string, v *sideRow, _ *row.Row) bool {
				last, gone = at, !row.RowKind(v.matches).Adds()
				return true
			})
			var old []string
			right.rows.Range(g, k, string(appendEnd(nil, math.MinInt64)), last, func(at string, _ *sideRow) bool { old = append(old, at); return true })
			for _, at := range old {
				right.rows.Delete(g, k, at)
			}
			if gone {
				right.rows.Delete(g, k, last)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return o.Start()
}

// join puts out the rows of a key and time.
func (o *temporalJoin) join(g statestore.Group, k string, at int64) (err error) {
	left, right := o.sides[0], o.sides[1]
	left.each(g, k, at, at, func(_ string, v *sideRow, r *row.Row) bool {
		var version *row.Row
		if !left.keys.HasNull(r) {
			if id, found := right.rows.Before(g, k, string(appendEnd(nil, at))+beyond); found != nil && id != "" && row.RowKind(found.matches).Adds() {
				if uerr := right.l.Unpack(found.row, right.row); uerr != nil {
					damaged("a version", uerr)
				}
				version = right.row
			}
		}
		fillPair(o.both, o.pair, left.l, r, right.l, version)
		if version != nil && o.cond != nil && !o.cond(o.pair) {
			version = nil
			fillPair(o.both, o.pair, left.l, r, right.l, nil)
		}
		if version == nil && o.n.Kind == rel.Inner {
			return true
		}
		o.pair.Kind, o.pair.Time = row.RowKind(v.matches), at
		err = o.c.Emit(o.pair)
		return err == nil
	})
	if err == nil {
		left.drop(g, k, at, at)
	}
	return err
}

// timeSort is PTimeSort: rows in the order of time, then the other keys, then arrival, as the watermark passes them.
type timeSort struct {
	clock
	n    *rel.PTimeSort
	l    *row.Layout
	sort *row.KeyEncoder
	rows *mapState[packed]
	last *valueState[int64]
	word int
	at   []byte
	row  *row.Row
}

func newTimeSort(n *rel.PTimeSort, c Context) (Operator, error) {
	l := rel.Layout(n.In[0])
	o := &timeSort{clock: clock{c: c, proc: n.Proc}, n: n, l: l, sort: row.NewSortEncoder(l, sortColumns(n.Keys[1:])...), word: l.Place(n.Keys[0].Column).Index, row: l.New()}
	o.fire = o.release
	none := keysOf(row.NewKeyEncoder(l), l, nil)
	var err error
	if o.rows, err = openMap(c, "rows", none, tailKeys("time, "+o.sort.Schema()+", seq"), statestore.Codec[packed](packedOf(l)), 0); err != nil {
		return nil, err
	}
	o.last, err = openTable(c, "last", none, statestore.Codec[int64](number{}), 0)
	return o, err
}

// Start is of Starter.
func (o *timeSort) Start() error {
	g := o.c.Group(nil)
	first := ""
	o.rows.All(g, "", func(at string, _ *packed) bool { first = at; return false })
	if first != "" {
		o.due(max(timeAt(first), o.watermarkNext()))
	}
	return nil
}

// Process is of Operator.
func (o *timeSort) Process(input int, r *row.Row) error {
	g := o.c.Group(nil)
	at := o.c.Env().Now
	if !o.n.Proc {
		if r.Null(o.n.Keys[0].Column) {
			panic(&fn.Failure{Message: "ORDER BY a time that is NULL"})
		}
		at = r.Int64(o.word)
		if last := o.last.Get(g, ""); last != nil && at <= *last {
			o.c.Late(input, r)
			return nil
		}
	}
	o.at = behindEqual(o.rows, g, "", o.sort.Append(appendEnd(o.at[:0], at), r))
	o.rows.Put(g, "", view(o.at), o.l.Pack(nil, r))
	// A row that is behind the watermark already waits for the next one.
	o.due(max(at, o.watermarkNext()))
	return nil
}

func (o *timeSort) watermarkNext() int64 {
	if o.n.Proc || o.c.Watermark() == math.MaxInt64 {
		return math.MinInt64
	}
	return o.c.Watermark() + 1
}

func (o *timeSort) release(upTo int64) error {
	g := o.c.Group(nil)
	var due []string
	o.rows.Range(g, "", string(appendEnd(nil, math.MinInt64)), string(appendEnd(nil, upTo))+beyond, func(at string, _ *packed) bool { due = append(due, at); return true })
	for _, id := range due {
		at := timeAt(id)
		err := o.c.Atomic(g, at, nil, func() error {
			v := o.rows.Get(g, "", id)
			if err := o.l.Unpack(*v, o.row); err != nil {
				damaged("ORDER BY", err)
			}
			o.rows.Delete(g, "", id)
			o.last.Set(g, "", at)
			o.row.Kind, o.row.Time = row.Insert, at
			return o.c.Emit(o.row)
		})
		if err != nil {
			return err
		}
	}
	return o.Start()
}

// popTimers takes the timers up to a time off, each with what f does at it or not at all.
func popTimers(c Context, timers *statestore.Timers[string], upTo int64, f func(at int64, g statestore.Group, k string) error) error {
	for {
		at, g, k, _, ok := timers.Pop(upTo)
		if !ok {
			return nil
		}
		if err := c.Atomic(g, at, bytesOf(k), func() error { return f(at, g, k) }); err != nil {
			return err
		}
	}
}
