package protobuf

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/millrace-stream/millrace/format/internal/cells"
	"github.com/millrace-stream/millrace/row"
)

// writer writes a field.
type writer struct {
	path     string
	t        *row.Type // of a value: of a list, of an element; of a map, the MAP
	cell     int       // the column or field that it comes from
	whole    bool      // the cell is a view
	class    class
	kind     protoreflect.Kind
	num      protowire.Number
	wire     protowire.Type
	implicit bool // a zero value is not written
	required bool
	list     *row.Type // the ARRAY of a repeated field
	view     bool      // elements are views
	packed   bool
	key      *writer
	value    *writer
	symbols  map[string]int32 // of an enum that is text
	numbers  map[int64]bool   // of a closed enum that is a number
	null     []byte           // text instead of NULL in lists and maps
	first    int32            // of an enum: the number instead of NULL in lists and maps
	inner    []writer
	oneof    []int // writers of the same oneof, by the order of the columns
}

// writing makes writers.
type writing struct{ null []byte }

// message compiles a message for columns or fields of these names, in the order of their numbers.
func (w writing) message(d protoreflect.MessageDescriptor, have []want, path string) ([]writer, error) {
	var out []writer
	for i, h := range have {
		fd, err := fieldOf(d, h.name, path)
		if err != nil {
			return nil, err
		}
		v, err := w.field(fd, h.t, join(path, h.name))
		if err != nil {
			return nil, err
		}
		v.cell, v.whole = i, cells.View(h.t)
		out = append(out, v)
	}
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		if fd.Cardinality() == protoreflect.Required && !slices.ContainsFunc(have, func(h want) bool { return h.name == string(fd.Name()) }) {
			return nil, fmt.Errorf("field %s of message %s is required, and the table has no such column", join(path, string(fd.Name())), d.FullName())
		}
	}
	slices.SortFunc(out, func(a, b writer) int { return int(a.num - b.num) })
	for i := range out {
		o := d.Fields().ByNumber(out[i].num).ContainingOneof()
		if o == nil || o.IsSynthetic() {
			continue
		}
		for j := range out {
			if other := d.Fields().ByNumber(out[j].num).ContainingOneof(); other != nil && other.FullName() == o.FullName() && out[j].cell > out[i].cell {
				out[i].oneof = append(out[i].oneof, j)
			}
		}
	}
	return out, nil
}

func (w writing) field(fd protoreflect.FieldDescriptor, t *row.Type, path string) (writer, error) {
	switch {
	case fd.IsMap():
		if t.Kind() != row.KindMap {
			return writer{}, cannot(path, fd, t, "")
		}
		key, err := w.single(fd.MapKey(), t.Key(), path+"{key}")
		if err != nil {
			return key, err
		}
		value, err := w.single(fd.MapValue(), t.Elem(), path+"{}")
		if err != nil {
			return value, err
		}
		key.view, value.view = cells.View(t.Key()), cells.View(t.Elem())
		return writer{path: path, t: t, num: fd.Number(), wire: protowire.BytesType, key: &key, value: &value}, nil
	case fd.IsList():
		if t.Kind() != row.KindArray {
			return writer{}, cannot(path, fd, t, "")
		}
		v, err := w.single(fd, t.Elem(), path+"[]")
		v.path, v.list, v.view, v.packed = path, t, cells.View(t.Elem()), fd.IsPacked()
		return v, err
	}
	v, err := w.single(fd, t, path)
	v.implicit = !fd.HasPresence()
	v.required = fd.Cardinality() == protoreflect.Required
	return v, err
}

// single compiles a value of a field. What goes with what is as for reading, and a type of fewer digits goes into a wider one.
func (w writing) single(fd protoreflect.FieldDescriptor, t *row.Type, path string) (writer, error) {
	as := t
	switch k := t.Kind(); {
	case (k == row.KindTinyInt || k == row.KindSmallInt) && fd.Enum() == nil:
		as = row.Int().Nullable(t.IsNullable())
	case k == row.KindDecimal && t.Scale() == 0:
		as = row.Decimal(20, 0)
	}
	switch fd.Kind() {
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		if as.Kind() == row.KindInt {
			as = row.BigInt()
		}
	case protoreflect.DoubleKind:
		if as.Kind() == row.KindFloat {
			as = row.Double()
		}
	}
	v := writer{path: path, t: t, kind: fd.Kind(), num: fd.Number(), null: w.null}
	if fd.Message() != nil && t.Kind() == row.KindRow {
		v.class, v.wire = nested, protowire.BytesType
		if fd.Kind() == protoreflect.GroupKind {
			v.wire = protowire.StartGroupType
		}
		have := make([]want, t.NumFields())
		for i := range have {
			have[i] = want{t.Field(i).Name, t.Field(i).Type}
		}
		var err error
		v.inner, err = w.message(fd.Message(), have, path)
		return v, err
	}
	f, err := reading{}.single(fd, as, path)
	if err != nil {
		return v, cannot(path, fd, t, "")
	}
	v.class, v.wire = f.class, f.wire
	if e := fd.Enum(); e != nil {
		v.first = int32(e.Values().Get(0).Number())
		if t.Kind().Text() {
			v.symbols = map[string]int32{}
			for i := range e.Values().Len() {
				v.symbols[string(e.Values().Get(i).Name())] = int32(e.Values().Get(i).Number())
			}
		} else if e.IsClosed() {
			v.numbers = map[int64]bool{}
			for i := range e.Values().Len() {
				v.numbers[int64(e.Values().Get(i).Number())] = true
			}
		}
	}
	if v.class == wrapper {
		v.inner = make([]writer, 1)
		v.inner[0], err = w.field(fd.Message().Fields().ByName("value"), t, path)
	}
	return v, err
}

// output writes messages. The first error stays.
type output struct{ err error }

func (o *output) fail(v *writer, err error) {
	if o.err == nil {
		o.err = fmt.Errorf("field %s: %w", v.path, err)
	}
}

// source gives the columns or fields of a message.
type source struct {
	row    row.RowView
	layout *row.Layout
	r      *row.Row
	index  []int // columns of the row
}

func (s *source) cell(v *writer) cells.Cell {
	if s.layout != nil {
		return cells.Load(s.layout, s.r, s.index[v.cell])
	}
	return cells.Field(s.row, v.whole, v.cell)
}

func (s *source) null(v *writer) bool {
	if s.layout != nil {
		return s.r.Null(s.index[v.cell])
	}
	return s.row.Null(v.cell)
}

func (o *output) fields(dst []byte, vs []writer, s *source) []byte {
next:
	for i := range vs {
		v := &vs[i]
		if s.null(v) {
			if v.required {
				o.fail(v, errors.New("NULL, and it is required"))
			}
			continue
		}
		for _, later := range v.oneof {
			if !s.null(&vs[later]) {
				continue next // of a oneof the last column counts
			}
		}
		dst = o.field(dst, v, s.cell(v))
	}
	return dst
}

// field writes a field that is not NULL, with its tag.
func (o *output) field(dst []byte, v *writer, c cells.Cell) []byte {
	switch {
	case v.key != nil:
		m := row.ViewMap(v.t, c.B)
		keys, values := m.Keys(), m.Values()
		for i := range m.Len() {
			dst = protowire.AppendTag(dst, v.num, protowire.BytesType)
			at := len(dst)
			dst = o.element(dst, v.key, cells.Elem(keys, v.key.view, i))
			dst = o.element(dst, v.value, cells.Elem(values, v.value.view, i))
			dst = frame(dst, at)
		}
		return dst
	case v.list != nil:
		a := row.ViewArray(v.list, c.B)
		if a.Len() == 0 {
			return dst
		}
		if v.packed {
			dst = protowire.AppendTag(dst, v.num, protowire.BytesType)
			at := len(dst)
			for i := range a.Len() {
				e := cells.Elem(a, v.view, i)
				if e.Null {
					e = v.instead()
				}
				dst = o.number(dst, v, e)
			}
			return frame(dst, at)
		}
		for i := range a.Len() {
			dst = o.element(dst, v, cells.Elem(a, v.view, i))
		}
		return dst
	}
	if v.implicit && v.zero(c) {
		return dst
	}
	return o.value(dst, v, c)
}

// element writes an element of a list, or a key or value of a map, with its tag. There is no NULL in them.
func (o *output) element(dst []byte, v *writer, c cells.Cell) []byte {
	if c.Null {
		if c = v.instead(); v.class == nested || v.class == wrapper || v.class == stamp {
			dst = protowire.AppendTag(dst, v.num, v.wire)
			if v.wire == protowire.StartGroupType {
				return protowire.AppendTag(dst, v.num, protowire.EndGroupType)
			}
			return append(dst, 0)
		}
	}
	return o.value(dst, v, c)
}

// instead is what stands for NULL where there is none.
func (v *writer) instead() cells.Cell {
	switch {
	case v.symbols != nil:
		for name, n := range v.symbols {
			if n == v.first {
				return cells.Cell{B: []byte(name)}
			}
		}
	case v.kind == protoreflect.StringKind:
		return cells.Cell{B: v.null}
	case v.kind == protoreflect.EnumKind:
		return cells.Cell{X: uint64(int64(v.first))}
	}
	return cells.Cell{}
}

// zero says whether the value is the one that absence stands for.
func (v *writer) zero(c cells.Cell) bool {
	switch {
	case v.symbols != nil:
		n, ok := v.symbols[string(c.B)]
		return ok && n == 0
	case v.class == octets:
		return len(c.B) == 0
	}
	return v.class == scalar && c.X == 0 && c.Y == 0
}

// value writes a value that is not NULL, with its tag.
func (o *output) value(dst []byte, v *writer, c cells.Cell) []byte {
	dst = protowire.AppendTag(dst, v.num, v.wire)
	if v.class == scalar {
		return o.number(dst, v, c)
	}
	if v.class == octets {
		return protowire.AppendBytes(dst, c.B)
	}
	at := len(dst)
	switch v.class {
	case nested:
		dst = o.fields(dst, v.inner, &source{row: row.ViewRow(v.t, c.B)})
	case wrapper:
		dst = o.field(dst, &v.inner[0], c)
	case stamp:
		ms := int64(c.X)
		seconds := row.FloorDiv(ms, 1000)
		if seconds != 0 {
			dst = protowire.AppendVarint(protowire.AppendTag(dst, 1, protowire.VarintType), uint64(seconds))
		}
		if nanos := (ms-seconds*1000)*1e6 + int64(c.Y); nanos != 0 {
			dst = protowire.AppendVarint(protowire.AppendTag(dst, 2, protowire.VarintType), uint64(nanos))
		}
	}
	if v.wire == protowire.StartGroupType {
		return protowire.AppendTag(dst, v.num, protowire.EndGroupType)
	}
	return frame(dst, at)
}

// frame puts the length of what stands behind at before it.
func frame(dst []byte, at int) []byte {
	n := len(dst) - at
	var head [10]byte
	b := protowire.AppendVarint(head[:0], uint64(n))
	dst = append(dst, b...)
	copy(dst[at+len(b):], dst[at:at+n])
	copy(dst[at:], b)
	return dst
}

// number writes a number without tag.
func (o *output) number(dst []byte, v *writer, c cells.Cell) []byte {
	n := int64(c.X)
	switch v.kind {
	case protoreflect.BoolKind, protoreflect.Int64Kind:
		return protowire.AppendVarint(dst, c.X)
	case protoreflect.Int32Kind:
		o.within(v, n, math.MinInt32, math.MaxInt32)
		return protowire.AppendVarint(dst, c.X)
	case protoreflect.Sint32Kind:
		o.within(v, n, math.MinInt32, math.MaxInt32)
		return protowire.AppendVarint(dst, protowire.EncodeZigZag(n))
	case protoreflect.Sint64Kind:
		return protowire.AppendVarint(dst, protowire.EncodeZigZag(n))
	case protoreflect.Uint32Kind:
		o.within(v, n, 0, math.MaxUint32)
		return protowire.AppendVarint(dst, c.X)
	case protoreflect.Sfixed32Kind:
		o.within(v, n, math.MinInt32, math.MaxInt32)
		return protowire.AppendFixed32(dst, uint32(n))
	case protoreflect.Fixed32Kind:
		o.within(v, n, 0, math.MaxUint32)
		return protowire.AppendFixed32(dst, uint32(n))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		if v.t.Kind() != row.KindDecimal {
			o.within(v, n, 0, math.MaxInt64)
		} else if v.t.Precision() <= 18 && n < 0 || v.t.Precision() > 18 && c.Y != 0 {
			o.fail(v, errors.New("the number does not fit an unsigned one of 64 bits"))
		}
		if v.kind == protoreflect.Fixed64Kind {
			return protowire.AppendFixed64(dst, c.X)
		}
		return protowire.AppendVarint(dst, c.X)
	case protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		return protowire.AppendFixed64(dst, c.X)
	case protoreflect.FloatKind:
		return protowire.AppendFixed32(dst, math.Float32bits(float32(math.Float64frombits(c.X))))
	}
	// An enum.
	if v.symbols != nil {
		s, ok := v.symbols[string(c.B)]
		if !ok {
			o.fail(v, fmt.Errorf("'%s' is no name of the enum", c.B))
		}
		n = int64(s)
	} else if v.numbers != nil && !v.numbers[n] {
		o.fail(v, fmt.Errorf("%d is no number of the enum", n))
	}
	o.within(v, n, math.MinInt32, math.MaxInt32)
	return protowire.AppendVarint(dst, uint64(n))
}

func (o *output) within(v *writer, n, least, most int64) {
	if n < least || n > most {
		o.fail(v, fmt.Errorf("%d does not fit %s", n, v.kind))
	}
}
