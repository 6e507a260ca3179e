package processor_test

import (
	"context"
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
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/window"
)

func asyncDriver(t testing.TB, topology func(*processor.Topology), o drive.Options) *driver {
	t.Helper()
	o.Restore = drive.Mixed
	return &driver{drive.New(t, topology, o), t}
}

// TestAsync: each value has its result once, in order where that is asked for, whatever the order in which calls end and
// wherever the subtask crashes; and no result is late behind it.
func TestAsync(t *testing.T) {
	for seed := range seeds(t, 60) {
		rng := rand.New(rand.NewPCG(seed, 11))
		o := processor.AsyncOptions{Capacity: 1 + rng.IntN(8), Unordered: rng.IntN(2) == 0, Retry: processor.Retry{Attempts: 3, Backoff: 1}}
		cached := rng.IntN(3) == 0
		job := func(ask bool) func(*processor.Topology) {
			return func(top *processor.Topology) {
				s := processor.FromKeyed(top, format.String(), processor.Topic[event]{Name: "in", EventTime: eventTime, MaxOutOfOrder: ms(20)})
				if ask {
					fails := map[int]int{} // calls of a driver run one after the other
					a := processor.AsyncValues(s, "ask", o, func(_ context.Context, e event) (event, error) {
						if fails[e.ID]++; fails[e.ID]%3 != 0 && e.ID%5 == 0 {
							return e, errors.New("try again")
						}
						return e, nil
					})
					if cached {
						a = a.CacheBy(func(e event) string { return fmt.Sprint(e.ID) }, time.Hour)
					}
					s = a.KeyedStream
				}
				processor.To(s, processor.SinkTopic[event]{Name: "out"})
				late := processor.NewOutputTag[event]("late")
				sums := processor.Aggregate(s.Window(window.Tumbling(ms(50))).LateTo(late), "sum", processor.Sum(func(e event) int64 { return e.N }),
					func(w processor.Window[string], n int64) result { return result{w.Key, w.Start.UnixMilli(), 0, n} })
				processor.To(sums, processor.SinkTopic[result]{Name: "sums"})
				processor.To(processor.SideOutput(sums, late), processor.SinkTopic[event]{Name: "late"})
			}
		}
		partitions := 1 + rng.IntN(3)
		events := stream(rng, 200, 1000, 20, 0)
		run := func(ask bool, o drive.Options) *driver {
			o.Default, o.Seed = partitions, seed
			d := asyncDriver(t, job(ask), o)
			for i, e := range events {
				d.sendKeyed("in", e.Key, e, e.At)
				if rng.IntN(20) == 0 || i == len(events)-1 {
					d.run()
				}
			}
			return d
		}
		d := run(true, drive.Options{Batch: 1 + rng.IntN(20), Crash: 0.2, Behind: 0.3, Copy: 0.2, Calls: 0.3})
		plain := run(false, drive.Options{})
		wantRows(t, d.rows("out"), plain.rows("out")...)
		wantRows(t, d.rows("sums"), plain.rows("sums")...)
		wantRows(t, d.rows("late"))
		if !o.Unordered {
			for p := range d.Logs["out"] {
				var ids, want []string
				for _, r := range d.Logs["out"][p] {
					if !r.Control {
						ids = append(ids, string(r.Value))
					}
				}
				for _, r := range plain.Logs["out"][p] {
					if !r.Control {
						want = append(want, string(r.Value))
					}
				}
				if !slices.Equal(ids, want) {
					t.Fatalf("seed %d, partition %d: results are not in the order of the values:\n%v\nwant\n%v", seed, p, ids, want)
				}
			}
		}
		if n := d.entries("ask/waiting"); n > 0 {
			t.Fatalf("seed %d: %d values wait that have their results", seed, n)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// TestAsyncFailures: an error, a panic and a time-out go by the operator's policy, with the record as it was read; a
// deadline always has a dead letter; OnTimeout gives a result instead.
func TestAsyncFailures(t *testing.T) {
	call := func(ctx context.Context, e event) (string, error) {
		switch e.Key {
		case "error":
			return "", errors.New("no such user")
		case "panic":
			panic("boom")
		case "slow":
			<-ctx.Done()
			return "", ctx.Err()
		}
		return "fine", nil
	}
	for _, c := range []struct {
		name    string
		policy  []processor.Option
		handle  func(processor.AsyncStream[event, string]) processor.AsyncStream[event, string]
		want    []string
		letters []string
		failed  string
	}{
		{name: "fail", failed: "no such user"},
		{name: "skip", policy: []processor.Option{processor.OnError(processor.Skip)}, want: []string{"fine", "fine"}},
		{name: "dead letter", policy: []processor.Option{processor.OnError(processor.DeadLetter)}, want: []string{"fine", "fine"},
			letters: []string{"error: asynchronous call: no such user", "panic: asynchronous call: panic: boom", "slow: asynchronous call: no result within 5ms: context deadline exceeded"}},
		{name: "on timeout", policy: []processor.Option{processor.OnError(processor.Skip)}, want: []string{"fallback", "fine", "fine"},
			handle: func(s processor.AsyncStream[event, string]) processor.AsyncStream[event, string] {
				return s.OnTimeout(func(event) (string, error) { return "fallback", nil })
			}},
		{name: "deadline", policy: []processor.Option{processor.OnError(processor.Skip)}, want: []string{"fine"},
			letters: []string{"b: asynchronous call: the deadline of the value is over: context deadline exceeded"},
			handle: func(s processor.AsyncStream[event, string]) processor.AsyncStream[event, string] {
				return s.Deadline(func(e event) time.Time {
					if e.Key == "b" {
						return time.UnixMilli(1)
					}
					return time.Unix(1<<40, 0)
				})
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := asyncDriver(t, func(top *processor.Topology) {
				in := processor.From(top, processor.Topic[event]{Name: "in", EventTime: eventTime})
				s := processor.Async(in, "ask", processor.AsyncOptions{Timeout: ms(5)}, call, c.policy...)
				if c.handle != nil {
					s = c.handle(s)
				}
				processor.ToTopic(s, "out")
			}, drive.Options{MayFail: true})
			for i, key := range []string{"a", "error", "panic", "slow", "b"} {
				e := event{ID: i, Key: key, At: int64(1000 + i)}
				d.sendKeyed("in", key, e, e.At)
			}
			d.run()
			if c.failed != "" {
				if d.Failed == nil || !strings.Contains(d.Failed.Error(), c.failed) || !strings.Contains(d.Failed.Error(), "in") {
					t.Fatalf("the subtask failed with %v, want %q with the record's place", d.Failed, c.failed)
				}
				return
			}
			if d.Failed != nil {
				t.Fatal(d.Failed)
			}
			var got []string
			for _, r := range d.records("out") {
				got = append(got, strings.Trim(string(r.Value), `"`))
			}
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("results %q, want %q", got, c.want)
			}
			var letters []string
			for _, r := range d.records(drive.DeadLetters) {
				var e event
				if err := json.Unmarshal(r.Value, &e); err != nil {
					t.Fatalf("a dead letter is not the record: %q", r.Value)
				}
				headers := map[string]string{}
				for _, h := range r.Headers {
					headers[h.Key] = string(h.Value)
				}
				if headers["millrace-topic"] != "in" || headers["millrace-offset"] != fmt.Sprint(e.ID) || string(r.Key) != e.Key {
					t.Errorf("dead letter of %s: key %s, headers %v", e.Key, r.Key, headers)
				}
				letters = append(letters, e.Key+": "+headers["millrace-error"])
			}
			slices.Sort(letters)
			if !slices.Equal(letters, c.letters) {
				t.Errorf("dead letters %q, want %q", letters, c.letters)
			}
		})
	}
}

// TestAsyncOfUndoneRecords: a record that fails behind another use of its stream has no result either.
func TestAsyncOfUndoneRecords(t *testing.T) {
	d := asyncDriver(t, func(top *processor.Topology) {
		in := processor.From(top, processor.Topic[event]{Name: "in", EventTime: eventTime})
		processor.ToTopic(processor.Async(in, "ask", processor.AsyncOptions{}, func(_ context.Context, e event) (string, error) { return e.Key, nil }), "out")
		processor.ToTopic(processor.TryMap(in, func(e event) (string, error) {
			if e.N == 0 {
				return "", errors.New("bad")
			}
			return e.Key, nil
		}, processor.OnError(processor.Skip)), "other")
	}, drive.Options{Calls: 0.5})
	for i, key := range []string{"a", "b", "c"} {
		d.sendKeyed("in", key, event{ID: i, Key: key, N: int64(i % 2), At: 1000}, 1000)
	}
	d.run()
	wantRows(t, d.rows("out"), "=b @1000")
	wantRows(t, d.rows("other"), "=b @1000")
}
