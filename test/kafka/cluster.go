package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// Topics in which brokers keep their own state: whoever leads a partition is the coordinator of the groups, or of the
// transactional ids, that fall into it.
const (
	OffsetsTopic      = "__consumer_offsets"
	TransactionsTopic = "__transaction_state"
)

// Cluster is several brokers of one cluster. Topics have a replica on each and need a majority in sync.
type Cluster struct {
	access
	Nodes []*Broker
}

// StartCluster starts n brokers (an odd number) of one cluster, each with a small heap. They are killed at the test's
// end; what they wrote stays when the test failed.
func StartCluster(t testing.TB, n int, opts ...Option) *Cluster {
	t.Helper()
	skip(t)
	nodes, err := startNodes(collect(append([]Option{Heap(256)}, opts...)), n)
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{Nodes: nodes}
	for _, b := range nodes {
		c.seeds = append(c.seeds, b.seeds...)
	}
	t.Cleanup(func() {
		c.close()
		for _, b := range nodes {
			if err := b.dispose(t.Failed()); err != nil {
				t.Error(err)
			}
			if t.Failed() {
				t.Logf("data and log of broker %d are kept in %s", b.node, b.dir)
			}
		}
	})
	return c
}

// Brokers are the bootstrap addresses of all client listeners.
func (c *Cluster) Brokers() []string {
	var addrs []string
	for _, b := range c.Nodes {
		addrs = append(addrs, b.Brokers()...)
	}
	return addrs
}

// AwaitInSync waits until every partition of the cluster has all its replicas in sync and a leader: only then may
// another broker go down.
func (c *Cluster) AwaitInSync(t testing.TB) {
	t.Helper()
	c.await(t, "all replicas in sync", func(ctx context.Context, adm *kadm.Client) error {
		meta, err := adm.Metadata(ctx)
		if err != nil {
			return err
		}
		var lag []string
		meta.Topics.EachPartition(func(p kadm.PartitionDetail) {
			if p.Err != nil || p.Leader < 0 || len(p.ISR) < len(p.Replicas) {
				lag = append(lag, fmt.Sprintf("%s/%d (leader %d, in sync %v of %v, %v)", p.Topic, p.Partition, p.Leader, p.ISR, p.Replicas, p.Err))
			}
		})
		if len(lag) > 0 {
			return errors.New(strings.Join(lag, ", "))
		}
		return nil
	})
}

// MoveLeaders makes another in-sync replica, the next one, the leader of the given partitions of a topic (none = all)
// and waits until it is. Of OffsetsTopic and TransactionsTopic that moves coordinators.
func (c *Cluster) MoveLeaders(t testing.TB, topic string, partitions ...int32) {
	t.Helper()
	leaders := map[int32]int32{} // what is wanted
	var elect kadm.TopicsSet
	c.await(t, "order the replicas of "+topic, func(ctx context.Context, adm *kadm.Client) error {
		now, err := partitionsOf(ctx, adm, topic)
		if err != nil {
			return err
		}
		var order kadm.AlterPartitionAssignmentsReq
		elect = nil
		clear(leaders)
		for _, p := range now {
			if len(partitions) > 0 && !slices.Contains(partitions, p.Partition) {
				continue
			}
			// The replicas from the one behind the leader on.
			i := slices.Index(p.Replicas, p.Leader) + 1
			next := append(slices.Clone(p.Replicas[i:]), p.Replicas[:i]...)
			if !slices.Contains(p.ISR, next[0]) {
				return fmt.Errorf("broker %d is not in sync on partition %d: %v", next[0], p.Partition, p.ISR)
			}
			order.Assign(topic, p.Partition, next)
			elect.Add(topic, p.Partition)
			leaders[p.Partition] = next[0]
		}
		altered, err := adm.AlterPartitionAssignments(ctx, order)
		if err == nil {
			err = altered.Error()
		}
		if err != nil {
			return fmt.Errorf("reorder the replicas: %w", err)
		}
		return nil
	})
	c.await(t, "leaders of "+topic+" moved", func(ctx context.Context, adm *kadm.Client) error {
		// What it says of single partitions (there is nothing to elect) shows in who leads them.
		if _, err := adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, elect); err != nil {
			return fmt.Errorf("elect the first replicas: %w", err)
		}
		now, err := partitionsOf(ctx, adm, topic)
		for _, p := range now {
			if want, ok := leaders[p.Partition]; ok && p.Leader != want {
				err = errors.Join(err, fmt.Errorf("partition %d is led by %d, want %d", p.Partition, p.Leader, want))
			}
		}
		return err
	})
}

func partitionsOf(ctx context.Context, adm *kadm.Client, topic string) ([]kadm.PartitionDetail, error) {
	meta, err := adm.Metadata(ctx, topic)
	if err != nil {
		return nil, err
	}
	td := meta.Topics[topic]
	return td.Partitions.Sorted(), td.Err
}

// await tries something until it works.
func (c *Cluster) await(t testing.TB, what string, try func(context.Context, *kadm.Client) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	adm, err := c.adminClient()
	if err != nil {
		t.Fatal(err)
	}
	var last error // before the deadline cut a request off
	for {
		err := try(ctx, adm)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s: not so after %s: %v", what, readyTimeout, errors.Join(last, err))
		}
		last = err
		time.Sleep(50 * time.Millisecond)
	}
}
