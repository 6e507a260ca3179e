package integration

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/internal/failpoint"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/test/kafka"
)

// Field report: a process died between the durable changelog and the commit, and the outcome was taken for a success.
// (One death in the midst of a transaction, in TestDeathBeforeCommit.)
//
// TestFailpoints lets a worker end itself, as if it were killed, at each named point of a commit under load, and takes
// over at once with its state directory. TestCheckpointFailpoints does it with checkpoints.
func TestFailpoints(t *testing.T) {
	t.Parallel()
	j := newJob(t, kafka.Shared(t), totalJob)
	dir := t.TempDir()
	stopFeed := j.feed(10)
	for name, n := range map[string]int{
		failpoint.AfterInitProducerID: 1, // passed once for each subtask
		failpoint.BeforeFlush:         25, failpoint.AfterFlush: 25, failpoint.AfterTxnOffsetCommit: 25, failpoint.BeforeEndTxn: 25, failpoint.AfterEndTxn: 25,
	} {
		p := j.worker(dir, fmt.Sprintf("%s=%s:exit@%d", failpoint.Env, name, n))
		if code := p.Wait(t, patience); code != 137 {
			t.Fatalf("%s: exit code %d, want 137:\n%s", name, code, p.Output())
		}
	}
	p := j.worker(dir)
	j.progress()
	stopFeed()
	j.committed(p)
	stop(t, p)
	j.check()
}

// Field report: a zombie appended to the changelog late, over what its successor had written (apache/kafka PR #13667).
//
// TestZombie stops a worker's process for longer than its session, lets the other take over, and wakes it up: it must
// neither write nor disturb for good.
func TestZombie(t *testing.T) {
	t.Parallel()
	j := newJob(t, kafka.Shared(t), totalJob)
	j.env = []string{"MILLRACE_GROUP_SESSION_TIMEOUT=3s"}
	a, b := j.worker(t.TempDir()), j.worker(t.TempDir())
	stopFeed := j.feed(10)
	for _, p := range []*kafka.Proc{a, b} {
		p.WaitOutput(t, "subtask runs", patience)
	}
	j.progress()
	for range 2 {
		b.Signal(t, syscall.SIGSTOP)
		j.progress() // every partition: the other has taken over
		b.Signal(t, syscall.SIGCONT)
		testutil.Eventually(t, patience, func() error { // it is a member again
			if n := strings.Count(b.Output(), "subtask runs"); n < 3 {
				return fmt.Errorf("the woken worker started %d subtasks", n)
			}
			return nil
		})
		j.progress()
	}
	stopFeed()
	j.committed(a, b)
	stop(t, a, b)
	j.check()
}

// TestChaos runs three workers under load while one after the other is killed and comes back, and the broker is
// restarted.
func TestChaos(t *testing.T) {
	t.Parallel()
	rnd := seeded(t)
	for _, program := range []string{totalJob, windowJob} {
		t.Run(program, func(t *testing.T) {
			b := kafka.Start(t)
			j := newJob(t, b, program)
			j.env = []string{"MILLRACE_GROUP_SESSION_TIMEOUT=3s", "MILLRACE_RESTART_MAX_ATTEMPTS=100", "MILLRACE_RESTART_BACKOFF_MAX=1s"}
			dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
			ps := make([]*kafka.Proc, len(dirs))
			for i, dir := range dirs {
				ps[i] = j.worker(dir)
			}
			stopFeed := j.feed(10)
			// alive starts dead workers again, as their supervisor would, until the input is nearly caught up with.
			alive := func() {
				t.Helper()
				testutil.Eventually(t, patience, func() error {
					for i, p := range ps {
						if !p.Running() {
							ps[i] = j.worker(dirs[i])
						}
					}
					lag, err := j.lag()
					if err == nil && lag > 2000 {
						err = fmt.Errorf("lag %d", lag)
					}
					return err
				})
			}
			for range 5 {
				i := rnd.IntN(len(ps))
				ps[i].Kill(t)
				if rnd.IntN(2) == 0 {
					ps[i] = j.worker(dirs[i])
				}
				pause(time.Duration(500+rnd.IntN(2000)) * time.Millisecond)
				alive()
			}
			// A broker that goes down while it completes transactions leaves hanging ones (KAFKA-20734), see txn/hanging.go.
			down := b.Stop
			if rnd.IntN(3) == 0 {
				down = b.Kill
			}
			if err := down(); err != nil {
				t.Fatal(err)
			}
			if err := b.Restart(); err != nil {
				t.Fatal(err)
			}
			alive()
			stopFeed()
			done := func() {
				t.Helper()
				testutil.Eventually(t, 2*patience, func() error {
					alive()
					lag, err := j.lag()
					if err == nil && lag != 0 {
						err = fmt.Errorf("lag %d", lag)
					}
					return err
				})
			}
			done()
			j.checkState() // of the open windows
			j.closeWindows()
			done()
			stop(t, ps...)
			j.check()
		})
	}
}

// TestConnectionCuts puts a proxy between workers and their broker, which cuts all connections, loses replies (of what
// the broker has done) and delays, each for a moment, while workers are under load. No worker may end by that.
func TestConnectionCuts(t *testing.T) {
	t.Parallel()
	rnd := seeded(t)
	began := time.Now()
	phase := func(what string) { t.Logf("%s after %s", what, time.Since(began).Round(100*time.Millisecond)) }
	var proxy *testutil.Proxy
	b := kafka.Start(t, kafka.Advertise(func(addr string) string {
		proxy = testutil.NewProxy(t, addr)
		return proxy.Addr()
	}))
	jobs := []*job{newJob(t, b, totalJob), newJob(t, b, windowJob)}
	workers := make([][]*kafka.Proc, len(jobs))
	var stopFeeds []func()
	for i, j := range jobs {
		j.env = []string{"MILLRACE_GROUP_SESSION_TIMEOUT=3s"}
		workers[i] = []*kafka.Proc{j.worker(t.TempDir()), j.worker(t.TempDir())}
		stopFeeds = append(stopFeeds, j.feed(5))
	}
	for i, j := range jobs {
		j.caughtUp(workers[i]...)
	}
	phase("work runs")
	moment := func(ms int) { pause(time.Duration(rnd.IntN(ms)) * time.Millisecond) }
	for range 12 {
		switch rnd.IntN(4) {
		case 0:
			proxy.Cut()
			moment(400)
		case 1, 2:
			proxy.DropReplies()
			moment(200)
			proxy.Cut() // those connections are of no use any more
		default:
			proxy.Delay(time.Duration(1+rnd.IntN(50)) * time.Millisecond)
			moment(400)
		}
		proxy.Restore()
		moment(600)
	}
	phase("the faults are over")
	for i, j := range jobs {
		stopFeeds[i]()
		j.committed(workers[i]...)
		phase(j.program + ": lag 0")
		j.checkState() // of the open windows
		j.closeWindows()
		j.committed(workers[i]...)
		stop(t, workers[i]...)
		restarts := 0
		for _, p := range workers[i] {
			restarts += strings.Count(p.Output(), restarted)
		}
		t.Logf("%s: %d records, %d restarts of subtasks", j.program, len(j.src.truth), restarts)
		j.check()
	}
}

// pause lets the faults spread over time; nothing is synchronised by it.
func pause(d time.Duration) { <-time.After(d) }
