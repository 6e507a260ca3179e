package processor

import (
	"reflect"
	"slices"
	"time"

	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/processor/window"
	"github.com/millrace-stream/millrace/statestore"
)

// Either is a row of one of the two streams of a join: the one that is not nil.
type Either[A, B any] struct {
	Left  *A `part:"left"`
	Right *B `part:"right"`
}

// eitherWindows are the windows of left for the rows of both streams.
func eitherWindows[K comparable, A, B any](left WindowedStream[K, A], keys *keyType[K]) WindowedStream[K, Either[A, B]] {
	a := left.assigner
	if f, _ := a.Gap(); f != nil {
		// Streams of one type may have one function.
		same, ok := f.(func(A) time.Duration)
		if _, both := any((*B)(nil)).(*A); ok && both {
			a = window.SessionFunc(func(e Either[A, B]) time.Duration {
				if e.Left != nil {
					return same(*e.Left)
				}
				v, _ := any(e.Right).(*A)
				return same(*v)
			})
		}
	}
	return WindowedStream[K, Either[A, B]]{s: KeyedStream[K, Either[A, B]]{s: &keyed[K, Either[A, B]]{keys: keys}}, assigner: a, lateness: left.lateness,
		trigger: left.trigger, early: left.early, isEarly: left.isEarly, onUpdate: left.onUpdate, idle: left.idle, isIdle: left.isIdle}
}

// listedJoin makes the result of a join of windows that each key has for itself. again says that a window may fire again.
type listedJoin[K comparable, A, B, R any] func(b *builder, n *node, next keyedStep[K, R], host *windowHost[Either[A, B]], again bool) windowResult[K, joined]

// joined says which rows of a window of a key have been joined: those of a group with each other.
type joined struct{ Groups []joinedRows }

// joinedRows are the rows of some parts with numbers below UpTo.
type joinedRows struct {
	Parts []uint64
	UpTo  uint64
}

// of is the group that a row is in, -1 if it is in none.
func (j *joined) of(at rowKey) int {
	return slices.IndexFunc(j.Groups, func(g joinedRows) bool { return at.Seq < g.UpTo && slices.Contains(g.Parts, at.Part) })
}

func listedWindowJoin[K comparable, A, B, R any](w WindowedStream[K, Either[A, B]], l *keyed[K, A], r *keyed[K, B], n *node, out KeyedStream[K, R], kind string, complete bool, result listedJoin[K, A, B, R]) {
	again := w.lateness > 0 || w.trigger != nil || w.isEarly || w.onUpdate
	build := listedWindows(w, n, &windowDef[K, Either[A, B], joined, R]{kind: kind, aggregate: "rows of two streams", complete: complete, rows: true,
		add:   func(*joined, bool, Either[A, B]) {},
		merge: func(into, from *joined) { into.Groups = append(into.Groups, from.Groups...) },
		values: func(n *node) (statestore.Codec[Either[A, B]], []string) {
			return partsCodec[Either[A, B]](n, "row type", reflect.TypeFor[A](), reflect.TypeFor[B]())
		},
		late: func(b *builder) step[Either[A, B]] {
			sides := b.sides(n)
			left, right := lateStep[A](sides, n, 0), lateStep[B](sides, n, 1)
			return func(x *task.Exec, e Either[A, B]) error {
				switch {
				case e.Left != nil && left != nil:
					return left(x, *e.Left)
				case e.Right != nil && right != nil:
					return right(x, *e.Right)
				}
				return nil
			}
		},
		open: func(b *builder, n *node, next keyedStep[K, R], host *windowHost[Either[A, B]]) windowResult[K, joined] {
			return result(b, n, next, host, again)
		},
	}, out)
	both := func(b *builder) keyedStep[K, Either[A, B]] {
		return shared(b, n, func() keyedStep[K, Either[A, B]] { return build(b) })
	}
	l.attach(func(b *builder) keyedStep[K, A] {
		next := both(b)
		return func(x *task.Exec, k K, v A) error { return next(x, k, Either[A, B]{Left: &v}) }
	})
	r.attach(func(b *builder) keyedStep[K, B] {
		next := both(b)
		return func(x *task.Exec, k K, v B) error { return next(x, k, Either[A, B]{Right: &v}) }
	})
}

// listedPairs is the result of WindowJoin.
func listedPairs[K comparable, A, B, R any](f func(A, B) R) listedJoin[K, A, B, R] {
	return func(b *builder, n *node, next keyedStep[K, R], host *windowHost[Either[A, B]], again bool) windowResult[K, joined] {
		type row struct {
			Either[A, B]
			group int
		}
		op := b.op(n)
		var ls, rs []row
		return func(x *task.Exec, w Window[K], done *joined) error {
			ls, rs = ls[:0], rs[:0]
			all := joinedRows{}
			host.rows(func(at rowKey, v *Either[A, B]) bool {
				one := row{*v, done.of(at)}
				if v.Left != nil {
					ls = append(ls, one)
				} else {
					rs = append(rs, one)
				}
				all.UpTo = max(all.UpTo, at.Seq+1)
				if !slices.Contains(all.Parts, at.Part) {
					all.Parts = append(all.Parts, at.Part)
				}
				return true
			})
			if again {
				done.Groups = append(done.Groups[:0], all)
			}
			for _, l := range ls {
				for _, r := range rs {
					if l.group >= 0 && l.group == r.group {
						continue
					}
					x.Op = op
					if err := next(x, w.Key, f(*l.Left, *r.Right)); err != nil {
						return err
					}
				}
			}
			return nil
		}
	}
}

// listedGroups is the result of CoGroup.
func listedGroups[K comparable, A, B, R any](f func(w Window[K], left []A, right []B, emit func(R)) error) listedJoin[K, A, B, R] {
	return func(b *builder, n *node, next keyedStep[K, R], host *windowHost[Either[A, B]], _ bool) windowResult[K, joined] {
		e := &emitter[K, R]{next: next, x: b.x, op: b.op(n)}
		emit := e.emit
		var as []A
		var bs []B
		return func(x *task.Exec, w Window[K], _ *joined) error {
			as, bs = as[:0], bs[:0]
			host.values(func(v Either[A, B]) bool {
				if v.Left != nil {
					as = append(as, *v.Left)
				} else {
					bs = append(bs, *v.Right)
				}
				return true
			})
			x.Op = e.op
			e.key, e.err = w.Key, nil
			err := e.done(x, f(w, as, bs, emit))
			clear(as)
			clear(bs)
			return err
		}
	}
}
