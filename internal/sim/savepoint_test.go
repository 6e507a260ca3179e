//go:build synctests

package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/txn"
)

// saves says whether savepoints are taken in a run: in a part of those that have object storage.
func (w *world) saves() bool { return w.bucket != nil && newHash(w.seed, "savepoints").float() >= 0.3 }

// accidents is how many of so many a run has: a savepoint fails when a subtask moves meanwhile, so that a calm run has few.
func (w *world) accidents(n int) int {
	if w.calm {
		return n / 3
	}
	return n
}

// planSavepoints plans savepoints. Whoever asks for one has the faults of a member, and now and then dies of them; a part of
// them stops the app, which is resumed after a while.
func (w *world) planSavepoints(plan func(at time.Duration, do func())) {
	if !w.saves() {
		return
	}
	h := newHash(w.seed, "which savepoints")
	for i := range 1 + h.next()%4 {
		s := asked{name: fmt.Sprint("sp-", i), stop: h.float() < 0.2, dies: h.float() < 0.15, after: time.Duration(h.next()%1000) * time.Millisecond,
			timeout: time.Duration(2000+h.next()%5000) * time.Millisecond, resume: time.Duration(h.next()%2000) * time.Millisecond}
		from := time.Second
		if w.calm {
			from, s.timeout, s.dies = 3*time.Second, 2*s.timeout, s.dies && h.float() < 0.3
		}
		at := from + time.Duration(h.float()*float64(w.prof.duration-from))
		plan(at, func() { w.saving.Go(func() { w.takeSavepoint(s) }) })
	}
}

// asked is one savepoint that is asked for.
type asked struct {
	name    string
	stop    bool
	dies    bool
	after   time.Duration // until it dies
	timeout time.Duration
	resume  time.Duration // from a stop
	// subtasks says that the app is rescaled, which takes a savepoint, to the first of these numbers that it has not; nil = it
	// is not.
	subtasks []int
}

// takeSavepoint takes a savepoint. In a calm run somebody tries again twice if it fails.
func (w *world) takeSavepoint(s asked) {
	name := s.name
	for try := 1; ; try++ {
		if w.trySavepoint(s) == nil || try == 3 || !w.calm || !w.faulty() {
			return
		}
		pause(time.Second)
		s.name = fmt.Sprintf("%s.%d", name, try)
	}
}

// trySavepoint is the life of a command that takes a savepoint.
func (w *world) trySavepoint(s asked) error {
	n := newNetwork(w, "command "+s.name)
	w.mu.Lock()
	w.commands = append(w.commands, n)
	if s.stop {
		w.stops++
	}
	w.mu.Unlock()
	w.hit("savepoint asked for", -1)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if s.dies {
		t := time.AfterFunc(s.after, func() {
			w.hit("command killed", -1)
			n.cut()
			cancel()
		})
		defer t.Stop()
	}
	err := w.command(ctx, n, func(cluster *txn.Cluster, control *txn.Control) error {
		w.note("savepoint %s is asked for, stop %v, subtasks %v", s.name, s.stop, s.subtasks)
		var sp *checkpoint.Savepoint
		var err error
		if s.subtasks != nil {
			sp, err = w.rescale(ctx, cluster, control, s)
		} else {
			sp, err = engine.TakeSavepoint(ctx, cluster, control, w.bucket, engine.SavepointOptions{Name: s.name, Stop: s.stop, Timeout: s.timeout, AlignTimeout: s.timeout / 3, By: "sim"})
		}
		if err == nil && sp.Status != checkpoint.StatusCompleted {
			w.wrongf("savepoints", "%s ended without an error, and is %s", s.name, sp.Status)
		}
		return err
	})
	n.cut()
	w.note("savepoint %s: %v", s.name, err)
	if err == nil {
		w.mu.Lock()
		w.completed = append(w.completed, s.name)
		w.mu.Unlock()
	}
	switch {
	case err != nil:
		w.hit("savepoint failed", -1)
	case s.subtasks != nil:
		w.hit("rescaled", -1)
	case s.stop:
		w.hit("savepoint completed with stop", -1)
	default:
		w.hit("savepoint completed", -1)
	}
	if s.stop {
		pause(s.resume)
		w.resume()
	}
	return err
}

// command runs f with what a command of the app has.
func (w *world) command(ctx context.Context, n *network, f func(*txn.Cluster, *txn.Control) error) error {
	o := txn.Options{AppID: app, Brokers: w.kafka.ListenAddrs(), RequestTimeout: 5 * time.Second, TransactionTimeout: 8 * time.Second, Dialer: w.vn.DialContext}
	if n != nil {
		o.Dialer = n.dial
	}
	cluster, err := txn.Connect(ctx, o)
	if err != nil {
		return err
	}
	defer cluster.Close()
	control, err := cluster.OpenControl(ctx)
	if err != nil {
		return err
	}
	defer control.Close()
	return f(cluster, control)
}

// resume ends a stop, if there is one.
func (w *world) resume() {
	for range 60 {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		err := w.command(ctx, nil, func(_ *txn.Cluster, control *txn.Control) error { return engine.Resume(ctx, control) })
		cancel()
		if err == nil {
			w.note("the app is resumed")
			return
		}
		if errors.Is(err, engine.ErrNotStopped) || errors.Is(err, engine.ErrNeverStarted) {
			return
		}
		pause(time.Second)
	}
	w.wrongf("harness", "the app could not be resumed")
}

// checkSavepoints: every completed savepoint is a consistent cut. Each part is the fold of its changelog at the epoch that it
// names, and what the totals behind the repartition topic hold together is the fold of the records of "in" below the offsets of
// their source in the savepoint: none that is behind the cut, and none that is before it is missing.
func (w *world) checkSavepoints(ctx context.Context, plan *task.Plan, lines []*incarnation, logs map[string]log) {
	if w.bucket == nil {
		return
	}
	sps := checkpoint.NewSavepoints(w.bucket, app, nil, nil)
	all, err := sps.List(ctx)
	if err != nil {
		w.wrongf("savepoints", "list: %v", err)
		return
	}
	for _, l := range all {
		switch {
		case l.Err != nil:
			w.wrongf("savepoints", "%s: %v", l.Name, l.Err)
		case l.Savepoint.Status == checkpoint.StatusCompleted:
			i := slices.IndexFunc(lines, func(in *incarnation) bool { return in.no == l.Savepoint.Incarnation })
			if i < 0 {
				w.wrongf("savepoints", "%s is of incarnation %d", l.Name, l.Savepoint.Incarnation)
				continue
			}
			w.checkCut(ctx, sps, l.Savepoint, plan, lines[i], logs)
		}
	}
}

func (w *world) checkCut(ctx context.Context, sps *checkpoint.Savepoints, sp *checkpoint.Savepoint, plan *task.Plan, line *incarnation, logs map[string]log) {
	w.hit("savepoint checked", -1)
	want, got := map[string]total{}, map[string]total{}
	subtasks := 0
	for _, s := range plan.Subs {
		for k := range line.width {
			subtasks++
			name := fmt.Sprintf("%d_%d", s.ID, k)
			h, m := line.histories[name], sp.Subtask(name)
			if h == nil || m == nil {
				w.wrongf("savepoints", "%s: subtask %s has history %v, is in it %v", sp.Name, name, h != nil, m != nil)
				return
			}
			e := h.epochs[m.Epoch-1]
			if string(e.rec.Append(nil)) != string(m.EpochRecord) {
				w.wrongf("savepoints", "%s: subtask %s: its record is not that of epoch %d", sp.Name, name, m.Epoch)
			}
			state := map[string]string{}
			if err := sps.Load(ctx, sp, name, nil, func(key, value []byte) error {
				state[string(key)] = string(value)
				return nil
			}); err != nil {
				w.wrongf("savepoints", "%s: %v", sp.Name, err)
				return
			}
			fold := h.fold(m.Positions)
			for _, hz := range e.rec.Horizons {
				lo, hi := statestore.WindowRange(hz.Store, hz.End)
				for _, m := range []map[string]string{state, fold} {
					maps.DeleteFunc(m, func(k, _ string) bool { return k >= string(lo) && (hi == nil || k < string(hi)) })
				}
			}
			if diff := difference(state, fold); diff != "" {
				w.wrongf("savepoints", "%s: subtask %s at epoch %d is not the fold of its changelog: %s", sp.Name, name, m.Epoch, diff)
			}
			for _, in := range e.rec.Inputs {
				if in.Topic != topicIn {
					continue
				}
				for _, ev := range w.inputsOf(logs, topicIn, in.Partition, 0, in.Offset) {
					t := want[ev.Key]
					t.add(ev)
					want[ev.Key] = t
				}
			}
			if s.ID != 1 {
				continue
			}
			for _, st := range s.Stores {
				if st.Kind != statestore.KindTable {
					continue
				}
				for key, value := range state {
					if binary.BigEndian.Uint32([]byte(key)) != uint32(st.ID) {
						continue
					}
					c, t, err := decodeEntry(st.Kind, []byte(key), []byte(value))
					if err != nil {
						w.wrongf("savepoints", "%s: entry %x %x: %v", sp.Name, key, value, err)
					}
					got[c.key] = t
				}
			}
		}
	}
	if len(sp.Subtasks) != subtasks {
		w.wrongf("savepoints", "%s has %d subtasks of %d", sp.Name, len(sp.Subtasks), subtasks)
	}
	if !maps.Equal(got, want) {
		w.wrongf("savepoints", "%s is no consistent cut: totals are %v, the inputs before it make %v", sp.Name, got, want)
	}
	if sp.Bytes() > 0 && len(want) > 0 {
		w.hit("savepoint with state", -1)
	}
}
