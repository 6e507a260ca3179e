package fn

import (
	"errors"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/millrace-stream/millrace/row"
)

// Cast makes the closure of CAST(a AS t), or of TRY_CAST, which gives NULL where CAST fails. A number that does not fit a
// DECIMAL is NULL with both. An error means that there is no such cast.
func Cast(env *Env, a Code, t *row.Type, try bool) (Code, error) {
	if err := Castable(a.Type, t); err != nil {
		return Code{}, err
	}
	if a.Type.Plain() == t.Plain() {
		a.Type = t
		return a, nil
	}
	if a.Type.Kind() == row.KindNull {
		return ConstCode(t, Const{Null: true}), nil
	}
	c := caster{env, env.Place, t, try}
	switch from := a.Type.Kind(); {
	case t.Kind().Text():
		return c.toText(a), nil
	case from.Text():
		return c.fromText(a), nil
	case from.Bytes():
		return BytesCode(t, c.fitBytes(a.Bytes)), nil
	case from.Datetime():
		return c.time(a), nil
	case from.Nested():
		return c.nested(a)
	case t.Kind().Interval() || from.Interval():
		return IntCode(t, lift1(a.Int, func(x int64) int64 { return wrap(t.Kind(), x) })), nil
	}
	return c.number(a), nil
}

type caster struct {
	env *Env
	at  Place
	t   *row.Type
	try bool
}

// refuse is what becomes of a text that cannot be read.
func (c caster) refuse(text []byte, err error) {
	if !c.try {
		c.at.failf("cast '%s' to %s: %s", text, c.t.Text(), err)
	}
}

func parse[T any](c caster, a Get[[]byte], f func(b []byte) (T, error)) Get[T] {
	return func(r *row.Row) (v T, ok bool) {
		b, ok := a(r)
		if !ok {
			return v, false
		}
		v, err := f(b)
		if err != nil {
			c.refuse(b, err)
			return v, false
		}
		return v, true
	}
}

func bitSize(k row.Kind) int {
	switch k {
	case row.KindTinyInt:
		return 8
	case row.KindSmallInt:
		return 16
	case row.KindInt, row.KindFloat:
		return 32
	}
	return 64
}

func (c caster) fromText(a Code) Code {
	t, env := c.t, c.env
	switch k := t.Kind(); {
	case k == row.KindBoolean:
		return BoolCode(t, parse(c, a.Bytes, row.ParseBool))
	case k.Integer():
		size := bitSize(k)
		return IntCode(t, parse(c, a.Bytes, func(b []byte) (int64, error) { return row.ParseInt(b, size) }))
	case k.Approximate():
		size := bitSize(k)
		return FloatCode(t, parse(c, a.Bytes, func(b []byte) (float64, error) { return row.ParseDouble(b, size) }))
	case k == row.KindDecimal:
		p, s := t.Precision(), t.Scale()
		return DecCode(t, parse(c, a.Bytes, func(b []byte) (row.Dec, error) { return row.ParseDec(b, p, s) }))
	case k == row.KindDate:
		return IntCode(t, parse(c, a.Bytes, row.ParseDate))
	case k == row.KindTime:
		return IntCode(t, parse(c, a.Bytes, func(b []byte) (int64, error) {
			ms, err := row.ParseTime(b)
			return truncTime(ms, t.Precision()), err
		}))
	case k == row.KindTimestamp, k == row.KindTimestampLTZ:
		return StampCode(t, parse(c, a.Bytes, func(b []byte) (Stamp, error) {
			ms, nanos, err := row.ParseTimestamp(b)
			if err == nil && k == row.KindTimestampLTZ {
				ms = env.Zone.Instant(ms)
			}
			ms, nanos = row.TruncTimestamp(ms, nanos, t.Precision())
			return Stamp{ms, nanos}, err
		}))
	}
	return BytesCode(t, c.fitBytes(a.Bytes))
}

func truncTime(ms int64, digits int) int64 {
	switch digits {
	case 0:
		return ms - ms%1000
	case 1:
		return ms - ms%100
	case 2:
		return ms - ms%10
	}
	return ms
}

// fitBytes cuts bytes to the length of the type, and fills a BINARY with zeros.
func (c caster) fitBytes(a Get[[]byte]) Get[[]byte] {
	n := c.t.Length()
	if n == row.MaxLength {
		return a
	}
	fixed := c.t.Kind() == row.KindBinary
	return func(r *row.Row) ([]byte, bool) {
		b, ok := a(r)
		if !ok || len(b) == n || len(b) < n && !fixed {
			return b, ok
		}
		if len(b) > n {
			return b[:n:n], true
		}
		out := append(c.env.Arena.Begin(), b...)
		for len(out) < n {
			out = append(out, 0)
		}
		return c.env.Arena.Keep(out), true
	}
}

// fitText cuts text to the length of the type, in code points, and fills a CHAR with blanks.
func fitText(env *Env, a Get[[]byte], t *row.Type) Get[[]byte] {
	n := t.Length()
	if n == row.MaxLength {
		return a
	}
	fixed := t.Kind() == row.KindChar
	return func(r *row.Row) ([]byte, bool) {
		b, ok := a(r)
		if !ok || len(b) <= n && !fixed {
			return b, ok
		}
		count := utf8.RuneCount(b)
		switch {
		case count > n:
			end := runeOffset(b, n)
			return b[:end:end], true
		case count == n || !fixed:
			return b, true
		}
		out := append(env.Arena.Begin(), b...)
		for ; count < n; count++ {
			out = append(out, ' ')
		}
		return env.Arena.Keep(out), true
	}
}

// runeOffset is where code point n of b starts, len(b) if there are fewer.
func runeOffset(b []byte, n int) int {
	i := 0
	for ; n > 0 && i < len(b); n-- {
		if b[i] < utf8.RuneSelf {
			i++
			continue
		}
		_, size := utf8.DecodeRune(b[i:])
		i += size
	}
	return i
}

func (c caster) toText(a Code) Code {
	from, env := a.Type, c.env
	if from.Kind().Text() || from.Kind().Bytes() {
		if t := c.t; t.Length() >= from.Length() && (t.Kind() == row.KindVarChar || from.Kind() == row.KindChar && t.Length() == from.Length()) {
			return BytesCode(t, a.Bytes)
		}
		return BytesCode(c.t, fitText(env, a.Bytes, c.t))
	}
	get := a.Values()
	return BytesCode(c.t, fitText(env, func(r *row.Row) ([]byte, bool) {
		v := get(r)
		if v.Null {
			return nil, false
		}
		return env.Arena.Keep(row.AppendText(env.Arena.Begin(), from, v.X, v.Y, v.B, env.Zone)), true
	}, c.t))
}

func (c caster) number(a Code) Code {
	t, from := c.t, a.Type
	if from.Kind() == row.KindBoolean {
		a = IntCode(row.TinyInt(), boolInts(a))
		from = a.Type
	}
	p, s := t.Precision(), t.Scale()
	switch k := t.Kind(); {
	case from.Kind().Approximate():
		switch {
		case k == row.KindBoolean:
			return BoolCode(t, lift1(a.Float, func(x float64) bool { return x != 0 }))
		case k.Approximate():
			if a.Const && k == row.KindDouble {
				// A constant keeps the digits that were written, as in Flink's planner.
				return FloatCode(t, lift1(a.Float, func(x float64) float64 {
					v, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'g', -1, 32), 64)
					return v
				}))
			}
			return FloatCode(t, a.Float)
		case k == row.KindDecimal:
			return DecCode(t, try1(a.Float, func(x float64) (row.Dec, bool) {
				if math.IsNaN(x) || math.IsInf(x, 0) {
					c.refuse(row.AppendDouble(nil, x), errors.New("it is no number with digits"))
					return row.Dec{}, false
				}
				return row.DecOfDouble(x, p, s)
			}))
		}
		size := max(32, bitSize(k))
		return IntCode(t, lift1(a.Float, func(x float64) int64 { return wrap(k, row.DoubleToInt(x, size)) }))
	case from.Kind() == row.KindDecimal:
		scale := from.Scale()
		switch {
		case k == row.KindBoolean:
			return BoolCode(t, lift1(a.Decs(), func(d row.Dec) bool { return d.Sign() != 0 }))
		case k.Approximate():
			return FloatCode(t, lift1(a.Decs(), func(d row.Dec) float64 { return d.ToDouble(scale) }))
		case k == row.KindDecimal:
			return DecCode(t, try1(a.Decs(), func(d row.Dec) (row.Dec, bool) { return d.Rescale(scale, s, p) }))
		}
		return IntCode(t, lift1(a.Decs(), func(d row.Dec) int64 { return wrap(k, int64(d.Trunc(scale, 0).Lo)) }))
	case k == row.KindBoolean:
		return BoolCode(t, lift1(a.Int, func(x int64) bool { return x != 0 }))
	case k == row.KindFloat:
		return FloatCode(t, lift1(a.Int, func(x int64) float64 { return float64(float32(x)) }))
	case k == row.KindDouble:
		return FloatCode(t, lift1(a.Int, func(x int64) float64 { return float64(x) }))
	case k == row.KindDecimal:
		if d, _ := Exact(from); p <= 18 && d+s <= p {
			return IntCode(t, scaledInt(a, s).Int)
		}
		return DecCode(t, try1(a.Int, func(x int64) (row.Dec, bool) { return row.DecInt(x).Rescale(0, s, p) }))
	case k > from.Kind():
		return IntCode(t, a.Int)
	default:
		return IntCode(t, lift1(a.Int, func(x int64) int64 { return wrap(k, x) }))
	}
}

func (c caster) time(a Code) Code {
	t, env := c.t, c.env
	from, to, digits := a.Type.Kind(), t.Kind(), t.Precision()
	// All goes by local time.
	var local Get[Stamp]
	switch from {
	case row.KindDate:
		local = lift1(a.Int, func(d int64) Stamp { return Stamp{d * row.MsPerDay, 0} })
	case row.KindTime:
		local = lift1(a.Int, func(ms int64) Stamp { return Stamp{ms, 0} })
	case row.KindTimestampLTZ:
		if to != from {
			local = lift1(a.Stamps(), func(s Stamp) Stamp { return Stamp{env.Zone.Local(s.Ms), s.Nanos} })
			break
		}
		fallthrough
	default:
		local = a.Stamps()
	}
	switch to {
	case row.KindDate:
		return IntCode(t, lift1(local, func(s Stamp) int64 { return row.FloorDiv(s.Ms, row.MsPerDay) }))
	case row.KindTime:
		return IntCode(t, lift1(local, func(s Stamp) int64 { return truncTime(row.FloorMod(s.Ms, row.MsPerDay), digits) }))
	}
	if from != row.KindTimestampLTZ && to == row.KindTimestampLTZ {
		wall := local
		local = lift1(wall, func(s Stamp) Stamp { return Stamp{env.Zone.Instant(s.Ms), s.Nanos} })
	} else if a.Int != nil && digits >= a.Type.Precision() && ClassOf(t) == ClassInt && from == to {
		return IntCode(t, a.Int)
	}
	return StampCode(t, lift1(local, func(s Stamp) Stamp {
		s.Ms, s.Nanos = row.TruncTimestamp(s.Ms, s.Nanos, digits)
		return s
	}))
}

// valueCast makes a function that casts single values, for the elements of nested ones.
func (c caster) valueCast(from, to *row.Type) (func(v Const) Const, error) {
	if from.Plain() == to.Plain() {
		return func(v Const) Const { return v }, nil
	}
	var cell Const
	code, err := Cast(c.env, CodeOf(from, func(*row.Row) Const { return cell }), to, false)
	if err != nil {
		return nil, err
	}
	get := code.Values()
	return func(v Const) Const {
		cell = v
		return get(nil)
	}, nil
}

func (c caster) nested(a Code) (Code, error) {
	f, err := c.nestedValue(a.Type, c.t)
	if err != nil {
		return Code{}, err
	}
	get := a.Bytes
	return BytesCode(c.t, func(r *row.Row) (b []byte, ok bool) {
		v, ok := get(r)
		if !ok {
			return nil, false
		}
		if c.try {
			defer func() {
				if p := recover(); p != nil {
					if _, fails := p.(*Failure); !fails {
						panic(p)
					}
					b, ok = nil, false
				}
			}()
		}
		return f(v), true
	}), nil
}

func (c caster) nestedValue(from, to *row.Type) (func(b []byte) []byte, error) {
	env := c.env
	switch to.Kind() {
	case row.KindArray:
		elem, err := c.valueCast(from.Elem(), to.Elem())
		if err != nil {
			return nil, err
		}
		out := newArrayWriter(to)
		return func(b []byte) []byte {
			v := row.ViewArray(from, b)
			w := out.begin()
			for i := range v.Len() {
				w.add(elem(element(v, i)))
			}
			return w.finish(env)
		}, nil
	case row.KindMap, row.KindMultiset:
		from1, to1 := mapTypes(from)
		from2, to2 := mapTypes(to)
		key, err := c.valueCast(from1, from2)
		if err != nil {
			return nil, err
		}
		value, err := c.valueCast(to1, to2)
		if err != nil {
			return nil, err
		}
		m := row.NewMapBuilder(to)
		return func(b []byte) []byte {
			v := row.ViewMap(from, b)
			m.Reset()
			for i := range v.Len() {
				addValue(&m.Keys, from2, key(element(v.Keys(), i)))
				addValue(&m.Values, to2, value(element(v.Values(), i)))
			}
			return env.Arena.Keep(m.Append(env.Arena.Begin()))
		}, nil
	}
	fields := make([]func(Const) Const, to.NumFields())
	for i := range fields {
		var err error
		if fields[i], err = c.valueCast(from.Field(i).Type, to.Field(i).Type); err != nil {
			return nil, err
		}
	}
	values := make([]Const, len(fields))
	build := row.NewRowBuilder(to)
	return func(b []byte) []byte {
		v := row.ViewRow(from, b)
		for i, f := range fields {
			values[i] = f(field(from, v, i))
		}
		return packRow(env, build, to, values)
	}, nil
}

// mapTypes is the types of the keys and values of a MAP or MULTISET.
func mapTypes(t *row.Type) (key, value *row.Type) {
	if t.Kind() == row.KindMultiset {
		return t.Elem(), row.Int().NotNull()
	}
	return t.Key(), t.Elem()
}

// addValue adds a value of the type to an array.
func addValue(a *row.ArrayBuilder, t *row.Type, v Const) {
	switch {
	case v.Null:
		a.AddNull()
	case ClassOf(t) == ClassBytes:
		a.AddBytes(v.B)
	default:
		a.AddWords(v.X, v.Y)
	}
}

func packRow(env *Env, b *row.RowBuilder, t *row.Type, values []Const) []byte {
	b.Reset()
	for i, v := range values {
		switch {
		case v.Null:
			b.AddNull()
		case ClassOf(t.Field(i).Type) == ClassBytes:
			b.AddBytes(v.B)
		default:
			b.AddWords(v.X, v.Y)
		}
	}
	return env.Arena.Keep(b.Append(env.Arena.Begin()))
}

// arrayWriter packs ARRAY values.
type arrayWriter struct {
	t     *row.Type
	build *row.ArrayBuilder
}

func newArrayWriter(t *row.Type) *arrayWriter { return &arrayWriter{t, row.NewArrayBuilder(t)} }

func (w *arrayWriter) begin() *arrayWriter {
	w.build.Reset()
	return w
}

func (w *arrayWriter) add(v Const) { addValue(w.build, w.t.Elem(), v) }

// finish puts the value into the arena.
func (w *arrayWriter) finish(env *Env) []byte {
	return env.Arena.Keep(w.build.Append(env.Arena.Begin()))
}
