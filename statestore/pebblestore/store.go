package pebblestore

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace-stream/millrace/statestore"
)

// Settings of each DB, as measured for many small DBs in one process: small memtables cost little and save 60 MiB at 16
// DBs; bloom filters because most reads of a stream processor miss.
const (
	memTableSize = 1 << 20
	blockSize    = 16 << 10
	bloomBits    = 10
	// formatMajorVersion is pinned, so that a new Pebble does not silently write what an older Millrace cannot read. Who
	// raises it raises layoutVersion too.
	formatMajorVersion = pebble.FormatValueSeparation
	// maxUnflushed is how much may wait in memtables (four of them) before a Commit flushes first. Pebble's own write
	// stall is off: it waits without an end for a flush that cannot succeed.
	maxUnflushed = 4 * memTableSize
	// maxManifest keeps the file short that is read on open; a new one starts with the few files that are there.
	maxManifest = 256 << 10
	// What a checkpoint uploads are the files that compactions wrote since the one before. Levels that begin small, and
	// files that are small in small levels, keep that to 8 % of the state when 1 % of its keys changed, for stores of
	// 60 MiB to 1 GiB: TestNewBytesOfSnapshots.
	l0Compaction   = 8         // sublevels of level 0
	baseLevelBytes = 2 << 20   // of the level below it
	fileBytes      = 512 << 10 // of a file in both; twice as much in each level below
	// maxL0 is the read amplification of level 0 from which a Commit waits for compactions, as Pebble's stall would.
	maxL0 = 12
	// never is a threshold for a stall of Pebble's that is not reached.
	never = math.MaxInt32
)

// Bounds on waits: a disk that takes longer is treated as broken.
const (
	flushTimeout   = 5 * time.Minute
	compactTimeout = time.Minute
)

// The keys below store id 0, kind 0 are the store's own. They are hidden from reads, and batches cannot touch them.
var (
	metaKey     = statestore.MetaKey()
	identityKey = append(statestore.MetaKey(), 1)
	firstKey    = []byte{0, 0, 0, 0, 1}                  // the lowest key that is not
	lastKey     = bytes.Repeat([]byte{0xff}, maxKeyFill) // above every key; range deletes without a bound end here
)

const maxKeyFill = 64

func reserved(key []byte) bool { return bytes.Compare(key, firstKey) < 0 }

// maxKept is the size up to which the buffer of Get is kept.
const maxKept = 1 << 20

// maxBatchHint bounds the room that a batch gets from the start, which is as much as the last one took: a batch that grows is
// copied again and again.
const maxBatchHint = 32 << 20

// maxBatch is below the 4 GiB at which Pebble panics.
const maxBatch = 1 << 30

// Store is one Pebble DB. It implements statestore.Store.
type Store struct {
	dir     *Dir
	path    string
	claimed string // in Dir.open; path, but for a staged store
	db      *pebble.DB
	guard   *guardFS
	fail    *failure
	// compacted gets a token when a compaction ended.
	compacted chan struct{}

	meta      statestore.Meta
	hasMeta   bool
	unflushed int // bytes in batches that no flush was begun for, with an allowance for each entry
	flushing  flushing
	batchSize int    // bytes of the last batch
	deep      bool   // level 0 had maxL0 when it was last looked at
	value     []byte // what the last Get returned
	reads     reads
	iters     map[*iterator]struct{}
	closed    bool

	lent    int64
	endLend func() // gives the block cache back what is lent; nil: nothing is

	instance string
	snap     sync.Mutex // held while a snapshot is made
	ended    bool       // guarded by snap: db is closed
}

var _ statestore.Lender = (*Store)(nil)

var errClosed = errors.New("it is closed")

func (d *Dir) openStore(id statestore.Identity, path string) (_ *Store, err error) {
	s := &Store{dir: d, path: path, claimed: path, compacted: make(chan struct{}, 1), iters: map[*iterator]struct{}{}, value: []byte{}}
	s.fail = newFailure(func(err error) {
		d.log.Error("state store stops writing", slog.String("store", path), slog.Any("error", err))
	})
	s.instance = d.instance(path)
	s.guard = &guardFS{FS: d.fs, fail: s.fail, closing: make(chan struct{}), apart: path + snapshotsSuffix}
	if err := d.makeDir(path); err != nil {
		return nil, s.fault("make", err)
	}
	if err := s.removeLogs(); err != nil {
		return nil, s.fault("open", err)
	}
	slot := &compactionSlot{all: d.compactions, fail: s.fail}
	s.db, err = pebble.Open(path, s.options(slot))
	if err != nil {
		// What is no refusal of the operating system is a judgement on the files; Pebble marks only some of them.
		if errno := syscall.ENOENT; (!errors.As(err, &errno) || errno == syscall.ENOENT) && !pebble.IsCorruptionError(err) {
			err = fmt.Errorf("%w: %w", statestore.ErrCorrupt, err)
		}
		return nil, s.fault("open", err)
	}
	if err := s.fail.get(); err != nil { // see guardDir
		return nil, errors.Join(s.fault("open", err), s.close())
	}
	if err := s.load(id); err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.guard.opened.Store(true)
	slot.start()
	return s, nil
}

// removeLogs removes the write-ahead logs of earlier opens. Pebble makes one each time, though nothing is ever written
// to it. When it finds one it starts a flush, and if that fails, as on a full disk, Open never returns.
func (s *Store) removeLogs() error {
	names, err := s.guard.List(s.path)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".log") {
			if err := s.guard.Remove(s.guard.PathJoin(s.path, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// options are Pebble's, for this DB.
func (s *Store) options(slot *compactionSlot) *pebble.Options {
	o := &pebble.Options{
		FS:                          s.guard,
		Cache:                       s.dir.cache,
		FileCache:                   s.dir.files,
		DisableWAL:                  true,
		FormatMajorVersion:          formatMajorVersion,
		MemTableSize:                memTableSize,
		MemTableStopWritesThreshold: never,
		L0CompactionThreshold:       l0Compaction,
		LBaseMaxBytes:               baseLevelBytes,
		L0StopWritesThreshold:       never,
		MaxManifestFileSize:         maxManifest,
		CompactionConcurrencyRange:  func() (int, int) { return 1, 1 },
		Logger:                      logger{s.fail},
		EventListener: &pebble.EventListener{
			BackgroundError: s.fail.set,
			DataCorruption:  func(i pebble.DataCorruptionInfo) { s.fail.set(i.Details) },
			FlushEnd:        func(pebble.FlushInfo) { s.reads.changes.Add(1) },
			CompactionEnd: func(pebble.CompactionInfo) {
				s.reads.changes.Add(1)
				select {
				case s.compacted <- struct{}{}:
				default:
				}
			},
		},
	}
	o.Experimental.CompactionScheduler = slot
	o.TargetFileSizes[0], o.TargetFileSizes[1] = fileBytes, fileBytes
	for i := 2; i < len(o.TargetFileSizes); i++ {
		o.TargetFileSizes[i] = 2 * o.TargetFileSizes[i-1]
	}
	for i := range o.Levels {
		o.Levels[i] = pebble.LevelOptions{
			BlockSize:    blockSize,
			FilterPolicy: bloom.FilterPolicy(bloomBits),
			Compression:  func() *sstable.CompressionProfile { return sstable.SnappyCompression },
		}
	}
	return o
}

// logger drops what Pebble tells about its work. Fatalf comes when a MANIFEST write failed or an invariant is broken and
// is expected not to return; here the store stops writing instead, and the process lives.
type logger struct{ fail *failure }

func (logger) Infof(string, ...any)  {}
func (logger) Errorf(string, ...any) {}
func (l logger) Fatalf(format string, args ...any) {
	l.fail.set(fmt.Errorf("pebble: "+format, args...))
}

// load reads what the store says of itself; a new store gets its identity.
func (s *Store) load(id statestore.Identity) error {
	raw, err := s.own(identityKey)
	if err != nil {
		return err
	}
	meta, err := s.own(metaKey)
	if err != nil {
		return err
	}
	if raw == nil {
		if meta != nil {
			return s.fault("open", fmt.Errorf("%w: its identity is missing", statestore.ErrCorrupt))
		}
		// No flush: it goes to disk with, and not later than, the first batch.
		raw, err := json.Marshal(id)
		if err != nil {
			return s.fault("open", err)
		}
		if err := s.db.Set(identityKey, raw, pebble.NoSync); err != nil {
			return s.fault("open", err)
		}
		return nil
	}
	var have statestore.Identity
	if err := json.Unmarshal(raw, &have); err != nil {
		return s.fault("open", fmt.Errorf("%w: its identity is unreadable: %w", statestore.ErrCorrupt, err))
	}
	if diff := have.Diff(id); diff != "" {
		return fmt.Errorf("open state store %s: %w: %s; if the app was started anew on purpose, empty the state directory, else "+
			"give this process the directory or the cluster that belong together", s.path, statestore.ErrForeign, diff)
	}
	if meta != nil {
		if s.meta, err = decodeMeta(meta); err != nil {
			return s.fault("open", fmt.Errorf("%w: %w", statestore.ErrCorrupt, err))
		}
		s.hasMeta = true
	}
	return nil
}

// own reads one of the store's own keys; nil if it is not there.
func (s *Store) own(key []byte) ([]byte, error) {
	v, err := get(s.db, key)
	if err != nil {
		return nil, s.fault("open", err)
	}
	return v, nil
}

// get returns a copy of a value; nil if there is none.
func get(db *pebble.DB, key []byte) ([]byte, error) {
	v, c, err := db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	v = append([]byte{}, v...)
	return v, c.Close()
}

func isNoSpace(err error) bool { return vfs.IsNoSpaceError(err) || errors.Is(err, syscall.EDQUOT) }

// fault gives an error its form: what failed, where, which of the contract's errors it is, and what to do.
func (s *Store) fault(verb string, err error) error {
	if first := s.fail.get(); first != nil {
		err = first // what followed is only its consequence
	}
	switch {
	case isNoSpace(err):
		return fmt.Errorf("%s state store %s: %w (%w); free some space, then restart: nothing that was flushed is damaged",
			verb, s.path, statestore.ErrNoSpace, err)
	case errors.Is(err, statestore.ErrCorrupt):
		return fmt.Errorf("%s state store %s: %w; wipe it, and it is restored from its changelog", verb, s.path, err)
	case pebble.IsCorruptionError(err):
		return fmt.Errorf("%s state store %s: %w (%w); wipe it, and it is restored from its changelog",
			verb, s.path, statestore.ErrCorrupt, err)
	}
	return fmt.Errorf("%s state store %s: %w", verb, s.path, err)
}

// writable says whether the store can take writes of about size bytes.
func (s *Store) writable(verb string, size int) error {
	if s.closed {
		return s.fault(verb, errClosed)
	}
	if err := s.fail.get(); err != nil {
		return s.fault(verb, err)
	}
	if s.dir.minFree < 0 {
		return nil
	}
	usage, err := s.dir.fs.GetDiskUsage(s.path)
	if errors.Is(err, vfs.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return s.fault(verb, fmt.Errorf("read free disk space: %w", err))
	}
	if want := uint64(s.dir.minFree) + uint64(size); usage.AvailBytes < want {
		return fmt.Errorf("%s state store %s: %w: %d MiB free, %d MiB wanted; free some space or enlarge the volume",
			verb, s.path, statestore.ErrNoSpace, usage.AvailBytes>>20, (want+1<<20-1)>>20)
	}
	return nil
}

// Get implements statestore.Store. Errors: ErrCorrupt.
func (s *Store) Get(key []byte) ([]byte, bool, error) {
	if s.closed {
		return nil, false, s.fault("read", errClosed)
	}
	if reserved(key) {
		return nil, false, nil
	}
	it, err := s.reads.iterator(s.db)
	if err != nil {
		return nil, false, s.fault("read", err)
	}
	if !it.SeekPrefixGE(key) {
		if err := it.Error(); err != nil {
			return nil, false, s.fault("read", err)
		}
		return nil, false, nil
	}
	v, err := it.ValueAndErr()
	if err != nil {
		return nil, false, s.fault("read", err)
	}
	if cap(s.value) > maxKept {
		s.value = []byte{}
	}
	s.value = append(s.value[:0], v...)
	return s.value, true, nil
}

// reads are the iterator that Get reads with, and one that a Scan has ended with and the next may use. Unlike Pebble's Get
// that of Get asks the bloom filters of the lowest level too, which holds most keys: a key that is not there costs a fourth.
// They see the store as it was when they were made, and hold memtables and files that are gone since; so they are made anew
// when the store was written, or has put its files in order.
type reads struct {
	it      *pebble.Iterator
	scan    *pebble.Iterator
	of      uint64        // changes when they were made
	writes  uint64        // how often they were let go of
	changes atomic.Uint64 // flushes and compactions that have ended
}

// fresh lets go of iterators that do not see the store as it is.
func (r *reads) fresh() error {
	n := r.changes.Load()
	if r.of == n {
		return nil
	}
	err := r.end()
	r.of = n
	return err
}

func (r *reads) iterator(db *pebble.DB) (*pebble.Iterator, error) {
	if err := r.fresh(); err != nil || r.it != nil {
		return r.it, err
	}
	it, err := db.NewIter(&pebble.IterOptions{UseL6Filters: true})
	if err != nil {
		return nil, err
	}
	r.it = it
	return it, nil
}

// between makes an iterator for lo <= key < hi.
func (r *reads) between(db *pebble.DB, lo, hi []byte) (*pebble.Iterator, error) {
	if err := r.fresh(); err != nil {
		return nil, err
	}
	if it := r.scan; it != nil {
		r.scan = nil
		it.SetBounds(lo, hi)
		return it, nil
	}
	return db.NewIter(&pebble.IterOptions{LowerBound: lo, UpperBound: hi})
}

// giveBack takes an iterator that was made before so many writes, for the next Scan or to close it.
func (r *reads) giveBack(it *pebble.Iterator, writes uint64) error {
	if r.scan != nil || r.writes != writes || r.of != r.changes.Load() || it.Error() != nil {
		return it.Close()
	}
	r.scan = it
	return nil
}

// end lets go of the iterators.
func (r *reads) end() error {
	r.writes++
	var err error
	for _, it := range []**pebble.Iterator{&r.it, &r.scan} {
		if *it != nil {
			err = errors.Join(err, (*it).Close())
			*it = nil
		}
	}
	return err
}

// stale says that they hold what the store has put away since.
func (r *reads) stale() bool { return (r.it != nil || r.scan != nil) && r.of != r.changes.Load() }

// Scan implements statestore.Store.
func (s *Store) Scan(lo, hi []byte) (statestore.Iterator, error) {
	if s.closed {
		return nil, s.fault("scan", errClosed)
	}
	if reserved(lo) {
		lo = firstKey
	}
	if hi != nil && bytes.Compare(lo, hi) >= 0 {
		return &iterator{s: s}, nil
	}
	pit, err := s.reads.between(s.db, lo, hi)
	if err != nil {
		return nil, s.fault("scan", err)
	}
	it := &iterator{s: s, it: pit, writes: s.reads.writes}
	s.iters[it] = struct{}{}
	return it, nil
}

// NewBatch implements statestore.Store.
func (s *Store) NewBatch() statestore.Batch {
	if s.closed {
		return &batch{s: s} // Commit says so
	}
	return &batch{s: s, b: s.db.NewBatchWithSize(min(s.batchSize, maxBatchHint))}
}

// flushing is a flush that was begun.
type flushing struct {
	done  <-chan struct{} // closed when it is done; nil: there is none
	size  int             // of what it flushes, as unflushed
	since time.Time
}

// Flush implements statestore.Store. Errors: ErrNoSpace, ErrCorrupt (a background failure); after a failed write the
// store takes no more of them, and what was flushed before is what a new Open finds.
func (s *Store) Flush() error {
	if err := s.FlushBehind(); err != nil {
		return err
	}
	return s.awaitFlush()
}

// FlushBehind implements statestore.Store. Errors: as of Flush.
func (s *Store) FlushBehind() error {
	if err := s.writable("flush", 0); err != nil {
		return err
	}
	return s.startFlush()
}

// startFlush begins a flush of all that was committed. Pebble flushes in the order of commits, so the end of the
// newest flush is the end of all.
func (s *Store) startFlush() error {
	if s.unflushed == 0 {
		return nil
	}
	done, err := s.db.AsyncFlush()
	if err != nil {
		return s.fault("flush", err)
	}
	s.flushing = flushing{done, s.flushing.size + s.unflushed, time.Now()}
	s.unflushed = 0
	return nil
}

// Busy implements statestore.Store.
func (s *Store) Busy() (bool, error) {
	if s.closed {
		return false, s.fault("flush", errClosed)
	}
	if s.reads.stale() {
		if err := s.reads.end(); err != nil {
			return false, s.fault("read", err)
		}
	}
	if s.flushing.done != nil {
		select {
		case <-s.flushing.done:
			s.flushed()
		default:
			if time.Since(s.flushing.since) > flushTimeout {
				s.fail.set(errSlowDisk)
			}
		}
	}
	if err := s.fail.get(); err != nil { // see guardDir
		return false, s.fault("flush", err)
	}
	if s.flushing.done != nil {
		return true, nil
	}
	if s.deep {
		select {
		case <-s.compacted:
			s.measureDepth()
		default:
		}
	}
	return s.deep, nil
}

var errSlowDisk = fmt.Errorf("the disk did not take the data within %s", flushTimeout)

// flushed notes that what was begun is done.
func (s *Store) flushed() {
	s.flushing = flushing{}
	s.measureDepth()
}

func (s *Store) measureDepth() { s.deep = s.db.Metrics().Levels[0].Sublevels >= maxL0 }

// awaitFlush waits for a flush that was begun.
func (s *Store) awaitFlush() error {
	if s.flushing.done == nil {
		return nil
	}
	timeout := time.NewTimer(time.Until(s.flushing.since.Add(flushTimeout)))
	defer timeout.Stop()
	select {
	case <-s.flushing.done:
		if err := s.fail.get(); err != nil { // see guardDir
			return s.fault("flush", err)
		}
	case <-s.fail.ch:
		return s.fault("flush", s.fail.get())
	case <-timeout.C:
		s.fail.set(errSlowDisk)
		return s.fault("flush", s.fail.get())
	}
	s.flushed()
	return nil
}

// awaitCompactions holds back a writer that is faster than compaction, so that reads stay bounded.
func (s *Store) awaitCompactions() error {
	timeout := time.NewTimer(compactTimeout)
	defer timeout.Stop()
	for s.deep {
		select {
		case <-s.compacted:
			s.measureDepth()
		case <-s.fail.ch:
			return s.fault("compact", s.fail.get())
		case <-timeout.C:
			s.dir.log.Warn("state store compacts slowly; reads of it are slow too", slog.String("store", s.path))
			return nil
		}
	}
	return nil
}

// Lend implements statestore.Lender: the block cache gets smaller.
func (s *Store) Lend(n int64) {
	if s.endLend != nil {
		s.endLend()
		s.endLend = nil
	}
	if s.closed {
		n = 0
	}
	if n > 0 {
		s.endLend = s.dir.cache.Reserve(int(n))
	}
	s.dir.noteLent(n - s.lent)
	s.lent = n
}

// Meta implements statestore.Store.
func (s *Store) Meta() (statestore.Meta, bool) { return s.meta, s.hasMeta }

// Size implements statestore.Store: the bytes of its files.
func (s *Store) Size() int64 {
	if s.closed {
		return 0
	}
	return int64(s.db.Metrics().DiskSpaceUsage())
}

// Close implements statestore.Store. It does not flush: what was committed since the last Flush may be lost. Iterators
// that are still open end.
func (s *Store) Close() error {
	if s.closed {
		return nil
	}
	defer s.dir.release(s.claimed)
	return s.close()
}

func (s *Store) close() error {
	s.closed = true
	s.Lend(0)
	if s.fail.get() != nil { // Pebble may have gone on with what is not on disk
		s.dir.newInstance(s.path)
	}
	for it := range s.iters {
		_ = it.Close()
	}
	_ = s.reads.end()
	close(s.guard.closing)
	s.snap.Lock()
	defer s.snap.Unlock()
	s.ended = true
	err := s.db.Close()
	if err != nil && s.fail.get() == nil {
		return s.fault("close", err)
	}
	// After a failure Pebble cannot close cleanly; the failure itself was told.
	return nil
}

// batch wraps a Pebble batch.
type batch struct {
	s   *Store
	b   *pebble.Batch // nil: ended
	n   int
	err error // the first write that cannot be done
}

func (b *batch) note(err error) {
	if err != nil && b.err == nil {
		b.err = err
	}
}

// takes says whether a key can be written.
func (b *batch) takes(key []byte, n int) bool {
	switch {
	case b.b == nil || b.err != nil:
		return false
	case reserved(key):
		b.err = fmt.Errorf("key %x is reserved for the store itself", key)
	case bytes.Compare(key, lastKey) >= 0:
		b.err = fmt.Errorf("key %x is too high", key)
	case b.n+n > maxBatch:
		b.err = fmt.Errorf("it has more than %d bytes", maxBatch)
	default:
		b.n += n
		return true
	}
	return false
}

func (b *batch) Set(key, value []byte) {
	if b.takes(key, len(key)+len(value)) {
		b.note(b.b.Set(key, value, nil))
	}
}

func (b *batch) Delete(key []byte) {
	if b.takes(key, len(key)) {
		b.note(b.b.Delete(key, nil))
	}
}

func (b *batch) DeleteRange(lo, hi []byte) {
	if reserved(lo) {
		lo = firstKey
	}
	if hi == nil {
		hi = lastKey
	}
	if bytes.Compare(lo, hi) < 0 && b.takes(lo, len(lo)+len(hi)) {
		b.note(b.b.DeleteRange(lo, hi, nil))
	}
}

func (b *batch) Len() int { return b.n }

func (b *batch) Discard() {
	if b.b != nil {
		_ = b.b.Close() // gives its memory back
		b.b = nil
	}
}

// Commit implements statestore.Batch. Errors: ErrNoSpace, and what made the store stop writing; nothing of the batch is
// applied then.
func (b *batch) Commit(m statestore.Meta) error {
	defer b.Discard()
	s := b.s
	if err := s.writable("write", b.n); err != nil {
		return err
	}
	if b.b == nil {
		return s.fault("write", errors.New("the batch was already committed or discarded"))
	}
	if b.err != nil {
		return s.fault("write", fmt.Errorf("batch: %w", b.err))
	}
	if err := b.b.Set(metaKey, encodeMeta(m), nil); err != nil {
		return s.fault("write", err)
	}
	written := b.b.Len()
	size := written + 64*int(b.b.Count())
	if waits := s.flushing.size + s.unflushed; waits > 0 && waits+size > maxUnflushed {
		if err := errors.Join(s.startFlush(), s.awaitFlush()); err != nil {
			return err
		}
	}
	if err := s.awaitCompactions(); err != nil {
		return err
	}
	if err := errors.Join(s.reads.end(), s.db.Apply(b.b, pebble.NoSync)); err != nil {
		return s.fault("write", err)
	}
	s.unflushed += size
	s.batchSize = written
	s.noteMeta(m)
	return nil
}

// noteMeta keeps what was committed.
func (s *Store) noteMeta(m statestore.Meta) {
	s.meta = statestore.Meta{
		Epoch: m.Epoch, EpochRecord: bytes.Clone(m.EpochRecord), Positions: slices.Clone(m.Positions),
	}
	s.hasMeta = true
}

// iterator wraps a Pebble iterator. it is nil when the range is empty or the iterator was closed.
type iterator struct {
	s       *Store
	it      *pebble.Iterator
	writes  uint64 // of reads
	started bool
	value   []byte
	err     error
}

func (it *iterator) Next() bool {
	if it.it == nil || it.err != nil {
		return false
	}
	move := it.it.Next
	if !it.started {
		it.started = true
		move = it.it.First
	}
	ok := move()
	var err error
	if ok {
		it.value, err = it.it.ValueAndErr()
	} else {
		err = it.it.Error()
	}
	if err != nil {
		it.err = it.s.fault("scan", err)
		return false
	}
	return ok
}

func (it *iterator) Key() []byte   { return it.it.Key() }
func (it *iterator) Value() []byte { return it.value }
func (it *iterator) Err() error    { return it.err }

func (it *iterator) Close() error {
	if it.it == nil {
		return it.err
	}
	err := it.s.reads.giveBack(it.it, it.writes)
	it.it = nil
	delete(it.s.iters, it)
	if it.err == nil && err != nil {
		it.err = it.s.fault("scan", err)
	} else if it.err == nil && it.s.closed {
		it.err = it.s.fault("scan", errClosed)
	}
	return it.err
}

// metaVersion is the first byte of an encoded Meta.
const metaVersion = 1

// encodeMeta: version, epoch, number of positions and each of them, 0 or the length + 1 of the epoch record, and the
// record itself.
func encodeMeta(m statestore.Meta) []byte {
	b := []byte{metaVersion}
	b = binary.AppendUvarint(b, m.Epoch)
	b = binary.AppendUvarint(b, uint64(len(m.Positions)))
	for _, p := range m.Positions {
		b = binary.AppendVarint(b, p)
	}
	if m.EpochRecord == nil {
		return binary.AppendUvarint(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(len(m.EpochRecord))+1)
	return append(b, m.EpochRecord...)
}

func decodeMeta(b []byte) (statestore.Meta, error) {
	var m statestore.Meta
	if len(b) == 0 || b[0] != metaVersion {
		return m, fmt.Errorf("its meta has an unknown form: % x", b[:min(len(b), 16)])
	}
	b = b[1:]
	bad := false
	uvarint := func() uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			bad = true
			return 0
		}
		b = b[n:]
		return v
	}
	m.Epoch = uvarint()
	if n := uvarint(); n > uint64(len(b)) {
		bad = true
	} else if n > 0 {
		m.Positions = make([]int64, n)
		for i := range m.Positions {
			v, k := binary.Varint(b)
			if k <= 0 {
				bad = true
				break
			}
			m.Positions[i] = v
			b = b[k:]
		}
	}
	switch n := uvarint(); {
	case n == 0:
		bad = bad || len(b) != 0
	case n-1 != uint64(len(b)):
		bad = true
	default:
		m.EpochRecord = append([]byte{}, b...)
	}
	if bad {
		return statestore.Meta{}, errors.New("its meta is cut short or too long")
	}
	return m, nil
}
