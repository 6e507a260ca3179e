package processor

import (
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
)

// Map turns each value into one of another type. f is shared by all subtasks: it is pure, or locks. Flink: map.
func Map[T, R any](from Flow[T], f func(T) R, o ...Option) Stream[R] {
	p := from.flow()
	n := p.n.t.add("map", "", "", p.n).with(o)
	n.need(f != nil, "function")
	out := newStream[R](n)
	p.attach(func(b *builder) step[T] {
		next, op := out.s.step(b), b.op(n)
		return func(x *task.Exec, v T) error {
			x.Op = op
			return next(x, f(v))
		}
	})
	return out
}

// TryMap is Map with a function that may fail; a failed record goes by the operator's policy (OnError, default Fail).
func TryMap[T, R any](from Flow[T], f func(T) (R, error), o ...Option) Stream[R] {
	p := from.flow()
	n := p.n.t.add("try-map", "", "", p.n).with(o)
	n.need(f != nil, "function")
	out := newStream[R](n)
	p.attach(func(b *builder) step[T] {
		next, op := out.s.step(b), b.op(n)
		return func(x *task.Exec, v T) error {
			x.Op = op
			r, err := f(v)
			if err != nil {
				return x.Fail(op, task.UserCode, err)
			}
			return next(x, r)
		}
	})
	return out
}

// FlatMap turns each value into any number of others: f calls emit for each, before it returns. Flink: flatMap.
func FlatMap[T, R any](from Flow[T], f func(v T, emit func(R)) error, o ...Option) Stream[R] {
	p := from.flow()
	n := p.n.t.add("flat-map", "", "", p.n).with(o)
	n.need(f != nil, "function")
	out := newStream[R](n)
	p.attach(func(b *builder) step[T] {
		next, op, x := out.s.step(b), b.op(n), b.x
		var failed error
		emit := func(r R) {
			if failed == nil {
				failed = next(x, r)
				x.Op = op
			}
		}
		return func(x *task.Exec, v T) error {
			failed = nil
			x.Op = op
			err := f(v, emit)
			if failed != nil {
				return failed
			}
			if err != nil {
				return x.Fail(op, task.UserCode, err)
			}
			return nil
		}
	})
	return out
}

// MapValues is Map that leaves the key as it is.
func MapValues[K comparable, T, R any](from KeyedStream[K, T], f func(T) R, o ...Option) KeyedStream[K, R] {
	s := from.must()
	n := s.n.t.add("map-values", "", "", s.n).with(o)
	n.need(f != nil, "function")
	out := newKeyed[K, R](n, s.keys)
	s.attach(func(b *builder) keyedStep[K, T] {
		next, op := out.s.step(b), b.op(n)
		return func(x *task.Exec, k K, v T) error {
			x.Op = op
			return next(x, k, f(v))
		}
	})
	return out
}

// Filter keeps the values for which f is true. Flink: filter.
func (s Stream[T]) Filter(f func(T) bool, o ...Option) Stream[T] {
	p := s.flow()
	n := p.n.t.add("filter", "", "", p.n).with(o)
	n.need(f != nil, "function")
	out := newStream[T](n)
	p.attach(func(b *builder) step[T] {
		next, op := out.s.step(b), b.op(n)
		return func(x *task.Exec, v T) error {
			x.Op = op
			if !f(v) {
				return nil
			}
			return next(x, v)
		}
	})
	return out
}

// Filter keeps the values for which f is true. Flink: filter.
func (s KeyedStream[K, T]) Filter(f func(T) bool, o ...Option) KeyedStream[K, T] {
	from := s.must()
	n := from.n.t.add("filter", "", "", from.n).with(o)
	n.need(f != nil, "function")
	out := newKeyed[K, T](n, from.keys)
	from.attach(func(b *builder) keyedStep[K, T] {
		next, op := out.s.step(b), b.op(n)
		return func(x *task.Exec, k K, v T) error {
			x.Op = op
			if !f(v) {
				return nil
			}
			return next(x, k, v)
		}
	})
	return out
}

// Union merges streams of the same type; its watermark is the minimum of theirs. Keys are dropped. The streams are
// read by the same subtasks, so they must not lie on both sides of a KeyBy. Flink: union.
func Union[T any](first Flow[T], others ...Flow[T]) Stream[T] {
	ports := []port[T]{first.flow()}
	inputs := []*node{ports[0].n}
	for _, f := range others {
		p := f.flow()
		ports = append(ports, p)
		inputs = append(inputs, p.n)
	}
	n := inputs[0].t.add("union", "", "", inputs...)
	out := newStream[T](n)
	for _, p := range ports {
		p.attach(func(b *builder) step[T] {
			return shared(b, n, func() step[T] { return out.s.step(b) })
		})
	}
	return out
}

// KeyBy gives each value a key and sends it through a repartition topic (<app.id>-<id>-repartition) to the subtask of
// that key. The topic has as many partitions as the largest topic that is read before it, or as Parallelism says.
// Event time travels with the values, watermarks between them. Where the Kafka key already is the key, FromKeyed does
// without the topic. T must be storable as state: structs, slices, maps and pointers of plain types. Flink: keyBy.
func KeyBy[T any, K comparable](from Flow[T], id string, key func(T) K, o ...Option) KeyedStream[K, T] {
	p := from.flow()
	t := p.n.t
	w := t.add("key-by", spaceOperator, id, p.n)
	w.output = &outputInfo{topic: id, internal: true}
	w.with(o)
	w.need(key != nil, "key function")
	keys := newKeyType[K](w, nil)
	values, err := statestore.CodecOf[T]()
	if err != nil {
		w.fail("value type: %w", err)
	}
	// The read side. Its errors and policies are those of the key-by.
	r := t.add("keyed", "", id)
	r.site, r.parallelism, r.name = w.site, w.parallelism, w.name
	w.parallelism = 0
	r.source = &sourceInfo{topic: id, internal: true, from: w, layout: task.InputLayout{Internal: true}}
	if keys.codec != nil && values != nil {
		w.detail = keys.codec.Schema() + " -> " + values.Schema()
		r.source.keySchema, r.source.valueSchema = keys.codec.Schema(), values.Schema()
	}
	out := newKeyed[K, T](r, keys)

	p.attach(func(b *builder) step[T] {
		op, output, repart := b.op(w), b.output(w), b.sub.repart[w]
		partitions := b.x.Partitions(output)
		slot, keySlot := new(T), new(K)
		return func(x *task.Exec, v T) error {
			x.Op = op
			*keySlot = key(v)
			buf, err := keys.serde.Append(x.Buf(), keySlot)
			if err != nil {
				return x.Fail(op, task.BadData, err)
			}
			kb := x.Keep(buf)
			*slot = v
			vb := x.Keep(values.Append(task.AppendDataHeader(x.Buf(), x.Time), slot))
			partition, _ := place(kb, partitions)
			return x.OutputRepartition(op, repart, partition, kb, vb, w.output.maxBytes)
		}
	})
	r.source.open = func(b *builder) task.Source {
		return &repartSource[K, T]{keys: keys.serde, values: values, next: out.s.step(b)}
	}
	return out
}

// place is the partition where Kafka's default partitioner puts a key, and its key group.
func place(key []byte, partitions int32) (int32, statestore.Group) {
	h := format.Murmur2(key) & 0x7fffffff
	return int32(h) % partitions, statestore.Group(h % statestore.Groups)
}

// KeyByRecordKey takes the Kafka record key as the key, without a repartition topic, with the check that FromKeyed
// makes. key nil is format.DefaultKey[K].
func KeyByRecordKey[K comparable, T any](from Stream[Record[T]], key format.Serde[K], o ...Option) KeyedStream[K, Record[T]] {
	p := from.flow()
	n := p.n.t.add("key-by-record-key", "", "", p.n).with(o)
	keys := newKeyType(n, key)
	out := newKeyed[K, Record[T]](n, keys)
	p.attach(func(b *builder) step[Record[T]] {
		next, op := out.s.step(b), b.op(n)
		slot := new(K)
		return func(x *task.Exec, r Record[T]) error {
			x.Op = op
			if r.Key == nil {
				return x.Fail(op, task.BadData, errNullKey)
			}
			group, err := routed(x, op, r.Key)
			if err != nil {
				return err
			}
			if err := keys.serde.Decode(r.Key, slot); err != nil {
				return x.Fail(op, task.BadData, err)
			}
			x.Group = group
			return next(x, *slot, r)
		}
	})
	return out
}
