package processor

import (
	"fmt"
	"math"
	"reflect"
	"time"

	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
)

// JoinTable gives each row of a stream what a table has under its key, and drops rows whose key it does not have. Of a
// Table it is the value of the moment at which the row is processed, and only the stream moves event time on; what the
// topic of the table held at the first start is there then: see TableFrom. Of a Versioned one it is that of the row's
// time, which both must have reached. Results have the row's event time. Both must have their keys written alike and be
// read by the same subtasks: see Connect.
//
// With a Versioned table a row is late when it is further behind the watermark than the table keeps versions: it is dropped
// and counted, or goes to LateLeftTo. A row of the table is late when a later one of its key is the oldest that is still
// needed: it is dropped and counted. That a key was removed is known for a day of event time longer. State of joins with a Versioned table: "<id>/rows", "<id>/versions", "<id>/timers"; a row may wait for the
// table for two weeks at most. Kafka Streams: KStream.join(KTable); Flink: temporal join.
func JoinTable[K comparable, T, V, R any](from KeyedStream[K, T], with Table[K, V], id string, f func(T, V) R, o ...Option) KeyedStream[K, R] {
	return joinTable[K, T, V, R](from, with, "join-table", id, f != nil, func(next keyedStep[K, R]) func(x *task.Exec, k K, v T, row *V) error {
		return func(x *task.Exec, k K, v T, row *V) error {
			if row == nil {
				return nil
			}
			return next(x, k, f(v, *row))
		}
	}, o)
}

// LeftJoinTable is JoinTable that keeps rows whose key the table does not have: f gets nil then, else a copy of its own.
func LeftJoinTable[K comparable, T, V, R any](from KeyedStream[K, T], with Table[K, V], id string, f func(T, *V) R, o ...Option) KeyedStream[K, R] {
	return joinTable[K, T, V, R](from, with, "left-join-table", id, f != nil, func(next keyedStep[K, R]) func(x *task.Exec, k K, v T, row *V) error {
		rows := newLent[V](reflect.TypeFor[R]())
		return func(x *task.Exec, k K, v T, row *V) error { return next(x, k, f(v, rows.of(row))) }
	}, o)
}

func joinTable[K comparable, T, V, R any](from KeyedStream[K, T], with Table[K, V], kind, id string, complete bool,
	emitter func(next keyedStep[K, R]) func(x *task.Exec, k K, v T, row *V) error, o []Option) KeyedStream[K, R] {
	s, t := from.must(), with.must()
	n := s.n.t.add(kind, spaceOperator, id, s.n, t.n)
	n.joins = with.versioned
	n.with(o)
	n.need(complete, "function")
	out := newKeyed[K, R](n, s.keys)
	sameKeys(n, s.keys, t.keys)
	checkLate[T](n, 0)
	if n.lates[1].tag != "" {
		n.fail("LateRightTo: rows of the table that are late have no side output")
	}
	if with.versioned {
		temporalJoin(n, s, t, with.keep, out, emitter)
		return out
	}
	t.keepCurrent()
	n.beside, n.loads = []*node{t.n}, []*node{t.n}
	s.attach(func(b *builder) keyedStep[K, T] {
		op := b.op(n)
		emit := emitter(out.s.step(b))
		table := t.open(b)
		return func(x *task.Exec, k K, v T) error {
			x.Op = op
			return emit(x, k, v, table.Get(x.Group, k))
		}
	})
	return out
}

const (
	// rowPiece is the length of the pieces of time, in ms, that waiting rows are dropped with.
	rowPiece = 1024
	// rowLife is how long a row may wait for the table, at least: what is kept of it goes by that.
	rowLife = 7 * 24 * time.Hour
)

// The two kinds of timers of a temporal join, in the order in which they fire.
const (
	timerRows  = 0 // rows of that time are complete
	timerPrune = 1 // versions may be needless
)

func temporalJoin[K comparable, T, V, R any](n *node, s *keyed[K, T], t *table[K, V], keep time.Duration, out KeyedStream[K, R],
	emitter func(next keyedStep[K, R]) func(x *task.Exec, k K, v T, row *V) error) {
	n.timed = true
	n.detail = fmt.Sprintf("versions of %s", keep)
	rows, rowMigrations := stateCodec[T](n, "row type")
	vers, versMigrations := partsCodec[version[V]](n, "value type of the table", reflect.TypeFor[V]())
	times, err := statestore.KeyCodecOf[int64]()
	if err != nil {
		n.fail("time: %w", err)
		return
	}
	spec := n.expiring("rows", statestore.KindWindowRows, s.keys.schema(), schemaOf(rows), rowLife+keep)
	spec.Windows, spec.Aggregate, spec.Migrations = fmt.Sprintf("pieces of %s", rowPiece*time.Millisecond), "waiting rows", rowMigrations
	n.store("versions", statestore.KindMap, s.keys.schema()+" / "+times.Schema(), schemaOf(vers)).Migrations = versMigrations
	n.store("timers", statestore.KindTimers, s.keys.schema(), "")
	build := func(b *builder) *temporalOp[K, T, V] {
		return shared(b, n, func() *temporalOp[K, T, V] {
			j := &temporalOp[K, T, V]{x: b.x, op: b.op(n), node: b.node(n), keys: s.keys}
			j.emit = emitter(out.s.step(b))
			j.late = lateStep[T](b.sides(n), n, 0)
			j.versions.keep = keep.Milliseconds()
			var err error
			if j.rows, err = statestore.NewWindowRows(b.state(), n.specOf("rows"), s.keys.codec, rows); err == nil {
				if j.versions.m, err = statestore.NewMap(b.state(), n.specOf("versions"), s.keys.codec, times, vers); err == nil {
					j.timers, err = statestore.NewTimers(b.state(), n.specOf("timers"), s.keys.codec)
				}
			}
			if err != nil {
				b.fail(n, err)
				return nil
			}
			j.start()
			return j
		})
	}
	s.attach(func(b *builder) keyedStep[K, T] {
		j := build(b)
		if j == nil {
			return nil
		}
		return j.row
	})
	t.rows = append(t.rows, func(b *builder) tableStep[K, V] {
		j := build(b)
		if j == nil {
			return nil
		}
		return j.version
	})
}

// temporalOp joins a stream with the versions of a table in one subtask.
type temporalOp[K comparable, T, V any] struct {
	x        *task.Exec
	op       int32
	node     *task.Node
	keys     *keyType[K]
	rows     *statestore.WindowRows[K, T] // in pieces of time, so that those that are done go without a tombstone each
	versions versions[K, V]
	timers   *statestore.Timers[K]
	emit     func(x *task.Exec, k K, v T, row *V) error
	late     step[T]

	upTo    int64
	key     K
	failed  error
	fireOne func() error
	popOne  func() error
	each    func(r statestore.Row[T]) bool
	drop    func() error
	dropEnd int64
	name    func(dst []byte) []byte
}

func piecesEnd(t int64) int64 { return t&^(rowPiece-1) + rowPiece }

func (j *temporalOp[K, T, V]) start() {
	j.name = func(dst []byte) []byte { return j.keys.appendText(dst, j.key) }
	j.each = func(r statestore.Row[T]) bool {
		x := j.x
		j.failed = j.emit(x, j.key, *r.Get(), j.versions.at(x.Group, j.key, x.Time))
		x.Op = j.op
		return j.failed == nil
	}
	j.fireOne = func() error {
		at, g, k, id, ok := j.timers.Pop(j.upTo)
		if !ok {
			return nil
		}
		x := j.x
		x.Group, x.Time, j.key, j.failed = g, at, k, nil
		if id == timerPrune {
			j.versions.prune(g, k, at-j.versions.keep)
			return nil
		}
		j.rows.Range(piecesEnd(at), g, k, at, at, j.each)
		return j.failed
	}
	j.popOne = func() error { j.timers.Pop(j.upTo); return nil }
	j.drop = func() error { j.rows.Drop(j.dropEnd); return nil }
	j.node.Fire = j.fire
	if at, ok := j.timers.Next(); ok {
		j.node.Due(at)
	}
	if end, ok := j.rows.Next(math.MinInt64); ok {
		j.node.Due(end - 1)
	}
}

// row is what rows of the stream go through.
func (j *temporalOp[K, T, V]) row(x *task.Exec, k K, v T) error {
	x.Op = j.op
	t, w := x.Time, j.node.Watermark
	switch {
	case t > w:
		end := piecesEnd(t)
		j.rows.Add(end, x.Group, k, t, v)
		j.timers.Set(t, x.Group, k, timerRows)
		j.node.Due(t)
		j.node.Due(end - 1)
		return nil
	case t < min(w, 2*maxTime)-j.versions.keep:
		return takeLate(x, j.late, v)
	}
	return j.emit(x, k, v, j.versions.at(x.Group, k, t))
}

// version is what rows of the table go through.
func (j *temporalOp[K, T, V]) version(x *task.Exec, k K, v *V, _ bool) error {
	x.Op = j.op
	due, prune, late := j.versions.put(x.Group, k, x.Time, j.node.Watermark, v)
	if late {
		x.CountLate()
		return nil
	}
	if prune {
		j.timers.Set(due, x.Group, k, timerPrune)
		j.node.Due(due)
	}
	if v == nil {
		due = x.Time + j.versions.keep + goneLife
		j.timers.Set(due, x.Group, k, timerPrune)
		j.node.Due(due)
	}
	return nil
}

// fire joins the rows that are complete, in the order of their times.
func (j *temporalOp[K, T, V]) fire(_ *task.Exec, _, watermark int64) error {
	j.upTo = watermark
	for {
		at, ok := j.timers.Next()
		if !ok || at > watermark {
			break
		}
		skipped, err := j.x.Atomic(j.op, 0, at, j.fireOne, j.name)
		if err != nil {
			return err
		}
		if skipped {
			if _, err := j.x.Atomic(j.op, 0, at, j.popOne, j.name); err != nil {
				return err
			}
		}
	}
	for end, ok := j.rows.Next(math.MinInt64); ok && end-1 <= watermark; end, ok = j.rows.Next(math.MinInt64) {
		j.dropEnd = end
		if _, err := j.x.Atomic(j.op, 0, end-1, j.drop, j.name); err != nil {
			return err
		}
	}
	if at, ok := j.timers.Next(); ok {
		j.node.Due(at)
	}
	if end, ok := j.rows.Next(math.MinInt64); ok {
		j.node.Due(end - 1)
	}
	return nil
}
