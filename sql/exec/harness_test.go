package exec

import (
	"fmt"
	"maps"
	"math"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

// harness runs an operator on a store in memory.
type harness struct {
	tb      testing.TB
	node    rel.Physical
	store   *memstore.Store
	state   *statestore.State
	env     fn.Env
	op      Operator
	out     *row.Layout
	wm      int64
	dueAt   int64
	dueProc int64
	epoch   uint64
	late    int
	emitted int
	keep    bool // rows as text
	rows    []string
	folded  map[string]int
	then    func(r *row.Row) // what takes the rows
}

// left is what is left of the rows that came.
func (h *harness) left() map[string]int {
	maps.DeleteFunc(h.folded, func(_ string, n int) bool { return n == 0 })
	return h.folded
}

func newHarness(tb testing.TB, n rel.Physical) *harness {
	tb.Helper()
	h := &harness{tb: tb, node: n, out: rel.Layout(n), wm: math.MinInt64, store: memstore.New()}
	h.env = fn.Env{Zone: row.UTC(), Watermark: math.MinInt64, Rand: func() uint64 { return 4 }}
	h.open()
	return h
}

func (h *harness) open() {
	h.tb.Helper()
	h.dueAt, h.dueProc = math.MaxInt64, math.MaxInt64
	horizons := map[statestore.ID]int64{}
	if h.state != nil {
		horizons = h.state.Horizons()
	}
	h.state = statestore.NewState(h.store, statestore.StateOptions{})
	for id, end := range horizons {
		h.state.SetHorizon(id, end)
	}
	var err error
	if h.op, err = New(h.node, (*harnessContext)(h)); err != nil {
		h.tb.Fatal(err)
	}
	if s, ok := h.op.(Starter); ok {
		if err := s.Start(); err != nil {
			h.tb.Fatal(err)
		}
	}
}

// restart commits and begins anew from the store.
func (h *harness) restart() {
	h.tb.Helper()
	h.commit()
	h.write()
	h.open()
}

// write writes what is committed to the store.
func (h *harness) write() {
	h.tb.Helper()
	if err := h.state.WriteBehind(statestore.Meta{Epoch: h.epoch}); err != nil {
		h.tb.Fatal(err)
	}
}

func (h *harness) commit() {
	if f, ok := h.op.(Flusher); ok {
		h.step(f.BeforeCommit)
	}
	h.epoch++
	h.state.Seal(h.epoch)
	h.state.Committed()
}

func (h *harness) step(f func() error) {
	h.env.Arena.Reset()
	h.state.Begin()
	if err := f(); err != nil {
		h.tb.Fatal(err)
	}
	h.state.End()
}

func (h *harness) process(input int, r *row.Row) {
	h.env.Arena.Reset()
	h.env.Watermark = h.wm
	h.state.Begin()
	if err := h.op.Process(input, r); err != nil {
		h.tb.Fatal(err)
	}
	h.state.End()
}

// watermark moves event time on.
func (h *harness) watermark(to int64) {
	before := h.wm
	if to <= before {
		return
	}
	h.wm, h.env.Watermark = to, to
	if h.dueAt <= to {
		h.dueAt = math.MaxInt64
		if err := h.op.(Timed).OnWatermark(before, to); err != nil {
			h.tb.Fatal(err)
		}
	}
}

// harnessContext is the Context of a harness.
type harnessContext harness

func (h *harnessContext) Store(s StoreSpec) (statestore.Spec, bool) {
	name := "op/" + s.Name
	return statestore.Spec{Name: name, ID: statestore.StoreID(name), Kind: s.Kind, Expiring: s.Life > 0 || s.Kind.Windowed(), Life: s.Life, Windows: s.Windows}, true
}
func (h *harnessContext) State() *statestore.State               { return h.state }
func (h *harnessContext) Sweep(time.Duration, *statestore.Sweep) {}
func (h *harnessContext) Env() *fn.Env                           { return &h.env }
func (h *harnessContext) Group(key []byte) statestore.Group      { return processor.KeyGroup(key) }
func (h *harnessContext) Watermark() int64                       { return h.wm }
func (h *harnessContext) Due(at int64)                           { h.dueAt = min(h.dueAt, at) }
func (h *harnessContext) DueProcessing(at int64)                 { h.dueProc = min(h.dueProc, at) }
func (h *harnessContext) Late(int, *row.Row)                     { h.late++ }
func (h *harnessContext) Emit(r *row.Row) error {
	h.emitted++
	if h.then != nil {
		h.then(r)
	}
	if h.keep {
		by := -1
		if r.Kind.Adds() {
			by = 1
		}
		if h.folded == nil {
			h.folded = map[string]int{}
		}
		h.folded[string(h.out.AppendResult(nil, r))] += by
		h.rows = append(h.rows, fmt.Sprintf("%s %s", r.Kind, h.out.AppendResult(nil, r)))
	}
	return nil
}

func (h *harnessContext) Atomic(_ statestore.Group, _ int64, _ []byte, f func() error) error {
	h.state.Begin()
	err := f()
	h.state.End()
	return err
}

// valueState is a node that gives rows of these columns: names and types by turns.
func table(columns ...any) rel.Physical {
	var names []string
	var types []*row.Type
	for i := 0; i < len(columns); i += 2 {
		names, types = append(names, columns[i].(string)), append(types, columns[i+1].(*row.Type))
	}
	n := &rel.PValues{Phys: rel.Phys{Base: rel.MakeBase(names, types, rel.Place{})}}
	n.Kinds = rel.Inserts
	return n
}

// call is an aggregate over a column of a node; column -1 = COUNT(*).
func call(tb testing.TB, in rel.Physical, name string, column int) rel.AggCall {
	tb.Helper()
	f, ok := fn.Lookup(name)
	if !ok {
		tb.Fatalf("there is no function %s", name)
	}
	c := rel.AggCall{Func: f, Name: name}
	var args []fn.Arg
	if column >= 0 {
		s := in.Schema()
		c.Args = []rel.Expr{rel.NewColumn(s.Types[column], column, 0, s.Names[column], rel.Place{})}
		args = []fn.Arg{{Type: s.Types[column]}}
	}
	r, err := f.Resolve(args)
	if err != nil {
		tb.Fatal(err)
	}
	c.Type = r.Result
	return c
}

// physOf makes the Phys of an operator over inputs: groups of the first, then calls, then more columns.
func physOf(groups []int, calls []rel.AggCall, more []*row.Type, in ...rel.Physical) rel.Phys {
	var names []string
	var types []*row.Type
	s := in[0].Schema()
	for _, g := range groups {
		names, types = append(names, s.Names[g]), append(types, s.Types[g])
	}
	for _, c := range calls {
		names, types = append(names, c.Name), append(types, c.Type)
	}
	for i, t := range more {
		names, types = append(names, fmt.Sprintf("c%d", i)), append(types, t)
	}
	return rel.Phys{Base: rel.MakeBase(names, types, rel.Place{}), In: in}
}
