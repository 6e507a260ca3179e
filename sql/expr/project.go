package expr

import (
	"fmt"
	"math"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
)

// Projection fills an output row from an input row.
type Projection struct {
	out   *row.Layout
	steps []func(out, in *row.Row)
}

// Project compiles the columns of an output row. A column whose type is NOT NULL gets Flink's default where the value is
// NULL all the same (a NOT NULL column of a source may have held one): -1, -1.0, false or the empty text; where the type
// has no default, it fails.
func Project(env *fn.Env, layout *row.Layout, list []rel.Expr) (*Projection, error) {
	types := make([]*row.Type, len(list))
	for i, e := range list {
		types[i] = e.Type()
	}
	p := &Projection{out: row.NewLayout(types...)}
	for i, e := range list {
		if col, ok := e.(*rel.Column); ok && col.Depth == 0 && layout != nil && (types[i].IsNullable() || !layout.Type(col.Index).IsNullable()) {
			from := col.Index
			p.steps = append(p.steps, func(out, in *row.Row) { p.out.CopyColumn(out, i, layout, in, from) })
			continue
		}
		code, err := Compile(env, layout, e)
		if err != nil {
			return nil, err
		}
		p.steps = append(p.steps, Store(p.out, i, code, place(e.Where())))
	}
	return p, nil
}

// Layout is that of the output row.
func (p *Projection) Layout() *row.Layout { return p.out }

// Apply fills out, a row of Layout, from in. Kind and Time are copied. Views of out are those of in and of env.Arena.
func (p *Projection) Apply(out, in *row.Row) {
	if in != nil {
		out.Kind, out.Time = in.Kind, in.Time
	}
	for _, f := range p.steps {
		f(out, in)
	}
}

// Store makes the function that evaluates code on the row in and puts the value into column i of out, a row of layout.
func Store(layout *row.Layout, i int, code fn.Code, at fn.Place) func(out, in *row.Row) {
	t := layout.Type(i)
	null := func(out *row.Row) { out.SetNull(i) }
	p := layout.Place(i)
	w := p.Index
	if !t.IsNullable() {
		null = whenNull(layout, i, at)
	}
	switch {
	case code.Cond != nil:
		f := code.Cond
		return func(out, in *row.Row) {
			v := f(in)
			if v == fn.Unknown {
				null(out)
				return
			}
			out.ClearNull(i)
			out.W[w] = uint64(v)
		}
	case code.Int != nil:
		f := code.Int
		return func(out, in *row.Row) {
			v, ok := f(in)
			if !ok {
				null(out)
				return
			}
			out.ClearNull(i)
			out.W[w] = uint64(v)
		}
	case code.Float != nil:
		f := code.Float
		return func(out, in *row.Row) {
			v, ok := f(in)
			if !ok {
				null(out)
				return
			}
			out.ClearNull(i)
			out.W[w] = math.Float64bits(v)
		}
	case code.Dec != nil:
		f := code.Dec
		return func(out, in *row.Row) {
			v, ok := f(in)
			if !ok {
				null(out)
				return
			}
			out.ClearNull(i)
			out.SetDec(w, v)
		}
	case code.Stamp != nil:
		f := code.Stamp
		return func(out, in *row.Row) {
			ms, nanos, ok := f(in)
			if !ok {
				null(out)
				return
			}
			out.ClearNull(i)
			out.W[w], out.W[w+1] = uint64(ms), uint64(nanos)
		}
	}
	f := code.Bytes
	return func(out, in *row.Row) {
		v, ok := f(in)
		if !ok {
			null(out)
			return
		}
		out.ClearNull(i)
		out.SetBytes(w, v)
	}
}

// whenNull puts the default of a NOT NULL type into the column.
func whenNull(layout *row.Layout, i int, at fn.Place) func(out *row.Row) {
	t, w := layout.Type(i), layout.Place(i).Index
	word := func(x uint64) func(out *row.Row) {
		return func(out *row.Row) {
			out.ClearNull(i)
			out.W[w] = x
		}
	}
	switch k := t.Kind(); {
	case k == row.KindBoolean:
		return word(0)
	case k.Approximate():
		return word(math.Float64bits(-1))
	case k.Text():
		return func(out *row.Row) {
			out.ClearNull(i)
			out.SetBytes(w, []byte{})
		}
	case k.Integer(), k == row.KindDate, k == row.KindTime, k.Interval():
		return word(math.MaxUint64) // -1
	}
	return func(*row.Row) {
		panic(&fn.Failure{Message: fmt.Sprintf("write column %d: NULL in a column of type %s", i+1, t), Place: at})
	}
}
