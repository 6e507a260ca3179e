package processor_test

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
)

type customer struct {
	Name    string `json:"name"`
	Country string `json:"country"`
}

type billed struct {
	User    string  `json:"user"`
	Country string  `json:"country"`
	Amount  float64 `json:"amount"`
}

func purchasesOf(t *processor.Topology) processor.KeyedStream[string, purchase] {
	return processor.FromKeyed(t, format.String(), processor.Topic[purchase]{Name: "purchases",
		EventTime: func(p purchase) time.Time { return p.At }, MaxOutOfOrder: 2 * time.Second})
}

// Small reference data: every subtask has all customers.
func ExampleGlobalTableFrom() {
	t := processor.New()
	customers := processor.GlobalTableFrom(t, "customers", format.String(), processor.Topic[customer]{Name: "customers"})
	bills := processor.JoinGlobal(purchasesOf(t), customers, func(p purchase) string { return p.User },
		func(p purchase, c customer) billed { return billed{p.User, c.Country, p.Amount} })
	processor.ToTopic(bills, "bills")
	fmt.Println(t.Validate())
	// Output: <nil>
}

// Purchases of unknown users are kept, and so is the key of the stream.
func ExampleLeftJoinGlobalValues() {
	t := processor.New()
	customers := processor.GlobalTableFrom(t, "customers", format.String(), processor.Topic[customer]{Name: "customers"})
	bills := processor.LeftJoinGlobalValues(purchasesOf(t), customers, func(p purchase) string { return p.User },
		func(p purchase, c *customer) billed {
			if c == nil {
				return billed{p.User, "unknown", p.Amount}
			}
			return billed{p.User, c.Country, p.Amount}
		})
	processor.ToTopic(bills, "bills")
	fmt.Println(t.Validate())
	// Output: <nil>
}

type rule struct {
	ID    string  `json:"id"`
	Limit float64 `json:"limit"` // 0 = the rule is gone
}

type alert struct {
	User string `json:"user"`
	Rule string `json:"rule"`
}

// Rules that change while the job runs: each purchase is checked against all that are known.
func ExampleBroadcast() {
	t := processor.New()
	rules := processor.Broadcast(processor.From(t, processor.Topic[rule]{Name: "rules"}), "rules",
		func(r rule) string { return r.ID }, func(r rule) bool { return r.Limit == 0 })
	alerts := processor.Process(purchasesOf(t), "check", func(ctx *processor.KeyedContext[string, purchase, alert]) {
		known := processor.Lookup(ctx, rules)
		ctx.OnRecord(func(p purchase) error {
			for id, r := range known.All() {
				if p.Amount > r.Limit {
					ctx.Emit(alert{p.User, id})
				}
			}
			return nil
		})
	})
	processor.ToTopic(alerts, "alerts")
	fmt.Println(t.Validate())
	// Output: <nil>
}

// A rule that also looks back: when it comes, the keys that are above it already are reported.
func ExampleProcessBroadcast() {
	t := processor.New()
	rules := processor.From(t, processor.Topic[rule]{Name: "rules"})
	alerts := processor.ProcessBroadcast(purchasesOf(t), rules, "totals", func(ctx *processor.BroadcastContext[string, purchase, rule, alert]) {
		known := processor.BroadcastState[string, rule](ctx, "rules")
		total := processor.Value[float64](ctx, "total")
		ctx.OnBroadcast(func(r rule) error {
			known.Put(r.ID, r)
			return processor.EachKey(ctx, total, func() error {
				if total.Get() > r.Limit {
					ctx.Emit(alert{ctx.Key(), r.ID})
				}
				return nil
			})
		})
		ctx.OnRecord(func(p purchase) error {
			before := total.Get()
			total.Set(before + p.Amount)
			for id, r := range known.All() {
				if before <= r.Limit && total.Get() > r.Limit {
					ctx.Emit(alert{p.User, id})
				}
			}
			return nil
		})
	})
	processor.ToTopic(alerts, "alerts")
	fmt.Println(t.Validate())
	// Output: <nil>
}

// A score from a service for each purchase: 200 requests of a subtask at a time, three tries, two seconds in all; a
// purchase whose score does not come in time gets the worst.
func ExampleAsync() {
	score := func(context.Context, purchase) (float64, error) { return 0.5, nil } // a request to the service

	type scored struct {
		User  string  `json:"user"`
		Score float64 `json:"score"`
	}
	t := processor.New()
	options := processor.AsyncOptions{Capacity: 200, Timeout: 2 * time.Second, Retry: processor.Retry{Attempts: 3}}
	scores := processor.Async(purchasesOf(t), "score", options, func(ctx context.Context, p purchase) (scored, error) {
		s, err := score(ctx, p)
		return scored{p.User, s}, err
	}).OnTimeout(func(p purchase) (scored, error) { return scored{p.User, 1}, nil })
	processor.ToTopic(scores, "scores")
	fmt.Println(t.Validate())
	// Output: <nil>
}
