package integration

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
	"github.com/millrace-stream/millrace/txn"
)

// checkState restores the state of every subtask from the changelogs, as a worker without local state would, and
// compares it with what the input below the committed offsets makes. The last epoch record must have the offsets that
// the group has. All workers must have stopped, or have nothing to do.
func (j *job) checkState() {
	j.t.Helper()
	ctx, cancel := context.WithTimeout(j.t.Context(), patience)
	defer cancel()
	adm := j.b.Admin(j.t)
	committed, err := adm.FetchOffsets(ctx, j.app)
	if err != nil {
		j.t.Fatalf("fetch the offsets of %s: %v", j.app, err)
	}
	offset := func(partition int32) int64 {
		o, ok := committed.Lookup(j.in, partition)
		if !ok {
			return -1
		}
		return o.At
	}
	subtasks := j.restore(ctx, adm, true)
	for k, s := range subtasks {
		j.compareOffsets(k, len(subtasks), s.last, offset)
	}
	if j.program == copyJob {
		return
	}
	input := j.b.Read(j.t, j.in)
	for _, s := range subtasks {
		j.compare("state", s, j.recompute(input, s.index, len(subtasks), offset))
	}
}

// compare the state of a subtask with what the input makes.
func (j *job) compare(what string, s subtaskState, want map[cell]total) {
	j.t.Helper()
	got := s.cells(j)
	dropped := int64(math.MinInt64) // of windows that are gone
	for _, h := range s.last.Horizons {
		dropped = max(dropped, h.End)
	}
	maps.DeleteFunc(want, func(c cell, _ total) bool { return j.program == windowJob && c.end <= dropped })
	if diff := differences(got, want); len(diff) > 0 {
		j.t.Errorf("%s of subtask 0_%d at epoch %d is not what the input makes: %d entries of %d differ: %s", what, s.index, s.last.Epoch,
			len(diff), len(want), strings.Join(diff[:min(len(diff), 5)], "; "))
	}
}

// cell is an entry of the state of the programs used here: a user's total, or a user's window.
type cell struct {
	user string
	end  int64 // of the window; 0 for totals
}

// subtaskState is what the changelogs of a subtask make.
type subtaskState struct {
	index int
	store statestore.Store
	last  *txn.EpochRecord
}

// restore folds the changelogs, partition by partition: the last value of each key counts, and none after a tombstone. At rest
// no transaction may stay open on them.
func (j *job) restore(ctx context.Context, adm *kadm.Client, atRest bool) []subtaskState {
	j.t.Helper()
	names := []string{j.app + "-0-changelog", j.app + "-0-changelog-expiring"}
	topics, err := adm.ListTopics(ctx, names...)
	if err != nil {
		j.t.Fatalf("list the changelogs: %v", err)
	}
	n := len(topics[names[0]].Partitions)
	if n == 0 {
		j.t.Fatalf("there is no changelog %s: %v", names[0], topics[names[0]].Err)
	}
	subtasks := make([]subtaskState, n)
	folds := make([]map[string][]byte, n)
	for k := range n {
		folds[k] = map[string][]byte{}
	}
	for _, name := range names {
		if len(topics[name].Partitions) == 0 {
			continue
		}
		if atRest {
			j.settled(name)
		}
		for _, r := range j.b.Read(j.t, name) {
			s, fold := &subtasks[r.Partition], folds[r.Partition]
			switch {
			case bytes.Equal(r.Key, statestore.MetaKey()):
				rec, err := txn.DecodeEpochRecord(r.Value)
				if err != nil {
					j.t.Fatalf("%s/%d offset %d: %v", name, r.Partition, r.Offset, err)
				}
				if s.last == nil || rec.Epoch > s.last.Epoch {
					s.last = rec
				}
			case r.Value == nil:
				delete(fold, string(r.Key))
			default:
				fold[string(r.Key)] = r.Value
			}
		}
	}
	for k := range subtasks {
		s := &subtasks[k]
		if s.last == nil {
			j.t.Fatalf("the changelog of subtask 0_%d has no epoch record", k)
		}
		s.index, s.store = k, memstore.New()
		b := s.store.NewBatch()
		for key, value := range folds[k] {
			b.Set([]byte(key), value)
		}
		for _, h := range s.last.Horizons {
			b.DeleteRange(statestore.WindowRange(h.Store, h.End))
		}
		if err := b.Commit(statestore.Meta{Epoch: s.last.Epoch, Positions: s.last.Positions}); err != nil {
			j.t.Fatalf("restore subtask 0_%d: %v", k, err)
		}
	}
	return subtasks
}

// compareOffsets of the last epoch record of subtask k of n with those of the group.
func (j *job) compareOffsets(k, n int, last *txn.EpochRecord, offset func(int32) int64) {
	j.t.Helper()
	seen := map[int32]bool{}
	for _, in := range last.Inputs {
		seen[in.Partition] = true
		if in.Topic != j.in || int(in.Partition)%n != k {
			j.t.Errorf("the epoch record of subtask 0_%d has %s/%d, which is not its own", k, in.Topic, in.Partition)
		}
		if at := offset(in.Partition); at != in.Offset {
			j.t.Errorf("subtask 0_%d: epoch record %d has offset %d of %s/%d, the group has %d", k, last.Epoch, in.Offset, in.Topic, in.Partition, at)
		}
	}
	for p := int32(k); p < j.parts; p += int32(n) {
		if !seen[p] {
			j.t.Errorf("the epoch record of subtask 0_%d lacks %s/%d", k, j.in, p)
		}
	}
}

// recompute makes the state of subtask k of n from the input below some offsets. Records that the programs cannot use are
// left out.
func (j *job) recompute(input []*kgo.Record, k, n int, offset func(int32) int64) map[cell]total {
	j.t.Helper()
	want := map[cell]total{}
	for _, r := range input {
		var e struct {
			Amount float64
			TS     *int64
		}
		if int(r.Partition)%n != k || r.Offset >= offset(r.Partition) || r.Key == nil || json.Unmarshal(r.Value, &e) != nil || e.TS == nil {
			continue
		}
		c := cell{user: string(r.Key)}
		if j.program == windowJob {
			c.end = *e.TS - *e.TS%windowMs + windowMs
		}
		was := want[c]
		want[c] = total{was.n + 1, was.cents + cents(e.Amount)}
	}
	return want
}

// cells reads the store through the typed stores that the program uses.
func (s subtaskState) cells(j *job) map[cell]total {
	j.t.Helper()
	type value struct{ Count, Cents int64 } // as the programs have it
	keys, err := statestore.KeyCodecOf[string]()
	if err != nil {
		j.t.Fatal(err)
	}
	values, err := statestore.CodecOf[value]()
	if err != nil {
		j.t.Fatal(err)
	}
	spec := statestore.Spec{Name: "total/total", Kind: statestore.KindTable, KeyType: keys.Schema(), ValType: values.Schema()}
	if j.program == windowJob {
		spec.Name, spec.Kind, spec.Expiring, spec.Life = "count/windows", statestore.KindWindows, true, windowMs*time.Millisecond
	}
	spec.ID = statestore.StoreID(spec.Name)
	s.onlyStore(j, spec.ID)

	m := map[cell]total{}
	add := func(end int64, g statestore.Group, user string, v *value) {
		h := format.Murmur2([]byte(user)) & 0x7fffffff
		if int(g) != int(h%statestore.Groups) {
			j.t.Errorf("state of user %s is in key group %d, want %d", user, g, h%statestore.Groups)
		}
		m[cell{user, end}] = total{v.Count, v.Cents}
	}
	st := statestore.NewState(s.store, statestore.StateOptions{CacheBytes: 1 << 20})
	if j.program == totalJob {
		table, err := statestore.NewTable(st, spec, keys, values)
		if err != nil {
			j.t.Fatal(err)
		}
		table.All(func(g statestore.Group, user string, v *value) bool { add(0, g, user, v); return true })
		return m
	}
	windows, err := statestore.NewWindows(st, spec, keys, values)
	if err != nil {
		j.t.Fatal(err)
	}
	for end, ok := windows.Next(); ok; end, ok = windows.Next() {
		err := windows.Each(end, func(g statestore.Group, user string, v *value) error { add(end, g, user, v); return nil })
		if err != nil {
			j.t.Fatal(err)
		}
		windows.Drop(end)
	}
	return m
}

// onlyStore fails if there is state of another store than this one.
func (s subtaskState) onlyStore(j *job, id statestore.ID) {
	j.t.Helper()
	it, err := s.store.Scan(nil, nil)
	if err != nil {
		j.t.Fatal(err)
	}
	for it.Next() {
		if got := binary.BigEndian.Uint32(it.Key()); got != 0 && got != uint32(id) {
			j.t.Errorf("subtask 0_%d has a key of an unknown store: %x", s.index, it.Key())
		}
	}
	if err := it.Close(); err != nil {
		j.t.Fatal(err)
	}
}

// differences names the cells that differ.
func differences(got, want map[cell]total) []string {
	var diff []string
	for c, w := range want {
		if g, ok := got[c]; !ok || g != w {
			diff = append(diff, fmt.Sprintf("%s %d is %v, want %v", c.user, c.end, g, w))
		}
	}
	for c, g := range got {
		if _, ok := want[c]; !ok {
			diff = append(diff, fmt.Sprintf("%s %d is %v, want nothing", c.user, c.end, g))
		}
	}
	slices.Sort(diff)
	return diff
}
