package processor_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/window"
	"github.com/millrace-stream/millrace/statestore"
)

var errBomb = errors.New("bomb")

// mined is a topology that touches every kind of state, with a mine at every place where user code runs.
func mined(policy processor.Policy, mine func(site string, e event) error) func(*processor.Topology) {
	must := func(site string, e event) {
		if err := mine(site, e); err != nil {
			panic(err)
		}
	}
	onError := processor.OnError(policy)
	return func(t *processor.Topology) {
		serde := format.Func(func(src []byte, e *event) error {
			if err := json.Unmarshal(src, e); err != nil {
				return err
			}
			return mine("decode", *e)
		}, func(dst []byte, e *event) ([]byte, error) { return dst, nil })
		in := processor.FromKeyed(t, format.String(), processor.Topic[event]{Name: "in", Value: serde, MaxOutOfOrder: 20 * time.Millisecond,
			EventTime: func(e event) time.Time { must("event-time", e); return eventTime(e) }}, onError)
		odd := in.Filter(func(e event) bool { must("filter", e); return e.N%2 == 1 }, onError)
		mapped := processor.MapValues(odd, func(e event) event { must("map-values", e); return e }, onError)
		running := processor.RunningAggregate(mapped, "running", processor.Fold(func(a *int64, e event) { *a += e.N; must("running-add", e) }),
			func(k string, a int64, e event) event { must("running-result", e); e.N += a << 20; return e }, onError)
		processed := processor.Process(running, "process", func(ctx *processor.KeyedContext[string, event, event]) {
			last := processor.Value[event](ctx, "last")
			seen := processor.List[int](ctx, "seen")
			by := processor.MapOf[int64, []string](ctx, "by")
			ctx.OnRecord(func(e event) error {
				if err := mine("process-before", e); err != nil {
					return err
				}
				if e.N%5 == 0 {
					last.Clear()
				} else {
					last.Update(func(v *event) { *v = e })
				}
				seen.Add(e.ID)
				bucket, _ := by.Get(e.At / 100)
				by.Put(e.At/100, append(bucket, e.Key))
				if e.N%7 == 0 {
					by.Delete(e.At/100 - 1)
				}
				if e.N%11 == 0 {
					seen.Clear()
				}
				ctx.RegisterEventTimer(time.UnixMilli(e.At + 50))
				ctx.DeleteEventTimer(time.UnixMilli(e.At + 13))
				if err := mine("process-middle", e); err != nil {
					return err
				}
				ctx.Emit(e)
				ctx.EmitAt(e, time.UnixMilli(e.At+1))
				return mine("process-after", e)
			})
			ctx.OnTimer(func(at processor.Timer) error {
				v, ok := last.Load()
				n := 0
				for range seen.All() {
					n++
				}
				ctx.Emit(event{ID: n, Key: fmt.Sprint(ok), N: v.N, At: at.At.UnixMilli()})
				return nil
			})
		}, onError)
		late := processor.NewOutputTag[event]("late")
		windows := processor.Aggregate(processed.Window(window.Tumbling(30*time.Millisecond)).AllowedLateness(60*time.Millisecond).LateTo(late), "windows",
			processor.Fold(func(a *[]int, e event) { *a = append(*a, e.ID); must("window-add", e) }),
			func(w processor.Window[string], a []int) []int {
				if len(a) > 0 {
					must("window-result", event{ID: a[len(a)-1], Key: "window"})
				}
				return a
			}, onError)
		flat := processor.FlatMap(windows, func(ids []int, emit func(int)) error {
			for _, id := range ids {
				emit(id)
			}
			if len(ids) > 0 {
				return mine("flat-map", event{ID: ids[len(ids)-1], Key: "window"})
			}
			return nil
		}, onError)
		processor.To(flat, processor.SinkTopic[int]{Name: "ids", Value: format.Func(nil, func(dst []byte, n *int) ([]byte, error) {
			return fmt.Appendf(dst, "%d", *n), mine("encode", event{ID: *n, Key: "window"})
		})}, onError)
		processor.To(processor.SideOutput(windows, late), processor.SinkTopic[event]{Name: "late", Key: func(e event) []byte { must("key", e); return []byte(e.Key) }}, onError)
		processor.To(processed, processor.SinkTopic[event]{Name: "processed"}, onError)
	}
}

// logical is the state without what depends on where epochs end: the sequence numbers of list elements, and the
// descriptors of schemas, which an entry leaves that was written in one epoch and removed in the next.
func logical(state map[string][]byte) map[string]string {
	lists := string(binary.BigEndian.AppendUint32(nil, uint32(statestore.StoreID("process/seen"))))
	out := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(state)) {
		if strings.HasPrefix(k, "\x00\x00\x00\x00") {
			continue
		}
		if strings.HasPrefix(k, lists) {
			out[k[:len(k)-8]] += fmt.Sprintf("%x ", state[k])
		} else {
			out[k] = string(state[k])
		}
	}
	return out
}

var mineSites = []string{"decode", "event-time", "filter", "map-values", "running-add", "running-result", "process-before", "process-middle",
	"process-after", "window-add", "key"}

// A record that fails anywhere leaves no trace: outputs, late records, state and timers are those of a run without it.
func TestFailedRecordLeavesNoTrace(t *testing.T) {
	fired := map[string]int{}
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 3))
		events := stream(rng, 250, 1000, 20, 200)
		slices.SortFunc(events, func(a, b event) int { return a.ID - b.ID })
		for _, site := range mineSites {
			for _, panics := range []bool{false, true} {
				bad := map[int]bool{}
				armed := true
				mine := func(at string, e event) error {
					if !armed || at != site || e.ID%6 != 2 || !strings.HasPrefix(e.Key, "k") {
						return nil
					}
					bad[e.ID] = true
					fired[site]++
					if panics {
						panic(errBomb)
					}
					return errBomb
				}
				o := driverOptions{seed: seed, batch: 30}
				d := newDriver(t, mined(processor.Skip, mine), o)
				for _, e := range events {
					d.sendKeyed("in", e.Key, e, e.At)
				}
				d.run()
				armed = false
				clean := newDriver(t, mined(processor.Skip, mine), o)
				for _, e := range events {
					if !bad[e.ID] {
						clean.sendKeyed("in", e.Key, e, e.At)
					}
				}
				clean.run()
				t.Logf("seed %d, %s, panics %v, %d bad", seed, site, panics, len(bad))
				for _, topic := range []string{"ids", "late", "processed"} {
					wantRows(t, d.rows(topic), clean.rows(topic)...)
				}
				if d.late() != clean.late() {
					t.Fatalf("%d late, want %d", d.late(), clean.late())
				}
				if got, want := logical(d.Tasks[0].Live()), logical(clean.Tasks[0].Live()); !maps.Equal(got, want) {
					for _, k := range slices.Sorted(maps.Keys(got)) {
						if got[k] != want[k] {
							t.Logf("%x: %x, want %x", k, got[k], want[k])
						}
					}
					t.Fatalf("state differs: %d keys, want %d", len(got), len(want))
				}
				s := d.Tasks[0].Task.Stats()
				if n := len(d.records("dead-letter")); n != 0 || s.Skipped == 0 && len(bad) > 0 {
					t.Fatalf("%d dead letters, %d skipped", n, s.Skipped)
				}
			}
		}
	}
	for _, site := range mineSites {
		if fired[site] == 0 {
			t.Errorf("the mine at %s never went off", site)
		}
	}
}

// What fails while a window fires costs that one result.
func TestFailedWindowResult(t *testing.T) {
	for _, site := range []string{"window-result", "flat-map", "encode"} {
		for _, panics := range []bool{false, true} {
			mine := func(at string, e event) error {
				if at != site || e.ID != 20 {
					return nil
				}
				if panics {
					panic(errBomb)
				}
				return errBomb
			}
			d := newDriver(t, mined(processor.DeadLetter, mine), driverOptions{})
			for i, key := range []string{"a", "b", "c"} {
				d.sendKeyed("in", key, event{ID: 10 * (i + 1), Key: key, N: 1, At: 5}, 5)
			}
			d.sendKeyed("in", "a", event{ID: 99, Key: "a", N: 1, At: 1000}, 5)
			d.run()
			var ids []string
			for _, r := range d.records("ids") {
				ids = append(ids, string(r.Value))
			}
			slices.Sort(ids)
			// Each event is emitted twice into the same window; the timers add their count of seen events, 1.
			if got := strings.Join(ids, " "); strings.Contains(got, "20") || strings.Count(got, "10") != 2 || strings.Count(got, "30") != 2 {
				t.Fatalf("%s: ids %s", site, got)
			}
			letters := d.records("dead-letter")
			if len(letters) != 1 || string(letters[0].Key) != "b" || letters[0].Value != nil {
				t.Fatalf("%s: dead letters %v", site, letters)
			}
			for _, h := range letters[0].Headers {
				if h.Key == "millrace-topic" {
					t.Fatalf("a result has no topic: %v", letters[0].Headers)
				}
			}
		}
	}
}

// With Fail the error says where, a panic brings its stack, and the failed task stays failed.
func TestFailStopsWithPosition(t *testing.T) {
	for _, site := range mineSites {
		for _, panics := range []bool{false, true} {
			mine := func(at string, e event) error {
				if at != site || e.ID != 2 || e.Key != "a" {
					return nil
				}
				if panics {
					panic(errBomb)
				}
				return errBomb
			}
			d := newDriver(t, mined(processor.Fail, mine), driverOptions{mayFail: true})
			times := []int64{1000, 5000, 5001}
			if site == "key" {
				times[2] = 10 // late
			}
			for i, at := range times {
				d.sendKeyed("in", "a", event{ID: i, Key: "a", N: 3, At: at}, 5)
			}
			d.run()
			var e *task.Error
			if !errors.As(d.Failed, &e) || e.Kind != task.Data || e.Offset != 2 || e.Topic != "in" || e.Operator == "" {
				t.Fatalf("%s: error %v", site, d.Failed)
			}
			if !errors.Is(e, errBomb) {
				t.Fatalf("%s: the cause is lost: %v", site, e)
			}
			must := panics || !slices.Contains([]string{"decode", "process-before", "process-middle", "process-after"}, site)
			if must != (len(e.Stack) > 0) || must && !strings.Contains(string(e.Stack), "atomic_test.go") {
				t.Fatalf("%s, panics %v: stack %q", site, panics, e.Stack)
			}
			if _, err := d.Tasks[0].Task.Step(10, 0); err == nil {
				t.Fatal("a failed task goes on")
			}
			if _, err := d.Tasks[0].Task.Seal(9, 0); err == nil {
				t.Fatal("a failed task can be sealed")
			}
		}
	}
}
