package processor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
)

// AsyncOptions are the settings of Async. The zero value is usable.
type AsyncOptions struct {
	// Capacity is how many values of one subtask may wait for their results; when it is reached no record is processed
	// until one is there. Default 100. Flink: capacity.
	Capacity int
	// Timeout is how long a value waits for its result, all its tries together; the context of the call ends then. Default
	// 30 s. Flink: timeout.
	Timeout time.Duration
	// Unordered emits results as they come. Event time stays right: a watermark never overtakes a value that came before
	// it. By default results come out in the order of the values. Flink: unorderedWait, orderedWait.
	Unordered bool
	// Retry repeats calls that fail. Default: none.
	Retry Retry
}

// Retry says which calls of Async are tried again, and when: at most Attempts calls in all, with Backoff before the
// second, and twice as long before each further one, up to MaxBackoff. Flink: AsyncRetryStrategy.
type Retry struct {
	Attempts   int              // 0 and 1: no retry
	Backoff    time.Duration    // default 100 ms
	MaxBackoff time.Duration    // default 10 s
	If         func(error) bool // which errors are worth it; default all
}

const (
	defaultCapacity   = 100
	defaultTimeout    = 30 * time.Second
	defaultBackoff    = 100 * time.Millisecond
	defaultMaxBackoff = 10 * time.Second
	// asyncGrace is how long after its time-out a call may still return by itself; then it is given up and its goroutine
	// left alone.
	asyncGrace = 500 // ms
	// asyncCacheSize is how many results CacheBy keeps for one subtask.
	asyncCacheSize = 10_000
)

// AsyncStream is the stream of the results of Async; its methods say more of how they are got.
type AsyncStream[T, R any] struct {
	Stream[R]
	c *asyncConfig[T, R]
}

// AsyncKeyedStream is the stream of the results of AsyncValues.
type AsyncKeyedStream[K comparable, T, R any] struct {
	KeyedStream[K, R]
	c *asyncConfig[T, R]
}

type asyncConfig[T, R any] struct {
	n         *node
	o         AsyncOptions
	call      func(context.Context, T) (R, error)
	onTimeout func(T) (R, error)
	cacheBy   func(T) string
	caches    AsyncCache[R]
	deadline  func(T) time.Time
}

// AsyncCache is how results of calls are kept in the memory of a subtask. The oldest go first.
type AsyncCache[R any] struct {
	// Size is how much is kept, as Cost counts; 0 = 10,000 results. Cost nil counts each as 1; what it counts as 0 is not kept.
	Size int
	Cost func(R) int
	// AfterWrite and AfterAccess are how long a result is kept since it came, and since it was last taken; 0 = as long as
	// there is room.
	AfterWrite, AfterAccess time.Duration
}

// Async calls f for each value, many at a time, and emits its results: requests to a database or a service. f runs on
// goroutines of its own, for several values at once; its context ends with the time-out, or with the subtask.
//
// What waits for a result is state ("<id>/waiting"): after a crash f is called again for it, so f may be called more than
// once for a value, while each result is emitted exactly once. A result that comes before the next commit costs no
// changelog record. An error of f, after all retries, and a time-out without OnTimeout are errors of the operator: see
// OnError. A dead letter is the record as it was read. T must be storable as state. The key of a KeyedStream is dropped:
// AsyncValues keeps it. Flink: AsyncDataStream.
func Async[T, R any](from Flow[T], id string, options AsyncOptions, f func(ctx context.Context, v T) (R, error), o ...Option) AsyncStream[T, R] {
	p := from.flow()
	c := newAsync(p.n, id, options, f, o)
	entries := asyncEntries[bool, T](c.n)
	out := newStream[R](c.n)
	p.attach(func(b *builder) step[T] {
		next := out.s.step(b)
		a := openAsync(b, c, entries, func(x *task.Exec, _ bool, r R) error { return next(x, r) })
		return func(x *task.Exec, v T) error { return a.accept(x, false, v) }
	})
	return AsyncStream[T, R]{out, c}
}

// AsyncValues is Async for the values of a keyed stream, whose keys the results keep.
func AsyncValues[K comparable, T, R any](from KeyedStream[K, T], id string, options AsyncOptions, f func(ctx context.Context, v T) (R, error), o ...Option) AsyncKeyedStream[K, T, R] {
	s := from.must()
	c := newAsync(s.n, id, options, f, o)
	out := newKeyed[K, R](c.n, s.keys)
	entries := asyncEntries[K, T](c.n)
	s.attach(func(b *builder) keyedStep[K, T] {
		return openAsync(b, c, entries, out.s.step(b)).accept
	})
	return AsyncKeyedStream[K, T, R]{out, c}
}

// AsyncPair is a value of AsyncPairs: what a function is called with, or its result, and what goes along.
type AsyncPair[K comparable, T any] struct {
	Along K
	Value T
}

// AsyncPairs is Async for what has a part that the function takes and a part that waits for the result and goes on with it:
// the low-level form, for other engines. by gives the key of cached results; nil = there is no cache.
func AsyncPairs[K comparable, T, R any](from Flow[AsyncPair[K, T]], id string, options AsyncOptions, by func(T) string, cache AsyncCache[R], f func(ctx context.Context, v T) (R, error), o ...Option) Stream[AsyncPair[K, R]] {
	p := from.flow()
	c := newAsync(p.n, id, options, f, o)
	c.cacheBy, c.caches = by, cache
	entries := asyncEntries[K, T](c.n)
	out := newStream[AsyncPair[K, R]](c.n)
	p.attach(func(b *builder) step[AsyncPair[K, T]] {
		next := out.s.step(b)
		a := openAsync(b, c, entries, func(x *task.Exec, k K, r R) error { return next(x, AsyncPair[K, R]{k, r}) })
		return func(x *task.Exec, v AsyncPair[K, T]) error { return a.accept(x, v.Along, v.Value) }
	})
	return out
}

// OnTimeout gives the result of a value whose call has not ended in time, instead of an error. It runs where the operators
// run, so it must not wait for anything. Flink: AsyncFunction.timeout.
func (s AsyncStream[T, R]) OnTimeout(f func(T) (R, error)) AsyncStream[T, R] {
	s.c.setOnTimeout(f)
	return s
}

// CacheBy keeps results in memory for a while: a value whose key has one there takes it without a call. At most 10,000
// are kept for each subtask, and none over a restart.
func (s AsyncStream[T, R]) CacheBy(key func(T) string, ttl time.Duration) AsyncStream[T, R] {
	s.c.cache(key, ttl)
	return s
}

// Deadline gives each value a time of the clock by which it must have its result, if it comes before Timeout. A value
// that misses it goes to the dead-letter topic, unless OnTimeout gives it a result.
func (s AsyncStream[T, R]) Deadline(f func(T) time.Time) AsyncStream[T, R] {
	s.c.setDeadline(f)
	return s
}

// OnTimeout is that of AsyncStream.
func (s AsyncKeyedStream[K, T, R]) OnTimeout(f func(T) (R, error)) AsyncKeyedStream[K, T, R] {
	s.c.setOnTimeout(f)
	return s
}

// CacheBy is that of AsyncStream.
func (s AsyncKeyedStream[K, T, R]) CacheBy(key func(T) string, ttl time.Duration) AsyncKeyedStream[K, T, R] {
	s.c.cache(key, ttl)
	return s
}

// Deadline is that of AsyncStream.
func (s AsyncKeyedStream[K, T, R]) Deadline(f func(T) time.Time) AsyncKeyedStream[K, T, R] {
	s.c.setDeadline(f)
	return s
}

func (c *asyncConfig[T, R]) setOnTimeout(f func(T) (R, error)) {
	c.onTimeout = f
	c.n.need(f != nil, "OnTimeout function")
}

func (c *asyncConfig[T, R]) cache(key func(T) string, ttl time.Duration) {
	c.cacheBy, c.caches = key, AsyncCache[R]{AfterWrite: ttl}
	c.n.need(key != nil, "CacheBy function")
	if ttl <= 0 {
		c.n.fail("CacheBy: results are kept for %s, want more than 0", ttl)
	}
}

func (c *asyncConfig[T, R]) setDeadline(f func(T) time.Time) {
	c.deadline, c.n.deadLetters = f, true
	c.n.need(f != nil, "Deadline function")
}

// newAsync makes the node.
func newAsync[T, R any](from *node, id string, options AsyncOptions, f func(context.Context, T) (R, error), o []Option) *asyncConfig[T, R] {
	n := from.t.add("async", spaceOperator, id, from).with(o)
	n.timed = true
	n.need(f != nil, "function")
	if options.Capacity < 0 || options.Timeout < 0 || options.Retry.Attempts < 0 || options.Retry.Backoff < 0 || options.Retry.MaxBackoff < 0 {
		n.fail("AsyncOptions: a setting is negative: %+v", options)
	}
	if options.Capacity == 0 {
		options.Capacity = defaultCapacity
	}
	if options.Timeout == 0 {
		options.Timeout = defaultTimeout
	}
	r := &options.Retry
	if r.Backoff == 0 {
		r.Backoff = defaultBackoff
	}
	if r.MaxBackoff == 0 {
		r.MaxBackoff = max(defaultMaxBackoff, r.Backoff)
	}
	return &asyncConfig[T, R]{n: n, o: options, call: f}
}

// asyncEntry is a value that waits, as it is kept.
type asyncEntry[K comparable, T any] struct {
	Key       K
	Value     T     `part:"value"`
	Time      int64 // event time
	Topic     string
	Partition int32
	Offset    int64
	Timestamp int64
	RecKey    []byte
	RecValue  []byte
	Headers   []record.Header
}

func (e *asyncEntry[K, T]) origin() task.Origin {
	return task.Origin{Topic: e.Topic, Partition: e.Partition, Offset: e.Offset, Timestamp: e.Timestamp, Key: e.RecKey, Value: e.RecValue, Headers: e.Headers}
}

// asyncEntries declares the store; its key is the number of the value.
func asyncEntries[K comparable, T any](n *node) statestore.Codec[asyncEntry[K, T]] {
	codec, migrations := partsCodec[asyncEntry[K, T]](n, "value type", reflect.TypeFor[T]())
	n.groupOf = func([]byte) (statestore.Group, error) {
		return 0, errors.New("what waits for a result has no key that could be looked up")
	}
	n.store("waiting", statestore.KindTable, seqKeys.Schema(), schemaOf(codec)).Migrations = migrations
	return codec
}

var seqKeys = func() statestore.KeyCodec[uint64] {
	c, err := statestore.KeyCodecOf[uint64]()
	if err != nil {
		panic(err)
	}
	return c
}()

// async is the operator in one subtask.
type async[K comparable, T, R any] struct {
	*asyncConfig[T, R]
	b     *builder
	op    int32
	node  *task.Node
	table *statestore.Table[uint64, asyncEntry[K, T]]
	next  keyedStep[K, R]
	run   func(time.Duration, func(context.Context, task.Wait))

	seq     uint64
	fresh   []*asyncCall[K, T, R] // came in a step since the last poll: it may have been undone
	queue   []*asyncCall[K, T, R] // in order of arrival; those in front are not emitted yet
	running int                   // calls whose goroutine has not ended
	blocked bool
	results asyncCache[R]

	inFlight, timeouts, retries, hits *task.Metric

	mu    sync.Mutex
	ended []asyncEnd[K, T, R]
}

// asyncCall is a value on its way.
type asyncCall[K comparable, T, R any] struct {
	seq     uint64
	group   statestore.Group
	hold    int64 // watermark when it came: nothing behind may be told a later one before the result is out
	entry   asyncEntry[K, T]
	until   int64 // processing time at which it is given up; 0 = it has not started
	hard    bool  // until is that of Deadline
	done    bool
	emitted bool
	result  R
	err     error
}

type asyncEnd[K comparable, T, R any] struct {
	c       *asyncCall[K, T, R]
	result  R
	err     error
	retries int
}

func openAsync[K comparable, T, R any](b *builder, c *asyncConfig[T, R], codec statestore.Codec[asyncEntry[K, T]], next keyedStep[K, R]) *async[K, T, R] {
	a := &async[K, T, R]{asyncConfig: c, b: b, op: b.op(c.n), node: b.node(c.n), next: next, run: b.task.Go()}
	var err error
	if a.table, err = statestore.NewTable(b.state(), c.n.specOf("waiting"), seqKeys, codec); err != nil {
		b.fail(c.n, err)
		return a
	}
	a.results.init(c.caches)
	a.inFlight = b.x.Metric(a.op, "async.waiting", true)
	a.timeouts = b.x.Metric(a.op, "async.timeouts", false)
	a.retries = b.x.Metric(a.op, "async.retries", false)
	a.hits = b.x.Metric(a.op, "async.cache-hits", false)
	// What waited when the subtask ended is asked for again.
	a.table.All(func(g statestore.Group, seq uint64, e *asyncEntry[K, T]) bool {
		a.fresh = append(a.fresh, &asyncCall[K, T, R]{seq: seq, group: g, hold: a.node.Watermark, entry: *e})
		a.seq = max(a.seq, seq)
		return true
	})
	slices.SortFunc(a.fresh, func(x, y *asyncCall[K, T, R]) int {
		return cmp.Or(cmp.Compare(x.seq, y.seq), cmp.Compare(x.group, y.group))
	})
	if len(a.fresh) > 0 {
		a.node.Hold(a.node.Watermark)
	}
	b.task.AddPoller(a.poll)
	a.node.FireProcessing = func(x *task.Exec, now int64) error {
		a.expire(now)
		_, err := a.poll()
		return err
	}
	return a
}

// accept takes a value in, within the step of its record.
func (a *async[K, T, R]) accept(x *task.Exec, k K, v T) error {
	x.Op = a.op
	c := &asyncCall[K, T, R]{group: x.Group, hold: a.node.Input()}
	if a.cacheBy != nil {
		if r, ok := a.results.get(a.cacheBy(v), x.Now()); ok {
			a.hits.Value++
			if len(a.queue) == 0 && len(a.fresh) == 0 {
				return a.next(x, k, r)
			}
			c.done, c.result = true, r
		}
	}
	o := x.Origin()
	c.entry = asyncEntry[K, T]{Key: k, Value: v, Time: x.Time, Topic: o.Topic, Partition: o.Partition, Offset: o.Offset, Timestamp: o.Timestamp,
		RecKey: o.Key, RecValue: o.Value, Headers: o.Headers}
	a.seq++
	c.seq = a.seq
	a.table.Set(c.group, c.seq, c.entry)
	a.fresh = append(a.fresh, c)
	if len(a.queue) == 0 && len(a.fresh) == 1 {
		a.node.Hold(c.hold)
	}
	a.block()
	return nil
}

// block keeps further records away while there is no room.
func (a *async[K, T, R]) block() {
	full := len(a.queue)+len(a.fresh) >= a.o.Capacity || a.running >= a.o.Capacity
	switch {
	case full && !a.blocked:
		a.b.task.Block()
	case !full && a.blocked:
		a.b.task.Unblock()
	}
	a.blocked = full
}

// poll starts the calls of new values and emits the results that have come.
func (a *async[K, T, R]) poll() (did bool, err error) {
	if len(a.fresh) > 0 {
		fresh := a.fresh
		a.fresh = nil
		for _, c := range fresh {
			if a.table.Get(c.group, c.seq) == nil {
				continue // its record was undone
			}
			a.queue = append(a.queue, c)
			if !c.done {
				a.start(c)
			}
		}
	}
	a.mu.Lock()
	ended := a.ended
	a.ended = nil
	a.mu.Unlock()
	for _, e := range ended {
		a.running--
		a.retries.Value += float64(e.retries)
		if !e.c.done {
			a.finish(e.c, e.result, e.err)
		}
	}
	for i := 0; i < len(a.queue); i++ {
		c := a.queue[i]
		if !c.done {
			if !a.o.Unordered {
				break
			}
			continue
		}
		if c.emitted {
			continue
		}
		c.emitted, did = true, true
		if err := a.emit(c); err != nil {
			return did, err
		}
	}
	n := 0
	for n < len(a.queue) && a.queue[n].emitted {
		a.queue[n] = nil
		n++
	}
	if a.queue = a.queue[n:]; len(a.queue) == 0 {
		a.queue = nil
		a.node.Hold(task.Never)
	} else {
		a.node.Hold(a.queue[0].hold)
	}
	a.inFlight.Value = float64(len(a.queue))
	a.block()
	return did, nil
}

// start calls the user's function beside the task.
func (a *async[K, T, R]) start(c *asyncCall[K, T, R]) {
	now := a.b.x.Now()
	timeout := a.o.Timeout
	if a.deadline != nil {
		if ms, ok := millis(a.deadline(c.entry.Value)); ok && ms < now+timeout.Milliseconds() {
			timeout, c.hard = time.Duration(max(ms-now, 0))*time.Millisecond, true
		}
	}
	c.until = now + timeout.Milliseconds() + asyncGrace
	a.node.DueProcessing(c.until)
	if c.hard && timeout == 0 {
		a.finish(c, c.result, context.DeadlineExceeded)
		return
	}
	a.running++
	v := c.entry.Value
	a.run(timeout, func(ctx context.Context, wait task.Wait) {
		e := asyncEnd[K, T, R]{c: c}
		e.result, e.retries, e.err = a.attempt(ctx, wait, v)
		a.mu.Lock()
		a.ended = append(a.ended, e)
		a.mu.Unlock()
	})
}

// attempt calls the function until it succeeds, the error is not worth it, or time is up.
func (a *async[K, T, R]) attempt(ctx context.Context, wait task.Wait, v T) (r R, retries int, err error) {
	pause := a.o.Retry.Backoff
	for try := 1; ; try++ {
		r, err = a.guarded(ctx, v)
		if err == nil || try >= a.o.Retry.Attempts || ctx.Err() != nil || a.o.Retry.If != nil && !a.o.Retry.If(err) {
			return r, retries, err
		}
		if ended := wait(ctx, pause); ended != nil {
			return r, retries, errors.Join(ended, err)
		}
		retries++
		pause = min(2*pause, a.o.Retry.MaxBackoff)
	}
}

func (a *async[K, T, R]) guarded(ctx context.Context, v T) (r R, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &asyncPanic{p, debug.Stack()}
		}
	}()
	return a.call(ctx, v)
}

// asyncPanic is a panic of the user's function.
type asyncPanic struct {
	value any
	stack []byte
}

func (p *asyncPanic) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// finish notes how a call ended.
func (a *async[K, T, R]) finish(c *asyncCall[K, T, R], r R, err error) {
	c.done, c.result, c.err = true, r, err
	switch {
	case err == nil && a.cacheBy != nil:
		a.results.put(a.cacheBy(c.entry.Value), r, a.b.x.Now())
	case errors.Is(err, context.DeadlineExceeded):
		a.timeouts.Value++
	}
}

// expire gives up calls that do not return though their time is up.
func (a *async[K, T, R]) expire(now int64) {
	first := int64(math.MaxInt64)
	for _, c := range a.queue {
		switch {
		case c.done || c.until == 0:
		case c.until <= now:
			var none R
			a.finish(c, none, context.DeadlineExceeded)
		default:
			first = min(first, c.until)
		}
	}
	if first != math.MaxInt64 {
		a.node.DueProcessing(first)
	}
}

// emit sends a result on and forgets the value, in one atomic step.
func (a *async[K, T, R]) emit(c *asyncCall[K, T, R]) error {
	x := a.b.x
	origin := c.entry.origin()
	skipped, err := x.AtomicOf(a.op, c.group, c.entry.Time, &origin, func() error {
		a.table.Delete(c.group, c.seq)
		if errors.Is(c.err, context.DeadlineExceeded) {
			if a.onTimeout != nil {
				c.result, c.err = a.onTimeout(c.entry.Value)
			} else if c.hard {
				return x.FailWith(a.op, task.UserCode, task.PolicyDeadLetter, fmt.Errorf("asynchronous call: the deadline of the value is over: %w", c.err))
			} else {
				return x.Fail(a.op, task.UserCode, fmt.Errorf("asynchronous call: no result within %s: %w", a.o.Timeout, c.err))
			}
		}
		var panicked *asyncPanic
		if errors.As(c.err, &panicked) {
			return x.FailStack(a.op, fmt.Errorf("asynchronous call: %w", c.err), panicked.stack)
		}
		if c.err != nil {
			return x.Fail(a.op, task.UserCode, fmt.Errorf("asynchronous call: %w", c.err))
		}
		return a.next(x, c.entry.Key, c.result)
	})
	if err != nil || !skipped {
		return err
	}
	_, err = x.AtomicOf(a.op, c.group, c.entry.Time, &origin, func() error { a.table.Delete(c.group, c.seq); return nil })
	return err
}

// asyncCache keeps the last results by key; the oldest go first.
type asyncCache[R any] struct {
	AsyncCache[R]
	rows map[string]asyncCached[R]
	keys []string // in the order of being put
	used int
}

type asyncCached[R any] struct {
	r        R
	cost     int
	put, got int64
}

func (c *asyncCache[R]) init(o AsyncCache[R]) {
	c.AsyncCache, c.rows = o, map[string]asyncCached[R]{}
	if c.Size == 0 {
		c.Size = asyncCacheSize
	}
	if c.Cost == nil {
		c.Cost = func(R) int { return 1 }
	}
}

func (c *asyncCache[R]) get(key string, now int64) (r R, ok bool) {
	e, ok := c.rows[key]
	over := func(since int64, d time.Duration) bool { return d > 0 && now-since >= d.Milliseconds() }
	if !ok || over(e.put, c.AfterWrite) || over(e.got, c.AfterAccess) {
		return r, false
	}
	if c.AfterAccess > 0 {
		e.got = now
		c.rows[key] = e
	}
	return e.r, true
}

func (c *asyncCache[R]) put(key string, r R, now int64) {
	was, ok := c.rows[key]
	c.used -= was.cost
	cost := c.Cost(r)
	if cost == 0 {
		if ok {
			delete(c.rows, key)
			c.keys = slices.DeleteFunc(c.keys, func(k string) bool { return k == key })
		}
		return
	}
	if !ok {
		c.keys = append(c.keys, key)
	}
	c.used += cost
	c.rows[key] = asyncCached[R]{r, cost, now, now}
	for c.used > c.Size && len(c.keys) > 0 {
		c.used -= c.rows[c.keys[0]].cost
		delete(c.rows, c.keys[0])
		c.keys = c.keys[1:]
	}
}
