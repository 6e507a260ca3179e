package processor

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
)

// Process runs user code with keyed state and timers. setup runs once in each subtask: it makes the state handles and
// registers the callbacks, which share them; nothing is shared between subtasks. It also runs once while the topology
// is built, without any state, so it has no side effects: those belong into OnOpen. Flink: KeyedProcessFunction.
func Process[K comparable, T, R any](from KeyedStream[K, T], id string, setup func(ctx *KeyedContext[K, T, R]), o ...Option) KeyedStream[K, R] {
	s := from.must()
	n := s.n.t.add("process", spaceOperator, id, s.n).with(o)
	n.timed, n.emitsToSides = true, true
	out := newKeyed[K, R](n, s.keys)
	if setup == nil {
		n.fail("setup function is nil")
		return out
	}
	dry := &KeyedContext[K, T, R]{keyedContext: keyedContext[K]{contextBase: contextBase{n: n}, keys: s.keys}}
	if !dry.setUp(func() { setup(dry) }) {
		return out
	}
	n.need(dry.onRecord != nil, "OnRecord callback")
	dry.declareTimers()
	s.attach(func(b *builder) keyedStep[K, T] {
		c := &KeyedContext[K, T, R]{keyedContext: keyedContext[K]{contextBase: newContextBase(b, n), keys: s.keys}}
		c.next = out.s.step(b)
		if !c.setUp(func() { setup(c) }) || !c.openTimers() {
			return nil
		}
		return c.step
	})
	return out
}

// Names of the timer stores; names of user states have no dots.
const (
	eventTimers      = "timers.event"
	processingTimers = "timers.processing"
)

// newContextBase makes the context of an operator in one subtask.
func newContextBase(b *builder, n *node) contextBase {
	return contextBase{n: n, b: b, x: b.x, op: b.op(n), node: b.node(n), sides: b.sides(n)}
}

// setUp runs a setup function; its panics are build errors, not the end of the program. OnOpen and OnClose are
// registered with the subtask.
func (c *contextBase) setUp(setup func()) (ok bool) {
	if err := c.runSetup(setup); err != nil {
		if c.b == nil {
			c.n.fail("%w", err)
		} else {
			c.b.fail(c.n, err)
		}
		return false
	}
	if c.b == nil {
		return true
	}
	if c.onOpen != nil {
		c.b.open = append(c.b.open, func() error {
			c.opening = true
			defer func() { c.opening = false }()
			if err := c.onOpen(); err != nil {
				return fmt.Errorf("operator %q: OnOpen: %w", c.n.display(), err)
			}
			return nil
		})
	}
	if c.onClose != nil {
		c.b.task.OnClose(func() error {
			if err := c.onClose(); err != nil {
				return fmt.Errorf("operator %q: OnClose: %w", c.n.display(), err)
			}
			return nil
		})
	}
	return true
}

func (c *contextBase) runSetup(setup func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			if f, ok := r.(*statestore.Fault); ok {
				err = fmt.Errorf("open state: %w", f.Err)
				return
			}
			err = fmt.Errorf("setup function panicked: %v", r)
		}
	}()
	setup()
	return errors.Join(c.errs...)
}

// Domain tells the two kinds of time apart. Flink: TimeDomain.
type Domain uint8

// The domains of a Timer.
const (
	EventTime      Domain = 1 + iota // the watermark reached it
	ProcessingTime                   // the clock of the machine did
)

// Timer is a timer that fires.
type Timer struct {
	At     time.Time
	Domain Domain
}

// Position is where a record was read.
type Position struct {
	Topic     string
	Partition int32
	Offset    int64
}

// Subtask tells which part of the work a context belongs to.
type Subtask struct {
	SubTopology int
	Index       int // 0 to Parallelism-1
	Parallelism int
}

// KeyedContext is what the setup function and the callbacks of Process use. There is one for each subtask; while a
// callback runs, Key and state are those of the current key. It must not be used by another goroutine.
type KeyedContext[K comparable, T, R any] struct {
	keyedContext[K]
	next     keyedStep[K, R]
	onRecord func(T) error
}

// contextBase is the part of a context without types.
type contextBase struct {
	n       *node
	errs    []error  // of the setup
	b       *builder // nil: the setup runs at build, there is no state
	names   map[string]bool
	onOpen  func() error
	onClose func() error

	x       *task.Exec
	op      int32
	node    *task.Node
	active  bool           // a callback runs
	opening bool           // OnOpen runs
	failed  error          // of an Emit or a misuse in the running callback
	sides   map[string]any // steps behind side outputs, by tag
}

// keyedContext is the part of a context that knows the key but not the values: state handles hang on it.
type keyedContext[K comparable] struct {
	contextBase
	keys    *keyType[K]
	key     K
	onTimer func(Timer) error
	events  *statestore.Timers[K]
	procs   *statestore.Timers[K]
	fireOne func() error
	popOne  func() error
	nameKey func(dst []byte) []byte
	firing  *statestore.Timers[K]
	upTo    int64
	domain  Domain
}

// SideContext is any context that may emit to side outputs.
type SideContext interface{ base() *contextBase }

func (c *contextBase) base() *contextBase { return c }

// StateContext is any context that has a current key: the first argument of Value, List and MapOf.
type StateContext[K comparable] interface{ keyed() *keyedContext[K] }

func (c *keyedContext[K]) keyed() *keyedContext[K] { return c }

// OnRecord sets the callback for each value; it must be set. An error, or a panic, undoes all that the callback did
// and goes by the operator's policy. Flink: processElement.
func (c *KeyedContext[K, T, R]) OnRecord(f func(v T) error) { c.onRecord = f }

// OnTimer sets the callback for timers. Event time and state are those of the timer's key. Flink: onTimer.
func (c *keyedContext[K]) OnTimer(f func(Timer) error) { c.onTimer = f }

// OnOpen sets a callback that runs once before the first record, without a key. Flink: open.
func (c *contextBase) OnOpen(f func() error) { c.onOpen = f }

// OnClose sets a callback that runs once when the subtask ends. It does not run when the process is killed, so nothing
// may depend on it. Flink: close.
func (c *contextBase) OnClose(f func() error) { c.onClose = f }

// Key is the current key.
func (c *keyedContext[K]) Key() K { return c.key }

// Timestamp is the event time of the current record or timer. Flink: timestamp.
func (c *contextBase) Timestamp() time.Time {
	c.check()
	return instant(c.x.Time)
}

// Watermark is the operator's watermark: no record at or before it is expected any more. The zero time before the
// first. Flink: currentWatermark.
func (c *contextBase) Watermark() time.Time {
	c.check()
	return instant(c.node.Watermark)
}

// ProcessingTime is the time of the clock, as of the last look at it (at least once for each batch of records).
func (c *contextBase) ProcessingTime() time.Time {
	c.check()
	return instant(c.x.Now())
}

// Headers are those of the current record; nil in a timer. They must not be changed.
func (c *contextBase) Headers() []Header {
	c.check()
	rec, _, _ := c.x.Record()
	if rec == nil {
		return nil
	}
	return rec.Headers
}

// Position is where the current record was read; zero in a timer.
func (c *contextBase) Position() Position {
	c.check()
	rec, topic, partition := c.x.Record()
	if rec == nil {
		return Position{}
	}
	return Position{topic, partition, rec.Offset}
}

// Subtask is the subtask that the context belongs to; zero while the topology is built.
func (c *contextBase) Subtask() Subtask {
	if c.x == nil {
		return Subtask{}
	}
	id, parallelism := c.x.Subtask()
	return Subtask{id.SubTopology, id.Index, parallelism}
}

// Emit sends a value on, with the current key and event time. Flink: Collector.collect.
func (c *KeyedContext[K, T, R]) Emit(v R) {
	if c.usable("Emit") {
		c.failed = c.next(c.x, c.key, v)
		c.x.Op = c.op
	}
}

// EmitAt is Emit with another event time. One that is not after the watermark is late for the operators behind.
func (c *KeyedContext[K, T, R]) EmitAt(v R, at time.Time) { c.at("EmitAt", at, func() { c.Emit(v) }) }

// at runs emit with another event time.
func (c *contextBase) at(what string, at time.Time, emit func()) {
	ms, ok := millis(at)
	if !ok {
		c.misuse("%s: the time is millions of years away", what)
		return
	}
	now := c.x.Time
	c.x.Time = ms
	emit()
	c.x.Time = now
}

// check refuses what needs a current key outside of a callback.
func (c *contextBase) check() {
	if !c.active {
		panic("it is used outside of a callback for records or timers, where there is no current key, time or state")
	}
}

// usable says that a callback runs that has not failed yet.
func (c *contextBase) usable(what string) bool {
	if !c.active {
		panic(what + " is called outside of a callback for records or timers")
	}
	return c.failed == nil
}

func (c *contextBase) misuse(format string, args ...any) {
	if c.failed == nil {
		c.failed = c.x.Fail(c.op, task.UserCode, fmt.Errorf(format, args...))
	}
}

// RegisterEventTimer sets a timer of the current key that fires when the watermark reaches at. Timers of a key for the
// same ms are one. A time that the watermark has reached already fires at once after the callback.
func (c *keyedContext[K]) RegisterEventTimer(at time.Time) {
	if ms, ok := c.timer("RegisterEventTimer", at); ok {
		c.events.Set(ms, c.x.Group, c.key, 0)
		c.node.Due(ms)
	}
}

// RegisterProcessingTimer sets a timer of the current key that fires when the clock reaches at.
func (c *keyedContext[K]) RegisterProcessingTimer(at time.Time) {
	if ms, ok := c.timer("RegisterProcessingTimer", at); ok {
		c.procs.Set(ms, c.x.Group, c.key, 0)
		c.node.DueProcessing(ms)
	}
}

// DeleteEventTimer removes a timer of the current key, if it is set.
func (c *keyedContext[K]) DeleteEventTimer(at time.Time) {
	if ms, ok := c.timer("DeleteEventTimer", at); ok {
		c.events.Delete(ms, c.x.Group, c.key, 0)
	}
}

// DeleteProcessingTimer removes a timer of the current key, if it is set.
func (c *keyedContext[K]) DeleteProcessingTimer(at time.Time) {
	if ms, ok := c.timer("DeleteProcessingTimer", at); ok {
		c.procs.Delete(ms, c.x.Group, c.key, 0)
	}
}

func (c *keyedContext[K]) timer(what string, at time.Time) (int64, bool) {
	if !c.usable(what) {
		return 0, false
	}
	if c.events == nil {
		c.misuse("%s: the operator has no OnTimer callback", what)
		return 0, false
	}
	ms, ok := millis(at)
	if !ok {
		c.misuse("%s: the time is millions of years away", what)
	}
	return ms, ok
}

// Emit sends a value to the side output, with the current event time. If nobody takes the side output, the value is
// dropped. Flink: Context.output.
func (tag OutputTag[T]) Emit(ctx SideContext, v T) {
	c := ctx.base()
	if !c.usable("OutputTag.Emit") {
		return
	}
	behind, ok := c.sides[tag.id]
	if !ok {
		return
	}
	next, ok := behind.(step[T])
	if !ok {
		c.misuse("OutputTag.Emit: side output %q is taken with another type than %s", tag.id, typeName[T]())
		return
	}
	c.failed = next(c.x, v)
	c.x.Op = c.op
}

func (c *KeyedContext[K, T, R]) step(x *task.Exec, k K, v T) error {
	c.key, c.active, c.failed = k, true, nil
	x.Op = c.op
	err := c.onRecord(v)
	c.active = false
	return c.done(err)
}

// done is how a callback ended.
func (c *contextBase) done(err error) error {
	if c.failed != nil {
		return c.failed
	}
	if err != nil {
		return c.x.Fail(c.op, task.UserCode, err)
	}
	return nil
}

// declareTimers declares the stores of timers, at build, if there is a callback for them.
func (c *keyedContext[K]) declareTimers() {
	if c.onTimer != nil {
		c.n.store(eventTimers, statestore.KindTimers, c.keys.schema(), "")
		c.n.store(processingTimers, statestore.KindTimers, c.keys.schema(), "")
	}
}

// openTimers opens the stores of timers, if there is a callback for them, and finds out when the first is due.
func (c *keyedContext[K]) openTimers() (ok bool) {
	if c.onTimer == nil {
		return true
	}
	state := c.b.state()
	var err error
	if c.events, err = statestore.NewTimers(state, c.n.specOf(eventTimers), c.keys.codec); err == nil {
		c.procs, err = statestore.NewTimers(state, c.n.specOf(processingTimers), c.keys.codec)
	}
	if err != nil {
		c.b.fail(c.n, err)
		return false
	}
	c.fireOne = func() error {
		at, g, k, _, ok := c.firing.Pop(c.upTo)
		if !ok {
			return nil
		}
		c.x.Group, c.x.Time = g, at
		c.key, c.active, c.failed = k, true, nil
		err := c.onTimer(Timer{At: instant(at), Domain: c.domain})
		c.active = false
		return c.done(err)
	}
	c.popOne = func() error { c.firing.Pop(c.upTo); return nil }
	c.nameKey = func(dst []byte) []byte { return c.keys.appendText(dst, c.key) }
	c.node.Fire = func(_ *task.Exec, _, watermark int64) error {
		return c.fire(c.events, EventTime, watermark, c.node.Due)
	}
	c.node.FireProcessing = func(_ *task.Exec, now int64) error {
		return c.fire(c.procs, ProcessingTime, now, c.node.DueProcessing)
	}
	if at, ok := c.events.Next(); ok {
		c.node.Due(at)
	}
	if at, ok := c.procs.Next(); ok {
		c.node.DueProcessing(at)
	}
	return true
}

// fire fires the timers up to a time, each as a step of its own; those that they set themselves up to it are among
// them. A timer that fails and is skipped is gone.
func (c *keyedContext[K]) fire(timers *statestore.Timers[K], domain Domain, upTo int64, due func(int64)) error {
	c.firing, c.domain, c.upTo = timers, domain, upTo
	for {
		at, ok := timers.Next()
		if !ok {
			return nil
		}
		if at > upTo {
			due(at)
			return nil
		}
		skipped, err := c.x.Atomic(c.op, 0, at, c.fireOne, c.nameKey)
		if err != nil {
			return err
		}
		if skipped {
			if _, err := c.x.Atomic(c.op, 0, at, c.popOne, c.nameKey); err != nil {
				return err
			}
		}
	}
}
