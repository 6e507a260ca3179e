package exec

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/rel"
)

// phases are the two phases of an aggregate of rows of k INT, v BIGINT, ts, and that aggregate in one.
func phases(tb testing.TB, window *rel.WindowSpec) (local, global, one rel.Physical, l *row.Layout) {
	in := table("k", row.Int(), "v", row.BigInt(), "ts", row.Timestamp(3).WithMark(row.Rowtime))
	calls := []rel.AggCall{call(tb, in, "COUNT", -1), call(tb, in, "SUM", 1), call(tb, in, "MIN", 1), call(tb, in, "AVG", 1)}
	more := []*row.Type{}
	if window != nil {
		more = append(more, row.BigInt().NotNull())
	}
	local = &rel.PLocalAgg{Groups: []int{0}, Aggs: calls, Window: window, Phys: physOf([]int{0}, nil, append(more, row.Bytes().NotNull()), in)}
	if window == nil {
		p := physOf([]int{0}, calls, nil, in)
		p.Form = rel.Both
		one = &rel.PGroupAgg{Groups: []int{0}, Aggs: calls, Phys: p}
		two := &rel.PGroupAgg{Groups: []int{0}, Aggs: calls, Partial: in.Schema(), Phys: p}
		two.In = []rel.Physical{local}
		return local, two, one, rel.Layout(in)
	}
	stamp := row.Timestamp(3).NotNull()
	w := rel.PWindowAgg{Spec: *window, Groups: []int{0}, Aggs: calls, Props: []rel.WindowProp{rel.WindowStart},
		Emit: rel.EmitOptions{EarlyDelay: -1, LateDelay: -1, AllowLateness: -1}, Phys: physOf([]int{0}, calls, []*row.Type{stamp}, in)}
	two := w
	two.In, two.Partial = []rel.Physical{local}, in.Schema()
	return local, &two, &w, rel.Layout(in)
}

// TestTwoPhases runs random rows through both forms of an aggregate: what is left, or comes of windows, is the same. Some steps
// fail and are undone, and some go by a local aggregate that passes rows on.
func TestTwoPhases(t *testing.T) {
	for name, window := range map[string]*rel.WindowSpec{"group": nil, "tumble": {Kind: rel.Tumble, Time: 2, Size: 10}, "hop": {Kind: rel.Hop, Time: 2, Size: 12, Slide: 4}} {
		for seed := range uint64(20) {
			rng := rand.New(rand.NewPCG(seed, 9))
			local, global, one, l := phases(t, window)
			a, b, c := newHarness(t, local), newHarness(t, global), newHarness(t, one)
			b.keep, c.keep = true, true
			pass := a.op.(*localAgg)
			a.then = func(r *row.Row) { b.process(0, r) }
			r := l.New()
			at := int64(0)
			for i := range 400 {
				at += rng.Int64N(3)
				l.Assign(r, l.RowOf(int32(rng.IntN(4)), rng.Int64N(50), row.Stamp{Ms: at - rng.Int64N(5)}))
				r.Kind, r.Time = row.Insert, at
				if rng.IntN(40) == 0 {
					pass.pause = 5
				}
				pass.BeginStep()
				if rng.IntN(4) == 0 && pass.pause == 0 {
					a.process(0, r)
					pass.UndoStep()
					continue
				}
				a.process(0, r)
				c.process(0, r)
				if i%37 == 0 { // flushed before the watermark of the epoch
					a.commit()
					b.commit()
					for _, h := range []*harness{b, c} {
						h.watermark(at - 5)
					}
				}
			}
			a.commit()
			for _, h := range []*harness{b, c} {
				h.watermark(1 << 60)
			}
			got, want := b.left(), c.left()
			if !maps.Equal(got, want) || len(want) < 4 {
				t.Fatalf("%s, seed %d: two phases give\n%v\none gives\n%v", name, seed, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
			}
		}
	}
}

// TestLocalAggPasses says when a local aggregate passes rows on: after groups of one row each.
func TestLocalAggPasses(t *testing.T) {
	local, _, _, l := phases(t, nil)
	for _, c := range []struct {
		keys, held, passed int
	}{{100, 100, 0}, {1 << 30, localLook, 2000 - 1}} {
		h := newHarness(t, local)
		r := l.New()
		for i := range localLook + 2000 {
			l.Assign(r, l.RowOf(int32(i%c.keys), int64(1), row.Stamp{}))
			h.process(0, r)
		}
		if o := h.op.(*localAgg); h.emitted < c.passed || h.emitted > c.passed+1 || o.n0 > c.held+1 {
			t.Errorf("%d keys: it has passed on %d rows and holds %d groups, want %d and %d", c.keys, h.emitted, o.n0, c.passed, c.held)
		}
	}
}
