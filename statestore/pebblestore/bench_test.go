package pebblestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/millrace-stream/millrace/statestore"
)

func benchStore(b *testing.B, keys int) *Store {
	b.Helper()
	d, err := OpenDir(b.TempDir(), "app", Options{})
	if err != nil {
		b.Fatal(err)
	}
	st, err := d.Open(statestore.Identity{App: "app", Subtask: "0_0"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := errors.Join(st.Close(), d.Close()); err != nil {
			b.Fatal(err)
		}
	})
	s := st.(*Store)
	value := make([]byte, 64)
	for at := 0; at < keys; at += 10_000 {
		w := s.NewBatch()
		for i := at; i < min(at+10_000, keys); i++ {
			w.Set(benchKey(uint64(i)*2), value)
		}
		if err := w.Commit(statestore.Meta{Epoch: uint64(at)}); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Flush(); err != nil {
		b.Fatal(err)
	}
	return s
}

func benchKey(i uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{0, 0, 0, 1, 0, 1}, i*0x9e3779b97f4a7c15)
}

// BenchmarkGet reads random keys, there and not there.
func BenchmarkGet(b *testing.B) {
	const keys = 200_000
	s := benchStore(b, keys)
	for _, c := range []struct {
		name string
		odd  uint64
	}{{"hit", 0}, {"miss", 1}} {
		b.Run(c.name, func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 2))
			for b.Loop() {
				if _, _, err := s.Get(benchKey(r.Uint64N(keys)*2 + c.odd)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkScan reads 1,000 entries in order.
func BenchmarkScan(b *testing.B) {
	s := benchStore(b, 200_000)
	for b.Loop() {
		it, err := s.Scan(nil, nil)
		if err != nil {
			b.Fatal(err)
		}
		for range 1000 {
			it.Next()
		}
		if err := it.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCommit writes batches of 10,000 keys and flushes each.
func BenchmarkCommit(b *testing.B) {
	s := benchStore(b, 100_000)
	value := make([]byte, 64)
	n := uint64(0)
	for b.Loop() {
		w := s.NewBatch()
		for range 10_000 {
			w.Set(benchKey(n%200_000), value)
			n++
		}
		if err := w.Commit(statestore.Meta{Epoch: n}); err != nil {
			b.Fatal(err)
		}
		if err := s.Flush(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFlushSmall is a write-behind of a quiet subtask.
func BenchmarkFlushSmall(b *testing.B) {
	s := benchStore(b, 100_000)
	n := uint64(0)
	for b.Loop() {
		n++
		w := s.NewBatch()
		w.Set(benchKey(n%1000), []byte("v"))
		if err := w.Commit(statestore.Meta{Epoch: n}); err != nil {
			b.Fatal(err)
		}
		if err := s.Flush(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpen16 opens and closes the stores of a process with 16 subtasks.
func BenchmarkOpen16(b *testing.B) {
	d, err := OpenDir(b.TempDir(), "app", Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	for b.Loop() {
		var stores []statestore.Store
		for i := range 16 {
			st, err := d.Open(statestore.Identity{App: "app", Subtask: fmt.Sprintf("0_%d", i)})
			if err != nil {
				b.Fatal(err)
			}
			stores = append(stores, st)
		}
		for _, st := range stores {
			if err := st.Close(); err != nil {
				b.Fatal(err)
			}
		}
	}
}
