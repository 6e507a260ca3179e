package integration

import (
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/test/kafka"
)

// TestExamples runs each example, told its topics by flags, on input that is already there.
func TestExamples(t *testing.T) {
	t.Parallel()
	for _, program := range []string{copyJob, totalJob, windowJob} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, kafka.Shared(t), program)
			j.produce(40_000)
			j.closeWindows()
			p := j.run(t.TempDir(), []string{"--in", j.in, "--out", j.out})
			j.committed(p)
			stop(t, p)
			j.check()
		})
	}
}

// TestUseCases runs the examples that check themselves on a real broker: they make topics and input, judge what they have
// committed, and say so with their exit code. Those topics are not there a second time.
func TestUseCases(t *testing.T) {
	t.Parallel()
	b := kafka.Shared(t)
	for _, program := range []string{"live-dashboard", "fraud-detection", "iot-alerts"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			bin := kafka.Build(t, "github.com/millrace-stream/millrace/examples/"+program)
			args := []string{"--check-on", strings.Join(b.Brokers(), ","), "--duration", "3s"}
			p := kafka.Run(t, bin, args)
			if code := p.Wait(t, 2*patience); code != 0 || !strings.Contains(p.Output(), "right: ") {
				t.Fatalf("exit code %d:\n%s", code, p.Output())
			}
			p = kafka.Run(t, bin, args)
			if code := p.Wait(t, patience); code != 1 || !strings.Contains(p.Output(), "a check needs new topics") {
				t.Errorf("run again: exit code %d, want a refusal\n%s", code, p.Output())
			}
		})
	}
}
