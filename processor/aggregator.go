package processor

import "cmp"

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
