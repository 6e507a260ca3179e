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
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/window"
)

// firing is a result of CoGroup with its timing.
type firing struct {
	Start, End int64
	L, R       []int
	Timing     string
}

func isLeft(e event) bool { return e.ID%2 == 0 }

// joins is WindowJoin and CoGroup of the events with even ids and those with odd ones, cut as the case says.
func (c winCase) joins(t *processor.Topology) {
	in := processor.FromKeyed(t, format.String(), processor.Topic[event]{Name: "in", EventTime: eventTime, MaxOutOfOrder: ms(c.bound)})
	l, r := in.Filter(isLeft), in.Filter(func(e event) bool { return !isLeft(e) })
	late := processor.NewOutputTag[event]("late")
	pairs := processor.WindowJoin(c.windowed(l).LateTo(late), r, "join", func(a, b event) [2]int { return [2]int{a.ID, b.ID} }, processor.LateRightTo(late))
	processor.ToTopic(pairs, "out")
	processor.To(processor.SideOutput(pairs, late), processor.SinkTopic[event]{Name: "late", Key: func(e event) []byte { return []byte(e.Key) }})
	processor.ToTopic(processor.CoGroup(c.windowed(l), r, "group", func(w processor.Window[string], l, r []event, emit func(firing)) error {
		f := firing{Timing: w.Pane.Timing.String()}
		if !w.End.IsZero() {
			f.Start, f.End = w.Start.UnixMilli(), w.End.UnixMilli()
		}
		for _, e := range l {
			f.L = append(f.L, e.ID)
		}
		for _, e := range r {
			f.R = append(f.R, e.ID)
		}
		emit(f)
		return nil
	}), "groups")
}

// joinModel takes the windows of the model of windows apart into two sides; pairs of a window that it had are left out.
func (c winCase) joinModel(t *testing.T, events []event) (pairs, groups, late []string) {
	c.how = "apply"
	rows, late := c.firings(events)
	had := map[string]bool{}
	for _, row := range rows {
		key, rest, _ := strings.Cut(row, "=")
		text, at, _ := strings.Cut(rest, " @")
		var w winRow
		if err := json.Unmarshal([]byte(text), &w); err != nil {
			t.Fatal(err)
		}
		f := firing{w.Start, w.End, []int{}, []int{}, w.Timing}
		for _, id := range w.IDs {
			if id%2 == 0 {
				f.L = append(f.L, id)
			} else {
				f.R = append(f.R, id)
			}
		}
		b, _ := json.Marshal(f)
		groups = append(groups, fmt.Sprintf("%s=%s @%s", key, b, at))
		for _, l := range f.L {
			for _, r := range f.R {
				pair := fmt.Sprintf("[%d,%d]", l, r)
				name := pair
				if c.kind != "session" && c.kind != "dynamic" { // whose windows grow; a pair is in one
					name = fmt.Sprint(pair, w.Start, w.End)
				}
				if !had[name] {
					pairs = append(pairs, fmt.Sprintf("%s=%s @%s", key, pair, at))
				}
				had[name] = true
			}
		}
	}
	slices.Sort(late)
	return pairs, groups, late
}

// Joins of windows of every kind, with every trigger, are what the model of windows says of both sides together.
func TestJoinsOfAllWindowsEqualModel(t *testing.T) {
	lates, kinds := 0, map[string]int{}
	for seed := range seeds(t, 50) {
		rng := rand.New(rand.NewPCG(seed, 61))
		c := winCase{}.random(rng)
		events := stream(rng, 150, -600, rng.Int64N(40), 200)
		for i := range events {
			events[i].ID = i // duplicates of a row are rows of their own
		}
		pairs, groups, late := c.joinModel(t, events)
		lates += len(late)
		kinds[strings.TrimSpace(c.kind+" "+c.trigger)] += len(pairs)
		for _, o := range []driverOptions{{batch: 1}, {batch: 1000}, {batch: 20, crash: 0.4, behind: 0.7}} {
			o.seed = seed
			d := newDriver(t, c.joins, o)
			for _, e := range events {
				d.sendKeyed("in", e.Key, e, e.At)
			}
			t.Logf("seed %d %+v %+v", seed, c, o)
			d.run()
			wantRows(t, d.rows("groups"), slices.Clone(groups)...)
			wantRows(t, d.rows("out"), slices.Clone(pairs)...)
			wantRows(t, d.rows("late"), slices.Clone(late)...)
		}
	}
	if lates == 0 || kinds["session"] == 0 || kinds["dynamic"] == 0 || kinds["global count"] == 0 {
		t.Fatalf("%d late events, pairs by kind %v: the test has no teeth", lates, kinds)
	}
}

// A late row that makes two sessions one brings the pairs between them, and none again.
func TestSessionJoinMergesFiredSessions(t *testing.T) {
	c := winCase{kind: "session", size: 10, lateness: 100}
	d := newDriver(t, c.joins, driverOptions{})
	for i, at := range []int64{0, 5, 30, 35, 200, 17} { // [0,15) and [30,45) fire on time; 17 touches neither
		d.sendKeyed("in", "a", event{ID: i, Key: "a", At: at}, at)
		if i < 4 {
			d.run()
		}
	}
	d.sendKeyed("in", "z", event{ID: 100, Key: "z", At: 120}, 120)
	d.run()
	wantRows(t, d.rows("out"), "a=[0,1] @14", "a=[2,3] @44")
}

// Joins of windows fire early with the clock, pairs once; and those of a stream that has gone quiet go on with it.
func TestJoinsFollowTheClock(t *testing.T) {
	d := newDriver(t, func(top *processor.Topology) {
		in := processor.FromKeyed(top, format.String(), processor.Topic[event]{Name: "in", EventTime: eventTime})
		l, r := in.Filter(isLeft), in.Filter(func(e event) bool { return !isLeft(e) })
		pair := func(a, b event) [2]int { return [2]int{a.ID, b.ID} }
		w := l.Window(window.Tumbling(10 * time.Second))
		processor.ToTopic(processor.WindowJoin(w.EmitEarly(ms(500)), r, "early", pair), "early")
		processor.ToTopic(processor.WindowJoin(w.AdvanceWhenIdle(3*time.Second), r, "quiet", pair), "quiet")
		processor.ToTopic(processor.CoGroup(w.EmitEarly(ms(500)), r, "groups", func(w processor.Window[string], l, r []event, emit func(string)) error {
			emit(fmt.Sprint(len(l), len(r), w.Pane.Timing))
			return nil
		}), "groups")
	}, driverOptions{})
	send := func(id int, at int64) {
		d.sendKeyed("in", "a", event{ID: id, Key: "a", At: at}, at)
	}
	pass := func(ms int64) {
		for ; ms > 0; ms -= 100 {
			d.pass(100)
			d.Round()
		}
	}
	send(0, 1000)
	send(1, 2000)
	pass(600)
	wantRows(t, d.rows("early"), "a=[0,1] @9999")
	wantRows(t, d.rows("groups"), "a=1 1 early @9999")
	send(3, 3000)
	pass(600)
	d.Tasks[0].Restart()
	pass(600)
	wantRows(t, d.rows("early"), "a=[0,1] @9999", "a=[0,3] @9999")
	wantRows(t, d.rows("quiet"))
	pass(20_000) // for one of them time is over, for the others it stands still
	wantRows(t, d.rows("quiet"), "a=[0,1] @9999", "a=[0,3] @9999")
	wantRows(t, d.rows("groups"), "a=1 1 early @9999", "a=1 2 early @9999")
	send(2, 10_000)
	pass(200)
	wantRows(t, d.rows("early"), "a=[0,1] @9999", "a=[0,3] @9999")
	wantRows(t, d.rows("groups"), "a=1 1 early @9999", "a=1 2 early @9999", "a=1 2 on-time @9999")
}

// The gap of a session comes from each row, of either stream; so it does for streams of two types.
func TestSessionJoinOfTwoTypes(t *testing.T) {
	type click struct{ Stay int64 }
	type buy struct{ Wait int64 }
	gap := func(e processor.Either[click, buy]) time.Duration {
		if e.Left != nil {
			return ms(e.Left.Stay)
		}
		return ms(e.Right.Wait)
	}
	d := newDriver(t, func(top *processor.Topology) {
		clicks := processor.FromKeyed(top, format.String(), processor.Topic[click]{Name: "clicks"})
		buys := processor.FromKeyed(top, format.String(), processor.Topic[buy]{Name: "buys"})
		out := processor.CoGroup(clicks.Window(window.SessionFunc(gap)), buys, "visits", func(w processor.Window[string], cs []click, bs []buy, emit func(string)) error {
			emit(fmt.Sprint(w.Start.UnixMilli(), "-", w.End.UnixMilli(), " ", cs, bs))
			return nil
		})
		processor.To(out, processor.SinkTopic[string]{Name: "out", Value: format.String()})
	}, driverOptions{crash: 0.3, seed: 2})
	d.sendKeyed("clicks", "a", click{5}, 100)
	d.sendKeyed("buys", "a", buy{50}, 104)
	d.sendKeyed("clicks", "a", click{7}, 150)
	d.sendKeyed("clicks", "a", click{7}, 158) // behind the end at 157
	d.sendKeyed("clicks", "z", click{1}, 1000)
	d.sendKeyed("buys", "z", buy{1}, 1000)
	d.run()
	wantRows(t, d.rows("out"), "a=100-157 [{5} {7}] [{50}] @156", "a=158-165 [{7}] [] @164")
}

// An error of the function behind a session goes by the policy, and leaves nothing behind.
func TestSessionCoGroupFails(t *testing.T) {
	d := newDriver(t, func(top *processor.Topology) {
		in := processor.FromKeyed(top, format.String(), processor.Topic[event]{Name: "in", EventTime: eventTime})
		out := processor.CoGroup(in.Window(window.Session(ms(10))), in, "visits", func(w processor.Window[string], l, _ []event, emit func(int)) error {
			emit(len(l))
			if w.Key == "bad" {
				return fmt.Errorf("bad key")
			}
			return nil
		}, processor.OnError(processor.DeadLetter))
		processor.ToTopic(out, "out")
	}, driverOptions{})
	for i, key := range []string{"a", "bad", "b", "z"} {
		d.sendKeyed("in", key, event{ID: i, Key: key, At: int64(i / 3 * 100)}, 0)
	}
	d.run()
	wantRows(t, d.rows("out"), "a=1 @9", "b=1 @9")
	if n := len(d.records("dead-letter")); n != 1 {
		t.Fatalf("%d dead letters, want 1", n)
	}
}
