package processor

import (
	"errors"
	"fmt"
	"iter"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
)

// GlobalTable is a table of which every subtask that uses it has a copy, so that any key can be looked up whatever the
// stream is keyed by: small reference data, rules. GlobalTableFrom makes one of a topic, Broadcast of a stream;
// JoinGlobal, Lookup and their kin read it.
//
// It is state of the subtasks that use it (changelog, checkpoints, savepoints), fed by the topic
// <app.id>-<id>-repartition, which holds each change once for each of them. Its changes are applied as soon as they
// arrive, whatever their event time, and it holds back no event time of those that read it: which version a record
// meets depends on the moment. A table that is versioned by event time is Table.Versioned. What the source topics hold
// at the first start is in the table before any record is processed. Kafka Streams: GlobalKTable; Flink: broadcast state.
type GlobalTable[K comparable, V any] struct{ s *globalTable[K, V] }

type globalTable[K comparable, V any] struct {
	n      *node // the read side, in the sub-topology that uses the table
	keys   *keyType[K]
	values statestore.Codec[V]
}

func (g GlobalTable[K, V]) must() *globalTable[K, V] {
	if g.s == nil {
		panic("processor: use of an empty GlobalTable at " + callSite() + "; take the handle that GlobalTableFrom or Broadcast returned")
	}
	return g.s
}

// globalStore is the name of the store of a global table: "<id>/table".
const globalStore = "table"

// GlobalTableFrom makes a global table of a topic (compacted, usually): the last value of each key, a null value removes
// it. key nil is format.DefaultKey[K]. V must be storable as state.
func GlobalTableFrom[K comparable, V any](t *Topology, id string, key format.Serde[K], topic Topic[V], o ...Option) GlobalTable[K, V] {
	p := FromRecords(t, topic).flow()
	w, g := newGlobalTable[K, V](p.n, "global-table", id, key, o)
	p.attach(func(b *builder) step[Record[V]] {
		op := b.op(w)
		write := g.writer(b, w)
		slot := new(K)
		return func(x *task.Exec, r Record[V]) error {
			x.Op = op
			if r.Key == nil {
				return x.Fail(op, task.BadData, errors.New("decode key: it is null, and a row of a table has one"))
			}
			if err := g.keys.serde.Decode(r.Key, slot); err != nil {
				return x.Fail(op, task.BadData, fmt.Errorf("decode key: %w", err))
			}
			return write(x, r.Key, r.Value, r.Null)
		}
	})
	return GlobalTable[K, V]{g}
}

// Broadcast makes a global table of a stream: the last value of each key. Values for which one of gone is true remove
// their key. T must be storable as state. Flink: broadcast with a MapStateDescriptor.
func Broadcast[T any, K comparable](from Flow[T], id string, key func(T) K, gone ...func(T) bool) GlobalTable[K, T] {
	p := from.flow()
	w, g := newGlobalTable[K, T](p.n, "broadcast", id, nil, nil)
	w.need(key != nil, "key function")
	for _, f := range gone {
		w.need(f != nil, "function that says what is gone")
	}
	p.attach(func(b *builder) step[T] {
		op := b.op(w)
		write := g.writer(b, w)
		slot := new(K)
		return func(x *task.Exec, v T) error {
			x.Op = op
			*slot = key(v)
			kb, err := g.keys.serde.Append(x.Buf(), slot)
			if err != nil {
				return x.Fail(op, task.BadData, fmt.Errorf("encode key: %w", err))
			}
			kb = x.Keep(kb)
			remove := false
			for _, f := range gone {
				remove = remove || f(v)
			}
			return write(x, kb, v, remove)
		}
	})
	return GlobalTable[K, T]{g}
}

// newGlobalTable makes the two nodes of a global table: who writes its topic, and who reads it.
func newGlobalTable[K comparable, V any](from *node, kind, id string, key format.Serde[K], o []Option) (w *node, g *globalTable[K, V]) {
	w, r := newBroadcast(from, kind, id, o)
	g = &globalTable[K, V]{n: r, keys: newKeyType(w, key)}
	var migrations []string
	g.values, migrations = stateCodec[V](w, "value type")
	w.detail = g.keys.schema() + " -> " + schemaOf(g.values)
	r.source.keySchema, r.source.valueSchema = g.keys.schema(), schemaOf(g.values)
	spec := r.store(globalStore, statestore.KindTable, g.keys.schema(), schemaOf(g.values))
	spec.Replicated, spec.Migrations = true, migrations
	r.source.open = func(b *builder) task.Source { return &tableSource[K, V]{g: g, table: g.open(b)} }
	return w, g
}

// newBroadcast makes the nodes of an internal topic that brings everything to every subtask behind it.
func newBroadcast(from *node, kind, id string, o []Option) (w, r *node) {
	w = from.t.add(kind, spaceOperator, id, from)
	w.output = &outputInfo{topic: id, internal: true, broadcast: true}
	w.with(o)
	if w.parallelism > 0 {
		w.fail("Parallelism: its readers say in how many subtasks they run; leave it out")
		w.parallelism = 0
	}
	r = from.t.add("broadcast", "", id)
	r.site, r.name = w.site, w.name
	r.source = &sourceInfo{topic: id, internal: true, from: w, layout: task.InputLayout{Internal: true, Broadcast: true}}
	return w, r
}

// Rows of a global table's topic: one byte in front of the value.
const (
	rowGone = iota
	rowSet
)

// writer writes rows to all subtasks that use the table.
func (g *globalTable[K, V]) writer(b *builder, w *node) func(x *task.Exec, key []byte, v V, gone bool) error {
	op, repart, maxBytes := b.op(w), b.sub.repart[w], w.output.maxBytes
	slot := new(V)
	return func(x *task.Exec, key []byte, v V, gone bool) error {
		buf := task.AppendDataHeader(x.Buf(), x.Time)
		if gone {
			buf = append(buf, rowGone)
		} else {
			*slot = v
			buf = g.values.Append(append(buf, rowSet), slot)
		}
		return x.OutputBroadcast(op, repart, key, x.Keep(buf), maxBytes)
	}
}

// open opens the copy of a subtask.
func (g *globalTable[K, V]) open(b *builder) *statestore.Table[K, V] {
	return shared(b, g.n, func() *statestore.Table[K, V] {
		table, err := statestore.NewTable(b.state(), g.n.specOf(globalStore), g.keys.codec, g.values)
		if err != nil {
			b.fail(g.n, err)
		}
		return table
	})
}

// copyGroup is the key group under which a subtask keeps its copy of replicated state.
func copyGroup(x *task.Exec) statestore.Group {
	id, _ := x.Subtask()
	return statestore.Group(id.Index)
}

// tableSource is the read side of a global table. What it cannot decode stops the subtask: we wrote it ourselves.
type tableSource[K comparable, V any] struct {
	fedByWatermarks
	g     *globalTable[K, V]
	table *statestore.Table[K, V]
	heads []tableHead[K, V]
}

type tableHead[K comparable, V any] struct {
	key   K
	value V
	gone  bool
}

// Open is of task.Source.
func (s *tableSource[K, V]) Open(n int) { s.heads = make([]tableHead[K, V], n) }

// Decode is of task.Source.
func (s *tableSource[K, V]) Decode(_ *task.Exec, slot int, rec *record.Record) (int64, error) {
	h := &s.heads[slot]
	at, payload, err := task.DataFrame(rec.Value)
	if err != nil {
		return 0, err
	}
	if len(payload) == 0 || payload[0] > rowSet {
		return 0, fmt.Errorf("decode row of global table %q: %d bytes are no row", s.g.n.id, len(payload))
	}
	if err := s.g.keys.serde.Decode(rec.Key, &h.key); err != nil {
		return 0, fmt.Errorf("decode key of a row of global table %q: %w", s.g.n.id, err)
	}
	var zero V
	h.value, h.gone = zero, payload[0] == rowGone
	if !h.gone {
		if err := s.g.values.Decode(payload[1:], &h.value); err != nil {
			return 0, fmt.Errorf("decode row of global table %q: %w", s.g.n.id, err)
		}
	}
	return at, nil
}

// Run is of task.Source.
func (s *tableSource[K, V]) Run(x *task.Exec, slot int) error {
	h := &s.heads[slot]
	x.Group = copyGroup(x)
	if h.gone {
		s.table.Delete(x.Group, h.key)
	} else {
		s.table.Set(x.Group, h.key, h.value)
	}
	return nil
}

// View reads a global table in one subtask: see Lookup.
type View[K comparable, V any] struct {
	c     *contextBase
	table *statestore.Table[K, V]
}

// Lookup gives the setup function of a process function a view of a global table. One table serves operators of the same
// part of the graph, between two KeyBys; another part makes its own.
func Lookup[K comparable, V any](ctx SideContext, table GlobalTable[K, V]) *View[K, V] {
	c, g := ctx.base(), table.must()
	if c.b == nil {
		c.n.globals = append(c.n.globals, g.n)
		return &View[K, V]{c: c}
	}
	return &View[K, V]{c, g.open(c.b)}
}

// Get is the row of a key.
func (v *View[K, V]) Get(k K) (row V, ok bool) {
	v.c.check()
	if p := v.table.Get(copyGroup(v.c.x), k); p != nil {
		return *p, true
	}
	return row, false
}

// All are the rows, in the order of their keys.
func (v *View[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		v.c.check()
		v.table.All(func(_ statestore.Group, k K, row *V) bool { return yield(k, *row) })
	}
}

// JoinGlobal gives each value the row of a global table whose key is key(v); values without one are dropped. The key of
// a KeyedStream is dropped: JoinGlobalValues keeps it. Kafka Streams: KStream.join(GlobalKTable).
func JoinGlobal[T any, K comparable, V, R any](from Flow[T], table GlobalTable[K, V], key func(T) K, join func(v T, row V) R, o ...Option) Stream[R] {
	return joinGlobal(from, "join-global", table, key, join != nil, inner(join), o)
}

// LeftJoinGlobal is JoinGlobal for all values: row is nil for those without a row. It is valid during the call. Kafka
// Streams: KStream.leftJoin(GlobalKTable).
func LeftJoinGlobal[T any, K comparable, V, R any](from Flow[T], table GlobalTable[K, V], key func(T) K, join func(v T, row *V) R, o ...Option) Stream[R] {
	return joinGlobal(from, "left-join-global", table, key, join != nil, left(join), o)
}

// JoinGlobalValues is JoinGlobal that keeps the stream's key.
func JoinGlobalValues[SK comparable, T any, K comparable, V, R any](from KeyedStream[SK, T], table GlobalTable[K, V], key func(T) K, join func(v T, row V) R, o ...Option) KeyedStream[SK, R] {
	return joinGlobalValues(from, "join-global", table, key, join != nil, inner(join), o)
}

// LeftJoinGlobalValues is LeftJoinGlobal that keeps the stream's key.
func LeftJoinGlobalValues[SK comparable, T any, K comparable, V, R any](from KeyedStream[SK, T], table GlobalTable[K, V], key func(T) K, join func(v T, row *V) R, o ...Option) KeyedStream[SK, R] {
	return joinGlobalValues(from, "left-join-global", table, key, join != nil, left(join), o)
}

func inner[T, V, R any](join func(T, V) R) func(T, *V) (R, bool) {
	return func(v T, row *V) (r R, ok bool) {
		if row == nil {
			return r, false
		}
		return join(v, *row), true
	}
}

func left[T, V, R any](join func(T, *V) R) func(T, *V) (R, bool) {
	return func(v T, row *V) (R, bool) { return join(v, row), true }
}

func joinGlobal[T any, K comparable, V, R any](from Flow[T], kind string, table GlobalTable[K, V], key func(T) K, given bool, join func(T, *V) (R, bool), o []Option) Stream[R] {
	p := from.flow()
	n := joinGlobalNode(p.n, kind, table, key, given, o)
	out := newStream[R](n)
	p.attach(func(b *builder) step[T] {
		next, op, rows := out.s.step(b), b.op(n), table.s.open(b)
		slot := new(V)
		return func(x *task.Exec, v T) error {
			x.Op = op
			if r, ok := join(v, rowOf(x, rows, key(v), slot)); ok {
				return next(x, r)
			}
			return nil
		}
	})
	return out
}

func joinGlobalValues[SK comparable, T any, K comparable, V, R any](from KeyedStream[SK, T], kind string, table GlobalTable[K, V], key func(T) K, given bool, join func(T, *V) (R, bool), o []Option) KeyedStream[SK, R] {
	s := from.must()
	n := joinGlobalNode(s.n, kind, table, key, given, o)
	out := newKeyed[SK, R](n, s.keys)
	s.attach(func(b *builder) keyedStep[SK, T] {
		next, op, rows := out.s.step(b), b.op(n), table.s.open(b)
		slot := new(V)
		return func(x *task.Exec, k SK, v T) error {
			x.Op = op
			if r, ok := join(v, rowOf(x, rows, key(v), slot)); ok {
				return next(x, k, r)
			}
			return nil
		}
	})
	return out
}

func joinGlobalNode[T any, K comparable, V any](from *node, kind string, table GlobalTable[K, V], key func(T) K, given bool, o []Option) *node {
	n := from.t.add(kind, "", "", from).with(o)
	n.need(key != nil, "key function")
	n.need(given, "join function")
	n.globals = append(n.globals, table.must().n)
	return n
}

// rowOf copies the row of a key into the slot: what a user function gets does not change under it.
func rowOf[K comparable, V any](x *task.Exec, rows *statestore.Table[K, V], k K, slot *V) *V {
	row := rows.Get(copyGroup(x), k)
	if row == nil {
		return nil
	}
	*slot = *row
	return slot
}
