package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

// TestRescale changes the number of subtasks of a running app: its two members go on by themselves.
func TestRescale(t *testing.T) {
	s := newStage(t, "rescaled", 12)
	members := []*member{s.run(behindKeyBy, memstore.NewDir(s.app), func(o *engine.Options) { o.Parallelism = 4 })}
	s.send(50, 17)
	s.settle(members[0])
	members[0].stop(t)
	members = nil
	for range 2 {
		members = append(members, s.run(behindKeyBy, memstore.NewDir(s.app), nil))
	}
	s.send(150, 17)
	s.settle(members[0])

	k := s.command(s.app, s.blobs)
	plan := func(subtasks int) *engine.RescalePlan {
		t.Helper()
		p, err := engine.PlanRescale(t.Context(), k.cluster, k.control, subtasks)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if p := plan(5); !p.Refused() || !strings.Contains(p.Subs[1].Why, "does not divide") {
		t.Fatalf("5 subtasks of 12 partitions: %+v", p)
	}
	if _, err := engine.PlanRescale(t.Context(), k.cluster, k.control, 4); !errors.Is(err, engine.ErrNothingToDo) {
		t.Fatalf("as it is: %v", err)
	}
	var names []string
	was := 4
	for i, n := range []int{6, 3} {
		s.send(100, 17)
		s.runs(2*was, members...)
		was = n
		var sp *checkpoint.Savepoint
		var err error
		for try := 1; sp == nil; try++ { // the group may still spread the subtasks
			name := fmt.Sprintf("to-%d-%d", n, try)
			sp, err = engine.Rescale(t.Context(), k.cluster, k.control, s.blobs, plan(n), engine.SavepointOptions{Name: name, By: "a test"})
			if err != nil && !strings.Contains(err.Error(), "moved to member") {
				t.Fatal(err)
			}
		}
		names = append(names, sp.Name)
		if sp.Status != checkpoint.StatusCompleted {
			t.Errorf("the savepoint is %s", sp.Status)
		}
		s.send(100, 17)
		s.settle(members[0])
		s.settle(members[1])
		total := 0
		for _, m := range members {
			st := m.w.Status()
			if st.Incarnation != uint64(i+2) {
				t.Errorf("incarnation %d", st.Incarnation)
			}
			total += len(st.Subtasks)
		}
		if total != 2*n {
			t.Errorf("%d subtasks run, want %d", total, 2*n)
		}
	}
	for _, name := range names {
		s.forget(name)
	}
	s.close()
	s.fired(func() []row { return s.rows("rows") })
	for _, m := range members {
		m.stop(t)
	}
	checkRows(t, s.rows("rows"), s.sent)
	m := s.run(behindKeyBy, memstore.NewDir(s.app), func(o *engine.Options) { o.Parallelism = 3 })
	s.settle(m)
	m.stop(t)
}
