package exec

import (
	"testing"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/rel"
)

// TestIntervalJoinForgetsNoRowEarly has two rows one ms apart: when the first has no partner any more, the second still finds its
// last one.
func TestIntervalJoinForgetsNoRowEarly(t *testing.T) {
	in := table("k", row.Int(), "ts", row.Timestamp(3).WithMark(row.Rowtime))
	types := append(in.Schema().Types[:2:2], in.Schema().Types...)
	h := newHarness(t, &rel.PIntervalJoin{Kind: rel.Inner, Keys: [2][]int{{0}, {0}}, Time: [2]int{1, 1}, Lower: 0, Upper: 5,
		Phys: rel.Phys{Base: rel.MakeBase([]string{"k", "ts", "k2", "ts2"}, types, rel.Place{}), In: []rel.Physical{in, in}}})
	h.keep = true
	l := rel.Layout(in)
	at := func(ms int64) *row.Row {
		r := l.RowOf(int64(1), row.Stamp{Ms: ms})
		r.Time = ms
		return r
	}
	h.gives(1, at(10), row.Insert)
	h.gives(1, at(11), row.Insert)
	h.watermark(16) // a row at 10 is joined with those of the left side up to 15
	h.gives(0, at(16), row.Insert, `+I [1, "1970-01-01 00:00:00.016", 1, "1970-01-01 00:00:00.011"]`)
	h.watermark(17)
	h.gives(0, at(16), row.Insert)
}
