package format

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"
)

func roundTrip[T comparable](t *testing.T, s Serde[T], v T, want string) {
	t.Helper()
	b, err := s.Append([]byte("x"), &v)
	if err != nil {
		t.Fatal(err)
	}
	if string(b) != "x"+want {
		t.Fatalf("encoded %v as %q, want %q", v, b[1:], want)
	}
	var got T
	if err := s.Decode(b[1:], &got); err != nil {
		t.Fatal(err)
	}
	if got != v {
		t.Fatalf("read back %v, want %v", got, v)
	}
}

func TestPlainSerdes(t *testing.T) {
	roundTrip(t, String(), "gr\u00fcn", "gr\u00fcn")
	roundTrip(t, String(), "", "")
	roundTrip(t, Int64(), -2, "\xff\xff\xff\xff\xff\xff\xff\xfe")
	roundTrip(t, Int64(), math.MaxInt64, "\x7f\xff\xff\xff\xff\xff\xff\xff")
	roundTrip(t, Int32(), -2, "\xff\xff\xff\xfe")
	roundTrip(t, Float64(), -1.5, "\xbf\xf8\x00\x00\x00\x00\x00\x00")
	var b []byte
	if err := Bytes().Decode([]byte{1, 2}, &b); err != nil || !bytes.Equal(b, []byte{1, 2}) {
		t.Fatal(b, err)
	}
	f := Func(func(src []byte, v *int) error { *v = len(src); return nil },
		func(dst []byte, v *int) ([]byte, error) { return append(dst, make([]byte, *v)...), nil })
	roundTrip(t, f, 3, "\x00\x00\x00")
}

func TestPlainSerdeErrors(t *testing.T) {
	var s string
	var n int64
	for _, c := range []struct {
		err  error
		want string
	}{
		{String().Decode([]byte("ab\xffc"), &s), "decode string: not UTF-8: byte 0xff at offset 2"},
		{Int64().Decode([]byte("1234"), &n), "decode int64: want 8 bytes, found 4"},
		{Int64().Decode([]byte{}, &n), "decode int64: want 8 bytes, found 0"},
	} {
		if c.err == nil || c.err.Error() != c.want {
			t.Errorf("got %v, want %s", c.err, c.want)
		}
	}
	bad := "a\xc3"
	if _, err := String().Append(nil, &bad); err == nil {
		t.Error("encoded text that is not UTF-8")
	}
}

// TestNull: a null record is a tombstone that callers can tell from bad data (field report P30).
func TestNull(t *testing.T) {
	var (
		s   string
		b   []byte
		i64 int64
		i32 int32
		f   float64
		row benchThree
		ptr *benchThree
		raw struct{ A int }
		m   map[string]int
		key struct{ A, B string }
	)
	dflt, err := DefaultKey[struct{ A, B string }]()
	if err != nil {
		t.Fatal(err)
	}
	called := Func(func([]byte, *int64) error { t.Error("decode was called with nil"); return nil }, nil)
	for i, err := range []error{
		String().Decode(nil, &s), Bytes().Decode(nil, &b), Int64().Decode(nil, &i64), Int32().Decode(nil, &i32),
		Float64().Decode(nil, &f), called.Decode(nil, &i64), mustJSON[benchThree](t).Decode(nil, &row), dflt.Decode(nil, &key),
		mustJSON[benchThree](t).Decode([]byte("null"), &row), mustJSON[*benchThree](t).Decode([]byte(" null\n"), &ptr),
		mustJSON[struct{ A int }](t).Decode([]byte("null "), &raw), mustJSON[map[string]int](t).Decode([]byte("null"), &m),
	} {
		if !errors.Is(err, ErrNull) {
			t.Errorf("case %d: got %v, want ErrNull", i, err)
		}
	}
	for _, doc := range []string{"nul", "nulll", "null 1", ""} {
		if err := mustJSON[benchThree](t).Decode([]byte(doc), &row); err == nil || errors.Is(err, ErrNull) {
			t.Errorf("%q: got %v, want a syntax error", doc, err)
		}
	}
}

func TestPartitionVectors(t *testing.T) {
	// From the unit tests of Kafka's Utils.murmur2.
	for key, want := range map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536, "a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971, "abc": 479470107,
	} {
		if got := int32(Murmur2([]byte(key))); got != want {
			t.Errorf("Murmur2(%q) = %d, want %d", key, got, want)
		}
	}
}

// TestPartitionIsKgos: what kgo's default partitioner does is what Kafka's clients do.
func TestPartitionIsKgos(t *testing.T) {
	p := kgo.StickyKeyPartitioner(nil).ForTopic("t")
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		key := make([]byte, 1+rng.IntN(40))
		for i := range key {
			key[i] = byte(rng.Uint32())
		}
		n := 1 + rng.IntN(300)
		if got, want := Partition(key, int32(n)), p.Partition(&kgo.Record{Key: key}, n); int(got) != want {
			t.Fatalf("Partition(%x, %d) = %d, kgo says %d", key, n, got, want)
		}
	}
}

type userID string

func TestDefaults(t *testing.T) {
	def := func(s Serde[string], err error) Serde[string] {
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	roundTrip(t, def(Default[string]()), `a"b`, `a"b`)
	roundTrip(t, def(DefaultKey[string]()), `a"b`, `a"b`)
	id, err := DefaultKey[userID]()
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, id, "ann", "ann")
	k64, err := DefaultKey[int64]()
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, k64, 7, "\x00\x00\x00\x00\x00\x00\x00\x07")
	k32, err := DefaultKey[int32]()
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, k32, 7, "\x00\x00\x00\x07")
	kint, err := DefaultKey[int]()
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, kint, -1, strings.Repeat("\xff", 8))
	pair, err := DefaultKey[struct {
		A string
		B int `json:"b"`
	}]()
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, pair, struct {
		A string
		B int `json:"b"`
	}{"x", 2}, `{"A":"x","b":2}`)
	v64, err := Default[int64]()
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, v64, 7, "7")
	raw, err := Default[[]byte]()
	if err != nil {
		t.Fatal(err)
	}
	if b, err := raw.Append(nil, &[]byte{0, 1}); err != nil || !bytes.Equal(b, []byte{0, 1}) {
		t.Fatal(b, err)
	}
	if _, err := DefaultKey[time.Time](); err == nil {
		t.Error("a time.Time key without a unit was taken")
	}
	if _, err := Default[chan int](); err == nil {
		t.Error("a channel was taken")
	}
}

// TestDecodeAllocatesNothing: strings point into the record.
func TestDecodeAllocatesNothing(t *testing.T) {
	s, doc := mustJSON[benchThree](t), benchDoc()
	var v benchThree
	if n := testing.AllocsPerRun(100, func() {
		if err := s.Decode(doc, &v); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
	if unsafe.StringData(v.User) != &doc[bytes.Index(doc, []byte("u000123"))] {
		t.Error("the string is a copy")
	}
	if v != (benchThree{"u000123", 12.34, 1700000000000}) {
		t.Error(v)
	}
	row, buf := benchRow{"u", "i", 1.5, 2, 3}, make([]byte, 0, 200)
	enc := mustJSON[benchRow](t)
	if n := testing.AllocsPerRun(100, func() { _, _ = enc.Append(buf, &row) }); n != 0 {
		t.Errorf("encoding: %v allocations, want none", n)
	}
}
