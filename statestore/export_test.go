package statestore

// SetNearTimers makes the near heap of the timers made from now on hold n to 2n timers.
func (s *State) SetNearTimers(n int) { s.near = n }

// CacheUsed is what the caches take, as eviction counts it.
func (s *State) CacheUsed() int64 { return s.used }
