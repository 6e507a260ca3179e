package statestore_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

// TestUpkeep drives a table and a map alike: it grows, shrinks and churns, with iterations that write, so that all of it
// comes while the index is being filled from the one before and while long keys are being moved.
func TestUpkeep(t *testing.T) {
	for _, room := range []int64{400_000, 1 << 30} {
		t.Run(fmt.Sprint(room), func(t *testing.T) {
			seed := rand.Uint64()
			defer func() {
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			}()
			u := &upkeep{t: t, r: rand.New(rand.NewPCG(seed, 0)), want: map[string]total{}}
			u.s = statestore.NewState(memstore.New(), statestore.StateOptions{CacheBytes: room})
			u.tab = newTable[total](t, u.s, "t")
			for i := range 8_000 {
				n := i % 60 // some keys are short
				if i%4000 == 1 {
					n = 70_000 // larger than a chunk
				}
				u.keys = append(u.keys, strings.Repeat("q", n)+fmt.Sprint(i))
			}
			for phase := range 6 {
				u.deletes = []int{1, 9, 5}[phase%3] // of 10
				for range 5_000 {
					u.step()
				}
			}
			u.end()
			if room == 1<<30 && (u.inIndex == 0 || u.inKeys == 0 || u.midIndex == 0 || u.midKeys == 0) {
				t.Errorf("%d steps and %d iterations while an index was filled, %d and %d while keys were moved", u.inIndex, u.midIndex, u.inKeys, u.midKeys)
			}
		})
	}
}

type upkeep struct {
	t    *testing.T
	r    *rand.Rand
	s    *statestore.State
	tab  *statestore.Table[string, total]
	keys []string
	want map[string]total

	stays             map[string]total // what is there since the running iteration began, and was not visited
	deletes, steps    int
	inIndex, inKeys   int // steps while there was something to do
	midIndex, midKeys int // iterations while there was
}

func (u *upkeep) step() {
	index, keys := u.tab.Upkeep()
	if index {
		u.inIndex++
	}
	if keys {
		u.inKeys++
	}
	u.s.Begin()
	switch n := u.r.IntN(300); {
	case n == 0, n < 20 && index:
		u.iterate()
	case n == 299:
		before := maps.Clone(u.want)
		for range 100 {
			u.op()
		}
		u.s.Rollback()
		u.want = before
	default:
		for range 1 + u.r.IntN(8) {
			u.op()
		}
	}
	u.s.End()
	if u.steps++; u.steps%500 == 0 {
		commitAll(u.t, u.s, uint64(u.steps))
		u.check()
	}
}

func (u *upkeep) op() {
	k := u.keys[u.r.IntN(len(u.keys))]
	old, had := u.want[k]
	switch {
	case u.r.IntN(4) == 0:
		if v := u.tab.Get(3, k); had != (v != nil) || had && *v != old {
			u.t.Fatalf("step %d: get %.99q: %v, want %v %v", u.steps, k, v, old, had)
		}
	case u.r.IntN(10) < u.deletes:
		u.tab.Delete(3, k)
		delete(u.want, k)
		delete(u.stays, k)
	default:
		v, existed := u.tab.Update(3, k)
		if existed != had || *v != old {
			u.t.Fatalf("step %d: update %.99q: %v %v, want %v %v", u.steps, k, *v, existed, old, had)
		}
		v.n++
		v.sum = float64(u.steps)
		u.want[k] = *v
	}
}

// iterate writes while it iterates. What is there all the time is visited once, in order and as it is then.
func (u *upkeep) iterate() {
	u.stays = maps.Clone(u.want)
	last, began := "", false
	u.tab.All(func(_ statestore.Group, k string, v *total) bool {
		if w, ok := u.want[k]; !ok || w != *v {
			u.t.Fatalf("step %d: visited %.99q: %v, want %v %v", u.steps, k, *v, w, ok)
		}
		if began && k <= last {
			u.t.Fatalf("step %d: visited %.99q behind %.99q", u.steps, k, last)
		}
		last, began = k, true
		delete(u.stays, k)
		if u.r.IntN(4) == 0 {
			u.op()
		}
		return true
	})
	if index, keys := u.tab.Upkeep(); index {
		u.midIndex++
	} else if keys {
		u.midKeys++
	}
	for k := range u.stays {
		u.t.Fatalf("step %d: %.99q was not visited", u.steps, k)
	}
}

func (u *upkeep) check() {
	u.t.Helper()
	if err := u.tab.Check(); err != nil {
		u.t.Fatalf("step %d: %v", u.steps, err)
	}
}

func (u *upkeep) end() {
	commitAll(u.t, u.s, uint64(u.steps))
	u.check()
	got := map[string]total{}
	u.tab.All(func(_ statestore.Group, k string, v *total) bool { got[k] = *v; return true })
	if !maps.Equal(got, u.want) {
		u.t.Errorf("%d entries, want %d, or values differ", len(got), len(u.want))
	}
}

// TestUpkeepEnds: inserts alone fill a larger index, and removals alone move long keys together, again and again.
func TestUpkeepEnds(t *testing.T) {
	s := statestore.NewState(memstore.New(), statestore.StateOptions{CacheBytes: 1 << 30})
	tab := newTable[named](t, s, "t")
	prefix := strings.Repeat("q", 40)
	began, epoch := 0, uint64(0)
	for round := range 3 {
		for i := range 20_000 {
			s.Begin()
			tab.Set(1, fmt.Sprint(prefix, i), named{"n", int32(i)})
			s.End()
			switch index, _ := tab.Upkeep(); {
			case !index:
				began = i
			case i-began > 20_000/8:
				t.Fatalf("round %d: an index is being filled since %d inserts", round, i-began)
			}
		}
		epoch++
		commitAll(t, s, epoch)
		for i := range 20_000 {
			if i%10 > 0 {
				s.Begin()
				tab.Delete(1, fmt.Sprint(prefix, (i*7)%20_000))
				s.End()
			}
			if i%1000 == 999 {
				epoch++
				commitAll(t, s, epoch)
			}
		}
		if err := tab.Check(); err != nil {
			t.Fatal(err)
		}
		if n, want := tab.KeyBytes(), 2_000*50*3/2+3*64<<10; n > want {
			t.Errorf("round %d: 2,000 keys of 50 bytes take %d bytes, want at most %d", round, n, want)
		}
	}
}

// TestWindowsAreReused: a window that takes the place of one that was dropped, at any point of its growth, has nothing of it.
func TestWindowsAreReused(t *testing.T) {
	s := statestore.NewState(memstore.New(), statestore.StateOptions{})
	w := must[*statestore.Windows[string, total]](t)(statestore.NewWindows(s, spec("w", statestore.KindWindows), keyOf[string](t), codecOf[total](t)))
	prefix := strings.Repeat("q", 40)
	for n := range 120 {
		end := int64(n + 1)
		s.Begin()
		for i := range n {
			if v, existed := w.Update(end, 1, fmt.Sprint(prefix[:i%40], i)); existed || v.n != 0 {
				t.Fatalf("window %d has key %d: %v", n, i, *v)
			}
		}
		for i := n; i < 130; i++ {
			if v := w.Get(end, 1, fmt.Sprint(prefix[:i%40], i)); v != nil {
				t.Fatalf("window %d has key %d: %v", n, i, *v)
			}
		}
		w.Drop(end)
		s.End()
		s.Seal(uint64(end))
		s.Committed()
	}
}

// TestDirtyForgetsTheBuried: what is born and dies in an epoch is not counted as to be committed.
func TestDirtyForgetsTheBuried(t *testing.T) {
	s := statestore.NewState(memstore.New(), statestore.StateOptions{})
	tab := newTable[total](t, s, "t")
	empty := s.CacheUsed()
	s.Begin()
	tab.Update(1, "a")
	s.End()
	if s.Dirty() == 0 {
		t.Error("a new value is not dirty")
	}
	s.Begin()
	tab.Delete(1, "a")
	s.End()
	if n, used := s.Dirty(), s.CacheUsed(); n != 0 || used != empty {
		t.Errorf("%d bytes are dirty, %d in caches, want 0 and %d", n, used, empty)
	}
}
