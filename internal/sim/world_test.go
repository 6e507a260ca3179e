//go:build synctests

package sim

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/statestore/pebblestore"
	"github.com/millrace-stream/millrace/txn"
)

// profile is what a seed sets for a whole run.
type profile struct {
	partitions  int32
	parallelism int // 0 = the engine's choice
	brokers     int
	members     int
	static      bool // static group membership
	leave       bool
	duration    time.Duration // of the faults
	records     int
	keys        int
	latency     int     // of a frame, at most, in microseconds
	loss        float64 // share of requests whose reply is lost; more are lost or late
	errors      float64 // share of requests that an injected error answers
	slowTxn     float64 // share of transactions whose completion takes a while
	latencyMax  time.Duration
	quiet       time.Duration
	behind      time.Duration // write-behind interval
	linger      time.Duration
	tv1         bool // brokers without KIP-890
	// moves: partition leaders move. Consumed repartition records are not deleted then, since the fake forgets the
	// leader epochs of an emptied log and tells consumers that records were lost.
	moves bool
}

func newProfile(r *rand.Rand) profile {
	pick := func(ds ...time.Duration) time.Duration { return ds[r.IntN(len(ds))] }
	p := profile{
		partitions: int32(1 + r.IntN(4)), brokers: 1 + 2*r.IntN(2), members: 1 + r.IntN(3),
		static: r.IntN(2) == 0, leave: r.IntN(2) == 0,
		duration: time.Duration(6+r.IntN(14)) * time.Second, records: 40 + r.IntN(160), keys: 2 + r.IntN(12),
		latency: []int{300, 2000, 20000}[r.IntN(3)],
		loss:    []float64{0, 0.002, 0.01}[r.IntN(3)], errors: []float64{0, 0.005, 0.03}[r.IntN(3)], slowTxn: []float64{0, 0.1, 0.5}[r.IntN(3)],
		latencyMax: pick(100*time.Millisecond, 300*time.Millisecond, time.Second), quiet: pick(25*time.Millisecond, 100*time.Millisecond),
		behind: pick(50*time.Millisecond, time.Second, 5*time.Second), linger: pick(0, 5*time.Millisecond, 50*time.Millisecond),
		tv1: r.IntN(4) == 0, moves: r.IntN(4) == 0,
	}
	if r.IntN(2) == 0 && p.partitions%2 == 0 {
		p.parallelism = 2
	}
	if r.IntN(6) == 0 {
		p.parallelism = 1
	}
	return p
}

// lossy is the share of requests of a kind whose replies are lost: the calls of a transaction are what it is about.
func (p profile) lossy(key int16) float64 {
	switch kmsg.Key(key) {
	case kmsg.EndTxn, kmsg.TxnOffsetCommit, kmsg.InitProducerID, kmsg.AddOffsetsToTxn, kmsg.AddPartitionsToTxn:
		return 4 * p.loss
	case kmsg.Produce, kmsg.OffsetFetch, kmsg.JoinGroup, kmsg.SyncGroup:
		return 2 * p.loss
	case kmsg.Fetch, kmsg.Heartbeat:
		return p.loss / 4
	}
	return p.loss / 2
}

// world is one run of a seed.
type world struct {
	seed   uint64
	prof   profile
	rnd    *rand.Rand // only of the main goroutine
	vn     *kfake.VirtualNetwork
	kafka  *kfake.Cluster
	driver *kgo.Client // of the test itself: no faults on its way
	adm    *kadm.Client
	start  time.Time

	src      *source
	tap      *tap
	bucket   *bucket                             // nil = no checkpoints
	calm     bool                                // few faults, so that most savepoints come to their end
	saving   sync.WaitGroup                      // savepoints that are taken
	job      *task.Plan                          // of the members
	standbys int                                 // members besides the owner that keep a state
	script   func(ctx context.Context, w *world) // in place of the seed's faults
	deploy   deployment                          // of processes that are started from now on
	wide     int                                 // subtasks of each sub-topology in the end; 0 = as the profile says
	members  []*member
	nets     []*network // of all processes that ever were
	lives    int
	disks    []disk // what dead members left behind, for the checkers
	deaths   chan *member
	log      *slog.Logger

	mu        sync.Mutex
	noFaults  bool
	healed    time.Time // since when there are none
	history   []string
	hits      map[string]int
	slow      map[string]time.Time // transactional ids whose completion is under way
	slowAny   time.Time            // the latest of them
	counts    map[string]uint64    // requests by fault
	wrong     []string
	stops     int                             // times that the app was to be stopped
	commands  []*network                      // of processes beside the members
	completed []string                        // savepoints
	rewinds   bool                            // offsets may go back, since the app may go back to a savepoint
	progress  map[record.TopicPartition]int64 // committed offsets as last seen
	engine    bytes.Buffer

	clusterID string
	topicIDs  map[string]string
}

// disk is what lies on a disk that nobody uses any more.
type disk struct {
	name string
	fs   *vfs.MemFS
}

func newWorld(seed uint64) *world {
	w := &world{seed: seed, rnd: rand.New(rand.NewPCG(seed, 0x5eed)), hits: map[string]int{}, slow: map[string]time.Time{},
		counts: map[string]uint64{}, progress: map[record.TopicPartition]int64{}}
	if os.Getenv(envLog) != "" {
		w.log = slog.New(slog.NewTextHandler(lockedWriter{w}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if newHash(seed, "checkpoints").float() < 0.5 {
		w.bucket = newBucket(w)
		if f := newHash(seed, "calm").float(); w.saves() {
			w.calm = f < 0.4 || f < 0.8 && w.incarnations() != ""
		}
	}
	w.standbys = standbys(seed)
	return w
}

func (w *world) faulty() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.noFaults
}

// hit counts an injected fault.
func (w *world) hit(what string, key int16) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if key >= 0 {
		what += " " + keyName(key)
	}
	w.hits[what]++
}

func (w *world) note(format string, a ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.history = append(w.history, fmt.Sprintf("%8.3fs  ", time.Since(w.start).Seconds())+fmt.Sprintf(format, a...))
}

// wrongf is a finding.
func (w *world) wrongf(check, format string, a ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.wrong) < 20 {
		w.wrong = append(w.wrong, check+": "+fmt.Sprintf(format, a...))
	}
}

func (w *world) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.wrong) > 0
}

// fault is an error that brokers answer with.
type fault struct {
	key kmsg.Key
	err *kerr.Error
}

var faults = []fault{
	{kmsg.InitProducerID, kerr.ConcurrentTransactions},
	{kmsg.InitProducerID, kerr.NotCoordinator},
	{kmsg.InitProducerID, kerr.CoordinatorLoadInProgress},
	{kmsg.TxnOffsetCommit, kerr.IllegalGeneration},
	{kmsg.TxnOffsetCommit, kerr.RebalanceInProgress},
	{kmsg.TxnOffsetCommit, kerr.CoordinatorLoadInProgress},
	{kmsg.TxnOffsetCommit, kerr.NotCoordinator},
	{kmsg.TxnOffsetCommit, kerr.UnknownMemberID},
	{kmsg.AddOffsetsToTxn, kerr.ConcurrentTransactions},
	{kmsg.AddPartitionsToTxn, kerr.ConcurrentTransactions},
	{kmsg.EndTxn, kerr.ConcurrentTransactions},
	{kmsg.EndTxn, kerr.NotCoordinator},
	{kmsg.EndTxn, kerr.CoordinatorLoadInProgress},
	{kmsg.EndTxn, kerr.InvalidProducerEpoch},
	{kmsg.EndTxn, kerr.UnknownServerError},
	{kmsg.OffsetFetch, kerr.UnstableOffsetCommit},
	{kmsg.OffsetFetch, kerr.NotCoordinator},
	{kmsg.OffsetFetch, kerr.CoordinatorLoadInProgress},
	{kmsg.Produce, kerr.NotLeaderForPartition},
	{kmsg.Produce, kerr.NotEnoughReplicas},
	{kmsg.Produce, kerr.RequestTimedOut},
	{kmsg.Produce, kerr.InvalidProducerEpoch},
	{kmsg.Heartbeat, kerr.RebalanceInProgress},
	{kmsg.Heartbeat, kerr.UnknownMemberID},
	{kmsg.Heartbeat, kerr.NotCoordinator},
	{kmsg.JoinGroup, kerr.CoordinatorLoadInProgress},
	{kmsg.SyncGroup, kerr.RebalanceInProgress},
	{kmsg.Fetch, kerr.NotLeaderForPartition},
	{kmsg.FindCoordinator, kerr.CoordinatorNotAvailable},
}

// ours says whether a request is the engine's: the driver is left alone.
func ours(r kmsg.Request) bool {
	switch r := r.(type) {
	case *kmsg.ProduceRequest:
		return r.TransactionID != nil
	case *kmsg.OffsetFetchRequest:
		return r.RequireStable // the driver's watcher does not ask for stable offsets
	case *kmsg.FetchRequest:
		return r.MaxWaitMillis != driverWait
	}
	return true
}

const driverWait = 333 // ms, of the driver's fetches

// inject installs the faults of the brokers.
func (w *world) inject() {
	for i, f := range faults {
		name := "error " + f.err.Message
		w.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{f.key}, Err: f.err, Count: -1, When: func(r kmsg.Request) bool {
			if !ours(r) || !w.faulty() {
				return false
			}
			w.mu.Lock()
			id := fmt.Sprint(f.key, i)
			w.counts[id]++
			n := w.counts[id]
			w.mu.Unlock()
			share := w.prof.errors
			switch f.key {
			case kmsg.Fetch:
				share /= 10
			case kmsg.JoinGroup, kmsg.SyncGroup:
				share *= 3
			case kmsg.Produce, kmsg.Heartbeat:
				share /= 3
			}
			if newHash(w.seed, id, n).float() >= share/2 {
				return false
			}
			w.hit(name, int16(f.key))
			return true
		}})
	}
	// The fake completes transactions at once. Real brokers write markers after EndTxn was answered; meanwhile the next
	// transaction of the same id and stable offsets of the group have to wait.
	w.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Count: -1, Observe: true, When: func(r kmsg.Request) bool {
		req := r.(*kmsg.EndTxnRequest)
		if !w.faulty() {
			return false
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.counts["slow"]++
		h := newHash(w.seed, "slow", w.counts["slow"])
		if h.float() >= w.prof.slowTxn {
			return false
		}
		until := time.Now().Add(time.Duration(1+h.next()%400) * time.Millisecond)
		w.slow[req.TransactionalID] = until
		if until.After(w.slowAny) {
			w.slowAny = until
		}
		return false
	}})
	busy := func(id string) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !time.Now().Before(w.slow[id]) {
			return false
		}
		w.hits["slow completion met"]++
		return true
	}
	w.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID, kmsg.AddPartitionsToTxn, kmsg.AddOffsetsToTxn, kmsg.Produce}, Err: kerr.ConcurrentTransactions, Count: -1,
		When: func(r kmsg.Request) bool {
			switch r := r.(type) {
			case *kmsg.InitProducerIDRequest:
				return r.TransactionalID != nil && busy(*r.TransactionalID)
			case *kmsg.AddPartitionsToTxnRequest:
				return busy(r.TransactionalID)
			case *kmsg.AddOffsetsToTxnRequest:
				return busy(r.TransactionalID)
			case *kmsg.ProduceRequest:
				// With KIP-890 a produce adds its partition to the transaction.
				return r.Version >= 12 && r.TransactionID != nil && busy(*r.TransactionID)
			}
			return false
		}})
	w.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Err: kerr.UnstableOffsetCommit, Count: -1, When: func(r kmsg.Request) bool {
		if !ours(r) {
			return false
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if !time.Now().Before(w.slowAny) {
			return false
		}
		w.hits["slow completion unstable"]++
		return true
	}})
	// Consumed repartition records are deleted; the tap must have them first.
	w.kafka.ControlKey(int16(kmsg.DeleteRecords), func(r kmsg.Request) (kmsg.Response, error, bool) {
		w.kafka.KeepControl()
		req := r.(*kmsg.DeleteRecordsRequest)
		if w.prof.moves {
			return nil, errors.New("not now"), true
		}
		w.kafka.SleepControl(func() {
			for _, t := range req.Topics {
				for _, p := range t.Partitions {
					w.tap.await(t.Topic, p.Partition, p.Offset)
				}
			}
		})
		w.hit("repartition records deleted", -1)
		return nil, nil, false
	})
}

// member is one life of a process.
type member struct {
	w      *world
	name   string // of the machine: its disk and instance id
	life   string
	fs     *vfs.MemFS
	dir    *pebblestore.Dir
	net    *network
	worker *engine.Worker
	cancel context.CancelFunc
	done   chan struct{}
	err    error
	ran    atomic.Bool     // a subtask was restored: the start is over
	keeps  map[string]bool // standbys as last seen, and whether they followed; of the main goroutine

	mu      sync.Mutex
	killed  bool
	stopped bool
	crashed *vfs.MemFS // the disk as a crash left it
}

// launch starts a process on a disk.
func (w *world) launch(name string, fs *vfs.MemFS) *member {
	w.lives++
	m := &member{w: w, name: name, life: fmt.Sprintf("%s%d", name, w.lives), fs: fs, done: make(chan struct{})}
	m.net = newNetwork(w, m.life)
	w.nets = append(w.nets, m.net)
	t := processor.New()
	topology(t)
	plan, err := t.Plan()
	if err != nil {
		w.wrongf("start", "plan: %v", err)
		close(m.done)
		return m
	}
	w.job = plan
	m.dir, err = pebblestore.OpenDir("state", app, pebblestore.Options{FS: fs, CacheBytes: 1 << 20, MinFreeBytes: -1})
	if err != nil {
		w.wrongf("start", "open the state directory of %s: %v", m.life, err)
		close(m.done)
		return m
	}
	instance := ""
	if w.prof.static {
		instance = app + "-" + name
	}
	log, client := slog.New(slog.DiscardHandler), slog.New(slog.DiscardHandler)
	if w.log != nil {
		log = w.log.With("member", m.life)
		if os.Getenv(envLog) == "2" {
			client = log
		}
	}
	var checkpoints engine.Checkpoints
	if w.bucket != nil {
		checkpoints = engine.Checkpoints{Blobs: w.bucket, Interval: 300 * time.Millisecond, MinPause: 50 * time.Millisecond, Timeout: 2 * time.Second,
			Grace: 3 * time.Second, Retain: 2, Prefer: true, Inline: -1}
	}
	var bulk engine.Bulk
	if len(w.nets)%2 == 0 { // every other life reads changelogs in bulk
		bulk = engine.Bulk{Records: 1, Bytes: 512}
	}
	m.worker = engine.New(engine.Options{
		Plan: plan, Dir: m.dir, Checkpoints: checkpoints, Bulk: bulk, Standbys: w.standbys, CleanupDelay: w.cleanup(), Parallelism: cmp.Or(w.deploy.parallelism, w.prof.parallelism), Start: w.deploy.start,
		CommitMaxLatency: w.prof.latencyMax, CommitQuiet: w.prof.quiet, WriteBehindInterval: w.prof.behind, CacheBytes: 1 << 20,
		LeaveOnStop: w.prof.leave, ShutdownTimeout: 5 * time.Second, BackoffMax: 2 * time.Second, MaxAttempts: 30,
		Logger: log, Observer: observer{w, m},
		Kafka: txn.Options{
			AppID: app, Brokers: w.kafka.ListenAddrs(), InstanceID: instance, Dialer: m.net.dial,
			SessionTimeout: 3 * time.Second, HeartbeatInterval: 500 * time.Millisecond, RebalanceTimeout: 8 * time.Second,
			TransactionTimeout: 8 * time.Second, RequestTimeout: 5 * time.Second,
			FetchMinBytes: 1, FetchMaxWait: 500 * time.Millisecond, Linger: w.prof.linger, Logger: client,
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	w.note("%s starts", m.life)
	go func() {
		defer close(m.done)
		m.err = m.worker.Run(ctx)
		if err := m.dir.Close(); err != nil && m.err == nil {
			m.err = err
		}
		select {
		case w.deaths <- m:
		default:
		}
	}()
	return m
}

// kill ends the process at once: its network is cut, and what its disk holds is what had been synced and a random part
// of the rest.
func (m *member) kill(how string) {
	m.mu.Lock()
	if m.killed || m.stopped {
		m.mu.Unlock()
		return
	}
	m.killed = true
	m.mu.Unlock()
	m.net.cut()
	h := newHash(m.w.seed, m.life, 7)
	percent := int(h.next() % 101)
	crashed := m.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(m.w.seed, h.next()))})
	m.mu.Lock()
	m.crashed = crashed
	m.mu.Unlock()
	m.w.note("%s is killed %s; %d%% of unsynced data is on its disk", m.life, how, percent)
	m.w.hit("kill "+how, -1)
	m.cancel()
}

func (m *member) dead() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.killed
}

// observer counts what the engine went through.
type observer struct {
	w *world
	m *member
}

func (o observer) CommitDone(id record.SubtaskID, outcome string, _ time.Duration) {
	o.w.hit("outcome "+outcome, -1)
}

func (o observer) RestoreDone(_ record.SubtaskID, way string, records, _ int64, _ time.Duration) {
	o.m.ran.Store(true)
	o.w.hit("restore from "+way, -1)
	if records > 0 {
		o.w.hit("restore of records", -1)
	}
}

func (o observer) OffsetsSkipped(record.TopicPartition, int64) {}

func (o observer) CheckpointDone(_ record.SubtaskID, ok bool, _ int64, _ time.Duration) {
	if ok {
		o.w.hit("checkpoint", -1)
	}
}

func (o observer) SubtaskRestarted(_ record.SubtaskID, reason string) {
	o.w.hit("restart "+reason, -1)
}

// pause waits; in a bubble that takes no time.
func pause(d time.Duration) { <-time.After(d) }

// run runs the seed. Findings are in w.wrong.
func (w *world) run() {
	w.start = time.Now()
	w.deaths = make(chan *member, 64)
	w.vn = &kfake.VirtualNetwork{}
	ports := []int{9092, 9093, 9094}[:w.prof.brokers]
	opts := []kfake.Opt{kfake.NumBrokers(w.prof.brokers), kfake.Ports(ports...), kfake.ListenFn(w.vn.Listen), kfake.GroupMinSessionTimeout(time.Second),
		kfake.DefaultNumPartitions(int(w.prof.partitions)), kfake.SleepOutOfOrder(),
		kfake.SeedTopics(w.prof.partitions, topicIn, topicDirect, topicTotals, topicCounts, topicSums, topicDCounts)}
	var err error
	if w.kafka, err = kfake.NewCluster(opts...); err != nil {
		w.wrongf("start", "%v", err)
		return
	}
	defer w.kafka.Close()
	clientOpts := []kgo.Opt{kgo.SeedBrokers(w.kafka.ListenAddrs()...), kgo.Dialer(w.vn.DialContext), kgo.DisableClientMetrics(), kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.RetryTimeout(time.Minute)}
	if w.driver, err = kgo.NewClient(clientOpts...); err != nil {
		w.wrongf("start", "%v", err)
		return
	}
	defer w.driver.Close()
	w.adm = kadm.NewClient(w.driver)
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	if w.prof.tv1 {
		if err := w.lowerTransactionVersion(ctx); err != nil {
			w.wrongf("start", "lower transaction.version: %v", err)
			return
		}
	}
	if w.tap, err = newTap(clientOpts); err != nil {
		w.wrongf("start", "%v", err)
		return
	}
	defer w.tap.close()
	defer func() { // a process that ended by itself while its network stood still has left connections behind
		for _, n := range append(w.nets, w.commands...) {
			n.cut()
		}
	}()
	w.inject()
	w.src = newSource(w.rnd, w.prof.partitions, w.prof.keys)

	if w.script != nil {
		w.script(ctx, w)
	} else {
		w.faultPhase(ctx)
	}
	w.heal(ctx)
	ok := w.drain(ctx)
	w.stopAll()
	if !ok {
		return
	}
	topics, err := w.adm.ListTopics(ctx)
	if err != nil {
		w.wrongf("harness", "list topics: %v", err)
		return
	}
	meta, err := w.adm.BrokerMetadata(ctx)
	if err != nil {
		w.wrongf("harness", "metadata: %v", err)
		return
	}
	w.clusterID, w.topicIDs = meta.Cluster, map[string]string{}
	for name, t := range topics {
		w.topicIDs[name] = txn.TopicIDString(t.ID)
	}
	w.check(ctx)
}

// lowerTransactionVersion makes the brokers such as have no KIP-890.
func (w *world) lowerTransactionVersion(ctx context.Context) error {
	req := kmsg.NewPtrUpdateFeaturesRequest()
	f := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	f.Feature, f.MaxVersionLevel, f.AllowDowngrade, f.UpgradeType = "transaction.version", 1, true, 2
	req.FeatureUpdates = append(req.FeatureUpdates, f)
	resp, err := req.RequestWith(ctx, w.driver)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}

func (w *world) send(ins ...input) {
	for _, in := range ins {
		w.driver.Produce(context.Background(), &kgo.Record{Topic: in.topic, Partition: in.partition, Key: []byte(in.key), Value: in.value()}, func(_ *kgo.Record, err error) {
			if err != nil {
				w.wrongf("harness", "send: %v", err)
			}
		})
	}
}

// traps are the requests at which processes are killed, before and after the broker has handled one.
var traps = []kmsg.Key{kmsg.EndTxn, kmsg.EndTxn, kmsg.TxnOffsetCommit, kmsg.InitProducerID, kmsg.Produce, kmsg.OffsetFetch, kmsg.Fetch, kmsg.JoinGroup, kmsg.SyncGroup}

// pauses are the requests at which processes are paused: those that a zombie must not get through.
var pauses = []kmsg.Key{kmsg.EndTxn, kmsg.TxnOffsetCommit, kmsg.TxnOffsetCommit, kmsg.InitProducerID, kmsg.Produce}

// action is something that happens at a time.
type action struct {
	at time.Duration
	do func()
}

// faultPhase runs what the seed has planned.
func (w *world) faultPhase(ctx context.Context) {
	r := w.rnd
	var todo []action
	plan := func(at time.Duration, do func()) {
		todo = append(todo, action{at, do})
		slices.SortStableFunc(todo, func(a, b action) int { return int(a.at - b.at) })
	}
	within := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
	names := []string{"A", "B", "C", "D"}
	early := []kmsg.Key{kmsg.InitProducerID, kmsg.InitProducerID, kmsg.JoinGroup, kmsg.SyncGroup, kmsg.OffsetFetch}
	for i := range w.prof.members {
		k, left, after := r.IntN(4*len(early)), 1+r.IntN(2), r.IntN(2) == 0
		plan(within(time.Second), func() {
			m := w.launch(names[i], vfs.NewCrashableMem())
			w.members = append(w.members, m)
			if k < len(early) {
				// A start has requests that are rare later.
				m.net.trap(&trap{key: int16(early[k]), left: left, after: after, kill: m.kill})
			}
		})
	}
	if w.prof.members < len(names) && r.IntN(2) == 0 {
		plan(within(w.prof.duration), func() { w.members = append(w.members, w.launch(names[w.prof.members], vfs.NewCrashableMem())) })
	}
	// Input comes in bursts, with pauses between them.
	for left := w.prof.records; left > 0; {
		n := min(left, 1+r.IntN(12))
		left -= n
		plan(within(w.prof.duration), func() {
			for range n {
				topic := topicIn
				if r.IntN(3) == 0 {
					topic = topicDirect
				}
				w.send(w.src.next(topic))
			}
		})
	}
	anyone := func() *member {
		var up []*member
		for _, m := range w.members {
			if !m.dead() {
				up = append(up, m)
			}
		}
		if len(up) == 0 {
			return nil
		}
		return up[r.IntN(len(up))]
	}
	for range w.accidents(1 + r.IntN(6)) {
		at := time.Second + within(w.prof.duration-time.Second)
		switch k := r.IntN(13); {
		case k < 2:
			plan(at, func() {
				if m := anyone(); m != nil {
					m.kill("at once")
				}
			})
		case k < 6:
			key, left, after := traps[r.IntN(len(traps))], 1+r.IntN(8), r.IntN(2) == 0
			if key == kmsg.JoinGroup || key == kmsg.SyncGroup || key == kmsg.InitProducerID {
				left = 1 // there are few
			}
			plan(at, func() {
				if m := anyone(); m != nil {
					m.net.trap(&trap{key: int16(key), left: left, after: after, kill: m.kill})
				}
			})
		case k < 7:
			plan(at, func() {
				if m := anyone(); m != nil && m.stop("gracefully") {
					w.hit("graceful stop", -1)
				}
			})
		case k < 9:
			d, key, now := time.Second+within(8*time.Second), pauses[r.IntN(len(pauses))], r.IntN(2) == 0
			plan(at, func() {
				m := anyone()
				if m == nil {
					return
				}
				if !now {
					// Longer than a session, and now and then than a transaction may be open.
					m.net.trap(&trap{key: int16(key), left: 1, pause: 3*time.Second + d*3/4})
					return
				}
				w.note("%s is paused for %v", m.life, d)
				w.hit("pause", -1)
				m.net.freeze()
				plan(at+d, func() { w.note("%s goes on", m.life); m.net.thaw() })
			})
		case k < 10:
			plan(at, func() {
				if m := anyone(); m != nil {
					w.note("the connections of %s break", m.life)
					w.hit("connections broken", -1)
					m.net.sever()
				}
			})
		case k < 11 && w.prof.members > 1:
			plan(at, func() {
				for _, m := range slices.Clone(w.members) {
					m.kill("with all others")
				}
			})
		case !w.prof.moves:
			plan(at, func() { w.note("coordinators move"); w.hit("coordinators moved", -1); w.kafka.RehashCoordinators() })
		default:
			plan(at, func() { w.note("leaders move"); w.hit("leaders moved", -1); w.kafka.ShufflePartitionLeaders() })
		}
	}
	for at := time.Second; at < w.prof.duration; at += time.Second {
		plan(at, func() { _, _ = w.watch(ctx) }) // for the offsets; the lag is what it is
	}
	w.planSavepoints(plan)
	w.planIncarnations(plan, anyone)
	end := time.After(w.prof.duration)
	for {
		var next <-chan time.Time
		if len(todo) > 0 {
			next = time.After(max(todo[0].at-time.Since(w.start), 0))
		}
		select {
		case <-next:
			do := todo[0].do
			todo = todo[1:]
			do()
		case m := <-w.deaths:
			w.buried(m)
			back := within(5 * time.Second)
			if r.IntN(3) == 0 {
				back = 0
			}
			withDisk := r.IntN(4) != 0
			plan(time.Since(w.start)+back, func() { w.relaunch(m, withDisk) })
		case <-end:
			// Frozen members thaw now; the dead come back in heal.
			for _, m := range w.members {
				m.net.thaw()
			}
			return
		}
	}
}

// await waits for the end of a process that was killed or stopped. One that never ends would keep the bubble going for
// ever, so that is the end of the whole test.
func (m *member) await() {
	select {
	case <-m.done:
	case <-time.After(5 * time.Minute):
		m.w.wrongf("end", "%s did not end within 5 minutes", m.life)
		panic(m.w.report())
	}
}

// stop asks a member to end gracefully.
func (m *member) stop(how string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.killed || m.stopped {
		return false
	}
	m.stopped = true
	m.w.note("%s is stopped %s", m.life, how)
	m.cancel()
	return true
}

// buried notes the end of a process. One that ended by itself with an error is a finding.
func (w *world) buried(m *member) {
	if m.dead() {
		return
	}
	w.note("%s has ended: %v", m.life, m.err)
	switch {
	case m.err != nil && !m.ran.Load() && (w.faulty() || time.Since(w.healed) < 15*time.Second):
		w.hit("start failed", -1) // its supervisor starts it again
	case m.err != nil && w.stopped(m) && strings.Contains(m.err.Error(), "did not commit in time"):
		w.hit("graceful stop timed out", -1)
	case m.err != nil && w.stopped(m) && strings.Contains(m.err.Error(), "without a last commit"):
		w.hit("graceful stop without commit", -1)
	case m.err != nil:
		w.wrongf("worker", "%s ended: %v", m.life, m.err)
	}
	m.mu.Lock()
	m.killed, m.crashed = true, m.fs
	m.mu.Unlock()
}

// relaunch starts a process again on the disk of a dead one, or on a new one.
func (w *world) relaunch(m *member, withDisk bool) {
	i := slices.Index(w.members, m)
	if i < 0 {
		return
	}
	m.mu.Lock()
	fs := m.crashed
	m.mu.Unlock()
	if !withDisk {
		w.disks = append(w.disks, disk{m.life, fs})
		w.hit("restart without disk", -1)
		fs = vfs.NewCrashableMem()
	} else {
		// A copy is kept for the checkers: what a crash leaves must be good, whatever comes after.
		w.disks = append(w.disks, disk{m.life, fs.CrashClone(vfs.CrashCloneCfg{})})
		w.hit("restart with disk", -1)
	}
	w.members[i] = w.launch(m.name, fs)
}

// heal ends all faults and brings every process back.
func (w *world) heal(ctx context.Context) {
	w.mu.Lock()
	w.noFaults, w.healed = true, time.Now()
	w.mu.Unlock()
	w.note("the faults end")
	w.saving.Wait()
	w.resume()
	for _, m := range slices.Clone(w.members) {
		if m.dead() || m.isStopped() {
			m.await()
			w.buried(m)
			w.relaunch(m, true)
		}
	}
	for {
		select {
		case m := <-w.deaths:
			w.buried(m)
			w.relaunch(m, true)
			continue
		default:
		}
		break
	}
	if len(w.members) == 0 {
		w.members = append(w.members, w.launch("A", vfs.NewCrashableMem()))
	}
	if w.script == nil {
		w.send(w.src.closing()...)
	}
	if err := w.driver.Flush(ctx); err != nil {
		w.wrongf("harness", "flush: %v", err)
	}
}

// stopped says that a member was to end: it was told to, or the whole app was.
func (w *world) stopped(m *member) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stops > 0 || m.isStopped()
}

func (m *member) isStopped() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stopped
}

// drainTime is how long the app may take to get to the end of its input after the faults stopped: a session, a
// transaction time-out, takeovers.
const drainTime = 90 * time.Second

// drain waits until nothing is left to do: all lags stay 0.
func (w *world) drain(ctx context.Context) bool {
	healed, kicked := time.Now(), false
	still := 0
	joins := map[*member]int{}
	for _, m := range w.members {
		joins[m] = m.net.requests(kmsg.JoinGroup)
	}
	for time.Since(healed) < drainTime {
		pause(500 * time.Millisecond)
		select {
		case m := <-w.deaths: // of a fault that was under way, or of a start that one had spoilt
			w.buried(m)
			w.relaunch(m, true)
		default:
		}
		lag, err := w.watch(ctx)
		if err == nil && lag == 0 {
			if still++; still > 6 {
				w.note("drained after %v", time.Since(healed))
				w.checkStatus()
				return true
			}
			continue
		}
		still = 0
		if w.failed() {
			return false
		}
		if !kicked && time.Since(healed) > drainTime/2 && w.rebalanceStuck(ctx, joins) {
			kicked = true
			w.kick()
			healed = time.Now()
		}
	}
	lag, err := w.watch(ctx)
	w.wrongf("lag", "%v after the faults stopped the lag is %d (%v)", drainTime, lag, err)
	if groups, err := w.adm.DescribeGroups(ctx, app); err == nil {
		g := groups[app]
		w.note("the group is %s, its leader %s, %d members", g.State, g.Coordinator.Host, len(g.Members))
		for _, gm := range g.Members {
			w.note("group member %s, instance %v, client %s, assigned %v", gm.MemberID, gm.InstanceID, gm.ClientID, gm.Assigned)
		}
	}
	for _, m := range w.members {
		if m.worker != nil {
			for _, s := range m.worker.Status().Subtasks {
				w.note("%s: subtask %s is %s, lag %d, epoch %d: %s", m.life, s.ID, s.State, s.Lag, s.Epoch, s.Error)
			}
		}
	}
	return false
}

// checkStatus compares what the members tell of themselves: before long each subtask runs on one of them, without lag.
// A member whose session was lost may still wait for its next word when all is drained.
func (w *world) checkStatus() {
	var wrong []string
	for range int(drainTime / time.Second) {
		if wrong = w.status(); len(wrong) == 0 {
			return
		}
		pause(time.Second)
	}
	for _, s := range wrong {
		w.wrongf("status", "%s", s)
	}
}

func (w *world) status() (wrong []string) {
	if w.incarnations() != "" {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err := w.command(ctx, nil, func(_ *txn.Cluster, control *txn.Control) error {
			w.wide = control.State().Parallelism[0]
			return nil
		})
		if err != nil {
			return []string{err.Error()}
		}
	}
	wrongf := func(format string, a ...any) { wrong = append(wrong, fmt.Sprintf(format, a...)) }
	owners := map[string]string{}
	for _, m := range w.members {
		if m.dead() {
			continue
		}
		for _, s := range m.worker.Status().Subtasks {
			if s.State != engine.SubtaskRunning || s.Lag != 0 {
				wrongf("%s: subtask %s is %s with lag %d when all is drained: %s", m.life, s.ID, s.State, s.Lag, s.Error)
			}
			if other, ok := owners[s.ID]; ok {
				wrongf("subtask %s runs on %s and on %s", s.ID, other, m.life)
			}
			owners[s.ID] = m.life
		}
	}
	if n := w.width(); len(owners) != 3*n {
		wrongf("%d of %d subtasks run", len(owners), 3*n)
	}
	return append(wrong, w.standbysAtRest()...)
}

// hitStuck counts runs in which the fake broker got stuck: it miscounts who has joined when a member goes that waits for
// its assignment, and it starts its rebalance timer again with every join, so that a rebalance may never end.
const hitStuck = "the fake's rebalance was stuck"

// kick gets the fake going again: its timer runs out when nobody joins for a while.
func (w *world) kick() {
	w.note("the fake's rebalance is stuck: all networks stand still for a while")
	w.hit(hitStuck, -1)
	for _, m := range w.members {
		m.net.freeze()
	}
	pause(12 * time.Second)
	for _, m := range w.members {
		m.net.thaw()
	}
}

// rebalanceStuck says whether that has happened: the group still rebalances though every member joins again and again.
func (w *world) rebalanceStuck(ctx context.Context, joins map[*member]int) bool {
	groups, err := w.adm.DescribeGroups(ctx, app)
	if err != nil || groups[app].State != "PreparingRebalance" {
		return false
	}
	for _, m := range w.members {
		if m.net.requests(kmsg.JoinGroup)-joins[m] < 2 {
			return false
		}
	}
	return true
}

// watch compares the committed offsets with what they were, and gives the lag.
func (w *world) watch(ctx context.Context) (int64, error) {
	w.watchStandbys()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	topics := []string{topicIn, topicDirect, repartition(w.newest())}
	w.mu.Lock()
	rewinds := w.rewinds
	w.mu.Unlock()
	ends, err := w.adm.ListEndOffsets(ctx, topics...)
	if err != nil {
		return -1, err
	}
	offs, err := w.adm.FetchOffsets(ctx, app)
	if err != nil {
		return -1, err
	}
	var lag int64
	for _, topic := range topics {
		if len(ends[topic]) == 0 {
			return -1, errors.New("topic " + topic + " is not there yet")
		}
		for p, e := range ends[topic] {
			if e.Err != nil {
				return -1, e.Err
			}
			at := int64(0)
			if o, ok := offs.Lookup(topic, p); ok && o.At > 0 {
				at = o.At
			}
			tp := record.TopicPartition{Topic: topic, Partition: p}
			if was := w.progress[tp]; at < was && !rewinds {
				w.wrongf("monotone", "the committed offset of %s went from %d back to %d", tp, was, at)
			}
			w.progress[tp] = at
			lag += e.Offset - at
		}
	}
	return lag, nil
}

// stopAll stops every member gracefully, and waits for the goroutines of the dead.
func (w *world) stopAll() {
	for _, m := range w.members {
		if m.worker != nil && !m.dead() {
			m.stop("at the end")
		}
	}
	for _, m := range w.members {
		m.await()
		if m.err != nil && !m.dead() {
			w.wrongf("worker", "%s ended: %v", m.life, m.err)
		}
		if !m.dead() {
			w.disks = append(w.disks, disk{m.life, m.fs})
		}
	}
}

func (w *world) report() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %+v\n", w.seed, w.prof)
	for _, s := range w.wrong {
		b.WriteString("  WRONG " + s + "\n")
	}
	b.WriteString("history:\n")
	for _, s := range w.history {
		b.WriteString("  " + s + "\n")
	}
	if w.engine.Len() > 0 {
		b.WriteString("engine's log:\n" + w.engine.String())
	}
	return b.String()
}
