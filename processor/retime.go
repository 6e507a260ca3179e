package processor

import "github.com/millrace-stream/millrace/internal/task"

// Retime makes a stream with event times and watermarks of its own out of another one, in the middle of a chain: where one
// topic holds several streams whose times have nothing to do with each other. As AssignEventTime does, it keeps a mark for
// each partition that is read before it, under the id.
//
// open makes, in each subtask, the function that takes the values. That emits values with their event time in ms, NoTime =
// none, and returns the watermark of the partition that the value came from, NoTime = nothing new. An error of emit must
// be returned; any other is bad input.
func Retime[T, R any](from Flow[T], id string, open func(ctx *SubtaskContext) (func(v T, emit func(v R, at int64) error) (watermark int64, err error), error), o ...Option) Stream[R] {
	p := from.flow()
	n := p.n.t.add("retime", spaceOperator, id, p.n).with(o)
	n.timed = true
	n.need(open != nil, "open")
	out := newStream[R](n)
	p.attach(func(b *builder) step[T] {
		return shared(b, n, func() step[T] {
			f, err := open(&SubtaskContext{b: b})
			if err != nil {
				b.fail(n, err)
				return nil
			}
			return retime(b, n, f, out.s.step(b))
		})
	})
	return out
}

func retime[T, R any](b *builder, n *node, f func(v T, emit func(v R, at int64) error) (watermark int64, err error), next step[R]) step[T] {
	op, x := b.op(n), b.x
	mark := NoTime // of the value that runs
	a := b.task.Assign(b.node(n), task.AssignerLayout{ID: n.id, Inputs: b.partitionsBefore(n), OnEvent: func(int, int64) int64 { return mark }})
	emit := func(v R, at int64) error {
		x.Time = at
		err := next(x, v)
		x.Op = op
		return err
	}
	return func(x *task.Exec, v T) error {
		x.Op = op
		before := x.Time
		var err error
		mark, err = f(v, emit)
		x.Time = before
		if err != nil {
			return x.Fail(op, task.BadData, err)
		}
		a.Assigned(a.Slot(x), before)
		return nil
	}
}
