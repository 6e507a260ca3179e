package processor_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/pebblestore"
)

// BenchmarkJobKeys is BenchmarkJob over Pebble on disk, uniformly random updates: what one of four subtasks has of
// 100,000 and of 10,000,000 keys, with its share of the caches that memory.limit=1GiB gives, and a write-behind as the engine
// does it. new-cpu-ns is for a record of a key that was not there yet. peak-MiB is the greatest resident set of the
// process so far.
func BenchmarkJobKeys(b *testing.B) {
	for _, keys := range []int{25_000, 2_500_000} {
		b.Run(strconv.Itoa(keys), func(b *testing.B) { benchJobKeys(b, keys) })
	}
}

func benchJobKeys(b *testing.B, keys int) {
	const budget, subtasks, epoch, behind = 1 << 30, 4, 20_000, 16 << 20
	dir, err := pebblestore.OpenDir(b.TempDir(), "app", pebblestore.Options{CacheBytes: budget / 4 / subtasks})
	if err != nil {
		b.Fatal(err)
	}
	store, err := dir.Open(statestore.Identity{App: "app", Subtask: "0_0"})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := errors.Join(store.Close(), dir.Close()); err != nil {
			b.Fatal(err)
		}
	}()
	state := statestore.NewState(store, statestore.StateOptions{CacheBytes: budget * 35 / 100 / subtasks, MaxCacheBytes: budget * 55 / 100 / subtasks})
	f := &feeder{task: benchTaskOn(b, jobW1, state), recs: make([]record.Record, epoch)}
	meta := statestore.Meta{EpochRecord: []byte("r"), Positions: []int64{0}}
	round := func(key func() int) time.Duration {
		for i := range f.recs {
			user := fmt.Appendf(nil, "u%07d", key())
			f.recs[i] = record.Record{Key: user, Value: fmt.Appendf(nil, `{"user":"%s","amount":12.34,"ts":%d,"note":"%060d"}`, user, 1_700_000_000_000+f.next/10, i)}
		}
		from := cpuTime()
		f.step(b, epoch)
		f.commit(b)
		busy, err := store.Busy()
		if err != nil {
			b.Fatal(err)
		}
		if meta.Epoch = f.epoch; !busy && state.Pending() >= behind || state.Pending() >= 2*behind {
			if err := state.StartWriteBehind(meta); err != nil {
				b.Fatal(err)
			}
		}
		return cpuTime() - from
	}
	fill, next := time.Duration(0), 0
	for next < keys {
		fill += round(func() int { next++; return (next - 1) * 7_654_321 % keys })
	}
	r := rand.New(rand.NewPCG(1, 2))
	random := func() int { return r.IntN(keys) }
	for range 10 {
		round(random)
	}
	b.ReportAllocs()
	b.ResetTimer()
	cpu, done := time.Duration(0), 0
	for n := 0; n < b.N; n += epoch {
		cpu, done = cpu+round(random), done+epoch
	}
	b.StopTimer()
	b.ReportMetric(float64(cpu)/float64(done), "cpu-ns/op")
	b.ReportMetric(float64(fill)/float64(next), "new-cpu-ns")
	b.ReportMetric(peakMiB(b), "peak-MiB")
}

// peakMiB is the greatest resident set of this process so far; 0 where the system does not tell.
func peakMiB(b *testing.B) float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.Atoi(strings.TrimSpace(rest[:strings.Index(rest, " kB")]))
	if err != nil {
		b.Fatal(err)
	}
	return float64(kib) / 1024
}
