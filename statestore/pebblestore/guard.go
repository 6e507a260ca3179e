package pebblestore

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// failure is the first thing that went wrong for good with one store. Once it is set, the store writes no more.
type failure struct {
	once sync.Once
	ch   chan struct{} // closed when err is set
	err  error
	log  func(error)
}

func newFailure(log func(error)) *failure { return &failure{ch: make(chan struct{}), log: log} }

func (f *failure) set(err error) {
	f.once.Do(func() {
		f.err = err
		close(f.ch)
		f.log(err)
	})
}

func (f *failure) get() error {
	select {
	case <-f.ch:
		return f.err
	default:
		return nil
	}
}

// guardFS is the file system that one Pebble DB writes through. The first write that fails freezes it: every later
// change of the disk is refused, so that the disk holds what a kill of the process at that moment would have left.
// Pebble is built to recover from exactly that. Without the freeze it would try again and again, go on after a
// MANIFEST write of unknown outcome (its Logger.Fatalf is meant to end the process; ours must not), or remove a file
// that the MANIFEST on disk still names.
//
// Reads go through untouched.
type guardFS struct {
	vfs.FS
	fail *failure
	// Refused writes pause once the store is open, until it closes: only background work tries again.
	opened  atomic.Bool
	closing chan struct{}
	// apart is the folder of snapshots. What fails in it is told to who makes one and concerns the store no further. A
	// snapshot need not outlive the process, so nothing in it is synced: the store's own syncs shall not wait for those.
	apart string
}

func (g *guardFS) isApart(name string) bool { return strings.HasPrefix(name, g.apart) }

// apartFile is a file or folder of a snapshot.
type apartFile struct{ vfs.File }

func (apartFile) Sync() error                { return nil }
func (apartFile) SyncData() error            { return nil }
func (apartFile) SyncTo(int64) (bool, error) { return false, nil }

// errFrozen is what Pebble gets for a write after the first failed one.
var errFrozen = errors.New("the store stopped writing after an earlier failure")

// frozenPause slows the retries of Pebble's background work, which it starts again as soon as it fails.
const frozenPause = time.Second

func (g *guardFS) frozen() error {
	if g.fail.get() == nil {
		return nil
	}
	if g.opened.Load() {
		select {
		case <-g.closing:
		case <-time.After(frozenPause):
		}
	}
	return errFrozen
}

// do runs a change of the name space of the file system.
func (g *guardFS) do(name string, op func() error) error {
	if g.isApart(name) {
		return op()
	}
	if err := g.frozen(); err != nil {
		return err
	}
	err := op()
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
		g.fail.set(err)
	}
	return err
}

func (g *guardFS) file(name string, open func() (vfs.File, error)) (vfs.File, error) {
	if g.isApart(name) {
		f, err := open()
		return apartFile{f}, err
	}
	var f vfs.File
	err := g.do(name, func() (err error) {
		f, err = open()
		return err
	})
	if err != nil {
		return nil, err
	}
	return &guardFile{f, g}, nil
}

func (g *guardFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return g.file(name, func() (vfs.File, error) { return g.FS.Create(name, c) })
}

func (g *guardFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	return g.file(name, func() (vfs.File, error) { return g.FS.OpenReadWrite(name, c, o...) })
}

func (g *guardFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return g.file(newname, func() (vfs.File, error) { return g.FS.ReuseForWrite(oldname, newname, c) })
}

// OpenDir opens a directory for its Sync.
func (g *guardFS) OpenDir(name string) (vfs.File, error) {
	f, err := g.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	if g.isApart(name) {
		return apartFile{f}, nil
	}
	return &guardDir{f, g}, nil
}

func (g *guardFS) Link(oldname, newname string) error {
	return g.do(newname, func() error { return g.FS.Link(oldname, newname) })
}

func (g *guardFS) Rename(oldname, newname string) error {
	return g.do(newname, func() error { return g.FS.Rename(oldname, newname) })
}

func (g *guardFS) MkdirAll(dir string, perm os.FileMode) error {
	return g.do(dir, func() error { return g.FS.MkdirAll(dir, perm) })
}

// Remove and RemoveAll are refused when frozen; their own failure harms nothing.

func (g *guardFS) Remove(name string) error {
	if !g.isApart(name) {
		if err := g.frozen(); err != nil {
			return err
		}
	}
	return g.FS.Remove(name)
}

func (g *guardFS) RemoveAll(name string) error {
	if !g.isApart(name) {
		if err := g.frozen(); err != nil {
			return err
		}
	}
	return g.FS.RemoveAll(name)
}

func (g *guardFS) Unwrap() vfs.FS { return g.FS }

// guardDir is a directory opened for its Sync. Pebble panics when that fails, for it cannot know what is on disk; here
// it is told that all is well. Nothing it then does reaches the disk, and who waits for a write looks at the failure
// before he believes that it is there.
type guardDir struct {
	vfs.File
	g *guardFS
}

func (f *guardDir) Sync() error {
	if f.g.fail.get() != nil {
		return nil
	}
	if err := f.File.Sync(); err != nil {
		f.g.fail.set(err)
	}
	return nil
}

// guardFile is a file opened for writing.
type guardFile struct {
	vfs.File
	g *guardFS
}

func (f *guardFile) do(op func() error) error {
	if err := f.g.frozen(); err != nil {
		return err
	}
	err := op()
	if err != nil {
		f.g.fail.set(err)
	}
	return err
}

func (f *guardFile) Write(p []byte) (n int, err error) {
	err = f.do(func() (err error) {
		n, err = f.File.Write(p)
		return err
	})
	return n, err
}

func (f *guardFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.do(func() (err error) {
		n, err = f.File.WriteAt(p, off)
		return err
	})
	return n, err
}

func (f *guardFile) Sync() error     { return f.do(f.File.Sync) }
func (f *guardFile) SyncData() error { return f.do(f.File.SyncData) }

func (f *guardFile) SyncTo(length int64) (full bool, err error) {
	err = f.do(func() (err error) {
		full, err = f.File.SyncTo(length)
		return err
	})
	return full, err
}
