package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/internal/failpoint"
	"github.com/millrace-stream/millrace/statestore"
)

// RestoreOptions of Restore. The zero value is usable.
type RestoreOptions struct {
	// Parallel is how many files are downloaded at once, each with a buffer of 256 KiB: 8 if 0, and as many as Slots has.
	Parallel int
	// Slots are shared with other restores; nil = with none.
	Slots *Slots
	// Behind lets all others go first that do not ask for that: nobody waits for this restore.
	Behind bool
	// Progress is told the bytes downloaded so far and those of all files, from several goroutines.
	Progress func(done, total int64)
}

const defaultDownloads = 8

// FileError says that one file of a checkpoint or savepoint cannot be had. With ErrMissing or ErrCorrupt the checkpoint is of
// no use, and the next way of restoring is to be taken; with other errors it may be tried again.
type FileError struct {
	File string
	Blob string // key
	Err  error  // ErrMissing, ErrCorrupt, or the blob store's
}

func (e *FileError) Error() string { return fmt.Sprintf("file %s, blob %s: %v", e.File, e.Blob, e.Err) }

// Unwrap returns the cause.
func (e *FileError) Unwrap() error { return e.Err }

// IsUnusable says whether an error of Restore, Load or Verify means that a checkpoint or savepoint is damaged for good.
func IsUnusable(err error) bool {
	return errors.Is(err, ErrMissing) || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrFormat) || errors.Is(err, statestore.ErrCorrupt)
}

// Restore downloads a checkpoint and puts it in the place of the subtask's store in dir, which must be closed. Each file is
// compared with its hash on the way. On an error dir is as before. It takes no account of the changelog: see Resolve.
// Errors: *FileError; statestore.ErrNoSpace; ctx's.
func Restore(ctx context.Context, blobs blob.Store, m *Manifest, dir statestore.Dir, o RestoreOptions) (err error) {
	fail := func(err error) error {
		return fmt.Errorf("restore subtask %s from the checkpoint of epoch %d: %w", m.Subtask, m.Epoch, err)
	}
	if m.Kind != KindCheckpoint || !dir.Reads(m.StoreFormat) {
		return fail(fmt.Errorf("%w: a %s in store format %s", ErrFormat, m.Kind, m.StoreFormat))
	}
	st, err := dir.Stage(m.Identity())
	if err != nil {
		return fail(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, st.Discard())
		}
	}()
	if o.Parallel <= 0 {
		o.Parallel = defaultDownloads
	}
	var rank uint64
	if o.Slots != nil {
		o.Parallel = o.Slots.n
		rank = o.Slots.rank(o.Behind)
	}
	total := m.Bytes()
	var done atomic.Int64
	tell := func(n int) {
		if d := done.Add(int64(n)); o.Progress != nil {
			o.Progress(d, total)
		}
	}
	prefix := Prefix(m.Identity())
	err = parallel(ctx, o.Parallel, m.Files, func(ctx context.Context, f File) error {
		if o.Slots != nil {
			if err := o.Slots.acquire(ctx, rank); err != nil {
				return err
			}
			defer o.Slots.release()
		}
		if err := download(ctx, blobs, blobKey(prefix, f.Blob), f, st, tell); err != nil {
			return err
		}
		return failpoint.Hit(failpoint.MidRestore)
	})
	if err != nil {
		return fail(err)
	}
	if err := failpoint.Hit(failpoint.BeforeAdopt); err != nil {
		return fail(err)
	}
	if err := st.Adopt(); err != nil {
		return fail(err)
	}
	return nil
}

func download(ctx context.Context, blobs blob.Store, key string, f File, st statestore.Staging, tell func(n int)) (err error) {
	w, err := st.Create(f.Name)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := w.Close(); err == nil {
			err = cerr
		}
	}()
	if f.Blob == "" {
		_, err := w.Write(f.Data)
		tell(len(f.Data))
		return err
	}
	r, err := openBlob(ctx, blobs, key, f)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.CopyBuffer(counter{w, tell}, onlyReader{r}, make([]byte, copyBuffer))
	return err
}

// counter tells how much was written.
type counter struct {
	w    io.Writer
	tell func(n int)
}

func (c counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.tell(n)
	return n, err
}

// onlyReader hides other methods, so that io.CopyBuffer uses the buffer.
type onlyReader struct{ io.Reader }

// openBlob reads a blob from its start. The reader ends with a *FileError when the contents are not those of the file.
func openBlob(ctx context.Context, blobs blob.Store, key string, f File) (io.ReadCloser, error) {
	r, err := blobs.Open(ctx, key, 0)
	if errors.Is(err, blob.ErrNotFound) {
		err = fmt.Errorf("%w: %w", ErrMissing, err)
	}
	if err != nil {
		return nil, &FileError{f.Name, key, err}
	}
	return &checked{r: blob.Verify(r, f.Size, f.SHA256), file: f.Name, key: key}, nil
}

type checked struct {
	r         io.ReadCloser
	file, key string
}

func (c *checked) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	switch {
	case err == nil, err == io.EOF: //nolint:errorlint // the contract of io.Reader is the value itself
		return n, err
	case errors.Is(err, blob.ErrCorrupt):
		err = fmt.Errorf("%w: %w", ErrCorrupt, err)
	case errors.Is(err, blob.ErrNotFound):
		err = fmt.Errorf("%w: %w", ErrMissing, err)
	}
	return n, &FileError{c.file, c.key, err}
}

func (c *checked) Close() error { return c.r.Close() }
