package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/internal/engine"
)

// recorder is an Admin that tells what it was asked.
type recorder struct {
	calls []string
	err   error
}

func (a *recorder) tell(format string, args ...any) error {
	a.calls = append(a.calls, fmt.Sprintf(format, args...))
	return a.err
}

func (a *recorder) CreateSavepoint(_ context.Context, name string, stop bool, timeout time.Duration) (string, error) {
	if name == "" {
		name = "default"
	}
	return name, a.tell("create %s %v %s", name, stop, timeout)
}

func (a *recorder) Savepoints(context.Context) ([]Savepoint, error) { return nil, a.tell("list") }

func (a *recorder) Savepoint(_ context.Context, name string) (Savepoint, error) {
	return Savepoint{Name: name, Status: checkpoint.StatusRunning, Expected: 4, Written: 1}, a.tell("show %s", name)
}

func (a *recorder) DeleteSavepoint(_ context.Context, name string) error {
	return a.tell("delete %s", name)
}

func (a *recorder) Stop(context.Context) error   { return a.tell("stop") }
func (a *recorder) Resume(context.Context) error { return a.tell("resume") }

// ask sends a request with a body of JSON and a token, and returns the answer and what the admin was asked.
func ask(a *recorder, token, method, path, body string, edit ...func(*http.Request)) *httptest.ResponseRecorder {
	h := Handler(Options{Status: func() engine.Status { return engine.Status{} }, Metrics: http.NotFoundHandler(), Admin: a, Token: "secret"})
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for _, e := range edit {
		e(r)
	}
	w := httptest.NewRecorder()
	a.calls = nil
	h.ServeHTTP(w, r)
	return w
}

func TestAdminRoutes(t *testing.T) {
	for _, c := range []struct {
		method, path, body string
		code               int
		call, answer       string
	}{
		{"POST", "/api/v1/savepoints", `{}`, 202, "create default false 0s", `{"name":"default"}`},
		{"POST", "/api/v1/savepoints", ` {"name":"one","stop":true,"timeout":"90s"} `, 202, "create one true 1m30s", `{"name":"one"}`},
		{"GET", "/api/v1/savepoints", "", 200, "list", `{"savepoints":[]}`},
		{"GET", "/api/v1/savepoints/one", "", 200, "show one", `{"name":"one","status":"running","subtasks":4,"written":1,"bytes":0,"files":0}`},
		{"DELETE", "/api/v1/savepoints/one", "", 200, "delete one", `{"deleted":"one"}`},
		{"POST", "/api/v1/stop", `{}`, 200, "stop", `{"stopped":true}`},
		{"POST", "/api/v1/stop", `{"savepoint":true}`, 202, "create default true 0s", `{"name":"default"}`},
		{"POST", "/api/v1/stop", `{"savepoint":true,"name":"two","timeout":"1s"}`, 202, "create two true 1s", `{"name":"two"}`},
		{"POST", "/api/v1/resume", `{}`, 200, "resume", `{"stopped":false}`},

		{"POST", "/api/v1/savepoints", ``, 400, "", "EOF"},
		{"POST", "/api/v1/savepoints", `{"nam":"x"}`, 400, "", "nam"},
		{"POST", "/api/v1/savepoints", `{}{}`, 400, "", "something comes after"},
		{"POST", "/api/v1/savepoints", `{"name":"../x"}`, 400, "", "want 1 to 100 of letters"},
		{"POST", "/api/v1/savepoints", `{"timeout":"soon"}`, 400, "", "a duration such as 10m"},
		{"POST", "/api/v1/savepoints", `{"timeout":"-1s"}`, 400, "", "a duration such as 10m"},
		{"POST", "/api/v1/savepoints", `{"name":"` + strings.Repeat("x", maxBody) + `"}`, 413, "", "larger than 65536 bytes"},
		{"POST", "/api/v1/stop", `{"name":"x"}`, 400, "", "set savepoint to true"},
		{"POST", "/api/v1/resume", `[]`, 400, "", "read the body"},
		{"GET", "/api/v1/savepoints/.x", "", 400, "", "want 1 to 100 of letters"},
		{"DELETE", "/api/v1/savepoints/a%2Fb", "", 400, "", "want 1 to 100 of letters"},
		{"PUT", "/api/v1/savepoints", `{}`, 405, "", ""},
		{"GET", "/api/v1/stop", "", 405, "", ""},
		{"OPTIONS", "/api/v1/stop", "", 405, "", ""},
		{"POST", "/api/v1/savepoints/one", `{}`, 405, "", ""},
	} {
		a := &recorder{}
		w := ask(a, "secret", c.method, c.path, c.body)
		if w.Code != c.code || strings.Join(a.calls, ";") != c.call || !strings.Contains(w.Body.String(), c.answer) {
			t.Errorf("%s %s %.80s: %d %s, asked %v; want %d %s, asked %q", c.method, c.path, c.body, w.Code, w.Body, a.calls, c.code, c.answer, c.call)
		}
		for name := range w.Header() {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%s %s: header %s", c.method, c.path, name)
			}
		}
		if location := w.Header().Get("Location"); (location != "") != (c.code == 202) {
			t.Errorf("%s %s: location %q", c.method, c.path, location)
		}
		if c.code == 405 {
			continue
		}
		// Without the token nothing is asked, whatever the request is.
		for _, token := range []string{"", "wrong"} {
			if w := ask(a, token, c.method, c.path, c.body); w.Code != 401 || a.calls != nil {
				t.Errorf("%s %s with token %q: %d, asked %v", c.method, c.path, token, w.Code, a.calls)
			}
		}
	}
	a := &recorder{}
	for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"} {
		if w := ask(a, "secret", "POST", "/api/v1/stop", "{}", func(r *http.Request) { r.Header.Set("Content-Type", kind) }); w.Code != 415 || a.calls != nil {
			t.Errorf("content type %q: %d, asked %v", kind, w.Code, a.calls)
		}
	}
	if w := ask(a, "secret", "POST", "/api/v1/stop", "{}", func(r *http.Request) { r.Header.Set("Content-Type", "application/json; charset=utf-8") }); w.Code != 200 {
		t.Errorf("JSON with a charset: %d %s", w.Code, w.Body)
	}
}

func TestAdminErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
	}{
		{checkpoint.ErrNoSavepoint, 404}, {checkpoint.ErrNameTaken, 409}, {engine.ErrSavepointRuns, 409}, {engine.ErrNotRunning, 409},
		{engine.ErrNeverStarted, 409}, {ErrNoStore, 409}, {errors.New("no broker answers"), 503},
	} {
		for _, path := range []string{"POST /api/v1/savepoints", "GET /api/v1/savepoints", "GET /api/v1/savepoints/x", "DELETE /api/v1/savepoints/x", "POST /api/v1/stop", "POST /api/v1/resume"} {
			method, path, _ := strings.Cut(path, " ")
			w := ask(&recorder{err: fmt.Errorf("do it: %w", c.err)}, "secret", method, path, "{}")
			var body errorBody
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != c.code || body.Error != "do it: "+c.err.Error() || w.Header().Get("Location") != "" {
				t.Errorf("%s %s, %v: %d %s", method, path, c.err, w.Code, w.Body)
			}
		}
	}
	for path, err := range map[string]error{"/api/v1/stop": engine.ErrStopped, "/api/v1/resume": engine.ErrNotStopped} {
		if w := ask(&recorder{err: err}, "secret", "POST", path, "{}"); w.Code != 200 || !strings.Contains(w.Body.String(), `"already":true`) {
			t.Errorf("%s again: %d %s", path, w.Code, w.Body)
		}
	}
}
