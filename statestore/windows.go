package statestore

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Windows is a store of aligned windows: one V for each window end and key. Each open window has a cache of its own
// that is used again for a later window; closing one is a range delete and a new horizon, without tombstones.
type Windows[K comparable, V any] struct {
	x    *values[V]
	kw   keyWriter[K]
	buf  []byte       // padded key of the running call
	open []*window[V] // by end
	last *window[V]   // the window of the last call
	hor  int64
	idle []*window[V] // for reuse

	// Dropped windows stay until the epoch that dropped them is committed: what was committed before has to reach
	// the Store if a write-behind comes first. The sealed epoch dropped the first sealedDrops of them.
	dropped     []*window[V]
	sealedDrops int
	sealedHor   int64
	storeHor    int64 // windows up to here are to be deleted from the Store
	storeDelete bool

	swept int64 // end of the window that the running eviction is at

	inStep   bool // a window was dropped in the running step
	undoDrop int  // len(dropped) when the step began
	undoHor  int64
}

type window[V any] struct {
	end    int64
	c      cache[V]
	stored bool // the Store may have entries
	loaded bool // it was tried to load them
}

// NewWindows opens a store of kind KindWindows in s. Windows up to its horizon (State.SetHorizon) do not exist.
func NewWindows[K comparable, V any](s *State, spec Spec, kc KeyCodec[K], vc Codec[V]) (*Windows[K, V], error) {
	spec = s.place(spec)
	x, err := newValues(s, spec, vc)
	if err != nil {
		return nil, err
	}
	w := &Windows[K, V]{x: x, kw: newKeyWriter(kc), hor: noHorizon, swept: math.MinInt64}
	if h, ok := s.horizons[spec.ID]; ok {
		w.hor = h
	}
	w.sealedHor, w.storeHor = w.hor, w.hor
	if err := s.register(spec, KindWindows, (*windowsSub[K, V])(w)); err != nil {
		return nil, err
	}
	return w, catch(w.findStored)
}

// findStored makes the windows that the Store has entries of, one short scan for each.
func (w *Windows[K, V]) findStored() {
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
			win.stored, win.loaded, win.c.complete = true, false, false
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
func (w *Windows[K, V]) take(end int64) *window[V] {
	var win *window[V]
	if n := len(w.idle); n > 0 {
		win, w.idle = w.idle[n-1], w.idle[:n-1]
	} else {
		win = &window[V]{}
		win.c.init(w.x, nil)
	}
	win.c.prefix = appendKeyInt64(appendID(nil, w.x.spec.ID), end)
	win.end, win.stored, win.loaded, win.c.complete = end, false, true, true
	return win
}

// maxIdleWindows bounds the empty windows kept for reuse.
const maxIdleWindows = 16

func (w *Windows[K, V]) recycle(win *window[V]) {
	win.c.forget()
	win.c.reset()
	if w.last == win {
		w.last = nil
	}
	if len(w.idle) < maxIdleWindows {
		w.idle = append(w.idle, win)
	}
}

func (w *Windows[K, V]) index(end int64) (int, bool) {
	return slices.BinarySearchFunc(w.open, end, func(win *window[V], end int64) int { return cmp.Compare(win.end, end) })
}

// at returns the window of end; nil if there is none and make is false.
func (w *Windows[K, V]) at(end int64, make bool) *window[V] {
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
	win := w.open[i]
	if !win.loaded {
		win.loaded = true
		win.c.load()
	}
	w.last = win
	return win
}

func (w *Windows[K, V]) key(g Group, k K) []byte {
	w.buf = pad(w.kw.append(append(w.buf[:0], byte(g>>8), byte(g)), k))
	return w.buf
}

// Get returns the value of k in the window that ends at end, or nil. It is for reading, and valid until the next call
// on the State.
func (w *Windows[K, V]) Get(end int64, g Group, k K) *V {
	win := w.at(end, false)
	if win == nil {
		return nil
	}
	return win.c.get(w.key(g, k))
}

// Update returns the value of k in the window that ends at end for writing, and whether it existed; it is zero if not. It
// may be changed in place until End or Rollback. A window at or below the horizon must not be written (a Fault).
func (w *Windows[K, V]) Update(end int64, g Group, k K) (v *V, existed bool) {
	return w.at(end, true).c.update(w.key(g, k))
}

// Delete removes k from the window that ends at end.
func (w *Windows[K, V]) Delete(end int64, g Group, k K) {
	if win := w.at(end, false); win != nil {
		win.c.delete(w.key(g, k))
	}
}

// Each calls fn for all entries of the window that ends at end, and stops at its first error. The order is that of
// the first writes if the window is in memory, else that of the keys. fn must not touch this window's entries; it may
// use other windows and stores. The value is for reading and valid during the call.
func (w *Windows[K, V]) Each(end int64, fn func(g Group, k K, v *V) error) error {
	i, ok := w.index(end)
	if !ok {
		return nil
	}
	var err error
	w.open[i].c.each(false, func(key []byte, v *V) bool {
		k, _ := decodeUser(w.x, w.kw.kc, key, 2)
		err = fn(groupOf(key), k, v)
		return err == nil
	})
	return err
}

// EachKey is Each with encoded keys, which Key decodes: for those who look at many windows and want most keys once. The
// key is valid during the call.
func (w *Windows[K, V]) EachKey(end int64, fn func(key []byte, v *V)) {
	if win := w.at(end, false); win != nil {
		win.c.each(false, func(key []byte, v *V) bool { fn(key, v); return true })
	}
}

// Key decodes a key of EachKey.
func (w *Windows[K, V]) Key(key []byte) (Group, K) {
	k, _ := decodeUser(w.x, w.kw.kc, key, 2)
	return groupOf(key), k
}

// Drop removes all windows that end at or before end, and moves the horizon there.
func (w *Windows[K, V]) Drop(end int64) {
	if end <= w.hor {
		return
	}
	if !w.inStep {
		w.inStep, w.undoDrop, w.undoHor = true, len(w.dropped), w.hor
		w.x.s.touched = append(w.x.s.touched, (*windowsUndo[K, V])(w))
	}
	n := 0
	for n < len(w.open) && w.open[n].end <= end {
		n++
	}
	w.dropped = append(w.dropped, w.open[:n]...)
	w.open = slices.Delete(w.open, 0, n)
	w.hor, w.last = end, nil
}

// Next returns the lowest window end with entries.
func (w *Windows[K, V]) Next() (end int64, ok bool) { return w.next(0) }

// After returns the lowest window end behind end with entries.
func (w *Windows[K, V]) After(end int64) (next int64, ok bool) {
	i, found := w.index(end)
	if found {
		i++
	}
	return w.next(i)
}

func (w *Windows[K, V]) next(from int) (end int64, ok bool) {
	for _, win := range w.open[from:] {
		if win.c.live > 0 {
			return win.end, true
		}
		if win.c.complete {
			continue
		}
		found := false
		win.c.each(false, func([]byte, *V) bool { found = true; return false })
		if found {
			return win.end, true
		}
	}
	return 0, false
}

// CacheBytes is the room of the caches of the State: what an operator keeps beside its windows is to be well below it.
func (w *Windows[K, V]) CacheBytes() int64 { return w.x.s.cacheBytes }

// Horizon is the end up to which all windows were dropped; math.MinInt64 if none ever was.
func (w *Windows[K, V]) Horizon() int64 { return w.hor }

// windowsUndo undoes Drops.
type windowsUndo[K comparable, V any] Windows[K, V]

// end lets go of windows that came and went within the running epoch: nobody will hear of them. In a replay, where an epoch
// has hours of event time, that is most of them.
func (u *windowsUndo[K, V]) end() {
	w := (*Windows[K, V])(u)
	w.inStep = false
	if w.x.s.iterating > 0 {
		return
	}
	w.dropped = release(w.dropped, w.undoDrop, func(win *window[V]) bool {
		return win.stored || len(win.c.pend) > 0 || len(win.c.sealed) > 0
	}, w.recycle)
}

// release recycles those of dropped windows, from a place on, that are not needed, and returns the others.
func release[W any](dropped []*W, from int, needed func(*W) bool, recycle func(*W)) []*W {
	kept := dropped[:from]
	for _, win := range dropped[from:] {
		if needed(win) {
			kept = append(kept, win)
		} else {
			recycle(win)
		}
	}
	clear(dropped[len(kept):])
	return kept
}

func (u *windowsUndo[K, V]) rollback() {
	w := (*Windows[K, V])(u)
	// What was dropped lies below everything that is open.
	w.open = slices.Insert(w.open, 0, w.dropped[w.undoDrop:]...)
	clear(w.dropped[w.undoDrop:])
	w.dropped = w.dropped[:w.undoDrop]
	w.hor, w.last, w.inStep = w.undoHor, nil, false
}

// windowsSub is Windows as a substore.
type windowsSub[K comparable, V any] Windows[K, V]

func (u *windowsSub[K, V]) seal() {
	for _, win := range u.open {
		win.c.seal()
	}
	for _, win := range u.dropped {
		win.c.dirty = win.c.dirty[:0]
	}
	u.sealedDrops, u.sealedHor = len(u.dropped), u.hor
}

func (u *windowsSub[K, V]) committed() {
	w := (*Windows[K, V])(u)
	for _, win := range w.open {
		win.c.committed()
	}
	for _, win := range w.dropped {
		win.c.committed()
	}
	if w.sealedHor > w.storeHor {
		w.storeHor = w.sealedHor
	}
	for _, win := range w.dropped[:w.sealedDrops] {
		w.storeDelete = w.storeDelete || win.stored
		w.recycle(win)
	}
	w.dropped = slices.Delete(w.dropped, 0, w.sealedDrops)
	w.sealedDrops = 0
}

func (u *windowsSub[K, V]) gather(b Batch) {
	if u.storeDelete {
		b.DeleteRange(WindowRange(u.x.spec.ID, u.storeHor))
	}
	for _, win := range u.dropped { // they end before those that are open
		win.c.gather(b)
	}
	for _, win := range u.open {
		win.c.gather(b)
	}
}

func (u *windowsSub[K, V]) written() {
	w := (*Windows[K, V])(u)
	w.storeDelete = false
	for _, list := range [][]*window[V]{w.open, w.dropped} {
		for _, win := range list {
			win.stored = win.stored || len(win.c.pend) > 0
			win.c.written()
		}
	}
	// Windows without entries, left by deletes and rolled back records, go.
	w.open = slices.DeleteFunc(w.open, func(win *window[V]) bool {
		gone := win.c.complete && win.c.used == 0 && len(win.c.dirty) == 0
		if gone {
			w.recycle(win)
		}
		return gone
	})
}

func (u *windowsSub[K, V]) evict(w *sweep) (ended bool) {
	// Old windows close soon; they are written less and less.
	i, _ := (*Windows[K, V])(u).index(u.swept)
	for ; i < len(u.open) && w.want > 0; i++ {
		if win := u.open[i]; !win.c.evict(w) {
			u.swept = win.end
			return false
		}
	}
	u.swept = math.MinInt64
	return true
}
func (u *windowsSub[K, V]) cached() int64 {
	n := int64(0)
	for _, win := range u.open {
		n += win.c.bytes
	}
	return n
}

func (u *windowsSub[K, V]) horizon() (ID, int64, bool) { return u.x.spec.ID, u.hor, u.hor != noHorizon }
