package exec

import (
	"slices"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/expr"
	"github.com/millrace-stream/millrace/sql/rel"
	"github.com/millrace-stream/millrace/statestore"
)

// windowRows keeps rows by window and key until the window ends.
type windowRows struct {
	l    *row.Layout
	keys *row.KeyEncoder
	rows *statestore.WindowRows[string, packed]
	end  int // word of the window's end
	row  *row.Row
	key  []byte
}

func newWindowRows(c Context, name string, l *row.Layout, columns []int, end int, w rel.WindowSpec) (*windowRows, error) {
	o := &windowRows{l: l, keys: row.NewKeyEncoder(l, columns...), end: l.Place(end).Index, row: l.New()}
	keys := keysOf(o.keys, l, columns)
	codec := statestore.Codec[packed](packedOf(l))
	spec, open := c.Store(StoreSpec{Name: name, Kind: statestore.KindWindowRows, Key: keys.Schema(), Value: codec.Schema(), Life: life(w, 0), Windows: "attached"})
	if !open {
		return o, nil
	}
	var err error
	o.rows, err = statestore.NewWindowRows(c.State(), spec, keys, codec)
	return o, err
}

// add keeps a row; its order among those of a key is that of arrival.
func (o *windowRows) add(c Context, r *row.Row) {
	o.key = o.keys.Append(o.key[:0], r)
	o.rows.Add(r.Int64(o.end), c.Group(o.key), view(o.key), 0, o.l.Pack(nil, r))
}

// each calls f for the rows of a window and key, in order of arrival.
func (o *windowRows) each(end int64, g statestore.Group, k string, f func(r *row.Row) bool) {
	o.rows.Rows(end, g, k, func(v statestore.Row[packed]) bool {
		if err := o.l.Unpack(*v.Get(), o.row); err != nil {
			damaged("a window", err)
		}
		return f(o.row)
	})
}

// keyOf is a key of a window.
type keyOf struct {
	g statestore.Group
	k string
}

// keysIn are the keys that have rows in a window, in order.
func (o *windowRows) keysIn(end int64, out []keyOf) ([]keyOf, error) {
	err := o.rows.Keys(end, func(g statestore.Group, k string) error {
		out = append(out, keyOf{g, k})
		return nil
	})
	return out, err
}

func sortKeys(ks []keyOf) []keyOf {
	slices.SortFunc(ks, func(a, b keyOf) int {
		switch {
		case a.k < b.k:
			return -1
		case a.k > b.k:
			return 1
		}
		return 0
	})
	return slices.Compact(ks)
}

// windowJoin is PWindowJoin: rows of equal windows and keys, put out at the window's end.
type windowJoin struct {
	clock
	n     *rel.PWindowJoin
	win   windowing
	sides [2]*windowRows
	both  *row.Layout
	pair  *row.Row
	cond  func(r *row.Row) bool
}

func newWindowJoin(n *rel.PWindowJoin, c Context) (Operator, error) {
	l, r := rel.Layout(n.In[0]), rel.Layout(n.In[1])
	o := &windowJoin{clock: clock{c: c, proc: n.Spec.Proc}, n: n, both: bothLayout(l, r), win: newWindowing(n.Spec, nil, c.Env())}
	o.pair, o.fire = o.both.New(), o.release
	for i, side := range []*row.Layout{l, r} {
		// The start is part of the key: sessions of one end may have begun at different times.
		var err error
		if o.sides[i], err = newWindowRows(c, [...]string{"left", "right"}[i], side, append(slices.Clone(n.Keys[i]), n.Start[i]), n.End[i], n.Spec); err != nil {
			return nil, err
		}
	}
	if n.Cond != nil {
		var err error
		if o.cond, err = expr.Condition(c.Env(), o.both, n.Cond); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// Start is of Starter.
func (o *windowJoin) Start() error {
	for _, s := range o.sides {
		if end, ok := s.rows.Next(s.rows.Horizon()); ok {
			o.due(o.win.due(end))
		}
	}
	return nil
}

// Process is of Operator.
func (o *windowJoin) Process(input int, r *row.Row) error {
	s := o.sides[input]
	end := r.Int64(s.end)
	if o.win.due(end) <= o.now() {
		o.c.Late(input, r)
		return nil
	}
	s.add(o.c, r)
	o.due(o.win.due(end))
	return nil
}

func (o *windowJoin) release(upTo int64) error {
	for {
		l, okL := o.sides[0].rows.Next(o.sides[0].rows.Horizon())
		r, okR := o.sides[1].rows.Next(o.sides[1].rows.Horizon())
		end := l
		if !okL || okR && r < l {
			end = r
		}
		if !okL && !okR || o.win.due(end) > upTo {
			break
		}
		keys, err := o.sides[0].keysIn(end, nil)
		if err == nil {
			keys, err = o.sides[1].keysIn(end, keys)
		}
		if err != nil {
			return err
		}
		for _, k := range sortKeys(keys) {
			if err := o.c.Atomic(k.g, o.win.instant(end)-1, bytesOf(k.k), func() error { return o.join(end, k) }); err != nil {
				return err
			}
		}
		for _, s := range o.sides {
			s.rows.Drop(end)
		}
	}
	return o.Start()
}

// join puts out the pairs of a window and key.
func (o *windowJoin) join(end int64, k keyOf) (err error) {
	var left, right []*row.Row
	for i, to := range []*[]*row.Row{&left, &right} {
		s := o.sides[i]
		s.each(end, k.g, k.k, func(r *row.Row) bool {
			c := s.l.New()
			s.l.Copy(c, r)
			*to = append(*to, c)
			return true
		})
	}
	nulls := len(left) > 0 && nullKey(o.sides[0].l, o.n.Keys[0], left[0]) || len(right) > 0 && nullKey(o.sides[1].l, o.n.Keys[1], right[0])
	at := o.win.instant(end) - 1
	matched := make([]bool, len(right))
	for _, l := range left {
		any := false
		if !nulls {
			for j, r := range right {
				o.fill(l, r)
				if o.cond != nil && !o.cond(o.pair) {
					continue
				}
				any, matched[j] = true, true
				if o.n.Kind == rel.Semi || o.n.Kind == rel.Anti {
					break
				}
				if err := o.emit(at); err != nil {
					return err
				}
			}
		}
		switch {
		case o.n.Kind == rel.Semi && any, o.n.Kind == rel.Anti && !any:
			l.Kind, l.Time = row.Insert, at
			err = o.c.Emit(l)
		case (o.n.Kind == rel.Left || o.n.Kind == rel.Full) && !any:
			o.fill(l, nil)
			err = o.emit(at)
		}
		if err != nil {
			return err
		}
	}
	if o.n.Kind != rel.Right && o.n.Kind != rel.Full {
		return nil
	}
	for j, r := range right {
		if !matched[j] {
			o.fill(nil, r)
			if err := o.emit(at); err != nil {
				return err
			}
		}
	}
	return nil
}

func nullKey(_ *row.Layout, columns []int, r *row.Row) bool {
	return slices.ContainsFunc(columns, r.Null)
}

func (o *windowJoin) fill(l, r *row.Row) {
	fillPair(o.both, o.pair, o.sides[0].l, l, o.sides[1].l, r)
}

// fillPair sets a row of two sides; nil is a side of NULLs.
func fillPair(both *row.Layout, pair *row.Row, ll *row.Layout, l *row.Row, rl *row.Layout, r *row.Row) {
	for i := range ll.Len() {
		if l == nil {
			pair.SetNull(i)
		} else {
			both.CopyColumn(pair, i, ll, l, i)
		}
	}
	for i := range rl.Len() {
		if r == nil {
			pair.SetNull(ll.Len() + i)
		} else {
			both.CopyColumn(pair, ll.Len()+i, rl, r, i)
		}
	}
}

func (o *windowJoin) emit(at int64) error {
	o.pair.Kind, o.pair.Time = row.Insert, at
	return o.c.Emit(o.pair)
}

// windowRank is PWindowRank: the first rows of each window and partition, put out at the window's end.
type windowRank struct {
	clock
	n    *rel.PWindowRank
	win  windowing
	in   *windowRows
	out  *row.Layout
	row  *row.Row
	sort *row.KeyEncoder
}

func newWindowRank(n *rel.PWindowRank, c Context) (Operator, error) {
	in := rel.Layout(n.In[0])
	o := &windowRank{clock: clock{c: c, proc: n.Spec.Proc}, n: n, out: rel.Layout(n), win: newWindowing(n.Spec, nil, c.Env()), sort: row.NewSortEncoder(in, sortColumns(n.Order)...)}
	o.row, o.fire = o.out.New(), o.release
	var err error
	o.in, err = newWindowRows(c, "rows", in, append(slices.Clone(n.Partition), n.Start), n.End, n.Spec)
	return o, err
}

// Start is of Starter.
func (o *windowRank) Start() error {
	if end, ok := o.in.rows.Next(o.in.rows.Horizon()); ok {
		o.due(o.win.due(end))
	}
	return nil
}

// Process is of Operator.
func (o *windowRank) Process(input int, r *row.Row) error {
	end := r.Int64(o.in.end)
	if o.win.due(end) <= o.now() {
		o.c.Late(input, r)
		return nil
	}
	o.in.add(o.c, r)
	o.due(o.win.due(end))
	return nil
}

func (o *windowRank) release(upTo int64) error {
	for {
		end, ok := o.in.rows.Next(o.in.rows.Horizon())
		if !ok || o.win.due(end) > upTo {
			break
		}
		keys, err := o.in.keysIn(end, nil)
		if err != nil {
			return err
		}
		for _, k := range sortKeys(keys) {
			if err := o.c.Atomic(k.g, o.win.instant(end)-1, bytesOf(k.k), func() error { return o.rank(end, k) }); err != nil {
				return err
			}
		}
		o.in.rows.Drop(end)
	}
	return o.Start()
}

// last says that this is deduplication that keeps the last row by event time: of equal ones the later arrival.
func (o *windowRank) last() bool {
	return o.n.To == 1 && len(o.n.Order) == 1 && o.n.Order[0].Desc && o.in.l.Type(o.n.Order[0].Column).Mark() == row.Rowtime
}

func (o *windowRank) rank(end int64, k keyOf) error {
	type ranked struct {
		key string
		row packed
	}
	var rows []ranked
	o.in.each(end, k.g, k.k, func(r *row.Row) bool {
		rows = append(rows, ranked{string(o.sort.Append(nil, r)), o.in.l.Pack(nil, r)})
		return true
	})
	if o.last() {
		slices.Reverse(rows)
	}
	slices.SortStableFunc(rows, func(a, b ranked) int {
		switch {
		case a.key < b.key:
			return -1
		case a.key > b.key:
			return 1
		}
		return 0
	})
	for i := max(o.n.From, 1); i <= int64(len(rows)) && (o.n.To < 0 || i <= o.n.To); i++ {
		if err := o.in.l.Unpack(rows[i-1].row, o.in.row); err != nil {
			damaged("a window", err)
		}
		out := o.in.row
		if o.n.Rank {
			out = o.row
			for c := range o.in.l.Len() {
				o.out.CopyColumn(out, c, o.in.l, o.in.row, c)
			}
			out.ClearNull(o.in.l.Len())
			out.SetInt64(o.out.Place(o.in.l.Len()).Index, i)
		}
		out.Kind, out.Time = row.Insert, o.win.instant(end)-1
		if err := o.c.Emit(out); err != nil {
			return err
		}
	}
	return nil
}
