package processor_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/window"
	"github.com/millrace-stream/millrace/statestore"
)

// An ordered map for each key: what a user bought of each item.
func ExampleMapOf() {
	play(func(t *processor.Topology) {
		items := processor.FromKeyed(t, format.String(), processor.Topic[string]{Name: "items"})
		counts := processor.Process(items, "counts", func(ctx *processor.KeyedContext[string, string, string]) {
			count := processor.MapOf[string, int64](ctx, "count")
			ctx.OnRecord(func(item string) error {
				n, _ := count.Get(item)
				count.Put(item, n+1)
				ctx.Emit(fmt.Sprint(maps.Collect(count.All())))
				return nil
			})
		})
		processor.ToTopic(counts, "counts")
	}, `items ann pen`, `items ann book`, `items ann pen`)
	// Output:
	// counts ann map[pen:1]
	// counts ann map[book:1 pen:1]
	// counts ann map[book:1 pen:2]
}

// A list for each key, whose elements live for a day.
func ExampleList() {
	play(func(t *processor.Topology) {
		pages := processor.FromKeyed(t, format.String(), processor.Topic[string]{Name: "pages"})
		paths := processor.Process(pages, "paths", func(ctx *processor.KeyedContext[string, string, string]) {
			visited := processor.List[string](ctx, "visited", processor.TTL{After: 24 * time.Hour})
			ctx.OnRecord(func(page string) error {
				visited.Add(page)
				ctx.Emit(fmt.Sprint(slices.Collect(visited.All())))
				return nil
			})
		})
		processor.ToTopic(paths, "paths")
	}, `pages ann /`, `pages ann /shop`)
	// Output:
	// paths ann [/]
	// paths ann [/ /shop]
}

// An aggregator of the library as the state of a process function.
func ExampleAccumulating() {
	play(func(t *processor.Topology) {
		amounts := processor.FromKeyed(t, format.String(), processor.Topic[int64]{Name: "amounts"})
		unusual := processor.Process(amounts, "unusual", func(ctx *processor.KeyedContext[string, int64, string]) {
			average := processor.Accumulating(ctx, "average", processor.Avg(func(n int64) float64 { return float64(n) }))
			ctx.OnRecord(func(n int64) error {
				if usual := average.Get(); float64(n) > 2*usual.Value() && usual.Value() > 0 {
					ctx.Emit(fmt.Sprintf("%d, usually %g", n, usual.Value()))
				}
				average.Add(n)
				return nil
			})
		})
		processor.ToTopic(unusual, "unusual")
	}, `amounts ann 10`, `amounts ann 20`, `amounts ann 31`)
	// Output:
	// unusual ann 31, usually 15
}

// A state that an earlier version of the program kept as a number of euros.
func ExampleMigrations() {
	t := processor.New()
	amounts := processor.FromKeyed(t, format.String(), processor.Topic[int64]{Name: "amounts"})
	type cents struct{ Cents int64 }
	processor.Process(amounts, "spent", func(ctx *processor.KeyedContext[string, int64, int64]) {
		spent := processor.Value[cents](ctx, "spent",
			processor.Migrations(statestore.Migrate(func(euros int64) (cents, error) { return cents{100 * euros}, nil })))
		ctx.OnRecord(func(n int64) error {
			spent.Update(func(c *cents) { c.Cents += n })
			return nil
		})
	})
	fmt.Println(t.Validate())
	// Output: <nil>
}

// The highest amount of each minute.
func ExampleReduceWindow() {
	play(func(t *processor.Topology) {
		amounts := processor.FromKeyed(t, format.String(), processor.Topic[int64]{Name: "amounts"})
		highest := processor.ReduceWindow(amounts.Window(window.Tumbling(time.Minute)), "highest", func(a, b int64) int64 { return max(a, b) })
		processor.ToTopic(highest, "highest")
	}, `amounts ann 3`, `amounts ann 9`, `amounts ann 4`)
	// Output:
	// highest ann 9
}

// A table of the last value of each key of a stream, and what happens to it.
func ExampleToTable() {
	play(func(t *processor.Topology) {
		amounts := processor.FromKeyed(t, format.String(), processor.Topic[int64]{Name: "amounts"})
		last := processor.ToTable(amounts, "last").RemoveWhen(func(n int64) bool { return n == 0 })
		processor.ToTopic(processor.MapValues(last.Changes(), func(c processor.Change[int64]) string {
			return fmt.Sprintf("%s: %d -> %d", c.Kind, c.Old, c.New)
		}), "changes")
	}, `amounts ann 3`, `amounts ann 5`, `amounts ann 0`)
	// Output:
	// changes ann inserted: 0 -> 3
	// changes ann updated: 3 -> 5
	// changes ann deleted: 5 -> 0
}

// The stream's key is kept, so that an aggregation may follow.
func ExampleJoinGlobalValues() {
	play(func(t *processor.Topology) {
		prices := processor.GlobalTableFrom(t, "prices", format.String(), processor.Topic[int64]{Name: "prices"})
		items := processor.FromKeyed(t, format.String(), processor.Topic[string]{Name: "items"})
		cents := processor.JoinGlobalValues(items, prices, func(item string) string { return item }, func(_ string, price int64) int64 { return price })
		processor.ToTopic(processor.Reduce(cents, "total", func(a, b int64) int64 { return a + b }), "totals")
	}, `prices pen 200`, `prices book 1500`, `items ann pen`, `items ann shoe`, `items ann book`)
	// Output:
	// totals ann 200
	// totals ann 1700
}

// Values without a row are kept.
func ExampleLeftJoinGlobal() {
	play(func(t *processor.Topology) {
		prices := processor.GlobalTableFrom(t, "prices", format.String(), processor.Topic[int64]{Name: "prices"})
		items := processor.From(t, processor.Topic[string]{Name: "items"})
		priced := processor.LeftJoinGlobal(items, prices, func(item string) string { return item }, func(item string, price *int64) string {
			if price == nil {
				return item + " has no price"
			}
			return fmt.Sprintf("%s costs %d", item, *price)
		})
		processor.ToTopic(priced, "priced")
	}, `prices pen 200`, `items - pen`, `items - shoe`)
	// Output:
	// priced - pen costs 200
	// priced - shoe has no price
}

// The results keep the key; those of one word are asked for once an hour.
func ExampleAsyncValues() {
	play(func(t *processor.Topology) {
		words := processor.FromKeyed(t, format.String(), processor.Topic[string]{Name: "words"})
		translated := processor.AsyncValues(words, "translate", processor.AsyncOptions{Capacity: 50, Timeout: time.Second},
			func(_ context.Context, word string) (string, error) { return "le " + word, nil }). // a request to a service
			CacheBy(func(word string) string { return word }, time.Hour)
		processor.ToTopic(translated, "translated")
	}, `words 1 taxi`)
	// Output:
	// translated 1 le taxi
}
