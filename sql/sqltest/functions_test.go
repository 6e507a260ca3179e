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

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql"
	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/diag"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/parse"
	"github.com/millrace-stream/millrace/sql/rel"
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
	case row.KindTimestampLTZ:
		name := t.Plain().Nullable(true).Text()
		return []string{null, "CAST(TIMESTAMP '1970-01-01 00:00:00' AS " + name + ")", "CAST(TIMESTAMP '9999-12-31 23:59:59' AS " + name + ")"}
	case row.KindArray:
		return []string{null, "CAST(" + emptyArray + " AS " + t.Plain().Text() + ")"}
	case row.KindMap:
		return []string{null, "CAST(MAP_FROM_ARRAYS(" + emptyArray + ", " + emptyArray + ") AS " + t.Plain().Text() + ")"}
	case row.KindMultiset, row.KindRow:
		return []string{null}
	}
	return nil
}

// emptyArray is an array without elements, for which SQL has no literal.
const emptyArray = "ARRAY_REMOVE(ARRAY[1], 1)"

// functionCases are the expressions by chapter: of examples of a function, each argument in turn replaced. missing are the
// functions that take arguments and have no such expression.
func functionCases(t *testing.T, all []*fn.Func) (byGroup map[string][]string, missing []string) {
	byGroup = map[string][]string{}
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
	add := func(group, text string) {
		if !slices.Contains(byGroup[group], text) {
			byGroup[group] = append(byGroup[group], text)
		}
	}
	for _, f := range all {
		if f.Kind != fn.Scalar {
			continue
		}
		for _, x := range byHand[f.Name] {
			add(f.Group, x)
		}
		operands, tried := 0, len(byHand[f.Name])
		for _, x := range f.Examples {
			e, errs := parse.Expr(diag.NewSource("example", x.SQL), nil)
			if errs.Err() != nil {
				t.Fatalf("%s: %v", x.SQL, errs)
			}
			operands = max(operands, len(operandsOf(reflect.ValueOf(e).Elem())))
		}
		for i, x := range f.Examples {
			e, _ := parse.Expr(diag.NewSource("example", x.SQL), nil)
			list := operandsOf(reflect.ValueOf(e).Elem())
			if i > 1 && (len(list) < operands || tried >= operands) { // of many examples the first two, and the first that has all arguments
				continue
			}
			tried = max(tried, len(list))
			for _, at := range list {
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
					add(f.Group, strings.Join(strings.Fields(ast.Print(e)), " "))
				}
				at.Set(reflect.ValueOf(old))
			}
		}
		if tried == 0 && takesArguments(f) {
			missing = append(missing, f.Name)
		}
	}
	return byGroup, missing
}

// byHand are expressions of functions that have no example, since what they give is not the same each time.
var byHand = map[string][]string{
	"RAND": {"RAND(CAST(NULL AS INT)) IS NULL", "RAND() < 1", "RAND(CAST('-2147483648' AS INT)) >= 0"},
	"RAND_INTEGER": {"RAND_INTEGER(CAST(NULL AS INT))", "RAND_INTEGER(1)", "RAND_INTEGER(0)", "RAND_INTEGER(-1)", "RAND_INTEGER(CAST(NULL AS INT), 1)",
		"RAND_INTEGER(5, CAST(NULL AS INT))"},
	"UNIX_TIMESTAMP": {"UNIX_TIMESTAMP(CAST(NULL AS STRING))", "UNIX_TIMESTAMP('')", "UNIX_TIMESTAMP('0001-01-01 00:00:00')",
		"UNIX_TIMESTAMP('9999-12-31 23:59:59')", "UNIX_TIMESTAMP('05.03.2024', CAST(NULL AS STRING))", "UNIX_TIMESTAMP('05.03.2024', '')",
		"UNIX_TIMESTAMP('', 'dd.MM.yyyy')", "UNIX_TIMESTAMP(CAST(NULL AS STRING), 'dd.MM.yyyy')"},
}

// takesArguments says whether a scalar function has any, by its syntax: CURRENT_DATE and PI() have none.
func takesArguments(f *fn.Func) bool {
	return f.Syntax != f.Name && f.Syntax != f.Name+"()"
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

// columnTypes are types of a column, by the name of their case, with values as they stand in JSON: the first is empty or zero,
// the others are extreme.
var columnTypes = []struct {
	name, sql string
	values    []string
}{
	{"boolean", "BOOLEAN", []string{"false", "true"}},
	{"tinyint", "TINYINT", []string{"0", "63", "-64"}},
	{"int", "INT", []string{"0", "2147483647", "-2147483648"}},
	{"bigint", "BIGINT", []string{"0", "9223372036854775807", "-9223372036854775808"}},
	{"float", "FLOAT", []string{"0", "3.4e38", "-3.4e38"}},
	{"double", "DOUBLE", []string{"0", "1.7e308", "-1.7e308"}},
	{"decimal", "DECIMAL(10, 2)", []string{"0", "99999999.99", "-99999999.99"}},
	{"decimal38", "DECIMAL(38, 0)", []string{"0", strings.Repeat("9", 38), "-" + strings.Repeat("9", 38)}},
	{"string", "STRING", []string{`""`, "\"\u00c4\U0001f600\u00df %_\\\\\"", `" "`}},
	{"bytes", "BYTES", []string{`""`, `"AP+A"`, `"fw=="`}},
	{"date", "DATE", []string{`"1970-01-01"`, `"9999-12-31"`, `"0001-01-01"`}},
	{"time", "TIME", []string{`"00:00:00"`, `"23:59:59"`, `"00:00:01"`}},
	{"timestamp", "TIMESTAMP(3)", []string{`"1970-01-01 00:00:00"`, `"9999-12-31 23:59:59.999"`, `"0001-01-01 00:00:00"`}},
	{"array", "ARRAY<INT>", []string{`[]`, `[null]`, `[2147483647]`}},
}

// aggregateCase is the text of a case without its answers: all aggregates that take a column of a type, of groups that have
// NULL, empty and extreme values, alone and together, and of which some rows are withdrawn.
func aggregateCase(name, typ string, values []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "-- name: aggregate_%s\n-- desc: aggregates of %s, of NULL, empty and extreme values\n-- ddl\n", name, typ)
	ddl := "CREATE TABLE t (g STRING NOT NULL, v " + typ + ") WITH ('changelog-mode'='all');\n"
	b.WriteString(ddl + "-- input t\n")
	row := func(kind, group, v string) { fmt.Fprintf(&b, "%s {\"g\":%q,\"v\":%s}\n", kind, group, v) }
	row("+I", "null", "null")
	for i, v := range values {
		row("+I", fmt.Sprint("only ", i), v)
		row("+I", "all", v)
	}
	row("+I", "all", "null")
	if name != "bytes" { // Flink does not see that two are equal
		for _, v := range values {
			row("+I", "twice", v)
			row("+I", "gone", v)
		}
		row("+I", "twice", values[len(values)-1])
		row("+I", "gone", "null")
		for _, v := range values[1:] {
			row("-D", "gone", v)
		}
	}
	s := sql.NewSession(sql.Options{Collect: func(*rel.Schema) *connector.Sink { return nil }})
	if _, errs := s.Read("ddl", ddl); errs.Err() != nil {
		panic(errs)
	}
	var calls []string
	for _, f := range fn.All() {
		// Flink does not know MIN of BYTES, and writes dates, times and numbers with a fraction into JSON in other ways.
		asJSON := slices.Contains([]string{"boolean", "tinyint", "int", "bigint", "string"}, name)
		if f.Kind != fn.Aggregate || leftOut[f.Name] || f.Name == "JSON_ARRAYAGG" && !asJSON || (f.Name == "MIN" || f.Name == "MAX") && name == "bytes" {
			continue
		}
		forms := []string{"%s(v)"}
		if name != "bytes" && name != "array" { // Flink knows no DISTINCT of these
			forms = append(forms, "%s(DISTINCT v)")
		}
		if f.Name == "LISTAGG" {
			forms = append(forms, "%s(v, '')")
		}
		for _, form := range forms {
			call := fmt.Sprintf(form, f.Name)
			if _, errs := s.Read("query", "SELECT g, "+call+" FROM t GROUP BY g"); errs.Err() == nil {
				calls = append(calls, fmt.Sprintf("  %s AS c%d", call, len(calls)))
			}
		}
	}
	fmt.Fprintf(&b, "-- query\nSELECT g,\n%s\nFROM t GROUP BY g\n", strings.Join(calls, ",\n"))
	return b.String()
}

// leftOut are aggregates that Flink has for batches alone, or under no name, which TestApproxCountDistinctIsNear and the cases of
// grouping sets ask about, and those that have a case by hand: the keys of JSON_OBJECTAGG must differ, and squares of extreme
// values overflow in Flink.
var leftOut = map[string]bool{"APPROX_COUNT_DISTINCT": true, "SUM0": true, "GROUPING": true, "GROUPING_ID": true, "GROUP_ID": true,
	"JSON_OBJECTAGG": true, "STDDEV_POP": true, "STDDEV_SAMP": true, "VAR_POP": true, "VAR_SAMP": true}

// unasked are functions without a case here.
var unasked = []string{"APPROX_COUNT_DISTINCT", "SUM0", "GROUPING", "GROUPING_ID", "GROUP_ID"}

// write writes a case without its answers.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// casesByHand are the cases of functions that are not made of examples.
func casesByHand(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(functionsDir, "hand_*.case"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no cases by hand: %v", err)
	}
	return paths
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := sqltest.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestFunctions wants for every function an answer of Flink to NULL, empty and extreme arguments, and ours to be the same.
func TestFunctions(t *testing.T) {
	all, missing := functionCases(t, fn.All())
	hand := ""
	for _, path := range casesByHand(t) {
		hand += read(t, path)
	}
	missing = slices.DeleteFunc(missing, func(name string) bool { return strings.Contains(hand, " "+name+"(") })
	if len(missing) > 0 {
		t.Errorf("no argument of these is tried: %s; they need an example, expressions in byHand, or a case hand_*.case", strings.Join(missing, ", "))
	}
	for _, group := range slices.Sorted(maps.Keys(all)) {
		path := filepath.Join(functionsDir, group+".case")
		if *writeFunctions {
			write(t, path, fmt.Sprintf("-- name: functions_%s\n-- desc: %s functions of NULL, empty and extreme values\n-- exprs\n%s\n", group, group, strings.Join(all[group], "\n")))
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

// TestFunctionWithoutCases: a function that no expression tries is told.
func TestFunctionWithoutCases(t *testing.T) {
	plain, ok := fn.Lookup("UPPER")
	if !ok {
		t.Fatal("there is no UPPER")
	}
	bare := *plain
	bare.Examples = nil
	now, _ := fn.Lookup("CURRENT_DATE")
	if _, missing := functionCases(t, []*fn.Func{plain, &bare, now}); !slices.Equal(missing, []string{"UPPER"}) {
		t.Errorf("missing are %v, want UPPER, which has no example", missing)
	}
}

// TestAggregates asks for the aggregates what TestFunctions asks for other functions. Those of OVER, and what fits no group,
// have cases that are written by hand: hand_*.case.
func TestAggregates(t *testing.T) {
	asked := ""
	for _, c := range columnTypes {
		path := filepath.Join(functionsDir, "aggregate_"+c.name+".case")
		text := aggregateCase(c.name, c.sql, c.values)
		asked += text
		if *writeFunctions {
			write(t, path, text)
			continue
		}
		if !strings.HasPrefix(read(t, path), text) {
			t.Errorf("%s has not the calls of the aggregates: write it anew with -write-functions, and ask Flink", path)
		}
		for _, mode := range []sqltest.Mode{sqltest.ByLine, sqltest.Restart, sqltest.Parallel} {
			if diff, _ := sqltest.CheckFile(path, sqltest.RunOptions{Mode: mode, Seed: 1}); diff != "" {
				t.Errorf("%s %s:\n%s", mode, path, diff)
			}
		}
	}
	for _, path := range casesByHand(t) {
		asked += read(t, path)
		if diff, _ := sqltest.CheckFile(path, sqltest.RunOptions{}); diff != "" {
			t.Errorf("%s:\n%s", path, diff)
		}
	}
	for _, f := range fn.All() {
		if f.Kind != fn.Scalar && !slices.Contains(unasked, f.Name) && !strings.Contains(asked, " "+f.Name+"(") {
			t.Errorf("no case of %s has %s", functionsDir, f.Name)
		}
	}
}
