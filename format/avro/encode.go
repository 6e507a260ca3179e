package avro

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"strings"

	"github.com/twmb/avro"

	"github.com/millrace-stream/millrace/format/internal/cells"
	"github.com/millrace-stream/millrace/row"
)

// wop is how a value is written.
type wop uint8

const (
	wopBool wop = iota
	wopInt
	wopFloat
	wopDouble
	wopOctets
	wopFixed
	wopEnum
	wopDecimal
	wopDecimalFixed
	wopTimeMicros
	wopStamp
	wopArray
	wopMap
	wopRecord
)

// writer writes values of a type in a schema.
type writer struct {
	op      wop
	t       *row.Type
	path    string
	null    int64 // branch of NULL in a union, -1 = none
	branch  int64 // branch of values in a union, -1 = no union
	size    int   // wopFixed, wopDecimalFixed
	scale   int   // of a decimal of the schema
	unit    int64 // wopStamp: units in a ms
	symbols map[string]int64
	view    bool // values of elem are views
	elem    *writer
	fields  []writerField
}

// writerField is a field of a record: a column or field, or the bytes of a default.
type writerField struct {
	writer *writer
	cell   int
	view   bool
	bytes  []byte
}

// writing makes the writers of a schema.
type writing struct{ s *schema }

// fields compiles a record for columns or fields of these names.
func (w writing) fields(n *avro.SchemaNode, have []want, path string) ([]writerField, error) {
	used := make([]bool, len(have))
	var out []writerField
	for i := range n.Fields {
		f := &n.Fields[i]
		at := -1
		for j := range have {
			if have[j].name == f.Name {
				at = j
			}
		}
		if at >= 0 {
			used[at] = true
			v, err := w.value(&f.Type, have[at].t, join(path, f.Name))
			if err != nil {
				return nil, err
			}
			out = append(out, writerField{writer: v, cell: at, view: cells.View(have[at].t)})
			continue
		}
		if !f.HasDefault {
			return nil, fmt.Errorf("field %s of the schema has no default, and the table has no such column", join(path, f.Name))
		}
		alone := avro.SchemaNode{Type: "record", Name: "d", Fields: []avro.SchemaField{*f}}
		s, err := alone.Schema()
		if err != nil {
			return nil, fmt.Errorf("default of field %s: %w", join(path, f.Name), err)
		}
		b, err := s.Encode(map[string]any{})
		if err != nil {
			return nil, fmt.Errorf("default of field %s: %w", join(path, f.Name), err)
		}
		out = append(out, writerField{bytes: b})
	}
	for j := range used {
		if !used[j] {
			return nil, fmt.Errorf("column %s is no field of the schema", join(path, have[j].name))
		}
	}
	return out, nil
}

func (w writing) value(n *avro.SchemaNode, t *row.Type, path string) (*writer, error) {
	n = w.s.resolve(n)
	if n.Type != "union" {
		// A nullable column may be written to what cannot be null: only a row that has NULL there is an error.
		return w.branch(n, t, path)
	}
	null, first := int64(-1), error(nil)
	var v *writer
	for i := range n.Branches {
		b := w.s.resolve(&n.Branches[i])
		if b.Type == "null" {
			null = int64(i)
			continue
		}
		if v != nil {
			continue
		}
		got, err := w.branch(b, t, path)
		if err != nil {
			if first == nil {
				first = err
			}
			continue
		}
		v = got
		v.branch = int64(i)
	}
	switch {
	case v == nil && first != nil:
		return nil, first
	case v == nil:
		return nil, cannotWrite(path, n, t, "")
	}
	v.null = null
	return v, nil
}

func cannotWrite(path string, n *avro.SchemaNode, t *row.Type, hint string) error {
	if hint != "" {
		hint = ": " + hint
	}
	return fmt.Errorf("field %s of the schema is %s, which cannot hold %s%s", path, describe(n), t, hint)
}

// branch compiles what is no union.
func (w writing) branch(n *avro.SchemaNode, t *row.Type, path string) (*writer, error) {
	v := &writer{t: t, path: path, null: -1, branch: -1, size: n.Size}
	is := func(o wop, ok bool) (*writer, error) {
		if v.op = o; !ok {
			return nil, cannotWrite(path, n, t, "")
		}
		return v, nil
	}
	switch k := t.Kind(); k {
	case row.KindBoolean:
		return is(wopBool, n.Type == "boolean")
	case row.KindTinyInt, row.KindSmallInt, row.KindInt:
		return is(wopInt, (n.Type == "int" || n.Type == "long") && n.LogicalType == "")
	case row.KindBigInt:
		return is(wopInt, n.Type == "long" && n.LogicalType == "")
	case row.KindFloat:
		if n.Type == "double" {
			return is(wopDouble, true)
		}
		return is(wopFloat, n.Type == "float")
	case row.KindDouble:
		return is(wopDouble, n.Type == "double")
	case row.KindChar, row.KindVarChar:
		if n.Type == "enum" {
			v.symbols = make(map[string]int64, len(n.Symbols))
			for i, s := range n.Symbols {
				v.symbols[s] = int64(i)
			}
			return is(wopEnum, true)
		}
		return is(wopOctets, n.Type == "string")
	case row.KindBinary, row.KindVarBinary:
		if n.Type == "fixed" {
			return is(wopFixed, true)
		}
		return is(wopOctets, n.Type == "bytes")
	case row.KindDecimal:
		v.scale = n.Scale
		if n.LogicalType == "decimal" && (n.Scale < t.Scale() || n.Precision-n.Scale < t.Precision()-t.Scale()) {
			return nil, cannotWrite(path, n, t, fmt.Sprintf("CAST the column AS DECIMAL(%d, %d)", n.Precision, n.Scale))
		}
		if n.Type == "fixed" {
			return is(wopDecimalFixed, n.LogicalType == "decimal")
		}
		return is(wopDecimal, n.Type == "bytes" && n.LogicalType == "decimal")
	case row.KindDate:
		return is(wopInt, n.Type == "int" && (n.LogicalType == "" || n.LogicalType == "date"))
	case row.KindTime:
		if n.Type == "long" {
			return is(wopTimeMicros, n.LogicalType == "time-micros")
		}
		return is(wopInt, n.Type == "int" && (n.LogicalType == "" || n.LogicalType == "time-millis"))
	case row.KindTimestamp, row.KindTimestampLTZ:
		kind, local := strings.CutPrefix(n.LogicalType, "local-")
		digits := 3
		switch kind {
		case "timestamp-millis":
			v.unit = 1
		case "timestamp-micros":
			v.unit, digits = 1000, 6
		case "timestamp-nanos":
			v.unit, digits = 1000_000, 9
		default:
			return nil, cannotWrite(path, n, t, "")
		}
		if t.Precision() > digits {
			return nil, cannotWrite(path, n, t, fmt.Sprintf("CAST the column AS %s(%d)", k, digits))
		}
		return is(wopStamp, n.Type == "long" && !(local && k == row.KindTimestampLTZ))
	case row.KindArray:
		if n.Type != "array" {
			return nil, cannotWrite(path, n, t, "")
		}
		v.op, v.view = wopArray, cells.View(t.Elem())
		var err error
		v.elem, err = w.value(n.Items, t.Elem(), path+"[]")
		return v, err
	case row.KindMap, row.KindMultiset:
		key, value := t.Key(), t.Elem()
		if k == row.KindMultiset {
			key, value = t.Elem(), row.Int().NotNull()
		}
		if n.Type != "map" || !key.Kind().Text() {
			return nil, cannotWrite(path, n, t, "")
		}
		v.op, v.view = wopMap, cells.View(value)
		var err error
		v.elem, err = w.value(n.Values, value, path+"{}")
		return v, err
	case row.KindRow:
		if n.Type != "record" && n.Type != "error" {
			return nil, cannotWrite(path, n, t, "")
		}
		have := make([]want, t.NumFields())
		for i := range have {
			have[i] = want{t.Field(i).Name, t.Field(i).Type}
		}
		v.op = wopRecord
		var err error
		v.fields, err = w.fields(n, have, path)
		return v, err
	}
	return nil, cannotWrite(path, n, t, "")
}

// output writes values. The first error stays.
type output struct{ err error }

func (o *output) fail(v *writer, format string, args ...any) {
	if o.err == nil {
		o.err = fmt.Errorf("field %s: %w", v.path, fmt.Errorf(format, args...))
	}
}

// head writes the branch of a value in a union.
func (o *output) head(dst []byte, v *writer) []byte {
	if v.branch >= 0 {
		dst = binary.AppendVarint(dst, v.branch)
	}
	return dst
}

func (o *output) write(dst []byte, v *writer, c cells.Cell) []byte {
	if c.Null {
		if v.null < 0 {
			o.fail(v, "NULL, which the schema's type there cannot be")
			return dst
		}
		return binary.AppendVarint(dst, v.null)
	}
	dst = o.head(dst, v)
	switch v.op {
	case wopBool:
		return append(dst, byte(c.X))
	case wopInt:
		return binary.AppendVarint(dst, int64(c.X))
	case wopFloat:
		return binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(math.Float64frombits(c.X))))
	case wopDouble:
		return binary.LittleEndian.AppendUint64(dst, c.X)
	case wopOctets:
		dst = binary.AppendVarint(dst, int64(len(c.B)))
		return append(dst, c.B...)
	case wopFixed:
		if len(c.B) != v.size {
			o.fail(v, "%d bytes for a fixed of %d", len(c.B), v.size)
		}
		return append(dst, c.B...)
	case wopEnum:
		i, ok := v.symbols[string(c.B)]
		if !ok {
			o.fail(v, "'%s' is no symbol of the schema's enum", c.B)
		}
		return binary.AppendVarint(dst, i)
	case wopDecimal, wopDecimalFixed:
		return o.decimal(dst, v, c)
	case wopTimeMicros:
		return binary.AppendVarint(dst, int64(c.X)*1000)
	case wopStamp:
		ms := int64(c.X)
		hi, lo := bits.Mul64(uint64(max(ms, -ms)), uint64(v.unit))
		if hi > 0 || lo > math.MaxInt64-1000_000 {
			o.fail(v, "the timestamp is too far away for the schema's unit")
			return dst
		}
		return binary.AppendVarint(dst, ms*v.unit+int64(c.Y)*v.unit/1000_000)
	case wopArray:
		a := row.ViewArray(v.t, c.B)
		if a.Len() > 0 {
			dst = binary.AppendVarint(dst, int64(a.Len()))
			for i := range a.Len() {
				dst = o.write(dst, v.elem, cells.Elem(a, v.view, i))
			}
		}
		return append(dst, 0)
	case wopMap:
		m := row.ViewMap(v.t, c.B)
		if m.Len() > 0 {
			dst = binary.AppendVarint(dst, int64(m.Len()))
			keys, values := m.Keys(), m.Values()
			for i := range m.Len() {
				if keys.Null(i) {
					o.fail(v, "a key of the map is NULL")
					return dst
				}
				k := keys.Bytes(i)
				dst = append(binary.AppendVarint(dst, int64(len(k))), k...)
				dst = o.write(dst, v.elem, cells.Elem(values, v.view, i))
			}
		}
		return append(dst, 0)
	case wopRecord:
		r := row.ViewRow(v.t, c.B)
		for i := range v.fields {
			f := &v.fields[i]
			if f.writer == nil {
				dst = append(dst, f.bytes...)
				continue
			}
			dst = o.write(dst, f.writer, cells.Field(r, f.view, f.cell))
		}
	}
	return dst
}

// decimal writes an unscaled number in big-endian two's complement, in as few bytes as it takes or in all of a fixed.
func (o *output) decimal(dst []byte, v *writer, c cells.Cell) []byte {
	d := row.DecInt(int64(c.X))
	if v.t.Precision() > 18 {
		d = row.Dec{Lo: c.X, Hi: int64(c.Y)}
	}
	d, ok := d.Rescale(v.t.Scale(), v.scale, row.MaxPrecision)
	if !ok {
		o.fail(v, "the number has too many digits for the schema's decimal")
		return dst
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], uint64(d.Hi))
	binary.BigEndian.PutUint64(b[8:], d.Lo)
	sign := byte(d.Hi >> 63)
	n := 16
	for n > 1 && b[16-n] == sign && (b[16-n+1]^sign)&0x80 == 0 {
		n--
	}
	if v.op == wopDecimal {
		return append(binary.AppendVarint(dst, int64(n)), b[16-n:]...)
	}
	if n > v.size {
		o.fail(v, "the number has too many digits for a fixed of %d bytes", v.size)
		return dst
	}
	for range v.size - min(16, v.size) {
		dst = append(dst, sign)
	}
	return append(dst, b[16-min(16, v.size):]...)
}
