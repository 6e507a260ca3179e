package row

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
)

// wire is the packed form of a word or of two.
type wire uint8

const (
	wireView wire = iota // text, bytes, nested: a length and bytes
	wire1                // one byte, unsigned: BOOLEAN
	wireI8
	wireI16
	wireI32
	wireF32
	wire8
	wire12 // ms, and nanoseconds in 4 bytes
	wire16
)

// shape is how values of a type lie in rows and packed values.
type shape struct {
	wire  wire
	words uint8 // in a Row; 0: a view
	width uint8 // packed bytes; 0: variable
	row   *rowShape
	pair  *Type // of MAP and MULTISET: the ARRAYs of the keys and of the values
	pair2 *Type
}

func shapeOf(t *Type) shape {
	switch t.kind {
	case KindNull, KindBoolean:
		return shape{wire: wire1, words: 1, width: 1}
	case KindTinyInt:
		return shape{wire: wireI8, words: 1, width: 1}
	case KindSmallInt:
		return shape{wire: wireI16, words: 1, width: 2}
	case KindInt, KindDate, KindTime, KindIntervalMonth:
		return shape{wire: wireI32, words: 1, width: 4}
	case KindFloat:
		return shape{wire: wireF32, words: 1, width: 4}
	case KindBigInt, KindDouble, KindIntervalDay:
		return shape{wire: wire8, words: 1, width: 8}
	case KindTimestamp, KindTimestampLTZ:
		if t.precision <= 3 {
			return shape{wire: wire8, words: 1, width: 8}
		}
		return shape{wire: wire12, words: 2, width: 12}
	case KindDecimal:
		if t.precision <= 18 {
			return shape{wire: wire8, words: 1, width: 8}
		}
		return shape{wire: wire16, words: 2, width: 16}
	case KindRow:
		return shape{row: newRowShape(t.fields)}
	case KindMap:
		return shape{pair: Array(t.key), pair2: Array(t.elem)}
	case KindMultiset:
		return shape{pair: Array(t.elem), pair2: Array(Int().NotNull())}
	}
	return shape{}
}

// putWords writes words of a wire form that is not wireView to b, which is long enough.
func putWords(b []byte, w wire, x, y uint64) {
	switch w {
	case wire1, wireI8:
		b[0] = byte(x)
	case wireI16:
		binary.LittleEndian.PutUint16(b, uint16(x))
	case wireI32:
		binary.LittleEndian.PutUint32(b, uint32(x))
	case wireF32:
		binary.LittleEndian.PutUint32(b, math.Float32bits(float32(math.Float64frombits(x))))
	case wire8:
		binary.LittleEndian.PutUint64(b, x)
	case wire12:
		binary.LittleEndian.PutUint64(b, x)
		binary.LittleEndian.PutUint32(b[8:], uint32(y))
	case wire16:
		binary.LittleEndian.PutUint64(b, x)
		binary.LittleEndian.PutUint64(b[8:], y)
	}
}

// getWords reads what putWords wrote.
func getWords(b []byte, w wire) (x, y uint64) {
	switch w {
	case wire1:
		return uint64(b[0]), 0
	case wireI8:
		return uint64(int8(b[0])), 0
	case wireI16:
		return uint64(int16(binary.LittleEndian.Uint16(b))), 0
	case wireI32:
		return uint64(int32(binary.LittleEndian.Uint32(b))), 0
	case wireF32:
		return math.Float64bits(float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))), 0
	case wire8:
		return binary.LittleEndian.Uint64(b), 0
	case wire12:
		return binary.LittleEndian.Uint64(b), uint64(binary.LittleEndian.Uint32(b[8:]))
	case wire16:
		return binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	}
	return 0, 0
}

// packedVersion is the first byte of a packed row. A later form gets another number.
const packedVersion = 1

// ErrPacked is wrapped by the errors of reading packed rows, packed nested values and keys.
var ErrPacked = errors.New("the bytes are cut off or damaged")

// rowCodec is the plan of a layout's packed form: version, null bits, the words of columns that are not NULL, grouped by
// width, then the views, each with its length in front.
type rowCodec struct {
	nullBytes  int
	fixed      int       // bytes of all words if nothing is NULL
	ops        []packOp  // in the order of the packed form
	groups     []packRun // the same for a row without NULL: equal wire forms together
	viewColumn []int     // column of each view
}

type packOp struct {
	column int
	word   int
	wire   wire
	width  uint8
}

type packRun struct {
	wire  wire
	words []int
}

func newRowCodec(l *Layout) rowCodec {
	c := rowCodec{nullBytes: (len(l.types) + 7) / 8, viewColumn: make([]int, l.views)}
	for i, t := range l.types {
		p := l.places[i]
		if p.Bank == Views {
			c.viewColumn[p.Index] = i
			continue
		}
		c.ops = append(c.ops, packOp{i, p.Index, t.shape.wire, t.shape.width})
		c.fixed += int(t.shape.width)
	}
	slices.SortStableFunc(c.ops, func(a, b packOp) int { return int(b.wire) - int(a.wire) })
	for _, o := range c.ops {
		if n := len(c.groups); n > 0 && c.groups[n-1].wire == o.wire {
			c.groups[n-1].words = append(c.groups[n-1].words, o.word)
		} else {
			c.groups = append(c.groups, packRun{o.wire, []int{o.word}})
		}
	}
	return c
}

// Schema describes the packed form, for the Schema of a store's codec: the types without nullability.
func (l *Layout) Schema() string {
	var b strings.Builder
	b.WriteString("row1<")
	for i, t := range l.types {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(t.text)
	}
	b.WriteByte('>')
	return b.String()
}

// Pack appends the packed form of r to dst: all columns, neither Kind nor Time. Equal rows give equal bytes, but for
// MAP and MULTISET, which keep the order of their entries.
func (l *Layout) Pack(dst []byte, r *Row) []byte {
	c := &l.codec
	n := 1 + c.nullBytes + c.fixed
	for _, s := range r.S {
		n += 5 + len(s)
	}
	at := len(dst)
	dst = slices.Grow(dst, n)
	b := dst[at : at+n]
	b[0] = packedVersion
	nulls := c.putNulls(b[1:], r)
	off := 1 + c.nullBytes
	if !nulls {
		off = c.packWords(b, off, r)
		for _, s := range r.S {
			off += putLength(b[off:], len(s))
			off += copy(b[off:], s)
		}
		return dst[:at+off]
	}
	for i := range c.ops {
		o := &c.ops[i]
		if r.Null(o.column) {
			continue
		}
		var y uint64
		if o.wire >= wire12 {
			y = r.W[o.word+1]
		}
		putWords(b[off:], o.wire, r.W[o.word], y)
		off += int(o.width)
	}
	for i, s := range r.S {
		if r.Null(c.viewColumn[i]) {
			continue
		}
		off += putLength(b[off:], len(s))
		off += copy(b[off:], s)
	}
	return dst[:at+off]
}

// PackKind is Pack with the RowKind in one byte in front: the values of repartition topics.
func (l *Layout) PackKind(dst []byte, r *Row) []byte {
	return l.Pack(append(dst, byte(r.Kind)), r)
}

// putNulls writes the null bits and says whether one is set.
func (c *rowCodec) putNulls(b []byte, r *Row) bool {
	if c.nullBytes == 1 {
		b[0] = byte(r.nulls)
		return byte(r.nulls) != 0
	}
	var all uint64
	for i := range c.nullBytes {
		w := r.nulls
		if i >= 8 {
			w = r.more[i>>3-1]
		}
		b[i] = byte(w >> (uint(i) & 7 * 8))
		all |= uint64(b[i])
	}
	return all != 0
}

func (c *rowCodec) packWords(b []byte, off int, r *Row) int {
	w := r.W
	for i := range c.groups {
		g := &c.groups[i]
		switch g.wire {
		case wire8:
			for _, x := range g.words {
				binary.LittleEndian.PutUint64(b[off:], w[x])
				off += 8
			}
		case wireI32:
			for _, x := range g.words {
				binary.LittleEndian.PutUint32(b[off:], uint32(w[x]))
				off += 4
			}
		case wire1, wireI8:
			for _, x := range g.words {
				b[off] = byte(w[x])
				off++
			}
		case wire16:
			for _, x := range g.words {
				binary.LittleEndian.PutUint64(b[off:], w[x])
				binary.LittleEndian.PutUint64(b[off+8:], w[x+1])
				off += 16
			}
		case wire12:
			for _, x := range g.words {
				putWords(b[off:], wire12, w[x], w[x+1])
				off += 12
			}
		case wireI16:
			for _, x := range g.words {
				binary.LittleEndian.PutUint16(b[off:], uint16(w[x]))
				off += 2
			}
		case wireF32:
			for _, x := range g.words {
				putWords(b[off:], wireF32, w[x], 0)
				off += 4
			}
		}
	}
	return off
}

// Unpack sets all columns of r from src, which holds exactly one packed row. The views of r point into src. Kind and
// Time stay as they are.
func (l *Layout) Unpack(src []byte, r *Row) error {
	c := &l.codec
	off := 1 + c.nullBytes
	if len(src) < off || src[0] != packedVersion {
		return l.unpackError(src)
	}
	r.Plain = 0
	if !c.getNulls(src[1:off], r) {
		if len(src) < off+c.fixed {
			return l.unpackError(src)
		}
		off = c.unpackWords(src, off, r)
		for i := range r.S {
			n, m := getLength(src[off:])
			off += m
			if m == 0 || n > len(src)-off {
				return l.unpackError(src)
			}
			r.S[i] = src[off : off+n : off+n]
			off += n
		}
	} else {
		for i := range c.ops {
			o := &c.ops[i]
			if r.Null(o.column) {
				continue
			}
			if len(src)-off < int(o.width) {
				return l.unpackError(src)
			}
			x, y := getWords(src[off:], o.wire)
			r.W[o.word] = x
			if o.wire >= wire12 {
				r.W[o.word+1] = y
			}
			off += int(o.width)
		}
		for i := range r.S {
			if r.Null(c.viewColumn[i]) {
				r.S[i] = nil
				continue
			}
			n, m := getLength(src[off:])
			off += m
			if m == 0 || n > len(src)-off {
				return l.unpackError(src)
			}
			r.S[i] = src[off : off+n : off+n]
			off += n
		}
	}
	if off != len(src) {
		return l.unpackError(src)
	}
	return nil
}

// UnpackKind reads what PackKind wrote.
func (l *Layout) UnpackKind(src []byte, r *Row) error {
	if len(src) == 0 || src[0] > byte(Delete) {
		return l.unpackError(nil)
	}
	r.Kind = RowKind(src[0])
	return l.Unpack(src[1:], r)
}

func (l *Layout) unpackError(src []byte) error {
	if len(src) > 0 && src[0] != packedVersion {
		return fmt.Errorf("unpack row %s of %d bytes: form %d is unknown, this version reads form %d", l.Schema(), len(src), src[0], packedVersion)
	}
	return fmt.Errorf("unpack row %s of %d bytes: %w", l.Schema(), len(src), ErrPacked)
}

func (c *rowCodec) getNulls(b []byte, r *Row) bool {
	if len(b) == 1 {
		r.nulls = uint64(b[0])
		return b[0] != 0
	}
	r.nulls = 0
	clear(r.more)
	var all uint64
	for i, x := range b {
		w := uint64(x) << (uint(i) & 7 * 8)
		if i < 8 {
			r.nulls |= w
		} else {
			r.more[i>>3-1] |= w
		}
		all |= w
	}
	return all != 0
}

func (c *rowCodec) unpackWords(b []byte, off int, r *Row) int {
	w := r.W
	for i := range c.groups {
		g := &c.groups[i]
		switch g.wire {
		case wire8:
			for _, x := range g.words {
				w[x] = binary.LittleEndian.Uint64(b[off:])
				off += 8
			}
		case wireI32:
			for _, x := range g.words {
				w[x] = uint64(int32(binary.LittleEndian.Uint32(b[off:])))
				off += 4
			}
		case wire1:
			for _, x := range g.words {
				w[x] = uint64(b[off])
				off++
			}
		case wire16:
			for _, x := range g.words {
				w[x] = binary.LittleEndian.Uint64(b[off:])
				w[x+1] = binary.LittleEndian.Uint64(b[off+8:])
				off += 16
			}
		case wire12:
			for _, x := range g.words {
				w[x], w[x+1] = getWords(b[off:], wire12)
				off += 12
			}
		case wireI8:
			for _, x := range g.words {
				w[x] = uint64(int8(b[off]))
				off++
			}
		case wireI16:
			for _, x := range g.words {
				w[x], _ = getWords(b[off:], wireI16)
				off += 2
			}
		case wireF32:
			for _, x := range g.words {
				w[x], _ = getWords(b[off:], wireF32)
				off += 4
			}
		}
	}
	return off
}

// putLength writes n as a uvarint and returns the bytes taken; b has room for 5.
func putLength(b []byte, n int) int {
	if n < 0x80 {
		b[0] = byte(n)
		return 1
	}
	return binary.PutUvarint(b, uint64(n))
}

// getLength reads a length; taken is 0 if the bytes end too early or the number is too large.
func getLength(b []byte) (n, taken int) {
	if len(b) > 0 && b[0] < 0x80 {
		return int(b[0]), 1
	}
	v, taken := binary.Uvarint(b)
	if taken <= 0 || v > math.MaxInt32 {
		return 0, 0
	}
	return int(v), taken
}

// PackedSize is an upper bound of the bytes that Pack appends for r.
func (l *Layout) PackedSize(r *Row) int {
	n := 1 + l.codec.nullBytes + l.codec.fixed
	for _, s := range r.S {
		n += (bits.Len(uint(len(s)))+6)/7 + 1 + len(s)
	}
	return n
}
