package cli

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/api"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/pebblestore"
)

// shopState is the state of app shop, in two subtasks: stores of all kinds.
type shopState struct {
	t      *testing.T
	stores []statestore.Store // by subtask
	specs  []statestore.Spec
}

type order struct {
	Sum   float64
	Items []string
}

func ok[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// fillShop writes it to stores on disk.
func fillShop(t *testing.T) *shopState {
	dir := ok[*pebblestore.Dir](t)(pebblestore.OpenDir(t.TempDir(), "shop", pebblestore.Options{}))
	t.Cleanup(func() { _ = dir.Close() })
	s := &shopState{t: t}
	text := ok[statestore.KeyCodec[string]](t)(statestore.KeyCodecOf[string]())
	number := ok[statestore.KeyCodec[int64]](t)(statestore.KeyCodecOf[int64]())
	orders := ok[statestore.Codec[order]](t)(statestore.CodecOf[order]())
	counts := ok[statestore.Codec[int64]](t)(statestore.CodecOf[int64]())
	mk := func(name string, kind statestore.Kind, key, val string) statestore.Spec {
		return statestore.Spec{Name: name, ID: statestore.StoreID(name), Kind: kind, KeyType: key, ValType: val}
	}
	for k := range 2 {
		id := statestore.Identity{App: "shop", ClusterID: "c", Incarnation: 1, Subtask: fmt.Sprint("0_", k), Changelogs: []string{"x"}}
		store := ok[statestore.Store](t)(dir.Open(id))
		t.Cleanup(func() { _ = store.Close() })
		st := statestore.NewState(store, statestore.StateOptions{})
		last := ok[*statestore.Table[string, order]](t)(statestore.NewTable(st, mk("orders/last", statestore.KindTable, "string", orders.Schema()), text, orders))
		hours := ok[*statestore.Windows[string, int64]](t)(statestore.NewWindows(st, mk("hours/windows", statestore.KindWindows, "string", "int64"), text, counts))
		byID := ok[*statestore.Map[int64, string, int64]](t)(statestore.NewMap(st, mk("basket/items", statestore.KindMap, "int64 / string", "int64"), number, text, counts))
		notes := ok[*statestore.List[string, int64]](t)(statestore.NewList(st, mk("orders/notes", statestore.KindList, "string", "int64"), text, counts))
		timers := ok[*statestore.Timers[string]](t)(statestore.NewTimers(st, mk("orders/timers.event", statestore.KindTimers, "string", ""), text))
		for i, key := range []string{"ann", "bob", "cat", "dan", "eve", "f\xff"} {
			g := statestore.Group(format.Partition([]byte(key), statestore.Groups))
			if key == "dan" { // written by a serde of the program's own
				g++
			}
			if int(g)%2 != k {
				continue
			}
			last.Set(g, key, order{float64(i) + 0.5, []string{"pen", "ink"}[:i%3%2+1]})
			hours.Update(1767225600000, g, key)
			hours.Update(1767229200000, g, key)
			notes.Add(g, key, int64(i))
			notes.Add(g, key, -1)
			timers.Set(1767225600000+int64(i), g, key, 0)
		}
		for n := range int64(3) {
			key := ok[[]byte](t)(format.Int64().Append(nil, &n))
			g := statestore.Group(format.Partition(key, statestore.Groups))
			if int(g)%2 == k {
				byID.Put(g, n, "pen", 10+n)
				byID.Put(g, n, "rug", 20+n)
			}
		}
		st.Seal(uint64(7 + k))
		st.Committed()
		if err := st.WriteBehind(statestore.Meta{Epoch: uint64(7 + k), EpochRecord: []byte("r"), Positions: []int64{5}}); err != nil {
			t.Fatal(err)
		}
		s.stores, s.specs = append(s.stores, store), st.Specs()
	}
	return s
}

// save makes a savepoint and checkpoints.
func (s *shopState) save(blobs blob.Store) {
	t, ctx := s.t, s.t.Context()
	wall := func([]byte) (int64, error) { return 1, nil }
	saved := checkpoint.NewSavepoints(blobs, "shop", nil, nil)
	sp := ok[*checkpoint.Savepoint](t)(saved.Begin(ctx, checkpoint.Savepoint{Name: "sp", ClusterID: "c", Incarnation: 1, Expected: []string{"0_0", "0_1"}, Deadline: time.Now().Add(time.Minute).UnixMilli(), Owner: "test"}))
	for _, store := range s.stores {
		snap := ok[statestore.Snapshot](t)(store.(statestore.Checkpointer).Checkpoint())
		if _, err := saved.Write(ctx, sp, snap, checkpoint.WriteOptions{Specs: s.specs, WallTime: wall}); err != nil {
			t.Fatal(err)
		}
		p := checkpoint.NewPublisher(checkpoint.Options{Blobs: blobs, Identity: snap.Identity(), WallTime: wall})
		if _, err := p.Publish(ctx, snap, s.specs); err != nil {
			t.Fatal(err)
		}
		if err := snap.Close(); err != nil {
			t.Fatal(err)
		}
	}
	ok[*checkpoint.Savepoint](t)(saved.Complete(ctx, sp))
}

// As the worker of a running app that owns all, with the serde of "dan".

func (s *shopState) StateStores() (list []engine.StoreStatus) {
	for _, spec := range s.specs {
		operator, state, _ := strings.Cut(spec.Name, "/")
		list = append(list, engine.StoreStatus{Store: spec.Name, Operator: operator, State: state, Kind: spec.Kind.String(), KeyType: spec.KeyType, ValueType: spec.ValType, Subtasks: 2})
	}
	slices.SortFunc(list, func(a, b engine.StoreStatus) int { return strings.Compare(a.Store, b.Store) })
	return list
}

func (s *shopState) StateSubtasks(store string) ([]record.SubtaskID, error) {
	if store != "" && !slices.ContainsFunc(s.specs, func(spec statestore.Spec) bool { return spec.Name == store }) {
		return nil, fmt.Errorf("%w: %q", engine.ErrNoStore, store)
	}
	return []record.SubtaskID{{}, {Index: 1}}, nil
}

func (s *shopState) StateScan(ctx context.Context, o engine.StateScan, emit func([]byte) error) (a engine.StateAnswer, err error) {
	r, err := engine.NewStateReader(s.specs, o, 1)
	if err != nil {
		return a, err
	}
	a = engine.StateAnswer{Subtask: o.Subtask.String(), Epoch: uint64(7 + o.Subtask.Index)}
	a.Entries, a.CutOff, err = r.Read(ctx, s.stores[o.Subtask.Index].Scan, emit)
	return a, err
}

func (s *shopState) StateGet(ctx context.Context, k engine.StateKey, emit func([]byte) error) (a engine.StateAnswer, err error) {
	if strings.Contains(k.Store, "timers") {
		return a, fmt.Errorf("%w: %w", engine.ErrBadQuery, statestore.ErrNotByKey)
	}
	if _, err := s.StateSubtasks(k.Store); err != nil {
		return a, err
	}
	for i := range 2 {
		a, err = s.StateScan(ctx, engine.StateScan{Subtask: record.SubtaskID{Index: i}, Store: k.Store, Key: &k.Key, MapKey: k.MapKey, Window: k.Window}, emit)
		if err != nil || a.Entries > 0 {
			break
		}
	}
	return a, err
}

// TestStateIsTheSameFromEverywhere reads one state live, from a savepoint and from checkpoints, and compares the answers with
// each other and with golden files.
func TestStateIsTheSameFromEverywhere(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	s := fillShop(t)
	url := "file://" + t.TempDir()
	blobs := ok[blob.Store](t)(blob.Open(t.Context(), url, blob.Options{}))
	defer blobs.Close()
	s.save(blobs)
	srv := httptest.NewServer(api.Handler(api.Options{Status: func() engine.Status { return engine.Status{} }, Metrics: http.NotFoundHandler(), State: s, Token: "secret"}))
	defer srv.Close()
	sources := map[string][]string{
		"live":       {"--live=" + srv.URL, "--admin.token=secret"},
		"savepoint":  {"--savepoint=sp", "--checkpoint.url=" + url},
		"checkpoint": {"--checkpoint=latest", "--checkpoint.url=" + url},
	}
	for _, c := range []struct {
		golden string
		code   int
		args   []string
		stderr string
	}{
		{"state-list", exitOK, []string{"list"}, ""},
		{"state-get", exitOK, []string{"get", "orders/last", "cat"}, ""},
		{"state-get-other-group", exitOK, []string{"get", "orders/last", "dan"}, ""},
		{"state-get-windows", exitOK, []string{"get", "hours/windows", "ann"}, ""},
		{"state-get-window", exitOK, []string{"get", "--window=2026-01-01T01:00:00Z", "hours/windows", "ann"}, ""},
		{"state-get-map", exitOK, []string{"get", "basket/items", "1"}, ""},
		{"state-get-map-key", exitOK, []string{"get", "--map-key=rug", "basket/items", "1"}, ""},
		{"state-get-list", exitOK, []string{"get", "orders/notes", "bob"}, ""},
		{"", exitFailed, []string{"get", "orders/last", "nobody"}, "store orders/last has no entry of key nobody (0_"},
		{"", exitFailed, []string{"get", "orders/first", "ann"}, "the app has no such store"},
		{"", exitUsage, []string{"get", "orders/last"}, "wanted are two: a store and a key"},
		{"state-scan", exitOK, []string{"scan", "orders/last"}, "6 entries of 0_0 at epoch 7, 0_1 at epoch 8\n"},
		{"state-scan-limit", exitOK, []string{"scan", "--limit=2", "orders/last"}, "2 entries of 0_0 at epoch 7; there may be more, see --limit\n"},
		{"state-scan-range", exitOK, []string{"scan", "--from=bob", "--to=dan", "orders/last"}, "2 entries of"},
		{"state-scan-window", exitOK, []string{"scan", "--window=1767225600000", "hours/windows"}, "6 entries of"},
		{"state-scan-timers", exitOK, []string{"scan", "--key=eve", "orders/timers.event"}, "1 entry of"},
		{"state-scan-subtask", exitOK, []string{"scan", "--subtask=0_1", "orders/last"}, "of 0_1 at epoch 8\n"},
		{"state-export", exitOK, []string{"export"}, "42 entries of 0_0 at epoch 7, 0_1 at epoch 8\n"},
		{"", exitUsage, []string{"scan", "--limit=-1", "orders/last"}, "--limit=-1"},
		{"", exitUsage, []string{"scan", "--subtask=x", "orders/last"}, "--subtask"},
		{"", exitUsage, []string{"scan", "--window=soon", "hours/windows"}, "--window=soon"},
	} {
		for name, flags := range sources {
			code, stdout, stderr := millrace(t, nil, slices.Concat([]string{"state"}, c.args, []string{"--app.id=shop"}, flags)...)
			if code != c.code || !strings.Contains(stderr, c.stderr) || c.golden == "" && stdout != "" {
				t.Errorf("%s %v: code %d, %s%s", name, c.args, code, stdout, stderr)
			}
			if c.golden != "" {
				golden(t, c.golden, stdout)
			}
		}
	}
	// Of a store of timers the three know what to do instead.
	for name, flags := range sources {
		if code, _, stderr := millrace(t, nil, append([]string{"state", "get", "orders/timers.event", "ann", "--app.id=shop"}, flags...)...); code == exitOK || !strings.Contains(stderr, "scan") {
			t.Errorf("%s: code %d, %s", name, code, stderr)
		}
	}
	// Of an export to a file nothing else is written, and a file that is there is not replaced.
	for _, name := range []string{"all.jsonl", "all.jsonl.gz"} {
		path := filepath.Join(t.TempDir(), name)
		args := append([]string{"state", "export", path, "--app.id=shop"}, sources["savepoint"]...)
		if code, stdout, stderr := millrace(t, nil, args...); code != exitOK || stdout != "" || !strings.Contains(stderr, "42 entries") {
			t.Fatalf("export: code %d, %s%s", code, stdout, stderr)
		}
		var r io.Reader = bytes.NewReader(ok[[]byte](t)(os.ReadFile(path)))
		if strings.HasSuffix(name, ".gz") {
			r = ok[*gzip.Reader](t)(gzip.NewReader(r))
		}
		golden(t, "state-export", string(ok[[]byte](t)(io.ReadAll(r))))
		if code, _, stderr := millrace(t, nil, args...); code != exitFailed || !strings.Contains(stderr, "exist") {
			t.Errorf("export to the same file: code %d, %s", code, stderr)
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "say what to read"},
		{[]string{"--live=x", "--savepoint=y"}, "say what to read"},
		{[]string{"--live=ftp://x", "--admin.token=a"}, "wanted is an address"},
		{[]string{"--live=localhost:9644"}, "admin.token is not set"},
		{[]string{"--savepoint=sp"}, "checkpoint.url is not set"},
		{[]string{"--checkpoint=new", "--checkpoint.url=" + url}, "wanted is latest, or an epoch"},
		{[]string{"--checkpoint=7", "--checkpoint.url=" + url}, "needs --subtask"},
	} {
		if code, _, stderr := millrace(t, nil, slices.Concat([]string{"state", "scan", "orders/last", "--app.id=shop"}, c.args)...); code != exitUsage || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: code %d, %s", c.args, code, stderr)
		}
	}
	if code, _, stderr := millrace(t, nil, "state", "list", "--app.id=shop", "--live="+srv.URL, "--admin.token=wrong"); code != exitFailed || !strings.Contains(stderr, "401") || !strings.Contains(stderr, "token") {
		t.Errorf("code %d, %s", code, stderr)
	}
	if code, stdout, stderr := millrace(t, nil, "state", "scan", "orders/last", "--app.id=shop", "--checkpoint=7", "--subtask=0_0", "--checkpoint.url="+url); code != exitOK || stdout == "" {
		t.Errorf("code %d, %s%s", code, stdout, stderr)
	}
	if left, err := filepath.Glob(filepath.Join(tmp, "millrace-state-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// TestLiveScanTellsWhatIsMissing: what a member cannot read is an error, after the entries that it could.
func TestLiveScanTellsWhatIsMissing(t *testing.T) {
	s := halfState{fillShop(t)}
	srv := httptest.NewServer(api.Handler(api.Options{Status: func() engine.Status { return engine.Status{} }, Metrics: http.NotFoundHandler(), State: s, Token: "secret"}))
	defer srv.Close()
	args := []string{"--app.id=shop", "--live=" + srv.URL, "--admin.token=secret"}
	code, stdout, stderr := millrace(t, nil, append([]string{"state", "scan", "orders/last"}, args...)...)
	if code != exitFailed || stdout == "" || !strings.Contains(stderr, "not all was read: subtask 0_1: subtask 0_1 is restoring") {
		t.Errorf("code %d, %s%s", code, stdout, stderr)
	}
	if code, _, stderr := millrace(t, nil, append([]string{"state", "get", "orders/last", "ann"}, args...)...); code != exitFailed || !strings.Contains(stderr, "503") || !strings.Contains(stderr, "ask again in 3 s") {
		t.Errorf("code %d, %s", code, stderr)
	}
}

// halfState has one subtask that restores.
type halfState struct{ *shopState }

var errRestoring = &engine.UnavailableError{Reason: "subtask 0_1 is restoring", Retry: 3 * time.Second}

func (s halfState) StateScan(ctx context.Context, o engine.StateScan, emit func([]byte) error) (engine.StateAnswer, error) {
	if o.Subtask.Index == 1 {
		return engine.StateAnswer{}, errRestoring
	}
	return s.shopState.StateScan(ctx, o, emit)
}

func (s halfState) StateGet(context.Context, engine.StateKey, func([]byte) error) (engine.StateAnswer, error) {
	return engine.StateAnswer{}, errors.Join(errRestoring)
}
