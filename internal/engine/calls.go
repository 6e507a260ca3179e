package engine

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace-stream/millrace/internal/task"
)

// Calls are what the operators of one life do beside the loop (task.Env.Go). How many run at a time is up to the
// operators, each of which has a capacity.
type Calls struct {
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	wake   chan struct{}
}

// NewCalls has no call yet.
func NewCalls() *Calls {
	ctx, cancel := context.WithCancel(context.Background())
	return &Calls{ctx: ctx, cancel: cancel, wake: make(chan struct{}, 1)}
}

// Run is task.Env.Go.
func (c *Calls) Run(timeout time.Duration, f func(ctx context.Context, wait task.Wait)) {
	c.wg.Go(func() {
		ctx, cancel := context.WithTimeout(c.ctx, timeout)
		defer cancel()
		f(ctx, waitFor)
		select {
		case c.wake <- struct{}{}:
		default:
		}
	})
}

// Wake gets a value when a call has ended.
func (c *Calls) Wake() <-chan struct{} { return c.wake }

// waitFor is task.Wait.
func waitFor(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// callsEnd is how long the end of a life waits for calls that do not mind that their context has ended.
const callsEnd = 5 * time.Second

// End ends all calls. It waits some seconds for those that do not mind that their context has ended.
func (c *Calls) End(log *slog.Logger) {
	c.cancel()
	done := make(chan struct{})
	go func() { c.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(callsEnd):
		log.Warn("asynchronous calls go on though their context has ended; the user function must return then", "waited", callsEnd)
	}
}
