package format

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
)

// checkDecode decodes doc and compares.
func checkDecode[T any](t *testing.T, doc string, want T) {
	t.Helper()
	var got T
	if err := mustJSON[T](t).Decode([]byte(doc), &got); err != nil {
		t.Errorf("%s: %v", doc, err)
	} else if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %+v, want %+v", doc, got, want)
	}
}

// checkRefused decodes doc and compares the error.
func checkRefused[T any](t *testing.T, doc, want string, opts ...JSONOption) {
	t.Helper()
	var v T
	err := mustJSON[T](t, opts...).Decode([]byte(doc), &v)
	if err == nil || err.Error() != want {
		t.Errorf("%q:\n got %v\nwant %s", doc, err, want)
	}
}

// checkEncode encodes v and compares, and checks that encoding/json reads the same.
func checkEncode[T any](t *testing.T, v T, want string) {
	t.Helper()
	got, err := mustJSON[T](t).Append(nil, &v)
	if err != nil || string(got) != want {
		t.Errorf("%+v: got %s, %v, want %s", v, got, err, want)
	}
}

type line struct {
	SKU   string `json:"sku"`
	Price *int64 `json:"price"`
}

type base struct {
	ID   int64 `json:"id"`
	Kind string
}

type Meta struct {
	Source string `json:"source"`
}

type order struct {
	base
	*Meta
	User   string            `json:"user"`
	Lines  []line            `json:"lines"`
	Labels map[string]string `json:"labels"`
	Pair   [2]float32        `json:"pair"`
	Any    any               `json:"any"`
	Raw    json.RawMessage   `json:"raw"`
	Num    json.Number       `json:"num"`
	Data   []byte            `json:"data"`
	OK     bool              `json:"ok"`
	Skip   chan int          `json:"-"`
	Dash   int               `json:"-,"`
	Addr   netip.Addr        `json:"addr"`
	hidden int
}

func TestDecodeAll(t *testing.T) {
	price := int64(9007199254740993)
	doc := ` { "id" : 1 , "Kind":"k", "source":"src","user":"A\u006en \ud83d\ude00\n","unknown":{"a":[1,2,{"b":null}]},
		"lines":[{"sku":"x","price":9007199254740993},{"price":null},null],"labels":{"a":"b","c":"d"},"pair":[1.5,-2],
		"any":{"a":[1,"x",true,null,9007199254740993],"b":{}},"raw": [1, 2] ,"num":1.10,"data":"AAEC","ok":true,"-":5,"addr":"10.0.0.1"}
	`
	checkDecode(t, doc, order{
		base: base{1, "k"}, Meta: &Meta{"src"}, User: "Ann \U0001F600\n", Lines: []line{{"x", &price}, {}, {}},
		Labels: map[string]string{"a": "b", "c": "d"}, Pair: [2]float32{1.5, -2},
		Any: map[string]any{"a": []any{json.Number("1"), "x", true, nil, json.Number("9007199254740993")}, "b": map[string]any{}},
		Raw: json.RawMessage("[1, 2]"), Num: "1.10", Data: []byte{0, 1, 2}, OK: true, Dash: 5, Addr: netip.MustParseAddr("10.0.0.1"),
	})
	checkDecode(t, `{}`, order{})
	checkDecode(t, `{"id":null,"source":null,"user":null,"lines":null,"labels":null,"pair":null,"any":null,"num":null,"data":null,"ok":null,"addr":null}`,
		order{Meta: &Meta{}})
	checkDecode(t, `{"lines":[],"labels":{}}`, order{Lines: []line{}, Labels: map[string]string{}})
	checkDecode(t, `{"USER":"other case","id":2}`, order{base: base{ID: 2}})
	checkDecode(t, `{"us\u0065r":"escaped name"}`, order{User: "escaped name"})
	checkDecode(t, `{"raw":null}`, order{Raw: json.RawMessage("null")})
}

// TestDecodeOverwrites: what was in *v before is gone, and what was handed out stays.
func TestDecodeOverwrites(t *testing.T) {
	s := mustJSON[order](t)
	var v order
	if err := s.Decode([]byte(`{"user":"ann","lines":[{"sku":"a"},{"sku":"b"}],"labels":{"x":"y"},"source":"s"}`), &v); err != nil {
		t.Fatal(err)
	}
	lines, labels, meta := v.Lines, v.Labels, v.Meta
	if err := s.Decode([]byte(`{"lines":[{"sku":"c"}],"labels":{"z":"z"},"source":"t"}`), &v); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(v, order{Lines: []line{{SKU: "c"}}, Labels: map[string]string{"z": "z"}, Meta: &Meta{"t"}}) {
		t.Errorf("got %+v", v)
	}
	if len(lines) != 2 || lines[0].SKU != "a" || labels["x"] != "y" || len(labels) != 1 || meta.Source != "s" {
		t.Error("an older value has changed")
	}
}

func TestDecodeTops(t *testing.T) {
	checkDecode(t, ` "x" `, "x")
	checkDecode(t, `-12`, int8(-12))
	checkDecode(t, `[1,2]`, []int{1, 2})
	checkDecode(t, `[[],[[]]]`, []any{[]any{}, []any{[]any{}}})
	checkDecode(t, `{"a":{"b":1}}`, map[userID]map[string]uint8{"a": {"b": 1}})
	type tree struct {
		Kids []tree `json:"kids"`
		Next *tree  `json:"next"`
	}
	checkDecode(t, `{"kids":[{"kids":[]},{}],"next":{"next":{}}}`, tree{Kids: []tree{{Kids: []tree{}}, {}}, Next: &tree{Next: &tree{}}})
	checkDecode(t, `[]`, [0]int{})
	wide := reflect.StructOf(wideFields(200))
	checkWide(t, wide)
}

func wideFields(n int) []reflect.StructField {
	fields := make([]reflect.StructField, n)
	for i := range fields {
		fields[i] = reflect.StructField{Name: fmt.Sprintf("F%d", i), Type: reflect.TypeFor[int]()}
	}
	return fields
}

// checkWide: a struct with more fields than one word has bits, in reverse order, and with each one twice.
func checkWide(t *testing.T, typ reflect.Type) {
	n, err := planJSON(typ, jsonOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var parts []string
	for i := typ.NumField() - 1; i >= 0; i-- {
		parts = append(parts, fmt.Sprintf(`"F%d":%d`, i, i))
	}
	v := reflect.New(typ)
	doc := []byte("{" + strings.Join(parts, ",") + "}")
	if _, err := n.decode(doc, 0, 10, v.UnsafePointer()); err != nil {
		t.Fatal(err)
	}
	for i := range typ.NumField() {
		if got := v.Elem().Field(i).Int(); got != int64(i) {
			t.Fatalf("F%d = %d", i, got)
		}
		twice := fmt.Appendf(nil, `{"F%d":1,%s}`, i, strings.Join(parts, ","))
		if _, err := n.decode(twice, 0, 10, reflect.New(typ).UnsafePointer()); err == nil || err.Path != fmt.Sprintf("F%d", i) {
			t.Fatalf("F%d twice: %v", i, err)
		}
	}
}

// TestIntegers: integers are exact up to the limits of their type, in every spelling, and refused beyond (P31).
func TestIntegers(t *testing.T) {
	checkDecode(t, `9007199254740993`, int64(9007199254740993))
	checkDecode(t, `9223372036854775807`, int64(math.MaxInt64))
	checkDecode(t, `-9223372036854775808`, int64(math.MinInt64))
	checkDecode(t, `18446744073709551615`, uint64(math.MaxUint64))
	checkDecode(t, `1844674407370955161.5e1`, uint64(math.MaxUint64))
	for _, s := range []string{"1000", "1e3", "1E+3", "1000.0", "1.000e3", "10000e-1", "1000.000e-0", "0.001e6", "1e0003"} {
		checkDecode(t, s, int64(1000))
		checkDecode(t, "-"+s, int16(-1000))
	}
	for _, s := range []string{"0", "-0", "0.0", "0e99999999999999999999", "-0.000e-99999999999999999999"} {
		checkDecode(t, s, 0)
		checkDecode(t, s, uint8(0))
	}
	const wantInt64 = "want a number for a int64 in its range"
	for _, s := range []string{"9223372036854775808", "-9223372036854775809", "1e19", "92233720368547758070", "1e99999999999999999999"} {
		checkRefused[int64](t, s, "decode JSON: byte 0: "+wantInt64+", found the number "+s)
	}
	for _, s := range []string{"1.5", "1e-1", "0.1", "9007199254740993.5", "1e-99999999999999999999"} {
		checkRefused[int64](t, s, "decode JSON: byte 0: want an integer for a int64, found the number "+s)
	}
	checkRefused[uint64](t, "18446744073709551616", "decode JSON: byte 0: want a number for a uint64 in its range, found the number 18446744073709551616")
	checkRefused[uint64](t, "-1", "decode JSON: byte 0: want a number for a uint64 in its range, found the number -1")
	for bits, v := range map[any][2]string{
		int8(0): {"-129", "128"}, int16(0): {"-32769", "32768"}, int32(0): {"-2147483649", "2147483648"}, int(0): {"-9223372036854775809", "9223372036854775808"},
		uint8(0): {"-1", "256"}, uint16(0): {"-1", "65536"}, uint32(0): {"-1", "4294967296"}, uint(0): {"-1", "18446744073709551616"},
	} {
		typ := reflect.TypeOf(bits)
		n, err := planJSON(typ, jsonOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i, text := range v {
			if _, err := n.decode([]byte(text), 0, 1, reflect.New(typ).UnsafePointer()); err == nil {
				t.Errorf("%s into %s was taken", text, typ)
			}
			limit, _ := new(big.Int).SetString(text, 10)
			limit.Add(limit, big.NewInt(int64(1-2*i)))
			p := reflect.New(typ)
			if _, err := n.decode([]byte(limit.String()), 0, 1, p.UnsafePointer()); err != nil || fmt.Sprint(p.Elem()) != limit.String() {
				t.Errorf("%s into %s: got %v, %v", limit, typ, p.Elem(), err)
			}
		}
	}
}

// TestIntegersStayExact: from text to text, also nested in an any, as a map's value and in a string (P31).
func TestIntegersStayExact(t *testing.T) {
	type row struct {
		A int64            `json:"a"`
		B any              `json:"b"`
		C map[string]int64 `json:"c"`
		D *uint64          `json:"d"`
		E json.RawMessage  `json:"e"`
		F int64            `json:"f,string"`
		G json.Number      `json:"g"`
	}
	s := mustJSON[row](t)
	doc := `{"a":9007199254740993,"b":{"x":[9223372036854775807,123456789012345678901234567890.10]},"c":{"k":-9223372036854775808},` +
		`"d":18446744073709551615,"e":{"n":9007199254740993},"f":"9007199254740993","g":0.10}`
	var v row
	if err := s.Decode([]byte(doc), &v); err != nil {
		t.Fatal(err)
	}
	got, err := s.Append(nil, &v)
	if err != nil || string(got) != doc {
		t.Errorf("got %s, %v, want %s", got, err, doc)
	}
}

// TestTimes: the unit is declared and never guessed (P20).
func TestTimes(t *testing.T) {
	type times struct {
		S  time.Time            `json:"s,unix"`
		Ms time.Time            `json:"ms,unixmilli"`
		Us time.Time            `json:"us,unixmicro"`
		Ns time.Time            `json:"ns,unixnano"`
		R  time.Time            `json:"r,rfc3339"`
		P  *time.Time           `json:"p,unixmilli,omitempty"`
		L  []time.Time          `json:"l,unix"`
		M  map[string]time.Time `json:"m,unix,omitempty"`
		D  time.Duration        `json:"d,millis"`
	}
	day := time.Date(1972, 1, 1, 0, 0, 0, 0, time.UTC)
	doc := `{"s":63072000,"ms":63072000000,"us":63072000000000,"ns":63072000000000000,"r":"1972-01-01T00:00:00Z","p":-1,"l":[0,-1],"m":{"a":1},"d":1500}`
	minus := time.UnixMilli(-1).UTC()
	want := times{
		S: day, Ms: day, Us: day, Ns: day, R: day, P: &minus, L: []time.Time{time.Unix(0, 0).UTC(), time.Unix(-1, 0).UTC()},
		M: map[string]time.Time{"a": time.Unix(1, 0).UTC()}, D: 1500 * time.Millisecond,
	}
	checkDecode(t, doc, want)
	checkEncode(t, want, doc)
	// The same digits in another unit are another time, and one far beyond is refused.
	checkDecode(t, `{"us":63072000000000000}`, times{Us: time.Unix(63072000000, 0).UTC()})
	checkRefused[times](t, `{"ms":63072000000000000}`,
		"decode JSON: field ms, byte 6: want an integer, the time in milliseconds since the epoch in its range of the years 0 to 9999, found the number 63072000000000000")
	checkRefused[times](t, `{"ms":"2020-01-01"}`, `decode JSON: field ms, byte 6: want an integer, the time in milliseconds since the epoch, found the string "2020-01-01"`)
	checkRefused[times](t, `{"s":1.5}`, `decode JSON: field s, byte 5: want an integer for a time.Time, found the number 1.5`)
	checkRefused[times](t, `{"r":"2020-01-01"}`, `decode JSON: field r, byte 5: want a string with an RFC 3339 time, found the string "2020-01-01"`)
	checkRefused[times](t, `{"l":[0,true]}`, `decode JSON: field l[1], byte 8: want an integer, the time in seconds since the epoch, found "true"`)
	checkRefused[times](t, `{"d":9223372036854775807}`, `decode JSON: field d, byte 5: want an integer, the duration in milliseconds in its range, found the number 9223372036854775807`)
	// Zones do not show, finer times are rounded down, the zero time survives where it can.
	zone := time.FixedZone("", 3600)
	checkDecode(t, `{"r":"1972-01-01T01:00:00.5+01:00"}`, times{R: day.Add(500 * time.Millisecond)})
	type two struct {
		R  time.Time `json:"r,rfc3339"`
		Ms time.Time `json:"ms,unixmilli"`
	}
	checkEncode(t, two{time.Date(1972, 1, 1, 1, 0, 0, 1, zone), time.Unix(-1, 999_999_999)}, `{"r":"1972-01-01T00:00:00.000000001Z","ms":-1}`)
	checkEncode(t, two{}, `{"r":"0001-01-01T00:00:00Z","ms":-62135596800000}`)
	checkDecode(t, `{"r":"0001-01-01T00:00:00Z","ms":-62135596800000}`, two{})
	type nanos struct {
		N time.Time `json:"n,unixnano"`
	}
	for _, at := range []time.Time{{}, time.Unix(9223372036, 854775807), time.Unix(20000000000, 0)} {
		if b, err := mustJSON[nanos](t).Append(nil, &nanos{at}); err == nil {
			t.Errorf("%s in nanoseconds was written as %s", at, b)
		}
	}
	checkEncode(t, nanos{time.Unix(-9223372035, 5)}, `{"n":-9223372034999999995}`)
}

func TestFloats(t *testing.T) {
	checkDecode(t, `[0.1,12.34,1e3,1.7976931348623157e308,5e-324,123456789012345678,0.30000000000000004]`,
		[]float64{0.1, 12.34, 1000, math.MaxFloat64, math.SmallestNonzeroFloat64, 123456789012345678, 0.30000000000000004})
	var f float64
	if err := mustJSON[float64](t).Decode([]byte("-0"), &f); err != nil || math.Float64bits(f) != 1<<63 {
		t.Error(f, err)
	}
	checkDecode(t, `[0.1,3.4028235e38]`, []float32{0.1, math.MaxFloat32})
	checkDecode(t, `1e-400`, 0.0)
	checkRefused[float64](t, `1e309`, "decode JSON: byte 0: want a number for a float64 in its range, found the number 1e309")
	checkRefused[float32](t, `1e39`, "decode JSON: byte 0: want a number for a float32 in its range, found the number 1e39")
	for _, f := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		if b, err := mustJSON[[]float64](t).Append(nil, &[]float64{1, f}); err == nil || !strings.HasPrefix(err.Error(), "encode JSON: field [1]: JSON has no number for ") {
			t.Errorf("%v: got %s, %v", f, b, err)
		}
	}
	f32 := float32(math.Inf(1))
	if _, err := mustJSON[float32](t).Append(nil, &f32); err == nil {
		t.Error("an infinite float32 was written")
	}
}

type celsius struct{ deg float64 }

func (c celsius) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%gC", c.deg), nil }
func (c *celsius) UnmarshalText(b []byte) error {
	_, err := fmt.Sscanf(string(b), "%gC", &c.deg)
	return err
}

type anyCase struct{ v int }

func (a *anyCase) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		a.v = -1
		return nil
	}
	if string(b) == `"bad"` {
		return errors.New("it is bad")
	}
	a.v = len(b)
	return nil
}

func (a anyCase) MarshalJSON() ([]byte, error) {
	switch a.v {
	case 1:
		return nil, errors.New("not 1")
	case 2:
		return []byte(`{"a":}`), nil
	}
	return []byte(`{ "v": true }`), nil
}

func TestMethods(t *testing.T) {
	type row struct {
		C celsius            `json:"c"`
		P *celsius           `json:"p"`
		J anyCase            `json:"j"`
		M map[string]celsius `json:"m,omitempty"`
	}
	checkDecode(t, `{"c":"20C","p":null,"j":[1, 2],"m":{"a":"1C"}}`, row{C: celsius{20}, J: anyCase{6}, M: map[string]celsius{"a": {1}}})
	checkDecode(t, `{"j":null,"c":null}`, row{J: anyCase{-1}})
	checkEncode(t, row{C: celsius{1.5}, P: &celsius{2}, M: map[string]celsius{"b": {1}, "a": {2}}}, `{"c":"1.5C","p":"2C","j":{ "v": true },"m":{"a":"2C","b":"1C"}}`)
	checkRefused[row](t, `{"c":20}`, `decode JSON: field c, byte 5: want a string for a format.celsius, found the number 20`)
	checkRefused[row](t, `{"j":"bad"}`, `decode JSON: field j, byte 5: want a value for a format.anyCase, found the string "bad": it is bad`)
	checkRefused[row](t, `{"j":[1,}`, `decode JSON: field j, byte 8: want a JSON value, found "}"`)
	for v, want := range map[int]string{
		1: "encode JSON: field j: call MarshalJSON of format.anyCase: not 1",
		2: `encode JSON: field j: raw JSON is not valid: decode JSON: byte 5: want a JSON value, found "}"`,
	} {
		if b, err := mustJSON[row](t).Append(nil, &row{J: anyCase{v}}); err == nil || err.Error() != want {
			t.Errorf("got %s, %v, want %s", b, err, want)
		}
	}
}

type quotedInt struct {
	V int `json:"v,string"`
}

func TestDecodeErrors(t *testing.T) {
	for doc, want := range map[string]string{
		``:                                 `byte 0: want an object, found the end of the input`,
		`[]`:                               `byte 0: want an object, found an array`,
		`{`:                                `byte 1: want a field name, found the end of the input`,
		`{"user":5}`:                       `field user, byte 8: want a string, found the number 5`,
		`{"user":"x",}`:                    `byte 12: want a field name, found "}"`,
		`{"user" "x"}`:                     `byte 8: want ':', found the string "x"`,
		`{"user":"x" "id":1}`:              `byte 12: want ',' or '}', found the string "id"`,
		`{"user":"x"}}`:                    `byte 12: want the end of the document, found "}"`,
		`{"user":"x"} 1`:                   `byte 13: want the end of the document, found the number 1`,
		`{"user":"x","id":1,"user":"y"}`:   `field user, byte 19: the field comes twice`,
		`{"labels":{"a":"1","a":"2"}}`:     `field labels.a, byte 19: the key comes twice`,
		`{"any":{"b":{"a":1,"\u0061":2}}}`: `field any.b.a, byte 19: the key comes twice`,
		`{"lines":[{},{"price":"3"}]}`:     `field lines[1].price, byte 22: want a number for a int64, found the string "3"`,
		`{"any":[1,[2,{"x y":tru}]]}`:      `field any[1][1]."x y", byte 20: want a JSON value, found "tru"`,
		`{"labels":{"a.b":1}}`:             `field labels."a.b", byte 17: want a string, found the number 1`,
		`{"pair":[1,2,3]}`:                 `field pair, byte 8: want an array of 2 elements, found more`,
		`{"pair":[1]}`:                     `field pair, byte 8: want an array of 2 elements, found 1`,
		`{"pair":[]}`:                      `field pair, byte 8: want an array of 2 elements, found 0`,
		`{"pair":[`:                        `field pair[0], byte 9: want a number for a float32, found the end of the input`,
		`{"data":"A"}`:                     `field data, byte 8: want a base64 string, found the string "A": illegal base64 data at input byte 0`,
		`{"num":"1"}`:                      `field num, byte 7: want a number, found the string "1"`,
		`{"ok":1}`:                         `field ok, byte 6: want true or false, found the number 1`,
		`{"x":01}`:                         `field x, byte 6: want a number without leading zeros`,
		`{"id":01}`:                        `field id, byte 7: want a number without leading zeros`,
		`{"id":-}`:                         `field id, byte 7: want a digit, found "}"`,
		`{"id":1.}`:                        `field id, byte 8: want a digit after the point, found "}"`,
		`{"id":1e}`:                        `field id, byte 8: want a digit in the exponent, found "}"`,
		`{"id":+1}`:                        `field id, byte 6: want a number for a int64, found "+"`,
		`{"x":"a` + "\n" + `"}`:            `field x, byte 7: want control characters escaped, found the byte 0x0a`,
		`{"x":"a\x"}`:                      `field x, byte 7: want a valid escape sequence, found "\\x\"}"`,
		`{"x":"\ud800"}`:                   `field x, byte 6: want a whole surrogate pair, found \ud800`,
		`{"x":"\udc00\ud800"}`:             `field x, byte 6: want a whole surrogate pair, found \udc00`,
		`{"user":"` + "\xff" + `"}`:        `field user, byte 9: want UTF-8, found the byte 0xff`,
		`{"x":"` + "\xed\xa0\x80" + `"}`:   `field x, byte 6: want UTF-8, found the byte 0xed`,
		"\ufeff{}":                         `byte 0: want an object, found the byte 0xef`,
		`{"x":"abcdefghijkl`:               `field x, byte 18: want a closing quote, found the end of the input`,
		`{"x":NaN}`:                        `field x, byte 5: want a JSON value, found "N"`,
		`{'user':1}`:                       `byte 1: want a field name, found "'"`,
		`{"x":1/**/}`:                      `byte 6: want ',' or '}', found "/"`,
		`{"user":nil}`:                     `field user, byte 8: want a JSON value, found "nil"`,
		`{"x":[1 2]}`:                      `field x, byte 8: want ',' or ']', found the number 2`,
		`{"addr":"nowhere"}`:               `field addr, byte 8: want a string for a netip.Addr, found the string "nowhere": ParseAddr("nowhere"): unable to parse IP`,
	} {
		checkRefused[order](t, doc, "decode JSON: "+want)
	}
	checkRefused[order](t, `{"id":1,"x":[{}]}`, "decode JSON: field x, byte 8: the field is unknown", RefuseUnknownFields())
	checkDecode(t, `{"x":{"a":1,"a":2},"x":3}`, base{}) // skipped parts may repeat themselves
	checkRefused[quotedInt](t, `{"v":5}`, `decode JSON: field v, byte 5: want a number in quotes for a int, found the number 5`)
	checkRefused[quotedInt](t, `{"v":"5 "}`, `decode JSON: field v, byte 5: want a number in quotes for a int, found the string "5 "`)
	checkRefused[quotedInt](t, `{"v":""}`, `decode JSON: field v, byte 5: want a number in quotes for a int, found the string ""`)
	var e *JSONError
	if err := mustJSON[order](t).Decode([]byte(`{"user":5}`), new(order)); !errors.As(err, &e) || e.Offset != 8 || e.Path != "user" {
		t.Errorf("got %#v", err)
	}
}

func TestDepth(t *testing.T) {
	nest := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	var raw json.RawMessage
	var tree any
	type lists []lists
	var l lists
	for _, dec := range []func(string) error{
		func(s string) error { return mustJSON[json.RawMessage](t).Decode([]byte(s), &raw) },
		func(s string) error { return mustJSON[any](t).Decode([]byte(s), &tree) },
		func(s string) error { return mustJSON[lists](t).Decode([]byte(s), &l) },
		func(s string) error {
			return mustJSON[base](t).Decode([]byte(`{"x":`+s[1:len(s)-1]+`}`), new(base))
		},
		func(s string) error {
			s = strings.ReplaceAll(strings.ReplaceAll(s, "[", `{"x":`), "]", "}")
			return mustJSON[any](t).Decode([]byte(strings.Replace(s, ":}", ":1}", 1)), &tree)
		},
	} {
		if err := dec(nest(1000)); err != nil {
			t.Error(err)
		}
		if err := dec(nest(1001)); err == nil || !strings.HasSuffix(err.Error(), "the document is nested too deep") {
			t.Errorf("1001 levels: %v", err)
		}
	}
	checkRefused[any](t, "[[]]", "decode JSON: field [0], byte 1: the document is nested too deep", MaxDepth(1))
	type ring struct {
		Next *ring `json:"next"`
	}
	r := &ring{}
	r.Next = r
	if _, err := mustJSON[ring](t).Append(nil, r); err == nil || !strings.HasSuffix(err.Error(), "the document is nested too deep") {
		t.Error("a ring was written")
	}
	a := []any{nil}
	a[0] = a
	if _, err := mustJSON[[]any](t).Append(nil, &a); err == nil {
		t.Error("a ring of any was written")
	}
}

func TestEncode(t *testing.T) {
	checkEncode(t, order{Skip: make(chan int), hidden: 1},
		`{"id":0,"Kind":"","user":"","lines":[],"labels":{},"pair":[0,0],"any":null,"raw":null,"num":0,"data":"","ok":false,"-":0,"addr":""}`)
	price := int64(1)
	checkEncode(t, order{
		base: base{ID: 1}, Meta: &Meta{"s"}, Lines: []line{{"x", &price}, {}}, Labels: map[string]string{"b": "1", "a": "2"},
		Any: map[string]any{"z": []any{1, uint8(2), 1.5, float32(0.1), "x", nil, true, json.Number("1e5"), json.RawMessage("[ ]")}, "y": map[string]any{}},
		Raw: json.RawMessage(`{ }`), Num: "1.0", Data: []byte{255}, Addr: netip.MustParseAddr("::1"),
	}, `{"id":1,"Kind":"","source":"s","user":"","lines":[{"sku":"x","price":1},{"sku":"","price":null}],"labels":{"a":"2","b":"1"},"pair":[0,0],`+
		`"any":{"y":{},"z":[1,2,1.5,0.1,"x",null,true,1e5,[ ]]},"raw":{ },"num":1.0,"data":"/w==","ok":false,"-":0,"addr":"::1"}`)
	type omits struct {
		A int            `json:",omitempty"`
		B string         `json:"b,omitempty"`
		C []int          `json:"c,omitempty"`
		D map[string]int `json:"d,omitempty"`
		E *int           `json:"e,omitempty"`
		F any            `json:"f,omitempty"`
		G base           `json:"g,omitempty"`
		H base           `json:"h,omitzero"`
		I time.Time      `json:"i,unix,omitzero"`
		J bool           `json:"j,omitempty"`
		K [0]int         `json:"k,omitempty"`
		L float64        `json:"l,omitzero"`
	}
	checkEncode(t, omits{}, `{"g":{"id":0,"Kind":""}}`)
	zero := 0
	checkEncode(t, omits{1, "x", []int{0}, map[string]int{"a": 0}, &zero, 0, base{}, base{ID: 1}, time.Unix(0, 0), true, [0]int{}, 0.5},
		`{"A":1,"b":"x","c":[0],"d":{"a":0},"e":0,"f":0,"g":{"id":0,"Kind":""},"h":{"id":1,"Kind":""},"i":0,"j":true,"l":0.5}`)
	type none struct {
		A int `json:",omitempty"`
	}
	checkEncode(t, none{}, `{}`)
	checkEncode(t, []none{{}, {2}}, `[{},{"A":2}]`)
	const anyMay = "; it may hold nil, bool, string, numbers, json.Number, json.RawMessage, []any and map[string]any"
	for _, c := range []struct {
		v    any
		want string
	}{
		{make(chan int), `[0]: an any holds a chan int` + anyMay},
		{time.Time{}, `[0]: an any holds a time.Time` + anyMay},
		{"a\xff", `[0]: text is not UTF-8, found "a\xff"`},
		{map[string]any{"\xff": 1}, `[0]."\xff": text is not UTF-8, found "\xff"`},
		{json.Number("01"), `[0]: a json.Number must be a JSON number, found "01"`},
		{json.RawMessage("1 1"), `[0]: raw JSON is not valid: decode JSON: byte 2: want the end of the document, found the number 1`},
	} {
		if b, err := mustJSON[[]any](t).Append([]byte("keep"), &[]any{c.v}); err == nil || err.Error() != "encode JSON: field "+c.want || string(b) != "keep" {
			t.Errorf("got %s, %v, want %s", b, err, c.want)
		}
	}
}

type (
	noFields struct{ a int }
	selfPtr  *selfPtr
	clash    struct {
		A int
		B int `json:"A"`
	}
	left  struct{ X int }
	right struct{ X int }
	both  struct {
		left
		right
	}
	midA    struct{ left }
	midB    struct{ left }
	diamond struct {
		midA
		midB
	}
	hiddenPtr struct{ *left }
	embedTime struct {
		time.Time
		A int
	}
	twice struct {
		left
		C struct {
			left
			Y int
		}
	}
	shadow struct {
		left
		X string
	}
)

func TestBuildErrors(t *testing.T) {
	type bad struct {
		At    time.Time
		Took  []time.Duration
		Fn    func() `json:"fn"`
		C     map[string]chan int
		K     map[int]string
		E     error
		U     int       `json:"u,unixmilli"`
		V     string    `json:"v,string"`
		W     int       `json:"w,inline"`
		X     time.Time `json:"x,unix,unixmilli"`
		Z     complex64
		Fine  int
		Inner struct{ At *time.Time }
		D     time.Duration `json:"d,unix"`
	}
	want := []string{
		"build JSON serde of format.bad: ",
		"bad.At: a time.Time must name its unit in a struct tag: unix, unixmilli, unixmicro, unixnano or rfc3339, as in `json:\"ts,unixmilli\"`",
		"bad.Took[]: a time.Duration must name its unit in a struct tag: seconds, millis, micros or nanos, as in `json:\"took,millis\"`",
		"bad.Fn: func() has no JSON form; leave it out with the tag `json:\"-\"`",
		"bad.C[]: chan int has no JSON form", "bad.K: a map key must be a plain string, not int",
		"bad.E: of the interfaces only any has a JSON form, not error", "bad.U: the unit unixmilli is for a time.Time, not for int",
		"bad.V: the option string is for integers and floats, not for string", `bad.W: unknown option "inline" in the json tag`,
		"bad.X: the json tag names two units", "bad.Z: complex64 has no JSON form", "bad.Inner.At: a time.Time must name its unit",
		"bad.D: the unit unix is for a time.Time, not for time.Duration",
	}
	_, err := JSON[bad]()
	if err == nil {
		t.Fatal("built")
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s\ndoes not say\n%s", err, w)
		}
	}
	if strings.Contains(err.Error(), "Fine") {
		t.Error(err)
	}
	clashTags := reflect.StructOf([]reflect.StructField{ // go vet would refuse it as source
		{Name: "A", Type: reflect.TypeFor[int](), Tag: `json:"x"`},
		{Name: "B", Type: reflect.TypeFor[int](), Tag: `json:"x"`},
	})
	for _, c := range []struct {
		err  error
		want string
	}{
		{second(JSON[noFields]()), "noFields: the struct has no exported field to read or write"},
		{second(JSON[selfPtr]()), "is a pointer to itself"},
		{second(JSON[struct{ P selfPtr }]()), "is a pointer to itself"},
		{second(planJSON(clashTags, jsonOptions{})), `fields A and B both have the JSON name "x"`},
		{second(JSON[both]()), `both: fields left.X and right.X both have the JSON name "X"`},
		{second(JSON[diamond]()), `diamond: fields midA.left.X and midB.left.X both have the JSON name "X"`},
		{second(JSON[hiddenPtr]()), "hiddenPtr.left: a pointer to an unexported struct cannot be embedded"},
		{second(JSON[embedTime]()), "embedTime: an embedded time.Time hides the other fields"},
		{second(JSON[error]()), "of the interfaces only any"},
		{second(JSON[base](MaxDepth(0))), "MaxDepth(0): want 1 to 10000"},
		{second(JSON[base](MaxDepth(10001))), "MaxDepth(10001): want 1 to 10000"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("got %v, want %s", c.err, c.want)
		}
	}
	// What is no clash: a tag wins at the same depth, the nearer field over a deeper one.
	checkDecode(t, `{"A":1}`, clash{B: 1})
	checkDecode(t, `{"X":"s"}`, shadow{X: "s"})
	checkDecode(t, `{"X":1,"C":{"X":2,"Y":3}}`, twice{left: left{1}, C: struct {
		left
		Y int
	}{left{2}, 3}})
}

func second[T any](_ T, err error) error { return err }
