// Package nfa matches patterns of events: the automaton behind package processor/cep and SQL's MATCH_RECOGNIZE.
//
// It is pure: it knows events by number and time only, asks conditions through a callback, and has no clock and no
// I/O. A Pattern is compiled once to a Program; a Machine runs the program for one key after the other, whose state is
// loaded from and stored to packed bytes. What matches is what the library Flink CEP matches, in the same order; in
// one thing it is stricter: time passes in steps of one millisecond, so that results do not depend on how far a
// watermark jumps.
package nfa

import (
	"cmp"
	"errors"
	"fmt"
	"math"
)

// Event is the number of an event of a key: its event time in ms and its place among those of the same time. Events are
// handed to a Machine in this order, each once.
type Event struct {
	Time int64
	Seq  uint32
}

// Compare orders events by time, then by place.
func (e Event) Compare(o Event) int {
	return cmp.Or(cmp.Compare(e.Time, o.Time), cmp.Compare(e.Seq, o.Seq))
}

// Link is how a stage follows the one before it.
type Link uint8

// The links. Of the first stage it has no meaning.
const (
	Next          Link = iota // at once. Flink: next, strict contiguity
	FollowedBy                // with others between that do not match. Flink: followedBy, relaxed contiguity
	FollowedByAny             // with any others between. Flink: followedByAny, non-deterministic relaxed contiguity
	NotNext                   // the next event must not match. Flink: notNext
	NotFollowedBy             // none may match until the stage behind it does. Flink: notFollowedBy
)

func (l Link) negative() bool { return l >= NotNext }

// Always is the condition that holds for every event.
const Always = -1

// Stage is one element of a Pattern.
type Stage struct {
	Name  string
	Link  Link
	Cond  int     // number in Pattern.Conds, or Always
	Group []Stage // instead of Name and Cond: a pattern that is one element of this one

	// From to To events: 0 and 0 is the same as 1 and 1. To Unbounded has no end. A From of 0 with another To makes it
	// optional.
	From, To int
	Inner    Link // between the events of one stage: Next (consecutive), FollowedBy, or FollowedByAny (combinations)
	Optional bool
	Greedy   bool
	Until    int   // condition that ends the repetition, or Always for none
	Within   int64 // ms from the event before: less than that; 0 = no limit
}

// Unbounded is the To of a stage that may repeat for ever.
const Unbounded = math.MaxInt32

// Skip is where matching goes on after a match.
type Skip uint8

// The skip strategies. Flink: AfterMatchSkipStrategy.
const (
	NoSkip       Skip = iota // every match counts
	SkipToNext               // partial matches that began with the same event are dropped
	SkipPastLast             // those that began before the end of the match are dropped
	SkipToFirst              // those that began before the first event of a stage are dropped
	SkipToLast               // those that began before the last event of a stage are dropped
)

// Pattern is what Compile takes.
type Pattern struct {
	Stages []Stage
	// Conds tells of each condition whether it looks at the partial match too. The answer for an event alone is asked
	// for once per event.
	Conds     []CondKind
	Within    int64 // ms from the first event to the last: less than that; 0 = no limit
	Skip      Skip
	SkipStage string // of SkipToFirst and SkipToLast
	// MustSkip makes it an error if the match has no event of SkipStage, or begins with it (SQL).
	MustSkip bool
	// MaxPartials bounds the partial matches of a key, MaxEvents what they have taken in all; 0 = no bound.
	MaxPartials, MaxEvents int
}

// CondKind says what a condition looks at.
type CondKind uint8

// The kinds of conditions.
const (
	OfEvent CondKind = iota
	OfMatch          // at the event and at what the partial match has taken. Flink: IterativeCondition
)

// simple reports that the stage is taken exactly once.
func (s *Stage) simple() bool { return s.From == 0 && s.To == 0 }

func (s *Stage) looping() bool { return s.To == Unbounded }

func (s *Stage) optional() bool { return s.Optional || s.From == 0 && s.To > 0 }

// least is the least number of events of a stage that is not skipped.
func (s *Stage) least() int { return max(s.From, 1) }

// check finds what is wrong with a pattern. Each error says what to do.
func (p *Pattern) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(p.Stages) == 0 {
		bad("pattern has no stage; start it with Begin")
		return errors.Join(errs...)
	}
	if p.Within < 0 {
		bad("Within is negative")
	}
	names := map[string]bool{}
	cond := func(what string, c int) {
		if c != Always && (c < 0 || c >= len(p.Conds)) {
			bad("%s: condition %d does not exist", what, c)
		}
	}
	var stages func(list []Stage, group string)
	stages = func(list []Stage, group string) {
		for i := range list {
			s := &list[i]
			what := fmt.Sprintf("stage %q", s.Name)
			if s.Group != nil {
				what = fmt.Sprintf("group that begins with %q", first(s.Group))
			}
			var before *Stage
			if i > 0 {
				before = &list[i-1]
			}
			last := i == len(list)-1
			switch {
			case s.Group != nil && len(s.Group) == 0:
				bad("a group has no stage")
				continue
			case s.Group != nil:
				stages(s.Group, what)
				if s.Greedy {
					bad("%s: Greedy does not work on groups; use it on stages", what)
				}
				if nullable(s.Group) && (s.looping() || s.To > 1) {
					bad("%s: it may match no event at all, so repeating it has no meaning; make a stage of it mandatory", what)
				}
			case s.Name == "":
				bad("a stage has no name")
			case names[s.Name]:
				bad("%s: the name is used twice in the pattern; give each stage its own", what)
			}
			names[s.Name] = s.Group == nil
			cond(what, s.Cond)
			cond(what, s.Until)
			if s.From < 0 || s.To < s.From {
				bad("%s: %d to %d times, want at least one and no more than the maximum", what, s.From, s.To)
			}
			if i == 0 && !s.Link.negative() && s.Link != Next {
				bad("%s: the first stage of a pattern or group follows nothing; its link is Next", what)
			}
			if s.Link.negative() {
				if i == 0 {
					bad("%s: a pattern cannot begin with what must not be; begin with the event after which it must not be", what)
				}
				if s.Group != nil {
					bad("%s: a group cannot be a NOT; put NotNext or NotFollowedBy on stages", what)
				}
				if !s.simple() || s.Optional || s.Greedy || s.Until != Always {
					bad("%s: what must not be cannot be repeated, optional or greedy; leave that out", what)
				}
				if before != nil && (before.optional() || before.Group != nil && nullable(before.Group)) {
					bad("%s: it stands behind the optional %q, which does not work; use two patterns, one with the optional part and one without", what, first(list[i-1:i]))
				}
				if s.Link == NotNext && before != nil && before.Link == NotFollowedBy || s.Link == NotFollowedBy && last && before != nil && before.Link == NotFollowedBy {
					bad("%s: it stands behind NotFollowedBy %q, which would never be looked at; make one condition of both", what, before.Name)
				}
				if s.Link == NotFollowedBy && last && (group != "" || p.Within == 0 && s.Within == 0) {
					if group == "" {
						bad("%s: NotFollowedBy at the end of a pattern needs a time, or it is never known; set Within", what)
					} else {
						bad("%s: NotFollowedBy at the end of a group has no end; add the stage before which it must not be", what)
					}
				}
			}
			if s.Greedy && s.Group == nil {
				switch {
				case s.simple() || s.To == 1:
					bad("%s: Greedy is for repeated stages; add Times, TimesRange or OneOrMore, or leave it out", what)
				case s.Inner == FollowedByAny:
					bad("%s: Greedy and AllowCombinations contradict each other; leave one out", what)
				case last && group == "":
					bad("%s: Greedy has no meaning on the last stage, which ends at every event that it takes; leave it out, or add the stage that follows", what)
				}
			}
			if s.Optional && before != nil && before.Greedy {
				bad("%s: an optional stage cannot stand behind the greedy %q; make it mandatory, or the stage before it not greedy", what, before.Name)
			}
			if s.Until != Always && !s.looping() {
				bad("%s: Until ends a repetition without a maximum; use it with OneOrMore or TimesOrMore", what)
			}
			if s.Within < 0 {
				bad("%s: WithinStage is negative", what)
			}
			if s.Within > 0 {
				switch {
				case s.Group != nil || !s.simple() || s.Optional || s.Link == NotNext || s.Link == NotFollowedBy && !last:
					bad("%s: WithinStage is for a stage that takes exactly one event, or for NotFollowedBy at the end; use Within", what)
				case i == 0 && group == "":
					bad("%s: WithinStage counts from the event before, and there is none", what)
				case p.Within > 0 && s.Within > p.Within:
					bad("%s: WithinStage is longer than Within, so it has no effect; shorten it", what)
				}
			}
		}
	}
	stages(p.Stages, "")
	switch p.Skip {
	case NoSkip, SkipToNext, SkipPastLast:
	case SkipToFirst, SkipToLast:
		ok := false
		for i := range p.Stages {
			ok = ok || p.Stages[i].Group == nil && p.Stages[i].Name == p.SkipStage && !p.Stages[i].Link.negative()
		}
		if !ok {
			bad("skip strategy: there is no stage %q outside of groups that takes events; name one of the pattern", p.SkipStage)
		}
	default:
		bad("skip strategy %d is unknown", p.Skip)
	}
	return errors.Join(errs...)
}

// first is the name of the first stage of a list.
func first(list []Stage) string {
	for len(list) > 0 && list[0].Group != nil {
		list = list[0].Group
	}
	if len(list) == 0 {
		return ""
	}
	return list[0].Name
}

// nullable reports that the stages may all be passed without an event.
func nullable(list []Stage) bool {
	for i := range list {
		s := &list[i]
		if !s.optional() && !s.Link.negative() && (s.Group == nil || !nullable(s.Group)) {
			return false
		}
	}
	return true
}
