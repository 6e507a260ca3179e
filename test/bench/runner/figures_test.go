package main

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestMedianIsTheMiddleAndLeavesItsInputAlone(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want float64
	}{{nil, 0}, {[]float64{4}, 4}, {[]float64{9, 1, 5}, 5}, {[]float64{8, 2}, 5}, {[]float64{40, 10, 30, 20}, 25}} {
		in := append([]float64{}, c.in...)
		if got := median(in); got != c.want {
			t.Errorf("median(%v) = %v, want %v", c.in, got, c.want)
		}
		if len(in) > 0 && !reflect.DeepEqual(in, c.in) {
			t.Errorf("median changed %v into %v", c.in, in)
		}
	}
}

func TestRatesCountTheSteadyPartFromTheFirstCommit(t *testing.T) {
	first := point{at: 2 * time.Second, committed: 500_000, cpu: 1}
	last := point{at: 7 * time.Second, committed: 2_000_000, cpu: 4}
	want := m{"total_s": 7.0, "cpu_s": 4.0, "rps_total": int64(285_714), "rpcpu_total": int64(500_000),
		"rps_steady": int64(300_000), "rpcpu_steady": int64(500_000), "steady_share": 0.75}
	if got := rates(first, last, 2_000_000); !reflect.DeepEqual(got, want) {
		t.Errorf("rates = %v, want %v", got, want)
	}
	// Everything in the first commit: there is no steady part to tell of.
	first = point{at: last.at, committed: 2_000_000, cpu: last.cpu}
	if got := rates(first, last, 2_000_000); got["rps_steady"] != nil || got["rpcpu_total"] != int64(500_000) {
		t.Errorf("rates of a single commit = %v", got)
	}
}

func TestMovedTakesMoreThanTheMarkerOfAnAbort(t *testing.T) {
	base := map[int32]int64{0: 100, 1: 100, 2: 0, 3: 0}
	stable := map[int32]int64{0: 101, 1: 103, 2: 0, 3: 2}
	if n := moved(base, stable); n != 2 {
		t.Errorf("moved = %d partitions, want those with a row behind the marker: 1 and 3", n)
	}
}

func TestCPUAndMemoryAreReadFromProc(t *testing.T) {
	stat := "42 (a (b) c) S 1 42 42 0 -1 4194560 1 0 0 0 250 75 0 0 20 0 8 0 1 1 1"
	if got := cpuOf([]byte(stat)); got != 3.25 {
		t.Errorf("cpuOf = %v s, want 250+75 ticks of 10 ms", got)
	}
	if got := cpuOf([]byte("42 (gone) Z")); got != 0 {
		t.Errorf("cpuOf of a short line = %v", got)
	}
	peak, anon := memoryOf([]byte("Name:\tjob\nVmHWM:\t  153600 kB\nVmRSS:\t  140000 kB\nRssAnon:\t  112640 kB\nRssFile:\t 9 kB\n"))
	if peak != 150 || anon != 110 {
		t.Errorf("memoryOf = %d peak, %d anonymous MiB, want 150 and 110", peak, anon)
	}
}

func TestCommitsAreAddedUpOverSubtasks(t *testing.T) {
	page := `# HELP millrace_transactions_total Epochs by the outcome of their commit
# TYPE millrace_transactions_total counter
millrace_transactions_total{otel_scope_name="a}b",outcome="committed",subtask="0_0"} 12
millrace_transactions_total{outcome="aborted",subtask="0_0"} 5
millrace_transactions_total{outcome="committed",subtask="0_1"} 1.5e+01
millrace_transactions_total_other{outcome="committed"} 7
millrace_commit_duration_seconds_count{subtask="0_0"} 99
`
	if n := commitsOf(strings.NewReader(page)); n != 27 {
		t.Errorf("commitsOf = %v, want 12 + 15", n)
	}
}
