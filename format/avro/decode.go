package avro

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/twmb/avro"

	"github.com/millrace-stream/millrace/format/internal/cells"
	"github.com/millrace-stream/millrace/row"
)

// op is how a value is read.
type op uint8

const (
	opNull op = iota
	opBool
	opInt      // int or long into an integer, DATE, or TIME of time-millis; between least and most
	opIntFloat // int or long into FLOAT or DOUBLE
	opFloat
	opDouble
	opText  // string or bytes into text
	opBytes // string or bytes into bytes
	opFixed
	opEnum
	opDecimal      // of bytes
	opDecimalFixed // of fixed
	opTimeMicros
	opStamp
	opArray
	opMap
	opRecord
	opColumns // an image of Debezium: a record of the columns
	opUnion
	opFail // a branch of a union that the column cannot take
)

// node reads a value of the writer's schema as a value of a type. It belongs to one decoder.
type node struct {
	op          op
	t           *row.Type
	view        bool // values of elem are views
	nullable    bool
	single      bool  // FLOAT, not DOUBLE
	least, most int64 // opInt
	size        int   // of opFixed and opDecimalFixed; the number of an image
	scale       int   // of a decimal of the writer
	unit        int64 // opStamp: units in a ms, 1, 1000 or 1000000
	symbols     [][]byte
	fail        error
	path        string
	branches    []*node
	elem        *node
	record      *record
	array       *row.ArrayBuilder
	maps        *row.MapBuilder
	rows        *row.RowBuilder
	views       []bool // of the fields of a ROW
}

// record reads a record into cells, one for each column or field that is wanted. Cells that the writer's schema has no
// field for keep what they were made with: a default, or NULL.
type record struct {
	steps []step
	cells []cells.Cell
	last  int // how many steps there are up to the last that is wanted
}

// step reads a field, or skips it if node is nil.
type step struct {
	node *node
	skip *skip
	cell int
}

// compiler makes the nodes that read what was written with the schema writer. reader is the schema that the table
// declares, if any: it gives aliases, defaults and the symbols of enums.
type compiler struct {
	writer, reader *schema
	skips          map[string]*skip
	columns        []want    // of images
	sets           []*record // of images
}

// want is a column or field to be read. Without a type it is an image of Debezium.
type want struct {
	name string
	t    *row.Type
}

// root compiles the whole of a message. What is no record, as keys often are, is the one column that is wanted.
func (c *compiler) root(w, r *avro.SchemaNode, wants []want) (*record, error) {
	w = c.writer.resolve(w)
	if w.Type == "record" || w.Type == "error" {
		return c.fields(w, r, wants, "")
	}
	if len(wants) != 1 || r != nil {
		return nil, fmt.Errorf("it is %s and not a record with the table's columns", describe(w))
	}
	n, err := c.value(w, nil, wants[0].t, wants[0].name)
	if err != nil {
		return nil, err
	}
	return &record{steps: []step{{node: n}}, cells: make([]cells.Cell, 1), last: 1}, nil
}

// errUnit is the hint for numbers that are to be a timestamp and do not say their unit.
const errUnit = "it does not say its unit; declare BIGINT and convert it (TO_TIMESTAMP_LTZ)"

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// cannot is the error for a field whose type does not go into a type of SQL.
func cannot(path string, w *avro.SchemaNode, t *row.Type, hint string) error {
	if hint != "" {
		hint = ": " + hint
	}
	return fmt.Errorf("field %s is %s, which %s cannot take%s", path, describe(w), t, hint)
}

// fields compiles a record of the writer for what is wanted of it.
func (c *compiler) fields(w, r *avro.SchemaNode, wants []want, path string) (*record, error) {
	rec := &record{cells: make([]cells.Cell, len(wants))}
	if r != nil && r.Type != "record" && r.Type != "error" {
		r = nil
	}
	taken := make([]int, len(w.Fields)) // 1 + the cell of each field of the writer
	for i, want := range wants {
		at, rf, err := c.find(w, r, want, path)
		if err != nil {
			return nil, err
		}
		if at >= 0 {
			taken[at] = i + 1
			continue
		}
		if rec.cells[i], err = c.absent(rf, want, path); err != nil {
			return nil, err
		}
	}
	for i := range w.Fields {
		f := &w.Fields[i]
		if taken[i] == 0 {
			s, err := c.skip(&f.Type)
			if err != nil {
				return nil, err
			}
			rec.steps = append(rec.steps, step{skip: s})
			continue
		}
		want := wants[taken[i]-1]
		var rt *avro.SchemaNode
		if rf := fieldOf(r, want.name); rf != nil {
			rt = &rf.Type
		}
		n, err := c.value(&f.Type, rt, want.t, join(path, want.name))
		if err != nil {
			return nil, err
		}
		rec.steps = append(rec.steps, step{node: n, cell: taken[i] - 1})
		rec.last = len(rec.steps)
	}
	return rec, nil
}

func fieldOf(r *avro.SchemaNode, name string) *avro.SchemaField {
	if r == nil {
		return nil
	}
	for i := range r.Fields {
		if r.Fields[i].Name == name {
			return &r.Fields[i]
		}
	}
	return nil
}

// find is the index of the writer's field for what is wanted, -1 if there is none, and the reader's field if there is a
// reader.
func (c *compiler) find(w, r *avro.SchemaNode, want want, path string) (int, *avro.SchemaField, error) {
	names := []string{want.name}
	var rf *avro.SchemaField
	if r != nil {
		if rf = fieldOf(r, want.name); rf == nil {
			return 0, nil, fmt.Errorf("column %s is no field of the schema that the table declares", join(path, want.name))
		}
		names = append(names, rf.Aliases...)
	}
	for _, name := range names {
		for i := range w.Fields {
			if w.Fields[i].Name == name {
				return i, rf, nil
			}
		}
	}
	return -1, rf, nil
}

// absent is the value of what the writer's schema has no field for.
func (c *compiler) absent(rf *avro.SchemaField, want want, path string) (cells.Cell, error) {
	path = join(path, want.name)
	switch {
	case rf != nil && rf.HasDefault && want.t != nil:
		cell, err := c.constant(rf, want.t, path)
		if err != nil {
			return cell, fmt.Errorf("default of field %s: %w", path, err)
		}
		return cell, nil
	case want.t == nil:
		return cells.Cell{Null: true}, nil
	case rf != nil:
		return cells.Cell{}, fmt.Errorf("field %s is not in the schema, and the schema that the table declares has no default for it", path)
	case want.t.IsNullable():
		return cells.Cell{Null: true}, nil
	}
	return cells.Cell{}, fmt.Errorf("field %s is not in the schema, and the column is NOT NULL; make it nullable, or declare a schema with a default", path)
}

// constant is the default of a field of the reader: it is written as Avro, since a default may be nested, and read.
func (c *compiler) constant(rf *avro.SchemaField, t *row.Type, path string) (cells.Cell, error) {
	alone := avro.SchemaNode{Type: "record", Name: "d", Fields: []avro.SchemaField{*rf}}
	s, err := alone.Schema()
	if err != nil {
		return cells.Cell{}, err
	}
	b, err := s.Encode(map[string]any{})
	if err != nil {
		return cells.Cell{}, err
	}
	own := compiler{writer: c.reader, skips: map[string]*skip{}}
	n, err := own.value(&rf.Type, nil, t, path)
	if err != nil {
		return cells.Cell{}, err
	}
	in := input{buf: b}
	cell := in.read(n)
	cell.B = slices.Clone(cell.B)
	return cell, in.err
}

// choose is the branch of a reader's union, or the reader itself, that a type of the writer is read as.
func (c *compiler) choose(r, w *avro.SchemaNode) *avro.SchemaNode {
	if r == nil {
		return nil
	}
	if r = c.reader.resolve(r); r.Type != "union" {
		return r
	}
	var first *avro.SchemaNode
	for i := range r.Branches {
		b := c.reader.resolve(&r.Branches[i])
		switch {
		case b.Type == "null":
			continue
		case b.Type == w.Type && b.Name == w.Name:
			return b
		case first == nil || first.Type != w.Type && b.Type == w.Type:
			first = b
		}
	}
	return first
}

func (c *compiler) value(w, r *avro.SchemaNode, t *row.Type, path string) (*node, error) {
	w = c.writer.resolve(w)
	n := &node{t: t, nullable: t == nil || t.IsNullable(), path: path}
	if w.Type == "union" {
		return c.union(n, w, r, t, path)
	}
	if w.Type == "null" && n.nullable {
		n.op = opNull
		return n, nil
	}
	r = c.choose(r, w)
	if t == nil {
		if w.Type != "record" {
			return nil, fmt.Errorf("field %s is %s and not a record of the table's columns", path, describe(w))
		}
		var err error
		n.op, n.size = opColumns, len(c.sets)
		n.record, err = c.fields(w, r, c.columns, path)
		c.sets = append(c.sets, n.record)
		return n, err
	}
	integer := w.Type == "int" || w.Type == "long"
	octets := w.Type == "bytes" || w.Type == "string"
	is := func(o op, ok bool, hint string) (*node, error) {
		if n.op = o; !ok {
			return nil, cannot(path, w, t, hint)
		}
		return n, nil
	}
	switch k := t.Kind(); k {
	case row.KindBoolean:
		return is(opBool, w.Type == "boolean", "")
	case row.KindTinyInt:
		n.least, n.most = math.MinInt8, math.MaxInt8
		return is(opInt, w.Type == "int", "")
	case row.KindSmallInt:
		n.least, n.most = math.MinInt16, math.MaxInt16
		return is(opInt, w.Type == "int", "")
	case row.KindInt, row.KindDate:
		n.least, n.most = math.MinInt32, math.MaxInt32
		hint := ""
		if w.Type == "long" && k == row.KindInt {
			hint = "declare BIGINT"
		}
		return is(opInt, w.Type == "int" && (k == row.KindInt || w.LogicalType == "" || w.LogicalType == "date"), hint)
	case row.KindBigInt:
		n.least, n.most = math.MinInt64, math.MaxInt64
		if w.Type == "int" {
			n.least, n.most = math.MinInt32, math.MaxInt32
		}
		return is(opInt, integer, "")
	case row.KindFloat, row.KindDouble:
		n.single = k == row.KindFloat
		switch {
		case integer:
			return is(opIntFloat, true, "")
		case w.Type == "float":
			return is(opFloat, true, "")
		}
		return is(opDouble, w.Type == "double" && !n.single, "declare DOUBLE")
	case row.KindChar, row.KindVarChar:
		if w.Type == "enum" {
			n.op = opEnum
			n.symbols = enumSymbols(w, r)
			return n, nil
		}
		return is(opText, octets, "")
	case row.KindBinary, row.KindVarBinary:
		if n.size = w.Size; w.Type == "fixed" {
			return is(opFixed, true, "")
		}
		return is(opBytes, octets, "")
	case row.KindDecimal:
		n.scale, n.size = w.Scale, w.Size
		if w.LogicalType != "decimal" {
			n.scale = t.Scale()
		}
		if w.Type == "fixed" {
			return is(opDecimalFixed, true, "")
		}
		return is(opDecimal, w.Type == "bytes", "")
	case row.KindTime:
		if w.Type == "long" && w.LogicalType == "time-micros" {
			return is(opTimeMicros, true, "")
		}
		n.most = 86399999
		return is(opInt, w.Type == "int" && (w.LogicalType == "" || w.LogicalType == "time-millis"), "")
	case row.KindTimestamp, row.KindTimestampLTZ:
		return c.stamp(n, w)
	case row.KindArray:
		if w.Type != "array" {
			return nil, cannot(path, w, t, "")
		}
		n.op, n.array, n.view = opArray, row.NewArrayBuilder(t), cells.View(t.Elem())
		var err error
		n.elem, err = c.value(w.Items, items(r), t.Elem(), path+"[]")
		return n, err
	case row.KindMap, row.KindMultiset:
		key, value := t.Key(), t.Elem()
		if k == row.KindMultiset {
			key, value = t.Elem(), row.Int().NotNull()
		}
		if w.Type != "map" || !key.Kind().Text() {
			return nil, cannot(path, w, t, "")
		}
		n.op, n.maps, n.view = opMap, row.NewMapBuilder(t), cells.View(value)
		var err error
		n.elem, err = c.value(w.Values, values(r), value, path+"{}")
		return n, err
	case row.KindRow:
		if w.Type != "record" && w.Type != "error" {
			return nil, cannot(path, w, t, "")
		}
		wants := make([]want, t.NumFields())
		for i := range wants {
			f := t.Field(i)
			wants[i] = want{f.Name, f.Type}
			n.views = append(n.views, cells.View(f.Type))
		}
		n.op, n.rows = opRecord, row.NewRowBuilder(t)
		var err error
		n.record, err = c.fields(w, r, wants, path)
		return n, err
	}
	return nil, cannot(path, w, t, "")
}

func items(r *avro.SchemaNode) *avro.SchemaNode {
	if r == nil || r.Type != "array" {
		return nil
	}
	return r.Items
}

func values(r *avro.SchemaNode) *avro.SchemaNode {
	if r == nil || r.Type != "map" {
		return nil
	}
	return r.Values
}

// stamp compiles a timestamp. Its unit must be declared: it is never guessed.
func (c *compiler) stamp(n *node, w *avro.SchemaNode) (*node, error) {
	n.op = opStamp
	kind, local := strings.CutPrefix(w.LogicalType, "local-")
	if w.Type != "long" {
		return nil, cannot(n.path, w, n.t, "")
	}
	switch kind {
	case "timestamp-millis":
		n.unit = 1
	case "timestamp-micros":
		n.unit = 1000
	case "timestamp-nanos":
		n.unit = 1000_000
	default:
		return nil, cannot(n.path, w, n.t, errUnit)
	}
	if local && n.t.Kind() == row.KindTimestampLTZ {
		return nil, cannot(n.path, w, n.t, "it is a local time without zone; declare TIMESTAMP")
	}
	return n, nil
}

// union compiles a union of the writer: each branch by itself, as the branch of a record is known only when it is read.
func (c *compiler) union(n *node, w, r *avro.SchemaNode, t *row.Type, path string) (*node, error) {
	n.op = opUnion
	var first error
	usable := false
	for i := range w.Branches {
		b := c.writer.resolve(&w.Branches[i])
		if b.Type == "null" {
			n.branches = append(n.branches, &node{op: opNull, t: t, nullable: n.nullable, path: path})
			continue
		}
		v, err := c.value(b, r, t, path)
		if err != nil {
			if first == nil {
				first = err
			}
			v = &node{op: opFail, fail: err}
		} else {
			usable = true
		}
		n.branches = append(n.branches, v)
	}
	if !usable && first != nil {
		return nil, first
	}
	return n, nil
}

// enumSymbols are the texts of an enum's symbols by their number; nil where the reader has neither the symbol nor a default.
func enumSymbols(w, r *avro.SchemaNode) [][]byte {
	symbols := make([][]byte, len(w.Symbols))
	for i, s := range w.Symbols {
		switch {
		case r == nil || r.Type != "enum" || slices.Contains(r.Symbols, s):
			symbols[i] = []byte(s)
		case r.HasEnumDefault:
			symbols[i] = []byte(r.EnumDefault)
		}
	}
	return symbols
}

// skip passes over a value of the writer.
type skip struct {
	kind   skipKind
	size   int
	parts  []*skip // branches or fields
	symbol int     // number of symbols
}

type skipKind uint8

const (
	skipNothing skipKind = iota
	skipVarint
	skipFixed
	skipBytes
	skipEnum
	skipUnion
	skipRecord
	skipArray
	skipMap
)

func (c *compiler) skip(w *avro.SchemaNode) (*skip, error) {
	w = c.writer.resolve(w)
	s := &skip{}
	switch w.Type {
	case "null":
	case "boolean":
		s.kind, s.size = skipFixed, 1
	case "int", "long":
		s.kind = skipVarint
	case "float":
		s.kind, s.size = skipFixed, 4
	case "double":
		s.kind, s.size = skipFixed, 8
	case "bytes", "string":
		s.kind = skipBytes
	case "fixed":
		s.kind, s.size = skipFixed, w.Size
	case "enum":
		s.kind, s.symbol = skipEnum, len(w.Symbols)
	case "array", "map":
		s.kind = skipArray
		item := w.Items
		if w.Type == "map" {
			s.kind, item = skipMap, w.Values
		}
		p, err := c.skip(item)
		if err != nil {
			return nil, err
		}
		s.parts = []*skip{p}
	case "union":
		s.kind = skipUnion
		for i := range w.Branches {
			p, err := c.skip(&w.Branches[i])
			if err != nil {
				return nil, err
			}
			s.parts = append(s.parts, p)
		}
	case "record", "error":
		name := fullName(w)
		if known := c.skips[name]; known != nil {
			return known, nil // a record may contain itself
		}
		c.skips[name] = s
		s.kind = skipRecord
		for i := range w.Fields {
			p, err := c.skip(&w.Fields[i].Type)
			if err != nil {
				return nil, err
			}
			s.parts = append(s.parts, p)
		}
	default:
		return nil, fmt.Errorf("type %s is unknown", w.Type)
	}
	return s, nil
}

// Errors of a message's bytes.
var (
	errShort    = errors.New("the message ends too early")
	errVarint   = errors.New("a number is longer than 10 bytes")
	errLength   = errors.New("a length is negative or goes beyond the message's end")
	errItems    = errors.New("an array or map claims more items than the message can hold")
	errDeep     = errors.New("records are nested more than 500 deep")
	errNull     = errors.New("is NULL, and the column is NOT NULL")
	errNoDigits = errors.New("a decimal of no bytes is no number")
)

const (
	mostDepth = 500
	// So many items without a byte of their own, such as nulls, an array may have.
	mostEmpty = 1 << 16
)

// input is a message while it is read. The first error stays.
type input struct {
	buf   []byte
	pos   int
	err   error
	where string // the field of err
	arena []byte // nested values
	items int
	depth int
}

func (in *input) reset(b []byte) {
	in.buf, in.pos, in.err, in.where, in.arena, in.items, in.depth = b, 0, nil, "", in.arena[:0], 0, 0
}

func (in *input) fail(err error) {
	if in.err == nil {
		in.err = err
	}
}

func (in *input) failAt(n *node, err error) {
	if in.err == nil {
		in.err, in.where = err, n.path
	}
}

func (in *input) varint() int64 {
	if in.pos < len(in.buf) {
		if b := in.buf[in.pos]; b < 0x80 {
			in.pos++
			return int64(b>>1) ^ -int64(b&1)
		}
	}
	v, n := binary.Varint(in.buf[in.pos:])
	if n <= 0 {
		if n == 0 {
			in.fail(errShort)
		} else {
			in.fail(errVarint)
		}
		in.pos = len(in.buf)
		return 0
	}
	in.pos += n
	return v
}

// take is the next n bytes.
func (in *input) take(n int) []byte {
	if n > len(in.buf)-in.pos {
		in.fail(errShort)
		in.pos = len(in.buf)
		return nil
	}
	b := in.buf[in.pos : in.pos+n : in.pos+n]
	in.pos += n
	return b
}

// octets is a string or bytes.
func (in *input) octets() []byte {
	n := in.varint()
	if n < 0 || n > int64(len(in.buf)-in.pos) {
		in.fail(errLength)
		in.pos = len(in.buf)
		return nil
	}
	return in.take(int(n))
}

// block is the number of items of the next block of an array or map; 0 is the end. size is the block's bytes, -1 if
// unknown.
func (in *input) block() (n, size int64) {
	n, size = in.varint(), -1
	if n < 0 {
		size = in.varint()
		n = -n
		if size < 0 || size > int64(len(in.buf)-in.pos) || n < 0 {
			in.fail(errLength)
			return 0, 0
		}
	}
	if n > int64(len(in.buf)+mostEmpty-in.items) {
		in.fail(errItems)
		return 0, 0
	}
	in.items += int(n)
	if in.err != nil {
		return 0, 0
	}
	return n, size
}

// fields reads a record. all says that what follows the last wanted field is passed over, too.
func (in *input) fields(r *record, all bool) {
	steps := r.steps
	if !all {
		steps = steps[:r.last]
	}
	for i := range steps {
		s := &steps[i]
		if s.node == nil {
			in.skip(s.skip)
		} else {
			r.cells[s.cell] = in.read(s.node)
		}
		if in.err != nil {
			return
		}
	}
}

// utf8Text is text, whose wrong bytes are replaced.
func (in *input) utf8Text(b []byte) []byte {
	if utf8.Valid(b) {
		return b
	}
	at := len(in.arena)
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		in.arena = utf8.AppendRune(in.arena, r)
		b = b[n:]
	}
	return in.arena[at:len(in.arena):len(in.arena)]
}

func (in *input) read(n *node) (c cells.Cell) {
	switch n.op {
	case opNull:
		if !n.nullable {
			in.failAt(n, errNull)
		}
		c.Null = true
	case opUnion:
		i := in.varint()
		if i < 0 || i >= int64(len(n.branches)) {
			in.failAt(n, fmt.Errorf("branch %d of a union of %d", i, len(n.branches)))
			return c
		}
		return in.read(n.branches[i])
	case opInt:
		v := in.varint()
		if v < n.least || v > n.most {
			in.failAt(n, fmt.Errorf("%d is no %s", v, n.t))
		}
		c.X = uint64(v)
	case opText:
		c.B = in.utf8Text(in.octets())
	case opBytes:
		c.B = in.octets()
	case opBool:
		if b := in.take(1); len(b) > 0 && b[0] == 1 {
			c.X = 1
		}
	case opIntFloat:
		v := float64(in.varint())
		if n.single {
			v = float64(float32(v))
		}
		c.X = math.Float64bits(v)
	case opFloat:
		if b := in.take(4); in.err == nil {
			c.X = math.Float64bits(float64(math.Float32frombits(binary.LittleEndian.Uint32(b))))
		}
	case opDouble:
		if b := in.take(8); in.err == nil {
			c.X = binary.LittleEndian.Uint64(b)
		}
	case opFixed:
		c.B = in.take(n.size)
	case opEnum:
		i := in.varint()
		switch {
		case i < 0 || i >= int64(len(n.symbols)):
			in.failAt(n, fmt.Errorf("symbol %d of an enum of %d", i, len(n.symbols)))
		case n.symbols[i] == nil:
			in.failAt(n, fmt.Errorf("symbol %d of the writer's enum is none of the table's, which has no default", i))
		default:
			c.B = n.symbols[i]
		}
	case opDecimal:
		in.decimal(n, in.octets(), &c)
	case opDecimalFixed:
		in.decimal(n, in.take(n.size), &c)
	case opTimeMicros:
		v := in.varint()
		if v < 0 || v >= 86400_000_000 {
			in.failAt(n, fmt.Errorf("%d micros are no time of a day", v))
		}
		c.X = uint64(v / 1000)
	case opStamp:
		v := in.varint()
		ms := row.FloorDiv(v, n.unit)
		ms, nanos := row.TruncTimestamp(ms, (v-ms*n.unit)*(1000_000/n.unit), n.t.Precision())
		c.X, c.Y = uint64(ms), uint64(nanos)
	case opArray:
		n.array.Reset()
		for {
			count, _ := in.block()
			if count == 0 {
				break
			}
			for range count {
				e := in.read(n.elem)
				if in.err != nil {
					return c
				}
				cells.AddElem(n.array, n.view, &e)
			}
		}
		at := len(in.arena)
		in.arena = n.array.Append(in.arena)
		c.B = in.arena[at:len(in.arena):len(in.arena)]
	case opMap:
		n.maps.Reset()
		for {
			count, _ := in.block()
			if count == 0 {
				break
			}
			for range count {
				key := in.utf8Text(in.octets())
				e := in.read(n.elem)
				if in.err != nil {
					return c
				}
				n.maps.Keys.AddBytes(key)
				cells.AddElem(&n.maps.Values, n.view, &e)
			}
		}
		at := len(in.arena)
		in.arena = n.maps.Append(in.arena)
		c.B = in.arena[at:len(in.arena):len(in.arena)]
	case opRecord:
		in.fields(n.record, true)
		if in.err != nil {
			return c
		}
		n.rows.Reset()
		for i := range n.record.cells {
			cells.AddField(n.rows, n.views[i], &n.record.cells[i])
		}
		at := len(in.arena)
		in.arena = n.rows.Append(in.arena)
		c.B = in.arena[at:len(in.arena):len(in.arena)]
	case opColumns:
		in.fields(n.record, true)
		c.X = uint64(n.size)
	case opFail:
		in.failAt(n, n.fail)
	}
	return c
}

// decimal reads an unscaled number in big-endian two's complement.
func (in *input) decimal(n *node, b []byte, c *cells.Cell) {
	if in.err != nil {
		return
	}
	if len(b) == 0 {
		in.failAt(n, errNoDigits)
		return
	}
	sign := uint64(int64(int8(b[0])) >> 7)
	for len(b) > 16 {
		if b[0] != byte(sign) || (b[1]^b[0])&0x80 != 0 {
			in.failAt(n, fmt.Errorf("a number of %d bytes is no %s", len(b), n.t))
			return
		}
		b = b[1:]
	}
	lo, hi := sign, sign
	for _, x := range b {
		hi = hi<<8 | lo>>56
		lo = lo<<8 | uint64(x)
	}
	d, ok := row.Dec{Lo: lo, Hi: int64(hi)}.Rescale(n.scale, n.t.Scale(), n.t.Precision())
	if !ok {
		in.failAt(n, fmt.Errorf("the number has too many digits for %s", n.t))
		return
	}
	c.X, c.Y = d.Lo, uint64(d.Hi)
}

func (in *input) skip(s *skip) {
	switch s.kind {
	case skipVarint:
		in.varint()
	case skipFixed:
		in.take(s.size)
	case skipBytes:
		in.octets()
	case skipEnum:
		if i := in.varint(); i < 0 || i >= int64(s.symbol) {
			in.fail(fmt.Errorf("symbol %d of an enum of %d", i, s.symbol))
		}
	case skipUnion:
		i := in.varint()
		if i < 0 || i >= int64(len(s.parts)) {
			in.fail(fmt.Errorf("branch %d of a union of %d", i, len(s.parts)))
			return
		}
		in.deeper(s.parts[i])
	case skipRecord:
		for _, p := range s.parts {
			if in.deeper(p); in.err != nil {
				return
			}
		}
	case skipArray, skipMap:
		for {
			n, size := in.block()
			if n == 0 {
				return
			}
			if size >= 0 {
				in.take(int(size))
				continue
			}
			for range n {
				if s.kind == skipMap {
					in.octets()
				}
				if in.deeper(s.parts[0]); in.err != nil {
					return
				}
			}
		}
	}
}

// deeper skips a part of a value.
func (in *input) deeper(s *skip) {
	if in.depth++; in.depth > mostDepth {
		in.fail(errDeep)
		return
	}
	in.skip(s)
	in.depth--
}
