package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/txn"
)

// TestFoldHandsOutWholeEpochs writes random epochs into two changelogs, markers and aborted epochs between them, reads
// them in random pieces, and wants the epochs whole and in order, however far one changelog is read ahead of the other.
func TestFoldHandsOutWholeEpochs(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		var logs [2][]record.Record
		offset := [2]int64{int64(r.IntN(3)), int64(r.IntN(3))}
		start := offset
		put := func(c int, key, value []byte) {
			logs[c] = append(logs[c], record.Record{Key: key, Value: value, Offset: offset[c]})
			offset[c]++
		}
		marker := func(c int) {
			logs[c] = append(logs[c], record.Record{Control: true, Offset: offset[c]})
			offset[c]++
		}
		want := map[uint64][2]int{} // changes, by epoch and changelog
		ends := map[uint64][2]int64{}
		positions := []int64{offset[0], offset[1]}
		epochs := uint64(1 + r.IntN(20))
		for e := uint64(1); e <= epochs; e++ {
			if r.IntN(4) == 0 { // an aborted transaction leaves a hole and a marker
				c := r.IntN(2)
				offset[c] += int64(r.IntN(3))
				marker(c)
			}
			touched := []bool{true, r.IntN(2) == 0}
			if touched[1] && r.IntN(2) == 0 {
				touched[0] = false
			}
			var n [2]int
			began := slices.Clone(positions)
			rec := &txn.EpochRecord{Epoch: e, Incarnation: 1, Touched: touched, Positions: began}
			for c := range logs {
				if !touched[c] {
					continue
				}
				n[c] = r.IntN(5)
				for i := range n[c] {
					put(c, fmt.Appendf(nil, "key-%d-%d-%d", c, e, i), fmt.Append(nil, e))
				}
				put(c, statestore.MetaKey(), rec.Append(nil))
				positions[c] = offset[c]
			}
			want[e], ends[e] = n, [2]int64{positions[0], positions[1]}
			for c := range logs {
				if touched[c] {
					marker(c)
				}
			}
		}
		f := newFold([]string{"a", "b"}, 0, start[:], 0)
		seen := uint64(0)
		for len(logs[0])+len(logs[1]) > 0 {
			c := r.IntN(2)
			n := min(1+r.IntN(6), len(logs[c]))
			if err := f.add(c, logs[c][:n]); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			logs[c] = logs[c][n:]
			for {
				parts, ok := f.next()
				if !ok {
					break
				}
				seen++
				for c, p := range parts {
					if p == nil {
						if want[seen][c] > 0 {
							t.Fatalf("seed %d: epoch %d comes without its %d changes of changelog %d", seed, seen, want[seen][c], c)
						}
						continue
					}
					if p.rec.Epoch != seen || len(p.changes) != want[seen][c] || p.next != ends[seen][c] {
						t.Fatalf("seed %d: epoch %d has %d changes of changelog %d up to offset %d; want epoch %d, %d changes, %d",
							seed, p.rec.Epoch, len(p.changes), c, p.next, seen, want[seen][c], ends[seen][c])
					}
				}
			}
		}
		if seen != epochs || f.bytes != 0 {
			t.Fatalf("seed %d: %d epochs came out whole, want %d; %d bytes wait", seed, seen, epochs, f.bytes)
		}
		for c := range logs {
			if at, ok := f.idle(c); !ok || at != offset[c] {
				t.Fatalf("seed %d: changelog %d is read to %d, %v; want %d", seed, c, at, ok, offset[c])
			}
		}
	}
}

// TestFoldAfterCompaction: an epoch record that compaction has taken does not hold up what comes after it, and what its
// epoch wrote is not lost.
func TestFoldAfterCompaction(t *testing.T) {
	rec := func(e uint64, touched ...bool) []byte {
		return (&txn.EpochRecord{Epoch: e, Touched: touched, Positions: []int64{0, 0}}).Append(nil)
	}
	f := newFold([]string{"a", "b"}, 0, []int64{0, 0}, 0)
	// Epoch 1 wrote both; its record is gone from a, where epoch 3 wrote later.
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(f.add(1, []record.Record{{Key: []byte("x"), Value: []byte("1"), Offset: 0}, {Key: statestore.MetaKey(), Value: rec(1, true, true), Offset: 1}}))
	if _, ok := f.next(); ok {
		t.Fatal("epoch 1 came out before the other changelog was read")
	}
	must(f.add(0, []record.Record{{Key: []byte("y"), Value: []byte("1"), Offset: 0}, {Key: statestore.MetaKey(), Value: rec(3, true, false), Offset: 7}}))
	parts, ok := f.next()
	if !ok || parts[0] != nil || parts[1] == nil || parts[1].rec.Epoch != 1 {
		t.Fatalf("first came %v, %v", parts, ok)
	}
	parts, ok = f.next()
	if !ok || parts[0] == nil || parts[0].rec.Epoch != 3 || len(parts[0].changes) != 1 {
		t.Fatalf("then came %v, %v", parts, ok)
	}
}

// TestFoldGivesUpWholenessForMemory: what waits for its end can be taken out in pieces, and nothing of it comes twice.
func TestFoldGivesUpWholenessForMemory(t *testing.T) {
	f := newFold([]string{"a"}, 0, []int64{5}, 0)
	key := []byte("key")
	if err := f.add(0, []record.Record{{Key: key, Value: []byte("1"), Offset: 5}, {Key: key, Value: []byte("2"), Offset: 6}}); err != nil {
		t.Fatal(err)
	}
	if _, ok := f.next(); ok || f.bytes != 8 {
		t.Fatalf("%d bytes wait", f.bytes)
	}
	out := f.takeOpen()
	if len(out[0]) != 1 || len(out[0][0].changes) != 2 || out[0][0].next != 7 || f.bytes != 0 {
		t.Fatalf("taken out: %+v", out)
	}
	end := (&txn.EpochRecord{Epoch: 1, Touched: []bool{true}, Positions: []int64{5}}).Append(nil)
	if err := f.add(0, []record.Record{{Key: key, Offset: 7}, {Key: statestore.MetaKey(), Value: end, Offset: 8}}); err != nil {
		t.Fatal(err)
	}
	parts, ok := f.next()
	if !ok || len(parts[0].changes) != 1 || parts[0].changes[0].value != nil || parts[0].next != 9 {
		t.Fatalf("the rest: %+v, %v", parts, ok)
	}
}
