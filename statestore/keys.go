package statestore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"unsafe"
)

// KeyCodec turns keys into bytes and back. The bytes sort as the values do, and no encoded key is a prefix of another,
// so that keys can be put behind one another.
type KeyCodec[K comparable] interface {
	// Append appends the encoded key to dst.
	Append(dst []byte, k K) []byte
	// Decode reads one key from the start of src and returns what is behind it. The key keeps no reference to src.
	Decode(src []byte) (k K, rest []byte, err error)
	// Schema describes the key type, for Spec.KeyType.
	Schema() string
}

// KeyCodecOf makes the codec of K: strings, integers, bool, floats, and arrays and structs of those, named types
// included. Integers keep their size (int and uint take 8 bytes). -0 equals +0, and all NaN are one key that sorts
// last. The error names the field that cannot be part of a key.
func KeyCodecOf[K comparable]() (KeyCodec[K], error) {
	t := reflect.TypeFor[K]()
	c := &keyCodec[K]{}
	var schema strings.Builder
	if err := compileKey(t, 0, t.String(), &c.ops, &schema); err != nil {
		return nil, err
	}
	c.schema = schema.String()
	return c, nil
}

type keyCodec[K comparable] struct {
	ops    []keyOp
	schema string
}

func (c *keyCodec[K]) Append(dst []byte, k K) []byte {
	return appendKey(dst, c.ops, unsafe.Pointer(&k))
}

func (c *keyCodec[K]) Decode(src []byte) (k K, rest []byte, err error) {
	rest, err = decodeKey(src, c.ops, unsafe.Pointer(&k))
	return k, rest, err
}

func (c *keyCodec[K]) Schema() string { return c.schema }

// fastKind is the kind of a key that is one plain string or integer, which appendFast writes without a call through
// the KeyCodec interface; otherwise keyNone.
func (c *keyCodec[K]) fastKind() keyKind {
	if len(c.ops) == 1 && c.ops[0].off == 0 {
		switch k := c.ops[0].kind; k {
		case keyString, keyInt64, keyUint64, keyInt32, keyUint32:
			return k
		}
	}
	return keyNone
}

type keyKind uint8

const (
	keyNone keyKind = iota
	keyString
	keyBool
	keyInt8
	keyInt16
	keyInt32
	keyInt64
	keyUint8
	keyUint16
	keyUint32
	keyUint64
	keyFloat32
	keyFloat64
	keyRaw // [n]byte
)

// A keyOp is one step of a compiled key: the field at an offset.
type keyOp struct {
	kind keyKind
	off  uintptr
	n    int // keyRaw: number of bytes
}

// maxKeyOps bounds what an array in a key may unroll to.
const maxKeyOps = 1024

func compileKey(t reflect.Type, off uintptr, path string, ops *[]keyOp, schema *strings.Builder) error {
	var kind keyKind
	var name string
	switch t.Kind() {
	case reflect.String:
		kind, name = keyString, "string"
	case reflect.Bool:
		kind, name = keyBool, "bool"
	case reflect.Int8:
		kind, name = keyInt8, "int8"
	case reflect.Int16:
		kind, name = keyInt16, "int16"
	case reflect.Int32:
		kind, name = keyInt32, "int32"
	case reflect.Int64, reflect.Int:
		kind, name = keyInt64, "int64"
	case reflect.Uint8:
		kind, name = keyUint8, "uint8"
	case reflect.Uint16:
		kind, name = keyUint16, "uint16"
	case reflect.Uint32:
		kind, name = keyUint32, "uint32"
	case reflect.Uint64, reflect.Uint:
		kind, name = keyUint64, "uint64"
	case reflect.Float32:
		kind, name = keyFloat32, "float32"
	case reflect.Float64:
		kind, name = keyFloat64, "float64"
	case reflect.Array:
		schema.WriteString("[" + strconv.Itoa(t.Len()) + "]")
		if t.Elem().Kind() == reflect.Uint8 {
			schema.WriteString("uint8")
			*ops = append(*ops, keyOp{keyRaw, off, t.Len()})
			return nil
		}
		if t.Len() == 0 {
			schema.WriteString("void")
			return nil
		}
		for i := range t.Len() {
			elem := schema
			if i > 0 {
				elem = &strings.Builder{} // the schema names the element type once
			}
			if err := compileKey(t.Elem(), off+uintptr(i)*t.Elem().Size(), path+"[i]", ops, elem); err != nil {
				return err
			}
			if len(*ops) > maxKeyOps {
				return fmt.Errorf("key type %s: more than %d fields and array elements; use a string or [n]byte", path, maxKeyOps)
			}
		}
		return nil
	case reflect.Struct:
		if t == timeType {
			return fmt.Errorf("key type %s: time.Time does not work as a key (its == compares time zones); use its UnixMilli", path)
		}
		schema.WriteString("struct{")
		for i := range t.NumField() {
			f := t.Field(i)
			if i > 0 {
				schema.WriteByte(';')
			}
			schema.WriteString(f.Name + " ")
			if err := compileKey(f.Type, off+f.Offset, path+"."+f.Name, ops, schema); err != nil {
				return err
			}
		}
		schema.WriteByte('}')
		return nil
	default:
		return fmt.Errorf("key type %s: %s cannot be part of a key; use strings, integers, bool, floats, and arrays or structs of those", path, t)
	}
	schema.WriteString(name)
	*ops = append(*ops, keyOp{kind: kind, off: off})
	return nil
}

func appendKey(dst []byte, ops []keyOp, p unsafe.Pointer) []byte {
	for i := range ops {
		o := &ops[i]
		q := unsafe.Add(p, o.off)
		switch o.kind {
		case keyString:
			dst = appendKeyString(dst, *(*string)(q))
		case keyBool:
			b := byte(0)
			if *(*bool)(q) {
				b = 1
			}
			dst = append(dst, b)
		case keyInt8:
			dst = append(dst, byte(*(*int8)(q))^0x80)
		case keyInt16:
			dst = binary.BigEndian.AppendUint16(dst, uint16(*(*int16)(q))^1<<15)
		case keyInt32:
			dst = binary.BigEndian.AppendUint32(dst, uint32(*(*int32)(q))^1<<31)
		case keyInt64:
			dst = appendKeyInt64(dst, *(*int64)(q))
		case keyUint8:
			dst = append(dst, *(*byte)(q))
		case keyUint16:
			dst = binary.BigEndian.AppendUint16(dst, *(*uint16)(q))
		case keyUint32:
			dst = binary.BigEndian.AppendUint32(dst, *(*uint32)(q))
		case keyUint64:
			dst = binary.BigEndian.AppendUint64(dst, *(*uint64)(q))
		case keyFloat32:
			dst = binary.BigEndian.AppendUint32(dst, orderFloat32(*(*float32)(q)))
		case keyFloat64:
			dst = binary.BigEndian.AppendUint64(dst, orderFloat64(*(*float64)(q)))
		case keyRaw:
			dst = append(dst, unsafe.Slice((*byte)(q), o.n)...)
		}
	}
	return dst
}

var errKeyShort = errors.New("decode key: the bytes end too early")

func decodeKey(src []byte, ops []keyOp, p unsafe.Pointer) ([]byte, error) {
	for i := range ops {
		o := &ops[i]
		q := unsafe.Add(p, o.off)
		n := 0
		switch o.kind {
		case keyString:
			s, rest, err := decodeKeyString(src)
			if err != nil {
				return nil, err
			}
			*(*string)(q) = s
			src = rest
			continue
		case keyBool, keyInt8, keyUint8:
			n = 1
		case keyInt16, keyUint16:
			n = 2
		case keyInt32, keyUint32, keyFloat32:
			n = 4
		case keyInt64, keyUint64, keyFloat64:
			n = 8
		case keyRaw:
			n = o.n
		}
		if len(src) < n {
			return nil, errKeyShort
		}
		switch o.kind {
		case keyBool:
			if src[0] > 1 {
				return nil, fmt.Errorf("decode key: %#x is no bool", src[0])
			}
			*(*bool)(q) = src[0] == 1
		case keyInt8:
			*(*int8)(q) = int8(src[0] ^ 0x80)
		case keyUint8:
			*(*byte)(q) = src[0]
		case keyInt16:
			*(*int16)(q) = int16(binary.BigEndian.Uint16(src) ^ 1<<15)
		case keyUint16:
			*(*uint16)(q) = binary.BigEndian.Uint16(src)
		case keyInt32:
			*(*int32)(q) = int32(binary.BigEndian.Uint32(src) ^ 1<<31)
		case keyUint32:
			*(*uint32)(q) = binary.BigEndian.Uint32(src)
		case keyFloat32:
			*(*float32)(q) = unorderFloat32(binary.BigEndian.Uint32(src))
		case keyInt64:
			*(*int64)(q) = decodeKeyInt64(src)
		case keyUint64:
			*(*uint64)(q) = binary.BigEndian.Uint64(src)
		case keyFloat64:
			*(*float64)(q) = unorderFloat64(binary.BigEndian.Uint64(src))
		case keyRaw:
			copy(unsafe.Slice((*byte)(q), o.n), src)
		}
		src = src[n:]
	}
	return src, nil
}

// appendKeyString writes s with 0x00 as 0x00 0xff and ends it with 0x00 0x01: a prefix sorts first, and the end is
// found without a length in front.
func appendKeyString(dst []byte, s string) []byte {
	if !hasNUL(s) {
		dst = append(dst, s...)
		return append(dst, 0, 1)
	}
	for {
		i := strings.IndexByte(s, 0)
		if i < 0 {
			dst = append(dst, s...)
			return append(dst, 0, 1)
		}
		dst = append(dst, s[:i]...)
		dst = append(dst, 0, 0xff)
		s = s[i+1:]
	}
}

// hasNUL may say yes too often. Keys are short: looking at words is faster than a call of IndexByte.
func hasNUL(s string) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	b := unsafe.Slice(unsafe.StringData(s), len(s))
	if len(b) < 8 {
		for _, c := range b {
			if c == 0 {
				return true
			}
		}
		return false
	}
	w := binary.LittleEndian.Uint64(b[len(b)-8:])
	found := (w - ones) &^ w & highs
	for len(b) > 8 {
		w := binary.LittleEndian.Uint64(b)
		found |= (w - ones) &^ w & highs
		b = b[8:]
	}
	return found != 0
}

func decodeKeyString(src []byte) (string, []byte, error) {
	var buf []byte
	for {
		i := bytes.IndexByte(src, 0)
		if i < 0 || i+1 == len(src) {
			return "", nil, errKeyShort
		}
		switch src[i+1] {
		case 1:
			if buf == nil {
				return string(src[:i]), src[i+2:], nil
			}
			return string(append(buf, src[:i]...)), src[i+2:], nil
		case 0xff:
			buf = append(append(buf, src[:i]...), 0)
			src = src[i+2:]
		default:
			return "", nil, fmt.Errorf("decode key: 0x00 %#02x inside a string", src[i+1])
		}
	}
}

func appendKeyInt64(dst []byte, v int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(v)^1<<63)
}

func decodeKeyInt64(src []byte) int64 { return int64(binary.BigEndian.Uint64(src) ^ 1<<63) }

// Floats sort as integers once the sign bit is flipped for positive numbers and all bits for negative ones.
func orderFloat64(f float64) uint64 {
	switch {
	case f == 0:
		return 1 << 63
	case math.IsNaN(f):
		return math.MaxUint64
	}
	b := math.Float64bits(f)
	if b>>63 == 1 {
		return ^b
	}
	return b | 1<<63
}

func unorderFloat64(b uint64) float64 {
	switch {
	case b == math.MaxUint64:
		return math.NaN()
	case b>>63 == 1:
		return math.Float64frombits(b &^ (1 << 63))
	}
	return math.Float64frombits(^b)
}

func orderFloat32(f float32) uint32 {
	switch {
	case f == 0:
		return 1 << 31
	case f != f:
		return math.MaxUint32
	}
	b := math.Float32bits(f)
	if b>>31 == 1 {
		return ^b
	}
	return b | 1<<31
}

func unorderFloat32(b uint32) float32 {
	switch {
	case b == math.MaxUint32:
		return float32(math.NaN())
	case b>>31 == 1:
		return math.Float32frombits(b &^ (1 << 31))
	}
	return math.Float32frombits(^b)
}

// keyWriter writes user keys; plain strings and integers go around the interface call.
type keyWriter[K comparable] struct {
	kc   KeyCodec[K]
	fast keyKind
}

func newKeyWriter[K comparable](kc KeyCodec[K]) keyWriter[K] {
	w := keyWriter[K]{kc: kc}
	if c, ok := kc.(*keyCodec[K]); ok {
		w.fast = c.fastKind()
	}
	return w
}

func (w *keyWriter[K]) append(dst []byte, k K) []byte {
	switch w.fast {
	case keyString:
		return appendKeyString(dst, *(*string)(unsafe.Pointer(&k)))
	case keyInt64:
		return appendKeyInt64(dst, *(*int64)(unsafe.Pointer(&k)))
	case keyUint64:
		return binary.BigEndian.AppendUint64(dst, *(*uint64)(unsafe.Pointer(&k)))
	case keyInt32:
		return binary.BigEndian.AppendUint32(dst, uint32(*(*int32)(unsafe.Pointer(&k)))^1<<31)
	case keyUint32:
		return binary.BigEndian.AppendUint32(dst, *(*uint32)(unsafe.Pointer(&k)))
	}
	return w.kc.Append(dst, k)
}

// StoreID is the id of the store of that name: a hash (FNV-1a) that never changes and is never 0, so that adding an
// operator never renames the state of another. Two names of one topology may collide; the topology is refused then.
func StoreID(name string) ID {
	h := uint32(2166136261)
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	if h == 0 {
		return 1
	}
	return ID(h)
}

// MetaKey is the key under which a Store may keep its Meta. No typed store writes it.
func MetaKey() []byte { return []byte{0, 0, 0, 0, 0} }

// schemaKey is the key of the descriptor of one schema version of a store; its value is the schema.
func schemaKey(id ID, version uint64) []byte {
	k := append(appendID(nil, 0), 1)
	return binary.BigEndian.AppendUint64(appendID(k, id), version)
}

// schemaRange holds all schema descriptors.
func schemaRange() (lo, hi []byte) { return []byte{0, 0, 0, 0, 1}, []byte{0, 0, 0, 0, 2} }

// WindowRange is the range of keys of all windows with an end <= end of a store of a Windowed kind: what restore
// deletes for a horizon of the epoch record.
func WindowRange(id ID, end int64) (lo, hi []byte) {
	lo = appendID(nil, id)
	if end == math.MaxInt64 {
		return lo, successor(lo)
	}
	return lo, appendKeyInt64(appendID(nil, id), end+1)
}

func appendID(dst []byte, id ID) []byte { return binary.BigEndian.AppendUint32(dst, uint32(id)) }

// successor is the lowest key behind all keys that start with prefix; nil if there is none.
func successor(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			s := bytes.Clone(prefix[:i+1])
			s[i]++
			return s
		}
	}
	return nil
}
