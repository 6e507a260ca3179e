package engine_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/failpoint"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

// TestSavepointIsNeededUntilAllSubtasksBegan: from the start that begins with a savepoint until each subtask has its first
// epoch, wherever the first life of the app died, the savepoint is told to be needed; then it is not.
func TestSavepointIsNeededUntilAllSubtasksBegan(t *testing.T) {
	s := newStage(t, "needed", nparts)
	dir := memstore.NewDir(s.app)
	m := s.run(behindKeyBy, dir, nil)
	s.send(100, 11)
	s.settle(m)
	m.stop(t)
	s.save("before", dir)
	sp, err := checkpoint.NewSavepoints(s.blobs, s.app, nil, nil).Show(t.Context(), "before")
	if err != nil {
		t.Fatal(err)
	}
	k := s.command(s.app, s.blobs)
	needed := func(want bool) {
		t.Helper()
		for _, app := range []string{s.app, "another"} { // whoever asks
			err := engine.CheckUnneeded(t.Context(), k.cluster, app, sp.ID)
			if errors.Is(err, engine.ErrSavepointNeeded) != want || !want && err != nil {
				t.Fatalf("needed: %v, want %t", err, want)
			}
			if want && (!strings.Contains(err.Error(), "app needed begins from it with incarnation 2, and of 8 subtasks") || !strings.Contains(err.Error(), "1_")) {
				t.Errorf("it says %q", err)
			}
		}
	}
	needed(false)
	for _, point := range []string{failpoint.MidBaseLoad, failpoint.AfterBase, failpoint.BeforeEndTxn} {
		p, err := failpoint.Arm(point, func() error { return failpoint.ErrInjected })
		if err != nil {
			t.Fatal(err)
		}
		dead := s.run(behindKeyBy, memstore.NewDir(s.app), from("before"))
		err = dead.wait(t)
		p.Disarm()
		if err == nil {
			t.Fatalf("the worker passed %s", point)
		}
		needed(true)
	}
	m = s.run(behindKeyBy, memstore.NewDir(s.app), from("before"))
	s.settle(m)
	needed(false)
	s.forget("before")
	s.close()
	s.settle(m)
	s.fired(func() []row { return s.rows("rows") })
	m.stop(t)
	checkRows(t, s.rows("rows"), s.sent)
}

// TestSavepointOfAReusedName: an incarnation goes on with the very savepoint that it was begun with. If that was deleted too early, and
// its name was used again, the start is refused, and no subtask begins with another state than its neighbours.
func TestSavepointOfAReusedName(t *testing.T) {
	s := newStage(t, "reused", nparts)
	dir := memstore.NewDir(s.app)
	s.once(behindKeyBy, dir, nil, 100, 11)
	s.save("before", dir)
	older := maps.Clone(s.blobs.Blobs)
	s.forget("before")
	s.once(behindKeyBy, dir, nil, 100, 11)
	s.save("before", dir)
	p, err := failpoint.Arm(failpoint.MidBaseLoad, func() error { return failpoint.ErrInjected })
	if err != nil {
		t.Fatal(err)
	}
	defer p.Disarm()
	dead := s.run(behindKeyBy, memstore.NewDir(s.app), from("before"))
	if err := dead.wait(t); err == nil {
		t.Fatal("the worker passed the point")
	}
	p.Disarm()
	s.forget("before")
	for key, data := range older {
		if strings.HasPrefix(key, "reused/savepoints/") {
			s.blobs.Blobs[key] = data
		}
	}
	m := s.run(behindKeyBy, memstore.NewDir(s.app), from("before"))
	if err := m.wait(t); err == nil || !strings.Contains(err.Error(), "is another one") || !strings.Contains(err.Error(), "start.nonce") {
		t.Errorf("a savepoint of the same name: %v", err)
	}
	m = s.run(behindKeyBy, memstore.NewDir(s.app), func(o *engine.Options) { from("before")(o); o.Start.Nonce = "again" })
	s.settle(m)
	m.stop(t)
}
