package task

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

func TestResolveParallelism(t *testing.T) {
	for _, c := range []struct {
		wanted     int
		partitions []int32
		want       int // 0 = an error
	}{
		{0, []int32{1}, 1}, {0, []int32{6}, 6}, {0, []int32{16}, 16}, {0, []int32{17}, 1}, {0, []int32{24}, 12}, {0, []int32{48}, 16},
		{0, []int32{24, 16}, 8}, {0, []int32{7, 5}, 1}, {0, []int32{100}, 10}, {3, []int32{6, 9}, 3}, {64, []int32{64}, 64},
		{4, []int32{6}, 0}, {16, []int32{24, 16}, 0}, {-1, []int32{4}, 0}, {0, nil, 0}, {0, []int32{0}, 0}, {2, []int32{4, -4}, 0},
	} {
		got, err := ResolveParallelism(c.wanted, c.partitions)
		if (err != nil) != (c.want == 0) || got != c.want {
			t.Errorf("%d of %v: %d, %v, want %d", c.wanted, c.partitions, got, err, c.want)
		}
	}
}

func TestFrames(t *testing.T) {
	for _, at := range []int64{0, -1, 1 << 60, -1 << 60} {
		b := append(AppendDataHeader(nil, at), "xyz"...)
		got, payload, err := DataFrame(b)
		if err != nil || got != at || string(payload) != "xyz" {
			t.Fatalf("%d %q %v", got, payload, err)
		}
	}
	for _, m := range []UpstreamMark{{math.MinInt64, false}, {5, true}, {math.MaxInt64, false}} {
		b := appendWatermark(nil, 77, m)
		up, got, err := watermarkFrame(b)
		if err != nil || up != 77 || got != m {
			t.Fatalf("%d %v %v", up, got, err)
		}
		for i := range b {
			if _, _, err := watermarkFrame(b[:i]); err == nil {
				t.Fatalf("%d bytes are a watermark", i)
			}
		}
	}
}

func FuzzFrames(f *testing.F) {
	f.Add([]byte{0, 1, 2})
	f.Add(appendWatermark(nil, 1, UpstreamMark{9, true}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if at, payload, err := DataFrame(b); err == nil && !bytes.Equal(append(AppendDataHeader(nil, at), payload...), b) {
			t.Fatalf("data frame %x reads back otherwise", b)
		}
		if up, m, err := watermarkFrame(b); err == nil && !bytes.Equal(appendWatermark(nil, up, m), b) {
			t.Fatalf("watermark frame %x reads back otherwise", b)
		}
	})
}

// What was kept stays as it was until committed is called, whatever comes after; rolled back bytes are used again.
func TestArena(t *testing.T) {
	var a arena
	put := func(n int, c byte) []byte {
		b := a.buf()
		if b == nil || len(b) != 0 {
			t.Fatalf("buf is %v", b)
		}
		return a.keep(append(b, bytes.Repeat([]byte{c}, n)...))
	}
	type kept struct {
		b []byte
		n int
		c byte
	}
	var epoch, sealed []kept
	check := func(ks []kept) {
		t.Helper()
		for _, k := range ks {
			if len(k.b) != k.n || cap(k.b) != k.n && k.n > 0 || bytes.Count(k.b, []byte{k.c}) != k.n {
				t.Fatalf("%d bytes of %d changed", k.n, k.c)
			}
		}
	}
	c := byte(0)
	for round := range 20 {
		for i := range 400 {
			c++
			n := (i * i * 7) % 3000
			if i%97 == 0 {
				n = chunkSize * 2 // outgrows any chunk
			}
			if i%5 == 0 {
				m := a.mark()
				put(n, 0xff)
				put(1, 0xfe)
				a.reset(m)
			}
			epoch = append(epoch, kept{put(n, c), n, c})
		}
		check(sealed)
		check(epoch)
		a.committed()
		a.seal()
		sealed, epoch = epoch, nil
		if round > 2 && len(a.free)+len(a.sealed) > 3*maxFreeChunks {
			t.Fatalf("%d chunks", len(a.free)+len(a.sealed))
		}
	}
	if got := put(0, 1); got == nil {
		t.Fatal("an empty value became null")
	}
}

// number is a Source of int64 event times as text; it writes each to output 0 and remembers what it saw.
type number struct {
	at   []int64
	seen []string
	fail func(at int64) error
}

func (s *number) Open(n int) { s.at = make([]int64, n) }
func (s *number) Decode(x *Exec, slot int, rec *record.Record) (int64, error) {
	if _, err := fmt.Sscan(string(rec.Value), &s.at[slot]); err != nil {
		return 0, x.Fail(0, BadData, err)
	}
	return s.at[slot], nil
}
func (s *number) Run(x *Exec, slot int) error {
	x.Op = 0
	_, _, partition := x.Record()
	if err := x.Output(0, 0, 0, nil, x.Keep(fmt.Append(x.Buf(), s.at[slot])), nil, x.Time, 0); err != nil {
		return err
	}
	if s.fail != nil {
		if err := s.fail(s.at[slot]); err != nil {
			return err
		}
	}
	s.seen = append(s.seen, fmt.Sprintf("%d:%d", partition, s.at[slot]))
	return nil
}
func (s *number) OnEvent(int, int64) int64 { return unset }
func (s *number) OnPeriod(int) int64       { return unset }

func numbers(t *testing.T, env Env, repartition bool) (*Task, *number) {
	t.Helper()
	lay := &Layout{Inputs: []InputLayout{{Bound: 5}}, Ops: []Op{{Name: "in"}}, Nodes: []NodeLayout{{}}, DeadLetter: 1}
	if env.Outputs == nil {
		env.Outputs = []EnvOutput{{Topic: "out", Partitions: 4}, {Topic: "dead-letter", Partitions: 1}}
	}
	if repartition {
		lay.Nodes = append(lay.Nodes, NodeLayout{ID: "by", Inputs: []int{0}})
		lay.Repartitions = []Repartition{{Output: 0, Node: 1, ID: "by"}}
	}
	if env.Inputs == nil {
		env.Inputs = []EnvInput{{Topic: "in", Partitions: []int32{0, 1, 2}, TotalPartitions: 3}}
	}
	env.State = statestore.NewState(memstore.New(), statestore.StateOptions{})
	tk, err := New(env, lay)
	if err != nil {
		t.Fatal(err)
	}
	s := &number{}
	tk.SetSource(0, s)
	if err := tk.Start(); err != nil {
		t.Fatal(err)
	}
	return tk, s
}

func texts(from int64, values ...string) (recs []record.Record) {
	for i, v := range values {
		r := record.Record{Value: []byte(v), Offset: from + int64(i)}
		if v == "control" {
			r.Control = true
		}
		recs = append(recs, r)
	}
	return recs
}

func mustStep(t *testing.T, tk *Task, max, want int) {
	t.Helper()
	n, err := tk.Step(max, 1)
	if err != nil || n != want {
		t.Fatalf("step: %d, %v, want %d", n, err, want)
	}
}

// Of the heads the lowest event time goes first, markers and bad records at once; ties go to the lower partition (I6).
func TestMergeByEventTime(t *testing.T) {
	for _, max := range []int{1, 2, 100} {
		tk, s := numbers(t, Env{}, false)
		tk.Enqueue(0, 1, texts(0, "10", "30", "control", "20"))
		tk.Enqueue(0, 0, texts(0, "15", "bad", "5"))
		tk.Enqueue(0, 2, texts(0, "30"))
		tk.Enqueue(0, 0, texts(3, "30"))
		total := 0
		for {
			n, err := tk.Step(max, 1)
			if err != nil {
				t.Fatal(err)
			}
			if total += n; n == 0 {
				break
			}
		}
		if got, want := strings.Join(s.seen, " "), "1:10 0:15 0:5 0:30 1:30 1:20 2:30"; got != want {
			t.Fatalf("order %s, want %s", got, want)
		}
		if total != 9 {
			t.Fatalf("%d steps, want 9", total)
		}
		st := tk.Stats()
		if st.RecordsIn != 8 || st.RecordsOut != 8 || st.DeadLetters != 1 || st.Buffered != 0 || st.BufferedBytes != 0 || st.Watermark != 24 {
			t.Fatalf("%+v", st)
		}
		sealed, err := tk.Seal(1, 1)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []PartitionProgress{{Offset: 4, MaxTime: 30, Watermark: 24}, {Partition: 1, Offset: 4, MaxTime: 30, Watermark: 24}, {Partition: 2, Offset: 1, MaxTime: 30, Watermark: 24}} {
			if got := sealed.Progress.Partitions[i]; got.Offset != want.Offset || got.Partition != want.Partition || got.MaxTime != want.MaxTime || got.Watermark != want.Watermark {
				t.Fatalf("progress %+v, want %+v", got, want)
			}
		}
	}
}

// A marker moves the position and asks for no commit; a quiet task seals empty.
func TestSealOfLittle(t *testing.T) {
	tk, _ := numbers(t, Env{}, false)
	if s, err := tk.Seal(1, 1); err != nil || !s.Empty {
		t.Fatalf("%+v %v", s, err)
	}
	tk.Enqueue(0, 0, texts(0, "control"))
	mustStep(t, tk, 10, 1)
	if st := tk.Stats(); st.OldestUncommittedIn != 0 {
		t.Fatal("a marker asks for a commit")
	}
	s, err := tk.Seal(1, 1)
	if err != nil || s.Empty || s.Progress.Partitions[0].Offset != 1 || s.Progress.Partitions[1].Offset != -1 {
		t.Fatalf("%+v %v", s, err)
	}
	if _, err := tk.Seal(2, 1); err == nil {
		t.Fatal("sealed twice")
	}
	if err := tk.Committed(statestore.Meta{}); err != nil {
		t.Fatal(err)
	}
	if s, err := tk.Seal(2, 1); err != nil || !s.Empty {
		t.Fatalf("%+v %v", s, err)
	}
}

// Outputs handed out stay as they are until Committed, even while the next epoch runs.
func TestOutputsStayValid(t *testing.T) {
	tk, _ := numbers(t, Env{}, false)
	var held []record.Output
	offset := int64(0)
	for epoch := range uint64(6) {
		var next []record.Output
		for range 50 {
			tk.Enqueue(0, 0, texts(offset, fmt.Sprint(offset), fmt.Sprint(offset+1)))
			offset += 2
			mustStep(t, tk, 10, 2)
			next = append(next, tk.TakeOutputs()...)
		}
		tk.Enqueue(0, 0, texts(offset, fmt.Sprint(offset)))
		offset++
		mustStep(t, tk, 1, 1)
		for i, o := range held {
			if string(o.Value) != fmt.Sprint(int64(epoch-1)*101+int64(i)) {
				t.Fatalf("epoch %d: output %d became %q", epoch, i, o.Value)
			}
		}
		if err := tk.Committed(statestore.Meta{}); err != nil {
			t.Fatal(err)
		}
		s, err := tk.Seal(epoch+1, 1)
		if err != nil || len(s.Outputs) != 1 {
			t.Fatalf("%v %v", s, err)
		}
		held = append(next, s.Outputs...)
	}
}

func TestEnqueueOfTheWrong(t *testing.T) {
	for name, f := range map[string]func(*Task){
		"partition": func(tk *Task) { tk.Enqueue(0, 7, texts(0, "1")) },
		"input":     func(tk *Task) { tk.Enqueue(1, 0, texts(0, "1")) },
		"offset": func(tk *Task) {
			tk.Enqueue(0, 0, texts(5, "1"))
			mustStep(t, tk, 1, 1)
			tk.Enqueue(0, 0, texts(5, "1"))
		},
	} {
		tk, _ := numbers(t, Env{}, false)
		f(tk)
		var e *Error
		if _, err := tk.Step(1, 1); !errors.As(err, &e) || e.Kind != Bug {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A Fault of the store below ends the task as such, wherever it comes up; a bug of ours is told apart from user code.
func TestFaultsAndBugs(t *testing.T) {
	cause := errors.New("disk on fire")
	tk, s := numbers(t, Env{}, false)
	s.fail = func(int64) error { panic(&statestore.Fault{Err: cause}) }
	tk.Enqueue(0, 0, texts(3, "1"))
	var e *Error
	if _, err := tk.Step(1, 1); !errors.As(err, &e) || e.Kind != Fault || !errors.Is(err, cause) || e.Offset != 3 || e.Operator != "in" {
		t.Fatalf("%v", err)
	}
	tk, s = numbers(t, Env{}, false)
	s.fail = func(int64) error { tk.x.Op = -1; panic("bug") }
	tk.Enqueue(0, 0, texts(3, "1"))
	if _, err := tk.Step(1, 1); !errors.As(err, &e) || e.Kind != Bug || len(e.Stack) == 0 {
		t.Fatalf("%v", err)
	}
}

// Watermarks of a repartition topic: with each epoch to the partitions that it wrote, to all at most every 200 ms, and
// only when moved. After a restart nothing is repeated.
func TestWatermarkRecords(t *testing.T) {
	env := Env{Inputs: []EnvInput{{Topic: "in", Partitions: []int32{0}, TotalPartitions: 1}}, Outputs: []EnvOutput{{Topic: "by", Partitions: 3}, {Topic: "dead-letter", Partitions: 1}}, Now: 1000}
	env.Subtask.Index = 4
	tk, s := numbers(t, env, true)
	partition := int32(0)
	s.fail = func(int64) error { tk.reparts[0].touched[partition] = true; return nil }
	epoch, offset := uint64(0), int64(0)
	seal := func(now int64) string {
		t.Helper()
		epoch++
		sealed, err := tk.Seal(epoch, now)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, o := range sealed.Outputs {
			if o.Value[0] == frameWatermark {
				up, m, err := watermarkFrame(o.Value)
				if err != nil || up != 4 {
					t.Fatalf("%v, upstream %d", err, up)
				}
				got = append(got, fmt.Sprintf("%d:%d/%v", o.Partition, m.Watermark, m.Idle))
			}
		}
		if !sealed.Empty {
			p := sealed.Progress
			env.Restored = &p
		}
		if err := tk.Committed(statestore.Meta{}); err != nil {
			t.Fatal(err)
		}
		return strings.Join(got, " ")
	}
	send := func(at int64, to int32) {
		t.Helper()
		partition = to
		tk.Enqueue(0, 0, texts(offset, fmt.Sprint(at)))
		offset++
		mustStep(t, tk, 1, 1)
	}
	want := func(got, want string) {
		t.Helper()
		if got != want {
			t.Fatalf("%q, want %q", got, want)
		}
	}
	send(100, 1)
	want(seal(1000), "0:94/false 1:94/false 2:94/false") // the first goes to all
	send(110, 2)
	want(seal(1050), "2:104/false") // the one that the epoch wrote
	send(110, 2)
	want(seal(1060), "") // not moved
	if next := tk.Stats().NextTimer; next != 1200 {
		t.Fatalf("next timer %d, want 1200", next)
	}
	if err := tk.Tick(1199); err != nil || tk.Stats().OldestUncommittedIn != 0 {
		t.Fatal(err, tk.Stats().OldestUncommittedIn)
	}
	if err := tk.Tick(1200); err != nil || tk.Stats().OldestUncommittedIn != 1200 {
		t.Fatal(err, tk.Stats().OldestUncommittedIn)
	}
	if n := len(tk.outs); n != 2 { // so that the engine sees that there is something to commit
		t.Fatalf("the tick wrote %d outputs, want 2", n)
	}
	want(seal(1200), "0:104/false 1:104/false")
	if tk.Stats().NextTimer != math.MaxInt64 {
		t.Fatal("still behind")
	}
	env.Now = 1201
	tk, _ = numbers(t, env, true)
	if err := tk.Tick(1500); err != nil {
		t.Fatal(err)
	}
	if sealed, err := tk.Seal(9, 1500); err != nil || !sealed.Empty {
		t.Fatalf("after a restart: %+v %v", sealed, err)
	}
}

// Downstream takes the minimum over all upstream subtasks that are active, the maximum if none is; marks never go back.
func TestUpstreamMarks(t *testing.T) {
	lay := &Layout{Inputs: []InputLayout{{Internal: true}}, Ops: []Op{{Name: "by"}}, Nodes: []NodeLayout{{ID: "from/by"}}, DeadLetter: -1}
	env := Env{Inputs: []EnvInput{{Topic: "r", Partitions: []int32{0}, TotalPartitions: 1, UpstreamSubtasks: 3}}}
	offset := int64(0)
	open := func() *Task {
		env.State = statestore.NewState(memstore.New(), statestore.StateOptions{})
		tk, err := New(env, lay)
		if err != nil {
			t.Fatal(err)
		}
		tk.SetSource(0, &number{})
		if err := tk.Start(); err != nil {
			t.Fatal(err)
		}
		return tk
	}
	tk := open()
	for i, c := range []struct {
		up   int
		m    UpstreamMark
		want int64
	}{
		{0, UpstreamMark{10, false}, unset}, {1, UpstreamMark{20, false}, unset}, {2, UpstreamMark{15, false}, 10},
		{0, UpstreamMark{30, false}, 15}, {2, UpstreamMark{15, true}, 20}, {1, UpstreamMark{5, false}, 20},
		{2, UpstreamMark{16, false}, 20}, {2, UpstreamMark{25, false}, 20}, {1, UpstreamMark{40, true}, 25},
		{0, UpstreamMark{30, true}, 25}, {2, UpstreamMark{26, true}, 40}, {1, UpstreamMark{45, false}, 45},
	} {
		tk.Enqueue(0, 0, []record.Record{{Value: appendWatermark(nil, c.up, c.m), Offset: offset}})
		offset++
		mustStep(t, tk, 10, 1)
		if got := tk.Stats().Watermark; got != c.want {
			t.Fatalf("step %d: watermark %d, want %d", i, got, c.want)
		}
		s, err := tk.Seal(uint64(i+1), 1)
		if err != nil {
			t.Fatal(err)
		}
		env.Restored = &s.Progress
		tk = open() // what it has seen is in the epoch record
		if got := tk.Stats().Watermark; got != c.want {
			t.Fatalf("step %d: watermark %d after a restart, want %d", i, got, c.want)
		}
	}
}
