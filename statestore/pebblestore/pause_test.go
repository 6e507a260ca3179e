package pebblestore

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace-stream/millrace/statestore"
)

// yielding reads as checkpoint.Publisher does.
type yielding struct{ io.Reader }

func (r yielding) Read(p []byte) (int, error) {
	runtime.Gosched()
	return r.Reader.Read(p)
}

// causes are what can make a goroutine wait, of the process and of this thread.
type causes struct {
	cycles       uint64        // of the garbage collector
	stopped      uint64        // times that it, or something else, stopped the world
	onCPU        time.Duration // of this thread
	nvcsw, nivcs int64         // times that it waited, and that another thread took its core
	majflt       int64
}

func newCauses() causes {
	samples := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/sched/pauses/total/gc:seconds"}}
	metrics.Read(samples)
	c := causes{cycles: samples[0].Value.Uint64()}
	for _, n := range samples[1].Value.Float64Histogram().Counts {
		c.stopped += n
	}
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &u)
	c.onCPU = time.Duration(u.Utime.Nano() + u.Stime.Nano())
	c.nvcsw, c.nivcs, c.majflt = u.Nvcsw, u.Nivcsw, u.Majflt
	return c
}

func (c causes) since(b causes) string {
	return fmt.Sprintf("%v on the CPU, %d waits, preempted %d times by other threads, %d major faults, %d ends and %d stops of a garbage collection",
		c.onCPU-b.onCPU, c.nvcsw-b.nvcsw, c.nivcs-b.nivcs, c.majflt-b.majflt, c.cycles-b.cycles, c.stopped-b.stopped)
}

// TestPauseOfLoop measures how long the loop of a subtask stands still while checkpoints are taken: 5,000,000 keys of 200
// bytes (1 GB), 5,000 random updates a second or as many as there can be, an epoch every 100 ms, a write-behind when the
// engine would do one, and a goroutine that snapshots the store and hashes each new file, all the time or not at all. It is
// a measurement, run with MILLRACE_MEASURE_GB=1.
func TestPauseOfLoop(t *testing.T) {
	size := os.Getenv("MILLRACE_MEASURE_GB")
	if size == "" {
		t.Skip("MILLRACE_MEASURE_GB is not set")
	}
	if os.Getenv("MILLRACE_MEASURE_CAUSES") != "" {
		runtime.LockOSThread() // so that what is told of the thread is the loop's; each change of goroutines costs more then
		defer runtime.UnlockOSThread()
	}
	keys := 5_000_000
	if size != "1" {
		keys = 500_000
	}
	type account struct {
		n, cents int64
		note     string
	}
	d, err := OpenDir(t.TempDir(), "app", Options{})
	if err != nil {
		t.Fatal(err)
	}
	st, err := d.Open(statestore.Identity{App: "app", Subtask: "0_0"})
	if err != nil {
		t.Fatal(err)
	}
	s := st.(*Store)
	kc, err := statestore.KeyCodecOf[string]()
	if err != nil {
		t.Fatal(err)
	}
	vc, err := statestore.CodecOf[account]()
	if err != nil {
		t.Fatal(err)
	}
	state := statestore.NewState(s, statestore.StateOptions{})
	table, err := statestore.NewTable(state, statestore.Spec{ID: 7, Name: "t/value", Kind: statestore.KindTable}, kc, vc)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	meta := statestore.Meta{EpochRecord: []byte("r"), Positions: []int64{0}}
	update := func(k int) {
		state.Begin()
		v, _ := table.Update(statestore.Group(k*31%statestore.Groups), fmt.Sprintf("%09d", k))
		v.n++
		v.cents = random.Int64()
		if v.note == "" {
			var text [85]byte // as hexadecimal digits it compresses a little, as most state does
			for i := range text {
				text[i] = byte(random.Uint32())
			}
			v.note = fmt.Sprintf("%x", text)
		}
		state.End()
	}
	commit := func() {
		meta.Epoch++
		state.Seal(meta.Epoch)
		state.Committed()
	}
	for k := range keys {
		update(k)
		if k%50_000 == 49_999 {
			commit()
			if err := state.WriteBehind(meta); err != nil {
				t.Fatal(err)
			}
		}
	}
	for s.db.Metrics().Compact.NumInProgress > 0 {
		<-time.After(100 * time.Millisecond)
	}
	t.Logf("%d keys, %d MiB on disk", keys, s.Size()>>20)

	snapshots := func(stop chan struct{}) (n int) {
		hashed := map[string]bool{}
		for {
			sn, err := s.Checkpoint()
			if err != nil {
				t.Error(err)
				return n
			}
			for _, f := range sn.Files() {
				if f.Fixed && hashed[f.Name] {
					continue
				}
				hashed[f.Name] = true
				r, err := sn.Open(f.Name)
				if err != nil {
					t.Error(err)
					return n
				}
				_, err = io.CopyBuffer(sha256.New(), yielding{r}, make([]byte, 256<<10))
				if err := errors.Join(err, r.Close()); err != nil {
					t.Error(err)
				}
			}
			if err := sn.Close(); err != nil {
				t.Error(err)
			}
			n++
			select {
			case <-stop:
				return n
			case <-time.After(time.Second):
			}
		}
	}
	for _, way := range []struct {
		name        string
		room        int64 // of pending changes
		rate        int   // of updates in a second
		checkpoints bool
	}{
		{"no input waits", 1 << 20, 5_000, true},
		{"no input waits, no checkpoints", 1 << 20, 5_000, false},
		{"full load", 16 << 20, math.MaxInt32, true},
		{"full load, no checkpoints", 16 << 20, math.MaxInt32, false},
	} {
		// What the way before has left is not this one's to write.
		if err := errors.Join(state.WriteBehind(meta), s.Flush()); err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		taken := 0
		if way.checkpoints {
			wg.Go(func() { taken = snapshots(stop) })
		}
		var steps, commits, writes, slow []time.Duration
		var written int64
		clock := func(all *[]time.Duration, f func()) {
			before := newCauses()
			began := time.Now()
			f()
			took := time.Since(began)
			*all = append(*all, took)
			if took > 8*time.Millisecond && os.Getenv("MILLRACE_MEASURE_CAUSES") != "" {
				t.Logf("%s: a pause of %v: %s", way.name, took.Round(100*time.Microsecond), newCauses().since(before))
			}
		}
		began := time.Now()
		lastCommit, lastWrite, done := began, began, 0
		for time.Since(began) < 30*time.Second {
			due := int(float64(way.rate) * time.Since(began).Seconds())
			if done >= due {
				<-time.After(time.Millisecond)
				continue
			}
			clock(&steps, func() {
				for range min(due-done, 16) {
					update(random.IntN(keys))
					done++
				}
			})
			if now := time.Now(); now.Sub(lastCommit) >= 100*time.Millisecond {
				lastCommit = now
				clock(&commits, commit)
				busy, err := s.Busy()
				if err != nil {
					t.Fatal(err)
				}
				if waits := state.Pending(); !busy && (waits >= way.room || now.Sub(lastWrite) >= 5*time.Second) {
					lastWrite = now
					written += waits
					clock(&writes, func() {
						if err := state.StartWriteBehind(meta); err != nil {
							t.Fatal(err)
						}
					})
				}
			}
		}
		close(stop)
		wg.Wait()
		slow = slices.Concat(steps, commits, writes)
		show := func(what string, all []time.Duration) {
			slices.Sort(all)
			t.Logf("%s: %s: %d, median %v, p99 %v, worst %v", way.name, what, len(all), all[len(all)/2], all[len(all)*99/100], all[len(all)-1])
		}
		show("steps of up to 16 updates", steps)
		show("commits", commits)
		show("write-behinds", writes)
		show("all", slow)
		t.Logf("%s: %d updates, %d MiB written behind, %d snapshots; level 0 has %d sublevels", way.name, done, written>>20, taken, s.db.Metrics().Levels[0].Sublevels)
		var over []string
		for _, d := range slow {
			if d > 10*time.Millisecond {
				over = append(over, d.Round(100*time.Microsecond).String())
			}
		}
		t.Logf("%s: pauses above 10 ms: %d: %s", way.name, len(over), strings.Join(over[max(0, len(over)-20):], " "))
	}
	if err := errors.Join(s.Flush(), s.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
}
