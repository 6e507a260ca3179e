// Package adhoc runs a topology for somebody who looks on, as the SQL shell does: it reads committed records of topics and
// changes nothing in the cluster. There is no group, no transaction and no changelog; state is in memory and gone when
// the run ends.
package adhoc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
	"github.com/millrace-stream/millrace/txn"
)

// Options of a run.
type Options struct {
	// Plan has one sub-topology, and no repartition topics but those of generators, which stay empty: all of it runs in one
	// subtask.
	Plan *task.Plan
	// Cluster has the topics; nil if none is read.
	Cluster *txn.Cluster
	// Bounded ends topics that have no end of their own where they end now.
	Bounded bool
	// Every is how often results are handed out; default 100 ms.
	Every time.Duration
	// MaxState is how large the state may grow, in bytes; default 512 MiB.
	MaxState int64
	// Output gets the records of an epoch, in order, for the topics of Plan.Subs[0].Outputs. They are valid for the call. An
	// error ends the run.
	Output func(records []record.Output) error
	// Progress is told how much was read so far, after each epoch; nil = nobody is.
	Progress func(p Progress)
}

// Progress is how far a run is.
type Progress struct {
	Records   int64
	Late      int64
	Watermark int64 // ms; math.MinInt64 = none
	Behind    int64 // records of the topics that were not read yet, about
}

// ErrState says that the state grew beyond Options.MaxState.
var ErrState = errors.New("the state of the query is larger than it may be")

// run is one run.
type run struct {
	o      Options
	sub    *task.SubTopology
	task   *task.Task
	state  *statestore.State
	store  *memstore.Store
	calls  *engine.Calls
	inputs map[string]int // by topic
	at     map[record.TopicPartition]int64
	ends   map[record.TopicPartition]int64 // last stable offsets as last seen
	epoch  uint64
}

// Run runs until all inputs have ended, ctx is done, or something fails. The error of a ctx that was cancelled is its
// cause.
func Run(ctx context.Context, o Options) error {
	if o.Every <= 0 {
		o.Every = 100 * time.Millisecond
	}
	if o.MaxState <= 0 {
		o.MaxState = 512 << 20
	}
	sub, err := Main(o.Plan)
	if err != nil {
		return err
	}
	r := &run{o: o, sub: sub, calls: engine.NewCalls(), inputs: map[string]int{}, at: map[record.TopicPartition]int64{}, ends: map[record.TopicPartition]int64{}}
	defer r.calls.End(slog.Default())
	if err := r.open(ctx); err != nil {
		return err
	}
	err = r.loop(ctx)
	return errors.Join(err, r.task.Close())
}

// Main is the sub-topology of a plan that a run consists of: all others read nothing.
func Main(p *task.Plan) (*task.SubTopology, error) {
	var found *task.SubTopology
	for _, sub := range p.Subs {
		if len(sub.Inputs) == 0 {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("run a topology by itself: sub-topologies %d and %d read topics, want one that does", found.ID, sub.ID)
		}
		found = sub
	}
	if found == nil {
		return nil, errors.New("run a topology by itself: it reads nothing")
	}
	for _, in := range found.Inputs {
		if up := p.Subs[in.Upstream]; in.Internal && up != found && len(up.Inputs) > 0 {
			return nil, fmt.Errorf("run a topology by itself: it has the repartition topic %s", in.Topic)
		}
	}
	return found, nil
}

// Reads says whether a sub-topology reads topics of a cluster.
func Reads(sub *task.SubTopology) bool {
	return slices.ContainsFunc(sub.Inputs, func(in task.Input) bool { return !in.Internal })
}

// open makes the task.
func (r *run) open(ctx context.Context) error {
	r.store = memstore.New()
	r.state = statestore.NewState(r.store, statestore.StateOptions{})
	now := time.Now().UnixMilli()
	env := task.Env{Subtask: record.SubtaskID{}, Parallelism: 1, State: r.state, Now: now, Go: r.calls.Run}
	progress := &task.Progress{}
	if r.o.Cluster == nil && Reads(r.sub) {
		return errors.New("read topics: no brokers are known")
	}
	var names []string
	for i, in := range r.sub.Inputs {
		if !in.Internal {
			r.inputs[in.Topic] = i
			names = append(names, in.Topic)
		}
	}
	var infos map[string]txn.TopicInfo
	if len(names) > 0 {
		var err error
		if infos, err = r.o.Cluster.Topics(ctx, names...); err != nil {
			return err
		}
	}
	for i, in := range r.sub.Inputs {
		if in.Internal {
			env.Inputs = append(env.Inputs, task.EnvInput{Topic: in.Topic, Partitions: []int32{0}, TotalPartitions: 1, UpstreamSubtasks: 1})
			continue
		}
		info, ok := infos[in.Topic]
		if !ok {
			return fmt.Errorf("topic %s does not exist", in.Topic)
		}
		e := task.EnvInput{Topic: in.Topic, TotalPartitions: info.Partitions}
		var tps []record.TopicPartition
		for p := range info.Partitions {
			e.Partitions = append(e.Partitions, p)
			tps = append(tps, record.TopicPartition{Topic: in.Topic, Partition: p})
		}
		starts, err := engine.StartPositions(ctx, r.o.Cluster, "", in.Start, tps)
		if err != nil {
			return fmt.Errorf("find where to begin in topic %s: %w", in.Topic, err)
		}
		stable, err := r.o.Cluster.StableOffsets(ctx, tps)
		if err != nil {
			return fmt.Errorf("find the end of topic %s: %w", in.Topic, err)
		}
		until := stable
		if in.End.Kind != task.EndNever {
			if until, err = engine.EndPositions(ctx, r.o.Cluster, in.End, tps); err != nil {
				return fmt.Errorf("find where to end in topic %s: %w", in.Topic, err)
			}
		}
		if r.o.Bounded || in.End.Kind != task.EndNever {
			e.Until = map[int32]int64{}
			for _, tp := range tps {
				e.Until[tp.Partition] = max(until[tp], 0)
			}
		}
		if in.Load {
			e.Ends = map[int32]int64{}
		}
		for _, tp := range tps {
			r.at[tp], r.ends[tp] = starts[tp], stable[tp]
			if in.Load {
				e.Ends[tp.Partition] = stable[tp]
			}
			progress.Partitions = append(progress.Partitions, task.PartitionProgress{Input: i, Partition: tp.Partition, Offset: starts[tp], MaxTime: math.MinInt64, Watermark: math.MinInt64})
		}
		env.Inputs = append(env.Inputs, e)
	}
	env.Restored = progress
	for _, out := range r.sub.Outputs {
		env.Outputs = append(env.Outputs, task.EnvOutput{Topic: out.Topic, Partitions: 1, MaxRecordBytes: 1 << 30})
	}
	var err error
	if r.task, err = r.sub.New(env); err != nil {
		return err
	}
	return r.task.Begin(ctx, task.Begun{App: "adhoc", Incarnation: 1, Epoch: 1}, nil)
}

// loop reads, processes, and hands out.
func (r *run) loop(ctx context.Context) error {
	var polled chan []txn.Fetched
	if len(r.at) > 0 {
		consumer, err := r.o.Cluster.NewConsumer()
		if err != nil {
			return err
		}
		consumer.Add(r.at)
		polled = make(chan []txn.Fetched)
		pollCtx, stop := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() { poll(pollCtx, consumer, polled) })
		defer func() {
			stop()
			consumer.Close()
			wg.Wait()
		}()
	}
	last := time.Now()
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		st := r.task.Stats()
		in := polled
		if st.Buffered > 0 {
			in = nil // what is here goes first, so that memory is bounded
		}
		wait := r.o.Every
		if st.NextTimer != math.MaxInt64 {
			wait = min(wait, max(0, time.Until(time.UnixMilli(st.NextTimer))))
		}
		if st.Buffered > 0 && !st.Blocked {
			wait = 0
		}
		if wait > 0 || in == nil && st.Blocked {
			tick.Reset(wait)
			select {
			case fetched := <-in:
				if err := r.enqueue(fetched); err != nil {
					return err
				}
			case <-r.calls.Wake():
			case <-tick.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err := r.step(); err != nil {
			return err
		}
		if time.Since(last) >= r.o.Every || r.task.Stats().Ended {
			last = time.Now()
			if err := r.commit(ctx); err != nil {
				return err
			}
			if r.task.Stats().Ended {
				return nil
			}
		}
	}
}

// poll hands over what it reads until ctx is done.
func poll(ctx context.Context, c *txn.Consumer, to chan<- []txn.Fetched) {
	for {
		fetched, err := c.Poll(ctx)
		if err != nil {
			return
		}
		select {
		case to <- fetched:
		case <-ctx.Done():
			return
		}
	}
}

func (r *run) enqueue(fetched []txn.Fetched) error {
	for _, f := range fetched {
		if f.Err != nil {
			return f.Err
		}
		r.ends[f.TopicPartition] = max(r.ends[f.TopicPartition], f.LastStable)
		if n := len(f.Records); n > 0 {
			r.at[f.TopicPartition] = f.Records[n-1].Offset + 1
			r.task.Enqueue(r.inputs[f.Topic], f.Partition, f.Records)
		}
	}
	return nil
}

// steps is how many records one step takes.
const steps = 1024

func (r *run) step() error {
	now := time.Now().UnixMilli()
	if _, err := r.task.Step(steps, now); err != nil {
		return err
	}
	if err := r.task.Tick(now); err != nil {
		return err
	}
	return r.hand(r.task.TakeOutputs())
}

func (r *run) hand(records []record.Output) error {
	if len(records) == 0 {
		return nil
	}
	return r.o.Output(records)
}

// commit ends an epoch.
func (r *run) commit(ctx context.Context) error {
	sealed, err := r.task.Seal(r.epoch+1, time.Now().UnixMilli())
	if err != nil {
		return err
	}
	r.epoch++
	if _, err := r.task.Prepare(ctx, r.epoch, false); err != nil {
		return err
	}
	if err := r.hand(sealed.Outputs); err != nil {
		return err
	}
	meta := statestore.Meta{Epoch: r.epoch}
	if err := r.task.Committed(meta); err != nil {
		return err
	}
	if err := r.task.Finish(ctx); err != nil {
		return err
	}
	if r.state.Pending() > 4<<20 {
		if err := r.state.WriteBehind(meta); err != nil {
			return err
		}
	}
	if size := r.store.Size() + r.state.Pending(); size > r.o.MaxState {
		return fmt.Errorf("%w: %d MiB, and %d MiB are allowed; narrow it down (WHERE, a window, a later start), or run it as an app, whose state is on disk",
			ErrState, size>>20, r.o.MaxState>>20)
	}
	if r.o.Progress != nil {
		st := r.task.Stats()
		p := Progress{Records: st.RecordsIn, Late: st.Late, Watermark: st.Watermark}
		for tp, end := range r.ends {
			p.Behind += max(0, end-r.at[tp])
		}
		r.o.Progress(p)
	}
	return nil
}
