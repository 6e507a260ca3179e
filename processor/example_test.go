package processor_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/window"
	"github.com/millrace-stream/millrace/statestore"
)

type purchase struct {
	User   string    `json:"user"`
	Amount float64   `json:"amount"`
	At     time.Time `json:"ts,unixmilli"`
}

type spent struct {
	User  string    `json:"user"`
	Start time.Time `json:"start,unixmilli"`
	Sum   float64   `json:"sum"`
}

// A windowed sum by the record's key, with late records in a topic of their own. A program hands the function to
// millrace.Main.
func Example() {
	topology := func(t *processor.Topology) {
		late := processor.NewOutputTag[purchase]("late")
		purchases := processor.FromKeyed(t, format.String(), processor.Topic[purchase]{Name: "purchases",
			EventTime: func(p purchase) time.Time { return p.At }, MaxOutOfOrder: 2 * time.Second})
		sums := processor.Aggregate(purchases.Window(window.Tumbling(time.Minute)).LateTo(late), "per-user",
			processor.Sum(func(p purchase) float64 { return p.Amount }),
			func(w processor.Window[string], sum float64) spent { return spent{w.Key, w.Start, sum} })
		processor.ToTopic(sums, "spent")
		processor.ToTopic(processor.SideOutput(sums, late), "purchases-late")
	}

	t := processor.New()
	topology(t)
	fmt.Println(t.Validate())
	// Output: <nil>
}

// Keyed state and a timer: a user who has bought nothing for an hour of event time is reported with the last purchase.
func ExampleProcess() {
	t := processor.New()
	purchases := processor.From(t, processor.Topic[purchase]{Name: "purchases",
		EventTime: func(p purchase) time.Time { return p.At }, MaxOutOfOrder: 2 * time.Second})
	byUser := processor.KeyBy(purchases, "by-user", func(p purchase) string { return p.User })
	quiet := processor.Process(byUser, "quiet", func(ctx *processor.KeyedContext[string, purchase, purchase]) {
		last := processor.Value[purchase](ctx, "last")
		ctx.OnRecord(func(p purchase) error {
			if p.Amount < 0 {
				return errors.New("amount is negative")
			}
			if before, ok := last.Load(); ok {
				ctx.DeleteEventTimer(before.At.Add(time.Hour))
			}
			last.Set(p)
			ctx.RegisterEventTimer(p.At.Add(time.Hour))
			return nil
		})
		ctx.OnTimer(func(processor.Timer) error {
			ctx.Emit(last.Get())
			last.Clear()
			return nil
		})
	}, processor.OnError(processor.DeadLetter))
	processor.ToTopic(quiet, "quiet-users")
	fmt.Println(t.Validate())
	// Output: <nil>
}

// A state whose type changed beyond added and removed fields takes the values of earlier versions through a migration.
func ExampleMigrateState() {
	type cents struct{ Total int64 } // as an earlier version kept it
	type money struct{ Amount string }
	top := processor.New()
	orders := processor.FromKeyed(top, format.String(), processor.Topic[int64]{Name: "orders"})
	spent := processor.RunningAggregate(orders, "spent",
		processor.Fold(func(m *money, cents int64) { m.Amount += fmt.Sprintf(" %d", cents) }),
		func(_ string, m money, _ int64) string { return m.Amount },
		processor.MigrateState(statestore.Migrate(func(c cents) (money, error) { return money{fmt.Sprint(c.Total)}, nil })))
	processor.ToTopic(spent, "spent")
	fmt.Println(top.Validate())
	// Output: <nil>
}
