package processor

import (
	"errors"
	"fmt"
	"math"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
)

var errNullKey = errors.New("decode key: it is null; use KeyBy")

// repartSource is the read side of a KeyBy. What it cannot decode stops the subtask: we wrote it ourselves.
type repartSource[K comparable, T any] struct {
	fedByWatermarks
	keys   format.Serde[K]
	values statestore.Codec[T]
	next   keyedStep[K, T]
	heads  []repartHead[K, T]
}

type repartHead[K comparable, T any] struct {
	key   K
	group statestore.Group
	value T
}

func (s *repartSource[K, T]) Open(n int) { s.heads = make([]repartHead[K, T], n) }

func (s *repartSource[K, T]) Decode(_ *task.Exec, slot int, rec *record.Record) (int64, error) {
	h := &s.heads[slot]
	at, payload, err := task.DataFrame(rec.Value)
	if err != nil {
		return 0, err
	}
	if err := s.keys.Decode(rec.Key, &h.key); err != nil {
		return 0, fmt.Errorf("decode key of repartition record: %w", err)
	}
	var zero T
	h.value = zero
	if err := s.values.Decode(payload, &h.value); err != nil {
		return 0, fmt.Errorf("decode value of repartition record: %w", err)
	}
	_, h.group = place(rec.Key, 1)
	return at, nil
}

func (s *repartSource[K, T]) Run(x *task.Exec, slot int) error {
	h := &s.heads[slot]
	x.Group = h.group
	return s.next(x, h.key, h.value)
}

// fedByWatermarks is the part of a task.Source of an internal topic that makes watermarks: they come with the records.
type fedByWatermarks struct{}

// OnEvent is of task.Source.
func (fedByWatermarks) OnEvent(int, int64) int64 { return math.MinInt64 }

// OnPeriod is of task.Source.
func (fedByWatermarks) OnPeriod(int) int64 { return math.MinInt64 }
