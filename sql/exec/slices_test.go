package exec

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/rel"
)

// TestSlicing compares the arithmetic of slices with that of windows.
func TestSlicing(t *testing.T) {
	for _, w := range []rel.WindowSpec{
		{Kind: rel.Hop, Size: 10, Slide: 5}, {Kind: rel.Hop, Size: 10, Slide: 4}, {Kind: rel.Hop, Size: 12, Slide: 9, Offset: 2},
		{Kind: rel.Hop, Size: 7, Slide: 3, Offset: -4}, {Kind: rel.Cumulate, Size: 12, Slide: 3}, {Kind: rel.Cumulate, Size: 12, Slide: 4, Offset: 5},
	} {
		s, ok := newSlicing(w)
		if !ok {
			t.Fatalf("%v: no slices", w)
		}
		win := windowing{spec: w}
		for at := int64(-40); at < 40; at++ {
			var ends []int64
			win.windows(at, func(start, end int64) {
				ends = append(ends, end)
				if got := s.start(end); got != start {
					t.Errorf("%v: window that ends at %d starts at %d, want %d", w, end, got, start)
				}
			})
			slices.Sort(ends)
			slice := s.slice(at)
			var got []int64
			for end := s.first(slice); end <= s.last(slice); end = s.first(end + 1) {
				got = append(got, end)
			}
			if !slices.Equal(got, ends) || at >= slice || at < slice-s.unit {
				t.Errorf("%v: time %d is in slice %d with windows %v, want %v", w, at, slice, got, ends)
			}
		}
	}
}

// TestSlicesAsWindows runs random rows through windows that are put together from slices, and through windows that have
// each an accumulator: the same rows must come.
func TestSlicesAsWindows(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 5))
		in := table("k", row.Int(), "v", row.BigInt(), "d", row.Double(), "ts", row.Timestamp(3).WithMark(row.Rowtime))
		l := rel.Layout(in)
		spec := rel.WindowSpec{Kind: rel.Hop, Time: 3, Slide: 1 + rng.Int64N(6), Offset: rng.Int64N(9) - 4}
		spec.Size = spec.Slide * (2 + rng.Int64N(20))
		switch rng.IntN(3) {
		case 0:
			spec.Kind = rel.Cumulate
		case 1:
			spec.Size += rng.Int64N(spec.Slide) // HOP in GROUP BY allows it
		}
		calls := []rel.AggCall{call(t, in, "COUNT", -1), call(t, in, "SUM", 1), call(t, in, "MIN", 1), call(t, in, "AVG", 2), call(t, in, "MAX", 2)}
		stamp := row.Timestamp(3).NotNull()
		retracts := rng.IntN(3) == 0
		if retracts {
			calls = []rel.AggCall{calls[0], calls[1], calls[3]}
		}
		n := &rel.PWindowAgg{Spec: spec, Groups: []int{0}, Aggs: calls, Retracts: retracts, Props: []rel.WindowProp{rel.WindowStart, rel.WindowEnd},
			Emit: rel.EmitOptions{EarlyDelay: -1, LateDelay: -1, AllowLateness: -1}, Phys: physOf([]int{0}, calls, []*row.Type{stamp, stamp}, in)}
		a, b := newHarness(t, n), newHarness(t, n)
		a.keep, b.keep = true, true
		if _, ok := a.op.(*slicedAgg); !ok {
			t.Fatalf("%v is not put together from slices", spec)
		}
		b.op = b.op.(*slicedAgg).windowAgg
		r := l.New()
		at := int64(0)
		var added [][3]int64
		for range 300 {
			at += rng.Int64N(4)
			k, v, ts := rng.Int64N(5), rng.Int64N(20), at-rng.Int64N(10)
			kind := row.Insert
			if retracts && rng.IntN(4) == 0 && len(added) > 0 {
				x := added[rng.IntN(len(added))]
				kind, k, v, ts = row.Delete, x[0], x[1], x[2]
			} else {
				added = append(added, [3]int64{k, v, ts})
			}
			l.Assign(r, l.RowOf(int32(k), v, float64(v)/4, row.Stamp{Ms: ts}))
			r.Kind, r.Time = kind, ts
			a.process(0, r)
			b.process(0, r)
			if rng.IntN(3) == 0 {
				a.watermark(at - 3)
				b.watermark(at - 3)
			}
			if rng.IntN(20) == 0 {
				a.restart()
			}
		}
		a.watermark(math.MaxInt64)
		b.watermark(math.MaxInt64)
		if !retracts && a.late != b.late { // of a row and its withdrawal both may be late
			t.Errorf("seed %d, %v: %d late rows, want %d", seed, spec, a.late, b.late)
		}
		if len(b.rows) < 10 {
			t.Fatalf("seed %d: only %d rows came", seed, len(b.rows))
		}
		for i := range max(len(a.rows), len(b.rows)) {
			x, y := "nothing", "nothing"
			if i < len(a.rows) {
				x = a.rows[i]
			}
			if i < len(b.rows) {
				y = b.rows[i]
			}
			if x != y {
				t.Fatalf("seed %d, %v: row %d is %s, want %s", seed, spec, i, x, y)
			}
		}
	}
}
