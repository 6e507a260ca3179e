package processor

import (
	"fmt"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
)

// SinkTopic is a Kafka topic that is written. Only Name is needed. Its functions are shared by all subtasks. A value
// that cannot be encoded or is larger than the topic takes is bad input of the sink: see Policy.
type SinkTopic[T any] struct {
	// Name of the topic.
	Name string
	// ID of the sink in errors and metrics, unique among sinks. Default: Name.
	ID string
	// Value encodes the record values. Default: format.Default[T], which is JSON for structs.
	Value format.Serde[T]
	// Key gives the record key; the bytes are copied, nil is null. Default: the key of a KeyedStream as its topic's
	// serde (FromKeyed) or format.DefaultKey writes it; null for a Stream.
	Key func(T) []byte
	// Headers gives the record headers; what it returns must not be changed afterwards. Default: none.
	Headers func(T) []Header
	// Time gives the record timestamp. Default: the event time; for the result of a window its end less 1 ms. Kafka
	// has no times before 1970: they become 0. A topic's retention goes by this time: results of events that are older
	// than its retention.ms are deleted soon after they were written (raise it, or give the processing time here).
	Time func(T) time.Time
	// Tombstone says that the record's value is to be null. Default: never.
	Tombstone func(T) bool
	// Partition gives the partition, 0 to partitions-1. Default: Kafka's default partitioner (murmur2 of the key); a
	// record with a null key follows the partition of its input.
	Partition func(v T, partitions int32) int32
}

// ToTopic writes a stream to a topic, with all defaults of SinkTopic.
func ToTopic[T any](from Flow[T], name string, o ...Option) { To(from, SinkTopic[T]{Name: name}, o...) }

// To writes a stream to a topic, in the transaction that also commits the input's positions and the state: readers
// with isolation.level=read_committed see each result exactly once. Flink: KafkaSink with EXACTLY_ONCE, sinkTo.
func To[T any](from Flow[T], topic SinkTopic[T], o ...Option) {
	p := from.flow()
	id := topic.ID
	if id == "" {
		id = topic.Name
	}
	n := p.n.t.add("to", spaceSink, id, p.n)
	checkTopic(n, topic.Name, topic.ID)
	n.output = &outputInfo{topic: topic.Name}
	n.with(o)
	if topic.Value == nil {
		serde, err := format.Default[T]()
		if err != nil {
			n.fail("value type: %w", err)
		}
		topic.Value = serde
	}
	n.output.value = topic.Value
	sink := func(b *builder) encodedStep[T] {
		op, output, maxBytes := b.op(n), b.output(n), n.output.maxBytes
		partitions := b.x.Partitions(output)
		slot := new(T)
		return func(x *task.Exec, key []byte, v T) error {
			x.Op = op
			if topic.Key != nil {
				if key = topic.Key(v); key != nil {
					key = x.Keep(append(x.Buf(), key...))
				}
			}
			var value []byte
			if topic.Tombstone == nil || !topic.Tombstone(v) {
				*slot = v
				var err error
				if value, err = topic.Value.Append(x.Buf(), slot); err != nil {
					return x.Fail(op, task.BadData, fmt.Errorf("encode value: %w", err))
				}
				if value = x.Keep(value); value == nil {
					value = []byte{} // a null value is a tombstone, which is not what the serde said
				}
			}
			var headers []record.Header
			if topic.Headers != nil {
				headers = topic.Headers(v)
			}
			at := x.Time
			if topic.Time != nil {
				ms, ok := millis(topic.Time(v))
				if !ok {
					return x.Fail(op, task.BadData, fmt.Errorf("take record time: Time gave a time millions of years away"))
				}
				at = ms
			}
			var partition int32
			switch {
			case topic.Partition != nil:
				partition = topic.Partition(v, partitions)
			case key != nil:
				partition = format.Partition(key, partitions)
			default:
				partition = x.SourcePartition() % partitions
			}
			return x.Output(op, output, partition, key, value, headers, at, maxBytes)
		}
	}
	if topic.Key != nil {
		p.attach(func(b *builder) step[T] {
			next := sink(b)
			return func(x *task.Exec, v T) error { return next(x, nil, v) }
		})
		return
	}
	p.attachEncoded(sink)
}
