package filesystem

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace-stream/millrace/internal/failpoint"
	"github.com/millrace-stream/millrace/processor"
)

// staging is the folder in that of the table in which files are that do not show yet. Their names are
//
//	<app>.<incarnation>.<sink>.<subtask>.<epoch>.<number>
//
// where epoch is the first of the life that made the file. A life removes what older ones have left, and never what a
// later one may have made: the owner of a subtask that has not noticed yet that it lost it does no harm.
const staging = ".millrace"

const (
	copied = ".copy"  // behind the name: the committed part of an open file, on its way to show
	shown  = ".shown" // behind the name of an open file: its committed part shows
)

// maxOpen is how many files a subtask has open, of different folders; then the one that was written least recently is
// closed.
const maxOpen = 64

// writer is the External of a subtask. Files are open over several epochs, as the rolling policy says; each Prepare notes
// how many bytes of each are committed. Nobody goes on with a file of a former life: that may have it open still and
// write to it. Begin copies what is committed of it to a file that shows.
type writer struct {
	*table
	subtask int
	now     func() time.Time
	// Of a table whose folders are completed (commit is not nil): how many subtasks there are, and where event time is.
	subtasks  int
	watermark func() int64

	from   processor.Begun
	prefix string // of names in staging, with a dot behind
	uid    string // of names that show: another one in each life
	number int

	open    map[string]*part // by folder
	closed  []handle         // durable, since the last Prepare
	ready   []handle         // closed and prepared: Finish shows them
	old     []string         // paths of what former lives left, that the next commit makes useless
	created bool             // a file, since the staging folder was last synced

	pending  map[string]int64 // folders that are to be completed, and when
	waiting  map[string]int64 // those of them that have committed rows
	marked   int64            // where event time was at the last Prepare
	prepared time.Time        // when that was
	note     note             // as written last
	notedAt  time.Time
}

// part is an open file.
type part struct {
	handle
	f       *os.File
	w       *bufio.Writer
	dirty   bool // written since the last Prepare
	written time.Time
}

// handle is a file in a handle of Prepare, or a folder that is to be completed.
type handle struct {
	Hidden string `json:"hidden"` // name in the staging folder
	Final  string `json:"final"`  // path below that of the table, with slashes
	Size   int64  `json:"size"`   // bytes that are committed
	Closed bool   `json:"closed"` // nothing more is written to it

	Folder string `json:"folder,omitempty"` // of a folder: its name, and when it is due
	Due    int64  `json:"due,omitempty"`

	created time.Time
}

func newWriter(t *table, subtask int) *writer {
	return &writer{table: t, subtask: subtask, now: time.Now, open: map[string]*part{}, pending: map[string]int64{}, waiting: map[string]int64{}}
}

func (w *writer) stage(name string) string { return filepath.Join(w.path, staging, name) }

// Begin is of processor.External.
func (w *writer) Begin(ctx context.Context, from processor.Begun) error {
	w.from = from
	w.prefix = fmt.Sprintf("%s.%d.%s.%d.", from.App, from.Incarnation, from.Name, w.subtask)
	var id [4]byte
	if _, err := rand.Read(id[:]); err != nil {
		return fmt.Errorf("choose names of files: %w", err)
	}
	w.uid = hex.EncodeToString(id[:])
	if err := w.makeFolder(w.stage("")); err != nil {
		return err
	}
	kept := map[string]bool{}
	for _, h := range from.Handles {
		var hs []handle
		if err := json.Unmarshal(h, &hs); err != nil {
			return fmt.Errorf("read what the last epoch left: %w", err)
		}
		for _, f := range hs {
			if err := ctx.Err(); err != nil {
				return err
			}
			if f.Folder != "" {
				if w.commit != nil {
					w.pending[f.Folder], w.waiting[f.Folder] = f.Due, f.Due
				}
			} else if f.Closed {
				folder, err := w.show(f)
				if err == nil {
					err = syncFolder(folder)
				}
				if err != nil {
					return err
				}
			} else if f.Size > 0 {
				if err := w.rescue(f); err != nil {
					return err
				}
				kept[f.Hidden+shown] = true
				w.old = append(w.old, w.stage(f.Hidden+shown))
			}
			if err := failpoint.Hit(failpoint.MidBegin); err != nil {
				return err
			}
		}
	}
	entries, err := os.ReadDir(w.stage(""))
	if err != nil {
		return fmt.Errorf("look for what former lives left: %w", err)
	}
	for _, e := range entries {
		if w.mine(e.Name()) && !kept[e.Name()] {
			if err := os.Remove(w.stage(e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove what a former life left: %w", err)
			}
		}
	}
	if w.commit == nil {
		return nil
	}
	w.note.Low, w.marked = processor.NoTime, w.watermark()
	return w.noteAfter(len(w.pending) > 0)
}

// mine says that a file in the staging folder is of an older life of this subtask.
func (w *writer) mine(name string) bool {
	rest, ok := strings.CutPrefix(name, w.prefix)
	if !ok {
		return false
	}
	text, _, _ := strings.Cut(rest, ".")
	epoch, err := strconv.ParseUint(text, 10, 64)
	return err == nil && epoch < w.from.Epoch
}

// show gives a closed file its name, and returns its folder, which is to be synced. A file that is not there has it already.
func (w *writer) show(f handle) (folder string, err error) {
	final := filepath.Join(w.path, filepath.FromSlash(f.Final))
	folder = filepath.Dir(final)
	if err := w.makeFolder(folder); err != nil {
		return "", err
	}
	if err := os.Rename(w.stage(f.Hidden), final); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("show a file: %w", err)
	}
	return folder, nil
}

// makeFolder makes a folder in that of the table, durably.
func (w *writer) makeFolder(folder string) error {
	if _, err := os.Stat(folder); err == nil {
		return nil
	}
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return fmt.Errorf("make a folder of the table: %w", err)
	}
	for folder != w.path {
		folder = filepath.Dir(folder)
		if err := syncFolder(folder); err != nil {
			return err
		}
	}
	return nil
}

// rescue shows the committed part of a file that a former life had open.
func (w *writer) rescue(f handle) error {
	if _, err := os.Stat(w.stage(f.Hidden + shown)); err == nil {
		return nil
	}
	in, err := os.Open(w.stage(f.Hidden))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%d bytes of committed rows are in the file %s, which is not here: the folder must be one that all members see", f.Size, w.stage(f.Hidden))
	}
	if err != nil {
		return fmt.Errorf("read what is committed of an open file: %w", err)
	}
	defer in.Close()
	name := w.name(copied)
	out, err := os.OpenFile(w.stage(name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return fmt.Errorf("copy what is committed of an open file: %w", err)
	}
	n, err := io.Copy(out, io.LimitReader(in, f.Size))
	if err == nil && n < f.Size {
		err = fmt.Errorf("it has %d bytes, and %d were committed: the disk lost some, or somebody changed it", n, f.Size)
	}
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("copy what is committed of the open file %s: %w", w.stage(f.Hidden), err)
	}
	folder, err := w.show(handle{Hidden: name, Final: f.Final})
	if err == nil {
		err = syncFolder(folder)
	}
	if err != nil {
		return err
	}
	// From here on it is known that it shows, also when somebody takes it away at once.
	if err := os.Rename(w.stage(f.Hidden), w.stage(f.Hidden+shown)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("note that a file shows: %w", err)
	}
	return syncFolder(w.stage(""))
}

// name is a new one for the staging folder.
func (w *writer) name(end string) string {
	w.number++
	return fmt.Sprintf("%s%d.%s-%d%s", w.prefix, w.from.Epoch, w.uid, w.number, end)
}

// Write is of processor.External: key is the folder, value a line.
func (w *writer) Write(key, value []byte) error {
	p := w.open[string(key)]
	if p == nil {
		if len(w.open) >= maxOpen {
			if err := w.roll(w.oldest()); err != nil {
				return err
			}
		}
		var err error
		if p, err = w.create(string(key)); err != nil {
			return err
		}
	}
	if _, err := p.w.Write(value); err != nil {
		return fmt.Errorf("write %s: %w", p.f.Name(), err)
	}
	p.Size += int64(len(value))
	p.dirty, p.written = true, w.now()
	if p.Size >= w.size {
		return w.roll(string(key))
	}
	return nil
}

func (w *writer) create(folder string) (*part, error) {
	hidden := w.name("")
	f, err := os.OpenFile(w.stage(hidden), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, fmt.Errorf("create a file of the table: %w", err)
	}
	final := fmt.Sprintf("part-%s-%d-%d", w.uid, w.subtask, w.number)
	if folder != "" {
		final = folder + "/" + final
	}
	p := &part{handle: handle{Hidden: hidden, Final: final, created: w.now()}, f: f, w: bufio.NewWriterSize(f, 64<<10)}
	w.open[folder], w.created = p, true
	if _, ok := w.pending[folder]; !ok && w.commit != nil {
		w.pending[folder] = w.commit.due(folder, p.created.UnixMilli())
	}
	return p, nil
}

// oldest is the folder that was written least recently.
func (w *writer) oldest() string {
	least, at := "", time.Time{}
	for folder, p := range w.open {
		if at.IsZero() || p.written.Before(at) {
			least, at = folder, p.written
		}
	}
	return least
}

// sync makes what was written to a file durable.
func (p *part) sync() error {
	if !p.dirty {
		return nil
	}
	err := p.w.Flush()
	if err == nil {
		err = p.f.Sync()
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", p.f.Name(), err)
	}
	p.dirty = false
	return nil
}

// roll closes a file.
func (w *writer) roll(folder string) error {
	p := w.open[folder]
	delete(w.open, folder)
	err := p.sync()
	if cerr := p.f.Close(); cerr != nil {
		err = errors.Join(err, fmt.Errorf("close %s: %w", p.f.Name(), cerr))
	}
	p.Closed = true
	w.closed = append(w.closed, p.handle)
	return err
}

// over says when a file is to be closed by time.
func (w *writer) over(p *part) time.Time {
	at := p.created.Add(w.rollover)
	if idle := p.written.Add(w.inactive); idle.Before(at) {
		at = idle
	}
	return at
}

// Prepare is of processor.External.
func (w *writer) Prepare(_ context.Context, _ uint64, last bool) ([]byte, error) {
	now := w.now()
	var open []string
	for folder := range w.open {
		open = append(open, folder)
	}
	slices.Sort(open)
	var all []handle
	for _, folder := range open {
		p := w.open[folder]
		if last || !w.over(p).After(now) || w.reached(folder, now) {
			if err := w.roll(folder); err != nil {
				return nil, err
			}
			continue
		}
		if err := p.sync(); err != nil {
			return nil, err
		}
		all = append(all, p.handle)
	}
	if w.created {
		if err := syncFolder(w.stage("")); err != nil {
			return nil, err
		}
		w.created = false
	}
	w.ready, w.closed = w.closed, nil
	all = append(all, w.ready...)
	if w.commit != nil {
		w.marked, w.prepared, w.waiting = w.watermark(), now, maps.Clone(w.pending)
		for _, folder := range slices.Sorted(maps.Keys(w.waiting)) {
			all = append(all, handle{Folder: folder, Due: w.waiting[folder]})
		}
		if err := w.noteBefore(); err != nil {
			return nil, err
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	return json.Marshal(all)
}

// Finish is of processor.External.
func (w *writer) Finish(context.Context) error {
	folders := map[string]bool{}
	for _, f := range w.ready {
		folder, err := w.show(f)
		if err == nil {
			err = failpoint.Hit(failpoint.MidFinish)
		}
		if err != nil {
			return err
		}
		folders[folder] = true
	}
	for folder := range folders {
		if err := syncFolder(folder); err != nil {
			return err
		}
	}
	more := len(w.ready) > 0
	w.ready = nil
	for _, path := range w.old {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove what a former life left: %w", err)
		}
	}
	w.old = nil
	if w.commit == nil {
		return nil
	}
	return w.noteAfter(more)
}

// Due is of processor.External.
func (w *writer) Due() int64 {
	at := int64(processor.Never)
	for _, p := range w.open {
		at = min(at, w.over(p).UnixMilli()+1)
	}
	if every := w.checkEvery.Milliseconds(); at != processor.Never && every > 0 {
		at = (at + every - 1) / every * every
	}
	if w.commit != nil {
		at = min(at, w.dueCommit())
	}
	return at
}

// Close is of processor.External.
func (w *writer) Close() error {
	var errs []error
	for _, p := range w.open {
		errs = append(errs, p.f.Close())
	}
	return errors.Join(errs...)
}

// syncFolder makes names in a folder durable.
func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open folder: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("make names in a folder durable: %w", err)
	}
	return nil
}
