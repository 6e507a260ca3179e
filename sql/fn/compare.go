package fn

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/millrace-stream/millrace/row"
)

// resolveComparison finds the types that the two sides of a comparison are cast to.
func resolveComparison(op string) func(args []Arg) (Resolved, error) {
	return func(args []Arg) (Resolved, error) {
		if len(args) != 2 {
			return Resolved{}, fmt.Errorf("%s compares two values, not %d", op, len(args))
		}
		types, err := comparable2(op, args[0], args[1])
		if err != nil {
			return Resolved{}, err
		}
		t := row.Boolean().Nullable(types[0].IsNullable() || types[1].IsNullable())
		if op == "IS DISTINCT FROM" || op == "IS NOT DISTINCT FROM" {
			t = row.Boolean().NotNull()
		}
		return Resolved{types, t}, nil
	}
}

func equality(op string) bool { return op != "<" && op != "<=" && op != ">" && op != ">=" }

func comparable2(op string, x, y Arg) ([]*row.Type, error) {
	t, u := x.Type, y.Type
	a, b := t.Kind(), u.Kind()
	switch {
	case isNull(x) && isNull(y):
		return []*row.Type{row.Boolean(), row.Boolean()}, nil
	case isNull(x):
		return []*row.Type{u.Plain(), u}, nil
	case isNull(y):
		return []*row.Type{t, t.Plain()}, nil
	case a.Numeric() && b.Numeric():
		if a.Approximate() || b.Approximate() {
			return []*row.Type{like(row.Double(), x), like(row.Double(), y)}, nil
		}
		return []*row.Type{t, u}, nil
	case a.Text() && b.Text(), a.Bytes() && b.Bytes(), a == row.KindBoolean && b == a, a.Interval() && a == b:
		return []*row.Type{t, u}, nil
	case a.Datetime() && a == b:
		return []*row.Type{t, u}, nil
	case a == row.KindTimestamp && b == row.KindTimestampLTZ:
		return []*row.Type{like(row.TimestampLTZ(t.Precision()), x), u}, nil
	case b == row.KindTimestamp && a == row.KindTimestampLTZ:
		return []*row.Type{t, like(row.TimestampLTZ(u.Precision()), y)}, nil
	case a.Datetime() && b.Text():
		return []*row.Type{t, like(textTime(t), y)}, nil
	case b.Datetime() && a.Text():
		return []*row.Type{like(textTime(u), x), u}, nil
	case a.Numeric() && b.Text() && !equality(op):
		return []*row.Type{t, like(t, y)}, nil
	case b.Numeric() && a.Text() && !equality(op):
		return []*row.Type{like(u, x), u}, nil
	case a.Numeric() && b.Text() || b.Numeric() && a.Text():
		return nil, fmt.Errorf("%s cannot be compared with %s for equality without a CAST on one side", t.Text(), u.Text())
	case a.Nested() && a == b:
		if !equality(op) {
			return nil, fmt.Errorf("values of type %s have no order: they can be compared with = and <> only", t.Text())
		}
		l := LeastRestrictive(t, u)
		if l == nil {
			break
		}
		return []*row.Type{like(l, x), like(l, y)}, nil
	}
	return nil, fmt.Errorf("%s cannot be compared with %s", t.Text(), u.Text())
}

// textTime is the type that text is cast to when it is compared with a time.
func textTime(t *row.Type) *row.Type { return t.WithMark(row.NoMark) }

func comparison(op string, examples ...Example) *Func {
	names := map[string]string{"=": "equal to", "<>": "not equal to", "<": "less than", "<=": "less than or equal to", ">": "greater than", ">=": "greater than or equal to"}
	return &Func{
		Name: op, Group: "comparison", Resolve: resolveComparison(op), Syntax: "value1 " + op + " value2",
		Compile: func(_ *Env, args []Code, result *row.Type) (Code, error) {
			return CondCode(result, compare(op, args[0], args[1])), nil
		},
		Doc:      "TRUE if value1 is " + names[op] + " value2, UNKNOWN if one is NULL. Text is compared by its code points.",
		Examples: examples,
	}
}

var comparisonFuncs = []*Func{
	comparison("=", Example{"1 = 1.0", "BOOLEAN NOT NULL", "true"}, Example{"CAST(NULL AS INT) = 1", "BOOLEAN", "null"}),
	comparison("<>", Example{"'a' <> 'b'", "BOOLEAN NOT NULL", "true"}),
	comparison("<", Example{"1 < 2", "BOOLEAN NOT NULL", "true"}, Example{"'B' < 'a'", "BOOLEAN NOT NULL", "true"}),
	comparison("<=", Example{"2 <= 2", "BOOLEAN NOT NULL", "true"}),
	comparison(">", Example{"2.5 > 2", "BOOLEAN NOT NULL", "true"}),
	comparison(">=", Example{"DATE '2024-01-02' >= DATE '2024-01-01'", "BOOLEAN NOT NULL", "true"}),
	distinct("IS DISTINCT FROM", True, "TRUE if the values differ; NULL is equal to NULL and to nothing else.",
		Example{"1 IS DISTINCT FROM CAST(NULL AS INT)", "BOOLEAN NOT NULL", "true"}),
	distinct("IS NOT DISTINCT FROM", False, "TRUE if the values are equal or both are NULL.",
		Example{"CAST(NULL AS INT) IS NOT DISTINCT FROM CAST(NULL AS INT)", "BOOLEAN NOT NULL", "true"}),
	nullTest("IS NULL", false), nullTest("IS NOT NULL", true),
}

func distinct(op string, differ Tri, doc string, examples ...Example) *Func {
	return &Func{
		Name: op, Group: "comparison", Resolve: resolveComparison(op), Nulls: Never, Syntax: "value1 " + op + " value2", Doc: doc,
		Compile: func(_ *Env, args []Code, result *row.Type) (Code, error) {
			eq, v1, v2 := compare("=", args[0], args[1]), args[0].Valid(), args[1].Valid()
			return CondCode(result, func(r *row.Row) Tri {
				same := false
				switch eq(r) {
				case True:
					same = true
				case Unknown:
					same = !v1(r) && !v2(r)
				}
				if same {
					return 1 - differ
				}
				return differ
			}), nil
		},
		Examples: examples,
	}
}

func nullTest(op string, not bool) *Func {
	res := "true"
	if not {
		res = "false"
	}
	return &Func{
		Name: op, Group: "comparison", Nulls: Never, Syntax: "value " + op, Doc: "Says whether the value is NULL, or is not.",
		Resolve: sigs(of(notNull(row.Boolean()), wantAny)),
		Compile: func(_ *Env, args []Code, result *row.Type) (Code, error) {
			valid := args[0].Valid()
			if c := args[0].Column; c != nil {
				i := c.Index
				if not {
					return CondCode(result, func(r *row.Row) Tri { return truth(!r.Null(i)) }), nil
				}
				return CondCode(result, func(r *row.Row) Tri { return truth(r.Null(i)) }), nil
			}
			return CondCode(result, func(r *row.Row) Tri { return truth(valid(r) == not) }), nil
		},
		Examples: []Example{{"CAST(NULL AS INT) " + op, "BOOLEAN NOT NULL", res}},
	}
}

// swapped is the operator with its sides exchanged.
func swapped(op string) string {
	switch op {
	case "<":
		return ">"
	case "<=":
		return ">="
	case ">":
		return "<"
	case ">=":
		return "<="
	}
	return op
}

// compare makes the closure of = <> < <= > >= for values of comparable types.
func compare(op string, a, b Code) func(r *row.Row) Tri {
	if isConst(a) && !isConst(b) {
		a, b, op = b, a, swapped(op)
	}
	t, u := a.Type, b.Type
	switch ca, cb := ClassOf(t), ClassOf(u); {
	case t.Kind().Nested():
		return compareValues(op, a, b)
	case ca == ClassBytes:
		return compareBytes(op, a, b)
	case ca == ClassBool:
		return compareOrdered(op, boolInts(a), boolInts(b))
	case ca == ClassFloat && cb == ClassFloat:
		return compareOrdered(op, a.Float, b.Float)
	case ca == ClassStamp || cb == ClassStamp:
		return compareWith(op, a.Stamps(), b.Stamps(), func(x, y Stamp) int {
			if c := cmp.Compare(x.Ms, y.Ms); c != 0 {
				return c
			}
			return cmp.Compare(x.Nanos, y.Nanos)
		})
	case t.Kind().Numeric() && (t.Kind() == row.KindDecimal || u.Kind() == row.KindDecimal):
		return compareDecimals(op, a, b)
	}
	return compareInts(op, a, b)
}

func compareDecimals(op string, a, b Code) func(r *row.Row) Tri {
	p1, s1 := Exact(a.Type)
	p2, s2 := Exact(b.Type)
	if s := max(s1, s2); p1+s-s1 <= 18 && p2+s-s2 <= 18 {
		return compareInts(op, scaledInt(a, s-s1), scaledInt(b, s-s2))
	}
	return compareWith(op, a.Decs(), b.Decs(), func(x, y row.Dec) int { return row.DecCmp(x, s1, y, s2) })
}

// scaledInt is c times a power of ten, which the type leaves room for.
func scaledInt(c Code, digits int) Code {
	if digits == 0 {
		return c
	}
	f := pow10(digits)
	g := c.Int
	d := Code{Type: c.Type, Const: c.Const, Int: func(r *row.Row) (int64, bool) {
		v, ok := g(r)
		return v * f, ok
	}}
	if c.Const {
		return ConstCode(c.Type, d.Eval(nil))
	}
	return d
}

func pow10(n int) int64 {
	p := int64(1)
	for range n {
		p *= 10
	}
	return p
}

func boolInts(c Code) Get[int64] {
	f := c.Cond
	return func(r *row.Row) (int64, bool) {
		t := f(r)
		return int64(t & 1), t != Unknown
	}
}

// compareInts has forms of its own for columns and literals, which most conditions are made of.
func compareInts(op string, a, b Code) func(r *row.Row) Tri {
	if isConst(b) {
		y, _ := b.Int(nil)
		if a.Column != nil {
			return compareColumn(op, a.Column.Index, a.Column.At, y)
		}
		return compareLiteral(op, a.Int, y)
	}
	if a.Column != nil && b.Column != nil {
		return compareColumns(op, *a.Column, *b.Column)
	}
	return compareOrdered(op, a.Int, b.Int)
}

func compareColumn(op string, i, w int, y int64) func(r *row.Row) Tri {
	switch op {
	case "=":
		return func(r *row.Row) Tri {
			if r.Null(i) {
				return Unknown
			}
			return truth(int64(r.W[w]) == y)
		}
	case "<>":
		return func(r *row.Row) Tri {
			if r.Null(i) {
				return Unknown
			}
			return truth(int64(r.W[w]) != y)
		}
	case "<":
		return func(r *row.Row) Tri {
			if r.Null(i) {
				return Unknown
			}
			return truth(int64(r.W[w]) < y)
		}
	case "<=":
		return func(r *row.Row) Tri {
			if r.Null(i) {
				return Unknown
			}
			return truth(int64(r.W[w]) <= y)
		}
	case ">":
		return func(r *row.Row) Tri {
			if r.Null(i) {
				return Unknown
			}
			return truth(int64(r.W[w]) > y)
		}
	}
	return func(r *row.Row) Tri {
		if r.Null(i) {
			return Unknown
		}
		return truth(int64(r.W[w]) >= y)
	}
}

func compareColumns(op string, a, b ColumnAt) func(r *row.Row) Tri {
	switch op {
	case ">":
		a, b, op = b, a, "<"
	case ">=":
		a, b, op = b, a, "<="
	}
	i, v, j, w := a.Index, a.At, b.Index, b.At
	switch op {
	case "=":
		return func(r *row.Row) Tri {
			if r.Null(i) || r.Null(j) {
				return Unknown
			}
			return truth(r.W[v] == r.W[w])
		}
	case "<>":
		return func(r *row.Row) Tri {
			if r.Null(i) || r.Null(j) {
				return Unknown
			}
			return truth(r.W[v] != r.W[w])
		}
	case "<":
		return func(r *row.Row) Tri {
			if r.Null(i) || r.Null(j) {
				return Unknown
			}
			return truth(int64(r.W[v]) < int64(r.W[w]))
		}
	}
	return func(r *row.Row) Tri {
		if r.Null(i) || r.Null(j) {
			return Unknown
		}
		return truth(int64(r.W[v]) <= int64(r.W[w]))
	}
}

func compareLiteral(op string, a Get[int64], y int64) func(r *row.Row) Tri {
	switch op {
	case "=":
		return func(r *row.Row) Tri {
			x, ok := a(r)
			if !ok {
				return Unknown
			}
			return truth(x == y)
		}
	case "<>":
		return func(r *row.Row) Tri {
			x, ok := a(r)
			if !ok {
				return Unknown
			}
			return truth(x != y)
		}
	case "<":
		return func(r *row.Row) Tri {
			x, ok := a(r)
			if !ok {
				return Unknown
			}
			return truth(x < y)
		}
	case "<=":
		return func(r *row.Row) Tri {
			x, ok := a(r)
			if !ok {
				return Unknown
			}
			return truth(x <= y)
		}
	case ">":
		return func(r *row.Row) Tri {
			x, ok := a(r)
			if !ok {
				return Unknown
			}
			return truth(x > y)
		}
	}
	return func(r *row.Row) Tri {
		x, ok := a(r)
		if !ok {
			return Unknown
		}
		return truth(x >= y)
	}
}

func compareOrdered[T int64 | float64](op string, a, b Get[T]) func(r *row.Row) Tri {
	switch op {
	case ">":
		a, b, op = b, a, "<"
	case ">=":
		a, b, op = b, a, "<="
	}
	switch op {
	case "=":
		return func(r *row.Row) Tri {
			x, ok1 := a(r)
			y, ok2 := b(r)
			if !ok1 || !ok2 {
				return Unknown
			}
			return truth(x == y)
		}
	case "<>":
		return func(r *row.Row) Tri {
			x, ok1 := a(r)
			y, ok2 := b(r)
			if !ok1 || !ok2 {
				return Unknown
			}
			return truth(x != y)
		}
	case "<":
		return func(r *row.Row) Tri {
			x, ok1 := a(r)
			y, ok2 := b(r)
			if !ok1 || !ok2 {
				return Unknown
			}
			return truth(x < y)
		}
	}
	return func(r *row.Row) Tri {
		x, ok1 := a(r)
		y, ok2 := b(r)
		if !ok1 || !ok2 {
			return Unknown
		}
		return truth(x <= y)
	}
}

// holds says whether a comparison that gave c (-1, 0, 1) holds for the operator.
func holds(op string) (yes [3]Tri) {
	for c := -1; c <= 1; c++ {
		var b bool
		switch op {
		case "=":
			b = c == 0
		case "<>":
			b = c != 0
		case "<":
			b = c < 0
		case "<=":
			b = c <= 0
		case ">":
			b = c > 0
		case ">=":
			b = c >= 0
		}
		yes[c+1] = truth(b)
	}
	return yes
}

func compareWith[T any](op string, a, b Get[T], f func(x, y T) int) func(r *row.Row) Tri {
	yes := holds(op)
	return func(r *row.Row) Tri {
		x, ok1 := a(r)
		y, ok2 := b(r)
		if !ok1 || !ok2 {
			return Unknown
		}
		return yes[f(x, y)+1]
	}
}

func compareBytes(op string, a, b Code) func(r *row.Row) Tri {
	if !equality(op) {
		return compareWith(op, a.Bytes, b.Bytes, bytes.Compare)
	}
	same := truth(op == "=")
	if isConst(b) {
		text, _ := b.Bytes(nil)
		lit := string(text)
		if c := a.Column; c != nil {
			i, v := c.Index, c.At
			return func(r *row.Row) Tri {
				if r.Null(i) {
					return Unknown
				}
				return truth(string(r.S[v]) == lit) ^ same ^ 1
			}
		}
		get := a.Bytes
		return func(r *row.Row) Tri {
			x, ok := get(r)
			if !ok {
				return Unknown
			}
			return truth(string(x) == lit) ^ same ^ 1
		}
	}
	x, y := a.Bytes, b.Bytes
	return func(r *row.Row) Tri {
		v, ok1 := x(r)
		w, ok2 := y(r)
		if !ok1 || !ok2 {
			return Unknown
		}
		return truth(string(v) == string(w)) ^ same ^ 1
	}
}

func compareValues(op string, a, b Code) func(r *row.Row) Tri {
	x, y, t := a.Bytes, b.Bytes, a.Type
	same := truth(op == "=")
	return func(r *row.Row) Tri {
		v, ok1 := x(r)
		w, ok2 := y(r)
		if !ok1 || !ok2 {
			return Unknown
		}
		return truth(equalValues(t, Const{B: v}, Const{B: w}, false)) ^ same ^ 1
	}
}

// element is element i of an array as a value.
func element(v row.ArrayView, i int) Const {
	if v.Null(i) {
		return Const{Null: true}
	}
	if ClassOf(v.Elem()) == ClassBytes {
		return Const{B: v.Bytes(i)}
	}
	x, y := v.Words(i)
	return Const{X: x, Y: y}
}

// field is field i of a row as a value.
func field(t *row.Type, v row.RowView, i int) Const {
	if v.Null(i) {
		return Const{Null: true}
	}
	if ClassOf(t.Field(i).Type) == ClassBytes {
		return Const{B: v.Bytes(i)}
	}
	x, y := v.Words(i)
	return Const{X: x, Y: y}
}

// equalValues compares two values of one type. nulls says what two NULLs within them are: equal (as keys are), or not (as
// the operator = has it).
func equalValues(t *row.Type, a, b Const, nulls bool) bool {
	if a.Null || b.Null {
		return a.Null && b.Null && nulls
	}
	switch t.Kind() {
	case row.KindArray:
		return equalArrays(row.ViewArray(t, a.B), row.ViewArray(t, b.B), nulls)
	case row.KindMap, row.KindMultiset:
		v, w := row.ViewMap(t, a.B), row.ViewMap(t, b.B)
		if v.Len() != w.Len() {
			return false
		}
		for i := range v.Len() {
			j := findKey(w, element(v.Keys(), i))
			if j < 0 || !equalValues(v.Values().Elem(), element(v.Values(), i), element(w.Values(), j), nulls) {
				return false
			}
		}
		return true
	case row.KindRow:
		v, w := row.ViewRow(t, a.B), row.ViewRow(t, b.B)
		for i := range t.NumFields() {
			if !equalValues(t.Field(i).Type, field(t, v, i), field(t, w, i), nulls) {
				return false
			}
		}
		return true
	}
	switch ClassOf(t) {
	case ClassBytes:
		return bytes.Equal(a.B, b.B)
	case ClassFloat:
		x, y := math.Float64frombits(a.X), math.Float64frombits(b.X)
		return x == y || nulls && x != x && y != y
	}
	return a.X == b.X && a.Y == b.Y
}

func equalArrays(v, w row.ArrayView, nulls bool) bool {
	if v.Len() != w.Len() {
		return false
	}
	for i := range v.Len() {
		if !equalValues(v.Elem(), element(v, i), element(w, i), nulls) {
			return false
		}
	}
	return true
}

func findKey(m row.MapView, key Const) int {
	switch {
	case key.Null:
		return m.FindNull()
	case ClassOf(m.Keys().Elem()) == ClassBytes && !m.Keys().Elem().Kind().Nested():
		return m.FindBytes(key.B)
	}
	for i := range m.Len() {
		if equalValues(m.Keys().Elem(), key, element(m.Keys(), i), true) {
			return i
		}
	}
	return -1
}

var errNoOrder = errors.New("the type has no order")

// orderOf is the order of values of a type that are not NULL, an error for types without one. NaN is the greatest number.
func orderOf(t *row.Type) (func(a, b Const) int, error) {
	switch {
	case t.Kind().Nested():
		return nil, errNoOrder
	case ClassOf(t) == ClassBytes:
		return func(a, b Const) int { return bytes.Compare(a.B, b.B) }, nil
	case ClassOf(t) == ClassFloat:
		return func(a, b Const) int { return orderFloats(math.Float64frombits(a.X), math.Float64frombits(b.X)) }, nil
	case ClassOf(t) == ClassDec:
		return func(a, b Const) int {
			return row.Dec{Lo: a.X, Hi: int64(a.Y)}.Cmp(row.Dec{Lo: b.X, Hi: int64(b.Y)})
		}, nil
	case ClassOf(t) == ClassStamp:
		return func(a, b Const) int {
			if c := cmp.Compare(int64(a.X), int64(b.X)); c != 0 {
				return c
			}
			return cmp.Compare(a.Y, b.Y)
		}, nil
	}
	return func(a, b Const) int { return cmp.Compare(int64(a.X), int64(b.X)) }, nil
}

// orderFloats is the order of Double.compare: -0.0 before 0.0, NaN last.
func orderFloats(x, y float64) int {
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	case x == y:
		return cmp.Compare(math.Copysign(1, x), math.Copysign(1, y)) * truthInt(x == 0)
	}
	return cmp.Compare(truthInt(x != x), truthInt(y != y))
}

func truthInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
