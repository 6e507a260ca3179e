package task

import (
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/statestore"
)

// Task is the runtime of one subtask. See the end of contract.go for the order in which its methods are called.
type Task struct{}

// Enqueue hands over fetched records of a partition, in offset order.
func (t *Task) Enqueue(input int, partition int32, recs []record.Record) {}

// Step processes up to max records.
func (t *Task) Step(max int, now int64) (n int, err error) { return 0, nil }

// Tick fires what processing time makes due.
func (t *Task) Tick(now int64) error { return nil }

// TakeOutputs returns the outputs of finished records since the last call.
func (t *Task) TakeOutputs() []record.Output { return nil }

// Seal ends the running epoch.
func (t *Task) Seal(epoch uint64, now int64) (*Sealed, error) { return &Sealed{Epoch: epoch}, nil }

// Committed says that the sealed epoch is committed.
func (t *Task) Committed(m statestore.Meta) error { return nil }

// Stats returns the task's counters.
func (t *Task) Stats() Stats { return Stats{} }

// Close ends the task.
func (t *Task) Close() error { return nil }
