package processor_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/drive"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/processor"
)

func explode() { panic("explode") }

// Whatever operator panics, for a record or a timer, the dead letter is of one form and has the stack; under Fail the
// error has it.
func TestPanicsLeaveTheirStack(t *testing.T) {
	source := func(top *processor.Topology, name string) processor.KeyedStream[string, event] {
		return processor.FromKeyed(top, format.String(), processor.Topic[event]{Name: name, EventTime: eventTime})
	}
	for name, c := range map[string]struct {
		record bool // the failure is that of a record
		build  func(top *processor.Topology, o processor.Option)
	}{
		"map": {record: true, build: func(top *processor.Topology, o processor.Option) {
			processor.ToTopic(processor.Map(source(top, "in"), func(event) int { explode(); return 0 }, o, processor.Name("op")), "out")
		}},
		"process": {record: true, build: func(top *processor.Topology, o processor.Option) {
			processor.Process(source(top, "in"), "op", func(ctx *processor.KeyedContext[string, event, int]) {
				ctx.OnRecord(func(event) error { explode(); return nil })
			}, o)
		}},
		"timer": {build: func(top *processor.Topology, o processor.Option) {
			processor.Process(source(top, "in"), "op", func(ctx *processor.KeyedContext[string, event, int]) {
				ctx.OnRecord(func(e event) error { ctx.RegisterEventTimer(time.UnixMilli(1)); return nil })
				ctx.OnTimer(func(processor.Timer) error { explode(); return nil })
			}, o)
		}},
		"connect": {record: true, build: func(top *processor.Topology, o processor.Option) {
			processor.Connect(source(top, "in"), source(top, "other"), "op", func(ctx *processor.CoContext[string, event, event, int]) {
				ctx.OnLeft(func(event) error { explode(); return nil })
				ctx.OnRight(func(event) error { return nil })
			}, o)
		}},
		"connect timer": {build: func(top *processor.Topology, o processor.Option) {
			in := source(top, "in")
			processor.Connect(in, in, "op", func(ctx *processor.CoContext[string, event, event, int]) {
				ctx.OnLeft(func(event) error { ctx.RegisterProcessingTimer(time.UnixMilli(1)); return nil })
				ctx.OnRight(func(event) error { return nil })
				ctx.OnTimer(func(processor.Timer) error { explode(); return nil })
			}, o)
		}},
		"stream": {record: true, build: func(top *processor.Topology, o processor.Option) {
			processor.ProcessStream(source(top, "in"), "op", func(ctx *processor.Context[event, int]) {
				ctx.OnRecord(func(event) error { explode(); return nil })
			}, o)
		}},
		"assign": {record: true, build: func(top *processor.Topology, o processor.Option) {
			processor.AssignEventTime(source(top, "in"), "op", processor.WatermarkStrategy[event]{EventTime: func(event) time.Time { explode(); return time.Time{} }}, o)
		}},
	} {
		run := func(p processor.Policy) *drive.Driver {
			d := drive.New(t, func(top *processor.Topology) { c.build(top, processor.OnError(p)) }, drive.Options{MayFail: true, Still: true})
			d.Produce("in", 0, record.Record{Key: []byte("key"), Value: []byte(`{"at":5}`), Timestamp: 3})
			d.Run()
			if d.Failed == nil {
				d.Pass(1)
			}
			if d.Failed == nil {
				d.Run()
			}
			return d
		}
		letters := run(processor.DeadLetter).Records("dead-letter")
		if len(letters) != 1 {
			t.Fatalf("%s: %d dead letters", name, len(letters))
		}
		l, err := task.ReadDeadLetter(letters[0].Headers)
		if err != nil || l.Operator != "op" || l.Error != "panic: explode" || !strings.HasPrefix(l.Stack, "panic(") || !strings.Contains(l.Stack, "processor_test.explode") || len(l.Stack) > 4096 {
			t.Errorf("%s: %+v, %v", name, l, err)
		}
		if string(letters[0].Key) != "key" || c.record != (l.Topic == "in") || c.record != (letters[0].Value != nil) {
			t.Errorf("%s: dead letter %q %q of topic %q", name, letters[0].Key, letters[0].Value, l.Topic)
		}
		if s := run(processor.Skip); s.Failed != nil || s.Tasks[0].Task.Stats().Skipped != 1 {
			t.Errorf("%s: skip: %v", name, s.Failed)
		}
		var e *task.Error
		if err := run(processor.Fail).Failed; !errors.As(err, &e) || e.Operator != "op" || !strings.Contains(string(e.Stack), "processor_test.explode") {
			t.Errorf("%s: fail: %v", name, err)
		}
	}
}

// A dead letter that is too large with its stack goes without it.
func TestStackIsLeftOutWhereItDoesNotFit(t *testing.T) {
	d := drive.New(t, func(top *processor.Topology) {
		in := processor.From(top, processor.Topic[string]{Name: "in", Value: text})
		processor.ToTopic(processor.Map(in, func(string) int { explode(); return 0 }, processor.OnError(processor.DeadLetter)), "out")
	}, drive.Options{MaxBytes: 1000, Still: true})
	d.Produce("in", 0, record.Record{Value: fmt.Appendf(nil, "%0400d", 1), Timestamp: 3})
	d.Run()
	letters := d.Records("dead-letter")
	if len(letters) != 1 {
		t.Fatalf("%d dead letters", len(letters))
	}
	if l, err := task.ReadDeadLetter(letters[0].Headers); err != nil || l.Stack != "" || l.Error != "panic: explode" {
		t.Errorf("%+v, %v", l, err)
	}
}
