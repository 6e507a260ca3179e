package task

import "strconv"

// An Assigner is the watermark of an operator that gives records new event times in the middle of a chain. It keeps one
// mark for each partition that is read before it, as a source does; or a single one, where results of timers and windows
// come by, which belong to no partition. What a record does to it counts once the record has gone through the chain.
type Assigner struct {
	AssignerLayout
	t       *Task
	node    *Node
	slots   []assignerSlot
	pending []assigned
}

// AssignerLayout is the shape of an Assigner.
type AssignerLayout struct {
	ID     string // of the operator: what its marks are kept under
	Inputs []int  // whose partitions it keeps apart; empty: there is one slot for all
	Bound  int64  // ms of bounded out-of-orderness
	Idle   int64  // ms without a record after which a slot holds nothing back; 0: it is idle when its partition is
	// OnEvent and OnPeriod ask the slot's own watermark generator; nil: Bound says it all. math.MinInt64 = nothing new.
	OnEvent  func(slot int, at int64) int64
	OnPeriod func(slot int) int64
}

type assignerSlot struct {
	part      *part // nil: the single slot
	watermark int64
	lastSeen  int64 // processing time
	idle      bool
}

type assigned struct {
	slot      int
	watermark int64
}

// Assign makes the Assigner of a node: its watermark no longer follows from its inputs.
func (t *Task) Assign(n *Node, l AssignerLayout) *Assigner {
	a := &Assigner{AssignerLayout: l, t: t, node: n}
	if len(l.Inputs) == 0 {
		a.slots = []assignerSlot{{watermark: n.Watermark, lastSeen: t.now}}
	}
	for _, i := range l.Inputs {
		for _, p := range t.inputs[i].parts {
			s := assignerSlot{part: p, watermark: unset, lastSeen: t.now}
			if w, ok := t.restoredWatermark(a.markID(p)); ok {
				s.watermark = w
			}
			a.slots = append(a.slots, s)
		}
	}
	n.own = a
	t.assigners = append(t.assigners, a)
	return a
}

// Slots is the number of slots.
func (a *Assigner) Slots() int { return len(a.slots) }

// markID is where Progress keeps the mark of a partition. Operator ids hold no slash.
func (a *Assigner) markID(p *part) string {
	return a.ID + "/" + p.in.env.Topic + "/" + strconv.Itoa(int(p.number))
}

// Slot is the slot of the record that runs. A record of a timer in a subtask whose slots are partitions cannot be.
func (a *Assigner) Slot(x *Exec) int {
	if len(a.slots) == 1 {
		return 0
	}
	for i := range a.slots {
		if a.slots[i].part == x.part {
			return i
		}
	}
	return 0
}

// Assigned says that a record of a slot with this event time has gone through the operators behind.
func (a *Assigner) Assigned(slot int, at int64) {
	w := at - a.Bound - 1
	if a.OnEvent != nil {
		w = a.OnEvent(slot, at)
	}
	a.pending = append(a.pending, assigned{slot, w})
}

// apply makes what was Assigned in a step count, when it has succeeded.
func (a *Assigner) apply() {
	if len(a.pending) == 0 {
		return
	}
	for _, p := range a.pending {
		s := &a.slots[p.slot]
		s.watermark = max(s.watermark, p.watermark)
		s.lastSeen, s.idle = a.t.now, false
	}
	a.pending = a.pending[:0]
	if a.move() {
		a.t.moved = true
	}
}

// move takes the minimum over the active slots.
func (a *Assigner) move() (moved bool) {
	m := newMeet()
	for i := range a.slots {
		s := &a.slots[i]
		w := s.watermark
		if s.part != nil && s.part.watermark == never { // it has ended
			w = never
		}
		m.add(w, s.idle || a.Idle == 0 && s.part != nil && s.part.isIdle)
	}
	moved = m.active == a.node.Idle
	a.node.Idle = !m.active
	if w := m.watermark(); w > a.node.Watermark {
		a.node.Watermark = w
		moved = true
	}
	return moved
}

// pass lets processing time pass.
func (a *Assigner) pass(now int64, period bool) {
	for i := range a.slots {
		s := &a.slots[i]
		if a.OnPeriod != nil && period {
			s.watermark = max(s.watermark, a.OnPeriod(i))
		}
		if a.Idle > 0 && !s.idle && !a.t.stands() && now-s.lastSeen >= a.Idle && (s.part == nil || a.t.heads[s.part.index] == never) {
			s.idle = true
		}
	}
	if a.move() {
		a.t.moved = true
	}
}

// nextPass is when pass has something to do.
func (a *Assigner) nextPass() int64 {
	next := int64(never)
	if a.OnPeriod != nil {
		next = a.t.lastPeriod + periodInterval
	}
	for i := range a.slots {
		if s := &a.slots[i]; a.Idle > 0 && !s.idle && !a.t.stands() {
			next = min(next, max(s.lastSeen+a.Idle, a.t.now+1))
		}
	}
	return next
}

// note puts the marks into a Progress.
func (a *Assigner) note(marks map[string]int64) {
	for i := range a.slots {
		if s := &a.slots[i]; s.part != nil && s.watermark != unset {
			marks[a.markID(s.part)] = s.watermark
		}
	}
}
