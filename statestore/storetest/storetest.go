// Package storetest is the conformance suite of statestore.Dir and Store: every implementation runs it.
package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/statestore"
)

// World is one machine with one state directory.
type World interface {
	// Open opens the directory, as a process does at its start.
	Open(app string) (statestore.Dir, error)
	// Crash cuts the power: what was not flushed may be lost, in whole or up to some batch, and locks are gone. Dirs and
	// Stores opened before are not used any more and need not be closed.
	Crash(t testing.TB)
}

// App is the app id that the suite uses.
const App = "orders"

// ID is the identity of a subtask's store in the suite.
func ID(subtask string) statestore.Identity {
	return statestore.Identity{
		App: App, ClusterID: "cluster-1", Incarnation: 3, Subtask: subtask,
		Changelogs: []string{"topic-a", "topic-b"},
	}
}

// Run runs the suite; each test gets a new World.
func Run(t *testing.T, newWorld func(t testing.TB) World) {
	tests := []struct {
		name string
		run  func(*testing.T, World)
	}{
		{"Empty", testEmpty},
		{"GetAndScan", testGetAndScan},
		{"BatchOrder", testBatchOrder},
		{"BatchIsInvisibleUntilCommit", testBatchInvisible},
		{"BatchEnds", testBatchEnds},
		{"BatchCopies", testBatchCopies},
		{"DeleteRange", testDeleteRange},
		{"Meta", testMeta},
		{"ReservedKeys", testReservedKeys},
		{"IteratorIsolation", testIteratorIsolation},
		{"LargeBatches", testLargeBatches},
		{"FlushSurvivesReopen", testReopen},
		{"CrashKeepsAFlushedMeta", testCrash},
		{"FlushBehind", testFlushBehind},
		{"Wipe", testWipe},
		{"StoresAreSeparate", testSeparate},
		{"Identity", testIdentity},
		{"Locks", testLocks},
		{"InstanceID", testInstanceID},
		{"UseAfterClose", testUseAfterClose},
		{"Random", testRandom},
		{"Snapshot", testSnapshot},
		{"ViewGet", testViewGet},
		{"SnapshotWhileInUse", testSnapshotMeanwhile},
		{"Stage", testStage},
		{"StageStore", testStageStore},
		{"Quarantine", testQuarantine},
		{"SnapshotRandom", testSnapshotRandom},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.run(t, newWorld(t)) })
	}
}

func openDir(t testing.TB, w World) statestore.Dir {
	t.Helper()
	d, err := w.Open(App)
	if err != nil {
		t.Fatalf("open directory: %v", err)
	}
	return d
}

func openStore(t testing.TB, d statestore.Dir, id statestore.Identity) statestore.Store {
	t.Helper()
	s, err := d.Open(id)
	if err != nil {
		t.Fatalf("open store %s: %v", id.Subtask, err)
	}
	return s
}

func open(t testing.TB, w World) (statestore.Dir, statestore.Store) {
	t.Helper()
	d := openDir(t, w)
	return d, openStore(t, d, ID("0_0"))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func closeAll(t testing.TB, d statestore.Dir, stores ...statestore.Store) {
	t.Helper()
	for _, s := range stores {
		must(t, s.Close())
	}
	must(t, d.Close())
}

// k makes a key of store id 7.
func k(s string) []byte { return append([]byte{0, 0, 0, 7}, s...) }

// put commits pairs of keys and values at an epoch.
func put(t testing.TB, s statestore.Store, epoch uint64, kv ...string) {
	t.Helper()
	b := s.NewBatch()
	for i := 0; i < len(kv); i += 2 {
		b.Set(k(kv[i]), []byte(kv[i+1]))
	}
	must(t, b.Commit(metaOf(epoch)))
}

func metaOf(epoch uint64) statestore.Meta {
	return statestore.Meta{Epoch: epoch, EpochRecord: fmt.Appendf(nil, "record %d", epoch), Positions: []int64{int64(epoch) * 10, -1}}
}

func sameMeta(a, b statestore.Meta) bool {
	return a.Epoch == b.Epoch && bytes.Equal(a.EpochRecord, b.EpochRecord) &&
		(a.EpochRecord == nil) == (b.EpochRecord == nil) && slices.Equal(a.Positions, b.Positions)
}

func wantGet(t testing.TB, s statestore.Store, key, want string) {
	t.Helper()
	v, ok, err := s.Get(k(key))
	must(t, err)
	if !ok || string(v) != want {
		t.Fatalf("get %s: %q, %v; want %q", key, v, ok, want)
	}
}

func wantMiss(t testing.TB, s statestore.Store, key string) {
	t.Helper()
	v, ok, err := s.Get(k(key))
	must(t, err)
	if ok {
		t.Fatalf("get %s: %q; want a miss", key, v)
	}
}

// drain reads an iterator to its end, as "key=value" in order, and closes it.
func drain(t testing.TB, it statestore.Iterator) []string {
	t.Helper()
	var got []string
	for it.Next() {
		key := it.Key()
		if len(key) >= 4 && bytes.Equal(key[:4], []byte{0, 0, 0, 7}) {
			key = key[4:]
		}
		got = append(got, string(key)+"="+string(it.Value()))
	}
	must(t, it.Err())
	must(t, it.Close())
	return got
}

func scan(t testing.TB, s statestore.Store, lo, hi []byte) []string {
	t.Helper()
	it, err := s.Scan(lo, hi)
	must(t, err)
	return drain(t, it)
}

func wantScan(t testing.TB, s statestore.Store, lo, hi []byte, want ...string) {
	t.Helper()
	if got := scan(t, s, lo, hi); !slices.Equal(got, want) {
		t.Fatalf("scan %x to %x: %q; want %q", lo, hi, got, want)
	}
}

func wantErr(t testing.TB, err, is error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if is != nil && !errors.Is(err, is) {
		t.Fatalf("error %q is not %q", err, is)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Fatalf("error %q does not say %q", err, p)
		}
	}
}

func testEmpty(t *testing.T, w World) {
	d, s := open(t, w)
	if m, ok := s.Meta(); ok {
		t.Fatalf("an empty store has meta %v", m)
	}
	wantMiss(t, s, "a")
	wantScan(t, s, nil, nil)
	must(t, s.Flush())
	if s.Size() < 0 {
		t.Fatalf("size %d", s.Size())
	}
	must(t, s.Close())
	s = openStore(t, d, ID("0_0"))
	if _, ok := s.Meta(); ok {
		t.Fatal("meta after nothing was committed")
	}
	closeAll(t, d, s)
}

func testGetAndScan(t *testing.T, w World) {
	d, s := open(t, w)
	put(t, s, 1, "b", "2", "a", "1", "c", "", "aa", "11", "\xff\xff", "high")
	wantGet(t, s, "a", "1")
	wantGet(t, s, "c", "") // empty is not absent
	wantMiss(t, s, "")
	wantMiss(t, s, "a\x00")
	wantScan(t, s, nil, nil, "a=1", "aa=11", "b=2", "c=", "\xff\xff=high")
	wantScan(t, s, k("aa"), k("c"), "aa=11", "b=2")
	wantScan(t, s, k("ab"), nil, "b=2", "c=", "\xff\xff=high")
	wantScan(t, s, nil, k("a\x00"), "a=1")
	wantScan(t, s, k("b"), k("b"))
	wantScan(t, s, k("c"), k("a"))
	wantScan(t, s, []byte{0, 0, 0, 8}, nil)
	put(t, s, 2, "b", "22")
	wantGet(t, s, "b", "22")
	must(t, s.Flush())
	wantGet(t, s, "b", "22")
	wantMiss(t, s, "bb")
	put(t, s, 3, "a", "over a flushed one")
	wantScan(t, s, nil, k("b"), "a=over a flushed one", "aa=11")
	b := s.NewBatch()
	b.Delete(k("a"))
	b.Delete(k("never there"))
	must(t, b.Commit(metaOf(4)))
	wantMiss(t, s, "a")
	wantScan(t, s, nil, k("b"), "aa=11")
	if s.Size() < 0 {
		t.Fatalf("size %d", s.Size())
	}
	closeAll(t, d, s)
}

func testBatchOrder(t *testing.T, w World) {
	d, s := open(t, w)
	put(t, s, 1, "a", "0", "b", "0", "c", "0", "d", "0")
	b := s.NewBatch()
	b.Set(k("a"), []byte("1"))
	b.Set(k("a"), []byte("2")) // the later one counts
	b.Set(k("b"), []byte("1"))
	b.Delete(k("b"))
	b.Delete(k("c"))
	b.Set(k("c"), []byte("again"))
	b.Set(k("e"), []byte("gone"))
	b.DeleteRange(k("d"), k("f"))
	b.Set(k("da"), []byte("after the range"))
	must(t, b.Commit(metaOf(2)))
	wantScan(t, s, nil, nil, "a=2", "c=again", "da=after the range")
	closeAll(t, d, s)
}

func testBatchInvisible(t *testing.T, w World) {
	d, s := open(t, w)
	put(t, s, 1, "a", "1")
	b := s.NewBatch()
	b.Set(k("a"), []byte("2"))
	b.Set(k("b"), []byte("2"))
	wantScan(t, s, nil, nil, "a=1")
	if m, _ := s.Meta(); m.Epoch != 1 {
		t.Fatalf("epoch %d before the commit", m.Epoch)
	}
	must(t, b.Commit(metaOf(2)))
	wantScan(t, s, nil, nil, "a=2", "b=2")
	if m, ok := s.Meta(); !ok || !sameMeta(m, metaOf(2)) {
		t.Fatalf("meta %v %v after the commit", m, ok)
	}
	closeAll(t, d, s)
}

func testBatchEnds(t *testing.T, w World) {
	d, s := open(t, w)
	b := s.NewBatch()
	if b.Len() != 0 {
		t.Fatalf("length of an empty batch: %d", b.Len())
	}
	b.Set(k("a"), []byte("123"))
	if b.Len() != 5+3 {
		t.Fatalf("length %d, want the 8 bytes of key and value", b.Len())
	}
	b.Discard()
	b.Discard()
	wantErr(t, b.Commit(metaOf(1)), nil, "committed or discarded")
	wantMiss(t, s, "a")
	b = s.NewBatch()
	b.Set(k("a"), []byte("1"))
	must(t, b.Commit(metaOf(1)))
	b.Set(k("b"), []byte("1"))
	wantErr(t, b.Commit(metaOf(2)), nil, "committed or discarded")
	b.Discard()
	wantScan(t, s, nil, nil, "a=1")
	if m, _ := s.Meta(); m.Epoch != 1 {
		t.Fatalf("epoch %d", m.Epoch)
	}
	must(t, s.NewBatch().Commit(metaOf(3))) // only the meta
	if m, _ := s.Meta(); m.Epoch != 3 {
		t.Fatalf("epoch %d", m.Epoch)
	}
	closeAll(t, d, s)
}

func testBatchCopies(t *testing.T, w World) {
	d, s := open(t, w)
	key, value := k("abc"), []byte("value")
	lo, hi := k("x"), k("z")
	m := metaOf(1)
	b := s.NewBatch()
	b.Set(k("y"), []byte("1"))
	b.Set(key, value)
	b.DeleteRange(lo, hi)
	del := k("gone")
	b.Set(k("gone"), []byte("1"))
	b.Delete(del)
	for _, s := range [][]byte{key, value, lo, hi, del} {
		for i := range s {
			s[i] = 'X'
		}
	}
	must(t, b.Commit(m))
	m.EpochRecord[0], m.Positions[0] = 'X', 99
	wantScan(t, s, nil, nil, "abc=value")
	if m, _ := s.Meta(); !sameMeta(m, metaOf(1)) {
		t.Fatalf("meta %v", m)
	}
	closeAll(t, d, s)
}

func testDeleteRange(t *testing.T, w World) {
	d, s := open(t, w)
	fill := func(epoch uint64) { put(t, s, epoch, "a", "1", "b", "1", "c", "1", "d", "1") }
	del := func(lo, hi []byte) {
		b := s.NewBatch()
		b.DeleteRange(lo, hi)
		must(t, b.Commit(metaOf(9)))
	}
	fill(1)
	del(k("b"), k("d"))
	wantScan(t, s, nil, nil, "a=1", "d=1")
	wantMiss(t, s, "b")
	fill(2)
	must(t, s.Flush())
	del(k("b"), nil)
	wantScan(t, s, nil, nil, "a=1")
	must(t, s.Flush())
	fill(3)
	del(k("d"), k("b")) // the wrong way round: nothing
	del(k("b"), k("b"))
	wantScan(t, s, nil, nil, "a=1", "b=1", "c=1", "d=1")
	del(nil, nil)
	wantScan(t, s, nil, nil)
	must(t, s.Flush())
	must(t, s.Close())
	// The whole range never takes the store's own keys along.
	s = openStore(t, d, ID("0_0"))
	if m, ok := s.Meta(); !ok || m.Epoch != 9 {
		t.Fatalf("meta %v %v", m, ok)
	}
	wantScan(t, s, nil, nil)
	closeAll(t, d, s)
}

func testMeta(t *testing.T, w World) {
	d, s := open(t, w)
	for _, m := range []statestore.Meta{
		{},
		{Epoch: 1},
		{Epoch: 1<<64 - 1, EpochRecord: []byte{}, Positions: []int64{0}},
		{Epoch: 7, EpochRecord: []byte("\x00\xff"), Positions: []int64{-1, 1 << 62, 0}},
		{Epoch: 8, EpochRecord: bytes.Repeat([]byte("r"), 100_000), Positions: []int64{5, 6}},
	} {
		must(t, s.NewBatch().Commit(m))
		for range 2 {
			got, ok := s.Meta()
			if !ok || !sameMeta(got, m) {
				t.Fatalf("meta %v %v, want %v", got, ok, m)
			}
			must(t, s.Flush())
			must(t, s.Close())
			s = openStore(t, d, ID("0_0"))
		}
	}
	closeAll(t, d, s)
}

func testReservedKeys(t *testing.T, w World) {
	d, s := open(t, w)
	put(t, s, 1, "a", "1")
	own := []byte{0, 0, 0, 0, 0}
	for _, key := range [][]byte{own, append(slices.Clone(own), 1)} {
		for _, write := range []func(statestore.Batch){
			func(b statestore.Batch) { b.Set(key, []byte("x")) },
			func(b statestore.Batch) { b.Delete(key) },
		} {
			b := s.NewBatch()
			b.Set(k("b"), []byte("1"))
			write(b)
			wantErr(t, b.Commit(metaOf(2)), nil, "reserved")
		}
		if _, ok, err := s.Get(key); ok || err != nil {
			t.Fatalf("get of a reserved key: %v %v", ok, err)
		}
	}
	wantScan(t, s, nil, nil, "a=1")
	wantScan(t, s, own, []byte{0, 0, 0, 0, 1})
	if m, _ := s.Meta(); m.Epoch != 1 {
		t.Fatalf("epoch %d", m.Epoch)
	}
	// Right behind: the keys of schema descriptors.
	b := s.NewBatch()
	b.Set([]byte{0, 0, 0, 0, 1, 5}, []byte("schema"))
	must(t, b.Commit(metaOf(3)))
	wantScan(t, s, nil, []byte{0, 0, 0, 1}, "\x00\x00\x00\x00\x01\x05=schema")
	closeAll(t, d, s)
}

func testIteratorIsolation(t *testing.T, w World) {
	d, s := open(t, w)
	put(t, s, 1, "a", "1", "b", "1", "c", "1")
	old, err := s.Scan(nil, nil)
	must(t, err)
	if !old.Next() || string(old.Value()) != "1" {
		t.Fatal("first entry")
	}
	b := s.NewBatch()
	b.Set(k("b"), []byte("2"))
	b.Delete(k("c"))
	b.Set(k("d"), []byte("2"))
	must(t, b.Commit(metaOf(2)))
	must(t, s.Flush())
	mid, err := s.Scan(k("b"), nil)
	must(t, err)
	b = s.NewBatch()
	b.DeleteRange(nil, nil)
	must(t, b.Commit(metaOf(3)))
	must(t, s.Flush())
	if got := drain(t, old); !slices.Equal(got, []string{"b=1", "c=1"}) {
		t.Fatalf("the iterator of epoch 1 goes on with %q", got)
	}
	if got := drain(t, mid); !slices.Equal(got, []string{"b=2", "d=2"}) {
		t.Fatalf("the iterator of epoch 2 has %q", got)
	}
	wantScan(t, s, nil, nil)
	must(t, old.Close()) // again
	// A bound that the caller changes afterwards is no business of the iterator.
	put(t, s, 4, "a", "1", "b", "1", "c", "1")
	lo, hi := k("a"), k("c")
	it, err := s.Scan(lo, hi)
	must(t, err)
	lo[4], hi[4] = 'z', 'z'
	if got := drain(t, it); !slices.Equal(got, []string{"a=1", "b=1"}) {
		t.Fatalf("scan after its bounds were overwritten: %q", got)
	}
	// Closing the store ends open iterators, it does not hang or crash.
	it, err = s.Scan(nil, nil)
	must(t, err)
	must(t, s.Close())
	_ = it.Close()
	must(t, d.Close())
}

// testLargeBatches writes far more than a memtable, in batches above and below its size.
func testLargeBatches(t *testing.T, w World) {
	d, s := open(t, w)
	value := bytes.Repeat([]byte("0123456789"), 100)
	const each = 3000
	for epoch := range 4 {
		b := s.NewBatch()
		for i := range each {
			b.Set(k(fmt.Sprintf("%06d", epoch*each+i)), value)
		}
		must(t, b.Commit(metaOf(uint64(epoch+1))))
	}
	for i := 0; i < 4*each; i += 97 {
		wantGet(t, s, fmt.Sprintf("%06d", i), string(value))
	}
	if got := len(scan(t, s, nil, nil)); got != 4*each {
		t.Fatalf("%d entries, want %d", got, 4*each)
	}
	must(t, s.Flush())
	if s.Size() < 1000 {
		t.Fatalf("size %d after 12 MB", s.Size())
	}
	must(t, s.Close())
	s = openStore(t, d, ID("0_0"))
	if got := len(scan(t, s, nil, nil)); got != 4*each {
		t.Fatalf("%d entries after reopen, want %d", got, 4*each)
	}
	b := s.NewBatch()
	b.DeleteRange(k(""), k(fmt.Sprintf("%06d", 4*each-1)))
	must(t, b.Commit(metaOf(9)))
	must(t, s.Flush())
	wantScan(t, s, nil, nil, fmt.Sprintf("%06d=%s", 4*each-1, value))
	closeAll(t, d, s)
}

func testReopen(t *testing.T, w World) {
	d, s := open(t, w)
	put(t, s, 1, "a", "1", "b", "1")
	put(t, s, 2, "a", "2")
	must(t, s.Flush())
	closeAll(t, d, s)
	d, s = open(t, w)
	wantScan(t, s, nil, nil, "a=2", "b=1")
	if m, ok := s.Meta(); !ok || !sameMeta(m, metaOf(2)) {
		t.Fatalf("meta %v %v", m, ok)
	}
	// Not flushed: it may be there or not, but as a whole, and with its meta.
	put(t, s, 3, "a", "3", "b", "3")
	closeAll(t, d, s)
	d, s = open(t, w)
	m, _ := s.Meta()
	switch m.Epoch {
	case 2:
		wantScan(t, s, nil, nil, "a=2", "b=1")
	case 3:
		wantScan(t, s, nil, nil, "a=3", "b=3")
	default:
		t.Fatalf("epoch %d after reopen", m.Epoch)
	}
	closeAll(t, d, s)
}

func testCrash(t *testing.T, w World) {
	for round := range 20 {
		_, s := open(t, w)
		m, _ := s.Meta()
		base := m.Epoch
		flushed := base
		// Each epoch writes its number under all of its keys: a mix of two epochs would show.
		write := func(epoch uint64) {
			b := s.NewBatch()
			for i := range 50 {
				b.Set(k(fmt.Sprintf("%02d", i)), bytes.Repeat(fmt.Appendf(nil, "%08d", epoch), 200))
			}
			must(t, b.Commit(metaOf(epoch)))
		}
		last := base
		for range round%7 + 1 {
			last++
			write(last)
			if int(last)%(round%3+2) == 0 {
				must(t, s.Flush())
				flushed = last
			}
		}
		w.Crash(t)
		d, s := open(t, w)
		m, ok := s.Meta()
		if m.Epoch < flushed || m.Epoch > last || ok != (m.Epoch > 0) {
			t.Fatalf("round %d: epoch %d (%v) after the crash; flushed %d, committed %d", round, m.Epoch, ok, flushed, last)
		}
		if ok && !sameMeta(m, metaOf(m.Epoch)) {
			t.Fatalf("round %d: meta %v", round, m)
		}
		n := 0
		it, err := s.Scan(nil, nil)
		must(t, err)
		for it.Next() {
			n++
			if want := bytes.Repeat(fmt.Appendf(nil, "%08d", m.Epoch), 200); !bytes.Equal(it.Value(), want) {
				t.Fatalf("round %d: %x has %.8s in epoch %d", round, it.Key(), it.Value(), m.Epoch)
			}
		}
		must(t, it.Err())
		must(t, it.Close())
		if want := 50; ok && n != want || !ok && n != 0 {
			t.Fatalf("round %d: %d keys in epoch %d", round, n, m.Epoch)
		}
		closeAll(t, d, s)
	}
}

func wantSubtasks(t *testing.T, d statestore.Dir, want ...string) {
	t.Helper()
	got, err := d.Subtasks(ID("0_0").Incarnation)
	must(t, err)
	if !slices.Equal(got, want) {
		t.Fatalf("stores of %v, want %v", got, want)
	}
	if got, err = d.Subtasks(77); err != nil || len(got) > 0 {
		t.Fatalf("stores of another incarnation: %v, %v", got, err)
	}
}

// testFlushBehind: what was committed before it is durable when the store is not busy any more, reads see it at once, and
// what is committed while it runs is not lost by it.
func testFlushBehind(t *testing.T, w World) {
	_, s := open(t, w)
	must(t, s.FlushBehind()) // nothing to do
	put(t, s, 1, "a", "1")
	must(t, s.FlushBehind())
	wantGet(t, s, "a", "1")
	put(t, s, 2, "b", "2")
	wantScan(t, s, nil, nil, "a=1", "b=2")
	idle(t, s)
	w.Crash(t)
	_, s = open(t, w)
	if m, ok := s.Meta(); !ok || m.Epoch < 1 {
		t.Fatalf("meta %v %v after a flush behind that ended, and a crash", m, ok)
	}
	wantGet(t, s, "a", "1")
	put(t, s, 3, "b", "3")
	must(t, s.FlushBehind())
	put(t, s, 4, "b", "4")
	must(t, s.Flush()) // waits for both
	w.Crash(t)
	d, s := open(t, w)
	if m, _ := s.Meta(); m.Epoch != 4 {
		t.Fatalf("epoch %d after a flush, want 4", m.Epoch)
	}
	wantScan(t, s, nil, nil, "a=1", "b=4")
	// A store that is closed meanwhile is whole, with it or without.
	put(t, s, 5, "c", "5")
	must(t, s.FlushBehind())
	must(t, s.Close())
	if busy, err := s.Busy(); err == nil {
		t.Fatalf("a closed store is busy %v, and tells no error", busy)
	}
	wantErr(t, s.FlushBehind(), nil, "closed")
	s = openStore(t, d, ID("0_0"))
	m, _ := s.Meta()
	if _, ok, err := s.Get(k("c")); err != nil || ok != (m.Epoch == 5) {
		t.Fatalf("epoch %d, and its key is there: %v %v", m.Epoch, ok, err)
	}
	closeAll(t, d, s)
}

// idle waits until a store is not busy any more.
func idle(t testing.TB, s statestore.Store) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		busy, err := s.Busy()
		must(t, err)
		if !busy {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the store is still busy after a minute")
		}
		runtime.Gosched()
	}
}

func testWipe(t *testing.T, w World) {
	d, s := open(t, w)
	other := openStore(t, d, ID("0_1"))
	put(t, s, 1, "a", "1")
	put(t, other, 1, "a", "other")
	must(t, s.Flush())
	must(t, other.Flush())
	wantErr(t, d.Wipe(ID("0_0")), nil, "open", "0_0")
	wantGet(t, s, "a", "1")
	must(t, s.Close())
	wantSubtasks(t, d, "0_0", "0_1")
	must(t, d.Wipe(ID("0_0")))
	wantSubtasks(t, d, "0_1")
	must(t, d.Wipe(ID("0_0"))) // nothing there: fine
	must(t, d.Wipe(ID("5_5")))
	s = openStore(t, d, ID("0_0"))
	if _, ok := s.Meta(); ok {
		t.Fatal("meta after a wipe")
	}
	wantScan(t, s, nil, nil)
	wantGet(t, other, "a", "other")
	// A wiped store may get another identity.
	must(t, s.Close())
	must(t, d.Wipe(ID("0_0")))
	id := ID("0_0")
	id.ClusterID = "cluster-2"
	s = openStore(t, d, id)
	put(t, s, 1, "a", "2")
	must(t, s.Flush())
	closeAll(t, d, s, other)
	d = openDir(t, w)
	s = openStore(t, d, id)
	wantScan(t, s, nil, nil, "a=2")
	must(t, s.Close())
	must(t, d.Wipe(id))
	w.Crash(t)
	d = openDir(t, w)
	s = openStore(t, d, id)
	wantScan(t, s, nil, nil) // the wipe was for good
	other = openStore(t, d, ID("0_1"))
	wantGet(t, other, "a", "other")
	closeAll(t, d, s, other)
}

func testSeparate(t *testing.T, w World) {
	d := openDir(t, w)
	next := ID("0_0")
	next.Incarnation++
	ids := []statestore.Identity{ID("0_0"), ID("0_1"), ID("1_0"), ID("0_10"), next}
	var stores []statestore.Store
	for i, id := range ids {
		s := openStore(t, d, id)
		put(t, s, uint64(i+1), "a", fmt.Sprint(i))
		must(t, s.Flush())
		stores = append(stores, s)
	}
	closeAll(t, d, stores...)
	d = openDir(t, w)
	stores = nil
	for i, id := range ids {
		s := openStore(t, d, id)
		wantScan(t, s, nil, nil, fmt.Sprintf("a=%d", i))
		if m, _ := s.Meta(); m.Epoch != uint64(i+1) {
			t.Fatalf("store %d: epoch %d", i, m.Epoch)
		}
		stores = append(stores, s)
	}
	closeAll(t, d, stores...)
}

func testIdentity(t *testing.T, w World) {
	d, s := open(t, w)
	put(t, s, 1, "a", "1")
	must(t, s.Flush())
	must(t, s.Close())
	change := func(f func(*statestore.Identity)) statestore.Identity {
		id := ID("0_0")
		f(&id)
		return id
	}
	for _, test := range []struct {
		id   statestore.Identity
		says []string
	}{
		{change(func(id *statestore.Identity) { id.App = "billing" }), []string{"app", `"billing"`, `"orders"`}},
		{change(func(id *statestore.Identity) { id.ClusterID = "cluster-2" }), []string{"cluster id", `"cluster-1"`, `"cluster-2"`}},
		{change(func(id *statestore.Identity) { id.Changelogs = []string{"topic-a", "topic-c"} }), []string{"topic ids", "topic-b", "topic-c"}},
		{change(func(id *statestore.Identity) { id.Changelogs = nil }), []string{"topic ids", "topic-b"}},
	} {
		_, err := d.Open(test.id)
		wantErr(t, err, statestore.ErrForeign, append(test.says, "0_0")...)
	}
	for _, bad := range []string{"", "0", "../0_0", "0_0/..", "a_b", "0_-1"} {
		if _, err := d.Open(ID(bad)); err == nil {
			t.Fatalf("subtask %q was taken", bad)
		}
		if err := d.Wipe(ID(bad)); err == nil {
			t.Fatalf("subtask %q was wiped", bad)
		}
	}
	s = openStore(t, d, ID("0_0")) // a refused open leaves nothing behind
	wantGet(t, s, "a", "1")
	closeAll(t, d, s)
}

func testLocks(t *testing.T, w World) {
	d, s := open(t, w)
	_, err := w.Open(App)
	wantErr(t, err, statestore.ErrLocked)
	_, err = d.Open(ID("0_0"))
	wantErr(t, err, nil, "0_0", "open")
	wantErr(t, d.Close(), nil, "0_0", "open")
	put(t, s, 1, "a", "1") // the refusals broke nothing
	must(t, s.Close())
	must(t, s.Close())
	s = openStore(t, d, ID("0_0"))
	closeAll(t, d, s)
	must(t, d.Close())
	_, err = w.Open("billing")
	wantErr(t, err, statestore.ErrForeign, App, "billing")
	_, err = d.Open(ID("0_0"))
	wantErr(t, err, nil, "closed")
	d, s = open(t, w) // a refused open holds no lock
	closeAll(t, d, s)
	d, _ = open(t, w)
	_ = d
	w.Crash(t) // nor does a dead process
	d, s = open(t, w)
	closeAll(t, d, s)
}

func testInstanceID(t *testing.T, w World) {
	d := openDir(t, w)
	id, err := d.InstanceID()
	must(t, err)
	if id == "" || strings.ContainsAny(id, " \n/") {
		t.Fatalf("instance id %q", id)
	}
	check := func() {
		t.Helper()
		got, err := d.InstanceID()
		must(t, err)
		if got != id {
			t.Fatalf("instance id %q, was %q", got, id)
		}
	}
	check()
	must(t, d.Close())
	d = openDir(t, w)
	check()
	w.Crash(t)
	d = openDir(t, w)
	check()
	must(t, d.Close())
	if _, err := d.InstanceID(); err == nil {
		t.Fatal("instance id of a closed directory")
	}
}

func testUseAfterClose(t *testing.T, w World) {
	d, s := open(t, w)
	put(t, s, 1, "a", "1")
	b := s.NewBatch()
	b.Set(k("b"), []byte("1"))
	must(t, s.Close())
	_, _, err := s.Get(k("a"))
	wantErr(t, err, nil, "closed")
	_, err = s.Scan(nil, nil)
	wantErr(t, err, nil, "closed")
	wantErr(t, b.Commit(metaOf(2)), nil, "closed")
	wantErr(t, s.Flush(), nil, "closed")
	b = s.NewBatch()
	b.Set(k("b"), []byte("1"))
	wantErr(t, b.Commit(metaOf(2)), nil, "closed")
	s.NewBatch().Discard()
	_ = s.Size()
	must(t, d.Close())
}
