package statestore

import (
	"encoding/binary"
	"math"
)

// List is a keyed store of lists: for each key of a key group, Es in the order they were added, each under a sequence
// number of its own, so that adding to a long list writes one element.
type List[K comparable, E any] struct {
	b   buckets[E]
	kw  keyWriter[K]
	buf []byte // physical key of the running call; starts with the store id
}

// NewList opens a store of kind KindList in s.
func NewList[K comparable, E any](s *State, spec Spec, kc KeyCodec[K], ec Codec[E]) (*List[K, E], error) {
	spec = s.place(spec)
	x, err := newValues(s, spec, ec)
	if err != nil {
		return nil, err
	}
	l := &List[K, E]{kw: newKeyWriter(kc), buf: appendID(make([]byte, 0, 64), spec.ID)}
	if err := l.b.open(x); err != nil {
		return nil, err
	}
	return l, s.register(spec, KindList, &l.b)
}

func (l *List[K, E]) bucket(g Group, k K, insert bool) *bucket[E] {
	l.buf = l.kw.append(append(l.buf[:4], byte(g>>8), byte(g)), k)
	return l.b.get(l.buf, insert)
}

// next is the sequence number behind the last element, deleted ones included: their tombstones are on the way.
func (l *List[K, E]) next(b *bucket[E]) uint64 {
	n := len(b.elems)
	if n == 0 {
		return 0
	}
	key := b.elems[n-1].key
	if len(key) != len(b.prefix)+8 || binary.BigEndian.Uint64(key[len(b.prefix):]) == math.MaxUint64 {
		l.b.x.fault(ErrCorrupt)
	}
	return binary.BigEndian.Uint64(key[len(b.prefix):]) + 1
}

// Add appends e to the list of k.
func (l *List[K, E]) Add(g Group, k K, e E) {
	b := l.bucket(g, k, true)
	l.set(b, l.next(b), e)
}

func (l *List[K, E]) set(b *bucket[E], seq uint64, e E) {
	l.buf = binary.BigEndian.AppendUint64(append(l.buf[:0], b.prefix...), seq)
	*l.b.update(b, l.buf) = e
}

// All calls yield for the elements of the list of k in order until it returns false. The element is for reading and
// valid during the call. yield may write the list; it does not see what it adds.
func (l *List[K, E]) All(g Group, k K, yield func(e *E) bool) {
	if b := l.bucket(g, k, false); b != nil {
		l.b.walk(b, nil, nil, func(e *elem[E]) bool { return yield(l.b.read(e)) })
	}
}

// Replace makes es the list of k.
func (l *List[K, E]) Replace(g Group, k K, es []E) {
	l.Clear(g, k)
	if len(es) == 0 {
		return
	}
	b := l.bucket(g, k, true)
	for i := range es {
		l.set(b, uint64(i), es[i])
	}
}

// Clear removes the list of k.
func (l *List[K, E]) Clear(g Group, k K) {
	if b := l.bucket(g, k, false); b != nil {
		l.b.walk(b, nil, nil, func(e *elem[E]) bool { l.b.delete(e); return true })
	}
}
