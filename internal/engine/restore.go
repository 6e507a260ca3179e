package engine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/internal/failpoint"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/txn"
)

// takeover makes the subtask ours and ready, in the order that design asks for: InitProducerID, which fences the old
// owner and ends its open transaction at once; our own stable OffsetFetch; restore to the high watermark taken then; a
// claim epoch; and only then fetching, at our offsets.
func (l *life) takeover() error {
	s := l.s
	s.setState(SubtaskFencing, nil)
	ctx, cancel := l.takeoverContext()
	defer cancel()

	if _, ok := l.w.ownership(s.id); !ok {
		return errDropped
	}
	fctx, fcancel := context.WithTimeout(ctx, fenceTimeout)
	producer, err := l.w.cluster.OpenProducer(fctx, s.id, s.producerTopics(), l.own)
	fcancel()
	if err != nil {
		return fmt.Errorf("fence the former owner of subtask %s: %w", s.id, err)
	}
	l.producer = producer
	if err := l.enter(ctx); err != nil {
		return err
	}
	if l.topics, err = l.sameTopics(ctx); err != nil {
		return err
	}

	l.tps = l.w.topo.subtaskInputs(s.id)
	l.index = map[record.TopicPartition]int{}
	for i, in := range s.sub.inputs {
		for _, p := range partitionsOf(s.id.Index, s.sub.parallelism, in.partitions) {
			l.index[record.TopicPartition{Topic: in.topic, Partition: p}] = i
		}
	}
	octx, ocancel := context.WithTimeout(ctx, fenceTimeout)
	committed, err := l.w.cluster.CommittedOffsets(octx, "", l.tps)
	ocancel()
	if err != nil {
		return fmt.Errorf("fetch the committed offsets of subtask %s: %w", s.id, err)
	}

	s.setState(SubtaskRestoring, nil)
	rec, err := l.restore(ctx)
	if err != nil {
		return err
	}
	var progress *task.Progress
	var offsets map[record.TopicPartition]int64
	if rec == nil && l.w.origin != "" {
		rec, progress, offsets, err = l.first(ctx)
	} else {
		l.begun = addHandles(nil, rec)
		progress, offsets, err = l.reconcile(ctx, rec, committed)
	}
	last := s.mismatch
	s.mismatch = nil
	if errors.As(err, &s.mismatch) {
		return confirmed(last, s.mismatch)
	}
	if err != nil {
		return err
	}
	if err := l.build(ctx, rec, progress); err != nil {
		return err
	}
	if err := l.begin(ctx); err != nil {
		return err
	}
	l.offsets = committed
	if err := l.claim(offsets); err != nil {
		return err
	}
	s.mu.Lock()
	s.inbox, s.restore, s.state, s.lastErr = l.inbox, nil, SubtaskRunning, nil
	s.mu.Unlock()
	if rec != nil && failpoint.Planted(failpoint.StartOffset) {
		for tp, off := range offsets {
			offsets[tp] = off + 1
		}
	}
	l.added = true
	l.fetch(offsets)
	l.log.Info("subtask runs", "epoch", l.epoch)
	return nil
}

func (l *life) own() (txn.Ownership, bool) {
	o, ok := l.w.ownership(l.s.id)
	l.s.word = o
	return o, ok
}

// sameTopics describes the topics of the subtask, and refuses to go on with some that were deleted and created again (I5).
// The janitor would notice too, but later: the changelog of another topic must not be folded into the store, nor a new
// output be written.
func (l *life) sameTopics(ctx context.Context) (map[string]txn.TopicInfo, error) {
	names := slices.Clone(l.s.sub.changelogs)
	for _, in := range l.s.sub.inputs {
		names = append(names, in.topic)
	}
	for _, out := range l.s.sub.outputs {
		names = append(names, out.topic)
	}
	ctx, cancel := context.WithTimeout(ctx, fenceTimeout)
	defer cancel()
	infos, err := l.w.cluster.Topics(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("verify the topics of subtask %s: %w", l.s.id, err)
	}
	was, now := map[string]string{}, map[string]string{}
	for name, info := range infos {
		if id, ok := l.w.topicIDs[name]; ok {
			was[name], now[name] = txn.TopicIDString(id), txn.TopicIDString(info.ID)
		}
	}
	return infos, sameTopics(was, now)
}

// takeoverContext ends with the subtask, or when it is asked to let go: a restore is not worth finishing then.
func (l *life) takeoverContext() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(l.s.ctx)
	stop := make(chan struct{})
	go func() {
		select {
		case <-l.s.releasing:
			cancel(errReleased)
		case <-stop:
		case <-ctx.Done():
		}
	}()
	return ctx, func() { close(stop); cancel(nil) }
}

// restore brings the local store up to the end of the changelog, by the cheapest usable way: what is on disk plus the
// tail, else the changelog from its start. It returns the newest epoch record, nil if there is none.
func (l *life) restore(ctx context.Context) (*txn.EpochRecord, error) {
	s := l.s
	l.incarnation = l.w.topo.incarnation
	l.identity = statestore.Identity{App: l.w.opts.Kafka.AppID, ClusterID: l.w.cluster.ID(), Incarnation: l.incarnation, Subtask: s.id.String()}
	for _, c := range s.sub.changelogs {
		l.identity.Changelogs = append(l.identity.Changelogs, txn.TopicIDString(l.w.topicIDs[c]))
	}
	if s.wipe {
		if err := l.quarantine(errors.New("it was found damaged while it was in use")); err != nil {
			return nil, err
		}
		s.wipe = false
	}
	local, err := l.openLocal()
	if err != nil {
		return nil, err
	}
	options, err := l.options(ctx, local)
	if err != nil {
		return nil, err
	}
	aside := false // the local store is not to be lost
	usable := options[:0:0]
	for _, o := range options {
		switch {
		case o.Refused == "":
			usable = append(usable, o)
		case o.Way == checkpoint.FromLocal && o.Ahead:
			return nil, fmt.Errorf("restore subtask %s: its local store: %s: %w", s.id, o.Refused, txn.ErrStateAhead)
		default:
			aside = aside || o.Quarantine
			l.noteAhead(o)
			l.log.Warn("state cannot be restored this way", "way", o.String())
		}
	}
	for _, o := range usable {
		rec, err := l.restoreFrom(ctx, o, aside)
		var stale *txn.StaleError
		switch {
		case err == nil:
			return rec, nil
		case o.Way == checkpoint.FromChangelog, ctx.Err() != nil, txn.IsFatal(err):
			return nil, err
		case o.Way == checkpoint.FromCheckpoint, errors.Is(err, statestore.ErrCorrupt), errors.As(err, &stale):
			l.log.Warn("state could not be restored this way; trying the next", "way", o.String(), "error", err)
			o.Ahead = errors.Is(err, errOtherHistory)
			l.noteAhead(o)
			aside = o.Way == checkpoint.FromLocal && errors.Is(err, statestore.ErrCorrupt)
		default:
			return nil, err
		}
	}
	return nil, fatalf("restore subtask %s: there is no way left: %s", s.id, options[0])
}

// openLocal opens the store on this machine's disk; nil is an empty one.
func (l *life) openLocal() (*checkpoint.Local, error) {
	store, err := l.w.opts.Dir.Open(l.identity)
	if errors.Is(err, statestore.ErrCorrupt) {
		return &checkpoint.Local{Err: err}, nil
	}
	if err != nil {
		return nil, err
	}
	l.store = store
	meta, ok := store.Meta()
	if !ok {
		return nil, nil
	}
	if meta.Epoch == 0 && !slices.ContainsFunc(meta.Positions, func(at int64) bool { return at >= 0 }) {
		// It was made of a savepoint by an owner that did not get as far as to claim the subtask, and holds what the
		// changelog up to its positions does not.
		return nil, l.clear()
	}
	at, err := wallTime(meta.EpochRecord)
	if err != nil {
		err = fmt.Errorf("%w: epoch record in the store of subtask %s: %w", statestore.ErrCorrupt, l.s.id, err)
	}
	return &checkpoint.Local{Meta: meta, WallTime: at, Err: err}, nil
}

// longTail is the changelog tail, in records, from which on a checkpoint is looked for though there is a local store.
const longTail = 200_000

// options are the ways of restoring, the best first. Checkpoints are looked for only if they can be better.
func (l *life) options(ctx context.Context, local *checkpoint.Local) ([]checkpoint.Option, error) {
	v := checkpoint.View{Now: time.Now().UnixMilli(), Identity: l.identity, Local: local, Reads: l.w.opts.Dir.Reads}
	var tps []record.TopicPartition
	for _, c := range l.s.sub.changelogs {
		tps = append(tps, record.TopicPartition{Topic: c, Partition: int32(l.s.id.Index)})
	}
	low, err := l.w.cluster.StartOffsets(ctx, tps)
	if err != nil {
		return nil, err
	}
	high, err := l.w.cluster.EndOffsets(ctx, tps)
	if err != nil {
		return nil, err
	}
	for _, tp := range tps {
		v.Changelogs = append(v.Changelogs, checkpoint.Changelog{Topic: tp.Topic, Low: low[tp], High: high[tp],
			DeleteRetention: time.Duration(l.topics[tp.Topic].DeleteRetentionMs) * time.Millisecond})
	}
	options := checkpoint.Resolve(v)
	first := options[0]
	l.view = v
	o := l.w.opts.Checkpoints
	if o.Blobs == nil || len(l.s.sub.plan.Stores) == 0 || !o.Prefer && first.Refused == "" && first.Records <= shortTail(first.Way) {
		return options, nil
	}
	fctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	v.Checkpoints, v.FindErr = checkpoint.Find(fctx, o.Blobs, l.identity)
	l.view, l.found = v, v.FindErr == nil
	options = checkpoint.Resolve(v)
	if o.Prefer {
		slices.SortStableFunc(options, func(a, b checkpoint.Option) int {
			return cmp.Compare(preference(a), preference(b))
		})
	}
	return options, nil
}

func preference(o checkpoint.Option) int {
	if o.Refused == "" && o.Way == checkpoint.FromCheckpoint {
		return 0
	}
	return 1
}

// findTimeout bounds the search for checkpoints: when the object storage does not answer, the changelog does.
const findTimeout = 30 * time.Second

// shortTail is up to how many changelog records it is not worth to look for a checkpoint.
func shortTail(w checkpoint.Way) int64 {
	if w == checkpoint.FromLocal {
		return longTail
	}
	return longTail / 10
}

// restoreFrom prepares the store as o says, and reads the changelog's tail into it; aside keeps the local store.
func (l *life) restoreFrom(ctx context.Context, o checkpoint.Option, aside bool) (*txn.EpochRecord, error) {
	started := time.Now()
	if aside && o.Way != checkpoint.FromLocal {
		if err := l.quarantine(errors.New("it cannot be used")); err != nil {
			return nil, err
		}
	}
	switch o.Way {
	case checkpoint.FromLocal:
		if l.store == nil { // a checkpoint was tried before
			store, err := l.w.opts.Dir.Open(l.identity)
			if err != nil {
				return nil, err
			}
			l.store = store
		}
	case checkpoint.FromCheckpoint:
		l.log.Info("restoring from a checkpoint", "epoch", o.Epoch, "bytes", o.Bytes, "changelog_records", o.Records)
		if err := l.download(ctx, o, started); err != nil {
			return nil, err
		}
	case checkpoint.FromChangelog:
		if err := l.clear(); err != nil {
			return nil, err
		}
	default:
		return nil, fatalf("restore subtask %s: %s is not known here", l.s.id, o.Way)
	}
	bulk, end, err := l.bulk(ctx, o, started)
	if err != nil {
		return nil, err
	}
	defer end()
	return l.readTail(ctx, o.Way, started, bulk)
}

// download puts a checkpoint in the place of the local store.
func (l *life) download(ctx context.Context, o checkpoint.Option, started time.Time) error {
	l.closeStore()
	opts := checkpoint.RestoreOptions{Slots: l.w.downloads, Behind: l.producer == nil, Progress: func(done, total int64) {
		l.progress(&RestoreStatus{Way: o.Way.String(), Downloaded: done, Download: total, Remaining: o.Records, Started: started,
			EtaMs: eta(time.Since(started), done, total-done)})
	}}
	if err := checkpoint.Restore(ctx, l.w.opts.Checkpoints.Blobs, o.Manifest, l.w.opts.Dir, opts); err != nil {
		return fmt.Errorf("download the checkpoint of epoch %d: %w", o.Epoch, err)
	}
	store, err := l.w.opts.Dir.Open(l.identity)
	if err != nil {
		return err
	}
	l.store = store
	return nil
}

// clear makes the local store empty.
func (l *life) clear() error {
	if l.store != nil {
		if _, ok := l.store.Meta(); !ok {
			return nil
		}
	}
	l.closeStore()
	if err := l.w.opts.Dir.Wipe(l.identity); err != nil {
		return fmt.Errorf("remove the unusable store of subtask %s: %w", l.s.id, err)
	}
	store, err := l.w.opts.Dir.Open(l.identity)
	if err != nil {
		return err
	}
	l.store = store
	return nil
}

// quarantine puts the local store out of the way, where people can look at it.
func (l *life) quarantine(why error) error {
	l.closeStore()
	where, err := l.w.opts.Dir.Quarantine(l.identity)
	if err != nil {
		return fmt.Errorf("put the local store of subtask %s aside: %w", l.s.id, err)
	}
	if where != "" {
		l.log.Warn("the local store was put aside and is made anew; remove it when nobody wants to look at it", "reason", why, "where", where)
	}
	return nil
}

func (l *life) closeStore() {
	if l.store == nil {
		return
	}
	if err := l.store.Close(); err != nil {
		l.log.Warn("close the store that is about to be replaced", "error", err)
	}
	l.store = nil
}

// progress shows how far a restore is, in the status, and now and then in the log.
func (l *life) progress(r *RestoreStatus) {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restore = r
	if now := time.Now(); now.Sub(s.told) >= tellEvery {
		if !s.told.IsZero() || now.Sub(r.Started) >= tellEvery {
			l.log.Info("restoring", "way", r.Way, "downloaded", r.Downloaded, "of", r.Download, "records", r.Records, "bytes", r.Bytes,
				"remaining_records", r.Remaining, "eta_ms", r.EtaMs)
			s.told = now
		}
	}
}

// tellEvery is how often a long restore is told in the log.
const tellEvery = 10 * time.Second

// restoreBatchBytes is the size at which a restore batch is committed.
const restoreBatchBytes = 8 << 20

// readTail reads the changelog from where the store is to its end, in bulk if bulk makes one, else in batches. It returns the
// newest epoch record, nil if there is none.
func (l *life) readTail(ctx context.Context, way checkpoint.Way, started time.Time, bulk func() statestore.Bulk) (*txn.EpochRecord, error) {
	s, store := l.s, l.store
	l.positions = make([]int64, len(s.sub.changelogs))
	for i := range l.positions {
		l.positions[i] = -1
	}
	var rec *txn.EpochRecord
	meta, ok := store.Meta()
	s.fromDisk = ok
	raw := meta.EpochRecord
	var err error
	if ok {
		if rec, err = txn.DecodeEpochRecord(raw); err != nil {
			return nil, fmt.Errorf("%w: epoch record in the store of subtask %s: %w", statestore.ErrCorrupt, s.id, err)
		}
		copy(l.positions, meta.Positions)
		if rec.Epoch == 0 {
			rec = nil
		}
	} else {
		// Until the changelog brings one, a record of epoch 0 tells how old a restore is that was cut off.
		raw = (&txn.EpochRecord{Incarnation: l.incarnation, Owner: l.w.opts.Kafka.InstanceID, WallTime: started.UnixMilli()}).Append(nil)
	}
	var records, size int64
	l.progress(&RestoreStatus{Way: way.String(), Started: started, EtaMs: -1})

	w := newTail(store, bulk)
	defer w.discard()
	// What is on disk is always the fold of the changelog up to the positions beside it, so a restore that was cut off
	// goes on where it was.
	flush := func(commit func(statestore.Meta) error) error {
		m := statestore.Meta{EpochRecord: raw, Positions: append([]int64(nil), l.positions...)}
		if rec != nil {
			m.Epoch = rec.Epoch
		}
		return commit(m)
	}
	metaKey := statestore.MetaKey()
	apply := func(changelog int, offset int64, key, value []byte) error {
		l.positions[changelog] = offset + 1
		if bytes.Equal(key, metaKey) {
			r, err := txn.DecodeEpochRecord(value)
			if err != nil {
				return fmt.Errorf("read changelog %s/%d at offset %d: %w", s.sub.changelogs[changelog], s.id.Index, offset, err)
			}
			if rec == nil || r.Epoch >= rec.Epoch {
				rec, raw = r, value
			}
		} else if !ok || !failpoint.Planted(failpoint.SkipTail) {
			w.put(key, value)
		}
		if w.full() {
			return flush(w.commit)
		}
		return nil
	}
	var verify func([][]byte, bool) error
	if rec != nil {
		epoch, madeOf := rec.Epoch, raw
		verify = func(found [][]byte, blind bool) error { return sameHistory(epoch, madeOf, found, blind) }
	}
	end, err := l.w.cluster.ReadChangelog(ctx, txn.ChangelogRead{
		Topics: s.sub.changelogs, Partition: int32(s.id.Index), From: append([]int64(nil), l.positions...), Verify: verify,
		Progress: func(r, b, remaining int64) {
			records, size = r, b
			l.progress(&RestoreStatus{Way: way.String(), Records: records, Bytes: size, Remaining: remaining, Started: started, EtaMs: eta(time.Since(started), records, remaining)})
		},
	}, apply)
	if err != nil {
		return nil, err
	}
	if rec != nil {
		if rec.Incarnation != l.incarnation {
			return nil, fatalf("changelog %s/%d holds epoch %d of incarnation %d, but the app is in incarnation %d", s.sub.changelogs[0], s.id.Index, rec.Epoch, rec.Incarnation, l.incarnation)
		}
	}
	if err := flush(w.endBulk); err != nil {
		return nil, err
	}
	// The end is behind the marker of the last transaction, so that after a crash here it is reached once more.
	moved := !slices.Equal(l.positions, end.Positions)
	copy(l.positions, end.Positions)
	if rec != nil {
		// Windows that closed have no tombstones: the epoch record says what is gone.
		for _, h := range rec.Horizons {
			lo, hi := statestore.WindowRange(h.Store, h.End)
			w.batch.DeleteRange(lo, hi)
		}
	}
	if moved || records > 0 || !ok {
		if err := flush(w.commit); err != nil {
			return nil, err
		}
		if err := store.Flush(); err != nil {
			return nil, err
		}
	}
	if records > 0 || way == checkpoint.FromCheckpoint {
		l.log.Info("state restored", "records", records, "bytes", size, "took", time.Since(started).Round(time.Millisecond), "way", way.String())
	}
	l.w.opts.Observer.RestoreDone(s.id, way.String(), records, size, time.Since(started))
	return rec, nil
}

// eta extrapolates the time left, in ms; -1 = unknown.
func eta(elapsed time.Duration, done, remaining int64) int64 {
	if done <= 0 {
		return -1
	}
	return int64(float64(elapsed.Milliseconds()) / float64(done) * float64(remaining))
}

// reconcile decides where every partition goes on (I2): where the last epoch record says, which must be where the
// group's committed offsets are; a partition that neither knows begins at its source's start position.
func (l *life) reconcile(ctx context.Context, rec *txn.EpochRecord, committed map[record.TopicPartition]int64) (*task.Progress, map[record.TopicPartition]int64, error) {
	s := l.s
	known, listed := map[record.TopicPartition]int64{}, map[record.TopicPartition]bool{}
	if rec != nil {
		for _, p := range rec.Inputs {
			listed[record.TopicPartition{Topic: p.Topic, Partition: p.Partition}] = true
			l.sawTopic(p.Topic)
			if p.Offset >= 0 {
				known[record.TopicPartition{Topic: p.Topic, Partition: p.Partition}] = p.Offset
			}
		}
	}
	offsets := map[record.TopicPartition]int64{}
	var unknown []record.TopicPartition
	for _, tp := range l.tps {
		group, state := committed[tp], int64(-1)
		if v, ok := known[tp]; ok {
			state = v
		}
		switch {
		case group == state && group >= 0:
			offsets[tp] = group
		case group < 0 && state < 0:
			unknown = append(unknown, tp)
		case group >= 0 && rec == nil && l.asksOwnGroup(tp):
			offsets[tp] = group // committed by who had the group's name before; a changelog that is gone is known by the ids of topics
		case group >= 0 && !listed[tp] && (rec != nil || s.sub.inputs[l.index[tp]].moved):
			offsets[tp] = group // the state was never made from it: another topology read it here, or another sub-topology
		case l.w.opts.StartOffsets == "state" && state >= 0:
			offsets[tp] = state
		case l.w.opts.StartOffsets == "group" && group >= 0:
			l.log.Warn("going on where the group is, as start.offsets=group says", "partition", tp, "group", group, "state", offsetText(state))
			offsets[tp] = group
		default:
			return nil, nil, &mismatchError{tp: tp, group: group, state: state}
		}
	}
	if len(unknown) > 0 {
		starts, err := l.startOffsets(ctx, unknown)
		if err != nil {
			return nil, nil, err
		}
		for tp, off := range starts {
			offsets[tp] = off
		}
	}
	if err := l.skipDeleted(ctx, offsets); err != nil {
		return nil, nil, err
	}
	if rec != nil && failpoint.Planted(failpoint.WatermarkForgotten) {
		forgotten := *rec
		forgotten.Watermarks = nil
		forgotten.Inputs = nil
		return progressOf(s.sub, &forgotten, l.index, offsets), offsets, nil
	}
	return progressOf(s.sub, rec, l.index, offsets), offsets, nil
}

// asksOwnGroup says that a source begins where the group of the app is.
func (l *life) asksOwnGroup(tp record.TopicPartition) bool {
	st := l.s.sub.plan.Inputs[l.index[tp]].Start
	return st.Kind == task.StartGroup && l.group(st.Group) == l.w.opts.Kafka.AppID
}

// mismatchError says that the group's offset of a partition and the state's differ (I2).
type mismatchError struct {
	tp           record.TopicPartition
	group, state int64 // -1 = absent
}

func (e *mismatchError) Error() string {
	return fmt.Sprintf("%s: the group's committed offset is %s, but the state was made up to %s; somebody reset the group or removed the changelog. Set start.offsets=state to go on where the state is, or start.offsets=group to go on where the group is",
		e.tp, offsetText(e.group), offsetText(e.state))
}

// confirmed decides whether a mismatch met by a takeover stops the worker (pure); last is that of the takeover before,
// nil if it met none. Once proves nothing: another owner may have taken over and committed after we asked for the
// offsets and before we read the changelog. It stands still only if nobody commits, so the same mismatch twice is one
// that a person has made.
func confirmed(last, met *mismatchError) error {
	if last != nil && *last == *met {
		return &fatalError{met}
	}
	return met
}

func offsetText(off int64) string {
	if off < 0 {
		return "absent"
	}
	return fmt.Sprint(off)
}

// sawTopic notes that the state was made from a topic, or would have been had there been records.
func (l *life) sawTopic(topic string) {
	if l.saw == nil {
		l.saw = map[string]bool{}
	}
	l.saw[topic] = true
}

// start is where partitions of an input begin that neither the state nor the group knows. Of those that came while the app
// was reading already, partitions of a topic and topics of a pattern, nothing may be missed.
func (l *life) start(i int) task.Start {
	in := l.s.sub.plan.Inputs[i]
	st := in.Start
	reading := slices.ContainsFunc(l.s.sub.plan.Inputs, func(x task.Input) bool {
		return l.saw[x.Topic] && (x.Topic == in.Topic || in.Pattern != "" && x.Pattern == in.Pattern)
	})
	switch {
	case !reading:
	case st.Kind == task.StartLatest, st.Kind == task.StartTimestamp:
		st = task.Start{Kind: task.StartEarliest}
	case st.Kind == task.StartGroup:
		st.Else = task.StartEarliest
	}
	return st
}

// startOffsets asks where sources begin.
func (l *life) startOffsets(ctx context.Context, tps []record.TopicPartition) (map[record.TopicPartition]int64, error) {
	out := map[record.TopicPartition]int64{}
	for i, tps := range l.byInput(tps) {
		st := l.start(i)
		offs, err := StartPositions(ctx, l.w.cluster, l.w.opts.Kafka.AppID, st, tps)
		if err != nil {
			return nil, fmt.Errorf("find the start offsets of subtask %s: %w", l.s.id, err)
		}
		for _, tp := range tps {
			off, ok := offs[tp]
			if !ok {
				return nil, fmt.Errorf("find the start offset of %s: the broker did not name one", tp)
			}
			out[tp] = off
		}
	}
	return out, nil
}

// byInput puts partitions together by their input.
func (l *life) byInput(tps []record.TopicPartition) map[int][]record.TopicPartition {
	by := map[int][]record.TopicPartition{}
	for _, tp := range tps {
		by[l.index[tp]] = append(by[l.index[tp]], tp)
	}
	return by
}

// StartPositions are the offsets that a Start means for partitions of one topic. app is whose group Start.Group "" is. A
// group without an offset where the Start says nothing else is an error that trying again does not mend.
func StartPositions(ctx context.Context, c *txn.Cluster, app string, st task.Start, tps []record.TopicPartition) (map[record.TopicPartition]int64, error) {
	switch st.Kind {
	case task.StartLatest:
		return c.StableOffsets(ctx, tps)
	case task.StartTimestamp:
		return c.OffsetsAt(ctx, tps, st.At)
	case task.StartOffsets, task.StartGroup:
		known := map[record.TopicPartition]int64{}
		group := cmp.Or(st.Group, app)
		if st.Kind == task.StartGroup {
			var err error
			if known, err = c.CommittedOffsets(ctx, group, tps); err != nil {
				return nil, err
			}
		} else {
			for p, off := range st.Offsets {
				known[record.TopicPartition{Topic: tps[0].Topic, Partition: p}] = off
			}
		}
		out := map[record.TopicPartition]int64{}
		var rest []record.TopicPartition
		for _, tp := range tps {
			if off, ok := known[tp]; ok && off >= 0 {
				out[tp] = off
			} else {
				rest = append(rest, tp)
			}
		}
		if len(rest) == 0 {
			return out, nil
		}
		if st.Else == task.StartNone {
			return nil, fatalf("group %s has committed no offset of %s, and nothing says where to begin without one; let the source begin at its earliest or latest record", group, rest[0])
		}
		more, err := StartPositions(ctx, c, app, task.Start{Kind: st.Else}, rest)
		maps.Copy(out, more)
		return out, err
	default:
		return c.StartOffsets(ctx, tps)
	}
}

// group is the name of a group; "" is the app's own.
func (l *life) group(name string) string { return cmp.Or(name, l.w.opts.Kafka.AppID) }

// skipsDeleted is the policy for records of external inputs that were deleted before they were read.
func (l *life) skipsDeleted() bool { return l.w.opts.OutOfRange == "earliest" }

// deleted marks an error that the next takeover gets around.
func (l *life) deleted(err error) error {
	var e *txn.OffsetError
	if !l.skipsDeleted() || !errors.As(err, &e) || e.Wanted >= e.Start {
		return err
	}
	tp := record.TopicPartition{Topic: e.Topic, Partition: e.Partition}
	if i, ok := l.index[tp]; !ok || l.s.sub.inputs[i].internal {
		return err // a repartition record is deleted when it was read, and not before
	}
	return &deletedError{e}
}

// skipDeleted moves offsets to the first record that is there. The claim then puts them on record, with the state as it
// was: what was deleted never had an effect.
func (l *life) skipDeleted(ctx context.Context, offsets map[record.TopicPartition]int64) error {
	if !l.skipsDeleted() {
		return nil
	}
	var external []record.TopicPartition
	for tp := range offsets {
		if !l.s.sub.inputs[l.index[tp]].internal {
			external = append(external, tp)
		}
	}
	starts, err := l.w.cluster.StartOffsets(ctx, external)
	if err != nil {
		return fmt.Errorf("find the first offsets of the inputs of subtask %s: %w", l.s.id, err)
	}
	for tp, start := range starts {
		if skipped := start - offsets[tp]; skipped > 0 {
			l.log.Warn("input was deleted before it was read; going on with what is left, as errors.out-of-range=earliest says",
				"partition", tp, "wanted", offsets[tp], "start", start, "skipped", skipped)
			l.w.opts.Observer.OffsetsSkipped(tp, skipped)
			offsets[tp] = start
		}
	}
	return nil
}

// progressOf turns an epoch record into what a task goes on from (pure). Offsets override the record's.
func progressOf(sub *resolvedSub, rec *txn.EpochRecord, index map[record.TopicPartition]int, offsets map[record.TopicPartition]int64) *task.Progress {
	p := &task.Progress{}
	have := map[record.TopicPartition]task.PartitionProgress{}
	if rec != nil {
		for _, r := range rec.Inputs {
			tp := record.TopicPartition{Topic: r.Topic, Partition: r.Partition}
			pp := task.PartitionProgress{Partition: r.Partition, MaxTime: r.MaxTime, Watermark: r.Watermark, Idle: r.Idle}
			for _, u := range r.Upstream {
				pp.Upstream = append(pp.Upstream, task.UpstreamMark{Watermark: u.Watermark, Idle: u.Idle})
			}
			have[tp] = pp
		}
		for _, h := range rec.Horizons {
			p.Horizons = append(p.Horizons, task.Horizon{Store: h.Store, End: h.End})
		}
		p.Watermarks = rec.Watermarks
	}
	for i, in := range sub.inputs {
		for part := range in.partitions {
			tp := record.TopicPartition{Topic: in.topic, Partition: part}
			off, ok := offsets[tp]
			if !ok {
				continue
			}
			pp, ok := have[tp]
			if !ok {
				pp = task.PartitionProgress{Partition: part, MaxTime: math.MinInt64, Watermark: math.MinInt64}
			}
			pp.Input, pp.Offset = i, off
			p.Partitions = append(p.Partitions, pp)
		}
	}
	return p
}

// build makes the state and the task.
func (l *life) build(ctx context.Context, rec *txn.EpochRecord, progress *task.Progress) error {
	s := l.s
	l.state = statestore.NewState(l.store, statestore.StateOptions{CacheBytes: l.w.share(l.w.opts.CacheBytes),
		MaxCacheBytes: l.w.share(l.w.opts.MaxCacheBytes), IDs: s.sub.storeIDs()})
	if rec != nil {
		l.epoch = rec.Epoch
		for _, h := range rec.Horizons {
			l.state.SetHorizon(h.Store, h.End)
		}
	}
	env := task.Env{Subtask: s.id, Parallelism: s.sub.parallelism, State: l.state, Restored: progress, Now: time.Now().UnixMilli()}
	for i, in := range s.sub.inputs {
		ei := task.EnvInput{Topic: in.topic, Partitions: partitionsOf(s.id.Index, s.sub.parallelism, in.partitions), TotalPartitions: in.partitions}
		if in.internal {
			ei.UpstreamSubtasks = l.w.topo.subs[s.sub.plan.Inputs[i].Upstream].parallelism
		}
		env.Inputs = append(env.Inputs, ei)
	}
	for _, o := range s.sub.outputs {
		env.Outputs = append(env.Outputs, task.EnvOutput{Topic: o.topic, Partitions: o.partitions, MaxRecordBytes: o.maxRecord, TimestampBefore: o.before, TimestampAfter: o.after})
	}
	l.calls = NewCalls()
	env.Go = l.calls.Run
	if err := l.ends(ctx, &env); err != nil {
		return err
	}
	if err := l.until(ctx, rec, &env); err != nil {
		return err
	}
	t, err := s.sub.plan.New(env)
	if err != nil {
		return fmt.Errorf("build the operators of subtask %s: %w", s.id, err)
	}
	l.task = t
	return nil
}

// share is one subtask's part of a budget of bytes: as if this worker owned all subtasks, since it may have to.
func (w *Worker) share(bytes int64) int64 {
	n := 0
	for _, s := range w.topo.subs {
		if len(s.plan.Stores) > 0 {
			n += s.parallelism
		}
	}
	return max(bytes/int64(max(n, 1)), 1<<20)
}

// begin makes Externals ready, with what the last committed epoch prepared.
func (l *life) begin(ctx context.Context) error {
	for name := range l.begun {
		if !slices.Contains(l.task.Externals(), name) {
			l.log.Warn("the topology has no longer a sink that the last epoch wrote to; if the subtask did not end in order, rows that are committed may not show there", "sink", name)
		}
	}
	from := task.Begun{App: l.w.opts.Kafka.AppID, Incarnation: l.incarnation, Epoch: l.epoch + 1}
	if err := l.task.Begin(ctx, from, l.begun); err != nil {
		return err
	}
	l.begun = nil
	return failpoint.Hit(failpoint.AfterBegin)
}

// claim commits an epoch before anything is processed: it proves that we own the subtask and may commit, and puts
// first-start positions on record.
func (l *life) claim(offsets map[record.TopicPartition]int64) error {
	if err := l.commit(false); err != nil {
		return err
	}
	for tp, off := range offsets {
		if l.offsets[tp] != off {
			return fatalf("claim of subtask %s committed offset %d of %s, want %d: this is a bug, please report it", l.s.id, l.offsets[tp], tp, off)
		}
	}
	return nil
}

// epochRecord is the last record of an epoch: all that a successor needs besides the state.
func (l *life) epochRecord(epoch uint64, now time.Time, p *task.Progress, touched []bool) *txn.EpochRecord {
	rec := &txn.EpochRecord{Epoch: epoch, Incarnation: l.incarnation, Owner: l.w.opts.Kafka.InstanceID, WallTime: now.UnixMilli(), Watermarks: p.Watermarks}
	rec.Touched = touched
	for _, p := range l.positions {
		rec.Positions = append(rec.Positions, max(p, 0))
	}
	for _, pp := range p.Partitions {
		tp := l.partition(pp.Input, pp.Partition)
		e := txn.InputProgress{Topic: tp.Topic, TopicID: l.w.topicIDs[tp.Topic], Partition: tp.Partition, Offset: pp.Offset, MaxTime: pp.MaxTime, Watermark: pp.Watermark, Idle: pp.Idle}
		for _, u := range pp.Upstream {
			e.Upstream = append(e.Upstream, txn.UpstreamMark{Watermark: u.Watermark, Idle: u.Idle})
		}
		rec.Inputs = append(rec.Inputs, e)
	}
	for _, h := range p.Horizons {
		rec.Horizons = append(rec.Horizons, txn.Horizon{Store: h.Store, End: h.End})
	}
	return rec
}
