// Package demo is what `millrace demo` runs: a generator of orders, the windowed job on two workers in this process, one
// of which is killed in the middle of a transaction, and a verdict computed from the committed output.
package demo

import (
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/window"
)

// Order is one input event; the Kafka key is the user.
type Order struct {
	ID    int64     `json:"id"`
	User  string    `json:"user"`
	Cents int64     `json:"cents"`
	At    time.Time `json:"ts,unixmilli"`
}

// Count is one output row: what a user ordered in a window. IDs is the sum of the order ids, so that a lost order and
// a doubled one cannot cancel out.
type Count struct {
	User  string    `json:"user"`
	Start time.Time `json:"start,unixmilli"`
	End   time.Time `json:"end,unixmilli"`
	Count int64     `json:"count"`
	Cents int64     `json:"cents"`
	IDs   int64     `json:"ids"`
}

type total struct{ n, cents, ids int64 }

// The job's event time: windows of windowSize, events up to maxOutOfOrder late are waited for.
const (
	windowSize    = 2 * time.Second
	maxOutOfOrder = 1 * time.Second
)

// topology is the whole job.
func topology(in, out, lateOut string) func(*processor.Topology) {
	return func(t *processor.Topology) {
		late := processor.NewOutputTag[Order]("late")
		orders := processor.FromKeyed(t, format.String(), processor.Topic[Order]{
			Name: in, EventTime: func(o Order) time.Time { return o.At }, MaxOutOfOrder: maxOutOfOrder})
		counts := processor.Aggregate(orders.Window(window.Tumbling(windowSize)).LateTo(late), "per-user",
			processor.Fold(func(a *total, o Order) { a.n++; a.cents += o.Cents; a.ids += o.ID }),
			func(w processor.Window[string], a total) Count {
				return Count{w.Key, w.Start, w.End, a.n, a.cents, a.ids}
			})
		processor.ToTopic(counts, out)
		processor.ToTopic(processor.SideOutput(counts, late), lateOut)
	}
}
