// Command copy reads events, leaves out the small ones and writes the others again, exactly once.
package main

import (
	"cmp"
	"flag"
	"os"
	"time"

	"github.com/millrace-stream/millrace"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
)

// Event is a purchase; its Kafka key is the user.
type Event struct {
	User   string    `json:"user"`
	Item   string    `json:"item"`
	Amount float64   `json:"amount"`
	At     time.Time `json:"ts,unixmilli"`
	Note   string    `json:"note"`
}

var (
	in  = flag.String("in", cmp.Or(os.Getenv("IN"), "events"), "input topic (environment: IN)")
	out = flag.String("out", cmp.Or(os.Getenv("OUT"), "copies"), "output topic (environment: OUT)")
)

func topology(t *processor.Topology) {
	events := processor.FromKeyed(t, format.String(), processor.Topic[Event]{Name: *in})
	processor.ToTopic(events.Filter(func(e Event) bool { return e.Amount >= 1 }), *out)
}

func main() { millrace.Main("copy", topology) }
