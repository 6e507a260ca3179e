package processor

import (
	"fmt"
	"iter"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
)

// BroadcastContext is what the setup function and the callbacks of ProcessBroadcast use: a KeyedContext with a second
// callback, for what is broadcast. Flink: KeyedBroadcastProcessFunction.
type BroadcastContext[K comparable, T, B, R any] struct {
	keyedContext[K]
	next        keyedStep[K, R]
	onRecord    func(T) error
	onBroadcast func(B) error
	sharing     bool // OnBroadcast runs
}

// OnRecord sets the callback for each value of the keyed stream, which may read broadcast state. Flink: processElement.
func (c *BroadcastContext[K, T, B, R]) OnRecord(f func(v T) error) { c.onRecord = f }

// OnBroadcast sets the callback for each value that is broadcast. It runs in every subtask, in the same order, without a
// key: it writes broadcast state, which must come out the same everywhere, and may go through the keys with EachKey.
// Flink: processBroadcastElement.
func (c *BroadcastContext[K, T, B, R]) OnBroadcast(f func(v B) error) { c.onBroadcast = f }

// Emit sends a value on, with the current key and event time. Flink: Collector.collect.
func (c *BroadcastContext[K, T, B, R]) Emit(v R) {
	if c.usable("Emit") {
		c.failed = c.next(c.x, c.key, v)
		c.x.Op = c.op
	}
}

func (c *BroadcastContext[K, T, B, R]) broadcast() (base *contextBase, sharing *bool) {
	return &c.contextBase, &c.sharing
}

// SharedContext is the context of ProcessBroadcast: the first argument of BroadcastState.
type SharedContext interface {
	broadcast() (base *contextBase, sharing *bool)
}

// ProcessBroadcast runs user code on a keyed stream together with a second stream that every subtask gets the whole of:
// rules, settings. Where a table of it is enough, Broadcast and Lookup are simpler. What is broadcast travels through the
// topic <app.id>-<id>-broadcast-repartition, is processed as soon as it arrives, whatever its event time, and holds back no
// event time of the operator (in Flink it does). What its topics hold at the first start is processed before any record of
// the keyed stream. setup is as that of Process; both callbacks must be set. B must be storable as state.
func ProcessBroadcast[K comparable, T, B, R any](from KeyedStream[K, T], what Flow[B], id string, setup func(ctx *BroadcastContext[K, T, B, R]), o ...Option) KeyedStream[K, R] {
	s, p := from.must(), what.flow()
	n := s.n.t.add("process-broadcast", spaceOperator, id, s.n).with(o)
	n.timed, n.emitsToSides = true, true
	out := newKeyed[K, R](n, s.keys)
	w, r := newBroadcast(p.n, "broadcast", id+"-broadcast", nil)
	w.site, r.site = n.site, n.site
	n.globals = append(n.globals, r)
	values, err := statestore.CodecOf[B]()
	if err != nil {
		w.fail("value type: %w", err)
		return out
	}
	w.detail, r.source.valueSchema = values.Schema(), values.Schema()
	if setup == nil {
		n.fail("setup function is nil")
		return out
	}
	dry := &BroadcastContext[K, T, B, R]{keyedContext: keyedContext[K]{contextBase: contextBase{n: n}, keys: s.keys}}
	if !dry.setUp(func() { setup(dry) }) {
		return out
	}
	n.need(dry.onRecord != nil, "OnRecord callback")
	n.need(dry.onBroadcast != nil, "OnBroadcast callback")
	dry.declareTimers()
	p.attach(func(b *builder) step[B] {
		op, repart, maxBytes := b.op(w), b.sub.repart[w], w.output.maxBytes
		slot := new(B)
		return func(x *task.Exec, v B) error {
			x.Op = op
			*slot = v
			return x.OutputBroadcast(op, repart, nil, x.Keep(values.Append(task.AppendDataHeader(x.Buf(), x.Time), slot)), maxBytes)
		}
	})
	context := func(b *builder) *BroadcastContext[K, T, B, R] {
		return shared(b, n, func() *BroadcastContext[K, T, B, R] {
			c := &BroadcastContext[K, T, B, R]{keyedContext: keyedContext[K]{contextBase: newContextBase(b, n), keys: s.keys}}
			c.next = out.s.step(b)
			if !c.setUp(func() { setup(c) }) || !c.openTimers() {
				return nil
			}
			return c
		})
	}
	s.attach(func(b *builder) keyedStep[K, T] {
		c := context(b)
		return func(x *task.Exec, k K, v T) error {
			c.key, c.active, c.failed = k, true, nil
			x.Op = c.op
			err := c.onRecord(v)
			c.active = false
			return c.done(err)
		}
	})
	r.source.open = func(b *builder) task.Source {
		return &sharedSource[B]{id: w.id, values: values, next: context(b).share}
	}
	return out
}

// share takes a value that is broadcast.
func (c *BroadcastContext[K, T, B, R]) share(x *task.Exec, v B) error {
	c.sharing, c.failed = true, nil
	x.Op = c.op
	err := c.onBroadcast(v)
	c.sharing = false
	return c.done(err)
}

// sharedSource is the read side of what ProcessBroadcast broadcasts.
type sharedSource[B any] struct {
	fedByWatermarks
	id     string
	values statestore.Codec[B]
	next   step[B]
	heads  []B
}

// Open is of task.Source.
func (s *sharedSource[B]) Open(n int) { s.heads = make([]B, n) }

// Decode is of task.Source.
func (s *sharedSource[B]) Decode(_ *task.Exec, slot int, rec *record.Record) (int64, error) {
	at, payload, err := task.DataFrame(rec.Value)
	if err != nil {
		return 0, err
	}
	var zero B
	s.heads[slot] = zero
	if err := s.values.Decode(payload, &s.heads[slot]); err != nil {
		return 0, fmt.Errorf("decode value of broadcast %q: %w", s.id, err)
	}
	return at, nil
}

// Run is of task.Source.
func (s *sharedSource[B]) Run(x *task.Exec, slot int) error {
	x.Group = copyGroup(x)
	return s.next(x, s.heads[slot])
}

// SharedState is a map of which every subtask has a copy: OnBroadcast writes it, OnRecord and OnTimer read it. Flink:
// BroadcastState.
type SharedState[MK comparable, V any] struct {
	c       *contextBase
	sharing *bool
	t       *statestore.Table[MK, V]
}

// BroadcastState makes the handle of a broadcast state: in a setup function of ProcessBroadcast, with a name that is
// unique in the operator. V must be storable. State: "<operator id>/<name>".
func BroadcastState[MK comparable, V any](ctx SharedContext, name string, migrations ...statestore.Migration) *SharedState[MK, V] {
	c, sharing := ctx.broadcast()
	s := &SharedState[MK, V]{c: c, sharing: sharing}
	keys, err := statestore.KeyCodecOf[MK]()
	codec, err2 := migratingCodec[V](migrations)
	schema := ""
	if err == nil {
		schema, err = keys.Schema(), err2
	}
	spec, open := c.declare(name, statestore.KindTable, schema, schemaOf(codec), stateSettings{migrations: migrations}, err)
	for i := range c.n.specs {
		if c.b == nil && c.n.specs[i].Name == c.n.id+"/"+name {
			c.n.specs[i].Replicated = true
		}
	}
	if open {
		s.t, err = statestore.NewTable(c.b.state(), spec, keys, codec)
		c.opened(name, err)
	}
	return s
}

// check refuses what is neither in a callback for records nor in OnBroadcast.
func (s *SharedState[MK, V]) check() {
	if !*s.sharing {
		s.c.check()
	}
}

// writable refuses to write where the copies of other subtasks would not be written.
func (s *SharedState[MK, V]) writable() {
	if !*s.sharing {
		panic("broadcast state is written outside of OnBroadcast: the copies of other subtasks would differ")
	}
}

// Get is an entry.
func (s *SharedState[MK, V]) Get(k MK) (v V, ok bool) {
	s.check()
	if p := s.t.Get(copyGroup(s.c.x), k); p != nil {
		return *p, true
	}
	return v, false
}

// All are the entries, in the order of MK. The state must not be changed meanwhile.
func (s *SharedState[MK, V]) All() iter.Seq2[MK, V] {
	return func(yield func(MK, V) bool) {
		s.check()
		s.t.All(func(_ statestore.Group, k MK, v *V) bool { return yield(k, *v) })
	}
}

// Put sets an entry; in OnBroadcast only.
func (s *SharedState[MK, V]) Put(k MK, v V) {
	s.writable()
	s.t.Set(copyGroup(s.c.x), k, v)
}

// Delete removes an entry; in OnBroadcast only.
func (s *SharedState[MK, V]) Delete(k MK) {
	s.writable()
	s.t.Delete(copyGroup(s.c.x), k)
}

// EachKey calls f once for each key of this subtask that has a value in the state, in OnBroadcast: Key, state, timers and
// Emit are those of that key then. It reads the whole state, so it is for rare values. The event time is that of the value
// that is broadcast. Flink: applyToKeyedState.
func EachKey[K comparable, T, B, R, V any](ctx *BroadcastContext[K, T, B, R], state *ValueState[V], f func() error) error {
	if !ctx.sharing {
		panic("EachKey is called outside of OnBroadcast")
	}
	keys, ok := state.s.(interface {
		keys() ([]statestore.Group, []K)
	})
	if !ok {
		return fmt.Errorf("EachKey: the state is not one of this operator's keys")
	}
	groups, ks := keys.keys()
	for i, k := range ks {
		ctx.x.Group, ctx.key, ctx.active = groups[i], k, true
		err := f()
		ctx.active = false
		if err == nil {
			err = ctx.failed
		}
		if err != nil {
			return err
		}
	}
	ctx.x.Group = copyGroup(ctx.x)
	return nil
}

func (k *expiringValue[K, V]) keys() (groups []statestore.Group, keys []K) {
	now := k.c.x.Now()
	k.t.All(func(g statestore.Group, key K, v *statestore.Stamped[V]) bool {
		if !k.expired(v.At, now) {
			groups, keys = append(groups, g), append(keys, key)
		}
		return true
	})
	return groups, keys
}

func (k *keyedValue[K, V]) keys() (groups []statestore.Group, keys []K) {
	k.t.All(func(g statestore.Group, key K, _ *V) bool {
		groups, keys = append(groups, g), append(keys, key)
		return true
	})
	return groups, keys
}
