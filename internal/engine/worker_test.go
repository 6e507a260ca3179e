package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
	"github.com/millrace-stream/millrace/txn"
)

func TestMain(m *testing.M) { testutil.Main(m) }

const (
	patience = 30 * time.Second
	nparts   = 4
)

type word struct {
	Text string `json:"text"`
	N    int64  `json:"n"`
}

// cluster is an embedded broker with the topics "in" and "out".
type cluster struct {
	t       *testing.T
	cl      *kgo.Client
	brokers []string
}

func newCluster(t *testing.T) *cluster {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(nparts, "in", "out"), kfake.GroupMinSessionTimeout(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	cl, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...), kgo.DisableClientMetrics(), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return &cluster{t, cl, fake.ListenAddrs()}
}

func (c *cluster) send(n int, keys int) {
	c.t.Helper()
	var rs []*kgo.Record
	for i := range n {
		text := fmt.Sprintf("word-%d", i%keys)
		v, err := json.Marshal(word{text, int64(i)})
		if err != nil {
			c.t.Fatal(err)
		}
		// The record key is not the word, so that counting words needs a repartition topic.
		rs = append(rs, &kgo.Record{Topic: "in", Key: fmt.Append(nil, i), Value: v})
	}
	if err := c.cl.ProduceSync(c.t.Context(), rs...).FirstErr(); err != nil {
		c.t.Fatal(err)
	}
}

// read returns what a read_committed consumer finds in a topic.
func (c *cluster) read(topic string) []*kgo.Record {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	ends, err := kadm.NewClient(c.cl).ListCommittedOffsets(ctx, topic)
	if err != nil {
		c.t.Fatal(err)
	}
	at, left := map[int32]kgo.Offset{}, map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			at[o.Partition], left[o.Partition] = kgo.NewOffset().At(0), o.Offset
		}
	})
	rd, err := kgo.NewClient(append(c.cl.Opts(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: at}), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())...)
	if err != nil {
		c.t.Fatal(err)
	}
	defer rd.Close()
	var out []*kgo.Record
	for len(left) > 0 {
		fs := rd.PollFetches(ctx)
		if err := fs.Err0(); err != nil {
			c.t.Fatal(err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() && r.Offset < left[r.Partition] {
				out = append(out, r)
			}
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	return out
}

// countWords counts words through a repartition topic.
func countWords(t *processor.Topology) {
	words := processor.From(t, processor.Topic[word]{Name: "in"})
	byText := processor.KeyBy(words, "by-text", func(w word) string { return w.Text })
	processor.ToTopic(processor.RunningAggregate(byText, "count", processor.Count[word](), func(text string, n int64, _ word) word { return word{text, n} }), "out")
}

// member is a worker under test.
type member struct {
	w      *engine.Worker
	cancel context.CancelFunc
	done   chan struct{}
	err    error
	log    *testutil.Log
}

func (c *cluster) start(app string, topology func(*processor.Topology), dir statestore.Dir, change func(*engine.Options)) *member {
	c.t.Helper()
	top := processor.New()
	topology(top)
	plan, err := top.Plan()
	if err != nil {
		c.t.Fatal(err)
	}
	instance, err := dir.InstanceID()
	if err != nil {
		c.t.Fatal(err)
	}
	m := &member{done: make(chan struct{}), log: &testutil.Log{}}
	o := engine.Options{Plan: plan, Dir: dir, LeaveOnStop: true, Logger: slog.New(slog.NewTextHandler(m.log, nil)),
		BackoffMin: time.Millisecond, BackoffMax: 10 * time.Millisecond, MaxAttempts: 3,
		Kafka: txn.Options{AppID: app, Brokers: c.brokers, InstanceID: instance, SessionTimeout: 2 * time.Second, HeartbeatInterval: 100 * time.Millisecond,
			RebalanceTimeout: 10 * time.Second}} // for as long kfake waits for a member that is cut off in a rebalance
	if change != nil {
		change(&o)
	}
	m.w = engine.New(o)
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	go func() {
		defer close(m.done)
		m.err = m.w.Run(ctx)
	}()
	c.t.Cleanup(func() {
		cancel()
		<-m.done
		if c.t.Failed() {
			c.t.Log(m.log.String())
		}
	})
	return m
}

// stop ends a member gracefully.
func (m *member) stop(t *testing.T) {
	t.Helper()
	m.cancel()
	if err := m.wait(t); err != nil {
		t.Fatalf("graceful stop: %v", err)
	}
}

func (m *member) wait(t *testing.T) error {
	t.Helper()
	select {
	case <-m.done:
		return m.err
	case <-time.After(patience):
		t.Fatalf("the worker has not ended:\n%s", m.log.String())
		return nil
	}
}

func (c *cluster) lag(app string, topics ...string) (int64, error) {
	adm := kadm.NewClient(c.cl)
	ends, err := adm.ListEndOffsets(c.t.Context(), topics...)
	if err != nil {
		return 0, err
	}
	offs, err := adm.FetchOffsets(c.t.Context(), app)
	if err != nil {
		return 0, err
	}
	var lag int64
	ends.Each(func(e kadm.ListedOffset) {
		at := int64(0)
		if o, ok := offs.Lookup(e.Topic, e.Partition); ok {
			at = max(o.At, 0)
		}
		lag += e.Offset - at
	})
	return lag, nil
}

// drained waits until the app has committed all of its inputs.
func (c *cluster) drained(app string, topics ...string) {
	c.t.Helper()
	for _, topic := range topics { // one after the other: the end of a repartition topic is known once its input is committed
		testutil.Eventually(c.t, patience, func() error {
			lag, err := c.lag(app, topic)
			if err == nil && lag != 0 {
				err = fmt.Errorf("%s: lag %d", topic, lag)
			}
			return err
		})
	}
}

// checkCounts verifies that the counts of each word are 1, 2, 3 ... n.
func checkCounts(t *testing.T, out []*kgo.Record, n, keys int) {
	t.Helper()
	last := map[string]int64{}
	for _, r := range out {
		var w word
		if err := json.Unmarshal(r.Value, &w); err != nil {
			t.Fatal(err)
		}
		if w.N != last[w.Text]+1 {
			t.Fatalf("%s/%d offset %d: count %d of %s follows %d", r.Topic, r.Partition, r.Offset, w.N, w.Text, last[w.Text])
		}
		if want := format.Partition([]byte(w.Text), nparts); string(r.Key) != w.Text || r.Partition != want {
			t.Fatalf("row of %s has key %s and lies on partition %d, want %d", w.Text, r.Key, r.Partition, want)
		}
		last[w.Text] = w.N
	}
	if len(out) != n || len(last) != keys {
		t.Fatalf("%d rows of %d words, want %d of %d", len(out), len(last), n, keys)
	}
}

// TestRepartition counts by another key than the records', on two workers that come and go, and checks that consumed
// repartition records are deleted.
func TestRepartition(t *testing.T) {
	c := newCluster(t)
	quick := func(o *engine.Options) { o.HouseKeeping = 50 * time.Millisecond }
	a := c.start("words", countWords, memstore.NewDir("words"), quick)
	c.send(1000, 37)
	b := c.start("words", countWords, memstore.NewDir("words"), quick)
	testutil.Eventually(t, patience, func() error {
		if n := len(b.w.Status().Subtasks); n != nparts {
			return fmt.Errorf("the second worker has %d subtasks of %d", n, 2*nparts)
		}
		return nil
	})
	c.send(1000, 37)
	c.drained("words", "in", "words-by-text-repartition")
	a.stop(t)
	c.send(1000, 37)
	c.drained("words", "in", "words-by-text-repartition")
	checkCounts(t, c.read("out"), 3000, 37)
	testutil.Eventually(t, patience, func() error {
		starts, err := kadm.NewClient(c.cl).ListStartOffsets(t.Context(), "words-by-text-repartition")
		if err != nil {
			return err
		}
		kept := 0
		starts.Each(func(o kadm.ListedOffset) {
			if o.Offset == 0 {
				kept++
			}
		})
		if kept > 0 {
			return fmt.Errorf("%d partitions still begin at 0", kept)
		}
		return nil
	})
	if st := b.w.Status(); st.State != engine.StateRunning || len(st.Subtasks) != 2*nparts || st.Subtasks[0].Commits == 0 {
		t.Errorf("status %+v", st)
	}
	b.stop(t)
	if st := b.w.Status(); st.State != engine.StateStopped {
		t.Errorf("state %s after the stop", st.State)
	}
}

// TestOffsetsResetByHand moves the group's offsets (I2): the start refuses, names both positions, and each of the two
// ways on works.
func TestOffsetsResetByHand(t *testing.T) {
	c := newCluster(t)
	dir := memstore.NewDir("words")
	a := c.start("words", countWords, dir, nil)
	c.send(400, 11)
	c.drained("words", "in", "words-by-text-repartition")
	a.stop(t)
	adm := kadm.NewClient(c.cl)
	reset := func(at int64) int64 {
		t.Helper()
		offs, err := adm.FetchOffsets(t.Context(), "words")
		if err != nil {
			t.Fatal(err)
		}
		was, _ := offs.Lookup("in", 0)
		var to kadm.Offsets
		to.AddOffset("in", 0, at, -1)
		if err := adm.CommitAllOffsets(t.Context(), "words", to); err != nil {
			t.Fatal(err)
		}
		return was.At
	}
	was := reset(3)
	b := c.start("words", countWords, dir, nil)
	err := b.wait(t)
	if err == nil || !strings.Contains(err.Error(), "in/0") || !strings.Contains(err.Error(), "committed offset is 3") || !strings.Contains(err.Error(), fmt.Sprint("up to ", was)) || !strings.Contains(err.Error(), "start.offsets") {
		t.Fatalf("start after a reset: %v", err)
	}
	if st := b.w.Status(); st.State != engine.StateFailed || st.Error == "" {
		t.Errorf("status %+v", st)
	}
	d := c.start("words", countWords, dir, func(o *engine.Options) { o.StartOffsets = "state" })
	c.drained("words", "in", "words-by-text-repartition")
	d.stop(t)
	checkCounts(t, c.read("out"), 400, 11)
	reset(was - 2)
	e := c.start("words", countWords, dir, func(o *engine.Options) { o.StartOffsets = "group" })
	testutil.Eventually(t, patience, func() error {
		if n := len(c.read("out")); n != 402 {
			return fmt.Errorf("%d rows, want the two read again", n)
		}
		return nil
	})
	e.stop(t)
}

// TestIncompatibleTopology starts programs that cannot take the old state over.
func TestIncompatibleTopology(t *testing.T) {
	c := newCluster(t)
	dir := memstore.NewDir("words")
	a := c.start("words", countWords, dir, nil)
	c.send(100, 5)
	c.drained("words", "in", "words-by-text-repartition")
	a.stop(t)
	other := func(id string) func(*processor.Topology) {
		return func(top *processor.Topology) {
			byText := processor.KeyBy(processor.From(top, processor.Topic[word]{Name: "in"}), "by-text", func(w word) string { return w.Text })
			processor.ToTopic(processor.RunningAggregate(byText, id, processor.Count[word](), func(text string, n int64, _ word) word { return word{text, n} }), "out")
		}
	}
	b := c.start("words", other("total"), dir, nil)
	if err := b.wait(t); err == nil || !strings.Contains(err.Error(), "count     value  dropped") || !strings.Contains(err.Error(), "total     value  new") {
		t.Fatalf("operator renamed: %v", err)
	}
	d := c.start("words", other("total"), dir, func(o *engine.Options) { o.AllowDroppedState = true })
	c.send(5, 5)
	c.drained("words", "in", "words-by-text-repartition")
	d.stop(t)
	if n := len(c.read("out")); n != 105 {
		t.Fatalf("%d rows, want 105", n)
	}
}

// TestFailingFunction runs a user function that always fails on one record, with the policy fail: the worker tries
// again a few times and then gives up, saying where.
func TestFailingFunction(t *testing.T) {
	for _, how := range []string{"error", "panic"} {
		t.Run(how, func(t *testing.T) {
			c := newCluster(t)
			var calls int
			var mu sync.Mutex
			topology := func(top *processor.Topology) {
				words := processor.From(top, processor.Topic[word]{Name: "in"})
				processor.ToTopic(processor.TryMap(words, func(w word) (word, error) {
					if w.N == 17 {
						mu.Lock()
						calls++
						mu.Unlock()
						if how == "panic" {
							panic("seventeen")
						}
						return w, errors.New("seventeen")
					}
					return w, nil
				}, processor.Name("check"), processor.OnError(processor.Fail)), "out")
			}
			a := c.start("words", topology, memstore.NewDir("words"), nil)
			c.send(50, 3)
			err := a.wait(t)
			if err == nil || !strings.Contains(err.Error(), "seventeen") || !strings.Contains(err.Error(), "topic in") || !strings.Contains(err.Error(), "check") {
				t.Fatalf("error %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			if calls != 4 {
				t.Errorf("the record was tried %d times, want 1 and 3 again", calls)
			}
			for _, r := range c.read("out") {
				if bytes.Contains(r.Value, []byte(`"n":17}`)) {
					t.Errorf("a row of the failed record: %s", r.Value)
				}
			}
		})
	}
}

// noValue is what an expression panics with that has no value for a record.
type noValue struct{}

func (noValue) Error() string { return "division by zero" }
func (noValue) Expected()     {}

// TestBadRecordStops: what fails in the same way at every attempt is tried once. Another attempt would come in an hour.
func TestBadRecordStops(t *testing.T) {
	for how, value := range map[string]string{"decode": "{", "expression": `{"text":"a","n":17}`} {
		t.Run(how, func(t *testing.T) {
			c := newCluster(t)
			topology := func(top *processor.Topology) {
				words := processor.From(top, processor.Topic[word]{Name: "in"}, processor.Name("decode"), processor.OnError(processor.Fail))
				processor.ToTopic(processor.Map(words, func(w word) word {
					if w.N == 17 {
						panic(noValue{})
					}
					return w
				}, processor.Name("expression")), "out")
			}
			a := c.start("words", topology, memstore.NewDir("words"), func(o *engine.Options) { o.BackoffMin, o.BackoffMax = time.Hour, time.Hour })
			if err := c.cl.ProduceSync(t.Context(), &kgo.Record{Topic: "in", Value: []byte(value)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			err := a.wait(t)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range []string{"topic in partition ", "offset 0", `operator "` + how + `"`, "start it again"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %v; want %q in it", err, want)
				}
			}
			if got := strings.Contains(err.Error(), "errors.decode"); got != (how == "decode") {
				t.Errorf("error %v; errors.decode in it: %t", err, got)
			}
		})
	}
}

// TestStandby starts more members than there are subtasks: one that is given none is running all the same, ready to take
// over.
func TestStandby(t *testing.T) {
	c := newCluster(t)
	one := func(o *engine.Options) { o.Parallelism = 1 }
	copyAll := func(top *processor.Topology) {
		processor.ToTopic(processor.From(top, processor.Topic[word]{Name: "in"}), "out")
	}
	members := []*member{
		c.start("standby", copyAll, memstore.NewDir("standby"), one),
		c.start("standby", copyAll, memstore.NewDir("standby"), one),
	}
	testutil.Eventually(t, patience, func() error {
		owned := 0
		for i, m := range members {
			st := m.w.Status()
			if st.State != engine.StateRunning {
				return fmt.Errorf("member %d is %s", i, st.State)
			}
			owned += len(st.Subtasks)
		}
		if owned != 1 {
			return fmt.Errorf("%d subtasks run, want 1", owned)
		}
		return nil
	})
}

// TestOwners asks each of two members who owns what.
func TestOwners(t *testing.T) {
	c := newCluster(t)
	often := func(o *engine.Options) { o.HouseKeeping = 50 * time.Millisecond }
	members := []*member{
		c.start("words", countWords, memstore.NewDir("words"), often),
		c.start("words", countWords, memstore.NewDir("words"), often),
	}
	testutil.Eventually(t, patience, func() error {
		has := map[string]string{} // by subtask
		for _, m := range members {
			st := m.w.Status()
			for _, s := range st.Subtasks {
				has[s.ID] = st.Instance
			}
			if len(st.Subtasks) != nparts {
				return fmt.Errorf("%s has %d subtasks", st.Instance, len(st.Subtasks))
			}
		}
		for _, m := range members {
			st := m.w.Status()
			if len(st.Owners) != 2*nparts {
				return fmt.Errorf("%s knows %d subtasks", st.Instance, len(st.Owners))
			}
			for _, o := range st.Owners {
				if o.Member != has[o.Subtask] || o.Local != (o.Member == st.Instance) || o.Host == "" {
					return fmt.Errorf("%s says of %s: %+v, want %s", st.Instance, o.Subtask, o, has[o.Subtask])
				}
			}
		}
		return nil
	})
}

// TestLargeState keeps a value that the changelog does not take: the worker stops at once, names the state, and says
// what to do.
func TestLargeState(t *testing.T) {
	c := newCluster(t)
	m := c.start("large", func(top *processor.Topology) {
		words := processor.FromKeyed(top, format.String(), processor.Topic[word]{Name: "in"})
		processor.ToTopic(processor.Process(words, "hoard", func(ctx *processor.KeyedContext[string, word, word]) {
			all := processor.Value[[]byte](ctx, "all")
			ctx.OnRecord(func(w word) error {
				all.Set(make([]byte, w.N<<20))
				return nil
			})
		}), "out")
	}, memstore.NewDir("large"), nil)
	c.send(3, 1) // values of 0, 1 and 2 MiB
	err := m.wait(t)
	if err == nil || !strings.Contains(err.Error(), `"hoard/all"`) || !strings.Contains(err.Error(), "large-0-changelog") || !strings.Contains(err.Error(), "max.message.bytes") {
		t.Fatalf("the worker ended with: %v", err)
	}
	if strings.Contains(m.log.String(), "starts again") {
		t.Error("the subtask tried again what cannot succeed")
	}
}

// TestControlIsFollowed writes to the control topic while a worker runs, as another member or a newer program would.
func TestControlIsFollowed(t *testing.T) {
	c := newCluster(t)
	m := c.start("words", countWords, memstore.NewDir("words"), nil)
	c.send(100, 5)
	c.drained("words", "in", "words-by-text-repartition")
	control := c.command("words", nil).control
	update := func(change func(*txn.ControlState)) {
		t.Helper()
		if _, err := control.Update(t.Context(), func(s txn.ControlState) (txn.ControlState, error) { change(&s); return s, nil }); err != nil {
			t.Fatal(err)
		}
	}
	update(func(s *txn.ControlState) { s.Fingerprint = "another" })
	testutil.Eventually(t, patience, func() error {
		if !strings.Contains(m.log.String(), "another version of the topology") {
			return errors.New("the worker does not say that another version was started")
		}
		return nil
	})
	// A new incarnation without state: the worker goes on in it by itself, from the start of the input.
	update(func(s *txn.ControlState) { s.Incarnation, s.Origin = 2, "fresh" })
	testutil.Eventually(t, patience, func() error {
		if n := len(c.read("out")); n != 200 {
			return fmt.Errorf("%d rows, want all of them twice", n)
		}
		return nil
	})
	if st := m.w.Status(); st.Incarnation != 2 || st.State != engine.StateRunning || len(st.Subtasks) != 2*nparts {
		t.Errorf("status %+v", st)
	}
	m.stop(t)
	if log := m.log.String(); strings.Count(log, "going on in another incarnation") != 1 || strings.Contains(log, "level=ERROR") {
		t.Errorf("the new incarnation is told in one line:\n%s", log)
	}
}

// TestStaleState lets the changelog forget its tombstones: local state that is older has perhaps missed some and is
// not used, whether it was made by commits or by a restore that was cut off.
func TestStaleState(t *testing.T) {
	const unusable = "state cannot be restored this way"
	c := newCluster(t)
	adm := kadm.NewClient(c.cl)
	keepTombstones := func(ms string) {
		t.Helper()
		res, err := adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "delete.retention.ms", Value: &ms}}, "words-1-changelog")
		if err != nil || res[0].Err != nil {
			t.Fatal(err, res)
		}
	}
	// One subtask, and a key that makes its changelog longer than one batch of a restore.
	long := func(top *processor.Topology) {
		words := processor.From(top, processor.Topic[word]{Name: "in"})
		byText := processor.KeyBy(words, "by-text", func(w word) string { return w.Text }, processor.Parallelism(1))
		processor.ToTopic(processor.Process(byText, "count", func(ctx *processor.KeyedContext[string, word, word]) {
			n := processor.Value[[]byte](ctx, "n")
			ctx.OnRecord(func(w word) error {
				n.Set(make([]byte, 1<<20-1<<16))
				ctx.Emit(word{w.Text, 1})
				return nil
			})
		}), "out")
	}
	dir := &cutDir{Dir: memstore.NewDir("words")}
	a := c.start("words", long, dir, func(o *engine.Options) {
		o.CommitMaxBytes, o.CommitQuiet, o.CommitMaxLatency = 64<<20, 500*time.Millisecond, 500*time.Millisecond
	})
	c.send(20, 10)
	c.drained("words", "in", "words-by-text-repartition")
	a.stop(t)
	// As compaction would: without the epoch record of the claim, so that the first batch of a restore has none.
	var claim kadm.Offsets
	claim.AddOffset("words-1-changelog", 0, 1, -1)
	if res, err := adm.DeleteRecords(t.Context(), claim); err != nil || res.Error() != nil {
		t.Fatal(err, res)
	}

	again := func() string {
		t.Helper()
		m := c.start("words", long, dir, nil)
		testutil.Eventually(t, patience, func() error {
			running := 0
			for _, s := range m.w.Status().Subtasks {
				if s.State == engine.SubtaskRunning {
					running++
				}
			}
			if running != nparts+1 {
				return fmt.Errorf("%d subtasks run", running)
			}
			return nil
		})
		m.stop(t)
		return m.log.String()
	}
	if out := again(); strings.Contains(out, unusable) {
		t.Fatalf("fresh state was not used:\n%s", out)
	}
	// However old it is, state after which nothing came can have missed nothing.
	keepTombstones("1")
	if out := again(); strings.Contains(out, unusable) {
		t.Fatalf("old state at the end of its changelog was not used:\n%s", out)
	}

	for _, keep := range []string{"86400000", "1"} {
		keepTombstones(keep)
		dir.wipe(t, "1_0")
		dir.cut = 2 // the second batch of the restore fails, and the subtask takes over again
		out := again()
		if !strings.Contains(out, errCut.Error()) {
			t.Fatalf("the restore was not cut off:\n%s", out)
		}
		if got, want := strings.Contains(out, unusable), keep == "1"; got != want {
			t.Errorf("delete.retention.ms %s: a restore that was cut off was given up: %v, want %v:\n%s", keep, got, want, out)
		}
	}
}

var errCut = errors.New("the restore is cut off")

// cutDir fails the cut-th batch of the store 1_0 from now on, once.
type cutDir struct {
	statestore.Dir
	id  statestore.Identity // of 1_0
	cut int
}

func (d *cutDir) Open(id statestore.Identity) (statestore.Store, error) {
	st, err := d.Dir.Open(id)
	if err != nil || id.Subtask != "1_0" {
		return st, err
	}
	d.id = id
	return &cutStore{st, d}, nil
}

func (d *cutDir) wipe(t *testing.T, subtask string) {
	t.Helper()
	if d.id.Subtask != subtask {
		t.Fatalf("store %s was not opened", subtask)
	}
	if err := d.Wipe(d.id); err != nil {
		t.Fatal(err)
	}
}

type cutStore struct {
	statestore.Store
	d *cutDir
}

func (s *cutStore) NewBatch() statestore.Batch { return &cutBatch{s.Store.NewBatch(), s.d} }

// Close keeps what was committed: a store may write it to the disk without being asked to.
func (s *cutStore) Close() error { return errors.Join(s.Flush(), s.Store.Close()) }

type cutBatch struct {
	statestore.Batch
	d *cutDir
}

func (b *cutBatch) Commit(m statestore.Meta) error {
	if b.d.cut > 0 {
		if b.d.cut--; b.d.cut == 0 {
			b.Discard()
			return errCut
		}
	}
	return b.Batch.Commit(m)
}

// TestMemberGetsItsStateBack starts a member again whose disk holds the state of some subtasks, beside one without: it
// gets just those, although the group has forgotten who had what and would share them out otherwise.
func TestMemberGetsItsStateBack(t *testing.T) {
	c := newCluster(t)
	dirs := []statestore.Dir{memstore.NewDir("words"), memstore.NewDir("words")}
	owned := func(m *member) []string {
		var ids []string
		for _, s := range m.w.Status().Subtasks {
			ids = append(ids, s.ID)
		}
		return ids
	}
	has := func(n int, ms ...*member) {
		t.Helper()
		testutil.Eventually(t, patience, func() error {
			for _, m := range ms {
				if ids := owned(m); len(ids) != n {
					return fmt.Errorf("a member has %v, want %d", ids, n)
				}
			}
			return nil
		})
	}
	a := c.start("words", countWords, dirs[0], nil)
	has(2*nparts, a)
	c.send(100, 7)
	b := c.start("words", countWords, dirs[1], nil)
	has(nparts, a, b)
	c.drained("words", "in", "words-by-text-repartition")
	hadA, hadB := owned(a), owned(b)
	a.stop(t)
	b.stop(t)
	// a had all of them at first. Leave it what it had at last: the second to come gets the others without the hint.
	for _, name := range hadB {
		if err := dirs[0].Wipe(statestore.Identity{App: "words", Incarnation: 1, Subtask: name}); err != nil {
			t.Fatal(err)
		}
	}
	b = c.start("words", countWords, memstore.NewDir("words"), nil)
	has(2*nparts, b)
	a = c.start("words", countWords, dirs[0], nil)
	has(nparts, a, b)
	if got := owned(a); !slices.Equal(got, hadA) {
		t.Errorf("the member has %v, its disk holds the state of %v", got, hadA)
	}
	c.send(100, 7)
	c.drained("words", "in", "words-by-text-repartition")
	a.stop(t)
	b.stop(t)
	checkCounts(t, c.read("out"), 200, 7)
}
