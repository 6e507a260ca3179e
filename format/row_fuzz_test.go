package format

import (
	"bytes"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/row"
)

// fuzzSchemas are tables of all types, some with fields that are not wanted, for messages that name them.
func fuzzSchemas(nested bool) []RowSchema {
	types := []*row.Type{row.Boolean(), row.TinyInt(), row.SmallInt(), row.Int(), row.BigInt(), row.Float(), row.Double(), row.Decimal(5, 1), row.Decimal(38, 10),
		row.Char(3), row.String(), row.Bytes(), row.Date(), row.Time(3), row.Timestamp(3), row.Timestamp(9), row.TimestampLTZ(3)}
	if nested {
		fields := row.RowOf(row.Field{Name: "a", Type: row.Int()}, row.Field{Name: "b", Type: row.Array(row.String())}, row.Field{Name: "c", Type: row.Map(row.String(), row.Double())})
		types = append(types, row.Array(row.Int()), row.Array(fields), row.Map(row.String(), row.Array(row.Int())), row.Multiset(row.String()), fields)
	}
	var out []RowSchema
	for _, t := range types {
		out = append(out, table("a", t, "b", row.String()))
	}
	return out
}

// again decodes a message and checks that a second decoder that has seen it does the same, and that what came out is
// encoded to a message which is decoded to the same.
func again(t *testing.T, f RowFormat, s RowSchema, d RowDecoder, doc []byte) (rows string, err error) {
	t.Helper()
	var kept []*row.Row
	kinds := map[row.RowKind]bool{}
	keep := func() *row.Row {
		kept = append(kept, nullRow(s.Layout))
		return kept[len(kept)-1]
	}
	before := bytes.Clone(doc)
	if err := d.Decode(doc, keep); err != nil {
		if _, err2 := decodeRows(d, s, doc); err2 == nil || err2.Error() != err.Error() {
			t.Fatalf("%q: %v, then %v", doc, err, err2)
		}
		return "", err
	}
	var text []string
	for _, r := range kept {
		text = append(text, r.Kind.String()+" "+rowText(s, r))
		kinds[r.Kind] = true
		for i := range s.Layout.Len() {
			if p := s.Layout.Place(i); p.Bank == row.Views && s.Layout.Type(i).Kind().Nested() && !r.Null(i) {
				if err := row.CheckNested(s.Layout.Type(i), r.S[p.Index]); err != nil {
					t.Fatalf("%q: %v", doc, err)
				}
			}
		}
	}
	rows = strings.Join(text, " ")
	e, err := f.RowEncoder(s)
	if err != nil {
		t.Fatal(err)
	}
	fresh := mustDecoder(t, f, s)
	for i, r := range kept {
		message, err := e.Append([]byte{}, r)
		if err != nil {
			t.Fatalf("%q: %v", doc, err)
		}
		got, err := decodeRows(fresh, s, message)
		if err != nil || got[3:] != text[i][3:] {
			if !fourDigits(s, r) {
				continue
			}
			t.Fatalf("%q is %s, written as %q, which is %s, %v", doc, text[i], message, got, err)
		}
	}
	if !bytes.Equal(before, doc) {
		t.Fatalf("%q was changed to %q", before, doc)
	}
	if second, err := decodeRows(d, s, doc); second != rows || err != nil {
		t.Fatalf("%q is %s, then %s, %v", doc, rows, second, err)
	}
	return rows, nil
}

// fourDigits says that all times are of the years 0 to 9999: an offset can make others of what is read.
func fourDigits(s RowSchema, r *row.Row) bool {
	for _, c := range s.Columns {
		if c.Type.Kind() == row.KindTimestampLTZ && !r.Null(c.Index) {
			y, _, _ := row.CivilOf(row.FloorDiv(r.Int64(s.Layout.Place(c.Index).Index), row.MsPerDay))
			return y >= 0 && y <= 9999
		}
	}
	return true
}

func FuzzRowJSON(f *testing.F) {
	for _, doc := range []string{`{"a":1,"b":"x"}`, `{"b":{"q" : [1]},"a":"1.5","a":null}`, `[{"a":[1,"2",null]},{"a":{"a":1,"b":["x"],"c":{"k":1e400}}}]`, `{"a":"2024-01-31 23:59:59.123"}`, `{"a":"2024-01-31T23:59:59Z","b":"\ud834\udd1e"}`, `{"a":{"x":[1]},"zz":{},"b":7}`, `{"a":"CgD/"}`} {
		f.Add([]byte(doc), true)
	}
	schemas := fuzzSchemas(true)
	f.Fuzz(func(t *testing.T, doc []byte, iso bool) {
		options := []string{"timestamp-format.standard", "SQL"}
		if iso {
			options[1] = "ISO-8601"
		}
		format, lax := rowFormat(t, JSONRows(), options...), rowFormat(t, JSONRows(), append(options, "ignore-parse-errors", "true")...)
		valid := skipWhole(doc[skipSpace(doc, 0):]) == nil
		for _, s := range schemas {
			rows, err := again(t, format, s, mustDecoder(t, format, s), doc)
			laxRows, laxErr := decodeRows(mustDecoder(t, lax, s), s, doc)
			switch {
			case laxErr != nil || !valid && laxRows != "":
				t.Fatalf("%q without errors: %s, %v", doc, laxRows, laxErr)
			case err == nil && (rows != laxRows || !valid && len(doc) > 0):
				t.Fatalf("%q (valid: %v): %s, without errors %s", doc, valid, rows, laxRows)
			}
		}
	})
}

func FuzzRowCSV(f *testing.F) {
	for _, doc := range []string{"1,x", `"a""b" ,y`, "1;2;3,\n2,", "#\n,", `a\,b,c`, "2024-01-31 23:59:59.1,\"", "\uFEFF1,"} {
		for k := range byte(4) {
			f.Add([]byte(doc), k)
		}
	}
	schemas := append(fuzzSchemas(false), table("a", row.Array(row.Int()), "b", row.RowOf(row.Field{Name: "x", Type: row.Int()}, row.Field{Name: "y", Type: row.Date()})))
	f.Fuzz(func(t *testing.T, doc []byte, k byte) {
		options := [][]string{{"null-literal", "N"}, csvOther, {"null-literal", "N", "escape-character", `^`, "field-delimiter", "\u00a6"}, {"null-literal", "N", "escape-character", `\`}}[k&3]
		format, lax := rowFormat(t, CSVRows(), options...), rowFormat(t, CSVRows(), append([]string{"ignore-parse-errors", "true"}, options...)...)
		for _, s := range schemas {
			d := mustDecoder(t, format, s)
			rows, err := decodeRows(d, s, doc)
			laxRows, laxErr := decodeRows(mustDecoder(t, lax, s), s, doc)
			if laxErr != nil || err == nil && rows != laxRows {
				t.Fatalf("%q: %s, %v, without errors %s, %v", doc, rows, err, laxRows, laxErr)
			}
			if nullText := s.Columns[0].Type.Kind().Nested(); !nullText && !strings.Contains(rows, `"N"`) && !strings.Contains(rows, `"null"`) {
				_, _ = again(t, format, s, d, doc)
			}
		}
	})
}

func FuzzRowCDC(f *testing.F) {
	for _, doc := range []string{`{"before":{"a":1},"after":{"a":2,"b":"x"},"op":"u","source":{"db":"x"}}`, `{"data":[{"a":1}],"old":[{"b":null}],"type":"UPDATE"}`, `{"data":{"a":1},"old":{"b":null},"type":"update"}`, `{"schema":{},"payload":{"after":{},"op":"c"}}`, `{"op":"d","before":{"a":"x"}}`} {
		f.Add([]byte(doc))
	}
	s := table("a", row.Int(), "b", row.String())
	f.Fuzz(func(t *testing.T, doc []byte) {
		for name, spec := range cdcFormats {
			format := rowFormat(t, spec())
			rows, err := again(t, format, s, mustDecoder(t, format, s), doc)
			lax, laxErr := decodeRows(mustDecoder(t, rowFormat(t, spec(), "ignore-parse-errors", "true"), s), s, doc)
			if laxErr != nil || err == nil && rows != lax {
				t.Fatalf("%s %q: %s, %v, without errors %s, %v", name, doc, rows, err, lax, laxErr)
			}
		}
		d := mustDecoder(t, rowFormat(t, DebeziumRows(), "schema-include", "true"), s)
		_, _ = decodeRows(d, s, doc)
	})
}

func FuzzRowRaw(f *testing.F) {
	f.Add([]byte("12345678"), true)
	f.Add([]byte{1}, false)
	f.Fuzz(func(t *testing.T, doc []byte, little bool) {
		options := []string{"endianness", "big-endian"}
		if little {
			options[1] = "little-endian"
		}
		for _, typ := range []*row.Type{row.Boolean(), row.TinyInt(), row.SmallInt(), row.Int(), row.BigInt(), row.Float(), row.Double(), row.String(), row.Bytes()} {
			s, format := table("c", typ), rowFormat(t, RawRows(), options...)
			if doc == nil {
				doc = []byte{}
			}
			_, _ = again(t, format, s, mustDecoder(t, format, s), doc)
		}
	})
}
