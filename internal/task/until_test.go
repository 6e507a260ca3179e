package task

import (
	"slices"
	"testing"
)

// ended are the partitions of input 0 that have ended.
func ended(tk *Task) (ps []int32) {
	for _, p := range tk.Until {
		ps = append(ps, p)
	}
	return ps
}

func TestReadingEnds(t *testing.T) {
	in := []EnvInput{{Topic: "in", Partitions: []int32{0, 1, 2}, TotalPartitions: 3, Until: map[int32]int64{0: 2, 1: 0, 2: 5}}}
	start := &Progress{Partitions: []PartitionProgress{
		{Partition: 0, Offset: 0, MaxTime: unset, Watermark: unset}, {Partition: 1, Offset: 0, MaxTime: unset, Watermark: unset}, {Partition: 2, Offset: 0, MaxTime: unset, Watermark: unset}}}
	tk, s := numbers(t, Env{Inputs: in, Restored: start}, true)
	mustStep(t, tk, 10, 0)
	if got := ended(tk); !slices.Equal(got, []int32{1}) { // there was nothing to read
		t.Fatalf("partitions %v have ended, want 1", got)
	}
	tk.Enqueue(0, 0, texts(0, "10", "20", "30"))
	mustStep(t, tk, 10, 2)
	if got := ended(tk); !slices.Equal(got, []int32{0, 1}) || len(s.seen) != 2 {
		t.Fatalf("partitions %v have ended, of records %v", got, s.seen)
	}
	tk.Enqueue(0, 2, texts(0, "40", "control"))
	mustStep(t, tk, 10, 2)
	if st := tk.Stats(); st.Ended || st.Watermark != 34 {
		t.Fatalf("ended before the last partition: %+v", st)
	}
	tk.Enqueue(0, 0, texts(3, "31")) // of a partition that has ended
	tk.Enqueue(0, 2, texts(9, "50")) // behind a hole
	mustStep(t, tk, 10, 0)
	st := tk.Stats()
	if !st.Ended || st.Watermark != never || st.OldestUncommittedIn == 0 || len(s.seen) != 3 {
		t.Fatalf("not ended, or nothing to commit: %+v", st)
	}
	sealed, err := tk.Seal(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	marks := 0
	for _, o := range sealed.Outputs {
		if _, m, err := watermarkFrame(o.Value); err == nil && m.Watermark == never {
			marks++
		}
	}
	p := sealed.Progress
	if p.Watermarks[EndID("in", 2)] != 5 || p.Watermarks[EndID("in", 1)] != 0 || marks != 4 {
		t.Fatalf("kept are %v, and %d of 4 partitions hear that time is over", p.Watermarks, marks)
	}
	// After a restart all of it is over, and wants no commit.
	tk, _ = numbers(t, Env{Inputs: in, Restored: &p}, true)
	mustStep(t, tk, 10, 0)
	if st := tk.Stats(); !st.Ended || st.OldestUncommittedIn != 0 || len(ended(tk)) != 3 {
		t.Fatalf("after a restart: %+v", st)
	}
}

// A partition that has ended is not idle: then the last word of all partitions would not be that time is over.
func TestEndedIsNotIdle(t *testing.T) {
	tk, _ := numbers(t, Env{Inputs: []EnvInput{{Topic: "in", Partitions: []int32{0, 1}, TotalPartitions: 2, Until: map[int32]int64{0: 1, 1: 1}}}}, false)
	tk.inputs[0].idle = 10
	tk.Enqueue(0, 0, texts(0, "10"))
	mustStep(t, tk, 10, 1)
	if err := tk.Tick(100); err != nil {
		t.Fatal(err)
	}
	tk.Enqueue(0, 1, texts(0, "10"))
	mustStep(t, tk, 10, 1)
	if st := tk.Stats(); !st.Ended {
		t.Fatalf("%+v", st)
	}
}
