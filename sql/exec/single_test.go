package exec

import (
	"errors"
	"slices"
	"testing"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
)

// scalarJoin is the join of a scalar subquery: k and v on the left, k and w on the right, by k, and w < v if cond is set.
func scalarJoin(t *testing.T, cond bool) (h *harness, left, right *row.Layout) {
	l := table("k", row.Int(), "v", row.Int())
	r := table("k", row.Int(), "w", row.Int())
	names, types := append(slices.Clone(l.Schema().Names), r.Schema().Names...), append(slices.Clone(l.Schema().Types), r.Schema().Types...)
	n := &rel.PJoin{Kind: rel.Single, Keys: [2][]int{{0}, {0}}, Phys: rel.Phys{Base: rel.MakeBase(names, types, rel.Place{}), In: []rel.Physical{l, r}}}
	if cond {
		less, _ := fn.Lookup("<")
		column := func(i int) rel.Expr { return rel.NewColumn(types[i], i, 0, names[i], rel.Place{}) }
		n.Cond = rel.NewCall(row.Boolean(), less, []rel.Expr{column(3), column(1)}, rel.Place{})
	}
	h = newHarness(t, n)
	h.keep = true
	return h, rel.Layout(l), rel.Layout(r)
}

// step hands in a row and compares what comes out.
func (h *harness) gives(input int, r *row.Row, kind row.RowKind, want ...string) {
	h.tb.Helper()
	h.rows = nil
	r.Kind = kind
	h.process(input, r)
	if !slices.Equal(h.rows, want) {
		h.tb.Errorf("%s of input %d gave %q, want %q", kind, input, h.rows, want)
	}
}

// ends runs f, and says whether it ended with the failure of several rows.
func (h *harness) ends(f func()) (failed bool) {
	defer func() {
		if e := recover(); e != nil {
			err, ok := e.(error)
			if x := (*fn.Failure)(nil); !ok || !errors.As(err, &x) {
				panic(e)
			}
			failed = true
		}
	}()
	f()
	return false
}

// later moves the clock.
func (h *harness) later(ms int64) {
	h.env.Now += ms
	if h.dueProc <= h.env.Now {
		h.dueProc = 1 << 62
		if err := h.op.(ProcTimed).OnTime(h.env.Now); err != nil {
			h.tb.Fatal(err)
		}
	}
}

// TestSingleForAMoment has two rows for a value, of which one goes again: one of them is seen at each time, and that is no
// error, also when the clock goes on and at the end.
func TestSingleForAMoment(t *testing.T) {
	h, l, r := scalarJoin(t, false)
	h.gives(0, l.RowOf(1, 5), row.Insert, `+I [1, 5, null, null]`)
	h.gives(1, r.RowOf(1, 7), row.Insert, `-D [1, 5, null, null]`, `+I [1, 5, 1, 7]`)
	h.gives(1, r.RowOf(1, 8), row.UpdateAfter) // its -U is still on the way
	h.restart()
	h.gives(0, l.RowOf(1, 6), row.Insert, `+I [1, 6, 1, 7]`)
	h.gives(1, r.RowOf(1, 7), row.UpdateBefore,
		`-D [1, 5, 1, 7]`, `+I [1, 5, 1, 8]`, `-D [1, 6, 1, 7]`, `+I [1, 6, 1, 8]`)
	h.gives(1, r.RowOf(1, 3), row.Insert,
		`-D [1, 5, 1, 8]`, `+I [1, 5, 1, 3]`, `-D [1, 6, 1, 8]`, `+I [1, 6, 1, 3]`) // the first in order counts
	h.gives(0, l.RowOf(1, 6), row.Delete, `-D [1, 6, 1, 3]`)
	h.gives(1, r.RowOf(1, 3), row.Delete, `-D [1, 5, 1, 3]`, `+I [1, 5, 1, 8]`)
	h.gives(1, r.RowOf(1, 8), row.Insert) // twice the same
	h.gives(1, r.RowOf(1, 8), row.Delete)
	h.gives(1, r.RowOf(1, 9), row.Delete) // was never there
	h.gives(1, r.RowOf(nil, 9), row.Insert)
	h.gives(0, l.RowOf(nil, 9), row.Insert, `+I [null, 9, null, null]`)
	h.later(10 * singleGrace.Milliseconds())
	if h.ends(func() { h.watermark(1<<63 - 1) }) {
		t.Error("an error at the end, though one row is left")
	}
	h.gives(1, r.RowOf(1, 8), row.Delete, `-D [1, 5, 1, 8]`, `+I [1, 5, null, null]`)
}

// TestSingleTooMany keeps two rows for a value: an error after singleGrace, which begins anew with a restart, or at the end.
func TestSingleTooMany(t *testing.T) {
	for name, c := range map[string]struct {
		second []row.Value
		left   bool
		cond   bool
		fails  bool
	}{
		"two rows":                  {[]row.Value{1, 8}, true, false, true},
		"twice the same row":        {[]row.Value{1, 7}, true, false, true},
		"two rows nobody asks for":  {[]row.Value{1, 8}, false, false, true}, // as in Flink
		"other keys":                {[]row.Value{2, 7}, true, false, false},
		"one that the row matches":  {[]row.Value{1, 70}, true, true, false},
		"two that the row matches":  {[]row.Value{1, 8}, true, true, true},
		"twice one that it matches": {[]row.Value{1, 7}, true, true, true},
		"two that no row matches":   {[]row.Value{1, 8}, false, true, false},
	} {
		for _, leftFirst := range []bool{true, false} {
			begin := func() *harness {
				h, l, r := scalarJoin(t, c.cond)
				if c.left && leftFirst {
					h.process(0, l.RowOf(1, 10))
				}
				h.process(1, r.RowOf(1, 7))
				h.process(1, r.RowOf(c.second...))
				if c.left && !leftFirst {
					h.process(0, l.RowOf(1, 10))
				}
				return h
			}
			grace := singleGrace.Milliseconds()
			h := begin()
			h.later(grace - 1)
			h.restart()
			if h.ends(func() { h.later(grace - 1) }) {
				t.Errorf("%s: an error %d ms after a restart", name, grace-1)
			}
			if failed := h.ends(func() { h.later(2) }); failed != c.fails {
				t.Errorf("%s: an error after a minute: %t, want %t", name, failed, c.fails)
			}
			h = begin()
			if failed := h.ends(func() { h.watermark(1<<63 - 1) }); failed != c.fails {
				t.Errorf("%s: an error at the end: %t, want %t", name, failed, c.fails)
			}
		}
	}
}

// TestSingleAgain has two rows for a moment twice: the time counts anew, and the error comes if they stay.
func TestSingleAgain(t *testing.T) {
	h, l, r := scalarJoin(t, false)
	second := func(kind row.RowKind) {
		x := r.RowOf(1, 8)
		x.Kind = kind
		h.process(1, x)
	}
	grace := singleGrace.Milliseconds()
	h.process(0, l.RowOf(1, 5))
	h.process(1, r.RowOf(1, 7))
	second(row.Insert)
	h.later(grace - 1)
	second(row.Delete)
	second(row.Insert)
	if h.ends(func() { h.later(grace - 1) }) {
		t.Error("an error though the two rows were not there all the time")
	}
	second(row.Delete)
	h.later(2 * grace)
	second(row.Insert)
	if !h.ends(func() { h.later(grace + 1) }) {
		t.Error("no error though the second row stays")
	}
}
