package task

import (
	"context"
	"time"

	"github.com/millrace-stream/millrace/internal/record"
)

// Origin is the record that a value came from, for an operator that keeps the value and goes on with it later.
type Origin struct {
	Topic      string // "" = none: a timer or a window made it
	Partition  int32
	Offset     int64
	Timestamp  int64
	Key, Value []byte
	Headers    []record.Header
}

// Origin is that of the running step.
func (x *Exec) Origin() Origin {
	switch {
	case x.part != nil && x.rec != nil:
		r := x.rec
		return Origin{x.part.in.env.Topic, x.part.number, r.Offset, r.Timestamp, r.Key, r.Value, r.Headers}
	case x.origin != nil:
		return *x.origin
	}
	return Origin{}
}

// Go runs f beside the task: see Env.Go.
func (t *Task) Go() func(timeout time.Duration, f func(ctx context.Context, wait Wait)) {
	if t.env.Go != nil {
		return t.env.Go
	}
	return func(timeout time.Duration, f func(ctx context.Context, wait Wait)) {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		f(ctx, func(ctx context.Context, _ time.Duration) error { return context.Cause(ctx) })
	}
}

// AddPoller adds a function that Step and Tick call first. It takes in what came from beside the task, each part in an
// atomic step of its own, and says whether there was something.
func (t *Task) AddPoller(f func() (did bool, err error)) { t.pollers = append(t.pollers, f) }

// Block keeps the task from processing records until Unblock was called as often.
func (t *Task) Block() { t.blocked++ }

// Unblock ends a Block.
func (t *Task) Unblock() { t.blocked-- }

func (t *Task) poll() error {
	for _, f := range t.pollers {
		err := t.guard(func() error {
			did, err := f()
			if did {
				t.touch()
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
