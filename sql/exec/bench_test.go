package exec

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/rel"
)

// bids are rows to measure with: auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, ts TIMESTAMP(3), 1 ms apart.
func bids() (rel.Physical, *row.Layout, []*row.Row) {
	in := table("auction", row.BigInt(), "bidder", row.BigInt(), "price", row.BigInt(), "channel", row.String(), "ts", row.Timestamp(3).WithMark(row.Rowtime))
	l := rel.Layout(in)
	rng := rand.New(rand.NewPCG(1, 2))
	rows := make([]*row.Row, 1<<16)
	for i := range rows {
		rows[i] = l.RowOf(rng.Int64N(10_000), rng.Int64N(1000), rng.Int64N(1_000_000), fmt.Sprintf("channel-%d", rng.IntN(4)), row.Stamp{Ms: int64(i)})
		rows[i].Time = int64(i)
	}
	return in, l, rows
}

// measure runs rows through an operator, commits every 10,000 and moves the watermark every 100 rows. Time goes on from one
// round of rows to the next. What is committed is written to the store every 50,000 rows, which is not measured.
func measure(b *testing.B, n rel.Physical, l *row.Layout, rows []*row.Row, step int64, inputs int) {
	h := newHarness(b, n)
	word := l.Place(4).Index
	at := int64(0)
	one := func(i int) {
		r := rows[i%len(rows)]
		at += step
		r.SetInt64(word, at)
		r.Time = at
		h.process(i%inputs, r)
		if i%100 == 99 {
			h.watermark(at - 5000)
		}
		if i%10_000 == 9999 {
			h.commit()
		}
		if i%50_000 == 49_999 {
			b.StopTimer()
			h.write()
			b.StartTimer()
		}
	}
	warm := 200_000
	for i := range warm {
		one(i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		one(warm + i)
	}
	b.ReportMetric(float64(h.emitted)/float64(warm+b.N), "rows/op")
}

// BenchmarkOperators measures the hot operators by record, on a store in memory, with the changelog's values encoded at
// each commit.
func BenchmarkOperators(b *testing.B) {
	in, l, rows := bids()
	stamp := row.Timestamp(3).NotNull()
	window := func(spec rel.WindowSpec) rel.Physical {
		spec.Time = 4
		calls := []rel.AggCall{call(b, in, "COUNT", -1), call(b, in, "SUM", 2), call(b, in, "MAX", 2)}
		return &rel.PWindowAgg{Spec: spec, Groups: []int{0}, Aggs: calls, Props: []rel.WindowProp{rel.WindowStart, rel.WindowEnd},
			Emit: rel.EmitOptions{EarlyDelay: -1, LateDelay: -1, AllowLateness: -1}, Phys: physOf([]int{0}, calls, []*row.Type{stamp, stamp}, in)}
	}
	calls := []rel.AggCall{call(b, in, "COUNT", -1), call(b, in, "SUM", 2), call(b, in, "MIN", 2), call(b, in, "MAX", 2)}
	distinct := call(b, in, "COUNT", 1)
	distinct.Distinct = true
	rank := func(calls bool) rel.Phys {
		types, names := in.Schema().Types, in.Schema().Names
		if calls {
			types, names = append(types[:len(types):len(types)], row.BigInt().NotNull()), append(names[:len(names):len(names)], "n")
		}
		return rel.Phys{Base: rel.MakeBase(names, types, rel.Place{}), In: []rel.Physical{in}}
	}
	both := rel.Phys{Base: rel.MakeBase(append(in.Schema().Names[:5:5], in.Schema().Names...), append(in.Schema().Types[:5:5], in.Schema().Types...), rel.Place{}), In: []rel.Physical{in, in}}
	after := func(p rel.Phys) rel.Phys { p.Form = rel.After; return p }
	for _, c := range []struct {
		name   string
		n      rel.Physical
		step   int64
		inputs int
	}{
		{"group/count sum min max", &rel.PGroupAgg{Groups: []int{0, 3}, Aggs: calls, Phys: after(physOf([]int{0, 3}, calls, nil, in))}, 1, 1},
		{"group/both", &rel.PGroupAgg{Groups: []int{0, 3}, Aggs: calls, Phys: func() rel.Phys { p := physOf([]int{0, 3}, calls, nil, in); p.Form = rel.Both; return p }()}, 1, 1},
		{"group/distinct", &rel.PGroupAgg{Groups: []int{3}, Aggs: []rel.AggCall{distinct}, Phys: after(physOf([]int{3}, []rel.AggCall{distinct}, nil, in))}, 1, 1},
		{"window/tumble 10 s", window(rel.WindowSpec{Kind: rel.Tumble, Size: 10_000}), 1, 1},
		{"window/hop 1 h by 1 min", window(rel.WindowSpec{Kind: rel.Hop, Size: 3_600_000, Slide: 60_000}), 1, 1},
		{"window/cumulate 1 h by 1 min", window(rel.WindowSpec{Kind: rel.Cumulate, Size: 3_600_000, Slide: 60_000}), 1, 1},
		{"topn/10 with rank", &rel.PTopN{Partition: []int{0}, Order: []rel.SortKey{{Column: 2, Desc: true, NullsLast: true}}, From: 1, To: 10, ToColumn: -1, Rank: true, Phys: after(rank(true))}, 1, 1},
		{"topn/10", &rel.PTopN{Partition: []int{0}, Order: []rel.SortKey{{Column: 2, Desc: true, NullsLast: true}}, From: 1, To: 10, ToColumn: -1, Phys: after(rank(false))}, 1, 1},
		{"dedup/last", &rel.PDedup{Key: []int{0, 1}, Time: 4, Last: true, Phys: after(rank(false))}, 1, 1},
		{"dedup/first", &rel.PDedup{Key: []int{0, 1}, Time: 4, Phys: rank(false)}, 1, 1},
		{"over/range 10 s", &rel.POverTime{Partition: []int{0}, Order: []rel.SortKey{{Column: 4}}, Frame: rel.Frame{From: 10_000}, Calls: calls[:2], Phys: func() rel.Phys {
			p := rank(false)
			p.Out.Names, p.Out.Types = append(p.Out.Names[:5:5], "n", "s"), append(p.Out.Types[:5:5], calls[0].Type, calls[1].Type)
			return p
		}()}, 1, 1},
		{"over/unbounded", &rel.POverTime{Partition: []int{0}, Order: []rel.SortKey{{Column: 4}}, Frame: rel.Frame{From: -1}, Calls: calls[:2], Phys: func() rel.Phys {
			p := rank(false)
			p.Out.Names, p.Out.Types = append(p.Out.Names[:5:5], "n", "s"), append(p.Out.Types[:5:5], calls[0].Type, calls[1].Type)
			return p
		}()}, 1, 1},
		{"join/inner unique", &rel.PJoin{Kind: rel.Inner, Keys: [2][]int{{0}, {0}}, Unique: [2]bool{true, true}, Phys: both}, 1, 2},
		{"join/interval 1 s", &rel.PIntervalJoin{Kind: rel.Inner, Keys: [2][]int{{0}, {0}}, Time: [2]int{4, 4}, Lower: -1000, Upper: 1000, Phys: both}, 1, 2},
	} {
		b.Run(c.name, func(b *testing.B) { measure(b, c.n, l, rows, c.step, c.inputs) })
	}
}
