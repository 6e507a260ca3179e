package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/test/kafka"
)

// soak says whether the long tests are wanted.
func soak() bool { return os.Getenv("MILLRACE_TEST_SOAK") == "1" }

// seeded is a random source whose seed is printed; MILLRACE_TEST_SEED sets it.
func seeded(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("MILLRACE_TEST_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("MILLRACE_TEST_SEED: %v", err)
		}
	}
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// TestThreeBrokers runs workers under load on a replicated cluster while leaders and coordinators move, and brokers are
// killed or stopped and started again, never more than one at a time. No worker may end by that.
func TestThreeBrokers(t *testing.T) {
	if !soak() {
		t.Skip("NOT TESTED: takes minutes; make soak, or MILLRACE_TEST_SOAK=1")
	}
	rnd := seeded(t)
	c := kafka.StartCluster(t, 3)
	for _, program := range []string{totalJob, windowJob} {
		t.Run(program, func(t *testing.T) {
			j := newJob(t, c, program)
			defer func() { // while the workers still live
				if t.Failed() {
					j.logTransactions()
				}
			}()
			workers := make([]*kafka.Proc, 2+rnd.IntN(2))
			for i := range workers {
				workers[i] = j.worker(t.TempDir())
			}
			stopFeed := j.feed(5)
			j.caughtUp(workers...)
			first := rnd.IntN(3) // each broker goes down once in three rounds
			for round := range 6 {
				b := c.Nodes[(first+round)%3]
				faults := []struct {
					name string
					do   func()
				}{
					{"move the leaders of the input and the output", func() { c.MoveLeaders(t, j.in); c.MoveLeaders(t, j.out) }},
					{"move the leaders of the changelog", func() { c.MoveLeaders(t, j.app+"-0-changelog") }},
					{"move the group coordinators", func() { c.MoveLeaders(t, kafka.OffsetsTopic) }},
					{"move the transaction coordinators", func() { c.MoveLeaders(t, kafka.TransactionsTopic) }},
					{"kill a broker", func() { j.outage(b, b.Kill, rnd, workers) }},
					{"stop a broker", func() { j.outage(b, b.Stop, rnd, workers) }},
				}
				down := 4 + rnd.IntN(4)/3 // killed three times out of four
				for _, i := range append(rnd.Perm(4)[:rnd.IntN(3)], down) {
					t.Logf("round %d: %s (%d)", round, faults[i].name, b.Node())
					faults[i].do()
				}
				c.AwaitInSync(t)
				j.caughtUp(workers...)
			}
			stopFeed()
			j.committed(workers...)
			j.checkState() // of the open windows
			j.closeWindows()
			j.committed(workers...)
			stop(t, workers...)
			restarts := 0
			for _, p := range workers {
				restarts += strings.Count(p.Output(), restarted)
			}
			t.Logf("%d records, %d workers, %d restarts of subtasks", len(j.src.truth), len(workers), restarts)
			for _, p := range workers {
				for line := range strings.Lines(p.Output()) {
					if strings.Contains(line, restarted) {
						t.Log(strings.TrimSpace(line))
					}
				}
			}
			j.check()
		})
	}
}

// outage takes a broker down for a while, in half of the cases for so long that the app must go on without it.
func (j *job) outage(b *kafka.Broker, end func() error, rnd *rand.Rand, workers []*kafka.Proc) {
	j.t.Helper()
	pause(time.Duration(rnd.IntN(1000)) * time.Millisecond)
	if err := end(); err != nil {
		j.t.Fatal(err)
	}
	if rnd.IntN(2) == 0 {
		j.caughtUp(workers...)
	}
	if err := b.Restart(); err != nil {
		j.t.Fatal(err)
	}
}

// caughtUp waits until all that the input holds now is committed, by workers that stay alive.
func (j *job) caughtUp(alive ...*kafka.Proc) {
	j.t.Helper()
	adm := j.b.Admin(j.t)
	var ends kadm.ListedOffsets
	testutil.Eventually(j.t, patience, func() (err error) {
		ctx, cancel := context.WithTimeout(j.t.Context(), 10*time.Second)
		defer cancel()
		ends, err = adm.ListEndOffsets(ctx, j.in)
		if err == nil {
			err = ends.Error()
		}
		return err
	})
	testutil.Eventually(j.t, 2*patience, func() error {
		for _, p := range alive {
			if !p.Running() {
				j.t.Fatal("a worker has ended")
			}
		}
		ctx, cancel := context.WithTimeout(j.t.Context(), 10*time.Second)
		defer cancel()
		offsets, err := adm.FetchOffsets(ctx, j.app)
		if err != nil {
			// A client asks the coordinator that it once found until it answers, also when it is dead and another one has
			// its place; a new client looks it up.
			adm = j.b.Admin(j.t)
			return fmt.Errorf("fetch the offsets of the group: %w", err)
		}
		ends.Each(func(end kadm.ListedOffset) {
			if o, ok := offsets.Lookup(j.in, end.Partition); !ok || o.At < end.Offset {
				err = fmt.Errorf("partition %d of the input is committed to %d, not yet to %d", end.Partition, o.At, end.Offset)
			}
		})
		return err
	})
}

// logTransactions logs every transaction that is open on a partition, and what its coordinator says of it: one of
// which the coordinator knows nothing never ends.
func (j *job) logTransactions() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	adm := j.b.Admin(j.t)
	meta, err := adm.Metadata(ctx)
	if err != nil {
		j.t.Logf("look for open transactions: %v", err)
		return
	}
	producers, err := adm.DescribeProducers(ctx, meta.Topics.TopicsSet())
	if err != nil {
		j.t.Logf("describe the producers of partitions: %v", err)
	}
	producers.EachProducer(func(p kadm.DescribedProducer) {
		if p.CurrentTxnStartOffset >= 0 {
			j.t.Logf("open transaction on %s/%d: producer %d epoch %d, from offset %d, coordinator epoch %d, last write %s", p.Topic, p.Partition,
				p.ProducerID, p.ProducerEpoch, p.CurrentTxnStartOffset, p.CoordinatorEpoch, time.UnixMilli(p.LastTimestamp).UTC().Format(time.RFC3339Nano))
		}
	})
	txns, err := adm.DescribeTransactions(ctx)
	if err != nil {
		j.t.Logf("describe transactions: %v", err)
	}
	for _, x := range txns.Sorted() {
		j.t.Logf("transaction %s: %s, producer %d epoch %d, since %s, on %v, %v", x.TxnID, x.State, x.ProducerID, x.ProducerEpoch,
			time.UnixMilli(x.StartTimestamp).UTC().Format(time.RFC3339Nano), x.Topics, x.Err)
	}
}
