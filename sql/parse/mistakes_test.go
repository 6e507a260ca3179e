package parse

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/diag"
)

// mistakes are texts with the place, code, message and hint of their first error: `line:column code message; hint`.
var mistakes = []struct{ text, want string }{
	{"SELEC 1", `1:1 E1001 unexpected "SELEC", expected a statement; did you mean SELECT?`},
	{"INSRT INTO t SELECT 1", `1:1 E1001 unexpected "INSRT", expected a statement; did you mean INSERT?`},
	{"SELECT a FORM t", `1:10 E1001 unexpected "FORM"; did you mean FROM?`},
	{"SELECT a FROM t WEHRE a > 1", `1:17 E1001 unexpected "WEHRE"; did you mean WHERE?`},
	{"SELECT a FROM t GRUOP BY a", `1:17 E1001 unexpected "GRUOP"; did you mean GROUP?`},
	{"SELECT a FROM t JION u ON x", `1:17 E1001 unexpected "JION"; did you mean JOIN?`},
	{"SELECT a FROM t ORDER YB a", `1:23 E1001 unexpected "YB", expected BY; `},
	{"SELECT a, FROM t", `1:11 E1001 unexpected FROM, expected an expression; one comma too many before it?`},
	{"CREATE TABLE t (a INT,)", `1:23 E1001 unexpected ")", expected the name of a column; one comma too many before it?`},
	{"CREATE TABEL t (a INT)", `1:8 E1001 unexpected "TABEL", expected TABLE, VIEW, FUNCTION, DATABASE or CATALOG; did you mean TABLE?`},
	{"CREATE TABLE t (value INT)", "1:17 E1002 \"value\" is a reserved word, expected the name of a column; as a name it stands in back-quotes: `value`"},
	{"CREATE TABLE t (a INT, b)", `1:24 E1001 column "b" has no type; only CREATE TABLE .. AS SELECT may leave types out`},
	{"CREATE TABLE t (a INTT)\nWITH (connector = 'kafka')", `2:7 E1001 unexpected "connector", expected a key in quotes; 'connector' = '..'`},
	{"CREATE TABLE t (a INT) WITH ('sink.parallelism' = 4)", `1:51 E1001 unexpected "4", expected a value in quotes; '4'`},
	{"CREATE TABLE t (a INT, WATERMARK FOR a AS a, WATERMARK FOR a AS a)", `1:46 E1010 a table has one WATERMARK, here is a second one; `},
	{"CREATE TABLE t (a INT, UNIQUE (a))", `1:24 E1009 UNIQUE is not supported; use PRIMARY KEY (..) NOT ENFORCED`},
	{"ALTER TABLE t ADD x INT", `1:1 E1008 ALTER TABLE is not supported; change the CREATE statement: the script says how things are, and state of what did not change is kept`},
	{"UPDATE t SET a = 1", `1:1 E1008 UPDATE is not supported; rows change by what INSERT INTO writes to a table with a PRIMARY KEY`},
	{"CREATE MATERIALIZED TABLE t AS SELECT 1", `1:8 E1008 CREATE MATERIALIZED is not supported; `},
	{"SELECT \"a\" FROM t", "1:8 E1004 a double quote quotes nothing here; a name stands in back-quotes, a text in single quotes: `a` or 'a'"},
	{"SELECT 'a FROM t", `1:8 E1003 text has no end; a closing ' is missing`},
	{"SELECT `a FROM t", "1:8 E1003 name has no end; a closing ` is missing"},
	{"SELECT 1 /* never", `1:10 E1003 comment has no end; a comment ends with */`},
	{"SELECT a # b", `1:10 E1004 unexpected character '#'; `},
	{"SELECT \u2018a\u2019", `1:8 E1004 unexpected character '` + "\u2018" + `'; a text stands in plain single quotes: '..'`},
	{"SELECT x'0', 1", `1:8 E1005 x'0' is no binary text; it takes an even number of hexadecimal digits, as in x'0AFF'`},
	{`SELECT U&'\d800'`, `1:8 E1005 bad escape in a Unicode text; write \0041, or \+01F600 with six digits, or \\ for the character itself`},
	{"SELECT INTERVAL 10 SECOND", `1:17 E1001 the amount of an INTERVAL stands in quotes; write INTERVAL '10' ..`},
	{"SELECT INTERVAL '10' SECNOD", `1:22 E1001 unexpected "SECNOD", expected YEAR, QUARTER, MONTH, WEEK, DAY, HOUR, MINUTE or SECOND; did you mean SECOND?`},
	{"SELECT INTERVAL '10' SECOND TO DAY", `1:32 E1005 there is no interval SECOND TO DAY; YEAR TO MONTH, or DAY, HOUR, MINUTE to a smaller one of them or SECOND`},
	{"SELECT a FROM t LIMIT -1", `1:23 E1001 unexpected "-", expected a whole number after LIMIT; `},
	{"SELECT a FROM t\nINSERT INTO u SELECT 1", `2:1 E1001 unexpected INSERT; a statement ends with ;`},
	{"SELECT (1 + 2 FROM t", `1:15 E1001 unexpected FROM, expected , or ); `},
	{"SELECT a FROM t WHERE", `1:22 E1001 unexpected end of the text, expected an expression; `},
	{"SELECT a FROM t WHERE;", `1:22 E1001 unexpected end of the statement, expected an expression; `},
	{"SELECT a ILIKE 'x'", `1:10 E1009 ILIKE is not supported; use LIKE with LOWER on both sides, SIMILAR TO, or REGEXP(text, pattern)`},
	{"SELECT * FROM a LEFT SEMI JOIN b ON x", `1:22 E1009 SEMI JOIN is not supported; use WHERE EXISTS (..) or IN (..)`},
	{"SELECT * FROM TABLE(TUMBLE(TABLE (SELECT 1), DESCRIPTOR(ts), INTERVAL '1' DAY))", `1:34 E1001 unexpected "(", expected the name of a table; a query as argument stands in parentheses without TABLE: TUMBLE((SELECT ..), ..)`},
	{"SELECT a FROM t WHERE a = ?", `1:27 E1009 parameters (?) are not supported; use ${NAME}`},
	{"SELECT a /*+ OPTIONS('a'='b') */ + 1", `1:10 E1001 unexpected hint, expected ; or the end of the statement; a hint stands right after SELECT or after the name of a table; a comment starts with /* alone`},
	{"SELECT * FROM t MATCH_RECOGNIZE (ORDER BY ts PATTERN (A B{3,2}) DEFINE A AS TRUE)", `1:59 E1005 a part cannot stand 3 to 2 times; `},
	{"EXECUTE STATEMENT SET BEGIN SELECT 1; END", `1:29 E1001 unexpected SELECT, expected INSERT INTO, or END of the statement set; `},
	{"SELECT ${HOST}", `1:8 E1006 variable HOST is not set; set it, or give a default: ${HOST:-..}`},
	{"SELECT 'a${HOST}'", `1:10 E1006 variable HOST is not set; set it, or give a default: ${HOST:-..}`},
	{"SELECT ${1}", `1:8 E1006 variable has no name or no end; write ${NAME} or ${NAME:-default}`},
	{"SELECT ${PART}", `1:8 E1001 unexpected ${PART}, expected an expression; `},
	{"SELECT a > > b", `1:12 E1001 unexpected ">", expected an expression; `},
	{"SELECT a WITHIN 5", `1:10 E1001 unexpected WITHIN, expected ; or the end of the statement; `},
	{"SELECT CAST(a AS STRNG(3))", `1:23 E1001 unexpected "(", expected ); `},
	{"SELECT CASE WHEN a THEN 1 FROM t", `1:27 E1001 unexpected FROM, expected END; `},
	{"SELECT a AS 'b'", `1:13 E1001 an alias is a name, not a text; as a name it stands in back-quotes`},
}

func TestTypicalMistakesAreNamed(t *testing.T) {
	for _, c := range mistakes {
		_, errs := Script(diag.NewSource("t", c.text), testEnv)
		if len(errs) == 0 {
			t.Errorf("%q parses", c.text)
			continue
		}
		e := errs[0]
		got := strings.TrimPrefix(e.Error(), "t:")
		got = strings.Replace(got, ": error", "", 1)
		got = strings.Replace(got, e.Code+":", e.Code, 1)
		if e.Hint == "" {
			got += "; "
		}
		if got != c.want {
			t.Errorf("%q says\n%s\nnot\n%s", c.text, got, c.want)
		}
	}
}

func TestMessagesNeverShowTheValueOfAVariable(t *testing.T) {
	env := func(string) (string, bool) { return "sesame 'x' x'0' FROM ( \"", true }
	for _, text := range []string{"SELECT ${V}", "SELECT a ${V}", "CREATE TABLE ${V} (a INT)", "SELECT '${V}' FORM t", "SET a ${V}", "INSERT INTO t WITH (${V})", "CREATE TABLE t (a ${V})"} {
		script, errs := Script(diag.NewSource("t", text), env)
		if shown := errs.Text() + errs.Error() + ast.Print(script); strings.Contains(shown, "sesame") {
			t.Errorf("%s shows the value:\n%s", text, shown)
		}
	}
}

func TestReadingGoesOnBehindAStatementWithAnError(t *testing.T) {
	text := `SELEC 1;
INSERT INTO a SELECT ';', b FORM c; -- ;
EXECUTE STATEMENT SET BEGIN
  INSERT INTO a SELECT , 1;
  INSERT INTO b SELECT 1;
  INSERT INTO c SELECT 1 +;
END;
EXECUTE STATMNT SET BEGIN INSERT INTO a SELECT 1; INSERT INTO b SELECT CASE WHEN x THEN 1 END; END;
SELECT 2;`
	script, errs := Script(diag.NewSource("t", text), nil)
	var places []string
	for _, e := range errs {
		line, col := e.Source.Position(e.Span.Start)
		places = append(places, strings.Join([]string{e.Code, itoa(line), itoa(col)}, " "))
	}
	want := "E1001 1 1, E1001 2 29, E1001 4 24, E1001 6 27, E1001 8 9"
	if got := strings.Join(places, ", "); got != want {
		t.Errorf("errors at %s, not %s\n%s", got, want, errs.Text())
	}
	if got := ast.Print(script); got != "SELECT 2;\n" {
		t.Errorf("script is %q", got)
	}
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + itoa(n%10)
}

func TestDeepNestingIsAnError(t *testing.T) {
	const n = 100000
	for name, text := range map[string]string{
		"parentheses": "SELECT " + strings.Repeat("(", n),
		"minus":       "SELECT " + strings.Repeat("- ", n) + "1",
		"not":         "SELECT " + strings.Repeat("NOT ", n) + "a",
		"queries":     "SELECT * FROM " + strings.Repeat("(SELECT * FROM ", n),
		"query":       strings.Repeat("(", n) + "SELECT 1",
		"joins":       "SELECT * FROM " + strings.Repeat("(", n) + "t",
		"types":       "SELECT CAST(a AS " + strings.Repeat("ARRAY<", n),
		"patterns":    "SELECT * FROM t MATCH_RECOGNIZE (PATTERN (" + strings.Repeat("(", n),
		"case":        "SELECT " + strings.Repeat("CASE ", n),
		"functions":   "SELECT " + strings.Repeat("f(", n),
		"floor":       "SELECT " + strings.Repeat("FLOOR(", 150),
		"with":        strings.Repeat("WITH a AS (", n),
		"sum":         "SELECT 1" + strings.Repeat(" + 1", n),
		"and":         "SELECT 1" + strings.Repeat(" AND 1", n),
		"union":       "SELECT 1" + strings.Repeat(" UNION SELECT 1", n),
		"index":       "SELECT a" + strings.Repeat("[1]", n),
		"list":        "SELECT * FROM t" + strings.Repeat(", t", n),
		"arrays":      "SELECT CAST(a AS INT" + strings.Repeat(" ARRAY", n) + ")",
		"sets":        "SELECT 1 FROM t GROUP BY " + strings.Repeat("ROLLUP (", n),
	} {
		start := time.Now()
		_, errs := Script(diag.NewSource("t", text), nil)
		if len(errs) != 1 || name != "floor" && errs[0].Code != "E1007" {
			t.Errorf("%s: %v", name, errs)
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("%s took %v: reading is not linear", name, took)
		}
	}
	roundTrip(t, "SELECT "+strings.Repeat("(1 - ", 90)+"1"+strings.Repeat(")", 90), nil)
}
