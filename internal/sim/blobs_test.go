//go:build synctests

package sim

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"

	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/checkpoint/blob/blobtest"
)

// bucket is the object storage of a run, in memory. A share of the calls fails, before or after it had its effect, and a
// share of the reads gives damaged bytes.
type bucket struct {
	*blobtest.Memory
	w     *world
	calls atomic.Uint64
}

func newBucket(w *world) *bucket {
	b := &bucket{Memory: blobtest.NewMemory(), w: w}
	b.Hook = b.fault
	return b
}

// failing is the share of calls that fail.
func (b *bucket) failing() float64 {
	if b.w.calm {
		return 0.01
	}
	return 0.1
}

var errBucket = errors.New("the object storage is out of order")

// fault does something that may fail or be lost.
func (b *bucket) fault(_ context.Context, op, key string, do func() error) error {
	h := newHash(b.w.seed, "bucket", b.calls.Add(1))
	faulty := b.w.faulty() && h.float() < b.failing()
	file := ""
	switch blob := strings.Contains(key, "/blobs/"); { // of a checkpoint
	case blob && op == "put":
		file = "file uploaded"
	case blob && op == "get":
		file = "file downloaded"
	}
	if faulty && h.next()%2 == 0 {
		if file != "" {
			b.w.hit("not "+file, -1)
		}
		return errBucket
	}
	if err := do(); err != nil {
		return err
	}
	if file != "" {
		b.w.hit(file, -1)
	}
	if faulty {
		return &blob.Error{Op: op, Key: key, Store: b.String(), Err: errBucket, Unknown: true}
	}
	return nil
}

func (b *bucket) Get(ctx context.Context, key string) ([]byte, error) {
	data, err := b.Memory.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	if h := newHash(b.w.seed, "damage", b.calls.Load()); len(data) > 0 && b.w.faulty() && h.float() < b.failing()/2 {
		data[h.next()%uint64(len(data))] ^= 1
		b.w.hit("damaged blob", -1)
	}
	return data, nil
}

func (b *bucket) Open(ctx context.Context, key string, offset int64) (io.ReadCloser, error) {
	data, err := b.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(data[offset:])), nil
}
