package exec

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
	"github.com/millrace-stream/millrace/statestore"
)

// windowing is how windows lie: pure arithmetic. Windows over TIMESTAMP_LTZ lie in the wall clock of the session's zone; all
// window bounds here are in it, and only timers are converted.
type windowing struct {
	spec rel.WindowSpec
	zone *row.Zone // nil = no conversion
	col  int
	word int
}

// newWindowing: in is nil where rows bring their window along.
func newWindowing(spec rel.WindowSpec, in *row.Layout, env *fn.Env) windowing {
	w := windowing{spec: spec, col: spec.Time}
	if in != nil {
		w.word = in.Place(spec.Time).Index
	}
	if spec.LTZ && !env.Zone.IsUTC() {
		w.zone = env.Zone
	}
	return w
}

// time is the time of a row, on the wall clock of its windows.
func (w *windowing) time(r *row.Row, env *fn.Env) int64 {
	if w.spec.Proc {
		return w.local(env.Now)
	}
	if r.Null(w.col) {
		panic(&fn.Failure{Message: "a window over a time that is NULL; filter such rows out, or give them a time in a computed column"})
	}
	return w.local(r.Int64(w.word))
}

func (w *windowing) local(instant int64) int64 {
	if w.zone == nil {
		return instant
	}
	return w.zone.Local(instant)
}

// instant is the time at which a wall-clock time is reached.
func (w *windowing) instant(local int64) int64 {
	if w.zone == nil || local == math.MaxInt64 {
		return local
	}
	return w.zone.Instant(local)
}

// due is the instant from which on the watermark is behind the last ms of a window.
func (w *windowing) due(end int64) int64 {
	if w.zone == nil {
		return end - 1
	}
	return w.zone.InstantLater(end - 1)
}

// windows calls f for each window of a time, the newest first.
func (w *windowing) windows(at int64, f func(start, end int64)) {
	s := &w.spec
	switch s.Kind {
	case rel.Tumble:
		start := at - row.FloorMod(at-s.Offset, s.Size)
		f(start, start+s.Size)
	case rel.Hop:
		for start := at - row.FloorMod(at-s.Offset, s.Slide); start > at-s.Size; start -= s.Slide {
			f(start, start+s.Size)
		}
	case rel.Cumulate:
		start := at - row.FloorMod(at-s.Offset, s.Size)
		for end := start + s.Size; end > at; end -= s.Slide {
			f(start, end)
		}
	}
}

// startOf is the start of the window with this end.
func (w *windowing) startOf(end int64) int64 {
	s := &w.spec
	if s.Kind == rel.Cumulate {
		return end - 1 - row.FloorMod(end-1-s.Offset, s.Size)
	}
	return end - s.Size
}

// windowKeys is the codec of keys of map stores that belong to a window: its end, then the key.
type windowKeys struct{ rowKeys }

// Decode is of statestore.KeyCodec.
func (k windowKeys) Decode(src []byte) (string, []byte, error) {
	if len(src) < 8 {
		return "", nil, statestore.ErrCorrupt
	}
	_, rest, err := k.rowKeys.Decode(src[8:])
	if err != nil {
		return "", nil, err
	}
	return string(src[:len(src)-len(rest)]), rest, nil
}

// Schema is of statestore.KeyCodec.
func (k windowKeys) Schema() string { return "end, " + k.rowKeys.Schema() }

func appendEnd(dst []byte, end int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(end)^1<<63)
}

// windowAgg is PWindowAgg but for sessions: an accumulator for each window and key. The rows of a window come at its end,
// in the order of the keys.
type windowAgg struct {
	*groups
	clock
	n      *rel.PWindowAgg
	win    windowing
	out    *row.Layout
	keys   *row.KeyEncoder
	ofKey  *row.Layout
	keyRow *row.Row
	main   *statestore.Windows[string, fn.State]
	result *row.Row
	key    []byte
	both   []byte // window end and key
	maps   bool   // there is more than accumulators
	fires  []firing
	end    int // word of the window's end, where rows bring it along

	windowKeys windowKeys
	held       []byte    // the keys of fires
	partials   *partials // nil = rows are no accumulators
	slice      int       // word of the slice's end, with partials
}

type firing struct {
	g     statestore.Group
	key   string
	state fn.State
}

func newWindowAgg(n *rel.PWindowAgg, c Context) (Operator, error) {
	if !n.Attached && n.Spec.Kind == rel.Session {
		return newSessionAgg(n, c)
	}
	in := rel.Layout(n.In[0])
	o := &windowAgg{clock: clock{c: c, proc: n.Spec.Proc}, n: n, out: rel.Layout(n), keys: row.NewKeyEncoder(in, n.Groups...)}
	o.fire = o.release
	cols := n.Groups
	if n.Attached {
		// The start is part of the key: that of a session does not follow from the end.
		cols = append(slices.Clone(cols), n.Start)
		o.keys = row.NewKeyEncoder(in, cols...)
		o.end = in.Place(n.End).Index
		o.win = newWindowing(n.Spec, nil, c.Env())
	} else if n.Partial != nil {
		o.win = newWindowing(n.Spec, nil, c.Env())
		o.slice = in.Place(len(n.Groups)).Index
	} else {
		o.win = newWindowing(n.Spec, in, c.Env())
	}
	of := in
	if n.Partial != nil {
		of = row.NewLayout(n.Partial.Types...)
	}
	keys := keysOf(o.keys, in, cols).(rowKeys)
	o.windowKeys, o.ofKey, o.keyRow = windowKeys{keys}, keys.layout, keys.layout.New()
	var err error
	if o.groups, err = newGroups(c, of, n.Aggs, n.Retracts, o.windowKeys, o.out, len(n.Groups), 0); err != nil {
		return nil, err
	}
	if n.Partial != nil {
		o.partials = newPartials(o.agg, in)
	}
	o.maps = len(o.distinct) > 0 || o.values != nil || o.rows != nil
	codec := statestore.Codec[fn.State](o.agg.codec())
	spec, open := c.Store(StoreSpec{Name: "windows", Kind: statestore.KindWindows, Key: keys.Schema(), Value: codec.Schema(), Life: o.life(), Windows: windowsText(n)})
	if open {
		if o.main, err = statestore.NewWindows(c.State(), spec, statestore.KeyCodec[string](heldKeys{keys, &o.held}), codec); err != nil {
			return nil, err
		}
	}
	o.result = o.out.New()
	if n.Emit.Updates() {
		return emitting(o)
	}
	if s, ok := sliced(o); ok {
		return s, nil
	}
	return o, nil
}

// life is how long what is kept of a window may be needed.
func (o *windowAgg) life() time.Duration {
	return life(o.n.Spec, max(o.n.Emit.AllowLateness, 0))
}

// life is how long what is kept of a window may be needed: as long as the window, and so many ms behind its end.
func life(w rel.WindowSpec, behind int64) time.Duration {
	return time.Duration(w.Size+behind) * time.Millisecond
}

func windowsText(n *rel.PWindowAgg) string {
	if n.Attached {
		return "attached"
	}
	return n.Spec.Kind.String()
}

// Start is of Starter.
func (o *windowAgg) Start() error {
	o.arm()
	return nil
}

// arm asks to be called at the end of the earliest window.
func (o *windowAgg) arm() {
	if end, ok := o.main.Next(); ok {
		o.due(o.win.due(end))
	}
}

// Process is of Operator.
func (o *windowAgg) Process(input int, r *row.Row) error {
	o.key = o.keys.Append(o.key[:0], r)
	g := o.c.Group(o.key)
	late, any := 0, false
	one := func(end int64) {
		if o.win.due(end) <= o.now() || end <= o.main.Horizon() {
			late++
			return
		}
		any = true
		if o.one(end, g, r) {
			o.arm()
		}
	}
	if o.n.Attached {
		one(r.Int64(o.end))
	} else {
		o.win.windows(o.time(r), func(_, end int64) { one(end) })
	}
	if !any && late > 0 {
		o.tooLate(input, r)
	}
	return nil
}

// time is the time of a row, or one of its slice if it is accumulators.
func (o *windowAgg) time(r *row.Row) int64 {
	if o.partials != nil {
		return r.Int64(o.slice) - 1
	}
	return o.win.time(r, o.c.Env())
}

// tooLate counts a row, or those that accumulators have counted.
func (o *windowAgg) tooLate(input int, r *row.Row) {
	n := uint64(1)
	if o.partials != nil {
		n = o.partials.of(r).W[0]
	}
	for range n {
		o.c.Late(input, r)
	}
}

// one adds a row to a window, or takes it out. first says that it is the first of its key.
func (o *windowAgg) one(end int64, g statestore.Group, r *row.Row) (first bool) {
	s, existed := o.main.Update(end, g, view(o.key))
	if !existed {
		o.agg.initNear(s)
	}
	k := ""
	if o.maps {
		o.both = append(appendEnd(o.both[:0], end), o.key...)
		k = view(o.both)
	}
	o.account(g, k, s, r, o.partials)
	return !existed
}

func (o *windowAgg) release(upTo int64) error {
	var end int64
	var f *firing
	emit := func() error { return o.emit(end, f) }
	for {
		var ok bool
		if end, ok = o.main.Next(); !ok || o.win.due(end) > upTo {
			break
		}
		fires, err := o.entries(end)
		if err != nil {
			return err
		}
		for i := range fires {
			f = &fires[i]
			if err := o.c.Atomic(f.g, o.win.instant(end)-1, bytesOf(f.key), emit); err != nil {
				return err
			}
		}
		o.main.Drop(end)
	}
	o.arm()
	return nil
}

// entries are the keys of a window in order, valid until the next call.
func (o *windowAgg) entries(end int64) ([]firing, error) {
	o.fires, o.held = o.fires[:0], o.held[:0]
	err := o.main.Each(end, func(g statestore.Group, k string, v *fn.State) error {
		o.fires = append(o.fires, firing{g, k, *v})
		return nil
	})
	slices.SortFunc(o.fires, func(a, b firing) int { return strings.Compare(a.key, b.key) })
	return o.fires, err
}

// forget drops what is kept of a window and key beside its accumulator.
func (o *windowAgg) forget(end int64, f *firing) {
	if o.maps {
		o.both = append(appendEnd(o.both[:0], end), f.key...)
		o.clear(f.g, view(o.both))
	}
}

// emit puts out the result of a window and key.
func (o *windowAgg) emit(end int64, f *firing) error {
	defer o.forget(end, f)
	if int64(f.state.W[0]) <= 0 {
		return nil
	}
	o.fill(end, f.key, f.state)
	o.result.Kind = row.Insert
	return o.c.Emit(o.result)
}

// fill makes the result of a window and key.
func (o *windowAgg) fill(end int64, key string, s fn.State) {
	fillKey(o.keys, o.ofKey, o.keyRow, key, o.out, o.result, len(o.n.Groups))
	var start int64
	if o.n.Attached {
		start = o.keyRow.Int64(o.ofKey.Place(len(o.n.Groups)).Index)
	} else {
		start = o.win.startOf(end)
	}
	o.groups.result(o.result, s)
	windowProperties(o.n.Props, o.out, len(o.n.Groups)+len(o.n.Aggs), o.result, &o.win, start, end)
	o.result.Time = o.win.instant(end) - 1
}

func windowProperties(props []rel.WindowProp, l *row.Layout, first int, out *row.Row, win *windowing, start, end int64) {
	for i, p := range props {
		c := first + i
		w := l.Place(c).Index
		out.ClearNull(c)
		switch p {
		case rel.WindowStart:
			out.SetInt64(w, start)
		case rel.WindowEnd:
			out.SetInt64(w, end)
		case rel.WindowTime:
			if l.Type(c).Kind() == row.KindTimestampLTZ {
				out.SetInt64(w, win.due(end))
			} else {
				out.SetInt64(w, end-1)
			}
		case rel.WindowProcTime:
			out.SetInt64(w, win.due(end))
		}
	}
}

// fillKey sets the first n columns of out from an encoded key.
func fillKey(enc *row.KeyEncoder, ofKey *row.Layout, scratch *row.Row, key string, l *row.Layout, out *row.Row, n int) {
	if _, err := enc.Decode(bytesOf(key), ofKey, scratch); err != nil {
		damaged("a window", err)
	}
	for i := range n {
		l.CopyColumn(out, i, ofKey, scratch, i)
	}
}
