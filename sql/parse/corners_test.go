package parse

import (
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/diag"
)

// corners are statements with their canonical text in one line; without one, the text is canonical itself.
var corners = []struct{ text, want string }{
	// Table functions.
	{"SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND))", ""},
	{"SELECT * FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)", "SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND))"},
	{"SELECT * FROM TABLE(TUMBLE((SELECT * FROM t UNION ALL SELECT * FROM u), DESCRIPTOR(ts), INTERVAL '1' DAY)) AS w", ""},
	{"SELECT * FROM TABLE(TUMBLE(DATA => TABLE a.b.t, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '10' SECOND, `OFFSET` => INTERVAL -'3' SECOND))", ""},
	{"SELECT * FROM SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' SECOND)", "SELECT * FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' SECOND))"},
	{"SELECT * FROM TABLE(SESSION(TABLE t PARTITION BY (k, l) ORDER BY ts, DESCRIPTOR(ts), INTERVAL '5' SECOND))", ""},
	{"SELECT * FROM TABLE(f((SELECT 1) PARTITION BY a)), LATERAL TABLE(split(s, ',')) AS x (w)", ""},
	{"SELECT * FROM t CROSS JOIN UNNEST(a) WITH ORDINALITY AS u (x, o)", "SELECT * FROM t CROSS JOIN UNNEST(a) WITH ORDINALITY AS u (x, o)"},
	// Literals.
	{"SELECT 1, 1.50, .5, 1e0, 1.5E-3, 'it''s', '', x'0aff', TRUE, false, unknown, NULL", "SELECT 1, 1.50, .5, 1e0, 1.5E-3, 'it''s', '', x'0AFF', TRUE, FALSE, UNKNOWN, NULL"},
	{`SELECT U&'\00e9\+01F600\\', U&'!00e9' UESCAPE '!', U&'\d83d\de00'`, "SELECT '\u00e9\U0001F600\\', '\u00e9', '\U0001F600'"},
	{"SELECT DATE '2024-01-31', TIME '10:00:00', TIMESTAMP '2024-01-01 00:00:00.1', TIMESTAMP WITH LOCAL TIME ZONE '2024-01-01 00:00:00'", ""},
	{"SELECT INTERVAL '1' YEAR, INTERVAL '1' QUARTERS, INTERVAL '1-2' YEAR TO MONTH, INTERVAL -'5' DAY(3), INTERVAL +'1 02:03:04.567' DAY(3) TO SECOND(3), INTERVAL '1' SECOND(3, 2)",
		"SELECT INTERVAL '1' YEAR, INTERVAL '1' QUARTER, INTERVAL '1-2' YEAR TO MONTH, INTERVAL -'5' DAY(3), INTERVAL '1 02:03:04.567' DAY(3) TO SECOND(3), INTERVAL '1' SECOND(3, 2)"},
	// Rows, arrays, maps, paths.
	{"SELECT (1, 'a'), ROW(1, 'a'), ROW(), ARRAY[1, 2], ARRAY[], MAP['a', 1], MULTISET[1], ARRAY(SELECT 1)", ""},
	{"SELECT a.b[1].c, m['k'], (a).b, f(x).y, t.r.*, `B c`, t.`select`, `map`[1]", ""},
	// Operators.
	{"SELECT ((a + b)) * c - (d - (e - f)), -(-a), - -1, +b, (a || b) || c, a || (b || c), -(a * b)", "SELECT (a + b) * c - (d - (e - f)), - -a, - -1, +b, a || b || c, a || (b || c), -(a * b)"},
	{"SELECT a OR b AND NOT c = d, (a OR b) AND c, NOT (a AND b), (NOT a) = b, a = (NOT b), a != b", "SELECT a OR b AND NOT c = d, (a OR b) AND c, NOT (a AND b), (NOT a) = b, a = (NOT b), a <> b"},
	{"SELECT a IS NULL, a IS NOT TRUE, a = b IS UNKNOWN, a IS DISTINCT FROM b, a IS NOT DISTINCT FROM b, j IS JSON, j IS NOT JSON OBJECT", ""},
	{"SELECT a BETWEEN 1 AND 2 AND b, a NOT BETWEEN SYMMETRIC 1 AND 2, a BETWEEN ASYMMETRIC 1 AND 2, a BETWEEN (b = c) AND d", "SELECT a BETWEEN 1 AND 2 AND b, a NOT BETWEEN SYMMETRIC 1 AND 2, a BETWEEN 1 AND 2, a BETWEEN (b = c) AND d"},
	{"SELECT (a, b) IN ((1, 2), (3, 4)), a NOT IN (SELECT b FROM t), a IN ((SELECT 1) UNION (SELECT 2)), a IN (1)", "SELECT (a, b) IN ((1, 2), (3, 4)), a NOT IN (SELECT b FROM t), a IN (SELECT 1 UNION SELECT 2), a IN (1)"},
	{"SELECT a LIKE 'x%' ESCAPE '!', a NOT LIKE b, a SIMILAR TO 'x', a NOT SIMILAR TO 'x' ESCAPE '\\'", ""},
	{"SELECT a > ANY (SELECT b FROM t), a = ALL (1, 2), a < SOME (SELECT 1)", "SELECT a > ANY (SELECT b FROM t), a = ALL (1, 2), a < ANY (SELECT 1)"},
	{"SELECT (a, b) OVERLAPS (c, d), EXISTS (SELECT 1), NOT EXISTS (SELECT 1), (SELECT 1) + 1", ""},
	{"SELECT CASE WHEN a THEN 1 END, CASE a WHEN 1, 2 THEN 'x' ELSE NULL END", "SELECT CASE WHEN a THEN 1 END, CASE a WHEN 1 THEN 'x' WHEN 2 THEN 'x' ELSE NULL END"},
	// Functions with words.
	{"SELECT TRIM(a), TRIM(BOTH 'x' FROM a), trim(leading from a), TRIM('x' FROM a), TRIM(TRAILING 'x' FROM a)", "SELECT TRIM(a), TRIM(BOTH 'x' FROM a), TRIM(LEADING FROM a), TRIM(BOTH 'x' FROM a), TRIM(TRAILING 'x' FROM a)"},
	{"SELECT SUBSTRING(a FROM 2), SUBSTRING(a FROM 2 FOR 3), SUBSTRING(a, 2), POSITION('o' IN a), OVERLAY(a PLACING 'x' FROM 2 FOR 4)", ""},
	{"SELECT EXTRACT(DOY FROM ts), EXTRACT(year FROM ts), FLOOR(ts TO DAY), CEIL(ts TO WEEK), FLOOR(x), CEILING(x)", "SELECT EXTRACT(DOY FROM ts), EXTRACT(YEAR FROM ts), FLOOR(ts TO DAY), CEIL(ts TO WEEK), FLOOR(x), CEILING(x)"},
	{"SELECT TIMESTAMPADD(DAY, -1, ts), TIMESTAMPDIFF(month, a, b), YEAR(d), LEFT(a, 1), REPLACE(a, 'b', 'c'), MOD(a, 2)", "SELECT TIMESTAMPADD(DAY, -1, ts), TIMESTAMPDIFF(MONTH, a, b), YEAR(d), LEFT(a, 1), REPLACE(a, 'b', 'c'), MOD(a, 2)"},
	{"SELECT current_timestamp, LOCALTIME, CURRENT_DATE, NOW(), PROCTIME()", "SELECT CURRENT_TIMESTAMP, LOCALTIME, CURRENT_DATE, NOW(), PROCTIME()"},
	{"SELECT JSON_VALUE(j, '$.a' RETURNING INT NULL ON EMPTY DEFAULT -1 ON ERROR), JSON_QUERY(j, '$' WITH WRAPPER EMPTY ARRAY ON EMPTY), JSON_EXISTS(j, '$.a' FALSE ON ERROR)",
		"SELECT JSON_VALUE(j, '$.a' RETURNING INT NULL ON EMPTY DEFAULT -1 ON ERROR), JSON_QUERY(j, '$' WITH UNCONDITIONAL WRAPPER EMPTY ARRAY ON EMPTY), JSON_EXISTS(j, '$.a' FALSE ON ERROR)"},
	{"SELECT JSON_OBJECT('k' VALUE 1, KEY 'l' VALUE x ABSENT ON NULL), JSON_OBJECT(), JSON_ARRAY(1, NULL NULL ON NULL), JSON_ARRAYAGG(x), JSON_OBJECTAGG(KEY k VALUE v NULL ON NULL)",
		"SELECT JSON_OBJECT('k' VALUE 1, 'l' VALUE x ABSENT ON NULL), JSON_OBJECT(), JSON_ARRAY(1, NULL NULL ON NULL), JSON_ARRAYAGG(x), JSON_OBJECTAGG(k VALUE v NULL ON NULL)"},
	{"SELECT COUNT(*), COUNT(DISTINCT a) FILTER (WHERE b > 1), LISTAGG(a, ';') WITHIN GROUP (ORDER BY b DESC NULLS LAST), ARRAY_AGG(a ORDER BY b), LAG(a) IGNORE NULLS OVER w FROM t WINDOW w AS (PARTITION BY k ORDER BY ts)", ""},
	{"SELECT SUM(v) OVER (ORDER BY ts ROWS 2 PRECEDING), SUM(v) OVER (PARTITION BY a, b ORDER BY ts RANGE BETWEEN INTERVAL '5' SECOND PRECEDING AND CURRENT ROW), SUM(v) OVER (w ROWS UNBOUNDED PRECEDING), COUNT(*) OVER () FROM t",
		"SELECT SUM(v) OVER (ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW), SUM(v) OVER (PARTITION BY a, b ORDER BY ts RANGE BETWEEN INTERVAL '5' SECOND PRECEDING AND CURRENT ROW), SUM(v) OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW), COUNT(*) OVER () FROM t"},
	{"SELECT CAST(a AS ROW<a INT NOT NULL 'comment', b ARRAY<ROW<c INT>>>), TRY_CAST(a AS ROW(a INT)), CAST(a AS INT ARRAY), CAST(a AS MAP<STRING, MULTISET<INT>>)",
		"SELECT CAST(a AS ROW<a INT NOT NULL 'comment', b ARRAY<ROW<c INT>>>), TRY_CAST(a AS ROW<a INT>), CAST(a AS ARRAY<INT>), CAST(a AS MAP<STRING, MULTISET<INT>>)"},
	{"SELECT CAST(a AS integer), CAST(a AS DEC(5)), CAST(a AS NUMERIC(5, 2)), CAST(a AS character varying(3)), CAST(a AS double precision), CAST(a AS TIMESTAMP(3) WITH LOCAL TIME ZONE), CAST(a AS TIME(0) WITHOUT TIME ZONE), CAST(a AS INTERVAL DAY TO SECOND(3))",
		"SELECT CAST(a AS INT), CAST(a AS DECIMAL(5)), CAST(a AS DECIMAL(5, 2)), CAST(a AS VARCHAR(3)), CAST(a AS DOUBLE), CAST(a AS TIMESTAMP_LTZ(3)), CAST(a AS TIME(0)), CAST(a AS INTERVAL DAY TO SECOND(3))"},
	// Queries.
	{"SELECT a b, c AS `d`, t.* FROM t AS u, v x WHERE a GROUP BY a, ROLLUP (b), CUBE (c, d), GROUPING SETS ((a, b), a, ()), () HAVING x QUALIFY y",
		"SELECT a AS b, c AS d, t.* FROM t AS u, v AS x WHERE a GROUP BY a, ROLLUP (b), CUBE (c, d), GROUPING SETS ((a, b), a, ()), () HAVING x QUALIFY y"},
	{"SELECT a FROM t UNION ALL SELECT b FROM u INTERSECT SELECT c FROM v EXCEPT SELECT 1 MINUS SELECT 2", "SELECT a FROM t UNION ALL SELECT b FROM u INTERSECT SELECT c FROM v EXCEPT SELECT 1 EXCEPT SELECT 2"},
	{"(SELECT a FROM t ORDER BY a LIMIT 1) UNION (SELECT b UNION ALL SELECT c) ORDER BY a DESC OFFSET 2 ROWS FETCH NEXT 3 ROWS ONLY", "(SELECT a FROM t ORDER BY a LIMIT 1) UNION (SELECT b UNION ALL SELECT c) ORDER BY a DESC LIMIT 3 OFFSET 2"},
	{"WITH a AS (SELECT 1), b (x) AS (VALUES 1, (2)) SELECT * FROM a LIMIT ALL", "WITH a AS ( SELECT 1 ), b (x) AS ( VALUES (1), (2) ) SELECT * FROM a"},
	{"SELECT * FROM (a JOIN b ON x) LEFT OUTER JOIN (c CROSS JOIN d) USING (k, l) NATURAL JOIN e", "SELECT * FROM a JOIN b ON x LEFT JOIN (c CROSS JOIN d) USING (k, l) NATURAL JOIN e"},
	{"SELECT * FROM a, b JOIN c ON TRUE, LATERAL (SELECT 1) AS x, (VALUES (1, 'a')) AS t(a, b)", "SELECT * FROM a, b JOIN c ON TRUE, LATERAL ( SELECT 1 ) AS x, ( VALUES (1, 'a') ) AS t (a, b)"},
	{"SELECT * FROM o JOIN rates FOR SYSTEM_TIME AS OF o.pt AS r ON o.c = r.c", ""},
	{"SELECT /*+ STATE_TTL('o'='1d', 'r' = '2 d'), LOOKUP('table'='dim'), BROADCAST(a) */ * FROM t /*+ OPTIONS('scan.startup.mode'='earliest-offset') */ AS x",
		"SELECT /*+ STATE_TTL('o' = '1d', 'r' = '2 d'), LOOKUP('table' = 'dim'), BROADCAST(a) */ * FROM t /*+ OPTIONS('scan.startup.mode' = 'earliest-offset') */ AS x"},
	{"/* comment */ SELECT 1 -- end\n// other\n, 2", "SELECT 1, 2"},
	{"SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts, v DESC MEASURES A.v AS av, FINAL LAST(B.v, 1) AS b ONE ROW PER MATCH AFTER MATCH SKIP TO FIRST B PATTERN (^ A B+? (C | D){2,3} E* F?? G{,4} PERMUTE(H, I) {- J -} $) WITHIN INTERVAL '1' HOUR SUBSET u = (A, B) DEFINE A AS A.v > PREV(A.v)) AS m (a, b)",
		"SELECT * FROM t MATCH_RECOGNIZE ( PARTITION BY k ORDER BY ts, v DESC MEASURES A.v AS av, FINAL LAST(B.v, 1) AS b ONE ROW PER MATCH AFTER MATCH SKIP TO FIRST B PATTERN (^ A B+? (C | D){2,3} E* F?? G{0,4} PERMUTE(H, I) {- J -} $) WITHIN INTERVAL '1' HOUR SUBSET u = (A, B) DEFINE A AS A.v > PREV(A.v) ) AS m (a, b)"},
	// Statements.
	{"CREATE TABLE IF NOT EXISTS c.d.t (a INT NOT NULL COMMENT 'x', b AS a * 2 COMMENT 'y', k STRING METADATA FROM 'key' VIRTUAL, o BIGINT METADATA, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND, CONSTRAINT p PRIMARY KEY (a, ts) NOT ENFORCED) COMMENT 'z' DISTRIBUTED BY HASH (a) INTO 4 BUCKETS PARTITIONED BY (k) WITH ('connector' = 'kafka', 'topic' = 't')",
		"CREATE TABLE IF NOT EXISTS c.d.t ( a INT NOT NULL COMMENT 'x', b AS a * 2 COMMENT 'y', k STRING METADATA FROM 'key' VIRTUAL, o BIGINT METADATA, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND, CONSTRAINT p PRIMARY KEY (a, ts) NOT ENFORCED ) COMMENT 'z' DISTRIBUTED BY HASH (a) INTO 4 BUCKETS PARTITIONED BY (k) WITH ( 'connector' = 'kafka', 'topic' = 't' )"},
	{"CREATE TEMPORARY TABLE t (a INT PRIMARY KEY NOT ENFORCED) WITH ('a'='b') LIKE u (INCLUDING ALL EXCLUDING OPTIONS OVERWRITING WATERMARKS)", "CREATE TEMPORARY TABLE t ( a INT, PRIMARY KEY (a) NOT ENFORCED ) WITH ( 'a' = 'b' ) LIKE u (INCLUDING ALL EXCLUDING OPTIONS OVERWRITING WATERMARKS)"},
	{"CREATE OR REPLACE TABLE t WITH ('a'='b') AS SELECT 1 AS x", "CREATE OR REPLACE TABLE t WITH ( 'a' = 'b' ) AS SELECT 1 AS x"},
	{"CREATE TABLE t (b, a) AS SELECT a, b FROM u", "CREATE TABLE t ( b, a ) AS SELECT a, b FROM u"},
	{"CREATE TEMPORARY VIEW IF NOT EXISTS v (a COMMENT 'x', b) COMMENT 'y' AS SELECT 1, 2", ""},
	{"CREATE TEMPORARY SYSTEM FUNCTION IF NOT EXISTS f AS 'x' LANGUAGE GO", ""},
	{"CREATE DATABASE IF NOT EXISTS d; CREATE CATALOG c WITH ('type'='x'); USE CATALOG c; USE c.d; USE MODULES a, b", "CREATE DATABASE IF NOT EXISTS d; CREATE CATALOG c WITH ( 'type' = 'x' ); USE CATALOG c; USE c.d; USE MODULES a, b"},
	{"INSERT INTO t /*+ OPTIONS('a'='b') */ PARTITION (d='x', e) (a, r.b) SELECT 1, 2", "INSERT INTO t /*+ OPTIONS('a' = 'b') */ PARTITION (d = 'x', e) (a, r.b) SELECT 1, 2"},
	{"INSERT OVERWRITE t VALUES (1, 'a'), (2, 'b'); INSERT INTO t (SELECT 1); INSERT INTO t TABLE u", "INSERT OVERWRITE t VALUES (1, 'a'), (2, 'b'); INSERT INTO t SELECT 1; INSERT INTO t TABLE u"},
	{"EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; INSERT INTO b SELECT CASE WHEN x THEN 1 END FROM t; END; SELECT 1", "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; INSERT INTO b SELECT CASE WHEN x THEN 1 END FROM t; END; SELECT 1"},
	{"BEGIN STATEMENT SET; INSERT INTO a SELECT 1; END;", "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; END"},
	{"EXECUTE INSERT INTO a SELECT 1", "INSERT INTO a SELECT 1"},
	{"SET 'table.exec.state.ttl' = '1 h'; SET table.exec.state.ttl = 1 h; SET; RESET; RESET 'a.b'; RESET a.b-c; SET a = s3://x/y -- no\n;", "SET 'table.exec.state.ttl' = '1 h'; SET 'table.exec.state.ttl' = '1 h'; SET; RESET; RESET 'a.b'; RESET 'a.b-c'; SET 'a' = 's3://x/y'"},
	{"EXPLAIN SELECT 1; EXPLAIN PLAN FOR INSERT INTO a SELECT 1; EXPLAIN CHANGELOG_MODE, JSON_EXECUTION_PLAN SELECT 1; EXPLAIN STATEMENT SET BEGIN INSERT INTO a SELECT 1; END", "EXPLAIN SELECT 1; EXPLAIN INSERT INTO a SELECT 1; EXPLAIN CHANGELOG_MODE, JSON_EXECUTION_PLAN SELECT 1; EXPLAIN EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; END"},
	{"SHOW TABLES; SHOW VIEWS; SHOW TABLES IN d NOT LIKE 'x%'; SHOW CREATE TABLE t; SHOW COLUMNS FROM t LIKE 'a'; SHOW USER FUNCTIONS; SHOW CURRENT DATABASE; SHOW FULL MODULES; SHOW JOBS",
		"SHOW TABLES; SHOW VIEWS; SHOW TABLES FROM d NOT LIKE 'x%'; SHOW CREATE TABLE t; SHOW COLUMNS FROM t LIKE 'a'; SHOW USER FUNCTIONS; SHOW CURRENT DATABASE; SHOW FULL MODULES; SHOW JOBS"},
	{"DESC t; DESCRIBE EXTENDED a.b; DROP TABLE IF EXISTS t; DROP TEMPORARY VIEW v; DROP DATABASE d CASCADE; DROP TEMPORARY SYSTEM FUNCTION f", "DESCRIBE t; DESCRIBE EXTENDED a.b; DROP TABLE IF EXISTS t; DROP TEMPORARY VIEW v; DROP DATABASE d CASCADE; DROP TEMPORARY SYSTEM FUNCTION f"},
	// Variables.
	{"SELECT * FROM ${TABLE} AS t, x.${NAME}, `p_${NAME}` WHERE ${COND} AND d ${PART} LIMIT ${N}", "SELECT * FROM ${TABLE} AS t, x.${NAME}, `p_${NAME}` WHERE ${COND} AND d > 5 AND c LIMIT ${N}"},
	{"SELECT '${QUOTE}', 'a''b${NAME}', '${NONE:-x''y}', '$${NAME}', ${STRING}, ${N} + 1, '$', '${', ${NONE:-a.b}, ${NONE:-c.d}.e ${EMPTY} -- ${NONE}", "SELECT '${QUOTE}', 'a''b${NAME}', '${NONE:-x''y}', '$${NAME}', ${STRING}, ${N} + 1, '$', '$${', ${NONE:-a.b}, ${NONE:-c.d}.e"},
	{"SET a = ${N} x; SET 'b' = '${NAME}'", "SET 'a' = '${N} x'; SET 'b' = '${NAME}'"},
	// Names that look like words of the grammar.
	{"SELECT date_, `date`, name, type, week, hop FROM `order` AS final, first", "SELECT date_, `date`, name, type, week, hop FROM `order` AS final, first"},
	{"SELECT `CAST`(x), `position`(a), `timestampadd`(1), uPpEr(x), a.b.f(x)", ""},
}

func TestCornersPrintAsTheyShould(t *testing.T) {
	for _, c := range corners {
		script, errs := Script(diag.NewSource("t", c.text), testEnv)
		if len(errs) > 0 {
			t.Errorf("%s", errs.Text())
			continue
		}
		var lines []string
		for _, s := range script.Stmts {
			lines = append(lines, strings.Join(strings.Fields(ast.Print(s)), " "))
		}
		want := c.want
		if want == "" {
			want = c.text
		}
		if got := strings.Join(lines, "; "); got != want {
			t.Errorf("%s\nprints as\n%s\nnot as\n%s", c.text, got, want)
		}
		roundTrip(t, c.text, testEnv)
	}
}

func TestValuesOfVariablesStandInTheTree(t *testing.T) {
	script, errs := Script(diag.NewSource("t", "SELECT 'a''${QUOTE}' FROM ${TABLE} WHERE x AND ${COND}"), testEnv)
	if len(errs) > 0 {
		t.Fatal(errs.Text())
	}
	s := script.Stmts[0].(*ast.QueryStmt).Query.(*ast.Select)
	if v := s.Items[0].Expr.(*ast.String).Value; v != "a'it's \"so\" `it` is" {
		t.Errorf("text is %q", v)
	}
	if n := s.From.(*ast.TableName).Name; len(n.Parts) != 2 || n.Parts[1].Name != "orders" {
		t.Errorf("table is %v", n)
	}
	// The value counts as one operand: x AND (a > 5 OR b).
	and := s.Where.(*ast.Infix)
	if env, ok := and.Y.(*ast.Env); and.Op != ast.And || !ok || env.X.(*ast.Infix).Op != ast.Or {
		t.Errorf("condition is %s", ast.Print(and))
	}
}

func TestEveryReservedWordIsNoName(t *testing.T) {
	for _, w := range ast.ReservedWords() {
		if _, errs := Script(diag.NewSource("t", "CREATE TABLE t ("+strings.ToLower(w)+" INT)"), nil); len(errs) == 0 {
			t.Errorf("%s is taken as a name", w)
		}
		roundTrip(t, "SELECT `"+w+"`, `"+w+"`(1) AS `"+w+"` FROM `"+w+"` AS `"+w+"`", nil)
	}
	for _, w := range words[1:] {
		if lookup(w).reserved() {
			continue
		}
		text := "CREATE TABLE t (" + w + " INT)"
		if _, errs := Script(diag.NewSource("t", text), nil); len(errs) > 0 {
			t.Errorf("%s is no name: %v", w, errs)
		}
		roundTrip(t, text, nil)
		roundTrip(t, "SELECT "+w+" AS "+w+", x."+w+" FROM "+w+" AS "+w+" WHERE "+w+" = 1 GROUP BY "+w+" ORDER BY "+w, nil)
	}
	for i, w := range words {
		if i > 0 && (w == "" || lookup(w) != keyword(i)) {
			t.Errorf("keyword %d has no word, or one twice: %q", i, w)
		}
	}
}
