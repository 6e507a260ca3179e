package nfa

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// Program is a compiled Pattern: states with edges. It is not changed any more, and may be used by several Machines.
type Program struct {
	states   []state
	exprs    []expr
	kinds    []CondKind
	names    []string // of stages
	start    int32
	window   int64
	stepwise bool // a state has a window of its own
	skip     Skip
	skipTo   int32 // stage
	mustSkip bool
	partials int // bounds
	events   int
}

type role uint8

const (
	normal  role = iota
	final        // the match is complete
	stopped      // what must not be has come
	pending      // complete when the time is over
)

type state struct {
	role   role
	stage  int32
	window int64 // ms from the event before
	edges  []edge
	label  string // unique
}

type action uint8

const (
	take    action = iota // the event becomes part of the match
	ignore                // the event is passed over
	proceed               // on without an event; the same event is tried on the target
)

type edge struct {
	action action
	stage  int32 // that takes the event
	to     int32
	cond   int32 // in exprs
}

// expr is a node of a condition. Equal ones are one.
type expr struct {
	op   exprOp
	a, b int32
}

type exprOp uint8

const (
	opTrue exprOp = iota
	opFalse
	opAtom // condition a
	opNot
	opAnd
)

const (
	exprTrue  = 0
	exprFalse = 1
	none      = -1
)

// Stages are the names of the stages that take events, groups resolved, in the order of the pattern. A number of a
// stage is an index in it.
func (p *Program) Stages() []string { return p.names }

// Layout identifies what stored states mean: the states of the automaton, and the windows. It does not see what
// conditions do, and the skip strategy has no part in it.
func (p *Program) Layout() string {
	sum := sha256.Sum256([]byte(p.describe()))
	return hex.EncodeToString(sum[:8])
}

func (p *Program) describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "window %d start %d\n", p.window, p.start)
	for i := range p.states {
		s := &p.states[i]
		fmt.Fprintf(&b, "%d %s role %d window %d\n", i, s.label, s.role, s.window)
		for _, e := range s.edges {
			fmt.Fprintf(&b, "  %d -> %d stage %d if ", e.action, e.to, e.stage)
			p.describeExpr(&b, e.cond)
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func (p *Program) describeExpr(b *strings.Builder, e int32) {
	x := p.exprs[e]
	switch x.op {
	case opTrue, opFalse:
		fmt.Fprintf(b, "%v", x.op == opTrue)
	case opAtom:
		fmt.Fprintf(b, "c%d", x.a)
	case opNot:
		b.WriteString("not(")
		p.describeExpr(b, x.a)
		b.WriteByte(')')
	case opAnd:
		b.WriteString("and(")
		p.describeExpr(b, x.a)
		b.WriteByte(',')
		p.describeExpr(b, x.b)
		b.WriteByte(')')
	}
}

// Compile checks a pattern and makes its program. The error joins all that is wrong.
func Compile(p Pattern) (*Program, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	c := &compiler{Program: &Program{kinds: p.Conds, window: p.Within, skip: p.Skip, skipTo: none, mustSkip: p.MustSkip, partials: p.MaxPartials, events: p.MaxEvents},
		labels: map[string]bool{}, stops: map[*Stage]int32{}, again: map[*Stage]bool{}, plain: map[int32]int32{}, exprOf: map[expr]int32{}, stageOf: map[*Stage]int32{}}
	c.expr(expr{op: opTrue})
	c.expr(expr{op: opFalse})
	c.number(p.Stages)
	c.list = p.Stages
	end := c.state(final, "end", none)
	c.start = c.chain(end)
	if c.loops() {
		return nil, errors.New("a group that is repeated may match no event at all; make one of its stages mandatory")
	}
	if p.Skip == SkipToFirst || p.Skip == SkipToLast {
		for i, name := range c.names {
			if name == p.SkipStage {
				c.skipTo = int32(i)
			}
		}
	}
	return c.Program, nil
}

// compiler builds the states from the end of the pattern to its start: each stage is built in front of what follows.
type compiler struct {
	*Program
	labels  map[string]bool
	stops   map[*Stage]int32
	exprOf  map[expr]int32
	stageOf map[*Stage]int32

	list  []Stage // of the pattern or group that is built
	at    int     // the stage in it that is built
	group *Stage  // the group that list is of; nil outside
	after *Stage  // the stage that was built last
	// again says of a group whether it is built as a repetition, not as the first round.
	again map[*Stage]bool
	// plain is, for the state behind a greedy repetition with an Until, that state as it was without greediness.
	plain map[int32]int32
}

// number gives the stages their numbers.
func (c *compiler) number(list []Stage) {
	for i := range list {
		s := &list[i]
		if s.Group != nil {
			c.number(s.Group)
			continue
		}
		c.stageOf[s] = int32(len(c.names))
		c.names = append(c.names, s.Name)
	}
}

func (c *compiler) expr(x expr) int32 {
	if i, ok := c.exprOf[x]; ok {
		return i
	}
	i := int32(len(c.exprs))
	c.exprs = append(c.exprs, x)
	c.exprOf[x] = i
	return i
}

func (c *compiler) atom(cond int) int32 {
	if cond == Always {
		return exprTrue
	}
	return c.expr(expr{op: opAtom, a: int32(cond)})
}

func (c *compiler) not(a int32) int32 {
	switch {
	case a == exprTrue:
		return exprFalse
	case a == exprFalse:
		return exprTrue
	case c.exprs[a].op == opNot:
		return c.exprs[a].a
	}
	return c.expr(expr{op: opNot, a: a})
}

func (c *compiler) and(a, b int32) int32 {
	switch {
	case a == exprTrue || a == b:
		return b
	case b == exprTrue:
		return a
	case a == exprFalse || b == exprFalse:
		return exprFalse
	}
	return c.expr(expr{opAnd, a, b})
}

// state adds a state. A stage may have several; the label tells them apart.
func (c *compiler) state(r role, name string, stage int32) int32 {
	label := name
	for i := 0; c.labels[label]; i++ {
		label = fmt.Sprintf("%s:%d", name, i)
	}
	c.labels[label] = true
	c.states = append(c.states, state{role: r, stage: stage, label: label})
	return int32(len(c.states) - 1)
}

// stateOf adds a state of the stage that is built.
func (c *compiler) stateOf(r role) int32 {
	s := &c.list[c.at]
	if s.Group != nil {
		return c.state(r, "group", none)
	}
	i := c.state(r, s.Name, c.stageOf[s])
	if s.Within > 0 {
		c.states[i].window, c.stepwise = s.Within, true
	}
	return i
}

func (c *compiler) edge(from int32, a action, to, cond int32) {
	if cond == exprFalse {
		return
	}
	c.states[from].edges = append(c.states[from].edges, edge{action: a, stage: c.states[from].stage, to: to, cond: cond})
}

// stop is the state that ends a partial match because of a NOT stage.
func (c *compiler) stop(s *Stage) int32 {
	i, ok := c.stops[s]
	if !ok {
		i = c.state(stopped, s.Name, c.stageOf[s])
		c.edge(i, take, i, c.takes(s))
		c.stops[s] = i
	}
	return i
}

// chain builds the stages of c.list in front of state behind, and gives the state that they begin with.
func (c *compiler) chain(behind int32) int32 {
	for c.at = len(c.list) - 1; c.at > 0; c.at-- {
		s := &c.list[c.at]
		switch s.Link {
		case NotFollowedBy:
			// Otherwise it becomes edges of the states around it.
			if c.states[behind].role == final {
				p := c.stateOf(pending)
				cond := c.takes(s)
				c.edge(p, proceed, c.stop(s), cond)
				c.edge(p, ignore, p, c.not(cond))
				behind = p
			}
		case NotNext:
			n := c.stateOf(normal)
			cond := c.takes(s)
			if c.states[behind].role == final {
				c.edge(n, ignore, behind, c.not(cond)) // not proceed: an event must come
			} else {
				c.edge(n, proceed, behind, c.not(cond))
			}
			c.edge(n, proceed, c.stop(s), cond)
			behind = n
		default:
			behind = c.stage(behind)
		}
		c.after = s
	}
	return c.stage(behind)
}

// stage builds the running stage.
func (c *compiler) stage(behind int32) int32 {
	s := &c.list[c.at]
	var first int32
	switch {
	case s.looping():
		// Within the loop, a NOT in front of the stage is over.
		c.again[s] = true
		loop := c.loop(c.withoutNots(behind))
		c.again[s] = false
		first = c.times(loop, behind, s.least(), s.least())
	case !s.simple():
		first = c.times(behind, behind, s.least(), s.To)
	default:
		first = c.single(behind, behind, c.takes(s), c.ignores(s, false), s.optional())
	}
	c.addStops(first)
	return first
}

// nots are the NotFollowedBy stages whose condition ends a match while the running stage is awaited: those right in
// front of it, and in front of optional stages.
func (c *compiler) nots() (list []*Stage) {
	for i := c.at - 1; i >= 0; i-- {
		s := &c.list[i]
		if s.Link == NotFollowedBy && i > 0 {
			list = append(list, s)
		} else if !s.optional() {
			break
		}
	}
	return list
}

func (c *compiler) addStops(i int32) {
	for _, s := range c.nots() {
		c.edge(i, proceed, c.stop(s), c.takes(s))
	}
}

// addStopsBehind lets a NotFollowedBy that follows the running stage end the match from within its repetitions.
func (c *compiler) addStopsBehind(i int32) {
	if s := c.after; s != nil && s.Link == NotFollowedBy {
		c.edge(i, proceed, c.stop(s), c.takes(s))
	}
}

// withoutNots is a state as it is when the running, optional stage has taken an event: the NOTs in front of it are
// over then. It is a copy only if there are such.
func (c *compiler) withoutNots(i int32) int32 {
	nots := c.nots()
	if len(nots) == 0 || !c.list[c.at].optional() {
		return i
	}
	s := c.states[i]
	n := c.state(s.role, s.label, s.stage)
	c.states[n].window = s.window
	for _, e := range s.edges {
		to := e.to
		if to == i {
			to = n
		}
		if e.action == proceed {
			over := false
			if c.states[e.to].role == stopped {
				for _, not := range nots {
					over = over || c.stops[not] == e.to
				}
			} else {
				to = c.withoutNots(e.to)
			}
			if over {
				continue
			}
		}
		c.states[n].edges = append(c.states[n].edges, edge{e.action, e.stage, to, e.cond})
	}
	return n
}

// copied is a state of its own with the same edges.
func (c *compiler) copied(i int32) int32 {
	s := c.states[i]
	n := c.state(s.role, s.label, s.stage)
	c.states[n].window = s.window
	for _, e := range s.edges {
		if e.to == i {
			e.to = n
		}
		c.states[n].edges = append(c.states[n].edges, e)
	}
	return n
}

// greedy makes a state leave to the repetition in front of it what that can take.
func (c *compiler) greedy(i, takes int32) {
	for j := range c.states[i].edges {
		e := &c.states[i].edges[j]
		e.cond = c.and(e.cond, c.not(takes))
	}
}

// times builds from..to repetitions of the running stage; behind is what follows the last of them, skip what follows
// if no more of them come.
func (c *compiler) times(behind, skip int32, from, to int) int32 {
	s := &c.list[c.at]
	c.again[s] = true
	inner := c.until(s, c.ignores(s, true))
	takes := c.untilTake(s, c.takes(s))
	if s.Greedy && from != to {
		c.greedy(behind, takes)
	}
	for range to - from {
		behind = c.single(behind, skip, takes, inner, true)
		c.addStopsBehind(behind)
	}
	for range from - 1 {
		behind = c.single(behind, none, takes, inner, false)
		c.addStopsBehind(behind)
	}
	c.again[s] = false
	return c.single(behind, skip, takes, c.ignores(s, false), s.optional())
}

// single builds one event of the running stage, or one round of the group. skip is what follows if it is left out.
func (c *compiler) single(behind, skip, takes, ignores int32, optional bool) int32 {
	s := &c.list[c.at]
	if s.Group != nil {
		i := c.round(behind)
		if optional {
			c.edge(i, proceed, skip, c.always())
		}
		return i
	}
	i := c.stateOf(normal)
	behind = c.withoutNots(behind)
	c.edge(i, take, behind, takes)
	if optional {
		c.leave(s, i, skip, c.always())
	}
	if ignores == none {
		return i
	}
	to := i
	if optional || c.headOfOptional() {
		// Once an event was passed over, the stage is not left out any more: that was another branch.
		to = c.stateOf(normal)
		c.edge(to, take, behind, takes)
		c.edge(to, ignore, to, ignores)
		c.addStops(to)
	}
	c.edge(i, ignore, to, ignores)
	return i
}

// leave lets a state go on without an event to what follows a stage. Behind a greedy stage with an Until, that is
// without greediness when the Until holds.
func (c *compiler) leave(s *Stage, from, to, cond int32) {
	if s.Greedy && s.Until != Always {
		until := c.atom(s.Until)
		plain, ok := c.plain[to]
		if !ok {
			plain = to
		}
		c.edge(from, proceed, plain, c.and(cond, until))
		cond = c.and(cond, c.not(until))
	}
	c.edge(from, proceed, to, cond)
}

// loop builds a repetition of the running stage without end.
func (c *compiler) loop(behind int32) int32 {
	s := &c.list[c.at]
	if s.Group != nil {
		round := c.stateOf(normal)
		i := c.round(round)
		c.edge(i, proceed, behind, c.always())
		c.edge(round, proceed, i, c.always())
		return i
	}
	inner := c.until(s, c.ignores(s, true))
	takes := c.untilTake(s, c.takes(s))
	i := c.stateOf(normal)
	if s.Greedy {
		if s.Until != Always {
			c.plain[behind] = c.copied(behind)
		}
		c.leave(s, i, behind, c.always())
		c.greedy(behind, c.takes(s))
	} else {
		c.edge(i, proceed, behind, c.always())
	}
	c.edge(i, take, i, takes)
	c.addStopsBehind(i)
	if inner != none {
		to := c.stateOf(normal)
		c.edge(to, take, i, takes)
		c.edge(to, ignore, to, inner)
		c.edge(i, ignore, to, inner)
		c.addStopsBehind(to)
	}
	return i
}

// round builds one round of the running group.
func (c *compiler) round(behind int32) int32 {
	list, at, group, after := c.list, c.at, c.group, c.after
	c.group = &list[at]
	c.list = c.group.Group
	i := c.chain(behind)
	c.list, c.at, c.group, c.after = list, at, group, after
	return i
}

// head says that the running stage begins a group.
func (c *compiler) head() bool { return c.group != nil && c.at == 0 }

func (c *compiler) headOfOptional() bool {
	return c.head() && !c.again[c.group] && c.group.optional()
}

// takes is the condition under which a stage takes an event.
func (c *compiler) takes(s *Stage) int32 {
	return c.untilTake(c.group, c.atom(s.Cond))
}

// always holds as long as the Until of the group does not.
func (c *compiler) always() int32 { return c.untilTake(c.group, exprTrue) }

// ignores is the condition under which an event is passed over while a stage is awaited, none for never; inner asks for
// a repetition of the stage. The first stage of a group follows what is before the group as the group does.
func (c *compiler) ignores(s *Stage, inner bool) int32 {
	link := s.Link
	if inner {
		link = s.Inner
	}
	if c.head() {
		link = c.group.Link
		if inner || c.again[c.group] {
			link = c.group.Inner
		}
	}
	cond := int32(none)
	switch link {
	case FollowedBy:
		cond = c.not(c.atom(s.Cond))
	case FollowedByAny:
		cond = exprTrue
	}
	return c.until(c.group, cond)
}

// until ends a condition where the Until of s holds.
func (c *compiler) until(s *Stage, cond int32) int32 {
	if cond == none {
		return none
	}
	return c.untilTake(s, cond)
}

func (c *compiler) untilTake(s *Stage, cond int32) int32 {
	if s == nil || s.Until == Always {
		return cond
	}
	return c.and(c.not(c.atom(s.Until)), cond)
}

// loops finds ways in a circle without an event.
func (c *compiler) loops() bool {
	const open, done = 1, 2
	seen := make([]uint8, len(c.states))
	var visit func(i int32) bool
	visit = func(i int32) bool {
		seen[i] = open
		for _, e := range c.states[i].edges {
			if e.action == proceed && (seen[e.to] == open || seen[e.to] == 0 && visit(e.to)) {
				return true
			}
		}
		seen[i] = done
		return false
	}
	for i := range c.states {
		if seen[i] == 0 && visit(int32(i)) {
			return true
		}
	}
	return false
}
