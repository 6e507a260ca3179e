package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/internal/failpoint"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/txn"
)

// ownSavepoints is the store in which savepoints of this app are looked for; "" = none is configured.
func (w *Worker) ownSavepoints() string {
	if w.opts.Checkpoints.Blobs == nil {
		return ""
	}
	return w.opts.Checkpoints.Blobs.String()
}

// readBase reads what a savepoint consists of. release closes its store.
func (w *Worker) readBase(ctx context.Context, b *txn.Base) (sps *checkpoint.Savepoints, sp *checkpoint.Savepoint, release func(), err error) {
	blobs, release := w.opts.Checkpoints.Blobs, func() {}
	if b.URL != w.ownSavepoints() {
		if w.opts.OpenBlobs == nil {
			return nil, nil, nil, fatalf("open savepoint %s of app %s: %s is not the store of this worker's checkpoints", b.Name, b.App, b.URL)
		}
		opened, err := w.opts.OpenBlobs(ctx, b.URL)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("open savepoint %s of app %s: %w", b.Name, b.App, err)
		}
		blobs, release = opened, func() { closeBlobs(opened, w) }
	}
	sps = checkpoint.NewSavepoints(blobs, b.App, nil, nil)
	sp, err = sps.Show(ctx, b.Name)
	switch {
	case err != nil:
		if errors.Is(err, checkpoint.ErrNoSavepoint) {
			err = &fatalError{fmt.Errorf("%w, in %s", err, b.URL)}
		}
	case sp.Status != checkpoint.StatusCompleted:
		err = fatalf("savepoint %s of app %s is %s and cannot be begun from: %s", b.Name, b.App, sp.Status, sp.Reason)
	case b.ID != "" && sp.ID != b.ID:
		err = fatalf("savepoint %s of app %s is another one (id %s) than the incarnation began from (id %s): it was deleted, and the name was used again, before all subtasks had taken it over; begin from another savepoint (start.mode, start.nonce)", b.Name, b.App, sp.ID, b.ID)
	}
	if err != nil {
		release()
		return nil, nil, nil, err
	}
	return sps, sp, release, nil
}

func closeBlobs(b blob.Store, w *Worker) {
	if err := b.Close(); err != nil {
		w.log.Warn("close the store of a savepoint", "error", err)
	}
}

// first begins a subtask that has no epoch yet in an incarnation that was begun on purpose: from the savepoint, or from
// nothing. What the group has committed is that of an older incarnation, and does not count.
func (l *life) first(ctx context.Context) (rec *txn.EpochRecord, progress *task.Progress, offsets map[record.TopicPartition]int64, err error) {
	s := l.s
	if err := l.untouched(ctx); err != nil {
		return nil, nil, nil, err
	}
	if l.w.base != nil {
		if rec, err = l.loadBase(ctx, l.w.base); err != nil {
			return nil, nil, nil, fmt.Errorf("begin subtask %s from savepoint %s of app %s: %w", s.id, l.w.base.Name, l.w.base.App, err)
		}
	}
	offsets = map[record.TopicPartition]int64{}
	if rec != nil {
		for i, in := range rec.Inputs {
			if failpoint.Planted(failpoint.BaseOffset) {
				in.Offset++
				rec.Inputs[i] = in
			}
			if in.Offset >= 0 {
				offsets[record.TopicPartition{Topic: in.Topic, Partition: in.Partition}] = in.Offset
			}
		}
	}
	var unknown []record.TopicPartition
	for _, tp := range l.tps {
		if _, ok := offsets[tp]; !ok {
			unknown = append(unknown, tp)
		}
	}
	if len(unknown) > 0 {
		starts, err := l.startOffsets(ctx, unknown)
		if err != nil {
			return nil, nil, nil, err
		}
		for tp, off := range starts {
			offsets[tp] = off
		}
	}
	return rec, progressOf(s.sub, rec, l.index, offsets), offsets, nil
}

// untouched refuses to begin anew where an epoch was committed and its changelog is gone.
func (l *life) untouched(ctx context.Context) error {
	tp := record.TopicPartition{Topic: l.s.sub.changelogs[0], Partition: int32(l.s.id.Index)}
	low, err := l.w.cluster.StartOffsets(ctx, []record.TopicPartition{tp})
	if err != nil {
		return err
	}
	if low[tp] > 0 {
		return fatalf("changelog %s begins at offset %d and holds no epoch: records were deleted from it. Begin again from a savepoint, with another start.nonce", tp, low[tp])
	}
	return nil
}

const (
	// A base is written in transactions of about this size.
	basePartBytes   = 4 << 20
	basePartRecords = 50_000
)

// loadBase brings the state of a savepoint into the local store and from there, whole, into the changelog of this
// incarnation; the claim that follows makes it count. A crash before that claim begins with the savepoint again: the
// same keys are written with the same values. It returns the epoch record to go on with, of epoch 0.
func (l *life) loadBase(ctx context.Context, b *txn.Base) (*txn.EpochRecord, error) {
	started := time.Now()
	sps, sp, release, err := l.w.readBase(ctx, b)
	if err != nil {
		return nil, err
	}
	defer release()
	was, parts, err := partsOf(sp)
	if err != nil {
		return nil, &fatalError{err}
	}
	sub, ok := l.w.topo.record().sub(l.s.id.SubTopology)
	if !ok {
		return nil, fatalf("sub-topology %d is not in the topology: this is a bug, please report it", l.s.id.SubTopology)
	}
	plan, err := planBase(was, parts, sub, l.s.id.Index, l.incarnation)
	if err != nil {
		return nil, &fatalError{err}
	}
	l.begun = plan.handles
	for _, s := range was.Subs {
		for _, in := range s.Inputs {
			if !in.Internal {
				l.sawTopic(in.Topic)
			}
		}
	}
	plan.record.Owner, plan.record.WallTime = l.w.opts.Kafka.InstanceID, started.UnixMilli()
	if len(plan.sources) == 0 {
		return plan.record, nil
	}
	entries, err := l.loadParts(ctx, sps, sp, plan, started)
	if err != nil {
		return nil, err
	}
	loaded := time.Since(started)
	if err := l.writeBase(ctx, entries, started); err != nil {
		return nil, err
	}
	l.log.Info("state taken over from a savepoint", "savepoint", b.Name, "of", b.App, "entries", entries, "loaded", loaded.Round(time.Millisecond),
		"took", time.Since(started).Round(time.Millisecond))
	l.w.opts.Observer.RestoreDone(l.s.id, checkpoint.FromSavepoint.String(), entries, l.store.Size(), time.Since(started))
	return plan.record, failpoint.Hit(failpoint.AfterBase)
}

// loadParts makes the local store out of parts of a savepoint.
func (l *life) loadParts(ctx context.Context, sps *checkpoint.Savepoints, sp *checkpoint.Savepoint, plan *basePlan, started time.Time) (entries int64, err error) {
	schemas, renumber, err := readSchemas(ctx, sps, sp, plan)
	if err != nil {
		return 0, err
	}
	var done, total int64
	for _, src := range plan.sources {
		total += sp.Subtask(src.part.id.String()).Bytes()
	}
	l.closeStore()
	st, err := l.w.opts.Dir.Stage(l.identity)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, st.Discard())
		}
	}()
	store, err := st.Store()
	if err != nil {
		return 0, err
	}
	// An epoch of 0 and no positions: what is read of the changelog later is read from its start.
	meta := statestore.Meta{EpochRecord: plan.record.Append(nil)}
	for range l.s.sub.changelogs {
		meta.Positions = append(meta.Positions, -1)
	}
	batch := store.NewBatch()
	commit := func() error {
		err := batch.Commit(meta)
		batch = store.NewBatch()
		return err
	}
	fill := func() error {
		for _, c := range schemas.Changes() {
			batch.Set(c.Key, c.Value)
			entries++
		}
		var buf []byte
		for i := range plan.sources {
			src := &plan.sources[i]
			err := sps.Load(ctx, sp, src.part.id.String(), func(f checkpoint.File) {
				done += f.Size
				l.progress(&RestoreStatus{Way: checkpoint.FromSavepoint.String(), Records: entries, Downloaded: done, Download: total, Started: started,
					EtaMs: eta(time.Since(started), done, total-done)})
			}, func(key, value []byte) error {
				to, skip, err := src.entry(key)
				if err != nil || skip {
					return err
				}
				id, _ := statestore.KeyID(to)
				if numbers := renumber[i][id]; numbers != nil {
					if buf, err = statestore.Renumber(buf[:0], value, numbers); err != nil {
						return err
					}
					value = buf
				}
				batch.Set(to, value)
				entries++
				if batch.Len() < restoreBatchBytes {
					return nil
				}
				if err := failpoint.Hit(failpoint.MidBaseLoad); err != nil {
					return err
				}
				return commit()
			})
			if err != nil {
				return err
			}
			if err := failpoint.Hit(failpoint.MidBaseLoad); err != nil {
				return err
			}
		}
		return commit()
	}
	err = fill()
	batch.Discard()
	if err == nil {
		err = store.Flush()
	}
	if err = errors.Join(err, store.Close()); err != nil {
		return 0, err
	}
	if err = st.Adopt(); err != nil {
		return 0, err
	}
	l.store, err = l.w.opts.Dir.Open(l.identity)
	return entries, err
}

// readSchemas puts the schemas of all sources together, as those of the new stores. renumber says, for each source and
// new store, what its versions are now.
func readSchemas(ctx context.Context, sps *checkpoint.Savepoints, sp *checkpoint.Savepoint, plan *basePlan) (statestore.Schemas, []map[statestore.ID]map[uint64]uint64, error) {
	all := statestore.Schemas{}
	renumber := make([]map[statestore.ID]map[uint64]uint64, len(plan.sources))
	for i, src := range plan.sources {
		mine := statestore.Schemas{}
		// They come first: store id 0.
		err := sps.Load(ctx, sp, src.part.id.String(), nil, func(key, value []byte) error {
			if id, err := statestore.KeyID(key); err != nil || id != 0 {
				return errors.Join(err, errEnough)
			}
			return mine.Add(key, value)
		})
		if err != nil && !errors.Is(err, errEnough) {
			return nil, nil, err
		}
		renumber[i] = map[statestore.ID]map[uint64]uint64{}
		for id, st := range src.stores {
			renumber[i][st.to] = all.Merge(st.to, mine[id])
		}
	}
	return all, renumber, nil
}

var errEnough = errors.New("no more is wanted")

// writeBase writes the local store into the changelogs, in transactions of bounded size without epoch record.
func (l *life) writeBase(ctx context.Context, entries int64, started time.Time) error {
	expiring := map[statestore.ID]bool{}
	for _, st := range l.s.sub.plan.Stores {
		expiring[st.ID] = st.Expiring
	}
	it, err := l.store.Scan(nil, nil)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := it.Close(); cerr != nil {
			l.log.Warn("close the scan of a store", "error", cerr)
		}
	}()
	var changes []statestore.Change
	var records, written int64
	size, open := 0, 0
	flush := func() error {
		if err := l.s.sub.checkSizes(changes); err != nil {
			return err
		}
		if err := l.producer.ProduceChanges(ctx, changes); err != nil {
			return err
		}
		written += int64(len(changes))
		changes, open, size = nil, open+size, 0
		if open < basePartBytes && records < basePartRecords {
			return nil
		}
		open, records = 0, 0
		l.progress(&RestoreStatus{Way: checkpoint.FromSavepoint.String(), Records: written, Remaining: entries - written, Started: started,
			EtaMs: eta(time.Since(started), written, entries-written)})
		if err := l.producer.CommitPart(ctx, l.own); err != nil {
			return err
		}
		return failpoint.Hit(failpoint.MidBaseChangelog)
	}
	for it.Next() {
		key := it.Key()
		id, err := statestore.KeyID(key)
		if err != nil {
			return err
		}
		// Keys and values stay as they are until the transaction is over.
		c := statestore.Change{Key: bytes.Clone(key), Value: bytes.Clone(it.Value())}
		if expiring[id] {
			c.Changelog = 1
		}
		changes = append(changes, c)
		records++
		if size += len(c.Key) + len(c.Value); size >= 256<<10 || len(changes) >= 4096 {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if err := it.Err(); err != nil {
		return err
	}
	if err := flush(); err != nil {
		return err
	}
	if err := l.producer.CommitPart(ctx, l.own); err != nil {
		return err
	}
	// The claim begins behind it.
	var tps []record.TopicPartition
	for _, c := range l.s.sub.changelogs {
		tps = append(tps, record.TopicPartition{Topic: c, Partition: int32(l.s.id.Index)})
	}
	ends, err := l.w.cluster.EndOffsets(ctx, tps)
	if err != nil {
		return err
	}
	for i, tp := range tps {
		l.positions[i] = ends[tp]
	}
	return nil
}
