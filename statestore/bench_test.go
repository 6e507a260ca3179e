package statestore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

func userKeys(n int) []string {
	ks := make([]string, n)
	for i := range ks {
		ks[i] = fmt.Sprintf("user-%07d", i)
	}
	return ks
}

// picks is a sequence of keys: Zipf for few keys, uniform for many.
func picks(n int) []uint32 {
	r := rand.New(rand.NewPCG(1, 2))
	z := rand.NewZipf(r, 1.1, 1, uint64(n-1))
	p := make([]uint32, 1<<20)
	for i := range p {
		if n <= 10_000 {
			p[i] = uint32(z.Uint64())
		} else {
			p[i] = r.Uint32N(uint32(n))
		}
	}
	return p
}

func benchTable[V any](b *testing.B, n int, change func(*V)) {
	s := statestore.NewState(memstore.New(), statestore.StateOptions{CacheBytes: 1 << 30})
	tab := must[*statestore.Table[string, V]](b)(statestore.NewTable(s, spec("t", statestore.KindTable), keyOf[string](b), codecOf[V](b)))
	ks, ps := userKeys(n), picks(n)
	for i, k := range ks {
		s.Begin()
		tab.Update(uint16(i&4095), k)
		s.End()
	}
	s.Seal(1)
	s.Committed()
	if err := s.WriteBehind(statestore.Meta{}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		k := ps[i&(len(ps)-1)]
		i++
		s.Begin()
		v, _ := tab.Update(uint16(k&4095), ks[k])
		change(v)
		s.End()
	}
}

func BenchmarkTableUpdate(b *testing.B) {
	b.Run("flat/10k", func(b *testing.B) { benchTable(b, 10_000, func(v *total) { v.n++; v.sum += 1.5 }) })
	b.Run("flat/1M", func(b *testing.B) { benchTable(b, 1_000_000, func(v *total) { v.n++; v.sum += 1.5 }) })
	b.Run("string/10k", func(b *testing.B) { benchTable(b, 10_000, func(v *named) { v.n++; v.name = "name" }) })
	b.Run("slice/10k", func(b *testing.B) {
		benchTable(b, 10_000, func(v *basket) { v.items = append(v.items[:min(len(v.items), 5)], 7) })
	})
}

// BenchmarkTableChurn is updates of 1,000,000 keys, of which the cache has room for a fourth, over a store that is never asked
// long. worst-ms is the longest step, of Begin and one update, once the cache is full.
func BenchmarkTableChurn(b *testing.B) {
	for _, prefix := range []string{"", "a-prefix-that-makes-keys-long-"} {
		b.Run(fmt.Sprint(len(prefix)+14), func(b *testing.B) {
			const n = 1_000_000
			s := statestore.NewState(nullStore{}, statestore.StateOptions{CacheBytes: int64(n) / 4 * int64(60+len(prefix))})
			tab := newTable[total](b, s, "t")
			ks := userKeys(n)
			for i := range ks {
				ks[i] = prefix + ks[i]
			}
			r := rand.New(rand.NewPCG(1, 2))
			i, worst := 0, time.Duration(0)
			step := func() {
				k := r.IntN(n)
				from := time.Now()
				s.Begin()
				v, _ := tab.Update(uint16(k&4095), ks[k])
				worst = max(worst, time.Since(from))
				v.n++
				s.End()
				if i++; i%20_000 == 0 {
					s.Seal(uint64(i))
					s.Committed()
					if err := s.WriteBehind(statestore.Meta{}); err != nil {
						b.Fatal(err)
					}
				}
			}
			for range n {
				step()
			}
			worst = 0
			b.ReportAllocs()
			for b.Loop() {
				step()
			}
			b.ReportMetric(float64(worst.Microseconds())/1000, "worst-ms")
		})
	}
}

// BenchmarkTableGrow is inserts of new keys, 2,000,000 of them, then again into an empty table. worst-ms is the longest.
func BenchmarkTableGrow(b *testing.B) {
	const n = 2_000_000
	ks := userKeys(n)
	var tab *statestore.Table[string, total]
	var s *statestore.State
	i, worst := 0, time.Duration(0)
	b.ReportAllocs()
	for b.Loop() {
		if i%n == 0 {
			s = statestore.NewState(nullStore{}, statestore.StateOptions{CacheBytes: 1 << 30})
			tab = newTable[total](b, s, "t")
		}
		k := ks[i%n]
		i++
		from := time.Now()
		s.Begin()
		tab.Update(1, k)
		s.End()
		worst = max(worst, time.Since(from))
		if i%20_000 == 0 {
			s.Seal(uint64(i))
			s.Committed()
			if err := s.WriteBehind(statestore.Meta{}); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(worst.Microseconds())/1000, "worst-ms")
}

func benchSeal[V any](b *testing.B, change func(*V)) {
	const n = 10_000
	s := statestore.NewState(memstore.New(), statestore.StateOptions{CacheBytes: 1 << 30})
	tab := must[*statestore.Table[string, V]](b)(statestore.NewTable(s, spec("t", statestore.KindTable), keyOf[string](b), codecOf[V](b)))
	ks := userKeys(n)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		for i, k := range ks {
			s.Begin()
			v, _ := tab.Update(uint16(i&4095), k)
			change(v)
			s.End()
		}
		b.StartTimer()
		s.Seal(1)
		s.Committed()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/key")
}

// BenchmarkSeal is Seal and Committed of 10,000 dirty keys.
func BenchmarkSeal(b *testing.B) {
	b.Run("flat", func(b *testing.B) { benchSeal(b, func(v *total) { v.n += 1000; v.sum += 1.5 }) })
	b.Run("string", func(b *testing.B) { benchSeal(b, func(v *named) { v.n++; v.name = "name" }) })
	b.Run("slice", func(b *testing.B) {
		benchSeal(b, func(v *basket) { v.items = append(v.items[:min(len(v.items), 5)], 7) })
	})
}

func BenchmarkWriteBehind(b *testing.B) {
	const n = 10_000
	s := statestore.NewState(nullStore{}, statestore.StateOptions{CacheBytes: 1 << 30})
	tab := must[*statestore.Table[string, total]](b)(statestore.NewTable(s, spec("t", statestore.KindTable), keyOf[string](b), codecOf[total](b)))
	ks := userKeys(n)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		for i, k := range ks {
			v, _ := tab.Update(uint16(i&4095), k)
			v.n++
		}
		s.Seal(1)
		s.Committed()
		b.StartTimer()
		if err := s.WriteBehind(statestore.Meta{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/key")
}

// nullStore swallows everything.
type nullStore struct{}

func (nullStore) Get([]byte) ([]byte, bool, error)              { return nil, false, nil }
func (nullStore) Scan(_, _ []byte) (statestore.Iterator, error) { return nullIterator{}, nil }
func (nullStore) NewBatch() statestore.Batch                    { return nullBatch{} }
func (nullStore) Flush() error                                  { return nil }
func (nullStore) FlushBehind() error                            { return nil }
func (nullStore) Busy() (bool, error)                           { return false, nil }
func (nullStore) Meta() (statestore.Meta, bool)                 { return statestore.Meta{}, false }
func (nullStore) Size() int64                                   { return 0 }
func (nullStore) Close() error                                  { return nil }

type nullBatch struct{}

func (nullBatch) Set(_, _ []byte)              {}
func (nullBatch) Delete([]byte)                {}
func (nullBatch) DeleteRange(_, _ []byte)      {}
func (nullBatch) Len() int                     { return 0 }
func (nullBatch) Commit(statestore.Meta) error { return nil }
func (nullBatch) Discard()                     {}

type nullIterator struct{}

func (nullIterator) Next() bool    { return false }
func (nullIterator) Key() []byte   { return nil }
func (nullIterator) Value() []byte { return nil }
func (nullIterator) Err() error    { return nil }
func (nullIterator) Close() error  { return nil }

// BenchmarkWindows is 200,000 updates of 10,000 keys per window, closing included: a pass over the entries, Drop, and
// an epoch every 20,000 updates.
func BenchmarkWindows(b *testing.B) {
	s := statestore.NewState(nullStore{}, statestore.StateOptions{CacheBytes: 1 << 30})
	w := must[*statestore.Windows[string, total]](b)(statestore.NewWindows(s, spec("w", statestore.KindWindows), keyOf[string](b), codecOf[total](b)))
	ks, ps := userKeys(10_000), picks(10_000)
	b.ReportAllocs()
	i := 0
	sum := int64(0)
	for b.Loop() {
		k := ps[i&(len(ps)-1)]
		end := int64(i/200_000+1) * 1000
		s.Begin()
		v, _ := w.Update(end, uint16(k&4095), ks[k])
		v.n++
		v.sum += 1.5
		s.End()
		i++
		if i%200_000 == 0 {
			s.Begin()
			if err := w.Each(end, func(_ statestore.Group, _ string, v *total) error { sum += v.n; return nil }); err != nil {
				b.Fatal(err)
			}
			w.Drop(end)
			s.End()
		}
		if i%20_000 == 0 {
			s.Seal(uint64(i))
			s.Committed()
		}
	}
}

// BenchmarkTimers pops the earliest of n timers and sets a later one.
func BenchmarkTimers(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := statestore.NewState(nullStore{}, statestore.StateOptions{CacheBytes: 1 << 30})
			x := must[*statestore.Timers[int64]](b)(statestore.NewTimers(s, spec("x", statestore.KindTimers), keyOf[int64](b)))
			r := rand.New(rand.NewPCG(1, 2))
			for i := range n {
				x.Set(r.Int64N(1_000_000), uint16(i&4095), int64(i), 0)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				s.Begin()
				at, g, k, id, _ := x.Pop(1 << 60)
				x.Set(at+r.Int64N(1_000_000), g, k, id)
				s.End()
				if i++; i%20_000 == 0 {
					s.Seal(1)
					s.Committed()
				}
				if i%200_000 == 0 {
					if err := s.WriteBehind(statestore.Meta{}); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

func BenchmarkMap(b *testing.B) {
	s := statestore.NewState(nullStore{}, statestore.StateOptions{CacheBytes: 1 << 30})
	m := must[*statestore.Map[string, int64, total]](b)(statestore.NewMap(s, spec("m", statestore.KindMap), keyOf[string](b), keyOf[int64](b), codecOf[total](b)))
	ks, ps := userKeys(1000), picks(1000)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		k := ps[i&(len(ps)-1)]
		s.Begin()
		m.Put(uint16(k), ks[k], int64(i%16), total{n: 1})
		s.End()
		i++
	}
}

type four struct {
	a    int64
	b    float64
	user string
	ok   bool
}

func BenchmarkCodec(b *testing.B) {
	c := codecOf[four](b)
	v := four{1234, 5.5, "user-123", true}
	var buf []byte
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf = c.Append(buf[:0], &v)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		var w four
		for b.Loop() {
			if err := c.Decode(buf, &w); err != nil {
				b.Fatal(err)
			}
		}
	})
}
