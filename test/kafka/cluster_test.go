package kafka

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestCluster: a topic is on all three brokers, leaders and coordinators move when asked, and what was acknowledged is
// there while one broker is down.
func TestCluster(t *testing.T) {
	start := time.Now()
	c := StartCluster(t, 3)
	t.Logf("ready after %s", time.Since(start).Round(10*time.Millisecond))
	topic := c.CreateTopic(t, 2, nil)
	record := func() *kgo.Record { return &kgo.Record{Topic: topic, Key: []byte("k"), Value: []byte("v")} }
	c.Produce(t, record())
	ctx, cancel := context.WithTimeout(t.Context(), 2*readyTimeout)
	defer cancel()
	adm := c.Admin(t)
	configs, err := adm.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	for _, cfg := range configs[0].Configs {
		if cfg.Key == "min.insync.replicas" && cfg.MaybeValue() != "2" {
			t.Errorf("min.insync.replicas is %s, want 2", cfg.MaybeValue())
		}
	}

	// A group and a transaction make the topics of the coordinators.
	group := RandomName("group")
	offsets := kadm.Offsets{}
	offsets.AddOffset(topic, 0, 1, -1)
	coordinators := func() (ofGroup, ofTxn int32) {
		t.Helper()
		txn := c.Client(t, kgo.TransactionalID(group))
		if err := txn.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := txn.ProduceSync(ctx, record()).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := txn.EndTransaction(ctx, kgo.TryCommit); err != nil {
			t.Fatal(err)
		}
		if err := adm.CommitAllOffsets(ctx, group, offsets); err != nil {
			t.Fatal(err)
		}
		return adm.FindGroupCoordinators(ctx, group)[group].NodeID, adm.FindTxnCoordinators(ctx, group)[group].NodeID
	}
	g, x := coordinators()
	c.AwaitInSync(t)
	for _, moved := range []string{topic, OffsetsTopic, TransactionsTopic} {
		c.MoveLeaders(t, moved)
	}
	g2, x2 := coordinators()
	if g == g2 || x == x2 {
		t.Errorf("coordinators of group and transaction were on %d and %d, and are on %d and %d after a move", g, x, g2, x2)
	}

	n := len(c.Read(t, topic))
	b := c.Nodes[2]
	if err := b.Kill(); err != nil {
		t.Fatal(err)
	}
	c.Produce(t, record())
	if got := len(c.Read(t, topic)); got != n+1 {
		t.Errorf("without broker %d: %d records, want %d", b.Node(), got, n+1)
	}
	start = time.Now()
	if err := b.Restart(); err != nil {
		t.Fatal(err)
	}
	c.AwaitInSync(t)
	t.Logf("broker %d ready and in sync after %s", b.Node(), time.Since(start).Round(10*time.Millisecond))
}
