package row

import (
	"bytes"
	"math"
	"math/big"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/statestore"
)

// someType is a type of any kind, nested at most depth deep.
func someType(r *rand.Rand, depth int) *Type {
	n := 21
	if depth == 0 {
		n = 17
	}
	var t *Type
	switch r.IntN(n) {
	case 0:
		t = Boolean()
	case 1:
		t = TinyInt()
	case 2:
		t = SmallInt()
	case 3:
		t = Int()
	case 4:
		t = BigInt()
	case 5:
		t = Float()
	case 6:
		t = Double()
	case 7:
		t = Decimal(18, 3)
	case 8:
		t = Decimal(38, 10)
	case 9:
		t = String()
	case 10:
		t = Bytes()
	case 11:
		t = Date()
	case 12:
		t = Time(3)
	case 13:
		t = Timestamp(3)
	case 14:
		t = TimestampLTZ(9)
	case 15:
		t = IntervalDay()
	case 16:
		t = IntervalMonth()
	case 17:
		t = Array(someType(r, depth-1))
	case 18:
		t = Map(someType(r, 0), someType(r, depth-1))
	case 19:
		t = Multiset(someType(r, 0))
	default:
		var fs []Field
		for i := range 1 + r.IntN(10) {
			fs = append(fs, Field{string(rune('a' + i)), someType(r, depth-1)})
		}
		t = RowOf(fs...)
	}
	return t.Nullable(r.IntN(3) > 0)
}

func someBytes(r *rand.Rand) []byte {
	b := make([]byte, r.IntN(4)*r.IntN(60))
	for i := range b {
		b[i] = "\x00\x01\xff\x00abc\"z"[r.IntN(9)]
	}
	return b
}

func someInt(r *rand.Rand, size int) int64 {
	switch r.IntN(4) {
	case 0:
		return -1 << (size - 1)
	case 1:
		return 1<<(size-1) - 1
	case 2:
		return int64(r.IntN(5) - 2)
	}
	return int64(r.Uint64()) >> (64 - size)
}

// someValue is a value of the type; nested NULLs stand wherever the type does not forbid them.
func someValue(r *rand.Rand, t *Type) Value {
	if t.IsNullable() && r.IntN(4) == 0 {
		return nil
	}
	list := func(e *Type) []Value {
		vs := make([]Value, r.IntN(12))
		for i := range vs {
			vs[i] = someValue(r, e)
		}
		return vs
	}
	switch t.Kind() {
	case KindBoolean:
		return r.IntN(2) == 0
	case KindFloat, KindDouble:
		f := []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), 1.5, -1e-30, r.NormFloat64()}[r.IntN(7)]
		if t.Kind() == KindFloat {
			f = float64(float32(f))
		}
		return f
	case KindDecimal:
		return someDec(r, t.Precision())
	case KindChar, KindVarChar:
		return string(someBytes(r))
	case KindBinary, KindVarBinary:
		return someBytes(r)
	case KindTimestamp, KindTimestampLTZ:
		s := Stamp{Ms: someInt(r, 45)}
		if t.Precision() > 3 {
			s.Nanos = int64(r.IntN(1e6))
		}
		return s
	case KindArray:
		return list(t.Elem())
	case KindRow:
		vs := make([]Value, t.NumFields())
		for i := range vs {
			vs[i] = someValue(r, t.Field(i).Type)
		}
		return vs
	case KindMap, KindMultiset:
		k, v := t.Key(), t.Elem()
		if t.Kind() == KindMultiset {
			k, v = t.Elem(), Int().NotNull()
		}
		// Distinct keys, in the order of their encoded form, as they come back from a key.
		var es []Entry
		for _, key := range list(k) {
			at := 0
			enc := encoded(k, key)
			for at < len(es) && bytes.Compare(encoded(k, es[at].Key), enc) < 0 {
				at++
			}
			if at < len(es) && bytes.Equal(encoded(k, es[at].Key), enc) {
				continue
			}
			es = append(es, Entry{})
			copy(es[at+1:], es[at:])
			es[at] = Entry{key, someValue(r, v)}
		}
		if es == nil {
			es = []Entry{}
		}
		return es
	}
	return someInt(r, 8*int(t.shape.width))
}

func encoded(t *Type, v Value) []byte {
	if v == nil {
		return AppendKeyNull(nil)
	}
	x, y, b := t.Encode(v)
	return AppendKeyValue(nil, t, x, y, b)
}

func TestRowsAndKeysComeBackAsTheyWere(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	for range 2000 {
		types := make([]*Type, 1+r.IntN(10))
		if r.IntN(20) == 0 {
			types = make([]*Type, 60+r.IntN(80))
		}
		for i := range types {
			types[i] = someType(r, 2)
		}
		l := NewLayout(types...)
		in, out, kept := l.New(), l.New(), l.New()
		var want []Value
		nulls := r.IntN(2) == 0
		for i, typ := range types {
			if !nulls {
				typ = typ.NotNull()
			}
			v := someValue(r, typ)
			want = append(want, v)
			l.Set(in, i, v)
		}
		in.Kind, in.Time = RowKind(r.IntN(4)), 7
		b := l.PackKind([]byte("x"), in)
		if n := len(l.Pack(nil, in)); n > l.PackedSize(in) {
			t.Fatalf("%d packed bytes, PackedSize says %d", n, l.PackedSize(in))
		}
		if err := l.UnpackKind(b[1:], out); err != nil {
			t.Fatal(err)
		}
		if got := l.Values(out); !reflect.DeepEqual(got, want) || out.Kind != in.Kind {
			t.Fatalf("row %s:\n got %v\nwant %v", l.Schema(), got, want)
		}
		if again := l.PackKind([]byte("x"), out); !bytes.Equal(b, again) {
			t.Fatalf("row %s packs to other bytes the second time", l.Schema())
		}
		for i, typ := range types {
			if typ.Kind().Nested() && want[i] != nil {
				if err := CheckNested(typ, out.S[l.Place(i).Index]); err != nil {
					t.Fatal(err)
				}
			}
		}
		l.Copy(kept, out)
		clear(b)
		if got := l.Values(kept); !reflect.DeepEqual(got, want) || kept.Time != 0 {
			t.Fatalf("copied row %s:\n got %v\nwant %v", l.Schema(), got, want)
		}
		// Keys of all columns, some descending.
		cols := make([]KeyColumn, len(types))
		for i := range cols {
			cols[i] = KeyColumn{Column: i, Desc: r.IntN(2) == 0, NullsOther: r.IntN(2) == 0}
		}
		e := NewSortEncoder(l, cols...)
		key := e.Append([]byte{}, kept)
		rest, err := e.Decode(append(key, 9), l, out)
		if err != nil || len(rest) != 1 {
			t.Fatalf("decode key %s: rest %v, %v", e.Schema(), rest, err)
		}
		if got := l.Values(out); !reflect.DeepEqual(got, want) {
			t.Fatalf("key %s:\n got %v\nwant %v", e.Schema(), got, want)
		}
		if _, err := e.Decode(key[:r.IntN(len(key))], l, out); err == nil {
			t.Fatalf("key %s cut off was decoded", e.Schema())
		}
		if e.HasNull(kept) != func() bool {
			for _, v := range want {
				if v == nil {
					return true
				}
			}
			return false
		}() {
			t.Fatal("HasNull is wrong")
		}
	}
}

// compare is the order of values of plain types: NULL, then the value; NaN last.
func compare(a, b Value) int {
	if a == nil || b == nil {
		switch {
		case a == nil && b == nil:
			return 0
		case a == nil:
			return -1
		}
		return 1
	}
	cmp := func(less, greater bool) int {
		if less {
			return -1
		}
		if greater {
			return 1
		}
		return 0
	}
	switch x := a.(type) {
	case bool:
		return cmp(!x && b.(bool), x && !b.(bool))
	case int64:
		return cmp(x < b.(int64), x > b.(int64))
	case float64:
		y := b.(float64)
		if x == 0 && y == 0 {
			return cmp(math.Signbit(x) && !math.Signbit(y), !math.Signbit(x) && math.Signbit(y))
		}
		return cmp(x < y, x > y)
	case Dec:
		return x.big().Cmp(b.(Dec).big())
	case Stamp:
		y := b.(Stamp)
		if x.Ms != y.Ms {
			return cmp(x.Ms < y.Ms, x.Ms > y.Ms)
		}
		return cmp(x.Nanos < y.Nanos, x.Nanos > y.Nanos)
	case string:
		return cmp(x < b.(string), x > b.(string))
	case []byte:
		return bytes.Compare(x, b.([]byte))
	case []Value:
		y := b.([]Value)
		for i := range min(len(x), len(y)) {
			if c := compare(x[i], y[i]); c != 0 {
				return c
			}
		}
		return cmp(len(x) < len(y), len(x) > len(y))
	}
	panic("no order")
}

func TestKeysSortAsValuesDo(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 3))
	for range 20000 {
		typ := someType(r, 0).Nullable(true)
		if r.IntN(4) == 0 {
			typ = Array(typ)
		}
		l := NewLayout(typ, Int())
		c := KeyColumn{Column: 0, Desc: r.IntN(2) == 0, NullsOther: r.IntN(2) == 0}
		e := NewSortEncoder(l, c, KeyColumn{Column: 1})
		a, b := someValue(r, typ), someValue(r, typ)
		x, y := int64(r.IntN(2)), int64(r.IntN(2))
		want := compare(a, b)
		if c.Desc != (c.NullsOther && (a == nil) != (b == nil)) {
			want = -want
		}
		if want == 0 {
			want = compare(x, y)
		}
		got := bytes.Compare(e.Append(nil, l.RowOf(a, x)), e.Append(nil, l.RowOf(b, y)))
		if got != want {
			t.Fatalf("%s %+v: %v, %v against %v, %v sorts as %d, want %d", typ, c, a, x, b, y, got, want)
		}
	}
}

func TestKeyBytesAreThoseOfTheStores(t *testing.T) {
	type key struct {
		A string
		B int64
		C int32
		D bool
	}
	codec, err := statestore.KeyCodecOf[key]()
	if err != nil {
		t.Fatal(err)
	}
	l := NewLayout(String(), BigInt(), Int())
	row := NewKeyEncoder(l, 0, 1, 2).Append(nil, l.RowOf("a\x00b", int64(-5), int64(7)))
	// Without the byte for NULL in front of each column.
	plain := append(append(bytes.Clone(row[1:7]), row[8:16]...), row[17:]...)
	if want := codec.Append(nil, key{"a\x00b", -5, 7, false}); !bytes.Equal(plain, want[:len(want)-1]) {
		t.Errorf("key %x, want %x", plain, want)
	}
	nan := math.Float64frombits(math.Float64bits(math.NaN()) | 1<<63 | 5)
	d := NewLayout(Double())
	e := NewKeyEncoder(d, 0)
	if !bytes.Equal(e.Append(nil, d.RowOf(nan)), e.Append(nil, d.RowOf(math.NaN()))) {
		t.Error("two NaN are two keys")
	}
}

func TestCalendarAgreesWithADayByDayOne(t *testing.T) {
	y, m, d, doy := int64(-801), 1, 1, 1
	for days := DaysOf(y, m, d); y < 2801; days++ {
		if got := DaysOf(y, m, d); got != days {
			t.Fatalf("DaysOf(%d, %d, %d) = %d, want %d", y, m, d, got, days)
		}
		if gy, gm, gd := CivilOf(days); gy != y || gm != m || gd != d {
			t.Fatalf("CivilOf(%d) = %d, %d, %d, want %d, %d, %d", days, gy, gm, gd, y, m, d)
		}
		if days%97 == 0 {
			at := time.Date(int(y), time.Month(m), d, 0, 0, 0, 0, time.UTC)
			iy, iw := at.ISOWeek()
			if gy, gw := ISOWeek(days); int(gy) != iy || gw != iw || DayOfYear(days) != doy || ISODayOfWeek(days)%7 != int(at.Weekday()) || at.Unix() != days*86400 {
				t.Fatalf("%d-%d-%d: week %d of %d, day %d, weekday %d", y, m, d, gw, gy, DayOfYear(days), ISODayOfWeek(days))
			}
		}
		d++
		doy++
		if d > DaysInMonth(y, m) {
			d = 1
			if m++; m > 12 {
				y, m, doy = y+1, 1, 1
			}
		}
	}
	if got := AddMonths(DaysOf(2024, 1, 31), -11); got != DaysOf(2023, 2, 28) {
		t.Errorf("11 months before 2024-01-31 is %s", AppendDate(nil, got))
	}
}

func TestZonesAgreeWithPackageTime(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 4))
	for _, name := range []string{"America/New_York", "Europe/Berlin", "Asia/Shanghai", "Australia/Lord_Howe", "Africa/Casablanca", "Pacific/Apia", "+05:30", "GMT-3", "UTC"} {
		z, err := LoadZone(name)
		if err != nil {
			t.Fatal(err)
		}
		for range 3000 {
			ms := DaysOf(1850+r.Int64N(300), 1+r.IntN(12), 1+r.IntN(28))*MsPerDay + r.Int64N(MsPerDay)
			_, offset := time.UnixMilli(ms).In(z.loc).Zone()
			if z.Offset(ms) != int64(offset)*1000 {
				t.Fatalf("%s at %d: offset %d, want %d s", name, ms, z.Offset(ms), offset)
			}
			local := z.Local(ms)
			if a, b := z.Instant(local), z.InstantLater(local); a != ms && b != ms || a > b {
				t.Fatalf("%s: local %d of %d is %d or %d", name, local, ms, a, b)
			}
		}
	}
	ny, _ := LoadZone("America/New_York")
	at := func(s string) int64 {
		ms, _, err := ParseTimestamp([]byte(s))
		if err != nil {
			t.Fatal(err)
		}
		return ms
	}
	for _, c := range [][3]string{
		{"2024-03-10 02:30:00", "2024-03-10 07:30:00", "2024-03-10 07:30:00"}, // skipped
		{"2024-11-03 01:30:00", "2024-11-03 05:30:00", "2024-11-03 06:30:00"}, // doubled
		{"2024-11-03 02:30:00", "2024-11-03 07:30:00", "2024-11-03 07:30:00"},
	} {
		if a, b := ny.Instant(at(c[0])), ny.InstantLater(at(c[0])); a != at(c[1]) || b != at(c[2]) {
			t.Errorf("%s in New York is %d or %d, want %d or %d", c[0], a, b, at(c[1]), at(c[2]))
		}
	}
	for _, bad := range []string{"", "Local", "+25:00", "Nowhere/Atall", "GMT+8x"} {
		if _, err := LoadZone(bad); err == nil {
			t.Errorf("zone %q was taken", bad)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	l := NewLayout(Int(), String(), Decimal(38, 2), Array(RowOf(Field{"a", String()}, Field{"b", Map(Int(), String())})), TimestampLTZ(9), Boolean())
	f.Add(l.Pack(nil, l.RowOf(int64(1), "x", DecInt(5), []Value{[]Value{"q", []Entry{{int64(1), nil}}}, nil}, Stamp{1, 2}, true)))
	f.Add(l.Pack(nil, l.RowOf(nil, nil, nil, nil, nil, nil)))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := l.New()
		if l.Unpack(b, r) != nil {
			return
		}
		if !r.Null(3) && CheckNested(l.Type(3), r.S[l.Place(3).Index]) != nil {
			return
		}
		l.AppendResult(nil, r)
		e := NewKeyEncoder(l, 3, 1, 0)
		k := e.Append(nil, r)
		into := NewLayout(l.Type(3), l.Type(1), l.Type(0))
		if rest, err := e.Decode(k, into, into.New()); err != nil || len(rest) > 0 {
			t.Fatalf("decode key: %v, %d left", err, len(rest))
		}
	})
}

func FuzzText(f *testing.F) {
	for _, s := range []string{"1.5", "-0.05", "2024-02-29 23:59:59.999", "1e-5", "NaN", "23:59", "99999999999999999999999999999999999999"} {
		f.Add([]byte(s))
	}
	stamp, err := NewDateTimeFormat("[[yyyy][uuuuu]-MMM-]dd'T'[HH:]hh:mm:ss.SSS a E X")
	if err != nil {
		f.Fatal(err)
	}
	lenient, err := NewSimpleFormat("yyyyMMdd HH:mm:ss.S z E a")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, err := ParseInt(b, 64); err == nil {
			if w, err := ParseInt(AppendInt(nil, v), 64); err != nil || w != v {
				t.Fatalf("%q: %d, %v", b, w, err)
			}
		}
		if v, err := ParseDouble(b, 64); err == nil {
			if w, err := ParseDouble(AppendDouble(nil, v), 64); err != nil || w != v && w == w {
				t.Fatalf("%q: %v, %v", b, w, err)
			}
		}
		if d, err := ParseDec(b, 38, 9); err == nil {
			s := AppendDec(nil, d, 9)
			if e, err := ParseDec(s, 38, 9); err != nil || e != d {
				t.Fatalf("%q: %s, %v", b, s, err)
			}
			if want, ok := new(big.Rat).SetString(string(TrimSpaces(b))); ok && len(b) < 40 && !bytes.ContainsAny(b, "eE_/xXpPbBoO") {
				got, _ := new(big.Rat).SetString(string(s))
				if diff := want.Sub(want, got); diff.Abs(diff).Cmp(big.NewRat(1, 2e9)) > 0 {
					t.Fatalf("%q read as %s", b, s)
				}
			}
		}
		if days, err := ParseDate(b); err == nil {
			if again, err := ParseDate(AppendDate(nil, days)); err != nil || again != days {
				t.Fatalf("%q: %d, %v", b, again, err)
			}
		}
		if ms, nanos, err := ParseTimestamp(b); err == nil {
			if m, n, err := ParseTimestamp(AppendTimestamp(nil, ms, nanos, 9)); ms < 253402300800000 && (err != nil || m != ms || n != nanos) {
				t.Fatalf("%q: %d, %d, %v", b, m, n, err)
			}
		}
		if ms, err := ParseTime(b); err == nil && (ms < 0 || ms >= MsPerDay) {
			t.Fatalf("%q: %d", b, ms)
		}
		stamp.Parse(b)
		lenient.Parse(b, UTC())
		if g, err := NewDateTimeFormat(string(b)); err == nil && g.NoFormat == nil && len(b) < 100 {
			g.Append(nil, 1709658489012, 345678)
			g.Parse(b)
		}
		if g, err := NewSimpleFormat(string(b)); err == nil && len(b) < 100 {
			g.Append(nil, 1709658489012, UTC())
			g.Parse(b, UTC())
		}
		for _, typ := range []*Type{Array(String()), Decimal(5, 2), Map(Int(), Double()), Timestamp(3)} {
			if v, err := ReadResultValue(typ, b); err == nil && v != nil {
				s := AppendResultValue(nil, typ, v)
				if w, err := ReadResultValue(typ, s); err != nil || !bytes.Equal(AppendResultValue(nil, typ, w), s) {
					t.Fatalf("%q: %s comes back as %v, %v", b, s, w, err)
				}
			}
		}
	})
}

var benchLayout = NewLayout(BigInt(), BigInt(), Timestamp(3), Double(), Date(), Boolean(), String(), String())

func benchRow() *Row {
	return benchLayout.RowOf(int64(1234567), int64(-5), Stamp{Ms: 1709658489123}, 2.5, int64(19787), true, "channel-9471", "https://www.nexmark.com/item.htm?query=1")
}

func BenchmarkPack(b *testing.B) {
	r := benchRow()
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = benchLayout.Pack(buf[:0], r)
	}
	b.ReportMetric(float64(len(buf)), "bytes")
}

func BenchmarkUnpack(b *testing.B) {
	buf := benchLayout.Pack(nil, benchRow())
	r := benchLayout.New()
	b.ReportAllocs()
	for b.Loop() {
		if err := benchLayout.Unpack(buf, r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkKey(b *testing.B) {
	r := benchRow()
	e := NewKeyEncoder(benchLayout, 0, 6)
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = e.Append(buf[:0], r)
	}
}

func BenchmarkDecMulAdd(b *testing.B) {
	x, y := DecInt(908), DecInt(1234567)
	var sum Dec
	b.ReportAllocs()
	for b.Loop() {
		p, _ := DecMul(x, y, 0, 23)
		sum = sum.Add(p)
	}
	if sum.Sign() < 0 {
		b.Fatal(sum)
	}
}
