package processor_test

import (
	"testing"
	"time"

	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/window"
)

type Order struct {
	User   string    `json:"user"`
	Amount float64   `json:"amount"`
	At     time.Time `json:"ts,unixmilli"`
}
type Count struct {
	User  string
	Start time.Time `json:",unixmilli"`
	End   time.Time `json:",unixmilli"`
	Count int64
	Sum   float64
}
type total struct {
	n   int64
	sum float64
}

func orderCounts(t *processor.Topology) {
	orders := processor.From(t, processor.Topic[Order]{Name: "orders",
		EventTime: func(o Order) time.Time { return o.At }, MaxOutOfOrder: 2 * time.Second})
	byUser := processor.KeyBy(orders, "by-user", func(o Order) string { return o.User })
	counts := processor.Aggregate(byUser.Window(window.Tumbling(10*time.Second)), "count",
		processor.Fold(func(a *total, o Order) { a.n++; a.sum += o.Amount }),
		func(w processor.Window[string], a total) Count { return Count{w.Key, w.Start, w.End, a.n, a.sum} })
	processor.ToTopic(counts, "counts")
}

// The first program of the design, as written: the third order comes out of order, zoe's moves the watermark to 10 s.
func TestProgram(t *testing.T) {
	d := newDriver(t, orderCounts, driverOptions{})
	send := func(user string, amount float64, ms int64) {
		d.sendKeyed("orders", user, map[string]any{"user": user, "amount": amount, "ts": ms}, 5)
	}
	send("ann", 3, 1000)
	send("bob", 1, 9000)
	send("ann", 4, 2000)
	d.run()
	wantRows(t, d.rows("counts"))
	for _, st := range d.Tasks {
		st.Restart()
	}
	send("zoe", 0, 12001)
	d.run()
	wantRows(t, d.rows("counts"),
		`ann={"User":"ann","Start":0,"End":10000,"Count":2,"Sum":7} @9999`,
		`bob={"User":"bob","Start":0,"End":10000,"Count":1,"Sum":1} @9999`)
}
