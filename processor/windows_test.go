package processor_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/window"
)

type event struct {
	ID  int    `json:"id"`
	Key string `json:"key"`
	N   int64  `json:"n"`
	At  int64  `json:"at"` // ms
}

type result struct {
	Key   string `json:"key"`
	Start int64  `json:"start"`
	Count int64  `json:"count"`
	Sum   int64  `json:"sum"`
}

func eventTime(e event) time.Time { return time.UnixMilli(e.At) }

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// windowParams are one window aggregation, for the operator and for the model.
type windowParams struct {
	size, offset, lateness, bound int64
}

func (p windowParams) aggregate(s processor.KeyedStream[string, event]) {
	late := processor.NewOutputTag[event]("late")
	assigner := window.Tumbling(ms(p.size))
	if p.offset != 0 {
		assigner = window.Offset(assigner, ms(p.offset))
	}
	out := processor.Aggregate(s.Window(assigner).AllowedLateness(ms(p.lateness)).LateTo(late), "sum",
		processor.Both(processor.Count[event](), processor.Sum(func(e event) int64 { return e.N })),
		func(w processor.Window[string], a processor.Pair[int64, int64]) result {
			return result{w.Key, w.Start.UnixMilli(), a.First, a.Second}
		})
	processor.ToTopic(out, "out")
	processor.To(processor.SideOutput(out, late), processor.SinkTopic[event]{Name: "late", Key: func(e event) []byte { return []byte(e.Key) }})
}

func (p windowParams) keyed(t *processor.Topology) {
	p.aggregate(processor.FromKeyed(t, format.String(), processor.Topic[event]{Name: "in", EventTime: eventTime, MaxOutOfOrder: ms(p.bound)}))
}

func (p windowParams) repartitioned(t *processor.Topology) {
	s := processor.From(t, processor.Topic[event]{Name: "in", EventTime: eventTime, MaxOutOfOrder: ms(p.bound)})
	p.aggregate(processor.KeyBy(s, "by-key", func(e event) string { return e.Key }))
}

// floorDiv is written out, unlike the operator's arithmetic.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b != 0 && a < 0 {
		q--
	}
	return q
}

// model is the obvious one, for a single partition: windows in a map, fired by looking at all of them.
func (p windowParams) model(events []event) (rows, late []string) {
	type id struct {
		start int64
		key   string
	}
	type acc struct{ n, sum int64 }
	open := map[id]*acc{}
	fired := map[id]bool{}
	watermark, highest := int64(-1<<62), int64(-1<<62)
	row := func(i id, a *acc) {
		b, _ := json.Marshal(result{i.key, i.start, a.n, a.sum})
		rows = append(rows, fmt.Sprintf("%s=%s @%d", i.key, b, max(i.start+p.size-1, 0)))
	}
	for _, e := range events {
		i := id{floorDiv(e.At-p.offset, p.size)*p.size + p.offset, e.Key}
		last := i.start + p.size - 1
		if last+p.lateness <= watermark {
			b, _ := json.Marshal(e)
			late = append(late, fmt.Sprintf("%s=%s @%d", e.Key, b, max(e.At, 0)))
		} else {
			if open[i] == nil {
				open[i] = &acc{}
			}
			open[i].n++
			open[i].sum += e.N
			if last <= watermark {
				fired[i] = true
				row(i, open[i])
			}
		}
		highest = max(highest, e.At)
		watermark = max(watermark, highest-p.bound-1)
		for i, a := range open {
			last := i.start + p.size - 1
			if !fired[i] && last <= watermark {
				fired[i] = true
				row(i, a)
			}
			if last+p.lateness <= watermark {
				delete(open, i)
			}
		}
	}
	slices.Sort(rows)
	slices.Sort(late)
	return rows, late
}

// stream makes events with a moving time, disorder, stragglers, duplicates and negative times.
func stream(rng *rand.Rand, n int, from, disorder, straggle int64) []event {
	var events []event
	at := from
	for i := range n {
		at += rng.Int64N(8)
		if rng.IntN(40) == 0 {
			at += 500 // a gap: whole windows without events
		}
		e := event{i, fmt.Sprintf("k%d", rng.IntN(7)), rng.Int64N(100), at - rng.Int64N(disorder+1)}
		if straggle > 0 && rng.IntN(10) == 0 {
			e.At -= rng.Int64N(straggle)
		}
		events = append(events, e)
		if rng.IntN(20) == 0 {
			events = append(events, e)
		}
	}
	return events
}

func TestWindowsEqualModel(t *testing.T) {
	lates := 0
	for seed := range seeds(t, 60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		p := windowParams{size: 1 + rng.Int64N(60), bound: rng.Int64N(30)}
		if rng.IntN(2) == 0 {
			p.offset = rng.Int64N(100) - 50
		}
		if rng.IntN(2) == 0 {
			p.lateness = rng.Int64N(100)
		}
		events := stream(rng, 300, -600, rng.Int64N(40), 200)
		wantOut, wantLate := p.model(events)
		lates += len(wantLate)
		for _, o := range []driverOptions{
			{batch: 1}, {batch: 7, behind: 0.3}, {batch: 1000}, {batch: 10, crash: 0.3, behind: 0.3}, {batch: 50, crash: 0.5, behind: 1},
		} {
			o.seed = seed
			d := newDriver(t, p.keyed, o)
			for _, e := range events {
				d.sendKeyed("in", e.Key, e, e.At)
			}
			d.run()
			t.Logf("seed %d %+v %+v", seed, p, o)
			wantRows(t, d.rows("out"), wantOut...)
			wantRows(t, d.rows("late"), wantLate...)
			if n := d.late(); o.crash == 0 && n != int64(len(wantLate)) {
				t.Fatalf("%d late records counted, want %d", n, len(wantLate))
			}
		}
	}
	if lates == 0 {
		t.Fatal("no event was late: the test has no teeth")
	}
}

// groupBy is what the windows hold when no event is late.
func groupBy(p windowParams, events []event) []string {
	type id struct {
		start int64
		key   string
	}
	got := map[id]result{}
	for _, e := range events {
		i := id{floorDiv(e.At-p.offset, p.size)*p.size + p.offset, e.Key}
		r := got[i]
		got[i] = result{e.Key, i.start, r.Count + 1, r.Sum + e.N}
	}
	var rows []string
	for i, r := range maps.All(got) {
		b, _ := json.Marshal(r)
		rows = append(rows, fmt.Sprintf("%s=%s @%d", i.key, b, max(i.start+p.size-1, 0)))
	}
	return rows
}

// When nothing is late, results depend on the records alone: not on partitions, subtasks, batches, crashes, or on
// whether the key came from Kafka or through a repartition topic (I6).
func TestResultsDependOnRecordsAlone(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 2))
		p := windowParams{size: 20 + rng.Int64N(60), bound: 30}
		if rng.IntN(2) == 0 {
			p.lateness = 50
		}
		events := stream(rng, 300, -300, 30, 0)
		last := event{-1, "", 0, 100_000}
		want := groupBy(p, events)
		for _, shape := range [][2]int{{1, 1}, {3, 1}, {3, 3}, {4, 2}, {12, 4}} {
			partitions, parallelism := shape[0], shape[1]
			for name, topology := range map[string]func(*processor.Topology){"keyed": p.keyed, "repartitioned": p.repartitioned} {
				o := driverOptions{partitions: map[string]int{"in": partitions}, parallelism: parallelism, batch: 20 + rng.IntN(100), seed: seed}
				if rng.IntN(2) == 0 {
					o.crash, o.behind = 0.15, 0.5
				}
				d := newDriver(t, topology, o)
				for _, e := range events {
					if name == "keyed" {
						d.sendKeyed("in", e.Key, e, e.At)
						continue
					}
					b, _ := json.Marshal(e)
					d.produce("in", rng.IntN(partitions), nil, b, e.At)
				}
				// The watermark passes all of it on every partition.
				for part := range partitions {
					e := last
					for i := 0; ; i++ {
						e.Key = fmt.Sprintf("end%d", i)
						if int(format.Partition([]byte(e.Key), int32(partitions))) == part {
							break
						}
					}
					b, _ := json.Marshal(e)
					d.produce("in", part, []byte(e.Key), b, e.At)
				}
				d.run()
				t.Logf("seed %d, %s, %d partitions, %d subtasks, %+v", seed, name, partitions, parallelism, p)
				wantRows(t, d.rows("out"), want...)
				wantRows(t, d.rows("late"))
			}
		}
	}
}
