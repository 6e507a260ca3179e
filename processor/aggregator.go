package processor

import (
	"cmp"
	"slices"
)

// Aggregator folds values of type T into an accumulator of type A, which is the state that is kept: A must be storable
// (structs, slices, maps and pointers of plain types). Flink: AggregateFunction.
type Aggregator[T, A any] struct {
	Init   func() A            // a new accumulator; nil = the zero A
	Add    func(acc *A, v T)   // adds a value; must be set
	Merge  func(into, from *A) // joins two accumulators; only windows that merge need it
	Remove func(acc *A, v T)   // takes a value out again; only tables with changing rows need it

	name string // of the library's own: what accumulators of equal types mean; "" = unknown
}

// Fold makes an Aggregator of the function that adds a value. Its accumulator begins as the zero A.
func Fold[T, A any](add func(acc *A, v T)) Aggregator[T, A] { return Aggregator[T, A]{Add: add} }

// Merging sets Merge.
func (a Aggregator[T, A]) Merging(f func(into, from *A)) Aggregator[T, A] { a.Merge = f; return a }

// Removing sets Remove.
func (a Aggregator[T, A]) Removing(f func(acc *A, v T)) Aggregator[T, A] { a.Remove = f; return a }

// From sets Init.
func (a Aggregator[T, A]) From(init func() A) Aggregator[T, A] { a.Init = init; return a }

// Number is what Sum adds.
type Number interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

// Count counts values.
func Count[T any]() Aggregator[T, int64] {
	return Aggregator[T, int64]{name: "count", Add: func(a *int64, _ T) { *a++ }, Merge: func(a, b *int64) { *a += *b }, Remove: func(a *int64, _ T) { *a-- }}
}

// Sum adds up f of the values. It wraps around as Go's numbers do.
func Sum[T any, N Number](f func(T) N) Aggregator[T, N] {
	return Aggregator[T, N]{name: "sum", Add: func(a *N, v T) { *a += f(v) }, Merge: func(a, b *N) { *a += *b }, Remove: func(a *N, v T) { *a -= f(v) }}
}

// Extreme is the accumulator of Min and Max.
type Extreme[N cmp.Ordered] struct {
	Value N
	Seen  bool // false: no value yet
}

// Min keeps the least f of the values.
func Min[T any, N cmp.Ordered](f func(T) N) Aggregator[T, Extreme[N]] {
	return extreme("min", f, func(a, b N) bool { return a < b })
}

// Max keeps the greatest f of the values.
func Max[T any, N cmp.Ordered](f func(T) N) Aggregator[T, Extreme[N]] {
	return extreme("max", f, func(a, b N) bool { return a > b })
}

func extreme[T any, N cmp.Ordered](name string, f func(T) N, better func(a, b N) bool) Aggregator[T, Extreme[N]] {
	return Aggregator[T, Extreme[N]]{
		name: name,
		Add: func(a *Extreme[N], v T) {
			if n := f(v); !a.Seen || better(n, a.Value) {
				a.Value, a.Seen = n, true
			}
		},
		Merge: func(a, b *Extreme[N]) {
			if b.Seen && (!a.Seen || better(b.Value, a.Value)) {
				*a = *b
			}
		},
	}
}

// Mean is the accumulator of Avg.
type Mean struct {
	Sum   float64
	Count int64
}

// Value is the average, 0 of no values.
func (m Mean) Value() float64 {
	if m.Count == 0 {
		return 0
	}
	return m.Sum / float64(m.Count)
}

// Avg averages f of the values.
func Avg[T any](f func(T) float64) Aggregator[T, Mean] {
	return Aggregator[T, Mean]{
		name:   "avg",
		Add:    func(a *Mean, v T) { a.Sum += f(v); a.Count++ },
		Merge:  func(a, b *Mean) { a.Sum += b.Sum; a.Count += b.Count },
		Remove: func(a *Mean, v T) { a.Sum -= f(v); a.Count-- },
	}
}

// Pair is the accumulator of Both.
type Pair[A, B any] struct {
	First  A
	Second B
}

// Both runs two aggregators side by side.
func Both[T, A, B any](a Aggregator[T, A], b Aggregator[T, B]) Aggregator[T, Pair[A, B]] {
	both := Aggregator[T, Pair[A, B]]{}
	if a.name != "" && b.name != "" {
		both.name = "both(" + a.name + ", " + b.name + ")"
	}
	if a.Add != nil && b.Add != nil {
		both.Add = func(p *Pair[A, B], v T) { a.Add(&p.First, v); b.Add(&p.Second, v) }
	}
	if a.Init != nil || b.Init != nil {
		both.Init = func() (p Pair[A, B]) {
			if a.Init != nil {
				p.First = a.Init()
			}
			if b.Init != nil {
				p.Second = b.Init()
			}
			return p
		}
	}
	if a.Merge != nil && b.Merge != nil {
		both.Merge = func(x, y *Pair[A, B]) { a.Merge(&x.First, &y.First); b.Merge(&x.Second, &y.Second) }
	}
	if a.Remove != nil && b.Remove != nil {
		both.Remove = func(p *Pair[A, B], v T) { a.Remove(&p.First, v); b.Remove(&p.Second, v) }
	}
	return both
}

// Ranked is a value with what it is ranked by.
type Ranked[T any, N cmp.Ordered] struct {
	Value T
	By    N
}

// TopN keeps the n values with the greatest f, the greatest first; of equal ones that come together the earlier is
// kept. T must be storable. All of them are written with each value that gets among them. n is at least 1.
func TopN[T any, N cmp.Ordered](n int, f func(T) N) Aggregator[T, []Ranked[T, N]] {
	put := func(a *[]Ranked[T, N], r Ranked[T, N]) bool {
		// Behind those that are equal.
		i, _ := slices.BinarySearchFunc(*a, r.By, func(have Ranked[T, N], by N) int {
			if cmp.Compare(have.By, by) >= 0 {
				return -1
			}
			return 1
		})
		if i >= n {
			return false
		}
		if len(*a) >= n {
			*a = (*a)[:n-1]
		}
		*a = slices.Insert(*a, i, r)
		return true
	}
	return Aggregator[T, []Ranked[T, N]]{
		name: "top-n",
		Add:  func(a *[]Ranked[T, N], v T) { put(a, Ranked[T, N]{v, f(v)}) },
		Merge: func(a, b *[]Ranked[T, N]) {
			for _, r := range *b {
				if !put(a, r) {
					break
				}
			}
		},
	}
}

// Set is the accumulator of Distinct: how often each value was there.
type Set[V comparable] struct{ Counts map[V]int64 }

// Len is the number of different values.
func (s Set[V]) Len() int { return len(s.Counts) }

// Distinct keeps the different f of the values, exactly. The whole set is written with each value, so it is for small
// ones; for large ones make f part of the key and count behind it.
func Distinct[T any, V comparable](f func(T) V) Aggregator[T, Set[V]] {
	add := func(s *Set[V], v V, n int64) {
		if s.Counts == nil {
			s.Counts = map[V]int64{}
		}
		if s.Counts[v] += n; s.Counts[v] == 0 {
			delete(s.Counts, v)
		}
	}
	return Aggregator[T, Set[V]]{
		name: "distinct",
		Add:  func(s *Set[V], v T) { add(s, f(v), 1) },
		Merge: func(a, b *Set[V]) {
			for v, n := range b.Counts {
				add(a, v, n)
			}
		},
		Remove: func(s *Set[V], v T) { add(s, f(v), -1) },
	}
}

// Best is the accumulator of MinBy and MaxBy.
type Best[T any, N cmp.Ordered] struct {
	Value T
	By    N
	Seen  bool // false: no value yet
}

// MinBy keeps the value with the least f, of equal ones the first. By event time it is the first value of a window.
func MinBy[T any, N cmp.Ordered](f func(T) N) Aggregator[T, Best[T, N]] {
	return best("min-by", f, func(a, b N) bool { return cmp.Less(a, b) })
}

// MaxBy keeps the value with the greatest f, of equal ones the first. By event time it is the last value of a window.
func MaxBy[T any, N cmp.Ordered](f func(T) N) Aggregator[T, Best[T, N]] {
	return best("max-by", f, func(a, b N) bool { return cmp.Less(b, a) })
}

func best[T any, N cmp.Ordered](name string, f func(T) N, better func(a, b N) bool) Aggregator[T, Best[T, N]] {
	return Aggregator[T, Best[T, N]]{
		name: name,
		Add: func(a *Best[T, N], v T) {
			if n := f(v); !a.Seen || better(n, a.By) {
				*a = Best[T, N]{v, n, true}
			}
		},
		Merge: func(a, b *Best[T, N]) {
			if b.Seen && (!a.Seen || better(b.By, a.By)) {
				*a = *b
			}
		},
	}
}

// Moments is the accumulator of Variance.
type Moments struct {
	Count int64
	Mean  float64
	M2    float64 // sum of the squared distances from Mean
}

// Variance is that of the values as a whole population, 0 of no values. SQL: VAR_POP; its root is STDDEV_POP.
func (m Moments) Variance() float64 {
	if m.Count == 0 {
		return 0
	}
	return m.M2 / float64(m.Count)
}

// SampleVariance is that of a sample, 0 of less than two values. SQL: VAR_SAMP.
func (m Moments) SampleVariance() float64 {
	if m.Count < 2 {
		return 0
	}
	return m.M2 / float64(m.Count-1)
}

// Variance keeps mean and variance of f of the values, by the methods of Welford and Chan, which lose no digits to large
// means.
func Variance[T any](f func(T) float64) Aggregator[T, Moments] {
	return Aggregator[T, Moments]{
		name: "variance",
		Add: func(m *Moments, v T) {
			x := f(v)
			m.Count++
			d := x - m.Mean
			m.Mean += d / float64(m.Count)
			m.M2 += d * (x - m.Mean)
		},
		Merge: func(a, b *Moments) {
			if b.Count == 0 {
				return
			}
			n := float64(a.Count + b.Count)
			d := b.Mean - a.Mean
			a.M2 += b.M2 + d*d*float64(a.Count)*float64(b.Count)/n
			a.Mean += d * float64(b.Count) / n
			a.Count += b.Count
		},
	}
}

// Only folds those values that pred is true for; a window of which it is true for none has the accumulator as it
// began. SQL: FILTER.
func Only[T, A any](pred func(T) bool, agg Aggregator[T, A]) Aggregator[T, A] {
	out := agg
	if agg.name != "" {
		out.name = "only(" + agg.name + ")"
	}
	if agg.Add != nil && pred != nil {
		out.Add = func(a *A, v T) {
			if pred(v) {
				agg.Add(a, v)
			}
		}
	} else {
		out.Add = nil
	}
	if agg.Remove != nil {
		out.Remove = func(a *A, v T) {
			if pred(v) {
				agg.Remove(a, v)
			}
		}
	}
	return out
}
