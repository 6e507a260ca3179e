package blobtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/millrace-stream/millrace/checkpoint/blob"
)

// Fault is what becomes of a request.
type Fault int

// The faults.
const (
	None      Fault = iota
	SlowDown        // 503 SlowDown, without asking the server
	Refuse          // no connection
	TornBody        // the connection breaks in the middle of the request's body
	LostReply       // the server does it, and its answer is lost
	CutReply        // the connection breaks in the middle of the answer's body
	Hang            // no answer, until the client gives up
	HangReply       // nothing more after the first half of the answer's body, until the client gives up
)

// ErrCut is how a connection breaks.
var ErrCut = errors.New("connection reset by the test")

// Faults is an HTTP transport that makes faults.
type Faults struct {
	Base http.RoundTripper
	// Decide is asked for each request; n counts from 1. Nil makes no faults.
	Decide func(n int, r *http.Request) Fault

	mu sync.Mutex
	n  int
}

// First makes a fault of the first n requests that match. Method may be ""; query is a part of the URL's query, or "".
func First(n int, f Fault, method, query string) func(int, *http.Request) Fault {
	var mu sync.Mutex
	return func(_ int, r *http.Request) Fault {
		mu.Lock()
		defer mu.Unlock()
		if n == 0 || method != "" && r.Method != method || !strings.Contains(r.URL.RawQuery, query) {
			return None
		}
		n--
		return f
	}
}

// Always makes a fault of each request.
func Always(f Fault) func(int, *http.Request) Fault {
	return func(int, *http.Request) Fault { return f }
}

// RoundTrip sends a request, or does not.
func (t *Faults) RoundTrip(r *http.Request) (*http.Response, error) {
	t.mu.Lock()
	t.n++
	n := t.n
	t.mu.Unlock()
	fault := None
	if t.Decide != nil {
		fault = t.Decide(n, r)
	}
	switch fault {
	case SlowDown:
		discard(r)
		return &http.Response{StatusCode: http.StatusServiceUnavailable, Status: "503 Slow Down", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
			Header: http.Header{"Content-Type": {"application/xml"}, "X-Amz-Request-Id": {"FAULT"}},
			Body:   io.NopCloser(strings.NewReader(`<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>`))}, nil
	case Refuse:
		discard(r)
		return nil, ErrCut
	case TornBody:
		if r.Body != nil && r.ContentLength > 0 {
			r = r.Clone(r.Context())
			r.Body = struct {
				io.Reader
				io.Closer
			}{io.MultiReader(io.LimitReader(r.Body, r.ContentLength/2), failing{ErrCut}), r.Body}
		}
	case Hang:
		discard(r)
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	resp, err := t.Base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	switch fault {
	case LostReply:
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return nil, ErrCut
	case CutReply:
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(io.LimitReader(resp.Body, max(1, resp.ContentLength/2)), failing{io.ErrUnexpectedEOF}), resp.Body}
	}
	if fault == HangReply {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(io.LimitReader(resp.Body, max(1, resp.ContentLength/2)), hanging{r.Context()}), resp.Body}
	}
	return resp, nil
}

type hanging struct{ ctx context.Context }

func (h hanging) Read([]byte) (int, error) {
	<-h.ctx.Done()
	return 0, h.ctx.Err()
}

func discard(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// Call is a call of a Store.
type Call struct {
	N   int    // counts from 1, all calls of the store
	Op  string // the method in small letters: put, create, get, open, read, stat, list, delete, uploads, abort
	Key string // or prefix
}

// Wrap returns a store that fails when and how the hook says: an error of before fails the call undone, one of after
// fails it done. "read" is asked for each Read of what Open returned.
func Wrap(s blob.Store, before, after func(Call) error) blob.Store {
	return &wrapped{Store: s, before: before, after: after}
}

type wrapped struct {
	blob.Store
	before, after func(Call) error

	mu sync.Mutex
	n  int
}

func (w *wrapped) do(op, key string, fn func() error) error {
	w.mu.Lock()
	w.n++
	c := Call{w.n, op, key}
	w.mu.Unlock()
	if w.before != nil {
		if err := w.before(c); err != nil {
			return err
		}
	}
	if err := fn(); err != nil {
		return err
	}
	if w.after != nil {
		return w.after(c)
	}
	return nil
}

func (w *wrapped) Put(ctx context.Context, key string, b blob.Body) error {
	return w.do("put", key, func() error { return w.Store.Put(ctx, key, b) })
}

func (w *wrapped) Create(ctx context.Context, key string, data []byte) error {
	return w.do("create", key, func() error { return w.Store.Create(ctx, key, bytes.Clone(data)) })
}

func (w *wrapped) Get(ctx context.Context, key string) (data []byte, err error) {
	err = w.do("get", key, func() error { data, err = w.Store.Get(ctx, key); return err })
	return data, err
}

func (w *wrapped) Open(ctx context.Context, key string, offset int64) (r io.ReadCloser, err error) {
	err = w.do("open", key, func() error { r, err = w.Store.Open(ctx, key, offset); return err })
	if err != nil {
		if r != nil {
			_ = r.Close()
		}
		return nil, err
	}
	return &wrappedReader{w, key, r}, nil
}

type wrappedReader struct {
	w   *wrapped
	key string
	io.ReadCloser
}

func (r *wrappedReader) Read(p []byte) (n int, err error) {
	if e := r.w.do("read", r.key, func() error { n, err = r.ReadCloser.Read(p); return nil }); e != nil {
		return 0, e
	}
	return n, err
}

func (w *wrapped) Stat(ctx context.Context, key string) (info blob.Info, err error) {
	err = w.do("stat", key, func() error { info, err = w.Store.Stat(ctx, key); return err })
	return info, err
}

func (w *wrapped) List(ctx context.Context, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		if err := w.do("list", prefix, func() error { return nil }); err != nil {
			yield(blob.Info{}, err)
			return
		}
		w.Store.List(ctx, prefix)(yield)
	}
}

func (w *wrapped) Delete(ctx context.Context, keys ...string) error {
	return w.do("delete", strings.Join(keys, " "), func() error { return w.Store.Delete(ctx, keys...) })
}

func (w *wrapped) Uploads(ctx context.Context, prefix string, olderThan time.Duration) (all []blob.Upload, err error) {
	err = w.do("uploads", prefix, func() error { all, err = w.Store.Uploads(ctx, prefix, olderThan); return err })
	return all, err
}

func (w *wrapped) AbortUploads(ctx context.Context, prefix string, olderThan time.Duration) (all []blob.Upload, err error) {
	err = w.do("abort", prefix, func() error { all, err = w.Store.AbortUploads(ctx, prefix, olderThan); return err })
	return all, err
}
