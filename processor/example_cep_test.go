package processor_test

import (
	"fmt"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/cep"
)

type cardTxn struct {
	Cents   int64
	Country string
	At      time.Time `json:",unixmilli"`
}

type cardAlert struct {
	Card string
	Why  string
}

// A card that is tried with small sums, at least twice, and then used for a large one in another country, all within ten
// minutes. What began so and came to nothing goes to a side output.
func Example_patternMatching() {
	t := processor.New()
	txns := processor.FromKeyed(t, format.String(), processor.Topic[cardTxn]{Name: "txns",
		EventTime: func(x cardTxn) time.Time { return x.At }, MaxOutOfOrder: 5 * time.Second})
	over := processor.NewOutputTag[cep.Match[cardTxn]]("came-to-nothing")

	probe := cep.Begin("small", func(x cardTxn) bool { return x.Cents < 100 }).TimesOrMore(2).
		FollowedBy("big").WhereMatch(func(m cep.Match[cardTxn], x cardTxn) bool {
		return x.Cents > 50_000 && x.Country != m.One("small").Country
	}).
		Within(10 * time.Minute).
		Skip(cep.SkipPastLast).
		TimedOutTo(over)
	alerts := cep.Detect(txns, "probe", probe, func(card string, m cep.Match[cardTxn]) cardAlert {
		return cardAlert{card, fmt.Sprintf("%d small sums, then %d", len(m.All("small")), m.One("big").Cents)}
	})
	processor.ToTopic(alerts, "alerts")
	processor.ToTopic(processor.Map(processor.SideOutput(alerts, over), func(m cep.Match[cardTxn]) cardTxn { return m.One("small") }), "tried")

	fmt.Println(probe)
	fmt.Println(t.Validate())
	// Output:
	// small{2,} followed by big within 10m0s skip past last
	// <nil>
}
