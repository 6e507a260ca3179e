package statestore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// What it takes to move the entries of stores to other subtasks: key groups, ids, and the versions of value schemas,
// which each subtask numbers by itself.

// KeyGroup returns the key group in the key of an entry of a store of that kind.
func KeyGroup(kind Kind, key []byte) (Group, error) {
	at := 4
	if kind.Timed() {
		at += 8 // window end, time
	}
	if len(key) < at+2 {
		return 0, fmt.Errorf("%w: key %x is shorter than its prefix", ErrCorrupt, key)
	}
	return groupOf(key[at:]), nil
}

// WithGroup returns the key of an entry under another key group.
func WithGroup(kind Kind, key []byte, g Group) ([]byte, error) {
	if _, err := KeyGroup(kind, key); err != nil {
		return nil, err
	}
	at := 4
	if kind.Timed() {
		at += 8
	}
	key = bytes.Clone(key)
	key[at], key[at+1] = byte(g>>8), byte(g)
	return key, nil
}

// WindowEnd returns the window end in the key of an entry of a store of a Windowed kind, in ms.
func WindowEnd(key []byte) (int64, error) {
	if len(key) < 12 {
		return 0, fmt.Errorf("%w: key %x is shorter than its prefix", ErrCorrupt, key)
	}
	return decodeKeyInt64(key[4:]), nil
}

// KeyID returns the id of the store that an entry belongs to; 0 for schema descriptors.
func KeyID(key []byte) (ID, error) {
	if len(key) < 4 {
		return 0, fmt.Errorf("%w: key %x is shorter than its prefix", ErrCorrupt, key)
	}
	return ID(binary.BigEndian.Uint32(key)), nil
}

// WithID is key as an entry of the store id.
func WithID(key []byte, id ID) []byte {
	return append(appendID(make([]byte, 0, len(key)), id), key[4:]...)
}

// Schemas are the schemas of the values of stores, by version, as the descriptors of one subtask tell them.
type Schemas map[ID]map[uint64]string

// Add reads a descriptor, an entry of store id 0.
func (s Schemas) Add(key, value []byte) error {
	lo, _ := schemaRange()
	if len(key) != 17 || string(key[:5]) != string(lo) {
		return fmt.Errorf("%w: %x is not the key of a schema descriptor", ErrCorrupt, key)
	}
	id := ID(binary.BigEndian.Uint32(key[5:]))
	if s[id] == nil {
		s[id] = map[uint64]string{}
	}
	s[id][binary.BigEndian.Uint64(key[9:])] = string(value)
	return nil
}

// Changes are the descriptors, in the order of their keys.
func (s Schemas) Changes() []Change {
	var cs []Change
	for _, id := range slices.Sorted(maps.Keys(s)) {
		for _, v := range slices.Sorted(maps.Keys(s[id])) {
			cs = append(cs, Change{Key: schemaKey(id, v), Value: []byte(s[id][v])})
		}
	}
	return cs
}

// Merge adds the schemas of one store of another subtask, as those of the store id. The same number may mean another
// schema there: renumber says which version of id each of its versions is now; nil = they are the same.
func (s Schemas) Merge(id ID, other map[uint64]string) (renumber map[uint64]uint64) {
	if len(other) == 0 {
		return nil
	}
	mine := s[id]
	if mine == nil {
		mine = map[uint64]string{}
		s[id] = mine
	}
	renumber = map[uint64]uint64{}
	same := true
	for _, v := range slices.Sorted(maps.Keys(other)) {
		to := uint64(0)
		for have, schema := range mine {
			if schema == other[v] && (to == 0 || have == v) {
				to = have
			}
		}
		if to == 0 {
			to = v
			if _, taken := mine[v]; taken {
				for have := range mine {
					to = max(to, have+1)
				}
				for have := range other { // whose turn is still to come
					to = max(to, have+1)
				}
			}
			mine[to] = other[v]
		}
		renumber[v] = to
		same = same && to == v
	}
	if same {
		return nil
	}
	return renumber
}

// Renumber gives a value the version of its schema that Schemas.Merge tells. It appends to dst.
func Renumber(dst, value []byte, renumber map[uint64]uint64) ([]byte, error) {
	v, n := binary.Uvarint(value)
	if n <= 0 {
		return nil, fmt.Errorf("%w: a value of %d bytes has no schema version", ErrCorrupt, len(value))
	}
	to, ok := renumber[v]
	if !ok {
		return nil, fmt.Errorf("%w: a value has schema version %d, which has no descriptor", ErrCorrupt, v)
	}
	return append(binary.AppendUvarint(dst, to), value[n:]...), nil
}
