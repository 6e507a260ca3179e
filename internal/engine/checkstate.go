package engine

import (
	"context"
	"errors"

	"github.com/millrace-stream/millrace/txn"
)

// CheckState tells what this program would make of the state that the app has, or of the savepoint that Options.Start
// names, as a start would, and changes nothing: it can be asked while the app runs. Of the options those count that a start
// looks at before it joins the group. The table is empty if there is no state to go on with.
func CheckState(ctx context.Context, o Options) (CompatTable, error) {
	w := New(o)
	cluster, err := txn.Connect(ctx, w.opts.Kafka)
	if err != nil {
		return nil, err
	}
	defer cluster.Close()
	w.cluster = cluster
	known, err := cluster.ReadControl(ctx, w.opts.Kafka.AppID)
	if err != nil && !errors.Is(err, txn.ErrNoApp) {
		return nil, err
	}
	ground, err := w.survey(ctx, known)
	if err != nil {
		return nil, err
	}
	mode := compatMode{AllowDropped: w.opts.AllowDroppedState}
	p, err := w.plan(known, ground, mode)
	if err != nil {
		return nil, err
	}
	if !p.mode.Base && len(mustBeRead(p.was, p.now)) > 0 {
		members, err := cluster.Members(ctx)
		if err != nil {
			return nil, err
		}
		if mode.Running = members > 0; !mode.Running {
			if mode.Unread, err = unreadTopics(ctx, cluster, p.bound, known.Topology); err != nil {
				return nil, err
			}
		}
		if p, err = w.plan(known, ground, mode); err != nil {
			return nil, err
		}
	}
	return p.table, p.fault
}
