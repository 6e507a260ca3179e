package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/checkpoint/blob/blobtest"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
	"github.com/millrace-stream/millrace/txn"
)

// identity is that of the state of a subtask behind countWords.
func (k *command) identity(t *testing.T, subtask string) statestore.Identity {
	t.Helper()
	s, err := k.control.Refresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sub, _, _ := strings.Cut(subtask, "_")
	return statestore.Identity{App: "words", ClusterID: s.ClusterID, Incarnation: s.Incarnation, Subtask: subtask, Changelogs: []string{s.TopicIDs["words-"+sub+"-changelog"]}}
}

// TestCheckpointsOfWhatIsLost finds checkpoints in the object storage that are ahead of their changelog, as after a cluster came back
// from an older snapshot, when nothing has to be restored from them: they are put aside, or else they would keep new ones from being
// published, and be taken for good ones once their epoch is reached again. One of another cluster stays, and is told of.
func TestCheckpointsOfWhatIsLost(t *testing.T) {
	c := newCluster(t)
	blobs := blobtest.NewMemory()
	dir := memstore.NewDir("words")
	often := func(o *engine.Options) {
		o.Checkpoints = engine.Checkpoints{Blobs: blobs, Interval: 20 * time.Millisecond, MinPause: time.Millisecond}
		o.WriteBehindInterval = 20 * time.Millisecond
	}
	m := c.start("words", countWords, dir, often)
	k := c.command("words", blobs)
	sent := 0
	send := func() {
		c.send(50, 11)
		sent += 50
		c.drained("words", "in", "words-by-text-repartition")
	}
	newest := func(subtask string) *checkpoint.Manifest {
		t.Helper()
		found, err := checkpoint.Find(t.Context(), blobs, k.identity(t, subtask))
		if err != nil || len(found) > 0 && found[0].Err != nil {
			t.Fatal(found, err)
		}
		if len(found) == 0 {
			return nil
		}
		return found[0].Manifest
	}
	send()
	subtasks := []string{"1_0", "1_1", "1_2"}
	for _, s := range subtasks {
		testutil.Eventually(t, patience, func() error {
			if newest(s) == nil {
				return fmt.Errorf("subtask %s has no checkpoint", s)
			}
			return nil
		})
	}
	m.stop(t)
	// One knows of records that are not there, one only of an epoch that is not, and one is another cluster's.
	lost := map[string]*checkpoint.Manifest{}
	for i, s := range subtasks {
		fake := *newest(s)
		fake.Epoch, fake.Attempt = 1_000_000, "other"
		switch i {
		case 0:
			fake.Positions = []int64{fake.Positions[0] + 1000}
		case 2:
			fake.ClusterID = "another"
		}
		data, err := fake.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if err := blobs.Create(t.Context(), fmt.Sprintf("words/1/%s/manifests/%020d", s, fake.Epoch), data); err != nil {
			t.Fatal(err)
		}
		lost[s] = &fake
	}
	m = c.start("words", countWords, dir, often)
	for _, s := range subtasks[:2] {
		testutil.Eventually(t, patience, func() error {
			send() // it takes two epochs
			if now := newest(s); now.Epoch == lost[s].Epoch {
				return fmt.Errorf("subtask %s still has the checkpoint of what is lost", s)
			}
			return nil
		})
	}
	before := newest(subtasks[0]).Epoch
	testutil.Eventually(t, patience, func() error {
		send()
		if now := newest(subtasks[0]).Epoch; now <= before {
			return fmt.Errorf("the newest checkpoint is of epoch %d", now)
		}
		for _, s := range m.w.Status().Subtasks {
			if s.ID == subtasks[2] && strings.Contains(s.Checkpoint.Error, "was made on cluster another, but this is cluster") && strings.Contains(s.Checkpoint.Error, "checkpoint.url") {
				return nil
			}
		}
		return errors.New("nothing is said of the other cluster")
	})
	if now := newest(subtasks[2]); now.ClusterID != "another" {
		t.Errorf("the other cluster's checkpoint is gone: %+v", now)
	}
	m.stop(t)
	checkCounts(t, c.read("out"), sent, 11)
}

// TestStateOfAnotherHistory starts with a local store that was made with other records than those that its changelog has: positions
// and epochs fit, as when the changelog of a cluster that came back from an older snapshot has grown past it. It is put aside.
func TestStateOfAnotherHistory(t *testing.T) {
	c := newCluster(t)
	dir := memstore.NewDir("words")
	m := c.start("words", countWords, dir, nil)
	c.send(100, 11)
	c.drained("words", "in", "words-by-text-repartition")
	m.stop(t)
	k := c.command("words", nil)
	forged := 0
	for i := range nparts {
		store, err := dir.Open(k.identity(t, fmt.Sprint("1_", i)))
		if err != nil {
			t.Fatal(err)
		}
		meta, ok := store.Meta()
		if !ok {
			t.Fatalf("the store of subtask 1_%d is empty", i)
		}
		rec, err := txn.DecodeEpochRecord(meta.EpochRecord)
		if err != nil {
			t.Fatal(err)
		}
		switch i {
		case 0:
			rec.WallTime++ // the same epoch, of another life
		case 1:
			rec.Epoch++ // it had more of them
		case 2:
			rec.Epoch-- // or fewer
		default:
			rec = nil
		}
		if rec != nil {
			forged++
			meta.Epoch, meta.EpochRecord = rec.Epoch, rec.Append(nil)
			it, err := store.Scan(nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			batch := store.NewBatch()
			for it.Next() {
				batch.Delete(it.Key())
			}
			if err := errors.Join(it.Err(), it.Close(), batch.Commit(meta), store.Flush()); err != nil {
				t.Fatal(err)
			}
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
	m = c.start("words", countWords, dir, nil)
	c.send(100, 11)
	c.drained("words", "in", "words-by-text-repartition")
	m.stop(t)
	checkCounts(t, c.read("out"), 200, 11)
	if n := strings.Count(m.log.String(), "it was made of changelog records that are gone"); n != forged {
		t.Errorf("%d of %d stores were found to be of another history", n, forged)
	}
}
