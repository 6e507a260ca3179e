package engine_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

// skips counts the offsets that were skipped.
type skips struct {
	mu sync.Mutex
	n  int64
}

func (s *skips) OffsetsSkipped(_ record.TopicPartition, n int64) {
	s.mu.Lock()
	s.n += n
	s.mu.Unlock()
}

func (s *skips) total() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

func (*skips) CommitDone(record.SubtaskID, string, time.Duration)                {}
func (*skips) RestoreDone(record.SubtaskID, string, int64, int64, time.Duration) {}
func (*skips) SubtaskRestarted(record.SubtaskID, string)                         {}
func (*skips) CheckpointDone(record.SubtaskID, bool, int64, time.Duration)       {}

// TestOutOfRange deletes input while it is being read, and again while the app is stopped: errors.out-of-range decides
// whether that stops the app. Whichever record was skipped is counted, and every other one is in the output once.
func TestOutOfRange(t *testing.T) {
	for _, policy := range []string{"", "earliest"} {
		t.Run("policy="+policy, func(t *testing.T) {
			c := newCluster(t)
			const each, left = 800, 10
			pad := strings.Repeat("x", 4096) // more than is read ahead
			sent := 0
			send := func() {
				t.Helper()
				var rs []*kgo.Record
				for p := range int32(nparts) {
					for range each {
						rs = append(rs, &kgo.Record{Topic: "in", Partition: p, Value: fmt.Appendf(nil, `{"text":%q,"n":%d}`, pad, sent)})
						sent++
					}
				}
				if err := c.cl.ProduceSync(t.Context(), rs...).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			c.cl.Close()
			var err error
			if c.cl, err = kgo.NewClient(kgo.SeedBrokers(c.brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MetadataMinAge(50*time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.cl.Close)
			adm := kadm.NewClient(c.cl)
			removeMost := func() {
				t.Helper()
				ends, err := adm.ListEndOffsets(t.Context(), "in")
				if err != nil {
					t.Fatal(err)
				}
				var before kadm.Offsets
				ends.Each(func(e kadm.ListedOffset) { before.AddOffset(e.Topic, e.Partition, e.Offset-left, -1) })
				deleted, err := adm.DeleteRecords(t.Context(), before)
				if err == nil {
					err = deleted.Error()
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			reached, goOn := make(chan struct{}), make(chan struct{})
			var once sync.Once
			topology := func(t *processor.Topology) {
				in := processor.From(t, processor.Topic[word]{Name: "in"})
				processor.ToTopic(processor.Map(in, func(w word) word {
					once.Do(func() { close(reached); <-goOn })
					return word{"w", w.N}
				}), "out")
			}
			var skipped skips
			start := func() *member {
				return c.start("trim", topology, memstore.NewDir("trim"), func(o *engine.Options) {
					o.Parallelism, o.OutOfRange, o.Observer = 1, policy, &skipped
				})
			}
			all := func() error {
				seen := map[string]bool{}
				for _, r := range c.read("out") {
					if seen[string(r.Value)] {
						t.Fatalf("%s is there twice", r.Value)
					}
					seen[string(r.Value)] = true
				}
				if n := len(seen) + int(skipped.total()); n != sent {
					return fmt.Errorf("%d rows and %d skipped offsets, want %d in all", len(seen), skipped.total(), sent)
				}
				return nil
			}
			send()
			m := start()
			<-reached
			removeMost()
			close(goOn)
			if policy == "" {
				if err := m.wait(t); err == nil || !strings.Contains(err.Error(), "out of range") || !strings.Contains(err.Error(), "errors.out-of-range") {
					t.Fatalf("it ended with %v", err)
				}
				return
			}
			testutil.Eventually(t, patience, all)
			if skipped.total() == 0 {
				t.Fatal("nothing was skipped")
			}
			m.stop(t)
			first := skipped.total()
			send()
			removeMost()
			m = start()
			testutil.Eventually(t, patience, all)
			if got, want := skipped.total()-first, int64(nparts*(each-left)); got != want {
				t.Errorf("%d offsets were skipped at the start, want %d", got, want)
			}
			if n := bytes.Count([]byte(m.log.String()), []byte("input was deleted before it was read")); n != nparts {
				t.Errorf("%d lines of log tell of it, want one for each partition", n)
			}
			m.stop(t)
		})
	}
}
