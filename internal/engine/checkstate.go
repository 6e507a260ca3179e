package engine

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/millrace-stream/millrace/txn"
)

// CheckState tells what this program would make of the state that the app has, or of the savepoint that Options.Start
// names, as a start would, and changes nothing: it can be asked while the app runs. Of the options those count that a start
// looks at before it joins the group. The table is empty if there is no state to go on with.
func CheckState(ctx context.Context, o Options) (CompatTable, error) {
	w := New(o)
	app := w.opts.Kafka.AppID
	cluster, err := txn.Connect(ctx, w.opts.Kafka)
	if err != nil {
		return nil, err
	}
	defer cluster.Close()
	w.cluster = cluster
	known, err := cluster.ReadControl(ctx, app)
	if err != nil && !errors.Is(err, txn.ErrNoApp) {
		return nil, err
	}
	if known.ClusterID != "" && known.ClusterID != cluster.ID() {
		return nil, fatalf("app %s belongs to cluster %s, but this is cluster %s", app, known.ClusterID, cluster.ID())
	}
	names := externalTopics(w.opts.Plan)
	external, err := cluster.Topics(ctx, append(slices.Clone(names), deadLetterTopic(app))...)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(n string) bool { _, ok := external[n]; return ok })
	if len(names) > 0 {
		return nil, fatalf("topics %s do not exist on cluster %s; create them, or correct the names", strings.Join(names, ", "), cluster.ID())
	}
	fresh, err := w.newIncarnation(ctx, known, external)
	if err != nil {
		return nil, err
	}
	was, err := parseTopology(known.Topology)
	if err != nil {
		return nil, err
	}
	d := decideStart(known, fresh.origin)
	inc, pinned, mode := d.incarnation, was.pinned(), compatMode{AllowDropped: w.opts.AllowDroppedState}
	topics := was.held(external)
	if d.begins {
		topics = external
		inc, pinned, was, mode.Base = fresh.incarnation, fresh.pinned, fresh.was, true
	}
	r, err := resolve(app, inc, w.opts.Plan, w.opts.Parallelism, pinned, topics)
	if err != nil {
		return nil, err
	}
	if !d.begins {
		r.keep(was)
	}
	now := r.record()
	if !mode.Base && len(mustBeRead(was, now)) > 0 {
		members, err := cluster.Members(ctx)
		if err != nil {
			return nil, err
		}
		if mode.Running = members > 0; !mode.Running {
			if mode.Unread, err = unreadTopics(ctx, cluster, r, known.Topology); err != nil {
				return nil, err
			}
		}
	}
	table := compatibility(was, now, mode)
	if faults := checkBase(was, fresh.parts, now, external); d.begins && len(faults) > 0 {
		return table, fatalf("app %s cannot begin from %s:\n  - %s", app, fresh.origin, strings.Join(faults, "\n  - "))
	}
	return table, nil
}
