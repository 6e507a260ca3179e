package integration

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/test/kafka"
)

const (
	copyJob    = "copy"
	totalJob   = "running-total"
	windowJob  = "window-count"
	partitions = 4
	patience   = 60 * time.Second // how long a failing test waits
)

// brokers is a kafka.Broker or a kafka.Cluster.
type brokers interface {
	Brokers() []string
	Client(testing.TB, ...kgo.Opt) *kgo.Client
	Admin(testing.TB) *kadm.Client
	CreateTopic(t testing.TB, partitions int, configs map[string]string) string
	Produce(testing.TB, ...*kgo.Record)
	Read(t testing.TB, topic string) []*kgo.Record
}

// job is one app on a broker, with its topics and what was written into the input.
type job struct {
	t       testing.TB
	b       brokers
	program string
	main    string // path of the program in the module; empty: the example of that name
	app     string
	in, out string
	parts   int32
	src     *source
	env     []string // of every worker
}

func newJob(t testing.TB, b brokers, program string) *job {
	t.Helper()
	return &job{t: t, b: b, program: program, app: kafka.RandomName(program), parts: partitions, src: newSource(7, 500),
		in: b.CreateTopic(t, partitions, nil), out: b.CreateTopic(t, partitions, nil)}
}

// worker starts a member of the app with its own state directory.
func (j *job) worker(dir string, env ...string) *kafka.Proc {
	j.t.Helper()
	return j.run(dir, nil, append([]string{"IN=" + j.in, "OUT=" + j.out}, env...)...)
}

func (j *job) run(dir string, args []string, env ...string) *kafka.Proc {
	j.t.Helper()
	bin := kafka.Build(j.t, "github.com/millrace-stream/millrace/"+cmp.Or(j.main, "examples/"+j.program))
	all := append([]string{"MILLRACE_BROKERS=" + strings.Join(j.b.Brokers(), ","), "MILLRACE_APP_ID=" + j.app,
		"MILLRACE_STATE_DIR=" + dir, "MILLRACE_LISTEN=off"}, j.env...)
	return kafka.Run(j.t, bin, args, append(all, env...)...)
}

// produce writes n events.
func (j *job) produce(n int) { j.b.Produce(j.t, records(j.in, j.src.next(n))...) }

// closeWindows writes one record to each partition whose event time closes all windows.
func (j *job) closeWindows() {
	j.b.Produce(j.t, flushRecords(j.in, j.parts, baseTS+j.src.n+60_000)...)
}

// feed writes events at a steady pace until stop is called, which returns when all are written.
func (j *job) feed(perTick int) (stop func()) {
	cl := j.b.Client(j.t)
	done, ended := make(chan struct{}), make(chan struct{})
	var failed error
	var mu sync.Mutex
	go func() {
		defer close(ended)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			for _, r := range records(j.in, j.src.next(perTick)) {
				cl.Produce(context.Background(), r, func(_ *kgo.Record, err error) {
					mu.Lock()
					defer mu.Unlock()
					if err != nil && failed == nil {
						failed = err
					}
				})
			}
		}
	}()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			close(done)
			<-ended
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := cl.Flush(ctx); err != nil {
				j.t.Errorf("flush the feed: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			if failed != nil {
				j.t.Errorf("feed: %v", failed)
			}
		})
	}
	j.t.Cleanup(stop)
	return stop
}

// lag is how many offsets of the input the group has not committed, transaction markers included.
func (j *job) lag() (int64, error) {
	ctx, cancel := context.WithTimeout(j.t.Context(), 10*time.Second)
	defer cancel()
	adm := j.b.Admin(j.t)
	ends, err := adm.ListEndOffsets(ctx, j.in)
	if err != nil {
		return 0, err
	}
	offs, err := adm.FetchOffsets(ctx, j.app)
	if err != nil {
		return 0, err
	}
	var lag int64
	ends.Each(func(e kadm.ListedOffset) {
		at := int64(0)
		if o, ok := offs.Lookup(j.in, e.Partition); ok && o.At > 0 {
			at = o.At
		}
		lag += e.Offset - at
	})
	return lag, nil
}

// committed waits until the whole input is committed, by workers that are alive.
func (j *job) committed(alive ...*kafka.Proc) {
	j.t.Helper()
	testutil.Eventually(j.t, patience, func() error {
		for _, p := range alive {
			if !p.Running() {
				j.t.Fatal("a worker has ended")
			}
		}
		lag, err := j.lag()
		if err != nil {
			return err
		}
		if lag != 0 {
			return fmt.Errorf("lag %d", lag)
		}
		return nil
	})
}

// progress waits until every output partition has got new committed rows.
func (j *job) progress() {
	j.t.Helper()
	before := j.ends()
	testutil.Eventually(j.t, patience, func() error {
		now := j.ends()
		for p, end := range now {
			if end <= before[p] {
				return fmt.Errorf("output partition %d is still at %d", p, end)
			}
		}
		return nil
	})
}

func (j *job) ends() map[int32]int64 {
	ctx, cancel := context.WithTimeout(j.t.Context(), 10*time.Second)
	defer cancel()
	l, err := j.b.Admin(j.t).ListCommittedOffsets(ctx, j.out)
	m := map[int32]int64{}
	if err == nil {
		l.Each(func(o kadm.ListedOffset) { m[o.Partition] = o.Offset })
	}
	return m
}

// settled waits until no transaction is open on topics. Markers are written after the commit was acknowledged; a
// transaction that nobody ends would hold up readers for ever.
func (j *job) settled(topics ...string) {
	j.t.Helper()
	adm := j.b.Admin(j.t)
	testutil.Eventually(j.t, patience, func() error {
		ctx, cancel := context.WithTimeout(j.t.Context(), 10*time.Second)
		defer cancel()
		ends, err := adm.ListEndOffsets(ctx, topics...)
		if err != nil {
			return err
		}
		stable, err := adm.ListCommittedOffsets(ctx, topics...)
		if err != nil {
			return err
		}
		ends.Each(func(end kadm.ListedOffset) {
			if at, ok := stable.Lookup(end.Topic, end.Partition); !ok || at.Offset != end.Offset {
				err = fmt.Errorf("a transaction is open on %s/%d: last stable offset %d, end %d", end.Topic, end.Partition, at.Offset, end.Offset)
			}
		})
		return err
	})
}

// check compares the committed output and the state with what the input says.
func (j *job) check() {
	j.t.Helper()
	j.checkState()
	j.settled(j.out)
	out := j.b.Read(j.t, j.out)
	for _, r := range out {
		if p := format.Partition(r.Key, partitions); p != r.Partition {
			j.t.Fatalf("%s/%d offset %d: Kafka's partitioner puts key %s on partition %d", r.Topic, r.Partition, r.Offset, r.Key, p)
		}
	}
	switch j.program {
	case copyJob:
		checkCopy(j.t, j.src.truth, out)
	case totalJob:
		checkRunningTotal(j.t, j.src.truth, out)
	case windowJob:
		checkWindows(j.t, j.src.truth, out)
	}
}

// stop ends workers gracefully, all at once, well within ten seconds.
func stop(t testing.TB, ps ...*kafka.Proc) {
	t.Helper()
	for _, p := range ps {
		p.Signal(t, sigterm)
	}
	for _, p := range ps {
		if code := p.Wait(t, 10*time.Second); code != 0 {
			t.Errorf("exit code %d after SIGTERM, want 0", code)
		}
	}
}

// freeAddr is a loopback address that was free just now.
func freeAddr(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", kafka.FreePort(t))
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
