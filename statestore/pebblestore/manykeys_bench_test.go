package pebblestore

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"

	"github.com/millrace-stream/millrace/statestore"
)

// BenchmarkManyKeys is what state larger than memory costs: uniformly random updates of 100,000 keys, which the cache
// holds, and of 10,000,000, of which it holds a part, with the same room (256 MiB, and 64 MiB for Pebble's blocks). An
// epoch every 16,384 updates, a write-behind every 16. heap-MiB is what Go keeps, with Pebble's blocks only where there is no
// cgo (see OffHeap); rss-MiB is what the process has in memory then, all included.
func BenchmarkManyKeys(b *testing.B) {
	for _, keys := range []int{100_000, 10_000_000} {
		b.Run(fmt.Sprint(keys), func(b *testing.B) { benchManyKeys(b, keys) })
	}
}

func benchManyKeys(b *testing.B, keys int) {
	type total struct{ n, cents int64 }
	const epoch, behind = 16384, 16
	kc, err := statestore.KeyCodecOf[uint64]()
	if err != nil {
		b.Fatal(err)
	}
	vc, err := statestore.CodecOf[total]()
	if err != nil {
		b.Fatal(err)
	}
	s := benchStore(b, 0)
	st := statestore.NewState(s, statestore.StateOptions{CacheBytes: 256 << 20})
	table, err := statestore.NewTable(st, statestore.Spec{ID: 7, Name: "t/value", Kind: statestore.KindTable}, kc, vc)
	if err != nil {
		b.Fatal(err)
	}
	meta := statestore.Meta{EpochRecord: []byte("r"), Positions: []int64{0}}
	updates := 0
	update := func(k uint64) {
		st.Begin()
		v, _ := table.Update(statestore.Group(k*31%statestore.Groups), k)
		v.n++
		v.cents += 1234
		st.End()
		if updates++; updates%epoch != 0 {
			return
		}
		meta.Epoch++
		st.Seal(meta.Epoch)
		st.Committed()
		if meta.Epoch%behind == 0 {
			if err := st.WriteBehind(meta); err != nil {
				b.Fatal(err)
			}
		}
	}
	for k := range keys {
		update(uint64(k) * 0x9e3779b97f4a7c15)
	}
	r := rand.New(rand.NewPCG(1, 2))
	b.ReportAllocs()
	b.ResetTimer()
	begin := cpuTime()
	for range b.N {
		update(uint64(r.IntN(keys)) * 0x9e3779b97f4a7c15)
	}
	b.ReportMetric(float64(cpuTime()-begin)/float64(b.N), "cpu-ns/op")
	b.StopTimer()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.HeapAlloc)/(1<<20), "heap-MiB")
	b.ReportMetric(rssMiB(b), "rss-MiB")
	runtime.KeepAlive(table)
}

// rssMiB is the resident set of this process; 0 where the system does not tell.
func rssMiB(b *testing.B) float64 {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(statm), &size, &resident); err != nil {
		b.Fatal(err)
	}
	return float64(resident) * float64(os.Getpagesize()) / (1 << 20)
}
