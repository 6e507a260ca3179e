package naive

import (
	"cmp"
	"math"
	"math/big"
	"slices"
	"strings"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
)

func (e *eval) exprs(list []rel.Expr, v []row.Value) []row.Value {
	out := make([]row.Value, len(list))
	for i, x := range list {
		out[i] = e.expr(x, v)
	}
	return out
}

// holds says whether a condition is TRUE; nil is.
func (e *eval) holds(cond rel.Expr, v []row.Value) bool {
	return cond == nil || e.expr(cond, v) == true
}

// expr is the value of an expression for a row.
func (e *eval) expr(x rel.Expr, v []row.Value) row.Value {
	switch x := x.(type) {
	case *rel.Column:
		if x.Depth == 0 {
			return v[x.Index]
		}
		return e.outer[len(e.outer)-x.Depth][x.Index]
	case *rel.Literal:
		return value(x.Type(), x.Const)
	case *rel.Case:
		for _, w := range x.Whens {
			if e.holds(w.Cond, v) {
				return e.expr(w.Then, v)
			}
		}
		return e.expr(x.Else, v)
	case *rel.Field:
		if fields, ok := e.expr(x.X, v).([]row.Value); ok {
			return fields[x.Index]
		}
		return nil
	case *rel.Cast:
		code, err := fn.Cast(newEnv(), constant(x.X.Type(), e.expr(x.X, v)), x.Type(), x.Try)
		return evaluate(x.Type(), code, err)
	case *rel.Subquery:
		return e.subquery(x, v)
	case *rel.Call:
		return e.call(x, v)
	}
	unsupported(x)
	return nil
}

func newEnv() *fn.Env { return &fn.Env{Zone: row.UTC(), Watermark: math.MinInt64} }

// constant is a value as an argument of a function.
func constant(t *row.Type, v row.Value) fn.Code {
	if v == nil {
		return fn.ConstCode(t, fn.Const{Null: true})
	}
	var c fn.Const
	c.X, c.Y, c.B = t.Encode(v)
	return fn.ConstCode(t, c)
}

func value(t *row.Type, c fn.Const) row.Value {
	if c.Null {
		return nil
	}
	return t.Decode(c.X, c.Y, c.B)
}

// evaluate runs code that depends on no row.
func evaluate(t *row.Type, code fn.Code, err error) row.Value {
	if err == nil {
		var c fn.Const
		if c, err = code.TryEval(nil); err == nil {
			return value(t, c)
		}
	}
	fail("%w", err)
	return nil
}

func (e *eval) call(x *rel.Call, v []row.Value) row.Value {
	name := x.Func.Name
	switch name {
	case "AND", "OR":
		// FALSE decides AND, TRUE decides OR, else NULL makes it unknown.
		decides := name == "OR"
		var out row.Value = !decides
		for _, a := range x.Args {
			switch e.expr(a, v) {
			case decides:
				return decides
			case nil:
				out = nil
			}
		}
		return out
	}
	args := e.exprs(x.Args, v)
	switch name {
	case "IS NULL":
		return args[0] == nil
	case "IS NOT NULL":
		return args[0] != nil
	case "IS DISTINCT FROM", "IS NOT DISTINCT FROM":
		same := args[0] == nil && args[1] == nil
		if args[0] != nil && args[1] != nil {
			same = equal(x.Args[0].Type(), args[0], x.Args[1].Type(), args[1])
		}
		return same == (name == "IS NOT DISTINCT FROM")
	case "IS TRUE":
		return args[0] == true
	case "IS NOT TRUE":
		return args[0] != true
	case "IS FALSE":
		return args[0] == false
	case "IS NOT FALSE":
		return args[0] != false
	}
	if f := operators[name]; f != nil && !slices.Contains(args, nil) && comparableArgs(x.Args) {
		return f(x, args)
	}
	codes := make([]fn.Code, len(args))
	for i, a := range x.Args {
		codes[i] = constant(a.Type(), args[i])
	}
	if x.Func.Compile == nil {
		unsupported(x.Func.Name)
	}
	code, err := x.Func.Compile(newEnv(), codes, x.Type())
	return evaluate(x.Type(), code, err)
}

// comparableArgs says whether the operators of this package know the types: all but nested values.
func comparableArgs(args []rel.Expr) bool {
	return !slices.ContainsFunc(args, func(a rel.Expr) bool { return a.Type().Kind().Nested() })
}

// operators are those that are computed here, of arguments that are not NULL.
var operators = map[string]func(x *rel.Call, args []row.Value) row.Value{
	"=":   comparison(func(c int) bool { return c == 0 }),
	"<>":  comparison(func(c int) bool { return c != 0 }),
	"<":   comparison(func(c int) bool { return c < 0 }),
	"<=":  comparison(func(c int) bool { return c <= 0 }),
	">":   comparison(func(c int) bool { return c > 0 }),
	">=":  comparison(func(c int) bool { return c >= 0 }),
	"NOT": func(_ *rel.Call, args []row.Value) row.Value { return args[0] == false },
	"+":   arithmetic((*big.Rat).Add, func(a, b float64) float64 { return a + b }),
	"-":   arithmetic((*big.Rat).Sub, func(a, b float64) float64 { return a - b }),
	"*":   arithmetic((*big.Rat).Mul, func(a, b float64) float64 { return a * b }),
}

func comparison(f func(c int) bool) func(x *rel.Call, args []row.Value) row.Value {
	return func(x *rel.Call, args []row.Value) row.Value {
		a, b := args[0], args[1]
		if ta, tb := x.Args[0].Type(), x.Args[1].Type(); ta.Kind() == row.KindDecimal || tb.Kind() == row.KindDecimal {
			return f(exact(ta, a).Cmp(exact(tb, b)))
		}
		return f(order3(a, b))
	}
}

// arithmetic is exact for integers, which then wrap around, and for DECIMALs, which are NULL if they do not fit.
func arithmetic(f func(z, x, y *big.Rat) *big.Rat, floats func(a, b float64) float64) func(x *rel.Call, args []row.Value) row.Value {
	return func(x *rel.Call, args []row.Value) row.Value {
		t := x.Type()
		ta, tb := x.Args[0].Type(), x.Args[1].Type()
		number := func(k row.Kind) bool { return k.Integer() || k == row.KindDecimal }
		switch {
		case t.Kind().Approximate() && ta.Kind().Approximate() && tb.Kind().Approximate():
			v := floats(args[0].(float64), args[1].(float64))
			if t.Kind() == row.KindFloat {
				v = float64(float32(v))
			}
			return v
		case number(t.Kind()) && number(ta.Kind()) && number(tb.Kind()):
			return rounded(t, f(new(big.Rat), exact(ta, args[0]), exact(tb, args[1])))
		}
		code, err := x.Func.Compile(newEnv(), []fn.Code{constant(ta, args[0]), constant(tb, args[1])}, t)
		return evaluate(t, code, err)
	}
}

// exact is the value of an integer or DECIMAL.
func exact(t *row.Type, v row.Value) *big.Rat {
	if d, ok := v.(row.Dec); ok {
		return new(big.Rat).SetFrac(bigOf(d), power10(t.Scale()))
	}
	return new(big.Rat).SetInt64(v.(int64))
}

func bigOf(d row.Dec) *big.Int {
	n := new(big.Int).Lsh(big.NewInt(d.Hi), 64)
	return n.Add(n, new(big.Int).SetUint64(d.Lo))
}

func power10(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// rounded brings a number to a type: integers wrap around, DECIMALs are rounded half up (away from zero) and NULL if they have
// too many digits.
func rounded(t *row.Type, r *big.Rat) row.Value {
	if t.Kind().Integer() {
		return wrap(t.Kind(), r.Num())
	}
	r = new(big.Rat).Mul(r, new(big.Rat).SetInt(power10(t.Scale())))
	num, den := new(big.Int).Abs(r.Num()), r.Denom()
	num.Mul(num, big.NewInt(2)).Add(num, den)
	q := num.Quo(num, new(big.Int).Mul(den, big.NewInt(2)))
	if q.Cmp(power10(t.Precision())) >= 0 {
		return nil
	}
	if r.Sign() < 0 {
		q.Neg(q)
	}
	lo := new(big.Int).And(q, new(big.Int).SetUint64(math.MaxUint64))
	return row.Dec{Lo: lo.Uint64(), Hi: new(big.Int).Rsh(q, 64).Int64()}
}

// wrap is an integer as the type has it, which may be too small for it.
func wrap(k row.Kind, n *big.Int) int64 {
	v := int64(new(big.Int).And(n, new(big.Int).SetUint64(math.MaxUint64)).Uint64())
	switch k {
	case row.KindTinyInt:
		return int64(int8(v))
	case row.KindSmallInt:
		return int64(int16(v))
	case row.KindInt:
		return int64(int32(v))
	}
	return v
}

// order3 compares values of one type that are not NULL: -1, 0 or 1.
func order3(a, b row.Value) int {
	switch x := a.(type) {
	case bool:
		y := b.(bool)
		switch {
		case x == y:
			return 0
		case y:
			return -1
		}
		return 1
	case int64:
		return cmp.Compare(x, b.(int64))
	case float64:
		return cmp.Compare(x, b.(float64))
	case string:
		return strings.Compare(x, b.(string))
	case []byte:
		return slices.Compare(x, b.([]byte))
	case row.Dec:
		return bigOf(x).Cmp(bigOf(b.(row.Dec)))
	case row.Stamp:
		y := b.(row.Stamp)
		return cmp.Or(cmp.Compare(x.Ms, y.Ms), cmp.Compare(x.Nanos, y.Nanos))
	}
	unsupported("the order of nested values")
	return 0
}

func (e *eval) subquery(x *rel.Subquery, v []row.Value) row.Value {
	left := e.exprs(x.X, v)
	was := e.emptyRow
	e.emptyRow = rel.Correlated(x.Node)
	rows := e.within(v, x.Node).rows
	e.emptyRow = was
	switch x.Kind {
	case rel.ScalarQuery:
		switch {
		case len(rows) > 1:
			fail("a scalar subquery has %d rows", len(rows))
		case len(rows) == 1:
			return rows[0].v[0]
		}
		return nil
	case rel.ExistsQuery:
		return (len(rows) > 0) != x.Not
	case rel.InQuery:
		if e.asValue && len(rows) == 0 && !rel.Correlated(x.Node) {
			e.leftOpen("IN as a value: rows come once the query has some, as in Flink")
		}
		// TRUE if a row is equal, else unknown if one may be.
		var out row.Value = false
		for _, r := range rows {
			var all row.Value = true
			for i, l := range left {
				switch {
				case l == nil || r.v[i] == nil:
					if all == true {
						all = nil
					}
				case !equal(x.X[i].Type(), l, x.Node.Schema().Types[i], r.v[i]):
					all = false
				}
			}
			if all == true {
				out = true
				break
			}
			if all == nil {
				out = nil
			}
		}
		if x.Not && out != nil {
			return out == false
		}
		return out
	}
	all := x.Kind == rel.AllQuery
	if len(rows) == 0 && !rel.Correlated(x.Node) {
		e.leftOpen("ANY and ALL: rows come once the query has some, as in Flink")
	}
	var out row.Value = all
	for _, r := range rows {
		switch {
		case left[0] == nil || r.v[0] == nil:
			if out == all {
				out = nil
			}
		case compares(x.Op, order(x.X[0].Type(), left[0], x.Node.Schema().Types[0], r.v[0])) != all:
			return !all
		}
	}
	return out
}

// compares says whether an operator holds for values that compare as c.
func compares(op string, c int) bool {
	switch op {
	case "=":
		return c == 0
	case "<>":
		return c != 0
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	}
	return c >= 0
}

// equal says whether values of two types are, which may be numbers of different ones.
func equal(ta *row.Type, a row.Value, tb *row.Type, b row.Value) bool {
	if ta.Kind().Nested() {
		return keyOf(a) == keyOf(b)
	}
	return order(ta, a, tb, b) == 0
}

// order compares values of two types, which may be numbers of different ones.
func order(ta *row.Type, a row.Value, tb *row.Type, b row.Value) int {
	number := func(t *row.Type) bool { return t.Kind().Integer() || t.Kind() == row.KindDecimal }
	switch {
	case number(ta) && number(tb):
		return exact(ta, a).Cmp(exact(tb, b))
	case ta.Kind() != tb.Kind() && !(ta.Kind().Text() && tb.Kind().Text()):
		unsupported("a comparison of different types")
	}
	return order3(a, b)
}
