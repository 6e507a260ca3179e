package processor

import (
	"math"
	"slices"
	"time"

	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/processor/window"
	"github.com/millrace-stream/millrace/statestore"
)

// Window is one window of one key: the times t with Start <= t < End. Times are in UTC.
type Window[K comparable] struct {
	Key        K
	Start, End time.Time
}

// WindowedStream is a KeyedStream cut into windows; an aggregation turns it into a stream again. Flink:
// WindowedStream.
type WindowedStream[K comparable, T any] struct {
	s        KeyedStream[K, T]
	assigner window.Assigner
	lateness time.Duration
	late     OutputTag[T]
	toLate   bool
}

// Window cuts the stream into windows of event time. A window fires when the watermark of the operator reaches its
// last millisecond (watermark >= End - 1 ms): each key with values gives one result, whose event time is End - 1 ms.
// Flink: window, with EventTimeTrigger.
func (s KeyedStream[K, T]) Window(a window.Assigner) WindowedStream[K, T] {
	s.must()
	return WindowedStream[K, T]{s: s, assigner: a}
}

// AllowedLateness keeps windows for d longer than they last: a record that comes after its window fired, but before
// the watermark passes End - 1 ms + d, is added and fires its window again for its key. Default 0. Flink:
// allowedLateness.
func (w WindowedStream[K, T]) AllowedLateness(d time.Duration) WindowedStream[K, T] {
	w.lateness = d
	return w
}

// LateTo sends records that come too late to a side output (SideOutput with the tag) instead of dropping them; both
// are counted. Flink: sideOutputLateData.
func (w WindowedStream[K, T]) LateTo(tag OutputTag[T]) WindowedStream[K, T] {
	w.late, w.toLate = tag, true
	return w
}

// Aggregate folds the values of each key and window; result makes of it what is emitted when the window fires. State:
// "<id>/windows". Flink: aggregate with AggregateFunction and ProcessWindowFunction.
func Aggregate[K comparable, T, A, R any](w WindowedStream[K, T], id string, agg Aggregator[T, A], result func(Window[K], A) R, o ...Option) KeyedStream[K, R] {
	return windowed(w, "aggregate", id, agg.name, agg.Add != nil && result != nil, agg.add(), result, o)
}

// ReduceWindow combines the values of each key and window to one, which is emitted when the window fires. State:
// "<id>/windows". Flink: reduce on a WindowedStream.
func ReduceWindow[K comparable, T any](w WindowedStream[K, T], id string, f func(kept, v T) T, o ...Option) KeyedStream[K, T] {
	return windowed(w, "reduce-window", id, "", f != nil, func(acc *T, existed bool, v T) {
		if existed {
			v = f(*acc, v)
		}
		*acc = v
	}, func(_ Window[K], acc T) T { return acc }, o)
}

func windowed[K comparable, T, A, R any](w WindowedStream[K, T], kind, id, aggregate string, complete bool, add func(acc *A, existed bool, v T), result func(Window[K], A) R, o []Option) KeyedStream[K, R] {
	s := w.s.must()
	n := s.n.t.add(kind, spaceOperator, id, s.n).with(o)
	n.timed = true
	n.need(complete, "function")
	if err := w.assigner.Err(); err != nil {
		n.fail("%w", err)
	}
	switch {
	case w.lateness < 0:
		n.fail("AllowedLateness is negative: %s", w.lateness)
	case w.lateness%time.Millisecond != 0:
		n.fail("AllowedLateness is %s, want a whole number of milliseconds", w.lateness)
	}
	if w.toLate && w.late.id == "" {
		n.fail("LateTo: the tag is empty; make it with NewOutputTag")
	}
	if w.toLate {
		n.lateTag, n.lateType = w.late.id, typeName[T]()
	}
	n.detail = w.assigner.String()
	if w.lateness > 0 {
		n.detail += " allowed-lateness " + w.lateness.String()
	}
	codec, migrations := stateCodec[A](n, "state type")
	spec := n.expiring("windows", statestore.KindWindows, s.keys.schema(), schemaOf(codec), time.Duration(w.assigner.Size())*time.Millisecond+w.lateness)
	spec.Windows, spec.Aggregate, spec.Migrations = w.assigner.Layout(), aggregate, migrations
	out := newKeyed[K, R](n, s.keys)
	s.attach(func(b *builder) keyedStep[K, T] {
		store, err := statestore.NewWindows(b.state(), n.specOf("windows"), s.keys.codec, codec)
		if err != nil {
			b.fail(n, err)
			return nil
		}
		op := &windowOp[K, T, A, R]{x: b.x, op: b.op(n), node: b.node(n), store: store, size: w.assigner.Size(),
			lateness: w.lateness.Milliseconds(), assigner: w.assigner, result: result, keys: s.keys}
		op.next = out.s.step(b)
		if w.toLate {
			op.late, _ = b.sides(n)[w.late.id].(step[T])
		}
		op.start()
		return op.step(add)
	})
	return out
}

// windowOp aggregates tumbling windows in one subtask. A window is open until the watermark reaches its last
// millisecond, then it has fired; it is dropped when the watermark has gone lateness further. Which of the two it is
// follows from the watermark alone, which is kept with the epoch, so nothing fires twice after a restart.
type windowOp[K comparable, T, A, R any] struct {
	x        *task.Exec
	op       int32
	node     *task.Node
	store    *statestore.Windows[K, A]
	assigner window.Assigner
	size     int64
	lateness int64
	result   func(Window[K], A) R
	next     keyedStep[K, R]
	late     step[T]
	keys     *keyType[K]

	// ends are those of the windows that are kept, ascending, if lateness is allowed: the store only tells its lowest,
	// and fired windows lie below those still to fire. Ends of windows that were rolled back may be among them.
	ends []int64

	// What is being fired; the functions are made once, so that firing a key allocates nothing.
	end   int64
	key   K
	acc   *A
	emit1 func() error
	entry func(g statestore.Group, k K, v *A) error
	drop1 func() error
	name  func(dst []byte) []byte
}

func (o *windowOp[K, T, A, R]) start() {
	o.emit1 = func() error { return o.emit(o.end, o.key, *o.acc) }
	o.name = func(dst []byte) []byte {
		key := o.key
		b, err := o.keys.serde.Append(dst, &key)
		if err != nil {
			return dst
		}
		return b
	}
	o.entry = func(g statestore.Group, k K, v *A) error {
		o.key, o.acc = k, v
		_, err := o.x.Atomic(o.op, g, o.end-1, o.emit1, o.name)
		return err
	}
	o.drop1 = func() error { o.store.Drop(o.end); return nil }
	o.node.Fire = o.fire
	if o.lateness > 0 {
		o.findEnds()
	}
	o.dueNext(o.node.Watermark)
}

func (o *windowOp[K, T, A, R]) step(add func(acc *A, existed bool, v T)) keyedStep[K, T] {
	return func(x *task.Exec, k K, v T) error {
		x.Op = o.op
		end := o.assigner.Start(x.Time) + o.size
		w := o.node.Watermark
		if w >= end-1+o.lateness || end <= o.store.Horizon() { // dropped, maybe under a shorter lateness
			x.CountLate()
			if o.late != nil {
				return o.late(x, v)
			}
			return nil
		}
		acc, existed := o.store.Update(end, x.Group, k)
		add(acc, existed, v)
		if o.lateness > 0 && !existed {
			if i, ok := slices.BinarySearch(o.ends, end); !ok {
				o.ends = slices.Insert(o.ends, i, end)
			}
		}
		if w < end-1 {
			o.node.Due(end - 1)
			return nil
		}
		o.node.Due(end - 1 + o.lateness)
		return o.emit(end, k, *acc)
	}
}

// emit sends one result on.
func (o *windowOp[K, T, A, R]) emit(end int64, k K, acc A) error {
	x := o.x
	at := x.Time
	x.Time = end - 1
	err := o.next(x, k, o.result(Window[K]{Key: k, Start: instant(end - o.size), End: instant(end)}, acc))
	x.Time = at
	return err
}

// fire fires the windows whose last millisecond lies in (before, watermark] and drops those that nothing can reach
// any more.
func (o *windowOp[K, T, A, R]) fire(_ *task.Exec, before, watermark int64) error {
	if o.lateness == 0 {
		for {
			end, ok := o.store.Next()
			if !ok {
				return nil
			}
			if end-1 > watermark {
				o.node.Due(end - 1)
				return nil
			}
			if end-1 > before { // else it has fired, and was kept for a lateness that was allowed then
				if err := o.fireWindow(end); err != nil {
					return err
				}
			}
			if err := o.drop(end); err != nil {
				return err
			}
		}
	}
	if before < math.MaxInt64-1 {
		end, ok := o.after(before + 1)
		for ok && end-1 <= watermark {
			if err := o.fireWindow(end); err != nil {
				return err
			}
			end, ok = o.after(end)
		}
	}
	gone := 0
	for gone < len(o.ends) && o.ends[gone]-1+o.lateness <= watermark {
		gone++
	}
	if gone > 0 {
		if err := o.drop(o.ends[gone-1]); err != nil {
			return err
		}
		o.ends = slices.Delete(o.ends, 0, gone)
	}
	o.dueNext(watermark)
	return nil
}

func (o *windowOp[K, T, A, R]) fireWindow(end int64) error {
	o.end = end
	return o.store.Each(end, o.entry)
}

func (o *windowOp[K, T, A, R]) drop(end int64) error {
	o.end = end
	_, err := o.x.Atomic(o.op, 0, end-1, o.drop1, o.name)
	return err
}

// dueNext finds out when something is due next: a window that has not fired, or one to drop.
func (o *windowOp[K, T, A, R]) dueNext(watermark int64) {
	if end, ok := o.store.Next(); ok {
		o.node.Due(end - 1 + o.lateness)
	}
	if o.lateness > 0 && watermark < math.MaxInt64-1 {
		if end, ok := o.after(watermark + 1); ok {
			o.node.Due(end - 1)
		}
	}
}

// after gives the lowest kept end behind end.
func (o *windowOp[K, T, A, R]) after(end int64) (next int64, ok bool) {
	i, found := slices.BinarySearch(o.ends, end)
	if found {
		i++
	}
	if i == len(o.ends) {
		return 0, false
	}
	return o.ends[i], true
}

// findEnds learns the ends of restored windows by dropping one after the other in a step that is undone.
func (o *windowOp[K, T, A, R]) findEnds() {
	state := o.x.State()
	state.Begin()
	for {
		end, ok := o.store.Next()
		if !ok {
			break
		}
		o.ends = append(o.ends, end)
		o.store.Drop(end)
	}
	state.Rollback()
}
