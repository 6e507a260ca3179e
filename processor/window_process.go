package processor

import (
	"errors"
	"time"

	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/processor/window"
	"github.com/millrace-stream/millrace/statestore"
)

// ProcessWindow folds the values of each key and window as they come, and runs user code with the result when the
// window fires: code that may look at the watermark, keep state, and emit any number of results. setup is that of
// Process: it makes the state handles (Value, List and MapOf are state of the key over all its windows, WindowValue
// is state of one window) and registers OnWindow. There are no timers of its own: a Trigger says when windows fire.
// State: "<id>/windows". Flink: aggregate with an AggregateFunction and a ProcessWindowFunction.
func ProcessWindow[K comparable, T, A, R any](w WindowedStream[K, T], id string, agg Aggregator[T, A], setup func(ctx *WindowContext[K, A, R]), o ...Option) KeyedStream[K, R] {
	s := w.s.must()
	d := &windowDef[K, T, A, R]{kind: "process-window", aggregate: agg.name, complete: agg.Add != nil && setup != nil, add: agg.add(), merge: agg.Merge}
	newContext := func(base contextBase) *WindowContext[K, A, R] {
		a := w.assigner
		base.names = map[string]bool{storeWindows: true, storePanes: true, storeRows: true}
		c := &WindowContext[K, A, R]{keyedContext: keyedContext[K]{contextBase: base, keys: s.keys}}
		switch {
		case a.Kind() == window.KindSession || a.Kind() == window.KindCount:
			c.merging = true
		case a.Aligned() && w.trigger == nil:
			c.sliced = true
		}
		c.layout, c.life = a.Layout(), time.Duration(a.Size())*time.Millisecond+w.lateness
		return c
	}
	d.declare = func(n *node) {
		n.emitsToSides = true
		if setup == nil {
			return
		}
		if dry := newContext(contextBase{n: n}); dry.setUp(func() { setup(dry) }) {
			n.need(dry.onWindow != nil, "OnWindow callback")
		}
	}
	d.open = func(b *builder, n *node, next keyedStep[K, R], host *windowHost[T]) windowResult[K, A] {
		c := newContext(newContextBase(b, n))
		c.next, c.host = next, &host.state
		if !c.setUp(func() { setup(c) }) {
			return nil
		}
		return c.run
	}
	return windowed(w, id, d, o)
}

// WindowContext is what the setup function and the callback of ProcessWindow use. There is one for each subtask; it must
// not be used by another goroutine. Timestamp is the event time of the result, the last ms of the window.
type WindowContext[K comparable, A, R any] struct {
	keyedContext[K]
	next     keyedStep[K, R]
	onWindow func(Window[K], A) error
	host     *windowState
	sliced   bool
	merging  bool
	layout   string
	life     time.Duration
}

// OnWindow sets the callback for a window that fires, with what was folded of it, which must not be changed; it must be
// set. An error, or a panic, undoes all that the callback did and goes by the operator's policy. Flink:
// ProcessWindowFunction.process.
func (c *WindowContext[K, A, R]) OnWindow(f func(w Window[K], a A) error) { c.onWindow = f }

// OnTimer is refused: see ProcessWindow.
func (c *WindowContext[K, A, R]) OnTimer(func(Timer) error) {
	c.errs = append(c.errs, errors.New("OnTimer: ProcessWindow has no timers; a Trigger says when windows fire"))
}

// Emit sends a value on, with the window's key and the event time of its result.
func (c *WindowContext[K, A, R]) Emit(v R) {
	if c.usable("Emit") {
		c.failed = c.next(c.x, c.key, v)
		c.x.Op = c.op
	}
}

func (c *WindowContext[K, A, R]) run(_ *task.Exec, w Window[K], acc *A) error {
	c.key, c.active, c.failed = w.Key, true, nil
	err := c.onWindow(w, *acc)
	c.active = false
	return c.done(err)
}

func (c *WindowContext[K, A, R]) windowOf() *windowOf[K] {
	return &windowOf[K]{&c.keyedContext, c.host, c.sliced, c.merging, c.layout, c.life}
}

// WindowState is a context that has a current window: the first argument of WindowValue.
type WindowState[K comparable] interface{ windowOf() *windowOf[K] }

type windowOf[K comparable] struct {
	c               *keyedContext[K]
	host            *windowState
	sliced, merging bool
	layout          string
	life            time.Duration
}

// WindowValue makes the handle of a value of the current window of the current key: in the setup function of
// ProcessWindow, with a name that is unique in the operator. It is there when the window fires again (early, late) and
// goes with the window. Windows that merge have none. Flink: windowState.
func WindowValue[V any, K comparable](ctx WindowState[K], name string) *ValueState[V] {
	w := ctx.windowOf()
	c := w.c
	if w.merging {
		c.errs = append(c.errs, errors.New("WindowValue: sessions and count windows have no state of one window; use Value"))
		return &ValueState[V]{&windowMapValue[K, V]{c: c, host: w.host}}
	}
	codec, err := statestore.CodecOf[V]()
	if w.sliced {
		v := &windowValue[K, V]{c: c, host: w.host}
		spec, open := c.declare(name, statestore.KindWindows, c.keys.schema(), schemaOf(codec), stateSettings{}, err)
		if open {
			v.w, err = statestore.NewWindows(c.b.state(), spec, c.keys.codec, codec)
			if c.opened(name, err); err == nil {
				w.host.drops = append(w.host.drops, v.w.Drop)
				w.host.dropped = max(w.host.dropped, v.w.Horizon())
			}
		} else if err == nil {
			declared(c.n, name, func(s *statestore.Spec) { s.Expiring, s.Life, s.Windows = true, w.life, w.layout })
		}
		return &ValueState[V]{v}
	}
	ends, err2 := statestore.KeyCodecOf[int64]()
	if err == nil {
		err = err2
	}
	schema := c.keys.schema()
	if err == nil {
		schema += " / " + ends.Schema()
	}
	v := &windowMapValue[K, V]{c: c, host: w.host}
	spec, open := c.declare(name, statestore.KindMap, schema, schemaOf(codec), stateSettings{}, err)
	if open {
		v.m, err = statestore.NewMap(c.b.state(), spec, c.keys.codec, ends, codec)
		if c.opened(name, err); err == nil {
			w.host.gone = append(w.host.gone, func(g statestore.Group, end int64) {
				// The step that ends the window knows its key.
				k, _ := w.host.key.(*K)
				v.m.Delete(g, *k, end)
			})
		}
	}
	return &ValueState[V]{v}
}

// declared changes the spec of a state that was declared just now.
func declared(n *node, name string, f func(*statestore.Spec)) {
	for i := range n.specs {
		if n.specs[i].Name == n.id+"/"+name {
			f(&n.specs[i])
		}
	}
}

// windowState is where an operator of windows tells the state of its windows which one fires, and what goes.
type windowState struct {
	end     int64 // of the window that fires
	key     any   // *K of the window that goes
	drops   []func(end int64)
	dropped int64 // what drops dropped before
	gone    []func(g statestore.Group, end int64)
}

type windowValue[K comparable, V any] struct {
	c    *keyedContext[K]
	host *windowState
	w    *statestore.Windows[K, V]
}

func (v *windowValue[K, V]) get() *V {
	v.c.check()
	return v.w.Get(v.host.end, v.c.x.Group, v.c.key)
}

func (v *windowValue[K, V]) update() (*V, bool) {
	v.c.check()
	return v.w.Update(v.host.end, v.c.x.Group, v.c.key)
}

func (v *windowValue[K, V]) clear() {
	v.c.check()
	v.w.Delete(v.host.end, v.c.x.Group, v.c.key)
}

type windowMapValue[K comparable, V any] struct {
	c    *keyedContext[K]
	host *windowState
	m    *statestore.Map[K, int64, V]
}

func (v *windowMapValue[K, V]) get() *V {
	v.c.check()
	return v.m.Get(v.c.x.Group, v.c.key, v.host.end)
}

func (v *windowMapValue[K, V]) update() (*V, bool) {
	v.c.check()
	p := v.m.Get(v.c.x.Group, v.c.key, v.host.end)
	existed := p != nil
	if !existed {
		var zero V
		v.m.Put(v.c.x.Group, v.c.key, v.host.end, zero)
	} else {
		v.m.Put(v.c.x.Group, v.c.key, v.host.end, *p)
	}
	return v.m.Get(v.c.x.Group, v.c.key, v.host.end), existed
}

func (v *windowMapValue[K, V]) clear() {
	v.c.check()
	v.m.Delete(v.c.x.Group, v.c.key, v.host.end)
}
