package format

import (
	"encoding"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/bits"
	"reflect"
	"strconv"
	"time"
	"unsafe"
)

// decode reads the value at src[i] into p, which holds the zero value of n.typ, and returns the index behind it.
func (n *node) decode(src []byte, i, left int, p unsafe.Pointer) (int, *JSONError) {
	if i >= len(src) {
		return i, wanted(src, i, n.want())
	}
	if src[i] == 'n' && n.dec != opJSONMethod && n.dec != opRaw {
		return scanLiteral(src, i, "null")
	}
	switch n.dec {
	case opString:
		if src[i] != '"' {
			break
		}
		s, end, err := readString(src, i)
		if err == nil {
			*(*string)(p) = s
		}
		return end, err
	case opInt, opUint, opFloat:
		if n.quoted {
			return n.decodeQuoted(src, i, p)
		}
		return n.decodeNumber(src, i, p)
	case opStruct:
		if src[i] == '{' {
			return n.decodeStruct(src, i, left, p)
		}
	case opBool:
		switch src[i] {
		case 't':
			*(*bool)(p) = true
			return scanLiteral(src, i, "true")
		case 'f':
			return scanLiteral(src, i, "false")
		}
	case opTime:
		return n.decodeTime(src, i, p)
	case opDuration:
		return n.decodeDuration(src, i, p)
	case opPtr:
		v := reflect.New(n.elem.typ)
		end, err := n.elem.decode(src, i, left, v.UnsafePointer())
		if err == nil {
			*(*unsafe.Pointer)(p) = v.UnsafePointer()
		}
		return end, err
	case opSlice:
		if src[i] == '[' {
			return n.decodeSlice(src, i, left, p)
		}
	case opArray:
		if src[i] == '[' {
			return n.decodeArray(src, i, left, p)
		}
	case opMap:
		if src[i] == '{' {
			return n.decodeMap(src, i, left, p)
		}
	case opAny:
		v, end, err := decodeAny(src, i, left)
		if err == nil {
			*(*any)(p) = v
		}
		return end, err
	case opNumber:
		if src[i] != '-' && !isDigit(src, i) {
			break
		}
		end, err := scanNumber(src, i)
		if err == nil {
			*(*string)(p) = view(src[i:end])
		}
		return end, err
	case opBytes:
		if src[i] == '"' {
			return n.decodeBytes(src, i, p)
		}
	case opRaw:
		end, err := skipValue(src, i, left)
		if err == nil {
			*(*[]byte)(p) = src[i:end:end]
		}
		return end, err
	case opJSONMethod:
		end, err := skipValue(src, i, left)
		if err != nil {
			return end, err
		}
		if err := reflect.NewAt(n.typ, p).Interface().(json.Unmarshaler).UnmarshalJSON(src[i:end:end]); err != nil {
			return i, &JSONError{Offset: i, Want: n.want(), Found: describe(src, i), Err: err}
		}
		return end, nil
	case opTextMethod:
		if src[i] != '"' {
			break
		}
		s, end, err := readString(src, i)
		if err != nil {
			return end, err
		}
		if err := reflect.NewAt(n.typ, p).Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(s)); err != nil {
			return i, &JSONError{Offset: i, Want: n.want(), Found: describe(src, i), Err: err}
		}
		return end, nil
	}
	return i, n.mismatch(src, i)
}

// want says what n can read.
func (n *node) want() string {
	switch n.dec {
	case opBool:
		return "want true or false"
	case opInt, opUint, opFloat:
		kind := n.typ.Kind().String()
		if n.quoted {
			return "want a number in quotes for a " + kind
		}
		return "want a number for a " + kind
	case opString:
		return "want a string"
	case opNumber:
		return "want a number"
	case opBytes:
		return "want a base64 string"
	case opTime:
		if n.unit == unitRFC3339 {
			return "want a string with an RFC 3339 time"
		}
		return "want an integer, the time in " + n.unit.String() + " since the epoch"
	case opDuration:
		return "want an integer, the duration in " + n.unit.String()
	case opStruct, opMap:
		return "want an object"
	case opSlice:
		return "want an array"
	case opArray:
		return "want an array of " + strconv.Itoa(n.typ.Len()) + " elements"
	case opPtr:
		return n.elem.want()
	case opTextMethod:
		return "want a string for a " + n.typ.String()
	case opJSONMethod:
		return "want a value for a " + n.typ.String()
	default:
		return "want a JSON value"
	}
}

func (u unit) String() string {
	return [...]string{"no unit", "seconds", "milliseconds", "microseconds", "nanoseconds", "RFC 3339"}[u]
}

// mismatch is the error for a value of another kind, or for something that is no value at all.
func (n *node) mismatch(src []byte, i int) *JSONError { return wanted(src, i, n.want()) }

func (n *node) decodeStruct(src []byte, i, left int, p unsafe.Pointer) (int, *JSONError) {
	if left == 0 {
		return i, tooDeep(i)
	}
	i = skipSpace(src, i+1)
	if i < len(src) && src[i] == '}' {
		return i + 1, nil
	}
	var seen uint64 // a bit for each of the first 64 fields
	var seenMore []uint64
	if len(n.fields) > 64 {
		seenMore = make([]uint64, len(n.fields)/64)
	}
	expect := 0
	for {
		// Producers write fields in one order and without spaces: the one behind the last found is tried first, at once with
		// its quotes and colon.
		var k int // -1 = no field of ours
		var name string
		start := i + 1
		var err *JSONError
		if expect < len(n.fields) && hasPrefix(src, i, n.fields[expect].lead) {
			k, name = expect, n.fields[expect].name
			i = skipSpace(src, i+len(n.fields[expect].lead))
		} else {
			if i >= len(src) || src[i] != '"' {
				return i, wanted(src, i, "want a field name")
			}
			end, escaped, err := scanString(src, start)
			if err != nil {
				return end, err
			}
			name = view(src[start:end])
			if escaped {
				name = unescape(src[start:end])
			}
			if i, err = afterName(src, end+1); err != nil {
				return i, err
			}
			k = n.find(name)
		}
		if k >= 0 {
			expect = k + 1
			word, bit := &seen, uint64(1)<<(k&63)
			if k >= 64 {
				word = &seenMore[k/64-1]
			}
			if *word&bit != 0 {
				return start - 1, (&JSONError{Offset: start - 1, Want: "the field comes twice"}).in(name)
			}
			*word |= bit
			f := &n.fields[k]
			if i, err = f.node.decode(src, i, left-1, f.place(p)); err != nil {
				return i, err.in(name)
			}
		} else {
			if n.refuseUnknown {
				return start - 1, (&JSONError{Offset: start - 1, Want: "the field is unknown"}).in(name)
			}
			if i, err = skipValue(src, i, left-1); err != nil {
				return i, err.in(name)
			}
		}
		if i+1 < len(src) && src[i] == ',' && src[i+1] == '"' { // the usual case without a call
			i++
			continue
		}
		var more bool
		if i, more, err = afterElement(src, i, '}'); !more {
			return i, err
		}
	}
}

// hasPrefix tells whether s stands at src[i].
func hasPrefix(src []byte, i int, s string) bool {
	return i+len(s) <= len(src) && view(src[i:i+len(s)]) == s
}

// find returns the index of the field, -1 if it is unknown.
func (n *node) find(name string) int {
	if len(name) < len(n.byLen) {
		for _, k := range n.byLen[len(name)] {
			// Most names of equal length differ in the first byte, which is looked at without a call.
			if f := n.fields[k].name; (f == "" || f[0] == name[0]) && f == name {
				return k
			}
		}
	}
	return -1
}

// place returns where the field of the struct at p is, and makes the embedded structs on the way.
func (f *field) place(p unsafe.Pointer) unsafe.Pointer {
	for _, h := range f.hops {
		pp := (*unsafe.Pointer)(unsafe.Add(p, h.offset))
		if *pp == nil {
			*pp = reflect.New(h.elem).UnsafePointer()
		}
		p = *pp
	}
	return unsafe.Add(p, f.offset)
}

func (n *node) decodeSlice(src []byte, i, left int, p unsafe.Pointer) (int, *JSONError) {
	if left == 0 {
		return i, tooDeep(i)
	}
	s := reflect.NewAt(n.typ, p).Elem()
	s.Set(reflect.MakeSlice(n.typ, 0, 0))
	i = skipSpace(src, i+1)
	if i < len(src) && src[i] == ']' {
		return i + 1, nil
	}
	for k := 0; ; k++ {
		if k == s.Cap() {
			s.Grow(max(4, k))
		}
		s.SetLen(k + 1)
		var err *JSONError
		if i, err = n.elem.decode(src, i, left-1, unsafe.Add(s.UnsafePointer(), uintptr(k)*n.elem.size)); err != nil {
			return i, err.at(k)
		}
		var more bool
		if i, more, err = afterElement(src, i, ']'); !more {
			return i, err
		}
	}
}

func (n *node) decodeArray(src []byte, i, left int, p unsafe.Pointer) (int, *JSONError) {
	if left == 0 {
		return i, tooDeep(i)
	}
	start, size := i, n.typ.Len()
	i = skipSpace(src, i+1)
	k := 0
	for more := i >= len(src) || src[i] != ']'; more; k++ {
		if k == size {
			return start, &JSONError{Offset: start, Want: n.want(), Found: "more"}
		}
		var err *JSONError
		if i, err = n.elem.decode(src, i, left-1, unsafe.Add(p, uintptr(k)*n.elem.size)); err != nil {
			return i, err.at(k)
		}
		if i, more, err = afterElement(src, i, ']'); err != nil {
			return i, err
		}
	}
	if k == 0 {
		i++ // the bracket of an empty array
	}
	if k < size {
		return start, &JSONError{Offset: start, Want: n.want(), Found: strconv.Itoa(k)}
	}
	return i, nil
}

func (n *node) decodeMap(src []byte, i, left int, p unsafe.Pointer) (int, *JSONError) {
	if left == 0 {
		return i, tooDeep(i)
	}
	m := reflect.MakeMap(n.typ)
	reflect.NewAt(n.typ, p).Elem().Set(m)
	i = skipSpace(src, i+1)
	if i < len(src) && src[i] == '}' {
		return i + 1, nil
	}
	key := reflect.New(n.typ.Key()).Elem()
	value := reflect.New(n.elem.typ)
	for {
		name, start, end, err := readName(src, i)
		if err != nil {
			return end, err
		}
		key.SetString(name)
		value.Elem().SetZero()
		if i, err = n.elem.decode(src, end, left-1, value.UnsafePointer()); err != nil {
			return i, err.in(name)
		}
		before := m.Len()
		m.SetMapIndex(key, value.Elem())
		if m.Len() == before {
			return start, (&JSONError{Offset: start, Want: "the key comes twice"}).in(name)
		}
		var more bool
		if i, more, err = afterElement(src, i, '}'); !more {
			return i, err
		}
	}
}

// readName reads a name and passes the colon.
func readName(src []byte, i int) (name string, start, end int, err *JSONError) {
	if i >= len(src) || src[i] != '"' {
		return "", i, i, wanted(src, i, "want a field name")
	}
	name, end, err = readString(src, i)
	if err == nil {
		end, err = afterName(src, end)
	}
	return name, i, end, err
}

func decodeAny(src []byte, i, left int) (v any, end int, err *JSONError) {
	if i >= len(src) {
		return nil, i, wanted(src, i, "want a JSON value")
	}
	switch c := src[i]; c {
	case '"':
		s, end, err := readString(src, i)
		return s, end, err
	case 't':
		end, err = scanLiteral(src, i, "true")
		return true, end, err
	case 'f':
		end, err = scanLiteral(src, i, "false")
		return false, end, err
	case 'n':
		end, err = scanLiteral(src, i, "null")
		return nil, end, err
	case '[':
		if left == 0 {
			return nil, i, tooDeep(i)
		}
		list := []any{}
		i = skipSpace(src, i+1)
		if i < len(src) && src[i] == ']' {
			return list, i + 1, nil
		}
		for {
			var e any
			if e, i, err = decodeAny(src, i, left-1); err != nil {
				return nil, i, err.at(len(list))
			}
			list = append(list, e)
			var more bool
			if i, more, err = afterElement(src, i, ']'); !more {
				return list, i, err
			}
		}
	case '{':
		if left == 0 {
			return nil, i, tooDeep(i)
		}
		m := map[string]any{}
		i = skipSpace(src, i+1)
		if i < len(src) && src[i] == '}' {
			return m, i + 1, nil
		}
		for {
			name, start, end, err := readName(src, i)
			if err != nil {
				return nil, end, err
			}
			if _, ok := m[name]; ok {
				return nil, start, (&JSONError{Offset: start, Want: "the key comes twice"}).in(name)
			}
			var e any
			if e, i, err = decodeAny(src, end, left-1); err != nil {
				return nil, i, err.in(name)
			}
			m[name] = e
			var more bool
			if i, more, err = afterElement(src, i, '}'); !more {
				return m, i, err
			}
		}
	default:
		if c != '-' && c-'0' > 9 {
			return nil, i, wanted(src, i, "want a JSON value")
		}
		end, err = scanNumber(src, i)
		if err != nil {
			return nil, end, err
		}
		return json.Number(view(src[i:end])), end, nil
	}
}

func (n *node) decodeBytes(src []byte, i int, p unsafe.Pointer) (int, *JSONError) {
	s, end, err := readString(src, i)
	if err != nil {
		return end, err
	}
	b := make([]byte, base64.StdEncoding.DecodedLen(len(s)))
	k, e := base64.StdEncoding.Decode(b, unsafe.Slice(unsafe.StringData(s), len(s)))
	if e != nil {
		return i, &JSONError{Offset: i, Want: n.want(), Found: describe(src, i), Err: e}
	}
	*(*[]byte)(p) = b[:k:k]
	return end, nil
}

// decodeQuoted reads a number that stands in a string.
func (n *node) decodeQuoted(src []byte, i int, p unsafe.Pointer) (int, *JSONError) {
	if src[i] != '"' {
		return i, n.mismatch(src, i)
	}
	s, end, err := readString(src, i)
	if err != nil {
		return end, err
	}
	text := unsafe.Slice(unsafe.StringData(s), len(s))
	if k, err := n.decodeNumber(text, 0, p); err != nil || k != len(text) {
		return i, n.mismatch(src, i)
	}
	return end, nil
}

func (n *node) decodeNumber(src []byte, i int, p unsafe.Pointer) (int, *JSONError) {
	if i >= len(src) || src[i] != '-' && !isDigit(src, i) {
		return i, n.mismatch(src, i)
	}
	switch n.dec {
	case opInt:
		v, end, err := n.readInt(src, i)
		if err != nil {
			return end, err
		}
		switch n.bits {
		case 64:
			*(*int64)(p) = v
			return end, nil
		case 32:
			*(*int32)(p) = int32(v)
			if int64(int32(v)) == v {
				return end, nil
			}
		case 16:
			*(*int16)(p) = int16(v)
			if int64(int16(v)) == v {
				return end, nil
			}
		case 8:
			*(*int8)(p) = int8(v)
			if int64(int8(v)) == v {
				return end, nil
			}
		}
		return i, n.outOfRange(src, i)
	case opUint:
		neg, u, end, err := n.readInteger(src, i)
		if err != nil {
			return end, err
		}
		if neg && u != 0 {
			return i, n.outOfRange(src, i)
		}
		switch n.bits {
		case 64:
			*(*uint64)(p) = u
			return end, nil
		case 32:
			*(*uint32)(p) = uint32(u)
			if uint64(uint32(u)) == u {
				return end, nil
			}
		case 16:
			*(*uint16)(p) = uint16(u)
			if uint64(uint16(u)) == u {
				return end, nil
			}
		case 8:
			*(*uint8)(p) = uint8(u)
			if uint64(uint8(u)) == u {
				return end, nil
			}
		}
		return i, n.outOfRange(src, i)
	default:
		if n.bits == 64 {
			if f, end, ok := readFloat(src, i); ok {
				*(*float64)(p) = f
				return end, nil
			}
		}
		end, err := scanNumber(src, i)
		if err != nil {
			return end, err
		}
		f, e := strconv.ParseFloat(view(src[i:end]), int(n.bits))
		if e != nil {
			return i, n.outOfRange(src, i)
		}
		if n.bits == 64 {
			*(*float64)(p) = f
		} else {
			*(*float32)(p) = float32(f)
		}
		return end, nil
	}
}

func (n *node) outOfRange(src []byte, i int) *JSONError {
	e := n.mismatch(src, i)
	e.Want += " in its range"
	return e
}

// readInt reads an integer in any spelling that fits an int64.
func (n *node) readInt(src []byte, i int) (v int64, end int, err *JSONError) {
	neg, u, end, err := n.readInteger(src, i)
	switch {
	case err != nil:
		return 0, end, err
	case neg && u <= 1<<63:
		return -int64(u), end, nil
	case !neg && u < 1<<63:
		return int64(u), end, nil
	}
	return 0, i, n.outOfRange(src, i)
}

// readInteger reads an integer: sign and magnitude.
func (n *node) readInteger(src []byte, i int) (neg bool, u uint64, end int, err *JSONError) {
	neg, u, end, ok := plainInteger(src, i)
	if ok {
		return neg, u, end, nil
	}
	start := i
	if neg {
		start++
	}
	end, err = scanNumber(src, i)
	if err != nil {
		return false, 0, end, err
	}
	u, whole, fits := integral(src[start:end])
	switch {
	case !whole:
		return false, 0, i, wanted(src, i, "want an integer for a "+n.typ.String())
	case !fits:
		return false, 0, i, n.outOfRange(src, i)
	}
	return neg, u, end, nil
}

// plainInteger reads an integer of at most 19 digits without fraction and exponent. ok is false for all other numbers,
// right or wrong.
func plainInteger(src []byte, i int) (neg bool, u uint64, end int, ok bool) {
	j := i
	if src[j] == '-' {
		neg = true
		j++
	}
	start := j
	for j+8 <= len(src) {
		v, ok := eightDigits(binary.LittleEndian.Uint64(src[j:]))
		if !ok {
			break
		}
		u = u*1e8 + v
		j += 8
	}
	for j < len(src) && src[j]-'0' <= 9 {
		u = u*10 + uint64(src[j]-'0')
		j++
	}
	digits := j - start
	plain := j >= len(src) || src[j] != '.' && src[j]|0x20 != 'e'
	return neg, u, j, plain && digits > 0 && digits <= 19 && (digits == 1 || src[start] != '0') // 19 digits fit an uint64
}

// eightDigits returns the number that eight bytes of text stand for, the first of them in the low byte of w; ok is
// false if they are not all digits.
func eightDigits(w uint64) (v uint64, ok bool) {
	const highs, lows = 0xf0f0f0f0f0f0f0f0, 0x0606060606060606
	if w&highs|(w+lows)&highs>>4 != 0x3333333333333333 {
		return 0, false
	}
	w = (w & 0x0f0f0f0f0f0f0f0f) * (10<<8 + 1) >> 8    // four numbers of two digits
	w = (w & 0x00ff00ff00ff00ff) * (100<<16 + 1) >> 16 // two of four
	return (w & 0x0000ffff0000ffff) * (10000<<32 + 1) >> 32, true
}

// integral returns the value of a valid JSON number without sign. whole tells whether it is an integer, fits whether
// that is less than 2^64.
func integral(s []byte) (u uint64, whole, fits bool) {
	// The value is digits * 10^exp.
	exp, k := 0, 0
	digits := make([]byte, 0, 64)
	point := false
	for ; k < len(s) && s[k]|0x20 != 'e'; k++ {
		if s[k] == '.' {
			point = true
			continue
		}
		digits = append(digits, s[k])
		if point {
			exp--
		}
	}
	if k < len(s) {
		k++
		negExp := s[k] == '-'
		if s[k] == '-' || s[k] == '+' {
			k++
		}
		e := 0
		for ; k < len(s); k++ {
			// Beyond this the value is 0, a fraction or far out of range, whatever the digits.
			e = min(e*10+int(s[k]-'0'), len(s)+100)
		}
		if negExp {
			e = -e
		}
		exp += e
	}
	for len(digits) > 0 && digits[len(digits)-1] == '0' {
		digits = digits[:len(digits)-1]
		exp++
	}
	for len(digits) > 0 && digits[0] == '0' {
		digits = digits[1:]
	}
	if len(digits) == 0 {
		return 0, true, true
	}
	if exp < 0 {
		return 0, false, false
	}
	if len(digits)+exp > 20 {
		return 0, true, false
	}
	for k := range len(digits) + exp {
		d := uint64(0)
		if k < len(digits) {
			d = uint64(digits[k] - '0')
		}
		hi, lo := bits.Mul64(u, 10)
		lo, carry := bits.Add64(lo, d, 0)
		if hi != 0 || carry != 0 {
			return 0, true, false
		}
		u = lo
	}
	return u, true, true
}

var pow10 = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// readFloat reads a number without exponent and with at most 15 digits. Both its digits and the power of ten are then
// exact float64s, so that one division rounds once and right (Clinger). ok is false for all other numbers, right or
// wrong.
func readFloat(src []byte, i int) (f float64, end int, ok bool) {
	neg := src[i] == '-'
	if neg {
		i++
	}
	start, u := i, uint64(0)
	for i < len(src) && src[i]-'0' <= 9 {
		u = u*10 + uint64(src[i]-'0')
		i++
	}
	digits, frac := i-start, 0
	if digits == 0 || digits > 1 && src[start] == '0' {
		return 0, i, false
	}
	if i < len(src) && src[i] == '.' {
		i++
		point := i
		for i < len(src) && src[i]-'0' <= 9 {
			u = u*10 + uint64(src[i]-'0')
			i++
		}
		if frac = i - point; frac == 0 {
			return 0, i, false
		}
	}
	if digits+frac > 15 || i < len(src) && src[i]|0x20 == 'e' {
		return 0, i, false
	}
	f = float64(u)
	if frac > 0 {
		f /= pow10[frac]
	}
	if neg {
		f = -f
	}
	return f, i, true
}

func (n *node) decodeTime(src []byte, i int, p unsafe.Pointer) (int, *JSONError) {
	if n.unit == unitRFC3339 {
		if src[i] != '"' {
			return i, n.mismatch(src, i)
		}
		s, end, err := readString(src, i)
		if err != nil {
			return end, err
		}
		var t time.Time
		if t.UnmarshalText(unsafe.Slice(unsafe.StringData(s), len(s))) != nil {
			return i, n.mismatch(src, i)
		}
		*(*time.Time)(p) = t.UTC()
		return end, nil
	}
	if src[i] != '-' && !isDigit(src, i) {
		return i, n.mismatch(src, i)
	}
	v, end, err := n.readInt(src, i)
	if err != nil {
		return end, err
	}
	var sec, nsec int64
	switch n.unit { // dividing by constants is multiplying
	case unitSeconds:
		sec = v
	case unitMillis:
		sec, nsec = v/1e3, v%1e3*1e6
	case unitMicros:
		sec, nsec = v/1e6, v%1e6*1e3
	default:
		sec, nsec = v/1e9, v%1e9
	}
	// The years that time.Time can print. What is beyond is another unit, most likely.
	if sec < minSecond || sec > maxSecond {
		e := n.outOfRange(src, i)
		e.Want += " of the years 0 to 9999"
		return i, e
	}
	*(*time.Time)(p) = time.Unix(sec, nsec).UTC()
	return end, nil
}

// The seconds of the years 0 to 9999.
const (
	minSecond = -62167219200
	maxSecond = 253402300799
)

func (n *node) decodeDuration(src []byte, i int, p unsafe.Pointer) (int, *JSONError) {
	if src[i] != '-' && !isDigit(src, i) {
		return i, n.mismatch(src, i)
	}
	v, end, err := n.readInt(src, i)
	if err != nil {
		return end, err
	}
	scale := 1e9 / perSecond[n.unit]
	if v > math.MaxInt64/scale || v < math.MinInt64/scale {
		return i, n.outOfRange(src, i)
	}
	*(*int64)(p) = v * scale
	return end, nil
}
