package nfa

import (
	"fmt"
	"math"
	"slices"
	"unsafe"
)

// Conditions answers for a Machine.
type Conditions interface {
	// Holds reports whether condition cond holds for an event, of which m has taken none yet. m is valid for the call.
	Holds(cond int, event Event, m *Partial) bool
}

// Output takes what a Machine finds. An error ends the call of the Machine, which must be loaded anew then.
type Output interface {
	// Match is a match that was complete at that time: the time of its last event, or when what must not come could
	// not come any more. m is valid for the call.
	Match(m *Partial, at int64) error
	// TimedOut is a partial match that had no time left from that time on.
	TimedOut(m *Partial, at int64) error
	// Release says that an event is not needed any more. Every event that Process was given is released once.
	Release(event Event) error
}

// Taken is an event of a match with the number of the stage that took it.
type Taken struct {
	Stage int
	Event Event
}

// Partial is what a match has taken so far.
type Partial struct {
	m    *Machine
	node int32
	path []Taken
	set  bool
}

// Taken are the events in their order. They are valid as long as the Partial.
func (p *Partial) Taken() []Taken {
	if !p.set {
		p.set = true
		p.path = p.path[:0]
		for i := p.node; i >= 0; i = p.m.nodes[i].prev {
			n := &p.m.nodes[i]
			p.path = append(p.path, Taken{int(n.stage), p.m.events[n.event].Event})
		}
		slices.Reverse(p.path)
	}
	return p.path
}

// First is the event that the match began with; false if it has taken none.
func (p *Partial) First() (e Event, ok bool) {
	if p.node < 0 {
		return e, false
	}
	return p.m.events[p.m.nodes[p.node].root].Event, true
}

// Newest gives the events that the match has taken, the last one first, until yield returns false.
func (p *Partial) Newest(yield func(Taken) bool) {
	for i := p.node; i >= 0; i = p.m.nodes[i].prev {
		n := &p.m.nodes[i]
		if !yield(Taken{int(n.stage), p.m.events[n.event].Event}) {
			return
		}
	}
}

func (p *Partial) point(node int32) *Partial {
	p.node, p.set = node, false
	return p
}

// thread is a partial or completed match: the state it is in and what it took last, none for the one that waits for
// the first event.
type thread struct{ state, node int32 }

// node is an event that a match took; matches that began alike share nodes.
type node struct {
	event int32
	stage int32
	prev  int32 // none: the first
	root  int32 // event of the first
	refs  int32 // threads and nodes that point here
}

type heldEvent struct {
	Event
	refs int32 // nodes
}

// LimitError says that a key has more partial matches than the pattern allows.
type LimitError struct {
	Partials, Events       int // there are
	MaxPartials, MaxEvents int // of the pattern
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("the key has %d partial matches over %d taken events, the bounds are %d and %d: set Within or shorten it, use a stricter contiguity than FollowedByAny and AllowCombinations, or a skip strategy", e.Partials, e.Events, e.MaxPartials, e.MaxEvents)
}

// State is the state of one key as a Machine works on it. The zero State is not that of a key: see Machine.Take. It belongs
// to who has it, and two never share memory unless one was assigned to the other.
type State struct {
	events   []heldEvent // ascending; one without refs is a gap
	nodes    []node      // each behind its prev; one without refs is a gap
	partial  heap
	complete heap
	now      int64 // of stepwise programs: the millisecond that has begun
	gaps     int   // in events and nodes
	live     int   // nodes that are not gaps
}

// Copy makes s equal to another State, in memory of its own.
func (s *State) Copy(of *State) {
	events, nodes, partial, complete := s.events[:0], s.nodes[:0], s.partial[:0], s.complete[:0]
	*s = *of
	s.events, s.nodes = append(events, of.events...), append(nodes, of.nodes...)
	s.partial, s.complete = append(partial, of.partial...), append(complete, of.complete...)
}

// Size is about how many bytes it takes behind its pointers.
func (s *State) Size() int {
	return int(unsafe.Sizeof(heldEvent{}))*cap(s.events) + int(unsafe.Sizeof(node{}))*cap(s.nodes) + int(unsafe.Sizeof(thread{}))*(cap(s.partial)+cap(s.complete))
}

// Machine runs a Program on the state of one key at a time. It is used by one goroutine.
type Machine struct {
	p *Program
	State

	// Of the running call.
	next, found heap
	conds       Conditions
	event       Event
	index       int32 // of event in events; none: nothing took it
	ofEvent     uint64
	ofThread    uint64
	memo        []uint64 // per condition: when it was asked, and the answer
	stamp       uint64
	ask         Partial // for conditions
	told        Partial // for Output
	stack       []int32
	edges       []*edge
	keep        []thread
	released    []Event
	changed     bool
	move        []int32
}

// NewMachine makes a Machine in the state of a key without events.
func (p *Program) NewMachine() *Machine {
	m := &Machine{p: p, memo: make([]uint64, len(p.kinds)), index: none}
	m.ask.m, m.told.m = m, m
	m.Reset()
	return m
}

// Reset puts the Machine in the state of a key without events.
func (m *Machine) Reset() {
	m.events, m.nodes, m.complete, m.partial = m.events[:0], m.nodes[:0], m.complete[:0], append(m.partial[:0], thread{m.p.start, none})
	m.now, m.gaps, m.live = math.MinInt64, 0, 0
	m.fresh()
}

// fresh forgets the call before, which may have failed.
func (m *Machine) fresh() { m.changed, m.released = false, m.released[:0] }

// Take makes the Machine work on a State that a Machine of the program gave. It belongs to the Machine until Give.
func (m *Machine) Take(s State) {
	m.State = s
	m.fresh()
}

// Give hands out the State of the Machine, which has none from then on until Begin, Take or Load.
func (m *Machine) Give() State {
	s := m.State
	m.State = State{}
	return s
}

// Begin is Reset in the memory of a State that nobody has any more.
func (m *Machine) Begin(memory State) {
	m.State = memory
	m.Reset()
}

// Idle reports that the state is that of a key without events: there is nothing to be stored.
func (m *Machine) Idle() bool { return len(m.partial) == 1 && len(m.complete) == 0 }

// Changed reports that the state is another than the one that was loaded, stored or reset.
func (m *Machine) Changed() bool { return m.changed }

// Partials is the number of partial matches.
func (m *Machine) Partials() int { return len(m.partial) - 1 + len(m.complete) }

// Deadline is when the next partial match has no time left; false if none ends by time.
func (m *Machine) Deadline() (at int64, ok bool) {
	if m.p.window == 0 && !m.p.stepwise || len(m.partial) == 1 {
		return 0, false
	}
	if !m.p.stepwise { // the earliest start is on top
		if top := m.partial[0]; top.node >= 0 {
			return m.deadline(top), true
		}
		return 0, false
	}
	at = math.MaxInt64
	for _, t := range m.partial {
		if t.node >= 0 {
			at = min(at, m.deadline(t))
		}
	}
	// A match may come to a stage when its time is over already. It has until the running millisecond ends.
	if at <= m.now {
		at = later(m.now, 1)
	}
	return at, at < math.MaxInt64
}

func (m *Machine) deadline(t thread) int64 {
	at := int64(math.MaxInt64)
	n := &m.nodes[t.node]
	if w := m.p.window; w > 0 {
		at = later(m.events[n.root].Time, w)
	}
	if w := m.p.states[t.state].window; w > 0 {
		at = min(at, later(m.events[n.event].Time, w))
	}
	return at
}

// later is t + d, at most the greatest time.
func later(t, d int64) int64 {
	if t > math.MaxInt64-d {
		return math.MaxInt64
	}
	return t + d
}

// Process takes the next event. What had no time left before is ended first, as by Advance.
func (m *Machine) Process(event Event, conds Conditions, out Output) error {
	if err := m.Advance(event.Time, out); err != nil {
		return err
	}
	if m.p.stepwise && event.Time > m.now {
		m.now = event.Time
	}
	m.stamp++
	m.ofEvent = m.stamp
	m.event, m.conds, m.index = event, conds, none
	m.next, m.found = m.next[:0], m.found[:0]
	for _, t := range m.partial {
		m.step(t)
	}
	m.partial, m.next = m.next, m.partial
	if err := m.emit(event.Time, out); err != nil {
		return err
	}
	if m.index == none {
		m.released = append(m.released, event)
	} else {
		m.unhold(m.index)
	}
	m.index, m.conds = none, nil
	if err := m.release(out); err != nil {
		return err
	}
	p := m.p
	if p.partials > 0 && m.Partials() > p.partials || p.events > 0 && m.live > p.events {
		return &LimitError{m.Partials(), m.live, p.partials, p.events}
	}
	return nil
}

// Advance lets the time pass up to and including upTo: partial matches without time left end, one millisecond after
// the other.
func (m *Machine) Advance(upTo int64, out Output) error {
	for {
		at, ok := m.Deadline()
		if !ok || at > upTo {
			return nil
		}
		m.changed = true
		if m.p.stepwise {
			m.now = at
		}
		m.next, m.found = m.next[:0], m.found[:0]
		for _, t := range m.partial {
			switch {
			case t.node < 0 || m.deadline(t) > at:
				m.next.push(m, t)
			case m.p.states[t.state].role == pending:
				m.found.push(m, t)
			default:
				if err := out.TimedOut(m.told.point(t.node), m.deadline(t)); err != nil {
					return err
				}
				m.unref(t.node)
			}
		}
		m.partial, m.next = m.next, m.partial
		if err := m.emit(at, out); err != nil {
			return err
		}
		if err := m.release(out); err != nil {
			return err
		}
	}
}

// step moves one thread by the event, to m.next and m.found.
func (m *Machine) step(t thread) {
	p := m.p
	m.stamp++
	m.ofThread = m.stamp
	m.ask.point(t.node)
	begins := t.node < 0
	m.stack = append(m.stack[:0], t.state)
	m.edges = m.edges[:0]
	discard := false
	for len(m.stack) > 0 {
		s := &p.states[m.stack[len(m.stack)-1]]
		m.stack = m.stack[:len(m.stack)-1]
		for i := range s.edges {
			e := &s.edges[i]
			if !m.holds(e.cond) {
				continue
			}
			switch {
			case e.action == proceed:
				m.stack = append(m.stack, e.to)
			case p.states[e.to].role == stopped:
				discard = true
			case e.action == take || !begins:
				m.edges = append(m.edges, e)
			}
		}
	}
	if len(m.edges) == 1 && !discard && !begins && m.edges[0].action == ignore && m.edges[0].to == t.state {
		m.next.push(m, t) // stays as it is
		return
	}
	m.keep = m.keep[:0]
	add := func(state, node int32) {
		m.nodes[node].refs++
		if p.states[state].role == final {
			m.found.push(m, thread{state, node})
			return
		}
		m.keep = append(m.keep, thread{state, node})
	}
	for _, e := range m.edges {
		m.changed = true
		if e.action == ignore {
			add(e.to, t.node)
			continue
		}
		n := m.take(e.stage, t.node)
		add(e.to, n)
		if end, ok := m.passes(e.to); ok {
			add(end, n)
		}
	}
	if begins {
		m.keep = append(m.keep, t)
	} else {
		m.changed = true
	}
	for _, k := range m.keep {
		if discard && k.node >= 0 {
			m.unref(k.node)
			continue
		}
		m.next.push(m, k)
	}
	if !begins {
		m.unref(t.node)
	}
}

// passes looks for the end of the pattern behind a state without another event.
func (m *Machine) passes(from int32) (end int32, ok bool) {
	m.stack = append(m.stack[:0], from)
	for len(m.stack) > 0 {
		s := &m.p.states[m.stack[len(m.stack)-1]]
		m.stack = m.stack[:len(m.stack)-1]
		for i := range s.edges {
			e := &s.edges[i]
			if e.action != proceed || !m.holds(e.cond) {
				continue
			}
			if m.p.states[e.to].role == final {
				return e.to, true
			}
			m.stack = append(m.stack, e.to)
		}
	}
	return 0, false
}

func (m *Machine) holds(e int32) bool {
	x := &m.p.exprs[e]
	switch x.op {
	case opTrue:
		return true
	case opAtom:
		return m.atom(x.a)
	case opNot:
		return !m.holds(x.a)
	case opAnd:
		return m.holds(x.a) && m.holds(x.b)
	}
	return false
}

// atom asks for a condition, once per event, or once per event and thread.
func (m *Machine) atom(cond int32) bool {
	since := m.ofEvent
	if m.p.kinds[cond] == OfMatch {
		since = m.ofThread
	}
	if a := m.memo[cond]; a>>1 >= since {
		return a&1 != 0
	}
	a := m.stamp << 1
	if m.conds.Holds(int(cond), m.event, &m.ask) {
		a |= 1
	}
	m.memo[cond] = a
	return a&1 != 0
}

// take makes the node of the event behind prev.
func (m *Machine) take(stage, prev int32) int32 {
	if m.index == none {
		m.index = int32(len(m.events))
		m.events = append(m.events, heldEvent{m.event, 1}) // held until the event is processed
	}
	m.events[m.index].refs++
	root := m.index
	if prev >= 0 {
		root = m.nodes[prev].root
		m.nodes[prev].refs++
	}
	m.nodes = append(m.nodes, node{event: m.index, stage: stage, prev: prev, root: root})
	m.live++
	return int32(len(m.nodes) - 1)
}

// unref takes one reference to a node away, and what nothing points to any more.
func (m *Machine) unref(i int32) {
	for i >= 0 {
		n := &m.nodes[i]
		if n.refs--; n.refs > 0 {
			return
		}
		m.gaps++
		m.live--
		m.unhold(n.event)
		i = n.prev
	}
}

func (m *Machine) unhold(event int32) {
	e := &m.events[event]
	if e.refs--; e.refs == 0 {
		m.gaps++
		m.released = append(m.released, e.Event)
	}
}

func (m *Machine) release(out Output) error {
	for _, e := range m.released {
		if err := out.Release(e); err != nil {
			return err
		}
	}
	m.released = m.released[:0]
	if m.gaps > 1024 && m.gaps > len(m.nodes)/2 {
		m.compact()
	}
	return nil
}

// emit hands out completed matches as the skip strategy allows: with one, a match waits until no partial match that
// began earlier is left.
func (m *Machine) emit(at int64, out Output) error {
	if len(m.found) > 0 {
		m.changed = true
	}
	for _, t := range m.found {
		m.complete.push(m, t)
	}
	for len(m.complete) > 0 {
		t := m.complete[0]
		if m.p.skip != NoSkip && len(m.partial) > 0 && m.rank(t) > m.rank(m.partial[0]) {
			return nil
		}
		m.changed = true
		m.complete.pop(m)
		match := m.told.point(t.node)
		if m.p.skip != NoSkip {
			upTo, err := m.pruneUpTo(t)
			if err != nil {
				return err
			}
			m.partial.prune(m, upTo)
			m.complete.prune(m, upTo)
		}
		if err := out.Match(match, at); err != nil {
			return err
		}
		m.unref(t.node)
	}
	return nil
}

// pruneUpTo gives the last event with which matches that a match rules out began, none for no such.
func (m *Machine) pruneUpTo(t thread) (int32, error) {
	root := m.nodes[t.node].root
	switch m.p.skip {
	case SkipToNext:
		return root, nil
	case SkipPastLast:
		return m.nodes[t.node].event, nil
	}
	to := int32(none)
	for i := t.node; i >= 0; i = m.nodes[i].prev {
		if n := &m.nodes[i]; n.stage == m.p.skipTo {
			to = n.event
			if m.p.skip == SkipToLast {
				break
			}
		}
	}
	if m.p.mustSkip {
		name := m.p.names[m.p.skipTo]
		switch to {
		case none:
			return none, fmt.Errorf("skip to %s after the match: it took no event of that name; skip past the last or to the next event", name)
		case root:
			return none, fmt.Errorf("skip to %s after the match: the match begins with that event and would be found again for ever; skip past the last or to the next event", name)
		}
	}
	if to == none {
		return none, nil
	}
	return to - 1, nil // those that began with it stay
}

// rank orders threads by their first event; the one without comes last.
func (m *Machine) rank(t thread) int32 {
	if t.node < 0 {
		return math.MaxInt32
	}
	return m.nodes[t.node].root
}

// compact closes the gaps.
func (m *Machine) compact() {
	if m.gaps == 0 {
		return
	}
	m.move = slices.Grow(m.move[:0], len(m.events)+len(m.nodes))[:len(m.events)+len(m.nodes)]
	events, nodes := m.move[:len(m.events)], m.move[len(m.events):]
	k := 0
	for i, e := range m.events {
		if e.refs > 0 {
			events[i] = int32(k)
			m.events[k] = e
			k++
		}
	}
	m.events = m.events[:k]
	k = 0
	for i, n := range m.nodes {
		if n.refs > 0 {
			nodes[i] = int32(k)
			n.event, n.root = events[n.event], events[n.root]
			if n.prev >= 0 {
				n.prev = nodes[n.prev]
			}
			m.nodes[k] = n
			k++
		}
	}
	m.nodes = m.nodes[:k]
	for _, h := range []heap{m.partial, m.complete} {
		for i := range h {
			if h[i].node >= 0 {
				h[i].node = nodes[h[i].node]
			}
		}
	}
	m.gaps = 0
}
