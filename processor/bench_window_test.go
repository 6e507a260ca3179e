package processor_test

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/window"
)

// pulse decodes in a few ns, so that the benchmarks of windows measure windows: time in ms and an amount.
type pulse struct {
	At     int64
	Amount float64
}

type pulseSerde struct{}

func (pulseSerde) Append(dst []byte, v *pulse) ([]byte, error) {
	return binary.BigEndian.AppendUint64(dst, uint64(v.At)), nil
}

func (pulseSerde) Decode(src []byte, v *pulse) error {
	v.At, v.Amount = int64(binary.BigEndian.Uint64(src)), 1
	return nil
}

func addPulse(a *sums, p pulse) { a.N++; a.Sum += p.Amount }

func mergePulses(a, b *sums) { a.N += b.N; a.Sum += b.Sum }

func benchmarkWindow(b *testing.B, users int, step time.Duration, f func(s processor.KeyedStream[string, pulse])) {
	t := benchTask(b, func(t *processor.Topology) {
		f(processor.FromKeyed(t, format.String(), processor.Topic[pulse]{Name: "orders", Value: pulseSerde{}, EventTime: func(p pulse) time.Time { return time.UnixMilli(p.At) }, MaxOutOfOrder: time.Second}))
	})
	rng := rand.New(rand.NewPCG(1, 1))
	keys := make([][]byte, users)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "u%06d", i)
	}
	const perEpoch = 50_000
	f1 := &feeder{task: t, recs: make([]record.Record, perEpoch)}
	values := make([]byte, 8*perEpoch)
	at := int64(1_700_000_000_000_000)
	refill := func() {
		for i := range f1.recs {
			at += step.Microseconds()
			v := binary.BigEndian.AppendUint64(values[8*i:8*i], uint64(at/1000))
			f1.recs[i] = record.Record{Key: keys[rng.IntN(users)], Value: v, Offset: int64(i)}
		}
		f1.at = 0
	}
	b.ReportAllocs()
	// All slices of an hour are there before it counts.
	for from := at; at < from+3_700_000_000; {
		refill()
		f1.step(b, perEpoch)
		f1.commit(b)
	}
	b.ResetTimer()
	cpu, done := time.Duration(0), 0
	for n := 0; n < b.N; n += perEpoch {
		b.StopTimer()
		refill()
		b.StartTimer()
		from := cpuTime()
		f1.step(b, perEpoch)
		f1.commit(b)
		cpu, done = cpu+cpuTime()-from, done+perEpoch
	}
	b.ReportMetric(float64(cpu)/float64(done), "cpu-ns/op")
	if late := t.Stats().Late; late > 0 {
		b.Fatalf("%d late", late)
	}
}

func sumWindows(w processor.WindowedStream[string, pulse]) {
	processor.Aggregate(w, "w", processor.Fold(addPulse).Merging(mergePulses), func(w processor.Window[string], a sums) userTotal { return userTotal{w.Key, a.N, a.Sum} })
}

// 10,000 keys, 1,000 records a second: each key has 6 records in a minute. The tumbling windows of a minute fire as often as the hop of an hour
// every minute, which holds all keys too.
func BenchmarkWindow(b *testing.B) {
	for _, c := range []struct {
		name string
		f    func(s processor.KeyedStream[string, pulse])
	}{
		{"tumbling-1m", func(s processor.KeyedStream[string, pulse]) { sumWindows(s.Window(window.Tumbling(time.Minute))) }},
		{"tumbling-1h", func(s processor.KeyedStream[string, pulse]) { sumWindows(s.Window(window.Tumbling(time.Hour))) }},
		{"day", func(s processor.KeyedStream[string, pulse]) { sumWindows(s.Window(window.Day(time.UTC))) }},
		{"hop-1h-1m", func(s processor.KeyedStream[string, pulse]) {
			sumWindows(s.Window(window.Sliding(time.Hour, time.Minute)))
		}},
		{"cumulate-1h-1m", func(s processor.KeyedStream[string, pulse]) {
			sumWindows(s.Window(window.Cumulate(time.Hour, time.Minute)))
		}},
		{"session-5s", func(s processor.KeyedStream[string, pulse]) { sumWindows(s.Window(window.Session(5 * time.Second))) }},
		{"session-1m", func(s processor.KeyedStream[string, pulse]) { sumWindows(s.Window(window.Session(time.Minute))) }},
		{"count-10", func(s processor.KeyedStream[string, pulse]) { sumWindows(s.CountWindow(10, 10)) }},
		{"trigger-count-10", func(s processor.KeyedStream[string, pulse]) {
			sumWindows(s.Window(window.Global()).Trigger(window.Purging(window.EveryCount(10))))
		}},
		{"apply-1m", func(s processor.KeyedStream[string, pulse]) {
			processor.ApplyWindow(s.Window(window.Tumbling(time.Minute)), "w", func(w processor.Window[string], vs iter.Seq[pulse], emit func(userTotal)) error {
				var a sums
				for v := range vs {
					addPulse(&a, v)
				}
				emit(userTotal{w.Key, a.N, a.Sum})
				return nil
			})
		}},
	} {
		b.Run(c.name, func(b *testing.B) { benchmarkWindow(b, 10_000, time.Millisecond, c.f) })
	}
}
