package cep_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/cep"
	"github.com/millrace-stream/millrace/processor/processortest"
)

type event struct {
	Kind  string
	Value int
	At    time.Time `json:",unixmilli"`
}

func at(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

func is(kind string) func(event) bool {
	return func(e event) bool { return strings.Contains(kind, e.Kind) }
}

// say shows a match as "small=1,2 big=3".
func say(m cep.Match[event], stages ...string) string {
	var parts []string
	for _, s := range stages {
		if !m.Has(s) {
			continue
		}
		var vs []string
		for _, e := range m.All(s) {
			vs = append(vs, fmt.Sprint(e.Value))
		}
		parts = append(parts, s+"="+strings.Join(vs, ","))
	}
	return strings.Join(parts, " ")
}

type fixture struct {
	*processortest.Driver
	in   *processortest.Input[event]
	out  *processortest.Output[string]
	late *processortest.Output[event]
	over *processortest.Output[string]
}

var (
	lateTag = processor.NewOutputTag[event]("late")
	overTag = processor.NewOutputTag[cep.Match[event]]("timed-out")
)

// detecting is the topology that detects p; the watermark is bound behind.
func detecting(p cep.Pattern[event], bound time.Duration, o ...processor.Option) func(*processor.Topology) {
	stages := stagesOf(p)
	return func(t *processor.Topology) {
		in := processor.FromKeyed(t, format.String(), processor.Topic[event]{Name: "in", EventTime: func(e event) time.Time { return e.At }, MaxOutOfOrder: bound})
		found := cep.Detect(in, "found", p.LateTo(lateTag).TimedOutTo(overTag), func(k string, m cep.Match[event]) string {
			first, last := m.One(stages[0]).Value, m.One(stages[len(stages)-1]).Value
			if first == 666 || first == 2 && last == 666 {
				panic("the result function fails")
			}
			return say(m, stages...)
		}, o...)
		processor.ToTopic(found, "out")
		processor.ToTopic(processor.SideOutput(found, lateTag), "late")
		processor.ToTopic(processor.Map(processor.SideOutput(found, overTag), func(m cep.Match[event]) string { return say(m, stages...) }), "over")
	}
}

// stagesOf are the names of the stages, as String shows them.
func stagesOf(p cep.Pattern[event]) (names []string) {
	text, _, _ := strings.Cut(p.String(), " skip ")
	for _, w := range strings.Fields(text) {
		if w = strings.Trim(strings.Split(w, "{")[0], "()?+"); len(w) == 1 {
			names = append(names, w)
		}
	}
	return names
}

func detect(t *testing.T, p cep.Pattern[event], bound time.Duration, o ...processor.Option) fixture {
	t.Helper()
	d := processortest.New(t, detecting(p, bound, o...))
	return fixture{d, processortest.In[event](d, "in"), processortest.Out[string](d, "out"), processortest.Out[event](d, "late"), processortest.Out[string](d, "over")}
}

// send sends events of key k: "a1@10" is of kind a, with value 1, at 10 ms.
func (f fixture) send(events string) {
	for _, e := range events0(events) {
		f.in.SendKeyed("k", e)
	}
}

func events0(text string) (list []event) {
	for _, w := range strings.Fields(text) {
		var e event
		var ms int64
		if _, err := fmt.Sscanf(w[1:], "%d@%d", &e.Value, &ms); err != nil {
			panic(w)
		}
		e.Kind, e.At = w[:1], at(ms)
		list = append(list, e)
	}
	return list
}

func TestEventsAreMatchedInTheOrderOfTheirTime(t *testing.T) {
	p := cep.Begin("a", is("a")).Next("b", is("b")).Next("c", is("c"))
	f := detect(t, p, 10*time.Millisecond)
	f.send("c3@7 a1@5 b2@6") // nothing is known before the watermark
	f.out.Want()
	f.Restart()
	f.send("a4@18") // the watermark is 7
	f.out.Want("a=1 b=2 c=3")
	// Of one time they come as they arrived.
	f.send("x0@19 b5@20 c6@20 b7@20 x0@50")
	f.out.Want()
	f.send("c0@60 a1@60 b2@60 c3@60 c4@60 x0@90")
	f.out.Want("a=1 b=2 c=3")
	if rows := f.out.Rows(); len(rows) != 2 || string(rows[1].Key) != "k" || !rows[1].Time.Equal(at(60)) {
		t.Fatalf("rows %+v", rows)
	}
}

// An event exactly at the watermark is late, as for windows and joins; one a millisecond behind it is not.
func TestEventAtTheWatermarkIsLate(t *testing.T) {
	f := detect(t, cep.Begin("a", is("a")).FollowedBy("b", is("b")), time.Millisecond)
	f.send("x0@11") // watermark 9: one ms less than the bound says
	f.AdvanceWatermark(at(10))
	f.send("a1@10 a2@11 b3@9 b4@12")
	f.AdvanceWatermark(at(20))
	f.out.Want("a=2 b=4")
	f.late.Want(event{"a", 1, at(10)}, event{"b", 3, at(9)})
	if f.Late() != 2 {
		t.Fatalf("%d events are counted as late", f.Late())
	}
}

func TestTimeOfMatchesAndTimeOuts(t *testing.T) {
	// 10 ms from a to b is too long; an absence ends at the deadline.
	f := detect(t, cep.Begin("a", is("a")).FollowedBy("b", is("b")).Within(10*time.Millisecond), 0)
	f.send("a1@0 b2@10 a3@20 b4@29 a5@40")
	f.AdvanceWatermark(at(100))
	f.out.Want("a=3 b=4")
	f.over.Want("a=1", "a=5")
	if r := f.over.Rows(); !r[0].Time.Equal(at(10)) || !r[1].Time.Equal(at(50)) {
		t.Fatalf("timed out matches %+v", r)
	}
	g := detect(t, cep.Begin("a", is("a")).NotFollowedBy("b", is("b")).Within(10*time.Millisecond), 0)
	g.send("a1@0 x0@9")
	g.out.Want()
	g.send("x0@11") // the watermark is 10
	g.out.Want("a=1")
	if r := g.out.Rows(); !r[0].Time.Equal(at(10)) {
		t.Fatalf("match %+v", r)
	}
	g.send("a2@20 b3@29 a4@40 b5@50")
	g.AdvanceWatermark(at(100))
	g.out.Want("a=4")
	if rows := processortest.StateRows(g.Driver, "found"); len(rows) > 0 {
		t.Fatalf("left behind: %s", rows)
	}
	if timers := processortest.Timers(g.Driver, "found"); len(timers) > 0 {
		t.Fatalf("left behind: %v", timers)
	}
}

func TestConditions(t *testing.T) {
	above := func(m cep.Match[event], e event) bool {
		return e.Value > m.Last("a").Value && m.Start().Equal(m.One("a").At)
	}
	for name, c := range map[string]struct {
		p    cep.Pattern[event]
		in   string
		want []string
	}{
		"where and or": {cep.Begin[event]("a").Where(is("a")).Where(func(e event) bool { return e.Value > 1 }).Or(is("b")), "a1@0 a2@1 b1@2 c3@3", []string{"a=2", "a=1"}},
		"of the match": {cep.Begin("a", is("a")).TimesOrMore(2).Consecutive().FollowedBy("b", is("b")).WhereMatch(above), "a1@0 a5@1 b4@2 b6@3", []string{"a=1,5 b=6"}},
		"until":        {cep.Begin("a", is("a")).FollowedBy("b", is("b")).OneOrMore().Until(is("x")).FollowedBy("c", is("c")), "a1@0 b1@1 x0@2 b2@3 c1@4", []string{"a=1 b=1 c=1"}},
		"until of the match": {cep.Begin("a", is("a")).FollowedBy("b", is("b")).OneOrMore().
			UntilMatch(func(m cep.Match[event], e event) bool { return len(m.All("b")) == 2 }).FollowedBy("c", is("c")), "a1@0 b1@1 b2@2 b3@3 c1@4", []string{"a=1 b=1 c=1", "a=1 b=1,2 c=1"}},
		"no condition": {cep.Begin[event]("a").Next("b"), "a1@0 b2@1 c3@2", []string{"a=1 b=2", "a=2 b=3"}},
		"group": {cep.Group(cep.Begin("a", is("a")).Next("b", is("b"))).Times(2).Consecutive().FollowedBy("c", is("c")).Within(time.Second),
			"a1@0 b2@1 a3@2 b4@3 c5@4", []string{"a=1,3 b=2,4 c=5"}},
		"group in the middle": {cep.Begin("a", is("a")).FollowedByGroup(cep.Begin("b", is("b")).Next("c", is("c"))).Optional().NextGroup(cep.Begin("d", is("d"))),
			"a1@0 d2@1 a3@2 b4@3 c5@4 d6@5", []string{"a=1 d=2", "a=3 b=4 c=5 d=6", "a=1 b=4 c=5 d=6"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := detect(t, c.p, 0)
			f.send(c.in)
			f.AdvanceWatermark(at(1000))
			f.out.Want(c.want...)
		})
	}
}

// A failure concerns one event: with Skip it is as if that had not come.
func TestFailures(t *testing.T) {
	angry := func(e event) bool {
		if e.Value == 13 {
			panic("thirteen")
		}
		return e.Kind == "b"
	}
	p := cep.Begin("a", is("a")).Next("b", angry).Within(10 * time.Millisecond)
	f := detect(t, p, 0, processor.OnError(processor.DeadLetter))
	f.send("a1@0 b13@1 b2@2 a3@3 b13@3 b4@3 a5@20")
	f.AdvanceWatermark(at(100))
	f.out.Want("a=1 b=2", "a=3 b=4")
	letters := processortest.DeadLetters(f.Driver)
	if len(letters) != 2 || !strings.Contains(fmt.Sprint(letters[0]), "thirteen") {
		t.Fatalf("dead letters %v", letters)
	}
	// What the event did to other partial matches before it failed is undone: the one of a1 has ended when that of a2 fails, by
	// its condition and by its result.
	h := detect(t, cep.Begin("a", is("a")).FollowedBy("b", is("b")).WhereMatch(func(m cep.Match[event], e event) bool {
		if m.One("a").Value == 2 && e.Value == 13 {
			panic("thirteen")
		}
		return true
	}).Within(10*time.Millisecond), 0, processor.OnError(processor.Skip))
	h.send("a1@0 a2@1")
	h.AdvanceWatermark(at(1))
	h.send("b13@2 b666@2 b4@3")
	h.AdvanceWatermark(at(100))
	h.out.Want("a=1 b=4", "a=2 b=4")
	// So it is for what ends by time, and for what the result function makes.
	g := detect(t, cep.Begin("a", is("a")).NotFollowedBy("b", is("b")).Within(10*time.Millisecond), 0, processor.OnError(processor.Skip))
	g.send("a666@0 a1@1 a2@10")
	g.AdvanceWatermark(at(100))
	g.out.Want("a=1", "a=2")
	if rows := processortest.StateRows(g.Driver, "found"); len(rows) > 0 {
		t.Fatalf("left behind: %s", rows)
	}
}

func TestTooManyPartialMatches(t *testing.T) {
	p := cep.Begin("a", is("a")).FollowedByAny("b", is("b")).FollowedBy("c", is("c")).MaxPartials(5)
	d := processortest.New(t, detecting(p, 0), processortest.MayFail())
	in := processortest.In[event](d, "in")
	for i := range 8 {
		in.SendKeyed("k", event{"a", i, at(int64(i))})
	}
	d.AdvanceWatermark(at(100))
	if err := d.Err(); err == nil || !strings.Contains(err.Error(), "set Within or shorten it") || !strings.Contains(err.Error(), "found") {
		t.Fatalf("error %v", err)
	}
	f := detect(t, p, 0, processor.OnError(processor.Skip))
	f.send("a1@0 a2@1 a3@2 a4@3 a5@4 a6@5 c0@6")
	f.AdvanceWatermark(at(10))
	if rows := processortest.StateRows(f.Driver, "found"); len(rows) != 6 { // five events and the matches
		t.Fatalf("state %q", rows)
	}
}

// What does not match leaves nothing behind, and what has matched neither.
func TestStateIsPruned(t *testing.T) {
	f := detect(t, cep.Begin("a", is("a")).Next("b", is("b")).OneOrMore().Consecutive().Next("c", is("c")), 0)
	f.send("x0@0 a1@1 b2@2")
	if rows := processortest.StateRows(f.Driver, "found"); len(rows) != 4 { // b waits: event and timer; a match has a
		t.Fatalf("state %q", rows)
	}
	f.send("b3@3 c4@4 x0@5 x0@6 b5@7")
	f.AdvanceWatermark(at(100))
	f.out.Want("a=1 b=2,3 c=4")
	if rows := processortest.StateRows(f.Driver, "found"); len(rows) > 0 {
		t.Fatalf("left behind: %q", rows)
	}
}

// A partial match of an earlier event holds a result back; when it has timed out, the result comes, and what the skip
// strategy rules out does not.
func TestSkipStrategiesAndTimeOuts(t *testing.T) {
	p := cep.Begin("a", is("a")).FollowedBy("b", is("b")).OneOrMore().FollowedBy("c", is("c")).Within(10 * time.Millisecond)
	for name, c := range map[string]struct {
		skip cep.SkipStrategy
		want []string
	}{
		"none":       {cep.NoSkip, []string{"a=3 b=4 c=7", "a=3 b=4,6 c=7", "a=5 b=6 c=7"}},
		"next":       {cep.SkipToNext, []string{"a=3 b=4,6 c=7", "a=5 b=6 c=7"}},
		"past last":  {cep.SkipPastLast, []string{"a=3 b=4,6 c=7"}},
		"to first b": {cep.SkipToFirst("b"), []string{"a=3 b=4,6 c=7", "a=5 b=6 c=7"}},
		"to last b":  {cep.SkipToLast("b"), []string{"a=3 b=4,6 c=7"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := detect(t, p.Skip(c.skip), 4*time.Millisecond)
			f.send("b2@1 a1@0 a3@5 a5@9 b4@7 c7@13 b6@11") // a1 has no time left when c comes
			f.AdvanceWatermark(at(100))
			f.out.Want(c.want...)
			if over := f.over.Values(); !slices.Contains(over, "a=1 b=2,4") {
				t.Fatalf("timed out %v", over)
			}
		})
	}
}

func TestPatternsThatAreRefused(t *testing.T) {
	a := cep.Begin("a", is("a"))
	for want, p := range map[string]cep.Pattern[event]{
		`stage "a": the name is used twice`:                                a.Next("a"),
		`NotFollowedBy at the end of a pattern needs a time`:               a.NotFollowedBy("b", is("b")),
		`Greedy has no meaning on the last stage`:                          a.FollowedBy("b").OneOrMore().Greedy(),
		`Times: it has a quantifier already`:                               a.OneOrMore().Times(2),
		`Times: want a minimum`:                                            a.Times(0),
		`TimesOrMore: want a minimum`:                                      a.TimesOrMore(0),
		`TimesRange: want a minimum`:                                       a.TimesRange(3, 2),
		`Times: more than 1000`:                                            a.Times(1001),
		`Consecutive or AllowCombinations is set already`:                  a.OneOrMore().Consecutive().AllowCombinations(),
		`Consecutive and AllowCombinations are for repeated stages`:        a.Consecutive().Next("b"),
		`Until is set twice`:                                               a.OneOrMore().Until(is("x")).Until(is("y")),
		`Until ends a repetition without a maximum`:                        a.Times(2).Until(is("x")),
		`Within(0s): want a positive number of whole milliseconds`:         a.Within(0),
		`WithinStage(1.5ms): want a positive number of whole milliseconds`: a.Next("b").WithinStage(1500 * time.Microsecond),
		`MaxPartials(0)`:                                                   a.MaxPartials(0),
		`condition is nil`:                                                 a.Where(nil),
		`Where is for stages`:                                              cep.Group(a).Where(is("a")),
		`are for the whole pattern; set them there`:                        cep.Group(a.Within(time.Second)),
		`there is no stage "z" outside of groups`:                          a.Next("b").Skip(cep.SkipToFirst("z")),
		`pattern has no stage`:                                             {},
		`an optional stage cannot stand behind the greedy "b"`:             a.FollowedBy("b").OneOrMore().Greedy().FollowedBy("c").Optional().FollowedBy("d"),
		`it may match no event at all, so repeating it has no meaning`:     cep.Group(a.Optional()).OneOrMore().Next("b"),
		`tag "Late": id must be`:                                           a.LateTo(processor.NewOutputTag[event]("Late")),
		`two patterns, one with the optional part and one without`:         a.Optional().NotNext("b", is("b")).Next("c"),
		`WithinStage counts from the event before, and there is none`:      a.WithinStage(time.Second).Next("b"),
		`a pattern cannot begin with what must not be`:                     cep.Pattern[event]{}.NotNext("b").Next("c"),
	} {
		top := processor.New()
		in := processor.FromKeyed(top, format.String(), processor.Topic[event]{Name: "in", EventTime: func(e event) time.Time { return e.At }})
		processor.ToTopic(cep.Detect(in, "found", p, func(string, cep.Match[event]) string { return "" }), "out")
		err := top.Validate()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v\nwant  %s", err, want)
			continue
		}
		if !strings.HasPrefix(err.Error(), "cep_test.go:") || !strings.Contains(err.Error(), `detect "found": `) {
			t.Errorf("error %v does not say where", err)
		}
	}
}

// A Pattern may be the beginning of several.
func TestPatternsAreValues(t *testing.T) {
	base := cep.Begin("a", is("a")).Next("b")
	one, two := base.Where(is("b")), base.Where(is("c"))
	loop := base.OneOrMore()
	for p, want := range map[*cep.Pattern[event]][]string{&one: {"a=1 b=2"}, &two: {"a=3 b=4"}, &base: {"a=1 b=2", "a=3 b=4"}} {
		f := detect(t, *p, 0)
		f.send("a1@0 b2@1 a3@2 c4@3")
		f.AdvanceWatermark(at(10))
		f.out.Want(want...)
	}
	if got, want := loop.String()+", "+base.String(), "a next b{1,}, a next b"; got != want {
		t.Fatalf("patterns %s, want %s", got, want)
	}
}
