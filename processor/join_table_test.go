package processor_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
)

func isGone(e joinEvent) bool { return e.ID%4 == 0 }

// changed is a Change as text.
type changed struct {
	What string `json:"what"`
	Old  int    `json:"old"`
	New  int    `json:"new"`
}

// A table of the r rows, and the l rows joined with it as it is at the moment.
func currentTable(t *processor.Topology) {
	in := processor.FromKeyed(t, format.String(), processor.Topic[joinEvent]{Name: "in", EventTime: joinTime, MaxOutOfOrder: ms(30)})
	table := processor.ToTable(in.Filter(func(e joinEvent) bool { return e.Side == "r" }), "table").RemoveWhen(isGone)
	l := in.Filter(func(e joinEvent) bool { return e.Side == "l" })
	processor.ToTopic(processor.JoinTable(l, table, "inner", func(a, b joinEvent) joined { return pairOf(&a, &b) }), "out")
	processor.ToTopic(processor.LeftJoinTable(l, table, "left", func(a joinEvent, b *joinEvent) joined { return pairOf(&a, b) }), "out-left")
	processor.ToTopic(processor.MapValues(table.Changes(), func(c processor.Change[joinEvent]) changed {
		return changed{c.Kind.String(), c.Old.ID, c.New.ID}
	}), "changes")
}

func TestJoinTableMeetsTheValueOfTheMoment(t *testing.T) {
	for seed := range seeds(t, 15) {
		rng := rand.New(rand.NewPCG(seed, 31))
		events := joinEvents(rng, 200, 0, 20, 100)
		last := map[string]joinEvent{}
		var inner, left, changes []string
		for _, e := range events {
			have, ok := last[e.Key]
			if e.Side == "l" {
				if ok {
					inner = append(inner, joinedRow(e.Key, e.ID, have.ID, e.At))
					left = append(left, joinedRow(e.Key, e.ID, have.ID, e.At))
				} else {
					left = append(left, joinedRow(e.Key, e.ID, -1, e.At))
				}
				continue
			}
			c := changed{Old: have.ID}
			switch {
			case isGone(e) && !ok:
				continue
			case isGone(e):
				c.What = "deleted"
				delete(last, e.Key)
			case ok:
				c.What, c.New = "updated", e.ID
				last[e.Key] = e
			default:
				c.What, c.New = "inserted", e.ID
				last[e.Key] = e
			}
			b, _ := json.Marshal(c)
			changes = append(changes, fmt.Sprintf("%s=%s @%d", e.Key, b, max(e.At, 0)))
		}
		for _, o := range []driverOptions{{batch: 1}, {batch: 40, crash: 0.4, behind: 0.5}} {
			o.seed = seed
			d := newDriver(t, currentTable, o)
			for _, e := range events {
				d.sendKeyed("in", e.Key, e, e.At)
			}
			t.Logf("seed %d %+v", seed, o)
			d.run()
			wantRows(t, d.rows("out"), inner...)
			wantRows(t, d.rows("out-left"), left...)
			wantRows(t, d.rows("changes"), changes...)
		}
	}
}

// A table of a topic: nulls remove keys, rows that are at hand are taken in the order of event time, and the table, which
// is quiet, does not hold back the event time of the stream.
func TestTableFromTopic(t *testing.T) {
	d := newDriver(t, func(top *processor.Topology) {
		table := processor.TableFrom(top, "users", format.String(), processor.Topic[string]{Name: "users", Value: format.String()})
		in := processor.FromKeyed(top, format.String(), processor.Topic[joinEvent]{Name: "in", EventTime: joinTime})
		out := processor.LeftJoinTable(in, table, "named", func(e joinEvent, name *string) string {
			if name == nil {
				return fmt.Sprint(e.ID, " nobody")
			}
			return fmt.Sprint(e.ID, " ", *name)
		})
		quiet := processor.Process(out, "last", func(ctx *processor.KeyedContext[string, string, string]) {
			ctx.OnRecord(func(v string) error {
				ctx.Emit(v)
				ctx.RegisterEventTimer(ctx.Timestamp())
				return nil
			})
			ctx.OnTimer(func(tm processor.Timer) error { ctx.Emit(fmt.Sprint("timer ", tm.At.UnixMilli())); return nil })
		})
		processor.To(quiet, processor.SinkTopic[string]{Name: "out", Value: format.String()})
	}, driverOptions{batch: 1000, partitions: map[string]int{"users": 3, "in": 3}})
	user := func(key string, name []byte, at int64) {
		d.produce("users", int(format.Partition([]byte(key), 3)), []byte(key), name, at)
	}
	user("a", []byte("Ann"), 5)
	user("a", []byte("Anna"), 20)
	user("a", nil, 30)
	user("b", []byte("Bob"), 40)
	for i, at := range []int64{1, 10, 25, 35, 50} {
		d.sendKeyed("in", "a", joinEvent{ID: i, Key: "a", At: at}, at)
	}
	d.run()
	wantRows(t, d.rows("out"), "a=0 nobody @1", "a=1 Ann @10", "a=2 Anna @25", "a=3 nobody @35", "a=4 nobody @50",
		"a=timer 1 @1", "a=timer 10 @10", "a=timer 25 @25", "a=timer 35 @35")
}

// firstStart makes a stream and two tables of topics that hold all before the first start: old rows of each key, and then new ones,
// that are later than the stream.
func firstStart(t *testing.T, topology func(*processor.Topology), o driverOptions) *driver {
	t.Helper()
	o.partitions = map[string]int{"in": 4, "users": 4, "tiers": 2}
	d := newDriver(t, topology, o)
	for i := range 20 {
		key := fmt.Sprintf("k%d", i)
		d.sendKeyed("in", key, joinEvent{ID: i, Key: key, At: 50}, 50)
		d.sendText("tiers", key, "old", 1)
		d.sendText("users", key, "old", 1)
	}
	for i := range 20 {
		key := fmt.Sprintf("k%d", i)
		d.sendText("tiers", key, "new", 100)
		d.sendText("users", key, "new", 100)
	}
	for _, st := range d.Tasks { // the first start, with all that is in the topics
		st.Restart()
	}
	d.run()
	return d
}

// What the topic of a table holds at the first start is there before a record of the stream is processed, however little
// is read at a time, with crashes, and where the table is joined of two. Then they go side by side.
func TestTableIsLoadedFirst(t *testing.T) {
	in := func(top *processor.Topology) processor.KeyedStream[string, joinEvent] {
		return processor.FromKeyed(top, format.String(), processor.Topic[joinEvent]{Name: "in", EventTime: joinTime})
	}
	table := func(top *processor.Topology, name string, o ...processor.Option) processor.Table[string, string] {
		return processor.TableFrom(top, name, format.String(), processor.Topic[string]{Name: name}, o...)
	}
	join := func(top *processor.Topology, s processor.KeyedStream[string, joinEvent], t processor.Table[string, string]) {
		processor.ToTopic(processor.LeftJoinTable(s, t, "join", func(e joinEvent, name *string) string {
			if name == nil {
				return fmt.Sprint(e.ID, " none")
			}
			return fmt.Sprint(e.ID, " ", *name)
		}), "out")
	}
	pair := func(a, b string) string { return a + "/" + b }
	for want, topology := range map[string]func(*processor.Topology){
		"new": func(top *processor.Topology) { join(top, in(top), table(top, "users")) },
		"new/new": func(top *processor.Topology) {
			join(top, in(top), processor.JoinTables(table(top, "users"), table(top, "tiers"), "both", pair))
		},
		// The stream comes through a repartition topic.
		"new ": func(top *processor.Topology) {
			join(top, processor.KeyBy(in(top), "by", func(e joinEvent) string { return e.Key }, processor.Parallelism(4)), table(top, "users"))
		},
		"old": func(top *processor.Topology) { join(top, in(top), table(top, "users", processor.ReadAlong())) },
		"none": func(top *processor.Topology) { // a table of a stream is not waited for
			users := processor.FromKeyed(top, format.String(), processor.Topic[string]{Name: "users"})
			join(top, in(top), processor.ToTable(users.Filter(func(v string) bool { return v == "" }), "table"))
		},
	} {
		for seed := range uint64(6) {
			o := driverOptions{batch: 1 + int(seed%3), seed: seed, crash: 0.3, behind: 0.5}
			if want == "old" {
				o = driverOptions{batch: 1000, seed: seed, crash: 0.3}
			}
			d := firstStart(t, topology, o)
			name := strings.TrimSpace(want)
			var rows []string
			for i := range 20 {
				rows = append(rows, fmt.Sprintf("k%d=%d %s @50", i, i, name))
			}
			t.Logf("%q, seed %d", want, seed)
			wantRows(t, d.rows("out"), rows...)
			if want != "new" {
				continue
			}
			// Later on the one with the lowest event time goes first, after a restart too, whatever the table holds.
			for i := range 20 {
				key := fmt.Sprintf("k%d", i)
				d.sendKeyed("in", key, joinEvent{ID: i, Key: key, At: 150}, 150)
				d.sendText("users", key, "late", 200)
				rows = append(rows, fmt.Sprintf("%s=%d new @150", key, i))
			}
			for _, st := range d.Tasks {
				st.Restart()
			}
			d.O.Batch, d.O.Crash = 1000, 0
			d.run()
			wantRows(t, d.rows("out"), rows...)
		}
	}
}

type temporalParams struct {
	keep, bound int64
	left        bool
}

func (p temporalParams) join(l processor.KeyedStream[string, joinEvent], table processor.Table[string, joinEvent]) {
	late := processor.NewOutputTag[joinEvent]("late")
	versions := table.Versioned(ms(p.keep))
	var out processor.KeyedStream[string, joined]
	if p.left {
		out = processor.LeftJoinTable(l, versions, "join", func(a joinEvent, b *joinEvent) joined { return pairOf(&a, b) }, processor.LateLeftTo(late))
	} else {
		out = processor.JoinTable(l, versions, "join", func(a, b joinEvent) joined { return pairOf(&a, &b) }, processor.LateLeftTo(late))
	}
	processor.ToTopic(out, "out")
	processor.To(processor.SideOutput(out, late), processor.SinkTopic[joinEvent]{Name: "late", Key: func(e joinEvent) []byte { return []byte(e.Key) }})
}

func (p temporalParams) one(t *processor.Topology) {
	in := processor.FromKeyed(t, format.String(), processor.Topic[joinEvent]{Name: "in", EventTime: joinTime, MaxOutOfOrder: ms(p.bound)})
	p.join(in.Filter(func(e joinEvent) bool { return e.Side == "l" }),
		processor.ToTable(in.Filter(func(e joinEvent) bool { return e.Side == "r" }), "table").RemoveWhen(isGone))
}

func (p temporalParams) two(t *processor.Topology) {
	topic := func(name string) processor.Topic[joinEvent] {
		return processor.Topic[joinEvent]{Name: name, EventTime: joinTime, MaxOutOfOrder: ms(p.bound)}
	}
	p.join(processor.FromKeyed(t, format.String(), topic("l")), processor.TableFrom(t, "table", format.String(), topic("r")).RemoveWhen(isGone))
}

// model keeps all versions for ever. lateRows counts those of the table.
func (p temporalParams) model(events []joinEvent) (rows, late []string, lateRows int) {
	versions := map[string][]joinEvent{} // by time
	var waiting []joinEvent
	watermark, highest := int64(-1<<62), int64(-1<<62)
	asOf := func(key string, at int64) *joinEvent {
		var found *joinEvent
		for i := range versions[key] {
			if v := &versions[key][i]; v.At <= at {
				found = v
			}
		}
		if found != nil && isGone(*found) {
			return nil
		}
		return found
	}
	emit := func(e joinEvent) {
		if v := asOf(e.Key, e.At); v != nil {
			rows = append(rows, joinedRow(e.Key, e.ID, v.ID, e.At))
		} else if p.left {
			rows = append(rows, joinedRow(e.Key, e.ID, -1, e.At))
		}
	}
	for _, e := range events {
		switch {
		case e.Side == "r":
			vs := versions[e.Key]
			needless := false
			for _, v := range vs {
				needless = needless || v.At <= watermark-p.keep && v.At > e.At
			}
			if needless {
				lateRows++
				break
			}
			vs = slices.DeleteFunc(vs, func(v joinEvent) bool { return v.At == e.At })
			vs = append(vs, e)
			slices.SortFunc(vs, func(a, b joinEvent) int { return int(a.At - b.At) })
			versions[e.Key] = vs
		case e.At > watermark:
			waiting = append(waiting, e)
		case e.At < watermark-p.keep:
			b, _ := json.Marshal(e)
			late = append(late, fmt.Sprintf("%s=%s @%d", e.Key, b, max(e.At, 0)))
		default:
			emit(e)
		}
		highest = max(highest, e.At)
		watermark = max(watermark, highest-p.bound-1)
		waiting = slices.DeleteFunc(waiting, func(e joinEvent) bool {
			if e.At <= watermark {
				emit(e)
			}
			return e.At <= watermark
		})
	}
	slices.Sort(rows)
	slices.Sort(late)
	return rows, late, lateRows
}

func TestVersionedJoinEqualsModel(t *testing.T) {
	lates, lateTable := 0, 0
	for seed := range seeds(t, 40) {
		rng := rand.New(rand.NewPCG(seed, 32))
		p := temporalParams{bound: rng.Int64N(30), left: rng.IntN(2) == 0}
		if rng.IntN(2) == 0 {
			p.keep = rng.Int64N(100)
		}
		events := joinEvents(rng, 250, -300, rng.Int64N(40), 150)
		want, wantLate, lateRows := p.model(events)
		lates, lateTable = lates+len(wantLate), lateTable+lateRows
		for _, o := range []driverOptions{{batch: 1}, {batch: 1000, behind: 1}, {batch: 15, crash: 0.4, behind: 0.5}} {
			o.seed = seed
			d := newDriver(t, p.one, o)
			for _, e := range events {
				d.sendKeyed("in", e.Key, e, e.At)
			}
			t.Logf("seed %d %+v %+v", seed, p, o)
			d.run()
			wantRows(t, d.rows("out"), want...)
			wantRows(t, d.rows("late"), wantLate...)
			if n := d.late(); o.crash == 0 && n != int64(len(wantLate)+lateRows) {
				t.Fatalf("%d late rows counted, want %d and %d of the table", n, len(wantLate), lateRows)
			}
		}
	}
	if lates == 0 || lateTable == 0 {
		t.Fatalf("%d late rows, %d of the table: the test has no teeth", lates, lateTable)
	}
}

// The version of a row depends on event time alone, whatever is read first.
func TestVersionedJoinDependsOnRowsAlone(t *testing.T) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 33))
		p := temporalParams{bound: 30, left: true}
		events := joinEvents(rng, 250, 0, 30, 0)
		// Rows of the table before those of the stream: at equal times the table's counts.
		sorted := slices.Clone(events)
		slices.SortStableFunc(sorted, func(a, b joinEvent) int { return int(a.At - b.At) })
		want, _, _ := p.model(append(sorted, joinEvent{ID: 1, Key: "end", Side: "r", At: 100_000}))
		for _, shape := range [][2]int{{1, 1}, {3, 3}, {4, 2}} {
			o := driverOptions{partitions: map[string]int{"l": shape[0], "r": shape[0]}, parallelism: shape[1], batch: 20 + rng.IntN(100), seed: seed, crash: 0.2, behind: 0.5}
			d := newDriver(t, p.two, o)
			for _, e := range events {
				d.sendKeyed(e.Side, e.Key, e, e.At)
			}
			for part := range shape[0] {
				for i := 0; ; i++ {
					key := fmt.Sprintf("end%d", i)
					if int(format.Partition([]byte(key), int32(shape[0]))) == part {
						d.sendKeyed("l", key, joinEvent{-1, key, "l", 200_000}, 0)
						d.sendKeyed("r", key, joinEvent{-1, key, "r", 100_000}, 0)
						break
					}
				}
			}
			t.Logf("seed %d %+v %+v", seed, p, o)
			d.run()
			wantRows(t, d.rows("out"), want...)
			wantRows(t, d.rows("late"))
		}
	}
}

// Versions that no row can need any more go, of keys that are not seen again too.
func TestVersionsArePruned(t *testing.T) {
	p := temporalParams{keep: 10, left: true}
	d := newDriver(t, p.one, driverOptions{})
	for i := range int64(50) {
		d.sendKeyed("in", "k", joinEvent{ID: 1, Key: "k", Side: "r", At: i}, 0)
	}
	d.sendKeyed("in", "gone", joinEvent{ID: 1, Key: "gone", Side: "r", At: 50}, 0)
	d.sendKeyed("in", "gone", joinEvent{ID: 4, Key: "gone", Side: "r", At: 51}, 0) // removes it
	d.sendKeyed("in", "x", joinEvent{ID: 1, Key: "x", Side: "l", At: 25 * 3600 * 1000}, 0)
	d.run()
	n := 0
	for _, st := range d.Tasks {
		for k := range st.Committed {
			if strings.Contains(k, "k\x00\x01") || strings.Contains(k, "gone") {
				n++
			}
		}
	}
	if n != 1 {
		t.Fatalf("%d entries of state are left of the keys, want the newest version of k", n)
	}
}

// What a version or a row left is dropped where nothing else is due: a version that came before a later one of its key, and
// the piece of rows that all had their versions before a restart.
func TestTemporalJoinLeavesNothing(t *testing.T) {
	p := temporalParams{keep: 10, bound: 50, left: true}
	d := newDriver(t, p.one, driverOptions{})
	send := func(key, side string, at int64) {
		d.sendKeyed("in", key, joinEvent{ID: 1, Key: key, Side: side, At: at}, 0)
		d.run()
	}
	send("k", "r", 40)
	send("k", "r", 20)
	send("x", "l", 1000)
	if n := d.entries("join/versions"); n != 1 {
		t.Errorf("%d versions of a key, want the newest", n)
	}
	send("x", "y", 1060) // neither side: it moves the time, and not over the piece
	if n := d.entries("join/rows"); n != 1 {
		t.Fatalf("%d rows in the piece of one", n)
	}
	for _, st := range d.Tasks {
		st.Restart()
	}
	send("x", "y", 3000)
	if n := d.entries("join/rows"); n != 0 {
		t.Errorf("%d rows are left behind their piece", n)
	}
}

// A key that only one of two joined tables has leaves no version of the joined one.
func TestVersionsOfJoinedTables(t *testing.T) {
	d := newDriver(t, func(top *processor.Topology) {
		in := processor.FromKeyed(top, format.String(), processor.Topic[joinEvent]{Name: "in", EventTime: joinTime})
		side := func(s string) processor.KeyedStream[string, joinEvent] {
			return in.Filter(func(e joinEvent) bool { return e.Side == s })
		}
		both := processor.JoinTables(processor.ToTable(side("a"), "a").RemoveWhen(isGone), processor.ToTable(side("b"), "b").RemoveWhen(isGone), "both",
			func(a, b joinEvent) joined { return pairOf(&a, &b) })
		processor.ToTopic(processor.JoinTable(side("l"), both.Versioned(0), "join", func(e joinEvent, j joined) joined { return j }), "out")
	}, driverOptions{})
	for i, side := range []string{"a", "b"} {
		for n := range 4 { // ids that stay and one that removes what is there, or is not
			d.sendKeyed("in", fmt.Sprint(side, n), joinEvent{ID: i + 1, Key: fmt.Sprint(side, n), Side: side, At: 10}, 0)
			d.sendKeyed("in", fmt.Sprint(side, n), joinEvent{ID: 4, Key: fmt.Sprint(side, n), Side: side, At: 11}, 0)
		}
	}
	d.run()
	if n := d.entries("join/versions"); n != 0 {
		t.Fatalf("%d versions of keys that the joined table never had", n)
	}
	d.sendKeyed("in", "k", joinEvent{ID: 1, Key: "k", Side: "a", At: 12}, 0)
	d.sendKeyed("in", "k", joinEvent{ID: 2, Key: "k", Side: "b", At: 13}, 0)
	d.sendKeyed("in", "k", joinEvent{ID: 4, Key: "k", Side: "b", At: 14}, 0)
	d.run()
	if n := d.entries("join/versions"); n != 2 {
		t.Fatalf("%d versions, want that of the pair and that it is gone", n)
	}
}

func TestTableBuildErrors(t *testing.T) {
	f := func(a, b joinEvent) joined { return joined{} }
	for want, build := range map[string]func(top *processor.Topology, l processor.KeyedStream[string, joinEvent], r processor.Topic[joinEvent]){
		"put a KeyBy in front of both": func(top *processor.Topology, l processor.KeyedStream[string, joinEvent], r processor.Topic[joinEvent]) {
			quoted, err := format.JSON[string]()
			if err != nil {
				t.Fatal(err)
			}
			processor.JoinTable(l, processor.TableFrom(top, "r", quoted, r), "j", f)
		},
		"Versioned keeps -1s": func(top *processor.Topology, l processor.KeyedStream[string, joinEvent], r processor.Topic[joinEvent]) {
			processor.JoinTable(l, processor.TableFrom(top, "r", format.String(), r).Versioned(-time.Second), "j", f)
		},
		"are for joins that have late rows": func(top *processor.Topology, l processor.KeyedStream[string, joinEvent], r processor.Topic[joinEvent]) {
			processor.JoinTable(l, processor.TableFrom(top, "r", format.String(), r), "j", f, processor.LateLeftTo(processor.NewOutputTag[joinEvent]("late")))
		},
		"give it to TableFrom": func(top *processor.Topology, l processor.KeyedStream[string, joinEvent], _ processor.Topic[joinEvent]) {
			processor.ToTable(l, "t", processor.ReadAlong())
		},
		"have no side output": func(top *processor.Topology, l processor.KeyedStream[string, joinEvent], r processor.Topic[joinEvent]) {
			processor.JoinTable(l, processor.TableFrom(top, "r", format.String(), r).Versioned(0), "j", f, processor.LateRightTo(processor.NewOutputTag[joinEvent]("late")))
		},
	} {
		top := processor.New()
		topic := func(name string) processor.Topic[joinEvent] { return processor.Topic[joinEvent]{Name: name} }
		build(top, processor.FromKeyed(top, format.String(), topic("l")), topic("r"))
		if err := top.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}
