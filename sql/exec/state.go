package exec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/statestore"
)

// view is bytes as the key of a store, which copies what it keeps. It is valid as long as b is not changed.
func view(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	return unsafe.String(&b[0], len(b))
}

// bytesOf is a key as bytes, which nobody may change.
func bytesOf(k string) []byte { return unsafe.Slice(unsafe.StringData(k), len(k)) }

// rowKeys is the codec of keys that a row.KeyEncoder has encoded: they are what is stored.
type rowKeys struct {
	enc     *row.KeyEncoder
	layout  *row.Layout
	scratch *row.Row
}

// keysOf makes the codec of a key of columns of a layout.
func keysOf(enc *row.KeyEncoder, of *row.Layout, columns []int) statestore.KeyCodec[string] {
	types := make([]*row.Type, len(columns))
	for i, c := range columns {
		types[i] = of.Type(c)
	}
	l := row.NewLayout(types...)
	return rowKeys{enc, l, l.New()}
}

// Append is of statestore.KeyCodec.
func (k rowKeys) Append(dst []byte, key string) []byte { return append(dst, key...) }

// Decode is of statestore.KeyCodec.
func (k rowKeys) Decode(src []byte) (string, []byte, error) {
	rest, err := k.enc.Decode(src, k.layout, k.scratch)
	if err != nil {
		return "", nil, err
	}
	return string(src[:len(src)-len(rest)]), rest, nil
}

// Schema is of statestore.KeyCodec.
func (k rowKeys) Schema() string { return k.enc.Schema() }

// heldKeys are rowKeys that lie together in memory: they are valid until the room is cut to nothing.
type heldKeys struct {
	rowKeys
	room *[]byte
}

// keyRoom is how many bytes of keys are made room for at a time.
const keyRoom = 4096

// Decode is of statestore.KeyCodec.
func (k heldKeys) Decode(src []byte) (string, []byte, error) {
	rest, err := k.enc.Decode(src, k.layout, k.scratch)
	if err != nil {
		return "", nil, err
	}
	key := src[:len(src)-len(rest)]
	at := len(*k.room)
	if cap(*k.room)-at < len(key) {
		*k.room, at = make([]byte, 0, max(keyRoom, len(key))), 0
	}
	*k.room = append(*k.room, key...)
	return view((*k.room)[at:]), rest, nil
}

// timerKeys are the keys of timers that are popped one by one: what Decode gives is valid until it is called again.
type timerKeys struct{ heldKeys }

// timerKeysOf makes the codec of the keys of timers.
func timerKeysOf(enc *row.KeyEncoder, of *row.Layout, columns []int) statestore.KeyCodec[string] {
	return timerKeys{heldKeys{keysOf(enc, of, columns).(rowKeys), new([]byte)}}
}

// Decode is of statestore.KeyCodec.
func (k timerKeys) Decode(src []byte) (string, []byte, error) {
	*k.room = (*k.room)[:0]
	return k.heldKeys.Decode(src)
}

// tailKeys is the codec of map keys that are the last part of a physical key: all that is left belongs to them. What it decodes
// is a view of the entry's key, which a Map never writes again.
type tailKeys string

// Append is of statestore.KeyCodec.
func (tailKeys) Append(dst []byte, key string) []byte { return append(dst, key...) }

// Decode is of statestore.KeyCodec.
func (tailKeys) Decode(src []byte) (string, []byte, error) { return view(src), nil, nil }

// Schema is of statestore.KeyCodec.
func (k tailKeys) Schema() string { return string(k) }

// packed is a packed row in a store: bytes that are replaced and never written into.
type packed []byte

// packedRows is the codec of packed rows of a layout.
type packedRows struct{ schema string }

func packedOf(l *row.Layout) packedRows { return packedRows{"packed " + l.Schema()} }

// Append is of statestore.Codec.
func (packedRows) Append(dst []byte, v *packed) []byte { return append(dst, *v...) }

// Decode is of statestore.Codec.
func (packedRows) Decode(src []byte, v *packed) error {
	*v = bytes.Clone(src)
	if *v == nil {
		*v = packed{}
	}
	return nil
}

// Flat is of statestore.Codec.
func (packedRows) Flat() bool { return true }

// Owned is of statestore.Owner.
func (packedRows) Owned() {}

// Schema is of statestore.Codec.
func (p packedRows) Schema() string { return p.schema }

// accumulators is the codec of the accumulators of a key: words and byte values.
type accumulators struct {
	words, views int
	schema       string
}

// Append is of statestore.Codec. Words are zigzag varints, byte values have their length plus one in front, 0 = nil.
func (a accumulators) Append(dst []byte, v *fn.State) []byte {
	for _, w := range v.W {
		dst = binary.AppendVarint(dst, int64(w))
	}
	for _, s := range v.S {
		if s == nil {
			dst = append(dst, 0)
			continue
		}
		dst = append(binary.AppendUvarint(dst, uint64(len(s))+1), s...)
	}
	return dst
}

// Decode is of statestore.Codec.
func (a accumulators) Decode(src []byte, v *fn.State) error {
	v.W, v.S = make([]uint64, a.words), make([][]byte, a.views)
	for i := range v.W {
		x, n := binary.Varint(src)
		if n <= 0 {
			return fmt.Errorf("decode accumulators %s: the value ends at word %d", a.schema, i)
		}
		v.W[i], src = uint64(x), src[n:]
	}
	for i := range v.S {
		x, n := binary.Uvarint(src)
		if n <= 0 || x > uint64(len(src)-n)+1 {
			return fmt.Errorf("decode accumulators %s: the value ends at byte value %d", a.schema, i)
		}
		if src = src[n:]; x > 0 {
			v.S[i], src = bytes.Clone(src[:x-1]), src[x-1:]
			if v.S[i] == nil {
				v.S[i] = []byte{}
			}
		}
	}
	if len(src) > 0 {
		return fmt.Errorf("decode accumulators %s: %d bytes are left behind", a.schema, len(src))
	}
	return nil
}

// Flat is of statestore.Codec.
func (accumulators) Flat() bool { return false }

// Schema is of statestore.Codec.
func (a accumulators) Schema() string { return a.schema }

// Copy is of statestore.Copier: words are copied, byte values are never written into.
func (a accumulators) Copy(dst, src *fn.State) {
	dst.W = append(dst.W[:0], src.W...)
	dst.S = append(dst.S[:0], src.S...)
}

// Size is of statestore.Copier.
func (a accumulators) Size(v *fn.State) int {
	n := 8*len(v.W) + 24*len(v.S)
	for _, s := range v.S {
		n += len(s)
	}
	return n
}

// Own is of statestore.Copier: Decode has copied all that it keeps, and aggregates copy what they keep.
func (accumulators) Own(*fn.State) bool { return true }

// counts is how often something is there, by filter.
type counts struct{ N []int64 }

type countsCodec struct{ n int }

// Append is of statestore.Codec.
func (c countsCodec) Append(dst []byte, v *counts) []byte {
	for i := range c.n {
		var x int64
		if i < len(v.N) {
			x = v.N[i]
		}
		dst = binary.AppendVarint(dst, x)
	}
	return dst
}

// Decode is of statestore.Codec.
func (c countsCodec) Decode(src []byte, v *counts) error {
	v.N = make([]int64, c.n)
	for i := range v.N {
		x, n := binary.Varint(src)
		if n <= 0 {
			return fmt.Errorf("decode counts: the value ends at count %d of %d", i, c.n)
		}
		v.N[i], src = x, src[n:]
	}
	return nil
}

// Flat is of statestore.Codec: counts are replaced, never written into.
func (countsCodec) Flat() bool { return true }

// Owned is of statestore.Owner.
func (countsCodec) Owned() {}

// Schema is of statestore.Codec.
func (c countsCodec) Schema() string { return fmt.Sprintf("counts%d", c.n) }

// number is the codec of a plain count.
type number struct{}

// Append is of statestore.Codec.
func (number) Append(dst []byte, v *int64) []byte { return binary.AppendVarint(dst, *v) }

// Decode is of statestore.Codec.
func (number) Decode(src []byte, v *int64) error {
	x, n := binary.Varint(src)
	if n != len(src) || n <= 0 {
		return fmt.Errorf("decode count: %d bytes are none", len(src))
	}
	*v = x
	return nil
}

// Flat is of statestore.Codec.
func (number) Flat() bool { return true }

// Schema is of statestore.Codec.
func (number) Schema() string { return "count" }

// beyond is behind all sequence numbers.
const beyond = "\xff\xff\xff\xff\xff\xff\xff\xff\xff"

// nextSeq appends the sequence number behind that at the end of last.
func nextSeq(dst []byte, last string, any bool) []byte {
	seq := uint64(0)
	if any && len(last) >= 8 {
		seq = binary.BigEndian.Uint64([]byte(last[len(last)-8:])) + 1
	}
	return binary.BigEndian.AppendUint64(dst, seq)
}

// behindEqual appends to a map key the sequence number that puts it behind all that begin with it.
func behindEqual[V any](m *mapState[V], g statestore.Group, k string, at []byte) []byte {
	n := len(at)
	at = append(at, beyond...) // with room for the number
	last, v := m.Before(g, k, view(at))
	return nextSeq(at[:n], last, v != nil && len(last) == n+8 && last[:n] == string(at[:n]))
}
