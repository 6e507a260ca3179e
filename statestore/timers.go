package statestore

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// nearTimers is how many timers are loaded into memory at once; the near heap holds up to twice as many.
const nearTimers = 64 << 10

// Timers is a store of timers, ordered by time, then key group, key and id. A timer set twice is one. The timers below
// near are all in memory, in a heap; those from near on are in the Store, or on their way there. When the heap runs
// dry the next ones are loaded by one scan.
type Timers[K comparable] struct {
	c    cache[struct{}]
	kw   keyWriter[K]
	buf  []byte // padded key of the running call
	near []byte // a key; nil: all timers are in memory
	heap []timerNode
	pos  []int32 // of an entry in heap, + 1
	size int     // State.near
}

type timerNode struct {
	at int64
	i  uint32
}

// presence is the codec of values that say no more than that they exist.
type presence struct{}

func (presence) Append(dst []byte, _ *struct{}) []byte { return dst }
func (presence) Decode(src []byte, _ *struct{}) error {
	if len(src) > 0 {
		return errTooLarge
	}
	return nil
}
func (presence) Flat() bool     { return true }
func (presence) Schema() string { return "struct{}" }

// NewTimers opens a store of kind KindTimers in s.
func NewTimers[K comparable](s *State, spec Spec, kc KeyCodec[K]) (*Timers[K], error) {
	spec = s.place(spec)
	x, err := newValues[struct{}](s, spec, presence{})
	if err != nil {
		return nil, err
	}
	t := &Timers[K]{kw: newKeyWriter(kc), size: s.near}
	t.c.init(x, appendID(nil, spec.ID))
	t.c.changed = t.changed
	if err := s.register(spec, KindTimers, (*timersSub[K])(t)); err != nil {
		return nil, err
	}
	t.near = []byte{}
	return t, catch(t.load)
}

// key builds the key, and tells the cache whether it knows all there is about it.
func (t *Timers[K]) key(at int64, g Group, k K, id uint32) []byte {
	b := appendKeyInt64(t.buf[:0], at)
	b = t.kw.append(append(b, byte(g>>8), byte(g)), k)
	t.buf = pad(binary.BigEndian.AppendUint32(b, id))
	t.c.complete = t.isNear(t.buf)
	return t.buf
}

func (t *Timers[K]) isNear(key []byte) bool { return t.near == nil || bytes.Compare(key, t.near) < 0 }

// Set sets a timer of k for at, in ms; id tells several of one key and time apart.
func (t *Timers[K]) Set(at int64, g Group, k K, id uint32) {
	key := t.key(at, g, k, id)
	if i, e := t.c.lookup(key, true); e.meta&flagLive == 0 {
		t.c.write(i, e)
		t.c.setLive(i, e, true)
	}
}

// Delete removes a timer if it is set.
func (t *Timers[K]) Delete(at int64, g Group, k K, id uint32) { t.c.delete(t.key(at, g, k, id)) }

// Next is the time of the earliest timer.
func (t *Timers[K]) Next() (at int64, ok bool) {
	if !t.ready() {
		return 0, false
	}
	return t.heap[0].at, true
}

// Pop removes the earliest timer and returns it, if it is due at or before upTo.
func (t *Timers[K]) Pop(upTo int64) (at int64, g Group, k K, id uint32, ok bool) {
	if !t.ready() || t.heap[0].at > upTo {
		return 0, 0, k, 0, false
	}
	top := t.heap[0]
	e := t.c.at(top.i)
	key := t.c.keyOf(e)
	k, rest := decodeUser(t.c.x, t.kw.kc, key, 10)
	if len(rest) != 4 {
		t.c.x.fault(ErrCorrupt)
	}
	t.c.erase(top.i, e)
	return top.at, groupOf(key[8:]), k, binary.BigEndian.Uint32(rest), true
}

// ready loads timers until the heap has the earliest one; false means there is none.
func (t *Timers[K]) ready() bool {
	for len(t.heap) == 0 && t.near != nil {
		t.load()
	}
	return len(t.heap) > 0
}

// load moves near over the next timers of the Store.
func (t *Timers[K]) load() {
	lo := append(bytes.Clone(t.c.prefix), t.near...)
	t.near = nil
	n := 0
	var next []byte
	t.c.x.scan(lo, successor(t.c.prefix), func(key, _ []byte) bool {
		if n == t.size {
			next = bytes.Clone(key[len(t.c.prefix):])
			return false
		}
		n++
		key = t.c.stored(key)
		h := t.c.hash(key)
		if _, e := t.c.find(h, key); e == nil {
			i, e := t.c.insert(h, key)
			t.c.setLive(i, e, true) // near is nil: all go into the heap
		}
		return true
	})
	t.near = next
	// Timers that were far, and are in memory since they are not in the Store yet.
	for i := range t.c.n {
		e := t.c.at(i)
		if e.meta&flagLive != 0 && t.posOf(i) == 0 && t.isNear(t.c.keyOf(e)) {
			t.push(i)
		}
	}
}

// spill makes the far part of a heap that has grown too large far again.
func (t *Timers[K]) spill() {
	if len(t.heap) <= 2*t.size {
		return
	}
	slices.SortFunc(t.heap, func(a, b timerNode) int {
		if t.less(a, b) {
			return -1
		}
		return 1
	})
	far := t.heap[t.size:]
	t.near = bytes.Clone(t.c.keyOf(t.c.at(far[0].i)))
	t.heap = t.heap[:t.size] // sorted is a heap
	for j, n := range t.heap {
		t.pos[n.i] = int32(j + 1)
	}
	for _, n := range far {
		t.pos[n.i] = 0
	}
	for _, n := range far {
		t.forgetFar(n.i)
	}
}

// forgetFar drops a far timer that is in the Store as it is here.
func (t *Timers[K]) forgetFar(i uint32) {
	e := t.c.at(i)
	if e.meta&flagUsed != 0 && e.meta&(flagDirty|flagSealed) == 0 && e.pend == 0 && !t.isNear(t.c.keyOf(e)) {
		t.c.remove(i, e)
	}
}

// changed keeps the heap: it holds the near timers that are set.
func (t *Timers[K]) changed(i uint32, live bool) {
	switch {
	case !live && t.posOf(i) != 0:
		t.pop(int(t.pos[i]) - 1)
	case live && t.isNear(t.c.keyOf(t.c.at(i))):
		t.push(i)
	}
}

func (t *Timers[K]) posOf(i uint32) int32 {
	if int(i) < len(t.pos) {
		return t.pos[i]
	}
	return 0
}

func (t *Timers[K]) less(a, b timerNode) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	return bytes.Compare(t.c.keyOf(t.c.at(a.i)), t.c.keyOf(t.c.at(b.i))) < 0
}

func (t *Timers[K]) push(i uint32) {
	for int(i) >= len(t.pos) {
		t.pos = append(t.pos, 0)
	}
	t.heap = append(t.heap, timerNode{decodeKeyInt64(t.c.keyOf(t.c.at(i))), i})
	t.up(len(t.heap) - 1)
}

// pop removes the node at j.
func (t *Timers[K]) pop(j int) {
	t.pos[t.heap[j].i] = 0
	last := len(t.heap) - 1
	n := t.heap[last]
	t.heap = t.heap[:last]
	if j == last {
		return
	}
	t.heap[j] = n
	t.pos[n.i] = int32(j + 1)
	t.down(j)
	t.up(j)
}

// The heap is 4-ary: half as deep as a binary one.
func (t *Timers[K]) up(j int) {
	n := t.heap[j]
	for j > 0 {
		parent := (j - 1) / 4
		if !t.less(n, t.heap[parent]) {
			break
		}
		t.heap[j] = t.heap[parent]
		t.pos[t.heap[j].i] = int32(j + 1)
		j = parent
	}
	t.heap[j] = n
	t.pos[n.i] = int32(j + 1)
}

func (t *Timers[K]) down(j int) {
	n := t.heap[j]
	for {
		first := 4*j + 1
		if first >= len(t.heap) {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, len(t.heap)); c++ {
			if t.less(t.heap[c], t.heap[least]) {
				least = c
			}
		}
		if !t.less(t.heap[least], n) {
			break
		}
		t.heap[j] = t.heap[least]
		t.pos[t.heap[j].i] = int32(j + 1)
		j = least
	}
	t.heap[j] = n
	t.pos[n.i] = int32(j + 1)
}

// timersSub is Timers as a substore.
type timersSub[K comparable] Timers[K]

func (u *timersSub[K]) seal()          { u.c.seal() }
func (u *timersSub[K]) committed()     { u.c.committed() }
func (u *timersSub[K]) gather(b Batch) { u.c.gather(b) }

func (u *timersSub[K]) written() {
	t := (*Timers[K])(u)
	for _, i := range t.c.pendOf {
		t.c.at(i).pend = 0
	}
	for _, i := range t.c.pendOf {
		t.c.drop(i, t.c.at(i))
		t.forgetFar(i)
	}
	t.c.pend, t.c.pendOf = t.c.pend[:0], t.c.pendOf[:0]
	t.spill()
}

// evict drops what is remembered of far and absent timers; the near ones are needed.
func (u *timersSub[K]) evict(w *sweep) (ended bool) {
	t := (*Timers[K])(u)
	before := t.c.bytes
	for ; w.looks > 0; w.looks-- {
		if ended = w.want <= before-t.c.bytes || t.c.swept >= t.c.n; ended {
			t.c.swept = 0
			break
		}
		if t.c.hand >= t.c.n {
			t.c.hand = 0
		}
		i := t.c.hand
		t.c.hand++
		t.c.swept++
		t.c.drop(i, t.c.at(i))
		t.forgetFar(i)
	}
	w.want -= before - t.c.bytes
	return ended
}
func (u *timersSub[K]) cached() int64              { return u.c.bytes }
func (u *timersSub[K]) horizon() (ID, int64, bool) { return 0, 0, false }
