package processor

import (
	"fmt"
	"regexp"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
)

// Topic is a Kafka topic that is read. Only Name is needed.
type Topic[T any] struct {
	// Name of the topic.
	Name string
	// ID of the source in errors and metrics. Default: Name.
	ID string
	// Value decodes the record values. Default: format.Default[T], which is JSON for structs.
	Value format.Serde[T]
	// EventTime gives the event time of a value. Default: the timestamp of the Kafka record. The zero time.Time means
	// that the value has none. Event times count in ms. Flink: TimestampAssigner.
	EventTime func(T) time.Time
	// EventTimeOf gives the event time of a value with its Kafka record, instead of EventTime: for times in headers
	// (HeaderTime) or that depend on the key.
	EventTimeOf func(Record[T]) time.Time
	// IngestionTime takes the time of the clock at which a record is first looked at, instead of EventTime; it does not go
	// back within a partition, and watermarks follow the records as usual. Results then depend on when records were read:
	// a record that is processed again, after a crash or from a savepoint, gets another time, and may fall into another
	// window. The timestamp of the Kafka record, with message.timestamp.type=LogAppendTime, is the same for ever and is
	// the better choice where the broker may set it. Flink: ingestion time, processing time.
	IngestionTime bool
	// MaxOutOfOrder bounds how much earlier than the latest record of its partition a record may be: the partition's
	// watermark is the highest event time seen, less MaxOutOfOrder, less 1 ms. Default 0: times never go back. Flink:
	// WatermarkStrategy.forBoundedOutOfOrderness, forMonotonousTimestamps.
	MaxOutOfOrder time.Duration
	// Idle is the processing time without a record after which a partition no longer holds the watermark back, until
	// its next record. Default 0: never; then a partition without records holds all event time back. Flink:
	// withIdleness.
	Idle time.Duration
	// Watermarks makes a watermark generator for each partition, instead of MaxOutOfOrder.
	Watermarks func() WatermarkGenerator[T]
	// Start is where reading begins when the group has no position yet. Default: Earliest.
	Start Start
	// End is where reading ends. Default: never.
	End End
	// BadTime is the policy for a record without event time: a timestamp below 0, a zero time from EventTime, or one
	// millions of years away. Default: that of Defaults.BadInput, which is DeadLetter.
	BadTime Policy
}

// WatermarkGenerator tells the event time of one partition. What it emits never moves the watermark back. It starts
// anew after a restart, while the watermark itself is kept. Flink: WatermarkGenerator.
type WatermarkGenerator[T any] interface {
	// OnEvent is called for each record that went through the chain.
	OnEvent(v T, at time.Time, emit func(time.Time))
	// OnPeriod is called every 200 ms of processing time.
	OnPeriod(emit func(time.Time))
}

// Start is where reading of a partition begins when the group has no position for it.
type Start struct{ s task.Start }

// Earliest begins with the first record that the topic still holds, Latest with the next one written. Flink:
// OffsetsInitializer.
var (
	Earliest = Start{task.Start{Kind: task.StartEarliest}}
	Latest   = Start{task.Start{Kind: task.StartLatest}}
)

// At begins with the first record whose Kafka timestamp is t or later.
func At(t time.Time) Start { return Start{task.Start{Kind: task.StartTimestamp, At: t}} }

// Offsets begins at an offset for each partition; those that are not named begin with their first record.
func Offsets(by map[int32]int64) Start {
	return Start{task.Start{Kind: task.StartOffsets, Offsets: by}}
}

// Committed begins at the offsets that a consumer group has committed, which need not be that of the app ("" = it is). Where
// it has none, otherwise says where to begin: Earliest, Latest, or Nowhere, with which the app does not start.
func Committed(group string, otherwise Start) Start {
	return Start{task.Start{Kind: task.StartGroup, Group: group, Else: otherwise.s.Kind}}
}

// Nowhere is for Committed.
var Nowhere = Start{task.Start{Kind: task.StartNone}}

// End is where reading of a partition ends; the zero End is never. It is found once, at the first start of the app, and
// a restart keeps it. A partition that has ended holds back no event time: once all inputs of an operator have ended,
// time is over for it, and its windows fire. An app all of whose inputs have ended commits and ends. Flink: setBounded.
type End struct{ e task.End }

// EndLatest ends behind the last record that is committed at the start. Flink: setBounded(OffsetsInitializer.latest()).
var EndLatest = End{task.End{Kind: task.EndLatest}}

// EndAt ends before the first record whose Kafka timestamp is t or later, or behind the last one if there is none yet.
func EndAt(t time.Time) End { return End{task.End{Kind: task.EndTimestamp, At: t}} }

// EndOffsets ends before an offset for each partition. Of those that are not named nothing is read.
func EndOffsets(by map[int32]int64) End {
	return End{task.End{Kind: task.EndOffsets, Offsets: by}}
}

// EndCommitted ends at the offsets that a consumer group has committed: see Committed. Where it has none, nothing is read.
func EndCommitted(group string) End { return End{task.End{Kind: task.EndGroup, Group: group}} }

// Record is a value with the Kafka record it came in. FromRecords makes streams of it.
type Record[T any] struct {
	Value     T
	Null      bool      // the record's value is null (a tombstone): Value is zero
	Key       []byte    // nil = null; must not be changed
	Timestamp time.Time // the Kafka timestamp, not the event time; zero if the record has none
	Headers   []Header  // must not be changed
	Topic     string
	Partition int32
	Offset    int64
}

var topicPattern = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

func checkTopic(n *node, topic, id string) {
	if !topicPattern.MatchString(topic) || topic == "." || topic == ".." {
		n.fail("topic name %q must be 1 to 249 of a-z, A-Z, 0-9, ., _ and -", topic)
	}
	if id != "" && !idPattern.MatchString(id) {
		n.fail("id %q must be 1 to 40 of a-z, 0-9 and -", id)
	}
}

// sourceNode makes the node of a topic source; how decodes and runs it is up to the caller.
func sourceNode[T any](t *Topology, kind string, topic *Topic[T], o []Option) *node {
	id := topic.ID
	if id == "" {
		id = topic.Name
	}
	n := t.add(kind, spaceSource, id)
	checkTopic(n, topic.Name, topic.ID)
	l := task.InputLayout{Bound: topic.MaxOutOfOrder.Milliseconds(), Custom: topic.Watermarks != nil, Idle: topic.Idle}
	if time.Duration(l.Bound)*time.Millisecond < topic.MaxOutOfOrder {
		l.Bound++ // part of a ms
	}
	n.source = &sourceInfo{topic: topic.Name, start: topic.Start.s, end: topic.End.e, layout: l}
	if topic.MaxOutOfOrder < 0 {
		n.fail("MaxOutOfOrder is negative: %s", topic.MaxOutOfOrder)
	}
	if topic.Idle < 0 {
		n.fail("Idle is negative: %s", topic.Idle)
	}
	if topic.Watermarks != nil && topic.MaxOutOfOrder != 0 {
		n.fail("MaxOutOfOrder and Watermarks exclude each other; the generator has its own bound")
	}
	if topic.timeSources() > 1 {
		n.fail("EventTime, EventTimeOf and IngestionTime exclude each other")
	}
	if topic.BadTime > DeadLetter {
		n.fail("BadTime: policy %d is unknown; use Fail, Skip or DeadLetter", topic.BadTime)
	}
	if topic.BadTime == DeadLetter {
		n.deadLetters = true
	}
	if topic.Value == nil {
		serde, err := format.Default[T]()
		if err != nil {
			n.fail("value type: %w", err)
		}
		topic.Value = serde
	}
	n.source.value = topic.Value
	return n.with(o)
}

// timeSources is how many of its ways to an event time are set.
func (t *Topic[T]) timeSources() (n int) {
	for _, set := range []bool{t.EventTime != nil, t.EventTimeOf != nil, t.IngestionTime} {
		if set {
			n++
		}
	}
	return n
}

// From reads a topic as a stream without key. A null value is bad input. Flink: KafkaSource, fromSource.
func From[T any](t *Topology, topic Topic[T], o ...Option) Stream[T] {
	n := sourceNode(t, "from", &topic, o)
	out := newStream[T](n)
	n.source.open = func(b *builder) task.Source {
		s := newSource(b, n, &topic)
		next := out.s.step(b)
		s.run = func(x *task.Exec, h *head[T]) error {
			x.Group = statestore.Group(h.partition)
			return next(x, h.value)
		}
		return s
	}
	return out
}

// FromRecords reads a topic with key, headers, timestamp and position. Null values are passed on: see Record.Null.
func FromRecords[T any](t *Topology, topic Topic[T], o ...Option) Stream[Record[T]] {
	n := sourceNode(t, "from-records", &topic, o)
	out := newStream[Record[T]](n)
	n.source.open = func(b *builder) task.Source {
		s := newSource(b, n, &topic)
		s.nulls = true
		next := out.s.step(b)
		s.run = func(x *task.Exec, h *head[T]) error {
			x.Group = statestore.Group(h.partition)
			return next(x, recordOf(x, h.value))
		}
		return s
	}
	return out
}

// recordOf is a value with the Kafka record that runs.
func recordOf[T any](x *task.Exec, v T) Record[T] {
	rec, topic, partition := x.Record()
	r := Record[T]{Value: v, Null: rec.Value == nil, Key: rec.Key, Headers: rec.Headers, Topic: topic, Partition: partition, Offset: rec.Offset}
	if rec.Timestamp >= 0 {
		r.Timestamp = instant(rec.Timestamp)
	}
	return r
}

// FromKeyed reads a topic whose record key already is the key: no repartition topic is needed. It checks for each
// record that the key lies on the subtask where Kafka's default partitioner (murmur2) puts it, since state by key
// would fall apart otherwise. A record that does not, stops the app unless OnError says otherwise: then use KeyBy. A
// null key or value is bad input. key nil is format.DefaultKey[K].
func FromKeyed[K comparable, T any](t *Topology, key format.Serde[K], topic Topic[T], o ...Option) KeyedStream[K, T] {
	n := sourceNode(t, "from-keyed", &topic, o)
	keys := newKeyType(n, key)
	n.source.key = keys.serde
	out := newKeyed[K, T](n, keys)
	n.source.open = func(b *builder) task.Source {
		s := newSource(b, n, &topic)
		op := b.op(n)
		next := out.s.step(b)
		var slots []K
		var groups []statestore.Group
		s.opened = func(n int) { slots, groups = make([]K, n), make([]statestore.Group, n) }
		s.decodeKey = func(x *task.Exec, slot int, rec *record.Record) error {
			if rec.Key == nil {
				return x.Fail(op, task.BadData, fmt.Errorf("decode key: it is null; use From and KeyBy"))
			}
			var err error
			if groups[slot], err = routed(x, op, rec.Key); err != nil {
				return err
			}
			if err := keys.serde.Decode(rec.Key, &slots[slot]); err != nil {
				return x.Fail(op, task.BadData, fmt.Errorf("decode key: %w", err))
			}
			return nil
		}
		s.run = func(x *task.Exec, h *head[T]) error {
			x.Group = groups[h.slot]
			return next(x, slots[h.slot], h.value)
		}
		return s
	}
	return out
}

// routed gives the key group of the record that runs, and checks that its partition belongs to the subtask that
// Kafka's default partitioner gives the key. Another partition of the same subtask is fine: that is where records lie
// that were written before the topic grew.
func routed(x *task.Exec, op int32, key []byte) (statestore.Group, error) {
	partition, total, ok := x.Input()
	if !ok {
		return 0, x.Fail(op, task.Misrouted, fmt.Errorf("check key: the record was emitted by a timer or window and is on no partition; use KeyBy"))
	}
	want, group := place(key, total)
	if want != partition {
		if _, n := x.Subtask(); int(want)%n != int(partition)%n {
			return 0, x.Fail(op, task.Misrouted, fmt.Errorf("check key: key %q is on partition %d, Kafka's default partitioner puts it on %d of %d; the producer partitions otherwise: use From and KeyBy", key, partition, want, total))
		}
	}
	return group, nil
}

// head is the decoded next record of one partition.
type head[T any] struct {
	value     T
	slot      int
	partition int32
	generator generated[T]
	read      int64 // the latest IngestionTime
}

// source is the task.Source of a Kafka topic.
type source[T any] struct {
	heads     []head[T]
	op        int32
	topic     *Topic[T]
	nulls     bool
	opened    func(n int)
	decodeKey func(x *task.Exec, slot int, rec *record.Record) error
	run       func(x *task.Exec, h *head[T]) error
}

func newSource[T any](b *builder, n *node, topic *Topic[T]) *source[T] {
	return &source[T]{op: b.op(n), topic: topic}
}

// Open is of task.Source.
func (s *source[T]) Open(n int) {
	s.heads = make([]head[T], n)
	for i := range s.heads {
		h := &s.heads[i]
		h.slot = i
		if s.topic.Watermarks != nil {
			h.generator.init(s.topic.Watermarks())
		}
	}
	if s.opened != nil {
		s.opened(n)
	}
}

// Decode is of task.Source.
func (s *source[T]) Decode(x *task.Exec, slot int, rec *record.Record) (int64, error) {
	h := &s.heads[slot]
	h.partition, _, _ = x.Input()
	if s.decodeKey != nil {
		if err := s.decodeKey(x, slot, rec); err != nil {
			return 0, err
		}
	}
	if rec.Value == nil {
		if !s.nulls {
			return 0, x.Fail(s.op, task.BadData, fmt.Errorf("decode value: %w; read tombstones with FromRecords", format.ErrNull))
		}
		var zero T
		h.value = zero
	} else if err := s.topic.Value.Decode(rec.Value, &h.value); err != nil {
		return 0, x.Fail(s.op, task.BadData, fmt.Errorf("decode value: %w", err))
	}
	var at time.Time
	switch {
	case s.topic.EventTimeOf != nil:
		at = s.topic.EventTimeOf(recordOf(x, h.value))
	case s.topic.IngestionTime:
		h.read = max(h.read, x.Now())
		return h.read, nil
	case s.topic.EventTime == nil || rec.Value == nil:
		return s.recordTime(x, rec)
	default:
		at = s.topic.EventTime(h.value)
	}
	if at.IsZero() {
		return 0, s.badTime(x, "EventTime gave none (a zero time.Time)")
	}
	ms, ok := millis(at)
	if !ok {
		return 0, s.badTime(x, "EventTime gave a time millions of years away")
	}
	return ms, nil
}

func (s *source[T]) recordTime(x *task.Exec, rec *record.Record) (int64, error) {
	if rec.Timestamp < 0 || rec.Timestamp > maxTime {
		return 0, s.badTime(x, fmt.Sprintf("the record's timestamp is %d", rec.Timestamp))
	}
	return rec.Timestamp, nil
}

func (s *source[T]) badTime(x *task.Exec, why string) error {
	return x.FailWith(s.op, task.BadData, s.topic.BadTime.task(), fmt.Errorf("take event time: %s", why))
}

// Run is of task.Source.
func (s *source[T]) Run(x *task.Exec, slot int) error { return s.run(x, &s.heads[slot]) }

// OnEvent is of task.Source.
func (s *source[T]) OnEvent(slot int, at int64) int64 {
	h := &s.heads[slot]
	return h.generator.onEvent(h.value, at)
}

// OnPeriod is of task.Source.
func (s *source[T]) OnPeriod(slot int) int64 { return s.heads[slot].generator.onPeriod() }
