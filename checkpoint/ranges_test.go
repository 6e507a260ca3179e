package checkpoint

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/millrace-stream/millrace/checkpoint/blob/blobtest"
	"github.com/millrace-stream/millrace/statestore"
)

// TestLoadRangesReadsOnlyPartsThatMatter takes entries out of a savepoint of several parts.
func TestLoadRangesReadsOnlyPartsThatMatter(t *testing.T) {
	s := NewSavepoints(blobtest.NewMemory(), testApp, nil, nil)
	d := newDisk(t, "0_0")
	r := rand.New(rand.NewPCG(1, 2))
	var pairs []string
	const keys = 40
	for i := range keys {
		value := make([]byte, 1<<20)
		for j := 0; j < len(value); j += 8 { // compression must not make it small
			v := r.Uint64()
			for k := range 8 {
				value[j+k] = byte(v >> (8 * k))
			}
		}
		pairs = append(pairs, fmt.Sprintf("k%02d", i), string(value))
	}
	d.commit(1, pairs...)
	sp := begin(t, s, "parts", "0_0")
	m, err := write(s, sp, d.snapshot())
	must(t, err)
	if len(m.Files) < 3 {
		t.Fatalf("only %d parts", len(m.Files))
	}
	sp, err = s.Complete(t.Context(), sp)
	must(t, err)
	prefix := string(m.Files[0].First[:4])
	at := func(i int) []byte { return fmt.Appendf([]byte(prefix), "k%02d", i) }
	for _, c := range []struct {
		ranges []statestore.Range
		want   []int // that must be among what is read
		parts  int
	}{
		{nil, nil, 0},
		{[]statestore.Range{{Lo: at(0), Hi: at(1)}}, []int{0}, 1},
		{[]statestore.Range{{Lo: at(keys - 1)}}, []int{keys - 1}, 1},
		{[]statestore.Range{{Lo: at(0), Hi: at(1)}, {Lo: at(keys - 1)}}, []int{0, keys - 1}, 2},
		{[]statestore.Range{{Lo: []byte(prefix), Hi: at(0)}}, nil, 0},
		{[]statestore.Range{{Lo: []byte(prefix)}}, []int{0, keys / 2, keys - 1}, len(m.Files)},
		{[]statestore.Range{{Lo: m.Files[1].First, Hi: append(m.Files[1].Last, 0)}}, nil, 1},
	} {
		read := map[string]bool{}
		must(t, s.LoadRanges(t.Context(), sp, "0_0", c.ranges, func(key, _ []byte) error { read[string(key)] = true; return nil }))
		entries := int64(0)
		for _, f := range m.Files {
			if read[string(f.First)] {
				c.parts--
				entries += f.Entries
			}
		}
		if c.parts != 0 || entries != int64(len(read)) {
			t.Errorf("%q: %d parts more than were wanted, %d entries", c.ranges, -c.parts, len(read))
		}
		for _, i := range c.want {
			if !read[string(at(i))] {
				t.Errorf("%q: key %d is missing", c.ranges, i)
			}
		}
	}
	wantErr(t, s.LoadRanges(t.Context(), sp, "0_9", nil, nil), ErrMissing)
}
