package processor_test

import (
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
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
	processor.Reduce(processor.MapValues(keyed, func(e event) int64 { return e.N }), "r", func(a, b int64) int64 { return a + b }, migrate)
	err := top.Validate()
	if err == nil || !strings.Contains(err.Error(), "process: MigrateState: it has no state whose type it knows") {
		t.Errorf("on Process: %v", err)
	}
	if !strings.Contains(err.Error(), `reduce "r": migrate int64 to string: int64 and int64 are written in the same form`) {
		t.Errorf("of the state's own form: %v", err)
	}
}
