package processor

import (
	"bytes"
	"reflect"
	"time"
	"unsafe"

	"github.com/millrace-stream/millrace/internal/task"
)

// CoContext is what the setup function and the callbacks of Connect use: a KeyedContext with a callback for each of two
// streams. Key, state and timers are shared by both. Flink: KeyedCoProcessFunction.
type CoContext[K comparable, A, B, R any] struct {
	keyedContext[K]
	next    keyedStep[K, R]
	onLeft  func(A) error
	onRight func(B) error
}

// OnLeft sets the callback for each value of the first stream. An error, or a panic, undoes all that the callback did
// and goes by the operator's policy. Flink: processElement1.
func (c *CoContext[K, A, B, R]) OnLeft(f func(v A) error) { c.onLeft = f }

// OnRight sets the callback for each value of the second stream. Flink: processElement2.
func (c *CoContext[K, A, B, R]) OnRight(f func(v B) error) { c.onRight = f }

// Emit sends a value on, with the current key and event time. Flink: Collector.collect.
func (c *CoContext[K, A, B, R]) Emit(v R) {
	if c.usable("Emit") {
		c.failed = c.next(c.x, c.key, v)
		c.x.Op = c.op
	}
}

// EmitAt is Emit with another event time. One that is not after the watermark is late for the operators behind.
func (c *CoContext[K, A, B, R]) EmitAt(v R, at time.Time) { c.at("EmitAt", at, func() { c.Emit(v) }) }

// Connect runs user code on two streams with the same key, which share state and timers. The watermark is the minimum of
// both; records of the two are processed in the order of their event times as far as they are at hand, which is no
// promise. Both streams must be read by the same subtasks and have their keys written alike (the same serde): values of a
// key would not meet otherwise. setup is as that of Process; both callbacks must be set. Flink: connect, then process
// with a KeyedCoProcessFunction.
func Connect[K comparable, A, B, R any](left KeyedStream[K, A], right KeyedStream[K, B], id string, setup func(ctx *CoContext[K, A, B, R]), o ...Option) KeyedStream[K, R] {
	l, r := left.must(), right.must()
	n := l.n.t.add("connect", spaceOperator, id, l.n, r.n).with(o)
	n.timed, n.emitsToSides = true, true
	out := newKeyed[K, R](n, l.keys)
	sameKeys(n, l.keys, r.keys)
	if setup == nil {
		n.fail("setup function is nil")
		return out
	}
	dry := &CoContext[K, A, B, R]{keyedContext: keyedContext[K]{contextBase: contextBase{n: n}, keys: l.keys}}
	if !dry.setUp(func() { setup(dry) }) {
		return out
	}
	n.need(dry.onLeft != nil, "OnLeft callback")
	n.need(dry.onRight != nil, "OnRight callback")
	dry.declareTimers()
	// Whichever input's chain is built first makes the one context of the subtask.
	context := func(b *builder) *CoContext[K, A, B, R] {
		return shared(b, n, func() *CoContext[K, A, B, R] {
			c := &CoContext[K, A, B, R]{keyedContext: keyedContext[K]{contextBase: newContextBase(b, n), keys: l.keys}}
			c.next = out.s.step(b)
			if !c.setUp(func() { setup(c) }) || !c.openTimers() {
				return nil
			}
			return c
		})
	}
	l.attach(func(b *builder) keyedStep[K, A] {
		c := context(b)
		return func(x *task.Exec, k K, v A) error {
			c.key, c.active, c.failed = k, true, nil
			x.Op = c.op
			err := c.onLeft(v)
			c.active = false
			return c.done(err)
		}
	})
	r.attach(func(b *builder) keyedStep[K, B] {
		c := context(b)
		return func(x *task.Exec, k K, v B) error {
			c.key, c.active, c.failed = k, true, nil
			x.Op = c.op
			err := c.onRight(v)
			c.active = false
			return c.done(err)
		}
	})
	return out
}

// sameKeys collects an error unless the keys of two streams are written alike, so that equal keys belong to the same key
// group. Serdes that hold functions cannot be compared: they must be the same variable.
func sameKeys[K comparable](n *node, a, b *keyType[K]) {
	if a == b || a.codec == nil || b.codec == nil || sameSerde(a.serde, b.serde) {
		return
	}
	n.fail("the keys of the two streams are written in different ways (%T and %T), so equal keys would not meet: give both the same serde (one variable, if it is a format.Func), or put a KeyBy in front of both", a.serde, b.serde)
}

func sameSerde(a, b any) bool {
	t := reflect.TypeOf(a)
	if t != reflect.TypeOf(b) {
		return false
	}
	if t.Comparable() && reflect.ValueOf(a).Comparable() {
		return a == b
	}
	// What holds functions is the same if it is so bit by bit: that tells closures of the same code apart.
	return bytes.Equal(memoryOf(a), memoryOf(b))
}

func memoryOf(v any) []byte {
	p := reflect.New(reflect.TypeOf(v))
	p.Elem().Set(reflect.ValueOf(v))
	return unsafe.Slice((*byte)(p.UnsafePointer()), p.Elem().Type().Size())
}
