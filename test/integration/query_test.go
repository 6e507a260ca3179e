package integration

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/test/kafka"
)

// TestStateInTheHand reads the state of two workers with the command, from either of them, while and after records are
// processed, then that of their checkpoints, and compares all with what was written into the input.
func TestStateInTheHand(t *testing.T) {
	t.Parallel()
	j := newJob(t, kafka.Shared(t), totalJob)
	j.src = newSource(11, 40)
	checkpoints := "file://" + t.TempDir()
	j.env = []string{"MILLRACE_ADMIN_TOKEN=hush", "MILLRACE_CHECKPOINT_URL=" + checkpoints, "MILLRACE_CHECKPOINT_INTERVAL=1s", "MILLRACE_CHECKPOINT_MIN_PAUSE=100ms"}
	var workers []*kafka.Proc
	var addrs []string
	for range 2 {
		addr := freeAddr(t)
		addrs = append(addrs, addr)
		workers = append(workers, j.worker(t.TempDir(), "MILLRACE_LISTEN="+addr, "MILLRACE_ADVERTISE="+addr))
	}
	bin := kafka.Build(t, "github.com/millrace-stream/millrace/cmd/millrace")
	command := func(args ...string) (out string, err error) {
		cmd := exec.CommandContext(t.Context(), bin, append(append([]string{"state"}, args...), "--app.id="+j.app)...)
		cmd.Env = []string{"MILLRACE_ADMIN_TOKEN=hush", "MILLRACE_CHECKPOINT_URL=" + checkpoints, "TMPDIR=" + t.TempDir()}
		var all strings.Builder
		cmd.Stderr = &all
		b, err := cmd.Output()
		t.Logf("millrace state %s\n%s%s", strings.Join(args, " "), first(string(b), 600), all.String())
		if err != nil {
			err = fmt.Errorf("millrace state %s: %w: %s", strings.Join(args, " "), err, all.String())
		}
		return string(b), err
	}
	type entry struct {
		Store, Subtask, Key string
		Value               struct{ Count, Cents int64 }
	}
	entries := func(out string) (m map[string]entry, err error) {
		m = map[string]entry{}
		for line := range strings.Lines(out) {
			var e entry
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				return nil, fmt.Errorf("%w in %s", err, line)
			}
			m[e.Key] = e
		}
		return m, nil
	}
	// matches says that every user has the count and sum of all that was written.
	matches := func(out string, err error) error {
		if err != nil {
			return err
		}
		got, err := entries(out)
		if err != nil {
			return err
		}
		want := map[string]entry{}
		for _, e := range j.src.truth {
			w := want[e.user]
			w.Value.Count++
			w.Value.Cents += e.cents
			want[e.user] = w
		}
		if len(got) != len(want) {
			return fmt.Errorf("%d users, want %d", len(got), len(want))
		}
		subtasks := map[string]bool{}
		for user, w := range want {
			g := got[user]
			subtasks[g.Subtask] = true
			if g.Value != w.Value || g.Store != "total/total" {
				return fmt.Errorf("user %s: %+v, want %+v", user, g, w.Value)
			}
		}
		if len(subtasks) != partitions {
			return fmt.Errorf("users of %d subtasks, want %d", len(subtasks), partitions)
		}
		return nil
	}
	end := j.feed(5)
	testutil.Eventually(t, patience, func() error { // under load
		out, err := command("scan", "--live="+addrs[0], "--limit=0", "total/total")
		if n := strings.Count(out, "\n"); err == nil && n < 30 {
			err = fmt.Errorf("%d entries so far", n)
		}
		return err
	})
	end()
	j.committed(workers...)
	for _, addr := range addrs {
		testutil.Eventually(t, patience, func() error { return matches(command("scan", "--live="+addr, "--limit=0", "total/total")) })
		for _, e := range j.src.truth[:3] {
			var out string
			testutil.Eventually(t, patience, func() (err error) { // a subtask may still be on its way to the other worker
				out, err = command("get", "--live="+addr, "total/total", e.user)
				return err
			})
			if got, err := entries(out); err != nil || len(got) != 1 || got[e.user].Value.Count == 0 {
				t.Fatalf("%v, %s", err, out)
			}
		}
	}
	if out, err := command("list", "--live="+addrs[1]); err != nil || !strings.Contains(out, `"store":"total/total"`) {
		t.Fatalf("%v %s", err, out)
	}
	testutil.Eventually(t, patience, func() error { return matches(command("scan", "--checkpoint=latest", "--limit=0", "total/total")) })
	testutil.Eventually(t, patience, func() error { return matches(command("export", "--checkpoint=latest")) })
	// What is left answers for all.
	stop(t, workers[0])
	testutil.Eventually(t, patience, func() error { return matches(command("export", "--live="+addrs[1])) })
	stop(t, workers[1])
	if _, err := command("list", "--live="+addrs[1]); err == nil {
		t.Error("a worker that has stopped answers")
	}
}

// first are the first bytes of a text.
func first(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "...\n"
}
