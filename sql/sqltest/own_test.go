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
