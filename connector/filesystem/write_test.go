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

	"github.com/millrace-stream/millrace/internal/failpoint"
	"github.com/millrace-stream/millrace/processor"
)

// rows are the lines of all files of a folder that show, sorted.
func rows(t *testing.T, dir string) (lines []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		b, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, filepath.Dir(path))
		for line := range strings.Lines(string(b)) {
			lines = append(lines, rel+" "+strings.TrimSuffix(line, "\n"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	return lines
}

func hidden(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, staging))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// subtask is an engine of one External: it commits epochs and crashes.
type subtask struct {
	t     *testing.T
	table *table
	clock time.Time
	w     *writer
	epoch uint64
	// Of the last committed epoch:
	handle []byte
	want   []string
	// Of the running one:
	fresh []string
	// Where folders are completed: which of how many it is, where event time is, and where it was at the last commit.
	number, of int
	watermark  func() int64
	before     int64
}

func (s *subtask) begin() error {
	s.w = newWriter(s.table, s.number)
	s.w.now = func() time.Time { return s.clock }
	s.w.subtasks, s.w.watermark = s.of, s.watermark
	s.fresh = nil
	from := processor.Begun{App: "my.app", Incarnation: 1, Name: "sink-out", Epoch: s.epoch + 1}
	if s.handle != nil {
		from.Handles = [][]byte{s.handle}
	}
	if err := s.w.Begin(s.t.Context(), from); err != nil {
		return err
	}
	return s.commit(false) // the claim
}

func (s *subtask) write(folder, line string) {
	if err := s.w.Write([]byte(folder), []byte(line+"\n")); err != nil {
		s.t.Fatal(err)
	}
	if folder == "" {
		folder = "."
	}
	s.fresh = append(s.fresh, folder+" "+line)
}

// commit ends the epoch; an error is that of Finish.
func (s *subtask) commit(last bool) error {
	h, err := s.w.Prepare(s.t.Context(), s.epoch+1, last)
	if err != nil {
		return err
	}
	s.epoch++
	s.handle, s.want, s.fresh = h, append(s.want, s.fresh...), nil
	if s.watermark != nil {
		s.before = s.watermark()
	}
	return s.w.Finish(s.t.Context())
}

// TestCrashes: whatever step fails, each committed row shows once, in one file, and no other does.
func TestCrashes(t *testing.T) {
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 1))
		dir := t.TempDir()
		s := &subtask{t: t, clock: time.UnixMilli(1_700_000_000_000), table: &table{path: dir, size: 300, rollover: 5 * time.Second, inactive: 3 * time.Second}}
		var zombies []*writer
		die := func() {
			if rng.IntN(2) == 0 {
				zombies = append(zombies, s.w) // it does not know that it is dead
			} else if err := s.w.Close(); err != nil {
				t.Fatal(err)
			}
			point, err := failpoint.Arm(failpoint.MidBegin, func() error {
				if rng.IntN(3) == 0 {
					return failpoint.ErrInjected
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			defer point.Disarm()
			for {
				err := s.begin()
				if err == nil {
					return
				}
				if !errors.Is(err, failpoint.ErrInjected) {
					t.Fatal(err)
				}
			}
		}
		if err := s.begin(); err != nil {
			t.Fatal(err)
		}
		for i := range 120 {
			s.write([]string{"", "d=1", "d=2"}[rng.IntN(3)], fmt.Sprintf("row %d of epoch %d, which is not short", i, s.epoch))
			s.clock = s.clock.Add(time.Duration(rng.IntN(800)) * time.Millisecond)
			switch rng.IntN(12) {
			case 0, 1, 2:
				if err := s.commit(false); err != nil {
					t.Fatal(err)
				}
			case 3: // between the commit and the end of Finish
				point, err := failpoint.Arm(failpoint.MidFinish, func() error { return failpoint.ErrInjected })
				if err != nil {
					t.Fatal(err)
				}
				err = s.commit(rng.IntN(2) == 0)
				point.Disarm()
				if err != nil {
					die()
				}
			case 4: // before the commit, after Prepare
				if _, err := s.w.Prepare(t.Context(), s.epoch+1, false); err != nil {
					t.Fatal(err)
				}
				die()
			case 5: // amidst of an epoch
				die()
			}
			for _, z := range zombies { // what the dead may do
				if rng.IntN(4) > 0 {
					continue
				}
				if err := z.Write([]byte("d=1"), []byte("of a zombie\n")); err != nil {
					continue // it has lost its files
				}
				if rng.IntN(2) == 0 {
					_, _ = z.Prepare(t.Context(), 999, rng.IntN(2) == 0)
				}
			}
		}
		if err := s.commit(true); err != nil {
			t.Fatal(err)
		}
		got := rows(t, dir)
		slices.Sort(s.want)
		if !slices.Equal(got, s.want) {
			t.Fatalf("seed %d: %d rows show, %d were committed", seed, len(got), len(s.want))
		}
		for _, z := range zombies {
			_ = z.Close()
		}
		// The next life removes what the dead have left.
		if err := s.begin(); err != nil {
			t.Fatal(err)
		}
		if left := hidden(t, dir); len(left) != 0 {
			t.Fatalf("seed %d: hidden files are left: %q", seed, left)
		}
	}
}

// TestZombieRemovesNothing: a former owner that begins late does not touch the files of the present one.
func TestZombieRemovesNothing(t *testing.T) {
	dir := t.TempDir()
	s := &subtask{t: t, clock: time.UnixMilli(1_700_000_000_000), table: &table{path: dir, size: 1 << 20, rollover: time.Hour, inactive: time.Hour}}
	if err := s.begin(); err != nil {
		t.Fatal(err)
	}
	s.write("", "a")
	if err := s.commit(false); err != nil {
		t.Fatal(err)
	}
	late := newWriter(s.table, 0) // it was fenced before it began, and has the same epoch to begin with
	from := processor.Begun{App: "my.app", Incarnation: 1, Name: "sink-out", Epoch: s.epoch + 1, Handles: [][]byte{s.handle}}
	if err := s.begin(); err != nil {
		t.Fatal(err)
	}
	s.write("", "b")
	// The file that it looks for is dealt with, which it does not know: its error is one of a subtask that is not its own any more.
	if err := late.Begin(t.Context(), from); err == nil || !strings.Contains(err.Error(), "is not here") {
		t.Errorf("the late one begins with %v", err)
	}
	late = newWriter(s.table, 0) // and one that was still later and had nothing to deal with
	from.Handles = nil
	if err := late.Begin(t.Context(), from); err != nil {
		t.Fatal(err)
	}
	if err := s.commit(true); err != nil {
		t.Fatal(err)
	}
	if got := rows(t, dir); !slices.Equal(got, []string{". a", ". b"}) {
		t.Errorf("rows %q", got)
	}
}

// TestRolling: by size, age, time without rows, and the number of open files.
func TestRolling(t *testing.T) {
	dir := t.TempDir()
	s := &subtask{t: t, clock: time.UnixMilli(1_700_000_000_000), table: &table{path: dir, size: 100, rollover: time.Minute, inactive: 20 * time.Second, checkEvery: time.Second}}
	if err := s.begin(); err != nil {
		t.Fatal(err)
	}
	shows := func(want int, when string) {
		t.Helper()
		if err := s.commit(false); err != nil {
			t.Fatal(err)
		}
		if got := len(rows(t, dir)); got != want {
			t.Errorf("%s: %d rows show, want %d", when, got, want)
		}
	}
	if due := s.w.Due(); due != processor.Never {
		t.Errorf("without a file something is due at %d", due)
	}
	s.write("", "one")
	shows(0, "at once")
	if due, want := s.w.Due(), s.clock.Add(21*time.Second).UnixMilli(); due != want {
		t.Errorf("due is %d, want %d", due, want)
	}
	s.clock = s.clock.Add(19 * time.Second)
	shows(0, "after 19 s")
	s.write("", "two")
	s.clock = s.clock.Add(20 * time.Second)
	shows(2, "20 s after the last row")
	for range 5 {
		s.write("", "three")
		s.clock = s.clock.Add(15 * time.Second)
		if err := s.commit(false); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(rows(t, dir)); got != 6 {
		t.Errorf("after a minute %d rows show, want 6", got)
	}
	if err := s.commit(true); err != nil {
		t.Fatal(err)
	}
	s.write("", strings.Repeat("x", 200))
	s.write("", "more")
	shows(8, "with a file that is large enough")
	for i := range maxOpen + 5 {
		s.clock = s.clock.Add(time.Millisecond)
		s.write(fmt.Sprintf("d=%d", i), "part")
	}
	if len(s.w.open) != maxOpen {
		t.Errorf("%d files are open, want %d", len(s.w.open), maxOpen)
	}
	shows(8+1+5, "with more folders than files may be open") // with that of "more", the oldest
}

// TestLostFile: committed rows whose file is gone stop the app, since on this machine they cannot show.
func TestLostFile(t *testing.T) {
	dir := t.TempDir()
	s := &subtask{t: t, clock: time.Now(), table: &table{path: dir, size: 1 << 20, rollover: time.Hour, inactive: time.Hour}}
	if err := s.begin(); err != nil {
		t.Fatal(err)
	}
	s.write("", "a")
	if err := s.commit(false); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, staging)); err != nil {
		t.Fatal(err)
	}
	if err := s.begin(); err == nil || !strings.Contains(err.Error(), "must be one that all members see") {
		t.Errorf("error %v", err)
	}
}
