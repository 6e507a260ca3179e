package processor_test

import (
	"fmt"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/window"
)

type adClick struct {
	User string    `json:"user"`
	Ad   string    `json:"ad"`
	At   time.Time `json:"ts,unixmilli"`
}

type attribution struct {
	User string `json:"user"`
	Ad   string `json:"ad"` // empty: bought without a click
}

func clicksAndPurchases(t *processor.Topology) (processor.KeyedStream[string, adClick], processor.KeyedStream[string, purchase]) {
	clicks := processor.FromKeyed(t, format.String(), processor.Topic[adClick]{Name: "clicks",
		EventTime: func(c adClick) time.Time { return c.At }, MaxOutOfOrder: 2 * time.Second, Idle: time.Minute})
	purchases := processor.FromKeyed(t, format.String(), processor.Topic[purchase]{Name: "purchases",
		EventTime: func(p purchase) time.Time { return p.At }, MaxOutOfOrder: 2 * time.Second, Idle: time.Minute})
	return clicks, purchases
}

// Purchases within half an hour after a click on an ad.
func ExampleIntervalJoin() {
	t := processor.New()
	clicks, purchases := clicksAndPurchases(t)
	bought := processor.IntervalJoin(clicks, purchases, "attribute", processor.Interval{After: 30 * time.Minute},
		func(c adClick, _ purchase) attribution { return attribution{c.User, c.Ad} })
	processor.ToTopic(bought, "attributions")
	fmt.Println(t.Validate())
	// Output: <nil>
}

// Every purchase, with the clicks of the half hour before, or with none.
func ExampleIntervalJoinOuter() {
	t := processor.New()
	clicks, purchases := clicksAndPurchases(t)
	bought := processor.IntervalJoinOuter(clicks, purchases, "attribute", processor.Interval{After: 30 * time.Minute}, processor.Right,
		func(c *adClick, p *purchase) attribution {
			if c == nil {
				return attribution{User: p.User}
			}
			return attribution{c.User, c.Ad}
		})
	processor.ToTopic(bought, "attributions")
	fmt.Println(t.Validate())
	// Output: <nil>
}

// Who clicked on what before they bought, in one visit: a session of clicks and purchases together.
func ExampleCoGroup_session() {
	t := processor.New()
	clicks, purchases := clicksAndPurchases(t)
	visits := processor.CoGroup(clicks.Window(window.Session(20*time.Minute)), purchases, "visits",
		func(w processor.Window[string], clicks []adClick, purchases []purchase, emit func(attribution)) error {
			if len(clicks) > 0 && len(purchases) > 0 {
				emit(attribution{w.Key, clicks[len(clicks)-1].Ad})
			}
			return nil
		})
	processor.ToTopic(visits, "visits")
	fmt.Println(t.Validate())
	// Output: <nil>
}

// What each user clicked on last and bought last, if both are known: a table of two tables.
func ExampleJoinTables() {
	t := processor.New()
	clicks, purchases := clicksAndPurchases(t)
	last := processor.JoinTables(processor.ToTable(clicks, "last-click"), processor.ToTable(purchases, "last-purchase"), "last",
		func(c adClick, p purchase) attribution { return attribution{p.User, c.Ad} })
	processor.ToTopic(processor.MapValues(last.Changes(), func(c processor.Change[attribution]) attribution { return c.New }), "last")
	fmt.Println(t.Validate())
	// Output: <nil>
}

// What each user bought last, with the ad clicked on last if there was a click.
func ExampleJoinTablesOuter() {
	t := processor.New()
	clicks, purchases := clicksAndPurchases(t)
	last := processor.JoinTablesOuter(processor.ToTable(clicks, "last-click"), processor.ToTable(purchases, "last-purchase"), "last", processor.Right,
		func(c *adClick, p *purchase) attribution {
			if c == nil {
				return attribution{User: p.User}
			}
			return attribution{p.User, c.Ad}
		})
	processor.ToTopic(processor.MapValues(last.Changes(), func(c processor.Change[attribution]) attribution { return c.New }), "last")
	fmt.Println(t.Validate())
	// Output: <nil>
}

// All pairs of click and purchase in the same ten minutes, and late purchases in a topic of their own.
func ExampleWindowJoin() {
	t := processor.New()
	clicks, purchases := clicksAndPurchases(t)
	late := processor.NewOutputTag[purchase]("late")
	pairs := processor.WindowJoin(clicks.Window(window.Tumbling(10*time.Minute)), purchases, "pairs",
		func(c adClick, _ purchase) attribution { return attribution{c.User, c.Ad} }, processor.LateRightTo(late))
	processor.ToTopic(pairs, "pairs")
	processor.ToTopic(processor.SideOutput(pairs, late), "purchases-late")
	fmt.Println(t.Validate())
	// Output: <nil>
}

// How many clicks and purchases a user had in each hour, also if only one of the two.
func ExampleCoGroup() {
	type hour struct {
		User              string
		Clicks, Purchases int
	}
	t := processor.New()
	clicks, purchases := clicksAndPurchases(t)
	hours := processor.CoGroup(clicks.Window(window.Tumbling(time.Hour)), purchases, "hours",
		func(w processor.Window[string], c []adClick, p []purchase, emit func(hour)) error {
			emit(hour{w.Key, len(c), len(p)})
			return nil
		})
	processor.ToTopic(hours, "hours")
	fmt.Println(t.Validate())
	// Output: <nil>
}

type account struct {
	Name string `json:"name"`
	Tier string `json:"tier"`
}

type pricedPurchase struct {
	User   string  `json:"user"`
	Tier   string  `json:"tier"`
	Amount float64 `json:"amount"`
}

// Purchases with what is known of the customer now; unknown customers have no tier.
func ExampleLeftJoinTable() {
	t := processor.New()
	_, purchases := clicksAndPurchases(t)
	customers := processor.TableFrom(t, "customers", format.String(), processor.Topic[account]{Name: "customers"})
	out := processor.LeftJoinTable(purchases, customers, "with-customer", func(p purchase, c *account) pricedPurchase {
		if c == nil {
			return pricedPurchase{User: p.User, Amount: p.Amount}
		}
		return pricedPurchase{p.User, c.Tier, p.Amount}
	})
	processor.ToTopic(out, "priced")
	fmt.Println(t.Validate())
	// Output: <nil>
}

// Purchases of long ago with the row that the customer had then, as far as the topic still has it. Without ReadAlong the
// whole topic is read first, and each purchase meets the newest row.
func ExampleReadAlong() {
	t := processor.New()
	_, purchases := clicksAndPurchases(t)
	customers := processor.TableFrom(t, "customers", format.String(), processor.Topic[account]{Name: "customers"}, processor.ReadAlong())
	processor.ToTopic(processor.JoinTable(purchases, customers, "with-customer", func(p purchase, c account) pricedPurchase {
		return pricedPurchase{p.User, c.Tier, p.Amount}
	}), "priced")
	fmt.Println(t.Validate())
	// Output: <nil>
}

// Amounts in the rate that was valid when the purchase was made; purchases up to an hour late still find it.
func ExampleTable_Versioned() {
	t := processor.New()
	_, purchases := clicksAndPurchases(t)
	rates := processor.TableFrom(t, "rates", format.String(), processor.Topic[float64]{Name: "rates", MaxOutOfOrder: time.Second, Idle: time.Minute})
	euros := processor.JoinTable(purchases, rates.Versioned(time.Hour), "in-euros", func(p purchase, rate float64) pricedPurchase {
		return pricedPurchase{User: p.User, Amount: p.Amount * rate}
	})
	processor.ToTopic(euros, "priced")
	fmt.Println(t.Validate())
	// Output: <nil>
}

// Customers that change their tier, as a stream.
func ExampleTable_Changes() {
	t := processor.New()
	customers := processor.TableFrom(t, "customers", format.String(), processor.Topic[account]{Name: "customers"})
	moved := customers.Changes().Filter(func(c processor.Change[account]) bool {
		return c.Kind == processor.Updated && c.Old.Tier != c.New.Tier
	})
	processor.ToTopic(processor.MapValues(moved, func(c processor.Change[account]) account { return c.New }), "tier-changes")
	fmt.Println(t.Validate())
	// Output: <nil>
}
