package statestore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestSchemasMerge puts the schemas of many subtasks together, each of which has numbered them by itself: every value
// still has its schema, and no number means two.
func TestSchemasMerge(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		all := Schemas{}
		texts := map[uint64]string{} // what a number means, once it means something
		for range 1 + rnd.IntN(5) {
			mine := map[uint64]string{}
			for _, i := range rnd.Perm(5)[:rnd.IntN(5)] {
				mine[uint64(1+rnd.IntN(6))] = fmt.Sprintf("schema %d", i)
			}
			renumber := all.Merge(7, mine)
			for v, text := range mine {
				value := append(binary.AppendUvarint(nil, v), "payload"...)
				if renumber != nil {
					var err error
					if value, err = Renumber(nil, value, renumber); err != nil {
						t.Fatal(err)
					}
				}
				to, n := binary.Uvarint(value)
				if all[7][to] != text || string(value[n:]) != "payload" {
					t.Fatalf("version %d of %v became %d of %v", v, mine, to, all)
				}
			}
			for v, text := range texts {
				if all[7][v] != text {
					t.Fatalf("version %d was %q, and is %q", v, text, all[7][v])
				}
			}
			for v, text := range all[7] {
				texts[v] = text
				for w, other := range all[7] {
					if v != w && text == other {
						t.Fatalf("versions %d and %d are both %q", v, w, text)
					}
				}
			}
		}
	}
	if renumber := (Schemas{7: {1: "a"}}).Merge(7, map[uint64]string{1: "a", 2: "b"}); renumber != nil {
		t.Errorf("equal numbers are given anew: %v", renumber)
	}
	if _, err := Renumber(nil, []byte{3, 1}, map[uint64]uint64{1: 2}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a version without descriptor: %v", err)
	}
}

// TestSchemasAreDescriptors: what is read and written is what State keeps.
func TestSchemasAreDescriptors(t *testing.T) {
	s := Schemas{}
	for _, c := range []Change{{Key: schemaKey(9, 2), Value: []byte("b")}, {Key: schemaKey(9, 1), Value: []byte("a")}, {Key: schemaKey(3, 1), Value: []byte("c")}} {
		if err := s.Add(c.Key, c.Value); err != nil {
			t.Fatal(err)
		}
	}
	var keys [][]byte
	for _, c := range s.Changes() {
		keys = append(keys, c.Key)
	}
	if len(keys) != 3 || !bytes.Equal(keys[0], schemaKey(3, 1)) || !bytes.Equal(keys[2], schemaKey(9, 2)) {
		t.Errorf("keys %x", keys)
	}
	for _, bad := range [][]byte{MetaKey(), schemaKey(9, 2)[1:], append(schemaKey(9, 2), 0)} {
		if err := s.Add(bad, nil); !errors.Is(err, ErrCorrupt) {
			t.Errorf("key %x: %v", bad, err)
		}
	}
}
