package format

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"unsafe"

	"github.com/millrace-stream/millrace/row"
)

// rowReader reads JSON into rows. It is used by one goroutine.
type rowReader struct {
	*jsonRows
	// buf has what the rows of the last message point to beside the message: text with escapes, packed values.
	buf []byte
	// objects counts those that were read, for failMissing.
	objects uint64
}

// rowObject is an object that is read into a row: the columns of a table, or a ROW.
type rowObject struct {
	fields []rowNode
	// names are the names that documents have, also those that are not wanted, with what came behind each the last time:
	// producers write fields in one order, so that a guess and a comparison are mostly all there is to do.
	names []knownName
	index map[string]int32 // of names
	first int32            // the name that comes first, -1 = unknown
	learn int              // how many texts may still be learned: documents that are all different must not cost memory
}

type knownName struct {
	lead  string // as it stood in the document, up to the value
	field int32  // -1 = not wanted
	next  int32  // -1 = unknown
}

// atStart stands for the name before the first.
const atStart = -2

// mostLearned bounds what is learned of the names of documents, and how long a name may be for it.
const (
	mostLearned  = 512
	mostLeadSize = 64
)

// rowNode is a value that is read into a column of a row.
type rowNode struct {
	readColumn
	seen uint64 // rowReader.objects when the field was there
	// span says that the value is only checked and where it lies is kept, in a BIGINT: see spanOf.
	span bool

	object *rowObject // of a ROW
	inner  *row.Row   // what the fields of a ROW or the element of an ARRAY, MAP or MULTISET is read into
	elem   *rowNode
	rows   *row.RowBuilder
	list   *row.ArrayBuilder
	pairs  *row.MapBuilder
}

// newObject plans to read columns into rows of a layout.
func (d *rowReader) newObject(l *row.Layout, columns []RowColumn) (*rowObject, error) {
	o := &rowObject{fields: make([]rowNode, len(columns)), index: map[string]int32{}, first: -1, learn: mostLearned}
	for i, c := range columns {
		if err := d.setNode(&o.fields[i], c, l); err != nil {
			return nil, fmt.Errorf("column %s: %w", c.Name, err)
		}
		o.index[c.Name] = int32(i)
		lead := append(appendString(nil, c.Name), ':')
		o.names = append(o.names, knownName{lead: string(lead), field: int32(i), next: -1})
	}
	return o, nil
}

func (d *rowReader) setNode(n *rowNode, c RowColumn, l *row.Layout) error {
	t := c.Type
	*n = rowNode{readColumn: newReadColumn(c.Name, t, l, c.Index, d.iso)}
	var err error
	switch n.kind {
	case row.KindArray:
		n.list = row.NewArrayBuilder(t)
		err = d.setElem(n, t.Elem())
	case row.KindMap, row.KindMultiset:
		n.pairs = row.NewMapBuilder(t)
		value := t.Elem()
		if n.kind == row.KindMultiset {
			value = row.Int()
		}
		if err = textKeys(t); err == nil {
			err = d.setElem(n, value)
		}
	case row.KindRow:
		n.rows = row.NewRowBuilder(t)
		types := make([]*row.Type, t.NumFields())
		var columns []RowColumn
		for i := range types {
			f := t.Field(i)
			types[i] = f.Type
			if c.Fields == nil || slices.Contains(c.Fields, i) {
				columns = append(columns, RowColumn{Name: f.Name, Type: f.Type, Index: i})
			}
		}
		inner := row.NewLayout(types...)
		n.inner = inner.New()
		n.object, err = d.newObject(inner, columns)
	}
	return err
}

func (d *rowReader) setElem(n *rowNode, t *row.Type) error {
	l := row.NewLayout(t)
	n.inner, n.elem = l.New(), &rowNode{}
	return d.setNode(n.elem, RowColumn{Type: t}, l)
}

// textKeys is an error for a MAP or MULTISET whose keys are not text: JSON has no others.
func textKeys(t *row.Type) error {
	key := t.Key()
	if t.Kind() == row.KindMultiset {
		key = t.Elem()
	}
	if !key.Kind().Text() {
		return fmt.Errorf("%s has no JSON form: the keys of an object are text, not %s", t, key)
	}
	return nil
}

// start begins a message. It is false for one to skip: one that is no JSON where errors are ignored, which must be known
// before there is a row.
func (d *rowReader) start(data []byte) bool {
	d.buf = d.buf[:0]
	if !d.lax {
		return true
	}
	i, err := skipValue(data, skipSpace(data, 0), maxRowDepth)
	return err == nil && wantEnd(data, i) == nil
}

// object reads the object at src[i] into the columns of r. Columns whose fields are missing stay as they are.
func (d *rowReader) object(o *rowObject, src []byte, i, left int, r *row.Row) (int, *JSONError) {
	if left == 0 {
		return i, tooDeep(i)
	}
	d.objects++
	start, object := i, d.objects
	i = skipSpace(src, i+1)
	if i < len(src) && src[i] == '}' {
		return i + 1, d.missing(o, src, start, object)
	}
	last, guess := int32(atStart), o.first
	for {
		var err *JSONError
		at := guess
		if at >= 0 && hasPrefix(src, i, o.names[at].lead) {
			if i += len(o.names[at].lead); i < len(src) && src[i] <= ' ' {
				i = skipSpace(src, i)
			}
		} else {
			if at, i, err = o.name(src, i, last); err != nil {
				return i, err
			}
		}
		var n *rowNode
		if last, guess = at, -1; at >= 0 {
			guess = o.names[at].next
			if k := o.names[at].field; k >= 0 {
				n = &o.fields[k]
			}
		}
		if n == nil {
			i, err = skipValue(src, i, left-1)
		} else {
			from := i
			if i, err = d.value(n, src, i, left-1, r); err != nil {
				i, err = d.badValue(n, src, from, left-1, r, err)
			}
			n.seen = object
		}
		if err != nil {
			return i, err
		}
		if i+1 < len(src) && src[i] == ',' && src[i+1] == '"' { // the usual case without a call
			i++
			continue
		}
		var more bool
		if i, more, err = afterElement(src, i, '}'); !more {
			if err == nil && d.failMissing {
				err = d.missing(o, src, start, object)
			}
			return i, err
		}
	}
}

// badValue is NULL for a value that is no good where errors are ignored, else the error. i is where the value begins.
func (d *rowReader) badValue(n *rowNode, src []byte, i, left int, r *row.Row, err *JSONError) (int, *JSONError) {
	if !d.lax {
		if n.name != "" {
			err = err.in(n.name)
		}
		return i, err
	}
	r.SetNull(n.column)
	return skipValue(src, i, left)
}

// name reads a name that was not guessed, up to the value, and learns it. last is the name before it, or atStart. at is -1
// if it is unknown.
func (o *rowObject) name(src []byte, i int, last int32) (at int32, end int, err *JSONError) {
	start := i
	if i >= len(src) || src[i] != '"' {
		return -1, i, wanted(src, i, "want a field name")
	}
	end, escaped, err := scanString(src, i+1)
	if err != nil {
		return -1, end, err
	}
	name := view(src[i+1 : end])
	if escaped {
		name = unescape(src[i+1 : end])
	}
	if i, err = afterName(src, end+1); err != nil {
		return -1, i, err
	}
	at, known := o.index[name]
	if !known {
		at = -1
	}
	if o.learn > 0 && i-start <= mostLeadSize {
		switch {
		case !known:
			at = int32(len(o.names))
			o.index[string([]byte(name))] = at
			o.names = append(o.names, knownName{string(src[start:i]), -1, -1})
			o.learn--
		case o.names[at].lead != view(src[start:i]):
			o.names[at].lead = string(src[start:i])
			o.learn--
		}
	}
	switch {
	case last >= 0:
		o.names[last].next = at
	case last == atStart:
		o.first = at
	}
	return at, i, nil
}

// missing is an error if a field was not in the object, and that is asked for.
func (d *rowReader) missing(o *rowObject, src []byte, i int, object uint64) *JSONError {
	if !d.failMissing {
		return nil
	}
	for k := range o.fields {
		if n := &o.fields[k]; n.seen != object {
			return (&JSONError{Offset: i, Want: "want the field, which is missing"}).in(n.name)
		}
	}
	return nil
}

// value reads the value at src[i].
func (d *rowReader) value(n *rowNode, src []byte, i, left int, r *row.Row) (int, *JSONError) {
	if i >= len(src) {
		return i, wanted(src, i, n.want())
	}
	c := src[i]
	if c == 'n' {
		r.SetNull(n.column)
		return scanLiteral(src, i, "null")
	}
	if n.span {
		end, err := skipValue(src, i, left)
		n.set(r, uint64(i)<<32|uint64(end))
		return end, err
	}
	switch n.kind {
	case row.KindChar, row.KindVarChar:
		if c != '"' {
			return d.otherText(n, src, i, left, r)
		}
		end, escaped, err := scanString(src, i+1)
		if err != nil {
			return end, err
		}
		b := src[i+1 : end : end]
		if escaped {
			b = d.unescaped(b)
		}
		n.setBytes(r, b, !escaped)
		return end + 1, nil
	case row.KindBigInt, row.KindInt, row.KindSmallInt, row.KindTinyInt, row.KindIntervalDay, row.KindIntervalMonth:
		if c == '-' || c-'0' <= 9 {
			return d.integer(n, src, i, r)
		}
	case row.KindDouble:
		if c == '-' || c-'0' <= 9 {
			if f, end, ok := readFloat(src, i); ok {
				n.set(r, math.Float64bits(f))
				return end, nil
			}
		}
	case row.KindNull:
		r.SetNull(n.column)
		return skipValue(src, i, left)
	case row.KindBoolean:
		switch c {
		case 't':
			n.set(r, 1)
			return scanLiteral(src, i, "true")
		case 'f':
			n.set(r, 0)
			return scanLiteral(src, i, "false")
		}
	case row.KindTimestamp, row.KindTimestampLTZ, row.KindDate, row.KindTime, row.KindBinary, row.KindVarBinary:
		if c != '"' {
			return i, wanted(src, i, n.want())
		}
	case row.KindArray:
		if c != '[' {
			return i, wanted(src, i, n.want())
		}
		return d.list(n, src, i, left, r)
	case row.KindMap, row.KindMultiset:
		if c != '{' {
			return i, wanted(src, i, n.want())
		}
		return d.mapOf(n, src, i, left, r)
	case row.KindRow:
		if c != '{' {
			return i, wanted(src, i, n.want())
		}
		return d.rowOf(n, src, i, left, r)
	}
	text, end, err := d.scalar(n, src, i)
	if err != nil {
		return end, err
	}
	if !n.parse(&d.buf, text, r) {
		return i, wanted(src, i, n.want())
	}
	return end, nil
}

// spanOf is where the value lies that a node with span has read, in the message.
func spanOf(r *row.Row, word int) (start, end int) {
	return int(r.W[word] >> 32), int(uint32(r.W[word]))
}

// unescaped is the text of a string with escapes.
func (d *rowReader) unescaped(s []byte) []byte {
	at := len(d.buf)
	d.buf = appendUnescaped(d.buf, s)
	return d.buf[at:len(d.buf):len(d.buf)]
}

// otherText is the text of a value that is no string, for a column of text.
func (d *rowReader) otherText(n *rowNode, src []byte, i, left int, r *row.Row) (int, *JSONError) {
	end, err := skipValue(src, i, left)
	if err != nil {
		return end, err
	}
	b := src[i:end:end]
	nested := src[i] == '{' || src[i] == '['
	if nested {
		b = d.compact(b)
	}
	n.setBytes(r, b, !nested)
	return end, nil
}

// compact is a value without the blanks between its tokens.
func (d *rowReader) compact(b []byte) []byte {
	quoted, clean := false, 0 // so many bytes are fine
	at := len(d.buf)
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ' ' || c == '\n' || c == '\t' || c == '\r'):
			d.buf = append(d.buf, b[clean:i]...)
			clean = i + 1
		}
	}
	if clean == 0 {
		return b
	}
	d.buf = append(d.buf, b[clean:]...)
	return d.buf[at:len(d.buf):len(d.buf)]
}

// integer reads a number into a column of an integer type.
func (d *rowReader) integer(n *rowNode, src []byte, i int, r *row.Row) (int, *JSONError) {
	neg, u, end, ok := plainInteger(src, i)
	if !ok {
		var err *JSONError
		if end, err = scanNumber(src, i); err != nil {
			return end, err
		}
		if neg, u, ok = n.cut(src[i:end]); !ok {
			return i, wanted(src, i, n.want())
		}
	}
	v := int64(u)
	if neg {
		v = -v
	}
	if neg != (v < 0) && u != 0 || !n.fits(v) {
		return i, wanted(src, i, n.want())
	}
	n.set(r, uint64(v))
	return end, nil
}

// cut is the integer in front of the fraction of a number, if the type takes that.
func (n *rowNode) cut(s []byte) (neg bool, u uint64, ok bool) {
	if n.kind == row.KindTinyInt || n.kind == row.KindSmallInt {
		return false, 0, false // as in Flink, even for 1.0
	}
	if s[0] == '-' {
		neg, s = true, s[1:]
	}
	u, whole, fits := integral(s)
	if whole {
		return neg, u, fits
	}
	if i := slices.Index(s, '.'); i > 0 && !slices.ContainsFunc(s, func(c byte) bool { return c|0x20 == 'e' }) {
		u, _, fits = integral(s[:i])
		return neg, u, fits
	}
	f, err := strconv.ParseFloat(view(s), 64)
	return neg, uint64(f), err == nil && f < 1<<63
}

// scalar is the text of a string, number, true or false.
func (d *rowReader) scalar(n *rowNode, src []byte, i int) (text []byte, end int, err *JSONError) {
	switch c := src[i]; {
	case c == '"':
		end, escaped, err := scanString(src, i+1)
		if err != nil {
			return nil, end, err
		}
		text = src[i+1 : end]
		if escaped {
			text = d.unescaped(text)
		}
		return text, end + 1, nil
	case c == '-' || c-'0' <= 9:
		end, err = scanNumber(src, i)
	case c == 't':
		end, err = scanLiteral(src, i, "true")
	case c == 'f':
		end, err = scanLiteral(src, i, "false")
	default:
		return nil, i, wanted(src, i, n.want())
	}
	return src[i:end], end, err
}

// element reads an element of an ARRAY or a value of a MAP into n.inner.
func (d *rowReader) element(n *rowNode, src []byte, i, left int) (int, *JSONError) {
	end, err := d.value(n.elem, src, i, left, n.inner)
	if err != nil {
		return d.badValue(n.elem, src, i, left, n.inner, err)
	}
	return end, nil
}

func (d *rowReader) list(n *rowNode, src []byte, i, left int, r *row.Row) (int, *JSONError) {
	if left == 0 {
		return i, tooDeep(i)
	}
	n.list.Reset()
	i = skipSpace(src, i+1)
	if i < len(src) && src[i] == ']' {
		i++
	} else {
		for k := 0; ; k++ {
			var err *JSONError
			if i, err = d.element(n, src, i, left-1); err != nil {
				return i, err.at(k)
			}
			n.elem.addTo(n.list, n.inner)
			var more bool
			if i, more, err = afterElement(src, i, ']'); err != nil {
				return i, err
			}
			if !more {
				break
			}
		}
	}
	at := len(d.buf)
	d.buf = n.list.Append(d.buf)
	n.setBytes(r, d.buf[at:len(d.buf):len(d.buf)], false)
	return i, nil
}

func (d *rowReader) mapOf(n *rowNode, src []byte, i, left int, r *row.Row) (int, *JSONError) {
	if left == 0 {
		return i, tooDeep(i)
	}
	n.pairs.Reset()
	i = skipSpace(src, i+1)
	if i < len(src) && src[i] == '}' {
		i++
	} else {
		for {
			name, _, end, err := readName(src, i)
			if err != nil {
				return end, err
			}
			if i, err = d.element(n, src, end, left-1); err != nil {
				return i, err.in(name)
			}
			n.pairs.Keys.AddBytes(unsafe.Slice(unsafe.StringData(name), len(name)))
			n.elem.addTo(&n.pairs.Values, n.inner)
			var more bool
			if i, more, err = afterElement(src, i, '}'); err != nil {
				return i, err
			}
			if !more {
				break
			}
		}
	}
	at := len(d.buf)
	d.buf = n.pairs.Append(d.buf)
	n.setBytes(r, d.buf[at:len(d.buf):len(d.buf)], false)
	return i, nil
}

func (d *rowReader) rowOf(n *rowNode, src []byte, i, left int, r *row.Row) (int, *JSONError) {
	e := n.inner
	for k := range n.object.fields {
		e.SetNull(n.object.fields[k].column)
	}
	i, err := d.object(n.object, src, i, left, e)
	if err != nil {
		return i, err
	}
	added := 0
	for k := range n.object.fields {
		f := &n.object.fields[k]
		for ; added < f.column; added++ {
			n.rows.AddNull() // is not wanted
		}
		f.addField(n.rows, e)
		added++
	}
	at := len(d.buf)
	d.buf = n.rows.Append(d.buf)
	n.setBytes(r, d.buf[at:len(d.buf):len(d.buf)], false)
	return i, nil
}
