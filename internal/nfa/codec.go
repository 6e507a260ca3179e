package nfa

import (
	"encoding/binary"
	"errors"
	"math"
)

// stateVersion is the first byte of every stored state.
const stateVersion = 1

// Store appends the state, packed. It is empty if Idle.
//
//	version 1 byte
//	ms that has begun, if a stage has a time of its own
//	events   count; of each: ms and place: the first as they are, then ms since the one before, and place
//	nodes    count; of each: event since that of the one before, stage + 1, and how far back its predecessor is, 0 = none
//	partial  count; of each: state, node + 1
//	complete count; of each: state, node + 1
//
// All numbers are varints. Equal states give equal bytes.
func (m *Machine) Store(dst []byte) []byte {
	m.compact()
	m.changed = false
	if m.Idle() {
		return dst
	}
	dst = append(dst, stateVersion)
	if m.p.stepwise {
		dst = binary.AppendVarint(dst, m.now)
	}
	dst = binary.AppendUvarint(dst, uint64(len(m.events)))
	at := int64(0)
	for i, e := range m.events {
		if i == 0 {
			dst = binary.AppendVarint(dst, e.Time)
		} else {
			dst = binary.AppendUvarint(dst, uint64(e.Time)-uint64(at))
		}
		at = e.Time
		dst = binary.AppendUvarint(dst, uint64(e.Seq))
	}
	dst = binary.AppendUvarint(dst, uint64(len(m.nodes)))
	event := int32(0)
	for i, n := range m.nodes {
		dst = binary.AppendUvarint(dst, uint64(n.event-event))
		event = n.event
		dst = binary.AppendUvarint(dst, uint64(n.stage+1))
		back := 0
		if n.prev >= 0 {
			back = i - int(n.prev)
		}
		dst = binary.AppendUvarint(dst, uint64(back))
	}
	for _, h := range []heap{m.partial, m.complete} {
		dst = binary.AppendUvarint(dst, uint64(len(h)))
		for _, t := range h {
			dst = binary.AppendUvarint(dst, uint64(t.state))
			dst = binary.AppendUvarint(dst, uint64(t.node+1))
		}
	}
	return dst
}

var errState = errors.New("load pattern state: the bytes are damaged, or of another pattern")

// Load sets the state to what Store gave. It refuses what no Machine of the program stores; the Machine is Idle then.
func (m *Machine) Load(src []byte) error {
	m.Reset()
	if len(src) == 0 {
		return nil
	}
	if src[0] != stateVersion {
		return errors.New("load pattern state: it is of a newer version; run that version")
	}
	if !m.load(reader{src: src[1:]}) {
		m.Reset()
		return errState
	}
	return nil
}

func (m *Machine) load(r reader) bool {
	if m.p.stepwise {
		m.now = r.signed()
	}
	n := r.count(2)
	for i := range n {
		var e heldEvent
		if i == 0 {
			e.Time = r.signed()
		} else {
			e.Time = int64(uint64(m.events[i-1].Time) + r.number(math.MaxUint64))
		}
		e.Seq = uint32(r.number(math.MaxUint32))
		if i > 0 && e.Compare(m.events[i-1].Event) <= 0 {
			return false
		}
		m.events = append(m.events, e)
	}
	n = r.count(3)
	event := uint64(0)
	for i := range n {
		event += r.number(uint64(len(m.events)))
		stage := r.number(uint64(len(m.p.names)))
		back := r.number(uint64(i))
		if r.bad || event >= uint64(len(m.events)) || stage == 0 {
			return false
		}
		x := node{event: int32(event), stage: int32(stage) - 1, prev: none, root: int32(event)}
		if back > 0 {
			x.prev = int32(i - int(back))
			m.nodes[x.prev].refs++
			x.root = m.nodes[x.prev].root
			if m.nodes[x.prev].event >= x.event {
				return false // a match takes an event once
			}
		}
		m.events[event].refs++
		m.nodes = append(m.nodes, x)
	}
	m.live = len(m.nodes)
	m.partial = m.partial[:0]
	starts := 0
	for i, h := range []*heap{&m.partial, &m.complete} {
		for range r.count(2) {
			t := thread{int32(r.number(uint64(len(m.p.states) - 1))), int32(r.number(uint64(len(m.nodes)))) - 1}
			if r.bad {
				return false
			}
			role := m.p.states[t.state].role
			switch {
			case t.node < 0:
				if t.state != m.p.start || i > 0 {
					return false
				}
				starts++
			case i == 0 && (role == final || role == stopped), i == 1 && role != final && role != pending:
				return false
			default:
				m.nodes[t.node].refs++
			}
			*h = append(*h, t)
		}
		if !h.ordered(m) {
			return false
		}
	}
	if r.bad || len(r.src) > 0 || starts != 1 {
		return false
	}
	for _, n := range m.nodes {
		if n.refs == 0 {
			return false
		}
	}
	for _, e := range m.events {
		if e.refs == 0 {
			return false
		}
	}
	return true
}

// reader reads varints; bad is set by the first that is damaged or too large.
type reader struct {
	src []byte
	bad bool
}

func (r *reader) number(limit uint64) uint64 {
	if len(r.src) > 0 && r.src[0] < 0x80 && uint64(r.src[0]) <= limit {
		v := uint64(r.src[0])
		r.src = r.src[1:]
		return v
	}
	v, n := binary.Uvarint(r.src)
	if n <= 0 || v > limit {
		r.bad, r.src = true, nil
		return 0
	}
	r.src = r.src[n:]
	return v
}

func (r *reader) signed() int64 {
	u := r.number(math.MaxUint64)
	return int64(u>>1) ^ -int64(u&1)
}

// count reads how many elements of at least size bytes follow.
func (r *reader) count(size int) int {
	return int(r.number(uint64(len(r.src) / size)))
}
