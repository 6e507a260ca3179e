package format

import (
	"strings"
	"testing"
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

func BenchmarkDecode3of5(b *testing.B) {
	s, doc := mustJSON[benchThree](b), benchDoc()
	b.ReportAllocs()
	b.SetBytes(int64(len(doc)))
	var v benchThree
	for b.Loop() {
		if err := s.Decode(doc, &v); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncode5(b *testing.B) {
	s := mustJSON[benchRow](b)
	v := benchRow{"u000123", "i0042", 12.34, 1700000000000, 7}
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if dst, err = s.Append(dst[:0], &v); err != nil {
			b.Fatal(err)
		}
	}
}
