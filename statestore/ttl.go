package statestore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
)

// Stamped is a value of a state with a time to live: At is the processing time, in ms, from which its life counts.
type Stamped[V any] struct {
	At    int64
	Value V
}

// Unstamped is the At of values that were written before their state had a time to live. They do not expire before a
// Sweep has seen them, or they are written.
const Unstamped = math.MinInt64

// StampedCodec is the codec of values that carry their time. It also reads values that c reads, as Unstamped; and c, as
// the codec of a state, reads what StampedCodec wrote, without the time. So a state may get a time to live and lose it
// again.
func StampedCodec[V any](c Codec[V]) Codec[Stamped[V]] { return stampedCodec[V]{c} }

// The schema of a stamped value reads like that of a struct, so that whoever knows schemas can show the value. The names
// cannot be those of a user's fields by accident.
const (
	stampedHead = "struct{@written int64;@value "
	stampedTail = "}"
)

// unstampedSchema is the schema of the value within a stamped one.
func unstampedSchema(schema string) (inner string, stamped bool) {
	inner, ok := strings.CutPrefix(schema, stampedHead)
	if !ok || !strings.HasSuffix(inner, stampedTail) {
		return schema, false
	}
	return strings.TrimSuffix(inner, stampedTail), true
}

// HasTTL says whether a schema is that of values with a time to live, and gives the schema of the values themselves.
func HasTTL(schema string) (value string, ttl bool) { return unstampedSchema(schema) }

type stampedCodec[V any] struct{ c Codec[V] }

func (s stampedCodec[V]) Append(dst []byte, v *Stamped[V]) []byte {
	return s.c.Append(binary.AppendVarint(dst, v.At), &v.Value)
}

func (s stampedCodec[V]) Decode(src []byte, v *Stamped[V]) error {
	at, n := binary.Varint(src)
	if n <= 0 {
		return errShort
	}
	v.At = at
	return s.c.Decode(src[n:], &v.Value)
}

func (s stampedCodec[V]) Flat() bool     { return s.c.Flat() }
func (s stampedCodec[V]) Schema() string { return stampedHead + s.c.Schema() + stampedTail }
func (s stampedCodec[V]) fails() bool    { return mayFail(s.c) }

// Reads is of Evolver.
func (s stampedCodec[V]) Reads(schema string) (Codec[Stamped[V]], error) {
	inner, stamped := unstampedSchema(schema)
	c, err := readerOf(s.c, inner)
	if err != nil {
		return nil, err
	}
	if stamped {
		return stampedCodec[V]{c}, nil
	}
	return unstampedCodec[V]{stampedCodec[V]{c}}, nil
}

// unstampedCodec reads values from before there was a time to live.
type unstampedCodec[V any] struct{ stampedCodec[V] }

func (s unstampedCodec[V]) Decode(src []byte, v *Stamped[V]) error {
	v.At = Unstamped
	return s.c.Decode(src, &v.Value)
}

// unstampingCodec reads values from when there was a time to live.
type unstampingCodec[V any] struct{ Codec[V] }

func (s unstampingCodec[V]) Decode(src []byte, v *V) error {
	_, n := binary.Varint(src)
	if n <= 0 {
		return errShort
	}
	return s.Codec.Decode(src[n:], v)
}

func (s unstampingCodec[V]) fails() bool { return mayFail(s.Codec) }

// readerOf gives the codec that reads values of a schema as those of c.
func readerOf[V any](c Codec[V], schema string) (Codec[V], error) {
	if schema == c.Schema() {
		return c, nil
	}
	if _, ok := c.(interface{ stamps() }); !ok {
		if inner, stamped := unstampedSchema(schema); stamped {
			r, err := readerOf(c, inner)
			if err != nil {
				return nil, err
			}
			return unstampingCodec[V]{r}, nil
		}
	}
	ev, ok := c.(Evolver[V])
	if !ok {
		return nil, fmt.Errorf("its values were written as %s, now they are %s, and %T does not implement Evolver", schema, c.Schema(), c)
	}
	return ev.Reads(schema)
}

func (s stampedCodec[V]) stamps() {}

// Expired says whether what was written at at and lives life ms has expired at now, all in ms: it has from at + life on.
func Expired(at, life, now int64) bool {
	if at == Unstamped || now < at {
		return false
	}
	return uint64(now)-uint64(at) >= uint64(life)
}

// A Sweep cleans a store of stamped values: in steps of bounded work it goes through what is in the Store, and deletes
// what has expired by a write like any other, so that the changelog hears of it. What is younger than the last
// write-behind is met on a later pass.
type Sweep struct {
	prefix []byte
	scan   func(lo, hi []byte, fn func(key, val []byte) bool)
	stamp  func(key, val []byte) (at int64, ok bool)
	// visit calls fn with the present stamp of the entry of a key, if it has a value; fn says what to do with it.
	visit func(key []byte, fn func(at int64) (remove bool, stamp int64))
	next  []byte // where the pass goes on
	least int64  // the oldest stamp that the pass has left
	keys  [][]byte
}

// SweepTable makes the Sweep of a table.
func SweepTable[K comparable, V any](t *Table[K, Stamped[V]]) *Sweep {
	c := &t.c
	w := newSweep(c.x)
	w.visit = func(key []byte, fn func(int64) (bool, int64)) {
		key = c.stored(key)
		i, e := c.lookup(key, false)
		if e == nil || e.meta&flagLive == 0 {
			return
		}
		remove, at := fn(e.val.At)
		switch {
		case remove:
			c.write(i, e)
			c.setLive(i, e, false)
			e.val = Stamped[V]{}
		case at != e.val.At:
			c.write(i, e)
			e.val.At = at
		}
	}
	return w
}

// SweepList makes the Sweep of a list, whose elements expire one by one.
func SweepList[K comparable, E any](l *List[K, Stamped[E]]) *Sweep {
	return sweepBuckets(&l.b, func(key []byte) int { return len(key) - 8 })
}

// SweepMap makes the Sweep of a map, whose entries expire one by one.
func SweepMap[K, MK comparable, V any](m *Map[K, MK, Stamped[V]]) *Sweep {
	return sweepBuckets(&m.b, func(key []byte) int {
		_, rest := decodeUser(m.b.x, m.kw.kc, key, 6)
		return len(key) - len(rest)
	})
}

func sweepBuckets[V any](b *buckets[Stamped[V]], prefixLen func(key []byte) int) *Sweep {
	w := newSweep(b.x)
	w.visit = func(key []byte, fn func(int64) (bool, int64)) {
		n := prefixLen(key)
		if n < 0 {
			b.x.fault(ErrCorrupt)
		}
		k := b.part(key[:n], false)
		if k == nil {
			return
		}
		e := b.lookup(k, key)
		if e == nil {
			return
		}
		remove, at := fn(e.val.At)
		switch {
		case remove:
			b.delete(e)
		case at != e.val.At:
			b.write(e)
			e.val.At = at
		}
	}
	return w
}

func newSweep[V any](x *values[Stamped[V]]) *Sweep {
	lo := appendID(nil, x.spec.ID)
	var scratch Stamped[V]
	return &Sweep{prefix: lo, scan: x.scan, stamp: func(key, val []byte) (int64, bool) {
		if x.current(val) {
			at, n := binary.Varint(val[len(x.prefix):])
			return at, n > 0
		}
		if !x.readable(lo, key[len(lo):], val) {
			return 0, false // who asks for it hears why
		}
		x.decode(lo, key[len(lo):], val, &scratch)
		return scratch.At, true
	}}
}

// Step looks at up to most entries of the Store and removes those that have lived life ms at now; those that were
// Unstamped are stamped. It runs within a step of the State. done says that a pass has ended; then oldest is the stamp
// that it saw and left that expires first, math.MaxInt64 if there is none, and the next Step begins a new pass.
func (w *Sweep) Step(life, now int64, most int) (removed int, done bool, oldest int64) {
	lo, hi := w.next, successor(w.prefix)
	if lo == nil {
		lo, w.least = w.prefix, math.MaxInt64
	}
	w.next, w.keys = nil, w.keys[:0]
	n := 0
	w.scan(lo, hi, func(key, val []byte) bool {
		if n == most {
			w.next = bytes.Clone(key)
			return false
		}
		n++
		at, ok := w.stamp(key, val)
		switch {
		case !ok:
		case at == Unstamped || Expired(at, life, now):
			w.keys = append(w.keys, bytes.Clone(key))
		default:
			w.least = min(w.least, at)
		}
		return true
	})
	for _, key := range w.keys {
		w.visit(key, func(at int64) (bool, int64) {
			if Expired(at, life, now) {
				removed++
				return true, at
			}
			if at == Unstamped {
				at = now
			}
			w.least = min(w.least, at)
			return false, at
		})
	}
	clear(w.keys)
	return removed, w.next == nil, w.least
}

// StampList sets the stamp of those elements of the list of k for whose stamp fn says so.
func StampList[K comparable, E any](l *List[K, Stamped[E]], g Group, k K, at int64, fn func(at int64) bool) {
	b := l.bucket(g, k, false)
	if b == nil {
		return
	}
	l.b.walk(b, nil, nil, func(e *elem[Stamped[E]]) bool {
		if fn(e.val.At) {
			l.b.write(e)
			e.val.At = at
		}
		return true
	})
}
