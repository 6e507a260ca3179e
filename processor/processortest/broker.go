package processortest

import (
	"maps"
	"slices"

	"github.com/millrace-stream/millrace/internal/drive"
	"github.com/millrace-stream/millrace/internal/onbroker"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
)

// OnBroker runs the topology over all that the test has sent so far on an embedded Kafka broker, where topics have that many
// partitions and members share the work, and fails the test unless what is committed there is what it is here: the values of
// each record key in order, and those without key as a set. At the end event time is moved on every partition to where it is
// here. Call it as the last thing of a test. As with Schedules, nothing may be late, and the test must not have moved
// processing time or made partitions idle.
func (d *Driver) OnBroker(members, partitions int) {
	d.tb.Helper()
	if d.bound != "" {
		d.tb.Fatalf("run the test on a broker: %s, which a broker cannot", d.bound)
	}
	d.finish()
	if n := d.Late(); n > 0 {
		d.tb.Fatalf("run the test on a broker: %d records are late, so results depend on partitions", n)
	}
	if err := d.onBroker(max(members, 1), max(partitions, 1)); err != nil {
		d.tb.Fatalf("run the test on a broker, %d members, %d partitions: %v", members, partitions, err)
	}
}

// onBroker gives the run what the test has sent, spread over the partitions that there are.
func (d *Driver) onBroker(members, partitions int) error {
	want := d.results()
	run := onbroker.Run{Members: members, Parallelism: d.set.o.Parallelism, Topics: map[string]int{}, Outputs: d.outputs()}
	count := func(topic string) int {
		if n := d.set.o.Partitions[topic]; n > 0 {
			return n
		}
		return partitions
	}
	for _, topic := range run.Outputs {
		run.Topics[topic] = count(topic)
	}
	for _, sub := range d.plan.Subs {
		for _, in := range sub.Inputs {
			if !in.Internal {
				run.Topics[in.Topic] = count(in.Topic)
			}
		}
	}
	all := slices.Clone(d.inputs)
	marks := d.watermarks()
	for _, topic := range slices.Sorted(maps.Keys(marks)) {
		all = append(all, sent{topic: topic, all: true, rec: drive.WatermarkRecord(marks[topic])})
	}
	for _, s := range all {
		n := count(s.topic)
		first, last := s.partition%n, s.partition%n
		switch {
		case s.all:
			first, last = 0, n-1
		case !s.forced && s.rec.Key != nil:
			first = place(s.rec.Key, n)
			last = first
		}
		for p := first; p <= last; p++ {
			run.Inputs = append(run.Inputs, onbroker.Input{Topic: s.topic, Partition: p, Record: s.rec})
		}
	}
	run.Plan = func() *task.Plan {
		plan := d.planOf(d.build())
		drive.Wrap(plan)
		return plan
	}
	run.Compare = func(outputs map[string][]record.Record) string {
		got := results{}
		for topic, recs := range outputs {
			got.add(topic, recs)
		}
		return diffResults(d.sorted(got), want)
	}
	return run.Do()
}
