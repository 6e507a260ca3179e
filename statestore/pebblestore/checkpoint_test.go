package pebblestore

import (
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/millrace-stream/millrace/statestore"
)

// snapshotFault fails the n-th write below the folder of snapshots.
type snapshotFault struct {
	n    int64
	seen atomic.Int64
	met  atomic.Bool
	err  error
}

func (f *snapshotFault) String() string { return "snapshot" }

func (f *snapshotFault) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || !strings.Contains(op.Path, snapshotsSuffix) || f.n == 0 {
		return nil
	}
	if f.seen.Add(1) != f.n {
		return nil
	}
	f.met.Store(true)
	return f.err
}

// TestFailedSnapshotDoesNotHarmTheStore, whichever of its writes fails; and the next one succeeds.
func TestFailedSnapshotDoesNotHarmTheStore(t *testing.T) {
	for n := int64(1); ; n++ {
		fault := &snapshotFault{n: n, err: syscall.ENOSPC}
		d, err := OpenDir("/state", "app", Options{FS: errorfs.Wrap(vfs.NewMem(), fault)})
		if err != nil {
			t.Fatal(err)
		}
		st, err := d.Open(testID)
		if err != nil {
			t.Fatal(err)
		}
		s := st.(*Store)
		if err := errors.Join(commit(s, 1), s.Flush()); err != nil {
			t.Fatal(err)
		}
		snap, err := s.Checkpoint()
		met := fault.met.Load()
		fault.seen.Store(n) // no more faults
		if err == nil {     // a link that fails is made a copy
			if err := snap.Close(); err != nil {
				t.Fatal(err)
			}
		} else if !met || !errors.Is(err, statestore.ErrNoSpace) && !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("write %d fails: %v", n, err)
		}
		if err := errors.Join(commit(s, 2), s.Flush(), s.fail.get()); err != nil {
			t.Fatalf("write %d of a snapshot failed, and then: %v", n, err)
		}
		if snap, err = s.Checkpoint(); err != nil || snap.Meta().Epoch != 2 {
			t.Fatalf("write %d failed, the next snapshot: %v", n, err)
		}
		if err := snap.Close(); err != nil {
			t.Fatal(err)
		}
		left, err := d.fs.List(s.path + snapshotsSuffix)
		if err != nil || met && len(left) > 1 {
			t.Fatalf("left %v, %v", left, err)
		}
		if err := errors.Join(s.Close(), d.Close()); err != nil {
			t.Fatal(err)
		}
		if !met {
			t.Logf("%d writes", n-1)
			if n < 5 {
				t.Fatal("a snapshot does not write: the test did not reach what it is for")
			}
			return
		}
	}
}

// TestPauseOfSnapshot measures what the owner of a store waits for while snapshots of it are made. It is a measurement, run
// with MILLRACE_MEASURE_GB=<size of the state>.
func TestPauseOfSnapshot(t *testing.T) {
	size := os.Getenv("MILLRACE_MEASURE_GB")
	if size == "" {
		t.Skip("MILLRACE_MEASURE_GB is not set")
	}
	keys := 5_000_000 // of 200 bytes
	if size != "1" {
		keys = 500_000
	}
	d, err := OpenDir(t.TempDir(), "app", Options{CacheBytes: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	st, err := d.Open(statestore.Identity{App: "app", Subtask: "0_0"})
	if err != nil {
		t.Fatal(err)
	}
	s := st.(*Store)
	value := make([]byte, 190)
	r := rand.NewChaCha8([32]byte{3})
	epoch := uint64(0)
	write := func(from, n int, random *rand.Rand) time.Duration {
		w := s.NewBatch()
		for i := from; i < from+n; i++ {
			k := i
			if random != nil {
				k = random.IntN(keys)
			}
			_, _ = r.Read(value)
			w.Set(benchKey(uint64(k)), value)
		}
		epoch++
		began := time.Now()
		if err := w.Commit(statestore.Meta{Epoch: epoch, EpochRecord: []byte("x")}); err != nil {
			t.Error(err)
		}
		return time.Since(began)
	}
	for at := 0; at < keys; at += 20_000 {
		write(at, 20_000, nil)
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	for s.db.Metrics().Compact.NumInProgress > 0 {
		<-time.After(100 * time.Millisecond)
	}
	t.Logf("%d keys, %d MiB on disk, %d tables", keys, s.Size()>>20, s.db.Metrics().Total().TablesCount)
	random := rand.New(rand.NewPCG(1, 2))
	for _, snapshots := range []bool{false, true} {
		stop := make(chan struct{})
		var wg sync.WaitGroup
		var took []time.Duration
		if snapshots {
			wg.Go(func() {
				for {
					began := time.Now()
					sn, err := s.Checkpoint()
					if err != nil {
						t.Error(err)
						return
					}
					took = append(took, time.Since(began))
					if err := sn.Close(); err != nil {
						t.Error(err)
					}
					select {
					case <-stop:
						return
					case <-time.After(50 * time.Millisecond):
					}
				}
			})
		}
		var commits, flushes, gets []time.Duration
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
			commits = append(commits, write(0, 100, random))
			for range 50 {
				began := time.Now()
				if _, _, err := s.Get(benchKey(uint64(random.IntN(keys)))); err != nil {
					t.Fatal(err)
				}
				gets = append(gets, time.Since(began))
			}
			<-time.After(10 * time.Millisecond) // as a subtask that is not saturated
			if epoch%50 == 0 {
				began := time.Now()
				if err := s.Flush(); err != nil {
					t.Fatal(err)
				}
				flushes = append(flushes, time.Since(began))
			}
		}
		close(stop)
		wg.Wait()
		show := func(what string, all []time.Duration) {
			if len(all) > 0 {
				slices.Sort(all)
				t.Logf("snapshots %v: %s: %d, median %v, p99 %v, worst %v", snapshots, what, len(all), all[len(all)/2], all[len(all)*99/100], all[len(all)-1])
			}
		}
		show("commit of 100 keys", commits)
		show("get", gets)
		show("flush of 5,000 keys", flushes)
		show("snapshot", took)
	}
	if err := errors.Join(s.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestNewBytesOfSnapshots measures how much of a snapshot is new when 1 % of the keys changed since the one before: what an
// incremental checkpoint uploads. Run as TestPauseOfSnapshot.
func TestNewBytesOfSnapshots(t *testing.T) {
	if os.Getenv("MILLRACE_MEASURE_GB") == "" {
		t.Skip("MILLRACE_MEASURE_GB is not set")
	}
	const keys = 2_000_000 // of 200 bytes
	d, err := OpenDir(t.TempDir(), "app", Options{CacheBytes: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	st, err := d.Open(statestore.Identity{App: "app", Subtask: "0_0"})
	if err != nil {
		t.Fatal(err)
	}
	s := st.(*Store)
	value := make([]byte, 190)
	r := rand.NewChaCha8([32]byte{3})
	random := rand.New(r)
	epoch := uint64(0)
	write := func(n int, key func(i int) uint64) {
		w := s.NewBatch()
		for i := range n {
			_, _ = r.Read(value)
			w.Set(benchKey(key(i)), value)
		}
		epoch++
		if err := errors.Join(w.Commit(statestore.Meta{Epoch: epoch, EpochRecord: []byte("x")}), s.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	for at := 0; at < keys; at += 20_000 {
		write(20_000, func(i int) uint64 { return uint64(at + i) })
	}
	seen := map[string]bool{}
	for round := range 16 {
		if round > 0 {
			for range 12 { // a write-behind every 5 s, for a minute
				write(keys/100/12, func(int) uint64 { return random.Uint64N(keys) })
				<-time.After(200 * time.Millisecond) // compactions keep up
			}
		}
		sn, err := s.Checkpoint()
		if err != nil {
			t.Fatal(err)
		}
		var all, fresh int64
		for _, f := range sn.Files() {
			all += f.Size
			if !seen[f.Name] || !f.Fixed {
				fresh += f.Size
			}
			seen[f.Name] = true
		}
		t.Logf("round %d: %d files, %d MiB, new %d MiB = %.1f %%", round, len(sn.Files()), all>>20, fresh>>20, 100*float64(fresh)/float64(all))
		if err := sn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
}
