package pebblestore

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/statestore"
)

// BenchmarkState is a running total over Pebble: random updates of 2,500 and of 250,000 keys (what a subtask has of
// 10,000 and 1,000,000), an epoch every 16,384 of them, a write-behind every 16 epochs. The times are of
// the whole process, with Pebble's flushes and compactions, for each update.
func BenchmarkState(b *testing.B) {
	for _, keys := range []int{2_500, 250_000} {
		b.Run(fmt.Sprint(keys), func(b *testing.B) { benchState(b, keys) })
	}
}

func benchState(b *testing.B, keys int) {
	type total struct{ n, cents int64 }
	const epoch, behind = 16384, 16 // epochs
	s := benchStore(b, 0)
	kc, err := statestore.KeyCodecOf[string]()
	if err != nil {
		b.Fatal(err)
	}
	vc, err := statestore.CodecOf[total]()
	if err != nil {
		b.Fatal(err)
	}
	st := statestore.NewState(s, statestore.StateOptions{})
	spec := statestore.Spec{ID: 7, Name: "t/value", Kind: statestore.KindTable}
	table, err := statestore.NewTable(st, spec, kc, vc)
	if err != nil {
		b.Fatal(err)
	}
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprintf("u%06d", i)
	}
	r := rand.New(rand.NewPCG(1, 2))
	picks := make([]uint32, 1<<20)
	for i := range picks {
		picks[i] = uint32(r.IntN(keys))
	}
	meta := statestore.Meta{EpochRecord: []byte("r"), Positions: []int64{0}}
	var sealing, committing, writing time.Duration
	clock := func(d *time.Duration, f func()) {
		from := cpuTime()
		f()
		*d += cpuTime() - from
	}
	b.ReportAllocs()
	b.ResetTimer()
	begin := cpuTime()
	for i := 0; i < b.N; i++ {
		k := picks[i&(len(picks)-1)]
		st.Begin()
		v, _ := table.Update(statestore.Group(k*31%statestore.Groups), names[k])
		v.n++
		v.cents += 1234
		st.End()
		if i%epoch == epoch-1 {
			meta.Epoch++
			clock(&sealing, func() { st.Seal(meta.Epoch) })
			clock(&committing, st.Committed)
			if meta.Epoch%behind == 0 {
				clock(&writing, func() {
					if err := st.WriteBehind(meta); err != nil {
						b.Fatal(err)
					}
				})
			}
		}
	}
	per := func(d time.Duration) float64 { return float64(d) / float64(b.N) }
	b.ReportMetric(per(cpuTime()-begin), "cpu-ns/op")
	b.ReportMetric(per(sealing), "seal-ns/op")
	b.ReportMetric(per(committing), "committed-ns/op")
	b.ReportMetric(per(writing), "behind-ns/op")
}

// cpuTime is what this process used, user and system: on a busy machine it says more than the clock.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
