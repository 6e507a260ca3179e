package row

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
)

// KeyColumn is a column of a key.
type KeyColumn struct {
	Column int
	// Desc sorts from the greatest value to the least.
	Desc bool
	// NullsOther puts NULL at the other end than Flink does: without it NULL is the least value, so it comes first
	// ascending and last descending.
	NullsOther bool
}

// KeyEncoder encodes columns of rows of one layout. Equal values give equal bytes whatever the nullability of the types,
// bytes sort as the values do, and no key is a prefix of another. -0.0 sorts before 0.0 and is another key; all NaN are
// one key, the greatest number; NULL is a key too. Text sorts by its bytes.
//
// Each column is a byte (0 NULL, 1 value, 2 NULL behind the values), then the value in the order-preserving form of
// statestore's key codec; for a descending column the bits of the value are inverted.
type KeyEncoder struct {
	cols []keyCol
	null uint64 // bits of the columns below 64
}

type keyCol struct {
	t         *Type
	column    int
	index     int
	form      keyForm
	inverted  bool
	nullFirst bool
}

type keyForm uint8

const (
	formInt8 keyForm = iota // BOOLEAN, TINYINT
	formInt16
	formInt32
	formInt64
	formFloat32
	formFloat64
	formTimestamp // ms, nanoseconds in 4 bytes
	formDec       // 16 bytes
	formBytes
	formNested
)

func keyFormOf(t *Type) keyForm {
	switch t.kind {
	case KindNull, KindBoolean, KindTinyInt:
		return formInt8
	case KindSmallInt:
		return formInt16
	case KindInt, KindDate, KindTime, KindIntervalMonth:
		return formInt32
	case KindFloat:
		return formFloat32
	case KindDouble:
		return formFloat64
	case KindChar, KindVarChar, KindBinary, KindVarBinary:
		return formBytes
	case KindArray, KindMap, KindMultiset, KindRow:
		return formNested
	}
	switch t.shape.wire {
	case wire12:
		return formTimestamp
	case wire16:
		return formDec
	}
	return formInt64
}

// NewKeyEncoder makes the encoder of a key for equality: GROUP BY, DISTINCT, join, PARTITION BY.
func NewKeyEncoder(l *Layout, columns ...int) *KeyEncoder {
	cols := make([]KeyColumn, len(columns))
	for i, c := range columns {
		cols[i].Column = c
	}
	return NewSortEncoder(l, cols...)
}

// NewSortEncoder makes the encoder of a key for an order.
func NewSortEncoder(l *Layout, columns ...KeyColumn) *KeyEncoder {
	e := &KeyEncoder{}
	for _, c := range columns {
		t := l.Type(c.Column)
		e.cols = append(e.cols, keyCol{t, c.Column, l.Place(c.Column).Index, keyFormOf(t), c.Desc, c.Desc == c.NullsOther})
		if c.Column < 64 {
			e.null |= 1 << uint(c.Column)
		}
	}
	return e
}

// Schema describes the key, for the KeyType of a store.
func (e *KeyEncoder) Schema() string {
	var b strings.Builder
	b.WriteString("key1<")
	for i := range e.cols {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(e.cols[i].t.text)
		if e.cols[i].inverted {
			b.WriteString(" DESC")
		}
	}
	return b.String() + ">"
}

// HasNull says whether a column of the key is NULL: such a key is equal to none in a join.
func (e *KeyEncoder) HasNull(r *Row) bool {
	if r.nulls&e.null != 0 {
		return true
	}
	if r.more == nil {
		return false
	}
	for i := range e.cols {
		if c := e.cols[i].column; c >= 64 && r.Null(c) {
			return true
		}
	}
	return false
}

// Append appends the key of r to dst.
func (e *KeyEncoder) Append(dst []byte, r *Row) []byte {
	for i := range e.cols {
		c := &e.cols[i]
		if r.Null(c.column) {
			if c.nullFirst {
				dst = append(dst, 0)
			} else {
				dst = append(dst, 2)
			}
			continue
		}
		dst = append(dst, 1)
		at := len(dst)
		switch c.form {
		case formInt64:
			dst = binary.BigEndian.AppendUint64(dst, r.W[c.index]^1<<63)
		case formBytes:
			dst = appendKeyBytes(dst, r.S[c.index])
		case formInt32:
			dst = binary.BigEndian.AppendUint32(dst, uint32(r.W[c.index])^1<<31)
		case formNested:
			dst = appendKeyNested(dst, c.t, r.S[c.index])
		case formTimestamp, formDec:
			dst = appendKeyWords(dst, c.form, r.W[c.index], r.W[c.index+1])
		default:
			dst = appendKeyWords(dst, c.form, r.W[c.index], 0)
		}
		if c.inverted {
			invert(dst[at:])
		}
	}
	return dst
}

func invert(b []byte) {
	for i := range b {
		b[i] = ^b[i]
	}
}

// AppendKeyValue appends the key form of one value that is not NULL: x and y are its words, b its view.
func AppendKeyValue(dst []byte, t *Type, x, y uint64, b []byte) []byte {
	dst = append(dst, 1)
	switch f := keyFormOf(t); f {
	case formBytes:
		return appendKeyBytes(dst, b)
	case formNested:
		return appendKeyNested(dst, t, b)
	default:
		return appendKeyWords(dst, f, x, y)
	}
}

// AppendKeyNull appends the key form of NULL in a key for equality.
func AppendKeyNull(dst []byte) []byte { return append(dst, 0) }

func appendKeyWords(dst []byte, f keyForm, x, y uint64) []byte {
	switch f {
	case formInt8:
		return append(dst, byte(x)^0x80)
	case formInt16:
		return binary.BigEndian.AppendUint16(dst, uint16(x)^1<<15)
	case formInt32:
		return binary.BigEndian.AppendUint32(dst, uint32(x)^1<<31)
	case formFloat32:
		return binary.BigEndian.AppendUint32(dst, orderFloat32(float32(math.Float64frombits(x))))
	case formFloat64:
		return binary.BigEndian.AppendUint64(dst, orderFloat64(math.Float64frombits(x)))
	case formTimestamp:
		dst = binary.BigEndian.AppendUint64(dst, x^1<<63)
		return binary.BigEndian.AppendUint32(dst, uint32(y))
	case formDec:
		dst = binary.BigEndian.AppendUint64(dst, y^1<<63)
		return binary.BigEndian.AppendUint64(dst, x)
	}
	return binary.BigEndian.AppendUint64(dst, x^1<<63)
}

// Unlike statestore's codec these keep -0 and 0 apart.
func orderFloat64(f float64) uint64 {
	if math.IsNaN(f) {
		return math.MaxUint64
	}
	b := math.Float64bits(f)
	if b>>63 == 1 {
		return ^b
	}
	return b | 1<<63
}

func orderFloat32(f float32) uint32 {
	if f != f {
		return math.MaxUint32
	}
	b := math.Float32bits(f)
	if b>>31 == 1 {
		return ^b
	}
	return b | 1<<31
}

// appendKeyBytes writes 0x00 as 0x00 0xff and ends with 0x00 0x01, as statestore's codec writes strings.
func appendKeyBytes(dst, s []byte) []byte {
	for {
		i := bytes.IndexByte(s, 0)
		if i < 0 {
			dst = append(dst, s...)
			return append(dst, 0, 1)
		}
		dst = append(dst, s[:i]...)
		dst = append(dst, 0, 0xff)
		s = s[i+1:]
	}
}

// A nested key is its elements, each with its NULL byte and with 2 in front, and 0 at the end, so that a shorter array
// sorts first. The entries of a MAP or MULTISET are sorted by their keys: their order means nothing.
func appendKeyNested(dst []byte, t *Type, b []byte) []byte {
	switch t.kind {
	case KindArray:
		v := ViewArray(t, b)
		for i := range v.n {
			dst = append(dst, 2)
			dst = appendKeyElem(dst, v, i)
		}
		return append(dst, 0)
	case KindRow:
		v := ViewRow(t, b)
		for i := range t.fields {
			ft := t.fields[i].Type
			switch {
			case v.Null(i):
				dst = append(dst, 0)
			case ft.shape.words > 0:
				x, y := v.Words(i)
				dst = AppendKeyValue(dst, ft, x, y, nil)
			default:
				dst = AppendKeyValue(dst, ft, 0, 0, v.Bytes(i))
			}
		}
		return dst
	}
	v := ViewMap(t, b)
	entries := make([][]byte, v.Len())
	for i := range entries {
		entries[i] = appendKeyElem(appendKeyElem([]byte{2}, v.keys, i), v.values, i)
	}
	slices.SortFunc(entries, bytes.Compare)
	for _, e := range entries {
		dst = append(dst, e...)
	}
	return append(dst, 0)
}

func appendKeyElem(dst []byte, v ArrayView, i int) []byte {
	switch {
	case v.Null(i):
		return append(dst, 0)
	case v.elem.shape.words > 0:
		x, y := v.Words(i)
		return AppendKeyValue(dst, v.elem, x, y, nil)
	}
	return AppendKeyValue(dst, v.elem, 0, 0, v.Bytes(i))
}

// Decode sets the columns of r, a row of the layout of the encoder's columns in their order (not of the layout that was
// encoded), from the start of src and returns what is behind the key. Views point into src where the bytes are the value
// itself, else into new memory. MAPs come back with their entries sorted.
func (e *KeyEncoder) Decode(src []byte, into *Layout, r *Row) ([]byte, error) {
	for i := range e.cols {
		c := &e.cols[i]
		if len(src) == 0 {
			return nil, e.decodeError()
		}
		mark := src[0]
		src = src[1:]
		switch mark {
		case 0, 2:
			r.SetNull(i)
			continue
		case 1:
		default:
			return nil, e.decodeError()
		}
		r.ClearNull(i)
		d := keyDecoder{src: src, inverted: c.inverted}
		p := into.Place(i)
		if p.Bank == Views {
			r.SetBytes(p.Index, d.view(c.t))
		} else {
			x, y := d.words(c.form)
			r.W[p.Index] = x
			if p.Words == 2 {
				r.W[p.Index+1] = y
			}
		}
		if d.bad {
			return nil, e.decodeError()
		}
		src = d.src
	}
	return src, nil
}

func (e *KeyEncoder) decodeError() error {
	return fmt.Errorf("decode key %s: %w", e.Schema(), ErrPacked)
}

type keyDecoder struct {
	src      []byte
	inverted bool
	bad      bool
}

// take is the next n bytes, the right way round; zeros if there are fewer.
func (d *keyDecoder) take(n int) []byte {
	if len(d.src) < n {
		d.bad = true
		return make([]byte, n)
	}
	b := d.src[:n]
	d.src = d.src[n:]
	if d.inverted {
		b = slices.Clone(b)
		invert(b)
	}
	return b
}

func (d *keyDecoder) words(f keyForm) (x, y uint64) {
	switch f {
	case formInt8:
		return uint64(int8(d.take(1)[0] ^ 0x80)), 0
	case formInt16:
		return uint64(int16(binary.BigEndian.Uint16(d.take(2)) ^ 1<<15)), 0
	case formInt32:
		return uint64(int32(binary.BigEndian.Uint32(d.take(4)) ^ 1<<31)), 0
	case formFloat32:
		return math.Float64bits(float64(unorderFloat32(binary.BigEndian.Uint32(d.take(4))))), 0
	case formFloat64:
		return math.Float64bits(unorderFloat64(binary.BigEndian.Uint64(d.take(8)))), 0
	case formTimestamp:
		x = binary.BigEndian.Uint64(d.take(8)) ^ 1<<63
		return x, uint64(binary.BigEndian.Uint32(d.take(4)))
	case formDec:
		y = binary.BigEndian.Uint64(d.take(8)) ^ 1<<63
		return binary.BigEndian.Uint64(d.take(8)), y
	}
	return binary.BigEndian.Uint64(d.take(8)) ^ 1<<63, 0
}

func unorderFloat64(b uint64) float64 {
	switch {
	case b == math.MaxUint64:
		return math.NaN()
	case b>>63 == 1:
		return math.Float64frombits(b &^ (1 << 63))
	}
	return math.Float64frombits(^b)
}

func unorderFloat32(b uint32) float32 {
	switch {
	case b == math.MaxUint32:
		return float32(math.NaN())
	case b>>31 == 1:
		return math.Float32frombits(b &^ (1 << 31))
	}
	return math.Float32frombits(^b)
}

// view decodes text, bytes or a nested value; the latter is packed again.
func (d *keyDecoder) view(t *Type) []byte {
	switch t.kind {
	case KindArray:
		a := NewArrayBuilder(t)
		d.elements(a)
		return a.Append(nil)
	case KindMap, KindMultiset:
		m := NewMapBuilder(t)
		for d.more() {
			d.elem(&m.Keys)
			d.elem(&m.Values)
		}
		return m.Append(nil)
	case KindRow:
		b := NewRowBuilder(t)
		for _, f := range t.fields {
			switch {
			case d.null():
				b.AddNull()
			case f.Type.shape.words > 0:
				b.AddWords(d.words(keyFormOf(f.Type)))
			default:
				b.AddBytes(d.view(f.Type))
			}
		}
		return b.Append(nil)
	}
	return d.bytes()
}

func (d *keyDecoder) elements(a *ArrayBuilder) {
	for d.more() {
		d.elem(a)
	}
}

func (d *keyDecoder) more() bool {
	switch d.take(1)[0] {
	case 0:
	case 2:
		return !d.bad
	default:
		d.bad = true
	}
	return false
}

func (d *keyDecoder) null() bool {
	switch d.take(1)[0] {
	case 0:
		return true
	case 1:
	default:
		d.bad = true
	}
	return false
}

func (d *keyDecoder) elem(a *ArrayBuilder) {
	switch {
	case d.null():
		a.AddNull()
	case a.elem.shape.words > 0:
		a.AddWords(d.words(keyFormOf(a.elem)))
	default:
		a.AddBytes(d.view(a.elem))
	}
}

func (d *keyDecoder) bytes() []byte {
	zero := byte(0)
	if d.inverted {
		zero = 0xff
	}
	var buf []byte
	for {
		i := bytes.IndexByte(d.src, zero)
		if i < 0 || i+1 == len(d.src) {
			d.bad = true
			return nil
		}
		part, mark := d.src[:i:i], d.src[i+1]^zero
		d.src = d.src[i+2:]
		if mark == 1 && buf == nil && !d.inverted {
			return part
		}
		at := len(buf)
		if buf == nil {
			buf = make([]byte, 0, len(part)+8)
		}
		buf = append(buf, part...)
		if d.inverted {
			invert(buf[at:])
		}
		switch mark {
		case 1:
			return buf
		case 0xff:
			buf = append(buf, 0)
		default:
			d.bad = true
			return nil
		}
	}
}
