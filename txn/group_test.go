package txn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/testutil"
)

// testLayout has two sub-topologies: 4 subtasks over topics a (8 partitions) and b (4), and 2 over c (2).
func testLayout() Layout {
	return Layout{Version: 1, Fingerprint: "fp-1", Subs: []LayoutSub{
		{ID: 0, Parallelism: 4, Inputs: []LayoutInput{{"a", 8}, {"b", 4}}},
		{ID: 1, Parallelism: 2, Inputs: []LayoutInput{{"c", 2}}},
	}}
}

func groupKafka(t *testing.T) *kfake.Cluster {
	return fakeKafka(t, kfake.SeedTopics(8, "a"), kfake.SeedTopics(4, "b"), kfake.SeedTopics(2, "c"))
}

// world watches all members of a test: who owns a subtask, by their handlers' traces.
type world struct {
	mu    sync.Mutex
	owner map[record.SubtaskID]string
	fault error
}

// member is a Group with a handler that checks the rules and writes a trace.
type member struct {
	name string
	c    *Cluster
	g    *Group
	w    *world
	net  *cutter
	busy atomicFlag

	mu    sync.Mutex
	ready chan struct{} // closed when g is set
	owned map[record.SubtaskID]bool
	trace []string
	// onRevoked, if set, runs within Revoked.
	onRevoked func(ctx context.Context, ids []record.SubtaskID)
}

// atomicFlag finds out whether two calls overlap.
type atomicFlag struct{ ch chan struct{} }

func (w *world) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fault == nil {
		w.fault = fmt.Errorf(format, args...)
	}
}

func (m *member) enter(what string, ids []record.SubtaskID) func() {
	select {
	case m.busy.ch <- struct{}{}:
	default:
		m.w.fail("%s: %s while another callback runs", m.name, what)
	}
	m.mu.Lock()
	if len(ids) == 0 && (what != "assigned" || len(m.trace) > 0) {
		m.w.fail("%s: %s without subtasks", m.name, what)
	}
	m.trace = append(m.trace, fmt.Sprintf("%s %v", what, ids))
	m.mu.Unlock()
	<-m.ready
	return func() { <-m.busy.ch }
}

func (m *member) Assigned(ids []record.SubtaskID) {
	defer m.enter("assigned", ids)()
	for _, id := range ids {
		m.w.mu.Lock()
		if by := m.w.owner[id]; by != "" && m.w.fault == nil {
			m.w.fault = fmt.Errorf("%s is given to %s while %s has it", id, m.name, by)
		}
		m.w.owner[id] = m.name
		m.w.mu.Unlock()
		m.mu.Lock()
		m.owned[id] = true
		m.mu.Unlock()
		if o, ok := m.g.Ownership(id); !ok || o.MemberID == "" || o.Generation < 0 {
			m.w.fail("%s: assigned %s, but ownership is %+v, %v", m.name, id, o, ok)
		}
	}
}

func (m *member) Revoked(ctx context.Context, ids []record.SubtaskID) {
	defer m.enter("revoked", ids)()
	if _, ok := ctx.Deadline(); !ok {
		m.w.fail("%s: revoked without a deadline", m.name)
	}
	for _, id := range ids {
		if _, ok := m.g.Ownership(id); !ok {
			m.w.fail("%s: %s is revoked and not ours any more before we are through", m.name, id)
		}
	}
	if m.onRevoked != nil {
		m.onRevoked(ctx, ids)
	}
	m.drop(ids)
}

func (m *member) Lost(ids []record.SubtaskID) {
	defer m.enter("lost", ids)()
	for _, id := range ids {
		if o, ok := m.g.Ownership(id); ok {
			m.w.fail("%s: %s is lost, but ownership is %+v", m.name, id, o)
		}
	}
	m.drop(ids)
}

func (m *member) drop(ids []record.SubtaskID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	for _, id := range ids {
		if !m.owned[id] && m.w.fault == nil {
			m.w.fault = fmt.Errorf("%s gives up %s, which it does not have", m.name, id)
		}
		delete(m.owned, id)
		if m.w.owner[id] == m.name {
			delete(m.w.owner, id)
		}
	}
}

func (m *member) has() []record.SubtaskID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.SortedFunc(maps.Keys(m.owned), record.SubtaskID.Compare)
}

func (m *member) traceLen() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.trace)
}

// kill cuts the network and forgets the member, as the death of its process would.
func (m *member) kill() {
	m.net.kill()
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	for id, by := range m.w.owner {
		if by == m.name {
			delete(m.w.owner, id)
		}
	}
}

func newWorld(t *testing.T) *world {
	w := &world{owner: make(map[record.SubtaskID]string)}
	t.Cleanup(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.fault != nil {
			t.Error(w.fault)
		}
	})
	return w
}

// join starts a member; it is closed at the test's end.
func (w *world) join(t *testing.T, k []string, name string, l Layout, edit func(*Options)) *member {
	t.Helper()
	m := &member{
		name: name, w: w, net: &cutter{}, ready: make(chan struct{}), owned: make(map[record.SubtaskID]bool),
		busy: atomicFlag{make(chan struct{}, 1)},
	}
	m.c = connect(t, k, func(o *Options) {
		o.Dialer = m.net.dial
		if edit != nil {
			edit(o)
		}
	})
	g, err := m.c.Join(t.Context(), l, m)
	if err != nil {
		t.Fatal(err)
	}
	m.g = g
	close(m.ready)
	t.Cleanup(func() {
		// A member that was killed before cannot leave in order.
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		m.net.mu.Lock()
		if m.net.cut {
			cancel()
		}
		m.net.mu.Unlock()
		_ = m.g.Close(ctx, true)
		if left := m.has(); len(left) > 0 {
			t.Errorf("%s still has %v after Close", name, left)
		}
	})
	return m
}

// settle waits until the members own everything, evenly, and nobody else does.
func settle(t *testing.T, l Layout, members ...*member) {
	t.Helper()
	testutil.Eventually(t, patience, func() error {
		seen := make(map[record.SubtaskID]string)
		lo, hi := 1<<30, 0
		for _, m := range members {
			ids := m.has()
			lo, hi = min(lo, len(ids)), max(hi, len(ids))
			for _, id := range ids {
				if by, ok := seen[id]; ok {
					return fmt.Errorf("%s is owned by %s and %s", id, by, m.name)
				}
				seen[id] = m.name
				if _, ok := m.g.Ownership(id); !ok {
					return fmt.Errorf("%s: no ownership of %s", m.name, id)
				}
			}
		}
		if want := len(l.subtasks()); len(seen) != want || hi-lo > 1 {
			return fmt.Errorf("%d of %d subtasks are owned: %v", len(seen), want, seen)
		}
		return nil
	})
}

func TestGroupJoinLeaveKill(t *testing.T) {
	t.Parallel()
	k := groupKafka(t).ListenAddrs()
	w := newWorld(t)
	l := testLayout()
	m1 := w.join(t, k, "m1", l, nil)
	settle(t, l, m1)
	first := m1.has()
	m2 := w.join(t, k, "m2", l, nil)
	settle(t, l, m1, m2)
	m3 := w.join(t, k, "m3", l, nil)
	m4 := w.join(t, k, "m4", l, nil)
	settle(t, l, m1, m2, m3, m4)
	for _, id := range m1.has() {
		if !slices.Contains(first, id) {
			t.Errorf("m1 was given %s although it had more than enough", id)
		}
	}

	// Leaving in order: everything is revoked, nothing lost.
	if err := m2.g.Close(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	settle(t, l, m1, m3, m4)
	if trace := m2.trace; !strings.HasPrefix(trace[len(trace)-1], "revoked") {
		t.Errorf("trace of the member that left: %q", trace)
	}
	if _, ok := m2.g.Ownership(l.subtasks()[0]); ok {
		t.Error("a closed group still owns something")
	}

	// Dying: the session time-out brings the subtasks to the others; the dead one loses them too.
	m3.kill()
	settle(t, l, m1, m4)
	testutil.Eventually(t, patience, func() error {
		if left := m3.has(); len(left) > 0 {
			return fmt.Errorf("the member that was cut off still has %v", left)
		}
		return nil
	})
}

func TestGroupWaitChange(t *testing.T) {
	k := groupKafka(t).ListenAddrs()
	w := newWorld(t)
	l := testLayout()
	m1 := w.join(t, k, "m1", l, nil)
	settle(t, l, m1)
	id := l.subtasks()[0]
	before, _ := m1.g.Ownership(id)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m1.g.WaitChange(ctx, before); !errors.Is(err, context.Canceled) {
		t.Fatalf("nothing has changed, got %v", err)
	}
	// The word that a subtask has while it is revoked is that of the new generation, so that it can be committed.
	var during Ownership
	m1.onRevoked = func(_ context.Context, ids []record.SubtaskID) { during, _ = m1.g.Ownership(ids[0]) }
	m2 := w.join(t, k, "m2", l, nil)
	if err := m1.g.WaitChange(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	settle(t, l, m1, m2)
	after, ok := m1.g.Ownership(m1.has()[0])
	if !ok || after.Generation <= before.Generation || after.MemberID != before.MemberID {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if during.Generation <= before.Generation || during.Generation > after.Generation {
		t.Errorf("before %+v, while revoked %+v, after %+v", before, during, after)
	}
	if err := m1.g.Close(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if err := m1.g.WaitChange(t.Context(), after); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestGroupRevokedWaitsForItsDeadline(t *testing.T) {
	t.Parallel()
	k := groupKafka(t).ListenAddrs()
	w := newWorld(t)
	l := testLayout()
	m1 := w.join(t, k, "m1", l, func(o *Options) { o.RebalanceTimeout = 2 * time.Second })
	settle(t, l, m1)
	ended := make(chan error, 8)
	m1.onRevoked = func(ctx context.Context, _ []record.SubtaskID) {
		<-ctx.Done()
		ended <- ctx.Err()
	}
	m2 := w.join(t, k, "m2", l, nil)
	settle(t, l, m1, m2)
	if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Revoked ended with %v", err)
	}
}

// TestGroupStaticRestart: a static member that goes without leaving and comes back within its session gets its
// subtasks back, and nobody else notices.
func TestGroupStaticRestart(t *testing.T) {
	k := groupKafka(t).ListenAddrs()
	w := newWorld(t)
	l := testLayout()
	static := func(id string) func(*Options) {
		return func(o *Options) { o.InstanceID, o.SessionTimeout = id, 2*patience }
	}
	m1 := w.join(t, k, "m1", l, static("i1"))
	settle(t, l, m1)
	m2 := w.join(t, k, "m2", l, static("i2"))
	settle(t, l, m1, m2)
	had, trace := m2.has(), m1.traceLen()
	word, _ := m1.g.Ownership(m1.has()[0])
	if word.InstanceID != "i1" {
		t.Errorf("ownership of a static member is %+v", word)
	}

	if err := m2.g.Close(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	again := w.join(t, k, "m2 again", l, static("i2"))
	settle(t, l, m1, again)
	if got := again.has(); !slices.Equal(got, had) {
		t.Errorf("had %v, came back to %v", had, got)
	}
	if got := m1.traceLen(); got != trace {
		t.Errorf("the other member noticed: %q", m1.trace[trace:])
	}

	// With leave, also a static member goes at once.
	if err := again.g.Close(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	settle(t, l, m1)
}

func TestGroupFencedInstance(t *testing.T) {
	k := groupKafka(t).ListenAddrs()
	w := newWorld(t)
	l := testLayout()
	static := func(o *Options) { o.InstanceID = "i1" }
	m1 := w.join(t, k, "m1", l, static)
	settle(t, l, m1)
	w.mu.Lock()
	clear(w.owner) // the second process takes over before the first one knows
	w.mu.Unlock()
	m2 := w.join(t, k, "m2", l, static)
	if err := wait(t, m1.g); !errors.Is(err, ErrFencedInstance) || !strings.Contains(err.Error(), `"i1"`) {
		t.Errorf("the first one ends with %v", err)
	}
	// The newcomer stays: no flapping.
	settle(t, l, m2)
	testutil.Eventually(t, patience, func() error {
		if left := m1.has(); len(left) > 0 {
			return fmt.Errorf("the fenced member still has %v", left)
		}
		return nil
	})
	if err := m1.g.Close(t.Context(), true); err != nil {
		t.Error(err)
	}
	settle(t, l, m2)
}

func wait(t *testing.T, g *Group) error {
	t.Helper()
	select {
	case err := <-g.Err():
		return err
	case <-time.After(patience):
		t.Fatal("the group did not end")
		return nil
	}
}

func TestGroupOtherTopology(t *testing.T) {
	t.Parallel()
	k := groupKafka(t).ListenAddrs()
	w := newWorld(t)
	l := testLayout()
	m1 := w.join(t, k, "m1", l, nil)
	settle(t, l, m1)
	other := l
	other.Fingerprint = "fp-2"
	m2 := w.join(t, k, "m2", other, nil)
	err := wait(t, m2.g)
	if !errors.Is(err, ErrTopologyDiffers) || !strings.Contains(err.Error(), "fp-1") || !strings.Contains(err.Error(), "fp-2") {
		t.Errorf("got %v", err)
	}
	if m2.traceLen() > 0 {
		t.Errorf("a member of another topology was given something: %q", m2.trace)
	}
	settle(t, l, m1)
}

// TestGroupTopologyChangeWithStaticMembers: all members stop without leaving and come back with another topology
// before their sessions are over. The broker gives them their old assignment; they must not take it.
func TestGroupTopologyChangeWithStaticMembers(t *testing.T) {
	k := groupKafka(t).ListenAddrs()
	w := newWorld(t)
	l := testLayout()
	static := func(id string) func(*Options) {
		return func(o *Options) { o.InstanceID, o.SessionTimeout = id, 4*time.Second }
	}
	m1 := w.join(t, k, "m1", l, static("i1"))
	m2 := w.join(t, k, "m2", l, static("i2"))
	settle(t, l, m1, m2)
	for _, m := range []*member{m1, m2} {
		if err := m.g.Close(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	l2 := l
	l2.Fingerprint, l2.Subs = "fp-2", slices.Clone(l.Subs)
	l2.Subs[0].Parallelism = 2 // other subtasks from the same partitions
	n1 := w.join(t, k, "n1", l2, static("i1"))
	n2 := w.join(t, k, "n2", l2, static("i2"))
	settle(t, l2, n1, n2)
}

func TestGroupForeignConsumer(t *testing.T) {
	k := groupKafka(t).ListenAddrs()
	cl, err := kgo.NewClient(kgo.SeedBrokers(k...), kgo.ConsumerGroup("app"), kgo.ConsumeTopics("a"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	testutil.Eventually(t, patience, func() error {
		gs, err := adm.DescribeGroups(t.Context(), "app")
		if err == nil && gs["app"].State != "Stable" {
			err = errors.New(gs["app"].State)
		}
		return err
	})
	w := newWorld(t)
	m := w.join(t, k, "m", testLayout(), nil)
	if err := wait(t, m.g); !errors.Is(err, ErrGroupProtocol) {
		t.Errorf("got %v", err)
	}
}

func TestGroupAuthorization(t *testing.T) {
	kc := groupKafka(t)
	kc.ControlKey(int16(kmsg.JoinGroup), func(req kmsg.Request) (kmsg.Response, error, bool) {
		kc.KeepControl()
		resp := req.ResponseKind().(*kmsg.JoinGroupResponse)
		resp.ErrorCode = kerr.GroupAuthorizationFailed.Code
		return resp, nil, true
	})
	w := newWorld(t)
	m := w.join(t, kc.ListenAddrs(), "m", testLayout(), nil)
	err := wait(t, m.g)
	if !errors.Is(err, ErrAuthorization) || !strings.Contains(err.Error(), "group app") {
		t.Errorf("got %v", err)
	}
}

func TestJoinChecksTopics(t *testing.T) {
	c := connect(t, groupKafka(t).ListenAddrs(), nil)
	for name, edit := range map[string]func(*Layout){
		"missing": func(l *Layout) { l.Subs[1].Inputs[0].Topic = "nothere" },
		"grown":   func(l *Layout) { l.Subs[1].Inputs[0].Partitions = 4 },
	} {
		l := testLayout()
		edit(&l)
		_, err := c.Join(t.Context(), l, nil)
		var te *TopicError
		if !errors.As(err, &te) || te.Topic != l.Subs[1].Inputs[0].Topic {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestGroupNeverFetches: the group client is a member and nothing more.
func TestGroupNeverFetches(t *testing.T) {
	kc := groupKafka(t)
	var mu sync.Mutex
	bad := make(map[string]int)
	kc.Control(func(req kmsg.Request) (kmsg.Response, error, bool) {
		kc.KeepControl()
		switch kmsg.Key(req.Key()) {
		case kmsg.Fetch, kmsg.OffsetCommit, kmsg.ListOffsets:
			mu.Lock()
			bad[kmsg.NameForKey(req.Key())]++
			mu.Unlock()
		}
		return nil, nil, false
	})
	w := newWorld(t)
	l := testLayout()
	m1 := w.join(t, kc.ListenAddrs(), "m1", l, nil)
	m2 := w.join(t, kc.ListenAddrs(), "m2", l, nil)
	settle(t, l, m1, m2)
	for _, m := range []*member{m1, m2} {
		if err := m.g.Close(t.Context(), true); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(bad) > 0 {
		t.Errorf("the group client sent %v", bad)
	}
}

// TestGroupCloseIsBounded: a join that hangs on other members, and a handler that takes long.
func TestGroupCloseIsBounded(t *testing.T) {
	k := groupKafka(t).ListenAddrs()
	w := newWorld(t)
	l := testLayout()
	m := w.join(t, k, "m", l, nil)
	settle(t, l, m)
	m.onRevoked = func(ctx context.Context, _ []record.SubtaskID) { <-ctx.Done() }
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- m.g.Close(ctx, true) }()
	select {
	case err := <-done:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close returned %v", err)
		}
	case <-time.After(patience):
		t.Fatal("Close hangs")
	}
}

// TestClientOptions: with kgo's own minimum of 5 s between two metadata requests, a new topic or a moved leader costs
// up to 5 s of silence.
func TestClientOptions(t *testing.T) {
	k := groupKafka(t).ListenAddrs()
	m := newWorld(t).join(t, k, "m", testLayout(), nil)
	for name, cl := range map[string]*kgo.Client{"cluster": m.c.cl, "group": m.g.cl, "consumer": newConsumer(t, m.c).cl} {
		if got := cl.OptValue(kgo.MetadataMinAge); got != 250*time.Millisecond {
			t.Errorf("%s: MetadataMinAge is %v", name, got)
		}
		if got := cl.OptValue(kgo.DisableClientMetrics); got != true {
			t.Errorf("%s: DisableClientMetrics is %v", name, got)
		}
		if got := cl.OptValue(kgo.ClientID); got != "millrace-app" {
			t.Errorf("%s: ClientID is %v", name, got)
		}
	}
}

func TestSameProgram(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{{"0af3", "0af3-i2", true}, {"0af3-i2", "0af3-i3", true}, {"0af3", "0af4-i2", false}, {"fp-1", "fp-2", false}} {
		if sameProgram(c.a, c.b) != c.same {
			t.Errorf("%s and %s: want the same program %v", c.a, c.b, c.same)
		}
	}
}
