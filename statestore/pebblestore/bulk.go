package pebblestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace-stream/millrace/internal/failpoint"
	"github.com/millrace-stream/millrace/statestore"
)

const (
	// smallBulk is up to how many bytes a bulk goes the way of other batches.
	smallBulk = memTableSize
	// maxRuns is how many runs of a bulk are merged at once, each through a buffer of runBuffer.
	maxRuns   = 64
	runBuffer = 128 << 10
	// bottomFileBytes is the size of files in the last level, as Store.options has it.
	bottomFileBytes = fileBytes << 5
	// bulkSync is after how many bytes of a file the disk is told to begin with them, so that the sync at its end is short.
	bulkSync = 1 << 20
	// ctxEvery is how many entries are merged between two looks at the context.
	ctxEvery = 4096
)

var _ statestore.BulkStore = (*Store)(nil)

// bulk implements statestore.Bulk by an external sort. Entries gather in a buffer; a full one is sorted and written to a
// file of its own, a run, while the next one fills. Commit merges the runs, of equal keys the newest wins, into sstables
// that do not overlap, and gives them to Pebble, which takes them all in one step, as files of its last level if the
// store was empty: nothing is left to compact. The Meta is an entry among them. Until then the store is as it was, and
// what lies beside it is removed by Discard or, after a crash, when the directory is opened.
type bulk struct {
	s     *Store
	ctx   context.Context
	dir   string // of runs and sstables
	made  bool   // the folder
	limit int    // of the bytes in one buffer

	fill  *sortBuffer // takes entries
	spare *sortBuffer // nil: it is being written, or was not needed yet
	spill chan spilled
	runs  []run
	n     int64 // bytes of entries
	tight bool  // the disk has no room for another run and the sstables
	err   error // the first thing that cannot be done
	ended bool
}

// spilled is what became of a buffer that was written.
type spilled struct {
	run run
	buf *sortBuffer
	err error
}

// NewBulk implements statestore.BulkStore.
func (s *Store) NewBulk(ctx context.Context, memory int64) statestore.Bulk {
	b := &bulk{s: s, ctx: ctx, dir: s.path + bulkSuffix, limit: int(max(1, min(memory, maxBatch)/2)), fill: &sortBuffer{}}
	if s.closed {
		b.err = s.fault("write", errClosed)
	}
	return b
}

func (b *bulk) Set(key, value []byte) {
	if value == nil {
		value = []byte{}
	}
	b.add(key, value)
}

func (b *bulk) Delete(key []byte) { b.add(key, nil) }

func (b *bulk) add(key, value []byte) {
	switch {
	case b.err != nil || b.ended:
		return
	case reserved(key):
		b.err = b.s.fault("write", fmt.Errorf("bulk: key %x is reserved for the store itself", key))
		return
	case bytes.Compare(key, lastKey) >= 0:
		b.err = b.s.fault("write", fmt.Errorf("bulk: key %x is too high", key))
		return
	case len(key)+len(value) > maxBatch:
		b.err = b.s.fault("write", fmt.Errorf("bulk: an entry has more than %d bytes", maxBatch))
		return
	}
	b.fill.add(key, value)
	b.n += int64(len(key) + len(value))
	if b.fill.size >= b.limit {
		b.err = b.startSpill()
	}
}

func (b *bulk) Len() int64 { return b.n }

func (b *bulk) Full() bool { return b.err != nil || b.tight || len(b.runs) >= maxRuns-1 }

// startSpill has the full buffer written, and waits for the one before it, so that there are two.
func (b *bulk) startSpill() error {
	if err := b.awaitSpill(); err != nil {
		return err
	}
	if err := b.s.writable("write", b.fill.size); err != nil {
		return err
	}
	if err := b.makeDir(); err != nil {
		return b.s.fault("write", err)
	}
	// The sstables need as much room as all runs.
	if usage, err := b.s.dir.fs.GetDiskUsage(b.s.path); err == nil && b.s.dir.minFree >= 0 {
		b.tight = usage.AvailBytes < uint64(b.s.dir.minFree)+uint64(b.n)+uint64(2*b.limit)
	}
	full := b.fill
	b.fill, b.spare = b.spare, nil
	if b.fill == nil {
		b.fill = &sortBuffer{}
	}
	path := b.s.guard.PathJoin(b.dir, fmt.Sprintf("run-%06d", len(b.runs)))
	done := make(chan spilled, 1)
	b.spill = done
	go func() {
		full.sort()
		r, err := writeRun(b.s.guard, path, full)
		full.reset()
		done <- spilled{r, full, err}
	}()
	return nil
}

// awaitSpill waits for the buffer that is being written: as long as a write to a file takes.
func (b *bulk) awaitSpill() error {
	if b.spill == nil {
		return nil
	}
	done := <-b.spill
	b.spill = nil
	b.spare = done.buf
	err := done.err
	if err == nil {
		b.runs = append(b.runs, done.run)
		err = failpoint.Hit(failpoint.MidBulk)
	}
	if err != nil {
		return b.s.fault("write", err)
	}
	return nil
}

// Discard implements statestore.Bulk.
func (b *bulk) Discard() {
	if b.ended {
		return
	}
	_ = b.awaitSpill() // nobody asks for what it wrote any more
	b.ended, b.fill, b.spare, b.runs = true, nil, nil, nil
	if b.made {
		b.remove()
	}
}

// remove removes what lies beside the store, also that of a store that stopped writing. What stays is removed when the
// directory is opened.
func (b *bulk) remove() {
	if err := b.s.dir.removeAll(b.dir); err != nil {
		b.s.dir.log.Warn("remove what a bulk has left", slog.String("path", b.dir), slog.Any("error", err))
	}
}

// makeDir makes an empty folder for runs and sstables, if there is none yet.
func (b *bulk) makeDir() error {
	if b.made {
		return nil
	}
	b.made = true
	return errors.Join(b.s.dir.removeAll(b.dir), b.s.guard.MkdirAll(b.dir, 0o755))
}

// Commit implements statestore.Bulk.
func (b *bulk) Commit(m statestore.Meta) error {
	defer b.Discard()
	s := b.s
	if b.ended {
		return s.fault("write", errors.New("the bulk was already committed or discarded"))
	}
	if err := b.awaitSpill(); err != nil {
		return err
	}
	if b.err != nil {
		return b.err
	}
	b.spare = nil
	b.fill.sort()
	if len(b.runs) == 0 && b.n <= smallBulk {
		w := s.NewBatch()
		for c := b.fill.cursor(); c.next(); {
			if c.value == nil {
				w.Delete(c.key)
			} else {
				w.Set(c.key, c.value)
			}
		}
		return w.Commit(m)
	}
	if err := s.writable("write", int(b.n)); err != nil {
		return err
	}
	// The identity of a new store may still be in memory only; a store with a Meta has it on disk.
	s.unflushed++
	if err := errors.Join(s.startFlush(), s.awaitFlush(), s.awaitCompactions()); err != nil {
		return err
	}
	if err := b.makeDir(); err != nil {
		return s.fault("write", err)
	}
	paths, err := b.merge(m)
	if err == nil {
		err = failpoint.Hit(failpoint.BeforeIngest)
	}
	if err != nil {
		return s.fault("write", err)
	}
	if err := errors.Join(s.reads.end(), s.db.Ingest(context.WithoutCancel(b.ctx), paths)); err != nil {
		return s.fault("write", err)
	}
	if err := s.fail.get(); err != nil { // see guardDir
		return s.fault("write", err)
	}
	s.noteMeta(m)
	s.measureDepth()
	return failpoint.Hit(failpoint.AfterIngest)
}

// merge writes the sstables.
func (b *bulk) merge(m statestore.Meta) ([]string, error) {
	s := b.s
	out := &tables{s: s, dir: b.dir, options: s.writerOptions()}
	defer out.close()
	// A file of its own, so that the others lie beneath all that is there.
	if err := errors.Join(out.set(metaKey, encodeMeta(m)), out.end()); err != nil {
		return nil, err
	}
	cursors := []cursor{b.fill.cursor()} // the newest first
	defer func() {
		for _, c := range cursors {
			c.close()
		}
	}()
	for i := len(b.runs) - 1; i >= 0; i-- {
		c, err := openRun(s.guard, b.runs[i])
		if err != nil {
			return nil, err
		}
		cursors = append(cursors, c)
	}
	merged := newMerge(cursors)
	for n := 1; merged.next(); n++ {
		if n%ctxEvery == 0 && b.ctx.Err() != nil {
			return nil, context.Cause(b.ctx)
		}
		key, value := merged.entry()
		var err error
		switch {
		case value != nil:
			err = out.set(key, value)
		case s.hasMeta: // else there is nothing that it could delete
			err = out.delete(key)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := merged.err(); err != nil {
		return nil, err
	}
	return out.paths, out.end()
}

// tables writes sorted entries into sstables of bottomFileBytes.
type tables struct {
	s       *Store
	dir     string
	options sstable.WriterOptions
	w       *sstable.Writer // nil: none is open
	paths   []string
}

// writerOptions are those of the DB, so that the files are as if compactions had written them.
func (s *Store) writerOptions() sstable.WriterOptions {
	o := s.options(&compactionSlot{all: s.dir.compactions, fail: s.fail})
	o.EnsureDefaults()
	w := o.MakeWriterOptions(len(o.Levels)-1, formatMajorVersion.MaxTableFormat())
	// Of a file of the last level tombstones are not read; these go on top of what is there.
	w.WritingToLowestLevel = !s.hasMeta
	return w
}

func (t *tables) set(key, value []byte) error {
	if err := t.open(); err != nil {
		return err
	}
	return t.w.Set(key, value)
}

func (t *tables) delete(key []byte) error {
	if err := t.open(); err != nil {
		return err
	}
	return t.w.Delete(key)
}

// open makes sure that there is a file with room.
func (t *tables) open() error {
	if t.w != nil && t.w.Raw().EstimatedSize() < bottomFileBytes {
		return nil
	}
	if err := t.end(); err != nil {
		return err
	}
	path := t.s.guard.PathJoin(t.dir, fmt.Sprintf("%06d.sst", len(t.paths)))
	f, err := t.s.guard.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	t.paths = append(t.paths, path)
	t.w = sstable.NewWriter(objstorageprovider.NewFileWritable(vfs.NewSyncingFile(f, vfs.SyncingFileOptions{BytesPerSync: bulkSync})), t.options)
	return nil
}

// end makes the open file durable and closes it.
func (t *tables) end() error {
	if t.w == nil {
		return nil
	}
	w := t.w
	t.w = nil
	return w.Close()
}

// close closes the file that an error has left open.
func (t *tables) close() {
	if t.w != nil {
		_ = t.w.Close()
	}
}
