package processor_test

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/window"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

type order struct {
	User   string  `json:"user"`
	Item   string  `json:"item"`
	Amount float64 `json:"amount"`
	TS     int64   `json:"ts"`
	Note   string  `json:"note"`
}

type userTotal struct {
	User  string  `json:"user"`
	Count int64   `json:"count"`
	Sum   float64 `json:"sum"`
}

type sums struct {
	N   int64
	Sum float64
}

func orderTime(o order) time.Time { return time.UnixMilli(o.TS) }

func addOrder(a *sums, o order) { a.N++; a.Sum += o.Amount }

// W0: filter and map, one output for each record.
func benchW0(t *processor.Topology) {
	in := processor.FromKeyed(t, format.String(), processor.Topic[order]{Name: "orders", EventTime: orderTime, MaxOutOfOrder: time.Second})
	big := in.Filter(func(o order) bool { return o.Amount > 0 })
	processor.ToTopic(processor.MapValues(big, func(o order) order { o.Amount *= 1.1; return o }), "out")
}

// W1: a running aggregate by key, one output for each record.
func benchW1(t *processor.Topology) {
	in := processor.FromKeyed(t, format.String(), processor.Topic[order]{Name: "orders", EventTime: orderTime, MaxOutOfOrder: time.Second})
	big := in.Filter(func(o order) bool { return o.Amount > 0 })
	mapped := processor.MapValues(big, func(o order) order { o.Amount *= 1.1; return o })
	processor.ToTopic(processor.RunningAggregate(mapped, "totals", processor.Fold(addOrder),
		func(k string, a sums, _ order) userTotal { return userTotal{k, a.N, a.Sum} }), "out")
}

// W2: windows by key, one output for each key and window.
func benchW2(t *processor.Topology) {
	in := processor.FromKeyed(t, format.String(), processor.Topic[order]{Name: "orders", EventTime: orderTime, MaxOutOfOrder: time.Second})
	processor.ToTopic(processor.Aggregate(in.Window(window.Tumbling(10*time.Second)), "windows", processor.Fold(addOrder),
		func(w processor.Window[string], a sums) userTotal { return userTotal{w.Key, a.N, a.Sum} }), "out")
}

// orders makes records of n users; step is the event time between two of them in us.
func orders(n, users int, stepUS int64) []record.Record {
	rng := rand.New(rand.NewPCG(1, 1))
	recs := make([]record.Record, n)
	for i := range recs {
		user := fmt.Sprintf("u%06d", rng.IntN(users))
		recs[i] = record.Record{Key: []byte(user), Value: fmt.Appendf(nil, `{"user":"%s","item":"i%04d","amount":%d.%02d,"ts":%d,"note":"%064d"}`,
			user, rng.IntN(1000), 1+rng.IntN(90), rng.IntN(100), 1_700_000_000_000+int64(i)*stepUS/1000, i), Offset: int64(i)}
	}
	return recs
}

func benchTask(tb testing.TB, topology func(*processor.Topology)) *task.Task {
	tb.Helper()
	return benchTaskOn(tb, topology, statestore.NewState(memstore.New(), statestore.StateOptions{}))
}

func benchTaskOn(tb testing.TB, topology func(*processor.Topology), state *statestore.State) *task.Task {
	tb.Helper()
	t := processor.New()
	topology(t)
	plan, err := t.Plan()
	if err != nil {
		tb.Fatal(err)
	}
	env := task.Env{Parallelism: 1, State: state, Inputs: []task.EnvInput{{Topic: "orders", Partitions: []int32{0}, TotalPartitions: 1}}}
	for _, o := range plan.Subs[0].Outputs {
		env.Outputs = append(env.Outputs, task.EnvOutput{Topic: o.Topic, Partitions: 4, MaxRecordBytes: 1 << 20})
	}
	tk, err := plan.Subs[0].New(env)
	if err != nil {
		tb.Fatal(err)
	}
	return tk
}

// feeder gives a task the same records again and again, with offsets and times that go on.
type feeder struct {
	task  *task.Task
	recs  []record.Record
	batch []record.Record
	at    int
	next  int64
	epoch uint64
}

func (f *feeder) step(tb testing.TB, n int) {
	f.batch = f.batch[:0]
	for range n {
		r := f.recs[f.at]
		r.Offset = f.next
		f.next++
		f.at++
		if f.at == len(f.recs) {
			f.at = 0
		}
		f.batch = append(f.batch, r)
	}
	f.task.Enqueue(0, 0, f.batch)
	for done := 0; done < n; {
		k, err := f.task.Step(256, f.next)
		if err != nil {
			tb.Fatal(err)
		}
		if k == 0 {
			tb.Fatal("nothing done")
		}
		done += k
		f.task.TakeOutputs()
	}
}

func (f *feeder) commit(tb testing.TB) {
	f.epoch++
	if _, err := f.task.Seal(f.epoch, f.next); err != nil {
		tb.Fatal(err)
	}
	if err := f.task.Committed(statestore.Meta{Epoch: f.epoch}); err != nil {
		tb.Fatal(err)
	}
}

func benchmarkChain(b *testing.B, topology func(*processor.Topology), users int, stepUS int64) {
	f := &feeder{task: benchTask(b, topology), recs: orders(200_000, users, stepUS)}
	const perEpoch = 50_000
	for range 4 {
		f.step(b, perEpoch)
		f.commit(b)
	}
	b.ReportAllocs()
	b.ResetTimer()
	cpu := cpuTime()
	for n := 0; n < b.N; n += perEpoch {
		f.step(b, min(perEpoch, b.N-n))
		f.commit(b)
	}
	b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N), "cpu-ns/op")
}

// cpuTime is what this process used, user and system: on a busy machine it says more than the clock.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkW0(b *testing.B) { benchmarkChain(b, benchW0, 10_000, 10) }
func BenchmarkW1(b *testing.B) { benchmarkChain(b, benchW1, 10_000, 10) }

// In the second round the times start again: all would be late. The benchmark moves on in event time instead.
func BenchmarkW2(b *testing.B) {
	recs := orders(200_000, 10_000, 100)
	f := &feeder{task: benchTask(b, benchW2), recs: recs}
	const perEpoch = 50_000
	shift := func() {
		for i := range recs {
			const at = len(`{"user":"u000123","item":"i0042","amount":`)
			v := recs[i].Value
			j := at
			for string(v[j:j+5]) != `"ts":` {
				j++
			}
			copy(v[j+5:j+18], fmt.Sprint(1_700_000_000_000+(f.next+int64(i))/10))
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	cpu, done := time.Duration(0), 0
	for n := 0; n < b.N; n += perEpoch {
		if f.at == 0 && f.next > 0 {
			b.StopTimer()
			shift()
			b.StartTimer()
		}
		from := cpuTime()
		f.step(b, perEpoch)
		f.commit(b)
		cpu, done = cpu+cpuTime()-from, done+perEpoch
	}
	b.ReportMetric(float64(cpu)/float64(done), "cpu-ns/op")
}

// The hot path allocates nothing: decode, filter, map, keyed aggregate, encode, output.
func TestNoAllocations(t *testing.T) {
	for name, topology := range map[string]func(*processor.Topology){"W0": benchW0, "W1": benchW1, "W2": benchW2} {
		f := &feeder{task: benchTask(t, topology), recs: orders(20_000, 100, 10)}
		for range 3 {
			f.step(t, 20_000)
			f.commit(t)
			if name == "W2" { // its times do not repeat
				break
			}
		}
		const batch = 1000
		if name == "W2" {
			f.recs = orders(200_000, 100, 10)[20_000:]
		}
		n := testing.AllocsPerRun(20, func() { f.step(t, batch) })
		if n/batch > 0.01 {
			t.Errorf("%s: %.3f allocations per record", name, n/batch)
		}
		if f.task.Stats().Late > 0 {
			t.Errorf("%s: %d late records", name, f.task.Stats().Late)
		}
	}
}
