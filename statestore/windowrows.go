package statestore

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// WindowRows is a store of rows in aligned windows: for each window end and key any number of Vs, ordered by a time of
// their own and, of one time, as they were added. Adding a row writes that row alone, whatever else the key has; closing
// a window is a range delete and a new horizon, without tombstones. Joins keep their rows in it.
type WindowRows[K comparable, V any] struct {
	x    *values[V]
	kw   keyWriter[K]
	buf  []byte          // physical key of the running call; starts with the store id
	hi   []byte          // likewise, of the upper bound
	open []*rowWindow[V] // by end
	last *rowWindow[V]   // the window of the last call
	hor  int64
	idle []*rowWindow[V] // for reuse

	// As in Windows: dropped windows stay until the epoch that dropped them is committed.
	dropped     []*rowWindow[V]
	sealedDrops int
	sealedHor   int64
	storeHor    int64
	storeDelete bool

	swept int64 // end of the window that the running eviction is at

	inStep   bool
	undoDrop int
	undoHor  int64
}

type rowWindow[V any] struct {
	end    int64
	b      buckets[V]
	stored bool // the Store may have rows
}

// rowSuffix is what stands behind the user's key: time and sequence number.
const rowSuffix = 8 + 4

// rowPrefix stands in front of it: store id, window end, key group.
const rowPrefix = 4 + 8 + 2

// Row is one row of a WindowRows. It is valid until its window is dropped or the step ends.
type Row[V any] struct {
	b *buckets[V]
	e *elem[V]
}

// Time is the time that the row was added with.
func (r Row[V]) Time() int64 { return decodeKeyInt64(r.e.key[len(r.e.key)-rowSuffix:]) }

// Get returns the value. It is for reading, and valid until the next call on the State.
func (r Row[V]) Get() *V { return r.b.read(r.e) }

// Update returns the value for writing. It may be changed in place until End or Rollback.
func (r Row[V]) Update() *V {
	r.b.write(r.e)
	return &r.e.val
}

// NewWindowRows opens a store of kind KindWindowRows in s. Windows up to its horizon (State.SetHorizon) do not exist.
func NewWindowRows[K comparable, V any](s *State, spec Spec, kc KeyCodec[K], vc Codec[V]) (*WindowRows[K, V], error) {
	spec = s.place(spec)
	x, err := newValues(s, spec, vc)
	if err != nil {
		return nil, err
	}
	w := &WindowRows[K, V]{x: x, kw: newKeyWriter(kc), buf: appendID(make([]byte, 0, 64), spec.ID), hor: noHorizon, swept: math.MaxInt64}
	if h, ok := s.horizons[spec.ID]; ok {
		w.hor = h
	}
	w.sealedHor, w.storeHor = w.hor, w.hor
	if err := s.register(spec, KindWindowRows, (*windowRowsSub[K, V])(w)); err != nil {
		return nil, err
	}
	return w, catch(w.findStored)
}

// findStored makes the windows that the Store has rows of, one short scan for each.
func (w *WindowRows[K, V]) findStored() {
	lo := appendID(nil, w.x.spec.ID)
	hi := successor(lo)
	for {
		found := false
		var end int64
		w.x.scan(lo, hi, func(key, _ []byte) bool {
			if len(key) < 12 {
				w.x.fault(fmt.Errorf("key %x: %w: it is shorter than its prefix", key, ErrCorrupt))
			}
			found, end = true, decodeKeyInt64(key[4:])
			return false
		})
		if !found {
			return
		}
		if end > w.hor {
			win := w.take(end)
			win.stored, win.b.complete = true, false
			w.open = append(w.open, win)
		} else {
			w.storeDelete = true // a crash came between a restore and its range delete
		}
		if end == math.MaxInt64 {
			return
		}
		lo = appendKeyInt64(appendID(nil, w.x.spec.ID), end+1)
	}
}

// take makes an empty window that the Store knows nothing of.
func (w *WindowRows[K, V]) take(end int64) *rowWindow[V] {
	var win *rowWindow[V]
	if n := len(w.idle); n > 0 {
		win, w.idle = w.idle[n-1], w.idle[:n-1]
	} else {
		win = &rowWindow[V]{b: buckets[V]{x: w.x, m: map[string]*bucket[V]{}, slabs: true}}
	}
	win.end, win.stored, win.b.complete = end, false, true
	return win
}

// maxIdleRowWindows bounds the empty windows kept for reuse. They keep the size of their largest map of keys.
const maxIdleRowWindows = 4

func (w *WindowRows[K, V]) recycle(win *rowWindow[V]) {
	win.b.reset()
	if w.last == win {
		w.last = nil
	}
	if len(w.idle) < maxIdleRowWindows {
		w.idle = append(w.idle, win)
	}
}

func (w *WindowRows[K, V]) index(end int64) (int, bool) {
	return slices.BinarySearchFunc(w.open, end, func(win *rowWindow[V], end int64) int { return cmp.Compare(win.end, end) })
}

// at returns the window of end; nil if there is none and make is false.
func (w *WindowRows[K, V]) at(end int64, make bool) *rowWindow[V] {
	if w.last != nil && w.last.end == end {
		return w.last
	}
	i, ok := w.index(end)
	if !ok {
		if !make {
			return nil
		}
		if end <= w.hor {
			panic(&Fault{fmt.Errorf("write window of %q: it ends at %d ms and all windows up to %d ms were dropped", w.x.spec.Name, end, w.hor)})
		}
		w.open = slices.Insert(w.open, i, w.take(end))
	}
	w.last = w.open[i]
	return w.last
}

// bucket is all rows of a key in a window; w.buf is its prefix then.
func (w *WindowRows[K, V]) bucket(win *rowWindow[V], g Group, k K, insert bool) *bucket[V] {
	w.buf = appendKeyInt64(w.buf[:4], win.end)
	w.buf = w.kw.append(append(w.buf, byte(g>>8), byte(g)), k)
	return win.b.get(w.buf, insert)
}

// Add adds a row with a time to the window that ends at end. A window at or below the horizon must not be written (a
// Fault).
func (w *WindowRows[K, V]) Add(end int64, g Group, k K, at int64, v V) {
	win := w.at(end, true)
	b := &win.b
	bk := w.bucket(win, g, k, true)
	n := len(w.buf)
	w.buf = binary.BigEndian.AppendUint32(appendKeyInt64(w.buf, at), math.MaxUint32)
	i := len(bk.elems)
	if i > 0 && bytes.Compare(bk.elems[i-1].key, w.buf) > 0 {
		i, _ = bk.find(w.buf)
	}
	seq := uint32(0)
	if i > 0 {
		before := bk.elems[i-1].key
		if len(before) != n+rowSuffix {
			w.x.fault(fmt.Errorf("key %x: %w", before, ErrCorrupt))
		}
		if bytes.Equal(before[n:n+8], w.buf[n:n+8]) {
			seq = binary.BigEndian.Uint32(before[n+8:]) + 1
		}
	}
	binary.BigEndian.PutUint32(w.buf[n+8:], seq)
	e := b.newElem(bk, w.buf)
	b.insert(bk, i, e)
	b.write(e)
	b.setLive(e, true)
	e.val = v
}

// Range calls yield for the rows of k with from <= time <= to in the window that ends at end, in order, until it returns
// false. yield may update the rows.
func (w *WindowRows[K, V]) Range(end int64, g Group, k K, from, to int64, yield func(r Row[V]) bool) {
	win := w.at(end, false)
	if win == nil {
		return
	}
	bk := w.bucket(win, g, k, false)
	if bk == nil || len(bk.elems) == 0 {
		return
	}
	// walk needs the bounds only before its first call of yield, which may use the store.
	var hi []byte
	if to < math.MaxInt64 {
		w.hi = appendKeyInt64(append(w.hi[:0], w.buf...), to+1)
		hi = w.hi
	}
	var lo []byte
	if from > math.MinInt64 {
		w.buf = appendKeyInt64(w.buf, from)
		lo = w.buf
	}
	win.b.walk(bk, lo, hi, func(e *elem[V]) bool { return yield(Row[V]{&win.b, e}) })
}

// Rows is Range for all rows.
func (w *WindowRows[K, V]) Rows(end int64, g Group, k K, yield func(r Row[V]) bool) {
	w.Range(end, g, k, math.MinInt64, math.MaxInt64, yield)
}

// Keys calls fn for each key that has rows in the window that ends at end, by key group and key, and stops at its first
// error. fn may be a step of its own; it must not add rows to this window.
func (w *WindowRows[K, V]) Keys(end int64, fn func(g Group, k K) error) error {
	i, ok := w.index(end)
	if !ok {
		return nil
	}
	win := w.open[i]
	var cached []string
	for prefix, bk := range win.b.m {
		if bk.live > 0 {
			cached = append(cached, prefix)
		}
	}
	slices.Sort(cached)
	if win.b.complete {
		return w.each(cached, fn)
	}
	// Part of the keys may be in the Store only. They are read some at a time, so that fn runs outside of an iteration.
	lo := appendKeyInt64(appendID(nil, w.x.spec.ID), end)
	hi := successor(lo)
	for {
		var stored []string
		full := false
		w.x.scan(lo, hi, func(key, _ []byte) bool {
			if len(key) < rowPrefix+rowSuffix {
				w.x.fault(fmt.Errorf("key %x: %w: it is shorter than its prefix", key, ErrCorrupt))
			}
			prefix := key[:len(key)-rowSuffix]
			if n := len(stored); n > 0 && stored[n-1] == string(prefix) {
				return true
			}
			if full = len(stored) == keysAtOnce; full {
				lo = bytes.Clone(prefix)
				return false
			}
			stored = append(stored, string(prefix))
			return true
		})
		n := len(cached)
		if full {
			n, _ = slices.BinarySearch(cached, string(lo))
		}
		stored = append(stored, cached[:n]...)
		cached = cached[n:]
		slices.Sort(stored)
		if err := w.each(slices.Compact(stored), fn); err != nil || !full {
			return err
		}
	}
}

// keysAtOnce is how many stored keys of a window are in memory at once.
const keysAtOnce = 1024

func (w *WindowRows[K, V]) each(prefixes []string, fn func(g Group, k K) error) error {
	for _, p := range prefixes {
		b := []byte(p)
		k, _ := decodeUser(w.x, w.kw.kc, b, rowPrefix)
		if err := fn(groupOf(b[rowPrefix-2:]), k); err != nil {
			return err
		}
	}
	return nil
}

// Drop removes all windows that end at or before end, and moves the horizon there.
func (w *WindowRows[K, V]) Drop(end int64) {
	if end <= w.hor {
		return
	}
	if !w.inStep {
		w.inStep, w.undoDrop, w.undoHor = true, len(w.dropped), w.hor
		w.x.s.touched = append(w.x.s.touched, (*windowRowsUndo[K, V])(w))
	}
	n := 0
	for n < len(w.open) && w.open[n].end <= end {
		n++
	}
	w.dropped = append(w.dropped, w.open[:n]...)
	w.open = slices.Delete(w.open, 0, n)
	w.hor, w.last = end, nil
}

// Next returns the lowest window end behind after that has rows, or had some in a step that was undone.
func (w *WindowRows[K, V]) Next(after int64) (end int64, ok bool) {
	if after == math.MaxInt64 {
		return 0, false
	}
	if i, _ := w.index(after + 1); i < len(w.open) {
		return w.open[i].end, true
	}
	return 0, false
}

// Horizon is the end up to which all windows were dropped; math.MinInt64 if none ever was.
func (w *WindowRows[K, V]) Horizon() int64 { return w.hor }

// windowRowsUndo undoes Drops.
type windowRowsUndo[K comparable, V any] WindowRows[K, V]

// end is as of windowsUndo.
func (u *windowRowsUndo[K, V]) end() {
	w := (*WindowRows[K, V])(u)
	w.inStep = false
	if w.x.s.iterating > 0 {
		return
	}
	w.dropped = release(w.dropped, w.undoDrop, func(win *rowWindow[V]) bool {
		return win.stored || len(win.b.pendOf) > 0 || len(win.b.sealed) > 0
	}, w.recycle)
}

func (u *windowRowsUndo[K, V]) rollback() {
	w := (*WindowRows[K, V])(u)
	// What was dropped lies below everything that is open.
	w.open = slices.Insert(w.open, 0, w.dropped[w.undoDrop:]...)
	clear(w.dropped[w.undoDrop:])
	w.dropped = w.dropped[:w.undoDrop]
	w.hor, w.last, w.inStep = w.undoHor, nil, false
}

// windowRowsSub is WindowRows as a substore.
type windowRowsSub[K comparable, V any] WindowRows[K, V]

func (u *windowRowsSub[K, V]) seal() {
	for _, win := range u.open {
		win.b.seal()
	}
	for _, win := range u.dropped {
		clear(win.b.dirty)
		win.b.dirty = win.b.dirty[:0]
	}
	u.sealedDrops, u.sealedHor = len(u.dropped), u.hor
}

func (u *windowRowsSub[K, V]) committed() {
	w := (*WindowRows[K, V])(u)
	for _, win := range w.open {
		win.b.committed()
	}
	for _, win := range w.dropped {
		win.b.committed()
	}
	w.storeHor = max(w.storeHor, w.sealedHor)
	for _, win := range w.dropped[:w.sealedDrops] {
		w.storeDelete = w.storeDelete || win.stored
		w.recycle(win)
	}
	w.dropped = slices.Delete(w.dropped, 0, w.sealedDrops)
	w.sealedDrops = 0
}

func (u *windowRowsSub[K, V]) gather(b Batch) {
	if u.storeDelete {
		b.DeleteRange(WindowRange(u.x.spec.ID, u.storeHor))
	}
	for _, win := range u.dropped { // they end before those that are open
		win.b.gather(b)
	}
	for _, win := range u.open {
		win.b.gather(b)
	}
}

func (u *windowRowsSub[K, V]) written() {
	w := (*WindowRows[K, V])(u)
	w.storeDelete = false
	for _, list := range [][]*rowWindow[V]{w.open, w.dropped} {
		for _, win := range list {
			win.stored = win.stored || len(win.b.pendOf) > 0
			win.b.written()
		}
	}
	// Windows without rows, left by rolled back records, go.
	w.open = slices.DeleteFunc(w.open, func(win *rowWindow[V]) bool {
		gone := win.b.complete && len(win.b.m) == 0 && len(win.b.dirty) == 0
		if gone {
			w.recycle(win)
		}
		return gone
	})
}

func (u *windowRowsSub[K, V]) evict(w *sweep) (ended bool) {
	// The newest windows are the last that are needed as a whole.
	i, found := (*WindowRows[K, V])(u).index(u.swept)
	if !found {
		i--
	}
	for ; i >= 0 && w.want > 0; i-- {
		if win := u.open[i]; !win.b.evict(w) {
			u.swept = win.end
			return false
		}
	}
	u.swept = math.MaxInt64
	return true
}
func (u *windowRowsSub[K, V]) cached() int64 {
	n := int64(0)
	for _, win := range u.open {
		n += win.b.bytes
	}
	return n
}

func (u *windowRowsSub[K, V]) horizon() (ID, int64, bool) {
	return u.x.spec.ID, u.hor, u.hor != noHorizon
}

// ends is of windowEnds.
func (u *windowRowsSub[K, V]) ends() []int64 {
	var ends []int64
	for _, list := range [][]*rowWindow[V]{u.dropped, u.open} { // what was dropped ends before what is open
		for _, win := range list {
			if win.end > u.storeHor && (win.stored || len(win.b.pendOf) > 0) {
				ends = append(ends, win.end)
			}
		}
	}
	return ends
}

// changesAt is of windowChanges.
func (u *windowRowsSub[K, V]) changesAt(end int64, prefix []byte) (changes []Change, gone bool) {
	if end <= u.storeHor {
		return nil, u.storeHor != noHorizon
	}
	byEnd := func(win *rowWindow[V], end int64) int { return cmp.Compare(win.end, end) }
	// What the running epoch has dropped is still there for everybody else.
	for _, list := range [][]*rowWindow[V]{u.dropped, u.open} {
		if i, ok := slices.BinarySearchFunc(list, end, byEnd); ok {
			return list[i].b.changesIn(prefix), false
		}
	}
	return nil, false
}
