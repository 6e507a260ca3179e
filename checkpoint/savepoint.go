package checkpoint

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/internal/failpoint"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/statestore"
)

// Status of a savepoint.
type Status string

// The statuses. A savepoint can be used when it is completed.
//
//	Begin -> running -> completed
//	                 -> failed     (Fail, with a reason)
//	                 -> abandoned  (the deadline passed, and nobody told how it ended)
const (
	StatusRunning   Status = "running"
	StatusCompleted Status = "completed"
	StatusFailed    Status = "failed"
	StatusAbandoned Status = "abandoned"
)

// Savepoint is a consistent set of the states of all subtasks. It is never changed once it is completed or failed.
type Savepoint struct {
	Format int    `json:"format"`
	ID     string `json:"id"` // unique, unlike the name, which can be used again after Delete
	Name   string `json:"name"`
	Status Status `json:"status"`
	Reason string `json:"reason,omitempty"` // why it failed

	App         string   `json:"app"`
	ClusterID   string   `json:"cluster_id"`
	Incarnation uint64   `json:"incarnation"`
	Expected    []string `json:"expected"` // all subtasks, sorted by sub-topology and index

	Began    int64  `json:"began_ms"`
	Deadline int64  `json:"deadline_ms"`
	Ended    int64  `json:"ended_ms,omitempty"`
	Owner    string `json:"owner"`   // who began it, for people
	Version  string `json:"version"` // of the program that began it, for people
	// Topology is what the engine has to know of the app, such as parallelism and topics; opaque here.
	Topology json.RawMessage `json:"topology,omitempty"`

	Subtasks []*Manifest `json:"subtasks,omitempty"` // when it is completed, as Expected
}

// Bytes is the size of all parts.
func (sp *Savepoint) Bytes() int64 {
	n := int64(0)
	for _, m := range sp.Subtasks {
		n += m.Bytes()
	}
	return n
}

// Subtask returns the state of one; nil if it is not in it.
func (sp *Savepoint) Subtask(id string) *Manifest {
	for _, m := range sp.Subtasks {
		if m.Subtask == id {
			return m
		}
	}
	return nil
}

// Errors of savepoints, matched with errors.Is.
var (
	// ErrNameTaken: there is a savepoint of that name, whatever became of it.
	ErrNameTaken = errors.New("the name of the savepoint is taken")
	// ErrNoSavepoint: there is none of that name.
	ErrNoSavepoint = errors.New("there is no such savepoint")
	// ErrEnded: the savepoint is completed or failed already.
	ErrEnded = errors.New("the savepoint has ended")
)

// Savepoints are those of one app in a blob store. It is safe for concurrent use.
type Savepoints struct {
	blobs blob.Store
	app   string
	now   func() time.Time
	text  func() string
}

// NewSavepoints returns the savepoints of an app. Now and random are as in Options; nil is their default.
func NewSavepoints(blobs blob.Store, app string, now func() time.Time, random func() string) *Savepoints {
	s := &Savepoints{blobs, app, now, random}
	if s.now == nil {
		s.now = time.Now
	}
	if s.text == nil {
		s.text = randomText
	}
	return s
}

// CheckName says what is wrong with the name of a savepoint.
func CheckName(name string) error {
	bad := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
	}
	if name == "" || len(name) > 100 || name[0] == '.' || strings.ContainsFunc(name, bad) {
		return fmt.Errorf("name of a savepoint %q: want 1 to 100 of letters, digits, hyphen, underscore and dot, no dot in front", name)
	}
	return nil
}

func (s *Savepoints) prefix(name string) string { return s.app + "/savepoints/" + name }

func (s *Savepoints) fault(verb, name string, err error) error {
	return fmt.Errorf("%s savepoint %s of app %s: %w", verb, name, s.app, err)
}

// Begin takes the name for a savepoint and makes it running. Of sp these fields are to be set: Name, ClusterID, Incarnation,
// Expected, Deadline, Owner, Version, Topology. It returns sp with the others. Errors: ErrNameTaken.
func (s *Savepoints) Begin(ctx context.Context, sp Savepoint) (*Savepoint, error) {
	if err := CheckName(sp.Name); err != nil {
		return nil, err
	}
	sp.Format, sp.ID, sp.App, sp.Status, sp.Began = Format, s.text(), s.app, StatusRunning, s.now().UnixMilli()
	sp.Reason, sp.Ended, sp.Subtasks = "", 0, nil
	if err := sp.validate(); err != nil {
		return nil, s.fault("begin", sp.Name, err)
	}
	data, err := seal("savepoint", &sp)
	if err != nil {
		return nil, s.fault("begin", sp.Name, err)
	}
	if err := s.blobs.Create(ctx, s.prefix(sp.Name)+"/begin", data); err != nil {
		if errors.Is(err, blob.ErrExists) {
			err = fmt.Errorf("%w; choose another, or delete it: %w", ErrNameTaken, err)
		}
		return nil, s.fault("begin", sp.Name, err)
	}
	return &sp, nil
}

func (sp *Savepoint) validate() error {
	if err := CheckName(sp.Name); err != nil {
		return err
	}
	if sp.ID == "" || sp.App == "" {
		return fmt.Errorf("id %q and app %q must not be empty", sp.ID, sp.App)
	}
	if len(sp.Expected) == 0 {
		return errors.New("no subtasks")
	}
	var last record.SubtaskID
	for i, sub := range sp.Expected {
		id, err := record.ParseSubtaskID(sub)
		if err != nil {
			return err
		}
		if i > 0 && last.Compare(id) >= 0 {
			return fmt.Errorf("subtask %s is out of order", sub)
		}
		last = id
	}
	switch sp.Status {
	case StatusRunning, StatusFailed:
		if len(sp.Subtasks) > 0 {
			return fmt.Errorf("%s, with states", sp.Status)
		}
	case StatusCompleted:
		if len(sp.Subtasks) != len(sp.Expected) {
			return fmt.Errorf("states of %d subtasks, not %d", len(sp.Subtasks), len(sp.Expected))
		}
		for i, m := range sp.Subtasks {
			if m == nil {
				return errors.New("a state is missing")
			}
			if err := m.validate(); err != nil {
				return fmt.Errorf("subtask %s: %w", sp.Expected[i], err)
			}
			if err := m.belongs(sp); err != nil {
				return err
			}
			if m.Subtask != sp.Expected[i] {
				return fmt.Errorf("subtask %s is out of order", m.Subtask)
			}
		}
	default:
		return fmt.Errorf("status %q", sp.Status)
	}
	return nil
}

// belongs says whether a part is one of this savepoint.
func (m *Manifest) belongs(sp *Savepoint) error {
	if m.Kind != KindSavepoint || m.Savepoint != sp.ID || m.App != sp.App || m.Incarnation != sp.Incarnation || m.ClusterID != sp.ClusterID {
		return fmt.Errorf("the state of subtask %s belongs to another savepoint: %s %s of app %s, cluster %s, incarnation %d",
			m.Subtask, m.Kind, m.Savepoint, m.App, m.ClusterID, m.Incarnation)
	}
	return nil
}

// partBytes is the size of a part of a subtask's state, roughly; two of them are in memory while one is uploaded.
const partBytes = 16 << 20

// Write writes the state of one subtask, as its snapshot holds it, to a running savepoint. Who calls it has seen to it that the
// epoch is the one that the savepoint wants. It may be called again after an error. Errors: ErrEnded, *SupersededError when
// another owner has written the subtask's state, those of the blob store.
func (s *Savepoints) Write(ctx context.Context, sp *Savepoint, snap statestore.Snapshot, o WriteOptions) (*Manifest, error) {
	id := snap.Identity()
	meta := snap.Meta()
	fail := func(err error) (*Manifest, error) {
		return nil, s.fault("write subtask "+id.Subtask+" to", sp.Name, err)
	}
	wall, err := o.WallTime(meta.EpochRecord)
	if err != nil {
		return fail(err)
	}
	attempt := s.text()
	m := &Manifest{
		Format: Format, Kind: KindSavepoint,
		App: id.App, ClusterID: id.ClusterID, Incarnation: id.Incarnation, Subtask: id.Subtask, Changelogs: id.Changelogs,
		Epoch: meta.Epoch, Positions: meta.Positions, WallTime: wall, EpochRecord: meta.EpochRecord,
		Created: s.now().UnixMilli(), Owner: o.Owner, Version: o.Version, Attempt: attempt,
		StoreFormat: KVFormat, Stores: StoresOf(o.Specs), Savepoint: sp.ID,
	}
	if err := m.belongs(sp); err != nil {
		return fail(err)
	}
	if !slices.Contains(sp.Expected, id.Subtask) {
		return fail(errors.New("the savepoint expects no such subtask"))
	}
	folder := s.prefix(sp.Name) + "/" + id.Subtask
	if err := s.writeParts(ctx, snap, m, folder, o.Progress); err != nil {
		return fail(err)
	}
	data, err := m.Encode()
	if err != nil {
		return fail(err)
	}
	// Who is late must not add to a savepoint that was deleted and begun again.
	now, err := s.Show(ctx, sp.Name)
	switch {
	case err != nil:
		return fail(err)
	case now.ID != sp.ID:
		return fail(fmt.Errorf("%w: another one has its name", ErrEnded))
	case now.Status == StatusCompleted || now.Status == StatusFailed:
		return fail(fmt.Errorf("%w: it is %s", ErrEnded, now.Status))
	}
	if err := s.blobs.Create(ctx, folder+"/manifest", data); err != nil {
		if errors.Is(err, blob.ErrExists) {
			e := &SupersededError{Epoch: meta.Epoch}
			if old, rerr := s.part(ctx, sp, id.Subtask); rerr == nil {
				e.Newest, e.Owner = old.Epoch, old.Owner
			}
			return nil, e
		}
		return fail(err)
	}
	return m, nil
}

// WriteOptions of Savepoints.Write.
type WriteOptions struct {
	Specs          []statestore.Spec
	Owner, Version string // for people
	// WallTime reads when an epoch record was written, ms since the epoch.
	WallTime func(epochRecord []byte) (int64, error)
	// Progress is told the entries and their bytes (not compressed) after each part.
	Progress func(entries, bytes int64)
}

// writeParts uploads the entries of a snapshot, each part while the next one is made.
func (s *Savepoints) writeParts(ctx context.Context, snap statestore.Snapshot, m *Manifest, folder string, progress func(entries, bytes int64)) (err error) {
	view, err := snap.View()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	it, err := view.Scan(nil, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	enc, err := newCompressor()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, enc.Close()) }()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var uploads sync.WaitGroup
	pending := make(chan error, 1) // how the upload before ended; taken before the next one begins
	pending <- nil
	defer func() {
		cancel()
		uploads.Wait()
	}()
	part := &partWriter{enc: enc}
	size := int64(0)
	flush := func() error {
		f, data, err := part.finish(len(m.Files)+1, m.Attempt)
		if err != nil {
			return err
		}
		m.Files = append(m.Files, f)
		m.Entries += f.Entries
		if progress != nil {
			progress(m.Entries, size)
		}
		if err := <-pending; err != nil {
			return err
		}
		uploads.Go(func() {
			err := s.blobs.Put(ctx, folder+"/"+f.Blob, blob.Body{Size: f.Size, SHA256: f.SHA256, Open: blob.Bytes(data).Open})
			if err == nil {
				err = failpoint.Hit(failpoint.MidSavepoint)
			}
			pending <- err
		})
		return nil
	}
	for it.Next() {
		if err := part.add(it.Key(), it.Value()); err != nil {
			return err
		}
		size += int64(len(it.Key()) + len(it.Value()))
		if part.kv.written >= partBytes {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if err := it.Err(); err != nil {
		return err
	}
	if part.kv != nil {
		if err := flush(); err != nil {
			return err
		}
	}
	return <-pending
}

// partWriter makes one part after the other.
type partWriter struct {
	enc   *zstd.Encoder
	buf   *bytes.Buffer
	kv    *kvWriter
	first []byte
}

func (p *partWriter) add(key, value []byte) error {
	if p.kv == nil {
		p.buf = &bytes.Buffer{}
		p.kv = newKVWriter(p.buf, p.enc)
		p.first = bytes.Clone(key)
	}
	return p.kv.add(key, value)
}

func (p *partWriter) finish(n int, attempt string) (File, []byte, error) {
	if err := p.kv.close(); err != nil {
		return File{}, nil, err
	}
	data := p.buf.Bytes()
	b := blob.Bytes(data)
	f := File{Name: fmt.Sprintf("part-%06d", n), Size: b.Size, SHA256: b.SHA256, Blob: blobName(b.SHA256, attempt),
		First: p.first, Last: bytes.Clone(p.kv.last), Entries: p.kv.entries}
	p.buf, p.kv, p.first = nil, nil, nil
	return f, data, nil
}

// part reads what a subtask has written.
func (s *Savepoints) part(ctx context.Context, sp *Savepoint, subtask string) (*Manifest, error) {
	data, err := s.blobs.Get(ctx, s.prefix(sp.Name)+"/"+subtask+"/manifest")
	if err != nil {
		return nil, err
	}
	m, err := DecodeManifest(data)
	if err != nil {
		return nil, fmt.Errorf("subtask %s: %w", subtask, err)
	}
	if m.Subtask != subtask {
		return nil, fmt.Errorf("%w: the manifest of subtask %s is in the folder of %s", ErrCorrupt, m.Subtask, subtask)
	}
	return m, m.belongs(sp)
}

// Written are the subtasks that have written their state to a savepoint so far.
func (s *Savepoints) Written(ctx context.Context, name string) ([]string, error) {
	var subtasks []string
	for info, err := range s.blobs.List(ctx, s.prefix(name)+"/") {
		if err != nil {
			return nil, s.fault("look at", name, err)
		}
		if subtask, ok := strings.CutSuffix(strings.TrimPrefix(info.Key, s.prefix(name)+"/"), "/manifest"); ok {
			subtasks = append(subtasks, subtask)
		}
	}
	return subtasks, nil
}

// Complete makes a running savepoint completed. All subtasks must have written their state. Of Complete and Fail, called by
// whomever, the first decides. Errors: ErrEnded, ErrMissing if a state is not there.
func (s *Savepoints) Complete(ctx context.Context, running *Savepoint) (*Savepoint, error) {
	done := *running
	done.Status, done.Subtasks = StatusCompleted, make([]*Manifest, len(running.Expected))
	indexes := make([]int, len(done.Subtasks))
	for i := range indexes {
		indexes[i] = i
	}
	err := parallel(ctx, defaultParallel, indexes, func(ctx context.Context, i int) (err error) {
		done.Subtasks[i], err = s.part(ctx, running, running.Expected[i])
		if errors.Is(err, blob.ErrNotFound) {
			err = fmt.Errorf("%w: subtask %s has not written its state", ErrMissing, running.Expected[i])
		}
		return err
	})
	if err != nil {
		return nil, s.fault("complete", running.Name, err)
	}
	return s.end(ctx, "complete", &done)
}

// Fail makes a running savepoint failed. Errors: ErrEnded.
func (s *Savepoints) Fail(ctx context.Context, running *Savepoint, reason string) (*Savepoint, error) {
	done := *running
	done.Status, done.Reason, done.Subtasks = StatusFailed, reason, nil
	return s.end(ctx, "fail", &done)
}

func (s *Savepoints) end(ctx context.Context, verb string, done *Savepoint) (*Savepoint, error) {
	done.Ended = s.now().UnixMilli()
	if err := done.validate(); err != nil {
		return nil, s.fault(verb, done.Name, err)
	}
	data, err := seal("savepoint", done)
	if err != nil {
		return nil, s.fault(verb, done.Name, err)
	}
	if err := failpoint.Hit(failpoint.BeforeSavepointManifest); err != nil {
		return nil, s.fault(verb, done.Name, err)
	}
	if err := s.blobs.Create(ctx, s.prefix(done.Name)+"/manifest", data); err != nil {
		if errors.Is(err, blob.ErrExists) {
			err = fmt.Errorf("%w: %w", ErrEnded, err)
		}
		return nil, s.fault(verb, done.Name, err)
	}
	if err := failpoint.Hit(failpoint.AfterSavepointManifest); err != nil {
		return nil, s.fault(verb, done.Name, err)
	}
	return done, nil
}

// Show reads a savepoint. Errors: ErrNoSavepoint, ErrCorrupt, ErrFormat.
func (s *Savepoints) Show(ctx context.Context, name string) (*Savepoint, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	data, err := s.blobs.Get(ctx, s.prefix(name)+"/manifest")
	if errors.Is(err, blob.ErrNotFound) {
		data, err = s.blobs.Get(ctx, s.prefix(name)+"/begin")
	}
	if errors.Is(err, blob.ErrNotFound) {
		err = fmt.Errorf("%w: %w", ErrNoSavepoint, err)
	}
	if err != nil {
		return nil, s.fault("read", name, err)
	}
	sp := &Savepoint{}
	if err := unseal("savepoint", data, sp); err != nil {
		return nil, s.fault("read", name, err)
	}
	if err := sp.validate(); err != nil {
		return nil, s.fault("read", name, fmt.Errorf("%w: %w", ErrCorrupt, err))
	}
	if sp.Name != name {
		return nil, s.fault("read", name, fmt.Errorf("%w: its name is %s", ErrCorrupt, sp.Name))
	}
	if sp.Status == StatusRunning && s.now().UnixMilli() > sp.Deadline {
		sp.Status = StatusAbandoned
		sp.Reason = fmt.Sprintf("nobody told how it ended until %s", time.UnixMilli(sp.Deadline).UTC().Format(time.RFC3339))
	}
	return sp, nil
}

// Listed is a savepoint as List finds it.
type Listed struct {
	Name      string
	Savepoint *Savepoint // nil if Err is not
	Err       error
	Usage     Usage
}

// List returns all savepoints of the app, those that began last first, unreadable ones at the end.
func (s *Savepoints) List(ctx context.Context) ([]Listed, error) {
	usage := map[string]Usage{}
	for info, err := range s.blobs.List(ctx, s.app+"/savepoints/") {
		if err != nil {
			return nil, fmt.Errorf("list savepoints of app %s: %w", s.app, err)
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(info.Key, s.app+"/savepoints/"), "/")
		u := usage[name]
		usage[name] = Usage{u.Blobs + 1, u.Bytes + info.Size}
	}
	var all []Listed
	for name, u := range usage {
		l := Listed{Name: name, Usage: u}
		l.Savepoint, l.Err = s.Show(ctx, name)
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b Listed) int {
		at := func(l Listed) int64 {
			if l.Savepoint == nil {
				return 0
			}
			return l.Savepoint.Began
		}
		return cmp.Or(cmp.Compare(at(b), at(a)), strings.Compare(a.Name, b.Name))
	})
	return all, nil
}

// Delete removes a savepoint, whatever its status; nothing else does. One that is cut off has no manifest any more, shows as
// running or abandoned, and can be deleted again. Errors: ErrNoSavepoint.
func (s *Savepoints) Delete(ctx context.Context, name string) (Usage, error) {
	if err := CheckName(name); err != nil {
		return Usage{}, err
	}
	prefix := s.prefix(name) + "/"
	begin := prefix + "begin"
	u, err := deletePrefix(ctx, s.blobs, prefix, func(key string) int {
		switch key {
		case prefix + "manifest":
			return 0
		case begin:
			return keep
		default:
			return 1
		}
	})
	if err != nil {
		return u, s.fault("delete", name, err)
	}
	// The name is free when all else is gone.
	info, err := s.blobs.Stat(ctx, begin)
	switch {
	case errors.Is(err, blob.ErrNotFound) && u.Blobs == 0:
		return u, s.fault("delete", name, ErrNoSavepoint)
	case errors.Is(err, blob.ErrNotFound):
		return u, nil
	case err != nil:
		return u, s.fault("delete", name, err)
	}
	if err := s.blobs.Delete(ctx, begin); err != nil {
		return u, s.fault("delete", name, err)
	}
	return Usage{u.Blobs + 1, u.Bytes + info.Size}, nil
}

// Verify reads all of a completed savepoint and compares it with its hashes. Progress is as in RestoreOptions. Errors: *FileError;
// a savepoint that is not completed.
func (s *Savepoints) Verify(ctx context.Context, name string, progress func(done, total int64)) (*Savepoint, error) {
	sp, err := s.Show(ctx, name)
	if err != nil {
		return nil, err
	}
	if sp.Status != StatusCompleted {
		return sp, s.fault("verify", name, fmt.Errorf("it is %s: %s", sp.Status, sp.Reason))
	}
	done := int64(0)
	for _, m := range sp.Subtasks {
		err := s.Load(ctx, sp, m.Subtask, func(f File) {
			done += f.Size
			if progress != nil {
				progress(done, sp.Bytes())
			}
		}, func(_, _ []byte) error { return nil })
		if err != nil {
			return sp, err
		}
	}
	return sp, nil
}

// Load reads the state of a subtask, in the order of keys; key and value are valid during the call of each. After each part
// loaded is called, which may be nil. An error of each ends it. Errors: *FileError.
func (s *Savepoints) Load(ctx context.Context, sp *Savepoint, subtask string, loaded func(File), each func(key, value []byte) error) error {
	fail := func(err error) error { return s.fault("load subtask "+subtask+" of", sp.Name, err) }
	m := sp.Subtask(subtask)
	if m == nil {
		return fail(fmt.Errorf("%w: the savepoint has no such subtask", ErrMissing))
	}
	dec, err := newDecompressor()
	if err != nil {
		return fail(err)
	}
	defer dec.Close()
	for _, f := range m.Files {
		if err := s.loadPart(ctx, sp, m, f, dec, each); err != nil {
			return fail(err)
		}
		if loaded != nil {
			loaded(f)
		}
		if err := failpoint.Hit(failpoint.MidLoad); err != nil {
			return fail(err)
		}
	}
	return nil
}

// LoadRanges is Load of those parts only that hold keys of one of the ranges; they hold others, too.
func (s *Savepoints) LoadRanges(ctx context.Context, sp *Savepoint, subtask string, ranges []statestore.Range, each func(key, value []byte) error) error {
	m := sp.Subtask(subtask)
	if m == nil {
		return s.Load(ctx, sp, subtask, nil, each)
	}
	some, part := *sp, *m
	part.Files = slices.DeleteFunc(slices.Clone(m.Files), func(f File) bool {
		return !slices.ContainsFunc(ranges, func(r statestore.Range) bool {
			return bytes.Compare(f.Last, r.Lo) >= 0 && (r.Hi == nil || bytes.Compare(f.First, r.Hi) < 0)
		})
	})
	some.Subtasks = []*Manifest{&part}
	return s.Load(ctx, &some, subtask, nil, each)
}

func (s *Savepoints) loadPart(ctx context.Context, sp *Savepoint, m *Manifest, f File, dec *zstd.Decoder, each func(key, value []byte) error) error {
	key := s.prefix(sp.Name) + "/" + m.Subtask + "/" + f.Blob
	r, err := openBlob(ctx, s.blobs, key, f)
	if err != nil {
		return err
	}
	defer r.Close()
	kv := newKVReader(r, dec)
	for {
		k, v, err := kv.next()
		if errors.Is(err, io.EOF) {
			break
		}
		var fe *FileError
		if err != nil && !errors.As(err, &fe) {
			err = &FileError{f.Name, key, err}
		}
		if err != nil {
			return err
		}
		if kv.entries == 1 && !bytes.Equal(k, f.First) {
			return &FileError{f.Name, key, corrupt("its first key is %x, not %x", k, f.First)}
		}
		if err := each(k, v); err != nil {
			return err
		}
	}
	if kv.entries != f.Entries || !bytes.Equal(kv.last, f.Last) {
		return &FileError{f.Name, key, corrupt("it has %d entries up to %x, not %d up to %x", kv.entries, kv.last, f.Entries, f.Last)}
	}
	return nil
}
