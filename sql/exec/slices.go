package exec

import (
	"math"
	"slices"
	"strings"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
	"github.com/millrace-stream/millrace/statestore"
)

// slicing is how overlapping windows consist of slices: pure arithmetic, in wall-clock ms as windowing.
type slicing struct {
	kind                      rel.WindowKind
	size, slide, offset, unit int64
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// newSlicing says how the windows lie in slices; false = they do not overlap.
func newSlicing(w rel.WindowSpec) (slicing, bool) {
	s := slicing{kind: w.Kind, size: w.Size, slide: w.Slide, offset: w.Offset, unit: gcd(w.Size, w.Slide)}
	return s, (w.Kind == rel.Hop || w.Kind == rel.Cumulate) && w.Slide < w.Size
}

// slice is the end of the slice of a time.
func (s *slicing) slice(at int64) int64 { return at - row.FloorMod(at-s.offset, s.unit) + s.unit }

// first is the end of the first window that ends at or behind end.
func (s *slicing) first(end int64) int64 {
	step, phase := s.slide, s.offset
	if s.kind == rel.Hop {
		phase += s.size
	}
	return end + row.FloorMod(phase-end, step)
}

// last is the end of the last window that has a slice.
func (s *slicing) last(slice int64) int64 {
	begin := slice - s.unit
	if s.kind == rel.Cumulate {
		return begin - row.FloorMod(begin-s.offset, s.size) + s.size
	}
	return begin - row.FloorMod(begin-s.offset, s.slide) + s.size
}

// start is the start of a window.
func (s *slicing) start(end int64) int64 {
	if s.kind == rel.Cumulate {
		return end - 1 - row.FloorMod(end-1-s.offset, s.size)
	}
	return end - s.size
}

// slicedAgg is PWindowAgg over windows that overlap: a row is added to its slice alone, and windows are put together from their
// slices when they fire. It is for aggregates whose accumulators merge, by event time. A window has fired if the watermark,
// which is kept with the epoch, is behind its end.
type slicedAgg struct {
	*windowAgg
	slicing
	merger sliceMerger
	// Of the slice of the last row: its begin and end, and the end of its last window and when that is over.
	lo, hi, over int64
}

// sliced makes the operator, if windows and aggregates allow it.
func sliced(o *windowAgg) (*slicedAgg, bool) {
	s, ok := newSlicing(o.n.Spec)
	if !ok || o.n.Attached || o.n.Spec.Proc || o.maps || o.n.Emit.Updates() || len(o.sets) > 0 {
		return nil, false
	}
	for i := range o.agg.calls {
		if a := &o.agg.calls[i]; a.acc.Merge == nil || a.store != fn.NoStore {
			return nil, false
		}
	}
	return &slicedAgg{windowAgg: o, slicing: s, lo: math.MaxInt64, hi: math.MinInt64}, true
}

// Start is of Starter.
func (o *slicedAgg) Start() error {
	if end, ok := o.main.Next(); ok {
		o.due(o.win.due(o.open(end)))
	}
	return nil
}

// open is the end of the first window of a slice that has not fired.
func (o *slicedAgg) open(slice int64) int64 {
	end := o.first(slice)
	now := o.now()
	if o.win.due(end) > now || now == math.MaxInt64 {
		return end
	}
	end = max(end, o.first(o.win.local(now)))
	for o.win.due(end) <= now {
		end = o.first(end + 1)
	}
	return end
}

// Process is of Operator.
func (o *slicedAgg) Process(input int, r *row.Row) error {
	at := o.time(r)
	if at < o.lo || at >= o.hi {
		o.hi = o.slicing.slice(at)
		o.lo = o.hi - o.unit
		o.over = o.win.due(o.last(o.hi))
	}
	if o.over <= o.now() || o.hi <= o.main.Horizon() {
		o.tooLate(input, r)
		return nil
	}
	o.key = o.keys.Append(o.key[:0], r)
	g := o.c.Group(o.key)
	s, existed := o.main.Update(o.hi, g, view(o.key))
	if !existed {
		o.agg.initNear(s)
		o.due(o.win.due(o.open(o.hi)))
	}
	if o.hi <= o.merger.upTo {
		o.merger.spoil(o.hi)
	}
	o.account(g, "", s, r, o.partials)
	return nil
}

// OnWatermark is of Timed.
func (o *slicedAgg) OnWatermark(before, watermark int64) error {
	slice, ok := o.main.Next()
	if !ok {
		return nil
	}
	end := o.first(slice)
	for ok && o.win.due(end) <= watermark {
		if o.win.due(end) > before {
			if err := o.fireWindow(end); err != nil {
				return err
			}
		}
		// The next window that has a slice.
		next := o.first(end + 1)
		o.main.Drop(max(o.start(next), o.main.Horizon()))
		if slice, ok = o.main.After(o.start(next)); ok {
			end = max(next, o.first(slice))
		}
	}
	return o.Start()
}

func (o *slicedAgg) fireWindow(end int64) error {
	var failed error
	o.merger.merge(o, end, func(g statestore.Group, key string, s fn.State) bool {
		failed = o.c.Atomic(g, o.win.instant(end)-1, bytesOf(key), func() error {
			if int64(s.W[0]) <= 0 {
				return nil
			}
			o.fill(end, key, s)
			o.result.Kind = row.Insert
			return o.c.Emit(o.result)
		})
		return failed == nil
	})
	return failed
}

// sliceMerger puts windows together. A window is slices, then whole blocks of slices, then slices; a block is some sqrt(n)
// slices, aligned in time. Blocks are kept in memory and serve the windows to come, as does the whole of a growing window. The
// parts are put together in an order that follows from the window alone, so that sums of floats are the same after a restart.
type sliceMerger struct {
	blocks []sliceTable // by end
	grown  sliceTable   // of CUMULATE: the slices since the start of the last window
	upTo   int64        // no kept table has a slice behind it
	result sliceTable
	spare  []sliceTable

	// Keys have numbers, by which tables are arrays: only reading a slice looks for a key.
	numbers map[string]int32 // group and key
	keys    []sliceKey
	order   []int32 // numbers in the order of the keys
	sorted  bool
}

type sliceKey struct {
	g   statestore.Group
	key string
}

// sliceTable is the accumulators of the slices in (start, end], by number of the key.
type sliceTable struct {
	start, end int64
	states     []fn.State
	has        []bool
}

// spoil forgets what has a slice that changes.
func (m *sliceMerger) spoil(slice int64) {
	if m.grown.start < slice && slice <= m.grown.end {
		m.grown.reset(0, 0)
	}
	m.blocks = slices.DeleteFunc(m.blocks, func(t sliceTable) bool {
		if t.start < slice && slice <= t.end {
			m.spare = append(m.spare, t)
			return true
		}
		return false
	})
}

func (t *sliceTable) reset(start, end int64) {
	t.start, t.end = start, end
	clear(t.has)
	t.has = t.has[:0]
}

// put merges a state into that of a key.
func (t *sliceTable) put(a *aggregates, i int, s *fn.State) {
	for len(t.has) <= i {
		t.has = append(t.has, false)
	}
	for len(t.states) <= i {
		t.states = append(t.states, fn.State{})
	}
	to := &t.states[i]
	if !t.has[i] {
		t.has[i] = true
		to.W, to.S = append(to.W[:0], s.W...), append(to.S[:0], s.S...)
		return
	}
	a.merge(*to, *s)
}

// slice merges a slice into a table.
func (m *sliceMerger) slice(o *slicedAgg, t *sliceTable, end int64) {
	o.main.EachKey(end, func(key []byte, s *fn.State) {
		i, ok := m.numbers[string(key)]
		if !ok {
			i = int32(len(m.keys)) //nolint:gosec // there are fewer keys in memory
			m.numbers[string(key)] = i
			g, k := o.main.Key(key)
			m.keys = append(m.keys, sliceKey{g, k})
			m.sorted = false
		}
		t.put(o.agg, int(i), s)
	})
}

// slicesIn merges the slices in (from, to] into a table.
func (m *sliceMerger) slicesIn(o *slicedAgg, t *sliceTable, from, to int64) {
	for end, ok := o.main.After(from); ok && end <= to; end, ok = o.main.After(end) {
		m.slice(o, t, end)
	}
}

func (m *sliceMerger) table(t, from *sliceTable, a *aggregates) {
	for i, has := range from.has {
		if has {
			t.put(a, i, &from.states[i])
		}
	}
}

// merge calls f for the keys of a window, in order.
func (m *sliceMerger) merge(o *slicedAgg, end int64, f func(g statestore.Group, key string, s fn.State) bool) {
	start := o.start(end)
	if m.numbers == nil {
		m.numbers = map[string]int32{}
	}
	t := &m.result
	if o.kind == rel.Cumulate {
		if t = &m.grown; t.start != start || t.end < start || t.end > end {
			t.reset(start, start)
		}
		m.slicesIn(o, t, t.end, end)
		t.end = end
	} else {
		t.reset(start, end)
		block := o.block()
		m.blocks = slices.DeleteFunc(m.blocks, func(b sliceTable) bool {
			if b.start < start {
				m.spare = append(m.spare, b)
				return true
			}
			return false
		})
		at := start
		for at < end {
			to := at + row.FloorMod(o.offset-at, block)
			if to == at && at+block <= end {
				m.table(t, m.blockAt(o, at, at+block), o.agg)
				at += block
				continue
			}
			if to == at {
				to += block
			}
			to = min(to, end)
			m.slicesIn(o, t, at, to)
			at = to
		}
	}
	m.upTo = max(m.upTo, end)
	if !m.sorted {
		m.order = m.order[:0]
		for i := range m.keys {
			m.order = append(m.order, int32(i)) //nolint:gosec // as above
		}
		slices.SortFunc(m.order, func(a, b int32) int { return strings.Compare(m.keys[a].key, m.keys[b].key) })
		m.sorted = true
	}
	found := 0
	for _, i := range m.order {
		if int(i) < len(t.has) && t.has[i] {
			found++
			if !f(m.keys[i].g, m.keys[i].key, t.states[i]) {
				break
			}
		}
	}
	m.trim(o, found)
}

// block is the length of a block, ms.
func (s *slicing) block() int64 {
	per := int64(1)
	for per*per < s.size/s.unit {
		per++
	}
	return per * s.unit
}

// blockAt is the table of a block.
func (m *sliceMerger) blockAt(o *slicedAgg, start, end int64) *sliceTable {
	i, ok := slices.BinarySearchFunc(m.blocks, end, func(b sliceTable, end int64) int {
		switch {
		case b.end < end:
			return -1
		case b.end > end:
			return 1
		}
		return 0
	})
	if !ok {
		var t sliceTable
		if n := len(m.spare); n > 0 {
			t, m.spare = m.spare[n-1], m.spare[:n-1]
		}
		t.reset(start, end)
		m.slicesIn(o, &t, start, end)
		m.blocks = slices.Insert(m.blocks, i, t)
	}
	return &m.blocks[i]
}

// trim forgets what is kept where most of its keys are gone, or where it takes too much memory.
func (m *sliceMerger) trim(o *slicedAgg, found int) {
	const least = 1024
	kept := int64(0)
	for _, b := range m.blocks {
		kept += int64(len(b.has))
	}
	room := o.main.CacheBytes() / 4
	if len(m.keys) <= least+2*found && (kept+int64(len(m.grown.has)))*int64(64+8*o.agg.words+24*o.agg.views) <= room {
		return
	}
	if kept > 0 || len(m.keys) > least+2*found {
		*m = sliceMerger{numbers: map[string]int32{}}
	}
}
