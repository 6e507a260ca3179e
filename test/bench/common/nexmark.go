package common

import (
	"math"
	"math/rand/v2"
	"strconv"
	"time"
)

// Nexmark makes the events of the auction benchmark in the shape of test/oracle/nexmark/queries/tables.sql: of each 50 one
// is a person, three are auctions and 46 bids. Event time goes on by 1 ms for each event, and events of one second come in
// any order, but no two have the same time: so nothing is late behind a delay of 4 s, and what a query answers does not
// depend on the order in which partitions are read.
//
// As in the published generator half of the bids go to one auction of each hundred and the others to the newest hundred, which
// some bids are ahead of; three bidders of four and three sellers of four are one person of each hundred, others one of
// the newest thousand; prices spread evenly over the orders of magnitude from 100 to 100,000,000; and records are
// filled up to about 200 bytes for a person, 500 for an auction and 100 for a bid, before they are written as JSON.
type Nexmark struct {
	r         *rand.Rand
	i         int64
	times     [nexmarkSecond]int16 // place in its second of the event of that number
	persons   int64
	auctions  int64
	letters   [4096]byte
	lastEvent int64
}

const (
	nexmarkSecond = 1000
	firstID       = 1000
)

// NewNexmark makes a generator; n is how many events it will make.
func NewNexmark(seed uint64, n int64) *Nexmark {
	g := &Nexmark{r: rand.New(rand.NewPCG(seed, seed^0x9e3779b97f4a7c15)), lastEvent: n}
	for i := range g.letters {
		g.letters[i] = byte('a' + g.r.IntN(26))
	}
	for i := range g.times {
		g.times[i] = int16(i)
	}
	return g
}

// End is an event time behind all events: such an event closes all windows and patterns.
func (g *Nexmark) End() int64 { return BaseTS + g.lastEvent + 600_000 }

// Flush is a value that no query counts, with the event time ts.
func (g *Nexmark) Flush(ts int64) []byte {
	b := []byte(`{"event_type":3,"person":null,"auction":null,"bid":{"auction":0,"bidder":0,"price":0,"channel":"","url":""`)
	b = appendTime(b, "dateTime", ts)
	return append(b, `,"extra":""}}`...)
}

// Next is the value of the next event.
func (g *Nexmark) Next() []byte {
	at := g.i % nexmarkSecond
	if at == 0 {
		g.r.Shuffle(nexmarkSecond, func(i, j int) { g.times[i], g.times[j] = g.times[j], g.times[i] })
	}
	ts := BaseTS + g.i - at + int64(g.times[at])
	slot := g.i % 50
	g.i++
	switch {
	case slot == 0:
		return g.person(ts)
	case slot <= 3:
		return g.auction(ts)
	}
	return g.bid(ts)
}

func (g *Nexmark) person(ts int64) []byte {
	id := firstID + g.persons
	g.persons++
	b := append(make([]byte, 0, 400), `{"event_type":0,"person":{"id":`...)
	b = strconv.AppendInt(b, id, 10)
	b = append(b, `,"name":"`...)
	b = append(b, firstNames[g.r.IntN(len(firstNames))]...)
	b = append(b, ' ')
	b = append(b, lastNames[g.r.IntN(len(lastNames))]...)
	b = append(b, '"')
	b = g.text(b, "emailAddress", 7, "@", 5, ".com")
	b = append(b, `,"creditCard":"`...)
	for i := range 4 {
		if i > 0 {
			b = append(b, ' ')
		}
		b = pad(b, g.r.IntN(10000), 4)
	}
	place := places[g.r.IntN(len(places))]
	b = append(b, `","city":"`...)
	b = append(b, place[3:]...)
	b = append(b, `","state":"`...)
	b = append(b, place[:2]...)
	b = append(b, '"')
	b = appendTime(b, "dateTime", ts)
	b = g.text(b, "extra", 90+g.r.IntN(40))
	return append(b, `},"auction":null,"bid":null}`...)
}

func (g *Nexmark) auction(ts int64) []byte {
	id := firstID + g.auctions
	g.auctions++
	initial := g.price()
	b := append(make([]byte, 0, 700), `{"event_type":1,"person":null,"auction":{"id":`...)
	b = strconv.AppendInt(b, id, 10)
	b = g.text(b, "itemName", 10+g.r.IntN(10))
	b = g.text(b, "description", 50+g.r.IntN(50))
	b = appendInt(b, "initialBid", initial)
	b = appendInt(b, "reserve", initial+g.price())
	b = appendTime(b, "dateTime", ts)
	// A hundred auctions are open at a time, and three of fifty events begin one.
	b = appendTime(b, "expires", ts+1+g.r.Int64N(2*100*50/3))
	b = appendInt(b, "seller", g.someone(0))
	b = appendInt(b, "category", 10+g.r.Int64N(5))
	b = g.text(b, "extra", 260+g.r.IntN(80))
	return append(b, `},"bid":null}`...)
}

func (g *Nexmark) bid(ts int64) []byte {
	auction := max(g.auctions-1, 0)
	if g.r.IntN(2) == 0 {
		from := max(auction-100, 0)
		auction = from + g.r.Int64N(auction-from+1+10)
	} else {
		auction = auction / 100 * 100
	}
	b := append(make([]byte, 0, 320), `{"event_type":2,"person":null,"auction":null,"bid":{"auction":`...)
	b = strconv.AppendInt(b, firstID+auction, 10)
	b = appendInt(b, "bidder", g.someone(1))
	b = appendInt(b, "price", g.price())
	channel := -1
	b = append(b, `,"channel":"`...)
	if g.r.IntN(2) == 0 {
		b = append(b, channels[g.r.IntN(len(channels))]...)
	} else {
		channel = g.r.IntN(10000)
		b = append(b, "channel-"...)
		b = strconv.AppendInt(b, int64(channel), 10)
	}
	b = append(b, `","url":"https://www.auctions.example/`...)
	b = g.word(b, 5)
	b = append(b, '/')
	b = g.word(b, 5)
	b = append(b, '/')
	b = g.word(b, 5)
	b = append(b, "/item.htm?query=1"...)
	if channel >= 0 && g.r.IntN(10) != 0 {
		b = append(b, "&channel_id="...)
		b = strconv.AppendInt(b, int64(channel), 10)
	}
	b = append(b, '"')
	b = appendTime(b, "dateTime", ts)
	b = g.text(b, "extra", 4+g.r.IntN(16))
	return append(b, `}}`...)
}

// someone is three times in four the person at place hot of the newest hundred, else one of the newest thousand.
func (g *Nexmark) someone(hot int64) int64 {
	last := max(g.persons-1, 0)
	if g.r.IntN(4) > 0 {
		return firstID + last/100*100 + hot
	}
	active := min(g.persons, 1000)
	return firstID + g.persons - active + g.r.Int64N(active+10)
}

func (g *Nexmark) price() int64 { return int64(math.Round(math.Pow(10, g.r.Float64()*6) * 100)) }

// word appends n letters.
func (g *Nexmark) word(b []byte, n int) []byte {
	at := g.r.IntN(len(g.letters) - n)
	return append(b, g.letters[at:at+n]...)
}

// text appends a field of so many letters, with what stands between and behind them.
func (g *Nexmark) text(b []byte, name string, parts ...any) []byte {
	b = append(b, `,"`...)
	b = append(b, name...)
	b = append(b, `":"`...)
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			b = g.word(b, p)
		case string:
			b = append(b, p...)
		}
	}
	return append(b, '"')
}

func appendInt(b []byte, name string, v int64) []byte {
	b = append(b, `,"`...)
	b = append(b, name...)
	b = append(b, `":`...)
	return strconv.AppendInt(b, v, 10)
}

func appendTime(b []byte, name string, ms int64) []byte {
	b = append(b, `,"`...)
	b = append(b, name...)
	b = append(b, `":"`...)
	b = time.UnixMilli(ms).UTC().AppendFormat(b, "2006-01-02 15:04:05.000")
	return append(b, '"')
}

var (
	firstNames = []string{"Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"}
	lastNames  = []string{"Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"}
	places     = []string{"AZ Phoenix", "CA Los Angeles", "CA San Francisco", "ID Boise", "OR Portland", "OR Bend", "WA Redmond", "WA Seattle", "WA Kent", "WY Cheyenne"}
	channels   = []string{"Google", "Facebook", "Baidu", "Apple"}
)
