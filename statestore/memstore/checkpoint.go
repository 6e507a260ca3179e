package memstore

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"

	"github.com/millrace-stream/millrace/statestore"
)

// Format is what Snapshot.Format says of this package's files.
const Format = "memory-1"

// A snapshot's files: one of what the store says of itself, and its entries spread over some parts, so that one part
// can stay as it was while another changes, as the files of a store on disk do.
const (
	metaFile = "META"
	parts    = 8
)

func partFile(i int) string { return fmt.Sprintf("PART-%d", i) }

var _ statestore.Checkpointer = (*Store)(nil)

// Checkpoint implements statestore.Checkpointer.
func (s *Store) Checkpoint() (statestore.Snapshot, error) {
	if s.dir == nil {
		return nil, errors.New("snapshot memory store: it belongs to no directory")
	}
	s.dir.disk.mu.Lock()
	defer s.dir.disk.mu.Unlock()
	if s.closed || s.dir.alive() != nil {
		return nil, fmt.Errorf("snapshot memory store: %w", errClosed)
	}
	if !s.saved.hasMeta {
		return nil, fmt.Errorf("snapshot memory store of subtask %s: %w", s.saved.id.Subtask, statestore.ErrEmpty)
	}
	snap := &snapshot{id: s.saved.id, meta: s.saved.meta, root: s.saved.root, instance: s.instance, data: map[string][]byte{}}
	own, err := json.Marshal(ownData{snap.id, snap.meta})
	if err != nil {
		return nil, fmt.Errorf("snapshot memory store of subtask %s: %w", snap.id.Subtask, err)
	}
	snap.data[metaFile] = own
	for i := range parts {
		snap.data[partFile(i)] = []byte{}
	}
	var c cursor
	c.seek(snap.root, nil)
	for n := c.next(); n != nil; n = c.next() {
		name := partFile(int(n.prio % parts))
		b := binary.AppendUvarint(snap.data[name], uint64(len(n.key)))
		b = binary.AppendUvarint(b, uint64(len(n.value)))
		snap.data[name] = append(append(b, n.key...), n.value...)
	}
	return snap, nil
}

type ownData struct {
	Identity statestore.Identity
	Meta     statestore.Meta
}

// snapshot implements statestore.Snapshot. It stays readable after Close.
type snapshot struct {
	id       statestore.Identity
	meta     statestore.Meta
	root     *node
	instance string
	data     map[string][]byte
}

func (s *snapshot) Identity() statestore.Identity { return s.id }
func (s *snapshot) Meta() statestore.Meta         { return s.meta }
func (s *snapshot) Format() string                { return Format }
func (s *snapshot) Instance() string              { return s.instance }
func (s *snapshot) Close() error                  { return nil }

func (s *snapshot) Files() []statestore.SnapshotFile {
	files := []statestore.SnapshotFile{{Name: metaFile, Size: int64(len(s.data[metaFile]))}}
	for i := range parts {
		files = append(files, statestore.SnapshotFile{Name: partFile(i), Size: int64(len(s.data[partFile(i)]))})
	}
	return files
}

type file struct{ *bytes.Reader }

func (file) Close() error { return nil }

func (s *snapshot) Open(name string) (io.ReadSeekCloser, error) {
	data, ok := s.data[name]
	if !ok {
		return nil, fmt.Errorf("open %s of memory snapshot: %w", name, fs.ErrNotExist)
	}
	return file{bytes.NewReader(data)}, nil
}

// View implements statestore.Snapshot.
func (s *snapshot) View() (statestore.View, error) { return &Store{root: s.root}, nil }

// Stage implements statestore.Dir.
func (d *Dir) Stage(id statestore.Identity) (statestore.Staging, error) {
	d.disk.mu.Lock()
	defer d.disk.mu.Unlock()
	if err := d.names("stage", id); err != nil {
		return nil, err
	}
	if _, ok := d.disk.staged[key(id)]; ok {
		return nil, fmt.Errorf("stage memory store of subtask %s: it is staged already; adopt or discard that first", id.Subtask)
	}
	d.disk.staged[key(id)] = true
	return &staging{d: d, id: id, saved: &saved{id: id}, files: map[string]*stagedFile{}}, nil
}

// Reads implements statestore.Dir.
func (d *Dir) Reads(format string) bool { return format == Format }

// staging implements statestore.Staging.
type staging struct {
	d     *Dir
	id    statestore.Identity
	saved *saved

	// Guarded by the disk's mu.
	files map[string]*stagedFile
	ended bool
}

// alive says whether it may still be used. disk.mu is held.
func (st *staging) alive(verb string) error {
	if err := st.d.alive(); err != nil {
		return err
	}
	if st.ended {
		return st.fault(verb, errors.New("what was staged is adopted or discarded"))
	}
	return nil
}

func (st *staging) fault(verb string, err error) error {
	return fmt.Errorf("%s memory store of subtask %s: %w", verb, st.id.Subtask, err)
}

type stagedFile struct {
	mu sync.Mutex
	bytes.Buffer
}

func (f *stagedFile) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Buffer.Write(p)
}

func (f *stagedFile) Close() error { return nil }

func (f *stagedFile) data() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return bytes.Clone(f.Bytes())
}

func (st *staging) Create(name string) (io.WriteCloser, error) {
	st.d.disk.mu.Lock()
	defer st.d.disk.mu.Unlock()
	if err := st.alive("stage"); err != nil {
		return nil, err
	}
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\\\x00") {
		return nil, st.fault("stage", fmt.Errorf("%q is no name of a file", name))
	}
	f := &stagedFile{}
	st.files[name] = f
	return f, nil
}

// take reads the files into the staged store. disk.mu is held.
func (st *staging) take() error {
	if len(st.files) == 0 {
		return nil
	}
	var own ownData
	if f := st.files[metaFile]; f == nil {
		return st.fault("open staged", fmt.Errorf("%w: %s is missing", statestore.ErrCorrupt, metaFile))
	} else if err := json.Unmarshal(f.data(), &own); err != nil {
		return st.fault("open staged", fmt.Errorf("%w: %s: %w", statestore.ErrCorrupt, metaFile, err))
	}
	var root *node
	for i := range parts {
		f := st.files[partFile(i)]
		if f == nil {
			return st.fault("open staged", fmt.Errorf("%w: %s is missing", statestore.ErrCorrupt, partFile(i)))
		}
		for b := f.data(); len(b) > 0; {
			var kv [2][]byte
			var sizes [2]uint64
			for j := range sizes {
				n, w := binary.Uvarint(b)
				if w <= 0 {
					return st.fault("open staged", fmt.Errorf("%w: %s is cut short", statestore.ErrCorrupt, partFile(i)))
				}
				sizes[j], b = n, b[w:]
			}
			for j, n := range sizes {
				if n > uint64(len(b)) {
					return st.fault("open staged", fmt.Errorf("%w: %s is cut short", statestore.ErrCorrupt, partFile(i)))
				}
				kv[j], b = b[:n:n], b[n:]
			}
			root = root.set(kv[0], kv[1])
		}
	}
	*st.saved = saved{id: own.Identity, root: root, meta: own.Meta, hasMeta: true}
	clear(st.files)
	return nil
}

// Store implements statestore.Staging.
func (st *staging) Store() (statestore.Store, error) {
	st.d.disk.mu.Lock()
	defer st.d.disk.mu.Unlock()
	if err := st.alive("open staged"); err != nil {
		return nil, err
	}
	if err := st.take(); err != nil {
		return nil, err
	}
	return st.d.open(st.saved, st.id)
}

// Adopt implements statestore.Staging. Damaged files are told here, where other stores tell it when they are opened.
func (st *staging) Adopt() error {
	st.d.disk.mu.Lock()
	defer st.d.disk.mu.Unlock()
	if err := st.alive("adopt"); err != nil {
		return err
	}
	if s := st.d.disk.stores[key(st.id)]; s != nil && s.open {
		return st.fault("adopt", errors.New("the store is open; close it first"))
	}
	if st.saved.open {
		return st.fault("adopt", errors.New("the staged store is open; close it first"))
	}
	if err := st.take(); err != nil {
		return err
	}
	st.d.disk.stores[key(st.id)] = st.saved
	st.end()
	return nil
}

func (st *staging) end() {
	st.ended = true
	delete(st.d.disk.staged, key(st.id))
}

// Discard implements statestore.Staging.
func (st *staging) Discard() error {
	st.d.disk.mu.Lock()
	defer st.d.disk.mu.Unlock()
	if st.alive("discard") != nil {
		return nil
	}
	if st.saved.open {
		return st.fault("discard", errors.New("the staged store is open; close it first"))
	}
	st.end()
	return nil
}

// Quarantine implements statestore.Dir: nobody can look at memory, so the store is gone.
func (d *Dir) Quarantine(id statestore.Identity) (string, error) {
	d.disk.mu.Lock()
	defer d.disk.mu.Unlock()
	if err := d.names("quarantine", id); err != nil {
		return "", err
	}
	s := d.disk.stores[key(id)]
	switch {
	case s == nil:
		return "", nil
	case s.open:
		return "", fmt.Errorf("quarantine memory store of subtask %s: it is open; close it first", id.Subtask)
	}
	delete(d.disk.stores, key(id))
	return "memory", nil
}
