package fn

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/millrace-stream/millrace/row"
)

func resolveArithmetic(op string) func(args []Arg) (Resolved, error) {
	return func(args []Arg) (Resolved, error) {
		if len(args) != 2 {
			return Resolved{}, fmt.Errorf("%s takes two values, not %d", op, len(args))
		}
		for _, a := range args {
			if isNull(a) {
				return Resolved{}, fmt.Errorf("a bare NULL has no type: write CAST(NULL AS type)")
			}
		}
		t, u := args[0].Type, args[1].Type
		a, b := t.Kind(), u.Kind()
		null := anyNullable(args)
		fit := func(result *row.Type, types ...*row.Type) (Resolved, error) {
			for i := range types {
				types[i] = like(types[i], args[i])
			}
			return Resolved{types, result.WithMark(row.NoMark).Nullable(null)}, nil
		}
		switch {
		case a.Numeric() && b.Numeric():
			if op == "%" {
				switch {
				case a.Approximate() || b.Approximate():
				case a == row.KindDecimal || b == row.KindDecimal:
					p1, s1 := Exact(t)
					p2, s2 := Exact(u)
					return fit(DecimalResult(op, p1, s1, p2, s2), t, u)
				default:
					return fit(u, t, u)
				}
				break
			}
			r := numericOf(t.Plain(), u.Plain())
			switch {
			case r.Kind().Approximate():
				return fit(r, r, r)
			case r.Kind() == row.KindDecimal:
				p1, s1 := Exact(t)
				p2, s2 := Exact(u)
				return fit(DecimalResult(op, p1, s1, p2, s2), t, u)
			}
			return fit(r, t, u)
		case a.Datetime() && b.Interval() && (op == "+" || op == "-"):
			return fit(t, t, u)
		case a.Interval() && b.Datetime() && op == "+":
			return fit(u, t, u)
		case a.Interval() && a == b && (op == "+" || op == "-"):
			return fit(t, t, u)
		case a.Interval() && b.Numeric() && (op == "*" || op == "/"):
			if b.Integer() {
				return fit(t, t, u)
			}
			return fit(t, t, row.Double())
		case a.Numeric() && b.Interval() && op == "*":
			if a.Integer() {
				return fit(u, t, u)
			}
			return fit(u, row.Double(), u)
		}
		err := fmt.Errorf("%s cannot be applied to %s and %s", op, t.Text(), u.Text())
		if op == "+" && (a.Text() || b.Text()) {
			err = fmt.Errorf("%w; text is joined with ||", err)
		}
		return Resolved{}, err
	}
}

func operator(op, doc string, examples ...Example) *Func {
	return &Func{
		Name: op, Group: "arithmetic", Resolve: resolveArithmetic(op), Fails: op == "/" || op == "%", Syntax: "value1 " + op + " value2",
		Compile: func(env *Env, args []Code, result *row.Type) (Code, error) {
			return arithmetic(env, op, args[0], args[1], result)
		},
		Doc: doc, Examples: examples,
	}
}

func arithmetic(env *Env, op string, a, b Code, t *row.Type) (Code, error) {
	at := env.Place
	if (op == "/" || op == "%") && isConst(a) && isConst(b) && isZero(b) {
		return Code{}, errors.New("division by zero")
	}
	switch k := t.Kind(); {
	case a.Type.Kind().Datetime():
		if op == "-" {
			b = negated(b)
		}
		return addInterval(a, b, t), nil
	case b.Type.Kind().Datetime():
		return addInterval(b, a, t), nil
	case k.Interval():
		return intervalArithmetic(at, op, a, b, t), nil
	case k.Approximate():
		return FloatCode(t, floatArithmetic(op, a.Float, b.Float)), nil
	case k == row.KindDecimal:
		return decimalArithmetic(at, op, a, b, t), nil
	case op == "%":
		return IntCode(t, modulo(at, a, b)), nil
	case k == row.KindTinyInt:
		return IntCode(t, intArithmetic[int8](at, op, a, b)), nil
	case k == row.KindSmallInt:
		return IntCode(t, intArithmetic[int16](at, op, a, b)), nil
	case k == row.KindInt:
		return IntCode(t, intArithmetic[int32](at, op, a, b)), nil
	}
	return IntCode(t, intArithmetic[int64](at, op, a, b)), nil
}

func isZero(c Code) bool {
	v := c.Eval(nil)
	return v.X<<1 == 0 && v.Y == 0
}

func negated(c Code) Code {
	f := c.Int
	return IntCode(c.Type, func(r *row.Row) (int64, bool) {
		v, ok := f(r)
		return -v, ok
	})
}

func divideByZero(at Place) { at.failf("divide: division by zero") }

// intArithmetic wraps as Java does. Columns and literals have forms of their own.
func intArithmetic[N int8 | int16 | int32 | int64](at Place, op string, a, b Code) Get[int64] {
	if isConst(a) && !isConst(b) && (op == "+" || op == "*") {
		a, b = b, a
	}
	x, y := a.Int, b.Int
	if isConst(b) {
		lit, _ := y(nil)
		if op == "-" {
			op, lit = "+", -lit
		}
		if c := a.Column; c != nil && op != "/" {
			i, w := c.Index, c.At
			if op == "+" {
				return func(r *row.Row) (int64, bool) { return int64(N(int64(r.W[w]) + lit)), !r.Null(i) }
			}
			return func(r *row.Row) (int64, bool) { return int64(N(int64(r.W[w]) * lit)), !r.Null(i) }
		}
		switch {
		case op == "+":
			return func(r *row.Row) (int64, bool) { v, ok := x(r); return int64(N(v + lit)), ok }
		case op == "*":
			return func(r *row.Row) (int64, bool) { v, ok := x(r); return int64(N(v * lit)), ok }
		case lit != 0:
			return func(r *row.Row) (int64, bool) { v, ok := x(r); return int64(N(v / lit)), ok }
		}
	}
	if a.Column != nil && b.Column != nil {
		i, v, j, w := a.Column.Index, a.Column.At, b.Column.Index, b.Column.At
		switch op {
		case "+":
			return func(r *row.Row) (int64, bool) {
				return int64(N(int64(r.W[v]) + int64(r.W[w]))), !r.Null(i) && !r.Null(j)
			}
		case "-":
			return func(r *row.Row) (int64, bool) {
				return int64(N(int64(r.W[v]) - int64(r.W[w]))), !r.Null(i) && !r.Null(j)
			}
		case "*":
			return func(r *row.Row) (int64, bool) {
				return int64(N(int64(r.W[v]) * int64(r.W[w]))), !r.Null(i) && !r.Null(j)
			}
		}
	}
	switch op {
	case "+":
		return func(r *row.Row) (int64, bool) {
			v, ok1 := x(r)
			w, ok2 := y(r)
			return int64(N(v + w)), ok1 && ok2
		}
	case "-":
		return func(r *row.Row) (int64, bool) {
			v, ok1 := x(r)
			w, ok2 := y(r)
			return int64(N(v - w)), ok1 && ok2
		}
	case "*":
		return func(r *row.Row) (int64, bool) {
			v, ok1 := x(r)
			w, ok2 := y(r)
			return int64(N(v * w)), ok1 && ok2
		}
	}
	return func(r *row.Row) (int64, bool) {
		v, ok1 := x(r)
		w, ok2 := y(r)
		if !ok1 || !ok2 {
			return 0, false
		}
		if w == 0 {
			divideByZero(at)
		}
		return int64(N(v / w)), true
	}
}

func modulo(at Place, a, b Code) Get[int64] {
	x, y := a.Int, b.Int
	if isConst(b) {
		if lit, _ := y(nil); lit != 0 {
			if c := a.Column; c != nil {
				i, w := c.Index, c.At
				return func(r *row.Row) (int64, bool) { return int64(r.W[w]) % lit, !r.Null(i) }
			}
			return func(r *row.Row) (int64, bool) { v, ok := x(r); return v % lit, ok }
		}
	}
	return func(r *row.Row) (int64, bool) {
		v, ok1 := x(r)
		w, ok2 := y(r)
		if !ok1 || !ok2 {
			return 0, false
		}
		if w == 0 {
			divideByZero(at)
		}
		return v % w, true
	}
}

func floatArithmetic(op string, a, b Get[float64]) Get[float64] {
	switch op {
	case "+":
		return func(r *row.Row) (float64, bool) {
			v, ok1 := a(r)
			w, ok2 := b(r)
			return v + w, ok1 && ok2
		}
	case "-":
		return func(r *row.Row) (float64, bool) {
			v, ok1 := a(r)
			w, ok2 := b(r)
			return v - w, ok1 && ok2
		}
	case "*":
		return func(r *row.Row) (float64, bool) {
			v, ok1 := a(r)
			w, ok2 := b(r)
			return v * w, ok1 && ok2
		}
	}
	return func(r *row.Row) (float64, bool) {
		v, ok1 := a(r)
		w, ok2 := b(r)
		return v / w, ok1 && ok2
	}
}

// decimalArithmetic is exact, then rounded half up to the type; what does not fit is NULL.
func decimalArithmetic(at Place, op string, a, b Code, t *row.Type) Code {
	p1, s1 := Exact(a.Type)
	p2, s2 := Exact(b.Type)
	p, s := t.Precision(), t.Scale()
	switch op {
	case "+", "-":
		if p <= 18 { // the type leaves room for both, scaled
			x, y := scaledInt(a, s-s1).Int, scaledInt(b, s-s2).Int
			if op == "+" {
				return IntCode(t, func(r *row.Row) (int64, bool) {
					v, ok1 := x(r)
					w, ok2 := y(r)
					return v + w, ok1 && ok2
				})
			}
			return IntCode(t, func(r *row.Row) (int64, bool) {
				v, ok1 := x(r)
				w, ok2 := y(r)
				return v - w, ok1 && ok2
			})
		}
		f := row.DecAdd
		if op == "-" {
			f = row.DecSub
		}
		return DecCode(t, try2(a.Decs(), b.Decs(), func(x, y row.Dec) (row.Dec, bool) { return f(x, s1, y, s2, p, s) }))
	case "*":
		drop := s1 + s2 - s
		if drop == 0 && ClassOf(a.Type) == ClassInt && ClassOf(b.Type) == ClassInt && p1+p2 <= p {
			return multiplySmall(a, b, t)
		}
		return DecCode(t, try2(a.Decs(), b.Decs(), func(x, y row.Dec) (row.Dec, bool) { return row.DecMul(x, y, drop, p) }))
	case "/":
		shift := s + s2 - s1
		return DecCode(t, try2(a.Decs(), b.Decs(), func(x, y row.Dec) (row.Dec, bool) {
			if y.Sign() == 0 {
				divideByZero(at)
			}
			return row.DecDiv(x, y, shift, p)
		}))
	}
	return DecCode(t, try2(a.Decs(), b.Decs(), func(x, y row.Dec) (row.Dec, bool) {
		if y.Sign() == 0 {
			divideByZero(at)
		}
		return row.DecMod(x, s1, y, s2, p, s)
	}))
}

// multiplySmall multiplies 64-bit numbers whose product fits the type.
func multiplySmall(a, b Code, t *row.Type) Code {
	if isConst(a) {
		a, b = b, a
	}
	x, y := a.Int, b.Int
	if ClassOf(t) == ClassInt {
		if isConst(b) {
			lit, _ := y(nil)
			return IntCode(t, func(r *row.Row) (int64, bool) { v, ok := x(r); return v * lit, ok })
		}
		return IntCode(t, func(r *row.Row) (int64, bool) {
			v, ok1 := x(r)
			w, ok2 := y(r)
			return v * w, ok1 && ok2
		})
	}
	if isConst(b) {
		lit, _ := y(nil)
		return DecCode(t, func(r *row.Row) (row.Dec, bool) { v, ok := x(r); return row.MulInt64(v, lit), ok })
	}
	return DecCode(t, func(r *row.Row) (row.Dec, bool) {
		v, ok1 := x(r)
		w, ok2 := y(r)
		return row.MulInt64(v, w), ok1 && ok2
	})
}

// addInterval adds an interval to a date or time.
func addInterval(a, d Code, t *row.Type) Code {
	months := d.Type.Kind() == row.KindIntervalMonth
	n := d.Int
	switch t.Kind() {
	case row.KindDate:
		if months {
			return IntCode(t, lift2(a.Int, n, row.AddMonths))
		}
		return IntCode(t, lift2(a.Int, n, func(days, ms int64) int64 { return days + ms/row.MsPerDay }))
	case row.KindTime:
		if months {
			return IntCode(t, lift2(a.Int, n, func(ms, _ int64) int64 { return ms }))
		}
		return IntCode(t, lift2(a.Int, n, func(ms, d int64) int64 { return row.FloorMod(ms+d, row.MsPerDay) }))
	}
	if ClassOf(t) == ClassInt {
		if months {
			return IntCode(t, lift2(a.Int, n, row.AddMonthsMs))
		}
		return IntCode(t, intArithmetic[int64](Place{}, "+", a, d))
	}
	if months {
		return StampCode(t, lift2(a.Stamps(), n, func(s Stamp, m int64) Stamp { return Stamp{row.AddMonthsMs(s.Ms, m), s.Nanos} }))
	}
	return StampCode(t, lift2(a.Stamps(), n, func(s Stamp, d int64) Stamp { return Stamp{s.Ms + d, s.Nanos} }))
}

func intervalArithmetic(at Place, op string, a, b Code, t *row.Type) Code {
	if a.Float != nil {
		a, b = b, a
	}
	if f := b.Float; f != nil {
		return IntCode(t, lift2(a.Int, f, func(x int64, y float64) int64 {
			if op == "/" {
				return javaLong(float64(x) / y)
			}
			return javaLong(float64(x) * y)
		}))
	}
	return IntCode(t, intArithmetic[int64](at, op, a, b))
}

// javaLong is Java's (long) of a double: towards zero, limited to the range, 0 for NaN.
func javaLong(f float64) int64 {
	switch {
	case f != f:
		return 0
	case f >= math.MaxInt64:
		return math.MaxInt64
	case f <= math.MinInt64:
		return math.MinInt64
	}
	return int64(f)
}

// wrap is Java's narrowing of a long.
func wrap(k row.Kind, v int64) int64 {
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

var arithmeticFuncs = []*Func{
	operator("+", "The sum; of a date or time and an interval, the later time. Integers wrap around, a DECIMAL that does not fit is NULL.",
		Example{"1 + 2", "INT NOT NULL", "3"}, Example{"0.1 + 0.2", "DECIMAL(3, 1) NOT NULL", "0.3"}),
	operator("-", "The difference; of a date or time and an interval, the earlier time.", Example{"1 - 2", "INT NOT NULL", "-1"}),
	operator("*", "The product.", Example{"1.5 * 2.25", "DECIMAL(6, 3) NOT NULL", "3.375"}),
	operator("/", "The quotient; of integers without its fraction. Division by zero fails, of FLOAT and DOUBLE it gives infinity or NaN.",
		Example{"7 / 2", "INT NOT NULL", "3"}, Example{"1.0 / 3.0", "DECIMAL(8, 6) NOT NULL", "0.333333"}),
	func() *Func {
		f := operator("%", "The rest of a division, with the sign of value1 and the type of value2.", Example{"-7 % 3", "INT NOT NULL", "-1"})
		f.Aliases = []string{"MOD"}
		f.Syntax = "value1 % value2, MOD(value1, value2)"
		return f
	}(),
	{
		Name: "NEGATE", Group: "arithmetic", Syntax: "- value", Doc: "The value with the other sign. The least integer stays as it is.",
		Resolve: sigs(of(sameAs(0), wantNumber), of(sameAs(0), kindWant("interval", row.IntervalDay(), row.Kind.Interval))),
		Compile: func(_ *Env, args []Code, t *row.Type) (Code, error) {
			switch a := args[0]; ClassOf(t) {
			case ClassFloat:
				return FloatCode(t, lift1(a.Float, func(x float64) float64 { return -x })), nil
			case ClassDec:
				return DecCode(t, lift1(a.Dec, row.Dec.Neg)), nil
			default:
				return IntCode(t, lift1(a.Int, func(x int64) int64 { return wrap(t.Kind(), -x) })), nil
			}
		},
		Examples: []Example{{"-(1.5)", "DECIMAL(2, 1) NOT NULL", "-1.5"}},
	},
	{
		Name: "ABS", Group: "arithmetic", Syntax: "ABS(number)", Doc: "The value without sign.", Resolve: sigs(of(sameAs(0), wantNumber)),
		Compile: func(_ *Env, args []Code, t *row.Type) (Code, error) {
			switch a := args[0]; ClassOf(t) {
			case ClassFloat:
				return FloatCode(t, lift1(a.Float, math.Abs)), nil
			case ClassDec:
				return DecCode(t, lift1(a.Dec, row.Dec.Abs)), nil
			default:
				return IntCode(t, lift1(a.Int, func(x int64) int64 {
					if x < 0 {
						return wrap(t.Kind(), -x)
					}
					return x
				})), nil
			}
		},
		Examples: []Example{{"ABS(-3)", "INT NOT NULL", "3"}},
	},
	{
		Name: "SIGN", Group: "arithmetic", Syntax: "SIGN(number)", Doc: "-1, 0 or 1 in the type of the number.", Resolve: sigs(of(sameAs(0), wantNumber)),
		Compile: func(_ *Env, args []Code, t *row.Type) (Code, error) {
			switch a := args[0]; {
			case t.Kind().Approximate():
				return FloatCode(t, lift1(a.Float, func(x float64) float64 {
					switch {
					case x > 0:
						return 1
					case x < 0:
						return -1
					}
					return x
				})), nil
			case t.Kind() == row.KindDecimal:
				p, s := t.Precision(), t.Scale()
				return DecCode(t, try1(a.Decs(), func(x row.Dec) (row.Dec, bool) {
					return row.DecInt(int64(x.Sign())).Rescale(0, s, p)
				})), nil
			default:
				return IntCode(t, lift1(a.Int, func(x int64) int64 { return int64(row.DecInt(x).Sign()) })), nil
			}
		},
		Examples: []Example{{"SIGN(-2.5)", "DECIMAL(2, 1) NOT NULL", "-1.0"}},
	},
	rounding("ROUND", true, "The number rounded half away from zero to that many digits behind the point, 0 if not given; negative ones are before the point.",
		Example{"ROUND(2.555, 2)", "DECIMAL(4, 2) NOT NULL", "2.56"}, Example{"ROUND(125, -1)", "INT NOT NULL", "130"}),
	rounding("TRUNCATE", false, "The number cut, towards zero, to that many digits behind the point, 0 if not given.",
		Example{"TRUNCATE(-2.567, 2)", "DECIMAL(4, 2) NOT NULL", "-2.56"}),
	mathFunc("SQRT", "The square root; NaN of negative numbers.", math.Sqrt, Example{"SQRT(16)", "DOUBLE NOT NULL", "4.0"}),
	mathFunc("EXP", "e raised to the number.", math.Exp, Example{"EXP(0)", "DOUBLE NOT NULL", "1.0"}),
	mathFunc("LN", "The natural logarithm.", math.Log, Example{"LN(1)", "DOUBLE NOT NULL", "0.0"}),
	mathFunc("LOG10", "The logarithm of base 10.", math.Log10, Example{"LOG10(100)", "DOUBLE NOT NULL", "2.0"}),
	mathFunc("LOG2", "The logarithm of base 2.", func(x float64) float64 { return math.Log(x) / math.Log(2) }, Example{"LOG2(8)", "DOUBLE NOT NULL", "3.0"}),
	mathFunc("SIN", "The sine of an angle in radians.", math.Sin, Example{"SIN(0)", "DOUBLE NOT NULL", "0.0"}),
	mathFunc("COS", "The cosine of an angle in radians.", math.Cos, Example{"COS(0)", "DOUBLE NOT NULL", "1.0"}),
	mathFunc("TAN", "The tangent of an angle in radians.", math.Tan, Example{"TAN(0)", "DOUBLE NOT NULL", "0.0"}),
	mathFunc("COT", "The cotangent of an angle in radians.", func(x float64) float64 { return 1 / math.Tan(x) }, Example{"ROUND(COT(1), 10)", "DOUBLE NOT NULL", "0.6420926159"}),
	mathFunc("ASIN", "The arc sine, in radians.", math.Asin, Example{"ASIN(0)", "DOUBLE NOT NULL", "0.0"}),
	mathFunc("ACOS", "The arc cosine, in radians.", math.Acos, Example{"ACOS(1)", "DOUBLE NOT NULL", "0.0"}),
	mathFunc("ATAN", "The arc tangent, in radians.", math.Atan, Example{"ATAN(0)", "DOUBLE NOT NULL", "0.0"}),
	mathFunc("SINH", "The hyperbolic sine.", math.Sinh, Example{"SINH(0)", "DOUBLE NOT NULL", "0.0"}),
	mathFunc("COSH", "The hyperbolic cosine.", math.Cosh, Example{"COSH(0)", "DOUBLE NOT NULL", "1.0"}),
	mathFunc("TANH", "The hyperbolic tangent.", math.Tanh, Example{"TANH(0)", "DOUBLE NOT NULL", "0.0"}),
	mathFunc("DEGREES", "Radians as degrees.", func(x float64) float64 { return x * (180 / math.Pi) }, Example{"DEGREES(PI())", "DOUBLE NOT NULL", "180.0"}),
	mathFunc("RADIANS", "Degrees as radians.", func(x float64) float64 { return x / 180 * math.Pi }, Example{"RADIANS(180)", "DOUBLE NOT NULL", "3.141592653589793"}),
	mathFunc2("POWER", "POWER(base, exponent)", "base raised to the exponent.", math.Pow, Example{"POWER(2, 10)", "DOUBLE NOT NULL", "1024.0"}),
	mathFunc2("ATAN2", "ATAN2(y, x)", "The angle of the point (x, y), in radians.", math.Atan2, Example{"ATAN2(0, 1)", "DOUBLE NOT NULL", "0.0"}),
	{
		Name: "LOG", Group: "arithmetic", Syntax: "LOG([base,] number)", Doc: "The logarithm, natural if no base is given.",
		Resolve: sigs(of(strictly(row.Double()), wantDouble), of(strictly(row.Double()), wantDouble, wantDouble)),
		Compile: func(_ *Env, args []Code, t *row.Type) (Code, error) {
			if len(args) == 1 {
				return FloatCode(t, lift1(args[0].Float, math.Log)), nil
			}
			return FloatCode(t, lift2(args[0].Float, args[1].Float, func(b, x float64) float64 { return math.Log(x) / math.Log(b) })), nil
		},
		Examples: []Example{{"LOG(2, 8)", "DOUBLE NOT NULL", "3.0"}},
	},
	constant("PI", math.Pi, "The number pi.", "3.141592653589793"),
	constant("E", math.E, "Euler's number.", "2.718281828459045"),
	{
		Name: "BIN", Group: "arithmetic", Syntax: "BIN(integer)", Doc: "The integer in binary digits; of negative ones the two's complement of 64 bits.",
		Resolve: sigs(of(strictly(row.String()), wantInteger)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			return BytesCode(t, lift1(args[0].Int, func(x int64) []byte {
				return env.Arena.Keep(strconv.AppendUint(env.Arena.Begin(), uint64(x), 2))
			})), nil
		},
		Examples: []Example{{"BIN(5)", "STRING NOT NULL", "101"}},
	},
	{
		Name: "RAND", Group: "arithmetic", Purity: Volatile, Syntax: "RAND([seed])", Doc: "A number from 0 to below 1, drawn anew for each row; with a seed, the same ones in each run.",
		Resolve: sigs(of(notNull(row.Double())), of(strictly(row.Double()), wantInt)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			if len(args) == 0 {
				return FloatCode(t, func(*row.Row) (float64, bool) { return float64(env.Rand()>>11) / (1 << 53), true }), nil
			}
			next := seeded(args[0].Int)
			return FloatCode(t, func(r *row.Row) (float64, bool) {
				g, ok := next(r)
				if !ok {
					return 0, false
				}
				return float64(g.bits(26)<<27+g.bits(27)) / (1 << 53), true
			}), nil
		},
	},
	{
		Name: "RAND_INTEGER", Group: "arithmetic", Purity: Volatile, Fails: true, Syntax: "RAND_INTEGER([seed,] bound)", Doc: "An integer from 0 to below the bound, drawn anew for each row.",
		Resolve: sigs(of(strictly(row.Int()), wantInt), of(strictly(row.Int()), wantInt, wantInt)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			at := env.Place
			check := func(n int64) {
				if n <= 0 {
					at.failf("RAND_INTEGER: the bound %d is not positive", n)
				}
			}
			if len(args) == 1 {
				return IntCode(t, lift1(args[0].Int, func(n int64) int64 {
					check(n)
					return int64(env.Rand()>>1) % n
				})), nil
			}
			next := seeded(args[0].Int)
			return IntCode(t, func(r *row.Row) (int64, bool) {
				g, ok1 := next(r)
				n, ok2 := args[1].Int(r)
				if !ok1 || !ok2 {
					return 0, false
				}
				check(n)
				return g.below(n), true
			}), nil
		},
	},
}

// javaRandom is the generator of java.util.Random, so that a seed gives the numbers that Flink gives.
type javaRandom struct{ state uint64 }

const javaMask = 1<<48 - 1

func (g *javaRandom) bits(n uint) int64 {
	g.state = (g.state*0x5DEECE66D + 0xB) & javaMask
	return int64(g.state >> (48 - n))
}

func (g *javaRandom) below(n int64) int64 {
	if n&(n-1) == 0 {
		return n * g.bits(31) >> 31
	}
	for {
		b := g.bits(31)
		if v := b % n; int32(b-v+n-1) >= 0 {
			return v
		}
	}
}

// seeded makes one generator, of the first seed.
func seeded(seed Get[int64]) Get[*javaRandom] {
	var g *javaRandom
	return func(r *row.Row) (*javaRandom, bool) {
		s, ok := seed(r)
		if !ok {
			return nil, false
		}
		if g == nil {
			g = &javaRandom{(uint64(s) ^ 0x5DEECE66D) & javaMask}
		}
		return g, true
	}
}

func mathFunc(name, doc string, f func(float64) float64, examples ...Example) *Func {
	return &Func{
		Name: name, Group: "arithmetic", Syntax: name + "(number)", Doc: doc, Resolve: sigs(of(strictly(row.Double()), wantDouble)),
		Compile: func(_ *Env, args []Code, t *row.Type) (Code, error) {
			return FloatCode(t, lift1(args[0].Float, f)), nil
		},
		Examples: examples,
	}
}

func mathFunc2(name, syntax, doc string, f func(x, y float64) float64, examples ...Example) *Func {
	return &Func{
		Name: name, Group: "arithmetic", Syntax: syntax, Doc: doc, Resolve: sigs(of(strictly(row.Double()), wantDouble, wantDouble)),
		Compile: func(_ *Env, args []Code, t *row.Type) (Code, error) {
			return FloatCode(t, lift2(args[0].Float, args[1].Float, f)), nil
		},
		Examples: examples,
	}
}

func constant(name string, v float64, doc, text string) *Func {
	return &Func{
		Name: name, Group: "arithmetic", Syntax: name + "()", Doc: doc, Resolve: sigs(of(notNull(row.Double()))),
		Compile: func(_ *Env, _ []Code, t *row.Type) (Code, error) {
			return ConstCode(t, Const{X: math.Float64bits(v)}), nil
		},
		Examples: []Example{{name + "()", "DOUBLE NOT NULL", text}},
	}
}

// roundedType is the type of ROUND and TRUNCATE of a DECIMAL.
func roundedType(args []Arg) *row.Type {
	t := args[0].Type
	if t.Kind() == row.KindDecimal {
		digits := 0
		if len(args) == 2 {
			c := args[1].Const
			if c == nil || c.Null {
				return t.WithMark(row.NoMark).Nullable(anyNullable(args))
			}
			digits = int(int32(c.X))
		}
		p, s := t.Precision(), t.Scale()
		switch {
		case digits >= s:
		case digits < 0:
			t = row.Decimal(min(row.MaxPrecision, 1+p-s), 0)
		default:
			t = row.Decimal(1+p-s+digits, digits)
		}
	}
	return t.WithMark(row.NoMark).Nullable(anyNullable(args))
}

func rounding(name string, half bool, doc string, examples ...Example) *Func {
	return &Func{
		Name: name, Group: "arithmetic", Syntax: name + "(number [, digits])", Doc: doc, Examples: examples,
		Resolve: sigs(sig{args: []want{wantNumber, wantInt}, optional: 1, result: roundedType}),
		Compile: func(_ *Env, args []Code, t *row.Type) (Code, error) {
			digits := constGet[int64](0)
			if len(args) == 2 {
				digits = args[1].Int
			}
			switch a := args[0]; {
			case t.Kind().Approximate():
				return FloatCode(t, lift2(a.Float, digits, func(x float64, n int64) float64 { return roundFloat(x, n, half, t) })), nil
			case t.Kind() == row.KindDecimal:
				from := a.Type.Scale()
				return DecCode(t, try2(a.Decs(), digits, func(x row.Dec, n int64) (row.Dec, bool) {
					n = min(n, int64(from))
					d, ok := roundDec(x, from, int(max(n, -39)), half)
					if !ok {
						return d, false
					}
					return d.Rescale(max(int(n), 0), t.Scale(), t.Precision())
				})), nil
			default:
				return IntCode(t, lift2(a.Int, digits, func(x, n int64) int64 {
					if n >= 0 {
						return x
					}
					d, _ := roundDec(row.DecInt(x), 0, int(max(n, -39)), half)
					return wrap(t.Kind(), int64(d.Lo))
				})), nil
			}
		},
	}
}

// roundDec rounds or cuts d of that scale to n digits behind the point. The result has scale max(n, 0).
func roundDec(d row.Dec, scale, n int, half bool) (row.Dec, bool) {
	if n < -38 {
		return row.Dec{}, true
	}
	if n >= scale {
		return d.Rescale(scale, n, row.MaxPrecision)
	}
	drop := scale - n
	if drop > 38 {
		return row.Dec{}, true
	}
	var q row.Dec
	if half {
		var ok bool
		if q, ok = d.Rescale(drop, 0, row.MaxPrecision); !ok {
			return q, false
		}
	} else {
		q = d.Trunc(drop, 0)
	}
	if n < 0 {
		return q.Rescale(0, -n, row.MaxPrecision)
	}
	return q, true
}

// roundFloat rounds or cuts the shortest decimal digits of x, as Java's BigDecimal.valueOf(x).setScale(n) does.
func roundFloat(x float64, n int64, half bool, t *row.Type) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) || x == 0 {
		return x
	}
	var buf [400]byte
	size := 64
	if t.Kind() == row.KindFloat {
		size = 32
	}
	b := strconv.AppendFloat(buf[:0], math.Abs(x), 'f', -1, size)
	point := len(b)
	for i, c := range b {
		if c == '.' {
			point = i
			break
		}
	}
	digits := make([]byte, 0, 340)
	digits = append(digits, b[:point]...)
	if point < len(b) {
		digits = append(digits, b[point+1:]...)
	}
	keep := int64(point) + n
	switch {
	case keep >= int64(len(digits)):
		return x
	case keep < 0:
		return 0
	}
	up := half && digits[keep] >= '5'
	exp := int64(point) - keep // of the last digit kept
	digits = digits[:keep]
	if up {
		i := len(digits) - 1
		for ; i >= 0 && digits[i] == '9'; i-- {
			digits[i] = '0'
		}
		if i >= 0 {
			digits[i]++
		} else {
			digits = append([]byte{'1'}, digits...)
		}
	}
	if len(digits) == 0 {
		return 0
	}
	v, _ := strconv.ParseFloat(string(digits)+"e"+strconv.FormatInt(exp, 10), 64)
	return math.Copysign(v, x)
}
