package format

import (
	"encoding/base64"
	"math"
	"strconv"

	"github.com/millrace-stream/millrace/row"
)

// readColumn is a column of a row that text is read into.
type readColumn struct {
	name   string
	typ    *row.Type
	kind   row.Kind
	column int
	at     int    // of the word or view
	words  uint8  // 1 or 2, 0 for a view
	plain  uint64 // the bit of the view in Row.Plain
	stamp  *stampText
}

func newReadColumn(name string, t *row.Type, l *row.Layout, column int, iso bool) readColumn {
	p := l.Place(column)
	c := readColumn{name: name, typ: t, kind: t.Kind(), column: column, at: p.Index, words: p.Words}
	if p.Bank == row.Views && p.Index < 64 {
		c.plain = 1 << uint(p.Index)
	}
	if c.kind == row.KindTimestamp || c.kind == row.KindTimestampLTZ {
		c.stamp = newStampText(t, iso)
	}
	return c
}

func (c *readColumn) set(r *row.Row, x uint64) {
	r.W[c.at] = x
	r.ClearNull(c.column)
}

func (c *readColumn) setBytes(r *row.Row, b []byte, plain bool) {
	r.S[c.at] = b
	r.ClearNull(c.column)
	if plain {
		r.Plain |= c.plain
	} else {
		r.Plain &^= c.plain
	}
}

// fits says whether the integer type has v.
func (c *readColumn) fits(v int64) bool {
	switch c.kind {
	case row.KindInt, row.KindIntervalMonth:
		return int64(int32(v)) == v
	case row.KindSmallInt:
		return int64(int16(v)) == v
	case row.KindTinyInt:
		return int64(int8(v)) == v
	}
	return true
}

// parse reads text as the type, which is neither text nor nested. Bytes go behind what is in buf.
func (c *readColumn) parse(buf *[]byte, text []byte, r *row.Row) bool {
	switch c.kind {
	case row.KindTimestamp, row.KindTimestampLTZ:
		ms, nanos, ok := c.stamp.read(text)
		if !ok {
			return false
		}
		c.set(r, uint64(ms))
		if c.words == 2 {
			r.W[c.at+1] = uint64(nanos)
		}
		return true
	case row.KindDate:
		days, rest, ok := readDate(text, false)
		if !ok || len(rest) > 0 {
			return false
		}
		c.set(r, uint64(days))
		return true
	case row.KindTime:
		ms, _, rest, ok := readClock(text, false)
		if !ok || len(rest) > 0 {
			return false
		}
		ms, _ = row.TruncTimestamp(ms%row.MsPerDay, 0, c.typ.Precision())
		c.set(r, uint64(ms))
		return true
	case row.KindBinary, row.KindVarBinary:
		at := len(*buf)
		b, err := base64.StdEncoding.AppendDecode(*buf, text)
		if err != nil {
			return false
		}
		*buf = b
		c.setBytes(r, b[at:len(b):len(b)], false)
		return true
	}
	text = trimJava(text)
	switch c.kind {
	case row.KindBoolean:
		var x uint64
		if readBool(text) {
			x = 1
		}
		c.set(r, x)
		return true
	case row.KindFloat, row.KindDouble:
		size := 64
		if c.kind == row.KindFloat {
			size = 32
		}
		f, err := row.ParseDouble(text, size)
		if err != nil {
			return false
		}
		c.set(r, math.Float64bits(f))
		return true
	case row.KindDecimal:
		v, null, ok := readDec(text, c.typ)
		if !ok || null {
			r.SetNull(c.column)
			return ok
		}
		c.set(r, v.Lo)
		if c.words == 2 {
			r.W[c.at+1] = uint64(v.Hi)
		}
		return true
	}
	v, err := strconv.ParseInt(view(text), 10, 64)
	if err != nil || !c.fits(v) {
		return false
	}
	c.set(r, uint64(v))
	return true
}

// want says what a column takes.
func (c *readColumn) want() string {
	t := c.typ.Text()
	switch c.kind {
	case row.KindChar, row.KindVarChar:
		return "want text for a " + t
	case row.KindTimestamp, row.KindTimestampLTZ:
		return "want text such as " + c.stamp.example() + " for a " + t + " (a number has no unit: declare it BIGINT and convert it with TO_TIMESTAMP_LTZ)"
	case row.KindDate:
		return "want text such as 2024-01-31 for a DATE"
	case row.KindTime:
		return "want text such as 23:59:59 for a " + t
	case row.KindBinary, row.KindVarBinary:
		return "want base64 text for " + t
	case row.KindBoolean:
		return "want true or false for a BOOLEAN"
	case row.KindArray:
		return "want an array for " + t
	case row.KindMap, row.KindMultiset, row.KindRow:
		return "want an object for " + t
	}
	return "want a number for " + t + " in its range"
}

// addTo adds the column's value in r to a list.
func (c *readColumn) addTo(b *row.ArrayBuilder, r *row.Row) {
	switch {
	case r.Null(c.column):
		b.AddNull()
	case c.words == 0:
		b.AddBytes(r.S[c.at])
	case c.words == 1:
		b.AddWord(r.W[c.at])
	default:
		b.AddWords(r.W[c.at], r.W[c.at+1])
	}
}

// addField adds the column's value in r to a ROW.
func (c *readColumn) addField(b *row.RowBuilder, r *row.Row) {
	switch {
	case r.Null(c.column):
		b.AddNull()
	case c.words == 0:
		b.AddBytes(r.S[c.at])
	case c.words == 1:
		b.AddWord(r.W[c.at])
	default:
		b.AddWords(r.W[c.at], r.W[c.at+1])
	}
}

// writeColumn is a column of a row, or a value inside of one, that is written as text.
type writeColumn struct {
	name   string
	typ    *row.Type
	kind   row.Kind
	column int
	at     int
	words  uint8
	stamp  *stampText
}

func newWriteColumn(name string, t *row.Type, iso bool) writeColumn {
	c := writeColumn{name: name, typ: t, kind: t.Kind(), words: row.NewLayout(t).Place(0).Words}
	if c.kind == row.KindTimestamp || c.kind == row.KindTimestampLTZ {
		c.stamp = newStampText(t, iso)
	}
	return c
}

// place says where the column lies.
func (c *writeColumn) place(l *row.Layout, column int) {
	c.column, c.at = column, l.Place(column).Index
}

// appendWords writes a value of words, without quotes.
func (c *writeColumn) appendWords(dst []byte, x, y uint64) []byte {
	switch c.kind {
	case row.KindBoolean:
		return strconv.AppendBool(dst, x != 0)
	case row.KindFloat:
		return row.AppendFloat(dst, math.Float64frombits(x))
	case row.KindDouble:
		return row.AppendDouble(dst, math.Float64frombits(x))
	case row.KindDecimal:
		return row.AppendDec(dst, decimalOf(c.typ, x, y), c.typ.Scale())
	case row.KindDate:
		return row.AppendDate(dst, int64(x))
	case row.KindTime:
		return appendClock(dst, int64(x), 0)
	case row.KindTimestamp, row.KindTimestampLTZ:
		return c.stamp.append(dst, int64(x), int64(y))
	}
	return appendInt(dst, int64(x))
}

// appendScalar writes a value that is not nested, without quotes.
func (c *writeColumn) appendScalar(dst []byte, x, y uint64, b []byte) []byte {
	switch {
	case c.kind.Text():
		return append(dst, b...)
	case c.kind.Bytes():
		return base64.StdEncoding.AppendEncode(dst, b)
	}
	return c.appendWords(dst, x, y)
}
