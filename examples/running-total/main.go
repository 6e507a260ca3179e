// Command running-total keeps a count and a sum per user in durable state and writes both after each event.
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
)

// Event is a purchase; its Kafka key is the user.
type Event struct {
	Amount float64   `json:"amount"`
	At     time.Time `json:"ts,unixmilli"`
}

// Total is what a user has bought up to an event.
type Total struct {
	User  string    `json:"user"`
	Count int64     `json:"count"`
	Sum   float64   `json:"sum"`
	At    time.Time `json:"ts,unixmilli"`
}

// total is the state of a user; cents, since a sum of many fractions would drift.
type total struct{ Count, Cents int64 }

var (
	in  = flag.String("in", cmp.Or(os.Getenv("IN"), "events"), "input topic (environment: IN)")
	out = flag.String("out", cmp.Or(os.Getenv("OUT"), "totals"), "output topic (environment: OUT)")
)

func topology(t *processor.Topology) {
	events := processor.FromKeyed(t, format.String(), processor.Topic[Event]{Name: *in})
	totals := processor.Process(events, "total", func(ctx *processor.KeyedContext[string, Event, Total]) {
		state := processor.Value[total](ctx, "total")
		ctx.OnRecord(func(e Event) error {
			a := state.Get()
			a.Count++
			a.Cents += int64(math.Round(e.Amount * 100))
			state.Set(a)
			ctx.Emit(Total{ctx.Key(), a.Count, float64(a.Cents) / 100, e.At})
			return nil
		})
	})
	processor.ToTopic(totals, *out)
}

func main() { millrace.Main("running-total", topology) }
