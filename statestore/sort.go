package statestore

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
)

// A sortKey stands for a key while keys are sorted: its first eight bytes and its place. It is a quarter of the size of
// what it stands for and has no pointers, and most comparisons need no look at the key itself, which is seldom in the
// processor's cache.
type sortKey struct {
	head uint64
	j    uint32
}

// newSortKey makes the sortKey of a key.
func newSortKey(key []byte, j int) sortKey {
	if len(key) >= 8 {
		return sortKey{binary.BigEndian.Uint64(key), uint32(j)}
	}
	var b [8]byte
	copy(b[:], key)
	return sortKey{binary.BigEndian.Uint64(b[:]), uint32(j)}
}

// radixMin is the number of keys from which counting bytes is faster than comparing.
const radixMin = 512

// sortKeys sorts keys; key gives the whole key of a place. spare is room for as many. The result is in one of the two,
// other is the other one.
func sortKeys(keys, spare []sortKey, key func(j uint32) []byte) (sorted, other []sortKey) {
	byHead := func(a, b sortKey) int { return cmp.Compare(a.head, b.head) }
	if len(keys) < radixMin {
		slices.SortFunc(keys, byHead)
	} else {
		keys, spare = radixSort(keys, slices.Grow(spare[:0], len(keys))[:len(keys)])
	}
	for i := 0; i < len(keys); {
		n := i + 1
		for n < len(keys) && keys[n].head == keys[i].head {
			n++
		}
		if n-i > 1 {
			slices.SortFunc(keys[i:n], func(a, b sortKey) int { return bytes.Compare(key(a.j), key(b.j)) })
		}
		i = n
	}
	return keys, spare
}

// radixSort sorts by head, byte by byte from the lowest, and skips bytes that are the same in all. spare is as long as
// keys.
func radixSort(keys, spare []sortKey) (sorted, other []sortKey) {
	var counts [8][256]uint32
	for _, k := range keys {
		for d := range counts {
			counts[d][byte(k.head>>(8*d))]++
		}
	}
	for d := range counts {
		at := &counts[d]
		if int(at[byte(keys[0].head>>(8*d))]) == len(keys) {
			continue
		}
		sum := uint32(0)
		for v, n := range at {
			at[v] = sum
			sum += n
		}
		for _, k := range keys {
			v := byte(k.head >> (8 * d))
			spare[at[v]] = k
			at[v]++
		}
		keys, spare = spare, keys
	}
	return keys, spare
}
