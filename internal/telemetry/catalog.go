package telemetry

import (
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/millrace-stream/millrace/internal/engine"
)

// kind of a metric, as Prometheus calls it.
type kind string

const (
	counter   kind = "counter"
	gauge     kind = "gauge"
	histogram kind = "histogram"
)

// definition is one metric: the single place from which instruments and documentation are made.
type definition struct {
	name   string // in Prometheus
	otel   string // in OpenTelemetry; the exporter makes name of it
	unit   string // UCUM, as OpenTelemetry wants it
	kind   kind
	labels []string
	help   string
	// read puts the values of a status; nil for what the engine reports as it happens.
	read    func(s *engine.Status, put putter)
	buckets []float64 // of histograms
}

type putter func(v float64, attrs ...attribute.KeyValue)

// The metrics that the engine reports as they happen.
const (
	transactions    = "millrace_transactions_total"
	commitDuration  = "millrace_commit_duration_seconds"
	restarts        = "millrace_subtask_restarts_total"
	skippedOffsets  = "millrace_skipped_offsets_total"
	restoredRecords = "millrace_restored_records_total"
	restoredBytes   = "millrace_restored_bytes_total"
	restoreDuration = "millrace_restore_duration_seconds"
	checkpoints     = "millrace_checkpoints_total"
	checkpointBytes = "millrace_checkpoint_uploaded_bytes_total"
	checkpointTime  = "millrace_checkpoint_duration_seconds"
)

var (
	perSubtask   = []string{"subtask"}
	perPartition = []string{"subtask", "topic", "partition"}
	perOperator  = []string{"subtask", "operator", "name"}
)

// subtasks reads one value of each subtask.
func subtasks(value func(*engine.SubtaskStatus) float64) func(*engine.Status, putter) {
	return func(s *engine.Status, put putter) {
		for i := range s.Subtasks {
			t := &s.Subtasks[i]
			put(value(t), attribute.String("subtask", t.ID))
		}
	}
}

// operatorMetrics reads the gauges, or the counters, of operators.
func operatorMetrics(gauges bool) func(*engine.Status, putter) {
	return func(s *engine.Status, put putter) {
		for _, t := range s.Subtasks {
			for _, m := range t.Metrics {
				if m.Gauge == gauges {
					put(m.Value, attribute.String("subtask", t.ID), attribute.String("operator", m.Operator), attribute.String("name", m.Name))
				}
			}
		}
	}
}

// restoring reads one value of each subtask that is being restored.
func restoring(value func(*engine.RestoreStatus) float64) func(*engine.Status, putter) {
	return func(s *engine.Status, put putter) {
		for _, t := range s.Subtasks {
			if t.Restore != nil {
				put(value(t.Restore), attribute.String("subtask", t.ID))
			}
		}
	}
}

// checkpointed reads one value of each subtask that has completed a checkpoint.
func checkpointed(value func(*engine.CheckpointStatus) float64) func(*engine.Status, putter) {
	return func(s *engine.Status, put putter) {
		for _, t := range s.Subtasks {
			if t.Checkpoint != nil && t.Checkpoint.Completed > 0 {
				put(value(t.Checkpoint), attribute.String("subtask", t.ID))
			}
		}
	}
}

// saved reads one value of the savepoints, once one is completed.
func saved(value func(*engine.SavepointTotals) float64) func(*engine.Status, putter) {
	return func(s *engine.Status, put putter) {
		if s.Savepoints.Completed > 0 {
			put(value(&s.Savepoints))
		}
	}
}

// partitions reads one value of each input partition.
func partitions(value func(*engine.PartitionStatus) float64) func(*engine.Status, putter) {
	return func(s *engine.Status, put putter) {
		for _, t := range s.Subtasks {
			for i := range t.Inputs {
				p := &t.Inputs[i]
				put(value(p), attribute.String("subtask", t.ID), attribute.String("topic", p.Topic),
					attribute.String("partition", strconv.Itoa(int(p.Partition))))
			}
		}
	}
}

// states puts 1 for the state that holds and 0 for all others.
func states[S ~string](put putter, now S, all []S, attrs ...attribute.KeyValue) {
	for _, s := range all {
		v := 0.0
		if s == now {
			v = 1
		}
		put(v, append(attrs[:len(attrs):len(attrs)], attribute.String("state", string(s)))...)
	}
}

var workerStates = []engine.State{
	engine.StateStarting, engine.StateJoining, engine.StateRunning, engine.StateStopping, engine.StateStopped, engine.StateFailed,
}

var subtaskStates = []engine.SubtaskState{
	engine.SubtaskFencing, engine.SubtaskRestoring, engine.SubtaskRunning, engine.SubtaskStopping, engine.SubtaskBackingOff,
}

func find(name string) definition {
	for _, d := range catalog {
		if d.name == name {
			return d
		}
	}
	return definition{}
}

// catalog lists every metric but those of the Go runtime and the process. docs/metrics.md is made of it.
var catalog = []definition{
	{name: "millrace_worker_state", otel: "millrace.worker.state", kind: gauge, labels: []string{"state"},
		help: "1 for the state that the worker is in, 0 for the others.",
		read: func(s *engine.Status, put putter) { states(put, s.State, workerStates) }},
	{name: "millrace_subtask_state", otel: "millrace.subtask.state", kind: gauge, labels: []string{"subtask", "state"},
		help: "1 for the state that a subtask of this worker is in, 0 for the others.",
		read: func(s *engine.Status, put putter) {
			for _, t := range s.Subtasks {
				states(put, t.State, subtaskStates, attribute.String("subtask", t.ID))
			}
		}},
	{name: restarts, otel: "millrace.subtask.restarts", unit: "{restart}", kind: counter, labels: []string{"subtask", "reason"},
		help: "Times that a subtask was taken over again after a fault. The reason names the recovery: retry, fenced (taken over by another, or an unknown outcome) or corrupt (the store is rebuilt)."},

	{name: "millrace_records_in_total", otel: "millrace.records.in", unit: "{record}", kind: counter, labels: perSubtask,
		help: "Records processed. Like all counters of records it counts work done, so a record of an epoch that was aborted counts again.",
		read: subtasks(func(t *engine.SubtaskStatus) float64 { return float64(t.RecordsIn) })},
	{name: "millrace_bytes_in_total", otel: "millrace.bytes.in", unit: "By", kind: counter, labels: perSubtask,
		help: "Bytes of keys and values processed.",
		read: subtasks(func(t *engine.SubtaskStatus) float64 { return float64(t.BytesIn) })},
	{name: "millrace_records_out_total", otel: "millrace.records.out", unit: "{record}", kind: counter, labels: perSubtask,
		help: "Records written to output and repartition topics.",
		read: subtasks(func(t *engine.SubtaskStatus) float64 { return float64(t.RecordsOut) })},
	{name: "millrace_bytes_out_total", otel: "millrace.bytes.out", unit: "By", kind: counter, labels: perSubtask,
		help: "Bytes of keys and values written to output and repartition topics.",
		read: subtasks(func(t *engine.SubtaskStatus) float64 { return float64(t.BytesOut) })},

	{name: "millrace_lag_records", otel: "millrace.lag.records", unit: "{record}", kind: gauge, labels: perPartition,
		help: "Offsets between the last committed one and the last stable one of an input partition.",
		read: partitions(func(p *engine.PartitionStatus) float64 { return float64(p.Lag) })},
	{name: "millrace_watermark_delay_seconds", otel: "millrace.watermark.delay", unit: "s", kind: gauge, labels: perSubtask,
		help: "Wall clock less watermark: how far event time lags behind. Absent before the first watermark.",
		read: func(s *engine.Status, put putter) {
			for _, t := range s.Subtasks {
				if t.WatermarkDelayMs != nil {
					put(float64(*t.WatermarkDelayMs)/1000, attribute.String("subtask", t.ID))
				}
			}
		}},
	{name: "millrace_late_records_total", otel: "millrace.late.records", unit: "{record}", kind: counter, labels: perSubtask,
		help: "Records that came behind the watermark and were dropped or sent to a late output.",
		read: subtasks(func(t *engine.SubtaskStatus) float64 { return float64(t.Late) })},
	{name: "millrace_dead_letters_total", otel: "millrace.dead_letters", unit: "{record}", kind: counter, labels: perSubtask,
		help: "Bad records sent to the dead-letter topic.",
		read: subtasks(func(t *engine.SubtaskStatus) float64 { return float64(t.DeadLetters) })},
	{name: "millrace_skipped_records_total", otel: "millrace.skipped.records", unit: "{record}", kind: counter, labels: perSubtask,
		help: "Bad records skipped by policy.",
		read: subtasks(func(t *engine.SubtaskStatus) float64 { return float64(t.Skipped) })},
	{name: "millrace_state_expired_total", otel: "millrace.state.expired", unit: "{value}", kind: counter, labels: perSubtask,
		help: "Values of state with a TTL that had expired and were removed.",
		read: subtasks(func(t *engine.SubtaskStatus) float64 { return float64(t.Expired) })},
	{name: "millrace_operator_counter_total", otel: "millrace.operator.counter", kind: counter, labels: perOperator,
		help: "Counters that operators keep by themselves (Metrics of their context), since the subtask was taken over.",
		read: operatorMetrics(false)},
	{name: "millrace_operator_gauge", otel: "millrace.operator.gauge", kind: gauge, labels: perOperator,
		help: "Gauges that operators keep by themselves (Metrics of their context).",
		read: operatorMetrics(true)},
	{name: skippedOffsets, otel: "millrace.skipped.offsets", unit: "{offset}", kind: counter, labels: []string{"topic", "partition"},
		help: "Input offsets that were deleted before they were read, where errors.out-of-range=earliest goes on without them."},
	{name: "millrace_backpressure_seconds_total", otel: "millrace.backpressure", unit: "s", kind: counter, labels: perSubtask,
		help: "Time in which inputs were paused because the subtask was behind.",
		read: subtasks(func(t *engine.SubtaskStatus) float64 { return float64(t.BackpressureMs) / 1000 })},

	{name: transactions, otel: "millrace.transactions", unit: "{transaction}", kind: counter, labels: []string{"subtask", "outcome"},
		help: "Epochs by the outcome of their commit: committed, aborted, fenced or unknown."},
	{name: commitDuration, otel: "millrace.commit.duration", unit: "s", kind: histogram, labels: perSubtask,
		help:    "How long the commit of an epoch took: epoch record, flush, offsets and EndTxn, whatever the outcome.",
		buckets: []float64{.002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10}},
	{name: "millrace_last_commit_timestamp_seconds", otel: "millrace.last.commit.timestamp", unit: "s", kind: gauge, labels: perSubtask,
		help: "Unix time of the last commit. Absent before the first. An idle subtask does not commit.",
		read: func(s *engine.Status, put putter) {
			for _, t := range s.Subtasks {
				if !t.LastCommit.IsZero() {
					put(float64(t.LastCommit.UnixMilli())/1000, attribute.String("subtask", t.ID))
				}
			}
		}},

	{name: "millrace_store_bytes", otel: "millrace.store", unit: "By", kind: gauge, labels: perSubtask,
		help: "Size of the subtask's state store, on disk or in memory.",
		read: subtasks(func(t *engine.SubtaskStatus) float64 { return float64(t.StoreBytes) })},
	{name: "millrace_state_pending_bytes", otel: "millrace.state.pending", unit: "By", kind: gauge, labels: perSubtask,
		help: "State that is committed and not yet in the store: what a crash makes the subtask read again from its changelog.",
		read: subtasks(func(t *engine.SubtaskStatus) float64 { return float64(t.PendingBytes) })},

	{name: "millrace_standby_lag_records", otel: "millrace.standby.lag.records", unit: "{record}", kind: gauge, labels: perSubtask,
		help: "Changelog records that a standby of this process is behind: what a takeover here would have to read. Absent while that is not known.",
		read: func(s *engine.Status, put putter) {
			for _, b := range s.Standbys {
				if b.Lag >= 0 {
					put(float64(b.Lag), attribute.String("subtask", b.ID))
				}
			}
		}},
	{name: "millrace_standby_store_bytes", otel: "millrace.standby.store", unit: "By", kind: gauge, labels: perSubtask,
		help: "Size of the state that a standby of this process keeps.",
		read: func(s *engine.Status, put putter) {
			for _, b := range s.Standbys {
				put(float64(b.StoreBytes), attribute.String("subtask", b.ID))
			}
		}},

	{name: "millrace_restore_records", otel: "millrace.restore.records", unit: "{record}", kind: gauge, labels: perSubtask,
		help: "Changelog records that the running restore has read. Absent when nothing is restored, as are the next two.",
		read: restoring(func(r *engine.RestoreStatus) float64 { return float64(r.Records) })},
	{name: "millrace_restore_bytes", otel: "millrace.restore", unit: "By", kind: gauge, labels: perSubtask,
		help: "Changelog bytes that the running restore has read.",
		read: restoring(func(r *engine.RestoreStatus) float64 { return float64(r.Bytes) })},
	{name: "millrace_restore_remaining", otel: "millrace.restore.remaining", unit: "{offset}", kind: gauge, labels: perSubtask,
		help: "Changelog offsets that the running restore has still to read; an upper bound, since compaction leaves holes.",
		read: restoring(func(r *engine.RestoreStatus) float64 { return float64(r.Remaining) })},
	{name: "millrace_restore_download_bytes", otel: "millrace.restore.download", unit: "By", kind: gauge, labels: perSubtask,
		help: "Bytes of a checkpoint that the running restore has downloaded; 0 if it needs none.",
		read: restoring(func(r *engine.RestoreStatus) float64 { return float64(r.Downloaded) })},
	{name: "millrace_restore_download_remaining_bytes", otel: "millrace.restore.download.remaining", unit: "By", kind: gauge, labels: perSubtask,
		help: "Bytes of a checkpoint that the running restore has still to download.",
		read: restoring(func(r *engine.RestoreStatus) float64 { return float64(r.Download - r.Downloaded) })},
	{name: restoredRecords, otel: "millrace.restored.records", unit: "{record}", kind: counter, labels: perSubtask,
		help: "Changelog records read by restores that ended, those of standbys included."},
	{name: restoredBytes, otel: "millrace.restored.bytes", unit: "By", kind: counter, labels: perSubtask,
		help: "Changelog bytes read by restores that ended."},
	{name: restoreDuration, otel: "millrace.restore.duration", unit: "s", kind: histogram, labels: []string{"subtask", "way"},
		help:    "How long restores took, by what they started from: local store, checkpoint or changelog.",
		buckets: []float64{.01, .05, .1, .5, 1, 5, 10, 30, time.Minute.Seconds(), 5 * time.Minute.Seconds(), 30 * time.Minute.Seconds()}},

	{name: checkpoints, otel: "millrace.checkpoints", unit: "{checkpoint}", kind: counter, labels: []string{"subtask", "outcome"},
		help: "Checkpoints by outcome: completed or failed. Alert when some fail and none is completed: a lost disk then costs a long restore."},
	{name: checkpointBytes, otel: "millrace.checkpoint.uploaded", unit: "By", kind: counter, labels: perSubtask,
		help: "Bytes uploaded for checkpoints that were completed; files that an older one shares are not uploaded again."},
	{name: checkpointTime, otel: "millrace.checkpoint.duration", unit: "s", kind: histogram, labels: perSubtask,
		help:    "How long checkpoints took that were completed. Processing goes on meanwhile.",
		buckets: []float64{.05, .1, .5, 1, 5, 10, 30, time.Minute.Seconds(), 5 * time.Minute.Seconds(), 30 * time.Minute.Seconds()}},
	{name: "millrace_checkpoint_timestamp_seconds", otel: "millrace.checkpoint.timestamp", unit: "s", kind: gauge, labels: perSubtask,
		help: "Unix time of the last completed checkpoint that this process made. Absent before the first.",
		read: checkpointed(func(c *engine.CheckpointStatus) float64 { return float64(c.At.UnixMilli()) / 1000 })},
	{name: "millrace_checkpoint_size_bytes", otel: "millrace.checkpoint.size", unit: "By", kind: gauge, labels: perSubtask,
		help: "Size of the last completed checkpoint, with the files that it shares with older ones.",
		read: checkpointed(func(c *engine.CheckpointStatus) float64 { return float64(c.Bytes) })},

	{name: "millrace_savepoints_total", otel: "millrace.savepoints", unit: "{savepoint}", kind: counter, labels: []string{"outcome"},
		help: "Savepoints of the app of whose end this process has heard, by outcome: completed or failed. Every process counts all of them: do not sum them up.",
		read: func(s *engine.Status, put putter) {
			put(float64(s.Savepoints.Completed), attribute.String("outcome", "completed"))
			put(float64(s.Savepoints.Failed), attribute.String("outcome", "failed"))
		}},
	{name: "millrace_savepoint_timestamp_seconds", otel: "millrace.savepoint.timestamp", unit: "s", kind: gauge,
		help: "Unix time at which the last savepoint was completed. Absent before the first that this process has heard of, as are the next two.",
		read: saved(func(t *engine.SavepointTotals) float64 { return float64(t.At.UnixMilli()) / 1000 })},
	{name: "millrace_savepoint_duration_seconds", otel: "millrace.savepoint.duration", unit: "s", kind: gauge,
		help: "How long the last completed savepoint took, from the request on. Processing stood still for a part of that only: see millrace_savepoint_last_hold_seconds.",
		read: saved(func(t *engine.SavepointTotals) float64 { return float64(t.TookMs) / 1000 })},
	{name: "millrace_savepoint_size_bytes", otel: "millrace.savepoint.size", unit: "By", kind: gauge,
		help: "Bytes of the last completed savepoint that this process has written; the sum over all processes is its size.",
		read: saved(func(t *engine.SavepointTotals) float64 { return float64(t.Bytes) })},
	{name: "millrace_savepoint_written_bytes_total", otel: "millrace.savepoint.written", unit: "By", kind: counter,
		help: "Bytes that this process has written to savepoints, those that failed later on included.",
		read: func(s *engine.Status, put putter) { put(float64(s.Savepoints.Written)) }},
	{name: "millrace_savepoint_hold_seconds_total", otel: "millrace.savepoint.hold", unit: "s", kind: counter, labels: perSubtask,
		help: "Time in which processing stood still for savepoints: while the subtask flushed its state and waited for the others.",
		read: subtasks(func(t *engine.SubtaskStatus) float64 { return t.SavepointHoldMs / 1000 })},
	{name: "millrace_savepoint_last_hold_seconds", otel: "millrace.savepoint.last.hold", unit: "s", kind: gauge, labels: perSubtask,
		help: "How long processing stood still for the last savepoint.",
		read: subtasks(func(t *engine.SubtaskStatus) float64 { return t.LastSavepointHoldMs / 1000 })},
}
