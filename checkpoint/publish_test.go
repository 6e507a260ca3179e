package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-stream/millrace/checkpoint/blob/blobtest"
	"github.com/millrace-stream/millrace/internal/failpoint"
	"github.com/millrace-stream/millrace/statestore"
)

// large is a value that makes a part of a memory store larger than what travels in the manifest.
func large(s string) string { return s + strings.Repeat("x", maxInline) }

// fill returns entries that fill all parts of a memory store with large values.
func fill(s string) []string {
	var kv []string
	for i := range 60 {
		kv = append(kv, fmt.Sprintf("%02d", i), large(s))
	}
	return kv
}

func TestPublishUploadsOnlyWhatIsNew(t *testing.T) {
	ctx, blobs := t.Context(), blobtest.NewMemory()
	d := newDisk(t, "0_0")
	p := publisher(blobs, "0_0", "one")
	specs := []statestore.Spec{{Name: "count/total", ID: 9, Kind: statestore.KindTable, KeyType: "string", ValType: "int64"}}
	d.commit(1, fill("a")...)
	first, err := p.Publish(ctx, d.snapshot(), specs)
	must(t, err)
	if first.UploadedFiles != 8 || first.Files != 9 || first.UploadedBytes < first.Bytes {
		t.Fatalf("the first checkpoint: %+v", first)
	}
	d.commit(2, "00", large("b"))
	second, err := p.Publish(ctx, d.snapshot(), specs)
	must(t, err)
	if second.UploadedFiles != 1 || second.Files != 9 || second.UploadedBytes > first.Bytes/4 {
		t.Fatalf("the second checkpoint, one key changed: %+v", second)
	}
	found, err := Find(ctx, blobs, d.id)
	must(t, err)
	if len(found) != 2 || found[0].Epoch != 2 || found[1].Epoch != 1 || found[0].Manifest == nil {
		t.Fatalf("found %+v", found)
	}
	m := found[0].Manifest
	if m.WallTime != 2000 || m.Owner != "one" || m.Positions[0] != 20 || len(m.Stores) != 1 || m.Stores[0].Name != "count/total" ||
		string(m.EpochRecord) != "record 2" || m.Identity().Diff(d.id) != "" {
		t.Fatalf("manifest %+v", m)
	}
	// Another owner, that restores it and goes on, uploads only what is new too.
	want := d.content()
	other := newDisk(t, "0_0")
	must(t, other.restore(ctx, blobs, m))
	if got := other.content(); !maps.Equal(got, want) {
		t.Fatalf("restored %d entries that differ", len(got))
	}
	if meta, ok := other.store.Meta(); !ok || meta.Epoch != 2 {
		t.Fatalf("restored meta %v %v", meta, ok)
	}
	other.commit(3, "01", large("c"))
	third, err := publisher(blobs, "0_0", "two").Publish(ctx, other.snapshot(), specs)
	must(t, err)
	if third.UploadedFiles != 1 {
		t.Fatalf("the checkpoint of the next owner: %+v", third)
	}
}

// TestOnlyTheNewestManifestIsTrusted: what an older one names may be about to go.
func TestOnlyTheNewestManifestIsTrusted(t *testing.T) {
	ctx, blobs := t.Context(), blobtest.NewMemory()
	d := newDisk(t, "0_0")
	p := publisher(blobs, "0_0", "one")
	for i, want := range []int{1, 1, 1} {
		d.commit(uint64(i+1), "00", large([]string{"a", "b", "a"}[i]))
		done, err := p.Publish(ctx, d.snapshot(), nil)
		must(t, err)
		if done.UploadedFiles != want {
			t.Fatalf("checkpoint %d: %d files uploaded", i+1, done.UploadedFiles)
		}
	}
	// Nor is one that cannot be read.
	key := manifestKey(Prefix(d.id), 3)
	blobs.Blobs[key] = blobs.Blobs[key][1:]
	d.commit(4, "01", "x")
	done, err := p.Publish(ctx, d.snapshot(), nil)
	must(t, err)
	if done.UploadedFiles != 1 {
		t.Fatalf("behind a manifest that cannot be read %d files were uploaded", done.UploadedFiles)
	}
}

func TestPublishOfAnEpochThatIsThere(t *testing.T) {
	ctx, blobs := t.Context(), blobtest.NewMemory()
	d := newDisk(t, "0_0")
	d.commit(5, "a", "1")
	_, err := publisher(blobs, "0_0", "one").Publish(ctx, d.snapshot(), nil)
	must(t, err)
	zombie := publisher(blobs, "0_0", "two")
	for _, epoch := range []uint64{5, 4} {
		old := newDisk(t, "0_0")
		old.commit(epoch, "a", "other")
		_, err = zombie.Publish(ctx, old.snapshot(), nil)
		var e *SupersededError
		if !errors.As(err, &e) || e.Newest != 5 || e.Epoch != epoch || e.Owner != "one" {
			t.Fatalf("epoch %d over epoch 5: %v", epoch, err)
		}
	}
	// The other one's manifest comes after ours looked.
	old := newDisk(t, "0_0")
	old.commit(6, "a", "other")
	d.commit(6, "a", "1")
	blobs.Hook = func(ctx context.Context, op, _ string, do func() error) error {
		if op == "create" {
			blobs.Hook = nil
			if _, err := publisher(blobs, "0_0", "one").Publish(ctx, d.snapshot(), nil); err != nil {
				t.Error(err)
			}
		}
		return do()
	}
	_, err = zombie.Publish(ctx, old.snapshot(), nil)
	var e *SupersededError
	if !errors.As(err, &e) || e.Newest != 6 || e.Owner != "one" {
		t.Fatalf("two owners, one epoch: %v", err)
	}
	if n := len(blobs.Keys(Prefix(d.id) + "/manifests/")); n != 2 {
		t.Fatalf("%d manifests", n)
	}
}

func TestPublishOfAnotherStateIsRefused(t *testing.T) {
	d := newDisk(t, "0_1")
	d.commit(1, "a", "1")
	_, err := publisher(blobtest.NewMemory(), "0_0", "one").Publish(t.Context(), d.snapshot(), nil)
	wantErr(t, err, nil, "0_0", "0_1")
}

func TestPublishTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blobs := blobtest.NewMemory()
		d := newDisk(t, "0_0")
		d.commit(1, fill("a")...)
		p := publisher(blobs, "0_0", "one")
		blobs.Hook = func(ctx context.Context, op, _ string, do func() error) error {
			if op != "put" {
				return do()
			}
			<-ctx.Done()
			return ctx.Err()
		}
		_, err := p.Publish(t.Context(), d.snapshot(), nil)
		wantErr(t, err, context.DeadlineExceeded, "10m0s", "checkpoint.timeout")
		if len(blobs.Blobs) > 0 {
			t.Fatalf("left %v", blobs.Keys(""))
		}
		blobs.Hook = nil
		_, err = p.Publish(t.Context(), d.snapshot(), nil)
		must(t, err)
	})
}

// TestNextAttemptUsesWhatWasUploaded, but only for a while: another process may have found it unneeded.
func TestNextAttemptUsesWhatWasUploaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			wait time.Duration
			puts int // of all attempts
		}{{0, 8}, {4 * time.Minute, 8}, {6 * time.Minute, 16}} {
			blobs := blobtest.NewMemory()
			d := newDisk(t, "0_0")
			d.commit(1, fill("a")...)
			p := publisher(blobs, "0_0", "one")
			point, err := failpoint.Arm(failpoint.BeforeManifest, func() error { return failpoint.ErrInjected })
			must(t, err)
			_, err = p.Publish(t.Context(), d.snapshot(), nil)
			wantErr(t, err, failpoint.ErrInjected)
			point.Disarm()
			after(t.Context(), c.wait)
			// Its manifest must be there in time as well.
			blobs.Hook = func(ctx context.Context, op, _ string, do func() error) error {
				if deadline, ok := ctx.Deadline(); op == "create" && (!ok || time.Until(deadline) > 10*time.Minute-min(c.wait, 5*time.Minute) && c.puts == 8) {
					t.Errorf("wait of %s: the manifest may be created for another %s", c.wait, time.Until(deadline))
				}
				return do()
			}
			_, err = p.Publish(t.Context(), d.snapshot(), nil)
			must(t, err)
			if blobs.Puts != c.puts {
				t.Errorf("wait of %s: %d uploads, want %d", c.wait, blobs.Puts, c.puts)
			}
		}
	})
}

// after waits in the time of the bubble.
func after(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func TestCollect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, blobs := t.Context(), blobtest.NewMemory()
		d := newDisk(t, "0_0")
		p := publisher(blobs, "0_0", "one")
		epoch := uint64(0)
		committed := func() uint64 { return epoch }
		publish := func() {
			t.Helper()
			epoch++
			d.commit(epoch, fill(fmt.Sprint(epoch))...) // everything is new each time
			_, err := p.Publish(ctx, d.snapshot(), nil)
			must(t, err)
		}
		collect := func(manifests, blobs int) {
			t.Helper()
			done, err := p.Collect(ctx, committed)
			must(t, err)
			if done.Manifests != manifests || done.Blobs != blobs {
				t.Fatalf("epoch %d: removed %+v; want %d manifests, %d blobs", epoch, done, manifests, blobs)
			}
		}
		for range 5 {
			publish()
		}
		collect(0, 0)
		after(ctx, 14*time.Minute)
		epoch += 10
		collect(0, 0) // the grace time is not over
		after(ctx, 2*time.Minute)
		collect(0, 0) // now they are condemned; but who knows whose the subtask is
		epoch++
		collect(0, 0) // this epoch may have been on its way when the listing was made
		epoch++
		collect(2, 0)
		collect(0, 0) // their blobs have no manifest from now on
		after(ctx, 16*time.Minute)
		collect(0, 0)
		epoch += 2
		collect(0, 16)
		if found, err := Find(ctx, blobs, d.id); err != nil || len(found) != 3 || found[2].Epoch != 3 {
			t.Fatalf("left %v, %v", found, err)
		}
		if n := len(blobs.Keys(Prefix(d.id) + "/blobs/")); n != 24 {
			t.Fatalf("%d blobs left", n)
		}

		// A zombie removes nothing, however long it tries.
		zombie := publisher(blobs, "0_0", "two")
		publish()
		publish()
		for range 10 {
			done, err := zombie.Collect(ctx, func() uint64 { return 3 })
			must(t, err)
			if done.Manifests+done.Blobs > 0 {
				t.Fatalf("a zombie removed %+v", done)
			}
			after(ctx, 10*time.Minute)
		}
	})
}

// TestFindLooksAgain: the newest checkpoint of a listing is removed before it is read, because newer ones were published
// meanwhile. Those are what is wanted, however often it happens.
func TestFindLooksAgain(t *testing.T) {
	for _, times := range []int{1, findTries - 1, findTries} {
		synctest.Test(t, func(t *testing.T) {
			ctx, blobs := t.Context(), blobtest.NewMemory()
			d := newDisk(t, "0_0")
			p := NewPublisher(Options{Blobs: blobs, Identity: d.id, WallTime: wallTime, Retain: 1})
			epoch := uint64(0)
			publish := func() {
				t.Helper()
				epoch++
				d.commit(epoch, "a", large(fmt.Sprint(epoch)))
				_, err := p.Publish(ctx, d.snapshot(), nil)
				must(t, err)
			}
			publish()
			removed, lists := 0, 0
			var hook func(ctx context.Context, op, key string, do func() error) error
			hook = func(_ context.Context, op, key string, do func() error) error {
				if op == "list" {
					lists++
				}
				if op != "get" || removed == times {
					return do()
				}
				removed++
				blobs.Hook = nil // the others' calls
				publish()
				for range 3 {
					_, err := p.Collect(ctx, func() uint64 { epoch += 10; return epoch })
					must(t, err)
					after(ctx, 20*time.Minute)
				}
				if slices.Contains(blobs.Keys(""), key) {
					t.Errorf("%s was not removed", key)
				}
				blobs.Hook = hook
				return do()
			}
			blobs.Hook = hook
			found, err := Find(ctx, blobs, d.id)
			must(t, err)
			if len(found) != 1 || lists != min(times+1, findTries) {
				t.Fatalf("%d listings, found %+v", lists, found)
			}
			if times == findTries { // somebody else may find out what is wrong
				wantErr(t, found[0].Err, ErrMissing)
				return
			}
			must(t, found[0].Err)
			must(t, d.restore(ctx, blobs, found[0].Manifest))
		})
	}
}

func TestCollectKeepsBlobsWhileAManifestIsUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, blobs := t.Context(), blobtest.NewMemory()
		d := newDisk(t, "0_0")
		p := publisher(blobs, "0_0", "one")
		epoch := uint64(0)
		collect := func() (removed Collected) {
			t.Helper()
			for range 4 {
				done, err := p.Collect(ctx, func() uint64 { epoch++; return epoch })
				must(t, err)
				removed.Manifests += done.Manifests
				removed.Blobs += done.Blobs
				removed.Unreadable = done.Unreadable
				after(ctx, 20*time.Minute)
			}
			return removed
		}
		d.commit(1, fill("1")...)
		_, err := p.Publish(ctx, d.snapshot(), nil)
		must(t, err)
		blobs.Blobs[blobKey(Prefix(d.id), "orphan")] = []byte("x")
		newer := strings.Replace(string(blobs.Blobs[manifestKey(Prefix(d.id), 1)]), `"format": 1`, `"format": 2`, 1)
		blobs.Blobs[manifestKey(Prefix(d.id), 2)] = []byte(newer) // its checksum is wrong as well
		if done := collect(); done.Blobs > 0 || len(done.Unreadable) != 1 || done.Unreadable[0].Epoch != 2 {
			t.Fatalf("removed %+v", done)
		}
		// When there are enough newer ones it goes, and then the orphan can.
		for e := uint64(3); e <= 5; e++ {
			d.commit(e, "a", fmt.Sprint(e))
			_, err := p.Publish(ctx, d.snapshot(), nil)
			must(t, err)
		}
		done := collect()
		if done.Manifests != 2 {
			t.Fatalf("removed %+v", done)
		}
		if done = collect(); len(done.Unreadable) != 0 {
			t.Fatalf("unreadable %+v", done)
		}
		for _, key := range blobs.Keys(Prefix(d.id) + "/blobs/") {
			if strings.HasSuffix(key, "orphan") {
				t.Fatal("the orphan is still there")
			}
		}
	})
}

func TestRestoreOfDamagedCheckpoint(t *testing.T) {
	ctx, blobs := t.Context(), blobtest.NewMemory()
	d := newDisk(t, "0_0")
	d.commit(1, fill("a")...)
	_, err := publisher(blobs, "0_0", "one").Publish(ctx, d.snapshot(), nil)
	must(t, err)
	found, err := Find(ctx, blobs, d.id)
	must(t, err)
	m := found[0].Manifest
	var f File
	for _, f = range m.Files {
		if f.Blob != "" {
			break
		}
	}
	key := blobKey(Prefix(d.id), f.Blob)
	good := blobs.Blobs[key]
	other := newDisk(t, "0_0")
	other.commit(9, "own", "state")
	for _, c := range []struct {
		name string
		data []byte
		is   error
	}{
		{"missing", nil, ErrMissing},
		{"shorter", good[:len(good)-1], ErrCorrupt},
		{"empty", []byte{}, ErrCorrupt},
		{"longer", append(append([]byte{}, good...), 0), ErrCorrupt},
		{"flipped", append([]byte{good[0] ^ 1}, good[1:]...), ErrCorrupt},
	} {
		if c.data == nil {
			delete(blobs.Blobs, key)
		} else {
			blobs.Blobs[key] = c.data
		}
		err := other.restore(ctx, blobs, m)
		wantErr(t, err, c.is, f.Name, f.Blob, "0_0")
		var fe *FileError
		if !errors.As(err, &fe) || fe.File != f.Name || fe.Blob != key || !IsUnusable(err) {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := other.content(); got["own"] != "state" {
			t.Fatalf("%s: the store was touched: %v", c.name, got)
		}
	}
	// What may pass is no reason to give the checkpoint up.
	blobs.Blobs[key] = good
	blobs.Hook = func(_ context.Context, op, key string, do func() error) error {
		if op == "open" {
			return errors.New("503 slow down")
		}
		return do()
	}
	if err := other.restore(ctx, blobs, m); err == nil || IsUnusable(err) {
		t.Fatalf("a store that is slow: %v", err)
	}
	blobs.Hook = nil
	var last int64
	must(t, other.store.Close())
	must(t, Restore(ctx, blobs, m, other.dir, RestoreOptions{Parallel: 1, Progress: func(done, total int64) {
		if done < last || total != m.Bytes() {
			t.Errorf("progress %d of %d after %d", done, total, last)
		}
		last = done
	}}))
	other.open()
	if last != m.Bytes() || !maps.Equal(other.content(), d.content()) {
		t.Fatalf("restored %d of %d bytes", last, m.Bytes())
	}
}

func TestRestoreEndsWithItsContext(t *testing.T) {
	blobs := blobtest.NewMemory()
	d := newDisk(t, "0_0")
	d.commit(1, fill("a")...)
	_, err := publisher(blobs, "0_0", "one").Publish(t.Context(), d.snapshot(), nil)
	must(t, err)
	found, err := Find(t.Context(), blobs, d.id)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	blobs.Hook = func(_ context.Context, op, _ string, do func() error) error {
		if op == "open" {
			cancel()
		}
		return do()
	}
	other := newDisk(t, "0_0")
	other.commit(9, "own", "state")
	wantErr(t, other.restore(ctx, blobs, found[0].Manifest), context.Canceled)
	if got := other.content(); got["own"] != "state" {
		t.Fatalf("the store was touched: %v", got)
	}
}

func TestReject(t *testing.T) {
	ctx, blobs := t.Context(), blobtest.NewMemory()
	d := newDisk(t, "0_0")
	d.commit(7, "a", "1")
	_, err := publisher(blobs, "0_0", "one").Publish(ctx, d.snapshot(), nil)
	must(t, err)
	found, err := Find(ctx, blobs, d.id)
	must(t, err)
	must(t, Reject(ctx, blobs, found[0]))
	must(t, Reject(ctx, blobs, found[0]))
	// Its epoch is free for another state, which is not rejected by mistake.
	other := newDisk(t, "0_0")
	other.commit(7, "a", "2")
	_, err = publisher(blobs, "0_0", "one").Publish(ctx, other.snapshot(), nil)
	must(t, err)
	must(t, Reject(ctx, blobs, found[0]))
	if again, err := Find(ctx, blobs, d.id); err != nil || len(again) != 1 || again[0].Manifest.Attempt == found[0].Manifest.Attempt {
		t.Fatalf("found %v, %v", again, err)
	}
	if keys := blobs.Keys(Prefix(d.id) + "/rejected/"); len(keys) != 1 {
		t.Fatalf("rejected %v", keys)
	}
}

func TestListAndDeleteIncarnations(t *testing.T) {
	ctx, blobs := t.Context(), blobtest.NewMemory()
	for _, subtask := range []string{"0_0", "0_1"} {
		d := newDisk(t, subtask)
		d.commit(3, fill("a")...)
		_, err := publisher(blobs, subtask, "one").Publish(ctx, d.snapshot(), nil)
		must(t, err)
	}
	blobs.Blobs[testApp+"/savepoints/s/begin"] = []byte("x")
	blobs.Blobs["orders-2/2/0_0/manifests/00000000000000000001"] = []byte("x")
	all, err := List(ctx, blobs, testApp)
	must(t, err)
	if len(all) != 2 || all[0].Subtask != "0_0" || all[1].Subtask != "0_1" || all[0].Incarnation != 2 || all[0].Epoch != 3 {
		t.Fatalf("listed %+v", all)
	}
	usage, err := Incarnations(ctx, blobs, testApp)
	must(t, err)
	if len(usage) != 1 || usage[2].Blobs != 18 || usage[2].Bytes < 16*maxInline {
		t.Fatalf("usage %v", usage)
	}
	gone, err := DeleteIncarnation(ctx, blobs, testApp, 2)
	must(t, err)
	if gone != usage[2] || len(blobs.Blobs) != 2 {
		t.Fatalf("deleted %v, left %v", gone, blobs.Keys(""))
	}
}

// TestInlineLimit: the limit says which files travel in the manifest; what is uploaded instead restores the same state.
func TestInlineLimit(t *testing.T) {
	for inline, all := range map[int64]bool{0: true, -1: false, 1 << 20: true} {
		t.Run(fmt.Sprint(inline), func(t *testing.T) {
			ctx, blobs := t.Context(), blobtest.NewMemory()
			d := newFileDisk(t, "0_0")
			d.commit(1, "a", "1", "b", "2")
			p := NewPublisher(Options{Blobs: blobs, Identity: testIdentity("0_0"), WallTime: wallTime, Inline: inline})
			done, err := p.Publish(ctx, d.snapshot(), nil)
			must(t, err)
			found, err := Find(ctx, blobs, d.id)
			must(t, err)
			for _, f := range found[0].Manifest.Files {
				if (f.Blob == "") != (all || f.Size == 0) {
					t.Errorf("file %s of %d bytes has the blob %q", f.Name, f.Size, f.Blob)
				}
			}
			if (done.UploadedFiles == 0) != all {
				t.Errorf("%d files of %d are uploaded", done.UploadedFiles, done.Files)
			}
			other := newFileDisk(t, "0_0")
			must(t, other.restore(ctx, blobs, found[0].Manifest))
			if got, want := other.content(), d.content(); !maps.Equal(got, want) {
				t.Errorf("restored %v, want %v", got, want)
			}
		})
	}
}
