package processor

import (
	"fmt"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
)

// The chain of a subtask is built from the last operator to the first: each makes its step from that of its
// successor. Values travel by value on the stack, nothing is boxed. A step whose function takes a pointer (a serde)
// copies the value into a slot of the operator first, or each record would cost an allocation.
type (
	step[T any]                    func(x *task.Exec, v T) error
	keyedStep[K comparable, T any] func(x *task.Exec, k K, v T) error
	encodedStep[T any]             func(x *task.Exec, key []byte, v T) error // key nil: the stream has none
	makeStep[T any]                func(b *builder) step[T]
	makeKeyed[K comparable, T any] func(b *builder) keyedStep[K, T]
	makeEncoded[T any]             func(b *builder) encodedStep[T]
)

// Flow is what operators take that do not care about keys: a Stream or a KeyedStream.
type Flow[T any] interface{ flow() port[T] }

// Operator is any stream handle, as the place where a side output is taken.
type Operator interface{ origin() *node }

// port is the untyped-key side of a stream: where consumers are attached.
type port[T any] struct {
	n             *node
	attach        func(makeStep[T])
	attachEncoded func(makeEncoded[T])
}

// Stream is a stream of values without key. It is a handle that may be used any number of times: each use gets all
// records. Flink: DataStream.
type Stream[T any] struct{ s *stream[T] }

type stream[T any] struct {
	n    *node
	outs []makeStep[T]
}

func newStream[T any](n *node) Stream[T] { return Stream[T]{&stream[T]{n: n}} }

func (s Stream[T]) flow() port[T] {
	st := s.must()
	return port[T]{st.n, func(m makeStep[T]) { st.outs = append(st.outs, m) }, func(m makeEncoded[T]) {
		st.outs = append(st.outs, func(b *builder) step[T] {
			next := m(b)
			return func(x *task.Exec, v T) error { return next(x, nil, v) }
		})
	}}
}

func (s Stream[T]) origin() *node { return s.must().n }

// must refuses a handle that no function of this package made: there is no topology to report the error to.
func (s Stream[T]) must() *stream[T] {
	if s.s == nil {
		panic("processor: use of an empty Stream at " + callSite() + "; take the handle that From or an operator returned")
	}
	return s.s
}

// step builds what is behind the stream. It is called once for each subtask.
func (s *stream[T]) step(b *builder) step[T] {
	switch len(s.outs) {
	case 0:
		return func(*task.Exec, T) error { return nil }
	case 1:
		return s.outs[0](b)
	}
	steps := make([]step[T], len(s.outs))
	for i, m := range s.outs {
		steps[i] = m(b)
	}
	return func(x *task.Exec, v T) error {
		for _, next := range steps {
			if err := next(x, v); err != nil {
				return err
			}
		}
		return nil
	}
}

// KeyedStream is a stream whose values have a key: all values of a key go through the same subtask, in order, and
// operators behind it may keep state by key. Flink: KeyedStream, which a Stream loses at the next operator; here the
// key stays through MapValues, Filter, aggregations and Process.
type KeyedStream[K comparable, T any] struct{ s *keyed[K, T] }

type keyed[K comparable, T any] struct {
	n    *node
	keys *keyType[K]
	outs []makeKeyed[K, T]
}

// keyType is how the keys of a stream are written: into state and into the keys of Kafka records.
type keyType[K comparable] struct {
	codec statestore.KeyCodec[K] // nil after a build error
	serde format.Serde[K]
}

func newKeyed[K comparable, T any](n *node, keys *keyType[K]) KeyedStream[K, T] {
	n.groupOf = keys.group
	return KeyedStream[K, T]{&keyed[K, T]{n: n, keys: keys}}
}

func newKeyType[K comparable](n *node, serde format.Serde[K]) *keyType[K] {
	codec, err := statestore.KeyCodecOf[K]()
	if err != nil {
		n.fail("key type: %w", err)
	}
	if serde == nil {
		if serde, err = format.DefaultKey[K](); err != nil {
			n.fail("key type: %w", err)
		}
	}
	return &keyType[K]{codec, serde}
}

// appendText appends a key as Kafka records have it, for the dead letter of what has no record; what cannot be written is left out.
func (k *keyType[K]) appendText(dst []byte, key K) []byte {
	b, err := k.serde.Append(dst, &key)
	if err != nil {
		return dst
	}
	return b
}

// group is the key group of a key as it is written into state: that of the key of its Kafka records.
func (k *keyType[K]) group(key []byte) (statestore.Group, error) {
	v, rest, err := k.codec.Decode(key)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("decode key: %d bytes left behind it", len(rest))
	}
	if err != nil {
		return 0, err
	}
	b, err := k.serde.Append(nil, &v)
	if err != nil {
		return 0, fmt.Errorf("encode key: %w", err)
	}
	_, g := place(b, 1)
	return g, nil
}

func (k *keyType[K]) schema() string {
	if k.codec == nil {
		return ""
	}
	return k.codec.Schema()
}

func (s KeyedStream[K, T]) must() *keyed[K, T] {
	if s.s == nil {
		panic("processor: use of an empty KeyedStream at " + callSite() + "; take the handle that KeyBy, FromKeyed or an operator returned")
	}
	return s.s
}

func (s KeyedStream[K, T]) origin() *node { return s.must().n }

func (s KeyedStream[K, T]) flow() port[T] {
	ks := s.must()
	return port[T]{ks.n, func(m makeStep[T]) {
		ks.attach(func(b *builder) keyedStep[K, T] {
			next := m(b)
			return func(x *task.Exec, _ K, v T) error { return next(x, v) }
		})
	}, func(m makeEncoded[T]) {
		ks.attach(func(b *builder) keyedStep[K, T] {
			next, op := m(b), b.op(ks.n)
			key := new(K)
			serde := ks.keys.serde
			return func(x *task.Exec, k K, v T) error {
				*key = k
				bytes, err := serde.Append(x.Buf(), key)
				if err != nil {
					return x.Fail(op, task.BadData, err)
				}
				return next(x, x.Keep(bytes), v)
			}
		})
	}}
}

func (s *keyed[K, T]) attach(m makeKeyed[K, T]) { s.outs = append(s.outs, m) }

func (s *keyed[K, T]) step(b *builder) keyedStep[K, T] {
	switch len(s.outs) {
	case 0:
		return func(*task.Exec, K, T) error { return nil }
	case 1:
		return s.outs[0](b)
	}
	steps := make([]keyedStep[K, T], len(s.outs))
	for i, m := range s.outs {
		steps[i] = m(b)
	}
	return func(x *task.Exec, k K, v T) error {
		for _, next := range steps {
			if err := next(x, k, v); err != nil {
				return err
			}
		}
		return nil
	}
}

// OutputTag names a side output: a second stream of an operator. Flink: OutputTag.
type OutputTag[T any] struct{ id string }

// NewOutputTag makes a tag. The id is 1 to 40 of a-z, 0-9 and -; it is unique within the operators that use it.
func NewOutputTag[T any](id string) OutputTag[T] { return OutputTag[T]{id} }

// SideOutput is the stream of what the operator that made from emitted to the tag: late records of a window (LateTo)
// or what a Process function sent (OutputTag.Emit). Flink: getSideOutput.
func SideOutput[T any](from Operator, tag OutputTag[T]) Stream[T] {
	n := from.origin()
	s := n.t.add("side-output", "", tag.id, n)
	if !idPattern.MatchString(tag.id) {
		s.fail("id must be 1 to 40 of a-z, 0-9 and -; make the tag with NewOutputTag")
	}
	switch {
	case n.emitsToSides:
	case n.joins:
		n.checkLateTag(s, tag.id, typeName[T]())
	case n.lateTag == "":
		s.fail("%s emits to no side output; take it from the stream that the window aggregation or Process returned", n.kind)
	case n.lateTag != tag.id:
		s.fail("%s %q sends late records to %q", n.kind, n.id, n.lateTag)
	case n.lateType != typeName[T]():
		s.fail("the tag is of %s, the late records are %s", typeName[T](), n.lateType)
	}
	out := newStream[T](s)
	if have := n.sides[tag.id]; have != nil {
		st, ok := have.stream.(*sideStreams[T])
		if !ok {
			s.fail("the tag's type differs from that of another tag with this id, %s", have.what)
			return out
		}
		st.outs = append(st.outs, out.s)
		return out
	}
	n.sides[tag.id] = &side{stream: &sideStreams[T]{outs: []*stream[T]{out.s}}, what: typeName[T]()}
	return out
}

// sideStreams are all handles taken of one tag of one operator.
type sideStreams[T any] struct{ outs []*stream[T] }

// build makes the step behind the tag in one subtask, a step[T].
func (s *sideStreams[T]) build(b *builder) any {
	steps := make([]step[T], len(s.outs))
	for i, out := range s.outs {
		steps[i] = out.step(b)
	}
	return step[T](func(x *task.Exec, v T) error {
		for _, next := range steps {
			if err := next(x, v); err != nil {
				return err
			}
		}
		return nil
	})
}

// sides builds the steps behind the side outputs of an operator, by tag.
func (b *builder) sides(n *node) map[string]any {
	steps := map[string]any{}
	for tag, side := range n.sides {
		steps[tag] = side.stream.build(b)
	}
	return steps
}
