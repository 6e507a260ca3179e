package statestore

import "fmt"

// SetNearTimers makes the near heap of the timers made from now on hold n to 2n timers.
func (s *State) SetNearTimers(n int) { s.near = n }

// CacheUsed is what the caches take, as eviction counts it.
func (s *State) CacheUsed() int64 { return s.used }

// KeyBytes is the room that long keys take, with that of removed ones.
func (t *Table[K, V]) KeyBytes() (n int) {
	for _, c := range t.c.keys.chunks {
		n += cap(c.b)
	}
	return n
}

// Upkeep says what the cache is at: filling a larger index, moving long keys.
func (t *Table[K, V]) Upkeep() (index, keys bool) { return t.c.old != nil, t.c.keys.moving }

// Check says what is wrong with the bookkeeping of the cache.
func (t *Table[K, V]) Check() error {
	c := &t.c
	used, live, bytes := 0, 0, int64(0)
	chunks := make([]int, len(c.keys.chunks))
	for i := range c.n {
		e := c.at(i)
		if e.meta&flagUsed == 0 {
			continue
		}
		used++
		if e.meta&flagLive != 0 {
			live++
		}
		bytes += entrySize[V](e.keyLen())
		if c.x.class != plain {
			bytes += int64(c.sizes[i>>pageBits][i&(pageSize-1)])
		}
		if e.klen == longKey {
			chunks[e.key[0]>>32] += e.keyLen()
		}
		key := pad(append([]byte{}, c.keyOf(e)...))
		if j, _ := c.find(c.hash(key), key); j != i || c.hash(key) != c.hashOf(e) {
			return fmt.Errorf("entry %d (%q) is found as entry %d", i, key, j)
		}
	}
	slots := 0
	for _, index := range [][]uint32{c.index, c.old} {
		for _, slot := range index {
			if slot != 0 {
				slots++
			}
		}
	}
	if used != c.used || used != slots || used+len(c.free) != int(c.n) || live != c.live || bytes != c.bytes {
		return fmt.Errorf("%d entries, %d live, %d bytes, %d slots, %d of %d free; noted are %d, %d, %d", used, live, bytes, slots, len(c.free), c.n, c.used, c.live, c.bytes)
	}
	long, garbage, gone := 0, 0, 0
	for i, k := range c.keys.chunks {
		long, garbage = long+chunks[i], garbage+len(k.b)-k.live
		if k.b == nil {
			gone++
		}
		if k.live != chunks[i] || k.live == 0 && k.b != nil && i+1 != int(c.keys.fill) {
			return fmt.Errorf("chunk %d has %d bytes of keys, noted are %d", i, chunks[i], k.live)
		}
	}
	if long != c.keys.used || garbage != c.keys.garbage || gone != len(c.keys.gone) {
		return fmt.Errorf("%d bytes of long keys, %d of garbage, %d chunks gone; noted are %d, %d, %d", long, garbage, gone, c.keys.used, c.keys.garbage, len(c.keys.gone))
	}
	return nil
}

// Check says what is wrong with the bookkeeping of the cache.
func (m *Map[K, MK, V]) Check() error {
	b, bytes := &m.b, int64(0)
	for _, k := range b.m {
		bytes += b.bucketSize(k)
		for _, e := range k.elems {
			bytes += b.elemSize(e)
		}
	}
	if bytes != b.bytes {
		return fmt.Errorf("buckets take %d bytes, noted are %d", bytes, b.bytes)
	}
	return nil
}
