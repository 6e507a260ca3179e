package pebblestore

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace-stream/millrace/statestore"
)

// cursor walks entries in the order of keys, each key once. A nil value is a tombstone. key and value are valid until
// the next call.
type cursor interface {
	next() bool
	entry() (key, value []byte)
	err() error
	close()
}

// chunkBytes is the size of the pieces that a sortBuffer takes its memory in.
const chunkBytes = 1 << 20

// sortBuffer gathers entries in memory. It keeps its memory from one use to the next.
type sortBuffer struct {
	chunks [][]byte // keys and values, one behind the other; the last one in use takes more
	used   int      // chunks in use
	refs   []sortRef
	size   int // bytes of entries and refs
}

// sortRef is an entry; its key lies at off, its value behind it. Refs have no pointers, so that the garbage collector
// does not look at them.
type sortRef struct {
	prefix     uint64 // eight bytes of the key, behind those that all keys have in common
	chunk, off uint32 // higher = later
	key        uint32
	value      int32 // -1: a tombstone
}

// sortRefBytes is what an entry takes besides its bytes, with an allowance for the room in refs that is not in use.
const sortRefBytes = 36

func (b *sortBuffer) add(key, value []byte) {
	need := len(key) + len(value)
	if b.used == 0 || cap(b.chunks[b.used-1])-len(b.chunks[b.used-1]) < need {
		b.grow(need)
	}
	c := b.chunks[b.used-1]
	r := sortRef{chunk: uint32(b.used - 1), off: uint32(len(c)), key: uint32(len(key)), value: int32(len(value))}
	if value == nil {
		r.value = -1
	}
	b.chunks[b.used-1] = append(append(c, key...), value...)
	b.refs = append(b.refs, r)
	b.size += need + sortRefBytes
}

// grow takes the next chunk, with room for need bytes.
func (b *sortBuffer) grow(need int) {
	if b.used == len(b.chunks) {
		b.chunks = append(b.chunks, nil)
	}
	if cap(b.chunks[b.used]) < need {
		b.chunks[b.used] = make([]byte, 0, max(need, chunkBytes))
	}
	b.used++
}

func (b *sortBuffer) reset() {
	for i, c := range b.chunks {
		if cap(c) > chunkBytes {
			c = nil
		}
		b.chunks[i] = c[:0]
	}
	b.refs, b.used, b.size = b.refs[:0], 0, 0
}

func (b *sortBuffer) keyOf(r *sortRef) []byte { return b.chunks[r.chunk][r.off : r.off+r.key] }

func (b *sortBuffer) valueOf(r *sortRef) []byte {
	if r.value < 0 {
		return nil
	}
	at := r.off + r.key
	return b.chunks[r.chunk][at : at+uint32(r.value) : at+uint32(r.value)]
}

// sort puts the entries in the order of keys; of equal keys the last that was added comes last.
func (b *sortBuffer) sort() {
	if len(b.refs) == 0 {
		return
	}
	first := b.keyOf(&b.refs[0])
	common := len(first)
	for i := range b.refs {
		k := b.keyOf(&b.refs[i])
		common = min(common, len(k))
		for j := range common {
			if k[j] != first[j] {
				common = j
				break
			}
		}
	}
	for i := range b.refs {
		b.refs[i].prefix = prefixOf(b.keyOf(&b.refs[i])[common:])
	}
	slices.SortFunc(b.refs, func(x, y sortRef) int {
		if x.prefix != y.prefix {
			if x.prefix < y.prefix {
				return -1
			}
			return 1
		}
		if c := bytes.Compare(b.keyOf(&x)[common:], b.keyOf(&y)[common:]); c != 0 {
			return c
		}
		if x.chunk != y.chunk {
			return int(x.chunk) - int(y.chunk)
		}
		return int(x.off) - int(y.off)
	})
}

// prefixOf is the first eight bytes of a key as a number that orders as they do; a short key is filled up with zeros, so
// that equal prefixes say nothing.
func prefixOf(key []byte) uint64 {
	if len(key) >= 8 {
		return binary.BigEndian.Uint64(key)
	}
	var full [8]byte
	copy(full[:], key)
	return binary.BigEndian.Uint64(full[:])
}

// cursor walks the buffer after sort.
func (b *sortBuffer) cursor() *bufferCursor { return &bufferCursor{b: b} }

type bufferCursor struct {
	b          *sortBuffer
	at         int
	key, value []byte
}

func (c *bufferCursor) next() bool {
	refs := c.b.refs
	if c.at == len(refs) {
		return false
	}
	r := &refs[c.at]
	c.key = c.b.keyOf(r)
	for c.at++; c.at < len(refs); c.at++ { // the last one of equal keys counts
		n := &refs[c.at]
		if n.prefix != r.prefix || !bytes.Equal(c.b.keyOf(n), c.key) {
			break
		}
		r = n
	}
	c.value = c.b.valueOf(r)
	return true
}

func (c *bufferCursor) entry() (key, value []byte) { return c.key, c.value }
func (c *bufferCursor) err() error                 { return nil }
func (c *bufferCursor) close()                     {}

// run is a file of sorted entries: for each the length of the key, 0 or the length of the value + 1, as uvarints, and
// both. It does not outlive the process.
type run struct {
	path string
	size int64
	crc  uint32 // Castagnoli
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// writeRun writes a sorted buffer. It is not synced: a crash of the machine loses it.
func writeRun(fs vfs.FS, path string, b *sortBuffer) (_ run, err error) {
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return run{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	sum := &summed{w: f}
	w := bufio.NewWriterSize(sum, 2*runBuffer)
	var head []byte
	for c := b.cursor(); c.next(); {
		head = binary.AppendUvarint(head[:0], uint64(len(c.key)))
		n := uint64(0)
		if c.value != nil {
			n = uint64(len(c.value)) + 1
		}
		head = binary.AppendUvarint(head, n)
		// The error stays in the writer.
		_, _ = w.Write(head)
		_, _ = w.Write(c.key)
		_, _ = w.Write(c.value)
	}
	if err := w.Flush(); err != nil {
		return run{}, err
	}
	return run{path, sum.n, sum.crc}, nil
}

// summed counts and sums up what is written. It gives the file a copy, which the file may change.
type summed struct {
	w   io.Writer
	n   int64
	crc uint32
	buf []byte
}

func (s *summed) Write(p []byte) (int, error) {
	s.crc = crc32.Update(s.crc, castagnoli, p)
	s.n += int64(len(p))
	s.buf = append(s.buf[:0], p...)
	return s.w.Write(s.buf)
}

// runCursor reads a run, and compares it with its sum at the end.
type runCursor struct {
	run        run
	f          vfs.File
	r          *bufio.Reader
	n          int64
	crc        uint32
	buf        []byte
	key, value []byte
	failed     error
}

func openRun(fs vfs.FS, r run) (*runCursor, error) {
	f, err := fs.Open(r.path, vfs.SequentialReadsOption)
	if err != nil {
		return nil, err
	}
	c := &runCursor{run: r, f: f}
	c.r = bufio.NewReaderSize(runReader{c}, runBuffer)
	return c, nil
}

// runReader sums up what is read of a run.
type runReader struct{ c *runCursor }

func (r runReader) Read(p []byte) (int, error) {
	n, err := r.c.f.Read(p)
	r.c.n += int64(n)
	r.c.crc = crc32.Update(r.c.crc, castagnoli, p[:n])
	return n, err
}

func (c *runCursor) next() bool {
	if c.failed != nil {
		return false
	}
	if _, err := c.r.Peek(1); errors.Is(err, io.EOF) {
		if c.n != c.run.size || c.crc != c.run.crc {
			c.failed = c.damaged(errors.New("it is not what was written"))
		}
		return false
	}
	k, err := binary.ReadUvarint(c.r)
	if err != nil {
		return c.fail(err)
	}
	v, err := binary.ReadUvarint(c.r)
	if err != nil {
		return c.fail(err)
	}
	if k > maxBatch || v > maxBatch+1 {
		return c.fail(errors.New("it holds an impossible length"))
	}
	n := int(k)
	if v > 0 {
		n += int(v) - 1
	}
	c.buf = slices.Grow(c.buf[:0], n)[:n]
	if _, err := io.ReadFull(c.r, c.buf); err != nil {
		return c.fail(err)
	}
	c.key, c.value = c.buf[:k], nil
	if v > 0 {
		c.value = c.buf[k:n:n]
	}
	return true
}

func (c *runCursor) fail(err error) bool {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("it is cut short")
	}
	c.failed = c.damaged(err)
	return false
}

func (c *runCursor) damaged(err error) error {
	return fmt.Errorf("%w: read sorted entries from %s: %w", statestore.ErrCorrupt, c.run.path, err)
}

func (c *runCursor) entry() (key, value []byte) { return c.key, c.value }
func (c *runCursor) err() error                 { return c.failed }
func (c *runCursor) close()                     { _ = c.f.Close() } // it was only read

// merge walks several cursors at once, of which those before others are newer: of equal keys theirs count.
type merge struct {
	all        []cursor
	keys       [][]byte // of the cursors, where they are
	heap       []int    // of the cursors that are not at their end, by index in all; the lowest key is first
	started    bool
	key, value []byte // key is a copy
	failed     error
}

func newMerge(all []cursor) *merge {
	m := &merge{all: all, keys: make([][]byte, len(all))}
	for i := range all {
		if m.advance(i) {
			m.heap = append(m.heap, i)
		}
	}
	for i := len(m.heap)/2 - 1; i >= 0; i-- {
		m.down(i)
	}
	return m
}

// next moves to the next key; false at the end and at the first error.
func (m *merge) next() bool {
	for m.started && len(m.heap) > 0 && bytes.Equal(m.keys[m.heap[0]], m.key) {
		m.pop()
	}
	if len(m.heap) == 0 || m.failed != nil {
		return false
	}
	m.started = true
	key, value := m.all[m.heap[0]].entry()
	m.key, m.value = append(m.key[:0], key...), value
	return true
}

func (m *merge) entry() (key, value []byte) { return m.key, m.value }
func (m *merge) err() error                 { return m.failed }

// advance moves one cursor; false if it is at its end.
func (m *merge) advance(i int) bool {
	if !m.all[i].next() {
		if err := m.all[i].err(); err != nil && m.failed == nil {
			m.failed = err
		}
		return false
	}
	m.keys[i], _ = m.all[i].entry()
	return true
}

func (m *merge) less(i, j int) bool {
	c := bytes.Compare(m.keys[i], m.keys[j])
	return c < 0 || c == 0 && i < j
}

// down puts the heap's entry at its place below.
func (m *merge) down(at int) {
	for {
		least := at
		for child := 2*at + 1; child <= 2*at+2 && child < len(m.heap); child++ {
			if m.less(m.heap[child], m.heap[least]) {
				least = child
			}
		}
		if least == at {
			return
		}
		m.heap[at], m.heap[least] = m.heap[least], m.heap[at]
		at = least
	}
}

// pop moves the cursor with the lowest key.
func (m *merge) pop() {
	if !m.advance(m.heap[0]) {
		last := len(m.heap) - 1
		m.heap[0] = m.heap[last]
		m.heap = m.heap[:last]
	}
	if len(m.heap) > 0 {
		m.down(0)
	}
}
