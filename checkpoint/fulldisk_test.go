package checkpoint

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/millrace-stream/millrace/checkpoint/blob/blobtest"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/pebblestore"
)

// fullDisk refuses all writes beside the store, and to folders, from the at-th on, until there is room again.
type fullDisk struct {
	n, at   atomic.Int64
	room    atomic.Bool
	refused atomic.Int64
}

func (f *fullDisk) String() string { return "full disk" }

func (f *fullDisk) MaybeError(op errorfs.Op) error {
	// What is removed and closed needs no room.
	if f.room.Load() || op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpRemove || op.Kind == errorfs.OpRemoveAll ||
		op.Kind == errorfs.OpFileClose || !strings.Contains(op.Path, "0_0.") && op.Kind != errorfs.OpFileSync && op.Kind != errorfs.OpRename {
		return nil
	}
	switch n := f.n.Add(1); {
	case n < f.at.Load():
		return nil
	case n > f.at.Load() && op.Kind == errorfs.OpRename: // back to where there was room
		return nil
	}
	f.refused.Add(1)
	return syscall.ENOSPC
}

// TestFullDisk lets the disk be full from the i-th write on, for all i, while a checkpoint is downloaded. The error says so, the store is the old one or the new one, nothing is left beside it, and with room it works.
func TestFullDisk(t *testing.T) {
	blobs := blobtest.NewMemory()
	d := newFileDisk(t, "0_0")
	for epoch := uint64(1); epoch <= 5; epoch++ {
		d.commit(epoch, fmt.Sprint(epoch), noise(epoch))
	}
	_, err := publisher(blobs, "0_0", "one").Publish(t.Context(), d.snapshot(), nil)
	must(t, err)
	found, err := Find(t.Context(), blobs, d.id)
	must(t, err)
	want := d.content()

	fetch := func(t *testing.T, dir statestore.Dir) error {
		return Restore(t.Context(), blobs, found[0].Manifest, dir, RestoreOptions{Parallel: 1})
	}
	reached := int64(0)
	for i := int64(1); ; i++ {
		refused := int64(0)
		// In a bubble the pauses of a failed store cost nothing.
		synctest.Test(t, func(t *testing.T) {
			defer tell(t, fmt.Sprintf("full from write %d on", i))
			refused = fullWhile(t, i, want, fetch)
		})
		if refused == 0 {
			break
		}
		reached = i
	}
	if t.Logf("%d writes", reached); reached < 5 {
		t.Error("the runs did not reach what they are for")
	}
}

func fullWhile(t *testing.T, at int64, want map[string]string, fetch func(*testing.T, statestore.Dir) error) (refused int64) {
	f := &fullDisk{}
	f.room.Store(true)
	mem := vfs.NewMem()
	dir, err := pebblestore.OpenDir("/state", testApp, pebblestore.Options{FS: errorfs.Wrap(mem, f), CacheBytes: 1 << 20, MinFreeBytes: -1})
	must(t, err)
	d := openDisk(&disk{t: t, dir: dir, id: testIdentity("0_0"), fs: mem})
	d.commit(9, "own", "state")
	must(t, d.store.Close())
	f.at.Store(at)
	f.room.Store(false)
	err = fetch(t, dir)
	f.room.Store(true)
	d.open()
	d.clean()
	switch got := d.content(); {
	case err == nil && maps.Equal(got, want):
	case err == nil:
		t.Error("it succeeded with other contents")
	case !errors.Is(err, statestore.ErrNoSpace) || !strings.Contains(err.Error(), "/state/2/0_0"):
		t.Errorf("the error does not say that the disk is full: %v", err)
	case IsUnusable(err):
		t.Errorf("a full disk condemned the checkpoint: %v", err)
	case !maps.Equal(got, want) && (len(got) != 1 || got["own"] != "state"):
		t.Errorf("after %v the store holds %d entries of neither", err, len(got))
	}
	must(t, d.store.Close())
	must(t, fetch(t, dir))
	d.open()
	if !maps.Equal(d.content(), want) {
		t.Error("with room other contents came")
	}
	return f.refused.Load()
}
