package processor_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/cep"
)

// benchCEP detects A B+ C within 10 s by user. Of ten items one is an A, two are a B and one is a C.
func benchCEP(t *processor.Topology) {
	in := processor.FromKeyed(t, format.String(), processor.Topic[order]{Name: "orders", EventTime: orderTime, MaxOutOfOrder: time.Second})
	is := func(digits string) func(order) bool {
		return func(o order) bool { return strings.Contains(digits, o.Item[4:5]) }
	}
	p := cep.Begin("a", is("0")).FollowedBy("b", is("12")).OneOrMore().FollowedBy("c", is("3")).Within(10 * time.Second)
	processor.ToTopic(cep.Detect(in, "abc", p, func(k string, m cep.Match[order]) userTotal {
		u := userTotal{User: k}
		for _, o := range m.All("b") {
			u.Count++
			u.Sum += o.Amount
		}
		return u
	}), "out")
}

// benchCEPNothing has a pattern that no order begins.
func benchCEPNothing(t *processor.Topology) {
	in := processor.FromKeyed(t, format.String(), processor.Topic[order]{Name: "orders", EventTime: orderTime, MaxOutOfOrder: time.Second})
	p := cep.Begin("a", func(o order) bool { return o.Amount < 0 }).FollowedBy("b").Within(10 * time.Second)
	processor.ToTopic(cep.Detect(in, "none", p, func(k string, _ cep.Match[order]) userTotal { return userTotal{User: k} }), "out")
}

// shiftTimes moves the records, 10 in a ms, to the times that follow.
func shiftTimes(f *feeder) {
	for i := range f.recs {
		v := string(f.recs[i].Value)
		copy(f.recs[i].Value[strings.Index(v, `"ts":`)+5:], fmt.Sprint(1_700_000_000_000+(f.next+int64(i))/10))
	}
}

func benchmarkCEP(b *testing.B, topology func(*processor.Topology), users int) {
	f := &feeder{task: benchTask(b, topology), recs: orders(200_000, users, 100)}
	const perEpoch = 50_000
	for range 4 {
		f.step(b, perEpoch)
		f.commit(b)
	}
	b.ReportAllocs()
	b.ResetTimer()
	cpu, done := time.Duration(0), 0
	for n := 0; n < b.N; n += perEpoch {
		if f.at == 0 {
			b.StopTimer()
			shiftTimes(f)
			b.StartTimer()
		}
		from := cpuTime()
		f.step(b, perEpoch)
		f.commit(b)
		cpu, done = cpu+cpuTime()-from, done+perEpoch
	}
	b.ReportMetric(float64(cpu)/float64(done), "cpu-ns/op")
	if s := f.task.Stats(); s.Late > 0 {
		b.Fatalf("%d late records", s.Late)
	}
}

func BenchmarkDetect(b *testing.B) {
	for _, users := range []int{1000, 10_000} { // some 100 and some 10 events of each in 10 s
		b.Run(fmt.Sprintf("ABC/%d", users), func(b *testing.B) { benchmarkCEP(b, benchCEP, users) })
	}
	b.Run("nothing/10000", func(b *testing.B) { benchmarkCEP(b, benchCEPNothing, 10_000) })
}

// An event that matches nothing allocates nothing, though it waits in state for the watermark.
func TestDetectAllocatesNothingForEventsThatMatchNothing(t *testing.T) {
	f := &feeder{task: benchTask(t, benchCEPNothing), recs: orders(200_000, 100, 100)}
	for range 3 {
		f.step(t, 30_000)
		f.commit(t)
	}
	if n := testing.AllocsPerRun(20, func() { f.step(t, 1000) }); n/1000 > 0.1 { // what others allocate meanwhile counts too
		t.Errorf("%.3f allocations per record", n/1000)
	}
	if s := f.task.Stats(); s.Late > 0 {
		t.Errorf("%d late records", s.Late)
	}
}
