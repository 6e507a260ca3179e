package statestore

// keyArena holds the long keys of a cache. Like byteArena it is addressed by numbers, and what was written is never written
// over, so that an iteration may go on looking at keys that were moved or removed meanwhile. A chunk without keys is let
// go. Once a third of all is garbage, the cache moves the keys out of the chunks that have most of it, a few with each
// of its calls.
type keyArena struct {
	chunks  []keyChunk
	gone    []uint32 // numbers of chunks that were let go
	spare   [][]byte
	fill    uint32 // number + 1 of the chunk that takes keys; 0: none
	used    int    // bytes of keys
	garbage int    // bytes of removed keys in chunks that are there
	moving  bool   // keys are being moved out of the old chunks
	next    uint32 // the entry of the cache that is looked at next
}

type keyChunk struct {
	b    []byte
	live int  // bytes of keys in it
	old  bool // its keys are being moved away
}

// add copies a key and returns its place.
func (a *keyArena) add(key []byte) uint64 {
	if a.fill == 0 || cap(a.chunks[a.fill-1].b)-len(a.chunks[a.fill-1].b) < len(key) {
		a.begin(len(key))
	}
	c := &a.chunks[a.fill-1]
	off := len(c.b)
	c.b = append(c.b, key...)
	c.live += len(key)
	a.used += len(key)
	return uint64(a.fill-1)<<32 | uint64(off)
}

// begin makes a chunk with room for n bytes the one that is filled.
func (a *keyArena) begin(n int) {
	first := len(a.chunks) == 0
	a.end()
	var b []byte
	switch m := len(a.spare); {
	case n > arenaChunk:
		b = make([]byte, 0, n)
	case m > 0:
		b, a.spare = a.spare[m-1], a.spare[:m-1]
	case first:
		b = make([]byte, 0, max(n, 4<<10)) // small stores stay small
	default:
		b = make([]byte, 0, arenaChunk)
	}
	if m := len(a.gone); m > 0 {
		a.fill, a.gone = a.gone[m-1]+1, a.gone[:m-1]
		a.chunks[a.fill-1].b = b
		return
	}
	a.chunks = append(a.chunks, keyChunk{b: b})
	a.fill = uint32(len(a.chunks))
}

// end takes no more keys into the chunk that is filled.
func (a *keyArena) end() {
	n := a.fill
	a.fill = 0
	if n != 0 && a.chunks[n-1].live == 0 {
		a.letGo(n - 1)
	}
}

func (a *keyArena) letGo(n uint32) {
	a.garbage -= len(a.chunks[n].b)
	a.chunks[n] = keyChunk{}
	a.gone = append(a.gone, n)
}

func (a *keyArena) at(ref uint64, n uint32) []byte {
	off := uint32(ref)
	return a.chunks[ref>>32].b[off : off+n : off+n]
}

// remove makes a key of n bytes garbage.
func (a *keyArena) remove(ref uint64, n int) {
	no := uint32(ref >> 32)
	c := &a.chunks[no]
	c.live -= n
	a.used -= n
	a.garbage += n
	if c.live == 0 && no+1 != a.fill {
		a.letGo(no)
	}
	if !a.moving && a.garbage > arenaChunk && a.garbage > a.used/2 {
		a.beginMoving()
	}
}

// beginMoving makes those chunks old of which more than a quarter is garbage.
func (a *keyArena) beginMoving() {
	a.moving, a.next = true, 0
	for i := range a.chunks {
		c := &a.chunks[i]
		c.old = len(c.b)-c.live > len(c.b)/4
	}
	if a.fill != 0 && a.chunks[a.fill-1].old {
		a.end()
	}
}

// reset empties the arena; up to keep chunks of the usual size are used again.
func (a *keyArena) reset(keep int) {
	for _, c := range a.chunks {
		if cap(c.b) == arenaChunk && len(a.spare) < keep {
			a.spare = append(a.spare, c.b[:0])
		}
	}
	clear(a.chunks)
	*a = keyArena{chunks: a.chunks[:0], gone: a.gone[:0], spare: a.spare}
}
