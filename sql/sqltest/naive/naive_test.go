package naive_test

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"
)

// TestRandomQueries compares queries and data of some hundred seeds with the naive evaluator. MILLRACE_SQL_SEEDS is how many
// seeds are taken, MILLRACE_SQL_FIRST the first of them (1). With a canary (see there) the
// first fault is enough.
func TestRandomQueries(t *testing.T) {
	seeds, first := setting(t, "MILLRACE_SQL_SEEDS", 400), setting(t, "MILLRACE_SQL_FIRST", 1)
	refused := map[string]int{}
	compared, modes, faults := 0, 0, 0
	for seed := uint64(first); seed < uint64(first+seeds); seed++ {
		v := grow(seed).check()
		if v.refused != "" {
			refused[v.refused]++
		}
		if v.compared {
			compared++
		}
		modes += v.modes
		if v.fault == "" {
			continue
		}
		if os.Getenv("MILLRACE_CANARY") != "" {
			t.Fatalf("seed %d: %s", seed, v.fault)
		}
		if faults++; faults > 20 {
			t.Fatal("too many faults")
		}
		p, v := shrink(grow(seed), v)
		t.Errorf("seed %d: %s\n%s", seed, v.fault, p)
	}
	t.Logf("%d pairs, %d compared with the naive evaluator, %d other modes, %d faults", seeds, compared, modes, faults)
	for _, code := range slices.Sorted(maps.Keys(refused)) {
		t.Logf("%d refused with %s", refused[code], code)
	}
}

func setting(t *testing.T, name string, deflt int) int {
	v := os.Getenv(name)
	if v == "" {
		return deflt
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}
