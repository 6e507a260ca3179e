package processortest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/millrace-stream/millrace/internal/drive"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

// State is the committed value of one key in a value state, an aggregation or a table of an operator: name is that of
// processor.Value, or the name after the operator's id that Topology.Describe shows. ok is false if there is none. The test
// fails if there is no such state, or if K or V are not its types. A value whose TTL is over is there until it is removed.
func State[K comparable, V any](d *Driver, operator, name string, key K) (v V, ok bool) {
	d.tb.Helper()
	read(d, operator, name, key, statestore.KindTable, func(s *statestore.State, spec statestore.Spec, g statestore.Group, kc statestore.KeyCodec[K]) error {
		codec, err := codecOf[V](spec)
		if err != nil {
			return err
		}
		t, err := statestore.NewTable(s, spec, kc, codec)
		if err != nil {
			return err
		}
		if p := t.Get(g, key); p != nil {
			v, ok = *p, true
		}
		return nil
	})
	return v, ok
}

// StateList is the committed list of one key in a list state (processor.List): see State.
func StateList[K comparable, E any](d *Driver, operator, name string, key K) (es []E) {
	d.tb.Helper()
	read(d, operator, name, key, statestore.KindList, func(s *statestore.State, spec statestore.Spec, g statestore.Group, kc statestore.KeyCodec[K]) error {
		codec, err := codecOf[E](spec)
		if err != nil {
			return err
		}
		l, err := statestore.NewList(s, spec, kc, codec)
		if err != nil {
			return err
		}
		l.All(g, key, func(e *E) bool { es = append(es, *e); return true })
		return nil
	})
	return es
}

// StateMap is the committed map of one key in a map state (processor.MapOf): see State.
func StateMap[K, MK comparable, V any](d *Driver, operator, name string, key K) map[MK]V {
	d.tb.Helper()
	m := map[MK]V{}
	read(d, operator, name, key, statestore.KindMap, func(s *statestore.State, spec statestore.Spec, g statestore.Group, kc statestore.KeyCodec[K]) error {
		mc, err := statestore.KeyCodecOf[MK]()
		if err != nil {
			return err
		}
		codec, err := codecOf[V](spec)
		if err != nil {
			return err
		}
		t, err := statestore.NewMap(s, spec, kc, mc, codec)
		if err != nil {
			return err
		}
		t.All(g, key, func(mk MK, v *V) bool { m[mk] = *v; return true })
		return nil
	})
	return m
}

// codecOf is the codec of a store's values, with the time of their last write or without.
func codecOf[V any](spec statestore.Spec) (statestore.Codec[V], error) {
	codec, err := statestore.CodecOf[V]()
	if err != nil {
		return nil, err
	}
	if stamped := statestore.StampedCodec(codec); stamped.Schema() == spec.ValType {
		return unstamped[V]{stamped}, nil
	}
	return codec, nil
}

// unstamped reads values that have a time to live, without it.
type unstamped[V any] struct {
	c statestore.Codec[statestore.Stamped[V]]
}

func (u unstamped[V]) Decode(src []byte, v *V) error {
	var s statestore.Stamped[V]
	err := u.c.Decode(src, &s)
	*v = s.Value
	return err
}

func (u unstamped[V]) Append(dst []byte, v *V) []byte {
	return u.c.Append(dst, &statestore.Stamped[V]{Value: *v})
}
func (u unstamped[V]) Flat() bool     { return u.c.Flat() }
func (u unstamped[V]) Schema() string { return u.c.Schema() }

// read opens the committed state of the subtask that has a key.
func read[K comparable](d *Driver, operator, name string, key K, kind statestore.Kind, open func(*statestore.State, statestore.Spec, statestore.Group, statestore.KeyCodec[K]) error) {
	d.tb.Helper()
	fail := func(format string, args ...any) {
		d.tb.Helper()
		d.tb.Fatalf("read state %q of operator %q: "+format, append([]any{name, operator}, args...)...)
	}
	kc, err := statestore.KeyCodecOf[K]()
	if err != nil {
		fail("%v", err)
	}
	var st *drive.Subtask
	var spec statestore.Spec
	var group statestore.Group
	var names []string
	for _, t := range d.start().Tasks {
		for _, s := range t.Sub.Stores {
			if s.Name != operator+"/"+name {
				if op, state, _ := strings.Cut(s.Name, "/"); op == operator && !slices.Contains(names, state) {
					names = append(names, state)
				}
				continue
			}
			schema, _, _ := strings.Cut(s.KeyType, " / ") // a map's own key stands behind it
			if schema != kc.Schema() {
				fail("its keys are %s, not %v (%s)", schema, reflect.TypeFor[K](), kc.Schema())
			}
			if s.Kind != kind {
				fail("it is a %s, not a %s", s.Kind, kind)
			}
			g, err := t.Sub.KeyGroup(s.ID, kc.Append(nil, key))
			if err != nil {
				fail("%v", err)
			}
			if int(g)%t.S == t.Index {
				st, spec, group = t, s, g
			}
		}
	}
	if st == nil {
		fail("there is none; the operator has %v", names)
	}
	defer func() {
		if r := recover(); r != nil {
			err, ok := r.(error)
			if !ok {
				panic(r)
			}
			fail("%v", err)
		}
	}()
	if err := open(statestore.NewState(committed(d, st), statestore.StateOptions{}), spec, group, kc); err != nil {
		fail("%v", err)
	}
}

// committed is the committed state of a subtask as a store.
func committed(d *Driver, st *drive.Subtask) *memstore.Store {
	d.tb.Helper()
	store := memstore.New()
	b := store.NewBatch()
	for k, v := range st.Live() {
		b.Set([]byte(k), v)
	}
	if err := b.Commit(statestore.Meta{Epoch: st.Epoch}); err != nil {
		d.tb.Fatal(err)
	}
	return store
}

// StateRows are all committed entries of an operator's states as JSON objects, sorted: store, key, value, and what else tells
// them apart (window_end, map_key, index, time). It is what `millrace state scan` shows, and also what has
// expired by its TTL and is not removed yet. Test with it what has no other access, such as open windows, or that nothing is
// left: len(StateRows(d, "id")) == 0.
func StateRows(d *Driver, operator string) []string {
	d.tb.Helper()
	var rows []string
	for _, st := range d.start().Tasks {
		in := statestore.NewInspector(st.Sub.Stores)
		live := st.Live()
		keys := slices.Sorted(maps.Keys(live)) // schemas of values come first
		for _, k := range keys {
			if in.Learn([]byte(k), live[k]) {
				continue
			}
			row := string(in.Append(nil, "", []byte(k), live[k]))
			if strings.HasPrefix(row, `{"store":"`+operator+`/`) {
				rows = append(rows, row)
			}
		}
	}
	slices.Sort(rows)
	return rows
}

// Timer is a timer that is set.
type Timer struct {
	Key    string // as JSON: "ann", 42, {"City":"Bern"}
	At     time.Time
	Domain processor.Domain
}

// Timers are the timers of an operator that are set, by time and key.
func Timers(d *Driver, operator string) []Timer {
	d.tb.Helper()
	var timers []Timer
	for _, row := range StateRows(d, operator) {
		var t struct {
			Store string
			Key   json.RawMessage
			Time  *int64
		}
		if err := json.Unmarshal([]byte(row), &t); err != nil {
			d.tb.Fatalf("read timers of operator %q: %v", operator, err)
		}
		if t.Time == nil {
			continue
		}
		domain := processor.EventTime
		if strings.HasSuffix(t.Store, ".processing") {
			domain = processor.ProcessingTime
		}
		timers = append(timers, Timer{Key: string(bytes.TrimSpace(t.Key)), At: time.UnixMilli(*t.Time).UTC(), Domain: domain})
	}
	slices.SortFunc(timers, func(a, b Timer) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Domain, b.Domain))
	})
	return timers
}
