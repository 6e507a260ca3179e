package processor

import (
	"fmt"
	"math"
	"time"

	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
)

// TTL is the time to live of a state: of each value, each entry of a map and each element of a list by itself. It counts
// in processing time, in ms, from the last write; what was written at t has expired at t + After, not a ms before. An
// expired value reads as if it were not there.
//
// What has expired is removed in the background: a pass goes through the operator's store in the local directory in
// steps of at most 1,000 entries each 100 ms, and another begins when the oldest entry that it has left is due (not
// sooner than an eighth of After, at most an hour). So a value of which nobody asks stays that much longer on disk, and
// in the changelog, than it lives. The metric millrace_state_expired_total counts what was removed. Queries of live state do
// not show what has expired, unless ReturnExpired is set.
//
// The time of the last write is kept with the value, not the time of its end: another After holds for what is there as
// well. Where a state gets its first TTL, what is there begins to live when clean-up first meets it, or when it is
// written; where it loses it, what is still there lives on. Neither needs a migration. Results that depend on a TTL
// depend on when records were processed: they may differ when input is processed again. Flink: StateTtlConfig.
type TTL struct {
	// After is how long a value lives; 0 = for ever, where StateTTL says otherwise for the operator.
	After time.Duration
	// RefreshOnRead makes a value live anew when it is read, too; each read is then a write of the state. Flink:
	// UpdateType.OnReadAndWrite; the default is OnCreateAndWrite.
	RefreshOnRead bool
	// ReturnExpired lets an expired value be read as long as it has not been removed, for programs to which an old
	// value is better than none. Flink: ReturnExpiredIfNotCleanedUp; the default is NeverReturnExpired.
	ReturnExpired bool
}

func (t TTL) state(s *stateSettings) { s.ttl = &t }

func (t TTL) check() error {
	if t.After < 0 || t.After > 0 && t.After < time.Millisecond {
		return fmt.Errorf("TTL.After is %s, want at least 1 ms, or 0 for no TTL", t.After)
	}
	return nil
}

// StateTTL gives all states of an operator a TTL: those of Process and Connect that have none of their own, the accumulators of Reduce and RunningAggregate. Windows need none, they end.
func StateTTL(t TTL) Option {
	return Option{func(n *node) {
		if err := t.check(); err != nil {
			n.fail("StateTTL: %w", err)
			return
		}
		n.ttl = &t
	}}
}

// life is a TTL at work.
type life struct{ ttl TTL }

func (l *life) expired(at, now int64) bool {
	return !l.ttl.ReturnExpired && statestore.Expired(at, l.ttl.After.Milliseconds(), now)
}

// due says that a read at now makes the value live anew. One that came back from behind its end is not made young.
func (l *life) refreshes(at, now int64) bool {
	return l.ttl.RefreshOnRead && at != now && !statestore.Expired(at, l.ttl.After.Milliseconds(), now)
}

func stampedSchema[V any](c statestore.Codec[V]) string {
	if c == nil {
		return ""
	}
	return statestore.StampedCodec(c).Schema()
}

type expiringValue[K comparable, V any] struct {
	life
	c *keyedContext[K]
	t *statestore.Table[K, statestore.Stamped[V]]
}

func (k *expiringValue[K, V]) get() *V {
	k.c.check()
	g, now := k.c.x.Group, k.c.x.Now()
	s := k.t.Get(g, k.c.key)
	if s == nil || k.expired(s.At, now) {
		return nil
	}
	if k.refreshes(s.At, now) {
		s, _ = k.t.Update(g, k.c.key)
		s.At = now
	}
	return &s.Value
}

func (k *expiringValue[K, V]) update() (*V, bool) {
	k.c.check()
	return updateAlive(&k.life, k.t, k.c.x, k.c.key)
}

func (k *expiringValue[K, V]) clear() { k.c.check(); k.t.Delete(k.c.x.Group, k.c.key) }

// updateAlive is Table.Update of values with a time to live: an expired one is as none.
func updateAlive[K comparable, V any](l *life, t *statestore.Table[K, statestore.Stamped[V]], x *task.Exec, k K) (v *V, existed bool) {
	s, existed := t.Update(x.Group, k)
	now := x.Now()
	if existed && l.expired(s.At, now) {
		var zero V
		s.Value, existed = zero, false
	}
	s.At = now
	return &s.Value, existed
}

type expiringList[K comparable, E any] struct {
	life
	c *keyedContext[K]
	l *statestore.List[K, statestore.Stamped[E]]
}

func (k *expiringList[K, E]) add(e E) {
	k.c.check()
	k.l.Add(k.c.x.Group, k.c.key, statestore.Stamped[E]{At: k.c.x.Now(), Value: e})
}

func (k *expiringList[K, E]) all(yield func(*E) bool) {
	k.c.check()
	now := k.c.x.Now()
	if k.ttl.RefreshOnRead {
		statestore.StampList(k.l, k.c.x.Group, k.c.key, now, func(at int64) bool { return k.refreshes(at, now) })
	}
	k.l.All(k.c.x.Group, k.c.key, func(s *statestore.Stamped[E]) bool { return k.expired(s.At, now) || yield(&s.Value) })
}

func (k *expiringList[K, E]) replace(es []E) {
	k.c.check()
	all := make([]statestore.Stamped[E], len(es))
	for i := range es {
		all[i] = statestore.Stamped[E]{At: k.c.x.Now(), Value: es[i]}
	}
	k.l.Replace(k.c.x.Group, k.c.key, all)
}

func (k *expiringList[K, E]) clear() { k.c.check(); k.l.Clear(k.c.x.Group, k.c.key) }

type expiringMap[K, MK comparable, V any] struct {
	life
	c *keyedContext[K]
	m *statestore.Map[K, MK, statestore.Stamped[V]]
}

// read is what a read of an entry gives: nil if it has expired.
func (k *expiringMap[K, MK, V]) read(mk MK, s *statestore.Stamped[V], now int64) *V {
	if k.expired(s.At, now) {
		return nil
	}
	if k.refreshes(s.At, now) {
		k.m.Put(k.c.x.Group, k.c.key, mk, statestore.Stamped[V]{At: now, Value: s.Value})
	}
	return &s.Value
}

func (k *expiringMap[K, MK, V]) get(mk MK) *V {
	k.c.check()
	s := k.m.Get(k.c.x.Group, k.c.key, mk)
	if s == nil {
		return nil
	}
	return k.read(mk, s, k.c.x.Now())
}

func (k *expiringMap[K, MK, V]) put(mk MK, v V) {
	k.c.check()
	k.m.Put(k.c.x.Group, k.c.key, mk, statestore.Stamped[V]{At: k.c.x.Now(), Value: v})
}

func (k *expiringMap[K, MK, V]) remove(mk MK) { k.c.check(); k.m.Delete(k.c.x.Group, k.c.key, mk) }
func (k *expiringMap[K, MK, V]) clear()       { k.c.check(); k.m.Clear(k.c.x.Group, k.c.key) }

func (k *expiringMap[K, MK, V]) all(yield func(mk MK, v *V) bool) {
	k.c.check()
	k.m.All(k.c.x.Group, k.c.key, k.alive(yield))
}

func (k *expiringMap[K, MK, V]) between(from, to MK, yield func(mk MK, v *V) bool) {
	k.c.check()
	k.m.Range(k.c.x.Group, k.c.key, from, to, k.alive(yield))
}

func (k *expiringMap[K, MK, V]) alive(yield func(mk MK, v *V) bool) func(MK, *statestore.Stamped[V]) bool {
	now := k.c.x.Now()
	return func(mk MK, s *statestore.Stamped[V]) bool {
		v := k.read(mk, s, now)
		return v == nil || yield(mk, v)
	}
}

// Clean-up: see TTL.
const (
	sweepEntries  = 1000
	sweepInterval = 100 // ms
	sweepRarest   = int64(time.Hour / time.Millisecond)
)

// sweep makes clean-up of one store part of the subtask's work.
func (b *builder) sweep(n *node, ttl TTL, w *statestore.Sweep) {
	op, live := b.op(n), ttl.After.Milliseconds()
	x := b.x
	b.task.AddUpkeep(b.x.Now(), func(now int64) (next int64, wrote bool, err error) {
		var removed int
		var done bool
		var oldest int64
		_, err = x.Atomic(op, 0, now, func() error {
			removed, done, oldest = w.Step(live, now, sweepEntries)
			return nil
		}, func(dst []byte) []byte { return dst })
		if err != nil {
			return 0, false, err
		}
		x.CountExpired(removed)
		next = now + sweepInterval
		if done {
			rest := min(live/8, sweepRarest)
			if oldest == math.MaxInt64 {
				oldest = now // what is written from now on
			}
			next = max(next, now+rest, min(oldest, math.MaxInt64-live)+live)
		}
		return next, removed > 0, nil
	})
}
