package format

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"math/big"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// reference reads doc with jsontext: ok tells whether it is one valid document, twice whether some object has a name
// twice. Objects are lists of members, so that nothing is lost.
func reference(doc []byte) (v any, ok, twice bool) {
	d := jsontext.NewDecoder(bytes.NewReader(doc), jsontext.AllowDuplicateNames(true))
	v, err := refValue(d, &twice)
	if err != nil {
		return nil, false, false
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, false, false
	}
	return v, true, twice
}

type member struct {
	name  string
	value any
}

func refValue(d *jsontext.Decoder, twice *bool) (any, error) {
	tok, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	switch tok.Kind() {
	case 'n':
		return nil, nil
	case 't', 'f':
		return tok.Bool(), nil
	case '"':
		return tok.String(), nil
	case '0':
		return json.Number(tok.String()), nil
	case '[':
		list := []any{}
		for d.PeekKind() != ']' {
			e, err := refValue(d, twice)
			if err != nil {
				return nil, err
			}
			list = append(list, e)
		}
		_, err := d.ReadToken()
		return list, err
	default:
		obj := []member{}
		for d.PeekKind() != '}' {
			name, err := d.ReadToken()
			if err != nil {
				return nil, err
			}
			m := member{name: name.String()}
			if m.value, err = refValue(d, twice); err != nil {
				return nil, err
			}
			for _, o := range obj {
				*twice = *twice || o.name == m.name
			}
			obj = append(obj, m)
		}
		_, err := d.ReadToken()
		return obj, err
	}
}

// refMaps turns members into maps.
func refMaps(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = refMaps(v[i])
		}
		return v
	case []member:
		m := map[string]any{}
		for _, e := range v {
			m[e.name] = refMaps(e.value)
		}
		return m
	}
	return v
}

// refInt is the exact value of a number that is an integer.
func refInt(s json.Number) *big.Int {
	mant, exp, _ := strings.Cut(strings.ToLower(string(s)), "e")
	r, _ := new(big.Rat).SetString(mant)
	if r.Sign() == 0 {
		return new(big.Int)
	}
	if exp != "" {
		e, err := strconv.Atoi(exp)
		if err != nil || e < -5000 {
			e = 5000 // neither an integer nor in range
			if strings.HasPrefix(exp, "-") {
				return nil
			}
		}
		p := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(min(max(e, -e), 5000))), nil))
		if e < 0 {
			p.Inv(p)
		}
		r.Mul(r, p)
	}
	if !r.IsInt() {
		return nil
	}
	return r.Num()
}

// projected has a field of each kind that the checks below know how to predict.
type projected struct {
	A int64           `json:"a"`
	B uint8           `json:"b"`
	C float64         `json:"c"`
	D string          `json:"d"`
	E bool            `json:"e"`
	F []string        `json:"f"`
	G map[string]any  `json:"g"`
	H *int32          `json:"h"`
	I float32         `json:"i"`
	J json.Number     `json:"j"`
	K json.RawMessage `json:"k"`
	L any             `json:"l"`
	M struct {
		N uint64 `json:"n"`
	} `json:"m"`
	O string `json:"\u00e9"`
}

// predict is what decoding must make of an object; ok is false if it must be refused.
func predict(obj []member) (p projected, ok bool) {
	seen := map[string]bool{}
	for _, m := range obj {
		fieldNames := "abcdefghijklm\u00e9"
		if utf8.RuneCountInString(m.name) != 1 || !strings.Contains(fieldNames, m.name) {
			continue
		}
		if seen[m.name] {
			return p, false
		}
		seen[m.name] = true
		if m.value == nil {
			continue // K is checked by others
		}
		num, isNum := m.value.(json.Number)
		var n *big.Int
		if isNum {
			n = refInt(num)
		}
		text, isText := m.value.(string)
		ok := true
		switch m.name {
		case "a":
			if ok = n != nil && n.IsInt64(); ok {
				p.A = n.Int64()
			}
		case "b":
			if ok = n != nil && n.IsUint64() && n.Uint64() < 256; ok {
				p.B = uint8(n.Uint64())
			}
		case "h":
			if ok = n != nil && n.IsInt64() && n.Int64() == int64(int32(n.Int64())); ok {
				i := int32(n.Int64())
				p.H = &i
			}
		case "c", "i":
			if ok = isNum; ok {
				f64, e64 := strconv.ParseFloat(string(num), 64)
				f32, e32 := strconv.ParseFloat(string(num), 32)
				if m.name == "c" {
					p.C, ok = f64, e64 == nil
				} else {
					p.I, ok = float32(f32), e32 == nil
				}
			}
		case "d":
			p.D, ok = text, isText
		case "\u00e9":
			p.O, ok = text, isText
		case "e":
			p.E, ok = m.value.(bool)
		case "f":
			list, isList := m.value.([]any)
			if ok = isList; ok {
				p.F = []string{}
				for _, e := range list {
					s, isText := e.(string)
					ok = ok && (isText || e == nil)
					p.F = append(p.F, s)
				}
			}
		case "g":
			if _, ok = m.value.([]member); ok {
				p.G = refMaps(m.value).(map[string]any)
			}
		case "j":
			p.J, ok = num, isNum
		case "l":
			p.L = refMaps(m.value)
		case "m":
			obj, isObj := m.value.([]member)
			ok = isObj
			count := 0
			for _, e := range obj {
				if e.name != "n" {
					continue
				}
				if count++; count > 1 {
					return p, false
				}
				if e.value == nil {
					continue
				}
				num, isNum := e.value.(json.Number)
				if !isNum {
					return p, false
				}
				n := refInt(num)
				if n == nil || !n.IsUint64() {
					return p, false
				}
				p.M.N = n.Uint64()
			}
		}
		if !ok {
			return p, false
		}
	}
	return p, true
}

// hasTwice tells whether a part that is kept as a map has a name twice.
func hasTwice(v any) bool {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if hasTwice(e) {
				return true
			}
		}
	case []member:
		seen := map[string]bool{}
		for _, m := range v {
			if seen[m.name] || hasTwice(m.value) {
				return true
			}
			seen[m.name] = true
		}
	}
	return false
}

type differ struct {
	raw  Serde[json.RawMessage]
	tree Serde[any]
	row  Serde[projected]
	none Serde[struct{ Unused int }]
}

func newDiffer(tb testing.TB) differ {
	deep := MaxDepth(10000) // as jsontext
	return differ{mustJSON[json.RawMessage](tb, deep), mustJSON[any](tb, deep), mustJSON[projected](tb, deep), mustJSON[struct{ Unused int }](tb, deep)}
}

// check compares all ways to read doc with jsontext.
func (d differ) check(t *testing.T, doc []byte) (valid bool) {
	t.Helper()
	orig := bytes.Clone(doc)
	ref, ok, twice := reference(doc)
	var raw json.RawMessage
	err := d.raw.Decode(doc, &raw)
	if ref == nil && ok {
		if !errors.Is(err, ErrNull) {
			t.Fatalf("%q: got %v, want ErrNull", doc, err)
		}
		return true
	}
	if (err == nil) != ok {
		t.Fatalf("%q: skipping says %v, jsontext says valid: %v", doc, err, ok)
	}
	if ok && !bytes.Equal(raw, bytes.Trim(doc, " \t\r\n")) {
		t.Fatalf("%q: raw is %q", doc, raw)
	}
	var tree any
	err = d.tree.Decode(doc, &tree)
	if (err == nil) != (ok && !twice) {
		t.Fatalf("%q: reading all says %v, jsontext says valid: %v, a name twice: %v", doc, err, ok, twice)
	}
	obj, isObj := ref.([]member)
	var row projected
	err = d.row.Decode(doc, &row)
	want, rowOK := projected{}, ok && isObj
	if rowOK {
		for _, m := range obj {
			rowOK = rowOK && !((m.name == "g" || m.name == "l") && hasTwice(m.value))
			if m.name == "k" && row.K == nil && err == nil {
				t.Fatalf("%q: k is missing", doc)
			}
		}
		if rowOK {
			want, rowOK = predict(obj)
		}
	}
	if (err == nil) != rowOK {
		t.Fatalf("%q: decoding says %v, want success: %v", doc, err, rowOK)
	}
	if rowOK {
		if row.K != nil {
			kept, _, _ := reference(row.K)
			for _, m := range obj {
				if m.name == "k" && !reflect.DeepEqual(kept, m.value) {
					t.Fatalf("%q: k is %q", doc, row.K)
				}
			}
			row.K = nil
		}
		if !reflect.DeepEqual(row, want) {
			t.Fatalf("%q: decoded\n%+v, want\n%+v", doc, row, want)
		}
	}
	var none struct{ Unused int }
	if err := d.none.Decode(doc, &none); err == nil && !(ok && isObj) {
		t.Fatalf("%q: a projection of nothing took it", doc)
	}
	if ok && !twice && !reflect.DeepEqual(tree, refMaps(ref)) {
		t.Fatalf("%q: read %#v, want %#v", doc, tree, refMaps(ref))
	}
	if !bytes.Equal(doc, orig) {
		t.Fatalf("%q was changed to %q", orig, doc)
	}
	return ok
}

var seeds = []string{
	`{"a":1,"b":2,"c":3.5,"d":"x","e":true,"f":["a",null],"g":{"h":[1]},"h":-7,"i":0.1,"j":1e5,"k":[ ],"l":{"x":null},"m":{"n":5},"\u00e9":"y"}`,
	`{"a":9223372036854775808}`, `{"a":-9223372036854775808,"b":2.55e2}`, `{"c":1e309}`, `{"i":3.5e38}`, `{"c":0.000000000000000000001e21}`,
	`{"d":"\ud83d\ude00 \u00e9 \\ \" \/ \b\f\n\r\t"}`, `{"d":"\ud800"}`, "{\"d\":\"\xe2\x82\xac abcdefgh \xf0\x9f\x98\x80\"}", "{\"x\":\"\xc0\x80\"}",
	`[1,2,[3,{"a":{}}]]`, ` null `, `"x"`, `-0.0e+10`, `{"a":1,"a":2}`, `{"x":{"y":1,"y":2}}`, `{"l":{"y":1,"y":2}}`, `{"a":01}`, `{"a" :1 , "b": 2}`,
	"{\"d\":\"tab\there\"}", `{"d":"unterminated`, `{"k":{"a":[1,2,3]}}`, `{"k":null,"g":null}`, `{"\u0061":7}`, `[]]`, `{}{}`, `tru`, `{"e":falsey}`, "\ufeff{}",
}

func FuzzJSONDecode(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	d := newDiffer(f)
	f.Fuzz(func(t *testing.T, doc []byte) {
		if doc == nil {
			doc = []byte{}
		}
		if len(doc) > 4000 {
			return // the reference's numbers are exact up to here
		}
		d.check(t, doc)
	})
}

// docMaker makes documents that look like those of projected.
type docMaker struct{ *rand.Rand }

func (r docMaker) pick(s ...string) string { return s[r.IntN(len(s))] }

func (r docMaker) space() string { return r.pick("", "", "", "", " ", "\n\t", " \r ") }

func (r docMaker) text() string {
	var b strings.Builder
	b.WriteByte('"')
	for range r.IntN(20) {
		b.WriteString(r.pick("a", "b", "word ", "eightby8", "\u00e9", "\u20ac", "\U0001F600", `\n`, `\\`, `\"`, `\/`, `\u00e9`, `\ud83d\ude00`, `\u0000`, "\u2028"))
	}
	b.WriteByte('"')
	return b.String()
}

func (r docMaker) number() string {
	switch r.IntN(6) {
	case 0:
		return strconv.Itoa(r.IntN(300))
	case 1:
		return strconv.FormatInt(int64(r.Uint64()>>r.IntN(64)), 10)
	case 2:
		return r.pick("9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "18446744073709551615", "18446744073709551616",
			"9007199254740993", "0", "-0", "1e3", "2.5e1", "1.0", "255", "256", "2147483647", "-2147483649", "1e400", "1e-400", "0e999999999999", "1e-999999999999")
	case 3:
		return strconv.FormatFloat(r.NormFloat64()*1000, 'f', r.IntN(20), 64)
	case 4:
		return strconv.FormatFloat(r.NormFloat64(), 'e', r.IntN(20), 64)
	default:
		return strconv.Itoa(r.IntN(1000)-500) + r.pick("", ".0", ".25", "00", ".000") + r.pick("", "e2", "E-1", "e+18", "e-3")
	}
}

func (r docMaker) value(depth int) string {
	n := r.IntN(8)
	if depth == 0 {
		n %= 6
	}
	switch n {
	case 0, 1:
		return r.text()
	case 2, 3:
		return r.number()
	case 4:
		return r.pick("true", "false", "null")
	case 5:
		return r.pick("[]", "{}", `["a","b"]`, `{"n":1}`, `{"n":18446744073709551615}`)
	case 6:
		var parts []string
		for range r.IntN(4) {
			parts = append(parts, r.space()+r.value(depth-1)+r.space())
		}
		return "[" + strings.Join(parts, ",") + "]"
	default:
		return r.object(depth)
	}
}

func (r docMaker) object(depth int) string {
	var parts []string
	for range r.IntN(6) {
		name := r.pick("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "x", "yy", "\u00e9", `\u0061`, "longer-name")
		value := r.value(max(depth-1, 0))
		if r.IntN(2) == 0 { // of the right kind
			switch name {
			case "a", "b", "c", "h", "i", "j":
				value = r.number()
			case "d", "\u00e9":
				value = r.text()
			case "e":
				value = r.pick("true", "false", "null")
			case "f":
				value = r.pick("[]", "null", "["+r.text()+","+r.text()+"]")
			case "g", "m":
				value = r.object(max(depth-1, 0))
			}
		}
		parts = append(parts, r.space()+`"`+name+`"`+r.space()+":"+r.space()+value+r.space())
	}
	return "{" + r.space() + strings.Join(parts, ",") + r.space() + "}"
}

// mutate breaks a document, most of the time.
func (r docMaker) mutate(doc []byte) []byte {
	for range 1 + r.IntN(2) {
		if len(doc) == 0 {
			break
		}
		i := r.IntN(len(doc))
		switch r.IntN(4) {
		case 0:
			doc = append(doc[:i:i], doc[i+1:]...)
		case 1:
			doc[i] = byte(r.Uint32())
		case 2:
			const signs = `{}[]:,"\0123456789eE+-.tfnu `
			doc = append(doc[:i:i], append([]byte{signs[r.IntN(len(signs))]}, doc[i:]...)...)
		default:
			doc = doc[:i:i]
		}
	}
	return doc
}

// TestJSONDiffersNotFromJsontext reads random documents, whole and broken.
func TestJSONDiffersNotFromJsontext(t *testing.T) {
	const seed = 20260101
	t.Log("seed", seed)
	r := docMaker{rand.New(rand.NewPCG(seed, 1))}
	d := newDiffer(t)
	for _, s := range seeds {
		d.check(t, []byte(s))
	}
	valid, broken, rows := 0, 0, 0
	for range 20000 {
		doc := []byte(r.object(3))
		if r.IntN(2) == 0 {
			doc = r.mutate(doc)
		}
		if d.check(t, doc) {
			valid++
			if d.row.Decode(doc, new(projected)) == nil {
				rows++
			}
		} else {
			broken++
		}
	}
	t.Logf("%d valid documents, %d of them rows, %d broken", valid, rows, broken)
	if valid < 5000 || rows < 2000 || broken < 3000 {
		t.Error("the documents prove too little")
	}
}

// written is encoded by us and by encoding/json.
type written struct {
	A int64             `json:"a"`
	B uint16            `json:"b,omitempty"`
	C float64           `json:"c"`
	D string            `json:"d"`
	E bool              `json:"e,omitempty"`
	F []string          `json:"f"`
	G map[string]string `json:"g"`
	H *float32          `json:"h"`
	I []byte            `json:"i"`
	J int8              `json:"j,string"`
}

func checkWritten(t *testing.T, s Serde[written], v written) {
	t.Helper()
	got, err := s.Append([]byte("pre"), &v)
	if err != nil {
		t.Fatalf("%+v: %v", v, err)
	}
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	if want := "pre" + strings.TrimSuffix(buf.String(), "\n"); string(got) != want {
		t.Fatalf("wrote\n%s, want\n%s", got, want)
	}
	var back written
	if err := s.Decode(got[3:], &back); err != nil {
		t.Fatalf("%s: %v", got, err)
	}
	if !reflect.DeepEqual(back, v) {
		t.Fatalf("%s: read back\n%+v, want\n%+v", got, back, v)
	}
}

func FuzzJSONRoundTrip(f *testing.F) {
	f.Add(int64(1), uint16(2), 12.34, "x", true, "k", float32(1.5), []byte{1})
	f.Add(int64(-1<<63), uint16(0), 1e-7, "\u2028<&>\x00\x7f\"\\", false, "\b\f", float32(1e21), []byte{})
	s := mustJSON[written](f)
	f.Fuzz(func(t *testing.T, a int64, b uint16, c float64, d string, e bool, k string, h float32, i []byte) {
		v := written{A: a, B: b, C: c, D: d, E: e, F: []string{d, k}, G: map[string]string{k: d, d: k}, H: &h, I: append([]byte{}, i...), J: int8(a)}
		if !utf8.ValidString(d) || !utf8.ValidString(k) || c-c != 0 || h-h != 0 {
			if b, err := s.Append(nil, &v); err == nil {
				t.Fatalf("wrote %s", b)
			}
			return
		}
		checkWritten(t, s, v)
	})
}

func TestJSONRoundTrip(t *testing.T) {
	const seed = 20260102
	t.Log("seed", seed)
	r := docMaker{rand.New(rand.NewPCG(seed, 1))}
	s := mustJSON[written](t)
	text := func() string {
		s, err := jsontext.AppendUnquote(nil, r.text())
		if err != nil {
			t.Fatal(err)
		}
		return string(s) + r.pick("", "<b>&", "\x1f", "\x7f", "\u2029")
	}
	for range 20000 {
		h := float32(r.NormFloat64())
		v := written{
			A: int64(r.Uint64()), B: uint16(r.IntN(3)), D: text(), E: r.IntN(2) == 0, F: []string{text(), ""}, G: map[string]string{text(): "", text(): "x"},
			H: &h, I: []byte(text()), J: int8(r.Uint32()),
		}
		switch r.IntN(4) { // floats of few digits take a path of their own
		case 0:
			v.C = float64(r.IntN(2000000)-1000000) / 100
		case 1:
			v.C = float64(int64(r.Uint64()>>r.IntN(60))) / pow10[r.IntN(9)]
		case 2:
			v.C = r.NormFloat64() * pow10[r.IntN(16)]
		default:
			for v.C = r.float(); v.C-v.C != 0; v.C = r.float() {
			}
		}
		checkWritten(t, s, v)
	}
}

// float has any bits.
func (r docMaker) float() float64 { return math.Float64frombits(r.Uint64()) }
