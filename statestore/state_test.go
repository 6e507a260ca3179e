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

// spyStore counts reads and can fail.
type spyStore struct {
	*memstore.Store
	gets, scans         int
	failGet, failCommit error
	failFlush           error
}

func (s *spyStore) Get(key []byte) ([]byte, bool, error) {
	s.gets++
	if s.failGet != nil {
		return nil, false, s.failGet
	}
	return s.Store.Get(key)
}

func (s *spyStore) Scan(lo, hi []byte) (statestore.Iterator, error) {
	s.scans++
	return s.Store.Scan(lo, hi)
}

func (s *spyStore) Flush() error {
	if s.failFlush != nil {
		return s.failFlush
	}
	return s.Store.Flush()
}

func (s *spyStore) FlushBehind() error {
	if s.failFlush != nil {
		return s.failFlush
	}
	return s.Store.FlushBehind()
}

func (s *spyStore) NewBatch() statestore.Batch { return spyBatch{s.Store.NewBatch(), s} }

type spyBatch struct {
	statestore.Batch
	s *spyStore
}

func (b spyBatch) Commit(m statestore.Meta) error {
	if b.s.failCommit != nil {
		return b.s.failCommit
	}
	return b.Batch.Commit(m)
}

func newTable[V any](t testing.TB, s *statestore.State, name string) *statestore.Table[string, V] {
	t.Helper()
	return must[*statestore.Table[string, V]](t)(statestore.NewTable(s, spec(name, statestore.KindTable), keyOf[string](t), codecOf[V](t)))
}

func commitAll(t testing.TB, s *statestore.State, epoch uint64) {
	t.Helper()
	s.Seal(epoch)
	s.Committed()
	if err := s.WriteBehind(statestore.Meta{Epoch: epoch}); err != nil {
		t.Fatal(err)
	}
}

// fault runs f and returns the error of its Fault.
func fault(f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = r.(*statestore.Fault)
		}
	}()
	f()
	return nil
}

func TestFreshStoreIsNeverAsked(t *testing.T) {
	store := &spyStore{Store: memstore.New()}
	y := openTyped(t, store, 1<<30, 1<<16, nil)
	store.gets, store.scans = 0, 0
	use := func(s string) {
		y.s.Begin()
		y.totals.Get(1, s)
		y.totals.Update(1, s+"2")
		y.baskets.Delete(1, s)
		y.wins.Update(1000, 1, s)
		y.wins.Get(2000, 1, s)
		y.maps.Put(1, s, 5, named{})
		y.mmaps.Get(1, s, "k")
		y.lists.Add(1, s, named{})
		y.timers.Set(5, 1, s, 0)
		y.timers.Delete(6, 1, s, 0)
		if err := y.wins.Each(1000, func(statestore.Group, string, *total) error { return nil }); err != nil {
			t.Error(err)
		}
		y.wins.Next()
		y.timers.Next()
		y.totals.All(func(statestore.Group, string, *total) bool { return true })
		y.s.End()
	}
	use("a")
	commitAll(t, y.s, 1)
	use("b")
	use("a")
	if store.gets+store.scans != 0 {
		t.Errorf("%d gets and %d scans of a store that is known to be in memory", store.gets, store.scans)
	}

	// The same after a restart, when all of it fits.
	commitAll(t, y.s, 2)
	y = openTyped(t, store, 1<<30, 1<<16, nil)
	store.gets = 0
	y.totals.Get(1, "none")
	y.totals.Update(1, "a")
	y.wins.Update(1000, 1, "other")
	y.timers.Set(5, 1, "z", 0)
	if store.gets != 0 {
		t.Errorf("%d gets of a store that was loaded", store.gets)
	}
}

// lender is a store that lends.
type lender struct {
	*spyStore
	lent, most int64
}

func (l *lender) Lend(n int64) { l.lent, l.most = n, max(l.most, n) }

// As long as all keys are in the caches they take the room of the store's; once they do not fit they give it back.
func TestCachesBorrow(t *testing.T) {
	const room, most = 200_000, 500_000
	store := &lender{spyStore: &spyStore{Store: memstore.New()}}
	open := func() (*statestore.State, *statestore.Table[string, total]) {
		s := statestore.NewState(store, statestore.StateOptions{CacheBytes: room, MaxCacheBytes: most})
		return s, newTable[total](t, s, "t")
	}
	epoch := uint64(0)
	update := func(s *statestore.State, tab *statestore.Table[string, total], from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			s.Begin()
			v, _ := tab.Update(1, fmt.Sprint(i))
			v.n++
			s.End()
			if i%100 == 99 {
				epoch++
				commitAll(t, s, epoch)
			}
		}
	}
	s, tab := open()
	update(s, tab, 0, 6_000)
	if used := s.CacheUsed(); used <= room || store.lent != store.most || store.lent < used-room || store.lent > most-room {
		t.Fatalf("%d bytes are lent, %d at most, to caches of %d in a room of %d", store.lent, store.most, used, room)
	}
	if store.gets != 0 {
		t.Errorf("%d reads of a store that is known to be in memory", store.gets)
	}
	update(s, tab, 0, 6_000)
	if store.gets != 0 {
		t.Errorf("%d reads of a store that is known to be in memory", store.gets)
	}

	// After a restart it is in memory as before.
	store.lent = 0
	s, tab = open()
	update(s, tab, 0, 6_000)
	if store.gets != 0 || store.lent == 0 || store.lent > most-room {
		t.Errorf("%d reads of a store that was loaded, %d bytes lent", store.gets, store.lent)
	}

	// Too many for it all.
	update(s, tab, 6_000, 20_000)
	s.Begin()
	s.End()
	if used := s.CacheUsed(); used > room || store.lent != 0 {
		t.Errorf("caches take %d bytes of %d, %d of them lent", used, room, store.lent)
	}
	for i := range 20_000 {
		want := int64(1)
		if i < 6_000 {
			want = 3
		}
		s.Begin()
		if v := tab.Get(1, fmt.Sprint(i)); v == nil || v.n != want {
			t.Fatalf("key %d: %v, want %d", i, v, want)
		}
		s.End()
	}
	if store.lent != 0 {
		t.Errorf("%d bytes are lent to caches of a store that is read", store.lent)
	}
	// Nor after a restart, for which it is too large.
	s, tab = open()
	update(s, tab, 0, 20_000)
	if used := s.CacheUsed(); used > room || store.lent != 0 {
		t.Errorf("after a restart: caches take %d bytes of %d, %d of them lent", used, room, store.lent)
	}
}

func TestEvictionKeepsToItsRoom(t *testing.T) {
	const room = 200_000
	store := &spyStore{Store: memstore.New()}
	s := statestore.NewState(store, statestore.StateOptions{CacheBytes: room})
	tab := newTable[named](t, s, "t")
	long := strings.Repeat("long key ", 10)
	for i := range 20_000 {
		s.Begin()
		tab.Set(1, fmt.Sprint(long, i), named{"n", int32(i)})
		s.End()
		if i%500 == 0 {
			commitAll(t, s, uint64(i+1))
		}
	}
	commitAll(t, s, 1<<40)
	s.Begin()
	s.End()
	if used := s.CacheUsed(); used > room {
		t.Errorf("caches take %d bytes of %d", used, room)
	}
	if n := tab.KeyBytes(); n > room {
		t.Errorf("the keys take %d bytes of %d", n, room)
	}
	if err := tab.Check(); err != nil {
		t.Error(err)
	}
	store.gets = 0
	for i := 0; i < 20_000; i += 7 {
		s.Begin()
		if v := tab.Get(1, fmt.Sprint(long, i)); v == nil || v.n != int32(i) {
			t.Fatalf("key %d: %v", i, v)
		}
		s.End()
	}
	if store.gets == 0 || s.CacheUsed() > room*5/4 {
		t.Errorf("%d gets, caches take %d bytes of %d", store.gets, s.CacheUsed(), room)
	}
}

func TestTimersSpill(t *testing.T) {
	const near, n = 100, 5000
	store := &spyStore{Store: memstore.New()}
	open := func() (*statestore.State, *statestore.Timers[int64]) {
		s := statestore.NewState(store, statestore.StateOptions{})
		s.SetNearTimers(near)
		return s, must[*statestore.Timers[int64]](t)(statestore.NewTimers(s, spec("x", statestore.KindTimers), keyOf[int64](t)))
	}
	s, x := open()
	r := rand.New(rand.NewPCG(1, 1))
	var want []int64
	for i := range n {
		at := r.Int64N(1000)
		x.Set(at, 7, int64(i), 3)
		want = append(want, at)
	}
	slices.Sort(want)
	before := s.CacheUsed()
	commitAll(t, s, 1)
	if used := s.CacheUsed(); used > before*2*near/n {
		t.Errorf("%d timers in the store still take %d bytes of %d", n, used, before)
	}
	if _, fresh := open(); fresh != nil {
		at, _ := fresh.Next()
		if at != want[0] {
			t.Errorf("after a restart the first timer is at %d, want %d", at, want[0])
		}
	}
	store.scans = 0
	for i, w := range want {
		s.Begin()
		at, g, _, id, ok := x.Pop(1000)
		if !ok || at != w || g != 7 || id != 3 {
			t.Fatalf("timer %d: at %d group %d id %d %v, want at %d", i, at, g, id, ok, w)
		}
		s.End()
	}
	if _, ok := x.Next(); ok {
		t.Error("a timer too many")
	}
	if store.scans > n/near+2 {
		t.Errorf("%d scans for %d timers", store.scans, n)
	}
	commitAll(t, s, 2)
	if s.CacheUsed() > 1000 {
		t.Errorf("no timer is left, and they take %d bytes", s.CacheUsed())
	}
}

func TestMapIterationIgnoresWhatItAdds(t *testing.T) {
	s := statestore.NewState(memstore.New(), statestore.StateOptions{})
	m := must[*statestore.Map[string, int64, total]](t)(statestore.NewMap(s, spec("m", statestore.KindMap), keyOf[string](t), keyOf[int64](t), codecOf[total](t)))
	for i := range int64(100) {
		m.Put(1, "k", i*2, total{n: i})
	}
	var seen []int64
	m.All(1, "k", func(mk int64, v *total) bool {
		seen = append(seen, mk)
		m.Put(1, "k", mk-1, total{})
		m.Put(1, "k", mk+1, total{})
		return true
	})
	if len(seen) != 100 || seen[99] != 198 || !slices.IsSorted(seen) {
		t.Errorf("visited %v", seen)
	}
	n := 0
	m.All(1, "k", func(int64, *total) bool { n++; return n < 50 })
	m.Range(1, "k", -1, 200, func(int64, *total) bool { n++; return true })
	if n != 50+201 {
		t.Errorf("%d visits, want %d", n, 50+201)
	}
}

func TestNoTraceOfWhatWasBornAndDeleted(t *testing.T) {
	y := openTyped(t, memstore.New(), 0, 1<<16, nil)
	empty := y.s.CacheUsed()
	y.s.Begin()
	y.totals.Update(1, "a")
	y.baskets.Set(1, "a", basket{})
	y.maps.Put(1, "a", 1, named{})
	y.lists.Add(1, "a", named{})
	y.timers.Set(9, 1, "a", 0)
	y.wins.Update(10, 1, "a")
	y.wins.Update(20, 1, "a")
	y.s.End()
	y.s.Begin()
	y.totals.Delete(1, "a")
	y.baskets.Delete(1, "a")
	y.maps.Clear(1, "a")
	y.lists.Clear(1, "a")
	y.timers.Pop(9)
	y.wins.Delete(20, 1, "a")
	y.wins.Drop(10)
	y.s.End()
	if ch := y.s.Seal(1); len(ch) != 0 {
		t.Errorf("changes: %v", ch)
	}
	y.s.Committed()
	if err := y.s.WriteBehind(statestore.Meta{Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	if used := y.s.CacheUsed(); used != empty {
		t.Errorf("what is gone takes %d bytes", used-empty)
	}
	if h := y.s.Horizons(); len(h) != 1 || h[statestore.StoreID("w/wins")] != 10 {
		t.Errorf("horizons: %v", h)
	}
}

// A value that was changed in place through the pointer of Get, without Set, is as before when the record fails.
func TestRollbackOfWhatWasOnlyRead(t *testing.T) {
	s := statestore.NewState(memstore.New(), statestore.StateOptions{})
	a := newTable[basket](t, s, "a")
	m := must[*statestore.Map[string, string, basket]](t)(statestore.NewMap(s, spec("m", statestore.KindMap), keyOf[string](t), keyOf[string](t), codecOf[basket](t)))
	a.Set(1, "k", basket{items: []int64{1, 2}})
	m.Put(1, "k", "x", basket{items: []int64{1, 2}})
	s.Begin()
	a.Get(1, "k").items[0] = 99
	m.Get(1, "k", "x").items[0] = 99
	s.Rollback()
	if x, y := a.Get(1, "k").items[0], m.Get(1, "k", "x").items[0]; x != 1 || y != 1 {
		t.Errorf("after the rollback: %d and %d, want 1", x, y)
	}
}

func TestWindowBelowHorizonIsAFault(t *testing.T) {
	y := openTyped(t, memstore.New(), 0, 1<<16, nil)
	y.wins.Drop(100)
	if err := fault(func() { y.wins.Update(100, 1, "a") }); err == nil || !strings.Contains(err.Error(), "w/wins") {
		t.Errorf("update of a dropped window: %v", err)
	}
	if y.wins.Get(100, 1, "a") != nil {
		t.Error("a dropped window has a value")
	}
	y.wins.Update(101, 1, "a")
}

func TestStoreErrors(t *testing.T) {
	boom := errors.New("boom")
	store := &spyStore{Store: memstore.New()}
	s := statestore.NewState(store, statestore.StateOptions{})
	a := newTable[total](t, s, "a")
	a.Update(1, "x")
	s.Seal(1)
	s.Committed()
	pending := s.Pending()
	if pending == 0 || s.Dirty() != 0 {
		t.Errorf("pending %d, dirty %d", pending, s.Dirty())
	}
	for _, set := range []func(error){func(err error) { store.failCommit = err }, func(err error) { store.failFlush = err }} {
		set(boom)
		for _, write := range []func(statestore.Meta) error{s.WriteBehind, s.StartWriteBehind} {
			if err := write(statestore.Meta{Epoch: 1}); !errors.Is(err, boom) {
				t.Errorf("write-behind: %v", err)
			}
			if s.Pending() != pending {
				t.Errorf("pending %d after a failed write-behind, want %d", s.Pending(), pending)
			}
		}
		set(nil)
	}
	if err := s.WriteBehind(statestore.Meta{Epoch: 1}); err != nil || s.Pending() != 0 {
		t.Errorf("write-behind again: %v, pending %d", err, s.Pending())
	}
	if len(dump(t, store)) != 2 {
		t.Errorf("store: %v", dump(t, store))
	}

	s = statestore.NewState(store, statestore.StateOptions{CacheBytes: 1})
	a = newTable[total](t, s, "a")
	store.failGet = boom
	if err := fault(func() { a.Get(1, "x") }); !errors.Is(err, boom) || !strings.Contains(err.Error(), `"a"`) {
		t.Errorf("get: %v", err)
	}
}

func TestMisuse(t *testing.T) {
	s := statestore.NewState(memstore.New(), statestore.StateOptions{})
	newTable[total](t, s, "a")
	sp := spec("a", statestore.KindTable)
	sp.Name = "b"
	if _, err := statestore.NewTable(s, sp, keyOf[string](t), codecOf[total](t)); err == nil || !strings.Contains(err.Error(), `"a" has the same id`) {
		t.Errorf("two stores with one id: %v", err)
	}
	if _, err := statestore.NewTable(s, spec("c", statestore.KindMap), keyOf[string](t), codecOf[total](t)); err == nil {
		t.Error("a table of another kind: no error")
	}
	if sps := s.Specs(); len(sps) != 1 || sps[0].Name != "a" {
		t.Errorf("specs: %v", sps)
	}
	s.Seal(1)
	if err := fault(func() { s.Seal(2) }); err == nil || !strings.Contains(err.Error(), "epoch 1 is sealed") {
		t.Errorf("second seal: %v", err)
	}
}

func TestExpiringStoresUseTheirChangelog(t *testing.T) {
	s := statestore.NewState(memstore.New(), statestore.StateOptions{})
	sp := spec("w", statestore.KindWindows)
	sp.Expiring = true
	w := must[*statestore.Windows[string, total]](t)(statestore.NewWindows(s, sp, keyOf[string](t), codecOf[total](t)))
	w.Update(1, 1, "a")
	ch := s.Seal(1)
	// The descriptor must outlive the retention of the other topic.
	if len(ch) != 2 || ch[0].Changelog != 1 || ch[1].Changelog != 0 || !bytes.HasPrefix(ch[1].Key, []byte{0, 0, 0, 0, 1}) {
		t.Errorf("changes: %v", ch)
	}
}

// A step in the steady state must not allocate.
func TestNoAllocs(t *testing.T) {
	s := statestore.NewState(nullStore{}, statestore.StateOptions{})
	a := newTable[total](t, s, "a")
	b := newTable[named](t, s, "b")
	w := must[*statestore.Windows[string, total]](t)(statestore.NewWindows(s, spec("w", statestore.KindWindows), keyOf[string](t), codecOf[total](t)))
	x := must[*statestore.Timers[int64]](t)(statestore.NewTimers(s, spec("x", statestore.KindTimers), keyOf[int64](t)))
	ks := userKeys(1000)
	for i := range ks {
		ks[i] = strings.Repeat("p", i%3*15) + ks[i] // short and long keys
	}
	i, epoch := 0, uint64(0)
	step := func() {
		k := ks[i%len(ks)]
		end := int64(i/5000+1) * 10
		s.Begin()
		v, _ := a.Update(1, k)
		v.n++
		n, _ := b.Update(2, k)
		n.n++
		c, _ := w.Update(end, 3, k)
		c.n++
		x.Set(int64(i), 4, int64(i%100), 0)
		x.Pop(int64(i - 10))
		s.End()
		if i++; i%5000 == 0 {
			s.Begin()
			w.Drop(end)
			s.End()
		}
	}
	commit := func() {
		epoch++
		s.Seal(epoch)
		s.Committed()
		if err := s.WriteBehind(statestore.Meta{Epoch: epoch}); err != nil {
			t.Fatal(err)
		}
	}
	// Everything grows to the size of an epoch once. Epochs end within windows.
	for range 4 {
		for range 11_000 {
			step()
		}
		commit()
	}
	for _, n := range []int{1, 400} {
		commit()
		got := testing.AllocsPerRun(20, func() {
			for range n {
				step()
			}
		})
		if got != 0 {
			t.Errorf("%v allocations in %d steps", got, n)
		}
	}
}

// TestTableAgainstMap covers what the model test with its few keys does not: a large index, long keys, entries and keys
// used again after deletes and evictions.
func TestTableAgainstMap(t *testing.T) {
	for _, room := range []int64{50_000, 1 << 30} {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		s := statestore.NewState(memstore.New(), statestore.StateOptions{CacheBytes: room})
		tab := newTable[total](t, s, "t")
		want := map[string]total{}
		ks := userKeys(4000)
		for i := range ks {
			ks[i] = strings.Repeat("q", i%40) + ks[i]
		}
		for i := range 100_000 {
			k := ks[r.IntN(len(ks))]
			s.Begin()
			switch r.IntN(5) {
			case 0:
				tab.Delete(3, k)
				delete(want, k)
			case 1:
				v := tab.Get(3, k)
				if w, ok := want[k]; ok != (v != nil) || ok && *v != w {
					t.Fatalf("seed %d, room %d: get %q: %v, want %v %v", seed, room, k, v, w, ok)
				}
			case 2:
				tab.Set(3, k, total{n: -1})
				s.Rollback()
				continue
			default:
				v, _ := tab.Update(3, k)
				v.n++
				v.sum = float64(i)
				want[k] = *v
			}
			s.End()
			if i%3000 == 0 {
				commitAll(t, s, uint64(i+1))
			}
		}
		got := map[string]total{}
		tab.All(func(_ statestore.Group, k string, v *total) bool { got[k] = *v; return true })
		if !maps.Equal(got, want) {
			t.Errorf("seed %d, room %d: %d entries, want %d, or values differ", seed, room, len(got), len(want))
		}
	}
}
