package format

import (
	"encoding/base64"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/millrace-stream/millrace/row"
)

// rowWriter writes rows as JSON. It is used by one goroutine.
type rowWriter struct {
	*jsonRows
	columns []writeNode
}

// writeNode is a value that is written: a column, a field of a ROW, an element.
type writeNode struct {
	writeColumn
	lead   string // comma, name and colon
	fields []writeNode
	elem   *writeNode
}

func (j *jsonRows) newWriter(s RowSchema) (*rowWriter, error) {
	w := &rowWriter{jsonRows: j, columns: make([]writeNode, len(s.Columns))}
	for i, c := range s.Columns {
		n := &w.columns[i]
		if err := j.setWriteNode(n, c.Name, c.Type); err != nil {
			return nil, fmt.Errorf("column %s: %w", c.Name, err)
		}
		n.place(s.Layout, c.Index)
	}
	return w, nil
}

func (j *jsonRows) setWriteNode(n *writeNode, name string, t *row.Type) error {
	*n = writeNode{writeColumn: newWriteColumn(name, t, j.iso), lead: string(append(appendString([]byte{','}, name), ':'))}
	elem := t.Elem()
	switch n.kind {
	case row.KindMap, row.KindMultiset:
		if err := textKeys(t); err != nil {
			return err
		}
		if n.kind == row.KindMultiset {
			elem = row.Int()
		}
	case row.KindRow:
		n.fields = make([]writeNode, t.NumFields())
		for i := range n.fields {
			if err := j.setWriteNode(&n.fields[i], t.Field(i).Name, t.Field(i).Type); err != nil {
				return err
			}
		}
	}
	if elem != nil {
		n.elem = &writeNode{}
		return j.setWriteNode(n.elem, "", elem)
	}
	return nil
}

// Append is of RowEncoder.
func (w *rowWriter) Append(dst []byte, r *row.Row) ([]byte, error) {
	start := len(dst)
	dst, err := w.object(dst, r)
	if err != nil {
		return dst[:start], err
	}
	return dst, nil
}

func (w *rowWriter) object(dst []byte, r *row.Row) ([]byte, *JSONError) {
	start := len(dst)
	for i := range w.columns {
		n := &w.columns[i]
		if r.Null(n.column) {
			dst = w.null(dst, n)
			continue
		}
		dst = append(dst, n.lead...)
		var err *JSONError
		switch n.words {
		case 0:
			b := r.S[n.at]
			if n.kind == row.KindVarChar && n.at < 64 && r.Plain>>uint(n.at)&1 != 0 {
				dst = append(dst, '"')
				dst = append(dst, b...)
				dst = append(dst, '"')
				continue
			}
			dst, err = w.value(dst, n, 0, 0, b)
		case 1:
			dst, err = w.value(dst, n, r.W[n.at], 0, nil)
		default:
			dst, err = w.value(dst, n, r.W[n.at], r.W[n.at+1], nil)
		}
		if err != nil {
			return dst, err.in(n.name)
		}
	}
	return closed(dst, start), nil
}

// closed ends the object that begins at start, whose fields each have a comma in front.
func closed(dst []byte, start int) []byte {
	if len(dst) == start {
		return append(dst, "{}"...)
	}
	dst[start] = '{'
	return append(dst, '}')
}

func (w *rowWriter) null(dst []byte, n *writeNode) []byte {
	if w.skipNulls {
		return dst
	}
	return append(append(dst, n.lead...), "null"...)
}

// value writes a value that is not NULL: x and y are its words, b its view.
func (w *rowWriter) value(dst []byte, n *writeNode, x, y uint64, b []byte) ([]byte, *JSONError) {
	switch n.kind {
	case row.KindNull:
		return append(dst, "null"...), nil
	case row.KindFloat, row.KindDouble:
		if f := math.Float64frombits(x); math.IsNaN(f) || math.IsInf(f, 0) {
			return append(n.appendWords(append(dst, '"'), x, y), '"'), nil
		}
	case row.KindDecimal:
		if d := decimalOf(n.typ, x, y); !w.plain {
			return appendShortDecimal(dst, d, n.typ.Scale()), nil
		}
	case row.KindChar, row.KindVarChar:
		return appendRowText(dst, b), nil
	case row.KindBinary, row.KindVarBinary:
		dst = base64.StdEncoding.AppendEncode(append(dst, '"'), b)
		return append(dst, '"'), nil
	case row.KindDate, row.KindTime, row.KindTimestamp, row.KindTimestampLTZ:
		return append(n.appendWords(append(dst, '"'), x, y), '"'), nil
	case row.KindArray:
		v := row.ViewArray(n.typ, b)
		dst = append(dst, '[')
		for i := range v.Len() {
			if i > 0 {
				dst = append(dst, ',')
			}
			var err *JSONError
			if dst, err = w.element(dst, n.elem, v, i); err != nil {
				return dst, err.at(i)
			}
		}
		return append(dst, ']'), nil
	case row.KindMap, row.KindMultiset:
		return w.mapOf(dst, n, row.ViewMap(n.typ, b))
	case row.KindRow:
		return w.rowOf(dst, n, row.ViewRow(n.typ, b))
	}
	return n.appendWords(dst, x, y), nil
}

func (w *rowWriter) element(dst []byte, n *writeNode, v row.ArrayView, i int) ([]byte, *JSONError) {
	if v.Null(i) {
		return append(dst, "null"...), nil
	}
	if n.words == 0 {
		return w.value(dst, n, 0, 0, v.Bytes(i))
	}
	x, y := v.Words(i)
	return w.value(dst, n, x, y, nil)
}

func (w *rowWriter) mapOf(dst []byte, n *writeNode, m row.MapView) ([]byte, *JSONError) {
	start := len(dst)
	for i := range m.Len() {
		var key []byte
		switch {
		case !m.Keys().Null(i):
			key = m.Keys().Bytes(i)
		case w.nullKeys == "DROP":
			continue
		case w.nullKeys == "LITERAL":
			key = []byte(w.nullKey)
		default:
			return dst, &JSONError{Offset: -1, Want: "a key of the map is NULL, which JSON does not have: set 'map-null-key.mode' of the format to DROP or LITERAL"}
		}
		dst = append(appendRowText(append(dst, ','), key), ':')
		var err *JSONError
		if dst, err = w.element(dst, n.elem, m.Values(), i); err != nil {
			return dst, err.in(string(key))
		}
	}
	return closed(dst, start), nil
}

func (w *rowWriter) rowOf(dst []byte, n *writeNode, v row.RowView) ([]byte, *JSONError) {
	start := len(dst)
	for i := range n.fields {
		f := &n.fields[i]
		if v.Null(i) {
			dst = w.null(dst, f)
			continue
		}
		dst = append(dst, f.lead...)
		var err *JSONError
		if f.words == 0 {
			dst, err = w.value(dst, f, 0, 0, v.Bytes(i))
		} else {
			x, y := v.Words(i)
			dst, err = w.value(dst, f, x, y, nil)
		}
		if err != nil {
			return dst, err.in(f.name)
		}
	}
	return closed(dst, start), nil
}

// appendRowText writes text as a string of JSON. Bytes that are not UTF-8 become U+FFFD: JSON has no place for them.
func appendRowText(dst, b []byte) []byte {
	s := view(b)
	if plainPrefix(s) < len(s) {
		if !utf8.ValidString(s) {
			s = strings.ToValidUTF8(s, "\uFFFD")
		}
		return appendString(dst, s)
	}
	dst = append(dst, '"')
	dst = append(dst, b...)
	return append(dst, '"')
}
