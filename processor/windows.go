package processor

import (
	"math"
	"reflect"
	"time"

	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/processor/window"
	"github.com/millrace-stream/millrace/statestore"
)

// Window is one window of one key: the times t with Start <= t < End, in UTC. Windows without an end, of window.Global
// and CountWindow, have zero times.
type Window[K comparable] struct {
	Key        K
	Start, End time.Time
	Pane       Pane
}

// Pane is one firing of a window.
type Pane struct {
	Timing Timing
	Index  int64 // how often this window of this key fired before
}

// Timing says when a window fired. Results of one window replace each other, unless the trigger purges.
type Timing uint8

// The timings.
const (
	Early  Timing = 1 + iota // before the watermark reached the window's last ms: more may come
	OnTime                   // because the watermark reached it; of windows without an end: always
	Late                     // because of an element that came after that, within the allowed lateness
)

func (t Timing) String() string {
	switch t {
	case Early:
		return "early"
	case OnTime:
		return "on-time"
	case Late:
		return "late"
	}
	return "unknown"
}

// WindowedStream is a KeyedStream cut into windows; an aggregation turns it into a stream again.
//
// A window fires when the operator's watermark reaches its last millisecond (watermark >= End - 1 ms): each key with
// values gives one result, whose event time is End - 1 ms. One rule says what is late, for all windows: an element is
// late for a window when the watermark, as it was before the element itself moved it, is >= End - 1 ms + the allowed
// lateness. It is a late record, dropped or sent to LateTo, when it is late for all its windows; else it counts in
// the others. An element of a session is never late when it lies in a session that is still kept, or touches one.
// Flink: WindowedStream.
type WindowedStream[K comparable, T any] struct {
	s        KeyedStream[K, T]
	assigner window.Assigner
	lateness time.Duration
	late     OutputTag[T]
	toLate   bool
	trigger  window.Trigger
	early    time.Duration
	isEarly  bool
	onUpdate bool
	idle     time.Duration
	isIdle   bool
}

// Window cuts the stream into windows. Flink: window.
func (s KeyedStream[K, T]) Window(a window.Assigner) WindowedStream[K, T] {
	s.must()
	return WindowedStream[K, T]{s: s, assigner: a}
}

// CountWindow makes, for each key, windows of its last size values, one after every slide values: with slide = size
// each value is in one. The first windows of a key with slide < size have less than size values; what is left behind
// the last full slide does not fire. Event time plays no part, and no record is late; a result has the highest event
// time of its values. State stays for each key. Flink: countWindow.
func (s KeyedStream[K, T]) CountWindow(size, slide int) WindowedStream[K, T] {
	return s.Window(window.Count(size, slide))
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

// Trigger says when windows fire, instead of the watermark. State is then kept for each window of each key, with a
// timer of its own: overlapping windows share nothing, and an element costs as much as it has windows. Flink:
// trigger.
func (w WindowedStream[K, T]) Trigger(t window.Trigger) WindowedStream[K, T] {
	w.trigger = t
	return w
}

// EmitEarly also fires windows before the watermark does, as Early: every so often of processing time, for the keys
// whose window has changed since. After a restart, what is open may be fired once more. Flink:
// table.exec.emit.early-fire.
func (w WindowedStream[K, T]) EmitEarly(every time.Duration) WindowedStream[K, T] {
	w.early, w.isEarly = every, true
	return w
}

// EmitOnUpdate also fires a window for each element that is added to it, as Early; of overlapping windows, each.
func (w WindowedStream[K, T]) EmitOnUpdate() WindowedStream[K, T] {
	w.onUpdate = true
	return w
}

// AdvanceWhenIdle lets processing time move the operator's watermark on when no record has come to this subtask of it
// for d: from then on, the watermark goes on at the pace of the clock, from where it stood when the silence began, as
// long as a window is open. So the last windows of a quiet stream fire without a later record: a window of 10 s some
// 10 s after its last record, plus the bound on disorder.
//
// The price: results depend on the clock. A record that comes after the silence, with an event time that the
// watermark has passed meanwhile, is late, although it came in order; so when records are held up before they get
// here (a producer that was cut off, a long pause of this app), they are dropped or go to LateTo. d must be longer
// than such delays. Idle of the source is something else: it lets the other partitions move the watermark on, and
// does nothing when all are quiet.
func (w WindowedStream[K, T]) AdvanceWhenIdle(d time.Duration) WindowedStream[K, T] {
	w.idle, w.isIdle = d, true
	return w
}

// Aggregate folds the values of each key and window; result makes of it what is emitted when the window fires. State:
// "<id>/windows". Flink: aggregate with AggregateFunction and ProcessWindowFunction.
func Aggregate[K comparable, T, A, R any](w WindowedStream[K, T], id string, agg Aggregator[T, A], result func(Window[K], A) R, o ...Option) KeyedStream[K, R] {
	d := &windowDef[K, T, A, R]{kind: "aggregate", aggregate: agg.name, complete: agg.Add != nil && result != nil, add: agg.add(), merge: agg.Merge}
	d.open = func(_ *builder, _ *node, next keyedStep[K, R], _ *windowHost[T]) windowResult[K, A] {
		return func(x *task.Exec, w Window[K], acc *A) error { return next(x, w.Key, result(w, *acc)) }
	}
	return windowed(w, id, d, o)
}

// ReduceWindow combines the values of each key and window to one, which is emitted when the window fires. f also joins
// what windows that merge have kept. State: "<id>/windows". Flink: reduce on a WindowedStream.
func ReduceWindow[K comparable, T any](w WindowedStream[K, T], id string, f func(kept, v T) T, o ...Option) KeyedStream[K, T] {
	d := &windowDef[K, T, T, T]{kind: "reduce-window", complete: f != nil,
		add: func(acc *T, existed bool, v T) {
			if existed {
				v = f(*acc, v)
			}
			*acc = v
		},
		merge: func(into, from *T) { *into = f(*into, *from) },
	}
	d.open = func(_ *builder, _ *node, next keyedStep[K, T], _ *windowHost[T]) windowResult[K, T] {
		return func(x *task.Exec, w Window[K], acc *T) error { return next(x, w.Key, *acc) }
	}
	return windowed(w, id, d, o)
}

// windowDef is what an aggregation does with its windows.
type windowDef[K comparable, T, A, R any] struct {
	kind, aggregate string
	complete        bool // all functions are there
	add             func(acc *A, existed bool, v T)
	merge           func(into, from *A)
	rows            bool // the values themselves are kept beside the accumulators
	declare         func(n *node)
	// Of joins, whose values are Either: their codec, and what takes late ones in place of LateTo.
	values func(n *node) (statestore.Codec[T], []string)
	late   func(b *builder) step[T]
	// open makes the result of one subtask.
	open func(b *builder, n *node, next keyedStep[K, R], host *windowHost[T]) windowResult[K, A]
}

// windowHost is what an operator of windows offers to the result.
type windowHost[T any] struct {
	values func(yield func(T) bool)               // those of the window that fires, in order, if rows is set
	rows   func(yield func(at rowKey, v *T) bool) // likewise, of windows that each key has for itself
	state  windowState
}

// windowResult sends on what becomes of one window of a key. acc is for reading.
type windowResult[K comparable, A any] func(x *task.Exec, w Window[K], acc *A) error

// storeWindows is the name of the accumulators of windows, storeRows that of kept values.
const (
	storeWindows = "windows"
	storePanes   = "panes"
	storeRows    = "rows"
)

func windowed[K comparable, T, A, R any](w WindowedStream[K, T], id string, d *windowDef[K, T, A, R], o []Option) KeyedStream[K, R] {
	s := w.s.must()
	n := s.n.t.add(d.kind, spaceOperator, id, s.n).with(o)
	n.timed = true
	n.need(d.complete, "function")
	w.check(n)
	a := w.assigner
	if a.Merges() && d.complete && d.merge == nil {
		n.fail("windows of %s put accumulators together: the Aggregator needs Merge (Fold(...).Merging(f))", a)
	}
	out := newKeyed[K, R](n, s.keys)
	if a.Err() != nil {
		n.migrations = nil
		return out
	}
	switch {
	case a.Kind() == window.KindCount:
		countWindows(w, n, d, out)
	case a.Aligned() && w.trigger == nil:
		slicedWindows(w, n, d, out)
	default:
		s.attach(listedWindows(w, n, d, out))
	}
	return out
}

// check collects what is wrong with the settings, and notes them.
func (w *WindowedStream[K, T]) check(n *node) {
	a := w.assigner
	if err := a.Err(); err != nil {
		n.fail("%w", err)
		return
	}
	n.detail = a.String()
	whole := func(what string, d, least time.Duration) {
		switch {
		case d < least:
			n.fail("%s is %s, want at least %s", what, d, least)
		case d%time.Millisecond != 0:
			n.fail("%s is %s, want a whole number of milliseconds", what, d)
		}
	}
	switch {
	case w.lateness < 0:
		n.fail("AllowedLateness is negative: %s", w.lateness)
	case w.lateness > 0 && (a.IsProcessingTime() || !a.Aligned() && a.Kind() != window.KindSession):
		n.fail("AllowedLateness has no meaning: in windows of %s nothing is late", a)
	default:
		whole("AllowedLateness", w.lateness, 0)
	}
	if w.lateness > 0 {
		n.detail += " allowed-lateness " + w.lateness.String()
	}
	if w.toLate && w.late.id == "" {
		n.fail("LateTo: the tag is empty; make it with NewOutputTag")
	}
	if w.toLate {
		n.lateTag, n.lateType = w.late.id, typeName[T]()
	}
	if w.trigger != nil {
		text, err := w.trigger.Describe()
		if err != nil {
			n.fail("%w", err)
		}
		n.detail += " trigger " + text
		if a.Kind() == window.KindCount {
			n.fail("CountWindow has a trigger of its own; use Window(window.Global()) with a Trigger")
		}
		if w.isEarly || w.onUpdate {
			n.fail("EmitEarly and EmitOnUpdate have no effect beside a Trigger, which decides about all firings")
		}
	} else if a.Kind() == window.KindGlobal {
		n.fail("a global window never ends; say with Trigger when it fires")
	}
	if w.isEarly {
		whole("EmitEarly", w.early, time.Millisecond)
		n.detail += " emit-early " + w.early.String()
	}
	if w.onUpdate {
		n.detail += " emit-on-update"
	}
	if (w.isEarly || w.onUpdate) && a.Kind() == window.KindCount {
		n.fail("EmitEarly and EmitOnUpdate are not for count windows; make slide smaller")
	}
	if w.isIdle {
		whole("AdvanceWhenIdle", w.idle, time.Millisecond)
		n.detail += " advance-when-idle " + w.idle.String()
		if a.IsProcessingTime() || a.Kind() == window.KindCount {
			n.fail("AdvanceWhenIdle has no meaning: windows of %s do not look at the watermark", a)
		}
	}
	if f, of := a.Gap(); f != nil && of != reflect.TypeFor[T]() {
		n.fail("the gap function of SessionFunc takes %s, the stream is of %s", of, typeName[T]())
	}
}

// windowCommon is what the operators of windows have in common in one subtask.
type windowCommon[K comparable, T, A any] struct {
	x          *task.Exec
	op         int32
	node       *task.Node
	assigner   window.Assigner
	processing bool
	lateness   int64
	add        func(acc *A, existed bool, v T)
	merge      func(into, from *A)
	codec      statestore.Codec[A]
	result     windowResult[K, A]
	host       windowHost[T]
	late       step[T]
	keys       *keyType[K]
	idle       *idleAdvance // nil: no AdvanceWhenIdle
	onUpdate   bool
	early      int64 // ms, 0 = never
	earlyAt    int64 // when the next early firing is due, 0 = it is not

	key  K // of the step that fires
	name func(dst []byte) []byte
	buf  []byte
}

func (c *windowCommon[K, T, A]) open(b *builder, n *node, w *WindowedStream[K, T], add func(acc *A, existed bool, v T), merge func(into, from *A), codec statestore.Codec[A]) {
	c.x, c.op, c.node, c.assigner, c.processing = b.x, b.op(n), b.node(n), w.assigner, w.assigner.IsProcessingTime()
	c.lateness, c.add, c.merge, c.codec, c.keys = w.lateness.Milliseconds(), add, merge, codec, w.s.s.keys
	c.host.state.dropped = math.MinInt64
	c.onUpdate, c.early = w.onUpdate, w.early.Milliseconds()
	if w.isIdle {
		c.idle = &idleAdvance{after: w.idle.Milliseconds(), x: b.x, node: c.node}
	}
	if w.toLate {
		c.late, _ = b.sides(n)[w.late.id].(step[T])
	}
	c.name = func(dst []byte) []byte { return c.keys.appendText(dst, c.key) }
}

// tooLate deals with a record that is late for all its windows.
func (c *windowCommon[K, T, A]) tooLate(x *task.Exec, v T) error {
	x.CountLate()
	if c.idle != nil {
		c.idle.record()
	}
	if c.late != nil {
		return c.late(x, v)
	}
	return nil
}

// join adds from, which stays as it is, to into, which nothing else has a part of.
func (c *windowCommon[K, T, A]) join(into, from *A) {
	if c.codec.Flat() {
		c.merge(into, from)
		return
	}
	var own A
	c.clone(&own, from)
	c.merge(into, &own)
}

// clone makes a copy that shares nothing that may be changed.
func (c *windowCommon[K, T, A]) clone(dst, src *A) {
	if c.codec.Flat() {
		*dst = *src
		return
	}
	c.buf = c.codec.Append(c.buf[:0], src)
	if err := c.codec.Decode(c.buf, dst); err != nil {
		panic(&statestore.Fault{Err: err}) // it was written just now
	}
}

// emit sends the result of the window with that end on, at the event time at.
func (c *windowCommon[K, T, A]) emit(at, end int64, w Window[K], acc *A) error {
	x := c.x
	c.host.state.end = end
	was := x.Time
	x.Time = at
	err := c.result(x, w, acc)
	x.Time, x.Op = was, c.op
	return err
}

// idleAdvance moves the watermark of an operator on with the clock while no record comes: AdvanceWhenIdle.
type idleAdvance struct {
	after int64
	x     *task.Exec
	node  *task.Node
	armed bool
	seen  int64 // processing time of the last record

	// The watermark goes on from (at, from); moved is where it stands for that.
	at, from, moved int64
	running         bool
}

func (i *idleAdvance) record() {
	i.seen, i.running = i.x.Now(), false
	i.arm(i.seen + i.after)
}

func (i *idleAdvance) arm(at int64) {
	if !i.armed {
		i.armed = true
		i.node.DueProcessing(at)
	}
}

// tick looks whether the stream is quiet. It is also called when the watermark moved, since other windows are due then.
func (i *idleAdvance) tick(now int64) {
	i.armed = false
	due := i.node.NextDue()
	if due == task.Never {
		i.running = false
		return
	}
	if quiet := now - i.seen; quiet < i.after {
		i.arm(i.seen + i.after)
		return
	}
	w := i.node.Watermark
	switch {
	case i.running && w <= i.moved:
	case i.running: // something else moved it, records of other operators' keys: it goes on from there
		i.at, i.from = now, w
	default:
		i.running, i.at, i.from = true, i.seen, w
		if w < -maxTime { // there is none yet
			i.from = due - i.after
		}
	}
	i.moved = max(w, i.from+now-i.at)
	if i.moved >= due {
		i.node.Advance(i.moved)
		return // and is asked again when it has fired
	}
	i.arm(i.at + due - i.from)
}

// fired arms anew after windows fired.
func (i *idleAdvance) fired() {
	if i.node.NextDue() != task.Never {
		i.arm(i.x.Now())
	}
}
