package processor_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/window"
)

// windowIDs is a window as "[start,end) ids timing index".
func windowIDs(w processor.Window[string], vs iter.Seq[event], emit func(string)) error {
	var s []string
	for v := range vs {
		s = append(s, fmt.Sprint(v.ID))
	}
	at := ""
	if !w.End.IsZero() {
		at = fmt.Sprintf("[%d,%d) ", w.Start.UnixMilli(), w.End.UnixMilli())
	}
	emit(fmt.Sprintf("%s%s: %s %s %d", at, w.Key, strings.Join(s, ","), w.Pane.Timing, w.Pane.Index))
	return nil
}

// applyDriver drives one ApplyWindow; send adds an event and gives what was emitted since.
type applyDriver struct {
	*driver
	t    *testing.T
	seen int
	n    int
}

func newApply(t *testing.T, bound int64, f func(s processor.KeyedStream[string, event]) processor.WindowedStream[string, event], o driverOptions) *applyDriver {
	t.Helper()
	return &applyDriver{driver: newDriver(t, func(top *processor.Topology) {
		s := processor.FromKeyed(top, format.String(), processor.Topic[event]{Name: "in", EventTime: eventTime, MaxOutOfOrder: ms(bound)})
		processor.To(processor.ApplyWindow(f(s), "w", windowIDs), processor.SinkTopic[string]{Name: "out"})
	}, o), t: t}
}

func (d *applyDriver) send(key string, at int64) []string {
	d.n++
	d.sendKeyed("in", key, event{ID: d.n, Key: key, N: int64(d.n), At: at}, at)
	return d.got()
}

func (d *applyDriver) got() []string {
	d.run()
	var rows []string
	all := d.records("out")
	for _, r := range all[d.seen:] {
		rows = append(rows, string(r.Value))
	}
	d.seen = len(all)
	return rows
}

func (d *applyDriver) want(got []string, want ...string) {
	d.t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		d.t.Fatalf("got %q\nwant %q", got, want)
	}
}

// P24: which windows of 10 ms every 4 ms (pieces of 2 ms) hold an event: at the start, the last ms, and the end.
func TestHopMembership(t *testing.T) {
	for at, want := range map[int64][][2]int64{
		0: {{-8, 2}, {-4, 6}, {0, 10}}, 1: {{-8, 2}, {-4, 6}, {0, 10}}, 2: {{-4, 6}, {0, 10}}, 3: {{-4, 6}, {0, 10}}, 4: {{-4, 6}, {0, 10}, {4, 14}},
		5: {{-4, 6}, {0, 10}, {4, 14}}, 6: {{0, 10}, {4, 14}}, 9: {{0, 10}, {4, 14}, {8, 18}}, 10: {{4, 14}, {8, 18}}, -1: {{-8, 2}, {-4, 6}}, -8: {{-16, -6}, {-12, -2}, {-8, 2}},
	} {
		d := newApply(t, 0, func(s processor.KeyedStream[string, event]) processor.WindowedStream[string, event] {
			return s.Window(window.Sliding(ms(10), ms(4)))
		}, driverOptions{})
		got := d.send("a", at)
		got = append(got, d.send("z", 1000)...)
		var rows []string
		for _, w := range want {
			rows = append(rows, fmt.Sprintf("[%d,%d) a: 1 on-time 0", w[0], w[1]))
		}
		d.want(got, rows...)
	}
}

// A slide longer than the size leaves gaps: what lies in them is dropped, and is not late.
func TestGapsBetweenWindows(t *testing.T) {
	d := newApply(t, 0, func(s processor.KeyedStream[string, event]) processor.WindowedStream[string, event] {
		return s.Window(window.Sliding(ms(4), ms(10)))
	}, driverOptions{})
	var got []string
	for _, at := range []int64{0, 3, 4, 9, 10, 13, 14, 40} {
		got = append(got, d.send("a", at)...)
	}
	d.want(got, "[0,4) a: 1,2 on-time 0", "[10,14) a: 5,6 on-time 0")
	if d.late() != 0 {
		t.Fatalf("%d late", d.late())
	}
	d.want(d.send("a", 12)) // its window has gone
	d.want(d.send("a", 6))  // it has none
	if d.late() != 1 {
		t.Fatalf("%d late, want 1", d.late())
	}
}

// P22: days of Los Angeles in which the clock is moved have 23 and 25 hours, and each event is in the day that the wall
// clock shows.
func TestDaysOfDaylightSaving(t *testing.T) {
	day := func(y int, m time.Month, d int) int64 { return time.Date(y, m, d, 0, 0, 0, 0, losAngeles).UnixMilli() }
	for _, c := range []struct {
		start, end int64
		hours      int64
	}{{day(2021, 3, 14), day(2021, 3, 15), 23}, {day(2021, 11, 7), day(2021, 11, 8), 25}, {day(2021, 6, 1), day(2021, 6, 2), 24}} {
		if c.end-c.start != c.hours*3_600_000 {
			t.Fatalf("the test is wrong: %d ms", c.end-c.start)
		}
		d := newDriver(t, func(top *processor.Topology) {
			s := processor.FromKeyed(top, format.String(), processor.Topic[event]{Name: "in", EventTime: eventTime})
			out := processor.Aggregate(s.Window(window.Day(losAngeles)), "days", processor.Count[event](), func(w processor.Window[string], n int64) string {
				return fmt.Sprintf("%d %d %d", w.Start.UnixMilli(), w.End.UnixMilli(), n)
			})
			processor.ToTopic(out, "out")
		}, driverOptions{crash: 0.2, behind: 0.5})
		half := int64(1_800_000)
		for at := c.start - 2*half; at <= c.end; at += half {
			d.sendKeyed("in", "a", event{At: at}, at)
		}
		d.sendKeyed("in", "a", event{At: c.end - 1}, c.end-1) // watermark = end - 1: too late
		d.run()
		want := fmt.Sprintf("a=%d %d %d @%d", c.start, c.end, 2*c.hours, c.end-1)
		if rows := d.rows("out"); !slices.Contains(rows, want) {
			t.Fatalf("got %q, want %q", rows, want)
		}
	}
}

// Sessions at their edges: exactly the gap apart is one session, 1 ms more are two; a late event joins two that still
// stand; one within the lateness extends a session that has fired.
func TestSessionEdges(t *testing.T) {
	session := func(lateness int64) func(processor.KeyedStream[string, event]) processor.WindowedStream[string, event] {
		return func(s processor.KeyedStream[string, event]) processor.WindowedStream[string, event] {
			return s.Window(window.Session(ms(10))).AllowedLateness(ms(lateness))
		}
	}
	for _, restart := range []bool{false, true} {
		o := driverOptions{behind: 0.5}
		if restart {
			o.crash = 0.4
		}
		d := newApply(t, 0, session(0), o)
		d.send("a", 0)
		d.want(d.send("a", 10)) // touches
		d.want(d.send("a", 21), "[0,20) a: 1,2 on-time 0")
		d.want(d.send("a", 19), []string{}...) // [19,29) touches the open one
		d.want(d.send("b", 20))                // ends at 30, watermark 20
		d.want(d.send("b", 11))                // alone it would end at 21, watermark 20: joins b's
		d.want(d.send("c", 11))                // [11,21): watermark 20 = end-1: late
		if d.late() != 1 && !restart {
			t.Fatalf("%d late, want 1", d.late())
		}
		d.want(d.send("z", 1000), "[19,31) a: 4,3 on-time 0", "[11,30) b: 6,5 on-time 0")

		d = newApply(t, 30, session(0), o)
		d.send("a", 0)
		d.send("a", 25)
		d.want(d.send("a", 12)) // no neighbour: three sessions
		d.want(d.send("a", 20)) // joins 12 and 25
		d.want(d.send("a", 5))  // joins all
		d.want(d.send("z", 1000), "[0,35) a: 1,5,3,4,2 on-time 0")

		d = newApply(t, 0, session(20), o)
		d.send("a", 0)
		d.want(d.send("z", 12), "[0,10) a: 1 on-time 0")
		d.want(d.send("a", 3)) // it ends at 13 now: not yet
		d.want(d.send("z", 13), "[0,13) a: 1,3 on-time 1")
		d.want(d.send("a", 2), "[0,13) a: 1,5,3 late 2")

		// The firings of sessions that become one are counted on from the one that has more.
		d = newApply(t, 0, session(100), o)
		d.send("a", 0)
		d.send("a", 30)
		d.want(d.send("z", 60), "[30,40) a: 2 on-time 0")
		d.want(d.send("a", 31), "[30,41) a: 2,4 late 1")
		d.want(d.send("a", 32), "[30,42) a: 2,4,5 late 2")
		d.want(d.send("a", 10), "[0,20) a: 1,6 late 1")
		d.want(d.send("a", 20), "[0,42) a: 1,6,7,2,4,5 late 3")
	}
}

// Count windows give the last values after every slide of them, whatever the restarts.
func TestCountWindowsEqualModel(t *testing.T) {
	for seed := range seeds(t, 20) {
		rng := rand.New(rand.NewPCG(seed, 3))
		size, slide := 1+rng.IntN(9), 1+rng.IntN(9)
		if seed == 0 {
			size, slide = 4, 4
		}
		o := driverOptions{seed: seed, batch: 1 + rng.IntN(30), crash: 0.3, behind: 0.5}
		d := newApply(t, 0, func(s processor.KeyedStream[string, event]) processor.WindowedStream[string, event] {
			return s.CountWindow(size, slide)
		}, o)
		sums := newDriver(t, func(top *processor.Topology) {
			s := processor.FromKeyed(top, format.String(), processor.Topic[event]{Name: "in", EventTime: eventTime})
			processor.ToTopic(processor.Aggregate(s.CountWindow(size, slide), "w", processor.Sum(func(e event) int64 { return e.N }),
				func(w processor.Window[string], n int64) int64 { return n }), "out")
		}, o)
		values := map[string][]event{}
		var want, wantSums []string
		for i, e := range stream(rng, 150, 0, 20, 50) {
			e.ID = i
			d.sendKeyed("in", e.Key, e, e.At)
			sums.sendKeyed("in", e.Key, e, e.At)
			vs := append(values[e.Key], e)
			values[e.Key] = vs
			if len(vs)%slide != 0 {
				continue
			}
			last := vs[max(0, len(vs)-size):]
			var s []string
			sum, at := int64(0), int64(math.MinInt64)
			for _, v := range last {
				s = append(s, fmt.Sprint(v.ID))
				sum += v.N
				at = max(at, v.At)
			}
			want = append(want, fmt.Sprintf("%s: %s on-time %d", e.Key, strings.Join(s, ","), len(vs)/slide-1))
			wantSums = append(wantSums, fmt.Sprintf("%s=%d @%d", e.Key, sum, max(at, 0)))
		}
		t.Logf("seed %d: size %d slide %d", seed, size, slide)
		d.want(d.got(), want...)
		sums.run()
		wantRows(t, sums.rows("out"), wantSums...)
	}
}

// P18: one key, three records, then silence: with AdvanceWhenIdle the session ends with the clock, once, also with a
// restart in between; without it stays. What comes afterwards behind the clock is late: that is the price.
func TestQuietStreamGoesOnWithTheClock(t *testing.T) {
	for _, kind := range []string{"session", "tumbling", "sliding", "none", "trigger"} {
		for _, restart := range []bool{false, true} {
			d := newApply(t, 2000, func(s processor.KeyedStream[string, event]) processor.WindowedStream[string, event] {
				switch kind {
				case "tumbling":
					return s.Window(window.Tumbling(10 * time.Second)).AdvanceWhenIdle(3 * time.Second)
				case "sliding":
					return s.Window(window.Sliding(10*time.Second, 5*time.Second)).AdvanceWhenIdle(3 * time.Second)
				case "trigger":
					return s.Window(window.Tumbling(10 * time.Second)).Trigger(window.AtWatermark()).AdvanceWhenIdle(3 * time.Second)
				case "none":
					return s.Window(window.Session(10 * time.Second))
				}
				return s.Window(window.Session(10 * time.Second)).AdvanceWhenIdle(3 * time.Second)
			}, driverOptions{})
			for _, at := range []int64{1000, 3000, 2500} {
				d.want(d.send("a", at))
			}
			var got []string
			wait := func(total int64) {
				for passed := int64(0); passed < total; passed += 500 {
					d.pass(500)
					if restart && passed == 4000 {
						d.Tasks[0].Restart()
					}
					got = append(got, d.got()...)
				}
			}
			wait(1000)
			d.want(got)
			wait(40_000)
			switch kind {
			case "none":
				d.want(got)
				continue
			case "session":
				d.want(got, "[1000,13000) a: 1,3,2 on-time 0")
			case "sliding":
				d.want(got, "[-5000,5000) a: 1,3,2 on-time 0", "[0,10000) a: 1,3,2 on-time 0")
			default:
				d.want(got, "[0,10000) a: 1,3,2 on-time 0")
			}
			if n := d.Tasks[0].Task.Stats().NextTimer; n != math.MaxInt64 && !restart {
				t.Fatalf("%s: nothing is open, and a timer is set for %d", kind, n)
			}
			d.want(d.send("a", 2600)) // its window is gone, though its partition was only at 3000
			d.want(d.send("a", 100_000))
		}
	}
}

// Windows of processing time take the clock of the moment, fire by it, and lose nothing to restarts.
func TestProcessingTimeWindows(t *testing.T) {
	for _, c := range []struct {
		a       window.Assigner
		want    int // firings of each event
		trigger window.Trigger
	}{
		{window.Tumbling(time.Second), 1, nil},
		{window.Sliding(2*time.Second, 500*time.Millisecond), 4, nil},
		{window.Session(700 * time.Millisecond), 1, nil},
		{window.Day(time.UTC), 1, nil},
		{window.Sliding(2*time.Second, 500*time.Millisecond), 4, window.AtWatermark()},
		{window.Session(700 * time.Millisecond), 1, window.Purging(window.AtWatermark())},
	} {
		for _, crash := range []float64{0, 0.3} {
			d := newApply(t, 0, func(s processor.KeyedStream[string, event]) processor.WindowedStream[string, event] {
				w := s.Window(window.ProcessingTime(c.a))
				if c.trigger != nil {
					w = w.Trigger(c.trigger)
				}
				return w
			}, driverOptions{crash: crash, behind: 0.5})
			var got []string
			for i := range 40 {
				got = append(got, d.send("a", 1_000_000-int64(i)*1000)...) // event times go back: nothing is late
				d.pass(50)
			}
			d.pass(5000)
			got = append(got, d.got()...)
			if c.a.Kind() == window.KindCalendar {
				d.pass(2 * 24 * 3600 * 1000)
				got = append(got, d.got()...)
			}
			seen := map[string]int{}
			for _, r := range got {
				if !strings.HasSuffix(r, " on-time 0") {
					t.Fatalf("%s: %q", c.a, r)
				}
				for _, id := range strings.Split(strings.Fields(r[strings.Index(r, "a: ")+3:])[0], ",") {
					seen[id]++
				}
			}
			for i := range 40 {
				if n := seen[fmt.Sprint(i+1)]; n != c.want {
					t.Fatalf("%s, crash %v: event %d is in %d results, want %d: %q", c.a, crash, i+1, n, c.want, got)
				}
			}
			if d.late() != 0 {
				t.Fatalf("%s: %d late", c.a, d.late())
			}
		}
	}
}

// When the clock goes back, with a task on another machine, what comes is not late: it is in the first window that has not
// fired.
func TestProcessingTimeGoesBack(t *testing.T) {
	for _, a := range []window.Assigner{window.Tumbling(time.Second), window.Sliding(time.Second, 500*time.Millisecond)} {
		d := newApply(t, 0, func(s processor.KeyedStream[string, event]) processor.WindowedStream[string, event] {
			return s.Window(window.ProcessingTime(a))
		}, driverOptions{})
		d.send("a", 1)
		d.pass(3000)
		if rows := d.got(); len(rows) == 0 {
			t.Fatal("nothing fired")
		}
		d.Now -= 60_000
		for _, st := range d.Tasks {
			st.Restart()
		}
		d.want(d.send("a", 1))
		d.pass(50_000)
		d.want(d.got())
		d.pass(20_000)
		if rows := d.got(); len(rows) == 0 || !strings.HasSuffix(rows[0], "a: 2 on-time 0") || d.late() != 0 {
			t.Fatalf("%s: %q, %d late", a, rows, d.late())
		}
	}
}

// EmitEarly fires what has changed, once for each interval, and after a restart what is open once more.
func TestEmitEarly(t *testing.T) {
	for kind, a := range map[string]window.Assigner{"tumbling": window.Tumbling(ms(1000)), "session": window.Session(ms(1000)), "sliding": window.Sliding(ms(1000), ms(500))} {
		d := newApply(t, 0, func(s processor.KeyedStream[string, event]) processor.WindowedStream[string, event] {
			return s.Window(a).EmitEarly(time.Minute).AllowedLateness(ms(100_000))
		}, driverOptions{})
		win := "[0,1000)"
		if kind == "session" {
			win = "[600,1600)"
		}
		more := func(rows ...string) []string { // the other window of a sliding one
			if kind == "sliding" {
				for _, r := range slices.Clone(rows) {
					rows = append(rows, strings.Replace(r, "[0,1000)", "[500,1500)", 1))
				}
			}
			return rows
		}
		d.want(d.send("a", 600))
		d.pass(58_000)
		d.want(d.got())
		d.pass(3000)
		d.want(d.got(), more(win+" a: 1 early 0")...)
		d.pass(120_000)
		d.want(d.got()) // nothing changed
		d.want(d.send("a", 600))
		d.want(d.send("b", 600))
		d.pass(61_000)
		d.want(d.got(), more(win+" a: 1,2 early 1", win+" b: 3 early 0")...)
		d.want(d.send("a", 600))
		d.Tasks[0].Restart()
		d.pass(61_000)
		rows := d.got()
		if !slices.Contains(rows, win+" a: 1,2,4 early 2") {
			t.Fatalf("%s: after a restart: %q", kind, rows)
		}
		d.run()
		last := d.send("z", 5000)
		if !slices.Contains(last, win+" a: 1,2,4 on-time 3") {
			t.Fatalf("%s: %q", kind, last)
		}
		if rows := d.send("a", 600); !slices.Contains(rows, win+" a: 1,2,4,6 late 4") {
			t.Fatalf("%s: %q", kind, rows)
		}
		// What has fired on time since it changed does not fire early.
		d.send("c", 5100)
		if rows := d.send("z", 20_000); !strings.Contains(strings.Join(rows, "\n"), "c: 7 on-time 0") {
			t.Fatalf("%s: %q", kind, rows)
		}
		d.pass(61_000)
		if rows := d.got(); strings.Contains(strings.Join(rows, "\n"), "c: ") {
			t.Fatalf("%s: %q", kind, rows)
		}
	}
}

type deltaState struct {
	Last int64
	Seen bool
}

// A trigger of the program's own with state: it fires when a value is 10 above that of the last firing.
func TestCustomTrigger(t *testing.T) {
	delta := window.Custom[deltaState]{
		Name: "delta-10",
		OnElement: func(c window.Context, s *deltaState) window.Action {
			e := window.Element[event](c)
			if !s.Seen {
				*s = deltaState{e.N, true}
			}
			if e.N < s.Last+10 {
				return window.Continue
			}
			s.Last = e.N
			return window.FireAndPurge
		},
	}
	d := newDriver(t, func(top *processor.Topology) {
		s := processor.FromKeyed(top, format.String(), processor.Topic[event]{Name: "in", EventTime: eventTime})
		w := s.Window(window.Global()).Trigger(delta.Trigger())
		processor.To(processor.ApplyWindow(w, "w", windowIDs), processor.SinkTopic[string]{Name: "out"})
	}, driverOptions{crash: 0.4, behind: 0.5, batch: 2})
	for i, n := range []int64{5, 8, 14, 15, 16, 30, 25, 40} {
		d.sendKeyed("in", "a", event{ID: i, Key: "a", N: n, At: int64(i)}, int64(i))
	}
	d.run()
	wantRows(t, d.rows("out"), `a=a: 0,1,2,3 on-time 0 @3`, `a=a: 4,5 on-time 1 @5`, `a=a: 6,7 on-time 2 @7`)
}

// EveryProcessingTime fires by the clock, of a global window for ever.
func TestEveryProcessingTime(t *testing.T) {
	d := newApply(t, 0, func(s processor.KeyedStream[string, event]) processor.WindowedStream[string, event] {
		return s.Window(window.Global()).Trigger(window.Purging(window.EveryProcessingTime(time.Minute)))
	}, driverOptions{})
	d.want(d.send("a", 5))
	d.pass(60_000)
	d.want(d.got(), "a: 1 on-time 0")
	d.Tasks[0].Restart()
	d.want(d.send("a", 4))
	d.want(d.send("a", 6))
	d.pass(60_000)
	d.want(d.got(), "a: 2,3 on-time 1")
	d.pass(180_000)
	d.want(d.got()) // empty
}

// ProcessWindow keeps state of one window, which is there when it fires again and goes with it, and state of the key.
func TestProcessWindowState(t *testing.T) {
	for kind, w := range map[string]func(processor.KeyedStream[string, event]) processor.WindowedStream[string, event]{
		"sliced": func(s processor.KeyedStream[string, event]) processor.WindowedStream[string, event] {
			return s.Window(window.Tumbling(ms(10))).AllowedLateness(ms(20))
		},
		"listed": func(s processor.KeyedStream[string, event]) processor.WindowedStream[string, event] {
			return s.Window(window.Tumbling(ms(10))).AllowedLateness(ms(20)).Trigger(window.AtWatermark())
		},
	} {
		d := newDriver(t, func(top *processor.Topology) {
			s := processor.FromKeyed(top, format.String(), processor.Topic[event]{Name: "in", EventTime: eventTime})
			out := processor.ProcessWindow(w(s), "w", processor.Count[event](), func(ctx *processor.WindowContext[string, int64, string]) {
				firings := processor.WindowValue[int64](ctx, "firings")
				all := processor.Value[int64](ctx, "all")
				ctx.OnWindow(func(w processor.Window[string], n int64) error {
					firings.Update(func(n *int64) { *n++ })
					all.Set(all.Get() + 1)
					ctx.Emit(fmt.Sprintf("%d: %d, firing %d, of the key %d, %s, watermark %d, time %d", w.Start.UnixMilli(), n, firings.Get(), all.Get(), w.Pane.Timing, ctx.Watermark().UnixMilli(), ctx.Timestamp().UnixMilli()))
					return nil
				})
			})
			processor.ToTopic(out, "out")
		}, driverOptions{crash: 0.3, behind: 0.5, batch: 1})
		for _, at := range []int64{1, 2, 12, 3, 25, 31, 15, 60, 45} {
			d.sendKeyed("in", "a", event{Key: "a", At: at}, at)
		}
		d.run()
		t.Log(kind)
		wantRows(t, d.rows("out"),
			`a=0: 2, firing 1, of the key 1, on-time, watermark 11, time 9 @9`,
			`a=0: 3, firing 2, of the key 2, late, watermark 11, time 9 @9`,
			`a=10: 1, firing 1, of the key 3, on-time, watermark 24, time 19 @19`,
			`a=20: 1, firing 1, of the key 4, on-time, watermark 30, time 29 @29`,
			`a=10: 2, firing 2, of the key 5, late, watermark 30, time 19 @19`,
			`a=30: 1, firing 1, of the key 6, on-time, watermark 59, time 39 @39`,
			`a=40: 1, firing 1, of the key 7, late, watermark 59, time 49 @49`)
	}
}

// Sums of floats come out bit by bit the same, whatever the restarts and stragglers: the order in which slices are put
// together depends on the window alone.
func TestOverlappingFloatsAreDeterministic(t *testing.T) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 21))
		slices := 4 + rng.Int64N(40)
		events := stream(rng, 400, 0, 10, 60)
		topology := func(top *processor.Topology) {
			s := processor.FromKeyed(top, format.String(), processor.Topic[event]{Name: "in", EventTime: eventTime, MaxOutOfOrder: ms(10)})
			w := s.Window(window.Sliding(ms(7*slices), ms(7)))
			if seed%2 == 1 {
				w = s.Window(window.Cumulate(ms(7*slices), ms(7)))
			}
			if seed%3 == 1 {
				w = w.AllowedLateness(ms(50))
			}
			processor.ToTopic(processor.Aggregate(w, "w", processor.Sum(func(e event) float64 { return math.Sqrt(float64(e.N)) / 3 }),
				func(w processor.Window[string], x float64) string {
					return fmt.Sprint(w.End.UnixMilli(), math.Float64bits(x), w.Pane)
				}), "out")
		}
		var want []string
		for i, o := range []driverOptions{{batch: 1}, {batch: 1000}, {batch: 10, crash: 0.5, behind: 0.5, seed: 1}, {batch: 50, crash: 0.3, seed: 2}} {
			d := newDriver(t, topology, o)
			for _, e := range events {
				d.sendKeyed("in", e.Key, e, e.At)
			}
			d.run()
			if i == 0 {
				if want = d.rows("out"); len(want) < 100 {
					t.Fatalf("%d rows: the test has no teeth", len(want))
				}
			}
			wantRows(t, d.rows("out"), want...)
		}
	}
}

// When nothing is late, all windows depend on the records alone: not on partitions, subtasks, batches or crashes (I6).
func TestAllWindowsDependOnRecordsAlone(t *testing.T) {
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 31))
		c := winCase{}.random(rng)
		for c.kind == "global" || c.trigger != "" {
			c = winCase{}.random(rng)
		}
		c.bound, c.onUpdate, c.how = 40, false, "aggregate"
		events := stream(rng, 200, -300, 30, 0)
		want, late := c.model(append(slices.Clone(events), event{Key: "end", At: 1 << 40}))
		if len(late) > 0 {
			t.Fatal("the test is wrong: late events")
		}
		for _, shape := range [][2]int{{1, 1}, {3, 3}, {4, 2}} {
			o := driverOptions{partitions: map[string]int{"in": shape[0]}, parallelism: shape[1], batch: 20 + rng.IntN(100), seed: seed, crash: 0.15, behind: 0.5}
			d := newDriver(t, func(top *processor.Topology) {
				s := processor.From(top, processor.Topic[event]{Name: "in", EventTime: eventTime, MaxOutOfOrder: ms(c.bound)})
				by := processor.KeyBy(s.Filter(func(e event) bool { return e.Key != "end" }), "by", func(e event) string { return e.Key })
				out := processor.Aggregate(by.Window(c.assigner()).AllowedLateness(ms(c.lateness)), "w", winAgg(), func(w processor.Window[string], a winAcc) winRow {
					r := rowOf(w, a.IDs, a.Sum, true)
					r.At = w.End.UnixMilli() - 1
					return r
				})
				processor.ToTopic(out, "out")
			}, o)
			send := func(p int, e event) {
				b, _ := json.Marshal(e)
				d.produce("in", p, nil, b, e.At)
			}
			for _, e := range events {
				send(rng.IntN(shape[0]), e)
			}
			for p := range shape[0] {
				send(p, event{Key: "end", At: 1 << 40})
			}
			d.run()
			t.Logf("seed %d %+v %v", seed, c, shape)
			wantRows(t, d.rows("out"), slices.DeleteFunc(slices.Clone(want), func(s string) bool { return strings.HasPrefix(s, "end=") })...)
		}
	}
}

// Accumulators that are merged say the same as one that got all values.
func TestMergedAggregatesEqualWhole(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	check := func(name string, f func(split int, vs []event) (merged, whole any)) {
		for range 200 {
			var vs []event
			for i := range rng.IntN(20) {
				vs = append(vs, event{ID: i, N: rng.Int64N(10), Key: fmt.Sprint(rng.IntN(4))})
			}
			m, w := f(rng.IntN(len(vs)+1), vs)
			if a, b := fmt.Sprint(m), fmt.Sprint(w); a != b {
				t.Fatalf("%s of %v: merged %s, whole %s", name, vs, a, b)
			}
		}
	}
	n := func(e event) int64 { return e.N }
	check("top", func(i int, vs []event) (any, any) {
		m, w := foldBoth(processor.TopN(3, n), i, vs)
		sorted := slices.Clone(vs)
		slices.SortStableFunc(sorted, func(a, b event) int { return cmp.Compare(b.N, a.N) })
		for i, r := range w {
			if r.Value != sorted[i] {
				t.Fatalf("top 3 of %v is %v", vs, w)
			}
		}
		if len(w) != min(3, len(vs)) {
			t.Fatalf("top 3 of %v is %v", vs, w)
		}
		return m, w
	})
	check("distinct", func(i int, vs []event) (any, any) {
		m, w := foldBoth(processor.Distinct(func(e event) string { return e.Key }), i, vs)
		agg := processor.Distinct(func(e event) string { return e.Key })
		for _, v := range vs {
			agg.Remove(&m, v)
		}
		if m.Len() != 0 {
			t.Fatalf("all was removed, and %v is left", m)
		}
		m, _ = foldBoth(agg, i, vs)
		return m, w
	})
	check("min by", func(i int, vs []event) (any, any) {
		m, w := foldBoth(processor.MinBy(n), i, vs)
		return m, w
	})
	check("max by", func(i int, vs []event) (any, any) {
		m, w := foldBoth(processor.MaxBy(n), i, vs)
		return m, w
	})
	check("only", func(i int, vs []event) (any, any) {
		m, w := foldBoth(processor.Only(func(e event) bool { return e.Key == "1" }, processor.Count[event]()), i, vs)
		return m, w
	})
	check("variance", func(i int, vs []event) (any, any) {
		m, w := foldBoth(processor.Variance(func(e event) float64 { return float64(e.N) }), i, vs)
		sum, sq := 0.0, 0.0
		for _, v := range vs {
			sum += float64(v.N)
			sq += float64(v.N * v.N)
		}
		if k := float64(len(vs)); k > 0 && math.Abs(w.Variance()-(sq/k-sum/k*sum/k)) > 1e-9 {
			t.Fatalf("variance of %v is %v", vs, w.Variance())
		}
		return fmt.Sprintf("%.9f %.9f", m.Variance(), m.SampleVariance()), fmt.Sprintf("%.9f %.9f", w.Variance(), w.SampleVariance())
	})
}

func foldBoth[A any](agg processor.Aggregator[event, A], i int, vs []event) (merged, whole A) {
	var other A
	for j, v := range vs {
		if j < i {
			agg.Add(&merged, v)
		} else {
			agg.Add(&other, v)
		}
		agg.Add(&whole, v)
	}
	agg.Merge(&merged, &other)
	return merged, whole
}

func TestWindowBuildErrors(t *testing.T) {
	count := func(processor.Window[string], int64) int64 { return 0 }
	for name, c := range map[string]struct {
		f    func(s processor.KeyedStream[string, event])
		want string
	}{
		"no merge": {func(s processor.KeyedStream[string, event]) {
			processor.Aggregate(s.Window(window.Session(ms(1))), "w", processor.Fold(func(*int64, event) {}), count)
		}, "needs Merge"},
		"global without trigger": {func(s processor.KeyedStream[string, event]) {
			processor.Aggregate(s.Window(window.Global()), "w", processor.Count[event](), count)
		}, "say with Trigger when it fires"},
		"gap of another type": {func(s processor.KeyedStream[string, event]) {
			processor.Aggregate(s.Window(window.SessionFunc(func(int) time.Duration { return 1 })), "w", processor.Count[event](), count)
		}, "SessionFunc takes int, the stream is of processor_test.event"},
		"lateness of processing time": {func(s processor.KeyedStream[string, event]) {
			processor.Aggregate(s.Window(window.ProcessingTime(window.Tumbling(ms(1)))).AllowedLateness(ms(1)), "w", processor.Count[event](), count)
		}, "AllowedLateness has no meaning"},
		"early beside a trigger": {func(s processor.KeyedStream[string, event]) {
			processor.Aggregate(s.Window(window.Tumbling(ms(1))).Trigger(window.EveryCount(1)).EmitOnUpdate(), "w", processor.Count[event](), count)
		}, "have no effect beside a Trigger"},
		"trigger": {func(s processor.KeyedStream[string, event]) {
			processor.Aggregate(s.Window(window.Tumbling(ms(1))).Trigger(window.EveryCount(0)), "w", processor.Count[event](), count)
		}, "EveryCount(0), want at least 1"},
		"early": {func(s processor.KeyedStream[string, event]) {
			processor.Aggregate(s.Window(window.Tumbling(ms(1))).EmitEarly(0), "w", processor.Count[event](), count)
		}, "EmitEarly is 0s, want at least 1ms"},
		"idle": {func(s processor.KeyedStream[string, event]) {
			processor.Aggregate(s.CountWindow(1, 1).AdvanceWhenIdle(time.Second), "w", processor.Count[event](), count)
		}, "AdvanceWhenIdle has no meaning"},
		"state of a session": {func(s processor.KeyedStream[string, event]) {
			processor.ProcessWindow(s.Window(window.Session(ms(1))), "w", processor.Count[event](), func(ctx *processor.WindowContext[string, int64, int]) {
				processor.WindowValue[int](ctx, "x")
				ctx.OnWindow(func(processor.Window[string], int64) error { return nil })
			})
		}, "have no state of one window"},
		"timers": {func(s processor.KeyedStream[string, event]) {
			processor.ProcessWindow(s.Window(window.Tumbling(ms(1))), "w", processor.Count[event](), func(ctx *processor.WindowContext[string, int64, int]) {
				ctx.OnTimer(func(processor.Timer) error { return nil })
				ctx.OnWindow(func(processor.Window[string], int64) error { return nil })
			})
		}, "ProcessWindow has no timers"},
		"no callback": {func(s processor.KeyedStream[string, event]) {
			processor.ProcessWindow(s.Window(window.Tumbling(ms(1))), "w", processor.Count[event](), func(*processor.WindowContext[string, int64, int]) {})
		}, "OnWindow callback is nil"},
	} {
		top := processor.New()
		c.f(processor.FromKeyed(top, format.String(), processor.Topic[event]{Name: "in"}))
		if err := top.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
