package checkpoint

import (
	"cmp"
	"slices"
	"time"
)

// listing is what one subtask has in the store.
type listing struct {
	manifests []listed
	blobs     []string // names
}

// listed is a manifest in a listing.
type listed struct {
	epoch uint64
	blobs []string // that it names
	bad   bool     // it cannot be read: nobody knows what it names
}

// collector decides what to delete (pure). The package comment tells why that is safe. Times are those of one process,
// since some moment.
type collector struct {
	retain int
	grace  time.Duration

	manifests map[uint64]*mark
	blobs     map[string]*mark
}

// mark says that something is expendable.
type mark struct {
	since time.Duration
	// condemned: it was still expendable the grace time later. From committed epoch on it may be deleted.
	condemned bool
	from      uint64
}

func newCollector(retain int, grace time.Duration) *collector {
	return &collector{retain: max(retain, 1), grace: grace, manifests: map[uint64]*mark{}, blobs: map[string]*mark{}}
}

// see takes a listing in that was made between two times. committed is the epoch that the subtask had committed when the
// listing ended: the next one may have been on its way, the one after that was begun later.
func (c *collector) see(l listing, began, ended time.Duration, committed uint64) {
	slices.SortFunc(l.manifests, func(a, b listed) int { return cmp.Compare(b.epoch, a.epoch) })
	expendable := map[uint64]bool{}
	named := map[string]bool{}
	unknown := false
	readable := 0
	for _, m := range l.manifests {
		if readable >= c.retain {
			expendable[m.epoch] = true
		}
		if m.bad {
			unknown = true
			continue
		}
		readable++
		for _, b := range m.blobs {
			named[b] = true
		}
	}
	remark(c.manifests, expendable, c.grace, began, ended, committed+2)
	unnamed := map[string]bool{}
	for _, b := range l.blobs {
		// While there is a manifest that cannot be read, any blob may be named by it.
		if !named[b] && !unknown {
			unnamed[b] = true
		}
	}
	remark(c.blobs, unnamed, c.grace, began, ended, committed+2)
}

// remark moves marks to what is expendable now.
func remark[K comparable](marks map[K]*mark, expendable map[K]bool, grace, began, ended time.Duration, from uint64) {
	for k, m := range marks {
		if !expendable[k] {
			delete(marks, k)
			continue
		}
		if !m.condemned && began-m.since >= grace {
			m.condemned, m.from = true, from
		}
	}
	for k := range expendable {
		if marks[k] == nil {
			marks[k] = &mark{since: ended}
		}
	}
}

// due is what may be deleted by a subtask that has committed an epoch.
func (c *collector) due(committed uint64) (manifests []uint64, blobs []string) {
	for epoch, m := range c.manifests {
		if m.condemned && committed >= m.from {
			manifests = append(manifests, epoch)
		}
	}
	for name, m := range c.blobs {
		if m.condemned && committed >= m.from {
			blobs = append(blobs, name)
		}
	}
	slices.Sort(manifests)
	slices.Sort(blobs)
	return manifests, blobs
}

// deleted forgets what was deleted.
func (c *collector) deleted(manifests []uint64, blobs []string) {
	for _, epoch := range manifests {
		delete(c.manifests, epoch)
	}
	for _, name := range blobs {
		delete(c.blobs, name)
	}
}
