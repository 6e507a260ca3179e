package exec

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
	"github.com/millrace-stream/millrace/statestore"
)

// span is an open session: wall-clock ms, the end exclusive.
type span struct{ start, end int64 }

// spans is the open sessions of a key in order. It is replaced, never written into.
type spans struct{ s []span }

type spansCodec struct{}

// Append is of statestore.Codec.
func (spansCodec) Append(dst []byte, v *spans) []byte {
	for _, s := range v.s {
		dst = binary.AppendVarint(binary.AppendVarint(dst, s.start), s.end-s.start)
	}
	return dst
}

// Decode is of statestore.Codec.
func (spansCodec) Decode(src []byte, v *spans) error {
	v.s = nil
	for len(src) > 0 {
		start, n := binary.Varint(src)
		if n <= 0 {
			return fmt.Errorf("decode sessions: the value ends within a start")
		}
		length, m := binary.Varint(src[n:])
		if m <= 0 {
			return fmt.Errorf("decode sessions: the value ends within an end")
		}
		v.s = append(v.s, span{start, start + length})
		src = src[n+m:]
	}
	return nil
}

// Flat is of statestore.Codec.
func (spansCodec) Flat() bool { return true }

// Schema is of statestore.Codec.
func (spansCodec) Schema() string { return "sessions" }

// sessions keeps the open sessions of keys and their rows. A session comes at its end.
type sessions struct {
	clock
	win    windowing
	in     *row.Layout
	keys   *row.KeyEncoder
	open   *valueState[spans]
	rows   *mapState[packed]
	timers *statestore.Timers[string]
	key    []byte
	at     []byte
	buf    []byte
	row    *row.Row
	// done is called for each session that is over; rows calls its argument for each row of it, in order of time.
	done func(g statestore.Group, key string, s span, rows func(yield func(r *row.Row))) error
}

func newSessions(c Context, spec rel.WindowSpec, in *row.Layout, columns []int) (*sessions, error) {
	o := &sessions{clock: clock{c: c, proc: spec.Proc}, win: newWindowing(spec, in, c.Env()), in: in, keys: row.NewKeyEncoder(in, columns...), row: in.New()}
	o.fire = o.release
	keys := keysOf(o.keys, in, columns)
	var err error
	if o.open, err = openTable(c, "sessions", keys, statestore.Codec[spans](spansCodec{}), 0); err != nil {
		return nil, err
	}
	if o.rows, err = openMap(c, "rows", keys, tailKeys("time, seq"), statestore.Codec[packed](packedOf(in)), 0); err != nil {
		return nil, err
	}
	ts, open := c.Store(StoreSpec{Name: "timers", Kind: statestore.KindTimers, Key: keys.Schema()})
	if open {
		if o.timers, err = statestore.NewTimers(c.State(), ts, keys); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// Start is of Starter.
func (o *sessions) Start() error {
	if o == nil { // of a window function that is no SESSION
		return nil
	}
	if at, ok := o.timers.Next(); ok {
		o.due(at)
	}
	return nil
}

// Process is of Operator.
func (o *sessions) Process(input int, r *row.Row) error {
	at := o.win.time(r, o.c.Env())
	o.key = o.keys.Append(o.key[:0], r)
	g, k := o.c.Group(o.key), view(o.key)
	s := span{at, at + o.win.spec.Size}
	var rest, merged []span
	if v := o.open.Get(g, k); v != nil {
		for _, x := range v.s {
			if x.start <= s.end && s.start <= x.end {
				merged = append(merged, x)
				s = span{min(s.start, x.start), max(s.end, x.end)}
			} else {
				rest = append(rest, x)
			}
		}
	}
	if o.win.due(s.end) <= o.now() {
		o.c.Late(input, r)
		return nil
	}
	if !slices.Contains(merged, s) {
		for _, x := range merged {
			o.timers.Delete(o.win.due(x.end), g, k, 0)
		}
		rest = append(rest, s)
		slices.SortFunc(rest, func(a, b span) int {
			if a.start < b.start {
				return -1
			}
			return 1
		})
		o.open.Set(g, k, spans{rest})
		o.timers.Set(o.win.due(s.end), g, k, 0)
		if err := o.Start(); err != nil {
			return err
		}
	}
	o.at = appendEnd(o.at[:0], at)
	if r.Kind.Adds() {
		o.at = behindEqual(o.rows, g, k, o.at)
		o.rows.Put(g, k, view(o.at), o.in.Pack(nil, r))
		return nil
	}
	o.buf = o.in.Pack(o.buf[:0], r)
	found := ""
	o.rows.Range(g, k, string(o.at), string(o.at)+beyond, func(at string, v *packed) bool {
		if string(*v) == string(o.buf) {
			found = at
			return false
		}
		return true
	})
	if found != "" {
		o.rows.Delete(g, k, found)
	}
	return nil
}

func (o *sessions) release(upTo int64) error {
	if err := popTimers(o.c, o.timers, upTo, o.end); err != nil {
		return err
	}
	return o.Start()
}

// end closes the sessions of a key that are over.
func (o *sessions) end(at int64, g statestore.Group, k string) error {
	v := o.open.Get(g, k)
	if v == nil {
		return nil
	}
	var over, rest []span
	for _, s := range v.s {
		if o.win.due(s.end) <= at {
			over = append(over, s)
		} else {
			rest = append(rest, s)
		}
	}
	for _, s := range over {
		lo, hi := string(appendEnd(nil, s.start)), string(appendEnd(nil, s.end))
		err := o.done(g, k, s, func(yield func(r *row.Row)) {
			o.rows.Range(g, k, lo, hi, func(_ string, v *packed) bool {
				if err := o.in.Unpack(*v, o.row); err != nil {
					damaged("a session", err)
				}
				yield(o.row)
				return true
			})
		})
		if err != nil {
			return err
		}
		var gone []string
		o.rows.Range(g, k, lo, hi, func(at string, _ *packed) bool { gone = append(gone, at); return true })
		for _, at := range gone {
			o.rows.Delete(g, k, at)
		}
	}
	if len(rest) == 0 {
		o.open.Delete(g, k)
	} else {
		o.open.Set(g, k, spans{rest})
	}
	return nil
}

// sessionAgg is PWindowAgg over sessions whose aggregates need the rows; see mergedSessions for the others.
type sessionAgg struct {
	*sessions
	sessionResult
	state fn.State
}

// sessionResult makes the rows of sessions that are over.
type sessionResult struct {
	n      *rel.PWindowAgg
	groups *groups
	out    *row.Layout
	ofKey  *row.Layout
	keyRow *row.Row
	result *row.Row
}

func newSessionResult(n *rel.PWindowAgg, g *groups, keys rowKeys) sessionResult {
	out := rel.Layout(n)
	return sessionResult{n: n, groups: g, out: out, ofKey: keys.layout, keyRow: keys.layout.New(), result: out.New()}
}

// of is the row of a session of a key, good until the next call.
func (o *sessionResult) of(keys *row.KeyEncoder, key string, win *windowing, s span, st fn.State) *row.Row {
	fillKey(keys, o.ofKey, o.keyRow, key, o.out, o.result, len(o.n.Groups))
	o.groups.result(o.result, st)
	windowProperties(o.n.Props, o.out, len(o.n.Groups)+len(o.n.Aggs), o.result, win, s.start, s.end)
	o.result.Kind, o.result.Time = row.Insert, win.instant(s.end)-1
	return o.result
}

func newSessionAgg(n *rel.PWindowAgg, c Context) (Operator, error) {
	in := rel.Layout(n.In[0])
	keys := keysOf(row.NewKeyEncoder(in, n.Groups...), in, n.Groups).(rowKeys)
	g, err := newGroups(memoryOnly{c}, in, n.Aggs, false, keys, rel.Layout(n), len(n.Groups), 0)
	if err != nil {
		return nil, err
	}
	if mergesSessions(n, g) {
		return newMergedSessions(n, c, g)
	}
	core, err := newSessions(c, n.Spec, in, n.Groups)
	if err != nil {
		return nil, err
	}
	o := &sessionAgg{sessions: core, sessionResult: newSessionResult(n, g, keys)}
	core.done = o.done
	return o, nil
}

// memoryOnly is a Context for aggregates that are computed from rows at once, so that they need no stores.
type memoryOnly struct{ Context }

// Store is of Context.
func (memoryOnly) Store(StoreSpec) (statestore.Spec, bool) { return statestore.Spec{}, false }

func (o *sessionAgg) done(_ statestore.Group, key string, s span, rows func(yield func(r *row.Row))) error {
	st := &o.state
	o.groups.begin(st)
	rows(func(r *row.Row) { o.groups.with(st, r) })
	if st.W[0] == 0 {
		return nil
	}
	return o.c.Emit(o.of(o.keys, key, &o.win, s, *st))
}

// begin makes st the aggregates of no rows, which with adds: aggregates of rows that are at hand. The memory of st is used
// again.
func (o *groups) begin(st *fn.State) {
	if len(st.W) == o.agg.words && len(st.S) == o.agg.views {
		clear(st.W)
		clear(st.S)
		o.agg.start(*st)
	} else {
		o.agg.init(st)
	}
	if len(o.sets) > 0 && o.seen == nil {
		o.seen = make([]map[string]bool, len(o.agg.calls))
	}
	for _, s := range o.seen {
		clear(s)
	}
}

// with adds a row.
func (o *groups) with(st *fn.State, r *row.Row) {
	st.W[0]++
	for i := range o.agg.calls {
		a := &o.agg.calls[i]
		if a.filter != nil && !a.filter(r) {
			continue
		}
		if a.distinct >= 0 {
			if o.seen[i] == nil {
				o.seen[i] = map[string]bool{}
			}
			o.seenKey = o.sets[a.distinct].enc.Append(o.seenKey[:0], r)
			if o.seen[i][string(o.seenKey)] {
				continue
			}
			o.seen[i][string(o.seenKey)] = true
		}
		a.acc.Add(a.part(*st), r)
	}
}

// window is PWindow: rows with the bounds of their windows. Those of a session come at its end.
type window struct {
	*sessions // of SESSION only
	c         Context
	n         *rel.PWindow
	win       windowing
	in, out   *row.Layout
	row       *row.Row
}

func newWindow(n *rel.PWindow, c Context) (Operator, error) {
	in := rel.Layout(n.In[0])
	o := &window{c: c, n: n, in: in, out: rel.Layout(n), win: newWindowing(n.Spec, in, c.Env())}
	o.row = o.out.New()
	if n.Spec.Kind != rel.Session {
		return plainWindow{o}, nil
	}
	core, err := newSessions(c, n.Spec, in, n.Spec.Partition)
	if err != nil {
		return nil, err
	}
	o.sessions = core
	core.done = func(_ statestore.Group, _ string, s span, rows func(yield func(r *row.Row))) (err error) {
		rows(func(r *row.Row) {
			if err == nil {
				r.Kind = row.Insert
				err = o.emit(r, s.start, s.end)
			}
		})
		return err
	}
	return core, nil
}

func (o *window) emit(r *row.Row, start, end int64) error {
	n := o.in.Len()
	for i := range n {
		o.out.CopyColumn(o.row, i, o.in, r, i)
	}
	windowProperties([]rel.WindowProp{rel.WindowStart, rel.WindowEnd, rel.WindowTime}, o.out, n, o.row, &o.win, start, end)
	o.row.Kind, o.row.Time = r.Kind, r.Time
	return o.c.Emit(o.row)
}

// plainWindow is a window function without state.
type plainWindow struct{ *window }

// Process is of Operator.
func (o plainWindow) Process(_ int, r *row.Row) (err error) {
	o.win.windows(o.win.time(r, o.c.Env()), func(start, end int64) {
		if err == nil {
			err = o.emit(r, start, end)
		}
	})
	return err
}
