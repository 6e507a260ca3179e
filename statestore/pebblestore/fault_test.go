package pebblestore

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/millrace-stream/millrace/statestore"
)

// faults fails writes of a file system: those whose number is from at on, once or until healed.
type faults struct {
	n       atomic.Int64
	at      int64
	once    bool
	err     error
	only    string // part of the path; empty: all
	healed  atomic.Bool
	injured atomic.Int64
}

func (f *faults) String() string { return "faults" }

func (f *faults) MaybeError(op errorfs.Op) error {
	if f.healed.Load() || op.Kind.ReadOrWrite() != errorfs.OpIsWrite || !strings.Contains(op.Path, f.only) {
		return nil
	}
	n := f.n.Add(1)
	if n < f.at || f.once && n > f.at {
		return nil
	}
	f.injured.Add(1)
	return f.err
}

var testID = statestore.Identity{App: "app", ClusterID: "c", Subtask: "0_0"}

// value is what all keys hold in an epoch; it is large enough that a flush writes several blocks.
func value(epoch uint64) []byte { return bytes.Repeat(fmt.Appendf(nil, "%08d", epoch), 100) }

const testKeys = 100

func commit(s statestore.Store, epoch uint64) error {
	b := s.NewBatch()
	for i := range testKeys {
		b.Set(fmt.Appendf([]byte{0, 0, 0, 1}, "%03d", i), value(epoch))
	}
	return b.Commit(statestore.Meta{Epoch: epoch})
}

// verify reads the whole store: it must be exactly its meta's epoch.
func verify(s statestore.Store) (epoch uint64, err error) {
	m, ok := s.Meta()
	it, err := s.Scan(nil, nil)
	if err != nil {
		return 0, err
	}
	n := 0
	for it.Next() {
		n++
		if !bytes.Equal(it.Value(), value(m.Epoch)) {
			err = fmt.Errorf("key %q has %.8s in epoch %d", it.Key(), it.Value(), m.Epoch)
		}
	}
	err = errors.Join(err, it.Err(), it.Close())
	if err == nil && (ok && n != testKeys || !ok && n != 0) {
		err = fmt.Errorf("%d keys in epoch %d (%v)", n, m.Epoch, ok)
	}
	return m.Epoch, err
}

// TestFullDisk lets the disk be full from the i-th write on, for every i, and once only for every i. Whatever was being
// written: the error says so, the process lives, and what is opened afterwards is exactly a committed epoch, not older
// than the last flush.
func TestFullDisk(t *testing.T) {
	for _, once := range []bool{false, true} {
		for _, crash := range []bool{false, true} {
			behind := once != crash
			name := fmt.Sprintf("once=%v,crash=%v,behind=%v", once, crash, behind)
			t.Run(name, func(t *testing.T) {
				reached := 0
				for at := int64(1); ; at++ {
					if at > 400 {
						t.Fatal("the work never ends without a fault")
					}
					met := false
					// In a bubble the pauses of a failed store cost nothing.
					synctest.Test(t, func(t *testing.T) { met = fullDisk(t, at, once, crash, behind) })
					if !met {
						break
					}
					reached++
				}
				if reached < 50 {
					t.Fatalf("only %d writes were failed", reached)
				}
				t.Logf("%d writes failed one after the other", reached)
			})
		}
	}
}

// flushBehind is a FlushBehind, with the wait for its end.
func flushBehind(s statestore.Store) error {
	if err := s.FlushBehind(); err != nil {
		return err
	}
	for {
		busy, err := s.Busy()
		if err != nil || !busy {
			return err
		}
		<-time.After(time.Millisecond) // in a bubble: it lets the flush go on, and costs nothing
	}
}

// fullDisk is one run; it says whether the fault was met.
func fullDisk(t *testing.T, at int64, once, crash, behind bool) bool {
	t.Helper()
	flush := statestore.Store.Flush
	if behind {
		flush = flushBehind
	}
	mem := vfs.NewCrashableMem()
	f := &faults{at: at, once: once, err: syscall.ENOSPC}
	fs := errorfs.Wrap(mem, f)
	open := func(fs vfs.FS) (*Dir, statestore.Store, error) {
		d, err := OpenDir("/state", "app", Options{FS: fs, CacheBytes: 1 << 20})
		if err != nil {
			return nil, nil, err
		}
		s, err := d.Open(testID)
		if err != nil {
			return nil, nil, errors.Join(err, d.Close())
		}
		return d, s, nil
	}
	wantNoSpace := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, statestore.ErrNoSpace) || !strings.Contains(err.Error(), "/state") {
			t.Fatalf("write %d, %s: error %v is not ErrNoSpace with the path", at, what, err)
		}
	}
	var flushed, last uint64
	// Two starts of the process, with work in each.
	for range 2 {
		d, s, err := open(fs)
		if err != nil {
			wantNoSpace("open", err)
			break
		}
		if epoch, err := verify(s); epoch != last || err != nil {
			t.Fatalf("write %d: epoch %d at the start, want %d: %v", at, epoch, last, err)
		}
		for range 6 {
			if err = commit(s, last+1); err != nil {
				break
			}
			last++
			if last%2 == 0 {
				if err = flush(s); err != nil {
					break
				}
				flushed = last
			}
		}
		if err != nil {
			wantNoSpace("work", err)
			// It stays so, and says so; what was committed can still be read.
			wantNoSpace("commit", commit(s, 99))
			wantNoSpace("flush", s.Flush())
			if epoch, err := verify(s); epoch != last || err != nil {
				t.Fatalf("write %d: reads after the fault: epoch %d, want %d: %v", at, epoch, last, err)
			}
		}
		if err := s.Close(); err != nil {
			wantNoSpace("close", err)
		}
		if err := d.Close(); err != nil {
			wantNoSpace("close directory", err)
		}
		if err != nil {
			break
		}
	}
	f.healed.Store(true)
	after := vfs.FS(mem)
	if crash {
		after = mem.CrashClone(vfs.CrashCloneCfg{})
	}
	d, s, err := open(after)
	if err != nil {
		t.Fatalf("write %d: open with space again: %v", at, err)
	}
	epoch, err := verify(s)
	if err != nil || epoch < flushed || epoch > last {
		t.Fatalf("write %d: after the fault: epoch %d, flushed %d, committed %d: %v", at, epoch, flushed, last, err)
	}
	for epoch := last + 1; epoch < last+4; epoch++ { // and it works on
		if err := errors.Join(commit(s, epoch), s.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := verify(s); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	return f.injured.Load() > 0
}

// TestFailedFlushDoesNotSpin counts what Pebble tries after a failure, over a minute of the bubble's time.
func TestFailedFlushDoesNotSpin(t *testing.T) {
	for _, only := range []string{".sst", "MANIFEST"} {
		t.Run(only, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &faults{at: 1, err: syscall.ENOSPC, only: only}
				f.healed.Store(true)
				tries := &counter{}
				d, err := OpenDir("/state", "app", Options{FS: errorfs.Wrap(vfs.NewMem(), errorfs.Any(f, tries))})
				if err != nil {
					t.Fatal(err)
				}
				st, err := d.Open(testID)
				if err != nil {
					t.Fatal(err)
				}
				f.healed.Store(false)
				if err := commit(st, 1); err != nil {
					t.Fatal(err)
				}
				if err := st.Flush(); !errors.Is(err, statestore.ErrNoSpace) {
					t.Fatalf("flush: %v", err)
				}
				synctest.Wait()
				before := tries.n.Load()
				time.Sleep(time.Minute) //nolint:forbidigo // the bubble's clock: it takes no time
				if n := tries.n.Load() - before; n > 0 {
					t.Fatalf("%d writes reached the disk after the failure", n)
				}
				start := time.Now()
				if err := errors.Join(st.Close(), d.Close()); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(start); took > frozenPause {
					t.Fatalf("close waited %s for refused writes", took)
				}
			})
		})
	}
}

// counter counts writes.
type counter struct{ n atomic.Int64 }

func (c *counter) String() string { return "counter" }
func (c *counter) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
		c.n.Add(1)
	}
	return nil
}

// TestBrokenDisk: any other failure of a write stops the store too, with its cause in the error.
func TestBrokenDisk(t *testing.T) {
	f := &faults{at: 1, err: syscall.EIO, only: ".sst"}
	d, err := OpenDir("/state", "app", Options{FS: errorfs.Wrap(vfs.NewMem(), f)})
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.Open(testID)
	if err != nil {
		t.Fatal(err)
	}
	if err := commit(s, 1); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		err := s.Flush()
		if !errors.Is(err, syscall.EIO) || errors.Is(err, statestore.ErrNoSpace) || !strings.Contains(err.Error(), "flush state store /state/0/0_0") {
			t.Fatalf("flush: %v", err)
		}
	}
	if err := errors.Join(s.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestLargeBatchesOnAFullDisk: batches above the memtable size go to disk by themselves, and a writer that never calls
// Flush is held back by its own Commit. None of that may hang.
func TestLargeBatchesOnAFullDisk(t *testing.T) {
	f := &faults{at: 1, err: syscall.ENOSPC, only: ".sst"}
	d, err := OpenDir("/state", "app", Options{FS: errorfs.Wrap(vfs.NewMem(), f)})
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.Open(testID)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; err == nil; i++ {
		if i == 100 {
			t.Fatal("100 batches of 3 MiB were taken on a full disk")
		}
		b := s.NewBatch()
		b.Set([]byte{0, 0, 0, 1, byte(i)}, make([]byte, 3<<20))
		err = b.Commit(statestore.Meta{Epoch: uint64(i)})
	}
	if !errors.Is(err, statestore.ErrNoSpace) {
		t.Fatal(err)
	}
	if err := errors.Join(s.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestLowSpace: below MinFreeBytes writes are refused before anything is written, and taken again when there is space.
func TestLowSpace(t *testing.T) {
	mem := vfs.NewMem()
	d, err := OpenDir("/state", "app", Options{FS: mem, MinFreeBytes: 10 << 20})
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.Open(testID)
	if err != nil {
		t.Fatal(err)
	}
	usage := func(mib uint64) { mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: mib << 20, TotalBytes: 1 << 30}) }
	usage(100)
	if err := commit(s, 1); err != nil {
		t.Fatal(err)
	}
	usage(9)
	for what, err := range map[string]error{"commit": commit(s, 2), "flush": s.Flush()} {
		if !errors.Is(err, statestore.ErrNoSpace) || !strings.Contains(err.Error(), "9 MiB free, 1") {
			t.Fatalf("%s: %v", what, err)
		}
	}
	if epoch, err := verify(s); epoch != 1 || err != nil {
		t.Fatalf("epoch %d, %v", epoch, err)
	}
	usage(10) // enough for a flush, not for a batch on top
	if err := commit(s, 2); !errors.Is(err, statestore.ErrNoSpace) {
		t.Fatal(err)
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	usage(11)
	if err := errors.Join(commit(s, 2), s.Flush()); err != nil {
		t.Fatal(err)
	}
	if epoch, err := verify(s); epoch != 2 || err != nil {
		t.Fatalf("epoch %d, %v", epoch, err)
	}
	if err := errors.Join(s.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	// The check can be off.
	usage(0)
	mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1, TotalBytes: 1 << 30})
	if d, err = OpenDir("/state", "app", Options{FS: mem, MinFreeBytes: -1}); err != nil {
		t.Fatal(err)
	}
	if s, err = d.Open(testID); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(commit(s, 3), s.Flush(), s.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
}
