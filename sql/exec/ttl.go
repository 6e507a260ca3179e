package exec

import (
	"time"

	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/statestore"
)

// age says what has expired: what was written before life ms of processing time. Flink: StateTtlConfig, with
// OnCreateAndWrite and NeverReturnExpired.
type age struct {
	life int64
	env  *fn.Env
}

func (a *age) expired(at int64) bool { return statestore.Expired(at, a.life, a.env.Now) }

// valueState is a store of one value by key, whose values may have a time to live: an expired one is as none.
type valueState[V any] struct {
	plain *statestore.Table[string, V]
	aged  *statestore.Table[string, statestore.Stamped[V]] // instead of plain
	age
}

// openTable opens a store of one value by key; nil at plan time. life 0 = values stay.
func openTable[V any](c Context, name string, keys statestore.KeyCodec[string], values statestore.Codec[V], life time.Duration) (*valueState[V], error) {
	schema := values.Schema()
	if life > 0 {
		schema = statestore.StampedCodec(values).Schema()
	}
	spec, open := c.Store(StoreSpec{Name: name, Kind: statestore.KindTable, Key: keys.Schema(), Value: schema})
	if !open {
		return nil, nil
	}
	t := &valueState[V]{age: age{life.Milliseconds(), c.Env()}}
	var err error
	if life == 0 {
		t.plain, err = statestore.NewTable(c.State(), spec, keys, values)
		return t, err
	}
	if t.aged, err = statestore.NewTable(c.State(), spec, keys, statestore.StampedCodec(values)); err == nil {
		c.Sweep(life, statestore.SweepTable(t.aged))
	}
	return t, err
}

// Get is that of statestore.Table.
func (t *valueState[V]) Get(g statestore.Group, k string) *V {
	if t.aged == nil {
		return t.plain.Get(g, k)
	}
	s := t.aged.Get(g, k)
	if s == nil || t.expired(s.At) {
		return nil
	}
	return &s.Value
}

// Update is that of statestore.Table.
func (t *valueState[V]) Update(g statestore.Group, k string) (v *V, existed bool) {
	if t.aged == nil {
		return t.plain.Update(g, k)
	}
	s, existed := t.aged.Update(g, k)
	if existed && t.expired(s.At) {
		var none V
		s.Value, existed = none, false
	}
	s.At = t.env.Now
	return &s.Value, existed
}

// Set is that of statestore.Table.
func (t *valueState[V]) Set(g statestore.Group, k string, v V) {
	if t.aged == nil {
		t.plain.Set(g, k, v)
		return
	}
	t.aged.Set(g, k, statestore.Stamped[V]{At: t.env.Now, Value: v})
}

// Delete is that of statestore.Table.
func (t *valueState[V]) Delete(g statestore.Group, k string) {
	if t.aged == nil {
		t.plain.Delete(g, k)
		return
	}
	t.aged.Delete(g, k)
}

// mapState is a store of an ordered map by key, whose entries may have a time to live, each by itself: an expired one is
// as none.
type mapState[V any] struct {
	plain *statestore.Map[string, string, V]
	aged  *statestore.Map[string, string, statestore.Stamped[V]] // instead of plain
	age
}

// openMap opens a store of an ordered map by key; nil at plan time. life 0 = entries stay.
func openMap[V any](c Context, name string, keys, mapKeys statestore.KeyCodec[string], values statestore.Codec[V], life time.Duration) (*mapState[V], error) {
	schema := values.Schema()
	if life > 0 {
		schema = statestore.StampedCodec(values).Schema()
	}
	spec, open := c.Store(StoreSpec{Name: name, Kind: statestore.KindMap, Key: keys.Schema() + " -> " + mapKeys.Schema(), Value: schema})
	if !open {
		return nil, nil
	}
	m := &mapState[V]{age: age{life.Milliseconds(), c.Env()}}
	var err error
	if life == 0 {
		m.plain, err = statestore.NewMap(c.State(), spec, keys, mapKeys, values)
		return m, err
	}
	if m.aged, err = statestore.NewMap(c.State(), spec, keys, mapKeys, statestore.StampedCodec(values)); err == nil {
		c.Sweep(life, statestore.SweepMap(m.aged))
	}
	return m, err
}

// Get is that of statestore.Map.
func (m *mapState[V]) Get(g statestore.Group, k, mk string) *V {
	if m.aged == nil {
		return m.plain.Get(g, k, mk)
	}
	s := m.aged.Get(g, k, mk)
	if s == nil || m.expired(s.At) {
		return nil
	}
	return &s.Value
}

// Len is that of statestore.Map; -1 = entries have a time to live, and have to be looked at.
func (m *mapState[V]) Len(g statestore.Group, k string) int {
	if m.aged != nil {
		return -1
	}
	return m.plain.Len(g, k)
}

// Put is that of statestore.Map.
func (m *mapState[V]) Put(g statestore.Group, k, mk string, v V) {
	if m.aged == nil {
		m.plain.Put(g, k, mk, v)
		return
	}
	m.aged.Put(g, k, mk, statestore.Stamped[V]{At: m.env.Now, Value: v})
}

// Delete is that of statestore.Map.
func (m *mapState[V]) Delete(g statestore.Group, k, mk string) {
	if m.aged == nil {
		m.plain.Delete(g, k, mk)
		return
	}
	m.aged.Delete(g, k, mk)
}

// All is that of statestore.Map.
func (m *mapState[V]) All(g statestore.Group, k string, yield func(mk string, v *V) bool) {
	if m.aged == nil {
		m.plain.All(g, k, yield)
		return
	}
	m.aged.All(g, k, m.alive(yield))
}

// Range is that of statestore.Map.
func (m *mapState[V]) Range(g statestore.Group, k, from, to string, yield func(mk string, v *V) bool) {
	if m.aged == nil {
		m.plain.Range(g, k, from, to, yield)
		return
	}
	m.aged.Range(g, k, from, to, m.alive(yield))
}

func (m *mapState[V]) alive(yield func(mk string, v *V) bool) func(string, *statestore.Stamped[V]) bool {
	return func(mk string, s *statestore.Stamped[V]) bool { return m.expired(s.At) || yield(mk, &s.Value) }
}

// Clear is that of statestore.Map.
func (m *mapState[V]) Clear(g statestore.Group, k string) {
	if m.aged == nil {
		m.plain.Clear(g, k)
		return
	}
	m.aged.Clear(g, k)
}

// Before is that of statestore.Map.
func (m *mapState[V]) Before(g statestore.Group, k, mk string) (at string, v *V) {
	if m.aged == nil {
		return m.plain.Before(g, k, mk)
	}
	for {
		at, s := m.aged.Before(g, k, mk)
		if s == nil {
			return at, nil
		}
		if !m.expired(s.At) {
			return at, &s.Value
		}
		mk = at
	}
}
