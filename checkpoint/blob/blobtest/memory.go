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
	torn  int // uploads so far that broke off
	Blobs map[string][]byte
	Times map[string]time.Time // when each was made
	Puts  int                  // done by Put
	// Unfinished are uploads that broke off.
	Unfinished []blob.Upload
	// Hook is called around each call that reaches the store, with the name of the operation, its first key, and what
	// the store does. It decides whether that is done, and what the caller is told. With ErrTorn half of it is done.
	Hook func(ctx context.Context, op, key string, do func() error) error
	// OnList changes what a listing shows. OnDelete and OnCreate are told of each key.
	OnList   func(keys []string) []string
	OnDelete func(key string)
	OnCreate func(key string, data []byte)
}

// ErrTorn is a call that breaks off in its midst: of what is put an unfinished upload stays, of the keys to be deleted half are
// gone, of a listing and of contents half arrive. Of other calls nothing is done.
var ErrTorn = errors.New("connection broken in the midst of it by the test")

// NewMemory returns an empty one.
func NewMemory() *Memory { return &Memory{Blobs: map[string][]byte{}, Times: map[string]time.Time{}} }

// SetHook sets Hook while the store is in use.
func (f *Memory) SetHook(hook func(ctx context.Context, op, key string, do func() error) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Hook = hook
}

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
	err := f.call(ctx, "put", key, func() error {
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
	if errors.Is(err, ErrTorn) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.torn++
		f.Unfinished = append(f.Unfinished, blob.Upload{Key: key, ID: fmt.Sprint(f.torn), Started: time.Now()})
	}
	return err
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
	read := func() error {
		old, ok := f.Blobs[key]
		if !ok {
			return blob.ErrNotFound
		}
		data = old[offset:]
		return nil
	}
	err := f.call(ctx, "open", key, read)
	if torn := err; errors.Is(err, ErrTorn) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if err := read(); err != nil {
			return nil, torn
		}
		return io.NopCloser(io.MultiReader(bytes.NewReader(data[:len(data)/2]), failing{torn})), nil
	}
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
		list := func() error {
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
		}
		err := f.call(ctx, "list", prefix, list)
		if errors.Is(err, ErrTorn) {
			f.mu.Lock()
			_ = list() // it always can
			f.mu.Unlock()
			all = all[:len(all)/2]
		} else if err != nil {
			all = nil
		}
		for _, info := range all {
			if !yield(info, nil) {
				return
			}
		}
		if err != nil {
			yield(blob.Info{}, err)
		}
	}
}

// Delete implements blob.Store.
func (f *Memory) Delete(ctx context.Context, keys ...string) error {
	if len(keys) == 0 {
		return nil
	}
	remove := func(keys []string) {
		for _, key := range keys {
			if _, ok := f.Blobs[key]; ok && f.OnDelete != nil {
				f.OnDelete(key)
			}
			delete(f.Blobs, key)
		}
	}
	err := f.call(ctx, "delete", keys[0], func() error { remove(keys); return nil })
	if errors.Is(err, ErrTorn) {
		f.mu.Lock()
		defer f.mu.Unlock()
		remove(keys[:(len(keys)+1)/2])
	}
	return err
}

// Uploads implements blob.Store.
func (f *Memory) Uploads(ctx context.Context, prefix string, olderThan time.Duration) (all []blob.Upload, err error) {
	err = f.call(ctx, "uploads", prefix, func() error {
		all = f.unfinished(prefix, olderThan)
		return nil
	})
	return all, err
}

// AbortUploads implements blob.Store.
func (f *Memory) AbortUploads(ctx context.Context, prefix string, olderThan time.Duration) (all []blob.Upload, err error) {
	err = f.call(ctx, "abort", prefix, func() error {
		all = f.unfinished(prefix, olderThan)
		f.Unfinished = slices.DeleteFunc(f.Unfinished, func(u blob.Upload) bool { return slices.Contains(all, u) })
		return nil
	})
	return all, err
}

// unfinished uploads; the lock is held.
func (f *Memory) unfinished(prefix string, olderThan time.Duration) (all []blob.Upload) {
	for _, u := range f.Unfinished {
		if strings.HasPrefix(u.Key, prefix) && time.Since(u.Started) >= olderThan {
			all = append(all, u)
		}
	}
	return all
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
