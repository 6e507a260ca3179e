package processor

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/millrace-stream/millrace/internal/task"
)

// WatermarkStrategy says how AssignEventTime gives event times. Its fields are as those of Topic. Flink:
// WatermarkStrategy.
type WatermarkStrategy[T any] struct {
	// EventTime gives the event time of a value; a zero time.Time means that it has none. Default: the event time that it
	// has already, so that only watermarks are made anew.
	EventTime func(T) time.Time
	// MaxOutOfOrder bounds how much earlier than the latest one of its partition a value may be.
	MaxOutOfOrder time.Duration
	// Idle is the processing time without a value after which a partition no longer holds the watermark back, for chains
	// in which a filter may keep a partition's values away. Default 0: a partition is idle when its source says so.
	Idle time.Duration
	// Watermarks makes a watermark generator for each partition, instead of MaxOutOfOrder.
	Watermarks func() WatermarkGenerator[T]
	// BadTime is the policy for a value without event time, as in Topic.
	BadTime Policy
}

// AssignEventTime gives values new event times and makes watermarks by them, in the middle of a chain: where the time is
// known only after something was decoded or joined. What comes behind sees the new times alone. The watermark keeps one
// mark for each partition that is read before it, as a source does, so that partitions may be unequally far; where the
// values are results of timers or windows, which belong to no partition, there is one mark for the subtask. The marks are
// kept under the id, so that a restart goes on with the same watermark; when the parallelism changes, those of the
// partitions begin anew, and the watermark does not go back. Flink: assignTimestampsAndWatermarks, which has one mark for
// the subtask.
func AssignEventTime[T any](from Flow[T], id string, s WatermarkStrategy[T], o ...Option) Stream[T] {
	p := from.flow()
	n := p.n.t.add("assign-event-time", spaceOperator, id, p.n).with(o)
	n.timed = true
	if s.MaxOutOfOrder < 0 {
		n.fail("MaxOutOfOrder is negative: %s", s.MaxOutOfOrder)
	}
	if s.Idle < 0 {
		n.fail("Idle is negative: %s", s.Idle)
	}
	if s.Watermarks != nil && s.MaxOutOfOrder != 0 {
		n.fail("MaxOutOfOrder and Watermarks exclude each other; the generator has its own bound")
	}
	if s.BadTime > DeadLetter {
		n.fail("BadTime: policy %d is unknown; use Fail, Skip or DeadLetter", s.BadTime)
	}
	n.deadLetters = s.BadTime == DeadLetter
	out := newStream[T](n)
	p.attach(func(b *builder) step[T] {
		return shared(b, n, func() step[T] { return assign(b, n, &s, out.s.step(b)) })
	})
	return out
}

func assign[T any](b *builder, n *node, s *WatermarkStrategy[T], next step[T]) step[T] {
	op := b.op(n)
	l := task.AssignerLayout{ID: n.id, Bound: roundUp(s.MaxOutOfOrder), Idle: roundUp(s.Idle), Inputs: b.partitionsBefore(n)}
	var gens []generated[T]
	var v T // of the record that runs, for OnEvent
	if s.Watermarks != nil {
		l.OnEvent = func(slot int, at int64) int64 { return gens[slot].onEvent(v, at) }
		l.OnPeriod = func(slot int) int64 { return gens[slot].onPeriod() }
	}
	a := b.task.Assign(b.node(n), l)
	if s.Watermarks != nil {
		gens = make([]generated[T], a.Slots())
		for i := range gens {
			gens[i].init(s.Watermarks())
		}
	}
	bad := func(x *task.Exec, why string) error {
		return x.FailWith(op, task.BadData, s.BadTime.task(), fmt.Errorf("take event time: %s", why))
	}
	return func(x *task.Exec, value T) error {
		x.Op = op
		before, at := x.Time, x.Time
		if s.EventTime != nil {
			t := s.EventTime(value)
			if t.IsZero() {
				return bad(x, "EventTime gave none (a zero time.Time)")
			}
			var ok bool
			if at, ok = millis(t); !ok {
				return bad(x, "EventTime gave a time millions of years away")
			}
		}
		x.Time = at
		err := next(x, value)
		x.Time = before
		if err != nil {
			return err
		}
		x.Op = op
		v = value
		a.Assigned(a.Slot(x), at)
		return nil
	}
}

// roundUp gives ms; a part of one counts whole.
func roundUp(d time.Duration) int64 {
	ms := d.Milliseconds()
	if time.Duration(ms)*time.Millisecond < d {
		ms++
	}
	return ms
}

// partitionsBefore are the inputs whose partitions an operator that makes watermarks keeps apart; none where values may
// come from timers.
func (b *builder) partitionsBefore(n *node) (inputs []int) {
	if emitsByTimer(n.inputs) {
		return nil
	}
	for i, in := range b.sub.inputs {
		if reads(n, in) {
			inputs = append(inputs, i)
		}
	}
	return inputs
}

// emitsByTimer says that what comes from these nodes may come from timers or windows.
func emitsByTimer(nodes []*node) bool {
	for _, n := range nodes {
		if n.timed && n.kind != "assign-event-time" && n.kind != "retime" || n.source == nil && emitsByTimer(n.inputs) {
			return true
		}
	}
	return false
}

// reads says that values of a source reach n within its sub-topology.
func reads(n, source *node) bool {
	if n == source {
		return true
	}
	if n.source != nil {
		return false
	}
	for _, in := range n.inputs {
		if reads(in, source) {
			return true
		}
	}
	return false
}

// generated is a watermark generator at work.
type generated[T any] struct {
	g       WatermarkGenerator[T]
	emit    func(time.Time)
	emitted int64
}

func (g *generated[T]) init(w WatermarkGenerator[T]) {
	g.g = w
	g.emit = func(t time.Time) {
		if ms, ok := millis(t); ok {
			g.emitted = max(g.emitted, ms)
		} else if t.Year() > 0 {
			g.emitted = math.MaxInt64 // the end of time: nothing more comes
		}
	}
}

func (g *generated[T]) onEvent(v T, at int64) int64 {
	g.emitted = math.MinInt64
	g.g.OnEvent(v, instant(at), g.emit)
	return g.emitted
}

func (g *generated[T]) onPeriod() int64 {
	g.emitted = math.MinInt64
	g.g.OnPeriod(g.emit)
	return g.emitted
}

// HeaderTime takes the event time from a header of the Kafka record, for Topic.EventTimeOf; parse declares how it is
// written: UnixSeconds, UnixMillis, UnixMicros, UnixNanos or RFC3339, or a function of the program. Of several headers
// of the name the last one counts. A record without it, or with one that cannot be parsed, has no event time.
func HeaderTime[T any](name string, parse func(text []byte) time.Time) func(Record[T]) time.Time {
	return func(r Record[T]) time.Time {
		for i := len(r.Headers) - 1; i >= 0; i-- {
			if r.Headers[i].Key == name {
				return parse(r.Headers[i].Value)
			}
		}
		return time.Time{}
	}
}

// The ways in which a time may be written as text, for HeaderTime. Each names its unit; none is guessed. What cannot be
// parsed gives the zero time.Time, which means that there is none. For numbers in values there are time.Unix,
// time.UnixMilli and time.UnixMicro.
var (
	UnixSeconds = unixText(func(n int64) time.Time { return time.Unix(n, 0) })
	UnixMillis  = unixText(time.UnixMilli)
	UnixMicros  = unixText(time.UnixMicro)
	UnixNanos   = unixText(func(n int64) time.Time { return time.Unix(0, n) })
)

func unixText(at func(int64) time.Time) func(text []byte) time.Time {
	return func(text []byte) time.Time {
		n, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil {
			return time.Time{}
		}
		return at(n).UTC()
	}
}

// RFC3339 parses a time such as 2026-01-02T03:04:05.678Z, which must name its zone: see UnixMillis.
func RFC3339(text []byte) time.Time {
	t, err := time.Parse(time.RFC3339Nano, string(text))
	if err != nil {
		return time.Time{}
	}
	return t
}
