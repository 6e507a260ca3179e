package sqltest_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace-stream/millrace/sql/sqltest"
)

const ttlPipeline = `
SET 'table.exec.state.ttl' = '1 h';
CREATE TABLE a (k INT, v INT) WITH ('connector' = 'append');
CREATE TABLE b (k INT, w INT) WITH ('connector' = 'append');
CREATE TABLE n (k INT, c BIGINT, d BIGINT) WITH ('connector' = 'all');
CREATE TABLE j (k INT, v INT, w INT) WITH ('connector' = 'all');
CREATE TABLE kept (k INT, v INT, w INT) WITH ('connector' = 'all');
CREATE TABLE top (k INT, v INT) WITH ('connector' = 'all');
CREATE TABLE firsts (k INT, v INT) WITH ('connector' = 'all');
CREATE TABLE timed (k INT, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'append');
CREATE TABLE lasts (k INT, v INT) WITH ('connector' = 'all');
CREATE TABLE both_of (k INT) WITH ('connector' = 'all');
INSERT INTO n SELECT k, COUNT(*), COUNT(DISTINCT v) FROM a GROUP BY k;
INSERT INTO j SELECT a.k, v, w FROM a JOIN b ON a.k = b.k;
INSERT INTO kept SELECT /*+ STATE_TTL('a' = '2 h', 'b' = '0 s') */ a.k, v, w FROM a JOIN b ON a.k = b.k;
INSERT INTO top SELECT k, v FROM (SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS r FROM a) WHERE r <= 1;
INSERT INTO firsts SELECT k, MIN(v) FROM a GROUP BY k;
INSERT INTO lasts SELECT k, v FROM (SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS r FROM timed) WHERE r = 1;
INSERT INTO both_of SELECT k FROM a INTERSECT SELECT k FROM b;
`

const ttlTests = `
test a group lives on from each row
insert a
  {"k": 1, "v": 7}
time +59 min
insert a
  {"k": 1, "v": 7}
time +59 min
insert a
  {"k": 1, "v": 7}
expect n
  +I {"k": 1, "c": 1, "d": 1}
  -U {"k": 1, "c": 1, "d": 1}
  +U {"k": 1, "c": 2, "d": 1}
  -U {"k": 1, "c": 2, "d": 1}
  +U {"k": 1, "c": 3, "d": 1}
time +1 h
insert a
  {"k": 1, "v": 7}
expect n
  +I {"k": 1, "c": 1, "d": 1}

test rows of joins are forgotten one by one
insert a
  {"k": 1, "v": 1}
time +30 min
insert a
  {"k": 1, "v": 2}
time +30 min
insert b
  {"k": 1, "w": 5}
expect j
  +I {"k": 1, "v": 2, "w": 5}
expect kept
  +I {"k": 1, "v": 1, "w": 5}
  +I {"k": 1, "v": 2, "w": 5}
time +3 h
insert a
  {"k": 1, "v": 3}
expect j
expect kept
  +I {"k": 1, "v": 3, "w": 5}

test a Top-N begins anew
insert a
  {"k": 1, "v": 9}
time +61 min
insert a
  {"k": 1, "v": 3}
expect top
  +I {"k": 1, "v": 9}
  +I {"k": 1, "v": 3}
expect firsts
  +I {"k": 1, "v": 9}
  +I {"k": 1, "v": 3}

test a result that stays is told again so that what is behind lives on too
insert a
  {"k": 1, "v": 9}
insert a
  {"k": 1, "v": 9}
expect firsts
  +I {"k": 1, "v": 9}
  -U {"k": 1, "v": 9}
  +U {"k": 1, "v": 9}
insert timed
  {"k": 1, "v": 9, "ts": "2024-01-01 00:00:00"}
insert timed
  {"k": 1, "v": 9, "ts": "2024-01-01 00:00:00"}
expect lasts
  +I {"k": 1, "v": 9}
  -U {"k": 1, "v": 9}
  +U {"k": 1, "v": 9}

test counts of sets are forgotten
insert a
  {"k": 1, "v": 1}
time +61 min
insert b
  {"k": 1, "w": 1}
expect both_of
insert a
  {"k": 1, "v": 1}
expect both_of
  +I {"k": 1}
`

// Each test runs row by row and with a restart after each row, as all tests of users.
func TestStateHasATimeToLive(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"ttl.sql": ttlPipeline, "ttl.test": ttlTests} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := sqltest.ReadTests(filepath.Join(dir, "ttl.test"))
	if err != nil {
		t.Fatal(err)
	}
	results, err := f.Run(sqltest.TestOptions{Connectors: stubs})
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 5 {
		t.Errorf("%d tests ran, want 5", len(results))
	}
	for _, r := range results {
		if r.Diff != "" {
			t.Errorf("%s, in %s:\n%s", r.Name, r.Mode, r.Diff)
		}
	}
}
