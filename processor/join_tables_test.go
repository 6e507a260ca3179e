package processor_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
)

var joinKinds = map[string]processor.JoinKind{"inner": processor.Inner, "left": processor.Left, "right": processor.Right, "full": processor.Full}

// joinedTables joins tables of the l and r rows in every way; what is joined is also joined with the stream of l rows.
func joinedTables(t *processor.Topology) {
	in := processor.FromKeyed(t, format.String(), processor.Topic[joinEvent]{Name: "in", EventTime: joinTime, MaxOutOfOrder: ms(30)})
	side := func(s string) processor.KeyedStream[string, joinEvent] {
		return in.Filter(func(e joinEvent) bool { return e.Side == s })
	}
	l := processor.ToTable(side("l"), "table-l").RemoveWhen(isGone)
	r := processor.ToTable(side("r"), "table-r").RemoveWhen(isGone)
	show := func(name string, table processor.Table[string, joined]) {
		processor.ToTopic(processor.MapValues(table.Changes(), func(c processor.Change[joined]) string {
			return fmt.Sprintf("%s %v %v", c.Kind, c.Old, c.New)
		}), name)
	}
	for name, kind := range joinKinds {
		show("out-"+name, processor.JoinTablesOuter(l, r, "join-"+name, kind, func(a, b *joinEvent) joined { return pairOf(a, b) }))
	}
	show("out-two", processor.JoinTables(l, r, "join-two", func(a, b joinEvent) joined { return pairOf(&a, &b) }))
	// Of this one nobody reads the last values.
	unkept := processor.JoinTables(l, r, "join-unkept", func(a, b joinEvent) joined { return pairOf(&a, &b) })
	again := processor.JoinTablesOuter(unkept, l, "join-again", processor.Left, func(a *joined, b *joinEvent) joined { return *a })
	show("out-again", again)
}

// A join of tables is, after every row, the join of what both are then; nothing is told twice, nor the removal of what was not
// there.
func TestJoinTablesEqualsModel(t *testing.T) {
	for seed := range seeds(t, 15) {
		rng := rand.New(rand.NewPCG(seed, 51))
		events := joinEvents(rng, 200, 0, 20, 100)
		tables := map[string]map[string]joinEvent{"l": {}, "r": {}}
		was := map[string]map[string]joined{}
		want := map[string][]string{}
		for _, e := range events {
			_, had := tables[e.Side][e.Key]
			if isGone(e) {
				delete(tables[e.Side], e.Key)
				if !had {
					continue
				}
			} else {
				tables[e.Side][e.Key] = e
			}
			for name := range joinKinds {
				var a, b *joinEvent
				if v, ok := tables["l"][e.Key]; ok {
					a = &v
				}
				if v, ok := tables["r"][e.Key]; ok {
					b = &v
				}
				if was[name] == nil {
					was[name] = map[string]joined{}
				}
				old, before := was[name][e.Key]
				after := a != nil && b != nil || a != nil && (name == "left" || name == "full") || b != nil && (name == "right" || name == "full")
				var now joined
				var what string
				switch {
				case after:
					now = pairOf(a, b)
					was[name][e.Key] = now
					what = "inserted"
					if before {
						what = "updated"
					}
				case before:
					what = "deleted"
					delete(was[name], e.Key)
				default:
					continue
				}
				want[name] = append(want[name], fmt.Sprintf("%s=%s %v %v @%d", e.Key, what, old, now, max(e.At, 0)))
			}
		}
		for _, o := range []driverOptions{{batch: 1}, {batch: 40, crash: 0.4, behind: 0.5}} {
			o.seed = seed
			d := newDriver(t, joinedTables, o)
			for _, e := range events {
				d.sendKeyed("in", e.Key, e, e.At)
			}
			t.Logf("seed %d %+v", seed, o)
			d.run()
			for name := range joinKinds {
				wantRows(t, d.rows("out-"+name), want[name]...)
			}
			wantRows(t, d.rows("out-two"), want["inner"]...)
		}
	}
}

// Of two topics, the tables come out the same whichever is read first, with any number of partitions and subtasks.
func TestJoinTablesOfTopics(t *testing.T) {
	topology := func(top *processor.Topology) {
		text := func(name string) processor.Topic[string] {
			return processor.Topic[string]{Name: name, Value: format.String()}
		}
		users := processor.TableFrom(top, "users", format.String(), text("users"))
		places := processor.TableFrom(top, "places", format.String(), text("places"))
		both := processor.JoinTables(users, places, "both", func(a, b string) string { return a + " of " + b })
		out := processor.FlatMap(both.Changes(), func(c processor.Change[string], emit func(string)) error { emit(c.New); return nil })
		processor.To(out, processor.SinkTopic[string]{Name: "out", Value: format.String(), Key: func(v string) []byte { return []byte(strings.Split(v+"  ", " ")[0]) }})
	}
	for seed, order := range [][]string{{"users", "places"}, {"places", "users"}} {
		d := newDriver(t, topology, driverOptions{batch: 3, crash: 0.3, seed: uint64(seed), partitions: map[string]int{"users": 4, "places": 2}})
		for _, topic := range order {
			for i := range 20 {
				key := fmt.Sprint("u", i)
				value := []byte(key)
				if topic == "places" {
					value = []byte("p" + key)
				}
				if i%5 == 4 && topic == "places" {
					value = nil
				}
				d.produce(topic, int(format.Partition([]byte(key), int32(d.PartitionsOf(topic)))), []byte(key), value, int64(i))
			}
			d.run()
		}
		var want []string
		for i := range 20 {
			if i%5 != 4 {
				want = append(want, fmt.Sprintf("u%d=u%d of pu%d @%d", i, i, i, i))
			}
		}
		wantRows(t, d.rows("out"), want...)
	}
}

func TestJoinTablesBuildErrors(t *testing.T) {
	f := func(a, b joinEvent) joined { return joined{} }
	outer := func(a, b *joinEvent) joined { return joined{} }
	type table = processor.Table[string, joinEvent]
	for want, build := range map[string]func(l, r table){
		"use Inner, Left, Right or Full": func(l, r table) { processor.JoinTablesOuter(l, r, "j", 9, outer) },
		"a Versioned table is for":       func(l, r table) { processor.JoinTables(l.Versioned(time.Second), r, "j", f) },
		"function is nil":                func(l, r table) { processor.JoinTables[string, joinEvent, joinEvent, joined](l, r, "j", nil) },
	} {
		top := processor.New()
		topic := func(name string) processor.Topic[joinEvent] { return processor.Topic[joinEvent]{Name: name} }
		build(processor.TableFrom(top, "l", format.String(), topic("l")), processor.TableFrom(top, "r", format.String(), topic("r")))
		if err := top.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}
