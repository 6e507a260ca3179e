package engine

import (
	"context"
	"slices"
	"strings"

	"github.com/millrace-stream/millrace/txn"
)

// ground is what a start finds: the external topics, and what it would begin with.
type ground struct {
	external map[string]txn.TopicInfo // by name, and the dead-letter topic
	fresh    newborn
}

// survey looks at what a start depends on besides what the members have agreed upon. It changes nothing.
func (w *Worker) survey(ctx context.Context, known txn.ControlState) (g ground, err error) {
	names := externalTopics(w.opts.Plan)
	if g.external, err = w.cluster.Topics(ctx, append(slices.Clone(names), deadLetterTopic(w.opts.Kafka.AppID))...); err != nil {
		return g, err
	}
	missing := slices.DeleteFunc(names, func(n string) bool { _, ok := g.external[n]; return ok })
	if len(missing) > 0 {
		return g, fatalf("topics %s do not exist on cluster %s; create them, or correct the names (internal topics are made by the app, its inputs and outputs are not)", strings.Join(missing, ", "), w.cluster.ID())
	}
	g.fresh, err = w.newIncarnation(ctx, known, g.external)
	return g, err
}

// startPlan is what a start would make of the app.
type startPlan struct {
	bound *resolved
	mode  compatMode
	table CompatTable    // of the state
	was   topologyRecord // what the state was made by
	now   topologyRecord // this program
	fault error          // why it cannot begin from the savepoint that it names, whatever the table says
}

// plan decides what a start makes of what the members have agreed upon (pure). Of mode, Base is decided here.
func (w *Worker) plan(cur txn.ControlState, g ground, mode compatMode) (*startPlan, error) {
	app := w.opts.Kafka.AppID
	if cur.ClusterID != "" && cur.ClusterID != w.cluster.ID() {
		return nil, fatalf("app %s belongs to cluster %s, but this is cluster %s", app, cur.ClusterID, w.cluster.ID())
	}
	was, err := parseTopology(cur.Topology)
	if err != nil {
		return nil, &fatalError{err}
	}
	p := &startPlan{was: was, mode: mode}
	d := decideStart(cur, g.fresh.origin)
	inc, pinned, topics := d.incarnation, was.pinned(), was.held(g.external)
	if d.begins {
		inc, pinned, topics = g.fresh.incarnation, g.fresh.pinned, g.external
		p.was, p.mode.Base = g.fresh.was, true
	}
	if p.bound, err = resolve(app, inc, w.opts.Plan, w.opts.Parallelism, pinned, topics); err != nil {
		return nil, err
	}
	if !d.begins {
		p.bound.keep(was)
	}
	p.now = p.bound.record()
	p.table = compatibility(p.was, p.now, p.mode)
	if faults := checkBase(p.was, g.fresh.parts, p.now, g.external); d.begins && len(faults) > 0 {
		p.fault = fatalf("app %s cannot begin from %s:\n  - %s", app, g.fresh.origin, strings.Join(faults, "\n  - "))
	}
	return p, nil
}
