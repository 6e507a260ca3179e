package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/checkpoint/blob/blobtest"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/pebblestore"
)

// TestMeasureSavepoint measures how long processing stands still while a savepoint is taken under load, with 200,000 keys on two
// members. It is a measurement: MILLRACE_TEST_MEASURE=1 on a machine that does nothing else.
func TestMeasureSavepoint(t *testing.T) {
	if os.Getenv("MILLRACE_TEST_MEASURE") == "" {
		t.Skip("a measurement: MILLRACE_TEST_MEASURE=1 runs it")
	}
	const keys = 200_000
	c := newCluster(t)
	open := func() statestore.Dir {
		d, err := pebblestore.OpenDir(filepath.Join(t.TempDir(), "state"), "words", pebblestore.Options{MinFreeBytes: -1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
		return d
	}
	blobs := blobtest.NewMemory()
	a, b := c.start("words", countWords, open(), with(blobs)), c.start("words", countWords, open(), with(blobs))
	settled(t, a, b)
	c.send(keys, keys)
	c.drained("words", "in", "words-by-text-repartition")
	k := c.command("words", blobs)
	end := c.load(keys)
	type span struct{ from, to time.Time }
	var taken []span
	for i := range 10 {
		busy(t, 5000, a, b)
		s := span{from: time.Now()}
		sp, err := k.take(t, engine.SavepointOptions{Name: fmt.Sprint("s-", i)})
		if err != nil {
			t.Fatal(err)
		}
		s.to = time.Now()
		taken = append(taken, s)
		source, rest := 0.0, 0.0
		for _, m := range []*member{a, b} {
			for _, sub := range m.w.Status().Subtasks {
				if sub.ID[0] == '0' {
					source = max(source, sub.LastSavepointHoldMs)
				} else {
					rest = max(rest, sub.LastSavepointHoldMs)
				}
			}
		}
		t.Logf("savepoint %d of %d bytes: %v in all; the subtasks that feed others stood still for %.0f ms, the others for %.0f ms at most", i, sp.Bytes(), s.to.Sub(s.from).Round(time.Millisecond), source, rest)
	}
	busy(t, 20_000, a, b)
	n := end()
	c.drained("words", "in", "words-by-text-repartition")
	last := map[int32]time.Time{}
	var during, apart time.Duration
	for _, r := range c.read("out") {
		if gap := r.Timestamp.Sub(last[r.Partition]); r.Timestamp.After(taken[0].from) && !last[r.Partition].IsZero() {
			in := false
			for _, s := range taken {
				in = in || last[r.Partition].Before(s.to) && r.Timestamp.After(s.from)
			}
			if in {
				during = max(during, gap)
			} else {
				apart = max(apart, gap)
			}
		}
		last[r.Partition] = r.Timestamp
	}
	t.Logf("%d records meanwhile; the longest silence of an output partition was %v while a savepoint was taken, %v apart from that", n, during, apart)
	a.stop(t)
	b.stop(t)
}
