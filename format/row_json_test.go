package format

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/row"
)

// rowFormat makes a format with options, name value name value, without prefix.
func rowFormat(tb testing.TB, spec RowFormatSpec, options ...string) RowFormat {
	tb.Helper()
	f, err := newRowFormat(spec, options...)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

func newRowFormat(spec RowFormatSpec, options ...string) (RowFormat, error) {
	values := map[string]string{}
	for i := 0; i < len(options); i += 2 {
		values["f."+options[i]] = options[i+1]
	}
	o, err := ReadOptions("f.", values, spec.Options)
	if err != nil {
		return nil, err
	}
	return spec.New(o)
}

// table is a schema of columns, name type name type, which lie in reverse order behind a column that is not wanted.
func table(columns ...any) RowSchema {
	var s RowSchema
	n := len(columns) / 2
	types := make([]*row.Type, n+1)
	types[0] = row.String()
	for i := range n {
		t := columns[2*i+1].(*row.Type)
		types[n-i] = t
		s.Columns = append(s.Columns, RowColumn{Name: columns[2*i].(string), Type: t, Index: n - i})
	}
	s.Layout, s.Zone = row.NewLayout(types...), row.UTC()
	return s
}

// decodeRows decodes a message to the text of its rows.
func decodeRows(d RowDecoder, s RowSchema, data []byte) (string, error) {
	var rows []*row.Row
	err := d.Decode(data, func() *row.Row {
		rows = append(rows, nullRow(s.Layout))
		return rows[len(rows)-1]
	})
	if err != nil {
		return "", err
	}
	var text []string
	for _, r := range rows {
		text = append(text, r.Kind.String()+" "+rowText(s, r))
	}
	return strings.Join(text, " "), nil
}

func rowText(s RowSchema, r *row.Row) string {
	var b []byte
	for i, c := range s.Columns {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = row.AppendResultValue(b, c.Type, s.Layout.Get(r, c.Index))
	}
	return "[" + string(b) + "]"
}

func mustDecoder(tb testing.TB, f RowFormat, s RowSchema) RowDecoder {
	tb.Helper()
	d, err := f.RowDecoder(s)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

func mustEncoder(tb testing.TB, f RowFormat, s RowSchema) RowEncoder {
	tb.Helper()
	e, err := f.RowEncoder(s)
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

func TestRowJSONDecode(t *testing.T) {
	nested := row.RowOf(row.Field{Name: "x", Type: row.Int()}, row.Field{Name: "y", Type: row.String()}, row.Field{Name: "z", Type: row.Decimal(20, 2)})
	for _, test := range []struct {
		typ      *row.Type
		json     string
		want     string // the value, or the error
		wantISO  string // with ISO-8601, if it is another one
		onlyLeft bool
	}{
		{typ: row.Boolean(), json: `true`, want: `true`},
		{typ: row.Boolean(), json: `"TRUE "`, want: `true`},
		{typ: row.Boolean(), json: `"yes"`, want: `false`},
		{typ: row.Boolean(), json: `1`, want: `false`},
		{typ: row.Boolean(), json: `[]`, want: `decode JSON: field c, byte 5: want true or false for a BOOLEAN, found an array`},
		{typ: row.TinyInt(), json: `-128`, want: `-128`},
		{typ: row.TinyInt(), json: `128`, want: `decode JSON: field c, byte 5: want a number for TINYINT in its range, found the number 128`},
		{typ: row.TinyInt(), json: `1.5`, want: `decode JSON: field c, byte 5: want a number for TINYINT in its range, found the number 1.5`},
		{typ: row.TinyInt(), json: `1.0`, want: `decode JSON: field c, byte 5: want a number for TINYINT in its range, found the number 1.0`},
		{typ: row.SmallInt(), json: `" 32767\n"`, want: `32767`},
		{typ: row.SmallInt(), json: `"32768"`, want: `decode JSON: field c, byte 5: want a number for SMALLINT in its range, found the string "32768"`},
		{typ: row.Int(), json: `"+7"`, want: `7`},
		{typ: row.Int(), json: `"7.0"`, want: `decode JSON: field c, byte 5: want a number for INT in its range, found the string "7.0"`},
		{typ: row.Int(), json: `-1.9`, want: `-1`},
		{typ: row.Int(), json: `1.5e3`, want: `1500`},
		{typ: row.Int(), json: `15e-1`, want: `1`},
		{typ: row.Int(), json: `2147483648`, want: `decode JSON: field c, byte 5: want a number for INT in its range, found the number 2147483648`},
		{typ: row.Int(), json: `true`, want: `decode JSON: field c, byte 5: want a number for INT in its range, found "true"`},
		{typ: row.Int(), json: `""`, want: `decode JSON: field c, byte 5: want a number for INT in its range, found the string ""`},
		{typ: row.Int(), json: `{"a":1}`, want: `decode JSON: field c, byte 5: want a number for INT in its range, found an object`},
		{typ: row.Int(), json: `01`, want: `decode JSON: field c, byte 6: want a number without leading zeros`},
		{typ: row.BigInt(), json: `9007199254740993`, want: `9007199254740993`},
		{typ: row.BigInt(), json: `9007199254740993.0`, want: `9007199254740993`},
		{typ: row.BigInt(), json: `9007199254740993.7`, want: `9007199254740993`},
		{typ: row.BigInt(), json: `"9007199254740993"`, want: `9007199254740993`},
		{typ: row.BigInt(), json: `9223372036854775807`, want: `9223372036854775807`},
		{typ: row.BigInt(), json: `-9223372036854775808`, want: `-9223372036854775808`},
		{typ: row.BigInt(), json: `9223372036854775808`, want: `decode JSON: field c, byte 5: want a number for BIGINT in its range, found the number 9223372036854775808`},
		{typ: row.BigInt(), json: `-9223372036854775809`, want: `decode JSON: field c, byte 5: want a number for BIGINT in its range, found the number -9223372036854775809`},
		{typ: row.BigInt(), json: `92233720368547758070`, want: `decode JSON: field c, byte 5: want a number for BIGINT in its range, found the number 92233720368547758070`},
		{typ: row.BigInt(), json: `1e400`, want: `decode JSON: field c, byte 5: want a number for BIGINT in its range, found the number 1e400`},
		{typ: row.BigInt(), json: `-0`, want: `0`},
		{typ: row.IntervalDay(), json: `86400000`, want: `86400000`},
		{typ: row.IntervalMonth(), json: `14`, want: `14`},
		{typ: row.Double(), json: `1`, want: `1.0`},
		{typ: row.Double(), json: `-0.0`, want: `-0.0`},
		{typ: row.Double(), json: `0.1e1`, want: `1.0`},
		{typ: row.Double(), json: `" 2.5 "`, want: `2.5`},
		{typ: row.Double(), json: `"NaN"`, want: `"NaN"`},
		{typ: row.Double(), json: `1e999`, want: `"Infinity"`},
		{typ: row.Double(), json: `"x"`, want: `decode JSON: field c, byte 5: want a number for DOUBLE in its range, found the string "x"`},
		{typ: row.Float(), json: `0.1`, want: `0.1`},
		{typ: row.Float(), json: `16777217`, want: `1.6777216E7`},
		{typ: row.Decimal(5, 1), json: `1.25`, want: `"1.3"`},
		{typ: row.Decimal(5, 1), json: `"-1.25"`, want: `"-1.3"`},
		{typ: row.Decimal(5, 1), json: `1e1`, want: `"10.0"`},
		{typ: row.Decimal(5, 1), json: `9999.94`, want: `"9999.9"`},
		{typ: row.Decimal(5, 1), json: `9999.95`, want: `null`},
		{typ: row.Decimal(5, 1), json: `99999.9`, want: `null`},
		{typ: row.Decimal(1, 1), json: `0.5`, want: `"0.5"`},
		{typ: row.Decimal(10, 0), json: `"1x"`, want: `decode JSON: field c, byte 5: want a number for DECIMAL(10, 0) in its range, found the string "1x"`},
		{typ: row.Decimal(38, 0), json: `12345678901234567890123456789012345678`, want: `"12345678901234567890123456789012345678"`},
		{typ: row.Decimal(38, 18), json: `0.000000000000000001`, want: `"0.000000000000000001"`},
		{typ: row.Decimal(18, 0), json: `999999999999999999`, want: `"999999999999999999"`},
		{typ: row.Decimal(19, 1), json: `999999999999999999`, want: `"999999999999999999.0"`},
		{typ: row.String(), json: `"a\u00e4\n\"\ud834\udd1e"`, want: "\"a\u00e4\\n\\\"\U0001d11e\""},
		{typ: row.String(), json: `12.50e1`, want: `"12.50e1"`},
		{typ: row.String(), json: `true`, want: `"true"`},
		{typ: row.String(), json: `{"q" : [1, "a \" b" ] , "r":9007199254740993}`, want: `"{\"q\":[1,\"a \\\" b\"],\"r\":9007199254740993}"`},
		{typ: row.String(), json: `{"q":1}`, want: `"{\"q\":1}"`},
		{typ: row.String(), json: `"\ud834"`, want: `decode JSON: field c, byte 6: want a whole surrogate pair, found \ud834`},
		{typ: row.String(), json: "\"\xff\"", want: `decode JSON: field c, byte 6: want UTF-8, found the byte 0xff`},
		{typ: row.Bytes(), json: `"CgD/"`, want: `"x'0A00FF'"`},
		{typ: row.Bytes(), json: `"CgD"`, want: `decode JSON: field c, byte 5: want base64 text for BYTES, found the string "CgD"`},
		{typ: row.Bytes(), json: `1`, want: `decode JSON: field c, byte 5: want base64 text for BYTES, found the number 1`},
		{typ: row.Date(), json: `"2024-02-29"`, want: `"2024-02-29"`},
		{typ: row.Date(), json: `"2023-02-29"`, want: `decode JSON: field c, byte 5: want text such as 2024-01-31 for a DATE, found the string "2023-02-29"`},
		{typ: row.Date(), json: `"2024-1-1"`, want: `decode JSON: field c, byte 5: want text such as 2024-01-31 for a DATE, found the string "2024-1-1"`},
		{typ: row.Date(), json: `19783`, want: `decode JSON: field c, byte 5: want text such as 2024-01-31 for a DATE, found the number 19783`},
		{typ: row.Time(3), json: `"23:59:59.1"`, want: `"23:59:59.100"`},
		{typ: row.Time(0), json: `"24:00:00"`, want: `"00:00:00"`},
		{typ: row.Time(0), json: `"7:00:00"`, want: `decode JSON: field c, byte 5: want text such as 23:59:59 for a TIME(0), found the string "7:00:00"`},
		{typ: row.Timestamp(3), json: `"2024-01-01 00:00:00"`, want: `"2024-01-01 00:00:00.000"`, wantISO: `want text such as 2024-01-31T23:59:59.999 for a TIMESTAMP(3)`},
		{typ: row.Timestamp(3), json: `"2024-01-01T00:00:00.1239"`, want: `want text such as 2024-01-31 23:59:59.999 for a TIMESTAMP(3)`, wantISO: `"2024-01-01 00:00:00.123"`},
		{typ: row.Timestamp(3), json: `"2024-01-01T00:01"`, want: `want text such as 2024-01-31 23:59:59.999 for a TIMESTAMP(3)`, wantISO: `"2024-01-01 00:01:00.000"`},
		{typ: row.Timestamp(9), json: `"1969-12-31 23:59:59.123456789"`, want: `"1969-12-31 23:59:59.123456789"`, wantISO: `want text`},
		{typ: row.Timestamp(0), json: `"1969-12-31 23:59:59.9"`, want: `"1969-12-31 23:59:59"`, wantISO: `want text`},
		{typ: row.Timestamp(3), json: `"2023-02-31 24:00:00"`, want: `"2023-03-01 00:00:00.000"`, wantISO: `want text`},
		{typ: row.Timestamp(3), json: `"2023-02-29T00:00:00"`, want: `want text`},
		{typ: row.Timestamp(3), json: `"2024-01-01 00:00:00Z"`, want: `want text such as 2024-01-31 23:59:59.999 for a TIMESTAMP(3)`},
		{typ: row.Timestamp(3), json: `1704067200000`, want: `decode JSON: field c, byte 5: want text such as 2024-01-31 23:59:59.999 for a TIMESTAMP(3) (a number has no unit: declare it BIGINT and convert it with TO_TIMESTAMP_LTZ), found the number 1704067200000`},
		{typ: row.TimestampLTZ(3), json: `"2024-01-01 00:00:00.5Z"`, want: `"2024-01-01 00:00:00.500Z"`, wantISO: `want text such as 2024-01-31T23:59:59.999Z for a TIMESTAMP_LTZ(3)`},
		{typ: row.TimestampLTZ(3), json: `"2024-01-01 00:00:00+02:00"`, want: `"2023-12-31 22:00:00.000Z"`, wantISO: `want text`},
		{typ: row.TimestampLTZ(3), json: `"2024-01-01T00:00:00-0130"`, want: `want text`},
		{typ: row.TimestampLTZ(3), json: `"2024-01-01 00:00:00"`, want: `want text such as 2024-01-31 23:59:59.999Z for a TIMESTAMP_LTZ(3)`},
		{typ: row.Array(row.Int()), json: `[1, null ,"3"]`, want: `[1, null, 3]`},
		{typ: row.Array(row.Array(row.String())), json: `[[],["a","\n"],null]`, want: `[[], ["a", "\n"], null]`},
		{typ: row.Array(row.Int()), json: `[1,"x"]`, want: `decode JSON: field c[1], byte 8: want a number for INT in its range, found the string "x"`},
		{typ: row.Array(row.Int()), json: `[1,]`, want: `decode JSON: field c[1], byte 8: want a number for INT in its range, found "]"`},
		{typ: row.Array(row.Int()), json: `{}`, want: `decode JSON: field c, byte 5: want an array for ARRAY<INT>, found an object`},
		{typ: row.Map(row.String(), row.Double()), json: `{"b":1,"a":2.5,"b":null}`, want: `[["a", 2.5], ["b", null]]`},
		{typ: row.Map(row.String(), row.Int()), json: `[]`, want: `decode JSON: field c, byte 5: want an object for MAP<STRING, INT>, found an array`},
		{typ: row.Multiset(row.String()), json: `{"b":1,"a":2}`, want: `[["a", 2], ["b", 1]]`},
		{typ: nested, json: `{"z":"1.5","q":[{}],"y":"t","x":1}`, want: `[1, "t", "1.50"]`},
		{typ: nested, json: `{"x":1,"x":2}`, want: `[2, null, null]`},
		{typ: nested, json: `{}`, want: `[null, null, null]`},
		{typ: nested, json: `{"x":"a"}`, want: `decode JSON: field c.x, byte 10: want a number for INT in its range, found the string "a"`},
		{typ: row.Array(nested), json: `[{"x":1,"y":"a"},{},null,{"z":3}]`, want: `[[1, "a", null], [null, null, null], null, [null, null, "3.00"]]`},
		{typ: nested, json: `7`, want: "want an object for ROW<`x` INT, `y` STRING, `z` DECIMAL(20, 2)>, found the number 7"},
	} {
		s := table("c", test.typ)
		for _, iso := range []bool{false, true} {
			var options []string
			want := test.want
			if iso {
				options = []string{"timestamp-format.standard", "iso-8601"}
				if test.wantISO != "" {
					want = test.wantISO
				} else if strings.Contains(want, "such as 2024-01-31 2") {
					continue
				}
			}
			d := mustDecoder(t, rowFormat(t, JSONRows(), options...), s)
			got, err := decodeRows(d, s, []byte(`{"c":`+test.json+`}`))
			if err != nil {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s of %s (ISO %v) is the error\n%s\nwant\n%s", test.typ, test.json, iso, err, want)
				}
				var je *JSONError
				if !errors.As(err, &je) {
					t.Errorf("%s of %s: the error is a %T", test.typ, test.json, err)
				}
			} else if got != "+I ["+want+"]" {
				t.Errorf("%s of %s (ISO %v) = %s, want %s", test.typ, test.json, iso, got, want)
			}
			// Where errors are ignored, it is NULL, and a document that is none is no row.
			if err != nil {
				d := mustDecoder(t, rowFormat(t, JSONRows(), append(options, "ignore-parse-errors", "true")...), s)
				got, lax := decodeRows(d, s, []byte(`{"c":`+test.json+`,"d":1}`))
				syntax := skipWhole([]byte(test.json)) != nil
				if lax != nil || syntax != (got == "") || !syntax && !strings.Contains(got, "null") {
					t.Errorf("%s of %s (ISO %v) without errors: %q, %v", test.typ, test.json, iso, got, lax)
				}
			}
		}
	}
}

// skipWhole checks a document.
func skipWhole(doc []byte) error {
	i, err := skipValue(doc, 0, 100)
	if err == nil {
		err = wantEnd(doc, i)
	}
	if err != nil {
		return err
	}
	return nil
}

func TestRowJSONDocuments(t *testing.T) {
	s := table("a", row.Int(), "b", row.String(), "c", row.Boolean())
	for _, test := range []struct {
		doc, want, lax, strict string // with no option, ignoring errors, and failing for missing fields if that is another one
	}{
		{doc: `{"a":1,"b":"x","c":true}`, want: `+I [1, "x", true]`},
		{doc: ` { "c" : true , "zz" : { "a" : [ 9 ] } , "b" : "x" , "a" : 1 } `, want: `+I [1, "x", true]`},
		{doc: `{"A":1,"a":2,"a":3,"b":"x","c":null,"a":4}`, want: `+I [4, "x", null]`},
		{doc: `{"\u0061":1,"b":"x","c":true}`, want: `+I [1, "x", true]`},
		{doc: `{"a":1,"a":null}`, want: `+I [null, null, null]`, strict: `decode JSON: field b, byte 0: want the field, which is missing`},
		{doc: `{}`, want: `+I [null, null, null]`, strict: `decode JSON: field a, byte 0: want the field, which is missing`},
		{doc: ``, want: ``},
		{doc: `[{"a":1,"b":"x","c":true}, {"a":2,"b":"y","c":null}]`, want: `+I [1, "x", true] +I [2, "y", null]`},
		{doc: `[]`, want: ``},
		{doc: `[1,{"a":2,"b":"y","c":null}]`, want: `decode JSON: field [0], byte 1: want an object, the columns of a row, found the number 1`, lax: `+I [2, "y", null]`},
		{doc: `null`, want: `decode JSON: byte 0: want an object, the columns of a row, found "null"`},
		{doc: `7`, want: `decode JSON: byte 0: want an object, the columns of a row, found the number 7`},
		{doc: ` `, want: `decode JSON: byte 1: want an object, the columns of a row, found the end of the input`},
		{doc: `{"a":1}{"a":2}`, want: `decode JSON: byte 7: want the end of the document, found an object`, strict: `decode JSON: field b, byte 0: want the field, which is missing`},
		{doc: `{"a":1`, want: `decode JSON: byte 6: want ',' or '}', found the end of the input`},
		{doc: `{"a":`, want: `decode JSON: field a, byte 5: want a number for INT in its range, found the end of the input`},
		{doc: `{"zz":[1,}`, want: `decode JSON: byte 9: want a JSON value, found "}"`},
		{doc: `{"a":1,}`, want: `decode JSON: byte 7: want a field name, found "}"`},
		{doc: `{"a" 1}`, want: `decode JSON: byte 5: want ':', found the number 1`},
		{doc: `{"a":x,"b":"x"}`, want: `decode JSON: field a, byte 5: want a number for INT in its range, found "x"`},
		{doc: `{"zz":` + strings.Repeat("[", 1001), want: `decode JSON: byte 1005: the document is nested too deep`},
	} {
		check := func(want string, options ...string) {
			t.Helper()
			d := mustDecoder(t, rowFormat(t, JSONRows(), options...), s)
			for range 3 { // what is learned of the first must not change the next
				got, err := decodeRows(d, s, []byte(test.doc))
				if err != nil {
					got = err.Error()
				}
				if got != want {
					t.Errorf("%s %v\n got %s\nwant %s", test.doc, options, got, want)
				}
			}
		}
		check(test.want)
		if test.lax == "" && !strings.HasPrefix(test.want, "decode") {
			test.lax = test.want
		}
		check(test.lax, "ignore-parse-errors", "true")
		if test.strict == "" {
			test.strict = test.want
		}
		check(test.strict, "fail-on-missing-field", "true")
	}
	d := mustDecoder(t, rowFormat(t, JSONRows()), s)
	if got, err := decodeRows(d, s, nil); got != "" || err != nil {
		t.Errorf("a tombstone is %q, %v", got, err)
	}
}

// TestRowJSONFlink reads what Flink has read.
func TestRowJSONFlink(t *testing.T) {
	// Why messages are read otherwise; what holds in one section only has its number in front.
	other := map[string]string{
		`9007199254740993.0`:              "exact", // and not by way of a DOUBLE
		"\"\u0663\"":                      "digits of other scripts are none",
		`"+12024-01-31"`:                  "years have four digits",
		`"-0001-01-01"`:                   "years have four digits",
		`0 "2024-01-31 12:34:56+02:00"`:   "a TIMESTAMP_LTZ may have an offset",
		`1 "2024-01-31T24:00:00"`:         "24:00 is the end of the day",
		`1 "2024-01-31T12:34:56.5+02:00"`: "a TIMESTAMP_LTZ may have an offset",
		"{\"s\":[1, {\"b\" : 1.50, \"c\":9007199254740993, \"d\":1e2}, \"\u00e4\\u00e4\\/\", null,true]}": "the text stays but for the blanks",
		`{"s":{"b":1,"a":2,"b":3}}`: "the text stays but for the blanks",
		`{"a":1} {"a":2}`:           "nothing may follow",
		`{"a":1}x`:                  "nothing may follow",
		`{"s":"\ud800"}`:            "text is UTF-8",
		"{\"s\":\"a\tb\"}":          "control characters are escaped",
	}
	types := map[string]*row.Type{"BOOLEAN": row.Boolean(), "TINYINT": row.TinyInt(), "SMALLINT": row.SmallInt(), "INT": row.Int(), "BIGINT": row.BigInt(),
		"FLOAT": row.Float(), "DOUBLE": row.Double(), "DECIMAL(5, 1)": row.Decimal(5, 1), "DECIMAL(30, 10)": row.Decimal(30, 10), "STRING": row.String(),
		"DATE": row.Date(), "TIME(0)": row.Time(0), "TIMESTAMP(3)": row.Timestamp(3), "TIMESTAMP_LTZ(3)": row.TimestampLTZ(3), "BYTES": row.Bytes(),
		"ROW<x INT, y ARRAY<INT>>": row.RowOf(row.Field{Name: "x", Type: row.Int()}, row.Field{Name: "y", Type: row.Array(row.Int())}),
		"MAP<STRING, INT>":         row.Map(row.String(), row.Int()), "MULTISET<STRING>": row.Multiset(row.String())}
	// Before version 19 Java has a digit too many for some FLOATs.
	older := strings.NewReplacer("2.14748365E9", "2.1474836E9", "9.0071993E15", "9.007199E15")
	text, err := os.ReadFile("testdata/flink_json.txt")
	if err != nil {
		t.Fatal(err)
	}
	for i, section := range strings.Split(string(text), "\n\n")[1:] {
		lines := strings.Split(strings.TrimSpace(section), "\n")
		head, iso := strings.CutPrefix(lines[0], "ISO-8601: ")
		options := []string{"ignore-parse-errors", "true"}
		if iso {
			options = append(options, "timestamp-format.standard", "ISO-8601")
		}
		var columns []any
		for head != "" {
			name, rest, _ := strings.Cut(head, " ")
			for n := len(rest); ; n-- { // the longest that is a type
				if typ := types[rest[:n]]; typ != nil {
					columns = append(columns, name, typ)
					head = strings.TrimPrefix(rest[n:], ", ")
					break
				}
			}
		}
		s := table(columns...)
		d := mustDecoder(t, rowFormat(t, JSONRows(), options...), s)
		for _, line := range lines[1:] {
			doc, want, ok := strings.Cut(line, " ==> ")
			if !ok {
				t.Fatalf("no arrow in %s", line)
			}
			message := doc
			if i < 2 {
				message = "{"
				for k := 0; k < len(columns); k += 2 {
					message += fmt.Sprintf("%q:%s,", columns[k], doc)
				}
				message = strings.TrimSuffix(message, ",") + "}"
			}
			got, err := decodeRows(d, s, []byte(message))
			if err != nil {
				t.Errorf("%s: %v", doc, err)
			}
			reason := other[doc]
			if reason == "" {
				reason = other[fmt.Sprint(i, " ", doc)]
			}
			if want = older.Replace(want); (got != want) != (reason != "") {
				t.Errorf("%s %v\n  got %s\nFlink %s\nreason to differ: %q", doc, options, got, want, reason)
			}
		}
	}
}

// TestRowJSONFields reads some fields of a ROW.
func TestRowJSONFields(t *testing.T) {
	typ := row.RowOf(row.Field{Name: "a", Type: row.Int()}, row.Field{Name: "b", Type: row.String()}, row.Field{Name: "c", Type: row.Decimal(20, 1)}, row.Field{Name: "d", Type: row.String()})
	doc := []byte(`{"r":{"d":"x","c":1.5,"b":"y","a":7},"s":1}`)
	for _, test := range []struct {
		fields []int
		want   string
	}{
		{nil, `+I [[7, "y", "1.5", "x"]]`},
		{[]int{}, `+I [[null, null, null, null]]`},
		{[]int{1}, `+I [[null, "y", null, null]]`},
		{[]int{0, 3}, `+I [[7, null, null, "x"]]`},
		{[]int{2}, `+I [[null, null, "1.5", null]]`},
	} {
		s := table("r", typ)
		s.Columns[0].Fields = test.fields
		d := mustDecoder(t, rowFormat(t, JSONRows()), s)
		for range 2 {
			if got, err := decodeRows(d, s, doc); got != test.want || err != nil {
				t.Errorf("%v: %s, %v, want %s", test.fields, got, err, test.want)
			}
		}
		if _, err := decodeRows(d, s, []byte(`{"r":{"d":"x","c":}}`)); err == nil {
			t.Error("fields that are not wanted are not checked")
		}
	}
}

// TestRowJSONLearns has documents whose fields come and go, so that guesses of names are wrong.
func TestRowJSONLearns(t *testing.T) {
	s := table("a", row.Int(), "b", row.Int())
	d := mustDecoder(t, rowFormat(t, JSONRows()), s)
	for i := range 3000 {
		doc := fmt.Sprintf(`{"n%d":0, "a":%d,"x":[],"b" :%d}`, i, i, -i)
		switch i % 4 {
		case 1:
			doc = fmt.Sprintf(`{"b":%d,"a":%d}`, -i, i)
		case 2:
			doc = fmt.Sprintf(`{"x":1,"b":%d,"m":{"a":7},"a": %d}`, -i, i)
		}
		got, err := decodeRows(d, s, []byte(doc))
		if want := fmt.Sprintf("+I [%d, %d]", i, -i); got != want || err != nil {
			t.Fatalf("%s: %s, %v", doc, got, err)
		}
	}
	if n := len(d.(*jsonRowDecoder).root.names); n > 2+mostLearned {
		t.Errorf("%d names are kept", n)
	}
	// After a document the next one's names are guessed in order.
	d = mustDecoder(t, rowFormat(t, JSONRows()), s)
	if _, err := decodeRows(d, s, []byte(`{"x":1,"b" : 2,"y":3,"a":4}`)); err != nil {
		t.Fatal(err)
	}
	root, guessed := d.(*jsonRowDecoder).root, ""
	for at := root.first; at >= 0; at = root.names[at].next {
		guessed += root.names[at].lead
	}
	if want := `"x":"b" : "y":"a":`; guessed != want {
		t.Errorf("guessed %s, want %s", guessed, want)
	}
}

// TestStampTextKeepsTheDay writes and reads times of several days with one stampText.
func TestStampTextKeepsTheDay(t *testing.T) {
	s, other := newStampText(row.Timestamp(3), false), newStampText(row.Timestamp(3), false)
	for _, text := range []string{"2024-01-31 23:59:59.5", "1970-01-01 00:00:00", "1970-01-01 00:00:01", "1969-12-31 00:00:00", "2024-01-31 00:00:00.001", "0001-01-01 00:00:00"} {
		ms, nanos, err := row.ParseTimestamp([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(s.append(nil, ms, nanos)); got != text {
			t.Errorf("%s is written as %s", text, got)
		}
		if got, _, ok := other.read([]byte(text)); got != ms || !ok {
			t.Errorf("%s is read as %d, want %d", text, got, ms)
		}
	}
}

func TestRowJSONEncode(t *testing.T) {
	nested := row.RowOf(row.Field{Name: "x", Type: row.Int()}, row.Field{Name: "y", Type: row.String()})
	stamp := func(text string) row.Stamp {
		ms, nanos, err := row.ParseTimestamp([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return row.Stamp{Ms: ms, Nanos: nanos}
	}
	for _, test := range []struct {
		typ     *row.Type
		value   row.Value
		want    string
		options []string
	}{
		{typ: row.Boolean(), value: true, want: `{"c":true}`},
		{typ: row.Boolean(), value: false, want: `{"c":false}`},
		{typ: row.BigInt(), value: int64(-9223372036854775808), want: `{"c":-9223372036854775808}`},
		{typ: row.BigInt(), value: int64(9007199254740993), want: `{"c":9007199254740993}`},
		{typ: row.TinyInt(), value: -1, want: `{"c":-1}`},
		{typ: row.Double(), value: 1e7, want: `{"c":1.0E7}`},
		{typ: row.Double(), value: 0.1, want: `{"c":0.1}`},
		{typ: row.Float(), value: 0.1, want: `{"c":0.1}`},
		{typ: row.Decimal(10, 2), value: row.DecInt(-150), want: `{"c":-1.5}`},
		{typ: row.Decimal(10, 2), value: row.DecInt(-150), want: `{"c":-1.50}`, options: []string{"encode.decimal-as-plain-number", "true"}},
		{typ: row.Decimal(10, 2), value: row.DecInt(10000000), want: `{"c":1E+5}`},
		{typ: row.Decimal(10, 0), value: row.DecInt(123000), want: `{"c":1.23E+5}`},
		{typ: row.Decimal(10, 2), value: row.DecInt(12345), want: `{"c":123.45}`},
		{typ: row.Decimal(10, 2), value: row.DecInt(12300), want: `{"c":123}`},
		{typ: row.Decimal(10, 2), value: row.DecInt(5), want: `{"c":0.05}`},
		{typ: row.Decimal(10, 8), value: row.DecInt(100), want: `{"c":0.000001}`},
		{typ: row.Decimal(10, 8), value: row.DecInt(12), want: `{"c":1.2E-7}`},
		{typ: row.Decimal(10, 8), value: row.DecInt(12), want: `{"c":0.00000012}`, options: []string{"encode.decimal-as-plain-number", "true"}},
		{typ: row.Decimal(10, 8), value: row.DecInt(-123), want: `{"c":-0.00000123}`},
		{typ: row.Decimal(10, 8), value: row.DecInt(0), want: `{"c":0}`},
		{typ: row.Decimal(10, 8), value: row.DecInt(1), want: `{"c":1E-8}`},
		{typ: row.String(), value: "<a href=\"x\">\n\u2028\x01&\u00e4", want: "{\"c\":\"<a href=\\\"x\\\">\\n\\u2028\\u0001&\u00e4\"}"},
		{typ: row.String(), value: "a\xffb", want: `{"c":"a` + "\uFFFD" + `b"}`},
		{typ: row.Bytes(), value: []byte{10, 0, 255}, want: `{"c":"CgD/"}`},
		{typ: row.Date(), value: 19753, want: `{"c":"2024-01-31"}`},
		{typ: row.Time(3), value: 86399120, want: `{"c":"23:59:59.12"}`},
		{typ: row.Time(0), value: 0, want: `{"c":"00:00:00"}`},
		{typ: row.Timestamp(3), value: stamp("2024-01-31 23:59:59"), want: `{"c":"2024-01-31 23:59:59"}`},
		{typ: row.Timestamp(3), value: stamp("2024-01-31 23:59:59.120"), want: `{"c":"2024-01-31T23:59:59.12"}`, options: []string{"timestamp-format.standard", "ISO-8601"}},
		{typ: row.Timestamp(9), value: stamp("1969-12-31 23:59:59.000000001"), want: `{"c":"1969-12-31 23:59:59.000000001"}`},
		{typ: row.TimestampLTZ(3), value: stamp("2024-01-31 23:59:59.5"), want: `{"c":"2024-01-31 23:59:59.5Z"}`},
		{typ: row.Array(row.Int()), value: []row.Value{int64(1), nil}, want: `{"c":[1,null]}`},
		{typ: row.Map(row.String(), row.Int()), value: []row.Entry{{Key: "b", Value: int64(1)}, {Key: "a", Value: nil}}, want: `{"c":{"b":1,"a":null}}`},
		{typ: row.Map(row.String(), row.Int()), value: []row.Entry{}, want: `{"c":{}}`},
		{typ: row.Map(row.String(), row.Int()), value: []row.Entry{{Key: nil, Value: int64(1)}}, want: `encode JSON: field c: a key of the map is NULL, which JSON does not have: set 'map-null-key.mode' of the format to DROP or LITERAL`},
		{typ: row.Map(row.String(), row.Int()), value: []row.Entry{{Key: nil, Value: int64(1)}}, want: `{"c":{}}`, options: []string{"map-null-key.mode", "drop"}},
		{typ: row.Map(row.String(), row.Int()), value: []row.Entry{{Key: nil, Value: int64(1)}}, want: `{"c":{"none":1}}`, options: []string{"map-null-key.mode", "LITERAL", "map-null-key.literal", "none"}},
		{typ: row.Multiset(row.String()), value: []row.Entry{{Key: "b", Value: int64(2)}}, want: `{"c":{"b":2}}`},
		{typ: nested, value: []row.Value{nil, "a"}, want: `{"c":{"x":null,"y":"a"}}`},
		{typ: nested, value: []row.Value{nil, "a"}, want: `{"c":{"y":"a"}}`, options: []string{"encode.ignore-null-fields", "true"}},
		{typ: nested, value: nil, want: `{"c":null}`},
		{typ: nested, value: nil, want: `{}`, options: []string{"encode.ignore-null-fields", "true"}},
	} {
		s := table("c", test.typ)
		r := nullRow(s.Layout)
		s.Layout.Set(r, 1, test.value)
		e := mustEncoder(t, rowFormat(t, JSONRows(), test.options...), s)
		for range 2 {
			got, err := e.Append([]byte("before"), r)
			if err != nil {
				got = append(got, err.Error()...)
			}
			if string(got) != "before"+test.want {
				t.Errorf("%s of %v: %s, want %s", test.typ, test.value, got, test.want)
			}
		}
	}
}

func TestRowJSONTypes(t *testing.T) {
	for _, typ := range []*row.Type{row.Map(row.Int(), row.Int()), row.Multiset(row.Int()), row.Array(row.Map(row.Date(), row.Int()))} {
		f := rowFormat(t, JSONRows())
		_, err := f.RowDecoder(table("c", typ))
		_, err2 := f.RowEncoder(table("c", typ))
		if err == nil || err2 == nil || err.Error() != err2.Error() || !strings.Contains(err.Error(), "column c: ") || !strings.Contains(err.Error(), "has no JSON form") {
			t.Errorf("%s: %v, %v", typ, err, err2)
		}
	}
	if _, err := newRowFormat(JSONRows(), "fail-on-missing-field", "true", "ignore-parse-errors", "true"); err == nil {
		t.Error("options that contradict each other are taken")
	}
}

// TestRowJSONRoundTrip encodes random rows of random tables and decodes them again.
func TestRowJSONRoundTrip(t *testing.T) {
	for seed := range uint64(2000) {
		g := newRowGen(seed)
		var options []string
		if g.IntN(2) == 0 {
			options = append(options, "timestamp-format.standard", "ISO-8601")
		}
		if g.IntN(2) == 0 {
			options = append(options, "encode.decimal-as-plain-number", "true")
		}
		if g.IntN(3) == 0 {
			options = append(options, "ignore-parse-errors", "true")
		}
		checkRoundTrip(t, rowFormat(t, JSONRows(), options...), g)
	}
}

// checkRoundTrip decodes what was encoded, encodes that again, and looks whether nothing was written to that was handed
// out before.
func checkRoundTrip(t *testing.T, f RowFormat, g *rowGen) {
	t.Helper()
	s := g.schema()
	e, d := mustEncoder(t, f, s), mustDecoder(t, f, s)
	for range 5 {
		r := g.row(s)
		doc, err := e.Append(nil, r)
		if err != nil {
			t.Fatalf("%s: %v", rowText(s, r), err)
		}
		back := nullRow(s.Layout)
		if err := d.Decode(doc, func() *row.Row { return back }); err != nil {
			t.Fatalf("%s: %s: %v", rowText(s, r), doc, err)
		}
		if got, want := rowText(s, back), rowText(s, r); got != want {
			t.Fatalf("%s\n got %s\nwant %s", doc, got, want)
		}
		again, err := e.Append(nil, back)
		if err != nil || string(again) != string(doc) {
			t.Fatalf("%s is encoded again as %s, %v", doc, again, err)
		}
		for i := range s.Layout.Len() {
			if s.Layout.Place(i).Bank == row.Views && s.Layout.Type(i).Kind().Nested() && !back.Null(i) {
				if err := row.CheckNested(s.Layout.Type(i), back.S[s.Layout.Place(i).Index]); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
