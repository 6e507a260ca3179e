package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/internal/failpoint"
	"github.com/millrace-stream/millrace/test/kafka"
)

// TestSavepointFailpoints lets a worker, or the command that asks, end itself as if it were killed at each named point of a
// savepoint, under load. The app goes on, the next savepoint works, and no result is lost or doubled.
func TestSavepointFailpoints(t *testing.T) {
	t.Parallel()
	url := "file://" + t.TempDir()
	j := memberJob(t, kafka.Shared(t), url, time.Minute, time.Minute)
	bin := kafka.Build(t, "github.com/millrace-stream/millrace/cmd/millrace")
	n := 0
	// take asks for a savepoint, and waits for the end of the command.
	take := func(env ...string) (name string, code int, output string) {
		t.Helper()
		n++
		name = fmt.Sprint("sp-", n)
		p := kafka.Run(t, bin, []string{"savepoint", "create", name, "--app.id=" + j.app, "--brokers=" + strings.Join(j.b.Brokers(), ","),
			"--checkpoint.url=" + url, "--timeout=4s"}, env...)
		return name, p.Wait(t, patience), p.Output()
	}
	// until asks again until one ends as it should: who has died may still be a member, or its savepoint run.
	until := func(what string, done func(code int) bool, env ...string) (name string) {
		t.Helper()
		var last string
		for end := time.Now().Add(patience); time.Now().Before(end); {
			name, code, output := take(env...)
			if done(code) {
				return name
			}
			last = output
		}
		t.Fatalf("%s: not within %s; the last command says:\n%s", what, patience, last)
		return ""
	}
	stays, dir := j.worker(t.TempDir()), t.TempDir()
	stopFeed := j.feed(10)
	j.progress()
	var good []string
	for _, c := range []struct {
		point   string
		command bool // the command dies of it
	}{
		{failpoint.AfterAligned, false},
		{failpoint.MidSavepoint, false},
		{failpoint.BeforeSavepointManifest, true},
		{failpoint.AfterSavepointManifest, true},
	} {
		arm := fmt.Sprintf("%s=%s:exit@1", failpoint.Env, c.point)
		if c.command {
			until(c.point, func(code int) bool { return code == 137 }, arm)
		} else {
			p := j.worker(dir, arm)
			p.WaitOutput(t, "subtask runs", patience)
			until(c.point, func(int) bool { return !p.Running() })
			if code := p.Wait(t, patience); code != 137 {
				t.Fatalf("%s: exit code %d, want 137:\n%s", c.point, code, p.Output())
			}
		}
		good = append(good, until("a savepoint after "+c.point, func(code int) bool { return code == 0 }))
		j.progress()
	}
	stopFeed()
	j.committed(stays)
	stop(t, stays)
	j.check()
	sps := checkpoint.NewSavepoints(openBlobs(t, url, blob.Options{}), j.app, nil, nil)
	for _, name := range good {
		if _, err := sps.Verify(t.Context(), name, nil); err != nil {
			t.Error(err)
		}
	}
}
