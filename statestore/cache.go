package statestore

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"slices"
	"unsafe"
)

// cache is the typed cache of one store, or of one window of it: an open-addressing table from keys to values. Index,
// keys and bookkeeping hold no pointers, and neither do the pages where V has none: a million entries cost the garbage
// collector nothing. Keys are encoded; what all of them start with, the prefix, is left out.
//
//	index  []uint32             entry number + 1 in the bits of its mask, of the hash the others; 0 is free; linear probing
//	pages  [][1024]entry[V]     never move, so that pointers to values stay good; short keys are in the entry
//	keys   keyArena             long keys
//
// All upkeep is cut into small pieces, done with inserts and removals, so that no call takes long: a larger index is filled
// from the one before it, long keys are moved together, and entries are evicted a few at a time.
//
// Where complete is set, what is not here does not exist and the Store is not asked.
type cache[V any] struct {
	x        *values[V]
	prefix   []byte // of the physical keys
	phys     []byte // scratch: a physical key
	probe    []byte // scratch: a padded key
	index    []uint32
	old      []uint32 // the index before it, until all of it was moved; nil: it was
	moved    int      // slots of old that were moved
	pages    []*[pageSize]entry[V]
	sizes    [][]uint32 // encoded sizes, of values with pointers
	encs     [][][]byte // encoded forms, of values of class encoded
	n        uint32     // entries ever taken from pages
	free     []uint32
	used     int // entries in the index
	live     int // of them with a value
	keys     keyArena
	bytes    int64
	complete bool
	hand     uint32 // of the eviction clock
	swept    uint32 // entries that the running eviction has looked at

	undo      []undoRec[V]
	dirty     []uint32 // entries in the order of their first write in the epoch
	dirtyMark int      // len(dirty) at the start of the step
	died      int      // entries that lost their value in the step
	sealed    []uint32
	sealedAt  int // index of the first of them in State.changes
	pend      []pendRec
	pendOf    []uint32 // entries of pend

	// changed is called when an entry begins or ceases to have a value; timers keep their heap by it.
	changed func(i uint32, live bool)
}

// An entry is as small as can be: how many there are in a given room decides how often the Store is asked.
type entry[V any] struct {
	key  [3]uint64 // up to inlineKey bytes, little endian and padded with zeros; else the place in keys and the length
	pend uint32    // index in cache.pend + 1
	klen uint8     // length of key, longKey if it is not here
	meta uint8     // flags
	val  V
}

const (
	// inlineKey is the length of the longest key that is kept in its entry.
	inlineKey = 24
	longKey   = inlineKey + 1
)

// keyLen is the length of the key.
func (e *entry[V]) keyLen() int {
	if e.klen == longKey {
		return int(e.key[1])
	}
	return int(e.klen)
}

const (
	flagUsed   = 1 << iota // the entry is in the index
	flagLive               // it has a value
	flagBase               // it had one when the epoch began; set with flagDirty only
	flagDirty              // written in the running epoch
	flagSealed             // part of the sealed epoch
	flagRef                // looked at since the clock hand came by
	flagWrote              // written in the running step; class encoded only
	flagLogged             // logged in the running step; in the entries of a cache only
	flagBits   = 8
	flagMask   = 1<<flagBits - 1
)

// An undoRec is an entry as it was when the step first wrote it (or, of class encoded, read it).
type undoRec[V any] struct {
	val   V
	i     uint32
	flags uint8
}

const (
	pageBits = 10
	pageSize = 1 << pageBits
)

func (c *cache[V]) init(x *values[V], prefix []byte) { c.x, c.prefix = x, prefix }

func (c *cache[V]) at(i uint32) *entry[V] { return &c.pages[i>>pageBits][i&(pageSize-1)] }

// keyOf is the key of an entry, without prefix; it points into the entry.
func (c *cache[V]) keyOf(e *entry[V]) []byte {
	if e.klen == longKey {
		return c.keys.at(e.key[0], uint32(e.key[1]))
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&e.key)), inlineKey)[:e.klen:e.klen]
}

// physical is the key with its prefix, valid until the next call.
func (c *cache[V]) physical(key []byte) []byte {
	c.phys = append(append(c.phys[:0], c.prefix...), key...)
	return c.phys
}

// pad makes sure that a key that may be kept in an entry is followed by zeros in its capacity, so that it can be read
// as words. All keys that are looked up are padded. It may move the key.
func pad(key []byte) []byte {
	n := len(key)
	if cap(key)-n < inlineKey {
		key = append(make([]byte, 0, 2*n+2*inlineKey), key...)
	}
	*(*[inlineKey]byte)(key[n : n+inlineKey]) = [inlineKey]byte{}
	return key
}

// stored pads a key that came from the Store.
func (c *cache[V]) stored(phys []byte) []byte {
	c.probe = pad(append(c.probe[:0], phys[len(c.prefix):]...))
	return c.probe
}

// hash is that of a padded key.
func (c *cache[V]) hash(key []byte) uint32 {
	if len(key) > inlineKey {
		return c.hashLong(key)
	}
	return c.hashWords(words(key), len(key))
}

func (c *cache[V]) hashLong(key []byte) uint32 { return uint32(maphash.Bytes(c.x.s.seed, key)) }

func (c *cache[V]) hashWords(w [3]uint64, n int) uint32 {
	s := &c.x.s.mix
	h1, l1 := bits.Mul64(w[0]^s[0], w[1]^s[1])
	h2, l2 := bits.Mul64(w[2]^s[2], uint64(n)^s[3])
	h, l := bits.Mul64(h1^l1^s[3], h2^l2^s[0])
	return uint32((h ^ l) >> 32)
}

// hashOf is the hash of an entry's key.
func (c *cache[V]) hashOf(e *entry[V]) uint32 {
	if e.klen == longKey {
		return c.hashLong(c.keyOf(e))
	}
	return c.hashWords(e.key, int(e.klen))
}

// words are a padded key of up to inlineKey bytes.
func words(key []byte) [3]uint64 {
	w := key[:inlineKey]
	return [3]uint64{binary.LittleEndian.Uint64(w), binary.LittleEndian.Uint64(w[8:]), binary.LittleEndian.Uint64(w[16:])}
}

// find looks for a padded key; h is its hash. An index has more slots than there are entries, so that the bits of its
// mask hold any entry number.
func (c *cache[V]) find(h uint32, key []byte) (uint32, *entry[V]) {
	if len(key) > inlineKey {
		for index, old := c.index, c.old; index != nil; index, old = old, nil {
			mask := uint32(len(index) - 1)
			for pos := h & mask; index[pos] != 0; pos = (pos + 1) & mask {
				if slot := index[pos]; (slot^h)&^mask == 0 {
					i := slot&mask - 1
					if e := c.at(i); string(c.keyOf(e)) == string(key) {
						return i, e
					}
				}
			}
		}
		return 0, nil
	}
	n, w := uint8(len(key)), words(key)
	for index, old := c.index, c.old; index != nil; index, old = old, nil {
		mask := uint32(len(index) - 1)
		for pos := h & mask; index[pos] != 0; pos = (pos + 1) & mask {
			if slot := index[pos]; (slot^h)&^mask == 0 {
				i := slot&mask - 1
				if e := c.at(i); e.key == w && e.klen == n {
					return i, e
				}
			}
		}
	}
	return 0, nil
}

// lookup returns the entry of key, from the Store if need be. It is nil if the key is known not to exist and insert is
// false; otherwise an entry without a value stands for what does not exist.
func (c *cache[V]) lookup(key []byte, insert bool) (uint32, *entry[V]) {
	h := c.hash(key)
	if i, e := c.find(h, key); e != nil {
		return i, e
	}
	if c.complete {
		if !insert {
			return 0, nil
		}
		return c.insert(h, key)
	}
	val, ok := c.x.get(c.physical(key))
	if ok {
		c.x.check(c.prefix, key, val)
	}
	// An absent key is remembered too: a Get is mostly followed by a Set.
	i, e := c.insert(h, key)
	if ok {
		c.fill(i, e, val)
	}
	return i, e
}

// fill gives a new entry the value from the Store.
func (c *cache[V]) fill(i uint32, e *entry[V], val []byte) {
	c.decode(e, val)
	if c.x.class == encoded {
		c.encs[i>>pageBits][i&(pageSize-1)] = bytes.Clone(val)
	}
	c.resize(i, c.behind(e, len(val)))
	c.setLive(i, e, true)
}

// decode sets the value of an entry.
func (c *cache[V]) decode(e *entry[V], val []byte) { c.x.decode(c.prefix, c.keyOf(e), val, &e.val) }

// insert adds an entry without a value for a padded key; h is its hash.
func (c *cache[V]) insert(h uint32, key []byte) (uint32, *entry[V]) {
	if (c.used+1)*4 > len(c.index)*3 {
		c.grow()
	}
	c.upkeep()
	var i uint32
	if n := len(c.free); n > 0 {
		i = c.free[n-1]
		c.free = c.free[:n-1]
	} else {
		i = c.n
		if int(i>>pageBits) == len(c.pages) {
			c.pages = append(c.pages, new([pageSize]entry[V]))
			if c.x.class != plain {
				c.sizes = append(c.sizes, make([]uint32, pageSize))
			}
			if c.x.class == encoded {
				c.encs = append(c.encs, make([][]byte, pageSize))
			}
		}
		c.n++
	}
	e := c.at(i)
	*e = entry[V]{meta: flagUsed | flagRef}
	if len(key) > inlineKey {
		e.klen, e.key = longKey, [3]uint64{c.keys.add(key), uint64(len(key))}
	} else {
		e.klen, e.key = uint8(len(key)), words(key)
	}
	c.link(i, h)
	c.used++
	c.account(entrySize[V](len(key)))
	return i, e
}

// entrySize is what an entry costs, with its share of the index.
func entrySize[V any](klen int) int64 {
	var e entry[V]
	n := int64(unsafe.Sizeof(e)) + 7
	if klen > inlineKey {
		n += int64(klen)
	}
	return n
}

func (c *cache[V]) account(n int64) {
	c.bytes += n
	c.x.s.used += n
}

// resize notes the encoded size of a value with pointers; its parts in memory take about as much.
func (c *cache[V]) resize(i uint32, n int) {
	if c.x.class == plain {
		return
	}
	p := &c.sizes[i>>pageBits][i&(pageSize-1)]
	if c.x.class == encoded {
		n *= 2
	}
	c.account(int64(n) - int64(*p))
	*p = uint32(n)
}

// behind is the size to note for a value that takes n bytes encoded.
func (c *cache[V]) behind(e *entry[V], n int) int {
	if c.x.class == copied {
		return c.x.copier.Size(&e.val)
	}
	return n
}

// link puts an entry into the index.
func (c *cache[V]) link(i, h uint32) {
	mask := uint32(len(c.index) - 1)
	pos := h & mask
	for c.index[pos] != 0 {
		pos = (pos + 1) & mask
	}
	c.index[pos] = h&^mask | (i + 1)
}

// grow makes a larger index, and leaves the entries in the old one: upkeep moves them.
func (c *cache[V]) grow() {
	c.old, c.moved = c.index, 0
	c.index = make([]uint32, max(16, 2*len(c.index)))
}

// moveIndex moves what is in the next n slots of the old index, and on to a free slot: what probing for a key passes is
// moved all at once or not at all. (What began before the first slot, at the end, is found from there as long as it is there.)
func (c *cache[V]) moveIndex(n int) {
	mask := uint32(len(c.old) - 1)
	for ; c.moved < len(c.old); c.moved++ {
		slot := c.old[c.moved]
		if slot == 0 && n <= 0 {
			return
		}
		n--
		if slot != 0 {
			c.old[c.moved] = 0
			i := slot&mask - 1
			c.link(i, c.hashOf(c.at(i)))
		}
	}
	c.old = nil
}

// Upkeep with each insert or removal. A new index is full after 3/4 as many inserts as the old one has slots, so that the
// old one is gone long before; long keys are all moved while an eighth of the entries comes or goes.
const (
	moveSlots = 8 // of the old index
	moveKeys  = 8 // entries that are looked at for long keys in old chunks
)

// upkeep does a bounded piece of the work that waits.
func (c *cache[V]) upkeep() {
	if c.old != nil {
		c.moveIndex(moveSlots)
	}
	if c.keys.moving {
		c.moveKeys()
	}
}

// moveKeys moves long keys out of old chunks. When all entries were looked at these are gone.
func (c *cache[V]) moveKeys() {
	a := &c.keys
	for range moveKeys {
		if a.next >= c.n {
			a.moving = false
			return
		}
		e := c.at(a.next)
		a.next++
		if e.klen == longKey && a.chunks[e.key[0]>>32].old {
			ref := e.key[0]
			e.key[0] = a.add(c.keyOf(e))
			a.remove(ref, e.keyLen())
		}
	}
}

// remove takes an entry out. It must be clean; its values in the Store, if any, are not touched.
func (c *cache[V]) remove(i uint32, e *entry[V]) {
	h := c.hashOf(e)
	index := c.index
	mask := uint32(len(index) - 1)
	pos := h & mask
	for index[pos]&mask != i+1 {
		if index[pos] == 0 { // it was not moved yet
			index = c.old
			mask = uint32(len(index) - 1)
			pos = h & mask
			continue
		}
		pos = (pos + 1) & mask
	}
	// Move back what probing pushed behind this slot, so that no markers of deleted slots are needed.
	for next := (pos + 1) & mask; index[next] != 0; next = (next + 1) & mask {
		home := c.hashOf(c.at(index[next]&mask-1)) & mask
		if (next-home)&mask >= (next-pos)&mask {
			index[pos] = index[next]
			pos = next
		}
	}
	index[pos] = 0
	c.setLive(i, e, false)
	if c.x.class != plain {
		c.resize(i, 0)
	}
	if c.x.class == encoded {
		c.encs[i>>pageBits][i&(pageSize-1)] = nil
	}
	c.account(-entrySize[V](e.keyLen()))
	if e.klen == longKey {
		c.keys.remove(e.key[0], e.keyLen())
	}
	*e = entry[V]{}
	c.free = append(c.free, i)
	c.used--
	c.upkeep()
}

// reset empties the cache for another window. Nothing may point into it any more.
func (c *cache[V]) reset() {
	clear(c.index)
	c.old = nil
	if c.x.class != plain {
		for i := range c.pages {
			clear(c.pages[i][:])
			clear(c.sizes[i])
		}
		for i := range c.encs {
			clear(c.encs[i])
		}
	}
	c.account(-c.bytes)
	c.keys.reset(arenaKeep)
	c.n, c.used, c.live, c.hand, c.swept = 0, 0, 0, 0, 0
	c.free = c.free[:0]
	c.dirty, c.sealed = c.dirty[:0], c.sealed[:0]
	c.pend, c.pendOf = c.pend[:0], c.pendOf[:0]
	c.complete = false
}

func (c *cache[V]) setLive(i uint32, e *entry[V], live bool) {
	if (e.meta&flagLive != 0) == live {
		return
	}
	e.meta ^= flagLive
	if live {
		c.live++
	} else {
		c.live--
	}
	if c.changed != nil {
		c.changed(i, live)
	}
}

// log notes the entry as it is, before the step's first write to it.
func (c *cache[V]) log(i uint32, e *entry[V]) {
	s := c.x.s
	if e.meta&flagLogged != 0 {
		return
	}
	if len(c.undo) == 0 {
		s.touched = append(s.touched, c)
		c.dirtyMark = len(c.dirty)
	}
	if c.x.class == copied {
		c.undo = extend(c.undo)
		u := &c.undo[len(c.undo)-1]
		u.i, u.flags = i, e.meta
		c.x.copier.Copy(&u.val, &e.val)
	} else {
		u := undoRec[V]{i: i, flags: e.meta}
		if c.x.class != encoded {
			u.val = e.val
		}
		c.undo = append(c.undo, u)
	}
	e.meta |= flagLogged
}

// extend makes a slice longer by an element that is as it was left in the room behind it.
func extend[E any](s []E) []E {
	if len(s) < cap(s) {
		return s[:len(s)+1]
	}
	var e E
	return append(s, e)
}

// write logs an entry and marks it dirty.
func (c *cache[V]) write(i uint32, e *entry[V]) {
	if e.meta&flagLogged == 0 {
		c.log(i, e)
	}
	if e.meta&flagDirty == 0 {
		c.markDirty(i, e)
	}
	e.meta |= flagWrote | flagRef
}

func (c *cache[V]) markDirty(i uint32, e *entry[V]) {
	e.meta |= flagDirty
	if e.meta&flagLive != 0 {
		e.meta |= flagBase
	}
	c.dirty = append(c.dirty, i)
	c.x.s.dirty += dirtySize(e)
}

func dirtySize[V any](e *entry[V]) int64 { return int64(e.keyLen()) + int64(unsafe.Sizeof(e.val)) }

// get returns the value of key, or nil.
func (c *cache[V]) get(key []byte) *V {
	i, e := c.lookup(key, false)
	if e == nil || e.meta&flagLive == 0 {
		return nil
	}
	if c.x.class == encoded {
		// What the caller changes behind pointers before it says Set is undone too.
		c.log(i, e)
	}
	e.meta |= flagRef
	return &e.val
}

// update returns the value of key for writing; it is zero and now exists if it did not before.
func (c *cache[V]) update(key []byte) (*V, bool) {
	i, e := c.lookup(key, true)
	c.write(i, e)
	if e.meta&flagLive != 0 {
		return &e.val, true
	}
	c.setLive(i, e, true)
	return &e.val, false
}

// delete removes the value of key and reports whether there was one.
func (c *cache[V]) delete(key []byte) bool {
	i, e := c.lookup(key, false)
	if e == nil || e.meta&flagLive == 0 {
		return false
	}
	c.erase(i, e)
	return true
}

// erase removes the value of an entry that has one.
func (c *cache[V]) erase(i uint32, e *entry[V]) {
	c.write(i, e)
	c.setLive(i, e, false)
	c.died++
	var zero V
	e.val = zero
}

// maxIdleUndo bounds the copies of values that are kept for reuse between steps.
const maxIdleUndo = 16

func (c *cache[V]) end() {
	for j := range c.undo {
		c.at(c.undo[j].i).meta &^= flagLogged
	}
	switch c.x.class {
	case copied:
		for j := range c.undo {
			i := c.undo[j].i
			c.resize(i, c.x.copier.Size(&c.at(i).val))
		}
		if len(c.undo) > maxIdleUndo {
			c.undo = nil
		}
	case encoded:
		for j := range c.undo {
			i := c.undo[j].i
			e := c.at(i)
			if e.meta&flagWrote == 0 {
				continue
			}
			enc := &c.encs[i>>pageBits][i&(pageSize-1)]
			if e.meta&flagLive != 0 {
				*enc = c.x.append((*enc)[:0], &e.val)
			} else {
				*enc = nil
			}
			c.resize(i, len(*enc))
			e.meta &^= flagWrote
		}
		clear(c.undo)
	case strung:
		clear(c.undo)
	}
	if c.died > 0 {
		c.bury()
	}
	c.undo = c.undo[:0]
}

// bury drops the entries of the step that were born in the running epoch and have died: they leave no trace, and those
// that live stay close together. In dirty they are stepped over.
func (c *cache[V]) bury() {
	c.died = 0
	if c.x.s.iterating > 0 { // it may look at their keys; Seal drops them
		return
	}
	for j := range c.undo {
		i := c.undo[j].i
		if e := c.at(i); e.meta&(flagUsed|flagDirty|flagLive|flagBase|flagSealed) == flagUsed|flagDirty && e.pend == 0 {
			c.x.s.dirty -= dirtySize(e)
			e.meta &^= flagDirty
			c.remove(i, e)
		}
	}
}

func (c *cache[V]) rollback() {
	for j := len(c.undo) - 1; j >= 0; j-- {
		u := &c.undo[j]
		e := c.at(u.i)
		live := u.flags&flagLive != 0
		e.val, u.val = u.val, e.val
		if c.x.class == encoded && live {
			c.decode(e, c.encs[u.i>>pageBits][u.i&(pageSize-1)])
		}
		c.setLive(u.i, e, live)
		e.meta = u.flags
	}
	c.dirty = c.dirty[:c.dirtyMark]
	for j := range c.undo {
		i := c.undo[j].i
		c.drop(i, c.at(i))
	}
	clear(c.undo)
	c.undo, c.died = c.undo[:0], 0
}

// drop removes an entry that stands for nothing.
func (c *cache[V]) drop(i uint32, e *entry[V]) {
	if e.meta&flagUsed != 0 && e.meta&(flagLive|flagDirty|flagSealed) == 0 && e.pend == 0 {
		c.remove(i, e)
	}
}

func (c *cache[V]) seal() {
	if len(c.dirty) == 0 {
		return
	}
	s := c.x.s
	c.sealedAt = len(s.changes)
	for _, i := range c.dirty {
		e := c.at(i)
		if e.meta&flagDirty == 0 { // it died before, or came twice
			continue
		}
		if e.meta&(flagLive|flagBase) == 0 {
			e.meta &^= flagDirty
			c.drop(i, e)
			continue
		}
		s.changes = append(s.changes, c.change(i, e))
		c.sealed = append(c.sealed, i)
		e.meta = e.meta&^(flagDirty|flagBase) | flagSealed
	}
	c.dirty = c.dirty[:0]
	if len(c.sealed) > 0 {
		c.x.use()
	}
}

// change encodes an entry into the arena of the sealed epoch, and lets go of what the value shares with fetched
// records: strings, or whatever the user put into it.
func (c *cache[V]) change(i uint32, e *entry[V]) Change {
	s := c.x.s
	b := append(append(s.arena.tail(), c.prefix...), c.keyOf(e)...)
	n := len(b)
	switch {
	case e.meta&flagLive == 0:
	case c.x.class == encoded:
		b = append(b, c.encs[i>>pageBits][i&(pageSize-1)]...)
	default:
		b = c.x.append(b, &e.val)
	}
	b = s.arena.keep(b)
	ch := Change{Changelog: c.x.changelog, Key: b[:n:n]}
	if e.meta&flagLive != 0 {
		ch.Value = b[n:]
		if c.x.class != plain && !c.x.owned && (c.x.class != copied || !c.x.copier.Own(&e.val)) {
			c.decode(e, ch.Value)
		}
		if c.x.class == strung || c.x.class == copied {
			c.resize(i, c.behind(e, len(ch.Value)))
		}
	}
	return ch
}

func (c *cache[V]) committed() {
	s := c.x.s
	for j, i := range c.sealed {
		e := c.at(i)
		e.meta &^= flagSealed
		if e.pend == 0 {
			c.pend = append(c.pend, pendRec{})
			c.pendOf = append(c.pendOf, i)
			e.pend = uint32(len(c.pend))
			s.pend.bytes += int64(e.keyLen()) + pendOverhead
		}
		s.pend.put(&c.pend[e.pend-1], s.changes[c.sealedAt+j].Value)
	}
	c.sealed = c.sealed[:0]
}

// gather puts what is pending into a batch, in the order of keys.
func (c *cache[V]) gather(b Batch) {
	s := c.x.s
	keyOf := func(j uint32) []byte { return c.keyOf(c.at(c.pendOf[j])) }
	keys := slices.Grow(s.keys[:0], len(c.pendOf))
	for j := range c.pendOf {
		keys = append(keys, newSortKey(keyOf(uint32(j)), j))
	}
	s.keys, s.spare = sortKeys(keys, s.spare, keyOf)
	for _, k := range s.keys {
		s.put(b, c.physical(keyOf(k.j)), &c.pend[k.j])
	}
}

func (c *cache[V]) written() {
	for _, i := range c.pendOf {
		e := c.at(i)
		e.pend = 0
		c.drop(i, e)
	}
	c.pend, c.pendOf = c.pend[:0], c.pendOf[:0]
}

// forget discards what is pending, of a window that is gone.
func (c *cache[V]) forget() {
	for j, i := range c.pendOf {
		c.x.s.pend.bytes -= int64(c.at(i).keyLen()) + pendOverhead + int64(c.pend[j].cap)
	}
	c.pend, c.pendOf = c.pend[:0], c.pendOf[:0]
}

// evict drops clean entries that were not looked at for a round of the clock, of which it makes two at most.
func (c *cache[V]) evict(w *sweep) (ended bool) {
	before := c.bytes
	for ; w.looks > 0; w.looks-- {
		if ended = w.want <= before-c.bytes || c.swept >= 2*c.n; ended {
			c.swept = 0
			break
		}
		if c.hand >= c.n {
			c.hand = 0
		}
		i := c.hand
		c.hand++
		c.swept++
		e := c.at(i)
		switch {
		case e.meta&flagUsed == 0 || e.meta&(flagDirty|flagSealed) != 0 || e.pend != 0:
		case e.meta&flagRef != 0:
			e.meta &^= flagRef
		default:
			if e.meta&flagLive != 0 {
				c.complete = false
			}
			c.remove(i, e)
		}
	}
	w.want -= before - c.bytes
	return ended
}

// load fills an empty cache from the Store, as long as the caches are less than 3/4 full. If all fits, with all that the
// Store can lend, the cache is complete from then on.
func (c *cache[V]) load() {
	s := c.x.s
	limit := s.room / 4 * 3
	fits := s.store.Size() <= s.maxBytes // entries take more here than on the disk
	c.complete = true
	c.x.scan(c.prefix, successor(c.prefix), func(key, val []byte) bool {
		if s.used >= limit {
			if !fits || !s.borrow() {
				c.complete = false
				return false
			}
			limit = s.room / 32 * 31
		}
		if !c.x.readable(c.prefix, key[len(c.prefix):], val) {
			c.complete = false // who asks for it hears why
			return true
		}
		key = c.stored(key)
		i, e := c.insert(c.hash(key), key)
		c.fill(i, e, val)
		return true
	})
	s.reads = 0
}

// each calls fn for each live entry until it returns false: in key order if sorted is asked for or part of them are
// in the Store only, else in an order that depends only on the order of writes. Keys come without prefix.
func (c *cache[V]) each(sorted bool, fn func(key []byte, v *V) bool) {
	s := c.x.s
	s.iterating++
	defer func() { s.iterating-- }()
	n := c.n
	if c.complete && !sorted {
		for i := range n {
			e := c.at(i)
			if e.meta&flagLive == 0 {
				continue
			}
			if !fn(c.keyOf(e), c.visit(i, e)) {
				return
			}
		}
		return
	}
	items := make([]keyItem, 0, c.used)
	idx := make([]uint32, 0, c.used)
	for i := range n {
		if e := c.at(i); e.meta&flagUsed != 0 {
			items = append(items, newKeyItem(c.keyOf(e)))
			idx = append(idx, i)
		}
	}
	order := make([]uint32, len(items))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(a, b uint32) int { return items[a].compare(&items[b]) })
	j := 0
	// cached visits cached entries below key; it stops at stop.
	cached := func(below []byte) bool {
		for ; j < len(order) && (below == nil || bytes.Compare(items[order[j]].key, below) < 0); j++ {
			i := idx[order[j]]
			if e := c.at(i); e.meta&flagLive != 0 && !fn(items[order[j]].key, c.visit(i, e)) {
				return false
			}
		}
		return true
	}
	if c.complete {
		cached(nil)
		return
	}
	var scratch V
	stopped := false
	c.x.scan(c.prefix, successor(c.prefix), func(key, val []byte) bool {
		key = key[len(c.prefix):]
		if stopped = !cached(key); stopped {
			return false
		}
		if j < len(order) && bytes.Equal(items[order[j]].key, key) {
			return true // the cached entry is newer; it is visited next
		}
		// Written since the iteration began and cached now: not before the end of it.
		c.probe = pad(append(c.probe[:0], key...))
		if _, e := c.find(c.hash(c.probe), c.probe); e != nil {
			if e.meta&flagLive == 0 {
				return true
			}
			stopped = !fn(key, &e.val)
			return !stopped
		}
		c.x.decode(c.prefix, key, val, &scratch)
		stopped = !fn(key, &scratch)
		return !stopped
	})
	if !stopped {
		cached(nil)
	}
}

// visit hands out a value for reading.
func (c *cache[V]) visit(i uint32, e *entry[V]) *V {
	if c.x.class == encoded {
		c.log(i, e)
	}
	return &e.val
}
