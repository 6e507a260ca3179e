package registry

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/format/avro"
	"github.com/millrace-stream/millrace/format/formattest"
	"github.com/millrace-stream/millrace/format/jsonschema"
	"github.com/millrace-stream/millrace/format/protobuf"
	"github.com/millrace-stream/millrace/format/registry"
	"github.com/millrace-stream/millrace/row"
)

func write(t *testing.T, f format.RowFormat, s format.RowSchema, values ...row.Value) ([]byte, error) {
	t.Helper()
	e, err := f.RowEncoder(s)
	if err != nil {
		t.Fatal(err)
	}
	return e.Append(nil, s.Layout.RowOf(values...))
}

// ask is what the registry says before anything is written.
func ask(t *testing.T, f format.RowFormat, s format.RowSchema) (string, error) {
	t.Helper()
	e, err := f.RowEncoder(s)
	if err != nil {
		t.Fatal(err)
	}
	return e.(format.Asker).Ask()
}

func read(t *testing.T, f format.RowFormat, s format.RowSchema, message []byte) string {
	t.Helper()
	d, err := f.RowDecoder(s)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := formattest.Rows(t, d, s, message)
	if err != nil {
		return err.Error()
	}
	return string(s.Layout.AppendResult(nil, rows[0]))
}

// TestFormatsOnRegistry writes and reads with each format, over versions of schemas and references between them.
func TestFormatsOnRegistry(t *testing.T) {
	server := Start(t)
	cl, err := sr.NewClient(sr.URLs(server.URL()))
	if err != nil {
		t.Fatal(err)
	}
	create := func(t *testing.T, subject string, s sr.Schema) int {
		t.Helper()
		got, err := cl.CreateSchema(t.Context(), subject, s)
		if err != nil {
			t.Fatal(err)
		}
		return got.ID
	}

	t.Run("avro", func(t *testing.T) {
		server.SetLevel(t, "orders-value", "BACKWARD")
		options := map[string]string{"url": server.URL(), "subject": "orders-value"}
		v1 := formattest.Table(row.Field{Name: "id", Type: row.BigInt()}, row.Field{Name: "at", Type: row.TimestampLTZ(3)})
		v2 := formattest.Table(append(v1.All(), row.Field{Name: "note", Type: row.String()})...)
		f := formattest.New(t, avro.Formats(), "avro-confluent", options)
		if said, err := ask(t, f, v1); err != nil || said != "subject orders-value will be new" {
			t.Errorf("before the first schema: %q, error %v", said, err)
		}
		m1, err := write(t, f, v1, 1, row.Stamp{Ms: 5})
		if err != nil {
			t.Fatal(err)
		}
		m2, err := write(t, f, v2, 2, row.Stamp{Ms: 5}, "x")
		if err != nil {
			t.Fatal(err)
		}
		again, err := write(t, formattest.New(t, avro.Formats(), "avro-confluent", options), v1, 1, row.Stamp{Ms: 5})
		if err != nil || string(again) != string(m1) {
			t.Errorf("written once more: % x, error %v; want % x", again, err, m1)
		}
		if got, want := read(t, f, v2, m1), `[1, "1970-01-01 00:00:00.005Z", null]`; got != want {
			t.Errorf("the first by the second: %s, want %s", got, want)
		}
		if got, want := read(t, f, v1, m2), `[2, "1970-01-01 00:00:00.005Z"]`; got != want {
			t.Errorf("the second by the first: %s, want %s", got, want)
		}

		if said, err := ask(t, f, v2); err != nil || said != "subject orders-value takes the schema" {
			t.Errorf("a schema that goes with the others: %q, error %v", said, err)
		}
		wrong := formattest.Table(row.Field{Name: "id", Type: row.BigInt()}, row.Field{Name: "new", Type: row.String().NotNull()})
		var outside *format.OutsideError
		var refused *registry.IncompatibleError
		if said, err := ask(t, f, wrong); !errors.As(err, &refused) {
			t.Errorf("asked about a field without default: %q, error %v", said, err)
		}
		_, err = write(t, f, wrong, 1, "x")
		if !errors.As(err, &outside) || !errors.As(err, &refused) || refused.Subject != "orders-value" {
			t.Errorf("a field without default: error %v", err)
		} else {
			t.Log(err)
		}
		look := formattest.New(t, avro.Formats(), "avro-confluent", map[string]string{"url": server.URL(), "subject": "orders-value", "properties.auto.register.schemas": "false"})
		if m, err := write(t, look, v1, 1, row.Stamp{Ms: 5}); err != nil || string(m) != string(m1) {
			t.Errorf("auto.register.schemas = false: % x, error %v; want % x", m, err, m1)
		}
		if said, err := ask(t, look, v1); err != nil || said != "subject orders-value takes the schema" {
			t.Errorf("auto.register.schemas = false, asked: %q, error %v", said, err)
		}
		if _, err := ask(t, look, wrong); err == nil || !strings.Contains(err.Error(), "auto.register.schemas is false") {
			t.Errorf("auto.register.schemas = false, asked about another schema: error %v", err)
		}
		if _, err := write(t, look, formattest.Table(row.Field{Name: "id", Type: row.Int()}), 1); err == nil || !strings.Contains(err.Error(), "auto.register.schemas is false") {
			t.Errorf("auto.register.schemas = false, another schema: error %v", err)
		}
		if got := read(t, f, v1, registry.AppendID(nil, 987654)); !strings.Contains(got, "schema id 987654 is unknown to the schema registry at "+server.URL()) {
			t.Errorf("an id that is not there: %s", got)
		}
	})

	t.Run("avro with references", func(t *testing.T) {
		create(t, "address", sr.Schema{Schema: `{"type":"record","name":"address","namespace":"x","fields":[{"name":"city","type":"string"}]}`})
		id := create(t, "person", sr.Schema{Schema: `{"type":"record","name":"person","namespace":"x","fields":[{"name":"home","type":"address"},{"name":"work","type":["null","x.address"]}]}`,
			References: []sr.SchemaReference{{Name: "x.address", Subject: "address", Version: 1}}})
		city := row.RowOf(row.Field{Name: "city", Type: row.String()})
		s := formattest.Table(row.Field{Name: "home", Type: city}, row.Field{Name: "work", Type: city})
		m := append(registry.AppendID(nil, id), "\x04ab\x02\x02c"...)
		if got, want := read(t, formattest.New(t, avro.Formats(), "avro-confluent", map[string]string{"url": server.URL()}), s, m), `[["ab"], ["c"]]`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})

	t.Run("debezium", func(t *testing.T) {
		f := formattest.New(t, avro.Formats(), "debezium-avro-confluent", map[string]string{"url": server.URL(), "subject": "changes-value"})
		s := formattest.Table(row.Field{Name: "id", Type: row.Int()})
		m, err := write(t, f, s, 3)
		if err != nil {
			t.Fatal(err)
		}
		if got := read(t, f, s, m); got != "[3]" {
			t.Errorf("got %s", got)
		}
	})

	t.Run("protobuf", func(t *testing.T) {
		money, err := os.ReadFile("../../format/protobuf/testdata/sub/money.proto")
		if err != nil {
			t.Fatal(err)
		}
		all, err := os.ReadFile("../../format/protobuf/testdata/all.proto")
		if err != nil {
			t.Fatal(err)
		}
		create(t, "money", sr.Schema{Schema: string(money), Type: sr.TypeProtobuf})
		create(t, "shop-value", sr.Schema{Schema: string(all), Type: sr.TypeProtobuf, References: []sr.SchemaReference{{Name: "sub/money.proto", Subject: "money", Version: 1}}})
		f := formattest.New(t, protobuf.Formats(), "protobuf-confluent", map[string]string{"url": server.URL(), "subject": "shop-value", "message-name": "shop.v1.Order"})
		s := formattest.Table(row.Field{Name: "i32", Type: row.Int()}, row.Field{Name: "at", Type: row.TimestampLTZ(3)}, row.Field{Name: "price", Type: row.RowOf(row.Field{Name: "units", Type: row.BigInt()})})
		m, err := write(t, f, s, 3, row.Stamp{Ms: 7}, []row.Value{9})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := read(t, f, s, m), `[3, "1970-01-01 00:00:00.007Z", [9]]`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		f = formattest.New(t, protobuf.Formats(), "protobuf-confluent", map[string]string{"url": server.URL(), "subject": "derived-value"})
		s = formattest.Table(row.Field{Name: "n", Type: row.Int()}, row.Field{Name: "at", Type: row.Timestamp(3)}, row.Field{Name: "list", Type: row.Array(row.String())})
		if m, err = write(t, f, s, 3, nil, []row.Value{"a"}); err != nil {
			t.Fatal(err)
		}
		if got, want := read(t, f, s, m), `[3, null, ["a"]]`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})

	t.Run("json", func(t *testing.T) {
		f := formattest.New(t, jsonschema.Formats(), "json-confluent", map[string]string{"url": server.URL(), "subject": "json-value"})
		s := formattest.Table(row.Field{Name: "n", Type: row.BigInt().NotNull()}, row.Field{Name: "r", Type: row.RowOf(row.Field{Name: "x", Type: row.Double()})})
		m, err := write(t, f, s, int64(9007199254740993), []row.Value{1.5})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := read(t, f, s, m), `[9007199254740993, [1.5]]`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}
