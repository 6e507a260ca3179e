package kafka_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/connector/kafka"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/sql"
)

func plan(text string) (*sql.App, error) {
	o := kafka.Options{Formats: format.RowFormats{"json": format.JSONRows(), "debezium-json": format.DebeziumRows()}}
	app, list := sql.Script("test.sql", text, sql.Options{Connectors: connector.Registry{"kafka": kafka.New(o), "upsert-kafka": kafka.NewUpsert(o)}})
	return app, list.Err()
}

func TestRefused(t *testing.T) {
	const (
		read   = "CREATE TABLE o (id INT, v STRING) WITH ('connector' = 'kafka', 'topic' = 'out', 'format' = 'json'); INSERT INTO o SELECT id, v FROM t;"
		write  = "INSERT INTO t VALUES (1, 'a');"
		update = "CREATE TABLE i (id INT, v STRING) WITH ('connector' = 'kafka', 'topic' = 'in', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset'); INSERT INTO t SELECT id, MAX(v) FROM i GROUP BY id;"
		kfk    = "'connector' = 'kafka', 'topic' = 'in', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset'"
		json   = "'connector' = 'kafka', 'topic' = 'in', 'format' = 'json'"
		up     = "'connector' = 'upsert-kafka', 'topic' = 'in', 'key.format' = 'json', 'value.format' = 'json'"
		key    = "id INT, v STRING, PRIMARY KEY (id) NOT ENFORCED"
	)
	for _, c := range []struct{ columns, options, use, want string }{
		{"", "'connector' = 'kafka', 'format' = 'json'", write, "option 'topic' is missing"},
		{"", "'connector' = 'kafka', 'topic' = 'in'", write, "option 'format' is missing"},
		{"", "'connector' = 'kafka', 'topic' = 'in', 'format' = 'jsn'", write, "did you mean 'json'?"},
		{"", kfk + ", 'scan.startup.mod' = 'x'", read, "did you mean 'scan.startup.mode'?"},
		{"", kfk + ", 'json.ignore-parse-error' = 'true'", read, "did you mean 'json.ignore-parse-errors'?"},
		{"", json + ", 'scan.startup.mode' = 'newest'", read, "must be one of earliest-offset"},
		{"", json, read, "does not say where to begin"},
		{"", json + ", 'scan.startup.mode' = 'timestamp'", read, "needs 'scan.startup.timestamp-millis'"},
		{"", kfk + ", 'scan.startup.timestamp-millis' = '5'", read, "needs 'scan.startup.mode' = 'timestamp'"},
		{"", json + ", 'scan.startup.mode' = 'specific-offsets', 'scan.startup.specific-offsets' = 'partition:0'", read, "partition:0,offset:42"},
		{"", kfk + ", 'scan.bounded.mode' = 'group-offsets'", read, "needs 'properties.group.id'"},
		{"", "'connector' = 'kafka', 'topic' = 'a;b', 'format' = 'json'", write, "can be read only"},
		{"", "'connector' = 'kafka', 'topic-pattern' = 'a.*', 'format' = 'json'", write, "can be read only"},
		{"", "'connector' = 'kafka', 'topic-pattern' = 'a.*', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset'", read, "not asked here"},
		{"", "'connector' = 'kafka', 'topic-pattern' = 'a(', 'format' = 'json'", write, "missing closing )"},
		{"", kfk + ", 'topic-pattern' = 'a'", read, "exclude each other"},
		{"", "'connector' = 'kafka', 'topic' = 'a b', 'format' = 'json'", write, "is no name of a topic"},
		{"", kfk + ", 'key.fields' = 'id'", read, "needs 'key.format'"},
		{"", kfk + ", 'key.format' = 'json'", read, "needs 'key.fields'"},
		{"", kfk + ", 'key.format' = 'json', 'key.fields' = 'nope'", read, "no physical column nope"},
		{"", kfk + ", 'key.format' = 'json', 'key.fields' = 'id', 'key.fields-prefix' = 'k_'", read, "needs 'value.fields-include'"},
		{"", kfk + ", 'key.format' = 'json', 'key.fields' = 'id', 'key.fields-prefix' = 'k_', 'value.fields-include' = 'EXCEPT_KEY'", read, "does not begin so"},
		{"", kfk + ", 'value.fields-include' = 'EXCEPT_KEY'", read, "needs 'key.fields'"},
		{"", kfk + ", 'partitioned-by' = 'key'", read, "needs 'key.fields'"},
		{"", json + ", 'sink.partitioner' = 'com.example.Mine'", write, "class of Java"},
		{"", json + ", 'properties.interceptor.classes' = 'com.example.Mine'", write, "class of Java"},
		{"", json + ", 'properties.bootstrap.server' = 'x:1'", write, "did you mean 'properties.bootstrap.servers'?"},
		{"", json + ", 'properties.ssl.truststore.location' = '/a.jks'", write, "convert it to PEM"},
		{"", json + ", 'properties.security.protocol' = 'SASL_SSL'", write, "needs 'properties.sasl.mechanism'"},
		{"", json + ", 'properties.security.protocol' = 'SASL_SSL', 'properties.sasl.mechanism' = 'GSSAPI'", write, "must be PLAIN"},
		{key, json, write, "cannot have a PRIMARY KEY"},
		{"", up, write, "needs a PRIMARY KEY"},
		{key, up + ", 'scan.startup.mode' = 'earliest-offset'", write, "option 'scan.startup.mode' is unknown"},
		{key, "'connector' = 'upsert-kafka', 'topic' = 'in', 'key.format' = 'json'", write, "'value.format' is missing"},
		{key, "'connector' = 'upsert-kafka', 'topic' = 'in', 'key.format' = 'json', 'value.format' = 'debezium-json'", write, "tells changes itself"},
		{"id INT, v STRING, o BIGINT METADATA FROM 'ofset' VIRTUAL", kfk, read, "did you mean 'offset'?"},
		{"id INT, v STRING, o INT METADATA FROM 'offset' VIRTUAL", kfk, read, "cannot be INT"},
		{"id INT, v BIGINT METADATA FROM 'offset'", json, "INSERT INTO t VALUES (1, 2);", "declare it VIRTUAL"},
		{"id INT, v STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS SOURCE_WATERMARK()", kfk, read, "a topic has none"},
		{"", json, update, "upsert-kafka"},
	} {
		columns := c.columns
		if columns == "" {
			columns = "id INT, v STRING"
		}
		_, err := plan("CREATE TABLE t (" + columns + ") WITH (" + c.options + "); " + c.use)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error\n  %v\nwant %q", c.options, err, c.want)
		}
	}
}

func TestSettings(t *testing.T) {
	const table = "CREATE TABLE %s (id INT) WITH ('connector' = 'kafka', 'topic' = 'in', 'format' = 'json', "
	app, err := plan(strings.ReplaceAll(table, "%s", "t") + `'properties.bootstrap.servers' = 'a:1, b:2', 'properties.security.protocol' = 'SASL_SSL', 'properties.sasl.mechanism' = 'SCRAM-SHA-512',
		'properties.sasl.jaas.config' = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="me" password="a\"b;''c";',
		'properties.ssl.truststore.location' = '/ca.pem', 'properties.ssl.truststore.type' = 'PEM', 'properties.compression.type' = 'zstd', 'properties.linger.ms' = '5', 'properties.group.id' = 'g');
		INSERT INTO t VALUES (1);`)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"brokers": "a:1,b:2", "security.tls.enabled": "true", "security.sasl.mechanism": "SCRAM-SHA-512", "security.sasl.username": "me",
		"security.sasl.password": `a"b;'c`, "security.tls.ca-file": "/ca.pem", "output.compression": "zstd"}
	if !maps.Equal(app.Settings, want) {
		t.Errorf("settings %v, want %v", app.Settings, want)
	}
	_, err = plan(strings.ReplaceAll(table, "%s", "t") + "'properties.bootstrap.servers' = 'a:1'); " + strings.ReplaceAll(table, "%s", "u") + "'properties.bootstrap.servers' = 'b:1'); INSERT INTO t VALUES (1); INSERT INTO u VALUES (2);")
	if err == nil || !strings.Contains(err.Error(), `tables t and u differ in brokers: "a:1" and "b:1"`) {
		t.Errorf("two clusters: error %v", err)
	}
}

// Every option has a text for the reference, and the defaults are values that they may have.
func TestSpec(t *testing.T) {
	for name, c := range map[string]connector.Connector{"kafka": kafka.New(kafka.Options{}), "upsert-kafka": kafka.NewUpsert(kafka.Options{})} {
		s := c.Spec()
		for _, o := range s.Options {
			if o.Doc == "" {
				t.Errorf("%s: option %s has no text", name, o.Name)
			}
			if o.Default == "" || strings.Contains(o.Name, "*") {
				continue
			}
			if _, err := format.ReadOptions("", map[string]string{o.Name: o.Default}, []format.Option{o}); err != nil {
				t.Errorf("%s: default of %s: %v", name, o.Name, err)
			}
		}
		if len(s.Metadata) != 7 || s.Doc == "" {
			t.Errorf("%s: spec %+v", name, s)
		}
	}
}

// TestPartitionedBy: operators by the key of topics that are declared so need no exchange; a join of two topics needs none if
// their keys are written in the same way.
func TestPartitionedBy(t *testing.T) {
	a := `CREATE TABLE a (id BIGINT, v STRING) WITH ('connector' = 'kafka', 'topic' = 'a', 'format' = 'json', 'key.fields' = 'id', 'partitioned-by' = 'key', 'scan.startup.mode' = 'earliest-offset', 'key.format' = %);`
	b := `CREATE TABLE b (id BIGINT, w STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'b', 'value.format' = 'json', 'key.format' = 'json'%);`
	out := `CREATE TABLE o (id BIGINT, v STRING, PRIMARY KEY (id, v) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'o', 'value.format' = 'json', 'key.format' = 'json');`
	join, group := "INSERT INTO o SELECT a.id, w FROM a JOIN b ON a.id = b.id;", "INSERT INTO o SELECT id, MAX(v) FROM a GROUP BY id;"
	declared := ", 'partitioned-by' = 'key'"
	for _, c := range []struct {
		key, upsert, query string
		exchanges          int
	}{
		{"'json'", declared, join, 0},
		{"'json', 'key.json.encode.ignore-null-fields' = 'true'", declared, join, 2},
		{"'json'", "", join, 2}, // of the upsert table by its key, which the join wants too, and of the other
		{"'json'", "", group, 0},
	} {
		app, err := plan(strings.ReplaceAll(a, "%", c.key) + strings.ReplaceAll(b, "%", c.upsert) + out + c.query)
		if err != nil {
			t.Fatal(err)
		}
		topology, err := app.Topology.Plan()
		must(t, err)
		n := 0
		for _, sub := range topology.Subs {
			for _, in := range sub.Inputs {
				if in.Internal {
					n++
				}
			}
		}
		if n != c.exchanges {
			t.Errorf("keys as %s, upsert table%s: %d exchanges, want %d for %s", c.key, c.upsert, n, c.exchanges, c.query)
		}
	}
}
