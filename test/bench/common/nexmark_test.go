package common

import (
	"encoding/json"
	"testing"
	"time"
)

func TestNexmarkEventsAreJSONInTheirMixAndNoTwoHaveOneTime(t *testing.T) {
	type object struct {
		ID       int64  `json:"id"`
		Auction  int64  `json:"auction"`
		Seller   int64  `json:"seller"`
		DateTime string `json:"dateTime"`
		Expires  string `json:"expires"`
	}
	const n = 10_000
	g := NewNexmark(1, n)
	count, times := map[int]int{}, map[int64]bool{}
	for i := range int64(n) {
		v := g.Next()
		var e struct {
			Type    int     `json:"event_type"`
			Person  *object `json:"person"`
			Auction *object `json:"auction"`
			Bid     *object `json:"bid"`
		}
		if err := json.Unmarshal(v, &e); err != nil {
			t.Fatalf("event %d: %v\n%s", i, err, v)
		}
		count[e.Type]++
		got := []*object{e.Person, e.Auction, e.Bid}[e.Type]
		if got == nil {
			t.Fatalf("event %d has no object of its type:\n%s", i, v)
		}
		at, err := time.Parse("2006-01-02 15:04:05.000", got.DateTime)
		if err != nil {
			t.Fatal(err)
		}
		ms := at.UnixMilli()
		if off := ms - BaseTS - i; off <= -nexmarkSecond || off >= nexmarkSecond {
			t.Fatalf("event %d is %d ms off its place", i, off)
		}
		if times[ms] {
			t.Fatalf("event %d has the time of another: %s", i, got.DateTime)
		}
		times[ms] = true
	}
	if count[0] != n/50 || count[1] != n/50*3 || count[2] != n/50*46 {
		t.Errorf("%d persons, %d auctions and %d bids of %d events, want them 1:3:46", count[0], count[1], count[2], n)
	}
	var f map[string]any
	if err := json.Unmarshal(g.Flush(g.End()), &f); err != nil || f["event_type"] != 3.0 {
		t.Errorf("the last event is %v, %v", f, err)
	}
}
