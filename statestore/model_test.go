package statestore_test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"unsafe"

	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

// The model test drives all typed stores with random steps and compares every read with plain Go maps. The four
// layers of a State are four copies of the maps: running, sealed, committed, stored.

type total struct {
	n   int64
	sum float64
}

type named struct {
	name string
	n    int32
}

type basket struct {
	items []int64
	tags  map[string]int
	note  *string
}

func (b *basket) clone() basket {
	c := basket{items: slices.Clone(b.items), tags: maps.Clone(b.tags)}
	if b.note != nil {
		n := *b.note
		c.note = &n
	}
	return c
}

// fewTimers is a number of near timers that goes with baskets that are copied.
const fewTimers = 2

// copiedBaskets is a codec with a Copier.
type copiedBaskets struct{ statestore.Codec[basket] }

func (copiedBaskets) Copy(dst, src *basket) {
	items := append(dst.items[:0], src.items...)
	*dst = src.clone()
	if src.items != nil {
		dst.items = items
	}
}
func (copiedBaskets) Size(v *basket) int { return 8*len(v.items) + 32*len(v.tags) }
func (copiedBaskets) Own(v *basket) bool { return v.note == nil }

type gk struct {
	g statestore.Group
	k string
}

type timer struct {
	at int64
	gk
	id uint32
}

type winKey struct {
	end int64
	gk
}

// model is the truth of one layer.
type model struct {
	totals  map[gk]total
	names   map[gk]named
	baskets map[gk]basket
	wins    map[winKey]total
	bags    map[winKey]basket
	hor     [2]int64 // of wins, bags
	maps    map[gk]map[int32]named
	mmaps   map[gk]map[string]basket
	lists   map[gk][]named
	timers  map[timer]bool
}

func newModel() *model {
	return &model{map[gk]total{}, map[gk]named{}, map[gk]basket{}, map[winKey]total{}, map[winKey]basket{},
		[2]int64{math.MinInt64, math.MinInt64}, map[gk]map[int32]named{}, map[gk]map[string]basket{}, map[gk][]named{}, map[timer]bool{}}
}

func cloneBaskets[K comparable](m map[K]basket) map[K]basket {
	c := map[K]basket{}
	for k, v := range m {
		c[k] = v.clone()
	}
	return c
}

func (m *model) clone() *model {
	c := &model{maps.Clone(m.totals), maps.Clone(m.names), cloneBaskets(m.baskets), maps.Clone(m.wins), cloneBaskets(m.bags),
		m.hor, map[gk]map[int32]named{}, map[gk]map[string]basket{}, map[gk][]named{}, maps.Clone(m.timers)}
	for k, v := range m.maps {
		c.maps[k] = maps.Clone(v)
	}
	for k, v := range m.mmaps {
		c.mmaps[k] = cloneBaskets(v)
	}
	for k, v := range m.lists {
		c.lists[k] = slices.Clone(v)
	}
	return c
}

func (m *model) sortedTimers() []timer {
	return slices.SortedFunc(maps.Keys(m.timers), func(a, b timer) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.g, b.g), cmp.Compare(a.k, b.k), cmp.Compare(a.id, b.id))
	})
}

func ends[V any](m map[winKey]V) []int64 {
	set := map[int64]bool{}
	for k := range m {
		set[k.end] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// typed are the stores under test.
type typed struct {
	s       *statestore.State
	totals  *statestore.Table[string, total]
	names   *statestore.Table[string, named]
	baskets *statestore.Table[string, basket]
	wins    *statestore.Windows[string, total]
	bags    *statestore.Windows[string, basket]
	maps    *statestore.Map[string, int32, named]
	mmaps   *statestore.Map[string, string, basket]
	lists   *statestore.List[string, named]
	timers  *statestore.Timers[string]
}

func spec(name string, kind statestore.Kind) statestore.Spec {
	return statestore.Spec{Name: name, ID: statestore.StoreID(name), Kind: kind}
}

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func codecOf[V any](t testing.TB) statestore.Codec[V] {
	t.Helper()
	return must[statestore.Codec[V]](t)(statestore.CodecOf[V]())
}

func keyOf[K comparable](t testing.TB) statestore.KeyCodec[K] {
	t.Helper()
	return must[statestore.KeyCodec[K]](t)(statestore.KeyCodecOf[K]())
}

func openTyped(t testing.TB, store statestore.Store, cache int64, near int, horizons map[statestore.ID]int64) *typed {
	s := statestore.NewState(store, statestore.StateOptions{CacheBytes: cache})
	s.SetNearTimers(near)
	for id, end := range horizons {
		s.SetHorizon(id, end)
	}
	ks := keyOf[string](t)
	baskets := codecOf[basket](t)
	if near == fewTimers {
		baskets = copiedBaskets{baskets}
	}
	return &typed{s,
		must[*statestore.Table[string, total]](t)(statestore.NewTable(s, spec("t/totals", statestore.KindTable), ks, codecOf[total](t))),
		must[*statestore.Table[string, named]](t)(statestore.NewTable(s, spec("t/names", statestore.KindTable), ks, codecOf[named](t))),
		must[*statestore.Table[string, basket]](t)(statestore.NewTable(s, spec("t/baskets", statestore.KindTable), ks, baskets)),
		must[*statestore.Windows[string, total]](t)(statestore.NewWindows(s, spec("w/wins", statestore.KindWindows), ks, codecOf[total](t))),
		must[*statestore.Windows[string, basket]](t)(statestore.NewWindows(s, spec("w/bags", statestore.KindWindows), ks, codecOf[basket](t))),
		must[*statestore.Map[string, int32, named]](t)(statestore.NewMap(s, spec("m/maps", statestore.KindMap), ks, keyOf[int32](t), codecOf[named](t))),
		must[*statestore.Map[string, string, basket]](t)(statestore.NewMap(s, spec("m/mmaps", statestore.KindMap), ks, ks, codecOf[basket](t))),
		must[*statestore.List[string, named]](t)(statestore.NewList(s, spec("l/lists", statestore.KindList), ks, codecOf[named](t))),
		must[*statestore.Timers[string]](t)(statestore.NewTimers(s, spec("x/timers", statestore.KindTimers), ks)),
	}
}

// equal compares everything with a model.
func (y *typed) equal(m *model) error {
	var errs []error
	diff := func(what string, got, want any) {
		if !reflect.DeepEqual(got, want) {
			errs = append(errs, fmt.Errorf("%s:\n got %v\nwant %v", what, got, want))
		}
	}
	totals, names, baskets := map[gk]total{}, map[gk]named{}, map[gk]basket{}
	n := 0
	y.totals.All(func(g statestore.Group, k string, v *total) bool { n++; totals[gk{g, k}] = *v; return true })
	y.names.All(func(g statestore.Group, k string, v *named) bool { n++; names[gk{g, k}] = *v; return true })
	if n != len(totals)+len(names) {
		errs = append(errs, fmt.Errorf("Table.All visits a key twice: %d visits of %v and %v", n, totals, names))
	}
	var order []gk
	y.baskets.All(func(g statestore.Group, k string, v *basket) bool {
		order = append(order, gk{g, k})
		baskets[gk{g, k}] = v.clone()
		return true
	})
	if !slices.IsSortedFunc(order, func(a, b gk) int { return cmp.Or(cmp.Compare(a.g, b.g), cmp.Compare(a.k, b.k)) }) {
		errs = append(errs, fmt.Errorf("Table.All is not in key order: %v", order))
	}
	diff("totals", totals, m.totals)
	diff("names", names, m.names)
	diff("baskets", baskets, m.baskets)
	wins, bags := map[winKey]total{}, map[winKey]basket{}
	for end := int64(-2); end < 120; end++ {
		err := y.wins.Each(end, func(g statestore.Group, k string, v *total) error {
			if _, twice := wins[winKey{end, gk{g, k}}]; twice {
				errs = append(errs, fmt.Errorf("Windows.Each visits %d %s twice", end, k))
			}
			wins[winKey{end, gk{g, k}}] = *v
			return nil
		})
		errs = append(errs, err, y.bags.Each(end, func(g statestore.Group, k string, v *basket) error {
			bags[winKey{end, gk{g, k}}] = v.clone()
			return nil
		}))
	}
	diff("wins", wins, m.wins)
	diff("bags", bags, m.bags)
	diff("horizons", [2]int64{y.wins.Horizon(), y.bags.Horizon()}, m.hor)
	if end, ok := y.wins.Next(); ok != (len(m.wins) > 0) || ok && end != ends(m.wins)[0] {
		errs = append(errs, fmt.Errorf("wins.Next: %d %v, want of %v", end, ok, ends(m.wins)))
	}
	if end, ok := y.bags.Next(); ok != (len(m.bags) > 0) || ok && end != ends(m.bags)[0] {
		errs = append(errs, fmt.Errorf("bags.Next: %d %v, want of %v", end, ok, ends(m.bags)))
	}
	for _, k := range keys {
		got, sorted := map[int32]named{}, []int32{}
		y.maps.All(k.g, k.k, func(mk int32, v *named) bool { got[mk] = *v; sorted = append(sorted, mk); return true })
		want := m.maps[k]
		if want == nil {
			want = map[int32]named{}
		}
		diff(fmt.Sprint("map ", k), got, want)
		if !slices.IsSorted(sorted) {
			errs = append(errs, fmt.Errorf("Map.All is not in key order: %v", sorted))
		}
		gotm := map[string]basket{}
		y.mmaps.All(k.g, k.k, func(mk string, v *basket) bool { gotm[mk] = v.clone(); return true })
		wantm := m.mmaps[k]
		if wantm == nil {
			wantm = map[string]basket{}
		}
		diff(fmt.Sprint("mmap ", k), gotm, wantm)
		var list []named
		y.lists.All(k.g, k.k, func(e *named) bool { list = append(list, *e); return true })
		diff(fmt.Sprint("list ", k), list, m.lists[k])
	}
	errs = append(errs, y.maps.Check(), y.mmaps.Check())
	at, ok := y.timers.Next()
	if ts := m.sortedTimers(); ok != (len(ts) > 0) || ok && at != ts[0].at {
		errs = append(errs, fmt.Errorf("timers.Next: %d %v, want of %v", at, ok, ts))
	}
	return errors.Join(errs...)
}

// drain pops all timers in a step that is rolled back, and compares their order.
func (y *typed) drain(m *model) error {
	var got []timer
	y.s.Begin()
	for {
		at, g, k, id, ok := y.timers.Pop(math.MaxInt64)
		if !ok {
			break
		}
		got = append(got, timer{at, gk{g, k}, id})
	}
	y.s.Rollback()
	if want := m.sortedTimers(); !slices.Equal(got, want) {
		return fmt.Errorf("timers:\n got %v\nwant %v", got, want)
	}
	return nil
}

var keys = func() []gk {
	var ks []gk
	for i := range 24 {
		ks = append(ks, gk{statestore.Group(i % 3 * 300), []string{"", "a", "a\x00", "a\x00b", "b", "longer-key-", "\xff", "k"}[i%8]})
	}
	return ks
}()

type world struct {
	t     *testing.T
	r     *rand.Rand
	y     *typed
	m     *model // running
	step  *model // at Begin
	store *memstore.Store
	cache int64
	near  int

	epoch          uint64
	sealed         *model // nil: none
	sealedChanges  []statestore.Change
	sealedHorizons map[statestore.ID]int64
	committed      *model
	fold           map[string][]byte // of the committed changelog
	horizons       map[statestore.ID]int64
	tail           []statestore.Change // committed since the last write-behind
	buffers        [][]byte
}

func (w *world) key() gk { return keys[w.r.IntN(len(keys))] }

func (w *world) basket() basket {
	b := basket{}
	for range w.r.IntN(4) {
		b.items = append(b.items, w.r.Int64N(100)-50)
	}
	if w.r.IntN(2) == 0 {
		b.tags = map[string]int{fmt.Sprint(w.r.IntN(5)): w.r.IntN(9), "x": 1}
	}
	if w.r.IntN(3) == 0 {
		s := fmt.Sprint("note ", w.r.IntN(100))
		b.note = &s
	}
	return b
}

// fetched gives n a string that points into a buffer which is written over after the next Seal.
func (w *world) fetched(n named) named {
	buf := []byte(n.name)
	w.buffers = append(w.buffers, buf)
	n.name = unsafe.String(&buf[0], len(buf))
	return n
}

// scribble changes a basket in place, behind its pointers.
func (w *world) scribble(b *basket) {
	n := w.r.Int64N(1000)
	if len(b.items) > 0 {
		b.items[0] = n
	}
	if b.tags != nil {
		b.tags["x"] = int(n)
		delete(b.tags, "1")
	}
	if b.note != nil {
		*b.note = fmt.Sprint("scribbled ", n)
	}
	b.items = append(b.items, n)
}

func (w *world) op() {
	r, y, m, k := w.r, w.y, w.m, w.key()
	end := max(m.hor[0], m.hor[1], 0) + 1 + r.Int64N(4)
	wk := winKey{end, k}
	mk := int32(r.IntN(7) - 3)
	ms := fmt.Sprint(r.IntN(5))
	tm := timer{r.Int64N(60) - 10, k, uint32(r.IntN(2))}
	nm := named{fmt.Sprint("name", r.IntN(100)), int32(r.IntN(100))}
	switch r.IntN(31) {
	case 0, 1:
		v, existed := y.totals.Update(k.g, k.k)
		if old, ok := m.totals[k]; ok != existed || *v != old {
			w.t.Fatalf("totals.Update %v: %v %v, want %v %v", k, *v, existed, old, ok)
		}
		v.n++
		v.sum += 0.5
		m.totals[k] = *v
	case 2:
		y.totals.Delete(k.g, k.k)
		delete(m.totals, k)
	case 3:
		v := y.totals.Get(k.g, k.k)
		if want, ok := m.totals[k]; ok != (v != nil) || ok && *v != want {
			w.t.Fatalf("totals.Get %v: %v, want %v %v", k, v, want, ok)
		}
	case 4:
		n := w.fetched(nm)
		y.names.Set(k.g, k.k, n)
		m.names[k] = nm
	case 5:
		y.names.Delete(k.g, k.k)
		delete(m.names, k)
	case 6:
		v := y.names.Get(k.g, k.k)
		if want, ok := m.names[k]; ok != (v != nil) || ok && *v != want {
			w.t.Fatalf("names.Get %v: %v, want %v %v", k, v, want, ok)
		}
	case 7:
		b := w.basket()
		m.baskets[k] = b.clone()
		y.baskets.Set(k.g, k.k, b)
	case 8, 9:
		v, _ := y.baskets.Update(k.g, k.k)
		w.scribble(v)
		m.baskets[k] = v.clone()
	case 10:
		// Get, change in place, Set: what Value.Get and Value.Set of a program do.
		if v := y.baskets.Get(k.g, k.k); v != nil {
			c := *v
			if w.near == fewTimers { // what a Copier's table returns must not be changed
				c = c.clone()
			}
			w.scribble(&c)
			m.baskets[k] = c.clone()
			y.baskets.Set(k.g, k.k, c)
		}
	case 11:
		ref, ok := y.baskets.Ref(k.g, k.k)
		if _, want := m.baskets[k]; ok != want {
			w.t.Fatalf("baskets.Ref %v: %v, want %v", k, ok, want)
		}
		switch {
		case !ok:
		case r.IntN(2) == 0:
			w.scribble(ref.Update())
			m.baskets[k] = ref.Get().clone()
		default:
			ref.Delete()
			delete(m.baskets, k)
		}
	case 12, 13:
		v, existed := y.wins.Update(end, k.g, k.k)
		if old, ok := m.wins[wk]; ok != existed || *v != old {
			w.t.Fatalf("wins.Update %v: %v %v, want %v %v", wk, *v, existed, old, ok)
		}
		v.n++
		m.wins[wk] = *v
	case 14:
		v, _ := y.bags.Update(end, k.g, k.k)
		w.scribble(v)
		m.bags[wk] = v.clone()
	case 15:
		y.wins.Delete(end, k.g, k.k)
		delete(m.wins, wk)
		y.bags.Delete(end, k.g, k.k)
		delete(m.bags, wk)
	case 16:
		if r.IntN(3) > 0 {
			return
		}
		drop := end - int64(r.IntN(3))
		y.wins.Drop(drop)
		m.hor[0] = max(m.hor[0], drop)
		maps.DeleteFunc(m.wins, func(k winKey, _ total) bool { return k.end <= drop })
		if r.IntN(2) == 0 {
			y.bags.Drop(drop)
			m.hor[1] = max(m.hor[1], drop)
			maps.DeleteFunc(m.bags, func(k winKey, _ basket) bool { return k.end <= drop })
		}
	case 17, 18:
		if m.maps[k] == nil {
			m.maps[k] = map[int32]named{}
		}
		m.maps[k][mk] = nm
		y.maps.Put(k.g, k.k, mk, w.fetched(nm))
	case 19:
		y.maps.Delete(k.g, k.k, mk)
		delete(m.maps[k], mk)
		if r.IntN(4) == 0 {
			y.maps.Clear(k.g, k.k)
			delete(m.maps, k)
		}
	case 27:
		v := y.maps.Get(k.g, k.k, mk)
		if want, ok := m.maps[k][mk]; ok != (v != nil) || ok && *v != want {
			w.t.Fatalf("maps.Get %v %d: %v, want %v %v", k, mk, v, want, ok)
		}
	case 28:
		if got := y.maps.Len(k.g, k.k); got != len(m.maps[k]) {
			w.t.Fatalf("maps.Len %v: %d, want %d", k, got, len(m.maps[k]))
		}
	case 29:
		at, v := y.maps.Before(k.g, k.k, mk)
		want, found := int32(math.MinInt32), false
		for x := range m.maps[k] {
			if x < mk && x > want {
				want, found = x, true
			}
		}
		if found != (v != nil) || found && (at != want || *v != m.maps[k][want]) {
			w.t.Fatalf("maps.Before %v %d: %d %v, want %d of %v", k, mk, at, v, want, m.maps[k])
		}
	case 30:
		// Put what may be in the store, without a look, and often delete it again.
		if m.mmaps[k] == nil {
			m.mmaps[k] = map[string]basket{}
		}
		b := w.basket()
		m.mmaps[k][ms] = b.clone()
		y.mmaps.Put(k.g, k.k, ms, b)
		if r.IntN(2) == 0 {
			y.mmaps.Delete(k.g, k.k, ms)
			delete(m.mmaps[k], ms)
		}
	case 20:
		got := map[int32]named{}
		y.maps.Range(k.g, k.k, -1, mk, func(mk int32, v *named) bool { got[mk] = *v; return true })
		want := map[int32]named{}
		for k, v := range m.maps[k] {
			if k >= -1 && k < mk {
				want[k] = v
			}
		}
		if !maps.Equal(got, want) {
			w.t.Fatalf("maps.Range %v -1..%d: %v, want %v", k, mk, got, want)
		}
	case 21:
		if m.mmaps[k] == nil {
			m.mmaps[k] = map[string]basket{}
		}
		b := w.basket()
		if v := y.mmaps.Get(k.g, k.k, ms); v != nil {
			b = *v
			w.scribble(&b)
		}
		m.mmaps[k][ms] = b.clone()
		y.mmaps.Put(k.g, k.k, ms, b)
	case 22:
		// Delete during an iteration, and add.
		y.mmaps.All(k.g, k.k, func(mk string, v *basket) bool {
			if r.IntN(2) == 0 {
				y.mmaps.Delete(k.g, k.k, mk)
				delete(m.mmaps[k], mk)
			}
			y.mmaps.Put(k.g, k.k, mk+"+", basket{})
			m.mmaps[k][mk+"+"] = basket{}
			return len(mk) < 4
		})
		if len(m.mmaps[k]) > 12 {
			y.mmaps.Clear(k.g, k.k)
			delete(m.mmaps, k)
		}
	case 23:
		y.lists.Add(k.g, k.k, w.fetched(nm))
		m.lists[k] = append(m.lists[k], nm)
	case 24:
		if r.IntN(2) == 0 {
			y.lists.Clear(k.g, k.k)
			delete(m.lists, k)
		} else if l := m.lists[k]; len(l) > 0 {
			l = append(slices.Clone(l[1:]), nm)
			m.lists[k] = l
			y.lists.Replace(k.g, k.k, l)
		}
	case 25:
		if ts := m.sortedTimers(); len(ts) > 0 && r.IntN(3) == 0 {
			tm = ts[r.IntN(len(ts))]
			y.timers.Delete(tm.at, tm.g, tm.k, tm.id)
			delete(m.timers, tm)
			return
		}
		y.timers.Set(tm.at, k.g, k.k, tm.id)
		m.timers[tm] = true
		if r.IntN(3) == 0 {
			y.timers.Delete(tm.at, k.g, k.k, tm.id)
			delete(m.timers, tm)
		}
	case 26:
		at, g, key, id, ok := y.timers.Pop(20)
		ts := m.sortedTimers()
		if want := len(ts) > 0 && ts[0].at <= 20; ok != want {
			w.t.Fatalf("timers.Pop: %v, want %v of %v", ok, want, ts)
		}
		if ok {
			if got := (timer{at, gk{g, key}, id}); got != ts[0] {
				w.t.Fatalf("timers.Pop: %v, want %v", got, ts[0])
			}
			delete(m.timers, ts[0])
		}
	}
}

func (w *world) fatal(what string, err error) {
	if err != nil {
		w.t.Helper()
		w.t.Fatalf("%s: %v", what, err)
	}
}

// oneStep is an atomic step of some ops, a quarter of which fail.
func (w *world) oneStep() {
	before := w.m.clone()
	w.y.s.Begin()
	for range 1 + w.r.IntN(6) {
		w.op()
	}
	if w.r.IntN(20) == 0 {
		w.readsCommitted() // not even within a step anything of it shows
	}
	if w.r.IntN(4) == 0 {
		w.y.s.Rollback()
		w.m = before
	} else {
		w.y.s.End()
	}
}

func (w *world) seal() {
	if w.sealed != nil {
		return
	}
	w.epoch++
	w.sealedChanges = w.y.s.Seal(w.epoch)
	w.sealedHorizons = w.y.s.Horizons()
	w.sealed = w.m.clone()
	seen := map[string]bool{}
	for _, c := range w.sealedChanges {
		if seen[string(c.Key)] {
			w.t.Fatalf("epoch %d: key %x twice", w.epoch, c.Key)
		}
		seen[string(c.Key)] = true
	}
	for _, b := range w.buffers {
		for i := range b {
			b[i] = '!' // the fetched batch is gone
		}
	}
	w.buffers = nil
}

var (
	mapsPrefix  = binary.BigEndian.AppendUint32(nil, uint32(statestore.StoreID("m/maps")))
	mmapsPrefix = binary.BigEndian.AppendUint32(nil, uint32(statestore.StoreID("m/mmaps")))
)

func apply(fold map[string][]byte, changes []statestore.Change, horizons map[statestore.ID]int64) {
	for _, c := range changes {
		if c.Value == nil {
			delete(fold, string(c.Key))
		} else {
			fold[string(c.Key)] = bytes.Clone(c.Value)
		}
	}
	for id, end := range horizons {
		lo, hi := statestore.WindowRange(id, end)
		maps.DeleteFunc(fold, func(k string, _ []byte) bool { return k >= string(lo) && (hi == nil || k < string(hi)) })
	}
}

func (w *world) commit() {
	if w.sealed == nil {
		return
	}
	for _, c := range w.sealedChanges {
		_, had := w.fold[string(c.Key)]
		blind := bytes.HasPrefix(c.Key, mapsPrefix) || bytes.HasPrefix(c.Key, mmapsPrefix) // put without a look whether it is there
		if c.Value == nil && !had && !blind {
			w.t.Fatalf("epoch %d: tombstone for key %x, which was never there", w.epoch, c.Key)
		}
		w.tail = append(w.tail, statestore.Change{Key: bytes.Clone(c.Key), Value: bytes.Clone(c.Value)})
	}
	apply(w.fold, w.sealedChanges, w.sealedHorizons)
	w.horizons, w.committed, w.sealed = w.sealedHorizons, w.sealed, nil
	w.y.s.Committed()
}

func dump(t testing.TB, store statestore.Store) map[string][]byte {
	it, err := store.Scan(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	m := map[string][]byte{}
	for it.Next() {
		m[string(it.Key())] = bytes.Clone(it.Value())
	}
	return m
}

// writeBehind checks I1 and I4: the Store holds the fold of the committed changelog and nothing else.
func (w *world) writeBehind() {
	write := w.y.s.WriteBehind
	if w.r.IntN(2) == 0 {
		write = w.y.s.StartWriteBehind // reads find it all the same
	}
	w.fatal("write behind", write(statestore.Meta{Epoch: w.epoch}))
	w.tail = nil
	got := dump(w.t, w.store)
	for k, v := range w.fold {
		if !bytes.Equal(got[k], v) {
			w.t.Fatalf("key %x: store has %x, changelog has %x", k, got[k], v)
		}
	}
	for k, v := range got {
		if _, ok := w.fold[k]; !ok {
			w.t.Fatalf("key %x: store has %x, changelog has nothing", k, v)
		}
	}
	if w.y.s.Pending() != 0 {
		w.t.Fatalf("Pending is %d after a write-behind", w.y.s.Pending())
	}
}

func putAll(t testing.TB, store statestore.Store, changes []statestore.Change, horizons map[statestore.ID]int64) {
	b := store.NewBatch()
	for _, c := range changes {
		if c.Value == nil {
			b.Delete(c.Key)
		} else {
			b.Set(c.Key, c.Value)
		}
	}
	for id, end := range horizons {
		lo, hi := statestore.WindowRange(id, end)
		b.DeleteRange(lo, hi)
	}
	if err := b.Commit(statestore.Meta{Epoch: 1}); err != nil {
		t.Fatal(err)
	}
}

// crash loses the State, and restores the Store from the changelog: its tail, or all of it.
func (w *world) crash(wipe bool) {
	if wipe {
		w.store = memstore.New()
		w.tail = nil
		for k, v := range w.fold {
			w.tail = append(w.tail, statestore.Change{Key: []byte(k), Value: v})
		}
	}
	putAll(w.t, w.store, w.tail, w.horizons)
	w.tail = nil
	w.sealed = nil
	w.m = w.committed.clone()
	w.y = openTyped(w.t, w.store, w.cache, w.near, w.horizons)
	w.fatal("after restore", w.y.equal(w.m))
	w.fatal("after restore", w.y.drain(w.m))
}

func runModel(t *testing.T, seed uint64, cache int64, near, steps int) {
	w := &world{t: t, r: rand.New(rand.NewPCG(seed, 1)), m: newModel(), committed: newModel(), store: memstore.New(), cache: cache, near: near,
		fold: map[string][]byte{}}
	w.y = openTyped(t, w.store, cache, near, nil)
	defer func() {
		if t.Failed() {
			t.Logf("seed %d, cache %d, near %d", seed, cache, near)
		}
	}()
	for range steps {
		switch n := w.r.IntN(100); {
		case n < 80:
			w.oneStep()
		case n < 85:
			w.fatal("running", w.y.equal(w.m))
			w.readsCommitted()
		case n < 87:
			w.fatal("running", w.y.drain(w.m))
		case n < 92:
			w.seal()
		case n < 96:
			w.commit()
		case n < 98:
			w.writeBehind()
		case n < 99:
			w.crash(false)
		default:
			w.crash(true)
		}
	}
	w.fatal("at the end", w.y.equal(w.m))
	w.commit()
	w.seal()
	w.commit()
	w.writeBehind()
	w.crash(false)
	w.crash(true)
}

func TestModel(t *testing.T) {
	steps, seeds := 3000, uint64(4)
	if testing.Short() {
		seeds = 1
	}
	for _, cache := range []int64{1, 5000, 20_000, 1 << 30} {
		for _, near := range []int{fewTimers, 1 << 16} {
			t.Run(fmt.Sprintf("cache=%d,near=%d", cache, near), func(t *testing.T) {
				for i := range seeds {
					runModel(t, rand.Uint64()>>i, cache, near, steps)
				}
			})
		}
	}
}
