package processor

import (
	"reflect"

	"github.com/millrace-stream/millrace/internal/task"
)

// JoinTables is the table of the keys that two tables have, each with what f makes of their values: it changes whenever one of the
// two does, and loses a key with either. Both tables must have their keys written alike and be read by the same subtasks:
// see Connect. What it is in the end does not depend on which table is read first; on the way there it may have rows that were
// never right at one moment of event time, as in Kafka Streams. Changes of the result have the event time of the change
// that made them, and the watermark is the minimum of both: give the topics Idle if what follows has windows.
//
// State: the last values of both tables, "<their id>/table", and if something reads the last values of the result,
// "<id>/table". Kafka Streams: KTable.join(KTable).
func JoinTables[K comparable, A, B, R any](left Table[K, A], right Table[K, B], id string, f func(A, B) R, o ...Option) Table[K, R] {
	return joinTables(left, right, id, Inner, f != nil, func() func(*A, *B) R {
		return func(a *A, b *B) R { return f(*a, *b) }
	}, o)
}

// JoinTablesOuter is JoinTables that also has keys of one table alone, those of the kind: f gets nil then for the other's
// value, else copies of its own. Kafka Streams: leftJoin and outerJoin of KTables.
func JoinTablesOuter[K comparable, A, B, R any](left Table[K, A], right Table[K, B], id string, kind JoinKind, f func(*A, *B) R, o ...Option) Table[K, R] {
	return joinTables(left, right, id, kind, f != nil, func() func(*A, *B) R {
		as, bs := newLent[A](reflect.TypeFor[R]()), newLent[B](reflect.TypeFor[R]())
		return func(a *A, b *B) R { return f(as.of(a), bs.of(b)) }
	}, o)
}

func joinTables[K comparable, A, B, R any](left Table[K, A], right Table[K, B], id string, kind JoinKind, complete bool, join func() func(*A, *B) R, o []Option) Table[K, R] {
	l, r := left.must(), right.must()
	n := l.n.t.add(kindJoinTables, spaceOperator, id, l.n, r.n).with(o)
	n.need(complete, "function")
	n.detail = kind.String()
	if kind < Inner || kind > Full {
		n.fail("join kind %d is unknown; use Inner, Left, Right or Full", kind)
	}
	if left.versioned || right.versioned {
		n.fail("a Versioned table is for JoinTable; join the tables as they are")
	}
	sameKeys(n, l.keys, r.keys)
	l.keepCurrent()
	r.keepCurrent()
	out := newTable[K, R](n, l.keys)
	// has says whether the result has a key that the tables have or not.
	has := func(a, b bool) bool {
		switch kind {
		case Left:
			return a
		case Right:
			return b
		case Full:
			return a || b
		}
		return a && b
	}
	build := func(b *builder) func(x *task.Exec, k K, a *A, b *B, had bool) error {
		return shared(b, n, func() func(x *task.Exec, k K, a *A, b *B, had bool) error {
			f, next, row := join(), out.step(b), new(R)
			return func(x *task.Exec, k K, a *A, b *B, had bool) error {
				if !has(a != nil, b != nil) {
					if !had {
						return nil
					}
					return next(x, k, nil)
				}
				*row = f(a, b)
				return next(x, k, row)
			}
		})
	}
	l.rows = append(l.rows, func(b *builder) tableStep[K, A] {
		row, op, other := build(b), b.op(n), r.open(b)
		return func(x *task.Exec, k K, a *A, had bool) error {
			if a == nil && !had {
				return nil // there was none
			}
			x.Op = op
			b := other.Get(x.Group, k)
			return row(x, k, a, b, has(true, b != nil)) // a row that was not there makes no difference
		}
	})
	r.rows = append(r.rows, func(b *builder) tableStep[K, B] {
		row, op, other := build(b), b.op(n), l.open(b)
		return func(x *task.Exec, k K, b *B, had bool) error {
			if b == nil && !had {
				return nil
			}
			x.Op = op
			a := other.Get(x.Group, k)
			return row(x, k, a, b, has(a != nil, true))
		}
	})
	return Table[K, R]{s: out}
}
