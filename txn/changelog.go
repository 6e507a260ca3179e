package txn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/statestore"
)

// ChangelogRead says what of the changelogs of a subtask to read.
type ChangelogRead struct {
	Topics    []string // by changelog index
	Partition int32
	// From, by changelog index: the next offset to read, as a store's Meta has it; -1 or 0 = from the start of the log.
	From []int64
	// Stall ends the read with an error when it made no progress for so long; default twice Options.TransactionTimeout:
	// by then the open transaction of a dead writer is over.
	Stall time.Duration
	// Verify, if set, is asked before anything is applied, if there is something to read: found are the epoch records that stand
	// last before the positions, one for each changelog that has one there. blind says that none was found in a changelog that had
	// some: they are gone by compaction, or far away. Its error ends the read.
	Verify func(found [][]byte, blind bool) error
	// Progress is told after each chunk, from the caller's goroutine: totals so far, and how many offsets are left in
	// all changelogs (at most: compaction leaves holes). May be nil.
	Progress func(records, bytes, remaining int64)
}

// ChangelogEnd tells where a read ended.
type ChangelogEnd struct {
	Positions []int64 // by changelog index: next offset to read
	LogStart  []int64 // by changelog index: log start offset when the read began
	End       []int64 // by changelog index: high watermark when the read began
	// Record is the epoch record with the highest epoch among those read, RecordBytes as it is encoded; nil if there
	// was none.
	Record         *EpochRecord
	RecordBytes    []byte
	Records, Bytes int64 // handed to apply
}

// ErrStalled: a read made no progress for too long.
var ErrStalled = errors.New("no progress")

// ReadChangelog reads the changelogs of a subtask, one after the other, from the given positions to the high watermark
// taken when it is called, and hands the committed records to apply in offset order, epoch records (under statestore.MetaKey) included. key and value may be kept; a nil value
// is a tombstone. To restore, call it after OpenProducer returned: then the former owner can add nothing
// and its last transaction is decided.
//
// The read ends at the high watermark, never at the last stable offset, which may lag behind commits that were
// acknowledged; and it ends when the position passes it, since transaction markers and compacted records leave holes.
// While a foreign transaction is undecided below the high watermark, the read waits for it, up to Stall. At most three
// chunks of Options.FetchMaxPartBytes (compressed) are in memory.
//
// Errors: *StaleError, *AheadError, ErrStalled, ErrEpochRecord, what apply returned, and authorization.
func (c *Cluster) ReadChangelog(ctx context.Context, r ChangelogRead, apply func(changelog int, offset int64, key, value []byte) error) (ChangelogEnd, error) {
	n := len(r.Topics)
	if len(r.From) != n {
		return ChangelogEnd{}, fmt.Errorf("read changelog: %d topics, but %d positions", n, len(r.From))
	}
	if r.Stall == 0 {
		r.Stall = 2 * c.opts.TransactionTimeout
	}
	end := ChangelogEnd{Positions: make([]int64, n), LogStart: make([]int64, n), End: make([]int64, n)}
	tps := make([]record.TopicPartition, n)
	for i, topic := range r.Topics {
		tps[i] = record.TopicPartition{Topic: topic, Partition: r.Partition}
	}
	ends, err := c.EndOffsets(ctx, tps)
	if err != nil {
		return end, fmt.Errorf("read changelog: %w", err)
	}
	starts, err := c.StartOffsets(ctx, tps)
	if err != nil {
		return end, fmt.Errorf("read changelog: %w", err)
	}
	var remaining int64
	for i, tp := range tps {
		end.LogStart[i], end.End[i] = starts[tp], ends[tp]
		end.Positions[i] = r.From[i]
		if r.From[i] <= 0 {
			end.Positions[i] = end.LogStart[i]
		}
		switch {
		case end.Positions[i] > end.End[i]:
			return end, &AheadError{tp.Topic, tp.Partition, r.From[i], end.End[i]}
		case end.Positions[i] < end.LogStart[i]:
			return end, staleError(tp.Topic, tp.Partition, r.From[i], end.LogStart[i])
		}
		remaining += end.End[i] - end.Positions[i]
	}
	if remaining == 0 {
		return end, nil
	}
	// An own client: brokers answer the requests of a connection one after the other, so a fetch that waits would hold
	// up those of other subtasks.
	cl, err := kgo.NewClient(c.clientOpts()...)
	if err != nil {
		return end, fmt.Errorf("read changelog: %w", err)
	}
	defer cl.Close()
	meta := statestore.MetaKey()
	if r.Verify != nil {
		var found [][]byte
		blind := false
		for i, topic := range r.Topics {
			if end.Positions[i] <= end.LogStart[i] {
				continue
			}
			f := &fetcher{cl: cl, opts: c.opts, topic: topic, partition: r.Partition, stall: r.Stall, wait: fetchWait, leader: -1}
			rec, err := f.epochBefore(ctx, end.LogStart[i], end.Positions[i])
			if err != nil {
				return end, err
			}
			if rec != nil {
				found = append(found, rec)
			}
			blind = blind || rec == nil
		}
		if err := r.Verify(found, blind); err != nil {
			return end, fmt.Errorf("read changelog %s/%d from offset %d: %w", r.Topics[0], r.Partition, end.Positions[0], err)
		}
	}
	for i, topic := range r.Topics {
		f := &fetcher{cl: cl, opts: c.opts, topic: topic, partition: r.Partition, position: end.Positions[i],
			end: end.End[i], stall: r.Stall, wait: fetchWait, leader: -1}
		var last []byte
		err := f.run(ctx, func(chunk []*kgo.Record, position int64) error {
			for _, rec := range chunk {
				if rec.Offset >= f.end {
					// Written after the read began, by a transaction of somebody else. What follows may be half of it.
					break
				}
				if bytes.Equal(rec.Key, meta) {
					last = rec.Value
				}
				if err := apply(i, rec.Offset, rec.Key, rec.Value); err != nil {
					return err
				}
				end.Records++
				end.Bytes += int64(len(rec.Key) + len(rec.Value))
			}
			remaining -= min(position, f.end) - end.Positions[i]
			end.Positions[i] = min(position, f.end)
			if r.Progress != nil {
				r.Progress(end.Records, end.Bytes, remaining)
			}
			return nil
		})
		if err != nil {
			return end, err
		}
		if last == nil {
			continue
		}
		er, err := DecodeEpochRecord(last)
		if err != nil {
			return end, fmt.Errorf("read changelog %s/%d: last epoch record: %w", topic, r.Partition, err)
		}
		if end.Record == nil || er.Epoch > end.Record.Epoch {
			end.Record, end.RecordBytes = er, last
		}
	}
	return end, nil
}

// fetcher reads one partition, read_committed, from position to end. It speaks Fetch itself: a kgo consumer does not
// tell the position when a fetch ends in markers or holes.
type fetcher struct {
	cl        *kgo.Client
	opts      Options
	topic     string
	partition int32
	position  int64 // of the fetching goroutine
	end       int64
	stall     time.Duration
	wait      time.Duration // how long a broker may hold a fetch that finds nothing

	topicID [16]byte
	leader  int32 // -1 = to be asked
}

// chunk is what one fetch brought: records and the position after them.
type chunk struct {
	records  []*kgo.Record
	position int64
	err      error
}

// run fetches ahead of apply by one chunk. apply runs on the caller's goroutine.
func (f *fetcher) run(ctx context.Context, apply func([]*kgo.Record, int64) error) error {
	if f.position >= f.end {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	chunks := make(chan chunk, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(chunks)
		for f.position < f.end {
			c := f.next(ctx)
			select {
			case chunks <- c:
			case <-ctx.Done():
				return
			}
			if c.err != nil {
				return
			}
		}
	})
	defer wg.Wait()
	defer cancel()
	for c := range chunks {
		if c.err != nil {
			return c.err
		}
		if err := apply(c.records, c.position); err != nil {
			return err
		}
	}
	return ctx.Err()
}

const (
	// Right before a position stands an epoch record, or the marker of its transaction and that.
	nearEpoch = 4
	// farEpoch bounds the search for one.
	farEpoch = 100_000
)

// epochBefore finds the last epoch record between two offsets, from the end on; nil = there is none, or it is far away.
func (f *fetcher) epochBefore(ctx context.Context, start, end int64) (last []byte, err error) {
	for n := int64(nearEpoch); ; n *= 16 {
		f.position, f.end = max(start, end-n), end
		from := f.position
		err := f.run(ctx, func(chunk []*kgo.Record, _ int64) error {
			for _, r := range chunk {
				if r.Offset < end && bytes.Equal(r.Key, statestore.MetaKey()) {
					last = r.Value
				}
			}
			return nil
		})
		if err != nil || last != nil || from == start || n > farEpoch {
			return last, err
		}
	}
}

// fetchWait is the fetcher's wait when the end is known.
const fetchWait = 200 * time.Millisecond

// emptyIsHole is how many answers in a row without data, below the last stable offset, prove that nothing is left up
// to the end. One would do; a quota may empty an answer too, though it then says so.
const emptyIsHole = 3

// next fetches until there is progress, an error that does not heal, or the stall time is over.
func (f *fetcher) next(ctx context.Context) chunk {
	deadline := time.Now().Add(f.stall)
	var (
		last    error // of the last try
		stable  = int64(-1)
		empties int
	)
	fail := func(err error) chunk {
		return chunk{err: fmt.Errorf("read %s/%d at offset %d: %w", f.topic, f.partition, f.position, err)}
	}
	for try := 0; ; try++ {
		if err := ctx.Err(); err != nil {
			return fail(err)
		}
		if time.Now().After(deadline) {
			err := fmt.Errorf("%w for %v", ErrStalled, f.stall)
			switch {
			case last != nil:
				err = fmt.Errorf("%w: %w", err, last)
			case stable >= 0 && stable < f.end:
				err = fmt.Errorf("%w: the last stable offset stays at %d: %s", err, stable, f.openTransactions(ctx))
			}
			return fail(err)
		}
		rp, throttled, err := f.fetch(ctx)
		if err == nil {
			err = kerr.ErrorForCode(rp.ErrorCode)
		}
		if err == nil {
			fp, position := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
				Offset: f.position, IsolationLevel: kgo.ReadCommitted(), Topic: f.topic, Partition: f.partition,
			}, rp, decompressor, nil)
			err = fp.Err
			if position > f.position {
				// What was decoded before a fault is good; the fault comes again with the next fetch.
				f.position = position
				return chunk{records: fp.Records, position: position}
			}
			stable = rp.LastStableOffset
			if err == nil && !throttled && len(rp.RecordBatches) == 0 && stable >= f.end {
				if empties++; empties == emptyIsHole {
					f.position = f.end
					return chunk{position: f.end}
				}
				continue
			}
		}
		empties, last = 0, err
		var recreated *TopicError
		switch {
		case err == nil:
			// Nothing yet: the broker has held the answer for a while already, unless it throttles.
			if throttled {
				_ = Sleep(ctx, retryPause)
			}
		case errors.Is(err, kerr.OffsetOutOfRange):
			return f.outOfRange(rp)
		case isAuthErr(err):
			return chunk{err: authErr("read topic "+f.topic, "topic "+f.topic, "Read", err)}
		case errors.As(err, &recreated), !retriable(replyOf(err)):
			return fail(err)
		default:
			f.leader = -1
			_ = Sleep(ctx, retryPause)
		}
	}
}

func staleError(topic string, partition int32, position, start int64) *StaleError {
	return &StaleError{topic, partition, fmt.Sprintf("it wants offset %d next, but the log begins at %d", position, start)}
}

// outOfRange: the log start moved over the position while we read (retention), or the log was truncated.
func (f *fetcher) outOfRange(rp *kmsg.FetchResponseTopicPartition) chunk {
	if rp.LogStartOffset >= 0 && f.position >= rp.LogStartOffset {
		return chunk{err: &AheadError{f.topic, f.partition, f.position, rp.HighWatermark}}
	}
	return chunk{err: staleError(f.topic, f.partition, f.position, rp.LogStartOffset)}
}

var decompressor = kgo.DefaultDecompressor()

// fetch asks the leader once.
func (f *fetcher) fetch(ctx context.Context) (rp *kmsg.FetchResponseTopicPartition, throttled bool, err error) {
	if f.leader < 0 {
		if err := f.findLeader(ctx); err != nil {
			return nil, false, err
		}
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis = int32(f.wait.Milliseconds())
	req.MinBytes = 1
	req.MaxBytes = f.opts.FetchMaxBytes
	req.IsolationLevel = 1
	req.SessionEpoch = -1 // no fetch session
	req.Rack = f.opts.Rack
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = f.topic, f.topicID
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = f.partition, f.position, f.opts.FetchMaxPartBytes
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	kresp, err := f.cl.Broker(int(f.leader)).Request(ctx, req)
	if err != nil {
		return nil, false, err
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, false, err
	}
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			if p := &resp.Topics[i].Partitions[j]; p.Partition == f.partition {
				return p, resp.ThrottleMillis > 0, nil
			}
		}
	}
	return nil, false, kerr.UnknownTopicOrPartition
}

// findLeader asks for topic id and leader.
func (f *fetcher) findLeader(ctx context.Context) error {
	resp, err := metadataRequest([]string{f.topic}).RequestWith(ctx, f.cl)
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		if t.Topic == nil || *t.Topic != f.topic {
			continue
		}
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return err
		}
		for _, p := range t.Partitions {
			if p.Partition == f.partition {
				if p.Leader < 0 {
					return kerr.LeaderNotAvailable
				}
				if f.topicID != [16]byte{} && f.topicID != t.TopicID {
					return &TopicError{Topic: f.topic, OldID: f.topicID, NewID: t.TopicID}
				}
				f.leader, f.topicID = p.Leader, t.TopicID
				return nil
			}
		}
	}
	return kerr.UnknownTopicOrPartition
}

// openTransactions names who holds the last stable offset back, for the error message.
func (f *fetcher) openTransactions(ctx context.Context) string {
	const who = "a transaction of another producer on this partition is undecided"
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req := kmsg.NewPtrDescribeProducersRequest()
	t := kmsg.NewDescribeProducersRequestTopic()
	t.Topic, t.Partitions = f.topic, []int32{f.partition}
	req.Topics = append(req.Topics, t)
	kresp, err := f.cl.Broker(int(f.leader)).Request(ctx, req)
	if err != nil {
		return who
	}
	for _, t := range kresp.(*kmsg.DescribeProducersResponse).Topics {
		for _, p := range t.Partitions {
			for _, a := range p.ActiveProducers {
				if a.CurrentTxnStartOffset >= 0 {
					return fmt.Sprintf("producer id %d, epoch %d has a transaction open since offset %d; find it with "+
						"kafka-transactions.sh list, or wait for its time-out", a.ProducerID, a.ProducerEpoch, a.CurrentTxnStartOffset)
				}
			}
		}
	}
	return who
}
