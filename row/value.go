package row

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Value is a value outside of the hot path: tests, the shell, literals, messages. It is
//
//	nil                NULL
//	bool               BOOLEAN
//	int64              the integers, DATE, TIME, INTERVAL: what the word holds
//	float64            FLOAT (rounded to a float32), DOUBLE
//	Dec                DECIMAL, unscaled
//	Stamp              TIMESTAMP, TIMESTAMP_LTZ
//	string             CHAR, VARCHAR
//	[]byte             BINARY, VARBINARY
//	[]Value            ARRAY, ROW
//	[]Entry            MAP, MULTISET (the value is how often, an int64)
type Value any

// Entry is an entry of a MAP or MULTISET.
type Entry struct{ Key, Value Value }

// Stamp is a TIMESTAMP (local) or TIMESTAMP_LTZ (UTC).
type Stamp struct{ Ms, Nanos int64 }

// Get is the value of column i. It is copied.
func (l *Layout) Get(r *Row, i int) Value {
	if r.Null(i) {
		return nil
	}
	p := l.places[i]
	switch p.Words {
	case 0:
		return valueOf(l.types[i], 0, 0, r.S[p.Index])
	case 1:
		return valueOf(l.types[i], r.W[p.Index], 0, nil)
	}
	return valueOf(l.types[i], r.W[p.Index], r.W[p.Index+1], nil)
}

// Set sets column i. The Go type of v must be the one that fits the type of the column, see [Value]; any integer type
// will do for int64. It panics otherwise: it is for tests and for values made by this package.
func (l *Layout) Set(r *Row, i int, v Value) {
	if v == nil {
		r.SetNull(i)
		return
	}
	r.ClearNull(i)
	p := l.places[i]
	x, y, b := l.types[i].Encode(v)
	if p.Bank == Views {
		r.SetBytes(p.Index, b)
		return
	}
	r.W[p.Index] = x
	if p.Words == 2 {
		r.W[p.Index+1] = y
	}
}

// Values is all columns.
func (l *Layout) Values(r *Row) []Value {
	vs := make([]Value, l.Len())
	for i := range vs {
		vs[i] = l.Get(r, i)
	}
	return vs
}

// RowOf makes a row (+I) of values, one a column, see Set.
func (l *Layout) RowOf(vs ...Value) *Row {
	if len(vs) != l.Len() {
		panic(fmt.Sprintf("row of %d values for %d columns", len(vs), l.Len()))
	}
	r := l.New()
	for i, v := range vs {
		l.Set(r, i, v)
	}
	return r
}

// Decode is the Value of words or of a view of the type, not NULL.
func (t *Type) Decode(x, y uint64, b []byte) Value { return valueOf(t, x, y, b) }

func valueOf(t *Type, x, y uint64, b []byte) Value {
	switch t.kind {
	case KindNull:
		return nil
	case KindBoolean:
		return x != 0
	case KindFloat, KindDouble:
		return math.Float64frombits(x)
	case KindDecimal:
		if t.shape.words == 1 {
			return DecInt(int64(x))
		}
		return Dec{x, int64(y)}
	case KindTimestamp, KindTimestampLTZ:
		return Stamp{int64(x), int64(y)}
	case KindChar, KindVarChar:
		return string(b)
	case KindBinary, KindVarBinary:
		return bytes.Clone(b)
	case KindArray:
		return elements(ViewArray(t, b))
	case KindRow:
		v := ViewRow(t, b)
		vs := make([]Value, v.Len())
		for i := range vs {
			if v.Null(i) {
				continue
			}
			ft := t.fields[i].Type
			if ft.shape.words == 0 {
				vs[i] = valueOf(ft, 0, 0, v.Bytes(i))
			} else {
				x, y := v.Words(i)
				vs[i] = valueOf(ft, x, y, nil)
			}
		}
		return vs
	case KindMap, KindMultiset:
		v := ViewMap(t, b)
		ks, vs := elements(v.keys), elements(v.values)
		es := make([]Entry, len(ks))
		for i := range es {
			es[i] = Entry{ks[i], vs[i]}
		}
		return es
	}
	return int64(x)
}

func elements(v ArrayView) []Value {
	vs := make([]Value, v.n)
	for i := range vs {
		if v.Null(i) {
			continue
		}
		if v.elem.shape.words == 0 {
			vs[i] = valueOf(v.elem, 0, 0, v.Bytes(i))
		} else {
			x, y := v.Words(i)
			vs[i] = valueOf(v.elem, x, y, nil)
		}
	}
	return vs
}

// Encode is the words or the view of v, which is not nil. It panics if v does not fit the type, see [Layout.Set].
func (t *Type) Encode(v Value) (x, y uint64, b []byte) {
	switch t.kind {
	case KindBoolean:
		if v.(bool) {
			x = 1
		}
		return x, 0, nil
	case KindFloat:
		return math.Float64bits(float64(float32(v.(float64)))), 0, nil
	case KindDouble:
		return math.Float64bits(v.(float64)), 0, nil
	case KindDecimal:
		d := v.(Dec)
		return d.Lo, uint64(d.Hi), nil
	case KindTimestamp, KindTimestampLTZ:
		s := v.(Stamp)
		return uint64(s.Ms), uint64(s.Nanos), nil
	case KindChar, KindVarChar:
		return 0, 0, []byte(v.(string))
	case KindBinary, KindVarBinary:
		return 0, 0, v.([]byte)
	case KindArray:
		a := NewArrayBuilder(t)
		for _, e := range v.([]Value) {
			a.add(e)
		}
		return 0, 0, a.Append(nil)
	case KindMap, KindMultiset:
		m := NewMapBuilder(t)
		for _, e := range v.([]Entry) {
			m.Keys.add(e.Key)
			m.Values.add(e.Value)
		}
		return 0, 0, m.Append(nil)
	case KindRow:
		r := NewRowBuilder(t)
		for i, e := range v.([]Value) {
			if e == nil {
				r.AddNull()
				continue
			}
			x, y, b := t.fields[i].Type.Encode(e)
			if t.fields[i].Type.shape.words == 0 {
				r.AddBytes(b)
			} else {
				r.AddWords(x, y)
			}
		}
		return 0, 0, r.Append(nil)
	}
	switch n := v.(type) {
	case int64:
		return uint64(n), 0, nil
	case int:
		return uint64(n), 0, nil
	case int32:
		return uint64(int64(n)), 0, nil
	}
	panic(fmt.Sprintf("a %T is no value of %s", v, t))
}

func (a *ArrayBuilder) add(v Value) {
	if v == nil {
		a.AddNull()
		return
	}
	x, y, b := a.elem.Encode(v)
	if a.elem.shape.words == 0 {
		a.AddBytes(b)
	} else {
		a.AddWords(x, y)
	}
}

// AppendText appends a value that is not NULL as CAST(x AS STRING) prints it: x and y are its words, b its view. A
// TIMESTAMP_LTZ is shown in the zone. Inside of nested values NULL is printed as NULL.
func AppendText(dst []byte, t *Type, x, y uint64, b []byte, zone *Zone) []byte {
	switch t.kind {
	case KindNull:
		return append(dst, "NULL"...)
	case KindBoolean:
		return AppendBool(dst, x != 0)
	case KindFloat:
		return AppendFloat(dst, math.Float64frombits(x))
	case KindDouble:
		return AppendDouble(dst, math.Float64frombits(x))
	case KindDecimal:
		if t.shape.words == 1 {
			return AppendDec64(dst, int64(x), t.scale)
		}
		return AppendDec(dst, Dec{x, int64(y)}, t.scale)
	case KindChar, KindVarChar, KindBinary, KindVarBinary:
		return append(dst, b...)
	case KindDate:
		return AppendDate(dst, int64(x))
	case KindTime:
		return AppendTime(dst, int64(x), t.precision)
	case KindTimestamp:
		return AppendTimestamp(dst, int64(x), int64(y), t.precision)
	case KindTimestampLTZ:
		return AppendTimestamp(dst, zone.Local(int64(x)), int64(y), t.precision)
	case KindIntervalDay:
		return AppendIntervalDay(dst, int64(x))
	case KindIntervalMonth:
		return AppendIntervalMonth(dst, int64(x))
	case KindArray:
		v := ViewArray(t, b)
		dst = append(dst, '[')
		for i := range v.n {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = appendElemText(dst, v, i, zone)
		}
		return append(dst, ']')
	case KindMap, KindMultiset:
		v := ViewMap(t, b)
		dst = append(dst, '{')
		for i := range v.Len() {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = appendElemText(dst, v.keys, i, zone)
			dst = append(dst, '=')
			dst = appendElemText(dst, v.values, i, zone)
		}
		return append(dst, '}')
	case KindRow:
		v := ViewRow(t, b)
		dst = append(dst, '(')
		for i, f := range t.fields {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			switch {
			case v.Null(i):
				dst = append(dst, "NULL"...)
			case f.Type.shape.words == 0:
				dst = AppendText(dst, f.Type, 0, 0, v.Bytes(i), zone)
			default:
				x, y := v.Words(i)
				dst = AppendText(dst, f.Type, x, y, nil, zone)
			}
		}
		return append(dst, ')')
	}
	return AppendInt(dst, int64(x))
}

func appendElemText(dst []byte, v ArrayView, i int, zone *Zone) []byte {
	switch {
	case v.Null(i):
		return append(dst, "NULL"...)
	case v.elem.shape.words == 0:
		return AppendText(dst, v.elem, 0, 0, v.Bytes(i), zone)
	}
	x, y := v.Words(i)
	return AppendText(dst, v.elem, x, y, nil, zone)
}

// AppendResult appends the row as a JSON array in the form in which results are compared and shown: numbers as they are,
// DECIMAL, text and times as strings ("2024-01-01 00:00:00.000"; TIMESTAMP_LTZ in UTC with a Z), BYTES as "x'0AFF'",
// intervals as ms or months, ARRAY and ROW as arrays, MAP and MULTISET as sorted arrays of pairs.
func (l *Layout) AppendResult(dst []byte, r *Row) []byte {
	dst = append(dst, '[')
	for i, t := range l.types {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = AppendResultValue(dst, t, l.Get(r, i))
	}
	return append(dst, ']')
}

// AppendResultValue appends one value, see AppendResult.
func AppendResultValue(dst []byte, t *Type, v Value) []byte {
	if v == nil {
		return append(dst, "null"...)
	}
	switch t.kind {
	case KindBoolean:
		return strconv.AppendBool(dst, v.(bool))
	case KindFloat, KindDouble:
		f := v.(float64)
		quoted := math.IsNaN(f) || math.IsInf(f, 0)
		if quoted {
			dst = append(dst, '"')
		}
		if t.kind == KindFloat {
			dst = AppendFloat(dst, f)
		} else {
			dst = AppendDouble(dst, f)
		}
		if quoted {
			dst = append(dst, '"')
		}
		return dst
	case KindDecimal:
		return append(AppendDec(append(dst, '"'), v.(Dec), t.scale), '"')
	case KindChar, KindVarChar:
		return appendQuoted(dst, v.(string))
	case KindBinary, KindVarBinary:
		dst = append(dst, `"x'`...)
		dst = append(dst, strings.ToUpper(hex.EncodeToString(v.([]byte)))...)
		return append(dst, `'"`...)
	case KindDate:
		return append(AppendDate(append(dst, '"'), v.(int64)), '"')
	case KindTime:
		return append(AppendTime(append(dst, '"'), v.(int64), t.precision), '"')
	case KindTimestamp:
		s := v.(Stamp)
		return append(AppendTimestamp(append(dst, '"'), s.Ms, s.Nanos, t.precision), '"')
	case KindTimestampLTZ:
		s := v.(Stamp)
		return append(AppendTimestamp(append(dst, '"'), s.Ms, s.Nanos, t.precision), `Z"`...)
	case KindArray, KindRow:
		dst = append(dst, '[')
		for i, e := range v.([]Value) {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			et := t.elem
			if t.kind == KindRow {
				et = t.fields[i].Type
			}
			dst = AppendResultValue(dst, et, e)
		}
		return append(dst, ']')
	case KindMap, KindMultiset:
		var pairs [][]byte
		for _, e := range v.([]Entry) {
			p := AppendResultValue([]byte{'['}, t.shape.pair.elem, e.Key)
			p = AppendResultValue(append(p, ", "...), t.shape.pair2.elem, e.Value)
			pairs = append(pairs, append(p, ']'))
		}
		slices.SortFunc(pairs, bytes.Compare)
		return append(append(append(dst, '['), bytes.Join(pairs, []byte(", "))...), ']')
	}
	return strconv.AppendInt(dst, v.(int64), 10)
}

// appendQuoted writes a JSON string. A surrogate without its partner, which some functions make of a pair, stands in text
// as its three bytes and is written as \udXXX.
func appendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case c == utf8.RuneError && n == 1:
			if u, ok := surrogate(s[i:]); ok {
				dst = fmt.Appendf(dst, `\u%04x`, u)
				n = 3
			} else {
				dst = append(dst, "\uFFFD"...)
			}
		case c == '"' || c == '\\':
			dst = append(dst, '\\', byte(c))
		case c == '\n':
			dst = append(dst, `\n`...)
		case c == '\r':
			dst = append(dst, `\r`...)
		case c == '\t':
			dst = append(dst, `\t`...)
		case c < 0x20 || c == 0x7f:
			dst = fmt.Appendf(dst, `\u%04x`, c)
		default:
			dst = append(dst, s[i:i+n]...)
		}
		i += n
	}
	return append(dst, '"')
}

// surrogate reads a surrogate code point, which UTF-8 does not allow.
func surrogate(s string) (rune, bool) {
	if len(s) < 3 || s[0] != 0xed || s[1] < 0xa0 || s[1] > 0xbf || s[2]&0xc0 != 0x80 {
		return 0, false
	}
	return 0xd000 | rune(s[1]&0x3f)<<6 | rune(s[2]&0x3f), true
}

// AppendSurrogate appends a lone surrogate (0xD800 to 0xDFFF) as its three bytes.
func AppendSurrogate(dst []byte, c rune) []byte {
	return append(dst, 0xed, 0x80|byte(c>>6)&0x3f, 0x80|byte(c)&0x3f)
}

// ReadResult reads what AppendResult writes: a JSON array with a value a column.
func (l *Layout) ReadResult(b []byte) ([]Value, error) {
	var raw []any
	if err := readJSON(b, &raw); err != nil {
		return nil, fmt.Errorf("read row %s: %w", b, err)
	}
	if len(raw) != l.Len() {
		return nil, fmt.Errorf("read row %s: %d values for %d columns", b, len(raw), l.Len())
	}
	vs := make([]Value, len(raw))
	for i, t := range l.types {
		v, err := valueOfJSON(t, raw[i])
		if err != nil {
			return nil, fmt.Errorf("read row %s: column %d: %w", b, i+1, err)
		}
		vs[i] = v
	}
	return vs, nil
}

// ReadResultValue reads what AppendResultValue writes, and for the type a literal: "2024-01-31", 1.50, "x'0A'".
func ReadResultValue(t *Type, b []byte) (Value, error) {
	var raw any
	if err := readJSON(b, &raw); err != nil {
		return nil, fmt.Errorf("read %s of type %s: %w", b, t, err)
	}
	return valueOfJSON(t, raw)
}

func readJSON(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(wtf8(b)))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more behind the value")
	}
	return nil
}

// loneMark stands for a lone surrogate while encoding/json, which would replace it, reads the text: a noncharacter and
// the low bits of the surrogate as a private character.
const (
	loneMark = '\U0010FFFE'
	loneBase = 0xF0000
)

func wtf8(b []byte) []byte {
	if !bytes.Contains(b, []byte(`\u`)) {
		return b
	}
	var out []byte
	for i := 0; i < len(b); i++ {
		if b[i] == '\\' && i+1 < len(b) && b[i+1] != 'u' {
			out = append(out, b[i], b[i+1])
			i++
			continue
		}
		if u, ok := unicodeEscape(b[i:]); ok && utf16.IsSurrogate(u) {
			if v, ok := unicodeEscape(b[i+6:]); ok && utf16.DecodeRune(u, v) != utf8.RuneError {
				out = append(out, b[i:i+12]...)
				i += 11
				continue
			}
			out = utf8.AppendRune(utf8.AppendRune(out, loneMark), loneBase+u&0x7ff)
			i += 5
			continue
		}
		out = append(out, b[i])
	}
	return out
}

func unicodeEscape(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	u, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(u), err == nil
}

func loneSurrogates(s string) string {
	if !strings.ContainsRune(s, loneMark) {
		return s
	}
	var out []byte
	lone := false
	for _, c := range s {
		switch {
		case c == loneMark:
			lone = true
			continue
		case lone:
			out = AppendSurrogate(out, 0xd800|(c-loneBase))
		default:
			out = utf8.AppendRune(out, c)
		}
		lone = false
	}
	return string(out)
}

func valueOfJSON(t *Type, raw any) (Value, error) {
	if raw == nil {
		return nil, nil
	}
	wrong := func(cause error) (Value, error) {
		if cause == nil {
			return nil, fmt.Errorf("%v is no value of %s", raw, t)
		}
		return nil, fmt.Errorf("%v is no value of %s: %w", raw, t, cause)
	}
	s, isText := raw.(string)
	n, isNumber := raw.(json.Number)
	list, isList := raw.([]any)
	if isNumber {
		s = n.String()
	}
	s = loneSurrogates(s)
	switch t.kind {
	case KindBoolean:
		if v, ok := raw.(bool); ok {
			return v, nil
		}
		return wrong(nil)
	case KindChar, KindVarChar:
		if !isText {
			return wrong(nil)
		}
		return s, nil
	case KindArray:
		if !isList {
			return wrong(nil)
		}
		return listOfJSON(list, func(int) *Type { return t.elem })
	case KindRow:
		if !isList || len(list) != len(t.fields) {
			return wrong(nil)
		}
		return listOfJSON(list, func(i int) *Type { return t.fields[i].Type })
	case KindMap, KindMultiset:
		if !isList {
			return wrong(nil)
		}
		es := make([]Entry, len(list))
		for i, e := range list {
			pair, _ := e.([]any)
			if len(pair) != 2 {
				return wrong(nil)
			}
			kv, err := listOfJSON(pair, func(i int) *Type {
				if i == 0 {
					return t.shape.pair.elem
				}
				return t.shape.pair2.elem
			})
			if err != nil {
				return wrong(err)
			}
			es[i] = Entry{kv.([]Value)[0], kv.([]Value)[1]}
		}
		return es, nil
	}
	if !isText && !isNumber {
		return wrong(nil)
	}
	b := []byte(s)
	switch t.kind {
	case KindTinyInt, KindSmallInt, KindInt, KindBigInt, KindIntervalDay, KindIntervalMonth:
		size := 8 * int(t.shape.width)
		v, err := strconv.ParseInt(s, 10, size)
		if err != nil {
			return wrong(ErrOverflow)
		}
		return v, nil
	case KindFloat, KindDouble:
		size := 64
		if t.kind == KindFloat {
			size = 32
		}
		v, err := ParseDouble(b, size)
		if err != nil {
			return wrong(err)
		}
		return v, nil
	case KindDecimal:
		v, err := ParseDec(b, t.precision, t.scale)
		if err != nil {
			return wrong(err)
		}
		return v, nil
	case KindBinary, KindVarBinary:
		h, ok1 := strings.CutPrefix(s, "x'")
		h, ok2 := strings.CutSuffix(h, "'")
		v, err := hex.DecodeString(h)
		if err != nil || !ok1 || !ok2 {
			return wrong(err)
		}
		return v, nil
	case KindDate:
		v, err := ParseDate(b)
		if err != nil {
			return wrong(err)
		}
		return v, nil
	case KindTime:
		v, err := ParseTime(b)
		if err != nil {
			return wrong(err)
		}
		return v, nil
	case KindTimestamp, KindTimestampLTZ:
		if t.kind == KindTimestampLTZ {
			var ok bool
			if b, ok = bytes.CutSuffix(b, []byte{'Z'}); !ok {
				return wrong(errors.New("a TIMESTAMP_LTZ is in UTC and ends with Z"))
			}
		}
		ms, nanos, err := ParseTimestamp(b)
		if err != nil {
			return wrong(err)
		}
		ms, nanos = TruncTimestamp(ms, nanos, t.precision)
		return Stamp{ms, nanos}, nil
	}
	return wrong(nil)
}

func listOfJSON(list []any, typ func(int) *Type) (Value, error) {
	vs := make([]Value, len(list))
	for i, e := range list {
		v, err := valueOfJSON(typ(i), e)
		if err != nil {
			return nil, err
		}
		vs[i] = v
	}
	return vs, nil
}
