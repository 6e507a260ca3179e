package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/internal/failpoint"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/txn"
)

// subtask is one owned subtask. Its goroutine runs lives: each life takes over from committed state, processes, and
// ends when the subtask is let go or something failed. Everything else reaches it as a message: records through the
// inbox, "commit and let go" through release, "not ours any more" through cancel.
type subtask struct {
	w    *Worker
	id   record.SubtaskID
	sub  *resolvedSub
	log  *slog.Logger
	prev *subtask // an earlier one of the same id in this process: its store must be closed first

	ctx       context.Context
	cancel    context.CancelCauseFunc
	releasing chan struct{} // closed: commit what is processed, then end
	relOnce   sync.Once
	done      chan struct{} // closed: producer and store are closed, partitions are removed
	queries   chan *query   // from outside; bounded

	totals *totals

	// Only of the subtask's goroutine:
	mismatch *mismatchError // of the last takeover
	word     txn.Ownership  // the session's word as last asked for by a producer
	fromDisk bool           // the last takeover found a local store, and read only the tail of the changelog
	wipe     bool           // the next takeover removes the local store first
	// publisher of its checkpoints, over all lives: it knows the hashes of files, and what was garbage for how long. The
	// checkpointer of one life at a time uses it.
	publisher *checkpoint.Publisher

	mu        sync.Mutex
	state     SubtaskState
	lastErr   error
	restore   *RestoreStatus
	stats     task.Stats // of the running task
	metrics   []task.Metric
	parts     []task.PartitionProgress
	committed map[record.TopicPartition]int64
	inbox     *inbox
	undone    error     // why it let go without a last commit
	told      time.Time // when a restore's progress was last logged
}

// totals are counters of one subtask id in this process, over its lives.
type totals struct {
	mu           sync.Mutex
	base         task.Stats // sums of finished tasks
	epoch        uint64
	lastCommit   time.Time
	commitTook   time.Duration
	commits      int64
	restarts     int64
	backpressure atomic.Int64 // ns
	storeBytes   int64
	pending      int64
	checkpoint   CheckpointStatus
	held         atomic.Int64 // ns in which processing stood still for savepoints
	lastHeld     atomic.Int64 // for the last one
}

func newSubtask(w *Worker, id record.SubtaskID, t *totals, prev *subtask) *subtask {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &subtask{
		w: w, id: id, sub: w.topo.subs[id.SubTopology], log: w.log.With("subtask", id.String()), prev: prev,
		ctx: ctx, cancel: cancel, releasing: make(chan struct{}), done: make(chan struct{}),
		queries: make(chan *query, queriesWaiting), totals: t, state: SubtaskFencing, committed: map[record.TopicPartition]int64{},
	}
}

func (s *subtask) release() { s.relOnce.Do(func() { close(s.releasing) }) }

func (s *subtask) released() bool {
	select {
	case <-s.releasing:
		return true
	default:
		return false
	}
}

// letGo says that the subtask ends or has ended.
func (s *subtask) letGo() bool { return s.released() || s.ctx.Err() != nil || s.finished() }

func (s *subtask) finished() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

func (s *subtask) setState(st SubtaskState, err error) {
	s.mu.Lock()
	s.state, s.lastErr = st, err
	s.mu.Unlock()
}

// run is the subtask's goroutine.
func (s *subtask) run() {
	defer close(s.done)
	defer s.cancel(errDropped)
	if s.prev != nil {
		<-s.prev.done
		s.prev = nil
	}
	attempt := 0
	for {
		progressed, err := s.life()
		switch {
		case err == nil, errors.Is(err, errReleased), s.released(), s.ctx.Err() != nil:
			return
		}
		if progressed {
			attempt = 0
		}
		attempt++
		act := classify(err)
		if act == actWipe {
			s.wipe = true
			if !s.fromDisk && !progressed {
				act = actStop
				err = fmt.Errorf("the state was just restored from changelogs %s, partition %d, and cannot be read: %w; wiping the local store does not help, since what is wrong lies in the changelog: "+
					"restore the topic, or start under another app.id", strings.Join(s.sub.changelogs, ", "), s.id.Index, err)
			}
		}
		if txn.IsNotMember(err) {
			s.awaitWord()
		}
		if _, mine := s.w.ownership(s.id); !mine {
			// A fence is a question; the group's answer is that somebody else owns the subtask. The session will say so.
			s.log.Info("subtask moved away", "error", err)
			return
		}
		if act == actStop || attempt > s.w.opts.MaxAttempts {
			s.setState(SubtaskBackingOff, err)
			if act != actStop {
				err = fmt.Errorf("subtask %s: no epoch committed in %d attempts, the last error: %w", s.id, attempt, err)
			} else {
				err = fmt.Errorf("subtask %s: %w%s", s.id, err, advice(err))
			}
			s.w.fail(err)
			s.awaitEnd()
			return
		}
		wait := backoff(attempt, s.w.opts.BackoffMin, s.w.opts.BackoffMax)
		if act == actTakeover && attempt == 1 {
			wait = 0
		}
		s.totals.mu.Lock()
		s.totals.restarts++
		s.totals.mu.Unlock()
		s.w.opts.Observer.SubtaskRestarted(s.id, act.String())
		log := s.log
		if stack := stackOf(err); stack != "" {
			log = log.With("stack", stack)
		}
		log.Warn("subtask starts again from its last commit", "recovery", act.String(), "attempt", attempt, "wait", wait, "error", err)
		s.setState(SubtaskBackingOff, err)
		if wait > 0 {
			s.fenceEarly()
		}
		select {
		case <-time.After(wait):
		case <-s.ctx.Done():
			return
		case <-s.releasing:
			s.letGoUndone(err)
			return
		}
	}
}

// letGoUndone notes why the subtask lets go without a last commit. What it has not committed is processed again by the
// next owner.
func (s *subtask) letGoUndone(err error) {
	s.log.Warn("subtask lets go without a last commit", "error", err)
	s.mu.Lock()
	s.undone = err
	s.mu.Unlock()
}

// awaitWord waits until the session has a newer word than the one that a commit was refused with, since the coordinator
// knows better than the session: it does not know us as a member. The wait is bounded, should it be wrong.
func (s *subtask) awaitWord() {
	ctx, cancel := context.WithTimeout(s.ctx, fenceTimeout)
	defer cancel()
	go func() {
		select {
		case <-s.releasing:
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := s.w.group.WaitChange(ctx, s.word); err != nil && s.ctx.Err() == nil && !s.released() {
		s.log.Warn("the group coordinator does not know this member, and no newer word came from the group session", "error", err)
	}
}

// awaitEnd keeps a failed subtask in place, visible in the status, until the worker stops.
func (s *subtask) awaitEnd() {
	select {
	case <-s.ctx.Done():
	case <-s.releasing:
	}
}

// fenceEarly ends the open transaction of a subtask that is about to wait: it would hold up every reader downstream.
func (s *subtask) fenceEarly() {
	if _, ok := s.w.ownership(s.id); !ok {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, fenceTimeout)
	defer cancel()
	p, err := s.w.cluster.OpenProducer(ctx, s.id, s.producerTopics(), func() (txn.Ownership, bool) { return s.w.ownership(s.id) })
	if err != nil {
		s.log.Warn("fence before waiting", "error", err)
		return
	}
	p.Close()
}

const fenceTimeout = 10 * time.Second

func (s *subtask) producerTopics() txn.ProducerTopics {
	t := txn.ProducerTopics{Changelogs: s.sub.changelogs, ChangelogPartition: int32(s.id.Index)}
	for _, o := range s.sub.outputs {
		t.Outputs = append(t.Outputs, o.topic)
	}
	return t
}

// life is one attempt, from fencing to the end. progressed says that it committed an epoch beyond its claim.
func (s *subtask) life() (progressed bool, err error) {
	l := &life{s: s, w: s.w, log: s.log, inbox: newInbox()}
	defer l.close()
	defer l.refuse()
	if err := l.takeover(); err != nil {
		return false, err
	}
	stop := l.startCheckpoints()
	err = l.loop()
	stop()
	if err != nil && !errors.Is(err, errReleased) && s.released() && s.ctx.Err() == nil {
		if _, mine := s.w.ownership(s.id); mine {
			s.letGoUndone(err)
		}
	}
	return l.epochs > 1, err
}

// life holds what one attempt owns.
type life struct {
	s   *subtask
	w   *Worker
	log *slog.Logger

	producer *txn.Producer
	identity statestore.Identity
	store    statestore.Store
	state    *statestore.State
	task     *task.Task
	calls    *Calls
	inbox    *inbox
	tps      []record.TopicPartition         // all partitions, as fetched
	waiting  map[record.TopicPartition]int64 // those not fetched yet, and where: see task.Awaits
	index    map[record.TopicPartition]int
	saw      map[string]bool // topics that were read before this life, for all that the epoch record or the savepoint tells
	added    bool

	topics      map[string]txn.TopicInfo // of the subtask, as the takeover found them
	ahead       []checkpoint.Found       // checkpoints that know of changelog records which are gone
	view        checkpoint.View          // what the restore was decided by
	found       bool                     // with the checkpoints
	incarnation uint64
	epoch       uint64                  // last committed
	epochs      int                     // committed in this life
	ended       bool                    // the end of all inputs is committed, and told
	over        []record.TopicPartition // inputs that are fetched no more, since they have ended
	offsets     map[record.TopicPartition]int64
	positions   []int64
	meta        statestore.Meta
	handles     map[string][]byte   // of Externals, as last committed
	begun       map[string][][]byte // those that the life begins with

	share    share                   // in a savepoint
	external []record.TopicPartition // external inputs that wait for it; nil = none

	oldestInput time.Time
	lastCommit  time.Time
	lastTook    time.Duration
	lastBehind  time.Time
	pausedAt    time.Time
	scans       []*query // that wait for a write-behind
	stepMax     int
}

// close ends a life, however it ended. The producer's open transaction is aborted by the successor's
// InitProducerID, or by the broker.
func (l *life) close() {
	if l.added {
		l.w.poll.remove(l.tps, l.inbox)
	}
	if l.producer != nil {
		l.producer.Close()
	}
	if l.calls != nil {
		l.calls.End(l.log)
	}
	if l.task != nil {
		st := l.task.Stats()
		if err := l.task.Close(); err != nil {
			l.log.Warn("close operators", "error", err)
		}
		l.s.fold(st)
	}
	if l.store != nil {
		if err := l.store.Close(); err != nil {
			l.log.Warn("close store", "error", err)
		}
	}
	l.notePaused(false)
	l.goes()
}

// fold adds the counters of a finished task to the totals.
func (s *subtask) fold(st task.Stats) {
	s.totals.mu.Lock()
	addStats(&s.totals.base, st)
	s.totals.mu.Unlock()
	s.mu.Lock()
	s.stats = task.Stats{Watermark: math.MinInt64}
	s.mu.Unlock()
}

func addStats(sum *task.Stats, st task.Stats) {
	sum.RecordsIn += st.RecordsIn
	sum.BytesIn += st.BytesIn
	sum.RecordsOut += st.RecordsOut
	sum.BytesOut += st.BytesOut
	sum.Late += st.Late
	sum.DeadLetters += st.DeadLetters
	sum.Skipped += st.Skipped
	sum.Expired += st.Expired
}

// loop processes until the subtask is let go or something fails.
func (l *life) loop() error {
	s := l.s
	policy := commitPolicy{maxLatency: l.w.opts.CommitMaxLatency, quiet: l.w.opts.CommitQuiet, maxBytes: l.w.opts.CommitMaxBytes}
	now := time.Now()
	l.lastCommit, l.lastBehind = now, now
	l.stepMax = stepMin
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		// Control overtakes data.
		if s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
		if s.released() {
			return l.finish()
		}
		if len(s.queries) > 0 || len(l.scans) > 0 {
			if err := l.answer(); err != nil {
				return err
			}
		}
		l.fetchRest()
		if hold, err := l.takePart(); err != nil {
			return err
		} else if hold {
			continue
		}
		held := l.task.Stats()
		if l.external != nil {
			held.BufferedBytes = 0 // of inputs that wait; what the others bring must get in
		}
		batches, resume, err := l.inbox.take(held.BufferedBytes)
		if err != nil {
			return l.deleted(err)
		}
		if resume {
			l.notePaused(false)
			l.w.poll.resume(l.fetchable(), l.inbox)
		}
		for _, b := range batches {
			l.task.Enqueue(l.index[b.TopicPartition], b.Partition, b.Records)
		}
		now = time.Now()
		n, err := l.step(now)
		if err != nil {
			return err
		}
		if err := l.producer.Err(); err != nil {
			return err
		}
		l.dropEnded()
		now = time.Now()
		st := l.task.Stats()
		view := commitView{now: now, oldestInput: l.oldestInput, lastCommit: l.lastCommit, lastTook: l.lastTook,
			bytes: st.EpochBytes, drained: st.Buffered == 0, moved: l.moved()}
		due, waiting := policy.next(view)
		if waiting && !due.After(now) {
			if err := l.commit(false); err != nil {
				return err
			}
			now = time.Now()
			if err := l.writeBehind(now, false); err != nil {
				return err
			}
			continue
		}
		if n > 0 || st.Buffered > 0 && l.external == nil && !st.Blocked || st.NextTimer <= now.UnixMilli() {
			continue
		}
		if st.Ended && st.OldestUncommittedIn == 0 && l.oldestInput.IsZero() && !l.ended {
			l.ended = true
			l.w.noteEnded(l.s.id)
		}
		l.publish(st)
		if err := l.writeBehind(now, false); err != nil {
			return err
		}
		// Nothing to do: wait for records, a message, or the next thing that is due.
		until := now.Add(idleTick)
		if waiting && due.Before(until) {
			until = due
		}
		if st.NextTimer != math.MaxInt64 {
			if t := time.UnixMilli(st.NextTimer); t.Before(until) {
				until = t
			}
		}
		if tick := now.Add(scanTick); len(l.scans) > 0 && tick.Before(until) {
			until = tick
		}
		timer.Reset(max(until.Sub(now), 0))
		select {
		case <-l.inbox.ready:
		case <-l.calls.Wake():
		case q := <-s.queries:
			l.serve(q)
		case <-timer.C:
		case <-s.releasing:
		case <-s.ctx.Done():
		}
	}
}

const (
	idleTick = 500 * time.Millisecond
	// A step is bounded in records so that control is looked at often: the count adapts to keep one near stepTarget.
	stepMin    = 16
	stepMax    = 1024
	stepTarget = 4 * time.Millisecond
)

// step runs one bounded run of records, and the timers that are due, and hands the outputs to the producer.
func (l *life) step(now time.Time) (int, error) {
	ms := now.UnixMilli()
	before := l.task.Stats()
	n, err := l.task.Step(l.stepMax, ms)
	if err != nil {
		return n, err
	}
	if l.task.Stats().NextTimer <= ms {
		if err := l.task.Tick(ms); err != nil {
			return n, err
		}
	}
	outs := l.task.TakeOutputs()
	if len(outs) > 0 {
		if err := l.producer.Produce(l.s.ctx, outs); err != nil {
			return n, err
		}
	}
	after := l.task.Stats()
	// Not only records want a commit: a watermark that has to reach other partitions does too, when the input is quiet.
	if after.OldestUncommittedIn != before.OldestUncommittedIn || after.RecordsIn > before.RecordsIn || len(outs) > 0 || after.EpochBytes > before.EpochBytes {
		if l.oldestInput.IsZero() {
			l.oldestInput = now
		}
	}
	if n > 0 {
		switch took := time.Since(now); {
		case took > 2*stepTarget && l.stepMax > 1:
			l.stepMax = max(l.stepMax/2, 1)
		case took < stepTarget/2 && n == l.stepMax && l.stepMax < stepMax:
			l.stepMax *= 2
		}
	}
	if l.inbox.isPaused() {
		l.notePaused(true)
	}
	return n, nil
}

// notePaused counts the time in which the inputs were paused because the subtask was behind.
func (l *life) notePaused(paused bool) {
	switch {
	case paused && l.pausedAt.IsZero():
		l.pausedAt = time.Now()
	case !paused && !l.pausedAt.IsZero():
		l.s.totals.backpressure.Add(int64(time.Since(l.pausedAt)))
		l.pausedAt = time.Time{}
	}
}

// moved says whether a position is ahead of the committed one.
func (l *life) moved() bool {
	for _, p := range l.task.Positions() {
		tp := l.partition(p.Input, p.Partition)
		if p.Offset >= 0 && p.Offset != l.offsets[tp] {
			return true
		}
	}
	return false
}

func (l *life) partition(input int, p int32) record.TopicPartition {
	return record.TopicPartition{Topic: l.s.sub.inputs[input].topic, Partition: p}
}

// finish commits what was processed, brings the store up to date, and ends.
func (l *life) finish() error {
	l.s.setState(SubtaskStopping, nil)
	if !l.oldestInput.IsZero() || l.moved() || len(l.handles) > 0 {
		if err := l.commit(true); err != nil {
			return err
		}
	}
	if err := l.writeBehind(time.Now(), true); err != nil {
		l.log.Warn("flush store before letting go", "error", err) // the changelog has it
	}
	return errReleased
}

// commit ends the running epoch in the order that design asks for: records, changelog and epoch record are produced
// and flushed, offsets go into the transaction, it is ended, and only then the epoch's state counts as committed. What goes
// to other systems is prepared first and shown last; with last nothing of it is left for later epochs.
func (l *life) commit(last bool) error {
	now := time.Now()
	epoch := l.epoch + 1
	sealed, err := l.task.Seal(epoch, now.UnixMilli())
	if err != nil {
		return err
	}
	handles, err := l.task.Prepare(l.s.ctx, epoch, last)
	if err != nil {
		return err
	}
	if err := failpoint.Hit(failpoint.AfterPrepare); err != nil {
		return err
	}
	if len(sealed.Outputs) > 0 {
		if err := l.producer.Produce(l.s.ctx, sealed.Outputs); err != nil {
			return err
		}
	}
	if err := l.s.sub.checkSizes(sealed.Changelog); err != nil {
		return err
	}
	if err := l.producer.ProduceChanges(l.s.ctx, sealed.Changelog); err != nil {
		return err
	}
	ec := txn.EpochCommit{Epoch: epoch, Offsets: map[record.TopicPartition]int64{}, Touched: make([]bool, len(l.s.sub.changelogs))}
	for _, c := range sealed.Changelog {
		ec.Touched[c.Changelog] = true
	}
	if len(ec.Touched) == 1 || !ec.Touched[1] {
		ec.Touched[0] = true
	}
	for _, p := range sealed.Progress.Partitions {
		if p.Offset >= 0 {
			ec.Offsets[l.partition(p.Input, p.Partition)] = p.Offset
		}
	}
	rec := l.epochRecord(epoch, now, &sealed.Progress, ec.Touched)
	rec.Sinks = handles
	ec.Record = rec.Append(nil)

	if failpoint.Planted(failpoint.StateBeforeCommit) {
		early := statestore.Meta{Epoch: epoch, EpochRecord: ec.Record, Positions: append([]int64(nil), l.positions...)}
		if err := errors.Join(l.task.Committed(early), l.state.WriteBehind(early)); err != nil {
			return err
		}
	}
	select {
	case l.w.commitSlots <- struct{}{}:
	case <-l.s.ctx.Done():
		return context.Cause(l.s.ctx)
	}
	res := l.producer.Commit(l.s.ctx, ec, l.own, l.w.group.WaitChange)
	<-l.w.commitSlots
	l.w.opts.Observer.CommitDone(l.s.id, outcomeName(res.Outcome), res.Took)
	if res.Outcome != txn.Committed {
		return &outcomeError{res.Outcome, epoch, res.Err}
	}
	for i, p := range res.Positions {
		if p >= 0 {
			l.positions[i] = p
		}
	}
	l.epoch = epoch
	l.epochs++
	l.offsets = ec.Offsets
	l.meta = statestore.Meta{Epoch: epoch, EpochRecord: ec.Record, Positions: append([]int64(nil), l.positions...)}
	if err := l.task.Committed(l.meta); err != nil {
		return err
	}
	l.handles = handles
	if err := l.task.Finish(l.s.ctx); err != nil {
		return err
	}
	l.oldestInput = time.Time{}
	l.lastCommit, l.lastTook = time.Now(), res.Took

	t := l.s.totals
	t.mu.Lock()
	t.epoch, t.lastCommit, t.commitTook = epoch, l.lastCommit, res.Took
	t.commits++
	t.storeBytes, t.pending = l.store.Size(), l.state.Pending()
	t.mu.Unlock()
	l.publish(l.task.Stats())
	return nil
}

// publish shows the task's counters and positions in the status.
func (l *life) publish(st task.Stats) {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats, s.metrics = st, l.task.Metrics()
	s.parts = append(s.parts[:0], l.task.Positions()...)
	s.committed = l.offsets
}

// writeBehind moves committed state to the store: when enough of it waits, when it is old, or, durably, when force is
// set. The loop does not wait for the disk, unless the disk falls so far behind that memory would grow.
func (l *life) writeBehind(now time.Time, force bool) error {
	busy, err := l.store.Busy()
	if err != nil {
		return fmt.Errorf("write committed state to the store of subtask %s: %w", l.s.id, err)
	}
	room := l.w.opts.WriteBehindBytes
	if l.task.Stats().Buffered == 0 {
		room /= eagerBehind
	}
	pending := l.state.Pending()
	old := now.Sub(l.lastBehind) >= l.w.opts.WriteBehindInterval
	if !force && (pending < room && !old || busy && pending < maxBehind*l.w.opts.WriteBehindBytes) {
		return nil
	}
	l.lastBehind = now
	write := func() error { return l.state.StartWriteBehind(l.meta) }
	if force {
		write = func() error { return l.state.WriteBehind(l.meta) }
	}
	if have, ok := l.store.Meta(); ok && have.Epoch == l.meta.Epoch {
		if !force {
			return nil
		}
		write = l.store.Flush // it may be on its way to the disk
	}
	if err := write(); err != nil {
		return fmt.Errorf("write committed state to the store of subtask %s: %w", l.s.id, err)
	}
	return nil
}

const (
	// maxBehind is up to how many times state.write-behind.bytes may wait while the store is busy.
	maxBehind = 2
	// eagerBehind divides state.write-behind.bytes while no input waits. To collect a batch costs the loop some 300 ns for each
	// key: then small ones keep it quick, while under full load large ones spare work, since each key is in fewer.
	eagerBehind = 16
)

// committedInternal are the committed offsets of repartition topics.
func (s *subtask) committedInternal() map[record.TopicPartition]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := map[record.TopicPartition]int64{}
	for _, in := range s.sub.inputs {
		if !in.internal {
			continue
		}
		for _, p := range partitionsOf(s.id.Index, s.sub.parallelism, in.partitions) {
			tp := record.TopicPartition{Topic: in.topic, Partition: p}
			if off, ok := s.committed[tp]; ok {
				m[tp] = off
			}
		}
	}
	return m
}
