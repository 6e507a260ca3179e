// Package format turns Kafka keys and values into Go values and back.
//
// A Serde belongs to a topic: it reads what producers wrote and writes what consumers will read. It is not a state
// codec (package statestore): state is private to an app and ordered by key, messages are shared with the world.
package format

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"unicode/utf8"
	"unsafe"
)

// Serde decodes and encodes one kind of message. It has no mutable state and is used by many goroutines at a time.
type Serde[T any] interface {
	// Decode overwrites *v with the value in src. Strings and byte slices may point into src: they are valid for ever,
	// since src is never written again, but they pin the fetched batch; clone what is kept for long (state handles do).
	// A nil src, the null of Kafka, is ErrNull. After an error *v holds anything.
	Decode(src []byte, v *T) error
	// Append appends the encoded *v to dst. After an error the bytes past len(dst) are void.
	Append(dst []byte, v *T) ([]byte, error)
}

// ErrNull is returned by Decode for a null record key or value, and by JSON for a document that is null. On a
// compacted topic that is a tombstone. Match it with errors.Is.
var ErrNull = errors.New("value is null (a tombstone)")

// Func makes a Serde of two functions, which must follow the rules of the interface. decode is never called with a
// nil src.
func Func[T any](decode func(src []byte, v *T) error, app func(dst []byte, v *T) ([]byte, error)) Serde[T] {
	return funcSerde[T]{decode, app}
}

type funcSerde[T any] struct {
	decode func(src []byte, v *T) error
	app    func(dst []byte, v *T) ([]byte, error)
}

func (s funcSerde[T]) Decode(src []byte, v *T) error {
	if src == nil {
		return ErrNull
	}
	return s.decode(src, v)
}

func (s funcSerde[T]) Append(dst []byte, v *T) ([]byte, error) { return s.app(dst, v) }

// String is UTF-8 text, as Kafka's StringSerializer writes it. Bytes that are not UTF-8 are refused both ways.
func String() Serde[string] { return stringSerde[string]{} }

// stringSerde serves string and the types made of it.
type stringSerde[T any] struct{}

func (stringSerde[T]) Decode(src []byte, v *T) error {
	if src == nil {
		return ErrNull
	}
	if !isASCII(view(src)) && !utf8.Valid(src) {
		return fmt.Errorf("decode string: not UTF-8: %w", notUTF8(src))
	}
	*(*string)(unsafe.Pointer(v)) = view(src)
	return nil
}

func (stringSerde[T]) Append(dst []byte, v *T) ([]byte, error) {
	s := *(*string)(unsafe.Pointer(v))
	if !isASCII(s) && !utf8.ValidString(s) {
		return dst, fmt.Errorf("encode string: not UTF-8: %w; use Bytes for binary data", notUTF8([]byte(s)))
	}
	return append(dst, s...), nil
}

// isASCII tells whether s has only bytes below 0x80. Keys are short: two words that overlap see most of them whole.
func isASCII(s string) bool {
	b := unsafe.Slice(unsafe.StringData(s), len(s))
	switch n := len(b); {
	case n >= 8:
		w := binary.LittleEndian.Uint64(b[n-8:])
		for ; len(b) > 8; b = b[8:] {
			w |= binary.LittleEndian.Uint64(b)
		}
		return w&highs == 0
	case n >= 4:
		return (binary.LittleEndian.Uint32(b)|binary.LittleEndian.Uint32(b[n-4:]))&(highs>>32) == 0
	}
	or := byte(0)
	for _, c := range b {
		or |= c
	}
	return or < utf8.RuneSelf
}

// notUTF8 says where b stops being UTF-8.
func notUTF8(b []byte) error {
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return fmt.Errorf("byte 0x%02x at offset %d", b[i], i)
		}
		i += n
	}
	return errors.New("no such byte")
}

// view is b as a string without a copy.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// Bytes is the bytes as they are. The decoded slice points into src and must not be written to. A nil slice is
// written as an empty value, not as null.
func Bytes() Serde[[]byte] { return bytesSerde{} }

type bytesSerde struct{}

func (bytesSerde) Decode(src []byte, v *[]byte) error {
	if src == nil {
		return ErrNull
	}
	*v = src[:len(src):len(src)]
	return nil
}

func (bytesSerde) Append(dst []byte, v *[]byte) ([]byte, error) { return append(dst, *v...), nil }

// Int64 is 8 bytes, big endian, as Kafka's LongSerializer writes it.
func Int64() Serde[int64] { return int64Serde[int64]{} }

type int64Serde[T any] struct{}

func (int64Serde[T]) Decode(src []byte, v *T) error {
	if err := wantSize("int64", src, 8); err != nil {
		return err
	}
	*(*int64)(unsafe.Pointer(v)) = int64(binary.BigEndian.Uint64(src))
	return nil
}

func (int64Serde[T]) Append(dst []byte, v *T) ([]byte, error) {
	return binary.BigEndian.AppendUint64(dst, uint64(*(*int64)(unsafe.Pointer(v)))), nil
}

// Int32 is 4 bytes, big endian, as Kafka's IntegerSerializer writes it.
func Int32() Serde[int32] { return int32Serde[int32]{} }

type int32Serde[T any] struct{}

func (int32Serde[T]) Decode(src []byte, v *T) error {
	if err := wantSize("int32", src, 4); err != nil {
		return err
	}
	*(*int32)(unsafe.Pointer(v)) = int32(binary.BigEndian.Uint32(src))
	return nil
}

func (int32Serde[T]) Append(dst []byte, v *T) ([]byte, error) {
	return binary.BigEndian.AppendUint32(dst, uint32(*(*int32)(unsafe.Pointer(v)))), nil
}

// intSerde writes an int as 8 bytes wherever it runs.
type intSerde[T any] struct{}

func (intSerde[T]) Decode(src []byte, v *T) error {
	if err := wantSize("int", src, 8); err != nil {
		return err
	}
	n := int64(binary.BigEndian.Uint64(src))
	if int64(int(n)) != n {
		return fmt.Errorf("decode int: %d does not fit the int of this machine; use int64", n)
	}
	*(*int)(unsafe.Pointer(v)) = int(n)
	return nil
}

func (intSerde[T]) Append(dst []byte, v *T) ([]byte, error) {
	return binary.BigEndian.AppendUint64(dst, uint64(*(*int)(unsafe.Pointer(v)))), nil
}

// Float64 is the 8 bytes of IEEE 754, big endian, as Kafka's DoubleSerializer writes them. The bits of a NaN are kept.
func Float64() Serde[float64] { return float64Serde{} }

type float64Serde struct{}

func (float64Serde) Decode(src []byte, v *float64) error {
	if err := wantSize("float64", src, 8); err != nil {
		return err
	}
	*v = math.Float64frombits(binary.BigEndian.Uint64(src))
	return nil
}

func (float64Serde) Append(dst []byte, v *float64) ([]byte, error) {
	return binary.BigEndian.AppendUint64(dst, math.Float64bits(*v)), nil
}

func wantSize(what string, src []byte, n int) error {
	if src == nil {
		return ErrNull
	}
	if len(src) != n {
		return fmt.Errorf("decode %s: want %d bytes, found %d", what, n, len(src))
	}
	return nil
}

// Default is the serde of a topic that names none: raw text for a string, the raw bytes for a []byte, and JSON for
// all else. The error names what in T has no JSON form.
func Default[T any]() (Serde[T], error) {
	t := reflect.TypeFor[T]()
	switch {
	case implementsJSON(t):
	case t.Kind() == reflect.String:
		return stringSerde[T]{}, nil
	case t == reflect.TypeFor[[]byte]():
		return any(Bytes()).(Serde[T]), nil
	}
	return JSON[T]()
}

// DefaultKey is the serde of a key that names none: raw text for a string, 8, 4 or 8 bytes big endian for an int64,
// int32 or int (and types made of these), and JSON for all else. Equal keys give equal bytes, which the partitioner
// needs. The error names what in K has no JSON form.
func DefaultKey[K comparable]() (Serde[K], error) {
	t := reflect.TypeFor[K]()
	switch kind := t.Kind(); {
	case implementsJSON(t):
	case kind == reflect.String:
		return stringSerde[K]{}, nil
	case kind == reflect.Int64:
		return int64Serde[K]{}, nil
	case kind == reflect.Int32:
		return int32Serde[K]{}, nil
	case kind == reflect.Int:
		return intSerde[K]{}, nil
	}
	return JSON[K]()
}
