package adhoc_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/adhoc"
	"github.com/millrace-stream/millrace/internal/embedded"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/txn"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// joined makes of each key the texts that it has so far.
func joined(t *testing.T, start processor.Start) *task.Plan {
	t.Helper()
	top := processor.New()
	texts := processor.FromKeyed(top, format.String(), processor.Topic[string]{Name: "in", Start: start}, processor.Parallelism(1))
	processor.ToTopic(processor.Reduce(texts, "joined", func(a, b string) string { return a + b }), "out")
	return plan(t, top)
}

func plan(t *testing.T, top *processor.Topology) *task.Plan {
	t.Helper()
	p, err := top.Plan()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

type world struct {
	broker  *embedded.Broker
	cluster *txn.Cluster
}

func newWorld(t *testing.T) *world {
	t.Helper()
	b, err := embedded.Start(2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	if err := b.CreateTopics(t.Context(), "in"); err != nil {
		t.Fatal(err)
	}
	c, err := txn.Connect(t.Context(), txn.Options{AppID: "nobody", Brokers: b.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &world{b, c}
}

// send writes records, each "key text".
func (w *world) send(t *testing.T, records ...string) {
	t.Helper()
	for _, r := range records {
		k, v, _ := strings.Cut(r, " ")
		if err := w.broker.Produce(t.Context(), embedded.Record{Topic: "in", Key: []byte(k), Value: []byte(v)}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBoundedRunEndsWhereTopicsEnd(t *testing.T) {
	w := newWorld(t)
	w.send(t, "a 1", "b 2", "a 3", "a 4", "b 5")
	var got []string
	var last adhoc.Progress
	err := adhoc.Run(t.Context(), adhoc.Options{Plan: joined(t, processor.Earliest), Cluster: w.cluster, Bounded: true,
		Output: func(records []record.Output) error {
			for _, r := range records {
				got = append(got, string(r.Key)+" "+string(r.Value))
			}
			return nil
		},
		Progress: func(p adhoc.Progress) { last = p },
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(got) // keys lie on two partitions
	if want := []string{"a 1", "a 13", "a 134", "b 2", "b 25"}; !slices.Equal(got, want) {
		t.Errorf("the results are %q, want %q", got, want)
	}
	if last.Records != 5 || last.Behind != 0 {
		t.Errorf("the progress at the end is %+v", last)
	}
	topics, err := w.cluster.AllTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name := range topics {
		if name != "in" {
			t.Errorf("topic %s was made", name)
		}
	}
	if state, _, err := w.cluster.GroupState(t.Context()); err == nil && state != "" && state != "Dead" {
		t.Errorf("there is a group in state %s", state)
	}
}

func TestRunGoesOnUntilItIsStopped(t *testing.T) {
	w := newWorld(t)
	w.send(t, "a 1")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stop := errors.New("seen enough")
	n := 0
	err := adhoc.Run(ctx, adhoc.Options{Plan: joined(t, processor.Earliest), Cluster: w.cluster, Output: func(records []record.Output) error {
		for _, r := range records {
			if n++; n == 1 {
				w.send(t, "a 2") // comes after the start
			}
			if string(r.Value) == "12" {
				return stop
			}
		}
		return nil
	}})
	if !errors.Is(err, stop) {
		t.Errorf("Run = %v", err)
	}
}

func TestRunIsCancelled(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	err := adhoc.Run(ctx, adhoc.Options{Plan: joined(t, processor.Earliest), Cluster: w.cluster,
		Output:   func([]record.Output) error { return nil },
		Progress: func(adhoc.Progress) { cancel(cause) }})
	if !errors.Is(err, cause) {
		t.Errorf("Run = %v", err)
	}
}

func TestStateIsBounded(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("x", 10_000)
	w.send(t, "a "+long, "b "+long, "c "+long)
	err := adhoc.Run(t.Context(), adhoc.Options{Plan: joined(t, processor.Earliest), Cluster: w.cluster, Bounded: true, MaxState: 20_000,
		Output: func([]record.Output) error { return nil }})
	if !errors.Is(err, adhoc.ErrState) {
		t.Errorf("Run = %v", err)
	}
}

func TestRunsThatCannotBe(t *testing.T) {
	rekeyed := func() *task.Plan {
		top := processor.New()
		texts := processor.From(top, processor.Topic[string]{Name: "in"})
		processor.ToTopic(processor.Reduce(processor.KeyBy(texts, "by", strings.ToUpper), "n", func(a, b string) string { return a + b }), "out")
		return plan(t, top)
	}
	for name, c := range map[string]struct {
		plan *task.Plan
		want string
	}{
		"no brokers":  {joined(t, processor.Earliest), "no brokers"},
		"repartition": {rekeyed(), "want one"},
	} {
		err := adhoc.Run(t.Context(), adhoc.Options{Plan: c.plan, Output: func([]record.Output) error { return nil }})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Run = %v, want %q in it", name, err, c.want)
		}
	}
	w := newWorld(t)
	top := processor.New()
	processor.ToTopic(processor.From(top, processor.Topic[string]{Name: "nowhere"}, processor.Parallelism(1)), "out")
	err := adhoc.Run(t.Context(), adhoc.Options{Plan: plan(t, top), Cluster: w.cluster, Output: func([]record.Output) error { return nil }})
	if err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("a topic that is not there: Run = %v", err)
	}
}
