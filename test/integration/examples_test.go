package integration

import (
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
