package cep_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/cep"
	"github.com/millrace-stream/millrace/processor/processortest"
)

// builder makes patterns of the words of internal/nfa/words_test.go.
type builder struct {
	list []string
	skip cep.SkipStrategy
	with time.Duration
}

func (b *builder) eat(word string) bool {
	if len(b.list) > 0 && b.list[0] == word {
		b.list = b.list[1:]
		return true
	}
	return false
}

func (b *builder) next() string {
	w := b.list[0]
	b.list = b.list[1:]
	return w
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

func build(text string) (p cep.Pattern[numbered], stages []string) {
	b := &builder{list: strings.Fields(text)}
	if b.eat("skip") {
		switch b.next() {
		case "next":
			b.skip = cep.SkipToNext
		case "past":
			b.skip = cep.SkipPastLast
		case "first":
			b.skip = cep.SkipToFirst(b.next())
		case "last":
			b.skip = cep.SkipToLast(b.next())
		}
		b.eat(";")
	}
	if b.eat("within") {
		b.with = time.Duration(number(b.next())) * time.Millisecond
		b.eat(";")
	}
	p = b.sequence(&stages).Skip(b.skip)
	if b.with > 0 {
		p = p.Within(b.with)
	}
	return p, stages
}

func (b *builder) sequence(stages *[]string) (p cep.Pattern[numbered]) {
	for {
		link := b.next()
		if b.eat("(") {
			g := b.sequence(stages)
			b.next()
			switch link {
			case "begin":
				p = cep.Group(g)
			case "next":
				p = p.NextGroup(g)
			case "by":
				p = p.FollowedByGroup(g)
			case "any":
				p = p.FollowedByAnyGroup(g)
			}
		} else {
			name := b.next()
			*stages = append(*stages, name)
			switch link {
			case "begin":
				p = cep.Begin[numbered](name)
			case "next":
				p = p.Next(name)
			case "by":
				p = p.FollowedBy(name)
			case "any":
				p = p.FollowedByAny(name)
			case "notnext":
				p = p.NotNext(name)
			case "notby":
				p = p.NotFollowedBy(name)
			}
			if f, g := condition(b.next()); g != nil {
				p = p.WhereMatch(g)
			} else {
				p = p.Where(f)
			}
		}
		for len(b.list) > 0 && b.list[0] != ";" && b.list[0] != ")" {
			switch w := b.next(); {
			case w == "+":
				p = p.OneOrMore()
			case w == "?":
				p = p.Optional()
			case w == "greedy":
				p = p.Greedy()
			case w == "consec":
				p = p.Consecutive()
			case w == "comb":
				p = p.AllowCombinations()
			case strings.HasPrefix(w, "until="):
				if f, g := condition(w[6:]); g != nil {
					p = p.UntilMatch(g)
				} else {
					p = p.Until(f)
				}
			case strings.HasPrefix(w, "win="):
				p = p.WithinStage(time.Duration(number(w[4:])) * time.Millisecond)
			default:
				from, to, two := strings.Cut(strings.Trim(w, "{}"), ",")
				switch {
				case !two:
					p = p.Times(number(from))
				case to == "":
					p = p.TimesOrMore(number(from))
				default:
					p = p.TimesRange(number(from), number(to))
				}
			}
		}
		if !b.eat(";") {
			return p
		}
	}
}

func condition(text string) (func(numbered) bool, func(cep.Match[numbered], numbered) bool) {
	letters, above, also := strings.Cut(text, ">")
	f := func(e numbered) bool { return letters == "." || strings.Contains(letters, e.Kind) }
	if !also {
		return f, nil
	}
	return nil, func(m cep.Match[numbered], e numbered) bool {
		return f(e) && (!m.Has(above) || e.Value > m.Last(above).Value)
	}
}

// numbered is an event with its place among the events of a case.
type numbered struct {
	event
	N int
}

// The answers of Flink's library, through the whole operator: events that arrive in any order, in several partitions,
// with crashes at any point.
func TestMatchesAreThoseOfFlink(t *testing.T) {
	text, err := os.ReadFile("../../internal/nfa/testdata/golden.txt")
	if err != nil {
		t.Fatal(err)
	}
	type golden struct{ pattern, events, matches, timeouts string }
	var cases []golden
	for answer := range strings.Lines(string(text)) {
		if p := strings.Split(answer, "|"); len(p) == 4 {
			cases = append(cases, golden{strings.TrimSpace(p[0]), p[1], strings.TrimSpace(p[2]), strings.TrimSpace(p[3])})
		}
	}
	if len(cases) < 100 {
		t.Fatalf("%d cases", len(cases))
	}
	for n, c := range cases {
		topology := func(top *processor.Topology) {
			in := processor.FromKeyed(top, format.String(), processor.Topic[numbered]{Name: "in", EventTime: func(e numbered) time.Time { return e.At }, MaxOutOfOrder: time.Hour})
			p, stages := build(c.pattern)
			slices.Sort(stages)
			say := func(m cep.Match[numbered]) (text string) {
				for _, s := range stages {
					comma := " " + s + "="
					for _, e := range m.All(s) {
						text += comma + strconv.Itoa(e.N)
						comma = ","
					}
				}
				return text
			}
			over := processor.NewOutputTag[cep.Match[numbered]]("over")
			found := cep.Detect(in, "found", p.TimedOutTo(over), func(_ string, m cep.Match[numbered]) string { return say(m) })
			processor.ToTopic(found, "out")
			processor.ToTopic(processor.Map(processor.SideOutput(found, over), say), "over")
		}
		rng := rand.New(rand.NewPCG(uint64(n), 1))
		events := shuffled(rng, c.events)
		plain := processortest.New(t, topology)
		send := func(d *processortest.Driver) {
			in := processortest.In[numbered](d, "in")
			in.SendKeyed("k", events...)
			in.SendKeyed("other", events...)
			d.AdvanceWatermark(at(10_000))
		}
		send(plain)
		byKey := map[string][]string{}
		for _, r := range processortest.Out[string](plain, "out").Rows() {
			k := string(r.Key)
			byKey[k] = append(byKey[k], fmt.Sprintf("@%d%s", r.Time.UnixMilli(), r.Value))
		}
		if c.matches != "" && len(byKey) != 2 || c.matches == "" && len(byKey) > 0 {
			t.Fatalf("%s | %s: matches of keys %v", c.pattern, c.events, slices.Collect(maps.Keys(byKey)))
		}
		for _, got := range byKey {
			if text := strings.Join(got, "; "); text != c.matches {
				t.Fatalf("%s | %s\ngot  %s\nwant %s", c.pattern, c.events, text, c.matches)
			}
		}
		var over []string
		for _, r := range processortest.Out[string](plain, "over").Rows() {
			over = append(over, fmt.Sprintf("@%d%s", r.Time.UnixMilli(), r.Value))
		}
		var want []string
		for _, w := range strings.Split(c.timeouts, "; ") {
			if w != "" {
				want = append(want, w, w) // of both keys
			}
		}
		slices.Sort(over)
		slices.Sort(want)
		if !slices.Equal(over, want) {
			t.Fatalf("%s | %s\ntimed out %s\nwant      %s", c.pattern, c.events, over, want)
		}
		if n%4 != 0 {
			continue
		}
		if n%8 == 0 { // event by event, so that crashes find partial matches
			slices.SortStableFunc(events, func(a, b numbered) int { return a.At.Compare(b.At) })
			send = func(d *processortest.Driver) {
				in := processortest.In[numbered](d, "in")
				for i, e := range events {
					in.SendKeyed("k", e)
					in.SendKeyed("other", e)
					if i+1 < len(events) && events[i+1].At.After(e.At) {
						d.AdvanceWatermark(e.At)
					}
				}
				d.AdvanceWatermark(at(10_000))
			}
		}
		processortest.Schedules(t, topology, send, processortest.Runs(3), processortest.Seed(uint64(n)+1))
	}
}

// shuffled are the events of a case in any order of arrival in which those of one time keep theirs.
func shuffled(rng *rand.Rand, text string) []numbered {
	var list []numbered
	for i, e := range events0(text) {
		list = append(list, numbered{e, i})
	}
	rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	byTime := map[time.Time][]numbered{}
	for _, e := range list {
		byTime[e.At] = append(byTime[e.At], e)
	}
	for _, es := range byTime {
		slices.SortFunc(es, func(a, b numbered) int { return cmp.Compare(a.N, b.N) })
	}
	for i, e := range list {
		list[i], byTime[e.At] = byTime[e.At][0], byTime[e.At][1:]
	}
	return list
}
