package exec

import (
	"bytes"
	"math"
	"strings"
	"time"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/statestore"
)

// singleGrace is how long, in processing time, a scalar subquery may have more than one row for a row around it before that
// is an error. Changes of one table that take two ways to the join come in any order, so that a new value may be there
// before the old one has gone.
const singleGrace = time.Minute

// single is the join of a scalar subquery: each row of the left side comes out once, with the one row of the right side that
// matches it, or with NULLs. While several rows match, the first of them in the order of their columns counts. If that lasts
// for singleGrace, or until the input ends, it is an error.
type single struct {
	*join
	since  *valueState[int64] // of keys with several rows: since when, processing time
	timers *statestore.Timers[string]
}

func newSingle(o *join, c Context) (Operator, error) {
	s := &single{join: o}
	l := o.sides[0].l
	keys := keysOf(o.sides[0].keys, l, o.n.Keys[0])
	var err error
	if s.since, err = openTable(c, "several", keys, statestore.Codec[int64](number{}), 0); err != nil {
		return nil, err
	}
	spec, open := c.Store(StoreSpec{Name: "timers", Kind: statestore.KindTimers, Key: keys.Schema()})
	if !open {
		return s, nil
	}
	s.timers, err = statestore.NewTimers(c.State(), spec, timerKeysOf(o.sides[0].keys, l, o.n.Keys[0]))
	return s, err
}

// Start is of Starter. Keys that have several rows are given their time anew: what takes these rows away may not have been
// read yet.
func (o *single) Start() error {
	o.c.Due(math.MaxInt64)
	if at, ok := o.timers.Next(); ok {
		o.c.DueProcessing(max(at, o.c.Env().Now+singleGrace.Milliseconds()))
	}
	return nil
}

// Process is of Operator.
func (o *single) Process(input int, r *row.Row) error {
	s := &o.sides[input]
	if s.keys.HasNull(r) { // NULL equals nothing
		if input == 1 {
			return nil
		}
		o.put(0, r)
		return o.alone(0, r.Kind, r.Time)
	}
	o.key = s.keys.Append(o.key[:0], r)
	g, k := o.c.Group(o.key), view(o.key)
	var several bool
	var err error
	if input == 0 {
		several, err = o.left(g, k, r)
	} else {
		several, err = o.right(g, k, r)
	}
	if err != nil {
		return err
	}
	o.watch(g, k, several)
	return nil
}

// left joins a row of the left side with what is there; several says that it adds a row that more than one row matches.
func (o *single) left(g statestore.Group, k string, r *row.Row) (several bool, err error) {
	o.put(0, r)
	n := int64(0)
	var first packed
	o.sides[1].rows.All(g, k, func(_ string, v *sideRow) bool {
		if !o.matches(v.row) {
			return true
		}
		if first == nil {
			first = v.row
		}
		n += v.n
		return n < 2
	})
	o.keep(g, k, 0, r, 0)
	if err := o.value(r.Kind, first, r.Time); err != nil {
		return false, err
	}
	return n > 1 && r.Kind.Adds(), nil
}

// matches says whether a row of the right side matches the left one in the pair, and puts it there.
func (o *single) matches(v packed) bool {
	t := &o.sides[1]
	if err := t.l.Unpack(v, t.row); err != nil {
		damaged("a scalar subquery", err)
	}
	o.put(1, t.row)
	return o.cond == nil || o.cond(o.pair)
}

// value puts out or withdraws the pair of the left row in it with a right one; nil = NULLs.
func (o *single) value(kind row.RowKind, v packed, at int64) error {
	if v == nil {
		return o.alone(0, kind, at)
	}
	t := &o.sides[1]
	if err := t.l.Unpack(v, t.row); err != nil {
		damaged("a scalar subquery", err)
	}
	o.put(1, t.row)
	if kind.Adds() {
		return o.emit(row.Insert, at)
	}
	return o.emit(row.Delete, at)
}

// right takes a change of the right side; several says that a row of the left side may have got a second row by it.
func (o *single) right(g statestore.Group, k string, r *row.Row) (several bool, err error) {
	s := &o.sides[1]
	id := strings.Clone(s.idOf(r))
	var was packed
	n := int64(0)
	if v := s.rows.Get(g, k, id); v != nil {
		was, n = v.row, v.n
	}
	adds := r.Kind.Adds()
	if !adds && was == nil {
		return false, nil
	}
	o.keep(g, k, 1, r, 0)
	var now packed
	if v := s.rows.Get(g, k, id); v != nil {
		now, several = v.row, v.n > 1 // for whom is looked up later
	}
	if n > 0 && bytes.Equal(was, now) {
		return several, nil // one more or one less of the same
	}
	l := &o.sides[0]
	l.rows.All(g, k, func(_ string, v *sideRow) bool {
		if err = l.l.Unpack(v.row, l.row); err != nil {
			damaged("a scalar subquery", err)
		}
		o.put(0, l.row)
		before, after := was != nil && o.matches(was), now != nil && o.matches(now)
		if !before && !after {
			return true
		}
		// What else matches this row: nothing, unless there are several.
		var other packed
		otherID := ""
		s.rows.All(g, k, func(x string, v *sideRow) bool {
			if x != id && o.matches(v.row) {
				other, otherID = v.row, x
				return false
			}
			return true
		})
		several = several || after && other != nil
		if other != nil && otherID < id {
			return true // it is the one that counts, before and after
		}
		old, new := other, other
		if before {
			old = was
		}
		if after {
			new = now
		}
		err = o.times(v.n, func() error {
			if err := o.value(row.Delete, old, r.Time); err != nil {
				return err
			}
			return o.value(row.Insert, new, r.Time)
		})
		return err == nil
	})
	if o.cond == nil && adds && !several { // no row of the left side has asked yet
		several = o.several(g, k)
	}
	return several, err
}

// watch notes since when a key has several rows. A change that gives none a second row cannot begin that, only end it.
func (o *single) watch(g statestore.Group, k string, several bool) {
	at := o.since.Get(g, k)
	if at == nil && !several {
		return
	}
	switch several = o.several(g, k); {
	case several && at == nil:
		now := o.c.Env().Now
		o.since.Set(g, k, now)
		o.timers.Set(now+singleGrace.Milliseconds(), g, k, 0)
		o.c.DueProcessing(now + singleGrace.Milliseconds())
	case !several && at != nil:
		o.timers.Delete(*at+singleGrace.Milliseconds(), g, k, 0)
		o.since.Delete(g, k)
	}
}

// several says whether more than one row matches a row of the left side. Without further conditions that is asked of the key
// alone, as in Flink: there need be no row on the left side.
func (o *single) several(g statestore.Group, k string) (yes bool) {
	more := func() bool {
		n := int64(0)
		o.sides[1].rows.All(g, k, func(_ string, v *sideRow) bool {
			if o.cond == nil || o.matches(v.row) {
				n += v.n
			}
			return n < 2
		})
		return n > 1
	}
	if o.cond == nil {
		return more()
	}
	l := &o.sides[0]
	l.rows.All(g, k, func(_ string, v *sideRow) bool {
		if err := l.l.Unpack(v.row, l.row); err != nil {
			damaged("a scalar subquery", err)
		}
		o.put(0, l.row)
		yes = more()
		return !yes
	})
	return yes
}

// OnTime is of ProcTimed.
func (o *single) OnTime(now int64) error {
	if err := popTimers(o.c, o.timers, now, func(_ int64, g statestore.Group, k string) error { return o.refuse(g, k) }); err != nil {
		return err
	}
	if at, ok := o.timers.Next(); ok {
		o.c.DueProcessing(at)
	}
	return nil
}

// OnWatermark is of Timed: the input ends.
func (o *single) OnWatermark(_, watermark int64) error {
	if watermark < math.MaxInt64 {
		o.c.Due(math.MaxInt64)
		return nil
	}
	return o.OnTime(math.MaxInt64)
}

// refuse is the error of a key that still has several rows.
func (o *single) refuse(g statestore.Group, k string) error {
	if !o.several(g, k) {
		return nil
	}
	panic(&fn.Failure{Message: "a subquery that stands for one value gave more than one row"})
}
