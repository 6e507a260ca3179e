package sql_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/sql"
	"github.com/millrace-stream/millrace/sql/plan"
	"github.com/millrace-stream/millrace/sql/rel"
)

// TestRules has a query for each rule, testdata/rules/RULE.sql, and compares the plan before and after it with RULE.txt. What
// stands before and after a rule that works while operators are chosen or rows are placed is that of the whole stage.
func TestRules(t *testing.T) {
	var names []string
	for _, r := range plan.Rules() {
		names = append(names, r.Name)
		t.Run(r.Name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata/rules", r.Name+".sql"))
			if err != nil {
				t.Fatalf("the rule has no query: %v", err)
			}
			s := sql.NewSession(sql.Options{Collect: func(*rel.Schema) *connector.Sink { return nil }})
			sinks, errs := s.Read("plan.sql", string(text))
			if errs.Err() != nil {
				t.Fatal(errs.Text())
			}
			planned := func(without map[string]bool) (p *rel.Plan, before, after string) {
				p, list := plan.Script(sinks, plan.Options{Config: s.Config, Exchange: true, Table: traits, Without: without, Trace: func(name, b, a string) {
					if name == r.Name || name == string(r.Stage) {
						before, after = b, a
					}
				}})
				if len(list) > 0 {
					t.Fatal(list[0].Text())
				}
				return p, before, after
			}
			p, before, after := planned(nil)
			if before == after {
				t.Errorf("the rule has changed nothing:\n%s", before)
			}
			if r.Made != nil && !slices.ContainsFunc(operators(p), r.Made) {
				t.Errorf("the rule has made nothing in\n%s", plan.Text(p))
			}
			if r.Optional {
				if without, _, _ := planned(map[string]bool{r.Name: true}); plan.Text(without) == plan.Text(p) {
					t.Errorf("the plan is the same without the rule:\n%s", plan.Text(p))
				}
			}
			got := "-- before\n" + before + "\n-- after\n" + after
			golden := filepath.Join("testdata/rules", r.Name+".txt")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("plans\n%s\nwant\n%s", got, want)
			}
		})
	}
	files, err := filepath.Glob("testdata/rules/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name := strings.TrimSuffix(filepath.Base(f), ".sql"); !slices.Contains(names, name) {
			t.Errorf("%s is of no rule", f)
		}
	}
}

// operators are the nodes of a plan.
func operators(p *rel.Plan) (out []rel.Physical) {
	var walk func(n rel.Physical)
	walk = func(n rel.Physical) {
		out = append(out, n)
		for _, in := range n.Common().In {
			walk(in)
		}
	}
	for _, s := range p.Sinks {
		walk(s)
	}
	return out
}
