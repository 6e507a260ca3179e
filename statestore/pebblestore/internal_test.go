package pebblestore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/millrace-stream/millrace/statestore"
)

func FuzzMeta(f *testing.F) {
	f.Add(encodeMeta(statestore.Meta{}))
	f.Add(encodeMeta(statestore.Meta{Epoch: 1 << 63, EpochRecord: []byte("record"), Positions: []int64{-1, 0, 1 << 40}}))
	f.Add([]byte{1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := decodeMeta(data)
		if err != nil {
			return
		}
		again, err := decodeMeta(encodeMeta(m))
		if err != nil || again.Epoch != m.Epoch || !bytes.Equal(again.EpochRecord, m.EpochRecord) ||
			(again.EpochRecord == nil) != (m.EpochRecord == nil) || !slices.Equal(again.Positions, m.Positions) {
			t.Fatalf("%+v became %+v, %v", m, again, err)
		}
	})
}

func TestMetaCut(t *testing.T) {
	b := encodeMeta(statestore.Meta{Epoch: 1000, EpochRecord: []byte("record"), Positions: []int64{5, 1 << 40}})
	for n := range b {
		if m, err := decodeMeta(b[:n]); err == nil {
			t.Fatalf("%d of %d bytes decode to %+v", n, len(b), m)
		}
	}
	if _, err := decodeMeta(append(b, 0)); err == nil {
		t.Fatal("one byte too many")
	}
}

// fakeDB is a DB that wants a number of compactions.
type fakeDB struct {
	mu      sync.Mutex
	slot    *compactionSlot
	want    int // compactions still to be started
	waiting bool
	running []pebble.CompactionGrantHandle
}

func (d *fakeDB) GetAllowedWithoutPermission() int { return 1 }

func (d *fakeDB) GetWaitingCompaction() (bool, pebble.WaitingCompaction) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.want == 0 {
		d.waiting = false
	}
	return d.waiting, pebble.WaitingCompaction{}
}

func (d *fakeDB) Schedule(h pebble.CompactionGrantHandle) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.waiting || d.want == 0 {
		d.waiting = false
		return false
	}
	d.want--
	d.running = append(d.running, h)
	return true
}

// ask does what Pebble's maybeScheduleCompaction does.
func (d *fakeDB) ask() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.want > 0 && !d.waiting {
		ok, h := d.slot.TrySchedule()
		if !ok {
			d.waiting = true
			return
		}
		d.want--
		d.running = append(d.running, h)
	}
}

// finish ends one compaction.
func (d *fakeDB) finish() bool {
	d.mu.Lock()
	if len(d.running) == 0 {
		d.mu.Unlock()
		return false
	}
	h := d.running[0]
	d.running = d.running[1:]
	d.mu.Unlock()
	h.Done()
	d.ask()
	return true
}

// TestCompactionLimit: never more than the limit, never more than one of a DB, and all that is wanted is done.
func TestCompactionLimit(t *testing.T) {
	c := newCompactions(2)
	dbs := make([]*fakeDB, 5)
	for i := range dbs {
		dbs[i] = &fakeDB{want: 4, slot: &compactionSlot{all: c, fail: newFailure(func(error) {})}}
		dbs[i].slot.Register(1, dbs[i])
		dbs[i].slot.start()
		dbs[i].ask()
	}
	done := 0
	for progress := true; progress; {
		progress = false
		running, busy := 0, 0
		for _, d := range dbs {
			if len(d.running)+d.want > 0 {
				busy++
			}
			if len(d.running) > 1 {
				t.Fatalf("%d compactions of one DB", len(d.running))
			}
			running += len(d.running)
		}
		if running > 2 || running != c.running {
			t.Fatalf("%d compactions run, %d are counted, limit 2", running, c.running)
		}
		if running < min(2, busy) {
			t.Fatalf("%d compactions run, %d DBs have some to do", running, busy)
		}
		for _, d := range dbs {
			if d.finish() {
				done++
				progress = true
				break
			}
		}
	}
	if done != 20 {
		t.Fatalf("%d compactions were done, want 20", done)
	}
}

// TestCompactionsOfFailedAndClosedStores: neither gets a slot, and both leave theirs to others.
func TestCompactionsOfFailedAndClosedStores(t *testing.T) {
	c := newCompactions(1)
	newDB := func() *fakeDB {
		d := &fakeDB{want: 2, slot: &compactionSlot{all: c, fail: newFailure(func(error) {})}}
		d.slot.Register(1, d)
		d.slot.start()
		return d
	}
	busy, closed, failed, alive := newDB(), newDB(), newDB(), newDB()
	for _, d := range []*fakeDB{busy, closed, failed, alive} {
		d.ask()
	}
	closed.slot.Unregister()
	failed.slot.fail.set(errFrozen)
	busy.want = 0
	if !busy.finish() || len(closed.running) != 0 || len(failed.running) != 0 || len(alive.running) != 1 {
		t.Fatalf("running: closed %d, failed %d, alive %d", len(closed.running), len(failed.running), len(alive.running))
	}
	if ok, _ := closed.slot.TrySchedule(); ok {
		t.Fatal("a closed DB got a slot")
	}
	alive.finish()
	alive.finish()
	if c.running != 0 {
		t.Fatalf("%d slots are lost", c.running)
	}
	if ok, _ := failed.slot.TrySchedule(); ok {
		t.Fatal("a failed store got a slot")
	}
}

// TestNoCompactionBeforeStart: what a DB asks for while it opens runs when it is open.
func TestNoCompactionBeforeStart(t *testing.T) {
	c := newCompactions(1)
	opening := &fakeDB{want: 1, slot: &compactionSlot{all: c, fail: newFailure(func(error) {})}}
	other := &fakeDB{want: 1, slot: &compactionSlot{all: c, fail: newFailure(func(error) {})}}
	opening.slot.Register(1, opening)
	opening.ask()
	other.slot.Register(1, other)
	other.slot.start()
	other.ask()
	if !other.finish() || len(opening.running) != 0 {
		t.Fatal("a compaction runs in a DB that is not open yet")
	}
	opening.slot.start()
	if !opening.finish() || c.running != 0 {
		t.Fatal("the compaction asked for while opening never ran")
	}
}

// What stores lend of the block cache is told in sum, and ends with them.
func TestLend(t *testing.T) {
	var told []int64
	d, err := OpenDir(t.TempDir(), "app", Options{CacheBytes: 8 << 20, Lent: func(n int64) { told = append(told, n) }})
	if err != nil {
		t.Fatal(err)
	}
	var stores []*Store
	for _, subtask := range []string{"0_0", "0_1"} {
		s, err := d.Open(statestore.Identity{App: "app", Subtask: subtask})
		if err != nil {
			t.Fatal(err)
		}
		stores = append(stores, s.(*Store))
	}
	stores[0].Lend(3 << 20)
	stores[1].Lend(2 << 20)
	stores[1].Lend(4 << 20)
	stores[1].Lend(4 << 20)
	stores[0].Lend(0)
	if err := stores[1].Close(); err != nil {
		t.Fatal(err)
	}
	if n := told[len(told)-1]; n != 0 {
		t.Errorf("%d bytes are lent by a store that is closed", n)
	}
	stores[1].Lend(1 << 20)
	if want := []int64{3 << 20, 5 << 20, 7 << 20, 4 << 20, 0}; !slices.Equal(told, want) {
		t.Errorf("lent: %d, want %d", told, want)
	}
	if err := errors.Join(stores[0].Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
}

// What is lent is room that the block cache has not, until it is given back.
func TestLentRoomIsNotTheCaches(t *testing.T) {
	const room = 8 << 20
	d, err := OpenDir(t.TempDir(), "app", Options{CacheBytes: room})
	if err != nil {
		t.Fatal(err)
	}
	st, err := d.Open(statestore.Identity{App: "app", Subtask: "0_0"})
	if err != nil {
		t.Fatal(err)
	}
	s := st.(*Store)
	b := s.NewBatch()
	value := make([]byte, 1000)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 3 * room / len(value) {
		for j := range value {
			value[j] = byte(random.Uint32())
		}
		b.Set(binary.BigEndian.AppendUint64([]byte{0, 0, 0, 9}, uint64(i)), value)
	}
	if err := errors.Join(b.Commit(statestore.Meta{Epoch: 1}), s.Flush()); err != nil {
		t.Fatal(err)
	}
	cached := func() int64 {
		t.Helper()
		it, err := s.Scan(nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for it.Next() {
		}
		if err := it.Close(); err != nil {
			t.Fatal(err)
		}
		return d.cache.Metrics().Size
	}
	if n := cached(); n < room/2 || n > room {
		t.Fatalf("the cache has %d bytes of %d", n, room)
	}
	for range 2 { // what was lent before counts no more
		s.Lend(room / 4 * 3)
		if n := cached(); n > room/4 {
			t.Errorf("the cache has %d bytes of %d", n, room/4)
		}
		s.Lend(room / 2)
		if n := cached(); n < room/4 || n > room/2 {
			t.Errorf("the cache has %d bytes of %d", n, room/2)
		}
	}
	s.Lend(0)
	if n := cached(); n < room/2 {
		t.Errorf("the cache has %d bytes of %d when nothing is lent any more", n, room)
	}
	if err := errors.Join(s.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
}
