package txn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf16"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millrace-stream/millrace/internal/record"
)

// A hanging transaction is one that its coordinator has completed while a partition never got the marker: readers of
// that partition stop before it, and the group's offsets stay unstable, for ever. Brokers of Kafka 4 make them: a
// partition that has no leader at the moment of completion is taken for deleted and left out (KAFKA-20734, a regression
// of the move of the metadata cache to Java). It takes a partition whose in-sync replicas are all down, so a single
// broker that restarts is enough.
//
// Two things follow. Readers and restores would stall. And worse: the next marker of the same producer id ends the
// hanging transaction too, so that an abort would take back what was committed. Hence we look for hanging transactions
// when a subtask is taken over, and again before a transaction begins when a connection to a broker came or went, and
// end what we find as the coordinator had decided, by a transaction of our own that consists of those partitions only.
//
// Two cases are left, each needing another fault within milliseconds: a process that dies between InitProducerID and the
// end of the healing (the decision is lost then: we stop and say so), and a transaction that is aborted after the
// partition came back and before we looked.

// ErrHanging is wrapped by errors about hanging transactions that have to be ended by hand, since nobody knows any more
// how they were decided.
var ErrHanging = errors.New("hanging transaction")

// errHealed is why a producer that ended hanging transactions has to be opened again: its epoch has moved.
var errHealed = errors.New("hanging transactions were ended; the subtask is taken over again")

// healer looks for the hanging transactions of a transactional id, on a client that has it, and ends them.
type healer struct {
	c       *Cluster
	cl      *kgo.Client
	txnID   string
	offsets bool                    // its transactions hold offsets of the group
	watched []record.TopicPartition // what they may have touched

	pid         int64
	pepoch      int16
	decided     verdict // before our InitProducerID
	lastDecided int16   // the newest epoch in decided
	firstEpoch  int16   // of our own transactions
}

// hang is a partition that holds an open transaction of our producer id.
type hang struct {
	record.TopicPartition
	epoch int16 // of the producer, when it wrote the records
	start int64 // first offset
}

// verdict is how the coordinator decided about the transactions written with a producer epoch.
type verdict map[int16]bool // true = committed

// judge is what a coordinator's description of our transactional id tells about the epoch of its last transaction
// (pure). From transaction.version 2 on the epoch moves when a transaction ends; below it does not.
func judge(state string, epoch int16, version int) (data int16, committed, known bool) {
	data = epoch
	if version >= 2 {
		data--
	}
	switch state {
	case "PrepareCommit", "CompleteCommit":
		return data, true, true
	case "PrepareAbort", "CompleteAbort":
		return data, false, true
	case "Ongoing", "PrepareEpochFence": // the InitProducerID that follows aborts it
		return epoch, false, true
	}
	return 0, false, false // Empty, Dead: no transaction since the last InitProducerID
}

// describe asks the coordinator about our transactional id; nil when it does not know it.
func (p *healer) describe(ctx context.Context) (*TransactionState, error) {
	found, errs, err := p.c.describeTransactions(ctx, []string{p.txnID})
	if err == nil {
		err = errs[p.txnID]
	}
	if err != nil && !errors.Is(err, kerr.TransactionalIDNotFound) {
		return nil, fmt.Errorf("describe transaction %s: %w", p.txnID, err)
	}
	return found[p.txnID], nil
}

// learn asks how the last transaction was decided, before InitProducerID makes the coordinator forget it. What an
// earlier try learnt stays.
func (p *healer) learn(ctx context.Context) error {
	s, err := p.describe(ctx)
	if err != nil || s == nil {
		return err
	}
	if data, committed, known := judge(s.State, s.ProducerEpoch, p.c.features.TransactionVersion); known {
		p.decided, p.lastDecided = verdict{data: committed}, data
	}
	return nil
}

// partitions are all that our transactions can have touched, and may be asked about.
func (p *Producer) partitions(ctx context.Context, infos map[string]TopicInfo) []record.TopicPartition {
	var tps []record.TopicPartition
	for _, topic := range p.topics.Changelogs {
		tps = append(tps, record.TopicPartition{Topic: topic, Partition: p.topics.ChangelogPartition})
	}
	for _, topic := range p.topics.Outputs {
		for i := range infos[topic].Partitions {
			tps = append(tps, record.TopicPartition{Topic: topic, Partition: i})
		}
	}
	if infos, err := p.c.topicIDs(ctx, []string{offsetsTopic}); err == nil && infos[offsetsTopic].Partitions > 0 {
		tps = append(tps, record.TopicPartition{Topic: offsetsTopic, Partition: groupPartition(p.c.opts.AppID, infos[offsetsTopic].Partitions)})
	}
	return uniquePartitions(tps)
}

const offsetsTopic = "__consumer_offsets"

// groupPartition is where a group's offsets are: Java's String.hashCode modulo the partitions (pure).
func groupPartition(group string, partitions int32) int32 {
	var h int32
	for _, u := range utf16.Encode([]rune(group)) {
		h = 31*h + int32(u)
	}
	if h == math.MinInt32 {
		return 0
	}
	return max(h, -h) % partitions
}

// hanging returns the partitions with an open transaction of ours, though none is running. Markers are written after
// the answer to EndTxn, so it waits for the coordinator to have completed. Partitions that cannot be asked now (no
// leader) make it incomplete; those that we may not ask (no right to read the topic) are left out.
func (p *healer) hanging(ctx context.Context) (found []hang, complete bool, err error) {
	found, complete, err = p.open(ctx)
	if err != nil || len(found) == 0 {
		return nil, complete, err
	}
	for try := 1; ; try++ {
		var state string
		s, err := p.describe(ctx)
		if s != nil {
			state = s.State
		}
		if err == nil && !strings.HasPrefix(state, "Prepare") {
			break
		}
		if err != nil && !retriable(replyOf(err)) {
			return nil, false, err
		}
		if perr := pause(ctx, try); perr != nil {
			return nil, false, errors.Join(fmt.Errorf("wait for the end of transaction %s (%s): %w", p.txnID, state, perr), err)
		}
	}
	return p.open(ctx)
}

// lookTimeout bounds one look: what is not seen in it is looked at again.
const lookTimeout = 2 * time.Second

// open asks the leaders for open transactions of our producer id.
func (p *healer) open(ctx context.Context) (found []hang, complete bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var topics []string
	for _, tp := range p.watched { // sorted
		if n := len(topics); n == 0 || topics[n-1] != tp.Topic {
			topics = append(topics, tp.Topic)
		}
	}
	led, unseen, err := p.c.partitionsWithLeader(ctx, topics)
	if err != nil {
		return nil, false, err
	}
	ask := slices.DeleteFunc(led, func(tp record.TopicPartition) bool {
		_, ours := slices.BinarySearchFunc(p.watched, tp, comparePartitions)
		return !ours
	})
	all, more, err := p.c.openIn(ctx, ask)
	if err != nil && (retriable(replyOf(err)) || isAuthErr(err)) {
		return nil, false, nil // no leader answered
	}
	if err != nil {
		return nil, false, fmt.Errorf("look for open transactions of %s: %w", p.txnID, err)
	}
	for _, t := range all {
		if t.ProducerID == p.pid {
			found = append(found, hang{t.TopicPartition, t.ProducerEpoch, t.FirstOffset})
		}
	}
	denied := func(u UnseenPartitions) bool { return isAuthErr(u.Err) }
	complete = !slices.ContainsFunc(more, func(u UnseenPartitions) bool { return !denied(u) })
	for _, tp := range p.watched {
		_, asked := slices.BinarySearchFunc(ask, tp, comparePartitions)
		complete = complete && (asked || slices.ContainsFunc(unseen, func(u UnseenPartitions) bool { return u.Topic == tp.Topic && denied(u) }))
	}
	return found, complete, nil
}

// heal looks for hanging transactions and ends them. errHealed means that there were some: the producer has to be
// opened again, since its epoch has moved. complete says that every partition was looked at.
func (p *healer) heal(ctx context.Context) (complete bool, err error) {
	found, complete, err := p.hanging(ctx)
	if err != nil || len(found) == 0 {
		return complete, err
	}
	byEpoch := map[int16][]hang{}
	for _, h := range found {
		byEpoch[h.epoch] = append(byEpoch[h.epoch], h)
	}
	for _, epoch := range slices.Sorted(maps.Keys(byEpoch)) {
		committed, known := p.decided[epoch]
		if epoch >= p.firstEpoch {
			committed, known = true, true // our own, and what we begin after a commit only
		}
		hs := byEpoch[epoch]
		if !known {
			return false, fmt.Errorf("%w of transactional id %s (producer id %d, epoch %d) on %s from offset %d: the broker completed it without "+
				"its marker (KAFKA-20734), and whether it was committed is not known any more; look at it with millrace txn describe %s, and end it "+
				"as that says", ErrHanging, p.txnID, p.pid, epoch, hs[0].TopicPartition, hs[0].start, p.txnID)
		}
		p.c.opts.Logger.Warn("a broker completed a transaction without its marker (KAFKA-20734); it is ended now as it was decided",
			"transactional_id", p.txnID, "producer_id", p.pid, "epoch", epoch, "partitions", len(hs), "first", hs[0].String(),
			"offset", hs[0].start, "committed", committed)
		if err := p.settle(ctx, hs, committed, p.offsets && epoch >= p.lastDecided); err != nil {
			return false, fmt.Errorf("end the hanging transaction of %s on %s: %w", p.txnID, hs[0].TopicPartition, err)
		}
	}
	return false, errHealed
}

// heal is that of the healer; it remembers what was looked at.
func (p *Producer) heal(ctx context.Context) error {
	events := p.events.Load()
	complete, err := p.healer.heal(ctx)
	if err == nil && complete {
		p.checked = events
	}
	return err
}

// settle runs a transaction that touches exactly the given partitions, without records, so that they get its marker:
// AddPartitionsToTxn (versions up to 3 are for clients, on every broker), EndTxn. last adds the group's offsets.
func (p *healer) settle(ctx context.Context, hs []hang, commit, last bool) error {
	pid, epoch := p.pid, p.pepoch
	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch = p.txnID, pid, epoch
	at := map[string]int{}
	for _, h := range hs {
		if h.Topic == offsetsTopic {
			continue
		}
		i, ok := at[h.Topic]
		if !ok {
			i = len(add.Topics)
			at[h.Topic] = i
			t := kmsg.NewAddPartitionsToTxnRequestTopic()
			t.Topic = h.Topic
			add.Topics = append(add.Topics, t)
		}
		add.Topics[i].Partitions = append(add.Topics[i].Partitions, h.Partition)
	}
	if len(add.Topics) > 0 {
		resp, err := add.RequestWith(ctx, p.cl)
		if err != nil {
			return err
		}
		for _, t := range resp.Topics {
			for _, part := range t.Partitions {
				if err := kerr.ErrorForCode(part.ErrorCode); err != nil {
					return fmt.Errorf("add %s/%d: %w", t.Topic, part.Partition, err)
				}
			}
		}
	}
	if last {
		offs := kmsg.NewPtrAddOffsetsToTxnRequest()
		offs.TransactionalID, offs.ProducerID, offs.ProducerEpoch, offs.Group = p.txnID, pid, epoch, p.c.opts.AppID
		resp, err := offs.RequestWith(ctx, p.cl)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if err != nil {
			return fmt.Errorf("add the offsets of group %s: %w", p.c.opts.AppID, err)
		}
	}
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = p.txnID, pid, epoch, commit
	for try := 1; ; try++ {
		resp, err := end.RequestWith(ctx, p.cl)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if err == nil {
			if resp.ProducerID >= 0 { // from transaction.version 2 on
				p.pid, p.pepoch = resp.ProducerID, resp.ProducerEpoch
			}
			return nil
		}
		if !retriable(replyOf(err)) {
			return err
		}
		if perr := pause(ctx, try); perr != nil {
			return errors.Join(err, perr)
		}
	}
}

// connEvents counts connections that came or went: whatever makes a partition leaderless for a while does that too.
type connEvents struct{ n atomic.Int64 }

func (e *connEvents) Load() int64                                                        { return e.n.Load() }
func (e *connEvents) OnBrokerConnect(kgo.BrokerMetadata, time.Duration, net.Conn, error) { e.n.Add(1) }
func (e *connEvents) OnBrokerDisconnect(kgo.BrokerMetadata, net.Conn)                    { e.n.Add(1) }
