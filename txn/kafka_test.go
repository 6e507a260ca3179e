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

// realLayout makes the topics of testLayout under new names on a real broker.
func realLayout(t *testing.T, b *kafka.Broker) Layout {
	t.Helper()
	l := testLayout()
	for i := range l.Subs {
		for j, in := range l.Subs[i].Inputs {
			l.Subs[i].Inputs[j].Topic = b.CreateTopic(t, int(in.Partitions), nil)
		}
	}
	return l
}

func realOptions(t *testing.T) func(*Options) {
	app := kafka.RandomName("app")
	return func(o *Options) {
		o.AppID, o.SessionTimeout, o.HeartbeatInterval, o.RebalanceTimeout = app, 6*time.Second, 200*time.Millisecond, 30*time.Second
	}
}

func TestKafkaConnect(t *testing.T) {
	t.Parallel()
	b := kafka.Shared(t)
	c := connect(t, b.Brokers(), nil)
	f := c.Features()
	if f.TransactionVersion != 2 || f.TxnOffsetCommit < 5 || f.EndTxn < 5 || !strings.HasPrefix(f.Kafka, "v4.") || c.ID() == "" {
		t.Errorf("features %+v, cluster %q", f, c.ID())
	}
	name := kafka.RandomName("t")
	infos, err := c.EnsureTopics(t.Context(), []TopicSpec{{Name: name, Partitions: 3, ReplicationFactor: -1,
		Configs: map[string]string{"cleanup.policy": "compact", "segment.bytes": "67108864"}}})
	if err != nil || infos[name].CleanupPolicy != "compact" || infos[name].Partitions != 3 || infos[name].ID == [16]byte{} {
		t.Errorf("%+v, %v", infos, err)
	}
	ends, err := c.EndOffsets(t.Context(), []record.TopicPartition{{Topic: name, Partition: 2}})
	if err != nil || len(ends) != 1 {
		t.Errorf("%v, %v", ends, err)
	}
}

func TestKafkaGroup(t *testing.T) {
	t.Parallel()
	b := kafka.Shared(t)
	w := newWorld(t)
	l, opts := realLayout(t, b), realOptions(t)
	m1 := w.join(t, b.Brokers(), "m1", l, opts)
	m2 := w.join(t, b.Brokers(), "m2", l, opts)
	m3 := w.join(t, b.Brokers(), "m3", l, opts)
	settle(t, l, m1, m2, m3)
	testutil.Eventually(t, patience, func() error {
		owners, err := m3.g.Owners(t.Context())
		if err != nil {
			return err
		}
		for _, m := range []*member{m1, m2, m3} {
			for _, id := range m.has() {
				if word, _ := m.g.Ownership(id); owners[id].Member == "" || owners[id].Member != word.MemberID || owners[id].Host == "" {
					return fmt.Errorf("the owner of %s is %+v, want %+v", id, owners[id], word)
				}
			}
		}
		return nil
	})
	if err := m2.g.Close(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	settle(t, l, m1, m3)
	m3.kill()
	settle(t, l, m1)
}

// TestKafkaStaticRestart: no rebalance when a static member comes back in time, not even for its own sake.
func TestKafkaStaticRestart(t *testing.T) {
	t.Parallel()
	b := kafka.Shared(t)
	w := newWorld(t)
	l, base := realLayout(t, b), realOptions(t)
	static := func(id string) func(*Options) {
		return func(o *Options) {
			base(o)
			o.InstanceID, o.SessionTimeout = id, 2*patience
		}
	}
	m1 := w.join(t, b.Brokers(), "m1", l, static("i1"))
	m2 := w.join(t, b.Brokers(), "m2", l, static("i2"))
	settle(t, l, m1, m2)
	word := func(m *member) Ownership {
		o, _ := m.g.Ownership(m.has()[0])
		return o
	}
	had1, had2, word1 := m1.has(), m2.has(), word(m1)
	// Both restart, one after the other, as in a rolling restart; the first is the leader.
	if err := m1.g.Close(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	n1 := w.join(t, b.Brokers(), "n1", l, static("i1"))
	settle(t, l, n1, m2)
	if err := m2.g.Close(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	n2 := w.join(t, b.Brokers(), "n2", l, static("i2"))
	settle(t, l, n1, n2)
	if !slices.Equal(n1.has(), had1) || !slices.Equal(n2.has(), had2) {
		t.Errorf("had %v and %v, now %v and %v", had1, had2, n1.has(), n2.has())
	}
	for _, m := range []*member{n1, n2} {
		if o := word(m); o.Generation != word1.Generation {
			t.Errorf("%s: generation was %d, is %d", m.name, word1.Generation, o.Generation)
		}
	}
	// The restarted leader still balances.
	n3 := w.join(t, b.Brokers(), "n3", l, static("i3"))
	settle(t, l, n1, n2, n3)
	if err := n3.g.Close(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	settle(t, l, n1, n2)
}

// TestKafkaTopologyChange: the broker gives static members that come back the assignment of the old topology.
func TestKafkaTopologyChange(t *testing.T) {
	b := kafka.Shared(t)
	w := newWorld(t)
	l, base := realLayout(t, b), realOptions(t)
	static := func(id string) func(*Options) {
		return func(o *Options) { base(o); o.InstanceID = id }
	}
	m1 := w.join(t, b.Brokers(), "m1", l, static("i1"))
	m2 := w.join(t, b.Brokers(), "m2", l, static("i2"))
	settle(t, l, m1, m2)
	for _, m := range []*member{m1, m2} {
		if err := m.g.Close(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	l2 := l
	l2.Fingerprint, l2.Subs = "fp-2", slices.Clone(l.Subs)
	l2.Subs[0].Parallelism = 2
	n1 := w.join(t, b.Brokers(), "n1", l2, static("i1"))
	n2 := w.join(t, b.Brokers(), "n2", l2, static("i2"))
	settle(t, l2, n1, n2)
	for _, m := range []*member{n1, n2} {
		select {
		case err := <-m.g.Err():
			t.Errorf("%s: %v", m.name, err)
		default:
		}
	}
}

func TestKafkaOtherTopology(t *testing.T) {
	t.Parallel()
	b := kafka.Shared(t)
	w := newWorld(t)
	l, opts := realLayout(t, b), realOptions(t)
	m1 := w.join(t, b.Brokers(), "m1", l, opts)
	settle(t, l, m1)
	other := l
	other.Fingerprint = "fp-2"
	m2 := w.join(t, b.Brokers(), "m2", other, opts)
	if err := wait(t, m2.g); !errors.Is(err, ErrTopologyDiffers) {
		t.Errorf("got %v", err)
	}
	settle(t, l, m1)
}

func TestKafkaFencedInstance(t *testing.T) {
	b := kafka.Shared(t)
	w := newWorld(t)
	l, base := realLayout(t, b), realOptions(t)
	static := func(o *Options) { base(o); o.InstanceID = "i1" }
	m1 := w.join(t, b.Brokers(), "m1", l, static)
	settle(t, l, m1)
	w.mu.Lock()
	clear(w.owner)
	w.mu.Unlock()
	m2 := w.join(t, b.Brokers(), "m2", l, static)
	if err := wait(t, m1.g); !errors.Is(err, ErrFencedInstance) {
		t.Errorf("the first one ends with %v", err)
	}
	settle(t, l, m2)
	if err := m1.g.Close(t.Context(), true); err != nil {
		t.Error(err)
	}
	settle(t, l, m2)
}

func TestKafkaConsumer(t *testing.T) {
	b := kafka.Shared(t)
	topic := b.CreateTopic(t, 1, nil)
	rec := func(v string) *kgo.Record { return &kgo.Record{Topic: topic, Value: []byte(v)} }
	b.Produce(t, rec("a"))
	transaction(t, b.Brokers(), kgo.TryAbort, rec("lost"))
	transaction(t, b.Brokers(), kgo.TryCommit, rec("b"))
	k := newConsumer(t, connect(t, b.Brokers(), nil))
	tp := record.TopicPartition{Topic: topic}
	k.Add(map[record.TopicPartition]int64{tp: 0})
	f := pollUntil(t, k, func(m map[record.TopicPartition]*Fetched) bool {
		return m[tp] != nil && len(m[tp].Records) >= 4
	})[tp]
	var got []string
	for _, r := range f.Records {
		v := string(r.Value)
		if r.Control {
			v = "marker"
		}
		got = append(got, fmt.Sprintf("%d %s", r.Offset, v))
	}
	if want := []string{"0 a", "2 marker", "3 b", "4 marker"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Field report: a topic was deleted and created again under a running reader, which used the old offsets or was silent.
//
// TestKafkaTopicRecreated: nothing of the new topic is read under the old one's offsets.
func TestKafkaTopicRecreated(t *testing.T) {
	t.Parallel()
	b := kafka.Shared(t)
	topic := b.CreateTopic(t, 1, nil)
	b.Produce(t, &kgo.Record{Topic: topic, Value: []byte("old")})
	c := connect(t, b.Brokers(), nil)
	known, err := c.Topics(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	k := newConsumer(t, c)
	tp := record.TopicPartition{Topic: topic}
	k.Add(map[record.TopicPartition]int64{tp: 0})
	pollUntil(t, k, func(m map[record.TopicPartition]*Fetched) bool { return m[tp] != nil && len(m[tp].Records) == 1 })
	adm := b.Admin(t)
	if _, err := adm.DeleteTopic(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, patience, func() error {
		_, err := adm.CreateTopic(t.Context(), 1, 1, nil, topic)
		return err
	})
	b.Produce(t, &kgo.Record{Topic: topic, Value: []byte("new")}, &kgo.Record{Topic: topic, Value: []byte("new")})
	m := pollUntil(t, k, func(m map[record.TopicPartition]*Fetched) bool { return m[tp] != nil && m[tp].Err != nil })
	var te *TopicError
	if !errors.As(m[tp].Err, &te) || te.OldID != known[topic].ID || te.NewID == te.OldID || te.NewID == [16]byte{} || len(m[tp].Records) > 0 {
		t.Errorf("got %v, %v", m[tp].Err, m[tp].Records)
	}
	if s := te.Error(); !strings.Contains(s, TopicIDString(te.OldID)) || !strings.Contains(s, TopicIDString(te.NewID)) {
		t.Errorf("%q does not name both topic ids", s)
	}
}

func TestKafkaSecurity(t *testing.T) {
	t.Parallel()
	b := kafka.Start(t, kafka.TLS(), kafka.User("me", "secret"), kafka.ACLs())
	cfg, err := b.Certs().ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	base := Options{AppID: "app", Brokers: b.Brokers(), RequestTimeout: 5 * time.Second, TLS: cfg, SASL: SASL{"SCRAM-SHA-512", "me", "secret"}}
	for _, tc := range []struct {
		name string
		edit func(*Options)
		kind error
		says string
	}{
		{"wrong scram password", func(o *Options) { o.SASL.Password = "no" }, ErrCredentials, "username and password"},
		{"wrong plain password", func(o *Options) { o.SASL = SASL{"PLAIN", "me", "no"} }, ErrCredentials, "username and password"},
		{"no credentials", func(o *Options) { o.SASL = SASL{} }, nil, "SASL"},
		{"plaintext to tls", func(o *Options) { o.TLS = nil }, ErrUnreachable, "TLS"},
		{"unknown ca", func(o *Options) { o.TLS = cfg.Clone(); o.TLS.RootCAs = nil }, ErrUnreachable, "not trusted"},
	} {
		o := base
		tc.edit(&o)
		start := time.Now()
		c, err := Connect(t.Context(), o)
		if err == nil {
			c.Close()
			t.Errorf("%s: no error", tc.name)
			continue
		}
		t.Logf("%s (%v): %v", tc.name, time.Since(start).Round(time.Millisecond), err)
		if tc.kind != nil && !errors.Is(err, tc.kind) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	plain := kafka.Shared(t)
	o := base
	o.Brokers = plain.Brokers()
	if _, err := Connect(t.Context(), o); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "plaintext") {
		t.Errorf("tls to plaintext: %v", err)
	} else {
		t.Logf("tls to plaintext: %v", err)
	}

	c, err := Connect(t.Context(), base)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	topic := b.CreateTopic(t, 2, nil)
	l := Layout{Fingerprint: "f", Subs: []LayoutSub{{ID: 0, Parallelism: 2, Inputs: []LayoutInput{{topic, 2}}}}}
	denied := func(what string, err error, says ...string) {
		t.Helper()
		if !errors.Is(err, ErrAuthorization) {
			t.Errorf("%s: %v", what, err)
			return
		}
		for _, s := range says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %q does not say %q", what, err, s)
			}
		}
		t.Logf("%s: %v", what, err)
	}
	_, err = c.Topics(t.Context(), topic)
	denied("topics", err, topic, "Describe")
	_, err = c.EnsureTopics(t.Context(), []TopicSpec{{Name: topic + "-2", Partitions: 1, ReplicationFactor: 1}})
	denied("ensure", err, topic+"-2")
	_, err = c.EndOffsets(t.Context(), []record.TopicPartition{{Topic: topic}})
	denied("offsets", err, topic)
	denied("delete records", c.DeleteRecords(t.Context(), map[record.TopicPartition]int64{{Topic: topic}: 0}), topic)
	_, err = c.Join(t.Context(), l, nil)
	denied("join, no topic", err, topic)

	// With the topic but without the group, the group session ends with the ACL to grant.
	adm := b.Admin(t)
	acl := kadm.NewACLs().Allow("User:me").AllowHosts().Topics(topic).ResourcePatternType(kadm.ACLPatternLiteral).
		Operations(kadm.OpDescribe, kadm.OpRead)
	if _, err := adm.CreateACLs(t.Context(), acl); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	testutil.Eventually(t, patience, func() error {
		_, err := c.EndOffsets(t.Context(), []record.TopicPartition{{Topic: topic}})
		return err
	})
	m := w.join(t, b.Brokers(), "m", l, func(o *Options) { *o = base; o.Dialer = nil })
	denied("group", wait(t, m.g), "group app", "Read")
}
