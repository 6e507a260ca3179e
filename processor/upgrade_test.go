package processor_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/drive"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/cep"
	"github.com/millrace-stream/millrace/processor/window"
	"github.com/millrace-stream/millrace/statestore"
)

// upgrade goes on with another topology of the same sub-topologies.
func (d *driver) upgrade(topology func(*processor.Topology)) {
	d.t.Helper()
	top := processor.New()
	topology(top)
	plan, err := top.Plan()
	if err != nil {
		d.t.Fatal(err)
	}
	d.Plan = plan
	for _, st := range d.Tasks {
		st.Sub = plan.Subs[st.Sub.ID]
		st.Restart()
	}
}

// TestLatenessChanges: what fired under another lateness does not fire again, and what was dropped is late.
func TestLatenessChanges(t *testing.T) {
	send := func(d *driver, ats ...int64) {
		for _, at := range ats {
			d.sendKeyed("in", "a", event{Key: "a", N: 1, At: at}, at)
		}
		d.run()
	}
	row := func(start, count string) string {
		return `a={"key":"a","start":` + start + `,"count":` + count + `,"sum":` + count + `}`
	}
	check := func(d *driver, late int, want ...string) {
		t.Helper()
		var got []string
		for _, r := range d.rows("out") {
			r, _, _ = strings.Cut(r, " @")
			got = append(got, r)
		}
		wantRows(t, got, want...)
		if n := len(d.rows("late")); n != late {
			t.Fatalf("%d late records, want %d", n, late)
		}
	}
	t.Run("shorter", func(t *testing.T) {
		d := newDriver(t, windowParams{size: 10, lateness: 20}.keyed, driverOptions{})
		send(d, 5, 12, 25) // two windows have fired and are kept
		d.upgrade(windowParams{size: 10}.keyed)
		send(d, 26, 13, 40)
		check(d, 1, row("0", "1"), row("10", "1"), row("20", "2"))
	})
	t.Run("longer", func(t *testing.T) {
		d := newDriver(t, windowParams{size: 10}.keyed, driverOptions{})
		send(d, 5, 12, 25) // two windows have fired and are dropped
		d.upgrade(windowParams{size: 10, lateness: 20}.keyed)
		send(d, 13, 22, 40, 24)
		check(d, 1, row("0", "1"), row("10", "1"), row("20", "2"), row("20", "3"))
	})
}

// TestLatenessOfJoinsChanges: of a window join and an interval join too what was dropped stays dropped, so that no window and
// no pair is made of a part of its rows.
func TestLatenessOfJoinsChanges(t *testing.T) {
	send := func(d *driver, side string, ats ...int64) {
		for _, at := range ats {
			d.sendKeyed("in", "a", joinEvent{ID: int(at), Key: "a", Side: side, At: at}, at)
		}
		d.run()
	}
	p := windowJoinParams{kind: "tumbling", size: 10}
	d := newDriver(t, p.one, driverOptions{})
	send(d, "l", 5)
	send(d, "r", 6)
	send(d, "l", 25) // the window of both has fired and is dropped
	p.lateness = 20
	d.upgrade(p.one)
	send(d, "r", 7, 22)
	send(d, "l", 60)
	wantRows(t, d.rows("out"), joinedRow("a", 5, 6, 9), joinedRow("a", 25, 22, 29))
	if late := d.rows("late"); len(late) != 1 || !strings.Contains(late[0], `"id":7`) {
		t.Errorf("late are %v", late)
	}
	if groups := d.rows("groups"); len(groups) != 2 {
		t.Errorf("groups %v", groups)
	}

	interval := func(after int64) func(*processor.Topology) {
		return func(top *processor.Topology) {
			in := processor.FromKeyed(top, format.String(), processor.Topic[joinEvent]{Name: "in", EventTime: joinTime})
			side := func(s string) processor.KeyedStream[string, joinEvent] {
				return in.Filter(func(e joinEvent) bool { return e.Side == s })
			}
			processor.ToTopic(processor.IntervalJoin(side("l"), side("r"), "join", processor.Interval{After: ms(after)},
				func(a, b joinEvent) joined { return pairOf(&a, &b) }), "out")
		}
	}
	d = newDriver(t, interval(8), driverOptions{})
	send(d, "l", 5, 15) // the piece of the first is dropped
	d.upgrade(interval(11))
	send(d, "l", 5)
	send(d, "r", 16)
	wantRows(t, d.rows("out"), joinedRow("a", 15, 16, 16))
}

// TestSpecsTellWhatStateMeans: two programs whose states must not be taken for each other have specs that differ.
func TestSpecsTellWhatStateMeans(t *testing.T) {
	windows := func(a window.Assigner, agg processor.Aggregator[event, int64]) statestore.Spec {
		top := processor.New()
		keyed := processor.FromKeyed(top, format.String(), processor.Topic[event]{Name: "in"})
		processor.Aggregate(keyed.Window(a), "w", agg, func(_ processor.Window[string], n int64) int64 { return n })
		plan, err := top.Plan()
		if err != nil {
			t.Fatal(err)
		}
		return plan.Subs[0].Stores[0]
	}
	own := processor.Fold(func(a *int64, _ event) { *a++ })
	n := func(e event) int64 { return e.N }
	seen := map[[2]string]bool{}
	for _, c := range []struct {
		spec statestore.Spec
		want [2]string
	}{
		{windows(window.Tumbling(ms(60_000)), processor.Count[event]()), [2]string{"tumbling 1m0s", "count"}},
		{windows(window.Tumbling(ms(60_000)), processor.Sum(n)), [2]string{"tumbling 1m0s", "sum"}},
		{windows(window.Tumbling(ms(60_000)), own), [2]string{"tumbling 1m0s", ""}},
		{windows(window.Tumbling(ms(300_000)), own), [2]string{"tumbling 5m0s", ""}},
		{windows(window.Offset(window.Tumbling(ms(60_000)), ms(1000)), own), [2]string{"tumbling 1m0s offset 1s", ""}},
	} {
		if got := [2]string{c.spec.Windows, c.spec.Aggregate}; got != c.want || seen[got] || c.spec.Operator != "aggregate" {
			t.Errorf("%+v, want %v", c.spec, c.want)
		}
		seen[c.want] = true
	}
	// The same windows, said in another way.
	if got := windows(window.Offset(window.Tumbling(ms(60_000)), ms(-60_000)), own).Windows; got != "tumbling 1m0s" {
		t.Errorf("an offset of one size: %q", got)
	}
}

// TestMigrateStateNeedsState: migrations that no state takes are a mistake.
func TestMigrateStateNeedsState(t *testing.T) {
	migrate := processor.MigrateState(statestore.Migrate(func(n int64) (string, error) { return "", nil }))
	top := processor.New()
	keyed := processor.FromKeyed(top, format.String(), processor.Topic[event]{Name: "in"})
	processor.Process(keyed, "p", func(ctx *processor.KeyedContext[string, event, int64]) {
		processor.Value[int64](ctx, "v")
		ctx.OnRecord(func(event) error { return nil })
	}, migrate)
	type cents int64
	processor.Reduce(processor.MapValues(keyed, func(e event) int64 { return e.N }), "r", func(a, b int64) int64 { return a + b },
		processor.MigrateState(statestore.Migrate(func(n cents) (int64, error) { return int64(n), nil })))
	err := top.Validate()
	if err == nil || !strings.Contains(err.Error(), "process: MigrateState: migrate int64 to string: it keeps no values of type string") {
		t.Errorf("on Process: %v", err)
	}
	if !strings.Contains(err.Error(), `reduce "r": migrate processor_test.cents to int64: processor_test.cents and int64 are written in the same form`) {
		t.Errorf("of the state's own form: %v", err)
	}
}

// What two versions of a program read, and keep.
type (
	pay1 struct {
		Cents int64 `json:"cents"`
	}
	pay2 struct {
		Euro string `json:"euro"`
	}
)

func toPay2(p pay1) (pay2, error) { return pay2{fmt.Sprintf("%d.%02d", p.Cents/100, p.Cents%100)}, nil }

// payments is a topology in which each operator that keeps values of its streams has some to keep.
func payments[T any](o ...processor.Option) func(*processor.Topology) {
	return func(top *processor.Topology) {
		source := func(name string) processor.KeyedStream[string, T] {
			return processor.FromKeyed(top, format.String(), processor.Topic[T]{Name: name, MaxOutOfOrder: ms(10)})
		}
		in, other := source("in"), source("other")
		out := func(name string, s processor.KeyedStream[string, string]) {
			processor.To(s, processor.SinkTopic[string]{Name: "out", ID: name, Value: format.String()})
		}
		all := func(name string, w processor.WindowedStream[string, T]) {
			out("out-"+name, processor.ApplyWindow(w, name, func(_ processor.Window[string], vs iter.Seq[T], emit func(string)) error {
				emit(fmt.Sprint(name, slices.Collect(vs)))
				return nil
			}, o...))
		}
		all("tumbling", in.Window(window.Tumbling(ms(100))))
		all("session", in.Window(window.Session(ms(50))))
		all("count", in.CountWindow(3, 3))
		reduced := func(name string, w processor.WindowedStream[string, T]) {
			first := processor.ReduceWindow(w, name, func(a, _ T) T { return a }, o...)
			out("out-"+name, processor.MapValues(first, func(v T) string { return fmt.Sprint(name, v) }))
		}
		reduced("reduced", in.Window(window.Tumbling(ms(100))))
		reduced("reduced-session", in.Window(window.Session(ms(50))))
		reduced("reduced-count", in.CountWindow(3, 3))
		reduced("reduced-trigger", in.Window(window.Global()).Trigger(window.EveryCount(3)))
		pair := func(name string) func(a, b T) string { return func(a, b T) string { return fmt.Sprint(name, a, b) } }
		out("out-interval", processor.IntervalJoin(in, other, "interval", processor.Interval{Before: ms(1000)}, pair("interval"), o...))
		out("out-window", processor.WindowJoin(in.Window(window.Tumbling(ms(100))), other, "window", pair("window"), o...))
		table := processor.ToTable(other, "table", o...)
		out("out-table", processor.JoinTable(in, table, "current", pair("current")))
		out("out-versions", processor.JoinTable(in, table.Versioned(ms(1000)), "versions", pair("versions"), o...))
		any := func(T) bool { return true }
		out("out-cep", cep.Detect(in, "cep", cep.Begin("a", any).Next("b", any).Next("c", any), func(_ string, m cep.Match[T]) string {
			return fmt.Sprint("cep", m.One("a"), m.One("b"), m.One("c"))
		}, o...))
	}
}

// TestMigrateStateOfOperators: operators read the values that an earlier version kept as another type.
func TestMigrateStateOfOperators(t *testing.T) {
	specs := func(topology func(*processor.Topology)) map[string]statestore.Spec {
		top := processor.New()
		topology(top)
		plan, err := top.Plan()
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]statestore.Spec{}
		for _, s := range plan.Subs[0].Stores {
			all[s.Name] = s
		}
		return all
	}
	migrated := payments[pay2](processor.MigrateState(statestore.Migrate(toPay2)))
	was, bare, now := specs(payments[pay1]()), specs(payments[pay2]()), specs(migrated)
	for name, s := range now {
		if err := s.CanRead(was[name].ValType); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(s.ValType, "Euro") {
			continue
		}
		if err := bare[name].CanRead(was[name].ValType); err == nil || !strings.Contains(err.Error(), "add a migration") {
			t.Errorf("%s: without migrations: %v", name, err)
		}
	}
	for _, o := range []driverOptions{{}, {batch: 1, behind: 1}, {crash: 0.4, behind: 0.5, seed: 3}} {
		d := newDriver(t, payments[pay1](), o)
		d.sendKeyed("in", "a", pay1{100}, 10)
		d.sendKeyed("in", "a", pay1{250}, 20)
		d.sendKeyed("other", "a", pay1{700}, 5)
		d.run()
		rows := []string{"a=current{100} {700} @10", "a=current{250} {700} @20", "a=interval{100} {700} @10", "a=interval{250} {700} @20"}
		wantRows(t, d.rows("out"), rows...)
		d.upgrade(migrated)
		d.sendKeyed("in", "a", pay2{"3.00"}, 30)
		d.sendKeyed("other", "a", pay2{"9.00"}, 40)
		d.run()
		d.sendKeyed("other", "z", pay2{"0.00"}, 5000)
		d.sendKeyed("in", "z", pay2{"0.00"}, 5000)
		d.run()
		wantRows(t, d.rows("out"), append(rows, "a=cep{1.00} {2.50} {3.00} @30", "a=count[{1.00} {2.50} {3.00}] @30",
			"a=current{3.00} {7.00} @30", "a=interval{3.00} {7.00} @30", "a=reduced-count{1.00} @30", "a=reduced-session{1.00} @79",
			"a=reduced-trigger{1.00} @30", "a=reduced{1.00} @99", "a=session[{1.00} {2.50} {3.00}] @79", "a=tumbling[{1.00} {2.50} {3.00}] @99",
			"a=versions{1.00} {7.00} @10", "a=versions{2.50} {7.00} @20", "a=versions{3.00} {7.00} @30",
			"a=window{1.00} {7.00} @99", "a=window{1.00} {9.00} @99", "a=window{2.50} {7.00} @99", "a=window{2.50} {9.00} @99",
			"a=window{3.00} {7.00} @99", "a=window{3.00} {9.00} @99", "z=interval{0.00} {0.00} @5000")...)
	}
}

// Values that wait for a result are migrated, too, and so are tables that every subtask has.
func TestMigrateStateOfAsyncAndGlobals(t *testing.T) {
	waiting := func(top *processor.Topology) {
		in := processor.FromKeyed(top, format.String(), processor.Topic[pay1]{Name: "in"})
		processor.ToTopic(processor.AsyncValues(in, "ask", processor.AsyncOptions{}, func(_ context.Context, p pay1) (string, error) { return fmt.Sprint(p), nil }), "out")
		users := processor.GlobalTableFrom(top, "users", format.String(), processor.Topic[pay1]{Name: "users"})
		processor.ToTopic(processor.JoinGlobalValues(in, users, func(pay1) string { return "u" }, func(a, b pay1) string { return fmt.Sprint("join", a, b) }), "out2")
	}
	migrate := processor.MigrateState(statestore.Migrate(toPay2))
	now := func(top *processor.Topology) {
		in := processor.FromKeyed(top, format.String(), processor.Topic[pay2]{Name: "in"})
		processor.ToTopic(processor.AsyncValues(in, "ask", processor.AsyncOptions{}, func(_ context.Context, p pay2) (string, error) { return fmt.Sprint(p), nil }, migrate), "out")
		users := processor.GlobalTableFrom(top, "users", format.String(), processor.Topic[pay2]{Name: "users"}, migrate)
		processor.ToTopic(processor.JoinGlobalValues(in, users, func(pay2) string { return "u" }, func(a, b pay2) string { return fmt.Sprint("join", a, b) }), "out2")
	}
	d := &driver{drive.New(t, waiting, drive.Options{Calls: 1e-12, Seed: 1}), t}
	d.sendKeyed("users", "u", pay1{900}, 0)
	for range 5 {
		d.Round()
	}
	d.sendKeyed("in", "a", pay1{100}, 10)
	for range 5 {
		d.Round()
	}
	wantRows(t, d.rows("out"))
	d.O.Calls = 1
	d.upgrade(now)
	d.sendKeyed("in", "a", pay2{"3.00"}, 20)
	d.run()
	wantRows(t, d.rows("out"), "a={1.00} @10", "a={3.00} @20")
	wantRows(t, d.rows("out2"), "a=join{100} {900} @10", "a=join{3.00} {9.00} @20")
}
