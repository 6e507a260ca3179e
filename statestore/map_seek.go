package statestore

// Before returns the entry of the map of k with the greatest map key below mk, nil if there is none. The value is for
// reading, and valid until the next call on the State.
func (m *Map[K, MK, V]) Before(g Group, k K, mk MK) (at MK, v *V) {
	b := m.bucket(g, k, false)
	if b == nil {
		return at, nil
	}
	i, _ := b.find(m.key(mk))
	for i--; i >= 0; i-- {
		if e := b.elems[i]; e.meta&flagLive != 0 {
			at, _ = decodeUser(m.b.x, m.mw.kc, e.key, len(b.prefix))
			return at, m.b.read(e)
		}
	}
	return at, nil
}
