package processor

import (
	"github.com/millrace-stream/millrace/internal/task"
)

// External is another system than Kafka that a subtask writes to, exactly once if the system can keep from sight what is
// not committed yet: see its methods. Flink: TwoPhaseCommittingSink.
type External = task.External

// Begun is what an External begins with.
type Begun = task.Begun

// Never is the Due of an External that does nothing by time.
const Never = task.Never

// ExternalSink is another system that a stream is written to.
type ExternalSink[T any] struct {
	// ID names the handles of what is committed and does not show yet; it is to stay the same in later versions of the
	// program. 1 to 40 of a-z, 0-9 and -.
	ID string
	// Encode makes the encoder of a subtask. It writes a value as one record, as several or as none; of a record, key and
	// value come to the External. Its error is bad input.
	Encode func(ctx *SubtaskContext, w *SinkWriter) (func(v T) error, error)
	// Open makes the External of a subtask. It touches nothing before Begin.
	Open func(ctx *SubtaskContext) (External, error)
}

// ToExternal writes a stream to another system. What a record led to is written when it was processed, is prepared before
// the epoch commits, and shows after it.
func ToExternal[T any](from Flow[T], sink ExternalSink[T], o ...Option) {
	p := from.flow()
	n := p.n.t.add("to-external", spaceOperator, sink.ID, p.n).with(o)
	n.timed = true
	n.need(sink.Encode != nil, "Encode")
	n.need(sink.Open != nil, "Open")
	p.attach(func(b *builder) step[T] {
		ctx := &SubtaskContext{b: b, node: b.node(n)}
		e, err := sink.Open(ctx)
		if err != nil {
			b.fail(n, err)
			return nil
		}
		w := &SinkWriter{b: b, op: b.op(n), partitions: 1}
		w.output = b.task.AddExternal(n.id, w.op, e)
		b.node(n).Fire = func(_ *task.Exec, _, watermark int64) error {
			if watermark == task.Never {
				b.task.EndExternal(w.output)
			}
			return nil
		}
		write, err := sink.Encode(ctx, w)
		if err != nil {
			b.fail(n, err)
			return nil
		}
		return func(x *task.Exec, v T) error {
			x.Op = w.op
			if err := write(v); err != nil {
				return badData(x, w.op, err)
			}
			return nil
		}
	})
}
