package bind

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/diag"
	"github.com/millrace-stream/millrace/sql/parse"
	"github.com/millrace-stream/millrace/sql/rel"
)

// oracleCase is what the binder needs of a case of test/oracle: what is declared and asked, and the answer's schema.
type oracleCase struct {
	name, ddl, query string
	exprs, schema    []string
	results          []string // of exprs
	error            string   // parse, validate, plan, runtime
	set              map[string]string
}

func readCase(t testing.TB, path string) oracleCase {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := oracleCase{name: filepath.Base(filepath.Dir(path)) + "/" + strings.TrimSuffix(filepath.Base(path), ".case"), set: map[string]string{}}
	section := ""
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		l := s.Text()
		if word, ok := strings.CutPrefix(l, "-- "); ok {
			w := strings.Fields(word)
			if section = w[0]; section == "expect" {
				section += " " + w[1]
			}
			continue
		}
		switch section {
		case "set":
			if k, v, ok := strings.Cut(l, "="); ok {
				c.set[strings.TrimSpace(k)] = strings.TrimSpace(v)
			}
		case "ddl":
			c.ddl += l + "\n"
		case "query":
			c.query += l + "\n"
		case "exprs":
			if l != "" {
				c.exprs = append(c.exprs, l)
			}
		case "expect schema":
			if l != "" {
				c.schema = append(c.schema, l)
			}
		case "expect exprs":
			if l != "" {
				c.results = append(c.results, l)
			}
		case "expect error":
			if c.error == "" {
				c.error = strings.TrimSpace(l)
			}
		}
	}
	return c
}

func oracleCases(t testing.TB) []oracleCase {
	t.Helper()
	paths, err := filepath.Glob("../../test/oracle/cases/*/*.case")
	if err != nil || len(paths) < 200 {
		t.Fatalf("there are %d cases (%v)", len(paths), err)
	}
	var out []oracleCase
	for _, p := range paths {
		out = append(out, readCase(t, p))
	}
	return out
}

// run binds the statements of a text and gives the last result.
func run(s *Session, name, text string) (Result, diag.List) {
	src := diag.NewSource(name, text)
	script, errs := parse.Script(src, nil)
	if errs.Err() != nil {
		return Result{}, errs
	}
	var r Result
	for _, stmt := range script.Stmts {
		var e diag.List
		if r, e = s.Statement(stmt, src); e.Err() != nil {
			return r, e
		}
	}
	return r, nil
}

func (c *oracleCase) session() *Session {
	s := testSession()
	for k, v := range c.set {
		s.Config[k] = v
	}
	return s
}

// firstTable is the name of the first table of the DDL, "" if there is none.
func firstTable(ddl string) string {
	script, _ := parse.Script(diag.NewSource("ddl", ddl), nil)
	for _, s := range script.Stmts {
		if c, ok := s.(*ast.CreateTable); ok {
			return c.Name.Parts[0].Name
		}
	}
	return ""
}

func schemaLines(n rel.Node) []string {
	s := n.Schema()
	out := make([]string, s.Len())
	for i := range out {
		out[i] = s.Names[i] + " " + s.Types[i].String()
	}
	return out
}

// loose is a line of a schema without what binds nobody.
func loose(lines []string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = strings.ReplaceAll(l, " NOT NULL", "")
	}
	return out
}

// refusedLater are cases that only the planner or the runtime can refuse.
var refusedLater = []string{
	"over/non_time_range_bounded",
	"error/interval_join_changelog", "error/upsert_without_key", "error/window_topn_on_changelog", // no changelog is known here
	"join/temporal_no_key", "join/temporal_proctime_unsupported", "match/changelog_input", "misc/over_empty", "over/changelog_input",
	"over/different_windows", "over/lead", "subq/lateral_topn", "topn/dense_rank_function", "topn/order_by_unsupported", "topn/rank_function",
	"topn/row_number_unfiltered", "window/hop_not_multiple",
}

// notYet are cases whose schema is not right yet. It is to shrink.
var notYet = map[string]string{"misc/keywords_insensitive": "UPPER of a CHAR is a CHAR"}

func TestOracleSchemas(t *testing.T) {
	right, exact, refused := 0, 0, 0
	for _, c := range oracleCases(t) {
		if len(c.exprs) > 0 {
			continue
		}
		s := c.session()
		r, errs := run(s, "ddl", c.ddl)
		if errs.Err() == nil {
			r, errs = run(s, "query", c.query)
		}
		if c.error != "" && c.error != "runtime" {
			later := slices.Contains(refusedLater, c.name)
			switch {
			case errs.Err() == nil && !later:
				t.Errorf("%s: is bound, but Flink refuses it (%s)", c.name, c.error)
			case errs.Err() != nil && later:
				t.Errorf("%s: is refused now, take it off the list: %s", c.name, errs.Text())
			default:
				refused++
			}
			continue
		}
		if errs.Err() != nil {
			t.Errorf("%s: %s", c.name, errs.Text())
			continue
		}
		if c.error == "runtime" {
			continue
		}
		got := schemaLines(r.Node)
		if !slices.Equal(loose(got), loose(c.schema)) {
			if notYet[c.name] == "" {
				t.Errorf("%s: schema is\n  %s\nwant\n  %s\n%s", c.name, strings.Join(got, "\n  "), strings.Join(c.schema, "\n  "), rel.Tree(r.Node))
			}
			continue
		}
		right++
		if slices.Equal(got, c.schema) {
			exact++
		} else {
			t.Logf("%s: nullability is\n  %s\nwant\n  %s", c.name, strings.Join(got, "\n  "), strings.Join(c.schema, "\n  "))
		}
	}
	t.Logf("schemas right %d (with NOT NULL %d), refused %d", right, exact, refused)
}

// planRefuses tells expressions whose refusal is the planner's, which folds constants.
func planRefuses(result string) bool { return strings.Contains(result, "==> error plan") }

func TestOracleExpressions(t *testing.T) {
	right, exact, all := 0, 0, 0
	for _, c := range oracleCases(t) {
		if len(c.exprs) == 0 {
			continue
		}
		s := c.session()
		if _, errs := run(s, "ddl", c.ddl); errs.Err() != nil {
			t.Errorf("%s: %s", c.name, errs.Text())
			continue
		}
		table := firstTable(c.ddl)
		for i, text := range c.exprs {
			all++
			want, _ := strings.CutPrefix(c.results[i], text+" ==> ")
			name := c.name + ": " + text
			src := diag.NewSource("expr", text)
			e, errs := parse.Expr(src, nil)
			var n rel.Node
			if errs.Err() == nil {
				n, errs = s.Expr(e, table, src)
			}
			if strings.Contains(want, "error validate") {
				if errs.Err() == nil {
					t.Errorf("%s is bound as %s, but Flink refuses it", name, rel.Tree(n))
				} else {
					right++
				}
				continue
			}
			if errs.Err() != nil {
				if planRefuses(want) {
					right++
				} else {
					t.Errorf("%s: %s", name, errs.Text())
				}
				continue
			}
			typ, _, _ := strings.Cut(want, " ==> ")
			got := n.Schema().Types[0].String()
			switch {
			case strings.ReplaceAll(got, " NOT NULL", "") != strings.ReplaceAll(typ, " NOT NULL", ""):
				t.Errorf("%s is %s, want %s", name, got, typ)
			case got != typ:
				right++
				t.Logf("%s is %s, want %s", name, got, typ)
			default:
				right++
				exact++
			}
		}
	}
	t.Logf("expressions right %d of %d (with NOT NULL %d)", right, all, exact)
}
