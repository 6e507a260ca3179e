// Command window-count counts and sums the events of each user in windows of ten seconds of event time.
package main

import (
	"cmp"
	"flag"
	"math"
	"os"
	"time"

	"github.com/millrace-stream/millrace"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/window"
)

// Event is a purchase; its Kafka key is the user.
type Event struct {
	Amount float64   `json:"amount"`
	At     time.Time `json:"ts,unixmilli"`
}

// Count is what a user has bought in a window.
type Count struct {
	User  string    `json:"user"`
	Start time.Time `json:"start,unixmilli"`
	End   time.Time `json:"end,unixmilli"`
	Count int64     `json:"count"`
	Sum   float64   `json:"sum"`
}

// total is the state of a user and window; cents, since a sum of many fractions would drift.
type total struct{ Count, Cents int64 }

var (
	in  = flag.String("in", cmp.Or(os.Getenv("IN"), "events"), "input topic (environment: IN)")
	out = flag.String("out", cmp.Or(os.Getenv("OUT"), "counts"), "output topic (environment: OUT)")
)

func topology(t *processor.Topology) {
	events := processor.FromKeyed(t, format.String(), processor.Topic[Event]{Name: *in,
		EventTime: func(e Event) time.Time { return e.At }, MaxOutOfOrder: 2 * time.Second})
	counts := processor.Aggregate(events.Window(window.Tumbling(10*time.Second)), "count",
		processor.Fold(func(a *total, e Event) { a.Count++; a.Cents += int64(math.Round(e.Amount * 100)) }),
		func(w processor.Window[string], a total) Count {
			return Count{w.Key, w.Start, w.End, a.Count, float64(a.Cents) / 100}
		})
	processor.ToTopic(counts, *out)
}

func main() { millrace.Main("window-count", topology) }
