package sqltest_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql"
	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/diag"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/parse"
	"github.com/millrace-stream/millrace/sql/sqltest"
)

// functionsDir has a case for each chapter of the functions, whose answers are those of Flink.
const functionsDir = "../../test/oracle/functions"

var writeFunctions = flag.Bool("write-functions", false, "write the expressions of TestFunctions, without answers, to "+functionsDir)

// edges are the values that are put in the place of an argument of a type: NULL, empty, extreme.
func edges(t *row.Type) []string {
	null := "CAST(NULL AS " + t.Plain().Nullable(true).Text() + ")"
	switch k := t.Kind(); k {
	case row.KindBoolean:
		return []string{null, "FALSE", "TRUE"}
	case row.KindTinyInt, row.KindSmallInt, row.KindInt, row.KindBigInt:
		top := map[row.Kind][2]string{row.KindTinyInt: {"127", "-128"}, row.KindSmallInt: {"32767", "-32768"}, row.KindInt: {"2147483647", "-2147483648"},
			row.KindBigInt: {"9223372036854775807", "-9223372036854775808"}}[k]
		name := t.Plain().Nullable(true).Text()
		return []string{null, "CAST(0 AS " + name + ")", "CAST('" + top[0] + "' AS " + name + ")", "CAST('" + top[1] + "' AS " + name + ")"}
	case row.KindFloat, row.KindDouble:
		return []string{null, "0e0", "1.7e308", "-1.7e308"}
	case row.KindDecimal:
		nines := strings.Repeat("9", t.Precision()-t.Scale()) + "." + strings.Repeat("9", t.Scale())
		name := t.Plain().Nullable(true).Text()
		return []string{null, "CAST('0' AS " + name + ")", "CAST('" + nines + "' AS " + name + ")", "CAST('-" + nines + "' AS " + name + ")"}
	case row.KindChar, row.KindVarChar:
		return []string{"CAST(NULL AS STRING)", "''", "'\u00c4\U0001f600\u00df %_\\'", "' '"}
	case row.KindBinary, row.KindVarBinary:
		return []string{"CAST(NULL AS BYTES)", "x''", "x'00FF80'"}
	case row.KindDate:
		return []string{null, "DATE '1970-01-01'", "DATE '0001-01-01'", "DATE '9999-12-31'"}
	case row.KindTime:
		return []string{null, "TIME '00:00:00'", "TIME '23:59:59'"}
	case row.KindTimestamp:
		return []string{null, "TIMESTAMP '1970-01-01 00:00:00'", "TIMESTAMP '0001-01-01 00:00:00'", "TIMESTAMP '9999-12-31 23:59:59.999'"}
	case row.KindArray, row.KindMap, row.KindMultiset, row.KindRow:
		return []string{null}
	}
	return nil
}

// functionCases are the expressions by chapter: each example of a function with each argument in turn replaced.
func functionCases(t *testing.T) map[string][]string {
	out := map[string][]string{}
	s := sql.NewSession(sql.Options{})
	typeOf := func(e ast.Expr) *row.Type {
		text := ast.Print(e)
		src := diag.NewSource("argument", text)
		again, errs := parse.Expr(src, nil)
		if errs.Err() != nil {
			return nil
		}
		n, errs := s.Expr(again, "", src)
		if errs.Err() != nil {
			return nil
		}
		return n.Schema().Types[0]
	}
	for _, f := range fn.All() {
		if f.Kind != fn.Scalar || f.Purity != fn.Pure {
			continue
		}
		n := 0
		for _, x := range f.Examples[:min(2, len(f.Examples))] {
			e, errs := parse.Expr(diag.NewSource("example", x.SQL), nil)
			if errs.Err() != nil {
				t.Fatalf("%s: %v", x.SQL, errs)
			}
			for _, at := range operandsOf(reflect.ValueOf(e).Elem()) {
				old := at.Interface().(ast.Expr)
				typ := typeOf(old)
				if typ == nil {
					continue
				}
				for _, edge := range edges(typ) {
					v, errs := parse.Expr(diag.NewSource("value", edge), nil)
					if errs.Err() != nil {
						t.Fatalf("%s: %v", edge, errs)
					}
					at.Set(reflect.ValueOf(v))
					if text := strings.Join(strings.Fields(ast.Print(e)), " "); !slices.Contains(out[f.Group], text) {
						out[f.Group] = append(out[f.Group], text)
					}
					n++
				}
				at.Set(reflect.ValueOf(old))
			}
		}
		if n == 0 && len(f.Examples) == 0 {
			t.Errorf("%s has no example", f.Name)
		}
	}
	return out
}

// operandsOf are the places of expressions right in a node.
func operandsOf(v reflect.Value) (out []reflect.Value) {
	for i := range v.NumField() {
		switch f := v.Field(i); {
		case f.Type() == reflect.TypeFor[ast.Expr]() && !f.IsNil():
			out = append(out, f)
		case f.Kind() == reflect.Slice && f.Type().Elem() == reflect.TypeFor[ast.Expr]():
			for k := range f.Len() {
				out = append(out, f.Index(k))
			}
		}
	}
	return slices.DeleteFunc(out, func(f reflect.Value) bool {
		_, word := f.Interface().(*ast.Symbol)
		return word
	})
}

// TestFunctions wants for every function an answer of Flink to NULL, empty and extreme arguments, and ours to be the same.
func TestFunctions(t *testing.T) {
	all := functionCases(t)
	for _, group := range slices.Sorted(maps.Keys(all)) {
		path := filepath.Join(functionsDir, group+".case")
		if *writeFunctions {
			text := fmt.Sprintf("-- name: functions_%s\n-- desc: %s functions of NULL, empty and extreme values\n-- exprs\n%s\n", group, group, strings.Join(all[group], "\n"))
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		c, err := sqltest.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(c.Exprs, all[group]) {
			t.Errorf("%s has not the expressions of the functions: write it anew with -write-functions, and ask Flink", path)
		}
		known := listed(group)
		for i, x := range c.Exprs {
			one := *c
			one.Exprs, one.Expect.Exprs = []string{x}, c.Expect.Exprs[i:i+1]
			diff, _ := sqltest.Check(&one, sqltest.RunOptions{})
			switch name := group + " " + x; {
			case diff == "" && known[name]:
				t.Errorf("%s is as in Flink: take it off the list in notyet.txt", name)
			case diff != "" && !known[name]:
				t.Errorf("%s: %s", group, diff)
			}
			delete(known, group+" "+x)
		}
		for name := range known {
			t.Errorf("notyet.txt has %s, and there is no such expression", name)
		}
	}
}
