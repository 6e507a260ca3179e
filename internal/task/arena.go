package task

// chunkSize is the size of one piece of output memory.
const chunkSize = 256 << 10

// maxFreeChunks bounds the memory kept for reuse by one task (4 MiB); what a burst needed beyond goes to the GC.
const maxFreeChunks = 16

// arena holds the bytes of outputs in chunks. They are filled by one epoch, stay untouched while that epoch is
// sealed, and are recycled when it is committed.
type arena struct {
	chunks [][]byte // of the running epoch; the last one is being filled, its length is what is used
	sealed [][]byte
	free   [][]byte
	want   int // room that an output is likely to need
}

type arenaMark struct{ chunks, used int }

func (a *arena) mark() arenaMark {
	if len(a.chunks) == 0 {
		return arenaMark{}
	}
	return arenaMark{len(a.chunks), len(a.chunks[len(a.chunks)-1])}
}

// reset forgets what was kept since the mark.
func (a *arena) reset(m arenaMark) {
	for len(a.chunks) > m.chunks {
		last := len(a.chunks) - 1
		a.release(a.chunks[last])
		a.chunks = a.chunks[:last]
	}
	if m.chunks > 0 {
		a.chunks[m.chunks-1] = a.chunks[m.chunks-1][:m.used]
	}
}

func (a *arena) release(c []byte) {
	if len(a.free) < maxFreeChunks {
		a.free = append(a.free, c[:0])
	}
}

// buf returns an empty, never nil slice to append one output part to; keep takes it back.
func (a *arena) buf() []byte {
	if n := len(a.chunks); n > 0 {
		if c := a.chunks[n-1]; cap(c)-len(c) >= a.want {
			return c[len(c):len(c):cap(c)]
		}
	}
	var c []byte
	if n := len(a.free); n > 0 {
		c, a.free = a.free[n-1], a.free[:n-1]
	} else {
		c = make([]byte, 0, chunkSize)
	}
	a.chunks = append(a.chunks, c)
	return c
}

// keep makes what was appended to buf part of the running epoch. An append that outgrew the chunk has memory of its
// own already, which is kept as it is.
func (a *arena) keep(b []byte) []byte {
	n := len(b)
	if n == 0 {
		return b
	}
	if n > a.want {
		a.want = min(n, chunkSize/4)
	}
	last := len(a.chunks) - 1
	c := a.chunks[last]
	if cap(c)-len(c) >= n && &b[0] == &c[:len(c)+1][len(c)] {
		a.chunks[last] = c[:len(c)+n]
	}
	return b[:n:n]
}

// seal sets the running epoch's chunks aside.
func (a *arena) seal() {
	a.sealed, a.chunks = a.chunks, a.sealed[:0]
}

// committed recycles the chunks of the sealed epoch.
func (a *arena) committed() {
	for i, c := range a.sealed {
		a.release(c)
		a.sealed[i] = nil
	}
	a.sealed = a.sealed[:0]
}
