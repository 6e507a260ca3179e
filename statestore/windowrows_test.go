package statestore_test

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

// rowModel is the truth of one layer of a WindowRows: rows of a window and key in order.
type rowModel struct {
	rows map[winKey][]modelRow
	hor  int64
}

type modelRow struct {
	at int64
	v  basket
}

func (m *rowModel) clone() *rowModel {
	c := &rowModel{map[winKey][]modelRow{}, m.hor}
	for k, rows := range m.rows {
		for _, r := range rows {
			c.rows[k] = append(c.rows[k], modelRow{r.at, r.v.clone()})
		}
	}
	return c
}

func (m *rowModel) add(k winKey, at int64, v basket) {
	rows := m.rows[k]
	i := len(rows)
	for i > 0 && rows[i-1].at > at {
		i--
	}
	m.rows[k] = slices.Insert(rows, i, modelRow{at, v.clone()})
}

func (m *rowModel) keys(end int64) []gk {
	var keys []gk
	for k := range m.rows {
		if k.end == end {
			keys = append(keys, k.gk)
		}
	}
	slices.SortFunc(keys, func(a, b gk) int { return cmp.Or(cmp.Compare(a.g, b.g), cmp.Compare(a.k, b.k)) })
	return keys
}

func showRow(at int64, v *basket) string { return fmt.Sprint(at, v.items, v.tags, v.note != nil) }

type rowWorld struct {
	t         *testing.T
	r         *rand.Rand
	s         *statestore.State
	y         *statestore.WindowRows[string, basket]
	store     statestore.Store
	cache     int64
	m         *rowModel
	sealed    *rowModel
	committed *rowModel
	changes   []statestore.Change
	tail      []statestore.Change
	fold      map[string][]byte
	horizons  map[statestore.ID]int64
	epoch     uint64
}

const rowTop = int64(8) // ends are -8..8

func (w *rowWorld) open() {
	w.s = statestore.NewState(w.store, statestore.StateOptions{CacheBytes: w.cache})
	for id, end := range w.horizons {
		w.s.SetHorizon(id, end)
	}
	w.y = must[*statestore.WindowRows[string, basket]](w.t)(statestore.NewWindowRows(w.s, spec("j/rows", statestore.KindWindowRows), keyOf[string](w.t), codecOf[basket](w.t)))
}

func (w *rowWorld) key() winKey {
	end := w.r.Int64N(2*rowTop+1) - rowTop
	return winKey{max(end, w.m.hor+1), gk{statestore.Group(w.r.IntN(2)), fmt.Sprint("k", w.r.IntN(5))}}
}

func (w *rowWorld) op() {
	k := w.key()
	at := w.r.Int64N(7) - 3
	switch n := w.r.IntN(20); {
	case n < 12 && k.end < math.MaxInt64/2:
		v := basket{items: []int64{w.r.Int64N(1000)}}
		w.m.add(k, at, v)
		w.y.Add(k.end, k.g, k.k, at, v)
	case n < 15:
		w.y.Range(k.end, k.g, k.k, at, at+2, func(r statestore.Row[basket]) bool {
			if w.r.IntN(2) == 0 {
				p := r.Update()
				p.items = append(p.items, r.Time())
			}
			return true
		})
		// The model follows what the store did: only whether it keeps it is in question.
		i := 0
		rows := w.m.rows[k]
		w.y.Rows(k.end, k.g, k.k, func(r statestore.Row[basket]) bool {
			if i < len(rows) {
				rows[i].v = r.Get().clone()
			}
			i++
			return true
		})
	case n < 19:
		var got, want []string
		w.y.Range(k.end, k.g, k.k, at, at+2, func(r statestore.Row[basket]) bool {
			got = append(got, showRow(r.Time(), r.Get()))
			return true
		})
		for _, r := range w.m.rows[k] {
			if r.at >= at && r.at <= at+2 {
				want = append(want, showRow(r.at, &r.v))
			}
		}
		if !slices.Equal(got, want) {
			w.t.Fatalf("range %d..%d of %v: %v, want %v", at, at+2, k, got, want)
		}
	default:
		if w.r.IntN(4) > 0 {
			return
		}
		end := w.m.hor + 1 + w.r.Int64N(3)
		if w.m.hor == math.MinInt64 {
			end = -rowTop + w.r.Int64N(3)
		}
		if end > rowTop/2 {
			return
		}
		w.y.Drop(end)
		w.m.hor = end
		maps.DeleteFunc(w.m.rows, func(k winKey, _ []modelRow) bool { return k.end <= end })
	}
}

func (w *rowWorld) equal() {
	w.t.Helper()
	if w.y.Horizon() != w.m.hor {
		w.t.Fatalf("horizon %d, want %d", w.y.Horizon(), w.m.hor)
	}
	total := 0
	end, ok := w.y.Next(math.MinInt64)
	for ; ok; end, ok = w.y.Next(end) {
		var keys []gk
		err := w.y.Keys(end, func(g statestore.Group, k string) error {
			keys = append(keys, gk{g, k})
			w.s.Begin() // keys are visited in steps of their own
			var got, want []string
			w.y.Rows(end, g, k, func(r statestore.Row[basket]) bool {
				got = append(got, showRow(r.Time(), r.Get()))
				return true
			})
			for _, r := range w.m.rows[winKey{end, gk{g, k}}] {
				want = append(want, showRow(r.at, &r.v))
			}
			total += len(got)
			w.s.End()
			if !slices.Equal(got, want) {
				return fmt.Errorf("rows of %d %v: %v, want %v", end, gk{g, k}, got, want)
			}
			return nil
		})
		if err != nil {
			w.t.Fatal(err)
		}
		if want := w.m.keys(end); !slices.Equal(keys, want) {
			w.t.Fatalf("keys of %d: %v, want %v", end, keys, want)
		}
	}
	for _, rows := range w.m.rows {
		total -= len(rows)
	}
	if total != 0 {
		w.t.Fatalf("%d rows more than in the model", total)
	}
}

// readsCommitted compares what readers of committed state see.
func (w *rowWorld) readsCommitted() {
	for k := range w.committed.rows {
		n := 0
		kb := keyOf[string](w.t).Append(nil, k.k)
		if err := w.s.ReadCommitted(statestore.StoreID("j/rows"), k.g, kb, statestore.Point{Window: &k.end}, func(_, _ []byte) bool { n++; return true }); err != nil {
			w.t.Fatal(err)
		}
		if want := len(w.committed.rows[k]); n != want {
			w.t.Fatalf("%d committed rows of %v, want %d", n, k, want)
		}
	}
}

func (w *rowWorld) commit() {
	if w.sealed == nil {
		return
	}
	for _, c := range w.changes {
		w.tail = append(w.tail, statestore.Change{Key: bytes.Clone(c.Key), Value: bytes.Clone(c.Value)})
	}
	apply(w.fold, w.changes, w.horizons)
	w.committed, w.sealed = w.sealed, nil
	w.s.Committed()
}

func (w *rowWorld) run(steps int) {
	for range steps {
		switch n := w.r.IntN(100); {
		case n < 80:
			before := w.m.clone()
			w.s.Begin()
			for range 1 + w.r.IntN(4) {
				w.op()
			}
			if w.r.IntN(4) == 0 {
				w.s.Rollback()
				w.m = before
			} else {
				w.s.End()
			}
		case n < 86:
			w.equal()
			w.readsCommitted()
		case n < 91 && w.sealed == nil:
			w.epoch++
			w.changes, w.sealed = w.s.Seal(w.epoch), w.m.clone()
			// What is committed or lost with the epoch; the horizons of a sealed epoch that is lost are too.
			next := w.s.Horizons()
			if w.r.IntN(3) == 0 {
				w.oneMore()
			}
			w.horizons = next
			w.commit()
		case n < 95:
			if err := w.s.WriteBehind(statestore.Meta{Epoch: w.epoch}); err != nil {
				w.t.Fatal(err)
			}
			w.tail = nil
			if got := dump(w.t, w.store); !maps.EqualFunc(got, w.fold, bytes.Equal) {
				w.t.Fatalf("the store has %d entries, the changelog %d, or they differ", len(got), len(w.fold))
			}
			if w.s.Pending() != 0 {
				w.t.Fatalf("Pending is %d after a write-behind", w.s.Pending())
			}
		case n < 97:
			putAll(w.t, w.store, w.tail, w.horizons)
			w.tail, w.sealed = nil, nil
			w.m = w.committed.clone()
			w.open()
			w.equal()
		}
	}
}

// oneMore is a step between the seal of an epoch and its commit.
func (w *rowWorld) oneMore() {
	w.s.Begin()
	w.op()
	w.s.End()
}

func TestWindowRowsEqualModel(t *testing.T) {
	for _, cache := range []int64{1, 3000, 1 << 30} {
		for i := range uint64(3) {
			seed := rand.Uint64() >> i
			w := &rowWorld{t: t, r: rand.New(rand.NewPCG(seed, 1)), store: memstore.New(), cache: cache,
				m: &rowModel{map[winKey][]modelRow{}, math.MinInt64}, fold: map[string][]byte{}}
			w.committed = w.m.clone()
			t.Logf("seed %d, cache %d", seed, cache)
			w.open()
			w.run(800)
			w.equal()
			if used := w.s.CacheUsed(); used < 0 {
				t.Fatalf("CacheUsed is %d", used)
			}
		}
	}
}

// A row that is added again and again at one time keeps the order of arrival, through a restart too.
func TestWindowRowsKeepOrderOfArrival(t *testing.T) {
	store := memstore.New()
	openRows := func() (*statestore.State, *statestore.WindowRows[string, total]) {
		s := statestore.NewState(store, statestore.StateOptions{})
		return s, must[*statestore.WindowRows[string, total]](t)(statestore.NewWindowRows(s, spec("j/rows", statestore.KindWindowRows), keyOf[string](t), codecOf[total](t)))
	}
	s, y := openRows()
	for i := range int64(3) {
		y.Add(10, 1, "k", 5, total{n: i})
		y.Add(10, 1, "k", 4, total{n: 100 + i})
	}
	s.Seal(1)
	s.Committed()
	if err := s.WriteBehind(statestore.Meta{Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	_, y = openRows()
	y.Add(10, 1, "k", 5, total{n: 3})
	var got []int64
	y.Rows(10, 1, "k", func(r statestore.Row[total]) bool { got = append(got, r.Get().n); return true })
	if want := []int64{100, 101, 102, 0, 1, 2, 3}; !slices.Equal(got, want) {
		t.Fatalf("rows %v, want %v", got, want)
	}
}
