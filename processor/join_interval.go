package processor

import (
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"time"

	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
)

// Interval says how far apart in event time the rows of an interval join may be: a left row at time t and a right row
// of the same key meet if the right one's time is from t-Before to t+After, both inclusive. One of them may be negative:
// {After: 10 * time.Minute, Before: -time.Minute} are right rows that come 1 to 10 minutes after the left one. The zero
// Interval is equal times. Whole milliseconds only. Flink: intervalJoin(...).between(-Before, After).
type Interval struct{ After, Before time.Duration }

// JoinKind says which rows a join emits that have no partner. There is no default.
type JoinKind uint8

// The kinds of joins.
const (
	Inner JoinKind = 1 + iota // none
	Left                      // left ones, with a nil right row
	Right                     // right ones, with a nil left row
	Full                      // both
)

func (k JoinKind) String() string {
	switch k {
	case Inner:
		return "inner"
	case Left:
		return "left"
	case Right:
		return "right"
	case Full:
		return "full"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// IntervalJoin joins two streams by key and time: f is called once for each pair of rows that the Interval lets meet, as
// soon as both are there. The event time of a result is the later of the two. Both streams must have their keys written
// alike and be read by the same subtasks: see Connect.
//
// A row is kept until the watermark says that no partner can come any more: a left row at t until the watermark, the
// minimum of both streams, reaches t+After, a right one until it reaches its time plus Before. So a row at or before the
// watermark still meets partners that are kept. Only a row that can meet none, kept or to come, is late: it is dropped and
// counted, or sent to a side output (LateLeftTo, LateRightTo). A stream that stands still holds the other's rows: see
// Topic.Idle. State: "<id>/left", "<id>/right". Flink: KeyedStream.intervalJoin, which drops all rows behind the
// watermark.
func IntervalJoin[K comparable, A, B, R any](left KeyedStream[K, A], right KeyedStream[K, B], id string, within Interval, f func(A, B) R, o ...Option) KeyedStream[K, R] {
	return intervalJoin[K, A, B, R](left, right, id, within, Inner, f != nil, func(_ *builder, next keyedStep[K, R]) func(x *task.Exec, k K, a *A, b *B) error {
		return func(x *task.Exec, k K, a *A, b *B) error { return next(x, k, f(*a, *b)) }
	}, o)
}

// IntervalJoinOuter is IntervalJoin that also emits rows without a partner, each exactly once, with nil in place of the
// other: when no partner can come any more and none has. That is told for stretches of time together, at most half the
// length of the interval (or a 64th of how long rows are kept, if that is more) after a row's own last moment, which is the
// event time of the result. A late row that meets nothing is emitted at once, with its own time. f gets copies of its own.
// Flink SQL: interval join with LEFT, RIGHT and FULL OUTER.
func IntervalJoinOuter[K comparable, A, B, R any](left KeyedStream[K, A], right KeyedStream[K, B], id string, within Interval, kind JoinKind, f func(*A, *B) R, o ...Option) KeyedStream[K, R] {
	return intervalJoin[K, A, B, R](left, right, id, within, kind, f != nil, func(_ *builder, next keyedStep[K, R]) func(x *task.Exec, k K, a *A, b *B) error {
		as, bs := newLent[A](reflect.TypeFor[R]()), newLent[B](reflect.TypeFor[R]())
		return func(x *task.Exec, k K, a *A, b *B) error { return next(x, k, f(as.of(a), bs.of(b))) }
	}, o)
}

// LateLeftTo sends late rows of the left stream of a join to a side output (SideOutput with the tag) instead of dropping
// them; both are counted. The tag is of the left stream's type. Flink: sideOutputLeftLateData.
func LateLeftTo[A any](tag OutputTag[A]) Option { return lateTo(tag, 0) }

// LateRightTo is LateLeftTo for the right stream.
func LateRightTo[B any](tag OutputTag[B]) Option { return lateTo(tag, 1) }

func lateTo[T any](tag OutputTag[T], side int) Option {
	return Option{func(n *node) {
		if !n.joins {
			n.fail("LateLeftTo and LateRightTo are for joins that have late rows: IntervalJoin, WindowJoin, CoGroup and joins with a Versioned table")
			return
		}
		n.sendLate(side, tag.id, typeName[T]())
	}}
}

// sendLate notes where late rows of a side go.
func (n *node) sendLate(side int, tag, typ string) {
	if tag == "" {
		n.fail("the tag for late rows is empty; make it with NewOutputTag")
		return
	}
	if n.lates[1-side].tag == tag && n.lates[1-side].typ != typ {
		n.fail("late rows of both streams go to tag %q, and they are %s and %s; use two tags", tag, n.lates[1-side].typ, typ)
		return
	}
	n.lates[side] = lateOutput{tag, typ}
}

// checkLateTag collects an error of a side output of s unless late rows of that type go to the tag.
func (n *node) checkLateTag(s *node, tag, typ string) {
	for _, l := range n.lates {
		if l.tag == tag {
			if l.typ != typ {
				s.fail("the tag is of %s, the late rows are %s", typ, l.typ)
			}
			return
		}
	}
	s.fail("%s %q sends no late rows to %q; give it LateLeftTo or LateRightTo with the tag", n.kind, n.id, tag)
}

// lateOutput is where late rows of one input go; zero = nowhere.
type lateOutput struct{ tag, typ string }

// lateStep is the step behind a join's late output, nil if nobody takes it.
func lateStep[T any](sides map[string]any, n *node, side int) step[T] {
	s, _ := sides[n.lates[side].tag].(step[T])
	return s
}

// checkLate collects an error if the tag of a late output has another type than the stream.
func checkLate[T any](n *node, side int) {
	if l := n.lates[side]; l.tag != "" && l.typ != typeName[T]() {
		n.fail("late rows are %s, the tag %q is of %s", typeName[T](), l.tag, l.typ)
	}
}

// takeLate counts a late row and sends it on.
func takeLate[T any](x *task.Exec, late step[T], v T) error {
	x.CountLate()
	if late == nil {
		return nil
	}
	return late(x, v)
}

// joinRow is a row that waits for partners.
type joinRow[T any] struct {
	Value   T    `part:"value"`
	Matched bool // of sides whose rows without partner are emitted
}

func intervalJoin[K comparable, A, B, R any](left KeyedStream[K, A], right KeyedStream[K, B], id string, within Interval, kind JoinKind, complete bool,
	emitter func(b *builder, next keyedStep[K, R]) func(x *task.Exec, k K, a *A, b *B) error, o []Option) KeyedStream[K, R] {
	l, r := left.must(), right.must()
	n := l.n.t.add("interval-join", spaceOperator, id, l.n, r.n)
	n.timed, n.joins = true, true
	n.with(o)
	n.need(complete, "function")
	out := newKeyed[K, R](n, l.keys)
	sameKeys(n, l.keys, r.keys)
	checkLate[A](n, 0)
	checkLate[B](n, 1)
	if kind < Inner || kind > Full {
		n.fail("join kind %d is unknown; use Inner, Left, Right or Full", kind)
	}
	after, before := within.After.Milliseconds(), within.Before.Milliseconds()
	switch {
	case within.After%time.Millisecond != 0 || within.Before%time.Millisecond != 0:
		n.fail("Interval is from %s before to %s after, want whole milliseconds", within.Before, within.After)
	case after+before < 0:
		n.fail("Interval is from %s before to %s after: it ends before it begins", within.Before, within.After)
	}
	n.detail = fmt.Sprintf("%s from %s before to %s after", kind, within.Before, within.After)
	piece := intervalPiece(after, before)
	lc, rc := joinStore[A](n, l.keys, "left", kind == Left || kind == Full, piece, after), joinStore[B](n, l.keys, "right", kind == Right || kind == Full, piece, before)

	build := func(b *builder) *intervalOp[K, A, B] {
		return shared(b, n, func() *intervalOp[K, A, B] {
			j := &intervalOp[K, A, B]{x: b.x, op: b.op(n), node: b.node(n), piece: piece, keys: l.keys}
			j.emit = emitter(b, out.s.step(b))
			sides := b.sides(n)
			var err error
			if j.left, err = openSide[K, A](b, n, l.keys, "left", lc); err == nil {
				j.right, err = openSide[K, B](b, n, r.keys, "right", rc)
			}
			if err != nil {
				b.fail(n, err)
				return nil
			}
			j.left.reach, j.left.pad, j.left.late = after, kind == Left || kind == Full, lateStep[A](sides, n, 0)
			j.right.reach, j.right.pad, j.right.late = before, kind == Right || kind == Full, lateStep[B](sides, n, 1)
			j.start()
			return j
		})
	}
	l.attach(func(b *builder) keyedStep[K, A] {
		j := build(b)
		if j == nil {
			return nil
		}
		return joinStep(j, j.left, j.right, j.meetRight, func(v *A) error { return j.emit(j.x, j.left.key, v, nil) })
	})
	r.attach(func(b *builder) keyedStep[K, B] {
		j := build(b)
		if j == nil {
			return nil
		}
		return joinStep(j, j.right, j.left, j.meetLeft, func(v *B) error { return j.emit(j.x, j.right.key, nil, v) })
	})
	return out
}

// intervalPiece is the length of the pieces of time, in ms, that rows are kept in and dropped with: a power of two, so
// that a small change of the interval leaves the state as it is. A row meets partners in at most 6 pieces, and at most
// some 70 pieces are kept besides what is ahead of the watermark.
func intervalPiece(after, before int64) int64 {
	want := max((after+before)/4, max(after, before)/64, 1)
	return int64(1) << bits.Len64(uint64(want-1))
}

// joinStore declares the rows of one side of an interval join.
func joinStore[T any, K comparable](n *node, keys *keyType[K], name string, pad bool, piece, reach int64) statestore.Codec[joinRow[T]] {
	codec, migrations := partsCodec[joinRow[T]](n, name+" row type", reflect.TypeFor[T]())
	spec := n.expiring(name, statestore.KindWindowRows, keys.schema(), schemaOf(codec), time.Duration(max(reach, 0)+piece)*time.Millisecond)
	spec.Windows = fmt.Sprintf("pieces of %s", time.Duration(piece)*time.Millisecond)
	spec.Aggregate, spec.Migrations = "inner join", migrations
	if pad {
		spec.Aggregate = "outer join" // it knows which rows have met a partner
	}
	return codec
}

func openSide[K comparable, T any](b *builder, n *node, keys *keyType[K], name string, codec statestore.Codec[joinRow[T]]) (*intervalSide[K, T], error) {
	rows, err := statestore.NewWindowRows(b.state(), n.specOf(name), keys.codec, codec)
	return &intervalSide[K, T]{rows: rows}, err
}

// intervalSide is one side of an interval join in one subtask. A row of it at t is kept until the watermark reaches
// t + reach: then every partner would be behind the watermark.
type intervalSide[K comparable, T any] struct {
	rows  *statestore.WindowRows[K, joinRow[T]]
	reach int64
	pad   bool
	late  step[T]

	// The row that runs.
	key     K
	value   T
	time    int64
	matched bool
	failed  error
}

type intervalOp[K comparable, A, B any] struct {
	x     *task.Exec
	op    int32
	node  *task.Node
	piece int64
	keys  *keyType[K]
	left  *intervalSide[K, A]
	right *intervalSide[K, B]
	emit  func(x *task.Exec, k K, a *A, b *B) error

	// Called for each partner of the row that runs; made once, so that a row allocates nothing.
	meetRight func(r statestore.Row[joinRow[B]]) bool
	meetLeft  func(r statestore.Row[joinRow[A]]) bool

	padLeft, padRight func() error
	nameKey           func(dst []byte) []byte
	firing            int64 // end of the piece
	firingAt          int64
	firingGroup       statestore.Group
	firingKey         K
}

func (j *intervalOp[K, A, B]) start() {
	j.meetRight = func(r statestore.Row[joinRow[B]]) bool {
		return meet(j.x, j.op, j.left, j.right, r, func(v *A, p *B) error { return j.emit(j.x, j.left.key, v, p) })
	}
	j.meetLeft = func(r statestore.Row[joinRow[A]]) bool {
		return meet(j.x, j.op, j.right, j.left, r, func(v *B, p *A) error { return j.emit(j.x, j.right.key, p, v) })
	}
	j.padLeft = func() error {
		return padRows(j, j.left, func(v *A) error { return j.emit(j.x, j.firingKey, v, nil) })
	}
	j.padRight = func() error {
		return padRows(j, j.right, func(v *B) error { return j.emit(j.x, j.firingKey, nil, v) })
	}
	j.nameKey = func(dst []byte) []byte { return j.keys.appendText(dst, j.firingKey) }
	j.node.Fire = j.fire
	j.due()
}

// end is the end of the piece that holds t.
func (j *intervalOp[K, A, B]) end(t int64) int64 { return t&^(j.piece-1) + j.piece }

// joinStep is what one stream's rows go through.
func joinStep[K comparable, A, B, T, U any](j *intervalOp[K, A, B], own *intervalSide[K, T], other *intervalSide[K, U], meet func(statestore.Row[joinRow[U]]) bool, alone func(v *T) error) keyedStep[K, T] {
	return func(x *task.Exec, k K, v T) error {
		x.Op = j.op
		t, w := x.Time, j.node.Watermark
		// Partners are from t-other.reach to t+own.reach; of those, what has not been given up yet.
		from, to := t-other.reach, t+own.reach
		if w > -maxTime {
			from = max(from, min(w, 2*maxTime)-other.reach+1)
		}
		own.matched = false
		if from <= to {
			own.key, own.value, own.time, own.failed = k, v, t, nil
			last := j.end(to)
			end, ok := other.rows.Next(j.end(from) - 1)
			for ok && end <= last {
				lo, hi := from, to
				if end-j.piece >= from { // the whole piece is within reach
					lo = math.MinInt64
				}
				if end-1 <= to {
					hi = math.MaxInt64
				}
				if other.rows.Range(end, x.Group, k, lo, hi, meet); own.failed != nil {
					return own.failed
				}
				end, ok = other.rows.Next(end)
			}
		}
		end := j.end(t)
		if to > w && end > own.rows.Horizon() {
			own.rows.Add(end, x.Group, k, t, joinRow[T]{Value: v, Matched: own.matched && own.pad})
			j.node.Due(end - 1 + own.reach)
			return nil
		}
		switch {
		case own.pad && !own.matched:
			own.value = v
			own.key = k
			return alone(&own.value)
		case from > to && !own.pad: // so it is behind the watermark
			return takeLate(x, own.late, v)
		}
		return nil
	}
}

// meet is called for each partner of the row that runs on side own; it says whether to go on.
func meet[K comparable, T, U any](x *task.Exec, op int32, own *intervalSide[K, T], other *intervalSide[K, U], r statestore.Row[joinRow[U]], emit func(*T, *U) error) bool {
	p := r.Get()
	if other.pad && !p.Matched {
		p = r.Update()
		p.Matched = true
	}
	own.matched = true
	at := x.Time
	x.Time = max(at, r.Time())
	own.failed = emit(&own.value, &p.Value)
	x.Time, x.Op = at, op
	return own.failed == nil
}

// fire gives up the pieces whose rows can meet nothing any more, in the order of when that is so.
func (j *intervalOp[K, A, B]) fire(_ *task.Exec, _, watermark int64) error {
	for {
		l, lok := j.left.rows.Next(math.MinInt64)
		r, rok := j.right.rows.Next(math.MinInt64)
		la, ra := l-1+j.left.reach, r-1+j.right.reach
		lok, rok = lok && la <= watermark, rok && ra <= watermark
		var err error
		switch {
		case lok && (!rok || la <= ra):
			err = giveUp(j, j.left, l, j.padLeft)
		case rok:
			err = giveUp(j, j.right, r, j.padRight)
		default:
			j.due()
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (j *intervalOp[K, A, B]) due() {
	if end, ok := j.left.rows.Next(math.MinInt64); ok {
		j.node.Due(end - 1 + j.left.reach)
	}
	if end, ok := j.right.rows.Next(math.MinInt64); ok {
		j.node.Due(end - 1 + j.right.reach)
	}
}

// giveUp drops a piece, after its rows without partner were emitted, key by key.
func giveUp[K comparable, A, B, T any](j *intervalOp[K, A, B], s *intervalSide[K, T], end int64, pad func() error) error {
	at := end - 1 + s.reach
	if s.pad {
		j.firing, j.firingAt = end, at
		err := s.rows.Keys(end, func(g statestore.Group, k K) error {
			j.firingGroup, j.firingKey = g, k
			_, err := j.x.Atomic(j.op, g, at, pad, j.nameKey)
			return err
		})
		if err != nil {
			return err
		}
	}
	_, err := j.x.Atomic(j.op, 0, at, func() error { s.rows.Drop(end); return nil }, j.nameKey)
	return err
}

// padRows emits the rows of a key in a piece that have met nothing.
func padRows[K comparable, A, B, T any](j *intervalOp[K, A, B], s *intervalSide[K, T], emit func(v *T) error) (err error) {
	s.rows.Rows(j.firing, j.firingGroup, j.firingKey, func(r statestore.Row[joinRow[T]]) bool {
		p := r.Get()
		if p.Matched {
			return true
		}
		// A partner that must be earlier can no more come before the row's own time.
		j.x.Time, j.x.Op = max(j.firingAt, r.Time()), j.op
		s.value = p.Value
		err = emit(&s.value)
		return err == nil
	})
	return err
}

// lent gives user functions pointers to values that are theirs to keep: copies. Where the result of the function can
// hold no pointer there is nothing to keep them in, and one place is used again and again.
type lent[T any] struct {
	slot *T
}

func newLent[T any](result reflect.Type) *lent[T] {
	if canHoldPointer(result, nil) {
		return &lent[T]{}
	}
	return &lent[T]{slot: new(T)}
}

func (l *lent[T]) of(v *T) *T {
	if v == nil {
		return nil
	}
	p := l.slot
	if p == nil {
		p = new(T)
	}
	*p = *v
	return p
}

// canHoldPointer says whether a value of a type may hold a pointer to something that it does not own. Strings and
// times share only what never changes.
func canHoldPointer(t reflect.Type, seen map[reflect.Type]bool) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Map, reflect.Chan, reflect.Func, reflect.UnsafePointer:
		return true
	case reflect.Slice, reflect.Array:
		if seen[t] {
			return false
		}
		if seen == nil {
			seen = map[reflect.Type]bool{}
		}
		seen[t] = true
		return canHoldPointer(t.Elem(), seen)
	case reflect.Struct:
		if t == reflect.TypeFor[time.Time]() {
			return false
		}
		for i := range t.NumField() {
			if canHoldPointer(t.Field(i).Type, seen) {
				return true
			}
		}
	}
	return false
}
