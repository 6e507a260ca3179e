package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/txn"
)

// Checkpoints say when checkpoints of subtasks are taken, and where they are kept.
type Checkpoints struct {
	// Blobs is the object storage; nil = no checkpoints are taken, and none looked for. The worker does not close it.
	Blobs blob.Store
	// Interval is the time from the start of one checkpoint of a subtask to the start of the next. Default 1 m.
	Interval time.Duration
	// MinPause is the least time from the end of one to the start of the next. Default 10 s.
	MinPause time.Duration
	// Timeout ends one that takes longer. Default 10 m.
	Timeout time.Duration
	// Grace is how long what nobody needs any more is kept at least; see checkpoint.Options. Default Timeout + 5 m.
	Grace  time.Duration
	Retain int // newest ones that are kept; default 3
	// Upload is how many files of one checkpoint move at once, Download how many of all that are restored. Default 4 and 16.
	Upload, Download int
	// Prefer restores from a checkpoint wherever one is usable, however cheap the other ways are; for tests.
	Prefer bool
	// Inline is that of checkpoint.Options; for tests.
	Inline int64
}

func (o *Checkpoints) ensureDefaults() {
	if o.Interval <= 0 {
		o.Interval = time.Minute
	}
	if o.MinPause < 0 {
		o.MinPause = 0
	}
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Minute
	}
	if o.Upload <= 0 {
		o.Upload = 4
	}
	if o.Download <= 0 {
		o.Download = 16
	}
	if o.Retain <= 0 {
		o.Retain = 3
	}
}

// concurrentCheckpoints bounds the checkpoints that one process takes at a time: they share its network and disk.
const concurrentCheckpoints = 2

// CheckpointStatus is what is known of the checkpoints of a subtask, since this process owns it.
type CheckpointStatus struct {
	Epoch         uint64    `json:"epoch"` // of the newest
	At            time.Time `json:"at,omitzero"`
	TookMs        int64     `json:"took_ms"`
	Bytes         int64     `json:"bytes"`          // of all its files
	UploadedBytes int64     `json:"uploaded_bytes"` // new ones
	Completed     int64     `json:"completed"`
	Failed        int64     `json:"failed"`
	Error         string    `json:"error,omitempty"` // of the last one, if it failed
}

// wallTime is when an epoch record was written.
func wallTime(raw []byte) (int64, error) {
	rec, err := txn.DecodeEpochRecord(raw)
	if err != nil {
		return 0, err
	}
	return rec.WallTime, nil
}

// checkpointer takes the checkpoints of one life, beside its loop: a snapshot is made from what was flushed last, so the
// loop never waits for it. It ends with ctx.
type checkpointer struct {
	s       *subtask
	store   statestore.Checkpointer
	specs   []statestore.Spec
	pub     *checkpoint.Publisher
	failing bool

	view   checkpoint.View // what the restore was decided by
	looked bool            // at the checkpoints that there were
	ahead  []checkpoint.Found
	from   uint64 // the epoch from which ahead may be put aside
}

// startCheckpoints starts the checkpointer of a life, if there is something to checkpoint. stop waits for its end.
func (l *life) startCheckpoints() (stop func()) {
	store, ok := l.store.(statestore.Checkpointer)
	o := l.w.opts.Checkpoints
	if o.Blobs == nil || !ok || len(l.s.sub.plan.Stores) == 0 {
		return func() {}
	}
	if l.s.publisher == nil {
		l.s.publisher = checkpoint.NewPublisher(checkpoint.Options{
			Blobs: o.Blobs, Identity: l.identity, Owner: l.w.opts.Kafka.InstanceID, Version: l.w.opts.Version, WallTime: wallTime,
			Timeout: o.Timeout, Grace: o.Grace, Retain: o.Retain, Parallel: o.Upload, Inline: o.Inline,
		})
	}
	c := &checkpointer{s: l.s, store: store, specs: l.state.Specs(), pub: l.s.publisher, view: l.view, looked: l.found}
	ahead := l.ahead
	ctx, cancel := context.WithCancel(l.s.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.reject(ctx, ahead)
		c.run(ctx)
	}()
	return func() { cancel(); <-done }
}

// run takes a checkpoint every interval; the subtasks of a process are spread over it.
func (c *checkpointer) run(ctx context.Context) {
	o := c.s.w.opts.Checkpoints
	_ = c.look(ctx) // or else it is told of before the first checkpoint
	wait := o.Interval * time.Duration(c.s.id.Index+1) / time.Duration(c.s.sub.parallelism)
	for {
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		select {
		case c.s.w.checkpointSlots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		began := time.Now()
		c.take(ctx, began)
		<-c.s.w.checkpointSlots
		ended := time.Now()
		wait = max(began.Add(o.Interval).Sub(ended), o.MinPause, 0)
	}
}

// take makes one checkpoint and removes what is not needed any more. A failure is reported, and processing goes on.
func (c *checkpointer) take(ctx context.Context, began time.Time) {
	ctx, cancel := context.WithTimeout(ctx, c.s.w.opts.Checkpoints.Timeout)
	defer cancel()
	var done checkpoint.Published
	err := c.look(ctx)
	if err == nil {
		c.clear(ctx)
		done, err = c.publish(ctx)
	}
	if errors.Is(err, context.Canceled) && c.s.letGo() {
		return
	}
	var superseded *checkpoint.SupersededError
	switch {
	case errors.Is(err, statestore.ErrEmpty), errors.As(err, &superseded):
		return // nothing new, or a former owner's is as new
	case err != nil:
		c.failed(err)
		return
	}
	if done.Key == "" {
		return // no epoch since the last one
	}
	if c.failing {
		c.failing = false
		c.s.log.Info("checkpoints work again", "epoch", done.Epoch)
	}
	t := c.s.totals
	t.mu.Lock()
	t.checkpoint.Epoch, t.checkpoint.At, t.checkpoint.TookMs = done.Epoch, time.Now(), time.Since(began).Milliseconds()
	t.checkpoint.Bytes, t.checkpoint.UploadedBytes, t.checkpoint.Error = done.Bytes, done.UploadedBytes, ""
	t.checkpoint.Completed++
	t.mu.Unlock()
	c.s.w.opts.Observer.CheckpointDone(c.s.id, true, done.UploadedBytes, time.Since(began))
	if _, err := c.pub.Collect(ctx, c.epoch); err != nil && ctx.Err() == nil {
		c.s.log.Warn("remove checkpoints that are not needed any more; the next one tries again", "error", err)
	}
}

func (c *checkpointer) publish(ctx context.Context) (done checkpoint.Published, err error) {
	snap, err := c.store.Checkpoint()
	if err != nil {
		return done, fmt.Errorf("snapshot the store: %w", err)
	}
	defer func() {
		if cerr := snap.Close(); cerr != nil && err == nil {
			c.s.log.Warn("remove the snapshot of a checkpoint", "error", cerr)
		}
	}()
	c.s.totals.mu.Lock()
	newest := c.s.totals.checkpoint.Epoch
	c.s.totals.mu.Unlock()
	if snap.Meta().Epoch == newest {
		return done, nil
	}
	return c.pub.Publish(ctx, snap, c.specs)
}

// failed tells of a checkpoint that failed: loudly once, and in status and metrics each time.
func (c *checkpointer) failed(err error) {
	t := c.s.totals
	t.mu.Lock()
	t.checkpoint.Failed++
	t.checkpoint.Error = err.Error()
	t.mu.Unlock()
	c.s.w.opts.Observer.CheckpointDone(c.s.id, false, 0, 0)
	level := c.s.log.Error
	if c.failing {
		level = c.s.log.Warn
	}
	c.failing = true
	level("checkpoint failed; processing goes on, and a lost disk costs a longer restore until one works again", "error", err)
}

// reject puts checkpoints aside that know of changelog records which are gone: their epochs will be used again.
func (c *checkpointer) reject(ctx context.Context, ahead []checkpoint.Found) {
	for _, f := range ahead {
		if err := checkpoint.Reject(ctx, c.s.w.opts.Checkpoints.Blobs, f); err != nil {
			c.s.log.Error("put a checkpoint aside that is ahead of its changelog; remove it by hand, or a restore may take it later", "key", f.Key, "error", err)
			continue
		}
		c.s.log.Warn("a checkpoint was put aside: it is ahead of its changelog", "key", f.Key, "epoch", f.Epoch)
	}
}
