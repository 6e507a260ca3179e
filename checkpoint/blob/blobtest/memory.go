package blobtest

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
	"time"

	"github.com/millrace-stream/millrace/checkpoint/blob"
)

// Memory is a Store in memory whose calls can be made to fail. What is exported may be read and changed while no call
// runs.
type Memory struct {
	mu    sync.Mutex
	Blobs map[string][]byte
	Times map[string]time.Time // when each was made
	Puts  int                  // done by Put
	// Hook is called around each call that reaches the store, with the name of the operation, its first key, and what
	// the store does. It decides whether that is done, and what the caller is told.
	Hook func(ctx context.Context, op, key string, do func() error) error
	// OnList changes what a listing shows. OnDelete and OnCreate are told of each key.
	OnList   func(keys []string) []string
	OnDelete func(key string)
	OnCreate func(key string, data []byte)
}

// NewMemory returns an empty one.
func NewMemory() *Memory { return &Memory{Blobs: map[string][]byte{}, Times: map[string]time.Time{}} }

// call does something as Hook says. An error that is a *blob.Error is returned as it is.
func (f *Memory) call(ctx context.Context, op, key string, do func() error) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	locked := func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		return do()
	}
	f.mu.Lock()
	hook := f.Hook
	f.mu.Unlock()
	var err error
	if hook != nil {
		err = hook(ctx, op, key, locked)
	} else {
		err = locked()
	}
	var told *blob.Error
	if err == nil || errors.As(err, &told) {
		return err
	}
	return &blob.Error{Op: op, Key: key, Store: f.String(), Err: err}
}

// Put implements blob.Store.
func (f *Memory) Put(ctx context.Context, key string, b blob.Body) error {
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
		if old, ok := f.Blobs[key]; ok && !bytes.Equal(old, data) {
			return fmt.Errorf("%s is put with other contents", key)
		}
		f.Blobs[key], f.Times[key] = data, time.Now()
		f.Puts++
		return nil
	})
}

// Create implements blob.Store.
func (f *Memory) Create(ctx context.Context, key string, data []byte) error {
	return f.call(ctx, "create", key, func() error {
		if old, ok := f.Blobs[key]; ok {
			if bytes.Equal(old, data) {
				return nil // an answer was lost
			}
			return blob.ErrExists
		}
		f.Blobs[key], f.Times[key] = bytes.Clone(data), time.Now()
		if f.OnCreate != nil {
			f.OnCreate(key, data)
		}
		return nil
	})
}

// Get implements blob.Store.
func (f *Memory) Get(ctx context.Context, key string) (data []byte, err error) {
	err = f.call(ctx, "get", key, func() error {
		old, ok := f.Blobs[key]
		if !ok {
			return blob.ErrNotFound
		}
		data = bytes.Clone(old)
		return nil
	})
	return data, err
}

// Open implements blob.Store.
func (f *Memory) Open(ctx context.Context, key string, offset int64) (io.ReadCloser, error) {
	var data []byte
	err := f.call(ctx, "open", key, func() error {
		old, ok := f.Blobs[key]
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

// Stat implements blob.Store.
func (f *Memory) Stat(ctx context.Context, key string) (info blob.Info, err error) {
	err = f.call(ctx, "stat", key, func() error {
		old, ok := f.Blobs[key]
		if !ok {
			return blob.ErrNotFound
		}
		info = blob.Info{Key: key, Size: int64(len(old)), Modified: f.Times[key]}
		return nil
	})
	return info, err
}

// List implements blob.Store.
func (f *Memory) List(ctx context.Context, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		var all []blob.Info
		err := f.call(ctx, "list", prefix, func() error {
			all = all[:0]
			keys := slices.Collect(maps.Keys(f.Blobs))
			if f.OnList != nil {
				keys = f.OnList(keys)
			}
			slices.Sort(keys)
			for _, key := range keys {
				if strings.HasPrefix(key, prefix) {
					all = append(all, blob.Info{Key: key, Size: int64(len(f.Blobs[key])), Modified: f.Times[key]})
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

// Delete implements blob.Store.
func (f *Memory) Delete(ctx context.Context, keys ...string) error {
	if len(keys) == 0 {
		return nil
	}
	return f.call(ctx, "delete", keys[0], func() error {
		for _, key := range keys {
			if _, ok := f.Blobs[key]; ok && f.OnDelete != nil {
				f.OnDelete(key)
			}
			delete(f.Blobs, key)
		}
		return nil
	})
}

// Uploads implements blob.Store.
func (f *Memory) Uploads(context.Context, string, time.Duration) ([]blob.Upload, error) {
	return nil, nil
}

// AbortUploads implements blob.Store.
func (f *Memory) AbortUploads(ctx context.Context, prefix string, _ time.Duration) ([]blob.Upload, error) {
	return nil, f.call(ctx, "abort", prefix, func() error { return nil })
}

// Check implements blob.Store.
func (f *Memory) Check(context.Context) error { return nil }

// Close implements blob.Store.
func (f *Memory) Close() error { return nil }

// String implements blob.Store.
func (f *Memory) String() string { return "memory" }

var _ blob.Store = (*Memory)(nil)

// Keys are those with a prefix, sorted.
func (f *Memory) Keys(prefix string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var keys []string
	for key := range f.Blobs {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
