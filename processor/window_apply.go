package processor

import (
	"iter"

	"github.com/millrace-stream/millrace/internal/task"
)

// ApplyWindow keeps all values of each key and window, and hands them to f when the window fires: in order of event
// time, of one time in order of arrival; those of a count window in order of arrival. The sequence is valid during
// the call, and may be walked several times. An error, or a panic, goes by the operator's policy. Aggregate costs
// less where it will do. T must be storable. State: "<id>/windows", "<id>/rows". Flink: apply with WindowFunction,
// process with ProcessWindowFunction.
func ApplyWindow[K comparable, T, R any](w WindowedStream[K, T], id string, f func(w Window[K], values iter.Seq[T], emit func(R)) error, o ...Option) KeyedStream[K, R] {
	d := &windowDef[K, T, int64, R]{kind: "apply-window", aggregate: "rows", complete: f != nil, rows: true,
		add:   func(n *int64, _ bool, _ T) { *n++ },
		merge: func(into, from *int64) { *into += *from },
	}
	d.open = func(b *builder, n *node, next keyedStep[K, R], host *windowHost[T]) windowResult[K, int64] {
		e := &emitter[K, R]{next: next, x: b.x, op: b.op(n)}
		emit := e.emit
		return func(x *task.Exec, w Window[K], _ *int64) error {
			e.key, e.err = w.Key, nil
			return e.done(x, f(w, iter.Seq[T](host.values), emit))
		}
	}
	return windowed(w, id, d, o)
}

// emitter is an emit function of one subtask: it keeps the error of what is behind it.
type emitter[K comparable, R any] struct {
	next keyedStep[K, R]
	x    *task.Exec
	op   int32
	key  K
	err  error
}

func (e *emitter[K, R]) emit(v R) {
	if e.err == nil {
		e.err = e.next(e.x, e.key, v)
		e.x.Op = e.op
	}
}

// done is what a function of the user's has come to that emitted and returned err.
func (e *emitter[K, R]) done(x *task.Exec, err error) error {
	switch {
	case e.err != nil:
		return e.err
	case err != nil:
		return x.Fail(e.op, task.UserCode, err)
	}
	return nil
}
