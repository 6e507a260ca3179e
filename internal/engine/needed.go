package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/txn"
)

// ErrSavepointNeeded: an app begins from the savepoint, and some of its subtasks have not taken over their state yet.
var ErrSavepointNeeded = errors.New("the savepoint is needed")

// CheckUnneeded returns an error that wraps ErrSavepointNeeded if an app of the cluster, the savepoint's or another one, is in
// an incarnation that begins from the savepoint with this id, and has not copied all of it into its changelogs. Apps whose
// control topic this principal cannot read are left out, unless it is that of app.
func CheckUnneeded(ctx context.Context, cluster *txn.Cluster, app, id string) error {
	topics, err := cluster.AllTopics(ctx)
	if err != nil {
		return err
	}
	// The app itself is always asked: its control topic is not in the list of who may not describe it.
	apps := []string{app}
	for _, name := range slices.Sorted(maps.Keys(topics)) {
		if other, ok := strings.CutSuffix(name, txn.ControlTopic("")); ok && other != "" && other != app {
			apps = append(apps, other)
		}
	}
	for _, other := range apps {
		state, err := cluster.ReadControl(ctx, other)
		switch {
		case errors.Is(err, txn.ErrNoApp), err != nil && other != app && ctx.Err() == nil:
			continue
		case err != nil:
			return err
		case state.Base == nil || state.Base.ID != id:
			continue
		}
		waits, err := unclaimed(ctx, cluster, other, state)
		if err != nil {
			return err
		}
		if len(waits) > 0 {
			return fmt.Errorf("%w: app %s begins from it with incarnation %d, and of %d subtasks %d have not taken over their state (%s): let the app run until all have, or begin from something else (start.mode, start.nonce)",
				ErrSavepointNeeded, other, state.Incarnation, sum(state.Parallelism), len(waits), few(waits))
		}
	}
	return nil
}

func sum(ns []int) (n int) {
	for _, k := range ns {
		n += k
	}
	return n
}

// few names the first ones.
func few(ids []string) string {
	const most = 5
	if len(ids) > most {
		return strings.Join(ids[:most], ", ") + ", ..."
	}
	return strings.Join(ids, ", ")
}

// unclaimed are the subtasks of an incarnation that have no epoch in it.
func unclaimed(ctx context.Context, cluster *txn.Cluster, app string, s txn.ControlState) ([]string, error) {
	var waits []string
	for sub, n := range s.Parallelism {
		for k := range n {
			begun := false
			for _, topic := range []string{changelogTopic(app, s.Incarnation, sub), expiringTopic(app, s.Incarnation, sub)} {
				if _, ok := s.TopicIDs[topic]; !ok || begun {
					continue
				}
				var err error
				if begun, err = endsWithEpoch(ctx, cluster, record.TopicPartition{Topic: topic, Partition: int32(k)}); err != nil {
					return nil, err
				}
			}
			if !begun {
				waits = append(waits, record.SubtaskID{SubTopology: sub, Index: k}.String())
			}
		}
	}
	return waits, nil
}

// endsWithEpoch says whether the last committed record of a changelog is an epoch record, as it is once there has been an
// epoch: what is copied into it before has none.
func endsWithEpoch(ctx context.Context, cluster *txn.Cluster, tp record.TopicPartition) (bool, error) {
	tps := []record.TopicPartition{tp}
	starts, err := cluster.StartOffsets(ctx, tps)
	if err != nil {
		return false, err
	}
	ends, err := cluster.StableOffsets(ctx, tps)
	if err != nil {
		return false, err
	}
	start, end := starts[tp], ends[tp]
	found, epoch := false, false
	// The last offsets may be markers, and records of aborted transactions.
	for n := int64(100); !found && end > start; n *= 10 {
		from := max(start, end-n)
		err := cluster.ReadCommitted(ctx, tp, from, end, func(r record.Record) error {
			found, epoch = true, string(r.Key) == string(statestore.MetaKey())
			return nil
		})
		if err != nil {
			return false, err
		}
		if from == start {
			break
		}
	}
	return epoch, nil
}
