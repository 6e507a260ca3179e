package nfa

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// model finds all matches of a pattern by trying: from each event on, stage by stage, with nothing in common with the
// automaton. It knows patterns without groups, greediness and skip strategies.
type model struct {
	p       Pattern
	conds   []testCond
	events  []testEvent
	taken   []modelTaken
	matches []string
}

type modelTaken struct{ stage, event int }

func (m *model) holds(cond, event int) bool {
	if cond == Always {
		return true
	}
	c := m.conds[cond]
	e := m.events[event]
	if c.letters != "." && !strings.ContainsRune(c.letters, rune(e.letter)) {
		return false
	}
	if c.above == "" {
		return true
	}
	for _, t := range slices.Backward(m.taken) {
		if m.p.Stages[t.stage].Name == c.above {
			return e.value > m.events[t.event].value
		}
	}
	return true
}

func (m *model) emit(at int64) {
	if len(m.taken) == 0 {
		return
	}
	text := fmt.Sprintf("@%d", at)
	names := map[string][]string{}
	for _, t := range m.taken {
		n := m.p.Stages[t.stage].Name
		names[n] = append(names[n], fmt.Sprint(t.event))
	}
	var keys []string
	for k := range names {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		text += " " + k + "=" + strings.Join(names[k], ",")
	}
	m.matches = append(m.matches, text)
}

// inTime says that the event is there and comes before the match has no time left.
func (m *model) inTime(event int) bool {
	if event >= len(m.events) {
		return false
	}
	return m.p.Within == 0 || len(m.taken) == 0 || m.events[event].at-m.events[m.taken[0].event].at < m.p.Within
}

// stage tries the stages from i on, with the events from pos on.
func (m *model) stage(i, pos int) {
	if i == len(m.p.Stages) {
		if len(m.taken) > 0 {
			m.emit(m.events[m.taken[len(m.taken)-1].event].at)
		}
		return
	}
	s := &m.p.Stages[i]
	last := i == len(m.p.Stages)-1
	switch {
	case s.Link == NotNext:
		if m.inTime(pos) && !m.holds(s.Cond, pos) {
			if last {
				m.emit(m.events[pos].at)
				return
			}
			m.stage(i+1, pos)
		}
		return
	case s.Link == NotFollowedBy && last:
		for j := pos; m.inTime(j); j++ {
			if m.holds(s.Cond, j) {
				return
			}
		}
		m.emit(m.events[m.taken[0].event].at + m.p.Within)
		return
	case s.Link == NotFollowedBy:
		m.stage(i+1, pos) // which looks back at it
		return
	}
	if s.optional() {
		m.stage(i+1, pos)
	}
	m.repeat(i, pos, 0)
}

// repeat tries to take one more event for stage i, of which n are taken.
func (m *model) repeat(i, pos, n int) {
	s := &m.p.Stages[i]
	link, not, until := s.Link, Always, s.Until
	if n > 0 {
		link = s.Inner
		if i+1 < len(m.p.Stages) && m.p.Stages[i+1].Link == NotFollowedBy {
			not = m.p.Stages[i+1].Cond
		}
	} else if i > 0 && m.p.Stages[i-1].Link == NotFollowedBy {
		not = m.p.Stages[i-1].Cond
	}
	if len(m.taken) == 0 {
		link = Next
	}
	for j := pos; m.inTime(j); j++ {
		if not != Always && m.holds(not, j) {
			return
		}
		ended := until != Always && m.holds(until, j)
		holds := m.holds(s.Cond, j)
		if holds && !ended {
			m.taken = append(m.taken, modelTaken{i, j})
			if n+1 >= s.least() {
				m.stage(i+1, j+1)
			}
			if n+1 < max(s.To, 1) {
				m.repeat(i, j+1, n+1)
			}
			m.taken = m.taken[:len(m.taken)-1]
		}
		if link == Next || n > 0 && ended || link == FollowedBy && holds {
			return
		}
	}
}

// modelPattern writes a pattern that the model knows.
func modelPattern(rng *rand.Rand) string {
	pick := func(list ...string) string { return list[rng.IntN(len(list))] }
	var list, names []string
	within := rng.IntN(3) > 0
	count := 1 + rng.IntN(4)
	optional, variable, not := false, false, ""
	for i := range count {
		link := "begin"
		if i > 0 {
			link = pick("next", "by", "any", "by")
			if !optional && not == "" && rng.IntN(3) == 0 {
				link = pick("notnext", "notby")
			}
			if link == "notnext" && variable {
				// The event that must not be next ends the match even if the stage before could take it, as in Flink.
				link = "next"
			}
			if link == "notby" && i == count-1 && (!within || variable) {
				// Nothing ends it without a time. And a stage that could still take events when the time is over has timed
				// out, as in Flink.
				link = "by"
			}
		}
		name := string(rune('p' + i))
		cond := pick("a", "b", "c", "ab", "bc", ".")
		if not != "" {
			// An event that both ends a match and completes it is a case of its own, for the golden answers.
			cond = pick(strings.Split(strings.NewReplacer("a", "b c bc", "b", "a c ac", "c", "a b ab").Replace(not[:1]), " ")...)
		}
		if len(names) > 0 && rng.IntN(5) == 0 && !strings.HasPrefix(link, "not") {
			cond += ">" + names[rng.IntN(len(names))]
		}
		if strings.HasPrefix(link, "not") {
			not = pick("a", "b", "c")
			list = append(list, link+" "+name+" "+not)
			optional = false
			continue
		}
		names = append(names, name)
		text := link + " " + name + " " + cond
		optional, variable = false, false
		if rng.IntN(2) == 0 {
			q := pick("+", "{2}", "{1,2}", "{2,3}", "{2,}", "{0,2}")
			variable = q != "{2}"
			if not != "" && q == "{0,2}" {
				q = "{2}"
			}
			optional = q == "{0,2}"
			text += " " + q + " " + pick("", "consec", "comb")
			if (q == "+" || q == "{2,}") && rng.IntN(3) == 0 {
				text += " until=" + pick("a", "b", "c")
			}
		}
		if rng.IntN(4) == 0 && not == "" && !optional {
			text += " ?"
			optional = true
		}
		not = ""
		list = append(list, text)
	}
	text := strings.Join(list, " ; ")
	if within {
		text = fmt.Sprintf("within %d ; ", 2+rng.IntN(12)) + text
	}
	return text
}

func TestMatchesAreThoseThatAnExhaustiveSearchFinds(t *testing.T) {
	n, found := 4000, 0
	if testing.Short() {
		n = 500
	}
	for seed := range uint64(n) {
		rng := rand.New(rand.NewPCG(seed, 11))
		text := modelPattern(rng)
		p, conds := parseWords(text)
		prog, err := Compile(p)
		if err != nil {
			t.Fatalf("seed %d: %s: %v", seed, text, err)
		}
		lines := randomEvents(rng, 1+rng.IntN(9))
		m := &model{p: p, conds: conds, events: parseEvents(lines)}
		for i := range m.events {
			m.begin(i)
		}
		r := newRun(prog, conds, m.events)
		if err := r.all(r.verify(t)); err != nil {
			t.Fatal(err)
		}
		got, want := slices.Sorted(slices.Values(r.matches)), slices.Sorted(slices.Values(m.matches))
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: %s | %s\ngot  %s\nwant %s", seed, text, lines, strings.Join(got, "; "), strings.Join(want, "; "))
		}
		found += len(got)
	}
	if found < n {
		t.Fatalf("only %d matches in %d patterns: the test shows little", found, n)
	}
}

// begin finds the matches that begin with an event.
func (m *model) begin(event int) {
	m.taken = m.taken[:0]
	m.stage(0, event)
}
