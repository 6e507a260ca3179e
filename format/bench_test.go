package format

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

type benchThree struct {
	User   string  `json:"user"`
	Amount float64 `json:"amount"`
	TS     int64   `json:"ts"`
}

type benchRow struct {
	User   string  `json:"user"`
	Item   string  `json:"item"`
	Amount float64 `json:"amount"`
	TS     int64   `json:"ts"`
	Count  int64   `json:"count"`
}

func benchDoc() []byte {
	return []byte(`{"user":"u000123","item":"i0042","amount":12.34,"ts":1700000000000,"note":"` + strings.Repeat("abcdefgh", 8) + `"}`)
}

func mustJSON[T any](tb testing.TB, opts ...JSONOption) Serde[T] {
	tb.Helper()
	s, err := JSON[T](opts...)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func benchDecode[T any](b *testing.B, doc []byte) {
	s := mustJSON[T](b)
	b.ReportAllocs()
	b.SetBytes(int64(len(doc)))
	var v T
	for b.Loop() {
		if err := s.Decode(doc, &v); err != nil {
			b.Fatal(err)
		}
	}
}

func benchEncode[T any](b *testing.B, v T) {
	s := mustJSON[T](b)
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if dst, err = s.Append(dst[:0], &v); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode3of5(b *testing.B) { benchDecode[benchThree](b, benchDoc()) }

func BenchmarkEncode5(b *testing.B) {
	benchEncode(b, benchRow{"u000123", "i0042", 12.34, 1700000000000, 7})
}

func BenchmarkDecode5of5(b *testing.B) {
	benchDecode[benchRow](b, []byte(`{"user":"u000123","item":"i0042","amount":12.34,"ts":1700000000000,"count":7}`))
}

// BenchmarkDecodeJsontext is the walk that the decoder is measured against.
func BenchmarkDecodeJsontext(b *testing.B) {
	doc := benchDoc()
	b.ReportAllocs()
	var r bytes.Reader
	d := jsontext.NewDecoder(&r)
	for b.Loop() {
		r.Reset(doc)
		d.Reset(&r)
		var v benchThree
		if _, err := d.ReadToken(); err != nil {
			b.Fatal(err)
		}
		for d.PeekKind() == '"' {
			name, err := d.ReadValue()
			if err != nil {
				b.Fatal(err)
			}
			switch string(name) {
			case `"user"`:
				t, _ := d.ReadToken()
				v.User = t.String()
			case `"amount"`:
				t, _ := d.ReadToken()
				v.Amount, _ = t.Float()
			case `"ts"`:
				t, _ := d.ReadToken()
				v.TS, _ = t.Int()
			default:
				if err := d.SkipValue(); err != nil {
					b.Fatal(err)
				}
			}
		}
		if v.TS != 1700000000000 {
			b.Fatal(v)
		}
	}
}

// BenchmarkEncodeByHand is the code that the encoder is measured against.
func BenchmarkEncodeByHand(b *testing.B) {
	v := benchRow{"u000123", "i0042", 12.34, 1700000000000, 7}
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = append(dst[:0], `{"user":`...)
		dst, _ = jsontext.AppendQuote(dst, v.User)
		dst = append(dst, `,"item":`...)
		dst, _ = jsontext.AppendQuote(dst, v.Item)
		dst = append(dst, `,"amount":`...)
		dst = strconv.AppendFloat(dst, v.Amount, 'f', -1, 64)
		dst = append(dst, `,"ts":`...)
		dst = strconv.AppendInt(dst, v.TS, 10)
		dst = append(dst, `,"count":`...)
		dst = strconv.AppendInt(dst, v.Count, 10)
		dst = append(dst, '}')
	}
}

func BenchmarkEncodeEncodingJSON(b *testing.B) {
	v := benchRow{"u000123", "i0042", 12.34, 1700000000000, 7}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := json.Marshal(&v); err != nil {
			b.Fatal(err)
		}
	}
}

// benchEvent and benchTotal are what the running total of test/bench reads and writes.
type benchEvent struct {
	User   string    `json:"user"`
	Amount float64   `json:"amount"`
	At     time.Time `json:"ts,unixmilli"`
}

type benchTotal struct {
	User  string    `json:"user"`
	Count int64     `json:"count"`
	Sum   float64   `json:"sum"`
	At    time.Time `json:"ts,unixmilli"`
}

func BenchmarkDecodeEvent(b *testing.B) { benchDecode[benchEvent](b, benchDoc()) }

func BenchmarkEncodeTotal(b *testing.B) {
	benchEncode(b, benchTotal{"u000123", 217, 10912.34, time.UnixMilli(1700000000123)})
}

// BenchmarkStringKey reads a key and writes it again.
func BenchmarkStringKey(b *testing.B) {
	s, key := String(), []byte("u000123")
	var v string
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Decode(key, &v); err != nil {
			b.Fatal(err)
		}
		var err error
		if dst, err = s.Append(dst[:0], &v); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPartition(b *testing.B) {
	key := []byte("u000123")
	for b.Loop() {
		if Partition(key, 4) < 0 {
			b.Fatal()
		}
	}
}
