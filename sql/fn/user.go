package fn

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"time"

	"github.com/millrace-stream/millrace/row"
)

// ErrNull is what a user's function returns as its error for the result NULL.
var ErrNull = errors.New("NULL")

// Value is what user functions take and give: bool is BOOLEAN, int8 to int64 are TINYINT to BIGINT, float32 FLOAT, float64
// DOUBLE, string STRING, []byte BYTES, time.Time TIMESTAMP_LTZ(3). A []byte is valid for the call.
type Value interface {
	bool | int8 | int16 | int32 | int64 | float32 | float64 | string | []byte | time.Time
}

// typeFor is the type of SQL of a Go type.
func typeFor[T Value]() *row.Type {
	switch any(*new(T)).(type) {
	case bool:
		return row.Boolean()
	case int8:
		return row.TinyInt()
	case int16:
		return row.SmallInt()
	case int32:
		return row.Int()
	case int64:
		return row.BigInt()
	case float32:
		return row.Float()
	case float64:
		return row.Double()
	case string:
		return row.String()
	case []byte:
		return row.Bytes()
	}
	return row.TimestampLTZ(3)
}

// goValue makes the Go value of a value of SQL.
func goValue[T Value](c Const, code Code) T {
	var v any
	switch any(*new(T)).(type) {
	case bool:
		v = c.X != 0
	case int8:
		v = int8(c.X)
	case int16:
		v = int16(c.X)
	case int32:
		v = int32(c.X)
	case int64:
		v = int64(c.X)
	case float32:
		f, _ := ConstCode(code.Type, c).Float(nil)
		v = float32(f)
	case float64:
		f, _ := ConstCode(code.Type, c).Float(nil)
		v = f
	case string:
		v = string(c.B)
	case []byte:
		v = c.B
	default:
		v = time.UnixMilli(int64(c.X)).UTC()
	}
	return v.(T)
}

// reader reads arguments as Go values.
func reader[T Value](c Code) Get[T] {
	switch any(*new(T)).(type) {
	case int64:
		return any(c.Int).(Get[T])
	case float64:
		return any(c.Float).(Get[T])
	case []byte:
		return any(c.Bytes).(Get[T])
	case string:
		get := c.Bytes
		return any(func(r *row.Row) (string, bool) {
			b, ok := get(r)
			return string(b), ok
		}).(Get[T])
	case bool:
		return any(c.Bools()).(Get[T])
	}
	get := c.Values()
	return func(r *row.Row) (v T, ok bool) {
		x := get(r)
		if x.Null {
			return v, false
		}
		return goValue[T](x, c), true
	}
}

// sqlValue is a Go value as SQL has it; text goes into the arena.
func sqlValue(env *Env, v any) Const {
	switch v := v.(type) {
	case bool:
		return Const{X: uint64(truth(v))}
	case int8:
		return Const{X: uint64(v)}
	case int16:
		return Const{X: uint64(v)}
	case int32:
		return Const{X: uint64(v)}
	case int64:
		return Const{X: uint64(v)}
	case float32:
		return Const{X: math.Float64bits(float64(v))}
	case float64:
		return Const{X: math.Float64bits(v)}
	case string:
		return Const{B: env.keep(v)}
	case []byte:
		return Const{B: env.Arena.Keep(append(env.Arena.Begin(), v...))}
	case time.Time:
		return Const{X: uint64(v.UnixMilli())}
	}
	return Const{Null: true}
}

// userWant takes what can be widened to the type of T without loss.
func userWant[T Value]() want {
	t := typeFor[T]()
	return want{t.Text(), func(a Arg) *row.Type {
		k, u := t.Kind(), a.Type.Kind()
		switch {
		case isNull(a), k == u, k.Integer() && u.Integer() && u < k, k == row.KindVarChar && u.Text(), k.Bytes() && u.Bytes(),
			k == row.KindDouble && u.Numeric(), k == row.KindFloat && u.Integer(), k == row.KindTimestampLTZ && u == row.KindTimestamp:
			return like(t, a)
		}
		return nil
	}}
}

// userFailure makes of a user's error NULL or a Failure.
func userFailure(at Place, name string, err error) bool {
	if errors.Is(err, ErrNull) {
		return false
	}
	at.failf("%s: %s", name, err)
	return false
}

func userFunc[R Value](name string, wants []want, compile func(env *Env, args []Code) func(r *row.Row) (R, bool, error)) *Func {
	t := typeFor[R]()
	return &Func{
		Name: name, Group: "user", Fails: true, Purity: Volatile, Syntax: name + "(..)", Doc: "A user's function.",
		Resolve: sigs(of(nullable(t), wants...)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			at, f := env.Place, compile(env, args)
			return CodeOf(t, func(r *row.Row) Const {
				v, ok, err := f(r)
				if err != nil {
					ok = userFailure(at, name, err)
				}
				if !ok {
					return Const{Null: true}
				}
				return sqlValue(env, v)
			}), nil
		},
	}
}

// Scalar0 is a scalar function of no argument. Set Purity to Pure or PerRecord on the result if that is what it is: a
// user's function counts as Volatile, it is called for each row.
func Scalar0[R Value](name string, f func(env *Env) (R, error)) *Func {
	return userFunc(name, nil, func(env *Env, _ []Code) func(r *row.Row) (R, bool, error) {
		return func(*row.Row) (R, bool, error) {
			v, err := f(env)
			return v, true, err
		}
	})
}

// Scalar1 is a scalar function of one argument: NULL for NULL. f returns ErrNull for the result NULL; another error is a
// run-time error of the row.
func Scalar1[A, R Value](name string, f func(env *Env, a A) (R, error)) *Func {
	return userFunc(name, []want{userWant[A]()}, func(env *Env, args []Code) func(r *row.Row) (R, bool, error) {
		x := reader[A](args[0])
		return func(r *row.Row) (v R, ok bool, err error) {
			a, ok := x(r)
			if !ok {
				return v, false, nil
			}
			v, err = f(env, a)
			return v, true, err
		}
	})
}

// Scalar2 is a scalar function of two arguments, see Scalar1.
func Scalar2[A, B, R Value](name string, f func(env *Env, a A, b B) (R, error)) *Func {
	return userFunc(name, []want{userWant[A](), userWant[B]()}, func(env *Env, args []Code) func(r *row.Row) (R, bool, error) {
		x, y := reader[A](args[0]), reader[B](args[1])
		return func(r *row.Row) (v R, ok bool, err error) {
			a, ok1 := x(r)
			b, ok2 := y(r)
			if !ok1 || !ok2 {
				return v, false, nil
			}
			v, err = f(env, a, b)
			return v, true, err
		}
	})
}

// Scalar3 is a scalar function of three arguments, see Scalar1.
func Scalar3[A, B, C, R Value](name string, f func(env *Env, a A, b B, c C) (R, error)) *Func {
	return userFunc(name, []want{userWant[A](), userWant[B](), userWant[C]()}, func(env *Env, args []Code) func(r *row.Row) (R, bool, error) {
		x, y, z := reader[A](args[0]), reader[B](args[1]), reader[C](args[2])
		return func(r *row.Row) (v R, ok bool, err error) {
			a, ok1 := x(r)
			b, ok2 := y(r)
			c, ok3 := z(r)
			if !ok1 || !ok2 || !ok3 {
				return v, false, nil
			}
			v, err = f(env, a, b, c)
			return v, true, err
		}
	})
}

// Aggregate1 is an aggregate of one argument. S is kept as JSON: its exported fields. NULL arguments are not added. retract
// and merge may be nil: a withdrawn row then makes the aggregate count the others anew. value returns ErrNull for NULL.
func Aggregate1[S any, A, R Value](name string, add, retract func(s *S, a A) error, merge func(s *S, from S) error, value func(s S) (R, error)) *Func {
	agg := Agg{Store: Replay, Arrival: true}
	if retract != nil {
		agg.Store = NoStore
	}
	agg.Compile = func(env *Env, args []Code, t *row.Type) (*Acc, error) {
		at, get := env.Place, reader[A](args[0])
		load := func(s State) (v S) {
			if s.S[0] != nil {
				if err := json.Unmarshal(s.S[0], &v); err != nil {
					at.failf("%s: read state: %s", name, err)
				}
			}
			return v
		}
		save := func(s State, v S, err error) {
			if err == nil {
				s.S[0], err = json.Marshal(v)
			}
			if err != nil {
				at.failf("%s: %s", name, err)
			}
		}
		a := acc(0, 1, func(s *State) Code {
			return CodeOf(t, func(*row.Row) Const {
				v, err := value(load(*s))
				if err != nil {
					userFailure(at, name, err)
					return Const{Null: true}
				}
				return sqlValue(env, v)
			})
		})
		step := func(f func(*S, A) error) func(State, *row.Row) {
			return func(s State, r *row.Row) {
				if v, ok := get(r); ok {
					x := load(s)
					err := f(&x, v)
					save(s, x, err)
				}
			}
		}
		a.Add = step(add)
		if retract != nil {
			a.Retract = step(retract)
		}
		if merge != nil {
			a.Merge = func(s, from State) {
				x := load(s)
				err := merge(&x, load(from))
				save(s, x, err)
			}
		}
		return a, nil
	}
	f := aggFunc(name, nil, name+"(value)", "A user's aggregate.", sigs(of(nullable(typeFor[R]()), userWant[A]())), agg)
	f.Group = "user"
	return f
}

// Table1 is a table function of one argument: f calls emit for each row. R is a struct, whose exported fields are the
// columns (a tag `sql:"name"` names one), of the Go types of Value. A NULL argument gives no row.
func Table1[A Value, R any](name string, f func(env *Env, a A, emit func(R) error) error) (*Func, error) {
	rt := reflect.TypeFor[R]()
	if rt.Kind() != reflect.Struct {
		return nil, fmt.Errorf("declare table function %s: rows are a struct, not %s", name, rt)
	}
	var columns []row.Field
	var index []int
	for i := range rt.NumField() {
		sf := rt.Field(i)
		if !sf.IsExported() {
			continue
		}
		t := reflectType(sf.Type)
		if t == nil {
			return nil, fmt.Errorf("declare table function %s: field %s has the type %s, which is none of SQL", name, sf.Name, sf.Type)
		}
		column := sf.Name
		if tag := sf.Tag.Get("sql"); tag != "" {
			column = tag
		}
		columns, index = append(columns, row.Field{Name: column, Type: t}), append(index, i)
	}
	types := make([]*row.Type, len(columns))
	for i, c := range columns {
		types[i] = c.Type
	}
	layout := row.NewLayout(types...)
	fn := &Func{
		Name: name, Kind: Table, Group: "user", Fails: true, Purity: Volatile, Syntax: name + "(value)", Doc: "A user's table function.",
		Resolve: sigs(of(notNull(row.RowOf(columns...)), userWant[A]())),
	}
	fn.Rows = func(env *Env, args []Code, _ *row.Type) (func(r *row.Row, emit func(out *row.Row) error) error, error) {
		at, get, out := env.Place, reader[A](args[0]), layout.New()
		return func(r *row.Row, emit func(out *row.Row) error) error {
			a, ok := get(r)
			if !ok {
				return nil
			}
			var failed error
			err := f(env, a, func(v R) error {
				rv := reflect.ValueOf(v)
				for i, j := range index {
					c := sqlValue(env, rv.Field(j).Interface())
					p := layout.Place(i)
					out.PutNull(i, c.Null)
					if p.Bank == row.Views {
						out.SetBytes(p.Index, c.B)
					} else {
						out.W[p.Index] = c.X
					}
				}
				failed = emit(out)
				return failed
			})
			if failed != nil {
				return failed
			}
			if err != nil {
				userFailure(at, name, err)
			}
			return nil
		}, nil
	}
	return fn, nil
}

func reflectType(t reflect.Type) *row.Type {
	switch t {
	case reflect.TypeFor[[]byte]():
		return row.Bytes()
	case reflect.TypeFor[time.Time]():
		return row.TimestampLTZ(3)
	}
	if t.PkgPath() != "" {
		return nil // a defined type: its values are none of those that sqlValue knows
	}
	switch t.Kind() {
	case reflect.Bool:
		return row.Boolean()
	case reflect.Int8:
		return row.TinyInt()
	case reflect.Int16:
		return row.SmallInt()
	case reflect.Int32:
		return row.Int()
	case reflect.Int64:
		return row.BigInt()
	case reflect.Float32:
		return row.Float()
	case reflect.Float64:
		return row.Double()
	case reflect.String:
		return row.String()
	}
	return nil
}
