package integration

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/test/kafka"
)

// sqlJob runs scripts with the command.
const sqlJob = "sql"

func newSQLJob(t *testing.T) *job {
	t.Helper()
	j := newJob(t, kafka.Shared(t), sqlJob)
	j.main = "cmd/millrace"
	j.env = []string{"IN=" + j.in, "OUT=" + j.out}
	return j
}

// script starts a member that runs a script of testdata.
func (j *job) script(dir, name string, env ...string) *kafka.Proc {
	j.t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", name))
	if err != nil {
		j.t.Fatal(err)
	}
	return j.run(dir, []string{"run", path}, env...)
}

// TestSQLKillAndRestart: JSON in, an aggregate of windows out, on two members, of which one is killed and comes back. Each
// window comes once, with what the input says.
func TestSQLKillAndRestart(t *testing.T) {
	t.Parallel()
	j := newSQLJob(t)
	dirs := []string{t.TempDir(), t.TempDir()}
	first, second := j.script(dirs[0], "window-count.sql"), j.script(dirs[1], "window-count.sql")
	j.produce(100)
	j.committed(first, second)
	stopFeed := j.feed(100)
	j.progress()
	first.Kill(t)
	j.progress()
	first = j.script(dirs[0], "window-count.sql")
	j.progress()
	second.Kill(t)
	j.progress()
	second = j.script(dirs[1], "window-count.sql")
	stopFeed()
	j.closeWindows()
	j.committed(first, second)
	// Rows that were sent to the subtask of their key are not input of the app any more.
	windows := map[windowKey]bool{}
	for _, e := range j.src.truth {
		windows[windowKey{e.user, e.ts - e.ts%windowMs}] = true
	}
	testutil.Eventually(t, patience, func() error {
		rows := 0
		for _, r := range j.b.Read(t, j.out) {
			if !bytes.Contains(r.Value, []byte(`"user":"z`)) {
				rows++
			}
		}
		if rows < len(windows) {
			return fmt.Errorf("%d windows of %d", rows, len(windows))
		}
		return nil
	})
	stop(t, first, second)
	j.settled(j.out)
	checkWindows(t, j.src.truth, j.b.Read(t, j.out))
}
