package processor_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/window"
)

// probe sends events one at a time and tells what came out after each.
func probe(t *testing.T, d *driver, topic string, at int64) string {
	t.Helper()
	d.sendKeyed("in", "k", event{N: 1, Key: "k", At: at}, at)
	before := len(d.records(topic))
	d.run()
	var got []string
	for _, r := range d.records(topic)[before:] {
		got = append(got, fmt.Sprintf("%s@%d", r.Value, r.Timestamp))
	}
	return strings.Join(got, " ")
}

func counts(t *processor.Topology, p windowParams) {
	in := processor.FromKeyed(t, format.String(), processor.Topic[event]{Name: "in", EventTime: eventTime, MaxOutOfOrder: ms(p.bound)})
	late := processor.NewOutputTag[event]("late")
	out := processor.Aggregate(in.Window(window.Tumbling(ms(p.size))).AllowedLateness(ms(p.lateness)).LateTo(late), "count",
		processor.Count[event](), func(w processor.Window[string], n int64) string {
			return fmt.Sprintf("[%d,%d)=%d", w.Start.UnixMilli(), w.End.UnixMilli(), n)
		})
	processor.To(out, processor.SinkTopic[string]{Name: "out"})
	processor.ToTopic(processor.SideOutput(out, late), "late")
}

// The edges, in Flink's words: a window [start, end) fires when the watermark passes end-1; an element is late when
// end-1+lateness <= the watermark; the watermark is the highest timestamp - bound - 1.
func TestWindowEdges(t *testing.T) {
	type step struct {
		at   int64
		want string
		late int64 // late records so far
	}
	for _, c := range []struct {
		name string
		p    windowParams
		s    []step
	}{
		{"in order", windowParams{size: 10}, []step{
			{0, "", 0},            // exactly at the start
			{9, "", 0},            // at end-1: watermark 8
			{10, "[0,10)=2@9", 0}, // at the end: watermark 9 = end-1
			{9, "", 1},            // watermark 9: late
			{19, "", 0 + 1},       // watermark 18
			{19, "", 1},           // equal to the highest, above the watermark
			{18, "", 1},           // exactly at the watermark, but its window is open
			{20, "[10,20)=4@19", 1},
			{19, "", 2},
			{45, "[20,30)=1@29", 2}, // an empty window does not fire
		}},
		{"bound", windowParams{size: 10, bound: 5}, []step{
			{14, "", 0}, {0, "", 0}, {15, "[0,10)=1@9", 0}, {9, "", 1}, {10, "", 1}, {25, "[10,20)=3@19", 1},
		}},
		{"lateness", windowParams{size: 10, lateness: 5}, []step{
			{5, "", 0}, {10, "[0,10)=1@9", 0},
			{5, "[0,10)=2@9", 0}, // fires again
			{14, "", 0},          // watermark 13 < 14 = end-1+lateness
			{0, "[0,10)=3@9", 0}, // the last moment
			{15, "", 0},          // watermark 14: the window goes
			{9, "", 1},           // late
			{-1, "", 2},
			{25, "[10,20)=3@19", 2},
			{16, "", 3}, // watermark 24 took the window with it
		}},
		{"late window never seen before", windowParams{size: 10, lateness: 100}, []step{
			{50, "", 0}, {25, "[20,30)=1@29", 0}, {26, "[20,30)=2@29", 0}, {60, "[50,60)=1@59", 0}, {27, "[20,30)=3@29", 0},
		}},
		{"before the epoch", windowParams{size: 10}, []step{
			{-11, "", 0}, {-10, "[-20,-10)=1@0", 0}, {-1, "", 0}, {0, "[-10,0)=2@0", 0}, {-1, "", 1}, {9, "", 1}, {10, "[0,10)=2@9", 1},
		}},
	} {
		for _, restart := range []bool{false, true} {
			d := newDriver(t, func(t *processor.Topology) { counts(t, c.p) }, driverOptions{})
			for i, s := range c.s {
				if got := probe(t, d, "out", s.at); got != s.want {
					t.Fatalf("%s, restart %v, step %d (%d): %q, want %q", c.name, restart, i, s.at, got, s.want)
				}
				if got := d.late(); got != s.late {
					t.Fatalf("%s, restart %v, step %d (%d): %d late, want %d", c.name, restart, i, s.at, got, s.late)
				}
				if restart {
					d.Tasks[0].Restart()
				}
			}
		}
	}
}

// A partition without records holds the watermark back until it is idle; it is active again with its next record,
// and where all partitions are idle the greatest of their watermarks counts.
func TestIdleness(t *testing.T) {
	for _, idle := range []time.Duration{0, time.Second} {
		d := newDriver(t, func(t *processor.Topology) {
			in := processor.From(t, processor.Topic[event]{Name: "in", EventTime: eventTime, Idle: idle})
			processor.Process(processor.KeyBy(in, "by", func(e event) string { return e.Key }), "p", func(ctx *processor.KeyedContext[string, event, int]) {
				ctx.OnRecord(func(event) error { return nil })
			})
			counts := processor.Aggregate(processor.KeyBy(in, "by2", func(e event) string { return e.Key }).Window(window.Tumbling(ms(10))), "w",
				processor.Count[event](), func(w processor.Window[string], n int64) int64 { return n })
			processor.ToTopic(counts, "out")
		}, driverOptions{partitions: map[string]int{"in": 2}, parallelism: 1})
		send := func(partition int, at int64) {
			d.produce("in", partition, nil, fmt.Appendf(nil, `{"key":"a","at":%d}`, at), at)
			d.run()
		}
		up := d.Tasks[0]
		send(0, 5)
		send(0, 100)
		if n := len(d.records("out")); n != 0 {
			t.Fatalf("idle %s: partition 1 was never heard of, %d results", idle, n)
		}
		next := up.Task.Stats().NextTimer
		d.pass(1000)
		d.run()
		if idle == 0 {
			if next != math.MaxInt64 || len(d.records("out")) != 0 {
				t.Fatalf("without idleness: next timer %d, %d results", next, len(d.records("out")))
			}
			send(1, 50)
			if n := len(d.records("out")); n != 1 {
				t.Fatalf("%d results, want 1", n)
			}
			continue
		}
		if next == math.MaxInt64 {
			t.Fatal("idleness asks for no timer")
		}
		// Both partitions are idle by now.
		n := len(d.records("out"))
		w := up.Task.Stats().Watermark
		if w != 99 {
			t.Fatalf("all idle: the watermark is %d, want 99", w)
		}
		for _, st := range d.Tasks {
			st.Restart()
		}
		d.pass(5000)
		d.run()
		if got := up.Task.Stats().Watermark; got < w || got == math.MaxInt64 {
			t.Fatalf("watermark %d after a restart, was %d", got, w)
		}
		send(0, 200)
		d.pass(2000)
		d.run()
		if got := len(d.records("out")); got < max(n, 2) {
			t.Fatalf("%d results with one idle partition, want 2", got)
		}
		send(1, 150) // active again, and behind: the watermark does not go back, nothing is dropped twice
		send(1, 300)
		send(0, 310)
		if got := len(d.records("out")); got < 3 {
			t.Fatalf("%d results", got)
		}
	}
}

type finalWatermark struct{ seen int64 }

func (g *finalWatermark) OnEvent(e event, at time.Time, emit func(time.Time)) {
	if e.N == -1 {
		emit(time.Unix(1<<60, 0)) // the end of time
		return
	}
	if e.N == 7 {
		emit(at)
	}
	g.seen = at.UnixMilli()
}
func (g *finalWatermark) OnPeriod(emit func(time.Time)) {
	if g.seen > 1000 {
		emit(time.UnixMilli(g.seen - 1000))
	}
}

// A generator of the user's own: by record, by period, and a watermark at the end of time, which overflows nothing.
func TestOwnWatermarkGenerator(t *testing.T) {
	d := newDriver(t, func(t *processor.Topology) {
		in := processor.FromKeyed(t, format.String(), processor.Topic[event]{Name: "in", EventTime: eventTime,
			Watermarks: func() processor.WatermarkGenerator[event] { return &finalWatermark{} }})
		out := processor.Aggregate(in.Window(window.Tumbling(ms(10))).AllowedLateness(time.Hour), "w",
			processor.Count[event](), func(w processor.Window[string], n int64) int64 { return n })
		processor.ToTopic(out, "out")
	}, driverOptions{})
	send := func(n, at int64) int {
		d.sendKeyed("in", "a", event{Key: "a", N: n, At: at}, at)
		d.run()
		return len(d.records("out"))
	}
	for i, c := range []struct {
		n, at int64
		want  int
	}{{0, 5, 0}, {0, 20, 0}, {7, 15, 1}, {0, 1040, 3}, {-1, 2000, 5}, {0, 3000, 5}} {
		if got := send(c.n, c.at); got != c.want {
			t.Fatalf("step %d: %d results, want %d", i, got, c.want)
		}
	}
	if w := d.Tasks[0].Task.Stats().Watermark; w != math.MaxInt64 {
		t.Fatalf("watermark %d", w)
	}
	if d.late() != 1 {
		t.Fatalf("%d late after the end of time, want 1", d.late())
	}
	d.Tasks[0].Restart()
	if got := send(0, 4000); got != 5 || d.late() != 2 {
		t.Fatalf("%d results, %d late", got, d.late())
	}
}

// Union: the watermark is the minimum of the inputs', so the slower topic holds the windows back.
func TestUnionHoldsBack(t *testing.T) {
	d := newDriver(t, func(t *processor.Topology) {
		a := processor.From(t, processor.Topic[event]{Name: "a", EventTime: eventTime, Idle: time.Second})
		b := processor.From(t, processor.Topic[event]{Name: "b", EventTime: eventTime, Idle: time.Second})
		u := processor.Union(a, b)
		w := processor.Aggregate(processor.KeyBy(u, "by", func(e event) string { return e.Key }).Window(window.Tumbling(ms(10))), "w",
			processor.Count[event](), func(w processor.Window[string], n int64) int64 { return n })
		processor.ToTopic(w, "out")
	}, driverOptions{})
	send := func(topic string, at int64) {
		d.produce(topic, 0, nil, fmt.Appendf(nil, `{"key":"k","at":%d}`, at), at)
	}
	send("a", 1)
	send("a", 50)
	send("b", 2)
	d.run()
	if rows := d.rows("out"); len(rows) != 0 {
		t.Fatalf("b is at 2: %v", rows)
	}
	send("b", 11)
	d.run()
	wantRows(t, d.rows("out"), "k=2 @9")
	d.pass(2000) // both are idle: a counts, as if b had been idle first
	d.run()
	wantRows(t, d.rows("out"), "k=2 @9", "k=1 @19")
	send("a", 80)
	d.run()
	wantRows(t, d.rows("out"), "k=2 @9", "k=1 @19", "k=1 @59")
}
