// Package memstore keeps state stores in memory. It is the simple model that pebblestore is compared with, the store
// of tests and simulations, and the store of state.store=memory: nothing outlives the process, a restart restores
// everything from the changelog.
package memstore

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/statestore"
)

// Disk is what a Dir is kept on. It plays the state directory of a machine: it outlives Dirs and holds what was
// flushed. It is safe for concurrent use.
type Disk struct {
	mu       sync.Mutex
	app      string // of the first Open
	instance string
	power    int // counts crashes: what was opened before the last one is dead
	locked   bool
	stores   map[string]*saved // by incarnation and subtask
	staged   map[string]bool   // as stores
}

// saved is what a disk has of one store.
type saved struct {
	id      statestore.Identity
	root    *node
	meta    statestore.Meta
	hasMeta bool
	open    bool
}

// NewDisk returns an empty disk.
func NewDisk() *Disk { return &Disk{stores: map[string]*saved{}, staged: map[string]bool{}} }

// Open opens the disk for an app, as pebblestore.OpenDir does: one Dir at a time, ErrLocked else; ErrForeign if the
// disk is another app's.
func (d *Disk) Open(app string) (*Dir, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.locked {
		return nil, fmt.Errorf("open memory state of app %q: %w; close the other one first", app, statestore.ErrLocked)
	}
	if app == "" {
		return nil, errors.New("open memory state: app id is empty")
	}
	if d.app == "" {
		d.app = app
	}
	if d.app != app {
		return nil, fmt.Errorf("open memory state of app %q: %w: it is app %q's", app, statestore.ErrForeign, d.app)
	}
	d.locked = true
	return &Dir{disk: d, power: d.power}, nil
}

// Crash cuts the power: what was not flushed is lost, the lock is released, and all Dirs and Stores opened so far
// answer with an error from now on.
func (d *Disk) Crash() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.power++
	d.locked = false
	clear(d.staged)
	for _, s := range d.stores {
		s.open = false
	}
}

// Dir is an open Disk. It implements statestore.Dir.
type Dir struct {
	disk   *Disk
	power  int
	closed bool // guarded by disk.mu
}

var _ statestore.Dir = (*Dir)(nil)

// NewDir returns a Dir on a disk of its own.
func NewDir(app string) *Dir {
	return &Dir{disk: &Disk{app: app, locked: true, stores: map[string]*saved{}, staged: map[string]bool{}}}
}

var errClosed = errors.New("it is closed")

// alive says whether a Dir may still be used. disk.mu is held.
func (d *Dir) alive() error {
	if d.closed || d.power != d.disk.power {
		return fmt.Errorf("use memory state: %w", errClosed)
	}
	return nil
}

func key(id statestore.Identity) string { return fmt.Sprintf("%d/%s", id.Incarnation, id.Subtask) }

// names says whether a store of id can be in this Dir. disk.mu is held.
func (d *Dir) names(verb string, id statestore.Identity) error {
	if err := d.alive(); err != nil {
		return err
	}
	if _, err := record.ParseSubtaskID(id.Subtask); err != nil {
		return fmt.Errorf("%s memory store: %w", verb, err)
	}
	if id.App != d.disk.app {
		return fmt.Errorf("%s memory store of subtask %s: %w: app %q, the state is app %q's",
			verb, id.Subtask, statestore.ErrForeign, id.App, d.disk.app)
	}
	return nil
}

// Open implements statestore.Dir.
func (d *Dir) Open(id statestore.Identity) (statestore.Store, error) {
	d.disk.mu.Lock()
	defer d.disk.mu.Unlock()
	if err := d.names("open", id); err != nil {
		return nil, err
	}
	s := d.disk.stores[key(id)]
	if s == nil {
		s = &saved{id: id}
		s.id.Changelogs = slices.Clone(id.Changelogs)
		d.disk.stores[key(id)] = s
	}
	return d.open(s, id)
}

// open opens what the disk has of a store. disk.mu is held.
func (d *Dir) open(s *saved, id statestore.Identity) (statestore.Store, error) {
	if s.open {
		return nil, fmt.Errorf("open memory store of subtask %s: it is already open; close it first", id.Subtask)
	}
	if !s.hasMeta { // nothing was ever flushed: as good as new
		s.id = id
		s.id.Changelogs = slices.Clone(id.Changelogs)
	}
	if diff := s.id.Diff(id); diff != "" {
		return nil, fmt.Errorf("open memory store of subtask %s: %w: %s", id.Subtask, statestore.ErrForeign, diff)
	}
	s.open = true
	return &Store{dir: d, saved: s, root: s.root, meta: s.meta, hasMeta: s.hasMeta, instance: rand.Text()}, nil
}

// Subtasks implements statestore.Dir.
func (d *Dir) Subtasks(incarnation uint64) ([]string, error) {
	d.disk.mu.Lock()
	defer d.disk.mu.Unlock()
	if err := d.alive(); err != nil {
		return nil, err
	}
	var subtasks []string
	for _, s := range d.disk.stores {
		if s.id.Incarnation == incarnation {
			subtasks = append(subtasks, s.id.Subtask)
		}
	}
	slices.Sort(subtasks)
	return subtasks, nil
}

// Wipe implements statestore.Dir.
func (d *Dir) Wipe(id statestore.Identity) error {
	d.disk.mu.Lock()
	defer d.disk.mu.Unlock()
	if err := d.names("wipe", id); err != nil {
		return err
	}
	if s := d.disk.stores[key(id)]; s != nil && s.open {
		return fmt.Errorf("wipe memory store of subtask %s: it is open; close it first", id.Subtask)
	}
	delete(d.disk.stores, key(id))
	return nil
}

// InstanceID implements statestore.Dir.
func (d *Dir) InstanceID() (string, error) {
	d.disk.mu.Lock()
	defer d.disk.mu.Unlock()
	if err := d.alive(); err != nil {
		return "", err
	}
	if d.disk.instance == "" {
		d.disk.instance = strings.ToLower(rand.Text())
	}
	return d.disk.instance, nil
}

// Close implements statestore.Dir.
func (d *Dir) Close() error {
	d.disk.mu.Lock()
	defer d.disk.mu.Unlock()
	if d.alive() != nil {
		return nil
	}
	for _, s := range d.disk.stores {
		if s.open {
			return fmt.Errorf("close memory state: the store of subtask %s is still open; close it first", s.id.Subtask)
		}
	}
	for name := range d.disk.staged {
		return fmt.Errorf("close memory state: the staged store %s is still open; adopt or discard it first", name)
	}
	d.closed = true
	d.disk.locked = false
	return nil
}

// Store is an ordered store in memory. It implements statestore.Store.
type Store struct {
	dir      *Dir // nil: it stands alone
	saved    *saved
	root     *node
	meta     statestore.Meta
	hasMeta  bool
	closed   bool
	instance string
	behind   *saved // what FlushBehind is to save; nil: nothing
}

var _ statestore.Store = (*Store)(nil)

// New returns an empty store that belongs to no Dir.
func New() *Store { return &Store{} }

// check says whether the store may still be used.
func (s *Store) check(verb string) error {
	if s.closed {
		return fmt.Errorf("%s memory store: %w", verb, errClosed)
	}
	if s.dir != nil {
		s.dir.disk.mu.Lock()
		defer s.dir.disk.mu.Unlock()
		if err := s.dir.alive(); err != nil {
			return fmt.Errorf("%s memory store: %w", verb, errClosed)
		}
	}
	return nil
}

// Get implements statestore.Store.
func (s *Store) Get(key []byte) ([]byte, bool, error) {
	if err := s.check("read"); err != nil {
		return nil, false, err
	}
	n, ok := s.root.get(key)
	if !ok {
		return nil, false, nil
	}
	return n.value, true, nil
}

// Scan implements statestore.Store.
func (s *Store) Scan(lo, hi []byte) (statestore.Iterator, error) {
	if err := s.check("scan"); err != nil {
		return nil, err
	}
	it := &iterator{hi: slices.Clone(hi)}
	it.c.seek(s.root, lo)
	return it, nil
}

// NewBatch implements statestore.Store.
func (s *Store) NewBatch() statestore.Batch { return &batch{s: s} }

// Flush implements statestore.Store.
func (s *Store) Flush() error {
	if s.dir == nil {
		return s.check("flush")
	}
	s.dir.disk.mu.Lock()
	defer s.dir.disk.mu.Unlock()
	if s.closed || s.dir.alive() != nil {
		return fmt.Errorf("flush memory store: %w", errClosed)
	}
	s.saved.root, s.saved.meta, s.saved.hasMeta = s.root, s.meta, s.hasMeta
	s.behind = nil
	return nil
}

// FlushBehind implements statestore.Store. What it saves is on the disk when Busy is called the next time: a crash
// before that loses it.
func (s *Store) FlushBehind() error {
	if err := s.check("flush"); err != nil {
		return err
	}
	s.behind = &saved{root: s.root, meta: s.meta, hasMeta: s.hasMeta}
	return nil
}

// Busy implements statestore.Store.
func (s *Store) Busy() (bool, error) {
	if err := s.check("flush"); err != nil || s.behind == nil || s.dir == nil {
		return false, err
	}
	s.dir.disk.mu.Lock()
	defer s.dir.disk.mu.Unlock()
	if err := s.dir.alive(); err != nil {
		return false, err
	}
	s.saved.root, s.saved.meta, s.saved.hasMeta = s.behind.root, s.behind.meta, s.behind.hasMeta
	s.behind = nil
	return true, nil
}

// Meta implements statestore.Store.
func (s *Store) Meta() (statestore.Meta, bool) { return s.meta, s.hasMeta }

// Size implements statestore.Store.
func (s *Store) Size() int64 { return s.root.total() }

// Close implements statestore.Store. What was not flushed is lost.
func (s *Store) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	s.root = nil
	if s.dir != nil {
		s.dir.disk.mu.Lock()
		defer s.dir.disk.mu.Unlock()
		if s.dir.alive() == nil {
			s.saved.open = false
		}
	}
	return nil
}

// batch collects changes as functions of the tree, applied in order.
type batch struct {
	s    *Store
	ops  []op
	len  int
	err  error
	done bool
}

type op struct {
	kind       opKind
	key, value []byte // a range: lo and hi
}

type opKind uint8

const (
	opSet opKind = iota
	opDelete
	opDeleteRange
)

// metaPrefix is where stores keep what is theirs; see statestore.MetaKey.
var (
	metaPrefix = statestore.MetaKey()
	metaEnd    = []byte{0, 0, 0, 0, 1}
)

func (b *batch) add(k opKind, key, value []byte) {
	if k != opDeleteRange && bytes.HasPrefix(key, metaPrefix) && b.err == nil {
		b.err = fmt.Errorf("key %x is reserved for the store itself", key)
	}
	// One allocation for both; nil stays nil for an open range.
	buf := append(make([]byte, 0, len(key)+len(value)), key...)
	o := op{kind: k, key: buf[:len(key):len(key)]}
	if value != nil {
		buf = append(buf, value...)
		o.value = buf[len(key):]
	}
	b.ops = append(b.ops, o)
	b.len += len(key) + len(value)
}

func (b *batch) Set(key, value []byte) {
	if value == nil {
		value = []byte{}
	}
	b.add(opSet, key, value)
}
func (b *batch) Delete(key []byte)         { b.add(opDelete, key, nil) }
func (b *batch) DeleteRange(lo, hi []byte) { b.add(opDeleteRange, lo, hi) }
func (b *batch) Len() int                  { return b.len }
func (b *batch) Discard()                  { b.done, b.ops = true, nil }

func (b *batch) Commit(m statestore.Meta) error {
	if b.done {
		return errors.New("commit batch: it was already committed or discarded")
	}
	ops := b.ops
	b.Discard()
	if b.err != nil {
		return fmt.Errorf("commit batch: %w", b.err)
	}
	if err := b.s.check("write"); err != nil {
		return err
	}
	root := b.s.root
	for _, o := range ops {
		switch o.kind {
		case opSet:
			root = root.set(o.key, o.value)
		case opDelete:
			root = root.delete(o.key)
		case opDeleteRange:
			lo := o.key
			if bytes.Compare(lo, metaEnd) < 0 {
				lo = metaEnd
			}
			if o.value == nil || bytes.Compare(lo, o.value) < 0 {
				root = root.deleteRange(lo, o.value)
			}
		}
	}
	b.s.root = root
	b.s.meta = statestore.Meta{
		Epoch: m.Epoch, EpochRecord: bytes.Clone(m.EpochRecord), Positions: slices.Clone(m.Positions),
	}
	b.s.hasMeta = true
	return nil
}

// iterator walks the tree as it was when the Scan began.
type iterator struct {
	c   cursor
	hi  []byte
	cur *node
}

func (it *iterator) Next() bool {
	it.cur = it.c.next()
	if it.cur != nil && it.hi != nil && bytes.Compare(it.cur.key, it.hi) >= 0 {
		it.cur, it.c.stack = nil, nil
	}
	return it.cur != nil
}
func (it *iterator) Key() []byte   { return it.cur.key }
func (it *iterator) Value() []byte { return it.cur.value }
func (it *iterator) Err() error    { return nil }
func (it *iterator) Close() error  { it.cur, it.c.stack = nil, nil; return nil }
