package statestore_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

// readsCommitted compares what ReadCommitted gives of every key and store with the fold of the committed changelog.
func (w *world) readsCommitted() {
	codec := keyOf[string](w.t)
	for _, spec := range w.y.s.Specs() {
		if spec.Kind == statestore.KindTimers {
			continue
		}
		for _, k := range keys {
			key := codec.Append(nil, k.k)
			var want []string
			id := string([]byte{byte(spec.ID >> 24), byte(spec.ID >> 16), byte(spec.ID >> 8), byte(spec.ID)})
			of := string([]byte{byte(k.g >> 8), byte(k.g)}) + string(key)
			skip := 4
			if spec.Kind == statestore.KindWindows {
				skip += 8
			}
			for phys := range w.fold {
				if strings.HasPrefix(phys, id) && strings.HasPrefix(phys[skip:], of) {
					want = append(want, phys)
				}
			}
			slices.Sort(want)
			var got []string
			err := w.y.s.ReadCommitted(spec.ID, k.g, key, statestore.Point{}, func(key, val []byte) bool {
				got = append(got, string(key))
				if !bytes.Equal(val, w.fold[string(key)]) {
					w.t.Fatalf("%s, key %x: %x, committed is %x", spec.Name, key, val, w.fold[string(key)])
				}
				return true
			})
			if err != nil || !slices.Equal(got, want) {
				w.t.Fatalf("%s, key %v: %x (%v), committed is %x", spec.Name, k, got, err, want)
			}
		}
	}
}

func inRanges(ranges []statestore.Range, key string) bool {
	return slices.ContainsFunc(ranges, func(r statestore.Range) bool { return string(r.Lo) <= key && (r.Hi == nil || key < string(r.Hi)) })
}

func newRand(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 1))
}

func TestReadCommittedNarrowsToAPoint(t *testing.T) {
	y := openTyped(t, memstore.New(), 1<<20, 1<<16, nil)
	for end := int64(10); end <= 30; end += 10 {
		y.wins.Update(end, 7, "k")
	}
	y.maps.Put(7, "k", -1, named{"a", 1})
	y.maps.Put(7, "k", 1, named{"b", 2})
	y.s.Seal(1)
	y.s.Committed()
	y.wins.Drop(10) // not committed
	key := keyOf[string](t).Append(nil, "k")
	read := func(name string, p statestore.Point, limit int) int {
		n := 0
		if err := y.s.ReadCommitted(statestore.StoreID(name), 7, key, p, func(_, _ []byte) bool { n++; return n < limit }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	end := int64(20)
	mk := keyOf[int32](t).Append(nil, 1)
	for _, c := range []struct {
		store string
		p     statestore.Point
		limit int
		want  int
	}{
		{"w/wins", statestore.Point{}, 9, 3}, {"w/wins", statestore.Point{Window: &end}, 9, 1}, {"w/wins", statestore.Point{}, 2, 2},
		{"m/maps", statestore.Point{}, 9, 2}, {"m/maps", statestore.Point{MapKey: mk}, 9, 1}, {"m/maps", statestore.Point{}, 1, 1},
	} {
		if got := read(c.store, c.p, c.limit); got != c.want {
			t.Errorf("%s %+v: %d entries, want %d", c.store, c.p, got, c.want)
		}
	}
	err := y.s.ReadCommitted(statestore.StoreID("x/timers"), 7, key, statestore.Point{}, nil)
	if !errors.Is(err, statestore.ErrNotByKey) || !strings.Contains(err.Error(), "x/timers") {
		t.Errorf("timers: %v", err)
	}
}

// TestSelection compares Ranges and Match with a filter over typed keys.
func TestSelection(t *testing.T) {
	kc := keyOf[string](t)
	enc := func(s string) []byte { return kc.Append(nil, s) }
	window := int64(-3)
	w := &world{t: t, r: newRand(t), m: newModel(), committed: newModel(), store: memstore.New(), fold: map[string][]byte{}}
	w.y = openTyped(t, w.store, 1<<30, 1<<16, nil)
	for range 300 {
		w.oneStep()
	}
	w.seal()
	w.commit()
	if len(w.fold) < 50 {
		t.Fatalf("only %d entries", len(w.fold))
	}
	total := 0
	for _, spec := range w.y.s.Specs() {
		keyed := func(phys string) string {
			at := 6
			if spec.Kind == statestore.KindWindows || spec.Kind == statestore.KindTimers {
				at = 14
			}
			k, _, err := kc.Decode([]byte(phys[at:]))
			if err != nil {
				t.Fatal(err)
			}
			return k
		}
		for _, c := range []struct {
			q    statestore.Selection
			want func(phys string) bool
		}{
			{statestore.Selection{}, func(string) bool { return true }},
			{statestore.Selection{Key: enc("a")}, func(p string) bool { return keyed(p) == "a" }},
			{statestore.Selection{From: enc("a\x00")}, func(p string) bool { return keyed(p) >= "a\x00" }},
			{statestore.Selection{To: enc("a\x00")}, func(p string) bool { return keyed(p) < "a\x00" }},
			{statestore.Selection{From: enc("a"), To: enc("b")}, func(p string) bool { k := keyed(p); return k >= "a" && k < "b" }},
			{statestore.Selection{Window: &window}, func(p string) bool {
				return spec.Kind == statestore.KindTable || p[4:12] == "\x7f\xff\xff\xff\xff\xff\xff\xfd"
			}},
		} {
			if c.q.Window != nil && spec.Kind != statestore.KindWindows && spec.Kind != statestore.KindTimers {
				continue
			}
			c.q.ID, c.q.Kind = spec.ID, spec.Kind
			for _, p := range slices.Sorted(maps.Keys(w.fold)) {
				if !strings.HasPrefix(p, string([]byte{byte(spec.ID >> 24), byte(spec.ID >> 16), byte(spec.ID >> 8), byte(spec.ID)})) {
					continue
				}
				for _, s := range []int{1, 2, 3} {
					index := 0
					for i := range s {
						if inRanges(c.q.Ranges(i, s), p) && c.q.Match([]byte(p)) {
							index++
						}
					}
					// Whole ranges of a store hold all groups.
					if got := index > 0; got != c.want(p) || index > 1 && c.q.Key != nil && spec.Kind != statestore.KindWindows && spec.Kind != statestore.KindTimers {
						t.Fatalf("%s, %+v of %d: key %x is in %d of them, want %v", spec.Name, c.q, s, p, index, c.want(p))
					}
				}
				total++
			}
		}
	}
	if total < 300 {
		t.Fatalf("only %d comparisons", total)
	}
}

// BenchmarkReadCommitted is what a question about one key costs the goroutine of a subtask, of a key that is pending and of
// one that is in the Store.
func BenchmarkReadCommitted(b *testing.B) {
	s := statestore.NewState(memstore.New(), statestore.StateOptions{})
	totals := newTable[total](b, s, "t/totals")
	for i := range 100_000 {
		totals.Set(statestore.Group(i%5040), fmt.Sprint("key-", i), total{n: int64(i)})
	}
	commitAll(b, s, 1)
	totals.Set(7, "key-7", total{n: -1})
	s.Seal(2)
	s.Committed()
	kc, id := keyOf[string](b), statestore.StoreID("t/totals")
	for name, i := range map[string]int{"pending": 7, "stored": 77} {
		key := kc.Append(nil, fmt.Sprint("key-", i))
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				n := 0
				if err := s.ReadCommitted(id, statestore.Group(i), key, statestore.Point{}, func(_, _ []byte) bool { n++; return true }); err != nil || n != 1 {
					b.Fatal(n, err)
				}
			}
		})
	}
}
