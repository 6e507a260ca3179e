package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/statestore/pebblestore"
	"github.com/millrace-stream/millrace/txn"
)

// Config of a demo run. The zero value, with Out set, is the default run.
type Config struct {
	Brokers  []string      // empty = an embedded broker
	Duration time.Duration // of the generator; default 20 s
	Rate     int           // orders per second; default 2000
	Seed     uint64        // of the generator's orders; 0 = random
	Out      io.Writer
	Terminal bool      // redraw a live view instead of printing lines
	Width    int       // of the terminal, in columns
	Log      io.Writer // where the workers log; nil = nowhere
}

const (
	partitions = 4
	// A real cluster's group.min.session.timeout.ms is 6 s by default; the embedded broker takes less.
	realSession     = 6 * time.Second
	embeddedSession = 3 * time.Second
)

// maxDelay is how much longer than planned a run may take.
const maxDelay = 60 * time.Second

// ErrWrong says that the committed output was not what the input says it must be.
var ErrWrong = errors.New("the committed output is wrong")

// Run runs the demo. The error is ErrWrong after a failed verdict, another one if it could not run to its end.
func Run(ctx context.Context, cfg Config) error {
	if cfg.Duration == 0 {
		cfg.Duration = 20 * time.Second
	}
	embedded := len(cfg.Brokers) == 0
	session := embeddedSession
	if !embedded {
		session = realSession
	}
	// The kill at two fifths and the return at four fifths must leave the group the time to notice.
	cfg.Duration = max(cfg.Duration, 5*session/2+time.Second)
	if cfg.Rate <= 0 {
		cfg.Rate = 2000
	}
	if cfg.Seed == 0 {
		cfg.Seed = rand.Uint64()
	}
	if embedded {
		fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DefaultNumPartitions(partitions), kfake.GroupMinSessionTimeout(time.Second))
		if err != nil {
			return fmt.Errorf("start the embedded broker: %w", err)
		}
		defer fake.Close()
		cfg.Brokers = fake.ListenAddrs()
	}
	dir, err := os.MkdirTemp("", "millrace-demo-")
	if err != nil {
		return fmt.Errorf("make a state directory: %w", err)
	}
	defer os.RemoveAll(dir)

	// kgo counts on DisableClientMetrics for a quick Close.
	cl, err := kgo.NewClient(kgo.SeedBrokers(cfg.Brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableClientMetrics(),
		kgo.MetadataMinAge(250*time.Millisecond), kgo.RecordDeliveryTimeout(30*time.Second))
	if err != nil {
		return err
	}
	defer cl.Close()
	d := &demo{cfg: cfg, cl: cl, dir: dir, session: session, dead: map[string]bool{}, app: fmt.Sprintf("millrace-demo-%08x", uint32(time.Now().UnixNano()))}
	d.in, d.out, d.late = d.app+".orders", d.app+".order-counts", d.app+".orders-late"
	if err := d.makeTopics(ctx); err != nil {
		return err
	}
	if !embedded {
		defer d.removeTopics()
	}
	where := "an embedded broker (" + cfg.Brokers[0] + ")"
	if !embedded {
		where = "the cluster at " + cfg.Brokers[0]
	}
	fmt.Fprintf(cfg.Out, "Millrace demo on %s: %d orders/s for %s, seed %d.\n", where, cfg.Rate, cfg.Duration, cfg.Seed)
	fmt.Fprintf(cfg.Out, "The job counts orders per user in %s windows, exactly once, on two workers; worker B will be killed in mid-transaction.\n\n", windowSize)
	return d.run(ctx)
}

type demo struct {
	cfg           Config
	cl            *kgo.Client
	dir           string
	app           string
	session       time.Duration
	in, out, late string

	gen     *generator
	workers []*worker
	view    *view
	dead    map[string]bool // killed workers
}

// worker is one member of the group, with a network of its own that can be cut.
type worker struct {
	name   string
	engine *engine.Worker
	net    *network
	cancel context.CancelFunc
	done   chan struct{}
	err    error
	store  *pebblestore.Dir
	killed bool
}

func (d *demo) makeTopics(ctx context.Context) error {
	tctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	res, err := kadm.NewClient(d.cl).CreateTopics(tctx, partitions, -1, nil, d.in, d.out, d.late)
	if err == nil {
		err = res.Error()
	}
	if err != nil {
		return fmt.Errorf("create the demo's topics on %v: %w; is the broker reachable, and may this client create topics?", d.cfg.Brokers, err)
	}
	return nil
}

func (d *demo) removeTopics() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	adm := kadm.NewClient(d.cl)
	all, err := adm.ListTopics(ctx)
	if err != nil {
		fmt.Fprintf(d.cfg.Out, "note: the demo's topics %s* were not removed: %v\n", d.app, err)
		return
	}
	var names []string
	for _, n := range all.Names() {
		if len(n) > len(d.app) && n[:len(d.app)] == d.app {
			names = append(names, n)
		}
	}
	if _, err := adm.DeleteTopics(ctx, names...); err != nil {
		fmt.Fprintf(d.cfg.Out, "note: the demo's topics %s* were not removed: %v\n", d.app, err)
	}
	_, _ = adm.DeleteGroups(ctx, d.app) // the group may still have members for a moment; it expires by itself
}

// start begins a worker on its own state directory and network.
func (d *demo) start(ctx context.Context, name string) (*worker, error) {
	t := processor.New()
	topology(d.in, d.out, d.late)(t)
	plan, err := t.Plan()
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.DiscardHandler)
	if d.cfg.Log != nil {
		log = slog.New(slog.NewTextHandler(d.cfg.Log, nil)).With("worker", name)
	}
	store, err := pebblestore.OpenDir(filepath.Join(d.dir, name), d.app, pebblestore.Options{CacheBytes: 16 << 20})
	if err != nil {
		return nil, err
	}
	w := &worker{name: name, net: newNetwork(), done: make(chan struct{}), store: store}
	w.engine = engine.New(engine.Options{
		Plan: plan, Dir: store, LeaveOnStop: true, Logger: log, ShutdownTimeout: 5 * time.Second,
		Kafka: txn.Options{AppID: d.app, Brokers: d.cfg.Brokers, InstanceID: d.app + "-" + name, SessionTimeout: d.session, HeartbeatInterval: 300 * time.Millisecond, Dialer: w.net.dial},
	})
	wctx, cancel := context.WithCancel(ctx)
	w.cancel = cancel
	go func() {
		defer close(w.done)
		w.err = w.engine.Run(wctx)
		if err := store.Close(); err != nil && w.err == nil {
			w.err = err
		}
	}()
	return w, nil
}

func (d *demo) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wctx, wcancel := context.WithCancel(context.WithoutCancel(ctx)) // workers stop when we say so
	defer wcancel()
	a, err := d.start(wctx, "A")
	if err != nil {
		return err
	}
	b, err := d.start(wctx, "B")
	if err != nil {
		wcancel()
		<-a.done
		return err
	}
	d.workers = []*worker{a, b}
	var dead []*worker
	defer func() {
		wcancel()
		for _, w := range append(d.workers, dead...) {
			<-w.done
		}
	}()
	d.gen = &generator{cl: d.cl, topic: d.in, partitions: partitions, rate: d.cfg.Rate, rnd: rand.New(rand.NewPCG(d.cfg.Seed, 1))}
	d.view = newView(d)

	// The generator stops when the time is over and the story is told: killed, taken over, joined again. On a busy
	// machine that may take longer than planned.
	gctx, gcancel := context.WithTimeout(ctx, d.cfg.Duration+maxDelay)
	defer gcancel()
	var genErr error
	var wg sync.WaitGroup
	wg.Go(func() { genErr = d.gen.run(gctx) })
	defer wg.Wait()

	start := time.Now()
	killAt, backAt := start.Add(d.cfg.Duration*2/5), start.Add(d.cfg.Duration*4/5)
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	var back *worker
	for gctx.Err() == nil {
		select {
		case <-gctx.Done():
		case <-tick.C:
		}
		for _, w := range d.workers {
			if !w.killed && finished(w) {
				return fmt.Errorf("worker %s stopped: %w", w.name, w.err)
			}
		}
		now := time.Now()
		switch {
		case !b.killed:
			if now.After(killAt) && d.view.owns("A") > 0 && d.view.owns("B") > 0 && midTransaction(b) {
				d.view.event("worker B is killed: its network is cut in the middle of a transaction (%s)", owned(b))
				b.killed, d.dead[b.name] = true, true
				b.net.cut()
				b.cancel()
			}
		case back == nil:
			if now.After(backAt) && d.view.owns("A") == partitions {
				// B's old self may still be waiting for its dead network: the new one starts beside it, as a restarted
				// container would.
				if back, err = d.start(wctx, "B2"); err != nil {
					return err
				}
				dead = append(dead, b)
				d.workers[1] = back
				d.view.event("a new worker B2 joins")
			}
		case now.Sub(start) >= d.cfg.Duration && d.view.owns("B2") > 0:
			gcancel()
		}
		d.view.draw(now.Sub(start))
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	wg.Wait()
	if genErr != nil {
		return genErr
	}
	if back == nil || d.view.owns("B2") == 0 {
		return fmt.Errorf("the kill and the return of worker B were not over %s after the planned end; is the machine or the broker very busy?", maxDelay)
	}
	d.view.event("the generator stops after %d orders; waiting until all of them are committed", d.gen.sent.Load())
	if err := d.drain(ctx, start); err != nil {
		return err
	}
	d.view.draw(time.Since(start))
	for _, w := range d.workers {
		w.cancel()
	}
	for _, w := range d.workers {
		<-w.done
		if w.err != nil {
			return fmt.Errorf("worker %s: %w", w.name, w.err)
		}
	}
	vctx, vcancel := context.WithTimeout(ctx, time.Minute)
	defer vcancel()
	v, err := judge(vctx, d.cl, d.in, d.out, d.late)
	if err != nil {
		return err
	}
	d.view.end()
	fmt.Fprintf(d.cfg.Out, "\nVerdict, computed from the committed output: %s\n", v.report())
	if !v.ok() {
		return ErrWrong
	}
	return nil
}

// drain waits until the group has committed all of the input.
func (d *demo) drain(ctx context.Context, start time.Time) error {
	dctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	adm := kadm.NewClient(d.cl)
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		lag, err := lagOf(dctx, adm, d.app, d.in)
		if err == nil && lag == 0 {
			return nil
		}
		select {
		case <-dctx.Done():
			return fmt.Errorf("the input was not committed to its end within 30 s: %d orders behind (%w)", lag, errors.Join(err, dctx.Err()))
		case <-tick.C:
		}
		d.view.draw(time.Since(start))
	}
}

func lagOf(ctx context.Context, adm *kadm.Client, group, topic string) (int64, error) {
	ends, err := adm.ListEndOffsets(ctx, topic)
	if err != nil {
		return -1, err
	}
	offs, err := adm.FetchOffsets(ctx, group)
	if err != nil {
		return -1, err
	}
	var lag int64
	ends.Each(func(e kadm.ListedOffset) {
		at := int64(0)
		if o, ok := offs.Lookup(topic, e.Partition); ok {
			at = max(o.At, 0)
		}
		lag += e.Offset - at
	})
	return lag, nil
}

func finished(w *worker) bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// midTransaction says whether a subtask of w has processed records that it has not committed.
func midTransaction(w *worker) bool {
	for _, s := range w.engine.Status().Subtasks {
		for _, p := range s.Inputs {
			if s.State == engine.SubtaskRunning && p.Position > p.Committed && s.RecordsIn > 0 {
				return true
			}
		}
	}
	return false
}
