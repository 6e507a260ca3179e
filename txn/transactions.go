package txn

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millrace-stream/millrace/internal/record"
)

// ErrNoApp: the app has no control topic, so it never ran on this cluster.
var ErrNoApp = errors.New("the app is not known on this cluster")

// Hanging says whether an open transaction hangs: it is open in a partition, but no coordinator knows of one there for
// its producer id (KIP-664).
type Hanging string

// The answers.
const (
	HangingNo  Hanging = "no"
	HangingYes Hanging = "yes"
	// HangingUnknown: its producer id belongs to no transactional id that we may see, and some may be hidden from us.
	HangingUnknown Hanging = "unknown"
)

// TransactionState is what a coordinator tells about a transactional id.
type TransactionState struct {
	TransactionalID string
	State           string // Kafka's words: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, ...
	ProducerID      int64
	ProducerEpoch   int16
	Coordinator     int32         // node id
	Timeout         time.Duration // after which the coordinator aborts it
	Started         time.Time     // zero if no transaction is open
	// Partitions of the open transaction, sorted; while it is completed, those whose marker is missing.
	Partitions []record.TopicPartition
}

// OpenTransaction is a transaction that is open in one partition.
type OpenTransaction struct {
	record.TopicPartition
	ProducerID    int64
	ProducerEpoch int16
	FirstOffset   int64
	LastTimestamp time.Time         // of its last record, zero if the broker does not tell
	Coordinator   *TransactionState // of its transactional id; nil if none is known for its producer id
	Hanging       Hanging
	// Decided is how the coordinator ended a hanging transaction, "committed" or "aborted", if it still tells; else "".
	Decided string
	// LastStable and HighWatermark are the partition's.
	LastStable, HighWatermark int64
}

// HoldsBack reports whether this is the transaction before which readers of committed records stop.
func (t OpenTransaction) HoldsBack() bool { return t.LastStable == t.FirstOffset }

// UnseenPartitions are partitions that could not be looked at.
type UnseenPartitions struct {
	Topic      string
	Partitions []int32 // nil = all
	Err        error
}

// OpenTransactions is what a look at partitions found.
type OpenTransactions struct {
	Open   []OpenTransaction // by topic, partition and first offset
	Unseen []UnseenPartitions
	// Looked is the number of partitions that were looked at.
	Looked int
	// Hidden is why a producer id may belong to a transactional id that was not seen; "" = it cannot.
	Hidden string
}

// AppTopics are the topics that the app reads, writes and keeps its state in, sorted, as its control topic tells, with
// that topic. Nothing is created. The error wraps ErrNoApp if the app never ran here.
func (c *Cluster) AppTopics(ctx context.Context) ([]string, error) {
	state, err := c.ReadControl(ctx, c.opts.AppID)
	if err != nil {
		return nil, err
	}
	names := []string{ControlTopic(c.opts.AppID)}
	for name := range state.TopicIDs {
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// OpenTransactions looks for open transactions in all partitions of the given topics, of whatever producers. Topics that do
// not exist any more are left out; of __consumer_offsets only the partition of the app's group is looked at. What may not
// be looked at, or has no leader, is told in Unseen.
//
// A transaction is reported only if it is open before and after its coordinator was asked, so that one that ends
// meanwhile is not taken for a hanging one: a coordinator forgets a partition only after its marker is written.
func (c *Cluster) OpenTransactions(ctx context.Context, topics []string) (OpenTransactions, error) {
	tps, unseen, err := c.partitionsWithLeader(ctx, topics)
	if err != nil {
		return OpenTransactions{}, err
	}
	out := OpenTransactions{Unseen: unseen}
	first, more, err := c.openIn(ctx, tps)
	if err != nil {
		return out, err
	}
	out.Unseen = append(out.Unseen, more...)
	out.Looked = len(tps)
	for _, u := range more {
		out.Looked -= len(u.Partitions)
	}
	if len(first) == 0 {
		return out, nil
	}
	var pids []int64
	var where []record.TopicPartition
	for _, t := range first {
		pids, where = append(pids, t.ProducerID), append(where, t.TopicPartition)
	}
	slices.Sort(pids)
	states, hidden, err := c.transactionsOf(ctx, slices.Compact(pids))
	if err != nil {
		return out, err
	}
	out.Hidden = hidden
	where = uniquePartitions(where)
	again, more, err := c.openIn(ctx, where)
	if err != nil {
		return out, err
	}
	out.Unseen = append(out.Unseen, more...)
	ends, err := c.EndOffsets(ctx, where)
	if err != nil {
		return out, err
	}
	stable, err := c.StableOffsets(ctx, where)
	if err != nil {
		return out, err
	}
	for _, t := range again {
		before := slices.ContainsFunc(first, func(f OpenTransaction) bool {
			return f.TopicPartition == t.TopicPartition && f.ProducerID == t.ProducerID && f.FirstOffset == t.FirstOffset
		})
		if !before {
			continue
		}
		t.Coordinator = states[t.ProducerID]
		t.Hanging, t.Decided = judgeHanging(t, hidden == "", c.features.TransactionVersion)
		t.HighWatermark, t.LastStable = ends[t.TopicPartition], stable[t.TopicPartition]
		out.Open = append(out.Open, t)
	}
	return out, nil
}

// judgeHanging judges a transaction that was open in its partition before and after the coordinators were asked (pure). complete
// says that all transactional ids were seen.
func judgeHanging(t OpenTransaction, complete bool, version int) (h Hanging, decided string) {
	s := t.Coordinator
	switch {
	case s == nil && complete:
		return HangingYes, ""
	case s == nil:
		return HangingUnknown, ""
	case slices.Contains(s.Partitions, t.TopicPartition):
		return HangingNo, ""
	}
	if s.State == "Ongoing" || s.State == "PrepareEpochFence" {
		return HangingYes, "" // a later transaction: what became of this one is not known any more
	}
	data, committed, known := judge(s.State, s.ProducerEpoch, version)
	switch {
	case !known || data != t.ProducerEpoch:
		return HangingYes, ""
	case committed:
		return HangingYes, "committed"
	}
	return HangingYes, "aborted"
}

func comparePartitions(a, b record.TopicPartition) int {
	if c := strings.Compare(a.Topic, b.Topic); c != 0 {
		return c
	}
	return int(a.Partition) - int(b.Partition)
}

// uniquePartitions sorts and removes doubles, in place.
func uniquePartitions(tps []record.TopicPartition) []record.TopicPartition {
	slices.SortFunc(tps, comparePartitions)
	return slices.Compact(tps)
}

// partitionsWithLeader lists the partitions of topics, by one metadata request.
func (c *Cluster) partitionsWithLeader(ctx context.Context, topics []string) (tps []record.TopicPartition, unseen []UnseenPartitions, _ error) {
	if len(topics) == 0 {
		return nil, nil, nil
	}
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	resp, err := metadataRequest(topics).RequestWith(ctx, c.cl)
	if err != nil {
		return nil, nil, fmt.Errorf("find the leaders of topics: %w", err)
	}
	for _, t := range resp.Topics {
		if t.Topic == nil {
			continue
		}
		name, err := *t.Topic, kerr.ErrorForCode(t.ErrorCode)
		switch {
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			continue
		case isAuthErr(err):
			unseen = append(unseen, UnseenPartitions{name, nil, authErr("look at topic "+name, "topic "+name, "Read", err)})
			continue
		case err != nil:
			unseen = append(unseen, UnseenPartitions{name, nil, fmt.Errorf("look at topic %s: %w", name, err)})
			continue
		}
		var down []int32
		for _, p := range t.Partitions {
			switch {
			case name == offsetsTopic && p.Partition != groupPartition(c.opts.AppID, int32(len(t.Partitions))):
			case p.Leader < 0:
				down = append(down, p.Partition)
			default:
				tps = append(tps, record.TopicPartition{Topic: name, Partition: p.Partition})
			}
		}
		if down != nil {
			unseen = append(unseen, UnseenPartitions{name, down, fmt.Errorf("look at topic %s: partition %d has no leader now", name, down[0])})
		}
	}
	return uniquePartitions(tps), unseen, nil
}

// openIn asks the leaders of partitions for open transactions.
func (c *Cluster) openIn(ctx context.Context, tps []record.TopicPartition) (found []OpenTransaction, unseen []UnseenPartitions, _ error) {
	if len(tps) == 0 {
		return nil, nil, nil
	}
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	req := kmsg.NewPtrDescribeProducersRequest()
	for _, tp := range tps { // sorted by topic
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != tp.Topic {
			t := kmsg.NewDescribeProducersRequestTopic()
			t.Topic = tp.Topic
			req.Topics = append(req.Topics, t)
		}
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, tp.Partition)
	}
	miss := func(topic string, partition int32, err error) {
		i := slices.IndexFunc(unseen, func(u UnseenPartitions) bool { return u.Topic == topic })
		if i < 0 {
			if isAuthErr(err) {
				err = authErr("look at topic "+topic, "topic "+topic, "Read", err)
			} else {
				err = fmt.Errorf("look at topic %s: partition %d: %w", topic, partition, err)
			}
			i = len(unseen)
			unseen = append(unseen, UnseenPartitions{Topic: topic, Err: err})
		}
		unseen[i].Partitions = append(unseen[i].Partitions, partition)
	}
	answered := map[record.TopicPartition]bool{}
	var last error
	for _, shard := range c.cl.RequestSharded(ctx, req) {
		if shard.Err != nil {
			last = shard.Err
			continue
		}
		resp, ok := shard.Resp.(*kmsg.DescribeProducersResponse)
		if !ok {
			return nil, nil, fmt.Errorf("describe producers: unexpected response %T", shard.Resp)
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				tp := record.TopicPartition{Topic: t.Topic, Partition: p.Partition}
				answered[tp] = true
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					miss(t.Topic, p.Partition, err)
					continue
				}
				for _, a := range p.ActiveProducers {
					if a.CurrentTxnStartOffset < 0 {
						continue
					}
					o := OpenTransaction{TopicPartition: tp, ProducerID: a.ProducerID, ProducerEpoch: int16(a.ProducerEpoch), FirstOffset: a.CurrentTxnStartOffset}
					if a.LastTimestamp >= 0 {
						o.LastTimestamp = time.UnixMilli(a.LastTimestamp).UTC()
					}
					found = append(found, o)
				}
			}
		}
	}
	if last != nil && len(answered) == 0 {
		return nil, nil, fmt.Errorf("describe producers: %w; brokers before Kafka 2.8 cannot tell (KIP-664)", last)
	}
	for _, tp := range tps {
		if !answered[tp] {
			err := last
			if err == nil {
				err = errors.New("the broker did not answer for it")
			}
			miss(tp.Topic, tp.Partition, err)
		}
	}
	slices.SortFunc(found, func(a, b OpenTransaction) int {
		if c := comparePartitions(a.TopicPartition, b.TopicPartition); c != 0 {
			return c
		}
		return int(min(max(a.FirstOffset-b.FirstOffset, -1), 1))
	})
	return found, unseen, nil
}

// transactionsOf asks all coordinators for the transactional ids of producer ids, and for their states. hidden is why it may
// not be all.
func (c *Cluster) transactionsOf(ctx context.Context, pids []int64) (states map[int64]*TransactionState, hidden string, _ error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	req := kmsg.NewPtrListTransactionsRequest()
	req.ProducerIDFilters = pids
	var ids []string
	for _, shard := range c.cl.RequestSharded(ctx, req) {
		err := shard.Err
		if err == nil {
			resp, ok := shard.Resp.(*kmsg.ListTransactionsResponse)
			if !ok {
				return nil, "", fmt.Errorf("list transactions: unexpected response %T", shard.Resp)
			}
			if err = kerr.ErrorForCode(resp.ErrorCode); err == nil {
				for _, s := range resp.TransactionStates {
					ids = append(ids, s.TransactionalID)
				}
				continue
			}
		}
		hidden = fmt.Sprintf("broker %d did not list its transactions (%v)", shard.Meta.NodeID, err)
	}
	// Brokers list only the ids that we may describe. Whether that is all of them, an id that nobody has tells.
	nobody := rand.Text() + "-millrace"
	ids = append(ids, nobody)
	found, errs, err := c.describeTransactions(ctx, ids)
	if err != nil {
		return nil, "", err
	}
	for id, err := range errs {
		switch {
		case errors.Is(err, kerr.TransactionalIDNotFound):
		case id == nobody && isAuthErr(err):
			hidden = "transactional ids may be hidden from this principal; grant Describe on transactional id * to see all"
		case hidden == "":
			hidden = fmt.Sprintf("transactional id %s could not be described (%v)", id, err)
		}
	}
	states = map[int64]*TransactionState{}
	for _, s := range found {
		states[s.ProducerID] = s
	}
	return states, hidden, nil
}

// DescribeTransaction asks the coordinator of a transactional id; nil if it does not know it.
func (c *Cluster) DescribeTransaction(ctx context.Context, id string) (*TransactionState, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	found, errs, err := c.describeTransactions(ctx, []string{id})
	if err == nil {
		err = errs[id]
	}
	switch {
	case errors.Is(err, kerr.TransactionalIDNotFound):
		return nil, nil
	case isAuthErr(err):
		return nil, authErr("describe transaction", "transactional id "+id, "Describe", err)
	case err != nil:
		return nil, fmt.Errorf("describe transaction %s: %w", id, err)
	}
	return found[id], nil
}

// describeTransactions asks the coordinators; errs are by id.
func (c *Cluster) describeTransactions(ctx context.Context, ids []string) (found map[string]*TransactionState, errs map[string]error, _ error) {
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = ids
	found, errs = map[string]*TransactionState{}, map[string]error{}
	for _, shard := range c.cl.RequestSharded(ctx, req) {
		if shard.Err != nil {
			if r, ok := shard.Req.(*kmsg.DescribeTransactionsRequest); ok {
				for _, id := range r.TransactionalIDs {
					errs[id] = shard.Err
				}
				continue
			}
			return nil, nil, fmt.Errorf("describe transactions: %w", shard.Err)
		}
		resp, ok := shard.Resp.(*kmsg.DescribeTransactionsResponse)
		if !ok {
			return nil, nil, fmt.Errorf("describe transactions: unexpected response %T", shard.Resp)
		}
		for _, t := range resp.TransactionStates {
			if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
				errs[t.TransactionalID] = err
				continue
			}
			s := &TransactionState{
				TransactionalID: t.TransactionalID, State: t.State, ProducerID: t.ProducerID, ProducerEpoch: t.ProducerEpoch,
				Coordinator: shard.Meta.NodeID, Timeout: time.Duration(t.TimeoutMillis) * time.Millisecond,
			}
			if t.StartTimestamp > 0 {
				s.Started = time.UnixMilli(t.StartTimestamp).UTC()
			}
			for _, topic := range t.Topics {
				for _, p := range topic.Partitions {
					s.Partitions = append(s.Partitions, record.TopicPartition{Topic: topic.Topic, Partition: p})
				}
			}
			slices.SortFunc(s.Partitions, comparePartitions)
			found[t.TransactionalID] = s
		}
	}
	return found, errs, nil
}

// ReadCommitted hands the committed records of a partition from offset from up to, not including, to, in offset order. It
// ends at to even if nothing is there (markers, compacted records), and earlier with fn's error. to must not be above
// the last stable offset. The errors are those of ReadChangelog.
func (c *Cluster) ReadCommitted(ctx context.Context, tp record.TopicPartition, from, to int64, fn func(record.Record) error) error {
	starts, err := c.StartOffsets(ctx, []record.TopicPartition{tp})
	if err != nil {
		return err
	}
	from = max(from, starts[tp])
	if from >= to {
		return nil
	}
	cl, err := kgo.NewClient(c.clientOpts()...)
	if err != nil {
		return fmt.Errorf("read %s: %w", tp, err)
	}
	defer cl.Close()
	f := &fetcher{cl: cl, opts: c.opts, topic: tp.Topic, partition: tp.Partition, position: from, end: to, stall: c.opts.RequestTimeout, wait: fetchWait, leader: -1}
	return f.run(ctx, func(chunk []*kgo.Record, _ int64) error {
		for _, r := range records(chunk) {
			if r.Offset >= to {
				break
			}
			if err := fn(r); err != nil {
				return err
			}
		}
		return nil
	})
}
