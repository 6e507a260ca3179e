package processor_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/drive"
	"github.com/millrace-stream/millrace/processor"
)

type limit struct {
	Name string `json:"name"`
	Max  int64  `json:"max"` // 0 = the limit is gone
}

// limits tells for each event which limits it is above, in three ways that must agree, and on a limit "count" how many events
// each key has had.
func limits(t *processor.Topology) {
	rules := processor.From(t, processor.Topic[limit]{Name: "limits"})
	gone := func(l limit) bool { return l.Max == 0 }
	name := func(l limit) string { return l.Name }
	table := processor.Broadcast(rules, "limits", name, gone)
	events := processor.KeyBy(processor.From(t, processor.Topic[event]{Name: "in", EventTime: eventTime}), "by-key", func(e event) string { return e.Key })
	out := processor.ProcessBroadcast(events, rules, "check", func(ctx *processor.BroadcastContext[string, event, limit, string]) {
		own := processor.BroadcastState[string, limit](ctx, "limits")
		view := processor.Lookup(ctx, table)
		n := processor.Value[int64](ctx, "n")
		ctx.OnBroadcast(func(l limit) error {
			if l.Name == "count" {
				return processor.EachKey(ctx, n, func() error {
					ctx.Emit(fmt.Sprintf("%s has %d", ctx.Key(), n.Get()))
					return nil
				})
			}
			if own.Put(l.Name, l); l.Max == 0 {
				own.Delete(l.Name)
			}
			return nil
		})
		ctx.OnRecord(func(e event) error {
			n.Set(n.Get() + 1)
			var a, b []string
			for k, l := range own.All() {
				if e.N > l.Max {
					a = append(a, k)
				}
			}
			for k, l := range view.All() {
				if got, ok := view.Get(k); !ok || got != l {
					return fmt.Errorf("Get of %s: %v", k, got)
				}
				if e.N > l.Max && k != "count" {
					b = append(b, k)
				}
			}
			ctx.Emit(fmt.Sprintf("%d over %v and %v", e.ID, a, b))
			return nil
		})
	})
	processor.To(out, processor.SinkTopic[string]{Name: "out"})
}

// TestBroadcast: every subtask has the whole of what is broadcast, through crashes; keyed state can be gone through.
func TestBroadcast(t *testing.T) {
	for seed := range seeds(t, 30) {
		rng := rand.New(rand.NewPCG(seed, 5))
		o := drive.Options{Default: 4, Partitions: map[string]int{"limits": 1 + rng.IntN(2)}, Batch: 1 + rng.IntN(20), Crash: 0.2, Behind: 0.3, Copy: 0.3, Restore: drive.Mixed, Seed: seed}
		d := &driver{drive.New(t, limits, o), t}
		n := map[string]int{}
		current := map[string]int64{}
		ids := 0
		for range 4 {
			for range 1 + rng.IntN(5) {
				l := limit{fmt.Sprintf("l%d", rng.IntN(4)), rng.Int64N(3) * 30}
				current[l.Name] = l.Max
				d.sendKeyed("limits", l.Name, l, 1)
			}
			d.run()
			before := len(d.records("out"))
			for range 30 {
				e := event{ids, fmt.Sprintf("k%d", rng.IntN(7)), rng.Int64N(100), int64(1000 + ids)}
				ids++
				n[e.Key]++
				d.sendKeyed("in", e.Key, e, e.At)
			}
			d.run()
			rows := d.records("out")
			if len(rows) != before+30 {
				t.Fatalf("seed %d: %d rows, want %d", seed, len(rows), before+30)
			}
			for _, r := range rows {
				var id int
				if _, err := fmt.Sscanf(string(r.Value), "%d over", &id); err != nil || id < ids-30 {
					continue
				}
				over, _ := strings.CutPrefix(string(r.Value), fmt.Sprint(id))
				left, right, _ := strings.Cut(strings.TrimPrefix(over, " over "), " and ")
				if left != right {
					t.Fatalf("seed %d: event %d: broadcast state says %s, the table %s", seed, id, left, right)
				}
				for name, most := range current {
					if has := strings.Contains(left, name); most == 0 && has {
						t.Fatalf("seed %d: event %d: limit %s is gone, and it is above it: %s", seed, id, name, left)
					}
				}
			}
		}
		// All subtasks go through their keys.
		d.sendKeyed("limits", "count", limit{"count", 1000}, 1)
		d.run()
		var want []string
		for k, n := range n {
			want = append(want, fmt.Sprintf("%s=%s has %d @1", k, k, n))
		}
		var got []string
		for _, row := range d.rows("out") {
			if strings.Contains(row, "has") {
				got = append(got, row)
			}
		}
		wantRows(t, got, want...)
	}
}

// TestBroadcastIsWrittenByAll: OnRecord runs in one subtask, so it cannot write what all have.
func TestBroadcastIsWrittenByAll(t *testing.T) {
	d := &driver{drive.New(t, func(top *processor.Topology) {
		rules := processor.From(top, processor.Topic[limit]{Name: "limits"})
		in := processor.FromKeyed(top, format.String(), processor.Topic[event]{Name: "in", EventTime: eventTime})
		processor.ProcessBroadcast(in, rules, "check", func(ctx *processor.BroadcastContext[string, event, limit, string]) {
			own := processor.BroadcastState[string, limit](ctx, "limits")
			ctx.OnBroadcast(func(limit) error { return nil })
			ctx.OnRecord(func(e event) error { own.Put(e.Key, limit{}); return nil })
		})
	}, drive.Options{MayFail: true}), t}
	d.sendKeyed("in", "k", event{At: 1}, 1)
	d.run()
	if d.Failed == nil || !strings.Contains(d.Failed.Error(), "outside of OnBroadcast") {
		t.Fatalf("the subtask failed with %v", d.Failed)
	}
}

// TestGlobalTableJoins: with and without a row, keyed and not; nothing is processed before the table is loaded, and a
// table does not hold back event time.
func TestGlobalTableJoins(t *testing.T) {
	type named struct {
		ID   int    `json:"id"`
		Name string `json:"name"`
	}
	d := &driver{drive.New(t, func(top *processor.Topology) {
		names := processor.GlobalTableFrom(top, "names", format.String(), processor.Topic[string]{Name: "names", Value: format.String()})
		in := processor.FromKeyed(top, format.String(), processor.Topic[event]{Name: "in", EventTime: eventTime})
		id := func(e event) string { return e.Key }
		left := func(e event, name *string) named {
			if name == nil {
				return named{e.ID, "?"}
			}
			return named{e.ID, *name}
		}
		inner := func(e event, name string) named { return named{e.ID, name} }
		processor.ToTopic(processor.JoinGlobal(in, names, id, inner), "inner")
		processor.ToTopic(processor.LeftJoinGlobal(in, names, id, left), "left")
		processor.ToTopic(processor.JoinGlobalValues(in, names, id, inner), "inner-keyed")
		processor.ToTopic(processor.LeftJoinGlobalValues(in, names, id, left), "left-keyed")
		timers := processor.Process(in, "late", func(ctx *processor.KeyedContext[string, event, string]) {
			ctx.OnRecord(func(e event) error { ctx.RegisterEventTimer(time.UnixMilli(e.At + 5)); return nil })
			ctx.OnTimer(func(processor.Timer) error { ctx.Emit("fired"); return nil })
		})
		processor.To(timers, processor.SinkTopic[string]{Name: "timers"})
	}, drive.Options{Default: 2, Restore: drive.Mixed}), t}
	for i, k := range []string{"a", "b", "c"} {
		d.sendKeyed("in", k, event{ID: i, Key: k, At: 10}, 10)
		if k != "b" {
			d.produce("names", i%2, []byte(k), []byte("name of "+k), 1000)
		}
	}
	for _, st := range d.Tasks { // the first start, with all that is in the topics
		st.Restart()
	}
	d.run()
	row := func(key string, id int, name string) string {
		b, err := json.Marshal(named{id, name})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s=%s @10", key, b)
	}
	wantRows(t, d.rows("inner"), row("", 0, "name of a"), row("", 2, "name of c"))
	wantRows(t, d.rows("left"), row("", 0, "name of a"), row("", 1, "?"), row("", 2, "name of c"))
	wantRows(t, d.rows("inner-keyed"), row("a", 0, "name of a"), row("c", 2, "name of c"))
	wantRows(t, d.rows("left-keyed"), row("a", 0, "name of a"), row("b", 1, "?"), row("c", 2, "name of c"))
	for _, k := range []string{"a", "b", "c"} { // on both partitions
		d.sendKeyed("in", k, event{ID: 9, Key: k, At: 100}, 100)
	}
	d.produce("names", 0, []byte("a"), nil, 2000)
	d.run()
	if rows := d.rows("timers"); len(rows) != 3 {
		t.Errorf("timers %q: the table holds back event time", rows)
	}
	d.sendKeyed("in", "a", event{ID: 3, Key: "a", At: 200}, 200)
	d.run()
	if rows := d.rows("left"); !slices.Contains(rows, strings.Replace(row("", 3, "?"), "@10", "@200", 1)) {
		t.Errorf("the row is not gone: %q", rows)
	}
}
