package statestore

// Map is a keyed store of maps: for each key of a key group, one V for each map key, in the order of the map keys. Put asks
// the Store for nothing; Get and Delete ask it for one entry, if that is not in memory; Len, All, Range, Before and Clear
// read the map of the key as a whole, if not all of it is.
type Map[K, MK comparable, V any] struct {
	b      buckets[V]
	kw     keyWriter[K]
	mw     keyWriter[MK]
	buf    []byte // physical key of the running call; starts with the store id
	hi     []byte // of Range
	prefix int    // length of the part in front of the map key
}

// NewMap opens a store of kind KindMap in s.
func NewMap[K, MK comparable, V any](s *State, spec Spec, kc KeyCodec[K], mkc KeyCodec[MK], vc Codec[V]) (*Map[K, MK, V], error) {
	spec = s.place(spec)
	x, err := newValues(s, spec, vc)
	if err != nil {
		return nil, err
	}
	m := &Map[K, MK, V]{kw: newKeyWriter(kc), mw: newKeyWriter(mkc), buf: appendID(make([]byte, 0, 64), spec.ID)}
	if err := m.b.open(x); err != nil {
		return nil, err
	}
	m.b.parts = true
	return m, s.register(spec, KindMap, &m.b)
}

func (m *Map[K, MK, V]) bucket(g Group, k K, insert bool) *bucket[V] {
	return m.b.get(m.prefixOf(g, k), insert)
}

// part is bucket without loading what is not in memory.
func (m *Map[K, MK, V]) part(g Group, k K, insert bool) *bucket[V] {
	return m.b.part(m.prefixOf(g, k), insert)
}

func (m *Map[K, MK, V]) prefixOf(g Group, k K) []byte {
	m.buf = m.kw.append(append(m.buf[:4], byte(g>>8), byte(g)), k)
	m.prefix = len(m.buf)
	return m.buf
}

func (m *Map[K, MK, V]) key(mk MK) []byte {
	m.buf = m.mw.append(m.buf[:m.prefix], mk)
	return m.buf
}

// find returns the entry, or nil.
func (m *Map[K, MK, V]) find(g Group, k K, mk MK) *elem[V] {
	if b := m.part(g, k, false); b != nil {
		return m.b.lookup(b, m.key(mk))
	}
	return nil
}

// Get returns the value of mk in the map of k, or nil. It is for reading, and valid until the next call on the State.
func (m *Map[K, MK, V]) Get(g Group, k K, mk MK) *V {
	if e := m.find(g, k, mk); e != nil {
		return m.b.read(e)
	}
	return nil
}

// Len is how many entries the map of k has.
func (m *Map[K, MK, V]) Len(g Group, k K) int {
	if b := m.bucket(g, k, false); b != nil {
		return b.live
	}
	return 0
}

// Put sets the value of mk in the map of k.
func (m *Map[K, MK, V]) Put(g Group, k K, mk MK, v V) {
	b := m.part(g, k, true)
	*m.b.update(b, m.key(mk)) = v
}

// Delete removes mk from the map of k.
func (m *Map[K, MK, V]) Delete(g Group, k K, mk MK) {
	if e := m.find(g, k, mk); e != nil {
		m.b.delete(e)
	}
}

// All calls yield for the entries of the map of k in the order of the map keys until it returns false. The value is for
// reading and valid during the call. yield may write the map; it does not see what it adds.
func (m *Map[K, MK, V]) All(g Group, k K, yield func(mk MK, v *V) bool) {
	if b := m.bucket(g, k, false); b != nil {
		m.walk(b, nil, nil, yield)
	}
}

// Range is All for from <= mk < to.
func (m *Map[K, MK, V]) Range(g Group, k K, from, to MK, yield func(mk MK, v *V) bool) {
	b := m.bucket(g, k, false)
	if b == nil {
		return
	}
	// walk needs the bounds only before its first call of yield, which may write to buf.
	lo := m.key(from)
	m.hi = m.mw.append(append(m.hi[:0], m.buf[:m.prefix]...), to)
	m.walk(b, lo, m.hi, yield)
}

func (m *Map[K, MK, V]) walk(b *bucket[V], lo, hi []byte, yield func(mk MK, v *V) bool) {
	n := len(b.prefix)
	m.b.walk(b, lo, hi, func(e *elem[V]) bool {
		mk, _ := decodeUser(m.b.x, m.mw.kc, e.key, n)
		return yield(mk, m.b.read(e))
	})
}

// Clear removes the map of k.
func (m *Map[K, MK, V]) Clear(g Group, k K) {
	if b := m.bucket(g, k, false); b != nil {
		m.b.walk(b, nil, nil, func(e *elem[V]) bool { m.b.delete(e); return true })
	}
}
