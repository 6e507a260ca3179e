package task

import (
	"strconv"

	"github.com/millrace-stream/millrace/internal/record"
)

// A broadcast is an internal topic with a partition for each subtask behind it; every record goes to all of them, so
// that each subtask sees the whole of it in one order. It holds back no event time. At the first start of an
// incarnation the records of all other inputs wait until the broadcast has brought what its sources held then: the
// upstream subtasks say so with a loaded frame, once, and both sides remember it in their progress.
//
// An external input may be First as well, since a table is made of it. Then the task sees by itself when it was read to
// the end that it had at takeover (EnvInput.Ends), and remembers that the same way.

// OutputBroadcast writes a record to all partitions of a broadcast.
func (x *Exec) OutputBroadcast(op int32, repartition int, key, value []byte, maxBytes int) error {
	for p := range x.t.reparts[repartition].touched {
		if err := x.OutputRepartition(op, repartition, int32(p), key, value, maxBytes); err != nil {
			return err
		}
	}
	return nil
}

// Awaits says that the records of all inputs but those that are loaded first wait.
func (t *Task) Awaits() bool { return t.awaiting > 0 }

// Names in Progress.Watermarks; operator ids hold no slash.

func (r Repartition) loadedID() string { return r.ID + "/loaded" }

func (in *input) loadedID(upstream int) string { return in.id + "/loaded/" + strconv.Itoa(upstream) }

// await makes an input one that the others wait for, unless it was loaded in an earlier life.
func (t *Task) await(in *input, id string) {
	in.id, in.loaded = id, make([]bool, max(in.env.UpstreamSubtasks, 1)) // of an external input: one for all of it
	for i := range in.loaded {
		if _, in.loaded[i] = t.restoredWatermark(in.loadedID(i)); !in.loaded[i] {
			in.unloaded++
		}
	}
	if in.unloaded > 0 {
		t.awaiting++
	}
	t.lookLoaded(in)
}

// loadedFirst says that the others wait for an input.
func (in *input) loadedFirst() bool { return in.Broadcast || in.First }

// lookLoaded sees whether an external input that the others wait for was read to its end.
func (t *Task) lookLoaded(in *input) {
	if in.First && in.unloaded > 0 && in.reached() {
		t.setLoaded(in, 0)
	}
}

// hasLoaded takes a loaded frame.
func (t *Task) hasLoaded(p *part) {
	if in := p.in; in.Broadcast && !in.loaded[p.from] {
		t.setLoaded(in, p.from)
	}
}

func (t *Task) setLoaded(in *input, upstream int) {
	in.loaded[upstream] = true
	if in.unloaded--; in.unloaded > 0 {
		return
	}
	if t.awaiting--; t.awaiting == 0 {
		t.wakeParts(t.now)
	}
}

// writeLoaded tells those behind a broadcast that they have all that was there at the first start.
func (t *Task) writeLoaded() {
	for i := range t.reparts {
		r := &t.reparts[i]
		if !r.Broadcast || r.loaded || !t.reached(r.Loads) {
			continue
		}
		r.loaded = true
		for p := range r.sent {
			v := t.x.Keep(appendLoaded(t.x.Buf(), t.env.Subtask.Index))
			t.outs = append(t.outs, record.Output{Topic: int32(r.Output), Partition: int32(p), Value: v, Timestamp: max(t.now, 0)})
		}
	}
}

// reached says that inputs were read up to the ends that they had at takeover.
func (t *Task) reached(inputs []int) bool {
	for _, i := range inputs {
		if !t.inputs[i].reached() {
			return false
		}
	}
	return true
}

func (in *input) reached() bool {
	for _, p := range in.parts {
		if end := in.env.Ends[p.number]; end > 0 && p.offset < end && !p.ended() {
			return false
		}
	}
	return true
}

func (t *Task) loadProgress(marks map[string]int64) {
	for i := range t.inputs {
		in := &t.inputs[i]
		for from, loaded := range in.loaded {
			if loaded {
				marks[in.loadedID(from)] = 1
			}
		}
	}
	for i := range t.reparts {
		if r := &t.reparts[i]; r.Broadcast && r.loaded {
			marks[r.loadedID()] = 1
		}
	}
}
