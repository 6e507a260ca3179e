package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/record"
)

// StateReader is what is asked about state; engine.Worker is one.
type StateReader interface {
	StateStores() []engine.StoreStatus
	StateSubtasks(store string) ([]record.SubtaskID, error)
	StateGet(ctx context.Context, k engine.StateKey, emit func(line []byte) error) (engine.StateAnswer, error)
	StateScan(ctx context.Context, o engine.StateScan, emit func(line []byte) error) (engine.StateAnswer, error)
}

// defaultScanLimit is how many entries a scan gives if it is not told.
const defaultScanLimit = 1000

// stateRoutes serve the state of the app, of the last committed epochs, to who has the token: it shows records.
//
//	GET /api/v1/state                                   all stores
//	GET /api/v1/state/{operator}/{state}?key=           one key: 200, or 404 if it has no entry
//	    &window=  end of a window                       of a store of windows; else all windows of the key
//	    &map_key=                                       of a map; else all its entries, up to engine.MaxQueryEntries
//	GET /api/v1/state/{operator}/{state}/scan           entries as JSON lines
//	    ?key= &map_key= &from= &to= &window= &limit= &subtask=
//	GET /api/v1/state/export?limit= &subtask=           those of all stores
//
// Keys are text as statestore.Spec.KeyText takes it, windows ms since 1970 or RFC 3339. Entries are as
// statestore.Inspector.Append writes them. Each subtask answers for itself, wherever it is: a member that does not own it
// sends the request on to who does. Where that is not known or cannot be reached, the answer is 421 or 502 and names the
// owner; while a subtask is on its way or restores it is 503 with Retry-After. The last line of a scan is streamEnd.
func stateRoutes(mux *http.ServeMux, o Options) {
	s := &stateServer{state: o.State, members: newForwarder(o.Token, time.Now)}
	protect := func(h http.HandlerFunc) http.Handler { return fromMemberOr(o.Token, time.Now, h) }
	mux.Handle("GET /api/v1/state", protect(s.list))
	mux.Handle("GET /api/v1/state/export", protect(func(w http.ResponseWriter, r *http.Request) { s.stream(w, r, "", 0) }))
	mux.Handle("GET /api/v1/state/{operator}/{state}", protect(s.get))
	mux.Handle("GET /api/v1/state/{operator}/{state}/scan", protect(func(w http.ResponseWriter, r *http.Request) {
		s.stream(w, r, storeOf(r), defaultScanLimit)
	}))
}

type stateServer struct {
	state   StateReader
	members *forwarder
}

func storeOf(r *http.Request) string { return r.PathValue("operator") + "/" + r.PathValue("state") }

func (s *stateServer) list(w http.ResponseWriter, _ *http.Request) {
	stores := s.state.StateStores()
	if stores == nil {
		stores = []engine.StoreStatus{}
	}
	writeJSON(w, http.StatusOK, struct {
		Stores []engine.StoreStatus `json:"stores"`
	}{stores})
}

// stateAnswer is the body of an answer about one key.
type stateAnswer struct {
	Subtask string            `json:"subtask"`
	Epoch   uint64            `json:"epoch"`
	CutOff  bool              `json:"cut_off"` // there are more entries
	Entries []json.RawMessage `json:"entries"`
}

func (s *stateServer) get(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	k := engine.StateKey{Store: storeOf(r), Key: q.Get("key"), MapKey: optional(q, "map_key")}
	var err error
	if k.Window, err = moment(q, "window"); err == nil && !q.Has("key") {
		err = fmt.Errorf("%w: the parameter key is missing", engine.ErrBadQuery)
	}
	a := stateAnswer{Entries: []json.RawMessage{}}
	if err == nil {
		var got engine.StateAnswer
		got, err = s.state.StateGet(r.Context(), k, func(line []byte) error {
			a.Entries = append(a.Entries, bytes.Clone(line))
			return nil
		})
		a.Subtask, a.Epoch, a.CutOff = got.Subtask, got.Epoch, got.CutOff
	}
	var elsewhere *engine.NotHereError
	switch {
	case errors.As(err, &elsewhere) && elsewhere.Owner.Address != "" && !forwarded(r):
		s.sendOn(w, r, elsewhere)
	case err != nil:
		refuseState(w, r, err)
	case len(a.Entries) == 0:
		writeJSON(w, http.StatusNotFound, a)
	default:
		writeJSON(w, http.StatusOK, a)
	}
}

// sendOn answers with what the owner answers.
func (s *stateServer) sendOn(w http.ResponseWriter, r *http.Request, to *engine.NotHereError) {
	resp, err := s.members.get(r.Context(), to.Owner.Address, r.URL.RequestURI())
	if err != nil {
		writeJSON(w, http.StatusBadGateway, elsewhereBody{fmt.Sprintf("ask the owner: %v; it advertises %s: see the option advertise", err, to.Owner.Address),
			to.Subtask.String(), to.Owner.Member, to.Owner.Host, to.Owner.Address})
		return
	}
	defer resp.Body.Close()
	for _, h := range []string{"Content-Type", "Retry-After"} {
		if v := resp.Header.Get(h); v != "" {
			w.Header().Set(h, v)
		}
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body) // an error means that one of the two has gone
}

// elsewhereBody names the owner of a subtask.
type elsewhereBody struct {
	Error   string `json:"error"`
	Subtask string `json:"subtask"`
	Member  string `json:"member,omitempty"`
	Host    string `json:"host,omitempty"` // as the broker sees it
	Address string `json:"address,omitempty"`
}

// refuseState answers with an error.
func refuseState(w http.ResponseWriter, r *http.Request, err error) {
	var later *engine.UnavailableError
	var elsewhere *engine.NotHereError
	switch {
	case errors.Is(err, engine.ErrNoStore):
		writeJSON(w, http.StatusNotFound, errorBody{err.Error() + "; GET /api/v1/state lists all"})
	case errors.Is(err, engine.ErrBadQuery):
		writeJSON(w, http.StatusBadRequest, errorBody{err.Error()})
	case errors.As(err, &elsewhere) && !forwarded(r):
		writeJSON(w, http.StatusMisdirectedRequest, elsewhereBody{err.Error() + ", which does not say where it can be asked: set its option advertise, or ask it directly",
			elsewhere.Subtask.String(), elsewhere.Owner.Member, elsewhere.Owner.Host, elsewhere.Owner.Address})
	default:
		retry := time.Second
		if errors.As(err, &later) {
			retry = later.Retry
		}
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(retry.Seconds()))))
		writeJSON(w, http.StatusServiceUnavailable, errorBody{err.Error()})
	}
}

func optional(q url.Values, name string) *string {
	if !q.Has(name) {
		return nil
	}
	v := q.Get(name)
	return &v
}

// moment reads a time, in ms since 1970 or RFC 3339; nil if it is not there.
func moment(q url.Values, name string) (*int64, error) {
	if !q.Has(name) {
		return nil, nil
	}
	if ms, err := strconv.ParseInt(q.Get(name), 10, 64); err == nil {
		return &ms, nil
	}
	t, err := time.Parse(time.RFC3339Nano, q.Get(name))
	if err != nil {
		return nil, fmt.Errorf("%w: %s=%q: wanted are milliseconds since 1970, or a time such as 2026-01-31T12:00:00Z", engine.ErrBadQuery, name, q.Get(name))
	}
	ms := t.UnixMilli()
	return &ms, nil
}

// streamEnd is the last line of a scan.
type streamEnd struct {
	End streamSummary `json:"end"`
}

// streamSummary says what was in a scan.
type streamSummary struct {
	Entries int               `json:"entries"`
	CutOff  bool              `json:"cut_off"`          // the limit was reached, and there are more
	Epochs  map[string]uint64 `json:"epochs"`           // of what was read of each subtask
	Failed  map[string]string `json:"failed,omitempty"` // subtasks that could not be read to their end, and why
}

const (
	// streamChunk is how much is written at once; who does not take that much within streamPatience is cut off.
	streamChunk    = 64 << 10
	streamPatience = 5 * time.Second
)

// stream writes JSON lines. Nothing is written before the first entry, so that a failure until then has a status code.
type stream struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	buf   bytes.Buffer
	begun bool
}

func (st *stream) line(line []byte) error {
	st.buf.Write(line)
	st.buf.WriteByte('\n')
	if st.buf.Len() < streamChunk {
		return nil
	}
	return st.flush()
}

func (st *stream) flush() error {
	if !st.begun {
		st.begun = true
		st.w.Header().Set("Content-Type", "application/x-ndjson")
	}
	// The server's own time-out is for short answers. A writer that knows no deadline, in tests, is as good.
	if err := st.rc.SetWriteDeadline(time.Now().Add(streamPatience)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	_, err := st.w.Write(st.buf.Bytes())
	st.buf.Reset()
	if err == nil {
		err = st.rc.Flush()
	}
	if errors.Is(err, http.ErrNotSupported) {
		err = nil
	}
	return err
}

// stream gives the entries of a store, or of all, subtask by subtask.
func (s *stateServer) stream(w http.ResponseWriter, r *http.Request, store string, limit int) {
	q := r.URL.Query()
	o := engine.StateScan{Store: store, Key: optional(q, "key"), MapKey: optional(q, "map_key"), From: optional(q, "from"), To: optional(q, "to")}
	ids, err := s.state.StateSubtasks(store)
	if err == nil {
		o.Window, err = moment(q, "window")
	}
	if text := q.Get("limit"); err == nil && text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 0 {
			err = fmt.Errorf("%w: limit=%q: wanted is a number of entries, 0 = all", engine.ErrBadQuery, text)
		}
	}
	if text := q.Get("subtask"); err == nil && text != "" {
		var id record.SubtaskID
		if id, err = record.ParseSubtaskID(text); err != nil {
			err = fmt.Errorf("%w: subtask=%q: %w", engine.ErrBadQuery, text, err)
		}
		ids = []record.SubtaskID{id}
	}
	if err != nil {
		refuseState(w, r, err)
		return
	}
	st := &stream{w: w, rc: http.NewResponseController(w)}
	sum := streamSummary{Epochs: map[string]uint64{}, Failed: map[string]string{}}
	var failure error
	for _, id := range ids {
		if limit > 0 && sum.Entries == limit {
			sum.CutOff = true // there may be nothing more; who asks for exactly as much as there is hears this
			break
		}
		o.Subtask, o.Limit = id, max(limit-sum.Entries, 0)
		a, err := s.state.StateScan(r.Context(), o, st.line)
		var elsewhere *engine.NotHereError
		if errors.As(err, &elsewhere) && elsewhere.Owner.Address != "" && !forwarded(r) {
			a, err = s.copyScan(r, elsewhere.Owner.Address, o, st)
		}
		sum.Entries += a.Entries
		sum.CutOff = sum.CutOff || a.CutOff
		if err != nil {
			failure = err
			sum.Failed[id.String()] = err.Error()
			continue
		}
		sum.Epochs[id.String()] = a.Epoch
	}
	if failure != nil && len(sum.Epochs) == 0 && !st.begun && st.buf.Len() == 0 {
		refuseState(w, r, failure)
		return
	}
	last, err := json.Marshal(streamEnd{sum})
	if err == nil && st.line(last) == nil {
		_ = st.flush() // an error means that the client has gone
	}
}

// copyScan copies what another member gives of a subtask.
func (s *stateServer) copyScan(r *http.Request, addr string, o engine.StateScan, st *stream) (a engine.StateAnswer, err error) {
	q := r.URL.Query()
	q.Set("subtask", o.Subtask.String())
	q.Set("limit", strconv.Itoa(o.Limit))
	resp, err := s.members.get(r.Context(), addr, r.URL.Path+"?"+q.Encode())
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	br := bufio.NewReaderSize(resp.Body, streamChunk)
	if resp.StatusCode != http.StatusOK {
		var body errorBody
		if json.NewDecoder(br).Decode(&body) != nil {
			body.Error = resp.Status
		}
		retry, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return a, &engine.UnavailableError{Reason: "the member at " + addr + " says: " + body.Error, Retry: time.Duration(max(retry, 1)) * time.Second}
	}
	for {
		line, err := br.ReadBytes('\n')
		if err != nil {
			return a, fmt.Errorf("the answer of the member at %s ends in its midst: %w", addr, err)
		}
		line = line[:len(line)-1]
		if bytes.HasPrefix(line, []byte(`{"end":`)) {
			var end streamEnd
			if err := json.Unmarshal(line, &end); err != nil {
				return a, fmt.Errorf("the answer of the member at %s has no end: %w", addr, err)
			}
			if why, failed := end.End.Failed[o.Subtask.String()]; failed {
				return a, errors.New(why)
			}
			a.CutOff, a.Epoch = end.End.CutOff, end.End.Epochs[o.Subtask.String()]
			return a, nil
		}
		if err := st.line(line); err != nil {
			return a, err
		}
		a.Entries++
	}
}
