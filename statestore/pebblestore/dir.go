// Package pebblestore keeps state stores in Pebble, one DB per subtask, below one state directory:
//
//	<path>/LOCK                          held by the one process that uses the directory
//	<path>/FORMAT                        layout version and app id
//	<path>/INSTANCE                      the static group member id
//	<path>/<incarnation>/<subtask>/      a Pebble DB
//	<path>/<incarnation>/<subtask>.*     beside it: .snapshots, .staged, .wiped, .bulk are removed when the directory is opened,
//	                                     .quarantined holds a damaged store until the next one
//
// The write-ahead log is off: the changelog topics are the log. What a Flush has written survives a crash, always
// up to the end of some committed batch. All DBs of a Dir share a block cache, a file cache and a compaction limit.
package pebblestore

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/statestore"
)

// Options of OpenDir. The zero value is usable.
type Options struct {
	FS         vfs.FS       // nil: the real file system
	CacheBytes int64        // of the block cache of all stores together; 0: 64 MiB
	Logger     *slog.Logger // nil: silent
	// MinFreeBytes is what must stay free on the disk: below it Commit and Flush answer ErrNoSpace instead of running
	// into a full disk. 0: 64 MiB; negative: off.
	MinFreeBytes int64
	// Lent is told how many bytes of CacheBytes all stores together lend to others (statestore.Lender), whenever that changes; by
	// one goroutine at a time. nil: nobody wants to know.
	Lent func(bytes int64)
}

const (
	defaultCacheBytes   = 64 << 20
	defaultMinFreeBytes = 64 << 20
	openFiles           = 1000 // in the file cache of all stores together
)

// layoutVersion is what FORMAT holds. It goes up with every change that an older version cannot read, a higher
// formatMajorVersion included.
const layoutVersion = 1

const (
	lockFile     = "LOCK"
	formatFile   = "FORMAT"
	instanceFile = "INSTANCE"
	tmpSuffix    = ".tmp"

	wipedSuffix      = ".wiped"
	snapshotsSuffix  = ".snapshots"
	stagedSuffix     = ".staged"
	bulkSuffix       = ".bulk"
	quarantineSuffix = ".quarantined"
)

// Dir is an open state directory. It implements statestore.Dir and is safe for concurrent use; of its Stores each
// belongs to one goroutine.
type Dir struct {
	path, app   string
	fs          vfs.FS
	minFree     int64
	log         *slog.Logger
	lock        io.Closer
	cache       *pebble.Cache
	files       *pebble.FileCache
	compactions *compactions

	onLent func(int64)
	lendMu sync.Mutex
	lent   int64

	mu        sync.Mutex
	open      map[string]bool   // by path of the DB, or of what is staged
	snapshots int               // made so far
	instances map[string]string // Snapshot.Instance of the stores that were opened, by path
	closed    bool
}

var _ statestore.Dir = (*Dir)(nil)

// OpenDir opens the state directory of an app and makes it if it is not there. Errors: ErrLocked if another process
// (or another Dir of this one) has it, ErrForeign if it belongs to another app or holds other files, ErrFormat if a
// newer version wrote it, ErrCorrupt, ErrNoSpace.
func OpenDir(path, app string, o Options) (*Dir, error) {
	if path == "" || app == "" {
		return nil, fmt.Errorf("open state directory: path %q and app id %q must not be empty", path, app)
	}
	d := &Dir{path: path, app: app, fs: o.FS, minFree: o.MinFreeBytes, onLent: o.Lent, log: o.Logger, open: map[string]bool{}, instances: map[string]string{}}
	if d.fs == nil {
		d.fs = vfs.Default
		abs, err := filepath.Abs(path) // the lock is kept by name
		if err != nil {
			return nil, fmt.Errorf("open state directory %s: %w", path, err)
		}
		d.path = abs
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if d.minFree == 0 {
		d.minFree = defaultMinFreeBytes
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = defaultCacheBytes
	}
	if err := d.makeDir(d.path); err != nil {
		return nil, d.fault("make", err)
	}
	lock, err := d.fs.Lock(d.fs.PathJoin(d.path, lockFile))
	if err != nil {
		if !isHeld(err) {
			return nil, d.fault("lock", err)
		}
		return nil, fmt.Errorf("open state directory %s: %w (%w); stop the other process, or give this one its own state.dir",
			d.path, statestore.ErrLocked, err)
	}
	d.lock = lock
	if err := d.checkFormat(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if err := d.removeGarbage(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	d.cache = pebble.NewCache(o.CacheBytes)
	d.files = pebble.NewFileCache(runtime.GOMAXPROCS(0), openFiles)
	d.compactions = newCompactions(max(2, runtime.GOMAXPROCS(0)/2))
	return d, nil
}

// isHeld says whether a lock could not be taken because someone has it: fcntl says so with a plain EAGAIN or EACCES
// (with a path it is a missing permission), vfs with a text if it is this process.
func isHeld(err error) bool {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return false
	}
	return errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) ||
		strings.Contains(err.Error(), "lock held by current process")
}

type format struct {
	Format int    `json:"format"`
	App    string `json:"app"`
}

// checkFormat compares the format file, or makes it in a directory that holds nothing else.
func (d *Dir) checkFormat() error {
	data, err := d.readFile(formatFile)
	if errors.Is(err, fs.ErrNotExist) {
		names, err := d.fs.List(d.path)
		if err != nil {
			return d.fault("list", err)
		}
		names = slices.DeleteFunc(names, func(n string) bool {
			// Files that a crash can leave before the format file is there, and what file systems put into an empty volume.
			return n == lockFile || strings.HasSuffix(n, tmpSuffix) || strings.HasPrefix(n, ".") || n == "lost+found"
		})
		if len(names) > 0 {
			slices.Sort(names)
			return fmt.Errorf("open state directory %s: %w: it has no %s file but holds %s; choose an empty directory",
				d.path, statestore.ErrForeign, formatFile, strings.Join(names[:min(3, len(names))], ", "))
		}
		data, err := json.Marshal(format{layoutVersion, d.app})
		if err != nil {
			return d.fault("make", err)
		}
		return d.writeFile(formatFile, append(data, '\n'))
	}
	if err != nil {
		return d.fault("read", err)
	}
	var f format
	if err := json.Unmarshal(data, &f); err != nil || f.Format < 1 || f.App == "" {
		return fmt.Errorf("open state directory %s: %w: its %s file holds %q; empty the directory, state is restored from the changelogs",
			d.path, statestore.ErrCorrupt, formatFile, data)
	}
	if f.Format > layoutVersion {
		return fmt.Errorf("open state directory %s: %w: format %d, this version reads up to %d; "+
			"run the newer version again, or empty the directory and state is restored from the changelogs",
			d.path, statestore.ErrFormat, f.Format, layoutVersion)
	}
	if f.App != d.app {
		return fmt.Errorf("open state directory %s: %w: it is app %q's, this is app %q; give each app its own state.dir",
			d.path, statestore.ErrForeign, f.App, d.app)
	}
	return nil
}

// fault gives an error of the directory itself its form.
func (d *Dir) fault(verb string, err error) error {
	if isNoSpace(err) {
		return fmt.Errorf("%s state directory %s: %w (%w); free some space", verb, d.path, statestore.ErrNoSpace, err)
	}
	return fmt.Errorf("%s state directory %s: %w", verb, d.path, err)
}

func (d *Dir) readFile(name string) ([]byte, error) {
	f, err := d.fs.Open(d.fs.PathJoin(d.path, name))
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(f)
	return data, errors.Join(err, f.Close())
}

// writeFile writes a small file so that it is there as a whole or not at all, also after a crash.
func (d *Dir) writeFile(name string, data []byte) error {
	path := d.fs.PathJoin(d.path, name)
	f, err := d.fs.Create(path+tmpSuffix, vfs.WriteCategoryUnspecified)
	if err != nil {
		return d.fault("write", err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = d.fs.Rename(path+tmpSuffix, path)
	}
	if err == nil {
		err = d.syncDir(d.path)
	}
	if err != nil {
		return d.fault("write", err)
	}
	return nil
}

// makeDir makes a folder and those above it, so that they outlive a crash.
func (d *Dir) makeDir(path string) error {
	var above []string // folders that get a new entry
	for p := path; ; p = d.fs.PathDir(p) {
		if _, err := d.fs.Stat(p); !errors.Is(err, fs.ErrNotExist) || p == d.fs.PathDir(p) {
			break
		}
		above = append(above, d.fs.PathDir(p))
	}
	if err := d.fs.MkdirAll(path, 0o755); err != nil {
		return err
	}
	for _, p := range above {
		if err := d.syncDir(p); err != nil {
			return err
		}
	}
	return nil
}

func (d *Dir) syncDir(path string) error {
	f, err := d.fs.OpenDir(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func isGarbage(name string) bool {
	subtask, suffix, _ := strings.Cut(name, ".")
	if _, err := record.ParseSubtaskID(subtask); err != nil {
		return false
	}
	return slices.ContainsFunc([]string{wipedSuffix, stagedSuffix, snapshotsSuffix, bulkSuffix}, func(s string) bool {
		return strings.HasSuffix("."+suffix, s)
	})
}

// dbPath is where the DB of id is.
func (d *Dir) dbPath(id statestore.Identity) (path string, err error) {
	if _, err := record.ParseSubtaskID(id.Subtask); err != nil {
		return "", fmt.Errorf("state store below %s: %w", d.path, err)
	}
	if id.App != d.app {
		return "", fmt.Errorf("state store of subtask %s below %s: %w: app %q, the directory is app %q's",
			id.Subtask, d.path, statestore.ErrForeign, id.App, d.app)
	}
	return d.fs.PathJoin(d.path, strconv.FormatUint(id.Incarnation, 10), id.Subtask), nil
}

// claim takes the DB at path for one user in this process.
func (d *Dir) claim(verb, path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return fmt.Errorf("%s state store %s: the state directory is closed", verb, path)
	}
	if d.open[path] {
		return fmt.Errorf("%s state store %s: it is open in this process; close it first", verb, path)
	}
	d.open[path] = true
	return nil
}

// noteLent is told by how much what the stores lend has changed.
func (d *Dir) noteLent(change int64) {
	d.lendMu.Lock()
	defer d.lendMu.Unlock()
	if d.lent += change; d.onLent != nil && change != 0 {
		d.onLent(d.lent)
	}
}

func (d *Dir) release(path string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, path)
}

// instance is the Snapshot.Instance of the store at path: the same over openings, as long as its folder is. Pebble never
// uses the number of a file in a snapshot again: the MANIFEST that names the file names the next number too.
func (d *Dir) instance(path string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.instances[path] == "" {
		d.instances[path] = rand.Text()
	}
	return d.instances[path]
}

// newInstance: what is at path from now on is not what was there, or nobody knows.
func (d *Dir) newInstance(path string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.instances, path)
}

// Open implements statestore.Dir. Errors: ErrForeign if the store was made for another identity (the message says what
// differs), ErrCorrupt if it is damaged and should be wiped, ErrNoSpace.
func (d *Dir) Open(id statestore.Identity) (statestore.Store, error) {
	path, err := d.dbPath(id)
	if err != nil {
		return nil, err
	}
	if err := d.claim("open", path); err != nil {
		return nil, err
	}
	s, err := d.openStore(id, path)
	if err != nil {
		d.release(path)
		return nil, err
	}
	return s, nil
}

// Subtasks implements statestore.Dir.
func (d *Dir) Subtasks(incarnation uint64) ([]string, error) {
	path := d.fs.PathJoin(d.path, strconv.FormatUint(incarnation, 10))
	names, err := d.fs.List(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list state stores in %s: %w", path, err)
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		_, err := record.ParseSubtaskID(name)
		return err != nil // what lies beside the stores
	})
	slices.Sort(names)
	return names, nil
}

// Wipe implements statestore.Dir. After a crash in the middle the store is either whole or gone.
func (d *Dir) Wipe(id statestore.Identity) error {
	path, err := d.dbPath(id)
	if err != nil {
		return err
	}
	if err := d.claim("wipe", path); err != nil {
		return err
	}
	defer d.release(path)
	gone := path + wipedSuffix
	moved, err := d.replace(path, gone)
	if err == nil && moved {
		err = d.removeAll(gone)
	}
	if err != nil {
		return fmt.Errorf("wipe state store %s: %w", path, err)
	}
	return nil
}

// replace moves a folder to where another one may be, which is removed; moved is false if there is nothing to move.
func (d *Dir) replace(from, to string) (moved bool, err error) {
	d.newInstance(from)
	d.newInstance(to)
	if _, err := d.fs.Stat(from); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err := d.removeAll(to); err != nil {
		return false, err
	}
	if err := d.fs.Rename(from, to); err != nil {
		return false, err
	}
	return true, d.syncDir(d.fs.PathDir(from))
}

func (d *Dir) removeAll(path string) error {
	if err := d.fs.RemoveAll(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// removeGarbage removes what an earlier process left half-done: wiped and staged stores and snapshots. If that fails the
// space is not free, but nothing reads it.
func (d *Dir) removeGarbage() error {
	incarnations, err := d.fs.List(d.path)
	if err != nil {
		return d.fault("list", err)
	}
	for _, incarnation := range incarnations {
		if _, err := strconv.ParseUint(incarnation, 10, 64); err != nil {
			continue
		}
		folder := d.fs.PathJoin(d.path, incarnation)
		names, err := d.fs.List(folder)
		if err != nil {
			return d.fault("list", err)
		}
		for _, name := range names {
			if !isGarbage(name) {
				continue
			}
			if err := d.removeAll(d.fs.PathJoin(folder, name)); err != nil {
				d.log.Warn("remove what an earlier process left in the state directory",
					slog.String("path", d.fs.PathJoin(folder, name)), slog.Any("error", err))
			}
		}
	}
	return nil
}

// InstanceID implements statestore.Dir.
func (d *Dir) InstanceID() (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return "", fmt.Errorf("read instance id in %s: the state directory is closed", d.path)
	}
	data, err := d.readFile(instanceFile)
	if errors.Is(err, fs.ErrNotExist) {
		id := strings.ToLower(rand.Text())
		return id, d.writeFile(instanceFile, []byte(id+"\n"))
	}
	if err != nil {
		return "", d.fault("read instance id in", err)
	}
	id := strings.TrimSuffix(string(data), "\n")
	legal := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r)
	}
	if id == "" || len(id) > 249 || strings.ContainsFunc(id, func(r rune) bool { return !legal(r) }) {
		return "", fmt.Errorf("read instance id in %s: %w: %s holds %q; remove the file and a new one is made",
			d.path, statestore.ErrCorrupt, instanceFile, data)
	}
	return id, nil
}

// Close implements statestore.Dir. All stores must be closed before; else it says which is open, and changes nothing.
func (d *Dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	for path := range d.open {
		return fmt.Errorf("close state directory %s: store %s is still open; close it first", d.path, path)
	}
	d.closed = true
	d.files.Unref()
	d.cache.Unref()
	if err := d.lock.Close(); err != nil {
		return d.fault("unlock", err)
	}
	return nil
}
