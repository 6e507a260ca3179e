// Package embedded is a Kafka broker in this process, to try a program without Kafka: it keeps its topics in memory and is
// gone with the process.
package embedded

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Broker is a broker.
type Broker struct {
	fake *kfake.Cluster
}

// Start starts a broker on a free port of this machine. Topics that are made without a number of partitions get that many.
func Start(partitions int) (*Broker, error) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DefaultNumPartitions(partitions), kfake.GroupMinSessionTimeout(time.Second))
	if err != nil {
		return nil, fmt.Errorf("start the embedded broker: %w", err)
	}
	return &Broker{fake}, nil
}

// Addrs are the addresses to connect to.
func (b *Broker) Addrs() []string { return b.fake.ListenAddrs() }

// Close ends it.
func (b *Broker) Close() { b.fake.Close() }

func (b *Broker) client(o ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(b.Addrs()...), kgo.DisableClientMetrics(), kgo.MetadataMinAge(250 * time.Millisecond)}, o...)...)
}

// CreateTopics makes topics with the default number of partitions.
func (b *Broker) CreateTopics(ctx context.Context, topics ...string) error {
	if len(topics) == 0 {
		return nil
	}
	cl, err := b.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	res, err := kadm.NewClient(cl).CreateTopics(ctx, -1, -1, nil, topics...)
	if err == nil {
		err = res.Error()
	}
	if err != nil {
		return fmt.Errorf("create topics on the embedded broker: %w", err)
	}
	return nil
}

// Record is a committed record of a topic; nil is null.
type Record struct {
	Topic      string
	Key, Value []byte
}

// Produce writes records, each to the partition of its key.
func (b *Broker) Produce(ctx context.Context, records ...Record) error {
	cl, err := b.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	rs := make([]*kgo.Record, len(records))
	for i, r := range records {
		rs[i] = &kgo.Record{Topic: r.Topic, Key: r.Key, Value: r.Value}
	}
	if err := cl.ProduceSync(ctx, rs...).FirstErr(); err != nil {
		return fmt.Errorf("write to the embedded broker: %w", err)
	}
	return nil
}

// Follow calls f for each committed record of topics, as they come, until ctx ends; then it has called f for all that were
// committed before.
func (b *Broker) Follow(ctx context.Context, topics []string, f func(Record)) error {
	cl, err := b.client(kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(), kgo.FetchMaxWait(50*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.Close()
	at := map[string]map[int32]int64{} // where reading goes on
	poll := func(ctx context.Context) {
		cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			if at[r.Topic] == nil {
				at[r.Topic] = map[int32]int64{}
			}
			at[r.Topic][r.Partition] = r.Offset + 1
			if !r.Attrs.IsControl() {
				f(Record{r.Topic, r.Key, r.Value})
			}
		})
	}
	for ctx.Err() == nil {
		poll(ctx)
	}
	// What the app committed as it stopped.
	rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	ends, err := kadm.NewClient(cl).ListCommittedOffsets(rest, topics...)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return fmt.Errorf("read the ends of the topics of the embedded broker: %w", err)
	}
	behind := func() bool {
		left := false
		ends.Each(func(e kadm.ListedOffset) { left = left || e.Offset > at[e.Topic][e.Partition] })
		return left
	}
	for behind() && rest.Err() == nil {
		poll(rest)
	}
	return nil
}
