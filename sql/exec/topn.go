package exec

import (
	"math"
	"strings"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
	"github.com/millrace-stream/millrace/statestore"
)

// sortColumns are sort keys in the words of package row.
func sortColumns(keys []rel.SortKey) []row.KeyColumn {
	out := make([]row.KeyColumn, len(keys))
	for i, k := range keys {
		// NULL is the least value: first ascending, last descending.
		out[i] = row.KeyColumn{Column: k.Column, Desc: k.Desc, NullsOther: k.NullsLast != k.Desc}
	}
	return out
}

// topN is PTopN and PLimit: the rows From to To of each partition, in order; equal ones in order of arrival.
type topN struct {
	c       Context
	n       rel.PTopN
	in, out *row.Layout
	keys    *row.KeyEncoder
	sort    *row.KeyEncoder
	rows    *mapState[packed]
	key     []byte
	at      []byte
	buf     []byte
	row     *row.Row // of out
	scratch *row.Row // of in
	before  []entryOf
	after   []entryOf
	gone    []entryOf
	new     []entryOf
	far     string // behind all rows
}

// entryOf is a row of the result.
type entryOf struct {
	at  string
	row packed
}

func newTopN(n *rel.PTopN, c Context) (Operator, error) {
	in := rel.Layout(n.In[0])
	o := &topN{c: c, n: *n, in: in, out: rel.Layout(n), keys: row.NewKeyEncoder(in, n.Partition...), sort: row.NewSortEncoder(in, sortColumns(n.Order)...)}
	o.row, o.scratch = o.out.New(), in.New()
	o.far = strings.Repeat("\xff", len(n.Order)) + beyond // NULL may be 0xff
	var err error
	o.rows, err = openMap(c, "rows", keysOf(o.keys, in, n.Partition), tailKeys(o.sort.Schema()+" seq"), statestore.Codec[packed](packedOf(in)), n.TTL)
	return o, err
}

func newLimit(n *rel.PLimit, c Context) (Operator, error) {
	to := int64(math.MaxInt64)
	if n.Fetch >= 0 {
		to = n.Offset + n.Fetch
	}
	if n.Retracts {
		return newTopN(&rel.PTopN{Phys: n.Phys, From: n.Offset + 1, To: to, ToColumn: -1, Retracts: true}, c)
	}
	// Of rows that only come it is enough to count them.
	o := &limit{c: c, from: n.Offset, to: to}
	spec, open := c.Store(StoreSpec{Name: "count", Kind: statestore.KindTable, Key: tailKeys("all").Schema(), Value: number{}.Schema()})
	if !open {
		return o, nil
	}
	var err error
	o.count, err = statestore.NewTable(c.State(), spec, statestore.KeyCodec[string](tailKeys("all")), statestore.Codec[int64](number{}))
	return o, err
}

// limit is LIMIT of rows that are never withdrawn.
type limit struct {
	c        Context
	from, to int64
	count    *statestore.Table[string, int64]
}

// Process is of Operator.
func (o *limit) Process(_ int, r *row.Row) error {
	g := o.c.Group(nil)
	if n := o.count.Get(g, ""); n != nil && *n >= o.to {
		return nil
	}
	n, _ := o.count.Update(g, "")
	*n++
	if *n <= o.from {
		return nil
	}
	return o.c.Emit(r)
}

// Process is of Operator.
func (o *topN) Process(_ int, r *row.Row) error {
	o.key = o.keys.Append(o.key[:0], r)
	g, k := o.c.Group(o.key), view(o.key)
	to := o.n.To
	if o.n.ToColumn >= 0 {
		to = 0
		if !r.Null(o.n.ToColumn) {
			to = r.Int64(o.in.Place(o.n.ToColumn).Index)
		}
	}
	o.at = o.sort.Append(o.at[:0], r)
	if r.Kind.Adds() {
		if n := o.rows.Len(g, k); n >= 0 && !o.n.Retracts && o.n.From == 1 && o.n.ToColumn < 0 {
			return o.append(g, k, n, r)
		}
		if !o.n.Retracts && !o.enters(g, k, to) {
			return nil
		}
		o.before = o.first(g, k, to, o.before[:0])
		o.at = behindEqual(o.rows, g, k, o.at)
		o.rows.Put(g, k, view(o.at), o.in.Pack(nil, r))
		if !o.n.Retracts {
			o.evict(g, k, to)
		}
	} else {
		found := ""
		o.buf = o.in.Pack(o.buf[:0], r)
		o.rows.Range(g, k, string(o.at), string(o.at)+beyond, func(at string, v *packed) bool {
			if string(*v) == string(o.buf) {
				found = at
				return false
			}
			return true
		})
		if found == "" {
			return nil
		}
		o.before = o.first(g, k, to, o.before[:0])
		o.rows.Delete(g, k, found)
	}
	o.after = o.first(g, k, to, o.after[:0])
	return o.difference(r.Time)
}

// append adds a row to the first To of a partition that has n of them, and looks at no more of these than it must.
func (o *topN) append(g statestore.Group, k string, n int, r *row.Row) error {
	o.before, o.after = o.before[:0], o.after[:0]
	full := int64(n) >= o.n.To
	var last entryOf
	if full {
		at, v := o.rows.Before(g, k, o.far)
		if v == nil || string(o.at) >= at[:len(at)-8] {
			return nil
		}
		last = entryOf{at, *v}
	}
	o.at = behindEqual(o.rows, g, k, o.at)
	if o.n.Rank { // those behind it move
		o.rows.Range(g, k, view(o.at), o.far, func(at string, v *packed) bool {
			o.before = append(o.before, entryOf{at, *v})
			return true
		})
	} else if full {
		o.before = append(o.before, last)
	}
	first := o.n.From + int64(n-len(o.before))
	now := packed(o.in.Pack(nil, r))
	o.after = append(append(o.after, entryOf{row: now}), o.before...)
	if full {
		o.after = o.after[:len(o.after)-1]
		o.rows.Delete(g, k, last.at)
	}
	o.rows.Put(g, k, view(o.at), now)
	if o.n.Rank {
		return o.shifted(first, r.Time)
	}
	return o.changed(o.before, o.after[:1], r.Time)
}

// enters says whether a row gets into the first rows at all: there are fewer, or it comes before the last of them.
func (o *topN) enters(g statestore.Group, k string, to int64) bool {
	n := int64(0)
	end := ""
	o.rows.All(g, k, func(at string, _ *packed) bool {
		n++
		end = at
		return n < to
	})
	if n < to {
		return to > 0
	}
	return string(o.at) < end[:len(end)-8]
}

// evict drops what is behind the first rows: it never comes back, since no row is withdrawn.
func (o *topN) evict(g statestore.Group, k string, to int64) {
	n := int64(0)
	var gone []string
	o.rows.All(g, k, func(at string, _ *packed) bool {
		if n++; n > to {
			gone = append(gone, at)
		}
		return true
	})
	for _, at := range gone {
		o.rows.Delete(g, k, at)
	}
}

// first are the rows From to to.
func (o *topN) first(g statestore.Group, k string, to int64, out []entryOf) []entryOf {
	n := int64(0)
	o.rows.All(g, k, func(at string, v *packed) bool {
		if n++; n > to {
			return false
		}
		if n >= o.n.From {
			out = append(out, entryOf{at, *v})
		}
		return true
	})
	return out
}

// difference puts out how the result has changed.
func (o *topN) difference(at int64) error {
	if o.n.Rank {
		return o.shifted(o.n.From, at)
	}
	// Both are in order: what is in one and not in the other.
	b, a := o.before, o.after
	o.gone, o.new = o.gone[:0], o.new[:0]
	for len(b) > 0 || len(a) > 0 {
		switch {
		case len(a) == 0 || len(b) > 0 && b[0].at < a[0].at:
			o.gone = append(o.gone, b[0])
			b = b[1:]
		case len(b) == 0 || a[0].at < b[0].at:
			o.new = append(o.new, a[0])
			a = a[1:]
		default:
			a, b = a[1:], b[1:]
		}
	}
	return o.changed(o.gone, o.new, at)
}

// changed puts out which rows have left the result and which are new.
func (o *topN) changed(gone, new []entryOf, at int64) error {
	one := o.n.From == 1 && o.n.To == 1 && o.n.ToColumn < 0
	for _, e := range gone {
		kind := row.Delete
		if one && len(new) > 0 {
			kind = row.UpdateBefore
		}
		if kind == row.UpdateBefore && o.n.Form == rel.After {
			continue
		}
		if err := o.emit(kind, e.row, 0, at); err != nil {
			return err
		}
	}
	for _, e := range new {
		kind := row.Insert
		if one && len(gone) > 0 {
			kind = row.UpdateAfter
		}
		if err := o.emit(kind, e.row, 0, at); err != nil {
			return err
		}
	}
	return nil
}

// shifted is difference with the rank in the rows; before and after begin with rank first.
func (o *topN) shifted(first, at int64) error {
	for i := range max(len(o.before), len(o.after)) {
		rank := first + int64(i)
		switch {
		case i >= len(o.before):
			if err := o.emit(row.Insert, o.after[i].row, rank, at); err != nil {
				return err
			}
		case i >= len(o.after):
			if err := o.emit(row.Delete, o.before[i].row, rank, at); err != nil {
				return err
			}
		case o.before[i].at == o.after[i].at && string(o.before[i].row) == string(o.after[i].row):
		default:
			if o.n.Form != rel.After {
				if err := o.emit(row.UpdateBefore, o.before[i].row, rank, at); err != nil {
					return err
				}
			}
			if err := o.emit(row.UpdateAfter, o.after[i].row, rank, at); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *topN) emit(kind row.RowKind, p packed, rank, at int64) error {
	if err := o.in.Unpack(p, o.scratch); err != nil {
		damaged("Top-N", err)
	}
	out := o.scratch
	if o.n.Rank {
		out = o.row
		for i := range o.in.Len() {
			o.out.CopyColumn(out, i, o.in, o.scratch, i)
		}
		last := o.in.Len()
		out.ClearNull(last)
		out.SetInt64(o.out.Place(last).Index, rank)
	}
	out.Kind, out.Time = kind, at
	return o.c.Emit(out)
}

// dedup is PDedup: the first or the last row of a key by time.
type dedup struct {
	c      Context
	n      *rel.PDedup
	l      *row.Layout
	keys   *row.KeyEncoder
	rows   *valueState[packed]
	timers *statestore.Timers[string]
	old    *row.Row
	word   int
	key    []byte
}

func newDedup(n *rel.PDedup, c Context) (Operator, error) {
	l := rel.Layout(n.In[0])
	o := &dedup{c: c, n: n, l: l, keys: row.NewKeyEncoder(l, n.Key...), old: l.New(), word: l.Place(n.Time).Index}
	keys := keysOf(o.keys, l, n.Key)
	var err error
	if o.rows, err = openTable(c, "rows", keys, statestore.Codec[packed](packedOf(l)), n.TTL); err != nil {
		return nil, err
	}
	if !n.Last && !n.Proc {
		spec, open := c.Store(StoreSpec{Name: "timers", Kind: statestore.KindTimers, Key: keys.Schema()})
		if open {
			if o.timers, err = statestore.NewTimers(c.State(), spec, timerKeysOf(o.keys, l, n.Key)); err != nil {
				return nil, err
			}
		}
	}
	return o, nil
}

// Start is of Starter.
func (o *dedup) Start() error {
	if o.timers != nil {
		if at, ok := o.timers.Next(); ok {
			o.due(at)
		}
	}
	return nil
}

// due asks for the time of a row. One that is at the watermark is not late, and waits for the next one.
func (o *dedup) due(at int64) {
	if wm := o.c.Watermark(); wm < math.MaxInt64 {
		at = max(at, wm+1)
	}
	o.c.Due(at)
}

// fired marks a key whose first row is out.
var fired = packed{}

// Process is of Operator.
func (o *dedup) Process(input int, r *row.Row) error {
	at := int64(0)
	if !o.n.Proc {
		if r.Null(o.n.Time) {
			panic(&fn.Failure{Message: "deduplication by a time that is NULL"})
		}
		at = r.Int64(o.word)
		if !o.n.Last && at < o.c.Watermark() {
			o.c.Late(input, r)
			return nil
		}
	}
	o.key = o.keys.Append(o.key[:0], r)
	g, k := o.c.Group(o.key), view(o.key)
	was := o.rows.Get(g, k)
	if was != nil && len(*was) > 0 {
		if err := o.l.Unpack(*was, o.old); err != nil {
			damaged("deduplication", err)
		}
		o.old.Time = r.Time
	}
	kind := r.Kind
	defer func() { r.Kind = kind }()
	switch {
	case o.n.Last:
		if was != nil && !o.n.Proc && at < o.old.Int64(o.word) {
			return nil
		}
		o.rows.Set(g, k, o.l.Pack(nil, r))
		if was == nil {
			r.Kind = row.Insert
			return o.c.Emit(r)
		}
		if o.n.TTL == 0 && equalRows(o.l, o.old, r) {
			return nil
		}
		if o.n.Form != rel.After {
			o.old.Kind = row.UpdateBefore
			if err := o.c.Emit(o.old); err != nil {
				return err
			}
		}
		r.Kind = row.UpdateAfter
		return o.c.Emit(r)
	case o.n.Proc:
		if was != nil {
			return nil
		}
		o.rows.Set(g, k, fired)
		r.Kind = row.Insert
		return o.c.Emit(r)
	}
	if was != nil {
		if len(*was) == 0 || at >= o.old.Int64(o.word) {
			return nil
		}
		o.timers.Delete(o.old.Int64(o.word), g, k, 0)
	}
	o.rows.Set(g, k, o.l.Pack(nil, r))
	o.timers.Set(at, g, k, 0)
	o.due(at)
	return nil
}

// OnWatermark is of Timed: rows that nothing earlier can come before any more.
func (o *dedup) OnWatermark(_, watermark int64) error {
	for {
		at, g, k, _, ok := o.timers.Pop(watermark)
		if !ok {
			break
		}
		err := o.c.Atomic(g, at, bytesOf(k), func() error {
			was := o.rows.Get(g, k)
			if was == nil || len(*was) == 0 {
				return nil
			}
			if err := o.l.Unpack(*was, o.old); err != nil {
				damaged("deduplication", err)
			}
			o.rows.Set(g, k, fired)
			o.old.Kind, o.old.Time = row.Insert, at
			return o.c.Emit(o.old)
		})
		if err != nil {
			return err
		}
	}
	return o.Start()
}
