package storetest

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/millrace-stream/millrace/statestore"
)

func snap(t testing.TB, s statestore.Store) statestore.Snapshot {
	t.Helper()
	c, ok := s.(statestore.Checkpointer)
	if !ok {
		t.Fatalf("%T is no Checkpointer", s)
	}
	sn, err := c.Checkpoint()
	must(t, err)
	return sn
}

func viewOf(t testing.TB, sn statestore.Snapshot) []string {
	t.Helper()
	v, err := sn.View()
	must(t, err)
	it, err := v.Scan(nil, nil)
	must(t, err)
	got := drain(t, it)
	must(t, v.Close())
	return got
}

func wantView(t testing.TB, sn statestore.Snapshot, epoch uint64, want ...string) {
	t.Helper()
	if !sameMeta(sn.Meta(), metaOf(epoch)) {
		t.Fatalf("snapshot has meta %v, want that of epoch %d", sn.Meta(), epoch)
	}
	if got := viewOf(t, sn); !slices.Equal(got, want) {
		t.Fatalf("snapshot of epoch %d holds %q; want %q", epoch, got, want)
	}
}

// copyFiles reads all files of a snapshot.
func copyFiles(t testing.TB, sn statestore.Snapshot) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for _, f := range sn.Files() {
		r, err := sn.Open(f.Name)
		must(t, err)
		data, err := io.ReadAll(r)
		must(t, errors.Join(err, r.Close()))
		if int64(len(data)) != f.Size {
			t.Fatalf("%s has %d bytes, the snapshot says %d", f.Name, len(data), f.Size)
		}
		files[f.Name] = data
	}
	return files
}

func stage(t testing.TB, d statestore.Dir, files map[string][]byte) statestore.Staging {
	t.Helper()
	st, err := d.Stage(ID("0_0"))
	must(t, err)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, err := st.Create(name)
		must(t, err)
		_, err = f.Write(files[name])
		must(t, errors.Join(err, f.Close()))
	}
	return st
}

func testSnapshot(t *testing.T, w World) {
	d, s := open(t, w)
	_, err := s.(statestore.Checkpointer).Checkpoint()
	wantErr(t, err, statestore.ErrEmpty)
	put(t, s, 1, "a", "1")
	_, err = s.(statestore.Checkpointer).Checkpoint() // nothing was flushed
	wantErr(t, err, statestore.ErrEmpty)
	must(t, s.Flush())
	put(t, s, 2, "a", "2", "b", "2")
	one := snap(t, s)
	wantView(t, one, 1, "a=1")
	if diff := one.Identity().Diff(ID("0_0")); diff != "" {
		t.Fatalf("identity of the snapshot: %s", diff)
	}
	if !d.Reads(one.Format()) || d.Reads(one.Format()+"0") || d.Reads("") || one.Instance() == "" {
		t.Fatalf("snapshot of format %q, instance %q", one.Format(), one.Instance())
	}
	if _, err := one.Open("nope"); err == nil {
		t.Fatal("opened a file that is not there")
	}
	must(t, s.Flush())
	two := snap(t, s)
	wantView(t, two, 2, "a=2", "b=2")
	wantView(t, one, 1, "a=1") // still
	if one.Instance() != two.Instance() {
		t.Fatal("one store, two instances")
	}
	before, after := copyFiles(t, one), copyFiles(t, two)
	for _, f := range two.Files() {
		if old, ok := before[f.Name]; ok && f.Fixed && string(old) != string(after[f.Name]) {
			t.Fatalf("%s is fixed and changed", f.Name)
		}
	}
	must(t, one.Close())
	must(t, s.Close())
	wantView(t, two, 2, "a=2", "b=2") // it outlives the store
	must(t, two.Close())
	_, err = s.(statestore.Checkpointer).Checkpoint()
	wantErr(t, err, nil, "closed")
	s = openStore(t, d, ID("0_0"))
	wantScan(t, s, nil, nil, "a=2", "b=2")
	put(t, s, 3, "c", "3")
	must(t, s.Flush())
	three := snap(t, s)
	again := copyFiles(t, three)
	for _, f := range three.Files() {
		if old, ok := after[f.Name]; ok && f.Fixed && three.Instance() == two.Instance() && string(old) != string(again[f.Name]) {
			t.Fatalf("%s is fixed and changed when the store was opened again", f.Name)
		}
	}
	wantSubtasks(t, d, "0_0") // a snapshot is no store
	must(t, three.Close())
	must(t, s.Close())
	must(t, d.Wipe(ID("0_0")))
	s = openStore(t, d, ID("0_0"))
	put(t, s, 1, "a", "other")
	must(t, s.Flush())
	four := snap(t, s)
	if four.Instance() == three.Instance() {
		t.Fatal("a store that was made anew is the same instance")
	}
	must(t, four.Close())
	closeAll(t, d, s)
}

func testViewGet(t *testing.T, w World) {
	d, s := open(t, w)
	put(t, s, 1, "a", "1", "c", "")
	must(t, s.Flush())
	sn := snap(t, s)
	v, err := sn.View()
	must(t, err)
	if got, ok, err := v.Get(k("a")); err != nil || !ok || string(got) != "1" {
		t.Fatalf("get a of the view: %q, %v, %v", got, ok, err)
	}
	if _, ok, err := v.Get(k("b")); err != nil || ok {
		t.Fatalf("get b of the view: %v, %v", ok, err)
	}
	it, err := v.Scan(k("b"), nil)
	must(t, err)
	if got := drain(t, it); !slices.Equal(got, []string{"c="}) {
		t.Fatalf("scan of the view: %q", got)
	}
	must(t, v.Close())
	must(t, v.Close())
	must(t, sn.Close())
	closeAll(t, d, s)
}

// testSnapshotMeanwhile makes snapshots while the owner writes: each is exactly the state after one batch.
func testSnapshotMeanwhile(t *testing.T, w World) {
	d, s := open(t, w)
	const last = 300
	commit := func(epoch uint64) {
		b := s.NewBatch()
		for i := range 20 {
			b.Set(k(fmt.Sprintf("%02d", i)), fmt.Appendf(make([]byte, 2000), "%08d", epoch))
		}
		must(t, b.Commit(metaOf(epoch)))
	}
	commit(1)
	must(t, s.Flush())
	stop := make(chan struct{})
	var wg sync.WaitGroup
	seen := map[uint64]bool{}
	wg.Go(func() {
		for {
			sn, err := s.(statestore.Checkpointer).Checkpoint()
			if err != nil {
				t.Errorf("snapshot: %v", err)
				return
			}
			epoch := sn.Meta().Epoch
			seen[epoch] = true
			for _, kv := range viewOf(t, sn) {
				if want := fmt.Sprintf("%08d", epoch); kv[len(kv)-8:] != want {
					t.Errorf("snapshot of epoch %s holds %s", want, kv[len(kv)-8:])
				}
			}
			if err := sn.Close(); err != nil {
				t.Error(err)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for epoch := uint64(2); epoch <= last; epoch++ {
		commit(epoch)
		if epoch%7 == 0 {
			must(t, s.Flush())
		}
	}
	close(stop)
	wg.Wait()
	t.Logf("snapshots of %d different epochs", len(seen))
	closeAll(t, d, s)
}

func testStage(t *testing.T, w World) {
	d, s := open(t, w)
	put(t, s, 1, "a", "1", "b", "1")
	must(t, s.Flush())
	sn := snap(t, s)
	files := copyFiles(t, sn)
	must(t, sn.Close())
	b := s.NewBatch()
	b.Delete(k("b"))
	b.Set(k("a"), []byte("2"))
	must(t, b.Commit(metaOf(2)))
	must(t, s.Flush())

	st := stage(t, d, files)
	_, err := d.Stage(ID("0_0"))
	wantErr(t, err, nil, "0_0")
	wantErr(t, d.Close(), nil, "0_0", "open")
	for _, bad := range []string{"", ".", "..", "a/b", "/etc/passwd", "../x", "a\\b"} {
		if _, err := st.Create(bad); err == nil {
			t.Fatalf("staged a file %q", bad)
		}
	}
	wantErr(t, st.Adopt(), nil, "0_0", "open") // the store is in use
	wantGet(t, s, "a", "2")
	must(t, s.Close())
	wantSubtasks(t, d, "0_0")

	// A crash before Adopt changes nothing.
	w.Crash(t)
	d = openDir(t, w)
	s = openStore(t, d, ID("0_0"))
	wantScan(t, s, nil, nil, "a=2")
	must(t, s.Close())

	st = stage(t, d, files)
	must(t, st.Discard())
	must(t, st.Discard())
	wantErr(t, st.Adopt(), nil, "discarded")
	s = openStore(t, d, ID("0_0"))
	wantScan(t, s, nil, nil, "a=2")
	must(t, s.Close())

	st = stage(t, d, files)
	must(t, st.Adopt())
	must(t, st.Discard()) // nothing
	if _, err := st.Create("x"); err == nil {
		t.Fatal("staged a file after Adopt")
	}
	w.Crash(t)
	d = openDir(t, w)
	s = openStore(t, d, ID("0_0"))
	wantScan(t, s, nil, nil, "a=1", "b=1")
	if m, ok := s.Meta(); !ok || !sameMeta(m, metaOf(1)) {
		t.Fatalf("meta %v %v after Adopt", m, ok)
	}
	put(t, s, 3, "c", "3") // it takes writes
	must(t, s.Flush())
	must(t, s.Close())

	// In the place of nothing, and of another identity.
	must(t, d.Wipe(ID("0_0")))
	must(t, stage(t, d, files).Adopt())
	s = openStore(t, d, ID("0_0"))
	wantScan(t, s, nil, nil, "a=1", "b=1")
	closeAll(t, d, s)
}

func testStageStore(t *testing.T, w World) {
	d, s := open(t, w)
	put(t, s, 5, "old", "5")
	must(t, s.Flush())
	st, err := d.Stage(ID("0_0"))
	must(t, err)
	filled, err := st.Store()
	must(t, err)
	if _, ok := filled.Meta(); ok {
		t.Fatal("a new staged store has a meta")
	}
	put(t, filled, 9, "new", "9")
	must(t, filled.Flush())
	wantErr(t, st.Adopt(), nil, "open")
	wantErr(t, st.Discard(), nil, "open")
	must(t, filled.Close())
	filled, err = st.Store() // again
	must(t, err)
	wantScan(t, filled, nil, nil, "new=9")
	must(t, filled.Close())
	wantGet(t, s, "old", "5")
	must(t, s.Close())
	must(t, st.Adopt())
	s = openStore(t, d, ID("0_0"))
	wantScan(t, s, nil, nil, "new=9")
	closeAll(t, d, s)
}

func testQuarantine(t *testing.T, w World) {
	d, s := open(t, w)
	where, err := d.Quarantine(ID("0_1"))
	if err != nil || where != "" {
		t.Fatalf("quarantine of nothing: %q, %v", where, err)
	}
	for round := uint64(1); round <= 2; round++ { // the second finds the first
		put(t, s, round, "a", fmt.Sprint(round))
		must(t, s.Flush())
		_, err = d.Quarantine(ID("0_0"))
		wantErr(t, err, nil, "0_0", "open")
		must(t, s.Close())
		if where, err = d.Quarantine(ID("0_0")); err != nil || where == "" {
			t.Fatalf("quarantine: %q, %v", where, err)
		}
		wantSubtasks(t, d)
		s = openStore(t, d, ID("0_0"))
		wantScan(t, s, nil, nil)
	}
	must(t, s.Close())
	w.Crash(t)
	d = openDir(t, w)
	s = openStore(t, d, ID("0_0"))
	wantScan(t, s, nil, nil)
	closeAll(t, d, s)
}

// testSnapshotRandom mixes commits, flushes, snapshots, adoptions and crashes, against a map.
func testSnapshotRandom(t *testing.T, w World) {
	seed := seed(t)
	t.Logf("%s=%d", SeedVar, seed)
	r := rand.New(rand.NewPCG(seed, 11))
	type state struct {
		epoch uint64
		kv    map[string]string
	}
	type kept struct {
		state
		files map[string][]byte
	}
	content := func(s state) []string {
		var all []string
		for _, key := range slices.Sorted(maps.Keys(s.kv)) {
			all = append(all, key+"="+s.kv[key])
		}
		return all
	}
	d, s := open(t, w)
	now := state{kv: map[string]string{}}
	flushed := now
	history := map[uint64]state{} // by epoch; no epoch is used twice, also after an old snapshot was adopted
	last := uint64(0)
	var snaps []kept
	for range 400 {
		switch n := r.IntN(100); {
		case n < 60:
			last++
			next := state{last, maps.Clone(now.kv)}
			b := s.NewBatch()
			for range r.IntN(10) {
				key := fmt.Sprintf("%02d", r.IntN(40))
				if r.IntN(4) == 0 {
					b.Delete(k(key))
					delete(next.kv, key)
				} else {
					next.kv[key] = fmt.Sprint(next.epoch)
					b.Set(k(key), []byte(next.kv[key]))
				}
			}
			must(t, b.Commit(metaOf(next.epoch)))
			now, history[next.epoch] = next, next
		case n < 75:
			must(t, s.Flush())
			flushed = now
		case n < 88:
			if flushed.epoch == 0 {
				continue
			}
			sn := snap(t, s)
			at := history[sn.Meta().Epoch] // the store may have written out more by itself
			if at.epoch < flushed.epoch || at.epoch > now.epoch {
				t.Fatalf("snapshot of epoch %d; flushed %d, committed %d", at.epoch, flushed.epoch, now.epoch)
			}
			wantView(t, sn, at.epoch, content(at)...)
			snaps = append(snaps, kept{at, copyFiles(t, sn)})
			must(t, sn.Close())
		case n < 95:
			if len(snaps) == 0 {
				continue
			}
			old := snaps[r.IntN(len(snaps))]
			must(t, s.Close())
			must(t, stage(t, d, old.files).Adopt())
			s = openStore(t, d, ID("0_0"))
			now, flushed = old.state, old.state
			wantScan(t, s, nil, nil, content(now)...)
		default:
			if r.IntN(2) == 0 && len(snaps) > 0 {
				stage(t, d, snaps[0].files) // half-done
			}
			w.Crash(t)
			d, s = open(t, w)
			m, _ := s.Meta()
			if m.Epoch < flushed.epoch || m.Epoch > now.epoch {
				t.Fatalf("epoch %d after a crash; flushed %d, committed %d", m.Epoch, flushed.epoch, now.epoch)
			}
			now = history[m.Epoch]
			if m.Epoch == 0 {
				now.kv = map[string]string{}
			}
			flushed = now
			wantScan(t, s, nil, nil, content(now)...)
		}
	}
	t.Logf("%d snapshots, epoch %d", len(snaps), now.epoch)
	closeAll(t, d, s)
}
