package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/txn"
)

// keeper is the worker's side of standbys: it knows which states lie on this worker's disk, and runs a goroutine for each
// that is to be kept up to date. A standby reads the changelog of a subtask that another member owns and writes to nobody;
// when the subtask comes here, its takeover finds a local store that is seconds behind. Standbys have a consumer of their
// own, so that their fetches do not wait in front of those of the subtasks.
type keeper struct {
	w        *Worker
	poll     *pollLoop     // nil = this worker keeps no standbys
	restores chan struct{} // how many standbys restore at a time

	// All of Worker.mu:
	standbys map[record.SubtaskID]*standby
	ending   map[record.SubtaskID]*subtask  // those that were told to end last: their store may still be open
	held     map[record.SubtaskID]time.Time // states on the disk; since when nobody has used it, zero = somebody does
	told     bool                           // that the standbys which warm up are up to date
	toldAt   time.Time
}

const (
	// concurrentRestores bounds the standbys that restore at a time: a member that joins anew must not read all
	// changelogs at once while its subtasks process.
	concurrentRestores = 2
	// tellAgain is how long a member waits before it makes the group balance again for the same standbys.
	tellAgain = time.Minute
	// standbyAttempts is after how many fruitless attempts a standby puts aside a store that is ahead of its changelog.
	standbyAttempts = 3
)

func newKeeper(w *Worker) *keeper {
	return &keeper{w: w, restores: make(chan struct{}, concurrentRestores), standbys: map[record.SubtaskID]*standby{},
		ending: map[record.SubtaskID]*subtask{}, held: map[record.SubtaskID]time.Time{}}
}

// hold notes the states that an earlier life left on the disk.
func (k *keeper) hold(ids []record.SubtaskID) {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	for _, id := range ids {
		k.held[id] = time.Now()
	}
}

// Kept implements txn.Keeper.
func (k *keeper) Kept() []txn.Kept {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	var out []txn.Kept
	for id, s := range k.standbys {
		out = append(out, txn.Kept{Subtask: id, Standby: true, Lag: s.lag()})
	}
	for id := range k.held {
		if s := k.w.subtasks[id]; k.standbys[id] == nil && (s == nil || s.letGo()) {
			out = append(out, txn.Kept{Subtask: id, Lag: -1})
		}
	}
	slices.SortFunc(out, func(a, b txn.Kept) int { return a.Subtask.Compare(b.Subtask) })
	return out
}

// Keep implements txn.Keeper.
func (k *keeper) Keep(list []txn.Standby) {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	k.told = false
	wanted := map[record.SubtaskID]bool{}
	for _, s := range list {
		wanted[s.Subtask] = true
	}
	for id := range k.standbys {
		if !wanted[id] {
			k.end(id)
		}
	}
	if k.w.stopping || k.poll == nil {
		return
	}
	for _, want := range list {
		id := want.Subtask
		if s := k.standbys[id]; s != nil {
			s.setWarmUp(want.WarmUp)
			continue
		}
		own := k.w.subtasks[id]
		if own != nil && !own.letGo() {
			continue // an assignment that came since has made it ours
		}
		before := k.ending[id]
		if before == nil {
			before = own
		}
		s := newStandby(k, id, before, want.WarmUp)
		k.standbys[id] = s
		k.held[id] = time.Time{}
		k.w.wg.Go(s.run)
	}
}

// end tells a standby to end; Worker.mu is held.
func (k *keeper) end(id record.SubtaskID) {
	s := k.standbys[id]
	if s == nil {
		return
	}
	delete(k.standbys, id)
	k.ending[id] = s.sub
	k.held[id] = time.Now()
	s.sub.cancel(errDropped)
}

// release makes way for a subtask that is ours now: it returns whose end must be waited for before the store can be
// opened, nil = nobody's. Worker.mu is held.
func (k *keeper) release(id record.SubtaskID) *subtask {
	k.end(id)
	k.held[id] = time.Time{}
	before := k.ending[id]
	delete(k.ending, id)
	return before
}

// endAll tells all standbys to end; Worker.mu is held.
func (k *keeper) endAll() {
	for id := range k.standbys {
		k.end(id)
	}
}

// tell makes the group balance anew once the standbys that warm up are up to date, so that their subtasks move here:
// once for each assignment, and again after a while if that did not help. Standbys that do not get on are not waited for.
func (k *keeper) tell() {
	k.w.mu.Lock()
	group, ready := k.w.group, k.ready()
	if ready > 0 {
		k.told, k.toldAt = true, time.Now()
	}
	k.w.mu.Unlock()
	if ready > 0 {
		k.w.log.Info("standbys are up to date, asking the group for their subtasks", "standbys", ready)
		group.Rejoin()
	}
}

// ready is how many standbys wait to be told of; Worker.mu is held.
func (k *keeper) ready() (ready int) {
	if k.w.group == nil || k.w.stopping || k.told && time.Since(k.toldAt) < tellAgain {
		return 0
	}
	for _, s := range k.standbys {
		switch warm, st := s.warming(); {
		case !warm || st == StandbyBackingOff:
		case s.upToDate():
			ready++
		default:
			return 0
		}
	}
	return ready
}

// clean removes states that nobody has used here for a while, and that another member owns: they can be restored. It is
// the janitor's.
func (k *keeper) clean() {
	w := k.w
	for _, c := range k.stale(time.Now()) {
		err := w.opts.Dir.Wipe(w.identity(c.id))
		w.mu.Lock()
		if err == nil && k.ending[c.id] == c {
			delete(k.held, c.id)
		}
		w.mu.Unlock()
		close(c.done)
		if err != nil {
			c.log.Warn("remove the state of a subtask that is not ours any more", "error", err)
			continue
		}
		c.log.Info("state removed: the subtask is not ours any more", "unused_for", w.opts.CleanupDelay)
	}
}

// stale lists the states to be removed. Until their done is closed nobody opens them.
func (k *keeper) stale(now time.Time) []*subtask {
	w := k.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopping || w.opts.CleanupDelay <= 0 {
		return nil
	}
	var out []*subtask
	for id, since := range k.held {
		own := w.subtasks[id]
		switch before := k.ending[id]; {
		case k.standbys[id] != nil, own != nil && !own.finished(), before != nil && !before.finished():
			k.held[id] = time.Time{}
		case since.IsZero():
			k.held[id] = now
		case now.Sub(since) < w.opts.CleanupDelay, w.owners[id].Member == "", w.owners[id].Member == w.opts.Kafka.InstanceID:
		default:
			c := newSubtask(w, id, &totals{}, nil)
			c.cancel(errDropped)
			k.ending[id] = c
			out = append(out, c)
		}
	}
	return out
}

// giveWay waits while subtasks of this worker are taken over, so that a restart is not slower for its standbys; but not
// for long ones, since a standby may be the next owner of somebody else's.
func (k *keeper) giveWay(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, giveWayFor)
	defer cancel()
	tick := time.NewTicker(giveWayTick)
	defer tick.Stop()
	for k.takesOver() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

const (
	giveWayFor  = 5 * time.Second
	giveWayTick = 20 * time.Millisecond
)

func (k *keeper) takesOver() bool {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	for _, s := range k.w.subtasks {
		s.mu.Lock()
		busy := s.state == SubtaskFencing || s.state == SubtaskRestoring
		s.mu.Unlock()
		if busy && !s.letGo() {
			return true
		}
	}
	return false
}

// status lists the standbys, sorted; Worker.mu is held.
func (k *keeper) status() []StandbyStatus {
	var out []StandbyStatus
	for _, s := range k.standbys {
		out = append(out, s.status())
	}
	slices.SortFunc(out, func(a, b StandbyStatus) int {
		return recordID(a.ID).Compare(recordID(b.ID))
	})
	return out
}

// identity is whose state the store of a subtask is.
func (w *Worker) identity(id record.SubtaskID) statestore.Identity {
	out := statestore.Identity{App: w.opts.Kafka.AppID, ClusterID: w.cluster.ID(), Incarnation: w.topo.incarnation, Subtask: id.String()}
	for _, c := range w.topo.subs[id.SubTopology].changelogs {
		out.Changelogs = append(out.Changelogs, txn.TopicIDString(w.topicIDs[c]))
	}
	return out
}

func recordID(s string) record.SubtaskID {
	id, _ := record.ParseSubtaskID(s)
	return id
}

// StandbyState is the life of a standby.
//
//	restoring -> following
//	   ^__ backing-off <- any
type StandbyState string

// The states of a standby.
const (
	StandbyRestoring  StandbyState = "restoring"
	StandbyFollowing  StandbyState = "following" // it reads the changelog as it grows
	StandbyBackingOff StandbyState = "backing-off"
)

// StandbyStatus is a snapshot of one standby: the copy of a state whose subtask another member owns.
type StandbyStatus struct {
	ID         string         `json:"id"`
	State      StandbyState   `json:"state"`
	Error      string         `json:"error,omitempty"` // why it backs off
	WarmUp     bool           `json:"warm_up"`         // the subtask is to move here once the state is up to date
	Epoch      uint64         `json:"epoch"`           // the newest that it has
	Lag        int64          `json:"lag"`             // changelog records behind, markers of transactions included; -1 = not known yet
	Records    int64          `json:"records"`         // changelog records applied since the restore
	StoreBytes int64          `json:"store_bytes"`
	Restore    *RestoreStatus `json:"restore,omitempty"` // while restoring
}

// standby keeps the state of one subtask up to date. Its goroutine restores it as a takeover does, and then follows the
// changelog: the store moves from epoch record to epoch record (I1), in batches.
type standby struct {
	k   *keeper
	sub *subtask // what a takeover needs of one; it never runs
	log *slog.Logger

	mu      sync.Mutex
	state   StandbyState
	warm    bool
	lastErr error
	epoch   uint64
	behind  int64 // changelog records; -1 = not known
	records int64 // applied since it follows
	bytes   int64 // of the store
}

func newStandby(k *keeper, id record.SubtaskID, before *subtask, warm bool) *standby {
	s := &standby{k: k, sub: newSubtask(k.w, id, &totals{}, before), state: StandbyRestoring, warm: warm, behind: -1}
	s.sub.log = s.sub.log.With("standby", true)
	s.log = s.sub.log
	return s
}

func (s *standby) setWarmUp(warm bool) {
	s.mu.Lock()
	s.warm = warm
	s.mu.Unlock()
}

func (s *standby) warming() (bool, StandbyState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.warm, s.state
}

// lag is how many records the state is behind, as well as it is known.
func (s *standby) lag() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == StandbyFollowing {
		return s.behind
	}
	s.sub.mu.Lock()
	defer s.sub.mu.Unlock()
	if r := s.sub.restore; r != nil && r.Records > 0 {
		return r.Remaining
	}
	return -1
}

func (s *standby) upToDate() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == StandbyFollowing && s.behind >= 0 && s.behind <= txn.AcceptableLag
}

func (s *standby) setState(st StandbyState, err error) {
	s.mu.Lock()
	s.state, s.lastErr = st, err
	s.mu.Unlock()
	s.sub.mu.Lock()
	s.sub.restore, s.sub.told = nil, time.Time{}
	s.sub.mu.Unlock()
}

func (s *standby) status() StandbyStatus {
	lag := s.lag()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := StandbyStatus{ID: s.sub.id.String(), State: s.state, WarmUp: s.warm, Epoch: s.epoch, Lag: lag, Records: s.records, StoreBytes: s.bytes}
	if s.lastErr != nil {
		out.Error = s.lastErr.Error()
	}
	s.sub.mu.Lock()
	defer s.sub.mu.Unlock()
	if s.sub.restore != nil {
		r := *s.sub.restore
		out.Restore = &r
	}
	return out
}

// run is the standby's goroutine. What fails is tried again for as long as the standby is wanted: it is nobody's only
// copy, so it never stops the worker.
func (s *standby) run() {
	sub := s.sub
	defer close(sub.done)
	defer sub.cancel(errDropped)
	if sub.prev != nil {
		<-sub.prev.done
		sub.prev = nil
	}
	for attempt := 1; sub.ctx.Err() == nil; attempt++ {
		followed, err := s.life(sub.ctx)
		if sub.ctx.Err() != nil {
			return
		}
		if followed {
			attempt = 1
		}
		sub.wipe = errors.Is(err, statestore.ErrCorrupt) || errors.Is(err, txn.ErrStateAhead) && attempt >= standbyAttempts
		wait := backoff(attempt, s.k.w.opts.BackoffMin, s.k.w.opts.BackoffMax)
		s.log.Warn("standby starts again", "attempt", attempt, "wait", wait, "error", err)
		s.setState(StandbyBackingOff, err)
		select {
		case <-sub.ctx.Done():
		case <-time.After(wait):
		}
	}
}

// life is one attempt. followed says that it got as far as to follow the changelog.
func (s *standby) life(ctx context.Context) (followed bool, err error) {
	l := &life{s: s.sub, w: s.k.w, log: s.log}
	s.setState(StandbyRestoring, nil)
	defer l.closeStore()
	s.k.giveWay(ctx)
	select {
	case s.k.restores <- struct{}{}:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	err = s.restore(ctx, l)
	<-s.k.restores
	if err != nil {
		if l.store != nil && ctx.Err() != nil {
			// What was read so far is whole as far as it goes; the takeover goes on from there.
			if ferr := l.store.Flush(); ferr != nil {
				s.log.Warn("flush the store of a standby that ends", "error", ferr)
			}
		}
		return false, err
	}
	return true, s.follow(ctx, l)
}

func (s *standby) restore(ctx context.Context, l *life) (err error) {
	if l.topics, err = l.sameTopics(ctx); err != nil {
		return err
	}
	_, err = l.restore(ctx)
	return err
}

// follow reads the changelog from where the restore ended, until ctx ends: what was read by then goes to the disk.
func (s *standby) follow(ctx context.Context, l *life) error {
	meta, ok := l.store.Meta()
	if !ok {
		return fmt.Errorf("%w: the store of subtask %s is empty after its restore", statestore.ErrCorrupt, s.sub.id)
	}
	sub := s.sub.sub
	f := &follower{s: s, l: l, fold: newFold(sub.changelogs, s.sub.id.Index, meta.Positions, meta.Epoch), meta: meta,
		horizons: map[statestore.ID]int64{}, flushed: time.Now()}
	f.meta.Positions = slices.Clone(meta.Positions)
	f.batch = l.store.NewBatch()
	defer func() { f.batch.Discard() }()
	in := newInbox()
	index, at := map[record.TopicPartition]int{}, map[record.TopicPartition]int64{}
	var tps []record.TopicPartition
	for i, c := range sub.changelogs {
		tp := record.TopicPartition{Topic: c, Partition: int32(s.sub.id.Index)}
		index[tp], at[tp] = i, max(meta.Positions[i], 0)
		tps = append(tps, tp)
	}
	s.k.poll.add(at, in)
	defer s.k.poll.remove(tps, in)
	f.publish(in, tps)
	s.setState(StandbyFollowing, nil)
	s.log.Info("standby follows", "epoch", meta.Epoch)
	tick := time.NewTicker(idleTick)
	defer tick.Stop()
	for {
		ended := ctx.Err() != nil
		batches, resume, err := in.take(0)
		if resume {
			s.k.poll.resume(tps, in)
		}
		for _, b := range batches {
			if err := f.fold.add(index[b.TopicPartition], b.Records); err != nil {
				return err
			}
		}
		if ferr := f.apply(); ferr != nil {
			return ferr
		}
		if err != nil || ended || f.dirty && time.Since(f.flushed) >= l.w.opts.WriteBehindInterval {
			if err := f.flush(); err != nil {
				return err
			}
		}
		f.publish(in, tps)
		if err != nil || ended {
			return err
		}
		if warm, _ := s.warming(); warm {
			s.k.tell()
		}
		select {
		case <-in.ready:
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// follower is the state of one run of follow.
type follower struct {
	s    *standby
	l    *life
	fold *fold

	batch    statestore.Batch
	meta     statestore.Meta // of what is in the store and in batch
	rec      *txn.EpochRecord
	horizons map[statestore.ID]int64 // up to which windows were removed
	dirty    bool                    // batch has something that the store has not
	flushed  time.Time
}

// apply moves whole epochs into the batch, and the batch into the store when it is large.
func (f *follower) apply() error {
	for {
		parts, ok := f.fold.next()
		if !ok {
			break
		}
		for i, p := range parts {
			if p != nil {
				if err := f.take(i, p); err != nil {
					return err
				}
			}
		}
		if f.batch.Len() >= restoreBatchBytes {
			if err := f.flush(); err != nil {
				return err
			}
		}
	}
	if f.fold.bytes < restoreBatchBytes {
		return nil
	}
	// An epoch that is too large to wait for its end goes in pieces, as in a restore: the store is what the positions beside
	// it say, and whole again with the epoch record.
	for i, parts := range f.fold.takeOpen() {
		for j := range parts {
			if err := f.take(i, &parts[j]); err != nil {
				return err
			}
		}
	}
	return f.flush()
}

func (f *follower) take(changelog int, p *foldPart) error {
	if p.rec != nil && p.rec.Incarnation != f.l.incarnation {
		return fatalf("changelog %s/%d holds epoch %d of incarnation %d, but the app is in incarnation %d",
			f.fold.logs[changelog].topic, f.s.sub.id.Index, p.rec.Epoch, p.rec.Incarnation, f.l.incarnation)
	}
	for _, c := range p.changes {
		if c.value == nil {
			f.batch.Delete(c.key)
		} else {
			f.batch.Set(c.key, c.value)
		}
	}
	f.meta.Positions[changelog] = p.next
	if p.rec != nil && p.rec.Epoch >= f.meta.Epoch {
		f.rec, f.meta.Epoch, f.meta.EpochRecord = p.rec, p.rec.Epoch, p.raw
	}
	f.dirty = true
	f.s.mu.Lock()
	f.s.records += int64(len(p.changes))
	f.s.mu.Unlock()
	return nil
}

// flush makes durable what was applied.
func (f *follower) flush() error {
	f.flushed = time.Now()
	if !f.dirty {
		return nil
	}
	for i := range f.meta.Positions {
		if at, ok := f.fold.idle(i); ok {
			f.meta.Positions[i] = max(f.meta.Positions[i], at)
		}
	}
	if f.rec != nil {
		// Windows that closed have no tombstones: the epoch record says what is gone.
		for _, h := range f.rec.Horizons {
			if done, ok := f.horizons[h.Store]; ok && done >= h.End {
				continue
			}
			f.horizons[h.Store] = h.End
			lo, hi := statestore.WindowRange(h.Store, h.End)
			f.batch.DeleteRange(lo, hi)
		}
	}
	m := f.meta
	m.Positions = slices.Clone(m.Positions)
	if err := f.batch.Commit(m); err != nil {
		return fmt.Errorf("write changes to the store of standby %s: %w", f.s.sub.id, err)
	}
	f.batch, f.dirty = f.l.store.NewBatch(), false
	if err := f.l.store.Flush(); err != nil {
		return fmt.Errorf("flush the store of standby %s: %w", f.s.sub.id, err)
	}
	return nil
}

// publish shows how far the standby is.
func (f *follower) publish(in *inbox, tps []record.TopicPartition) {
	var behind int64
	for i, tp := range tps {
		if stable, ok := in.lastStable(tp); ok {
			at := f.meta.Positions[i]
			if idle, ok := f.fold.idle(i); ok {
				at = max(at, idle)
			}
			behind += max(stable-at, 0)
		}
	}
	s := f.s
	s.mu.Lock()
	s.epoch, s.behind, s.bytes = f.meta.Epoch, behind, f.l.store.Size()
	s.mu.Unlock()
}
