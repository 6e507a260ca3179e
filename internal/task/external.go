package task

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace-stream/millrace/internal/record"
)

// External is another system than Kafka that an operator writes to, in one subtask. What it takes belongs to the running
// epoch: Prepare makes it durable and keeps it from sight, the handle of Prepare is committed with the epoch, and Finish
// shows it. What must be seen once and only once so depends on the epoch alone: a crash before its commit leaves what
// Begin removes, a crash after it what Begin shows.
//
// Two lives of a subtask may be at work at the same time, when the older one has not noticed yet that it is fenced. It
// commits nothing any more, but may write, prepare, and finish what it had committed. So Begin, Prepare and Finish must do
// nothing that harms a later life.
type External interface {
	// Begin is called once, before anything is written.
	Begin(ctx context.Context, from Begun) error
	// Write takes a record of a step that has succeeded. Its bytes are valid until the epoch is committed.
	Write(key, value []byte) error
	// Prepare makes all that was taken since the last Prepare durable. The handle is what Begin needs after a crash; nil =
	// nothing. last: nothing may be left for later epochs.
	Prepare(ctx context.Context, epoch uint64, last bool) (handle []byte, err error)
	// Finish is called when the epoch that was prepared is committed.
	Finish(ctx context.Context) error
	// Due is the processing time at which Prepare wants to be called though nothing was written; Never = not at all. After a
	// Prepare it must be a later one.
	Due() int64
	// Close ends it without Prepare and Finish.
	Close() error
}

// Begun is what an External begins with.
type Begun struct {
	// App and Incarnation are whose subtask it is, and Name is the sink's: what is left of former lives can be told from what
	// others have by them and the index of the subtask.
	App         string
	Incarnation uint64
	Name        string
	// Epoch is the first that is written. It grows from life to life of a subtask, if the former one has written.
	Epoch uint64
	// Handles are those of the last committed epoch: one after a restart; those of several subtasks where the state comes
	// from a savepoint.
	Handles [][]byte
}

type external struct {
	External
	name string
	op   int32
	// ended says that nothing more will come: its watermark is at the end of time.
	ended bool
}

// AddExternal adds an External of operator op, whose handles are kept under name. Records go to it by the output that is
// returned.
func (t *Task) AddExternal(name string, op int32, e External) (output int32) {
	t.externals = append(t.externals, &external{External: e, name: name, op: op})
	t.OnClose(e.Close)
	return -int32(len(t.externals))
}

// EndExternal says that nothing more will come for an External: what is left is shown with the running epoch.
func (t *Task) EndExternal(output int32) { t.externals[-output-1].ended = true }

// Externals are the names of all Externals.
func (t *Task) Externals() (names []string) {
	for _, e := range t.externals {
		names = append(names, e.name)
	}
	return names
}

// OutputExternal writes one record to an External.
func (x *Exec) OutputExternal(output int32, key, value []byte) {
	x.t.outs = append(x.t.outs, record.Output{Topic: output, Key: key, Value: value})
	x.t.c.recordsOut++
	x.t.c.bytesOut += int64(len(key) + len(value))
}

// passExternals hands over what is for Externals. An error is that of the next call of the task.
func (t *Task) passExternals() {
	if len(t.externals) == 0 || t.failed != nil {
		return
	}
	kept := t.outs[:0]
	for _, o := range t.outs {
		if o.Topic >= 0 {
			kept = append(kept, o)
			continue
		}
		t.epochOut += int64(len(o.Key) + len(o.Value))
		e := t.externals[-o.Topic-1]
		if err := t.outside(e, "write", func() error { return e.Write(o.Key, o.Value) }); err != nil {
			t.failed = err
			break
		}
	}
	clear(t.outs[len(kept):])
	t.outs = kept
}

// outside calls an External. Its errors, and panics, end the task.
func (t *Task) outside(e *external, what string, f func() error) error {
	t.x.Op = e.op
	err := t.x.guarded(f)
	if err != nil {
		var failure *Failure
		var stack []byte
		if errors.As(err, &failure) {
			stack = failure.stack
		}
		err = t.x.locate(&Error{Kind: Outside, Cause: fmt.Errorf("%s: %w", what, err), Stack: stack})
	}
	t.x.Op = -1
	return err
}

// Begin makes all Externals ready. handles are those of Prepare, by name. It is called before the first Step.
func (t *Task) Begin(ctx context.Context, from Begun, handles map[string][][]byte) error {
	for _, e := range t.externals {
		from.Name, from.Handles = e.name, handles[e.name]
		if err := t.outside(e, "begin", func() error { return e.Begin(ctx, from) }); err != nil {
			return t.fail(err)
		}
	}
	return nil
}

// Prepare makes durable what the sealed epoch wrote to Externals, and returns their handles by name, nil if there are none.
// last: nothing may be left for later epochs.
func (t *Task) Prepare(ctx context.Context, epoch uint64, last bool) (map[string][]byte, error) {
	var handles map[string][]byte
	for _, e := range t.externals {
		err := t.outside(e, "prepare", func() error {
			h, err := e.Prepare(ctx, epoch, last || e.ended)
			if h != nil {
				if handles == nil {
					handles = map[string][]byte{}
				}
				handles[e.name] = slices.Clone(h)
			}
			return err
		})
		if err != nil {
			return nil, t.fail(err)
		}
	}
	return handles, nil
}

// Finish shows what the committed epoch wrote to Externals.
func (t *Task) Finish(ctx context.Context) error {
	for _, e := range t.externals {
		if err := t.outside(e, "finish", func() error { return e.Finish(ctx) }); err != nil {
			return t.fail(err)
		}
	}
	return nil
}
