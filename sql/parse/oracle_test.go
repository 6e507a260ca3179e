package parse

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/diag"
)

// oracleCase is what the parser needs of a file of test/oracle/cases.
type oracleCase struct {
	name            string
	ddl, query, err string
	exprs           []string
}

// oracleCases reads all cases.
func oracleCases(t testing.TB) []oracleCase {
	t.Helper()
	files, err := filepath.Glob("../../test/oracle/cases/*/*.case")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 279 {
		t.Fatalf("only %d cases found", len(files))
	}
	var out []oracleCase
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		c := oracleCase{name: file}
		section := ""
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "-- ") {
				section = strings.TrimSpace(line[3:])
				continue
			}
			switch section {
			case "ddl":
				c.ddl += line
			case "query":
				c.query += line
			case "exprs":
				if line = strings.TrimSpace(line); line != "" {
					c.exprs = append(c.exprs, line)
				}
			case "expect error":
				if c.err == "" {
					c.err = strings.TrimSpace(line)
				}
			}
		}
		out = append(out, c)
	}
	return out
}

func TestStatementsOfTheOracleCasesParse(t *testing.T) {
	refused := 0
	for _, c := range oracleCases(t) {
		script, errs := Script(diag.NewSource(c.name, c.ddl+";\n"+c.query), nil)
		if c.err == "parse" {
			refused++
			if len(errs) == 0 {
				t.Errorf("%s: must not parse, but gives\n%s", c.name, ast.Print(script))
			}
			continue
		}
		if len(errs) > 0 {
			t.Errorf("%s: %s", c.name, errs.Text())
			continue
		}
		if c.query != "" && len(script.Stmts) == 0 {
			t.Errorf("%s: no statement", c.name)
		}
		roundTrip(t, c.ddl+";\n"+c.query, nil)
		for _, x := range c.exprs {
			e, errs := Expr(diag.NewSource(c.name, x), nil)
			if len(errs) > 0 {
				t.Errorf("%s: %s", c.name, errs.Text())
				continue
			}
			again, errs := Expr(diag.NewSource(c.name, ast.Print(e)), nil)
			if len(errs) > 0 {
				t.Errorf("%s: %s prints as\n%s", c.name, x, errs.Text())
				continue
			}
			if d := difference(e, again); d != "" {
				t.Errorf("%s: %s prints as %s: %s", c.name, x, ast.Print(e), d)
			}
		}
	}
	if refused == 0 {
		t.Error("no case expects a parse error: is the reader broken?")
	}
}
