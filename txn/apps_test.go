package txn

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/test/kafka"
)

func TestRemoveFromOutside(t *testing.T) { testRemoveFromOutside(t, fakeKafka(t).ListenAddrs()) }

func TestKafkaRemoveFromOutside(t *testing.T) { testRemoveFromOutside(t, kafka.Shared(t).Brokers()) }

// testRemoveFromOutside removes what an app leaves: open transactions, its group, its topics.
func testRemoveFromOutside(t *testing.T, brokers []string) {
	app := newApp()
	c := connect(t, brokers, func(o *Options) { o.AppID = app })
	if _, err := c.ReadControl(t.Context(), app); !errors.Is(err, ErrNoApp) {
		t.Errorf("control topic of no app: %v", err)
	}
	out, changelog := app+"-out", app+"-0-changelog"
	infos, err := c.EnsureTopics(t.Context(), []TopicSpec{{Name: out, Partitions: 2, ReplicationFactor: 1}, {Name: changelog, Partitions: 1, ReplicationFactor: 1}})
	if err != nil {
		t.Fatal(err)
	}
	all, err := c.AllTopics(t.Context())
	if err != nil || all[out].ID != infos[out].ID || all[out].Partitions != 2 || all[app+"-control"].Partitions != 0 {
		t.Errorf("all topics: %+v, %v", all, err)
	}

	// A zombie holds a transaction open.
	zombie, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DisableClientMetrics(), kgo.TransactionalID(app+"-0-1"), kgo.TransactionTimeout(time.Minute), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer zombie.Close()
	write := func() error {
		return zombie.ProduceSync(t.Context(), &kgo.Record{Topic: out, Partition: 1, Value: []byte("v")}).FirstErr()
	}
	if err := errors.Join(zombie.BeginTransaction(), write()); err != nil {
		t.Fatal(err)
	}
	tp := record.TopicPartition{Topic: out, Partition: 1}
	if stable, err := c.StableOffsets(t.Context(), []record.TopicPartition{tp}); err != nil || stable[tp] != 0 {
		t.Fatal("the transaction is not open:", stable, err)
	}
	if err := c.Fence(t.Context(), []record.SubtaskID{{}, {Index: 1}}, []string{out, "nowhere"}); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, patience, func() error {
		stable, err := c.StableOffsets(t.Context(), []record.TopicPartition{tp})
		if err == nil && stable[tp] != 2 { // the record and the marker
			err = errors.New("the transaction is open still")
		}
		return err
	})
	if err := write(); err == nil {
		err = zombie.EndTransaction(t.Context(), kgo.TryCommit)
		if err == nil {
			t.Error("the zombie has committed")
		}
	}

	if state, members, err := c.GroupState(t.Context()); err != nil || state != "" || members != nil {
		t.Errorf("no group: %q, %v, %v", state, members, err)
	}
	if err := c.DeleteGroup(t.Context()); err != nil {
		t.Errorf("delete no group: %v", err)
	}
	member, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DisableClientMetrics(), kgo.ConsumerGroup(app), kgo.InstanceID("one"), kgo.ConsumeTopics(out), kgo.DisableAutoCommit(), kgo.ClientID("tester"))
	if err != nil {
		t.Fatal(err)
	}
	defer member.Close()
	testutil.Eventually(t, patience, func() error {
		state, members, err := c.GroupState(t.Context())
		if err == nil && (len(members) != 1 || members[0].InstanceID != "one" || members[0].ClientID != "tester" || state != "Stable") {
			err = errors.New(state)
		}
		return err
	})
	if err := c.DeleteGroup(t.Context()); !errors.Is(err, ErrGroupBusy) {
		t.Errorf("delete a group with a member: %v", err)
	}
	if _, err := kadm.NewClient(member).LeaveGroup(t.Context(), kadm.LeaveGroup(app).InstanceIDs("one")); err != nil {
		t.Fatal(err)
	}
	member.Close()
	adm := kadm.NewClient(c.cl)
	if err := adm.CommitAllOffsets(t.Context(), app, kadm.OffsetsFromRecords(kgo.Record{Topic: out, Offset: 1})); err != nil {
		t.Fatal(err)
	}
	if state, members, err := c.GroupState(t.Context()); err != nil || state != "Empty" || len(members) != 0 {
		t.Errorf("a group without members: %q, %v, %v", state, members, err)
	}
	if err := c.DeleteGroup(t.Context()); err != nil {
		t.Fatal(err)
	}
	if offsets, err := adm.FetchOffsets(t.Context(), app); err != nil && !errors.Is(err, kerr.GroupIDNotFound) || len(offsets) != 0 {
		t.Errorf("offsets of a deleted group: %v, %v", offsets, err)
	}

	for range 2 { // of which the second finds nothing
		// The changelog was created again, as far as the caller knows.
		if err := c.DeleteTopics(t.Context(), map[string][16]byte{changelog: {1}, out: infos[out].ID}); err != nil {
			t.Fatal(err)
		}
	}
	testutil.Eventually(t, patience, func() error {
		left, err := c.AllTopics(t.Context())
		if err == nil && (left[out].Partitions != 0 || left[changelog].ID != infos[changelog].ID) {
			err = fmt.Errorf("topics are %+v", left)
		}
		return err
	})
}
