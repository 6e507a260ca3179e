package pebblestore

import (
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// compactions is the one limit on compactions of all DBs of a Dir. Pebble's own scheduler is one per DB, with a
// goroutine that wakes ten times a second; with a DB per subtask both would be too much.
//
// Lock order: Pebble calls TrySchedule with its own locks held, so mu comes last and is never held while a DB is
// called.
type compactions struct {
	mu      sync.Mutex
	granted *sync.Cond // a call into a DB ended
	limit   int
	running int
	waiting []*compactionSlot // asked and were refused; the next free slot is offered in this order
}

func newCompactions(limit int) *compactions {
	c := &compactions{limit: limit}
	c.granted = sync.NewCond(&c.mu)
	return c
}

// compactionSlot is one DB's view of compactions; it implements pebble.CompactionScheduler and the handle that Pebble
// returns when a compaction is done.
type compactionSlot struct {
	all  *compactions
	fail *failure // a failed store compacts no more: it would only hold a slot
	db   pebble.DBForCompaction
	// yielded is when the running compaction last let others go first.
	yielded time.Time
	// Guarded by all.mu.
	started      bool // the DB is open
	running      int
	calls        int // running calls into db
	queued       bool
	unregistered bool
}

var (
	_ pebble.CompactionScheduler   = (*compactionSlot)(nil)
	_ pebble.CompactionGrantHandle = (*compactionSlot)(nil)
)

// Register is called once, before anything else.
func (s *compactionSlot) Register(_ int, db pebble.DBForCompaction) { s.db = db }

// Unregister returns when no call into the DB is running, and none will start.
func (s *compactionSlot) Unregister() {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	s.unregistered = true
	s.all.waiting = slices.DeleteFunc(s.all.waiting, func(w *compactionSlot) bool { return w == s })
	for s.calls > 0 {
		s.all.granted.Wait()
	}
}

// TrySchedule asks for a slot at once. After a refusal the DB counts on being called when there is one.
func (s *compactionSlot) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	if s.unregistered || s.fail.get() != nil {
		return false, nil
	}
	if s.started && s.all.running < s.all.limit && s.running < s.db.GetAllowedWithoutPermission() {
		s.all.running++
		s.running++
		return true, s
	}
	s.queue()
	return false, nil
}

// queue notes that the DB waits; one that closed while it was asked does not. all.mu is held.
func (s *compactionSlot) queue() {
	if !s.queued && !s.unregistered {
		s.queued = true
		s.all.waiting = append(s.all.waiting, s)
	}
}

// UpdateGetAllowedWithoutPermission: the number a DB is allowed is constant here.
func (s *compactionSlot) UpdateGetAllowedWithoutPermission() {}

// Started begins the use of the handle, by the goroutine of one compaction; a DB runs one at a time.
func (s *compactionSlot) Started() { s.yielded = time.Now() }

// MeasureCPU is not needed.
func (s *compactionSlot) MeasureCPU(pebble.CompactionGoroutineKind) {}

// compactionSlice is how long a compaction computes before it lets others go first. Go's scheduler would let it go on
// for 10 ms, and where cores are few the loop of a subtask, which waits for each read from the disk, would stand
// behind it as long each time.
const compactionSlice = time.Millisecond

// CumulativeStats is called by a compaction every 128 keys.
func (s *compactionSlot) CumulativeStats(pebble.CompactionGrantHandleStats) {
	if now := time.Now(); now.Sub(s.yielded) >= compactionSlice {
		runtime.Gosched()
		s.yielded = time.Now()
	}
}

// start lets compactions run. Pebble asks for them while it opens a DB, but if it then fails to open, it closes the DB
// under the running compaction, which panics.
func (s *compactionSlot) start() {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	s.started = true
	s.all.grant()
}

// Done gives the slot back. It is called without locks.
func (s *compactionSlot) Done() {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	s.all.running--
	s.running--
	s.all.grant()
}

// grant offers free slots to the DBs that wait. mu is held, but not while a DB is asked.
func (c *compactions) grant() {
	for c.running < c.limit {
		next := c.next()
		if next == nil {
			return
		}
		// The slot is taken before the DB is asked, so that it is never offered twice.
		c.running++
		next.running++
		next.calls++
		c.mu.Unlock()
		waiting, _ := next.db.GetWaitingCompaction()
		accepted := waiting && next.db.Schedule(next)
		c.mu.Lock()
		next.calls--
		c.granted.Broadcast()
		if accepted {
			// It may have more to do, and does not ask again before GetWaitingCompaction said no.
			next.queue()
		} else {
			c.running--
			next.running--
		}
	}
}

// next takes the first DB out of the queue that may run a compaction. mu is held.
func (c *compactions) next() *compactionSlot {
	for i, s := range c.waiting {
		if s.started && !s.unregistered && s.fail.get() == nil && s.running < s.db.GetAllowedWithoutPermission() {
			c.waiting = slices.Delete(c.waiting, i, i+1)
			s.queued = false
			return s
		}
	}
	return nil
}
