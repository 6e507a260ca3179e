package pebblestore_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/pebblestore"
	"github.com/millrace-stream/millrace/statestore/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memWorld is a machine with a file system in memory that forgets what was not synced when it crashes.
type memWorld struct {
	fs   *vfs.MemFS
	r    *rand.Rand
	dead func() // closes what a crash left open
	open []statestore.Dir
}

// dir notes the stores it opened, so that those of a crashed process can be closed behind the scenes: a dead process
// leaves no goroutines, a test does.
type dir struct {
	statestore.Dir
	stores *[]statestore.Store
}

func (d dir) Open(id statestore.Identity) (statestore.Store, error) {
	s, err := d.Dir.Open(id)
	if err == nil {
		*d.stores = append(*d.stores, s)
	}
	return s, err
}

func newMemWorld(t testing.TB) *memWorld {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed of crashes: %d", seed)
	return &memWorld{fs: vfs.NewCrashableMem(), r: rand.New(rand.NewPCG(seed, 2)), dead: func() {}}
}

func (w *memWorld) Open(app string) (statestore.Dir, error) {
	d, err := pebblestore.OpenDir("/var/lib/state", app, pebblestore.Options{FS: w.fs, CacheBytes: 1 << 20})
	if err != nil {
		return nil, err
	}
	stores := &[]statestore.Store{}
	before := w.dead
	w.dead = func() {
		before()
		for _, s := range *stores {
			_ = s.Close()
		}
		d.Abandon()
		_ = d.Close()
	}
	return dir{d, stores}, nil
}

func (w *memWorld) Crash(testing.TB) {
	after := w.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: w.r.IntN(101), RNG: w.r})
	w.dead()
	w.fs, w.dead = after, func() {}
}

func TestConformanceCrashableMemory(t *testing.T) {
	storetest.Run(t, func(t testing.TB) storetest.World { return newMemWorld(t) })
}

// diskWorld is the real file system. Its crash is the end of a process: all that was written stays.
type diskWorld struct {
	path string
	t    testing.TB
	memWorld
}

func (w *diskWorld) Open(app string) (statestore.Dir, error) {
	d, err := pebblestore.OpenDir(w.path, app, pebblestore.Options{CacheBytes: 1 << 20})
	if err != nil {
		return nil, err
	}
	stores := &[]statestore.Store{}
	before := w.dead
	w.dead = func() {
		before()
		for _, s := range *stores {
			_ = s.Close()
		}
		d.Abandon()
		_ = d.Close()
	}
	return dir{d, stores}, nil
}

func (w *diskWorld) Crash(testing.TB) {
	w.dead()
	w.dead = func() {}
}

func TestConformanceDisk(t *testing.T) {
	storetest.Run(t, func(t testing.TB) storetest.World {
		return &diskWorld{path: t.TempDir() + "/state", memWorld: memWorld{dead: func() {}}}
	})
}
