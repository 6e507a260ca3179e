package statestore

// SetNearTimers makes the near heap of the timers made from now on hold n to 2n timers.
func (s *State) SetNearTimers(n int) { s.near = n }

// CacheUsed is what the caches take, as eviction counts it.
func (s *State) CacheUsed() int64 { return s.used }

// KeyBytes is the room that long keys take, with that of removed ones.
func (t *Table[K, V]) KeyBytes() (n int) {
	for _, c := range t.c.keys.chunks {
		n += cap(c)
	}
	return n
}
