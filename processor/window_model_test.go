package processor_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/window"
)

// winCase is one window operator, for the operator and for the model.
type winCase struct {
	kind                string // sliding, tumbling, cumulate, day, session, dynamic, global
	size, slide, offset int64
	lateness, bound     int64
	onUpdate            bool
	trigger             string // "", at-watermark, count, every; purging- before it
	n                   int64  // of the trigger
	how                 string // aggregate, reduce, apply, process
}

var losAngeles = func() *time.Location {
	l, err := time.LoadLocation("America/Los_Angeles")
	if err != nil {
		panic(err)
	}
	return l
}()

func (c winCase) assigner() window.Assigner {
	var a window.Assigner
	switch c.kind {
	case "tumbling":
		a = window.Tumbling(ms(c.size))
	case "sliding":
		a = window.Sliding(ms(c.size), ms(c.slide))
	case "cumulate":
		a = window.Cumulate(ms(c.size), ms(c.slide))
	case "day":
		a = window.Day(losAngeles)
	case "session":
		a = window.Session(ms(c.size))
	case "dynamic":
		return window.SessionFunc(func(e event) time.Duration { return ms(c.gap(e)) })
	case "global":
		a = window.Global()
	}
	if c.offset != 0 {
		a = window.Offset(a, ms(c.offset))
	}
	return a
}

// gap is that of one event.
func (c winCase) gap(e event) int64 {
	if c.kind == "dynamic" {
		return 1 + e.N%c.size
	}
	return c.size
}

// winRow is one result.
type winRow struct {
	Key        string
	Start, End int64
	IDs        []int `json:",omitempty"` // sorted unless apply, whose order is that of event times
	Sum        int64
	Timing     string
	Index      int64
	At         int64 // event time of the result
}

type winAcc struct {
	IDs []int
	Sum int64
}

func rowOf(w processor.Window[string], ids []int, sum int64, sorted bool) winRow {
	ids = slices.Clone(ids)
	if sorted {
		slices.Sort(ids)
	}
	r := winRow{Key: w.Key, IDs: ids, Sum: sum, Timing: w.Pane.Timing.String(), Index: w.Pane.Index}
	if !w.End.IsZero() {
		r.Start, r.End = w.Start.UnixMilli(), w.End.UnixMilli()
	}
	return r
}

func winAgg() processor.Aggregator[event, winAcc] {
	return processor.Fold(func(a *winAcc, e event) { a.IDs = append(a.IDs, e.ID); a.Sum += e.N }).
		Merging(func(a, b *winAcc) { a.IDs = append(a.IDs, b.IDs...); a.Sum += b.Sum })
}

func (c winCase) topology(t *processor.Topology) {
	s := processor.FromKeyed(t, format.String(), processor.Topic[event]{Name: "in", EventTime: eventTime, MaxOutOfOrder: ms(c.bound)})
	late := processor.NewOutputTag[event]("late")
	w := c.windowed(s).LateTo(late)
	var out processor.KeyedStream[string, winRow]
	switch c.how {
	case "apply":
		out = processor.ApplyWindow(w, "w", func(w processor.Window[string], vs iter.Seq[event], emit func(winRow)) error {
			var a winAcc
			for v := range vs {
				a.IDs = append(a.IDs, v.ID)
				a.Sum += v.N
			}
			emit(rowOf(w, a.IDs, a.Sum, false))
			return nil
		})
	case "flat": // an accumulator without pointers
		out = processor.Aggregate(w, "w", processor.Sum(func(e event) int64 { return e.N }), func(w processor.Window[string], sum int64) winRow {
			return rowOf(w, nil, sum, true)
		})
	default:
		out = processor.Aggregate(w, "w", winAgg(), func(w processor.Window[string], a winAcc) winRow { return rowOf(w, a.IDs, a.Sum, true) })
	}
	timed := processor.Process(out, "time", func(ctx *processor.KeyedContext[string, winRow, winRow]) {
		ctx.OnRecord(func(r winRow) error { r.At = ctx.Timestamp().UnixMilli(); ctx.Emit(r); return nil })
	})
	processor.ToTopic(timed, "out")
	processor.To(processor.SideOutput(out, late), processor.SinkTopic[event]{Name: "late", Key: func(e event) []byte { return []byte(e.Key) }})
}

// windowed cuts a stream as the case says.
func (c winCase) windowed(s processor.KeyedStream[string, event]) processor.WindowedStream[string, event] {
	w := s.Window(c.assigner())
	if c.lateness > 0 {
		w = w.AllowedLateness(ms(c.lateness))
	}
	if c.onUpdate {
		w = w.EmitOnUpdate()
	}
	if c.trigger != "" {
		name, purging := c.trigger, false
		if len(name) > 8 && name[:8] == "purging-" {
			name, purging = name[8:], true
		}
		var tr window.Trigger
		switch name {
		case "at-watermark":
			tr = window.AtWatermark()
		case "count":
			tr = window.EveryCount(int(c.n))
		case "every":
			tr = window.EveryEventTime(ms(c.n))
		}
		if purging {
			tr = window.Purging(tr)
		}
		w = w.Trigger(tr)
	}
	return w
}

// arrived is an event with its place in the order of arrival.
type arrived struct {
	event
	n int
}

// mWindow is a window of the model: it holds all its events.
type mWindow struct {
	key        string
	start, end int64
	events     []arrived
	latest     int64
	fired      int64
	onTime     bool
	timers     map[int64]bool // of the trigger
	state      int64
	set        bool
}

// windows are those of an event, by looking at all that may be.
func (c winCase) windows(at int64) (ws [][2]int64) {
	switch c.kind {
	case "tumbling":
		s := floorDiv(at-c.offset, c.size)*c.size + c.offset
		return [][2]int64{{s, s + c.size}}
	case "sliding":
		for i := floorDiv(at-c.size-c.offset, c.slide) - 2; i*c.slide+c.offset <= at; i++ {
			if s := i*c.slide + c.offset; s <= at && at < s+c.size {
				ws = append(ws, [2]int64{s, s + c.size})
			}
		}
	case "cumulate":
		s := floorDiv(at-c.offset, c.size)*c.size + c.offset
		for e := s + c.slide; e <= s+c.size; e += c.slide {
			if at < e {
				ws = append(ws, [2]int64{s, e})
			}
		}
	case "day":
		y, m, d := time.UnixMilli(at).In(losAngeles).Date()
		return [][2]int64{{time.Date(y, m, d, 0, 0, 0, 0, losAngeles).UnixMilli(), time.Date(y, m, d+1, 0, 0, 0, 0, losAngeles).UnixMilli()}}
	case "global":
		return [][2]int64{{math.MinInt64, math.MaxInt64}}
	}
	return ws
}

func (c winCase) model(events []event) (rows, late []string) {
	rows, late = c.firings(events)
	slices.Sort(rows)
	slices.Sort(late)
	return rows, late
}

// firings are the results in their order.
func (c winCase) firings(events []event) (rows, late []string) {
	var open []*mWindow
	wm, highest := int64(math.MinInt64), int64(math.MinInt64)
	session := c.kind == "session" || c.kind == "dynamic"
	trigger, purging := c.trigger, false
	if len(trigger) > 8 && trigger[:8] == "purging-" {
		trigger, purging = trigger[8:], true
	}
	fire := func(w *mWindow, timing string) {
		if len(w.events) == 0 {
			return
		}
		es := slices.Clone(w.events)
		slices.SortFunc(es, func(a, b arrived) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.n, b.n)) })
		r := winRow{Key: w.key, Start: w.start, End: w.end, Timing: timing, Index: w.fired, At: w.end - 1}
		if w.end == math.MaxInt64 {
			r.Start, r.End, r.At = 0, 0, w.latest
		}
		for _, e := range es {
			r.Sum += e.N
			if c.how != "flat" {
				r.IDs = append(r.IDs, e.ID)
			}
		}
		if c.how != "apply" {
			slices.Sort(r.IDs)
		}
		w.fired++
		b, _ := json.Marshal(r)
		rows = append(rows, fmt.Sprintf("%s=%s @%d", w.key, b, max(r.At, 0)))
		if purging {
			w.events = nil
		}
	}
	ends := func(w *mWindow) bool { return w.end != math.MaxInt64 && w.end-1+c.lateness <= wm }
	add := func(w *mWindow, e arrived) {
		w.events = append(w.events, e)
		w.latest = max(w.latest, e.At)
		timing := "early"
		if w.end == math.MaxInt64 {
			timing = "on-time"
		} else if w.end-1 <= wm {
			timing = "late"
		}
		switch trigger {
		case "":
			if timing == "late" {
				w.onTime = true
				fire(w, "late")
			} else if c.onUpdate {
				fire(w, "early")
			}
		case "at-watermark":
			if timing == "late" {
				fire(w, timing)
			} else {
				w.timers[w.end-1] = true
			}
		case "count":
			if w.state++; w.state >= c.n {
				w.state = 0
				fire(w, timing)
			}
		case "every":
			if timing == "late" {
				fire(w, timing)
				return
			}
			if w.end != math.MaxInt64 {
				w.timers[w.end-1] = true
			}
			if at := (floorDiv(e.At, c.n) + 1) * c.n; !w.set && at < w.end-1 {
				w.timers[at] = true
			}
			w.set = true
		}
	}
	for n, e := range events {
		e := arrived{e, n}
		took, any := false, false
		if session {
			n := &mWindow{key: e.Key, start: e.At, end: e.At + c.gap(e.event), latest: math.MinInt64, timers: map[int64]bool{}}
			var touched []*mWindow
			for _, w := range open {
				if w.key == e.Key && w.start <= n.end && w.end >= n.start {
					touched = append(touched, w)
				}
			}
			any = true
			if len(touched) > 0 || !(n.end-1+c.lateness <= wm) {
				took = true
				if len(touched) > 0 {
					slices.SortFunc(touched, func(a, b *mWindow) int { return int(a.start - b.start) })
					was := *n
					n.fired, n.onTime = 0, true
					for i, w := range touched {
						n.start, n.end = min(n.start, w.start), max(n.end, w.end)
						n.events = append(n.events, w.events...)
						n.latest, n.fired = max(n.latest, w.latest), max(n.fired, w.fired)
						n.onTime = n.onTime && w.onTime
						n.state += w.state
						if i == 0 {
							n.state = w.state
						}
					}
					_ = was
					if n.end-1 > wm && (len(touched) > 1 || n.end != touched[0].end) {
						n.onTime = false
					}
					open = slices.DeleteFunc(open, func(w *mWindow) bool { return slices.Contains(touched, w) })
				}
				open = append(open, n)
				add(n, e)
			}
		} else {
			for _, b := range c.windows(e.At) {
				any = true
				w := &mWindow{key: e.Key, start: b[0], end: b[1]}
				if b[1] != math.MaxInt64 && b[1]-1+c.lateness <= wm {
					continue
				}
				took = true
				i := slices.IndexFunc(open, func(o *mWindow) bool { return o.key == e.Key && o.start == b[0] && o.end == b[1] })
				if i < 0 {
					w.timers, w.latest = map[int64]bool{}, math.MinInt64
					open = append(open, w)
				} else {
					w = open[i]
				}
				add(w, e)
			}
		}
		if any && !took {
			b, _ := json.Marshal(e.event)
			late = append(late, fmt.Sprintf("%s=%s @%d", e.Key, b, max(e.At, 0)))
		}
		highest = max(highest, e.At)
		wm = max(wm, highest-c.bound-1)
		for _, w := range open {
			for trigger != "" {
				next := int64(math.MaxInt64)
				for at := range w.timers {
					next = min(next, at)
				}
				if next > wm || w.end != math.MaxInt64 && next > w.end-1+c.lateness {
					break
				}
				delete(w.timers, next)
				timing := "early"
				switch {
				case w.end == math.MaxInt64:
					timing = "on-time"
				case next >= w.end-1:
					timing = "on-time"
				}
				if trigger == "every" {
					if at := (floorDiv(next, c.n) + 1) * c.n; at < w.end-1 {
						w.timers[at] = true
					}
					fire(w, timing)
				} else if next == w.end-1 {
					fire(w, timing)
				}
			}
			if trigger == "" && !w.onTime && w.end-1 <= wm {
				w.onTime = true
				fire(w, "on-time")
			}
		}
		open = slices.DeleteFunc(open, ends)
	}
	return rows, late
}

func (c winCase) random(rng *rand.Rand) winCase {
	c.kind = []string{"tumbling", "sliding", "sliding", "cumulate", "session", "session", "dynamic", "global"}[rng.IntN(8)]
	c.size, c.bound = 1+rng.Int64N(60), rng.Int64N(30)
	switch c.kind {
	case "sliding":
		unit := 1 + rng.Int64N(8)
		c.size, c.slide = unit*(1+rng.Int64N(20)), unit*(1+rng.Int64N(6))
	case "cumulate":
		c.slide = 1 + rng.Int64N(15)
		c.size = c.slide * (1 + rng.Int64N(8))
	case "session", "dynamic":
		c.size = 1 + rng.Int64N(20)
	}
	if c.kind == "tumbling" || c.kind == "sliding" || c.kind == "cumulate" {
		if rng.IntN(2) == 0 {
			c.offset = rng.Int64N(100) - 50
		}
	}
	if rng.IntN(2) == 0 && c.kind != "global" {
		c.lateness = rng.Int64N(100)
	}
	c.how = []string{"aggregate", "flat", "apply"}[rng.IntN(3)]
	triggers := []string{"", "", "", "count", "purging-count", "at-watermark", "purging-at-watermark", "every", "purging-every"}
	c.trigger = triggers[rng.IntN(len(triggers))]
	session := c.kind == "session" || c.kind == "dynamic"
	switch {
	case c.kind == "global":
		c.trigger, c.n = []string{"count", "purging-count", "every", "purging-every"}[rng.IntN(4)], 1+rng.Int64N(50)
	case session && c.trigger != "":
		c.trigger = []string{"", "count", "purging-count"}[rng.IntN(3)]
	}
	c.n = 1 + rng.Int64N(30)
	if c.trigger == "" {
		c.onUpdate = rng.IntN(3) == 0
	}
	return c
}

// Every assigner with every trigger gives what a model gives that keeps all events and looks at all windows, whatever
// the batches, crashes and write-behinds.
func TestAllWindowsEqualModel(t *testing.T) {
	lates, kinds := 0, map[string]int{}
	for seed := range seeds(t, 60) {
		rng := rand.New(rand.NewPCG(seed, 11))
		c := winCase{}.random(rng)
		events := stream(rng, 250, -600, rng.Int64N(40), 200)
		wantOut, wantLate := c.model(events)
		lates += len(wantLate)
		kinds[c.kind+" "+c.trigger] += len(wantOut)
		for _, o := range []driverOptions{{batch: 1}, {batch: 1000}, {batch: 20, crash: 0.4, behind: 0.7}} {
			o.seed = seed
			d := newDriver(t, c.topology, o)
			for _, e := range events {
				d.sendKeyed("in", e.Key, e, e.At)
			}
			t.Logf("seed %d %+v %+v", seed, c, o)
			d.run()
			wantRows(t, d.rows("out"), wantOut...)
			wantRows(t, d.rows("late"), wantLate...)
			if t.Failed() {
				return
			}
		}
	}
	if lates == 0 {
		t.Fatal("no event was late: the test has no teeth")
	}
	t.Log(kinds)
}
