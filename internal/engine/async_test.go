package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

// TestAsyncCalls: the calls of a subtask run side by side up to the capacity, end with the subtask, and are made again by
// the next one; what waited for them is processed once.
func TestAsyncCalls(t *testing.T) {
	const capacity, n = 5, 200
	c := newCluster(t)
	var running, most atomic.Int64
	open := make(chan struct{})
	close(open)
	ask := func(gate chan struct{}) func(*processor.Topology) {
		return func(top *processor.Topology) {
			in := processor.From(top, processor.Topic[word]{Name: "in"})
			processor.ToTopic(processor.Async(in, "ask", processor.AsyncOptions{Capacity: capacity}, func(ctx context.Context, w word) (word, error) {
				most.Store(max(most.Load(), running.Add(1)))
				defer running.Add(-1)
				select {
				case <-gate:
					return w, nil
				case <-ctx.Done():
					return w, ctx.Err()
				}
			}), "out")
		}
	}
	a := c.start("asks", ask(make(chan struct{})), memstore.NewDir("asks"), nil)
	c.send(n, n)
	testutil.Eventually(t, patience, func() error {
		if got := running.Load(); got != capacity*nparts {
			return fmt.Errorf("%d calls run, want %d", got, capacity*nparts)
		}
		return nil
	})
	if out := c.read("out"); len(out) != 0 {
		t.Errorf("%d results, though no call has ended", len(out))
	}
	a.stop(t)
	if got := running.Load(); got != 0 {
		t.Errorf("%d calls run after the end", got)
	}
	b := c.start("asks", ask(open), memstore.NewDir("asks"), nil)
	seen := map[int64]int{}
	testutil.Eventually(t, patience, func() error {
		clear(seen)
		for _, r := range c.read("out") {
			var w word
			if err := json.Unmarshal(r.Value, &w); err != nil {
				t.Fatal(err)
			}
			seen[w.N]++
		}
		if len(seen) != n {
			return fmt.Errorf("%d results, want %d", len(seen), n)
		}
		return nil
	})
	b.stop(t)
	for i, times := range seen {
		if times != 1 {
			t.Errorf("value %d came out %d times", i, times)
		}
	}
	if got := most.Load(); got > capacity*nparts {
		t.Errorf("%d calls ran at a time, want at most %d", got, capacity*nparts)
	}
}
