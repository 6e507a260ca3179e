package exec

import (
	"fmt"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/rel"
	"github.com/millrace-stream/millrace/statestore"
)

// damaged ends the subtask: a stored row cannot be read.
func damaged(what string, err error) {
	panic(&statestore.Fault{Err: fmt.Errorf("%w: a row of %s: %w", statestore.ErrCorrupt, what, err)})
}

// normalize is PNormalize: the last row of a key makes a full changelog of upserts.
type normalize struct {
	c    Context
	n    *rel.PNormalize
	l    *row.Layout
	keys *row.KeyEncoder
	main *valueState[packed]
	old  *row.Row
	key  []byte
}

func newNormalize(n *rel.PNormalize, c Context) (Operator, error) {
	l := rel.Layout(n.In[0])
	o := &normalize{c: c, n: n, l: l, keys: row.NewKeyEncoder(l, n.Key...), old: l.New()}
	var err error
	o.main, err = openTable(c, "rows", keysOf(o.keys, l, n.Key), statestore.Codec[packed](packedOf(l)), 0)
	return o, err
}

// Process is of Operator.
func (o *normalize) Process(_ int, r *row.Row) error {
	o.key = o.keys.Append(o.key[:0], r)
	g, k := o.c.Group(o.key), view(o.key)
	was := o.main.Get(g, k)
	if was != nil {
		if err := o.l.Unpack(*was, o.old); err != nil {
			damaged("an upsert table", err)
		}
		o.old.Time = r.Time
	}
	if !r.Kind.Adds() {
		if was == nil {
			return nil // the deletion of a row that is not there
		}
		o.main.Delete(g, k)
		o.old.Kind = row.Delete
		if t := o.n.Time; t >= 0 && !r.Null(t) {
			o.l.CopyColumn(o.old, t, o.l, r, t)
		}
		return o.c.Emit(o.old)
	}
	if was != nil && equalRows(o.l, o.old, r) {
		return nil
	}
	o.main.Set(g, k, o.l.Pack(nil, r))
	kind := r.Kind
	defer func() { r.Kind = kind }()
	if was == nil {
		r.Kind = row.Insert
		return o.c.Emit(r)
	}
	if o.n.Form != rel.After {
		o.old.Kind = row.UpdateBefore
		if err := o.c.Emit(o.old); err != nil {
			return err
		}
	}
	r.Kind = row.UpdateAfter
	return o.c.Emit(r)
}

// materialize is PMaterialize: the rows of a key in order of arrival, of which the last counts.
type materialize struct {
	c    Context
	l    *row.Layout
	keys *row.KeyEncoder
	rows *mapState[packed]
	old  *row.Row
	key  []byte
	buf  []byte
	seq  []byte
}

func newMaterialize(n *rel.PMaterialize, c Context) (Operator, error) {
	l := rel.Layout(n.In[0])
	o := &materialize{c: c, l: l, keys: row.NewKeyEncoder(l, n.Key...), old: l.New()}
	var err error
	o.rows, err = openMap(c, "rows", keysOf(o.keys, l, n.Key), tailKeys("seq"), statestore.Codec[packed](packedOf(l)), 0)
	return o, err
}

// Process is of Operator.
func (o *materialize) Process(_ int, r *row.Row) error {
	o.key = o.keys.Append(o.key[:0], r)
	g, k := o.c.Group(o.key), view(o.key)
	last, was := o.rows.Before(g, k, beyond)
	kind := r.Kind
	defer func() { r.Kind = kind }()
	if kind.Adds() {
		o.seq = nextSeq(o.seq[:0], last, was != nil)
		r.Kind = row.Insert
		if was != nil {
			r.Kind = row.UpdateAfter
		}
		o.rows.Put(g, k, view(o.seq), o.l.Pack(nil, r))
		return o.c.Emit(r)
	}
	o.buf = o.l.Pack(o.buf[:0], r)
	found := ""
	o.rows.All(g, k, func(at string, v *packed) bool {
		if string(*v) == string(o.buf) {
			found = at // the newest of equal ones
		}
		return true
	})
	if found == "" {
		return nil
	}
	o.rows.Delete(g, k, found)
	if found != last {
		return nil // not the one that is seen
	}
	_, now := o.rows.Before(g, k, beyond)
	if now == nil {
		r.Kind = row.Delete
		return o.c.Emit(r)
	}
	if err := o.l.Unpack(*now, o.old); err != nil {
		damaged("an upsert sink", err)
	}
	o.old.Kind, o.old.Time = row.UpdateAfter, r.Time
	return o.c.Emit(o.old)
}

// setCount is PSetCount: INTERSECT and EXCEPT.
type setCount struct {
	c    Context
	n    *rel.PSetCount
	l    *row.Layout
	keys *row.KeyEncoder
	main *valueState[counts]
	key  []byte
}

func newSetCount(n *rel.PSetCount, c Context) (Operator, error) {
	l := rel.Layout(n.In[0])
	all := make([]int, l.Len())
	for i := range all {
		all[i] = i
	}
	o := &setCount{c: c, n: n, l: l, keys: row.NewKeyEncoder(l, all...)}
	var err error
	o.main, err = openTable(c, "counts", keysOf(o.keys, l, all), statestore.Codec[counts](countsCodec{2}), n.TTL)
	return o, err
}

// copies is how often a row is in the result.
func (o *setCount) copies(l, r int64) int64 {
	if o.n.Kind == rel.Intersect {
		if o.n.All {
			return min(l, r)
		}
		return min(l, r, 1)
	}
	if o.n.All {
		return max(l-r, 0)
	}
	if r > 0 {
		return 0
	}
	return min(l, 1)
}

// Process is of Operator.
func (o *setCount) Process(input int, r *row.Row) error {
	o.key = o.keys.Append(o.key[:0], r)
	g, k := o.c.Group(o.key), view(o.key)
	n := []int64{0, 0}
	if was := o.main.Get(g, k); was != nil {
		copy(n, was.N)
	}
	before := o.copies(n[0], n[1])
	if r.Kind.Adds() {
		n[input]++
	} else {
		n[input] = max(0, n[input]-1)
	}
	after := o.copies(n[0], n[1])
	if n[0] == 0 && n[1] == 0 {
		o.main.Delete(g, k)
	} else {
		o.main.Set(g, k, counts{n})
	}
	kind := r.Kind
	defer func() { r.Kind = kind }()
	for ; before < after; before++ {
		r.Kind = row.Insert
		if err := o.c.Emit(r); err != nil {
			return err
		}
	}
	for ; before > after; before-- {
		r.Kind = row.Delete
		if err := o.c.Emit(r); err != nil {
			return err
		}
	}
	return nil
}
