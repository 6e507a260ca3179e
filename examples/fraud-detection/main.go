// Command fraud-detection watches card payments: what a card spends in a day against limits that can be changed while it
// runs, and small payments that try out a card before a big one from another country. A service scores what is found, and
// what it thinks likely is an alert.
//
// With --embedded it needs no broker: it makes its own payments and checks its own committed output. With
// --check-on host:port it does that on a broker of yours.
package main

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/millrace-stream/millrace/examples/internal/selfcheck"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/cep"
)

// Payment is one card payment; its Kafka key is the card.
type Payment struct {
	Card    string    `json:"card"`
	Cents   int64     `json:"cents"`
	Country string    `json:"country"`
	At      time.Time `json:"ts,unixmilli"`
}

// Rule limits what a card may spend in a day (UTC). A limit of 0 ends the rule.
type Rule struct {
	ID    string `json:"id"`
	Limit int64  `json:"limit_cents"`
}

// Alert is about one card.
type Alert struct {
	Card  string    `json:"card"`
	Why   string    `json:"why"` // the id of a rule, or probe
	Score float64   `json:"score"`
	At    time.Time `json:"ts,unixmilli"`
}

const (
	maxOutOfOrder = time.Second
	day           = 24 * time.Hour
	likely        = 0.5 // the score from which on there is an alert
)

// probe is a pattern: two or more payments below 1, and then one above 500 from a country where none of them was.
var probe = cep.Begin("small", func(p Payment) bool { return p.Cents < 100 }).TimesOrMore(2).
	FollowedBy("big").WhereMatch(func(m cep.Match[Payment], p Payment) bool {
	return p.Cents > 50_000 && !slices.ContainsFunc(m.All("small"), func(s Payment) bool { return s.Country == p.Country })
}).Within(10 * time.Minute).Skip(cep.SkipPastLast)

func topology(score func(context.Context, Alert) (Alert, error)) func(t *processor.Topology) {
	return func(t *processor.Topology) {
		payments := processor.FromKeyed(t, format.String(), processor.Topic[Payment]{Name: "payments",
			EventTime: func(p Payment) time.Time { return p.At }, MaxOutOfOrder: maxOutOfOrder})
		rules := processor.Broadcast(processor.From(t, processor.Topic[Rule]{Name: "rules"}), "rules",
			func(r Rule) string { return r.ID }, func(r Rule) bool { return r.Limit == 0 })

		over := processor.Process(payments, "limits", func(ctx *processor.KeyedContext[string, Payment, Alert]) {
			spent := processor.MapOf[int64, int64](ctx, "spent", processor.TTL{After: 2 * day}) // by day
			active := processor.Lookup(ctx, rules)
			ctx.OnRecord(func(p Payment) error {
				today := p.At.Unix() / int64(day.Seconds())
				before, _ := spent.Get(today)
				spent.Put(today, before+p.Cents)
				for id, r := range active.All() {
					if before <= r.Limit && before+p.Cents > r.Limit {
						ctx.Emit(Alert{Card: ctx.Key(), Why: id, At: p.At})
					}
				}
				return nil
			})
		})
		probes := cep.Detect(payments, "probe", probe, func(card string, m cep.Match[Payment]) Alert {
			return Alert{Card: card, Why: "probe", At: m.One("big").At}
		})

		scored := processor.Async(processor.Union(over, probes), "score", processor.AsyncOptions{Capacity: 200, Timeout: 2 * time.Second,
			Retry:                                                                 processor.Retry{Attempts: 3}}, score).
			OnTimeout(func(a Alert) (Alert, error) { a.Score = 1; return a, nil }) // without an answer the worst is assumed
		processor.To(scored.Filter(func(a Alert) bool { return a.Score >= likely }),
			processor.SinkTopic[Alert]{Name: "fraud-alerts", Key: func(a Alert) []byte { return []byte(a.Card) }})
	}
}

// service stands for a scoring service: it takes a few milliseconds, and knows some cards to be harmless.
func service(ctx context.Context, a Alert) (Alert, error) {
	select {
	case <-time.After(3 * time.Millisecond):
		a.Score = scoreOf(a.Card)
		return a, nil
	case <-ctx.Done():
		return a, ctx.Err()
	}
}

func scoreOf(card string) float64 {
	h := fnv.New32a()
	h.Write([]byte(card))
	return float64(h.Sum32()%100) / 100
}

func main() { selfcheck.Main("fraud-detection", topology(service), check) }

// check makes payments, some of stolen cards, and knows which they are.
func check() selfcheck.Check {
	limits := []Rule{{"daily", 100_000}, {"high", 300_000}}
	var want []Alert
	return selfcheck.Check{
		Inputs: []string{"payments", "rules"}, Outputs: []string{"fraud-alerts"},
		Before: func(p *selfcheck.Producer) {
			for _, r := range append(limits, Rule{"gone", 1}, Rule{"gone", 0}) {
				selfcheck.Send(p, "rules", r.ID, r)
			}
		},
		Feed: func(ctx context.Context, p *selfcheck.Producer) error {
			spent := map[string]int64{}
			pay := func(x Payment) {
				selfcheck.Send(p, "payments", x.Card, x)
				// The check would need a day for each card if it ran over midnight.
				key := fmt.Sprint(x.Card, x.At.Unix()/int64(day.Seconds()))
				before := spent[key]
				spent[key] += x.Cents
				for _, r := range limits {
					if before <= r.Limit && spent[key] > r.Limit {
						want = append(want, Alert{x.Card, r.ID, scoreOf(x.Card), x.At})
					}
				}
			}
			stolen := 0
			selfcheck.Every(ctx, 20*time.Millisecond, func(now time.Time) {
				for range 10 {
					pay(Payment{fmt.Sprintf("card-%d", p.Rand.IntN(300)), 500 + p.Rand.Int64N(20_000), "CH", now.Add(-time.Duration(p.Rand.IntN(900)) * time.Millisecond)})
				}
				// A stolen card is used once; its payments may come in any order.
				card := fmt.Sprintf("stolen-%d", stolen)
				stolen++
				uses := []Payment{{card, 10, "CH", now.Add(-200 * time.Millisecond)}, {card, 20, "CH", now.Add(-100 * time.Millisecond)}, {card, 60_000, "US", now}}
				p.Rand.Shuffle(len(uses), func(i, j int) { uses[i], uses[j] = uses[j], uses[i] })
				for _, x := range uses {
					pay(x)
				}
				want = append(want, Alert{card, "probe", scoreOf(card), now})
			})
			end := time.Now().Add(time.Hour)
			for _, card := range selfcheck.Keys("closing-") {
				selfcheck.Send(p, "payments", card, Payment{Card: card, Cents: 1, Country: "CH", At: end})
			}
			want = slices.DeleteFunc(want, func(a Alert) bool { return a.Score < likely })
			slices.SortFunc(want, compareAlerts)
			return nil
		},
		Verify: func(out map[string][]selfcheck.Record) error {
			got, err := selfcheck.Values[Alert](out["fraud-alerts"])
			if err != nil {
				return err
			}
			slices.SortFunc(got, compareAlerts)
			return selfcheck.Compare("alert", got, want)
		},
		Summary: func(map[string][]selfcheck.Record) string { return fmt.Sprintf("%d alerts", len(want)) },
	}
}

func compareAlerts(a, b Alert) int {
	return cmp.Or(cmp.Compare(a.Card, b.Card), a.At.Compare(b.At), cmp.Compare(a.Why, b.Why))
}
