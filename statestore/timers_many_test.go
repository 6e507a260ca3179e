package statestore_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

// TestManyTimers: a key space with many timers fires them in order, while the memory beside the Store holds the
// near ones only. Deleted ones do not fire, one that is set twice fires once.
func TestManyTimers(t *testing.T) {
	const n = 200_000 // the near ones are a third of them; a million take some forty seconds on a map in memory
	store := memstore.New()
	open := func() (*statestore.State, *statestore.Timers[uint32]) {
		s := statestore.NewState(store, statestore.StateOptions{CacheBytes: 4 << 20})
		return s, must[*statestore.Timers[uint32]](t)(statestore.NewTimers(s, spec("timers", statestore.KindTimers), keyOf[uint32](t)))
	}
	s, timers := open()
	epoch := uint64(0)
	commit := func() {
		epoch++
		s.Seal(epoch)
		s.Committed()
		if err := s.WriteBehind(statestore.Meta{Epoch: epoch}); err != nil {
			t.Fatal(err)
		}
	}
	// Each key has a timer at a time of its own, in an order that is none.
	at := func(k uint32) int64 { return int64(k*2654435761) - 1<<31 }
	for i := range uint32(n) {
		s.Begin()
		timers.Set(at(i), uint16(i%statestore.Groups), i, 0)
		if i%3 == 0 {
			timers.Set(at(i), uint16(i%statestore.Groups), i, 0)
		}
		s.End()
		if i%50_000 == 49_999 {
			commit()
		}
	}
	for i := uint32(0); i < n; i += 10 {
		s.Begin()
		timers.Delete(at(i), uint16(i%statestore.Groups), i, 0)
		s.End()
	}
	commit()
	s, timers = open()
	before := heap()
	fired, last := 0, int64(-1<<62)
	for {
		s.Begin()
		when, _, k, _, ok := timers.Pop(1 << 62)
		s.End()
		if !ok {
			break
		}
		if when != at(k) || when < last || k%10 == 0 {
			t.Fatalf("timer of %d at %d after one at %d", k, when, last)
		}
		last = when
		if fired++; fired%30_000 == 0 {
			commit()
			if grown := int64(heap()) - int64(before); grown > 20<<20 {
				t.Fatalf("%d MiB more than at the start, after %d timers", grown>>20, fired)
			}
		}
	}
	if fired != n-n/10 {
		t.Fatalf("%d fired", fired)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkTimersWaiting sets a timer ahead and fires the one that is due, with so many others waiting.
func BenchmarkTimersWaiting(b *testing.B) {
	for _, n := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := statestore.NewState(memstore.New(), statestore.StateOptions{})
			timers := must[*statestore.Timers[uint32]](b)(statestore.NewTimers(s, spec("timers", statestore.KindTimers), keyOf[uint32](b)))
			r := rand.New(rand.NewPCG(1, 2))
			now, epoch := int64(0), uint64(0)
			step := func(i int, pop bool) {
				s.Begin()
				if pop {
					if at, _, _, _, ok := timers.Pop(1 << 62); ok {
						now = at
					}
				}
				k := r.Uint32()
				timers.Set(now+1+r.Int64N(int64(n)), uint16(k%statestore.Groups), k, 0)
				s.End()
				if i%50_000 == 49_999 {
					epoch++
					s.Seal(epoch)
					s.Committed()
					if err := s.WriteBehind(statestore.Meta{Epoch: epoch}); err != nil {
						b.Fatal(err)
					}
				}
			}
			for i := range n {
				step(i, false)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				step(i, true)
				i++
			}
		})
	}
}
