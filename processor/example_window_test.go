package processor_test

import (
	"fmt"
	"iter"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/window"
)

func purchasesByUser(t *processor.Topology) processor.KeyedStream[string, purchase] {
	return processor.FromKeyed(t, format.String(), processor.Topic[purchase]{Name: "purchases",
		EventTime: func(p purchase) time.Time { return p.At }, MaxOutOfOrder: 2 * time.Second})
}

func amount(p purchase) float64 { return p.Amount }

func sumOf(w processor.Window[string], sum float64) spent { return spent{w.Key, w.Start, sum} }

// What each user spent within the last hour, every minute. State is kept once for each minute, not for each hour.
func ExampleAggregate_sliding() {
	t := processor.New()
	hop := purchasesByUser(t).Window(window.Sliding(time.Hour, time.Minute))
	processor.ToTopic(processor.Aggregate(hop, "last-hour", processor.Sum(amount), sumOf), "spent")
	fmt.Println(t.Validate())
	// Output: <nil>
}

// Days of the wall clock in Berlin, also those of 23 and 25 hours; a first result every ten seconds, and again whenever
// a late purchase comes within an hour of the end.
func ExampleWindowedStream_EmitEarly() {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	t := processor.New()
	days := purchasesByUser(t).Window(window.Day(berlin)).EmitEarly(10 * time.Second).AllowedLateness(time.Hour)
	processor.ToTopic(processor.Aggregate(days, "per-day", processor.Sum(amount), sumOf), "spent")
	fmt.Println(t.Validate())
	// Output: <nil>
}

// Sessions of purchases with all of them at hand. When a stream falls silent, the clock ends its last session.
func ExampleApplyWindow() {
	t := processor.New()
	sessions := purchasesByUser(t).Window(window.Session(30 * time.Minute)).AdvanceWhenIdle(time.Minute)
	longest := processor.ApplyWindow(sessions, "pauses", func(w processor.Window[string], values iter.Seq[purchase], emit func(float64)) error {
		var longest time.Duration
		last := w.Start
		for p := range values { // in order of event time
			longest = max(longest, p.At.Sub(last))
			last = p.At
		}
		emit(longest.Minutes())
		return nil
	})
	processor.ToTopic(longest, "pauses")
	fmt.Println(t.Validate())
	// Output: <nil>
}

// The sum of each hour is emitted when it differs from the one that was emitted before: state of the window, which
// goes with it, knows that one.
func ExampleProcessWindow() {
	t := processor.New()
	hours := purchasesByUser(t).Window(window.Tumbling(time.Hour)).EmitEarly(time.Second)
	changes := processor.ProcessWindow(hours, "changes", processor.Sum(amount), func(ctx *processor.WindowContext[string, float64, spent]) {
		last := processor.WindowValue[float64](ctx, "last")
		ctx.OnWindow(func(w processor.Window[string], sum float64) error {
			if before, ok := last.Load(); ok && before == sum {
				return nil
			}
			last.Set(sum)
			ctx.Emit(spent{w.Key, w.Start, sum})
			return nil
		})
	})
	processor.ToTopic(changes, "spent")
	fmt.Println(t.Validate())
	// Output: <nil>
}

// The last hundred purchases of each user, after every ten.
func ExampleKeyedStream_CountWindow() {
	t := processor.New()
	last := purchasesByUser(t).CountWindow(100, 10)
	processor.ToTopic(processor.Aggregate(last, "last-100", processor.Sum(amount), sumOf), "spent")
	fmt.Println(t.Validate())
	// Output: <nil>
}

// A trigger of the program's own: it fires when a purchase is at least twice the largest before it.
func ExampleWindowedStream_Trigger() {
	doubled := window.Custom[float64]{
		Name: "doubled",
		OnElement: func(c window.Context, largest *float64) window.Action {
			p := window.Element[purchase](c)
			if p.Amount < 2**largest {
				return window.Continue
			}
			*largest = p.Amount
			return window.Fire
		},
	}
	t := processor.New()
	all := purchasesByUser(t).Window(window.Global()).Trigger(doubled.Trigger())
	processor.ToTopic(processor.Aggregate(all, "totals", processor.Sum(amount), sumOf), "spent")
	fmt.Println(t.Validate())
	// Output: <nil>
}
