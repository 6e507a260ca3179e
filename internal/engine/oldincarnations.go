package engine

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/statestore"
)

// attic is what older incarnations have left behind: stores on this disk and checkpoints. Nobody goes back to an older
// incarnation, and a savepoint that was made of one is complete in itself. It belongs to the janitor.
type attic struct {
	since time.Time // when all subtasks were seen to have begun; zero = not yet
	clean bool
}

// tidy removes what older incarnations have left behind, Options.CleanupDelay after all subtasks of this one have begun:
// people may want to look at an incarnation that went wrong, and members that have not heard of the new one still use it.
// Topics stay: see Remains.
func (a *attic) tidy(ctx context.Context, w *Worker) {
	delay := w.opts.CleanupDelay
	if a.clean || delay <= 0 || w.topo.incarnation <= 1 {
		return
	}
	if a.since.IsZero() {
		state := w.control.State()
		if state.Incarnation != w.topo.incarnation {
			return // a newer one begins
		}
		waits, err := unclaimed(ctx, w.cluster, w.opts.Kafka.AppID, state)
		if err != nil || len(waits) > 0 {
			return // it is asked again
		}
		a.since = time.Now()
	}
	if time.Since(a.since) < delay {
		return
	}
	err := w.clearOldStores()
	if err == nil {
		err = w.deleteOldCheckpoints(ctx)
	}
	if err != nil {
		if ctx.Err() == nil {
			w.log.Warn("remove what older incarnations have left; it is tried again", "error", err)
		}
		return
	}
	a.clean = true
}

func (w *Worker) clearOldStores() error {
	for incarnation := uint64(1); incarnation < w.topo.incarnation; incarnation++ {
		subtasks, err := w.opts.Dir.Subtasks(incarnation)
		if err != nil {
			return err
		}
		for _, subtask := range subtasks {
			id := statestore.Identity{App: w.opts.Kafka.AppID, ClusterID: w.cluster.ID(), Incarnation: incarnation, Subtask: subtask}
			if err := w.opts.Dir.Wipe(id); err != nil {
				return err
			}
		}
		if len(subtasks) > 0 {
			w.log.Info("local state of an older incarnation was removed", "incarnation", incarnation, "subtasks", len(subtasks))
		}
	}
	return nil
}

// deleteOldCheckpoints is done by one member, that which runs the first subtask.
func (w *Worker) deleteOldCheckpoints(ctx context.Context) error {
	blobs, app := w.opts.Checkpoints.Blobs, w.opts.Kafka.AppID
	w.mu.Lock()
	first := w.subtasks[record.SubtaskID{}]
	w.mu.Unlock()
	if blobs == nil || first == nil || first.letGo() {
		return nil
	}
	used, err := checkpoint.Incarnations(ctx, blobs, app)
	if err != nil {
		return err
	}
	maps.DeleteFunc(used, func(incarnation uint64, _ checkpoint.Usage) bool { return incarnation >= w.topo.incarnation })
	if len(used) == 0 {
		return nil
	}
	entries, err := checkpoint.List(ctx, blobs, app)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, ok := used[e.Incarnation]; !ok {
			continue
		}
		// An app of this name on another cluster may have the same store, by mistake or after a copy of the cluster.
		data, err := blobs.Get(ctx, e.Key)
		if err != nil {
			return err
		}
		if m, err := checkpoint.DecodeManifest(data); err != nil || m.ClusterID != w.cluster.ID() {
			w.log.Warn("checkpoints of an older incarnation stay: they are another cluster's, or cannot be read", "incarnation", e.Incarnation, "key", e.Key)
			delete(used, e.Incarnation)
		}
	}
	for _, incarnation := range slices.Sorted(maps.Keys(used)) {
		u, err := checkpoint.DeleteIncarnation(ctx, blobs, app, incarnation)
		if err != nil {
			return err
		}
		w.log.Info("checkpoints of an older incarnation were removed", "incarnation", incarnation, "blobs", u.Blobs, "bytes", u.Bytes)
	}
	return nil
}
