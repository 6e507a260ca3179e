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
	"github.com/millrace-stream/millrace/processor/window"
)

// windowJoinParams are one join of windows: kind is tumbling, sliding or cumulate.
type windowJoinParams struct {
	kind                   string
	size, slide            int64
	lateness, bound, shift int64
}

func (p windowJoinParams) assigner() window.Assigner {
	var a window.Assigner
	switch p.kind {
	case "tumbling":
		a = window.Tumbling(ms(p.size))
	case "sliding":
		a = window.Sliding(ms(p.size), ms(p.slide))
	default:
		a = window.Cumulate(ms(p.size), ms(p.slide))
	}
	if p.shift != 0 {
		a = window.Offset(a, ms(p.shift))
	}
	return a
}

// windows are those that hold a time, by looking at all there are around it.
func (p windowJoinParams) windows(at int64) (all [][2]int64) {
	step := p.slide
	if p.kind == "tumbling" {
		step = p.size
	}
	for start := floorDiv(at-p.shift-p.size, step)*step + p.shift - step; start <= at; start += step {
		switch {
		case p.kind != "cumulate":
			if at < start+p.size {
				all = append(all, [2]int64{start, start + p.size})
			}
		case floorDiv(start-p.shift, p.size)*p.size == start-p.shift:
			for end := start + p.slide; end <= start+p.size; end += p.slide {
				if at < end {
					all = append(all, [2]int64{start, end})
				}
			}
		}
	}
	return all
}

// group is a result of CoGroup: the ids of the rows of a window.
type group struct {
	Start int64 `json:"start"`
	End   int64 `json:"end"`
	L     []int `json:"l"`
	R     []int `json:"r"`
}

func ids(events []joinEvent) []int {
	ids := []int{}
	for _, e := range events {
		ids = append(ids, e.ID)
	}
	return ids
}

func (p windowJoinParams) both(l, r processor.KeyedStream[string, joinEvent]) {
	late, lateRight := processor.NewOutputTag[joinEvent]("late"), processor.NewOutputTag[joinEvent]("late-right")
	w := l.Window(p.assigner()).AllowedLateness(ms(p.lateness)).LateTo(late)
	out := processor.WindowJoin(w, r, "join", func(a, b joinEvent) joined { return pairOf(&a, &b) }, processor.LateRightTo(lateRight))
	processor.ToTopic(out, "out")
	key := func(e joinEvent) []byte { return []byte(e.Key) }
	processor.To(processor.SideOutput(out, late), processor.SinkTopic[joinEvent]{Name: "late", ID: "late-l", Key: key})
	processor.To(processor.SideOutput(out, lateRight), processor.SinkTopic[joinEvent]{Name: "late", ID: "late-r", Key: key})
	processor.ToTopic(processor.CoGroup(l.Window(p.assigner()).AllowedLateness(ms(p.lateness)), r, "group",
		func(w processor.Window[string], l, r []joinEvent, emit func(group)) error {
			emit(group{w.Start.UnixMilli(), w.End.UnixMilli(), ids(l), ids(r)})
			return nil
		}), "groups")
}

func (p windowJoinParams) topic(name string) processor.Topic[joinEvent] {
	return processor.Topic[joinEvent]{Name: name, EventTime: joinTime, MaxOutOfOrder: ms(p.bound)}
}

func (p windowJoinParams) one(t *processor.Topology) {
	in := processor.FromKeyed(t, format.String(), p.topic("in"))
	p.both(in.Filter(func(e joinEvent) bool { return e.Side == "l" }), in.Filter(func(e joinEvent) bool { return e.Side == "r" }))
}

func (p windowJoinParams) two(t *processor.Topology) {
	p.both(processor.FromKeyed(t, format.String(), p.topic("l")), processor.FromKeyed(t, format.String(), p.topic("r")))
}

// model keeps all rows of all windows and looks at each window after each row.
func (p windowJoinParams) model(events []joinEvent) (pairs, groups, late []string) {
	type id struct {
		key        string
		start, end int64
	}
	held := map[id][]joinEvent{}
	fired := map[id]bool{}
	sides := func(i id) (l, r []joinEvent) {
		rows := slices.Clone(held[i])
		slices.SortStableFunc(rows, func(a, b joinEvent) int { return int(a.At - b.At) })
		for _, e := range rows {
			if e.Side == "l" {
				l = append(l, e)
			} else {
				r = append(r, e)
			}
		}
		return l, r
	}
	fire := func(i id, only *joinEvent) {
		l, r := sides(i)
		b, _ := json.Marshal(group{i.start, i.end, ids(l), ids(r)})
		groups = append(groups, fmt.Sprintf("%s=%s @%d", i.key, b, max(i.end-1, 0)))
		for _, a := range l {
			for _, b := range r {
				if only == nil || a == *only || b == *only {
					pairs = append(pairs, joinedRow(i.key, a.ID, b.ID, i.end-1))
				}
			}
		}
	}
	watermark, highest := int64(-1<<62), int64(-1<<62)
	for _, e := range events {
		windows := p.windows(e.At)
		isLate := len(windows) > 0
		for _, w := range windows {
			if i := (id{e.Key, w[0], w[1]}); w[1]-1+p.lateness > watermark {
				isLate = false
				held[i] = append(held[i], e)
				if w[1]-1 <= watermark {
					fired[i] = true
					fire(i, &e)
				}
			}
		}
		if isLate {
			b, _ := json.Marshal(e)
			late = append(late, fmt.Sprintf("%s=%s @%d", e.Key, b, max(e.At, 0)))
		}
		highest = max(highest, e.At)
		watermark = max(watermark, highest-p.bound-1)
		for i := range held {
			if !fired[i] && i.end-1 <= watermark {
				fired[i] = true
				fire(i, nil)
			}
		}
	}
	slices.Sort(pairs)
	slices.Sort(groups)
	slices.Sort(late)
	return pairs, groups, late
}

func randomWindowJoin(rng *rand.Rand) windowJoinParams {
	p := windowJoinParams{kind: []string{"tumbling", "sliding", "cumulate"}[rng.IntN(3)], bound: rng.Int64N(20)}
	p.slide = 1 + rng.Int64N(20)
	p.size = p.slide * (1 + rng.Int64N(4))
	if p.kind == "sliding" && rng.IntN(3) == 0 {
		p.size = 1 + rng.Int64N(60) // no multiple, or with gaps
	}
	if rng.IntN(2) == 0 {
		p.lateness = rng.Int64N(60)
	}
	if rng.IntN(3) == 0 {
		p.shift = 1 + rng.Int64N(5)
	}
	return p
}

func TestWindowJoinEqualsModel(t *testing.T) {
	lates, many := 0, 0
	for seed := range seeds(t, 40) {
		rng := rand.New(rand.NewPCG(seed, 21))
		p := randomWindowJoin(rng)
		events := joinEvents(rng, 200, -300, rng.Int64N(30), 150)
		for i := range events {
			events[i].ID = i // duplicates of a row are rows of their own
		}
		pairs, groups, late := p.model(events)
		lates, many = lates+len(late), many+len(pairs)
		for _, o := range []driverOptions{{batch: 1}, {batch: 1000, behind: 1}, {batch: 15, crash: 0.4, behind: 0.5}} {
			o.seed = seed
			d := newDriver(t, p.one, o)
			for _, e := range events {
				d.sendKeyed("in", e.Key, e, e.At)
			}
			t.Logf("seed %d %+v %+v", seed, p, o)
			d.run()
			wantRows(t, d.rows("out"), pairs...)
			wantRows(t, d.rows("groups"), groups...)
			wantRows(t, d.rows("late"), late...)
			if n := d.late(); o.crash == 0 && n != 2*int64(len(late)) { // CoGroup drops them too
				t.Fatalf("%d late rows counted, want %d", n, 2*len(late))
			}
		}
	}
	if lates == 0 || many == 0 {
		t.Fatalf("%d late rows, %d pairs: the test has no teeth", lates, many)
	}
}

// A slice of which all windows had fired before its first row is dropped as soon as nothing can reach it any more, though
// nothing else is due.
func TestWindowJoinDropsWhatCameLate(t *testing.T) {
	p := windowJoinParams{kind: "tumbling", size: 10, lateness: 100}
	d := newDriver(t, p.one, driverOptions{})
	for _, e := range []joinEvent{{1, "a", "x", 50}, {2, "a", "l", 5}, {3, "a", "r", 6}, {4, "a", "x", 108}} { // x: of no side
		d.sendKeyed("in", "a", e, 0)
		d.run()
	}
	if d.entries("join/left") != 1 || d.entries("join/right") != 1 {
		t.Fatal("the rows are not kept for others within the lateness")
	}
	d.sendKeyed("in", "a", joinEvent{5, "a", "x", 110}, 0) // the watermark is 109 = end - 1 + lateness
	d.run()
	if n := d.entries("join/left") + d.entries("join/right"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	wantRows(t, d.rows("out"), joinedRow("a", 2, 3, 9))
}

func TestWindowJoinDependsOnRowsAlone(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 22))
		p := randomWindowJoin(rng)
		p.bound = 30
		events := joinEvents(rng, 200, 0, 30, 0)
		for i := range events {
			events[i].ID, events[i].At = i, events[i].At*8+int64(rng.IntN(8)) // hardly any equal times, whose order is that of arrival
		}
		p.size, p.slide, p.bound, p.lateness = p.size*8, p.slide*8, 500, 0
		sorted := slices.Clone(events)
		slices.SortStableFunc(sorted, func(a, b joinEvent) int { return int(a.At - b.At) })
		pairs, _, _ := p.model(append(sorted, joinEvent{ID: -5, Key: "end", Side: "l", At: 1_000_000}))
		for _, shape := range [][2]int{{1, 1}, {3, 3}} {
			o := driverOptions{partitions: map[string]int{"l": shape[0], "r": shape[0]}, parallelism: shape[1], batch: 20 + rng.IntN(100), seed: seed, crash: 0.2, behind: 0.5}
			d := newDriver(t, p.two, o)
			for _, e := range events {
				d.sendKeyed(e.Side, e.Key, e, e.At)
			}
			for part := range shape[0] {
				for i := 0; ; i++ {
					key := fmt.Sprintf("end%d", i)
					if int(format.Partition([]byte(key), int32(shape[0]))) == part {
						d.sendKeyed("l", key, joinEvent{-1, key, "l", 1_000_000}, 0)
						d.sendKeyed("r", key, joinEvent{-1, key, "r", 2_000_000}, 0)
						break
					}
				}
			}
			t.Logf("seed %d %+v %+v", seed, p, o)
			d.run()
			wantRows(t, d.rows("out"), pairs...)
			wantRows(t, d.rows("late"))
		}
	}
}

func TestWindowJoinBuildErrors(t *testing.T) {
	f := func(a, b joinEvent) joined { return joined{} }
	for want, build := range map[string]func(l, r processor.KeyedStream[string, joinEvent]){
		"two streams have no count in common": func(l, r processor.KeyedStream[string, joinEvent]) {
			processor.WindowJoin(l.CountWindow(3, 3), r, "j", f)
		},
		"a global window never ends": func(l, r processor.KeyedStream[string, joinEvent]) {
			processor.WindowJoin(l.Window(window.Global()), r, "j", f)
		},
		"the gap function of SessionFunc takes int": func(l, r processor.KeyedStream[string, joinEvent]) {
			processor.WindowJoin(l.Window(window.SessionFunc(func(int) time.Duration { return 0 })), r, "j", f)
		},
		"window size is 0s": func(l, r processor.KeyedStream[string, joinEvent]) {
			processor.WindowJoin(l.Window(window.Tumbling(0)), r, "j", f)
		},
		"AllowedLateness is negative": func(l, r processor.KeyedStream[string, joinEvent]) {
			processor.WindowJoin(l.Window(window.Tumbling(time.Second)).AllowedLateness(-1), r, "j", f)
		},
	} {
		top := processor.New()
		topic := func(name string) processor.Topic[joinEvent] { return processor.Topic[joinEvent]{Name: name} }
		build(processor.FromKeyed(top, format.String(), topic("l")), processor.FromKeyed(top, format.String(), topic("r")))
		if err := top.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}
