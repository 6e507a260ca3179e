package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/checkpoint/blob/blobtest"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

// TestCheckpoints loses the disk: the state comes from a checkpoint and the tail of the changelog, and counts go on. A
// damaged checkpoint is passed over for an older one, and when all are, for the changelog.
func TestCheckpoints(t *testing.T) {
	// So many that a checkpoint is cheaper than the changelog.
	const keys = 150_000
	c := newCluster(t)
	blobs, err := blob.Open(t.Context(), "file://"+t.TempDir(), blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := blobs.Close(); err != nil {
			t.Error(err)
		}
	})
	with := func(o *engine.Options) {
		o.Parallelism = 1
		o.Checkpoints = engine.Checkpoints{Blobs: blobs, Interval: 100 * time.Millisecond, MinPause: time.Millisecond}
		o.WriteBehindInterval = 100 * time.Millisecond
	}
	// published waits for a checkpoint of the counts that is newer than after.
	published := func(m *member, after uint64) (epoch uint64) {
		t.Helper()
		testutil.Eventually(t, patience, func() error {
			for _, s := range m.w.Status().Subtasks {
				if s.ID == "1_0" && s.Checkpoint != nil && s.Checkpoint.Epoch > after && s.Checkpoint.Epoch == s.Epoch {
					epoch = s.Checkpoint.Epoch
					return nil
				}
			}
			return fmt.Errorf("no checkpoint after epoch %d: %+v", after, m.w.Status().Subtasks)
		})
		return epoch
	}
	m := c.start("words", countWords, memstore.NewDir("words"), with)
	c.send(keys, keys)
	c.drained("words", "in", "words-by-text-repartition")
	first := published(m, 0)
	c.send(100, keys)
	c.drained("words", "in", "words-by-text-repartition")
	published(m, first)
	m.stop(t)

	restored := func(way string) {
		t.Helper()
		m := c.start("words", countWords, memstore.NewDir("words"), with)
		c.send(100, keys)
		c.drained("words", "in", "words-by-text-repartition")
		m.stop(t)
		if !strings.Contains(m.log.String(), "way="+way) {
			t.Errorf("the state was not restored from the %s:\n%s", way, m.log.String())
		}
	}
	restored("checkpoint")

	// Files of the newest one are gone.
	entries, err := checkpoint.List(t.Context(), blobs, "words")
	if err != nil || len(entries) < 2 {
		t.Fatalf("checkpoints: %v %v", entries, err)
	}
	var all []string
	for info, err := range blobs.List(t.Context(), "words/") {
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(info.Key, "/blobs/") {
			all = append(all, info.Key)
		}
	}
	if err := blobs.Delete(t.Context(), all...); err != nil {
		t.Fatal(err)
	}
	restored("changelog")
	checkCounts(t, c.read("out"), keys+300, keys)
}

// TestCheckpointFails: processing goes on, and status and log tell.
func TestCheckpointFails(t *testing.T) {
	c := newCluster(t)
	blobs := blobtest.NewMemory()
	blobs.Hook = func(_ context.Context, op, _ string, do func() error) error {
		if op == "put" || op == "create" {
			return errors.New("no room in the bucket")
		}
		return do()
	}
	m := c.start("words", countWords, memstore.NewDir("words"), func(o *engine.Options) {
		o.Parallelism = 1
		o.Checkpoints = engine.Checkpoints{Blobs: blobs, Interval: 20 * time.Millisecond, MinPause: time.Millisecond}
		o.WriteBehindInterval = 10 * time.Millisecond
	})
	c.send(100, 10)
	c.drained("words", "in", "words-by-text-repartition")
	testutil.Eventually(t, patience, func() error {
		for _, s := range m.w.Status().Subtasks {
			if s.Checkpoint != nil && s.Checkpoint.Failed > 1 && strings.Contains(s.Checkpoint.Error, "no room in the bucket") {
				return nil
			}
		}
		return errors.New("no failed checkpoint is told")
	})
	c.send(100, 10)
	c.drained("words", "in", "words-by-text-repartition")
	m.stop(t)
	if log := m.log.String(); strings.Count(log, "level=ERROR") != 1 {
		t.Errorf("a checkpoint that fails is told as an error once:\n%s", log)
	}
	checkCounts(t, c.read("out"), 200, 10)
}

// TestRestoreWhenTheBucketIsGone: a member that has lost its disk goes on from the changelog, and says that it does not know of
// checkpoints.
func TestRestoreWhenTheBucketIsGone(t *testing.T) {
	c := newCluster(t)
	blobs := blobtest.NewMemory()
	often := func(o *engine.Options) {
		o.Checkpoints = engine.Checkpoints{Blobs: blobs, Interval: 20 * time.Millisecond, MinPause: time.Millisecond, Prefer: true}
	}
	c.once(countWords, memstore.NewDir("words"), often, 100, 10)
	blobs.Hook = func(context.Context, string, string, func() error) error { return errors.New("no route to the bucket") }
	m := c.once(countWords, memstore.NewDir("words"), often, 100, 10)
	checkCounts(t, c.read("out"), 200, 10)
	if log := m.log.String(); !strings.Contains(log, "checkpoints are not known: ") || !strings.Contains(log, "no route to the bucket") || !strings.Contains(log, "way=changelog") {
		t.Errorf("the log does not tell it:\n%s", log)
	}
}
