package engine

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/txn"
)

// A cluster that comes back from an older snapshot of its disks, or an unclean leader election, takes committed records back. State
// that was made with them is ahead of its changelog, until that has grown past it: then its positions are those of records that
// it has never seen the like of. Two things keep such state out. What stands in a changelog right before a position must be what the
// state was made of (history); and whoever takes a subtask over puts checkpoints aside that are ahead at that time (stray).

// errOtherHistory: the state was made of records that the changelog does not have any more.
var errOtherHistory = fmt.Errorf("%w: it was made of changelog records that are gone, as after a cluster came back from an older snapshot", statestore.ErrCorrupt)

// sameHistory compares the epoch record that a state was made with, raw of that epoch, with those that stand last before its
// positions in the changelogs (pure): the newest of them must be it. See txn.ChangelogRead.Verify.
func sameHistory(epoch uint64, raw []byte, found [][]byte, blind bool) error {
	newest := epoch
	for i, value := range found {
		r, err := txn.DecodeEpochRecord(value)
		if err != nil {
			return err
		}
		if r.Epoch > epoch || r.Epoch == epoch && !bytes.Equal(value, raw) {
			return fmt.Errorf("epoch %d of %s stands where epoch %d was: %w", r.Epoch, timeText(r.WallTime), epoch, errOtherHistory)
		}
		if i == 0 || r.Epoch > newest {
			newest = r.Epoch
		}
	}
	if newest < epoch && !blind {
		return fmt.Errorf("epoch %d stands where epoch %d was: %w", newest, epoch, errOtherHistory)
	}
	return nil
}

// noteAhead remembers a checkpoint that is to be put aside.
func (l *life) noteAhead(o checkpoint.Option) {
	if o.Way == checkpoint.FromCheckpoint && o.Ahead {
		l.ahead = append(l.ahead, checkpoint.Found{Key: o.Key, Epoch: o.Epoch, Manifest: o.Manifest})
	}
}

// strayPace is how often stray looks whether the subtask has gone on.
const strayPace = 500 * time.Millisecond

// stray puts checkpoints aside that are ahead of what this life has found in the changelog, if its restore had no need to look
// at them: else they would keep new ones from being published, and become wrong when their epochs are reached again. The epochs
// that were committed after the look show that nobody else had the subtask by then.
func (c *checkpointer) stray(ctx context.Context, v checkpoint.View) {
	o := c.s.w.opts.Checkpoints
	var err error
	for v.Checkpoints, err = checkpoint.Find(ctx, o.Blobs, v.Identity); err != nil; v.Checkpoints, err = checkpoint.Find(ctx, o.Blobs, v.Identity) {
		if txn.Sleep(ctx, o.Interval) != nil {
			return
		}
	}
	epoch := func() uint64 {
		c.s.totals.mu.Lock()
		defer c.s.totals.mu.Unlock()
		return c.s.totals.epoch
	}
	seen := epoch()
	var ahead []checkpoint.Found
	for _, opt := range checkpoint.Resolve(v) {
		if opt.Manifest != nil && (opt.Ahead || opt.Refused == "" && opt.Epoch > seen+1) {
			ahead = append(ahead, checkpoint.Found{Key: opt.Key, Epoch: opt.Epoch, Manifest: opt.Manifest})
		}
	}
	if len(ahead) == 0 {
		return
	}
	for epoch() < seen+2 {
		if txn.Sleep(ctx, strayPace) != nil {
			return
		}
	}
	c.reject(ctx, ahead)
}
