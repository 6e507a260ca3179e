package statestore

import (
	"encoding"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
	"unsafe"
)

// Codec turns values into bytes and back.
type Codec[V any] interface {
	// Append appends the encoded value to dst. Equal values give equal bytes.
	Append(dst []byte, v *V) []byte
	// Decode sets *v from src, which holds exactly one value. It copies what it keeps of src.
	Decode(src []byte, v *V) error
	// Flat reports that copying a V copies all of it: it has no pointers, or only such to what is never changed
	// (strings, or what the codec's owner promises not to write to). Undo copies flat values; others are encoded
	// at each write and decoded again when a record fails.
	Flat() bool
	// Schema describes the encoding. Values written under another schema are read through Evolver.
	Schema() string
}

// Evolver is implemented by codecs that can read what an older form of the same value type wrote.
type Evolver[V any] interface {
	// Reads returns a codec whose Decode reads values of that schema into a V. The error says what does not fit.
	Reads(schema string) (Codec[V], error)
}

// Copier is implemented by codecs of values that are not flat but cheaper to copy than to encode. A Table undoes such
// values by copies, and encodes each once an epoch; other stores treat them as they treat all that are not flat. What Get
// or an iteration of the table returns must not be changed.
type Copier[V any] interface {
	// Copy makes *dst equal to *src so that nothing that may be changed is shared. It may use the room that dst has.
	Copy(dst, src *V)
	// Size is about how many bytes v takes behind its pointers.
	Size(v *V) int
	// Own lets go of what v shares with memory that is not its own, if it can: false means that v is to be decoded anew.
	Own(v *V) bool
}

// Owner is implemented by codecs of flat values that never share memory with anything that is written again: neither with
// fetched records nor with what else is handed to the State. They stay as they are when an epoch is sealed.
type Owner interface {
	Owned()
}

// CodecOf makes the codec of V by reflection, once: a plan of offsets that encoding and decoding walk. It takes
// booleans, numbers, strings, time.Time (the instant and its offset from UTC), slices, arrays, maps, pointers, structs
// with exported and unexported fields, and types with MarshalBinary and UnmarshalBinary; it refuses channels,
// functions, interfaces, locks and recursive types, and the error names the field.
//
// A struct field is known by its name, or by its tag `state:"name"`. So fields may be reordered, and renamed if the tag
// keeps the old name; an added field reads as zero from older values, a removed one is ignored. An integer or float
// may become wider; any other change of a field's type is refused when the old state is opened.
func CodecOf[V any]() (Codec[V], error) {
	t := reflect.TypeFor[V]()
	w, err := wireOf(t, t.String(), nil, nil)
	if err != nil {
		return nil, err
	}
	return codecFor[V](w, w.String(), nil)
}

func codecFor[V any](w *wireType, schema string, via ways) (*codec[V], error) {
	t := reflect.TypeFor[V]()
	c := &codec[V]{schema: schema, flat: true}
	if err := compile(w, t, 0, t.String(), via, &c.ops); err != nil {
		return nil, err
	}
	if c.flat = isFlat(t); c.flat {
		var at []int
		for i, o := range c.ops {
			if o.kind == kindString {
				at = append(at, i)
			}
		}
		if c.shares = len(at) > 1; c.shares {
			for _, i := range at {
				c.ops[i].n = sharedString
			}
		}
	}
	return c, nil
}

type codec[V any] struct {
	ops    []op
	schema string
	flat   bool
	shares bool // the strings of a decoded value lie in one piece of memory
}

// sharedString is op.n of strings that need not be copied.
const sharedString = 1

func (c *codec[V]) Append(dst []byte, v *V) []byte { return appendOps(dst, c.ops, unsafe.Pointer(v)) }

func (c *codec[V]) Decode(src []byte, v *V) error {
	var zero V
	*v = zero
	if c.shares {
		src = append(make([]byte, 0, len(src)), src...) // one allocation in place of one for each string
	}
	rest, err := decodeOps(src, c.ops, unsafe.Pointer(v))
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("decode value: %d bytes left behind it", len(rest))
	}
	return err
}

func (c *codec[V]) Flat() bool { return c.flat }

func (c *codec[V]) Schema() string { return c.schema }

func (c *codec[V]) Reads(schema string) (Codec[V], error) {
	w, err := parseSchema(schema)
	if err != nil {
		return nil, err
	}
	return codecFor[V](w, schema, nil)
}

type kind uint8

const (
	kindBool kind = iota + 1
	kindInt8
	kindInt16
	kindInt32
	kindInt64
	kindUint8
	kindUint16
	kindUint32
	kindUint64
	kindFloat32
	kindFloat64
	kindString
	kindTime
	kindFloat32To64 // only an op: a float32 that became a float64
	kindBytes
	kindSlice
	kindArray
	kindPointer
	kindMap
	kindStruct
	kindBinary
	kindSkip     // only an op: a field that is gone
	kindMigrated // only an op: a part that is read by migrations
)

var kindNames = map[kind]string{kindBool: "bool", kindInt8: "int8", kindInt16: "int16", kindInt32: "int32",
	kindInt64: "int64", kindUint8: "uint8", kindUint16: "uint16", kindUint32: "uint32", kindUint64: "uint64",
	kindFloat32: "float32", kindFloat64: "float64", kindString: "string", kindTime: "time", kindBytes: "bytes"}

var (
	timeType            = reflect.TypeFor[time.Time]()
	binaryMarshalerType = reflect.TypeFor[encoding.BinaryMarshaler]()
	binaryReaderType    = reflect.TypeFor[encoding.BinaryUnmarshaler]()
)

// A wireType is the form of encoded values, as a schema says it:
//
//	bool int8..int64 uint8..uint64 float32 float64 string bytes time
//	[]T  [n]T  *T  map[K]V  struct{name T;...}  binary(name)
//
// int is int64 and uint is uint64.
type wireType struct {
	kind   kind
	n      int    // array length
	name   string // of a binary
	elem   *wireType
	key    *wireType
	fields []wireField
}

type wireField struct {
	name string
	typ  *wireType
}

func (w *wireType) String() string {
	switch w.kind {
	case kindSlice:
		return "[]" + w.elem.String()
	case kindArray:
		return fmt.Sprintf("[%d]%s", w.n, w.elem)
	case kindPointer:
		return "*" + w.elem.String()
	case kindMap:
		return "map[" + w.key.String() + "]" + w.elem.String()
	case kindBinary:
		return "binary(" + w.name + ")"
	case kindStruct:
		var b strings.Builder
		b.WriteString("struct{")
		for i, f := range w.fields {
			if i > 0 {
				b.WriteByte(';')
			}
			b.WriteString(f.name + " " + f.typ.String())
		}
		return b.String() + "}"
	}
	return kindNames[w.kind]
}

// fieldName is the name of a struct field in schemas.
func fieldName(f reflect.StructField) string {
	if tag := f.Tag.Get("state"); tag != "" {
		return tag
	}
	return f.Name
}

func scalarKind(t reflect.Type) kind {
	switch t.Kind() {
	case reflect.Bool:
		return kindBool
	case reflect.Int8:
		return kindInt8
	case reflect.Int16:
		return kindInt16
	case reflect.Int32:
		return kindInt32
	case reflect.Int64, reflect.Int:
		return kindInt64
	case reflect.Uint8:
		return kindUint8
	case reflect.Uint16:
		return kindUint16
	case reflect.Uint32:
		return kindUint32
	case reflect.Uint64, reflect.Uint, reflect.Uintptr:
		return kindUint64
	case reflect.Float32:
		return kindFloat32
	case reflect.Float64:
		return kindFloat64
	case reflect.String:
		return kindString
	}
	return 0
}

func isBinary(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return t.Kind() != reflect.Pointer && p.Implements(binaryMarshalerType) && p.Implements(binaryReaderType)
}

// wireOf gives the form that values of t are written in, or were, with parts before their migrations.
func wireOf(t reflect.Type, path string, above []reflect.Type, via ways) (*wireType, error) {
	refuse := func(why string) (*wireType, error) {
		return nil, fmt.Errorf("state type %s: %s %s", path, t, why)
	}
	if t == timeType {
		return &wireType{kind: kindTime}, nil
	}
	if isBinary(t) {
		return &wireType{kind: kindBinary, name: t.String()}, nil
	}
	switch t.PkgPath() {
	case "sync", "sync/atomic", "unique":
		return refuse("cannot be kept in state; leave it out, or give a Codec")
	}
	if slices.Contains(above, t) {
		return refuse("contains itself; give a Codec, or keep ids instead of pointers")
	}
	above = append(slices.Clip(above), t)
	if k := scalarKind(t); k != 0 {
		return &wireType{kind: k}, nil
	}
	w := &wireType{}
	var err error
	switch t.Kind() {
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 && !isBinary(t.Elem()) {
			return &wireType{kind: kindBytes}, nil
		}
		w.kind = kindSlice
		w.elem, err = wireOf(t.Elem(), path+"[]", above, via)
	case reflect.Array:
		w.kind, w.n = kindArray, t.Len()
		w.elem, err = wireOf(t.Elem(), path+"[]", above, via)
	case reflect.Pointer:
		w.kind = kindPointer
		w.elem, err = wireOf(t.Elem(), path, above, via)
	case reflect.Map:
		w.kind = kindMap
		if w.key, err = wireOf(t.Key(), path+"[key]", above, via); err == nil {
			w.elem, err = wireOf(t.Elem(), path+"[]", above, via)
		}
	case reflect.Struct:
		w.kind = kindStruct
		seen := map[string]bool{}
		for i := range t.NumField() {
			f := t.Field(i)
			name := fieldName(f)
			if strings.ContainsAny(name, " ;{}[]()*\"") {
				return nil, fmt.Errorf("state type %s.%s: tag state:%q: use letters, digits, '_', '-' and '.'", path, f.Name, name)
			}
			if f.Name == "_" {
				continue
			}
			if seen[name] {
				return nil, fmt.Errorf("state type %s: two fields are called %s", path, name)
			}
			seen[name] = true
			ft, err := wireOf(via.older(f), path+"."+f.Name, above, via)
			if err != nil {
				return nil, err
			}
			w.fields = append(w.fields, wireField{name, ft})
		}
	default:
		return refuse("cannot be kept in state; leave it out, or give a Codec")
	}
	if err != nil {
		return nil, err
	}
	return w, nil
}

// parseSchema reads what wireType.String wrote.
func parseSchema(s string) (*wireType, error) {
	p := schemaParser{rest: s}
	w := p.typ(0)
	if w == nil || p.rest != "" {
		return nil, fmt.Errorf("schema %q: cannot be read at byte %d; it may be of a Codec of your own or of a newer version", s, len(s)-len(p.rest))
	}
	return w, nil
}

type schemaParser struct{ rest string }

func (p *schemaParser) eat(s string) (ok bool) {
	p.rest, ok = strings.CutPrefix(p.rest, s)
	return ok
}

func (p *schemaParser) word(stop string) string {
	i := strings.IndexAny(p.rest, stop)
	if i < 0 {
		i = len(p.rest)
	}
	w := p.rest[:i]
	p.rest = p.rest[i:]
	return w
}

// maxSchemaDepth bounds the recursion on a damaged schema.
const maxSchemaDepth = 100

// typ returns nil where the text is no schema.
func (p *schemaParser) typ(depth int) *wireType {
	if depth > maxSchemaDepth {
		return nil
	}
	w := &wireType{}
	switch {
	case p.eat("[]"):
		w.kind, w.elem = kindSlice, p.typ(depth+1)
	case p.eat("["):
		w.kind = kindArray
		if _, err := fmt.Sscanf(p.word("]"), "%d", &w.n); err != nil || w.n < 0 || !p.eat("]") {
			return nil
		}
		w.elem = p.typ(depth + 1)
	case p.eat("*"):
		w.kind, w.elem = kindPointer, p.typ(depth+1)
	case p.eat("map["):
		w.kind, w.key = kindMap, p.typ(depth+1)
		if w.key == nil || !p.eat("]") {
			return nil
		}
		w.elem = p.typ(depth + 1)
	case p.eat("binary("):
		w.kind, w.name = kindBinary, p.word(")")
		if !p.eat(")") {
			return nil
		}
		return w
	case p.eat("struct{"):
		w.kind = kindStruct
		for !p.eat("}") {
			if len(w.fields) > 0 && !p.eat(";") {
				return nil
			}
			name := p.word(" ")
			if name == "" || !p.eat(" ") {
				return nil
			}
			t := p.typ(depth + 1)
			if t == nil {
				return nil
			}
			w.fields = append(w.fields, wireField{name, t})
		}
		return w
	default:
		word := p.word(";]}")
		for k, name := range kindNames {
			if name == word {
				w.kind = k
				return w
			}
		}
		return nil
	}
	if w.elem == nil {
		return nil
	}
	return w
}

// An op is one step of a compiled value: how the next bytes and the field at an offset belong together. Structs are
// flattened into the ops of their fields.
type op struct {
	kind kind
	off  uintptr
	n    int          // kindArray: length
	size uintptr      // of an element
	typ  reflect.Type // kindSlice, kindPointer, kindMap, kindBinary
	elem []op
	key  []op
	skip *wireType
	via  *[]Migration // kindMigrated: from typ on
}

// compile appends the ops that read bytes of form w into a t at offset off, and that write them if w is wireOf(t).
func compile(w *wireType, t reflect.Type, off uintptr, path string, via ways, ops *[]op) error {
	mismatch := func() error {
		now := t.String()
		if nw, err := wireOf(t, path, nil, nil); err == nil {
			now = nw.String()
		}
		return fmt.Errorf("state type %s: stored as %s, and is now %s: give the new field another name, or start fresh", path, w, now)
	}
	var err error
	o := op{off: off, typ: t}
	switch {
	case t == timeType:
		if w.kind != kindTime {
			return mismatch()
		}
		o.kind = kindTime
	case isBinary(t):
		if w.kind != kindBinary || w.name != t.String() {
			return mismatch()
		}
		o.kind = kindBinary
	case scalarKind(t) != 0:
		o.kind = scalarKind(t)
		wider := w.kind <= o.kind && (w.kind >= kindInt8 && o.kind <= kindInt64 || w.kind >= kindUint8 && o.kind <= kindUint64)
		switch {
		case w.kind == o.kind || wider:
		case w.kind == kindFloat32 && o.kind == kindFloat64:
			o.kind = kindFloat32To64
		default:
			return mismatch()
		}
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 && !isBinary(t.Elem()):
		if w.kind != kindBytes {
			return mismatch()
		}
		o.kind = kindBytes
	case t.Kind() == reflect.Struct:
		if w.kind != kindStruct {
			return mismatch()
		}
		for _, wf := range w.fields {
			i := -1
			for j := range t.NumField() {
				if f := t.Field(j); f.Name != "_" && fieldName(f) == wf.name {
					i = j
				}
			}
			if i < 0 {
				*ops = append(*ops, op{kind: kindSkip, skip: wf.typ})
				continue
			}
			f := t.Field(i)
			at := path + "." + f.Name
			if steps := via[f.Tag.Get(partTag)]; steps != nil {
				err = compilePart(wf.typ, f.Type, off+f.Offset, at, steps, ops)
			} else {
				err = compile(wf.typ, f.Type, off+f.Offset, at, via, ops)
			}
			if err != nil {
				return err
			}
		}
		return nil
	case t.Kind() == reflect.Slice && w.kind == kindSlice, t.Kind() == reflect.Pointer && w.kind == kindPointer,
		t.Kind() == reflect.Map && w.kind == kindMap, t.Kind() == reflect.Array && w.kind == kindArray && t.Len() == w.n:
		o.kind, o.size = w.kind, t.Elem().Size()
		if o.kind == kindArray {
			o.n = t.Len()
		}
		if o.kind == kindMap {
			if err := compile(w.key, t.Key(), 0, path+"[key]", via, &o.key); err != nil {
				return err
			}
		}
		err = compile(w.elem, t.Elem(), 0, path+"[]", via, &o.elem)
	default:
		return mismatch()
	}
	*ops = append(*ops, o)
	return err
}

// isFlat reports that copying a t copies all of it. Strings and the time zone of a time are never written to.
func isFlat(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Slice, reflect.Map, reflect.Pointer:
		return false
	case reflect.Array:
		return isFlat(t.Elem())
	case reflect.Struct:
		if t == timeType {
			return true
		}
		for i := range t.NumField() {
			if !isFlat(t.Field(i).Type) {
				return false
			}
		}
	}
	return scalarKind(t) != 0 || t.Kind() == reflect.Array || t.Kind() == reflect.Struct
}

// hasPointers reports whether a t holds anything the garbage collector follows.
// HasPointers says whether a V has parts that lie elsewhere; strings are such.
func HasPointers[V any]() bool { return hasPointers(reflect.TypeFor[V]()) }

func hasPointers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return t.Len() > 0 && hasPointers(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if hasPointers(t.Field(i).Type) {
				return true
			}
		}
		return false
	case reflect.String:
		return true
	}
	return scalarKind(t) == 0
}

type sliceHeader struct {
	data     unsafe.Pointer
	len, cap int
}

func appendOps(dst []byte, ops []op, p unsafe.Pointer) []byte {
	for i := range ops {
		o := &ops[i]
		q := unsafe.Add(p, o.off)
		switch o.kind {
		case kindBool:
			b := byte(0)
			if *(*bool)(q) {
				b = 1
			}
			dst = append(dst, b)
		case kindInt8:
			dst = binary.AppendVarint(dst, int64(*(*int8)(q)))
		case kindInt16:
			dst = binary.AppendVarint(dst, int64(*(*int16)(q)))
		case kindInt32:
			dst = binary.AppendVarint(dst, int64(*(*int32)(q)))
		case kindInt64:
			dst = binary.AppendVarint(dst, *(*int64)(q))
		case kindUint8:
			dst = binary.AppendUvarint(dst, uint64(*(*uint8)(q)))
		case kindUint16:
			dst = binary.AppendUvarint(dst, uint64(*(*uint16)(q)))
		case kindUint32:
			dst = binary.AppendUvarint(dst, uint64(*(*uint32)(q)))
		case kindUint64:
			dst = binary.AppendUvarint(dst, *(*uint64)(q))
		case kindFloat32:
			dst = binary.LittleEndian.AppendUint32(dst, *(*uint32)(q))
		case kindFloat64:
			dst = binary.LittleEndian.AppendUint64(dst, *(*uint64)(q))
		case kindString:
			s := *(*string)(q)
			dst = append(binary.AppendUvarint(dst, uint64(len(s))), s...)
		case kindTime:
			dst = appendTime(dst, *(*time.Time)(q))
		case kindBytes:
			b := *(*[]byte)(q)
			if b == nil {
				dst = append(dst, 0)
				continue
			}
			dst = append(binary.AppendUvarint(dst, uint64(len(b))+1), b...)
		case kindSlice:
			h := (*sliceHeader)(q)
			if h.data == nil {
				dst = append(dst, 0)
				continue
			}
			dst = binary.AppendUvarint(dst, uint64(h.len)+1)
			for j := range h.len {
				dst = appendOps(dst, o.elem, unsafe.Add(h.data, uintptr(j)*o.size))
			}
		case kindArray:
			for j := range o.n {
				dst = appendOps(dst, o.elem, unsafe.Add(q, uintptr(j)*o.size))
			}
		case kindPointer:
			to := *(*unsafe.Pointer)(q)
			if to == nil {
				dst = append(dst, 0)
				continue
			}
			dst = appendOps(append(dst, 1), o.elem, to)
		case kindMap:
			dst = appendMap(dst, o, q)
		case kindBinary:
			dst = appendBinary(dst, o, q)
		}
	}
	return dst
}

// appendTime writes the instant, and the offset from UTC so that the time prints the same after a restart.
func appendTime(dst []byte, t time.Time) []byte {
	dst = binary.AppendVarint(dst, t.Unix())
	dst = binary.AppendUvarint(dst, uint64(t.Nanosecond()))
	if t.Location() == time.UTC {
		return append(dst, 0)
	}
	_, off := t.Zone()
	return binary.AppendUvarint(dst, 1+uint64(int64(off)<<1^int64(off)>>63))
}

// appendMap writes the entries in the order of their encoded keys: equal maps give equal bytes.
func appendMap(dst []byte, o *op, q unsafe.Pointer) []byte {
	m := reflect.NewAt(o.typ, q).Elem()
	if m.IsNil() {
		return append(dst, 0)
	}
	dst = binary.AppendUvarint(dst, uint64(m.Len())+1)
	start := len(dst)
	var spans [][2]int
	k, v := reflect.New(o.typ.Key()), reflect.New(o.typ.Elem())
	for it := m.MapRange(); it.Next(); {
		k.Elem().SetIterKey(it)
		v.Elem().SetIterValue(it)
		from := len(dst)
		dst = appendOps(dst, o.key, k.UnsafePointer())
		dst = appendOps(dst, o.elem, v.UnsafePointer())
		spans = append(spans, [2]int{from, len(dst)})
	}
	if len(spans) < 2 {
		return dst
	}
	body := slices.Clone(dst[start:])
	// Encoded keys are self-delimiting and different, so that comparing entries is comparing keys.
	slices.SortFunc(spans, func(a, b [2]int) int {
		return strings.Compare(view(body[a[0]-start:a[1]-start]), view(body[b[0]-start:b[1]-start]))
	})
	dst = dst[:start]
	for _, s := range spans {
		dst = append(dst, body[s[0]-start:s[1]-start]...)
	}
	return dst
}

func appendBinary(dst []byte, o *op, q unsafe.Pointer) []byte {
	b, err := reflect.NewAt(o.typ, q).Interface().(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		panic(&Fault{fmt.Errorf("encode state: MarshalBinary of %s: %w", o.typ, err)})
	}
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

var (
	errShort    = errors.New("decode value: the bytes end too early")
	errRange    = errors.New("decode value: a number is out of the range of its field")
	errTooLarge = errors.New("decode value: a length is larger than what follows")
)

func readUvarint(src []byte) (uint64, []byte, error) {
	if len(src) > 0 && src[0] < 0x80 {
		return uint64(src[0]), src[1:], nil
	}
	v, n := binary.Uvarint(src)
	if n <= 0 {
		return 0, nil, errShort
	}
	return v, src[n:], nil
}

func readVarint(src []byte) (int64, []byte, error) {
	u, rest, err := readUvarint(src)
	return int64(u>>1) ^ -int64(u&1), rest, err
}

// readLen reads a length and returns that many bytes.
func readLen(src []byte, less uint64) (n uint64, rest []byte, err error) {
	n, rest, err = readUvarint(src)
	if err != nil {
		return 0, nil, err
	}
	if n -= less; n > uint64(len(rest)) {
		return 0, nil, errTooLarge
	}
	return n, rest, nil
}

func decodeOps(src []byte, ops []op, p unsafe.Pointer) ([]byte, error) {
	for i := range ops {
		o := &ops[i]
		q := unsafe.Add(p, o.off)
		var err error
		switch o.kind {
		case kindInt64:
			if *(*int64)(q), src, err = readVarint(src); err != nil {
				return nil, err
			}
		case kindInt8, kindInt16, kindInt32:
			var v int64
			if v, src, err = readVarint(src); err != nil {
				return nil, err
			}
			if !setInt(q, o.kind, v) {
				return nil, errRange
			}
		case kindUint64:
			if *(*uint64)(q), src, err = readUvarint(src); err != nil {
				return nil, err
			}
		case kindUint8, kindUint16, kindUint32:
			var v uint64
			if v, src, err = readUvarint(src); err != nil {
				return nil, err
			}
			if !setUint(q, o.kind, v) {
				return nil, errRange
			}
		case kindBool:
			if len(src) < 1 {
				return nil, errShort
			}
			if src[0] > 1 {
				return nil, errRange
			}
			*(*bool)(q) = src[0] == 1
			src = src[1:]
		case kindFloat32, kindFloat32To64:
			if len(src) < 4 {
				return nil, errShort
			}
			if o.kind == kindFloat32 {
				*(*uint32)(q) = binary.LittleEndian.Uint32(src)
			} else {
				*(*float64)(q) = float64(math.Float32frombits(binary.LittleEndian.Uint32(src)))
			}
			src = src[4:]
		case kindFloat64:
			if len(src) < 8 {
				return nil, errShort
			}
			*(*uint64)(q) = binary.LittleEndian.Uint64(src)
			src = src[8:]
		case kindString:
			n, rest, err := readLen(src, 0)
			if err != nil {
				return nil, err
			}
			if o.n == sharedString {
				*(*string)(q) = unsafe.String(unsafe.SliceData(rest), n)
			} else {
				*(*string)(q) = string(rest[:n])
			}
			src = rest[n:]
		case kindTime:
			if *(*time.Time)(q), src, err = decodeTime(src); err != nil {
				return nil, err
			}
		case kindSkip:
			if src, err = skip(src, o.skip); err != nil {
				return nil, err
			}
		case kindArray:
			for j := range o.n {
				if src, err = decodeOps(src, o.elem, unsafe.Add(q, uintptr(j)*o.size)); err != nil {
					return nil, err
				}
			}
		default:
			if src, err = decodeRef(src, o, q); err != nil {
				return nil, err
			}
		}
	}
	return src, nil
}

func setInt(q unsafe.Pointer, k kind, v int64) bool {
	switch k {
	case kindInt8:
		*(*int8)(q) = int8(v)
		return int64(int8(v)) == v
	case kindInt16:
		*(*int16)(q) = int16(v)
		return int64(int16(v)) == v
	}
	*(*int32)(q) = int32(v)
	return int64(int32(v)) == v
}

func setUint(q unsafe.Pointer, k kind, v uint64) bool {
	switch k {
	case kindUint8:
		*(*uint8)(q) = uint8(v)
		return uint64(uint8(v)) == v
	case kindUint16:
		*(*uint16)(q) = uint16(v)
		return uint64(uint16(v)) == v
	}
	*(*uint32)(q) = uint32(v)
	return uint64(uint32(v)) == v
}

func decodeTime(src []byte) (time.Time, []byte, error) {
	sec, src, err := readVarint(src)
	if err != nil {
		return time.Time{}, nil, err
	}
	nsec, src, err := readUvarint(src)
	if err != nil {
		return time.Time{}, nil, err
	}
	zone, src, err := readUvarint(src)
	if err != nil {
		return time.Time{}, nil, err
	}
	if nsec >= 1e9 || zone > 1<<20 {
		return time.Time{}, nil, errRange
	}
	t := time.Unix(sec, int64(nsec)).UTC()
	if zone > 0 {
		u := zone - 1
		t = t.In(time.FixedZone("", int(int64(u>>1)^-int64(u&1))))
	}
	return t, src, nil
}

// decodeRef reads what is behind a pointer: slices, maps, pointers and binaries. 0 stands for nil.
func decodeRef(src []byte, o *op, q unsafe.Pointer) ([]byte, error) {
	if o.kind == kindBinary {
		n, rest, err := readLen(src, 0)
		if err != nil {
			return nil, err
		}
		// UnmarshalBinary has to copy what it keeps.
		if err := reflect.NewAt(o.typ, q).Interface().(encoding.BinaryUnmarshaler).UnmarshalBinary(rest[:n]); err != nil {
			return nil, fmt.Errorf("decode value: UnmarshalBinary of %s: %w", o.typ, err)
		}
		return rest[n:], nil
	}
	if o.kind == kindMigrated {
		v := reflect.New(o.typ)
		rest, err := decodeOps(src, o.elem, v.UnsafePointer())
		if err != nil {
			return nil, err
		}
		now, err := migrate(*o.via, v.Elem().Interface())
		if err != nil {
			return nil, err
		}
		to := reflect.ValueOf(now)
		reflect.NewAt(to.Type(), q).Elem().Set(to)
		return rest, nil
	}
	if len(src) == 0 {
		return nil, errShort
	}
	if src[0] == 0 {
		return src[1:], nil // the field is nil already
	}
	if o.kind == kindPointer {
		if src[0] != 1 {
			return nil, errRange
		}
		to := reflect.New(o.typ.Elem())
		reflect.NewAt(o.typ, q).Elem().Set(to.Convert(o.typ))
		return decodeOps(src[1:], o.elem, to.UnsafePointer())
	}
	var n uint64
	var err error
	if o.kind == kindBytes || encodedSize(o) {
		n, src, err = readLen(src, 1)
	} else {
		n, src, err = readUvarint(src)
		if n--; err == nil && n > math.MaxInt32 {
			err = errTooLarge
		}
	}
	if err != nil {
		return nil, err
	}
	switch o.kind {
	case kindBytes:
		b := make([]byte, n)
		*(*[]byte)(q) = b
		return src[copy(b, src):], nil
	case kindSlice:
		s := reflect.MakeSlice(o.typ, int(n), int(n))
		reflect.NewAt(o.typ, q).Elem().Set(s)
		data := s.UnsafePointer()
		for j := range int(n) {
			if src, err = decodeOps(src, o.elem, unsafe.Add(data, uintptr(j)*o.size)); err != nil {
				return nil, err
			}
		}
		return src, nil
	case kindMap:
		m := reflect.MakeMapWithSize(o.typ, int(n))
		reflect.NewAt(o.typ, q).Elem().Set(m)
		for range n {
			k, v := reflect.New(o.typ.Key()), reflect.New(o.typ.Elem())
			if src, err = decodeOps(src, o.key, k.UnsafePointer()); err != nil {
				return nil, err
			}
			if src, err = decodeOps(src, o.elem, v.UnsafePointer()); err != nil {
				return nil, err
			}
			m.SetMapIndex(k.Elem(), v.Elem())
		}
		return src, nil
	}
	return nil, fmt.Errorf("decode value: kind %d of %s", o.kind, o.typ)
}

// encodedSize reports that each element of a slice or map takes at least one byte, so that a length can be checked
// against the bytes that are left.
func encodedSize(o *op) bool {
	size := func(ops []op) bool {
		return slices.ContainsFunc(ops, func(e op) bool {
			switch e.kind {
			case kindArray:
				return e.n > 0 && encodedSize(&op{kind: kindSlice, elem: e.elem})
			case kindSkip:
				return e.skip.kind != kindStruct && e.skip.kind != kindArray
			}
			return true
		})
	}
	return size(o.elem) || o.kind == kindMap && size(o.key)
}

// skip reads over a value of form w.
func skip(src []byte, w *wireType) ([]byte, error) {
	var err error
	switch w.kind {
	case kindBool:
		return cut(src, 1)
	case kindFloat32:
		return cut(src, 4)
	case kindFloat64:
		return cut(src, 8)
	case kindString, kindBinary:
		n, rest, err := readLen(src, 0)
		if err != nil {
			return nil, err
		}
		return rest[n:], nil
	case kindTime:
		_, src, err = decodeTime(src)
		return src, err
	case kindArray:
		for range w.n {
			if src, err = skip(src, w.elem); err != nil {
				return nil, err
			}
		}
		return src, nil
	case kindStruct:
		for _, f := range w.fields {
			if src, err = skip(src, f.typ); err != nil {
				return nil, err
			}
		}
		return src, nil
	}
	n, src, err := readUvarint(src)
	if err != nil {
		return nil, err
	}
	switch w.kind {
	case kindBytes, kindSlice, kindMap, kindPointer:
	default:
		return src, nil // an integer
	}
	if n == 0 {
		return src, nil
	}
	switch w.kind {
	case kindBytes:
		if n-1 > uint64(len(src)) {
			return nil, errTooLarge
		}
		return src[n-1:], nil
	case kindPointer:
		return skip(src, w.elem)
	}
	for range n - 1 {
		left := len(src)
		if w.kind == kindMap {
			if src, err = skip(src, w.key); err != nil {
				return nil, err
			}
		}
		if src, err = skip(src, w.elem); err != nil {
			return nil, err
		}
		if len(src) == left {
			return src, nil // elements without bytes
		}
	}
	return src, nil
}

func cut(src []byte, n int) ([]byte, error) {
	if len(src) < n {
		return nil, errShort
	}
	return src[n:], nil
}
