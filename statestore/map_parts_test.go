package statestore_test

import (
	"fmt"
	"testing"

	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

// countedStore counts what is asked of a store.
type countedStore struct {
	*memstore.Store
	gets, scans int
}

func (c *countedStore) Get(key []byte) ([]byte, bool, error) { c.gets++; return c.Store.Get(key) }
func (c *countedStore) Scan(lo, hi []byte) (statestore.Iterator, error) {
	c.scans++
	return c.Store.Scan(lo, hi)
}

// TestMapParts puts far more into the maps of a few keys than the caches hold: puts ask the store for nothing, a get asks for
// one entry, and the caches stay within their room though each map is always written.
func TestMapParts(t *testing.T) {
	const room, epochs, puts = 64 << 10, 60, 100
	store := &countedStore{Store: memstore.New()}
	s := statestore.NewState(store, statestore.StateOptions{CacheBytes: room})
	m := must[*statestore.Map[string, int32, total]](t)(statestore.NewMap(s, spec("m", statestore.KindMap), keyOf[string](t), keyOf[int32](t), codecOf[total](t)))
	keys := []string{"a", "b", "c"}
	store.scans = 0
	n := int32(0)
	for epoch := range uint64(epochs) {
		for range puts {
			s.Begin()
			for _, k := range keys {
				m.Put(1, k, n, total{n: int64(n)})
			}
			n++
			s.End()
		}
		s.Seal(epoch + 1)
		s.Committed()
		if err := s.WriteBehind(statestore.Meta{Epoch: epoch + 1}); err != nil {
			t.Fatal(err)
		}
	}
	for range 1000 {
		s.Begin()
		s.End()
	}
	if store.gets+store.scans > 0 {
		t.Errorf("%d puts asked the store for %d entries and %d ranges", int(n)*len(keys), store.gets, store.scans)
	}
	if used := s.CacheUsed(); used > room {
		t.Errorf("the caches hold %d bytes of %d", used, room)
	}

	get := func(k string, mk int32, want *total) {
		t.Helper()
		s.Begin()
		defer s.End()
		if v := m.Get(1, k, mk); want == nil && v != nil || want != nil && (v == nil || *v != *want) {
			t.Fatalf("%s %d is %v, want %v", k, mk, v, want)
		}
	}
	get("a", 0, &total{})
	get("a", 0, &total{})
	get("a", n, nil)
	get("a", n, nil)
	if store.gets != 2 || store.scans > 0 {
		t.Errorf("two entries, asked for twice, cost %d gets and %d scans, want 2 and none", store.gets, store.scans)
	}
	// A put that is undone leaves what the store has.
	s.Begin()
	m.Put(1, "b", 1, total{n: -1})
	if got := m.Len(1, "b"); got != int(n) {
		t.Errorf("a map has %d entries, want %d", got, n)
	}
	s.Rollback()
	// What the store has is gone when it was put without a look, and deleted.
	s.Begin()
	m.Put(1, "c", 5, total{})
	m.Delete(1, "c", 5)
	s.End()
	if changes := s.Seal(epochs + 1); len(changes) != 1 || changes[0].Value != nil {
		t.Fatalf("a put and a delete make %v, want a delete", changes)
	}
	s.Committed()
	s.Begin()
	m.Put(1, "c", 5, total{n: 5})
	s.End()
	for _, k := range keys {
		s.Begin()
		i := int32(0)
		m.All(1, k, func(mk int32, v *total) bool {
			if mk != i || v.n != int64(i) {
				t.Fatalf("entry %d of %s is %d: %v", i, k, mk, *v)
			}
			i++
			return true
		})
		if i != n {
			t.Fatalf("%s has %d entries, want %d", k, i, n)
		}
		s.End()
	}
}

// TestSmallStoresStay fills the caches with one map, whereas another has little: that is not evicted, so that who asks it for
// what it has not need not ask the store.
func TestSmallStoresStay(t *testing.T) {
	store := &countedStore{Store: memstore.New()}
	s := statestore.NewState(store, statestore.StateOptions{CacheBytes: 256 << 10})
	open := func(name string) *statestore.Map[string, int32, total] {
		return must[*statestore.Map[string, int32, total]](t)(statestore.NewMap(s, spec(name, statestore.KindMap), keyOf[string](t), keyOf[int32](t), codecOf[total](t)))
	}
	small, large := open("small"), open("large")
	small.Put(1, "x", 1, total{n: 1})
	store.gets, store.scans = 0, 0
	for epoch := range uint64(40) {
		for i := range 200 {
			s.Begin()
			large.Put(1, fmt.Sprint(epoch, i), 0, total{})
			s.End()
		}
		s.Seal(epoch + 1)
		s.Committed()
		if err := s.WriteBehind(statestore.Meta{Epoch: epoch + 1}); err != nil {
			t.Fatal(err)
		}
	}
	if v := small.Get(1, "x", 1); v == nil || v.n != 1 {
		t.Fatalf("%v", v)
	}
	for i := range 100 {
		small.All(1, fmt.Sprint(i), func(int32, *total) bool { t.Fatal("there is nothing"); return false })
	}
	if store.gets+store.scans > 0 {
		t.Errorf("%d gets and %d scans for what is not there", store.gets, store.scans)
	}
}
