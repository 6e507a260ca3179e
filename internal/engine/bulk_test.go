package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/failpoint"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/window"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/pebblestore"
)

// countTwice counts words for ever, and in windows of which all but the last are closed soon: rows that are overwritten,
// and rows that are gone by the horizon of an epoch record, in two changelogs.
func countTwice(t *processor.Topology) {
	words := processor.From(t, processor.Topic[word]{Name: "in", EventTime: func(w word) time.Time { return time.UnixMilli(10 * w.N) }})
	byText := processor.KeyBy(words, "by-text", func(w word) string { return w.Text })
	count := func(text string, n int64, _ word) word { return word{text, n} }
	processor.To(processor.RunningAggregate(byText, "count", processor.Count[word](), count), processor.SinkTopic[word]{Name: "out", ID: "counts"})
	windows := processor.Aggregate(byText.Window(window.Tumbling(5*time.Second)), "windows", processor.Count[word](),
		func(w processor.Window[string], n int64) word { return word{w.Key, n} })
	processor.To(windows, processor.SinkTopic[word]{Name: "out", ID: "windows"})
}

// notedDir remembers with what identity each store was opened.
type notedDir struct {
	statestore.Dir
	mu  sync.Mutex
	ids map[string]statestore.Identity
}

func (d *notedDir) Open(id statestore.Identity) (statestore.Store, error) {
	d.mu.Lock()
	d.ids[id.Subtask] = id
	d.mu.Unlock()
	return d.Dir.Open(id)
}

// TestBulkRestoreEqualsOthers restores a wiped state from its changelogs in batches, in bulk, and in bulk with an error at each of
// its points: each time the store holds what the first one held, and counts go on from there.
func TestBulkRestoreEqualsOthers(t *testing.T) {
	c := newCluster(t)
	folder := t.TempDir()
	run := func(change func(*engine.Options), records int) map[string][]byte {
		t.Helper()
		path := t.TempDir()
		if change == nil {
			path = folder
		}
		pebbles, err := pebblestore.OpenDir(path, "words", pebblestore.Options{CacheBytes: 1 << 20})
		must(t, err)
		dir := &notedDir{Dir: pebbles, ids: map[string]statestore.Identity{}}
		m := c.start("words", countTwice, dir, func(o *engine.Options) {
			o.Parallelism = 1
			if change != nil {
				change(o)
			}
		})
		testutil.Eventually(t, patience, func() error {
			st := m.w.Status().Subtasks
			if len(st) != 2 || st[0].State != engine.SubtaskRunning || st[1].State != engine.SubtaskRunning {
				return fmt.Errorf("%d subtasks: %+v", len(st), st)
			}
			return nil
		})
		if records > 0 {
			c.send(records, 500)
		}
		c.drained("words", "in", "words-by-text-repartition")
		m.stop(t)
		store, err := pebbles.Open(dir.ids["1_0"])
		must(t, err)
		all := entries(t, store)
		must(t, errors.Join(store.Close(), dir.Close()))
		return all
	}
	first := run(nil, 3000)
	if len(first) < 500 {
		t.Fatalf("the state has %d entries", len(first))
	}
	check := func(name string, got, want map[string][]byte) {
		t.Helper()
		if !maps.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("%s: %d entries, want %d", name, len(got), len(want))
		}
	}
	bulk := func(o *engine.Options) { o.Bulk = engine.Bulk{Records: 1, Bytes: 1 << 10} }
	ingested, err := failpoint.Arm(failpoint.AfterIngest, func() error { return nil })
	must(t, err)
	check("in batches", run(func(*engine.Options) {}, 0), first)
	if n := ingested.Hits(); n != 0 {
		t.Errorf("%d bulks without the setting", n)
	}
	check("in bulk", run(bulk, 0), first)
	if n := ingested.Hits(); n < 2 {
		t.Errorf("%d bulks: the test did not reach what it is for", n)
	}
	ingested.Disarm()
	for _, point := range []string{failpoint.MidBulk, failpoint.BeforeIngest, failpoint.AfterIngest} {
		var met atomic.Bool
		p, err := failpoint.Arm(point, func() error {
			if met.CompareAndSwap(false, true) {
				return failpoint.ErrInjected
			}
			return nil
		})
		must(t, err)
		check("in bulk, with an error at "+point, run(bulk, 0), first)
		p.Disarm()
		if !met.Load() {
			t.Errorf("%s was not reached", point)
		}
	}
	// What was restored is gone on with: again the same as with the store that was never wiped.
	second := run(bulk, 3000)
	check("what a local store and a bulk restored go on with", run(func(*engine.Options) {}, 0), second)
	if maps.EqualFunc(first, second, bytes.Equal) {
		t.Error("nothing was counted after the restore")
	}
}
