package exec

import (
	"testing"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/rel"
)

// TestOverProcessingTimeOfOneInstant has several rows in one ms: each comes out once, when it arrives.
func TestOverProcessingTimeOfOneInstant(t *testing.T) {
	in := table("k", row.Int(), "v", row.Int(), "p", row.TimestampLTZ(3).WithMark(row.Proctime))
	calls := []rel.AggCall{call(t, in, "COUNT", -1), call(t, in, "SUM", 1)}
	for _, f := range []struct {
		name  string
		frame rel.Frame
		want  []string
	}{
		{"ROWS 1 PRECEDING", rel.Frame{Rows: true, From: 1}, []string{`[1, 5, null, 1, 5]`, `[1, 6, null, 2, 11]`, `[1, 7, null, 2, 13]`, `[1, 8, null, 2, 15]`, `[1, 9, null, 2, 17]`}},
		{"RANGE 10 ms PRECEDING", rel.Frame{From: 10}, []string{`[1, 5, null, 1, 5]`, `[1, 6, null, 2, 11]`, `[1, 7, null, 3, 18]`, `[1, 8, null, 4, 26]`, `[1, 9, null, 5, 35]`}},
	} {
		p := rel.Phys{Base: rel.MakeBase([]string{"k", "v", "p", "n", "s"}, append(in.Schema().Types[:3:3], calls[0].Type, calls[1].Type), rel.Place{}), In: []rel.Physical{in}}
		h := newHarness(t, &rel.POverTime{Partition: []int{0}, Order: []rel.SortKey{{Column: 2}}, Frame: f.frame, Calls: calls, Proc: true, Phys: p})
		h.keep = true
		l := rel.Layout(in)
		for i, want := range f.want {
			if i == 3 { // the last ms that the frame reaches
				h.env.Now += 10
			}
			h.gives(0, l.RowOf(int64(1), int64(5+i), nil), row.Insert, "+I "+want)
			if i == 1 {
				h.restart()
			}
		}
	}
}
