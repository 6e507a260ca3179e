package testutil

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy forwards TCP connections to a target and makes the faults that a real network makes and a server on loopback
// does not. Faults apply to open connections at once and to later ones until they are taken back.
type Proxy struct {
	target string
	ln     net.Listener
	wg     sync.WaitGroup

	mu          sync.Mutex
	conns       map[net.Conn]struct{} // both sides of all open connections
	cut         bool
	dropReplies bool
	delay       time.Duration
}

// NewProxy starts a proxy in front of target ("host:port"), closed at the test's end.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("start proxy: %v", err)
	}
	p := &Proxy{target: target, ln: ln, conns: map[net.Conn]struct{}{}}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = ln.Close()
		p.Cut()
		p.wg.Wait()
	})
	return p
}

// Addr is where clients connect.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// Cut closes all connections and refuses new ones until Restore.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for c := range p.conns {
		_ = c.Close()
	}
}

// DropReplies swallows what the target answers: it has done what it was asked, and the client does not learn it.
func (p *Proxy) DropReplies() { p.set(func() { p.dropReplies = true }) }

// Delay holds each piece of data for d, in both directions.
func (p *Proxy) Delay(d time.Duration) { p.set(func() { p.delay = d }) }

// Restore takes all faults back. A connection whose replies were dropped is useless afterwards: Cut first.
func (p *Proxy) Restore() {
	p.set(func() { p.cut, p.dropReplies, p.delay = false, false, 0 })
}

func (p *Proxy) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *Proxy) accept() {
	for {
		client, err := p.ln.Accept()
		if err != nil {
			return // closed
		}
		server, err := net.DialTimeout("tcp", p.target, 5*time.Second)
		if err != nil {
			_ = client.Close()
			continue
		}
		if !p.add(client, server) {
			continue
		}
		p.wg.Go(func() { p.forward(server, client, false) })
		p.wg.Go(func() { p.forward(client, server, true) })
	}
}

// add a pair, unless the network is cut.
func (p *Proxy) add(client, server net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		_, _ = client.Close(), server.Close()
		return false
	}
	p.conns[client], p.conns[server] = struct{}{}, struct{}{}
	return true
}

// forward copies one direction; when it ends, both sides are closed, which ends the other.
func (p *Proxy) forward(dst, src net.Conn, reply bool) {
	defer func() {
		_, _ = src.Close(), dst.Close()
		p.set(func() { delete(p.conns, src); delete(p.conns, dst) })
	}()
	_, _ = io.Copy(writerFunc(func(b []byte) (int, error) {
		p.mu.Lock()
		drop, delay := reply && p.dropReplies, p.delay
		p.mu.Unlock()
		time.Sleep(delay)
		if drop {
			return len(b), nil
		}
		return dst.Write(b)
	}), src)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
