package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

// labelled looks up the label of each event in a global table.
func labelled(t *processor.Topology) {
	labels := processor.GlobalTableFrom(t, "labels", format.String(), processor.Topic[string]{Name: "labels", Value: format.String()})
	out := processor.LeftJoinGlobal(processor.From(t, timed()), labels, func(e event) string { return e.Text }, func(e event, label *string) row {
		if label == nil {
			return row{Kind: "none", Text: e.Text, N: e.N}
		}
		return row{Kind: *label, Text: e.Text, N: e.N}
	})
	processor.ToTopic(out, "rows")
}

// label sets the label of a text, or removes it.
func (s *stage) label(text, label string) {
	s.t.Helper()
	r := &kgo.Record{Topic: "labels", Key: []byte(text)}
	if label != "" {
		r.Value = []byte(label)
	}
	s.produce([]*kgo.Record{r})
}

// kinds are the rows of the events from n on, by event number.
func (s *stage) kinds(n int) map[int64]string {
	s.t.Helper()
	kinds := map[int64]string{}
	for _, r := range s.read("rows") {
		v := fromJSON[row](s.t, r.Value)
		if _, twice := kinds[v.N]; twice {
			s.t.Errorf("event %d came out twice", v.N)
		}
		if v.N >= int64(n) {
			kinds[v.N] = v.Kind
		}
	}
	return kinds
}

// TestGlobalTable: each subtask has the whole table, which is loaded before the first record is processed, survives the
// loss of all local state, and goes on in other numbers of subtasks.
func TestGlobalTable(t *testing.T) {
	s := newStage(t, "global", 12)
	s.topic("labels", 3)
	const keys = 17
	for i := range keys {
		s.label(fmt.Sprintf("word-%d", i), "old")
		s.label(fmt.Sprintf("word-%d", i), "first")
	}
	s.send(100, keys)
	members := []*member{s.run(labelled, memstore.NewDir(s.app), func(o *engine.Options) { o.Parallelism = 6 })}
	all := func(n int, want string) {
		t.Helper()
		s.settle(members[0])
		got := s.kinds(n)
		if len(got) != len(s.sent)-n {
			t.Fatalf("%d of %d events came out", len(got), len(s.sent)-n)
		}
		for at, kind := range got {
			if kind != want {
				t.Fatalf("the label of event %d is %s, want %s", at, kind, want)
			}
		}
	}
	all(0, "first")

	// A change reaches all subtasks. Which event meets it first is open.
	relabel := func(label, want string) {
		t.Helper()
		for i := range keys {
			s.label(fmt.Sprintf("word-%d", i), label)
		}
		testutil.Eventually(t, patience, func() error {
			n := len(s.sent)
			s.send(60, keys)
			s.settle(members[0])
			for at, kind := range s.kinds(n) {
				if kind != want {
					return fmt.Errorf("the label of event %d is %s", at, kind)
				}
			}
			return nil
		})
	}
	relabel("second", "second")
	members[0].stop(t)

	// All local state is lost: the changelog has the copies.
	members = nil
	for range 2 {
		members = append(members, s.run(labelled, memstore.NewDir(s.app), nil))
	}
	n := len(s.sent)
	s.send(100, keys)
	all(n, "second")
	if log := members[0].log.String(); strings.Contains(log, "waiting for the broadcast inputs") {
		t.Errorf("a table that was loaded in an earlier life is waited for:\n%s", log)
	}

	k := s.command(s.app, s.blobs)
	for i, subtasks := range []int{2, 12} {
		plan, err := engine.PlanRescale(t.Context(), k.cluster, k.control, subtasks)
		if err != nil {
			t.Fatal(err)
		}
		var sp *checkpoint.Savepoint
		try := 0
		testutil.Eventually(t, patience, func() error { // the group may still spread the subtasks
			try++
			sp, err = engine.Rescale(t.Context(), k.cluster, k.control, s.blobs, plan, engine.SavepointOptions{Name: fmt.Sprintf("to-%d-%d", subtasks, try), By: "a test"})
			return err
		})
		s.forget(sp.Name)
		n := len(s.sent)
		s.send(100, keys)
		all(n, "second")
		run := 0
		for _, m := range members {
			st := m.w.Status()
			if st.Incarnation != uint64(i+2) {
				t.Errorf("incarnation %d", st.Incarnation)
			}
			for _, sub := range st.Subtasks {
				if strings.HasPrefix(sub.ID, "1_") {
					run++
				}
			}
		}
		if run != subtasks {
			t.Errorf("%d subtasks look labels up, want %d", run, subtasks)
		}
	}
	relabel("third", "third")
	relabel("", "none")
	for _, m := range members {
		m.stop(t)
	}
}
