package txn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/internal/failpoint"
	"github.com/millrace-stream/millrace/internal/record"
)

// Consumer reads partitions at offsets that we set: read_committed, with transaction markers, without a group. One
// goroutine polls; the other methods may be called from any.
type Consumer struct {
	c  *Cluster
	cl *kgo.Client

	mu   sync.Mutex
	next map[record.TopicPartition]int64 // the next offset to deliver of every partition that was added
}

// NewConsumer opens a consumer that reads nothing yet.
func (c *Cluster) NewConsumer() (*Consumer, error) { return c.newConsumer(c.opts.FetchMaxWait) }

// NewFollower opens a consumer for reading where nobody waits for the records: brokers may hold its fetches for half a
// second while less than Options.FetchMinBytes is there.
func (c *Cluster) NewFollower() (*Consumer, error) {
	return c.newConsumer(max(c.opts.FetchMaxWait, 500*time.Millisecond))
}

func (c *Cluster) newConsumer(wait time.Duration) (*Consumer, error) {
	o := c.opts
	opts := []kgo.Opt{
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMinBytes(o.FetchMinBytes),
		kgo.FetchMaxWait(max(wait, 10*time.Millisecond)), // kgo refuses less
		kgo.FetchMaxBytes(o.FetchMaxBytes),
		kgo.FetchMaxPartitionBytes(o.FetchMaxPartBytes),
		kgo.MaxConcurrentFetches(2),
		kgo.WithPools(&recordPool{}),
	}
	if o.Rack != "" {
		opts = append(opts, kgo.Rack(o.Rack))
	}
	if failpoint.Planted(failpoint.ReadUncommitted) {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadUncommitted()))
	}
	cl, err := kgo.NewClient(c.clientOpts(opts...)...)
	if err != nil {
		return nil, fmt.Errorf("open consumer: %w", err)
	}
	return &Consumer{c: c, cl: cl, next: make(map[record.TopicPartition]int64)}, nil
}

// Add starts to read partitions at just these offsets. A partition that is already read starts again there, and is
// not paused. That a topic does not exist is not told here, since a new topic may take a
// while to be known: see Topics.
func (k *Consumer) Add(at map[record.TopicPartition]int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	add := make(map[string]map[int32]kgo.Offset)
	again := make(map[string][]int32)
	for tp, o := range at {
		if _, ok := k.next[tp]; ok {
			again[tp.Topic] = append(again[tp.Topic], tp.Partition)
		}
		k.next[tp] = o
		if add[tp.Topic] == nil {
			add[tp.Topic] = make(map[int32]kgo.Offset)
		}
		add[tp.Topic][tp.Partition] = kgo.NewOffset().At(o)
	}
	k.remove(again)
	k.cl.AddConsumePartitions(add)
}

// Remove ends reading partitions; Poll returns nothing of them any more.
func (k *Consumer) Remove(tps []record.TopicPartition) {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := make(map[string][]int32)
	for _, tp := range tps {
		if _, ok := k.next[tp]; ok {
			delete(k.next, tp)
			m[tp.Topic] = append(m[tp.Topic], tp.Partition)
		}
	}
	k.remove(m)
}

// remove takes partitions out of kgo. kgo would remember that they were paused.
func (k *Consumer) remove(m map[string][]int32) {
	if len(m) == 0 {
		return
	}
	k.cl.RemoveConsumePartitions(m)
	k.cl.ResumeFetchPartitions(m)
}

// Pause stops fetching partitions; what was fetched of them and not polled is thrown away and fetched again.
func (k *Consumer) Pause(tps []record.TopicPartition) { k.cl.PauseFetchPartitions(byTopic(tps)) }

// Resume goes on with paused partitions where they were.
func (k *Consumer) Resume(tps []record.TopicPartition) { k.cl.ResumeFetchPartitions(byTopic(tps)) }

func byTopic(tps []record.TopicPartition) map[string][]int32 {
	m := make(map[string][]int32)
	for _, tp := range tps {
		m[tp.Topic] = append(m[tp.Topic], tp.Partition)
	}
	return m
}

// Poll waits until there are records or errors, and returns them, at most one Fetched of a partition with records.
// A partition with Err is not read any more until it is added again. Poll's own error is ctx's, or ErrClosed.
func (k *Consumer) Poll(ctx context.Context) ([]Fetched, error) {
	for {
		fs := k.cl.PollFetches(ctx)
		if fs.IsClientClosed() {
			return nil, fmt.Errorf("consumer: %w", ErrClosed)
		}
		if err := ctx.Err(); err != nil && fs.NumRecords() == 0 {
			return nil, err
		}
		var out []Fetched
		for i := range fs {
			for _, t := range fs[i].Topics {
				for _, p := range k.spread(t) {
					if f, ok := k.translate(ctx, t.Topic, t.TopicID, &p); ok {
						out = append(out, f)
					}
				}
			}
		}
		if len(out) > 0 {
			return out, nil
		}
	}
}

// spread gives an error of a whole topic (kgo: partition -1) to each partition that is read of it.
func (k *Consumer) spread(t kgo.FetchTopic) []kgo.FetchPartition {
	if len(t.Partitions) != 1 || t.Partitions[0].Partition >= 0 {
		return t.Partitions
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []kgo.FetchPartition
	for tp := range k.next {
		if tp.Topic == t.Topic {
			out = append(out, kgo.FetchPartition{Partition: tp.Partition, Err: t.Partitions[0].Err})
		}
	}
	return out
}

// translate makes our form of what was fetched of a partition; ok is false if there is nothing to tell.
func (k *Consumer) translate(ctx context.Context, topic string, id [16]byte, p *kgo.FetchPartition) (f Fetched, ok bool) {
	f.TopicPartition = record.TopicPartition{Topic: topic, Partition: p.Partition}
	f.HighWatermark, f.LastStable = p.HighWatermark, p.LastStableOffset
	k.mu.Lock()
	next, known := k.next[f.TopicPartition]
	if !known {
		k.mu.Unlock()
		return f, false
	}
	// A poll that ran while the partition was removed or added elsewhere still may bring what is not wanted any more.
	recs := p.Records
	if len(recs) > 0 && recs[0].Offset >= next {
		next = recs[len(recs)-1].Offset + 1
		k.next[f.TopicPartition] = next
	} else {
		recs = nil
	}
	k.mu.Unlock()
	f.Records = records(recs)
	if p.Err != nil {
		f.Err = k.partitionError(ctx, f.TopicPartition, id, next, p.Err)
		if f.Err != nil {
			k.Remove([]record.TopicPartition{f.TopicPartition})
		}
	}
	return f, len(f.Records) > 0 || f.Err != nil
}

// recordPool lends kgo the memory that it decodes batches into. Poll copies what it returns, so that the memory is
// free again at once; without the pool it is a third of all garbage. Keys and values are not pooled: they are handed on.
type recordPool struct{ slabs sync.Pool }

// GetRecords is of kgo.PoolRecords.
func (p *recordPool) GetRecords(n int) []kgo.Record {
	if s, ok := p.slabs.Get().(*[]kgo.Record); ok && cap(*s) >= n {
		return (*s)[:0]
	}
	return make([]kgo.Record, 0, n)
}

// PutRecords is of kgo.PoolRecords.
func (p *recordPool) PutRecords(s []kgo.Record) { p.slabs.Put(&s) }

// records copies a batch into one slab, and gives kgo's memory back.
func records(in []*kgo.Record) []record.Record {
	if len(in) == 0 {
		return nil
	}
	out := make([]record.Record, len(in))
	for i, r := range in {
		out[i] = record.Record{
			Key: r.Key, Value: r.Value, Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(),
			LeaderEpoch: r.LeaderEpoch, AppendTime: r.Attrs.TimestampType() == 1, Control: r.Attrs.IsControl(),
		}
		if len(r.Headers) > 0 {
			hs := make([]record.Header, len(r.Headers))
			for j, h := range r.Headers {
				hs[j] = record.Header{Key: h.Key, Value: h.Value}
			}
			out[i].Headers = hs
		}
		r.Recycle()
	}
	return out
}

// askTimeout bounds the questions for the offsets that a partition holds.
const askTimeout = 2 * time.Second

// partitionError says what an error of a partition means; nil for what kgo tries again by itself. id is that of the
// topic that kgo reads, which stays the old one when the topic is made anew.
func (k *Consumer) partitionError(ctx context.Context, tp record.TopicPartition, id [16]byte, wanted int64, err error) error {
	var loss *kgo.ErrDataLoss
	switch {
	case errors.Is(err, kerr.OffsetOutOfRange), errors.As(err, &loss):
		e := &OffsetError{Topic: tp.Topic, Partition: tp.Partition, Wanted: wanted, Start: -1, End: -1}
		one := []record.TopicPartition{tp}
		// The poll's context ends whenever a partition comes or goes; who reads the message needs the offsets all the same.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
		defer cancel()
		if m, err := k.c.StartOffsets(ctx, one); err == nil {
			e.Start = m[tp]
		}
		if m, err := k.c.EndOffsets(ctx, one); err == nil {
			e.End = m[tp]
		}
		return e
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		e := &TopicError{Topic: tp.Topic, OldID: id, Err: err}
		dctx, cancel := k.c.deadline(ctx)
		defer cancel()
		infos, askErr := k.c.topicIDs(dctx, []string{tp.Topic})
		e.NewID = infos[tp.Topic].ID
		if askErr != nil || e.NewID == id && id != [16]byte{} {
			// A broker that has just started does not know its topics yet; kgo reads on and tells again.
			_ = Sleep(ctx, retryPause)
			return nil
		}
		return e
	case isAuthErr(err):
		return authErr("read "+tp.String(), "topic "+tp.Topic, "Read", err)
	case kerr.IsRetriable(err), kgo.IsRetryableBrokerErr(err), isCtxErr(err):
		return nil
	default:
		return fmt.Errorf("read %s at offset %d: %w", tp, wanted, err)
	}
}

// Close ends the consumer; a waiting Poll returns ErrClosed.
func (k *Consumer) Close() { k.cl.Close() }
