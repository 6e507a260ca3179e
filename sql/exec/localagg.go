package exec

import (
	"fmt"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
)

const (
	// localGroups is how many groups a local aggregate holds at most; rows of others it passes on as they are.
	localGroups = 1 << 16
	// After so many rows a local aggregate looks at what it has saved: where more than localPoor groups came of them, it passes
	// the next localPause rows on as they are.
	localLook  = 10_000
	localPoor  = 8_000
	localPause = 100_000
)

// localAgg is PLocalAgg: it aggregates the rows of an epoch before they are sent to the subtasks of their keys. What it holds
// is memory alone: it is put out before each commit.
type localAgg struct {
	c      Context
	n      *rel.PLocalAgg
	groups *groups
	keys   *row.KeyEncoder
	in     *row.Layout
	out    *row.Layout
	slice  func(at int64) int64 // the slice of a time, of windows
	win    windowing

	found map[string]int32 // key, with windows the slice in front
	held  []localGroup
	n0    int // so many of held are used
	undo  []localUndo
	saved []fn.State // for undo, used again
	key   []byte
	row   *row.Row
	buf   []byte
	codec accumulators

	rows, born, pause int // since the last look
}

// localGroup is a group that is held.
type localGroup struct {
	key   string
	row   packed // its columns
	state fn.State
	time  int64 // the greatest event time of its rows
	slice int64
}

// localUndo is what a group was before the running step; at is its place.
type localUndo struct {
	at    int
	born  bool
	time  int64
	state fn.State
}

func newLocalAgg(n *rel.PLocalAgg, c Context) (Operator, error) {
	in := rel.Layout(n.In[0])
	o := &localAgg{c: c, n: n, in: in, out: rel.Layout(n), keys: row.NewKeyEncoder(in, n.Groups...), found: map[string]int32{}}
	// Accumulators alone: their results are never asked for.
	types := make([]*row.Type, len(n.Aggs))
	for i, a := range n.Aggs {
		types[i] = a.Type
	}
	var err error
	if o.groups, err = newGroups(memoryOnly{c}, in, n.Aggs, false, tailKeys(""), row.NewLayout(types...), 0, 0); err != nil {
		return nil, err
	}
	for i := range o.groups.agg.calls {
		if a := &o.groups.agg.calls[i]; a.acc.Merge == nil {
			return nil, fmt.Errorf("%s cannot be computed in two phases; SET 'table.optimizer.agg-phase-strategy' = 'ONE_PHASE'", a.call.Func.Name)
		}
	}
	o.codec, o.row = o.groups.agg.codec(), o.out.New()
	if w := n.Window; w != nil {
		o.win = newWindowing(*w, in, c.Env())
		o.slice = sliceOf(*w)
	}
	return o, nil
}

// sliceOf gives the end of the slice of a time: what a local and a global aggregate of windows agree on.
func sliceOf(w rel.WindowSpec) func(at int64) int64 {
	if s, ok := newSlicing(w); ok {
		return s.slice
	}
	return func(at int64) int64 { return at - row.FloorMod(at-w.Offset, w.Size) + w.Size }
}

// Process is of Operator.
func (o *localAgg) Process(_ int, r *row.Row) error {
	slice := int64(0)
	o.key = o.key[:0]
	if o.slice != nil {
		slice = o.slice(o.win.time(r, o.c.Env()))
		o.key = appendEnd(o.key, slice)
	}
	o.key = o.keys.Append(o.key, r)
	at, ok := o.found[string(o.key)]
	if o.pause > 0 {
		o.pause--
	}
	if o.pause > 0 || !ok && o.n0 >= localGroups {
		g := o.next()
		g.state.W[0]++
		o.groups.count(g.state, r)
		g.time, g.slice = r.Time, slice
		o.n0-- // it is not held
		return o.emit(g, r)
	}
	if !ok {
		g := o.next()
		at = int32(o.n0 - 1) //nolint:gosec // at most localGroups
		g.key, g.time, g.slice = string(o.key), r.Time, slice
		g.row = o.pack(r)
		o.found[g.key] = at
		o.born++
		o.undo = append(o.undo, localUndo{at: int(at), born: true})
	} else {
		o.save(int(at))
	}
	g := &o.held[at]
	g.state.W[0]++
	g.time = max(g.time, r.Time)
	o.groups.count(g.state, r)
	if o.rows++; o.rows >= localLook {
		if o.born > localPoor {
			o.pause = localPause
		}
		o.rows, o.born = 0, 0
	}
	return nil
}

// next is an empty group behind those that are held.
func (o *localAgg) next() *localGroup {
	if o.n0 == len(o.held) {
		var g localGroup
		o.groups.agg.init(&g.state)
		o.held = append(o.held, g)
	}
	g := &o.held[o.n0]
	clear(g.state.W)
	clear(g.state.S)
	o.groups.agg.start(g.state)
	o.n0++
	return g
}

// save keeps what a group is, in case the step is undone.
func (o *localAgg) save(at int) {
	n := len(o.undo)
	for n >= len(o.saved) {
		o.saved = append(o.saved, fn.State{})
	}
	s := &o.saved[n]
	o.codec.Copy(s, &o.held[at].state)
	o.undo = append(o.undo, localUndo{at: at, time: o.held[at].time, state: *s})
}

// BeginStep is of Remembering.
func (o *localAgg) BeginStep() { o.undo = o.undo[:0] }

// UndoStep is of Remembering.
func (o *localAgg) UndoStep() {
	for i := len(o.undo) - 1; i >= 0; i-- {
		u := &o.undo[i]
		g := &o.held[u.at]
		if u.born {
			delete(o.found, g.key)
			o.n0 = u.at
			continue
		}
		o.codec.Copy(&g.state, &u.state)
		g.time = u.time
	}
	o.undo = o.undo[:0]
}

// pack is the columns of a row's group.
func (o *localAgg) pack(r *row.Row) packed {
	o.fill(r)
	return o.out.Pack(nil, o.row)
}

func (o *localAgg) fill(r *row.Row) {
	for i, c := range o.n.Groups {
		o.out.CopyColumn(o.row, i, o.in, r, c)
	}
	for i := len(o.n.Groups); i < o.out.Len(); i++ {
		o.row.SetNull(i)
	}
}

// emit puts out a group; of is a row of it, nil = it is held.
func (o *localAgg) emit(g *localGroup, of *row.Row) error {
	if of != nil {
		o.fill(of)
	} else if err := o.out.Unpack(g.row, o.row); err != nil {
		return err
	}
	at := len(o.n.Groups)
	if o.slice != nil {
		o.row.ClearNull(at)
		o.row.SetInt64(o.out.Place(at).Index, g.slice)
		at++
	}
	o.buf = o.codec.Append(o.buf[:0], &g.state)
	o.row.ClearNull(at)
	o.row.SetBytes(o.out.Place(at).Index, o.buf)
	o.row.Kind, o.row.Time = row.Insert, g.time
	return o.c.Emit(o.row)
}

// BeforeCommit is of Flusher: groups come in the order of their first rows.
func (o *localAgg) BeforeCommit() error {
	for i := range o.n0 {
		if err := o.emit(&o.held[i], nil); err != nil {
			return err
		}
	}
	o.n0 = 0
	clear(o.found)
	return nil
}
