package statestore

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSortKeysSortsAsBytesDo sorts keys of all lengths, with and without long common starts.
func TestSortKeysSortsAsBytesDo(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{0, 1, 2, radixMin - 1, radixMin, 5000} {
		for _, same := range []int{0, 3, 7, 8, 20} { // bytes that all keys begin with
			for _, letters := range []int{2, 256} {
				keys := make([][]byte, n)
				for i := range keys {
					k := bytes.Repeat([]byte{7}, same)
					for range rng.IntN(14) {
						k = append(k, byte(rng.IntN(letters)))
					}
					keys[i] = k
				}
				sorted := make([]sortKey, n)
				for i, k := range keys {
					sorted[i] = newSortKey(k, i)
				}
				sorted, other := sortKeys(sorted, nil, func(j uint32) []byte { return keys[j] })
				want := slices.SortedFunc(slices.Values(keys), bytes.Compare)
				seen := make([]bool, n)
				for i, k := range sorted {
					if seen[k.j] || !bytes.Equal(keys[k.j], want[i]) {
						t.Fatalf("%d keys, %d bytes the same: place %d holds key %d, %x, want %x", n, same, i, k.j, keys[k.j], want[i])
					}
					seen[k.j] = true
				}
				if len(sorted) != n || n >= radixMin && len(other) != n {
					t.Fatalf("%d keys: %d sorted, room for %d", n, len(sorted), len(other))
				}
			}
		}
	}
}
