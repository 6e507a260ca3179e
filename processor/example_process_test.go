package processor_test

import (
	"fmt"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
)

type click struct {
	User string    `json:"user"`
	Page string    `json:"page"`
	At   time.Time `json:"ts,unixmilli"`
}

// Two keyed streams meet in shared state: a purchase is sent on with the last page that its user looked at within half
// an hour of processing time.
func ExampleConnect() {
	t := processor.New()
	purchases := processor.FromKeyed(t, format.String(), processor.Topic[purchase]{Name: "purchases"})
	clicks := processor.FromKeyed(t, format.String(), processor.Topic[click]{Name: "clicks"})
	out := processor.Connect(purchases, clicks, "with-page", func(ctx *processor.CoContext[string, purchase, click, string]) {
		page := processor.Value[string](ctx, "page", processor.TTL{After: 30 * time.Minute})
		unknown := ctx.Metrics().Counter("unknown")
		ctx.OnLeft(func(p purchase) error {
			last, ok := page.Load()
			if !ok {
				unknown.Inc()
			}
			ctx.Emit(fmt.Sprintf("%s bought for %.2f after %q", ctx.Key(), p.Amount, last))
			return nil
		})
		ctx.OnRight(func(c click) error { page.Set(c.Page); return nil })
	})
	processor.ToTopic(out, "purchases-with-page")
	fmt.Println(t.Validate())
	// Output: <nil>
}

// A stream is split by side outputs, without a key: what is not well formed goes its own way.
func ExampleProcessStream() {
	t := processor.New()
	small := processor.NewOutputTag[purchase]("small")
	purchases := processor.From(t, processor.Topic[purchase]{Name: "purchases"})
	large := processor.ProcessStream(purchases, "by-size", func(ctx *processor.Context[purchase, purchase]) {
		ctx.OnRecord(func(p purchase) error {
			if p.Amount < 100 {
				small.Emit(ctx, p)
			} else {
				ctx.Emit(p)
			}
			return nil
		})
	})
	processor.ToTopic(large, "large-purchases")
	processor.ToTopic(processor.SideOutput(large, small), "small-purchases")
	fmt.Println(t.Validate())
	// Output: <nil>
}

// An operator list belongs to a subtask: here it holds what came since the last second, and sends it on together.
func ExampleOperatorList() {
	t := processor.New()
	purchases := processor.From(t, processor.Topic[purchase]{Name: "purchases"})
	batches := processor.ProcessStream(purchases, "batch", func(ctx *processor.Context[purchase, []purchase]) {
		held := processor.OperatorList[purchase](ctx, "held")
		ctx.OnRecord(func(p purchase) error { held.Add(p); return nil })
		ctx.OnTick(time.Second, func(time.Time) error {
			var batch []purchase
			for p := range held.All() {
				batch = append(batch, p)
			}
			if len(batch) > 0 {
				ctx.Emit(batch)
				held.Clear()
			}
			return nil
		})
	})
	processor.ToTopic(batches, "batches")
	fmt.Println(t.Validate())
	// Output: <nil>
}

// An accumulator by key in a Process function: the largest purchase of each user.
func ExampleReducing() {
	t := processor.New()
	purchases := processor.FromKeyed(t, format.String(), processor.Topic[purchase]{Name: "purchases"})
	out := processor.Process(purchases, "largest", func(ctx *processor.KeyedContext[string, purchase, float64]) {
		largest := processor.Reducing(ctx, "largest", func(kept, v float64) float64 { return max(kept, v) })
		ctx.OnRecord(func(p purchase) error {
			largest.Add(p.Amount)
			ctx.Emit(largest.Get())
			return nil
		})
	})
	processor.ToTopic(out, "largest-purchases")
	fmt.Println(t.Validate())
	// Output: <nil>
}

// The time is in the value of some topics only: it is taken in the middle of the chain. Another topic has it in a header,
// as text in microseconds.
func ExampleAssignEventTime() {
	t := processor.New()
	web := processor.From(t, processor.Topic[click]{Name: "web-clicks"})
	app := processor.From(t, processor.Topic[click]{Name: "app-clicks", EventTimeOf: processor.HeaderTime[click]("occurred", processor.UnixMicros)})
	timed := processor.AssignEventTime(web, "click-time", processor.WatermarkStrategy[click]{
		EventTime: func(c click) time.Time { return c.At }, MaxOutOfOrder: 5 * time.Second, Idle: time.Minute})
	processor.ToTopic(processor.Union(timed, app), "clicks")
	fmt.Println(t.Validate())
	// Output: <nil>
}
