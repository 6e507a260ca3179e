// Package cep detects patterns in keyed streams, in the words of Flink's library of that name and with its results.
//
// A pattern is a list of stages. Each stage takes one event, or several, for which its conditions hold; what stands
// between two stages says which events may come between:
//
//	Next           none (strict contiguity)
//	FollowedBy     those that the stage does not take (relaxed contiguity)
//	FollowedByAny  any: a match branches at each event that it could take (non-deterministic relaxed contiguity)
//	NotNext        the next event must not match
//	NotFollowedBy  no event may match until the next stage takes one, or until the time of Within is over
//
// A stage may be repeated: Times, TimesRange, TimesOrMore, OneOrMore. Between its events the contiguity is relaxed;
// Consecutive makes it strict, AllowCombinations non-deterministic. Until ends a repetition, Greedy lets it take
// what the next stage could take too, Optional lets the stage be left out.
//
//	probe := cep.Begin("small", func(x Txn) bool { return x.Cents < 100 }).TimesOrMore(2).
//		FollowedBy("big").WhereMatch(func(m cep.Match[Txn], x Txn) bool { return x.Cents > 50_000 && x.Country != m.One("small").Country }).
//		Within(10 * time.Minute)
//	alerts := cep.Detect(txns, "probe", probe, func(card string, m cep.Match[Txn]) Alert { return Alert{Card: card} })
//
// # Time
//
// Events are matched in the order of their event time, those of one time in the order of their arrival: each waits
// until the watermark reaches its time. An event whose time the watermark has reached already, even one exactly at it,
// is late: it is counted, and sent to LateTo if that is set. This is the rule of all operators of event time.
//
// Time passes in steps of one millisecond, whatever the watermark does: a partial match ends at its deadline, before
// the events of that time are looked at. So the results, time-outs and their order are the same however the watermark
// moves. (In Flink a watermark that jumps lets several deadlines pass at once, and with a skip strategy the timed out
// matches depend on it.) A match has the time of its last event, one that ends with NotFollowedBy the time at which its
// deadline passed, and so have timed out matches.
//
// # Matches that overlap
//
// Without a skip strategy (NoSkip) each match counts, also those that share events. A skip strategy drops partial
// matches when a match is found: see Skip. Then a match must wait until no partial match that began earlier is left,
// for that might come to be the one that counts; without Within an earlier partial match that never ends holds back
// all that follow.
//
// # State
//
// For each key there are the events that wait for their time, those that partial matches have taken, and the partial
// matches, which share what they have in common. What no partial match needs any more is removed at once. Within bounds
// all of it. A pattern without Within can keep partial matches for ever: MaxPartials is the limit for that, and an
// event that goes beyond it is an error, about which the operator's policy decides (processor.OnError): Skip leaves
// out that event.
//
// State belongs to the pattern's stages, quantifiers, contiguities and times. If they change, the state does not fit any
// more, and a start tells so; give Detect another id then. Conditions and the skip strategy may change.
package cep

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace-stream/millrace/internal/nfa"
	"github.com/millrace-stream/millrace/processor"
)

// Match is what a pattern matched: One, Last and All give the values that a stage took. In a condition (WhereMatch,
// UntilMatch) it is what the partial match has taken before the event that is asked about, and valid for the call.
type Match[T any] = processor.Match[T]

// Pattern describes what to look for. It is a value: each method returns a new Pattern, so that one may be the beginning
// of several. What is wrong with it is reported by Detect, as an error of the topology.
type Pattern[T any] struct {
	list     []stage[T]
	within   time.Duration
	skip     SkipStrategy
	partials int
	timedOut *processor.OutputTag[Match[T]]
	late     *processor.OutputTag[T]
	errs     []error
}

// A stage is one element of a Pattern.
type stage[T any] struct {
	nfa.Stage
	cond  []clause[T]
	until *clause[T]
	group []stage[T]
	times bool // a quantifier is set
	inner bool // Consecutive or AllowCombinations is set
}

// clause is one condition; it holds also if an earlier one does not, if or is set.
type clause[T any] struct {
	event func(T) bool
	match func(Match[T], T) bool
	or    bool
}

// Begin starts a pattern with a stage. The conditions must all hold; without any the stage takes every event. The name
// is unique in the pattern.
func Begin[T any](name string, cond ...func(T) bool) Pattern[T] {
	return Pattern[T]{partials: DefaultMaxPartials}.add(nfa.Next, name, cond)
}

// Group starts a pattern with a pattern, to which quantifiers can be applied as to a stage.
func Group[T any](p Pattern[T]) Pattern[T] {
	return Pattern[T]{partials: DefaultMaxPartials}.addGroup(nfa.Next, p)
}

func (p Pattern[T]) add(link nfa.Link, name string, cond []func(T) bool) Pattern[T] {
	s := stage[T]{Stage: nfa.Stage{Name: name, Link: link, Until: nfa.Always, Inner: nfa.FollowedBy}}
	for _, f := range cond {
		if f == nil {
			return p.bad("stage %q: condition is nil", name)
		}
		s.cond = append(s.cond, clause[T]{event: f})
	}
	p.list = append(slices.Clip(p.list), s)
	return p
}

func (p Pattern[T]) addGroup(link nfa.Link, g Pattern[T]) Pattern[T] {
	p.errs = append(slices.Clip(p.errs), g.errs...)
	switch {
	case len(g.list) == 0:
		return p.bad("a group is empty; make it with Begin")
	case g.within > 0 || g.skip != NoSkip || g.timedOut != nil || g.late != nil || g.partials != DefaultMaxPartials:
		p = p.bad("group that begins with %q: Within, Skip, TimedOutTo, LateTo and MaxPartials are for the whole pattern; set them there", g.list[0].Name)
	}
	s := stage[T]{Stage: nfa.Stage{Link: link, Until: nfa.Always, Inner: nfa.FollowedBy}, group: g.list}
	p.list = append(slices.Clip(p.list), s)
	return p
}

// bad collects an error. (Clip: a Pattern shares what it was made from, and must not write to it.)
func (p Pattern[T]) bad(format string, args ...any) Pattern[T] {
	p.errs = append(slices.Clip(p.errs), fmt.Errorf(format, args...))
	return p
}

// change changes the last stage.
func (p Pattern[T]) change(f func(p *Pattern[T], s *stage[T])) Pattern[T] {
	if len(p.list) == 0 {
		return p.bad("pattern has no stage; start it with Begin")
	}
	p.list = slices.Clone(p.list)
	f(&p, &p.list[len(p.list)-1])
	return p
}

// Next adds a stage that takes the very next event, or there is no match. Flink: next.
func (p Pattern[T]) Next(name string, cond ...func(T) bool) Pattern[T] {
	return p.add(nfa.Next, name, cond)
}

// FollowedBy adds a stage that takes the next event for which it holds. Flink: followedBy.
func (p Pattern[T]) FollowedBy(name string, cond ...func(T) bool) Pattern[T] {
	return p.add(nfa.FollowedBy, name, cond)
}

// FollowedByAny adds a stage that takes any later event for which it holds: one match for each. Flink: followedByAny.
func (p Pattern[T]) FollowedByAny(name string, cond ...func(T) bool) Pattern[T] {
	return p.add(nfa.FollowedByAny, name, cond)
}

// NotNext says that the next event must not be such a one. At the end of a pattern the match waits for that event.
// Behind a repeated stage, the event ends the match even if that stage could take it, as in Flink. Flink: notNext.
func (p Pattern[T]) NotNext(name string, cond ...func(T) bool) Pattern[T] {
	return p.add(nfa.NotNext, name, cond)
}

// NotFollowedBy says that no such event may come until the next stage takes one; at the end of the pattern, until the
// time of Within (or of its WithinStage) is over. There, as in Flink, it is for a stage before it that takes a fixed
// number of events: one that could still take more when the time is over has timed out. Flink: notFollowedBy.
func (p Pattern[T]) NotFollowedBy(name string, cond ...func(T) bool) Pattern[T] {
	return p.add(nfa.NotFollowedBy, name, cond)
}

// NextGroup is Next for a pattern in place of a stage.
func (p Pattern[T]) NextGroup(g Pattern[T]) Pattern[T] { return p.addGroup(nfa.Next, g) }

// FollowedByGroup is FollowedBy for a pattern in place of a stage.
func (p Pattern[T]) FollowedByGroup(g Pattern[T]) Pattern[T] { return p.addGroup(nfa.FollowedBy, g) }

// FollowedByAnyGroup is FollowedByAny for a pattern in place of a stage.
func (p Pattern[T]) FollowedByAnyGroup(g Pattern[T]) Pattern[T] {
	return p.addGroup(nfa.FollowedByAny, g)
}

func (p Pattern[T]) where(what string, c clause[T]) Pattern[T] {
	return p.change(func(p *Pattern[T], s *stage[T]) {
		switch {
		case s.group != nil:
			*p = p.bad("group that begins with %q: %s is for stages; put the condition on the stages of the group", s.group[0].Name, what)
		case c.event == nil && c.match == nil:
			*p = p.bad("stage %q: %s: condition is nil", s.Name, what)
		default:
			s.cond = append(slices.Clip(s.cond), c)
		}
	})
}

// Where adds a condition to the last stage, which must hold besides those before. Flink: where with a SimpleCondition.
// It is asked once for each event, so it must depend on nothing but the value.
func (p Pattern[T]) Where(f func(T) bool) Pattern[T] { return p.where("Where", clause[T]{event: f}) }

// Or adds a condition to the last stage, which is enough instead of those before. Flink: or.
func (p Pattern[T]) Or(f func(T) bool) Pattern[T] {
	return p.where("Or", clause[T]{event: f, or: true})
}

// WhereMatch is Where for a condition that looks at what the partial match has taken so far. It is asked for each
// partial match that comes to the stage. Flink: where with an IterativeCondition.
func (p Pattern[T]) WhereMatch(f func(m Match[T], v T) bool) Pattern[T] {
	return p.where("WhereMatch", clause[T]{match: f})
}

func (p Pattern[T]) until(c clause[T]) Pattern[T] {
	return p.change(func(p *Pattern[T], s *stage[T]) {
		switch {
		case c.event == nil && c.match == nil:
			*p = p.bad("%s: Until: condition is nil", s.title())
		case s.until != nil:
			*p = p.bad("%s: Until is set twice; make one condition of both", s.title())
		default:
			s.until = &c
		}
	})
}

// Until ends the repetition of the last stage (OneOrMore, TimesOrMore): from an event on for which it holds the stage
// takes no more. Flink: until.
func (p Pattern[T]) Until(f func(T) bool) Pattern[T] { return p.until(clause[T]{event: f}) }

// UntilMatch is Until for a condition that looks at what the partial match has taken so far.
func (p Pattern[T]) UntilMatch(f func(m Match[T], v T) bool) Pattern[T] {
	return p.until(clause[T]{match: f})
}

func (p Pattern[T]) quantify(what string, from, to int) Pattern[T] {
	return p.change(func(p *Pattern[T], s *stage[T]) {
		switch {
		case s.times:
			*p = p.bad("%s: %s: it has a quantifier already; leave one out", s.title(), what)
		case from < 0 || to < 1 || from > to:
			*p = p.bad("%s: %s: want a minimum that is not negative, and a maximum of at least one and the minimum", s.title(), what)
		case to != nfa.Unbounded && to > maxTimes, from > maxTimes:
			*p = p.bad("%s: %s: more than %d; count in a Process instead", s.title(), what, maxTimes)
		default:
			s.From, s.To, s.times = from, to, true
		}
	})
}

// maxTimes bounds the states of the automaton.
const maxTimes = 1000

// Times lets the last stage take exactly n events. Flink: times(n).
func (p Pattern[T]) Times(n int) Pattern[T] { return p.quantify("Times", n, n) }

// TimesRange lets the last stage take from to to events; from 0 makes it optional. Flink: times(from, to).
func (p Pattern[T]) TimesRange(from, to int) Pattern[T] { return p.quantify("TimesRange", from, to) }

// TimesOrMore lets the last stage take n events or more. Flink: timesOrMore.
func (p Pattern[T]) TimesOrMore(n int) Pattern[T] {
	if n < 1 {
		return p.quantify("TimesOrMore", -1, 1)
	}
	return p.quantify("TimesOrMore", n, nfa.Unbounded)
}

// OneOrMore lets the last stage take one event or more. Flink: oneOrMore.
func (p Pattern[T]) OneOrMore() Pattern[T] { return p.quantify("OneOrMore", 1, nfa.Unbounded) }

// Optional lets the last stage be left out. Flink: optional.
func (p Pattern[T]) Optional() Pattern[T] {
	return p.change(func(p *Pattern[T], s *stage[T]) { s.Optional = true })
}

// Greedy lets the last stage, which is repeated, take what the stage behind it could take too. Flink: greedy.
func (p Pattern[T]) Greedy() Pattern[T] {
	return p.change(func(p *Pattern[T], s *stage[T]) { s.Greedy = true })
}

func (p Pattern[T]) contiguity(what string, link nfa.Link) Pattern[T] {
	return p.change(func(p *Pattern[T], s *stage[T]) {
		if s.inner {
			*p = p.bad("%s: %s: Consecutive or AllowCombinations is set already; leave one out", s.title(), what)
		}
		s.Inner, s.inner = link, true
	})
}

// Consecutive lets no other events come between those that the last stage takes. Flink: consecutive.
func (p Pattern[T]) Consecutive() Pattern[T] { return p.contiguity("Consecutive", nfa.Next) }

// AllowCombinations lets the last stage leave out events that it could take, so that there is a match for each
// combination: their number doubles with every event, so set Within and a maximum. Flink: allowCombinations.
func (p Pattern[T]) AllowCombinations() Pattern[T] {
	return p.contiguity("AllowCombinations", nfa.FollowedByAny)
}

// Within bounds the time of a match: from its first to its last event it takes less than d. An event exactly d after
// the first does not belong to it. If it is set several times, the shortest counts. Flink: within.
func (p Pattern[T]) Within(d time.Duration) Pattern[T] {
	if d <= 0 || d%time.Millisecond != 0 {
		return p.bad("Within(%s): want a positive number of whole milliseconds", d)
	}
	if p.within == 0 || d < p.within {
		p.within = d
	}
	return p
}

// WithinStage bounds the time between the event before the last stage and the one that it takes: less than d. It is for
// stages that take exactly one event, and for NotFollowedBy at the end. Flink: within with
// WithinType.PREVIOUS_AND_CURRENT.
func (p Pattern[T]) WithinStage(d time.Duration) Pattern[T] {
	if d <= 0 || d%time.Millisecond != 0 {
		return p.bad("WithinStage(%s): want a positive number of whole milliseconds", d)
	}
	return p.change(func(p *Pattern[T], s *stage[T]) { s.Stage.Within = d.Milliseconds() })
}

// SkipStrategy says what a match rules out. Flink: AfterMatchSkipStrategy.
type SkipStrategy struct {
	kind  nfa.Skip
	stage string
}

// The skip strategies without a stage.
var (
	// NoSkip lets every match count. It is the default.
	NoSkip = SkipStrategy{}
	// SkipToNext drops the partial matches that began with the same event as the match.
	SkipToNext = SkipStrategy{kind: nfa.SkipToNext}
	// SkipPastLast drops the partial matches that began before the match ended.
	SkipPastLast = SkipStrategy{kind: nfa.SkipPastLast}
)

// SkipToFirst drops the partial matches that began before the first event that a stage took; none if it took none.
func SkipToFirst(stage string) SkipStrategy { return SkipStrategy{nfa.SkipToFirst, stage} }

// SkipToLast drops the partial matches that began before the last event that a stage took; none if it took none.
func SkipToLast(stage string) SkipStrategy { return SkipStrategy{nfa.SkipToLast, stage} }

// Skip sets the skip strategy.
func (p Pattern[T]) Skip(s SkipStrategy) Pattern[T] {
	p.skip = s
	return p
}

// DefaultMaxPartials is how many partial matches a key may have if MaxPartials is not set.
const DefaultMaxPartials = 10_000

// MaxPartials bounds the partial matches of a key, and to ten times as many the events that they have taken in all.
// Default: DefaultMaxPartials. The state of a key must fit into one record of the changelog: some 10 bytes for each.
func (p Pattern[T]) MaxPartials(n int) Pattern[T] {
	if n < 1 {
		return p.bad("MaxPartials(%d): want at least 1", n)
	}
	p.partials = n
	return p
}

// TimedOutTo sends partial matches that run out of time to a side output (processor.SideOutput). Flink:
// TimedOutPartialMatchHandler.
func (p Pattern[T]) TimedOutTo(tag processor.OutputTag[Match[T]]) Pattern[T] {
	p.timedOut = &tag
	return p
}

// LateTo sends late events to a side output instead of dropping them; both are counted. Flink: sideOutputLateData.
func (p Pattern[T]) LateTo(tag processor.OutputTag[T]) Pattern[T] {
	p.late = &tag
	return p
}

func (s *stage[T]) title() string {
	if s.group != nil {
		return fmt.Sprintf("group that begins with %q", s.group[0].Name)
	}
	return fmt.Sprintf("stage %q", s.Name)
}

// Detect looks for a pattern in the events of each key. result makes the output of a match; it is sent on with the key
// and the time of the match. Flink: CEP.pattern(..).select.
//
// An error in the chain behind, or a panic of a condition or of result, undoes the step of that one event, and goes by
// the operator's policy. With Skip or DeadLetter it is as if the event had not come.
func Detect[K comparable, T, R any](from processor.KeyedStream[K, T], id string, p Pattern[T], result func(k K, m Match[T]) R, o ...processor.Option) processor.KeyedStream[K, R] {
	c := compiler[T]{}
	prog, err := c.compile(p)
	return processor.DetectMatches(from, id, processor.MatchProgram[T]{Program: prog, Err: err, Holds: c.holds, Text: p.String(), TimedOut: p.timedOut, Late: p.late}, result, o...)
}

// compiler numbers the conditions.
type compiler[T any] struct {
	conds [][]clause[T]
	kinds []nfa.CondKind
	errs  []error
}

func (c *compiler[T]) compile(p Pattern[T]) (*nfa.Program, error) {
	if len(p.errs) > 0 {
		return nil, errors.Join(p.errs...)
	}
	stages := c.stages(p.list)
	prog, err := nfa.Compile(nfa.Pattern{Stages: stages, Conds: c.kinds, Within: p.within.Milliseconds(), Skip: p.skip.kind, SkipStage: p.skip.stage,
		MaxPartials: p.partials, MaxEvents: 10 * p.partials})
	return prog, errors.Join(append(c.errs, err)...)
}

func (c *compiler[T]) stages(list []stage[T]) []nfa.Stage {
	var out []nfa.Stage
	for _, s := range list {
		if s.inner && !s.times {
			c.errs = append(c.errs, fmt.Errorf("%s: Consecutive and AllowCombinations are for repeated stages; add Times or OneOrMore, or leave it out", s.title()))
		}
		s.Cond = nfa.Always
		if s.group != nil {
			s.Group = c.stages(s.group)
		} else if len(s.cond) > 0 {
			s.Cond = c.number(s.cond)
		}
		if s.until != nil {
			s.Until = c.number([]clause[T]{*s.until})
		}
		out = append(out, s.Stage)
	}
	return out
}

func (c *compiler[T]) number(list []clause[T]) int {
	kind := nfa.OfEvent
	for _, l := range list {
		if l.match != nil {
			kind = nfa.OfMatch
		}
	}
	c.conds, c.kinds = append(c.conds, list), append(c.kinds, kind)
	return len(c.conds) - 1
}

// holds answers for a condition. The clauses are joined in the order of the program: a.Where(b).Or(c) is a and b, or c.
func (c *compiler[T]) holds(cond int, v T, m Match[T]) bool {
	ok := true
	for i := range c.conds[cond] {
		l := &c.conds[cond][i]
		switch {
		case i > 0 && l.or == ok: // decided: true or .., false and ..
		case l.match != nil:
			ok = l.match(m, v)
		default:
			ok = l.event(v)
		}
	}
	return ok
}

// String shows the pattern as text, without its conditions.
func (p Pattern[T]) String() string {
	var b strings.Builder
	show(&b, p.list)
	if p.within > 0 {
		fmt.Fprintf(&b, " within %s", p.within)
	}
	switch p.skip.kind {
	case nfa.SkipToNext:
		b.WriteString(" skip to next")
	case nfa.SkipPastLast:
		b.WriteString(" skip past last")
	case nfa.SkipToFirst:
		b.WriteString(" skip to first " + p.skip.stage)
	case nfa.SkipToLast:
		b.WriteString(" skip to last " + p.skip.stage)
	}
	return b.String()
}

func show[T any](b *strings.Builder, list []stage[T]) {
	for i, s := range list {
		if i > 0 {
			b.WriteString(map[nfa.Link]string{nfa.Next: " next ", nfa.FollowedBy: " followed by ", nfa.FollowedByAny: " followed by any ",
				nfa.NotNext: " not next ", nfa.NotFollowedBy: " not followed by "}[s.Link])
		}
		if s.group != nil {
			b.WriteByte('(')
			show(b, s.group)
			b.WriteByte(')')
		} else {
			b.WriteString(s.Name)
		}
		switch {
		case !s.times:
		case s.To == nfa.Unbounded:
			fmt.Fprintf(b, "{%d,}", s.From)
		case s.From == s.To:
			fmt.Fprintf(b, "{%d}", s.From)
		default:
			fmt.Fprintf(b, "{%d,%d}", s.From, s.To)
		}
		if s.Optional {
			b.WriteByte('?')
		}
		if s.Greedy {
			b.WriteString(" greedy")
		}
		switch {
		case s.times && s.Inner == nfa.Next:
			b.WriteString(" consecutive")
		case s.times && s.Inner == nfa.FollowedByAny:
			b.WriteString(" combinations")
		}
		if s.until != nil {
			b.WriteString(" until")
		}
		if s.Stage.Within > 0 {
			fmt.Fprintf(b, " within %s", time.Duration(s.Stage.Within)*time.Millisecond)
		}
	}
}
