package pebblestore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// crashes copies the file system as a power failure would leave it, before writes of a running store.
type crashes struct {
	fs      *vfs.MemFS
	flushed atomic.Uint64 // known to be durable
	started atomic.Uint64 // the last epoch whose commit began
	every   int64
	n       atomic.Int64
	mu      sync.Mutex
	r       *rand.Rand
	found   []crashed
}

type crashed struct {
	fs       *vfs.MemFS
	at       string
	low, top uint64
}

func (c *crashes) String() string { return "crashes" }

func (c *crashes) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || c.n.Add(1)%c.every != 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	low := c.flushed.Load() // before the copy: a flush may end meanwhile
	fs := c.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: c.r.IntN(101), RNG: c.r})
	c.found = append(c.found, crashed{fs, fmt.Sprintf("%d: %v %s", c.n.Load(), op.Kind, op.Path), low, c.started.Load()})
	return nil
}

// TestCrashAnywhere cuts the power in the middle of flushes and compactions, also of those that Pebble starts by
// itself: each time the store is exactly one committed epoch, not older than the last flush.
func TestCrashAnywhere(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	mem := vfs.NewCrashableMem()
	c := &crashes{fs: mem, every: 3, r: rand.New(rand.NewPCG(seed, 4))}
	d, err := OpenDir("/state", "app", Options{FS: errorfs.Wrap(mem, c)})
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.Open(testID)
	if err != nil {
		t.Fatal(err)
	}
	var behind uint64                               // up to where a flush goes on beside the work; 0: none
	for epoch := uint64(1); epoch <= 150; epoch++ { // 12 MB, most of it in memtables that Pebble flushes when they are full
		c.started.Store(epoch)
		if err := commit(s, epoch); err != nil {
			t.Fatal(err)
		}
		switch epoch % 40 {
		case 0:
			if err := s.Flush(); err != nil {
				t.Fatal(err)
			}
			c.flushed.Store(epoch)
			behind = 0
		case 20:
			if err := s.FlushBehind(); err != nil {
				t.Fatal(err)
			}
			behind = epoch
		}
		// The work goes on while it runs, but not up to the next Flush.
		for behind != 0 {
			busy, err := s.Busy()
			if err != nil {
				t.Fatal(err)
			}
			if !busy {
				c.flushed.Store(behind)
				behind = 0
			} else if epoch < behind+15 {
				break
			}
			runtime.Gosched()
		}
	}
	if err := errors.Join(s.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	if len(c.found) < 40 {
		t.Fatalf("only %d crashes", len(c.found))
	}
	between := 0
	for _, crash := range c.found {
		d, err := OpenDir("/state", "app", Options{FS: crash.fs, CacheBytes: 1 << 20})
		if err != nil {
			t.Fatalf("crash before %s: %v", crash.at, err)
		}
		s, err := d.Open(testID)
		if err != nil {
			t.Fatalf("crash before %s: %v", crash.at, err)
		}
		epoch, err := verify(s)
		if err != nil || epoch < crash.low || epoch > crash.top {
			t.Fatalf("crash before %s: epoch %d, flushed %d, committed %d: %v", crash.at, epoch, crash.low, crash.top, err)
		}
		if epoch%40 != 0 {
			between++
		}
		if err := errors.Join(s.Close(), d.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if between == 0 {
		t.Fatal("Pebble flushed nothing by itself: the test did not reach what it is for")
	}
	t.Logf("%d crashes, %d found a flush of Pebble's own", len(c.found), between)
}

// markerFault fails the sync of the directory after a new MANIFEST was made the current one.
type markerFault struct{ armed, met atomic.Bool }

func (m *markerFault) String() string { return "marker" }

func (m *markerFault) MaybeError(op errorfs.Op) error {
	switch {
	case op.Kind == errorfs.OpCreate && strings.Contains(op.Path, "marker.manifest"):
		m.armed.Store(true)
	case op.Kind == errorfs.OpFileSync && strings.HasSuffix(op.Path, testID.Subtask) && m.armed.Load():
		m.met.Store(true)
		return syscall.EIO
	}
	return nil
}

// TestMarkerSyncFails: Pebble would panic; told that all is well, it believes that the flush is done. Flush must not.
func TestMarkerSyncFails(t *testing.T) {
	mem, fault := vfs.NewMem(), &markerFault{}
	d, err := OpenDir("/state", "app", Options{FS: mem})
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.Open(testID)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(commit(s, 1), s.Flush(), s.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	if d, err = OpenDir("/state", "app", Options{FS: errorfs.Wrap(mem, fault)}); err != nil {
		t.Fatal(err)
	}
	if s, err = d.Open(testID); err != nil {
		t.Fatal(err)
	}
	if err := commit(s, 2); err != nil { // the first flush of an opened DB makes a new MANIFEST
		t.Fatal(err)
	}
	if err := s.Flush(); !fault.met.Load() || !errors.Is(err, syscall.EIO) {
		t.Fatalf("flush of unknown outcome (%v): %v", fault.met.Load(), err)
	}
	if err := commit(s, 3); !errors.Is(err, syscall.EIO) {
		t.Fatalf("commit after it: %v", err)
	}
	if err := errors.Join(s.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
}
