package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/sql/catalog"
	"github.com/millrace-stream/millrace/sql/sqltest"
)

const orderTotals = "../examples/sql/order-totals.sql"

// TestScripts compares what the commands on scripts write, and their exit codes, with golden files. What plans look like is
// a matter of package sql's goldens: of these commands the parts are looked for.
func TestScripts(t *testing.T) {
	edited := filepath.Join(t.TempDir(), "edited.sql")
	text, err := os.ReadFile(orderTotals)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.Replace(text, []byte("INTERVAL '10' SECOND"), []byte("INTERVAL '1' MINUTE"), 1)
	if err := os.WriteFile(edited, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, args string
		code       int
		parts      []string // nil = golden
	}{
		{"sql-explain", "explain " + orderTotals, exitOK, []string{"== Logical plan ==\nSink order_counts", "WindowTVF TUMBLE(ts, size 10 s)", "== Physical plan ==\nSink order_counts", "I,U after",
			"== Sub-topologies of app order-totals ==\n0\n  reads  orders\n", "-repartition\n  writes order-counts\n", "(table) in order-totals-2-changelog"}},
		{"sql-explain-json", "explain --format json --app.id=named testdata/sql/warned.sql", exitOK, []string{`"app": "named"`, `"logical": [`, `"text": "Sink pages`, `"changes": "I,U after"`,
			`"topic": "hits"`, `"changelog": "named-1-changelog"`, `"code": "W12"`}},
		{"sql-mistakes", "explain testdata/sql/mistakes.sql", exitUsage, nil},
		{"sql-diff-same", "plan diff " + orderTotals + " " + orderTotals, exitOK, []string{"kept     ", "TUMBLE(ts, size 10 s)", "kept     input orders\n-- stderr\n"}},
		{"sql-diff", "plan diff " + orderTotals + " " + edited, exitFailed, []string{"kept     ", "rebuilt  ", "           since ", " became ", "kept     input orders\n", "-- stderr\nmillrace: the new script gives up state"}},
		{"sql-diff-json", "plan diff --format json " + orderTotals + " testdata/sql/warned.sql", exitFailed, []string{`"lost": true`, `"change": "dropped"`, `"change": "new"`, `"topic": "hits"`}},
		{"sql-explain-pattern", "explain testdata/sql/pattern.sql", exitOK, []string{"  reads  topics of the pattern orders-.*\n"}},
		{"sql-diff-pattern", "plan diff testdata/sql/pattern.sql testdata/sql/pattern.sql", exitOK, []string{"kept     input topics of the pattern orders-.*\n"}},
		{"sql-check-pattern", "check --offline testdata/sql/pattern.sql", exitOK, []string{"commits"}},
		{"sql-run-pattern", "run --embedded testdata/sql/pattern.sql", exitUsage, []string{"option 'topic-pattern' needs to know the topics of the cluster"}},
		{"sql-check", "check --offline testdata/sql/warned.sql", exitOK, nil},
		{"sql-check-strict", "check --offline --strict testdata/sql/warned.sql --commit.max-latency=10s", exitFailed, nil},
		{"sql-check-json", "check --offline --format json testdata/sql/mistakes.sql", exitUsage, nil},
		{"sql-check-print", "check --offline testdata/sql/printed.sql", exitOK, []string{"printed.sql:3:1: warning W22: table p is printed"}},
		{"sql-check-unused", "check --offline testdata/sql/unused.sql", exitOK, []string{
			"unused.sql:4:1: warning W23: table copies: 'sink.delivery-guarantee' = 'at-least-once' has no effect: rows are always written exactly once",
			"warning W23: table copies: 'sink.parallelism' = '4' has no effect",
			"unused.sql:4:35: warning W23: table orders: 'properties.max.poll.records', 'properties.session.timeout.ms' has no effect: the Java client is not used"}},
		{"sql-test", "test -v testdata/sql", exitFailed, nil},
		{"sql-test-run", "test --run counted testdata/sql", exitOK, nil},
		{"sql-examples", "test ../examples/sql", exitOK, []string{"ok    ../examples/sql/order-totals.test (4 tests)", "ok    ../examples/sql/page-views.test (3 tests)"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, stdout, stderr := millrace(t, nil, strings.Fields(c.args)...)
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			got := stdout + "-- stderr\n" + stderr
			if c.parts == nil {
				golden(t, c.name, got)
			}
			for _, want := range c.parts {
				if !strings.Contains(got, want) {
					t.Errorf("no %q in\n%s", want, got)
				}
			}
		})
	}
}

// TestScriptMistakes: command lines that cannot be understood exit with 2 and say what to do.
func TestScriptMistakes(t *testing.T) {
	for args, want := range map[string]string{
		"run":                               "run takes one file of SQL, and there are 0",
		"run a.sql b.sql":                   "run takes one file of SQL, and there are 2",
		"run nowhere.sql":                   "read the script: open nowhere.sql",
		"run --duration=-1s " + orderTotals: "--duration must not be below 0",
		"run --embedded --check-state " + orderTotals:    "--check-state looks at the state on a cluster",
		"explain --format xml " + orderTotals:            `unknown format "xml"`,
		"plan diff " + orderTotals:                       "plan diff takes two files of SQL, and there are 1",
		"plan diff nowhere.sql nowhere.sql":              "read the script: open nowhere.sql",
		"test nowhere.test":                              "nowhere.test",
		"test --run ( testdata/sql":                      "--run: error parsing regexp",
		"test testdata/sql/warned.sql":                   "testdata/sql/warned.sql:1: \"SET\" is unknown",
		"check --offline " + "testdata/sql/mistakes.sql": "amuont",
	} {
		code, _, stderr := millrace(t, nil, strings.Fields(args)...)
		if code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: code %d, stderr %s; want 2 and %q", args, code, stderr, want)
		}
	}
}

// TestSettings: what SET says is the program's default of the configuration, or is told as without effect.
func TestSettings(t *testing.T) {
	values, notes := settingsOf("x.sql", `SET 'pipeline.name' = 'my app'; SET 'execution.checkpointing.interval' = '3 min';
		SET 'commit.max-latency' = '50ms'; SET 'state.checkpoints.dir' = 's3a://bucket/x'; SET 'execution.checkpointing.dir' = 'hdfs://x';
		SET 'table.exec.state.ttl' = '1 d'; SET 'table.exec.mini-batch.enabled' = 'true'; SET 'pipelin.name' = 'x'; RESET 'x';`, nil)
	want := map[string]any{"app.id": "my-app", "checkpoint.interval": 3 * time.Minute, "commit.max-latency": "50ms", "checkpoint.url": "s3://bucket/x"}
	if fmt.Sprint(values) != fmt.Sprint(want) {
		t.Errorf("values %v, want %v", values, want)
	}
	var said []string
	for _, n := range notes {
		said = append(said, n.Message+" | "+n.Hint)
	}
	for i, w := range []string{"'execution.checkpointing.dir' = 'hdfs://x' has no effect", "'table.exec.mini-batch.enabled' has no effect", "'pipelin.name' is unknown: it has no effect | did you mean 'pipeline.name'?"} {
		if len(said) != 3 || !strings.HasPrefix(said[i], w) {
			t.Errorf("notes are %q, want %d to be %q", said, i, w)
		}
	}
}

// TestAppIDs: the configuration goes before the script, and the script before the name of its file.
func TestAppIDs(t *testing.T) {
	for _, c := range []struct {
		args, env, want string
	}{
		{"testdata/sql/generated.sql", "", "generated"},
		{"testdata/sql/warned.sql", "", "warned-app"},
		{"testdata/sql/warned.sql", "MILLRACE_APP_ID=other", "other"},
		{"--app.id=flag testdata/sql/warned.sql", "MILLRACE_APP_ID=other", "flag"},
	} {
		var env []string
		if c.env != "" {
			env = []string{c.env}
		}
		code, stdout, stderr := millrace(t, env, append([]string{"explain", "--format", "json"}, strings.Fields(c.args)...)...)
		var e struct{ App string }
		if err := json.Unmarshal([]byte(stdout), &e); code != exitOK || err != nil || e.App != c.want {
			t.Errorf("%v: app is %q, want %q (code %d, %v) %s", c, e.App, c.want, code, err, stderr)
		}
	}
}

// TestRunEmbedded runs a script that needs nothing to its end: the changes of the table are printed, and the last ones
// are right.
func TestRunEmbedded(t *testing.T) {
	code, stdout, stderr := millrace(t, nil, "run", "--embedded", "--duration", "60s", "--listen=off", "testdata/sql/generated.sql")
	if code != exitOK {
		t.Fatalf("code %d: %s", code, stderr)
	}
	last := map[string]string{}
	for line := range strings.Lines(stdout) {
		key, row, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "counts: "), " ")
		if !ok {
			t.Fatalf("line %q is no topic, key and value", line)
		}
		last[key] = row
	}
	want := map[string]string{`{"odd":true}`: `{"odd":true,"n":250,"total":62500}`, `{"odd":false}`: `{"odd":false,"n":250,"total":62750}`}
	if fmt.Sprint(last) != fmt.Sprint(want) {
		t.Errorf("the table is %v, want %v\n%s", last, want, stderr)
	}
}

// TestRunWarns: run says at its start what check says.
func TestRunWarns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "warned.sql")
	text := "CREATE TABLE o (v INT) WITH ('connector' = 'kafka', 'topic' = 'o', 'format' = 'raw', 'sink.parallelism' = '2'); INSERT INTO o VALUES (1);"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := millrace(t, nil, "run", "--embedded", "--listen=off", path); code != exitOK || !strings.Contains(stderr, "warning W23: table o: 'sink.parallelism' = '2' has no effect") {
		t.Errorf("code %d: %s", code, stderr)
	}
}

// TestJUnit: the report has each test, and the diff of the one that fails.
func TestJUnit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "junit.xml")
	millrace(t, nil, "test", "--junit", path, "testdata/sql")
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`<testsuite name="testdata/sql/warned.test" tests="2" failures="1">`, `<testcase name="hits are counted" classname="testdata/sql/warned.test"></testcase>`, "n is 1, want 2"} {
		if !strings.Contains(string(got), want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
}

// TestSampleChecks judges what tables make of a sample.
func TestSampleChecks(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	at := now.Add(-time.Hour).UnixMilli()
	timed := &catalog.Table{Path: catalog.Path{Catalog: catalog.DefaultCatalog, Database: catalog.DefaultDatabase, Name: "t"}, Watermark: &catalog.Watermark{}}
	for _, c := range []struct {
		name  string
		s     sqltest.Sample
		check int // which of the four
		want  string
	}{
		{"fine", sqltest.Sample{Rows: 3, First: at, Last: at + 5}, 1, "ok event time"},
		{"seconds", sqltest.Sample{Rows: 3, First: at / 1000, Last: at/1000 + 5}, 1, "seconds were read as milliseconds"},
		{"microseconds", sqltest.Sample{Rows: 3, First: at * 1000, Last: at*1000 + 5}, 1, "microseconds were read as milliseconds"},
		{"nanoseconds", sqltest.Sample{Rows: 3, First: at * 1e6, Last: at*1e6 + 5}, 1, "nanoseconds were read as milliseconds"},
		{"of old", sqltest.Sample{Rows: 3, First: -1, Last: 5}, 1, "before 2000"},
		{"no times", sqltest.Sample{Rows: 3, NoTime: 2, First: at, Last: at}, 1, "the time of 2 records is NULL"},
		{"disorder", sqltest.Sample{Rows: 9, Behind: 2, MostBehind: 1499, First: at, Last: at}, 2, "2 of 9 records are behind the watermark of their partition, by up to 1.499s"},
		{"order", sqltest.Sample{Rows: 9, First: at, Last: at}, 2, "ok order"},
		{"undecodable", sqltest.Sample{Bad: 1, Error: "no JSON"}, 0, "1 record of the sample cannot be decoded, for example: no JSON"},
		{"quiet", sqltest.Sample{Rows: 1, First: at, Last: at, Partitions: 4, Quiet: 3}, 3, "3 of 4 partitions have no records"},
		{"quiet, and idle", sqltest.Sample{Rows: 1, First: at, Last: at, Partitions: 4, Quiet: 3, Idle: true}, 3, "ok quiet"},
	} {
		c.s.Table = timed
		check := sampleChecks([]sqltest.Sample{c.s}, now)[c.check]
		if got := string(check.Status) + " " + check.Name + " " + check.Found; !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
