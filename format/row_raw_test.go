package format

import (
	"bytes"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/row"
)

func TestRowRaw(t *testing.T) {
	for _, test := range []struct {
		typ     *row.Type
		data    []byte
		want    string
		options []string
	}{
		{typ: row.String(), data: []byte("a\u00e4"), want: "\"a\u00e4\""},
		{typ: row.String(), data: []byte{}, want: `""`},
		{typ: row.String(), data: nil, want: `null`},
		{typ: row.String(), data: []byte{'a', 0xe4}, want: "\"a\u00e4\"", options: []string{"charset", "ISO-8859-1"}},
		{typ: row.String(), data: []byte{0xd6, 0xd0}, want: "\"\u4e2d\"", options: []string{"charset", "GBK"}},
		{typ: row.Bytes(), data: []byte{0, 255}, want: `"x'00FF'"`},
		{typ: row.Bytes(), data: nil, want: `null`},
		{typ: row.Boolean(), data: []byte{1}, want: `true`},
		{typ: row.Boolean(), data: []byte{0}, want: `false`},
		{typ: row.TinyInt(), data: []byte{0xff}, want: `-1`},
		{typ: row.SmallInt(), data: []byte{0xff, 0xfe}, want: `-2`},
		{typ: row.SmallInt(), data: []byte{0xfe, 0xff}, want: `-2`, options: []string{"endianness", "little-endian"}},
		{typ: row.Int(), data: []byte{0x80, 0, 0, 0}, want: `-2147483648`},
		{typ: row.Int(), data: nil, want: `null`},
		{typ: row.BigInt(), data: []byte{0, 0x20, 0, 0, 0, 0, 0, 1}, want: `9007199254740993`},
		{typ: row.BigInt(), data: []byte{1, 0, 0, 0, 0, 0, 0x20, 0}, want: `9007199254740993`, options: []string{"endianness", "little-endian"}},
		{typ: row.Float(), data: []byte{0x3f, 0xc0, 0, 0}, want: `1.5`},
		{typ: row.Double(), data: []byte{0xc0, 0x04, 0, 0, 0, 0, 0, 0}, want: `-2.5`},
	} {
		f := rowFormat(t, RawRows(), test.options...)
		s := table("c", test.typ)
		d, e := mustDecoder(t, f, s), mustEncoder(t, f, s)
		got, err := decodeRows(d, s, test.data)
		if got != "+I ["+test.want+"]" || err != nil {
			t.Errorf("%s of %x: %s, %v, want %s", test.typ, test.data, got, err, test.want)
		}
		r := nullRow(s.Layout)
		if err := d.Decode(test.data, func() *row.Row { return r }); err != nil {
			t.Error(err)
		}
		back, err := e.Append([]byte{}, r)
		if !bytes.Equal(back, test.data) || (back == nil) != (test.data == nil) || err != nil {
			t.Errorf("%s of %x is written as %x, %v", test.typ, test.data, back, err)
		}
	}
	d := mustDecoder(t, rowFormat(t, RawRows()), table("c", row.Int()))
	if _, err := decodeRows(d, table("c", row.Int()), []byte{1, 2, 3}); err == nil || err.Error() != "decode raw message: column c: want 4 bytes for INT, found 3" {
		t.Errorf("three bytes for an INT: %v", err)
	}
	for name, s := range map[string]RowSchema{"has one column, not 2": table("a", row.Int(), "b", row.Int()), "column d: DATE has no raw form": table("d", row.Date())} {
		_, err := rowFormat(t, RawRows()).RowDecoder(s)
		_, err2 := rowFormat(t, RawRows()).RowEncoder(s)
		if err == nil || err2 == nil || !strings.Contains(err.Error(), name) || err.Error() != err2.Error() {
			t.Errorf("%s: %v, %v", name, err, err2)
		}
	}
	if _, err := newRowFormat(RawRows(), "charset", "latin-99"); err == nil || !strings.Contains(err.Error(), "'f.charset' = 'latin-99'") {
		t.Errorf("an unknown character set: %v", err)
	}
	// A table that asks for no column has its rows all the same.
	s := table("c", row.Int())
	s.Message, s.Columns = s.All(), nil
	if _, err := decodeRows(mustDecoder(t, rowFormat(t, RawRows(), "charset", "GBK"), s), s, []byte{1}); err == nil || !strings.Contains(err.Error(), "column c: want 4 bytes") {
		t.Errorf("one byte for an INT: %v", err)
	}
	if got, err := decodeRows(mustDecoder(t, rowFormat(t, RawRows()), s), s, []byte{0, 0, 0, 1}); got != "+I []" || err != nil {
		t.Errorf("no column: %s, %v", got, err)
	}
}
