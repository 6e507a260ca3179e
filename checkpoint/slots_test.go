package checkpoint

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestSlotsServeTheFirstRestoreFirst: with two slots, the files of three restores and of one that stands behind, all waiting at
// once, go in the order in which the restores began, two at a time.
func TestSlotsServeTheFirstRestoreFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(2)
		var wg sync.WaitGroup
		var mu sync.Mutex
		var order []int
		running, most := 0, 0
		behind := s.rank(true)
		for restore, rank := range []uint64{s.rank(false), s.rank(false), s.rank(false), behind} {
			for range 4 {
				wg.Go(func() {
					<-time.After(time.Duration(10-restore) * time.Millisecond) // the later ones ask earlier
					must(t, s.acquire(t.Context(), rank))
					mu.Lock()
					order = append(order, restore)
					running++
					most = max(most, running)
					mu.Unlock()
					<-time.After(time.Second)
					mu.Lock()
					running--
					mu.Unlock()
					s.release()
				})
			}
		}
		wg.Wait()
		// Two of the restore that stands behind found free slots.
		if want := []int{3, 3, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3}; !slices.Equal(order, want) || most != 2 {
			t.Errorf("order %v, want %v; at most %d at once", order, want, most)
		}
		if s.free != 2 || len(s.waiting) != 0 {
			t.Errorf("%d slots are free, %d wait", s.free, len(s.waiting))
		}
	})
}

// TestSlotsForgetWhoGivesUp: a file whose restore ended waits no longer, and takes no slot with it.
func TestSlotsForgetWhoGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(0)
		must(t, s.acquire(t.Context(), 1))
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("let go")
		done := make(chan error, 2)
		go func() { done <- s.acquire(ctx, 2) }()
		go func() { done <- s.acquire(t.Context(), 3) }()
		synctest.Wait()
		cancel(cause)
		if err := <-done; !errors.Is(err, cause) {
			t.Errorf("who gave up got %v", err)
		}
		s.release()
		must(t, <-done)
		s.release()
		// One that is given a slot in the moment in which it gives up keeps none: which of the two it sees first is open.
		for range 20 {
			must(t, s.acquire(t.Context(), 4))
			ctx, cancel := context.WithCancel(t.Context())
			go func() { done <- s.acquire(ctx, 5) }()
			synctest.Wait()
			s.release()
			cancel()
			if err := <-done; err == nil {
				s.release()
			}
		}
		if s.free != 1 || len(s.waiting) != 0 {
			t.Errorf("%d slots are free, %d wait", s.free, len(s.waiting))
		}
	})
}
