package task

import (
	"slices"
	"testing"

	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

// beside is a task with a stream and two tables, which go first: the first table has two partitions.
func beside(t *testing.T, restored *Progress, ends ...map[int32]int64) (tk *Task, stream, table *number) {
	t.Helper()
	lay := &Layout{Inputs: []InputLayout{{Bound: 5, Idle: 1e9}, {First: true, Idle: 1e9}, {First: true}}, Ops: []Op{{Name: "in"}, {Name: "table"}, {Name: "more"}},
		Nodes: []NodeLayout{{ID: "from/in"}, {ID: "table-from/table"}, {ID: "table-from/more"}}, DeadLetter: -1}
	env := Env{Outputs: []EnvOutput{{Topic: "out", Partitions: 4}}, State: statestore.NewState(memstore.New(), statestore.StateOptions{}), Now: 1000, Restored: restored,
		Inputs: []EnvInput{{Topic: "in", Partitions: []int32{0}, TotalPartitions: 1}, {Topic: "table", Partitions: []int32{0, 1}, TotalPartitions: 2, Ends: ends[0]},
			{Topic: "more", Partitions: []int32{0}, TotalPartitions: 1, Ends: ends[1]}}}
	tk, err := New(env, lay)
	if err != nil {
		t.Fatal(err)
	}
	stream, table = &number{}, &number{}
	for i, s := range []*number{stream, table, {}} {
		tk.SetSource(i, s)
	}
	if err := tk.Start(); err != nil {
		t.Fatal(err)
	}
	return tk, stream, table
}

// Records of a stream wait until the tables were read to where they ended; once, and not for what came later.
func TestTablesAreReadFirst(t *testing.T) {
	tk, stream, _ := beside(t, nil, map[int32]int64{0: 2, 1: 5}, map[int32]int64{0: 0})
	waits := func() {
		t.Helper()
		if !tk.Awaits() || len(stream.seen) > 0 {
			t.Fatalf("waits is %v, %d records of the stream were processed", tk.Awaits(), len(stream.seen))
		}
	}
	tk.Enqueue(0, 0, texts(0, "10"))
	mustStep(t, tk, 10, 0)
	tk.Enqueue(1, 0, texts(0, "20", "30"))
	mustStep(t, tk, 10, 2)
	waits()
	tk.Enqueue(1, 1, texts(0, "20", "25", "control"))
	mustStep(t, tk, 10, 3)
	waits()
	// Time passes, and nothing that waits is idle by it.
	if err := tk.Tick(5000); err != nil {
		t.Fatal(err)
	}
	if st := tk.Stats(); tk.inputs[0].node.Idle || tk.inputs[1].node.Idle || st.NextTimer != never {
		t.Fatalf("something is idle, or will be at %d", st.NextTimer)
	}
	tk.Enqueue(0, 0, texts(1, "11"))
	sealed, err := tk.Seal(1, 5000)
	if err != nil {
		t.Fatal(err)
	}
	unfinished := sealed.Progress
	if err := tk.Committed(statestore.Meta{}); err != nil {
		t.Fatal(err)
	}
	tk.Enqueue(1, 1, texts(9, "40")) // behind a hole
	if n, err := tk.Step(1, 5100); n != 1 || err != nil || tk.Awaits() {
		t.Fatalf("%d steps, %v; waits is %v", n, err, tk.Awaits())
	}
	if n, err := tk.Step(10, 5200); n != 2 || err != nil || len(stream.seen) != 2 {
		t.Fatalf("%d steps, %v, the stream is %v", n, err, stream.seen)
	}
	// What stood still becomes idle from now on.
	if st := tk.Stats(); st.NextTimer != 6100 {
		t.Fatalf("the next timer is at %d", st.NextTimer)
	}
	if sealed, err = tk.Seal(2, 5200); err != nil {
		t.Fatal(err)
	}

	// It was loaded: another start does not wait, wherever the table ends now.
	later := []map[int32]int64{{0: 100, 1: 100}, {0: 100}}
	if tk, _, _ = beside(t, &sealed.Progress, later...); tk.Awaits() {
		t.Error("what was loaded once is waited for again")
	}
	// It was not: then it is read to where it ends now. The second table was, since it was empty.
	if tk, _, _ = beside(t, &unfinished, later...); !tk.Awaits() || slices.Equal(tk.inputs[2].loaded, []bool{false}) {
		t.Error("what was not loaded is not waited for, or what was is")
	}
	// There may be nothing more to read.
	if tk, _, _ = beside(t, &unfinished, map[int32]int64{0: 2, 1: 3}, nil); tk.Awaits() {
		t.Error("nothing is left to read, and it is waited for")
	}
}

// A table whose reading ends before what it holds is loaded there; one that goes on while a savepoint is taken waits as
// all that is external, and then goes on.
func TestTableThatEnds(t *testing.T) {
	tk, stream, _ := beside(t, nil, map[int32]int64{0: 9}, nil)
	for _, p := range tk.inputs[1].parts {
		p.until = 2
	}
	tk.Enqueue(0, 0, texts(0, "10"))
	tk.PauseExternal()
	tk.Enqueue(1, 0, texts(0, "20", "30", "40"))
	mustStep(t, tk, 10, 0)
	tk.Resume(1000)
	mustStep(t, tk, 10, 2+1)
	if tk.Awaits() || len(stream.seen) != 1 {
		t.Fatalf("waits is %v, the stream is %v", tk.Awaits(), stream.seen)
	}
}
