package engine_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

// TestOldIncarnationsAreRemoved: once an incarnation that begins from a savepoint has all of it, what the one before has on disks
// and in checkpoints goes, and nothing else: the savepoint is whole, and a lost disk costs nothing. Checkpoints of the same
// app on another cluster stay.
func TestOldIncarnationsAreRemoved(t *testing.T) {
	for _, foreign := range []bool{false, true} {
		t.Run(fmt.Sprintf("foreign=%t", foreign), func(t *testing.T) {
			s := newStage(t, "old", nparts)
			dir := memstore.NewDir(s.app)
			tidy := func(o *engine.Options) { o.HouseKeeping, o.CleanupDelay = 20*time.Millisecond, 100*time.Millisecond }
			taken := func(m *member) {
				t.Helper()
				testutil.Eventually(t, patience, func() error {
					for _, st := range m.w.Status().Subtasks {
						if strings.HasPrefix(st.ID, "1_") && (st.Checkpoint == nil || st.Checkpoint.Completed == 0) {
							return fmt.Errorf("no checkpoint of %s", st.ID)
						}
					}
					return nil
				})
			}
			incarnations := func() []uint64 {
				used, err := checkpoint.Incarnations(t.Context(), s.blobs, s.app)
				if err != nil {
					t.Fatal(err)
				}
				return slices.Sorted(maps.Keys(used))
			}
			m := s.run(behindKeyBy, dir, tidy)
			s.send(100, 11)
			s.settle(m)
			taken(m)
			m.stop(t)
			s.save("before", dir)
			if foreign {
				other := memstore.NewDir(s.app)
				id := statestore.Identity{App: s.app, ClusterID: "another", Incarnation: 1, Subtask: "7_0"}
				store, err := other.Open(id)
				if err != nil {
					t.Fatal(err)
				}
				b := store.NewBatch()
				if err := errors.Join(b.Commit(statestore.Meta{Epoch: 1, EpochRecord: []byte("r")}), store.Flush()); err != nil {
					t.Fatal(err)
				}
				snap, err := store.(statestore.Checkpointer).Checkpoint()
				if err != nil {
					t.Fatal(err)
				}
				p := checkpoint.NewPublisher(checkpoint.Options{Blobs: s.blobs, Identity: id, WallTime: func([]byte) (int64, error) { return 1, nil }})
				if _, err := p.Publish(t.Context(), snap, nil); err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(snap.Close(), store.Close(), other.Close()); err != nil {
					t.Fatal(err)
				}
			}
			begin := func(o *engine.Options) { from("before")(o); tidy(o) }
			m = s.run(behindKeyBy, dir, begin)
			s.send(100, 11)
			s.settle(m)
			taken(m)
			want := []uint64{2}
			if foreign {
				want = []uint64{1, 2}
			}
			testutil.Eventually(t, patience, func() error {
				if left, err := dir.Subtasks(1); err != nil || len(left) > 0 {
					return fmt.Errorf("stores of incarnation 1: %v, %w", left, err)
				}
				if got := incarnations(); !slices.Equal(got, want) {
					return fmt.Errorf("checkpoints of incarnations %v, want %v", got, want)
				}
				return nil
			})
			if got, err := dir.Subtasks(2); err != nil || len(got) != 2*nparts {
				t.Errorf("stores of incarnation 2: %v, %v", got, err)
			}
			if _, err := checkpoint.NewSavepoints(s.blobs, s.app, nil, nil).Verify(t.Context(), "before", nil); err != nil {
				t.Error(err)
			}
			m.stop(t)
			m = s.run(behindKeyBy, memstore.NewDir(s.app), begin)
			s.close()
			s.settle(m)
			s.fired(func() []row { return s.rows("rows") })
			m.stop(t)
			checkRows(t, s.rows("rows"), s.sent)
			if foreign && !slices.Contains(incarnations(), 1) {
				t.Error("the checkpoints of another cluster are gone")
			}
		})
	}
}
