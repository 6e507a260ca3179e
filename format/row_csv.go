package format

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/millrace-stream/millrace/row"
)

// CSVRows is the format 'csv' of tables.
//
// Decoding. Each line of a message is a row, and its fields are the columns of the table in their order; empty lines and
// messages are none. There must be as many fields as columns, but one empty field may follow. A field may be in quotes, with
// quotes inside of it doubled. Blanks count, but not around numbers. An empty field is the empty text, and no number: for
// NULL there is the option null-literal. The elements of an ARRAY and the fields of a ROW lie in one field, with the
// array-element-delimiter between them; a MAP has no form, nor has anything nested deeper. Values are otherwise as those of
// JSONRows.
//
// Encoding. The columns in the order of the table, without a line break at the end; what is needed is put in quotes.
func CSVRows() RowFormatSpec {
	return RowFormatSpec{
		Doc: "Lines of fields with a comma between them, in the order of the table's columns; as a message without line break at its end.",
		Options: []Option{
			{Name: "field-delimiter", Kind: Text, Default: ",", Doc: `The character between fields; \t is a tab.`},
			{Name: "quote-character", Kind: Text, Default: `"`, Doc: "The character around fields that have special characters in them."},
			{Name: "disable-quote-character", Kind: Boolean, Default: "false", Doc: "There are no quotes: a quote is a character as others, and fields are written as they are."},
			{Name: "escape-character", Kind: Text, Doc: "The character that takes the meaning of the one behind it; none by default."},
			{Name: "null-literal", Kind: Text, Doc: "The text of NULL. By default there is none: NULL is written as an empty field, which is the empty text when it is read, and no number."},
			{Name: "array-element-delimiter", Kind: Text, Default: ";", Doc: "The text between the elements of an ARRAY and the fields of a ROW."},
			{Name: "allow-comments", Kind: Boolean, Default: "false", Doc: "Skip lines that begin with #."},
			{Name: "ignore-parse-errors", Kind: Boolean, Default: "false", Doc: "Take NULL for a field that does not read as its type or that is missing, and skip a line that is broken, instead of failing."},
			{Name: "write-bigdecimal-in-scientific-notation", Kind: Boolean, Default: "true", Doc: "Accepted for the sake of Flink's tables; a DECIMAL is always written with all digits of its scale, as Flink does too."},
		},
		New: func(o *Options) (RowFormat, error) {
			c := &csvRows{array: o.Text("array-element-delimiter"), comments: o.Bool("allow-comments"), lax: o.Bool("ignore-parse-errors")}
			if o.Has("null-literal") {
				c.null, c.nulls = o.Text("null-literal"), true
			}
			var err error
			if c.delimiter, err = csvCharacter(o, "field-delimiter"); err != nil {
				return nil, err
			}
			if o.Has("escape-character") {
				if c.escape, err = csvByte(o, "escape-character"); err != nil {
					return nil, err
				}
			}
			if !o.Bool("disable-quote-character") {
				c.quote, err = csvByte(o, "quote-character")
			} else if o.Has("quote-character") {
				err = fmt.Errorf("option '%squote-character' is set, but '%[1]sdisable-quote-character' says that there is none", o.prefix)
			}
			if err == nil && c.array == "" {
				err = fmt.Errorf("option '%sarray-element-delimiter' must not be empty", o.prefix)
			}
			return c, err
		},
	}
}

// csvCharacter is an option that is one character, perhaps written as in Java: \t, \u0001.
func csvCharacter(o *Options, name string) (string, error) {
	v := o.Text(name)
	if len(v) > 1 && v[0] == '\\' {
		if s, err := strconv.Unquote(`"` + v + `"`); err == nil {
			v = s
		}
	}
	if utf8.RuneCountInString(v) != 1 || v == "\n" || v == "\r" {
		return "", fmt.Errorf("option '%s%s' = '%s': must be one character, and no line break", o.prefix, name, v)
	}
	return v, nil
}

// csvByte is csvCharacter for one that must be ASCII.
func csvByte(o *Options, name string) (byte, error) {
	v, err := csvCharacter(o, name)
	if err == nil && len(v) > 1 {
		err = fmt.Errorf("option '%s%s' = '%s': must be an ASCII character", o.prefix, name, v)
	}
	if err != nil {
		return 0, err
	}
	return v[0], nil
}

// csvRows is the format of a table, with its options.
type csvRows struct {
	delimiter     string
	quote, escape byte // 0 = none
	array         string
	null          string
	nulls         bool // there is a text of NULL
	comments, lax bool
}

// csvForm is an error for a type that has no form in CSV.
func csvForm(t *row.Type, nested bool) error {
	switch t.Kind() {
	case row.KindMap, row.KindMultiset:
		return fmt.Errorf("%s has no form in CSV", t)
	case row.KindArray:
		if nested {
			return fmt.Errorf("an ARRAY inside of an ARRAY or ROW has no form in CSV")
		}
		return csvForm(t.Elem(), true)
	case row.KindRow:
		if nested {
			return fmt.Errorf("a ROW inside of an ARRAY or ROW has no form in CSV")
		}
		for i := range t.NumFields() {
			if err := csvForm(t.Field(i).Type, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// RowDecoder is of RowFormat. The error names a column whose type has no form in CSV.
func (c *csvRows) RowDecoder(s RowSchema) (RowDecoder, error) {
	d := &csvDecoder{csvRows: c, columns: make([]csvColumn, len(s.All()))}
	for i, f := range s.All() {
		if err := csvForm(f.Type, false); err != nil {
			return nil, fmt.Errorf("column %s: %w", f.Name, err)
		}
		for _, wanted := range s.Columns {
			if wanted.Name == f.Name && !wanted.Metadata {
				d.columns[i] = newCSVColumn(f.Name, f.Type, s.Layout, wanted.Index)
			}
		}
	}
	return d, nil
}

// csvColumn is a column that is read.
type csvColumn struct {
	readColumn
	wanted bool
	inner  *row.Row // what elements and fields are read into
	fields []readColumn
	elem   readColumn
	list   *row.ArrayBuilder
	rows   *row.RowBuilder
}

func newCSVColumn(name string, t *row.Type, l *row.Layout, column int) csvColumn {
	c := csvColumn{readColumn: newReadColumn(name, t, l, column, false), wanted: true}
	switch c.kind {
	case row.KindArray:
		inner := row.NewLayout(t.Elem())
		c.inner, c.elem, c.list = inner.New(), newReadColumn("", t.Elem(), inner, 0, false), row.NewArrayBuilder(t)
	case row.KindRow:
		types := make([]*row.Type, t.NumFields())
		for i := range types {
			types[i] = t.Field(i).Type
		}
		inner := row.NewLayout(types...)
		for i, ft := range types {
			c.fields = append(c.fields, newReadColumn(t.Field(i).Name, ft, inner, i, false))
		}
		c.inner, c.rows = inner.New(), row.NewRowBuilder(t)
	}
	return c
}

// byteOrderMark is dropped at the start of a message.
const byteOrderMark = '\uFEFF'

// csvField is where a field lies in the message, without its quotes.
type csvField struct {
	start, end int
	quoted     bool
	marked     bool // has doubled quotes or escapes
}

type csvDecoder struct {
	*csvRows
	columns []csvColumn
	found   []csvField
	buf     []byte
}

// Decode is of RowDecoder.
func (d *csvDecoder) Decode(data []byte, next func() *row.Row) error {
	d.buf = d.buf[:0]
	if !isASCII(view(data)) && !utf8.Valid(data) {
		if d.lax {
			return nil
		}
		return fmt.Errorf("decode CSV: not UTF-8: %w", notUTF8(data))
	}
	i := 0
	if bytes.HasPrefix(data, []byte(string(byteOrderMark))) {
		i = len(string(byteOrderMark))
	}
	for i < len(data) {
		switch c := data[i]; {
		case c == '\n' || c == '\r':
			i++
		case c == '#' && d.comments:
			for i < len(data) && data[i] != '\n' && data[i] != '\r' {
				i++
			}
		default:
			end, err := d.split(data, i)
			if err == nil {
				err = d.row(data, next)
			}
			if err != nil && !d.lax {
				return fmt.Errorf("decode CSV: %w", err)
			}
			i = end
		}
	}
	return nil
}

// split finds the fields of the line at data[i]. After an error the line is skipped.
func (d *csvDecoder) split(data []byte, i int) (end int, err error) {
	d.found = d.found[:0]
	for {
		f := csvField{start: i}
		if d.quote != 0 && i < len(data) && data[i] == d.quote {
			f.quoted = true
			f.start++
			for i++; ; i++ {
				if i >= len(data) {
					return i, fmt.Errorf("byte %d: a quote is not closed", f.start-1)
				}
				if c := data[i]; d.escape != 0 && c == d.escape && i+1 < len(data) {
					f.marked = true
					i++
				} else if c == d.quote {
					if i+1 >= len(data) || data[i+1] != d.quote {
						break
					}
					f.marked = true
					i++
				}
			}
			f.end = i
			for i++; i < len(data) && (data[i] == ' ' || data[i] == '\t') && !d.delimited(data, i); {
				i++
			}
			if i < len(data) && data[i] != '\n' && data[i] != '\r' && !d.delimited(data, i) {
				at := i
				for i < len(data) && data[i] != '\n' && data[i] != '\r' {
					i++
				}
				return i, fmt.Errorf("byte %d: want %q or the end of the line behind a quote, found %q", at, d.delimiter, clipText(string(data[at:i])))
			}
		} else {
			for i < len(data) && data[i] != '\n' && data[i] != '\r' && !d.delimited(data, i) {
				if d.escape != 0 && data[i] == d.escape && i+1 < len(data) {
					f.marked = true
					i++
				}
				i++
			}
			f.end = i
		}
		d.found = append(d.found, f)
		if i >= len(data) || !d.delimited(data, i) {
			return i, nil
		}
		i += len(d.delimiter)
	}
}

// delimited says whether the delimiter is at data[i].
func (d *csvDecoder) delimited(data []byte, i int) bool {
	return data[i] == d.delimiter[0] && (len(d.delimiter) == 1 || hasPrefix(data, i, d.delimiter))
}

// row reads the fields that split has found.
func (d *csvDecoder) row(data []byte, next func() *row.Row) error {
	n := len(d.found)
	if n == len(d.columns)+1 && d.found[n-1].start == d.found[n-1].end {
		n-- // a comma at the end
	}
	if n > len(d.columns) || n < len(d.columns) && !d.lax {
		return fmt.Errorf("byte %d: %d fields for %d columns", d.found[0].start, n, len(d.columns))
	}
	r := next()
	for k := range n {
		c := &d.columns[k]
		if !c.wanted {
			continue
		}
		f := d.found[k]
		text := data[f.start:f.end:f.end]
		if f.marked {
			text = d.unmarked(f, text)
		}
		if !d.column(c, text, r) && !d.lax {
			hint := ""
			if len(text) == 0 {
				hint = "; set 'null-literal' of the format to '' if that is to be NULL"
			}
			return fmt.Errorf("column %s, byte %d: %s, found %q%s", c.name, f.start, c.want(), clipText(string(text)), hint)
		}
	}
	return nil
}

// unmarked is the text of a field with doubled quotes or escapes.
func (d *csvDecoder) unmarked(f csvField, text []byte) []byte {
	at := len(d.buf)
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case d.escape != 0 && c == d.escape && i+1 < len(text):
			i++
			switch c = text[i]; c {
			case 'n':
				c = '\n'
			case 'r':
				c = '\r'
			case 't':
				c = '\t'
			case '0':
				c = 0
			}
		case f.quoted && c == d.quote:
			i++
		}
		d.buf = append(d.buf, c)
	}
	return d.buf[at:len(d.buf):len(d.buf)]
}

// column reads a column. It is false, and the column NULL, if the text is no value of its type.
func (d *csvDecoder) column(c *csvColumn, text []byte, r *row.Row) bool {
	if d.nulls && view(text) == d.null {
		return true
	}
	ok := true
	switch {
	case c.list != nil:
		c.list.Reset()
		for rest, more := text, len(text) > 0; more; {
			var e []byte
			e, rest, more = bytes.Cut(rest, []byte(d.array))
			c.inner.SetNull(0)
			ok = d.scalar(&c.elem, e, c.inner) && ok
			c.elem.addTo(c.list, c.inner)
		}
		if !ok && !d.lax {
			return false
		}
		at := len(d.buf)
		d.buf = c.list.Append(d.buf)
		c.setBytes(r, d.buf[at:len(d.buf):len(d.buf)], false)
		return true
	case c.rows != nil:
		if len(text) == 0 {
			return true
		}
		rest, more := text, true
		for i := range c.fields {
			c.inner.SetNull(i)
			var e []byte
			if ok = ok && more; !more {
				continue
			}
			e, rest, more = bytes.Cut(rest, []byte(d.array))
			ok = d.scalar(&c.fields[i], e, c.inner) && ok
		}
		if !ok && !d.lax {
			return false
		}
		for i := range c.fields {
			c.fields[i].addField(c.rows, c.inner)
		}
		at := len(d.buf)
		d.buf = c.rows.Append(d.buf)
		c.setBytes(r, d.buf[at:len(d.buf):len(d.buf)], false)
		return true
	}
	return d.scalar(&c.readColumn, text, r)
}

// scalar reads a value that is not nested.
func (d *csvDecoder) scalar(c *readColumn, text []byte, r *row.Row) bool {
	if d.nulls && view(text) == d.null {
		return true
	}
	switch c.kind {
	case row.KindNull:
		return true
	case row.KindChar, row.KindVarChar:
		c.setBytes(r, text, false)
		return true
	case row.KindTime: // the seconds may be missing
		if ms, _, rest, ok := readClock(text, true); ok && len(rest) == 0 && len(text) == len("12:34") {
			c.set(r, uint64(ms))
			return true
		}
	case row.KindDate: // 2024-1-5 will do
		if bytes.Count(text, []byte("-")) == 2 && !bytes.ContainsAny(text, " ") {
			days, err := row.ParseDate(text)
			if err == nil {
				c.set(r, uint64(days))
			}
			return err == nil
		}
	}
	return c.parse(&d.buf, text, r)
}

// RowEncoder is of RowFormat. The error names a column whose type has no form in CSV.
func (c *csvRows) RowEncoder(s RowSchema) (RowEncoder, error) {
	e := &csvEncoder{csvRows: c, columns: make([]csvWriteColumn, len(s.Columns))}
	for i, col := range s.Columns {
		if err := csvForm(col.Type, false); err != nil {
			return nil, fmt.Errorf("column %s: %w", col.Name, err)
		}
		w := csvWriteColumn{writeColumn: newWriteColumn(col.Name, col.Type, false)}
		w.place(s.Layout, col.Index)
		switch w.kind {
		case row.KindArray:
			w.inner = []writeColumn{newWriteColumn("", col.Type.Elem(), false)}
		case row.KindRow:
			for i := range col.Type.NumFields() {
				f := col.Type.Field(i)
				w.inner = append(w.inner, newWriteColumn(f.Name, f.Type, false))
			}
		}
		e.columns[i] = w
	}
	// As in Flink what has a character below the greatest special one, or a backslash, is put in quotes, and what is long.
	r, _ := utf8.DecodeRuneInString(c.delimiter)
	e.least = max(r, rune(c.quote)) + 1
	return e, nil
}

type csvWriteColumn struct {
	writeColumn
	inner []writeColumn // of an ARRAY one, of a ROW its fields
}

type csvEncoder struct {
	*csvRows
	columns []csvWriteColumn
	least   rune // lesser characters need quotes
	buf     []byte
}

// Append is of RowEncoder.
func (e *csvEncoder) Append(dst []byte, r *row.Row) ([]byte, error) {
	for i := range e.columns {
		if i > 0 {
			dst = append(dst, e.delimiter...)
		}
		c := &e.columns[i]
		if r.Null(c.column) {
			dst = append(dst, e.null...)
			continue
		}
		var x, y uint64
		var b []byte
		switch c.words {
		case 0:
			b = r.S[c.at]
		case 1:
			x = r.W[c.at]
		default:
			x, y = r.W[c.at], r.W[c.at+1]
		}
		switch {
		case c.kind.Text():
			dst = e.text(dst, b)
		case c.words > 0 && !c.kind.Datetime():
			dst = c.appendWords(dst, x, y)
		default:
			e.buf = e.value(e.buf[:0], c, x, y, b)
			dst = e.text(dst, e.buf)
		}
	}
	return dst, nil
}

// value writes a value without quotes.
func (e *csvEncoder) value(dst []byte, c *csvWriteColumn, x, y uint64, b []byte) []byte {
	switch c.kind {
	case row.KindArray:
		v := row.ViewArray(c.typ, b)
		for i := range v.Len() {
			if i > 0 {
				dst = append(dst, e.array...)
			}
			switch {
			case v.Null(i):
				dst = append(dst, e.null...)
			case c.inner[0].words == 0:
				dst = c.inner[0].appendScalar(dst, 0, 0, v.Bytes(i))
			default:
				x, y := v.Words(i)
				dst = c.inner[0].appendScalar(dst, x, y, nil)
			}
		}
		return dst
	case row.KindRow:
		v := row.ViewRow(c.typ, b)
		for i := range c.inner {
			if i > 0 {
				dst = append(dst, e.array...)
			}
			switch {
			case v.Null(i):
				dst = append(dst, e.null...)
			case c.inner[i].words == 0:
				dst = c.inner[i].appendScalar(dst, 0, 0, v.Bytes(i))
			default:
				x, y := v.Words(i)
				dst = c.inner[i].appendScalar(dst, x, y, nil)
			}
		}
		return dst
	}
	return c.appendScalar(dst, x, y, b)
}

// text writes a field, in quotes if it needs them.
func (e *csvEncoder) text(dst, b []byte) []byte {
	if e.quote == 0 {
		if e.escape == 0 {
			return append(dst, b...)
		}
		for i, c := range b {
			if c == e.escape || c == '\n' || c == '\r' || hasPrefix(b, i, e.delimiter) {
				dst = append(dst, e.escape)
			}
			dst = append(dst, c)
		}
		return dst
	}
	if !e.special(b) {
		return append(dst, b...)
	}
	dst = append(dst, e.quote)
	for _, c := range b {
		switch c {
		case e.quote:
			dst = append(dst, e.quote)
		case e.escape:
			if c != 0 {
				dst = append(dst, c)
			}
		}
		dst = append(dst, c)
	}
	return append(dst, e.quote)
}

// special says whether a field needs quotes.
func (e *csvEncoder) special(b []byte) bool {
	const most = 24
	n := 0
	for _, c := range view(b) {
		if c < e.least || c == '\\' || c == rune(e.escape) || c == byteOrderMark {
			return true
		}
		n++
		if c > 0xffff {
			n++ // as Java counts
		}
	}
	return n > most || strings.Contains(view(b), e.delimiter)
}
