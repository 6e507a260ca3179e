package fn

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/row"
)

func env() *Env { return &Env{Zone: row.UTC(), Watermark: math.MinInt64} }

// call compiles a function over columns of these types and returns what evaluates a row of values.
func call(t testing.TB, f *Func, types ...*row.Type) (*row.Type, *row.Layout, Code) {
	t.Helper()
	args := make([]Arg, len(types))
	for i, u := range types {
		args[i] = Arg{Type: u}
	}
	r, err := f.Resolve(args)
	if err != nil {
		t.Fatalf("%s: %v", f.Name, err)
	}
	l := row.NewLayout(types...)
	codes := columns(t, l, r.Args)
	code, err := f.Compile(env(), codes, r.Result)
	if err != nil {
		t.Fatalf("%s: %v", f.Name, err)
	}
	return r.Result, l, code
}

func columns(t testing.TB, l *row.Layout, to []*row.Type) []Code {
	t.Helper()
	codes := make([]Code, l.Len())
	for i := range codes {
		c, err := Cast(env(), ColumnCode(l.Type(i), i, l.Place(i).Index), to[i], false)
		if err != nil {
			t.Fatal(err)
		}
		codes[i] = c
	}
	return codes
}

func lookup(t testing.TB, name string) *Func {
	t.Helper()
	f, ok := Lookup(strings.ToLower(name))
	if !ok {
		t.Fatalf("no function %s", name)
	}
	return f
}

func TestDecimalOperatorsAgreeWithBigInt(t *testing.T) {
	const seed = 11
	rnd := rand.New(rand.NewPCG(seed, 1))
	pow := func(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }
	number := func(p int) *big.Int {
		n := new(big.Int)
		for range 1 + rnd.IntN(p) {
			n.Add(n.Mul(n, big.NewInt(10)), big.NewInt(int64(rnd.IntN(10))))
		}
		if rnd.IntN(2) == 0 {
			n.Neg(n)
		}
		return n
	}
	half := func(n, d *big.Int) *big.Int { // n / d, half away from zero
		q, r := new(big.Int).QuoRem(n, d, new(big.Int))
		if r.Abs(r).Lsh(r, 1).CmpAbs(d) >= 0 {
			q.Add(q, big.NewInt(int64(n.Sign()*d.Sign())))
		}
		return q
	}
	dec := func(n *big.Int) row.Dec {
		lo := new(big.Int).And(n, new(big.Int).SetUint64(math.MaxUint64))
		return row.Dec{Lo: lo.Uint64(), Hi: new(big.Int).Rsh(n, 64).Int64()}
	}
	for range 20000 {
		p1, p2 := 1+rnd.IntN(38), 1+rnd.IntN(38)
		s1, s2 := rnd.IntN(p1+1), rnd.IntN(p2+1)
		op := []string{"+", "-", "*", "/", "%"}[rnd.IntN(5)]
		x, y := number(p1), number(p2)
		if y.Sign() == 0 && (op == "/" || op == "%") {
			continue
		}
		typ, l, code := call(t, lookup(t, op), row.Decimal(p1, s1), row.Decimal(p2, s2))
		r := l.RowOf(dec(x), dec(y))
		m := max(s1, s2)
		ax, ay := new(big.Int).Mul(x, pow(m-s1)), new(big.Int).Mul(y, pow(m-s2))
		var want *big.Int
		from := m
		switch op {
		case "+":
			want = ax.Add(ax, ay)
		case "-":
			want = ax.Sub(ax, ay)
		case "*":
			want, from = new(big.Int).Mul(x, y), s1+s2
		case "%":
			want = ax.Rem(ax, ay)
		case "/":
			n, d := new(big.Int).Mul(x, pow(typ.Scale()+s2)), new(big.Int).Mul(y, pow(s1))
			want, from = half(n, d), typ.Scale()
		}
		if from > typ.Scale() {
			want = half(want, pow(from-typ.Scale()))
		} else {
			want.Mul(want, pow(typ.Scale()-from))
		}
		got, ok := code.Decs()(r)
		if fits := want.CmpAbs(pow(typ.Precision())) < 0; fits != ok || ok && got != dec(want) {
			t.Fatalf("seed %d: %s (%d,%d) %s %s (%d,%d) is %v %v, want %s of %s", seed, x, p1, s1, op, y, p2, s2, got, ok, want, typ)
		}
	}
}

// The forms for columns and literals, and the general one, agree.
func TestFusedComparisonsAgree(t *testing.T) {
	l := row.NewLayout(row.BigInt(), row.BigInt())
	a, b := ColumnCode(row.BigInt(), 0, 0), ColumnCode(row.BigInt(), 1, 1)
	plain := func(c Code) Code { c.Column = nil; return c }
	for _, op := range []string{"=", "<>", "<", "<=", ">", ">="} {
		for _, v := range [][2]any{{1, 1}, {1, 2}, {2, 1}, {-1, 1}, {nil, 1}, {1, nil}, {math.MinInt64, math.MaxInt64}} {
			r := l.RowOf(v[0], v[1])
			want := compare(op, plain(a), plain(b))(r)
			if got := compare(op, a, b)(r); got != want {
				t.Errorf("%v %s %v: columns say %d, want %d", v[0], op, v[1], got, want)
			}
			lit := func(i int) Code {
				n, _ := v[i].(int)
				return ConstCode(row.BigInt(), Const{Null: v[i] == nil, X: uint64(int64(n))})
			}
			for name, f := range map[string]func(*row.Row) Tri{
				"column and literal": compare(op, a, lit(1)), "value and literal": compare(op, plain(a), lit(1)), "literal and column": compare(op, lit(0), b),
			} {
				if got := f(r); got != want {
					t.Errorf("%v %s %v: %s say %d, want %d", v[0], op, v[1], name, got, want)
				}
			}
		}
	}
}

func TestLikeAgreesWithARegularExpression(t *testing.T) {
	const seed = 3
	rnd := rand.New(rand.NewPCG(seed, 1))
	text := func(alphabet string) string {
		var b strings.Builder
		for range rnd.IntN(8) {
			b.WriteByte(alphabet[rnd.IntN(len(alphabet))])
		}
		return b.String()
	}
	for range 20000 {
		s, p := text("aab"), text("ab%_%")
		re := "(?s)^" + strings.NewReplacer("%", ".*", "_", ".").Replace(p) + "$"
		want := regexp.MustCompile(re).MatchString(s)
		if got := newLike([]byte(p), nil).match([]byte(s)); got != want {
			t.Fatalf("seed %d: '%s' LIKE '%s' is %v", seed, s, p, got)
		}
	}
}

// Every aggregate that can take rows back does so, and merges what was counted apart.
func TestAggregatesRetractAndMerge(t *testing.T) {
	const seed = 5
	rnd := rand.New(rand.NewPCG(seed, 1))
	types := []*row.Type{row.Int(), row.BigInt(), row.Double(), row.Decimal(10, 2), row.Decimal(30, 4)}
	for _, f := range All() {
		if f.Agg == nil || f.Agg.Compile == nil || strings.HasPrefix(f.Name, "GROUP") || strings.HasPrefix(f.Name, "JSON") || f.Name == "LISTAGG" {
			continue
		}
		for _, typ := range types {
			r, err := f.Resolve([]Arg{{Type: typ}})
			if err != nil {
				t.Fatalf("%s: %v", f.Name, err)
			}
			l := row.NewLayout(typ)
			a, err := f.Agg.Compile(env(), columns(t, l, r.Args), r.Result)
			if err != nil {
				t.Fatalf("%s: %v", f.Name, err)
			}
			fresh := func(rows ...*row.Row) State {
				s := State{W: make([]uint64, a.Words), S: make([][]byte, a.Views)}
				for _, r := range rows {
					a.Add(s, r)
				}
				return s
			}
			value := func(s State) Const {
				a.Bind(s)
				return a.Value.Eval(nil)
			}
			for range 50 {
				var rows []*row.Row
				for range 1 + rnd.IntN(6) {
					n := rnd.Int64N(200) - 100
					v := row.Value(nil)
					switch {
					case rnd.IntN(5) == 0:
					case typ.Kind() == row.KindDouble:
						v = float64(n) // whole numbers: their sums are exact
					case typ.Kind() == row.KindDecimal:
						v = row.DecInt(n)
					default:
						v = n
					}
					rows = append(rows, l.RowOf(v))
				}
				want := value(fresh(rows...))
				cut := rnd.IntN(len(rows) + 1)
				if a.Merge != nil {
					s := fresh(rows[:cut]...)
					a.Merge(s, fresh(rows[cut:]...))
					if got := value(s); !equalValues(r.Result, got, want, true) {
						t.Fatalf("seed %d: %s of %s: merged %v, want %v", seed, f.Name, typ, got, want)
					}
				}
				if a.Retract == nil {
					continue
				}
				s := fresh(slices.Concat(rows, rows[:cut])...)
				for _, r := range rows[:cut] {
					a.Retract(s, r)
				}
				if got := value(s); !equalValues(r.Result, got, want, true) {
					t.Fatalf("seed %d: %s of %s: %v after rows were taken back, want %v", seed, f.Name, typ, got, want)
				}
			}
			if a.Retract == nil && f.Agg.Store == NoStore {
				t.Errorf("%s cannot take rows back and asks for no store", f.Name)
			}
		}
	}
}

func TestApproxCountDistinctIsNear(t *testing.T) {
	a, err := compileApprox(env(), []Code{ColumnCode(row.BigInt(), 0, 0)}, row.BigInt().NotNull())
	if err != nil {
		t.Fatal(err)
	}
	l := row.NewLayout(row.BigInt())
	s := State{S: make([][]byte, 1)}
	for n := int64(1); n <= 30000; n++ {
		a.Add(s, l.RowOf(n))
		a.Add(s, l.RowOf((n+1)/2))
		if n == 10 || n == 1000 || n == 30000 {
			a.Bind(s)
			got, _ := a.Value.Int(nil)
			if math.Abs(float64(got-n)) > max(1, 0.03*float64(n)) {
				t.Errorf("%d different values are counted as %d", n, got)
			}
		}
	}
}

func TestUserFunctions(t *testing.T) {
	f := Scalar2("F", func(_ *Env, a int64, b string) (string, error) {
		switch a {
		case 0:
			return "", ErrNull
		case 1:
			return "", errors.New("one is not wanted")
		}
		return strings.Repeat(b, int(a)), nil
	})
	_, l, code := call(t, f, row.Int(), row.Char(1))
	for _, c := range []struct {
		a, b row.Value
		want string
	}{{int64(3), "x", "xxx"}, {int64(0), "x", "NULL"}, {nil, "x", "NULL"}, {int64(1), "x", "F: one is not wanted"}} {
		v, err := code.TryEval(l.RowOf(c.a, c.b))
		got := string(v.B)
		if v.Null {
			got = "NULL"
		}
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("F(%v, %v) is %s, want %s", c.a, c.b, got, c.want)
		}
	}
	if _, err := f.Resolve([]Arg{{Type: row.Double()}, {Type: row.String()}}); err == nil {
		t.Error("a DOUBLE was taken for a BIGINT")
	}
	day := Scalar1("DAY", func(_ *Env, at time.Time) (int32, error) { return int32(at.Day()), nil })
	_, l, code = call(t, day, row.TimestampLTZ(3))
	if v := code.Eval(l.RowOf(row.Stamp{Ms: 86400000})); v.X != 2 {
		t.Errorf("the day of 1970-01-02 is %d", v.X)
	}

	type part struct {
		Word string `sql:"word"`
		Size int32
	}
	split, err := Table1("SPLIT", func(_ *Env, s string, emit func(part) error) error {
		for _, w := range strings.Fields(s) {
			if err := emit(part{w, int32(len(w))}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := split.Resolve([]Arg{{Type: row.String()}})
	if err != nil || r.Result.String() != "ROW<`word` STRING, `Size` INT> NOT NULL" {
		t.Fatalf("SPLIT gives %s (%v)", r.Result, err)
	}
	in := row.NewLayout(row.String())
	rows, err := split.Rows(env(), columns(t, in, r.Args), r.Result)
	if err != nil {
		t.Fatal(err)
	}
	out := row.NewLayout(row.String(), row.Int())
	var got []string
	err = rows(in.RowOf("ab c"), func(o *row.Row) error {
		got = append(got, string(out.AppendResult(nil, o)))
		return nil
	})
	if want := `[["ab", 2] ["c", 1]]`; err != nil || fmt.Sprint(got) != want {
		t.Errorf("SPLIT gives %v (%v), want %s", got, err, want)
	}

	type sum struct{ N, Total int64 }
	mean := Aggregate1("MEAN", func(s *sum, v int64) error { s.N++; s.Total += v; return nil },
		func(s *sum, v int64) error { s.N--; s.Total -= v; return nil }, nil,
		func(s sum) (float64, error) {
			if s.N == 0 {
				return 0, ErrNull
			}
			return float64(s.Total) / float64(s.N), nil
		})
	ints := row.NewLayout(row.BigInt())
	acc, err := mean.Agg.Compile(env(), columns(t, ints, []*row.Type{row.BigInt()}), row.Double())
	if err != nil {
		t.Fatal(err)
	}
	s := State{S: make([][]byte, 1)}
	acc.Bind(s)
	if v := acc.Value.Eval(nil); !v.Null {
		t.Error("MEAN of nothing is not NULL")
	}
	acc.Add(s, ints.RowOf(int64(1)))
	acc.Add(s, ints.RowOf(int64(2)))
	acc.Add(s, ints.RowOf(nil))
	acc.Add(s, ints.RowOf(int64(9)))
	acc.Retract(s, ints.RowOf(int64(9)))
	acc.Bind(s)
	if v, ok := acc.Value.Float(nil); v != 1.5 || !ok {
		t.Errorf("MEAN is %v, want 1.5", v)
	}
}

func FuzzPatterns(f *testing.F) {
	f.Add("a1b22c", "[0-9]+")
	f.Add("a%c", "a\\%_")
	f.Add(`{"a":[1,{"b":null}]}`, "lax $.a[*]..b")
	f.Fuzz(func(t *testing.T, text, p string) {
		if re, err := compilePattern(p); err == nil {
			if m := re.FindStringIndex(text); (m != nil) != (re.find([]byte(text)) != nil) {
				t.Fatalf("the needed text %q of %q hides a match in %q", re.need, p, text)
			}
		}
		_, _ = similar(p, '!')
		newLike([]byte(p), []byte("!")).match([]byte(text))
		path, err := newJSONPath(p)
		if err == nil {
			_, _ = path.find([]byte(text))
		}
		if n, err := parseJSON([]byte(text)); err == nil {
			out := n.append(nil)
			again, err := parseJSON(out)
			if err != nil || string(again.append(nil)) != string(out) {
				t.Fatalf("%q becomes %q, which reads as %v (%v)", text, out, again, err)
			}
		}
	})
}
