package statestore_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

// line is an entry as Inspector.Append writes it.
type line struct {
	Store       string          `json:"store"`
	Subtask     string          `json:"subtask"`
	Key         json.RawMessage `json:"key"`
	KeyBase64   []byte          `json:"key_base64"`
	KeyError    string          `json:"key_error"`
	WindowEnd   *int64          `json:"window_end"`
	Time        *int64          `json:"time"`
	Timer       *uint32         `json:"timer"`
	MapKey      json.RawMessage `json:"map_key"`
	Index       *uint64         `json:"index"`
	Value       json.RawMessage `json:"value"`
	ValueBase64 []byte          `json:"value_base64"`
	ValueError  string          `json:"value_error"`
}

func parseLine(t testing.TB, b []byte) line {
	t.Helper()
	var l line
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&l); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return l
}

// inspectValue writes v into a table and returns the value as the Inspector shows it.
func inspectValue[V any](t testing.TB, v V) string {
	t.Helper()
	codec := codecOf[V](t)
	store := memstore.New()
	s := statestore.NewState(store, statestore.StateOptions{})
	sp := statestore.Spec{Name: "op/value", ID: statestore.StoreID("op/value"), Kind: statestore.KindTable, KeyType: "string", ValType: codec.Schema()}
	table := must[*statestore.Table[string, V]](t)(statestore.NewTable(s, sp, keyOf[string](t), codec))
	table.Set(9, "k", v)
	commitAll(t, s, 1)
	lines := inspectAll(t, store, []statestore.Spec{sp})
	if len(lines) != 1 || lines[0].Store != "op/value" || string(lines[0].Key) != `"k"` || lines[0].Subtask != "0_1" {
		t.Fatalf("%+v", lines)
	}
	if lines[0].ValueError != "" {
		return lines[0].ValueError
	}
	return string(lines[0].Value)
}

func inspectAll(t testing.TB, store statestore.Store, specs []statestore.Spec) []line {
	t.Helper()
	in := statestore.NewInspector(specs)
	it, err := store.Scan(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	var lines []line
	for it.Next() {
		if !in.Learn(it.Key(), it.Value()) {
			lines = append(lines, parseLine(t, in.Append(nil, "0_1", it.Key(), it.Value())))
		}
	}
	return lines
}

type address struct {
	Street string
	Codes  []int16
	Past   *address2
}

type address2 struct{ City string }

// customer has only what encoding/json writes in the same form.
type customer struct {
	Name    string
	Age     uint8
	Small   int8
	Big     int64
	Huge    uint64
	Score   float64
	Half    float32
	Active  bool
	Raw     []byte
	Since   time.Time
	Tags    map[string]int32
	ByDay   map[int16]string
	Address address
	List    []address2
	Pair    [2]int32
	Nil     *int
	Empty   struct{}
}

func randomText(r *rand.Rand) string {
	const letters = "ab\"\\\n\r\t\x00\x1f \u00e4\u20ac\U0001f600<>&\u2028"
	rs := []rune(letters)
	var sb strings.Builder
	for range r.IntN(6) {
		sb.WriteRune(rs[r.IntN(len(rs))])
	}
	return sb.String()
}

func randomCustomer(r *rand.Rand) customer {
	c := customer{Name: randomText(r), Age: uint8(r.Uint32()), Small: int8(r.Uint32()), Big: int64(r.Uint64()), Huge: r.Uint64(),
		Score: math.Float64frombits(r.Uint64()), Half: math.Float32frombits(r.Uint32()), Active: r.IntN(2) == 0,
		Since: time.Unix(r.Int64N(1<<33), r.Int64N(1e9)).In(time.FixedZone("", r.IntN(24)*3600-12*3600)), Pair: [2]int32{-1, r.Int32()}}
	if math.IsNaN(c.Score) || math.IsInf(c.Score, 0) {
		c.Score = -0.5
	}
	if f := float64(c.Half); math.IsNaN(f) || math.IsInf(f, 0) {
		c.Half = 1e-7
	}
	if r.IntN(2) == 0 {
		c.Raw, c.Tags = []byte(randomText(r)), map[string]int32{randomText(r): -3, "x": r.Int32()}
		c.ByDay = map[int16]string{int16(r.Uint32()): "a", -5: randomText(r)}
		c.Address = address{randomText(r), []int16{1, -2}, &address2{randomText(r)}}
		c.List = make([]address2, r.IntN(3))
	}
	return c
}

// TestValuesAreShownAsJSON compares what the Inspector makes of random values, without their type, with encoding/json.
func TestValuesAreShownAsJSON(t *testing.T) {
	r := newRand(t)
	for range 2000 {
		c := randomCustomer(r)
		want, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		got := inspectValue(t, c)
		var a, b any
		decode := func(text string, to *any) {
			dec := json.NewDecoder(strings.NewReader(text))
			dec.UseNumber()
			if err := dec.Decode(to); err != nil {
				t.Fatalf("%v in %s", err, text)
			}
		}
		decode(got, &a)
		decode(string(want), &b)
		if !reflect.DeepEqual(plain(a), plain(b)) {
			t.Fatalf("\n got %s\nwant %s", got, want)
		}
		// The order of fields is that of the struct.
		if !strings.HasPrefix(got, `{"Name":`) || !strings.HasSuffix(got, `,"Nil":null,"Empty":{}}`) {
			t.Fatal(got)
		}
	}
}

// plain makes numbers comparable: 1e21 and 1e+21 are the same float, and integers are compared digit by digit.
func plain(v any) any {
	switch v := v.(type) {
	case json.Number:
		if f, err := v.Float64(); err == nil && strings.ContainsAny(v.String(), ".eE") {
			return f
		}
		return v.String()
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = plain(v[k])
		}
	}
	return v
}

type point struct{ X, Y int8 }

type tagged struct {
	a int    `state:"first-name"`
	B string `state:"b"`
}

// opaque decides itself how it is written.
type opaque struct{ s string }

func (o opaque) MarshalBinary() ([]byte, error)     { return []byte(o.s), nil }
func (o *opaque) UnmarshalBinary(data []byte) error { o.s = string(data); return nil }

func TestFormsOfValues(t *testing.T) {
	check := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	check(inspectValue(t, tagged{1, "x"}), `{"first-name":1,"b":"x"}`)
	check(inspectValue(t, "a\xffb"), `{"bytes":"Yf9i"}`)
	check(inspectValue(t, [3]byte{0, 1, 0xfe}), `"0001fe"`)
	check(inspectValue(t, []byte{0, 1, 0xfe}), `"AAH+"`)
	check(inspectValue(t, [2]int16{-1, 2}), `[-1,2]`)
	check(inspectValue(t, []string(nil)), `null`)
	check(inspectValue(t, []string{}), `[]`)
	check(inspectValue(t, map[string]int{}), `{}`)
	check(inspectValue(t, map[bool]int{true: 1}), `{"true":1}`)
	check(inspectValue(t, map[point]string{{1, -1}: "a"}), `[[{"X":1,"Y":-1},"a"]]`)
	check(inspectValue(t, map[float64]bool{0.5: true}), `[[0.5,true]]`)
	check(inspectValue(t, map[string]int{"a\xff": 1, "b": 2}), `[["b",2],[{"bytes":"Yf8="},1]]`)
	check(inspectValue(t, []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1), 1e300}), `["NaN","+Inf","-Inf",-0,1e+300]`)
	check(inspectValue(t, []float32{0.1, 16777216}), `[0.1,16777216]`)
	check(inspectValue(t, opaque{"raw"}), `"cmF3"`)
	check(inspectValue(t, time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)), `"2026-01-02T03:04:05.000000006Z"`)
	check(inspectValue(t, make([]struct{}, 3)), `[{},{},{}]`)
	check(inspectValue(t, uint64(math.MaxUint64)), `18446744073709551615`)
	check(inspectValue(t, int64(math.MinInt64)), `-9223372036854775808`)
}

// TestAllKindsAreShown fills one store of each kind.
func TestAllKindsAreShown(t *testing.T) {
	store := memstore.New()
	s := statestore.NewState(store, statestore.StateOptions{})
	ks := keyOf[string](t)
	mk := func(name string, kind statestore.Kind, keyType string) statestore.Spec {
		return statestore.Spec{Name: name, ID: statestore.StoreID(name), Kind: kind, KeyType: keyType}
	}
	win := must[*statestore.Windows[string, int32]](t)(statestore.NewWindows(s, mk("w/windows", statestore.KindWindows, "string"), ks, codecOf[int32](t)))
	m := must[*statestore.Map[string, point, bool]](t)(statestore.NewMap(s, mk("m/map", statestore.KindMap, "string / struct{X int8;Y int8}"), ks, keyOf[point](t), codecOf[bool](t)))
	list := must[*statestore.List[string, string]](t)(statestore.NewList(s, mk("l/list", statestore.KindList, "string"), ks, codecOf[string](t)))
	timers := must[*statestore.Timers[string]](t)(statestore.NewTimers(s, mk("t/timers", statestore.KindTimers, "string"), ks))
	win.Update(-60_000, 7, "a")
	m.Put(7, "a\x00b", point{-1, 2}, true)
	list.Add(7, "a", "x")
	list.Add(7, "a", "y")
	timers.Set(1_000, 7, "", 3)
	commitAll(t, s, 1)
	got := map[string]line{}
	for _, l := range inspectAll(t, store, s.Specs()) {
		got[l.Store] = l
		if l.KeyError != "" || l.ValueError != "" {
			t.Errorf("%+v", l)
		}
	}
	if l := got["w/windows"]; l.WindowEnd == nil || *l.WindowEnd != -60_000 || string(l.Key) != `"a"` || string(l.Value) != "0" {
		t.Errorf("%+v", l)
	}
	if l := got["m/map"]; string(l.Key) != `"a\u0000b"` || string(l.MapKey) != `{"X":-1,"Y":2}` || string(l.Value) != "true" {
		t.Errorf("%+v", l)
	}
	if l := got["l/list"]; l.Index == nil || *l.Index != 1 || string(l.Value) != `"y"` {
		t.Errorf("%+v", l)
	}
	if l := got["t/timers"]; l.Time == nil || *l.Time != 1_000 || l.Timer == nil || *l.Timer != 3 || string(l.Key) != `""` || l.Value != nil {
		t.Errorf("%+v", l)
	}
}

// TestOlderSchemasAreShown reads values that an older form of the type wrote.
func TestOlderSchemasAreShown(t *testing.T) {
	type old struct{ Count int32 }
	type now struct {
		Count int64
		Note  string
	}
	store := memstore.New()
	sp := statestore.Spec{Name: "op/v", ID: statestore.StoreID("op/v"), Kind: statestore.KindTable, KeyType: "int64"}
	s := statestore.NewState(store, statestore.StateOptions{})
	a := must[*statestore.Table[int64, old]](t)(statestore.NewTable(s, sp, keyOf[int64](t), codecOf[old](t)))
	a.Set(1, -1, old{7})
	commitAll(t, s, 1)
	s = statestore.NewState(store, statestore.StateOptions{})
	b := must[*statestore.Table[int64, now]](t)(statestore.NewTable(s, sp, keyOf[int64](t), codecOf[now](t)))
	b.Set(1, 2, now{8, "x"})
	commitAll(t, s, 2)
	lines := inspectAll(t, store, []statestore.Spec{sp})
	if len(lines) != 2 || string(lines[0].Key) != "-1" || string(lines[0].Value) != `{"Count":7}` || string(lines[1].Value) != `{"Count":8,"Note":"x"}` {
		t.Fatalf("%s %s", lines[0].Value, lines[1].Value)
	}
}

// TestWhatCannotBeDecodedIsShownRaw never hides an entry.
func TestWhatCannotBeDecodedIsShownRaw(t *testing.T) {
	sp := statestore.Spec{Name: "op/v", ID: 0x01020304, Kind: statestore.KindTable, KeyType: "string"}
	in := statestore.NewInspector([]statestore.Spec{sp, {Name: "own/v", ID: 5, Kind: statestore.KindTable, KeyType: "my key"}})
	descriptor := func(id uint32, version uint64, schema string) {
		k := []byte{0, 0, 0, 0, 1, byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id), 0, 0, 0, 0, 0, 0, 0, byte(version)}
		if !in.Learn(k, []byte(schema)) {
			t.Fatal("a descriptor is taken for an entry")
		}
	}
	descriptor(uint32(sp.ID), 1, "int32")
	descriptor(uint32(sp.ID), 2, "my own codec")
	descriptor(77, 1, "int32") // of a store that is gone
	if !in.Learn([]byte{0, 0, 0, 0, 0}, nil) || in.Learn([]byte{1, 2, 3, 4}, nil) {
		t.Fatal("Learn takes what is not of store id 0, or the other way round")
	}
	for _, c := range []struct{ key, val, keyErr, valErr string }{
		{"\x01\x02\x03\x04\x00\x07k\x00\x01", "\x01\x02", "", ""},
		{"\x01\x02\x03\x04\x00\x07k\x00\x01", "\x02\x02", "", "Codec of the program's own"},
		{"\x01\x02\x03\x04\x00\x07k\x00\x01", "\x03\x02", "", "no descriptor of schema version 3"},
		{"\x01\x02\x03\x04\x00\x07k\x00\x01", "\x01", "", "end too early"},
		{"\x01\x02\x03\x04\x00\x07k\x00\x01", "\x01\x02\x02", "", "left behind"},
		{"\x01\x02\x03\x04\x00\x07k\x00\x01", "", "", "end too early"},
		{"\x01\x02\x03\x04\x00\x07k", "\x01\x02", "end too early", ""},
		{"\x01\x02\x03\x04\x00\x07k\x00\x01x", "\x01\x02", "left behind", ""},
		{"\x01\x02\x03\x04\x00", "\x01\x02", "end too early", ""},
		{"\x00\x00\x00\x05\x00\x07k", "\x01\x02", "my key", "no descriptor of schema version 1"},
		{"\x00\x00\x00\x09\x00\x07k", "\x01\x02", "no store of this id", "no store of this id"},
	} {
		l := parseLine(t, in.Append(nil, "", []byte(c.key), []byte(c.val)))
		if !strings.Contains(l.KeyError, c.keyErr) || (c.keyErr == "") != (l.Key != nil) || c.keyErr != "" && !bytes.Equal(l.KeyBase64, []byte(c.key)[4:]) {
			t.Errorf("%x: %+v", c.key, l)
		}
		if !strings.Contains(l.ValueError, c.valErr) || (c.valErr == "") != (l.Value != nil) || c.valErr != "" && string(l.ValueBase64) != c.val {
			t.Errorf("%x %x: %+v", c.key, c.val, l)
		}
	}
}

type visit struct {
	Page  string
	Ids   [2]int32
	Hash  [4]byte
	At    uint16
	Rate  float64
	Half  float32
	Ok    bool
	Inner struct{ Name, Zone string }
}

func randomVisit(r *rand.Rand) visit {
	v := visit{Page: randomText(r), Ids: [2]int32{r.Int32() - 1<<30, -1}, At: uint16(r.Uint32()), Rate: math.Float64frombits(r.Uint64()),
		Half: math.Float32frombits(r.Uint32()), Ok: r.IntN(2) == 0}
	v.Inner.Name, v.Inner.Zone = randomText(r), "\xff\x00"
	for i := range v.Hash {
		v.Hash[i] = byte(r.Uint32())
	}
	return v
}

// checkKeyText says that a key that is shown can be asked for.
func checkKeyText[K comparable](t *testing.T, k K) {
	t.Helper()
	kc := keyOf[K](t)
	enc := kc.Append(nil, k)
	sp := statestore.Spec{Name: "op/v", ID: 9, Kind: statestore.KindMap, KeyType: kc.Schema() + " / " + kc.Schema()}
	in := statestore.NewInspector([]statestore.Spec{sp})
	l := parseLine(t, in.Append(nil, "", append(append([]byte{0, 0, 0, 9, 1, 2}, enc...), enc...), nil))
	if !bytes.Equal(l.Key, l.MapKey) || l.KeyError != "" {
		t.Fatalf("%#v: %+v", k, l)
	}
	text := string(l.Key)
	if text[0] == '"' {
		var s string
		if err := json.Unmarshal(l.Key, &s); err != nil {
			t.Fatal(err)
		}
		text = s
	} else if s, ok := any(k).(string); ok {
		text = s // not UTF-8
	}
	for _, f := range []func(string) ([]byte, error){sp.KeyText, sp.MapKeyText} {
		got, err := f(text)
		if err != nil || !bytes.Equal(got, enc) {
			t.Fatalf("%#v: text %q is encoded as %x (%v), want %x", k, text, got, err, enc)
		}
	}
}

func TestShownKeysCanBeAskedFor(t *testing.T) {
	r := newRand(t)
	for range 500 {
		checkKeyText(t, randomText(r))
		checkKeyText(t, string([]byte{byte(r.Uint32()), 0, byte(r.Uint32())}))
		checkKeyText(t, int64(r.Uint64()))
		checkKeyText(t, int8(r.Uint32()))
		checkKeyText(t, int16(r.Uint32()))
		checkKeyText(t, r.Int32()-1<<30)
		checkKeyText(t, r.Uint64())
		checkKeyText(t, uint8(r.Uint32()))
		checkKeyText(t, math.Float64frombits(r.Uint64()))
		checkKeyText(t, math.Float32frombits(r.Uint32()))
		checkKeyText(t, r.IntN(2) == 0)
		checkKeyText(t, randomVisit(r))
		checkKeyText(t, [2]bool{true, false})
		checkKeyText(t, [0]int{})
		checkKeyText(t, struct{}{})
	}
	checkKeyText(t, math.NaN())
	checkKeyText(t, math.Inf(-1))
}

func TestKeysThatCannotBe(t *testing.T) {
	for _, c := range []struct{ schema, text, want string }{
		{"int8", "128", "integer of 8 bits with sign"},
		{"uint16", "-1", "integer of 16 bits without sign"},
		{"float64", "x", "number"},
		{"bool", "yes", "true or false"},
		{"[4]uint8", "00ff", "8 hexadecimal digits"},
		{"struct{A int8;B string}", `{"A":1}`, "the fields A, B"},
		{"struct{A int8;B string}", `{"A":1,"C":"x"}`, "the fields A, B"},
		{"struct{A int8;B string}", `{"A":"1","B":"x"}`, "key.A"},
		{"struct{A int8;B string}", `{"A":1,"B":2}`, "key.B"},
		{"struct{A int8}", `{"A":1} {}`, "more than one"},
		{"struct{A int8}", `A`, "no JSON"},
		{"[2]int8", `[1]`, "a list of 2"},
		{"my own", "x", "KeyCodec of the program's own"},
		{"", "x", "cannot be read"},
	} {
		_, err := statestore.Spec{KeyType: c.schema}.KeyText(c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %q: %v, want %q", c.schema, c.text, err, c.want)
		}
	}
	if _, err := (statestore.Spec{Name: "op/v", Kind: statestore.KindTable, KeyType: "string"}).MapKeyText("x"); err == nil {
		t.Error("a table has no map key")
	}
}

// FuzzInspector feeds it what damage could make of schemas and entries: each entry is one valid JSON object.
func FuzzInspector(f *testing.F) {
	f.Add("string / int8", "struct{a []string;b map[int8][2]float64;c *time}", []byte("\x00\x01k\x00\x01\x81"), []byte("\x01\x02\x01a\x00"))
	f.Add("[2]struct{A bool;B float32}", "[]struct{}", []byte("\x00\x01\x01\x00\x00\x00\x00"), []byte("\x01\xff\xff\xff\xff\x07"))
	f.Add("[0]void", "map[string]binary(x.y)", []byte("\x00\x01"), []byte("\x01\x02\x01\xff\x01a"))
	f.Fuzz(func(t *testing.T, keyType, schema string, key, val []byte) {
		for kind := statestore.KindTable; kind <= statestore.KindList; kind++ {
			sp := statestore.Spec{Name: schema, ID: 3, Kind: kind, KeyType: keyType}
			in := statestore.NewInspector([]statestore.Spec{sp})
			in.Learn(append([]byte{0, 0, 0, 0, 1, 0, 0, 0, 3}, 0, 0, 0, 0, 0, 0, 0, 1), []byte(schema))
			b := in.Append([]byte("x"), "0_0", append([]byte{0, 0, 0, 3}, key...), val)
			if b[0] != 'x' {
				t.Fatal("what was there is gone")
			}
			l := parseLine(t, b[1:])
			if (l.KeyError == "") != (l.Key != nil) || kind != statestore.KindTimers && (l.ValueError == "") != (l.Value != nil) {
				t.Fatalf("%s", b[1:])
			}
			if _, err := sp.KeyText(string(val)); err == nil && keyType == "" {
				t.Fatal("a key of no type")
			}
		}
		statestore.NewInspector(nil).Append(nil, "", key, val)
	})
}

func BenchmarkInspector(b *testing.B) {
	codec := codecOf[customer](b)
	sp := statestore.Spec{Name: "op/v", ID: 3, Kind: statestore.KindTable, KeyType: "string"}
	in := statestore.NewInspector([]statestore.Spec{sp})
	in.Learn([]byte{0, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1}, []byte(codec.Schema()))
	c := randomCustomer(rand.New(rand.NewPCG(1, 2)))
	key := keyOf[string](b).Append([]byte{0, 0, 0, 3, 1, 2}, fmt.Sprint("customer-", 12345))
	val := codec.Append([]byte{1}, &c)
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = in.Append(dst[:0], "0_3", key, val)
	}
	b.SetBytes(int64(len(dst)))
}
