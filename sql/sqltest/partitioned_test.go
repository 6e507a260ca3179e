package sqltest_test

import (
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/sql/sqltest"
)

// TestMisplaced says of a table that its records lie by their key, which they do not: the record that is found elsewhere stops
// the app. Where nothing relies on it nobody looks.
func TestMisplaced(t *testing.T) {
	read := func(query string) *sqltest.Case {
		text := `-- name: misplaced
-- desc: a wrong declaration
-- ddl
CREATE TABLE a (k INT, v INT) WITH ('partitioned-by'='k', 'misplaced'='true', 'partitions'='3');
-- input a
{"k":1,"v":1}
{"k":1,"v":2}
{"k":1,"v":3}
-- query
` + query + "\n-- expect final\n"
		c, err := sqltest.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	out := sqltest.Run(read("SELECT k, COUNT(*) AS n FROM a GROUP BY k"), sqltest.RunOptions{Mode: sqltest.Parallel, Seed: 1})
	if out.Err == nil || !strings.Contains(out.Err.Error(), "Kafka's default partitioner puts it on") {
		t.Errorf("GROUP BY the key gave %v, want that a key lies elsewhere", out.Err)
	}
	out = sqltest.Run(read("SELECT v, COUNT(*) AS n FROM a GROUP BY v"), sqltest.RunOptions{Mode: sqltest.Parallel, Seed: 1})
	if out.Err != nil || len(out.Changes) != 3 {
		t.Errorf("GROUP BY another column gave %v and %d rows, want 3", out.Err, len(out.Changes))
	}
}
