package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/txn"
)

// RescalePlan is what a rescale will do.
type RescalePlan struct {
	Incarnation uint64 // the new one
	Subs        []RescaleSub
	topology    topologyRecord
	was         txn.ControlState
}

// RescaleSub is what becomes of one sub-topology.
type RescaleSub struct {
	ID     int
	Inputs []string // as "orders (4 partitions)"
	Stores int
	Now    int // subtasks
	Then   int
	Why    string // why it stays, or, with Stops, why the rescale is refused
	Stops  bool
}

// Refused says that the rescale cannot be done.
func (p *RescalePlan) Refused() bool {
	return slices.ContainsFunc(p.Subs, func(s RescaleSub) bool { return s.Stops })
}

// ErrNothingToDo: the app has that many subtasks already.
var ErrNothingToDo = errors.New("nothing is to be done")

// PlanRescale looks at what a rescale to that many subtasks would do.
func PlanRescale(ctx context.Context, cluster *txn.Cluster, control *txn.Control, subtasks int) (*RescalePlan, error) {
	fail := func(err error) (*RescalePlan, error) {
		return nil, fmt.Errorf("rescale app %s: %w", control.AppID(), err)
	}
	s, err := control.Refresh(ctx)
	if err != nil {
		return fail(err)
	}
	if err := refused(s, time.Now()); err != nil {
		return fail(err)
	}
	was, err := parseTopology(s.Topology)
	if err != nil {
		return fail(err)
	}
	var names []string
	for _, sub := range was.Subs {
		for _, in := range sub.Inputs {
			if !in.Internal {
				names = append(names, in.Topic)
			}
		}
	}
	topics, err := cluster.Topics(ctx, names...)
	if err != nil {
		return fail(err)
	}
	p, err := planRescale(was, subtasks, topics)
	if err != nil {
		return fail(err)
	}
	p.Incarnation, p.was = s.Incarnation+1, s
	// Topics of that number can only be left from an app of this name whose control topic is gone.
	for {
		found, err := cluster.Topics(ctx, p.topology.internalTopics(control.AppID(), p.Incarnation)...)
		if err != nil {
			return fail(err)
		}
		if len(found) == 0 {
			return p, nil
		}
		p.Incarnation++
	}
}

// planRescale decides for each sub-topology (pure).
func planRescale(was topologyRecord, subtasks int, topics map[string]txn.TopicInfo) (*RescalePlan, error) {
	if subtasks < 1 {
		return nil, fmt.Errorf("%d subtasks are wanted; at least 1 is", subtasks)
	}
	p := &RescalePlan{}
	changes := false
	for _, old := range was.Subs {
		sub := old
		sub.Inputs = slices.Clone(old.Inputs)
		row := RescaleSub{ID: old.ID, Now: old.Parallelism, Then: subtasks, Stores: len(old.Stores)}
		var counts []int32
		for i := range sub.Inputs {
			in := &sub.Inputs[i]
			in.Moved = false
			if in.Broadcast {
				continue
			}
			switch info, ok := topics[in.Topic]; {
			case !in.Internal && !ok:
				return nil, fmt.Errorf("input topic %s does not exist", in.Topic)
			case !in.Internal:
				in.Partitions = info.Partitions
			case !in.Fixed && in.Upstream < len(p.topology.Subs): // as resolve does
				in.Partitions = 0
				for _, up := range p.topology.Subs[in.Upstream].Inputs {
					in.Partitions = max(in.Partitions, up.Partitions)
				}
			}
			counts = append(counts, in.Partitions)
			row.Inputs = append(row.Inputs, fmt.Sprintf("%s (%d partitions)", in.Topic, in.Partitions))
		}
		if old.Fixed {
			row.Then, row.Why = old.Parallelism, "the program names the number itself"
		} else if old.Feeds {
			row.Then = task.WithinParallelism(subtasks, counts)
		}
		sub.Parallelism = row.Then
		for i := range sub.Inputs {
			if in := &sub.Inputs[i]; in.Broadcast {
				in.Partitions = int32(row.Then)
			}
		}
		if _, err := task.ResolveParallelism(row.Then, counts); err != nil {
			row.Why, row.Stops = err.Error(), true
		} else if row.Then != row.Now && len(sub.Stores) > 0 {
			if why := cannotDivide(sub, row.Now, was); why != "" {
				row.Why, row.Stops = why, true
			}
		}
		changes = changes || row.Then != row.Now || !slices.Equal(counts, partitionCounts(old.Inputs))
		p.Subs = append(p.Subs, row)
		p.topology.Subs = append(p.topology.Subs, sub)
	}
	if !changes {
		return p, fmt.Errorf("%w: each sub-topology has %d subtasks", ErrNothingToDo, subtasks)
	}
	return p, nil
}

func partitionCounts(inputs []topologyInput) []int32 {
	var ns []int32
	for _, in := range inputs {
		if !in.Broadcast {
			ns = append(ns, in.Partitions)
		}
	}
	return ns
}

// Rescale takes a savepoint and begins the next incarnation from it with other numbers of subtasks. It returns when the
// members, which go on by themselves, have all subtasks of it at work, or with an error that says how far it came. Until
// the savepoint is whole and checked, any failure lets the members go on as before.
func Rescale(ctx context.Context, cluster *txn.Cluster, control *txn.Control, blobs blob.Store, plan *RescalePlan, o SavepointOptions) (*checkpoint.Savepoint, error) {
	if plan.Refused() {
		return nil, fmt.Errorf("rescale app %s: it is refused", control.AppID())
	}
	o.Stop = true
	o.then = func(ctx context.Context, sp *checkpoint.Savepoint) (func(txn.ControlState) (txn.ControlState, error), error) {
		if err := plan.check(ctx, checkpoint.NewSavepoints(blobs, sp.App, nil, nil), sp); err != nil {
			return nil, err
		}
		return func(s txn.ControlState) (txn.ControlState, error) {
			if s.Incarnation != plan.was.Incarnation || string(s.Topology) != string(plan.was.Topology) {
				return s, errors.New("the app was begun anew, or with another topology, since the rescale was planned; try again")
			}
			return plan.next(s, sp, blobs.String())
		}, nil
	}
	sp, err := TakeSavepoint(ctx, cluster, control, blobs, o)
	if err != nil {
		return sp, err
	}
	return sp, plan.await(ctx, cluster, control.AppID())
}

// next is the first state of the new incarnation (pure).
func (p *RescalePlan) next(s txn.ControlState, sp *checkpoint.Savepoint, url string) (txn.ControlState, error) {
	most := 0
	for _, sub := range p.Subs {
		most = max(most, sub.Then)
	}
	base := txn.Base{App: sp.App, Name: sp.Name, ID: sp.ID, URL: url, Parallelism: most}
	next := begin(sp.App, s, p.Incarnation, originOf(base, sp.App, url), &base)
	next.Fingerprint = s.Fingerprint
	top, err := json.Marshal(p.topology)
	if err != nil {
		return s, err
	}
	next.Topology = top
	for _, sub := range p.Subs {
		next.Parallelism = append(next.Parallelism, sub.Then)
	}
	was, err := parseTopology(s.Topology)
	if err != nil {
		return s, err
	}
	internal := was.internalTopics(sp.App, s.Incarnation)
	next.TopicIDs = map[string]string{}
	for name, id := range s.TopicIDs {
		if !slices.Contains(internal, name) {
			next.TopicIDs[name] = id
		}
	}
	return next, nil
}

// internalTopics are the names of an incarnation's own topics.
func (t topologyRecord) internalTopics(app string, incarnation uint64) []string {
	var names []string
	for _, s := range t.Subs {
		names = append(names, changelogTopic(app, incarnation, s.ID), expiringTopic(app, incarnation, s.ID))
		for _, in := range s.Inputs {
			if in.Internal {
				names = append(names, repartitionTopic(app, incarnation, in.Topic))
			}
		}
	}
	return names
}

// check reads the state that goes by the partitions of its input: that each key lies where Kafka's default partitioner
// puts it shows nowhere else.
func (p *RescalePlan) check(ctx context.Context, sps *checkpoint.Savepoints, sp *checkpoint.Savepoint) error {
	was, parts, err := partsOf(sp)
	if err != nil {
		return err
	}
	for _, sub := range p.topology.Subs {
		old, _ := was.sub(sub.ID)
		direct := slices.ContainsFunc(sub.Inputs, func(in topologyInput) bool { return !in.Internal })
		if !direct || len(old.Stores) == 0 || old.Parallelism == sub.Parallelism {
			continue
		}
		for _, part := range parts {
			if part.id.SubTopology != sub.ID {
				continue
			}
			// Any of the new subtasks that it goes to looks at all of its entries.
			plan, err := planBase(was, []oldPart{part}, sub, part.id.Index%gcd(part.of, sub.Parallelism), p.Incarnation)
			if err != nil {
				return err
			}
			for _, src := range plan.sources {
				err := sps.Load(ctx, sp, part.id.String(), nil, func(key, _ []byte) error {
					_, _, err := src.entry(key)
					return err
				})
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// takeOver bounds the wait for the members after a rescale: a large state takes its time.
const takeOver = 10 * time.Minute

// await waits until all subtasks of the new incarnation have committed an epoch.
func (p *RescalePlan) await(ctx context.Context, cluster *txn.Cluster, app string) error {
	ctx, cancel := context.WithTimeout(ctx, takeOver)
	defer cancel()
	var missing []string
	for _, sub := range p.Subs {
		for k := range sub.Then {
			missing = append(missing, record.SubtaskID{SubTopology: sub.ID, Index: k}.String())
		}
	}
	for {
		still := missing[:0:0]
		var last error
		for _, name := range missing {
			id, err := record.ParseSubtaskID(name)
			if err != nil {
				return err
			}
			claimed, err := hasEpoch(ctx, cluster, record.TopicPartition{Topic: changelogTopic(app, p.Incarnation, id.SubTopology), Partition: int32(id.Index)})
			if err != nil {
				last = err
			}
			if !claimed {
				still = append(still, name)
			}
		}
		if missing = still; len(missing) == 0 {
			return nil
		}
		timer := time.NewTimer(pollWritten)
		select {
		case <-ctx.Done():
			timer.Stop()
			err := fmt.Errorf("the app is in incarnation %d, but subtasks %s have not committed in it: %w; see the logs of the members: they go on by themselves, unless parallelism is set to another number than %d or 0",
				p.Incarnation, strings.Join(missing, ", "), ctx.Err(), p.Subs[0].Then)
			return errors.Join(err, last)
		case <-timer.C:
		}
	}
}

// hasEpoch says whether an epoch was committed to a changelog: its last record is an epoch record then.
func hasEpoch(ctx context.Context, cluster *txn.Cluster, tp record.TopicPartition) (bool, error) {
	infos, err := cluster.Topics(ctx, tp.Topic)
	if err != nil || infos[tp.Topic].Partitions <= tp.Partition {
		return false, err
	}
	ends, err := cluster.StableOffsets(ctx, []record.TopicPartition{tp})
	if err != nil || ends[tp] == 0 {
		return false, err
	}
	const tail = 4 // the epoch record and markers
	from := []int64{max(ends[tp]-tail, 0)}
	found := false
	_, err = cluster.ReadChangelog(ctx, txn.ChangelogRead{Topics: []string{tp.Topic}, Partition: tp.Partition, From: from}, func(_ int, _ int64, key, _ []byte) error {
		found = found || string(key) == string(statestore.MetaKey())
		return nil
	})
	return found, err
}
