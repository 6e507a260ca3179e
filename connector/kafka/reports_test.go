package kafka_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/statestore/memstore"
	"github.com/millrace-stream/millrace/txn"
)

// What users of other stream processors have reported, with tables on topics. The numbers are those of the collection
// that the project keeps.

// fails runs a script that ends with an error, at its first try.
func (w *world) fails(app, text string) error {
	w.t.Helper()
	a, err := w.script(text)
	must(w.t, err)
	plan, err := a.Topology.Plan()
	must(w.t, err)
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	return engine.New(engine.Options{Plan: plan, Dir: memstore.NewDir(app), MaxAttempts: 1, BackoffMin: time.Millisecond, LeaveOnStop: true,
		Kafka: txn.Options{AppID: app, Brokers: w.fake.ListenAddrs(), InstanceID: app + "-0"}}).Run(ctx)
}

const bounded = "'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset'"

// P30: a record without value, without key, and without both, on tables of rows and of keys.
func TestNullRecords(t *testing.T) {
	w := newWorld(t)
	for _, topic := range []string{"in", "out", "gone"} {
		w.topic(topic, 1)
	}
	w.put("in", 0, &kgo.Record{Key: []byte(`{"k":1}`), Value: []byte(`{"k":1,"v":"a"}`)},
		&kgo.Record{Key: []byte(`{"k":1}`)}, &kgo.Record{}, &kgo.Record{Value: []byte(`{"k":2,"v":"b"}`)},
		&kgo.Record{Key: []byte(`{"k":3}`), Value: []byte(`{"k":3,"v":"c"}`)}, &kgo.Record{Key: []byte(`{"k":9}`)})
	w.finish("rows", `
		CREATE TABLE i (k INT, v STRING) WITH ('connector' = 'kafka', 'topic' = 'in', 'format' = 'json', `+bounded+`);
		CREATE TABLE o (k INT, v STRING) WITH ('connector' = 'kafka', 'topic' = 'out', 'format' = 'json');
		INSERT INTO o SELECT * FROM i;`)
	w.holds("out", `{"k":1,"v":"a"}`, `{"k":2,"v":"b"}`, `{"k":3,"v":"c"}`) // tombstones are no rows

	keys := `
		CREATE TABLE i (k INT, v STRING, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'in', 'key.format' = 'json', 'value.format' = 'json', 'scan.bounded.mode' = 'latest-offset');
		CREATE TABLE o (k INT, v STRING, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'gone', 'key.format' = 'json', 'value.format' = 'json');
		INSERT INTO o SELECT * FROM i;`
	err := w.fails("keys", keys)
	if err == nil || !strings.Contains(err.Error(), "topic in partition 0 offset 2") {
		t.Errorf("a record without a key on a table of keys: error %v, want one that says where it is", err)
	}
}

// P30: of a table of keys a tombstone deletes, also one of a key that was never there.
func TestTombstones(t *testing.T) {
	w := newWorld(t)
	w.topic("in", 1)
	w.topic("out", 1)
	record := func(k int, v string) *kgo.Record {
		r := &kgo.Record{Key: fmt.Appendf(nil, `{"k":%d}`, k)}
		if v != "" {
			r.Value = fmt.Appendf(nil, `{"k":%d,"v":"%s"}`, k, v)
		}
		return r
	}
	w.put("in", 0, record(1, "a"), record(2, "b"), record(1, ""), record(9, ""), record(3, "c"), record(3, "d"), record(1, "e"), record(2, ""), record(2, ""))
	w.finish("keys", `
		CREATE TABLE i (k INT, v STRING, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'in', 'key.format' = 'json', 'value.format' = 'json', 'scan.bounded.mode' = 'latest-offset');
		CREATE TABLE o (k INT, v STRING, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'out', 'key.format' = 'json', 'value.format' = 'json');
		INSERT INTO o SELECT k, UPPER(v) FROM i;`)
	if got, want := w.table("out"), []string{`{"k":1,"v":"E"}`, `{"k":3,"v":"D"}`}; !slices.Equal(got, want) {
		t.Errorf("the table is %q, want %q", got, want)
	}
}

// P31: integers beyond 2^53 are exact from JSON to JSON, as they are, inside of values, and as keys of groups and topics.
func TestLargeIntegers(t *testing.T) {
	w := newWorld(t)
	w.topic("in", 2)
	w.topic("out", 2)
	w.topic("counts", 2)
	numbers := []string{"9007199254740993", "9007199254740992", "-9007199254740993", "9223372036854775807", "-9223372036854775808"}
	var want, counts []string
	for i, n := range numbers {
		v := fmt.Sprintf(`{"n":%s,"r":{"x":%[1]s},"a":[%[1]s],"m":{"k":%[1]s},"d":%[1]s}`, n)
		want = append(want, v)
		counts = append(counts, fmt.Sprintf(`{"n":%s,"c":%d}`, n, i+1))
		for range i + 1 {
			w.put("in", int32(i%2), values(v)...)
		}
	}
	w.finish("large", `
		CREATE TABLE i (n BIGINT, r ROW<x BIGINT>, a ARRAY<BIGINT>, m MAP<STRING, BIGINT>, d DECIMAL(38, 0)) WITH ('connector' = 'kafka', 'topic' = 'in', 'format' = 'json', `+bounded+`);
		CREATE TABLE o (n BIGINT, r ROW<x BIGINT>, a ARRAY<BIGINT>, m MAP<STRING, BIGINT>, d DECIMAL(38, 0)) WITH ('connector' = 'kafka', 'topic' = 'out', 'format' = 'json');
		CREATE TABLE counts (n BIGINT, c BIGINT, PRIMARY KEY (n) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'counts', 'key.format' = 'json', 'value.format' = 'json');
		INSERT INTO o SELECT * FROM i;
		INSERT INTO counts SELECT n, COUNT(*) FROM i GROUP BY n;`)
	slices.Sort(want)
	if got := slices.Compact(w.texts("out")); !slices.Equal(got, want) {
		t.Errorf("rows\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	slices.Sort(counts)
	if got := w.table("counts"); !slices.Equal(got, counts) {
		t.Errorf("counts\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(counts, "\n"))
	}

	w.topic("beyond", 1)
	w.put("beyond", 0, values(`{"n":9223372036854775808}`)...)
	err := w.fails("beyond", `
		CREATE TABLE i (n BIGINT) WITH ('connector' = 'kafka', 'topic' = 'beyond', 'format' = 'json', `+bounded+`);
		CREATE TABLE o (n BIGINT) WITH ('connector' = 'kafka', 'topic' = 'out', 'format' = 'json');
		INSERT INTO o SELECT * FROM i;`)
	if err == nil || !strings.Contains(err.Error(), "topic beyond partition 0 offset 0") {
		t.Errorf("2^63: error %v, want one that says where it is", err)
	}
}

// P44: an upsert topic ends as the table of the query, also where the keys of the query are others than those of its rows, so
// that a row moves from key to key; no tombstone is the last word on a key that lives.
func TestUpsertEndsAsTheTable(t *testing.T) {
	w := newWorld(t)
	for _, topic := range []string{"a", "b", "sizes", "highest"} {
		w.topic(topic, 3)
	}
	groups := map[string]int{}
	sizes := map[int]int{}
	for _, topic := range []string{"a", "b"} {
		for i := range 200 {
			k := fmt.Sprint("k", i*i%17)
			groups[k]++
			w.put(topic, int32(i%3), &kgo.Record{Value: fmt.Appendf(nil, `{"k":"%s","n":%d}`, k, i)})
		}
	}
	for _, n := range groups {
		sizes[n]++
	}
	w.finish("sizes", `
		CREATE TABLE a (k STRING, n BIGINT) WITH ('connector' = 'kafka', 'topic' = 'a', 'format' = 'json', `+bounded+`);
		CREATE TABLE b (k STRING, n BIGINT) WITH ('connector' = 'kafka', 'topic' = 'b', 'format' = 'json', `+bounded+`);
		CREATE TABLE sizes (size BIGINT, c BIGINT, PRIMARY KEY (size) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'sizes', 'key.format' = 'json', 'value.format' = 'json');
		CREATE TABLE highest (k STRING, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'highest', 'key.format' = 'json', 'value.format' = 'json');
		CREATE VIEW u AS SELECT * FROM a UNION ALL SELECT * FROM b;
		INSERT INTO sizes SELECT size, COUNT(*) FROM (SELECT k, COUNT(*) AS size FROM u GROUP BY k) GROUP BY size;
		INSERT INTO highest SELECT k, MAX(n) FROM u GROUP BY k;`)
	var want []string
	for size, n := range sizes {
		want = append(want, fmt.Sprintf(`{"size":%d,"c":%d}`, size, n))
	}
	slices.Sort(want)
	if got := w.table("sizes"); !slices.Equal(got, want) {
		t.Errorf("the table is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	highest := map[string]int{}
	for i := range 200 {
		k := fmt.Sprint("k", i*i%17)
		highest[k] = max(highest[k], i)
	}
	want = nil
	for k, n := range highest {
		want = append(want, fmt.Sprintf(`{"k":"%s","n":%d}`, k, n))
	}
	slices.Sort(want)
	if got := w.table("highest"); !slices.Equal(got, want) {
		t.Errorf("the table is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// P22: days of a time zone are as long as they are there: 23 hours when summer time begins, 25 when it ends.
func TestLocalDays(t *testing.T) {
	w := newWorld(t)
	w.topic("in", 1)
	w.topic("out", 1)
	zone, err := time.LoadLocation("America/Los_Angeles")
	must(t, err)
	hours := map[string]int{}
	for _, day := range []time.Time{time.Date(2021, 3, 13, 0, 30, 0, 0, zone), time.Date(2021, 11, 6, 0, 30, 0, 0, zone)} {
		for h := range 72 { // three days, an hour apart
			at := day.Add(time.Duration(h) * time.Hour)
			hours[at.Format(time.DateOnly)]++
			w.put("in", 0, values(fmt.Sprintf(`{"ts":"%s"}`, at.UTC().Format("2006-01-02 15:04:05Z")))...)
		}
	}
	if hours["2021-03-14"] != 23 || hours["2021-11-07"] != 25 {
		t.Fatalf("the days of the test have %d and %d hours", hours["2021-03-14"], hours["2021-11-07"])
	}
	w.finish("days", `
		SET 'table.local-time-zone' = 'America/Los_Angeles';
		CREATE TABLE i (ts TIMESTAMP_LTZ(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'kafka', 'topic' = 'in', 'format' = 'json', `+bounded+`);
		CREATE TABLE o (d STRING, n BIGINT) WITH ('connector' = 'kafka', 'topic' = 'out', 'format' = 'json');
		INSERT INTO o SELECT DATE_FORMAT(window_start, 'yyyy-MM-dd'), COUNT(*) FROM TABLE(TUMBLE(TABLE i, DESCRIPTOR(ts), INTERVAL '1' DAY)) GROUP BY window_start, window_end;`)
	var want []string
	for day, n := range hours {
		want = append(want, fmt.Sprintf(`{"d":"%s","n":%d}`, day, n))
	}
	slices.Sort(want)
	w.holds("out", want...)
}

// P20: a number is no time. With the unit said it is exact, and without it it is refused.
func TestNumbersAsTimes(t *testing.T) {
	w := newWorld(t)
	w.topic("in", 1)
	w.topic("out", 1)
	w.put("in", 0, values(`{"micros":63072000000000}`)...)
	w.finish("micros", `
		CREATE TABLE i (micros BIGINT, ts AS TO_TIMESTAMP_LTZ(micros / 1000, 3)) WITH ('connector' = 'kafka', 'topic' = 'in', 'format' = 'json', `+bounded+`);
		CREATE TABLE o (y BIGINT, ts TIMESTAMP_LTZ(3)) WITH ('connector' = 'kafka', 'topic' = 'out', 'format' = 'json');
		INSERT INTO o SELECT EXTRACT(YEAR FROM ts), ts FROM i;`)
	w.holds("out", `{"y":1972,"ts":"1972-01-01 00:00:00Z"}`)

	err := w.fails("guess", `
		CREATE TABLE i (micros TIMESTAMP_LTZ(3)) WITH ('connector' = 'kafka', 'topic' = 'in', 'format' = 'json', `+bounded+`);
		CREATE TABLE o (ts TIMESTAMP_LTZ(3)) WITH ('connector' = 'kafka', 'topic' = 'out', 'format' = 'json');
		INSERT INTO o SELECT micros FROM i;`)
	if err == nil || !strings.Contains(err.Error(), "micros") {
		t.Errorf("a number as a time: error %v, want one that names the column", err)
	}
}
