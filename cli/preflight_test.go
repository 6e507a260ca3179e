package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPreflight: each of the classic mistakes that a script alone shows is told by check, and the same without the mistake is not.
// Those that only topics and records show are in TestCheckOnABroker and TestSampleChecks.
func TestPreflight(t *testing.T) {
	const (
		columns = "id BIGINT, v INT, ts TIMESTAMP(3), p AS PROCTIME()"
		timed   = columns + ", WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"
		source  = "'connector' = 'kafka', 'topic' = 'ev', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json'"
		window  = "SELECT id, COUNT(*) FROM TABLE(TUMBLE(TABLE ev, DESCRIPTOR(%), INTERVAL '1' MINUTE)) GROUP BY id, window_start, window_end"
		sink    = "'connector' = 'upsert-kafka', 'topic' = 'o', 'key.format' = 'json', 'value.format' = 'json'"
	)
	at := func(column string) string { return strings.Replace(window, "%", column, 1) }
	for _, c := range []struct {
		name, columns, source, sink, query string
		want                               string // in the output
		without                            string // the columns, options or query that are right
	}{
		{"processing time", timed, source, sink, at("p"), "W11: the window goes by processing time", at("ts")},
		{"processing time, interval join", timed, source, sink, "SELECT a.id, COUNT(*) FROM ev AS a JOIN ev AS b ON a.id = b.id AND a.p BETWEEN b.p - INTERVAL '1' MINUTE AND b.p GROUP BY a.id", "W11: the interval join goes by processing time", at("ts")},
		{"no TTL", timed, source, sink, "SELECT id, COUNT(*) FROM ev GROUP BY id", "W12: GROUP BY keeps a row for each key for ever", "SELECT /*+ STATE_TTL('ev' = '1 d') */ id, COUNT(*) FROM ev GROUP BY id"},
		{"no TTL, Top-N", timed, source, sink, "SELECT id, CAST(r AS BIGINT) FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY id ORDER BY v) AS r FROM ev) WHERE r <= 3", "W12: Top-N keeps", at("ts")},
		{"regular join", timed, source, sink, "SELECT a.id, CAST(b.v AS BIGINT) FROM ev AS a JOIN ev AS b ON a.id = b.id", "W13: the inner join keeps all rows of both sides", "SELECT a.id, CAST(b.v AS BIGINT) FROM ev AS a JOIN ev AS b ON a.id = b.id AND a.ts BETWEEN b.ts - INTERVAL '1' MINUTE AND b.ts"},
		{"zero delay", columns + ", WATERMARK FOR ts AS ts", source, sink, at("ts"), "W14: the watermark of", ""},
		{"one subtask", timed, source, sink, "SELECT CAST(1 AS BIGINT), COUNT(*) FROM ev", "W15: GROUP BY has no key", at("ts")},
		{"never late", timed, source + ", 'late-records' = 'late'", sink, "SELECT id, CAST(v AS BIGINT) FROM ev", "W17: table", ""},
		{"no watermark", columns, source, sink, "SELECT id, COUNT(*) FROM ev GROUP BY id", "W18: table", ""},
		{"window on no time", strings.Replace(timed, "v INT", "v TIMESTAMP(3)", 1), source, sink, at("v"), "E2121: column \"v\" is TIMESTAMP(3) and no time attribute: a window wants one", ""},
		{"not idempotent", timed, source, "'connector' = 'print'", at("ts"), "W22: table", ""},
		{"option without effect", timed, source + ", 'scan.parallelism' = '3'", sink, at("ts"), "W23: table", ""},
	} {
		run := func(query string) string {
			t.Helper()
			key := ", PRIMARY KEY (id) NOT ENFORCED"
			if c.sink != sink {
				key = ""
			}
			path := filepath.Join(t.TempDir(), "pipeline.sql")
			text := "CREATE TABLE ev (" + c.columns + ") WITH (" + c.source + ");\nCREATE TABLE o (id BIGINT, n BIGINT" + key + ") WITH (" + c.sink + ");\n" +
				"CREATE TABLE late (id BIGINT, v INT, ts TIMESTAMP(3)) WITH ('connector' = 'kafka', 'topic' = 'late', 'format' = 'json');\nINSERT INTO o " + query + ";\n"
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, stdout, stderr := millrace(t, nil, "check", "--offline", path)
			return stdout + stderr
		}
		if got := run(c.query); !strings.Contains(got, c.want) {
			t.Errorf("%s: no %q in\n%s", c.name, c.want, got)
		}
		if c.without == "" {
			continue
		}
		if got, code := run(c.without), c.want[:3]; strings.Contains(got, code) || strings.Contains(got, "error E") {
			t.Errorf("%s: %s where nothing is wrong:\n%s", c.name, code, got)
		}
	}
}
