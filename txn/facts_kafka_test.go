package txn

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/test/kafka"
)

// TestKafkaFacts pins what Millrace builds upon and what Kafka's documentation does not promise, so that a broker or a
// client library that behaves otherwise is noticed here and not in somebody's output. Requests are made by hand; our own
// code takes part only where a fact is about what it sends. Each fact says which part of Millrace relies on it.
func TestKafkaFacts(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three brokers")
	}
	for _, c := range []struct {
		name  string
		start func(t *testing.T) *kafka.Broker
		txnv  int
	}{
		{"4.4", func(t *testing.T) *kafka.Broker { return kafka.Shared(t) }, 2},
		{"4.4 transaction.version=1", func(t *testing.T) *kafka.Broker { return kafka.Start(t, kafka.TransactionVersion1()) }, 1},
		{"3.9", func(t *testing.T) *kafka.Broker { return kafka.Start(t, kafka.Version39()) }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := c.start(t)
			for name, fact := range map[string]func(*testing.T, *facts){
				"Features":                   factFeatures,
				"GenerationMoves":            factGenerationMoves,
				"NoMemberIsTakenFromAnyone":  factNoMember,
				"PlainCommitGoesBackwards":   factPlainCommit,
				"StableAfterEndTxn":          factStableAfterEndTxn,
				"EmptyTransactionIsNotEnded": factEmptyTransaction,
				"TopicIDsOrNames":            factTopicIDs,
				"OffsetsAreAdded":            factOffsetsAdded,
				"EpochAfterCommit":           factEpochAfterCommit,
				"InitAbortsAtOnce":           factInitAborts,
				"StaticMemberReturns":        factStaticMember,
				"PausedIsThrownAway":         factPaused,
			} {
				if name == "TopicIDsOrNames" && c.txnv < 2 {
					continue // we stay below the versions with ids there
				}
				t.Run(name, func(t *testing.T) { fact(t, newFacts(t, b, c.txnv)) })
			}
		})
	}
}

// facts is a group with one topic of two partitions on a broker, for one fact.
type facts struct {
	t            *testing.T
	b            *kafka.Broker
	txnv         int
	group, topic string
	topicID      [16]byte
	cl           *kgo.Client // for requests that carry their own versions
}

func newFacts(t *testing.T, b *kafka.Broker, txnv int) *facts {
	t.Helper()
	f := &facts{t: t, b: b, txnv: txnv, group: kafka.RandomName("facts"), topic: b.CreateTopic(t, 2, nil)}
	v := kversion.Stable()
	v.SetMaxKeyVersion(kmsg.OffsetFetch.Int16(), 9)  // the last one with names
	v.SetMaxKeyVersion(kmsg.OffsetCommit.Int16(), 9) // the last one with names
	f.cl = b.Client(t, kgo.MaxVersions(v))
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = kmsg.StringPtr(f.topic)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(t.Context(), f.cl)
	if err != nil || len(resp.Topics) != 1 || resp.Topics[0].TopicID == [16]byte{} {
		t.Fatalf("metadata of %s: %+v, %v", f.topic, resp, err)
	}
	f.topicID = resp.Topics[0].TopicID
	return f
}

// pinned is a client that sends no later version of a request than this.
func (f *facts) pinned(key kmsg.Key, version int16) *kgo.Client {
	v := kversion.Stable()
	v.SetMaxKeyVersion(key.Int16(), version)
	return f.b.Client(f.t, kgo.MaxVersions(v))
}

// txnVersion is the version of TxnOffsetCommit that belongs to the broker's transaction.version.
func (f *facts) txnVersion() int16 {
	if f.txnv < 2 {
		return 4
	}
	return 5
}

// writer is a transactional producer of the library.
type writer struct {
	f  *facts
	id string
	cl *kgo.Client
}

func (f *facts) writer(id string, opts ...kgo.Opt) *writer {
	f.t.Helper()
	cl := f.b.Client(f.t, append(opts, kgo.TransactionalID(f.group+id), kgo.TransactionTimeout(10*time.Minute), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	w := &writer{f: f, id: f.group + id, cl: cl}
	w.pid()
	return w
}

// pid is the producer id and epoch; the first call sends InitProducerID.
func (w *writer) pid() (int64, int16) {
	w.f.t.Helper()
	id, epoch, err := w.cl.ProducerID(w.f.t.Context())
	if err != nil {
		w.f.t.Fatalf("producer id of %s: %v", w.id, err)
	}
	return id, epoch
}

// begin begins a transaction with one record in partition 0 at the broker.
func (w *writer) begin(value string) {
	w.f.t.Helper()
	if err := w.cl.BeginTransaction(); err != nil {
		w.f.t.Fatal(err)
	}
	w.write(value)
}

func (w *writer) write(value string) {
	w.f.t.Helper()
	if err := w.cl.ProduceSync(w.f.t.Context(), &kgo.Record{Topic: w.f.topic, Value: []byte(value)}).FirstErr(); err != nil {
		w.f.t.Fatalf("produce %s: %v", value, err)
	}
}

func (w *writer) commit() {
	w.f.t.Helper()
	if err := w.cl.EndTransaction(w.f.t.Context(), kgo.TryCommit); err != nil {
		w.f.t.Fatalf("end transaction: %v", err)
	}
}

// addOffsets sends AddOffsetsToTxn.
func (w *writer) addOffsets() {
	w.f.t.Helper()
	req := kmsg.NewPtrAddOffsetsToTxnRequest()
	req.TransactionalID, req.Group = w.id, w.f.group
	req.ProducerID, req.ProducerEpoch = w.pid()
	resp, err := req.RequestWith(w.f.t.Context(), w.f.cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		w.f.t.Fatalf("add offsets to transaction: %v", err)
	}
}

// offsetRequest commits offset of partition 0 in the writer's transaction.
func (w *writer) offsetRequest(own Ownership, offset int64) *kmsg.TxnOffsetCommitRequest {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group = w.id, w.f.group
	req.ProducerID, req.ProducerEpoch = w.pid()
	req.MemberID, req.Generation = own.MemberID, own.Generation
	if own.InstanceID != "" {
		req.InstanceID = kmsg.StringPtr(own.InstanceID)
	}
	rt := kmsg.NewTxnOffsetCommitRequestTopic()
	rt.Topic, rt.TopicID = w.f.topic, w.f.topicID
	rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	rp.Offset = offset
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

// sendOffsets sends it as the version that is usual on this broker and returns the broker's answer.
func (w *writer) sendOffsets(own Ownership, offset int64) error {
	w.f.t.Helper()
	_, err := w.send(w.offsetRequest(own, offset), w.f.txnVersion())
	return err
}

func (w *writer) send(req *kmsg.TxnOffsetCommitRequest, version int16) (*kmsg.TxnOffsetCommitResponse, error) {
	w.f.t.Helper()
	resp, err := req.RequestWith(w.f.t.Context(), w.f.pinned(kmsg.TxnOffsetCommit, version))
	if err != nil {
		w.f.t.Fatalf("commit offsets in transaction %s: %v", w.id, err)
	}
	if req.GetVersion() != version {
		w.f.t.Fatalf("TxnOffsetCommit went out as version %d, want %d", req.GetVersion(), version)
	}
	return resp, kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}

// fetchOffset asks for the group's offset of partition 0 once; -1 = none.
func (f *facts) fetchOffset(requireStable bool) (int64, error) {
	f.t.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	req.RequireStable = requireStable
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = f.group
	gt := kmsg.NewOffsetFetchRequestGroupTopic()
	gt.Topic, gt.Partitions = f.topic, []int32{0}
	g.Topics = append(g.Topics, gt)
	req.Groups = append(req.Groups, g)
	resp, err := req.RequestWith(f.t.Context(), f.cl)
	if err != nil {
		f.t.Fatal(err)
	}
	rg := resp.Groups[0]
	if err := kerr.ErrorForCode(rg.ErrorCode); err != nil {
		return 0, err
	}
	p := rg.Topics[0].Partitions[0]
	return p.Offset, kerr.ErrorForCode(p.ErrorCode)
}

// seat is a member of the group that does only what it is told.
type seat struct {
	f      *facts
	cl     *kgo.Client // its own: a JoinGroup that waits holds up the connection
	own    Ownership
	leader bool
}

// joinGroup joins and, once the others have joined too, knows its generation. It does not sync.
func (s *seat) joinGroup(ctx context.Context) error {
	for {
		req := kmsg.NewPtrJoinGroupRequest()
		req.Group, req.MemberID, req.ProtocolType = s.f.group, s.own.MemberID, "consumer"
		req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 120_000, 120_000
		if s.own.InstanceID != "" {
			req.InstanceID = kmsg.StringPtr(s.own.InstanceID)
		}
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name = "facts"
		req.Protocols = append(req.Protocols, p)
		resp, err := req.RequestWith(ctx, s.cl)
		if err != nil {
			return err
		}
		err = kerr.ErrorForCode(resp.ErrorCode)
		if errors.Is(err, kerr.MemberIDRequired) {
			s.own.MemberID = resp.MemberID
			continue
		}
		s.own.MemberID, s.own.Generation, s.leader = resp.MemberID, resp.Generation, resp.LeaderID == resp.MemberID
		return err
	}
}

func (s *seat) syncGroup(ctx context.Context) error {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.MemberID, req.Generation = s.f.group, s.own.MemberID, s.own.Generation
	if s.own.InstanceID != "" {
		req.InstanceID = kmsg.StringPtr(s.own.InstanceID)
	}
	req.ProtocolType, req.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr("facts")
	resp, err := req.RequestWith(ctx, s.cl)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}

func (s *seat) heartbeat() error {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = s.f.group, s.own.MemberID, s.own.Generation
	if s.own.InstanceID != "" {
		req.InstanceID = kmsg.StringPtr(s.own.InstanceID)
	}
	resp, err := req.RequestWith(s.f.t.Context(), s.f.cl)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}

// seats makes a stable group of members with these instance ids ("" = dynamic).
func (f *facts) seats(instances ...string) []*seat {
	f.t.Helper()
	var all []*seat
	for _, instance := range instances {
		s := f.seat(instance)
		all = append(all, s)
		f.rebalance(all, s)
		f.settle(all)
	}
	return all
}

func (f *facts) seat(instance string) *seat {
	return &seat{f: f, cl: f.b.Client(f.t), own: Ownership{InstanceID: instance}}
}

// rebalance lets newcomer join and then the others, so that all have the next generation and none has synced. It calls
// preparing when the newcomer waits for the others.
func (f *facts) rebalance(all []*seat, newcomer *seat, preparing ...func()) {
	f.t.Helper()
	results := make(chan error, len(all))
	go func() { results <- newcomer.joinGroup(f.t.Context()) }()
	for _, s := range all {
		if s == newcomer {
			continue
		}
		testutil.Eventually(f.t, patience, func() error {
			if err := s.heartbeat(); !errors.Is(err, kerr.RebalanceInProgress) {
				return fmt.Errorf("the answer to a heartbeat is %q, want REBALANCE_IN_PROGRESS", fmt.Sprint(err))
			}
			return nil
		})
	}
	for _, fn := range preparing {
		fn()
	}
	for _, s := range all {
		if s != newcomer {
			go func() { results <- s.joinGroup(f.t.Context()) }()
		}
	}
	for range all {
		if err := <-results; err != nil {
			f.t.Fatalf("join: %v", err)
		}
	}
}

// settle syncs all members: the group is stable.
func (f *facts) settle(all []*seat) {
	f.t.Helper()
	results := make(chan error, len(all))
	for _, s := range all {
		go func() { results <- s.syncGroup(f.t.Context()) }()
	}
	for range all {
		if err := <-results; err != nil {
			f.t.Fatalf("sync: %v", err)
		}
	}
}

// factFeatures: the finalized feature transaction.version and the request versions tell how a broker wants transactions.
// Relies on it: Cluster.Features, and with it the producer's choice between implicit offsets and AddOffsetsToTxn.
func factFeatures(t *testing.T, f *facts) {
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(t.Context(), f.cl)
	if err != nil {
		t.Fatal(err)
	}
	level, versions := int16(0), map[kmsg.Key]int16{}
	for _, ff := range resp.FinalizedFeatures {
		if ff.Name == "transaction.version" {
			level = ff.MaxVersionLevel
		}
	}
	for _, k := range resp.ApiKeys {
		versions[kmsg.Key(k.ApiKey)] = k.MaxVersion
	}
	if int(level) != f.txnv {
		t.Errorf("finalized transaction.version is %d, want %d", level, f.txnv)
	}
	// The versions alone do not tell: they are the same whatever the feature is.
	offsets, end := versions[kmsg.TxnOffsetCommit], versions[kmsg.EndTxn]
	if old := f.txnv == 0; old && (offsets != 4 || end != 4) || !old && (offsets < 6 || end < 5) {
		t.Errorf("TxnOffsetCommit up to version %d, EndTxn up to %d", offsets, end)
	}
	if got := connect(t, f.b.Brokers(), nil).Features(); got.TransactionVersion != f.txnv {
		t.Errorf("we take it for %+v", got)
	}
}

// factGenerationMoves: TxnOffsetCommit takes the generation that the coordinator has: the old one until all members have
// joined, the next one from then on, even before they have synced. After a refusal the same transaction goes on with
// the next generation. Relies on it: Machine (ILLEGAL_GENERATION is waited out, not an abort), Group (commits of what is
// revoked), GroupHandler.Revoked.
func factGenerationMoves(t *testing.T, f *facts) {
	first := f.seats("")[0]
	w := f.writer("-p")
	w.begin("a")
	if f.txnv < 2 {
		w.addOffsets()
	}
	was := first.own
	second := f.seat("")
	f.rebalance([]*seat{first, second}, second, func() {
		wantErr(t, "the others are joining, old generation", w.sendOffsets(was, 11), nil)
	})
	wantErr(t, "all have joined, old generation", w.sendOffsets(was, 12), kerr.IllegalGeneration)
	wantErr(t, "all have joined, new generation", w.sendOffsets(first.own, 13), nil)
	f.settle([]*seat{first, second})
	wantErr(t, "stable, old generation", w.sendOffsets(was, 14), kerr.IllegalGeneration)
	wantErr(t, "stable, new generation", w.sendOffsets(first.own, 20), nil)
	w.commit()
	f.wantStable(20)
	for _, err := range []*kerr.Error{kerr.IllegalGeneration, kerr.RebalanceInProgress} {
		if !generationMoved(replyOf(err)) {
			t.Errorf("the commit machine does not wait after %s", err.Message)
		}
	}
}

// factNoMember: an empty member id with generation -1 commits offsets of a group that has members, from anyone; half of
// that is refused. Relies on it: Machine, which never sends it (TestMachineInvariants asserts that for all inputs).
func factNoMember(t *testing.T, f *facts) {
	m := f.seats("")[0].own
	w := f.writer("-p")
	w.begin("a")
	if f.txnv < 2 {
		w.addOffsets()
	}
	wantErr(t, "no member, no generation", w.sendOffsets(Ownership{Generation: -1}, 7), nil)
	wantErr(t, "member, no generation", w.sendOffsets(Ownership{MemberID: m.MemberID, Generation: -1}, 8), kerr.IllegalGeneration)
	wantErr(t, "no member, generation", w.sendOffsets(Ownership{Generation: m.Generation}, 9), kerr.UnknownMemberID)
	wantErr(t, "another member", w.sendOffsets(Ownership{MemberID: "nobody", Generation: m.Generation}, 10), kerr.UnknownMemberID)
	w.commit()
	f.wantStable(7)
	for _, own := range []Ownership{{Generation: -1}, {MemberID: "m", Generation: -1}, {Generation: 1}} {
		machine := NewMachine()
		if act, err := machine.Step(Event{Kind: EventOwned, Own: own}); err == nil || act.Kind != ActClose {
			t.Errorf("the commit machine takes %+v: %s, %v", own, act.Kind, err)
		}
	}
}

// factPlainCommit: with a plain OffsetCommit a member moves another member's partition backwards. Relies on it: nothing;
// it is why there is no OffsetCommit anywhere in Millrace (Group), and why TxnOffsetCommit goes out only for partitions that
// the session says are ours.
func factPlainCommit(t *testing.T, f *facts) {
	all := f.seats("", "")
	commit := func(s *seat, offset int64) error {
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Group, req.MemberID, req.Generation = f.group, s.own.MemberID, s.own.Generation
		rt := kmsg.NewOffsetCommitRequestTopic()
		rt.Topic = f.topic
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Offset = offset
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		resp, err := req.RequestWith(t.Context(), f.cl)
		if err != nil {
			t.Fatal(err)
		}
		return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	wantErr(t, "first member", commit(all[0], 10), nil)
	f.wantStable(10)
	wantErr(t, "second member", commit(all[1], 3), nil)
	f.wantStable(3)
}

// factStableAfterEndTxn: when EndTxn has returned, a stable OffsetFetch answers with the new offset or with
// UNSTABLE_OFFSET_COMMIT, never with the one before; the last stable offset may lag for a while, and comes. Relies on it:
// Cluster.CommittedOffsets (waits while UNSTABLE), ReadChangelog (reads to the high watermark, not to the last stable offset).
func factStableAfterEndTxn(t *testing.T, f *facts) {
	own := f.seats("")[0].own
	w := f.writer("-p")
	c := connect(t, f.b.Brokers(), nil)
	tps := []record.TopicPartition{{Topic: f.topic}}
	unstable, behind := 0, 0
	const rounds = 25
	for i := range int64(rounds) {
		w.begin("a")
		if f.txnv < 2 {
			w.addOffsets()
		}
		if err := w.sendOffsets(own, i+1); err != nil {
			t.Fatal(err)
		}
		w.commit()
		stable, err := c.StableOffsets(t.Context(), tps)
		if err != nil {
			t.Fatal(err)
		}
		if stable[tps[0]] < 2*(i+1) {
			behind++
		}
		if _, err := f.fetchOffset(true); err != nil {
			unstable++
		}
		f.wantStable(i + 1)
	}
	testutil.Eventually(t, patience, func() error {
		stable, err := c.StableOffsets(t.Context(), tps)
		if err == nil && stable[tps[0]] != 2*rounds {
			err = fmt.Errorf("last stable offset %d, want %d: a record and a marker of each transaction", stable[tps[0]], 2*rounds)
		}
		return err
	})
	t.Logf("after %d of %d EndTxn the offsets were unstable, after %d the last stable offset was behind", unstable, rounds, behind)
}

// factEmptyTransaction: the client library ends a transaction without produced records by doing nothing, offsets or
// not: no error, nothing committed, and the offsets stay undecided. Relies on it: Producer.Commit, which puts at least the
// epoch record into every transaction (TestCommitRefusesNonsense: an epoch that touches no changelog is refused).
func factEmptyTransaction(t *testing.T, f *facts) {
	own := f.seats("")[0].own
	sent := &sentRequests{}
	w := f.writer("-p", kgo.WithHooks(sent))
	if err := w.cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if f.txnv < 2 {
		w.addOffsets()
	}
	wantErr(t, "offsets", w.sendOffsets(own, 7), nil)
	w.commit()
	if n := sent.endTxn.Load(); n != 0 {
		t.Errorf("%d EndTxn were sent", n)
	}
	if _, err := f.fetchOffset(true); !errors.Is(err, kerr.UnstableOffsetCommit) {
		t.Errorf("offsets of the transaction that was not ended: %v", err)
	}
	f.writer("-p") // its successor aborts it
	f.wantStable(-1)

	w = f.writer("-p", kgo.WithHooks(sent))
	w.begin("a")
	w.commit()
	if n := sent.endTxn.Load(); n != 1 {
		t.Errorf("%d EndTxn were sent of a transaction with a record", n)
	}
}

// sentRequests counts what a client writes.
type sentRequests struct{ endTxn atomic.Int64 }

func (s *sentRequests) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key == kmsg.EndTxn.Int16() {
		s.endTxn.Add(1)
	}
}

// factTopicIDs: from version 6 on TxnOffsetCommit names topics by id alone, before by name alone; an id that is no
// topic's is refused. Relies on it: Producer.commitOffsets, which fills in both, and the promise that no offset of a deleted
// topic is committed to one of the same name.
func factTopicIDs(t *testing.T, f *facts) {
	own := f.seats("")[0].own
	w := f.writer("-p")
	w.begin("a")
	byName := w.offsetRequest(own, 5)
	byName.Topics[0].TopicID = [16]byte{}
	resp, err := w.send(byName, 5)
	wantErr(t, "name, version 5", err, nil)
	if got := resp.Topics[0]; got.Topic != f.topic || got.TopicID != [16]byte{} {
		t.Errorf("version 5 answers for topic %q id %x", got.Topic, got.TopicID)
	}
	byID := w.offsetRequest(own, 6)
	byID.Topics[0].Topic = ""
	resp, err = w.send(byID, 6)
	wantErr(t, "id, version 6", err, nil)
	if got := resp.Topics[0]; got.Topic != "" || got.TopicID != f.topicID {
		t.Errorf("version 6 answers for topic %q id %x", got.Topic, got.TopicID)
	}
	gone := w.offsetRequest(own, 7)
	gone.Topics[0].TopicID[15]++
	_, err = w.send(gone, 6)
	wantErr(t, "the right name with the id of no topic, version 6", err, kerr.UnknownTopicID)
	w.commit()
	f.wantStable(6)
}

// factOffsetsAdded: under transaction.version 2 TxnOffsetCommit adds the group to the transaction; in the versions that
// belong to older ones AddOffsetsToTxn must come first, and its absence ends the transaction. Relies on it:
// Producer.commitOffsets, and the version pins of its client.
func factOffsetsAdded(t *testing.T, f *facts) {
	own := f.seats("")[0].own
	if f.txnv >= 2 {
		w := f.writer("-implicit")
		w.begin("a")
		_, err := w.send(w.offsetRequest(own, 3), 5)
		wantErr(t, "version 5 alone", err, nil)
		w.commit()
		f.wantStable(3)
	}
	for version, want := range map[int16]*kerr.Error{3: kerr.InvalidTxnState, 4: kerr.TransactionAbortable} {
		w := f.writer(fmt.Sprint("-v", version))
		w.begin("a")
		_, err := w.send(w.offsetRequest(own, 5), version)
		wantErr(t, fmt.Sprintf("version %d alone", version), err, want)
		if retriable(replyOf(want)) || generationMoved(replyOf(want)) {
			t.Errorf("the commit machine would try again after %s", want.Message)
		}
		w.addOffsets()
		_, err = w.send(w.offsetRequest(own, int64(10+version)), version)
		wantErr(t, fmt.Sprintf("version %d after AddOffsetsToTxn", version), err, nil)
		w.commit()
		f.wantStable(int64(10 + version))
	}
}

// factEpochAfterCommit: under transaction.version 2 the producer epoch moves with every commit, below it does not.
// Relies on it: nothing may take producer epochs for an order (EpochRecord has an epoch of its own), and Producer.ready reads
// id and epoch anew for every transaction.
func factEpochAfterCommit(t *testing.T, f *facts) {
	w := f.writer("-p")
	id, epoch := w.pid()
	for i := range int16(3) {
		w.begin("a")
		w.commit()
		nowID, now := w.pid()
		want := epoch
		if f.txnv >= 2 {
			want += i + 1
		}
		if nowID != id || now != want {
			t.Errorf("after %d commits: producer %d epoch %d, want %d epoch %d", i+1, nowID, now, id, want)
		}
	}
}

// factInitAborts: InitProducerID of a successor aborts the open transaction of its predecessor at once: a read_committed
// reader that stood before it goes on, long before the transaction's time-out (ten minutes here). Relies on it: the whole
// takeover (OpenProducer, subtask.fenceEarly): downstream does not stand still for a time-out when a worker dies.
func factInitAborts(t *testing.T, f *facts) {
	f.b.Produce(t, &kgo.Record{Topic: f.topic, Key: []byte("before"), Partition: 0, Value: []byte("before")})
	dead := f.writer("-p")
	dead.begin("lost")
	reader := f.b.Client(t, kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		f.topic: {0: kgo.NewOffset().AtStart()}}))
	c := connect(t, f.b.Brokers(), nil)
	tps := []record.TopicPartition{{Topic: f.topic}}
	stable, err := c.StableOffsets(t.Context(), tps)
	if err != nil {
		t.Fatal(err)
	}
	end, err := c.EndOffsets(t.Context(), tps)
	if err != nil {
		t.Fatal(err)
	}
	if stable[tps[0]] >= end[tps[0]] {
		t.Fatalf("last stable offset %d, high watermark %d: no open transaction", stable[tps[0]], end[tps[0]])
	}
	next := f.writer("-p")
	next.begin("kept")
	next.commit()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		fs := reader.PollRecords(ctx, 1)
		if err := fs.Err0(); err != nil {
			t.Fatalf("the reader does not come by the transaction of the dead producer: %v", err)
		}
		if fs.NumRecords() == 0 {
			continue
		}
		switch v := string(fs.Records()[0].Value); v {
		case "before":
			continue
		case "kept":
		default:
			t.Errorf("a read_committed reader got %q", v)
		}
		break
	}
	if err := dead.cl.ProduceSync(t.Context(), &kgo.Record{Topic: f.topic, Value: []byte("zombie")}).FirstErr(); !fencing(replyOf(err)) {
		t.Errorf("the predecessor writes on: %v, want an answer that we take for a fence", err)
	}
}

// factStaticMember: a static member that was killed and comes back within its session gets a new member id, the same
// generation and the same place, and nobody else notices; the old member id is fenced. Relies on it: group.static, the
// restart within two seconds, Group.Join.
func factStaticMember(t *testing.T, f *facts) {
	all := f.seats("i1", "i2")
	killed, other := all[0], all[1]
	again := f.seat("i1")
	if err := again.joinGroup(t.Context()); err != nil {
		t.Fatal(err)
	}
	if again.own.MemberID == killed.own.MemberID || again.own.Generation != killed.own.Generation || again.leader != killed.leader {
		t.Errorf("was %+v (leader %v), is %+v (leader %v)", killed.own, killed.leader, again.own, again.leader)
	}
	wantErr(t, "sync", again.syncGroup(t.Context()), nil)
	wantErr(t, "heartbeat of the other member", other.heartbeat(), nil)
	wantErr(t, "heartbeat of the member that came back", again.heartbeat(), nil)
	w := f.writer("-p")
	w.begin("a")
	if f.txnv < 2 {
		w.addOffsets()
	}
	err := w.sendOffsets(killed.own, 3)
	wantErr(t, "offsets as the killed member", err, kerr.FencedInstanceID)
	if !IsNotMember(err) {
		t.Errorf("%v is not taken for the word that we are no member", err)
	}
	wantErr(t, "offsets as the member that came back", w.sendOffsets(again.own, 4), nil)
	w.commit()
	f.wantStable(4)
}

// factPaused: the client library throws away what it has fetched of a partition that is paused, and fetches it again,
// from the same position, after Resume. Relies on it: Consumer.Pause: nothing more reaches the inbox of a subtask that is
// behind, and nothing is lost. The engine pauses with hysteresis, since it costs a fetch.
func factPaused(t *testing.T, f *facts) {
	cl := f.b.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := range int32(40) {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: f.topic, Partition: i % 2, Value: []byte("v")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	k := f.b.Client(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{f.topic: {0: kgo.NewOffset().At(0), 1: kgo.NewOffset().At(0)}}))
	testutil.Eventually(t, patience, func() error {
		if n := k.BufferedFetchRecords(); n != 40 {
			return fmt.Errorf("%d records are buffered", n)
		}
		return nil
	})
	k.PauseFetchPartitions(map[string][]int32{f.topic: {0}})
	var got [2][]int64
	poll := func(partition, until int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for len(got[partition]) < until {
			fs := k.PollFetches(ctx)
			if err := fs.Err0(); err != nil {
				t.Fatalf("partition %d has %d records of %d: %v", partition, len(got[partition]), until, err)
			}
			fs.EachRecord(func(r *kgo.Record) { got[r.Partition] = append(got[r.Partition], r.Offset) })
		}
	}
	poll(1, 20)
	if len(got[0]) > 0 || k.BufferedFetchRecords() > 0 {
		t.Errorf("%d records of the paused partition came, %d are still buffered", len(got[0]), k.BufferedFetchRecords())
	}
	k.ResumeFetchPartitions(map[string][]int32{f.topic: {0}})
	poll(0, 20)
	for i, offset := range got[0] {
		if offset != int64(i) {
			t.Fatalf("offsets after the pause: %v", got[0])
		}
	}
}

func wantErr(t *testing.T, what string, err error, want error) {
	t.Helper()
	if want == nil && err != nil || want != nil && !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// wantStable waits for a stable answer, which must be this offset.
func (f *facts) wantStable(want int64) {
	f.t.Helper()
	var got int64
	testutil.Eventually(f.t, patience, func() error {
		var err error
		if got, err = f.fetchOffset(true); err != nil && !errors.Is(err, kerr.UnstableOffsetCommit) {
			f.t.Fatal(err)
		}
		return err
	})
	if got != want {
		f.t.Errorf("the first stable answer is offset %d, want %d", got, want)
	}
}
