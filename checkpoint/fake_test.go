package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a blob store in memory.
type fake struct {
	mu    sync.Mutex
	blobs map[string][]byte
	times map[string]time.Time
	calls int
	puts  int // of Put
	// hook is called around each call that reaches the store, with the name of the operation, its first key, and what
	// the store does. It decides whether that is done, and what the caller is told.
	hook func(ctx context.Context, op, key string, do func() error) error
	// onList changes what a listing shows. onDelete and onCreate are told of each key.
	onList   func(keys []string) []string
	onDelete func(key string)
	onCreate func(key string, data []byte)
}

func newFake() *fake { return &fake{blobs: map[string][]byte{}, times: map[string]time.Time{}} }

func (f *fake) call(ctx context.Context, op, key string, do func() error) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	locked := func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		return do()
	}
	f.mu.Lock()
	f.calls++
	hook := f.hook
	f.mu.Unlock()
	var err error
	if hook != nil {
		err = hook(ctx, op, key, locked)
	} else {
		err = locked()
	}
	if err != nil {
		return &blob.Error{Op: op, Key: key, Store: "fake", Err: err}
	}
	return nil
}

func (f *fake) Put(ctx context.Context, key string, b blob.Body) error {
	return f.call(ctx, "put", key, func() error {
		r, err := b.Open()
		if err != nil {
			return err
		}
		defer r.Close()
		data, err := io.ReadAll(blob.Verify(io.NopCloser(r), b.Size, b.SHA256))
		if err != nil {
			return err
		}
		if old, ok := f.blobs[key]; ok && !bytes.Equal(old, data) {
			return fmt.Errorf("%s is put with other contents", key)
		}
		f.blobs[key], f.times[key] = data, time.Now()
		f.puts++
		return nil
	})
}

func (f *fake) Create(ctx context.Context, key string, data []byte) error {
	return f.call(ctx, "create", key, func() error {
		if old, ok := f.blobs[key]; ok {
			if bytes.Equal(old, data) {
				return nil // an answer was lost
			}
			return blob.ErrExists
		}
		f.blobs[key], f.times[key] = bytes.Clone(data), time.Now()
		if f.onCreate != nil {
			f.onCreate(key, data)
		}
		return nil
	})
}

func (f *fake) Get(ctx context.Context, key string) (data []byte, err error) {
	err = f.call(ctx, "get", key, func() error {
		old, ok := f.blobs[key]
		if !ok {
			return blob.ErrNotFound
		}
		data = bytes.Clone(old)
		return nil
	})
	return data, err
}

func (f *fake) Open(ctx context.Context, key string, offset int64) (io.ReadCloser, error) {
	var data []byte
	err := f.call(ctx, "open", key, func() error {
		old, ok := f.blobs[key]
		if !ok {
			return blob.ErrNotFound
		}
		data = old[offset:]
		return nil
	})
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

func (f *fake) Stat(ctx context.Context, key string) (info blob.Info, err error) {
	err = f.call(ctx, "stat", key, func() error {
		old, ok := f.blobs[key]
		if !ok {
			return blob.ErrNotFound
		}
		info = blob.Info{Key: key, Size: int64(len(old)), Modified: f.times[key]}
		return nil
	})
	return info, err
}

func (f *fake) List(ctx context.Context, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		var all []blob.Info
		err := f.call(ctx, "list", prefix, func() error {
			all = all[:0]
			keys := slices.Collect(maps.Keys(f.blobs))
			if f.onList != nil {
				keys = f.onList(keys)
			}
			slices.Sort(keys)
			for _, key := range keys {
				if strings.HasPrefix(key, prefix) {
					all = append(all, blob.Info{Key: key, Size: int64(len(f.blobs[key])), Modified: f.times[key]})
				}
			}
			return nil
		})
		if err != nil {
			yield(blob.Info{}, err)
			return
		}
		for _, info := range all {
			if !yield(info, nil) {
				return
			}
		}
	}
}

func (f *fake) Delete(ctx context.Context, keys ...string) error {
	if len(keys) == 0 {
		return nil
	}
	return f.call(ctx, "delete", keys[0], func() error {
		for _, key := range keys {
			if _, ok := f.blobs[key]; ok && f.onDelete != nil {
				f.onDelete(key)
			}
			delete(f.blobs, key)
		}
		return nil
	})
}

func (f *fake) Uploads(context.Context, string, time.Duration) ([]blob.Upload, error) {
	return nil, nil
}
func (f *fake) AbortUploads(ctx context.Context, prefix string, _ time.Duration) ([]blob.Upload, error) {
	return nil, f.call(ctx, "abort", prefix, func() error { return nil })
}
func (f *fake) Check(context.Context) error { return nil }
func (f *fake) Close() error                { return nil }
func (f *fake) String() string              { return "fake" }

var _ blob.Store = (*fake)(nil)

// keys below a prefix.
func (f *fake) keys(prefix string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var keys []string
	for key := range f.blobs {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

const testApp = "orders"

func testIdentity(subtask string) statestore.Identity {
	return statestore.Identity{App: testApp, ClusterID: "cluster-1", Incarnation: 2, Subtask: subtask, Changelogs: []string{"topic-a"}}
}

// wallTime of an epoch record of these tests, "record <epoch>": a second each.
func wallTime(raw []byte) (int64, error) {
	var epoch int64
	if _, err := fmt.Sscanf(string(raw), "record %d", &epoch); err != nil {
		return 0, err
	}
	return epoch * 1000, nil
}

func testMeta(epoch uint64) statestore.Meta {
	return statestore.Meta{Epoch: epoch, EpochRecord: fmt.Appendf(nil, "record %d", epoch), Positions: []int64{int64(epoch) * 10}}
}

// disk is a directory with one store.
type disk struct {
	t     testing.TB
	dir   statestore.Dir
	id    statestore.Identity
	store statestore.Store
}

func newDisk(t testing.TB, subtask string) *disk {
	d := &disk{t: t, dir: memstore.NewDir(testApp), id: testIdentity(subtask)}
	d.open()
	t.Cleanup(func() { must(t, errors.Join(d.store.Close(), d.dir.Close())) })
	return d
}

func (d *disk) open() {
	d.t.Helper()
	s, err := d.dir.Open(d.id)
	must(d.t, err)
	d.store = s
}

func storeKey(s string) []byte { return append([]byte{0, 0, 0, 7}, s...) }

// commit writes and flushes an epoch; an empty value deletes.
func (d *disk) commit(epoch uint64, kv ...string) {
	d.t.Helper()
	b := d.store.NewBatch()
	for i := 0; i < len(kv); i += 2 {
		if kv[i+1] == "" {
			b.Delete(storeKey(kv[i]))
		} else {
			b.Set(storeKey(kv[i]), []byte(kv[i+1]))
		}
	}
	must(d.t, b.Commit(testMeta(epoch)))
	must(d.t, d.store.Flush())
}

func (d *disk) snapshot() statestore.Snapshot {
	d.t.Helper()
	s, err := d.store.(statestore.Checkpointer).Checkpoint()
	must(d.t, err)
	return s
}

func (d *disk) content() map[string]string {
	d.t.Helper()
	m := map[string]string{}
	it, err := d.store.Scan(nil, nil)
	must(d.t, err)
	for it.Next() {
		m[string(it.Key()[4:])] = string(it.Value())
	}
	must(d.t, errors.Join(it.Err(), it.Close()))
	return m
}

// restore puts a checkpoint in the place of the store and opens it.
func (d *disk) restore(ctx context.Context, blobs blob.Store, m *Manifest) error {
	d.t.Helper()
	must(d.t, d.store.Close())
	defer d.open()
	return Restore(ctx, blobs, m, d.dir, RestoreOptions{})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
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

func publisher(blobs blob.Store, subtask, owner string) *Publisher {
	return NewPublisher(Options{Blobs: blobs, Identity: testIdentity(subtask), Owner: owner, Version: "test", WallTime: wallTime})
}
