package integration

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/test/kafka"
)

// Field report: partitions were added to a source at run time, and threads died of inconsistent internal topics.
//
// TestInputGrows raises the partitions of the input while the job runs: the worker goes on with them in the same process, with
// the same counts, although keys have moved to other partitions.
func TestInputGrows(t *testing.T) {
	t.Parallel()
	b := kafka.Shared(t)
	j := newJob(t, b, totalJob)
	j.env = []string{"MILLRACE_REQUEST_TIMEOUT=5s", "MILLRACE_CHECKPOINT_URL=file://" + t.TempDir()}
	dir := t.TempDir()
	p := j.worker(dir)
	j.produce(1000)
	j.committed(p)
	res, err := b.Admin(t).UpdatePartitions(t.Context(), 3*partitions, j.in)
	if err == nil {
		err = res.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, patience, func() error {
		if !p.Running() || !strings.Contains(p.Output(), "going on with them") {
			return errors.New("the worker does not go on with the new partitions")
		}
		return nil
	})
	j.parts = 3 * partitions
	j.produce(1000)
	j.committed(p)
	stop(t, p)
	j.check()

	// To a number that the subtasks do not divide: the app goes on without the new partitions, until a rescale takes them in.
	res, err = b.Admin(t).UpdatePartitions(t.Context(), 3*partitions+1, j.in)
	if err == nil {
		err = res.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	p = j.worker(dir)
	testutil.Eventually(t, patience, func() error {
		if !p.Running() || !strings.Contains(p.Output(), "millrace rescale") {
			return errors.New("the worker does not say what to do")
		}
		return nil
	})
	j.rescale(1)
	j.parts = 3*partitions + 1
	j.produce(1000)
	j.committed(p)
	stop(t, p)
	j.settled(j.out)
	checkRunningTotal(t, j.src.truth, b.Read(t, j.out))
}

// TestFutureEvent has an event whose time is years ahead, which brokers refuse as a record timestamp: the result goes
// to the dead-letter topic, and the job goes on.
func TestFutureEvent(t *testing.T) {
	t.Parallel()
	b := kafka.Shared(t)
	j := newJob(t, b, copyJob)
	j.in = b.CreateTopic(t, partitions, map[string]string{"message.timestamp.after.max.ms": "9223372036854775807"})
	j.out = b.CreateTopic(t, partitions, map[string]string{"message.timestamp.after.max.ms": "3600000"})
	p := j.worker(t.TempDir())
	j.produce(100)
	future := event{user: "zz00000", cents: 500, ts: time.Now().Add(24 * time.Hour).UnixMilli()}
	b.Produce(t, &kgo.Record{Topic: j.in, Key: []byte(future.user), Value: future.value(), Timestamp: time.UnixMilli(future.ts)})
	j.produce(100)
	j.committed(p)
	stop(t, p)
	j.check()
	letters := b.Read(t, j.app+"-dead-letter")
	if len(letters) != 1 || !strings.Contains(header(letters[0], "millrace-error"), "message.timestamp.after.max.ms") {
		t.Fatalf("%d dead letters, want one that names the bound", len(letters))
	}
}
