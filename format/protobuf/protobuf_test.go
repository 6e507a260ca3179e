package protobuf

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/format/formattest"
	"github.com/millrace-stream/millrace/format/registry"
	"github.com/millrace-stream/millrace/row"
)

const allProto, oldProto = "testdata/all.proto", "testdata/old.proto"

func col(name string, t *row.Type) row.Field { return row.Field{Name: name, Type: t} }

func newFormat(t testing.TB, name string, options ...string) format.RowFormat {
	t.Helper()
	m := map[string]string{}
	for i := 0; i < len(options); i += 2 {
		m[options[i]] = options[i+1]
	}
	return formattest.New(t, Formats(), name, m)
}

func newDecoder(t testing.TB, f format.RowFormat, s format.RowSchema) format.RowDecoder {
	t.Helper()
	d, err := f.RowDecoder(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// decode decodes a message and gives the rows as text.
func decode(t testing.TB, d format.RowDecoder, s format.RowSchema, data []byte) (texts []string, err error) {
	t.Helper()
	rows, err := formattest.Rows(t, d, s, data)
	for _, r := range rows {
		texts = append(texts, string(s.Layout.AppendResult(nil, r)))
	}
	return texts, err
}

func descriptor(t testing.TB, file, name string) protoreflect.MessageDescriptor {
	t.Helper()
	d, err := compileFile(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := find([]protoreflect.FileDescriptor{d}, name, "")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// text is a message in the text form of Protobuf.
func text(t testing.TB, d protoreflect.MessageDescriptor, s string) []byte {
	t.Helper()
	m := dynamicpb.NewMessage(d)
	if err := (prototext.UnmarshalOptions{AllowPartial: true}).Unmarshal([]byte(s), m); err != nil {
		t.Fatal(err)
	}
	b, err := proto.MarshalOptions{Deterministic: true, AllowPartial: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestTypes is the table of types in the documentation: what a field has and a column takes; the message is read, and if
// the type can be written too, written again.
func TestTypes(t *testing.T) {
	inner := row.RowOf(col("a", row.Int()), col("b", row.String()))
	order := descriptor(t, allProto, "Order")
	for _, c := range []struct {
		column  row.Field
		message string
		want    string
		refused string
	}{
		{col("flag", row.Boolean()), "flag: true", "true", ""},
		{col("flag", row.Boolean()), "", "false", ""},
		{col("i32", row.Int()), "i32: -2147483648", "-2147483648", ""},
		{col("i32", row.BigInt()), "i32: -1", "-1", ""},
		{col("s32", row.Int()), "s32: -2147483648", "-2147483648", ""},
		{col("u32", row.Int()), "u32: 5", "5", ""},
		{col("u32", row.Int()), "u32: 4294967295", "4294967295 is no INT; declare BIGINT", ""},
		{col("u32", row.BigInt()), "u32: 4294967295", "4294967295", ""},
		{col("sf32", row.Int()), "sf32: -7", "-7", ""},
		{col("f32", row.BigInt()), "f32: 4294967295", "4294967295", ""},
		{col("i64", row.BigInt()), "i64: -9223372036854775808", "-9223372036854775808", ""},
		{col("i64", row.BigInt()), "i64: 9007199254740993", "9007199254740993", ""},
		{col("s64", row.BigInt()), "s64: -9223372036854775808", "-9223372036854775808", ""},
		{col("u64", row.BigInt()), "u64: 9223372036854775807", "9223372036854775807", ""},
		{col("u64", row.BigInt()), "u64: 18446744073709551615", "18446744073709551615 is no BIGINT; declare DECIMAL(20, 0)", ""},
		{col("u64", row.Decimal(20, 0)), "u64: 18446744073709551615", `"18446744073709551615"`, ""},
		{col("sf64", row.BigInt()), "sf64: -7", "-7", ""},
		{col("f64", row.BigInt()), "f64: 7", "7", ""},
		{col("fl", row.Float()), "fl: 0.1", "0.1", ""},
		{col("fl", row.Double()), "fl: 0.5", "0.5", ""},
		{col("db", row.Double()), "db: -0.0", "-0.0", ""},
		{col("text", row.String()), "text: 'gr\\303\\274n'", `"gr` + "\u00fc" + `n"`, ""},
		{col("text", row.VarChar(3)), "", `""`, ""},
		{col("raw", row.Bytes()), "raw: '\\377'", `"x'FF'"`, ""},
		{col("state", row.String()), "state: PAID", `"PAID"`, ""},
		{col("state", row.String()), "", `"UNKNOWN"`, ""},
		{col("state", row.Int()), "state: FAR", "-5", ""},
		{col("state", row.TinyInt()), "state: 99", "99", ""},
		{col("state", row.TinyInt()), "state: 200", "200 is no TINYINT", ""},
		{col("maybe", row.Int()), "maybe: 0", "0", ""},
		{col("maybe", row.Int()), "", "null", ""},
		{col("maybe", row.Int().NotNull()), "", "is not in the message, and the column is NOT NULL", ""},
		{col("inner", inner), "inner { a: 1 b: 'x' }", `[1, "x"]`, ""},
		{col("inner", inner), "inner { }", `[0, ""]`, ""},
		{col("inner", inner), "", "null", ""},
		{col("inner", row.RowOf(col("deeper", row.RowOf(col("deeper", inner))))), "inner { deeper { deeper { a: 3 } } }", `[[[3, ""]]]`, ""},
		{col("numbers", row.Array(row.Int())), "numbers: [1, -1, 300]", "[1, -1, 300]", ""},
		{col("numbers", row.Array(row.Int())), "", "null", ""},
		{col("numbers", row.Array(row.Int()).NotNull()), "", "[]", ""},
		{col("loose", row.Array(row.Int())), "loose: [1, -1, 300]", "[1, -1, 300]", ""},
		{col("words", row.Array(row.String())), "words: ['a', '']", `["a", ""]`, ""},
		{col("states", row.Array(row.String())), "states: [NEW, PAID]", `["NEW", "PAID"]`, ""},
		{col("inners", row.Array(inner)), "inners { a: 1 } inners { b: 'x' }", `[[1, ""], [0, "x"]]`, ""},
		{col("counts", row.Map(row.String(), row.BigInt())), "counts { key: 'a' value: 5 }", `[["a", 5]]`, ""},
		{col("by_id", row.Map(row.Int(), inner)), "by_id { key: 4 value { a: 1 } }", `[[4, [1, ""]]]`, ""},
		{col("by_name", row.String()), "by_name: ''", `""`, ""},
		{col("by_name", row.String()), "by_number: 4", "null", ""},
		{col("at", row.Timestamp(3)), "at { seconds: 1704067200 nanos: 123456789 }", `"2024-01-01 00:00:00.123"`, ""},
		{col("at", row.TimestampLTZ(9)), "at { seconds: -1 nanos: 999999999 }", `"1969-12-31 23:59:59.999999999Z"`, ""},
		{col("at", row.TimestampLTZ(3)), "at { }", `"1970-01-01 00:00:00.000Z"`, ""},
		{col("at", row.TimestampLTZ(3)), "at { nanos: 1000000000 }", "0 seconds and 1000000000 nanos are no timestamp", ""},
		{col("at", row.TimestampLTZ(3)), "", "null", ""},
		{col("at", row.RowOf(col("seconds", row.BigInt()), col("nanos", row.Int()))), "at { seconds: 5 nanos: 7 }", "[5, 7]", ""},
		{col("wrapped", row.String()), "wrapped { value: 'x' }", `"x"`, ""},
		{col("wrapped", row.String()), "wrapped { }", `""`, ""},
		{col("wrapped", row.String()), "", "null", ""},
		{col("wrapped", row.RowOf(col("value", row.String()))), "wrapped { value: 'x' }", `["x"]`, ""},
		{col("price", row.RowOf(col("currency", row.String()), col("units", row.BigInt()))), "price { units: 2 }", `["", 2]`, ""},
		{col("far_number", row.Int()), "far_number: 8", "8", ""},
		{col("flags", row.Boolean()), "", "", "column flags is no field of message shop.v1.Order; did you mean flag?"},
		{col("zzzzzz", row.Boolean()), "", "", "there are: flag, i32"},
		{col("i64", row.Int()), "", "", "field i64 is int64, which does not go with INT"},
		{col("text", row.Int()), "", "", "field text is string, which does not go with INT"},
		{col("numbers", row.Int()), "", "", "field numbers is repeated int32, which does not go with INT"},
		{col("inner", row.RowOf(col("c", row.Int()))), "", "", "column inner.c is no field of message shop.v1.Order.Inner"},
		{col("counts", row.Map(row.Int(), row.BigInt())), "", "", "field counts{key} is string, which does not go with INT"},
		{col("price", row.String()), "", "", "field price is message money.Money, which does not go with STRING"},
	} {
		t.Run(c.column.Name+" "+c.column.Type.String()+" "+c.message, func(t *testing.T) {
			s := formattest.Table(c.column)
			f := newFormat(t, "protobuf", "schema-file", allProto, "message-name", "shop.v1.Order")
			d, err := f.RowDecoder(s)
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("error %v, want %s", err, c.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			m := text(t, order, c.message)
			var out *row.Row
			err = d.Decode(m, func() *row.Row { out = s.Layout.New(); return out })
			if err != nil {
				if want := "field " + c.column.Name + ": " + c.want; !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want %s", err, want)
				}
				return
			}
			if got := string(s.Layout.AppendResult(nil, out)); got != "["+c.want+"]" {
				t.Errorf("got %s, want %s", got, c.want)
			}
			e, err := f.RowEncoder(s)
			if err != nil {
				t.Fatal(err)
			}
			b, err := e.Append(nil, out)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := decode(t, d, s, b); err != nil || again[0] != "["+c.want+"]" {
				t.Errorf("written and read again: %v, error %v; want %s", again, err, c.want)
			}
		})
	}
}

// Golden bytes, as protoc's own programs write them.
func TestGolden(t *testing.T) {
	inner := row.RowOf(col("a", row.Int()), col("b", row.String()))
	s := formattest.Table(col("numbers", row.Array(row.Int())), col("loose", row.Array(row.SmallInt())), col("inner", inner), col("counts", row.Map(row.String(), row.BigInt())), col("at", row.TimestampLTZ(3)),
		col("state", row.String()), col("s64", row.BigInt()), col("db", row.Double()), col("i32", row.TinyInt()), col("i64", row.Int()), col("wrapped", row.String()), col("text", row.String()))
	e, err := newFormat(t, "protobuf", "schema-file", allProto, "message-name", "Order").RowEncoder(s)
	if err != nil {
		t.Fatal(err)
	}
	r := s.Layout.RowOf([]row.Value{1, 300}, []row.Value{-1}, []row.Value{nil, "x"}, []row.Entry{{Key: "k", Value: 1}}, row.Stamp{Ms: 1500}, "PAID", -1, -0.5, -1, 7, "", nil)
	b, err := e.Append(nil, r)
	if err != nil {
		t.Fatal(err)
	}
	want := "10ffffffffffffffffff01" + "3807" + "4001" + "69000000000000e0bf" + "800102" + "9201031201" + "78" + "9a0103" + "01ac02" +
		"a001ffffffffffffffffff01" + "c20105" + "0a016b" + "1001" + "ea0108" + "0801" + "1080cab5ee01" + "f20100"
	if got := hex.EncodeToString(b); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	library := text(t, descriptor(t, allProto, "Order"), `i32: -1 i64: 7 s64: -1 db: -0.5 state: PAID inner { b: 'x' } numbers: [1, 300] loose: -1 counts { key: 'k' value: 1 } at { seconds: 1 nanos: 500000000 } wrapped { }`)
	if got := hex.EncodeToString(library); got != want {
		t.Errorf("the library has %s\nwant %s", got, want)
	}
}

func TestProto2(t *testing.T) {
	old := descriptor(t, oldProto, "Old")
	s := formattest.Table(col("id", row.Int()), col("n", row.Int()), col("s", row.String()), col("color", row.String()), col("part", row.RowOf(col("x", row.Int()))),
		col("list", row.Array(row.Int())), col("raw", row.Bytes()), col("b", row.Boolean()), col("d", row.Double()), col("colors", row.Array(row.Int())))
	for _, c := range []struct{ defaults, message, want string }{
		{"false", "id: 1", `[1, null, null, null, null, null, null, null, null, null]`},
		{"true", "id: 1", `[1, 7, "none", "BLUE", [0], [], "x'6162'", true, -1.5, []]`},
		{"true", "id: 1 n: 0 s: '' color: RED Part { x: 5 } list: 3 raw: '' b: false d: 0 colors: BLUE", `[1, 0, "", "RED", [5], [3], "x''", false, 0.0, [2]]`},
		{"false", "id: 1 n: 0 s: '' color: RED Part { x: 5 } list: 3 raw: '' b: false d: 0 colors: BLUE", `[1, 0, "", "RED", [5], [3], "x''", false, 0.0, [2]]`},
	} {
		f := newFormat(t, "protobuf", "schema-file", oldProto, "read-default-values", c.defaults)
		d := newDecoder(t, f, s)
		m := text(t, old, c.message)
		rows, err := decode(t, d, s, m)
		if err != nil || rows[0] != c.want {
			t.Errorf("%s: %v, error %v; want %s", c.message, rows, err, c.want)
		}
		if c.defaults == "true" {
			continue
		}
		// What is written is what the library writes.
		out := s.Layout.New()
		if err := d.Decode(m, func() *row.Row { return out }); err != nil {
			t.Fatal(err)
		}
		e, err := f.RowEncoder(s)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := e.Append(nil, out); err != nil || !bytes.Equal(b, m) {
			t.Errorf("%s: written % x, error %v; want % x", c.message, b, err, m)
		}
	}
	f := newFormat(t, "protobuf", "schema-file", oldProto)
	// An unknown number of a closed enum is as if it were not there.
	m := protowire.AppendVarint(protowire.AppendTag(text(t, old, "id: 1 color: RED"), 4, protowire.VarintType), 9)
	if rows, err := decode(t, newDecoder(t, f, s), s, m); err != nil || !strings.Contains(rows[0], `"RED"`) {
		t.Errorf("%v, error %v", rows, err)
	}
	if _, err := f.RowEncoder(formattest.Table(col("n", row.Int()))); err == nil || !strings.Contains(err.Error(), "field id of message old.Old is required") {
		t.Errorf("error %v", err)
	}
	for _, c := range []struct {
		s    format.RowSchema
		row  []row.Value
		want string
	}{
		{formattest.Table(col("id", row.Int())), []row.Value{nil}, "field id: NULL, and it is required"},
		{formattest.Table(col("id", row.Int()), col("color", row.String())), []row.Value{1, "GREEN"}, "field color: 'GREEN' is no name of the enum"},
		{formattest.Table(col("id", row.Int()), col("color", row.Int())), []row.Value{1, 3}, "field color: 3 is no number of the enum"},
	} {
		e, err := f.RowEncoder(c.s)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Append(nil, c.s.Layout.RowOf(c.row...)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %s", err, c.want)
		}
	}
}

// What the wire may do: a message in pieces, packed or not, the last of a field and of a oneof, unknown fields.
func TestWireForms(t *testing.T) {
	order := descriptor(t, allProto, "Order")
	tx := func(s string) []byte { return text(t, order, s) }
	join := func(parts ...[]byte) []byte { return slices.Concat(parts...) }
	inner := row.RowOf(col("a", row.Int()), col("b", row.String()), col("list", row.Array(row.Int())))
	s := formattest.Table(col("i32", row.Int()), col("inner", inner), col("numbers", row.Array(row.Int())), col("loose", row.Array(row.Int())), col("by_name", row.String()), col("by_number", row.BigInt()), col("by_inner", inner),
		col("counts", row.Map(row.String(), row.BigInt())))
	d := newDecoder(t, newFormat(t, "protobuf", "schema-file", allProto, "message-name", "Order"), s)
	const none = "null, null, null"
	for _, c := range []struct {
		message []byte
		want    string
	}{
		{join(tx("i32: 1"), tx("i32: 2")), "[2, null, null, null, " + none + ", null]"},
		{join(tx("inner { a: 1 list: 1 }"), tx("inner { b: 'x' }"), tx("inner { a: 3 list: 2 }")), `[0, [3, "x", [1, 2]], null, null, ` + none + ", null]"},
		{join(tx("numbers: 1"), protowire.AppendVarint(protowire.AppendTag(nil, 19, protowire.VarintType), 2)), "[0, null, [1, 2], null, " + none + ", null]"},
		{join(tx("loose: 1"), protowire.AppendBytes(protowire.AppendTag(nil, 20, protowire.BytesType), []byte{2, 3})), "[0, null, null, [1, 2, 3], " + none + ", null]"},
		{join(tx("by_name: 'x'"), tx("by_number: 4")), "[0, null, null, null, null, 4, null, null]"},
		{join(tx("by_inner { a: 1 }"), tx("by_name: 'x'")), `[0, null, null, null, "x", null, null, null]`},
		{join(tx("by_name: 'x'"), tx("by_inner { a: 1 }")), `[0, null, null, null, null, null, [1, "", null], null]`},
		{join(tx("text: 'not wanted' far_number: 3 db: 1 fl: 1"), tx("i32: 7")), "[7, null, null, null, " + none + ", null]"},
		{join(protowire.AppendVarint(protowire.AppendTag(nil, 18, protowire.VarintType), 2), tx("i32: 7")), "[7, null, null, null, " + none + ", null]"},
		{protowire.AppendBytes(protowire.AppendTag(nil, 24, protowire.BytesType), nil), `[0, null, null, null, ` + none + `, [["", 0]]]`},
		{join(tx("counts { key: 'a' value: 1 }"), tx("counts { key: 'a' value: 2 }")), `[0, null, null, null, ` + none + `, [["a", 2]]]`},
		{nil, ""},
		{[]byte{}, "[0, null, null, null, " + none + ", null]"},
	} {
		rows, err := decode(t, d, s, c.message)
		if err != nil || strings.Join(rows, "; ") != c.want {
			t.Errorf("% x: %v, error %v; want %s", c.message, rows, err, c.want)
		}
	}
}

func TestWrongMessages(t *testing.T) {
	s := formattest.Table(col("text", row.String()), col("numbers", row.Array(row.Int())), col("inner", row.RowOf(col("a", row.Int()))), col("counts", row.Map(row.String(), row.BigInt())))
	f := newFormat(t, "protobuf", "schema-file", allProto, "message-name", "Order")
	lax := newFormat(t, "protobuf", "schema-file", allProto, "message-name", "Order", "ignore-parse-errors", "true")
	for _, c := range []struct{ hex, want string }{
		{"72", errWire.Error()},
		{"7205", errWire.Error()},
		{"7202c328", "field text: the text is not UTF-8"},
		{"9a0101ff", errWire.Error()},
		{"920102ffff", errWire.Error()},
		{"c2010288ff", errWire.Error()},
		{"07", errWire.Error()},
		{"0b", errWire.Error()},
	} {
		b, err := hex.DecodeString(c.hex)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decode(t, newDecoder(t, f, s), s, b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %s", c.hex, err, c.want)
		}
		if rows, err := decode(t, newDecoder(t, lax, s), s, b); err != nil || rows != nil {
			t.Errorf("%s, ignore-parse-errors: %v, error %v", c.hex, rows, err)
		}
	}
}

// NULL inside of lists and maps, and columns of one oneof.
func TestWriteNull(t *testing.T) {
	s := formattest.Table(col("words", row.Array(row.String())), col("numbers", row.Array(row.Int())), col("states", row.Array(row.String())), col("inners", row.Array(row.RowOf(col("a", row.Int())))),
		col("by_id", row.Map(row.Int(), row.RowOf(col("a", row.Int())))), col("by_number", row.BigInt()), col("by_name", row.String()))
	f := newFormat(t, "protobuf", "schema-file", allProto, "message-name", "Order", "write-null-string-literal", "NIL")
	e, err := f.RowEncoder(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		row  []row.Value
		want string
	}{
		{[]row.Value{[]row.Value{nil, "a"}, []row.Value{1, nil}, []row.Value{nil}, []row.Value{nil}, []row.Entry{{Key: 1}}, 4, "x"}, `[["NIL", "a"], [1, 0], ["UNKNOWN"], [[0]], [[1, [0]]], null, "x"]`},
		{[]row.Value{nil, nil, nil, nil, nil, 4, nil}, `[null, null, null, null, null, 4, null]`},
	} {
		b, err := e.Append(nil, s.Layout.RowOf(c.row...))
		if err != nil {
			t.Fatal(err)
		}
		if rows, err := decode(t, newDecoder(t, f, s), s, b); err != nil || rows[0] != c.want {
			t.Errorf("got %v, error %v; want %s", rows, err, c.want)
		}
	}
}

func TestSchemas(t *testing.T) {
	dir := t.TempDir()
	var set descriptorpb.FileDescriptorSet
	file, err := compileFile(allProto, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range file.Imports().Len() {
		set.File = append(set.File, protodesc.ToFileDescriptorProto(file.Imports().Get(i).FileDescriptor))
	}
	alone := &descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{protodesc.ToFileDescriptorProto(file)}}
	set.File = append(set.File, alone.File...)
	write := func(name string, m proto.Message) string {
		t.Helper()
		b, err := proto.Marshal(m)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	whole, part := write("whole", &set), write("part", alone)
	for _, c := range []struct {
		options []string
		want    string // an error
	}{
		{[]string{"descriptor-set", whole, "message-name", "shop.v1.Order"}, ""},
		{[]string{"descriptor-set", whole, "message-name", "Order"}, ""},
		{[]string{"descriptor-set", whole, "message-class-name", "com.example.shop.All.Order"}, ""},
		{[]string{"schema-file", allProto, "message-class-name", "com.example.shop.All$Order"}, ""},
		{[]string{"schema-file", "testdata/sub/money.proto", "import-path", "testdata"}, ""},
		{[]string{"schema-file", oldProto, "message-class-name", "com.example.old.OldProtos.Old"}, ""},
		{[]string{"schema-file", oldProto, "message-class-name", "com.example.old.OldProto.Old"}, "did you mean com.example.old.OldProtos.Old?"},
		{[]string{"schema-file", allProto}, "option 'message-name' is missing; there are: shop.v1.Order, shop.v1.Order.Inner, shop.v1.Other"},
		{[]string{"schema-file", allProto, "message-name", "shop.v1.Ordr"}, "did you mean shop.v1.Order?"},
		{[]string{"schema-file", allProto, "message-name", "Zzzzzzzzz"}, "there are: shop.v1.Order"},
		{[]string{"schema-file", allProto, "import-path", dir}, "below none of the folders"},
		{[]string{"schema-file", "testdata/none.proto"}, "testdata/none.proto"},
		{[]string{"schema-file", allProto, "descriptor-set", whole}, "exclude each other"},
		{[]string{"message-class-name", "com.example.Order"}, "option 'schema-file' is missing"},
		{[]string{"descriptor-set", part, "message-name", "Order"}, "--include_imports"},
		{[]string{"descriptor-set", allProto, "message-name", "Order"}, "it is no FileDescriptorSet"},
	} {
		m := map[string]string{}
		for i := 0; i < len(c.options); i += 2 {
			m[c.options[i]] = c.options[i+1]
		}
		_, err := formattest.Open(Formats(), "protobuf", m)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error %v, want %q", c.options, err, c.want)
		}
	}
}

func TestConfluent(t *testing.T) {
	reg := srfake.New()
	defer reg.Close()
	cl, err := sr.NewClient(sr.URLs(reg.URL()))
	if err != nil {
		t.Fatal(err)
	}
	create := func(subject, file string, refs ...sr.SchemaReference) int {
		t.Helper()
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := cl.CreateSchema(t.Context(), subject, sr.Schema{Schema: string(b), Type: sr.TypeProtobuf, References: refs})
		if err != nil {
			t.Fatal(err)
		}
		return s.ID
	}
	create("money", "testdata/sub/money.proto")
	id := create("orders-value", allProto, sr.SchemaReference{Name: "sub/money.proto", Subject: "money", Version: 1})
	order := descriptor(t, allProto, "Order")
	message := func(index []int, b []byte) []byte {
		return append(registry.AppendIndex(registry.AppendID(nil, id), index), b...)
	}

	s := formattest.Table(col("i32", row.BigInt()), col("text", row.String()))
	f := newFormat(t, "protobuf-confluent", "url", reg.URL(), "subject", "orders-value", "message-name", "Order")
	d := newDecoder(t, f, s)
	for _, c := range []struct {
		message []byte
		want    string
	}{
		{message([]int{0}, text(t, order, "i32: 4 text: 'x'")), `[[4, "x"]]`},
		{message([]int{0}, text(t, order, "i32: 5")), `[[5, ""]]`},
		{message([]int{0, 0}, nil), "it is a message shop.v1.Order.Inner and not Order, which message-name says"},
		{message([]int{7}, nil), fmt.Sprintf("schema id %d (subject orders-value): the message's indexes [7] mean no message", id)},
		{message([]int{0}, []byte{0x72}), errWire.Error()},
		{append(registry.AppendID(nil, id), 2), "indexes"},
		{[]byte("{}"), "not written with a schema registry"},
		{registry.AppendIndex(registry.AppendID(nil, 99), []int{0}), "schema id 99 is unknown"},
		{nil, "[]"},
	} {
		rows, err := decode(t, d, s, c.message)
		if got := fmt.Sprint(rows); err == nil && got != c.want || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("% x: %v, error %v; want %s", c.message, rows, err, c.want)
		}
	}
	// Columns that other versions of the schema have.
	sv := formattest.Table(col("i32", row.Int()), col("later", row.String()), col("price", row.RowOf(row.Field{Name: "units", Type: row.BigInt()}, row.Field{Name: "later", Type: row.Int()})))
	if rows, err := decode(t, newDecoder(t, f, sv), sv, message([]int{0}, text(t, order, "i32: 4 price { units: 5 }"))); err != nil || rows[0] != "[4, null, [5, null]]" {
		t.Errorf("without a field of the table: %v, error %v", rows, err)
	}
	strict := formattest.Table(col("later", row.String().NotNull()))
	if _, err := decode(t, newDecoder(t, f, strict), strict, message([]int{0}, nil)); err == nil || !strings.Contains(err.Error(), "column later is no field of message") {
		t.Errorf("without a field that is NOT NULL: error %v", err)
	}
	// Written in the latest schema of the subject.
	e, err := f.RowEncoder(s)
	if err != nil {
		t.Fatal(err)
	}
	b, err := e.Append(nil, s.Layout.RowOf(4, "x"))
	if want := message([]int{0}, text(t, order, "i32: 4 text: 'x'")); err != nil || !bytes.Equal(b, want) {
		t.Errorf("written % x, error %v; want % x", b, err, want)
	}
	// The message inside another.
	nested := newFormat(t, "protobuf-confluent", "url", reg.URL(), "subject", "orders-value", "message-name", "shop.v1.Order.Inner")
	si := formattest.Table(col("a", row.Int()))
	if e, err = nested.RowEncoder(si); err != nil {
		t.Fatal(err)
	}
	if b, err = e.Append(nil, si.Layout.RowOf(9)); err != nil || !bytes.HasPrefix(b, message([]int{0, 0}, nil)) {
		t.Errorf("written % x, error %v", b, err)
	}
	if rows, err := decode(t, newDecoder(t, nested, si), si, b); err != nil || rows[0] != "[9]" {
		t.Errorf("%v, error %v", rows, err)
	}
	// A schema of its own, from a file and from the table.
	for _, c := range []struct{ subject, file string }{{"old-value", oldProto}, {"new-value", ""}} {
		options := []string{"url", reg.URL(), "subject", c.subject}
		if c.file != "" {
			options = append(options, "schema-file", c.file)
		}
		s := formattest.Table(col("id", row.Int()), col("s", row.String()))
		f := newFormat(t, "protobuf-confluent", options...)
		e, err := f.RowEncoder(s)
		if err != nil {
			t.Fatal(err)
		}
		b, err := e.Append(nil, s.Layout.RowOf(3, nil))
		if err != nil {
			t.Fatal(err)
		}
		if rows, err := decode(t, newDecoder(t, f, s), s, b); err != nil || rows[0] != "[3, null]" {
			t.Errorf("%s: %v, error %v", c.subject, rows, err)
		}
	}
	if _, err := newFormat(t, "protobuf-confluent", "url", reg.URL()).RowEncoder(s); err == nil || !strings.Contains(err.Error(), "option 'subject' is missing") {
		t.Errorf("error %v", err)
	}
}

func TestDerive(t *testing.T) {
	for _, c := range []struct {
		column row.Field
		want   string
	}{
		{col("a", row.TinyInt()), "optional int32 a = 1;"},
		{col("a", row.Int().NotNull()), "  int32 a = 1;"},
		{col("a", row.TimestampLTZ(3)), "optional google.protobuf.Timestamp a = 1;"},
		{col("a", row.Array(row.String())), "repeated string a = 1;"},
		{col("a", row.Map(row.String(), row.Double())), "map<string, double> a = 1;"},
		{col("a", row.RowOf(col("b", row.Bytes()))), "message aType {\n    optional bytes b = 1;\n  }\n  optional aType a = 1;"},
		{col("a", row.Date()), "error: column a: DATE has no type in Protobuf there; CAST the column AS STRING"},
		{col("a", row.Array(row.Array(row.Int()))), "error: column a: ARRAY<INT> has no type in Protobuf there; put it into a ROW"},
		{col("a", row.Map(row.Double(), row.Int())), "error: column a: the keys of a map"},
	} {
		text, err := derive([]row.Field{c.column})
		if want, refused := strings.CutPrefix(c.want, "error: "); refused {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %s", err, want)
			}
			continue
		}
		if err != nil || !strings.Contains(text, c.want) {
			t.Errorf("%s, error %v; want %s", text, err, c.want)
		}
		if _, err := compileText(text, nil); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// randomType is a type that a derived schema has.
func randomType(r *rand.Rand, depth int, inside bool) *row.Type {
	n := 12
	if depth == 0 || inside {
		n = 10
	}
	var t *row.Type
	switch k := r.IntN(n); {
	case k == 0:
		t = row.Boolean()
	case k == 1:
		t = row.SmallInt()
	case k == 2:
		t = row.Int()
	case k == 3:
		t = row.BigInt()
	case k == 4:
		t = row.Float()
	case k == 5:
		t = row.Double()
	case k == 6:
		t = row.String()
	case k == 7:
		t = row.Bytes()
	case k == 8:
		t = row.TimestampLTZ(9)
	case k == 9 && depth > 0:
		var fields []row.Field
		for i := range r.IntN(4) + 1 {
			fields = append(fields, col(fmt.Sprintf("f%d", i), randomType(r, depth-1, false)))
		}
		t = row.RowOf(fields...)
	case k == 10:
		t = row.Array(randomType(r, depth-1, true).NotNull())
	case k == 11:
		t = row.Map([]*row.Type{row.String(), row.Int(), row.BigInt(), row.Boolean()}[r.IntN(4)].NotNull(), randomType(r, depth-1, true).NotNull())
	default:
		t = row.Int()
	}
	return t.Nullable(!inside && r.IntN(3) > 0)
}

func randomValue(r *rand.Rand, t *row.Type) row.Value {
	if t.IsNullable() && r.IntN(4) == 0 {
		return nil
	}
	few := func() int { return r.IntN(3) + 1 }
	if !t.IsNullable() {
		few = func() int { return r.IntN(3) }
	}
	switch t.Kind() {
	case row.KindBoolean:
		return r.IntN(2) == 0
	case row.KindSmallInt:
		return int64(int16(r.Uint64()))
	case row.KindInt:
		return int64(int32(r.Uint64()) >> r.IntN(32))
	case row.KindBigInt:
		return int64(r.Uint64()) >> r.IntN(64)
	case row.KindFloat:
		return float64(float32(r.NormFloat64()))
	case row.KindDouble:
		return r.NormFloat64()
	case row.KindVarChar:
		return strings.Repeat("a\u00e9\x00", r.IntN(60))
	case row.KindVarBinary:
		return bytes.Repeat([]byte{1, 0xff}, r.IntN(4))
	case row.KindTimestampLTZ:
		return row.Stamp{Ms: int64(r.Uint64()) >> 20, Nanos: int64(r.IntN(1e6))}
	case row.KindArray:
		vs := make([]row.Value, few())
		for i := range vs {
			vs[i] = randomValue(r, t.Elem())
		}
		return vs
	case row.KindMap:
		es := make([]row.Entry, few())
		for i := range es {
			es[i] = row.Entry{Key: int64(i), Value: randomValue(r, t.Elem())}
			switch t.Key().Kind() {
			case row.KindVarChar:
				es[i].Key = fmt.Sprintf("k%d", i)
			case row.KindBoolean:
				es[i].Key = i == 0
			}
		}
		if t.Key().Kind() == row.KindBoolean {
			es = es[:min(len(es), 2)]
		}
		return es
	case row.KindRow:
		vs := make([]row.Value, t.NumFields())
		for i := range vs {
			vs[i] = randomValue(r, t.Field(i).Type)
		}
		return vs
	}
	panic(t.String())
}

// smallAs is the type as it is read: the numbers of Protobuf have 32 bits at least.
func smallAs(t *row.Type) *row.Type {
	switch t.Kind() {
	case row.KindSmallInt:
		return row.Int().Nullable(t.IsNullable())
	case row.KindArray:
		return row.Array(smallAs(t.Elem())).Nullable(t.IsNullable())
	case row.KindMap:
		return row.Map(t.Key(), smallAs(t.Elem())).Nullable(t.IsNullable())
	case row.KindRow:
		fields := make([]row.Field, t.NumFields())
		for i := range fields {
			fields[i] = col(t.Field(i).Name, smallAs(t.Field(i).Type))
		}
		return row.RowOf(fields...).Nullable(t.IsNullable())
	}
	return t
}

// TestRandomSchemas writes random rows in derived schemas and reads them back, by itself and by way of the library.
func TestRandomSchemas(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		var fields, readFields []row.Field
		for i := range 1 + r.IntN(6) {
			f := col(fmt.Sprintf("c%d", i), randomType(r, 2, false))
			fields, readFields = append(fields, f), append(readFields, col(f.Name, smallAs(f.Type)))
		}
		s, read := formattest.Table(fields...), formattest.Table(readFields...)
		text, err := derive(fields)
		if err != nil {
			t.Fatal(err)
		}
		file, err := compileText(text, nil)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, text)
		}
		p := &plain{d: file.Messages().Get(0)}
		e, err := p.RowEncoder(s)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, text)
		}
		d := newDecoder(t, p, read)
		for range 5 {
			in := s.Layout.New()
			for i, f := range fields {
				s.Layout.Set(in, i, randomValue(r, f.Type))
			}
			want := string(s.Layout.AppendResult(nil, in))
			b, err := e.Append(nil, in)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if rows, err := decode(t, d, read, b); err != nil || rows[0] != want {
				t.Fatalf("seed %d: %v, error %v; want %s\n%s", seed, rows, err, want, text)
			}
			m := dynamicpb.NewMessage(p.d)
			if err := proto.Unmarshal(b, m); err != nil {
				t.Fatalf("seed %d: the library: %v", seed, err)
			}
			again, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			if rows, err := decode(t, d, read, again); err != nil || rows[0] != want {
				t.Fatalf("seed %d, by the library: %v, error %v; want %s\n%s", seed, rows, err, want, text)
			}
		}
	}
}

// FuzzDecode: a message is read if and only if the library reads it, but for numbers that go beyond a type; what is read is
// well formed and is read again after it was written.
func FuzzDecode(f *testing.F) {
	order := descriptor(f, allProto, "Order")
	inner := row.RowOf(col("a", row.Int()), col("b", row.String()), col("deeper", row.RowOf(col("a", row.Int()))), col("list", row.Array(row.Int())))
	s := formattest.Table(col("u32", row.BigInt()), col("u64", row.Decimal(20, 0)), col("text", row.String()), col("state", row.String()), col("inner", inner), col("numbers", row.Array(row.Int())), col("loose", row.Array(row.Int())),
		col("states", row.Array(row.String())), col("inners", row.Array(inner)), col("by_id", row.Map(row.Int(), inner)), col("by_name", row.String()), col("by_inner", inner), col("wrapped", row.String()), col("far_number", row.Int()))
	fm := newFormat(f, "protobuf", "schema-file", allProto, "message-name", "Order")
	d := newDecoder(f, fm, s)
	f.Add(text(f, order, "u32: 5 u64: 7 text: 'x' state: PAID inner { a: 1 b: 'y' deeper { a: 2 } list: [1, 2] } numbers: [1, 2] loose: 3 states: NEW inners { a: 1 } by_id { key: 1 value { a: 1 } } wrapped { value: 'w' } far_number: 9"))
	f.Add(text(f, order, "by_inner { a: 4 }"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if b == nil {
			return
		}
		rows, err := decode(t, d, s, b)
		m := dynamicpb.NewMessage(order)
		if libErr := proto.Unmarshal(b, m); libErr == nil && err != nil {
			t.Fatalf("the library reads it: %v", err)
		}
		if err != nil || strings.Contains(rows[0], "UNRECOGNIZED") {
			return
		}
		e, err := fm.RowEncoder(s)
		if err != nil {
			t.Fatal(err)
		}
		out := s.Layout.New()
		if err := d.Decode(b, func() *row.Row { return out }); err != nil {
			t.Fatal(err)
		}
		written, err := e.Append(nil, out)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := decode(t, d, s, written); err != nil || again[0] != rows[0] {
			t.Errorf("written and read: %v, error %v; want %v", again, err, rows)
		}
	})
}

func TestNoAllocations(t *testing.T) {
	reg := srfake.New()
	defer reg.Close()
	inner := row.RowOf(col("x", row.Int()), col("l", row.Array(row.Int())))
	s := formattest.Table(col("id", row.BigInt()), col("name", row.String()), col("price", row.Double()), col("at", row.TimestampLTZ(3)), col("ok", row.Boolean()), col("a", row.Array(row.String())), col("r", inner), col("m", row.Map(row.String(), row.Int())))
	in := s.Layout.RowOf(1, "name", 1.5, row.Stamp{Ms: 5}, true, []row.Value{"a", "b"}, []row.Value{1, []row.Value{1}}, []row.Entry{{Key: "k", Value: 1}})
	f := newFormat(t, "protobuf-confluent", "url", reg.URL(), "subject", "s")
	e, err := f.RowEncoder(s)
	if err != nil {
		t.Fatal(err)
	}
	d := newDecoder(t, f, s)
	out := s.Layout.New()
	next := func() *row.Row { return out }
	var b []byte
	step := func() {
		if b, err = e.Append(b[:0], in); err != nil {
			t.Fatal(err)
		}
		if err = d.Decode(b, next); err != nil {
			t.Fatal(err)
		}
	}
	step()
	if n := testing.AllocsPerRun(100, step); n > 0 {
		t.Errorf("%v allocations a record", n)
	}
}

func BenchmarkDecode(b *testing.B) {
	s := formattest.Table(col("i64", row.BigInt()), col("text", row.String()), col("db", row.Double()), col("at", row.TimestampLTZ(3)), col("flag", row.Boolean()))
	f := newFormat(b, "protobuf", "schema-file", allProto, "message-name", "Order")
	order := descriptor(b, allProto, "Order")
	m := text(b, order, "i64: 123456 text: 'some name' db: 1.5 at { seconds: 1704067200 nanos: 123000000 } flag: true i32: 4 words: ['not', 'wanted']")
	out := s.Layout.New()
	next := func() *row.Row { return out }
	b.Run("rows", func(b *testing.B) {
		d := newDecoder(b, f, s)
		b.ReportAllocs()
		for b.Loop() {
			if err := d.Decode(m, next); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("library", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := proto.Unmarshal(m, dynamicpb.NewMessage(order)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	s := formattest.Table(col("i64", row.BigInt()), col("text", row.String()), col("db", row.Double()), col("at", row.TimestampLTZ(3)), col("flag", row.Boolean()))
	e, err := newFormat(b, "protobuf", "schema-file", allProto, "message-name", "Order").RowEncoder(s)
	if err != nil {
		b.Fatal(err)
	}
	in := s.Layout.RowOf(123456, "some name", 1.5, row.Stamp{Ms: 1704067200123}, true)
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		if dst, err = e.Append(dst[:0], in); err != nil {
			b.Fatal(err)
		}
	}
}
