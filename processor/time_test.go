package processor_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/drive"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/processor"
)

// A number that declares its unit is read in it, and never guessed: field report of micros read as millis.
func TestEventTimeFromHeader(t *testing.T) {
	for _, c := range []struct {
		parse func([]byte) time.Time
		text  string
		want  string // of the sink's timestamp, "" = none
	}{
		{processor.UnixMicros, "63072000000000000", "3968-09-03"}, // micros are micros, whatever the year
		{processor.UnixMicros, "63072000000000", "1972-01-01"},
		{processor.UnixMillis, "63072000000", "1972-01-01"},
		{processor.UnixSeconds, "63072000", "1972-01-01"},
		{processor.UnixNanos, "63072000000000000", "1972-01-01"},
		{processor.UnixMillis, "63072000000000000000", ""}, // no int64
		{processor.UnixSeconds, "9223372036854775807", ""}, // no time
		{processor.UnixMillis, "1.5", ""},
		{processor.UnixMillis, "", ""},
		{processor.RFC3339, "1972-01-01T01:00:00+01:00", "1972-01-01"},
		{processor.RFC3339, "1972-01-01T01:00:00", ""}, // no zone
	} {
		d := drive.New(t, func(top *processor.Topology) {
			in := processor.From(top, processor.Topic[string]{Name: "in", Value: text, EventTimeOf: processor.HeaderTime[string]("at", c.parse)})
			processor.To(in, processor.SinkTopic[string]{Name: "out", Value: text})
		}, drive.Options{})
		d.Produce("in", 0, record.Record{Value: []byte("v"), Timestamp: 7, Headers: []record.Header{{Key: "at", Value: []byte("1")}, {Key: "at", Value: []byte(c.text)}}})
		d.Produce("in", 0, record.Record{Value: []byte("without"), Timestamp: 7})
		d.Run()
		got := ""
		for _, r := range d.Records("out") {
			got += time.UnixMilli(r.Timestamp).UTC().Format(time.DateOnly)
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.text, got, c.want)
		}
		bad := d.Records("dead-letter")
		if n := map[bool]int{true: 2, false: 1}[c.want == ""]; len(bad) != n {
			t.Errorf("%s: %d dead letters, want %d", c.text, len(bad), n)
		}
	}
	top := processor.New()
	processor.ToTopic(processor.From(top, processor.Topic[event]{Name: "in", EventTime: eventTime, IngestionTime: true}), "out")
	if err := top.Validate(); err == nil || !strings.Contains(err.Error(), "exclude each other") {
		t.Error(err)
	}
}

// IngestionTime is that of the clock, and does not go back with it.
func TestIngestionTime(t *testing.T) {
	d := drive.New(t, func(top *processor.Topology) {
		in := processor.From(top, processor.Topic[string]{Name: "in", Value: text, IngestionTime: true})
		processor.To(in, processor.SinkTopic[string]{Name: "out", Value: text})
	}, drive.Options{Still: true})
	var got []int64
	for _, now := range []int64{1_000_000, 1_000_500, 1_000_400, 1_000_600} {
		d.Now = now
		d.Produce("in", 0, record.Record{Value: []byte("v"), Timestamp: -5})
		d.Run()
		got = append(got, d.Records("out")[len(got)].Timestamp)
	}
	if want := []int64{1_000_000, 1_000_500, 1_000_500, 1_000_600}; !slices.Equal(got, want) {
		t.Errorf("%d, want %d", got, want)
	}
}

// assigned counts, behind AssignEventTime, the values whose time is at or before the watermark, and emits the watermark
// that each value finds: with it, what a timer at that time sees.
func assigned(s processor.WatermarkStrategy[event]) func(*processor.Topology) {
	return func(top *processor.Topology) {
		in := processor.From(top, processor.Topic[event]{Name: "in"})
		timed := processor.AssignEventTime(in.Filter(func(e event) bool { return e.N >= 0 }), "timed", s)
		out := processor.ProcessStream(timed, "p", func(ctx *processor.Context[event, string]) {
			ctx.OnRecord(func(e event) error {
				w := "none"
				if !ctx.Watermark().IsZero() {
					w = strconv.FormatInt(ctx.Watermark().UnixMilli(), 10)
				}
				ctx.Emit(fmt.Sprintf("%d at %d watermark %s", e.ID, ctx.Timestamp().UnixMilli(), w))
				return nil
			})
		})
		processor.To(out, processor.SinkTopic[string]{Name: "out", Value: text})
		processor.To(processor.Map(in, func(e event) string { return "seen" }), processor.SinkTopic[string]{Name: "before", Value: text})
	}
}

type timedStream struct {
	*drive.Driver
	seen int
}

func (s *timedStream) send(partition int, e event) string {
	s.T.Helper()
	s.Produce("in", partition, record.Record{Value: fmt.Appendf(nil, `{"id":%d,"n":%d,"at":%d}`, e.ID, e.N, e.At), Timestamp: 5})
	s.Run()
	var got []string
	for _, r := range s.Records("out") {
		got = append(got, string(r.Value))
	}
	if len(got) == s.seen {
		return ""
	}
	s.seen = len(got)
	// Records are listed by partition: the new one is that of this id.
	for _, g := range got {
		if strings.HasPrefix(g, fmt.Sprint(e.ID, " ")) {
			return g
		}
	}
	return ""
}

// TestAssignEventTime: watermarks follow the new times, one mark for each partition; silent partitions hold them back until
// they are idle, and again when they speak; a restart goes on where it was.
func TestAssignEventTime(t *testing.T) {
	for _, restart := range []bool{false, true} {
		d := &timedStream{Driver: drive.New(t, assigned(processor.WatermarkStrategy[event]{EventTime: eventTime, MaxOutOfOrder: 10 * time.Millisecond, Idle: time.Second}),
			drive.Options{Partitions: map[string]int{"in": 2}, Parallelism: 1, Still: true})}
		want := func(got, want string) {
			t.Helper()
			if got != want {
				t.Fatalf("restart %v: %q, want %q", restart, got, want)
			}
			if restart {
				for _, st := range d.Tasks {
					st.Restart()
				}
			}
		}
		d.Run()
		want(d.send(0, event{ID: 1, At: 1000}), "1 at 1000 watermark none")
		want(d.send(1, event{ID: 2, At: 500}), "2 at 500 watermark none")
		want(d.send(0, event{ID: 3, At: 2000}), "3 at 2000 watermark 489") // the minimum
		want(d.send(1, event{ID: 4, At: 1500}), "4 at 1500 watermark 489")
		want(d.send(1, event{ID: 5, N: -1, At: 9000}), "") // filtered out: no time
		want(d.send(1, event{ID: 6, At: 1400}), "6 at 1400 watermark 1489")
		d.Now += 600
		want(d.send(0, event{ID: 7, At: 3000}), "7 at 3000 watermark 1489")
		if restart {
			d.Now += 400 // the silence of partition 1 counts from the restart
		}
		d.Pass(600) // partition 1 is idle; after a restart both are, at once
		want(d.send(0, event{ID: 8, At: 3001}), "8 at 3001 watermark 2989")
		want(d.send(1, event{ID: 9, At: 2500}), "9 at 2500 watermark 2990") // speaks again, and late
		want(d.send(0, event{ID: 10, At: 4000}), "10 at 4000 watermark 2990")
		want(d.send(0, event{ID: 11, At: 4000}), "11 at 4000 watermark 2990") // held by partition 1
		want(d.send(1, event{ID: 12, At: 3500}), "12 at 3500 watermark 2990")
		want(d.send(1, event{ID: 13, At: 3500}), "13 at 3500 watermark 3489")
	}
}

// A record that fails behind AssignEventTime moves no watermark, and one without a time goes by BadTime.
func TestAssignEventTimeFailures(t *testing.T) {
	d := &timedStream{Driver: drive.New(t, func(top *processor.Topology) {
		in := processor.From(top, processor.Topic[event]{Name: "in"})
		timed := processor.AssignEventTime(in, "timed", processor.WatermarkStrategy[event]{EventTime: func(e event) time.Time {
			if e.At == 0 {
				return time.Time{}
			}
			return time.UnixMilli(e.At)
		}, BadTime: processor.Skip})
		out := processor.ProcessStream(timed, "p", func(ctx *processor.Context[event, string]) {
			ctx.OnRecord(func(e event) error {
				if e.N == 1 {
					panic("oh")
				}
				ctx.Emit(fmt.Sprint(e.ID, " ", ctx.Watermark().UnixMilli()))
				return nil
			})
		}, processor.OnError(processor.DeadLetter))
		processor.To(out, processor.SinkTopic[string]{Name: "out", Value: text})
	}, drive.Options{Still: true})}
	d.send(0, event{ID: 1, At: 10})
	d.send(0, event{ID: 2, At: 5000, N: 1})
	d.send(0, event{ID: 3})
	if got := d.send(0, event{ID: 4, At: 20}); got != "4 9" {
		t.Error(got)
	}
	if s := d.Tasks[0].Task.Stats(); s.DeadLetters != 1 || s.Skipped != 1 {
		t.Errorf("%+v", s)
	}
}

// punctuated emits the end of time at a mark: it must not overflow anything.
type punctuated struct{ last time.Time }

func (p *punctuated) OnEvent(e event, at time.Time, emit func(time.Time)) {
	p.last = at
	if e.N == 9 {
		emit(time.Unix(math.MaxInt64/1000, 0))
	}
}
func (p *punctuated) OnPeriod(emit func(time.Time)) {
	if !p.last.IsZero() {
		emit(p.last.Add(-time.Millisecond))
	}
}

// A periodic and punctuated generator in the middle of a chain; a watermark at the end of time is no trouble.
func TestAssignEventTimeGenerator(t *testing.T) {
	d := &timedStream{Driver: drive.New(t, assigned(processor.WatermarkStrategy[event]{EventTime: eventTime,
		Watermarks: func() processor.WatermarkGenerator[event] { return &punctuated{} }}), drive.Options{Still: true})}
	want := func(got, want string) {
		t.Helper()
		if got != want {
			t.Fatalf("%q, want %q", got, want)
		}
	}
	want(d.send(0, event{ID: 1, At: 100}), "1 at 100 watermark none")
	d.Pass(200)
	want(d.send(0, event{ID: 2, At: 200, N: 9}), "2 at 200 watermark 99")
	want(d.send(0, event{ID: 3, At: 300}), fmt.Sprintf("3 at 300 watermark %d", int64(math.MaxInt64)))
	d.Pass(10_000)
	d.Run()
}

// TestAssignEventTimeUnderCrashes: what is late behind it does not depend on crashes.
func TestAssignEventTimeUnderCrashes(t *testing.T) {
	topology := func(top *processor.Topology) {
		in := processor.FromKeyed(top, format.String(), processor.Topic[event]{Name: "in"})
		timed := processor.AssignEventTime(in, "timed", processor.WatermarkStrategy[event]{EventTime: eventTime, MaxOutOfOrder: 20 * time.Millisecond})
		out := processor.Process(processor.KeyBy(timed, "k", func(e event) string { return e.Key }), "p", func(ctx *processor.KeyedContext[string, event, string]) {
			sum := processor.Value[int64](ctx, "sum")
			ctx.OnRecord(func(e event) error {
				sum.Update(func(n *int64) { *n += e.N })
				ctx.RegisterEventTimer(ctx.Timestamp().Truncate(100 * time.Millisecond).Add(99 * time.Millisecond))
				return nil
			})
			ctx.OnTimer(func(at processor.Timer) error {
				ctx.Emit(fmt.Sprint(ctx.Key(), " ", at.At.UnixMilli(), " ", sum.Get() > 0))
				return nil
			})
		})
		processor.To(out, processor.SinkTopic[string]{Name: "out", Value: text})
	}
	run := func(seed uint64, crash float64) []string {
		d := drive.New(t, topology, drive.Options{Partitions: map[string]int{"in": 3}, Seed: seed, Crash: crash, Behind: 0.5, Restore: drive.Mixed})
		rng := rand.New(rand.NewPCG(4, 4))
		at := int64(1000)
		for range 300 {
			at += rng.Int64N(5)
			key := fmt.Sprint("k", rng.IntN(6))
			e := event{Key: key, N: 1, At: at - rng.Int64N(20)}
			d.Produce("in", int(format.Partition([]byte(key), 3)), record.Record{Key: []byte(key), Value: fmt.Appendf(nil, `{"key":%q,"n":1,"at":%d}`, key, e.At), Timestamp: 5})
		}
		d.Run()
		var got []string
		for _, r := range d.Records("out") {
			got = append(got, string(r.Value))
		}
		slices.Sort(got)
		return got
	}
	want := run(0, 0)
	if len(want) < 20 {
		t.Fatalf("only %d results", len(want))
	}
	for seed := range uint64(8) {
		if diff := drive.DiffRows(run(seed, 0.25), slices.Clone(want)); diff != "" {
			t.Fatalf("seed %d:\n%s", seed, diff)
		}
	}
}
