package nfa

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// The words of patterns in tests, which test/cepgolden reads too:
//
//	[skip none|next|past|first STAGE|last STAGE ;] [within MS ;] element ; element ...
//	element: begin|next|by|any|notnext|notby STAGE CONDITION word... or begin|next|by|any ( element ; ... ) word...
//	word: + {n} {n,m} {n,} ? greedy consec comb until=CONDITION win=MS
//	CONDITION: letters, or . for any; then >STAGE: the value is greater than that of the last event of the stage, if any
//
// An event is a letter and a value @ its time: a7@3.

type testCond struct {
	letters string
	above   string // stage
}

type words struct {
	list  []string
	p     Pattern
	conds []testCond
}

func parseWords(text string) (Pattern, []testCond) {
	w := &words{list: strings.Fields(text)}
	if w.eat("skip") {
		switch to := w.next(); to {
		case "none":
		case "next":
			w.p.Skip = SkipToNext
		case "past":
			w.p.Skip = SkipPastLast
		case "first":
			w.p.Skip, w.p.SkipStage = SkipToFirst, w.next()
		case "last":
			w.p.Skip, w.p.SkipStage = SkipToLast, w.next()
		default:
			panic(to)
		}
		w.eat(";")
	}
	if w.eat("within") {
		w.p.Within = w.number(w.next())
		w.eat(";")
	}
	w.p.Stages = w.sequence()
	return w.p, w.conds
}

func (w *words) eat(word string) bool {
	if len(w.list) > 0 && w.list[0] == word {
		w.list = w.list[1:]
		return true
	}
	return false
}

func (w *words) next() string {
	word := w.list[0]
	w.list = w.list[1:]
	return word
}

func (w *words) number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func (w *words) cond(text string) int {
	c := testCond{}
	c.letters, c.above, _ = strings.Cut(text, ">")
	w.conds = append(w.conds, c)
	kind := OfEvent
	if c.above != "" {
		kind = OfMatch
	}
	w.p.Conds = append(w.p.Conds, kind)
	return len(w.conds) - 1
}

var testLinks = map[string]Link{"begin": Next, "next": Next, "by": FollowedBy, "any": FollowedByAny, "notnext": NotNext, "notby": NotFollowedBy}

func (w *words) sequence() (list []Stage) {
	for {
		s := Stage{Link: testLinks[w.next()], Cond: Always, Until: Always, Inner: FollowedBy}
		if w.eat("(") {
			s.Group = w.sequence()
			w.next()
		} else {
			s.Name = w.next()
			s.Cond = w.cond(w.next())
		}
		for len(w.list) > 0 && w.list[0] != ";" && w.list[0] != ")" {
			switch word := w.next(); {
			case word == "+":
				s.From, s.To = 1, Unbounded
			case word == "?":
				s.Optional = true
			case word == "greedy":
				s.Greedy = true
			case word == "consec":
				s.Inner = Next
			case word == "comb":
				s.Inner = FollowedByAny
			case strings.HasPrefix(word, "until="):
				s.Until = w.cond(word[6:])
			case strings.HasPrefix(word, "win="):
				s.Within = w.number(word[4:])
			case strings.HasPrefix(word, "{"):
				from, to, two := strings.Cut(word[1:len(word)-1], ",")
				s.From = int(w.number(from))
				switch {
				case !two:
					s.To = s.From
				case to == "":
					s.To = Unbounded
				default:
					s.To = int(w.number(to))
				}
			default:
				panic(word)
			}
		}
		list = append(list, s)
		if !w.eat(";") {
			return list
		}
	}
}

type testEvent struct {
	letter byte
	value  int
	at     int64
}

func parseEvents(text string) (list []testEvent) {
	for _, f := range strings.Fields(text) {
		name, at, _ := strings.Cut(f, "@")
		e := testEvent{letter: name[0]}
		e.value, _ = strconv.Atoi(name[1:])
		e.at, _ = strconv.ParseInt(at, 10, 64)
		list = append(list, e)
	}
	return list
}

// run is a Machine that matches test events.
type run struct {
	prog     *Program
	conds    []testCond
	events   []testEvent
	place    map[Event]int
	m        *Machine
	released map[Event]bool
	matches  []string
	timeouts []string
	stored   []byte
	asked    int
}

func newRun(prog *Program, conds []testCond, events []testEvent) *run {
	return &run{prog: prog, conds: conds, events: events, place: map[Event]int{}, m: prog.NewMachine(), released: map[Event]bool{}}
}

func (r *run) Holds(cond int, event Event, m *Partial) bool {
	r.asked++
	c := r.conds[cond]
	e := r.events[r.place[event]]
	if c.letters != "." && !strings.ContainsRune(c.letters, rune(e.letter)) {
		return false
	}
	if c.above == "" {
		return true
	}
	last := -1
	for _, t := range m.Taken() {
		if r.prog.Stages()[t.Stage] == c.above {
			last = r.places(t.Event)
		}
	}
	return last < 0 || e.value > r.events[last].value
}

func (r *run) places(e Event) int {
	if r.released[e] {
		panic(fmt.Sprintf("event %v is used after its release", e))
	}
	return r.place[e]
}

func (r *run) show(m *Partial, at int64) string {
	of := map[string][]string{}
	for _, t := range m.Taken() {
		name := r.prog.Stages()[t.Stage]
		of[name] = append(of[name], strconv.Itoa(r.places(t.Event)))
	}
	text := fmt.Sprintf("@%d", at)
	names := []string{}
	for name := range of {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		text += " " + name + "=" + strings.Join(of[name], ",")
	}
	return text
}

func (r *run) Match(m *Partial, at int64) error {
	r.matches = append(r.matches, r.show(m, at))
	return nil
}

func (r *run) TimedOut(m *Partial, at int64) error {
	r.timeouts = append(r.timeouts, r.show(m, at))
	return nil
}

func (r *run) Release(e Event) error {
	if r.released[e] {
		panic(fmt.Sprintf("event %v is released twice", e))
	}
	r.released[e] = true
	return nil
}

// all processes all events; between is called before each, and before the time behind the last.
func (r *run) all(between func()) error {
	seq := uint32(0)
	for i, e := range r.events {
		between()
		if i > 0 && r.events[i-1].at == e.at {
			seq++
		} else {
			seq = 0
		}
		n := Event{e.at, seq}
		r.place[n] = i
		if err := r.m.Process(n, r, r); err != nil {
			return err
		}
	}
	between()
	if n := len(r.events); n > 0 {
		return r.m.Advance(r.events[n-1].at+100, r)
	}
	return nil
}

// randomPattern writes a pattern that Compile may or may not take.
func randomPattern(rng *rand.Rand) string {
	var b strings.Builder
	pick := func(list ...string) string { return list[rng.IntN(len(list))] }
	n := 0
	var names []string
	cond := func() string {
		c := pick("a", "b", "c", "ab", "bc", "ac", ".", "a", "b", "c")
		if len(names) > 0 && rng.IntN(6) == 0 {
			c += ">" + names[rng.IntN(len(names))]
		}
		return c
	}
	var sequence func(depth, count int)
	sequence = func(depth, count int) {
		for i := range count {
			link := pick("next", "by", "any", "by", "any", "notnext", "notby")
			if i == 0 {
				link = "begin"
			} else {
				b.WriteString(" ; ")
			}
			not := strings.HasPrefix(link, "not")
			group := !not && depth < 2 && rng.IntN(6) == 0
			b.WriteString(link + " ")
			if group {
				b.WriteString("( ")
				sequence(depth+1, 1+rng.IntN(2))
				b.WriteString(" )")
			} else {
				name := string(rune('p' + n))
				n++
				c := cond()
				names = append(names, name)
				b.WriteString(name + " " + c)
			}
			if not {
				if i == count-1 && rng.IntN(3) == 0 {
					fmt.Fprintf(&b, " win=%d", 1+rng.IntN(8))
				}
				continue
			}
			if rng.IntN(12) == 0 && i > 0 {
				fmt.Fprintf(&b, " win=%d", 1+rng.IntN(8))
				continue
			}
			repeated, mark := rng.IntN(2) == 0, b.Len()
			if repeated {
				quantifier := pick("+", "+", "{2}", "{1,2}", "{2,3}", "{2,}", "{0,2}")
				b.WriteString(" " + quantifier)
				if s := pick("", "", "consec", "comb"); s != "" {
					b.WriteString(" " + s)
				}
				if (quantifier == "+" || quantifier == "{2,}") && rng.IntN(4) == 0 {
					b.WriteString(" until=" + cond())
				}
			}
			if rng.IntN(4) == 0 && !strings.Contains(b.String()[mark:], "{0,") {
				b.WriteString(" ?")
			}
			if repeated && !group && rng.IntN(3) == 0 {
				b.WriteString(" greedy")
			}
		}
	}
	count := 1 + rng.IntN(4)
	sequence(0, count)
	text := b.String()
	if rng.IntN(2) == 0 {
		text = fmt.Sprintf("within %d ; ", 3+rng.IntN(12)) + text
	}
	switch rng.IntN(6) {
	case 0:
		text = "skip next ; " + text
	case 1:
		text = "skip past ; " + text
	case 2:
		text = "skip first " + names[rng.IntN(len(names))] + " ; " + text
	case 3:
		text = "skip last " + names[rng.IntN(len(names))] + " ; " + text
	}
	return text
}

func randomEvents(rng *rand.Rand, n int) string {
	var list []string
	at := int64(0)
	for range n {
		at += int64([]int{0, 1, 1, 1, 2, 5}[rng.IntN(6)])
		list = append(list, fmt.Sprintf("%c%d@%d", 'a'+rng.IntN(4), rng.IntN(5), at))
	}
	return strings.Join(list, " ")
}
