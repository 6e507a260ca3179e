// Package api is the HTTP server of a worker: health, metrics and status, and with a token state, savepoints and stops.
//
//	GET /livez          200 while the worker has not failed: a failed one is to be started anew
//	GET /readyz         200 while the worker processes all that it owns, else 503 with the reasons
//	GET /metrics        metrics in the Prometheus text format
//	GET /api/v1/status  engine.Status as JSON
//	GET /api/v1/state   and below: the app's state, see stateRoutes; only with the bearer token of admin.token
//	    /api/v1/savepoints and below, /api/v1/stop, /api/v1/resume: see adminRoutes; only with that token
//
// Other methods are answered with 405, other paths with 404. What shows no records and changes nothing
// needs no token; the server listens on loopback by default. All else asks for it first: see requireToken.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/millrace-stream/millrace/internal/engine"
)

// Options are what the handlers show.
type Options struct {
	Status  func() engine.Status
	Metrics http.Handler
	Logger  *slog.Logger // nil = discard
	State   StateReader  // nil = no state is shown
	Admin   Admin        // nil = no savepoints, no stops
	Token   string       // admin.token
}

// Limits of the server. A scrape may take 10 s.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 30 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 16 << 10
	shutdownTimeout   = 3 * time.Second
)

// Handler serves all paths.
func Handler(o Options) http.Handler {
	mux := http.NewServeMux() // a GET pattern serves HEAD too; other methods are 405
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		s := o.Status()
		answer(w, health{OK: s.State != engine.StateFailed, State: s.State, Reasons: failure(s)})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		s := o.Status()
		reasons := notReady(s)
		answer(w, health{OK: len(reasons) == 0, State: s.State, Reasons: reasons})
	})
	mux.HandleFunc("GET /api/v1/status", func(w http.ResponseWriter, _ *http.Request) {
		s := o.Status()
		// An empty list is [], never null.
		if s.Subtasks == nil {
			s.Subtasks = []engine.SubtaskStatus{}
		}
		if s.Standbys == nil {
			s.Standbys = []engine.StandbyStatus{}
		}
		if s.Owners == nil {
			s.Owners = []engine.OwnerStatus{}
		}
		for i := range s.Subtasks {
			if s.Subtasks[i].Inputs == nil {
				s.Subtasks[i].Inputs = []engine.PartitionStatus{}
			}
		}
		writeJSON(w, http.StatusOK, s)
	})
	mux.Handle("GET /metrics", o.Metrics)
	if o.State != nil {
		stateRoutes(mux, o)
	}
	if o.Admin != nil {
		adminRoutes(mux, o)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		mux.ServeHTTP(w, r)
	})
}

// health is the body of /livez and /readyz.
type health struct {
	OK      bool         `json:"ok"`
	State   engine.State `json:"state"`
	Reasons []string     `json:"reasons,omitempty"`
}

func answer(w http.ResponseWriter, h health) {
	code := http.StatusOK
	if !h.OK {
		code = http.StatusServiceUnavailable
	}
	writeJSON(w, code, h)
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	b, err := json.Marshal(v)
	if err != nil { // no type here can fail, but a status must not be half a status
		http.Error(w, "encode the answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(b, '\n')) // an error means that the client has gone
}

func failure(s engine.Status) []string {
	if s.State != engine.StateFailed {
		return nil
	}
	return []string{"the worker has failed: " + s.Error}
}

// notReady says why the worker does not process all that it owns. A worker that owns nothing is ready: it stands by. A
// subtask that is being handed over is no reason, since that is how a rebalance looks.
func notReady(s engine.Status) []string {
	switch s.State {
	case engine.StateRunning:
	case engine.StateFailed:
		return failure(s)
	default:
		return []string{"the worker is " + string(s.State)}
	}
	var reasons []string
	for _, t := range s.Subtasks {
		switch t.State {
		case engine.SubtaskRunning, engine.SubtaskStopping:
		case engine.SubtaskRestoring:
			if t.Restore != nil {
				reasons = append(reasons, fmt.Sprintf("subtask %s is restoring: %d records read, at most %d to go", t.ID, t.Restore.Records, t.Restore.Remaining))
				continue
			}
			reasons = append(reasons, fmt.Sprintf("subtask %s is restoring", t.ID))
		case engine.SubtaskBackingOff:
			reasons = append(reasons, fmt.Sprintf("subtask %s is backing off: %s", t.ID, t.Error))
		default:
			reasons = append(reasons, fmt.Sprintf("subtask %s is %s", t.ID, t.State))
		}
	}
	return reasons
}

// Server is a running HTTP server.
type Server struct {
	http *http.Server
	addr net.Addr
	done chan struct{} // closed when Serve has returned
}

// Listen starts a server on addr, a host:port. An empty host is every network; port 0 takes a free one.
func Listen(addr string, o Options) (*Server, error) {
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %q: %w; choose another address with the option listen, or off", addr, err)
	}
	s := &Server{
		http: &http.Server{
			Handler: Handler(o), ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
			IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		},
		addr: ln.Addr(),
		done: make(chan struct{}),
	}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			log.Error("serve HTTP", "addr", s.addr.String(), "err", err)
		}
	}()
	return s, nil
}

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.addr }

// Close stops listening and waits for running requests, at most 3 s; then it cuts them off. It returns when the server
// has ended.
func (s *Server) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	s.close(ctx)
}

func (s *Server) close(ctx context.Context) {
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close() // what is cut off has no more to say
	}
	<-s.done
}
