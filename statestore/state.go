package statestore

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"reflect"
	"slices"
)

// Fault is what a typed store panics with when it cannot go on: the Store beneath failed, a stored value is damaged,
// or a window was written after it was dropped. The task recovers exactly this type; the subtask ends and is made
// anew from committed state.
type Fault struct{ Err error }

func (f *Fault) Error() string { return f.Err.Error() }

// Unwrap returns the cause.
func (f *Fault) Unwrap() error { return f.Err }

// StateOptions are the settings of a State.
type StateOptions struct {
	// CacheBytes is the room for the typed caches of this subtask, approximate; default 64 MiB. What is not yet in
	// the Store stays in memory whatever the room.
	CacheBytes int64
	// MaxCacheBytes is what the typed caches may take as long as the Store is hardly read, because all keys are in them: what
	// is above CacheBytes a Store that is a Lender gives of the room for its own caches. Default: CacheBytes.
	MaxCacheBytes int64
	// IDs are the ids of stores whose specs have another, by name: where an earlier store of that name was dropped, its
	// entries still have the id that belongs to the name.
	IDs map[string]ID
}

// DefaultCacheBytes is StateOptions.CacheBytes if it is 0.
const DefaultCacheBytes = 64 << 20

// State is the state of one subtask: its typed stores, over one Store that holds committed state only. A value is
// in one of four places, newest first:
//
//	running   written since the last Seal: in the caches, marked dirty
//	sealed    encoded by Seal, being committed: the Changes of the epoch
//	pending   committed, not yet in the Store: a copy of the sealed bytes, one per key
//	stored    in the Store, since the last WriteBehind
//
// Reads see the running value. Writes are grouped into atomic steps by Begin and End or Rollback; writes outside of a
// step count as a step that succeeded at the next Begin, End or Seal. A State is used by one goroutine at a time.
type State struct {
	store      Store
	lender     Lender // nil: it is none, or nothing may be lent
	cacheBytes int64
	maxBytes   int64
	room       int64 // of the caches now: cacheBytes and what is lent
	reads      int64 // of the Store since room changed
	ids        map[string]ID
	seed       maphash.Seed // for long keys
	mix        [4]uint64    // for short ones
	step       uint64       // number of the running step; entries remember the last one that logged them
	touched    []undoer
	subs       []substore
	specs      []Spec
	horizons   map[ID]int64 // set by SetHorizon

	changes []Change
	arena   arena // values of changes
	sealed  bool  // Seal was called, Committed not yet
	epoch   uint64

	pend      pendArena
	schemas   map[ID]map[uint64]string // what the Store knows
	announced []Change                 // schema descriptors sealed or pending
	announce  int                      // of them the pending ones

	used      int64   // bytes in caches, approximate
	evictAt   int64   // used that makes Begin evict; 0: an eviction runs
	shares    []int64 // of the substores in the running eviction
	evicting  int     // the substore that it is at
	evicted   int64   // used when it was last at work
	iterating int     // no eviction below a running iteration
	dirty     int64
	near      int        // nearTimers, or less in tests
	keys      []sortKey  // scratch of WriteBehind
	spare     []sortKey  // likewise
	byID      []substore // in the order of WriteBehind
}

// An undoer is a part of a store with writes in the running step.
type undoer interface {
	end()
	rollback()
}

// A substore is a typed store, as State drives it.
type substore interface {
	seal()                       // appends the dirty entries to State.changes
	committed()                  // sealed becomes pending
	gather(b Batch)              // puts what is pending into the batch, sorted; range deletes go first
	written()                    // pending is stored
	evict(w *sweep) (ended bool) // drops clean entries; ended: enough, or no more can be dropped
	cached() int64               // bytes, approximate
	horizon() (id ID, end int64, ok bool)
}

// A sweep is what a substore evicts in one step of an eviction.
type sweep struct {
	want  int64 // bytes to be freed; less those that were
	looks int   // entries to look at
}

// A keyItem is a key while keys are sorted for an iteration.
type keyItem struct {
	key    []byte
	hi, lo uint64 // its first 16 bytes, so that most comparisons need no look at it
}

// NewState makes the State over a store that was restored to a committed epoch.
func NewState(store Store, o StateOptions) *State {
	if o.CacheBytes <= 0 {
		o.CacheBytes = DefaultCacheBytes
	}
	s := &State{store: store, cacheBytes: o.CacheBytes, maxBytes: o.CacheBytes, room: o.CacheBytes, ids: o.IDs, evictAt: o.CacheBytes, seed: maphash.MakeSeed(), step: 1, near: nearTimers,
		horizons: map[ID]int64{}}
	if l, ok := store.(Lender); ok && o.MaxCacheBytes > o.CacheBytes {
		s.lender, s.maxBytes = l, o.MaxCacheBytes
	}
	for i := range s.mix {
		s.mix[i] = maphash.Comparable(s.seed, i)
	}
	return s
}

// Begin starts an atomic step: the processing of a record, a timer.
func (s *State) Begin() {
	if len(s.touched) > 0 {
		s.End()
	}
	s.step++
	if s.used > s.evictAt && s.iterating == 0 {
		s.makeRoom()
	}
}

// End ends a step that succeeded: its writes belong to the running epoch.
func (s *State) End() {
	for _, u := range s.touched {
		u.end()
	}
	s.touched = s.touched[:0]
	s.step++
}

// Rollback ends a step that failed: everything written since Begin is undone, deletes, Drops and timers included.
func (s *State) Rollback() {
	for i := len(s.touched) - 1; i >= 0; i-- {
		s.touched[i].rollback()
	}
	s.touched = s.touched[:0]
	s.step++
}

// Seal ends the running epoch and returns its changelog: each changed key once, with its last value, encoded now. An
// entry that was born and deleted within the epoch leaves no trace (in a Map that is not all in memory it may leave a delete),
// and neither do windows that were dropped. The changes are valid until Committed; the next epoch may start at once. Only one epoch is sealed at a time.
func (s *State) Seal(epoch uint64) []Change {
	if s.sealed {
		panic(&Fault{fmt.Errorf("seal epoch %d: epoch %d is sealed and not yet committed", epoch, s.epoch)})
	}
	s.End()
	s.sealed, s.epoch = true, epoch
	clear(s.changes)
	s.changes = s.changes[:0]
	s.arena.reset()
	s.dirty = 0
	for _, sub := range s.subs {
		sub.seal()
	}
	// Substores remember the places of their changes, so that the descriptors come last; an epoch is one
	// transaction and the order inside it does not matter.
	return append(s.changes, s.announced[s.announce:]...)
}

// Committed says that the sealed epoch is committed: its changes become candidates for write-behind.
func (s *State) Committed() {
	if !s.sealed {
		return
	}
	s.sealed = false
	for _, sub := range s.subs {
		sub.committed()
	}
	s.announce = len(s.announced)
}

// Pending is the number of bytes that are committed and not in the store.
func (s *State) Pending() (bytes int64) { return s.pend.bytes }

// Dirty is the number of bytes written in the running epoch, approximate.
func (s *State) Dirty() (bytes int64) { return s.dirty }

// WriteBehind puts all committed changes into the store, sorted by key, in one batch with m, the Meta of the last
// committed epoch, and flushes it. Values of the running or of a sealed epoch are never in it (I4). On an error the
// changes stay pending, and the call may be repeated.
func (s *State) WriteBehind(m Meta) error { return s.writeBehind(m, s.store.Flush) }

// StartWriteBehind is WriteBehind without the wait: what it wrote is durable when the store is not Busy any more.
func (s *State) StartWriteBehind(m Meta) error { return s.writeBehind(m, s.store.FlushBehind) }

func (s *State) writeBehind(m Meta, flush func() error) error {
	b := s.store.NewBatch()
	for _, c := range s.announced[:s.announce] {
		b.Set(c.Key, c.Value) // of store id 0, below all others
	}
	for _, sub := range s.byID {
		sub.gather(b)
	}
	if cap(s.keys) > maxIdleKeys {
		s.keys, s.spare = nil, nil
	}
	n := b.Len()
	if err := b.Commit(m); err != nil {
		return fmt.Errorf("write state behind epoch %d (%d bytes): %w", m.Epoch, n, err)
	}
	if err := flush(); err != nil {
		return fmt.Errorf("flush state of epoch %d: %w", m.Epoch, err)
	}
	// Reads find it in the store from here on, durable or not.
	for _, sub := range s.subs {
		sub.written()
	}
	for _, c := range s.announced[:s.announce] {
		s.learnSchema(c.Key, c.Value)
	}
	s.announced = slices.Delete(s.announced, 0, s.announce)
	s.announce = 0
	s.pend.reset()
	s.evictAt = min(s.evictAt, s.room)
	return nil
}

// maxIdleKeys bounds the scratch that a State keeps between write-behinds.
const maxIdleKeys = 1 << 15

// put puts a pending change into a batch.
func (s *State) put(b Batch, key []byte, r *pendRec) {
	if val := s.pend.value(r); val != nil {
		b.Set(key, val)
	} else {
		b.Delete(key)
	}
}

func newKeyItem(key []byte) keyItem {
	var b [16]byte
	copy(b[:], key)
	return keyItem{key: key, hi: binary.BigEndian.Uint64(b[:]), lo: binary.BigEndian.Uint64(b[8:])}
}

// compare orders by key.
func (x *keyItem) compare(y *keyItem) int {
	switch {
	case x.hi != y.hi:
		return cmp.Compare(x.hi, y.hi)
	case x.lo != y.lo:
		return cmp.Compare(x.lo, y.lo)
	}
	return bytes.Compare(x.key, y.key)
}

// Horizons are the horizons of the windows stores, as the epoch record keeps them: up to that end, inclusive, all
// windows are gone. Stores that never dropped a window are not in it.
func (s *State) Horizons() map[ID]int64 {
	h := maps.Clone(s.horizons)
	for _, sub := range s.subs {
		if id, end, ok := sub.horizon(); ok {
			h[id] = end
		}
	}
	return h
}

// SetHorizon sets the horizon of a windows store on restore, before the store is made.
func (s *State) SetHorizon(id ID, end int64) { s.horizons[id] = end }

// Specs are the specs of the typed stores made so far, in the order they were made.
func (s *State) Specs() []Spec { return slices.Clone(s.specs) }

// fewReads is how many reads of the Store, for each MiB by which the caches have grown, mean that it is not needed: all
// that is asked for is in the caches. MiBs of them hold thousands of entries.
const fewReads = 64

// makeRoom is for caches that are full. As long as they hold all that is asked for, the blocks of the Store are of no use,
// and the caches take over their room. Once that is not enough, or the Store is read, they give it back.
func (s *State) makeRoom() {
	if s.used > s.room && !s.evicts() {
		if s.reads <= fewReads*(s.maxBytes/borrowSteps>>20+1) && s.borrow() {
			return
		}
		if s.room > s.cacheBytes {
			s.setRoom(s.cacheBytes)
		}
	}
	s.evict()
}

// evicts says that an eviction was begun and has not ended.
func (s *State) evicts() bool { return len(s.shares) > 0 }

// borrowSteps is in how many steps the room grows to maxBytes.
const borrowSteps = 32

// borrow makes the caches' room larger, unless that is not possible.
func (s *State) borrow() bool {
	if s.lender == nil || s.room == s.maxBytes {
		return false
	}
	s.setRoom(min(s.maxBytes, s.room+max(s.maxBytes/borrowSteps, 1)))
	return true
}

func (s *State) setRoom(n int64) {
	s.lender.Lend(n - s.cacheBytes)
	s.room, s.evictAt, s.reads = n, n, 0
	s.shares = s.shares[:0]
}

// evictLooks is at how many entries an eviction looks in one Begin, which takes about as many times 0.2 us; and at one more
// for each evictGrown bytes that came since the last, which is more than there are entries in them.
const (
	evictLooks = 32
	evictGrown = 16
)

// share says what each substore is to give of need bytes, each in proportion to what it has. Those that have little are spared,
// if all of them together have little: a small table that others look into costs a read of the Store each time, also where
// it has nothing.
func (s *State) share(need int64) {
	var all, little int64
	for _, sub := range s.subs {
		n := sub.cached()
		all += n
		if n < s.room/littlePart {
			little += n
		}
	}
	if little > s.room/4 {
		little = 0
	}
	for _, sub := range s.subs {
		n := sub.cached()
		if little > 0 && n < s.room/littlePart {
			n = 0
		}
		s.shares = append(s.shares, int64(float64(need)*float64(n)/float64(max(all-little, 1))))
	}
}

// littlePart is which part of the room is little.
const littlePart = 64

// evict brings the caches down to 15/16 of their room, or as far as clean entries go, with a bounded piece of the work in
// each Begin.
func (s *State) evict() {
	if !s.evicts() {
		s.share(s.used - s.room/16*15)
		s.evicting, s.evictAt, s.evicted = 0, 0, s.used
	}
	w := sweep{looks: evictLooks + int(max(0, s.used-s.evicted)/evictGrown)}
	for ; s.evicting < len(s.shares); s.evicting++ {
		w.want = s.shares[s.evicting]
		if w.want <= 0 {
			continue
		}
		ended := s.subs[s.evicting].evict(&w)
		s.shares[s.evicting] = w.want
		if !ended {
			s.evicted = s.used
			return
		}
	}
	s.shares = s.shares[:0]
	s.evictAt = s.room
	if s.used > s.room {
		// What could not be evicted is not yet in the store. It is looked at again when the caches have grown, or after
		// the next write-behind.
		s.evictAt = s.used + s.room/16
	}
}

// place gives a spec the id that its store has here.
func (s *State) place(spec Spec) Spec {
	if id, ok := s.ids[spec.Name]; ok {
		spec.ID = id
	}
	return spec
}

// register adds a typed store.
func (s *State) register(spec Spec, kind Kind, sub substore) error {
	if spec.ID == 0 {
		return fmt.Errorf("open state store %q: id 0 is reserved", spec.Name)
	}
	if spec.Kind != kind {
		return fmt.Errorf("open state store %q: it is a %s, want a %s", spec.Name, spec.Kind, kind)
	}
	for _, o := range s.specs {
		if o.ID == spec.ID {
			return fmt.Errorf("open state store %q: %q has the same id %08x: rename one of them", spec.Name, o.Name, uint32(spec.ID))
		}
	}
	at := 0
	for _, o := range s.specs {
		if o.ID < spec.ID {
			at++
		}
	}
	s.byID = slices.Insert(s.byID, at, sub)
	s.specs = append(s.specs, spec)
	s.subs = append(s.subs, sub)
	return nil
}

func (s *State) learnSchema(key, val []byte) {
	if len(key) != 17 {
		panic(&Fault{fmt.Errorf("read schema descriptor %x: %w", key, ErrCorrupt)})
	}
	id := ID(binary.BigEndian.Uint32(key[5:]))
	if s.schemas[id] == nil {
		s.schemas[id] = map[uint64]string{}
	}
	s.schemas[id][binary.BigEndian.Uint64(key[9:])] = string(val)
}

// scan calls fn for each stored entry of lo <= key < hi until it returns false. Key and value are valid during the
// call.
func (s *State) scan(lo, hi []byte, fn func(key, val []byte) bool) (err error) {
	it, err := s.store.Scan(lo, hi)
	if err != nil {
		return fmt.Errorf("scan state: %w", err)
	}
	defer func() { // also when fn panics
		if cerr := it.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("scan state: %w", cerr)
		}
	}()
	for it.Next() {
		if !fn(it.Key(), it.Value()) {
			break
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("scan state: %w", err)
	}
	return nil
}

// A valueClass says how a value is undone and kept.
type valueClass uint8

const (
	plain   valueClass = iota // no pointers: undo copies, pages are invisible to the garbage collector
	strung                    // flat with strings: undo copies; Seal copies the strings away from fetched buffers
	encoded                   // may be changed in place behind pointers: the encoded form is kept beside it
	copied                    // likewise, of a Copier: undo copies all of it; tables only
)

// values is what the entries of one store have in common: how values are written, read and versioned.
type values[V any] struct {
	s         *State
	spec      Spec
	changelog int
	vc        Codec[V]
	class     valueClass
	copier    Copier[V] // class copied only
	owned     bool      // class strung only: of an Owner
	version   uint64
	prefix    []byte // the version, in front of each value
	older     map[uint64]Codec[V]
	announced bool // the descriptor of version is in the store or on its way
	migrates  bool // some of older may fail
}

func newValues[V any](s *State, spec Spec, vc Codec[V]) (*values[V], error) {
	x := &values[V]{s: s, spec: spec, vc: vc, older: map[uint64]Codec[V]{}}
	if spec.Expiring {
		x.changelog = 1
	}
	switch {
	case !vc.Flat():
		x.class = encoded
		if c, ok := vc.(Copier[V]); ok {
			x.class, x.copier = copied, c
		}
	case hasPointers(reflect.TypeFor[V]()):
		_, x.owned = vc.(Owner)
		x.class = strung
	}
	if s.schemas == nil {
		s.schemas = map[ID]map[uint64]string{}
		lo, hi := schemaRange()
		if err := s.scan(lo, hi, func(key, val []byte) bool { s.learnSchema(key, val); return true }); err != nil {
			return nil, fmt.Errorf("read schema descriptors: %w", err)
		}
	}
	newest := uint64(0)
	for v, schema := range s.schemas[spec.ID] {
		newest = max(newest, v)
		if schema == vc.Schema() {
			x.version = max(x.version, v)
			continue
		}
		old, err := readerOf(vc, schema)
		if err != nil {
			return nil, fmt.Errorf("open state store %q: %w", spec.Name, err)
		}
		x.older[v] = old
		x.migrates = x.migrates || mayFail(old)
	}
	if x.announced = x.version != 0; !x.announced {
		x.version = newest + 1
	}
	x.prefix = binary.AppendUvarint(nil, x.version)
	return x, nil
}

// append appends the version and the value.
func (x *values[V]) append(dst []byte, v *V) []byte {
	return x.vc.Append(append(dst, x.prefix...), v)
}

// use makes the Seal that calls it carry the schema descriptor, if none has yet.
func (x *values[V]) use() {
	if !x.announced {
		x.announced = true
		x.s.announced = append(x.s.announced, Change{Key: schemaKey(x.spec.ID, x.version), Value: []byte(x.vc.Schema())})
	}
}

// decode reads what append wrote, now or under an older schema.
func (x *values[V]) decode(prefix, key, src []byte, v *V) {
	var err error
	if bytes.HasPrefix(src, x.prefix) && x.version < 0x80 {
		err = x.vc.Decode(src[1:], v)
	} else {
		version, n := binary.Uvarint(src)
		vc := x.older[version]
		if version == x.version {
			vc = x.vc
		}
		switch {
		case n <= 0:
			err = errShort
		case vc == nil:
			err = fmt.Errorf("no descriptor of schema version %d", version)
		default:
			err = vc.Decode(src[n:], v)
		}
	}
	if err != nil {
		if m, ok := asMigrationError(err); ok {
			m.Store, m.Key = x.spec.Name, append(bytes.Clone(prefix), key...)
			panic(m)
		}
		panic(&Fault{fmt.Errorf("read state store %q: key %x%x: %w: %w: wipe the local store to restore it from its changelog", x.spec.Name, prefix, key, ErrCorrupt, err)})
	}
}

// current says that a value has the newest schema.
func (x *values[V]) current(src []byte) bool {
	version, n := binary.Uvarint(src)
	return n > 0 && version == x.version
}

// get reads a key from the Store.
func (x *values[V]) get(key []byte) ([]byte, bool) {
	x.s.reads++
	val, ok, err := x.s.store.Get(key)
	if err != nil {
		x.fault(fmt.Errorf("key %x: %w", key, err))
	}
	return val, ok
}

func (x *values[V]) scan(lo, hi []byte, fn func(key, val []byte) bool) {
	x.s.reads++
	if err := x.s.scan(lo, hi, fn); err != nil {
		x.fault(err)
	}
}

func (x *values[V]) fault(err error) {
	panic(&Fault{fmt.Errorf("read state store %q: %w", x.spec.Name, err)})
}

// decodeUser reads the user's key from behind a prefix of n bytes of a physical key.
func decodeUser[K comparable, V any](x *values[V], kc KeyCodec[K], key []byte, n int) (K, []byte) {
	if len(key) < n {
		x.fault(fmt.Errorf("key %x: %w: it is shorter than its prefix", key, ErrCorrupt))
	}
	k, rest, err := kc.Decode(key[n:])
	if err != nil {
		x.fault(fmt.Errorf("key %x: %w: %w", key, ErrCorrupt, err))
	}
	return k, rest
}

// noHorizon is the horizon of a store that never dropped a window.
const noHorizon = math.MinInt64

// arena hands out room for bytes that stay valid until reset.
type arena struct {
	chunks [][]byte // full ones, kept for reuse after reset
	spare  [][]byte
	cur    []byte
}

const (
	arenaChunk = 64 << 10
	arenaKeep  = 16 // chunks kept for reuse: 1 MiB
)

// tail is empty, with the free room of the current chunk as its capacity. What was appended to it is kept with keep.
func (a *arena) tail() []byte {
	if cap(a.cur)-len(a.cur) < 256 {
		if a.cur != nil {
			a.chunks = append(a.chunks, a.cur)
		}
		if n := len(a.spare); n > 0 {
			a.cur, a.spare = a.spare[n-1][:0], a.spare[:n-1]
		} else {
			a.cur = make([]byte, 0, arenaChunk)
		}
	}
	return a.cur[len(a.cur):]
}

// keep takes what was appended to the last tail. What outgrew the chunk was moved by append to memory of its own.
func (a *arena) keep(b []byte) []byte {
	if n := len(a.cur) + len(b); n <= cap(a.cur) && len(b) > 0 && &b[0] == &a.cur[:n][len(a.cur)] {
		a.cur = a.cur[:n]
	}
	return b[:len(b):len(b)]
}

// reset makes all room free again.
func (a *arena) reset() {
	a.spare = append(a.spare, a.chunks...)
	keep := min(len(a.spare), arenaKeep)
	clear(a.spare[keep:])
	a.spare = a.spare[:keep]
	clear(a.chunks)
	a.chunks = a.chunks[:0]
	a.cur = a.cur[:0]
}

// byteArena is addressed by numbers instead of pointers, so that what refers to it is invisible to the garbage
// collector.
type byteArena struct {
	chunks [][]byte
	spare  [][]byte
}

// add copies b and returns its place.
func (a *byteArena) add(b []byte) uint64 {
	n := len(a.chunks) - 1
	if n < 0 || cap(a.chunks[n])-len(a.chunks[n]) < len(b) {
		var c []byte
		switch m := len(a.spare); {
		case len(b) > arenaChunk:
			c = make([]byte, 0, len(b))
		case m > 0:
			c, a.spare = a.spare[m-1], a.spare[:m-1]
		case n < 0:
			c = make([]byte, 0, max(len(b), 4<<10)) // small stores stay small
		default:
			c = make([]byte, 0, arenaChunk)
		}
		a.chunks = append(a.chunks, c)
		n++
	}
	off := len(a.chunks[n])
	a.chunks[n] = append(a.chunks[n], b...)
	return uint64(n)<<32 | uint64(off)
}

func (a *byteArena) at(ref uint64, n uint32) []byte {
	off := uint32(ref)
	return a.chunks[ref>>32][off : off+n : off+n]
}

// reset empties the arena; up to keep chunks of the usual size are used again.
func (a *byteArena) reset(keep int) {
	for _, c := range a.chunks {
		if cap(c) == arenaChunk && len(a.spare) < keep {
			a.spare = append(a.spare, c[:0])
		}
	}
	clear(a.chunks)
	a.chunks = a.chunks[:0]
}

// pendArena holds the values of pending changes, one place per key that is written over as long as the value fits.
type pendArena struct {
	a     byteArena
	bytes int64
}

// A pendRec is a pending change of an entry.
type pendRec struct {
	ref     uint64
	len     uint32
	cap     uint32
	deleted bool
}

// pendOverhead is what a pending change costs besides its bytes.
const pendOverhead = 40

// put sets the value of r; nil means deleted.
func (p *pendArena) put(r *pendRec, val []byte) {
	r.deleted = val == nil
	if r.deleted {
		r.len = 0
		return
	}
	if len(val) <= int(r.cap) {
		r.len = uint32(copy(p.a.at(r.ref, r.cap), val))
		return
	}
	r.ref = p.a.add(val)
	r.len, r.cap = uint32(len(val)), uint32(len(val))
	p.bytes += int64(len(val))
}

// value is nil if the key was deleted.
func (p *pendArena) value(r *pendRec) []byte {
	if r.deleted {
		return nil
	}
	return p.a.at(r.ref, r.len)
}

func (p *pendArena) reset() {
	p.a.reset(arenaKeep)
	p.bytes = 0
}
