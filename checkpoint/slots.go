package checkpoint

import (
	"context"
	"slices"
	"sync"
)

// Slots bound the files that restores download at once, all of a process together. Files of the restore that began first
// go first: what one subtask waits for is whole early, and it works while others still wait, in place of all being ready
// at the end.
type Slots struct {
	n int

	mu      sync.Mutex
	free    int
	ranks   uint64 // of the restores so far
	waiting []*slotWait
}

// slotWait is a file that waits for a slot. They are kept by rank, and within a rank as they came.
type slotWait struct {
	rank  uint64
	given chan struct{} // closed when the slot is its own
}

// NewSlots makes slots for n files, 1 at least.
func NewSlots(n int) *Slots {
	n = max(n, 1)
	return &Slots{n: n, free: n}
}

// last is a bit of a rank that puts it behind those without.
const last = 1 << 63

// rank is that of a restore that begins now.
func (s *Slots) rank(behind bool) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ranks++
	if behind {
		return s.ranks | last
	}
	return s.ranks
}

// acquire waits for a slot. After nil, release gives it back.
func (s *Slots) acquire(ctx context.Context, rank uint64) error {
	s.mu.Lock()
	if s.free > 0 {
		s.free--
		s.mu.Unlock()
		return nil
	}
	w := &slotWait{rank: rank, given: make(chan struct{})}
	at, _ := slices.BinarySearchFunc(s.waiting, rank, func(o *slotWait, rank uint64) int {
		if o.rank <= rank {
			return -1
		}
		return 1
	})
	s.waiting = slices.Insert(s.waiting, at, w)
	s.mu.Unlock()
	select {
	case <-w.given:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	i := slices.Index(s.waiting, w)
	if i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	}
	s.mu.Unlock()
	if i < 0 {
		s.release() // it was given meanwhile
	}
	return context.Cause(ctx)
}

func (s *Slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		s.free++
		return
	}
	close(s.waiting[0].given)
	s.waiting = slices.Delete(s.waiting, 0, 1)
}
