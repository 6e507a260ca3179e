package blob

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// dir is a Store in a folder: a blob is a file, its key the path. A blob is written to a temporary file beside its place
// ("~random~name": "~" is in no key), flushed to the disk, and then renamed or, by Create, linked, which fails where there
// is a file. Last the folder is flushed, so that a blob that was reported survives a loss of power.
type dir struct {
	url  URL
	root string
	lim  *limiter

	mu   sync.Mutex
	busy map[string]bool // temporary files that we are writing, by path
}

func openDir(u URL, o Options) (Store, error) {
	d := &dir{url: u, root: u.Dir, lim: newLimiter(o.BytesPerSecond), busy: map[string]bool{}}
	if err := mkdirs(d.root); err != nil {
		return nil, d.fail("open", "", err)
	}
	return d, nil
}

func (d *dir) String() string { return d.url.String() }

func (d *dir) Close() error { return nil }

func (d *dir) path(key string) string { return filepath.Join(d.root, filepath.FromSlash(key)) }

// fail wraps what the operating system said.
func (d *dir) fail(op, key string, err error) error {
	e := &Error{Op: op, Key: key, Store: d.String(), Err: err}
	switch {
	case errors.Is(err, context.Canceled):
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS):
		e.kind, e.Next = kindDenied, "give the user of this process the right to read and write there"
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		e.kind, e.Next = kindRetryable, "make room on that file system"
	case errors.Is(err, context.DeadlineExceeded):
		e.kind = kindRetryable
	case errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ESTALE) || errors.Is(err, syscall.ETIMEDOUT):
		e.kind, e.Next = kindRetryable, "look whether the disk or the mount is well"
	case errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR):
		e.Next = "a file and a folder have the same name: remove what Millrace did not write"
	}
	return e
}

func (d *dir) Put(ctx context.Context, key string, b Body) error {
	err := d.write(ctx, key, b, os.Rename)
	if err != nil {
		return d.fail("put", key, err)
	}
	return nil
}

func (d *dir) Create(ctx context.Context, key string, data []byte) error {
	if err := checkSmall(int64(len(data))); err != nil {
		return d.fail("create", key, err)
	}
	err := d.write(ctx, key, Bytes(data), func(tmp, file string) error {
		err := os.Link(tmp, file)
		switch {
		case err == nil:
			return os.Remove(tmp)
		case errors.Is(err, fs.ErrExist):
			// A network file system repeats a request whose answer was lost, and then finds its own link.
			if mine, err := os.Stat(tmp); err == nil {
				if there, err := os.Stat(file); err == nil && os.SameFile(mine, there) {
					return os.Remove(tmp)
				}
			}
			return ErrExists
		case errors.Is(err, syscall.EPERM) || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EMLINK):
			return fmt.Errorf("%w: this file system has no hard links, by which a file is created only where there is none: use another, or S3", err)
		default:
			return err
		}
	})
	if err != nil {
		return d.fail("create", key, err)
	}
	return nil
}

// write a temporary file and move it into place.
func (d *dir) write(ctx context.Context, key string, b Body, move func(tmp, file string) error) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	file := d.path(key)
	folder, name := filepath.Split(file)
	tmp := filepath.Join(folder, "~"+rand.Text()+"~"+name)
	d.setBusy(tmp, true)
	defer d.setBusy(tmp, false)
	out, err := d.create(folder, tmp)
	if err != nil {
		return err
	}
	if err := d.fill(ctx, out, b); err != nil {
		_, _ = out.Close(), os.Remove(tmp)
		return err
	}
	if err := out.Close(); err != nil {
		_ = os.Remove(tmp)
		return err
	}
	if err := move(tmp, file); err != nil {
		_ = os.Remove(tmp)
		return err
	}
	return syncDir(folder)
}

// create a file in a folder that may have to be made. Delete removes folders that it emptied, perhaps right now.
func (d *dir) create(folder, file string) (*os.File, error) {
	for try := 0; ; try++ {
		// Only Open makes the root: when it is gone, something is wrong with it.
		if _, err := os.Stat(d.root); err != nil {
			return nil, err
		}
		if err := mkdirs(folder); err != nil {
			return nil, err
		}
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err == nil || !errors.Is(err, fs.ErrNotExist) || try == 10 {
			return f, err
		}
	}
}

// fill writes the body to the disk.
func (d *dir) fill(ctx context.Context, out *os.File, b Body) error {
	in, err := b.Open()
	if err != nil {
		return err
	}
	defer in.Close()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(paced{ctx, d.lim, out}, h), readerOnly{in})
	if err != nil {
		return err
	}
	if err := differs(n, h.Sum(nil), b.Size, b.SHA256); err != nil {
		return err
	}
	return out.Sync()
}

// readerOnly hides WriteTo, by which a reader would hand over everything in one piece.
type readerOnly struct{ io.Reader }

// paced writes at the pace of a limiter, until its context ends.
type paced struct {
	ctx context.Context
	lim *limiter
	w   io.Writer
}

func (p paced) Write(b []byte) (int, error) {
	done := 0
	for done < len(b) {
		if err := p.ctx.Err(); err != nil {
			return done, err
		}
		piece := p.lim.cut(b[done:])
		if err := p.lim.wait(p.ctx, len(piece)); err != nil {
			return done, err
		}
		n, err := p.w.Write(piece)
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

func (d *dir) setBusy(tmp string, on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if on {
		d.busy[tmp] = true
	} else {
		delete(d.busy, tmp)
	}
}

// mkdirs makes a folder and those above it, each on the disk when it returns.
func mkdirs(folder string) error {
	folder = filepath.Clean(folder)
	info, err := os.Stat(folder)
	if err == nil {
		if !info.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: folder, Err: syscall.ENOTDIR}
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(folder)
	if err := mkdirs(parent); err != nil {
		return err
	}
	if err := os.Mkdir(folder, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the parent was just removed again; the caller will find out and repeat
		}
		return err
	}
	return syncDir(parent)
}

// syncDir flushes the names in a folder.
func syncDir(folder string) error {
	f, err := os.Open(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed again
	}
	if err != nil {
		return err
	}
	defer f.Close()
	// Some mounted file systems know no flush of folders.
	if err := f.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

func checkSmall(size int64) error {
	if size > MaxSmall {
		return fmt.Errorf("%d bytes are more than the %d that are read and created in one piece", size, MaxSmall)
	}
	return nil
}

// open a blob's file.
func (d *dir) open(ctx context.Context, key string) (*os.File, fs.FileInfo, error) {
	if err := cmp.Or(CheckKey(key), ctx.Err()); err != nil {
		return nil, nil, err
	}
	f, err := os.Open(d.path(key))
	if err != nil {
		return nil, nil, notFound(err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = ErrNotFound
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// notFound turns the system's words for a missing file into ours. "Not a directory" is what it says of a key below a blob.
func notFound(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return ErrNotFound
	}
	return err
}

func (d *dir) Get(ctx context.Context, key string) ([]byte, error) {
	f, info, err := d.open(ctx, key)
	if err != nil {
		return nil, d.fail("get", key, err)
	}
	defer f.Close()
	if err := checkSmall(info.Size()); err != nil {
		return nil, d.fail("get", key, err)
	}
	data, err := io.ReadAll(reader{ctx, f, d, key})
	if err == nil && int64(len(data)) != info.Size() {
		err = d.fail("get", key, fmt.Errorf("the file has %d bytes, not %d: %w", len(data), info.Size(), io.ErrUnexpectedEOF))
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}

func (d *dir) Open(ctx context.Context, key string, offset int64) (io.ReadCloser, error) {
	f, info, err := d.open(ctx, key)
	if err != nil {
		return nil, d.fail("open", key, err)
	}
	if err := checkOffset(offset, info.Size()); err != nil {
		_ = f.Close()
		return nil, d.fail("open", key, err)
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		_ = f.Close()
		return nil, d.fail("open", key, err)
	}
	return reader{ctx, f, d, key}, nil
}

func checkOffset(offset, size int64) error {
	if offset < 0 || offset > size {
		return fmt.Errorf("offset %d is outside of its %d bytes", offset, size)
	}
	return nil
}

// reader of a blob, until its context ends.
type reader struct {
	ctx context.Context
	f   *os.File
	d   *dir
	key string
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, r.d.fail("read", r.key, err)
	}
	n, err := r.f.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = r.d.fail("read", r.key, err)
	}
	return n, err
}

func (r reader) Close() error { return r.f.Close() }

func (d *dir) Stat(ctx context.Context, key string) (Info, error) {
	if err := cmp.Or(CheckKey(key), ctx.Err()); err != nil {
		return Info{}, d.fail("stat", key, err)
	}
	info, err := os.Stat(d.path(key))
	if err == nil && !info.Mode().IsRegular() {
		err = ErrNotFound
	}
	if err != nil {
		return Info{}, d.fail("stat", key, notFound(err))
	}
	return Info{Key: key, Size: info.Size(), Modified: info.ModTime()}, nil
}

func (d *dir) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		err := d.walk(ctx, prefix, func(key, tmp string, info fs.FileInfo) bool {
			return tmp != "" || yield(Info{Key: key, Size: info.Size(), Modified: info.ModTime()}, nil)
		})
		if err != nil {
			yield(Info{}, d.fail("list", prefix, err))
		}
	}
}

// walk calls fn for each file whose key starts with prefix, in the order of keys, until it returns false. tmp is the path of
// a temporary file, and then key is the blob that it was to become.
func (d *dir) walk(ctx context.Context, prefix string, fn func(key, tmp string, info fs.FileInfo) bool) error {
	if err := checkPrefix(prefix); err != nil {
		return err
	}
	if _, err := os.Stat(d.root); err != nil {
		return err // an unmounted disk is not an empty one
	}
	_, err := d.walkFolder(ctx, path.Dir(prefix+"x"), prefix, fn)
	return err
}

// walkFolder walks the folder of a key ("." is the root) and says whether to go on.
func (d *dir) walkFolder(ctx context.Context, folder, prefix string, fn func(key, tmp string, info fs.FileInfo) bool) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	entries, err := os.ReadDir(d.path(folder))
	if err != nil {
		if errors.Is(notFound(err), ErrNotFound) {
			return true, nil
		}
		return false, err
	}
	// A folder stands where its keys do: "a-b" comes before "a/b", although "a" comes before "a-b".
	sortName := func(e fs.DirEntry) string {
		if e.IsDir() {
			return e.Name() + "/"
		}
		return e.Name()
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(sortName(a), sortName(b)) })
	for _, e := range entries {
		name, tmp := e.Name(), ""
		if rest, ok := strings.CutPrefix(name, "~"); ok {
			tmp = filepath.Join(d.path(folder), name)
			_, name, _ = strings.Cut(rest, "~")
		}
		key := path.Join(folder, name)
		if checkPath(name) != "" || strings.Contains(name, "/") {
			continue // not ours
		}
		switch {
		case e.IsDir() && tmp == "":
			if !strings.HasPrefix(key+"/", prefix) && !strings.HasPrefix(prefix, key+"/") {
				continue
			}
			if more, err := d.walkFolder(ctx, key, prefix, fn); err != nil || !more {
				return false, err
			}
		case e.Type().IsRegular() && strings.HasPrefix(key, prefix):
			info, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue // deleted meanwhile
			}
			if err != nil {
				return false, err
			}
			if !fn(key, tmp, info) {
				return false, nil
			}
		}
	}
	return true, nil
}

func (d *dir) Delete(ctx context.Context, keys ...string) error {
	var first error
	for _, key := range keys {
		if err := d.remove(ctx, key); err != nil && first == nil {
			first = d.fail("delete", key, err)
		}
	}
	return first
}

func (d *dir) remove(ctx context.Context, key string) error {
	if err := cmp.Or(CheckKey(key), ctx.Err()); err != nil {
		return err
	}
	info, err := os.Lstat(d.path(key))
	if err == nil && info.IsDir() {
		return nil // no blob
	}
	if err := os.Remove(d.path(key)); err != nil && !errors.Is(notFound(err), ErrNotFound) {
		return err
	}
	// Folders are no blobs: empty ones go. The system refuses to remove others.
	for folder := path.Dir(key); folder != "."; folder = path.Dir(folder) {
		if err := os.Remove(d.path(folder)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return nil
}

func (d *dir) Uploads(ctx context.Context, prefix string, olderThan time.Duration) ([]Upload, error) {
	var all []Upload
	err := d.walk(ctx, prefix, func(key, tmp string, info fs.FileInfo) bool {
		if tmp != "" && time.Since(info.ModTime()) >= olderThan {
			all = append(all, Upload{Key: key, ID: filepath.Base(tmp), Started: info.ModTime()})
		}
		return true
	})
	if err != nil {
		return nil, d.fail("list unfinished uploads of", prefix, err)
	}
	return all, nil
}

func (d *dir) AbortUploads(ctx context.Context, prefix string, olderThan time.Duration) ([]Upload, error) {
	found, err := d.Uploads(ctx, prefix, olderThan)
	if err != nil {
		return nil, err
	}
	var aborted []Upload
	for _, u := range found {
		tmp := filepath.Join(filepath.Dir(d.path(u.Key)), u.ID)
		d.mu.Lock()
		busy := d.busy[tmp]
		d.mu.Unlock()
		if busy {
			continue
		}
		if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return aborted, d.fail("abort upload of", u.Key, err)
		}
		aborted = append(aborted, u)
	}
	return aborted, nil
}

func (d *dir) Check(ctx context.Context) error { return check(ctx, d) }

// check proves what Store.Check promises.
func check(ctx context.Context, s Store) error {
	key := "check/" + rand.Text()
	data := []byte("written by Millrace to check access; may be deleted: " + key)
	if err := s.Create(ctx, key, data); err != nil {
		return err
	}
	err := checkRest(ctx, s, key, data)
	if e := s.Delete(ctx, key); err == nil {
		err = e
	}
	if err == nil {
		if _, e := s.Stat(ctx, key); !errors.Is(e, ErrNotFound) {
			err = cmp.Or(e, error(&Error{Op: "check", Key: key, Store: s.String(), Err: errors.New("it is still there after it was deleted"),
				Next: "look whether the bucket keeps objects from being deleted (object lock, legal hold)"}))
		}
	}
	return err
}

func checkRest(ctx context.Context, s Store, key string, data []byte) error {
	fail := func(next, format string, args ...any) error {
		return &Error{Op: "check", Key: key, Store: s.String(), Err: fmt.Errorf(format, args...), Next: next}
	}
	switch err := s.Create(ctx, key, []byte("a second writer")); {
	case err == nil:
		return fail("take a server that supports conditional writes (If-None-Match)", "it was created twice: the server ignores the condition, and two owners of a subtask could both publish a checkpoint")
	case !errors.Is(err, ErrExists):
		return err
	}
	got, err := s.Get(ctx, key)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, data) {
		return fail("", "read back %d other bytes than the %d written: %w", len(got), len(data), ErrCorrupt)
	}
	listed := false
	for info, err := range s.List(ctx, key) {
		if err != nil {
			return err
		}
		listed = listed || info.Key == key
	}
	if !listed {
		return fail("take a server whose listings show what was written before: by them the newest checkpoint is found", "the listing does not show it")
	}
	_, err = s.Uploads(ctx, key, 0)
	return err
}
