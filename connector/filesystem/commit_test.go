package filesystem

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/failpoint"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
)

// pair are two subtasks of one table whose folders are completed.
type pair [2]*marked

type marked struct {
	subtask
	mark int64 // where event time is
}

func newPair(t *testing.T, dir string, p *commitPolicy) *pair {
	t.Helper()
	var s pair
	for k := range s {
		s[k] = &marked{subtask{t: t, clock: time.UnixMilli(1_700_000_000_000), table: &table{path: dir, size: 1 << 20, rollover: time.Hour, inactive: time.Hour, commit: p},
			number: k, of: len(s)}, processor.NoTime}
		s[k].watermark = func() int64 { return s[k].mark }
		if err := s[k].begin(); err != nil {
			t.Fatal(err)
		}
	}
	return &s
}

func (s *pair) commit(k int) {
	s[k].t.Helper()
	if err := s[k].subtask.commit(s[k].mark == processor.Never); err != nil {
		s[k].t.Fatal(err)
	}
}

// pass lets time go by.
func (s *pair) pass(d time.Duration) {
	for k := range s {
		s[k].clock = s[k].clock.Add(d)
	}
}

func succeeded(t *testing.T, dir, folder string) bool {
	t.Helper()
	_, err := os.Stat(filepath.Join(dir, filepath.FromSlash(folder), "_SUCCESS"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

func ms(text string) int64 {
	at, err := time.Parse("2006-01-02 15:04:05", text)
	if err != nil {
		panic(err)
	}
	return at.UnixMilli()
}

// TestPartitionTime: a folder is complete when event time of all subtasks is beyond it, and not before all of its rows show.
func TestPartitionTime(t *testing.T) {
	dir := t.TempDir()
	s := newPair(t, dir, &commitPolicy{file: "_SUCCESS", byTime: true, delay: time.Hour.Milliseconds(), zone: row.UTC(), names: []string{"dt", "hour"}, pattern: "$dt $hour:00:00"})
	const ten, eleven, none = "dt=2024-01-01/hour=10", "dt=2024-01-01/hour=11", "dt=2024-01-01/hour=__HIVE_DEFAULT_PARTITION__"
	is := func(folder string, want bool, when string) {
		t.Helper()
		if got := succeeded(t, dir, folder); got != want {
			t.Errorf("%s: %s has a success file: %v, want %v", when, folder, got, want)
		}
	}
	s[0].write(ten, "a")
	s[1].write(ten, "b")
	s[0].write(eleven, "c")
	s[1].write(none, "d")
	s.commit(0)
	s.commit(1)
	s[0].mark = ms("2024-01-01 11:00:00")
	s.pass(notePause)
	s.commit(0)
	is(ten, false, "one subtask is behind")
	s[1].mark = ms("2024-01-01 10:59:59")
	s.pass(notePause)
	s.commit(1)
	is(ten, false, "it is a second too early")
	s[1].mark = ms("2024-01-01 11:00:00")
	s.pass(notePause)
	if due, want := s[1].w.Due(), s[1].clock.UnixMilli(); due > want {
		t.Errorf("due is %d, want %d or less, since event time has gone on", due, want)
	}
	s.commit(1)
	is(ten, true, "event time is over")
	if got, want := rows(t, dir), []string{ten + " a", ten + " b"}; !slices.Equal(got, want) {
		t.Errorf("rows %q show, want %q", got, want)
	}
	is(eleven, false, "its hour is not over")

	// A late row shows with the next commit, and is told of again.
	if err := os.Remove(filepath.Join(dir, ten, "_SUCCESS")); err != nil {
		t.Fatal(err)
	}
	s[0].write(ten, "late")
	s.commit(0)
	is(ten, true, "a late row")
	if got := len(rows(t, dir)); got != 3 {
		t.Errorf("%d rows show, want 3", got)
	}

	// The last subtask that is beyond the folder is killed after its commit: its next life tells.
	s[1].mark = ms("2024-01-01 12:00:00")
	s.pass(notePause)
	s.commit(1)
	s[0].mark = s[1].mark
	point, err := failpoint.Arm(failpoint.MidFinish, func() error { return failpoint.ErrInjected })
	if err != nil {
		t.Fatal(err)
	}
	err = s[0].subtask.commit(false)
	point.Disarm()
	if err == nil {
		t.Fatal("nothing failed")
	}
	is(eleven, false, "before the takeover")
	s.pass(notePause)
	if err := s[0].begin(); err != nil {
		t.Fatal(err)
	}
	is(eleven, true, "after the takeover")

	// The end of the input completes the folder that has no time, by whoever comes last.
	is(none, false, "before the end")
	s[1].mark = processor.Never
	s.commit(1)
	is(none, false, "one subtask has not ended")
	s[0].mark = processor.Never
	s.commit(0)
	is(none, true, "the end")

	// A folder that was taken away is not made again.
	if err := os.RemoveAll(filepath.Join(dir, ten)); err != nil {
		t.Fatal(err)
	}
	if err := s[0].w.succeed(ten); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, ten)); err == nil {
		t.Error("the folder is there again")
	}
}

// TestProcessTime: a folder is complete some time after its first row, when what the subtasks have written till then shows.
func TestProcessTime(t *testing.T) {
	dir := t.TempDir()
	s := newPair(t, dir, &commitPolicy{file: "_SUCCESS", delay: 10_000, zone: row.UTC(), names: []string{"d"}, pattern: "$d"})
	is := func(want bool, when string) {
		t.Helper()
		if got := succeeded(t, dir, "d=1"); got != want {
			t.Errorf("%s: success file: %v, want %v", when, got, want)
		}
	}
	s[0].write("d=1", "a")
	s.commit(0)
	if due, want := s[0].w.Due(), s[0].clock.Add(10*time.Second).UnixMilli(); due != want {
		t.Errorf("due is %d, want %d", due, want)
	}
	s.pass(5 * time.Second)
	s[1].write("d=1", "b")
	s.commit(1)
	s.pass(5 * time.Second)
	s.commit(0)
	is(false, "the other subtask has a row of before that does not show")
	s.pass(5 * time.Second)
	s.commit(1)
	is(true, "both show")
	if got := len(rows(t, dir)); got != 2 {
		t.Errorf("%d rows show, want 2", got)
	}
}

// TestSuccessIsTrue: whatever step fails, a folder with a success file has all rows that came in time, and in the end each has one.
func TestSuccessIsTrue(t *testing.T) {
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 2))
		dir := t.TempDir()
		s := newPair(t, dir, &commitPolicy{file: "_SUCCESS", byTime: true, delay: 1000, zone: row.UTC(), names: []string{"t"}, pattern: "1970-01-01 00:00:0$t"})
		inTime := map[string]string{} // line to folder, of what was written in time
		for i := range 200 {
			k := rng.IntN(2)
			n := rng.IntN(9)
			folder, line := fmt.Sprintf("t=%d", n), fmt.Sprintf("row %d", i)
			s[k].write(folder, line)
			if s[k].mark < int64(n+1)*1000 {
				inTime[folder+" "+line] = folder
			}
			s.pass(time.Duration(rng.IntN(500)) * time.Millisecond)
			if rng.IntN(3) == 0 {
				s[k].mark = max(s[k].mark, int64(i)*45+rng.Int64N(500))
			}
			switch rng.IntN(6) {
			case 0, 1:
				s.commit(k)
			case 2: // it dies before its commit, or amidst of what follows
				if rng.IntN(2) == 0 {
					point, err := failpoint.Arm(failpoint.MidFinish, func() error { return failpoint.ErrInjected })
					if err != nil {
						t.Fatal(err)
					}
					_ = s[k].subtask.commit(false)
					point.Disarm()
				}
				for _, lost := range s[k].fresh {
					delete(inTime, lost)
				}
				s[k].mark = s[k].before // event time is that of the last commit
				if err := s[k].begin(); err != nil {
					t.Fatal(err)
				}
			}
			if i%4 != 0 {
				continue // reading all files takes its time
			}
			shown := rows(t, dir)
			for line, folder := range inTime {
				if succeeded(t, dir, folder) && !slices.Contains(shown, line) {
					t.Fatalf("seed %d, step %d: %s has a success file, and %q does not show", seed, i, folder, line)
				}
			}
		}
		for k := range s {
			s[k].mark = processor.Never
			s.commit(k)
		}
		for n := range 9 {
			if folder := fmt.Sprintf("t=%d", n); !succeeded(t, dir, folder) {
				t.Errorf("seed %d: %s has no success file in the end", seed, folder)
			}
		}
	}
}

// TestCommitOptions: what cannot be done is refused.
func TestCommitOptions(t *testing.T) {
	for options, want := range map[string]string{
		"sink.partition-commit.policy.kind=metastore":                                                       "there is success-file",
		"sink.partition-commit.delay=1 h":                                                                   "needs 'sink.partition-commit.policy.kind'",
		"sink.partition-commit.policy.kind=success-file;sink.partition-commit.success-file.name=done":       "begins with _ or a dot",
		"sink.partition-commit.policy.kind=success-file;sink.partition-commit.watermark-time-zone=Nowhere/": "watermark-time-zone",
		"sink.partition-commit.policy.kind=success-file;partition.time-extractor.timestamp-pattern=$day":    "names none of the columns of PARTITIONED BY: $dt, $hour",
		"sink.partition-commit.policy.kind=success-file;partition.time-extractor.timestamp-formatter=yyyyQ": "illegal pattern character",
		"sink.partition-commit.policy.kind=success-file;partition.time-extractor.kind=custom":               "must be one of default",
	} {
		values := map[string]string{}
		for o := range strings.SplitSeq(options, ";") {
			k, v, _ := strings.Cut(o, "=")
			values[k] = v
		}
		o, err := format.ReadOptions("", values, commitOptions)
		if err == nil {
			_, err = readCommit(o, []string{"dt", "hour"})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", options, err, want)
		}
	}
	o, err := format.ReadOptions("", map[string]string{"sink.partition-commit.policy.kind": "success-file"}, commitOptions)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readCommit(o, nil); err == nil || !strings.Contains(err.Error(), "needs PARTITIONED BY") {
		t.Errorf("without folders: error %v", err)
	}
}

// TestFolderTimes reads the time of a folder from its columns.
func TestFolderTimes(t *testing.T) {
	zone, err := row.LoadZone("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	compact, err := row.NewSimpleFormat("yyyyMMdd HH")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		p      commitPolicy
		folder string
		want   string // "" = none
	}{
		{commitPolicy{zone: row.UTC(), pattern: "$dt"}, "dt=2024-01-31/x=1", "2024-01-31 00:00:00"},
		{commitPolicy{zone: row.UTC(), pattern: "$dt"}, "dt=2024-01-31 12%3A30%3A00", "2024-01-31 12:30:00"},
		{commitPolicy{zone: row.UTC(), pattern: "$d $dh:00:00"}, "d=2024-01-31/dh=07", "2024-01-31 07:00:00"},
		{commitPolicy{zone: zone, pattern: "$dt"}, "dt=2024-07-01", "2024-06-30 22:00:00"},
		{commitPolicy{zone: row.UTC(), pattern: "$dt $h", format: compact}, "dt=20240131/h=09", "2024-01-31 09:00:00"},
		{commitPolicy{zone: row.UTC(), pattern: "$dt"}, "dt=__HIVE_DEFAULT_PARTITION__", ""},
	} {
		at, ok := c.p.timeOf(c.folder)
		if got := time.UnixMilli(at).UTC().Format("2006-01-02 15:04:05"); ok != (c.want != "") || ok && got != c.want {
			t.Errorf("%s by %s: %s, %v, want %s", c.folder, c.p.pattern, got, ok, c.want)
		}
	}
}
