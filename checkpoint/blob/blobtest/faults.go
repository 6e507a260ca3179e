package blobtest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
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
