package kafka_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/connector/kafka"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/internal/engine"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/sql"
	"github.com/millrace-stream/millrace/statestore/memstore"
	"github.com/millrace-stream/millrace/txn"
)

const patience = 60 * time.Second // how long a failing test waits

// world is an embedded broker.
type world struct {
	t    *testing.T
	fake *kfake.Cluster
	cl   *kgo.Client
	adm  *kadm.Client
}

func newWorld(t *testing.T) *world {
	t.Helper()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(time.Second))
	must(t, err)
	t.Cleanup(fake.Close)
	cl, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableClientMetrics(), kgo.MetadataMinAge(100*time.Millisecond))
	must(t, err)
	t.Cleanup(cl.Close)
	return &world{t, fake, cl, kadm.NewClient(cl)}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) topic(name string, partitions int) {
	w.t.Helper()
	res, err := w.adm.CreateTopics(w.t.Context(), int32(partitions), -1, nil, name)
	must(w.t, err)
	must(w.t, res.Error())
}

// put writes records to a partition of a topic.
func (w *world) put(topic string, partition int32, recs ...*kgo.Record) {
	w.t.Helper()
	for _, r := range recs {
		r.Topic, r.Partition = topic, partition
	}
	must(w.t, w.cl.ProduceSync(w.t.Context(), recs...).FirstErr())
}

// values are records without a key.
func values(vs ...string) []*kgo.Record {
	var recs []*kgo.Record
	for _, v := range vs {
		recs = append(recs, &kgo.Record{Value: []byte(v)})
	}
	return recs
}

// get reads what is committed to a topic, by partition and offset.
func (w *world) get(topic string) []*kgo.Record {
	w.t.Helper()
	ends, err := w.adm.ListCommittedOffsets(w.t.Context(), topic)
	must(w.t, err)
	must(w.t, ends.Error())
	from, left := map[int32]kgo.Offset{}, map[int32]int64{}
	for _, e := range ends[topic] {
		if e.Offset > 0 {
			from[e.Partition], left[e.Partition] = kgo.NewOffset().At(0), e.Offset
		}
	}
	if len(from) == 0 {
		return nil
	}
	rd, err := kgo.NewClient(append(w.cl.Opts(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())...)
	must(w.t, err)
	defer rd.Close()
	var recs []*kgo.Record
	for len(left) > 0 {
		fs := rd.PollFetches(w.t.Context())
		must(w.t, fs.Err())
		fs.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() && r.Offset < ends[topic][r.Partition].Offset {
				recs = append(recs, r)
			}
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	slices.SortFunc(recs, func(a, b *kgo.Record) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	return recs
}

// texts are the values of a topic, sorted; null is a tombstone.
func (w *world) texts(topic string) []string {
	w.t.Helper()
	var all []string
	for _, r := range w.get(topic) {
		all = append(all, text(r.Value))
	}
	slices.Sort(all)
	return all
}

func text(b []byte) string {
	if b == nil {
		return "null"
	}
	return string(b)
}

// Topics is of connector.Cluster.
func (w *world) Topics(settings map[string]string) (map[string]int, error) {
	if settings["brokers"] != w.brokers() {
		return nil, fmt.Errorf("asked at %q", settings["brokers"])
	}
	ds, err := w.adm.ListTopics(w.t.Context())
	all := map[string]int{}
	for _, d := range ds {
		all[d.Topic] = len(d.Partitions)
	}
	return all, err
}

func (w *world) brokers() string { return strings.Join(w.fake.ListenAddrs(), ",") }

func (w *world) script(text string) (*sql.App, error) {
	o := kafka.Options{Formats: format.RowFormats{"json": format.JSONRows(), "debezium-json": format.DebeziumRows(), "raw": format.RawRows()}, Cluster: w}
	app, list := sql.Script("test.sql", text, sql.Options{Connectors: connector.Registry{"kafka": kafka.New(o), "upsert-kafka": kafka.NewUpsert(o)}})
	return app, list.Err()
}

// member is a running app.
type member struct {
	t    *testing.T
	stop context.CancelFunc
	done chan error
}

// start runs a script. Its options are those of WITH for all tables, but the connector.
func (w *world) start(app, text string) *member {
	w.t.Helper()
	a, err := w.script(text)
	must(w.t, err)
	plan, err := a.Topology.Plan()
	must(w.t, err)
	e := engine.New(engine.Options{Plan: plan, Dir: memstore.NewDir(app), LeaveOnStop: true, MaxAttempts: 2, BackoffMin: time.Millisecond, BackoffMax: 5 * time.Millisecond, CommitMaxLatency: 20 * time.Millisecond, CommitQuiet: 5 * time.Millisecond,
		Kafka: txn.Options{AppID: app, Brokers: w.fake.ListenAddrs(), InstanceID: app + "-0", HeartbeatInterval: 300 * time.Millisecond}})
	ctx, cancel := context.WithCancel(w.t.Context())
	m := &member{w.t, cancel, make(chan error, 1)}
	go func() { m.done <- e.Run(ctx) }()
	w.t.Cleanup(func() { cancel(); _ = m.wait() })
	return m
}

// wait waits until it has ended.
func (m *member) wait() error {
	select {
	case err := <-m.done:
		m.done <- err
		return err
	case <-time.After(patience):
		m.stop()
		return fmt.Errorf("the app has not ended after %s", patience)
	}
}

// finish runs a script until it ends by itself.
func (w *world) finish(app, text string) {
	w.t.Helper()
	must(w.t, w.start(app, text).wait())
}

// await waits until a topic holds what it should.
func (w *world) await(topic string, want ...string) {
	w.t.Helper()
	testutil.Eventually(w.t, patience, func() error {
		if got := w.texts(topic); !slices.Equal(got, want) {
			return fmt.Errorf("topic %s holds\n%s\nwant\n%s", topic, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		return nil
	})
}

func (w *world) holds(topic string, want ...string) {
	w.t.Helper()
	if got := w.texts(topic); !slices.Equal(got, want) {
		w.t.Fatalf("topic %s holds\n%s\nwant\n%s", topic, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// VALUES are written once, whatever is started again, and a script without other inputs ends by itself.
func TestValuesEnd(t *testing.T) {
	w := newWorld(t)
	w.topic("out", 2)
	script := `CREATE TABLE t (id INT, name STRING) WITH ('connector' = 'kafka', 'topic' = 'out', 'format' = 'json');
		INSERT INTO t VALUES (1, 'a'), (2, NULL);`
	w.finish("values", script)
	want := []string{`{"id":1,"name":"a"}`, `{"id":2,"name":null}`}
	w.holds("out", want...)
	w.finish("values", script)
	w.holds("out", want...)
}

// A source that ends fires the windows that are open, through a repartition topic.
func TestBoundedWindow(t *testing.T) {
	w := newWorld(t)
	w.topic("in", 3)
	w.topic("out", 2)
	for i := range 30 {
		w.put("in", int32(i%2), values(fmt.Sprintf(`{"k":"k%d","ts":"2024-01-01 00:00:%02d"}`, i%4, i))...) // partition 2 stays empty
	}
	w.finish("windows", `
		CREATE TABLE s (k STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
			WITH ('connector' = 'kafka', 'topic' = 'in', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset');
		CREATE TABLE t (k STRING, n BIGINT) WITH ('connector' = 'kafka', 'topic' = 'out', 'format' = 'json');
		INSERT INTO t SELECT k, COUNT(*) FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY k, window_start, window_end;`)
	w.holds("out", `{"k":"k0","n":8}`, `{"k":"k1","n":8}`, `{"k":"k2","n":7}`, `{"k":"k3","n":7}`)
}

// sink is a table out(v STRING), and source one in(v STRING) with more options.
const sink = "CREATE TABLE o (v STRING) WITH ('connector' = 'kafka', 'topic' = 'out', 'format' = 'json');\n"

func source(options string) string {
	return "CREATE TABLE i (v STRING) WITH ('connector' = 'kafka', 'topic' = 'in', 'format' = 'json', " + options + ");\n"
}

func vs(numbers ...int) (texts []string) {
	for _, n := range numbers {
		texts = append(texts, fmt.Sprintf(`{"v":"%02d"}`, n))
	}
	return texts
}

// from01 writes the values n to the partition, with timestamps of n seconds.
func (w *world) numbers(topic string, partition int32, numbers ...int) {
	w.t.Helper()
	for i, v := range vs(numbers...) {
		w.put(topic, partition, &kgo.Record{Value: []byte(v), Timestamp: time.UnixMilli(int64(numbers[i]) * 1000)})
	}
}

func TestStartAndEnd(t *testing.T) {
	const end = "'scan.bounded.mode' = 'latest-offset'"
	for _, c := range []struct {
		name, options string
		want          []int
	}{
		{"earliest", "'scan.startup.mode' = 'earliest-offset', " + end, []int{0, 1, 2, 3, 10, 11, 12}},
		{"timestamp", "'scan.startup.mode' = 'timestamp', 'scan.startup.timestamp-millis' = '2000', " + end, []int{2, 3, 10, 11, 12}},
		{"offsets", "'scan.startup.mode' = 'specific-offsets', 'scan.startup.specific-offsets' = 'partition:0,offset:3', " + end, []int{3, 10, 11, 12}},
		{"group", "'properties.group.id' = 'other', 'properties.auto.offset.reset' = 'earliest', " + end, []int{1, 2, 3, 10, 11, 12}},
		{"group-own", "'properties.group.id' = 'app-group-own', 'properties.auto.offset.reset' = 'latest', " + end, []int{2, 3}},
		{"latest", "'scan.startup.mode' = 'latest-offset', " + end, nil},
		{"until-timestamp", "'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'timestamp', 'scan.bounded.timestamp-millis' = '11000'", []int{0, 1, 2, 3, 10}},
		{"until-offsets", "'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'specific-offsets', 'scan.bounded.specific-offsets' = 'partition:1,offset:2'", []int{10, 11}},
		{"until-group", "'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'group-offsets', 'properties.group.id' = 'other'", []int{0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.topic("in", 2)
			w.topic("out", 1)
			w.numbers("in", 0, 0, 1, 2, 3)
			w.numbers("in", 1, 10, 11, 12)
			w.commit("other", "in", 0, 1)
			w.commit("app-group-own", "in", 0, 2)
			script := sink + source(c.options) + "INSERT INTO o SELECT v FROM i;"
			w.finish("app-"+c.name, script)
			w.holds("out", vs(c.want...)...)
			// What comes later changes nothing: where it ends was decided.
			w.numbers("in", 0, 4)
			w.finish("app-"+c.name, script)
			w.holds("out", vs(c.want...)...)
		})
	}
}

// commit makes a group have an offset.
func (w *world) commit(group, topic string, partition int32, at int64) {
	w.t.Helper()
	o := kadm.Offsets{}
	o.AddOffset(topic, partition, at, -1)
	res, err := w.adm.CommitOffsets(w.t.Context(), group, o)
	must(w.t, err)
	must(w.t, res.Error())
}

func TestStartWithoutOffset(t *testing.T) {
	w := newWorld(t)
	w.topic("in", 1)
	w.topic("out", 1)
	err := w.start("lost", sink+source("'properties.group.id' = 'nobody'")+"INSERT INTO o SELECT v FROM i;").wait()
	if err == nil || !strings.Contains(err.Error(), "group nobody has committed no offset of in/0") {
		t.Errorf("error %v, want one that names the group", err)
	}
}

// A restart in the middle reads on, and ends where the first start would have ended.
func TestRestartInTheMiddle(t *testing.T) {
	w := newWorld(t)
	w.topic("in", 2)
	w.topic("out", 2)
	script := sink + source("'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'specific-offsets', 'scan.bounded.specific-offsets' = 'partition:0,offset:4;partition:1,offset:1'") + "INSERT INTO o SELECT v FROM i;"
	w.numbers("in", 0, 0, 1)
	m := w.start("middle", script)
	w.await("out", vs(0, 1)...)
	m.stop()
	must(t, m.wait())
	w.numbers("in", 0, 2, 3, 4)
	w.numbers("in", 1, 10, 11)
	w.finish("middle", script)
	w.holds("out", vs(0, 1, 2, 3, 10)...)
}

func TestMetadata(t *testing.T) {
	w := newWorld(t)
	w.topic("in", 2)
	w.topic("out", 1)
	w.topic("told", 1)
	w.put("in", 1, &kgo.Record{Value: []byte(`{"v":"a"}`), Timestamp: time.UnixMilli(1_704_067_200_123), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("x")}, {Key: "n"}}},
		&kgo.Record{Value: []byte(`{"v":"b"}`), Timestamp: time.UnixMilli(1_704_067_200_124)})
	w.finish("metadata", `SET 'table.local-time-zone' = 'Europe/Berlin';
		CREATE TABLE i (v STRING, t STRING METADATA FROM 'topic' VIRTUAL, p INT METADATA FROM 'partition' VIRTUAL, `+"`offset`"+` BIGINT METADATA VIRTUAL,
			ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', loc TIMESTAMP(3) METADATA FROM 'timestamp' VIRTUAL, kind STRING METADATA FROM 'timestamp-type' VIRTUAL,
			h MAP<STRING, BYTES> METADATA FROM 'headers', e INT METADATA FROM 'leader-epoch' VIRTUAL)
			WITH ('connector' = 'kafka', 'topic' = 'in', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset');
		CREATE TABLE o (v STRING, ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', h MAP<STRING, BYTES> METADATA FROM 'headers') WITH ('connector' = 'kafka', 'topic' = 'out', 'format' = 'json');
		CREATE TABLE told (v STRING, t STRING, p INT, o BIGINT, loc TIMESTAMP(3), kind STRING, n INT, e BOOLEAN) WITH ('connector' = 'kafka', 'topic' = 'told', 'format' = 'json');
		INSERT INTO o SELECT v, ts, h FROM i;
		INSERT INTO told SELECT v, t, p, `+"`offset`"+`, loc, kind, CARDINALITY(h), e >= 0 FROM i;`)
	w.holds("told", `{"v":"a","t":"in","p":1,"o":0,"loc":"2024-01-01 01:00:00.123","kind":"CreateTime","n":2,"e":true}`,
		`{"v":"b","t":"in","p":1,"o":1,"loc":"2024-01-01 01:00:00.124","kind":"CreateTime","n":0,"e":true}`)
	got := w.get("out")
	if len(got) != 2 || text(got[0].Value) != `{"v":"a"}` {
		t.Fatalf("out has %d records", len(got))
	}
	a, b := got[0], got[1]
	if a.Timestamp.UnixMilli() != 1_704_067_200_123 || len(a.Headers) != 2 || a.Headers[0].Key != "h" || string(a.Headers[0].Value) != "x" || a.Headers[1].Key != "n" || a.Headers[1].Value != nil {
		t.Errorf("timestamp %v, headers %v", a.Timestamp, a.Headers)
	}
	if b.Timestamp.UnixMilli() != 1_704_067_200_124 || len(b.Headers) != 0 {
		t.Errorf("timestamp %v, headers %v", b.Timestamp, b.Headers)
	}
}

// Keys are written beside values, to the partitions that Kafka's default partitioner means, and read back.
func TestKeys(t *testing.T) {
	w := newWorld(t)
	w.topic("keyed", 7)
	w.topic("out", 1)
	table := `CREATE TABLE k (k_id INT, k_name STRING, name STRING) WITH ('connector' = 'kafka', 'topic' = 'keyed', 'key.format' = 'json', 'key.fields' = 'k_id;k_name',
		'key.fields-prefix' = 'k_', 'value.format' = 'json', 'value.fields-include' = 'EXCEPT_KEY', 'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'specific-offsets',
		'scan.bounded.specific-offsets' = '%s');`
	w.finish("keys-write", fmt.Sprintf(table, "partition:0,offset:0")+`INSERT INTO k VALUES (1, 'a', 'x'), (2, 'b', 'y'), (3, 'c', NULL), (4, NULL, 'z');`)
	murmur := kgo.StickyKeyPartitioner(nil).ForTopic("keyed")
	var bounds []string
	for _, r := range w.get("keyed") {
		if want := murmur.Partition(r, 7); int(r.Partition) != want {
			t.Errorf("key %s is on partition %d, want %d", r.Key, r.Partition, want)
		}
		bounds = append(bounds, fmt.Sprintf("partition:%d,offset:%d", r.Partition, r.Offset+1))
	}
	w.put("keyed", 0, &kgo.Record{Value: []byte(`{"name":"no key"}`)})
	ends, err := w.adm.ListEndOffsets(t.Context(), "keyed")
	must(t, err)
	bounds = bounds[:0]
	ends.Each(func(o kadm.ListedOffset) {
		bounds = append(bounds, fmt.Sprintf("partition:%d,offset:%d", o.Partition, o.Offset))
	})
	w.finish("keys-read", fmt.Sprintf(table, strings.Join(bounds, ";"))+`CREATE TABLE o (id INT, k STRING, v STRING) WITH ('connector' = 'kafka', 'topic' = 'out', 'format' = 'json');
		INSERT INTO o SELECT k_id, k_name, name FROM k;`)
	w.holds("out", `{"id":1,"k":"a","v":"x"}`, `{"id":2,"k":"b","v":"y"}`, `{"id":3,"k":"c","v":null}`, `{"id":4,"k":null,"v":"z"}`, `{"id":null,"k":null,"v":"no key"}`)
	for _, r := range w.get("keyed")[:1] {
		if !strings.HasPrefix(text(r.Key), `{"id":`) || strings.Contains(text(r.Value), "id") {
			t.Errorf("key %s, value %s: the prefix must be gone, and the key not in the value", r.Key, r.Value)
		}
	}
}

// table is what a reader of a compacted topic has.
func (w *world) table(topic string) []string {
	w.t.Helper()
	rows := map[string]string{}
	for _, r := range w.get(topic) {
		if r.Value == nil {
			delete(rows, string(r.Key))
		} else {
			rows[string(r.Key)] = string(r.Value)
		}
	}
	var all []string
	for _, v := range rows {
		all = append(all, v)
	}
	slices.Sort(all)
	return all
}

// Tombstones are read as deletions and written as such.
func TestUpsert(t *testing.T) {
	w := newWorld(t)
	w.topic("in", 2)
	w.topic("out", 2)
	upsert := func(partition int32, key, value string) {
		r := &kgo.Record{Key: []byte(key)}
		if value != "" {
			r.Value = []byte(value)
		}
		w.put("in", partition, r)
	}
	upsert(0, `{"id":1}`, `{"id":1,"city":"Rome","n":9007199254740993}`)
	upsert(0, `{"id":2}`, `{"id":2,"city":"Rome","n":1}`)
	upsert(1, `{"id":3}`, `{"id":3,"city":"Oslo","n":5}`)
	upsert(0, `{"id":2}`, `{"id":2,"city":"Oslo","n":2}`)
	upsert(1, `{"id":3}`, "")
	upsert(1, `{"id":4}`, "") // of a row that never was
	w.finish("upsert", `
		CREATE TABLE i (id INT, city STRING, n BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'in', 'key.format' = 'json', 'value.format' = 'json', 'scan.bounded.mode' = 'latest-offset');
		CREATE TABLE o (city STRING, n BIGINT, total BIGINT, PRIMARY KEY (city) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'out', 'key.format' = 'json', 'value.format' = 'json', 'value.fields-include' = 'EXCEPT_KEY');
		INSERT INTO o SELECT city, COUNT(*), SUM(n) FROM i GROUP BY city HAVING SUM(n) <> 5;`)
	if got, want := w.table("out"), []string{`{"n":1,"total":2}`, `{"n":1,"total":9007199254740993}`}; !slices.Equal(got, want) {
		t.Errorf("the table is %v, want %v", got, want)
	}
	for _, r := range w.get("out") {
		if !strings.HasPrefix(text(r.Key), `{"city":"`) {
			t.Errorf("key %s", r.Key)
		}
	}
}

// What leaves a query for good, and only that, ends as a tombstone, in whatever order changes come.
func TestUpsertNeverLosesALiveKey(t *testing.T) {
	w := newWorld(t)
	w.topic("a", 3)
	w.topic("b", 3)
	w.topic("out", 3)
	for i := range 40 { // id moves between groups, and between the tables
		topic := []string{"a", "b"}[i%2]
		w.put(topic, int32(i%3), &kgo.Record{Key: fmt.Appendf(nil, `{"id":%d}`, i%7), Value: fmt.Appendf(nil, `{"id":%d,"g":"g%d"}`, i%7, i%5)})
	}
	ddl := func(name string) string {
		return fmt.Sprintf("CREATE TABLE %s (id INT, g STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = '%[1]s', 'key.format' = 'json', 'value.format' = 'json', 'scan.bounded.mode' = 'latest-offset');\n", name)
	}
	w.finish("live", ddl("a")+ddl("b")+`CREATE TABLE o (g STRING, n BIGINT, PRIMARY KEY (g) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'out', 'key.format' = 'json', 'value.format' = 'json');
		INSERT INTO o SELECT g, COUNT(*) FROM (SELECT * FROM a UNION ALL SELECT * FROM b) GROUP BY g;`)
	total := 0
	for _, row := range w.table("out") {
		var g string
		var n int
		if _, err := fmt.Sscanf(strings.NewReplacer(`{"g":"`, "", `","n":`, " ", "}", "").Replace(row), "%s %d", &g, &n); err != nil {
			t.Fatal(err)
		}
		total += n
	}
	if total != 14 { // 7 ids in each table
		t.Errorf("the groups count %d rows, want 14: %v", total, w.table("out"))
	}
}

// Two tables read one topic, each with its own columns, time and policy; a third reads what the script writes.
func TestTablesOnOneTopic(t *testing.T) {
	w := newWorld(t)
	w.topic("in", 1) // of two, both quiet, the first to be idle decides whether the watermark goes on
	w.topic("mid", 1)
	w.topic("out", 1)
	w.put("in", 0, values(`{"id":1,"a":"2024-01-01 00:00:01","b":"2024-01-01 10:00:00"}`, `{"id":2,"a":"2024-01-01 00:01:02","b":"broken"}`, `{"id":3,"a":"2024-01-01 00:02:05","b":"2024-01-01 10:00:30"}`)...)
	const from = "'connector' = 'kafka', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset'"
	script := `
		CREATE TABLE a (id INT, a TIMESTAMP(3), WATERMARK FOR a AS a) WITH (` + from + `, 'topic' = 'in', 'scan.watermark.idle-timeout' = '100 ms');
		CREATE TABLE b (id INT, b TIMESTAMP(3), WATERMARK FOR b AS b - INTERVAL '1' MINUTE) WITH (` + from + `, 'topic' = 'in', 'on-error' = 'skip', 'scan.watermark.idle-timeout' = '100 ms');
		CREATE TABLE mid (what STRING, n BIGINT) WITH (` + from + `, 'topic' = 'mid');
		CREATE TABLE o (what STRING) WITH ('connector' = 'kafka', 'format' = 'json', 'topic' = 'out');
		INSERT INTO mid SELECT 'a', SUM(id) FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(a), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end;
		INSERT INTO mid SELECT 'b', CAST(id AS BIGINT) FROM b;
		INSERT INTO o SELECT what || CAST(n AS STRING) FROM mid;`
	m := w.start("twice", script)
	w.await("out", `{"what":"a1"}`, `{"what":"a2"}`, `{"what":"b1"}`, `{"what":"b3"}`)
	m.stop()
	must(t, m.wait())
	// Each table has its own watermark after a restart too: for a the first record is late, for b none is.
	w.put("in", 0, values(`{"id":4,"a":"2024-01-01 00:01:59","b":"2024-01-01 10:00:01"}`, `{"id":5,"a":"2024-01-01 00:03:00","b":"2024-01-01 10:00:00"}`)...)
	m = w.start("twice", script)
	w.await("out", `{"what":"a1"}`, `{"what":"a2"}`, `{"what":"a3"}`, `{"what":"b1"}`, `{"what":"b3"}`, `{"what":"b4"}`, `{"what":"b5"}`)
	m.stop()
	must(t, m.wait())
}

func TestTopicsByPatternAndList(t *testing.T) {
	w := newWorld(t)
	for _, topic := range []string{"eu-1", "eu-2", "us-1", "out"} {
		w.topic(topic, 1)
	}
	w.numbers("eu-1", 0, 1)
	w.numbers("eu-2", 0, 2)
	w.numbers("us-1", 0, 3)
	from := "CREATE TABLE i (v STRING, t STRING METADATA FROM 'topic') WITH ('connector' = 'kafka', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset', 'properties.bootstrap.servers' = '" + w.brokers() + "', %s);\n"
	w.finish("pattern", sink+fmt.Sprintf(from, "'topic-pattern' = 'eu-.'")+"INSERT INTO o SELECT t || v FROM i;")
	w.holds("out", `{"v":"eu-101"}`, `{"v":"eu-202"}`)
	w.finish("list", sink+fmt.Sprintf(from, "'topic' = 'us-1; eu-2'")+"INSERT INTO o SELECT t || v FROM i;")
	w.holds("out", `{"v":"eu-101"}`, `{"v":"eu-202"}`, `{"v":"eu-202"}`, `{"v":"us-103"}`)
}

func TestBadRecords(t *testing.T) {
	for _, c := range []struct {
		policy, fails string
		dead          []string
	}{
		{"fail", "topic in partition 0 offset 1", nil},
		{"skip", "", nil},
		{"dead-letter", "", []string{`{"v":`}},
	} {
		t.Run(c.policy, func(t *testing.T) {
			w := newWorld(t)
			w.topic("in", 1)
			w.topic("out", 1)
			w.put("in", 0, values(`{"v":"01"}`, `{"v":`, `{"v":"02"}`)...)
			w.put("in", 0, &kgo.Record{Key: []byte("k")}) // null is no row, and no bad one
			app := "bad-" + c.policy
			err := w.start(app, sink+source("'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset', 'on-error' = '"+c.policy+"'")+"INSERT INTO o SELECT v FROM i;").wait()
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Fatalf("error %v, want one of %s", err, c.fails)
				}
				return
			}
			must(t, err)
			w.holds("out", vs(1, 2)...)
			if c.dead != nil {
				w.holds(app+"-dead-letter", c.dead...)
			}
		})
	}
}

// A key that is null cannot be a PRIMARY KEY.
func TestUpsertNullKey(t *testing.T) {
	w := newWorld(t)
	w.topic("in", 1)
	w.topic("out", 1)
	w.put("in", 0, &kgo.Record{Value: []byte(`{"id":1}`)}, &kgo.Record{}, &kgo.Record{Key: []byte(`{"id":null}`)}, &kgo.Record{Key: []byte(`{"id":5}`), Value: []byte(`{"id":5}`)})
	w.finish("null-key", `
		CREATE TABLE i (id INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'in', 'key.format' = 'json', 'value.format' = 'json', 'scan.bounded.mode' = 'latest-offset', 'on-error' = 'dead-letter');
		CREATE TABLE o (id INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'out', 'key.format' = 'json', 'value.format' = 'json');
		INSERT INTO o SELECT id FROM i;`)
	if got := w.table("out"); !slices.Equal(got, []string{`{"id":5}`}) {
		t.Errorf("the table is %v", got)
	}
	w.holds("null-key-dead-letter", "null", "null", `{"id":1}`)
}

// A format that tells changes reads and writes them.
func TestChangelog(t *testing.T) {
	w := newWorld(t)
	w.topic("in", 1)
	w.topic("out", 1)
	w.put("in", 0, values(`{"before":null,"after":{"id":1,"n":10},"op":"c"}`, `{"before":{"id":1,"n":10},"after":{"id":1,"n":11},"op":"u"}`,
		`{"before":null,"after":{"id":2,"n":5},"op":"c"}`, `{"before":{"id":2,"n":5},"after":null,"op":"d"}`)...)
	w.put("in", 0, &kgo.Record{Key: []byte("2")}) // a tombstone behind a deletion
	w.finish("changes", `
		CREATE TABLE i (id INT, n INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'kafka', 'topic' = 'in', 'format' = 'debezium-json', 'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset');
		CREATE TABLE o (c BIGINT, n INT) WITH ('connector' = 'kafka', 'topic' = 'out', 'format' = 'debezium-json');
		INSERT INTO o SELECT COUNT(*), SUM(n) FROM i;`)
	rows := map[string]int{}
	for _, r := range w.get("out") {
		v := text(r.Value)
		before, after, _ := strings.Cut(strings.TrimPrefix(v, `{"before":`), `,"after":`)
		after, _, _ = strings.Cut(after, `,"op"`)
		if before != "null" {
			rows[before]--
		}
		if after != "null" {
			rows[after]++
		}
	}
	for k, n := range rows {
		if n != 0 && (n != 1 || k != `{"c":1,"n":11}`) {
			t.Errorf("%d of row %s are left", n, k)
		}
	}
	if rows[`{"c":1,"n":11}`] != 1 {
		t.Errorf("rows %v", rows)
	}
}

// The format raw has null messages in both directions.
func TestRawNull(t *testing.T) {
	w := newWorld(t)
	w.topic("in", 1)
	w.topic("out", 1)
	w.put("in", 0, &kgo.Record{Key: []byte("k"), Value: []byte("v")}, &kgo.Record{Key: []byte("k")}, &kgo.Record{Value: []byte("")})
	table := "CREATE TABLE %s (k STRING, v STRING) WITH ('connector' = 'kafka', 'topic' = '%s', 'key.format' = 'raw', 'key.fields' = 'k', 'value.format' = 'raw', 'value.fields-include' = 'EXCEPT_KEY', 'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset');\n"
	w.finish("raw", fmt.Sprintf(table, "i", "in")+fmt.Sprintf(table, "o", "out")+"INSERT INTO o SELECT k, v FROM i;")
	var got []string
	for _, r := range w.get("out") {
		got = append(got, text(r.Key)+"="+text(r.Value))
	}
	if want := []string{"k=v", "k=null", "null="}; !slices.Equal(got, want) {
		t.Errorf("records %v, want %v", got, want)
	}
}

// A row that its format writes as null is no deletion.
func TestUpsertRawNull(t *testing.T) {
	w := newWorld(t)
	w.topic("out", 1)
	err := w.start("raw-upsert", "CREATE TABLE o (k STRING, v STRING, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'out', 'key.format' = 'raw', 'value.format' = 'raw', 'value.fields-include' = 'EXCEPT_KEY'); INSERT INTO o VALUES ('a', 'x'), ('a', CAST(NULL AS STRING));").wait()
	if err == nil || !strings.Contains(err.Error(), "deletes the row of its key") {
		t.Errorf("error %v", err)
	}
}

// Where a table ends is found once: what comes after that is not read by a later start that gets there.
func TestEndIsKept(t *testing.T) {
	w := newWorld(t)
	w.topic("in", 1)
	w.topic("out", 1)
	script := func(policy string) string {
		return sink + source("'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset', 'on-error' = '"+policy+"'") + "INSERT INTO o SELECT v FROM i;"
	}
	w.put("in", 0, values(`{"v":"01"}`, `bad`, `{"v":"02"}`)...)
	if err := w.start("kept", script("fail")).wait(); err == nil {
		t.Fatal("it did not fail")
	}
	w.numbers("in", 0, 3)
	w.finish("kept", script("skip"))
	w.holds("out", vs(1, 2)...)
}
