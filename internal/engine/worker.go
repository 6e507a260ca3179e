// Package engine runs a plan: it owns the worker's goroutines, binds the plan to a cluster, lets the group session
// decide which subtasks run here, and executes the effects of tasks in the order that exactly-once asks for.
//
// # Goroutines
//
//	poll loop        one per worker: runs consumer commands, polls, hands records to inboxes; never waits for a subtask
//	group session    calls Assigned, Revoked and Lost from one goroutine of txn
//	subtask          one per owned subtask: owns its producer, store, task; everything else reaches it as a message
//	checkpointer     one per running subtask, if checkpoints are kept: publishes snapshots of its store
//	saver            one per subtask and savepoint: brings the subtask's state to the blob store
//	janitor          one per worker: deletes consumed repartition records, checks topic identities, asks who owns what
//	follower         one per worker: reads the control topic
//	replanner        one per worker: asks Options.Replan for another plan
//	standby          one per state that is kept for a subtask of another member: follows its changelog
//	standby poll     one per worker, if it keeps standbys: polls for them with a consumer of their own
//
// Queries (Worker.StateGet and StateScan) run on the goroutines of who asks, and have ended when Run has.
//
// All end with Run. A subtask is dropped, never aborted in place: for every outcome but Committed it closes its
// producer, forgets its memory and takes over again from what is committed.
package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/txn"
)

// Worker is one process's share of an app.
type Worker struct {
	opts Options
	log  *slog.Logger

	cluster *txn.Cluster
	control *txn.Control
	group   *txn.Group
	topo    *resolved
	poll    *pollLoop
	joined  chan struct{} // closed when group is set

	// What the incarnation was begun with; see txn.ControlState.
	origin string
	base   *txn.Base
	grown  map[string]int32 // of inputs that have grown too far: how far, as it was told; of the janitor

	commitSlots     chan struct{} // the process's commit budget
	checkpointSlots chan struct{} // and that of checkpoints
	bulkSlots       chan struct{} // and that of changelogs that are loaded in bulk
	downloads       *checkpoint.Slots
	desk            *desk // for queries

	mu       sync.Mutex
	state    State
	failure  error
	started  time.Time
	subtasks map[record.SubtaskID]*subtask
	totals   map[record.SubtaskID]*totals
	stopping bool
	topicIDs map[string][16]byte
	owners   map[record.SubtaskID]txn.Owner // as last heard; replaced, never changed
	keeper   *keeper                        // of states that are not owned

	saves     saves          // its share in savepoints
	fatal     chan error     // cap 1: first error that stops the worker
	otherPlan chan struct{}  // cap 1: the members have agreed upon a plan that is not this worker's
	ended     chan struct{}  // cap 1: the app has ended
	ends      ends           // what its subtasks say of that
	wg        sync.WaitGroup // subtasks
}

// concurrentCommits bounds the commits of one process at a time: more at once only wait for each other at the broker.
const concurrentCommits = 8

// New makes a worker; Run starts it.
func New(opts Options) *Worker {
	opts.ensureDefaults()
	w := &Worker{
		opts:            opts,
		log:             opts.Logger.With("app", opts.Kafka.AppID),
		state:           StateStarting,
		started:         time.Now(),
		commitSlots:     make(chan struct{}, concurrentCommits),
		checkpointSlots: make(chan struct{}, concurrentCheckpoints),
		bulkSlots:       make(chan struct{}, concurrentBulks()),
		downloads:       checkpoint.NewSlots(opts.Checkpoints.Download),
		desk:            newDesk(),
		subtasks:        map[record.SubtaskID]*subtask{},
		totals:          map[record.SubtaskID]*totals{},
		fatal:           make(chan error, 1),
		otherPlan:       make(chan struct{}, 1),
		ended:           make(chan struct{}, 1),
	}
	w.keeper = newKeeper(w)
	return w
}

// Run runs the worker until ctx ends, then stops gracefully: every subtask commits what it has processed and lets go,
// and the worker leaves the group (LeaveOnStop). The error is nil after a graceful stop; otherwise it says what made
// the worker give up.
//
// When another incarnation begins, by a rescale or by members with another start mode, when inputs have more partitions and
// when Options.Replan gives another plan, the worker lets go and goes on with that.
func (w *Worker) Run(ctx context.Context) error {
	err := w.run(ctx)
	var end onward
	for ; errors.As(err, &end) && ctx.Err() == nil; err = w.run(ctx) {
		end.next(w)
	}
	if errors.As(err, &end) {
		err = nil // it was told to end as it went on, and has let go of everything
	}
	w.desk.close()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.state, w.failure = StateFailed, err
		return err
	}
	w.state = StateStopped
	return nil
}

func (w *Worker) run(ctx context.Context) error {
	cluster, err := txn.Connect(ctx, w.opts.Kafka)
	if err != nil {
		return w.startError(ctx, err)
	}
	w.mu.Lock()
	w.cluster = cluster
	w.mu.Unlock()
	defer cluster.Close()

	control, err := cluster.OpenControl(ctx)
	if err != nil {
		return w.startError(ctx, err)
	}
	defer control.Close()
	w.mu.Lock()
	w.control = control
	w.mu.Unlock()
	for {
		err = errAgain
		for try := 0; errors.Is(err, errAgain) && try < maxPrepares; try++ {
			err = w.prepare(ctx, control)
		}
		if err != nil {
			return w.startError(ctx, err)
		}
		if control.State().Stopped == nil {
			break
		}
		if err := w.awaitResume(ctx, control); err != nil {
			return w.startError(ctx, err)
		}
	}
	if w.topo.allEnded(control.State()) {
		w.log.Info("the app has ended before: its inputs were read to their ends, and all of it is committed; start.mode=fresh begins it again")
		return nil
	}
	consumer, err := cluster.NewConsumer()
	if err != nil {
		return w.startError(ctx, err)
	}
	w.poll = newPollLoop(consumer, w.log)

	// The poll loop and the janitor outlive ctx, since a graceful stop still needs them.
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	endSaves := w.saves.start(inner)
	defer endSaves()
	w.heard(control.State())
	var helpers sync.WaitGroup
	helpers.Go(func() { w.poll.run(inner) })
	helpers.Go(func() { w.janitor(inner) })
	helpers.Go(func() { w.replan(inner) })
	helpers.Go(func() { w.follow(inner, control) })
	defer func() { cancel(); helpers.Wait(); consumer.Close() }()
	if w.opts.Standbys > 0 {
		standbys, err := cluster.NewFollower()
		if err != nil {
			return w.startError(ctx, err)
		}
		w.keeper.poll = newPollLoop(standbys, w.log.With("consumer", "standbys"))
		helpers.Go(func() { w.keeper.poll.run(inner); standbys.Close() })
	}

	w.setState(StateJoining)
	layout := w.topo.layout()
	layout.Address = w.opts.Advertise
	held, err := w.held()
	if err != nil {
		return w.startError(ctx, err)
	}
	w.keeper.hold(held)
	layout.Standbys, layout.Keeper = w.opts.Standbys, w.keeper
	group, err := cluster.Join(ctx, layout, handler{w})
	if err != nil {
		return w.startError(ctx, err)
	}
	w.mu.Lock()
	w.group = group
	w.mu.Unlock()
	close(w.joined)

	var failure error
	select {
	case <-ctx.Done():
	case <-w.saves.stop:
		w.log.Info("the app was stopped; this member commits and ends")
	case <-w.ended:
		w.log.Info("the app has ended: its inputs were read to their ends, and all of it is committed")
	case failure = <-w.fatal:
	case failure = <-group.Err():
	}
	var next onward
	if failure != nil && !errors.As(failure, &next) {
		w.log.Error("worker stops", "error", failure)
	}
	stopErr := w.stop(failure)
	if failure != nil {
		return failure
	}
	return stopErr
}

// held are the subtasks whose state lies on this worker's disk: a member that comes back after its session has expired
// should get them again.
func (w *Worker) held() ([]record.SubtaskID, error) {
	names, err := w.opts.Dir.Subtasks(w.topo.incarnation)
	if err != nil {
		return nil, err
	}
	var ids []record.SubtaskID
	for _, name := range names {
		id, err := record.ParseSubtaskID(name)
		if err == nil && id.SubTopology < len(w.topo.subs) && id.Index < w.topo.subs[id.SubTopology].parallelism {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// startError keeps a stop that was asked for during the start from looking like a failure.
func (w *Worker) startError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// stop is the graceful end: subtasks commit and let go, then the group is left.
func (w *Worker) stop(failure error) error {
	ctx, cancel := context.WithTimeout(context.Background(), w.opts.ShutdownTimeout)
	defer cancel()
	w.mu.Lock()
	w.state = StateStopping
	w.stopping = true
	w.keeper.endAll()
	subs := w.list()
	w.mu.Unlock()
	for _, s := range subs {
		s.release()
	}
	var late []string
	for _, s := range subs {
		select {
		case <-s.done:
		case <-ctx.Done():
			late = append(late, s.id.String())
			s.cancel(errDropped)
		}
	}
	leave := w.opts.LeaveOnStop || failure != nil
	gctx, gcancel := context.WithTimeout(context.Background(), 2*time.Second)
	err := w.group.Close(gctx, leave)
	gcancel()
	w.wg.Wait()
	if len(late) > 0 {
		return fmt.Errorf("stop within %s: subtasks %s did not commit in time; their running epochs will be aborted and processed again by the next owner",
			w.opts.ShutdownTimeout, strings.Join(late, ", "))
	}
	if err != nil {
		w.log.Warn("leave group", "error", err)
	}
	var undone []error
	for _, s := range subs {
		s.mu.Lock()
		if s.undone != nil {
			undone = append(undone, fmt.Errorf("subtask %s let go without a last commit: %w", s.id, s.undone))
		}
		s.mu.Unlock()
	}
	return errors.Join(undone...)
}

// prepare verifies cluster and topics, decides the incarnation and parallelism through the control topic, and makes
// the internal topics.
func (w *Worker) prepare(ctx context.Context, control *txn.Control) error {
	known, err := control.Refresh(ctx)
	if err != nil {
		return err
	}
	ground, err := w.survey(ctx, known)
	if err != nil {
		return err
	}
	external, fresh := ground.external, ground.fresh
	var bound *resolved
	var table CompatTable
	var unread map[string]bool
	decide := func(cur txn.ControlState) (txn.ControlState, error) {
		d := decideStart(cur, fresh.origin)
		if d.begins && (fresh.incarnation <= cur.Incarnation || cur.Incarnation != known.Incarnation) || bound != nil && !d.begins && d.incarnation != bound.incarnation {
			return cur, errAgain
		}
		mode := compatMode{AllowDropped: w.opts.AllowDroppedState, Unread: unread}
		p, err := w.plan(cur, ground, mode)
		if err != nil {
			return cur, err
		}
		if d.begins {
			cur = begin(w.opts.Kafka.AppID, cur, fresh.incarnation, fresh.origin, fresh.base)
		}
		r := p.bound
		if table = p.table; table.Refused() {
			return cur, refusal(r.app, table)
		}
		now := inherit(p.was, p.now, p.mode)
		r.adopt(now)
		if p.fault != nil {
			return cur, p.fault
		}
		top, err := json.Marshal(now)
		if err != nil {
			return cur, err
		}
		bound = r
		cur.ClusterID, cur.Incarnation, cur.Fingerprint, cur.Topology = w.cluster.ID(), r.incarnation, r.fingerprint, top
		cur.Parallelism = nil
		for _, s := range r.subs {
			cur.Parallelism = append(cur.Parallelism, s.parallelism)
		}
		return cur, nil
	}
	if _, err := decide(known); err != nil {
		return err
	}
	if bound.incarnation != known.Incarnation {
		known.Topology = nil // its repartition topics are not read any more
	}
	if unread, err = unreadTopics(ctx, w.cluster, bound, known.Topology); err != nil {
		return err
	}
	if len(unread) > 0 {
		if _, err := decide(known); err != nil {
			return err
		}
	}
	made, err := w.cluster.EnsureTopics(ctx, bound.internalTopics(w.opts.ReplicationFactor, w.opts.InternalCompression))
	if err != nil {
		return err
	}
	for _, short := range bound.shortRetention(made) {
		w.log.Warn("a changelog deletes windows too early", "reason", short)
	}
	all := external
	for n, info := range made {
		all[n] = info
	}
	// The control topic is written only when something changed, and only after the topics exist, so that their ids
	// are in it.
	ids := map[string]string{}
	for n, info := range all {
		ids[n] = txn.TopicIDString(info.ID)
	}
	stamp := func(cur txn.ControlState) (txn.ControlState, error) {
		out, err := decide(cur)
		if err != nil {
			return cur, err
		}
		was := cur.TopicIDs
		if out.Incarnation != cur.Incarnation {
			was = nil
		}
		if out.Incarnation != cur.Incarnation || out.Fingerprint != cur.Fingerprint {
			out.Ended = nil
		}
		if err := sameTopics(was, ids); err != nil {
			return cur, err
		}
		out.TopicIDs = map[string]string{}
		for n, id := range was {
			out.TopicIDs[n] = id
		}
		for _, n := range bound.topicNames() {
			if id, ok := ids[n]; ok {
				out.TopicIDs[n] = id
			}
		}
		return out, nil
	}
	next, err := stamp(known)
	if err != nil {
		return err
	}
	if !sameControl(known, next) {
		table.tell(w.log)
		if next, err = control.Update(ctx, stamp); err != nil {
			return err
		}
	}
	w.tellStart(known, next)
	bound.bind(all)
	w.mu.Lock()
	w.topo, w.origin, w.base = bound, next.Origin, next.Base
	w.topicIDs = map[string][16]byte{}
	for n, info := range all {
		w.topicIDs[n] = info.ID
	}
	w.joined = make(chan struct{})
	w.mu.Unlock()
	return nil
}

// sameTopics refuses a topic that was deleted and created again (I5).
func sameTopics(was, now map[string]string) error {
	var diffs []string
	for n, id := range was {
		if cur, ok := now[n]; ok && cur != id {
			diffs = append(diffs, fmt.Sprintf("%s (was %s, is %s)", n, id, cur))
		}
	}
	if len(diffs) == 0 {
		return nil
	}
	slices.Sort(diffs)
	return fatalf("topics were deleted and created again: %s; offsets and state belong to the old ones. Start under another app.id, or restore the topics", strings.Join(diffs, ", "))
}

func sameControl(a, b txn.ControlState) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && string(x) == string(y)
}

func (w *Worker) setState(s State) {
	w.mu.Lock()
	if w.state != StateFailed && !w.stopping {
		w.state = s
	}
	w.mu.Unlock()
}

// fail stops the worker; the first error wins.
func (w *Worker) fail(err error) {
	select {
	case w.fatal <- err:
	default:
	}
}

func (w *Worker) list() []*subtask {
	subs := make([]*subtask, 0, len(w.subtasks))
	for _, s := range w.subtasks {
		subs = append(subs, s)
	}
	slices.SortFunc(subs, func(a, b *subtask) int { return a.id.Compare(b.id) })
	return subs
}

// handler is the group session's view of the worker.
type handler struct{ w *Worker }

// Assigned starts the subtasks.
func (h handler) Assigned(ids []record.SubtaskID) {
	w := h.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopping {
		return
	}
	if w.state == StateJoining {
		w.state = StateRunning
	}
	for _, id := range ids {
		prev := w.subtasks[id]
		if prev != nil && !prev.letGo() {
			continue // still running: nothing was taken away
		}
		if standby := w.keeper.release(id); standby != nil {
			prev = standby
		}
		t := w.totals[id]
		if t == nil {
			t = &totals{}
			w.totals[id] = t
		}
		s := newSubtask(w, id, t, prev)
		w.subtasks[id] = s
		w.wg.Go(s.run)
	}
}

// Revoked lets the subtasks finish and commit.
func (h handler) Revoked(ctx context.Context, ids []record.SubtaskID) {
	subs := h.find(ids)
	for _, s := range subs {
		s.release()
	}
	for _, s := range subs {
		select {
		case <-s.done:
		case <-ctx.Done():
			s.cancel(errDropped)
		}
	}
	h.forget(subs)
}

// Lost drops the subtasks: whatever they have not committed is somebody else's now.
func (h handler) Lost(ids []record.SubtaskID) {
	subs := h.find(ids)
	for _, s := range subs {
		s.cancel(errDropped)
	}
}

func (h handler) find(ids []record.SubtaskID) []*subtask {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	var subs []*subtask
	for _, id := range ids {
		if s := h.w.subtasks[id]; s != nil {
			subs = append(subs, s)
		}
	}
	return subs
}

func (h handler) forget(subs []*subtask) {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	for _, s := range subs {
		if h.w.subtasks[s.id] == s && s.finished() {
			delete(h.w.subtasks, s.id)
		}
	}
}

// ownership asks the group session for proof that a subtask is still ours.
func (w *Worker) ownership(id record.SubtaskID) (txn.Ownership, bool) {
	w.mu.Lock()
	g, ready := w.group, w.joined
	w.mu.Unlock()
	if g == nil {
		<-ready // Assigned may come before Join returns
		w.mu.Lock()
		g = w.group
		w.mu.Unlock()
	}
	return g.Ownership(id)
}

var (
	errDropped  = errors.New("subtask is no longer ours")
	errReleased = errors.New("subtask was asked to let go")
)

// follow reads what the members of the app agree upon, until ctx ends.
func (w *Worker) follow(ctx context.Context, control *txn.Control) {
	for {
		err := control.Follow(ctx, w.agreed)
		if ctx.Err() != nil {
			return
		}
		if txn.IsFatal(err) {
			w.fail(err)
			return
		}
		w.log.Warn("follow the control topic", "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
}

// agreed compares this worker with what was agreed upon. Who has another incarnation must not write any more; who has
// another topology is left out by the group, which says so.
func (w *Worker) agreed(s txn.ControlState) {
	switch {
	case s.Incarnation < w.topo.incarnation: // from before this worker began its incarnation
	case s.Incarnation > w.topo.incarnation:
		w.fail(&movedError{w.topo.incarnation, s.Incarnation})
	case s.Fingerprint != w.topo.fingerprint:
		w.log.Warn("another version of the topology was started; members of both do not share the work", "fingerprint", w.topo.fingerprint, "other", s.Fingerprint)
		select {
		case w.otherPlan <- struct{}{}:
		default:
		}
	}
	// The newest state, which may be newer than the one that is told: a stop that is over stops nobody.
	now := w.control.State()
	w.heard(now)
	if w.topo.allEnded(now) {
		w.end()
	}
}

// janitor deletes consumed repartition records, checks that no topic was replaced, and asks who owns what.
func (w *Worker) janitor(ctx context.Context) {
	tick := time.NewTicker(w.opts.HouseKeeping)
	defer tick.Stop()
	var missing map[string]bool
	var old attic
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		cctx, cancel := context.WithTimeout(ctx, max(w.opts.HouseKeeping, time.Second))
		var same bool
		if missing, same = w.checkTopics(cctx, missing); same {
			w.purge(cctx) // never with offsets of a topic that was there before
		}
		w.askOwners(cctx)
		cancel()
		w.keeper.clean()
		old.tidy(ctx, w)
	}
}

func (w *Worker) purge(ctx context.Context) {
	before := map[record.TopicPartition]int64{}
	w.mu.Lock()
	for _, s := range w.list() {
		for tp, off := range s.committedInternal() {
			if off > 0 {
				before[tp] = off
			}
		}
	}
	w.mu.Unlock()
	if len(before) == 0 {
		return
	}
	if err := w.cluster.DeleteRecords(ctx, before); err != nil && ctx.Err() == nil {
		w.log.Warn("delete consumed repartition records", "error", err)
	}
}

// askOwners hears who owns what, for the status alone: it may be out of date, and fail.
func (w *Worker) askOwners(ctx context.Context) {
	w.mu.Lock()
	g := w.group
	w.mu.Unlock()
	if g == nil {
		return
	}
	owners, err := g.Owners(ctx)
	if err != nil {
		return
	}
	w.mu.Lock()
	w.owners = owners
	w.mu.Unlock()
}

// checkTopics compares the topics with what they were; missing are those that were not there last time, and it returns
// those that are not there now, and whether all are there as they were.
func (w *Worker) checkTopics(ctx context.Context, missing map[string]bool) (map[string]bool, bool) {
	w.mu.Lock()
	ids := w.topicIDs
	names := w.topo.topicNames()
	w.mu.Unlock()
	infos, err := w.cluster.Topics(ctx, names...)
	if err != nil {
		return missing, false // the broker's trouble shows elsewhere
	}
	now := map[string]string{}
	for n, info := range infos {
		now[n] = txn.TopicIDString(info.ID)
	}
	was := map[string]string{}
	for n, id := range ids {
		was[n] = txn.TopicIDString(id)
	}
	if err := sameTopics(was, now); err != nil {
		w.fail(err)
		return nil, false
	}
	for _, s := range w.topo.subs {
		for _, in := range s.inputs {
			info, ok := infos[in.topic]
			switch {
			case !ok || info.Partitions == in.partitions:
			case beyond(in.partitions, info.Partitions, int32(s.parallelism)):
				w.tellGrowth(in, info.Partitions, s)
			default:
				w.fail(&grownError{in.topic, in.partitions, info.Partitions})
				return nil, false
			}
		}
	}
	gone := missing
	missing = map[string]bool{}
	for _, n := range names {
		if _, ok := infos[n]; ok {
			continue
		}
		if gone[n] { // twice: a broker that has just started may not know it yet
			w.fail(fatalf("topic %s is gone; restore it, or start under another app.id", n))
			return nil, false
		}
		missing[n] = true
	}
	return missing, len(missing) == 0
}
