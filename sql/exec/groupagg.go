package exec

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/expr"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
	"github.com/millrace-stream/millrace/statestore"
)

// aggregates is a list of aggregate calls over rows of one layout, as one accumulator. Word 0 is the number of rows.
type aggregates struct {
	env    *fn.Env
	in     *row.Layout
	calls  []aggregate
	words  int
	views  int
	schema string
	nearW  []uint64 // of initNear
	nearS  [][]byte
}

// aggregate is one call.
type aggregate struct {
	call   *rel.AggCall
	acc    *fn.Acc
	word   int // its part of the state
	view   int
	filter func(r *row.Row) bool // nil = all rows
	// store of the values, where rows are withdrawn and the accumulator alone cannot do that.
	store fn.Store
	// distinct is the index of the set of its arguments, and bit the count in it that is its own; -1 = it is not DISTINCT.
	distinct, bit int
}

// set is the distinct arguments of one or more calls.
type set struct {
	enc    *row.KeyEncoder
	counts int
}

// newAggregates compiles calls. retracts: rows are withdrawn.
func newAggregates(env *fn.Env, in *row.Layout, calls []rel.AggCall, retracts bool) (*aggregates, []set, error) {
	a := &aggregates{env: env, in: in, words: 1, schema: "acc1 rows"}
	var sets []set
	byArgs := map[string]int{}
	for i := range calls {
		c := &calls[i]
		if c.Func.Agg == nil || c.Func.Agg.OverOnly {
			return nil, nil, fmt.Errorf("%s is no aggregate of groups", c.Func.Name)
		}
		args, err := expr.CompileAll(env, in, c.Args)
		if err != nil {
			return nil, nil, err
		}
		acc, err := c.Func.Agg.Compile(env, args, c.Type)
		if err != nil {
			return nil, nil, err
		}
		g := aggregate{call: c, acc: acc, word: a.words, view: a.views, distinct: -1}
		if c.Filter != nil {
			if g.filter, err = expr.Condition(env, in, c.Filter); err != nil {
				return nil, nil, err
			}
		}
		if retracts && acc.Retract == nil {
			g.store = c.Func.Agg.Store
		}
		if c.Distinct && len(c.Args) > 0 {
			var cols []int
			key := ""
			for _, x := range c.Args {
				col, ok := x.(*rel.Column)
				if !ok {
					continue // a literal
				}
				cols = append(cols, col.Index)
				key += fmt.Sprint(col.Index, ",")
			}
			at, ok := byArgs[key]
			if !ok {
				at = len(sets)
				byArgs[key] = at
				sets = append(sets, set{enc: row.NewKeyEncoder(in, cols...)})
			}
			g.distinct, g.bit = at, sets[at].counts
			sets[at].counts++
		}
		a.words, a.views = a.words+acc.Words, a.views+acc.Views
		a.schema += fmt.Sprintf("; %s(%s) %d words %d values", c.Func.Name, typesOf(c.Args), acc.Words, acc.Views)
		a.calls = append(a.calls, g)
	}
	return a, sets, nil
}

func typesOf(es []rel.Expr) string {
	s := ""
	for i, e := range es {
		if i > 0 {
			s += ", "
		}
		s += e.Type().Text()
	}
	return s
}

func (a *aggregates) codec() accumulators { return accumulators{a.words, a.views, a.schema} }

// init makes the state of no rows.
func (a *aggregates) init(s *fn.State) {
	s.W, s.S = make([]uint64, a.words), make([][]byte, a.views)
	a.start(*s)
}

// initNear is init for states that go together, those of a window: several are made at a time.
func (a *aggregates) initNear(s *fn.State) {
	const many = 32
	if len(a.nearW) < a.words || len(a.nearS) < a.views {
		a.nearW, a.nearS = make([]uint64, many*a.words), make([][]byte, many*a.views)
	}
	s.W, a.nearW = a.nearW[:a.words:a.words], a.nearW[a.words:]
	s.S, a.nearS = a.nearS[:a.views:a.views], a.nearS[a.views:]
	a.start(*s)
}

// start makes a state of zeros that of no rows.
func (a *aggregates) start(s fn.State) {
	for i := range a.calls {
		if g := &a.calls[i]; g.acc.Init != nil {
			g.acc.Init(g.part(s))
		}
	}
}

// merge adds what another state has counted.
func (a *aggregates) merge(s, from fn.State) {
	s.W[0] += from.W[0]
	for i := range a.calls {
		g := &a.calls[i]
		g.acc.Merge(g.part(s), g.part(from))
	}
}

// partials reads accumulators that a local aggregate has put out: the last column of its rows.
type partials struct {
	codec accumulators
	view  int
	state fn.State
}

// newPartials: in is the layout of the local aggregate's rows.
func newPartials(a *aggregates, in *row.Layout) *partials {
	return &partials{codec: a.codec(), view: in.Place(in.Len() - 1).Index}
}

// of is the accumulators of a row, valid until the next call.
func (p *partials) of(r *row.Row) fn.State {
	if err := p.codec.Decode(r.S[p.view], &p.state); err != nil {
		damaged("a local aggregate", err)
	}
	return p.state
}

// part is the part of the state that is the call's own.
func (g *aggregate) part(s fn.State) fn.State {
	return fn.State{W: s.W[g.word : g.word+g.acc.Words : g.word+g.acc.Words], S: s.S[g.view : g.view+g.acc.Views : g.view+g.acc.Views]}
}

// groups keeps what aggregates need beside their accumulators: sets of distinct values, and the values or rows from which MIN,
// FIRST_VALUE and the like come back when a row is withdrawn.
type groups struct {
	agg      *aggregates
	in       *row.Layout
	retracts bool
	sets     []set
	distinct []*mapState[counts]
	// values has, for Ordered aggregates, the call's number and a value -> how often; rows has, for Replay, a sequence number
	// -> a packed row.
	values  *mapState[int64]
	rows    *mapState[packed]
	orders  []*row.KeyEncoder // by call, for Ordered
	ofArg   []*row.Layout     // by call: the layout that its order decodes to
	argRow  []*row.Row
	changed []uint64          // by set: the calls whose value came or went
	seen    []map[string]bool // by call: the values of DISTINCT since begin
	seenKey []byte

	store    []func(out *row.Row, s fn.State)
	mapKey   []byte
	counts   []int64
	scratch  []byte
	replayed *row.Row
}

// newGroups compiles calls and declares their stores. out is the layout that results go to, from column first on.
func newGroups(c Context, in *row.Layout, calls []rel.AggCall, retracts bool, keys statestore.KeyCodec[string], out *row.Layout, first int, life time.Duration) (*groups, error) {
	o := &groups{in: in, retracts: retracts}
	var err error
	if o.agg, o.sets, err = newAggregates(c.Env(), in, calls, retracts); err != nil {
		return nil, err
	}
	for i, s := range o.sets {
		m, err := openMap(c, fmt.Sprintf("set%d", i), keys, tailKeys(s.enc.Schema()), statestore.Codec[counts](countsCodec{s.counts}), life)
		if err != nil {
			return nil, err
		}
		o.distinct = append(o.distinct, m)
	}
	ordered, replay, orders := false, false, ""
	o.orders, o.ofArg, o.argRow = make([]*row.KeyEncoder, len(o.agg.calls)), make([]*row.Layout, len(o.agg.calls)), make([]*row.Row, len(o.agg.calls))
	for i := range o.agg.calls {
		g := &o.agg.calls[i]
		switch g.store {
		case fn.Ordered:
			ordered = true
			col := g.call.Args[0].(*rel.Column)
			o.orders[i] = row.NewSortEncoder(in, row.KeyColumn{Column: col.Index})
			o.ofArg[i] = row.NewLayout(in.Type(col.Index))
			o.argRow[i] = o.ofArg[i].New()
			orders += o.orders[i].Schema() + ";"
		case fn.Replay:
			replay = true
		}
	}
	if ordered {
		if o.values, err = openMap(c, "ord", keys, tailKeys("call, "+orders), statestore.Codec[int64](number{}), life); err != nil {
			return nil, err
		}
	}
	if replay {
		if o.rows, err = openMap(c, "list", keys, tailKeys("seq"), statestore.Codec[packed](packedOf(in)), life); err != nil {
			return nil, err
		}
	}
	for i := range o.agg.calls {
		g := &o.agg.calls[i]
		set := expr.Store(out, first+i, g.acc.Value, fn.Place{})
		o.store = append(o.store, func(out *row.Row, s fn.State) {
			g.acc.Bind(g.part(s))
			set(out, nil)
		})
	}
	o.changed, o.replayed = make([]uint64, len(o.sets)), in.New()
	return o, nil
}

// result fills the aggregates' columns of out.
func (o *groups) result(out *row.Row, s fn.State) {
	for _, f := range o.store {
		f(out, s)
	}
}

// groupAgg is PGroupAgg: the unbounded GROUP BY.
type groupAgg struct {
	*groups
	c             Context
	n             *rel.PGroupAgg
	out           *row.Layout
	keys          *row.KeyEncoder
	main          *valueState[fn.State]
	from          *row.Layout
	partials      *partials // nil = rows are no accumulators
	before, after *row.Row  // the result
	key           []byte
	pinned        []byte
}

func newGroupAgg(n *rel.PGroupAgg, c Context) (Operator, error) {
	in := rel.Layout(n.In[0])
	o := &groupAgg{c: c, n: n, out: rel.Layout(n), from: in, keys: row.NewKeyEncoder(in, n.Groups...)}
	keys := keysOf(o.keys, in, n.Groups)
	of := in
	if n.Partial != nil {
		of = row.NewLayout(n.Partial.Types...)
	}
	var err error
	if o.groups, err = newGroups(c, of, n.Aggs, n.Retracts, keys, o.out, len(n.Groups), n.TTL); err != nil {
		return nil, err
	}
	if o.main, err = openTable(c, "main", keys, statestore.Codec[fn.State](o.agg.codec()), n.TTL); err != nil {
		return nil, err
	}
	if n.Partial != nil {
		o.partials = newPartials(o.agg, in)
	}
	o.before, o.after = o.out.New(), o.out.New()
	return o, nil
}

// Process is of Operator.
func (o *groupAgg) Process(_ int, r *row.Row) error {
	o.key = o.keys.Append(o.key[:0], r)
	g, k := o.c.Group(o.key), view(o.key)
	adds := r.Kind.Adds()
	s := o.main.Get(g, k)
	if s == nil && !adds {
		return nil // of a group that is not known: its rows were withdrawn, or forgotten
	}
	for i, c := range o.n.Groups {
		o.out.CopyColumn(o.before, i, o.from, r, c)
		o.out.CopyColumn(o.after, i, o.from, r, c)
	}
	existed := s != nil
	if existed {
		o.result(o.before, *s)
		o.pin(o.before)
	}
	s, _ = o.main.Update(g, k)
	if !existed {
		o.agg.init(s)
	}
	o.account(g, k, s, r, o.partials)
	out := o.after
	out.Time, o.before.Time = r.Time, r.Time
	if int64(s.W[0]) <= 0 {
		o.main.Delete(g, k)
		o.clear(g, k)
		if !existed {
			return nil
		}
		o.before.Kind = row.Delete
		return o.c.Emit(o.before)
	}
	o.result(out, *s)
	switch {
	case !existed:
		out.Kind = row.Insert
		return o.c.Emit(out)
	case len(o.n.Aggs) == 0:
		return nil
	case o.n.TTL == 0 && equalRows(o.out, o.before, out):
		return nil
	}
	if o.n.Form == rel.Both {
		o.before.Kind = row.UpdateBefore
		if err := o.c.Emit(o.before); err != nil {
			return err
		}
		// What is behind may have used the memory that the views of the result lie in.
		o.result(out, *o.main.Get(g, k))
	}
	out.Kind = row.UpdateAfter
	return o.c.Emit(out)
}

// pin copies the views of a result that may lie in memory which an update of the accumulator takes.
func (o *groupAgg) pin(r *row.Row) {
	o.pinned = o.pinned[:0]
	for i := len(o.n.Groups); i < o.out.Len(); i++ {
		p := o.out.Place(i)
		if p.Bank != row.Views || r.Null(i) {
			continue
		}
		at := len(o.pinned)
		o.pinned = append(o.pinned, r.S[p.Index]...)
		r.S[p.Index] = o.pinned[at:len(o.pinned):len(o.pinned)]
	}
}

// account counts a row in or takes it out, or adds the accumulators that it has.
func (o *groups) account(g statestore.Group, k string, s *fn.State, r *row.Row, p *partials) {
	switch {
	case p != nil:
		o.agg.merge(*s, p.of(r))
	case r.Kind.Adds():
		s.W[0]++
		o.add(g, k, s, r)
	default:
		s.W[0]--
		o.retract(g, k, s, r)
	}
}

// add counts a row in.
func (o *groups) add(g statestore.Group, k string, s *fn.State, r *row.Row) {
	o.countDistinct(g, k, r, 1)
	for i := range o.agg.calls {
		a := &o.agg.calls[i]
		if !o.matters(a, r) {
			continue
		}
		if a.store == fn.Ordered && !r.Null(a.call.Args[0].(*rel.Column).Index) {
			key := o.valueKey(i, r)
			n := int64(1)
			if was := o.values.Get(g, k, view(key)); was != nil {
				n += *was
			}
			o.values.Put(g, k, view(key), n)
		}
		a.acc.Add(a.part(*s), r)
	}
	if o.rows != nil {
		o.mapKey = behindEqual(o.rows, g, k, o.mapKey[:0])
		o.rows.Put(g, k, view(o.mapKey), o.in.Pack(nil, r))
	}
}

// matters says whether a row matters to a call: it passes the filter and, with DISTINCT, is the first (or was the last) of
// its value, as countDistinct has found out.
func (o *groups) matters(a *aggregate, r *row.Row) bool {
	if a.distinct >= 0 {
		return o.changed[a.distinct]>>uint(a.bit)&1 != 0
	}
	return a.filter == nil || a.filter(r)
}

// countDistinct counts a row in the sets of distinct values, and notes for which calls its value came or went.
func (o *groups) countDistinct(g statestore.Group, k string, r *row.Row, by int64) {
	for i := range o.sets {
		set := &o.sets[i]
		o.mapKey = set.enc.Append(o.mapKey[:0], r)
		was := o.distinct[i].Get(g, k, view(o.mapKey))
		n := append(o.counts[:0], make([]int64, set.counts)...)
		o.counts = n
		if was != nil {
			copy(n, was.N)
		}
		o.changed[i] = 0
		any, taken := false, false
		for j := range o.agg.calls {
			a := &o.agg.calls[j]
			if a.distinct != i || a.filter != nil && !a.filter(r) {
				continue
			}
			before := n[a.bit]
			n[a.bit] = max(0, before+by)
			taken = true
			if (before == 0) != (n[a.bit] == 0) {
				o.changed[i] |= 1 << uint(a.bit)
			}
		}
		for _, c := range n {
			any = any || c != 0
		}
		switch {
		case any && (o.retracts || o.changed[i] != 0 || taken && o.distinct[i].life > 0): // without withdrawals it only matters that it is there, and since when
			o.distinct[i].Put(g, k, view(o.mapKey), counts{slices.Clone(n)})
		case !any && was != nil:
			o.distinct[i].Delete(g, k, view(o.mapKey))
		}
	}
}

// valueKey is the key of an argument in the store of ordered values.
func (o *groups) valueKey(call int, r *row.Row) []byte {
	o.mapKey = o.orders[call].Append(append(o.mapKey[:0], byte(call>>8), byte(call)), r)
	return o.mapKey
}

// retract takes a row out.
func (o *groups) retract(g statestore.Group, k string, s *fn.State, r *row.Row) {
	o.countDistinct(g, k, r, -1)
	if o.rows != nil {
		o.forget(g, k, r)
	}
	replay := false
	for i := range o.agg.calls {
		a := &o.agg.calls[i]
		if a.store == fn.Replay {
			replay = true
			continue
		}
		if !o.matters(a, r) {
			continue
		}
		if a.store == fn.NoStore {
			a.acc.Retract(a.part(*s), r)
			continue
		}
		if r.Null(a.call.Args[0].(*rel.Column).Index) {
			continue
		}
		key := o.valueKey(i, r)
		was := o.values.Get(g, k, view(key))
		switch {
		case was == nil: // it was never added
		case *was > 1:
			o.values.Put(g, k, view(key), *was-1)
		default:
			o.values.Delete(g, k, view(key))
			o.extreme(g, k, i, a.part(*s))
		}
	}
	if replay {
		o.replay(g, k, s)
	}
}

// extreme sets the accumulator of a MIN or MAX to the first or last value that is left.
func (o *groups) extreme(g statestore.Group, k string, call int, s fn.State) {
	a := &o.agg.calls[call]
	clear(s.W)
	clear(s.S)
	if a.acc.Init != nil {
		a.acc.Init(s)
	}
	low := string([]byte{byte(call >> 8), byte(call)})
	high := string([]byte{byte((call + 1) >> 8), byte(call + 1)})
	found := ""
	if a.call.Func.Agg.Last {
		if at, v := o.values.Before(g, k, high); v != nil && len(at) > 2 && at[:2] == low {
			found = at
		}
	} else {
		o.values.Range(g, k, low, high, func(at string, _ *int64) bool { found = at; return false })
	}
	if found == "" {
		return
	}
	if _, err := o.orders[call].Decode([]byte(found[2:]), o.ofArg[call], o.argRow[call]); err != nil {
		panic(&statestore.Fault{Err: fmt.Errorf("%w: a value of %s: %w", statestore.ErrCorrupt, a.call.Func.Name, err)})
	}
	col := a.call.Args[0].(*rel.Column).Index
	o.in.CopyColumn(o.replayed, col, o.ofArg[call], o.argRow[call], 0)
	a.acc.Add(s, o.replayed)
}

// forget drops the first row of the list that is equal to r.
func (o *groups) forget(g statestore.Group, k string, r *row.Row) {
	o.scratch = o.in.Pack(o.scratch[:0], r)
	found := ""
	o.rows.All(g, k, func(at string, v *packed) bool {
		if bytes.Equal(*v, o.scratch) {
			found = at
			return false
		}
		return true
	})
	if found != "" {
		o.rows.Delete(g, k, found)
	}
}

// replay computes the aggregates anew that go by the rows in their order.
func (o *groups) replay(g statestore.Group, k string, s *fn.State) {
	seen := map[string]bool{}
	for i := range o.agg.calls {
		a := &o.agg.calls[i]
		if a.store != fn.Replay {
			continue
		}
		part := a.part(*s)
		clear(part.W)
		clear(part.S)
		if a.acc.Init != nil {
			a.acc.Init(part)
		}
		clear(seen)
		o.rows.All(g, k, func(_ string, v *packed) bool {
			if err := o.in.Unpack(*v, o.replayed); err != nil {
				panic(&statestore.Fault{Err: fmt.Errorf("%w: a row of %s: %w", statestore.ErrCorrupt, a.call.Func.Name, err)})
			}
			if a.filter != nil && !a.filter(o.replayed) {
				return true
			}
			if a.distinct >= 0 {
				o.mapKey = o.sets[a.distinct].enc.Append(o.mapKey[:0], o.replayed)
				if seen[string(o.mapKey)] {
					return true
				}
				seen[string(o.mapKey)] = true
			}
			a.acc.Add(part, o.replayed)
			return true
		})
	}
}

// clear forgets what is kept of a group.
func (o *groups) clear(g statestore.Group, k string) {
	for _, m := range o.distinct {
		m.Clear(g, k)
	}
	if o.values != nil {
		o.values.Clear(g, k)
	}
	if o.rows != nil {
		o.rows.Clear(g, k)
	}
}

// equalRows says whether two rows of a layout have equal values.
func equalRows(l *row.Layout, a, b *row.Row) bool {
	for i := range l.Len() {
		if a.Null(i) != b.Null(i) {
			return false
		}
		if a.Null(i) {
			continue
		}
		switch p := l.Place(i); {
		case p.Bank == row.Views:
			if !bytes.Equal(a.S[p.Index], b.S[p.Index]) {
				return false
			}
		case a.W[p.Index] != b.W[p.Index] || p.Words == 2 && a.W[p.Index+1] != b.W[p.Index+1]:
			return false
		}
	}
	return true
}
