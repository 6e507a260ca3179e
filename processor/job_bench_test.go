package processor_test

import (
	"math"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
)

// jobEvent, jobRow and jobTotal are those of test/bench/job.
type jobEvent struct {
	User   string    `json:"user"`
	Amount float64   `json:"amount"`
	At     time.Time `json:"ts,unixmilli"`
}

type jobRow struct {
	User  string    `json:"user"`
	Count int64     `json:"count"`
	Sum   float64   `json:"sum"`
	At    time.Time `json:"ts,unixmilli"`
}

type jobTotal struct{ n, cents int64 }

// jobW1 is the running total of test/bench/job.
func jobW1(t *processor.Topology) {
	events := processor.FromKeyed(t, format.String(), processor.Topic[jobEvent]{Name: "orders"})
	processor.ToTopic(processor.RunningAggregate(events, "total",
		processor.Fold(func(a *jobTotal, e jobEvent) { a.n++; a.cents += int64(math.Round(e.Amount * 100)) }),
		func(user string, a jobTotal, e jobEvent) jobRow {
			return jobRow{user, a.n, float64(a.cents) / 100, e.At}
		}), "out")
}

// BenchmarkJob is what test/bench/job does between Kafka and Kafka for each record of W1, an epoch every 50,000: with
// the keys that one of four subtasks has of 10,000 and of 1,000,000.
func BenchmarkJob(b *testing.B) {
	b.Run("2500", func(b *testing.B) { benchmarkChain(b, jobW1, 2_500, 10) })
	b.Run("250000", func(b *testing.B) { benchmarkChain(b, jobW1, 250_000, 10) })
}
