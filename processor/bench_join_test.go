package processor_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/window"
)

type orderPair struct {
	A int64 `json:"a"`
	B int64 `json:"b"`
}

// benchJoin joins the even with the odd records of one topic: half of the records are on each side. Nothing is written,
// so that the join alone is measured.
func benchJoin(join func(l, r processor.KeyedStream[string, order])) func(*processor.Topology) {
	return func(t *processor.Topology) {
		in := processor.FromKeyed(t, format.String(), processor.Topic[order]{Name: "orders", EventTime: orderTime, MaxOutOfOrder: time.Second})
		join(in.Filter(func(o order) bool { return o.Note[len(o.Note)-1]&1 == 0 }), in.Filter(func(o order) bool { return o.Note[len(o.Note)-1]&1 == 1 }))
	}
}

// dropAll drops the results of a join.
func dropAll[R any](s processor.KeyedStream[string, R]) {
	processor.ToTopic(s.Filter(func(R) bool { return false }), "out")
}

// runJoinBench feeds n users 10 records in each ms of event time, whose times go on from round to round.
func runJoinBench(b *testing.B, users int, join func(l, r processor.KeyedStream[string, order])) {
	recs := orders(200_000, users, 100)
	f := &feeder{task: benchTask(b, benchJoin(join)), recs: recs}
	const perEpoch = 50_000
	shift := func() {
		for i := range recs {
			v := recs[i].Value
			j := len(`{"user":"u000123","item":"i0042","amount":`)
			for string(v[j:j+5]) != `"ts":` {
				j++
			}
			copy(v[j+5:j+18], fmt.Sprint(1_700_000_000_000+(f.next+int64(i))/10))
		}
	}
	round := func(n int) (cpu time.Duration) {
		if f.at == 0 && f.next > 0 {
			b.StopTimer()
			shift()
			b.StartTimer()
		}
		from := cpuTime()
		f.step(b, n)
		f.commit(b)
		return cpuTime() - from
	}
	for range 4 {
		round(perEpoch)
	}
	b.ReportAllocs()
	b.ResetTimer()
	cpu, done := time.Duration(0), 0
	for n := 0; n < b.N; n += perEpoch {
		cpu, done = cpu+round(perEpoch), done+perEpoch
	}
	b.ReportMetric(float64(cpu)/float64(done), "cpu-ns/op")
	if f.task.Stats().Late > 0 {
		b.Errorf("%d late records", f.task.Stats().Late)
	}
}

// The part of the benchmarks below that is not the join: decode, two filters.
func BenchmarkJoinNothing(b *testing.B) {
	runJoinBench(b, 10_000, func(l, r processor.KeyedStream[string, order]) {
		dropAll(l)
		processor.ToTopic(r.Filter(func(order) bool { return false }), "out2")
	})
}

// 10,000 keys, a record of each every second, partners within 2 s before or after: each record meets two.
func BenchmarkIntervalJoin(b *testing.B) {
	runJoinBench(b, 10_000, func(l, r processor.KeyedStream[string, order]) {
		dropAll(processor.IntervalJoin(l, r, "join", processor.Interval{After: 2 * time.Second, Before: 2 * time.Second},
			func(a, b order) orderPair { return orderPair{a.TS, b.TS} }))
	})
}

// The same, and rows without partner are emitted.
func BenchmarkIntervalJoinFull(b *testing.B) {
	runJoinBench(b, 10_000, func(l, r processor.KeyedStream[string, order]) {
		dropAll(processor.IntervalJoinOuter(l, r, "join", processor.Interval{After: 2 * time.Second, Before: 2 * time.Second}, processor.Full,
			func(a, b *order) (p orderPair) {
				if a != nil {
					p.A = a.TS
				}
				if b != nil {
					p.B = b.TS
				}
				return p
			}))
	})
}

func BenchmarkWindowJoin(b *testing.B) {
	runJoinBench(b, 10_000, func(l, r processor.KeyedStream[string, order]) {
		dropAll(processor.WindowJoin(l.Window(window.Tumbling(4*time.Second)), r, "join", func(a, b order) orderPair { return orderPair{a.TS, b.TS} }))
	})
}

func BenchmarkJoinTable(b *testing.B) {
	runJoinBench(b, 10_000, func(l, r processor.KeyedStream[string, order]) {
		dropAll(processor.JoinTable(l, processor.ToTable(r, "table"), "join", func(a, b order) orderPair { return orderPair{a.TS, b.TS} }))
	})
}

func BenchmarkVersionedJoinTable(b *testing.B) {
	runJoinBench(b, 10_000, func(l, r processor.KeyedStream[string, order]) {
		dropAll(processor.JoinTable(l, processor.ToTable(r, "table").Versioned(0), "join", func(a, b order) orderPair { return orderPair{a.TS, b.TS} }))
	})
}
