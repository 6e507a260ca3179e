package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/txn"
)

// SavepointOptions say what savepoint to take.
type SavepointOptions struct {
	Name string // see checkpoint.CheckName
	// Stop ends processing at the savepoint: the members commit, end, and wait when they are started again (see Resume).
	Stop    bool
	Timeout time.Duration // from begin to end, after which it fails and processing goes on; default 10 m
	// AlignTimeout bounds the part of it in which processing may stand still: until every subtask has read what was sent
	// before the savepoint. It also is how long processing stands still if the caller is killed, then or, with Stop, later on.
	// Default 1 m.
	AlignTimeout time.Duration
	// Tries is how often it is taken if it fails since subtasks move meanwhile, as when members come and go; default 1. A try that
	// failed leaves nothing behind if another follows it. Again, if set, is told before that.
	Tries   int
	Again   func(err error)
	By      string // who asked, for people
	Version string // of the program that asks, for people
	// Progress is told how many subtasks are aligned, and how many have written their state, whenever that changes.
	Progress func(aligned, written, total int)
	// then, if set, is called with the completed savepoint while the members wait; what it returns decides what they are
	// told, in place of the completion. Its error lets them go on as before.
	then func(context.Context, *checkpoint.Savepoint) (func(txn.ControlState) (txn.ControlState, error), error)
}

// Errors of savepoints and stops, matched with errors.Is.
var (
	// ErrSavepointRuns: another savepoint of the app is being taken.
	ErrSavepointRuns = errors.New("another savepoint is being taken")
	// ErrMoved: it failed since subtasks moved meanwhile. Try again.
	ErrMoved = errors.New("subtasks moved meanwhile")
	// ErrStopped: the app was stopped on purpose.
	ErrStopped = errors.New("the app is stopped")
	// ErrNotStopped: it was not.
	ErrNotStopped = errors.New("the app is not stopped")
	// ErrNeverStarted: there is no such app on this cluster.
	ErrNeverStarted = errors.New("the app was never started on this cluster")
	// ErrNotRunning: no member of the app runs.
	ErrNotRunning = errors.New("no member of the app runs")
)

const (
	defaultSavepointTimeout = 10 * time.Minute
	defaultAlignTimeout     = time.Minute
	// The initiator looks into the blob store at these paces. While processing stands still it hurries.
	pollAligned = 50 * time.Millisecond
	pollWritten = 500 * time.Millisecond
	// blindFor is how long the initiator goes on when it cannot look into the blob store.
	blindFor = 30 * time.Second
	// Subtasks that have moved need a moment; the pause before another try doubles with each.
	pauseOfTries = time.Second
	// beats is how often, within AlignTimeout, the initiator says that it is alive.
	beats = 4
	// lastWords bounds what has to be told at the end of a savepoint, whatever the caller's context says.
	lastWords = 20 * time.Second
)

// TakeSavepoint takes a savepoint of a running app: it asks the members for it through the control topic, waits until
// they have written it to blobs, and completes it. It returns when the savepoint is completed; when ctx ends, or
// anything fails, so does the savepoint, and processing goes on. A caller that dies leaves it to its deadline.
//
// Errors: ErrNeverStarted, ErrStopped, ErrNotRunning, ErrSavepointRuns, checkpoint.ErrNameTaken, those of the brokers
// and the blob store, and the reason that a member gave (ErrMoved). With Stop a completed savepoint may come with an error: the
// savepoint is good, but the app was not stopped.
func TakeSavepoint(ctx context.Context, cluster *txn.Cluster, control *txn.Control, blobs blob.Store, o SavepointOptions) (*checkpoint.Savepoint, error) {
	if o.Timeout <= 0 {
		o.Timeout = defaultSavepointTimeout
	}
	if o.AlignTimeout <= 0 {
		o.AlignTimeout = defaultAlignTimeout
	}
	if o.Progress == nil {
		o.Progress = func(int, int, int) {}
	}
	i := &initiator{cluster: cluster, control: control, o: o, app: control.AppID()}
	if blobs == nil {
		return nil, i.fault(errors.New("there is no store for it; set checkpoint.url, for this command and for the members"))
	}
	i.savepoints = checkpoint.NewSavepoints(blobs, i.app, nil, nil)
	for try := 1; ; try++ {
		done, err := i.take(ctx)
		if err == nil {
			return done, nil
		}
		if done != nil || !errors.Is(err, ErrMoved) || try >= o.Tries || ctx.Err() != nil {
			return done, i.fault(err)
		}
		if ferr := i.forget(ctx); ferr != nil {
			return nil, i.fault(errors.Join(err, ferr))
		}
		if o.Again != nil {
			o.Again(err)
		}
		if txn.Sleep(ctx, pauseOfTries<<min(try-1, 3)) != nil {
			return nil, i.fault(errors.Join(err, context.Cause(ctx)))
		}
	}
}

// take is one try.
func (i *initiator) take(ctx context.Context) (*checkpoint.Savepoint, error) {
	if err := i.begin(ctx); err != nil {
		return nil, err
	}
	return i.watch(ctx)
}

// forget removes what a try of ours has left that failed, so that the name is free for the next.
func (i *initiator) forget(ctx context.Context) error {
	switch sp, err := i.savepoints.Show(ctx, i.sp.Name); {
	case err != nil:
		return err
	case sp.ID != i.sp.ID || sp.Status == checkpoint.StatusCompleted:
		return fmt.Errorf("%w meanwhile", checkpoint.ErrNameTaken)
	}
	_, err := i.savepoints.Delete(ctx, i.sp.Name)
	return err
}

// initiator takes one savepoint.
type initiator struct {
	cluster    *txn.Cluster
	control    *txn.Control
	savepoints *checkpoint.Savepoints
	o          SavepointOptions
	app        string
	sp         *checkpoint.Savepoint // as begun
}

func (i *initiator) fault(err error) error {
	return fmt.Errorf("take savepoint %s of app %s: %w", i.o.Name, i.app, err)
}

// refused says why no savepoint can be begun now (pure); nil = it can.
func refused(s txn.ControlState, now time.Time) error {
	switch {
	case s.Incarnation == 0 || len(s.Parallelism) == 0:
		return fmt.Errorf("%w; check app.id and the brokers", ErrNeverStarted)
	case s.Stopped != nil:
		return fmt.Errorf("%w, since %s by %s%s; resume it first", ErrStopped, timeText(s.Stopped.At), s.Stopped.By, stoppedWith(s.Stopped))
	case runs(s.Savepoint) && now.UnixMilli() <= s.Savepoint.Deadline:
		return fmt.Errorf("%w: %s, asked for by %s at %s, until %s at most; wait for its end", ErrSavepointRuns, s.Savepoint.Name, s.Savepoint.By,
			timeText(s.Savepoint.Began), timeText(s.Savepoint.Deadline))
	}
	return nil
}

func stoppedWith(s *txn.Stopped) string {
	if s.Savepoint == "" {
		return ""
	}
	return " with savepoint " + s.Savepoint
}

func timeText(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }

// runs says that a savepoint has not ended.
func runs(r *txn.SavepointRequest) bool {
	return r != nil && (r.Phase == txn.SavepointRunning || r.Phase == txn.SavepointAligned)
}

// begin takes the name and asks the members.
func (i *initiator) begin(ctx context.Context) error {
	if err := checkpoint.CheckName(i.o.Name); err != nil {
		return err
	}
	was, err := i.control.Refresh(ctx)
	if err != nil {
		return err
	}
	if err := refused(was, time.Now()); err != nil {
		return err
	}
	switch n, err := i.cluster.Members(ctx); {
	case err != nil:
		return err
	case n == 0:
		return fmt.Errorf("%w, so that nobody can write its state; start it", ErrNotRunning)
	}
	deadline := time.Now().Add(i.o.Timeout)
	i.sp, err = i.savepoints.Begin(ctx, checkpoint.Savepoint{Name: i.o.Name, ClusterID: was.ClusterID, Incarnation: was.Incarnation,
		Expected: subtasksOf(was.Parallelism), Deadline: deadline.UnixMilli(), Owner: i.o.By, Version: i.o.Version, Topology: was.Topology})
	if err != nil {
		return i.taken(ctx, err)
	}
	_, err = i.control.Update(ctx, func(s txn.ControlState) (txn.ControlState, error) {
		if err := refused(s, time.Now()); err != nil {
			return s, err
		}
		if s.Incarnation != was.Incarnation || string(s.Topology) != string(was.Topology) {
			return s, errors.New("the app was begun anew, or with another topology, at this moment; try again")
		}
		s.Savepoint = &txn.SavepointRequest{ID: i.sp.ID, Name: i.sp.Name, Phase: txn.SavepointRunning, Stop: i.o.Stop, Began: i.sp.Began,
			Deadline: i.deadline(), By: i.o.By}
		return s, nil
	})
	if err != nil {
		// Whether the members were asked is not known if the brokers did not answer.
		err = errors.Join(err, i.give(err.Error()))
	}
	return err
}

// taken says what to do if the name was used for a savepoint that has failed.
func (i *initiator) taken(ctx context.Context, err error) error {
	if !errors.Is(err, checkpoint.ErrNameTaken) {
		return err
	}
	sp, serr := i.savepoints.Show(ctx, i.o.Name)
	if serr != nil || sp.Status != checkpoint.StatusFailed && sp.Status != checkpoint.StatusAbandoned {
		return err
	}
	return fmt.Errorf("%w: that savepoint is %s, and nothing can begin from it; to use the name again: millrace savepoint delete %s --app.id=%s", err, sp.Status, i.o.Name, i.app)
}

// deadline is that of the phase that begins now: whoever waits for us waits that long, unless we say that we are alive.
func (i *initiator) deadline() int64 {
	return min(i.sp.Deadline, time.Now().Add(i.o.AlignTimeout).UnixMilli())
}

// beat says that the initiator is alive, until ctx ends: once all subtasks are aligned, uploads may take long, and with Stop
// processing stands still.
func (i *initiator) beat(ctx context.Context) {
	for txn.Sleep(ctx, i.o.AlignTimeout/beats) == nil {
		// An error shows in watch too, or else at the deadline.
		_ = i.update(ctx, func(s txn.ControlState) (txn.ControlState, error) {
			s.Savepoint.Deadline = i.deadline()
			return s, nil
		})
	}
}

// subtasksOf lists all subtasks of an app.
func subtasksOf(parallelism []int) []string {
	var all []string
	for sub, n := range parallelism {
		for k := range n {
			all = append(all, record.SubtaskID{SubTopology: sub, Index: k}.String())
		}
	}
	return all
}

// give ends the savepoint as failed, for the members and in the blob store, whatever the caller's context says.
func (i *initiator) give(reason string) error {
	ctx, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	_, err := failSavepoint(ctx, i.control, i.sp.ID, failure{reason: reason})
	if err != nil {
		err = fmt.Errorf("and the members could not be told that it failed, so that processing may stand still until %s: %w", timeText(i.sp.Deadline), err)
	}
	if _, ferr := i.savepoints.Fail(ctx, i.sp, reason); ferr != nil {
		err = errors.Join(err, ferr)
	}
	return err
}

// goOn lets the members go on after a savepoint that is completed and good, but was not all that was wanted.
func (i *initiator) goOn(reason string) error {
	ctx, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	_, err := failSavepoint(ctx, i.control, i.sp.ID, failure{reason: reason})
	return err
}

// failure is why a savepoint fails.
type failure struct {
	reason string
	moved  bool // since subtasks moved: another try helps
	late   bool // since its deadline has passed, if that is so still: who leads it may have said meanwhile that it is alive
}

// failSavepoint makes a savepoint failed, if it has not ended, and returns what is decided then.
func failSavepoint(ctx context.Context, control *txn.Control, id string, f failure) (txn.ControlState, error) {
	return control.Update(ctx, func(s txn.ControlState) (txn.ControlState, error) {
		if runs(s.Savepoint) && s.Savepoint.ID == id && (!f.late || time.Now().UnixMilli() > s.Savepoint.Deadline) {
			s.Savepoint.Phase, s.Savepoint.Reason, s.Savepoint.Moved = txn.SavepointFailed, f.reason, f.moved
		}
		return s, nil
	})
}

// watch leads the savepoint to its end.
func (i *initiator) watch(ctx context.Context) (*checkpoint.Savepoint, error) {
	dctx, cancel := context.WithDeadlineCause(ctx, time.UnixMilli(i.sp.Deadline), errors.New("its deadline has passed"))
	defer cancel()
	alive, still := context.WithCancel(dctx)
	var heart sync.WaitGroup
	quiet := func() { still(); heart.Wait() } // nothing is to come after the last word
	defer quiet()
	fail := func(err error) (*checkpoint.Savepoint, error) {
		quiet()
		return nil, errors.Join(err, i.give(err.Error()))
	}
	phase, pace := txn.SavepointRunning, pollAligned
	seen := time.Now()
	last := [2]int{-1, -1}
	for {
		timer := time.NewTimer(pace)
		select {
		case <-dctx.Done():
			timer.Stop()
			err := context.Cause(dctx)
			if last[0] >= 0 && last[1] < len(i.sp.Expected) {
				err = fmt.Errorf("%w; %d of %d subtasks are aligned, %d have written their state: see the logs of the members, and that all of them run", err, last[0], len(i.sp.Expected), last[1])
			}
			return fail(err)
		case <-timer.C:
		}
		state, err := i.control.Refresh(dctx)
		if err != nil {
			if dctx.Err() != nil {
				continue
			}
			return fail(err)
		}
		if err := i.ended(state); err != nil {
			return fail(err)
		}
		aligned, written, err := i.savepoints.Progress(dctx, i.sp)
		if err != nil {
			if dctx.Err() == nil && time.Since(seen) > blindFor {
				return fail(err)
			}
			continue
		}
		seen = time.Now()
		if now := [2]int{len(aligned), len(written)}; now != last {
			last = now
			i.o.Progress(len(aligned), len(written), len(i.sp.Expected))
		}
		if phase == txn.SavepointRunning && len(aligned) == len(i.sp.Expected) {
			if err := i.move(dctx, txn.SavepointAligned); err != nil {
				return fail(err)
			}
			phase, pace = txn.SavepointAligned, pollWritten
			heart.Go(func() { i.beat(alive) })
		}
		if len(written) < len(i.sp.Expected) {
			continue
		}
		done, err := i.complete(dctx)
		if err != nil {
			return fail(err)
		}
		next := func(s txn.ControlState) (txn.ControlState, error) { return i.to(s, txn.SavepointCompleted), nil }
		if i.o.then != nil {
			if next, err = i.o.then(dctx, done); err != nil {
				quiet()
				return done, errors.Join(err, i.goOn(err.Error()))
			}
		}
		quiet()
		lctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
		err = i.update(lctx, next)
		cancel()
		if err != nil {
			err = fmt.Errorf("it is completed and can be used, but the members could not be told: %w", err)
		}
		return done, err
	}
}

// complete makes the savepoint completed in the blob store. A call that fails is tried again: the states are written, and
// it would be a pity to lose them.
func (i *initiator) complete(ctx context.Context) (done *checkpoint.Savepoint, err error) {
	err = again(ctx, pollWritten/4, writeTries, func() (err error) {
		done, err = i.savepoints.Complete(ctx, i.sp)
		if errors.Is(err, checkpoint.ErrEnded) {
			// By an earlier try whose answer was lost?
			if sp, serr := i.savepoints.Show(ctx, i.sp.Name); serr == nil && sp.ID == i.sp.ID && sp.Status == checkpoint.StatusCompleted {
				done, err = sp, nil
			}
		}
		return err
	})
	return done, err
}

// ended says how the members ended it.
func (i *initiator) ended(s txn.ControlState) error {
	r := s.Savepoint
	switch {
	case r == nil || r.ID != i.sp.ID:
		return errors.New("it was given up by the members: the app was begun anew, or another savepoint was asked for after its deadline")
	case r.Phase == txn.SavepointFailed && r.Moved:
		return fmt.Errorf("%w: %s", ErrMoved, r.Reason)
	case r.Phase == txn.SavepointFailed:
		return errors.New(r.Reason)
	}
	return nil
}

// move goes on to the next phase, if nobody has ended the savepoint.
func (i *initiator) move(ctx context.Context, to txn.SavepointPhase) error {
	return i.update(ctx, func(s txn.ControlState) (txn.ControlState, error) { return i.to(s, to), nil })
}

// to is the state of the next phase.
func (i *initiator) to(s txn.ControlState, phase txn.SavepointPhase) txn.ControlState {
	s.Savepoint.Phase, s.Savepoint.Deadline = phase, i.deadline()
	if phase == txn.SavepointCompleted && i.o.Stop {
		s.Stopped = &txn.Stopped{At: time.Now().UnixMilli(), Savepoint: i.sp.Name, By: i.o.By}
	}
	return s
}

// update changes what is agreed upon, if nobody has ended the savepoint.
func (i *initiator) update(ctx context.Context, next func(txn.ControlState) (txn.ControlState, error)) error {
	_, err := i.control.Update(ctx, func(s txn.ControlState) (txn.ControlState, error) {
		if err := i.ended(s); err != nil {
			return s, err
		}
		return next(s)
	})
	return err
}

// TakeSavepoint is the function of that name, by a running member.
func (w *Worker) TakeSavepoint(ctx context.Context, o SavepointOptions) (*checkpoint.Savepoint, error) {
	v := &w.saves
	v.mu.Lock()
	if v.ctx == nil || v.closed {
		v.mu.Unlock()
		return nil, fmt.Errorf("take savepoint %s: this member does not run; ask another, or wait", o.Name)
	}
	v.wg.Add(1) // it ends before the worker does
	own := v.ctx
	v.mu.Unlock()
	defer v.wg.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(own, func() { cancel(errors.New("the member that took it stops")) })()
	w.mu.Lock()
	cluster, control := w.cluster, w.control
	w.mu.Unlock()
	return TakeSavepoint(ctx, cluster, control, w.opts.Checkpoints.Blobs, o)
}

// Stop stops an app without a savepoint: its members commit what they have processed, end, and wait when they are
// started again. A savepoint that is being taken fails. Errors: ErrNeverStarted, ErrStopped.
func Stop(ctx context.Context, control *txn.Control, by string) error {
	_, err := control.Update(ctx, func(s txn.ControlState) (txn.ControlState, error) {
		switch {
		case s.Incarnation == 0:
			return s, fmt.Errorf("%w; check app.id and the brokers", ErrNeverStarted)
		case s.Stopped != nil:
			return s, fmt.Errorf("%w, since %s by %s", ErrStopped, timeText(s.Stopped.At), s.Stopped.By)
		}
		if runs(s.Savepoint) {
			s.Savepoint.Phase, s.Savepoint.Reason = txn.SavepointFailed, "the app was stopped by "+by
		}
		s.Stopped = &txn.Stopped{At: time.Now().UnixMilli(), By: by}
		return s, nil
	})
	if err != nil {
		return fmt.Errorf("stop app %s: %w", control.AppID(), err)
	}
	return nil
}

// Resume lets a stopped app go on: members that wait, and those that are started from now on, process again. Errors:
// ErrNeverStarted, ErrNotStopped.
func Resume(ctx context.Context, control *txn.Control) error {
	_, err := control.Update(ctx, func(s txn.ControlState) (txn.ControlState, error) {
		switch {
		case s.Incarnation == 0:
			return s, fmt.Errorf("%w; check app.id and the brokers", ErrNeverStarted)
		case s.Stopped == nil:
			return s, ErrNotStopped
		}
		s.Stopped = nil
		return s, nil
	})
	if err != nil {
		return fmt.Errorf("resume app %s: %w", control.AppID(), err)
	}
	return nil
}
