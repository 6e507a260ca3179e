package bind

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/diag"
	"github.com/millrace-stream/millrace/sql/parse"
	"github.com/millrace-stream/millrace/sql/rel"
)

var update = flag.Bool("update", false, "write what the binder answers now into the golden files")

// golden runs the parts of a file: `== name`, statements, `--`, what is answered.
func golden(t *testing.T, path string, answer func(name, text string) string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for i, part := range strings.Split("\n"+string(b), "\n== ") {
		if i == 0 {
			out.WriteString(strings.TrimPrefix(part, "\n"))
			continue
		}
		head, text, _ := strings.Cut(part, "\n")
		text, want, _ := strings.Cut(text, "\n--\n")
		text = strings.Trim(text, "\n")
		got := strings.TrimRight(answer(head, text), "\n")
		if want = strings.TrimRight(want, "\n"); got != want && !*update {
			t.Errorf("%s: %s\ngives\n%s\nwant\n%s", path, head, got, want)
		}
		out.WriteString("\n== " + head + "\n" + text + "\n--\n" + got + "\n")
	}
	if *update {
		if err := os.WriteFile(path, []byte(strings.TrimLeft(out.String(), "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// goldenTables are there in all golden tests.
const goldenTables = `
CREATE TABLE t (k STRING, v INT, w BIGINT NOT NULL, ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND);
CREATE TABLE u (k STRING, x INT, d DECIMAL(10, 2), a ARRAY<INT>, m MAP<STRING, INT>, r ROW<b INT, c ROW<e STRING>>);
CREATE TABLE rates (cur STRING, rate INT, vt TIMESTAMP(3), WATERMARK FOR vt AS vt, PRIMARY KEY (cur) NOT ENFORCED);
CREATE TABLE sink (k STRING, n BIGINT NOT NULL, d DECIMAL(20, 4), extra STRING) WITH ('connector' = 'x');
CREATE FUNCTION words AS 'words';
CREATE FUNCTION twice AS 'twice';
CREATE FUNCTION product AS 'product';
`

func goldenSession(t *testing.T) *Session {
	t.Helper()
	s := testSession()
	if _, errs := run(s, "tables", goldenTables); errs.Err() != nil {
		t.Fatal(errs.Text())
	}
	return s
}

func answerOf(r Result, errs diag.List) string {
	if errs.Err() != nil {
		return errs.Text()
	}
	var b strings.Builder
	if r.Node != nil {
		b.WriteString(strings.Join(schemaLines(r.Node), "\n") + "\n\n" + rel.Tree(r.Node))
	}
	for _, s := range r.Sinks {
		b.WriteString(rel.Tree(s))
	}
	if r.Rows != nil {
		b.WriteString(strings.Join(r.Rows.Columns, " | ") + "\n")
		for _, row := range r.Rows.Rows {
			b.WriteString(strings.Join(row, " | ") + "\n")
		}
	}
	if r.Done != "" {
		b.WriteString(r.Done + "\n")
	}
	return b.String()
}

func TestTrees(t *testing.T) {
	golden(t, "testdata/trees.txt", func(_, text string) string {
		r, errs := run(goldenSession(t), "q", text)
		if r.Node != nil {
			checkPlan(t, r.Node)
		}
		for _, s := range r.Sinks {
			checkPlan(t, s)
		}
		return answerOf(r, errs)
	})
}

func TestErrors(t *testing.T) {
	golden(t, "testdata/errors.txt", func(name, text string) string {
		r, errs := run(goldenSession(t), "q", text)
		if errs.Err() == nil {
			t.Errorf("%s is no error: %s", name, answerOf(r, nil))
		}
		return errs.Text()
	})
}

func TestStatements(t *testing.T) {
	golden(t, "testdata/statements.txt", func(_, text string) string {
		s := goldenSession(t)
		src := diag.NewSource("q", text)
		script, errs := parse.Script(src, nil)
		if errs.Err() != nil {
			return errs.Text()
		}
		var b strings.Builder
		for _, stmt := range script.Stmts {
			r, errs := s.Statement(stmt, src)
			b.WriteString(answerOf(r, errs))
		}
		return b.String()
	})
}

// checkPlan proves that a plan hangs together: columns exist and have the types of what they name, apart from nullability
// and marks, and nothing of the binder's own is left in it.
func checkPlan(t testing.TB, n rel.Node) {
	t.Helper()
	checkNode(t, n, nil)
}

func checkNode(t testing.TB, n rel.Node, outer []*rel.Schema) {
	t.Helper()
	in := &rel.Schema{}
	children := n.Children()
	for _, c := range children {
		s := c.Schema()
		if _, ok := n.(*rel.SetOp); ok {
			in = s
			continue
		}
		in = &rel.Schema{Names: append(in.Names[:len(in.Names):len(in.Names)], s.Names...), Types: append(in.Types[:len(in.Types):len(in.Types)], s.Types...)}
	}
	switch n.(type) {
	case *rel.Unnest, *rel.TableFunc, *rel.Values:
		in = &rel.Schema{}
	}
	if len(n.Schema().Names) != len(n.Schema().Types) {
		t.Errorf("%s has %d names and %d types", n, len(n.Schema().Names), len(n.Schema().Types))
	}
	if p, ok := n.(*rel.Project); ok {
		for i, e := range p.Exprs {
			if i < p.Out.Len() && e.Type() != p.Out.Types[i] {
				t.Errorf("%s: column %d is %s, its expression %s", n, i, p.Out.Types[i], e.Type())
			}
		}
	}
	rows := append([]*rel.Schema{in}, outer...)
	for _, e := range rel.Exprs(n) {
		checkExpr(t, n, e, rows)
	}
	for i, c := range children {
		out := outer
		if k, ok := n.(*rel.Correlate); ok && i == 1 {
			out = append([]*rel.Schema{k.Left.Schema()}, outer...)
		}
		checkNode(t, c, out)
	}
}

func checkExpr(t testing.TB, n rel.Node, e rel.Expr, rows []*rel.Schema) {
	t.Helper()
	rel.WalkExpr(e, func(e rel.Expr) bool {
		if isBad(e) {
			t.Errorf("%s has a bad expression", n)
		}
		switch e := e.(type) {
		case *rel.Column:
			switch {
			case e.Depth < 0 || e.Depth >= len(rows):
				t.Errorf("%s: column %s has depth %d of %d", n, e.Name, e.Depth, len(rows))
			case e.Index < 0 || e.Index >= rows[e.Depth].Len():
				t.Errorf("%s: column %s is number %d of %d (depth %d)", n, e.Name, e.Index, rows[e.Depth].Len(), e.Depth)
			case plainDeep(e.Type()) != plainDeep(rows[e.Depth].Types[e.Index]):
				t.Errorf("%s: column %s is %s, but %s there", n, e.Name, e.Type(), rows[e.Depth].Types[e.Index])
			}
		case *rel.Subquery:
			checkNode(t, e.Node, rows)
		}
		return true
	})
}

func plainDeep(t *row.Type) string { return strings.ReplaceAll(t.Plain().String(), " NOT NULL", "") }

func FuzzBind(f *testing.F) {
	for _, c := range oracleCases(f) {
		f.Add(c.ddl + c.query)
		for _, e := range c.exprs {
			f.Add(c.ddl + "SELECT " + e + " FROM t")
		}
	}
	for _, path := range []string{"testdata/trees.txt", "testdata/errors.txt", "testdata/statements.txt"} {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, part := range strings.Split(string(b), "\n== ") {
			_, text, _ := strings.Cut(part, "\n")
			text, _, _ = strings.Cut(text, "\n--\n")
			f.Add(goldenTables + text)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		src := diag.NewSource("fuzz", text)
		script, _ := parse.Script(src, nil)
		s := testSession()
		for _, stmt := range script.Stmts {
			r, errs := s.Statement(stmt, src)
			if errs.Err() != nil {
				_ = errs.Text()
				continue
			}
			if r.Node != nil {
				checkPlan(t, r.Node)
				_ = rel.Tree(r.Node)
			}
			for _, k := range r.Sinks {
				checkPlan(t, k)
				_ = rel.CanonicalTree(k)
			}
		}
	})
}
