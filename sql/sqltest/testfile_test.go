package sqltest_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/sql/catalog"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/sqltest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// stub is a connector that only says what a table can do.
type stub struct{ tr connector.Traits }

func (s stub) Spec() connector.Spec                             { return connector.Spec{} }
func (s stub) Traits(connector.Table) (connector.Traits, error) { return s.tr, nil }
func (s stub) Source(connector.Table) (*connector.Source, error) {
	return nil, errors.New("a test opens no connector")
}
func (s stub) Sink(connector.Table) (*connector.Sink, error) {
	return nil, errors.New("a test opens no connector")
}
func (s stub) Lookup(connector.Table, []int) (*connector.Lookup, error) {
	return nil, errors.New("a test opens no connector")
}

var stubs = connector.Registry{
	"append": stub{connector.Traits{CanRead: true, CanWrite: true, CanLookup: true}},
	"upsert": stub{connector.Traits{CanRead: true, CanWrite: true, Reads: catalog.Upsert, Writes: catalog.Upsert}},
	"all":    stub{connector.Traits{CanRead: true, CanWrite: true, Reads: catalog.Retract, Writes: catalog.Retract}},
}

// report runs a file and writes what comes of each test.
func report(t *testing.T, path string, o sqltest.TestOptions) string {
	t.Helper()
	f, err := sqltest.ReadTests(path)
	if err != nil {
		t.Fatal(err)
	}
	o.Connectors = stubs
	results, err := f.Run(o)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, r := range results {
		fmt.Fprintf(&b, "%s %v\n", r.Name, r.Modes)
		if r.Diff != "" {
			fmt.Fprintf(&b, "FAIL in %s\n%s\n", r.Mode, r.Diff)
		}
	}
	return b.String()
}

func TestTests(t *testing.T) {
	files, err := filepath.Glob("testdata/*.test")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			got := report(t, f, sqltest.TestOptions{})
			golden := f + ".txt"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// copyTest puts a pipeline and a file of tests into a folder of the test.
func copyTest(t *testing.T, name, tests string) string {
	t.Helper()
	pipeline, err := os.ReadFile("testdata/" + name + ".sql")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name+".test")
	for p, text := range map[string]string{strings.TrimSuffix(path, ".test") + ".sql": string(pipeline), path: tests} {
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// TestUpdate writes the rows that came where they are not those that are expected, and nothing else.
func TestUpdate(t *testing.T) {
	path := copyTest(t, "counts", `test one
insert orders
  {"user": "ann", "amount": 1, "ts": "2024-05-01 12:00:01"}
watermark orders 2024-05-01 12:00:10
# kept
expect counts

expect totals
  # as it is
  {"user": "ann"}
insert orders
  {"user": "ann", "amount": 2, "ts": "2024-05-01 12:00:01"}
expect late 0
expect totals final
  {"user": "carl"}
  {"user": "dora"}
`)
	if got := report(t, path, sqltest.TestOptions{Update: true}); strings.Contains(got, "FAIL") {
		t.Fatal(got)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const want = `test one
insert orders
  {"user": "ann", "amount": 1, "ts": "2024-05-01 12:00:01"}
watermark orders 2024-05-01 12:00:10
# kept
expect counts
  {"user": "ann", "start_ts": "2024-05-01 12:00:00.000", "n": 1}

expect totals
  # as it is
  {"user": "ann"}
insert orders
  {"user": "ann", "amount": 2, "ts": "2024-05-01 12:00:01"}
expect late 1
expect totals final
  {"user": "ann", "total": "3.00"}
`
	if string(got) != want {
		t.Errorf("the file is\n%s\nwant\n%s", got, want)
	}
	if got := report(t, path, sqltest.TestOptions{}); strings.Contains(got, "FAIL") {
		t.Errorf("after the update: %s", got)
	}
}

// TestMistakesInTests names file, line and what to write.
func TestMistakesInTests(t *testing.T) {
	for text, want := range map[string]string{
		"test a\n insert t":               `x.test:2: a row, which is indented, stands behind no insert`,
		"insert t\n":                      "x.test:1: insert stands in no test",
		"test a\nexpct t":                 `x.test:2: "expct" is unknown; did you mean expect?`,
		"test a\ninsert t\n  [1]":         "x.test:3: a row is a JSON object",
		"test a\ninsert t\n  {\"a\":}":    "x.test:3: a row is a JSON object",
		"test a\ninsert t u":              "x.test:2: write it as: insert TABLE",
		"test a\nset x = y":               "x.test:2: set stands behind a test",
		"set x\ntest a":                   "x.test:1: set needs a name and a value",
		"test a\ntest a":                  `x.test:2: there are two tests with the name "a"`,
		"# nothing":                       "x.test: it has no test",
		"test a\nexpect t finally":        "x.test:2: write it as: expect TABLE, expect TABLE final",
		"test a\nwatermark t":             "x.test:2: write it as: watermark TABLE 2024-05-01 12:00:00",
		"test\n":                          "x.test:1: a test needs a name",
		"test a\ninsert t\n  +X {\"a\":}": "x.test:3: a row is a JSON object, perhaps with",
	} {
		_, err := sqltest.ParseTests("x.test", text)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestErrorsOfPipelines: what a test expects of one that cannot be planned, and of one that fails.
func TestErrorsOfPipelines(t *testing.T) {
	path := copyTest(t, "counts", "test one\ninsert orders\n  {\"user\": \"ann\"}\nexpect error time that is NULL\n")
	if got := report(t, path, sqltest.TestOptions{}); strings.Contains(got, "FAIL") {
		t.Error(got)
	}
	sql := strings.TrimSuffix(path, ".test") + ".sql"
	if err := os.WriteFile(sql, []byte("CREATE TABLE t (a INT) WITH ('connector' = 'append');\nINSERT INTO t SELECT b FROM t;"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := report(t, path, sqltest.TestOptions{}); !strings.Contains(got, "^") || !strings.Contains(got, "\"b\"") {
		t.Errorf("want the error with a caret: %s", got)
	}
	if err := os.WriteFile(path, []byte("test one\nexpect error column \"b\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := report(t, path, sqltest.TestOptions{}); strings.Contains(got, "FAIL") {
		t.Error(got)
	}
}

// TestRunsAreCompared: a function that gives something else from some call on is found out in the run in which that is: row
// by row, with restarts, on three partitions.
func TestRunsAreCompared(t *testing.T) {
	const rows = 6
	for _, c := range []struct {
		calls int
		mode  sqltest.Mode
		fails bool
	}{{0, sqltest.ByLine, true}, {rows, sqltest.Restart, true}, {2 * rows, sqltest.Parallel, true}, {3 * rows, sqltest.ByLine, false}} {
		path := copyTest(t, "counts", "test one\ninsert t\n"+strings.Repeat("  {\"a\": 1}\n", rows)+"expect u final\n  {\"b\": 6, \"a\": 0}\n")
		script := "CREATE FUNCTION odd AS 'odd';\nCREATE TABLE t (a BIGINT) WITH ('connector' = 'append');\n" +
			"CREATE TABLE u (a BIGINT, b BIGINT, PRIMARY KEY (a) NOT ENFORCED) WITH ('connector' = 'upsert');\nINSERT INTO u SELECT odd(a), COUNT(*) FROM t GROUP BY odd(a);"
		if err := os.WriteFile(strings.TrimSuffix(path, ".test")+".sql", []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := sqltest.ReadTests(path)
		if err != nil {
			t.Fatal(err)
		}
		calls := 0
		odd := fn.Scalar1("ODD", func(_ *fn.Env, a int64) (int64, error) {
			if calls++; calls > c.calls {
				return 1, nil
			}
			return 0, nil
		})
		results, err := f.Run(sqltest.TestOptions{Connectors: stubs, Functions: map[string]*fn.Func{"odd": odd}})
		if err != nil {
			t.Fatal(err)
		}
		if r := results[0]; (r.Diff != "") != c.fails || r.Mode != c.mode {
			t.Errorf("odd from call %d on: fails in run %s: %q, want %s, modes %v, %d calls", c.calls, r.Mode, r.Diff, c.mode, r.Modes, calls)
		}
	}
}

// TestRestartsLoseMemory: what a function keeps beside the state is gone after a restart, and the test tells.
func TestRestartsLoseMemory(t *testing.T) {
	path := copyTest(t, "counts", "test one\ninsert t\n  {\"a\": 7}\n  {\"a\": 7}\nexpect u\n  {\"n\": 1}\n  {\"n\": 2}\n")
	script := "CREATE FUNCTION seen AS 'seen';\nCREATE TABLE t (a BIGINT) WITH ('connector' = 'append');\nCREATE TABLE u (n BIGINT) WITH ('connector' = 'append');\nINSERT INTO u SELECT seen(a) FROM t;"
	if err := os.WriteFile(strings.TrimSuffix(path, ".test")+".sql", []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := sqltest.ReadTests(path)
	if err != nil {
		t.Fatal(err)
	}
	memory := map[*fn.Env]int64{} // there is one of each life of a subtask
	seen := fn.Scalar1("SEEN", func(env *fn.Env, _ int64) (int64, error) {
		memory[env]++
		return memory[env], nil
	})
	results, err := f.Run(sqltest.TestOptions{Connectors: stubs, Functions: map[string]*fn.Func{"seen": seen}})
	if err != nil {
		t.Fatal(err)
	}
	if r := results[0]; r.Mode != sqltest.Restart || !strings.Contains(r.Diff, "n is 1, want 2") {
		t.Errorf("fails in run %s: %q, want it with a restart after each row", r.Mode, r.Diff)
	}
}
