package engine_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
	"github.com/millrace-stream/millrace/txn"
)

// What versions of a program keep of a word.
type (
	tally1 struct{ N int32 }
	tally2 struct {
		Total  int64
		Before string // what it was migrated from
	}
)

var errOdd = errors.New("nobody likes it")

func toTally2(t tally1) (tally2, error) { return tally2{int64(t.N), fmt.Sprint(t.N)}, nil }

// tallyWords counts words in state of type A under the operator "tally".
func tallyWords[A any](add func(*A), of func(A) int64, o ...processor.Option) func(*processor.Topology) {
	return func(t *processor.Topology) {
		byText := processor.KeyBy(processor.From(t, processor.Topic[word]{Name: "in"}), "by-text", func(w word) string { return w.Text })
		processor.ToTopic(processor.RunningAggregate(byText, "tally", processor.Fold(func(a *A, _ word) { add(a) }),
			func(text string, a A, _ word) word { return word{text, of(a)} }, o...), "out")
	}
}

func tally1Words() func(*processor.Topology) {
	return tallyWords(func(a *tally1) { a.N++ }, func(a tally1) int64 { return int64(a.N) })
}

func tally2Words(o ...processor.Option) func(*processor.Topology) {
	return tallyWords(func(a *tally2) { a.Total++ }, func(a tally2) int64 { return a.Total }, o...)
}

const byText = "words-by-text-repartition"

// refused starts a program that must not start, and returns why; it must not have joined the group.
func (c *cluster) refused(topology func(*processor.Topology), dir statestore.Dir, change func(*engine.Options)) string {
	c.t.Helper()
	m := c.start("words", topology, dir, change)
	err := m.wait(c.t)
	if err == nil {
		c.t.Fatal("it started")
	}
	if log := m.log.String(); strings.Contains(log, "subtask") {
		c.t.Fatalf("it joined the group before it was refused:\n%s", log)
	}
	return err.Error()
}

// once runs a member until it has processed n words more.
func (c *cluster) once(topology func(*processor.Topology), dir statestore.Dir, change func(*engine.Options), n, keys int) *member {
	c.t.Helper()
	m := c.start("words", topology, dir, change)
	c.send(n, keys)
	c.drained("words", "in", byText)
	m.stop(c.t)
	return m
}

// TestUpgradeWithMigration changes the type of a state: without a migration the new program is refused, with one it goes
// on from its local store and from the changelog alike, and the old program cannot come back over it.
func TestUpgradeWithMigration(t *testing.T) {
	c := newCluster(t)
	dir := memstore.NewDir("words")
	c.once(tally1Words(), dir, nil, 100, 10)

	if why := c.refused(tally2Words(), dir, nil); !strings.Contains(why, "tally     value  incompatible  its values: ") {
		t.Fatal(why)
	}
	migrate := processor.MigrateState(statestore.Migrate(toTally2))
	b := c.once(tally2Words(migrate), dir, nil, 50, 5) // the other five words stay as version 1 wrote them
	if log := b.log.String(); strings.Count(log, "the topology changed") != 1 || !strings.Contains(log, "values are migrated when they are read") {
		t.Fatalf("what the start took over is told otherwise:\n%s", log)
	}
	if why := c.refused(tally1Words(), dir, nil); !strings.Contains(why, "do not go back by themselves") {
		t.Fatal(why)
	}
	if why := c.refused(tally2Words(), dir, nil); !strings.Contains(why, "for which an earlier version had a migration: keep it") {
		t.Fatal(why)
	}
	d := c.once(tally2Words(migrate), memstore.NewDir("words"), nil, 100, 10) // from the changelog
	checkCounts(t, c.read("out"), 250, 10)
	if strings.Contains(d.log.String(), "the topology changed") {
		t.Error("a restart tells of a change")
	}
}

// TestMigrationFailsByPolicy: the record whose state cannot be migrated goes by the policy of the operator.
func TestMigrationFailsByPolicy(t *testing.T) {
	c := newCluster(t)
	dir := memstore.NewDir("words")
	c.once(tally1Words(), dir, nil, 40, 4)
	migrate := processor.MigrateState(statestore.Migrate(func(a tally1) (tally2, error) {
		if a.N == 11 {
			return tally2{}, errOdd
		}
		return toTally2(a)
	}))
	c.once(tally1Words(), dir, nil, 1, 1) // word-0 has 11

	d := c.start("words", tally2Words(migrate), dir, nil)
	c.send(4, 4)
	err := d.wait(t)
	if err == nil || !errors.Is(err, errOdd) || !strings.Contains(err.Error(), "tally") || !strings.Contains(err.Error(), "migrate engine_test.tally1 to engine_test.tally2") || !strings.Contains(err.Error(), byText) {
		t.Fatalf("policy fail: %v", err)
	}
	e := c.start("words", tally2Words(migrate, processor.OnError(processor.DeadLetter)), dir, nil)
	c.drained("words", "in", byText)
	e.stop(t)
	dead := c.read("words-dead-letter")
	if len(dead) != 1 || string(dead[0].Key) != "word-0" {
		t.Fatalf("%d dead letters: %v", len(dead), dead)
	}
	if rows := c.read("out"); len(rows) != 44 {
		t.Fatalf("%d rows, want 44", len(rows))
	}
}

// TestUpgradeAddsAndRemovesOperators: an operator that is added begins empty, one that is removed needs a word, and what
// was removed does not come back with its old entries.
func TestUpgradeAddsAndRemovesOperators(t *testing.T) {
	c := newCluster(t)
	dir := memstore.NewDir("words")
	topology := func(ids ...string) func(*processor.Topology) {
		return func(t *processor.Topology) {
			byText := processor.KeyBy(processor.From(t, processor.Topic[word]{Name: "in"}), "by-text", func(w word) string { return w.Text })
			for _, id := range ids {
				counts := processor.RunningAggregate(byText, id, processor.Count[word](), func(text string, n int64, _ word) word { return word{id + " " + text, n} })
				processor.To(counts, processor.SinkTopic[word]{Name: "out", ID: id})
			}
		}
	}
	highest := func() map[string]int64 {
		n := map[string]int64{}
		for _, r := range c.read("out") {
			var w word
			if err := json.Unmarshal(r.Value, &w); err != nil {
				t.Fatal(err)
			}
			id, _, _ := strings.Cut(w.Text, " ")
			n[id] = w.N // of any word: all are sent alike
		}
		return n
	}
	allow := func(o *engine.Options) { o.AllowDroppedState = true }
	run := func(n int, change func(*engine.Options), ids ...string) {
		c.once(topology(ids...), dir, change, n*4, 4)
	}
	run(10, nil, "one", "two")
	run(10, nil, "one", "two", "three")
	if n := highest(); n["one"] != 20 || n["two"] != 20 || n["three"] != 10 {
		t.Fatalf("three was added: %v", n)
	}
	if why := c.refused(topology("one", "three"), dir, nil); !strings.Contains(why, "two       value  dropped") || !strings.Contains(why, "--start.allow-dropped-state") {
		t.Fatal(why)
	}
	run(10, allow, "one", "three")
	if n := highest(); n["one"] != 30 || n["two"] != 20 || n["three"] != 20 {
		t.Fatalf("two was removed: %v", n)
	}
	run(5, nil, "one", "two", "three")
	if n := highest(); n["one"] != 35 || n["two"] != 5 || n["three"] != 25 {
		t.Fatalf("two came back, and is to begin anew: %v", n)
	}
	dir = memstore.NewDir("words") // from the changelog, which has the entries of both
	run(5, nil, "one", "two", "three")
	if n := highest(); n["one"] != 40 || n["two"] != 10 || n["three"] != 30 {
		t.Fatalf("after a restore: %v", n)
	}
}

// TestUnreadRepartitionRecords: a KeyBy that is renamed would lose what its topic still holds.
func TestUnreadRepartitionRecords(t *testing.T) {
	c := newCluster(t)
	dir := memstore.NewDir("words")
	named := func(id string) func(*processor.Topology) {
		return func(t *processor.Topology) {
			keyed := processor.KeyBy(processor.From(t, processor.Topic[word]{Name: "in"}), id, func(w word) string { return w.Text })
			processor.ToTopic(processor.RunningAggregate(keyed, "count", processor.Count[word](), func(text string, n int64, _ word) word { return word{text, n} }), "out")
		}
	}
	a := c.start("words", named("by-text"), dir, nil)
	c.send(40, 4)
	c.drained("words", "in", byText)
	if why := c.refused(named("by-word"), memstore.NewDir("words"), nil); !strings.Contains(why, "1 members of the app are still in its group") {
		t.Fatal(why)
	}
	a.stop(t)
	// What an upstream subtask had committed when all stopped, and its downstream had not seen.
	codec, err := statestore.CodecOf[word]()
	if err != nil {
		t.Fatal(err)
	}
	w := word{"word-0", 0}
	at := c.read(byText)[0]
	if err := c.cl.ProduceSync(t.Context(), &kgo.Record{Topic: byText, Partition: partitionOf(c.read(byText), w.Text), Key: []byte(w.Text), Value: codec.Append(task.AppendDataHeader(nil, at.Timestamp.UnixMilli()), &w)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if why := c.refused(named("by-word"), dir, nil); !strings.Contains(why, "key-by by-text") || !strings.Contains(why, "holds records that were not processed yet") {
		t.Fatal(why)
	}
	b := c.start("words", named("by-text"), dir, nil)
	c.drained("words", "in", byText)
	b.stop(t)
	d := c.start("words", named("by-word"), dir, nil)
	c.send(40, 4)
	c.drained("words", "in", "words-by-word-repartition")
	d.stop(t)
	if log := d.log.String(); !strings.Contains(log, `operator="key-by by-text"`) || !strings.Contains(log, "verdict=dropped") {
		t.Fatalf("the renamed KeyBy is not told:\n%s", log)
	}
	if rows := c.read("out"); len(rows) != 81 {
		t.Fatalf("%d rows, want 81", len(rows))
	}
}

func partitionOf(rs []*kgo.Record, key string) int32 {
	for _, r := range rs {
		if string(r.Key) == key {
			return r.Partition
		}
	}
	return -1
}

// TestInputsMove: an input that another sub-topology reads after a change goes on where it was, and so does one that was
// not read for a while.
func TestInputsMove(t *testing.T) {
	c := newCluster(t)
	if _, err := kadm.NewClient(c.cl).CreateTopics(t.Context(), nparts, 1, nil, "more"); err != nil {
		t.Fatal(err)
	}
	dir := memstore.NewDir("words")
	copies := func(topics ...string) func(*processor.Topology) {
		return func(t *processor.Topology) {
			for _, name := range topics { // each is a sub-topology, numbered in this order
				copied := processor.Map(processor.From(t, processor.Topic[word]{Name: name}), func(w word) word { return word{name, w.N} })
				processor.To(copied, processor.SinkTopic[word]{Name: "out", ID: name})
			}
		}
	}
	run := func(change func(*engine.Options), topics ...string) {
		m := c.start("words", copies(topics...), dir, change)
		c.drained("words", topics...)
		m.stop(t)
	}
	allow := func(o *engine.Options) { o.AllowDroppedState = true }
	c.send(100, 4)
	run(nil, "in")
	c.send(10, 4)
	run(nil, "more", "in") // "in" is sub-topology 1 now
	c.send(10, 4)
	if why := c.refused(copies("more"), dir, nil); !strings.Contains(why, "input in") || !strings.Contains(why, "not read any more") {
		t.Fatal(why)
	}
	run(allow, "more")
	run(nil, "in", "more")
	if rows := c.read("out"); len(rows) != 120 {
		t.Fatalf("%d rows, want each record once: 120", len(rows))
	}
}

// TestCheckState asks before a start, and leaves no trace.
func TestCheckState(t *testing.T) {
	c := newCluster(t)
	dir := memstore.NewDir("words")
	check := func(topology func(*processor.Topology), change func(*engine.Options)) engine.CompatTable {
		t.Helper()
		o := c.options("words", topology, change)
		table, err := engine.CheckState(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return table
	}
	if table := check(tally1Words(), nil); len(table) != 0 {
		t.Fatalf("before the first start:\n%s", table)
	}
	topics, err := kadm.NewClient(c.cl).ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if names := topics.Names(); !slices.Equal(names, []string{"in", "out"}) {
		t.Fatalf("asking made topics: %v", names)
	}
	a := c.start("words", tally1Words(), dir, nil)
	c.send(40, 4)
	c.drained("words", "in", byText)
	before := len(c.read("words-control"))
	for _, running := range []bool{true, false} {
		if table := check(tally1Words(), nil); table.Refused() || len(table.Changed()) > 0 || len(table) != 3 {
			t.Fatalf("the same program:\n%s", table)
		}
		if table := check(tally2Words(), nil); !table.Refused() {
			t.Fatalf("another type:\n%s", table)
		}
		migrate := processor.MigrateState(statestore.Migrate(toTally2))
		if table := check(tally2Words(migrate), nil); table.Refused() || table.Changed()[0].Why == "" {
			t.Fatalf("with a migration:\n%s", table)
		}
		renamed := func(t *processor.Topology) {
			processor.ToTopic(processor.KeyBy(processor.From(t, processor.Topic[word]{Name: "in"}), "by-word", func(w word) string { return w.Text }), "out")
		}
		allow := func(o *engine.Options) { o.AllowDroppedState = true }
		if table := check(renamed, allow); table.Refused() || strings.Contains(table.String(), "leaves unread") != running {
			t.Fatalf("running: %t, another KeyBy:\n%s", running, table)
		}
		if running {
			a.stop(t)
		}
	}
	if n := len(c.read("words-control")); n != before {
		t.Fatalf("the control topic has %d records, %d before", n, before)
	}
}

// options are those of a program that only asks.
func (c *cluster) options(app string, topology func(*processor.Topology), change func(*engine.Options)) engine.Options {
	c.t.Helper()
	top := processor.New()
	topology(top)
	plan, err := top.Plan()
	if err != nil {
		c.t.Fatal(err)
	}
	o := engine.Options{Plan: plan, Kafka: txn.Options{AppID: app, Brokers: c.brokers}}
	if change != nil {
		change(&o)
	}
	return o
}

// TestMigrationFromSavepoint begins an incarnation with another type, of another number of subtasks, from the savepoint of
// an old version; a check of the same says so before, and the version of before may still go back to the savepoint.
func TestMigrationFromSavepoint(t *testing.T) {
	type old struct{ N int32 }
	type now struct{ Text string }
	topology := func(bump func(ctx *processor.KeyedContext[string, event, row]) func() int64) func(*processor.Topology) {
		return func(t *processor.Topology) {
			keyed := processor.FromKeyed(t, format.String(), timed())
			processor.ToTopic(processor.Process(keyed, "count", func(ctx *processor.KeyedContext[string, event, row]) {
				count := bump(ctx)
				ctx.OnRecord(func(e event) error { ctx.Emit(row{Text: e.Text, N: count()}); return nil })
			}), "rows")
		}
	}
	v1 := topology(func(ctx *processor.KeyedContext[string, event, row]) func() int64 {
		v := processor.Value[old](ctx, "v")
		return func() int64 { v.Update(func(o *old) { o.N++ }); return int64(v.Get().N) }
	})
	v2 := func(migrations ...statestore.Migration) func(*processor.Topology) {
		return topology(func(ctx *processor.KeyedContext[string, event, row]) func() int64 {
			v := processor.Value[now](ctx, "v", processor.Migrations(migrations...))
			return func() int64 { v.Update(func(n *now) { n.Text += "x" }); return int64(len(v.Get().Text)) }
		})
	}
	migrate := statestore.Migrate(func(o old) (now, error) { return now{strings.Repeat("x", int(o.N))}, nil })

	s := newStage(t, "migrate", nparts)
	s.byText = true
	dir := memstore.NewDir(s.app)
	m := s.run(v1, dir, nil)
	s.send(60, 6)
	s.settle(m)
	m.stop(t)
	s.save("before", dir)

	check := func(topology func(*processor.Topology)) engine.CompatTable {
		table, err := engine.CheckState(t.Context(), s.options(s.app, topology, func(o *engine.Options) {
			from("before")(o)
			o.Checkpoints.Blobs = s.blobs
		}))
		if err != nil {
			t.Fatal(err)
		}
		return table
	}
	if table := check(v2()); !table.Refused() || !strings.Contains(table.String(), "nothing of them would be left") {
		t.Fatalf("without a migration:\n%s", table)
	}
	if table := check(v2(migrate)); table.Refused() || !strings.Contains(table.String(), "values are migrated when they are read") {
		t.Fatalf("with a migration:\n%s", table)
	}
	refused := s.run(v2(), dir, from("before"))
	if err := refused.wait(t); err == nil || !strings.Contains(err.Error(), "nothing of them would be left") {
		t.Fatalf("without a migration: %v", err)
	}
	s.once(v2(migrate), dir, func(o *engine.Options) { from("before")(o); o.Parallelism = 2 }, 30, 3)
	s.once(v2(migrate), memstore.NewDir(s.app), func(o *engine.Options) { from("before")(o); o.Parallelism = 2 }, 60, 6) // from the new changelog
	last := map[string]int64{}
	for _, r := range s.rows("rows") {
		if r.N != last[r.Text]+1 {
			t.Fatalf("count %d of %s follows %d", r.N, r.Text, last[r.Text])
		}
		last[r.Text] = r.N
	}
	if n := last["word-0"] + last["word-5"]; n != 30+20 {
		t.Fatalf("counts: %v", last)
	}
}

// TestInputOfKeyByGrows: a repartition topic keeps its partitions when the input before it gets more.
func TestInputOfKeyByGrows(t *testing.T) {
	c := newCluster(t)
	dir := memstore.NewDir("words")
	c.once(countWords, dir, nil, 100, 10)
	res, err := kadm.NewClient(c.cl).CreatePartitions(t.Context(), nparts, "in")
	if err != nil || res["in"].Err != nil {
		t.Fatal(err, res)
	}
	c.cl.ForceMetadataRefresh()
	table, err := engine.CheckState(t.Context(), c.options("words", countWords, nil))
	if err != nil || table.Refused() || !strings.Contains(table.String(), "it had 4 partitions, and has 8 now") || strings.Count(table.String(), "it had") != 1 {
		t.Fatalf("%v\n%s", err, table)
	}
	b := c.start("words", countWords, dir, nil)
	testutil.Eventually(t, patience, func() error {
		c.send(10, 10) // until the client has heard of the new partitions
		ends, err := kadm.NewClient(c.cl).ListEndOffsets(t.Context(), "in")
		if err != nil {
			return err
		}
		if o, ok := ends.Lookup("in", 2*nparts-1); !ok || o.Offset == 0 {
			return errors.New("nothing lies on the last new partition")
		}
		return nil
	})
	c.drained("words", "in", byText)
	b.stop(t)
	checkCounts(t, c.read("out"), len(c.read("in")), 10)
}
