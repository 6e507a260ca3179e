package txn

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/test/kafka"
)

func TestHangingIsWhatNoCoordinatorKnows(t *testing.T) {
	tp := record.TopicPartition{Topic: "t", Partition: 1}
	other := record.TopicPartition{Topic: "t", Partition: 2}
	state := func(s string, epoch int16, tps ...record.TopicPartition) *TransactionState {
		return &TransactionState{TransactionalID: "x", State: s, ProducerID: 7, ProducerEpoch: epoch, Partitions: tps}
	}
	for _, c := range []struct {
		name     string
		state    *TransactionState
		complete bool
		version  int
		want     Hanging
		decided  string
	}{
		{"open", state("Ongoing", 3, tp), true, 2, HangingNo, ""},
		{"open, and ids are hidden", state("Ongoing", 3, tp), false, 2, HangingNo, ""},
		{"its marker is on the way", state("PrepareCommit", 4, other, tp), true, 2, HangingNo, ""},
		{"a later one is open elsewhere", state("Ongoing", 4, other), true, 2, HangingYes, ""},
		{"a later one is being fenced", state("PrepareEpochFence", 4, other), true, 2, HangingYes, ""},
		{"committed", state("CompleteCommit", 4), true, 2, HangingYes, "committed"},
		{"committed, the other markers are on the way", state("PrepareCommit", 4, other), true, 2, HangingYes, "committed"},
		{"aborted", state("CompleteAbort", 4), true, 2, HangingYes, "aborted"},
		{"aborted, the epoch stays", state("CompleteAbort", 3), true, 1, HangingYes, "aborted"},
		{"one that came later was committed", state("CompleteCommit", 5), true, 2, HangingYes, ""},
		{"forgotten by InitProducerID", state("Empty", 4), true, 2, HangingYes, ""},
		{"no transactional id", nil, true, 2, HangingYes, ""},
		{"no transactional id, but some are hidden", nil, false, 2, HangingUnknown, ""},
	} {
		h, decided := judgeHanging(OpenTransaction{TopicPartition: tp, ProducerID: 7, ProducerEpoch: 3, Coordinator: c.state}, c.complete, c.version)
		if h != c.want || decided != c.decided {
			t.Errorf("%s: %s, decided %q; want %s, %q", c.name, h, decided, c.want, c.decided)
		}
	}
}

func TestOpenTransactions(t *testing.T) {
	testOpenTransactions(t, fakeKafka(t).ListenAddrs())
}

func TestKafkaOpenTransactions(t *testing.T) {
	testOpenTransactions(t, kafka.Shared(t).Brokers())
}

// foreign is a producer that no app knows, with a transaction begun.
func foreign(t *testing.T, brokers []string, id string) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DisableClientMetrics(), kgo.TransactionalID(id), kgo.TransactionTimeout(time.Minute),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	return cl
}

func writeOpen(t *testing.T, cl *kgo.Client, topic string, partition int32, values ...string) {
	t.Helper()
	for _, v := range values {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: partition, Value: []byte(v)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

func testOpenTransactions(t *testing.T, brokers []string) {
	app := kafka.RandomName("app")
	c := connect(t, brokers, func(o *Options) { o.AppID = app })
	if _, err := c.AppTopics(t.Context()); !errors.Is(err, ErrNoApp) {
		t.Errorf("topics of an app that never ran: %v", err)
	}
	in := kafka.RandomName("in")
	if _, err := c.EnsureTopics(t.Context(), []TopicSpec{{Name: in, Partitions: 3, ReplicationFactor: 1}}); err != nil {
		t.Fatal(err)
	}
	control, err := c.OpenControl(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	_, err = control.Update(t.Context(), func(s ControlState) (ControlState, error) {
		s.TopicIDs = map[string]string{in: "x", app + "-deleted": "y"}
		return s, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	topics, err := c.AppTopics(t.Context())
	want := []string{app + "-control", app + "-deleted", in}
	slices.Sort(want)
	if err != nil || !slices.Equal(topics, want) {
		t.Fatalf("topics %v, %v; want %v", topics, err, want)
	}
	look := func() OpenTransactions {
		t.Helper()
		found, err := c.OpenTransactions(t.Context(), topics)
		if err != nil || len(found.Unseen) > 0 || found.Looked != 4 {
			t.Fatalf("%+v, %v", found, err)
		}
		return found
	}
	testutil.Eventually(t, patience, func() error { // the marker of the control record follows the answer
		if found := look(); len(found.Open) > 0 {
			return fmt.Errorf("nothing should be open: %+v", found)
		}
		return nil
	})

	id := kafka.RandomName("import")
	cl := foreign(t, brokers, id)
	writeOpen(t, cl, in, 1, "a", "b")
	late := foreign(t, brokers, id+"-2")
	writeOpen(t, late, in, 1, "c")
	found := look()
	if len(found.Open) != 2 || found.Hidden != "" {
		t.Fatalf("%+v", found)
	}
	a, b := found.Open[0], found.Open[1]
	if a.TopicPartition != (record.TopicPartition{Topic: in, Partition: 1}) || a.FirstOffset != 0 || b.FirstOffset != 2 || !a.HoldsBack() || b.HoldsBack() ||
		a.LastStable != 0 || a.HighWatermark != 3 || a.Hanging != HangingNo || b.Hanging != HangingNo {
		t.Errorf("%+v", found.Open)
	}
	if s := a.Coordinator; s == nil || s.TransactionalID != id || s.State != "Ongoing" || s.Timeout != time.Minute || s.Started.IsZero() ||
		s.ProducerID != a.ProducerID || !slices.Contains(s.Partitions, a.TopicPartition) {
		t.Errorf("%+v", a.Coordinator)
	}
	if s, err := c.DescribeTransaction(t.Context(), id); err != nil || s == nil || s.State != "Ongoing" {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := c.DescribeTransaction(t.Context(), id+"-nobody"); err != nil || s != nil {
		t.Errorf("nobody's: %+v, %v", s, err)
	}
	if err := cl.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, patience, func() error {
		found := look()
		for _, o := range found.Open {
			if o.Hanging != HangingNo {
				t.Errorf("a transaction that ends is taken for a hanging one: %+v", o)
			}
		}
		if len(found.Open) != 1 || !found.Open[0].HoldsBack() {
			return fmt.Errorf("%+v", found)
		}
		return nil
	})
	if err := late.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, patience, func() error {
		if found := look(); len(found.Open) > 0 {
			return fmt.Errorf("%+v", found)
		}
		return nil
	})
	// What was committed is read, up to the end, whatever stands there.
	tp := record.TopicPartition{Topic: in, Partition: 1}
	stable, err := c.StableOffsets(t.Context(), []record.TopicPartition{tp})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := c.ReadCommitted(t.Context(), tp, 0, stable[tp], func(r record.Record) error {
		got = append(got, fmt.Sprintf("%d=%s", r.Offset, r.Value))
		return nil
	}); err != nil || !slices.Equal(got, []string{"2=c"}) {
		t.Errorf("read %v, %v", got, err)
	}
}

func TestRewriterWritesAsTold(t *testing.T) {
	k := fakeKafka(t)
	c := connect(t, k.ListenAddrs(), nil)
	infos, err := c.EnsureTopics(t.Context(), []TopicSpec{{Name: "in", Partitions: 2, ReplicationFactor: 1, Configs: map[string]string{"max.message.bytes": "2000000"}}})
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.OpenRewriter(infos)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	tp := record.TopicPartition{Topic: "in", Partition: 1}
	large := strings.Repeat("x", 1_500_000)
	recs := []Rewrite{
		{TopicPartition: tp, Key: []byte("k"), Value: []byte("v"), Headers: []record.Header{{Key: "h", Value: []byte("1")}, {Key: "h"}}, Timestamp: 42},
		{TopicPartition: tp, Value: []byte(large), Timestamp: -1},
		{TopicPartition: tp, Key: []byte{}, Timestamp: 43},
		{TopicPartition: record.TopicPartition{Topic: "in", Partition: 5}, Timestamp: 1},
	}
	before := time.Now().Add(-time.Second).UnixMilli()
	errs := w.Write(t.Context(), recs)
	if errs[0] != nil || errs[1] != nil || errs[2] != nil || errs[3] == nil {
		t.Fatal(errs)
	}
	var got []record.Record
	if err := c.ReadCommitted(t.Context(), tp, 0, 3, func(r record.Record) error { got = append(got, r); return nil }); err != nil || len(got) != 3 {
		t.Fatalf("%d records, %v", len(got), err)
	}
	if r := got[0]; string(r.Key) != "k" || string(r.Value) != "v" || r.Timestamp != 42 || len(r.Headers) != 2 || string(r.Headers[0].Value) != "1" {
		t.Errorf("%+v", r)
	}
	if r := got[1]; r.Key != nil || len(r.Value) != len(large) || r.Timestamp < before {
		t.Errorf("key %q, %d bytes, timestamp %d", r.Key, len(r.Value), r.Timestamp)
	}
	if r := got[2]; r.Key == nil || r.Value != nil {
		t.Errorf("%+v", r)
	}
}

// TestKafkaTransactionRights: what may not be seen is told, and nothing is called hanging for want of a right.
func TestKafkaTransactionRights(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a broker of its own")
	}
	b := kafka.Start(t, kafka.User("me", "secret"), kafka.ACLs())
	seen, unseen := b.CreateTopic(t, 1, nil), b.CreateTopic(t, 2, nil)
	adm := b.Admin(t)
	allow := func(acl *kadm.ACLBuilder) {
		t.Helper()
		rs, err := adm.CreateACLs(t.Context(), acl)
		if err != nil || len(rs) == 0 || rs[0].Err != nil {
			t.Fatal(rs, err)
		}
	}
	me := func() *kadm.ACLBuilder { return kadm.NewACLs().Allow("User:me").AllowHosts() }
	allow(me().Topics(seen).ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpRead))
	cl := b.Client(t, kgo.TransactionalID("import"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	writeOpen(t, cl, seen, 0, "a")
	c := connect(t, b.Brokers(), func(o *Options) { o.SASL = SASL{"PLAIN", "me", "secret"} })
	found, err := c.OpenTransactions(t.Context(), []string{seen, unseen})
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Open) != 1 || found.Open[0].Hanging != HangingUnknown || !strings.Contains(found.Hidden, "grant Describe on transactional id *") {
		t.Errorf("%+v", found)
	}
	if len(found.Unseen) != 1 || found.Unseen[0].Topic != unseen || !errors.Is(found.Unseen[0].Err, ErrAuthorization) || !strings.Contains(found.Unseen[0].Err.Error(), "grant Read on topic "+unseen) {
		t.Errorf("%+v", found.Unseen)
	}
	if _, err := c.DescribeTransaction(t.Context(), "import"); !errors.Is(err, ErrAuthorization) {
		t.Errorf("describe: %v", err)
	}
	w, err := c.OpenRewriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if errs := w.Write(t.Context(), []Rewrite{{TopicPartition: record.TopicPartition{Topic: seen}}}); !errors.Is(errs[0], ErrAuthorization) {
		t.Errorf("write: %v", errs[0])
	}
	allow(me().TransactionalIDs("*").ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpDescribe))
	testutil.Eventually(t, patience, func() error {
		found, err := c.OpenTransactions(t.Context(), []string{seen})
		if err != nil || found.Hidden != "" || len(found.Open) != 1 || found.Open[0].Hanging != HangingNo {
			return fmt.Errorf("%+v, %w", found, err)
		}
		return nil
	})
}
