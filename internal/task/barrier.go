package task

import "github.com/millrace-stream/millrace/internal/record"

// Barrier makes the next Seal end with a barrier of savepoint id: the last record of the epoch on every partition of
// every repartition topic. What is written after it does not belong to the savepoint, so the engine holds the task until
// all subtasks behind it are aligned.
func (t *Task) Barrier(id string) { t.barrier = id }

// Aligned says whether the barrier of savepoint id was read from every upstream subtask, on every partition of every
// internal input. A task without internal inputs is always aligned.
func (t *Task) Aligned(id string) bool {
	for _, p := range t.parts {
		if !p.in.Internal {
			continue
		}
		if p.barriers == nil {
			return false
		}
		for _, b := range p.barriers {
			if b != id {
				return false
			}
		}
	}
	return true
}

// PauseExternal makes the external inputs wait, whatever is buffered of them, so that internal ones reach their barriers:
// records that are far behind in event time would go first.
func (t *Task) PauseExternal() {
	t.paused = true
	for _, p := range t.parts {
		if t.waits(p) {
			t.heads[p.index] = never
		}
	}
}

// Resume ends PauseExternal, or a time in which nothing was processed though there may have been something: nothing
// that stood still meanwhile is idle.
func (t *Task) Resume(now int64) {
	t.paused = false
	t.wakeParts(now)
}

// wakeParts looks again at the parts that waited.
func (t *Task) wakeParts(now int64) {
	for _, a := range t.assigners {
		for i := range a.slots {
			a.slots[i].lastSeen = now
		}
	}
	for _, p := range t.parts {
		p.lastSeen = now
		if t.heads[p.index] == never && p.pos < len(p.cur) && !t.waits(p) {
			t.heads[p.index], p.kind, p.bad = unset, headUnknown, nil
		}
	}
}

// stands says that some parts are not to be processed now: what has no records meanwhile is not idle.
func (t *Task) stands() bool { return t.paused || t.awaiting > 0 }

// waits says that a part is not to be processed now.
func (t *Task) waits(p *part) bool {
	return t.paused && !p.in.Internal || t.awaiting > 0 && !p.in.loadedFirst()
}

// writeBarriers writes what Barrier asked for.
func (t *Task) writeBarriers() {
	if t.barrier == "" {
		return
	}
	for i := range t.reparts {
		r := &t.reparts[i]
		for p := range r.sent {
			v := t.x.Keep(appendBarrier(t.x.Buf(), t.env.Subtask.Index, t.barrier))
			t.outs = append(t.outs, record.Output{Topic: int32(r.Output), Partition: int32(p), Value: v, Timestamp: max(t.now, 0)})
		}
	}
	t.barrier = ""
}
