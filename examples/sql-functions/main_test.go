package main

import (
	"testing"

	"github.com/millrace-stream/millrace/sql/sqltest"
)

// TestVisits runs the tests beside the script, with the functions of this program.
func TestVisits(t *testing.T) {
	f, err := sqltest.ReadTests("visits.test")
	if err != nil {
		t.Fatal(err)
	}
	results, err := f.Run(sqltest.TestOptions{Connectors: connectors(), Functions: functions})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Diff != "" {
			t.Errorf("%s (%s): %s", r.Name, r.Mode, r.Diff)
		}
	}
}
