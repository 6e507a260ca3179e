package engine_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

// TestExpiredStateIsNotShown: a value whose time to live is over is not answered to queries, as the program does not see it,
// though it is there still: clean-up looks at what was written behind, and nothing was.
func TestExpiredStateIsNotShown(t *testing.T) {
	c := newCluster(t)
	m := c.start("ttl", func(top *processor.Topology) {
		words := processor.KeyBy(processor.From(top, processor.Topic[word]{Name: "in"}), "by", func(w word) string { return w.Text })
		processor.ToTopic(processor.Process(words, "keep", func(ctx *processor.KeyedContext[string, word, word]) {
			short := processor.Value[int64](ctx, "short", processor.TTL{After: time.Millisecond})
			long := processor.Value[int64](ctx, "long", processor.TTL{After: time.Hour})
			late := processor.Value[int64](ctx, "late", processor.TTL{After: time.Millisecond, ReturnExpired: true})
			dict := processor.MapOf[string, int64](ctx, "dict", processor.TTL{After: time.Millisecond})
			list := processor.List[int64](ctx, "list", processor.TTL{After: time.Millisecond})
			ctx.OnRecord(func(w word) error {
				short.Set(w.N)
				long.Set(w.N)
				late.Set(w.N)
				dict.Put("a", w.N)
				list.Add(w.N)
				return nil
			})
		}), "out")
	}, memstore.NewDir("ttl"), func(o *engine.Options) {
		o.Parallelism, o.WriteBehindInterval, o.WriteBehindBytes = 1, time.Hour, 1<<30
	})
	c.send(1, 1)
	c.drained("ttl", "in", "ttl-by-repartition")
	testutil.Eventually(t, patience, func() error { // until the clock has gone on
		found, _, err := m.get(t, "keep/short", "word-0")
		if err == nil && len(found) > 0 {
			err = errors.New("it is shown")
		}
		return err
	})
	for state, shown := range map[string]bool{"short": false, "long": true, "late": true, "dict": false, "list": false} {
		found, a, err := m.get(t, "keep/"+state, "word-0")
		if err != nil {
			t.Fatal(err)
		}
		if a.Entries != len(found) || (len(found) == 1) != shown {
			t.Errorf("state %s: %d entries, %d said; shown is %v, want %v", state, len(found), a.Entries, len(found) == 1, shown)
		}
	}
	var found []entry
	testutil.Eventually(t, patience, func() error {
		found = nil
		_, err := m.w.StateScan(t.Context(), engine.StateScan{Subtask: record.SubtaskID{SubTopology: 1}}, lines(t, &found))
		return err
	})
	long := false
	for _, e := range found {
		long = long || e.Store == "keep/long"
		if e.Store != "keep/long" && e.Store != "keep/late" {
			t.Errorf("a scan shows %+v", e)
		}
	}
	if !long || !strings.Contains(string(found[0].Value), "@written") {
		t.Errorf("a scan shows %v", found)
	}
	m.stop(t)
}
