package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

func handler(s engine.Status) http.Handler {
	return Handler(Options{Status: func() engine.Status { return s }, Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "metrics")
	})})
}

func get(h http.Handler, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

func TestHealth(t *testing.T) {
	sub := func(s engine.SubtaskStatus) engine.Status {
		s.ID = "0_1"
		return engine.Status{State: engine.StateRunning, Subtasks: []engine.SubtaskStatus{{ID: "0_0", State: engine.SubtaskRunning}, s}}
	}
	for _, c := range []struct {
		status      engine.Status
		live, ready int
		reason      string
	}{
		{engine.Status{State: engine.StateStarting}, 200, 503, "the worker is starting"},
		{engine.Status{State: engine.StateJoining}, 200, 503, "the worker is joining"},
		{engine.Status{State: engine.StateStopping}, 200, 503, "the worker is stopping"},
		{engine.Status{State: engine.StateStopped}, 200, 503, "the worker is stopped"},
		{engine.Status{State: engine.StateFailed, Error: "fenced instance id"}, 503, 503, "the worker has failed: fenced instance id"},
		{engine.Status{State: engine.StateRunning}, 200, 200, ""},
		{sub(engine.SubtaskStatus{State: engine.SubtaskRunning}), 200, 200, ""},
		{sub(engine.SubtaskStatus{State: engine.SubtaskStopping}), 200, 200, ""},
		{sub(engine.SubtaskStatus{State: engine.SubtaskFencing}), 200, 503, "subtask 0_1 is fencing"},
		{sub(engine.SubtaskStatus{State: engine.SubtaskRestoring}), 200, 503, "subtask 0_1 is restoring"},
		{sub(engine.SubtaskStatus{State: engine.SubtaskRestoring, Restore: &engine.RestoreStatus{Records: 5, Remaining: 7}}), 200, 503,
			"subtask 0_1 is restoring: 5 records read, at most 7 to go"},
		{sub(engine.SubtaskStatus{State: engine.SubtaskBackingOff, Error: "disk full"}), 200, 503, "subtask 0_1 is backing off: disk full"},
	} {
		h := handler(c.status)
		if w := get(h, "GET", "/livez"); w.Code != c.live {
			t.Errorf("%s: /livez is %d, want %d", c.status.State, w.Code, c.live)
		}
		w := get(h, "GET", "/readyz")
		want := health{OK: c.ready == 200, State: c.status.State}
		if c.reason != "" {
			want.Reasons = []string{c.reason}
		}
		var got health
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != c.ready || !reflect.DeepEqual(got, want) {
			t.Errorf("/readyz is %d %s, want %d %+v", w.Code, w.Body, c.ready, want)
		}
	}
}

func TestPaths(t *testing.T) {
	started := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := engine.Status{App: "a", State: engine.StateRunning, Started: started, Subtasks: []engine.SubtaskStatus{{ID: "0_0", State: engine.SubtaskRunning}}}
	h := handler(s)
	w := get(h, "GET", "/api/v1/status")
	var got engine.Status
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 || got.App != "a" || !got.Started.Equal(started) || len(got.Subtasks) != 1 {
		t.Errorf("status is %d %s", w.Code, w.Body)
	}
	if b := w.Body.String(); !strings.Contains(b, `"owners":[]`) || !strings.Contains(b, `"inputs":[]`) {
		t.Errorf("a list is null: %s", b)
	}
	if ct := w.Header().Get("Content-Type"); ct != "application/json" || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("headers: %v", w.Header())
	}
	if b := get(handler(engine.Status{}), "GET", "/api/v1/status").Body.String(); !strings.Contains(b, `"subtasks":[]`) {
		t.Errorf("a list is null: %s", b)
	}
	if w := get(h, "GET", "/metrics"); w.Body.String() != "metrics" {
		t.Errorf("metrics: %s", w.Body)
	}
	for _, path := range []string{"/livez", "/readyz", "/metrics", "/api/v1/status"} {
		if w := get(h, "HEAD", path); w.Code != 200 {
			t.Errorf("HEAD %s is %d", path, w.Code)
		}
		for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS"} {
			if w := get(h, method, path); w.Code != 405 || w.Header().Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s is %d, allow %q", method, path, w.Code, w.Header().Get("Allow"))
			}
		}
	}
	for _, path := range []string{"/", "/livez/", "/metrics/x", "/api/v1", "/api/v1/status/0_0", "/debug/pprof/"} {
		for _, method := range []string{"GET", "POST"} {
			if w := get(h, method, path); w.Code != 404 {
				t.Errorf("%s %s is %d", method, path, w.Code)
			}
		}
	}
}

func TestServer(t *testing.T) {
	srv, err := Listen("127.0.0.1:0", Options{Status: func() engine.Status { return engine.Status{State: engine.StateRunning} }, Metrics: http.NotFoundHandler()})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + srv.Addr().String() + "/livez")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != 200 || string(body) != `{"ok":true,"state":"running"}`+"\n" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if _, err := Listen(srv.Addr().String(), Options{}); err == nil || !strings.Contains(err.Error(), "address already in use; choose another address") {
		t.Errorf("a taken address: %v", err)
	}
	srv.Close()
	srv.Close()
	if _, err := net.Dial("tcp", srv.Addr().String()); err == nil {
		t.Error("still listening after Close")
	}
}

// TestCloseWaitsThenCuts: Close lets a running request end; one that does not end is cut off at the deadline.
func TestCloseWaitsThenCuts(t *testing.T) {
	inside, release := make(chan struct{}, 2), make(chan struct{})
	serve := func() *Server {
		srv, err := Listen("127.0.0.1:0", Options{Status: func() engine.Status { return engine.Status{} }, Metrics: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			inside <- struct{}{}
			select {
			case <-release:
				_, _ = io.WriteString(w, "done")
			case <-r.Context().Done():
			}
		})})
		if err != nil {
			t.Fatal(err)
		}
		return srv
	}
	type reply struct {
		body string
		err  error
	}
	ask := func(srv *Server) chan reply {
		out := make(chan reply, 1)
		go func() {
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			resp, err := client.Get("http://" + srv.Addr().String() + "/metrics")
			if err != nil {
				out <- reply{err: err}
				return
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			out <- reply{string(b), err}
		}()
		<-inside
		return out
	}
	srv := serve()
	cut := ask(srv)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	srv.close(ctx)
	if r := <-cut; r.err == nil || errors.Is(r.err, context.Canceled) {
		t.Errorf("a request that does not end got %q, %v", r.body, r.err)
	}
	srv = serve()
	kept := ask(srv)
	closed := make(chan struct{})
	go func() { srv.Close(); close(closed) }()
	testutil.Eventually(t, 10*time.Second, func() error { // Close has begun
		c, err := net.Dial("tcp", srv.Addr().String())
		if err != nil {
			return nil //nolint:nilerr // refused is what is waited for
		}
		c.Close()
		return errors.New("still listening")
	})
	close(release)
	<-closed
	if r := <-kept; r.err != nil || r.body != "done" {
		t.Errorf("a running request got %q, %v", r.body, r.err)
	}
}
