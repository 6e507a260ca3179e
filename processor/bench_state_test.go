package processor_test

import (
	"testing"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
)

// A Process with one value by key, and what a TTL, an accumulating state, a Connect, a stateless process function and
// new event times cost on top. 10,000 keys, one output for each record, decoding and encoding included.
var stateBenches = map[string]func(*processor.Topology){
	"Value":        benchValue(),
	"ValueTTL":     benchValue(processor.TTL{After: time.Hour}),
	"ValueTTLRead": benchValue(processor.TTL{After: time.Hour, RefreshOnRead: true}),
	"Accumulating": func(t *processor.Topology) {
		processor.ToTopic(processor.Process(benchIn(t), "p", func(ctx *processor.KeyedContext[string, order, userTotal]) {
			acc := processor.Accumulating(ctx, "sums", processor.Fold(addOrder))
			ctx.OnRecord(func(o order) error {
				acc.Add(o)
				a := acc.Get()
				ctx.Emit(userTotal{ctx.Key(), a.N, a.Sum})
				return nil
			})
		}), "out")
	},
	"Connect": func(t *processor.Topology) {
		in := benchIn(t)
		processor.ToTopic(processor.Connect(in, in.Filter(func(o order) bool { return o.Amount > 50 }), "p", func(ctx *processor.CoContext[string, order, order, userTotal]) {
			sum := processor.Value[sums](ctx, "sums")
			ctx.OnLeft(func(o order) error {
				sum.Update(func(a *sums) { addOrder(a, o) })
				return nil
			})
			ctx.OnRight(func(order) error {
				a := sum.Get()
				ctx.Emit(userTotal{ctx.Key(), a.N, a.Sum})
				return nil
			})
		}), "out")
	},
	"ProcessStream": func(t *processor.Topology) {
		processor.ToTopic(processor.ProcessStream(benchIn(t), "p", func(ctx *processor.Context[order, order]) {
			ctx.OnRecord(func(o order) error { ctx.Emit(o); return nil })
		}), "out")
	},
	"AssignEventTime": func(t *processor.Topology) {
		in := processor.From(t, processor.Topic[order]{Name: "orders"})
		processor.ToTopic(processor.AssignEventTime(in, "timed", processor.WatermarkStrategy[order]{EventTime: orderTime}), "out")
	},
}

func benchIn(t *processor.Topology) processor.KeyedStream[string, order] {
	return processor.FromKeyed(t, format.String(), processor.Topic[order]{Name: "orders", EventTime: orderTime})
}

func benchValue(o ...processor.StateOption) func(*processor.Topology) {
	return func(t *processor.Topology) {
		processor.ToTopic(processor.Process(benchIn(t), "p", func(ctx *processor.KeyedContext[string, order, userTotal]) {
			sum := processor.Value[sums](ctx, "sums", o...)
			ctx.OnRecord(func(o order) error {
				a := sum.Get()
				addOrder(&a, o)
				sum.Set(a)
				ctx.Emit(userTotal{ctx.Key(), a.N, a.Sum})
				return nil
			})
		}), "out")
	}
}

func BenchmarkStates(b *testing.B) {
	for _, name := range []string{"Value", "ValueTTL", "ValueTTLRead", "Accumulating", "Connect", "ProcessStream", "AssignEventTime"} {
		b.Run(name, func(b *testing.B) { benchmarkChain(b, stateBenches[name], 10_000, 10) })
	}
}

// States and the operators that hold them allocate nothing for a record, either.
func TestNoAllocationsOfState(t *testing.T) {
	for name, topology := range stateBenches {
		f := &feeder{task: benchTask(t, topology), recs: orders(20_000, 100, 10)}
		for range 3 {
			f.step(t, 20_000)
			f.commit(t)
		}
		const batch = 1000
		if n := testing.AllocsPerRun(20, func() { f.step(t, batch) }); n/batch > 0.01 {
			t.Errorf("%s: %.3f allocations per record", name, n/batch)
		}
	}
}
