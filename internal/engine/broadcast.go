package engine

import (
	"context"
	"fmt"
	"maps"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
)

// ends tells a task what the inputs hold now that others wait for.
func (l *life) ends(ctx context.Context, env *task.Env) error {
	for i := range env.Inputs {
		in := &env.Inputs[i]
		if !l.s.sub.plan.Inputs[i].Load {
			continue
		}
		var tps []record.TopicPartition
		for _, p := range in.Partitions {
			tps = append(tps, record.TopicPartition{Topic: in.Topic, Partition: p})
		}
		ends, err := l.w.cluster.StableOffsets(ctx, tps)
		if err != nil {
			return fmt.Errorf("find the end of input %s of subtask %s: %w", in.Topic, l.s.id, err)
		}
		in.Ends = map[int32]int64{}
		for tp, end := range ends {
			in.Ends[tp.Partition] = end
		}
	}
	return nil
}

// fetch starts to read the inputs; while broadcasts and tables are not loaded yet, only those.
func (l *life) fetch(offsets map[record.TopicPartition]int64) {
	offsets = maps.Clone(offsets)
	for i, p := range l.task.Until {
		delete(offsets, l.partition(i, p)) // it was read to its end before
	}
	if !l.task.Awaits() {
		l.w.poll.add(offsets, l.inbox)
		return
	}
	now := map[record.TopicPartition]int64{}
	l.waiting = map[record.TopicPartition]int64{}
	for tp, at := range offsets {
		if i := l.index[tp]; l.s.sub.inputs[i].broadcast || l.s.sub.plan.Inputs[i].First {
			now[tp] = at
		} else {
			l.waiting[tp] = at
		}
	}
	l.log.Info("waiting for the broadcast inputs and the tables to be loaded before other records are processed")
	l.w.poll.add(now, l.inbox)
}

// fetchRest starts to read the inputs that have waited for others to be loaded, once those are.
func (l *life) fetchRest() {
	if l.waiting == nil || l.task.Awaits() {
		return
	}
	l.log.Info("the broadcast inputs and the tables are loaded")
	l.w.poll.add(l.waiting, l.inbox)
	l.waiting = nil
}
