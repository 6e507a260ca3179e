package demo

import (
	"context"
	"errors"
	"net"
	"sync"
)

// network is a dialer whose connections can all be cut at once, for good: what a killed process leaves behind.
type network struct {
	mu    sync.Mutex
	dead  bool
	conns map[net.Conn]struct{}
}

func newNetwork() *network { return &network{conns: map[net.Conn]struct{}{}} }

var errCut = errors.New("the network is cut")

func (n *network) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	n.mu.Lock()
	dead := n.dead
	n.mu.Unlock()
	if dead {
		return nil, errCut
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dead {
		_ = c.Close()
		return nil, errCut
	}
	n.conns[c] = struct{}{}
	return c, nil
}

// cut closes every connection and refuses new ones.
func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dead = true
	for c := range n.conns {
		_ = c.Close()
	}
}
