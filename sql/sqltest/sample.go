package sqltest

import (
	"fmt"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/internal/drive"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/catalog"
	"github.com/millrace-stream/millrace/sql/compile"
	"github.com/millrace-stream/millrace/sql/rel"
)

// Sample is what a table makes of some records of its topics.
type Sample struct {
	Table *catalog.Table
	// Rows are those that have an event time, NoTime those whose is NULL. Behind of them are at or before the watermark
	// of their partition, by at most MostBehind ms.
	Rows, NoTime, Behind int
	MostBehind           int64
	// First and Last are the least and the greatest event time, ms.
	First, Last int64
	// Bad are the records that cannot be decoded; Error is what is wrong with one of them.
	Bad   int
	Error string
	// Partitions are those of its topics, Quiet those of them that have no record in the sample, though others have.
	Partitions, Quiet int
	// Idle says that quiet partitions hold nothing back: the table has an idle time-out.
	Idle bool
}

// Samples decodes records as the tables of a plan do, without a broker. Topics that no table reads, and tables without
// records, are left out. partitions are those of the topics.
func Samples(p *rel.Plan, o compile.Options, partitions map[string]int, records map[record.TopicPartition][]record.Record) (out []Sample, err error) {
	defer func() {
		if e := recover(); e != nil {
			stop, ok := e.(stopped)
			if !ok {
				stop = stopped(fmt.Sprintf("panic: %v\n%s", e, stack()))
			}
			err = fmt.Errorf("decode a sample: %s", stop)
		}
	}()
	seen := map[catalog.Path]bool{}
	for _, s := range p.Sinks {
		rel.Walk(s, func(n rel.Node) bool {
			scan, ok := n.(*rel.PScan)
			if !ok || seen[scan.Table.Path] || err != nil {
				return err == nil
			}
			seen[scan.Table.Path] = true
			var one *Sample
			if one, err = sampleTable(scan, o, partitions, records); one != nil && err == nil {
				out = append(out, *one)
			}
			return true
		})
	}
	return out, err
}

// sampleTable decodes the records of one table; nil = there are none.
func sampleTable(scan *rel.PScan, o compile.Options, partitions map[string]int, records map[record.TopicPartition][]record.Record) (*Sample, error) {
	s := &Sample{Table: scan.Table}
	o.OneSubtask, o.BadInput = true, processor.DeadLetter
	o.Collect = func(*rel.Schema) *connector.Sink {
		return &connector.Sink{Topic: collectTopic, Open: func(*processor.SubtaskContext, *processor.SinkWriter) (func(*row.Row) error, error) {
			return func(*row.Row) error { return nil }, nil
		}}
	}
	o.Watch = func(_ *catalog.Table, time, before, _ int64) {
		if time == processor.NoTime {
			s.NoTime++
			return
		}
		if s.Rows == 0 {
			s.First, s.Last = time, time
		}
		s.Rows++
		s.First, s.Last = min(s.First, time), max(s.Last, time)
		if time <= before {
			s.Behind++
			s.MostBehind = max(s.MostBehind, before-time)
		}
	}
	sink := &rel.PSink{Phys: rel.Phys{Base: scan.Base, In: []rel.Physical{scan}, Traits: scan.Traits}}
	app, err := compile.Plan(&rel.Plan{Sinks: []*rel.PSink{sink}}, o)
	if err != nil {
		return nil, err
	}
	plan, err := app.Topology.Plan()
	if err != nil {
		return nil, err
	}
	var topics []string
	any := false
	counts := map[string]int{collectTopic: 1}
	for _, sub := range plan.Subs {
		for _, in := range sub.Inputs {
			topics = append(topics, in.Topic)
			counts[in.Topic] = max(partitions[in.Topic], 1)
			s.Idle = s.Idle || in.Idle > 0
			for p := range counts[in.Topic] {
				s.Partitions++
				if len(records[record.TopicPartition{Topic: in.Topic, Partition: int32(p)}]) > 0 {
					any = true
				} else {
					s.Quiet++
				}
			}
		}
	}
	if !any {
		return nil, nil
	}
	d := drive.NewPlan(&tb{}, plan, drive.Options{Partitions: counts, Still: true, MayFail: true, Now: startTime})
	defer d.Close()
	for _, t := range topics {
		for p := range counts[t] {
			for _, r := range records[record.TopicPartition{Topic: t, Partition: int32(p)}] {
				d.Produce(t, p, r)
			}
		}
	}
	d.Run()
	if d.Failed != nil {
		s.Bad, s.Error = 1, d.Failed.Error()
		return s, nil
	}
	for _, r := range d.Records(drive.DeadLetters) {
		s.Bad++
		for _, h := range r.Headers {
			if h.Key == "millrace-error" && s.Error == "" {
				s.Error = string(h.Value)
			}
		}
	}
	return s, nil
}
