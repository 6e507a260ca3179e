package engine

import (
	"sync"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/txn"
)

// inbox is the bounded hand-over from the poll loop to a subtask. The poll loop never waits for a subtask: what it
// polled is put here, and when more than inboxHigh bytes wait, the subtask's partitions are paused until less than
// inboxLow do. The hysteresis is there because the client throws away, and fetches again, what it had buffered for a
// paused partition. The bound is inboxHigh plus what one poll brings.
type inbox struct {
	mu      sync.Mutex
	batches []txn.Fetched
	bytes   int64
	err     error
	stable  map[record.TopicPartition]int64 // last stable offset as last seen
	paused  bool
	ready   chan struct{} // cap 1: something arrived
}

const (
	inboxHigh = 3 << 19
	inboxLow  = 1 << 19
)

func newInbox() *inbox {
	return &inbox{ready: make(chan struct{}, 1), stable: map[record.TopicPartition]int64{}}
}

// put takes what was polled; pause tells the poll loop to pause the subtask's partitions.
func (b *inbox) put(f txn.Fetched) (pause bool) {
	b.mu.Lock()
	if f.Err != nil {
		if b.err == nil {
			b.err = f.Err
		}
	} else {
		if len(f.Records) > 0 {
			b.batches = append(b.batches, f)
			b.bytes += sizeOf(f.Records)
		}
		b.stable[f.TopicPartition] = f.LastStable
	}
	if !b.paused && b.bytes > inboxHigh {
		b.paused, pause = true, true
	}
	b.mu.Unlock()
	b.wake()
	return pause
}

// wake makes the subtask look around.
func (b *inbox) wake() {
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// take hands over all that waits; resume says that the partitions may be fetched again. held is what the subtask
// still has from before, in bytes: it counts against the low mark.
func (b *inbox) take(held int64) (batches []txn.Fetched, resume bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if held < inboxLow {
		batches, b.batches, b.bytes = b.batches, nil, 0
	}
	if b.paused && b.bytes == 0 {
		b.paused, resume = false, true
	}
	return batches, resume, b.err
}

func (b *inbox) isPaused() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.paused
}

func (b *inbox) lastStable(tp record.TopicPartition) (int64, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v, ok := b.stable[tp]
	return v, ok
}

// sizeOf estimates what records hold in memory.
func sizeOf(recs []record.Record) int64 {
	n := int64(len(recs)) * 64
	for i := range recs {
		n += int64(len(recs[i].Key) + len(recs[i].Value))
	}
	return n
}
