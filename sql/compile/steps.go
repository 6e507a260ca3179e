package compile

import (
	"fmt"
	"math"

	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/expr"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
	"github.com/millrace-stream/millrace/statestore"
)

type (
	flow    = processor.Flow[*row.Row]
	context = processor.TransformContext[*row.Row, *row.Row]
)

// step makes an operator without state and time. build compiles it, for the subtask of env, into the function that takes
// rows; it is called at plan time too, for the errors, with a nil ctx.
func (c *compiler) step(n rel.Physical, ins []flow, name string, build func(env *fn.Env, ctx *context) (func(input int, r *row.Row) error, error)) (stream, error) {
	if _, err := build(c.planEnv(), nil); err != nil {
		return stream{}, fail(n, "E3704", err)
	}
	return processor.Transform(ins, "", func(ctx *context) {
		env := c.envOf(ctx)
		f, err := build(env, ctx)
		if err != nil {
			ctx.Fail(err)
			return
		}
		ctx.OnRecord(func(input int, r *row.Row) error {
			env.Watermark = ctx.Watermark()
			return f(input, r)
		})
	}, processor.Name(name)), nil
}

func (c *compiler) calc(n *rel.PCalc, ins []flow) (stream, error) {
	layout := rel.Layout(n.In[0])
	return c.step(n, ins, "calc", func(env *fn.Env, ctx *context) (func(int, *row.Row) error, error) {
		pass := func(*row.Row) bool { return true }
		var err error
		if n.Cond != nil {
			if pass, err = expr.Condition(env, layout, n.Cond); err != nil {
				return nil, err
			}
		}
		if n.Exprs == nil {
			return func(_ int, r *row.Row) error {
				if !pass(r) {
					return nil
				}
				return ctx.Emit(r)
			}, nil
		}
		project, err := expr.Project(env, layout, n.Exprs)
		if err != nil {
			return nil, err
		}
		out := project.Layout().New()
		return func(_ int, r *row.Row) error {
			if !pass(r) {
				return nil
			}
			project.Apply(out, r)
			return ctx.Emit(out)
		}, nil
	})
}

func (c *compiler) union(_ *rel.PUnion, ins []flow) (stream, error) {
	return processor.Union(ins[0], ins[1:]...), nil
}

// values gives its rows once. Then its watermark is at the end of time, as that of a source that has ended.
func (c *compiler) values(n *rel.PValues) (stream, error) {
	layout := rel.Layout(n)
	rows := func(env *fn.Env) ([]func() *row.Row, error) {
		var all []func() *row.Row
		for _, r := range n.Rows {
			out := layout.New()
			var sets []func(out, in *row.Row)
			for i, e := range r {
				code, err := expr.Compile(env, nil, e)
				if err != nil {
					return nil, err
				}
				sets = append(sets, expr.Store(layout, i, code, placeOf(e)))
			}
			all = append(all, func() *row.Row {
				out.Kind, out.Time = row.Insert, processor.NoTime
				for _, f := range sets {
					f(out, nil)
				}
				return out
			})
		}
		return all, nil
	}
	if _, err := rows(c.planEnv()); err != nil {
		return stream{}, fail(n, "E3704", err)
	}
	keys, err := statestore.KeyCodecOf[uint8]()
	if err != nil {
		return stream{}, err
	}
	codec, err := statestore.CodecOf[bool]()
	if err != nil {
		return stream{}, err
	}
	return processor.Generate(c.top, c.id(n, "values"), func(ctx *processor.TransformContext[struct{}, *row.Row]) {
		env := c.envOf(ctx)
		var done *statestore.Table[uint8, bool]
		spec, open := ctx.Store(processor.StoreSpec{Name: "done", Kind: statestore.KindTable, Key: keys.Schema(), Value: codec.Schema()})
		if open {
			var err error
			if done, err = statestore.NewTable(ctx.State(), spec, keys, codec); err != nil {
				ctx.Fail(err)
			}
			ctx.OnOpen(func() error { ctx.DueProcessing(math.MinInt64); return nil })
		}
		all, err := rows(env)
		if err != nil {
			ctx.Fail(err)
		}
		ctx.OnTime(func(int64) error {
			ctx.AdvanceWatermark(math.MaxInt64)
			return ctx.Atomic(0, processor.NoTime, nil, func() error {
				if d, _ := done.Update(0, 0); *d {
					return nil
				} else {
					*d = true
				}
				for _, f := range all {
					if err := ctx.Emit(f()); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}), nil
}

func placeOf(e rel.Expr) fn.Place {
	at := e.Where()
	p := fn.Place{Start: at.Span.Start, End: at.Span.End}
	if at.Source != nil {
		p.Source = at.Source
	}
	return p
}

// correlate unnests values, side by side, or calls a table function.
func (c *compiler) correlate(n *rel.PCorrelate, ins []flow) (stream, error) {
	in, layout := rel.Layout(n.In[0]), rel.Layout(n)
	width := in.Len()
	if n.Func != nil {
		return c.tableFunction(n, ins, in, layout)
	}
	return c.step(n, ins, "unnest", func(env *fn.Env, ctx *context) (func(int, *row.Row) error, error) {
		out := layout.New()
		var parts []*unnest
		at := width
		for _, e := range n.Unnest {
			code, err := expr.Compile(env, in, e)
			if err != nil {
				return nil, err
			}
			u := &unnest{value: code.Bytes, t: e.Type(), layout: layout, at: at}
			if u.columns = columnsOf(e.Type()); u.value == nil || u.columns == 0 {
				return nil, fmt.Errorf("UNNEST takes an ARRAY, a MAP or a MULTISET, not %s", e.Type())
			}
			at += u.columns
			parts = append(parts, u)
		}
		pass := func(*row.Row) bool { return true }
		if n.Cond != nil {
			var err error
			if pass, err = expr.Condition(env, layout, n.Cond); err != nil {
				return nil, err
			}
		}
		return func(_ int, r *row.Row) error {
			out.Kind, out.Time = r.Kind, r.Time
			for i := range width {
				layout.CopyColumn(out, i, in, r, i)
			}
			rows := 0
			for _, u := range parts {
				rows = max(rows, u.open(r))
			}
			any := false
			for i := range rows {
				for _, u := range parts {
					u.row(out, i)
				}
				if n.Ordinality {
					out.ClearNull(layout.Len() - 1)
					out.SetInt64(layout.Place(layout.Len()-1).Index, int64(i+1))
				}
				if !pass(out) {
					continue
				}
				any = true
				if err := ctx.Emit(out); err != nil {
					return err
				}
			}
			if any || !n.Outer {
				return nil
			}
			for i := width; i < layout.Len(); i++ {
				out.SetNull(i)
			}
			return ctx.Emit(out)
		}, nil
	})
}

// tableFunction calls a table function for each row.
func (c *compiler) tableFunction(n *rel.PCorrelate, ins []flow, in, layout *row.Layout) (stream, error) {
	width := in.Len()
	types := []*row.Type{n.Func.Typ}
	if n.Func.Typ.Kind() == row.KindRow {
		types = nil
		for i := range n.Func.Typ.NumFields() {
			types = append(types, n.Func.Typ.Field(i).Type)
		}
	}
	given := row.NewLayout(types...)
	return c.step(n, ins, "table-function", func(env *fn.Env, ctx *context) (func(int, *row.Row) error, error) {
		if n.Func.Func.Rows == nil {
			return nil, fmt.Errorf("%s is no table function", n.Func.Func.Name)
		}
		args, err := expr.CompileAll(env, in, n.Func.Args)
		if err != nil {
			return nil, err
		}
		env.Place = placeOf(n.Func)
		rows, err := n.Func.Func.Rows(env, args, n.Func.Typ)
		if err != nil {
			return nil, err
		}
		pass := func(*row.Row) bool { return true }
		if n.Cond != nil {
			if pass, err = expr.Condition(env, layout, n.Cond); err != nil {
				return nil, err
			}
		}
		out := layout.New()
		any := false
		emit := func(r *row.Row) error {
			for i := range given.Len() {
				layout.CopyColumn(out, width+i, given, r, i)
			}
			if !pass(out) {
				return nil
			}
			any = true
			return ctx.Emit(out)
		}
		return func(_ int, r *row.Row) error {
			out.Kind, out.Time = r.Kind, r.Time
			for i := range width {
				layout.CopyColumn(out, i, in, r, i)
			}
			any = false
			if err := rows(r, emit); err != nil || any || !n.Outer {
				return err
			}
			for i := width; i < layout.Len(); i++ {
				out.SetNull(i)
			}
			return ctx.Emit(out)
		}, nil
	})
}

// columnsOf is how many columns a value unnests to; 0 = it cannot be.
func columnsOf(t *row.Type) int {
	switch t.Kind() {
	case row.KindMap:
		return 2
	case row.KindArray, row.KindMultiset:
		if e := t.Elem(); e.Kind() == row.KindRow {
			return e.NumFields()
		}
		return 1
	}
	return 0
}

// unnest gives the elements of one value.
type unnest struct {
	value   func(r *row.Row) ([]byte, bool)
	t       *row.Type
	layout  *row.Layout
	at      int // first column
	columns int

	keys, values row.ArrayView
	index        []int // of a MULTISET: the element of each row
	n            int
}

// open looks at the value of a row, and says how many rows it gives.
func (u *unnest) open(r *row.Row) int {
	b, ok := u.value(r)
	u.n = 0
	if !ok {
		return 0
	}
	switch u.t.Kind() {
	case row.KindArray:
		u.keys = row.ViewArray(u.t, b)
		u.n = u.keys.Len()
	default:
		m := row.ViewMap(u.t, b)
		u.keys, u.values = m.Keys(), m.Values()
		u.n = u.keys.Len()
	}
	if u.t.Kind() == row.KindMultiset {
		u.index = u.index[:0]
		for i := range u.n {
			for range int64(u.values.Word(i)) {
				u.index = append(u.index, i)
			}
		}
		u.n = len(u.index)
	}
	return u.n
}

// row puts element i into the columns; NULLs if there are fewer.
func (u *unnest) row(out *row.Row, i int) {
	if i >= u.n {
		for k := range u.columns {
			out.SetNull(u.at + k)
		}
		return
	}
	if u.t.Kind() == row.KindMultiset {
		i = u.index[i]
	}
	if u.t.Kind() == row.KindMap {
		setElem(out, u.layout, u.at, u.keys, i)
		setElem(out, u.layout, u.at+1, u.values, i)
		return
	}
	elem := u.t.Elem()
	if elem.Kind() != row.KindRow {
		setElem(out, u.layout, u.at, u.keys, i)
		return
	}
	if u.keys.Null(i) {
		for k := range u.columns {
			out.SetNull(u.at + k)
		}
		return
	}
	v := row.ViewRow(elem, u.keys.Bytes(i))
	for k := range u.columns {
		if v.Null(k) {
			out.SetNull(u.at + k)
			continue
		}
		out.ClearNull(u.at + k)
		if p := u.layout.Place(u.at + k); p.Bank == row.Views {
			out.SetBytes(p.Index, v.Bytes(k))
		} else {
			setWords(out, p, v.Words, k)
		}
	}
}

func setElem(out *row.Row, l *row.Layout, column int, a row.ArrayView, i int) {
	if a.Null(i) {
		out.SetNull(column)
		return
	}
	out.ClearNull(column)
	if p := l.Place(column); p.Bank == row.Views {
		out.SetBytes(p.Index, a.Bytes(i))
	} else {
		setWords(out, p, a.Words, i)
	}
}

func setWords(out *row.Row, p row.Place, words func(i int) (uint64, uint64), i int) {
	x, y := words(i)
	out.W[p.Index] = x
	if p.Words == 2 {
		out.W[p.Index+1] = y
	}
}
