package format

import (
	"bytes"
	"encoding"
	"encoding/json"
	"reflect"
)

// JSONOption changes what JSON accepts.
type JSONOption func(*jsonOptions)

type jsonOptions struct {
	refuseUnknown bool
	maxDepth      int
}

// JSON stub.
func JSON[T any](opts ...JSONOption) (Serde[T], error) {
	return Func(func(src []byte, v *T) error {
		if bytes.Equal(bytes.TrimSpace(src), []byte("null")) {
			return ErrNull
		}
		return json.Unmarshal(src, v)
	}, func(dst []byte, v *T) ([]byte, error) {
		b, err := json.Marshal(v)
		return append(dst, b...), err
	}), nil
}

var (
	jsonMarshaler   = reflect.TypeFor[json.Marshaler]()
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textMarshaler   = reflect.TypeFor[encoding.TextMarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

func implementsJSON(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(jsonMarshaler) || p.Implements(jsonUnmarshaler) || p.Implements(textMarshaler) || p.Implements(textUnmarshaler)
}
