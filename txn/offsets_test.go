package txn

import (
	"context"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millrace-stream/millrace/internal/record"
)

// TestCommittedOffsetsWithoutTheOldCoordinator: the broker that was the group's coordinator is dead, which its metadata do not
// tell yet, and another one has its place. Who takes over then must not ask the dead one until the time is over.
func TestCommittedOffsetsWithoutTheOldCoordinator(t *testing.T) {
	k := fakeKafka(t, kfake.NumBrokers(3), kfake.SeedTopics(1, "in"))
	old, addrs := k.CoordinatorFor("app"), k.ListenAddrs()
	var mu sync.Mutex
	var dead bool
	var conns []net.Conn // to it
	c := connect(t, addrs, func(o *Options) {
		o.RequestTimeout = 3 * time.Second
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			if addr == addrs[old] && dead {
				return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
			}
			var d net.Dialer
			conn, err := d.DialContext(ctx, network, addr)
			if addr == addrs[old] && err == nil {
				conns = append(conns, conn)
			}
			return conn, err
		}
	})
	cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var offsets kadm.Offsets
	offsets.AddOffset("in", 0, 7, -1)
	if err := kadm.NewClient(cl).CommitAllOffsets(t.Context(), "app", offsets); err != nil {
		t.Fatal(err)
	}
	tp := record.TopicPartition{Topic: "in", Partition: 0}
	committed := func(want int64) {
		t.Helper()
		if got, err := c.CommittedOffsets(t.Context(), "", []record.TopicPartition{tp}); err != nil || got[tp] != want {
			t.Fatalf("got %v, %v, want %d", got, err, want)
		}
	}
	committed(7)

	// From now on the next broker is the coordinator.
	k.ControlKey(int16(kmsg.FindCoordinator), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		resp := kreq.ResponseKind().(*kmsg.FindCoordinatorResponse)
		host, port, err := net.SplitHostPort(addrs[(old+1)%3])
		if err != nil {
			return nil, err, true
		}
		n, err := net.LookupPort("tcp", port)
		resp.Coordinators = []kmsg.FindCoordinatorResponseCoordinator{{Key: "app", NodeID: (old + 1) % 3, Host: host, Port: int32(n)}}
		return resp, err, true
	})
	k.ControlKey(int16(kmsg.OffsetFetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		req, resp := kreq.(*kmsg.OffsetFetchRequest), kreq.ResponseKind().(*kmsg.OffsetFetchResponse)
		asked := req.Groups[0].Topics[0]
		topic := kmsg.OffsetFetchResponseGroupTopic{Topic: asked.Topic, TopicID: asked.TopicID,
			Partitions: []kmsg.OffsetFetchResponseGroupTopicPartition{{Offset: 8, LeaderEpoch: -1}}}
		resp.Groups = []kmsg.OffsetFetchResponseGroup{{Group: "app", Topics: []kmsg.OffsetFetchResponseGroupTopic{topic}}}
		return resp, nil, true
	})
	mu.Lock()
	dead = true
	for _, conn := range conns {
		_ = conn.Close()
	}
	mu.Unlock()
	committed(8)
}
