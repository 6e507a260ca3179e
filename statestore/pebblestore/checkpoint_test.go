package pebblestore

import (
	"errors"
	"fmt"
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

// TestInstanceOverOpenings: a store that is closed and opened again in a process keeps its files, and their hashes count
// on; one that failed, or that was put aside, does not.
func TestInstanceOverOpenings(t *testing.T) {
	d, err := OpenDir("/state", "app", Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	instance := func(fail error) string {
		t.Helper()
		s, err := d.Open(testID)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(commit(s, 1), s.Flush()); err != nil {
			t.Fatal(err)
		}
		sn, err := s.(*Store).Checkpoint()
		if err != nil {
			t.Fatal(err)
		}
		defer sn.Close()
		if fail != nil {
			s.(*Store).fail.set(fail)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return sn.Instance()
	}
	one := instance(nil)
	if two := instance(errors.New("a write failed")); two != one {
		t.Errorf("instance %s after %s: the store is the same", two, one)
	}
	three := instance(nil)
	if three == one {
		t.Error("the same instance after a failure, of which nobody knows what reached the disk")
	}
	if _, err := d.Quarantine(testID); err != nil {
		t.Fatal(err)
	}
	if four := instance(nil); four == three {
		t.Error("the same instance though the store was put aside")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
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

// TestNewBytesOfSnapshots measures how much of a snapshot is new when 1 % of the keys changed since the one before, with a
// write-behind every 5 s for a minute: what an incremental checkpoint uploads. Run as TestPauseOfSnapshot.
func TestNewBytesOfSnapshots(t *testing.T) {
	if os.Getenv("MILLRACE_MEASURE_GB") == "" {
		t.Skip("MILLRACE_MEASURE_GB is not set")
	}
	for _, keys := range []int{300_000, 2_000_000, 5_000_000} { // of 200 bytes
		t.Run(fmt.Sprint(keys), func(t *testing.T) { newBytesOfSnapshots(t, keys) })
	}
}

func newBytesOfSnapshots(t *testing.T, keys int) {
	d, err := OpenDir(t.TempDir(), "app", Options{})
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
	write := func(n int, key func(i int) int) {
		w := s.NewBatch()
		for i := range n {
			_, _ = r.Read(value)
			w.Set(benchKey(uint64(key(i))), value)
		}
		epoch++
		if err := errors.Join(w.Commit(statestore.Meta{Epoch: epoch, EpochRecord: []byte("x")}), s.Flush()); err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * time.Millisecond)
		for s.db.Metrics().Compact.NumInProgress > 0 { // there is time until the next one
			<-time.After(2 * time.Millisecond)
		}
	}
	for at := 0; at < keys; at += 20_000 {
		write(20_000, func(i int) int { return at + i })
	}
	const rounds = 20
	seen := map[string]bool{}
	var percents []float64
	var uploaded, size int64
	for round := range rounds {
		if round > 0 {
			for range 12 {
				write(keys/100/12, func(int) int { return random.IntN(keys) })
			}
		}
		sn, err := s.Checkpoint()
		if err != nil {
			t.Fatal(err)
		}
		var fresh int64
		size = 0
		for _, f := range sn.Files() {
			size += f.Size
			if !seen[f.Name] || !f.Fixed {
				fresh += f.Size
			}
			seen[f.Name] = true
		}
		if round >= rounds/4 {
			percents = append(percents, 100*float64(fresh)/float64(size))
			uploaded += fresh
		}
		if err := sn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(percents)
	n := len(percents)
	changed := float64(keys / 100 * (len(value) + len(benchKey(0))))
	t.Logf("%d MiB: new in median %.1f %%, at worst %.1f %%; bytes uploaded for each changed byte: %.1f",
		size>>20, percents[n/2], percents[n-1], float64(uploaded)/float64(n)/changed)
	if err := errors.Join(s.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
}
