package processor_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/drive"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/processor"
)

// pairs connects two streams and pairs each value with those of the other side that are at most reach ms away in event
// time; a timer forgets what can meet nothing any more.
func pairs(reach int64) func(*processor.Topology) {
	return func(t *processor.Topology) {
		source := func(name string) processor.Topic[event] {
			return processor.Topic[event]{Name: name, EventTime: eventTime, MaxOutOfOrder: 50 * time.Millisecond}
		}
		left := processor.FromKeyed(t, format.String(), source("left"))
		right := processor.KeyBy(processor.From(t, source("right")), "by-key", func(e event) string { return e.Key })
		byKey := processor.KeyBy(left, "left-by-key", func(e event) string { return e.Key })
		out := processor.Connect(byKey, right, "pairs", func(ctx *processor.CoContext[string, event, event, string]) {
			// Values of one ms are kept by their ids.
			lefts, rights := processor.MapOf[[2]int64, bool](ctx, "lefts"), processor.MapOf[[2]int64, bool](ctx, "rights")
			seen := ctx.Metrics().Counter("seen")
			handle := func(e event, mine, others *processor.MapState[[2]int64, bool], emit func(other int64)) error {
				seen.Inc()
				mine.Put([2]int64{e.At, int64(e.ID)}, true)
				for k := range others.Range([2]int64{e.At - reach, -1 << 62}, [2]int64{e.At + reach + 1, -1 << 62}) {
					emit(k[1])
				}
				ctx.RegisterEventTimer(time.UnixMilli(e.At + reach))
				return nil
			}
			ctx.OnLeft(func(e event) error {
				return handle(e, lefts, rights, func(id int64) { ctx.Emit(fmt.Sprintf("%s %d-%d", ctx.Key(), e.ID, id)) })
			})
			ctx.OnRight(func(e event) error {
				return handle(e, rights, lefts, func(id int64) { ctx.Emit(fmt.Sprintf("%s %d-%d", ctx.Key(), id, e.ID)) })
			})
			ctx.OnTimer(func(at processor.Timer) error {
				for _, side := range []*processor.MapState[[2]int64, bool]{lefts, rights} {
					old := slices.Collect(func(yield func([2]int64) bool) {
						for k := range side.All() {
							if k[0] <= at.At.UnixMilli()-reach && !yield(k) {
								return
							}
						}
					})
					for _, k := range old {
						side.Delete(k)
					}
				}
				return nil
			})
		})
		processor.To(out, processor.SinkTopic[string]{Name: "out", Value: text})
	}
}

// TestConnectEqualsNestedLoops joins two streams by Connect and by loops over all pairs, under schedules with crashes.
func TestConnectEqualsNestedLoops(t *testing.T) {
	const reach = 30
	for seed := range seeds(t, 16) {
		rng := rand.New(rand.NewPCG(seed, 5))
		d := drive.New(t, pairs(reach), drive.Options{Partitions: map[string]int{"left": 2, "right": 4}, Seed: seed, Batch: []int{1, 3, 64}[seed%3],
			Crash: []float64{0, 0.2}[seed%2], Behind: 0.5, Copy: 0.2, Restore: drive.Mixed})
		sides := [2][]event{}
		at := int64(1000)
		for i := range 400 {
			at += rng.Int64N(4)
			e := event{ID: i, Key: fmt.Sprint("k", rng.IntN(5)), At: at - rng.Int64N(50)} // within MaxOutOfOrder: nothing is late
			side := rng.IntN(2)
			sides[side] = append(sides[side], e)
			topic := []string{"left", "right"}[side]
			p := rng.IntN(d.PartitionsOf(topic))
			if side == 0 {
				p = int(format.Partition([]byte(e.Key), 2))
			}
			b, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			d.Produce(topic, p, record.Record{Key: []byte(e.Key), Value: b, Timestamp: e.At})
			if i%100 == 99 {
				d.Run()
			}
		}
		d.Run()
		var want []string
		for _, l := range sides[0] {
			for _, r := range sides[1] {
				if l.Key == r.Key && max(l.At-r.At, r.At-l.At) <= reach {
					want = append(want, fmt.Sprintf("%s %d-%d", l.Key, l.ID, r.ID))
				}
			}
		}
		var got []string
		for _, r := range d.Records("out") {
			got = append(got, string(r.Value))
		}
		slices.Sort(got)
		slices.Sort(want)
		if diff := drive.DiffRows(got, want); diff != "" {
			t.Fatalf("seed %d:\n%s", seed, diff)
		}
	}
}

// Keys that are written in different ways do not meet, and the error says so at build.
func TestConnectKeysMustBeWrittenAlike(t *testing.T) {
	custom := func(prefix string) format.Serde[string] {
		return format.Func(func(src []byte, v *string) error { *v = string(src[len(prefix):]); return nil },
			func(dst []byte, v *string) ([]byte, error) { return append(append(dst, prefix...), *v...), nil })
	}
	one := custom("a")
	for _, c := range []struct {
		name        string
		left, right format.Serde[string]
		fails       bool
	}{
		{"the same", format.String(), format.String(), false},
		{"the default and the same", nil, format.String(), false},
		{"one variable", one, one, false},
		{"functions of one maker", one, custom("b"), true},
		{"text and something else", format.String(), one, true},
	} {
		top := processor.New()
		l := processor.FromKeyed(top, c.left, processor.Topic[event]{Name: "l"})
		r := processor.FromKeyed(top, c.right, processor.Topic[event]{Name: "r"})
		processor.ToTopic(processor.Connect(l, r, "c", func(ctx *processor.CoContext[string, event, event, int]) {
			ctx.OnLeft(func(event) error { return nil })
			ctx.OnRight(func(event) error { return nil })
		}), "out")
		err := top.Validate()
		if (err != nil) != c.fails || err != nil && !strings.Contains(err.Error(), "give both the same serde") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	top := processor.New()
	l := processor.FromKeyed[string](top, nil, processor.Topic[event]{Name: "l"})
	processor.Connect(l, l, "c", func(ctx *processor.CoContext[string, event, event, int]) {
		ctx.OnLeft(func(event) error { return nil })
	})
	if err := top.Validate(); err == nil || !strings.Contains(err.Error(), "OnRight callback is nil") {
		t.Error(err)
	}
}

// TestProcessStream: operator lists stay with their partitions, side outputs split a stream, ticks emit what is held.
func TestProcessStream(t *testing.T) {
	odd := processor.NewOutputTag[int64]("odd")
	opened := 0
	topology := func(top *processor.Topology) {
		in := processor.From(top, processor.Topic[int64]{Name: "in"})
		out := processor.ProcessStream(in, "hold", func(ctx *processor.Context[int64, int64]) {
			held := processor.OperatorList[int64](ctx, "held")
			ctx.OnOpen(func() error {
				for range held.All() {
					opened++
				}
				return nil
			})
			size := ctx.Metrics().Gauge("held")
			ctx.OnRecord(func(n int64) error {
				if n < 0 {
					held.Add(n) // undone
					return errors.New("negative")
				}
				if n%2 == 1 {
					odd.Emit(ctx, n)
					return nil
				}
				held.Add(n)
				size.Set(float64(len(slices.Collect(held.All()))))
				return nil
			})
			ctx.OnTick(time.Second, func(time.Time) error {
				for n := range held.All() {
					ctx.Emit(n)
				}
				held.Replace(nil)
				return nil
			})
		}, processor.OnError(processor.Skip))
		processor.ToTopic(out, "even")
		processor.ToTopic(processor.SideOutput(out, odd), "odd")
	}
	values := func(d *drive.Driver, topic string) string {
		var s []string
		for _, r := range d.Records(topic) {
			s = append(s, string(r.Value))
		}
		slices.Sort(s)
		return strings.Join(s, " ")
	}
	for seed := range uint64(6) {
		opened = 0
		d := drive.New(t, topology, drive.Options{Partitions: map[string]int{"in": 4}, Parallelism: 2, Seed: seed, Still: true, Crash: 0.2, Behind: 0.5, Restore: drive.Mixed})
		for i, n := range []string{"2", "-4", "3", "4", "6", "-1", "7"} {
			d.Produce("in", i%4, record.Record{Value: []byte(n), Timestamp: int64(i)})
		}
		d.Run()
		if got := values(d, "odd"); got != "3 7" {
			t.Errorf("seed %d: odd %s", seed, got)
		}
		for _, st := range d.Tasks {
			st.Commit()
			st.Restart()
		}
		if opened < 3 {
			t.Errorf("seed %d: OnOpen saw %d", seed, opened)
		}
		d.O.Crash = 0 // after which ticks count anew
		d.Pass(999)
		d.Run()
		if got := values(d, "even"); got != "" {
			t.Errorf("seed %d: too early: %s", seed, got)
		}
		d.Pass(1)
		d.Run()
		if got := values(d, "even"); got != "2 4 6" {
			t.Errorf("seed %d: even %s", seed, got)
		}
		d.Pass(1000)
		d.Run()
		if got := values(d, "even"); got != "2 4 6" {
			t.Errorf("seed %d: emitted twice: %s", seed, got)
		}
	}
}

// The gauges and counters of operators are in the task's metrics.
func TestOperatorMetrics(t *testing.T) {
	d := drive.New(t, func(top *processor.Topology) {
		in := processor.From(top, processor.Topic[int64]{Name: "in"})
		processor.ToTopic(processor.ProcessStream(in, "p", func(ctx *processor.Context[int64, int64]) {
			seen, again, last := ctx.Metrics().Counter("seen"), ctx.Metrics().Counter("seen"), ctx.Metrics().Gauge("last")
			ctx.OnRecord(func(n int64) error { seen.Add(n); again.Inc(); seen.Add(-1); last.Set(float64(n)); return nil })
		}), "out")
	}, drive.Options{Still: true})
	for i, n := range []string{"5", "2"} {
		d.Produce("in", 0, record.Record{Value: []byte(n), Timestamp: int64(i)})
	}
	d.Run()
	want := []task.Metric{{Operator: "p", Name: "seen", Value: 9}, {Operator: "p", Name: "last", Gauge: true, Value: 2}}
	if got := d.Tasks[0].Task.Metrics(); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	top := processor.New()
	processor.ProcessStream(processor.From(top, processor.Topic[int64]{Name: "in"}), "p", func(ctx *processor.Context[int64, int64]) {
		ctx.Metrics().Counter("No Name")
		ctx.OnRecord(func(int64) error { return nil })
	})
	if err := top.Validate(); err == nil || !strings.Contains(err.Error(), `metric "No Name"`) {
		t.Error(err)
	}
}
