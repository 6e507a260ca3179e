package processor_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/drive"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/window"
)

// exampleTB lets an example use the driver of tests.
type exampleTB struct{ testing.TB }

func (exampleTB) Helper() {}
func (exampleTB) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}
func (tb exampleTB) Fatal(args ...any)                 { tb.Fatalf("%s", fmt.Sprint(args...)) }
func (tb exampleTB) Errorf(format string, args ...any) { tb.Fatalf(format, args...) }

// play runs a topology over some records, each as "topic key value" with - for no key and for null, lets all windows and
// timers end, and prints what is committed to its topics in the same way.
func play(topology func(*processor.Topology), records ...string) {
	d := drive.New(exampleTB{}, topology, drive.Options{Still: true})
	defer d.Close()
	text := func(s string) []byte {
		if s == "-" {
			return nil
		}
		return []byte(s)
	}
	for i, r := range records {
		f := strings.SplitN(r, " ", 3)
		d.Produce(f[0], 0, record.Record{Key: text(f[1]), Value: text(f[2]), Timestamp: int64(i) * 1000})
		d.Run()
	}
	var outputs []string
	for _, sub := range d.Plan.Subs {
		for _, in := range sub.Inputs {
			if !in.Internal {
				d.Produce(in.Topic, 0, drive.WatermarkRecord(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()))
			}
		}
		for _, o := range sub.Outputs {
			if name := drive.OutputName(o); !o.Internal && !slices.Contains(outputs, name) {
				outputs = append(outputs, name)
			}
		}
	}
	d.Run()
	slices.Sort(outputs)
	shown := func(b []byte) string {
		if b == nil {
			return "-"
		}
		return string(b)
	}
	for _, topic := range outputs {
		for _, r := range d.Records(topic) {
			fmt.Println(topic, shown(r.Key), shown(r.Value))
		}
	}
}

// A topic without useful keys; the default value format is JSON.
func ExampleFrom() {
	play(func(t *processor.Topology) {
		purchases := processor.From(t, processor.Topic[purchase]{Name: "purchases",
			EventTime: func(p purchase) time.Time { return p.At }, MaxOutOfOrder: 2 * time.Second, Idle: time.Minute})
		processor.ToTopic(purchases.Filter(func(p purchase) bool { return p.Amount >= 10 }), "large")
	}, `purchases - {"user":"ann","amount":12.5,"ts":1000}`,
		`purchases - {"user":"bob","amount":3,"ts":2000}`)
	// Output:
	// large - {"user":"ann","amount":12.5,"ts":1000}
}

// The Kafka key is the user already: no repartition topic is needed.
func ExampleFromKeyed() {
	play(func(t *processor.Topology) {
		amounts := processor.FromKeyed(t, format.String(), processor.Topic[int64]{Name: "amounts"})
		totals := processor.Reduce(amounts, "total", func(total, amount int64) int64 { return total + amount })
		processor.ToTopic(totals, "totals")
	}, `amounts ann 3`, `amounts bob 5`, `amounts ann 4`)
	// Output:
	// totals ann 3
	// totals bob 5
	// totals ann 7
}

// Keys, headers, tombstones and positions of the Kafka records.
func ExampleFromRecords() {
	play(func(t *processor.Topology) {
		records := processor.FromRecords(t, processor.Topic[string]{Name: "names"})
		lines := processor.Map(records, func(r processor.Record[string]) string {
			return fmt.Sprintf("%s/%d@%d: %s is %q, removed: %t", r.Topic, r.Partition, r.Offset, r.Key, r.Value, r.Null)
		})
		processor.ToTopic(lines, "log")
	}, `names 1 ann`, `names 1 -`)
	// Output:
	// log - names/0@0: 1 is "ann", removed: false
	// log - names/0@1: 1 is "", removed: true
}

func ExampleMap() {
	play(func(t *processor.Topology) {
		names := processor.From(t, processor.Topic[string]{Name: "names"})
		processor.ToTopic(processor.Map(names, strings.ToUpper), "shouted")
	}, `names - ann`)
	// Output:
	// shouted - ANN
}

// A function that can fail: what becomes of the record is up to the operator's policy.
func ExampleTryMap() {
	play(func(t *processor.Topology) {
		texts := processor.From(t, processor.Topic[string]{Name: "texts"})
		numbers := processor.TryMap(texts, func(s string) (int64, error) {
			n, err := strconv.ParseInt(s, 10, 64)
			if err == nil && n < 0 {
				err = errors.New("below zero")
			}
			return n, err
		}, processor.OnError(processor.DeadLetter))
		processor.ToTopic(numbers, "numbers")
	}, `texts - 1`, `texts - -1`, `texts - two`)
	// Output:
	// dead-letter - -1
	// dead-letter - two
	// numbers - 1
}

func ExampleFlatMap() {
	play(func(t *processor.Topology) {
		lines := processor.From(t, processor.Topic[string]{Name: "lines"})
		words := processor.FlatMap(lines, func(line string, emit func(string)) error {
			for word := range strings.FieldsSeq(line) {
				emit(word)
			}
			return nil
		})
		processor.ToTopic(words, "words")
	}, `lines - to be`)
	// Output:
	// words - to
	// words - be
}

// The key stays, so a keyed operator may follow without a repartition topic.
func ExampleMapValues() {
	play(func(t *processor.Topology) {
		names := processor.FromKeyed(t, format.String(), processor.Topic[string]{Name: "names"})
		lengths := processor.MapValues(names, func(s string) int64 { return int64(len(s)) })
		processor.ToTopic(processor.Reduce(lengths, "longest", func(a, b int64) int64 { return max(a, b) }), "longest")
	}, `names 1 ann`, `names 1 al`, `names 1 barbara`)
	// Output:
	// longest 1 3
	// longest 1 3
	// longest 1 7
}

// The watermark of a union is that of its slowest input.
func ExampleUnion() {
	play(func(t *processor.Topology) {
		web := processor.From(t, processor.Topic[string]{Name: "web"})
		shop := processor.From(t, processor.Topic[string]{Name: "shop"})
		processor.ToTopic(processor.Union(web, shop), "sales")
	}, `web - book`, `shop - pen`)
	// Output:
	// sales - book
	// sales - pen
}

// A new key: records go through the topic <app.id>-by-user-repartition, with the watermark.
func ExampleKeyBy() {
	play(func(t *processor.Topology) {
		purchases := processor.From(t, processor.Topic[purchase]{Name: "purchases"})
		byUser := processor.KeyBy(purchases, "by-user", func(p purchase) string { return p.User })
		counts := processor.RunningAggregate(byUser, "count", processor.Count[purchase](),
			func(user string, n int64, _ purchase) string { return fmt.Sprintf("%s has bought %d times", user, n) })
		processor.ToTopic(counts, "counts")
	}, `purchases - {"user":"ann","amount":12.5,"ts":1000}`,
		`purchases - {"user":"ann","amount":3,"ts":2000}`)
	// Output:
	// counts ann ann has bought 1 times
	// counts ann ann has bought 2 times
}

// The key of the records, with their headers and positions at hand.
func ExampleKeyByRecordKey() {
	play(func(t *processor.Topology) {
		names := processor.FromRecords(t, processor.Topic[string]{Name: "names"})
		byID := processor.KeyByRecordKey(names, format.String())
		last := processor.MapValues(byID, func(r processor.Record[string]) string { return r.Value })
		processor.ToTopic(processor.Reduce(last, "all", func(a, b string) string { return a + "," + b }), "all")
	}, `names 1 ann`, `names 1 bob`)
	// Output:
	// all 1 ann
	// all 1 ann,bob
}

// One value for each key, combined with each new one.
func ExampleReduce() {
	play(func(t *processor.Topology) {
		amounts := processor.FromKeyed(t, format.String(), processor.Topic[int64]{Name: "amounts"})
		processor.ToTopic(processor.Reduce(amounts, "highest", func(a, b int64) int64 { return max(a, b) }), "highest")
	}, `amounts ann 3`, `amounts ann 2`)
	// Output:
	// highest ann 3
	// highest ann 3
}

// Several aggregates at once, each update of which is emitted.
func ExampleRunningAggregate() {
	play(func(t *processor.Topology) {
		amounts := processor.FromKeyed(t, format.String(), processor.Topic[int64]{Name: "amounts"})
		itself := func(n int64) int64 { return n }
		stats := processor.RunningAggregate(amounts, "stats", processor.Both(processor.Min(itself), processor.Max(itself)),
			func(user string, a processor.Pair[processor.Extreme[int64], processor.Extreme[int64]], _ int64) string {
				return fmt.Sprintf("%s: %d to %d", user, a.First.Value, a.Second.Value)
			})
		processor.ToTopic(stats, "stats")
	}, `amounts ann 3`, `amounts ann 9`)
	// Output:
	// stats ann ann: 3 to 3
	// stats ann ann: 3 to 9
}

// One result for each user and minute; late purchases go to a topic of their own.
func ExampleAggregate() {
	play(func(t *processor.Topology) {
		late := processor.NewOutputTag[purchase]("late")
		purchases := processor.FromKeyed(t, format.String(), processor.Topic[purchase]{Name: "purchases",
			EventTime: func(p purchase) time.Time { return p.At }, MaxOutOfOrder: 2 * time.Second})
		sums := processor.Aggregate(purchases.Window(window.Tumbling(time.Minute)).LateTo(late), "per-minute",
			processor.Sum(func(p purchase) float64 { return p.Amount }),
			func(w processor.Window[string], sum float64) spent { return spent{w.Key, w.Start, sum} })
		processor.ToTopic(sums, "spent")
		processor.ToTopic(processor.SideOutput(sums, late), "late")
	}, `purchases ann {"user":"ann","amount":1,"ts":1000}`,
		`purchases ann {"user":"ann","amount":2,"ts":59000}`,
		`purchases ann {"user":"ann","amount":4,"ts":62000}`,
		`purchases ann {"user":"ann","amount":8,"ts":3000}`)
	// Output:
	// late - {"user":"ann","amount":8,"ts":3000}
	// spent ann {"user":"ann","start":0,"sum":3}
	// spent ann {"user":"ann","start":60000,"sum":4}
}

// A second stream of an operator: what does not fit goes there.
func ExampleSideOutput() {
	play(func(t *processor.Topology) {
		refunds := processor.NewOutputTag[int64]("refunds")
		amounts := processor.FromKeyed(t, format.String(), processor.Topic[int64]{Name: "amounts"})
		sales := processor.Process(amounts, "split", func(ctx *processor.KeyedContext[string, int64, int64]) {
			ctx.OnRecord(func(n int64) error {
				if n < 0 {
					refunds.Emit(ctx, -n)
				} else {
					ctx.Emit(n)
				}
				return nil
			})
		})
		processor.ToTopic(sales, "sales")
		processor.ToTopic(processor.SideOutput(sales, refunds), "refunds")
	}, `amounts ann 3`, `amounts ann -2`)
	// Output:
	// refunds - 2
	// sales ann 3
}

// A sink that says how records are written.
func ExampleTo() {
	play(func(t *processor.Topology) {
		purchases := processor.From(t, processor.Topic[purchase]{Name: "purchases"})
		processor.To(purchases, processor.SinkTopic[purchase]{Name: "by-user",
			Key:       func(p purchase) []byte { return []byte(p.User) },
			Time:      func(p purchase) time.Time { return p.At },
			Tombstone: func(p purchase) bool { return p.Amount == 0 }})
	}, `purchases - {"user":"ann","amount":1,"ts":1000}`,
		`purchases - {"user":"ann","amount":0,"ts":2000}`)
	// Output:
	// by-user ann {"user":"ann","amount":1,"ts":1000}
	// by-user ann -
}

// The key of a keyed stream is the key of the records.
func ExampleToTopic() {
	play(func(t *processor.Topology) {
		names := processor.FromKeyed(t, format.String(), processor.Topic[string]{Name: "names"})
		processor.ToTopic(names, "copies")
	}, `names 1 ann`)
	// Output:
	// copies 1 ann
}

// An aggregation of one's own: how a value is added, and for windows that share or join results, how two are merged.
func ExampleFold() {
	play(func(t *processor.Topology) {
		type span struct{ First, Last string }
		visits := processor.Fold(func(s *span, page string) {
			if s.First == "" {
				s.First = page
			}
			s.Last = page
		})
		visits.Merge = func(into, from *span) { into.Last = from.Last }
		pages := processor.FromKeyed(t, format.String(), processor.Topic[string]{Name: "pages"})
		sessions := processor.Aggregate(pages.Window(window.Session(5*time.Second)), "visit", visits,
			func(w processor.Window[string], s span) string { return s.First + " to " + s.Last })
		processor.ToTopic(sessions, "visits")
	}, `pages ann /`, `pages ann /shop`, `pages ann /pay`)
	// Output:
	// visits ann / to /pay
}

// The aggregators of the library, side by side.
func Example_aggregators() {
	type sale struct {
		Item  string `json:"item"`
		Cents int64  `json:"cents"`
	}
	cents := func(s sale) int64 { return s.Cents }
	play(func(t *processor.Topology) {
		sales := processor.FromKeyed(t, format.String(), processor.Topic[sale]{Name: "sales"}).Window(window.Tumbling(time.Minute))
		add := func(id string, text processor.KeyedStream[string, string]) { processor.ToTopic(text, id) }
		add("count", processor.Aggregate(sales, "count", processor.Count[sale](),
			func(_ processor.Window[string], n int64) string { return fmt.Sprint(n) }))
		add("average", processor.Aggregate(sales, "average", processor.Avg(func(s sale) float64 { return float64(s.Cents) }),
			func(_ processor.Window[string], a processor.Mean) string { return fmt.Sprint(a.Value()) }))
		add("cheap", processor.Aggregate(sales, "cheap", processor.Only(func(s sale) bool { return s.Cents < 300 }, processor.Count[sale]()),
			func(_ processor.Window[string], n int64) string { return fmt.Sprint(n) }))
		add("dearest", processor.Aggregate(sales, "dearest", processor.TopN(2, cents),
			func(_ processor.Window[string], top []processor.Ranked[sale, int64]) string {
				return top[0].Value.Item + " " + top[1].Value.Item
			}))
		add("items", processor.Aggregate(sales, "items", processor.Distinct(func(s sale) string { return s.Item }),
			func(_ processor.Window[string], items processor.Set[string]) string { return fmt.Sprint(items.Len()) }))
		add("range", processor.Aggregate(sales, "range", processor.Both(processor.MinBy(cents), processor.MaxBy(cents)),
			func(_ processor.Window[string], a processor.Pair[processor.Best[sale, int64], processor.Best[sale, int64]]) string {
				return a.First.Value.Item + " to " + a.Second.Value.Item
			}))
		add("variance", processor.Aggregate(sales, "variance", processor.Variance(func(s sale) float64 { return float64(s.Cents) }),
			func(_ processor.Window[string], m processor.Moments) string { return fmt.Sprint(m.Variance()) }))
	}, `sales shop {"item":"pen","cents":200}`, `sales shop {"item":"book","cents":1000}`, `sales shop {"item":"pen","cents":300}`)
	// Output:
	// average shop 500
	// cheap shop 1
	// count shop 3
	// dearest shop book pen
	// items shop 2
	// range shop pen to book
	// variance shop 126666.66666666667
}

// Settings that any operator takes: how it is called in errors and metrics, what becomes of what it cannot process, in how many
// subtasks it runs, how large its records may be, how long its state lives.
func Example_options() {
	t := processor.New()
	purchases := processor.From(t, processor.Topic[purchase]{Name: "purchases", Start: processor.At(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))},
		processor.Name("purchases of all shops"))
	byUser := processor.KeyBy(purchases, "by-user", func(p purchase) string { return p.User },
		processor.Parallelism(12), processor.OnError(processor.Skip), processor.MaxRecordBytes(64<<10))
	last := processor.Reduce(byUser, "last", func(_, p purchase) purchase { return p }, processor.StateTTL(processor.TTL{After: 24 * time.Hour}))
	processor.ToTopic(last, "last-purchases")
	fmt.Println(t.Validate())
	// Output: <nil>
}

// Where reading begins at the first start of an app, and where it ends. An app all of whose topics have ended commits and ends.
func Example_bounded() {
	t := processor.New()
	day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, topic := range map[string]processor.Topic[purchase]{
		"day":    {Start: processor.At(day), End: processor.EndAt(day.AddDate(0, 0, 1))},
		"all":    {End: processor.EndLatest},
		"part":   {Start: processor.Offsets(map[int32]int64{0: 100, 1: 120}), End: processor.EndOffsets(map[int32]int64{0: 200, 1: 220})},
		"rest":   {Start: processor.Committed("old-job", processor.Earliest)},
		"missed": {End: processor.EndCommitted("old-job")},
	} {
		topic.Name = "purchases-" + name
		processor.ToTopic(processor.From(t, topic), "copies-"+name)
	}
	fmt.Println(t.Validate())
	// Output: <nil>
}
