package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/internal/failpoint"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/txn"
)

// saves is a worker's share in savepoints. The control topic says what is wanted; subtasks look at now between bounded runs
// of records.
//
// The cut is consistent since a subtask takes its part in three steps. A subtask that reads no repartition topic commits
// what it has processed, and with it a barrier as the last record on every partition of its repartition topics; any other
// does so when it has read the barrier of every upstream subtask on each of its partitions. Then it holds: nothing follows
// a barrier before all subtasks have their state in hand, or the savepoint has failed. What it has committed with the
// barrier is its part. A subtask whose takeover comes between, on whatever member, makes the savepoint failed before it
// processes anything: it knows that one runs, since it reads the control topic to its end after it has fenced its former owner.
type saves struct {
	now atomic.Pointer[savepointRun] // nil = none was asked for

	mu        sync.Mutex
	ctx       context.Context // ends with the worker, when its subtasks have
	revision  uint64          // of the newest state heard of
	closed    bool            // nothing is begun any more
	uploading map[record.SubtaskID]string
	totals    savepointTotals
	wg        sync.WaitGroup

	writtenBytes atomic.Int64 // to all savepoints

	failing chan struct{} // cap 1: one that tells of a failure is enough
	stop    chan struct{} // closed: the app was stopped
}

// savepointRun is a savepoint as this worker knows it. It is replaced, never changed, but for its counters.
type savepointRun struct {
	txn.SavepointRequest
	stopped bool            // the app is
	ctx     context.Context // of what is done for it beside the loops
	cancel  context.CancelFunc
	counts  *savepointCounts
}

type savepointCounts struct {
	aligned, written atomic.Int32
	bytes            atomic.Int64
}

// holds says whether a subtask that has its state in hand must not process (pure).
func (r *savepointRun) holds(feedsOthers bool) bool {
	switch r.Phase {
	case txn.SavepointRunning:
		return feedsOthers && !failpoint.Planted(failpoint.GoesOnAfterBarrier) || r.Stop
	case txn.SavepointAligned:
		return r.Stop
	case txn.SavepointCompleted:
		return r.Stop && r.stopped
	}
	return false
}

// mayProcess says whether a subtask that takes over may process though the savepoint has not ended (pure): the cut must not
// be open, and with Stop nothing comes after it.
func mayProcess(r *txn.SavepointRequest) bool {
	return !runs(r) || r.Phase == txn.SavepointAligned && !r.Stop
}

// start begins the worker's share; end, called when its subtasks have ended, waits for what runs beside them.
func (v *saves) start(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	v.mu.Lock()
	v.ctx, v.closed, v.uploading, v.stop, v.revision = ctx, false, map[record.SubtaskID]string{}, make(chan struct{}), 0
	v.failing = make(chan struct{}, 1)
	v.now.Store(nil)
	v.mu.Unlock()
	return func() {
		v.mu.Lock()
		v.closed = true
		v.mu.Unlock()
		cancel()
		v.wg.Wait()
	}
}

// beside runs f in a goroutine that ends with the worker, at the latest; false: the worker ends already.
func (v *saves) beside(f func()) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed || v.ctx == nil {
		return false
	}
	v.wg.Go(f)
	return true
}

// uploads notes that a subtask's part in a savepoint is on its way.
func (v *saves) uploads(id record.SubtaskID, savepoint string) {
	v.mu.Lock()
	v.uploading[id] = savepoint
	v.mu.Unlock()
}

// heard takes in what the control topic says.
func (w *Worker) heard(s txn.ControlState) {
	v := &w.saves
	v.mu.Lock()
	if v.ctx != nil && s.Incarnation > w.topo.incarnation {
		v.totals.left(v.now.Load(), s.Base) // what it holds for stays: nothing may be processed here any more
	}
	if s.Revision < v.revision || v.ctx == nil || s.Incarnation != w.topo.incarnation {
		v.mu.Unlock()
		return
	}
	was, began := v.now.Load(), v.revision == 0
	v.revision = s.Revision
	var run *savepointRun
	switch r := s.Savepoint; {
	case r == nil:
	case was != nil && was.ID == r.ID:
		run = &savepointRun{*r, s.Stopped != nil, was.ctx, was.cancel, was.counts}
	default:
		ctx, cancel := context.WithCancel(v.ctx)
		run = &savepointRun{*r, s.Stopped != nil, ctx, cancel, &savepointCounts{}}
	}
	fresh := run != nil && (was == nil || was.ID != run.ID)
	if was != nil && (run == nil || fresh) {
		was.cancel()
	}
	if run != nil && !runs(&run.SavepointRequest) {
		run.cancel()
	}
	v.totals.count(was, run, began)
	v.now.Store(run)
	if s.Stopped != nil {
		select {
		case <-v.stop:
		default:
			close(v.stop)
		}
	}
	v.mu.Unlock()
	if run == nil {
		return
	}
	w.tell(was, run, fresh)
	subs := w.running()
	if fresh && run.Phase == txn.SavepointRunning {
		for _, s := range subs {
			if st := s.current(); st == SubtaskFencing || st == SubtaskRestoring || st == SubtaskBackingOff {
				w.failBeside(run, failure{moved: true, reason: fmt.Sprintf("subtask %s does not run, it is %s; take a savepoint when all subtasks run", s.id, st)})
				break
			}
		}
	}
	for _, s := range subs {
		s.wake()
	}
}

// tell logs where savepoints begin and end.
func (w *Worker) tell(was, run *savepointRun, fresh bool) {
	log := w.log.With("savepoint", run.Name, "id", run.ID)
	switch active := runs(&run.SavepointRequest); {
	case fresh && active:
		log.Info("savepoint begins", "by", run.By, "stop", run.Stop, "deadline", timeText(run.Deadline))
	case fresh || active || !runs(&was.SavepointRequest):
	case run.Phase == txn.SavepointFailed:
		log.Warn("savepoint failed; processing goes on", "reason", run.Reason)
	default:
		log.Info("savepoint completed", "took_ms", time.Now().UnixMilli()-run.Began)
	}
}

func (w *Worker) running() []*subtask {
	w.mu.Lock()
	defer w.mu.Unlock()
	var subs []*subtask
	for _, s := range w.list() {
		if !s.letGo() {
			subs = append(subs, s)
		}
	}
	return subs
}

func (s *subtask) current() SubtaskState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// wake makes the loop look at what it does not wait for.
func (s *subtask) wake() {
	s.mu.Lock()
	in := s.inbox
	s.mu.Unlock()
	if in != nil {
		in.wake()
	}
}

// failSavepoint makes a savepoint failed, if it runs, and takes in what is decided then.
func (w *Worker) failSavepoint(ctx context.Context, id string, f failure) error {
	select {
	case w.saves.failing <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("make a savepoint failed: %w", context.Cause(ctx))
	}
	defer func() { <-w.saves.failing }()
	if now := w.saves.now.Load(); now != nil && (now.ID != id || !runs(&now.SavepointRequest)) {
		return nil
	}
	s, err := failSavepoint(ctx, w.control, id, f)
	if err != nil {
		return fmt.Errorf("make a savepoint failed: %w", err)
	}
	w.heard(s)
	return nil
}

// failBeside is failSavepoint for who cannot wait. It is tried until the savepoint has ended.
func (w *Worker) failBeside(run *savepointRun, f failure) {
	w.saves.beside(func() {
		for run.ctx.Err() == nil {
			err := w.failSavepoint(run.ctx, run.ID, f)
			if err == nil || run.ctx.Err() != nil {
				return
			}
			w.log.Warn("tell the others that a savepoint failed", "savepoint", run.Name, "reason", f.reason, "error", err)
			_ = txn.Sleep(run.ctx, time.Second)
		}
	})
}

// enter is what a takeover does about savepoints and stops, once the former owner is fenced: what that has seen of the control
// topic can be read now.
func (l *life) enter(ctx context.Context) error {
	s, err := l.w.control.Refresh(ctx)
	if err != nil {
		return err
	}
	l.w.heard(s)
	if !mayProcess(s.Savepoint) {
		reason := fmt.Sprintf("subtask %s moved to member %s, or began anew there, before all subtasks were aligned; try again", l.s.id, l.w.opts.Kafka.InstanceID)
		if s.Savepoint.Phase == txn.SavepointAligned {
			reason = fmt.Sprintf("subtask %s moved to member %s, or began anew there, before the app was stopped; try again", l.s.id, l.w.opts.Kafka.InstanceID)
		}
		if err := l.w.failSavepoint(ctx, s.Savepoint.ID, failure{reason: reason, moved: true}); err != nil {
			return err
		}
		s = l.w.control.State()
	}
	if s.Stopped != nil || s.Incarnation != l.w.topo.incarnation {
		return errReleased // the worker is about to hear of it
	}
	if run := l.w.saves.now.Load(); run != nil && run.Phase == txn.SavepointAligned {
		l.w.lookForPart(run, l.s.id)
	}
	return nil
}

// lookForPart makes a savepoint failed whose part of a subtask can no longer come: the subtask has begun anew here.
func (w *Worker) lookForPart(run *savepointRun, id record.SubtaskID) {
	blobs := w.opts.Checkpoints.Blobs
	w.saves.mu.Lock()
	ours := w.saves.uploading[id] == run.ID
	w.saves.mu.Unlock()
	if blobs == nil || ours {
		return
	}
	w.saves.beside(func() {
		sps := checkpoint.NewSavepoints(blobs, w.opts.Kafka.AppID, nil, nil)
		for {
			_, written, err := sps.Progress(run.ctx, &checkpoint.Savepoint{Name: run.Name, ID: run.ID})
			if err == nil {
				if !written[id.String()] {
					w.failBeside(run, failure{moved: true, reason: fmt.Sprintf("subtask %s moved to member %s, or began anew there, before its state was written; try again", id, w.opts.Kafka.InstanceID)})
				}
				return
			}
			if txn.Sleep(run.ctx, time.Second) != nil {
				return
			}
		}
	})
}

// share is a life's part in a savepoint.
type share struct {
	id     string    // of the savepoint; "" = none
	inHand bool      // the state of the cut is committed and in hand
	over   string    // id of the last one that this life is done with
	since  time.Time // since when processing stands still for it; zero = it does not
}

// takePart does what a savepoint wants of the subtask now. hold says that nothing may be processed: takePart has
// waited for news then, and is to be called again.
func (l *life) takePart() (hold bool, err error) {
	run := l.w.saves.now.Load()
	p := &l.share
	if p.id != "" && (run == nil || run.ID != p.id) {
		l.goOn() // a newer one took its place, so it has failed
	}
	if run == nil || run.ID == p.over {
		return false, nil
	}
	if p.id == "" {
		if run.Phase != txn.SavepointRunning {
			return false, nil
		}
		if l.waiting != nil && l.s.sub.fed() {
			// Barriers wait behind what is loaded first, and that must not stop.
			if time.Now().UnixMilli() > run.Deadline {
				l.expire(run)
			}
			return false, nil
		}
		p.id, p.inHand = run.ID, false
		if l.w.opts.Checkpoints.Blobs == nil {
			l.w.failBeside(run, failure{reason: fmt.Sprintf("member %s has no store for it: checkpoint.url is not set there", l.w.opts.Kafka.InstanceID)})
		}
		l.pauseExternal()
	}
	if !p.inHand {
		if run.Phase != txn.SavepointRunning {
			l.goOn()
			return false, nil
		}
		if !l.task.Aligned(run.ID) {
			if time.Now().UnixMilli() > run.Deadline {
				l.expire(run)
			}
			return false, nil
		}
		l.stands()
		if err := l.cut(run); err != nil {
			return false, err
		}
		p.inHand = true
	}
	if run.holds(l.s.sub.feedsOthers()) {
		l.hold(run)
		return true, nil
	}
	l.goOn()
	return false, nil
}

// fed says whether a sub-topology reads repartition topics.
func (s *resolvedSub) fed() bool {
	return slices.ContainsFunc(s.inputs, func(in resolvedInput) bool { return in.internal })
}

// feedsOthers says whether a sub-topology writes repartition topics.
func (s *resolvedSub) feedsOthers() bool {
	for _, o := range s.plan.Outputs {
		if o.Internal {
			return true
		}
	}
	return false
}

// pauseExternal makes external inputs wait where internal ones have to be read up to their barriers.
func (l *life) pauseExternal() {
	l.external = nil
	for _, tp := range l.tps {
		if !l.s.sub.inputs[l.index[tp]].internal {
			l.external = append(l.external, tp)
		}
	}
	if len(l.external) == len(l.tps) || len(l.external) == 0 {
		l.external = nil
		return
	}
	l.task.PauseExternal()
	l.w.poll.pauseSome(l.external, l.inbox)
}

// fetchable are the partitions that are fetched when the inbox has room.
func (l *life) fetchable() []record.TopicPartition {
	if l.external == nil {
		return l.tps
	}
	var tps []record.TopicPartition
	for _, tp := range l.tps {
		if l.s.sub.inputs[l.index[tp]].internal {
			tps = append(tps, tp)
		}
	}
	return tps
}

// goOn ends the subtask's part.
func (l *life) goOn() {
	l.goes()
	l.share.id, l.share.over = "", l.share.id
	l.task.Resume(time.Now().UnixMilli())
	if l.external != nil {
		l.w.poll.resumeSome(l.external, l.inbox)
		l.external = nil
	}
}

// cut commits what was processed with the barrier, and takes that state in hand.
func (l *life) cut(run *savepointRun) error {
	l.task.Barrier(run.ID)
	if err := l.commit(true); err != nil {
		return err
	}
	if err := l.writeBehind(time.Now(), true); err != nil {
		return err
	}
	if err := l.store.Flush(); err != nil {
		return fmt.Errorf("flush the store of subtask %s: %w", l.s.id, err)
	}
	store, ok := l.store.(statestore.Checkpointer)
	if !ok {
		l.w.failBeside(run, failure{reason: fmt.Sprintf("subtask %s: its store makes no snapshots", l.s.id)})
		return nil
	}
	snap, err := store.Checkpoint()
	if err == nil && snap.Meta().Epoch != l.epoch {
		err = fmt.Errorf("it is of epoch %d, not %d: this is a bug, please report it", snap.Meta().Epoch, l.epoch)
		l.dropSnapshot(snap)
	}
	if err != nil {
		l.w.failBeside(run, failure{reason: fmt.Sprintf("subtask %s: snapshot the store: %v", l.s.id, err)})
		return nil
	}
	sv := &saver{w: l.w, run: run, id: l.s.id, snap: snap, specs: l.state.Specs(), epoch: l.epoch}
	l.w.saves.uploads(l.s.id, run.ID)
	if !l.w.saves.beside(sv.save) {
		l.dropSnapshot(snap)
	}
	return nil
}

func (l *life) dropSnapshot(snap statestore.Snapshot) {
	if err := snap.Close(); err != nil {
		l.log.Warn("remove the snapshot of a savepoint", "error", err)
	}
}

// hold waits for news of the savepoint, or for its deadline.
func (l *life) hold(run *savepointRun) {
	wait := time.Until(time.UnixMilli(run.Deadline))
	if wait < 0 {
		l.expire(run)
		return
	}
	wait += time.Millisecond
	if len(l.scans) > 0 {
		wait = min(wait, scanTick)
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-l.inbox.ready:
	case q := <-l.s.queries: // of committed state, which stands still
		l.serve(q)
	case <-t.C:
	case <-l.s.releasing:
	case <-l.s.ctx.Done():
	}
}

// expire ends a savepoint whose deadline has passed. Nothing but the control topic can end it: who led it may be about to
// decide otherwise.
func (l *life) expire(run *savepointRun) {
	ctx, cancel := l.takeoverContext()
	defer cancel()
	reason := fmt.Sprintf("its deadline passed while subtask %s waited for the others; if they are behind with their repartition topics, raise savepoint.align-timeout", l.s.id)
	if run.Phase == txn.SavepointAligned {
		reason = fmt.Sprintf("its deadline passed while subtask %s waited: nothing was heard for savepoint.align-timeout of %s, who asked for it", l.s.id, run.By)
	}
	if err := l.w.failSavepoint(ctx, run.ID, failure{reason: reason, late: true}); err != nil && ctx.Err() == nil {
		l.log.Warn("end a savepoint whose deadline has passed; processing goes on when that is done", "savepoint", run.Name, "error", err)
	}
	if now := l.w.saves.now.Load(); now != nil && now.ID == run.ID && runs(&now.SavepointRequest) {
		_ = txn.Sleep(ctx, time.Second)
	}
}

// saver brings the state of one subtask to the blob store, beside its loop.
type saver struct {
	w     *Worker
	run   *savepointRun
	id    record.SubtaskID
	snap  statestore.Snapshot
	specs []statestore.Spec
	epoch uint64
}

const (
	// alignWithin bounds how long a marker is tried: processing may stand still meanwhile.
	alignWithin = 20 * time.Second
	// writeTries bounds how often a part is tried.
	writeTries = 5
)

func (sv *saver) save() {
	w, run := sv.w, sv.run
	err := sv.write(run.ctx)
	if cerr := sv.snap.Close(); cerr != nil {
		w.log.Warn("remove the snapshot of a savepoint", "subtask", sv.id.String(), "error", cerr)
	}
	w.saves.mu.Lock()
	if w.saves.uploading[sv.id] == run.ID {
		delete(w.saves.uploading, sv.id)
	}
	w.saves.mu.Unlock()
	if err != nil && run.ctx.Err() == nil {
		w.failBeside(run, failure{reason: fmt.Sprintf("subtask %s on member %s: %v", sv.id, w.opts.Kafka.InstanceID, err)})
	}
}

// write says that the state is in hand, and writes it.
func (sv *saver) write(ctx context.Context) error {
	w, o := sv.w, sv.w.opts
	if o.Checkpoints.Blobs == nil {
		return nil // it fails for that already
	}
	sps := checkpoint.NewSavepoints(o.Checkpoints.Blobs, o.Kafka.AppID, nil, nil)
	var sp *checkpoint.Savepoint
	actx, cancel := context.WithTimeout(ctx, alignWithin)
	defer cancel()
	err := again(actx, w.opts.BackoffMin, writeTries, func() (err error) {
		sp, err = sps.Show(actx, sv.run.Name)
		if errors.Is(err, checkpoint.ErrNoSavepoint) {
			return fmt.Errorf("%w; checkpoint.url of this member must name the same store as that of who asked", err)
		}
		if err != nil {
			return err
		}
		if sp.ID != sv.run.ID {
			return fmt.Errorf("%w: another savepoint has its name", checkpoint.ErrEnded)
		}
		return sps.Align(actx, sp, sv.id.String(), sv.epoch, o.Kafka.InstanceID)
	})
	if err != nil {
		return err
	}
	sv.run.counts.aligned.Add(1)
	if err := failpoint.Hit(failpoint.AfterAligned); err != nil {
		return err
	}
	select {
	case w.checkpointSlots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-w.checkpointSlots }()
	err = again(ctx, w.opts.BackoffMin, writeTries, func() error {
		m, err := sps.Write(ctx, sp, sv.snap, checkpoint.WriteOptions{Specs: sv.specs, Owner: o.Kafka.InstanceID, Version: o.Version, WallTime: wallTime})
		var other *checkpoint.SupersededError
		if errors.As(err, &other) && other.Newest == sv.epoch {
			return nil // an earlier try did it, and its answer was lost
		}
		if err == nil {
			sv.run.counts.bytes.Add(m.Bytes())
			w.saves.writtenBytes.Add(m.Bytes())
		}
		return err
	})
	if err == nil {
		sv.run.counts.written.Add(1)
	}
	return err
}

// again tries f, with waits that double, until it works, ctx ends, or trying does not help.
func again(ctx context.Context, wait time.Duration, tries int, f func() error) error {
	for try := 1; ; try++ {
		err := f()
		var other *checkpoint.SupersededError
		if err == nil || try == tries || ctx.Err() != nil || errors.Is(err, checkpoint.ErrEnded) || errors.Is(err, checkpoint.ErrNoSavepoint) || errors.As(err, &other) {
			return err
		}
		if txn.Sleep(ctx, wait) != nil {
			return err
		}
		wait *= 2
	}
}

// awaitResume waits, as a member of an app that was stopped on purpose, until it is resumed.
func (w *Worker) awaitResume(ctx context.Context, control *txn.Control) error {
	w.setState(StateStopped)
	s := control.State().Stopped
	w.log.Warn("the app is stopped; this member waits until it is resumed", "since", timeText(s.At), "by", s.By, "savepoint", s.Savepoint,
		"resume", "millrace resume --app.id="+w.opts.Kafka.AppID)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for control.State().Stopped != nil {
		err := control.Follow(ctx, func(txn.ControlState) {
			if control.State().Stopped == nil {
				cancel()
			}
		})
		switch {
		case control.State().Stopped == nil:
		case ctx.Err() != nil, txn.IsFatal(err):
			return err
		default:
			w.log.Warn("follow the control topic", "error", err)
			if err := txn.Sleep(ctx, time.Second); err != nil {
				return err
			}
		}
	}
	w.log.Info("the app is resumed")
	return nil
}

// SavepointStatus is the savepoint that is being taken, or was taken last, as a member sees it.
type SavepointStatus struct {
	Name    string `json:"name"`
	Phase   string `json:"phase"` // running, aligned, completed, failed
	Reason  string `json:"reason,omitempty"`
	Stop    bool   `json:"stop,omitempty"`
	Aligned int    `json:"aligned"` // subtasks of this member that have their state in hand
	Written int    `json:"written"` // and those whose state is written
}

func (w *Worker) savepointStatus() *SavepointStatus {
	r := w.saves.now.Load()
	if r == nil {
		return nil
	}
	return &SavepointStatus{Name: r.Name, Phase: string(r.Phase), Reason: r.Reason, Stop: r.Stop, Aligned: int(r.counts.aligned.Load()), Written: int(r.counts.written.Load())}
}
