package processortest_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/processortest"
	"github.com/millrace-stream/millrace/processor/window"
)

type Order struct {
	User   string    `json:"user"`
	Amount float64   `json:"amount"`
	At     time.Time `json:"ts,unixmilli"`
}

type Count struct {
	User  string    `json:"user"`
	Start time.Time `json:"start,unixmilli"`
	End   time.Time `json:"end,unixmilli"`
	Count int64     `json:"count"`
	Sum   float64   `json:"sum"`
}

type total struct {
	N   int64
	Sum float64
}

// at is a time in s.
func at(s float64) time.Time { return time.UnixMilli(int64(s * 1000)).UTC() }

var lateOrders = processor.NewOutputTag[Order]("late")

// orderCounts counts orders by user in windows of 10 s, through a repartition topic.
func orderCounts(t *processor.Topology) {
	orders := processor.From(t, processor.Topic[Order]{Name: "orders", EventTime: func(o Order) time.Time { return o.At }, MaxOutOfOrder: 2 * time.Second})
	byUser := processor.KeyBy(orders, "by-user", func(o Order) string { return o.User })
	counts := processor.Aggregate(byUser.Window(window.Tumbling(10*time.Second)).LateTo(lateOrders), "count",
		processor.Fold(func(a *total, o Order) { a.N++; a.Sum += o.Amount }),
		func(w processor.Window[string], a total) Count { return Count{w.Key, w.Start, w.End, a.N, a.Sum} })
	processor.ToTopic(counts, "counts")
}

type alarm struct {
	Sensor int32  `json:"sensor"`
	Text   string `json:"text"`
}

type reading struct {
	Sensor int32     `json:"sensor"`
	Value  int64     `json:"value"`
	At     time.Time `json:"ts,unixmilli"`
}

var low = processor.NewOutputTag[alarm]("low")

// silence tells which sensors have said nothing for a minute of event time, or 10 s of processing time, and refuses what is
// below zero.
func silence(t *processor.Topology) {
	readings := processor.FromKeyed[int32](t, nil, processor.Topic[reading]{Name: "readings", EventTime: func(r reading) time.Time { return r.At }, Idle: 5 * time.Second})
	alarms := processor.Process(readings, "silence", func(ctx *processor.KeyedContext[int32, reading, alarm]) {
		last := processor.Value[reading](ctx, "last")
		recent := processor.List[int64](ctx, "recent", processor.TTL{After: time.Hour})
		high := processor.MapOf[string, int64](ctx, "extremes")
		ctx.OnRecord(func(r reading) error {
			if r.Value < 0 {
				return errors.New("value is below zero")
			}
			if before, ok := last.Load(); ok {
				ctx.DeleteEventTimer(before.At.Add(time.Minute))
			}
			last.Set(r)
			recent.Add(r.Value)
			if h, ok := high.Get("high"); !ok || r.Value > h {
				high.Put("high", r.Value)
			}
			if r.Value < 10 {
				low.Emit(ctx, alarm{r.Sensor, "low"})
			}
			ctx.RegisterEventTimer(r.At.Add(time.Minute))
			ctx.RegisterProcessingTimer(ctx.ProcessingTime().Add(10 * time.Second))
			return nil
		})
		ctx.OnTimer(func(timer processor.Timer) error {
			text := "silent for a minute"
			if timer.Domain == processor.ProcessingTime {
				text = "silent for 10 s"
			}
			ctx.Emit(alarm{ctx.Key(), text})
			return nil
		})
	}, processor.OnError(processor.DeadLetter))
	processor.ToTopic(alarms, "alarms")
}

func TestDriverRunsTheProgramOfTheReadme(t *testing.T) {
	for _, partitions := range []int{1, 3} {
		d := processortest.New(t, orderCounts, processortest.Partitions(partitions))
		in, out := processortest.In[Order](d, "orders"), processortest.Out[Count](d, "counts")
		in.Send(Order{"ann", 3, at(1)}, Order{"bob", 1, at(9)}, Order{"ann", 4, at(2)})
		out.Want()
		d.Restart()
		for p := range partitions {
			in.SendTo(p, Order{"zoe", 0, at(11.999)})
		}
		out.Want() // the watermark is 9.998 s
		for p := range partitions {
			in.SendTo(p, Order{"zoe", 0, at(12)})
		}
		out.Want(Count{"bob", at(0), at(10), 1, 1}, Count{"ann", at(0), at(10), 2, 7})
		out.Want()
		d.AdvanceWatermark(at(20))
		out.WantOrdered(Count{"zoe", at(10), at(20), 2 * int64(partitions), 0})
		if n := len(out.Rows()); n != 3 || len(out.Values()) != n || string(out.Rows()[0].Key) == "" {
			t.Errorf("%d partitions: %d rows: %v", partitions, n, out.Rows())
		}
		if rows := processortest.StateRows(d, "count"); len(rows) != 0 {
			t.Errorf("%d partitions: closed windows are still there: %v", partitions, rows)
		}
	}
}

func TestSideOutputNeedsNoSink(t *testing.T) {
	d := processortest.New(t, orderCounts)
	late := processortest.Side(d, "count", lateOrders)
	in := processortest.In[Order](d, "orders")
	in.Send(Order{"ann", 3, at(1)})
	d.AdvanceWatermark(at(10))
	late.Want()
	in.Send(Order{"ann", 5, at(3)})
	late.Want(Order{"ann", 5, at(3)})
	if d.Late() != 1 {
		t.Errorf("%d late records, want 1", d.Late())
	}
}

func TestDriverShowsStateAndTimers(t *testing.T) {
	d := processortest.New(t, silence, processortest.Partitions(2))
	lows := processortest.Side(d, "silence", low)
	in := processortest.In[reading](d, "readings").Keyed(func(r reading) any { return r.Sensor })
	out := processortest.Out[alarm](d, "alarms")
	now := d.ProcessingTime()
	in.Send(reading{1, 20, at(0)}, reading{2, 9, at(1)}, reading{1, 30, at(2)})
	lows.Want(alarm{2, "low"})
	check := func() {
		t.Helper()
		if v, ok := processortest.State[int32, reading](d, "silence", "last", 1); !ok || v.Value != 30 {
			t.Errorf("last of 1: %v, %v", v, ok)
		}
		if v, ok := processortest.State[int32, reading](d, "silence", "last", 3); ok {
			t.Errorf("last of 3: %v", v)
		}
		if l := processortest.StateList[int32, int64](d, "silence", "recent", 1); !slices.Equal(l, []int64{20, 30}) {
			t.Errorf("recent of 1: %v", l)
		}
		if m := processortest.StateMap[int32, string, int64](d, "silence", "extremes", 2); len(m) != 1 || m["high"] != 9 {
			t.Errorf("extremes of 2: %v", m)
		}
		want := []processortest.Timer{{"2", at(61), processor.EventTime}, {"1", at(62), processor.EventTime},
			{"1", now.Add(10 * time.Second), processor.ProcessingTime}, {"2", now.Add(10 * time.Second), processor.ProcessingTime}}
		if timers := processortest.Timers(d, "silence"); !slices.Equal(timers, want) {
			t.Errorf("timers %v, want %v", timers, want)
		}
	}
	check()
	d.Restart()
	check()
	d.AdvanceWatermark(at(61))
	out.Want(alarm{2, "silent for a minute"})
	d.AdvanceProcessingTime(9 * time.Second)
	out.Want()
	d.AdvanceProcessingTime(time.Second)
	out.Want(alarm{1, "silent for 10 s"}, alarm{2, "silent for 10 s"})
	if timers := processortest.Timers(d, "silence"); len(timers) != 1 {
		t.Errorf("timers %v", timers)
	}
}

// Each value lives for its TTL, to the millisecond, counted from its last write or read, whatever is restarted. Clean-up removes
// what is in the store: all that there is after a restart, and nothing before it. Until then ReturnExpired gives it out.
func TestStatesExpire(t *testing.T) {
	const life = time.Second
	topology := func(top *processor.Topology) {
		in := processor.FromKeyed(top, format.String(), processor.Topic[string]{Name: "in"})
		out := processor.Process(in, "keep", func(ctx *processor.KeyedContext[string, string, string]) {
			written := processor.Value[string](ctx, "written", processor.TTL{After: life})
			read := processor.Value[string](ctx, "read", processor.TTL{After: life, RefreshOnRead: true})
			returned := processor.Value[string](ctx, "returned", processor.TTL{After: life, ReturnExpired: true})
			dict := processor.MapOf[string, bool](ctx, "dict", processor.TTL{After: life})
			list := processor.List[string](ctx, "list", processor.TTL{After: life})
			ctx.OnRecord(func(v string) error {
				if v != "?" {
					written.Set(v)
					read.Set(v)
					returned.Set(v)
					dict.Put(v, true)
					list.Add(v)
					return nil
				}
				n := 0
				for range dict.All() {
					n++
				}
				for range list.All() {
					n++
				}
				ctx.Emit(fmt.Sprintf("%s|%s|%s|%d", written.Get(), read.Get(), returned.Get(), n))
				return nil
			})
		})
		processor.ToTopic(out, "out")
	}
	for _, restart := range []bool{false, true} {
		d := processortest.New(t, topology)
		in, out := processortest.In[string](d, "in"), processortest.Out[string](d, "out")
		ask := func(pass time.Duration, want string) {
			t.Helper()
			d.AdvanceProcessingTime(pass)
			in.SendKeyed("k", "?")
			out.Want(want)
			if restart {
				d.Restart()
			}
		}
		returned := "b"
		if restart {
			returned = ""
		}
		in.SendKeyed("k", "a")
		ask(life-time.Millisecond, "a|a|a|2")
		in.SendKeyed("k", "b")
		ask(time.Millisecond, "b|b|b|2")                // a has expired, in the map and the list
		ask(life-2*time.Millisecond, "b|b|b|2")         // b was written 999 ms ago
		ask(time.Millisecond, "|b|b|0")                 // and 1000 ms ago; it was read a moment ago
		ask(life-time.Millisecond, "|b|"+returned+"|0") // once more
		ask(life, "||"+returned+"|0")                   // exactly so long after it was read
		d.AdvanceProcessingTime(3 * life)
		if rows := processortest.StateRows(d, "keep"); (len(rows) == 0) != restart {
			t.Errorf("restart %v: the state is %v", restart, rows)
		}
	}
}

func TestBadRecordsGoToDeadLetters(t *testing.T) {
	d := processortest.New(t, silence)
	in := processortest.In[reading](d, "readings")
	in.SendKeyed(int32(7), reading{7, 1, at(0)}, reading{7, -1, at(1)})
	in.SendBytes([]byte{0, 0, 0, 7}, []byte("no json"))
	dead := processortest.DeadLetters(d)
	if len(dead) != 2 || dead[0].Offset != 1 || dead[0].Operator != "silence" || !strings.Contains(dead[0].Error, "below zero") || string(dead[1].Value) != "no json" || dead[1].Topic != "readings" {
		t.Errorf("dead letters: %+v", dead)
	}
}

// An aborted transaction shows nothing, and its records are processed again.
func TestFailedCommitIsInvisible(t *testing.T) {
	calls := 0
	d := processortest.New(t, func(t *processor.Topology) {
		in := processor.From(t, processor.Topic[Order]{Name: "in"})
		processor.ToTopic(processor.Map(in, func(o Order) Order { calls++; return o }), "out")
	})
	in, out := processortest.In[Order](d, "in"), processortest.Out[Order](d, "out")
	in.Send(Order{"ann", 1, at(0)})
	d.FailNextCommit()
	in.Send(Order{"bob", 2, at(0)})
	out.WantOrdered(Order{"ann", 1, at(0)}, Order{"bob", 2, at(0)})
	if calls != 3 {
		t.Errorf("the function was called %d times, want 3", calls)
	}
}

func TestIdlePartitionsHoldNothingBack(t *testing.T) {
	d := processortest.New(t, orderCounts, processortest.Partitions(2))
	in, out := processortest.In[Order](d, "orders"), processortest.Out[Count](d, "counts")
	in.SendTo(0, Order{"ann", 3, at(1)}, Order{"ann", 3, at(100)})
	out.Want()
	in.SendIdle(1)
	out.Want(Count{"ann", at(0), at(10), 1, 3})
	in.SendTo(1, Order{"bob", 1, at(95)}) // no longer idle
	in.SendTo(0, Order{"ann", 3, at(200)})
	out.Want()

	quiet := processortest.New(t, silence, processortest.Partitions(2))
	readings, alarms := processortest.In[reading](quiet, "readings"), processortest.Out[alarm](quiet, "alarms")
	readings.SendKeyed(int32(1), reading{1, 20, at(0)}, reading{1, 20, at(100)}) // its timer was moved to 160 s
	readings.SendKeyed(int32(1), reading{1, 20, at(161)})
	alarms.Want()
	quiet.AdvanceProcessingTime(5 * time.Second) // the other partition
	alarms.Want()
	quiet.AdvanceWatermark(at(221))
	alarms.Want(alarm{1, "silent for a minute"})
}

func TestAppThatStops(t *testing.T) {
	d := processortest.New(t, func(t *processor.Topology) {
		in := processor.From(t, processor.Topic[Order]{Name: "in"})
		processor.ToTopic(processor.TryMap(in, func(o Order) (Order, error) {
			if o.Amount < 0 {
				return o, errors.New("amount is below zero")
			}
			return o, nil
		}), "out")
	}, processortest.MayFail())
	in := processortest.In[Order](d, "in")
	in.Send(Order{"ann", 1, at(0)})
	if d.Err() != nil {
		t.Fatal(d.Err())
	}
	in.Send(Order{"ann", -1, at(0)})
	if err := d.Err(); err == nil || !strings.Contains(err.Error(), "amount is below zero") {
		t.Errorf("error %v", err)
	}
}

// limits refuses amounts above the limit of the user's country, which every subtask knows.
func limits(t *processor.Topology) {
	rules := processor.Broadcast(processor.From(t, processor.Topic[Count]{Name: "rules"}), "rules", func(c Count) string { return c.User })
	orders := processor.FromKeyed(t, format.String(), processor.Topic[Order]{Name: "orders"})
	over := processor.Process(orders, "over", func(ctx *processor.KeyedContext[string, Order, Order]) {
		limit := processor.Lookup(ctx, rules)
		ctx.OnRecord(func(o Order) error {
			if c, ok := limit.Get("all"); ok && o.Amount > c.Sum {
				ctx.Emit(o)
			}
			return nil
		})
	})
	processor.ToTopic(over, "over")
}

func TestBroadcastsReachEverySubtask(t *testing.T) {
	processortest.Schedules(t, limits, func(d *processortest.Driver) {
		in := processortest.In[Order](d, "orders").Keyed(func(o Order) any { return o.User })
		processortest.In[Count](d, "rules").SendKeyed("all", Count{User: "all", Sum: 50})
		d.Settle()
		for _, o := range randomOrders(30) {
			in.Send(o)
		}
		out := processortest.Out[Order](d, "over")
		var want []Order
		for _, o := range randomOrders(30) {
			if o.Amount > 50 {
				want = append(want, o)
			}
		}
		out.WantOrdered(want...)
		if len(want) == 0 {
			t.Fatal("no order is over the limit: the test shows nothing")
		}
	})
}

// failing is a TB whose failures can be looked at.
type failing struct {
	testing.TB
	text string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
func (f *failing) Fatal(args ...any)                 { f.Fatalf("%s", fmt.Sprint(args...)) }
func (f *failing) Errorf(format string, args ...any) { f.text += fmt.Sprintf(format, args...) }

// failure is what a test fails with.
func failure(t *testing.T, test func(tb testing.TB)) string {
	t.Helper()
	f := &failing{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		test(f)
	}()
	<-done
	return f.text
}

func TestFailuresSayWhatIsWrong(t *testing.T) {
	send := func(tb testing.TB) (*processortest.Driver, *processortest.Output[Count]) {
		d := processortest.New(tb, orderCounts)
		processortest.In[Order](d, "orders").Send(Order{"ann", 3, at(1)}, Order{"bob", 4, at(1)}, Order{"ann", 5, at(11)})
		d.AdvanceWatermark(at(100))
		return d, processortest.Out[Count](d, "counts")
	}
	ann, bob, ann2 := Count{"ann", at(0), at(10), 1, 3}, Count{"bob", at(0), at(10), 1, 4}, Count{"ann", at(10), at(20), 1, 5}
	for what, c := range map[string]struct {
		test func(tb testing.TB)
		want []string
	}{
		"rows differ": {func(tb testing.TB) { _, out := send(tb); out.Want(ann, ann2, ann2) }, []string{
			`topic counts: rows differ (+ too many, - missing), 3 got, 3 wanted:`,
			`-1 {"user":"ann","start":10000,"end":20000,"count":1,"sum":5}`, `+1 {"user":"bob","start":0,"end":10000,"count":1,"sum":4}`}},
		"order differs": {func(tb testing.TB) { _, out := send(tb); out.WantOrdered(ann2, bob, ann) }, []string{
			"the rows are the wanted ones in another order", `wanted {"user":"ann","start":10000`, `next   {"user":"ann","start":0`, "(key ann)"}},
		"wrong type":   {func(tb testing.TB) { processortest.In[Count](processortest.New(tb, orderCounts), "orders") }, []string{"topic orders does not hold processortest_test.Count", "Order"}},
		"wrong input":  {func(tb testing.TB) { processortest.In[Order](processortest.New(tb, orderCounts), "order") }, []string{"does not read topic order; it reads [orders]"}},
		"wrong output": {func(tb testing.TB) { processortest.Out[Order](processortest.New(tb, orderCounts), "counts") }, []string{"topic counts does not get processortest_test.Order"}},
		"other output": {func(tb testing.TB) { processortest.Out[Order](processortest.New(tb, orderCounts), "orders") }, []string{"does not write topic orders; it writes [counts]"}},
		"no key": {func(tb testing.TB) {
			processortest.In[reading](processortest.New(tb, silence), "readings").Send(reading{})
		}, []string{"its records need keys"}},
		"wrong key": {func(tb testing.TB) {
			processortest.In[reading](processortest.New(tb, silence), "readings").SendKeyed("a", reading{})
		}, []string{"a string, the stream's keys are int32"}},
		"partition": {func(tb testing.TB) {
			processortest.In[Order](processortest.New(tb, orderCounts), "orders").SendTo(1, Order{})
		}, []string{"partition 1 of topic orders: it has 1"}},
		"faults": {func(tb testing.TB) { processortest.New(tb, func(*processor.Topology) {}) }, []string{"topology reads no topic"}},
		"state's name": {func(tb testing.TB) {
			processortest.State[int32, reading](processortest.New(tb, silence), "silence", "first", 1)
		}, []string{"there is none; the operator has [", "last"}},
		"state's key": {func(tb testing.TB) {
			processortest.State[string, reading](processortest.New(tb, silence), "silence", "last", "1")
		}, []string{"its keys are int32, not string"}},
		"state's kind": {func(tb testing.TB) {
			processortest.State[int32, reading](processortest.New(tb, silence), "silence", "recent", 1)
		}, []string{"it is a list, not a table"}},
		"late side":     {func(tb testing.TB) { d, _ := send(tb); processortest.Side(d, "count", lateOrders) }, []string{"before the first record is sent"}},
		"no such side":  {func(tb testing.TB) { processortest.Side(processortest.New(tb, orderCounts), "counts", lateOrders) }, []string{"no such operator"}},
		"broker's time": {func(tb testing.TB) { d, _ := send(tb); d.AdvanceProcessingTime(time.Second); d.OnBroker(1, 1) }, []string{"moved processing time"}},
		"stopped": {func(tb testing.TB) {
			d := processortest.New(tb, func(t *processor.Topology) {
				in := processor.From(t, processor.Topic[Order]{Name: "in"})
				processor.ToTopic(processor.TryMap(in, func(Order) (Order, error) { return Order{}, errors.New("no way") }), "out")
			})
			processortest.In[Order](d, "in").Send(Order{})
		}, []string{"subtask 0_0", "no way"}},
	} {
		got := failure(t, c.test)
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: the test fails with\n%s\nwant in it\n%s", what, got, want)
			}
		}
	}
}

// randomOrders are n orders of some users, out of order by less than 2 s, so that none is late.
func randomOrders(n int) []Order {
	rng := rand.New(rand.NewPCG(1, 1))
	var orders []Order
	now := 0.0
	for range n {
		now += rng.Float64()
		orders = append(orders, Order{string(rune('a' + rng.IntN(5))), float64(rng.IntN(100)), at(now - 2*rng.Float64())})
	}
	return orders
}

func sendOrders(d *processortest.Driver) {
	in := processortest.In[Order](d, "orders")
	for orders := randomOrders(150); len(orders) > 0; orders = orders[10:] {
		in.Send(orders[:10]...)
	}
	d.AdvanceWatermark(at(1000))
}

func TestSchedulesGiveEqualResults(t *testing.T) {
	processortest.Schedules(t, orderCounts, sendOrders, processortest.Broker(2, 3))
}

// What depends on the order across keys is found, with the seed of the schedule.
func TestSchedulesFindWhatDependsOnThem(t *testing.T) {
	got := failure(t, func(tb testing.TB) {
		processortest.Schedules(tb, func(t *processor.Topology) {
			orders := processor.From(t, processor.Topic[Order]{Name: "orders", EventTime: func(o Order) time.Time { return o.At }, MaxOutOfOrder: 2 * time.Second})
			byUser := processor.KeyBy(orders, "by-user", func(o Order) string { return o.User })
			processor.ToTopic(processor.Process(byUser, "number", func(ctx *processor.KeyedContext[string, Order, int]) {
				n := 0 // not in state
				ctx.OnRecord(func(Order) error { n++; ctx.Emit(n); return nil })
			}), "numbers")
		}, sendOrders)
	})
	if !strings.Contains(got, "MILLRACE_TEST_SEED=") || !strings.Contains(got, "topic numbers, key ") {
		t.Errorf("the test fails with %q", got)
	}
}

// A schedule's crashes and restores are real: a function that runs again shows them.
func TestSchedulesCrash(t *testing.T) {
	calls := 0
	processortest.Schedules(t, func(t *processor.Topology) {
		in := processor.FromKeyed(t, format.String(), processor.Topic[Order]{Name: "orders"})
		sums := processor.RunningAggregate(in, "sum", processor.Fold(func(a *total, o Order) { calls++; a.N++; a.Sum += o.Amount }),
			func(user string, a total, _ Order) Count { return Count{User: user, Count: a.N, Sum: a.Sum} })
		processor.ToTopic(sums, "sums")
	}, func(d *processortest.Driver) {
		in := processortest.In[Order](d, "orders").Keyed(func(o Order) any { return o.User })
		for _, o := range randomOrders(50) {
			in.Send(o)
		}
	}, processortest.Runs(10))
	if calls <= 11*50 {
		t.Errorf("%d calls for 11 runs of 50 records: nothing was processed again", calls)
	}
}
