package format

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unsafe"
)

// JSONOption changes how JSON decodes.
type JSONOption func(*jsonOptions)

type jsonOptions struct {
	refuseUnknown bool
	maxDepth      int
}

// RefuseUnknownFields makes an object field that has no place in the struct an error. By default it is skipped.
func RefuseUnknownFields() JSONOption { return func(o *jsonOptions) { o.refuseUnknown = true } }

// MaxDepth sets how deep arrays and objects may be nested, in what is read and what is written. The default is 1,000,
// the most is 10,000: each level costs stack.
func MaxDepth(n int) JSONOption { return func(o *jsonOptions) { o.maxDepth = n } }

// JSON is the serde of JSON documents (RFC 8259). A plan is compiled from T once; the error of JSON names every field
// that has no JSON form.
//
// Types. Structs (exported fields, tags as in encoding/json: a name, "-", omitempty, omitzero, string; embedded structs
// are flattened), pointers, slices, arrays, maps with string keys, strings, booleans, numbers, any. A []byte is base64,
// json.RawMessage is the text as it is and json.Number the exact text of a number. Types with the methods of
// json.Marshaler, json.Unmarshaler, encoding.TextMarshaler or encoding.TextUnmarshaler use these. Two fields with one
// name, structs without any field, channels, functions and complex numbers are errors.
//
// Time. A time.Time must say in its tag what stands in the document: unix, unixmilli, unixmicro or unixnano (an integer
// since the epoch) or rfc3339 (text), as in `json:"ts,unixmilli"`. A time.Duration must say nanos, micros, millis or
// seconds. There is no default: a wrong guess is silent. The option reaches through pointers, slices, arrays and maps.
// Decoded times are in UTC, and so is what is written; times finer than the unit are rounded down.
//
// Decoding. Names are case-sensitive, unknown fields are skipped, missing fields are zero, null is the zero value of
// anything. The whole document is checked, also what is skipped: syntax, UTF-8, surrogate pairs, depth, nothing after
// the end. A field or map key that comes twice is an error; in a part that is skipped it goes unseen. Integers are
// exact: any spelling of an integer that fits is taken (7, 7.0, 7e0), anything else is an error and never rounded.
// Floats are the nearest value; one beyond the range is an error. In an any, objects are map[string]any, arrays []any
// and numbers json.Number, so that integers above 2^53 survive. Strings without escapes, json.RawMessage and
// json.Number point into src. An array needs exactly as many elements as it has room for. A document that is null is
// ErrNull. Errors are *JSONError.
//
// Encoding. Fields in the order of the struct, map keys sorted, so that equal values give equal bytes. Text is escaped as
// by encoding/json with HTML escaping off; text that is not UTF-8 is an error, as are NaN and the infinities. A nil slice
// is [], a nil map {}, a nil pointer null. An any may hold what decoding puts into one, and Go's basic types.
func JSON[T any](opts ...JSONOption) (Serde[T], error) {
	o := jsonOptions{maxDepth: 1000}
	for _, opt := range opts {
		opt(&o)
	}
	if o.maxDepth < 1 || o.maxDepth > 10000 {
		return nil, fmt.Errorf("build JSON serde: MaxDepth(%d): want 1 to 10000", o.maxDepth)
	}
	root, err := planJSON(reflect.TypeFor[T](), o)
	if err != nil {
		return nil, fmt.Errorf("build JSON serde of %s: %w", reflect.TypeFor[T](), err)
	}
	return &jsonSerde[T]{root: root, maxDepth: o.maxDepth}, nil
}

type jsonSerde[T any] struct {
	root     *node
	maxDepth int
}

func (s *jsonSerde[T]) Decode(src []byte, v *T) error {
	if src == nil {
		return ErrNull
	}
	var zero T
	*v = zero
	i := skipSpace(src, 0)
	if i < len(src) && src[i] == 'n' {
		end, err := scanLiteral(src, i, "null")
		if err == nil {
			err = wantEnd(src, end)
		}
		if err != nil {
			return err
		}
		return ErrNull
	}
	i, err := s.root.decode(src, i, s.maxDepth, unsafe.Pointer(v))
	if err == nil {
		err = wantEnd(src, i)
	}
	if err != nil {
		return err
	}
	return nil
}

func (s *jsonSerde[T]) Append(dst []byte, v *T) ([]byte, error) {
	out, err := s.root.append(dst, s.maxDepth, unsafe.Pointer(v))
	if err != nil {
		return dst, err
	}
	return out, nil
}

// JSONError says why a document could not be read or a value not be written.
type JSONError struct {
	Offset int    // of the byte in the document, -1 in encoding
	Path   string // of the field, as in order.lines[3].price; empty for the document itself
	Want   string // what was expected, or what is wrong
	Found  string // empty if there is nothing to show
	Err    error  // of a type's own method; may be nil
}

func (e *JSONError) Error() string {
	b := make([]byte, 0, 128)
	if e.Offset >= 0 {
		b = append(b, "decode JSON"...)
	} else {
		b = append(b, "encode JSON"...)
	}
	sep := ": "
	if e.Path != "" {
		b = append(append(append(b, sep...), "field "...), e.Path...)
		sep = ", "
	}
	if e.Offset >= 0 {
		b = append(append(b, sep...), "byte "...)
		b = strconv.AppendInt(b, int64(e.Offset), 10)
	}
	b = append(append(b, ": "...), e.Want...)
	if e.Found != "" {
		b = append(append(b, ", found "...), e.Found...)
	}
	if e.Err != nil {
		b = append(append(b, ": "...), e.Err.Error()...)
	}
	return string(b)
}

func (e *JSONError) Unwrap() error { return e.Err }

// in says that e is inside the field name.
func (e *JSONError) in(name string) *JSONError {
	if !isPlainName(name) {
		name = strconv.QuoteToASCII(name)
	}
	switch {
	case e.Path == "":
		e.Path = name
	case e.Path[0] == '[':
		e.Path = name + e.Path
	default:
		e.Path = name + "." + e.Path
	}
	return e
}

// at says that e is inside the element i of an array.
func (e *JSONError) at(i int) *JSONError {
	index := "[" + strconv.Itoa(i) + "]"
	if e.Path == "" || e.Path[0] == '[' {
		e.Path = index + e.Path
	} else {
		e.Path = index + "." + e.Path
	}
	return e
}

// isPlainName tells whether a name can stand in a path as it is.
func isPlainName(s string) bool {
	if s == "" || len(s) > 100 {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`.[]"\`, r)
	}) < 0
}
