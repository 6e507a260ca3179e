package protobuf

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/millrace-stream/millrace/format/internal/cells"
	"github.com/millrace-stream/millrace/internal/near"
	"github.com/millrace-stream/millrace/row"
)

// message reads a message into cells, one for each column or field that is wanted. It belongs to one decoder.
type message struct {
	fields []field
	low    [64]int8 // 1 + the field of each small number, 0 = none is wanted
	high   map[protowire.Number]int
	rows   *row.RowBuilder
}

// class is how the wire has a field.
type class uint8

const (
	scalar  class = iota // a number
	octets               // text or bytes
	nested               // a ROW
	stamp                // google.protobuf.Timestamp as a timestamp
	wrapper              // one of google/protobuf/wrappers.proto as what it wraps
)

// field reads a field.
type field struct {
	path    string
	t       *row.Type // of a value: of a list, of an element
	class   class
	kind    protoreflect.Kind
	wire    protowire.Type
	group   bool
	view    bool
	strict  bool              // text must be UTF-8
	closed  bool              // an enum has no other numbers
	symbols map[int32][]byte  // of an enum that is text
	numbers map[int32]bool    // of a closed enum that is a number
	inner   *message          // of nested and wrapper
	array   *row.ArrayBuilder // of a repeated field
	maps    *row.MapBuilder
	key     *field
	value   *field
	other   []int // fields of the same oneof
	absent  cells.Cell
	missing bool // that it is absent is an error

	seen   bool
	cell   cells.Cell
	span   []byte // of nested, stamp and wrapper: the message
	merged []byte // of a message that comes in pieces
}

// want is a column or field to be read.
type want struct {
	name string
	t    *row.Type
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// reading makes readers.
type reading struct {
	defaults bool
	versions bool // a field that the message does not have is NULL: another version of the schema has it
}

func (rd reading) message(d protoreflect.MessageDescriptor, wants []want, path string) (*message, error) {
	m := &message{fields: make([]field, len(wants)), high: map[protowire.Number]int{}}
	oneofs := map[protoreflect.FullName][]int{}
	for i, w := range wants {
		fd, err := fieldOf(d, w.name, path)
		if err != nil && rd.versions && w.t.IsNullable() {
			m.fields[i] = field{path: join(path, w.name), t: w.t, absent: cells.Cell{Null: true}}
			continue
		}
		if err != nil {
			return nil, err
		}
		if m.fields[i], err = rd.field(fd, w.t, join(path, w.name)); err != nil {
			return nil, err
		}
		if n := fd.Number(); n < protowire.Number(len(m.low)) && i < math.MaxInt8 {
			m.low[n] = int8(i + 1)
		} else {
			m.high[n] = i
		}
		if o := fd.ContainingOneof(); o != nil {
			oneofs[o.FullName()] = append(oneofs[o.FullName()], i)
		}
	}
	for _, members := range oneofs {
		for _, i := range members {
			m.fields[i].other = members
		}
	}
	return m, nil
}

// fieldOf is the field of a message for a column.
func fieldOf(d protoreflect.MessageDescriptor, name, path string) (protoreflect.FieldDescriptor, error) {
	fds := d.Fields()
	if fd := fds.ByName(protoreflect.Name(name)); fd != nil {
		return fd, nil
	}
	names := make([]string, fds.Len())
	for i := range names {
		names[i] = string(fds.Get(i).Name())
	}
	if n, ok := near.Word(name, names); ok {
		return nil, fmt.Errorf("column %s is no field of message %s; did you mean %s?", join(path, name), d.FullName(), n)
	}
	return nil, fmt.Errorf("column %s is no field of message %s; there are: %s", join(path, name), d.FullName(), strings.Join(names, ", "))
}

// describe names the type of a field in messages.
func describe(fd protoreflect.FieldDescriptor) string {
	text := fd.Kind().String()
	switch {
	case fd.IsMap():
		return "map<" + describe(fd.MapKey()) + ", " + describe(fd.MapValue()) + ">"
	case fd.Message() != nil:
		text = "message " + string(fd.Message().FullName())
	case fd.Enum() != nil:
		text = "enum " + string(fd.Enum().FullName())
	}
	if fd.IsList() {
		return "repeated " + text
	}
	return text
}

func cannot(path string, fd protoreflect.FieldDescriptor, t *row.Type, hint string) error {
	if hint != "" {
		hint = ": " + hint
	}
	return fmt.Errorf("field %s is %s, which does not go with %s%s", path, describe(fd), t, hint)
}

func (rd reading) field(fd protoreflect.FieldDescriptor, t *row.Type, path string) (field, error) {
	var f field
	switch {
	case fd.IsMap():
		if t.Kind() != row.KindMap {
			return f, cannot(path, fd, t, "")
		}
		key, err := rd.single(fd.MapKey(), t.Key(), path+"{key}")
		if err != nil {
			return f, err
		}
		value, err := rd.single(fd.MapValue(), t.Elem(), path+"{}")
		if err != nil {
			return f, err
		}
		// What a message without fields lacks is an error of an entry without value, and not of the table.
		value.absent, err = rd.zero(fd.MapValue(), &value)
		value.missing = err != nil
		if key.absent, err = rd.zero(fd.MapKey(), &key); err != nil {
			return f, err
		}
		f = field{path: path, t: t, wire: protowire.BytesType, maps: row.NewMapBuilder(t), key: &key, value: &value}
	case fd.IsList():
		if t.Kind() != row.KindArray {
			return f, cannot(path, fd, t, "")
		}
		var err error
		if f, err = rd.single(fd, t.Elem(), path+"[]"); err != nil {
			return f, err
		}
		f.path, f.array = path, row.NewArrayBuilder(t)
	default:
		var err error
		if f, err = rd.single(fd, t, path); err != nil {
			return f, err
		}
	}
	var err error
	switch {
	case f.array != nil && (rd.defaults || !t.IsNullable()):
		f.absent = cells.Cell{B: f.array.Append(nil)}
	case f.maps != nil && (rd.defaults || !t.IsNullable()):
		f.absent = cells.Cell{B: f.maps.Append(nil)}
	case f.array == nil && f.maps == nil && (rd.defaults || !fd.HasPresence()):
		f.absent, err = rd.zero(fd, &f)
	default:
		f.absent, f.missing = cells.Cell{Null: true}, !t.IsNullable()
	}
	return f, err
}

// zero is the default of a field that is no list and no map.
func (rd reading) zero(fd protoreflect.FieldDescriptor, f *field) (c cells.Cell, err error) {
	switch f.class {
	case scalar:
		var in input
		v := fd.Default()
		switch fd.Kind() {
		case protoreflect.BoolKind:
			if v.Bool() {
				c.X = 1
			}
			return c, nil
		case protoreflect.FloatKind, protoreflect.DoubleKind:
			c.X = math.Float64bits(v.Float())
			return c, nil
		case protoreflect.EnumKind:
			in.number(f, int64(v.Enum()), &c)
		case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
			in.unsigned(f, v.Uint(), &c)
		default:
			in.number(f, v.Int(), &c)
		}
		return c, in.err
	case octets:
		if fd.Kind() == protoreflect.StringKind {
			return cells.Cell{B: []byte(fd.Default().String())}, nil
		}
		return cells.Cell{B: fd.Default().Bytes()}, nil
	case nested:
		// A message that is not there is one without fields: it is read so once.
		in := input{}
		own, err := rd.message(fd.Message(), f.wants(), f.path)
		if err != nil {
			return c, err
		}
		if in.fields(own, nil); in.err != nil {
			return c, in.err
		}
		own.rows = row.NewRowBuilder(f.t)
		return cells.Cell{B: own.pack(nil)}, nil
	case wrapper:
		return f.inner.fields[0].absent, nil
	}
	return c, nil // the epoch
}

func (f *field) wants() []want {
	wants := make([]want, f.t.NumFields())
	for i := range wants {
		wants[i] = want{f.t.Field(i).Name, f.t.Field(i).Type}
	}
	return wants
}

// The messages of google/protobuf that have a meaning beyond their fields.
const timestampName = "google.protobuf.Timestamp"

var wrappers = map[protoreflect.FullName]bool{
	"google.protobuf.BoolValue": true, "google.protobuf.Int32Value": true, "google.protobuf.Int64Value": true, "google.protobuf.UInt32Value": true,
	"google.protobuf.UInt64Value": true, "google.protobuf.FloatValue": true, "google.protobuf.DoubleValue": true, "google.protobuf.StringValue": true, "google.protobuf.BytesValue": true,
}

// single compiles a value of a field.
func (rd reading) single(fd protoreflect.FieldDescriptor, t *row.Type, path string) (field, error) {
	f := field{path: path, t: t, kind: fd.Kind(), view: cells.View(t), strict: fd.ParentFile().Syntax() != protoreflect.Proto2}
	is := func(wire protowire.Type, kinds ...row.Kind) (field, error) {
		f.wire = wire
		for _, k := range kinds {
			if t.Kind() == k {
				return f, nil
			}
		}
		return f, cannot(path, fd, t, "")
	}
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return is(protowire.VarintType, row.KindBoolean)
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Uint32Kind:
		return is(protowire.VarintType, row.KindInt, row.KindBigInt)
	case protoreflect.Sfixed32Kind, protoreflect.Fixed32Kind:
		return is(protowire.Fixed32Type, row.KindInt, row.KindBigInt)
	case protoreflect.Int64Kind, protoreflect.Sint64Kind:
		return is(protowire.VarintType, row.KindBigInt)
	case protoreflect.Sfixed64Kind:
		return is(protowire.Fixed64Type, row.KindBigInt)
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		f.wire = protowire.VarintType
		if fd.Kind() == protoreflect.Fixed64Kind {
			f.wire = protowire.Fixed64Type
		}
		if t.Kind() == row.KindDecimal && t.Scale() == 0 && t.Precision() >= 20 {
			return f, nil
		}
		return is(f.wire, row.KindBigInt)
	case protoreflect.FloatKind:
		return is(protowire.Fixed32Type, row.KindFloat, row.KindDouble)
	case protoreflect.DoubleKind:
		return is(protowire.Fixed64Type, row.KindDouble)
	case protoreflect.StringKind:
		f.class = octets
		return is(protowire.BytesType, row.KindChar, row.KindVarChar)
	case protoreflect.BytesKind:
		f.class = octets
		return is(protowire.BytesType, row.KindBinary, row.KindVarBinary)
	case protoreflect.EnumKind:
		f.closed = fd.Enum().IsClosed()
		values := fd.Enum().Values()
		if t.Kind().Text() {
			f.symbols = map[int32][]byte{}
			for i := range values.Len() {
				if v := values.Get(i); f.symbols[int32(v.Number())] == nil {
					f.symbols[int32(v.Number())] = []byte(v.Name())
				}
			}
		} else if f.closed {
			f.numbers = map[int32]bool{}
			for i := range values.Len() {
				f.numbers[int32(values.Get(i).Number())] = true
			}
		}
		return is(protowire.VarintType, row.KindChar, row.KindVarChar, row.KindTinyInt, row.KindSmallInt, row.KindInt, row.KindBigInt)
	}
	f.wire = protowire.BytesType
	if f.group = fd.Kind() == protoreflect.GroupKind; f.group {
		f.wire = protowire.StartGroupType
	}
	d := fd.Message()
	var err error
	switch {
	case t.Kind() == row.KindRow:
		f.class = nested
		if f.inner, err = rd.message(d, f.wants(), path); err != nil {
			return f, err
		}
		f.inner.rows = row.NewRowBuilder(t)
		return f, nil
	case d.FullName() == timestampName && (t.Kind() == row.KindTimestamp || t.Kind() == row.KindTimestampLTZ):
		f.class = stamp
		return f, nil
	case wrappers[d.FullName()]:
		f.class = wrapper
		f.inner, err = reading{}.message(d, []want{{"value", t.NotNull()}}, path)
		return f, err
	}
	return f, cannot(path, fd, t, "")
}

// Errors of a message's bytes.
var (
	errWire = errors.New("the message is cut off or no Protobuf")
	errUTF8 = errors.New("the text is not UTF-8")
	errNull = errors.New("is not in the message, and the column is NOT NULL")
)

// input is a message while it is read. The first error stays.
type input struct {
	err   error
	arena []byte // nested values
}

func (in *input) failAt(f *field, err error) {
	if in.err == nil {
		in.err = fmt.Errorf("field %s: %w", f.path, err)
	}
}

func (in *input) fail() {
	if in.err == nil {
		in.err = errWire
	}
}

// find is the wanted field of a number, nil if it is not wanted.
func (m *message) find(n protowire.Number) *field {
	if n > 0 && n < protowire.Number(len(m.low)) {
		if i := m.low[n]; i > 0 {
			return &m.fields[i-1]
		}
	}
	if len(m.high) > 0 {
		if i, ok := m.high[n]; ok {
			return &m.fields[i]
		}
	}
	return nil
}

// fields reads a message into the cells of its fields.
func (in *input) fields(m *message, b []byte) {
	for i := range m.fields {
		f := &m.fields[i]
		f.seen = false
		if f.array != nil {
			f.array.Reset()
		}
		if f.maps != nil {
			f.maps.Reset()
		}
	}
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			in.fail()
			return
		}
		b = b[n:]
		f := m.find(num)
		if f == nil || typ != f.wire && (f.array == nil || typ != protowire.BytesType) {
			if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
				in.fail()
				return
			}
			b = b[n:]
			continue
		}
		b = in.field(m, f, num, typ, b)
		if in.err != nil {
			return
		}
	}
	for i := range m.fields {
		in.finish(&m.fields[i])
	}
}

// field reads a value of a field and gives the rest.
func (in *input) field(m *message, f *field, num protowire.Number, typ protowire.Type, b []byte) []byte {
	if typ == protowire.BytesType || typ == protowire.StartGroupType {
		var content []byte
		var n int
		if typ == protowire.BytesType {
			content, n = protowire.ConsumeBytes(b)
		} else {
			content, n = protowire.ConsumeGroup(num, b)
		}
		if n < 0 {
			in.fail()
			return nil
		}
		b = b[n:]
		switch {
		case f.maps != nil:
			in.entry(f, content)
		case f.array != nil && f.class == scalar:
			in.packed(f, content)
			return b
		case f.array != nil:
			if c, ok := in.content(f, content); ok {
				cells.AddElem(f.array, f.view, &c)
			}
		case f.class == octets:
			f.cell, f.seen = in.octets(f, content), true
		case f.seen:
			// A message that comes twice is merged: that is what its parts behind each other mean.
			if len(f.merged) == 0 {
				f.merged = append(f.merged, f.span...)
			}
			f.merged = append(f.merged, content...)
			f.span = f.merged
		default:
			f.span, f.seen, f.merged = content, true, f.merged[:0]
		}
		if f.maps == nil && f.array == nil {
			m.choose(f)
			return b
		}
		f.seen = true
		return b
	}
	v, n := raw(typ, b)
	if n < 0 {
		in.fail()
		return nil
	}
	var c cells.Cell
	if in.convert(f, v, &c) {
		if f.array != nil {
			cells.AddElem(f.array, f.view, &c)
			f.seen = true
		} else {
			f.cell, f.seen = c, true
			m.choose(f)
		}
	}
	return b[n:]
}

// choose clears the other fields of a oneof.
func (m *message) choose(f *field) {
	for _, i := range f.other {
		if o := &m.fields[i]; o != f {
			o.seen = false
		}
	}
}

func raw(typ protowire.Type, b []byte) (uint64, int) {
	switch typ {
	case protowire.VarintType:
		return protowire.ConsumeVarint(b)
	case protowire.Fixed32Type:
		v, n := protowire.ConsumeFixed32(b)
		return uint64(v), n
	}
	return protowire.ConsumeFixed64(b)
}

func (in *input) packed(f *field, b []byte) {
	for len(b) > 0 {
		v, n := raw(f.wire, b)
		if n < 0 {
			in.fail()
			return
		}
		b = b[n:]
		var c cells.Cell
		if in.convert(f, v, &c) {
			cells.AddElem(f.array, f.view, &c)
			f.seen = true
		}
	}
}

// entries stands for the message of an entry of a map, which has no oneof.
var entries message

// entry reads an entry of a map.
func (in *input) entry(f *field, b []byte) {
	f.key.seen, f.value.seen = false, false
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			in.fail()
			return
		}
		b = b[n:]
		part := f.key
		if num == 2 {
			part = f.value
		}
		if num > 2 || typ != part.wire {
			if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
				in.fail()
				return
			}
			b = b[n:]
			continue
		}
		if b = in.field(&entries, part, num, typ, b); in.err != nil {
			return
		}
	}
	for _, part := range [...]*field{f.key, f.value} {
		if in.finish(part); in.err != nil {
			return
		}
	}
	cells.AddElem(&f.maps.Keys, f.key.view, &f.key.cell)
	cells.AddElem(&f.maps.Values, f.value.view, &f.value.cell)
}

// finish makes the cell of a field once the whole message was read.
func (in *input) finish(f *field) {
	switch {
	case !f.seen:
		if f.cell = f.absent; f.missing {
			in.failAt(f, errNull)
		}
	case f.array != nil:
		at := len(in.arena)
		in.arena = f.array.Append(in.arena)
		f.cell = cells.Cell{B: in.arena[at:len(in.arena):len(in.arena)]}
	case f.maps != nil:
		at := len(in.arena)
		in.arena = f.maps.Append(in.arena)
		f.cell = cells.Cell{B: in.arena[at:len(in.arena):len(in.arena)]}
	case f.class >= nested:
		f.cell, _ = in.content(f, f.span)
	}
}

// content makes the cell of what has a length: text, bytes, a message.
func (in *input) content(f *field, b []byte) (cells.Cell, bool) {
	switch f.class {
	case octets:
		return in.octets(f, b), true
	case stamp:
		return in.timestamp(f, b), true
	case nested:
		if in.fields(f.inner, b); in.err != nil {
			return cells.Cell{}, false
		}
		at := len(in.arena)
		in.arena = f.inner.pack(in.arena)
		return cells.Cell{B: in.arena[at:len(in.arena):len(in.arena)]}, true
	case wrapper:
		in.fields(f.inner, b)
		return f.inner.fields[0].cell, true
	}
	return cells.Cell{}, false
}

// pack appends the fields as a ROW.
func (m *message) pack(dst []byte) []byte {
	m.rows.Reset()
	for i := range m.fields {
		f := &m.fields[i]
		cells.AddField(m.rows, f.view || f.array != nil || f.maps != nil, &f.cell)
	}
	return m.rows.Append(dst)
}

func (in *input) octets(f *field, b []byte) cells.Cell {
	if f.kind == protoreflect.StringKind && !utf8.Valid(b) {
		if f.strict {
			in.failAt(f, errUTF8)
			return cells.Cell{}
		}
		at := len(in.arena)
		for len(b) > 0 {
			r, n := utf8.DecodeRune(b)
			in.arena = utf8.AppendRune(in.arena, r)
			b = b[n:]
		}
		b = in.arena[at:len(in.arena):len(in.arena)]
	}
	return cells.Cell{B: b}
}

// timestamp reads a google.protobuf.Timestamp.
func (in *input) timestamp(f *field, b []byte) (c cells.Cell) {
	var seconds, nanos int64
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			in.fail()
			return c
		}
		b = b[n:]
		if num <= 2 && typ == protowire.VarintType {
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				in.fail()
				return c
			}
			if num == 1 {
				seconds = int64(v)
			} else {
				nanos = int64(int32(v))
			}
			b = b[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			in.fail()
			return c
		}
		b = b[n:]
	}
	const most = math.MaxInt64/1000 - 1
	if seconds > most || seconds < -most || nanos < 0 || nanos > 999_999_999 {
		in.failAt(f, fmt.Errorf("%d seconds and %d nanos are no timestamp", seconds, nanos))
		return c
	}
	ms, rest := row.TruncTimestamp(seconds*1000+nanos/1e6, nanos%1e6, f.t.Precision())
	return cells.Cell{X: uint64(ms), Y: uint64(rest)}
}

// convert makes the cell of a number. It says false of what counts as not there: an unknown number of a closed enum.
func (in *input) convert(f *field, v uint64, c *cells.Cell) bool {
	switch f.kind {
	case protoreflect.BoolKind:
		if v != 0 {
			c.X = 1
		}
	case protoreflect.Int32Kind, protoreflect.Sfixed32Kind:
		in.number(f, int64(int32(v)), c)
	case protoreflect.Sint32Kind:
		in.number(f, int64(int32(protowire.DecodeZigZag(v&math.MaxUint32))), c)
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		in.unsigned(f, uint64(uint32(v)), c)
	case protoreflect.Int64Kind, protoreflect.Sfixed64Kind:
		c.X = v
	case protoreflect.Sint64Kind:
		c.X = uint64(protowire.DecodeZigZag(v))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		in.unsigned(f, v, c)
	case protoreflect.FloatKind:
		c.X = math.Float64bits(float64(math.Float32frombits(uint32(v))))
	case protoreflect.DoubleKind:
		c.X = v
	case protoreflect.EnumKind:
		n := int32(v)
		if f.symbols == nil {
			if f.closed && !f.numbers[n] {
				return false
			}
			in.number(f, int64(n), c)
			return true
		}
		if f.symbols[n] == nil && f.closed {
			return false
		}
		in.number(f, int64(n), c)
	}
	return true
}

// unrecognized is the text of a number that an open enum has no name for, as Java has it.
var unrecognized = []byte("UNRECOGNIZED")

// number makes the cell of a signed number or of an enum.
func (in *input) number(f *field, v int64, c *cells.Cell) {
	if f.symbols != nil {
		if c.B = f.symbols[int32(v)]; c.B == nil {
			c.B = unrecognized
		}
		return
	}
	least, most := int64(math.MinInt64), int64(math.MaxInt64)
	switch f.t.Kind() {
	case row.KindTinyInt:
		least, most = math.MinInt8, math.MaxInt8
	case row.KindSmallInt:
		least, most = math.MinInt16, math.MaxInt16
	case row.KindInt:
		least, most = math.MinInt32, math.MaxInt32
	}
	if v < least || v > most {
		in.failAt(f, fmt.Errorf("%d is no %s", v, f.t))
	}
	c.X = uint64(v)
}

// unsigned makes the cell of an unsigned number.
func (in *input) unsigned(f *field, v uint64, c *cells.Cell) {
	switch {
	case f.t.Kind() == row.KindDecimal:
		c.X = v
	case v > math.MaxInt64:
		in.failAt(f, fmt.Errorf("%d is no %s; declare DECIMAL(20, 0)", v, f.t))
	case f.t.Kind() == row.KindInt && v > math.MaxInt32:
		in.failAt(f, fmt.Errorf("%d is no %s; declare BIGINT", v, f.t))
	default:
		c.X = v
	}
}
