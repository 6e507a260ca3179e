package pebblestore

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace-stream/millrace/statestore"
)

// Format is what Snapshot.Format says of files that this version writes. It changes with formatMajorVersion.
var Format = formatPrefix + strconv.FormatUint(uint64(formatMajorVersion), 10)

const formatPrefix = "pebble-"

var _ statestore.Checkpointer = (*Store)(nil)

// Checkpoint implements statestore.Checkpointer: hard links to the sstables, and copies of the few small files. A Pebble
// version ends with a whole memtable, and a batch is never spread over two of them: so what a flush that Pebble
// started by itself adds ends with some batch too.
//
// Pebble holds its lock only to note the current version, and keeps obsolete files until the links are made; the
// owner's reads, writes and flushes go on.
func (s *Store) Checkpoint() (statestore.Snapshot, error) {
	s.snap.Lock()
	defer s.snap.Unlock()
	if s.ended {
		return nil, s.fault("snapshot", errClosed)
	}
	if err := s.fail.get(); err != nil {
		return nil, s.fault("snapshot", err)
	}
	if err := s.dir.fs.MkdirAll(s.guard.apart, 0o755); err != nil {
		return nil, s.snapshotFault(err)
	}
	snap, err := s.link()
	if errors.Is(err, errNoManifest) {
		if err = s.startManifest(); err == nil {
			snap, err = s.link()
		}
	}
	if err != nil {
		return nil, s.snapshotFault(err)
	}
	return snap, nil
}

// link makes a snapshot, or leaves nothing behind.
func (s *Store) link() (*snapshot, error) {
	d := s.dir
	d.mu.Lock()
	d.snapshots++
	path := d.fs.PathJoin(s.guard.apart, fmt.Sprintf("%06d", d.snapshots))
	d.mu.Unlock()
	if err := s.db.Checkpoint(path); err != nil {
		return nil, errors.Join(err, d.removeAll(path))
	}
	snap := &snapshot{dir: d, path: path, instance: s.instance}
	if err := snap.load(); err != nil {
		return nil, errors.Join(err, d.removeAll(path))
	}
	return snap, nil
}

// errNoManifest: Pebble begins a new MANIFEST with the first flush or compaction after Open. Until then it does not
// know how long the old one is, and copies nothing of it.
var errNoManifest = errors.New("its MANIFEST is empty")

// startManifest makes Pebble begin a MANIFEST, by a flush of something that changes nothing.
func (s *Store) startManifest() error {
	identity, err := get(s.db, identityKey)
	if err != nil {
		return err
	}
	if err := s.db.Set(identityKey, identity, pebble.NoSync); err != nil {
		return err
	}
	done, err := s.db.AsyncFlush()
	if err != nil {
		return err
	}
	timeout := time.NewTimer(flushTimeout)
	defer timeout.Stop()
	select {
	case <-done:
		return s.fail.get() // see guardDir
	case <-s.fail.ch:
		return s.fail.get()
	case <-timeout.C:
		return fmt.Errorf("the disk did not take the data within %s", flushTimeout)
	}
}

// snapshotFault gives an error of a snapshot its form. It is not the store's: see guardFS.apart.
func (s *Store) snapshotFault(err error) error {
	switch {
	case isNoSpace(err):
		err = fmt.Errorf("%w (%w); free some space", statestore.ErrNoSpace, err)
	case pebble.IsCorruptionError(err) && !errors.Is(err, statestore.ErrCorrupt):
		err = fmt.Errorf("%w (%w)", statestore.ErrCorrupt, err)
	}
	return fmt.Errorf("snapshot state store %s: %w", s.path, err)
}

// snapshot implements statestore.Snapshot.
type snapshot struct {
	dir      *Dir
	path     string
	instance string
	id       statestore.Identity
	meta     statestore.Meta
	files    []statestore.SnapshotFile
}

// load reads the snapshot's own Meta and lists its files.
func (s *snapshot) load() error {
	names, err := s.dir.fs.List(s.path)
	if err != nil {
		return err
	}
	// Pebble copies its write-ahead log, which is empty: see Store.removeLogs.
	for _, name := range names {
		if strings.HasSuffix(name, ".log") {
			if err := s.dir.fs.Remove(s.dir.fs.PathJoin(s.path, name)); err != nil {
				return err
			}
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, ".log") || name == lockFile })
	slices.Sort(names)
	for _, name := range names {
		info, err := s.dir.fs.Stat(s.dir.fs.PathJoin(s.path, name))
		if err != nil {
			return err
		}
		if strings.HasPrefix(name, "MANIFEST-") && info.Size() == 0 {
			return errNoManifest
		}
		s.files = append(s.files, statestore.SnapshotFile{Name: name, Size: info.Size(),
			Fixed: strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".blob")})
	}
	db, err := s.dir.openReadOnly(s.path)
	if err != nil {
		return fmt.Errorf("open it: %w", err)
	}
	identity, err1 := get(db, identityKey)
	meta, err2 := get(db, metaKey)
	if err := errors.Join(err1, err2, db.Close()); err != nil {
		return err
	}
	if meta == nil {
		return statestore.ErrEmpty
	}
	if err := json.Unmarshal(identity, &s.id); err != nil {
		return fmt.Errorf("%w: its identity is unreadable: %w", statestore.ErrCorrupt, err)
	}
	if s.meta, err = decodeMeta(meta); err != nil {
		return fmt.Errorf("%w: %w", statestore.ErrCorrupt, err)
	}
	return nil
}

// openReadOnly opens the DB in a folder without writing to it. Of its errors some may mean that the files are damaged.
func (d *Dir) openReadOnly(path string) (*pebble.DB, error) {
	d.mu.Lock()
	defer d.mu.Unlock() // the caches are there as long as the directory is open
	if d.closed {
		return nil, errors.New("the state directory is closed")
	}
	fail := newFailure(func(error) {})
	o := &pebble.Options{
		FS: d.fs, Cache: d.cache, FileCache: d.files, ReadOnly: true, DisableWAL: true,
		FormatMajorVersion: formatMajorVersion, Logger: logger{fail},
	}
	// It never starts: nothing is compacted.
	o.Experimental.CompactionScheduler = &compactionSlot{all: d.compactions, fail: fail}
	return pebble.Open(path, o)
}

func (s *snapshot) Identity() statestore.Identity    { return s.id }
func (s *snapshot) Meta() statestore.Meta            { return s.meta }
func (s *snapshot) Format() string                   { return Format }
func (s *snapshot) Instance() string                 { return s.instance }
func (s *snapshot) Files() []statestore.SnapshotFile { return slices.Clone(s.files) }

// file is a file of a snapshot, opened for reading.
type file struct {
	*io.SectionReader
	io.Closer
}

func (s *snapshot) Open(name string) (io.ReadSeekCloser, error) {
	i := slices.IndexFunc(s.files, func(f statestore.SnapshotFile) bool { return f.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("open %s of snapshot %s: %w", name, s.path, fs.ErrNotExist)
	}
	f, err := s.dir.fs.Open(s.dir.fs.PathJoin(s.path, name))
	if err != nil {
		return nil, fmt.Errorf("open %s of snapshot %s: %w", name, s.path, err)
	}
	return file{io.NewSectionReader(f, 0, s.files[i].Size), f}, nil
}

func (s *snapshot) Close() error {
	if err := s.dir.removeAll(s.path); err != nil {
		return fmt.Errorf("remove snapshot %s: %w", s.path, err)
	}
	return nil
}

// View implements statestore.Snapshot.
func (s *snapshot) View() (statestore.View, error) {
	db, err := s.dir.openReadOnly(s.path)
	if err != nil {
		return nil, fmt.Errorf("open snapshot %s: %w", s.path, err)
	}
	// A Store on it that nobody writes to: reads are the same.
	return &view{Store{dir: s.dir, path: s.path, db: db, fail: newFailure(func(error) {}), iters: map[*iterator]struct{}{}, value: []byte{}}}, nil
}

// view implements statestore.View.
type view struct{ s Store }

func (v *view) Get(key []byte) ([]byte, bool, error)            { return v.s.Get(key) }
func (v *view) Scan(lo, hi []byte) (statestore.Iterator, error) { return v.s.Scan(lo, hi) }

func (v *view) Close() error {
	if v.s.closed {
		return nil
	}
	v.s.closed = true
	for it := range v.s.iters {
		_ = it.Close()
	}
	if err := errors.Join(v.s.reads.end(), v.s.db.Close()); err != nil {
		return fmt.Errorf("close snapshot %s: %w", v.s.path, err)
	}
	return nil
}

// Stage implements statestore.Dir.
func (d *Dir) Stage(id statestore.Identity) (statestore.Staging, error) {
	path, err := d.dbPath(id)
	if err != nil {
		return nil, err
	}
	st := &staging{d: d, id: id, path: path, tmp: path + stagedSuffix}
	if err := d.claim("stage", st.tmp); err != nil {
		return nil, err
	}
	err = d.removeAll(st.tmp)
	if err == nil {
		err = d.makeDir(st.tmp)
	}
	if err != nil {
		err = errors.Join(err, d.removeAll(st.tmp))
		d.release(st.tmp)
		return nil, st.fault("stage", err)
	}
	return st, nil
}

// Reads implements statestore.Dir. Older formats are brought up to this version's when the store is opened.
func (d *Dir) Reads(format string) bool {
	version, ok := strings.CutPrefix(format, formatPrefix)
	n, err := strconv.ParseUint(version, 10, 64)
	return ok && err == nil && n >= uint64(pebble.FormatMinSupported) && n <= uint64(formatMajorVersion)
}

// staging implements statestore.Staging.
type staging struct {
	d         *Dir
	id        statestore.Identity
	path, tmp string // of the store, of what is staged

	mu    sync.Mutex
	ended bool
}

func (st *staging) fault(verb string, err error) error {
	if isNoSpace(err) {
		err = fmt.Errorf("%w (%w); free some space", statestore.ErrNoSpace, err)
	}
	return fmt.Errorf("%s state store %s: %w", verb, st.path, err)
}

var errStagingEnded = errors.New("what was staged is adopted or discarded")

func (st *staging) alive(verb string) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.ended {
		return st.fault(verb, errStagingEnded)
	}
	return nil
}

// Create implements statestore.Staging.
func (st *staging) Create(name string) (io.WriteCloser, error) {
	if err := st.alive("stage"); err != nil {
		return nil, err
	}
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\\\x00") || name != st.d.fs.PathBase(name) {
		return nil, st.fault("stage", fmt.Errorf("%q is no name of a file", name))
	}
	f, err := st.d.fs.Create(st.d.fs.PathJoin(st.tmp, name), vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, st.fault("stage", err)
	}
	return &stagedFile{f: f, st: st}, nil
}

type stagedFile struct {
	f   vfs.File
	st  *staging
	buf []byte
}

// Write copies: unlike an io.Writer, a vfs.File may change what it is given.
func (f *stagedFile) Write(p []byte) (int, error) {
	f.buf = append(f.buf[:0], p...)
	n, err := f.f.Write(f.buf)
	if err != nil {
		err = f.st.fault("stage", err)
	}
	return n, err
}

func (f *stagedFile) Close() error {
	if err := errors.Join(f.f.Sync(), f.f.Close()); err != nil {
		return f.st.fault("stage", err)
	}
	return nil
}

// Store implements statestore.Staging.
func (st *staging) Store() (statestore.Store, error) {
	if err := st.alive("open staged"); err != nil {
		return nil, err
	}
	// A claim beside that of the folder, which this staging holds.
	if err := st.d.claim("open staged", st.openClaim()); err != nil {
		return nil, err
	}
	s, err := st.d.openStore(st.id, st.tmp)
	if err != nil {
		st.d.release(st.openClaim())
		return nil, err
	}
	s.claimed = st.openClaim()
	return s, nil
}

func (st *staging) openClaim() string { return st.tmp + " (open)" }

// Adopt implements statestore.Staging.
func (st *staging) Adopt() error {
	if err := st.alive("adopt"); err != nil {
		return err
	}
	d := st.d
	if err := d.claim("adopt", st.path); err != nil {
		return err
	}
	defer d.release(st.path)
	if d.isOpen(st.openClaim()) {
		return st.fault("adopt", errors.New("the staged store is open; close it first"))
	}
	err := d.syncDir(st.tmp)
	old := st.path + wipedSuffix
	var replaced bool
	if err == nil {
		replaced, err = d.replace(st.path, old)
	}
	if err == nil {
		_, err = d.replace(st.tmp, st.path)
	}
	if err != nil && replaced {
		err = errors.Join(err, st.undo(old))
	}
	if err != nil {
		return st.fault("adopt", err)
	}
	st.end()
	if replaced {
		if err := d.removeAll(old); err != nil {
			return st.fault("remove the former", err)
		}
	}
	return nil
}

// undo puts the former store back after a failed Adopt, or removes it if what was staged has its place.
func (st *staging) undo(old string) error {
	if _, err := st.d.fs.Stat(st.path); errors.Is(err, fs.ErrNotExist) {
		return st.d.fs.Rename(old, st.path)
	}
	return st.d.removeAll(old)
}

func (st *staging) end() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.ended = true
	st.d.release(st.tmp)
}

// Discard implements statestore.Staging.
func (st *staging) Discard() error {
	if st.alive("discard") != nil {
		return nil
	}
	if st.d.isOpen(st.openClaim()) {
		return st.fault("discard", errors.New("the staged store is open; close it first"))
	}
	st.end()
	if err := st.d.removeAll(st.tmp); err != nil {
		return st.fault("discard", err)
	}
	return nil
}

func (d *Dir) isOpen(path string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open[path]
}

// Quarantine implements statestore.Dir.
func (d *Dir) Quarantine(id statestore.Identity) (string, error) {
	path, err := d.dbPath(id)
	if err != nil {
		return "", err
	}
	if err := d.claim("quarantine", path); err != nil {
		return "", err
	}
	defer d.release(path)
	where := path + quarantineSuffix
	moved, err := d.replace(path, where)
	if err != nil {
		return "", fmt.Errorf("quarantine state store %s: %w", path, err)
	}
	if !moved {
		return "", nil
	}
	return where, nil
}
