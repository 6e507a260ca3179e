package txn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/millrace-stream/millrace/internal/failpoint"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/statestore"
)

// ErrNotOwned: the group session does not say that the subtask is ours, so it was not taken over.
var ErrNotOwned = errors.New("the group session does not say that the subtask is ours")

// ErrFenced is wrapped by Producer.Err and CommitResult.Err when the outcome is Fenced.
var ErrFenced = errors.New("the transaction is not ours any more: another producer took the transactional id, or the broker timed it out")

// ProducerTopics are the topics that a subtask writes.
type ProducerTopics struct {
	Outputs            []string // by record.Output.Topic
	Changelogs         []string // by statestore.Change.Changelog
	ChangelogPartition int32
}

// Bounds of what a producer holds back: Produce waits when one is reached. kgo's own bounds are above them, so that
// kgo never blocks us in a way that a context cannot end without failing records.
const (
	maxPendingRecords = 8192
	maxPendingBytes   = 8 << 20
	// slabSize records are made at once and used again when all of them are acknowledged.
	slabSize = 256
)

// Producer is the transactional producer of one subtask: one kgo client with the transactional id
// <app>-<sub-topology>-<index>. Its methods are called by one goroutine. It is good until the first outcome that is not
// Committed; then it is closed and a new one opened.
//
// Records are handed to kgo as they come, from slabs that are used again: what is ours allocates nothing per record.
// All records share one promise function, which counts, keeps the first error, and checks that the broker took each
// record under the producer id and epoch with which the transaction began, under which the offsets are sent too. That is
// not idle: kgo takes a new epoch by itself in the middle of a transaction when a broker answers INVALID_PRODUCER_EPOCH
// for a partition whose log begins behind our last record (DeleteRecords on a repartition topic does that); the records
// so far would be gone without an error.
type Producer struct {
	healer
	id     record.SubtaskID
	ctx    context.Context // of all records: ends with Close
	cancel context.CancelFunc
	m      *Machine
	topics ProducerTopics

	begun        bool // a transaction is begun at kgo
	offsetsAdded bool // AddOffsetsToTxn went through in this transaction
	closed       bool

	events  connEvents
	checked int64 // events when all partitions were last looked at for hanging transactions

	slab  *slab // being filled
	used  int   // records of slab in use
	epoch []kgo.Record
	ids   map[string][16]byte // topic ids of inputs, for TxnOffsetCommit

	// Topics that are written: by name, and in the order of ProducerTopics.
	met                 map[string]*met
	outputs, changelogs []*met
	unsure              bool // some are touched

	mu       sync.Mutex
	free     []*slab
	firstErr error
	waiting  chan struct{} // closed by the promise function when there is room again; nil = nobody waits
	wanted   atomic.Bool   // somebody waits: so that no record takes the lock in vain
	records  atomic.Int64  // handed to kgo and not acknowledged
	bytes    atomic.Int64
	promise  func(*kgo.Record, error)
}

// slab is a block of records. It is the context of its records too, so that the promise function finds it without a
// map or a closure per record.
type slab struct {
	context.Context
	records [slabSize]kgo.Record
	open    atomic.Int32 // records not yet acknowledged, those not yet used included
}

// OpenProducer takes a subtask over: it runs InitProducerID, which fences the former owner and aborts its transaction,
// and returns when that is done. own is asked right before every try: InitProducerID without fresh proof of ownership
// would fence the rightful owner; ErrNotOwned is returned when it denies. It takes no longer than
// Options.RequestTimeout.
//
// A hanging transaction of the subtask is ended first, as its coordinator had decided; an error wraps ErrHanging when
// nobody knows how.
func (c *Cluster) OpenProducer(ctx context.Context, id record.SubtaskID, topics ProducerTopics, own func() (Ownership, bool)) (*Producer, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	for {
		p, err := c.openProducer(ctx, id, topics, own)
		if !errors.Is(err, errHealed) {
			return p, err
		}
	}
}

func (c *Cluster) openProducer(ctx context.Context, id record.SubtaskID, topics ProducerTopics, own func() (Ownership, bool)) (*Producer, error) {
	p := &Producer{checked: -1, id: id, topics: topics, m: NewMachine(), ids: map[string][16]byte{},
		healer: healer{c: c, offsets: true, txnID: c.transactionalID(id)}}
	if failpoint.Planted(failpoint.UnfencedZombie) {
		p.txnID += fmt.Sprintf("-%x", time.Now().UnixNano())
	}
	fail := func(err error) (*Producer, error) {
		p.Close()
		return nil, fmt.Errorf("take over subtask %s: %w", id, err)
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.promise = p.acked
	infos, err := c.Topics(ctx, append(slices.Clone(topics.Outputs), topics.Changelogs...)...)
	if err != nil {
		return fail(err)
	}
	opts, err := c.producerOpts(p.txnID, infos)
	if err != nil {
		return fail(err)
	}
	if p.cl, err = kgo.NewClient(append(opts, kgo.WithHooks(&p.events))...); err != nil {
		return fail(err)
	}
	p.watched = p.partitions(ctx, infos)
	p.met = map[string]*met{}
	known := func(name string) *met {
		if p.met[name] == nil {
			p.met[name] = &met{id: infos[name].ID}
		}
		return p.met[name]
	}
	for _, name := range topics.Outputs {
		p.outputs = append(p.outputs, known(name))
	}
	for _, name := range topics.Changelogs {
		p.changelogs = append(p.changelogs, known(name))
	}
	p.epoch = make([]kgo.Record, len(topics.Changelogs))
	act := Action{Kind: ActAsk}
	for {
		var e Event
		switch act.Kind {
		case ActAsk:
			o, ok := own()
			if !ok {
				return fail(ErrNotOwned)
			}
			e = Event{Kind: EventOwned, Own: o}
		case ActInit:
			if err = p.learn(ctx); err == nil {
				p.pid, p.pepoch, err = p.cl.ProducerID(ctx)
			}
			e = Event{Kind: EventInitReply, Reply: replyOf(err)}
		case ActPause:
			e = Event{Kind: EventPaused}
			if pause(ctx, act.Try) != nil {
				e = Event{Kind: EventDeadline}
			}
		case ActProduce:
			if err := failpoint.Hit(failpoint.AfterInitProducerID); err != nil {
				return fail(err)
			}
			p.firstEpoch = p.pepoch
			if err := p.heal(ctx); err != nil {
				return fail(err)
			}
			return p, nil
		default:
			switch {
			case isAuthErr(err):
				return fail(authErr("init producer id", "transactional id "+p.txnID, "Write and Describe", err))
			case errors.Is(err, kerr.InvalidTransactionTimeout):
				return fail(fmt.Errorf("init producer id %s: %w; the transaction timeout of %v is above the brokers' "+
					"transaction.max.timeout.ms", p.txnID, err, c.opts.TransactionTimeout))
			default:
				return fail(fmt.Errorf("init producer id %s: %w", p.txnID, err))
			}
		}
		var stepErr error
		if act, stepErr = p.m.Step(e); stepErr != nil {
			return fail(stepErr)
		}
	}
}

// producerOpts are those of a transactional client.
func (c *Cluster) producerOpts(txnID string, topics map[string]TopicInfo) ([]kgo.Opt, error) {
	codec, err := compression(c.opts.OutputCompression)
	if err != nil {
		return nil, err
	}
	opts := c.clientOpts(
		kgo.TransactionalID(txnID),
		kgo.TransactionTimeout(c.opts.TransactionTimeout),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(c.opts.Linger),
		kgo.ProducerBatchCompression(codec),
		// As large as the topic takes: a record that the topic takes must fit, and larger batches are no slower.
		kgo.ProducerBatchMaxBytesFn(func(topic string) int32 {
			if n := topics[topic].MaxMessageBytes; n > 0 {
				return int32(min(max(n, 512), 64<<20))
			}
			return 1_000_000
		}),
		kgo.MaxBufferedRecords(2*maxPendingRecords),
		// No RecordDeliveryTimeout: kgo measures it from the record's timestamp, and ours are event times. What bounds a
		// record that is not acknowledged is the deadline of Produce and Commit, after which the client is closed.
		kgo.ProduceRequestTimeout(c.opts.RequestTimeout),
		kgo.ConcurrentTransactionsBackoff(5*time.Millisecond),
	)
	if c.features.TransactionVersion < 2 {
		// Below KIP-890 part 2 offsets are added to a transaction by AddOffsetsToTxn, and TxnOffsetCommit from version 5
		// on must not be used. The pin also keeps kgo from changing its ways when the feature is raised while we run.
		v := kversion.Stable()
		v.SetMaxKeyVersion(kmsg.TxnOffsetCommit.Int16(), 4)
		v.SetMaxKeyVersion(kmsg.EndTxn.Int16(), 4)
		v.SetMaxKeyVersion(kmsg.Produce.Int16(), 11)
		opts = append(opts, kgo.MaxVersions(v))
	}
	return opts, nil
}

func compression(name string) (kgo.CompressionCodec, error) {
	switch strings.ToLower(name) {
	case "", "none":
		return kgo.NoCompression(), nil
	case "snappy":
		return kgo.SnappyCompression(), nil
	case "lz4":
		return kgo.Lz4Compression(), nil
	case "zstd":
		return kgo.ZstdCompression(), nil
	case "gzip":
		return kgo.GzipCompression(), nil
	default:
		return kgo.NoCompression(), fmt.Errorf("output compression %q: want none, snappy, lz4, zstd or gzip", name)
	}
}

// Produce hands outputs to the brokers, within the running transaction. It returns when they are buffered; it waits
// only when too much is unacknowledged, until ctx ends or Options.TransactionTimeout is over. Keys, values and headers
// must stay unchanged until the epoch is over. Failures of records come with Err and Commit.
func (p *Producer) Produce(ctx context.Context, outs []record.Output) error {
	if err := p.ready(); err != nil {
		return err
	}
	for i := range outs {
		o := &outs[i]
		if uint(o.Topic) >= uint(len(p.topics.Outputs)) {
			return fmt.Errorf("produce for subtask %s: output index %d, but there are %d outputs", p.id, o.Topic, len(p.topics.Outputs))
		}
		r, err := p.next(ctx, len(o.Key)+len(o.Value))
		if err != nil {
			return err
		}
		if t := p.outputs[o.Topic]; t.state == unmet {
			p.meet(t)
		}
		fill(r, p.topics.Outputs[o.Topic], o)
		p.cl.Produce(p.ctx, r, p.promise)
	}
	return p.Err()
}

func fill(r *kgo.Record, topic string, o *record.Output) {
	r.Topic, r.Partition = topic, o.Partition
	r.Key, r.Value = o.Key, o.Value
	r.Timestamp = time.UnixMilli(o.Timestamp)
	r.Headers = r.Headers[:0]
	for _, h := range o.Headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
}

// ProduceChanges is Produce for the changelogs. Their records carry the wall time: retention of compact,delete
// changelogs goes by it.
func (p *Producer) ProduceChanges(ctx context.Context, changes []statestore.Change) error {
	if err := p.ready(); err != nil {
		return err
	}
	now := time.Now()
	for i := range changes {
		ch := &changes[i]
		if uint(ch.Changelog) >= uint(len(p.topics.Changelogs)) {
			return fmt.Errorf("produce for subtask %s: changelog index %d, but there are %d changelogs", p.id, ch.Changelog, len(p.topics.Changelogs))
		}
		r, err := p.next(ctx, len(ch.Key)+len(ch.Value))
		if err != nil {
			return err
		}
		if t := p.changelogs[ch.Changelog]; t.state == unmet {
			p.meet(t)
		}
		r.Topic, r.Partition = p.topics.Changelogs[ch.Changelog], p.topics.ChangelogPartition
		r.Key, r.Value = ch.Key, ch.Value
		r.Timestamp = now
		r.Headers = r.Headers[:0]
		p.cl.Produce(p.ctx, r, p.promise)
	}
	return p.Err()
}

// ready begins a transaction if none is.
func (p *Producer) ready() error {
	if p.m.Phase() != PhaseOpen || p.closed {
		return fmt.Errorf("produce for subtask %s: its producer is done (%s): %w", p.id, p.m.Phase(), ErrClosed)
	}
	if p.begun {
		return nil
	}
	// The id is loaded since OpenProducer: this asks no broker.
	pid, pepoch, err := p.cl.ProducerID(p.ctx)
	if err != nil {
		return fmt.Errorf("begin transaction %s: %w", p.txnID, err)
	}
	p.pid, p.pepoch = pid, pepoch
	if p.checked != p.events.Load() {
		ctx, cancel := p.c.deadline(p.ctx)
		defer cancel()
		if err := p.heal(ctx); err != nil {
			return fmt.Errorf("begin transaction %s: %w", p.txnID, err)
		}
	}
	if err := p.cl.BeginTransaction(); err != nil {
		return fmt.Errorf("begin transaction %s: %w", p.txnID, err)
	}
	p.begun, p.offsetsAdded = true, false
	return nil
}

// next returns a record to fill, once there is room for size bytes.
func (p *Producer) next(ctx context.Context, size int) (*kgo.Record, error) {
	if p.records.Load() >= maxPendingRecords || p.bytes.Load() >= maxPendingBytes {
		if err := p.room(ctx); err != nil {
			return nil, err
		}
	}
	if p.slab == nil || p.used == slabSize {
		p.slab, p.used = p.takeSlab(), 0
	}
	r := &p.slab.records[p.used]
	p.used++
	p.records.Add(1)
	p.bytes.Add(int64(size))
	return r, nil
}

func (p *Producer) takeSlab() *slab {
	p.mu.Lock()
	defer p.mu.Unlock()
	var s *slab
	if n := len(p.free); n > 0 {
		s, p.free = p.free[n-1], p.free[:n-1]
	} else {
		s = &slab{Context: p.ctx}
		for i := range s.records {
			s.records[i].Context = s
		}
	}
	s.open.Store(slabSize)
	return s
}

// room waits until three quarters of the bounds are in use.
func (p *Producer) room(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.c.opts.TransactionTimeout)
	defer cancel()
	for p.records.Load() > maxPendingRecords*3/4 || p.bytes.Load() > maxPendingBytes*3/4 {
		p.mu.Lock()
		w := p.waiting
		if w == nil {
			w = make(chan struct{})
			p.waiting = w
		}
		p.wanted.Store(true)
		p.mu.Unlock()
		// Room may have come before the promise function could see us wait.
		if p.records.Load() <= maxPendingRecords*3/4 && p.bytes.Load() <= maxPendingBytes*3/4 {
			return nil
		}
		select {
		case <-w:
		case <-ctx.Done():
			return fmt.Errorf("produce for subtask %s: %d records (%d bytes) are not acknowledged: %w; are the brokers reachable, "+
				"and are enough replicas in sync?", p.id, p.records.Load(), p.bytes.Load(), ctx.Err())
		}
	}
	return nil
}

// acked is the promise of every record. kgo calls it from one goroutine at a time.
func (p *Producer) acked(r *kgo.Record, err error) {
	switch {
	case err == nil && (r.ProducerID != p.pid || r.ProducerEpoch != p.pepoch):
		err = fmt.Errorf("record on %s/%d was written under producer id %d epoch %d, the transaction began with %d epoch %d: %w",
			r.Topic, r.Partition, r.ProducerID, r.ProducerEpoch, p.pid, p.pepoch, kerr.InvalidProducerEpoch)
		fallthrough
	case err != nil:
		p.fail(fmt.Errorf("produce to %s/%d for subtask %s: %w", r.Topic, r.Partition, p.id, err))
	}
	records := p.records.Add(-1)
	bytes := p.bytes.Add(-int64(len(r.Key) + len(r.Value)))
	s, ok := r.Context.(*slab)
	r.Key, r.Value = nil, nil
	clear(r.Headers) // or they pin their values
	if ok && s.open.Add(-1) == 0 {
		p.mu.Lock()
		p.free = append(p.free, s)
		p.mu.Unlock()
	}
	if p.wanted.Load() && records <= maxPendingRecords*3/4 && bytes <= maxPendingBytes*3/4 {
		p.mu.Lock()
		p.wanted.Store(false)
		if p.waiting != nil {
			close(p.waiting)
			p.waiting = nil
		}
		p.mu.Unlock()
	}
}

func (p *Producer) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.firstErr == nil {
		if fencing(replyOf(err)) {
			err = fmt.Errorf("%w: %w", ErrFenced, err)
		}
		p.firstErr = err
	}
}

// Err is the first failure of a record, nil if there was none. After one the epoch cannot commit.
func (p *Producer) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.firstErr
}

// Commit ends the running epoch: epoch records last into each touched changelog, flush, the offsets with the member and
// generation that the session gives at that moment (own), EndTxn. wait returns when the session has a newer word than
// the given one (Group.WaitChange). See Machine for the rules.
//
// It takes no longer than Options.TransactionTimeout plus, for EndTxn, Options.RequestTimeout: EndTxn is not cut off by
// ctx, since then nobody would know the outcome. After any outcome but Committed the producer must be closed.
func (p *Producer) Commit(ctx context.Context, ec EpochCommit, own func() (Ownership, bool), wait func(ctx context.Context, since Ownership) error) CommitResult {
	start := time.Now()
	res := CommitResult{Positions: make([]int64, len(p.topics.Changelogs))}
	for i := range res.Positions {
		res.Positions[i] = -1
	}
	done := func(o Outcome, err error) CommitResult {
		res.Outcome, res.Took = o, time.Since(start)
		if o != Committed {
			if o == Fenced && !errors.Is(err, ErrFenced) {
				err = fmt.Errorf("%w: %w", ErrFenced, err)
			}
			res.Err = fmt.Errorf("commit epoch %d of subtask %s: %w", ec.Epoch, p.id, err)
		}
		return res
	}
	if err := p.checkCommit(ec); err != nil {
		return done(Aborted, err)
	}
	ctx, cancel := context.WithTimeout(ctx, p.c.opts.TransactionTimeout)
	defer cancel()
	if err := p.ready(); err != nil {
		return done(Aborted, err)
	}
	now := start
	for i, touched := range ec.Touched {
		if !touched {
			continue
		}
		if t := p.changelogs[i]; t.state == unmet {
			p.meet(t)
		}
		p.records.Add(1)
		p.bytes.Add(int64(len(metaKey) + len(ec.Record)))
		p.epoch[i] = kgo.Record{Topic: p.topics.Changelogs[i], Partition: p.topics.ChangelogPartition, Key: metaKey,
			Value: ec.Record, Timestamp: now}
		p.cl.Produce(p.ctx, &p.epoch[i], p.promise)
	}
	var (
		e     = Event{Kind: EventSeal}
		cause error // of the last event
	)
	for {
		act, err := p.m.Step(e)
		if err != nil {
			return done(p.m.Outcome(), err)
		}
		switch act.Kind {
		case ActFlush:
			cause = p.flush(ctx)
			if cause == nil {
				cause = p.positions(ec.Touched, res.Positions)
			}
			e = Event{Kind: EventFlushed, Reply: replyOf(cause)}
		case ActAsk:
			o, ok := own()
			e = Event{Kind: EventOwned, Own: o}
			if !ok {
				cause = errors.Join(ErrNotOwned, cause)
				e = Event{Kind: EventNotOwned}
			}
		case ActCommitOffsets:
			cause = p.commitOffsets(ctx, ec.Offsets, act.Own)
			if cause == nil {
				cause = failpoint.Hit(failpoint.AfterTxnOffsetCommit)
			}
			e = Event{Kind: EventOffsetsReply, Reply: replyOf(cause)}
		case ActWait:
			e = Event{Kind: EventWord}
			if err := wait(ctx, act.Own); err != nil {
				cause = fmt.Errorf("wait for the group's rebalance: %w (after %w)", err, cause)
				e = Event{Kind: EventDeadline}
			}
		case ActPause:
			e = Event{Kind: EventPaused}
			if err := pause(ctx, act.Try); err != nil {
				cause = fmt.Errorf("%w (after %d tries: %w)", err, act.Try, cause)
				e = Event{Kind: EventDeadline}
			}
		case ActEndTxn:
			cause = p.endTxn(ctx)
			if !fencing(replyOf(cause)) && failpoint.Planted(failpoint.UnknownIsCommitted) {
				cause = nil
			}
			e = Event{Kind: EventEndReply, Reply: replyOf(cause)}
		case ActProduce:
			p.begun = false
			return done(Committed, nil)
		case ActClose:
			if cause == nil {
				cause = ErrNotOwned
			}
			return done(p.m.Outcome(), cause)
		case ActInit: // a takeover's, and that is over
			return done(Aborted, &MachineError{p.m.Phase(), e, "a commit was answered with init"})
		}
	}
}

// CommitPart ends the running transaction as committed, with the changes that it holds and without epoch record and
// offsets: for what is written ahead of an incarnation's first epoch, which counts only with that one. own must say that
// the subtask is ours. After an error the producer must be closed; whether the part was committed may not be known.
func (p *Producer) CommitPart(ctx context.Context, own func() (Ownership, bool)) error {
	if !p.begun {
		return nil
	}
	fail := func(err error) error { return fmt.Errorf("commit a part for subtask %s: %w", p.id, err) }
	ctx, cancel := context.WithTimeout(ctx, p.c.opts.TransactionTimeout)
	defer cancel()
	if err := p.flush(ctx); err != nil {
		return fail(err)
	}
	if _, ok := own(); !ok {
		return fail(ErrNotOwned)
	}
	if err := p.endTxn(ctx); err != nil {
		return fail(err)
	}
	p.begun = false
	return nil
}

var metaKey = statestore.MetaKey()

// checkCommit refuses what must never reach a broker.
func (p *Producer) checkCommit(ec EpochCommit) error {
	if len(ec.Touched) != len(p.topics.Changelogs) || !slices.Contains(ec.Touched, true) {
		return fmt.Errorf("the epoch record must go to at least one of %d changelogs, touched are %v", len(p.topics.Changelogs), ec.Touched)
	}
	if len(ec.Offsets) == 0 {
		return errors.New("the epoch has no offsets: nothing would tell the group coordinator, and so a zombie, who owns the subtask")
	}
	for tp, offset := range ec.Offsets {
		if offset < 0 {
			return fmt.Errorf("offset of %s is %d", tp, offset)
		}
	}
	return nil
}

func (p *Producer) flush(ctx context.Context) error {
	if err := failpoint.Hit(failpoint.BeforeFlush); err != nil {
		return err
	}
	if err := p.cl.Flush(ctx); err != nil {
		if perr := p.Err(); perr != nil {
			return perr
		}
		return fmt.Errorf("flush: %d records are not acknowledged: %w", p.records.Load(), err)
	}
	if err := p.Err(); err != nil {
		return err
	}
	if err := p.sameTopics(ctx); err != nil {
		return err
	}
	return failpoint.Hit(failpoint.AfterFlush)
}

// positions reads where the epoch records went; their promises are back.
func (p *Producer) positions(touched []bool, into []int64) error {
	for i, t := range touched {
		if !t {
			continue
		}
		if p.epoch[i].Offset < 0 {
			// The broker recognized a second try of a batch and no longer knew where the first one went.
			return fmt.Errorf("the broker did not tell the offset of the epoch record on %s/%d", p.topics.Changelogs[i], p.topics.ChangelogPartition)
		}
		into[i] = p.epoch[i].Offset + 1
	}
	return nil
}

// commitOffsets sends the offsets into the transaction. The returned error carries the most severe code of all
// partitions.
func (p *Producer) commitOffsets(ctx context.Context, offsets map[record.TopicPartition]int64, own Ownership) error {
	ctx, cancel := p.c.deadline(ctx)
	defer cancel()
	if err := p.loadTopicIDs(ctx, offsets); err != nil {
		return err
	}
	if p.c.features.TransactionVersion < 2 && !p.offsetsAdded {
		req := kmsg.NewPtrAddOffsetsToTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = p.txnID, p.pid, p.pepoch, p.c.opts.AppID
		resp, err := req.RequestWith(ctx, p.cl)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if err != nil {
			return fmt.Errorf("add offsets of group %s to transaction %s: %w", p.c.opts.AppID, p.txnID, err)
		}
		p.offsetsAdded = true
	}
	if failpoint.Planted(failpoint.OffsetsOutside) {
		return p.offsetsOutside(ctx, offsets, own)
	}
	if failpoint.Planted(failpoint.UnfencedZombie) {
		own = Ownership{Generation: -1}
	}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = p.txnID, p.pid, p.pepoch, p.c.opts.AppID
	req.MemberID, req.Generation = own.MemberID, own.Generation
	if own.InstanceID != "" {
		req.InstanceID = kmsg.StringPtr(own.InstanceID)
	}
	byTopic := map[string]int{}
	for tp, offset := range offsets {
		i, ok := byTopic[tp.Topic]
		if !ok {
			i = len(req.Topics)
			byTopic[tp.Topic] = i
			t := kmsg.NewTxnOffsetCommitRequestTopic()
			// Version 6 sends the id, older ones the name.
			t.Topic, t.TopicID = tp.Topic, p.ids[tp.Topic]
			req.Topics = append(req.Topics, t)
		}
		rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset = tp.Partition, offset
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
	}
	resp, err := req.RequestWith(ctx, p.cl)
	if err != nil {
		return fmt.Errorf("commit offsets of group %s in transaction %s: %w", p.c.opts.AppID, p.txnID, err)
	}
	var worst error
	answered := 0
	for _, t := range resp.Topics {
		for _, rp := range t.Partitions {
			answered++
			if err := kerr.ErrorForCode(rp.ErrorCode); err != nil && severity(err) > severity(worst) {
				name := t.Topic
				for topic, id := range p.ids {
					if name == "" && id == t.TopicID {
						name = topic
					}
				}
				worst = fmt.Errorf("commit offset of %s/%d of group %s as member %s generation %d in transaction %s: %w", name, rp.Partition,
					p.c.opts.AppID, own.MemberID, own.Generation, p.txnID, err)
			}
		}
	}
	if worst == nil && answered != len(offsets) {
		return fmt.Errorf("commit offsets of group %s in transaction %s: the coordinator answered for %d of %d partitions", p.c.opts.AppID,
			p.txnID, answered, len(offsets))
	}
	return worst
}

// severity orders answers: what ends the epoch counts more than what may heal.
func severity(err error) int {
	if err == nil {
		return 0
	}
	r := replyOf(err)
	switch {
	case fencing(r):
		return 4
	case generationMoved(r):
		return 2
	case retriable(r):
		return 1
	default:
		return 3
	}
}

// loadTopicIDs asks for the ids of topics not seen before. They are kept for the life of the producer: a topic deleted
// and created again must not get offsets of the old one.
func (p *Producer) loadTopicIDs(ctx context.Context, offsets map[record.TopicPartition]int64) error {
	var names []string
	for tp := range offsets {
		if _, ok := p.ids[tp.Topic]; !ok && !slices.Contains(names, tp.Topic) {
			names = append(names, tp.Topic)
		}
	}
	if len(names) == 0 {
		return nil
	}
	infos, err := p.c.topicIDs(ctx, names)
	if err != nil {
		return err
	}
	for _, name := range names {
		info, ok := infos[name]
		if !ok {
			return fmt.Errorf("commit offsets of topic %s: %w", name, kerr.UnknownTopicOrPartition)
		}
		p.ids[name] = info.ID
	}
	return nil
}

// endTxn commits. kgo retries within the deadline while the answer is that the transaction is busy or the coordinator
// moves; a commit that it sends again is answered as the first would have been.
func (p *Producer) endTxn(ctx context.Context) error {
	if err := failpoint.Hit(failpoint.BeforeEndTxn); err != nil {
		return fmt.Errorf("%w: %w", kerr.OperationNotAttempted, err)
	}
	ctx, cancel := p.c.deadline(context.WithoutCancel(ctx))
	defer cancel()
	if err := commitTransaction(ctx, p.cl); err != nil {
		return fmt.Errorf("end transaction %s: %w", p.txnID, err)
	}
	return failpoint.Hit(failpoint.AfterEndTxn)
}

// commitTransaction ends the transaction of a client as committed. All its records must be acknowledged.
//
// kgo (1.22.3) hands the first records for a topic to the brokers before it stores what it knows of the topic, and
// EndTransaction takes a transaction with no partition that it knows for an empty one: it sends an abort, or below
// transaction.version 2 nothing, and returns nil. So it must not be called before the topics are stored.
// AbortBufferedRecords waits for that: nothing is buffered, but it takes the lock under which a topic's first records are
// handed on and the topic is stored.
func commitTransaction(ctx context.Context, cl *kgo.Client) error {
	if err := cl.AbortBufferedRecords(ctx); err != nil {
		return fmt.Errorf("%w: %w", kerr.OperationNotAttempted, err)
	}
	return cl.EndTransaction(ctx, kgo.TryCommit)
}

// Close drops the producer and whatever is in flight. It does not end the transaction: the successor's InitProducerID
// aborts it, at once. It does not wait for brokers.
func (p *Producer) Close() {
	if p.closed {
		return
	}
	p.closed = true
	p.cancel()
	if p.cl != nil {
		p.cl.Close()
	}
}
