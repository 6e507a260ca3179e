package sql_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/sql"
	"github.com/millrace-stream/millrace/sql/catalog"
	"github.com/millrace-stream/millrace/sql/diag"
	"github.com/millrace-stream/millrace/sql/plan"
	"github.com/millrace-stream/millrace/sql/rel"
)

var update = flag.Bool("update", false, "write the golden files anew")

// traits are what the planner is told of a table: it reads new rows, and takes changes unless it has the option 'append'. Its
// records lie on partitions by the column of the option 'keyed', with keys that are written by their type.
func traits(t *catalog.Table) (plan.Traits, *diag.Error) {
	tr := plan.Traits{Writes: catalog.Upsert, Lookup: true}
	if _, ok := t.Option("append"); ok {
		tr.Writes = catalog.Append
	}
	if _, ok := t.Option("upsert"); ok {
		tr.Reads = catalog.Upsert
	}
	if name, ok := t.Option("keyed"); ok {
		c := t.Column(name)
		tr.Keyed, tr.KeyForm = []int{c}, t.Columns[c].Type.Plain().String()
	}
	return tr, nil
}

// read binds a script of tables and one query and plans the query.
func read(t *testing.T, text string, exchange bool) (*rel.Plan, string) {
	t.Helper()
	s := sql.NewSession(sql.Options{Collect: func(*rel.Schema) *connector.Sink { return nil }})
	sinks, errs := s.Read("plan.sql", text)
	if errs.Err() != nil {
		return nil, errs.Text()
	}
	late, errs := s.LateSinks(sinks)
	if errs.Err() != nil {
		return nil, errs.Text()
	}
	p, list := plan.Script(append(sinks, late...), plan.Options{Config: s.Config, Exchange: exchange, Table: traits})
	if len(list) > 0 {
		var b strings.Builder
		for _, e := range list {
			b.WriteString(e.Text())
		}
		return nil, b.String()
	}
	return p, plan.Explain(p)
}

// TestExplain compares the plans of queries with golden files: one operator in one subtask, and with exchanges.
func TestExplain(t *testing.T) {
	files, err := filepath.Glob("testdata/explain/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("no queries: %v", err)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			_, one := read(t, string(text), false)
			_, many := read(t, string(text), true)
			got := "-- one subtask\n" + one + "\n-- several\n" + many
			golden := strings.TrimSuffix(f, ".sql") + ".txt"
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
				t.Errorf("the plan is\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// TestDiff: editing one query keeps the state of the other; what changed is named.
func TestDiff(t *testing.T) {
	const tables = `CREATE TABLE bid (auction BIGINT, price BIGINT, channel STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '4' SECOND);
		CREATE TABLE a (auction BIGINT, n BIGINT, PRIMARY KEY (auction) NOT ENFORCED); CREATE TABLE b (channel STRING, top BIGINT, PRIMARY KEY (channel) NOT ENFORCED);
		INSERT INTO a SELECT auction, COUNT(*) FROM bid GROUP BY auction; `
	old, text := read(t, tables+"INSERT INTO b SELECT channel, MAX(price) FROM bid WHERE price > 10 GROUP BY channel;", false)
	if old == nil {
		t.Fatal(text)
	}
	edited, text := read(t, tables+"INSERT INTO b SELECT channel, MAX(price) FROM bid WHERE price > 20 GROUP BY channel;", false)
	if edited == nil {
		t.Fatal(text)
	}
	kinds := map[string]string{}
	for _, c := range plan.Diff(old, edited) {
		kinds[c.Kind] += c.Why + ";"
	}
	if len(kinds) != 2 || kinds["kept"] != ";" || !strings.Contains(kinds["rebuilt"], "10") || !strings.Contains(kinds["rebuilt"], "20") {
		t.Errorf("diff is %v, want the count kept, and the maximum rebuilt for its condition", kinds)
	}
	again, _ := read(t, tables+"INSERT INTO b SELECT channel, MAX(price) AS x FROM  bid  WHERE 10 < price GROUP BY channel;", false)
	for _, c := range plan.Diff(old, again) {
		if c.Kind == "new" || c.Kind == "dropped" {
			t.Errorf("another layout and name of the same query: %+v", c)
		}
	}
}
