package processortest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/internal/drive"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/processor"
)

// Runs sets how many schedules Schedules tries. Default: 20.
func Runs(n int) Option { return Option{func(s *settings) { s.runs = max(n, 1) }} }

// Seed sets the seed of the first schedule of Schedules; the others have the next ones. Default: 1, and what the environment
// variable MILLRACE_TEST_SEED says goes first.
func Seed(n uint64) Option { return Option{func(s *settings) { s.seed = n }} }

// Broker lets Schedules run the test on an embedded broker too: see Driver.OnBroker.
func Broker(members, partitions int) Option {
	return Option{func(s *settings) { s.broker = append(s.broker, [2]int{members, partitions}) }}
}

// AnyOrder lets Schedules and OnBroker compare the rows of topics as sets: of a topic that several operators write, whose rows
// have an order only among those of one operator.
func AnyOrder(topics ...string) Option {
	return Option{func(s *settings) { s.anyOrder = append(s.anyOrder, topics...) }}
}

// Schedules runs script many times and compares what is committed to the topics that the topology writes: the values of
// each record key in their order, and those without key as a set. The first run is the calm one of New, with the partitions
// that o says. The others have 1, 2, 3 or 6 partitions, any number of subtasks that fits, fetches of any size, commits at any
// point, crashes and aborted transactions, calls of Async that end in any order, and states restored from their changelog, a store that is behind, or a checkpoint.
//
// The results of a topology depend on its records alone as long as nothing is late, no partition becomes idle by time, and its
// functions do not look at the clock. script sends the same records in each run, lets none be late on any number of
// partitions, and moves event time on at its end with AdvanceWatermark, since records alone need not reach all partitions. Its
// Want and WantOrdered judge the first run only.
func Schedules(tb testing.TB, topology func(*processor.Topology), script func(d *Driver), o ...Option) {
	tb.Helper()
	calm := New(tb, topology, o...)
	script(calm)
	calm.finish()
	if n := calm.Late(); n > 0 {
		tb.Fatalf("%d records are late: what they become depends on the schedule", n)
	}
	want := calm.results()
	s := calm.set
	first := max(s.seed, 1)
	if env := os.Getenv("MILLRACE_TEST_SEED"); env != "" {
		n, err := strconv.ParseUint(env, 10, 64)
		if err != nil {
			tb.Fatalf("MILLRACE_TEST_SEED: %v", err)
		}
		first, s.runs = n, 1
	}
	if s.runs == 0 {
		s.runs = 20
	}
	for seed := first; seed < first+uint64(s.runs); seed++ {
		d := wildDriver(tb, topology, s, seed)
		script(d)
		d.finish()
		if diff := diffResults(d.results(), want); diff != "" {
			tb.Fatalf("another schedule gives other results; MILLRACE_TEST_SEED=%d runs it alone: %s\n%s", seed, d.shape(), diff)
		}
	}
	for _, b := range s.broker {
		calm.OnBroker(b[0], b[1])
	}
}

// wildDriver makes the driver of one schedule.
func wildDriver(tb testing.TB, topology func(*processor.Topology), s settings, seed uint64) *Driver {
	tb.Helper()
	rng := rand.New(rand.NewPCG(seed, 99))
	pick := func(ps ...float64) float64 { return ps[rng.IntN(len(ps))] }
	s.o.Default = []int{1, 2, 3, 6}[rng.IntN(4)]
	s.o.Seed = seed
	s.o.Batch = 1 + rng.IntN([]int{3, 20, 300}[rng.IntN(3)])
	s.o.Crash, s.o.Skip = pick(0, 0.1, 0.3), pick(0, 0.2, 0.5)
	s.o.Behind, s.o.Copy = pick(0, 0.3, 1), pick(0, 0.2)
	s.o.Restore, s.o.Calls = drive.Mixed, pick(0, 0.3)
	d := newDriver(tb, topology, s)
	d.wild = rng
	// Some parts of a topology fix their parallelism, others may have partitions that no number but 1 divides: a number
	// that does not fit leaves the default.
	if p := []int{0, 1, 2, 3}[rng.IntN(4)]; p > 0 && d.divides(p) {
		d.set.o.Parallelism = p
	}
	return d
}

// divides says that every part of the topology can have p subtasks.
func (d *Driver) divides(p int) bool {
	for _, sub := range d.plan.Subs {
		for _, in := range sub.Inputs {
			n := d.set.o.Default
			if named, ok := d.set.o.Partitions[in.Topic]; ok {
				n = named
			}
			if in.Internal && in.Partitions > 0 {
				n = in.Partitions
			}
			if n%p != 0 || sub.Parallelism > 0 {
				return false
			}
		}
	}
	return true
}

func (d *Driver) shape() string {
	o := d.set.o
	return fmt.Sprintf("%d partitions, parallelism %d, fetches of up to %d records, crash %g, skip %g, write-behind %g, copy %g", max(o.Default, 1), o.Parallelism, o.Batch, o.Crash, o.Skip, o.Behind, o.Copy)
}

// results are what is committed to the topics that the topology writes: by topic, and key within it.
type results map[string]map[string][]string

const noKey = "no key"

func (d *Driver) results() results {
	res := results{}
	run := d.start()
	for _, topic := range d.outputs() {
		res.add(topic, run.Records(topic))
	}
	return d.sorted(res)
}

// sorted sorts what AnyOrder names.
func (d *Driver) sorted(res results) results {
	for _, topic := range d.set.anyOrder {
		for _, rows := range res[topic] {
			slices.Sort(rows)
		}
	}
	return res
}

// outputs are the topics that the topology writes.
func (d *Driver) outputs() (topics []string) {
	for _, sub := range d.plan.Subs {
		for _, o := range sub.Outputs {
			if !o.Internal && !o.DeadLetter && !slices.Contains(topics, o.Topic) {
				topics = append(topics, o.Topic)
			}
		}
	}
	return topics
}

// add takes the records of a topic, partition by partition.
func (res results) add(topic string, recs []record.Record) {
	rows := res[topic]
	if rows == nil {
		rows = map[string][]string{}
		res[topic] = rows
	}
	for _, r := range recs {
		key := noKey
		if r.Key != nil {
			key = "key " + quoteUnlessText(r.Key)
		}
		value := "null"
		if r.Value != nil {
			value = quoteUnlessText(r.Value)
		}
		rows[key] = append(rows[key], fmt.Sprintf("%s @%d", value, r.Timestamp))
	}
	slices.Sort(rows[noKey])
	if len(rows[noKey]) == 0 {
		delete(rows, noKey)
	}
}

func quoteUnlessText(b []byte) string {
	if isText(b) {
		return string(b)
	}
	return strconv.Quote(string(b))
}

// diffResults compares results; "" if they are equal.
func diffResults(got, want results) string {
	var b strings.Builder
	for topic := range want {
		keys := map[string]bool{}
		for k := range want[topic] {
			keys[k] = true
		}
		for k := range got[topic] {
			keys[k] = true
		}
		sorted := make([]string, 0, len(keys))
		for k := range keys {
			sorted = append(sorted, k)
		}
		slices.Sort(sorted)
		shown := 0
		for _, k := range sorted {
			g, w := got[topic][k], want[topic][k]
			if slices.Equal(g, w) {
				continue
			}
			if shown++; shown > 5 {
				fmt.Fprintf(&b, "topic %s: other keys differ too\n", topic)
				break
			}
			gs, ws := slices.Sorted(slices.Values(g)), slices.Sorted(slices.Values(w))
			if diff := drive.DiffRows(gs, ws); diff != "" {
				fmt.Fprintf(&b, "topic %s, %s (+ too many, - missing), %d rows, %d wanted:\n%s\n", topic, k, len(g), len(w), diff)
				continue
			}
			for i := range w {
				if g[i] != w[i] {
					fmt.Fprintf(&b, "topic %s, %s: the order differs from row %d on:\n  got    %s\n  wanted %s\n", topic, k, i+1, g[i], w[i])
					break
				}
			}
		}
	}
	return b.String()
}
