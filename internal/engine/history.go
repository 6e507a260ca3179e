package engine

import (
	"bytes"
	"context"
	"fmt"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/txn"
)

// A cluster that comes back from an older snapshot of its disks, or an unclean leader election, takes committed records back. State
// that was made with them is ahead of its changelog, until that has grown past it: then its positions are those of records that
// it has never seen the like of. Two things keep such state out. What stands in a changelog right before a position must be what the
// state was made of (history); and whoever takes a subtask over puts checkpoints aside that are ahead at that time (look).

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

// look finds checkpoints that are ahead of what this life has found in the changelog, if its restore had no need to look at them: else
// they would keep new ones from being published, and become wrong when their epochs are reached again. It comes before the first
// checkpoint of this life, so that none of those is among them.
func (c *checkpointer) look(ctx context.Context) (err error) {
	if c.looked {
		return nil
	}
	v := c.view
	if v.Checkpoints, err = checkpoint.Find(ctx, c.s.w.opts.Checkpoints.Blobs, v.Identity); err != nil {
		return err
	}
	seen := c.epoch()
	for _, o := range checkpoint.Resolve(v) {
		if m := o.Manifest; m != nil && (o.Ahead || o.Epoch > seen+1 && m.Identity().Diff(v.Identity) == "") {
			c.ahead = append(c.ahead, checkpoint.Found{Key: o.Key, Epoch: o.Epoch, Manifest: m})
		}
	}
	// The epoch after the one that was committed then may have been on its way; the one after that was begun later, and shows that
	// nobody else had the subtask when they were listed.
	c.looked, c.from = true, seen+2
	return nil
}

// clear puts what look has found aside, when that is allowed.
func (c *checkpointer) clear(ctx context.Context) {
	if len(c.ahead) > 0 && c.epoch() >= c.from {
		c.reject(ctx, c.ahead)
		c.ahead = nil
	}
}

// epoch is the last one that was committed.
func (c *checkpointer) epoch() uint64 {
	c.s.totals.mu.Lock()
	defer c.s.totals.mu.Unlock()
	return c.s.totals.epoch
}
