// Package exec has the operators that only SQL has: retracting aggregates, regular joins, Top-N, deduplication, OVER, set
// operations and the like. Each is made from a physical node of package rel, for one subtask, and is driven by calls: it
// has no clock, no goroutine and no I/O but its state. Package compile runs them in a topology.
package exec

import (
	"time"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/statestore"
)

// Operator is an operator of one subtask.
type Operator interface {
	// Process takes a row of an input, counted from 0. The row is valid for the call. An error, or a panic with a
	// *fn.Failure, undoes all that the call did to state and output, and goes by the operator's policy.
	Process(input int, r *row.Row) error
}

// Timed is an Operator that acts when event time moves on.
type Timed interface {
	// OnWatermark is called once the watermark has reached a time that Context.Due asked for. What it puts out for a key it
	// does in Context.Atomic.
	OnWatermark(before, watermark int64) error
}

// ProcTimed is an Operator that acts when processing time moves on.
type ProcTimed interface {
	// OnTime is called once the clock has reached a time that Context.DueProcessing asked for.
	OnTime(now int64) error
}

// Flusher is an Operator that holds rows back until the epoch ends.
type Flusher interface {
	// BeforeCommit puts out what is held, in an order that depends on nothing but the rows.
	BeforeCommit() error
}

// Remembering is an Operator that has memory beside its stores: it takes back what a step did to it that failed.
type Remembering interface {
	// BeginStep is called at the start of each step of the subtask, UndoStep when it has failed.
	BeginStep()
	UndoStep()
}

// Starter is an Operator that acts when the subtask starts, after its state was restored: it asks for timers again.
type Starter interface {
	Start() error
}

// Delayer is an Operator whose rows may be behind its own watermark: those behind it see a watermark that is so many ms
// less.
type Delayer interface{ Delay() int64 }

// Context is what an operator is given. The constructor of an operator is called twice: at plan time, to declare its
// stores, and in each subtask, where they are opened. Other methods are for Process, OnWatermark, OnTime, BeforeCommit and
// Start only.
type Context interface {
	// Store declares a store. At plan time open is false; in a subtask it is true, and spec is what the statestore's
	// constructors want together with State.
	Store(s StoreSpec) (spec statestore.Spec, open bool)
	State() *statestore.State
	// Sweep removes in the background what has lived life since its last write.
	Sweep(life time.Duration, s *statestore.Sweep)
	// Env is that of the expressions: Now and Watermark are up to date.
	Env() *fn.Env
	// Emit sends a row on: Kind and Time of it are set by the caller. It may be used again after the call.
	Emit(r *row.Row) error
	// Group is the key group of an encoded key: what the stores want beside the key.
	Group(key []byte) statestore.Group
	// Watermark is that of this operator, math.MinInt64 before the first. While a row is processed, it does not include it.
	Watermark() int64
	// Due asks for OnWatermark once the watermark is >= at; it holds until OnWatermark was called, which asks anew.
	Due(at int64)
	// DueProcessing asks for OnTime once the clock is >= at.
	DueProcessing(at int64)
	// Atomic runs f as a step of its own: what it does is undone if it fails, and the policy decides. key names the key in a
	// dead letter.
	Atomic(g statestore.Group, at int64, key []byte, f func() error) error
	// Late counts a late row, and sends it to the table of late rows if there is one.
	Late(input int, r *row.Row)
}

// StoreSpec declares a store of an operator.
type StoreSpec struct {
	Name string // unique in the operator
	Kind statestore.Kind
	// Key and Value are the schemas of the codecs.
	Key, Value string
	// Life of windows after their last write, of window stores.
	Life time.Duration
	// Windows says how windows lie, of a windows store.
	Windows string
}
