//go:build synctests

package sim

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/window"
)

// The job under test: two independent graphs.
//
//	in     -> KeyBy -> running totals with a timer per key and second -> totals
//	                -> windowed count                                 -> counts
//	direct -> running totals                                          -> sums
//	       -> windowed count                                          -> direct-counts
//
// So sub-topology 0 reads "in" and writes the repartition topic, 1 reads that, 2 reads "direct". Records that cannot be
// decoded go to the dead-letter topic.
const (
	app          = "app"
	topicIn      = "in"
	topicDirect  = "direct"
	topicTotals  = "totals"
	topicCounts  = "counts"
	topicSums    = "sums"
	topicDCounts = "direct-counts"
	topicDead    = app + "-dead-letter"
	topicControl = app + "-control"

	windowSize = 2 * time.Second
	outOfOrder = 1500 * time.Millisecond
	timerStep  = 1000 // ms
)

type event struct {
	ID  int64  `json:"id"`
	Key string `json:"key"`
	Val int64  `json:"val"`
	At  int64  `json:"at"` // ms
}

// total is what is kept for a key, and for a key of a window.
type total struct{ N, Sum, IDs int64 }

func (t *total) add(e event) { t.N++; t.Sum += e.Val; t.IDs += e.ID }

// row is an output: a running total after the event ID, or the firing of a timer (ID 0).
type row struct {
	ID    int64  `json:"id"`
	Key   string `json:"key"`
	N     int64  `json:"n"`
	Sum   int64  `json:"sum"`
	Timer int64  `json:"timer,omitempty"`
}

// count is the output of a window.
type count struct {
	Key string `json:"key"`
	End int64  `json:"end"`
	N   int64  `json:"n"`
	Sum int64  `json:"sum"`
	IDs int64  `json:"ids"`
}

func eventTime(e event) time.Time { return time.UnixMilli(e.At) }

func topology(t *processor.Topology) {
	fold := processor.Fold((*total).add)
	result := func(w processor.Window[string], a total) count {
		return count{w.Key, w.End.UnixMilli(), a.N, a.Sum, a.IDs}
	}
	in := processor.From(t, processor.Topic[event]{Name: topicIn, EventTime: eventTime, MaxOutOfOrder: outOfOrder})
	byKey := processor.KeyBy(in, "by-key", func(e event) string { return e.Key })
	totals := processor.Process(byKey, "total", func(ctx *processor.KeyedContext[string, event, row]) {
		sum := processor.Value[total](ctx, "sum")
		ctx.OnRecord(func(e event) error {
			sum.Update(func(t *total) { t.add(e) })
			t := sum.Get()
			ctx.Emit(row{ID: e.ID, Key: e.Key, N: t.N, Sum: t.Sum})
			ctx.RegisterEventTimer(time.UnixMilli(timerOf(e.At)))
			return nil
		})
		ctx.OnTimer(func(tm processor.Timer) error {
			ctx.Emit(row{Key: ctx.Key(), Timer: tm.At.UnixMilli()})
			return nil
		})
	})
	processor.ToTopic(totals, topicTotals)
	processor.ToTopic(processor.Aggregate(byKey.Window(window.Tumbling(windowSize)), "count", fold, result), topicCounts)

	direct := processor.FromKeyed(t, format.String(), processor.Topic[event]{Name: topicDirect, EventTime: eventTime, MaxOutOfOrder: outOfOrder})
	sums := processor.RunningAggregate(direct, "sum", fold, func(k string, a total, e event) row {
		return row{ID: e.ID, Key: k, N: a.N, Sum: a.Sum}
	})
	processor.ToTopic(sums, topicSums)
	processor.ToTopic(processor.Aggregate(direct.Window(window.Tumbling(windowSize)), "direct-count", fold, result), topicDCounts)
}

func timerOf(at int64) int64 { return at - at%timerStep + timerStep }

func windowOf(at int64) int64 {
	size := windowSize.Milliseconds()
	return at - at%size + size
}

// input is one record to be sent.
type input struct {
	topic     string
	partition int32
	key       string // of the Kafka record
	event     event
	bad       bool // cannot be decoded
}

// source makes inputs whose event times never come late: within each partition no record is earlier than the latest
// one by more than the bound that the job waits for.
type source struct {
	rnd        *rand.Rand
	partitions int32
	keys       []string
	id         int64
	latest     map[string][]int64
	sent       []input
}

const closingKey = "closing-"

func newSource(rnd *rand.Rand, partitions int32, keys int) *source {
	s := &source{rnd: rnd, partitions: partitions, latest: map[string][]int64{topicIn: make([]int64, partitions), topicDirect: make([]int64, partitions)}}
	for i := range keys {
		s.keys = append(s.keys, "k"+strconv.Itoa(i))
	}
	for _, l := range s.latest {
		for p := range l {
			l[p] = 1_000_000
		}
	}
	return s
}

// next makes one record, of an event time some step on.
func (s *source) next(topic string) input {
	key := s.keys[s.rnd.IntN(len(s.keys))]
	p := s.rnd.Int32N(s.partitions)
	if topic == topicDirect {
		p = format.Partition([]byte(key), s.partitions)
	}
	latest := &s.latest[topic][p]
	at := *latest + s.rnd.Int64N(400)
	if s.rnd.IntN(3) == 0 {
		at = *latest - s.rnd.Int64N(outOfOrder.Milliseconds())
	}
	*latest = max(*latest, at)
	s.id++
	in := input{topic: topic, partition: p, key: key, event: event{s.id, key, s.rnd.Int64N(1000), at}}
	in.bad = s.rnd.IntN(40) == 0
	s.sent = append(s.sent, in)
	return in
}

// closing makes the records that close every window: one for each partition, far in the future.
func (s *source) closing() []input {
	end := int64(0)
	for _, l := range s.latest {
		for _, at := range l {
			end = max(end, at)
		}
	}
	end += time.Hour.Milliseconds()
	var ins []input
	for _, topic := range []string{topicIn, topicDirect} {
		for p := range s.partitions {
			i := 0
			for format.Partition(strconv.AppendInt([]byte(closingKey), int64(i), 10), s.partitions) != p {
				i++
			}
			key := closingKey + strconv.Itoa(i)
			s.id++
			ins = append(ins, input{topic: topic, partition: p, key: key, event: event{s.id, key, 1, end}})
		}
	}
	s.sent = append(s.sent, ins...)
	return ins
}

func (in input) value() []byte {
	if in.bad {
		return []byte("{bad " + strconv.FormatInt(in.event.ID, 10))
	}
	return fmt.Appendf(nil, `{"id":%d,"key":%q,"val":%d,"at":%d}`, in.event.ID, in.event.Key, in.event.Val, in.event.At)
}
