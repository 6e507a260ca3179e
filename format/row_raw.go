package format

import (
	"encoding/binary"
	"fmt"
	"math"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/ianaindex"

	"github.com/millrace-stream/millrace/row"
)

// RawRows is the format 'raw' of tables: the message is the value of the only column. Text is in a character set, numbers
// are of 1, 2, 4 or 8 bytes, a BOOLEAN is one byte, 0 or not, and BYTES are as they are. A null message is NULL, both ways.
func RawRows() RowFormatSpec {
	return RowFormatSpec{
		Doc: "The bytes of a message as the only column: text, BYTES, BOOLEAN, integers, FLOAT or DOUBLE. NULL is the null message.",
		Options: []Option{
			{Name: "charset", Kind: Text, Default: "UTF-8", Doc: "The character set of text, by its IANA name, such as ISO-8859-1."},
			{Name: "endianness", Kind: Enum, Default: "big-endian", Values: []string{"big-endian", "little-endian"}, Doc: "The order of the bytes of numbers."},
		},
		New: func(o *Options) (RowFormat, error) {
			r := &rawRows{order: binary.BigEndian}
			if o.Text("endianness") == "little-endian" {
				r.order = binary.LittleEndian
			}
			name := o.Text("charset")
			set, err := ianaindex.IANA.Encoding(name)
			if set == nil || err != nil {
				return nil, fmt.Errorf("option '%scharset' = '%s': is no character set that is known, such as UTF-8 or ISO-8859-1", o.prefix, name)
			}
			if canonical, _ := ianaindex.IANA.Name(set); canonical != "UTF-8" {
				r.set = set
			}
			return r, nil
		},
	}
}

type rawRows struct {
	order binary.ByteOrder
	set   encoding.Encoding // nil = UTF-8
}

// column is the only column of a message, with the index -1 if it is not wanted, and the bytes of a value, 0 = any number.
func (f *rawRows) column(s RowSchema) (c RowColumn, width int, err error) {
	all := s.All()
	if len(all) != 1 {
		return c, 0, fmt.Errorf("a message of the format raw has one column, not %d", len(all))
	}
	switch k := all[0].Type.Kind(); k {
	case row.KindBoolean, row.KindTinyInt:
		width = 1
	case row.KindSmallInt:
		width = 2
	case row.KindInt, row.KindFloat:
		width = 4
	case row.KindBigInt, row.KindDouble:
		width = 8
	default:
		if !k.Text() && !k.Bytes() {
			return c, 0, fmt.Errorf("column %s: %s has no raw form", all[0].Name, all[0].Type)
		}
	}
	c = RowColumn{Name: all[0].Name, Type: all[0].Type, Index: -1}
	for _, w := range s.Columns {
		if !w.Metadata {
			c = w
		}
	}
	return c, width, nil
}

// RowDecoder is of RowFormat. The error names a column whose type has no raw form.
func (f *rawRows) RowDecoder(s RowSchema) (RowDecoder, error) {
	c, width, err := f.column(s)
	if err != nil {
		return nil, err
	}
	d := &rawDecoder{readColumn: readColumn{name: c.Name, typ: c.Type}, f: f, width: width, wanted: c.Index >= 0}
	if d.wanted {
		d.readColumn = newReadColumn(c.Name, c.Type, s.Layout, c.Index, false)
	}
	if f.set != nil && c.Type.Kind().Text() {
		d.text = f.set.NewDecoder()
	}
	return d, nil
}

type rawDecoder struct {
	readColumn
	f      *rawRows
	width  int
	wanted bool
	text   *encoding.Decoder
}

// Decode is of RowDecoder.
func (d *rawDecoder) Decode(data []byte, next func() *row.Row) error {
	if data != nil && d.width > 0 && len(data) != d.width {
		return fmt.Errorf("decode raw message: column %s: want %d bytes for %s, found %d", d.name, d.width, d.typ, len(data))
	}
	if data != nil && d.text != nil {
		var err error
		if data, err = d.text.Bytes(data); err != nil {
			return fmt.Errorf("decode raw message: column %s: %w", d.name, err)
		}
	}
	r := next()
	if data == nil || !d.wanted {
		return nil
	}
	switch o := d.f.order; d.kind {
	case row.KindBoolean:
		x := uint64(0)
		if data[0] != 0 {
			x = 1
		}
		d.set(r, x)
	case row.KindTinyInt:
		d.set(r, uint64(int8(data[0])))
	case row.KindSmallInt:
		d.set(r, uint64(int16(o.Uint16(data))))
	case row.KindInt:
		d.set(r, uint64(int32(o.Uint32(data))))
	case row.KindFloat:
		d.set(r, math.Float64bits(float64(math.Float32frombits(o.Uint32(data)))))
	case row.KindBigInt, row.KindDouble:
		d.set(r, o.Uint64(data))
	default:
		d.setBytes(r, data[:len(data):len(data)], false)
	}
	return nil
}

// RowEncoder is of RowFormat. The error names a column whose type has no raw form.
func (f *rawRows) RowEncoder(s RowSchema) (RowEncoder, error) {
	c, _, err := f.column(s)
	if err != nil {
		return nil, err
	}
	e := &rawEncoder{f: f, writeColumn: newWriteColumn(c.Name, c.Type, false)}
	e.place(s.Layout, c.Index)
	if f.set != nil && c.Type.Kind().Text() {
		e.text = f.set.NewEncoder()
	}
	return e, nil
}

type rawEncoder struct {
	writeColumn
	f    *rawRows
	text *encoding.Encoder
}

// Append is of RowEncoder.
func (e *rawEncoder) Append(dst []byte, r *row.Row) ([]byte, error) {
	if r.Null(e.column) {
		return nil, nil
	}
	if e.words == 0 {
		b := r.S[e.at]
		if e.text != nil {
			var err error
			if b, err = e.text.Bytes(b); err != nil {
				return dst, fmt.Errorf("encode raw message: column %s: %w", e.name, err)
			}
		}
		return append(dst, b...), nil
	}
	var b [8]byte
	x, n := r.W[e.at], 8
	switch e.kind {
	case row.KindBoolean, row.KindTinyInt:
		b[0], n = byte(x), 1
	case row.KindSmallInt:
		e.f.order.PutUint16(b[:], uint16(x))
		n = 2
	case row.KindInt:
		e.f.order.PutUint32(b[:], uint32(x))
		n = 4
	case row.KindFloat:
		e.f.order.PutUint32(b[:], math.Float32bits(float32(math.Float64frombits(x))))
		n = 4
	default:
		e.f.order.PutUint64(b[:], x)
	}
	return append(dst, b[:n]...), nil
}
