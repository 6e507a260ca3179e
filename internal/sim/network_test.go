//go:build synctests

package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// network is what one process has to the brokers: a proxy that knows the frames of the Kafka protocol. It can be cut
// for good (the process is dead), frozen (the process does not run: nothing goes in either direction, and what was
// under way arrives when it thaws), and it delays, loses requests and loses replies as the seed says.
type network struct {
	w    *world
	name string

	mu     sync.Mutex
	dead   bool
	thawed chan struct{} // closed while the network flows
	links  map[*link]struct{}
	count  map[int16]int // requests by key
	traps  []*trap
	edits  func(key int16, p *plan) // of a script
}

// trap kills or pauses the process when it sends a request of a kind for the n-th time.
type trap struct {
	key   int16
	left  int
	after bool // the broker has handled the request, its reply is lost with the process
	kill  func(how string)
	pause time.Duration // in place of kill: the request arrives when the process goes on
}

func newNetwork(w *world, name string) *network {
	n := &network{w: w, name: name, links: map[*link]struct{}{}, count: map[int16]int{}, thawed: make(chan struct{})}
	close(n.thawed)
	return n
}

var errCut = errors.New("the network is cut")

// link is one connection through the proxy.
type link struct {
	n       *network
	client  net.Conn // our end of the pipe to the client
	broker  net.Conn
	cutOnce sync.Once
	dead    chan struct{}

	mu    sync.Mutex
	plans map[int32]plan // by correlation id, of requests under way
}

// plan is what happens to one request.
type plan struct {
	key       int16
	up, down  time.Duration
	dropReq   bool
	dropReply bool
	kill      func(how string) // when the reply arrives
}

func (n *network) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	n.mu.Lock()
	dead, thawed := n.dead, n.thawed
	n.mu.Unlock()
	if dead {
		return nil, errCut
	}
	select {
	case <-thawed:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	b, err := n.w.vn.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	ours, theirs := net.Pipe()
	l := &link{n: n, client: ours, broker: b, dead: make(chan struct{}), plans: map[int32]plan{}}
	n.mu.Lock()
	if n.dead {
		n.mu.Unlock()
		_ = b.Close()
		return nil, errCut
	}
	n.links[l] = struct{}{}
	n.mu.Unlock()
	requests := make(chan []byte, 64)
	go l.read(requests)
	go l.up(requests)
	go l.down()
	return theirs, nil
}

// cut ends every connection for good.
func (n *network) cut() {
	n.mu.Lock()
	n.dead = true
	n.mu.Unlock()
	n.sever()
	n.thaw()
}

// sever ends the connections that there are.
func (n *network) sever() {
	n.mu.Lock()
	links := n.links
	n.links = map[*link]struct{}{}
	n.mu.Unlock()
	for l := range links {
		l.cut()
	}
}

func (n *network) freeze() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dead {
		return
	}
	select {
	case <-n.thawed:
		n.thawed = make(chan struct{})
	default:
	}
}

func (n *network) thaw() {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.thawed:
	default:
		close(n.thawed)
	}
}

func (n *network) flow() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.thawed
}

func (n *network) trap(t *trap) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.traps = append(n.traps, t)
}

// requests is how many requests of a kind the process has sent.
func (n *network) requests(key kmsg.Key) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.count[int16(key)]
}

// edit changes what is planned for requests from now on.
func (n *network) edit(f func(key int16, p *plan)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.edits = f
}

// cut ends the connection. A broker that has a join or sync of ours waiting does not learn of it before it answers, as
// when a machine dies: the fake would forget to watch the session of a member whose connection ends while it waits.
func (l *link) cut() {
	l.cutOnce.Do(func() { close(l.dead) })
	_ = l.client.Close()
	if !l.joining() {
		_ = l.broker.Close()
	}
	l.n.mu.Lock()
	delete(l.n.links, l)
	l.n.mu.Unlock()
}

// joining says whether the broker has an unanswered join or sync of this connection.
func (l *link) joining() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.plans {
		if k := kmsg.Key(p.key); k == kmsg.JoinGroup || k == kmsg.SyncGroup {
			return true
		}
	}
	return false
}

// read takes requests off the client and plans what happens to them.
func (l *link) read(out chan<- []byte) {
	defer close(out)
	for {
		f, err := readFrame(l.client)
		if err != nil {
			return
		}
		select {
		case out <- f:
		case <-l.dead:
			return
		}
	}
}

// up brings requests to the broker. Those that a client had sent before it closed its end still arrive, as they do
// from a socket's buffer.
func (l *link) up(in <-chan []byte) {
	defer l.cut()
	for f := range in {
		p := l.n.plan(f)
		if !l.sleep(p.up) {
			return
		}
		if p.dropReq {
			l.n.w.hit("lost-request", p.key)
			return
		}
		if p.kill != nil && p.down < 0 {
			p.kill("before " + keyName(p.key))
			return
		}
		l.mu.Lock()
		l.plans[int32(binary.BigEndian.Uint32(f[8:]))] = p
		l.mu.Unlock()
		if _, err := l.broker.Write(f); err != nil {
			return
		}
	}
}

// down brings replies to the client.
func (l *link) down() {
	defer l.broker.Close()
	defer l.cut()
	for {
		f, err := readFrame(l.broker)
		if err != nil {
			return
		}
		if !l.deliver(f) {
			if l.cut(); !l.joining() {
				return
			}
		}
	}
}

// deliver gives one reply to the client, or does with it what was planned; false ends the connection.
func (l *link) deliver(f []byte) bool {
	corr := int32(binary.BigEndian.Uint32(f[4:]))
	l.mu.Lock()
	p := l.plans[corr]
	delete(l.plans, corr)
	l.mu.Unlock()
	if p.kill != nil {
		p.kill("after " + keyName(p.key))
		return false
	}
	if p.dropReply {
		l.n.w.hit("lost-reply", p.key)
		return false
	}
	if !l.sleep(p.down) {
		return false
	}
	_, err := l.client.Write(f)
	return err == nil
}

// sleep delays a frame, and holds it while the network is frozen.
func (l *link) sleep(d time.Duration) bool {
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-l.dead:
			return false
		}
	}
	select {
	case <-l.n.flow():
		return true
	case <-l.dead:
		return false
	}
}

func readFrame(c net.Conn) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	f := make([]byte, 4+binary.BigEndian.Uint32(size[:]))
	copy(f, size[:])
	_, err := io.ReadFull(c, f[4:])
	return f, err
}

// plan decides by the seed, the process and how many requests of this kind it has sent: so that the decisions of a seed
// stay the same however goroutines are scheduled.
func (n *network) plan(f []byte) plan {
	key := int16(binary.BigEndian.Uint16(f[4:]))
	n.mu.Lock()
	n.count[key]++
	c := n.count[key]
	var kill *trap
	for i, t := range n.traps {
		if t.key == key {
			if t.left--; t.left == 0 {
				kill = t
				n.traps = append(n.traps[:i], n.traps[i+1:]...)
				break
			}
		}
	}
	edits := n.edits
	n.mu.Unlock()
	p := n.drawn(key, c, kill)
	if edits != nil {
		edits(key, &p)
	}
	return p
}

// drawn is what the seed says.
func (n *network) drawn(key int16, c int, kill *trap) plan {
	w := n.w
	h := newHash(w.seed, n.name, uint64(key), uint64(c))
	p := plan{key: key, up: time.Duration(1+h.next()%uint64(w.prof.latency)) * time.Microsecond}
	p.down = time.Duration(1+h.next()%uint64(w.prof.latency)) * time.Microsecond
	if !w.faulty() {
		return p
	}
	if kill != nil && kill.pause > 0 {
		w.note("%s is paused before %s for %v", n.name, keyName(key), kill.pause)
		w.hit("pause before", key)
		n.freeze()
		time.AfterFunc(kill.pause, n.thaw)
		return p
	}
	if kill != nil {
		p.kill = kill.kill
		if !kill.after {
			p.down = -1
		}
		return p
	}
	r := w.prof.lossy(key)
	switch x := h.float(); {
	case x < r:
		p.dropReply = true
	case x < 1.5*r:
		p.dropReq = true
	case x < 3*r:
		p.down += time.Duration(h.next()%3000) * time.Millisecond
		w.hit("late-reply", key)
	case x < 4*r:
		p.up += time.Duration(h.next()%3000) * time.Millisecond
		w.hit("late-request", key)
	}
	return p
}

func keyName(k int16) string { return kmsg.Key(k).Name() }

// hash is a small generator whose start is a hash of what it decides about.
type hash struct{ s uint64 }

func newHash(seed uint64, name string, more ...uint64) *hash {
	h := &hash{seed*0x9e3779b97f4a7c15 + 1}
	for i := range len(name) {
		h.s = (h.s ^ uint64(name[i])) * 0x100000001b3
	}
	for _, m := range more {
		h.s = (h.s ^ h.next()) + m
		h.next()
	}
	return h
}

// next is splitmix64.
func (h *hash) next() uint64 {
	h.s += 0x9e3779b97f4a7c15
	z := h.s
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (h *hash) float() float64 { return float64(h.next()>>11) / (1 << 53) }
