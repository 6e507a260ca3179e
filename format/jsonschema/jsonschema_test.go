package jsonschema

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/format/formattest"
	"github.com/millrace-stream/millrace/format/registry"
	"github.com/millrace-stream/millrace/row"
)

func TestFramedJSON(t *testing.T) {
	reg := srfake.New()
	defer reg.Close()
	f, err := formattest.Open(Formats(), "json-confluent", map[string]string{"url": reg.URL(), "subject": "s-value", "ignore-parse-errors": "false"})
	if err != nil {
		t.Fatal(err)
	}
	s := format.RowSchema{Layout: row.NewLayout(row.BigInt().NotNull(), row.Array(row.String())), Zone: row.UTC(),
		Columns: []format.RowColumn{{Name: "n", Type: row.BigInt().NotNull(), Index: 0}, {Name: "list", Type: row.Array(row.String()), Index: 1}}}
	e, err := f.RowEncoder(s)
	if err != nil {
		t.Fatal(err)
	}
	in := s.Layout.RowOf(int64(9007199254740993), []row.Value{"a", nil})
	b, err := e.Append(nil, in)
	if err != nil {
		t.Fatal(err)
	}
	if want := "\x00\x00\x00\x00\x01" + `{"n":9007199254740993,"list":["a",null]}`; string(b) != want {
		t.Errorf("written %q, want %q", b, want)
	}
	d, err := f.RowDecoder(s)
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	out := s.Layout.New()
	next := func() *row.Row { rows++; return out }
	if err := d.Decode(b, next); err != nil || rows != 1 {
		t.Fatalf("%d rows, error %v", rows, err)
	}
	if got, want := string(s.Layout.AppendResult(nil, out)), string(s.Layout.AppendResult(nil, in)); got != want {
		t.Errorf("read %s, want %s", got, want)
	}
	if err := d.Decode(nil, next); err != nil || rows != 1 {
		t.Errorf("a null message: %d rows, error %v", rows-1, err)
	}
	for _, m := range []string{`{"n":1}`, "\x00\x00\x00\x00\x01{", "", "\x00\x00"} {
		if err := d.Decode([]byte(m), next); err == nil {
			t.Errorf("%q was read", m)
		}
	}
	o, err := format.ReadOptions("", map[string]string{"url": reg.URL()}, registry.Options())
	if err != nil {
		t.Fatal(err)
	}
	c, err := registry.New(o)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Get(1)
	const want = `{"$schema":"http://json-schema.org/draft-07/schema#","additionalProperties":false,"properties":{"list":{"oneOf":[{"type":"null"},{"items":{"oneOf":[{"type":"null"},{"type":"string"}]},"type":"array"}]},"n":{"type":"integer"}},"required":["n"],"title":"Record","type":"object"}`
	if err != nil || got.Type != registry.JSON || got.Text != want {
		t.Errorf("registered %+v, error %v; want %s", got, err, want)
	}
}

func TestWrongOptions(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{"schema", "{", "option 'schema' is no JSON"},
		{"url", "x", "option 'url'"},
		{"ignore-parse-error", "true", "did you mean 'json-confluent.ignore-parse-errors'?"},
	} {
		options := map[string]string{"url": "http://localhost:1", c.name: c.value}
		if _, err := formattest.Open(Formats(), "json-confluent", options); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %s", c.name, err, c.want)
		}
	}
	f, err := formattest.Open(Formats(), "json-confluent", map[string]string{"url": "http://localhost:1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.RowEncoder(format.RowSchema{Layout: row.NewLayout()}); err == nil || !strings.Contains(err.Error(), "option 'subject' is missing") {
		t.Errorf("error %v", err)
	}
}
