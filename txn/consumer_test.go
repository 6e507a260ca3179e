package txn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millrace-stream/millrace/internal/record"
)

func newConsumer(t *testing.T, c *Cluster) *Consumer {
	t.Helper()
	k, err := c.NewConsumer()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

// pollUntil polls until ok says that what came so far is enough, and returns all of it by partition.
func pollUntil(t *testing.T, k *Consumer, ok func(map[record.TopicPartition]*Fetched) bool) map[record.TopicPartition]*Fetched {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	all := make(map[record.TopicPartition]*Fetched)
	for !ok(all) {
		fs, err := k.Poll(ctx)
		if err != nil {
			t.Fatalf("%v, after %v", err, all)
		}
		for _, f := range fs {
			a := all[f.TopicPartition]
			if a == nil {
				a = &Fetched{TopicPartition: f.TopicPartition}
				all[f.TopicPartition] = a
			}
			a.Records = append(a.Records, f.Records...)
			a.HighWatermark, a.LastStable = f.HighWatermark, f.LastStable
			if f.Err != nil {
				a.Err = f.Err
			}
		}
	}
	return all
}

func offsets(rs []record.Record) []int64 {
	var out []int64
	for _, r := range rs {
		out = append(out, r.Offset)
	}
	return out
}

func values(n, from int, p int32) []*kgo.Record {
	var out []*kgo.Record
	for i := range n {
		out = append(out, &kgo.Record{Topic: "in", Partition: p, Value: fmt.Appendf(nil, "v%d", from+i), Timestamp: time.UnixMilli(int64(from + i))})
	}
	return out
}

// transaction produces records in a transaction and ends it.
func transaction(t *testing.T, brokers []string, commit kgo.TransactionEndTry, recs ...*kgo.Record) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID("other"),
		kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := cl.EndTransaction(t.Context(), commit); err != nil {
		t.Fatal(err)
	}
}

func TestConsumerIsolation(t *testing.T) {
	k := fakeKafka(t, kfake.SeedTopics(1, "in"))
	produce(t, k.ListenAddrs(), values(2, 0, 0)...)                                 // 0, 1
	transaction(t, k.ListenAddrs(), kgo.TryAbort, values(3, 100, 0)...)             // 2-4, marker 5
	transaction(t, k.ListenAddrs(), kgo.TryCommit, values(2, 200, 0)...)            // 6, 7, marker 8
	produce(t, k.ListenAddrs(), &kgo.Record{Topic: "in", Key: []byte{}, Value: nil, // 9
		Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("x")}, {Key: "n"}}, Timestamp: time.UnixMilli(77)})
	c := newConsumer(t, connect(t, k.ListenAddrs(), nil))
	tp := record.TopicPartition{Topic: "in"}
	c.Add(map[record.TopicPartition]int64{tp: 0})
	f := pollUntil(t, c, func(m map[record.TopicPartition]*Fetched) bool {
		f := m[tp]
		return f != nil && len(f.Records) > 0 && f.Records[len(f.Records)-1].Offset == 9
	})[tp]
	if got, want := offsets(f.Records), []int64{0, 1, 5, 6, 7, 8, 9}; !slices.Equal(got, want) {
		t.Fatalf("offsets %v, want %v", got, want)
	}
	for _, r := range f.Records {
		if want := r.Offset == 5 || r.Offset == 8; r.Control != want {
			t.Errorf("offset %d: control %v", r.Offset, r.Control)
		}
	}
	if f.HighWatermark != 10 || f.LastStable != 10 {
		t.Errorf("high watermark %d, last stable offset %d", f.HighWatermark, f.LastStable)
	}
	first, last := f.Records[0], f.Records[6]
	if first.Key != nil || string(first.Value) != "v0" || first.Headers != nil || first.Timestamp != 0 {
		t.Errorf("first record %+v", first)
	}
	if last.Key == nil || len(last.Key) != 0 || last.Value != nil || last.Timestamp != 77 || len(last.Headers) != 2 ||
		last.Headers[0].Key != "h" || !bytes.Equal(last.Headers[0].Value, []byte("x")) || last.Headers[1].Value != nil {
		t.Errorf("last record %+v", last)
	}
}

// TestPolledRecordsAreOurs: what was polled stays as it is when later batches are decoded into the same memory of kgo.
func TestPolledRecordsAreOurs(t *testing.T) {
	k := fakeKafka(t, kfake.SeedTopics(1, "in"))
	c := newConsumer(t, connect(t, k.ListenAddrs(), nil))
	tp := record.TopicPartition{Topic: "in"}
	c.Add(map[record.TopicPartition]int64{tp: 0})
	const rounds, n = 20, 50
	var all []record.Record
	for i := range rounds {
		recs := values(n, i*n, 0)
		for j, r := range recs {
			r.Headers = []kgo.RecordHeader{{Key: "h", Value: fmt.Appendf(nil, "h%d", i*n+j)}}
		}
		produce(t, k.ListenAddrs(), recs...)
		all = append(all, pollUntil(t, c, func(m map[record.TopicPartition]*Fetched) bool {
			return m[tp] != nil && len(m[tp].Records) == n
		})[tp].Records...)
	}
	for i, r := range all {
		if want := fmt.Sprint(i); r.Offset != int64(i) || string(r.Value) != "v"+want || r.Timestamp != int64(i) ||
			len(r.Headers) != 1 || r.Headers[0].Key != "h" || string(r.Headers[0].Value) != "h"+want {
			t.Fatalf("record %d has become %+v", i, r)
		}
	}
}

func TestConsumerAddRemovePause(t *testing.T) {
	k := fakeKafka(t, kfake.SeedTopics(3, "in"))
	for p := range int32(3) {
		produce(t, k.ListenAddrs(), values(10, 0, p)...)
	}
	c := newConsumer(t, connect(t, k.ListenAddrs(), nil))
	p0, p1, p2 := record.TopicPartition{Topic: "in"}, record.TopicPartition{Topic: "in", Partition: 1}, record.TopicPartition{Topic: "in", Partition: 2}
	end := func(want map[record.TopicPartition]int64) func(m map[record.TopicPartition]*Fetched) bool {
		return func(m map[record.TopicPartition]*Fetched) bool {
			for tp, n := range want {
				if m[tp] == nil || len(m[tp].Records) == 0 || m[tp].Records[len(m[tp].Records)-1].Offset < n {
					return false
				}
			}
			return true
		}
	}
	starts := func(m map[record.TopicPartition]*Fetched, want map[record.TopicPartition]int64) {
		t.Helper()
		if len(m) != len(want) {
			t.Errorf("records of %d partitions, want %d", len(m), len(want))
		}
		for tp, o := range want {
			for i, r := range m[tp].Records {
				if r.Offset != o+int64(i) {
					t.Errorf("%s: record %d has offset %d, want %d", tp, i, r.Offset, o+int64(i))
				}
			}
		}
	}
	at := map[record.TopicPartition]int64{p0: 3, p1: 7}
	c.Add(at)
	starts(pollUntil(t, c, end(map[record.TopicPartition]int64{p0: 9, p1: 9})), at)

	// Paused partitions bring nothing; a removed one neither, also after it was paused.
	c.Pause([]record.TopicPartition{p0, p1})
	c.Remove([]record.TopicPartition{p0})
	for p := range int32(3) {
		produce(t, k.ListenAddrs(), values(5, 10, p)...)
	}
	at = map[record.TopicPartition]int64{p2: 0}
	c.Add(at)
	starts(pollUntil(t, c, end(map[record.TopicPartition]int64{p2: 14})), at)

	// Added again it starts where we say, and is not paused any more.
	c.Resume([]record.TopicPartition{p1})
	c.Add(map[record.TopicPartition]int64{p0: 1, p2: 12})
	starts(pollUntil(t, c, end(map[record.TopicPartition]int64{p0: 14, p1: 14, p2: 14})),
		map[record.TopicPartition]int64{p0: 1, p1: 10, p2: 12})
}

func TestConsumerOffsetOutOfRange(t *testing.T) {
	k := fakeKafka(t, kfake.SeedTopics(2, "in"))
	produce(t, k.ListenAddrs(), values(50, 0, 0)...)
	produce(t, k.ListenAddrs(), values(5, 0, 1)...)
	if err := k.DeleteRecords("in", 0, 40); err != nil {
		t.Fatal(err)
	}
	c := newConsumer(t, connect(t, k.ListenAddrs(), nil))
	p0, p1 := record.TopicPartition{Topic: "in"}, record.TopicPartition{Topic: "in", Partition: 1}
	c.Add(map[record.TopicPartition]int64{p0: 10, p1: 20})
	m := pollUntil(t, c, func(m map[record.TopicPartition]*Fetched) bool {
		return m[p0] != nil && m[p0].Err != nil && m[p1] != nil && m[p1].Err != nil
	})
	want0, want1 := OffsetError{"in", 0, 10, 40, 50}, OffsetError{"in", 1, 20, 0, 5}
	var e0, e1 *OffsetError
	if !errors.As(m[p0].Err, &e0) || *e0 != want0 || !strings.Contains(e0.Error(), "30 offsets were deleted") {
		t.Errorf("got %v", m[p0].Err)
	}
	if !errors.As(m[p1].Err, &e1) || *e1 != want1 || !strings.Contains(e1.Error(), "truncated") {
		t.Errorf("got %v", m[p1].Err)
	}
	if len(m[p0].Records)+len(m[p1].Records) > 0 {
		t.Errorf("records came all the same: %v", m)
	}
	// Nothing is read any more until the partition is added again.
	c.Add(map[record.TopicPartition]int64{p0: 40})
	m = pollUntil(t, c, func(m map[record.TopicPartition]*Fetched) bool {
		return m[p0] != nil && len(m[p0].Records) == 10
	})
	if m[p1] != nil || m[p0].Records[0].Offset != 40 {
		t.Errorf("after the error: %v", m)
	}
}

func TestConsumerTopicGone(t *testing.T) {
	t.Parallel()
	for _, recreate := range []bool{false, true} {
		t.Run(fmt.Sprintf("recreate=%v", recreate), func(t *testing.T) {
			t.Parallel()
			k := fakeKafka(t, kfake.SeedTopics(1, "in"))
			produce(t, k.ListenAddrs(), values(5, 0, 0)...)
			c := newConsumer(t, connect(t, k.ListenAddrs(), nil))
			tp := record.TopicPartition{Topic: "in"}
			c.Add(map[record.TopicPartition]int64{tp: 0})
			pollUntil(t, c, func(m map[record.TopicPartition]*Fetched) bool { return m[tp] != nil && len(m[tp].Records) == 5 })
			if err := k.DeleteTopic("in"); err != nil {
				t.Fatal(err)
			}
			if recreate {
				if err := k.CreateTopic("in", 1, nil); err != nil {
					t.Fatal(err)
				}
				produce(t, k.ListenAddrs(), values(9, 100, 0)...)
			}
			m := pollUntil(t, c, func(m map[record.TopicPartition]*Fetched) bool { return m[tp] != nil && m[tp].Err != nil })
			var te *TopicError
			if !errors.As(m[tp].Err, &te) || te.Topic != "in" || recreate != (te.NewID != [16]byte{}) {
				t.Errorf("got %v", m[tp].Err)
			}
			if len(m[tp].Records) > 0 {
				t.Errorf("records of the new topic: %v", offsets(m[tp].Records))
			}
		})
	}
}

// TestConsumerTopicBrieflyUnknown: a broker that has just started does not know its topics; that is no reason to stop.
func TestConsumerTopicBrieflyUnknown(t *testing.T) {
	t.Parallel()
	k := fakeKafka(t, kfake.SeedTopics(1, "in"))
	produce(t, k.ListenAddrs(), values(3, 0, 0)...)
	f := k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.UnknownTopicID, Count: 9})
	c := newConsumer(t, connect(t, k.ListenAddrs(), nil))
	tp := record.TopicPartition{Topic: "in"}
	c.Add(map[record.TopicPartition]int64{tp: 0})
	m := pollUntil(t, c, func(m map[record.TopicPartition]*Fetched) bool {
		return m[tp] != nil && (m[tp].Err != nil || len(m[tp].Records) == 3)
	})
	if m[tp].Err != nil || f.Hits() != 9 {
		t.Errorf("got %v after %d faults", m[tp].Err, f.Hits())
	}
}

func TestConsumerPollEnds(t *testing.T) {
	k := fakeKafka(t, kfake.SeedTopics(1, "in"))
	c := newConsumer(t, connect(t, k.ListenAddrs(), nil))
	c.Add(map[record.TopicPartition]int64{{Topic: "in"}: 0})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := c.Poll(ctx)
		done <- err
	}()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	go func() {
		_, err := c.Poll(context.Background())
		done <- err
	}()
	c.Close()
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestConsumerFollowsLeader moves a partition between brokers.
func TestConsumerFollowsLeader(t *testing.T) {
	k := fakeKafka(t, kfake.NumBrokers(2), kfake.SeedTopics(1, "in"))
	produce(t, k.ListenAddrs(), values(1, 0, 0)...)
	c := newConsumer(t, connect(t, k.ListenAddrs(), nil))
	tp := record.TopicPartition{Topic: "in"}
	c.Add(map[record.TopicPartition]int64{tp: 0})
	last := func(o int64) func(m map[record.TopicPartition]*Fetched) bool {
		return func(m map[record.TopicPartition]*Fetched) bool {
			return m[tp] != nil && m[tp].Records[len(m[tp].Records)-1].Offset == o
		}
	}
	pollUntil(t, c, last(0))
	for i := range 3 {
		if err := k.MoveTopicPartition("in", 0, (k.LeaderFor("in", 0)+1)%2); err != nil {
			t.Fatal(err)
		}
		produce(t, k.ListenAddrs(), values(1, i+1, 0)...)
		pollUntil(t, c, last(int64(i+1)))
	}
}
