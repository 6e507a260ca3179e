//go:build synctests

package sim

import (
	"fmt"
	"time"

	"github.com/millrace-stream/millrace/internal/engine"
)

// standbys is how many members besides the owner keep a state in a run: a third of the seeds has some.
func standbys(seed uint64) int {
	switch f := newHash(seed, "standbys").float(); {
	case f < 1.0/4:
		return 1
	case f < 1.0/3:
		return 2
	}
	return 0
}

// cleanup is how long a state that nobody uses stays on a disk: short, so that it is removed within a run.
func (w *world) cleanup() time.Duration {
	if w.standbys > 0 {
		return 2 * time.Second
	}
	return 0
}

// watchStandbys counts what happens to standbys.
func (w *world) watchStandbys() {
	if w.standbys == 0 {
		return
	}
	for _, m := range w.members {
		if m.worker == nil || m.dead() {
			continue
		}
		st := m.worker.Status()
		for _, s := range st.Subtasks {
			if m.keeps[s.ID] {
				w.hit("standby took over", -1)
			}
		}
		m.keeps = map[string]bool{}
		for _, s := range st.Standbys {
			switch {
			case s.WarmUp:
				w.hit("standby warms up", -1)
			case s.State == engine.StandbyBackingOff:
				w.hit("standby started again", -1)
			}
			m.keeps[s.ID] = s.State == engine.StandbyFollowing
		}
	}
}

// standbysAtRest says what is wrong with the standbys when all is drained: each state is on as many members as can be,
// and up to date.
func (w *world) standbysAtRest() (wrong []string) {
	if w.standbys == 0 {
		return nil
	}
	alive := 0
	owned, kept := map[string]uint64{}, map[string]int{}
	for _, m := range w.members {
		if m.dead() {
			continue
		}
		alive++
		for _, s := range m.worker.Status().Subtasks {
			owned[s.ID] = s.Epoch
		}
	}
	for _, m := range w.members {
		if m.dead() {
			continue
		}
		for _, s := range m.worker.Status().Standbys {
			if s.State != engine.StandbyFollowing || s.Lag != 0 || s.Epoch != owned[s.ID] {
				wrong = append(wrong, fmt.Sprintf("%s: standby %s is %s, lag %d, epoch %d, when all is drained and its owner at epoch %d: %s", m.life, s.ID, s.State, s.Lag, s.Epoch, owned[s.ID], s.Error))
			}
			kept[s.ID]++
		}
	}
	for _, s := range w.job.Subs {
		for k := range w.width() {
			if id := fmt.Sprintf("%d_%d", s.ID, k); len(s.Stores) > 0 && kept[id] < min(w.standbys, alive-1) {
				wrong = append(wrong, fmt.Sprintf("subtask %s has %d standbys with %d members, want %d", id, kept[id], alive, min(w.standbys, alive-1)))
			}
		}
	}
	return wrong
}

// width is how many subtasks each sub-topology has.
func (w *world) width() int {
	if w.wide > 0 {
		return w.wide
	}
	if w.prof.parallelism > 0 {
		return w.prof.parallelism
	}
	return int(w.prof.partitions)
}
