package statestore

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// A Point narrows ReadCommitted to one entry of a key.
type Point struct {
	Window *int64 // end of the window, of a windows store; nil = all windows
	MapKey []byte // encoded, of a map store; nil = the whole map
}

// ErrNotByKey: the store cannot be asked by key.
var ErrNotByKey = errors.New("timers are ordered by time, not by key: scan them")

// ReadCommitted calls yield for what the last committed epoch left of one key of a store, in the order of the physical
// keys, until it returns false; key and value are valid during the call. key is the user's key as its KeyCodec writes it.
//
// It may be called at any time, within an epoch too: what is committed is in the Store, or pending as a copy of its own,
// and neither knows of a running or sealed epoch (I4). Nothing is changed, caches included. Like all of a State it
// belongs to the State's goroutine. Errors: ErrNotByKey; those of the Store.
func (s *State) ReadCommitted(id ID, g Group, key []byte, p Point, yield func(key, val []byte) bool) error {
	i := slices.IndexFunc(s.specs, func(spec Spec) bool { return spec.ID == id })
	if i < 0 {
		return fmt.Errorf("read state: there is no store with id %08x", uint32(id))
	}
	spec, sub := s.specs[i], s.subs[i]
	var err error
	switch spec.Kind {
	case KindTable:
		_, err = s.readOne(sub, appendGroupKey(appendID(nil, id), g, key), yield)
	case KindWindows:
		ends := sub.(windowEnds).ends()
		if p.Window != nil {
			ends = []int64{*p.Window}
		}
		for _, end := range ends {
			var more bool
			if more, err = s.readOne(sub, appendGroupKey(appendKeyInt64(appendID(nil, id), end), g, key), yield); err != nil || !more {
				break
			}
		}
	case KindWindowRows:
		ends := sub.(windowEnds).ends()
		if p.Window != nil {
			ends = []int64{*p.Window}
		}
		more := true
		for i := 0; i < len(ends) && more && err == nil; i++ {
			prefix := appendGroupKey(appendKeyInt64(appendID(nil, id), ends[i]), g, key)
			changes, gone := sub.(windowChanges).changesAt(ends[i], prefix)
			if gone {
				continue
			}
			err = s.readBucket(changes, prefix, func(key, val []byte) bool { more = yield(key, val); return more })
		}
	case KindMap, KindList:
		prefix := appendGroupKey(appendID(nil, id), g, key)
		lo := append(bytes.Clone(prefix), p.MapKey...)
		err = s.readBucket(sub.(bucketChanges).changesIn(prefix), lo, yield)
	default:
		err = ErrNotByKey
	}
	if err != nil {
		return fmt.Errorf("read state store %q: %w", spec.Name, err)
	}
	return nil
}

func appendGroupKey(dst []byte, g Group, key []byte) []byte {
	return append(append(dst, byte(g>>8), byte(g)), key...)
}

// readOne reads one physical key; more is what yield returned.
func (s *State) readOne(sub substore, key []byte, yield func(key, val []byte) bool) (more bool, err error) {
	val, pending, gone := sub.(peeker).peek(key)
	switch {
	case gone:
		return true, nil
	case pending:
		return val == nil || yield(key, val), nil
	}
	val, ok, err := s.store.Get(key)
	if err != nil || !ok {
		return err == nil, err
	}
	return yield(key, val), nil
}

// readBucket merges pending changes, sorted by key, with what the Store has behind a prefix.
func (s *State) readBucket(changes []Change, prefix []byte, yield func(key, val []byte) bool) error {
	changes = slices.DeleteFunc(changes, func(c Change) bool { return !bytes.HasPrefix(c.Key, prefix) })
	stopped := false
	// below yields the changes before key.
	below := func(key []byte) bool {
		for len(changes) > 0 && (key == nil || bytes.Compare(changes[0].Key, key) < 0) {
			c := changes[0]
			changes = changes[1:]
			if c.Value != nil && !yield(c.Key, c.Value) {
				stopped = true
				return false
			}
		}
		return true
	}
	err := s.scan(prefix, successor(prefix), func(key, val []byte) bool {
		if !below(key) {
			return false
		}
		if len(changes) > 0 && bytes.Equal(changes[0].Key, key) {
			return true // the change is newer; it comes next
		}
		stopped = !yield(key, val)
		return !stopped
	})
	if err == nil && !stopped {
		below(nil)
	}
	return err
}

// CommittedSchemas calls yield for the descriptors of value schemas that committed values use, as entries of store id 0:
// what an Inspector learns from.
func (s *State) CommittedSchemas(yield func(key, val []byte)) {
	for id, versions := range s.schemas {
		for v, schema := range versions {
			yield(schemaKey(id, v), []byte(schema))
		}
	}
	for _, c := range s.announced[:s.announce] {
		yield(c.Key, c.Value)
	}
}

// A peeker is a substore that is read by physical key. pending: a committed change of it is not in the Store yet; val is nil
// if it was a delete. gone: it does not exist, whatever the Store says.
type peeker interface {
	peek(key []byte) (val []byte, pending, gone bool)
}

// windowEnds is a substore of windows.
type windowEnds interface {
	ends() []int64 // of the windows that may have committed entries, ascending
}

// bucketChanges is a substore of buckets.
type bucketChanges interface {
	changesIn(prefix []byte) []Change // that are pending in a bucket, sorted
}

// windowChanges is a substore of windows of buckets. gone: all windows up to end are, whatever the Store says.
type windowChanges interface {
	changesAt(end int64, prefix []byte) (changes []Change, gone bool)
}

// peek looks for a pending change of a physical key.
func (c *cache[V]) peek(key []byte) (val []byte, pending bool) {
	key = pad(bytes.Clone(key[len(c.prefix):]))
	_, e := c.find(c.hash(key), key)
	if e == nil || e.pend == 0 {
		return nil, false
	}
	return c.x.s.pend.value(&c.pend[e.pend-1]), true
}

func (t *tableSub[V]) peek(key []byte) (val []byte, pending, gone bool) {
	val, pending = t.cache().peek(key)
	return val, pending, false
}

func (u *windowsSub[K, V]) peek(key []byte) (val []byte, pending, gone bool) {
	end := decodeKeyInt64(key[4:])
	if end <= u.storeHor {
		return nil, false, u.storeHor != noHorizon
	}
	byEnd := func(win *window[V], end int64) int { return cmp.Compare(win.end, end) }
	// What the running epoch has dropped is still there for everybody else.
	for _, list := range [][]*window[V]{u.dropped, u.open} {
		if i, ok := slices.BinarySearchFunc(list, end, byEnd); ok {
			val, pending = list[i].c.peek(key)
			return val, pending, false
		}
	}
	return nil, false, false
}

func (u *windowsSub[K, V]) ends() []int64 {
	var ends []int64
	for _, list := range [][]*window[V]{u.dropped, u.open} { // what was dropped ends before what is open
		for _, win := range list {
			if win.end > u.storeHor && (win.stored || len(win.c.pend) > 0) {
				ends = append(ends, win.end)
			}
		}
	}
	return ends
}

func (b *buckets[V]) changesIn(prefix []byte) []Change {
	k := b.m[string(prefix)]
	if k == nil {
		return nil // no bucket, nothing written
	}
	var changes []Change
	for _, e := range k.elems {
		if e.pend != 0 {
			changes = append(changes, Change{Key: e.key, Value: b.x.s.pend.value(&b.pend[e.pend-1])})
		}
	}
	return changes
}

// A Selection picks entries of one store. The zero value of a field picks all.
type Selection struct {
	ID     ID
	Kind   Kind
	Window *int64 // end of a window, or time of timers, in ms
	Key    []byte // one key, as its KeyCodec writes it
	From   []byte // keys from this one on, likewise
	To     []byte // keys below this one
}

// Range is lo <= physical key < hi; hi nil is no bound.
type Range struct{ Lo, Hi []byte }

// Ranges are the ranges of physical keys that hold the selected entries of the key groups with group mod subtasks = index,
// ascending. A range may hold more than what is selected: see Match.
func (q *Selection) Ranges(index, subtasks int) []Range {
	prefix := appendID(nil, q.ID)
	if q.Kind.Timed() {
		switch {
		case q.Window != nil:
			prefix = appendKeyInt64(prefix, *q.Window)
		case q.Key != nil || q.From != nil || q.To != nil: // in every window
			return []Range{{prefix, successor(prefix)}}
		}
	}
	if q.Key == nil && q.From == nil && q.To == nil {
		return []Range{{prefix, successor(prefix)}}
	}
	var ranges []Range
	for g := index; g < Groups; g += subtasks {
		group := appendGroupKey(bytes.Clone(prefix), Group(g), nil)
		r := Range{group, successor(group)}
		if q.From != nil {
			r.Lo = append(bytes.Clone(group), q.From...)
		}
		if q.To != nil {
			r.Hi = append(bytes.Clone(group), q.To...)
		}
		if q.Key != nil {
			r.Lo = append(bytes.Clone(group), q.Key...)
			r.Hi = successor(r.Lo)
		}
		ranges = append(ranges, r)
	}
	return ranges
}

// Match reports whether a physical key in one of the Ranges is selected.
func (q *Selection) Match(key []byte) bool {
	skip := 4 + 2
	if q.Kind.Timed() {
		skip += 8
	}
	if len(key) < skip {
		return q.Key == nil && q.From == nil && q.To == nil && q.Window == nil // damaged: shown as it is
	}
	if skip > 6 && q.Window != nil && decodeKeyInt64(key[4:]) != *q.Window {
		return false
	}
	// No encoded key is a prefix of another, so that what is behind the key does not matter.
	key = key[skip:]
	return bytes.HasPrefix(key, q.Key) && bytes.Compare(key, q.From) >= 0 && (q.To == nil || bytes.Compare(key, q.To) < 0)
}
