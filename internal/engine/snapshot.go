package engine

import (
	"math"
	"time"

	"github.com/millrace-stream/millrace/internal/record"
)

// Status returns a snapshot; it may be called at any time from any goroutine.
func (w *Worker) Status() Status {
	w.mu.Lock()
	st := Status{
		App: w.opts.Kafka.AppID, Instance: w.opts.Kafka.InstanceID, Version: w.opts.Version,
		State: w.state, Started: w.started, Fingerprint: w.opts.Plan.Fingerprint,
	}
	if w.failure != nil {
		st.Error = w.failure.Error()
	}
	subs := w.list()
	topo, cluster, owners := w.topo, w.cluster, w.owners
	st.Standbys = w.keeper.status()
	w.mu.Unlock()
	if topo == nil {
		return st
	}
	st.ClusterID, st.Incarnation = cluster.ID(), topo.incarnation
	st.Savepoint, st.Savepoints = w.savepointStatus(), w.saves.status()
	local := map[record.SubtaskID]bool{}
	for _, s := range subs {
		if s.finished() {
			continue
		}
		local[s.id] = true
		st.Subtasks = append(st.Subtasks, s.status())
	}
	for _, sub := range topo.subs {
		for k := range sub.parallelism {
			id := record.SubtaskID{SubTopology: sub.plan.ID, Index: k}
			o := OwnerStatus{Subtask: id.String(), Local: local[id], Member: owners[id].Member, Host: owners[id].Host}
			if o.Local && st.Instance != "" && o.Member != st.Instance { // we know better
				o.Member, o.Host = st.Instance, ""
			}
			st.Owners = append(st.Owners, o)
		}
	}
	return st
}

func (s *subtask) status() SubtaskStatus {
	s.mu.Lock()
	cur := s.stats
	out := SubtaskStatus{ID: s.id.String(), State: s.state}
	for _, m := range s.metrics {
		out.Metrics = append(out.Metrics, OperatorMetric{m.Operator, m.Name, m.Gauge, m.Value})
	}
	if s.lastErr != nil {
		out.Error = s.lastErr.Error()
	}
	if s.restore != nil {
		r := *s.restore
		out.Restore = &r
	}
	for _, p := range s.parts {
		tp := record.TopicPartition{Topic: s.sub.inputs[p.Input].topic, Partition: p.Partition}
		ps := PartitionStatus{Topic: tp.Topic, Partition: p.Partition, Position: p.Offset, Committed: -1, LastStable: -1}
		if c, ok := s.committed[tp]; ok {
			ps.Committed = c
		}
		if s.inbox != nil {
			if v, ok := s.inbox.lastStable(tp); ok {
				ps.LastStable = v
				if base := max(ps.Committed, 0); v > base {
					ps.Lag = v - base
				}
			}
			ps.Paused = s.inbox.isPaused()
		}
		out.Lag += ps.Lag
		out.Inputs = append(out.Inputs, ps)
	}
	s.mu.Unlock()

	t := s.totals
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := t.base
	addStats(&sum, cur)
	out.Epoch, out.LastCommit, out.CommitMs = t.epoch, t.lastCommit, float64(t.commitTook)/float64(time.Millisecond)
	out.RecordsIn, out.BytesIn, out.RecordsOut, out.BytesOut = sum.RecordsIn, sum.BytesIn, sum.RecordsOut, sum.BytesOut
	out.Late, out.DeadLetters, out.Skipped, out.Expired = sum.Late, sum.DeadLetters, sum.Skipped, sum.Expired
	out.Commits, out.Restarts = t.commits, t.restarts
	if t.checkpoint != (CheckpointStatus{}) {
		c := t.checkpoint
		out.Checkpoint = &c
	}
	out.StoreBytes, out.PendingBytes = t.storeBytes, t.pending
	out.SavepointHoldMs = float64(t.held.Load()) / float64(time.Millisecond)
	out.LastSavepointHoldMs = float64(t.lastHeld.Load()) / float64(time.Millisecond)
	out.BackpressureMs = time.Duration(t.backpressure.Load()).Milliseconds()
	if cur.Watermark != math.MinInt64 && (cur.RecordsIn > 0 || cur.Watermark != 0) {
		wm := cur.Watermark
		delay := time.Now().UnixMilli() - wm
		out.WatermarkMs, out.WatermarkDelayMs = &wm, &delay
	}
	return out
}
