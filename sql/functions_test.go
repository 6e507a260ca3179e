package sql_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/sql/sqltest"
)

// TestUserFunctions runs queries with the functions of the example, each also with restarts and exchanges.
func TestUserFunctions(t *testing.T) {
	functions, err := userFunctions()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ query, rows, want string }{
		"comma, condition, alias": {
			`SELECT id, w, n FROM notes, LATERAL TABLE(words(text)) AS x(w, n) WHERE n > 1`,
			`{"id":1,"text":"a wide river"}` + "\n" + `{"id":2,"text":null}`,
			`[1, "river", 5] [1, "wide", 4]`},
		"inner join with ON": {
			`SELECT id, word FROM notes JOIN LATERAL TABLE(words(text)) ON id > 1`,
			`{"id":1,"text":"a b"}` + "\n" + `{"id":2,"text":"c"}`,
			`[2, "c"]`},
		"left join pads": {
			`SELECT id, word FROM notes LEFT JOIN LATERAL TABLE(words(text)) ON TRUE`,
			`{"id":1,"text":null}` + "\n" + `{"id":2,"text":"c"}`,
			`[1, null] [2, "c"]`},
		"withdrawn rows are counted anew": {
			`SELECT id, LONGEST(text) FROM notes GROUP BY id`,
			`{"id":1,"text":"aaa"}` + "\n" + `{"id":1,"text":"b"}` + "\n" + `-D {"id":1,"text":"aaa"}`,
			`[1, "b"]`},
		"in a window": {
			`SELECT LONGEST(DISTINCT text) FROM timed GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)`,
			`{"id":1,"text":"aaa"}`,
			``},
		"a failure names the place": {
			`SELECT MASK(text, id) FROM notes`,
			`{"id":-1,"text":"aaa"}`,
			`error runtime: MASK: keep is negative`},
		"a wrong type": {
			`SELECT MASK(id, 1) FROM notes`,
			``,
			`error validate: MASK`},
		"no table function": {
			`SELECT * FROM notes, LATERAL TABLE(mask(text, 1))`,
			``,
			`error validate: is no table function`},
	} {
		c, err := sqltest.Parse([]byte("-- ddl\nCREATE TABLE notes (id INT, text STRING) WITH ('changelog-mode'='all');\n" +
			"CREATE TABLE timed (text STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts);\n" +
			"CREATE FUNCTION mask AS 'shop.Mask'; CREATE FUNCTION words AS 'shop.Words'; CREATE FUNCTION longest AS 'shop.Longest';\n" +
			"-- input notes\n" + test.rows + "\n-- query\n" + test.query))
		if err != nil {
			t.Fatal(err)
		}
		for _, mode := range []sqltest.Mode{sqltest.ByLine, sqltest.Restart, sqltest.Parallel} {
			out := sqltest.Run(c, sqltest.RunOptions{Mode: mode, Functions: functions})
			if out.Err != nil {
				got := "error " + string(out.Phase) + ": " + out.Err.Error()
				phase, rest, _ := strings.Cut(test.want, ": ")
				if !strings.HasPrefix(got, phase) || !strings.Contains(got, rest) {
					t.Errorf("%s, %s: %s, want %s", name, mode, got, test.want)
				}
				continue
			}
			if got := folded(out.Changes); got != test.want {
				t.Errorf("%s, %s: got %s, want %s", name, mode, got, test.want)
			}
		}
	}
}

// folded is what is left of changes, in order.
func folded(changes []sqltest.Change) string {
	n := map[string]int{}
	for _, c := range changes {
		if c.Kind.Adds() {
			n[c.Row]++
		} else {
			n[c.Row]--
		}
	}
	var rows []string
	for _, r := range slices.Sorted(maps.Keys(n)) {
		for range n[r] {
			rows = append(rows, r)
		}
	}
	return strings.Join(rows, " ")
}
