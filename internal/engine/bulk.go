package engine

import (
	"context"
	"runtime"
	"time"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/statestore"
)

// Bulk says how a long changelog is read: sorted beside the store and put into it as a whole, if the store can do that.
// Zero values take the defaults named here.
type Bulk struct {
	// Records is from how many changelog records on an empty store is loaded in bulk; one that has something, from twenty times
	// as many on, since all of it is written once more then. Default 50,000.
	Records int64
	// Bytes is the memory for it. Default a subtask's share of CacheBytes, which nothing else uses before the restore is
	// over, and 16 MiB at least.
	Bytes int64
}

const (
	minBulkBytes   = 16 << 20
	bulkTailFactor = 20
)

// concurrentBulks is how many subtasks load in bulk at a time: as many as there are cores. One after the other they are ready
// early, each in its turn; all at once, at the end.
func concurrentBulks() int { return max(2, runtime.GOMAXPROCS(0)) }

// bulk decides whether the changelog is read in bulk; it waits for its turn then. make is nil if not. end gives the turn back.
func (l *life) bulk(ctx context.Context, o checkpoint.Option, started time.Time) (make func() statestore.Bulk, end func(), err error) {
	store, ok := l.store.(statestore.BulkStore)
	enough := l.w.opts.Bulk.Records
	if _, filled := l.store.Meta(); filled {
		enough *= bulkTailFactor
	}
	// A standby is no hurry, and what it has read so far must outlive the takeover that ends it.
	if !ok || l.producer == nil || o.Records < enough {
		return nil, func() {}, nil
	}
	l.progress(&RestoreStatus{Way: o.Way.String(), Remaining: o.Records, Started: started, EtaMs: -1})
	select {
	case l.w.bulkSlots <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	memory := l.w.opts.Bulk.Bytes
	if memory <= 0 {
		memory = max(l.w.share(l.w.opts.CacheBytes), minBulkBytes)
	}
	return func() statestore.Bulk { return store.NewBulk(ctx, memory) }, func() { <-l.w.bulkSlots }, nil
}

// tail brings the tail of a changelog into a store: in bulks while there is something to make them, then in batches.
type tail struct {
	store    statestore.Store
	makeBulk func() statestore.Bulk // nil: batches
	bulk     statestore.Bulk
	batch    statestore.Batch
}

func newTail(store statestore.Store, makeBulk func() statestore.Bulk) *tail {
	t := &tail{store: store, makeBulk: makeBulk, batch: store.NewBatch()}
	if makeBulk != nil {
		t.bulk = makeBulk()
	}
	return t
}

// put writes an entry; a nil value deletes it.
func (t *tail) put(key, value []byte) {
	switch {
	case t.bulk != nil && value == nil:
		t.bulk.Delete(key)
	case t.bulk != nil:
		t.bulk.Set(key, value)
	case value == nil:
		t.batch.Delete(key)
	default:
		t.batch.Set(key, value)
	}
}

// full says that it is time to commit.
func (t *tail) full() bool {
	if t.bulk != nil {
		return t.bulk.Full()
	}
	return t.batch.Len() >= restoreBatchBytes
}

// commit commits what was put, and goes on.
func (t *tail) commit(m statestore.Meta) error {
	if t.bulk != nil {
		if err := t.bulk.Commit(m); err != nil {
			return err
		}
		t.bulk = t.makeBulk()
		return nil
	}
	if err := t.batch.Commit(m); err != nil {
		return err
	}
	t.batch = t.store.NewBatch()
	return nil
}

// endBulk commits the bulk, if there is one; what follows goes into batches.
func (t *tail) endBulk(m statestore.Meta) error {
	if t.bulk == nil {
		return nil
	}
	b := t.bulk
	t.bulk = nil
	return b.Commit(m)
}

func (t *tail) discard() {
	if t.bulk != nil {
		t.bulk.Discard()
	}
	t.batch.Discard()
}
