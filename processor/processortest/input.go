package processortest

import (
	"fmt"
	"reflect"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/record"
)

func place(key []byte, partitions int) int { return int(format.Partition(key, int32(partitions))) }

// Header is one header of a Kafka record.
type Header = record.Header

// Input is a topic that the topology reads, as the test writes it.
type Input[T any] struct {
	d       *Driver
	topic   string
	value   format.Serde[T]
	key     any // format.Serde[K] of a topic with keys, nil of one without
	keyOf   func(T) any
	at      func(T) time.Time
	headers []Header
}

// In is the input of a topic, whose values are encoded with the serde of the source that reads it. The test fails if the
// topology does not read it, or reads another type.
func In[T any](d *Driver, topic string) *Input[T] {
	d.tb.Helper()
	in := d.input(topic)
	value, ok := in.Value.(format.Serde[T])
	if !ok {
		d.tb.Fatalf("topic %s does not hold %v: its serde is a %s", topic, reflect.TypeFor[T](), describeType(in.Value))
	}
	return &Input[T]{d: d, topic: topic, value: value, key: in.Key}
}

// Keyed is the input whose records have the key that key gives: see SendKeyed.
func (in *Input[T]) Keyed(key func(T) any) *Input[T] {
	c := *in
	c.keyOf = key
	return &c
}

// At is the input whose records have t as their Kafka timestamp. The default is the present processing time.
func (in *Input[T]) At(t time.Time) *Input[T] { return in.Timed(func(T) time.Time { return t }) }

// Timed is the input whose records have the Kafka timestamp that at gives.
func (in *Input[T]) Timed(at func(T) time.Time) *Input[T] {
	c := *in
	c.at = at
	return &c
}

// Headers is the input whose records have these headers.
func (in *Input[T]) Headers(h ...Header) *Input[T] {
	c := *in
	c.headers = h
	return &c
}

// Send writes values, without key unless Keyed says otherwise, and lets all be processed and committed. Records with a key
// go to the partition where Kafka's default partitioner puts it, those without to each partition in turn.
func (in *Input[T]) Send(vs ...T) {
	in.d.tb.Helper()
	in.send(-1, nil, vs)
}

// SendTo is Send to one partition.
func (in *Input[T]) SendTo(partition int, vs ...T) {
	in.d.tb.Helper()
	if partition < 0 {
		in.d.tb.Fatalf("send to topic %s: partition %d does not exist", in.topic, partition)
	}
	in.send(partition, nil, vs)
}

// SendKeyed is Send with a key. For a topic that is read by FromKeyed it is of the stream's key type and written with the
// stream's key serde; for another one it is a string or []byte.
func (in *Input[T]) SendKeyed(key any, vs ...T) {
	in.d.tb.Helper()
	in.send(-1, func(T) any { return key }, vs)
}

func (in *Input[T]) send(partition int, keyOf func(T) any, vs []T) {
	d := in.d
	d.tb.Helper()
	if keyOf == nil {
		keyOf = in.keyOf
	}
	if keyOf == nil && in.key != nil {
		d.tb.Fatalf("send to topic %s: it is read by FromKeyed, so its records need keys; use Keyed or SendKeyed", in.topic)
	}
	for i := range vs {
		v := vs[i]
		r := record.Record{Timestamp: d.start().Now, Headers: in.headers}
		if in.at != nil {
			r.Timestamp = in.at(v).UnixMilli()
		}
		var err error
		if keyOf != nil {
			if r.Key, err = encodeKey(in.key, keyOf(v)); err != nil {
				d.tb.Fatalf("send to topic %s: encode key: %v", in.topic, err)
			}
		}
		if r.Value, err = in.value.Append([]byte{}, &v); err != nil {
			d.tb.Fatalf("send to topic %s: encode value: %v", in.topic, err)
		}
		d.send(in.topic, partition, r)
	}
	d.settle()
}

// SendBytes writes one record as it is; nil is null.
func (in *Input[T]) SendBytes(key, value []byte) {
	in.d.tb.Helper()
	r := record.Record{Key: key, Value: value, Timestamp: in.d.start().Now, Headers: in.headers}
	if in.at != nil {
		var zero T
		r.Timestamp = in.at(zero).UnixMilli()
	}
	in.d.send(in.topic, -1, r)
	in.d.settle()
}

// SendNull writes a record with a key and a null value: a tombstone.
func (in *Input[T]) SendNull(key any) {
	in.d.tb.Helper()
	k, err := encodeKey(in.key, key)
	if err != nil {
		in.d.tb.Fatalf("send to topic %s: encode key: %v", in.topic, err)
	}
	in.SendBytes(k, nil)
}

// SendIdle makes partitions idle at once, as Topic.Idle does after its time: they no longer hold the watermark back, until
// their next record. Without partitions it is all of them.
func (in *Input[T]) SendIdle(partitions ...int) {
	d := in.d
	d.tb.Helper()
	d.bound = "it made partitions idle"
	run := d.start()
	d.settle()
	if len(partitions) == 0 {
		for p := range run.PartitionsOf(in.topic) {
			partitions = append(partitions, p)
		}
	}
	for _, p := range partitions {
		run.SetIdle(in.topic, p)
	}
	d.settle()
}

// AdvanceWatermark moves the watermark of every partition of this topic: see Driver.AdvanceWatermark.
func (in *Input[T]) AdvanceWatermark(t time.Time) {
	in.d.tb.Helper()
	in.d.watermark(in.topic, t)
	in.d.settle()
}

// encodeKey writes a key with a serde whose type is not known here.
func encodeKey(serde, key any) ([]byte, error) {
	if serde == nil {
		switch k := key.(type) {
		case nil:
			return nil, nil
		case []byte:
			return k, nil
		case string:
			return []byte(k), nil
		}
		return nil, fmt.Errorf("a %T, want a string or []byte for a topic that is read without keys", key)
	}
	appendTo := reflect.ValueOf(serde).MethodByName("Append")
	want := appendTo.Type().In(1).Elem()
	v := reflect.ValueOf(key)
	if !v.IsValid() || v.Kind() != want.Kind() || !v.CanConvert(want) {
		return nil, fmt.Errorf("a %T, the stream's keys are %v", key, want)
	}
	p := reflect.New(want)
	p.Elem().Set(v.Convert(want))
	out := appendTo.Call([]reflect.Value{reflect.ValueOf([]byte{}), p})
	if err, ok := out[1].Interface().(error); ok {
		return nil, err
	}
	return out[0].Bytes(), nil
}
