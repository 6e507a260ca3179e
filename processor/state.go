package processor

import (
	"fmt"
	"iter"

	"github.com/millrace-stream/millrace/statestore"
)

// StateOption is a setting of one state of an operator: a TTL, or Migrations.
type StateOption interface{ state(*stateSettings) }

type stateSettings struct {
	ttl        *TTL
	migrations []statestore.Migration
}

type migrationsOption []statestore.Migration

func (m migrationsOption) state(s *stateSettings) { s.migrations = append(s.migrations, m...) }

// Migrations gives a state migrations (statestore.Migrate): they read the values that an earlier program kept as another
// type. For the states of other operators there is MigrateState.
func Migrations(m ...statestore.Migration) StateOption { return migrationsOption(m) }

// settings are those of one state: its own, and the TTL of the operator (StateTTL) if it has none.
func (c *contextBase) settings(o []StateOption) stateSettings {
	if c.b == nil {
		c.n.ttlTaken = true
	}
	return settingsOf(c.n.ttl, o)
}

func settingsOf(ttl *TTL, o []StateOption) stateSettings {
	s := stateSettings{ttl: ttl}
	for _, o := range o {
		if o != nil {
			o.state(&s)
		}
	}
	if s.ttl != nil && s.ttl.After == 0 {
		s.ttl = nil
	}
	return s
}

// declare notes a state of an operator at build, and finds its spec again when a subtask is made. open is false at
// build and after an error.
func (c *contextBase) declare(name string, kind statestore.Kind, key, val string, o stateSettings, err error) (spec statestore.Spec, open bool) {
	bad := func(format string, args ...any) {
		c.errs = append(c.errs, fmt.Errorf("state %q: %w", name, fmt.Errorf(format, args...)))
	}
	if !idPattern.MatchString(name) {
		bad("the name must be 1 to 40 of a-z, 0-9 and -")
		return spec, false
	}
	if c.names[name] {
		bad("the name is used twice in this operator")
		return spec, false
	}
	if c.names == nil {
		c.names = map[string]bool{}
	}
	c.names[name] = true
	if err == nil && o.ttl != nil {
		err = o.ttl.check()
	}
	if err != nil {
		bad("%w", err)
		return spec, false
	}
	if c.b == nil {
		declared := c.n.store(name, kind, key, val)
		declared.Migrations = schemasOf(o.migrations)
		if o.ttl != nil && !o.ttl.ReturnExpired {
			declared.TTL = o.ttl.After
		}
		return spec, false
	}
	return c.n.specOf(name), true
}

// opened collects the error of a store that could not be opened.
func (c *contextBase) opened(name string, err error) {
	if err != nil {
		c.errs = append(c.errs, fmt.Errorf("state %q: %w", name, err))
	}
}

func migratingCodec[V any](migrations []statestore.Migration) (statestore.Codec[V], error) {
	c, err := statestore.CodecOf[V]()
	if err != nil {
		return nil, err
	}
	return statestore.Migrating(c, migrations...)
}

// ValueState is one value for each key. Flink: ValueState.
type ValueState[V any] struct{ s valueOps[V] }

// valueOps hides the key's type from the handle.
type valueOps[V any] interface {
	get() *V
	update() (v *V, existed bool)
	clear()
}

// Value makes the handle of a value state: in a setup function, with a name that is unique in the operator. V must be
// storable. State: "<operator id>/<name>".
func Value[V any, K comparable](ctx StateContext[K], name string, o ...StateOption) *ValueState[V] {
	return &ValueState[V]{valueOf[V](ctx.keyed(), name, "", o)}
}

// valueOf makes a table of one value for each key, with or without a time to live.
func valueOf[V any, K comparable](c *keyedContext[K], name, aggregate string, o []StateOption) valueOps[V] {
	set := c.settings(o)
	codec, err := migratingCodec[V](set.migrations)
	if set.ttl == nil {
		k := &keyedValue[K, V]{c: c}
		if spec, open := c.declare(name, statestore.KindTable, c.keys.schema(), schemaOf(codec), set, err); open {
			k.t, err = statestore.NewTable(c.b.state(), spec, c.keys.codec, codec)
			c.opened(name, err)
		}
		c.aggregated(name, aggregate)
		return k
	}
	k := &expiringValue[K, V]{c: c, life: life{ttl: *set.ttl}}
	if spec, open := c.declare(name, statestore.KindTable, c.keys.schema(), stampedSchema(codec), set, err); open {
		k.t, err = statestore.NewTable(c.b.state(), spec, c.keys.codec, statestore.StampedCodec(codec))
		c.opened(name, err)
		if err == nil {
			c.b.sweep(c.n, k.ttl, statestore.SweepTable(k.t))
		}
	}
	c.aggregated(name, aggregate)
	return k
}

// aggregated notes at build which function of the library makes the values of a state.
func (c *contextBase) aggregated(name, aggregate string) {
	for i := range c.n.specs {
		if aggregate != "" && c.b == nil && c.n.specs[i].Name == c.n.id+"/"+name {
			c.n.specs[i].Aggregate = aggregate
		}
	}
}

type keyedValue[K comparable, V any] struct {
	c *keyedContext[K]
	t *statestore.Table[K, V]
}

func (k *keyedValue[K, V]) get() *V { k.c.check(); return k.t.Get(k.c.x.Group, k.c.key) }
func (k *keyedValue[K, V]) clear()  { k.c.check(); k.t.Delete(k.c.x.Group, k.c.key) }
func (k *keyedValue[K, V]) update() (*V, bool) {
	k.c.check()
	return k.t.Update(k.c.x.Group, k.c.key)
}

// Get is the value of the current key, zero if there is none.
func (s *ValueState[V]) Get() (v V) {
	if p := s.s.get(); p != nil {
		return *p
	}
	return v
}

// Load is Get that tells whether there is a value.
func (s *ValueState[V]) Load() (v V, ok bool) {
	if p := s.s.get(); p != nil {
		return *p, true
	}
	return v, false
}

// Set sets the value of the current key.
func (s *ValueState[V]) Set(v V) {
	p, _ := s.s.update()
	*p = v
}

// Update changes the value of the current key in place; f gets a zero value if there is none. f must not use state.
func (s *ValueState[V]) Update(f func(v *V)) {
	p, _ := s.s.update()
	f(p)
}

// Clear removes the value of the current key.
func (s *ValueState[V]) Clear() { s.s.clear() }

// ListState is a list for each key, to which adding is cheap. Flink: ListState.
type ListState[E any] struct{ s listOps[E] }

type listOps[E any] interface {
	add(e E)
	all(yield func(e *E) bool)
	replace(es []E)
	clear()
}

// List makes the handle of a list state: see Value. Each element has a TTL of its own.
func List[E any, K comparable](ctx StateContext[K], name string, o ...StateOption) *ListState[E] {
	c := ctx.keyed()
	set := c.settings(o)
	codec, err := migratingCodec[E](set.migrations)
	if set.ttl == nil {
		k := &keyedList[K, E]{c: c}
		if spec, open := c.declare(name, statestore.KindList, c.keys.schema(), schemaOf(codec), set, err); open {
			k.l, err = statestore.NewList(c.b.state(), spec, c.keys.codec, codec)
			c.opened(name, err)
		}
		return &ListState[E]{k}
	}
	k := &expiringList[K, E]{c: c, life: life{ttl: *set.ttl}}
	if spec, open := c.declare(name, statestore.KindList, c.keys.schema(), stampedSchema(codec), set, err); open {
		k.l, err = statestore.NewList(c.b.state(), spec, c.keys.codec, statestore.StampedCodec(codec))
		c.opened(name, err)
		if err == nil {
			c.b.sweep(c.n, k.ttl, statestore.SweepList(k.l))
		}
	}
	return &ListState[E]{k}
}

type keyedList[K comparable, E any] struct {
	c *keyedContext[K]
	l *statestore.List[K, E]
}

func (k *keyedList[K, E]) add(e E)                 { k.c.check(); k.l.Add(k.c.x.Group, k.c.key, e) }
func (k *keyedList[K, E]) all(yield func(*E) bool) { k.c.check(); k.l.All(k.c.x.Group, k.c.key, yield) }
func (k *keyedList[K, E]) replace(es []E)          { k.c.check(); k.l.Replace(k.c.x.Group, k.c.key, es) }
func (k *keyedList[K, E]) clear()                  { k.c.check(); k.l.Clear(k.c.x.Group, k.c.key) }

// Add appends to the list of the current key.
func (s *ListState[E]) Add(e E) { s.s.add(e) }

// All are the elements of the current key's list, in the order of adding. The list must not be changed meanwhile.
func (s *ListState[E]) All() iter.Seq[E] {
	return func(yield func(E) bool) { s.s.all(func(e *E) bool { return yield(*e) }) }
}

// Replace sets the list of the current key.
func (s *ListState[E]) Replace(es []E) { s.s.replace(es) }

// Clear removes the list of the current key.
func (s *ListState[E]) Clear() { s.s.clear() }

// MapState is a map for each key; reading or writing one entry does not touch the others. Flink: MapState.
type MapState[MK comparable, V any] struct{ s mapOps[MK, V] }

type mapOps[MK comparable, V any] interface {
	get(mk MK) *V
	put(mk MK, v V)
	remove(mk MK)
	all(yield func(mk MK, v *V) bool)
	between(from, to MK, yield func(mk MK, v *V) bool)
	clear()
}

// MapOf makes the handle of a map state: see Value. The entries are ordered by MK, and each has a TTL of its own.
func MapOf[MK comparable, V any, K comparable](ctx StateContext[K], name string, o ...StateOption) *MapState[MK, V] {
	c := ctx.keyed()
	set := c.settings(o)
	keys, err := statestore.KeyCodecOf[MK]()
	codec, err2 := migratingCodec[V](set.migrations)
	if err == nil {
		err = err2
	}
	schema := c.keys.schema()
	if err == nil {
		schema += " / " + keys.Schema() // the map key is part of the store's key
	}
	if set.ttl == nil {
		k := &keyedMap[K, MK, V]{c: c}
		if spec, open := c.declare(name, statestore.KindMap, schema, schemaOf(codec), set, err); open {
			k.m, err = statestore.NewMap(c.b.state(), spec, c.keys.codec, keys, codec)
			c.opened(name, err)
		}
		return &MapState[MK, V]{k}
	}
	k := &expiringMap[K, MK, V]{c: c, life: life{ttl: *set.ttl}}
	if spec, open := c.declare(name, statestore.KindMap, schema, stampedSchema(codec), set, err); open {
		k.m, err = statestore.NewMap(c.b.state(), spec, c.keys.codec, keys, statestore.StampedCodec(codec))
		c.opened(name, err)
		if err == nil {
			c.b.sweep(c.n, k.ttl, statestore.SweepMap(k.m))
		}
	}
	return &MapState[MK, V]{k}
}

type keyedMap[K, MK comparable, V any] struct {
	c *keyedContext[K]
	m *statestore.Map[K, MK, V]
}

func (k *keyedMap[K, MK, V]) get(mk MK) *V   { k.c.check(); return k.m.Get(k.c.x.Group, k.c.key, mk) }
func (k *keyedMap[K, MK, V]) put(mk MK, v V) { k.c.check(); k.m.Put(k.c.x.Group, k.c.key, mk, v) }
func (k *keyedMap[K, MK, V]) remove(mk MK)   { k.c.check(); k.m.Delete(k.c.x.Group, k.c.key, mk) }
func (k *keyedMap[K, MK, V]) clear()         { k.c.check(); k.m.Clear(k.c.x.Group, k.c.key) }
func (k *keyedMap[K, MK, V]) all(yield func(mk MK, v *V) bool) {
	k.c.check()
	k.m.All(k.c.x.Group, k.c.key, yield)
}
func (k *keyedMap[K, MK, V]) between(from, to MK, yield func(mk MK, v *V) bool) {
	k.c.check()
	k.m.Range(k.c.x.Group, k.c.key, from, to, yield)
}

// Get is an entry of the current key's map.
func (s *MapState[MK, V]) Get(mk MK) (v V, ok bool) {
	if p := s.s.get(mk); p != nil {
		return *p, true
	}
	return v, false
}

// Put sets an entry of the current key's map.
func (s *MapState[MK, V]) Put(mk MK, v V) { s.s.put(mk, v) }

// Delete removes an entry of the current key's map.
func (s *MapState[MK, V]) Delete(mk MK) { s.s.remove(mk) }

// All are the entries of the current key's map, in the order of MK. The map must not be changed meanwhile.
func (s *MapState[MK, V]) All() iter.Seq2[MK, V] {
	return func(yield func(MK, V) bool) { s.s.all(func(mk MK, v *V) bool { return yield(mk, *v) }) }
}

// Range are the entries with from <= key < to, in order. The map must not be changed meanwhile.
func (s *MapState[MK, V]) Range(from, to MK) iter.Seq2[MK, V] {
	return func(yield func(MK, V) bool) {
		s.s.between(from, to, func(mk MK, v *V) bool { return yield(mk, *v) })
	}
}

// Clear removes the map of the current key.
func (s *MapState[MK, V]) Clear() { s.s.clear() }
