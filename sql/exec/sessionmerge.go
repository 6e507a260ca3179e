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

// session is an open session with the accumulators of its rows.
type session struct {
	span
	// timer is for when a timer is set: when the session is over, or before. A row that makes the session longer leaves it.
	timer int64
	state fn.State
}

// openSessions is the sessions of a key, by their starts.
type openSessions []session

// openSessionsCodec stores of each session its start, length and timer, and the accumulators with their length in front.
type openSessionsCodec struct{ accumulators }

// Append is of statestore.Codec.
func (c openSessionsCodec) Append(dst []byte, v *openSessions) []byte {
	for i := range *v {
		s := &(*v)[i]
		dst = binary.AppendVarint(dst, s.start)
		dst = binary.AppendVarint(dst, s.end-s.start)
		dst = binary.AppendVarint(dst, s.timer-s.start)
		at := len(dst)
		dst = c.accumulators.Append(dst, &s.state)
		var length [binary.MaxVarintLen64]byte
		n := binary.PutUvarint(length[:], uint64(len(dst)-at))
		dst = slices.Insert(dst, at, length[:n]...)
	}
	return dst
}

// Decode is of statestore.Codec.
func (c openSessionsCodec) Decode(src []byte, v *openSessions) error {
	*v = (*v)[:0]
	for len(src) > 0 {
		var s session
		for _, x := range []*int64{&s.start, &s.end, &s.timer} {
			d, n := binary.Varint(src)
			if n <= 0 {
				return fmt.Errorf("decode sessions: the value ends within a time")
			}
			*x, src = d, src[n:]
		}
		s.end, s.timer = s.start+s.end, s.start+s.timer
		length, n := binary.Uvarint(src)
		if n <= 0 || length > uint64(len(src)-n) {
			return fmt.Errorf("decode sessions: the value ends within accumulators")
		}
		src = src[n:]
		if err := c.accumulators.Decode(src[:length], &s.state); err != nil {
			return err
		}
		*v, src = append(*v, s), src[length:]
	}
	return nil
}

// Schema is of statestore.Codec.
func (c openSessionsCodec) Schema() string { return "sessions of " + c.schema }

// Copy is of statestore.Copier.
func (c openSessionsCodec) Copy(dst, src *openSessions) {
	to := (*dst)[:0]
	for i := range *src {
		s := &(*src)[i]
		if i < cap(to) {
			to = to[:i+1]
		} else {
			to = append(to, session{})
		}
		to[i].span, to[i].timer = s.span, s.timer
		c.accumulators.Copy(&to[i].state, &s.state)
	}
	*dst = to
}

// Size is of statestore.Copier.
func (c openSessionsCodec) Size(v *openSessions) int {
	n := 0
	for i := range *v {
		n += 80 + c.accumulators.Size(&(*v)[i].state)
	}
	return n
}

// Own is of statestore.Copier.
func (openSessionsCodec) Own(*openSessions) bool { return true }

// mergedSessions is PWindowAgg over sessions whose aggregates merge: an accumulator for each session, no rows.
type mergedSessions struct {
	clock
	sessionResult
	win    windowing
	keys   *row.KeyEncoder
	main   *valueState[openSessions]
	timers *statestore.Timers[string]
	key    []byte
	over   openSessions
}

// mergesSessions says whether the aggregates can be computed by mergedSessions: rows only come, and what counts is which rows
// a session has, not the order in which they came.
func mergesSessions(n *rel.PWindowAgg, g *groups) bool {
	for i := range g.agg.calls {
		if a := &g.agg.calls[i]; a.acc.Merge == nil || a.call.Func.Agg.Arrival {
			return false
		}
	}
	return !n.Retracts && len(g.sets) == 0
}

func newMergedSessions(n *rel.PWindowAgg, c Context, g *groups) (Operator, error) {
	in := rel.Layout(n.In[0])
	o := &mergedSessions{clock: clock{c: c, proc: n.Spec.Proc}, win: newWindowing(n.Spec, in, c.Env()), keys: row.NewKeyEncoder(in, n.Groups...)}
	o.fire = o.release
	keys := keysOf(o.keys, in, n.Groups).(rowKeys)
	o.sessionResult = newSessionResult(n, g, keys)
	var err error
	if o.main, err = openTable(c, "sessions", statestore.KeyCodec[string](keys), statestore.Codec[openSessions](openSessionsCodec{o.groups.agg.codec()}), 0); err != nil {
		return nil, err
	}
	if ts, open := c.Store(StoreSpec{Name: "timers", Kind: statestore.KindTimers, Key: keys.Schema()}); open {
		if o.timers, err = statestore.NewTimers(c.State(), ts, statestore.KeyCodec[string](keys)); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// Start is of Starter.
func (o *mergedSessions) Start() error {
	if at, ok := o.timers.Next(); ok {
		o.due(at)
	}
	return nil
}

// Process is of Operator.
func (o *mergedSessions) Process(input int, r *row.Row) error {
	at := o.win.time(r, o.c.Env())
	o.key = o.keys.Append(o.key[:0], r)
	g, k := o.c.Group(o.key), view(o.key)
	s := span{at, at + o.win.spec.Size}
	first, n := 0, 0 // the sessions that become one with the row: they lie one behind the other
	if v := o.main.Get(g, k); v != nil {
		for i, x := range *v {
			switch {
			case x.end < s.start:
				first = i + 1
			case x.start <= s.end:
				s = span{min(s.start, x.start), max(s.end, x.end)}
				n++
			}
		}
	}
	if o.win.due(s.end) <= o.now() {
		o.c.Late(input, r)
		return nil
	}
	v, _ := o.main.Update(g, k)
	if n == 0 {
		x := session{span: s, timer: o.win.due(s.end)}
		o.groups.agg.init(&x.state)
		*v = slices.Insert(*v, first, x)
		o.timers.Set(x.timer, g, k, 0)
		o.due(x.timer)
	}
	x := &(*v)[first]
	x.span = s
	for i := 1; i < n; i++ {
		from := &(*v)[first+i]
		o.groups.agg.merge(x.state, from.state)
		x.timer = min(x.timer, from.timer) // the others come for nothing
	}
	if n > 1 {
		*v = slices.Delete(*v, first+1, first+n)
	}
	x.state.W[0]++
	o.groups.count(x.state, r)
	return nil
}

func (o *mergedSessions) release(upTo int64) error {
	if err := popTimers(o.c, o.timers, upTo, o.end); err != nil {
		return err
	}
	return o.Start()
}

// end closes the sessions of a key that are over, and sets the timers anew of those that have become longer.
func (o *mergedSessions) end(at int64, g statestore.Group, k string) error {
	if o.main.Get(g, k) == nil {
		return nil
	}
	v, _ := o.main.Update(g, k)
	o.over = o.over[:0]
	rest := (*v)[:0]
	for _, s := range *v {
		due := o.win.due(s.end)
		if due <= at {
			o.over = append(o.over, s)
			continue
		}
		if s.timer <= at {
			s.timer = due
			o.timers.Set(due, g, k, 0)
		}
		rest = append(rest, s)
	}
	clear((*v)[len(rest):])
	*v = rest
	if len(rest) == 0 {
		o.main.Delete(g, k)
	}
	for i := range o.over {
		s := &o.over[i]
		if err := o.c.Emit(o.of(o.keys, k, &o.win, s.span, s.state)); err != nil {
			return err
		}
	}
	return nil
}
