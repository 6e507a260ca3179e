package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/millrace-stream/millrace/checkpoint/blob/blobtest"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/pebblestore"
)

// fullDisk refuses writes to some files as long as it is full.
type fullDisk struct {
	full    atomic.Bool
	only    atomic.Pointer[string] // part of the path
	refused atomic.Int64
}

func (f *fullDisk) String() string { return "full disk" }

func (f *fullDisk) MaybeError(op errorfs.Op) error {
	// What is removed and closed needs no room.
	if !f.full.Load() || op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpRemove || op.Kind == errorfs.OpRemoveAll ||
		op.Kind == errorfs.OpFileClose || !strings.Contains(op.Path, *f.only.Load()) {
		return nil
	}
	f.refused.Add(1)
	return syscall.ENOSPC
}

// fill lets writes to files fail whose path has a part.
func (f *fullDisk) fill(only string) {
	f.only.Store(&only)
	f.refused.Store(0)
	f.full.Store(true)
}

// TestFullDisk lets the disk run full while state is written behind, while a checkpoint is taken, and while one is restored. A
// worker that cannot write its state ends and says why; what can go on does; nothing is lost, and a worker that is started
// when there is room goes on.
func TestFullDisk(t *testing.T) {
	c := newCluster(t)
	disk := &fullDisk{}
	mem := vfs.NewMem()
	const topic = "words-by-text-repartition"
	sent := 0
	send := func() { c.send(100, 10); sent += 100 }
	var dir *pebblestore.Dir
	blobs := blobtest.NewMemory()
	start := func() *member {
		t.Helper()
		var err error
		dir, err = pebblestore.OpenDir("/state", "words", pebblestore.Options{FS: errorfs.Wrap(mem, disk), CacheBytes: 1 << 20})
		must(t, err)
		return c.start("words", countWords, dir, func(o *engine.Options) {
			o.Parallelism = 1
			o.WriteBehindInterval = 50 * time.Millisecond
			o.Checkpoints = engine.Checkpoints{Blobs: blobs, Interval: 50 * time.Millisecond, MinPause: time.Millisecond, Prefer: true}
		})
	}
	stop := func(m *member) {
		t.Helper()
		m.stop(t)
		must(t, dir.Close())
	}
	// ends waits for a worker that cannot go on.
	ends := func(m *member) {
		t.Helper()
		err := m.wait(t)
		if !errors.Is(err, statestore.ErrNoSpace) || !strings.Contains(err.Error(), "/state/1/1_0") {
			t.Fatalf("the worker ended with %v", err)
		}
		if err := dir.Close(); err != nil && !errors.Is(err, statestore.ErrNoSpace) {
			t.Fatal(err)
		}
	}
	checkpointed := func(m *member, want func(engine.CheckpointStatus, uint64) bool) {
		t.Helper()
		testutil.Eventually(t, patience, func() error {
			for _, s := range m.w.Status().Subtasks {
				if s.ID == "1_0" && s.Checkpoint != nil && want(*s.Checkpoint, s.Epoch) {
					return nil
				}
			}
			return fmt.Errorf("%+v", m.w.Status().Subtasks)
		})
	}
	newest := func(s engine.CheckpointStatus, epoch uint64) bool { return s.Error == "" && s.Epoch == epoch }
	m := start()
	send()
	c.drained("words", "in", topic)
	checkpointed(m, newest)

	// State cannot be written behind, and not after a restart either.
	disk.fill("/1_0/")
	send()
	ends(m)
	ends(start())
	disk.full.Store(false)
	m = start()
	c.drained("words", "in", topic)

	// A checkpoint cannot be taken: processing goes on.
	disk.fill(".snapshots")
	send()
	c.drained("words", "in", topic)
	checkpointed(m, func(s engine.CheckpointStatus, _ uint64) bool {
		return s.Failed > 0 && strings.Contains(s.Error, "no space left in the state directory")
	})
	disk.full.Store(false)
	checkpointed(m, newest)
	stop(m)

	// A checkpoint cannot be downloaded: the next way is taken.
	disk.fill(".staged")
	m = start()
	send()
	c.drained("words", "in", topic)
	stop(m)
	if log := m.log.String(); disk.refused.Load() == 0 || !strings.Contains(log, "state could not be restored this way") ||
		!strings.Contains(log, "no space left in the state directory") || strings.Contains(log, "way=checkpoint") {
		t.Errorf("%d writes were refused; the log:\n%s", disk.refused.Load(), log)
	}

	// Nothing can be written at all, on an empty disk.
	disk.full.Store(false)
	mem = vfs.NewMem()
	disk.fill("/1_0")
	send()
	ends(start())
	disk.full.Store(false)
	m = start()
	c.drained("words", "in", topic)
	stop(m)
	if log := m.log.String(); !strings.Contains(log, "way=checkpoint") {
		t.Errorf("the state was not restored from a checkpoint:\n%s", log)
	}
	checkCounts(t, c.read("out"), sent, 10)
}
