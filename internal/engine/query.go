package engine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/txn"
)

// Queries read the state of the last committed epoch from outside. A question about one key reaches the subtask's
// goroutine as a message and is answered between two steps: committed values lie apart from those of the running epoch
// (statestore.State.ReadCommitted), so that it needs no pause between epochs and never sees anything uncommitted (I4). A
// scan asks the loop only to write behind; then it reads a snapshot of the store beside the loop.

// Bounds of queries.
const (
	// queriesWaiting is how many questions wait for one subtask; more are refused.
	queriesWaiting = 16
	// MaxQueryEntries is how many entries an answer about one key has at most: those of a map, a list, or a key's windows.
	MaxQueryEntries = 1000
	maxQueryBytes   = 1 << 20
	// concurrentScans is how many scans one process runs at a time: each holds a snapshot and reads the disk.
	concurrentScans = 2
	// What takes longer is ended: a question about a key, the wait for a snapshot, a scan.
	queryTimeout    = 5 * time.Second
	snapshotTimeout = 30 * time.Second
	scanTimeout     = 10 * time.Minute
	// ownersAge is how old the word of who owns what may be when a question has to be sent elsewhere.
	ownersAge = time.Second
)

// StoreStatus describes a store of the app.
type StoreStatus struct {
	Store       string `json:"store"`
	Operator    string `json:"operator"`
	State       string `json:"state"` // name of the state in the operator
	Kind        string `json:"kind"`
	KeyType     string `json:"key_type"`
	ValueType   string `json:"value_type"`
	Expiring    bool   `json:"expiring"`
	SubTopology int    `json:"sub_topology"`
	Subtasks    int    `json:"subtasks"`
}

// StateKey asks for one key.
type StateKey struct {
	Store  string
	Key    string // as statestore.Spec.KeyText takes it
	Window *int64 // end of a window, ms; nil = all windows of the key
	MapKey *string
}

// StateScan asks for entries of one subtask.
type StateScan struct {
	Subtask  record.SubtaskID
	Store    string // "" = all stores
	Key      *string
	From, To *string // from <= key < to
	MapKey   *string // with Key, of a map
	Window   *int64  // end of a window, or time of timers
	Limit    int     // entries; 0 = no limit
}

// StateAnswer says what an answer is of.
type StateAnswer struct {
	Subtask string
	Epoch   uint64 // that is the newest in it
	Entries int
	CutOff  bool // there is more
}

// Errors of queries.
var (
	// ErrNoStore: the app has no such store.
	ErrNoStore = errors.New("the app has no such store")
	// ErrBadQuery: the question cannot be understood.
	ErrBadQuery = errors.New("the question cannot be understood")
)

// UnavailableError says that a question cannot be answered now, and when to ask again.
type UnavailableError struct {
	Reason string
	Retry  time.Duration
}

func (e *UnavailableError) Error() string { return e.Reason }

// NotHereError says that another member owns the subtask.
type NotHereError struct {
	Subtask record.SubtaskID
	Owner   txn.Owner // empty while nobody is known to own it
}

func (e *NotHereError) Error() string {
	if e.Owner.Member == "" {
		return fmt.Sprintf("subtask %s is not here, and nobody is known to own it at the moment", e.Subtask)
	}
	return fmt.Sprintf("subtask %s is not here, member %s at %s owns it", e.Subtask, e.Owner.Member, e.Owner.Host)
}

// desk is where a worker takes questions.
type desk struct {
	scans chan struct{} // budget
	ctx   context.Context
	stop  context.CancelFunc

	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup // questions under way
	owners map[record.SubtaskID]txn.Owner
	heard  time.Time // when they were asked for
}

func newDesk() *desk {
	d := &desk{scans: make(chan struct{}, concurrentScans)}
	d.ctx, d.stop = context.WithCancel(context.Background())
	return d
}

// open lets a question in; done is to be called at its end. It ends with ctx, after timeout, or with the worker.
func (d *desk) open(ctx context.Context, timeout time.Duration) (inner context.Context, done func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, nil, &UnavailableError{"the worker has stopped", timeout}
	}
	d.wg.Add(1)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	stop := context.AfterFunc(d.ctx, cancel)
	return ctx, func() { stop(); cancel(); d.wg.Done() }, nil
}

// close ends all questions, and waits for that: they read files of the state directory.
func (d *desk) close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.stop()
	d.wg.Wait()
}

// owner asks the group who owns a subtask; the answer may be as old as ownersAge.
func (d *desk) owner(ctx context.Context, g *txn.Group, id record.SubtaskID) (txn.Owner, error) {
	d.mu.Lock()
	owner, fresh := d.owners[id], time.Since(d.heard) < ownersAge
	d.mu.Unlock()
	if fresh {
		return owner, nil
	}
	owners, err := g.Owners(ctx)
	if err != nil {
		return owner, err
	}
	d.mu.Lock()
	d.owners, d.heard = owners, time.Now()
	d.mu.Unlock()
	return owners[id], nil
}

// A query is a question on its way to a subtask's goroutine. Who asks does not touch it before done is closed.
type query struct {
	ctx  context.Context
	done chan struct{}
	err  error

	// About one key: entries are copies of their bytes, decoded by who asked.
	store   statestore.ID
	group   statestore.Group
	key     []byte
	point   statestore.Point
	entries []statestore.Change
	schemas []statestore.Change
	cutOff  bool
	epoch   uint64

	// For a scan.
	scan   bool
	begun  bool // its write-behind
	source statestore.Checkpointer
}

func (q *query) end(err error) {
	q.err = err
	close(q.done)
}

// StateStores lists the stores of the app, sorted by name. It is empty before the worker knows the topology.
func (w *Worker) StateStores() []StoreStatus {
	w.mu.Lock()
	topo := w.topo
	w.mu.Unlock()
	var list []StoreStatus
	if topo == nil {
		return list
	}
	for _, sub := range topo.subs {
		for _, spec := range sub.plan.Stores {
			operator, state, _ := strings.Cut(spec.Name, "/")
			list = append(list, StoreStatus{spec.Name, operator, state, spec.Kind.String(), spec.KeyType, spec.ValType, spec.Expiring, sub.plan.ID, sub.parallelism})
		}
	}
	slices.SortFunc(list, func(a, b StoreStatus) int { return strings.Compare(a.Store, b.Store) })
	return list
}

// StateSubtasks are the subtasks that keep a store, "" = any store, in order. Errors: ErrNoStore, *UnavailableError.
func (w *Worker) StateSubtasks(store string) ([]record.SubtaskID, error) {
	w.mu.Lock()
	topo := w.topo
	w.mu.Unlock()
	if topo == nil {
		return nil, errNotReady
	}
	var ids []record.SubtaskID
	for _, sub := range topo.subs {
		if !slices.ContainsFunc(sub.plan.Stores, func(s statestore.Spec) bool { return store == "" || s.Name == store }) {
			continue
		}
		for k := range sub.parallelism {
			ids = append(ids, record.SubtaskID{SubTopology: sub.plan.ID, Index: k})
		}
	}
	if ids == nil && store != "" {
		return nil, fmt.Errorf("%w: %q", ErrNoStore, store)
	}
	return ids, nil
}

var errNotReady = &UnavailableError{"the worker does not know its topology yet", time.Second}

// StateGet calls emit for each entry of a key, as statestore.Inspector.Append writes it, but those whose time to live is over;
// the line is valid during the call.
// Errors: ErrNoStore, ErrBadQuery, *NotHereError, *UnavailableError, those of emit, ctx and the store.
func (w *Worker) StateGet(ctx context.Context, k StateKey, emit func(line []byte) error) (StateAnswer, error) {
	ctx, done, err := w.desk.open(ctx, queryTimeout)
	if err != nil {
		return StateAnswer{}, err
	}
	defer done()
	w.mu.Lock()
	topo := w.topo
	w.mu.Unlock()
	if topo == nil {
		return StateAnswer{}, errNotReady
	}
	for _, sub := range topo.subs {
		for _, spec := range sub.plan.Stores {
			if spec.Name == k.Store {
				return w.get(ctx, sub, spec, k, emit)
			}
		}
	}
	return StateAnswer{}, fmt.Errorf("%w: %q", ErrNoStore, k.Store)
}

func (w *Worker) get(ctx context.Context, sub *resolvedSub, spec statestore.Spec, k StateKey, emit func(line []byte) error) (a StateAnswer, err error) {
	bad := func(err error) (StateAnswer, error) { return a, fmt.Errorf("%w: %w", ErrBadQuery, err) }
	q := &query{ctx: ctx, done: make(chan struct{}), point: statestore.Point{Window: k.Window}}
	if q.key, err = spec.KeyText(k.Key); err != nil {
		return bad(err)
	}
	if k.MapKey != nil {
		if q.point.MapKey, err = spec.MapKeyText(*k.MapKey); err != nil {
			return bad(err)
		}
	}
	if k.Window != nil && !spec.Kind.Windowed() {
		return bad(fmt.Errorf("state store %q has no windows", spec.Name))
	}
	if spec.Kind == statestore.KindTimers {
		return bad(statestore.ErrNotByKey)
	}
	// A store that was moved has another id in the state than in the program.
	if q.group, err = sub.plan.KeyGroup(statestore.StoreID(spec.Name), q.key); err != nil {
		return bad(err)
	}
	q.store = spec.ID
	id := record.SubtaskID{SubTopology: sub.plan.ID, Index: int(q.group) % sub.parallelism}
	if err := w.ask(ctx, id, q); err != nil {
		return a, err
	}
	a = StateAnswer{Subtask: id.String(), Epoch: q.epoch, CutOff: q.cutOff}
	in := statestore.NewInspector([]statestore.Spec{spec})
	for _, s := range q.schemas {
		in.Learn(s.Key, s.Value)
	}
	var line []byte
	now := time.Now().UnixMilli()
	for _, e := range q.entries {
		if in.Expired(e.Key, e.Value, now) {
			continue
		}
		a.Entries++
		line = in.Append(line[:0], a.Subtask, e.Key, e.Value)
		if err := emit(line); err != nil {
			return a, err
		}
	}
	return a, nil
}

// ask sends a question to a subtask of this worker, and waits for the answer.
func (w *Worker) ask(ctx context.Context, id record.SubtaskID, q *query) error {
	w.mu.Lock()
	s, g := w.subtasks[id], w.group
	w.mu.Unlock()
	if s == nil || s.finished() || g == nil {
		return w.notHere(ctx, id)
	}
	s.mu.Lock()
	state := s.state
	s.mu.Unlock()
	if state != SubtaskRunning {
		return &UnavailableError{fmt.Sprintf("subtask %s is %s", id, state), time.Second}
	}
	// Who was left out of the group without knowing it yet must not answer for what others go on with.
	if _, mine := g.Ownership(id); !mine {
		return w.notHere(ctx, id)
	}
	select {
	case s.queries <- q:
	default:
		return &UnavailableError{fmt.Sprintf("%d questions wait for subtask %s already", queriesWaiting, id), time.Second}
	}
	select {
	case <-q.done:
		return q.err
	case <-s.done:
		return &UnavailableError{fmt.Sprintf("subtask %s was let go", id), time.Second}
	case <-ctx.Done():
		return &UnavailableError{fmt.Sprintf("subtask %s did not answer in time: %v", id, ctx.Err()), time.Second}
	}
}

// notHere names the owner of a subtask, as the group's coordinator knows it now.
func (w *Worker) notHere(ctx context.Context, id record.SubtaskID) error {
	w.mu.Lock()
	g, self := w.group, w.opts.Kafka.InstanceID
	w.mu.Unlock()
	if g == nil {
		return errNotReady
	}
	owner, err := w.desk.owner(ctx, g, id)
	if err != nil {
		return &UnavailableError{fmt.Sprintf("subtask %s is not here, and who owns it is not known: %v", id, err), time.Second}
	}
	if owner.Member == "" || owner.Member == self && self != "" {
		return &UnavailableError{fmt.Sprintf("subtask %s is on its way to another member", id), time.Second}
	}
	return &NotHereError{id, owner}
}

// answer serves the questions that wait. The loop calls it only when there are some.
func (l *life) answer() error {
	for range queriesWaiting {
		select {
		case q := <-l.s.queries:
			l.serve(q)
		default:
			return l.serveScans()
		}
	}
	return l.serveScans()
}

// serve answers a question about a key, and keeps one for a scan until its write-behind is on the disk.
func (l *life) serve(q *query) {
	if q.scan {
		l.scans = append(l.scans, q)
		return
	}
	if q.ctx.Err() != nil {
		q.end(q.ctx.Err())
		return
	}
	size := 0
	err := l.state.ReadCommitted(q.store, q.group, q.key, q.point, func(key, val []byte) bool {
		if len(q.entries) == MaxQueryEntries || size > maxQueryBytes {
			q.cutOff = true
			return false
		}
		size += len(key) + len(val)
		q.entries = append(q.entries, statestore.Change{Key: bytes.Clone(key), Value: bytes.Clone(val)})
		return true
	})
	l.state.CommittedSchemas(func(key, val []byte) {
		q.schemas = append(q.schemas, statestore.Change{Key: bytes.Clone(key), Value: bytes.Clone(val)})
	})
	q.epoch = l.epoch
	q.end(err)
}

// serveScans brings scans on their way: what is committed is written to the store, and when that is on the disk, who asked
// makes a snapshot. The loop never waits for the disk.
func (l *life) serveScans() error {
	if len(l.scans) == 0 {
		return nil
	}
	source, ok := l.store.(statestore.Checkpointer)
	busy, err := l.store.Busy()
	if err != nil {
		return fmt.Errorf("write committed state to the store of subtask %s: %w", l.s.id, err)
	}
	if !busy {
		if have, any := l.store.Meta(); slices.ContainsFunc(l.scans, func(q *query) bool { return !q.begun }) && (!any || have.Epoch != l.meta.Epoch) {
			l.lastBehind = time.Now()
			if err := l.state.StartWriteBehind(l.meta); err != nil {
				return fmt.Errorf("write committed state to the store of subtask %s: %w", l.s.id, err)
			}
			if busy, err = l.store.Busy(); err != nil {
				return fmt.Errorf("write committed state to the store of subtask %s: %w", l.s.id, err)
			}
		}
		for _, q := range l.scans {
			q.begun = true
		}
	}
	l.scans = slices.DeleteFunc(l.scans, func(q *query) bool {
		switch {
		case q.ctx.Err() != nil:
			q.end(q.ctx.Err())
		case !ok:
			q.end(fmt.Errorf("%w: the store of subtask %s makes no snapshots", ErrBadQuery, l.s.id))
		case !q.begun || busy:
			return false
		default:
			q.source, q.epoch = source, l.epoch
			q.end(nil)
		}
		return true
	})
	return nil
}

// scanTick is how often the loop looks whether a write-behind for a scan is on the disk, when it has nothing else to do.
const scanTick = 2 * time.Millisecond

// refuse ends the questions that a life leaves behind.
func (l *life) refuse() {
	err := &UnavailableError{fmt.Sprintf("subtask %s starts again or is handed over", l.s.id), time.Second}
	for _, q := range l.scans {
		q.end(err)
	}
	l.scans = nil
	for {
		select {
		case q := <-l.s.queries:
			q.end(err)
		default:
			return
		}
	}
}

// StateScan calls emit for the entries of a subtask, as StateGet does. They are of one epoch. Errors: those of StateGet.
func (w *Worker) StateScan(ctx context.Context, o StateScan, emit func(line []byte) error) (a StateAnswer, err error) {
	ctx, done, err := w.desk.open(ctx, scanTimeout)
	if err != nil {
		return a, err
	}
	defer done()
	w.mu.Lock()
	topo := w.topo
	w.mu.Unlock()
	if topo == nil {
		return a, errNotReady
	}
	if o.Subtask.SubTopology >= len(topo.subs) || o.Subtask.SubTopology < 0 || o.Subtask.Index < 0 || o.Subtask.Index >= topo.subs[o.Subtask.SubTopology].parallelism {
		return a, fmt.Errorf("%w: the app has no subtask %s", ErrBadQuery, o.Subtask)
	}
	sub := topo.subs[o.Subtask.SubTopology]
	r, err := NewStateReader(sub.plan.Stores, o, sub.parallelism)
	if err != nil {
		return a, err
	}
	select {
	case w.desk.scans <- struct{}{}:
		defer func() { <-w.desk.scans }()
	default:
		return a, &UnavailableError{fmt.Sprintf("%d scans run in this process already", concurrentScans), 5 * time.Second}
	}
	actx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	q := &query{ctx: actx, done: make(chan struct{}), scan: true}
	if err := w.ask(actx, o.Subtask, q); err != nil {
		return a, err
	}
	a.Subtask, a.Epoch = o.Subtask.String(), q.epoch
	snap, err := q.source.Checkpoint()
	if errors.Is(err, statestore.ErrEmpty) {
		return a, nil
	}
	if err != nil {
		return a, &UnavailableError{fmt.Sprintf("subtask %s: snapshot its store: %v", o.Subtask, err), time.Second}
	}
	defer func() { err = errors.Join(err, snap.Close()) }()
	a.Epoch = snap.Meta().Epoch // it may have gone on
	view, err := snap.View()
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	a.Entries, a.CutOff, err = r.Read(ctx, view.Scan, emit)
	return a, err
}

// StateReader reads selected entries of one subtask's state, from wherever its bytes are.
type StateReader struct {
	in      *statestore.Inspector
	subtask string
	ranges  []statestore.Range
	picks   []statestore.Selection // by range
	limit   int

	now int64 // ms since 1970: what had expired then is left out

	at      int // range of the last entry
	entries int
	line    []byte
}

// NewStateReader makes a reader of the stores with these specs, of one of so many subtasks. Errors: ErrNoStore, ErrBadQuery.
func NewStateReader(specs []statestore.Spec, o StateScan, subtasks int) (*StateReader, error) {
	r := &StateReader{in: statestore.NewInspector(specs), subtask: o.Subtask.String(), limit: o.Limit, now: time.Now().UnixMilli()}
	for _, spec := range slices.SortedFunc(slices.Values(specs), func(a, b statestore.Spec) int { return cmp.Compare(a.ID, b.ID) }) {
		if o.Store != "" && spec.Name != o.Store {
			continue
		}
		pick := statestore.Selection{ID: spec.ID, Kind: spec.Kind, Window: o.Window}
		if o.Window != nil && !spec.Kind.Timed() {
			return nil, fmt.Errorf("%w: state store %q has neither windows nor times", ErrBadQuery, spec.Name)
		}
		for text, to := range map[*string]*[]byte{o.Key: &pick.Key, o.From: &pick.From, o.To: &pick.To} {
			if text == nil {
				continue
			}
			var err error
			if *to, err = spec.KeyText(*text); err != nil {
				return nil, fmt.Errorf("%w: %w", ErrBadQuery, err)
			}
		}
		if o.MapKey != nil {
			mk, err := spec.MapKeyText(*o.MapKey)
			if err == nil && o.Key == nil {
				err = errors.New("a key within a map is wanted, and not of which map")
			}
			if err != nil {
				return nil, fmt.Errorf("%w: %w", ErrBadQuery, err)
			}
			pick.Key = append(pick.Key, mk...)
		}
		for _, rg := range pick.Ranges(o.Subtask.Index%subtasks, subtasks) {
			r.ranges, r.picks = append(r.ranges, rg), append(r.picks, pick)
		}
	}
	if r.ranges == nil && o.Store != "" {
		return nil, fmt.Errorf("%w: %q", ErrNoStore, o.Store)
	}
	return r, nil
}

// Ranges are those of the keys that are to be read: descriptors of schemas, then what is selected, ascending.
func (r *StateReader) Ranges() []statestore.Range {
	return append([]statestore.Range{statestore.SchemaRange()}, r.ranges...)
}

// ErrEnough: the limit is reached, and there is more.
var ErrEnough = errors.New("the limit is reached")

// Feed is Read for who has all entries in the order of their keys: it calls emit if an entry is selected. It fails with ErrEnough
// or the error of emit.
func (r *StateReader) Feed(key, val []byte, emit func(line []byte) error) error {
	if r.in.Learn(key, val) {
		return nil
	}
	for r.at < len(r.ranges) && r.ranges[r.at].Hi != nil && bytes.Compare(key, r.ranges[r.at].Hi) >= 0 {
		r.at++
	}
	if r.at == len(r.ranges) || bytes.Compare(key, r.ranges[r.at].Lo) < 0 || !r.picks[r.at].Match(key) || r.in.Expired(key, val, r.now) {
		return nil
	}
	if r.limit > 0 && r.entries == r.limit {
		return ErrEnough
	}
	r.entries++
	r.line = r.in.Append(r.line[:0], r.subtask, key, val)
	return emit(r.line)
}

// Entries is how many Feed has given.
func (r *StateReader) Entries() int { return r.entries }

// Read calls emit for each entry, in the order of keys, until the limit; cutOff says that there are more. scan is
// statestore.View.Scan, or the like.
func (r *StateReader) Read(ctx context.Context, scan func(lo, hi []byte) (statestore.Iterator, error), emit func(line []byte) error) (entries int, cutOff bool, err error) {
	for _, rg := range r.Ranges() {
		err := each(ctx, scan, rg, func(key, val []byte) error { return r.Feed(key, val, emit) })
		if errors.Is(err, ErrEnough) {
			return r.entries, true, nil
		}
		if err != nil {
			return r.entries, false, err
		}
	}
	return r.entries, false, nil
}

// each calls f for the entries of a range until it fails.
func each(ctx context.Context, scan func(lo, hi []byte) (statestore.Iterator, error), rg statestore.Range, f func(key, val []byte) error) (err error) {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	it, err := scan(rg.Lo, rg.Hi)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for n := 0; it.Next(); n++ {
		if n%1024 == 1023 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := f(it.Key(), it.Value()); err != nil {
			return err
		}
	}
	return it.Err()
}
