package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/statestore"
)

// Admin takes savepoints of the app, and stops it.
type Admin interface {
	// CreateSavepoint begins a savepoint and returns its name when the members are asked. How it ends is told by Savepoint.
	// An empty name gets a default.
	CreateSavepoint(ctx context.Context, name string, stop bool, timeout time.Duration) (string, error)
	Savepoints(ctx context.Context) ([]Savepoint, error)
	Savepoint(ctx context.Context, name string) (Savepoint, error)
	DeleteSavepoint(ctx context.Context, name string) error
	Stop(ctx context.Context) error
	Resume(ctx context.Context) error
}

// ErrNoStore: checkpoint.url is not set, so that there are no savepoints.
var ErrNoStore = errors.New("savepoints have no place: set checkpoint.url")

// maxBody is the most bytes of a request.
const maxBody = 64 << 10

// adminRoutes serve savepoints and stops to who has the token, reading included: each look is a list of the object storage.
//
//	POST   /api/v1/savepoints         {"name": "", "stop": false, "timeout": "10m"}, all optional: 202 {"name": ...} when it has
//	                                  begun; how it ends, GET tells. With stop the app stops at it
//	GET    /api/v1/savepoints         {"savepoints": [...]}, the newest first, as millrace savepoint list -o json
//	GET    /api/v1/savepoints/{name}  one of them, with its parts and stores
//	DELETE /api/v1/savepoints/{name}  200 when it is deleted. It may be repeated
//	POST   /api/v1/stop               {"savepoint": false, "name": "", "timeout": "10m"}: 200 when all members are told to stop; with
//	                                  savepoint 202 as above
//	POST   /api/v1/resume             {}: 200 when a stopped app goes on
//
// Bodies are JSON objects of at most 64 KiB with that content type; unknown fields are refused. Errors are {"error": ...}: 400
// for what cannot be understood, 404 for a savepoint that is not there, 409 for what does not go now (a name that is
// taken, another savepoint that runs, an app that is stopped, no checkpoint.url), 503 if brokers or object storage do not answer. No
// CORS header is ever sent, and the token is in a header that a browser adds by itself for nobody.
func adminRoutes(mux *http.ServeMux, o Options) {
	s := &adminServer{o.Admin}
	protect := func(h func(r *http.Request) (int, any, error)) http.Handler {
		return requireToken(o.Token, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			code, body, err := h(r)
			if err != nil {
				writeJSON(w, statusOf(err), errorBody{err.Error()})
				return
			}
			if code == http.StatusAccepted {
				w.Header().Set("Location", "/api/v1/savepoints/"+body.(begun).Name)
			}
			writeJSON(w, code, body)
		}))
	}
	mux.Handle("POST /api/v1/savepoints", protect(s.create))
	mux.Handle("GET /api/v1/savepoints", protect(s.list))
	mux.Handle("GET /api/v1/savepoints/{name}", protect(s.show))
	mux.Handle("DELETE /api/v1/savepoints/{name}", protect(s.delete))
	mux.Handle("POST /api/v1/stop", protect(s.stop))
	mux.Handle("POST /api/v1/resume", protect(s.resume))
}

// badRequest is a request that cannot be understood.
type badRequest struct {
	error
	code int
}

func statusOf(err error) int {
	var bad badRequest
	switch {
	case errors.As(err, &bad):
		return bad.code
	case errors.Is(err, checkpoint.ErrNoSavepoint):
		return http.StatusNotFound
	case errors.Is(err, ErrNoStore), errors.Is(err, checkpoint.ErrNameTaken), errors.Is(err, engine.ErrSavepointRuns), errors.Is(err, engine.ErrSavepointNeeded), errors.Is(err, engine.ErrStopped),
		errors.Is(err, engine.ErrNotStopped), errors.Is(err, engine.ErrNotRunning), errors.Is(err, engine.ErrNeverStarted):
		return http.StatusConflict
	}
	return http.StatusServiceUnavailable
}

type adminServer struct{ admin Admin }

// begun is the answer to what goes on after it.
type begun struct {
	Name string `json:"name"`
}

// stopped is the answer to stop and resume.
type stopped struct {
	Stopped bool `json:"stopped"`
	Already bool `json:"already,omitempty"` // it was so before
}

// decode reads the body into v.
func decode(r *http.Request, v any) error {
	bad := func(code int, format string, args ...any) error { return badRequest{fmt.Errorf(format, args...), code} }
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return bad(http.StatusUnsupportedMediaType, "a body of the content type application/json is wanted, {} for all defaults")
	}
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something comes after the object")
		}
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return bad(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes", maxBody)
	case err != nil:
		return bad(http.StatusBadRequest, "read the body: %w", err)
	}
	return nil
}

// checkSavepoint reads what a request says of a savepoint.
func checkSavepoint(name, timeout string) (time.Duration, error) {
	if name != "" {
		if err := checkpoint.CheckName(name); err != nil {
			return 0, badRequest{err, http.StatusBadRequest}
		}
	}
	if timeout == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(timeout)
	if err != nil || d <= 0 {
		return 0, badRequest{fmt.Errorf("timeout %q: a duration such as 10m is wanted", timeout), http.StatusBadRequest}
	}
	return d, nil
}

func (s *adminServer) take(r *http.Request, name string, stop bool, timeout string) (int, any, error) {
	d, err := checkSavepoint(name, timeout)
	if err != nil {
		return 0, nil, err
	}
	name, err = s.admin.CreateSavepoint(r.Context(), name, stop, d)
	return http.StatusAccepted, begun{name}, err
}

func (s *adminServer) create(r *http.Request) (int, any, error) {
	var q struct {
		Name    string `json:"name"`
		Stop    bool   `json:"stop"`
		Timeout string `json:"timeout"`
	}
	if err := decode(r, &q); err != nil {
		return 0, nil, err
	}
	return s.take(r, q.Name, q.Stop, q.Timeout)
}

func (s *adminServer) stop(r *http.Request) (int, any, error) {
	var q struct {
		Savepoint bool   `json:"savepoint"`
		Name      string `json:"name"`
		Timeout   string `json:"timeout"`
	}
	if err := decode(r, &q); err != nil {
		return 0, nil, err
	}
	if q.Savepoint {
		return s.take(r, q.Name, true, q.Timeout)
	}
	if q.Name != "" || q.Timeout != "" {
		return 0, nil, badRequest{errors.New("name and timeout are those of a savepoint: set savepoint to true, or leave them out"), http.StatusBadRequest}
	}
	err := s.admin.Stop(r.Context())
	if errors.Is(err, engine.ErrStopped) {
		return http.StatusOK, stopped{Stopped: true, Already: true}, nil
	}
	return http.StatusOK, stopped{Stopped: true}, err
}

func (s *adminServer) resume(r *http.Request) (int, any, error) {
	if err := decode(r, &struct{}{}); err != nil {
		return 0, nil, err
	}
	err := s.admin.Resume(r.Context())
	if errors.Is(err, engine.ErrNotStopped) {
		return http.StatusOK, stopped{Already: true}, nil
	}
	return http.StatusOK, stopped{}, err
}

func (s *adminServer) list(r *http.Request) (int, any, error) {
	all, err := s.admin.Savepoints(r.Context())
	if all == nil {
		all = []Savepoint{}
	}
	return http.StatusOK, struct {
		Savepoints []Savepoint `json:"savepoints"`
	}{all}, err
}

func (s *adminServer) show(r *http.Request) (int, any, error) {
	name := r.PathValue("name")
	if err := checkpoint.CheckName(name); err != nil {
		return 0, nil, badRequest{err, http.StatusBadRequest}
	}
	sp, err := s.admin.Savepoint(r.Context(), name)
	return http.StatusOK, sp, err
}

func (s *adminServer) delete(r *http.Request) (int, any, error) {
	name := r.PathValue("name")
	if err := checkpoint.CheckName(name); err != nil {
		return 0, nil, badRequest{err, http.StatusBadRequest}
	}
	return http.StatusOK, struct {
		Deleted string `json:"deleted"`
	}{name}, s.admin.DeleteSavepoint(r.Context(), name)
}

// Savepoint is a savepoint as JSON.
type Savepoint struct {
	Name        string            `json:"name"`
	Status      checkpoint.Status `json:"status,omitempty"`  // absent if it cannot be read
	Reason      string            `json:"reason,omitempty"`  // why it failed, or is abandoned
	Problem     string            `json:"problem,omitempty"` // why it cannot be read
	ID          string            `json:"id,omitempty"`
	App         string            `json:"app,omitempty"`
	ClusterID   string            `json:"cluster_id,omitempty"`
	Incarnation uint64            `json:"incarnation,omitempty"`
	Began       *time.Time        `json:"began,omitempty"`
	Deadline    *time.Time        `json:"deadline,omitempty"`
	Ended       *time.Time        `json:"ended,omitempty"`
	Owner       string            `json:"owner,omitempty"`
	Version     string            `json:"version,omitempty"`
	Expected    int               `json:"subtasks"` // number of all
	Written     int               `json:"written"`  // number of those that have written their state
	Entries     int64             `json:"entries,omitempty"`
	Bytes       int64             `json:"bytes"`           // of its parts; what is in the store so far if it is not completed
	Files       int               `json:"files"`           // parts, or blobs
	Parts       []SavepointPart   `json:"parts,omitempty"` // of one that is completed; not in lists, as Stores
	Stores      []SavepointStore  `json:"stores,omitempty"`
}

// SavepointPart is the state of one subtask.
type SavepointPart struct {
	Subtask string `json:"subtask"`
	Epoch   uint64 `json:"epoch"`
	Entries int64  `json:"entries"`
	Bytes   int64  `json:"bytes"`
	Files   int    `json:"files"`
	Owner   string `json:"owner"`
}

// SavepointStore is one store of state.
type SavepointStore struct {
	Name     string `json:"name"`
	Kind     string `json:"kind"`
	Key      string `json:"key"`
	Value    string `json:"value"`
	Expiring bool   `json:"expiring,omitempty"`
}

// ListSavepoints are all savepoints of an app, as a list shows them.
func ListSavepoints(ctx context.Context, saved *checkpoint.Savepoints) ([]Savepoint, error) {
	all, err := saved.List(ctx)
	if err != nil {
		return nil, err
	}
	var list []Savepoint
	for _, l := range all {
		s := NewListedSavepoint(l)
		if s.Status == checkpoint.StatusRunning {
			written, err := saved.Written(ctx, l.Name)
			if err != nil {
				return nil, err
			}
			s.Written = len(written)
		}
		list = append(list, s)
	}
	return list, nil
}

// ShowSavepoint is all about one.
func ShowSavepoint(ctx context.Context, saved *checkpoint.Savepoints, name string) (Savepoint, error) {
	sp, err := saved.Show(ctx, name)
	if err != nil {
		return Savepoint{}, err
	}
	s := NewSavepoint(sp)
	if s.Status == checkpoint.StatusRunning {
		written, err := saved.Written(ctx, name)
		if err != nil {
			return s, err
		}
		s.Written = len(written)
	}
	return s, nil
}

// NewListedSavepoint is one of a list.
func NewListedSavepoint(l checkpoint.Listed) Savepoint {
	if l.Savepoint == nil {
		return Savepoint{Name: l.Name, Problem: l.Err.Error(), Bytes: l.Usage.Bytes, Files: l.Usage.Blobs}
	}
	s := NewSavepoint(l.Savepoint)
	s.Parts, s.Stores = nil, nil
	if s.Status != checkpoint.StatusCompleted {
		s.Bytes, s.Files = l.Usage.Bytes, l.Usage.Blobs
	}
	return s
}

// NewSavepoint is all that a savepoint says of itself.
func NewSavepoint(sp *checkpoint.Savepoint) Savepoint {
	s := Savepoint{
		Name: sp.Name, Status: sp.Status, Reason: sp.Reason, ID: sp.ID, App: sp.App, ClusterID: sp.ClusterID, Incarnation: sp.Incarnation,
		Began: milli(sp.Began), Deadline: milli(sp.Deadline), Ended: milli(sp.Ended), Owner: sp.Owner, Version: sp.Version,
		Expected: len(sp.Expected), Written: len(sp.Subtasks), Bytes: sp.Bytes(),
	}
	stores := map[string]bool{}
	for _, m := range sp.Subtasks {
		p := SavepointPart{m.Subtask, m.Epoch, m.Entries, m.Bytes(), len(m.Files), m.Owner}
		s.Parts = append(s.Parts, p)
		s.Entries += p.Entries
		s.Files += p.Files
		for _, st := range m.Stores {
			if !stores[st.Name] {
				stores[st.Name] = true
				s.Stores = append(s.Stores, SavepointStore{st.Name, statestore.Kind(st.Kind).String(), st.KeyType, st.ValueType, st.Expiring})
			}
		}
	}
	slices.SortFunc(s.Stores, func(a, b SavepointStore) int { return strings.Compare(a.Name, b.Name) })
	return s
}

// milli is a moment from milliseconds, nil for 0.
func milli(ms int64) *time.Time {
	if ms == 0 {
		return nil
	}
	t := time.UnixMilli(ms).UTC()
	return &t
}
