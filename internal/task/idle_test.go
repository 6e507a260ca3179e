package task

import (
	"testing"

	"github.com/millrace-stream/millrace/internal/record"
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
