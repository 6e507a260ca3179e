package fn

import (
	"bytes"
	"fmt"
	"math"

	"github.com/millrace-stream/millrace/row"
)

// Get reads a value of a row; ok is false for NULL.
type Get[T any] = func(r *row.Row) (v T, ok bool)

// Stamp is a TIMESTAMP or TIMESTAMP_LTZ of any precision: ms since 1970-01-01, and nanoseconds in that ms.
type Stamp struct{ Ms, Nanos int64 }

// Class is which closure of a Code is set.
type Class uint8

// The classes of types.
const (
	ClassBool Class = iota
	ClassInt
	ClassFloat
	ClassDec
	ClassStamp
	ClassBytes
)

// ClassOf is the class of a type. The type of a bare NULL counts as an integer.
func ClassOf(t *row.Type) Class {
	switch k := t.Kind(); {
	case k == row.KindBoolean:
		return ClassBool
	case k.Approximate():
		return ClassFloat
	case k == row.KindDecimal && t.Precision() > 18:
		return ClassDec
	case (k == row.KindTimestamp || k == row.KindTimestampLTZ) && t.Precision() > 3:
		return ClassStamp
	case k.Text(), k.Bytes(), k.Nested():
		return ClassBytes
	}
	return ClassInt
}

func truth(b bool) Tri {
	var t Tri
	if b {
		t = True
	}
	return t
}

// IntCode makes the Code of a type of the class of integers.
func IntCode(t *row.Type, f Get[int64]) Code { return Code{Type: t, Int: f} }

// FloatCode makes the Code of a FLOAT or DOUBLE; values of a FLOAT are rounded.
func FloatCode(t *row.Type, f Get[float64]) Code {
	if t.Kind() == row.KindFloat {
		g := f
		f = func(r *row.Row) (float64, bool) {
			v, ok := g(r)
			return float64(float32(v)), ok
		}
	}
	return Code{Type: t, Float: f}
}

// BoolCode makes the Code of a BOOLEAN.
func BoolCode(t *row.Type, f Get[bool]) Code {
	return Code{Type: t, Cond: func(r *row.Row) Tri {
		v, ok := f(r)
		if !ok {
			return Unknown
		}
		return truth(v)
	}}
}

// CondCode makes the Code of a BOOLEAN of its truth values.
func CondCode(t *row.Type, f func(r *row.Row) Tri) Code { return Code{Type: t, Cond: f} }

// BytesCode makes the Code of text, bytes and nested values.
func BytesCode(t *row.Type, f Get[[]byte]) Code { return Code{Type: t, Bytes: f} }

// DecCode makes the Code of a DECIMAL of any precision; values fit the type.
func DecCode(t *row.Type, f Get[row.Dec]) Code {
	if ClassOf(t) == ClassDec {
		return Code{Type: t, Dec: f}
	}
	return Code{Type: t, Int: func(r *row.Row) (int64, bool) {
		d, ok := f(r)
		return int64(d.Lo), ok
	}}
}

// StampCode makes the Code of a TIMESTAMP or TIMESTAMP_LTZ of any precision.
func StampCode(t *row.Type, f Get[Stamp]) Code {
	if ClassOf(t) == ClassStamp {
		return Code{Type: t, Stamp: func(r *row.Row) (int64, int64, bool) {
			s, ok := f(r)
			return s.Ms, s.Nanos, ok
		}}
	}
	return Code{Type: t, Int: func(r *row.Row) (int64, bool) {
		s, ok := f(r)
		return s.Ms, ok
	}}
}

// Bools reads a BOOLEAN.
func (c Code) Bools() Get[bool] {
	f := c.Cond
	return func(r *row.Row) (bool, bool) {
		t := f(r)
		return t == True, t != Unknown
	}
}

// Decs reads a DECIMAL or integer of any precision as its unscaled number.
func (c Code) Decs() Get[row.Dec] {
	if c.Dec != nil {
		return c.Dec
	}
	f := c.Int
	return func(r *row.Row) (row.Dec, bool) {
		v, ok := f(r)
		return row.DecInt(v), ok
	}
}

// Stamps reads a TIMESTAMP or TIMESTAMP_LTZ of any precision.
func (c Code) Stamps() Get[Stamp] {
	if f := c.Stamp; f != nil {
		return func(r *row.Row) (Stamp, bool) {
			ms, nanos, ok := f(r)
			return Stamp{ms, nanos}, ok
		}
	}
	f := c.Int
	return func(r *row.Row) (Stamp, bool) {
		v, ok := f(r)
		return Stamp{v, 0}, ok
	}
}

// Valid says of a row whether the value is not NULL.
func (c Code) Valid() func(r *row.Row) bool {
	switch {
	case c.Column != nil:
		i := c.Column.Index
		return func(r *row.Row) bool { return !r.Null(i) }
	case c.Cond != nil:
		f := c.Cond
		return func(r *row.Row) bool { return f(r) != Unknown }
	case c.Int != nil:
		f := c.Int
		return func(r *row.Row) bool { _, ok := f(r); return ok }
	case c.Float != nil:
		f := c.Float
		return func(r *row.Row) bool { _, ok := f(r); return ok }
	case c.Dec != nil:
		f := c.Dec
		return func(r *row.Row) bool { _, ok := f(r); return ok }
	case c.Stamp != nil:
		f := c.Stamp
		return func(r *row.Row) bool { _, _, ok := f(r); return ok }
	}
	f := c.Bytes
	return func(r *row.Row) bool { _, ok := f(r); return ok }
}

// Values reads any value as words and bytes, as a row would hold them. The bytes are not copied.
func (c Code) Values() func(r *row.Row) Const {
	switch {
	case c.Cond != nil:
		f := c.Cond
		return func(r *row.Row) Const {
			t := f(r)
			return Const{Null: t == Unknown, X: uint64(t & 1)}
		}
	case c.Int != nil:
		f := c.Int
		return func(r *row.Row) Const {
			v, ok := f(r)
			return Const{Null: !ok, X: uint64(v)}
		}
	case c.Float != nil:
		f := c.Float
		return func(r *row.Row) Const {
			v, ok := f(r)
			return Const{Null: !ok, X: math.Float64bits(v)}
		}
	case c.Dec != nil:
		f := c.Dec
		return func(r *row.Row) Const {
			v, ok := f(r)
			return Const{Null: !ok, X: v.Lo, Y: uint64(v.Hi)}
		}
	case c.Stamp != nil:
		f := c.Stamp
		return func(r *row.Row) Const {
			ms, nanos, ok := f(r)
			return Const{Null: !ok, X: uint64(ms), Y: uint64(nanos)}
		}
	}
	f := c.Bytes
	return func(r *row.Row) Const {
		b, ok := f(r)
		return Const{Null: !ok, B: b}
	}
}

// CodeOf makes the Code of a type of a function that reads values as words and bytes: the opposite of Values.
func CodeOf(t *row.Type, f func(r *row.Row) Const) Code {
	c := Code{Type: t}
	switch ClassOf(t) {
	case ClassBool:
		c.Cond = func(r *row.Row) Tri {
			v := f(r)
			if v.Null {
				return Unknown
			}
			return truth(v.X != 0)
		}
	case ClassFloat:
		c.Float = func(r *row.Row) (float64, bool) { v := f(r); return math.Float64frombits(v.X), !v.Null }
	case ClassDec:
		c.Dec = func(r *row.Row) (row.Dec, bool) { v := f(r); return row.Dec{Lo: v.X, Hi: int64(v.Y)}, !v.Null }
	case ClassStamp:
		c.Stamp = func(r *row.Row) (int64, int64, bool) { v := f(r); return int64(v.X), int64(v.Y), !v.Null }
	case ClassBytes:
		c.Bytes = func(r *row.Row) ([]byte, bool) { v := f(r); return v.B, !v.Null }
	default:
		c.Int = func(r *row.Row) (int64, bool) { v := f(r); return int64(v.X), !v.Null }
	}
	return c
}

// ConstCode is the Code of a constant.
func ConstCode(t *row.Type, v Const) Code {
	c := Code{Type: t, Const: true}
	ok := !v.Null
	switch ClassOf(t) {
	case ClassBool:
		b := Unknown
		if ok {
			b = truth(v.X != 0)
		}
		c.Cond = func(*row.Row) Tri { return b }
	case ClassFloat:
		x := math.Float64frombits(v.X)
		c.Float = func(*row.Row) (float64, bool) { return x, ok }
	case ClassDec:
		x := row.Dec{Lo: v.X, Hi: int64(v.Y)}
		c.Dec = func(*row.Row) (row.Dec, bool) { return x, ok }
	case ClassStamp:
		x, y := int64(v.X), int64(v.Y)
		c.Stamp = func(*row.Row) (int64, int64, bool) { return x, y, ok }
	case ClassBytes:
		x := v.B
		c.Bytes = func(*row.Row) ([]byte, bool) { return x, ok }
	default:
		x := int64(v.X)
		c.Int = func(*row.Row) (int64, bool) { return x, ok }
	}
	return c
}

// ColumnCode reads a column: t is its type, index its number, at its first word or its view.
func ColumnCode(t *row.Type, index, at int) Code {
	c := Code{Type: t, Column: &ColumnAt{index, at}}
	switch ClassOf(t) {
	case ClassBool:
		c.Cond = func(r *row.Row) Tri {
			if r.Null(index) {
				return Unknown
			}
			return Tri(r.W[at] & 1)
		}
	case ClassFloat:
		c.Float = func(r *row.Row) (float64, bool) { return math.Float64frombits(r.W[at]), !r.Null(index) }
	case ClassDec:
		c.Dec = func(r *row.Row) (row.Dec, bool) { return r.Dec(at), !r.Null(index) }
	case ClassStamp:
		c.Stamp = func(r *row.Row) (int64, int64, bool) {
			return int64(r.W[at]), int64(r.W[at+1]), !r.Null(index)
		}
	case ClassBytes:
		c.Bytes = func(r *row.Row) ([]byte, bool) { return r.S[at], !r.Null(index) }
	default:
		c.Int = func(r *row.Row) (int64, bool) { return int64(r.W[at]), !r.Null(index) }
	}
	return c
}

// Eval is the value of the code for a row (nil for a constant one), with bytes of its own. It panics with a *Failure as
// the closure does.
func (c Code) Eval(r *row.Row) Const {
	v := c.Values()(r)
	if v.Null {
		return Const{Null: true}
	}
	if v.B != nil {
		v.B = bytes.Clone(v.B)
	}
	return v
}

// TryEval is Eval with the failure as an error.
func (c Code) TryEval(r *row.Row) (v Const, err error) {
	defer func() {
		if p := recover(); p != nil {
			f, ok := p.(*Failure)
			if !ok {
				panic(p)
			}
			err = f
		}
	}()
	return c.Eval(r), nil
}

// failf panics with a Failure.
func (p Place) failf(format string, args ...any) {
	panic(&Failure{Message: fmt.Sprintf(format, args...), Place: p})
}

// noValue is the false of a function that has no value where its type says that there is one: that fails, as in Flink.
func (p Place) noValue(name string, t *row.Type) bool {
	if !t.IsNullable() {
		p.failf("%s: the result is NULL, but its type is %s", name, t)
	}
	return false
}

// constText is the value of a constant text argument.
func constText(c Code) (s string, ok bool) {
	if !c.Const {
		return "", false
	}
	b, ok := c.Bytes(nil)
	return string(b), ok
}

// isConst says whether the code is a constant that is not NULL.
func isConst(c Code) bool { return c.Const && c.Valid()(nil) }

// keep puts text into the arena.
func (env *Env) keep(s string) []byte {
	return env.Arena.Keep(append(env.Arena.Begin(), s...))
}

// The lifts make closures of plain functions: NULL if an argument is NULL.

func lift1[A, R any](a Get[A], f func(A) R) Get[R] {
	return func(r *row.Row) (v R, ok bool) {
		x, ok := a(r)
		if !ok {
			return v, false
		}
		return f(x), true
	}
}

func try1[A, R any](a Get[A], f func(A) (R, bool)) Get[R] {
	return func(r *row.Row) (v R, ok bool) {
		x, ok := a(r)
		if !ok {
			return v, false
		}
		return f(x)
	}
}

func lift2[A, B, R any](a Get[A], b Get[B], f func(A, B) R) Get[R] {
	return func(r *row.Row) (v R, ok bool) {
		x, ok1 := a(r)
		y, ok2 := b(r)
		if !ok1 || !ok2 {
			return v, false
		}
		return f(x, y), true
	}
}

func try2[A, B, R any](a Get[A], b Get[B], f func(A, B) (R, bool)) Get[R] {
	return func(r *row.Row) (v R, ok bool) {
		x, ok1 := a(r)
		y, ok2 := b(r)
		if !ok1 || !ok2 {
			return v, false
		}
		return f(x, y)
	}
}

func lift3[A, B, C, R any](a Get[A], b Get[B], c Get[C], f func(A, B, C) R) Get[R] {
	return func(r *row.Row) (v R, ok bool) {
		x, ok1 := a(r)
		y, ok2 := b(r)
		z, ok3 := c(r)
		if !ok1 || !ok2 || !ok3 {
			return v, false
		}
		return f(x, y, z), true
	}
}

func try3[A, B, C, R any](a Get[A], b Get[B], c Get[C], f func(A, B, C) (R, bool)) Get[R] {
	return func(r *row.Row) (v R, ok bool) {
		x, ok1 := a(r)
		y, ok2 := b(r)
		z, ok3 := c(r)
		if !ok1 || !ok2 || !ok3 {
			return v, false
		}
		return f(x, y, z)
	}
}

func constGet[T any](v T) Get[T] { return func(*row.Row) (T, bool) { return v, true } }
