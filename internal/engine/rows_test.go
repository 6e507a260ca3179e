package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/window"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

// group is a row of holdRows: the events of a window, or one that was held.
type group struct {
	Kind  string  `json:"kind"` // w: of a window, s: of a session, h: one that was held
	Text  string  `json:"text"`
	End   int64   `json:"end"`
	Left  []int64 `json:"left"`
	Right []int64 `json:"right"`
}

const sessionMs = 200 // some more than lies between two events of one of 17 texts

// holdRows keeps what remember does not: rows in windows, in both forms that there are, and the list of an operator.
func holdRows(t *processor.Topology) {
	all := processor.FromRecords(t, timed())
	held := processor.ProcessStream(all, "hold", func(ctx *processor.Context[processor.Record[event], group]) {
		type place struct{ N, Partition int64 }
		list := processor.OperatorList[place](ctx, "held")
		ctx.OnRecord(func(r processor.Record[event]) error {
			if r.Value.N >= 0 {
				list.Add(place{r.Value.N, int64(r.Partition)})
				return nil
			}
			for p := range list.All() { // r closes its partition
				ctx.Emit(group{Kind: "h", Left: []int64{p.N}, Right: []int64{p.Partition, int64(r.Partition)}})
			}
			list.Clear()
			return nil
		})
	})
	events := processor.Map(all, func(r processor.Record[event]) event { return r.Value })
	by := processor.KeyBy(events, "by-text", func(e event) string { return e.Text })
	half := func(n int64) processor.KeyedStream[string, event] {
		return by.Filter(func(e event) bool { return e.N >= 0 && e.N%2 == n })
	}
	numbers := func(es []event) (ns []int64) {
		for _, e := range es {
			ns = append(ns, e.N)
		}
		return ns
	}
	of := func(kind string) func(w processor.Window[string], l, r []event, emit func(group)) error {
		return func(w processor.Window[string], l, r []event, emit func(group)) error {
			emit(group{kind, w.Key, w.End.UnixMilli() - startAt, numbers(l), numbers(r)})
			return nil
		}
	}
	windows := processor.CoGroup(half(0).Window(window.Tumbling(windowMs*time.Millisecond)), half(1), "windows", of("w"))
	sessions := processor.CoGroup(half(0).Window(window.Session(sessionMs*time.Millisecond)), half(1), "sessions", of("s"))
	processor.To(held, processor.SinkTopic[group]{Name: "rows", ID: "held"})
	processor.To(windows, processor.SinkTopic[group]{Name: "rows", ID: "windows"})
	processor.To(sessions, processor.SinkTopic[group]{Name: "rows", ID: "sessions"})
}

// TestRowsAndListsMove: rows that wait in windows and lists of operators are what they would be in one subtask without a
// fault: from 2 subtasks to 4 and to 3 by savepoints, after each the local state is lost and restored from checkpoints or
// changelogs.
func TestRowsAndListsMove(t *testing.T) {
	s := newStage(t, "rows", 12)
	const keys = 17
	var dir *memstore.Dir
	var last *member
	for i, n := range []int{2, 4, 3} {
		m := s.run(holdRows, memstore.NewDir(s.app), func(o *engine.Options) {
			o.Parallelism = n
			if i > 0 {
				from(fmt.Sprintf("s%d", i))(o)
			}
		})
		s.send(100, keys)
		s.settle(m)
		if st := m.w.Status(); len(st.Subtasks) != 2*n || st.Incarnation != uint64(i+1) {
			t.Fatalf("%d subtasks in incarnation %d, want %d", len(st.Subtasks), st.Incarnation, 2*n)
		}
		m.stop(t)
		dir = memstore.NewDir(s.app)
		last = s.run(holdRows, dir, nil)
		s.send(100, keys)
		s.settle(last)
		if i < 2 {
			last.stop(t)
			s.save(fmt.Sprintf("s%d", i+1), dir)
		}
	}
	s.close()

	want := map[string]group{}
	add := func(kind, text string, end int64, e event) {
		id := fmt.Sprint(kind, " ", text, " ", end)
		g := want[id]
		g.Kind, g.Text, g.End = kind, text, end
		if e.N%2 == 0 {
			g.Left = append(g.Left, e.N)
		} else {
			g.Right = append(g.Right, e.N)
		}
		want[id] = g
	}
	ends := map[string]int64{}
	for _, e := range s.sent {
		ends[e.Text] = e.At + sessionMs - startAt
	}
	for _, e := range s.sent {
		add("w", e.Text, e.At-e.At%windowMs+windowMs-startAt, e)
		add("s", e.Text, ends[e.Text], e)
		want[fmt.Sprint("h ", e.N)] = group{Kind: "h", Left: []int64{e.N}}
	}
	testutil.Eventually(t, patience, func() error {
		got := map[string]group{}
		for _, r := range s.read("rows") {
			g := fromJSON[group](t, r.Value)
			id := fmt.Sprint(g.Kind, " ", g.Text, " ", g.End)
			if g.Kind == "h" {
				id = fmt.Sprint("h ", g.Left[0])
				if g.Right[0]%3 != g.Right[1]%3 {
					t.Fatalf("what was held of partition %d is in the subtask of partition %d", g.Right[0], g.Right[1])
				}
				g.Right = nil
			}
			slices.Sort(g.Left) // rows of one key come from several partitions
			slices.Sort(g.Right)
			if w, ok := want[id]; !ok || !slices.Equal(w.Left, g.Left) || !slices.Equal(w.Right, g.Right) {
				t.Fatalf("%s is %v, want %v", id, g, w)
			}
			if _, twice := got[id]; twice {
				t.Fatalf("%s came out twice", id)
			}
			got[id] = g
		}
		if len(got) < len(want) {
			return fmt.Errorf("%d of %d rows came out", len(got), len(want))
		}
		return nil
	})
	last.stop(t)
}
