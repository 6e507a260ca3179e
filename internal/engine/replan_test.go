package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/checkpoint/blob/blobtest"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

// textDecoder decodes a record to a word.
type textDecoder struct{ text string }

func (d *textDecoder) Decode(r *processor.SourceRecord) (int64, error) {
	d.text = string(r.Value)
	return processor.NoTime, nil
}

func (d *textDecoder) Run(emit func(word) error) error { return emit(word{Text: d.text}) }

func (d *textDecoder) Watermark() int64 { return processor.NoTime }

// countFound counts the words of the topics of a pattern, from the newest records on.
func countFound(topics ...string) func(*processor.Topology) {
	return func(t *processor.Topology) {
		words := processor.FromRaw(t, processor.RawTopic[word]{Topics: topics, ID: "words", Pattern: "in.*", Start: processor.Latest,
			Open: func(*processor.SubtaskContext) (processor.Decoder[word], error) { return &textDecoder{}, nil }})
		byText := processor.KeyBy(words, "by-text", func(w word) string { return w.Text })
		processor.ToTopic(processor.RunningAggregate(byText, "count", processor.Count[word](), func(text string, n int64, _ word) word { return word{text, n} }), "out")
	}
}

// put writes words to a partition.
func (c *cluster) put(topic string, partition int32, words ...string) {
	c.t.Helper()
	cl, err := kgo.NewClient(append(c.cl.Opts(), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		c.t.Fatal(err)
	}
	defer cl.Close()
	for _, w := range words {
		if err := cl.ProduceSync(c.t.Context(), &kgo.Record{Topic: topic, Partition: partition, Value: []byte(w)}).FirstErr(); err != nil {
			c.t.Fatal(err)
		}
	}
}

// runs waits until members together have as many subtasks.
func (c *cluster) runs(subtasks int, members ...*member) {
	c.t.Helper()
	testutil.Eventually(c.t, patience, func() error {
		n := 0
		for _, m := range members {
			st := m.w.Status()
			if st.State != engine.StateRunning {
				return fmt.Errorf("a worker is %s", st.State)
			}
			for _, s := range st.Subtasks {
				if s.State == engine.SubtaskRunning {
					n++
				}
			}
		}
		if n != subtasks {
			return fmt.Errorf("%d subtasks run, want %d", n, subtasks)
		}
		return nil
	})
}

// TestTopicsFound: members go on by themselves with a topic that comes while they run, from its first record on, and without
// one that their subtasks cannot read, of which the log tells.
func TestTopicsFound(t *testing.T) {
	c := newCluster(t)
	adm := kadm.NewClient(c.cl)
	make := func(topic string, partitions int32) {
		t.Helper()
		if _, err := adm.CreateTopic(t.Context(), partitions, 1, nil, topic); err != nil {
			t.Fatal(err)
		}
	}
	var seen atomic.Pointer[[]string] // topics that may be found
	seen.Store(&[]string{"in"})
	find := func(o *engine.Options) {
		o.Replan = engine.Replan{Every: 20 * time.Millisecond, Plan: func(context.Context) (*task.Plan, error) {
			top := processor.New()
			countFound(*seen.Load()...)(top)
			return top.Plan()
		}}
	}
	a := c.start("words", countFound("in"), memstore.NewDir("words"), find)
	b := c.start("words", countFound("in"), memstore.NewDir("words"), find)
	c.runs(2*nparts, a, b)
	for p := range int32(nparts) {
		c.put("in", p, "x", "y")
	}
	c.drained("words", "in", "words-by-text-repartition")

	// One member finds it first, the other by what they have agreed upon.
	make("a-in", nparts)
	c.put("a-in", 1, "x", "y", "z")
	seen.Store(&[]string{"a-in", "in"})
	c.drained("words", "a-in", "words-by-text-repartition")
	c.runs(2*nparts, a, b)
	c.put("a-in", 2, "z")
	c.put("in", 3, "z")
	c.drained("words", "a-in", "in", "words-by-text-repartition")
	checkCounts(t, c.read("out"), 2*nparts+5, 3)

	make("odd", nparts+1)
	seen.Store(&[]string{"a-in", "in", "odd"})
	testutil.Eventually(t, patience, func() error {
		for _, m := range []*member{a, b} {
			if log := m.log.String(); !strings.Contains(log, "topics were found that the app cannot take in") || !strings.Contains(log, "topics=[odd]") {
				return errors.New("no word of the topic that does not fit")
			}
		}
		return nil
	})
	c.put("in", 0, "z")
	c.drained("words", "in", "words-by-text-repartition")
	checkCounts(t, c.read("out"), 2*nparts+6, 3)
	a.stop(t)
	b.stop(t)
}

// grow gives the topic in more partitions.
func (c *cluster) grow(to int) {
	c.t.Helper()
	adm := kadm.NewClient(c.cl)
	r, err := adm.UpdatePartitions(c.t.Context(), to, "in")
	if err == nil {
		err = r.Error()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	testutil.Eventually(c.t, patience, func() error {
		all, err := adm.ListTopics(c.t.Context(), "in")
		if n := len(all["in"].Partitions); err == nil && n != to {
			err = fmt.Errorf("%d partitions", n)
		}
		return err
	})
}

// TestPartitionsFound: partitions that are added are read from their first records on, whatever the source says of its own
// start, those of a member that runs and those of one that did not.
func TestPartitionsFound(t *testing.T) {
	c := newCluster(t)
	dir := memstore.NewDir("words")
	often := func(o *engine.Options) { o.HouseKeeping = 50 * time.Millisecond }
	c.put("in", 0, "old")
	a := c.start("words", countFound("in"), dir, often)
	c.runs(2*nparts, a)
	c.put("in", 0, "x")
	c.drained("words", "in", "words-by-text-repartition")
	a.stop(t)

	c.grow(2 * nparts)
	c.put("in", nparts+1, "x", "y")
	b := c.start("words", countFound("in"), dir, often)
	c.runs(2*nparts, b)
	c.drained("words", "in", "words-by-text-repartition")
	c.grow(3 * nparts)
	c.put("in", 2*nparts+1, "x", "y")
	testutil.Eventually(t, patience, func() error {
		if n := len(c.read("out")); n != 5 {
			return fmt.Errorf("%d results, want 5", n)
		}
		return nil
	})
	checkCounts(t, c.read("out"), 5, 2)
	b.stop(t)
	if !strings.Contains(b.log.String(), "an input has more partitions; going on with them") {
		t.Error("the log does not tell of the new partitions")
	}
	if slices.Contains([]string{"old"}, string(c.read("out")[0].Key)) {
		t.Error("a record of before the first start was read")
	}
}

// TestPartitionsFoundByRescale: partitions that only a rescale takes in are read from their first records on, too.
func TestPartitionsFoundByRescale(t *testing.T) {
	c := newCluster(t)
	blobs := blobtest.NewMemory()
	m := c.start("words", countFound("in"), memstore.NewDir("words"), func(o *engine.Options) {
		o.HouseKeeping, o.Checkpoints = 50*time.Millisecond, engine.Checkpoints{Blobs: blobs, Interval: time.Hour}
	})
	c.runs(2*nparts, m)
	c.put("in", 0, "x")
	c.drained("words", "in", "words-by-text-repartition")
	c.grow(nparts + 2)
	c.put("in", nparts+1, "x", "y")
	testutil.Eventually(t, patience, func() error {
		if !strings.Contains(m.log.String(), "subtasks do not divide: the new ones are not read") {
			return errors.New("no word of the new partitions")
		}
		return nil
	})
	k := c.command("words", blobs)
	p, err := engine.PlanRescale(t.Context(), k.cluster, k.control, 2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Rescale(t.Context(), k.cluster, k.control, blobs, p, engine.SavepointOptions{Name: "two", By: "a test"}); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, patience, func() error {
		if n := len(c.read("out")); n != 3 {
			return fmt.Errorf("%d results, want 3", n)
		}
		return nil
	})
	checkCounts(t, c.read("out"), 3, 2)
	m.stop(t)
}
