package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
	"github.com/millrace-stream/millrace/statestore/pebblestore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testApp = "orders"

func testIdentity(subtask string) statestore.Identity {
	return statestore.Identity{App: testApp, ClusterID: "cluster-1", Incarnation: 2, Subtask: subtask, Changelogs: []string{"topic-a"}}
}

// wallTime of an epoch record of these tests, "record <epoch>": a second each.
func wallTime(raw []byte) (int64, error) {
	var epoch int64
	if _, err := fmt.Sscanf(string(raw), "record %d", &epoch); err != nil {
		return 0, err
	}
	return epoch * 1000, nil
}

func testMeta(epoch uint64) statestore.Meta {
	return statestore.Meta{Epoch: epoch, EpochRecord: fmt.Appendf(nil, "record %d", epoch), Positions: []int64{int64(epoch) * 10}}
}

// disk is a directory with one store.
type disk struct {
	t     testing.TB
	dir   statestore.Dir
	id    statestore.Identity
	store statestore.Store
	fs    vfs.FS // nil: in memory, without files
	snaps []statestore.Snapshot
}

func newDisk(t testing.TB, subtask string) *disk {
	return openDisk(&disk{t: t, dir: memstore.NewDir(testApp), id: testIdentity(subtask)})
}

// newFileDisk is one with files, in a file system in memory.
func newFileDisk(t testing.TB, subtask string) *disk {
	t.Helper()
	fs := vfs.NewMem()
	dir, err := pebblestore.OpenDir("/state", testApp, pebblestore.Options{FS: fs, CacheBytes: 1 << 20})
	must(t, err)
	return openDisk(&disk{t: t, dir: dir, id: testIdentity(subtask), fs: fs})
}

func openDisk(d *disk) *disk {
	d.open()
	d.t.Cleanup(func() {
		var err error
		for _, snap := range d.snaps {
			err = errors.Join(err, snap.Close())
		}
		must(d.t, errors.Join(err, d.store.Close(), d.dir.Close()))
		d.clean()
	})
	return d
}

// clean fails if there is something beside the store: what was staged, what was replaced, snapshots that were closed.
func (d *disk) clean() {
	d.t.Helper()
	if d.fs == nil {
		return
	}
	folder := fmt.Sprintf("/state/%d", d.id.Incarnation)
	names, err := d.fs.List(folder)
	must(d.t, err)
	for _, name := range names {
		path := folder + "/" + name
		if strings.HasSuffix(name, ".snapshots") {
			if inside, err := d.fs.List(path); err != nil || len(inside) > 0 {
				d.t.Errorf("%s still holds %v, %v", path, inside, err)
			}
		} else if name != d.id.Subtask {
			d.t.Errorf("%s is left", path)
		}
	}
}

func (d *disk) open() {
	d.t.Helper()
	s, err := d.dir.Open(d.id)
	must(d.t, err)
	d.store = s
}

func storeKey(s string) []byte { return append([]byte{0, 0, 0, 7}, s...) }

// commit writes and flushes an epoch; an empty value deletes.
func (d *disk) commit(epoch uint64, kv ...string) {
	d.t.Helper()
	b := d.store.NewBatch()
	for i := 0; i < len(kv); i += 2 {
		if kv[i+1] == "" {
			b.Delete(storeKey(kv[i]))
		} else {
			b.Set(storeKey(kv[i]), []byte(kv[i+1]))
		}
	}
	must(d.t, b.Commit(testMeta(epoch)))
	must(d.t, d.store.Flush())
}

func (d *disk) snapshot() statestore.Snapshot {
	d.t.Helper()
	s, err := d.store.(statestore.Checkpointer).Checkpoint()
	must(d.t, err)
	d.snaps = append(d.snaps, s)
	return s
}

func (d *disk) content() map[string]string {
	d.t.Helper()
	m := map[string]string{}
	it, err := d.store.Scan(nil, nil)
	must(d.t, err)
	for it.Next() {
		m[string(it.Key()[4:])] = string(it.Value())
	}
	must(d.t, errors.Join(it.Err(), it.Close()))
	return m
}

// restore puts a checkpoint in the place of the store and opens it.
func (d *disk) restore(ctx context.Context, blobs blob.Store, m *Manifest) error {
	d.t.Helper()
	must(d.t, d.store.Close())
	defer d.open()
	return Restore(ctx, blobs, m, d.dir, RestoreOptions{})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t testing.TB, err, is error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if is != nil && !errors.Is(err, is) {
		t.Fatalf("error %q is not %q", err, is)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Fatalf("error %q does not say %q", err, p)
		}
	}
}

func publisher(blobs blob.Store, subtask, owner string) *Publisher {
	return NewPublisher(Options{Blobs: blobs, Identity: testIdentity(subtask), Owner: owner, Version: "test", WallTime: wallTime})
}
