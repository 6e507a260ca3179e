package sql_test

import (
	"testing"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/connector/blackhole"
	"github.com/millrace-stream/millrace/connector/datagen"
	"github.com/millrace-stream/millrace/sql"
)

// State has no time to live yet: that is told, and the changelog forgets nothing that the operators still have.
func TestTimeToLiveIsToldToHaveNoEffect(t *testing.T) {
	const tables = `CREATE TABLE a (k INT, v INT) WITH ('connector' = 'datagen'); CREATE TABLE b (k INT, v BIGINT) WITH ('connector' = 'blackhole');`
	for name, text := range map[string]string{
		"setting": `SET 'table.exec.state.ttl' = '1 d'; ` + tables + ` INSERT INTO b SELECT k, COUNT(*) FROM a GROUP BY k;`,
		"hint":    tables + ` INSERT INTO b SELECT /*+ STATE_TTL('x' = '1 d', 'y' = '2 d') */ x.k, y.v FROM a x JOIN a y ON x.k = y.k;`,
	} {
		app, errs := sql.Script("ttl.sql", text, sql.Options{Connectors: connector.Registry{"datagen": datagen.New(), "blackhole": blackhole.New()}})
		if errs.Err() != nil {
			t.Fatal(errs.Text())
		}
		told := false
		for _, w := range app.Plan.Warnings {
			told = told || w.Code == "W19"
		}
		if !told {
			t.Errorf("%s: nothing is told", name)
		}
		plan, err := app.Topology.Plan()
		if err != nil {
			t.Fatal(err)
		}
		stores := 0
		for _, sub := range plan.Subs {
			stores += len(sub.Stores)
			for _, s := range sub.Stores {
				if s.Expiring {
					t.Errorf("%s: the changelog of store %s forgets", name, s.Name)
				}
			}
		}
		if stores == 0 {
			t.Errorf("%s: there is no store", name)
		}
	}
}
