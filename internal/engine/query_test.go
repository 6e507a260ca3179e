package engine_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

// entry is what the tests look at of a line.
type entry struct {
	Store   string          `json:"store"`
	Subtask string          `json:"subtask"`
	Key     string          `json:"key"`
	MapKey  string          `json:"map_key"`
	Value   json.RawMessage `json:"value"`
}

// lines collects entries.
func lines(t *testing.T, to *[]entry) func(line []byte) error {
	return func(line []byte) error {
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			t.Errorf("%v in %s", err, line)
		}
		*to = append(*to, e)
		return nil
	}
}

func (m *member) get(t *testing.T, store, key string) ([]entry, engine.StateAnswer, error) {
	t.Helper()
	var found []entry
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	a, err := m.w.StateGet(ctx, engine.StateKey{Store: store, Key: key}, lines(t, &found))
	return found, a, err
}

// pairs keeps two states that are always written together, and a map.
func pairs(t *processor.Topology) {
	words := processor.From(t, processor.Topic[word]{Name: "in"})
	pair(processor.KeyBy(words, "by-text", func(w word) string { return w.Text }))
}

// pairsByKey is pairs by the keys of the records.
func pairsByKey(t *processor.Topology) {
	pair(processor.FromKeyed[string](t, nil, processor.Topic[word]{Name: "in"}))
}

func pair(words processor.KeyedStream[string, word]) {
	processor.ToTopic(processor.Process(words, "pair", func(ctx *processor.KeyedContext[string, word, word]) {
		a, b, m := processor.Value[int64](ctx, "a"), processor.Value[int64](ctx, "b"), processor.MapOf[string, int64](ctx, "m")
		ctx.OnRecord(func(w word) error {
			n := a.Get() + 1
			a.Set(n)
			m.Put(fmt.Sprint("n", n%3), n)
			b.Set(n)
			ctx.Emit(word{w.Text, n})
			return nil
		})
	}), "out")
}

// TestQueriesNeverSeeARunningEpoch asks all the time while records are processed and rarely committed. Whatever is answered
// must be what some epoch left in the changelog, and scans must see all stores of a subtask at one epoch.
func TestQueriesNeverSeeARunningEpoch(t *testing.T) {
	c := newCluster(t)
	m := c.start("ask", pairs, memstore.NewDir("ask"), func(o *engine.Options) {
		o.Parallelism = 1
		o.CommitMaxLatency, o.CommitQuiet = 60*time.Millisecond, 60*time.Millisecond
	})
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				c.send(200, 2)
			}
		}
	})
	type seen struct {
		store string
		epoch uint64
		value int64
	}
	var all []seen
	distinct := map[int64]bool{}
	last := uint64(0)
	scans := 0
	for deadline := time.Now().Add(patience); len(distinct) < 25 || scans < 10; {
		if time.Now().After(deadline) {
			t.Fatalf("only %d different answers and %d scans", len(distinct), scans)
		}
		for _, store := range []string{"pair/a", "pair/b"} {
			found, a, err := m.get(t, store, "word-1")
			var later *engine.UnavailableError
			if errors.As(err, &later) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if a.Epoch < last {
				t.Fatalf("epoch %d after %d", a.Epoch, last)
			}
			last = a.Epoch
			for _, e := range found {
				var n int64
				if err := json.Unmarshal(e.Value, &n); err != nil || e.Store != store || e.Key != "word-1" || e.Subtask != "1_0" {
					t.Fatalf("%+v: %v", e, err)
				}
				all = append(all, seen{store, a.Epoch, n})
				distinct[n] = true
			}
		}
		if len(distinct) < 2*scans {
			continue
		}
		var found []entry
		a, err := m.w.StateScan(t.Context(), engine.StateScan{Subtask: record.SubtaskID{SubTopology: 1}}, lines(t, &found))
		var later *engine.UnavailableError
		if errors.As(err, &later) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if a.Epoch < last || a.CutOff || a.Entries != len(found) {
			t.Fatalf("%+v after epoch %d, %d entries", a, last, len(found))
		}
		last = a.Epoch
		values := map[string]map[string]string{"word-0": {}, "word-1": {}}
		for _, e := range found {
			values[e.Key][e.Store+e.MapKey] = string(e.Value)
		}
		for key, v := range values {
			var n int64
			if len(v) > 0 {
				if err := json.Unmarshal([]byte(v["pair/a"]), &n); err != nil {
					t.Fatal(err)
				}
			}
			if v["pair/a"] != v["pair/b"] || n > 0 && v[fmt.Sprint("pair/mn", n%3)] != v["pair/a"] {
				t.Fatalf("key %s: states of different epochs: %v", key, v)
			}
		}
		if len(found) > 0 {
			scans++
		}
	}
	close(stop)
	wg.Wait()
	m.stop(t)
	// What epochs left: one record per changed key and epoch.
	committed := map[string]map[int64]bool{}
	for _, store := range []string{"pair/a", "pair/b"} {
		committed[store] = map[int64]bool{}
		id := binary.BigEndian.AppendUint32(nil, uint32(statestore.StoreID(store)))
		for _, r := range c.read("ask-1-changelog") {
			if strings.HasPrefix(string(r.Key), string(id)) && strings.Contains(string(r.Key), "word-1") {
				n, _ := binary.Varint(r.Value[1:])
				committed[store][n] = true
			}
		}
	}
	most := int64(0)
	for n := range committed["pair/a"] {
		most = max(most, n)
	}
	if int(most) < 4*len(committed["pair/a"]) {
		t.Fatalf("%d records in %d epochs: too many epochs to prove anything", most, len(committed["pair/a"]))
	}
	for _, s := range all {
		if !committed[s.store][s.value] {
			t.Fatalf("%s was answered as %d at epoch %d, which no epoch left behind", s.store, s.value, s.epoch)
		}
	}
}

// TestQueryOfWhatIsNotCommitted: an epoch that is open for ever shows nothing, and its end shows all.
func TestQueryOfWhatIsNotCommitted(t *testing.T) {
	c := newCluster(t)
	dir := memstore.NewDir("open")
	m := c.start("open", pairsByKey, dir, func(o *engine.Options) {
		o.CommitMaxLatency, o.CommitQuiet = time.Hour, time.Hour
		o.ShutdownTimeout = patience
	})
	c.send(40, 2)
	testutil.Eventually(t, patience, func() error {
		n := int64(0)
		for _, s := range m.w.Status().Subtasks {
			n += s.RecordsIn
		}
		if n < 40 {
			return fmt.Errorf("%d records were read", n)
		}
		return nil
	})
	for _, store := range []string{"pair/a", "pair/m"} {
		for k := range 40 {
			found, _, err := m.get(t, store, fmt.Sprint(k))
			if err != nil || len(found) != 0 {
				t.Fatalf("%s: %v, %v", store, found, err)
			}
		}
	}
	m.stop(t)
	m = c.start("open", pairsByKey, dir, nil)
	testutil.Eventually(t, patience, func() error {
		found, _, err := m.get(t, "pair/a", "7")
		if err != nil || len(found) != 1 || string(found[0].Value) != "1" {
			return fmt.Errorf("%v: %w", found, orWrong(err))
		}
		return nil
	})
	if found, _, err := m.get(t, "pair/m", "7"); err != nil || len(found) != 1 || found[0].MapKey != "n1" {
		t.Fatalf("%v, %v", found, err)
	}
	for what, c := range map[string]struct {
		k    engine.StateKey
		want error
	}{
		"no store":   {engine.StateKey{Store: "pair/c", Key: "x"}, engine.ErrNoStore},
		"no windows": {engine.StateKey{Store: "pair/a", Key: "x", Window: new(int64)}, engine.ErrBadQuery},
		"no map":     {engine.StateKey{Store: "pair/a", Key: "x", MapKey: new(string)}, engine.ErrBadQuery},
	} {
		if _, err := m.w.StateGet(t.Context(), c.k, nil); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	m.stop(t)
	var later *engine.UnavailableError
	if _, _, err := m.get(t, "pair/a", "word-1"); !errors.As(err, &later) {
		t.Errorf("a stopped worker answers: %v", err)
	}
}

// gatedDir holds the opening of stores back until the gate opens.
type gatedDir struct {
	statestore.Dir
	gate chan struct{}
}

func (d gatedDir) Open(id statestore.Identity) (statestore.Store, error) {
	<-d.gate
	return d.Dir.Open(id)
}

func TestQueryDuringRestoreIsToBeAskedAgain(t *testing.T) {
	c := newCluster(t)
	d := gatedDir{memstore.NewDir("gate"), make(chan struct{})}
	m := c.start("gate", pairs, d, nil)
	open := sync.OnceFunc(func() { close(d.gate) })
	t.Cleanup(open)
	testutil.Eventually(t, patience, func() error {
		for _, s := range m.w.Status().Subtasks {
			if strings.HasPrefix(s.ID, "1_") && s.State == engine.SubtaskRestoring {
				return nil
			}
		}
		return errors.New("no subtask restores")
	})
	testutil.Eventually(t, patience, func() error {
		_, _, err := m.get(t, "pair/a", "word-1")
		var later *engine.UnavailableError
		if !errors.As(err, &later) || later.Retry <= 0 || !strings.Contains(later.Reason, "restoring") {
			return orWrong(err)
		}
		return nil
	})
	open()
	testutil.Eventually(t, patience, func() error {
		_, _, err := m.get(t, "pair/a", "word-1")
		return err
	})
}

// TestQueryForAnotherMembersSubtaskNamesIt, and what a member gets over it answers itself.
func TestQueryForAnotherMembersSubtaskNamesIt(t *testing.T) {
	c := newCluster(t)
	members := map[string]*member{}
	for _, addr := range []string{"host-a:9644", "host-b:9644"} {
		members[addr] = c.start("two", pairs, memstore.NewDir("two"), func(o *engine.Options) {
			o.Advertise, o.CommitQuiet, o.HouseKeeping = addr, time.Millisecond, 100*time.Millisecond
		})
	}
	const keys = 16
	c.send(10*keys, keys)
	a, b := members["host-a:9644"], members["host-b:9644"]
	ask := func(key string) (here string, err error) {
		for addr, m := range members {
			found, answer, err := m.get(t, "pair/a", key)
			var elsewhere *engine.NotHereError
			switch {
			case errors.As(err, &elsewhere):
				if elsewhere.Owner.Address == addr || members[elsewhere.Owner.Address] == nil {
					return "", fmt.Errorf("%s sends us to %q", addr, elsewhere.Owner.Address)
				}
			case err != nil:
				return "", err
			case len(found) != 1 || string(found[0].Value) != "10" || found[0].Subtask != answer.Subtask:
				return "", fmt.Errorf("%s: %v", key, found)
			case here != "":
				return "", fmt.Errorf("%s is answered by both", key)
			default:
				here = addr
			}
		}
		if here == "" {
			return "", fmt.Errorf("%s is answered by nobody", key)
		}
		return here, nil
	}
	by := map[string]int{}
	testutil.Eventually(t, patience, func() error {
		clear(by)
		for k := range keys {
			addr, err := ask(fmt.Sprint("word-", k))
			if err != nil {
				return err
			}
			by[addr]++
		}
		if len(by) != 2 {
			return fmt.Errorf("%v", by)
		}
		return nil
	})
	b.stop(t)
	delete(members, "host-b:9644")
	testutil.Eventually(t, patience, func() error {
		for k := range keys {
			found, _, err := a.get(t, "pair/a", fmt.Sprint("word-", k))
			if err != nil || len(found) != 1 {
				return fmt.Errorf("%v: %w", found, orWrong(err))
			}
		}
		return nil
	})
}

// TestScansAreBoundedAndSelected: two at a time, with limit, and by key.
func TestScansAreBoundedAndSelected(t *testing.T) {
	c := newCluster(t)
	m := c.start("scan", pairs, memstore.NewDir("scan"), func(o *engine.Options) { o.Parallelism, o.CommitQuiet = 1, time.Millisecond })
	c.send(100, 10)
	testutil.Eventually(t, patience, func() error {
		found, _, err := m.get(t, "pair/a", "word-9")
		if err != nil || len(found) != 1 || string(found[0].Value) != "10" {
			return fmt.Errorf("%v: %w", found, orWrong(err))
		}
		return nil
	})
	sub := record.SubtaskID{SubTopology: 1}
	text := func(s string) *string { return &s }
	for _, c := range []struct {
		o       engine.StateScan
		entries int
		cut     bool
	}{
		{engine.StateScan{Subtask: sub}, 50, false}, // two values and a map of 3 per key
		{engine.StateScan{Subtask: sub, Store: "pair/a"}, 10, false},
		{engine.StateScan{Subtask: sub, Store: "pair/a", Limit: 9}, 9, true},
		{engine.StateScan{Subtask: sub, Store: "pair/a", Limit: 10}, 10, false},
		{engine.StateScan{Subtask: sub, Store: "pair/m", Key: text("word-3")}, 3, false},
		{engine.StateScan{Subtask: sub, Store: "pair/b", From: text("word-3"), To: text("word-5")}, 2, false},
	} {
		var found []entry
		a, err := m.w.StateScan(t.Context(), c.o, lines(t, &found))
		if err != nil || len(found) != c.entries || a.Entries != c.entries || a.CutOff != c.cut || a.Subtask != "1_0" || a.Epoch == 0 {
			t.Errorf("%+v: %d entries, %+v, %v", c.o, len(found), a, err)
		}
	}
	// The third has to wait its turn.
	begun, end := make(chan struct{}, 2), make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			first := true
			_, err := m.w.StateScan(t.Context(), engine.StateScan{Subtask: sub}, func([]byte) error {
				if first {
					begun <- struct{}{}
					first = false
					<-end
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	<-begun
	<-begun
	var later *engine.UnavailableError
	if _, err := m.w.StateScan(t.Context(), engine.StateScan{Subtask: sub}, nil); !errors.As(err, &later) {
		t.Errorf("a third scan: %v", err)
	}
	close(end)
	wg.Wait()
	if _, err := m.w.StateScan(t.Context(), engine.StateScan{Subtask: record.SubtaskID{SubTopology: 1, Index: 1}}, nil); !errors.Is(err, engine.ErrBadQuery) {
		t.Errorf("a subtask that is not there: %v", err)
	}
	// What the reader of the answer does not take ends the scan.
	gone := errors.New("gone")
	if _, err := m.w.StateScan(t.Context(), engine.StateScan{Subtask: sub}, func([]byte) error { return gone }); !errors.Is(err, gone) {
		t.Error(err)
	}
}

// orWrong is err, or says that an answer is not the one that is awaited.
func orWrong(err error) error {
	if err == nil {
		return errors.New("not the answer that is awaited")
	}
	return err
}
