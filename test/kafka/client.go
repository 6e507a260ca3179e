package kafka

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// callTimeout bounds each helper below.
const callTimeout = 30 * time.Second

// RandomName is prefix-<8 hex digits>, for topics, groups and app ids that no other test uses.
func RandomName(prefix string) string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return prefix + "-" + hex.EncodeToString(b[:])
}

// access is what a Broker and a Cluster have in common: clients of the internal listeners, and what tests do with them.
type access struct {
	seeds []string // addresses of the internal listeners

	mu    sync.Mutex
	admin *kgo.Client
}

// adminClient is one client for our own needs, made at first use.
func (b *access) adminClient() (*kadm.Client, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.admin == nil {
		cl, err := kgo.NewClient(kgo.SeedBrokers(b.seeds...), kgo.DisableClientMetrics(), kgo.MetadataMinAge(100*time.Millisecond))
		if err != nil {
			return nil, fmt.Errorf("make an admin client: %w", err)
		}
		b.admin = cl
	}
	return kadm.NewClient(b.admin), nil
}

func (b *access) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.admin != nil {
		b.admin.Close()
		b.admin = nil
	}
}

// Client is a client of the internal listener, where everything is allowed and nothing encrypted. It is closed at the
// test's end.
func (b *access) Client(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(b.seeds...), kgo.DisableClientMetrics(), kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
	}, opts...)...)
	if err != nil {
		t.Fatalf("make a Kafka client: %v", err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// Admin is an admin client of the internal listener.
func (b *access) Admin(t testing.TB) *kadm.Client {
	t.Helper()
	return kadm.NewClient(b.Client(t))
}

// CreateTopic creates a topic of a random name, as replicated as the brokers' default says, and returns it when all
// partitions have a leader.
func (b *access) CreateTopic(t testing.TB, partitions int, configs map[string]string) string {
	t.Helper()
	name := RandomName("topic")
	b.CreateTopicNamed(t, name, partitions, configs)
	return name
}

// CreateTopicNamed is CreateTopic with a given name.
func (b *access) CreateTopicNamed(t testing.TB, name string, partitions int, configs map[string]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	adm, err := b.adminClient()
	if err != nil {
		t.Fatal(err)
	}
	kc := make(map[string]*string, len(configs))
	for k, v := range configs {
		kc[k] = &v
	}
	if _, err := adm.CreateTopic(ctx, int32(partitions), -1, kc, name); err != nil {
		t.Fatalf("create topic %s: %v", name, err)
	}
	for {
		topics, err := adm.ListTopics(ctx, name)
		if err == nil && len(topics[name].Partitions) == partitions && topics.Error() == nil && hasLeaders(topics[name]) {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("create topic %s: no leaders after %s: %v", name, callTimeout, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func hasLeaders(topic kadm.TopicDetail) bool {
	for _, p := range topic.Partitions {
		if p.Err != nil || p.Leader < 0 {
			return false
		}
	}
	return true
}

// Produce writes records and waits for the acknowledgements. Records with a key go to the partition of Kafka's
// default partitioner.
func (b *access) Produce(t testing.TB, records ...*kgo.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if err := b.Client(t).ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatalf("produce %d records: %v", len(records), err)
	}
}

// Read returns the committed records of a topic up to the last stable offset of this moment, in offset order per
// partition.
func (b *access) Read(t testing.TB, topic string) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	adm, err := b.adminClient()
	if err != nil {
		t.Fatal(err)
	}
	starts, err := adm.ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		t.Fatalf("read topic %s: list start offsets: %v", topic, err)
	}
	ends, err := adm.ListCommittedOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		t.Fatalf("read topic %s: list stable offsets: %v", topic, err)
	}
	from := map[int32]kgo.Offset{}
	left := map[int32]int64{} // partition to the offset where reading ends
	ends.Each(func(o kadm.ListedOffset) {
		if s, ok := starts.Lookup(topic, o.Partition); ok && s.Offset < o.Offset {
			from[o.Partition] = kgo.NewOffset().At(s.Offset)
			left[o.Partition] = o.Offset
		}
	})
	if len(left) == 0 {
		return nil
	}
	// Control records are kept to see the position pass transaction markers.
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.seeds...), kgo.DisableClientMetrics(), kgo.KeepControlRecords(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))
	if err != nil {
		t.Fatalf("read topic %s: %v", topic, err)
	}
	defer cl.Close()
	var records []*kgo.Record
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("read topic %s: %v; partitions not at their end: %v", topic, err, left)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			end, ok := left[r.Partition]
			if !ok {
				return
			}
			if r.Offset < end && !r.Attrs.IsControl() {
				records = append(records, r)
			}
			if r.Offset+1 >= end {
				delete(left, r.Partition)
			}
		})
	}
	return records
}
