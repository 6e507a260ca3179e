package txn

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/millrace-stream/millrace/test/kafka"
)

func TestMain(m *testing.M) { kafka.Main(m) }

// patience is how long a test waits for something that must happen.
const patience = 30 * time.Second

// fakeKafka starts a kfake cluster for one test.
func fakeKafka(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	opts = append([]kfake.Opt{kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(time.Millisecond)}, opts...)
	k, err := kfake.NewCluster(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

// connect opens a Cluster for one test; app "app" unless edit changes it.
func connect(t *testing.T, brokers []string, edit func(*Options)) *Cluster {
	t.Helper()
	o := Options{
		AppID: "app", Brokers: brokers,
		SessionTimeout: time.Second, HeartbeatInterval: 50 * time.Millisecond, RebalanceTimeout: 10 * time.Second,
	}
	if edit != nil {
		edit(&o)
	}
	c, err := Connect(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// cutter is an Options.Dialer whose connections can be cut, as when the process dies.
type cutter struct {
	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

func (c *cutter) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		_ = conn.Close()
		return nil, errors.New("the test has cut the network")
	}
	c.conns = append(c.conns, conn)
	return conn, nil
}

func (c *cutter) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}
