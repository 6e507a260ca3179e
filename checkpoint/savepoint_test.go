package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-stream/millrace/checkpoint/blob/blobtest"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
	"github.com/millrace-stream/millrace/statestore/pebblestore"
)

func begin(t testing.TB, s *Savepoints, name string, subtasks ...string) *Savepoint {
	t.Helper()
	sp, err := s.Begin(t.Context(), Savepoint{Name: name, ClusterID: "cluster-1", Incarnation: 2, Expected: subtasks,
		Deadline: time.Now().Add(time.Minute).UnixMilli(), Owner: "one", Topology: []byte(`{"parallelism":2}`)})
	must(t, err)
	return sp
}

func write(s *Savepoints, sp *Savepoint, snap statestore.Snapshot) (*Manifest, error) {
	return s.Write(context.Background(), sp, snap, WriteOptions{WallTime: wallTime, Owner: "one", Specs: []statestore.Spec{{Name: "op/state", ID: 7}}})
}

// load reads a subtask's state from a savepoint.
func load(s *Savepoints, sp *Savepoint, subtask string) (map[string]string, error) {
	got := map[string]string{}
	err := s.Load(context.Background(), sp, subtask, nil, func(key, value []byte) error {
		got[string(key[4:])] = string(value)
		return nil
	})
	return got, err
}

func TestSavepoint(t *testing.T) {
	ctx, blobs := t.Context(), blobtest.NewMemory()
	s := NewSavepoints(blobs, testApp, nil, nil)
	one, two := newDisk(t, "0_0"), newDisk(t, "0_1")
	one.commit(5, fill("a")...)
	two.commit(7, "x", "1", "y", "2")
	sp := begin(t, s, "v1", "0_0", "0_1")
	if sp.Status != StatusRunning || sp.ID == "" || sp.Format != Format {
		t.Fatalf("begun %+v", sp)
	}
	_, err := s.Begin(ctx, Savepoint{Name: "v1", Expected: []string{"0_0"}})
	wantErr(t, err, ErrNameTaken, "v1")
	_, err = s.Complete(ctx, sp)
	wantErr(t, err, ErrMissing, "0_0")
	_, err = write(s, sp, one.snapshot())
	must(t, err)
	_, err = s.Complete(ctx, sp)
	wantErr(t, err, ErrMissing, "0_1")
	if written, err := s.Written(ctx, "v1"); err != nil || !slices.Equal(written, []string{"0_0"}) {
		t.Fatalf("written %v, %v", written, err)
	}
	if shown, err := s.Show(ctx, "v1"); err != nil || shown.Status != StatusRunning {
		t.Fatalf("shown %+v, %v", shown, err)
	}
	m, err := write(s, sp, two.snapshot())
	must(t, err)
	if m.Entries != 2 || m.Epoch != 7 || m.WallTime != 7000 || m.StoreFormat != KVFormat {
		t.Fatalf("written %+v", m)
	}
	done, err := s.Complete(ctx, sp)
	must(t, err)
	shown, err := s.Show(ctx, "v1")
	must(t, err)
	if done.Status != StatusCompleted || shown.Status != StatusCompleted || len(shown.Subtasks) != 2 || shown.Bytes() != done.Bytes() ||
		string(bytes.Join(bytes.Fields(shown.Topology), nil)) != `{"parallelism":2}` || shown.Subtask("0_1").Epoch != 7 || shown.Subtask("9_9") != nil {
		t.Fatalf("completed %+v, shown %+v", done, shown)
	}
	for _, d := range []*disk{one, two} {
		if got, err := load(s, shown, d.id.Subtask); err != nil || !maps.Equal(got, d.content()) {
			t.Fatalf("state of %s: %d entries, %v", d.id.Subtask, len(got), err)
		}
	}
	var last int64
	_, err = s.Verify(ctx, "v1", func(done, total int64) {
		if done <= last || total != shown.Bytes() {
			t.Errorf("progress %d of %d after %d", done, total, last)
		}
		last = done
	})
	must(t, err)
	// What has ended stays as it is.
	_, err = s.Fail(ctx, sp, "too late")
	wantErr(t, err, ErrEnded)
	_, err = write(s, sp, one.snapshot())
	wantErr(t, err, ErrEnded)
	all, err := s.List(ctx)
	must(t, err)
	if len(all) != 1 || all[0].Name != "v1" || all[0].Err != nil || all[0].Usage.Blobs < 6 {
		t.Fatalf("listed %+v", all)
	}
	gone, err := s.Delete(ctx, "v1")
	must(t, err)
	if gone != all[0].Usage || len(blobs.Blobs) > 0 {
		t.Fatalf("deleted %v of %v, left %v", gone, all[0].Usage, blobs.Keys(""))
	}
	_, err = s.Delete(ctx, "v1")
	wantErr(t, err, ErrNoSavepoint)
	_, err = s.Show(ctx, "v1")
	wantErr(t, err, ErrNoSavepoint)
	// Who is late does not write into the next one of the same name.
	again := begin(t, s, "v1", "0_0", "0_1")
	_, err = write(s, sp, one.snapshot())
	wantErr(t, err, ErrEnded)
	if again.ID == sp.ID {
		t.Fatal("two savepoints with one id")
	}
}

func TestSavepointThatFails(t *testing.T) {
	ctx, blobs := t.Context(), blobtest.NewMemory()
	s := NewSavepoints(blobs, testApp, nil, nil)
	d := newDisk(t, "0_0")
	d.commit(1, "a", "1")
	sp := begin(t, s, "v1", "0_0")
	_, err := write(s, sp, d.snapshot())
	must(t, err)
	_, err = s.Fail(ctx, sp, "a rebalance")
	must(t, err)
	_, err = s.Complete(ctx, sp)
	wantErr(t, err, ErrEnded)
	shown, err := s.Show(ctx, "v1")
	if err != nil || shown.Status != StatusFailed || shown.Reason != "a rebalance" {
		t.Fatalf("shown %+v, %v", shown, err)
	}
	_, err = s.Verify(ctx, "v1", nil)
	wantErr(t, err, nil, "failed", "a rebalance")
}

func TestSavepointIsAbandonedAfterItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSavepoints(blobtest.NewMemory(), testApp, nil, nil)
		begin(t, s, "v1", "0_0")
		after(t.Context(), 2*time.Minute)
		if shown, err := s.Show(t.Context(), "v1"); err != nil || shown.Status != StatusAbandoned || shown.Reason == "" {
			t.Fatalf("shown %+v, %v", shown, err)
		}
	})
}

func TestSavepointTakesOneOwnersState(t *testing.T) {
	blobs := blobtest.NewMemory()
	s := NewSavepoints(blobs, testApp, nil, nil)
	sp := begin(t, s, "v1", "0_0")
	one, two := newDisk(t, "0_0"), newDisk(t, "0_0")
	one.commit(5, "a", "1")
	two.commit(6, "a", "2")
	_, err := write(s, sp, one.snapshot())
	must(t, err)
	_, err = write(s, sp, two.snapshot())
	var e *SupersededError
	if !errors.As(err, &e) || e.Newest != 5 || e.Owner != "one" {
		t.Fatalf("the second owner: %v", err)
	}
	foreign := newDisk(t, "0_1")
	foreign.commit(5, "a", "1")
	_, err = write(s, sp, foreign.snapshot())
	wantErr(t, err, nil, "expects no such subtask", "0_1")
	other := *sp
	other.Incarnation = 3
	_, err = write(s, &other, one.snapshot())
	wantErr(t, err, nil, "another savepoint")
}

func TestSavepointNames(t *testing.T) {
	s := NewSavepoints(blobtest.NewMemory(), testApp, nil, nil)
	for _, name := range []string{"", ".", "..", "a/b", "../x", ".hidden", "\u00e4", "a b", strings.Repeat("x", 101)} {
		if _, err := s.Begin(t.Context(), Savepoint{Name: name, Expected: []string{"0_0"}}); err == nil {
			t.Errorf("began %q", name)
		}
		if _, err := s.Show(t.Context(), name); err == nil {
			t.Errorf("showed %q", name)
		}
		if _, err := s.Delete(t.Context(), name); err == nil {
			t.Errorf("deleted %q", name)
		}
	}
	for _, subtasks := range [][]string{nil, {"0_1", "0_0"}, {"0_10", "0_9"}, {"0_0", "0_0"}, {"x"}} {
		if _, err := s.Begin(t.Context(), Savepoint{Name: "a", Expected: subtasks}); err == nil {
			t.Errorf("began with subtasks %q", subtasks)
		}
	}
	_, err := s.Begin(t.Context(), Savepoint{Name: "v1.2_3-rc", Expected: []string{"0_9", "0_10", "1_0"}})
	must(t, err)
}

// TestSavepointIsPortable: written from one kind of store, loaded into the other, in several parts.
func TestSavepointIsPortable(t *testing.T) {
	ctx, blobs := t.Context(), blobtest.NewMemory()
	s := NewSavepoints(blobs, testApp, nil, nil)
	dir, err := pebblestore.OpenDir(t.TempDir(), testApp, pebblestore.Options{})
	must(t, err)
	d := &disk{t: t, dir: dir, id: testIdentity("0_0")}
	d.open()
	r := rand.New(rand.NewChaCha8([32]byte{1}))
	value := make([]byte, 1<<20)
	for i := range 40 { // more than two parts, and it cannot be compressed
		for j := range value {
			value[j] = byte(r.Uint32())
		}
		d.commit(uint64(i+1), fmt.Sprintf("%02d", i), string(value))
	}
	sp := begin(t, s, "v1", "0_0")
	snap := d.snapshot()
	var seen []int64
	m, err := s.Write(ctx, sp, snap, WriteOptions{WallTime: wallTime, Progress: func(entries, bytes int64) { seen = append(seen, entries, bytes) }})
	must(t, err)
	must(t, snap.Close())
	if len(seen) != 6 || seen[4] != 40 || seen[5] != 40*(1<<20+6) {
		t.Fatalf("progress %v", seen)
	}
	if len(m.Files) != 3 || m.Entries != 40 {
		t.Fatalf("%d parts, %d entries", len(m.Files), m.Entries)
	}
	sp, err = s.Complete(ctx, sp)
	must(t, err)

	target := testIdentity("0_0")
	target.App, target.Incarnation, target.Changelogs = "orders-2", 1, []string{"topic-new", "topic-more"}
	mem := memstore.NewDir("orders-2")
	meta := statestore.Meta{EpochRecord: []byte("new"), Positions: []int64{-1, -1}}
	// loadStore makes a store out of the state, a part at a time.
	loadStore := func(dir statestore.Dir, id statestore.Identity, meta statestore.Meta) {
		t.Helper()
		must(t, dir.Wipe(id))
		store, err := dir.Open(id)
		must(t, err)
		batch, loaded := store.NewBatch(), int64(0)
		must(t, s.Load(ctx, sp, "0_0", func(f File) {
			loaded += f.Size
			must(t, batch.Commit(meta))
			batch = store.NewBatch()
		}, func(key, value []byte) error {
			batch.Set(key, value)
			return nil
		}))
		batch.Discard()
		must(t, errors.Join(store.Flush(), store.Close()))
		if loaded != m.Bytes() {
			t.Fatalf("%d bytes were loaded of %d", loaded, m.Bytes())
		}
	}
	loadStore(mem, target, meta)
	copied := &disk{t: t, dir: mem, id: target}
	copied.open()
	if !maps.Equal(copied.content(), d.content()) {
		t.Fatal("the copy differs")
	}
	if got, ok := copied.store.Meta(); !ok || string(got.EpochRecord) != "new" || got.Epoch != 0 {
		t.Fatalf("meta %v %v", got, ok)
	}
	// And back, over what is there.
	must(t, d.store.Close())
	loadStore(dir, d.id, testMeta(99))
	d.open()
	if !maps.Equal(copied.content(), d.content()) {
		t.Fatal("what came back differs")
	}
	must(t, errors.Join(copied.store.Close(), mem.Close(), d.store.Close(), dir.Close()))
}

func TestVerifyFindsDamage(t *testing.T) {
	ctx, blobs := t.Context(), blobtest.NewMemory()
	s := NewSavepoints(blobs, testApp, nil, nil)
	d := newDisk(t, "0_0")
	d.commit(1, fill("a")...)
	sp := begin(t, s, "v1", "0_0")
	m, err := write(s, sp, d.snapshot())
	must(t, err)
	sp, err = s.Complete(ctx, sp)
	must(t, err)
	key := testApp + "/savepoints/v1/0_0/" + m.Files[0].Blob
	good := blobs.Blobs[key]
	check := func(what string, is error) {
		t.Helper()
		_, err := s.Verify(ctx, "v1", nil)
		wantErr(t, err, is, "v1", m.Files[0].Blob)
		var fe *FileError
		if !errors.As(err, &fe) || fe.Blob != key || !IsUnusable(err) {
			t.Fatalf("%s: %v", what, err)
		}
		_, err = load(s, sp, "0_0")
		wantErr(t, err, is)
	}
	delete(blobs.Blobs, key)
	check("missing", ErrMissing)
	for _, at := range []int{0, 8, 20, len(good) / 2, len(good) - 1} {
		bad := bytes.Clone(good)
		bad[at] ^= 4
		blobs.Blobs[key] = bad
		check(fmt.Sprintf("byte %d", at), ErrCorrupt)
	}
	blobs.Blobs[key] = good[:len(good)-16]
	check("short", ErrCorrupt)
	blobs.Blobs[key] = good
	_, err = s.Verify(ctx, "v1", nil)
	must(t, err)
	// A damaged manifest is told as such, also by List.
	mkey := testApp + "/savepoints/v1/manifest"
	blobs.Blobs[mkey] = blobs.Blobs[mkey][:100]
	_, err = s.Show(ctx, "v1")
	wantErr(t, err, ErrCorrupt, "v1")
	if all, err := s.List(ctx); err != nil || len(all) != 1 || !errors.Is(all[0].Err, ErrCorrupt) {
		t.Fatalf("listed %+v, %v", all, err)
	}
}
