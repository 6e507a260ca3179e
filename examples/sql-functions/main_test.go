package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/cli"
)

// TestCommands: each command on scripts knows the functions of this program.
func TestCommands(t *testing.T) {
	const create = "CREATE FUNCTION network AS 'example.network'; "
	script := filepath.Join(t.TempDir(), "one.sql")
	text := create + "CREATE TABLE networks (net STRING) WITH ('connector' = 'kafka', 'topic' = 'networks', 'format' = 'raw'); INSERT INTO networks SELECT network(a, 8) FROM (VALUES '10.1.2.3', 'nowhere') AS v (a) WHERE network(a, 8) IS NOT NULL;"
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"test", "."}, "ok    visits.test (2 tests)"},
		{[]string{"explain", "visits.sql"}, "NETWORK"},
		{[]string{"check", "--offline", "visits.sql"}, "W12"},
		{[]string{"plan", "diff", "visits.sql", "visits.sql"}, "kept "},
		{[]string{"sql", "--embedded", "--format", "csv", "-e", create + "SET 'execution.runtime-mode' = 'batch'; SELECT network('10.1.2.3', 24) AS net;"}, "10.1.2.0/24"},
		{[]string{"run", "--embedded", "--listen=off", script}, "networks: 10.0.0.0/8"},
	} {
		var out, errs bytes.Buffer
		if code := cli.Run(t.Context(), cli.Options{Functions: functions}, c.args, nil, &out, &errs); code != 0 || !strings.Contains(out.String(), c.want) {
			t.Errorf("%v: exit code %d, want 0 and %q:\n%s%s", c.args, code, c.want, out.String(), errs.String())
		}
	}
}
