package nfa

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// verify checks between events that references are counted right.
func (r *run) verify(t *testing.T) func() {
	return func() {
		t.Helper()
		m := r.m
		refs, events := make([]int32, len(m.nodes)), make([]int32, len(m.events))
		for _, h := range []*heap{&m.partial, &m.complete} {
			if !h.ordered(m) {
				t.Fatal("a heap is out of order")
			}
			for _, x := range *h {
				if x.node >= 0 {
					refs[x.node]++
				}
			}
		}
		live := 0
		for i, n := range m.nodes {
			if n.refs == 0 {
				continue
			}
			live++
			events[n.event]++
			if n.prev >= 0 {
				refs[n.prev]++
				if int(n.prev) >= i || m.nodes[n.prev].root != n.root {
					t.Fatalf("node %d: %+v", i, n)
				}
			}
		}
		for i, n := range m.nodes {
			if n.refs != refs[i] {
				t.Fatalf("node %d has %d references, counted are %d", i, refs[i], n.refs)
			}
		}
		for i, e := range m.events {
			if e.refs != events[i] {
				t.Fatalf("event %d has %d references, counted are %d", i, events[i], e.refs)
			}
			if gone := r.released[e.Event]; gone != (e.refs == 0) {
				t.Fatalf("event %v: released %v, references %d", e.Event, gone, e.refs)
			}
		}
		if live != m.live {
			t.Fatalf("%d nodes are live, counted are %d", live, m.live)
		}
	}
}

// randomRun makes a random pattern of all there is, and events.
func randomRun(seed uint64) (text, events string, r *run) {
	rng := rand.New(rand.NewPCG(seed, 3))
	for {
		text = randomPattern(rng)
		p, conds := parseWords(text)
		prog, err := Compile(p)
		if err != nil {
			continue
		}
		events = randomEvents(rng, 1+rng.IntN(9))
		return text, events, newRun(prog, conds, parseEvents(events))
	}
}

func TestStateMayBeStoredAndLoadedBetweenAnyEvents(t *testing.T) {
	kept := 0
	for seed := range uint64(1500) {
		text, events, plain := randomRun(seed)
		if err := plain.all(plain.verify(t)); err != nil {
			t.Fatal(err)
		}
		moved := newRun(plain.prog, plain.conds, plain.events)
		check := moved.verify(t)
		err := moved.all(func() {
			b := moved.m.Store(nil)
			if (len(b) == 0) != moved.m.Idle() || moved.m.Changed() {
				t.Fatalf("seed %d: %d bytes are stored, idle %v, changed %v", seed, len(b), moved.m.Idle(), moved.m.Changed())
			}
			kept += len(b)
			m := moved.prog.NewMachine()
			if err := m.Load(b); err != nil {
				t.Fatalf("seed %d: %s | %s: %v", seed, text, events, err)
			}
			if again := m.Store(nil); !slices.Equal(b, again) {
				t.Fatalf("seed %d: %x is stored as %x again", seed, b, again)
			}
			moved.m = m
			check()
		})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(plain.matches, moved.matches) || !slices.Equal(plain.timeouts, moved.timeouts) {
			t.Fatalf("seed %d: %s | %s\ngot  %s | %s\nwant %s | %s", seed, text, events, moved.matches, moved.timeouts, plain.matches, plain.timeouts)
		}
	}
	if kept < 10_000 {
		t.Fatalf("only %d bytes of state were moved: the test shows little", kept)
	}
}

// What has no time left is forgotten, and each event is released.
func TestNothingIsLeftWhenTheTimeIsOver(t *testing.T) {
	for seed := range uint64(1500) {
		text, events, r := randomRun(seed)
		if r.prog.window == 0 {
			continue
		}
		if err := r.all(func() {}); err != nil {
			t.Fatal(err)
		}
		if !r.m.Idle() || r.m.live != 0 || len(r.released) != len(r.events) {
			t.Fatalf("seed %d: %s | %s: idle %v, %d nodes, %d of %d events released", seed, text, events, r.m.Idle(), r.m.live, len(r.released), len(r.events))
		}
	}
}

// Time that passes in one leap gives what single steps give.
func TestResultsDoNotDependOnHowFarTimeLeaps(t *testing.T) {
	for seed := range uint64(1500) {
		text, events, leap := randomRun(seed)
		if err := leap.all(func() {}); err != nil {
			t.Fatal(err)
		}
		slow := newRun(leap.prog, leap.conds, leap.events)
		now, i := slow.events[0].at, 0
		if err := slow.all(func() {
			for ; i < len(slow.events) && now < slow.events[i].at; now++ {
				if err := slow.m.Advance(now, slow); err != nil {
					t.Fatal(err)
				}
			}
			i++
		}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(slow.matches, leap.matches) || !slices.Equal(slow.timeouts, leap.timeouts) {
			t.Fatalf("seed %d: %s | %s\nsteps %s | %s\nleaps %s | %s", seed, text, events, slow.matches, slow.timeouts, leap.matches, leap.timeouts)
		}
	}
}

func compiled(t testing.TB, text string) (*Program, []testCond) {
	t.Helper()
	p, conds := parseWords(text)
	prog, err := Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	return prog, conds
}

func TestTimesAtTheEndsOfTheRange(t *testing.T) {
	prog, conds := compiled(t, "within 10 ; begin a a ; by b b win=5")
	r := newRun(prog, conds, nil)
	r.events = []testEvent{{'a', 1, math.MinInt64}, {'b', 2, math.MinInt64 + 1}, {'a', 3, math.MaxInt64 - 2}, {'b', 4, math.MaxInt64 - 1}}
	for i, e := range r.events {
		r.place[Event{Time: e.at}] = i
		if err := r.m.Process(Event{Time: e.at}, r, r); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.m.Advance(math.MaxInt64, r); err != nil {
		t.Fatal(err)
	}
	if len(r.matches) != 2 || !r.m.Idle() && len(r.timeouts) > 0 {
		t.Fatalf("matches %s, timed out %s", r.matches, r.timeouts)
	}
}

func TestBoundOfPartialMatches(t *testing.T) {
	p, conds := parseWords("begin a a ; any b b + comb ; by c c")
	p.MaxPartials = 20
	prog, err := Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	r := newRun(prog, conds, parseEvents("a1@0 b1@1 b2@2 b3@3 b4@4 b5@5 b6@6"))
	var limit *LimitError
	if err := r.all(func() {}); !errors.As(err, &limit) || limit.Partials <= 20 || !strings.Contains(err.Error(), "set Within") {
		t.Fatalf("error %v", err)
	}
	p.MaxPartials, p.MaxEvents = 0, 20
	if prog, err = Compile(p); err != nil {
		t.Fatal(err)
	}
	r = newRun(prog, conds, r.events)
	if err := r.all(func() {}); !errors.As(err, &limit) || limit.Events <= 20 {
		t.Fatalf("error %v", err)
	}
}

func TestSkipThatSQLRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"skip first a ; begin a a ; next b b":                    "begins with that event",
		"skip last b ; begin a a ; next b b ? ; next c c":        "took no event of that name",
		"skip first b ; begin a a ; next b b ; next c c":         "",
		"skip last b ; begin a a ; next b b + consec ; next c c": "",
	} {
		p, conds := parseWords(text)
		p.MustSkip = true
		prog, err := Compile(p)
		if err != nil {
			t.Fatal(err)
		}
		err = newRun(prog, conds, parseEvents("a1@0 b1@1 c1@2 a1@3 c1@4")).all(func() {})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			if !(strings.HasPrefix(text, "skip last b ; begin a a ; next b b +") && err == nil) {
				t.Errorf("%s: error %v, want %q", text, err, want)
			}
		}
	}
}

func TestPatternsThatCannotWork(t *testing.T) {
	for text, want := range map[string]string{
		"begin a a ; by a b":                                      `stage "a": the name is used twice`,
		"begin a a ; by ( begin b b ; by a c )":                   `stage "a": the name is used twice`,
		"begin a a ; notby b b":                                   `stage "b": NotFollowedBy at the end of a pattern needs a time`,
		"within 5 ; begin ( begin a a ; notby b b ) ; by c c":     `NotFollowedBy at the end of a group`,
		"begin a a ; by b b + greedy":                             `stage "b": Greedy has no meaning on the last stage`,
		"begin a a greedy ; by b b":                               `stage "a": Greedy is for repeated stages`,
		"begin a a + comb greedy ; by b b":                        `Greedy and AllowCombinations contradict`,
		"begin a a ; by b b + greedy ; by c c ? ; by d d":         `an optional stage cannot stand behind the greedy "b"`,
		"begin a a ? ; notby b b ; by c c":                        `it stands behind the optional "a"`,
		"begin ( begin a a ? ) ; notnext b b ; by c c":            `it stands behind the optional "a"`,
		"begin a a ; notby b b + ; by c c":                        `cannot be repeated`,
		"begin a a {2} until=b ; by c c":                          `Until ends a repetition without a maximum`,
		"begin ( begin a a ? ; by b b {0,2} ) + ; by c c":         `repeating it has no meaning`,
		"begin a a win=5 ; by b b":                                `WithinStage counts from the event before`,
		"begin a a ; by b b + win=5 ; by c c":                     `WithinStage is for a stage that takes exactly one event`,
		"within 4 ; begin a a ; by b b win=5":                     `WithinStage is longer than Within`,
		"skip first x ; begin a a ; by b b":                       `there is no stage "x"`,
		"skip last b ; begin a a ; notby b b ; by c c":            `there is no stage "b"`,
		"begin a a ; notby b b ; notnext c c ; by d d":            `behind NotFollowedBy "b"`,
		"begin a a {3,2} ; by b b":                                `3 to 2 times`,
		"begin ( begin a a ; by b b ) + greedy ; by c c":          `Greedy does not work on groups`,
		"notby a a ; by b b":                                      `a pattern cannot begin with what must not be`,
		"begin a a ; by ( begin b b ? ; by c c ? ) {2,} ; by d d": `repeating it has no meaning`,
	} {
		p, _ := parseWords(text)
		if _, err := Compile(p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\nerror %v\nwant  %s", text, err, want)
		}
	}
	if _, err := Compile(Pattern{}); err == nil {
		t.Error("a pattern without stages is taken")
	}
}

func TestLayoutTellsWhatTheStateMeans(t *testing.T) {
	base, _ := compiled(t, "within 10 ; begin a a ; by b b + ; by c c")
	for text, same := range map[string]bool{
		"within 10 ; begin a a ; by b b + ; by c c":             true,
		"skip past ; within 10 ; begin a b ; by b c + ; by c a": true, // conditions and skip strategy
		"within 11 ; begin a a ; by b b + ; by c c":             false,
		"within 10 ; begin a a ; by b b + comb ; by c c":        false,
		"within 10 ; begin a a ; by x b + ; by c c":             false,
		"within 10 ; begin a a ; by b b {2} ; by c c":           false,
	} {
		if p, _ := compiled(t, text); (p.Layout() == base.Layout()) != same {
			t.Errorf("%s: layout %s, that of the first %s", text, p.Layout(), base.Layout())
		}
	}
}

func FuzzLoad(f *testing.F) {
	texts := []string{"within 10 ; begin a a ; by b b + ; by c c", "skip past ; begin a a ; any b ab {2,3} win=4 ; notnext c c", "within 9 ; begin ( begin a a ; by b b>a ) + ; notby c c",
		"skip next ; begin a a ; any b . ; by c c"}
	var progs []*Program
	var conds [][]testCond
	for i, text := range texts {
		text = strings.Replace(text, "{2,3} win=4", "win=4", 1)
		p, c := compiled(f, text)
		progs, conds = append(progs, p), append(conds, c)
		r := newRun(p, c, parseEvents("a1@0 a2@1 b1@1 b3@2 a3@3 b4@4"))
		if err := r.all(func() { f.Add(uint8(i), r.m.Store(nil)) }); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		i := int(which) % len(progs)
		m := progs[i].NewMachine()
		if err := m.Load(b); err != nil {
			if !m.Idle() {
				t.Fatal("a state that could not be loaded is there")
			}
			return
		}
		one := m.Store(nil)
		if err := m.Load(one); err != nil {
			t.Fatalf("%x: what was stored cannot be loaded: %v", one, err)
		}
		if two := m.Store(nil); !slices.Equal(one, two) {
			t.Fatalf("%x became %x", one, two)
		}
		r := &fuzzRun{conds: conds[i], m: m}
		last := int64(0)
		for _, e := range m.events {
			last = max(last, e.Time)
		}
		if last > math.MaxInt64-100 {
			return
		}
		for k := range 4 {
			if err := m.Process(Event{Time: last + 1 + int64(k)}, r, r); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.Advance(last+50, r); err != nil {
			t.Fatal(err)
		}
	})
}

// fuzzRun knows no events.
type fuzzRun struct {
	conds []testCond
	m     *Machine
	n     int
}

func (r *fuzzRun) Holds(cond int, _ Event, m *Partial) bool {
	r.n += len(m.Taken())
	return (r.n+cond)%3 > 0
}
func (r *fuzzRun) Match(m *Partial, _ int64) error    { r.n += len(m.Taken()); return nil }
func (r *fuzzRun) TimedOut(m *Partial, _ int64) error { r.n += len(m.Taken()); return nil }
func (r *fuzzRun) Release(Event) error                { return nil }
