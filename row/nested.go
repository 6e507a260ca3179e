package row

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// rowShape is the packed form of a ROW: null bits, a slot per field (its words, or the end of its bytes as uint32), then
// the bytes of the fields of variable width.
type rowShape struct {
	nullBytes int
	slots     []int // offset of the slot of each field
	end       int   // offset behind the slots
	variable  []int // for a field of variable width: the slot of the variable one before it, -1 if it is the first
}

func newRowShape(fields []Field) *rowShape {
	s := &rowShape{nullBytes: (len(fields) + 7) / 8, slots: make([]int, len(fields)), variable: make([]int, len(fields))}
	off, last := s.nullBytes, -1
	for i, f := range fields {
		s.slots[i] = off
		s.variable[i] = -1
		if w := int(f.Type.shape.width); w > 0 {
			off += w
			continue
		}
		s.variable[i] = last
		last = off
		off += 4
	}
	s.end = off
	return s
}

// RowView reads a packed ROW without decoding it whole. It is valid as long as its bytes.
type RowView struct { //nolint:revive // the kind is called ROW, View alone says too little
	t *Type
	b []byte
}

// ViewRow is the view on b, a packed value of the ROW type t.
func ViewRow(t *Type, b []byte) RowView { return RowView{t, b} }

// Len is the number of fields.
func (v RowView) Len() int { return len(v.t.fields) }

// Null says whether field i is NULL.
func (v RowView) Null(i int) bool { return v.b[i>>3]>>(uint(i)&7)&1 != 0 }

// Word is the word of field i, as in a [Row].
func (v RowView) Word(i int) uint64 {
	x, _ := getWords(v.b[v.t.shape.row.slots[i]:], v.t.fields[i].Type.shape.wire)
	return x
}

// Words is the two words of field i (the second is 0 if it has one only).
func (v RowView) Words(i int) (uint64, uint64) {
	return getWords(v.b[v.t.shape.row.slots[i]:], v.t.fields[i].Type.shape.wire)
}

// Bytes is the text, bytes or packed value of field i.
func (v RowView) Bytes(i int) []byte {
	s := v.t.shape.row
	lo := s.end
	if p := s.variable[i]; p >= 0 {
		lo += int(binary.LittleEndian.Uint32(v.b[p:]))
	}
	hi := s.end + int(binary.LittleEndian.Uint32(v.b[s.slots[i]:]))
	return v.b[lo:hi:hi]
}

// ArrayView reads a packed ARRAY without decoding it whole. It is valid as long as its bytes.
//
// The packed form is the number of elements (uint32), null bits, then for elements of fixed width their words, else the
// ends of their bytes (uint32 each) and the bytes.
type ArrayView struct {
	elem *Type
	n    int
	at   int // offset of the words or ends
	b    []byte
}

// ViewArray is the view on b, a packed value of the ARRAY type t.
func ViewArray(t *Type, b []byte) ArrayView { return viewArray(t.elem, b) }

func viewArray(elem *Type, b []byte) ArrayView {
	n := int(binary.LittleEndian.Uint32(b))
	return ArrayView{elem, n, 4 + (n+7)/8, b}
}

// Len is the number of elements.
func (v ArrayView) Len() int { return v.n }

// Elem is the type of the elements.
func (v ArrayView) Elem() *Type { return v.elem }

// Null says whether element i, from 0, is NULL.
func (v ArrayView) Null(i int) bool { return v.b[4+i>>3]>>(uint(i)&7)&1 != 0 }

// Word is the word of element i, as in a [Row].
func (v ArrayView) Word(i int) uint64 {
	s := &v.elem.shape
	x, _ := getWords(v.b[v.at+i*int(s.width):], s.wire)
	return x
}

// Words is the two words of element i (the second is 0 if it has one only).
func (v ArrayView) Words(i int) (uint64, uint64) {
	s := &v.elem.shape
	return getWords(v.b[v.at+i*int(s.width):], s.wire)
}

// Bytes is the text, bytes or packed value of element i.
func (v ArrayView) Bytes(i int) []byte {
	base := v.at + 4*v.n
	lo := base
	if i > 0 {
		lo += int(binary.LittleEndian.Uint32(v.b[v.at+4*(i-1):]))
	}
	hi := base + int(binary.LittleEndian.Uint32(v.b[v.at+4*i:]))
	return v.b[lo:hi:hi]
}

// equal says whether two elements are the same.
func (v ArrayView) equal(i, j int) bool {
	if v.Null(i) || v.Null(j) {
		return v.Null(i) && v.Null(j)
	}
	if v.elem.shape.width == 0 {
		return string(v.Bytes(i)) == string(v.Bytes(j))
	}
	x, y := v.Words(i)
	x2, y2 := v.Words(j)
	return x == x2 && y == y2
}

// MapView reads a packed MAP or MULTISET. It is valid as long as its bytes.
//
// The packed form is the length of the keys (uint32), then the keys and the values as packed ARRAYs. A MULTISET is a MAP
// from the element to an INT, how often it is there. Entries stand in the order in which they were put.
type MapView struct{ keys, values ArrayView }

// ViewMap is the view on b, a packed value of the MAP or MULTISET type t.
func ViewMap(t *Type, b []byte) MapView {
	n := 4 + int(binary.LittleEndian.Uint32(b))
	return MapView{viewArray(t.shape.pair.elem, b[4:n:n]), viewArray(t.shape.pair2.elem, b[n:])}
}

// Len is the number of entries.
func (v MapView) Len() int { return v.keys.n }

// Keys is the keys.
func (v MapView) Keys() ArrayView { return v.keys }

// Values is the values, value i of key i.
func (v MapView) Values() ArrayView { return v.values }

// PackedKeys and PackedValues are ARRAY values of the keys and of the values, views into the map.
func (v MapView) PackedKeys() []byte { return v.keys.b }

// PackedValues is the ARRAY of the values.
func (v MapView) PackedValues() []byte { return v.values.b }

// FindBytes is the index of the entry with that key, -1 if there is none: for keys that are text, bytes or nested.
// Nested keys are compared as packed bytes.
func (v MapView) FindBytes(key []byte) int {
	for i := range v.keys.n {
		if !v.keys.Null(i) && string(v.keys.Bytes(i)) == string(key) {
			return i
		}
	}
	return -1
}

// FindWords is the index of the entry with that key, -1 if there is none: for keys of words; y is 0 where there is one.
func (v MapView) FindWords(x, y uint64) int {
	for i := range v.keys.n {
		if a, b := v.keys.Words(i); a == x && b == y && !v.keys.Null(i) {
			return i
		}
	}
	return -1
}

// FindNull is the index of the entry with the key NULL, -1 if there is none.
func (v MapView) FindNull() int {
	for i := range v.keys.n {
		if v.keys.Null(i) {
			return i
		}
	}
	return -1
}

// ArrayBuilder makes packed ARRAYs. It is reused: Append finishes a value and starts the next.
type ArrayBuilder struct {
	elem  *Type
	n     int
	nulls []byte
	data  []byte // words, or bytes
	ends  []byte // ends of the bytes
}

// NewArrayBuilder makes the builder of values of the ARRAY type t.
func NewArrayBuilder(t *Type) *ArrayBuilder { return &ArrayBuilder{elem: t.elem} }

// Len is the number of elements so far.
func (a *ArrayBuilder) Len() int { return a.n }

// Reset drops the elements so far.
func (a *ArrayBuilder) Reset() {
	a.n, a.nulls, a.data, a.ends = 0, a.nulls[:0], a.data[:0], a.ends[:0]
}

func (a *ArrayBuilder) next(null bool) {
	if a.n&7 == 0 {
		a.nulls = append(a.nulls, 0)
	}
	if null {
		a.nulls[a.n>>3] |= 1 << (uint(a.n) & 7)
	}
	a.n++
}

// AddNull adds NULL.
func (a *ArrayBuilder) AddNull() {
	a.next(true)
	if w := a.elem.shape.width; w > 0 {
		a.data = append(a.data, make([]byte, w)...)
		return
	}
	a.ends = binary.LittleEndian.AppendUint32(a.ends, uint32(len(a.data)))
}

// AddWord adds an element of one word.
func (a *ArrayBuilder) AddWord(x uint64) { a.AddWords(x, 0) }

// AddWords adds an element of one or two words.
func (a *ArrayBuilder) AddWords(x, y uint64) {
	a.next(false)
	s := &a.elem.shape
	at := len(a.data)
	a.data = slices.Grow(a.data, 16)[:at+int(s.width)]
	putWords(a.data[at:], s.wire, x, y)
}

// AddBytes adds text, bytes or a packed value; the bytes are copied.
func (a *ArrayBuilder) AddBytes(b []byte) {
	a.next(false)
	a.data = append(a.data, b...)
	a.ends = binary.LittleEndian.AppendUint32(a.ends, uint32(len(a.data)))
}

// AddFrom adds element i of v, whose element type differs at most in nullability.
func (a *ArrayBuilder) AddFrom(v ArrayView, i int) {
	switch {
	case v.Null(i):
		a.AddNull()
	case a.elem.shape.width > 0:
		a.AddWords(v.Words(i))
	default:
		a.AddBytes(v.Bytes(i))
	}
}

// Append appends the packed value to dst and resets the builder.
func (a *ArrayBuilder) Append(dst []byte) []byte {
	dst = a.pack(dst)
	a.Reset()
	return dst
}

func (a *ArrayBuilder) pack(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(a.n))
	dst = append(dst, a.nulls...)
	dst = append(dst, a.ends...)
	return append(dst, a.data...)
}

func (a *ArrayBuilder) size() int { return 4 + len(a.nulls) + len(a.ends) + len(a.data) }

// MapBuilder makes packed MAPs and MULTISETs: add a key to Keys and its value to Values, in turn. Of equal keys the last
// one's value is kept, at the place of the first, as Flink does.
type MapBuilder struct {
	Keys, Values ArrayBuilder
	first, last  []int // entries of each key, while doubles are dropped
	packed       []byte
}

// NewMapBuilder makes the builder of values of the MAP or MULTISET type t.
func NewMapBuilder(t *Type) *MapBuilder {
	return &MapBuilder{Keys: ArrayBuilder{elem: t.shape.pair.elem}, Values: ArrayBuilder{elem: t.shape.pair2.elem}}
}

// Reset drops the entries so far.
func (m *MapBuilder) Reset() {
	m.Keys.Reset()
	m.Values.Reset()
}

// Append appends the packed value to dst and resets the builder.
func (m *MapBuilder) Append(dst []byte) []byte {
	if m.Keys.n > 1 {
		m.dropDoubles()
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(m.Keys.size()))
	return m.Values.Append(m.Keys.Append(dst))
}

// dropDoubles leaves one entry of each key.
func (m *MapBuilder) dropDoubles() {
	m.packed = m.Keys.pack(m.packed[:0])
	keys := viewArray(m.Keys.elem, m.packed)
	var seen map[string]int
	if keys.n > 16 {
		seen = make(map[string]int, keys.n)
	}
	m.first, m.last = m.first[:0], m.last[:0]
	for i := range keys.n {
		at := -1
		if seen == nil {
			for j, f := range m.first {
				if keys.equal(f, i) {
					at = j
					break
				}
			}
		} else {
			k := string(appendKeyElem(nil, keys, i))
			if j, ok := seen[k]; ok {
				at = j
			} else {
				seen[k] = len(m.first)
			}
		}
		if at >= 0 {
			m.last[at] = i
			continue
		}
		m.first, m.last = append(m.first, i), append(m.last, i)
	}
	if len(m.first) == keys.n {
		return
	}
	values := viewArray(m.Values.elem, m.Values.pack(nil))
	m.Reset()
	for j, i := range m.last {
		m.Keys.AddFrom(keys, m.first[j])
		m.Values.AddFrom(values, i)
	}
}

// RowBuilder makes packed ROWs: add the fields in order. It is reused: Append finishes a value and starts the next.
type RowBuilder struct { //nolint:revive // beside ArrayBuilder and MapBuilder
	t    *Type
	n    int
	head []byte
	data []byte
}

// NewRowBuilder makes the builder of values of the ROW type t.
func NewRowBuilder(t *Type) *RowBuilder {
	return &RowBuilder{t: t, head: make([]byte, t.shape.row.end)}
}

// Reset drops the fields so far.
func (r *RowBuilder) Reset() {
	r.n = 0
	clear(r.head)
	r.data = r.data[:0]
}

// AddNull adds NULL.
func (r *RowBuilder) AddNull() {
	r.head[r.n>>3] |= 1 << (uint(r.n) & 7)
	if r.t.fields[r.n].Type.shape.width == 0 {
		binary.LittleEndian.PutUint32(r.head[r.t.shape.row.slots[r.n]:], uint32(len(r.data)))
	}
	r.n++
}

// AddWord adds a field of one word.
func (r *RowBuilder) AddWord(x uint64) { r.AddWords(x, 0) }

// AddWords adds a field of one or two words.
func (r *RowBuilder) AddWords(x, y uint64) {
	putWords(r.head[r.t.shape.row.slots[r.n]:], r.t.fields[r.n].Type.shape.wire, x, y)
	r.n++
}

// AddBytes adds text, bytes or a packed value; the bytes are copied.
func (r *RowBuilder) AddBytes(b []byte) {
	r.data = append(r.data, b...)
	binary.LittleEndian.PutUint32(r.head[r.t.shape.row.slots[r.n]:], uint32(len(r.data)))
	r.n++
}

// Append appends the packed value to dst and resets the builder. Fields that were not added are NULL.
func (r *RowBuilder) Append(dst []byte) []byte {
	for r.n < len(r.t.fields) {
		r.AddNull()
	}
	dst = append(append(dst, r.head...), r.data...)
	r.Reset()
	return dst
}

// CheckNested says whether b is a well-formed packed value of the type t (ARRAY, MAP, MULTISET, ROW): the views assume
// so. Packed rows of our own topics and stores need no check.
func CheckNested(t *Type, b []byte) error {
	if !wellFormed(t, b) {
		return fmt.Errorf("read packed %s of %d bytes: %w", t.Text(), len(b), ErrPacked)
	}
	return nil
}

func wellFormed(t *Type, b []byte) bool {
	switch t.kind {
	case KindArray:
		return arrayWellFormed(t.elem, b)
	case KindMap, KindMultiset:
		if len(b) < 4 {
			return false
		}
		n := int(binary.LittleEndian.Uint32(b))
		if n > len(b)-4 || !wellFormed(t.shape.pair, b[4:4+n]) || !wellFormed(t.shape.pair2, b[4+n:]) {
			return false
		}
		v := ViewMap(t, b)
		return v.keys.n == v.values.n
	case KindRow:
		s := t.shape.row
		if len(b) < s.end {
			return false
		}
		end := 0
		for i, f := range t.fields {
			if f.Type.shape.width > 0 {
				continue
			}
			hi := int(binary.LittleEndian.Uint32(b[s.slots[i]:]))
			if hi < end || hi > len(b)-s.end {
				return false
			}
			if f.Type.kind.Nested() && !(RowView{t, b}).Null(i) && !wellFormed(f.Type, b[s.end+end:s.end+hi]) {
				return false
			}
			end = hi
		}
		return s.end+end == len(b)
	}
	return true
}

func arrayWellFormed(elem *Type, b []byte) bool {
	if len(b) < 4 {
		return false
	}
	n := int(binary.LittleEndian.Uint32(b))
	at := 4 + (n+7)/8
	if w := int(elem.shape.width); w > 0 {
		return n <= len(b) && len(b) == at+n*w
	}
	if n > len(b) || len(b) < at+4*n {
		return false
	}
	end := 0
	for i := range n {
		hi := int(binary.LittleEndian.Uint32(b[at+4*i:]))
		if hi < end || hi > len(b)-at-4*n {
			return false
		}
		if elem.kind.Nested() && b[4+i>>3]>>(uint(i)&7)&1 == 0 && !wellFormed(elem, b[at+4*n+end:at+4*n+hi]) {
			return false
		}
		end = hi
	}
	return at+4*n+end == len(b)
}
