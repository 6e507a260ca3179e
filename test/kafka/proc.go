package kafka

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The Go programs that this test binary has built, by package and flags.
var builds struct {
	mu  sync.Mutex
	dir string
	bin map[string]string
}

// Build compiles a main package (an import path, "github.com/...") with the go command and returns the program's path. Each
// is built once per test binary and removed by Main. Flags are build flags ("-race").
func Build(t testing.TB, pkg string, flags ...string) string {
	t.Helper()
	builds.mu.Lock()
	defer builds.mu.Unlock()
	key := strings.Join(flags, " ") + " " + pkg
	if bin := builds.bin[key]; bin != "" {
		return bin
	}
	if builds.dir == "" {
		dir, err := os.MkdirTemp("", "millrace-build-")
		if err != nil {
			t.Fatalf("create a folder for test programs: %v", err)
		}
		builds.dir, builds.bin = dir, map[string]string{}
	}
	bin := filepath.Join(builds.dir, fmt.Sprintf("%d-%s", len(builds.bin), filepath.Base(pkg)))
	args := append(append([]string{"build", "-o", bin}, flags...), pkg)
	if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, tail(string(out), 8192))
	}
	builds.bin[key] = bin
	return bin
}

func removeBuilds() error {
	builds.mu.Lock()
	defer builds.mu.Unlock()
	if builds.dir == "" {
		return nil
	}
	return os.RemoveAll(builds.dir)
}

// maxOutput is how much of a process's output is kept; of longer output the first half is dropped.
const maxOutput = 4 << 20

// Proc is a child process of a test.
type Proc struct {
	name  string
	child *child
	out   output
}

// Run starts a program. env ("K=V") comes on top of our own environment, of which MILLRACE_* is left out so that a
// test does not depend on who runs it. The process is killed at the test's end; its output is shown if the test failed.
func Run(t testing.TB, bin string, args []string, env ...string) *Proc {
	t.Helper()
	p := &Proc{name: filepath.Base(bin)}
	cmd := exec.Command(bin, args...)
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "MILLRACE_") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, env...)
	cmd.Stdout, cmd.Stderr = &p.out, &p.out
	cmd.WaitDelay = 5 * time.Second // a grandchild that keeps the pipe must not keep us
	c, err := startChild(cmd)
	if err != nil {
		t.Fatal(err)
	}
	p.child = c
	t.Cleanup(func() {
		if err := c.kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("output of %s (process %d, %s):\n%s", p.name, p.Pid(), c.cmd.ProcessState, tail(p.out.String(), 16384))
		}
	})
	return p
}

// Pid of the process.
func (p *Proc) Pid() int { return p.child.cmd.Process.Pid }

// Running says whether the process is alive.
func (p *Proc) Running() bool { return p.child.running() }

// Output of the process so far, stdout and stderr.
func (p *Proc) Output() string { return p.out.String() }

// Signal sends a signal, for example SIGSTOP.
func (p *Proc) Signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if err := p.child.signal(sig); err != nil {
		t.Fatal(err)
	}
}

// Kill ends the process with SIGKILL and waits until it is gone.
func (p *Proc) Kill(t testing.TB) {
	t.Helper()
	if err := p.child.kill(); err != nil {
		t.Fatal(err)
	}
}

// Term asks the process to stop (SIGTERM) and returns its exit code; the test fails if it has not ended in time.
func (p *Proc) Term(t testing.TB, timeout time.Duration) int {
	t.Helper()
	p.Signal(t, syscall.SIGTERM)
	return p.Wait(t, timeout)
}

// Wait for the process to end by itself and return its exit code, -1 if a signal ended it; the test fails if it has
// not ended in time.
func (p *Proc) Wait(t testing.TB, timeout time.Duration) int {
	t.Helper()
	if err := p.child.wait(timeout); err != nil {
		t.Fatal(err)
	}
	return p.child.cmd.ProcessState.ExitCode()
}

// WaitOutput waits until the output contains a text; the test fails if it has not come in time or the process ended
// without it.
func (p *Proc) WaitOutput(t testing.TB, text string, timeout time.Duration) {
	t.Helper()
	deadline := time.Now().Add(timeout)
	for {
		ended := !p.Running() // before the look at the output: what comes last counts too
		if strings.Contains(p.out.String(), text) {
			return
		}
		if ended {
			t.Fatalf("%s ended (%s) without %q in its output", p.name, p.child.cmd.ProcessState, text)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: no %q in its output after %s", p.name, text, timeout)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// output keeps the end of what is written to it.
type output struct {
	mu sync.Mutex
	b  []byte
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.b = append(o.b, p...)
	if len(o.b) > maxOutput {
		o.b = append(o.b[:0], o.b[len(o.b)-maxOutput/2:]...)
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.b)
}
