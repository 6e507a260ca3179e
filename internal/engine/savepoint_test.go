package engine_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/checkpoint/blob/blobtest"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
	"github.com/millrace-stream/millrace/statestore/pebblestore"
	"github.com/millrace-stream/millrace/txn"
)

// command is what a command beside the app has of it.
type command struct {
	cluster *txn.Cluster
	control *txn.Control
	blobs   blob.Store
}

func (c *cluster) command(app string, blobs blob.Store) *command {
	c.t.Helper()
	cl, err := txn.Connect(c.t.Context(), txn.Options{AppID: app, Brokers: c.brokers})
	if err != nil {
		c.t.Fatal(err)
	}
	control, err := cl.OpenControl(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { control.Close(); cl.Close() })
	return &command{cl, control, blobs}
}

func (k *command) take(t *testing.T, o engine.SavepointOptions) (*checkpoint.Savepoint, error) {
	t.Helper()
	o.By = "a test"
	if o.Timeout == 0 {
		o.Timeout = patience
	}
	return engine.TakeSavepoint(t.Context(), k.cluster, k.control, k.blobs, o)
}

// settled waits until the members run all subtasks between them, each the same number.
func settled(t *testing.T, members ...*member) {
	t.Helper()
	testutil.Eventually(t, patience, func() error {
		for _, m := range members {
			subs := m.w.Status().Subtasks
			if len(subs) != 2*nparts/len(members) {
				return fmt.Errorf("a member has %d subtasks", len(subs))
			}
			for _, s := range subs {
				if s.State != engine.SubtaskRunning {
					return fmt.Errorf("subtask %s is %s", s.ID, s.State)
				}
			}
		}
		return nil
	})
}

// busy waits until the members have counted that many records more.
func busy(t *testing.T, more int64, members ...*member) {
	t.Helper()
	counted := func() (n int64) {
		for _, m := range members {
			for _, s := range m.w.Status().Subtasks {
				if strings.HasPrefix(s.ID, "1_") {
					n += s.RecordsIn
				}
			}
		}
		return n
	}
	before := counted()
	testutil.Eventually(t, patience, func() error {
		if n := counted() - before; n < more {
			return fmt.Errorf("%d records are counted", n)
		}
		return nil
	})
}

// load sends without end, until the function that it returns is called.
func (c *cluster) load(keys int) (end func() int) {
	ctx, cancel := context.WithCancel(c.t.Context())
	var wg sync.WaitGroup
	n := 0
	wg.Go(func() {
		for ctx.Err() == nil {
			c.send(50, keys)
			n += 50
		}
	})
	return func() int { cancel(); wg.Wait(); return n }
}

func with(blobs blob.Store) func(*engine.Options) {
	return func(o *engine.Options) {
		o.Checkpoints = engine.Checkpoints{Blobs: blobs, Interval: time.Hour}
	}
}

// offsetsOf are the offsets of external inputs that a savepoint holds.
func offsetsOf(t *testing.T, sp *checkpoint.Savepoint) map[string]map[int32]int64 {
	t.Helper()
	at := map[string]map[int32]int64{"in": {}, "direct": {}}
	for _, m := range sp.Subtasks {
		rec, err := txn.DecodeEpochRecord(m.EpochRecord)
		if err != nil {
			t.Fatal(err)
		}
		if rec.Epoch != m.Epoch {
			t.Errorf("subtask %s: epoch %d with the record of %d", m.Subtask, m.Epoch, rec.Epoch)
		}
		for _, in := range rec.Inputs {
			if at[in.Topic] != nil {
				at[in.Topic][in.Partition] = in.Offset
			}
		}
	}
	return at
}

// checkCut compares the counts in a savepoint with those of the input records below the offsets in it.
func (c *cluster) checkCut(blobs blob.Store, sp *checkpoint.Savepoint) (records int64) {
	t := c.t
	t.Helper()
	if sp.Status != checkpoint.StatusCompleted || len(sp.Subtasks) != 2*nparts {
		t.Fatalf("savepoint %+v", sp)
	}
	at := offsetsOf(t, sp)
	want := map[string]int64{}
	for topic, at := range at {
		if len(at) == 0 {
			continue
		}
		for _, r := range c.read(topic) {
			if r.Offset >= at[r.Partition] {
				continue
			}
			var w word
			if err := json.Unmarshal(r.Value, &w); err != nil {
				t.Fatal(err)
			}
			want[w.Text]++
			records++
		}
	}
	got := map[string]int64{}
	sps := checkpoint.NewSavepoints(blobs, sp.App, nil, nil)
	for _, id := range sp.Expected {
		err := sps.Load(t.Context(), sp, id, nil, func(key, value []byte) error {
			if statestore.ID(binary.BigEndian.Uint32(key)) == 0 {
				return nil // descriptors of schemas
			}
			_, version := binary.Uvarint(value)
			n, width := binary.Varint(value[version:])
			if version <= 0 || width <= 0 {
				return fmt.Errorf("entry %x %x", key, value)
			}
			got[strings.TrimSuffix(string(key[6:]), "\x00\x01")] += n
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("savepoint %s is no consistent cut: counts are %v, want %v at the offsets %v", sp.Name, got, want, at)
	}
	return records
}

// TestSavepoint takes savepoints of an app with a repartition topic, on two workers, under load and without: what is in one
// is what the input up to its offsets makes of it. Processing goes on meanwhile, and no result is lost or doubled.
func TestSavepoint(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) statestore.Dir{
		"memory": func(*testing.T) statestore.Dir { return memstore.NewDir("words") },
		"pebble": func(t *testing.T) statestore.Dir {
			d, err := pebblestore.OpenDir(filepath.Join(t.TempDir(), "state"), "words", pebblestore.Options{MinFreeBytes: -1})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			})
			return d
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			blobs := blobtest.NewMemory()
			a := c.start("words", countWords, open(t), with(blobs))
			b := c.start("words", countWords, open(t), with(blobs))
			settled(t, a, b)
			k := c.command("words", blobs)
			end := c.load(37)
			var told []string
			last := int64(0)
			for i := range 3 {
				busy(t, 200, a, b)
				sp, err := k.take(t, engine.SavepointOptions{Name: fmt.Sprint("busy-", i), Version: "v1", Progress: func(aligned, written, total int) {
					told = append(told, fmt.Sprintf("%d/%d/%d", aligned, written, total))
				}})
				if err != nil {
					t.Fatal(err)
				}
				if n := c.checkCut(blobs, sp); n <= last {
					t.Errorf("a savepoint of %d records after one of %d", n, last)
				} else {
					last = n
				}
			}
			if want := fmt.Sprintf("%d/%d/%d", 2*nparts, 2*nparts, 2*nparts); len(told) == 0 || told[len(told)-1] != want {
				t.Errorf("told %v, want %s in the end", told, want)
			}
			n := end()
			c.drained("words", "in", "words-by-text-repartition")
			sp, err := a.w.TakeSavepoint(t.Context(), engine.SavepointOptions{Name: "quiet", By: "a member"})
			if err != nil {
				t.Fatal(err)
			}
			if got := c.checkCut(blobs, sp); got != int64(n) {
				t.Errorf("the savepoint of a quiet app holds %d records of %d", got, n)
			}
			// What is completed stays as it was.
			if sp, err := checkpoint.NewSavepoints(blobs, "words", nil, nil).Verify(t.Context(), "busy-0", nil); err != nil {
				t.Error(err)
			} else {
				c.checkCut(blobs, sp)
			}
			if st := b.w.Status().Savepoint; st == nil || st.Name != "quiet" || st.Aligned != nparts || st.Written != nparts {
				t.Errorf("status %+v", st)
			}
			tallied(t, 4, 0, sp.Bytes(), a, b)
			c.send(100, 37)
			c.drained("words", "in", "words-by-text-repartition")
			a.stop(t)
			b.stop(t)
			checkCounts(t, c.read("out"), n+100, 37)
			for _, m := range []*member{a, b} {
				log := m.log.String()
				if got := strings.Count(log, "savepoint begins"); got != 4 {
					t.Errorf("%d savepoints begin in the log", got)
				}
				if strings.Contains(log, "level=WARN") || strings.Contains(log, "level=ERROR") {
					t.Errorf("a savepoint alarms:\n%s", log)
				}
			}
		})
	}
}

// TestSavepointStop stops an app under load with a savepoint: nothing is committed after it, members end without an error,
// one that is started again waits, and goes on when the app is resumed.
func TestSavepointStop(t *testing.T) {
	c := newCluster(t)
	blobs := blobtest.NewMemory()
	dirs := []statestore.Dir{memstore.NewDir("words"), memstore.NewDir("words")}
	a, b := c.start("words", countWords, dirs[0], with(blobs)), c.start("words", countWords, dirs[1], with(blobs))
	k := c.command("words", blobs)
	if err := engine.Resume(t.Context(), k.control); !errors.Is(err, engine.ErrNotStopped) && !errors.Is(err, engine.ErrNeverStarted) {
		t.Errorf("resume of an app that runs: %v", err)
	}
	end := c.load(37)
	settled(t, a, b)
	busy(t, 300, a, b)
	sp, err := k.take(t, engine.SavepointOptions{Name: "last", Stop: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*member{a, b} {
		if err := m.wait(t); err != nil {
			t.Errorf("a member ends with %v", err)
		}
	}
	n := end()
	records := c.checkCut(blobs, sp)
	if rows := int64(len(c.read("out"))); rows != records {
		t.Errorf("%d results are committed, the savepoint has %d", rows, records)
	}
	if _, err := k.take(t, engine.SavepointOptions{Name: "more"}); !errors.Is(err, engine.ErrStopped) || !strings.Contains(err.Error(), "savepoint last") {
		t.Errorf("savepoint of a stopped app: %v", err)
	}
	if err := engine.Stop(t.Context(), k.control, "a test"); !errors.Is(err, engine.ErrStopped) {
		t.Errorf("stop of a stopped app: %v", err)
	}
	again := c.start("words", countWords, dirs[0], with(blobs))
	testutil.Eventually(t, patience, func() error {
		if !strings.Contains(again.log.String(), "millrace resume --app.id=words") {
			return errors.New("it does not say how to go on")
		}
		return nil
	})
	if st := again.w.Status(); st.State != engine.StateStopped || len(st.Subtasks) != 0 {
		t.Errorf("status of a member that waits: %+v", st)
	}
	if err := engine.Resume(t.Context(), k.control); err != nil {
		t.Fatal(err)
	}
	c.drained("words", "in", "words-by-text-repartition")
	checkCounts(t, c.read("out"), n, 37)

	// Without a savepoint.
	if err := engine.Stop(t.Context(), k.control, "a test"); err != nil {
		t.Fatal(err)
	}
	if err := again.wait(t); err != nil {
		t.Errorf("a member ends with %v", err)
	}
	// A member that waits can be ended.
	waits := c.start("words", countWords, dirs[1], with(blobs))
	testutil.Eventually(t, patience, func() error {
		if waits.w.Status().State != engine.StateStopped {
			return errors.New("it does not wait")
		}
		return nil
	})
	waits.stop(t)
	if err := engine.Resume(t.Context(), k.control); err != nil {
		t.Fatal(err)
	}
	if err := engine.Resume(t.Context(), k.control); !errors.Is(err, engine.ErrNotStopped) {
		t.Errorf("resume of an app that is not stopped: %v", err)
	}
}

// TestSavepointStopWithoutRepartition stops an app of one sub-topology under load with a savepoint, a few times: who feeds nobody
// stands still too, until the app has ended.
func TestSavepointStopWithoutRepartition(t *testing.T) {
	c := newCluster(t)
	blobs := blobtest.NewMemory()
	k := c.command("words", blobs)
	topology := func(top *processor.Topology) {
		words := processor.From(top, processor.Topic[word]{Name: "in"})
		processor.ToTopic(processor.Map(words, func(w word) word { return w }), "out")
	}
	end := c.load(37)
	defer end()
	for i := range 3 {
		m := c.start("words", topology, memstore.NewDir("words"), with(blobs))
		before := len(c.read("out"))
		testutil.Eventually(t, patience, func() error {
			if n := len(c.read("out")); n < before+300 {
				return fmt.Errorf("%d results after %d", n, before)
			}
			return nil
		})
		sp, err := k.take(t, engine.SavepointOptions{Name: fmt.Sprint("stop-", i), Stop: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.wait(t); err != nil {
			t.Errorf("a member ends with %v", err)
		}
		records := int64(0)
		for _, at := range offsetsOf(t, sp)["in"] {
			records += at
		}
		if rows := int64(len(c.read("out"))); rows != records {
			t.Errorf("%d results are committed, the savepoint has %d", rows, records)
		}
		if err := engine.Resume(t.Context(), k.control); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSavepointOfASubtaskThatDoesNotRun fails at once, and says which one does not: the others must not stand still for it.
func TestSavepointOfASubtaskThatDoesNotRun(t *testing.T) {
	c := newCluster(t)
	blobs := blobtest.NewMemory()
	topology := func(top *processor.Topology) {
		words := processor.From(top, processor.Topic[word]{Name: "in"})
		processor.ToTopic(processor.TryMap(words, func(w word) (word, error) { return w, errors.New("no") }, processor.OnError(processor.Fail)), "out")
	}
	m := c.start("words", topology, memstore.NewDir("words"), func(o *engine.Options) {
		with(blobs)(o)
		o.BackoffMin, o.BackoffMax = time.Hour, time.Hour
	})
	c.send(1, 1)
	failing := ""
	testutil.Eventually(t, patience, func() error {
		st := m.w.Status()
		running := 0
		for _, s := range st.Subtasks {
			switch s.State {
			case engine.SubtaskBackingOff:
				failing = s.ID
			case engine.SubtaskRunning:
				running++
			}
		}
		if failing == "" || running != nparts-1 {
			return fmt.Errorf("%+v", st.Subtasks)
		}
		return nil
	})
	k := c.command("words", blobs)
	r := ended(t, k.begin(t.Context(), t, engine.SavepointOptions{Name: "hopeless", Timeout: time.Hour, AlignTimeout: time.Hour}))
	k.fails(t, r, "hopeless", "subtask "+failing+" does not run, it is backing-off")
	m.cancel()
}

// TestSavepointRefused says why one cannot be begun, and leaves no trace then.
func TestSavepointRefused(t *testing.T) {
	c := newCluster(t)
	blobs := blobtest.NewMemory()
	k := c.command("words", blobs)
	refused := func(name string, o engine.SavepointOptions, want error, text string) {
		t.Helper()
		had := len(blobs.Blobs)
		_, err := k.take(t, o)
		if err == nil || want != nil && !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", name, err)
		}
		if now := len(blobs.Blobs); now != had {
			t.Errorf("%s: %d blobs, were %d", name, now, had)
		}
	}
	refused("no such app", engine.SavepointOptions{Name: "a"}, engine.ErrNeverStarted, "check app.id")
	m := c.start("words", countWords, memstore.NewDir("words"), with(blobs))
	c.send(10, 3)
	c.drained("words", "in", "words-by-text-repartition")
	if _, err := k.take(t, engine.SavepointOptions{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	refused("name taken", engine.SavepointOptions{Name: "a"}, checkpoint.ErrNameTaken, "choose another")
	refused("bad name", engine.SavepointOptions{Name: "a/b"}, nil, "name of a savepoint")
	m.stop(t)
	refused("nobody runs", engine.SavepointOptions{Name: "b"}, engine.ErrNotRunning, "start it")
	k.blobs = nil
	refused("no store", engine.SavepointOptions{Name: "b"}, nil, "checkpoint.url")
}

// gate makes calls of a blob store wait whose key holds a text.
type gate struct {
	text    string
	reached chan struct{} // closed by the first
	open    chan struct{}
	once    sync.Once
}

func newGate(blobs *blobtest.Memory, text string) *gate {
	g := &gate{text: text, reached: make(chan struct{}), open: make(chan struct{})}
	blobs.SetHook(func(ctx context.Context, op, key string, do func() error) error {
		if strings.Contains(key, g.text) && op != "list" {
			g.once.Do(func() { close(g.reached) })
			select {
			case <-g.open:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return do()
	})
	return g
}

func (g *gate) await(t *testing.T) {
	t.Helper()
	select {
	case <-g.reached:
	case <-time.After(patience):
		t.Fatalf("no call with %s in its key", g.text)
	}
}

// tallied waits until the members have counted so many savepoints, of failed ones at least so many, and have written the last one, of
// so many bytes, between them.
func tallied(t *testing.T, completed, failed, bytes int64, members ...*member) {
	t.Helper()
	testutil.Eventually(t, patience, func() error {
		n := int64(0)
		for _, m := range members {
			st := m.w.Status()
			s := st.Savepoints
			if s.Completed != completed || s.Failed < failed || failed == 0 && s.Failed > 0 || s.At.IsZero() || s.Written < s.Bytes {
				return fmt.Errorf("a member has counted %+v", s)
			}
			n += s.Bytes
			for _, sub := range st.Subtasks {
				if sub.LastSavepointHoldMs <= 0 || sub.SavepointHoldMs < sub.LastSavepointHoldMs {
					return fmt.Errorf("subtask %s has stood still for %v ms, %v ms in all", sub.ID, sub.LastSavepointHoldMs, sub.SavepointHoldMs)
				}
			}
		}
		if n != bytes {
			return fmt.Errorf("%d bytes are written, want %d", n, bytes)
		}
		return nil
	})
}

type result struct {
	sp  *checkpoint.Savepoint
	err error
}

func (k *command) begin(ctx context.Context, t *testing.T, o engine.SavepointOptions) chan result {
	t.Helper()
	done := make(chan result, 1)
	if o.Timeout == 0 {
		o.Timeout = patience
	}
	go func() {
		sp, err := engine.TakeSavepoint(ctx, k.cluster, k.control, k.blobs, o)
		done <- result{sp, err}
	}()
	return done
}

func ended(t *testing.T, done chan result) result {
	t.Helper()
	select {
	case r := <-done:
		return r
	case <-time.After(patience):
		t.Fatal("the savepoint has not ended")
		return result{}
	}
}

// fails checks that a savepoint failed for the reason in text, in the blob store too.
func (k *command) fails(t *testing.T, r result, name, text string) {
	t.Helper()
	if r.err == nil || !strings.Contains(r.err.Error(), text) {
		t.Errorf("savepoint %s: %+v, %v; want an error with %q", name, r.sp, r.err, text)
	}
	sp, err := checkpoint.NewSavepoints(k.blobs, "words", nil, nil).Show(context.Background(), name)
	if err != nil || sp.Status != checkpoint.StatusFailed || !strings.Contains(sp.Reason, text) {
		t.Errorf("savepoint %s in the blob store: %+v, %v; want it failed with %q", name, sp, err, text)
	}
}

// awaitPhase waits until the savepoint that is taken is in a phase.
func (k *command) awaitPhase(t *testing.T, want txn.SavepointPhase) {
	t.Helper()
	testutil.Eventually(t, patience, func() error {
		s, err := k.control.Refresh(t.Context())
		if err != nil {
			return err
		}
		if s.Savepoint == nil || s.Savepoint.Phase != want {
			return fmt.Errorf("the savepoint is %+v, want it %s", s.Savepoint, want)
		}
		return nil
	})
}

// TestSavepointFails breaks savepoints while processing stands still for them: they fail with a reason, processing goes on,
// nothing is lost or doubled, and the next savepoint works.
func TestSavepointFails(t *testing.T) {
	c := newCluster(t)
	blobs := blobtest.NewMemory()
	a := c.start("words", countWords, memstore.NewDir("words"), with(blobs))
	sent := 0
	goesOn := func() {
		t.Helper()
		c.send(100, 11)
		sent += 100
		c.drained("words", "in", "words-by-text-repartition")
	}
	goesOn()
	k := c.command("words", blobs)

	t.Run("another is running", func(t *testing.T) {
		g := newGate(blobs, "/1_0/aligned")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		first := k.begin(ctx, t, engine.SavepointOptions{Name: "first"})
		g.await(t)
		if _, err := c.command("words", blobs).take(t, engine.SavepointOptions{Name: "second"}); !errors.Is(err, engine.ErrSavepointRuns) || !strings.Contains(err.Error(), "first") {
			t.Errorf("the second: %v", err)
		}
		if _, err := blobs.Get(t.Context(), "words/savepoints/second/begin"); !errors.Is(err, blob.ErrNotFound) {
			t.Errorf("the refused one has taken its name: %v", err)
		}
		close(g.open)
		if r := ended(t, first); r.err != nil {
			t.Errorf("the first: %v", r.err)
		} else {
			c.checkCut(blobs, r.sp)
		}
	})
	t.Run("processing stands still and goes on when the command is ended", func(t *testing.T) {
		g := newGate(blobs, "/1_0/aligned")
		defer close(g.open)
		ctx, cancel := context.WithCancelCause(t.Context())
		first := k.begin(ctx, t, engine.SavepointOptions{Name: "ended"})
		g.await(t)
		before := len(c.read("out"))
		c.send(100, 11)
		sent += 100
		cancel(errors.New("someone pressed ^C"))
		k.fails(t, ended(t, first), "ended", "someone pressed ^C")
		if _, err := k.take(t, engine.SavepointOptions{Name: "ended"}); !errors.Is(err, checkpoint.ErrNameTaken) || !strings.Contains(err.Error(), "millrace savepoint delete ended") {
			t.Errorf("another of the name of one that failed: %v", err)
		}
		if n := len(c.read("out")); n < before {
			t.Errorf("%d results after %d", n, before)
		}
		goesOn()
	})
	t.Run("a subtask is let go", func(t *testing.T) {
		b := c.start("words", countWords, memstore.NewDir("words"), with(blobs))
		settled(t, a, b)
		mine := b.w.Status().Subtasks[0].ID
		g := newGate(blobs, "/"+mine+"/aligned")
		defer close(g.open)
		first := k.begin(t.Context(), t, engine.SavepointOptions{Name: "moved"})
		g.await(t)
		b.stop(t)
		settled(t, a)
		k.fails(t, ended(t, first), "moved", "moved to member")
		goesOn()
	})
	t.Run("a subtask moves before its state is written", func(t *testing.T) {
		b := c.start("words", countWords, memstore.NewDir("words"), with(blobs))
		settled(t, a, b)
		g := newGate(blobs, "/"+b.w.Status().Subtasks[0].ID+"/manifest")
		defer close(g.open)
		first := k.begin(t.Context(), t, engine.SavepointOptions{Name: "unwritten", Timeout: time.Hour, AlignTimeout: time.Hour})
		g.await(t)
		k.awaitPhase(t, txn.SavepointAligned)
		b.stop(t)
		settled(t, a)
		k.fails(t, ended(t, first), "unwritten", "before its state was written")
		goesOn()
	})
	t.Run("a subtask moves while the app is about to stop", func(t *testing.T) {
		b := c.start("words", countWords, memstore.NewDir("words"), with(blobs))
		settled(t, a, b)
		g := newGate(blobs, "/"+a.w.Status().Subtasks[0].ID+"/manifest")
		defer close(g.open)
		first := k.begin(t.Context(), t, engine.SavepointOptions{Name: "unstopped", Stop: true, Timeout: time.Hour, AlignTimeout: time.Hour})
		g.await(t)
		k.awaitPhase(t, txn.SavepointAligned)
		b.stop(t)
		settled(t, a)
		k.fails(t, ended(t, first), "unstopped", "before the app was stopped")
		goesOn()
	})
	t.Run("a member joins", func(t *testing.T) {
		g := newGate(blobs, "/1_0/aligned")
		defer close(g.open)
		first := k.begin(t.Context(), t, engine.SavepointOptions{Name: "joined"})
		g.await(t)
		b := c.start("words", countWords, memstore.NewDir("words"), with(blobs))
		k.fails(t, ended(t, first), "joined", "moved to member")
		goesOn()
		b.stop(t)
		settled(t, a)
	})
	t.Run("a member joins, and it is tried again", func(t *testing.T) {
		g := newGate(blobs, "/1_0/aligned")
		var again error
		first := k.begin(t.Context(), t, engine.SavepointOptions{Name: "again", Tries: 9, Again: func(err error) {
			if again == nil {
				close(g.open)
			}
			again = err
		}})
		g.await(t)
		b := c.start("words", countWords, memstore.NewDir("words"), with(blobs))
		r := ended(t, first)
		if r.err != nil || !errors.Is(again, engine.ErrMoved) {
			t.Fatalf("%v, after %v", r.err, again)
		}
		c.checkCut(blobs, r.sp)
		goesOn()
		b.stop(t)
		settled(t, a)
	})
	t.Run("a subtask does not align in time", func(t *testing.T) {
		g := newGate(blobs, "/1_0/aligned")
		defer close(g.open)
		r := ended(t, k.begin(t.Context(), t, engine.SavepointOptions{Name: "unaligned", Timeout: time.Hour, AlignTimeout: time.Second}))
		k.fails(t, r, "unaligned", "savepoint.align-timeout")
		goesOn()
	})
	t.Run("the blob store refuses the marker", func(t *testing.T) {
		blobs.SetHook(func(_ context.Context, op, key string, do func() error) error {
			if strings.Contains(key, "/aligned") && op != "list" {
				return errors.New("no room in the bucket")
			}
			return do()
		})
		r := ended(t, k.begin(t.Context(), t, engine.SavepointOptions{Name: "marker"}))
		k.fails(t, r, "marker", "no room in the bucket")
		goesOn()
	})
	t.Run("the blob store refuses the state", func(t *testing.T) {
		blobs.SetHook(func(_ context.Context, op, _ string, do func() error) error {
			if op == "put" {
				return errors.New("no room in the bucket")
			}
			return do()
		})
		r := ended(t, k.begin(t.Context(), t, engine.SavepointOptions{Name: "state"}))
		k.fails(t, r, "state", "no room in the bucket")
		goesOn()
	})
	t.Run("a member has no store", func(t *testing.T) {
		blobs.SetHook(nil)
		poor := c.start("words", countWords, memstore.NewDir("words"), nil)
		settled(t, a, poor)
		r := ended(t, k.begin(t.Context(), t, engine.SavepointOptions{Name: "poor"}))
		k.fails(t, r, "poor", "checkpoint.url is not set")
		poor.stop(t)
		settled(t, a)
		goesOn()
	})
	// orphan asks for a savepoint as a command does, and does nothing more.
	orphan := func(name string, stop bool, deadline time.Duration) *checkpoint.Savepoint {
		t.Helper()
		sps := checkpoint.NewSavepoints(blobs, "words", nil, nil)
		state := k.control.State()
		var expected []string
		for sub := range 2 {
			for i := range nparts {
				expected = append(expected, fmt.Sprintf("%d_%d", sub, i))
			}
		}
		sp, err := sps.Begin(t.Context(), checkpoint.Savepoint{Name: name, ClusterID: state.ClusterID, Incarnation: state.Incarnation,
			Expected: expected, Deadline: time.Now().Add(deadline).UnixMilli(), Owner: "the dead"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.control.Update(t.Context(), func(s txn.ControlState) (txn.ControlState, error) {
			s.Savepoint = &txn.SavepointRequest{ID: sp.ID, Name: sp.Name, Phase: txn.SavepointRunning, Stop: stop, Began: sp.Began, Deadline: sp.Deadline, By: "the dead"}
			return s, nil
		}); err != nil {
			t.Fatal(err)
		}
		return sp
	}
	// buried checks that the members have ended it.
	buried := func(reason string) {
		t.Helper()
		s, err := k.control.Refresh(t.Context())
		if err != nil || s.Savepoint.Phase != txn.SavepointFailed || !strings.Contains(s.Savepoint.Reason, reason) {
			t.Errorf("%+v %v", s.Savepoint, err)
		}
	}
	t.Run("who asked is dead", func(*testing.T) {
		orphan("orphan", false, time.Second)
		goesOn()
		buried("deadline")
	})
	t.Run("who stops the app is dead when all are aligned", func(t *testing.T) {
		sp := orphan("orphan-stop", true, time.Hour)
		testutil.Eventually(t, patience, func() error {
			aligned, _, err := checkpoint.NewSavepoints(blobs, "words", nil, nil).Progress(t.Context(), sp)
			if err != nil || len(aligned) < 2*nparts {
				return fmt.Errorf("%d are aligned, %w", len(aligned), err)
			}
			return nil
		})
		if _, err := k.control.Update(t.Context(), func(s txn.ControlState) (txn.ControlState, error) {
			s.Savepoint.Phase, s.Savepoint.Deadline = txn.SavepointAligned, time.Now().Add(time.Second).UnixMilli()
			return s, nil
		}); err != nil {
			t.Fatal(err)
		}
		goesOn()
		buried("nothing was heard")
	})
	t.Run("who stops the app says that it is alive", func(t *testing.T) {
		const align = time.Second
		g := newGate(blobs, "/1_0/manifest")
		ctx, cancel := context.WithCancelCause(t.Context())
		first := k.begin(ctx, t, engine.SavepointOptions{Name: "alive", Stop: true, Timeout: time.Hour, AlignTimeout: align})
		g.await(t)
		testutil.Eventually(t, patience, func() error {
			s, err := k.control.Refresh(t.Context())
			if err != nil {
				return err
			}
			if r := s.Savepoint; r.Phase != txn.SavepointAligned || r.Deadline < r.Began+4*align.Milliseconds() || time.Until(time.UnixMilli(r.Deadline)) > align {
				return fmt.Errorf("it is %s since %v, its deadline in %v: %s", r.Phase, time.Since(time.UnixMilli(r.Began)), time.Until(time.UnixMilli(r.Deadline)), r.Reason)
			}
			return nil
		})
		cancel(errors.New("someone pressed ^C"))
		k.fails(t, ended(t, first), "alive", "someone pressed ^C")
		close(g.open)
		goesOn()
	})
	t.Run("the member that takes it stops", func(t *testing.T) {
		b := c.start("words", countWords, memstore.NewDir("words"), with(blobs))
		settled(t, a, b)
		g := newGate(blobs, "/1_0/manifest")
		done := make(chan result, 1)
		go func() {
			sp, err := b.w.TakeSavepoint(context.Background(), engine.SavepointOptions{Name: "led"})
			done <- result{sp, err}
		}()
		g.await(t)
		b.stop(t)
		settled(t, a)
		if r := ended(t, done); r.err == nil {
			t.Errorf("it is completed: %+v", r.sp)
		}
		close(g.open)
		goesOn()
		if _, err := b.w.TakeSavepoint(t.Context(), engine.SavepointOptions{Name: "late"}); err == nil || !strings.Contains(err.Error(), "does not run") {
			t.Errorf("by a member that has ended: %v", err)
		}
	})
	blobs.SetHook(nil)
	sp, err := k.take(t, engine.SavepointOptions{Name: "good"})
	if err != nil {
		t.Fatal(err)
	}
	tallied(t, 3, 9, sp.Bytes(), a)
	if n := c.checkCut(blobs, sp); n != int64(sent) {
		t.Errorf("it holds %d records of %d", n, sent)
	}
	a.stop(t)
	checkCounts(t, c.read("out"), sent, 11)
}

// TestSavepointOfMixedInputs: a sub-topology that reads an external topic and a repartition topic is cut though a long backlog
// of the external one, older in event time, goes before what the barriers stand behind.
func TestSavepointOfMixedInputs(t *testing.T) {
	c := newCluster(t)
	if _, err := kadm.NewClient(c.cl).CreateTopics(t.Context(), nparts, 1, nil, "direct"); err != nil {
		t.Fatal(err)
	}
	const backlog = 8000
	send := func(topic string, n int, at int64) {
		t.Helper()
		var rs []*kgo.Record
		for i := range n {
			text := fmt.Sprintf("word-%d", i%37)
			v, err := json.Marshal(word{text, int64(i)})
			if err != nil {
				t.Fatal(err)
			}
			rs = append(rs, &kgo.Record{Topic: topic, Key: []byte(text), Value: v, Timestamp: time.UnixMilli(at)})
		}
		if err := c.cl.ProduceSync(t.Context(), rs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	slow := func(w word) word { time.Sleep(time.Millisecond); return w } //nolint:forbidigo // so that the backlog lasts; nothing waits for it
	topology := func(top *processor.Topology) {
		words := processor.From(top, processor.Topic[word]{Name: "in"})
		byText := processor.KeyBy(words, "by-text", func(w word) string { return w.Text })
		row := func(text string, n int64, _ word) word { return word{text, n} }
		counted := processor.RunningAggregate(byText, "count", processor.Count[word](), row)
		direct := processor.FromKeyed(top, format.String(), processor.Topic[word]{Name: "direct"})
		both := processor.Union(counted, processor.RunningAggregate(processor.MapValues(direct, slow), "count-direct", processor.Count[word](), row))
		processor.ToTopic(both, "out")
	}
	blobs := blobtest.NewMemory()
	m := c.start("words", topology, memstore.NewDir("words"), with(blobs))
	send("in", 200, 2_000_000)
	send("direct", backlog, 1_000_000)
	testutil.Eventually(t, patience, func() error {
		if n := len(c.read("out")); n < 20 {
			return fmt.Errorf("%d results", n)
		}
		return nil
	})
	sp, err := c.command("words", blobs).take(t, engine.SavepointOptions{Name: "mixed"})
	if err != nil {
		t.Fatal(err)
	}
	if n := c.checkCut(blobs, sp); n >= backlog {
		t.Errorf("the savepoint holds %d records: the barriers waited for the backlog", n)
	}
	c.drained("words", "in", "words-by-text-repartition", "direct")
	if n := len(c.read("out")); n != backlog+200 {
		t.Errorf("%d results, want %d", n, backlog+200)
	}
	m.stop(t)
}

// TestSavepointEndsWhileNobodyIsAligned: subtasks that wait for the barriers of others end a savepoint whose deadline has passed,
// though no subtask has its state in hand; the external inputs that stood still meanwhile go on.
func TestSavepointEndsWhileNobodyIsAligned(t *testing.T) {
	c := newCluster(t)
	if _, err := kadm.NewClient(c.cl).CreateTopics(t.Context(), nparts, 1, nil, "direct"); err != nil {
		t.Fatal(err)
	}
	stuck := make(chan struct{})
	var free sync.Once
	t.Cleanup(func() { free.Do(func() { close(stuck) }) })
	topology := func(top *processor.Topology) {
		words := processor.Map(processor.From(top, processor.Topic[word]{Name: "in"}), func(w word) word { <-stuck; return w })
		byText := processor.KeyBy(words, "by-text", func(w word) string { return w.Text })
		row := func(text string, n int64, _ word) word { return word{text, n} }
		direct := processor.FromKeyed(top, format.String(), processor.Topic[word]{Name: "direct"})
		both := processor.Union(processor.RunningAggregate(byText, "count", processor.Count[word](), row), processor.RunningAggregate(direct, "count-direct", processor.Count[word](), row))
		processor.ToTopic(both, "out")
	}
	send := func(topic string, n int) {
		t.Helper()
		var rs []*kgo.Record
		for i := range n {
			text := fmt.Sprintf("word-%d", i)
			rs = append(rs, &kgo.Record{Topic: topic, Key: []byte(text), Value: asJSON(t, word{text, int64(i)})})
		}
		if err := c.cl.ProduceSync(t.Context(), rs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	results := func(n int) {
		t.Helper()
		testutil.Eventually(t, patience, func() error {
			if got := len(c.read("out")); got != n {
				return fmt.Errorf("%d results, want %d", got, n)
			}
			return nil
		})
	}
	blobs := blobtest.NewMemory()
	m := c.start("words", topology, memstore.NewDir("words"), with(blobs))
	settled(t, m)
	send("direct", 40)
	results(40)
	send("in", 40) // of every partition
	testutil.Eventually(t, patience, func() error {
		for _, s := range m.w.Status().Subtasks {
			if strings.HasPrefix(s.ID, "0_") && s.Lag == 0 {
				return fmt.Errorf("subtask %s has nothing to do", s.ID)
			}
		}
		return nil
	})
	k := c.command("words", blobs)
	first := k.begin(t.Context(), t, engine.SavepointOptions{Name: "stuck", Timeout: time.Hour, AlignTimeout: time.Second})
	k.fails(t, ended(t, first), "stuck", "its deadline passed while subtask 1_")
	send("direct", 40)
	results(80)
	free.Do(func() { close(stuck) })
	results(120)
	m.stop(t)
}
