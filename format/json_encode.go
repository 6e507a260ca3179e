package format

import (
	"encoding"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
	"unsafe"
)

// append writes the value at p.
func (n *node) append(dst []byte, left int, p unsafe.Pointer) ([]byte, *JSONError) {
	switch n.enc {
	case opString:
		return appendText(dst, *(*string)(p))
	case opInt, opUint, opFloat:
		if n.quoted {
			dst, err := n.appendNumber(append(dst, '"'), p)
			return append(dst, '"'), err
		}
		return n.appendNumber(dst, p)
	case opBool:
		return strconv.AppendBool(dst, *(*bool)(p)), nil
	case opStruct:
		return n.appendStruct(dst, left, p)
	case opTime:
		return n.appendTime(dst, *(*time.Time)(p))
	case opDuration:
		scale := 1e9 / perSecond[n.unit]
		return strconv.AppendInt(dst, floorDiv(*(*int64)(p), scale), 10), nil
	case opPtr:
		if *(*unsafe.Pointer)(p) == nil {
			return append(dst, "null"...), nil
		}
		return n.elem.append(dst, left, *(*unsafe.Pointer)(p))
	case opSlice:
		s := reflect.NewAt(n.typ, p).Elem()
		return n.appendList(dst, left, s.UnsafePointer(), s.Len())
	case opArray:
		return n.appendList(dst, left, p, n.typ.Len())
	case opMap:
		return n.appendMap(dst, left, p)
	case opAny:
		return appendAny(dst, left, *(*any)(p))
	case opNumber:
		return appendNumberText(dst, *(*string)(p))
	case opBytes:
		dst = append(dst, '"')
		dst = base64.StdEncoding.AppendEncode(dst, *(*[]byte)(p))
		return append(dst, '"'), nil
	case opRaw:
		return appendRaw(dst, left, *(*[]byte)(p))
	case opJSONMethod:
		b, err := reflect.NewAt(n.typ, p).Interface().(json.Marshaler).MarshalJSON()
		if err != nil {
			return dst, &JSONError{Offset: -1, Want: "call MarshalJSON of " + n.typ.String(), Err: err}
		}
		return appendRaw(dst, left, b)
	default: // opTextMethod
		b, err := reflect.NewAt(n.typ, p).Interface().(encoding.TextMarshaler).MarshalText()
		if err != nil {
			return dst, &JSONError{Offset: -1, Want: "call MarshalText of " + n.typ.String(), Err: err}
		}
		return appendText(dst, view(b))
	}
}

func (n *node) appendNumber(dst []byte, p unsafe.Pointer) ([]byte, *JSONError) {
	switch n.enc {
	case opInt:
		var v int64
		switch n.bits {
		case 64:
			v = *(*int64)(p)
		case 32:
			v = int64(*(*int32)(p))
		case 16:
			v = int64(*(*int16)(p))
		case 8:
			v = int64(*(*int8)(p))
		}
		return appendInt(dst, v), nil
	case opUint:
		var v uint64
		switch n.bits {
		case 64:
			v = *(*uint64)(p)
		case 32:
			v = uint64(*(*uint32)(p))
		case 16:
			v = uint64(*(*uint16)(p))
		case 8:
			v = uint64(*(*uint8)(p))
		}
		return appendUint(dst, v), nil
	default:
		if n.bits == 32 {
			return appendFloat(dst, float64(*(*float32)(p)), 32)
		}
		return appendFloat(dst, *(*float64)(p), 64)
	}
}

func (n *node) appendStruct(dst []byte, left int, p unsafe.Pointer) ([]byte, *JSONError) {
	if left == 0 {
		return dst, tooDeep(-1)
	}
	start := len(dst)
	for i := range n.fields {
		f := &n.fields[i]
		at := unsafe.Add(p, f.offset)
		if f.hops != nil {
			if at = f.existing(p); at == nil {
				continue
			}
		}
		if f.omitEmpty && isEmpty(reflect.NewAt(f.typ, at).Elem()) || f.omitZero && isZero(reflect.NewAt(f.typ, at)) {
			continue
		}
		dst = append(dst, f.prefix...)
		var err *JSONError
		if dst, err = f.node.append(dst, left-1, at); err != nil {
			return dst, err.in(f.name)
		}
	}
	if len(dst) == start {
		return append(dst, "{}"...), nil
	}
	dst[start] = '{' // was the comma of the first field
	return append(dst, '}'), nil
}

// existing returns where the field is, nil if an embedded pointer on the way is nil.
func (f *field) existing(p unsafe.Pointer) unsafe.Pointer {
	for _, h := range f.hops {
		if p = *(*unsafe.Pointer)(unsafe.Add(p, h.offset)); p == nil {
			return nil
		}
	}
	return unsafe.Add(p, f.offset)
}

// isEmpty is what omitempty leaves out.
func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Array, reflect.Map, reflect.Slice, reflect.String:
		return v.Len() == 0
	case reflect.Struct:
		return false
	default:
		return v.IsZero()
	}
}

// isZero is what omitzero leaves out.
func isZero(ptr reflect.Value) bool {
	if z, ok := ptr.Interface().(interface{ IsZero() bool }); ok && ptr.Elem().Kind() != reflect.Pointer {
		return z.IsZero()
	}
	return ptr.Elem().IsZero()
}

func (n *node) appendList(dst []byte, left int, first unsafe.Pointer, size int) ([]byte, *JSONError) {
	if left == 0 {
		return dst, tooDeep(-1)
	}
	dst = append(dst, '[')
	for i := range size {
		if i > 0 {
			dst = append(dst, ',')
		}
		var err *JSONError
		if dst, err = n.elem.append(dst, left-1, unsafe.Add(first, uintptr(i)*n.elem.size)); err != nil {
			return dst, err.at(i)
		}
	}
	return append(dst, ']'), nil
}

func (n *node) appendMap(dst []byte, left int, p unsafe.Pointer) ([]byte, *JSONError) {
	if left == 0 {
		return dst, tooDeep(-1)
	}
	m := reflect.NewAt(n.typ, p).Elem()
	keys := m.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int {
		if a.String() < b.String() {
			return -1
		}
		return 1
	})
	value := reflect.New(n.elem.typ)
	dst = append(dst, '{')
	for i, k := range keys {
		if i > 0 {
			dst = append(dst, ',')
		}
		value.Elem().Set(m.MapIndex(k))
		var err *JSONError
		if dst, err = appendText(dst, k.String()); err == nil {
			dst, err = n.elem.append(append(dst, ':'), left-1, value.UnsafePointer())
		}
		if err != nil {
			return dst, err.in(k.String())
		}
	}
	return append(dst, '}'), nil
}

func appendAny(dst []byte, left int, v any) ([]byte, *JSONError) {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...), nil
	case string:
		return appendText(dst, v)
	case json.Number:
		return appendNumberText(dst, string(v))
	case bool:
		return strconv.AppendBool(dst, v), nil
	case float64:
		return appendFloat(dst, v, 64)
	case float32:
		return appendFloat(dst, float64(v), 32)
	case json.RawMessage:
		return appendRaw(dst, left, v)
	case []any:
		if left == 0 {
			return dst, tooDeep(-1)
		}
		dst = append(dst, '[')
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			var err *JSONError
			if dst, err = appendAny(dst, left-1, e); err != nil {
				return dst, err.at(i)
			}
		}
		return append(dst, ']'), nil
	case map[string]any:
		if left == 0 {
			return dst, tooDeep(-1)
		}
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		dst = append(dst, '{')
		for i, k := range keys {
			if i > 0 {
				dst = append(dst, ',')
			}
			var err *JSONError
			if dst, err = appendText(dst, k); err == nil {
				dst, err = appendAny(append(dst, ':'), left-1, v[k])
			}
			if err != nil {
				return dst, err.in(k)
			}
		}
		return append(dst, '}'), nil
	}
	switch r := reflect.ValueOf(v); {
	case implementsJSON(r.Type()) || r.Type() == typeDuration:
	case r.CanInt():
		return strconv.AppendInt(dst, r.Int(), 10), nil
	case r.CanUint():
		return strconv.AppendUint(dst, r.Uint(), 10), nil
	}
	return dst, &JSONError{Offset: -1, Want: fmt.Sprintf("an any holds a %T; it may hold nil, bool, string, numbers, json.Number, json.RawMessage, []any and map[string]any", v)}
}

// appendRaw appends JSON that others made, after a check; nothing is null.
func appendRaw(dst []byte, left int, b []byte) ([]byte, *JSONError) {
	if b == nil {
		return append(dst, "null"...), nil
	}
	end, err := skipValue(b, skipSpace(b, 0), left)
	if err == nil {
		err = wantEnd(b, end)
	}
	if err != nil {
		return dst, &JSONError{Offset: -1, Want: "raw JSON is not valid", Err: err}
	}
	return append(dst, b...), nil
}

// appendNumberText appends a json.Number; the empty one is 0, as in encoding/json.
func appendNumberText(dst []byte, s string) ([]byte, *JSONError) {
	if s == "" {
		return append(dst, '0'), nil
	}
	b := unsafe.Slice(unsafe.StringData(s), len(s))
	if end, err := scanNumber(b, 0); err != nil || end != len(b) {
		return dst, &JSONError{Offset: -1, Want: "a json.Number must be a JSON number", Found: strconv.Quote(s)}
	}
	return append(dst, s...), nil
}

// appendFloat writes the shortest text that reads back as f, in the form of encoding/json.
func appendFloat(dst []byte, f float64, size int) ([]byte, *JSONError) {
	abs := math.Abs(f)
	if !(abs <= math.MaxFloat64) {
		return dst, &JSONError{Offset: -1, Want: "JSON has no number for " + strconv.FormatFloat(f, 'g', -1, 64)}
	}
	if size == 64 && abs < 1e9 {
		// Most amounts have few decimals. If f is the float64 nearest to m / 10^6 with m below 10^15, then no other text
		// of up to 15 digits reads as f, so that m / 10^6 without its last zeros is the shortest one.
		m := math.Round(abs * 1e6)
		if m > 0 && m/1e6 == abs {
			if f < 0 {
				dst = append(dst, '-')
			}
			return appendMillionths(dst, uint64(m)), nil
		}
	}
	form := byte('f')
	if abs != 0 {
		if size == 64 && (abs < 1e-6 || abs >= 1e21) || size == 32 && (float32(abs) < 1e-6 || float32(abs) >= 1e21) {
			form = 'e'
		}
	}
	dst = strconv.AppendFloat(dst, f, form, -1, size)
	if k := len(dst); form == 'e' && k >= 4 && dst[k-4] == 'e' && dst[k-3] == '-' && dst[k-2] == '0' {
		dst[k-2] = dst[k-1] // e-09 becomes e-9
		dst = dst[:k-1]
	}
	return dst, nil
}

func appendMillionths(dst []byte, m uint64) []byte {
	dst = appendUint(dst, m/1e6)
	frac := m % 1e6
	if frac == 0 {
		return dst
	}
	w := digits(frac * 100) // all eight are behind the point
	n := 8 - bits.LeadingZeros64(w&^(ones*'0'))>>3
	dst = append(dst, '.')
	return binary.LittleEndian.AppendUint64(dst, w)[:len(dst)+n]
}

// digits returns the eight decimal digits of v, which is below 10^8, as text: the first of them in the low byte.
func digits(v uint64) uint64 {
	v = v/1e4 | v%1e4<<32 // two numbers of four digits
	q := v * 10486 >> 20 & 0x0000007f0000007f
	v = q | (v-q*100)<<16 // four of two
	q = v * 103 >> 10 & 0x000f000f000f000f
	return q | (v-q*10)<<8 | ones*'0'
}

// appendUint appends the decimal digits of v.
func appendUint(dst []byte, v uint64) []byte {
	if v >= 1e8 {
		if v < 1e16 {
			dst = appendUint(dst, v/1e8)
			return binary.LittleEndian.AppendUint64(dst, digits(v%1e8))
		}
		return strconv.AppendUint(dst, v, 10)
	}
	w := digits(v)
	zeros := bits.TrailingZeros64(w&^(ones*'0')|1<<56) >> 3 // in front; the last digit stays
	return binary.LittleEndian.AppendUint64(dst, w>>(8*zeros))[:len(dst)+8-zeros]
}

func appendInt(dst []byte, v int64) []byte {
	if v < 0 {
		return appendUint(append(dst, '-'), -uint64(v))
	}
	return appendUint(dst, uint64(v))
}

func (n *node) appendTime(dst []byte, t time.Time) ([]byte, *JSONError) {
	sec, nsec := t.Unix(), int64(t.Nanosecond())
	if sec < minSecond || sec > maxSecond {
		return dst, &JSONError{Offset: -1, Want: "want a time of the years 0 to 9999", Found: t.String()}
	}
	if n.unit == unitRFC3339 {
		dst = append(dst, '"')
		dst = t.UTC().AppendFormat(dst, time.RFC3339Nano)
		return append(dst, '"'), nil
	}
	switch n.unit { // dividing by constants is multiplying
	case unitSeconds:
		return appendInt(dst, sec), nil
	case unitMillis:
		return appendInt(dst, sec*1e3+nsec/1e6), nil
	case unitMicros:
		return appendInt(dst, sec*1e6+nsec/1e3), nil
	}
	if sec <= -maxNanoSecond || sec >= maxNanoSecond {
		return dst, &JSONError{Offset: -1, Want: "want a time of the years 1678 to 2262, as nanoseconds since the epoch", Found: t.String()}
	}
	return appendInt(dst, sec*1e9+nsec), nil
}

// maxNanoSecond is how many whole seconds of nanoseconds fit an int64.
const maxNanoSecond = math.MaxInt64 / 1_000_000_000

// floorDiv rounds towards minus infinity.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func appendText(dst []byte, s string) ([]byte, *JSONError) {
	if i := plainPrefix(s); i < len(s) {
		if !utf8.ValidString(s[i:]) {
			return dst, &JSONError{Offset: -1, Want: "text is not UTF-8", Found: strconv.QuoteToASCII(clipText(s))}
		}
		return appendString(dst, s), nil
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"'), nil
}

func clipText(s string) string { return s[:min(len(s), 40)] }

// plainPrefix is how many bytes of s need no care.
func plainPrefix(s string) int {
	b := unsafe.Slice(unsafe.StringData(s), len(s))
	i := 0
	for ; i+8 <= len(b); i += 8 {
		if m := special(binary.LittleEndian.Uint64(b[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return i
		}
	}
	return i
}

// appendString quotes s, which is UTF-8.
func appendString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		// U+2028 and U+2029 (E2 80 A8, A9) end a line in old JavaScript; encoding/json escapes them too.
		line := c == 0xe2 && i+2 < len(s) && s[i+1] == 0x80 && s[i+2]&^1 == 0xa8
		if c >= ' ' && c != '"' && c != '\\' && !line {
			continue
		}
		dst = append(dst, s[start:i]...)
		switch {
		case line:
			dst = append(dst, `\u202`...)
			dst = append(dst, hex[s[i+2]&0xf])
			i += 2
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\b':
			dst = append(dst, `\b`...)
		case c == '\f':
			dst = append(dst, `\f`...)
		case c == '\n':
			dst = append(dst, `\n`...)
		case c == '\r':
			dst = append(dst, `\r`...)
		case c == '\t':
			dst = append(dst, `\t`...)
		default:
			dst = append(dst, `\u00`...)
			dst = append(dst, hex[c>>4], hex[c&0xf])
		}
		start = i + 1
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}
