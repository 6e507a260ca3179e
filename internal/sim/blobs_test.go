//go:build synctests

package sim

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace-stream/millrace/checkpoint/blob"
)

// bucket is the object storage of a run, in memory. A share of the calls fails, before or after it had its effect, and a
// share of the reads gives damaged bytes.
type bucket struct {
	w *world

	mu    sync.Mutex
	blobs map[string][]byte
	times map[string]time.Time
	calls uint64
}

var errBucket = errors.New("the object storage is out of order")

// call does something that may fail or be lost.
func (b *bucket) call(ctx context.Context, op, key string, do func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	h := newHash(b.w.seed, "bucket", b.calls)
	faulty := b.w.faulty() && h.float() < 0.1
	if faulty && h.next()%2 == 0 {
		return &blob.Error{Op: op, Key: key, Store: "bucket", Err: errBucket}
	}
	if err := do(); err != nil {
		return &blob.Error{Op: op, Key: key, Store: "bucket", Err: err}
	}
	if faulty {
		return &blob.Error{Op: op, Key: key, Store: "bucket", Err: errBucket, Unknown: true}
	}
	return nil
}

func (b *bucket) put(key string, data []byte) {
	b.blobs[key], b.times[key] = data, time.Now()
}

func (b *bucket) Put(ctx context.Context, key string, body blob.Body) error {
	return b.call(ctx, "put", key, func() error {
		r, err := body.Open()
		if err != nil {
			return err
		}
		defer r.Close()
		data, err := io.ReadAll(blob.Verify(io.NopCloser(r), body.Size, body.SHA256))
		if err == nil {
			b.put(key, data)
		}
		return err
	})
}

func (b *bucket) Create(ctx context.Context, key string, data []byte) error {
	return b.call(ctx, "create", key, func() error {
		if old, ok := b.blobs[key]; ok && !bytes.Equal(old, data) {
			return blob.ErrExists
		}
		b.put(key, bytes.Clone(data))
		return nil
	})
}

func (b *bucket) Get(ctx context.Context, key string) (data []byte, err error) {
	err = b.call(ctx, "get", key, func() error {
		old, ok := b.blobs[key]
		if !ok {
			return blob.ErrNotFound
		}
		data = bytes.Clone(old)
		if h := newHash(b.w.seed, "damage", b.calls); len(data) > 0 && b.w.faulty() && h.float() < 0.05 {
			data[h.next()%uint64(len(data))] ^= 1
			b.w.hit("damaged blob", -1)
		}
		return nil
	})
	return data, err
}

func (b *bucket) Open(ctx context.Context, key string, offset int64) (io.ReadCloser, error) {
	data, err := b.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(data[offset:])), nil
}

func (b *bucket) Stat(ctx context.Context, key string) (info blob.Info, err error) {
	err = b.call(ctx, "stat", key, func() error {
		old, ok := b.blobs[key]
		if !ok {
			return blob.ErrNotFound
		}
		info = blob.Info{Key: key, Size: int64(len(old)), Modified: b.times[key]}
		return nil
	})
	return info, err
}

func (b *bucket) List(ctx context.Context, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		var all []blob.Info
		if err := b.call(ctx, "list", prefix, func() error {
			for _, key := range slices.Sorted(maps.Keys(b.blobs)) {
				if strings.HasPrefix(key, prefix) {
					all = append(all, blob.Info{Key: key, Size: int64(len(b.blobs[key])), Modified: b.times[key]})
				}
			}
			return nil
		}); err != nil {
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

func (b *bucket) Delete(ctx context.Context, keys ...string) error {
	return b.call(ctx, "delete", strings.Join(keys, " "), func() error {
		for _, key := range keys {
			delete(b.blobs, key)
		}
		return nil
	})
}

func (b *bucket) Uploads(context.Context, string, time.Duration) ([]blob.Upload, error) {
	return nil, nil
}

func (b *bucket) AbortUploads(context.Context, string, time.Duration) ([]blob.Upload, error) {
	return nil, nil
}

func (b *bucket) Check(context.Context) error { return nil }
func (b *bucket) Close() error                { return nil }
func (b *bucket) String() string              { return "bucket" }
