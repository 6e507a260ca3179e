package processor_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/window"
)

type unstorable struct{ F func() }

// Every build error names call site, kind and id, and what to do where that is not plain.
func TestBuildErrors(t *testing.T) {
	type top = *processor.Topology
	from := func(t top) processor.Stream[event] { return processor.From(t, processor.Topic[event]{Name: "in"}) }
	keyed := func(t top) processor.KeyedStream[string, event] {
		return processor.FromKeyed(t, format.String(), processor.Topic[event]{Name: "in"})
	}
	byKey := func(e event) string { return e.Key }
	count := processor.Count[event]()
	result := func(w processor.Window[string], n int64) int64 { return n }
	record := func(ctx *processor.KeyedContext[string, event, int]) { ctx.OnRecord(func(event) error { return nil }) }
	tenMS := window.Tumbling(ms(10))
	for name, c := range map[string]struct {
		build func(t top)
		want  string // each line of it, in any order, with SITE for the place
	}{
		"no source": {func(t top) {}, "topology reads no topic; start with From"},
		"id taken": {func(t top) {
			processor.KeyBy(from(t), "x", byKey)
			processor.Reduce(keyedOther(t), "x", func(a, b event) event { return a })
		}, `SITE: reduce "x": id is taken by key-by at SITE`},
		"bad id":      {func(t top) { processor.KeyBy(from(t), "By User", byKey) }, `SITE: key-by "By User": id must be 1 to 40 of a-z, 0-9 and -`},
		"empty id":    {func(t top) { processor.KeyBy(from(t), "", byKey) }, `SITE: key-by: id must be 1 to 40 of a-z, 0-9 and -`},
		"long id":     {func(t top) { processor.KeyBy(from(t), strings.Repeat("x", 41), byKey) }, `id must be 1 to 40`},
		"topic twice": {func(t top) { from(t); from(t) }, `SITE: from "in": id is taken by from at SITE`},
		"topic twice with id": {func(t top) {
			from(t)
			processor.From(t, processor.Topic[event]{Name: "in", ID: "again"})
		}, `SITE: from "again": topic in is read at SITE already; use that stream twice (a group has one position per partition)`},
		"topic name":   {func(t top) { processor.From(t, processor.Topic[event]{Name: "a b"}) }, `SITE: from "a b": topic name "a b" must be`},
		"source id":    {func(t top) { processor.From(t, processor.Topic[event]{Name: "a", ID: "A"}) }, `id "A" must be`},
		"sink twice":   {func(t top) { s := from(t); processor.ToTopic(s, "out"); processor.ToTopic(s, "out") }, `SITE: to "out": id is taken by to at SITE`},
		"sink name":    {func(t top) { processor.ToTopic(from(t), "") }, `topic name "" must be`},
		"nil map":      {func(t top) { processor.Map[event, int](from(t), nil) }, `SITE: map: function is nil`},
		"nil try-map":  {func(t top) { processor.TryMap[event, int](from(t), nil) }, `SITE: try-map: function is nil`},
		"nil flat-map": {func(t top) { processor.FlatMap[event, int](from(t), nil) }, `SITE: flat-map: function is nil`},
		"nil filter":   {func(t top) { from(t).Filter(nil) }, `SITE: filter: function is nil`},
		"nil filter 2": {func(t top) { keyed(t).Filter(nil) }, `SITE: filter: function is nil`},
		"nil values":   {func(t top) { processor.MapValues[string, event, int](keyed(t), nil) }, `SITE: map-values: function is nil`},
		"nil key":      {func(t top) { processor.KeyBy[event, string](from(t), "k", nil) }, `SITE: key-by "k": key function is nil`},
		"nil reduce":   {func(t top) { processor.Reduce(keyed(t), "r", nil) }, `SITE: reduce "r": function is nil`},
		"nil result":   {func(t top) { processor.Aggregate[string, event, int64, int64](keyed(t).Window(tenMS), "a", count, nil) }, `SITE: aggregate "a": function is nil`},
		"nil add": {func(t top) {
			processor.Aggregate(keyed(t).Window(tenMS), "a", processor.Aggregator[event, int64]{}, result)
		}, `SITE: aggregate "a": function is nil`},
		"nil setup":   {func(t top) { processor.Process[string, event, int](keyed(t), "p", nil) }, `SITE: process "p": setup function is nil`},
		"no callback": {func(t top) { processor.Process(keyed(t), "p", func(*processor.KeyedContext[string, event, int]) {}) }, `SITE: process "p": OnRecord callback is nil`},
		"value type":  {func(t top) { processor.From(t, processor.Topic[unstorable]{Name: "in"}) }, `SITE: from "in": value type: `},
		"sink type": {func(t top) {
			processor.ToTopic(processor.Map(from(t), func(event) unstorable { return unstorable{} }), "out")
		}, `SITE: to "out": value type: `},
		"key-by type": {func(t top) {
			processor.KeyBy(processor.Map(from(t), func(event) unstorable { return unstorable{} }), "k", func(unstorable) string { return "" })
		}, `SITE: key-by "k": value type: `},
		"key type": {func(t top) { processor.KeyBy(from(t), "k", func(event) *int { return nil }) }, `SITE: key-by "k": key type: `},
		"state type": {func(t top) {
			processor.Aggregate(keyed(t).Window(tenMS), "a", processor.Fold(func(*chan int, event) {}), func(processor.Window[string], chan int) int { return 0 })
		}, `SITE: aggregate "a": state type: `},
		"process state": {func(t top) {
			processor.Process(keyed(t), "p", func(ctx *processor.KeyedContext[string, event, int]) {
				processor.Value[chan int](ctx, "v")
				record(ctx)
			})
		}, `SITE: process "p": state "v": `},
		"map state key": {func(t top) {
			processor.Process(keyed(t), "p", func(ctx *processor.KeyedContext[string, event, int]) {
				processor.MapOf[*int, int](ctx, "v")
				record(ctx)
			})
		}, `SITE: process "p": state "v": `},
		"state twice": {func(t top) {
			processor.Process(keyed(t), "p", func(ctx *processor.KeyedContext[string, event, int]) {
				processor.Value[int](ctx, "v")
				processor.List[int](ctx, "v")
				record(ctx)
			})
		}, `SITE: process "p": state "v": the name is used twice in this operator`},
		"state name": {func(t top) {
			processor.Process(keyed(t), "p", func(ctx *processor.KeyedContext[string, event, int]) { processor.Value[int](ctx, "V v"); record(ctx) })
		}, `SITE: process "p": state "V v": the name must be`},
		"setup panics": {func(t top) {
			processor.Process(keyed(t), "p", func(*processor.KeyedContext[string, event, int]) { panic("oh") })
		}, `SITE: process "p": setup function panicked: oh`},
		"state in setup": {func(t top) {
			processor.Process(keyed(t), "p", func(ctx *processor.KeyedContext[string, event, int]) {
				processor.Value[int](ctx, "v").Set(1)
				record(ctx)
			})
		}, `setup function panicked: it is used outside of a callback for records or timers`},
		"emit in setup": {func(t top) {
			processor.Process(keyed(t), "p", func(ctx *processor.KeyedContext[string, event, int]) { ctx.Emit(1) })
		}, `setup function panicked: Emit is called outside of a callback for records or timers`},
		"window size": {func(t top) { processor.Aggregate(keyed(t).Window(window.Tumbling(0)), "a", count, result) }, `SITE: aggregate "a": window size is 0s, want a whole number of milliseconds, at least 1ms`},
		"window size us": {func(t top) {
			processor.Aggregate(keyed(t).Window(window.Tumbling(1500*time.Microsecond)), "a", count, result)
		}, `window size is 1.5ms`},
		"window offset": {func(t top) {
			processor.Aggregate(keyed(t).Window(window.Offset(tenMS, time.Microsecond)), "a", count, result)
		}, "window offset is 1\u00b5s"},
		"no assigner": {func(t top) { processor.Aggregate(keyed(t).Window(window.Assigner{}), "a", count, result) }, `window assigner is empty; use window.Tumbling`},
		"lateness":    {func(t top) { processor.Aggregate(keyed(t).Window(tenMS).AllowedLateness(-1), "a", count, result) }, `AllowedLateness is negative`},
		"lateness us": {func(t top) {
			processor.Aggregate(keyed(t).Window(tenMS).AllowedLateness(time.Microsecond), "a", count, result)
		}, "AllowedLateness is 1\u00b5s"},
		"empty late tag": {func(t top) {
			processor.Aggregate(keyed(t).Window(tenMS).LateTo(processor.OutputTag[event]{}), "a", count, result)
		}, `LateTo: the tag is empty`},
		"side of map": {func(t top) { processor.SideOutput(processor.Map(from(t), byKey), processor.NewOutputTag[int]("s")) }, `SITE: side-output "s": map emits to no side output`},
		"other late tag": {func(t top) {
			a := processor.Aggregate(keyed(t).Window(tenMS).LateTo(processor.NewOutputTag[event]("l")), "a", count, result)
			processor.SideOutput(a, processor.NewOutputTag[event]("m"))
		}, `SITE: side-output "m": aggregate "a" sends late records to "l"`},
		"late tag type": {func(t top) {
			a := processor.Aggregate(keyed(t).Window(tenMS).LateTo(processor.NewOutputTag[event]("l")), "a", count, result)
			processor.SideOutput(a, processor.NewOutputTag[int]("l"))
		}, `the tag is of int, the late records are processor_test.event`},
		"side types": {func(t top) {
			p := processor.Process(keyed(t), "p", record)
			processor.SideOutput(p, processor.NewOutputTag[int]("s"))
			processor.SideOutput(p, processor.NewOutputTag[string]("s"))
		}, `SITE: side-output "s": the tag's type differs from that of another tag with this id, int`},
		"bound": {func(t top) { processor.From(t, processor.Topic[event]{Name: "in", MaxOutOfOrder: -1}) }, `MaxOutOfOrder is negative`},
		"idle":  {func(t top) { processor.From(t, processor.Topic[event]{Name: "in", Idle: -1}) }, `Idle is negative`},
		"two strategies": {func(t top) {
			processor.From(t, processor.Topic[event]{Name: "in", MaxOutOfOrder: 1, Watermarks: func() processor.WatermarkGenerator[event] { return &finalWatermark{} }})
		}, `MaxOutOfOrder and Watermarks exclude each other`},
		"bad time":    {func(t top) { processor.From(t, processor.Topic[event]{Name: "in", BadTime: 9}) }, `BadTime: policy 9 is unknown`},
		"policy":      {func(t top) { from(t).Filter(func(event) bool { return true }, processor.OnError(0)) }, `SITE: filter: OnError: policy 0 is unknown`},
		"empty name":  {func(t top) { from(t).Filter(func(event) bool { return true }, processor.Name("")) }, `Name: the name is empty`},
		"parallelism": {func(t top) { from(t).Filter(func(event) bool { return true }, processor.Parallelism(0)) }, `Parallelism: 0 subtasks`},
		"parallelisms": {func(t top) {
			from(t).Filter(func(event) bool { return true }, processor.Parallelism(2)).Filter(func(event) bool { return true }, processor.Parallelism(3))
		}, `SITE: filter: Parallelism(3) contradicts Parallelism(2) at SITE, which runs in the same subtasks`},
		"max bytes":    {func(t top) { processor.ToTopic(from(t), "out", processor.MaxRecordBytes(0)) }, `MaxRecordBytes: 0 bytes`},
		"max bytes of": {func(t top) { from(t).Filter(func(event) bool { return true }, processor.MaxRecordBytes(5)) }, `MaxRecordBytes is for operators that write a topic`},
		"cycle": {func(t top) {
			s := from(t)
			processor.Union(s, processor.KeyBy(s, "k", byKey))
		}, `SITE: key-by "k": a stream from before it is joined with one from behind it, so it would feed itself; put a KeyBy on the other stream too`},
		"other topology": {func(t top) { processor.Union(from(t), from(processor.New())) }, `SITE: union: its input from SITE belongs to another topology`},
	} {
		top := processor.New()
		c.build(top)
		err := top.Validate()
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		got := regexp.MustCompile(`build_test\.go:\d+`).ReplaceAllString(err.Error(), "SITE")
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: error\n%s\nwant\n%s", name, got, c.want)
		}
		if strings.Count(got, "\n") > 0 {
			t.Errorf("%s: more than one error:\n%s", name, got)
		}
		top.Describe() // does not panic on a broken topology
	}
}

func keyedOther(t *processor.Topology) processor.KeyedStream[string, event] {
	return processor.FromKeyed(t, format.String(), processor.Topic[event]{Name: "other"})
}

// One run shows all errors, each with its own line.
func TestAllBuildErrorsAtOnce(t *testing.T) {
	top := processor.New()
	s := processor.From(top, processor.Topic[event]{Name: "in", Idle: -1})
	k := processor.KeyBy(s, "Bad", func(e event) string { return e.Key })
	processor.ToTopic(processor.Reduce(k, "", func(a, b event) event { return a }).Filter(nil), "out")
	err := top.Validate()
	if err == nil || strings.Count(err.Error(), "\n") != 3 {
		t.Fatalf("%v", err)
	}
	lines := regexp.MustCompile(`build_test\.go:(\d+)`).FindAllString(err.Error(), -1)
	if len(lines) != 4 || lines[0] == lines[1] || lines[1] == lines[2] {
		t.Fatalf("call sites %v", lines)
	}
}

// The fingerprint changes with the graph, and with nothing else.
func TestFingerprint(t *testing.T) {
	plan := func(f func(*processor.Topology)) string {
		top := processor.New()
		f(top)
		p, err := top.Plan()
		if err != nil {
			t.Fatal(err)
		}
		return p.Fingerprint
	}
	chain := func(id, out string, extra bool) func(*processor.Topology) {
		return func(t *processor.Topology) {
			s := processor.From(t, processor.Topic[event]{Name: "in"})
			if extra {
				s = s.Filter(func(event) bool { return true })
			}
			processor.ToTopic(processor.Reduce(processor.KeyBy(s, "k", func(e event) string { return e.Key }), id, func(a, _ event) event { return a }), out)
		}
	}
	base := plan(chain("r", "out", false))
	if base != plan(chain("r", "out", false)) {
		t.Fatal("it changes from run to run")
	}
	for _, other := range []func(*processor.Topology){chain("s", "out", false), chain("r", "other", false), chain("r", "out", true)} {
		if plan(other) == base {
			t.Fatal("another graph has the same fingerprint")
		}
	}
}

// What the engine gets: two sub-topologies, their inputs, outputs and stores.
func TestPlan(t *testing.T) {
	top := processor.New()
	s := processor.From(top, processor.Topic[event]{Name: "in", Start: processor.Latest, Idle: time.Second}, processor.Parallelism(2))
	k := processor.KeyBy(s.Filter(func(event) bool { return true }), "by-key", func(e event) string { return e.Key }, processor.Parallelism(8))
	w := processor.Aggregate(k.Window(window.Tumbling(time.Minute)), "minutes", processor.Count[event](), func(w processor.Window[string], n int64) int64 { return n })
	processor.ToTopic(w, "out")
	p, err := top.Plan()
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Subs) != 2 {
		t.Fatalf("%d sub-topologies", len(p.Subs))
	}
	a, b := p.Subs[0], p.Subs[1]
	if in := a.Inputs[0]; len(a.Inputs) != 1 || in.Topic != "in" || in.Internal || in.Idle != time.Second || in.Start.Kind != 1 || a.Parallelism != 2 {
		t.Fatalf("%+v", a)
	}
	if len(a.Outputs) != 2 || a.Outputs[0].Topic != "by-key" || !a.Outputs[0].Internal || !a.Outputs[1].DeadLetter || len(a.Stores) != 0 {
		t.Fatalf("%+v", a)
	}
	if in := b.Inputs[0]; len(b.Inputs) != 1 || in.Topic != "by-key" || !in.Internal || in.Upstream != 0 || in.Partitions != 8 || b.Parallelism != 8 {
		t.Fatalf("%+v", b)
	}
	if len(b.Stores) != 1 || b.Stores[0].Name != "minutes/windows" || !b.Stores[0].Expiring || b.Stores[0].ID == 0 {
		t.Fatalf("%+v", b.Stores)
	}
	text := top.Describe()
	for _, want := range []string{"sub-topology 0, parallelism 2", "reads topic in", "writes repartition topic of \"by-key\"", "sub-topology 1, parallelism 8", "store minutes/windows: ", "writes topic out", "tumbling(1m0s)", "build_test.go:"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
