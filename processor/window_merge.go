package processor

import (
	"math"
	"slices"
	"unsafe"

	"github.com/millrace-stream/millrace/processor/window"
	"github.com/millrace-stream/millrace/statestore"
)

// sliceMerger puts windows that overlap together from their slices. A window of n slices is
//
//	suffix of a block | whole blocks | prefix of a block
//
// where a block is about sqrt(n) slices, aligned in time. Each part is kept in memory and moves on from window to
// window: a firing costs some 7 looks for each key instead of n. The parts are put together in an order that depends on
// the window alone, so that sums of floats come out the same after a restart, and for a single key.
type sliceMerger[K comparable, T, A any] struct {
	o      *slicedOp[K, T, A]
	block  int64 // length of a block, ms
	origin int64
	grow   bool  // windows grow from the start of their period: all of it is prefix
	room   int64 // bytes that may be kept
	size   int64 // of an A

	upTo int64 // end of the last slice that is part of what is kept

	suffixes   []suffix[A] // of the block that ends at suffixOf, by end, highest first
	suffixOf   int64
	blocks     []suffix[A]    // whole blocks, by end
	middle     *sliceTable[A] // blocks (middleFrom, middleTo]
	middleFrom int64
	middleTo   int64
	prefix     *sliceTable[A] // slices (prefixFrom, prefixTo]
	prefixFrom int64
	prefixTo   int64

	// Keys have numbers, by which tables are arrays: only reading a slice needs to look for a key.
	numbers map[string]int32
	keys    []numberedKey[K]

	// Keys with slices that changed after they became part of what is kept are put together one by one.
	stale map[K]statestore.Group
	done  map[K]struct{} // of them those fired already

	spare []*sliceTable[A]
	ends  []int64
	acc   A
}

type numberedKey[K comparable] struct {
	g statestore.Group
	k K
}

// suffix is the table of all slices of a block from one on.
type suffix[A any] struct {
	end int64 // of the first of them; of a whole block, its own
	t   *sliceTable[A]
}

// sliceTable is accumulators by number of the key.
type sliceTable[A any] struct {
	accs []A
	has  []bool
}

func newSliceMerger[K comparable, T, A any](o *slicedOp[K, T, A]) *sliceMerger[K, T, A] {
	a := o.assigner
	m := &sliceMerger[K, T, A]{o: o, origin: a.Origin(), grow: a.Kind() == window.KindCumulate, numbers: map[string]int32{}}
	n := a.Size() / a.Unit()
	per := int64(1)
	for per*per < n {
		per++
	}
	if n < 4 {
		per = 1
	}
	m.block = per * a.Unit()
	m.size = int64(unsafe.Sizeof(m.acc)) + 1
	m.room = o.store.CacheBytes() / 4
	if !o.codec.Flat() {
		m.room = 0 // copies of all parts of an accumulator cost more than they save
	}
	m.forget()
	return m
}

// forget lets go of all that is kept.
func (m *sliceMerger[K, T, A]) forget() {
	for _, s := range m.suffixes {
		m.free(s.t)
	}
	for _, s := range m.blocks {
		m.free(s.t)
	}
	m.free(m.middle)
	m.free(m.prefix)
	clear(m.suffixes)
	clear(m.blocks)
	m.suffixes, m.blocks, m.middle, m.prefix = m.suffixes[:0], m.blocks[:0], nil, nil
	m.suffixOf, m.middleFrom, m.middleTo, m.prefixFrom, m.prefixTo = unknown, unknown, unknown, unknown, unknown
	m.upTo = math.MinInt64
	clear(m.stale)
	clear(m.numbers)
	clear(m.keys)
	m.keys = m.keys[:0]
}

const unknown = math.MinInt64

func (m *sliceMerger[K, T, A]) take() *sliceTable[A] {
	if n := len(m.spare); n > 0 {
		t := m.spare[n-1]
		m.spare = m.spare[:n-1]
		return t
	}
	return &sliceTable[A]{}
}

func (m *sliceMerger[K, T, A]) free(t *sliceTable[A]) {
	if t == nil || len(m.spare) >= 4 {
		return
	}
	clear(t.accs)
	clear(t.has)
	t.accs, t.has = t.accs[:0], t.has[:0]
	m.spare = append(m.spare, t)
}

// spoil notes that a slice of a key changed that is part of what is kept.
func (m *sliceMerger[K, T, A]) spoil(g statestore.Group, k K) {
	if m.stale == nil {
		m.stale = map[K]statestore.Group{}
	}
	if len(m.stale) >= 1024 {
		m.forget() // building anew costs less
		return
	}
	m.stale[k] = g
}

// cut gives the blocks that a window begins and ends in: the window is (start, from], (from, to], (to, end].
func (m *sliceMerger[K, T, A]) cut(end int64) (start, from, to int64) {
	start = m.o.assigner.StartOf(end)
	if m.grow {
		return start, start, start
	}
	floor := func(t int64) int64 {
		r := (t - m.origin) % m.block
		if r < 0 {
			r += m.block
		}
		return t - r
	}
	to = floor(end)
	from = floor(start + m.block - 1)
	if from > to { // within one block
		return start, start, start
	}
	return start, from, to
}

// slices calls fn for the slices in (from, to], which is ascending.
func (m *sliceMerger[K, T, A]) slices(from, to int64, fn func(end int64)) {
	for s, ok := m.o.store.After(from); ok && s <= to; s, ok = m.o.store.After(s) {
		fn(s)
	}
}

// add joins the accumulators of a slice to those of a table.
func (m *sliceMerger[K, T, A]) add(t *sliceTable[A], end int64) {
	m.o.store.EachKey(end, func(key []byte, v *A) {
		i, ok := m.numbers[string(key)]
		if !ok {
			i = int32(len(m.keys))
			m.numbers[string(key)] = i
			g, k := m.o.store.Key(key)
			m.keys = append(m.keys, numberedKey[K]{g, k})
		}
		m.put(t, int(i), v)
	})
}

func (m *sliceMerger[K, T, A]) put(t *sliceTable[A], i int, v *A) {
	if i >= len(t.accs) {
		n := len(m.keys)
		t.accs = slices.Grow(t.accs, n-len(t.accs))[:n]
		t.has = slices.Grow(t.has, n-len(t.has))[:n]
	}
	if t.has[i] {
		m.o.join(&t.accs[i], v)
		return
	}
	t.has[i] = true
	m.o.clone(&t.accs[i], v)
}

// join joins the accumulators of one table to those of another.
func (m *sliceMerger[K, T, A]) join(into, from *sliceTable[A]) {
	for i, has := range from.has {
		if has {
			m.put(into, i, &from.accs[i])
		}
	}
}

// fire fires the window that ends at end for all its keys.
func (m *sliceMerger[K, T, A]) fire(end int64) error {
	start, from, to := m.cut(end)
	suf := m.suffixBehind(start, from)
	mid := m.middleOf(from, to)
	pre := m.prefixOf(to, end)
	m.upTo = max(m.upTo, end)
	clear(m.done)
	fired := 0
	for i := range m.keys {
		key := &m.keys[i]
		if len(m.stale) > 0 {
			if _, ok := m.stale[key.k]; ok {
				if m.done == nil {
					m.done = map[K]struct{}{}
				}
				m.done[key.k] = struct{}{}
				if err := m.emitStale(end, key.g, key.k); err != nil {
					return err
				}
				continue
			}
		}
		found := false
		for _, t := range [...]*sliceTable[A]{suf, mid, pre} {
			switch v := t.get(i); {
			case v == nil:
			case found:
				m.o.join(&m.acc, v)
			default:
				m.o.clone(&m.acc, v)
				found = true
			}
		}
		if found {
			fired++
			if err := m.o.entry(key.g, key.k, &m.acc); err != nil {
				return err
			}
		}
	}
	for k, g := range m.stale {
		if _, ok := m.done[k]; !ok {
			if err := m.emitStale(end, g, k); err != nil {
				return err
			}
		}
	}
	m.keep(fired)
	return nil
}

func (t *sliceTable[A]) get(i int) *A {
	if t == nil || i >= len(t.has) || !t.has[i] {
		return nil
	}
	return &t.accs[i]
}

func (m *sliceMerger[K, T, A]) emitStale(end int64, g statestore.Group, k K) error {
	var acc A
	if !m.key(end, g, k, &acc) {
		return nil
	}
	return m.o.entry(g, k, &acc)
}

// suffixBehind is the suffix (start, from] of a block.
func (m *sliceMerger[K, T, A]) suffixBehind(start, from int64) *sliceTable[A] {
	if start == from {
		return nil
	}
	if m.suffixOf != from {
		for _, s := range m.suffixes {
			m.free(s.t)
		}
		m.suffixes, m.suffixOf = m.suffixes[:0], from
		m.ends = m.ends[:0]
		m.slices(start, from, func(end int64) { m.ends = append(m.ends, end) })
		var last *sliceTable[A]
		for i := len(m.ends) - 1; i >= 0; i-- {
			t := m.take()
			m.add(t, m.ends[i])
			if last != nil {
				m.join(t, last)
				if m.room == 0 {
					m.free(last)
					m.suffixes = m.suffixes[:0]
				}
			}
			m.suffixes = append(m.suffixes, suffix[A]{m.ends[i], t})
			last = t
		}
	}
	for n := len(m.suffixes); n > 0; n-- {
		if s := m.suffixes[n-1]; s.end > start {
			return s.t
		}
		m.free(m.suffixes[n-1].t)
		m.suffixes = m.suffixes[:n-1]
	}
	return nil
}

// middleOf is the blocks (from, to].
func (m *sliceMerger[K, T, A]) middleOf(from, to int64) *sliceTable[A] {
	if from == to {
		return nil
	}
	if m.middle != nil && m.middleFrom == from && m.middleTo == to {
		return m.middle
	}
	for len(m.blocks) > 0 && m.blocks[0].end <= from {
		m.free(m.blocks[0].t)
		m.blocks = m.blocks[1:]
	}
	t := m.middle
	if t == nil || m.middleFrom != from || m.middleTo > to {
		m.free(m.middle)
		t, m.middleTo = m.take(), from
	}
	for end := m.middleTo + m.block; end <= to; end += m.block {
		m.join(t, m.wholeBlock(end))
	}
	m.middle, m.middleFrom, m.middleTo = t, from, to
	return t
}

// wholeBlock is the block that ends at end.
func (m *sliceMerger[K, T, A]) wholeBlock(end int64) *sliceTable[A] {
	for _, b := range m.blocks {
		if b.end == end {
			return b.t
		}
	}
	var t *sliceTable[A]
	if m.prefix != nil && m.prefixFrom == end-m.block {
		t = m.prefixOf(end-m.block, end)
		m.prefix, m.prefixFrom = nil, unknown
	} else {
		t = m.take()
		m.slices(end-m.block, end, func(s int64) { m.add(t, s) })
	}
	m.blocks = append(m.blocks, suffix[A]{end, t})
	return t
}

// prefixOf is the slices (from, end].
func (m *sliceMerger[K, T, A]) prefixOf(from, end int64) *sliceTable[A] {
	if from == end {
		return nil
	}
	if m.prefix == nil || m.prefixFrom != from || m.prefixTo > end {
		m.free(m.prefix)
		m.prefix, m.prefixFrom, m.prefixTo = m.take(), from, from
	}
	m.slices(m.prefixTo, end, func(s int64) { m.add(m.prefix, s) })
	m.prefixTo = end
	return m.prefix
}

// keep lets go of what is kept if it is too much, or mostly of keys that have nothing any more.
func (m *sliceMerger[K, T, A]) keep(fired int) {
	// A key costs its number, and its place in each table.
	tables := int64(len(m.suffixes) + len(m.blocks) + 2 + len(m.spare))
	if n := int64(len(m.keys)); n*(tables*m.size+128) > m.room || len(m.keys) > 2*fired+1024 {
		m.forget()
	}
	if m.room == 0 {
		m.spare = nil
	}
}

// key puts the window of one key together, in the same order as fire.
func (m *sliceMerger[K, T, A]) key(end int64, g statestore.Group, k K, acc *A) (found bool) {
	o := m.o
	start, from, to := m.cut(end)
	into := func(dst *A, have *bool, v *A) {
		if *have {
			o.join(dst, v)
		} else {
			o.clone(dst, v)
			*have = true
		}
	}
	if start < from {
		m.ends = m.ends[:0]
		m.slices(start, from, func(s int64) { m.ends = append(m.ends, s) })
		for i := len(m.ends) - 1; i >= 0; i-- {
			if v := o.store.Get(m.ends[i], g, k); v != nil {
				var one A
				o.clone(&one, v)
				if found {
					o.join(&one, acc)
				}
				*acc, found = one, true
			}
		}
	}
	if from < to {
		var mid A
		haveMid := false
		for b := from + m.block; b <= to; b += m.block {
			var one A
			have := false
			m.slices(b-m.block, b, func(s int64) {
				if v := o.store.Get(s, g, k); v != nil {
					into(&one, &have, v)
				}
			})
			if have {
				into(&mid, &haveMid, &one)
			}
		}
		if haveMid {
			into(acc, &found, &mid)
		}
	}
	var pre A
	havePre := false
	m.slices(to, end, func(s int64) {
		if v := o.store.Get(s, g, k); v != nil {
			into(&pre, &havePre, v)
		}
	})
	if havePre {
		into(acc, &found, &pre)
	}
	return found
}
