package cli

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
	"github.com/millrace-stream/millrace/statestore/pebblestore"
)

// newStateCommand reads state: of a running app, or of a savepoint or checkpoint.
func newStateCommand(environ []string) *cobra.Command {
	cmd := parentCommand("state", "Read the state of the app: of the running one, or of a savepoint or checkpoint")
	where := func(own *pflag.FlagSet) {
		own.String("live", "", "read the running app: address of the HTTP server of any member, such as http://localhost:9644; needs admin.token")
		own.String("savepoint", "", "read this savepoint in checkpoint.url")
		own.String("checkpoint", "", "read the checkpoints in checkpoint.url: latest, or the epoch of one of --subtask")
		own.Uint64("incarnation", 0, "with --checkpoint: the incarnation of the app; 0 = the newest that has any")
	}
	entries := func(own *pflag.FlagSet) {
		where(own)
		own.String("subtask", "", "read only this subtask, such as 0_3")
	}
	cmd.AddCommand(
		appCommand{use: "list", short: "List the stores, one JSON object a line", flags: where, run: listState}.command(environ),
		appCommand{
			use: "get", short: "Print the entries of one key", args: "<store> <key>",
			flags: func(own *pflag.FlagSet) {
				where(own)
				own.String("window", "", "of a store of windows: the end of the window, in ms since 1970 or as 2026-01-31T12:00:00Z")
				own.String("map-key", "", "of a store of maps: the key within the map")
			},
			run: getState,
		}.command(environ),
		appCommand{
			use: "scan", short: "Print entries of a store", args: "<store>",
			flags: func(own *pflag.FlagSet) {
				entries(own)
				own.String("key", "", "print only the entries of this key")
				own.String("from", "", "print only keys from this one on")
				own.String("to", "", "print only keys below this one")
				own.String("window", "", "print only entries of the window with this end, or timers of this time")
				own.Int("limit", 1000, "print at most so many entries; 0 = all")
			},
			run: scanState,
		}.command(environ),
		appCommand{
			use: "export", short: "Write the entries of all stores, to a file or to standard output", args: "[file]",
			flags: func(own *pflag.FlagSet) {
				entries(own)
				own.Int("limit", 0, "write at most so many entries; 0 = all")
			},
			run: exportState,
		}.command(environ),
	)
	return cmd
}

// stateQuery is what is asked of a source.
type stateQuery struct {
	store   string // "" = all
	get     bool   // a key is asked for: a store of timers is refused
	subtask string
	key     *string
	mapKey  *string
	from    *string
	to      *string
	window  *int64
	limit   int
}

// stateSummary is what a source says at the end; it has the form of the last line of the HTTP server.
type stateSummary struct {
	Entries int               `json:"entries"`
	CutOff  bool              `json:"cut_off"`
	Epochs  map[string]uint64 `json:"epochs"`
	Failed  map[string]string `json:"failed,omitempty"`
}

// stateSource is where state is read.
type stateSource interface {
	stores() ([]engine.StoreStatus, error)
	read(q stateQuery, emit func(line []byte) error) (stateSummary, error)
	close() error
}

// source opens what the flags name.
func (c *appCall) source() (stateSource, error) {
	flag := func(name string) string { return c.flags.Lookup(name).Value.String() }
	live, savepoint, point := flag("live"), flag("savepoint"), flag("checkpoint")
	given := 0
	for _, s := range []string{live, savepoint, point} {
		if s != "" {
			given++
		}
	}
	if given != 1 {
		return nil, usageError{errors.New("say what to read: one of --live, --savepoint and --checkpoint")}
	}
	if live != "" {
		return newLiveState(c, live)
	}
	blobs, err := c.blobs()
	if err != nil {
		return nil, err
	}
	var s stateSource
	if savepoint != "" {
		s, err = newSavedState(c, blobs, savepoint)
	} else {
		s, err = newCheckpointState(c, blobs, point, flag("incarnation"))
	}
	if err != nil {
		return nil, errors.Join(err, blobs.Close())
	}
	return s, nil
}

// text is a flag that was given.
func (c *appCall) text(name string) *string {
	f := c.flags.Lookup(name)
	if f == nil || !f.Changed {
		return nil
	}
	v := f.Value.String()
	return &v
}

// selection reads the flags that narrow what is asked for.
func (c *appCall) selection() (q stateQuery, err error) {
	q = stateQuery{key: c.text("key"), mapKey: c.text("map-key"), from: c.text("from"), to: c.text("to")}
	if f := c.flags.Lookup("limit"); f != nil {
		if q.limit, err = strconv.Atoi(f.Value.String()); err != nil || q.limit < 0 {
			return q, usageError{fmt.Errorf("--limit=%s: wanted is a number of entries, 0 = all", f.Value)}
		}
	}
	if s := c.text("subtask"); s != nil {
		if _, err := record.ParseSubtaskID(*s); err != nil {
			return q, usageError{fmt.Errorf("--subtask: %w", err)}
		}
		q.subtask = *s
	}
	if w := c.text("window"); w != nil {
		ms, err := strconv.ParseInt(*w, 10, 64)
		if err != nil {
			t, err := time.Parse(time.RFC3339Nano, *w)
			if err != nil {
				return q, usageError{fmt.Errorf("--window=%s: wanted are milliseconds since 1970, or a time such as 2026-01-31T12:00:00Z", *w)}
			}
			ms = t.UnixMilli()
		}
		q.window = &ms
	}
	return q, nil
}

func listState(c *appCall) error {
	s, err := c.source()
	if err != nil {
		return err
	}
	stores, err := s.stores()
	enc := json.NewEncoder(c.out)
	enc.SetEscapeHTML(false)
	for _, st := range stores {
		if err == nil {
			err = enc.Encode(st)
		}
	}
	return errors.Join(err, s.close())
}

func getState(c *appCall) error {
	if len(c.args) != 2 {
		return usageError{fmt.Errorf("%d arguments, wanted are two: a store and a key; %s --help shows the usage", len(c.args), c.cmd.CommandPath())}
	}
	q, err := c.selection()
	if err != nil {
		return err
	}
	q.store, q.key, q.get = c.args[0], &c.args[1], true
	sum, err := c.printState(q, c.out)
	if err == nil && sum.Entries == 0 {
		err = fmt.Errorf("store %s has no entry of key %s (%s)", q.store, *q.key, sum.epochs())
	}
	return err
}

func scanState(c *appCall) error {
	store, err := c.oneArg("a store")
	if err != nil {
		return err
	}
	q, err := c.selection()
	if err != nil {
		return err
	}
	q.store = store
	sum, err := c.printState(q, c.out)
	return errors.Join(err, c.tell(sum))
}

func exportState(c *appCall) (err error) {
	if len(c.args) > 1 {
		_, err := c.oneArg("a file")
		return err
	}
	q, err := c.selection()
	if err != nil {
		return err
	}
	w := c.out
	if len(c.args) == 1 && c.args[0] != "-" {
		// State may be private: the file is for its owner.
		f, err := os.OpenFile(c.args[0], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return fmt.Errorf("make the file: %w", err)
		}
		var z *gzip.Writer
		w = f
		if strings.HasSuffix(c.args[0], ".gz") {
			z = gzip.NewWriter(f)
			w = z
		}
		sum, err := c.printState(q, w)
		if z != nil {
			err = errors.Join(err, z.Close())
		}
		return errors.Join(err, f.Close(), c.tell(sum))
	}
	sum, err := c.printState(q, w)
	return errors.Join(err, c.tell(sum))
}

// printState writes one entry a line.
func (c *appCall) printState(q stateQuery, to io.Writer) (sum stateSummary, err error) {
	s, err := c.source()
	if err != nil {
		return sum, err
	}
	w := bufio.NewWriterSize(to, 64<<10)
	sum, err = s.read(q, func(line []byte) error {
		_, err := w.Write(append(line, '\n'))
		return err
	})
	return sum, errors.Join(err, w.Flush(), s.close())
}

// epochs says which epochs were read.
func (s stateSummary) epochs() string {
	if len(s.Epochs) == 0 {
		return "nothing was read"
	}
	ids := slices.SortedFunc(maps.Keys(s.Epochs), compareSubtasks)
	var parts []string
	for _, id := range ids {
		parts = append(parts, fmt.Sprintf("%s at epoch %d", id, s.Epochs[id]))
	}
	return strings.Join(parts, ", ")
}

func compareSubtasks(a, b string) int {
	x, err1 := record.ParseSubtaskID(a)
	y, err2 := record.ParseSubtaskID(b)
	if err1 != nil || err2 != nil {
		return strings.Compare(a, b)
	}
	return x.Compare(y)
}

// tell writes what was read to standard error, and fails if something could not be.
func (c *appCall) tell(s stateSummary) error {
	if s.Epochs == nil {
		return nil // it failed, and says so itself
	}
	entries := fmt.Sprintf("%d entries", s.Entries)
	if s.Entries == 1 {
		entries = "1 entry"
	}
	more := ""
	if s.CutOff {
		more = "; there may be more, see --limit"
	}
	fmt.Fprintf(c.cmd.ErrOrStderr(), "%s of %s%s\n", entries, s.epochs(), more)
	if len(s.Failed) == 0 {
		return nil
	}
	var errs []string
	for _, id := range slices.SortedFunc(maps.Keys(s.Failed), compareSubtasks) {
		errs = append(errs, fmt.Sprintf("subtask %s: %s", id, s.Failed[id]))
	}
	return fmt.Errorf("not all was read: %s", strings.Join(errs, "; "))
}

// liveState asks a running app.
type liveState struct {
	ctx   context.Context
	base  string
	token string
	http  *http.Client
}

func newLiveState(c *appCall, base string) (*liveState, error) {
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.Path != "" && u.Path != "/" {
		return nil, usageError{fmt.Errorf("--live=%s: wanted is an address such as http://localhost:9644", base)}
	}
	token := c.config.Admin.Token.Reveal()
	if token == "" {
		return nil, usageError{errors.New("admin.token is not set: state is shown only to who has the app's token")}
	}
	return &liveState{c.ctx, u.Scheme + "://" + u.Host + "/api/v1/state", token, &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}}}, nil
}

func (s *liveState) close() error { return nil }

// get asks for a path below base. The error is that of the answer, unless its code is one of ok.
func (s *liveState) get(path string, ok ...int) (*http.Response, error) {
	req, err := http.NewRequestWithContext(s.ctx, http.MethodGet, s.base+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	resp, err := s.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the app: %w", err)
	}
	if slices.Contains(ok, resp.StatusCode) {
		return resp, nil
	}
	defer resp.Body.Close()
	var body struct {
		Error string `json:"error"`
	}
	if json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&body) != nil || body.Error == "" {
		body.Error = "GET " + req.URL.Path
	}
	if retry := resp.Header.Get("Retry-After"); retry != "" {
		body.Error += fmt.Sprintf("; ask again in %s s", retry)
	}
	return nil, fmt.Errorf("the app says %s: %s", resp.Status, body.Error)
}

func (s *liveState) stores() ([]engine.StoreStatus, error) {
	resp, err := s.get("", http.StatusOK)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var list struct {
		Stores []engine.StoreStatus `json:"stores"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	return list.Stores, nil
}

func (s *liveState) read(q stateQuery, emit func(line []byte) error) (stateSummary, error) {
	v := url.Values{}
	for name, p := range map[string]*string{"key": q.key, "map_key": q.mapKey, "from": q.from, "to": q.to} {
		if p != nil {
			v.Set(name, *p)
		}
	}
	if q.window != nil {
		v.Set("window", strconv.FormatInt(*q.window, 10))
	}
	path := "/export"
	if q.store != "" {
		operator, state, ok := strings.Cut(q.store, "/")
		if !ok || operator == "" || state == "" {
			return stateSummary{}, usageError{fmt.Errorf("store %q: wanted is <operator>/<state>; millrace state list shows all", q.store)}
		}
		path = "/" + url.PathEscape(operator) + "/" + url.PathEscape(state)
	}
	if q.get {
		return s.readKey(path+"?"+v.Encode(), emit)
	}
	if q.store != "" {
		path += "/scan"
	}
	v.Set("limit", strconv.Itoa(q.limit))
	if q.subtask != "" {
		v.Set("subtask", q.subtask)
	}
	resp, err := s.get(path+"?"+v.Encode(), http.StatusOK)
	if err != nil {
		return stateSummary{}, err
	}
	defer resp.Body.Close()
	r := bufio.NewReaderSize(resp.Body, 64<<10)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return stateSummary{}, fmt.Errorf("the answer ends in its midst: %w", err)
		}
		line = line[:len(line)-1]
		if !bytes.HasPrefix(line, []byte(`{"end":`)) {
			if err := emit(line); err != nil {
				return stateSummary{}, err
			}
			continue
		}
		var last struct {
			End stateSummary `json:"end"`
		}
		if err := json.Unmarshal(line, &last); err != nil {
			return stateSummary{}, fmt.Errorf("read the end of the answer: %w", err)
		}
		return last.End, nil
	}
}

func (s *liveState) readKey(path string, emit func(line []byte) error) (stateSummary, error) {
	resp, err := s.get(path, http.StatusOK, http.StatusNotFound)
	if err != nil {
		return stateSummary{}, err
	}
	defer resp.Body.Close()
	var a struct {
		Subtask string            `json:"subtask"`
		Epoch   uint64            `json:"epoch"`
		CutOff  bool              `json:"cut_off"`
		Entries []json.RawMessage `json:"entries"`
		Error   string            `json:"error"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		return stateSummary{}, fmt.Errorf("read the answer: %w", err)
	}
	if a.Error != "" {
		return stateSummary{}, fmt.Errorf("the app says: %s", a.Error)
	}
	for _, e := range a.Entries {
		if err := emit(e); err != nil {
			return stateSummary{}, err
		}
	}
	return stateSummary{Entries: len(a.Entries), CutOff: a.CutOff, Epochs: map[string]uint64{a.Subtask: a.Epoch}}, nil
}

// storedState is a savepoint or a set of checkpoints.
type storedState struct {
	blobs    blob.Store
	whole    bool // all subtasks are here
	subtasks []storedSubtask
	// feed gives the entries of ranges, ascending, and maybe others. It ends with the error of each.
	feed func(m *checkpoint.Manifest, ranges []statestore.Range, each func(key, val []byte) error) error
	end  func() error
}

type storedSubtask struct {
	id       record.SubtaskID
	manifest *checkpoint.Manifest
}

func (s *storedState) close() error { return errors.Join(s.end(), s.blobs.Close()) }

// add takes the state of a subtask in.
func (s *storedState) add(m *checkpoint.Manifest) error {
	id, err := record.ParseSubtaskID(m.Subtask)
	if err != nil {
		return err
	}
	s.subtasks = append(s.subtasks, storedSubtask{id, m})
	slices.SortFunc(s.subtasks, func(a, b storedSubtask) int { return a.id.Compare(b.id) })
	return nil
}

// parallelism is the number of subtasks that a sub-topology has here.
func (s *storedState) parallelism(sub int) int {
	n := 0
	for _, st := range s.subtasks {
		if st.id.SubTopology == sub {
			n++
		}
	}
	return n
}

func specsOf(m *checkpoint.Manifest) []statestore.Spec {
	var specs []statestore.Spec
	for _, st := range m.Stores {
		specs = append(specs, statestore.Spec{Name: st.Name, ID: statestore.ID(st.ID), Kind: statestore.Kind(st.Kind), KeyType: st.KeyType, ValType: st.ValueType, Expiring: st.Expiring})
	}
	return specs
}

func (s *storedState) stores() ([]engine.StoreStatus, error) {
	found := map[string]engine.StoreStatus{}
	for _, st := range s.subtasks {
		for _, spec := range specsOf(st.manifest) {
			operator, state, _ := strings.Cut(spec.Name, "/")
			found[spec.Name] = engine.StoreStatus{Store: spec.Name, Operator: operator, State: state, Kind: spec.Kind.String(), KeyType: spec.KeyType, ValueType: spec.ValType,
				Expiring: spec.Expiring, SubTopology: st.id.SubTopology, Subtasks: s.parallelism(st.id.SubTopology)}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b engine.StoreStatus) int { return strings.Compare(a.Store, b.Store) }), nil
}

func (s *storedState) read(q stateQuery, emit func(line []byte) error) (stateSummary, error) {
	sum := stateSummary{Epochs: map[string]uint64{}}
	var of []storedSubtask
	known := false
	for _, st := range s.subtasks {
		i := slices.IndexFunc(st.manifest.Stores, func(x checkpoint.Store) bool { return x.Name == q.store })
		if i >= 0 && q.get && statestore.Kind(st.manifest.Stores[i].Kind) == statestore.KindTimers {
			return sum, usageError{fmt.Errorf("store %s: %w: millrace state scan --key=%s %s", q.store, statestore.ErrNotByKey, *q.key, q.store)}
		}
		known = known || i >= 0 || q.store == ""
		if (i >= 0 || q.store == "" && len(st.manifest.Stores) > 0) && (q.subtask == "" || q.subtask == st.manifest.Subtask) {
			of = append(of, st)
		}
	}
	if !known {
		return sum, fmt.Errorf("%w: %q; millrace state list shows all", engine.ErrNoStore, q.store)
	}
	if q.get {
		// Most programs write the keys of Kafka records in the usual way: then it is known where the key is. If there is
		// nothing, it may be somewhere else.
		if likely, ok := s.likely(of, q); ok {
			if i := slices.IndexFunc(of, func(st storedSubtask) bool { return st.id == likely }); i > 0 {
				of[0], of[i] = of[i], of[0]
			}
		}
	}
	for _, st := range of {
		if q.get && sum.Entries > 0 {
			break
		}
		o := engine.StateScan{Subtask: st.id, Store: q.store, Key: q.key, MapKey: q.mapKey, From: q.from, To: q.to, Window: q.window}
		if q.limit > 0 {
			if sum.Entries == q.limit {
				sum.CutOff = true
				break
			}
			o.Limit = q.limit - sum.Entries
		}
		subtasks := 1 // any key group may be here
		if s.whole {
			subtasks = s.parallelism(st.id.SubTopology)
		}
		r, err := engine.NewStateReader(specsOf(st.manifest), o, subtasks)
		if err != nil {
			return stateSummary{}, usageError{err}
		}
		err = s.feed(st.manifest, r.Ranges(), func(key, val []byte) error { return r.Feed(key, val, emit) })
		sum.Entries += r.Entries()
		if errors.Is(err, engine.ErrEnough) {
			sum.CutOff, err = true, nil
		}
		if err != nil {
			return stateSummary{}, err
		}
		sum.Epochs[st.manifest.Subtask] = st.manifest.Epoch
	}
	return sum, nil
}

// likely is the subtask that has a key if the program writes the keys of Kafka records as format.DefaultKey does.
func (s *storedState) likely(of []storedSubtask, q stateQuery) (record.SubtaskID, bool) {
	for _, st := range of {
		for _, spec := range specsOf(st.manifest) {
			if spec.Name != q.store {
				continue
			}
			keyType, _, _ := strings.Cut(spec.KeyType, " / ")
			var key []byte
			n, err := strconv.ParseInt(*q.key, 10, 64)
			switch {
			case keyType == "string":
				key = []byte(*q.key)
			case keyType == "int64" && err == nil:
				key = binary.BigEndian.AppendUint64(nil, uint64(n))
			case keyType == "int32" && err == nil:
				key = binary.BigEndian.AppendUint32(nil, uint32(n))
			default:
				return record.SubtaskID{}, false
			}
			group := format.Partition(key, statestore.Groups)
			return record.SubtaskID{SubTopology: st.id.SubTopology, Index: int(group) % s.parallelism(st.id.SubTopology)}, true
		}
	}
	return record.SubtaskID{}, false
}

func newSavedState(c *appCall, blobs blob.Store, name string) (*storedState, error) {
	if err := checkpoint.CheckName(name); err != nil {
		return nil, usageError{err}
	}
	saved := checkpoint.NewSavepoints(blobs, c.app, nil, nil)
	sp, err := saved.Show(c.ctx, name)
	if err != nil {
		return nil, err
	}
	if sp.Status != checkpoint.StatusCompleted {
		return nil, fmt.Errorf("savepoint %s of app %s is %s: only a completed one can be read", name, c.app, sp.Status)
	}
	s := &storedState{blobs: blobs, whole: true, end: func() error { return nil }}
	for _, m := range sp.Subtasks {
		if err := s.add(m); err != nil {
			return nil, err
		}
	}
	s.feed = func(m *checkpoint.Manifest, ranges []statestore.Range, each func(key, val []byte) error) error {
		return saved.LoadRanges(c.ctx, sp, m.Subtask, ranges, each)
	}
	return s, nil
}

func newCheckpointState(c *appCall, blobs blob.Store, which, incarnation string) (*storedState, error) {
	epoch := uint64(0)
	if which != "latest" {
		var err error
		if epoch, err = strconv.ParseUint(which, 10, 64); err != nil {
			return nil, usageError{fmt.Errorf("--checkpoint=%s: wanted is latest, or an epoch", which)}
		}
		if c.text("subtask") == nil {
			return nil, usageError{errors.New("--checkpoint with an epoch needs --subtask: each subtask counts its own epochs")}
		}
	}
	all, err := checkpoint.List(c.ctx, blobs, c.app)
	if err != nil {
		return nil, err
	}
	inc, err := strconv.ParseUint(incarnation, 10, 64)
	if err != nil {
		return nil, usageError{fmt.Errorf("--incarnation=%s: wanted is a number", incarnation)}
	}
	for _, e := range all {
		if incarnation == "0" {
			inc = max(inc, e.Incarnation)
		}
	}
	s := &storedState{blobs: blobs}
	var subtasks []string
	for _, e := range all {
		if e.Incarnation == inc && (len(subtasks) == 0 || subtasks[len(subtasks)-1] != e.Subtask) {
			subtasks = append(subtasks, e.Subtask)
		}
	}
	if only := c.text("subtask"); only != nil {
		subtasks = slices.DeleteFunc(subtasks, func(id string) bool { return id != *only })
	}
	for _, id := range subtasks {
		found, err := checkpoint.Find(c.ctx, blobs, statestore.Identity{App: c.app, Incarnation: inc, Subtask: id})
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(found, func(f checkpoint.Found) bool { return f.Err == nil && (epoch == 0 || f.Epoch == epoch) })
		if i < 0 {
			return nil, fmt.Errorf("subtask %s of app %s, incarnation %d: there is no such checkpoint that can be read", id, c.app, inc)
		}
		if err := s.add(found[i].Manifest); err != nil {
			return nil, err
		}
	}
	if len(s.subtasks) == 0 {
		return nil, fmt.Errorf("there are no checkpoints of app %s in %s", c.app, blobs)
	}
	return s, s.downloadTo(c)
}

// downloadTo makes feed read checkpoints, each of which is copied to a folder of its own for the time.
func (s *storedState) downloadTo(c *appCall) error {
	tmp, err := os.MkdirTemp("", "millrace-state-")
	if err != nil {
		return fmt.Errorf("make a folder for the files of checkpoints: %w", err)
	}
	s.end = func() error { return os.RemoveAll(tmp) }
	s.feed = func(m *checkpoint.Manifest, ranges []statestore.Range, each func(key, val []byte) error) (err error) {
		var dir statestore.Dir = memstore.NewDir(c.app)
		if !dir.Reads(m.StoreFormat) {
			if dir, err = pebblestore.OpenDir(tmp, c.app, pebblestore.Options{}); err != nil {
				return err
			}
		}
		defer func() { err = errors.Join(err, dir.Close()) }()
		if err := checkpoint.Restore(c.ctx, s.blobs, m, dir, checkpoint.RestoreOptions{}); err != nil {
			return err
		}
		store, err := dir.Open(m.Identity())
		if err != nil {
			return err
		}
		// What was read is not needed any more: one subtask at a time is on the disk.
		defer func() { err = errors.Join(err, store.Close(), dir.Wipe(m.Identity())) }()
		for _, r := range ranges {
			if err := scanRange(c.ctx, store, r, each); err != nil {
				return err
			}
		}
		return nil
	}
	return nil
}

func scanRange(ctx context.Context, store statestore.Store, r statestore.Range, each func(key, val []byte) error) (err error) {
	it, err := store.Scan(r.Lo, r.Hi)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for it.Next() {
		if err := each(it.Key(), it.Value()); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return it.Err()
}
