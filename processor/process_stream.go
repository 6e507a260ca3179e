package processor

import (
	"errors"
	"iter"
	"time"

	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
)

// Context is what the setup function and the callbacks of ProcessStream use. There is one for each subtask. It must not
// be used by another goroutine. Flink: ProcessFunction.
type Context[T, R any] struct {
	contextBase
	next     step[R]
	onRecord func(T) error
	onTick   func(time.Time) error
	every    int64 // ms
}

func (c *Context[T, R]) operator() *contextBase { return &c.contextBase }

// OnRecord sets the callback for each value; it must be set. An error, or a panic, undoes all that the callback did
// and goes by the operator's policy. Flink: processElement.
func (c *Context[T, R]) OnRecord(f func(v T) error) { c.onRecord = f }

// OnTick sets a callback that runs each time that every (at least 10 ms) has passed in processing time, counted from the
// start of the subtask. Nothing is kept of it: after a restart it counts anew. Its event time, with which Emit sends, is
// the processing time. It is one atomic step, as a record is; each one makes the subtask commit.
func (c *Context[T, R]) OnTick(every time.Duration, f func(now time.Time) error) {
	c.every, c.onTick = every.Milliseconds(), f
}

// Emit sends a value on, with the current event time. Flink: Collector.collect.
func (c *Context[T, R]) Emit(v R) {
	if c.usable("Emit") {
		c.failed = c.next(c.x, v)
		c.x.Op = c.op
	}
}

// EmitAt is Emit with another event time. One that is not after the watermark is late for the operators behind.
func (c *Context[T, R]) EmitAt(v R, at time.Time) { c.at("EmitAt", at, func() { c.Emit(v) }) }

// ProcessStream runs user code on a stream without key, with side outputs and operator state (OperatorList). setup is as
// that of Process. Flink: ProcessFunction with CheckpointedFunction.
func ProcessStream[T, R any](from Flow[T], id string, setup func(ctx *Context[T, R]), o ...Option) Stream[R] {
	p := from.flow()
	n := p.n.t.add("process-stream", spaceOperator, id, p.n).with(o)
	n.timed, n.emitsToSides = true, true
	n.groupOf = func([]byte) (statestore.Group, error) {
		return 0, errors.New("operator state belongs to subtasks, not to keys: scan it")
	}
	out := newStream[R](n)
	if setup == nil {
		n.fail("setup function is nil")
		return out
	}
	dry := &Context[T, R]{contextBase: contextBase{n: n}}
	if !dry.setUp(func() { setup(dry) }) {
		return out
	}
	n.need(dry.onRecord != nil, "OnRecord callback")
	if dry.onTick != nil && dry.every < 10 {
		n.fail("OnTick: every is %d ms, want at least 10", dry.every)
	}
	p.attach(func(b *builder) step[T] {
		c := &Context[T, R]{contextBase: newContextBase(b, n)}
		c.next = out.s.step(b)
		if !c.setUp(func() { setup(c) }) {
			return nil
		}
		if c.onTick != nil {
			c.tick()
		}
		return func(x *task.Exec, v T) error {
			c.active, c.failed = true, nil
			x.Op = c.op
			err := c.onRecord(v)
			c.active = false
			return c.done(err)
		}
	})
	return out
}

// tick makes OnTick run.
func (c *Context[T, R]) tick() {
	var now int64
	one := func() error {
		c.active, c.failed = true, nil
		err := c.onTick(instant(now))
		c.active = false
		return c.done(err)
	}
	noKey := func([]byte) []byte { return nil }
	c.node.FireProcessing = func(x *task.Exec, at int64) error {
		now = at
		c.node.DueProcessing(at + c.every)
		id, _ := x.Subtask()
		_, err := x.Atomic(c.op, statestore.Group(id.Index), at, one, noKey)
		return err
	}
	c.node.DueProcessing(c.x.Now() + c.every)
}

// OperatorContext is a context of an operator without key: the first argument of OperatorList.
type OperatorContext interface{ operator() *contextBase }

// OperatorListState is a list that belongs to an operator, not to a key: a buffer, or what has been seen of the
// partitions that it reads. Each subtask has a list of its own. An element belongs to the input partition whose record
// was processed when it was added, and goes where that partition goes when the parallelism changes; what is added in
// OnOpen or OnTick belongs to the first partition that the subtask reads. So a rescale divides the list as it divides
// the input, and loses or doubles nothing. It is meant for some thousand elements: All, Clear and Replace take time by
// their number. Flink: operator ListState, which is divided evenly instead.
type OperatorListState[V any] struct {
	c    *contextBase
	t    *statestore.Table[uint64, V]
	next map[statestore.Group]uint64 // sequence number behind the last; nil before the first look
}

// OperatorList makes the handle of an operator list state: in a setup function, with a name that is unique in the
// operator. It may also be used in OnOpen. State: "<operator id>/<name>".
func OperatorList[V any](ctx OperatorContext, name string, o ...StateOption) *OperatorListState[V] {
	c := ctx.operator()
	set := settingsOf(nil, o) // StateTTL is for state by key
	codec, err := migratingCodec[V](set.migrations)
	if err == nil && set.ttl != nil {
		err = errors.New("operator state has no TTL; remove what is old in OnTick")
	}
	keys, keyErr := statestore.KeyCodecOf[uint64]()
	schema := ""
	if err == nil {
		err = keyErr
	}
	if err == nil {
		schema = keys.Schema()
	}
	s := &OperatorListState[V]{c: c}
	if spec, open := c.declare(name, statestore.KindTable, schema, schemaOf(codec), set, err); open {
		s.t, err = statestore.NewTable(c.b.state(), spec, keys, codec)
		c.opened(name, err)
	}
	return s
}

func (s *OperatorListState[V]) check() {
	if !s.c.opening {
		s.c.check()
	}
}

// Add appends to the list.
func (s *OperatorListState[V]) Add(v V) {
	s.check()
	if s.next == nil {
		s.next = map[statestore.Group]uint64{}
		s.t.All(func(g statestore.Group, seq uint64, _ *V) bool {
			s.next[g] = max(s.next[g], seq+1)
			return true
		})
	}
	id, _ := s.c.x.Subtask()
	g := statestore.Group(id.Index)
	if partition, _, ok := s.c.x.Input(); ok {
		g = statestore.Group(int(partition) % statestore.Groups)
	}
	s.t.Set(g, s.next[g], v)
	s.next[g]++
}

// All are the elements of this subtask, in the order of adding for each partition. The list must not be changed
// meanwhile.
func (s *OperatorListState[V]) All() iter.Seq[V] {
	s.check()
	return func(yield func(V) bool) {
		s.t.All(func(_ statestore.Group, _ uint64, v *V) bool { return yield(*v) })
	}
}

// Clear removes all elements of this subtask.
func (s *OperatorListState[V]) Clear() {
	s.check()
	type place struct {
		g   statestore.Group
		seq uint64
	}
	var all []place
	s.t.All(func(g statestore.Group, seq uint64, _ *V) bool {
		all = append(all, place{g, seq})
		return true
	})
	for _, p := range all {
		s.t.Delete(p.g, p.seq)
	}
}

// Replace makes vs the list of this subtask.
func (s *OperatorListState[V]) Replace(vs []V) {
	s.Clear()
	for _, v := range vs {
		s.Add(v)
	}
}
