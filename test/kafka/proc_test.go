package kafka

import (
	"syscall"
	"testing"
	"time"
)

func TestProc(t *testing.T) {
	bin := Build(t, "github.com/millrace-stream/millrace/test/kafka/testdata/echo")
	if again := Build(t, "github.com/millrace-stream/millrace/test/kafka/testdata/echo"); again != bin {
		t.Errorf("built twice: %s and %s", bin, again)
	}
	t.Setenv("MILLRACE_WORD", "from the environment of the test")

	p := Run(t, bin, []string{"one"}, "WORD=two")
	p.WaitOutput(t, "one two \"\"\n", 10*time.Second)
	if code := p.Term(t, 10*time.Second); code != 3 {
		t.Errorf("exit code after SIGTERM is %d, want 3", code)
	}
	p.WaitOutput(t, "terminated", time.Second)

	p = Run(t, bin, []string{"x"})
	p.WaitOutput(t, "x", 10*time.Second)
	p.Signal(t, syscall.SIGSTOP)
	p.Kill(t)
	if p.Running() {
		t.Error("it runs after Kill")
	}
	if code := p.Wait(t, time.Second); code != -1 {
		t.Errorf("exit code after SIGKILL is %d, want -1", code)
	}
}

func TestOutputKeepsTheEnd(t *testing.T) {
	var o output
	line := make([]byte, 64<<10)
	for i := range 200 {
		line[0] = byte('a' + i%26)
		_, _ = o.Write(line)
	}
	got := o.String()
	if len(got) > maxOutput {
		t.Errorf("%d bytes kept, want at most %d", len(got), maxOutput)
	}
	if last := got[len(got)-len(line)]; last != byte('a'+199%26) {
		t.Errorf("the last line starts with %c", last)
	}
}
