package sqltest_test

import (
	"testing"

	"github.com/millrace-stream/millrace/sql/sqltest"
)

// TestOwn runs the cases whose answers were worked out by hand: what Flink cannot be asked, or answers otherwise.
func TestOwn(t *testing.T) {
	paths, err := sqltest.Find("testdata/own")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for m, mode := range sqltest.Modes {
		for _, p := range paths {
			if diff, _ := sqltest.CheckFile(p, sqltest.RunOptions{Mode: sqltest.Mode(m), Seed: 1}); diff != "" {
				t.Errorf("%s %s:\n%s", mode, p, diff)
			}
		}
	}
}

// TestOnePhase runs the cases of the oracle over three partitions with aggregates in one phase; TestOracle has two.
func TestOnePhase(t *testing.T) {
	paths, err := sqltest.Find(casesDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		o := sqltest.RunOptions{Mode: sqltest.Parallel, Seed: 1, Config: map[string]string{"table.optimizer.agg-phase-strategy": "ONE_PHASE"}}
		if diff, _ := sqltest.CheckFile(p, o); diff != "" {
			t.Errorf("%s:\n%s", p, diff)
		}
	}
}
