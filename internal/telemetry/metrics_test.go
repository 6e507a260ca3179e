package telemetry

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

var update = flag.Bool("update", false, "write docs/metrics.md anew")

// full is a status in which every metric has a value.
func full() engine.Status {
	mark, delay := int64(1700000000000), int64(1500)
	return engine.Status{
		App: "app", State: engine.StateRunning,
		Subtasks: []engine.SubtaskStatus{
			{
				ID: "0_1", State: engine.SubtaskRunning, LastCommit: time.UnixMilli(1700000000500), WatermarkMs: &mark, WatermarkDelayMs: &delay, Lag: 9,
				Inputs:    []engine.PartitionStatus{{Topic: "orders", Partition: 1, Lag: 5}, {Topic: "orders", Partition: 3, Lag: 4}},
				RecordsIn: 10, BytesIn: 20, RecordsOut: 30, BytesOut: 40, Late: 1, DeadLetters: 2, Skipped: 3, Expired: 4,
				Metrics: []engine.OperatorMetric{{Operator: "p", Name: "seen", Value: 5}, {Operator: "p", Name: "open", Gauge: true, Value: 6}}, BackpressureMs: 2500, StoreBytes: 60, PendingBytes: 70,
				Checkpoint:      &engine.CheckpointStatus{At: time.UnixMilli(1700000001500), Bytes: 80, Completed: 1},
				SavepointHoldMs: 300, LastSavepointHoldMs: 100,
			},
			{ID: "1_0", State: engine.SubtaskRestoring, Restore: &engine.RestoreStatus{Records: 7, Bytes: 8, Remaining: 9, Downloaded: 10, Download: 25}},
		},
		Standbys:   []engine.StandbyStatus{{ID: "0_2", State: engine.StandbyFollowing, Lag: 11, StoreBytes: 90}, {ID: "0_3", State: engine.StandbyRestoring, Lag: -1}},
		Savepoints: engine.SavepointTotals{Completed: 3, Failed: 1, At: time.UnixMilli(1700000002500), TookMs: 1500, Bytes: 110, Written: 400},
	}
}

func newMetrics(t *testing.T, status func() engine.Status) *Metrics {
	t.Helper()
	m, err := NewMetrics(Options{App: "app", Instance: "i-1", Version: "v1.2.3", Status: status})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// scrape reads the metrics as Prometheus does.
func scrape(t *testing.T, m *Metrics) map[string]*dto.MetricFamily {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("scrape: %d %s", w.Code, w.Body)
	}
	p := expfmt.NewTextParser(model.LegacyValidation)
	families, err := p.TextToMetricFamilies(bytes.NewReader(w.Body.Bytes()))
	if err != nil {
		t.Fatalf("parse: %v\n%s", err, w.Body)
	}
	return families
}

// values are the values of a family by labels, as in "subtask=0_1".
func values(f *dto.MetricFamily) map[string]float64 {
	out := map[string]float64{}
	for _, m := range f.GetMetric() {
		var labels []string
		for _, l := range m.GetLabel() {
			labels = append(labels, l.GetName()+"="+l.GetValue())
		}
		slices.Sort(labels)
		v := m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
		if h := m.GetHistogram(); h != nil {
			v = float64(h.GetSampleCount())
		}
		out[strings.Join(labels, " ")] = v
	}
	return out
}

func TestMetrics(t *testing.T) {
	m := newMetrics(t, full)
	var observer engine.Observer = m
	id := record.SubtaskID{SubTopology: 0, Index: 1}
	observer.CommitDone(id, "committed", 12*time.Millisecond)
	observer.CommitDone(id, "committed", 40*time.Millisecond)
	observer.CommitDone(id, "fenced", time.Second)
	observer.RestoreDone(id, "changelog", 100, 2000, 3*time.Second)
	observer.CheckpointDone(id, true, 300, 2*time.Second)
	observer.CheckpointDone(id, false, 0, 0)
	observer.SubtaskRestarted(id, "fenced")
	observer.OffsetsSkipped(record.TopicPartition{Topic: "orders", Partition: 3}, 40)
	got := scrape(t, m)
	const one = "subtask=0_1"
	both := func(v float64) map[string]float64 { return map[string]float64{one: v, "subtask=1_0": 0} }
	for name, want := range map[string]map[string]float64{
		"millrace_worker_state": {"state=starting": 0, "state=joining": 0, "state=running": 1, "state=stopping": 0, "state=stopped": 0, "state=failed": 0},
		"millrace_subtask_state": {
			"state=fencing subtask=0_1": 0, "state=restoring subtask=0_1": 0, "state=running subtask=0_1": 1, "state=stopping subtask=0_1": 0, "state=backing-off subtask=0_1": 0,
			"state=fencing subtask=1_0": 0, "state=restoring subtask=1_0": 1, "state=running subtask=1_0": 0, "state=stopping subtask=1_0": 0, "state=backing-off subtask=1_0": 0,
		},
		"millrace_standby_lag_records":              {"subtask=0_2": 11},
		"millrace_standby_store_bytes":              {"subtask=0_2": 90, "subtask=0_3": 0},
		"millrace_subtask_restarts_total":           {"reason=fenced subtask=0_1": 1},
		"millrace_records_in_total":                 both(10),
		"millrace_bytes_in_total":                   both(20),
		"millrace_records_out_total":                both(30),
		"millrace_bytes_out_total":                  both(40),
		"millrace_lag_records":                      {"partition=1 subtask=0_1 topic=orders": 5, "partition=3 subtask=0_1 topic=orders": 4},
		"millrace_watermark_delay_seconds":          {one: 1.5},
		"millrace_late_records_total":               both(1),
		"millrace_dead_letters_total":               both(2),
		"millrace_skipped_records_total":            both(3),
		"millrace_state_expired_total":              both(4),
		"millrace_operator_counter_total":           {"name=seen operator=p subtask=0_1": 5},
		"millrace_operator_gauge":                   {"name=open operator=p subtask=0_1": 6},
		"millrace_skipped_offsets_total":            {"partition=3 topic=orders": 40},
		"millrace_backpressure_seconds_total":       both(2.5),
		"millrace_transactions_total":               {"outcome=committed subtask=0_1": 2, "outcome=fenced subtask=0_1": 1},
		"millrace_commit_duration_seconds":          {one: 3},
		"millrace_last_commit_timestamp_seconds":    {one: 1700000000.5},
		"millrace_store_bytes":                      both(60),
		"millrace_state_pending_bytes":              both(70),
		"millrace_restore_records":                  {"subtask=1_0": 7},
		"millrace_restore_bytes":                    {"subtask=1_0": 8},
		"millrace_restore_remaining":                {"subtask=1_0": 9},
		"millrace_restored_records_total":           {one: 100},
		"millrace_restored_bytes_total":             {one: 2000},
		"millrace_restore_duration_seconds":         {"subtask=0_1 way=changelog": 1},
		"millrace_restore_download_bytes":           {"subtask=1_0": 10},
		"millrace_restore_download_remaining_bytes": {"subtask=1_0": 15},
		"millrace_checkpoints_total":                {"outcome=completed subtask=0_1": 1, "outcome=failed subtask=0_1": 1},
		"millrace_checkpoint_uploaded_bytes_total":  {one: 300},
		"millrace_checkpoint_duration_seconds":      {one: 1},
		"millrace_checkpoint_timestamp_seconds":     {one: 1700000001.5},
		"millrace_checkpoint_size_bytes":            {one: 80},
		"millrace_savepoints_total":                 {"outcome=completed": 3, "outcome=failed": 1},
		"millrace_savepoint_timestamp_seconds":      {"": 1700000002.5},
		"millrace_savepoint_duration_seconds":       {"": 1.5},
		"millrace_savepoint_size_bytes":             {"": 110},
		"millrace_savepoint_written_bytes_total":    {"": 400},
		"millrace_savepoint_hold_seconds_total":     both(0.3),
		"millrace_savepoint_last_hold_seconds":      both(0.1),
		"target_info":                               {"service_instance_id=i-1 service_name=app service_version=v1.2.3": 1},
	} {
		f := got[name]
		if f == nil {
			t.Errorf("%s is missing; there are %v", name, slices.Sorted(maps.Keys(got)))
			continue
		}
		if v := values(f); !maps.Equal(v, want) {
			t.Errorf("%s:\n got %v\nwant %v", name, v, want)
		}
	}
	if h := got[commitDuration].GetMetric()[0].GetHistogram(); h.GetSampleSum() != 1.052 || h.GetBucket()[3].GetCumulativeCount() != 1 {
		t.Errorf("commit duration: %v", h)
	}
	for _, name := range []string{"go_goroutines", "go_memstats_heap_alloc_bytes", "go_gc_duration_seconds", "process_cpu_seconds_total"} {
		if got[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
}

// TestCatalog: what is exported is what the catalog says, name, type, labels and help.
func TestCatalog(t *testing.T) {
	m := newMetrics(t, full)
	m.CommitDone(record.SubtaskID{}, "committed", time.Second)
	m.RestoreDone(record.SubtaskID{}, "changelog", 1, 1, time.Second)
	m.CheckpointDone(record.SubtaskID{}, true, 1, time.Second)
	m.SubtaskRestarted(record.SubtaskID{}, "retry")
	m.OffsetsSkipped(record.TopicPartition{Topic: "orders"}, 1)
	got := scrape(t, m)
	for _, d := range catalog {
		f := got[d.name]
		delete(got, d.name)
		if f == nil {
			t.Errorf("%s is not exported", d.name)
			continue
		}
		if k := strings.ToLower(f.GetType().String()); k != string(d.kind) || f.GetHelp() != d.help {
			t.Errorf("%s is exported as a %s: %s", d.name, k, f.GetHelp())
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		if want := slices.Sorted(slices.Values(d.labels)); !slices.Equal(slices.Sorted(slices.Values(labels)), want) {
			t.Errorf("%s has the labels %v, want %v", d.name, labels, want)
		}
	}
	for name := range got {
		if !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") && name != "target_info" {
			t.Errorf("%s is exported but not in the catalog", name)
		}
	}
}

// TestSeriesEnd: a subtask that has gone leaves no stale gauges behind, and values move.
func TestSeriesEnd(t *testing.T) {
	s := full()
	m := newMetrics(t, func() engine.Status { return s })
	scrape(t, m)
	s.Subtasks = s.Subtasks[:1]
	s.Subtasks[0].RecordsIn = 11
	got := scrape(t, m)
	if v := values(got["millrace_records_in_total"]); !maps.Equal(v, map[string]float64{"subtask=0_1": 11}) {
		t.Errorf("records in: %v", v)
	}
	if got["millrace_restore_records"] != nil {
		t.Error("a restore that has ended is still shown")
	}
}

// TestManyPartitions: no series is folded into an overflow.
func TestManyPartitions(t *testing.T) {
	s := engine.Status{Subtasks: []engine.SubtaskStatus{{ID: "0_0"}}}
	for i := range int32(3000) {
		s.Subtasks[0].Inputs = append(s.Subtasks[0].Inputs, engine.PartitionStatus{Topic: "t", Partition: i, Lag: 1})
	}
	if n := len(values(scrape(t, newMetrics(t, func() engine.Status { return s }))["millrace_lag_records"])); n != 3000 {
		t.Errorf("%d series, want 3000", n)
	}
}

func TestTwoWorkersAndClose(t *testing.T) {
	a := newMetrics(t, full)
	b := newMetrics(t, func() engine.Status { return engine.Status{State: engine.StateFailed} })
	b.SubtaskRestarted(record.SubtaskID{}, "retry")
	if got := scrape(t, a); got[restarts] != nil || len(got["millrace_store_bytes"].GetMetric()) != 2 {
		t.Error("workers share metrics")
	}
	a.Close()
	a.Close()
	a.CommitDone(record.SubtaskID{}, "committed", time.Second) // late observers do no harm
	if v := values(scrape(t, b)["millrace_worker_state"]); v["state=failed"] != 1 {
		t.Errorf("worker state: %v", v)
	}
}

// page is the documentation of the catalog.
func page() string {
	var b strings.Builder
	b.WriteString(`# Metrics

A worker serves these at /metrics in the Prometheus text format. Counters are totals of the process: a subtask that moves
to another worker goes on there from 0. The label subtask is the subtask's id, such as 0_3.

This page is written by the test of internal/telemetry: change catalog.go there, then run
` + "`go test ./internal/telemetry -update`" + `.

| Metric | Type | Unit | Labels | Meaning |
|---|---|---|---|---|
`)
	units := map[string]string{"": "-", "s": "seconds", "By": "bytes"}
	for _, d := range catalog {
		unit, ok := units[d.unit]
		if !ok {
			unit = strings.Trim(d.unit, "{}") + "s"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", d.name, d.kind, unit, strings.Join(d.labels, ", "), d.help)
	}
	b.WriteString(`
` + "`target_info`" + ` carries the resource: service_name (the app id), service_instance_id, service_version, and what
OTEL_RESOURCE_ATTRIBUTES adds. The Go runtime and the process have the usual metrics of Prometheus' Go client, among them
` + "`go_goroutines`, `go_memstats_heap_alloc_bytes`, `go_gc_duration_seconds`, `process_cpu_seconds_total`,\n`process_resident_memory_bytes` and `process_open_fds`" + `.
`)
	return b.String()
}

func TestDocs(t *testing.T) {
	const path = "../../docs/metrics.md"
	want := page()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s does not say what the catalog says; run: go test ./internal/telemetry -update", path)
	}
}
