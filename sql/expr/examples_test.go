package expr_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/bind"
	"github.com/millrace-stream/millrace/sql/diag"
	"github.com/millrace-stream/millrace/sql/expr"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/parse"
	"github.com/millrace-stream/millrace/sql/rel"
)

func newEnv() *fn.Env {
	rnd := rand.New(rand.NewPCG(1, 2))
	return &fn.Env{Now: 1717200000000, Watermark: 1717100000000, Zone: row.UTC(), Rand: rnd.Uint64}
}

// bound binds an expression without columns.
func bound(t testing.TB, text string) (rel.Expr, error) {
	t.Helper()
	src := diag.NewSource("test", text)
	e, errs := parse.Expr(src, nil)
	if errs.Err() != nil {
		return nil, errs.Err()
	}
	node, errs := bind.NewSession().Expr(e, "", src)
	if errs.Err() != nil {
		return nil, errs.Err()
	}
	p, ok := node.(*rel.Project)
	if !ok {
		t.Fatalf("%s: bound to a %T", text, node)
	}
	return p.Exprs[0], nil
}

// evaluate gives the type and the value of an expression without columns, as the oracle prints them.
func evaluate(t testing.TB, text string) (typ, value string, err error) {
	t.Helper()
	e, err := bound(t, text)
	if err != nil {
		return "", "", err
	}
	p, err := expr.Project(newEnv(), nil, []rel.Expr{e})
	if err != nil {
		return "", "", err
	}
	defer func() {
		if f, ok := recover().(*fn.Failure); ok {
			err = f
		}
	}()
	out := p.Layout().New()
	p.Apply(out, nil)
	return e.Type().String(), string(row.AppendResultValue(nil, p.Layout().Type(0), p.Layout().Get(out, 0))), nil
}

func TestExamplesOfFunctionsSayWhatTheyGive(t *testing.T) {
	for _, f := range fn.All() {
		for _, x := range f.Examples {
			typ, value, err := evaluate(t, x.SQL)
			if err != nil {
				t.Errorf("%s: %s: %v", f.Name, x.SQL, err)
				continue
			}
			if value != x.Result && value != `"`+x.Result+`"` && unquoted(value) != x.Result {
				t.Errorf("%s: %s is %s, the example says %s", f.Name, x.SQL, value, x.Result)
			}
			if typ != x.Type {
				t.Errorf("%s: %s has the type %s, the example says %s", f.Name, x.SQL, typ, x.Type)
			}
		}
	}
}

func unquoted(s string) string {
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(strings.TrimSuffix(strings.TrimPrefix(s, `"`), `"`))
}

// samples are values of all types: NULL, empty, extreme.
var samples = []string{
	"CAST(NULL AS BOOLEAN)", "TRUE", "CAST(NULL AS TINYINT)", "CAST(-128 AS TINYINT)", "CAST(NULL AS INT)", "0", "1", "-1",
	"2147483647", "-2147483648", "CAST(NULL AS BIGINT)", "9223372036854775807", "-9223372036854775807 - 1",
	"CAST(NULL AS DOUBLE)", "0e0", "-1.5e308", "CAST('NaN' AS DOUBLE)", "CAST('Infinity' AS DOUBLE)", "CAST(1.5 AS FLOAT)",
	"CAST(NULL AS DECIMAL(10, 2))", "99999999.99", "CAST('-99999999999999999999999999999999999999' AS DECIMAL(38, 0))",
	"CAST('0.00000000000000000000000000000000000001' AS DECIMAL(38, 38))",
	"CAST(NULL AS STRING)", "''", "'a'", "'%_\\('", "U&'a\\d83d\\de00b'", "CAST(NULL AS BYTES)", "x''", "x'00FF'",
	"CAST(NULL AS DATE)", "DATE '0001-01-01'", "DATE '9999-12-31'", "TIME '23:59:59'", "CAST(NULL AS TIME)",
	"CAST(NULL AS TIMESTAMP(3))", "TIMESTAMP '0001-01-01 00:00:00'", "TIMESTAMP '9999-12-31 23:59:59.999999999'",
	"CAST(TIMESTAMP '1969-12-31 23:59:59.999' AS TIMESTAMP_LTZ(3))", "CAST(NULL AS TIMESTAMP_LTZ(3))",
	"INTERVAL '1' DAY", "INTERVAL '99' YEAR", "CAST(NULL AS ARRAY<INT>)", "ARRAY[1, CAST(NULL AS INT)]", "ARRAY['a']",
	"CAST(NULL AS MAP<STRING, INT>)", "MAP['a', 1]", "ROW(1, 'a')",
}

// Every function with NULL, empty and extreme values: it gives a value or a Failure, and nothing else.
func TestFunctionsStandNullEmptyAndExtremeValues(t *testing.T) {
	var values []rel.Expr
	for _, s := range samples {
		e, err := bound(t, s)
		if err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		values = append(values, e)
	}
	words := []string{"YEAR", "DAY", "BOTH", "NULL", "ABSENT", "WITHOUT", "FALSE"}
	const seed = 7
	rnd := rand.New(rand.NewPCG(seed, seed))
	env := newEnv()
	for _, f := range fn.All() {
		if f.Compile == nil {
			continue
		}
		fits := 0
		for range 4000 {
			n := rnd.IntN(5)
			args := make([]rel.Expr, n)
			in := make([]fn.Arg, n)
			for i := range args {
				args[i] = values[rnd.IntN(len(values))]
				if i > 0 && rnd.IntN(3) == 0 {
					args[i] = args[i-1]
				}
				if rnd.IntN(6) == 0 {
					w := words[rnd.IntN(len(words))]
					args[i] = rel.NewLiteral(row.Char(len(w)).NotNull(), fn.Const{B: []byte(w)}, "", rel.Place{})
				}
				in[i] = fn.Arg{Type: args[i].Type()}
				if l, ok := args[i].(*rel.Literal); ok {
					in[i].Const = &l.Const
				}
			}
			r, err := f.Resolve(in)
			if err != nil {
				continue
			}
			cast := make([]rel.Expr, n)
			for i, a := range args {
				cast[i] = a
				if a.Type().Plain() != r.Args[i].Plain() {
					cast[i] = rel.NewCast(r.Args[i], a, false, true, rel.Place{})
				}
			}
			fits++
			run(t, env, f, cast, r.Result)
		}
		if fits == 0 && f.Name != "JSON_VALUE" && f.Name != "JSON_QUERY" {
			t.Errorf("%s was never called", f.Name)
		}
	}
}

func run(t *testing.T, env *fn.Env, f *fn.Func, args []rel.Expr, typ *row.Type) {
	t.Helper()
	env.Arena.Reset()
	defer func() {
		p := recover()
		if _, ok := p.(*fn.Failure); p != nil && !ok {
			var list []string
			for _, a := range args {
				list = append(list, rel.Text(a))
			}
			t.Fatalf("%s(%s): panic: %v", f.Name, strings.Join(list, ", "), p)
		}
	}()
	code, err := expr.Compile(env, nil, rel.NewCall(typ, f, args, rel.Place{}))
	if err != nil {
		if d := (*diag.Error)(nil); !errors.As(err, &d) {
			t.Fatalf("%s: error of the type %T: %v", f.Name, err, err)
		}
		return
	}
	v := code.Eval(nil)
	if !v.Null && typ.Kind().Nested() {
		if err := row.CheckNested(typ, v.B); err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
	}
	if v.Null && !typ.IsNullable() && f.Nulls == fn.Never {
		t.Fatalf("%s is NULL and never may be", f.Name)
	}
}

func one() fn.Const { return fn.Const{X: 1} }

func function(t testing.TB, name string) *fn.Func {
	t.Helper()
	f, ok := fn.Lookup(name)
	if !ok {
		t.Fatalf("no function %s", name)
	}
	return f
}
