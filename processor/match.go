package processor

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"reflect"
	"strings"
	"time"

	"github.com/millrace-stream/millrace/internal/nfa"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
)

// MatchProgram is a pattern as package processor/cep hands it to DetectMatches. Programs use cep.Detect, which says
// all there is to say about patterns.
type MatchProgram[T any] struct {
	Program *nfa.Program
	Err     error // what is wrong with the pattern
	// Holds answers for condition cond. m is valid for the call.
	Holds    func(cond int, v T, m Match[T]) bool
	Text     string // for Topology.Describe
	TimedOut *OutputTag[Match[T]]
	Late     *OutputTag[T]
}

// Match is what a pattern matched: for each stage the values that it took. In a condition it is what the partial match
// has taken so far, and valid for the call. See package processor/cep.
type Match[T any] struct{ m *match[T] }

type match[T any] struct {
	names []string
	taken []nfa.Taken
	vals  []T // of taken
	// In a condition both are fetched when they are asked for.
	partial *nfa.Partial
	value   func(nfa.Event) T
}

func (m Match[T]) each() iter.Seq2[nfa.Taken, func() T] {
	return func(yield func(nfa.Taken, func() T) bool) {
		if m.m == nil {
			return
		}
		taken := m.m.taken
		if m.m.partial != nil {
			taken = m.m.partial.Taken()
		}
		for i, t := range taken {
			if !yield(t, func() T { return m.m.at(i, t) }) {
				return
			}
		}
	}
}

func (m *match[T]) at(i int, t nfa.Taken) T {
	if m.partial != nil {
		return m.value(t.Event)
	}
	return m.vals[i]
}

// One is the first value that a stage took, zero if it took none. It is the value of a stage that takes only one.
func (m Match[T]) One(stage string) (v T) {
	for t, get := range m.each() {
		if m.m.names[t.Stage] == stage {
			return get()
		}
	}
	return v
}

// Last is the last value that a stage took, zero if it took none.
func (m Match[T]) Last(stage string) (v T) {
	for t, get := range m.each() {
		if m.m.names[t.Stage] == stage {
			v = get()
		}
	}
	return v
}

// All are the values that a stage took, in their order.
func (m Match[T]) All(stage string) (vs []T) {
	for t, get := range m.each() {
		if m.m.names[t.Stage] == stage {
			vs = append(vs, get())
		}
	}
	return vs
}

// Has reports whether a stage took a value.
func (m Match[T]) Has(stage string) bool {
	for t := range m.each() {
		if m.m.names[t.Stage] == stage {
			return true
		}
	}
	return false
}

// Start is the event time of the first value, the zero time if there is none.
func (m Match[T]) Start() (at time.Time) {
	for t := range m.each() {
		return instant(t.Event.Time)
	}
	return at
}

// End is the event time of the last value, the zero time if there is none.
func (m Match[T]) End() (at time.Time) {
	for t := range m.each() {
		at = instant(t.Event.Time)
	}
	return at
}

// String shows the values by stage, for logs and messages of tests.
func (m Match[T]) String() string {
	var b strings.Builder
	b.WriteByte('{')
	if m.m != nil {
		for i, name := range m.m.names {
			if !m.Has(name) {
				continue
			}
			if b.Len() > 1 {
				b.WriteByte(' ')
			}
			fmt.Fprintf(&b, "%s: %v", m.m.names[i], m.All(name))
		}
	}
	b.WriteByte('}')
	return b.String()
}

// Names of the stores of an operator that detects matches.
const (
	matchEvents = "events"
	matchStates = "matches"
	matchTimers = "timers.event"
)

// heldKey is the key of an event that waits for its time or is part of a match.
type heldKey[K comparable] struct {
	Key  K
	Time int64
	Seq  uint32
}

// DetectMatches is cep.Detect for a compiled pattern.
func DetectMatches[K comparable, T, R any](from KeyedStream[K, T], id string, p MatchProgram[T], result func(k K, m Match[T]) R, o ...Option) KeyedStream[K, R] {
	s := from.must()
	n := s.n.t.add("detect", spaceOperator, id, s.n).with(o)
	n.timed, n.emitsToSides = true, true
	out := newKeyed[K, R](n, s.keys)
	n.need(result != nil, "result function")
	if p.Err != nil {
		n.fail("%w", p.Err)
		return out
	}
	n.detail = p.Text
	for _, tag := range []string{tagOf(p.TimedOut), tagOf(p.Late)} {
		if tag != "" && !idPattern.MatchString(tag) {
			n.fail("tag %q: id must be 1 to 40 of a-z, 0-9 and -; make the tag with NewOutputTag", tag)
		}
	}
	heldCodec, err := statestore.KeyCodecOf[heldKey[K]]()
	if err != nil {
		n.fail("values that wait for a match: %w", err)
		return out
	}
	values, migrations := stateCodec[T](n, "values that wait for a match")
	if values == nil {
		return out
	}
	// The key of a held event begins with that of the stream, so that both lie in one key group.
	n.groupOf = func(key []byte) (statestore.Group, error) {
		if h, rest, err := heldCodec.Decode(key); err == nil && len(rest) == 0 {
			key = s.keys.codec.Append(nil, h.Key)
		}
		return s.keys.group(key)
	}
	n.store(matchEvents, statestore.KindTable, heldCodec.Schema(), schemaOf(values)).Migrations = migrations
	n.store(matchStates, statestore.KindTable, s.keys.schema(), (*matchCodec)(nil).Schema()).Aggregate = "pattern " + p.Program.Layout()
	n.store(matchTimers, statestore.KindTimers, s.keys.schema(), "")
	s.attach(func(b *builder) keyedStep[K, T] {
		op := &matchOp[K, T, R]{x: b.x, op: b.op(n), node: b.node(n), prog: p, machine: p.Program.NewMachine(), keys: s.keys, result: result}
		state := b.state()
		var errs [3]error
		op.events, errs[0] = statestore.NewTable(state, n.specOf(matchEvents), heldCodec, values)
		op.states, errs[1] = statestore.NewTable[K, nfa.State](state, n.specOf(matchStates), s.keys.codec, &matchCodec{m: p.Program.NewMachine()})
		op.timers, errs[2] = statestore.NewTimers(state, n.specOf(matchTimers), rememberKeys(s.keys.codec))
		if err := errors.Join(errs[:]...); err != nil {
			b.fail(n, err)
			return nil
		}
		op.next = out.s.step(b)
		sides := b.sides(n)
		op.timedOut, _ = sides[tagOf(p.TimedOut)].(step[Match[T]])
		op.late, _ = sides[tagOf(p.Late)].(step[T])
		op.start()
		return op.step
	})
	return out
}

func tagOf[T any](tag *OutputTag[T]) string {
	if tag == nil {
		return ""
	}
	return tag.id
}

// matchCodec is the codec of the states of matches, which are written as a []byte is written. They stay as the automaton
// works on them as long as they are in memory.
type matchCodec struct {
	m   *nfa.Machine
	buf []byte
}

func (c *matchCodec) Append(dst []byte, v *nfa.State) []byte {
	c.m.Take(*v)
	c.buf = c.m.Store(c.buf[:0])
	*v = c.m.Give() // the same, without gaps
	return append(binary.AppendUvarint(dst, uint64(len(c.buf))+1), c.buf...)
}

func (c *matchCodec) Decode(src []byte, v *nfa.State) error {
	n, size := binary.Uvarint(src)
	if size <= 0 || n != uint64(len(src)-size)+1 {
		return errors.New("decode matches: the length is not that of what follows")
	}
	if err := c.m.Load(src[size:]); err != nil {
		return err
	}
	*v = c.m.Give()
	return nil
}

func (*matchCodec) Flat() bool     { return false }
func (*matchCodec) Schema() string { return "bytes" }

// Copy, Size and Own are of statestore.Copier.
func (*matchCodec) Copy(dst, src *nfa.State) { dst.Copy(src) }
func (*matchCodec) Size(v *nfa.State) int    { return v.Size() }
func (*matchCodec) Own(*nfa.State) bool      { return true }

// rememberedKeys is a KeyCodec for timers that remembers the keys it has read lately. Every event is a timer, and a key
// with a string would be an allocation for each.
type rememberedKeys[K comparable] struct {
	statestore.KeyCodec[K]
	seed  maphash.Seed
	slots []rememberedKey[K]
}

type rememberedKey[K comparable] struct {
	key []byte // encoded; nil: the slot is empty
	k   K
}

func rememberKeys[K comparable](c statestore.KeyCodec[K]) statestore.KeyCodec[K] {
	switch reflect.TypeFor[K]().Kind() {
	case reflect.String, reflect.Struct, reflect.Array:
		return &rememberedKeys[K]{c, maphash.MakeSeed(), make([]rememberedKey[K], 4096)}
	}
	return c
}

// timerIDSize is what follows the key of a timer.
const timerIDSize = 4

func (r *rememberedKeys[K]) Decode(src []byte) (k K, rest []byte, err error) {
	n := len(src) - timerIDSize
	if n <= 0 {
		return r.KeyCodec.Decode(src)
	}
	slot := &r.slots[maphash.Bytes(r.seed, src[:n])%uint64(len(r.slots))]
	if bytes.Equal(slot.key, src[:n]) {
		return slot.k, src[n:], nil
	}
	if k, rest, err = r.KeyCodec.Decode(src); err == nil && len(rest) == timerIDSize {
		slot.key, slot.k = append(slot.key[:0], src[:n]...), k
	}
	return k, rest, err
}

// matchOp detects matches in one subtask. Each value waits in events until the watermark reaches its time: a timer
// with its number, by which the timers of a key come in the order of time and arrival. Then it goes through the
// automaton, and stays in events as long as a partial match has it.
type matchOp[K comparable, T, R any] struct {
	x       *task.Exec
	op      int32
	node    *task.Node
	prog    MatchProgram[T]
	machine *nfa.Machine
	events  *statestore.Table[heldKey[K], T]
	states  *statestore.Table[K, nfa.State]
	timers  *statestore.Timers[K]
	keys    *keyType[K]
	result  func(K, Match[T]) R
	next    keyedStep[K, R]

	timedOut step[Match[T]]
	late     step[T]

	// Of the running step.
	key     K
	value   T
	upTo    int64
	partial match[T]
	discard bool // give up what comes of the step
	event   nfa.Event
	held    statestore.Ref[T] // of event, if there is one
	memory  nfa.State         // nobody's

	fireOne, dropOne func() error
	nameKey          func(dst []byte) []byte
}

// deadline is the timer id of the time at which a partial match ends. It comes before those of the events of the same
// time, which are their numbers + 1.
const deadline = 0

func (o *matchOp[K, T, R]) start() {
	o.partial = match[T]{names: o.prog.Program.Stages(), value: func(e nfa.Event) (v T) {
		if p := o.events.Get(o.x.Group, heldKey[K]{o.key, e.Time, e.Seq}); p != nil {
			return *p
		}
		panic(&statestore.Fault{Err: fmt.Errorf("a match has taken an event of time %d that is not in the state", e.Time)})
	}}
	o.fireOne = func() error { return o.fire1(false) }
	o.dropOne = func() error { return o.fire1(true) }
	o.nameKey = func(dst []byte) []byte { return o.keys.appendText(dst, o.key) }
	o.node.Fire = o.fire
	if at, ok := o.timers.Next(); ok {
		o.node.Due(at)
	}
}

// step takes a value in.
func (o *matchOp[K, T, R]) step(x *task.Exec, k K, v T) error {
	x.Op = o.op
	if x.Time <= o.node.Watermark {
		x.CountLate()
		if o.late != nil {
			return o.late(x, v)
		}
		return nil
	}
	h := heldKey[K]{k, x.Time, 0}
	p, existed := o.events.Update(x.Group, h)
	if existed {
		h.Seq = o.free(x.Group, h)
		p, _ = o.events.Update(x.Group, h)
	}
	*p = v
	o.timers.Set(h.Time, x.Group, k, h.Seq+1)
	o.node.Due(h.Time)
	return nil
}

// free finds the number for a further event of the same time: those there are without a gap, from 0 on.
func (o *matchOp[K, T, R]) free(g statestore.Group, h heldKey[K]) uint32 {
	taken := func(seq uint32) bool {
		h.Seq = seq
		return o.events.Get(g, h) != nil
	}
	lo, hi := uint32(0), uint32(1)
	for taken(hi) {
		lo, hi = hi, 2*hi
	}
	for lo+1 < hi {
		if mid := lo + (hi-lo)/2; taken(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}

// fire lets the time of the watermark come: for each event and each end of a partial match a step of its own.
func (o *matchOp[K, T, R]) fire(_ *task.Exec, _, watermark int64) error {
	o.upTo = watermark
	for {
		at, ok := o.timers.Next()
		if !ok {
			return nil
		}
		if at > watermark {
			o.node.Due(at)
			return nil
		}
		skipped, err := o.x.Atomic(o.op, 0, at, o.fireOne, o.nameKey)
		if err != nil {
			return err
		}
		if skipped {
			if _, err := o.x.Atomic(o.op, 0, at, o.dropOne, o.nameKey); err != nil {
				return err
			}
		}
	}
}

// fire1 is one step of fire. To drop it is to go on as if its event had not come, or without what ended.
func (o *matchOp[K, T, R]) fire1(drop bool) error {
	at, g, k, id, ok := o.timers.Pop(o.upTo)
	if !ok {
		return nil
	}
	o.x.Group, o.x.Time, o.key, o.discard = g, at, k, drop
	o.held = statestore.Ref[T]{}
	m := o.machine
	event := nfa.Event{Time: at, Seq: id - 1}
	if id != deadline && drop {
		o.events.Delete(g, heldKey[K]{k, at, event.Seq})
		return nil
	}
	kept, has := o.load()
	before, had := m.Deadline()
	var err error
	if id == deadline {
		err = m.Advance(at, o)
	} else {
		if o.held, ok = o.events.Ref(g, heldKey[K]{k, at, event.Seq}); !ok {
			panic(&statestore.Fault{Err: fmt.Errorf("the event of a timer for %d is not in the state", at)})
		}
		o.event, o.value = event, *o.held.Get()
		err = m.Process(event, o, o)
	}
	o.held = statestore.Ref[T]{}
	if err != nil {
		m.Give() // what it worked on is undone
		return o.x.Fail(o.op, task.UserCode, err)
	}
	after, due := m.Deadline()
	o.save(kept, has)
	if had && (!due || before != after) && before != at {
		o.timers.Delete(before, g, k, deadline)
	}
	if due && (!had || before != after) {
		o.timers.Set(after, g, k, deadline)
	}
	return nil
}

// load makes the machine work on the state of the current key, if there is one.
func (o *matchOp[K, T, R]) load() (kept statestore.Ref[nfa.State], ok bool) {
	if kept, ok = o.states.Ref(o.x.Group, o.key); ok {
		kept.Save()
		o.machine.Take(*kept.Get())
		return kept, true
	}
	o.machine.Begin(o.memory)
	o.memory = nfa.State{}
	return kept, false
}

// save puts the state of the machine where it was, or where it belongs from now on.
func (o *matchOp[K, T, R]) save(kept statestore.Ref[nfa.State], had bool) {
	m := o.machine
	idle, changed := m.Idle(), m.Changed()
	switch {
	case !had && idle:
		o.reuse(m.Give())
	case !had:
		o.states.Set(o.x.Group, o.key, m.Give())
	case idle:
		o.reuse(m.Give())
		kept.Delete()
	case changed:
		*kept.Update() = m.Give()
	default:
		*kept.Get() = m.Give() // equal, in memory that may be other
	}
}

// maxMemory is the size up to which the memory of a state without key is kept.
const maxMemory = 4 << 10

func (o *matchOp[K, T, R]) reuse(s nfa.State) {
	if s.Size() <= maxMemory {
		o.memory = s
	}
}

// Holds implements nfa.Conditions.
func (o *matchOp[K, T, R]) Holds(cond int, _ nfa.Event, m *nfa.Partial) bool {
	o.partial.partial = m
	return o.prog.Holds(cond, o.value, Match[T]{&o.partial})
}

// found copies a match: those who get it may keep it.
func (o *matchOp[K, T, R]) found(m *nfa.Partial) Match[T] {
	taken := m.Taken()
	f := &match[T]{names: o.partial.names, taken: append(make([]nfa.Taken, 0, len(taken)), taken...), vals: make([]T, len(taken))}
	for i, t := range taken {
		f.vals[i] = o.partial.value(t.Event)
	}
	return Match[T]{f}
}

// Match implements nfa.Output.
func (o *matchOp[K, T, R]) Match(m *nfa.Partial, _ int64) error {
	if o.discard {
		return nil
	}
	err := o.next(o.x, o.key, o.result(o.key, o.found(m)))
	o.x.Op = o.op
	return err
}

// TimedOut implements nfa.Output.
func (o *matchOp[K, T, R]) TimedOut(m *nfa.Partial, _ int64) error {
	if o.discard || o.timedOut == nil {
		return nil
	}
	err := o.timedOut(o.x, o.found(m))
	o.x.Op = o.op
	return err
}

// Release implements nfa.Output.
func (o *matchOp[K, T, R]) Release(e nfa.Event) error {
	if e == o.event && o.held.Valid() {
		o.held.Delete()
		o.held = statestore.Ref[T]{}
		return nil
	}
	o.events.Delete(o.x.Group, heldKey[K]{o.key, e.Time, e.Seq})
	return nil
}
