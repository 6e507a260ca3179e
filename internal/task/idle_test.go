package task

import (
	"fmt"
	"testing"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

// An upstream subtask was idle and is active again. On one partition it says so, and how far it is now; on the other one the
// records that it sent before are still to be read. They are not late: the watermark waits for them, although the last
// that was heard there is that the subtask is idle.
func TestUpstreamThatWasIdleIsNotOvertaken(t *testing.T) {
	tk, _, internal := joined(t, false)
	tk.SetSource(1, framed{internal})
	if err := tk.Start(); err != nil {
		t.Fatal(err)
	}
	offsets := map[int32]int64{}
	mark := func(partition int32, upstream int, watermark int64, idle bool) {
		t.Helper()
		tk.Enqueue(1, partition, []record.Record{{Value: appendWatermark(nil, upstream, UpstreamMark{watermark, idle}), Offset: offsets[partition]}})
		offsets[partition]++
		mustStep(t, tk, 10, 1)
	}
	want := func(watermark int64, idle bool) {
		t.Helper()
		if n := tk.inputs[1].node; n.Watermark != watermark || n.Idle != idle {
			t.Fatalf("watermark %d, idle %v; want %d, %v", n.Watermark, n.Idle, watermark, idle)
		}
	}
	for _, idle := range []bool{false, true} {
		for _, partition := range []int32{0, 2} {
			for upstream := range 2 {
				mark(partition, upstream, 24, idle)
			}
		}
	}
	want(24, true)
	mark(2, 0, 34, false)
	want(24, false)
	tk.Enqueue(1, 0, data(offsets[0], "28"))
	offsets[0]++
	mustStep(t, tk, 10, 1)
	want(24, false)
	mark(0, 0, 34, false)
	want(34, false)
	// It holds back until it has said on all partitions that it is idle.
	mark(2, 0, 40, true)
	want(34, false)
	mark(0, 1, 50, false) // the other one
	mark(2, 1, 50, false)
	want(34, false)
	mark(0, 0, 40, true)
	want(50, false)
}

// Where all are idle the greatest watermark counts, whichever was idle last: of partitions, of upstream subtasks and of the
// inputs of a join. So does Flink (StatusWatermarkValve).
func TestAllIdle(t *testing.T) {
	for name, first := range map[string]int{"the slower one first": 0, "the faster one first": 1} {
		t.Run(name, func(t *testing.T) {
			lay := &Layout{Inputs: []InputLayout{{Idle: 1e9}, {Internal: true}}, Ops: []Op{{Name: "in"}, {Name: "by"}}, Nodes: []NodeLayout{{}, {ID: "from/by"}, {ID: "join", Inputs: []int{0, 1}}}, DeadLetter: -1}
			env := Env{Outputs: []EnvOutput{{Topic: "out", Partitions: 4}}, State: statestore.NewState(memstore.New(), statestore.StateOptions{}), Now: 1000,
				Inputs: []EnvInput{{Topic: "in", Partitions: []int32{0, 1}, TotalPartitions: 2}, {Topic: "r", Partitions: []int32{0}, TotalPartitions: 1, UpstreamSubtasks: 2}}}
			tk, err := New(env, lay)
			if err != nil {
				t.Fatal(err)
			}
			tk.SetSource(0, &number{})
			tk.SetSource(1, &number{})
			if err := tk.Start(); err != nil {
				t.Fatal(err)
			}
			offset := int64(0)
			mark := func(upstream int, watermark int64, idle bool) {
				t.Helper()
				tk.Enqueue(1, 0, []record.Record{{Value: appendWatermark(nil, upstream, UpstreamMark{watermark, idle}), Offset: offset}})
				offset++
				if _, err := tk.Step(1, 1500); err != nil {
					t.Fatal(err)
				}
			}
			tick := func(now int64) {
				t.Helper()
				if err := tk.Tick(now); err != nil {
					t.Fatal(err)
				}
			}
			want := func(node int, watermark int64, idle bool) {
				t.Helper()
				if n := tk.nodes[node]; n.Watermark != watermark || n.Idle != idle {
					t.Fatalf("node %d: watermark %d, idle %v; want %d, %v", node, n.Watermark, n.Idle, watermark, idle)
				}
			}
			// Partition 0 is at 20, 1 at 30; the one that is idle first had its record half a second before the other.
			for i, p := range []int{first, 1 - first} {
				tk.Enqueue(0, int32(p), texts(0, fmt.Sprint(21+10*p)))
				if _, err := tk.Step(1, 1000+int64(i)*500); err != nil {
					t.Fatal(err)
				}
			}
			want(0, 20, false)
			mark(0, 24, false)
			mark(1, 35, false)
			want(1, 24, false)
			want(2, 20, false)
			tick(2000)
			want(0, []int64{30, 20}[first], false)
			tick(2500)
			want(0, 30, true)
			want(2, 24, false)
			mark(first, []int64{24, 35}[first], true)
			mark(1-first, []int64{24, 35}[1-first], true)
			want(1, 35, true)
			want(2, 35, true)
		})
	}
}
