package processor

import (
	"math"
	"time"

	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/processor/window"
	"github.com/millrace-stream/millrace/statestore"
)

// WindowJoin joins two streams window by window: f is called once for each pair of rows of a key that are in a window
// together, when the window fires; the event time of the results is End - 1 ms. The windows of left, and when they fire, hold
// for both streams; all but count windows do. Pairs come in the order of the left rows' times, then the right rows'. A window
// that fires again, because of a row within the allowed lateness or a Trigger, emits the pairs that are new, so no pair of a window
// comes twice. Late rows of the left stream go where left.LateTo says, those of the right one where LateRightTo says.
//
// Sessions are those of the rows of both streams together. SessionFunc has a gap for an Either[A, B], or for an A where both
// streams are of that type.
//
// For rows without a partner use CoGroup. State of windows of event time that lie in the same place for all keys and fire by
// the watermark alone: "<id>/left", "<id>/right", in which rows of overlapping windows are kept once; of all others that of
// ApplyWindow. Flink: join(...).where.equalTo.window.
func WindowJoin[K comparable, A, B, R any](left WindowedStream[K, A], right KeyedStream[K, B], id string, f func(A, B) R, o ...Option) KeyedStream[K, R] {
	return windowJoin(left, right, "window-join", id, f != nil, false, listedPairs[K](f), func(j *windowJoinOp[K, A, B], next keyedStep[K, R]) func() error {
		return func() error {
			as, bs := j.left.values, j.right.values
			if j.newOnly { // a row within the allowed lateness is in place of its side's
				as, bs = j.left.fresh(), j.right.fresh()
			}
			for i := range as {
				for k := range bs {
					j.x.Op = j.op
					if err := next(j.x, j.key, f(as[i], bs[k])); err != nil {
						return err
					}
				}
			}
			return nil
		}
	}, o)
}

// CoGroup hands all rows of a key in a window, of both streams, to f when the window fires; one of the two may be empty.
// Each is in the order of the rows' times. emit sends results, with the event time End - 1 ms. A window that fires again, because
// of a row within the allowed lateness or a Trigger, does so with all its rows. The slices must not be kept beyond the call.
// What is said of WindowJoin holds for windows, late rows and state. Flink: coGroup; outer joins of windows are made
// with it.
func CoGroup[K comparable, A, B, R any](left WindowedStream[K, A], right KeyedStream[K, B], id string, f func(w Window[K], left []A, right []B, emit func(R)) error, o ...Option) KeyedStream[K, R] {
	return windowJoin(left, right, "co-group", id, f != nil, true, listedGroups(f), func(j *windowJoinOp[K, A, B], next keyedStep[K, R]) func() error {
		e := &emitter[K, R]{next: next, x: j.x, op: j.op}
		emit := e.emit
		return func() error {
			e.key, e.err = j.key, nil
			j.x.Op = j.op
			w := Window[K]{Key: j.key, Start: instant(j.assigner.StartOf(j.end)), End: instant(j.end), Pane: Pane{Timing: OnTime}}
			if j.newOnly {
				w.Pane.Timing = Late
			}
			return e.done(j.x, f(w, j.left.values, j.right.values, emit))
		}
	}, o)
}

func windowJoin[K comparable, A, B, R any](left WindowedStream[K, A], right KeyedStream[K, B], kind, id string, complete, outer bool, listed listedJoin[K, A, B, R],
	result func(j *windowJoinOp[K, A, B], next keyedStep[K, R]) func() error, o []Option) KeyedStream[K, R] {
	l, r := left.s.must(), right.must()
	n := l.n.t.add(kind, spaceOperator, id, l.n, r.n)
	n.timed, n.joins = true, true
	if left.toLate {
		n.sendLate(0, left.late.id, typeName[A]())
	}
	n.with(o)
	n.need(complete, "function")
	out := newKeyed[K, R](n, l.keys)
	sameKeys(n, l.keys, r.keys)
	checkLate[A](n, 0)
	checkLate[B](n, 1)
	w := eitherWindows[K, A, B](left, l.keys)
	w.check(n)
	a := left.assigner
	switch {
	case a.Err() != nil:
		n.migrations = nil
		return out
	case a.Kind() == window.KindCount:
		n.fail("windows are %s: two streams have no count in common; use Window(window.Global()) with a Trigger", a)
		return out
	case !a.Aligned() || a.IsProcessingTime() || left.trigger != nil || left.isEarly || left.onUpdate || left.isIdle:
		listedWindowJoin(w, l, r, n, out, kind, complete, listed)
		return out
	}
	life := time.Duration(a.Size())*time.Millisecond + left.lateness
	lc, rc := windowRows[A](n, l.keys, "left", a, life), windowRows[B](n, l.keys, "right", a, life)
	build := func(b *builder) *windowJoinOp[K, A, B] {
		return shared(b, n, func() *windowJoinOp[K, A, B] {
			j := &windowJoinOp[K, A, B]{x: b.x, op: b.op(n), node: b.node(n), assigner: a, lateness: left.lateness.Milliseconds(), outer: outer, keys: l.keys}
			j.fireKey = result(j, out.s.step(b))
			sides := b.sides(n)
			var err error
			if j.left.rows, err = statestore.NewWindowRows(b.state(), n.specOf("left"), l.keys.codec, lc); err == nil {
				j.right.rows, err = statestore.NewWindowRows(b.state(), n.specOf("right"), r.keys.codec, rc)
			}
			if err != nil {
				b.fail(n, err)
				return nil
			}
			j.left.late, j.right.late = lateStep[A](sides, n, 0), lateStep[B](sides, n, 1)
			j.start()
			return j
		})
	}
	l.attach(func(b *builder) keyedStep[K, A] {
		j := build(b)
		if j == nil {
			return nil
		}
		return windowJoinStep(j, &j.left)
	})
	r.attach(func(b *builder) keyedStep[K, B] {
		j := build(b)
		if j == nil {
			return nil
		}
		return windowJoinStep(j, &j.right)
	})
	return out
}

// windowRows declares the rows of one side of a window join.
func windowRows[T any, K comparable](n *node, keys *keyType[K], name string, a window.Assigner, life time.Duration) statestore.Codec[T] {
	codec, migrations := stateCodec[T](n, name+" row type")
	spec := n.expiring(name, statestore.KindWindowRows, keys.schema(), schemaOf(codec), life)
	spec.Windows, spec.Aggregate, spec.Migrations = "slices of "+a.Layout(), "rows of windows", migrations
	return codec
}

// windowSide is one side of a window join in one subtask.
type windowSide[K comparable, T any] struct {
	rows   *statestore.WindowRows[K, T]
	late   step[T]
	values []T // of the key and window that fires
	added  []T // the row that came within the allowed lateness, if it is of this side
	take   func(r statestore.Row[T]) bool
}

// fresh are the rows of the side that pairs with a row within the allowed lateness are made of.
func (s *windowSide[K, T]) fresh() []T {
	if len(s.added) > 0 {
		return s.added
	}
	return s.values
}

func (s *windowSide[K, T]) start() {
	s.take = func(r statestore.Row[T]) bool { s.values = append(s.values, *r.Get()); return true }
}

// windowJoinOp joins windows in one subtask. Rows are kept by slice, which is the whole window where windows do not overlap. That
// a window has fired follows from the watermark alone, which is kept with the epoch.
type windowJoinOp[K comparable, A, B any] struct {
	x        *task.Exec
	op       int32
	node     *task.Node
	assigner window.Assigner
	lateness int64
	outer    bool
	keys     *keyType[K]
	left     windowSide[K, A]
	right    windowSide[K, B]

	// What fires. newOnly: because of a row within the allowed lateness.
	fireKey func() error
	newOnly bool
	end     int64
	group   statestore.Group
	key     K
	one     func() error
	perKey  func(g statestore.Group, k K) error
	alone   func(g statestore.Group, k K) error // perKey for keys of the right side
	seen    map[K]struct{}                      // keys of the window that have fired, where a key may come twice
	drop    func() error
	name    func(dst []byte) []byte
}

func (j *windowJoinOp[K, A, B]) start() {
	j.left.start()
	j.right.start()
	j.name = func(dst []byte) []byte { return j.keys.appendText(dst, j.key) }
	j.one = func() error { return j.fireOne() }
	j.drop = func() error {
		j.left.rows.Drop(j.end)
		j.right.rows.Drop(j.end)
		return nil
	}
	j.perKey = func(g statestore.Group, k K) error {
		if j.seen != nil {
			if _, ok := j.seen[k]; ok {
				return nil
			}
			j.seen[k] = struct{}{}
		}
		j.group, j.key = g, k
		_, err := j.x.Atomic(j.op, g, j.end-1, j.one, j.name)
		return err
	}
	j.alone = func(g statestore.Group, k K) error {
		if j.seen == nil { // one slice: a key that has left rows has fired
			has := false
			if j.left.rows.Rows(j.end, g, k, func(statestore.Row[A]) bool { has = true; return false }); has {
				return nil
			}
		}
		return j.perKey(g, k)
	}
	j.node.Fire = j.fire
	j.due(j.node.Watermark)
}

func windowJoinStep[K comparable, A, B, T any](j *windowJoinOp[K, A, B], own *windowSide[K, T]) keyedStep[K, T] {
	return func(x *task.Exec, k K, v T) error {
		x.Op = j.op
		w := j.node.Watermark
		_, slice := j.assigner.Slice(x.Time)
		end, last := j.assigner.Ends(slice)
		if end > last {
			return nil // in no window
		}
		if w >= last-1+j.lateness || slice <= own.rows.Horizon() { // gone, maybe under a shorter lateness
			return takeLate(x, own.late, v)
		}
		own.rows.Add(slice, x.Group, k, x.Time, v)
		for end-1 <= w {
			if w < end-1+j.lateness {
				if err := j.again(end, k, func() { own.added = append(own.added[:0], v) }, func() { clear(own.added); own.added = own.added[:0] }); err != nil {
					return err
				}
			}
			if end == last {
				break
			}
			end = j.assigner.NextEnd(end)
		}
		if end-1 > w {
			j.node.Due(end - 1)
		}
		j.node.Due(last - 1 + j.lateness)
		return nil
	}
}

// again fires a window for the key of a row that came after it had fired, as part of the row's step.
func (j *windowJoinOp[K, A, B]) again(end int64, k K, before, after func()) error {
	x := j.x
	at := x.Time
	before()
	j.newOnly, j.end, j.group, j.key = true, end, x.Group, k
	x.Time = end - 1
	err := j.fireOne()
	x.Time, x.Op, j.newOnly = at, j.op, false
	after()
	return err
}

// fireOne puts the rows of a key in a window together and calls the user's function.
func (j *windowJoinOp[K, A, B]) fireOne() error {
	defer j.release()
	from := j.assigner.StartOf(j.end)
	readSlices(&j.left, from, j.end, j.group, j.key)
	if !j.outer && len(j.left.values) == 0 {
		return nil
	}
	readSlices(&j.right, from, j.end, j.group, j.key)
	if !j.outer && len(j.right.values) == 0 {
		return nil
	}
	return j.fireKey()
}

// maxIdleRows bounds the room for the rows of a key that an operator keeps between windows.
const maxIdleRows = 1024

func (j *windowJoinOp[K, A, B]) release() {
	clear(j.left.values)
	clear(j.right.values)
	j.left.values, j.right.values = j.left.values[:0], j.right.values[:0]
	if cap(j.left.values) > maxIdleRows {
		j.left.values = nil
	}
	if cap(j.right.values) > maxIdleRows {
		j.right.values = nil
	}
}

// readSlices reads the rows of a key in the slices with ends in (from, to].
func readSlices[K comparable, T any](s *windowSide[K, T], from, to int64, g statestore.Group, k K) {
	for slice, ok := s.rows.Next(from); ok && slice <= to; slice, ok = s.rows.Next(slice) {
		s.rows.Rows(slice, g, k, s.take)
	}
}

// fire fires the windows whose last ms lies in (before, watermark], and drops the slices that no window needs any more.
func (j *windowJoinOp[K, A, B]) fire(_ *task.Exec, before, watermark int64) error {
	cursor := before
	if cursor < math.MaxInt64 {
		cursor++ // ends up to it have fired
	}
	for {
		end, ok := j.nextEnd(cursor)
		if !ok || end-1 > watermark {
			break
		}
		if err := j.fireWindow(end); err != nil {
			return err
		}
		cursor = end
	}
	gone := int64(math.MinInt64)
	for _, next := range []func(int64) (int64, bool){j.left.rows.Next, j.right.rows.Next} {
		for slice, ok := next(math.MinInt64); ok; slice, ok = next(slice) {
			if _, last := j.assigner.Ends(slice); last-1+j.lateness > watermark {
				break
			}
			gone = max(gone, slice)
		}
	}
	if gone > math.MinInt64 {
		j.end = gone
		if _, err := j.x.Atomic(j.op, 0, gone-1, j.drop, j.name); err != nil {
			return err
		}
	}
	j.due(watermark)
	return nil
}

// nextEnd is the lowest end of a window behind after that has a slice with rows.
func (j *windowJoinOp[K, A, B]) nextEnd(after int64) (end int64, ok bool) {
	for _, next := range []func(int64) (int64, bool){j.left.rows.Next, j.right.rows.Next} {
		for slice, has := next(math.MinInt64); has; slice, has = next(slice) {
			first, last := j.assigner.Ends(slice)
			if first > last || last <= after {
				continue
			}
			e := first
			if e <= after {
				e = j.assigner.NextEnd(after)
			}
			if !ok || e < end {
				end, ok = e, true
			}
			break // later slices have later windows
		}
	}
	return end, ok
}

// due finds out when something is due next: a window that has not fired, or a slice to drop.
func (j *windowJoinOp[K, A, B]) due(watermark int64) {
	if watermark < maxTime*2 {
		if end, ok := j.nextEnd(max(watermark, -2*maxTime) + 1); ok {
			j.node.Due(end - 1)
		}
	}
	for _, next := range []func(int64) (int64, bool){j.left.rows.Next, j.right.rows.Next} {
		if slice, ok := next(math.MinInt64); ok {
			_, last := j.assigner.Ends(slice)
			j.node.Due(last - 1 + j.lateness)
		}
	}
}

// fireWindow fires a window for all its keys, one after the other.
func (j *windowJoinOp[K, A, B]) fireWindow(end int64) error {
	j.end = end
	if j.assigner.Shared() {
		j.seen = map[K]struct{}{}
		defer func() { j.seen = nil }()
	}
	from := j.assigner.StartOf(end)
	for slice, ok := j.left.rows.Next(from); ok && slice <= end; slice, ok = j.left.rows.Next(slice) {
		if err := j.left.rows.Keys(slice, j.perKey); err != nil {
			return err
		}
	}
	for slice, ok := j.right.rows.Next(from); ok && slice <= end && j.outer; slice, ok = j.right.rows.Next(slice) {
		if err := j.right.rows.Keys(slice, j.alone); err != nil {
			return err
		}
	}
	return nil
}
