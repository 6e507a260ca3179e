package exec

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/rel"
	"github.com/millrace-stream/millrace/statestore"
)

// emittingAgg is PWindowAgg with table.exec.emit.*: the result of a window comes before its end too, and is updated by rows
// that come behind it, until the allowed lateness is over. A result that is the same as the last one is not put out again.
type emittingAgg struct {
	*windowAgg
	panes    *statestore.Windows[string, pane]
	timers   *statestore.Timers[string] // of firings after a delay: window end and key
	last     *row.Row
	lateness int64
	pair     []byte // window end and key
}

// pane is what was put out of a window and key.
type pane struct {
	first int64 // processing time of the first delayed firing's row: the others lie multiples of the delay behind it
	timer int64 // when the next delayed firing is; 0 = none is asked for
	row   packed
}

type paneCodec struct{ schema string }

// Append is of statestore.Codec.
func (paneCodec) Append(dst []byte, v *pane) []byte {
	return append(binary.AppendVarint(binary.AppendVarint(dst, v.first), v.timer), v.row...)
}

// Decode is of statestore.Codec.
func (c paneCodec) Decode(src []byte, v *pane) error {
	for _, to := range []*int64{&v.first, &v.timer} {
		x, n := binary.Varint(src)
		if n <= 0 {
			return fmt.Errorf("decode %s: the value ends within a time", c.schema)
		}
		*to, src = x, src[n:]
	}
	v.row = slices.Clone(packed(src))
	return nil
}

// Flat is of statestore.Codec.
func (paneCodec) Flat() bool { return true }

// Owned is of statestore.Owner.
func (paneCodec) Owned() {}

// Schema is of statestore.Codec.
func (c paneCodec) Schema() string { return c.schema }

// emitting adds early and late firing to an aggregate of windows.
func emitting(o *windowAgg) (Operator, error) {
	e := &emittingAgg{windowAgg: o, last: o.out.New()}
	if !o.proc {
		e.lateness = max(o.n.Emit.AllowLateness, 0)
	}
	keys := o.windowKeys
	codec := statestore.Codec[pane](paneCodec{"pane " + o.out.Schema()})
	spec, open := o.c.Store(StoreSpec{Name: "panes", Kind: statestore.KindWindows, Key: keys.rowKeys.Schema(), Value: codec.Schema(), Life: o.life(), Windows: windowsText(o.n)})
	ts, _ := o.c.Store(StoreSpec{Name: "timers", Kind: statestore.KindTimers, Key: keys.Schema()})
	if !open {
		return e, nil
	}
	var err error
	if e.panes, err = statestore.NewWindows(o.c.State(), spec, statestore.KeyCodec[string](keys.rowKeys), codec); err != nil {
		return nil, err
	}
	e.timers, err = statestore.NewTimers(o.c.State(), ts, statestore.KeyCodec[string](keys))
	return e, err
}

// over is the time up to which a window takes rows.
func (o *emittingAgg) over(end int64) int64 {
	at := o.win.due(end)
	if at > math.MaxInt64-o.lateness {
		return math.MaxInt64
	}
	return at + o.lateness
}

// Start is of Starter.
func (o *emittingAgg) Start() error {
	now := o.now()
	end, ok := o.main.Next()
	if ok && o.win.due(end) <= now { // it has fired, and waits for its end
		o.due(o.over(end))
		for ok && o.win.due(end) <= now {
			end, ok = o.main.After(end)
		}
	}
	if ok {
		o.due(o.win.due(end))
	}
	if at, ok := o.timers.Next(); ok {
		o.c.DueProcessing(at)
	}
	return nil
}

// Process is of Operator.
func (o *emittingAgg) Process(input int, r *row.Row) (err error) {
	o.key = o.keys.Append(o.key[:0], r)
	g := o.c.Group(o.key)
	now, late, any := o.now(), 0, false
	o.win.windows(o.win.time(r, o.c.Env()), func(_, end int64) {
		switch {
		case err != nil:
			return
		case o.over(end) <= now || end <= o.main.Horizon():
			late++
			return
		}
		any = true
		if o.one(end, g, r) {
			err = o.Start()
		}
		delay := o.n.Emit.EarlyDelay
		if o.win.due(end) <= now {
			delay = max(o.n.Emit.LateDelay, 0)
			if p := o.panes.Get(end, g, view(o.key)); p == nil || len(p.row) == 0 {
				delay = 0 // the first result, at once
			}
		}
		switch {
		case err != nil || delay < 0:
		case delay == 0:
			err = o.update(end, g, string(o.key))
		default:
			o.later(end, g, delay)
		}
	})
	if !any && late > 0 {
		o.c.Late(input, r)
	}
	return err
}

// later asks for a firing after a delay, unless there is one to come.
func (o *emittingAgg) later(end int64, g statestore.Group, delay int64) {
	p, _ := o.panes.Update(end, g, view(o.key))
	if p.timer != 0 {
		return
	}
	now := o.c.Env().Now
	if p.first == 0 {
		p.first = now
	}
	p.timer = now + delay - row.FloorMod(now-p.first, delay)
	o.pair = append(appendEnd(o.pair[:0], end), o.key...)
	o.timers.Set(p.timer, g, view(o.pair), 0)
	o.c.DueProcessing(p.timer)
}

// update puts out the result of a window and key, if it is another than before.
func (o *emittingAgg) update(end int64, g statestore.Group, key string) error {
	s := o.main.Get(end, g, key)
	if s == nil {
		return nil
	}
	var was packed
	if p := o.panes.Get(end, g, key); p != nil {
		was = p.row
	}
	there := int64(s.W[0]) > 0
	if len(was) > 0 {
		if err := o.out.Unpack(was, o.last); err != nil {
			damaged("a window", err)
		}
		o.last.Time = o.win.instant(end) - 1
	}
	if there {
		o.fill(end, key, *s)
		if len(was) > 0 && equalRows(o.out, o.last, o.result) {
			return nil
		}
	} else if len(was) == 0 {
		return nil
	}
	var now packed
	if there {
		now = o.out.Pack(nil, o.result)
	}
	p, _ := o.panes.Update(end, g, key)
	p.row = now
	switch {
	case len(was) == 0:
		o.result.Kind = row.Insert
		return o.c.Emit(o.result)
	case !there:
		o.last.Kind = row.Delete
		return o.c.Emit(o.last)
	}
	if o.n.Form != rel.After {
		o.last.Kind = row.UpdateBefore
		if err := o.c.Emit(o.last); err != nil {
			return err
		}
		if err := o.out.Unpack(now, o.result); err != nil {
			damaged("a window", err)
		}
	}
	o.result.Kind, o.result.Time = row.UpdateAfter, o.win.instant(end)-1
	return o.c.Emit(o.result)
}

// OnWatermark is of Timed: windows that have ended fire, and those whose lateness is over go.
func (o *emittingAgg) OnWatermark(before, watermark int64) error {
	return o.advance(before, watermark)
}

// OnTime is of ProcTimed.
func (o *emittingAgg) OnTime(now int64) error {
	for {
		at, g, k, _, ok := o.timers.Pop(now)
		if !ok {
			break
		}
		end, key := timeAt(k), k[8:]
		err := o.c.Atomic(g, o.win.instant(end)-1, bytesOf(key), func() error {
			if p := o.panes.Get(end, g, key); p == nil || p.timer != at {
				return nil // of a window that is gone
			}
			p, _ := o.panes.Update(end, g, key)
			p.timer = 0
			return o.update(end, g, key)
		})
		if err != nil {
			return err
		}
	}
	if o.proc {
		return o.advance(math.MinInt64, now-1)
	}
	return o.Start()
}

func (o *emittingAgg) advance(before, upTo int64) error {
	var ends []int64
	for end, ok := o.main.Next(); ok && o.win.due(end) <= upTo; end, ok = o.main.After(end) {
		ends = append(ends, end)
	}
	for _, end := range ends {
		over := o.over(end) <= upTo
		if !over && o.win.due(end) <= before {
			continue // it has fired, and may still change
		}
		fires, err := o.entries(end)
		if err != nil {
			return err
		}
		for i := range fires {
			f := &fires[i]
			err := o.c.Atomic(f.g, o.win.instant(end)-1, bytesOf(f.key), func() error {
				if err := o.update(end, f.g, f.key); err != nil || !over {
					return err
				}
				if p := o.panes.Get(end, f.g, f.key); p != nil && p.timer != 0 {
					o.pair = append(appendEnd(o.pair[:0], end), f.key...)
					o.timers.Delete(p.timer, f.g, view(o.pair), 0)
				}
				o.forget(end, f)
				return nil
			})
			if err != nil {
				return err
			}
		}
		if over {
			o.main.Drop(end)
			o.panes.Drop(end)
		}
	}
	return o.Start()
}
