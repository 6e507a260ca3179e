package nfa

// heap is a binary heap of threads by the event they began with. Matches of one beginning are in no order of their own,
// so the order in which they are found follows from how the heap moves its elements. That is part of what this package
// promises (with a skip strategy it decides which of them is kept): the moves are those of the usual binary heap, as
// in Java's PriorityQueue.
type heap []thread

func (h *heap) push(m *Machine, t thread) {
	*h = append(*h, t)
	s := *h
	i, r := len(s)-1, m.rank(t)
	for i > 0 {
		up := (i - 1) / 2
		if r >= m.rank(s[up]) {
			break
		}
		s[i] = s[up]
		i = up
	}
	s[i] = t
}

func (h *heap) pop(m *Machine) {
	s := *h
	last := len(s) - 1
	t := s[last]
	*h = s[:last]
	if last > 0 {
		h.sink(m, 0, t)
	}
}

// sink puts t at i or below.
func (h *heap) sink(m *Machine, i int, t thread) {
	s := *h
	r := m.rank(t)
	for i < len(s)/2 {
		c := 2*i + 1
		if c+1 < len(s) && m.rank(s[c]) > m.rank(s[c+1]) {
			c++
		}
		if r <= m.rank(s[c]) {
			break
		}
		s[i] = s[c]
		i = c
	}
	s[i] = t
}

// prune drops the threads that began with an event up to upTo.
func (h *heap) prune(m *Machine, upTo int32) {
	s := *h
	k := 0
	for _, t := range s {
		if t.node >= 0 && m.rank(t) <= upTo {
			m.unref(t.node)
			continue
		}
		s[k] = t
		k++
	}
	if k == len(s) {
		return
	}
	*h = s[:k]
	for i := k/2 - 1; i >= 0; i-- {
		h.sink(m, i, s[i])
	}
}

// ordered reports that h is a heap.
func (h *heap) ordered(m *Machine) bool {
	s := *h
	for i := 1; i < len(s); i++ {
		if m.rank(s[i]) < m.rank(s[(i-1)/2]) {
			return false
		}
	}
	return true
}
