package processor

import (
	"fmt"
	"math"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
)

// Table is the last value of each key, partitioned like a KeyedStream: each subtask has the keys that it also reads of
// the streams that are joined with it. TableFrom makes one of a topic, ToTable of a stream. It is a handle that may be used
// any number of times. Kafka Streams: KTable; Flink: a dynamic table. A table that every subtask has whole is a
// GlobalTable.
//
// A row of the table counts from the moment when it is processed. A subtask takes, of the records that it has at hand, the
// one with the lowest event time first, and at equal times that of the source that was made first; but it does not wait
// for records that are not there. So after a pause a record may meet an older version than its event time says, or a
// newer one. Versioned makes results that do not depend on that. At the first start the topics of tables that JoinTable
// looks up are loaded first: see TableFrom.
type Table[K comparable, V any] struct {
	s         *table[K, V]
	versioned bool
	keep      time.Duration
}

type table[K comparable, V any] struct {
	n          *node
	keys       *keyType[K]
	values     statestore.Codec[V]
	migrations []string
	gone       func(V) bool
	current    bool // somebody reads the last values: they are kept
	changes    []makeKeyed[K, Change[V]]
	rows       []func(b *builder) tableStep[K, V]
}

// Kinds of nodes that are tables.
const (
	kindTable      = "table" // of a topic
	kindJoinTables = "join-tables"
)

// tableStep takes a row; nil removes the key. had: the key had a row before, as far as the table knows, which it does if its last
// values are kept.
type tableStep[K comparable, V any] func(x *task.Exec, k K, v *V, had bool) error

// tableRow takes a row into a table; nil removes the key.
type tableRow[K comparable, V any] func(x *task.Exec, k K, v *V) error

// Change is what a row did to a table.
type Change[V any] struct {
	Kind ChangeKind
	Old  V // zero if Inserted
	New  V // zero if Deleted
}

// ChangeKind says what became of a key.
type ChangeKind uint8

// The kinds of Change.
const (
	Inserted ChangeKind = 1 + iota
	Updated             // also by an equal value
	Deleted
)

func (k ChangeKind) String() string {
	switch k {
	case Inserted:
		return "inserted"
	case Updated:
		return "updated"
	case Deleted:
		return "deleted"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// TableFrom makes a table of a topic whose record key is the key: a compacted topic, usually. A null value removes the
// key; its event time is the timestamp of the Kafka record, also where Topic.EventTime gives that of values. Of a key,
// the row that is last in its partition counts, whatever its event time. Keys are checked as FromKeyed does; key nil is
// format.DefaultKey[K]. State, if something reads the last values: "<id>/table".
//
// Where a stream is joined with the newest values (JoinTable, of a table that is not Versioned, or that JoinTables made of this
// one), the table is loaded first: at the first start of the app, or of an incarnation of it, each subtask reads its partitions
// of the topic to the end that they had then, and only then takes records of its other inputs. So a record of before that
// moment meets the newest row that was there then, whatever the event time of the two. The wait has an end, since a producer
// that goes on writes behind it; an empty topic is not waited for; and a later start goes on at once. Idle time-outs do
// not run meanwhile. ReadAlong does without. Kafka Streams takes both by timestamp (max.task.idle.ms), as ReadAlong does.
func TableFrom[K comparable, V any](t *Topology, id string, key format.Serde[K], topic Topic[V], o ...Option) Table[K, V] {
	src := sourceNode(t, "table-from", &topic, nil)
	keys := newKeyType(src, key)
	src.source.key = keys.serde
	tbl := newTable[K, V](t.add(kindTable, spaceOperator, id, src).with(o), keys)
	src.source.open = func(b *builder) task.Source {
		s := newSource(b, src, &topic)
		s.nulls = true
		op := b.op(src)
		next := tbl.step(b)
		var slots []K
		var groups []statestore.Group
		s.opened = func(n int) { slots, groups = make([]K, n), make([]statestore.Group, n) }
		s.decodeKey = func(x *task.Exec, slot int, rec *record.Record) (err error) {
			if rec.Key == nil {
				return x.Fail(op, task.BadData, fmt.Errorf("decode key: it is null, and a row of a table has one"))
			}
			if groups[slot], err = routed(x, op, rec.Key); err != nil {
				return err
			}
			if err := keys.serde.Decode(rec.Key, &slots[slot]); err != nil {
				return x.Fail(op, task.BadData, fmt.Errorf("decode key: %w", err))
			}
			return nil
		}
		s.run = func(x *task.Exec, h *head[V]) error {
			x.Group = groups[h.slot]
			if rec, _, _ := x.Record(); rec.Value == nil {
				return next(x, slots[h.slot], nil)
			}
			return next(x, slots[h.slot], &h.value)
		}
		return s
	}
	return Table[K, V]{s: tbl}
}

// ToTable makes a table of a stream: the last value of each key, in the order in which they are processed. Keys stay for
// ever, unless RemoveWhen says which values remove them. V must be storable as state. State, if something reads the last
// values: "<id>/table". Kafka Streams: toTable.
func ToTable[K comparable, V any](from KeyedStream[K, V], id string, o ...Option) Table[K, V] {
	s := from.must()
	tbl := newTable[K, V](s.n.t.add("to-table", spaceOperator, id, s.n).with(o), s.keys)
	s.attach(func(b *builder) keyedStep[K, V] {
		next := tbl.step(b)
		slot := new(V)
		return func(x *task.Exec, k K, v V) error {
			*slot = v
			return next(x, k, slot)
		}
	})
	return Table[K, V]{s: tbl}
}

func newTable[K comparable, V any](n *node, keys *keyType[K]) *table[K, V] {
	n.groupOf = keys.group
	t := &table[K, V]{n: n, keys: keys}
	t.values, t.migrations = stateCodec[V](n, "value type")
	return t
}

func (t Table[K, V]) must() *table[K, V] {
	if t.s == nil {
		panic("processor: use of an empty Table at " + callSite() + "; take the handle that TableFrom or ToTable returned")
	}
	return t.s
}

func (t Table[K, V]) origin() *node { return t.must().n }

// RemoveWhen makes values for which gone is true remove their key, as a null value in a topic does.
func (t Table[K, V]) RemoveWhen(gone func(V) bool) Table[K, V] {
	s := t.must()
	s.n.need(gone != nil, "function that says what is gone")
	s.gone = gone
	return t
}

// Versioned is the table as it was at each moment of event time: a join with it gives a stream's row the version that was
// valid at the row's time, the one with the highest time that is not later. Rows wait until the watermark of both, stream and
// table, has reached their time; so results depend on the records alone. keep is for rows that are late: those at most that much
// behind the watermark still find their version. Each join keeps versions of its own. Flink: versioned table, FOR SYSTEM_TIME AS OF.
//
// The table's watermark goes on with its rows: give the topic Idle if it is quiet for long.
func (t Table[K, V]) Versioned(keep time.Duration) Table[K, V] {
	s := t.must()
	if keep < 0 || keep%time.Millisecond != 0 {
		s.n.fail("Versioned keeps %s, want a whole number of milliseconds", keep)
	}
	t.versioned, t.keep = true, keep
	return t
}

// Changes are the changes of the table, with the value before. A removal of a key that is not there is none. Kafka
// Streams: KTable.toStream.
func (t Table[K, V]) Changes() KeyedStream[K, Change[V]] {
	s := t.must()
	s.keepCurrent()
	out := newKeyed[K, Change[V]](s.n.t.add("changes", "", "", s.n), s.keys)
	s.changes = append(s.changes, out.s.step)
	return out
}

// keepCurrent declares the store of the last values.
func (t *table[K, V]) keepCurrent() {
	if t.current {
		return
	}
	t.current = true
	spec := t.n.store("table", statestore.KindTable, t.keys.schema(), schemaOf(t.values))
	spec.Migrations = t.migrations
}

// open opens the last values in a subtask.
func (t *table[K, V]) open(b *builder) *statestore.Table[K, V] {
	return shared(b, t, func() *statestore.Table[K, V] {
		s, err := statestore.NewTable(b.state(), t.n.specOf("table"), t.keys.codec, t.values)
		if err != nil {
			b.fail(t.n, err)
		}
		return s
	})
}

// step is what rows of the table go through in a subtask.
func (t *table[K, V]) step(b *builder) tableRow[K, V] {
	op := b.op(t.n)
	var last *statestore.Table[K, V]
	if t.current {
		last = t.open(b)
	}
	var changes []keyedStep[K, Change[V]]
	for _, m := range t.changes {
		changes = append(changes, m(b))
	}
	var rows []tableStep[K, V]
	for _, m := range t.rows {
		rows = append(rows, m(b))
	}
	return func(x *task.Exec, k K, v *V) error {
		x.Op = op
		if v != nil && t.gone != nil && t.gone(*v) {
			v = nil
		}
		had := true
		if last != nil {
			var c Change[V]
			if old := last.Get(x.Group, k); old != nil {
				c.Kind, c.Old = Deleted, *old
			}
			had = c.Kind != 0
			switch {
			case v != nil:
				if c.New = *v; c.Kind == 0 {
					c.Kind = Inserted
				} else {
					c.Kind = Updated
				}
				last.Set(x.Group, k, *v)
			case c.Kind != 0:
				last.Delete(x.Group, k)
			}
			for _, next := range changes {
				if c.Kind == 0 {
					break
				}
				if err := next(x, k, c); err != nil {
					return err
				}
			}
		}
		for _, next := range rows {
			if err := next(x, k, v, had); err != nil {
				return err
			}
		}
		return nil
	}
}

// version is what a key had from some time on.
type version[V any] struct {
	Value V `part:"value"`
	Gone  bool
}

// versions is the part of a join with a versioned table in one subtask that knows the table.
//
// Of the versions of a key, those are kept that a row at or after the watermark less keep may need. A timer for each
// version that has another before it drops what it made needless.
type versions[K comparable, V any] struct {
	m    *statestore.Map[K, int64, version[V]]
	keep int64
}

// goneLife is how much longer than keep it is remembered, in ms of event time, that a key was removed: a late row of the
// table from before that does not bring it back.
const goneLife = 24 * 60 * 60 * 1000

// at is the value at a time, nil if there is none.
func (v *versions[K, V]) at(g statestore.Group, k K, t int64) *V {
	_, p := v.m.Before(g, k, t+1)
	if p == nil || p.Gone {
		return nil
	}
	return &p.Value
}

// put adds a version. Needless ones are to be dropped at the time due, if prune says that there will be some. late: a
// later one is the oldest that anybody needs, and nothing was added.
func (v *versions[K, V]) put(g statestore.Group, k K, t, watermark int64, value *V) (due int64, prune, late bool) {
	if watermark > -maxTime {
		if last, p := v.m.Before(g, k, min(watermark, 2*maxTime)-v.keep+1); p != nil && last > t {
			return 0, false, true
		}
	}
	n := version[V]{Gone: value == nil}
	if value != nil {
		n.Value = *value
	}
	v.m.Put(g, k, t, n)
	_, older := v.m.Before(g, k, t)
	newest, _ := v.m.Before(g, k, math.MaxInt64)
	return newest + v.keep, older != nil || newest > t, false
}

// prune drops the versions that a row at or after t cannot need.
func (v *versions[K, V]) prune(g statestore.Group, k K, t int64) {
	last, p := v.m.Before(g, k, t+1)
	if p == nil {
		return
	}
	to := last
	if p.Gone && last+goneLife <= t {
		to++ // no version says the same
	}
	v.m.Range(g, k, math.MinInt64, to, func(at int64, _ *version[V]) bool {
		v.m.Delete(g, k, at)
		return true
	})
}
