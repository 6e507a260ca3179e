package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/checkpoint/blob/blobtest"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/failpoint"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/window"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
	"github.com/millrace-stream/millrace/txn"
)

// event is what the jobs of these tests read; row is what they write.
type event struct {
	Text string `json:"text"`
	N    int64  `json:"n"`
	At   int64  `json:"at"` // ms
}

type row struct {
	Kind string `json:"kind"` // r: for each event, t: of a timer, w: of a window
	Text string `json:"text"`
	N    int64  `json:"n"`
	List int64  `json:"list"`
	Map  int64  `json:"map"`
	At   int64  `json:"at"`
}

const (
	windowMs = 100
	timerMs  = 30
	startAt  = 1_700_000_000_000
)

// remember keeps everything that there is to keep: values, lists, maps, timers and windows, by text.
func remember(by processor.KeyedStream[string, event], out string, bonus int64) {
	rows := processor.Process(by, "remember", func(ctx *processor.KeyedContext[string, event, row]) {
		n := processor.Value[int64](ctx, "n")
		all := processor.List[int64](ctx, "all")
		third := processor.MapOf[int64, int64](ctx, "third")
		ctx.OnRecord(func(e event) error {
			if e.N < 0 {
				return nil // only moves the time
			}
			n.Set(n.Get() + 1 + bonus)
			all.Add(e.N)
			k, _ := third.Get(e.N % 3)
			third.Put(e.N%3, k+1)
			r := row{Kind: "r", Text: e.Text, N: n.Get(), At: e.At}
			for range all.All() {
				r.List++
			}
			for _, k := range third.All() {
				r.Map += k
			}
			ctx.RegisterEventTimer(time.UnixMilli(e.At + timerMs))
			ctx.Emit(r)
			return nil
		})
		ctx.OnTimer(func(t processor.Timer) error {
			ctx.Emit(row{Kind: "t", Text: ctx.Key(), At: t.At.UnixMilli()})
			return nil
		})
	})
	processor.To(rows, processor.SinkTopic[row]{Name: out, ID: "rows"})
	real := by.Filter(func(e event) bool { return e.N >= 0 })
	counts := processor.Aggregate(real.Window(window.Tumbling(windowMs*time.Millisecond)), "per-window", processor.Count[event](), func(w processor.Window[string], n int64) row {
		return row{Kind: "w", Text: w.Key, N: n, At: w.End.UnixMilli()}
	})
	processor.To(counts, processor.SinkTopic[row]{Name: out, ID: "windows"})
}

func timed() processor.Topic[event] {
	return processor.Topic[event]{Name: "events", EventTime: func(e event) time.Time { return time.UnixMilli(e.At) }}
}

// behindKeyBy remembers by a key that is not that of the records.
func behindKeyBy(t *processor.Topology) {
	remember(processor.KeyBy(processor.From(t, timed()), "by-text", func(e event) string { return e.Text }), "rows", 0)
}

// byInput remembers by the records' key, without a repartition topic.
func byInput(t *processor.Topology) {
	remember(processor.FromKeyed(t, format.String(), timed()), "rows", 0)
}

// stage is a cluster with the topics "events" and "rows", and what was sent.
type stage struct {
	*cluster
	app    string
	blobs  *blobtest.Memory
	byText bool // the key of records is the text
	parts  int
	sent   []event
}

func newStage(t *testing.T, app string, parts int) *stage {
	s := &stage{cluster: newCluster(t), app: app, blobs: blobtest.NewMemory(), parts: parts}
	s.topic("events", parts)
	s.topic("rows", parts)
	return s
}

func (s *stage) topic(name string, parts int) {
	s.t.Helper()
	res, err := kadm.NewClient(s.cl).CreateTopics(s.t.Context(), int32(parts), 1, nil, name)
	if err != nil || res[name].Err != nil {
		s.t.Fatal(err, res[name].Err)
	}
}

// send writes n events of keys texts, 7 ms apart.
func (s *stage) send(n, keys int) {
	s.t.Helper()
	var rs []*kgo.Record
	for range n {
		i := len(s.sent)
		e := event{fmt.Sprintf("word-%d", i*7919%keys), int64(i), startAt + int64(7*i)}
		s.sent = append(s.sent, e)
		r := &kgo.Record{Topic: "events", Key: fmt.Append(nil, i), Value: asJSON(s.t, e)}
		if s.byText {
			r.Key = []byte(e.Text)
		}
		rs = append(rs, r)
	}
	s.produce(rs)
}

func (s *stage) produce(rs []*kgo.Record) {
	s.t.Helper()
	if err := s.cl.ProduceSync(s.t.Context(), rs...).FirstErr(); err != nil {
		s.t.Fatal(err)
	}
}

// close moves the time of each partition so far that all timers and windows fire.
func (s *stage) close() {
	s.t.Helper()
	var rs []*kgo.Record
	end := startAt + int64(7*len(s.sent)) + 10*windowMs
	for p := range s.parts {
		for k := 0; ; k++ { // a key of that partition
			key := fmt.Sprintf("close-%d", k)
			if format.Partition([]byte(key), int32(s.parts)) == int32(p) {
				rs = append(rs, &kgo.Record{Topic: "events", Key: []byte(key), Value: asJSON(s.t, event{key, -1, end})})
				break
			}
		}
	}
	s.produce(rs)
}

func asJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func fromJSON[T any](t *testing.T, b []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func (s *stage) run(topology func(*processor.Topology), dir statestore.Dir, change func(*engine.Options)) *member {
	s.t.Helper()
	return s.start(s.app, topology, dir, func(o *engine.Options) {
		o.Checkpoints = engine.Checkpoints{Blobs: s.blobs, Interval: 50 * time.Millisecond, MinPause: time.Millisecond}
		o.WriteBehindInterval = 50 * time.Millisecond
		if change != nil {
			change(o)
		}
	})
}

// once runs a member until it has processed n events more.
func (s *stage) once(topology func(*processor.Topology), dir statestore.Dir, change func(*engine.Options), n, keys int) *member {
	s.t.Helper()
	m := s.run(topology, dir, change)
	s.send(n, keys)
	s.settle(m)
	m.stop(s.t)
	return m
}

// settle waits until the app of a member has processed everything that was sent.
func (s *stage) settle(m *member) {
	s.t.Helper()
	inc := uint64(0)
	testutil.Eventually(s.t, patience, func() error {
		select {
		case <-m.done:
			s.t.Fatalf("the worker has ended: %v", m.err)
		default:
		}
		st := m.w.Status()
		if st.State != engine.StateRunning || len(st.Subtasks) == 0 {
			return fmt.Errorf("state %s", st.State)
		}
		for _, sub := range st.Subtasks {
			if sub.State != engine.SubtaskRunning {
				return fmt.Errorf("subtask %s is %s: %s", sub.ID, sub.State, sub.Error)
			}
		}
		inc = st.Incarnation
		return nil
	})
	s.drained(s.app, "events")
	topics, err := kadm.NewClient(s.cl).ListTopics(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	repartition := s.app + "-by-text-repartition"
	if inc > 1 {
		repartition = fmt.Sprintf("%s-i%d-by-text-repartition", s.app, inc)
	}
	if topics.Has(repartition) {
		s.drained(s.app, repartition)
	}
}

// save makes a savepoint of a stopped app out of its stores.
func (s *stage) save(name string, dir statestore.Dir) {
	s.t.Helper()
	must := func(err error) {
		s.t.Helper()
		if err != nil {
			s.t.Fatal(err)
		}
	}
	state := s.command(s.app, s.blobs).control.State()
	sps := checkpoint.NewSavepoints(s.blobs, s.app, nil, nil)
	sp := checkpoint.Savepoint{Name: name, ClusterID: state.ClusterID, Incarnation: state.Incarnation, Deadline: time.Now().Add(time.Hour).UnixMilli(), Owner: "a test", Topology: state.Topology}
	for sub, n := range state.Parallelism {
		for k := range n {
			sp.Expected = append(sp.Expected, record.SubtaskID{SubTopology: sub, Index: k}.String())
		}
	}
	begun, err := sps.Begin(s.t.Context(), sp)
	must(err)
	for _, subtask := range begun.Expected {
		id, err := record.ParseSubtaskID(subtask)
		must(err)
		prefix := s.app
		if state.Incarnation > 1 {
			prefix += fmt.Sprintf("-i%d", state.Incarnation)
		}
		owner := statestore.Identity{App: s.app, ClusterID: state.ClusterID, Incarnation: state.Incarnation, Subtask: subtask}
		for _, suffix := range []string{"-changelog", "-changelog-expiring"} {
			if t, ok := state.TopicIDs[fmt.Sprintf("%s-%d%s", prefix, id.SubTopology, suffix)]; ok {
				owner.Changelogs = append(owner.Changelogs, t)
			}
		}
		store, err := dir.Open(owner)
		must(err)
		snap, err := store.(statestore.Checkpointer).Checkpoint()
		must(err)
		_, err = sps.Write(s.t.Context(), begun, snap, checkpoint.WriteOptions{Owner: "a test", WallTime: func(raw []byte) (int64, error) {
			rec, err := txn.DecodeEpochRecord(raw)
			if err != nil {
				return 0, err
			}
			return rec.WallTime, nil
		}})
		must(errors.Join(err, snap.Close(), store.Close()))
	}
	_, err = sps.Complete(s.t.Context(), begun)
	must(err)
}

// forget deletes a savepoint, and with it what a start from it would need.
func (s *stage) forget(name string) {
	s.t.Helper()
	if _, err := checkpoint.NewSavepoints(s.blobs, s.app, nil, nil).Delete(s.t.Context(), name); err != nil {
		s.t.Fatal(err)
	}
}

// rows are those of a topic; only those of one text are in order.
func (s *stage) rows(topic string) []row { return s.rowsSince(topic, nil) }

// rowsSince are those behind a mark.
func (s *stage) rowsSince(topic string, mark map[int32]int64) []row {
	s.t.Helper()
	var rows []row
	for _, r := range s.read(topic) {
		if r.Offset < mark[r.Partition] {
			continue
		}
		rows = append(rows, fromJSON[row](s.t, r.Value))
	}
	return rows
}

// mark is where a topic ends.
func (s *stage) mark(topic string) map[int32]int64 {
	s.t.Helper()
	ends, err := kadm.NewClient(s.cl).ListEndOffsets(s.t.Context(), topic)
	if err != nil {
		s.t.Fatal(err)
	}
	mark := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) { mark[o.Partition] = o.Offset })
	return mark
}

// fired waits until all timers and windows of the events have fired, since what moves the time comes after the records.
func (s *stage) fired(rows func() []row) {
	s.t.Helper()
	windows := map[string]bool{}
	for _, e := range s.sent {
		windows[fmt.Sprint(e.Text, e.At/windowMs)] = true
	}
	testutil.Eventually(s.t, patience, func() error {
		timed := 0
		for _, r := range rows() {
			if r.Kind != "r" {
				timed++
			}
		}
		if want := len(s.sent) + len(windows); timed < want {
			return fmt.Errorf("%d timers and windows have fired, want %d", timed, want)
		}
		return nil
	})
}

// checkRows compares all rows with what the events make: for each text the numbers of its events in order, and each
// timer and window once.
func checkRows(t *testing.T, rows []row, events []event) {
	t.Helper()
	last, timers, windows := map[string]int64{}, map[string]int64{}, map[string]int64{}
	for _, r := range rows {
		at := fmt.Sprintf("%s at %d", r.Text, r.At-startAt)
		switch r.Kind {
		case "r":
			if last[r.Text]++; r.N != last[r.Text] || r.List != r.N || r.Map != r.N {
				t.Fatalf("event %d of %s: value %d, list of %d, map of %d", last[r.Text], r.Text, r.N, r.List, r.Map)
			}
		case "t":
			timers[at]++
		case "w":
			if windows[at] > 0 {
				t.Fatalf("the window %s fired twice, with %d and %d", at, windows[at], r.N)
			}
			windows[at] = r.N
		}
	}
	wantLast, wantTimers, wantWindows := map[string]int64{}, map[string]int64{}, map[string]int64{}
	for _, e := range events {
		wantLast[e.Text]++
		wantTimers[fmt.Sprintf("%s at %d", e.Text, e.At+timerMs-startAt)] = 1
		wantWindows[fmt.Sprintf("%s at %d", e.Text, e.At-e.At%windowMs+windowMs-startAt)]++
	}
	for _, c := range []struct {
		what      string
		got, want map[string]int64
	}{{"events", last, wantLast}, {"timers", timers, wantTimers}, {"windows", windows, wantWindows}} {
		if !maps.Equal(c.got, c.want) {
			for _, k := range slices.Sorted(maps.Keys(c.want)) {
				if c.got[k] != c.want[k] {
					t.Errorf("%s: %s has %d, want %d", c.what, k, c.got[k], c.want[k])
				}
			}
			t.Fatalf("%s: %d of %d", c.what, len(c.got), len(c.want))
		}
	}
}

func from(savepoint string) func(*engine.Options) {
	return func(o *engine.Options) { o.Start.Mode = "savepoint:" + savepoint }
}

// TestRollBack deploys a version that goes wrong, and goes back to the savepoint from before: what came after it is
// processed again by the old version, with the state, timers, windows and offsets of the savepoint, and without a trace of the
// wrong future in local stores, checkpoints, changelogs and the group. Then savepoint and disks are lost.
func TestRollBack(t *testing.T) {
	s := newStage(t, "roll", nparts)
	dir := memstore.NewDir(s.app)
	s.once(behindKeyBy, dir, nil, 200, 11)
	s.save("before", dir)
	before := s.rows("rows")

	bad := s.run(func(t *processor.Topology) {
		remember(processor.KeyBy(processor.From(t, timed()), "by-text", func(e event) string { return e.Text }), "rows", 1000)
	}, dir, nil)
	s.send(200, 11)
	s.settle(bad)
	bad.stop(t)
	wrong := s.rows("rows")
	if !slices.ContainsFunc(wrong, func(r row) bool { return r.N > 1000 }) {
		t.Fatal("the bad version was right")
	}

	mark := s.mark("rows")
	// Another process, started as before, joins the incarnation that the first one begins.
	back := s.run(behindKeyBy, dir, from("before"))
	other := s.run(behindKeyBy, memstore.NewDir(s.app), from("before"))
	s.send(100, 11)
	s.settle(back)
	if st := back.w.Status(); st.Incarnation != 2 {
		t.Fatalf("incarnation %d", st.Incarnation)
	}
	s.forget("before")
	s.close()
	right := func() []row { return append(slices.Clone(before), s.rowsSince("rows", mark)...) }
	s.fired(right)
	back.stop(t)
	other.stop(t)
	// What the bad version had emitted is emitted again, rightly.
	checkRows(t, right(), s.sent)

	// Started again in the same mode it goes on, from the changelog alone.
	again := s.run(behindKeyBy, memstore.NewDir(s.app), func(o *engine.Options) {
		from("before")(o)
		o.Checkpoints = engine.Checkpoints{Blobs: s.blobs, Interval: time.Hour}
	})
	n := len(s.sent)
	s.sent = append(s.sent, event{"word-3", 1, startAt + 100_000})
	s.produce([]*kgo.Record{{Topic: "events", Value: asJSON(t, s.sent[n])}})
	s.settle(again)
	again.stop(t)
	var last int64
	for _, e := range s.sent {
		if e.Text == "word-3" {
			last++
		}
	}
	all := slices.DeleteFunc(s.rows("rows"), func(r row) bool { return r.Kind != "r" || r.Text != "word-3" })
	if r := all[len(all)-1]; r.Kind != "r" || r.N != last || r.List != last {
		t.Errorf("after all was lost but the changelog the last row is %+v, want number %d", r, last)
	}
	if strings.Contains(again.log.String(), "way=checkpoint") {
		t.Error("the state came from a checkpoint")
	}
}

// TestRescaleFromSavepoint goes from 2 subtasks to 4 and to 3, with and without a repartition topic, and loses all but the
// changelog after each.
func TestRescaleFromSavepoint(t *testing.T) {
	for _, c := range []struct {
		name     string
		topology func(*processor.Topology)
		byText   bool
	}{{"behind a KeyBy", behindKeyBy, false}, {"by the partitions of the input", byInput, true}} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t, "scale", 12)
			s.byText = c.byText
			var dir *memstore.Dir
			for i, n := range []int{2, 4, 3} {
				dir = memstore.NewDir(s.app)
				m := s.run(c.topology, dir, func(o *engine.Options) {
					o.Parallelism = n
					if i > 0 {
						from(fmt.Sprintf("s%d", i))(o)
					}
				})
				s.send(150, 17)
				s.settle(m)
				st := m.w.Status()
				if want := n * (1 + strings.Count(c.name, "KeyBy")); len(st.Subtasks) != want || st.Incarnation != uint64(i+1) {
					t.Fatalf("%d subtasks in incarnation %d, want %d", len(st.Subtasks), st.Incarnation, want)
				}
				if i > 0 {
					s.forget(fmt.Sprintf("s%d", i))
				}
				m.stop(t)
				dir = memstore.NewDir(s.app)
				m = s.run(c.topology, dir, nil) // in mode latest, without a word on the parallelism
				s.send(150, 17)
				s.settle(m)
				if i == 2 {
					s.close()
					s.fired(func() []row { return s.rows("rows") })
				}
				m.stop(t)
				s.save(fmt.Sprintf("s%d", i+1), dir)
			}
			checkRows(t, s.rows("rows"), s.sent)
			// The old number is refused, and the way is named.
			m := s.run(c.topology, dir, func(o *engine.Options) { o.Parallelism = 4 })
			if err := m.wait(t); err == nil || !strings.Contains(err.Error(), "made with 3 subtasks") || !strings.Contains(err.Error(), "millrace rescale --subtasks=4") {
				t.Errorf("another parallelism: %v", err)
			}
		})
	}
}

// TestStartFresh begins without state, once for each nonce, while members in another mode go on in the new incarnation
// by themselves.
func TestStartFresh(t *testing.T) {
	s := newStage(t, "fresh", nparts)
	old := s.run(byInput, memstore.NewDir(s.app), nil)
	s.byText = true
	s.send(100, 7)
	s.settle(old)
	count := func() (n int) {
		for _, r := range s.rows("rows") {
			if r.Kind == "r" {
				n++
			}
		}
		return n
	}
	begun := uint64(1)
	for _, nonce := range []string{"", "2"} {
		begun++
		fresh := func(o *engine.Options) { o.Start = engine.Start{Mode: "fresh", Nonce: nonce} }
		for range 2 { // the second start joins
			m := s.run(byInput, memstore.NewDir(s.app), fresh)
			testutil.Eventually(t, patience, func() error {
				a, b := old.w.Status(), m.w.Status()
				if a.Incarnation != begun || b.Incarnation != begun || len(a.Subtasks) != nparts/2 || len(b.Subtasks) != nparts/2 {
					return fmt.Errorf("incarnations %d and %d, %d and %d subtasks", a.Incarnation, b.Incarnation, len(a.Subtasks), len(b.Subtasks))
				}
				return nil
			})
			s.settle(m)
			m.stop(t)
			s.settle(old)
		}
		if n := count(); n != 100*int(begun) {
			t.Fatalf("%d rows in incarnation %d", n, begun)
		}
	}
	old.stop(t)
	// An old configuration does not take back what came since.
	m := s.run(byInput, memstore.NewDir(s.app), func(o *engine.Options) { o.Start.Mode = "fresh" })
	s.settle(m)
	if st := m.w.Status(); st.Incarnation != begun || !strings.Contains(m.log.String(), "start.nonce") {
		t.Errorf("incarnation %d", st.Incarnation)
	}
	m.stop(t)
}

// TestOtherApp begins another app from a savepoint; both go on from there, each for itself.
func TestOtherApp(t *testing.T) {
	s := newStage(t, "one", nparts)
	s.byText = true
	s.topic("rows-of-two", nparts)
	dir := memstore.NewDir(s.app)
	one := s.run(byInput, dir, nil)
	s.send(200, 11)
	s.settle(one)
	one.stop(t)
	s.save("shared", dir)
	before := s.rows("rows")

	one = s.run(byInput, dir, nil)
	elsewhere := *s
	elsewhere.app, elsewhere.blobs = "two", blobtest.NewMemory() // its own checkpoints are elsewhere
	topology := func(t *processor.Topology) {
		remember(processor.FromKeyed(t, format.String(), timed()), "rows-of-two", 0)
	}
	var opened atomic.Int64
	two := elsewhere.run(topology, memstore.NewDir("two"), func(o *engine.Options) {
		o.Start.Mode = "savepoint:file:///elsewhere/one/savepoints/shared"
		o.OpenBlobs = func(_ context.Context, url string) (blob.Store, error) {
			if url != "file:///elsewhere" {
				return nil, fmt.Errorf("unknown store %s", url)
			}
			opened.Add(1)
			return s.blobs, nil
		}
	})
	s.send(200, 11)
	s.close()
	s.settle(one)
	elsewhere.settle(two)
	one.stop(t)
	two.stop(t)
	checkRows(t, s.rows("rows"), s.sent)
	checkRows(t, append(before, s.rows("rows-of-two")...), s.sent)
	if opened.Load() == 0 {
		t.Error("the store of the savepoint was not opened")
	}
}

// TestStoresMove begins a topology that has a KeyBy in front of what was keyed by the input, so that its state is that of
// another sub-topology, and that has lost a store.
func TestStoresMove(t *testing.T) {
	s := newStage(t, "move", nparts)
	s.byText = true
	extra := func(t *processor.Topology) {
		in := processor.FromKeyed(t, format.String(), timed())
		remember(in, "rows", 0)
		processor.ToTopic(processor.RunningAggregate(in, "extra", processor.Count[event](), func(text string, n int64, _ event) word { return word{text, n} }), "out")
	}
	dir := memstore.NewDir(s.app)
	m := s.run(extra, dir, nil)
	s.send(200, 11)
	s.settle(m)
	m.stop(t)
	s.save("before", dir)
	refused := s.run(behindKeyBy, dir, from("before"))
	if err := refused.wait(t); err == nil || !strings.Contains(err.Error(), "extra") || !strings.Contains(err.Error(), "start.allow-dropped-state") {
		t.Fatalf("a topology without the store: %v", err)
	}
	m = s.run(behindKeyBy, dir, func(o *engine.Options) { from("before")(o); o.AllowDroppedState = true })
	s.send(200, 11)
	s.close()
	s.fired(func() []row { return s.rows("rows") })
	m.stop(t)
	checkRows(t, s.rows("rows"), s.sent)
}

// TestBaseCrashes dies at each point of the first takeover from a savepoint: the next one goes on right, and nothing is
// there twice.
func TestBaseCrashes(t *testing.T) {
	for _, point := range []string{failpoint.MidBaseLoad, failpoint.MidBaseChangelog, failpoint.AfterBase, failpoint.BeforeEndTxn, failpoint.AfterEndTxn} {
		t.Run(point, func(t *testing.T) {
			s := newStage(t, "crash", nparts)
			s.byText = true
			// A large value makes the state of each subtask larger than one part.
			heavy := func(t *processor.Topology) {
				in := processor.FromKeyed(t, format.String(), timed())
				remember(in, "rows", 0)
				processor.ToTopic(processor.Process(in, "heavy", func(ctx *processor.KeyedContext[string, event, word]) {
					v := processor.Value[[]byte](ctx, "v")
					ctx.OnRecord(func(event) error {
						if len(v.Get()) == 0 {
							v.Set(make([]byte, 700<<10))
						}
						return nil
					})
				}), "out")
			}
			dir := memstore.NewDir(s.app)
			m := s.run(heavy, dir, func(o *engine.Options) { o.Parallelism = 2 })
			s.send(100, 23)
			s.settle(m)
			m.stop(t)
			s.save("before", dir)
			p, err := failpoint.Arm(point, func() error { return failpoint.ErrInjected })
			if err != nil {
				t.Fatal(err)
			}
			defer p.Disarm()
			begin := func(o *engine.Options) { from("before")(o); o.Parallelism = 1 }
			dead := s.run(heavy, memstore.NewDir(s.app), begin)
			if err := dead.wait(t); err == nil || !strings.Contains(err.Error(), failpoint.ErrInjected.Error()) || p.Hits() == 0 {
				t.Fatalf("the worker passed the point %d times and ended with %v", p.Hits(), err)
			}
			p.Disarm()
			// Its disk is lost, too.
			s.once(heavy, memstore.NewDir(s.app), begin, 100, 23)
			s.forget("before")
			m = s.run(heavy, memstore.NewDir(s.app), nil)
			s.close()
			s.settle(m)
			m.stop(t)
			checkRows(t, s.rows("rows"), s.sent)
		})
	}
}

// TestSchemasOfSubtasksMeet puts subtasks together that have numbered the schemas of a state differently, since one wrote
// with the first version of the program and the other only with the second.
func TestSchemasOfSubtasksMeet(t *testing.T) {
	s := newStage(t, "schemas", 2)
	type v1 struct{ N int64 }
	type v2 struct {
		Last string
		N    int64
	}
	first := func(t *processor.Topology) {
		processor.ToTopic(processor.Process(processor.FromKeyed(t, format.String(), timed()), "count", func(ctx *processor.KeyedContext[string, event, row]) {
			v := processor.Value[v1](ctx, "v")
			ctx.OnRecord(func(e event) error {
				v.Update(func(v *v1) { v.N++ })
				ctx.Emit(row{Text: e.Text, N: v.Get().N})
				return nil
			})
		}), "rows")
	}
	second := func(t *processor.Topology) {
		processor.ToTopic(processor.Process(processor.FromKeyed(t, format.String(), timed()), "count", func(ctx *processor.KeyedContext[string, event, row]) {
			v := processor.Value[v2](ctx, "v")
			ctx.OnRecord(func(e event) error {
				v.Update(func(v *v2) { v.N++; v.Last += "x" })
				ctx.Emit(row{Text: e.Text, N: v.Get().N, List: int64(len(v.Get().Last))})
				return nil
			})
		}), "rows")
	}
	// Texts of either partition.
	var texts [2][]string
	for i := 0; len(texts[0]) < 3 || len(texts[1]) < 3; i++ {
		text := fmt.Sprintf("word-%d", i)
		p := format.Partition([]byte(text), 2)
		texts[p] = append(texts[p], text)
	}
	send := func(texts ...string) {
		for _, text := range texts {
			s.produce([]*kgo.Record{{Topic: "events", Key: []byte(text), Value: asJSON(t, event{text, 1, startAt})}})
		}
	}
	dir := memstore.NewDir(s.app)
	m := s.run(first, dir, nil)
	send(texts[0][0], texts[0][1])
	s.settle(m)
	m.stop(t)
	m = s.run(second, dir, nil)
	send(texts[0][1], texts[0][2], texts[1][0], texts[1][1])
	s.settle(m)
	m.stop(t)
	s.save("before", dir)
	m = s.run(second, memstore.NewDir(s.app), func(o *engine.Options) { from("before")(o); o.Parallelism = 1 })
	send(texts[0][0], texts[0][1], texts[0][2], texts[1][0], texts[1][1], texts[1][2])
	s.settle(m)
	m.stop(t)
	got := map[string]string{}
	for _, r := range s.rows("rows") {
		got[r.Text] = fmt.Sprint(r.N, r.List)
	}
	want := map[string]string{texts[0][0]: "2 1", texts[0][1]: "3 2", texts[0][2]: "2 2", texts[1][0]: "2 2", texts[1][1]: "2 2", texts[1][2]: "1 1"}
	if !maps.Equal(got, want) {
		t.Errorf("counts and lengths are %v, want %v", got, want)
	}
}

// TestStartRefused names what is wrong with the savepoint that a start asks for, and leaves the app as it was.
func TestStartRefused(t *testing.T) {
	s := newStage(t, "refused", nparts)
	s.byText = true
	dir := memstore.NewDir(s.app)
	s.once(byInput, dir, nil, 50, 7)
	s.save("good", dir)
	sps := checkpoint.NewSavepoints(s.blobs, s.app, nil, nil)
	if _, err := sps.Begin(t.Context(), checkpoint.Savepoint{Name: "half", ClusterID: "c", Incarnation: 1, Expected: []string{"0_0"}, Deadline: time.Now().Add(time.Hour).UnixMilli()}); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[string]string{
		"savepoint:none":                  "there is no such savepoint",
		"savepoint:half":                  "is running and cannot be begun from",
		"savepoint:two/good":              "there is no such savepoint",
		"savepoint:s3://b/x/y":            "want <name>",
		"savepoint:s3://b/a/savepoints/n": "is not the store",
	} {
		m := s.run(byInput, dir, func(o *engine.Options) { o.Start.Mode = mode })
		if err := m.wait(t); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", mode, err, want)
		}
	}
	// The input was made anew: the offsets mean something else.
	adm := kadm.NewClient(s.cl)
	if res, err := adm.DeleteTopics(t.Context(), "events"); err != nil || res.Error() != nil {
		t.Fatal(err, res)
	}
	s.topic("events", nparts)
	m := s.run(byInput, dir, from("good"))
	if err := m.wait(t); err == nil || !strings.Contains(err.Error(), "deleted and created again") {
		t.Errorf("the input was made anew: %v", err)
	}
	m = s.run(byInput, dir, func(o *engine.Options) { o.Start.Mode = "fresh" })
	s.settle(m)
	if inc := m.w.Status().Incarnation; inc != 2 {
		t.Errorf("incarnation %d, want 2: refused starts begin none", inc)
	}
	m.stop(t)
}
