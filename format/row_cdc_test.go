package format

import (
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/row"
)

var cdcFormats = map[string]func() RowFormatSpec{"debezium": DebeziumRows, "canal": CanalRows, "maxwell": MaxwellRows}

func TestRowCDCDecode(t *testing.T) {
	s := table("id", row.Int(), "name", row.String(), "w", row.Decimal(6, 2))
	for _, test := range []struct {
		format, doc, want string
		options           []string
		lax               string // ignoring errors, if that is not nothing after an error
	}{
		{format: "debezium", doc: `{"before":null,"after":{"id":1,"name":"a","w":1.5},"op":"r"}`, want: `+I [1, "a", "1.50"]`},
		{format: "debezium", doc: `{"op":"c","source":{"x":[1]},"after":{"w":"2","id":1},"ts_ms":7}`, want: `+I [1, null, "2.00"]`},
		{format: "debezium", doc: `{"before":{"id":1,"name":"a","w":1.5},"after":{"id":1,"name":"a2","w":1.75},"op":"u"}`, want: `-U [1, "a", "1.50"] +U [1, "a2", "1.75"]`},
		{format: "debezium", doc: `{"before":{"id":2,"name":"b","w":2.5},"after":null,"op":"d"}`, want: `-D [2, "b", "2.50"]`},
		{format: "debezium", doc: ``, want: ``},
		{format: "debezium", doc: `{"before":null,"after":{"id":1},"op":"u"}`, want: `decode message of Debezium: its op is "u", but it has no row in "before": where the source is PostgreSQL, set ALTER TABLE ... REPLICA IDENTITY FULL, so that updates and deletions have the row as it was`},
		{format: "debezium", doc: `{"before":{"id":1},"op":"u"}`, want: `decode message of Debezium: its op is "u", but it has no row in "after"`},
		{format: "debezium", doc: `{"op":"d"}`, want: `decode message of Debezium: its op is "d", but it has no row in "before": where the source is PostgreSQL, set ALTER TABLE ... REPLICA IDENTITY FULL, so that updates and deletions have the row as it was`},
		{format: "debezium", doc: `{"op":"c","after":7}`, want: `decode message of Debezium: its op is "c", but it has no row in "after"`},
		{format: "debezium", doc: `{"op":"t"}`, want: `decode message of Debezium: its op is "t", which is unknown`},
		{format: "debezium", doc: `{"schema":{},"payload":{"op":"c"}}`, want: `decode message of Debezium: it has no field "op"; set 'schema-include' of the format to true if messages have the fields schema and payload`},
		{format: "debezium", doc: `{"op":"c","after":{"id":1,"name":"x","w":"y"}}`, want: `decode message of Debezium: decode JSON: field after.w, byte 41: want a number for DECIMAL(6, 2) in its range, found the string "y"`, lax: `+I [1, "x", null]`},
		{format: "debezium", doc: `{"op":"c","after":{"id":1}`, want: `decode message of Debezium: decode JSON: byte 26: want ',' or '}', found the end of the input`},
		{format: "debezium", doc: `{"op":"c","after":{"id":1}} x`, want: `decode message of Debezium: decode JSON: byte 28: want the end of the document, found "x"`},
		{format: "debezium", doc: `null`, want: `decode message of Debezium: decode JSON: byte 0: want an object, found "null"`},
		{format: "debezium", doc: `{"schema":{"a":1},"payload":{"before":{"id":1},"after":{"id":2},"op":"u"}}`, want: `-U [1, null, null] +U [2, null, null]`, options: []string{"schema-include", "true"}},
		{format: "debezium", doc: `{"after":{"id":2},"op":"c"}`, want: `decode message of Debezium: it has no object payload; set 'schema-include' of the format to false if messages have no schema`, options: []string{"schema-include", "true"}},
		{format: "canal", doc: `{"data":[{"id":"1","name":"a","w":"1.5"},{"id":"2"}],"type":"INSERT"}`, want: `+I [1, "a", "1.50"] +I [2, null, null]`},
		{format: "canal", doc: `{"data":[{"id":"1","name":"a","w":"1.5"},{"id":"2","name":null,"w":3}],"old":[{"w":"1"},{"w":null,"name":"z"}],"type":"UPDATE"}`, want: `-U [1, "a", "1.00"] +U [1, "a", "1.50"] -U [2, "z", null] +U [2, null, "3.00"]`},
		{format: "canal", doc: `{"data":[{"id":"1"},{"id":"2"}],"old":[{"w":"1"}],"type":"UPDATE"}`, want: `decode message of Canal: "data" and "old" have not the same number of rows`, lax: `-U [1, null, "1.00"] +U [1, null, null]`},
		{format: "canal", doc: `{"data":[{"id":"1"}],"type":"UPDATE"}`, want: `decode message of Canal: its type is "UPDATE", but it has no row in "old"`},
		{format: "canal", doc: `{"data":[{"id":"1"}],"old":null,"type":"DELETE"}`, want: `-D [1, null, null]`},
		{format: "canal", doc: `{"data":[],"type":"DELETE"}`, want: ``},
		{format: "canal", doc: `{"data":null,"type":"CREATE"}`, want: ``},
		{format: "canal", doc: `{"data":[1],"type":"INSERT"}`, want: `decode message of Canal: decode JSON: field data, byte 9: want an object, found the number 1`},
		{format: "canal", doc: `{"data":[{"id":"1"}],"type":"INSERT","database":"shop","table":"t"}`, want: `+I [1, null, null]`, options: []string{"database.include", "s.*", "table.include", "t|u"}},
		{format: "canal", doc: `{"data":[{"id":"1"}],"type":"INSERT","database":"shop","table":"tt"}`, want: ``, options: []string{"table.include", "t"}},
		{format: "canal", doc: `{"data":[{"id":"1"}],"type":"INSERT"}`, want: ``, options: []string{"database.include", "t"}},
		{format: "maxwell", doc: `{"data":{"id":1,"name":"a"},"type":"insert"}`, want: `+I [1, "a", null]`},
		{format: "maxwell", doc: `{"data":{"id":1,"name":"a","w":2},"old":{"name":null},"type":"update"}`, want: `-U [1, null, "2.00"] +U [1, "a", "2.00"]`},
		{format: "maxwell", doc: `{"data":{"id":1,"name":"a"},"type":"delete"}`, want: `-D [1, "a", null]`},
		{format: "maxwell", doc: `{"data":{"id":1},"type":"bootstrap-insert"}`, want: `+I [1, null, null]`},
		{format: "maxwell", doc: `{"data":{},"type":"bootstrap-start"}`, want: ``},
		{format: "maxwell", doc: `{"data":{},"type":"table-alter"}`, want: `decode message of Maxwell: its type is "table-alter", which is unknown`},
	} {
		spec := cdcFormats[test.format]()
		if !spec.Changes {
			t.Fatal(test.format)
		}
		check := func(want string, options ...string) {
			t.Helper()
			d := mustDecoder(t, rowFormat(t, spec, append(options, test.options...)...), s)
			for range 2 {
				got, err := decodeRows(d, s, []byte(test.doc))
				if err != nil {
					got = err.Error()
				}
				if got != want {
					t.Errorf("%s %s %v\n got %s\nwant %s", test.format, test.doc, options, got, want)
				}
			}
		}
		check(test.want)
		if test.lax == "" && !strings.HasPrefix(test.want, "decode") {
			test.lax = test.want
		}
		check(test.lax, "ignore-parse-errors", "true")
	}
	for name, spec := range cdcFormats {
		d := mustDecoder(t, rowFormat(t, spec()), s)
		if got, err := decodeRows(d, s, nil); got != "" || err != nil {
			t.Errorf("a tombstone of %s is %q, %v", name, got, err)
		}
	}
}

func TestRowCDCMetadata(t *testing.T) {
	for _, test := range []struct{ format, doc, want, options string }{
		{format: "debezium", doc: `{"before":null,"after":{"id":1},"source":{"version":"3","ts_ms":1700000000123,"db":"shop","schema":"public","table":"t","n":null},"op":"c","ts_ms":1700000000456}`,
			want: `+I [1, null, "2023-11-14 22:13:20.456Z", "2023-11-14 22:13:20.123Z", "shop", "public", "t", [["db", "shop"], ["n", null], ["schema", "public"], ["table", "t"], ["ts_ms", "1700000000123"], ["version", "3"]]]`},
		{format: "debezium", doc: `{"schema":{"q":1},"payload":{"after":{"id":1},"source":{"db":null,"ts_ms":"x"},"op":"c"}}`, options: "schema-include",
			want: `+I [1, "{\"q\":1}", null, null, null, null, null, [["db", null], ["ts_ms", "x"]]]`},
		{format: "debezium", doc: `{"after":{"id":1},"op":"c"}`, want: `+I [1, null, null, null, null, null, null, null]`},
		{format: "canal", doc: `{"data":[{"id":"1"}],"type":"INSERT","database":"shop","table":"t","es":1000,"ts":2000,"pkNames":["id"],"sqlType":{"id":4}}`,
			want: `+I [1, "shop", "t", [["id", 4]], ["id"], "1970-01-01 00:00:02.000Z", "1970-01-01 00:00:01.000Z"]`},
		{format: "maxwell", doc: `{"data":{"id":1},"old":{},"type":"update","database":"shop","table":"t","ts":1700000000,"primary_key_columns":["id"]}`,
			want: `-U [1, "shop", "t", ["id"], "2023-11-14 22:13:20.000Z"] +U [1, "shop", "t", ["id"], "2023-11-14 22:13:20.000Z"]`},
	} {
		spec := cdcFormats[test.format]()
		columns := []any{"id", row.Int()}
		for _, m := range spec.Metadata {
			columns = append(columns, m.Name, m.Type)
		}
		s := table(columns...)
		for i := range spec.Metadata {
			s.Columns[i+1].Metadata = true
		}
		var options []string
		if test.options != "" {
			options = []string{test.options, "true"}
		}
		f := rowFormat(t, spec, options...)
		got, err := decodeRows(mustDecoder(t, f, s), s, []byte(test.doc))
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s %s\n got %s\nwant %s", test.format, test.doc, got, test.want)
		}
		s.Columns[1].Name = "tabel"
		if _, err := f.RowDecoder(s); err == nil || !strings.Contains(err.Error(), "metadata tabel: messages of") {
			t.Errorf("unknown metadata: %v", err)
		}
		s.Columns[1].Name, s.Columns[1].Type = spec.Metadata[0].Name, row.Int()
		if _, err := f.RowDecoder(s); err == nil || !strings.Contains(err.Error(), "is a STRING, not a INT") {
			t.Errorf("metadata of another type: %v", err)
		}
	}
}

func TestRowCDCEncode(t *testing.T) {
	s := table("id", row.Int(), "name", row.String())
	for _, test := range []struct {
		format  string
		want    [2]string // of +I and +U, and of -U and -D
		options []string
	}{
		{format: "debezium", want: [2]string{`{"before":null,"after":{"id":1,"name":null},"op":"c"}`, `{"before":{"id":1,"name":null},"after":null,"op":"d"}`}},
		{format: "debezium", want: [2]string{`{"after":{"id":1},"op":"c"}`, `{"before":{"id":1},"op":"d"}`}, options: []string{"encode.ignore-null-fields", "true"}},
		{format: "canal", want: [2]string{`{"data":[{"id":1,"name":null}],"type":"INSERT"}`, `{"data":[{"id":1,"name":null}],"type":"DELETE"}`}},
		{format: "maxwell", want: [2]string{`{"data":{"id":1,"name":null},"type":"insert"}`, `{"data":{"id":1,"name":null},"type":"delete"}`}},
	} {
		f := rowFormat(t, cdcFormats[test.format](), test.options...)
		e, d := mustEncoder(t, f, s), mustDecoder(t, f, s)
		r := nullRow(s.Layout)
		s.Layout.Set(r, s.Columns[0].Index, 1)
		for kind := range row.Delete + 1 {
			r.Kind = kind
			want, back := test.want[0], "+I"
			if !kind.Adds() {
				want, back = test.want[1], "-D"
			}
			got, err := e.Append(nil, r)
			if string(got) != want || err != nil {
				t.Errorf("%s %s: %s, %v, want %s", test.format, kind, got, err, want)
			}
			if text, err := decodeRows(d, s, got); text != back+" [1, null]" || err != nil {
				t.Errorf("%s is decoded to %s, %v", got, text, err)
			}
		}
	}
	if _, err := rowFormat(t, DebeziumRows(), "schema-include", "true").RowEncoder(s); err == nil {
		t.Error("messages with schema are written")
	}
	if _, err := newRowFormat(CanalRows(), "table.include", "("); err == nil || !strings.Contains(err.Error(), "f.table.include") {
		t.Errorf("a bad expression: %v", err)
	}
}

func TestRowCDCRoundTrip(t *testing.T) {
	for name, spec := range cdcFormats {
		for seed := range uint64(200) {
			g := newRowGen(seed)
			s := g.schema()
			f := rowFormat(t, spec())
			e, d := mustEncoder(t, f, s), mustDecoder(t, f, s)
			r := g.row(s)
			doc, err := e.Append(nil, r)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := decodeRows(d, s, doc); got != "+I "+rowText(s, r) || err != nil {
				t.Fatalf("%s: %s: %s, %v", name, doc, got, err)
			}
		}
	}
}
