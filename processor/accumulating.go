package processor

import "fmt"

// AccumulatingState is an accumulator for each key, to which values are added. Flink: AggregatingState.
type AccumulatingState[T, A any] struct {
	s   valueOps[A]
	add func(acc *A, existed bool, v T)
}

// Accumulating makes the handle of an accumulating state: see Value. Its value is the accumulator of agg, so Count, Sum
// and the other aggregators of the library serve as well as one's own.
func Accumulating[T, A any, K comparable](ctx StateContext[K], name string, agg Aggregator[T, A], o ...StateOption) *AccumulatingState[T, A] {
	c := ctx.keyed()
	if agg.Add == nil {
		c.errs = append(c.errs, fmt.Errorf("state %q: the aggregator has no Add", name))
	}
	return &AccumulatingState[T, A]{valueOf[A](c, name, agg.name, o), agg.add()}
}

// Reducing is Accumulating of a function that makes one value of two: the first value is kept as it is. Flink:
// ReducingState.
func Reducing[T any, K comparable](ctx StateContext[K], name string, f func(kept, v T) T, o ...StateOption) *AccumulatingState[T, T] {
	c := ctx.keyed()
	if f == nil {
		c.errs = append(c.errs, fmt.Errorf("state %q: the function is nil", name))
	}
	return &AccumulatingState[T, T]{valueOf[T](c, name, "", o), func(acc *T, existed bool, v T) {
		if existed {
			v = f(*acc, v)
		}
		*acc = v
	}}
}

// Add adds a value to the accumulator of the current key.
func (s *AccumulatingState[T, A]) Add(v T) {
	acc, existed := s.s.update()
	s.add(acc, existed, v)
}

// Get is the accumulator of the current key, zero if there is none.
func (s *AccumulatingState[T, A]) Get() (acc A) {
	if p := s.s.get(); p != nil {
		return *p
	}
	return acc
}

// Load is Get that tells whether anything was added.
func (s *AccumulatingState[T, A]) Load() (acc A, ok bool) {
	if p := s.s.get(); p != nil {
		return *p, true
	}
	return acc, false
}

// Clear removes the accumulator of the current key.
func (s *AccumulatingState[T, A]) Clear() { s.s.clear() }
