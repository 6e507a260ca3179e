package txn

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/internal/record"
)

// Rewriter writes records to partitions that the caller names, outside of any transaction, with an idempotent producer.
// It is for tools; the engine writes by Producer. Its methods are for one goroutine.
type Rewriter struct {
	c  *Cluster
	cl *kgo.Client
}

// Rewrite is one record to write.
type Rewrite struct {
	record.TopicPartition
	Key, Value []byte // nil = null
	Headers    []record.Header
	Timestamp  int64 // ms; -1 = now
}

// OpenRewriter makes a producer for the given topics, as Topics describes them.
func (c *Cluster) OpenRewriter(topics map[string]TopicInfo) (*Rewriter, error) {
	codec, err := compression(c.opts.OutputCompression)
	if err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(c.clientOpts(
		kgo.RequiredAcks(kgo.AllISRAcks()), // and idempotent, kgo's default
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codec),
		kgo.ProducerBatchMaxBytesFn(func(topic string) int32 {
			if n := topics[topic].MaxMessageBytes; n > 0 {
				return int32(min(max(n, 512), 64<<20))
			}
			return 1_000_000
		}),
		kgo.ProduceRequestTimeout(c.opts.RequestTimeout),
	)...)
	if err != nil {
		return nil, fmt.Errorf("make producer: %w", err)
	}
	return &Rewriter{c, cl}, nil
}

// Close ends the producer.
func (w *Rewriter) Close() { w.cl.Close() }

// Write writes records, at most a few hundred at once, and returns when all are acknowledged or refused: one error for
// each, nil if it was written. It takes at most three times Options.RequestTimeout; after that, or when ctx ends, what
// became of the unacknowledged ones is not known, and the Rewriter is closed.
func (w *Rewriter) Write(ctx context.Context, recs []Rewrite) []error {
	type result struct {
		i   int
		err error
	}
	results := make(chan result, len(recs)) // each answers once, so that no promise ever waits
	for i, r := range recs {
		kr := &kgo.Record{Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value}
		if r.Timestamp >= 0 {
			kr.Timestamp = time.UnixMilli(r.Timestamp)
		}
		for _, h := range r.Headers {
			kr.Headers = append(kr.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		w.cl.Produce(ctx, kr, func(_ *kgo.Record, err error) { results <- result{i, err} })
	}
	errs := make([]error, len(recs))
	deadline := time.NewTimer(3 * w.c.opts.RequestTimeout)
	defer deadline.Stop()
	done := ctx.Done()
	for range recs {
		var r result
		select {
		case r = <-results:
		case <-done:
			w.cl.Close() // and every promise is called
			done = nil
			r = <-results
		case <-deadline.C:
			w.cl.Close()
			r = <-results
		}
		if r.err != nil {
			topic := recs[r.i].Topic
			if isAuthErr(r.err) {
				errs[r.i] = authErr("write to topic "+topic, "topic "+topic, "Write", r.err)
			} else {
				errs[r.i] = fmt.Errorf("write to %s: %w", recs[r.i].TopicPartition, r.err)
			}
		}
	}
	return errs
}
