package engine_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/checkpoint"
	"github.com/millrace-stream/millrace/checkpoint/blob"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/processor/window"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
	"github.com/millrace-stream/millrace/statestore/pebblestore"
	"github.com/millrace-stream/millrace/txn"
)

// fixtureVersion is the folder of testdata that holds what this version writes. Whoever changes a format - of the local store,
// checkpoints, savepoints, changelogs, keys and values in state, epoch records - raises it and runs
//
//	go test ./internal/engine -run TestFixtures -update
//
// which writes the folder if it is not there. Folders are never changed: they are what other versions have left behind.
const fixtureVersion = 1

var update = flag.Bool("update", false, "write the fixtures of this version, if there are none")

const (
	fixtureApp     = "fixture"
	fixtureSubtask = "1_0"
	fixtureRecords = 120
	fixtureWords   = 7
	fixtureTime    = int64(1_700_000_000_000)
)

// fixture describes a folder; beside it are state/, a state directory, and blobs/, the object storage with checkpoints and a
// savepoint.
type fixture struct {
	Identity  statestore.Identity `json:"identity"`
	Changelog []fixtureRecord     `json:"changelog"` // of all changelogs of the subtask, in the order of offsets
	Entries   []fixtureRecord     `json:"entries"`   // of the store, all
}

type fixtureRecord struct {
	Changelog int    `json:"changelog,omitempty"` // index in Identity.Changelogs
	Offset    int64  `json:"offset,omitempty"`
	Key       []byte `json:"key"`
	Value     []byte `json:"value"` // null: a delete
}

type fixtureTotal struct {
	Count int64
	Last  string
}

// fixtureTopology has a store of each kind.
func fixtureTopology(t *processor.Topology) {
	words := processor.From(t, processor.Topic[word]{Name: "in", EventTime: func(w word) time.Time { return time.UnixMilli(fixtureTime + w.N*1000) }})
	byText := processor.KeyBy(words, "by-text", func(w word) string { return w.Text })
	counted := processor.Process(byText, "each", func(ctx *processor.KeyedContext[string, word, word]) {
		total, seen, list := processor.Value[fixtureTotal](ctx, "total"), processor.MapOf[int64, bool](ctx, "seen"), processor.List[int64](ctx, "list")
		ctx.OnRecord(func(w word) error {
			a := total.Get()
			total.Set(fixtureTotal{a.Count + 1, fmt.Sprintf("%s %d", w.Text, w.N)})
			seen.Put(w.N%3, true)
			if w.N%10 == 0 {
				list.Add(w.N)
			}
			ctx.RegisterEventTimer(time.UnixMilli(fixtureTime + 24*time.Hour.Milliseconds()))
			ctx.Emit(word{w.Text, a.Count + 1})
			return nil
		})
		ctx.OnTimer(func(processor.Timer) error { return nil })
	})
	processor.ToTopic(counted, "out")
	hours := processor.Aggregate(byText.Window(window.Tumbling(time.Hour)), "hours", processor.Count[word](),
		func(w processor.Window[string], n int64) word { return word{w.Key, n} })
	processor.ToTopic(hours, "hours")
}

// TestFixtures opens and restores what each version has written: the local store, a checkpoint, a savepoint and the changelog all
// hold the same entries, and typed stores read them.
func TestFixtures(t *testing.T) {
	current := filepath.Join("testdata", fmt.Sprintf("v%d", fixtureVersion))
	if _, err := os.Stat(current); *update && errors.Is(err, fs.ErrNotExist) {
		makeFixture(t, current)
	}
	versions, err := filepath.Glob("testdata/v*")
	if err != nil || len(versions) != fixtureVersion {
		t.Fatalf("fixtures %v, %v; want those of %d versions", versions, err, fixtureVersion)
	}
	for _, folder := range versions {
		t.Run(filepath.Base(folder), func(t *testing.T) { testFixture(t, folder) })
	}
}

func testFixture(t *testing.T, folder string) {
	data, err := os.ReadFile(filepath.Join(folder, "fixture.json"))
	must(t, err)
	var f fixture
	must(t, json.Unmarshal(data, &f))
	want := map[string][]byte{}
	for _, e := range f.Entries {
		want[string(e.Key)] = e.Value
	}
	if len(want) < 5*fixtureWords {
		t.Fatalf("the fixture has %d entries", len(want))
	}
	check := func(t *testing.T, s statestore.Store) {
		t.Helper()
		got := entries(t, s)
		if !maps.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("it holds %d entries that are not those of the fixture, %d", len(got), len(want))
		}
		meta, ok := s.Meta()
		if !ok {
			t.Fatal("it has no meta")
		}
		rec, err := txn.DecodeEpochRecord(meta.EpochRecord)
		must(t, err)
		read := int64(0)
		for _, in := range rec.Inputs {
			read += in.Offset
		}
		if rec.Epoch != meta.Epoch || rec.Epoch == 0 || read < fixtureRecords || len(meta.Positions) != len(f.Identity.Changelogs) {
			t.Errorf("meta %+v, epoch record %+v", meta, rec)
		}
		checkFixtureTotals(t, s)
	}
	// Opening brings older formats up to date, so that it works on a copy.
	copied := t.TempDir()
	must(t, os.CopyFS(copied, os.DirFS(folder)))
	blobs, err := blob.Open(t.Context(), "file://"+filepath.Join(copied, "blobs"), blob.Options{})
	must(t, err)
	defer blobs.Close()
	open := func(t *testing.T, path string) *pebblestore.Dir {
		t.Helper()
		dir, err := pebblestore.OpenDir(path, fixtureApp, pebblestore.Options{CacheBytes: 1 << 20})
		must(t, err)
		t.Cleanup(func() { must(t, dir.Close()) })
		return dir
	}
	opened := func(t *testing.T, dir statestore.Dir) {
		t.Helper()
		s, err := dir.Open(f.Identity)
		must(t, err)
		defer func() { must(t, s.Close()) }()
		check(t, s)
	}
	t.Run("local store", func(t *testing.T) { opened(t, open(t, filepath.Join(copied, "state"))) })
	t.Run("checkpoint", func(t *testing.T) {
		found, err := checkpoint.Find(t.Context(), blobs, f.Identity)
		must(t, err)
		if len(found) == 0 || found[0].Err != nil {
			t.Fatalf("found %+v", found)
		}
		dir := open(t, t.TempDir())
		must(t, checkpoint.Restore(t.Context(), blobs, found[0].Manifest, dir, checkpoint.RestoreOptions{}))
		opened(t, dir)
	})
	t.Run("savepoint", func(t *testing.T) {
		sps := checkpoint.NewSavepoints(blobs, fixtureApp, nil, nil)
		sp, err := sps.Verify(t.Context(), "before-upgrade", nil)
		must(t, err)
		m := sp.Subtask(fixtureSubtask)
		for _, dir := range []statestore.Dir{open(t, t.TempDir()), memstore.NewDir(fixtureApp)} {
			store, err := dir.Open(f.Identity)
			must(t, err)
			batch := store.NewBatch()
			must(t, sps.Load(t.Context(), sp, fixtureSubtask, nil, func(key, value []byte) error {
				batch.Set(key, value)
				return nil
			}))
			must(t, errors.Join(batch.Commit(m.Meta()), store.Flush(), store.Close()))
			opened(t, dir)
		}
	})
	t.Run("changelog", func(t *testing.T) {
		fold := map[string][]byte{}
		var last *txn.EpochRecord
		for _, r := range f.Changelog {
			switch {
			case bytes.Equal(r.Key, statestore.MetaKey()):
				rec, err := txn.DecodeEpochRecord(r.Value)
				must(t, err)
				if last == nil || rec.Epoch >= last.Epoch {
					last = rec
				}
			case r.Value == nil:
				delete(fold, string(r.Key))
			default:
				fold[string(r.Key)] = r.Value
			}
		}
		for _, h := range last.Horizons {
			lo, hi := statestore.WindowRange(h.Store, h.End)
			maps.DeleteFunc(fold, func(k string, _ []byte) bool { return k >= string(lo) && k < string(hi) })
		}
		if !maps.EqualFunc(fold, want, bytes.Equal) {
			t.Errorf("its fold has %d entries that are not those of the fixture, %d", len(fold), len(want))
		}
	})
}

func entries(t *testing.T, s statestore.Store) map[string][]byte {
	t.Helper()
	got := map[string][]byte{}
	it, err := s.Scan(nil, nil)
	must(t, err)
	for it.Next() {
		got[string(it.Key())] = bytes.Clone(it.Value())
	}
	must(t, errors.Join(it.Err(), it.Close()))
	return got
}

// checkFixtureTotals reads one store through its types.
func checkFixtureTotals(t *testing.T, s statestore.Store) {
	t.Helper()
	keys, err := statestore.KeyCodecOf[string]()
	must(t, err)
	values, err := statestore.CodecOf[fixtureTotal]()
	must(t, err)
	spec := statestore.Spec{Name: "each/total", Kind: statestore.KindTable, KeyType: keys.Schema(), ValType: values.Schema()}
	spec.ID = statestore.StoreID(spec.Name)
	table, err := statestore.NewTable(statestore.NewState(s, statestore.StateOptions{CacheBytes: 1 << 20}), spec, keys, values)
	must(t, err)
	want, got := map[string]int64{}, map[string]int64{}
	for i := range fixtureRecords {
		want[fmt.Sprintf("word-%d", i%fixtureWords)]++
	}
	table.All(func(_ statestore.Group, text string, v *fixtureTotal) bool {
		if !strings.HasPrefix(v.Last, text+" ") {
			t.Errorf("the last of %s is %q", text, v.Last)
		}
		got[text] = v.Count
		return true
	})
	if !maps.Equal(got, want) {
		t.Errorf("totals %v, want %v", got, want)
	}
}

func makeFixture(t *testing.T, folder string) {
	c := newCluster(t)
	_, err := kadm.NewClient(c.cl).CreateTopic(t.Context(), nparts, 1, nil, "hours")
	must(t, err)
	path, err := filepath.Abs(filepath.Join(folder, "blobs"))
	must(t, err)
	blobs, err := blob.Open(t.Context(), "file://"+path, blob.Options{})
	must(t, err)
	defer blobs.Close()
	dir, err := pebblestore.OpenDir(filepath.Join(folder, "state"), fixtureApp, pebblestore.Options{CacheBytes: 1 << 20})
	must(t, err)
	defer dir.Close()
	m := c.start(fixtureApp, fixtureTopology, dir, func(o *engine.Options) {
		o.Parallelism = 1
		o.WriteBehindInterval = 20 * time.Millisecond
		o.Checkpoints = engine.Checkpoints{Blobs: blobs, Interval: 100 * time.Millisecond, MinPause: time.Millisecond, Retain: 1}
	})
	c.send(fixtureRecords, fixtureWords)
	c.drained(fixtureApp, "in", "fixture-by-text-repartition")
	testutil.Eventually(t, patience, func() error {
		for _, s := range m.w.Status().Subtasks {
			if s.ID == fixtureSubtask && s.Checkpoint != nil && s.Checkpoint.Epoch == s.Epoch {
				return nil
			}
		}
		return errors.New("no checkpoint of the last epoch")
	})
	m.stop(t)
	all, err := checkpoint.List(t.Context(), blobs, fixtureApp)
	must(t, err)
	data, err := blobs.Get(t.Context(), all[len(all)-1].Key)
	must(t, err)
	man, err := checkpoint.DecodeManifest(data)
	must(t, err)
	f := fixture{Identity: man.Identity()}
	s, err := dir.Open(f.Identity)
	must(t, err)
	got := entries(t, s)
	for _, k := range slices.Sorted(maps.Keys(got)) {
		f.Entries = append(f.Entries, fixtureRecord{Key: []byte(k), Value: got[k]})
	}
	snap, err := s.(statestore.Checkpointer).Checkpoint()
	must(t, err)
	sps := checkpoint.NewSavepoints(blobs, fixtureApp, nil, nil)
	sp, err := sps.Begin(t.Context(), checkpoint.Savepoint{Name: "before-upgrade", ClusterID: f.Identity.ClusterID, Incarnation: f.Identity.Incarnation,
		Expected: []string{fixtureSubtask}, Deadline: 1 << 60, Owner: "fixture"})
	must(t, err)
	_, err = sps.Write(t.Context(), sp, snap, checkpoint.WriteOptions{WallTime: func(raw []byte) (int64, error) {
		rec, err := txn.DecodeEpochRecord(raw)
		if err != nil {
			return 0, err
		}
		return rec.WallTime, nil
	}})
	must(t, err)
	_, err = sps.Complete(t.Context(), sp)
	must(t, err)
	must(t, errors.Join(snap.Close(), s.Close()))
	for i, topic := range []string{"fixture-1-changelog", "fixture-1-changelog-expiring"} {
		rs := c.read(topic)
		slices.SortFunc(rs, func(a, b *kgo.Record) int { return int(a.Offset - b.Offset) })
		for _, r := range rs {
			f.Changelog = append(f.Changelog, fixtureRecord{i, r.Offset, r.Key, r.Value})
		}
	}
	data, err = json.MarshalIndent(f, "", " ")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(folder, "fixture.json"), append(data, '\n'), 0o644))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
