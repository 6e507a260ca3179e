package statestore

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// An Inspector turns the entries of stores into JSON without the program's types: with the specs of its stores, and the
// schemas of values that travel as entries of store id 0. It belongs to one goroutine.
type Inspector struct {
	stores map[ID]*inspected
}

type inspected struct {
	spec    Spec
	name    []byte // as JSON
	key     *keyType
	mapKey  *keyType
	keyErr  error
	values  map[uint64]*wireType // by version
	schemas map[uint64]string    // those that cannot be read
	stamped map[uint64]bool      // those of values that carry the time of their last write
}

// NewInspector makes the Inspector of stores with these specs.
func NewInspector(specs []Spec) *Inspector {
	in := &Inspector{stores: map[ID]*inspected{}}
	for _, spec := range specs {
		s := &inspected{spec: spec, name: appendJSONString(nil, spec.Name), values: map[uint64]*wireType{}, schemas: map[uint64]string{}, stamped: map[uint64]bool{}}
		key, mapKey, _ := strings.Cut(spec.KeyType, mapKeySep)
		s.key, s.keyErr = parseKeyType(key)
		if spec.Kind == KindMap && s.keyErr == nil {
			s.mapKey, s.keyErr = parseKeyType(mapKey)
		}
		in.stores[spec.ID] = s
	}
	return in
}

// mapKeySep stands in Spec.KeyType of a map between the schemas of key and map key.
const mapKeySep = " / "

// Learn takes the entry of a schema descriptor in. It reports whether the entry is of store id 0, and nothing to be shown.
func (in *Inspector) Learn(key, val []byte) bool {
	if !bytes.HasPrefix(key, []byte{0, 0, 0, 0}) {
		return false
	}
	if len(key) != 17 || key[4] != 1 {
		return true
	}
	s := in.stores[ID(binary.BigEndian.Uint32(key[5:]))]
	if s == nil {
		return true
	}
	version := binary.BigEndian.Uint64(key[9:])
	_, s.stamped[version] = HasTTL(string(val))
	if w, err := parseSchema(string(val)); err == nil {
		s.values[version] = w
	} else {
		s.schemas[version] = string(val)
	}
	return true
}

// Expired says that an entry has expired at now, ms since 1970: a program reads it as if it were not there, though clean-up
// has not removed it yet. It needs the TTL of the spec.
func (in *Inspector) Expired(key, val []byte, now int64) bool {
	if len(key) < 4 {
		return false
	}
	s := in.stores[ID(binary.BigEndian.Uint32(key))]
	if s == nil || s.spec.TTL == 0 {
		return false
	}
	version, n := binary.Uvarint(val)
	if n <= 0 || !s.stamped[version] {
		return false
	}
	at, _, err := readVarint(val[n:])
	return err == nil && Expired(at, s.spec.TTL.Milliseconds(), now)
}

// SchemaRange is the range of keys of all schema descriptors: what Learn is to be told before other entries.
func SchemaRange() Range {
	lo, hi := schemaRange()
	return Range{lo, hi}
}

// Append appends one entry as a JSON object without a line feed. Its fields, in this order; those that do not apply are
// left out:
//
//	store        name of the store
//	subtask      as given
//	key          the key: strings, numbers and booleans as such, arrays of bytes as hexadecimal text, structs as objects
//	window_end   end of the window, ms since 1970
//	time, timer  time of the timer, ms since 1970, and its id; time alone is that of a row in a window
//	map_key      the key within the map
//	index        the place in the list, or among the rows of one time: numbers ascend, with holes where elements were removed
//	value        the value
//
// int64 and uint64 are JSON numbers of up to 20 digits. A string that is not UTF-8 is {"bytes": base64}; byte slices
// and what a type's MarshalBinary wrote are base64, arrays of bytes hexadecimal; times are RFC 3339 with nanoseconds;
// NaN and infinities are strings; a map with keys that are not text, integers or booleans is a list of [key, value]. A key or
// value that cannot be decoded is key_base64 or value_base64, with the reason in key_error or value_error.
func (in *Inspector) Append(dst []byte, subtask string, key, val []byte) []byte {
	if len(key) < 4 {
		return appendRaw(append(dst, '{'), "key", key, errKeyShort, '}')
	}
	id := ID(binary.BigEndian.Uint32(key))
	s := in.stores[id]
	dst = append(dst, `{"store":`...)
	if s != nil {
		dst = append(dst, s.name...)
	} else {
		dst = fmt.Appendf(dst, `"#%08x"`, uint32(id))
	}
	if subtask != "" {
		dst = appendJSONString(append(dst, `,"subtask":`...), subtask)
	}
	dst = append(dst, ',')
	if s == nil {
		dst = appendRaw(dst, "key", key[4:], errors.New("no store of this id is known"), ',')
		return appendRaw(dst, "value", val, errors.New("no store of this id is known"), '}')
	}
	done, err := s.appendKey(dst, key[4:])
	if err != nil {
		done = appendRaw(dst, "key", key[4:], err, ',')
	}
	dst = done
	if s.spec.Kind == KindTimers { // whose values say no more than that they exist
		dst[len(dst)-1] = '}'
		return dst
	}
	done, err = s.appendValue(append(dst, `"value":`...), val)
	if err != nil {
		return appendRaw(dst, "value", val, err, '}')
	}
	return append(done, '}')
}

// appendRaw writes what cannot be decoded.
func appendRaw(dst []byte, field string, raw []byte, why error, end byte) []byte {
	dst = append(append(append(dst, '"'), field...), `_base64":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, raw)
	dst = append(append(append(dst, `","`...), field...), `_error":`...)
	return append(appendJSONString(dst, why.Error()), end)
}

// appendKey writes what stands behind the store id of a key, and a comma.
func (s *inspected) appendKey(dst, src []byte) ([]byte, error) {
	if s.keyErr != nil {
		return nil, s.keyErr
	}
	var at int64
	switch s.spec.Kind {
	case KindWindows, KindTimers, KindWindowRows:
		if len(src) < 8 {
			return nil, errKeyShort
		}
		at, src = decodeKeyInt64(src), src[8:]
	}
	if len(src) < 2 {
		return nil, errKeyShort
	}
	dst, rest, err := s.key.append(append(dst, `"key":`...), src[2:])
	if err != nil {
		return nil, err
	}
	dst = append(dst, ',')
	switch s.spec.Kind {
	case KindWindows:
		dst = append(strconv.AppendInt(append(dst, `"window_end":`...), at, 10), ',')
	case KindWindowRows:
		if len(rest) != rowSuffix {
			return nil, errKeyShort
		}
		dst = append(strconv.AppendInt(append(dst, `"window_end":`...), at, 10), ',')
		dst = strconv.AppendInt(append(dst, `"time":`...), decodeKeyInt64(rest), 10)
		dst = append(strconv.AppendUint(append(dst, `,"index":`...), uint64(binary.BigEndian.Uint32(rest[8:])), 10), ',')
		rest = nil
	case KindTimers:
		if len(rest) != 4 {
			return nil, errKeyShort
		}
		dst = strconv.AppendInt(append(dst, `"time":`...), at, 10)
		dst = append(strconv.AppendUint(append(dst, `,"timer":`...), uint64(binary.BigEndian.Uint32(rest)), 10), ',')
		rest = nil
	case KindMap:
		if dst, rest, err = s.mapKey.append(append(dst, `"map_key":`...), rest); err != nil {
			return nil, err
		}
		dst = append(dst, ',')
	case KindList:
		if len(rest) != 8 {
			return nil, errKeyShort
		}
		dst = append(strconv.AppendUint(append(dst, `"index":`...), binary.BigEndian.Uint64(rest), 10), ',')
		rest = nil
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("decode key: %d bytes left behind it", len(rest))
	}
	return dst, nil
}

func (s *inspected) appendValue(dst, src []byte) ([]byte, error) {
	version, n := binary.Uvarint(src)
	if n <= 0 {
		return nil, errShort
	}
	w := s.values[version]
	if w == nil {
		if schema, ok := s.schemas[version]; ok {
			return nil, fmt.Errorf("its schema %q is of a Codec of the program's own, or of a newer version", schema)
		}
		return nil, fmt.Errorf("no descriptor of schema version %d", version)
	}
	// Elements may take no bytes, so that a damaged length could ask for any number of them.
	v := valueJSON{left: 64*len(src) + 1<<16}
	dst, rest, err := v.append(dst, src[n:], w)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("decode value: %d bytes left behind it", len(rest))
	}
	return dst, err
}

// valueJSON writes one value. left is how many parts it may still have.
type valueJSON struct{ left int }

func (v *valueJSON) append(dst, src []byte, w *wireType) ([]byte, []byte, error) {
	if v.left--; v.left < 0 {
		return nil, nil, errTooLarge
	}
	switch w.kind {
	case kindBool:
		if len(src) < 1 {
			return nil, nil, errShort
		}
		if src[0] > 1 {
			return nil, nil, errRange
		}
		return strconv.AppendBool(dst, src[0] == 1), src[1:], nil
	case kindInt8, kindInt16, kindInt32, kindInt64:
		n, rest, err := readVarint(src)
		if bits := 8 << (w.kind - kindInt8); err == nil && n<<(64-bits)>>(64-bits) != n {
			err = errRange
		}
		return strconv.AppendInt(dst, n, 10), rest, err
	case kindUint8, kindUint16, kindUint32, kindUint64:
		n, rest, err := readUvarint(src)
		if bits := 8 << (w.kind - kindUint8); err == nil && n<<(64-bits)>>(64-bits) != n {
			err = errRange
		}
		return strconv.AppendUint(dst, n, 10), rest, err
	case kindFloat32:
		if len(src) < 4 {
			return nil, nil, errShort
		}
		return appendJSONFloat(dst, float64(math.Float32frombits(binary.LittleEndian.Uint32(src))), 32), src[4:], nil
	case kindFloat64:
		if len(src) < 8 {
			return nil, nil, errShort
		}
		return appendJSONFloat(dst, math.Float64frombits(binary.LittleEndian.Uint64(src)), 64), src[8:], nil
	case kindString:
		n, rest, err := readLen(src, 0)
		if err != nil {
			return nil, nil, err
		}
		return appendJSONBytes(dst, rest[:n]), rest[n:], nil
	case kindBinary:
		n, rest, err := readLen(src, 0)
		if err != nil {
			return nil, nil, err
		}
		return appendBase64(dst, rest[:n]), rest[n:], nil
	case kindTime:
		t, rest, err := decodeTime(src)
		if err != nil {
			return nil, nil, err
		}
		return append(t.AppendFormat(append(dst, '"'), time.RFC3339Nano), '"'), rest, nil
	case kindArray:
		return v.array(dst, src, w)
	case kindStruct:
		dst = append(dst, '{')
		for i, f := range w.fields {
			if i > 0 {
				dst = append(dst, ',')
			}
			var err error
			if dst, src, err = v.append(append(appendJSONString(dst, f.name), ':'), src, f.typ); err != nil {
				return nil, nil, err
			}
		}
		return append(dst, '}'), src, nil
	}
	// What may be nil: 0, else 1 more than the length.
	n, src, err := readUvarint(src)
	switch {
	case err != nil:
		return nil, nil, err
	case n == 0:
		return append(dst, "null"...), src, nil
	case w.kind == kindPointer:
		if n != 1 {
			return nil, nil, errRange
		}
		return v.append(dst, src, w.elem)
	case w.kind == kindBytes:
		if n--; n > uint64(len(src)) {
			return nil, nil, errTooLarge
		}
		return appendBase64(dst, src[:n]), src[n:], nil
	case w.kind == kindSlice:
		return v.list(dst, src, w.elem, n-1)
	case w.kind == kindMap:
		return v.mapping(dst, src, w, n-1)
	}
	return nil, nil, fmt.Errorf("decode value: kind %d", w.kind)
}

func (v *valueJSON) list(dst, src []byte, elem *wireType, n uint64) ([]byte, []byte, error) {
	dst = append(dst, '[')
	var err error
	for i := range n {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, src, err = v.append(dst, src, elem); err != nil {
			return nil, nil, err
		}
	}
	return append(dst, ']'), src, nil
}

// array writes arrays of bytes, which mostly are ids and hashes, as hexadecimal text.
func (v *valueJSON) array(dst, src []byte, w *wireType) ([]byte, []byte, error) {
	if w.elem.kind != kindUint8 {
		return v.list(dst, src, w.elem, uint64(w.n))
	}
	if w.n > len(src) {
		return nil, nil, errShort
	}
	raw := make([]byte, 0, w.n)
	for range w.n {
		b, rest, err := readUvarint(src)
		if err == nil && b > math.MaxUint8 {
			err = errRange
		}
		if err != nil {
			return nil, nil, err
		}
		raw, src = append(raw, byte(b)), rest
	}
	return appendHex(dst, raw), src, nil
}

// mapping writes an object if the keys can be names, and none is a string that is not UTF-8; else pairs.
func (v *valueJSON) mapping(dst, src []byte, w *wireType, n uint64) ([]byte, []byte, error) {
	start, from, left := len(dst), src, v.left
	object := w.key.kind == kindString || w.key.kind == kindBool || w.key.kind >= kindInt8 && w.key.kind <= kindUint64
	for {
		ok := true
		dst = append(dst[:start], map[bool]byte{true: '{', false: '['}[object])
		for i := range n {
			if i > 0 {
				dst = append(dst, ',')
			}
			if !object {
				dst = append(dst, '[')
			}
			at := len(dst)
			var err error
			if dst, src, err = v.append(dst, src, w.key); err != nil {
				return nil, nil, err
			}
			switch {
			case !object:
				dst = append(dst, ',')
			case dst[at] == '{':
				ok = false
			case dst[at] == '"':
				dst = append(dst, ':')
			default:
				name := string(dst[at:])
				dst = append(append(append(dst[:at], '"'), name...), `":`...)
			}
			if !ok {
				break
			}
			if dst, src, err = v.append(dst, src, w.elem); err != nil {
				return nil, nil, err
			}
			if !object {
				dst = append(dst, ']')
			}
		}
		if ok {
			break
		}
		object, src, v.left = false, from, left
	}
	return append(dst, map[bool]byte{true: '}', false: ']'}[object]), src, nil
}

func appendBase64(dst, raw []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(append(dst, '"'), raw), '"')
}

func appendHex(dst, raw []byte) []byte { return append(hex.AppendEncode(append(dst, '"'), raw), '"') }

// appendJSONFloat writes the shortest text that reads back as the same float of that size.
func appendJSONFloat(dst []byte, f float64, bits int) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(strconv.AppendFloat(append(dst, '"'), f, 'g', -1, bits), '"')
	}
	form := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		form = 'e'
	}
	return strconv.AppendFloat(dst, f, form, -1, bits)
}

// appendJSONBytes writes a string, which need not be UTF-8.
func appendJSONBytes(dst, s []byte) []byte {
	if utf8.Valid(s) {
		return appendJSONString(dst, view(s))
	}
	return append(appendBase64(append(dst, `{"bytes":`...), s), '}')
}

// appendJSONString writes a JSON string; what is not UTF-8 is replaced.
func appendJSONString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		b := s[i]
		if b >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(append(dst, s[from:i]...), "\ufffd"...)
				from = i + 1
			}
			i += n
			continue
		}
		if b >= ' ' && b != '"' && b != '\\' {
			i++
			continue
		}
		dst = append(dst, s[from:i]...)
		switch b {
		case '"', '\\':
			dst = append(dst, '\\', b)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		default:
			dst = fmt.Appendf(dst, `\u%04x`, b)
		}
		i++
		from = i
	}
	return append(append(dst, s[from:]...), '"')
}

// A keyType is the form of encoded keys, as KeyCodec.Schema says it:
//
//	string bool int8..int64 uint8..uint64 float32 float64  [n]T  struct{Name T;...}
//
// [n]uint8 is n bytes as they are, and [0]T is [0]void.
type keyType struct {
	kind   keyKind // keyNone: fields or elem
	n      int     // of an array, and of keyRaw
	elem   *keyType
	fields []keyField // of a struct, if elem is nil
}

type keyField struct {
	name string
	typ  *keyType
}

var keyKinds = map[string]keyKind{"string": keyString, "bool": keyBool, "int8": keyInt8, "int16": keyInt16, "int32": keyInt32,
	"int64": keyInt64, "uint8": keyUint8, "uint16": keyUint16, "uint32": keyUint32, "uint64": keyUint64,
	"float32": keyFloat32, "float64": keyFloat64}

var keyBits = map[keyKind]int{keyInt8: 8, keyInt16: 16, keyInt32: 32, keyInt64: 64, keyUint8: 8, keyUint16: 16, keyUint32: 32,
	keyUint64: 64, keyFloat32: 32, keyFloat64: 64}

func parseKeyType(s string) (*keyType, error) {
	p := schemaParser{rest: s}
	t := p.keyType(0)
	if t == nil || p.rest != "" {
		return nil, fmt.Errorf("key schema %q: cannot be read at byte %d; it may be of a KeyCodec of the program's own, or of a newer version", s, len(s)-len(p.rest))
	}
	return t, nil
}

// keyType returns nil where the text is no schema.
func (p *schemaParser) keyType(depth int) *keyType {
	switch {
	case depth > maxSchemaDepth:
		return nil
	case p.eat("["):
		n, err := strconv.Atoi(p.word("]"))
		if err != nil || n < 0 || n > math.MaxInt32 || !p.eat("]") {
			return nil
		}
		if n == 0 && p.eat("void") {
			return &keyType{elem: &keyType{}}
		}
		elem := p.keyType(depth + 1)
		switch {
		case elem == nil:
			return nil
		case elem.kind == keyUint8:
			return &keyType{kind: keyRaw, n: n}
		case n > maxKeyOps: // more than a KeyCodec takes
			return nil
		}
		return &keyType{n: n, elem: elem}
	case p.eat("struct{"):
		t := &keyType{}
		for !p.eat("}") {
			if len(t.fields) > 0 && !p.eat(";") {
				return nil
			}
			name := p.word(" ")
			if name == "" || !p.eat(" ") {
				return nil
			}
			f := p.keyType(depth + 1)
			if f == nil {
				return nil
			}
			t.fields = append(t.fields, keyField{name, f})
		}
		return t
	}
	kind, ok := keyKinds[p.word(";}")]
	if !ok {
		return nil
	}
	return &keyType{kind: kind}
}

// append writes the key at the start of src as JSON.
func (t *keyType) append(dst, src []byte) ([]byte, []byte, error) {
	if t.kind == keyNone {
		return t.appendParts(dst, src)
	}
	if t.kind == keyString {
		s, rest, err := decodeKeyString(src)
		if err != nil {
			return nil, nil, err
		}
		return appendJSONBytes(dst, []byte(s)), rest, nil
	}
	n := keyBits[t.kind] / 8
	switch t.kind {
	case keyBool:
		n = 1
	case keyRaw:
		n = t.n
	}
	if len(src) < n {
		return nil, nil, errKeyShort
	}
	raw, rest := src[:n], src[n:]
	if t.kind == keyRaw {
		return appendHex(dst, raw), rest, nil
	}
	u := uint64(0)
	for _, b := range raw {
		u = u<<8 | uint64(b)
	}
	switch t.kind {
	case keyBool:
		if u > 1 {
			return nil, nil, fmt.Errorf("decode key: %#x is no bool", u)
		}
		return strconv.AppendBool(dst, u == 1), rest, nil
	case keyInt8, keyInt16, keyInt32, keyInt64:
		// The sign bit is flipped.
		shift := 64 - 8*n
		return strconv.AppendInt(dst, int64((u^1<<(8*n-1))<<shift)>>shift, 10), rest, nil
	case keyFloat32:
		return appendJSONFloat(dst, float64(unorderFloat32(uint32(u))), 32), rest, nil
	case keyFloat64:
		return appendJSONFloat(dst, unorderFloat64(u), 64), rest, nil
	}
	return strconv.AppendUint(dst, u, 10), rest, nil
}

func (t *keyType) appendParts(dst, src []byte) ([]byte, []byte, error) {
	var err error
	if t.elem != nil {
		dst = append(dst, '[')
		for i := range t.n {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, src, err = t.elem.append(dst, src); err != nil {
				return nil, nil, err
			}
		}
		return append(dst, ']'), src, nil
	}
	dst = append(dst, '{')
	for i, f := range t.fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, src, err = f.typ.append(append(appendJSONString(dst, f.name), ':'), src); err != nil {
			return nil, nil, err
		}
	}
	return append(dst, '}'), src, nil
}

// KeyText encodes the text of a key of this store as its KeyCodec would: a string as it is, numbers and booleans as
// their text, an array of bytes as hexadecimal digits, structs and other arrays as the JSON that Inspector.Append writes.
func (s Spec) KeyText(text string) ([]byte, error) {
	key, _, _ := strings.Cut(s.KeyType, mapKeySep)
	return encodeKeyText(key, text)
}

// MapKeyText is KeyText for the key within a map.
func (s Spec) MapKeyText(text string) ([]byte, error) {
	_, key, ok := strings.Cut(s.KeyType, mapKeySep)
	if s.Kind != KindMap || !ok {
		return nil, fmt.Errorf("state store %q is no map", s.Name)
	}
	return encodeKeyText(key, text)
}

func encodeKeyText(schema, text string) ([]byte, error) {
	t, err := parseKeyType(schema)
	if err != nil {
		return nil, err
	}
	var b []byte
	if t.kind != keyNone {
		b, err = t.encodeText(nil, text)
	} else {
		var v any
		dec := json.NewDecoder(strings.NewReader(text))
		dec.UseNumber()
		if err = dec.Decode(&v); err != nil {
			err = fmt.Errorf("it is no JSON: %w", err)
		} else if dec.More() {
			err = errors.New("there is more than one JSON value")
		} else {
			b, err = t.encodeJSON(nil, v, "")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("encode key %q as %s: %w", text, schema, err)
	}
	return b, nil
}

func (t *keyType) encodeText(dst []byte, text string) ([]byte, error) {
	bits := keyBits[t.kind]
	switch t.kind {
	case keyString:
		return appendKeyString(dst, text), nil
	case keyRaw:
		raw, err := hex.DecodeString(strings.ReplaceAll(text, "-", "")) // as UUIDs are written
		if err != nil || len(raw) != t.n {
			return nil, fmt.Errorf("wanted are %d hexadecimal digits", 2*t.n)
		}
		return append(dst, raw...), nil
	case keyBool:
		switch text {
		case "false":
			return append(dst, 0), nil
		case "true":
			return append(dst, 1), nil
		}
		return nil, errors.New("wanted is true or false")
	case keyFloat32, keyFloat64:
		f, err := strconv.ParseFloat(text, bits)
		if err != nil {
			return nil, fmt.Errorf("wanted is a number of %d bits", bits)
		}
		if bits == 32 {
			return binary.BigEndian.AppendUint32(dst, orderFloat32(float32(f))), nil
		}
		return binary.BigEndian.AppendUint64(dst, orderFloat64(f)), nil
	case keyInt8, keyInt16, keyInt32, keyInt64:
		n, err := strconv.ParseInt(text, 10, bits)
		if err != nil {
			return nil, fmt.Errorf("wanted is an integer of %d bits with sign", bits)
		}
		return appendUintBits(dst, uint64(n)^1<<(bits-1), bits), nil
	}
	n, err := strconv.ParseUint(text, 10, bits)
	if err != nil {
		return nil, fmt.Errorf("wanted is an integer of %d bits without sign", bits)
	}
	return appendUintBits(dst, n, bits), nil
}

// appendUintBits writes the lowest bits of n, a multiple of 8, big endian.
func appendUintBits(dst []byte, n uint64, bits int) []byte {
	for bits > 0 {
		bits -= 8
		dst = append(dst, byte(n>>bits))
	}
	return dst
}

func (t *keyType) encodeJSON(dst []byte, v any, path string) ([]byte, error) {
	var err error
	wrong := func(what string) ([]byte, error) {
		return nil, fmt.Errorf("%s: wanted is %s", strings.TrimPrefix("key"+path, "."), what)
	}
	switch {
	case t.elem != nil:
		list, ok := v.([]any)
		if !ok || len(list) != t.n {
			return wrong(fmt.Sprintf("a list of %d", t.n))
		}
		for i, e := range list {
			if dst, err = t.elem.encodeJSON(dst, e, fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return nil, err
			}
		}
		return dst, nil
	case t.kind == keyNone:
		m, ok := v.(map[string]any)
		if !ok || len(m) != len(t.fields) {
			return wrong("an object with the fields " + t.fieldNames())
		}
		for _, f := range t.fields {
			e, ok := m[f.name]
			if !ok {
				return wrong("an object with the fields " + t.fieldNames())
			}
			if dst, err = f.typ.encodeJSON(dst, e, path+"."+f.name); err != nil {
				return nil, err
			}
		}
		return dst, nil
	}
	switch v := v.(type) {
	case string:
		if t.kind == keyString || t.kind == keyRaw || keyBits[t.kind] > 0 && t.kind >= keyFloat32 {
			dst, err = t.encodeText(dst, v)
			break
		}
		return wrong("a number or boolean")
	case json.Number:
		if t.kind == keyString || t.kind == keyRaw || t.kind == keyBool {
			return wrong("a string or boolean")
		}
		dst, err = t.encodeText(dst, v.String())
	case bool:
		if t.kind != keyBool {
			return wrong("no boolean")
		}
		dst, err = t.encodeText(dst, strconv.FormatBool(v))
	case map[string]any: // a string that is not UTF-8
		text, _ := v["bytes"].(string)
		raw, derr := base64.StdEncoding.DecodeString(text)
		if t.kind != keyString || len(v) != 1 || derr != nil {
			return wrong("a plain value")
		}
		return appendKeyString(dst, string(raw)), nil
	default:
		return wrong("a plain value")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", "key"+path, err)
	}
	return dst, nil
}

func (t *keyType) fieldNames() string {
	var names []string
	for _, f := range t.fields {
		names = append(names, f.name)
	}
	return strings.Join(names, ", ")
}
