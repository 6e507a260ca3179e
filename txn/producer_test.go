package txn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/millrace-stream/millrace/internal/failpoint"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/statestore"
)

// rig is an app with one subtask on a cluster, and a real member of its group.
type rig struct {
	t         *testing.T
	brokers   []string
	c         *Cluster
	app       string
	in, out   string
	changelog []string
	member    *kgo.Client
}

var rigs atomic.Int64

// newRig connects (by way of edit's dialer, if any), makes topics and joins the group.
func newRig(t *testing.T, brokers []string, edit func(*Options)) *rig {
	t.Helper()
	app := fmt.Sprintf("app%d-%d", time.Now().UnixNano()%1e9, rigs.Add(1))
	r := &rig{t: t, brokers: brokers, app: app, in: app + "-in", out: app + "-out",
		changelog: []string{app + "-0-changelog", app + "-0-expiring"}}
	r.c = connect(t, brokers, func(o *Options) {
		o.AppID = app
		if edit != nil {
			edit(o)
		}
	})
	plain := connect(t, brokers, func(o *Options) { o.AppID = app })
	if _, err := plain.EnsureTopics(t.Context(), []TopicSpec{
		{Name: r.in, Partitions: 2, ReplicationFactor: 1},
		{Name: r.out, Partitions: 2, ReplicationFactor: 1},
		{Name: r.changelog[0], Partitions: 1, ReplicationFactor: 1, Configs: map[string]string{"cleanup.policy": "compact"}},
		{Name: r.changelog[1], Partitions: 1, ReplicationFactor: 1, Configs: map[string]string{"cleanup.policy": "compact,delete"}},
	}); err != nil {
		t.Fatal(err)
	}
	var err error
	r.member, err = kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumerGroup(app), kgo.ConsumeTopics(r.in), kgo.DisableAutoCommit(),
		kgo.DisableClientMetrics(), kgo.HeartbeatInterval(100*time.Millisecond), kgo.SessionTimeout(10*time.Second), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.member.Close)
	for {
		if _, gen := r.member.GroupMetadata(); gen > 0 {
			break
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		r.member.PollFetches(ctx)
		cancel()
		if t.Context().Err() != nil {
			t.Fatal("the group did not form")
		}
	}
	return r
}

func (r *rig) own() (Ownership, bool) {
	m, g := r.member.GroupMetadata()
	return Ownership{MemberID: m, Generation: g}, g > 0
}

func noWait(context.Context, Ownership) error { return errors.New("the test expects no wait") }

func (r *rig) topics() ProducerTopics {
	return ProducerTopics{Outputs: []string{r.out}, Changelogs: r.changelog}
}

func (r *rig) open() *Producer {
	r.t.Helper()
	p, err := r.c.OpenProducer(r.t.Context(), record.SubtaskID{}, r.topics(), r.own)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(p.Close)
	return p
}

// write produces one output per value, to partition len(value)%2, and one change per value.
func (r *rig) write(p *Producer, values ...string) {
	r.t.Helper()
	if err := r.tryWrite(p, values...); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) tryWrite(p *Producer, values ...string) error {
	var outs []record.Output
	var changes []statestore.Change
	for _, v := range values {
		outs = append(outs, record.Output{Partition: int32(len(v) % 2), Key: []byte("k"), Value: []byte(v), Timestamp: 1000,
			Headers: []record.Header{{Key: "h", Value: []byte(v)}}})
		changes = append(changes, statestore.Change{Key: []byte("key-" + v), Value: []byte(v)})
	}
	if err := p.Produce(r.t.Context(), outs); err != nil {
		return err
	}
	return p.ProduceChanges(r.t.Context(), changes)
}

// epoch makes a commit of the given epoch at offset of in/0.
func (r *rig) epoch(n uint64, offset int64) EpochCommit {
	rec := EpochRecord{Epoch: n, Incarnation: 1, Owner: "test", Touched: []bool{true, false}, Positions: []int64{0, 0}}
	return EpochCommit{Epoch: n, Record: rec.Append(nil), Touched: rec.Touched,
		Offsets: map[record.TopicPartition]int64{{Topic: r.in, Partition: 0}: offset, {Topic: r.in, Partition: 1}: offset + 1}}
}

func (r *rig) commit(p *Producer, n uint64, offset int64) CommitResult {
	r.t.Helper()
	return p.Commit(r.t.Context(), r.epoch(n, offset), r.own, noWait)
}

func (r *rig) mustCommit(p *Producer, n uint64, offset int64) CommitResult {
	r.t.Helper()
	res := r.commit(p, n, offset)
	if res.Outcome != Committed || res.Err != nil {
		r.t.Fatalf("commit epoch %d: outcome %d: %v", n, res.Outcome, res.Err)
	}
	return res
}

// visible reads the output topic, read_committed, to its high watermark, as sorted values.
func (r *rig) visible() []string {
	r.t.Helper()
	c := connect(r.t, r.brokers, func(o *Options) { o.AppID = r.app })
	var got []string
	for p := range int32(2) {
		if _, err := c.ReadChangelog(r.t.Context(), ChangelogRead{Topics: []string{r.out}, Partition: p, From: []int64{-1}},
			func(_ int, _ int64, _, value []byte) error {
				got = append(got, string(value))
				return nil
			}); err != nil {
			r.t.Fatal(err)
		}
	}
	slices.Sort(got)
	return got
}

func (r *rig) wantVisible(want ...string) {
	r.t.Helper()
	if got := r.visible(); !slices.Equal(got, want) {
		r.t.Errorf("read_committed readers see %v, want %v", got, want)
	}
}

func (r *rig) wantOffsets(want int64) {
	r.t.Helper()
	c := connect(r.t, r.brokers, func(o *Options) { o.AppID = r.app })
	got, err := c.CommittedOffsets(r.t.Context(), "", []record.TopicPartition{{Topic: r.in, Partition: 0}, {Topic: r.in, Partition: 1}})
	if err != nil {
		r.t.Fatal(err)
	}
	next := want + 1
	if want < 0 {
		next = -1
	}
	if a, b := got[record.TopicPartition{Topic: r.in, Partition: 0}], got[record.TopicPartition{Topic: r.in, Partition: 1}]; a != want || b != next {
		r.t.Errorf("committed offsets are %d and %d, want %d and %d", a, b, want, next)
	}
}

func arm(t *testing.T, name string, fn func() error) *failpoint.Point {
	t.Helper()
	p, err := failpoint.Arm(name, fn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Disarm)
	return p
}

// suite are the tests that run on every kind of broker, fake and real.
var suite = map[string]func(t *testing.T, brokers []string){
	"CommitIsVisible":         testCommitIsVisible,
	"CrashBeforeEndTxn":       testCrashBeforeEndTxn,
	"CrashAfterEndTxn":        testCrashAfterEndTxn,
	"ZombieIsFenced":          testZombieIsFenced,
	"GenerationMoves":         testGenerationMoves,
	"UnknownMember":           testUnknownMember,
	"LostEndTxnReply":         testLostEndTxnReply,
	"EndTxnNeverArrives":      testEndTxnNeverArrives,
	"StableOffsets":           testStableOffsets,
	"RecordTooLarge":          testRecordTooLarge,
	"EndTxnIsNotCutOff":       testEndTxnIsNotCutOff,
	"BrokerTimesOut":          testBrokerTimesOut,
	"PartsAreCommitted":       testPartsAreCommitted,
	"TimedOutAndTruncated":    testTimedOutAndTruncated,
	"TopicMadeAnew":           testTopicMadeAnew,
	"ChangelogOfAbortedTxns":  testChangelogOfAbortedTxns,
	"ChangelogPositions":      testChangelogPositions,
	"ChangelogRetention":      testChangelogRetention,
	"ChangelogVerify":         testChangelogVerify,
	"ChangelogForeignOpenTxn": testChangelogForeignOpenTxn,
	"ControlRace":             testControlRace,
	"ControlFollow":           testControlFollow,
}

func runSuite(t *testing.T, brokers []string) {
	for _, name := range sortedKeys(suite) {
		t.Run(name, func(t *testing.T) { suite[name](t, brokers) })
	}
}

func sortedKeys[V any](m map[string]V) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// TestOnFakeKafka runs the suite on fakes of three ages. transaction.version is 2 only on the first.
func TestOnFakeKafka(t *testing.T) {
	t.Run("newest", func(t *testing.T) {
		k := fakeKafka(t)
		checkFeatures(t, k.ListenAddrs(), 2)
		runSuite(t, k.ListenAddrs())
	})
	t.Run("transaction.version=1", func(t *testing.T) {
		k := fakeKafka(t)
		setTransactionVersion(t, k.ListenAddrs(), 1)
		checkFeatures(t, k.ListenAddrs(), 1)
		old := k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.TxnOffsetCommit}, Count: -1, Observe: true, When: func(r kmsg.Request) bool {
			return r.GetVersion() > 4
		}})
		added := k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.AddOffsetsToTxn}, Count: -1, Observe: true})
		runSuite(t, k.ListenAddrs())
		if old.Hits() > 0 || added.Hits() == 0 {
			t.Errorf("%d TxnOffsetCommit above version 4, %d AddOffsetsToTxn: below transaction.version 2 it must be none and some", old.Hits(), added.Hits())
		}
	})
	t.Run("3.9", func(t *testing.T) {
		k := fakeKafka(t, kfake.MaxVersions(kversion.V3_9_0()))
		checkFeatures(t, k.ListenAddrs(), 0)
		runSuite(t, k.ListenAddrs())
	})
}

func checkFeatures(t *testing.T, brokers []string, txnVersion int) {
	t.Helper()
	c := connect(t, brokers, nil)
	if got := c.Features().TransactionVersion; got != txnVersion {
		t.Fatalf("transaction.version is %d, want %d: the test would not test what it says", got, txnVersion)
	}
}

func setTransactionVersion(t *testing.T, brokers []string, level int16) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	req := kmsg.NewPtrUpdateFeaturesRequest()
	f := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	f.Feature, f.MaxVersionLevel, f.UpgradeType, f.AllowDowngrade = "transaction.version", level, 2, true
	req.FeatureUpdates = append(req.FeatureUpdates, f)
	resp, err := req.RequestWith(t.Context(), cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func testCommitIsVisible(t *testing.T, brokers []string) {
	r := newRig(t, brokers, nil)
	r.wantOffsets(-1)
	p := r.open()
	r.write(p, "a", "bb", "ccc")
	res := r.mustCommit(p, 1, 10)
	if len(res.Positions) != 2 || res.Positions[0] != 4 || res.Positions[1] != -1 {
		t.Errorf("positions %v, want the offset after the epoch record (3 changes before it) and -1", res.Positions)
	}
	r.wantVisible("a", "bb", "ccc")
	r.wantOffsets(10)

	// The next epochs write both changelogs, nothing but the epoch record, and so on.
	ec := r.epoch(2, 20)
	ec.Touched = []bool{false, true}
	if err := p.ProduceChanges(t.Context(), []statestore.Change{{Changelog: 1, Key: []byte("x"), Value: []byte("1")}}); err != nil {
		t.Fatal(err)
	}
	if res := p.Commit(t.Context(), ec, r.own, noWait); res.Outcome != Committed || res.Positions[0] != -1 || res.Positions[1] != 2 {
		t.Errorf("epoch 2: %+v", res)
	}
	for n := uint64(3); n < 12; n++ {
		if n%2 == 0 {
			r.write(p, fmt.Sprintf("v%d", n))
		}
		r.mustCommit(p, n, int64(10*n))
	}
	r.wantOffsets(110)
	r.wantVisible("a", "bb", "ccc", "v10", "v4", "v6", "v8")

	// What was written is what was given.
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DisableClientMetrics(), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{r.out: {1: kgo.NewOffset().AtStart()}}))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	rec := cl.PollRecords(t.Context(), 1).Records()[0]
	if string(rec.Key) != "k" || string(rec.Value) != "a" || rec.Timestamp.UnixMilli() != 1000 || len(rec.Headers) != 1 ||
		rec.Headers[0].Key != "h" || string(rec.Headers[0].Value) != "a" {
		t.Errorf("record %+v", rec)
	}
}

func testCrashBeforeEndTxn(t *testing.T, brokers []string) {
	for _, point := range []string{failpoint.BeforeFlush, failpoint.AfterFlush, failpoint.AfterTxnOffsetCommit, failpoint.BeforeEndTxn} {
		r := newRig(t, brokers, nil)
		p := r.open()
		r.write(p, "lost")
		fp := arm(t, point, func() error { return failpoint.ErrInjected })
		// The offsets' answer is lost for good only when every try is.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		res := p.Commit(ctx, r.epoch(1, 10), r.own, noWait)
		cancel()
		fp.Disarm()
		if fp.Hits() == 0 {
			t.Fatalf("%s was not passed", point)
		}
		if res.Outcome != Aborted || res.Err == nil {
			t.Fatalf("%s: outcome %d (%v), want aborted", point, res.Outcome, res.Err)
		}
		if err := r.tryWrite(p, "more"); err == nil {
			t.Errorf("%s: the producer goes on after an aborted epoch", point)
		}
		p.Close()
		p2 := r.open()
		r.write(p2, "kept")
		r.mustCommit(p2, 1, 20)
		r.wantVisible("kept")
		r.wantOffsets(20)
	}
}

func testCrashAfterEndTxn(t *testing.T, brokers []string) {
	r := newRig(t, brokers, nil)
	p := r.open()
	r.write(p, "kept")
	fp := arm(t, failpoint.AfterEndTxn, func() error { return failpoint.ErrInjected })
	res := r.commit(p, 1, 10)
	fp.Disarm()
	if fp.Hits() != 1 || res.Outcome != Unknown {
		t.Fatalf("outcome %d (%v), %d hits, want unknown", res.Outcome, res.Err, fp.Hits())
	}
	p.Close()
	r.open()
	r.wantOffsets(10)
	r.wantVisible("kept")
}

func testZombieIsFenced(t *testing.T, brokers []string) {
	// The zombie wakes up with records at the brokers, or writes its first one then.
	for _, flushed := range []bool{true, false} {
		r := newRig(t, brokers, nil)
		zombie := r.open()
		if flushed {
			r.write(zombie, "zombie")
			if err := zombie.cl.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		p := r.open()
		r.write(p, "a")
		if !flushed {
			r.write(zombie, "zombie")
		}
		res := r.commit(zombie, 1, 99)
		if res.Outcome != Fenced || !IsFenced(res.Err) {
			t.Errorf("the zombie's commit (flushed %v): outcome %d (%v), want fenced", flushed, res.Outcome, res.Err)
		}
		zombie.Close()
		r.mustCommit(p, 1, 10)
		r.wantVisible("a")
		r.wantOffsets(10)
	}
}

func testGenerationMoves(t *testing.T, brokers []string) {
	r := newRig(t, brokers, nil)
	p := r.open()
	r.write(p, "a")
	now, _ := r.own()
	word := Ownership{MemberID: now.MemberID, Generation: now.Generation + 7} // the broker will not know it
	waits := 0
	own := func() (Ownership, bool) { return word, true }
	wait := func(_ context.Context, since Ownership) error {
		if since != word {
			t.Errorf("waits for a word after %+v, sent was %+v", since, word)
		}
		if waits++; waits == 3 {
			word = now
		}
		return nil
	}
	res := p.Commit(t.Context(), r.epoch(1, 10), own, wait)
	if res.Outcome != Committed || waits != 3 {
		t.Fatalf("outcome %d (%v) after %d waits, want committed after 3, in the same transaction", res.Outcome, res.Err, waits)
	}
	r.wantVisible("a")
	r.wantOffsets(10)

	r.write(p, "b")
	word = Ownership{MemberID: now.MemberID, Generation: now.Generation + 7}
	res = p.Commit(t.Context(), r.epoch(2, 20), own, func(context.Context, Ownership) error { return context.DeadlineExceeded })
	if res.Outcome != Aborted || !errors.Is(res.Err, context.DeadlineExceeded) || !errors.Is(res.Err, kerr.IllegalGeneration) {
		t.Errorf("no word came: outcome %d (%v), want aborted with both causes", res.Outcome, res.Err)
	}
}

func testUnknownMember(t *testing.T, brokers []string) {
	cases := map[string]func(Ownership) (Ownership, bool){
		"unknown member": func(o Ownership) (Ownership, bool) { o.MemberID = "nobody"; return o, true },
		"not owned":      func(o Ownership) (Ownership, bool) { return o, false },
		"empty member":   func(o Ownership) (Ownership, bool) { return Ownership{Generation: -1}, true },
		"no generation":  func(o Ownership) (Ownership, bool) { o.Generation = -1; return o, true },
	}
	for name, own := range cases {
		r := newRig(t, brokers, nil)
		p := r.open()
		r.write(p, "a")
		res := p.Commit(t.Context(), r.epoch(1, 10), func() (Ownership, bool) { o, _ := r.own(); return own(o) }, noWait)
		if res.Outcome != Aborted || res.Err == nil {
			t.Errorf("%s: outcome %d (%v), want aborted", name, res.Outcome, res.Err)
		}
		p.Close()
		r.open()
		r.wantOffsets(-1)
		r.wantVisible()
	}
}

// proxied makes a rig whose producers speak through a proxy.
func proxied(t *testing.T, brokers []string, edit func(*Options)) (*rig, *testutil.Proxy) {
	t.Helper()
	proxy := testutil.NewProxy(t, brokers[0])
	return newRig(t, brokers, func(o *Options) {
		o.RequestTimeout = time.Second
		o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, proxy.Addr())
		}
		if edit != nil {
			edit(o)
		}
	}), proxy
}

func testLostEndTxnReply(t *testing.T, brokers []string) {
	r, proxy := proxied(t, brokers, nil)
	p := r.open()
	r.write(p, "kept")
	fp := arm(t, failpoint.BeforeEndTxn, func() error { proxy.DropReplies(); return nil })
	res := r.commit(p, 1, 10)
	fp.Disarm()
	if fp.Hits() != 1 || res.Outcome != Unknown {
		t.Fatalf("outcome %d (%v), want unknown: EndTxn went through and its answer was lost", res.Outcome, res.Err)
	}
	p.Close()
	r.c = connect(t, brokers, func(o *Options) { o.AppID = r.app })
	r.open()
	r.wantOffsets(10)
	r.wantVisible("kept")
}

func testEndTxnNeverArrives(t *testing.T, brokers []string) {
	r, proxy := proxied(t, brokers, nil)
	p := r.open()
	r.write(p, "lost")
	fp := arm(t, failpoint.BeforeEndTxn, func() error { proxy.Cut(); return nil })
	res := r.commit(p, 1, 10)
	fp.Disarm()
	if fp.Hits() != 1 || res.Outcome != Unknown {
		t.Fatalf("outcome %d (%v), want unknown: nobody knows whether EndTxn arrived", res.Outcome, res.Err)
	}
	p.Close()
	r.c = connect(t, brokers, func(o *Options) { o.AppID = r.app })
	r.open()
	r.wantOffsets(-1)
	r.wantVisible()
}

func testEndTxnIsNotCutOff(t *testing.T, brokers []string) {
	r := newRig(t, brokers, nil)
	p := r.open()
	r.write(p, "a")
	ctx, cancel := context.WithCancel(t.Context())
	fp := arm(t, failpoint.BeforeEndTxn, func() error { cancel(); return nil })
	res := p.Commit(ctx, r.epoch(1, 10), r.own, noWait)
	fp.Disarm()
	if fp.Hits() != 1 || res.Outcome != Committed {
		t.Fatalf("outcome %d (%v), want committed: the context ended when EndTxn was due", res.Outcome, res.Err)
	}
	r.wantOffsets(10)
}

func testStableOffsets(t *testing.T, brokers []string) {
	r := newRig(t, brokers, nil)
	p := r.open()
	r.write(p, "a")
	impatient := connect(t, brokers, func(o *Options) { o.AppID, o.RequestTimeout = r.app, 300*time.Millisecond })
	fp := arm(t, failpoint.AfterTxnOffsetCommit, func() error {
		_, err := impatient.CommittedOffsets(t.Context(), "", []record.TopicPartition{{Topic: r.in, Partition: 0}})
		if !errors.Is(err, kerr.UnstableOffsetCommit) {
			t.Errorf("offsets while the transaction is open: %v, want UNSTABLE_OFFSET_COMMIT", err)
		}
		return nil
	})
	r.mustCommit(p, 1, 10)
	if fp.Hits() != 1 {
		t.Fatal("the offsets were not asked in mid-transaction")
	}
	fp.Disarm()
	r.wantOffsets(10)
	if _, err := r.c.CommittedOffsets(t.Context(), "", []record.TopicPartition{{Topic: "nope", Partition: 0}}); err == nil || !strings.Contains(err.Error(), "nope") {
		t.Errorf("offsets of a topic that does not exist: %v", err)
	}
}

func testRecordTooLarge(t *testing.T, brokers []string) {
	r := newRig(t, brokers, nil)
	p := r.open()
	r.write(p, "a", strings.Repeat("x", 3<<20))
	res := r.commit(p, 1, 10)
	if res.Outcome != Aborted || !errors.Is(res.Err, kerr.MessageTooLarge) || !strings.Contains(res.Err.Error(), "produce to "+r.app) {
		t.Errorf("outcome %d (%v), want aborted, MESSAGE_TOO_LARGE and the partition", res.Outcome, res.Err)
	}
	if !errors.Is(p.Err(), kerr.MessageTooLarge) {
		t.Errorf("Err() = %v", p.Err())
	}
	p.Close()
	r.open()
	r.wantVisible()
}

// TestTakeoverAsksBeforeEachInit: InitProducerID never without fresh proof of ownership.
func TestTakeoverAsksBeforeEachInit(t *testing.T) {
	k := fakeKafka(t)
	r := newRig(t, k.ListenAddrs(), nil)
	inits := k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Count: -1, Observe: true})
	_, err := r.c.OpenProducer(t.Context(), record.SubtaskID{}, r.topics(), func() (Ownership, bool) { return Ownership{}, false })
	if !errors.Is(err, ErrNotOwned) || inits.Hits() != 0 {
		t.Fatalf("not owned: %v, %d InitProducerID sent", err, inits.Hits())
	}
	asked, limit := 0, 100
	own := func() (Ownership, bool) {
		asked++
		o, _ := r.own()
		return o, asked < limit
	}
	busy := k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, TxnID: r.app + "-0-0", Err: kerr.CoordinatorLoadInProgress, Count: 3})
	p, err := r.c.OpenProducer(t.Context(), record.SubtaskID{}, r.topics(), own)
	if err != nil || busy.Hits() == 0 {
		t.Fatalf("busy coordinator: %v, %d faults", err, busy.Hits())
	}
	p.Close()
	if asked == 0 {
		t.Fatal("own was not asked")
	}
	// The subtask moves away while the coordinator is busy: the tries end.
	asked, limit = 0, 2
	busy = k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, TxnID: r.app + "-0-0", Err: kerr.InvalidRecord, Count: -1})
	defer busy.Remove()
	if _, err = r.c.OpenProducer(t.Context(), record.SubtaskID{}, r.topics(), own); !errors.Is(err, kerr.InvalidRecord) || asked != 1 {
		t.Fatalf("an answer that does not heal: %v after %d questions", err, asked)
	}
}

// Field report: EndTxn and the like were sent without end to a coordinator that answered CONCURRENT_TRANSACTIONS.
//
// TestBusyCoordinators: answers that heal are retried in the same transaction; the epoch completes once. TestCommitIsBounded
// has those that do not heal.
func TestBusyCoordinators(t *testing.T) {
	for _, err := range []*kerr.Error{kerr.ConcurrentTransactions, kerr.CoordinatorLoadInProgress, kerr.NotCoordinator, kerr.UnknownTopicOrPartition, kerr.RequestTimedOut} {
		k := fakeKafka(t)
		r := newRig(t, k.ListenAddrs(), nil)
		p := r.open()
		inits := k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Count: -1, Observe: true})
		f := k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.TxnOffsetCommit}, Err: err, Count: 3})
		r.write(p, "a")
		r.mustCommit(p, 1, 10)
		if f.Hits() < 3 || inits.Hits() > 0 {
			t.Errorf("%s: %d of 3 faults, %d InitProducerID in mid-transaction", err.Message, f.Hits(), inits.Hits())
		}
		r.wantVisible("a")
		r.wantOffsets(10)
	}
	t.Run("EndTxn", func(t *testing.T) {
		k := fakeKafka(t)
		r := newRig(t, k.ListenAddrs(), nil)
		p := r.open()
		busy := k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Err: kerr.ConcurrentTransactions, Count: 5},
			kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Err: kerr.NotCoordinator, Count: 2})
		r.write(p, "a")
		r.mustCommit(p, 1, 10)
		if busy.Hits() != 7 {
			t.Errorf("%d of 7 faults", busy.Hits())
		}
		r.wantVisible("a")
	})
}

// TestCommitIsBounded: a coordinator that stays busy ends the commit.
func TestCommitIsBounded(t *testing.T) {
	k := fakeKafka(t)
	for _, c := range []struct {
		key  kmsg.Key
		want Outcome
	}{{kmsg.TxnOffsetCommit, Aborted}, {kmsg.EndTxn, Unknown}} {
		r := newRig(t, k.ListenAddrs(), func(o *Options) { o.TransactionTimeout, o.RequestTimeout = 700*time.Millisecond, 500*time.Millisecond })
		p := r.open()
		f := k.Fault(kfake.Fault{Keys: []kmsg.Key{c.key}, Err: kerr.ConcurrentTransactions, Count: -1})
		r.write(p, "a")
		res := r.commit(p, 1, 10)
		f.Remove()
		// The deadline comes in a pause, with the broker's last word, or within a request.
		bounded := errors.Is(res.Err, kerr.ConcurrentTransactions) || errors.Is(res.Err, context.DeadlineExceeded)
		if res.Outcome != c.want || !bounded || f.Hits() < 2 {
			t.Errorf("%v busy for ever: outcome %d (%v) after %d tries, want %d", c.key, res.Outcome, res.Err, f.Hits(), c.want)
		}
	}
}

// Field report: after INVALID_PRODUCER_EPOCH nobody could tell how to go on.
//
// testBrokerTimesOut: the broker aborts a transaction that takes too long; the commit is fenced and a takeover
// goes on from committed state.
func testBrokerTimesOut(t *testing.T, brokers []string) {
	r := newRig(t, brokers, func(o *Options) { o.TransactionTimeout = 500 * time.Millisecond })
	p := r.open()
	r.write(p, "late")
	r.awaitTimeout(p)
	res := r.commit(p, 1, 10)
	if res.Outcome != Fenced || !IsFenced(res.Err) {
		t.Fatalf("outcome %d (%v), want fenced", res.Outcome, res.Err)
	}
	p.Close()
	r.wantOffsets(-1)
	r.c = connect(t, brokers, func(o *Options) { o.AppID = r.app })
	p = r.open()
	r.write(p, "again")
	r.mustCommit(p, 1, 10)
	r.wantVisible("again")
}

// awaitTimeout waits until the broker has aborted what p wrote to the output.
func (r *rig) awaitTimeout(p *Producer) {
	r.t.Helper()
	if err := p.cl.Flush(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	tps := []record.TopicPartition{{Topic: r.out, Partition: 0}, {Topic: r.out, Partition: 1}}
	testutil.Eventually(r.t, patience, func() error {
		stable, err := r.c.StableOffsets(r.t.Context(), tps)
		if err != nil {
			return err
		}
		end, err := r.c.EndOffsets(r.t.Context(), tps)
		if err != nil {
			return err
		}
		for _, tp := range tps {
			if stable[tp] != end[tp] {
				return fmt.Errorf("%s: open transaction", tp)
			}
		}
		return nil
	})
}

// testTimedOutAndTruncated: the broker timed the transaction out, and the log of a partition that it wrote begins later
// now (DeleteRecords on a repartition topic). Half of the epoch is gone: the other half must not commit.
func testTimedOutAndTruncated(t *testing.T, brokers []string) {
	r := newRig(t, brokers, func(o *Options) { o.TransactionTimeout = time.Second })
	p := r.open()
	r.write(p, "bb")
	r.mustCommit(p, 1, 10)
	r.write(p, "dd", "a")
	r.awaitTimeout(p)
	end, err := r.c.EndOffsets(t.Context(), []record.TopicPartition{{Topic: r.out, Partition: 0}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.c.DeleteRecords(t.Context(), end); err != nil {
		t.Fatal(err)
	}
	_ = r.tryWrite(p, "ff")
	res := r.commit(p, 2, 20)
	if res.Outcome != Fenced {
		t.Fatalf("outcome %d (%v), want fenced", res.Outcome, res.Err)
	}
	p.Close()
	r.c = connect(t, brokers, func(o *Options) { o.AppID = r.app })
	r.open()
	r.wantOffsets(10)
	r.wantVisible() // "bb" was committed, and deleted
}

// TestEpochMovedInMidTransaction: on INVALID_PRODUCER_EPOCH from a partition whose log begins behind the last
// acknowledged record kgo takes a new epoch by itself and sends the batch again, in mid-transaction. The broker aborts
// what was written before; a commit of the rest would lose it without an error. Brokers that verify transactions
// (3.6 and later) do not give this answer together with a log start, so it is made here.
func TestEpochMovedInMidTransaction(t *testing.T) {
	k := fakeKafka(t)
	r := newRig(t, k.ListenAddrs(), nil)
	p := r.open()
	r.write(p, "bb")
	if err := p.cl.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	answered := 0
	k.ControlKey(kmsg.Produce.Int16(), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		answered++
		req := kreq.(*kmsg.ProduceRequest)
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		for _, rt := range req.Topics {
			st := kmsg.NewProduceResponseTopic()
			st.Topic, st.TopicID = rt.Topic, rt.TopicID
			for _, rp := range rt.Partitions {
				sp := kmsg.NewProduceResponseTopicPartition()
				sp.Partition, sp.ErrorCode, sp.LogStartOffset = rp.Partition, kerr.InvalidProducerEpoch.Code, 1000
				st.Partitions = append(st.Partitions, sp)
			}
			resp.Topics = append(resp.Topics, st)
		}
		return resp, nil, true
	})
	inits := k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Count: -1, Observe: true})
	if err := p.Produce(t.Context(), []record.Output{{Value: []byte("dd")}}); err != nil {
		t.Fatal(err)
	}
	res := r.commit(p, 1, 10)
	if answered != 1 || inits.Hits() != 1 {
		t.Fatalf("%d answers, %d InitProducerID: kgo did not move the epoch, the test tests nothing", answered, inits.Hits())
	}
	if res.Outcome != Fenced || !strings.Contains(fmt.Sprint(res.Err), "was written under producer id") {
		t.Errorf("outcome %d (%v), want fenced: half of the epoch was aborted", res.Outcome, res.Err)
	}
	p.Close()
	r.open()
	r.wantOffsets(-1)
	r.wantVisible()
}

// Field report: one partition failed in the midst of a batch, and the batch was sent again as a whole: out of order.
//
// TestLeaderMovesInMidEpoch: a failed try of one partition neither reorders nor doubles.
func TestLeaderMovesInMidEpoch(t *testing.T) {
	k := fakeKafka(t)
	r := newRig(t, k.ListenAddrs(), func(o *Options) { o.Linger = time.Millisecond })
	p := r.open()
	f := k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: r.out, Partitions: []int32{0}, Err: kerr.NotLeaderForPartition, Count: 2},
		kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: r.out, Partitions: []int32{0}, Err: kerr.NotEnoughReplicasAfterAppend, Count: 1})
	var want []string
	for i := range 200 {
		v := fmt.Sprintf("%04d", i)
		want = append(want, v)
		if err := p.Produce(t.Context(), []record.Output{{Value: []byte(v)}}); err != nil {
			t.Fatal(err)
		}
	}
	r.mustCommit(p, 1, 10)
	if f.Hits() != 3 {
		t.Fatalf("%d of 3 faults", f.Hits())
	}
	var got []string
	if _, err := r.c.ReadChangelog(t.Context(), ChangelogRead{Topics: []string{r.out}, From: []int64{-1}}, func(_ int, _ int64, _, v []byte) error {
		got = append(got, string(v))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %d records in another order or number than the %d written", len(got), len(want))
	}
}

// Field report: when the epochs of a transactional id were used up, its last transaction stayed open for good
// (apache/kafka PR #21506).
//
// TestEpochExhaustion: a transactional id whose epochs are used up gets a new producer id and goes on.
func TestEpochExhaustion(t *testing.T) {
	if testing.Short() {
		t.Skip("33000 requests")
	}
	k := fakeKafka(t)
	r := newRig(t, k.ListenAddrs(), nil)
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.ListenAddrs()...), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var epoch int16
	for epoch < 32764 {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID = kmsg.StringPtr(r.app + "-0-0")
		req.TransactionTimeoutMillis = 1000
		resp, err := req.RequestWith(t.Context(), cl)
		if err != nil || resp.ErrorCode != 0 {
			t.Fatal(err, resp)
		}
		epoch = resp.ProducerEpoch
	}
	p := r.open()
	first, moved := p.pid, false
	for n := uint64(1); n <= 6; n++ {
		r.write(p, fmt.Sprint(n))
		if n == 1 {
			first = p.pid
		}
		moved = moved || p.pid != first
		r.mustCommit(p, n, int64(n))
	}
	if !moved {
		t.Error("the producer id never changed: the test did not reach the last epoch")
	}
	r.wantVisible("1", "2", "3", "4", "5", "6")
	r.wantOffsets(6)
}

// TestProduceIsBounded: when nothing is acknowledged, Produce waits no longer than its context.
func TestProduceIsBounded(t *testing.T) {
	k := fakeKafka(t)
	r, proxy := proxied(t, k.ListenAddrs(), nil)
	p := r.open()
	proxy.DropReplies()
	outs := make([]record.Output, 1000)
	for i := range outs {
		outs[i] = record.Output{Partition: int32(i % 2), Value: []byte("v")}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var err error
	n := 0
	for ; err == nil && n <= 2*maxPendingRecords; n += len(outs) {
		err = p.Produce(ctx, outs)
	}
	if !errors.Is(err, context.DeadlineExceeded) || p.records.Load() > maxPendingRecords {
		t.Fatalf("after %d records, %d pending: %v, want a wait that ctx ends", n, p.records.Load(), err)
	}
	p.Close()
}

// TestSlabsAreUsedAgain: what is ours allocates nothing per record, and memory is bounded by what is in flight.
func TestSlabsAreUsedAgain(t *testing.T) {
	k := fakeKafka(t)
	r := newRig(t, k.ListenAddrs(), nil)
	p := r.open()
	outs := make([]record.Output, 10_000)
	value := []byte("value")
	for i := range outs {
		outs[i] = record.Output{Partition: int32(i % 2), Key: value, Value: value, Headers: []record.Header{{Key: "h", Value: value}}}
	}
	changes := make([]statestore.Change, 1000)
	for i := range changes {
		changes[i] = statestore.Change{Key: value, Value: value}
	}
	for n := range uint64(10) {
		if err := p.Produce(t.Context(), outs); err != nil {
			t.Fatal(err)
		}
		if err := p.ProduceChanges(t.Context(), changes); err != nil {
			t.Fatal(err)
		}
		r.mustCommit(p, n+1, int64(n))
	}
	p.mu.Lock()
	slabs := len(p.free) + 1
	p.mu.Unlock()
	if most := (len(outs)+len(changes))/slabSize + 3; slabs > most {
		t.Errorf("%d slabs for %d records an epoch, want at most %d", slabs, len(outs)+len(changes), most)
	}
	if p.records.Load() != 0 || p.bytes.Load() != 0 {
		t.Errorf("%d records, %d bytes are counted as pending after the commit", p.records.Load(), p.bytes.Load())
	}
	for _, s := range p.free {
		for i := range s.records {
			if rec := &s.records[i]; rec.Key != nil || rec.Value != nil || len(rec.Headers) > 0 && rec.Headers[0].Value != nil {
				t.Fatalf("a free record still holds %+v", rec)
			}
		}
	}
}

// TestSlabIsFreeWhenAllIsAcknowledged: a record that kgo still has is never filled again.
func TestSlabIsFreeWhenAllIsAcknowledged(t *testing.T) {
	p := &Producer{ctx: t.Context()}
	var recs []*kgo.Record
	for range slabSize + 1 {
		r, err := p.next(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		recs = append(recs, r)
	}
	for i, r := range recs[:slabSize] {
		if len(p.free) > 0 {
			t.Fatalf("the slab is free after %d of %d acknowledgements", i, slabSize)
		}
		p.acked(r, nil)
	}
	if len(p.free) != 1 || &p.free[0].records[0] != recs[0] {
		t.Fatalf("%d free slabs after all acknowledgements, want the one", len(p.free))
	}
	if p.slab.open.Load() != slabSize {
		t.Fatalf("the slab in use has %d open records, want %d", p.slab.open.Load(), slabSize)
	}
}

func TestCommitRefusesNonsense(t *testing.T) {
	k := fakeKafka(t)
	r := newRig(t, k.ListenAddrs(), nil)
	sent := k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.TxnOffsetCommit, kmsg.EndTxn, kmsg.Produce}, Count: -1, Observe: true})
	for name, edit := range map[string]func(*EpochCommit){
		"no offsets":      func(ec *EpochCommit) { ec.Offsets = nil },
		"offset -1":       func(ec *EpochCommit) { ec.Offsets[record.TopicPartition{Topic: r.in}] = -1 },
		"nothing touched": func(ec *EpochCommit) { ec.Touched = []bool{false, false} },
		"one changelog":   func(ec *EpochCommit) { ec.Touched = []bool{true} },
	} {
		p := r.open()
		ec := r.epoch(1, 10)
		edit(&ec)
		if res := p.Commit(t.Context(), ec, r.own, noWait); res.Outcome != Aborted || res.Err == nil {
			t.Errorf("%s: outcome %d (%v)", name, res.Outcome, res.Err)
		}
		p.Close()
	}
	if sent.Hits() > 0 {
		t.Errorf("%d requests were sent", sent.Hits())
	}
}

// testPartsAreCommitted writes ahead of an epoch: what a part holds is committed by itself, without offsets; the next part
// and the epoch come after it; a part is not committed when the subtask is not ours, and then its records are gone.
func testPartsAreCommitted(t *testing.T, brokers []string) {
	r := newRig(t, brokers, nil)
	p := r.open()
	for _, part := range []string{"first", "second"} {
		r.write(p, part)
		if err := p.CommitPart(t.Context(), r.own); err != nil {
			t.Fatal(err)
		}
	}
	r.wantVisible("first", "second")
	r.wantOffsets(-1)
	if err := p.CommitPart(t.Context(), r.own); err != nil {
		t.Fatalf("an empty part: %v", err)
	}
	r.write(p, "third")
	r.mustCommit(p, 1, 7)
	r.wantVisible("first", "second", "third")
	r.wantOffsets(7)
	r.write(p, "lost")
	if err := p.CommitPart(t.Context(), func() (Ownership, bool) { return Ownership{}, false }); !errors.Is(err, ErrNotOwned) {
		t.Fatalf("a part of a subtask that is not ours: %v", err)
	}
	p.Close()
	r.open()
	r.wantVisible("first", "second", "third")
}

// TestFirstCommits: the first commit of a producer is sent as a commit. The client stores what it knows of a topic only after it
// handed the first records for it to the brokers, and ends a transaction of topics that it does not know as aborted, with success
// (see commitTransaction). More threads than cores make the system stop one between the two.
func TestFirstCommits(t *testing.T) {
	k := fakeKafka(t)
	r := newRig(t, k.ListenAddrs(), nil)
	var aborts atomic.Int64
	k.ControlKey(kmsg.EndTxn.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		if !req.(*kmsg.EndTxnRequest).Commit {
			aborts.Add(1)
		}
		return nil, nil, false
	})
	const n = 400
	for i := range uint64(n) {
		p := r.open()
		r.mustCommit(p, i+1, int64(i))
		p.Close()
	}
	if got := aborts.Load(); got > 0 {
		t.Errorf("%d of %d commits were sent as aborts", got, n)
	}
}
