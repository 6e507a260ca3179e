package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// errStalled ends a request that made no progress for Options.Timeout.
var errStalled = errors.New("no progress")

// client3 sends the requests of an s3store: it counts them, paces what they send, and ends those that make no progress.
// A time-out for whole requests would be too short for a large part on a slow line, or too long for everything else.
type client3 struct {
	base    *http.Client
	timeout time.Duration
	lim     *limiter
}

// Do sends one request.
func (c *client3) Do(req *http.Request) (*http.Response, error) {
	t, _ := req.Context().Value(tallyKey{}).(*tally)
	if t == nil {
		t = new(tally)
	}
	t.add()
	ctx, cancel := context.WithCancelCause(req.Context())
	w := newWatch(c.timeout, func() {
		cancel(fmt.Errorf("%w for %s", errStalled, c.timeout))
	})
	req = req.WithContext(ctx)
	if req.Body != nil && req.Body != http.NoBody {
		req.Body = &sending{ReadCloser: req.Body, ctx: ctx, lim: c.lim, w: w}
	}
	resp, err := c.base.Do(req)
	if err != nil {
		w.stop()
		err = stalled(ctx, err)
		cancel(nil)
		t.failed(err.Error())
		return nil, err
	}
	w.hold()
	if resp.StatusCode >= 300 {
		t.failed(resp.Status)
	}
	resp.Body = &receiving{ReadCloser: resp.Body, ctx: ctx, cancel: cancel, w: w}
	return resp, nil
}

// stalled puts our reason in the place of "context canceled".
func stalled(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errStalled) {
		return cause
	}
	return err
}

// watch calls a function once nothing has moved for a time.
type watch struct {
	d time.Duration

	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
}

func newWatch(d time.Duration, fn func()) *watch {
	return &watch{d: d, timer: time.AfterFunc(d, fn)}
}

// moved starts the time anew.
func (w *watch) moved() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped {
		w.timer.Reset(w.d)
	}
}

// hold the time until the next move: we ourselves are what waits.
func (w *watch) hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.timer.Stop()
}

// sending is a request's body.
type sending struct {
	io.ReadCloser
	ctx context.Context
	lim *limiter
	w   *watch
}

func (s *sending) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(s.lim.cut(p))
	s.w.hold()
	defer s.w.moved()
	if e := s.lim.wait(s.ctx, n); e != nil {
		return 0, e
	}
	return n, err
}

// receiving is a response's body.
type receiving struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	w      *watch
}

func (r *receiving) Read(p []byte) (int, error) {
	// The time runs while somebody waits for bytes, not while the reader of the blob is busy with the last ones.
	r.w.moved()
	n, err := r.ReadCloser.Read(p)
	r.w.hold()
	if err != nil && !errors.Is(err, io.EOF) {
		err = stalled(r.ctx, err)
	}
	return n, err
}

func (r *receiving) Close() error {
	r.w.stop()
	err := r.ReadCloser.Close()
	r.cancel(nil)
	return err
}
