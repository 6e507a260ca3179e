package task

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

func TestBarrierFrames(t *testing.T) {
	b := appendBarrier(nil, 77, "sp-1")
	if up, id, err := barrierFrame(b); err != nil || up != 77 || id != "sp-1" {
		t.Fatalf("%d %q %v", up, id, err)
	}
	for i := range barrierHeader + 1 {
		if _, _, err := barrierFrame(b[:i]); err == nil {
			t.Fatalf("%d bytes are a barrier", i)
		}
	}
	if _, _, err := barrierFrame(appendBarrier(nil, 1, strings.Repeat("x", maxBarrierID+1))); err == nil {
		t.Fatal("an id of any length is taken")
	}
}

// An epoch with a barrier ends with it, on every partition of the repartition topic, behind data and watermarks; the
// next epoch has none.
func TestBarrierIsTheLastOfItsEpoch(t *testing.T) {
	env := Env{Inputs: []EnvInput{{Topic: "in", Partitions: []int32{0}, TotalPartitions: 1}}, Outputs: []EnvOutput{{Topic: "by", Partitions: 3}, {Topic: "dead-letter", Partitions: 1}}, Now: 1000}
	env.Subtask.Index = 4
	tk, _ := numbers(t, env, true)
	barriers := func(epoch uint64) (last string) {
		t.Helper()
		s, err := tk.Seal(epoch, 1000)
		if err != nil {
			t.Fatal(err)
		}
		kinds := map[int32]string{}
		for _, o := range s.Outputs {
			kind := "data"
			switch o.Value[0] {
			case frameWatermark:
				kind = "watermark"
			case frameBarrier:
				up, id, err := barrierFrame(o.Value)
				if err != nil || up != 4 {
					t.Fatalf("%d %v", up, err)
				}
				kind = id
			}
			kinds[o.Partition] += " " + kind
		}
		if err := tk.Committed(statestore.Meta{}); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(kinds)
	}
	tk.Enqueue(0, 0, texts(0, "100"))
	mustStep(t, tk, 1, 1)
	tk.Barrier("sp")
	if got, want := barriers(1), "map[0: data watermark sp 1: watermark sp 2: watermark sp]"; got != want {
		t.Errorf("epoch 1 writes %s, want %s", got, want)
	}
	tk.Barrier("sp2") // with nothing else to commit
	if got, want := barriers(2), "map[0: sp2 1: sp2 2: sp2]"; got != want {
		t.Errorf("epoch 2 writes %s, want %s", got, want)
	}
	if got, want := barriers(3), "map[]"; got != want {
		t.Errorf("epoch 3 writes %s, want %s", got, want)
	}
}

// joined has an external input 0 and an internal input 1 with 2 upstream subtasks, of which it owns two partitions.
func joined(t *testing.T, idle bool) (*Task, *number, *number) {
	t.Helper()
	lay := &Layout{Inputs: []InputLayout{{Bound: 5}, {Internal: true}}, Ops: []Op{{Name: "in"}, {Name: "by"}}, Nodes: []NodeLayout{{}, {ID: "from/by"}}, DeadLetter: -1}
	if idle {
		lay.Inputs[0].Idle = 1e9 // 1 s
	}
	env := Env{Outputs: []EnvOutput{{Topic: "out", Partitions: 4}}, State: statestore.NewState(memstore.New(), statestore.StateOptions{}), Now: 1000,
		Inputs: []EnvInput{{Topic: "in", Partitions: []int32{0}, TotalPartitions: 1}, {Topic: "r", Partitions: []int32{0, 2}, TotalPartitions: 4, UpstreamSubtasks: 2}}}
	tk, err := New(env, lay)
	if err != nil {
		t.Fatal(err)
	}
	external, internal := &number{}, &number{}
	tk.SetSource(0, external)
	tk.SetSource(1, internal)
	if err := tk.Start(); err != nil {
		t.Fatal(err)
	}
	return tk, external, internal
}

// data is a record that number reads, in the frame of a repartition topic as number knows none: its kind is 0.
func data(offset int64, text string) []record.Record {
	return []record.Record{{Value: []byte("\x00" + text), Offset: offset}}
}

// framed reads what data writes.
type framed struct{ *number }

func (f framed) Decode(x *Exec, slot int, rec *record.Record) (int64, error) {
	r := *rec
	r.Value = r.Value[1:]
	return f.number.Decode(x, slot, &r)
}

// A task is aligned when each upstream subtask has sent the barrier on each of its partitions; barriers of other savepoints
// do not count, and none counts as a record.
func TestAligned(t *testing.T) {
	tk, _, internal := joined(t, false)
	tk.SetSource(1, framed{internal})
	if err := tk.Start(); err != nil {
		t.Fatal(err)
	}
	offsets := map[int32]int64{}
	barrier := func(partition int32, upstream int, id string) {
		t.Helper()
		tk.Enqueue(1, partition, []record.Record{{Value: appendBarrier(nil, upstream, id), Offset: offsets[partition]}})
		offsets[partition]++
		mustStep(t, tk, 10, 1)
	}
	for i, b := range []struct {
		partition int32
		upstream  int
		id        string
		want      bool
	}{
		{0, 0, "a", false}, {0, 1, "a", false}, {2, 0, "old", false}, {2, 1, "a", false}, {2, 0, "a", true},
		{0, 0, "b", false}, {0, 1, "b", false}, {2, 1, "b", false}, {2, 0, "b", false},
	} {
		barrier(b.partition, b.upstream, b.id)
		if got := tk.Aligned("a"); got != b.want {
			t.Fatalf("step %d: aligned %v", i, got)
		}
	}
	if !tk.Aligned("b") {
		t.Fatal("not aligned with the second")
	}
	if st := tk.Stats(); st.RecordsIn != 0 || st.OldestUncommittedIn != 0 {
		t.Fatalf("barriers count as records: %+v", st)
	}
	s, err := tk.Seal(1, 1)
	if err != nil || s.Empty || s.Progress.Partitions[1].Offset != 4 || s.Progress.Partitions[2].Offset != 5 {
		t.Fatalf("%+v %v", s, err)
	}
	source, _ := numbers(t, Env{}, false)
	if !source.Aligned("a") {
		t.Error("a task without internal inputs waits for barriers")
	}
}

// While external inputs wait, older records of them do not go before the internal ones; nothing of them is lost or
// idle afterwards.
func TestPauseExternal(t *testing.T) {
	tk, external, internal := joined(t, true)
	tk.SetSource(1, framed{internal})
	if err := tk.Start(); err != nil {
		t.Fatal(err)
	}
	tk.Enqueue(0, 0, texts(0, "1"))
	tk.Enqueue(1, 0, data(0, "50"))
	mustStep(t, tk, 1, 1) // the older one, and both heads are decoded
	tk.Enqueue(0, 0, texts(1, "2", "3"))
	tk.PauseExternal()
	tk.Enqueue(1, 2, data(0, "60"))
	mustStep(t, tk, 10, 2)
	tk.Enqueue(0, 0, texts(3, "4"))
	mustStep(t, tk, 10, 0)
	if got := fmt.Sprint(external.seen, internal.seen); got != "[0:1] [0:50 2:60]" {
		t.Fatalf("processed %s while external inputs wait", got)
	}
	if next := tk.Stats().NextTimer; next != math.MaxInt64 {
		t.Errorf("idleness is due at %d", next)
	}
	if err := tk.Tick(5000); err != nil {
		t.Fatal(err)
	}
	for _, p := range tk.Positions() {
		if p.Idle {
			t.Errorf("input %d is idle since it waits", p.Input)
		}
	}
	tk.Resume(9000)
	if n, err := tk.Step(10, 9000); err != nil || n != 3 {
		t.Fatal(n, err)
	}
	if got := fmt.Sprint(external.seen, internal.seen); got != "[0:1 0:2 0:3 0:4] [0:50 2:60]" {
		t.Fatalf("processed %s in the end", got)
	}
	if next := tk.Stats().NextTimer; next != 10_000 {
		t.Errorf("idleness is due at %d, want a second after the pause", next)
	}
	// A pause with nothing buffered, and records that come in it.
	tk.PauseExternal()
	tk.Enqueue(0, 0, texts(4, "5"))
	mustStep(t, tk, 10, 0)
	tk.Resume(9100)
	mustStep(t, tk, 10, 1)
	// A pause in which nothing came.
	tk.PauseExternal()
	tk.Resume(20_000)
	if next := tk.Stats().NextTimer; next != 21_000 {
		t.Errorf("idleness is due at %d, want a second after the pause", next)
	}
}

// What a later version writes between the data of a repartition topic is not guessed at.
func TestUnknownFrameStops(t *testing.T) {
	tk, _, _ := joined(t, false)
	tk.Enqueue(1, 0, []record.Record{{Value: []byte{9, 1, 2}, Offset: 7}})
	var e *Error
	_, err := tk.Step(1, 1)
	if !errors.As(err, &e) || e.Kind != Internal || e.Offset != 7 || !strings.Contains(err.Error(), "kind 9 is not known to this version") {
		t.Fatalf("%v", err)
	}
	for name, v := range map[string][]byte{"cut": {frameBarrier, 0}, "upstream": appendBarrier(nil, 2, "a")} {
		tk, _, _ := joined(t, false)
		tk.Enqueue(1, 0, []record.Record{{Value: v}})
		if _, err := tk.Step(1, 1); !errors.As(err, &e) || e.Kind != Internal {
			t.Errorf("%s: %v", name, err)
		}
	}
}
