package filesystem_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/connector/blackhole"
	"github.com/millrace-stream/millrace/connector/datagen"
	"github.com/millrace-stream/millrace/connector/filesystem"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/failpoint"
	"github.com/millrace-stream/millrace/internal/onbroker"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/sql"
)

// run runs a script on the embedded broker until the files are as done wants them, and then again after its members have
// stopped. done says what is wrong; "" = nothing.
func run(t *testing.T, members int, script string, done func() string) {
	t.Helper()
	formats := format.RowFormats{"json": format.JSONRows(), "csv": format.CSVRows()}
	plan := func() *task.Plan {
		app, errs := sql.Script("test.sql", script, sql.Options{Connectors: connector.Registry{"datagen": datagen.New(), "blackhole": blackhole.New(), "filesystem": filesystem.New(formats)}})
		if errs.Err() != nil {
			t.Fatal(errs.Err())
		}
		p, err := app.Topology.Plan()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	r := onbroker.Run{Plan: plan, Members: members, Compare: func(map[string][]record.Record) string { return done() }}
	// A failure after the last row was shown may leave a member no time to start again.
	if err := r.Do(); err != nil && !errors.Is(err, failpoint.ErrInjected) {
		t.Fatal(err)
	}
	if diff := done(); diff != "" {
		t.Fatal(diff)
	}
}

// lines are those of all files that show, with the folder in front, sorted; and how many files there are.
func lines(dir string) (all []string, files int) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if d.IsDir() {
			return nil
		}
		b, err := os.ReadFile(path)
		files++
		rel, _ := filepath.Rel(dir, filepath.Dir(path))
		for line := range strings.Lines(string(b)) {
			all = append(all, rel+" "+strings.TrimSuffix(line, "\n"))
		}
		return err
	})
	slices.Sort(all)
	return all, files
}

// want are the lines of ids from 1 to n, of id % 3.
func want(n int) (all []string) {
	for i := 1; i <= n; i++ {
		b, _ := json.Marshal(map[string]any{"id": i})
		all = append(all, fmt.Sprintf("part=%d %s", i%3, b))
	}
	slices.Sort(all)
	return all
}

func script(dir string, n, workers int, policy string) string {
	return fmt.Sprintf(`
CREATE TABLE numbers (id BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '3000', 'scan.parallelism' = '%d',
	'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '%d');
CREATE TABLE files (id BIGINT, part INT) PARTITIONED BY (part) WITH ('connector' = 'filesystem', 'path' = '%s', 'format' = 'json'%s);
INSERT INTO files SELECT id, CAST(id %% 3 AS INT) FROM numbers;`, workers, n, dir, policy)
}

// TestExactlyOnce: whatever step of a commit or of a takeover fails, each row shows once.
func TestExactlyOnce(t *testing.T) {
	for _, policy := range []string{", 'sink.rolling-policy.file-size' = '600 b'", ""} {
		for _, point := range []string{failpoint.AfterPrepare, failpoint.BeforeFlush, failpoint.BeforeEndTxn, failpoint.AfterEndTxn, failpoint.MidFinish, failpoint.MidBegin, failpoint.AfterBegin} {
			if point == failpoint.MidFinish && policy == "" {
				continue // nothing shows before the end
			}
			t.Run(point+policy, func(t *testing.T) {
				arm := func(point string, every, most int) (p *failpoint.Point, fails func() int) {
					var mu sync.Mutex
					n, failed := 0, 0
					p, err := failpoint.Arm(point, func() error {
						mu.Lock()
						defer mu.Unlock()
						if n++; n%every == 0 && failed < most {
							failed++
							return failpoint.ErrInjected
						}
						return nil
					})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(p.Disarm)
					return p, func() int { mu.Lock(); defer mu.Unlock(); return failed }
				}
				var fails func() int
				if point == failpoint.MidBegin || point == failpoint.AfterBegin {
					_, fails = arm(point, 2, 2)
					arm(failpoint.AfterEndTxn, 3, 6) // for something to begin with; of every second one each takeover would wait longer than the last
				} else {
					_, fails = arm(point, 3, 4)
				}
				dir := t.TempDir()
				const rows = 1500
				run(t, 1, script(dir, rows, 1, policy), func() string {
					got, _ := lines(dir)
					if !slices.Equal(got, want(rows)) {
						return fmt.Sprintf("%d rows show, want %d; %d failures", len(got), rows, fails())
					}
					return ""
				})
				if fails() == 0 {
					t.Error("nothing failed")
				}
			})
		}
	}
}

// TestMembers: several subtasks on two members write to one folder; at the end of the input all shows, in few files.
func TestMembers(t *testing.T) {
	dir := t.TempDir()
	run(t, 2, script(dir, 2000, 2, ""), func() string {
		got, files := lines(dir)
		if !slices.Equal(got, want(2000)) {
			return fmt.Sprintf("%d rows show", len(got))
		}
		if files > 12 { // 2 subtasks, 3 folders, and once more if a subtask moved
			return fmt.Sprintf("%d files", files)
		}
		return ""
	})
}

// TestSuccessFiles: in the end each folder has a success file, and it came when all rows of the folder showed.
func TestSuccessFiles(t *testing.T) {
	for _, options := range []string{"", ", 'sink.partition-commit.trigger' = 'partition-time', 'sink.partition-commit.delay' = '1 d'"} {
		dir := t.TempDir()
		const n = 1500
		early := map[string]bool{} // folders whose success file was there when not all rows were
		count := func() (rows int, missing string) {
			folders, err := os.ReadDir(dir)
			if err != nil {
				return 0, err.Error()
			}
			for _, f := range folders {
				if !strings.HasPrefix(f.Name(), "dt=") {
					continue
				}
				_, err := os.Stat(filepath.Join(dir, f.Name(), "_SUCCESS"))
				got, _ := lines(filepath.Join(dir, f.Name()))
				rows += len(got)
				switch {
				case err != nil:
					missing = f.Name() + " has no success file"
				case len(got) != 24 && f.Name() != "dt=1970-01-01" && f.Name() != "dt=1970-03-04":
					early[f.Name()] = true
				}
			}
			return rows, missing
		}
		run(t, 2, fmt.Sprintf(`
CREATE TABLE numbers (id BIGINT, ts AS TO_TIMESTAMP_LTZ(id * 3600000, 3), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen', 'rows-per-second' = '1000', 'scan.parallelism' = '2',
	'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '%d');
CREATE TABLE files (id BIGINT, dt STRING) PARTITIONED BY (dt) WITH ('connector' = 'filesystem', 'path' = '%s', 'format' = 'json', 'sink.partition-commit.policy.kind' = 'success-file'%s);
INSERT INTO files SELECT id, DATE_FORMAT(ts, 'yyyy-MM-dd') FROM numbers;`, n, dir, options), func() string {
			rows, missing := count()
			if missing == "" && rows != n {
				missing = fmt.Sprintf("%d rows show, want %d", rows, n)
			}
			return missing
		})
		if options != "" && len(early) > 0 {
			t.Errorf("by partition-time %d success files came too early", len(early))
		}
	}
}

// TestCopy reads a folder and writes another.
func TestCopy(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	for i := range 5 {
		var b strings.Builder
		for k := range 100 {
			fmt.Fprintf(&b, "%d,%q\n", i*100+k, fmt.Sprintf("name \"%d\", x", k))
		}
		if err := os.WriteFile(filepath.Join(from, fmt.Sprintf("f%d.csv", i)), []byte(strings.ReplaceAll(b.String(), `\"`, `""`)), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	var want []string
	for i := range 500 {
		want = append(want, fmt.Sprintf(`. {"id":%d,"name":"name \"%d\", x","file":"f%d.csv"}`, i, i%100, i/100))
	}
	slices.Sort(want)
	run(t, 1, fmt.Sprintf(`
CREATE TABLE a (id INT, name STRING, file STRING METADATA FROM 'file.name' VIRTUAL) WITH ('connector' = 'filesystem', 'path' = '%s', 'format' = 'csv');
CREATE TABLE b (id INT, name STRING, file STRING) WITH ('connector' = 'filesystem', 'path' = '%s', 'format' = 'json');
INSERT INTO b SELECT * FROM a;`, from, to), func() string {
		got, _ := lines(to)
		if !slices.Equal(got, want) {
			return fmt.Sprintf("%d rows show: %.300q", len(got), got)
		}
		return ""
	})
}
