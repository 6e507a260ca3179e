package fn

import (
	"fmt"
	"strings"

	"github.com/millrace-stream/millrace/row"
)

// want is what a function asks of an argument: the type that it is to be cast to, nil if it does not fit. name is how a
// message calls it.
type want struct {
	name string
	fit  func(a Arg) *row.Type
}

func like(t *row.Type, a Arg) *row.Type {
	return t.Nullable(a.Type.IsNullable() || a.Type.Kind() == row.KindNull)
}

func isNull(a Arg) bool { return a.Type.Kind() == row.KindNull }

func kindWant(name string, deflt *row.Type, ok func(k row.Kind) bool) want {
	return want{name, func(a Arg) *row.Type {
		switch {
		case isNull(a):
			return deflt
		case ok(a.Type.Kind()):
			return a.Type
		}
		return nil
	}}
}

var (
	wantAny     = want{"value", func(a Arg) *row.Type { return a.Type }}
	wantText    = kindWant("text", row.String(), row.Kind.Text)
	wantBinary  = kindWant("bytes", row.Bytes(), row.Kind.Bytes)
	wantStringy = kindWant("text or bytes", row.String(), func(k row.Kind) bool { return k.Text() || k.Bytes() })
	wantNumber  = kindWant("number", row.Int(), row.Kind.Numeric)
	wantBool    = kindWant("BOOLEAN", row.Boolean(), func(k row.Kind) bool { return k == row.KindBoolean })
	wantInteger = kindWant("integer", row.Int(), row.Kind.Integer)
	wantArray   = kindWant("ARRAY", row.Array(row.String()), func(k row.Kind) bool { return k == row.KindArray })
	wantMap     = kindWant("MAP", row.Map(row.String(), row.String()), func(k row.Kind) bool { return k == row.KindMap })
	wantDouble  = want{"number", func(a Arg) *row.Type {
		if !isNull(a) && !a.Type.Kind().Numeric() {
			return nil
		}
		return like(row.Double(), a)
	}}
	wantInt  = intWant(row.Int(), "INT")
	wantTime = kindWant("date or time", row.Timestamp(3), row.Kind.Datetime)
)

// intWant takes integers that fit into t without loss, and text of no kind.
func intWant(t *row.Type, name string) want {
	return want{name, func(a Arg) *row.Type {
		if isNull(a) || a.Type.Kind().Integer() && a.Type.Kind() <= t.Kind() {
			return like(t, a)
		}
		return nil
	}}
}

// word is a function word of special syntax, a constant.
var wantWord = want{"word", func(a Arg) *row.Type {
	if a.Const == nil || !a.Type.Kind().Text() {
		return nil
	}
	return a.Type
}}

// result finds the type of the result; args have the types that they will be cast to.
type result func(args []Arg) *row.Type

func anyNullable(args []Arg) bool {
	for _, a := range args {
		if a.Type.IsNullable() {
			return true
		}
	}
	return false
}

// strictly is t, nullable if an argument is.
func strictly(t *row.Type) result {
	return func(args []Arg) *row.Type { return t.Nullable(anyNullable(args)) }
}

// nullable is t, nullable at all times.
func nullable(t *row.Type) result { return func([]Arg) *row.Type { return t.Nullable(true) } }

func notNull(t *row.Type) result { return func([]Arg) *row.Type { return t.NotNull() } }

// sameAs is the type of argument i, nullable if any argument is.
func sameAs(i int) result {
	return func(args []Arg) *row.Type { return args[i].Type.WithMark(row.NoMark).Nullable(anyNullable(args)) }
}

// sig is one signature.
type sig struct {
	args     []want
	optional int  // of args, the last ones that may be left out
	variadic bool // the last of args any number of times, once at least unless optional
	result   result
}

func (s sig) count(n int) bool {
	if s.variadic {
		return n >= len(s.args)-s.optional
	}
	return n >= len(s.args)-s.optional && n <= len(s.args)
}

func (s sig) want(i int) want { return s.args[min(i, len(s.args)-1)] }

func (s sig) String() string {
	var b strings.Builder
	for i, w := range s.args {
		if i > 0 {
			b.WriteString(", ")
		}
		if i >= len(s.args)-s.optional {
			b.WriteString("[" + w.name + "]")
		} else {
			b.WriteString(w.name)
		}
	}
	if s.variadic {
		b.WriteString(", ..")
	}
	return b.String()
}

// sigs makes Resolve of a list of signatures: the first that fits is taken.
func sigs(list ...sig) func(args []Arg) (Resolved, error) {
	return func(args []Arg) (Resolved, error) {
	next:
		for _, s := range list {
			if !s.count(len(args)) {
				continue
			}
			cast := make([]Arg, len(args))
			types := make([]*row.Type, len(args))
			for i, a := range args {
				t := s.want(i).fit(a)
				if t == nil {
					continue next
				}
				cast[i] = Arg{t, a.Const, a.Literal}
				types[i] = t
			}
			if t := s.result(cast); t != nil {
				return Resolved{types, t}, nil
			}
		}
		return Resolved{}, mismatch(args, list)
	}
}

func of(result result, args ...want) sig { return sig{args: args, result: result} }

func (s sig) opt(n int) sig { s.optional = n; return s }

func (s sig) many() sig { s.variadic = true; return s }

func mismatch(args []Arg, list []sig) error {
	fits := false
	var forms []string
	for _, s := range list {
		fits = fits || s.count(len(args))
		forms = append(forms, "("+s.String()+")")
	}
	what := "arguments of the types (" + typeList(args) + ") do not fit"
	if !fits {
		what = fmt.Sprintf("%d arguments do not fit", len(args))
	}
	return fmt.Errorf("%s; it takes %s", what, strings.Join(forms, " or "))
}

func typeList(args []Arg) string {
	s := make([]string, len(args))
	for i, a := range args {
		s[i] = a.Type.Text()
	}
	return strings.Join(s, ", ")
}

// Exact is the DECIMAL that holds all values of an exact numeric type: BIGINT is DECIMAL(19, 0).
func Exact(t *row.Type) (precision, scale int) {
	switch t.Kind() {
	case row.KindTinyInt:
		return 3, 0
	case row.KindSmallInt:
		return 5, 0
	case row.KindInt:
		return 10, 0
	case row.KindBigInt:
		return 19, 0
	}
	return t.Precision(), t.Scale()
}

// adjusted cuts a precision over 38: the scale gives way, but not below 6 digits.
func adjusted(p, s int) *row.Type {
	if p > row.MaxPrecision {
		s = max(row.MaxPrecision-(p-s), min(s, 6))
		p = row.MaxPrecision
	}
	return row.Decimal(p, s)
}

// DecimalResult is the type of an operator (+ - * / %) over two DECIMALs.
func DecimalResult(op string, p1, s1, p2, s2 int) *row.Type {
	switch op {
	case "*":
		return adjusted(p1+p2+1, s1+s2)
	case "/":
		s := max(6, s1+p2+1)
		return adjusted(p1-s1+s2+s, s)
	case "%":
		return adjusted(min(p1-s1, p2-s2)+max(s1, s2), max(s1, s2))
	}
	s := max(s1, s2)
	return adjusted(max(p1-s1, p2-s2)+s+1, s)
}

// LeastRestrictive is the type that all values can be converted to without a cast being written: for CASE, COALESCE, set
// operations, ARRAY, IN. It is nil if there is none. The type of a bare NULL fits all. The result is nullable if one of the
// types is.
func LeastRestrictive(types ...*row.Type) *row.Type {
	var t *row.Type
	null := false
	for _, u := range types {
		null = null || u.IsNullable()
		if u.Kind() == row.KindNull {
			null = true
			continue
		}
		u = u.WithMark(row.NoMark).Nullable(true)
		if t == nil {
			t = u
			continue
		}
		if t = leastOf(t, u); t == nil {
			return nil
		}
	}
	if t == nil {
		return row.Null()
	}
	return t.Nullable(null)
}

func leastOf(t, u *row.Type) *row.Type {
	if t == u {
		return t
	}
	a, b := t.Kind(), u.Kind()
	switch {
	case a.Numeric() && b.Numeric():
		return numericOf(t, u)
	case a.Text() && b.Text():
		n := max(t.Length(), u.Length())
		if a == row.KindChar && b == row.KindChar && t.Length() == u.Length() {
			return row.Char(n)
		}
		return row.VarChar(n)
	case a.Bytes() && b.Bytes():
		n := max(t.Length(), u.Length())
		if a == row.KindBinary && b == row.KindBinary && t.Length() == u.Length() {
			return row.Binary(n)
		}
		return row.VarBinary(n)
	case a == b && a == row.KindTime:
		return row.Time(max(t.Precision(), u.Precision()))
	case (a == row.KindTimestamp || a == row.KindTimestampLTZ) && (b == row.KindTimestamp || b == row.KindTimestampLTZ):
		p := max(t.Precision(), u.Precision())
		if a != b {
			return row.TimestampLTZ(p)
		}
		if a == row.KindTimestamp {
			return row.Timestamp(p)
		}
		return row.TimestampLTZ(p)
	case a == row.KindDate && (b == row.KindTimestamp || b == row.KindTimestampLTZ):
		return u
	case b == row.KindDate && (a == row.KindTimestamp || a == row.KindTimestampLTZ):
		return t
	case a != b:
		return nil
	}
	switch a {
	case row.KindArray, row.KindMultiset:
		e := LeastRestrictive(t.Elem(), u.Elem())
		if e == nil {
			return nil
		}
		if a == row.KindArray {
			return row.Array(e)
		}
		return row.Multiset(e)
	case row.KindMap:
		k, v := LeastRestrictive(t.Key(), u.Key()), LeastRestrictive(t.Elem(), u.Elem())
		if k == nil || v == nil {
			return nil
		}
		return row.Map(k, v)
	case row.KindRow:
		if t.NumFields() != u.NumFields() {
			return nil
		}
		fields := make([]row.Field, t.NumFields())
		for i := range fields {
			f := LeastRestrictive(t.Field(i).Type, u.Field(i).Type)
			if f == nil {
				return nil
			}
			fields[i] = row.Field{Name: t.Field(i).Name, Type: f}
		}
		return row.RowOf(fields...)
	}
	return t
}

// numericOf is the type of a sum and the like. FLOAT and DOUBLE: the one that stands first.
func numericOf(t, u *row.Type) *row.Type {
	a, b := t.Kind(), u.Kind()
	switch {
	case a.Approximate() && b.Approximate():
		return t
	case a.Approximate() && b == row.KindDecimal, b.Approximate() && a == row.KindDecimal:
		return row.Double()
	case a.Approximate():
		return t
	case b.Approximate():
		return u
	case a.Integer() && b.Integer():
		if a > b {
			return t
		}
		return u
	}
	p1, s1 := Exact(t)
	p2, s2 := Exact(u)
	s := max(s1, s2)
	return row.Decimal(min(row.MaxPrecision, max(p1-s1, p2-s2)+s), min(s, row.MaxPrecision))
}

// Castable says whether CAST from one type to the other exists, with the reason if not.
func Castable(from, to *row.Type) error {
	a, b := from.Kind(), to.Kind()
	no := func() error { return fmt.Errorf("there is no cast from %s to %s", from.Text(), to.Text()) }
	timestamp := func(k row.Kind) bool { return k == row.KindTimestamp || k == row.KindTimestampLTZ }
	switch {
	case a == row.KindNull, a == b && !a.Nested():
		return nil
	case b.Text():
		return nil
	case a.Text():
		if b.Nested() || b.Interval() {
			return no()
		}
		return nil
	case a.Bytes():
		if b.Bytes() {
			return nil
		}
		return no()
	case (a.Numeric() || a == row.KindBoolean) && (b.Numeric() || b == row.KindBoolean):
		if a == row.KindBoolean && b == row.KindBoolean {
			return nil
		}
		return nil
	case timestamp(a) && b.Numeric():
		return fmt.Errorf("the cast from %s to a number is not allowed; use UNIX_TIMESTAMP(CAST(x AS STRING))", from.Text())
	case a.Numeric() && timestamp(b):
		return fmt.Errorf("the cast from a number to %s is not allowed; use TO_TIMESTAMP_LTZ(x, 3), or TO_TIMESTAMP(FROM_UNIXTIME(x))", to.Text())
	case a.Numeric() && b.Interval(), a.Interval() && b.Numeric():
		if a.Integer() || b.Integer() {
			return nil
		}
		return no()
	case a.Datetime() && b.Datetime():
		if a == row.KindDate && b == row.KindTime || a == row.KindTime && b == row.KindDate {
			return no()
		}
		return nil
	case a != b && !(a == row.KindMultiset && b == row.KindMap):
		return no()
	}
	switch a {
	case row.KindArray, row.KindMultiset:
		return Castable(from.Elem(), to.Elem())
	case row.KindMap:
		if err := Castable(from.Key(), to.Key()); err != nil {
			return err
		}
		return Castable(from.Elem(), to.Elem())
	case row.KindRow:
		if from.NumFields() != to.NumFields() {
			return fmt.Errorf("a ROW of %d fields cannot be cast to one of %d", from.NumFields(), to.NumFields())
		}
		for i := range from.NumFields() {
			if err := Castable(from.Field(i).Type, to.Field(i).Type); err != nil {
				return err
			}
		}
	}
	return nil
}
