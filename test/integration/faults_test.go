package integration

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/test/kafka"
)

const sigterm = syscall.SIGTERM

const restarted = "subtask starts again from its last commit"

// TestKillAndReturn kills one of two workers with -9 and lets the other take over; the dead one comes back later. Then
// the other is killed and started again at once, with its state directory, as a container would be.
func TestKillAndReturn(t *testing.T) {
	t.Parallel()
	for _, program := range []string{totalJob, windowJob} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, kafka.Shared(t), program)
			a, b := t.TempDir(), t.TempDir()
			pa, pb := j.worker(a), j.worker(b)
			stopFeed := j.feed(20)
			pa.WaitOutput(t, "subtask runs", patience)
			pb.WaitOutput(t, "subtask runs", patience)
			if program == totalJob {
				j.progress()
			}
			pb.Kill(t)
			if program == totalJob {
				j.progress() // every partition, those of the dead worker too
			} else {
				testutil.Eventually(t, patience, func() error {
					if n := strings.Count(pa.Output(), "subtask runs"); n < partitions {
						return fmt.Errorf("the survivor runs %d subtasks", n)
					}
					return nil
				})
			}
			pb = j.worker(b)
			pb.WaitOutput(t, "subtask runs", patience)
			pa.Kill(t)
			pa = j.worker(a)
			pa.WaitOutput(t, "subtask runs", patience)
			if program == totalJob {
				j.progress()
			}
			stopFeed()
			j.committed(pa, pb)
			j.checkState() // of the open windows
			j.closeWindows()
			j.committed(pa, pb)
			stop(t, pa, pb)
			j.check()
		})
	}
}

// Field report: each member that came or went in a rolling deployment aborted transactions of those that stayed.
//
// TestJoinInMidCommit lets a second worker join and leave twenty times while the first commits every five
// milliseconds: commits meet ILLEGAL_GENERATION, and no subtask may stop for that.
func TestJoinInMidCommit(t *testing.T) {
	t.Parallel()
	j := newJob(t, kafka.Shared(t), totalJob)
	j.env = []string{"MILLRACE_COMMIT_MAX_LATENCY=5ms", "MILLRACE_COMMIT_QUIET=1ms", "MILLRACE_GROUP_STATIC=false"}
	first := j.worker(t.TempDir())
	stopFeed := j.feed(10)
	first.WaitOutput(t, "subtask runs", patience)
	for i := range 20 {
		second := j.worker(t.TempDir())
		second.WaitOutput(t, "subtask runs", patience)
		if code := second.Term(t, 10*time.Second); code != 0 {
			t.Fatalf("round %d: exit code %d", i, code)
		}
		if strings.Contains(second.Output(), restarted) {
			t.Errorf("round %d: a subtask of the joining worker stopped:\n%s", i, second.Output())
		}
	}
	stopFeed()
	j.committed(first)
	stop(t, first)
	if strings.Contains(first.Output(), restarted) {
		t.Error("a subtask stopped in a rebalance")
	}
	j.check()
}

// TestRollingRestart restarts both workers one after the other, as a deployment does with static members.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	j := newJob(t, kafka.Shared(t), totalJob)
	j.env = []string{"MILLRACE_GROUP_LEAVE_ON_STOP=false"}
	dirs := []string{t.TempDir(), t.TempDir()}
	ps := []*kafka.Proc{j.worker(dirs[0]), j.worker(dirs[1])}
	stopFeed := j.feed(10)
	for _, p := range ps {
		p.WaitOutput(t, "subtask runs", patience)
	}
	for i, p := range ps {
		stop(t, p)
		ps[i] = j.worker(dirs[i])
		ps[i].WaitOutput(t, "subtask runs", patience)
		j.progress()
	}
	stopFeed()
	j.committed(ps...)
	stop(t, ps...)
	for _, p := range ps {
		if strings.Contains(p.Output(), restarted) {
			t.Error("a subtask stopped in a rolling restart")
		}
	}
	j.check()
}

// TestRestartFromState stops and starts a worker with its local state as it was, removed, and damaged.
func TestRestartFromState(t *testing.T) {
	t.Parallel()
	j := newJob(t, kafka.Shared(t), totalJob)
	dir := t.TempDir()
	run := func() string {
		t.Helper()
		p := j.worker(dir)
		j.produce(2000)
		j.committed(p)
		stop(t, p)
		return p.Output()
	}
	if out := run(); strings.Contains(out, "state restored") {
		t.Errorf("the first start restored something:\n%s", out)
	}
	if out := run(); strings.Contains(out, "way=changelog") {
		t.Errorf("a restart with its local state read the whole changelog:\n%s", out)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if out := run(); strings.Count(out, "way=changelog") != partitions {
		t.Errorf("a restart without local state must restore each subtask from its changelog:\n%s", out)
	}
	damaged := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".sst") {
			damaged++
			return os.WriteFile(path, []byte("this is no table"), 0o600)
		}
		return err
	})
	if err != nil || damaged == 0 {
		t.Fatalf("damage the tables: %d damaged, %v", damaged, err)
	}
	if out := run(); !strings.Contains(out, "state cannot be restored this way") {
		t.Errorf("nobody noticed the damaged tables:\n%s", out)
	}
	j.check()
}

// TestStateDirIsGuarded starts workers on a state directory that they must not use.
func TestStateDirIsGuarded(t *testing.T) {
	t.Parallel()
	b := kafka.Shared(t)
	j := newJob(t, b, totalJob)
	dir := t.TempDir()
	p := j.worker(dir)
	p.WaitOutput(t, "subtask runs", patience)
	refused := func(j *job, want string) {
		t.Helper()
		p := j.worker(dir)
		if code := p.Wait(t, patience); code != 1 || !strings.Contains(p.Output(), want) {
			t.Errorf("exit code %d, want 1 and %q:\n%s", code, want, p.Output())
		}
	}
	refused(j, "in use by another process")
	stop(t, p)
	refused(newJob(t, b, totalJob), "belongs to another app")
	writeFile(t, filepath.Join(dir, "FORMAT"), fmt.Sprintf(`{"format":1000,"app":%q}`, j.app))
	refused(j, "run the newer version again, or empty the directory")
}

// TestTransactionalInput reads a topic whose producer writes transactions: the group's lag must reach 0 although the
// last offset of each partition is a marker, and nothing of an aborted transaction may be seen.
func TestTransactionalInput(t *testing.T) {
	t.Parallel()
	b := kafka.Shared(t)
	first, second := newJob(t, b, copyJob), newJob(t, b, totalJob)
	second.in, second.src = first.out, nil
	pa, pb := first.worker(t.TempDir()), second.worker(t.TempDir())
	first.produce(3000)
	first.committed(pa)
	second.committed(pb) // the markers too
	stop(t, pa, pb)
	first.check()
	var passed []event
	for _, e := range first.src.truth {
		if e.cents >= 100 {
			passed = append(passed, e)
		}
	}
	checkRunningTotal(t, passed, b.Read(t, second.out))
}

// TestVersions runs a job through a kill on brokers with other features.
func TestVersions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		opts []kafka.Option
	}{
		{"transaction.version 1", []kafka.Option{kafka.TransactionVersion1()}},
		{"3.9", []kafka.Option{kafka.Version39()}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, kafka.Start(t, c.opts...), totalJob)
			dir := t.TempDir()
			p := j.worker(dir)
			stopFeed := j.feed(10)
			j.progress()
			p.Kill(t)
			p = j.worker(dir)
			j.progress()
			stopFeed()
			j.committed(p)
			stop(t, p)
			j.check()
		})
	}
}

// TestSecureListeners runs a job over TLS with SCRAM, and shows what wrong credentials and wrong trust say.
func TestSecureListeners(t *testing.T) {
	t.Parallel()
	b := kafka.Start(t, kafka.TLS(), kafka.User("app", "##%'#a\"$@"))
	secret := filepath.Join(t.TempDir(), "password")
	writeFile(t, secret, "##%'#a\"$@\n")
	tls := []string{"MILLRACE_SECURITY_TLS_ENABLED=true", "MILLRACE_SECURITY_TLS_CA_FILE=" + b.Certs().CA}
	for _, mechanism := range []string{"SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"} {
		j := newJob(t, b, copyJob)
		j.env = append(tls, "MILLRACE_SECURITY_SASL_MECHANISM="+mechanism, "MILLRACE_SECURITY_SASL_USERNAME=app", "MILLRACE_SECURITY_SASL_PASSWORD_FILE="+secret)
		p := j.worker(t.TempDir())
		j.produce(500)
		j.committed(p)
		stop(t, p)
		j.check()
		if strings.Contains(p.Output(), "##%") {
			t.Errorf("%s: the password was logged", mechanism)
		}
	}
	j := newJob(t, b, copyJob)
	j.env = append(tls, "MILLRACE_SECURITY_SASL_MECHANISM=SCRAM-SHA-256", "MILLRACE_SECURITY_SASL_USERNAME=app", "MILLRACE_SECURITY_SASL_PASSWORD=wrong")
	fails(t, j, 1, "refused the credentials")
	j.env = []string{"MILLRACE_SECURITY_TLS_ENABLED=true", "MILLRACE_SECURITY_SASL_MECHANISM=PLAIN", "MILLRACE_SECURITY_SASL_USERNAME=app", "MILLRACE_SECURITY_SASL_PASSWORD_FILE=" + secret}
	fails(t, j, 1, "certificate")
	j.env = nil
	fails(t, j, 1, "TLS")
}

// fails starts a worker that must end by itself with the code and say why.
func fails(t *testing.T, j *job, code int, want ...string) {
	t.Helper()
	p := j.worker(t.TempDir())
	got := p.Wait(t, patience)
	if got != code {
		t.Errorf("exit code %d, want %d:\n%s", got, code, p.Output())
	}
	for _, w := range want {
		if !strings.Contains(p.Output(), w) {
			t.Errorf("the output does not say %q:\n%s", w, p.Output())
		}
	}
}

// TestWrongSurroundings starts workers where they cannot run.
func TestWrongSurroundings(t *testing.T) {
	t.Parallel()
	b := kafka.Shared(t)
	j := newJob(t, b, totalJob)
	in, out := j.in, j.out
	j.in, j.out = "no-such-input", "no-such-output"
	fails(t, j, 1, "no-such-input, no-such-output do not exist")
	j.in, j.out = in, out
	j.env = []string{"MILLRACE_COMMIT_MAX_LATENCI=1s", "MILLRACE_SHUTDOWN_TIMEOUT=never"}
	fails(t, j, 2, "MILLRACE_COMMIT_MAX_LATENCI", "did you mean MILLRACE_COMMIT_MAX_LATENCY?", "shutdown.timeout", "never")
	j.env = []string{"MILLRACE_PARALLELISM=3"}
	fails(t, j, 1, "3 does not divide the partition counts [4]")
	j.env = []string{"MILLRACE_BROKERS=127.0.0.1:1", "MILLRACE_REQUEST_TIMEOUT=3s"}
	fails(t, j, 1, "127.0.0.1:1")
}

// TestMissingRights gives a worker all ACLs but one: each time it must stop and name what is missing. With all of them
// it runs.
func TestMissingRights(t *testing.T) {
	t.Parallel()
	b := kafka.Start(t, kafka.ACLs(), kafka.User("app", "secret"))
	j := newJob(t, b, totalJob)
	j.env = []string{"MILLRACE_SECURITY_SASL_MECHANISM=SCRAM-SHA-256", "MILLRACE_SECURITY_SASL_USERNAME=app", "MILLRACE_SECURITY_SASL_PASSWORD=secret",
		"MILLRACE_REQUEST_TIMEOUT=5s", "MILLRACE_RESTART_MAX_ATTEMPTS=2"}
	rights := []struct {
		missing string // what the message must name
		acl     func() *kadm.ACLBuilder
	}{
		{"topic " + j.in, func() *kadm.ACLBuilder {
			return literal(kadm.OpDescribe, kadm.OpDescribeConfigs, kadm.OpRead).Topics(j.in)
		}},
		{"topic " + j.out, func() *kadm.ACLBuilder {
			return literal(kadm.OpDescribe, kadm.OpDescribeConfigs, kadm.OpWrite).Topics(j.out)
		}},
		{"topic " + j.app + "-control", func() *kadm.ACLBuilder {
			return prefixed(kadm.OpCreate, kadm.OpDescribe, kadm.OpDescribeConfigs, kadm.OpRead, kadm.OpWrite, kadm.OpDelete).Topics(j.app + "-")
		}},
		{"group " + j.app, func() *kadm.ACLBuilder { return literal(kadm.OpRead, kadm.OpDescribe).Groups(j.app) }},
		{"transactional id " + j.app, func() *kadm.ACLBuilder { return prefixed(kadm.OpWrite, kadm.OpDescribe).TransactionalIDs(j.app + "-") }},
	}
	adm := b.Admin(t)
	for without := range rights {
		for i, r := range rights {
			var err error
			if i == without {
				_, err = adm.DeleteACLs(t.Context(), r.acl())
			} else {
				_, err = adm.CreateACLs(t.Context(), r.acl())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		fails(t, j, 1, "not authorized", "grant", rights[without].missing)
	}
	for _, r := range rights {
		if _, err := adm.CreateACLs(t.Context(), r.acl()); err != nil {
			t.Fatal(err)
		}
	}
	p := j.worker(t.TempDir())
	j.produce(500)
	j.committed(p)
	stop(t, p)
	j.check()
}

func literal(ops ...kadm.ACLOperation) *kadm.ACLBuilder {
	return kadm.NewACLs().ResourcePatternType(kadm.ACLPatternLiteral).Operations(ops...).Allow("User:app").AllowHosts()
}

func prefixed(ops ...kadm.ACLOperation) *kadm.ACLBuilder {
	return literal(ops...).ResourcePatternType(kadm.ACLPatternPrefixed)
}

// TestStatus looks at the endpoints of a running worker.
func TestStatus(t *testing.T) {
	t.Parallel()
	j := newJob(t, kafka.Shared(t), windowJob)
	addr := freeAddr(t)
	p := j.worker(t.TempDir(), "MILLRACE_LISTEN="+addr)
	j.produce(1000)
	j.committed(p)
	var st engine.Status
	testutil.Eventually(t, patience, func() error {
		if err := getJSON("http://"+addr+"/api/v1/status", &st); err != nil {
			return err
		}
		var lag, in int64
		for _, s := range st.Subtasks {
			lag += s.Lag
			in += s.RecordsIn
		}
		if st.State != engine.StateRunning || len(st.Subtasks) != partitions || lag != 0 || in != 1000 {
			return fmt.Errorf("status %+v", st)
		}
		return nil
	})
	for path, code := range map[string]int{"/livez": 200, "/readyz": 200, "/metrics": 200, "/nothing": 404} {
		resp, err := http.Get("http://" + addr + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != code {
			t.Errorf("%s: status %d, want %d", path, resp.StatusCode, code)
		}
	}
	stop(t, p)
}

func getJSON(url string, into any) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(into)
}
