package engine_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/window"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

// seen is an input with an event time.
type seen struct {
	Key string `json:"key"`
	At  int64  `json:"at"`
}

func (s seen) time() time.Time { return time.UnixMilli(s.At) }

// seeds writes records to one partition of "in".
type seeds struct {
	t  *testing.T
	cl *kgo.Client
}

func (c *cluster) seeds() *seeds {
	c.t.Helper()
	cl, err := kgo.NewClient(append(c.cl.Opts(), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(cl.Close)
	return &seeds{c.t, cl}
}

func (s *seeds) send(partition int32, key string, at ...int64) {
	s.t.Helper()
	for _, at := range at {
		v, err := json.Marshal(seen{key, at})
		if err != nil {
			s.t.Fatal(err)
		}
		if err := s.cl.ProduceSync(s.t.Context(), &kgo.Record{Topic: "in", Partition: partition, Value: v}).FirstErr(); err != nil {
			s.t.Fatal(err)
		}
	}
}

// countSeen counts by windows of 10 ms, behind partitions that hold event time back until they are idle.
func countSeen(idle time.Duration) func(t *processor.Topology) {
	return func(t *processor.Topology) {
		in := processor.From(t, processor.Topic[seen]{Name: "in", EventTime: seen.time, Idle: idle})
		byKey := processor.KeyBy(in, "by-key", func(s seen) string { return s.Key })
		processor.ToTopic(processor.Aggregate(byKey.Window(window.Tumbling(10*time.Millisecond)), "count", processor.Count[seen](),
			func(w processor.Window[string], n int64) string {
				return fmt.Sprintf("%s [%d,%d): %d", w.Key, w.Start.UnixMilli(), w.End.UnixMilli(), n)
			}), "out")
	}
}

// beat is the key of records that only keep a partition active.
const beat = "beat"

// results waits for what is in the output, sorted, without that of beats; meanwhile is called again and again.
func (c *cluster) results(meanwhile func(), want ...string) {
	c.t.Helper()
	testutil.Eventually(c.t, patience, func() error {
		meanwhile()
		var got []string
		for _, r := range c.read("out") {
			if !strings.HasPrefix(string(r.Value), beat) {
				got = append(got, string(r.Value))
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("results %q, want %q", got, want)
		}
		return nil
	})
}

// killed ends a member as if its process were gone: it commits nothing more.
func (m *member) killed(net *wire) {
	net.cut()
	m.cancel()
	<-m.done
}

// mortal is a member that can be killed, and whose group notices soon.
func mortal(net *wire) func(*engine.Options) {
	return func(o *engine.Options) {
		o.Parallelism = 1 // one subtask reads all partitions
		o.Kafka.Dialer, o.Kafka.SessionTimeout = net.dial, time.Second
		o.ShutdownTimeout = 100 * time.Millisecond
	}
}

// TestSilentPartitionsAfterRestore: two partitions never have a record, another is silent for longer than its idle time-out and
// then goes on; in between the member is killed, and another one without its disk goes on. As long as one partition is
// active windows close, no result comes twice or never, and who comes back holds the watermark back again. The kinds of
// fault: an idle source is taken for one at its end and never heard again, or holds a job for ever (P16); a partition
// without any record freezes all windows (P17); and both again because a restart forgets who was idle.
func TestSilentPartitionsAfterRestore(t *testing.T) {
	c := newCluster(t)
	app := "words"
	in := c.seeds()
	start := func(net *wire) *member {
		return c.start(app, countSeen(300*time.Millisecond), memstore.NewDir(app), mortal(net))
	}
	beats := func(at int64) func() { return func() { in.send(0, beat, at) } }
	nets := []*wire{{}, {}, {}}
	m := start(nets[0])
	in.send(0, "a", 5)
	in.send(1, "b", 7)
	c.results(beats(25), "a [0,10): 1", "b [0,10): 1")
	m.killed(nets[0])
	m = start(nets[1])
	in.send(0, "a", 28)
	c.results(beats(35), "a [0,10): 1", "a [20,30): 1", "b [0,10): 1")
	in.send(1, "b", 36) // it is here again, and not late
	for range 5 {
		in.send(0, beat, 38) // not beyond the window, since all may be idle before the next record
	}
	c.drained(app, "in", "words-by-key-repartition")
	m.killed(nets[1])
	m = start(nets[2])
	in.send(1, "b", 37)
	c.results(beats(61), "a [0,10): 1", "a [20,30): 1", "b [0,10): 1", "b [30,40): 2")
	// All of them are active now, and none waits for a time-out.
	for p := range int32(nparts) {
		in.send(p, "e", 70)
	}
	for p := range int32(nparts) {
		in.send(p, "f", 80)
	}
	c.results(func() {}, "a [0,10): 1", "a [20,30): 1", "b [0,10): 1", "b [30,40): 2", "e [70,80): 4")
	m.stop(t)
}

// gaps emits the sum of a key's records when none has come for a moment of the clock, and windows of event time.
func gaps(t *processor.Topology) {
	in := processor.From(t, processor.Topic[seen]{Name: "in", EventTime: seen.time})
	byKey := processor.KeyBy(in, "by-key", func(s seen) string { return s.Key })
	processor.To(processor.Process(byKey, "gap", func(ctx *processor.KeyedContext[string, seen, string]) {
		n, due := processor.Value[int](ctx, "n"), processor.Value[int64](ctx, "due")
		ctx.OnRecord(func(seen) error {
			if at, ok := due.Load(); ok {
				ctx.DeleteProcessingTimer(time.UnixMilli(at))
			}
			n.Set(n.Get() + 1)
			at := ctx.ProcessingTime().Add(1500 * time.Millisecond)
			due.Set(at.UnixMilli())
			ctx.RegisterProcessingTimer(at)
			return nil
		})
		ctx.OnTimer(func(processor.Timer) error {
			ctx.Emit(fmt.Sprintf("%s: %d and then silence", ctx.Key(), n.Get()))
			n.Clear()
			due.Clear()
			return nil
		})
	}), processor.SinkTopic[string]{Name: "out", ID: "gaps"})
	processor.ToTopic(processor.Aggregate(byKey.Window(window.Tumbling(10*time.Millisecond)), "count", processor.Count[seen](),
		func(w processor.Window[string], n int64) string {
			return fmt.Sprintf("%s until %d: %d", w.Key, w.End.UnixMilli(), n)
		}), "out")
}

// TestSilenceAfterRestore: three records of one key, and then nothing more. The member is killed and another one, without its disk,
// goes on in the silence. What waits for the clock comes when the clock says so, though no record does; what waits for event
// time stays open, since nothing says how late it is, and comes once and whole with the next record. The kind of fault
// (P18): what is open at the end of the data never closes, because only data makes time pass.
func TestSilenceAfterRestore(t *testing.T) {
	c := newCluster(t)
	app := "words"
	in := c.seeds()
	nets := []*wire{{}, {}}
	m := c.start(app, gaps, memstore.NewDir(app), mortal(nets[0]))
	in.send(0, "a", 1, 2, 3)
	c.drained(app, "in", "words-by-key-repartition")
	m.killed(nets[0])
	m = c.start(app, gaps, memstore.NewDir(app), mortal(nets[1]))
	c.results(func() {}, "a: 3 and then silence")
	for p := range int32(nparts) {
		in.send(p, beat, 20)
	}
	c.results(func() {}, "a until 10: 3", "a: 3 and then silence")
	m.stop(t)
}
