package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bufbuild/protocompile"
	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	wire "github.com/millrace-stream/millrace/format/registry"
	"github.com/millrace-stream/millrace/internal/testutil"
	"github.com/millrace-stream/millrace/test/kafka"
	"github.com/millrace-stream/millrace/test/registry"
)

// registryFormat is a format with a schema registry, and a chain of topics in it.
type registryFormat struct {
	name, key string
	a, b      string // first written from rows of JSON, then copied
	// options are those of the second version of the table.
	options string
	// reason is how an error about another type of column n names it.
	reason string
	// checked is how check does: this registry gives it no reasons.
	checked string
}

// TestRegistryFormats writes from table to table in each format that has a schema registry, on a real broker and a real
// registry, with keys in the format too. A column is added while the copy runs; what cannot go with the subject is refused by
// name. An own consumer reads by the schemas of the registry.
func TestRegistryFormats(t *testing.T) {
	t.Parallel()
	b, server := kafka.Shared(t), registry.Start(t)
	cl, err := sr.NewClient(sr.URLs(server.URL()))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	proto2 := filepath.Join(dir, "second.proto")
	writeFile(t, proto2, "syntax = \"proto3\";\nimport \"google/protobuf/timestamp.proto\";\nmessage Record {\n  message homeType { optional string city = 1; optional int32 zip = 2; }\n"+
		"  int64 id = 1; optional int64 n = 2; optional google.protobuf.Timestamp ts = 3; repeated string tags = 4; optional homeType home = 5; optional string note = 6;\n}\n")
	formats := []*registryFormat{
		{name: "avro-confluent", key: "avro-confluent", reason: "(field n)", checked: "n"},
		{name: "debezium-avro-confluent", key: "avro-confluent", reason: "(field after)", checked: "after"},
		{name: "protobuf-confluent", key: "protobuf-confluent", options: ", 'value.protobuf-confluent.schema-file' = '" + proto2 + "'", reason: "field n is int64", checked: "field n is int64"},
		{name: "json-confluent", key: "json-confluent", reason: "/properties/n", checked: "/properties/n"},
	}
	in := b.CreateTopic(t, 2, nil)
	const first = "id BIGINT NOT NULL, n BIGINT, ts TIMESTAMP_LTZ(3), tags ARRAY<STRING NOT NULL>, home ROW<city STRING, zip INT>"
	const second = first + ", note STRING"
	table := func(f *registryFormat, name, topic, columns, options string) string {
		return fmt.Sprintf("CREATE TABLE `%s` (%s) WITH ('connector' = 'kafka', 'topic' = '%s', 'scan.startup.mode' = 'earliest-offset', 'value.format' = '%s', 'value.%[4]s.url' = '%[5]s', 'key.format' = '%[6]s', 'key.%[6]s.url' = '%[5]s', 'key.fields' = 'id'%[7]s);\n",
			name, columns, topic, f.name, server.URL(), f.key, options)
	}
	plain := func(name, topic, columns string) string {
		return fmt.Sprintf("CREATE TABLE `%s` (%s) WITH ('connector' = 'kafka', 'topic' = '%s', 'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset', 'format' = 'json');\n", name, columns, topic)
	}
	bin := kafka.Build(t, "github.com/millrace-stream/millrace/cmd/millrace")
	start := func(text string) *kafka.Proc {
		file := filepath.Join(t.TempDir(), "pipeline.sql")
		writeFile(t, file, text)
		return kafka.Run(t, bin, []string{"run", file}, "MILLRACE_APP_ID="+kafka.RandomName("registry"), "MILLRACE_BROKERS="+strings.Join(b.Brokers(), ","),
			"MILLRACE_STATE_DIR="+t.TempDir(), "MILLRACE_LISTEN=off", "MILLRACE_ERRORS_DECODE=fail")
	}
	run := func(text string, want int) string {
		t.Helper()
		p := start(text)
		if code := p.Wait(t, patience); code != want {
			t.Fatalf("it ends with %d, want %d:\n%s\n%s", code, want, text, p.Output())
		}
		return p.Output()
	}

	// The first version of the tables, which others read and copy.
	var write strings.Builder
	write.WriteString(plain("src", in, first))
	for _, f := range formats {
		f.a, f.b = b.CreateTopic(t, 2, nil), b.CreateTopic(t, 2, nil)
		for _, topic := range []string{f.a, f.b} {
			server.SetLevel(t, topic+"-value", "BACKWARD")
		}
		write.WriteString(table(f, f.name, f.a, first, "") + "INSERT INTO `" + f.name + "` SELECT * FROM src;\n")
	}
	b.Produce(t, &kgo.Record{Topic: in, Value: []byte(`{"id":1,"n":9007199254740993,"ts":"2024-05-01 12:00:00.123Z","tags":["a","b"],"home":{"city":"Ulm","zip":89073}}`)},
		&kgo.Record{Topic: in, Value: []byte(`{"id":2}`)})
	run(write.String(), 0)

	var copies strings.Builder
	for _, f := range formats {
		copies.WriteString(table(f, f.name, f.a, second, f.options) + table(f, f.name+" copy", f.b, second, f.options) +
			fmt.Sprintf("INSERT INTO `%s copy` SELECT * FROM `%[1]s`;\n", f.name))
	}
	p := start(copies.String())
	want := map[int64]string{
		1: `{"home":{"city":"Ulm","zip":89073},"id":1,"n":9007199254740993,"tags":["a","b"],"ts":1714564800123}`,
		2: `{"id":2}`,
	}
	settled := func() {
		t.Helper()
		for _, f := range formats {
			testutil.Eventually(t, patience, func() error {
				if !p.Running() {
					t.Fatalf("the copy has ended:\n%s", p.Output())
				}
				return sameRows(readByRegistry(t, cl, f, b.Read(t, f.b)), want)
			})
		}
	}
	settled()

	// The second version, while the copy runs.
	var evolve strings.Builder
	for _, f := range formats {
		evolve.WriteString(table(f, f.name, f.a, second, f.options) +
			fmt.Sprintf("INSERT INTO `%s` VALUES (CAST(3 AS BIGINT), CAST(NULL AS BIGINT), TO_TIMESTAMP_LTZ(5, 3), ARRAY['c'], ROW('Bonn', CAST(NULL AS INT)), 'new');\n", f.name))
	}
	run(evolve.String(), 0)
	want[3] = `{"home":{"city":"Bonn"},"id":3,"note":"new","tags":["c"],"ts":5}`
	settled()
	stop(t, p)

	// Who knows the first version alone reads both.
	for _, f := range formats {
		out := b.CreateTopic(t, 1, nil)
		run(table(f, "r", f.a, first, ", 'scan.bounded.mode' = 'latest-offset'")+
			"CREATE TABLE o (id BIGINT, n BIGINT, city STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = '"+out+"', 'key.format' = 'json', 'value.format' = 'json');\n"+
			"INSERT INTO o SELECT id, n, home.city FROM r;", 0)
		var got []string
		for _, r := range b.Read(t, out) {
			got = append(got, string(r.Value))
		}
		slices.Sort(got)
		if want := []string{`{"id":1,"n":9007199254740993,"city":"Ulm"}`, `{"id":2,"n":null,"city":null}`, `{"id":3,"n":null,"city":"Bonn"}`}; !slices.Equal(got, want) {
			t.Errorf("%s: read by the first version: %q, want %q", f.name, got, want)
		}
	}

	// What does not go with the subject: the app stops at the first row, and check says so before.
	for _, f := range formats {
		text := table(f, f.name, f.a, "id BIGINT NOT NULL, n ROW<x INT>", "") + fmt.Sprintf("INSERT INTO `%s` VALUES (CAST(4 AS BIGINT), ROW(1));", f.name)
		said := run(text, 1)
		if strings.Contains(said, "attempt=") {
			t.Errorf("%s: it is tried again:\n%s", f.name, said)
		}
		file := filepath.Join(t.TempDir(), "check.sql")
		writeFile(t, file, text)
		checked := kafka.Run(t, bin, []string{"check", file}, "MILLRACE_BROKERS="+strings.Join(b.Brokers(), ","), "MILLRACE_STATE_DIR="+t.TempDir())
		if code := checked.Wait(t, patience); code != 1 || !strings.Contains(checked.Output(), f.checked) || !strings.Contains(checked.Output(), f.a+"-value") {
			t.Errorf("%s: check ends with %d:\n%s", f.name, code, checked.Output())
		}
		for _, want := range []string{f.a + "-value", f.reason} {
			if !strings.Contains(said, want) {
				t.Errorf("%s: what is said of another type names no %q:\n%s", f.name, want, said)
			}
		}
	}
}

// readByRegistry reads records by the schemas of the registry, as JSON by id: without what is null, and times in ms.
func readByRegistry(t *testing.T, cl *sr.Client, f *registryFormat, records []*kgo.Record) map[int64]string {
	t.Helper()
	rows := map[int64]string{}
	for _, r := range records {
		row := readOne(t, cl, r.Value)
		if after, ok := row["after"].(map[string]any); ok {
			row = after
		}
		clean(row)
		key := readOne(t, cl, r.Key)
		clean(key)
		id, err := row["id"].(json.Number).Int64()
		if err != nil || len(key) != 1 || key["id"] != row["id"] {
			t.Fatalf("%s: key %v of row %v, error %v", f.name, key, row, err)
		}
		text, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		rows[id] = string(text)
	}
	return rows
}

func readOne(t *testing.T, cl *sr.Client, message []byte) map[string]any {
	t.Helper()
	id, body, err := wire.ID(message)
	if err != nil {
		t.Fatal(err)
	}
	schema, err := cl.SchemaByID(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	switch schema.Type {
	case sr.TypeAvro:
		s, err := avro.Parse(schema.Schema)
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if _, err := s.Decode(body, &v); err != nil {
			t.Fatal(err)
		}
		if body, err = s.EncodeJSON(v); err != nil {
			t.Fatal(err)
		}
	case sr.TypeProtobuf:
		_, rest, err := wire.Index(body)
		if err != nil {
			t.Fatal(err)
		}
		c := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{Accessor: protocompile.SourceAccessorFromMap(map[string]string{"s.proto": schema.Schema})})}
		files, err := c.Compile(t.Context(), "s.proto")
		if err != nil {
			t.Fatal(err)
		}
		m := dynamicpb.NewMessage(files[0].Messages().Get(0))
		if err := proto.Unmarshal(rest, m); err != nil {
			t.Fatal(err)
		}
		if body, err = protojson.Marshal(m); err != nil {
			t.Fatal(err)
		}
	}
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.UseNumber()
	row := map[string]any{}
	if err := d.Decode(&row); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return row
}

// clean takes out what is null or empty, and gives what a format writes in its own way one form.
func clean(row map[string]any) {
	for name, v := range row {
		switch v := v.(type) {
		case map[string]any:
			clean(v)
		case string:
			if at, err := time.Parse(time.RFC3339Nano, strings.Replace(v, " ", "T", 1)); err == nil {
				row[name] = json.Number(fmt.Sprint(at.UnixMilli()))
			} else if name == "n" || name == "id" {
				row[name] = json.Number(v) // Protobuf's JSON has 64 bits as text
			}
		}
	}
	maps.DeleteFunc(row, func(_ string, v any) bool {
		list, ok := v.([]any)
		return v == nil || ok && len(list) == 0
	})
}

func sameRows(got, want map[int64]string) error {
	if !maps.Equal(got, want) {
		return fmt.Errorf("rows %v, want %v", got, want)
	}
	return nil
}
