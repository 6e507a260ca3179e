package statestore

// Table is a keyed store: one V for each key of a key group.
type Table[K comparable, V any] struct {
	c   cache[V]
	kw  keyWriter[K]
	buf []byte // padded key of the running call
}

// NewTable opens a table of kind KindTable in s. Stored entries are loaded as far as the caches have room. It fails
// if the values in the store were written in a form that vc cannot read.
func NewTable[K comparable, V any](s *State, spec Spec, kc KeyCodec[K], vc Codec[V]) (*Table[K, V], error) {
	spec = s.place(spec)
	x, err := newValues(s, spec, vc)
	if err != nil {
		return nil, err
	}
	t := &Table[K, V]{kw: newKeyWriter(kc)}
	t.c.init(x, appendID(nil, spec.ID))
	if err := s.register(spec, KindTable, (*tableSub[V])(&t.c)); err != nil {
		return nil, err
	}
	if err := catch(t.c.load); err != nil {
		return nil, err
	}
	return t, nil
}

// catch turns a Fault into an error.
func catch(f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			f, ok := r.(*Fault)
			if !ok {
				panic(r)
			}
			err = f
		}
	}()
	f()
	return nil
}

func (t *Table[K, V]) key(g Group, k K) []byte {
	t.buf = pad(t.kw.append(append(t.buf[:0], byte(g>>8), byte(g)), k))
	return t.buf
}

// Get returns the value of k, or nil. It is for reading, and valid until the next call on the State.
func (t *Table[K, V]) Get(g Group, k K) *V { return t.c.get(t.key(g, k)) }

// Update returns the value of k for writing, and whether it existed; it is zero if not. It may be changed in place until
// End or Rollback.
func (t *Table[K, V]) Update(g Group, k K) (v *V, existed bool) { return t.c.update(t.key(g, k)) }

// Set sets the value of k.
func (t *Table[K, V]) Set(g Group, k K, v V) {
	p, _ := t.c.update(t.key(g, k))
	*p = v
}

// Delete removes k.
func (t *Table[K, V]) Delete(g Group, k K) { t.c.delete(t.key(g, k)) }

// Ref is an entry of a Table that was looked up once, for several uses. It is valid until the step ends.
type Ref[V any] struct {
	c *cache[V]
	i uint32
	e *entry[V]
}

// Ref looks k up; false means that it has no value.
func (t *Table[K, V]) Ref(g Group, k K) (Ref[V], bool) {
	i, e := t.c.lookup(t.key(g, k), false)
	if e == nil || e.meta&flagLive == 0 {
		return Ref[V]{}, false
	}
	if t.c.x.class == encoded {
		t.c.log(i, e)
	}
	e.meta |= flagRef
	return Ref[V]{&t.c, i, e}, true
}

// Valid says that it is not the zero Ref.
func (r Ref[V]) Valid() bool { return r.e != nil }

// Save notes the value as it is, for the step to be undone, without a write: it may then be changed in place, as long as
// it is what it was when the step ends, unless Update or Delete is called as well.
func (r Ref[V]) Save() { r.c.log(r.i, r.e) }

// Get is Table.Get.
func (r Ref[V]) Get() *V { return &r.e.val }

// Update is Table.Update; the entry must not have been deleted.
func (r Ref[V]) Update() *V {
	r.c.write(r.i, r.e)
	return &r.e.val
}

// Delete is Table.Delete; the Ref ends.
func (r Ref[V]) Delete() { r.c.erase(r.i, r.e) }

// All calls yield for all entries, ordered by key group and key, until it returns false. The value is for reading
// and valid during the call. Entries that are added meanwhile may or may not be visited.
func (t *Table[K, V]) All(yield func(g Group, k K, v *V) bool) {
	t.c.each(true, func(key []byte, v *V) bool {
		k, _ := decodeUser(t.c.x, t.kw.kc, key, 2)
		return yield(groupOf(key), k, v)
	})
}

func groupOf(b []byte) Group { return Group(b[0])<<8 | Group(b[1]) }

// tableSub is the cache of a table as a substore.
type tableSub[V any] cache[V]

func (t *tableSub[V]) cache() *cache[V] { return (*cache[V])(t) }

func (t *tableSub[V]) seal()                       { t.cache().seal() }
func (t *tableSub[V]) committed()                  { t.cache().committed() }
func (t *tableSub[V]) gather(b Batch)              { t.cache().gather(b) }
func (t *tableSub[V]) written()                    { t.cache().written() }
func (t *tableSub[V]) evict(w *sweep) (ended bool) { return t.cache().evict(w) }
func (t *tableSub[V]) cached() int64               { return t.bytes }
func (t *tableSub[V]) horizon() (ID, int64, bool)  { return 0, 0, false }
