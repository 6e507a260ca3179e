package processortest

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/internal/drive"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/processor"
)

// Option is a setting of a Driver.
type Option struct{ apply func(*settings) }

type settings struct {
	o        drive.Options
	defaults processor.Defaults
	runs     int
	seed     uint64
	broker   [][2]int // members and partitions
	anyOrder []string // topics
}

// Partitions sets how many partitions topics have. Default: 1.
func Partitions(n int) Option { return Option{func(s *settings) { s.o.Default = max(n, 1) }} }

// TopicPartitions sets how many partitions one topic has, whatever Partitions says.
func TopicPartitions(topic string, n int) Option {
	return Option{func(s *settings) {
		if s.o.Partitions == nil {
			s.o.Partitions = map[string]int{}
		}
		s.o.Partitions[topic] = n
	}}
}

// Parallelism sets the number of subtasks of each part of the topology that names none itself. Default: as in production,
// the largest common divisor of the partition counts of its inputs that is <= 16.
func Parallelism(n int) Option { return Option{func(s *settings) { s.o.Parallelism = n }} }

// Batch bounds how many records of a partition are fetched at once. Default: 64.
func Batch(n int) Option { return Option{func(s *settings) { s.o.Batch = max(n, 1) }} }

// StartTime sets the processing time at the start. Default: 2026-01-01T00:00:00Z.
func StartTime(t time.Time) Option {
	return Option{func(s *settings) { s.o.Now = max(t.UnixMilli(), 1) }}
}

// Defaults sets what the topology's operators inherit, which a program takes from its configuration.
func Defaults(d processor.Defaults) Option { return Option{func(s *settings) { s.defaults = d }} }

// MayFail says that the app may stop by an error, which Driver.Err then tells. Without it the test fails.
func MayFail() Option { return Option{func(s *settings) { s.o.MayFail = true }} }

var startTime = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Driver runs a topology. It belongs to the test's goroutine.
type Driver struct {
	tb       testing.TB
	topology func(*processor.Topology)
	top      *processor.Topology
	plan     *task.Plan
	set      settings
	run      *drive.Driver // nil before the first record
	wild     *rand.Rand    // of a schedule: nothing is processed to its end but at the end
	inputs   []sent        // all that was sent, in order
	round    map[string]int
	bound    string // why the test cannot run on a broker
}

// sent is one record that the test sent.
type sent struct {
	topic     string
	partition int
	forced    bool // the test named the partition
	all       bool // to all partitions: a watermark
	rec       record.Record
}

// New makes the driver of a topology. The test fails at once if the topology has faults.
func New(tb testing.TB, topology func(*processor.Topology), o ...Option) *Driver {
	tb.Helper()
	s := settings{o: drive.Options{Now: startTime.UnixMilli(), Still: true}}
	for _, o := range o {
		if o.apply != nil {
			o.apply(&s)
		}
	}
	return newDriver(tb, topology, s)
}

func newDriver(tb testing.TB, topology func(*processor.Topology), s settings) *Driver {
	tb.Helper()
	d := &Driver{tb: tb, topology: topology, set: s, round: map[string]int{}}
	d.top = d.build()
	d.plan = d.planOf(d.top)
	tb.Cleanup(func() {
		if d.run != nil {
			d.run.Close()
		}
	})
	return d
}

func (d *Driver) build() *processor.Topology {
	top := processor.New(d.set.defaults)
	d.topology(top)
	return top
}

func (d *Driver) planOf(top *processor.Topology) *task.Plan {
	d.tb.Helper()
	plan, err := top.Plan()
	if err != nil {
		d.tb.Fatalf("the topology has faults:\n%v", err)
	}
	return plan
}

// start makes the subtasks before the first record: until then side outputs may be taken.
func (d *Driver) start() *drive.Driver {
	d.tb.Helper()
	if d.run == nil {
		d.run = drive.NewPlan(d.tb, d.plan, d.set.o)
	}
	return d.run
}

// settle processes all that there is, and commits it.
func (d *Driver) settle() {
	d.tb.Helper()
	r := d.start()
	if d.wild == nil {
		r.Run()
		return
	}
	for range d.wild.IntN(4) {
		r.Round()
		r.Pass(0)
	}
}

// Settle lets all that was sent be processed and committed. Every call of this package does it, but in the runs of Schedules:
// there it makes sure that what was sent before is processed before what is sent after, as rules before events.
func (d *Driver) Settle() {
	d.tb.Helper()
	d.finish()
}

// finish is settle at the end of a schedule.
func (d *Driver) finish() {
	d.tb.Helper()
	d.start().Run()
}

// input finds a topic that the topology reads.
func (d *Driver) input(topic string) task.Input {
	d.tb.Helper()
	var names []string
	for _, sub := range d.plan.Subs {
		for _, in := range sub.Inputs {
			if !in.Internal && in.Topic == topic {
				return in
			}
			if !in.Internal {
				names = append(names, in.Topic)
			}
		}
	}
	d.tb.Fatalf("the topology does not read topic %s; it reads %v", topic, names)
	return task.Input{}
}

// send appends a record to a topic. partition < 0 is where Kafka's default partitioner puts the key, or the next one in turn
// if there is no key.
func (d *Driver) send(topic string, partition int, r record.Record) {
	d.tb.Helper()
	run := d.start()
	n := run.PartitionsOf(topic)
	forced := partition >= 0
	switch {
	case partition >= n:
		d.tb.Fatalf("send to partition %d of topic %s: it has %d; see Partitions", partition, topic, n)
	case forced:
	case r.Key != nil:
		partition = place(r.Key, n)
	default:
		partition = d.round[topic] % n
		d.round[topic]++
	}
	d.inputs = append(d.inputs, sent{topic: topic, partition: partition, forced: forced, rec: r})
	run.Produce(topic, partition, r)
}

// AdvanceWatermark moves the watermark of every partition of every topic that is read to t: nothing at or before t is
// expected any more. It never moves back. What is due fires: timers for t, and windows that end at t + 1 ms. To close a window
// [start, end), pass end.
func (d *Driver) AdvanceWatermark(t time.Time) {
	d.tb.Helper()
	for _, sub := range d.plan.Subs {
		for _, in := range sub.Inputs {
			if !in.Internal {
				d.watermark(in.Topic, t)
			}
		}
	}
	d.settle()
}

func (d *Driver) watermark(topic string, t time.Time) {
	d.tb.Helper()
	run := d.start()
	r := drive.WatermarkRecord(t.UnixMilli())
	for p := range run.PartitionsOf(topic) {
		run.Produce(topic, p, r)
	}
	d.inputs = append(d.inputs, sent{topic: topic, all: true, rec: r})
}

// AdvanceProcessingTime lets processing time pass: timers of it fire, partitions become idle (Topic.Idle), periodic watermark
// generators are asked. It passes in steps of at most 200 ms, as it does on a quiet machine.
func (d *Driver) AdvanceProcessingTime(by time.Duration) {
	d.tb.Helper()
	d.bound = "it moved processing time"
	run := d.start()
	for left := by.Milliseconds(); left > 0 && run.Failed == nil; {
		const most = 200
		step := min(left, most)
		if left > 1000*most {
			step = left - 1000*most // a long time passes at once, but for its end
		}
		left -= step
		run.Pass(step)
		d.settle()
	}
}

// ProcessingTime is the present processing time.
func (d *Driver) ProcessingTime() time.Time { return time.UnixMilli(d.start().Now).UTC() }

// Restart stops all subtasks and makes them anew from what is committed, as after a crash. What has been processed since the
// last commit is processed again; after a Send all is committed.
func (d *Driver) Restart() {
	d.tb.Helper()
	for _, st := range d.start().Tasks {
		st.Restart()
	}
	d.settle()
}

// FailNextCommit makes the next commit of a subtask fail: its transaction is aborted, so none of its results is ever seen, and
// the subtask starts anew from what is committed and processes the same records again. Called n times it lets n commits fail.
func (d *Driver) FailNextCommit() { d.start().FailNext++ }

// Err is what stopped the app, nil if nothing did: see MayFail.
func (d *Driver) Err() error {
	if d.run == nil {
		return nil
	}
	return d.run.Failed
}

// Late is how many records came too late for an operator: they were dropped, or went to a side output for late records.
func (d *Driver) Late() int64 { return d.start().Late() }

// DeadLetter is a record that an operator gave up: see processor.DeadLetter.
type DeadLetter struct {
	Key, Value []byte
	Topic      string // of the original record; "" if there is none, since a timer or the result of a window failed
	Partition  int32
	Offset     int64
	Operator   string
	Error      string
}

// DeadLetters are all records in the dead-letter topic.
func DeadLetters(d *Driver) []DeadLetter {
	d.tb.Helper()
	var all []DeadLetter
	for _, r := range d.start().Records(drive.DeadLetters) {
		l, err := task.ReadDeadLetter(r.Headers)
		if err != nil {
			d.tb.Fatal(err)
		}
		all = append(all, DeadLetter{Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value), Topic: l.Topic, Partition: l.Partition, Offset: l.Offset, Operator: l.Operator, Error: l.Error})
	}
	slices.SortFunc(all, func(a, b DeadLetter) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	return all
}

// watermarks are the watermarks of the topics that are read, the least of their partitions that are not idle.
func (d *Driver) watermarks() map[string]int64 {
	marks := map[string]int64{}
	for _, st := range d.start().Tasks {
		for _, p := range st.Task.Positions() {
			in := st.Sub.Inputs[p.Input]
			if in.Internal || p.Idle {
				continue
			}
			if w, ok := marks[in.Topic]; !ok || p.Watermark < w {
				marks[in.Topic] = p.Watermark
			}
		}
	}
	for topic, w := range marks {
		if w == math.MinInt64 {
			delete(marks, topic)
		}
	}
	return marks
}

func describeType(v any) string { return fmt.Sprintf("%T", v) }
