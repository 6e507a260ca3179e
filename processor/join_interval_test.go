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

// joinEvent is a row of one side of a join.
type joinEvent struct {
	ID   int    `json:"id"`
	Key  string `json:"key"`
	Side string `json:"side"` // l or r
	At   int64  `json:"at"`   // ms
}

func joinTime(e joinEvent) time.Time { return time.UnixMilli(e.At) }

// joined is a result: the ids of the two rows, -1 for none.
type joined struct {
	L int `json:"l"`
	R int `json:"r"`
}

func pairOf(a, b *joinEvent) joined {
	j := joined{-1, -1}
	if a != nil {
		j.L = a.ID
	}
	if b != nil {
		j.R = b.ID
	}
	return j
}

// intervalParams are one interval join, for the operator and for the model.
type intervalParams struct {
	after, before int64
	kind          processor.JoinKind
	bound         int64
}

func (p intervalParams) within() processor.Interval {
	return processor.Interval{After: ms(p.after), Before: ms(p.before)}
}

func (p intervalParams) join(l, r processor.KeyedStream[string, joinEvent]) {
	late, lateRight := processor.NewOutputTag[joinEvent]("late"), processor.NewOutputTag[joinEvent]("late-right")
	var out processor.KeyedStream[string, joined]
	if p.kind == processor.Inner {
		out = processor.IntervalJoin(l, r, "join", p.within(), func(a, b joinEvent) joined { return pairOf(&a, &b) },
			processor.LateLeftTo(late), processor.LateRightTo(lateRight))
	} else {
		out = processor.IntervalJoinOuter(l, r, "join", p.within(), p.kind, pairOf, processor.LateLeftTo(late), processor.LateRightTo(lateRight))
	}
	processor.ToTopic(out, "out")
	key := func(e joinEvent) []byte { return []byte(e.Key) }
	processor.To(processor.SideOutput(out, late), processor.SinkTopic[joinEvent]{Name: "late", ID: "late-l", Key: key})
	processor.To(processor.SideOutput(out, lateRight), processor.SinkTopic[joinEvent]{Name: "late", ID: "late-r", Key: key})
}

func (p intervalParams) topic(name string) processor.Topic[joinEvent] {
	return processor.Topic[joinEvent]{Name: name, EventTime: joinTime, MaxOutOfOrder: ms(p.bound)}
}

// one reads both sides from one topic, so that the order of all rows is known.
func (p intervalParams) one(t *processor.Topology) {
	in := processor.FromKeyed(t, format.String(), p.topic("in"))
	p.join(in.Filter(func(e joinEvent) bool { return e.Side == "l" }), in.Filter(func(e joinEvent) bool { return e.Side == "r" }))
}

func (p intervalParams) two(t *processor.Topology) {
	p.join(processor.FromKeyed(t, format.String(), p.topic("l")), processor.FromKeyed(t, format.String(), p.topic("r")))
}

func (p intervalParams) repartitioned(t *processor.Topology) {
	key := func(e joinEvent) string { return e.Key }
	p.join(processor.KeyBy(processor.From(t, p.topic("l")), "by-l", key), processor.KeyBy(processor.From(t, p.topic("r")), "by-r", key))
}

// piece is written out: rows without partner are emitted for a power of two of ms together.
func (p intervalParams) piece() int64 {
	for n := int64(1); ; n *= 2 {
		if n >= (p.after+p.before)/4 && n >= p.after/64 && n >= p.before/64 {
			return n
		}
	}
}

type modelJoinRow struct {
	joinEvent
	matched, padded bool
}

// reach is how long after a row's time a partner may come.
func (p intervalParams) reach(side string) int64 {
	if side == "l" {
		return p.after
	}
	return p.before
}

func (p intervalParams) pads(side string) bool {
	return p.kind == processor.Full || p.kind == processor.Left && side == "l" || p.kind == processor.Right && side == "r"
}

func other(side string) string {
	if side == "l" {
		return "r"
	}
	return "l"
}

func joinedRow(key string, l, r int, at int64) string {
	b, _ := json.Marshal(joined{l, r})
	return fmt.Sprintf("%s=%s @%d", key, b, max(at, 0))
}

// model is the obvious one: every row against all others, one row after the other.
func (p intervalParams) model(events []joinEvent) (rows, late []string) {
	var kept []*modelJoinRow
	watermark, highest := int64(-1<<62), int64(-1<<62)
	pad := func(e joinEvent, at int64) {
		if e.Side == "l" {
			rows = append(rows, joinedRow(e.Key, e.ID, -1, at))
		} else {
			rows = append(rows, joinedRow(e.Key, -1, e.ID, at))
		}
	}
	for _, e := range events {
		e := &modelJoinRow{joinEvent: e}
		possible := e.At > watermark || e.At+p.reach(e.Side) > watermark
		for _, k := range kept {
			l, r := e, k
			if e.Side == "r" {
				l, r = k, e
			}
			alive := k.At+p.reach(k.Side) > watermark
			if k.Side == e.Side || k.Key != e.Key || !alive || r.At < l.At-p.before || r.At > l.At+p.after {
				continue
			}
			l.matched, r.matched = true, true
			rows = append(rows, joinedRow(e.Key, l.ID, r.ID, max(l.At, r.At)))
		}
		switch {
		case e.At+p.reach(e.Side) > watermark:
			kept = append(kept, e)
		case e.matched:
		case p.pads(e.Side):
			pad(e.joinEvent, e.At)
		default:
			// Could a row of the other side at any time be its partner, if it were there?
			for at := e.At - p.reach(other(e.Side)); at <= e.At+p.reach(e.Side) && !possible; at++ {
				possible = at+p.reach(other(e.Side)) > watermark
			}
			if !possible {
				b, _ := json.Marshal(e.joinEvent)
				late = append(late, fmt.Sprintf("%s=%s @%d", e.Key, b, max(e.At, 0)))
			}
		}
		highest = max(highest, e.At)
		watermark = max(watermark, highest-p.bound-1)
		for _, k := range kept {
			end := floorDiv(k.At, p.piece())*p.piece() + p.piece()
			if at := end - 1 + p.reach(k.Side); at <= watermark && !k.matched && !k.padded && p.pads(k.Side) {
				k.padded = true
				pad(k.joinEvent, max(at, k.At))
			}
		}
	}
	slices.Sort(rows)
	slices.Sort(late)
	return rows, late
}

func randomInterval(rng *rand.Rand) intervalParams {
	p := intervalParams{after: rng.Int64N(60), before: rng.Int64N(60), bound: rng.Int64N(30), kind: processor.Inner + processor.JoinKind(rng.IntN(4))}
	switch rng.IntN(6) {
	case 0: // only later ones
		p.before = -rng.Int64N(p.after + 1)
	case 1: // only earlier ones
		p.after = -rng.Int64N(p.before + 1)
	case 2: // equal times
		p.after, p.before = 0, 0
	case 3: // far apart
		p.after, p.before = 700, -690
	}
	return p
}

func joinEvents(rng *rand.Rand, n int, from, disorder, straggle int64) []joinEvent {
	var events []joinEvent
	for i, e := range stream(rng, n, from, disorder, straggle) {
		side := "l"
		if rng.IntN(2) == 0 {
			side = "r"
		}
		events = append(events, joinEvent{i, e.Key, side, e.At})
	}
	return events
}

func TestIntervalJoinEqualsModel(t *testing.T) {
	lates, padded := 0, 0
	for seed := range seeds(t, 60) {
		rng := rand.New(rand.NewPCG(seed, 11))
		p := randomInterval(rng)
		events := joinEvents(rng, 250, -300, rng.Int64N(40), 150)
		wantOut, wantLate := p.model(events)
		lates += len(wantLate)
		for _, r := range wantOut {
			if strings.Contains(r, "-1") {
				padded++
			}
		}
		for _, o := range []driverOptions{
			{batch: 1}, {batch: 1000}, {batch: 10, crash: 0.3, behind: 0.3}, {batch: 50, crash: 0.5, behind: 1},
		} {
			o.seed = seed
			d := newDriver(t, p.one, o)
			for _, e := range events {
				d.sendKeyed("in", e.Key, e, e.At)
			}
			d.run()
			t.Logf("seed %d %+v %+v", seed, p, o)
			wantRows(t, d.rows("out"), wantOut...)
			wantRows(t, d.rows("late"), wantLate...)
			if n := d.late(); o.crash == 0 && n != int64(len(wantLate)) {
				t.Fatalf("%d late rows counted, want %d", n, len(wantLate))
			}
		}
	}
	if lates == 0 || padded == 0 {
		t.Fatalf("%d late rows, %d without partner: the test has no teeth", lates, padded)
	}
}

// When no row is late, results depend on the rows alone: not on partitions, subtasks, batches, crashes, on which side was
// read first, or on whether the key came from Kafka or through a repartition topic.
func TestIntervalJoinDependsOnRowsAlone(t *testing.T) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 12))
		p := randomInterval(rng)
		p.bound = 30
		events := joinEvents(rng, 250, 0, 30, 0)
		// The model sees them in order of time: nothing is late then either.
		sorted := slices.Clone(events)
		slices.SortStableFunc(sorted, func(a, b joinEvent) int { return int(a.At - b.At) })
		want, late := p.model(append(sorted, joinEvent{ID: -5, Key: "end", Side: "x", At: 100_000}))
		if len(late) > 0 {
			t.Fatalf("%d rows are late in the model", len(late))
		}
		for _, shape := range [][2]int{{1, 1}, {3, 3}, {4, 2}} {
			partitions, parallelism := shape[0], shape[1]
			for name, topology := range map[string]func(*processor.Topology){"keyed": p.two, "repartitioned": p.repartitioned} {
				o := driverOptions{partitions: map[string]int{"l": partitions, "r": partitions}, parallelism: parallelism, batch: 20 + rng.IntN(100), seed: seed}
				if rng.IntN(2) == 0 {
					o.crash, o.behind = 0.15, 0.5
				}
				d := newDriver(t, topology, o)
				// The watermark passes all of it on every partition, with a row that meets nothing.
				all := slices.Clone(events)
				for part := range partitions {
					for i, found := 0, false; !found; i++ {
						key := fmt.Sprintf("end%d", i)
						if int(format.Partition([]byte(key), int32(partitions))) == part {
							all = append(all, joinEvent{-1 - part, key, "l", 100_000}, joinEvent{-1 - part, key, "r", 200_000})
							found = true
						}
					}
				}
				for _, e := range all {
					if name == "keyed" {
						d.sendKeyed(e.Side, e.Key, e, e.At)
						continue
					}
					b, _ := json.Marshal(e)
					part := rng.IntN(partitions)
					if e.ID < 0 {
						part = -1 - e.ID
					}
					d.produce(e.Side, part, nil, b, e.At)
				}
				t.Logf("seed %d, %s, %d partitions, %d subtasks, %+v", seed, name, partitions, parallelism, p)
				d.run()
				ends := func(r string) bool { return strings.HasPrefix(r, "end") }
				wantRows(t, slices.DeleteFunc(d.rows("out"), ends), slices.DeleteFunc(slices.Clone(want), ends)...)
				wantRows(t, d.rows("late"))
			}
		}
	}
}

// The bounds are inclusive, at the watermark too: 10 ms after and 5 ms before.
func TestIntervalJoinBounds(t *testing.T) {
	p := intervalParams{after: 10, before: 5, kind: processor.Inner, bound: 0}
	for _, c := range []struct {
		right int64
		meets bool
	}{{94, false}, {95, true}, {100, true}, {110, true}, {111, false}} {
		d := newDriver(t, p.one, driverOptions{})
		d.sendKeyed("in", "k", joinEvent{1, "k", "l", 100}, 0)
		d.sendKeyed("in", "k", joinEvent{2, "k", "r", c.right}, 0)
		d.run()
		var want []string
		if c.meets {
			want = append(want, joinedRow("k", 1, 2, max(100, c.right)))
		}
		wantRows(t, d.rows("out"), want...)
	}
	// The watermark stands at 109: the left row at 100 may meet one at 110, and one at 109, which is late; at 110 it is gone.
	for at, meets := range map[int64]bool{109: true, 110: false} {
		d := newDriver(t, p.one, driverOptions{})
		d.sendKeyed("in", "k", joinEvent{1, "k", "l", 100}, 0)
		d.sendKeyed("in", "x", joinEvent{3, "x", "l", at + 1}, 0) // the watermark is at
		d.sendKeyed("in", "k", joinEvent{2, "k", "r", 109}, 0)
		d.run()
		var want []string
		if meets {
			want = append(want, joinedRow("k", 1, 2, 109))
		}
		wantRows(t, d.rows("out"), want...)
	}
}

// A side that never speaks holds the other back; an idle one does not.
func TestIntervalJoinWithAnIdleSide(t *testing.T) {
	p := intervalParams{after: 8, before: 8, kind: processor.Left}
	for _, idle := range []time.Duration{0, time.Second} {
		d := newDriver(t, func(top *processor.Topology) {
			topic := p.topic("r")
			topic.Idle = idle
			p.join(processor.FromKeyed(top, format.String(), p.topic("l")), processor.FromKeyed(top, format.String(), topic))
		}, driverOptions{})
		d.sendKeyed("l", "k", joinEvent{1, "k", "l", 100}, 0)
		d.sendKeyed("l", "k", joinEvent{2, "k", "l", 1000}, 0)
		d.run()
		d.pass(2000)
		d.run()
		var want []string
		if idle > 0 {
			want = append(want, joinedRow("k", 1, -1, 111)) // pieces of 4 ms: 103 + 8
		}
		wantRows(t, d.rows("out"), want...)
	}
}

func TestIntervalJoinBuildErrors(t *testing.T) {
	keyed := func(top *processor.Topology, name string, key format.Serde[string]) processor.KeyedStream[string, joinEvent] {
		return processor.FromKeyed(top, key, processor.Topic[joinEvent]{Name: name})
	}
	f := func(a, b joinEvent) joined { return joined{} }
	for want, build := range map[string]func(*processor.Topology){
		"it ends before it begins": func(top *processor.Topology) {
			processor.IntervalJoin(keyed(top, "l", nil), keyed(top, "r", nil), "j", processor.Interval{After: time.Second, Before: -2 * time.Second}, f)
		},
		"want whole milliseconds": func(top *processor.Topology) {
			processor.IntervalJoin(keyed(top, "l", nil), keyed(top, "r", nil), "j", processor.Interval{After: time.Microsecond}, f)
		},
		"put a KeyBy in front of both": func(top *processor.Topology) {
			quoted, err := format.JSON[string]()
			if err != nil {
				t.Fatal(err)
			}
			processor.IntervalJoin(keyed(top, "l", quoted), keyed(top, "r", format.String()), "j", processor.Interval{After: time.Second}, f)
		},
		"join kind 9 is unknown": func(top *processor.Topology) {
			processor.IntervalJoinOuter(keyed(top, "l", nil), keyed(top, "r", nil), "j", processor.Interval{After: time.Second}, 9, pairOf)
		},
		"function is nil": func(top *processor.Topology) {
			processor.IntervalJoin[string, joinEvent, joinEvent, joined](keyed(top, "l", nil), keyed(top, "r", nil), "j", processor.Interval{After: time.Second}, nil)
		},
		"late rows are processor_test.joinEvent, the tag \"late\" is of int": func(top *processor.Topology) {
			processor.IntervalJoin(keyed(top, "l", nil), keyed(top, "r", nil), "j", processor.Interval{After: time.Second}, f, processor.LateLeftTo(processor.NewOutputTag[int]("late")))
		},
		"sends no late rows to \"other\"": func(top *processor.Topology) {
			out := processor.IntervalJoin(keyed(top, "l", nil), keyed(top, "r", nil), "j", processor.Interval{After: time.Second}, f, processor.LateLeftTo(processor.NewOutputTag[joinEvent]("late")))
			processor.SideOutput(out, processor.NewOutputTag[joinEvent]("other"))
		},
		"are for joins that have late rows": func(top *processor.Topology) {
			processor.Map(keyed(top, "l", nil), func(e joinEvent) int { return e.ID }, processor.LateLeftTo(processor.NewOutputTag[joinEvent]("late")))
		},
	} {
		top := processor.New()
		build(top)
		if err := top.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}
