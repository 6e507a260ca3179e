package exec

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/expr"
	"github.com/millrace-stream/millrace/sql/rel"
	"github.com/millrace-stream/millrace/statestore"
)

// sideRow is a row of one side of a join: how often it is there, and how many rows of the other side it matches.
type sideRow struct {
	n, matches int64
	row        packed
}

type sideRows struct{ schema string }

// Append is of statestore.Codec.
func (sideRows) Append(dst []byte, v *sideRow) []byte {
	return append(binary.AppendVarint(binary.AppendVarint(dst, v.n), v.matches), v.row...)
}

// Decode is of statestore.Codec.
func (s sideRows) Decode(src []byte, v *sideRow) error {
	for _, to := range []*int64{&v.n, &v.matches} {
		x, n := binary.Varint(src)
		if n <= 0 {
			return fmt.Errorf("decode %s: the value ends within a count", s.schema)
		}
		*to, src = x, src[n:]
	}
	v.row = bytes.Clone(src)
	return nil
}

// Flat is of statestore.Codec.
func (sideRows) Flat() bool { return true }

// Owned is of statestore.Owner.
func (sideRows) Owned() {}

// Schema is of statestore.Codec.
func (s sideRows) Schema() string { return s.schema }

// joinSide is what a join keeps of one input.
type joinSide struct {
	l     *row.Layout
	keys  *row.KeyEncoder
	id    *row.KeyEncoder // tells rows of a key apart; nil = there is one row for a key
	whole bool            // id is all columns
	rows  *mapState[sideRow]
	outer bool // its rows come out without a match too
	row   *row.Row
	buf   []byte
}

// join is PJoin but NOT IN: the regular join of two tables that change.
type join struct {
	c     Context
	n     *rel.PJoin
	sides [2]joinSide
	both  *row.Layout // left, then right
	pair  *row.Row
	out   *row.Layout
	cond  func(r *row.Row) bool
	key   []byte
	semi  bool // the left side's columns alone
	anti  bool
}

func newJoin(n *rel.PJoin, c Context) (Operator, error) {
	if n.Kind == rel.NullAwareAnti {
		return newNotIn(n, c)
	}
	o := &join{c: c, n: n, out: rel.Layout(n), semi: n.Kind == rel.Semi || n.Kind == rel.Anti, anti: n.Kind == rel.Anti}
	l, r := rel.Layout(n.In[0]), rel.Layout(n.In[1])
	o.both = bothLayout(l, r)
	o.pair = o.both.New()
	outer := [2]bool{n.Kind == rel.Left || n.Kind == rel.Full || o.semi, n.Kind == rel.Right || n.Kind == rel.Full}
	for i, side := range []*row.Layout{l, r} {
		s := joinSide{l: side, keys: row.NewKeyEncoder(side, n.Keys[i]...), outer: outer[i], row: side.New()}
		switch {
		case n.Unique[i]:
		case n.UniqueKey[i] != nil:
			s.id = row.NewKeyEncoder(side, n.UniqueKey[i]...)
		default:
			all := make([]int, side.Len())
			for c := range all {
				all[c] = c
			}
			s.id, s.whole = row.NewKeyEncoder(side, all...), true
		}
		ids := "one"
		switch {
		case s.whole:
			ids = "short " + s.id.Schema()
		case s.id != nil:
			ids = s.id.Schema()
		}
		var err error
		s.rows, err = openMap(c, [...]string{"left", "right"}[i], keysOf(s.keys, side, n.Keys[i]), tailKeys(ids), statestore.Codec[sideRow](sideRows{"side " + side.Schema()}), n.TTL[i])
		if err != nil {
			return nil, err
		}
		o.sides[i] = s
	}
	if n.Cond != nil {
		var err error
		if o.cond, err = expr.Condition(c.Env(), o.both, n.Cond); err != nil {
			return nil, err
		}
	}
	if n.Kind == rel.Single {
		return newSingle(o, c)
	}
	return o, nil
}

func bothLayout(l, r *row.Layout) *row.Layout {
	var types []*row.Type
	types = append(types, l.Types()...)
	for i, t := range types {
		types[i] = t.Nullable(true)
	}
	for _, t := range r.Types() {
		types = append(types, t.Nullable(true))
	}
	return row.NewLayout(types...)
}

// put copies a row of a side into the pair; nil = NULLs.
func (o *join) put(side int, r *row.Row) {
	s := &o.sides[side]
	at := 0
	if side == 1 {
		at = o.sides[0].l.Len()
	}
	for i := range s.l.Len() {
		if r == nil {
			o.pair.SetNull(at + i)
		} else {
			o.both.CopyColumn(o.pair, at+i, s.l, r, i)
		}
	}
}

// Process is of Operator.
func (o *join) Process(input int, r *row.Row) error {
	s := &o.sides[input]
	o.put(input, r)
	if s.keys.HasNull(r) {
		// NULL equals nothing: the row matches none, ever.
		if s.outer && (!o.semi || o.anti) {
			return o.alone(input, r.Kind, r.Time)
		}
		return nil
	}
	o.key = s.keys.Append(o.key[:0], r)
	g, k := o.c.Group(o.key), view(o.key)
	if o.semi && input == 1 {
		return o.semiRight(g, k, r)
	}
	matches, err := o.matched(g, k, input, r)
	if err != nil {
		return err
	}
	o.keep(g, k, input, r, matches)
	if o.semi {
		if (matches > 0) != o.anti {
			return o.c.Emit(r)
		}
		return nil
	}
	if matches == 0 && s.outer {
		return o.alone(input, r.Kind, r.Time)
	}
	return nil
}

// longID is from how many bytes on a whole row is told by its hash, since it is in the value too. Its 128 bits are of a
// cryptographic hash: nobody can make rows that have the same.
const longID = 32

// idOf is what tells a row from others of its key, valid until the next call.
func (s *joinSide) idOf(r *row.Row) string {
	s.buf = s.buf[:0]
	if s.id == nil {
		return ""
	}
	s.buf = s.id.Append(s.buf, r)
	switch {
	case !s.whole:
	case len(s.buf) < longID:
		s.buf = append(s.buf, 0)
	default:
		sum := sha256.Sum256(s.buf)
		s.buf = append(append(s.buf[:0], sum[:16]...), 1)
	}
	return view(s.buf)
}

// keep notes a row, or forgets it.
func (o *join) keep(g statestore.Group, k string, input int, r *row.Row, matches int64) {
	s := &o.sides[input]
	id := s.idOf(r)
	if s.id == nil || o.n.UniqueKey[input] != nil { // there is one row for an id
		if r.Kind.Adds() {
			s.rows.Put(g, k, id, sideRow{n: 1, matches: matches, row: s.l.Pack(nil, r)})
		} else {
			s.rows.Delete(g, k, id)
		}
		return
	}
	was := s.rows.Get(g, k, id)
	n := int64(0)
	if was != nil {
		n = was.n
	}
	switch {
	case r.Kind.Adds():
		s.rows.Put(g, k, id, sideRow{n: n + 1, matches: matches, row: s.l.Pack(nil, r)})
	case was == nil:
	case n > 1:
		s.rows.Put(g, k, id, sideRow{n: n - 1, matches: matches, row: was.row})
	default:
		s.rows.Delete(g, k, id)
	}
}

// matched joins a row with the rows of the other side, and counts the match there if it matters. It returns how many there are.
func (o *join) matched(g statestore.Group, k string, input int, r *row.Row) (matches int64, err error) {
	other := 1 - input
	t := &o.sides[other]
	type update struct {
		id  string
		row sideRow
	}
	var updates []update
	adds := r.Kind.Adds()
	t.rows.All(g, k, func(id string, v *sideRow) bool {
		if err = t.l.Unpack(v.row, t.row); err != nil {
			damaged("a join", err)
		}
		o.put(other, t.row)
		if o.cond != nil && !o.cond(o.pair) {
			return true
		}
		matches += v.n
		if t.outer && !o.semi {
			u := sideRow{n: v.n, matches: v.matches + 1, row: v.row}
			if !adds {
				u.matches = max(0, v.matches-1)
			}
			updates = append(updates, update{id, u})
			if adds && v.matches == 0 {
				if err = o.times(v.n, func() error { return o.alone(other, row.Delete, r.Time) }); err != nil {
					return false
				}
			}
			o.put(input, r)
			o.put(other, t.row)
		}
		if !o.semi {
			kind := r.Kind
			if o.n.Kind != rel.Inner {
				kind = row.Insert
				if !adds {
					kind = row.Delete
				}
			}
			if err = o.times(v.n, func() error { return o.emit(kind, r.Time) }); err != nil {
				return false
			}
			if t.outer && !adds && v.matches <= 1 {
				if err = o.times(v.n, func() error { return o.alone(other, row.Insert, r.Time) }); err != nil {
					return false
				}
				o.put(input, r)
			}
		}
		return true
	})
	if err != nil {
		return 0, err
	}
	for _, u := range updates {
		t.rows.Put(g, k, u.id, u.row)
	}
	return matches, nil
}

func (o *join) times(n int64, f func() error) error {
	for range n {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// alone puts out a row of a side without a partner.
func (o *join) alone(side int, kind row.RowKind, at int64) error {
	if o.semi {
		s := &o.sides[0]
		r := s.row
		for i := range s.l.Len() {
			s.l.CopyColumn(r, i, o.both, o.pair, i)
		}
		r.Kind, r.Time = kind, at
		return o.c.Emit(r)
	}
	o.put(1-side, nil)
	if !kind.Adds() {
		kind = row.Delete
	} else {
		kind = row.Insert
	}
	return o.emit(kind, at)
}

func (o *join) emit(kind row.RowKind, at int64) error {
	o.pair.Kind, o.pair.Time = kind, at
	return o.c.Emit(o.pair)
}

// semiRight counts a row of the right side of a semi or anti join.
func (o *join) semiRight(g statestore.Group, k string, r *row.Row) error {
	left := &o.sides[0]
	adds := r.Kind.Adds()
	type update struct {
		id  string
		row sideRow
	}
	var updates []update
	var err error
	left.rows.All(g, k, func(id string, v *sideRow) bool {
		if err = left.l.Unpack(v.row, left.row); err != nil {
			damaged("a join", err)
		}
		o.put(0, left.row)
		if o.cond != nil && !o.cond(o.pair) {
			return true
		}
		u := sideRow{n: v.n, matches: v.matches + 1, row: v.row}
		if !adds {
			u.matches = max(0, v.matches-1)
		}
		updates = append(updates, update{id, u})
		if (v.matches == 0) == (u.matches == 0) {
			return true
		}
		kind := row.Insert
		if (u.matches == 0) != o.anti {
			kind = row.Delete
		}
		left.row.Kind, left.row.Time = kind, r.Time
		err = o.times(v.n, func() error { return o.c.Emit(left.row) })
		return err == nil
	})
	if err != nil {
		return err
	}
	for _, u := range updates {
		left.rows.Put(g, k, u.id, u.row)
	}
	o.keep(g, k, 1, r, 0)
	return nil
}

// notIn is NOT IN: a row of the left side is there as long as the right side is empty, or has neither its value nor a NULL.
// All is kept under one key, since a NULL on the right side concerns every row.
type notIn struct {
	c     Context
	n     *rel.PJoin
	sides [2]joinSide
	all   *valueState[counts] // rows of the right side, of them with NULL
	both  *row.Layout
	cond  func(r *row.Row) bool
	pair  *row.Row
}

func newNotIn(n *rel.PJoin, c Context) (Operator, error) {
	o := &notIn{c: c, n: n}
	l, r := rel.Layout(n.In[0]), rel.Layout(n.In[1])
	o.both = bothLayout(l, r)
	o.pair = o.both.New()
	var err error
	for i, side := range []*row.Layout{l, r} {
		s := joinSide{l: side, keys: row.NewKeyEncoder(side, n.Keys[i]...), row: side.New()}
		cols := append([]int(nil), n.Keys[i]...)
		for c := range side.Len() {
			cols = append(cols, c)
		}
		s.id = row.NewKeyEncoder(side, cols...)
		s.rows, err = openMap(c, [...]string{"left", "right"}[i], keysOf(row.NewKeyEncoder(side), side, nil), tailKeys(s.id.Schema()), statestore.Codec[sideRow](sideRows{"side " + side.Schema()}), n.TTL[i])
		if err != nil {
			return nil, err
		}
		o.sides[i] = s
	}
	if o.all, err = openTable(c, "right-counts", keysOf(row.NewKeyEncoder(l), l, nil), statestore.Codec[counts](countsCodec{2}), 0); err != nil {
		return nil, err
	}
	if n.Cond != nil {
		if o.cond, err = expr.Condition(c.Env(), o.both, n.Cond); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// Process is of Operator.
func (o *notIn) Process(input int, r *row.Row) error {
	s := &o.sides[input]
	g := o.c.Group(nil)
	total := []int64{0, 0}
	if v := o.all.Get(g, ""); v != nil {
		copy(total, v.N)
	}
	s.buf = s.id.Append(s.buf[:0], r)
	n := int64(0)
	if was := s.rows.Get(g, "", view(s.buf)); was != nil {
		n = was.n
	}
	by := int64(1)
	if !r.Kind.Adds() {
		by = -1
		if n == 0 {
			return nil
		}
	}
	if input == 0 {
		o.store(s, g, n+by, r)
		if o.visible(g, r, total) {
			return o.c.Emit(r)
		}
		return nil
	}
	// Rows of the left side whose fate may change: those of the value, or all where NULL or emptiness decides.
	null := s.keys.HasNull(r)
	before := append([]int64(nil), total...)
	total[0] += by
	if null {
		total[1] += by
	}
	everyone := null && (before[1] == 0) != (total[1] == 0) || (before[0] == 0) != (total[0] == 0)
	value := string(s.keys.Append(nil, r))
	left := &o.sides[0]
	type change struct {
		row packed
		n   int64
		was bool
	}
	var changes []change
	note := func(_ string, v *sideRow) bool {
		if err := left.l.Unpack(v.row, left.row); err != nil {
			damaged("NOT IN", err)
		}
		changes = append(changes, change{v.row, v.n, o.visible(g, left.row, before)})
		return true
	}
	if everyone {
		left.rows.All(g, "", note)
	} else {
		left.rows.Range(g, "", value, value+beyond, note)
	}
	o.store(s, g, n+by, r)
	o.all.Set(g, "", counts{total})
	at := r.Time
	for _, ch := range changes {
		if err := left.l.Unpack(ch.row, left.row); err != nil {
			damaged("NOT IN", err)
		}
		now := o.visible(g, left.row, total)
		if now == ch.was {
			continue
		}
		left.row.Kind, left.row.Time = row.Delete, at
		if now {
			left.row.Kind = row.Insert
		}
		for range ch.n {
			if err := o.c.Emit(left.row); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *notIn) store(s *joinSide, g statestore.Group, n int64, r *row.Row) {
	if n <= 0 {
		s.rows.Delete(g, "", view(s.buf))
		return
	}
	s.rows.Put(g, "", view(s.buf), sideRow{n: n, row: s.l.Pack(nil, r)})
}

// visible says whether a row of the left side is in the result.
func (o *notIn) visible(g statestore.Group, r *row.Row, total []int64) bool {
	switch {
	case total[0] == 0:
		return true
	case total[1] > 0 || o.sides[0].keys.HasNull(r):
		return false
	}
	right := &o.sides[1]
	value := string(o.sides[0].keys.Append(nil, r))
	found := false
	right.rows.Range(g, "", value, value+beyond, func(string, *sideRow) bool { found = true; return false })
	return !found
}
