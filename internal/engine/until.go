package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/txn"
)

// until finds where the reading of inputs ends: where the subtask has found it before, else where it is now.
func (l *life) until(ctx context.Context, rec *txn.EpochRecord, env *task.Env) error {
	for i := range env.Inputs {
		end, in := l.s.sub.plan.Inputs[i].End, &env.Inputs[i]
		if end.Kind == task.EndNever {
			continue
		}
		in.Until = map[int32]int64{}
		var open []record.TopicPartition
		for _, p := range in.Partitions {
			in.Until[p] = end.Offsets[p] // what is not named is not read
			if end.Kind == task.EndOffsets {
				continue
			}
			if rec != nil {
				if at, ok := rec.Watermarks[task.EndID(in.Topic, p)]; ok {
					in.Until[p] = at
					continue
				}
			}
			open = append(open, record.TopicPartition{Topic: in.Topic, Partition: p})
		}
		if len(open) == 0 {
			continue
		}
		at, err := EndPositions(ctx, l.w.cluster, end, open)
		if err != nil {
			return fmt.Errorf("find where the reading of input %s of subtask %s ends: %w", in.Topic, l.s.id, err)
		}
		for _, tp := range open {
			in.Until[tp.Partition] = max(at[tp], 0)
		}
	}
	return nil
}

// EndPositions are the offsets that an End, which is not EndNever, means now for partitions of one topic; EndOffsets has
// none for what it does not name, of which nothing is read.
func EndPositions(ctx context.Context, c *txn.Cluster, end task.End, tps []record.TopicPartition) (map[record.TopicPartition]int64, error) {
	switch end.Kind {
	case task.EndOffsets:
		at := map[record.TopicPartition]int64{}
		for _, tp := range tps {
			at[tp] = end.Offsets[tp.Partition]
		}
		return at, nil
	case task.EndTimestamp:
		return c.OffsetsAt(ctx, tps, end.At)
	case task.EndGroup:
		return c.CommittedOffsets(ctx, end.Group, tps)
	default:
		return c.StableOffsets(ctx, tps)
	}
}

// dropEnded stops fetching partitions that were read to their end.
func (l *life) dropEnded() {
	for i, p := range l.task.Until {
		if tp := l.partition(i, p); !slices.Contains(l.over, tp) {
			l.over = append(l.over, tp)
			l.w.poll.remove([]record.TopicPartition{tp}, l.inbox)
		}
	}
}

// noteEnded tells the members, through the control topic, that a subtask has committed the end of its inputs. When the last
// one has, the app has ended. A worker that ends before it has told it need not: the next owner will.
func (w *Worker) noteEnded(id record.SubtaskID) {
	topo, e := w.topo, &w.ends
	e.note(id)
	w.saves.beside(func() {
		ctx := w.saves.ctx
		e.telling.Lock() // many end at the same time: the first tells of all
		defer e.telling.Unlock()
		if slices.Contains(w.control.State().Ended, id.String()) {
			return
		}
		err := again(ctx, w.opts.BackoffMin, writeTries, func() error {
			_, err := w.control.Update(ctx, func(s txn.ControlState) (txn.ControlState, error) {
				if s.Incarnation == topo.incarnation && s.Fingerprint == topo.fingerprint {
					s.Ended = e.with(s.Ended)
				}
				return s, nil
			})
			return err
		})
		if err != nil && ctx.Err() == nil {
			w.fail(fmt.Errorf("tell the members that subtask %s has read its inputs to their end: %w", id, err))
		}
	})
}

// ends are the subtasks that have committed the end of their inputs here.
type ends struct {
	telling sync.Mutex
	mu      sync.Mutex
	ids     []string
}

func (e *ends) note(id record.SubtaskID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ids = append(e.ids, id.String())
}

// with is a list of ids, and those of e, sorted.
func (e *ends) with(ids []string) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	ids = slices.Concat(ids, e.ids)
	slices.Sort(ids)
	return slices.Compact(ids)
}

// end ends the worker, since the app has.
func (w *Worker) end() {
	select {
	case w.ended <- struct{}{}:
	default:
	}
}

// allEnded says that every subtask has committed the end of its inputs (pure).
func (r *resolved) allEnded(s txn.ControlState) bool {
	n := 0
	for _, sub := range r.subs {
		n += sub.parallelism
	}
	return s.Incarnation == r.incarnation && s.Fingerprint == r.fingerprint && len(s.Ended) == n
}
