package statestore

import (
	"bytes"
	"slices"
	"unsafe"
)

// buckets is the cache of stores that keep several entries, in order, for one user key: maps and lists. A bucket
// holds the entries behind one physical prefix; it is loaded by one scan when it is first asked for as a whole, and written
// entry by entry. Until then it has those that were put or asked for one by one.
type buckets[V any] struct {
	x        *values[V]
	m        map[string]*bucket[V]
	last     *bucket[V] // of the last call, one of m
	complete bool       // a prefix without a bucket has no entries in the Store either
	parts    bool       // entries are put without a look at others, so that a bucket need not be evicted as a whole
	bytes    int64
	swept    int // buckets that the running eviction has looked at

	undo      []undoElem[V]
	dirty     []*elem[V]
	dirtyMark int
	sealed    []*elem[V]
	sealedAt  int
	pend      []pendRec
	pendOf    []*elem[V]

	slabs bool // new entries come several at a time, for stores that drop them together
	slab  []elem[V]
	heads []bucket[V]
	keys  []byte
}

type bucket[V any] struct {
	prefix  string     // store id, key group, key
	elems   []*elem[V] // by key; an elem without a value is deleted and not yet so in the Store
	live    int
	walking int  // iterations under way
	shared  bool // with one of them: elems is copied before it changes
	ref     bool // looked at since the last eviction
	partial bool // the Store may have entries that are not in elems; what is in elems is right
	few     [2]*elem[V]
}

type elem[V any] struct {
	b    *bucket[V]
	key  []byte // physical
	val  V
	enc  []byte // class encoded only: version and value as of the last step
	meta uint64 // as in entry
	pend uint32 // index in buckets.pend + 1
	size uint32 // class strung only: bytes of the encoded value, which takes about as much behind its pointers
}

// shortElem is an entry with room for its key.
type shortElem[V any] struct {
	elem[V]
	room [shortKey]byte
}

const shortKey = 44

type undoElem[V any] struct {
	e     *elem[V]
	val   V
	flags uint8
}

// open makes b the store's cache; an empty Store is known to be empty from the start.
func (b *buckets[V]) open(x *values[V]) error {
	b.x, b.m = x, map[string]*bucket[V]{}
	if x.class == copied {
		x.class = encoded
	}
	lo := appendID(nil, x.spec.ID)
	return catch(func() {
		b.complete = true
		x.scan(lo, successor(lo), func(_, _ []byte) bool { b.complete = false; return false })
	})
}

func (b *buckets[V]) account(n int64) {
	b.bytes += n
	b.x.s.used += n
}

func (b *buckets[V]) elemSize(e *elem[V]) int64 {
	key := len(e.key)
	if !b.slabs && key <= shortKey {
		key = shortKey
	}
	return gcWeight * (int64(unsafe.Sizeof(*e)) + int64(key) + 2*int64(len(e.enc)) + int64(e.size) + 8)
}

// gcWeight is how many bytes of the heap a byte of objects that the garbage collector has to follow costs: if the caches were
// filled up with such, it would run all the time.
const gcWeight = 2

// resize notes the encoded size of a value.
func (b *buckets[V]) resize(e *elem[V], n int) {
	if b.x.class == strung {
		b.account(gcWeight * (int64(n) - int64(e.size)))
		e.size = uint32(n)
	}
}

func (b *buckets[V]) bucketSize(k *bucket[V]) int64 {
	return int64(unsafe.Sizeof(*k)) + int64(len(k.prefix)) + 48
}

// get returns the bucket of a prefix with all its entries. It is nil if there is nothing in it and insert is false.
func (b *buckets[V]) get(prefix []byte, insert bool) *bucket[V] {
	k := b.part(prefix, insert)
	if k == nil {
		return nil
	}
	k.ref = true
	if k.partial {
		b.load(k)
	}
	return k
}

// part is get without loading: the bucket has what is in memory.
func (b *buckets[V]) part(prefix []byte, insert bool) *bucket[V] {
	if k := b.last; k != nil && k.prefix == string(prefix) {
		return k
	}
	k := b.m[string(prefix)]
	if k == nil {
		if b.complete && !insert {
			return nil
		}
		k = b.newBucket(prefix)
		k.partial = !b.complete
		b.m[k.prefix] = k
		b.account(b.bucketSize(k))
	}
	b.last = k
	return k
}

// load reads the entries of the Store that a bucket lacks.
func (b *buckets[V]) load(k *bucket[V]) {
	had, all := k.elems, make([]*elem[V], 0, len(k.elems))
	size, live := int64(0), 0
	prefix := []byte(k.prefix)
	b.x.scan(prefix, successor(prefix), func(key, val []byte) bool {
		for ; len(had) > 0; had = had[1:] {
			c := bytes.Compare(had[0].key, key)
			if c == 0 {
				return true // the next call, or the end, takes it
			}
			if c > 0 {
				break
			}
			all = append(all, had[0])
		}
		e := b.newElem(k, key)
		b.fill(e, val)
		all = append(all, e)
		size += b.elemSize(e)
		live++
		return true
	})
	k.elems, k.live, k.partial = append(all, had...), k.live+live, false
	b.account(size)
}

// fill sets an entry that is as the Store has it.
func (b *buckets[V]) fill(e *elem[V], val []byte) {
	b.x.decode(nil, e.key, val, &e.val)
	switch b.x.class {
	case encoded:
		e.enc = bytes.Clone(val)
	case strung:
		e.size = uint32(len(val))
	}
	e.meta = flagLive
}

// lookup returns the entry of key in k, nil if it has no value. If the bucket has it not, for it has only a part, the Store
// is asked for this one.
func (b *buckets[V]) lookup(k *bucket[V], key []byte) *elem[V] {
	i, ok := k.find(key)
	var e *elem[V]
	switch {
	case ok:
		e = k.elems[i]
	case !k.partial:
		return nil
	default:
		e = b.newElem(k, key) // stays if there is no value, so that it is known
		if val, ok := b.x.get(key); ok {
			b.fill(e, val)
			k.live++
		}
		b.insert(k, i, e)
	}
	if e.meta&flagLive == 0 {
		return nil
	}
	k.ref = true
	return e
}

func (b *buckets[V]) insert(k *bucket[V], i int, e *elem[V]) {
	k.own()
	k.elems = slices.Insert(k.elems, i, e)
	b.account(b.elemSize(e))
}

// forget takes a bucket out.
func (b *buckets[V]) forget(k *bucket[V]) {
	delete(b.m, k.prefix)
	b.account(-b.bucketSize(k))
	if b.last == k {
		b.last = nil
	}
}

// find is where an entry is, or would be. The keys begin with the prefix, of which at least the store id is there; what is
// behind all others, as it is with times, is found at once.
func (k *bucket[V]) find(key []byte) (int, bool) {
	n := len(k.prefix)
	key = key[n:]
	lo, hi := 0, len(k.elems)
	if hi > 0 {
		switch c := bytes.Compare(k.elems[hi-1].key[n:], key); {
		case c == 0:
			return hi - 1, true
		case c < 0:
			return hi, false
		}
		hi--
	}
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		switch c := bytes.Compare(k.elems[mid].key[n:], key); {
		case c == 0:
			return mid, true
		case c < 0:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return lo, false
}

// own makes elems safe to change below a running iteration.
func (k *bucket[V]) own() {
	if k.walking > 0 && k.shared {
		k.elems, k.shared = slices.Clone(k.elems), false
	}
}

const (
	elemSlab = 16   // entries made at a time
	keySlab  = 1024 // bytes of keys
)

func (b *buckets[V]) newElem(k *bucket[V], key []byte) *elem[V] {
	if !b.slabs {
		if len(key) > shortKey {
			return &elem[V]{b: k, key: bytes.Clone(key)}
		}
		s := &shortElem[V]{} // in one piece
		s.b, s.key = k, s.room[:copy(s.room[:], key):len(key)]
		return &s.elem
	}
	if len(b.slab) == 0 {
		b.slab = make([]elem[V], elemSlab)
	}
	e := &b.slab[0]
	b.slab = b.slab[1:]
	e.b, e.key = k, b.keyOf(key)
	return e
}

// keyOf copies a key to a slab. What was written there is never written again.
func (b *buckets[V]) keyOf(key []byte) []byte {
	if cap(b.keys)-len(b.keys) < len(key) {
		b.keys = make([]byte, 0, max(keySlab, len(key)))
	}
	n := len(b.keys)
	b.keys = append(b.keys, key...)
	return b.keys[n:len(b.keys):len(b.keys)]
}

func (b *buckets[V]) newBucket(prefix []byte) *bucket[V] {
	if !b.slabs {
		return &bucket[V]{prefix: string(prefix)}
	}
	if len(b.heads) == 0 {
		b.heads = make([]bucket[V], elemSlab)
	}
	k := &b.heads[0]
	b.heads = b.heads[1:]
	p := b.keyOf(prefix)
	k.prefix = unsafe.String(unsafe.SliceData(p), len(p))
	k.elems = k.few[:0]
	return k
}

// reset forgets everything, what is pending too. Nothing may point into it any more.
func (b *buckets[V]) reset() {
	for j, e := range b.pendOf {
		b.x.s.pend.bytes -= int64(len(e.key)) + pendOverhead + int64(b.pend[j].cap)
	}
	b.account(-b.bytes)
	*b = buckets[V]{x: b.x, m: b.m, slabs: b.slabs, parts: b.parts}
	clear(b.m)
}

// drop removes an entry that stands for nothing.
func (b *buckets[V]) drop(e *elem[V]) {
	if e.meta&(flagLive|flagDirty|flagSealed) != 0 || e.pend != 0 {
		return
	}
	if i, ok := e.b.find(e.key); ok && e.b.elems[i] == e {
		e.b.own()
		e.b.elems = slices.Delete(e.b.elems, i, i+1)
		b.account(-b.elemSize(e))
		if len(e.b.elems) == 0 && b.complete && e.b.walking == 0 {
			b.forget(e.b)
		}
	}
}

func (b *buckets[V]) setLive(e *elem[V], live bool) {
	if (e.meta&flagLive != 0) == live {
		return
	}
	e.meta ^= flagLive
	if live {
		e.b.live++
	} else {
		e.b.live--
	}
}

func (b *buckets[V]) log(e *elem[V]) {
	s := b.x.s
	if e.meta>>flagBits == s.step {
		return
	}
	if len(b.undo) == 0 {
		s.touched = append(s.touched, b)
		b.dirtyMark = len(b.dirty)
	}
	u := undoElem[V]{e: e, flags: uint8(e.meta)}
	if b.x.class != encoded {
		u.val = e.val
	}
	b.undo = append(b.undo, u)
	e.meta = s.step<<flagBits | e.meta&flagMask
}

func (b *buckets[V]) write(e *elem[V]) {
	b.log(e)
	if e.meta&flagDirty == 0 {
		e.meta |= flagDirty
		if e.meta&flagLive != 0 {
			e.meta |= flagBase
		}
		b.dirty = append(b.dirty, e)
		b.x.s.dirty += int64(len(e.key)) + int64(unsafe.Sizeof(e.val))
	}
	e.meta |= flagWrote
}

// read hands out a value for reading.
func (b *buckets[V]) read(e *elem[V]) *V {
	if b.x.class == encoded {
		b.log(e)
	}
	return &e.val
}

// update returns the value of key for writing; it exists from now on.
func (b *buckets[V]) update(k *bucket[V], key []byte) *V {
	i, ok := k.find(key)
	if ok {
		e := k.elems[i]
		b.write(e)
		b.setLive(e, true)
		return &e.val
	}
	e := b.newElem(k, key)
	b.insert(k, i, e)
	b.write(e)
	if k.partial {
		e.meta |= flagBase // for all that is known
	}
	b.setLive(e, true)
	return &e.val
}

func (b *buckets[V]) delete(e *elem[V]) {
	if e.meta&flagLive == 0 {
		return
	}
	b.write(e)
	b.setLive(e, false)
	var zero V
	e.val = zero
}

// walk calls fn for the live entries of lo <= key < hi in key order until it returns false; nil is no bound. fn may
// write the bucket: entries that it adds are not visited, those it deletes are not either.
func (b *buckets[V]) walk(k *bucket[V], lo, hi []byte, fn func(e *elem[V]) bool) {
	from, to := 0, len(k.elems)
	if lo != nil {
		from, _ = k.find(lo)
	}
	if hi != nil {
		to, _ = k.find(hi)
	}
	if from >= to {
		return
	}
	s := b.x.s
	s.iterating++
	k.walking++
	k.shared = true
	defer func() { s.iterating--; k.walking-- }()
	for _, e := range k.elems[from:to] {
		if e.meta&flagLive != 0 && !fn(e) {
			return
		}
	}
}

func (b *buckets[V]) end() {
	if b.x.class == encoded {
		for j := range b.undo {
			e := b.undo[j].e
			if e.meta&flagWrote == 0 {
				continue
			}
			b.account(-b.elemSize(e))
			if e.meta&flagLive != 0 {
				e.enc = b.x.append(e.enc[:0], &e.val)
			} else {
				e.enc = nil
			}
			b.account(b.elemSize(e))
			e.meta &^= flagWrote
		}
	}
	clear(b.undo)
	b.undo = b.undo[:0]
}

func (b *buckets[V]) rollback() {
	for j := len(b.undo) - 1; j >= 0; j-- {
		u := &b.undo[j]
		live := u.flags&flagLive != 0
		if u.e.meta&flagBase != 0 && u.flags&(flagLive|flagDirty) == 0 {
			u.e.b.partial = true // put without a look, and the Store may have it
		}
		u.e.val = u.val
		if b.x.class == encoded && live {
			b.x.decode(nil, u.e.key, u.e.enc, &u.e.val)
		}
		b.setLive(u.e, live)
		u.e.meta = uint64(u.flags)
	}
	clear(b.dirty[b.dirtyMark:])
	b.dirty = b.dirty[:b.dirtyMark]
	for j := range b.undo {
		b.drop(b.undo[j].e)
	}
	clear(b.undo)
	b.undo = b.undo[:0]
}

func (b *buckets[V]) seal() {
	if len(b.dirty) == 0 {
		return
	}
	s := b.x.s
	b.sealedAt = len(s.changes)
	for _, e := range b.dirty {
		if e.meta&(flagLive|flagBase) == 0 {
			e.meta &^= flagDirty
			b.drop(e)
			continue
		}
		ch := Change{Changelog: b.x.changelog, Key: e.key}
		if e.meta&flagLive != 0 {
			tail := s.arena.tail()
			if b.x.class == encoded {
				ch.Value = s.arena.keep(append(tail, e.enc...))
			} else {
				ch.Value = s.arena.keep(b.x.append(tail, &e.val))
			}
			if b.x.class != plain && !b.x.owned {
				// Let go of what the value shares with fetched records.
				b.x.decode(nil, e.key, ch.Value, &e.val)
			}
		}
		b.resize(e, len(ch.Value))
		s.changes = append(s.changes, ch)
		b.sealed = append(b.sealed, e)
		e.meta = e.meta&^(flagDirty|flagBase) | flagSealed
	}
	clear(b.dirty)
	b.dirty = b.dirty[:0]
	if len(b.sealed) > 0 {
		b.x.use()
	}
}

func (b *buckets[V]) committed() {
	s := b.x.s
	for j, e := range b.sealed {
		e.meta &^= flagSealed
		if e.pend == 0 {
			b.pend = append(b.pend, pendRec{})
			b.pendOf = append(b.pendOf, e)
			e.pend = uint32(len(b.pend))
			s.pend.bytes += int64(len(e.key)) + pendOverhead
		}
		s.pend.put(&b.pend[e.pend-1], s.changes[b.sealedAt+j].Value)
	}
	clear(b.sealed)
	b.sealed = b.sealed[:0]
}

// gather puts what is pending into a batch, in the order of keys.
func (b *buckets[V]) gather(batch Batch) {
	s := b.x.s
	keyOf := func(j uint32) []byte { return b.pendOf[j].key[4:] } // behind the store id
	keys := slices.Grow(s.keys[:0], len(b.pendOf))
	for j := range b.pendOf {
		keys = append(keys, newSortKey(keyOf(uint32(j)), j))
	}
	s.keys, s.spare = sortKeys(keys, s.spare, keyOf)
	for _, k := range s.keys {
		s.put(batch, b.pendOf[k.j].key, &b.pend[k.j])
	}
}

func (b *buckets[V]) written() {
	for _, e := range b.pendOf {
		e.pend = 0
		b.drop(e)
	}
	clear(b.pendOf)
	b.pend, b.pendOf = b.pend[:0], b.pendOf[:0]
}

// busy says that an entry is not as the Store has it.
func (e *elem[V]) busy() bool { return e.meta&(flagDirty|flagSealed) != 0 || e.pend != 0 }

// evict drops the clean entries of buckets, of stores without parts those of buckets that are all clean, those that were not
// looked at since the last time first. It looks at as many as there are twice, at most; where it begins is random.
func (b *buckets[V]) evict(w *sweep) (ended bool) {
	before := b.bytes
	for _, k := range b.m {
		if w.looks <= 0 || w.want <= before-b.bytes || b.swept >= 2*len(b.m) {
			break
		}
		b.swept++
		w.looks -= 1 + len(k.elems)/4
		if k.ref {
			k.ref = false
			continue
		}
		b.shed(k)
	}
	w.want -= before - b.bytes
	if ended = w.want <= 0 || b.swept >= 2*len(b.m); ended {
		b.swept = 0
	}
	return ended
}

// shed drops the clean entries of a bucket, and the bucket if nothing is left.
func (b *buckets[V]) shed(k *bucket[V]) {
	busy := 0
	for _, e := range k.elems {
		if e.busy() {
			busy++
		}
	}
	if busy > 0 && (!b.parts || busy == len(k.elems)) {
		return
	}
	var left []*elem[V]
	if busy > 0 {
		left = make([]*elem[V], 0, busy)
	}
	for _, e := range k.elems {
		if e.busy() {
			left = append(left, e)
			continue
		}
		if e.meta&flagLive != 0 {
			k.live--
			k.partial, b.complete = true, false
		}
		b.account(-b.elemSize(e))
	}
	k.elems = left
	if busy == 0 {
		b.forget(k)
	}
}

func (b *buckets[V]) cached() int64 { return b.bytes }

func (b *buckets[V]) horizon() (ID, int64, bool) { return 0, 0, false }
