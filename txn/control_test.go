package txn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millrace-stream/millrace/internal/testutil"
)

func controlApp(t *testing.T, brokers []string, app string) *Control {
	t.Helper()
	c := connect(t, brokers, func(o *Options) { o.AppID = app })
	ctl, err := c.OpenControl(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ctl.Close)
	return ctl
}

func newApp() string { return fmt.Sprintf("ctl%d-%d", time.Now().UnixNano()%1e9, rigs.Add(1)) }

// testControlRace: of all that race for a revision exactly one gets it, and nobody's write is lost.
func testControlRace(t *testing.T, brokers []string) {
	const writers, rounds = 8, 3
	app := newApp()
	var controls []*Control
	for range writers {
		controls = append(controls, controlApp(t, brokers, app))
	}
	taken := errors.New("taken")
	for round := range uint64(rounds) {
		var wins atomic.Int64
		var wg sync.WaitGroup
		for i, ctl := range controls {
			wg.Go(func() {
				_, err := ctl.Update(t.Context(), func(s ControlState) (ControlState, error) {
					if s.Incarnation != round {
						return s, taken
					}
					s.Incarnation++
					s.Fingerprint = fmt.Sprint(i)
					return s, nil
				})
				switch {
				case err == nil:
					wins.Add(1)
				case !errors.Is(err, taken):
					t.Errorf("writer %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		if wins.Load() != 1 {
			t.Fatalf("round %d: %d winners, want 1", round, wins.Load())
		}
	}
	if s := controlApp(t, brokers, app).State(); s.Incarnation != rounds || s.Revision != rounds {
		t.Errorf("state %+v, want %d revisions", s, rounds)
	}
}

func testControlFollow(t *testing.T, brokers []string) {
	app := newApp()
	a, b := controlApp(t, brokers, app), controlApp(t, brokers, app)
	ctx, cancel := context.WithCancel(t.Context())
	seen := make(chan ControlState, 10)
	done := make(chan error, 1)
	go func() { done <- b.Follow(ctx, func(s ControlState) { seen <- s }) }()
	want := ControlState{ClusterID: "c", Incarnation: 3, Fingerprint: "f", Topology: json.RawMessage(`{"subs":[1]}`),
		TopicIDs: map[string]string{"t": "id"}, Parallelism: []int{4, 2}}
	got, err := a.Update(t.Context(), func(s ControlState) (ControlState, error) {
		if s.Revision != 0 || s.ClusterID != "" {
			t.Errorf("first state %+v, want an empty one", s)
		}
		return want, nil
	})
	want.Revision = 1
	if err != nil || !same(got, want) || !same(a.State(), want) {
		t.Fatalf("update: %+v (%v)", got, err)
	}
	select {
	case s := <-seen:
		if !same(s, want) {
			t.Errorf("followed %+v, want %+v", s, want)
		}
	case <-time.After(patience):
		t.Fatal("the follower saw nothing")
	}
	testutil.Eventually(t, patience, func() error {
		if s := b.State(); !same(s, want) {
			return fmt.Errorf("state %+v", s)
		}
		return nil
	})
	// Who follows is told of its own updates too, whoever read them first.
	want.Incarnation++
	want.Revision++
	if got, err := b.Update(t.Context(), func(s ControlState) (ControlState, error) { s.Incarnation++; return s, nil }); err != nil || !same(got, want) {
		t.Errorf("second update: %+v, %v", got, err)
	}
	select {
	case s := <-seen:
		if !same(s, want) {
			t.Errorf("followed %+v, want %+v", s, want)
		}
	case <-time.After(patience):
		t.Fatal("the follower saw nothing of its own update")
	}
	// A state returned unchanged is not written, an error changes nothing.
	if got, err := b.Update(t.Context(), func(s ControlState) (ControlState, error) { return s, nil }); err != nil || got.Revision != 2 {
		t.Errorf("no change: %+v, %v", got, err)
	}
	no := errors.New("no")
	if _, err := b.Update(t.Context(), func(s ControlState) (ControlState, error) { s.Incarnation++; return s, no }); !errors.Is(err, no) {
		t.Errorf("refused: %v", err)
	}
	if s := controlApp(t, brokers, app).State(); !same(s, want) {
		t.Errorf("reopened: %+v, want %+v", s, want)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Follow ended with %v", err)
	}
}

// TestControlLostAnswer: an update whose EndTxn went through and whose answer was lost is not made twice.
func TestControlLostAnswer(t *testing.T) {
	k := fakeKafka(t)
	proxy := testutil.NewProxy(t, k.ListenAddrs()[0])
	c := connect(t, k.ListenAddrs(), func(o *Options) {
		o.RequestTimeout = 500 * time.Millisecond
		o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, proxy.Addr())
		}
	})
	ctl, err := c.OpenControl(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ctl.Close)
	// Longer than one request may take, shorter than the whole update.
	f := k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Observe: true, When: func(kmsg.Request) bool {
		proxy.DropReplies()
		time.AfterFunc(700*time.Millisecond, func() { proxy.Cut(); proxy.Restore() })
		return true
	}})
	calls := 0
	s, err := ctl.Update(t.Context(), func(s ControlState) (ControlState, error) {
		calls++
		s.Incarnation++
		return s, nil
	})
	if err != nil || s.Incarnation != 1 || s.Revision != 1 || calls != 1 || f.Hits() != 1 {
		t.Errorf("%+v (%v), %d decisions, want one", s, err, calls)
	}
}

// TestControlBusyCoordinator: answers that say nothing of the outcome start the update again.
func TestControlBusyCoordinator(t *testing.T) {
	k := fakeKafka(t)
	ctl := controlApp(t, k.ListenAddrs(), "app")
	f := k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Err: kerr.UnknownServerError, Count: 2},
		kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.ConcurrentTransactions, Count: 2})
	s, err := ctl.Update(t.Context(), func(s ControlState) (ControlState, error) { s.Incarnation++; return s, nil })
	if err != nil || s.Incarnation != 1 || s.Revision != 1 || f.Hits() != 4 {
		t.Errorf("%+v (%v), %d of 4 faults", s, err, f.Hits())
	}
}

func TestControlVersion(t *testing.T) {
	k := fakeKafka(t)
	controlApp(t, k.ListenAddrs(), "app")
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.ListenAddrs()...), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "app-control", Key: controlKey, Value: []byte(`{"version":2}`)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	c := connect(t, k.ListenAddrs(), nil)
	if _, err := c.OpenControl(t.Context()); !errors.Is(err, ErrControlVersion) || !IsFatal(err) || !strings.Contains(err.Error(), "app-control/0") {
		t.Errorf("got %v", err)
	}
}

func TestControlAuthorization(t *testing.T) {
	k := fakeKafka(t)
	ctl := controlApp(t, k.ListenAddrs(), "app")
	f := k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.TransactionalIDAuthorizationFailed, Count: -1})
	_, err := ctl.Update(t.Context(), func(s ControlState) (ControlState, error) { return s, nil })
	if !errors.Is(err, ErrAuthorization) || f.Hits() == 0 || !strings.Contains(err.Error(), "app-control") {
		t.Errorf("got %v after %d faults", err, f.Hits())
	}
}

// TestControlFollowFromOpen: whoever follows late is told what came since the topic was opened, and reading old records
// again does not turn the state back.
func TestControlFollowFromOpen(t *testing.T) {
	k := fakeKafka(t)
	c := connect(t, k.ListenAddrs(), func(o *Options) { o.FetchMaxPartBytes = 1 }) // one record at a time
	ctl, err := c.OpenControl(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ctl.Close)
	for range 3 {
		if _, err := ctl.Update(t.Context(), func(s ControlState) (ControlState, error) { s.Incarnation++; return s, nil }); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var seen []uint64
	err = ctl.Follow(ctx, func(s ControlState) {
		seen = append(seen, s.Revision)
		if now := ctl.State().Revision; now != 3 {
			t.Errorf("while revision %d is read again the state is revision %d, want 3", s.Revision, now)
		}
		if s.Revision == 3 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || fmt.Sprint(seen) != "[1 2 3]" {
		t.Errorf("followed %v (%v), want revisions 1 to 3", seen, err)
	}
	cancel()
}

// The network goes down while the record is on its way: kgo does not give a record up that a broker may have.
func TestControlUpdateEndsWithoutNetwork(t *testing.T) {
	k := fakeKafka(t)
	var net cutter
	c := connect(t, k.ListenAddrs(), func(o *Options) { o.Dialer, o.RequestTimeout = net.dial, 200*time.Millisecond })
	ctl, err := c.OpenControl(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ctl.Close)
	k.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		net.kill()
		return nil, nil, true // no answer
	})
	done := make(chan error, 1)
	go func() {
		_, err := ctl.Update(t.Context(), func(s ControlState) (ControlState, error) { s.Incarnation++; return s, nil })
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil {
			t.Error("update without a network succeeded")
		}
	case <-time.After(patience):
		t.Fatal("update does not end")
	}
}

// A process was killed while it wrote the control topic: its transaction is open until it times out, which is longer
// than a request may take. The next start waits for it.
func TestOpenControlWaitsForDeadWriter(t *testing.T) {
	t.Parallel()
	k := fakeKafka(t)
	c := connect(t, k.ListenAddrs(), func(o *Options) { o.RequestTimeout, o.TransactionTimeout = 500*time.Millisecond, 2*time.Second })
	ctl, err := c.OpenControl(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctl.Close()
	dead, err := kgo.NewClient(kgo.SeedBrokers(k.ListenAddrs()...), kgo.TransactionalID("app-control"), kgo.TransactionTimeout(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if err := dead.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := dead.ProduceSync(t.Context(), &kgo.Record{Topic: "app-control", Key: controlKey, Value: []byte("{}")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	dead.CloseAllowingRebalance()
	ctl, err = c.OpenControl(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctl.Close()
}
