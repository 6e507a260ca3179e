package statestore_test

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

type inner struct {
	At   time.Time
	b    []byte
	flag bool
}

type color uint8

type everything struct {
	I   int
	i8  int8
	I16 int16
	i32 int32
	I64 int64
	u   uint
	U8  uint8
	u16 uint16
	U32 uint32
	u64 uint64
	F32 float32
	f64 float64
	S   string
	d   time.Duration
	c   color
	in  inner
	inner
	Arr   [3]inner
	Sl    []string
	SlSl  [][]int32
	p     *inner
	pp    **int
	M     map[string]inner
	mm    map[color]map[int]bool
	set   map[string]struct{}
	addr  netip.Addr
	nulls []struct{}
	_     int
}

func randomEverything(r *rand.Rand) everything {
	str := func() string { return strings.Repeat("x", r.IntN(5)) + string(rune('a'+r.IntN(26))) }
	in := func() inner {
		x := inner{flag: r.IntN(2) == 0}
		switch r.IntN(3) {
		case 0:
			x.At = time.Unix(r.Int64N(1<<33)-1<<32, r.Int64N(1e9)).UTC()
			x.b = []byte(str())
		case 1:
			x.b = []byte{}
		}
		return x
	}
	v := everything{I: int(r.Uint64()), i8: int8(r.Uint32()), I16: int16(r.Uint32()), i32: int32(r.Uint32()), I64: int64(r.Uint64()),
		u: uint(r.Uint64()), U8: uint8(r.Uint32()), u16: uint16(r.Uint32()), U32: r.Uint32(), u64: r.Uint64(),
		F32: r.Float32(), f64: math.Inf(r.IntN(3) - 1), S: str(), d: time.Duration(r.Int64()), c: color(r.Uint32()), in: in(), inner: in(),
		Arr: [3]inner{in(), in(), in()}}
	if r.IntN(2) == 0 {
		v.Sl = []string{str(), "", str()}
		v.SlSl = [][]int32{nil, {}, {1, -2, r.Int32()}}
		x := in()
		v.p = &x
		n := r.Int()
		pn := &n
		v.pp = &pn
		v.M = map[string]inner{}
		v.mm = map[color]map[int]bool{3: nil, 4: {}}
		v.set = map[string]struct{}{}
		for range r.IntN(20) {
			v.M[str()] = in()
			v.set[str()] = struct{}{}
		}
		v.mm[1] = map[int]bool{r.IntN(9): true, r.IntN(9) + 100: false}
		v.addr = netip.MustParseAddr("10.1.2.3")
		v.nulls = make([]struct{}, r.IntN(4))
	}
	return v
}

func TestCodecRoundTrip(t *testing.T) {
	c := codecOf[everything](t)
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		v := randomEverything(r)
		enc := c.Append([]byte("kept"), &v)
		if !bytes.HasPrefix(enc, []byte("kept")) {
			t.Fatal("Append does not append")
		}
		enc = enc[4:]
		if again := c.Append(nil, &v); !bytes.Equal(enc, again) {
			t.Fatalf("seed %d: two encodings of one value:\n%x\n%x", seed, enc, again)
		}
		back := randomEverything(r) // must be overwritten in full
		if err := c.Decode(enc, &back); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !reflect.DeepEqual(v, back) {
			t.Fatalf("seed %d:\n got %+v\nwant %+v", seed, back, v)
		}
		for i := range enc {
			enc[i] = 0xee // the value must not look at what it was decoded from
		}
		if !reflect.DeepEqual(v, back) {
			t.Fatalf("seed %d: the decoded value shares memory with its source", seed)
		}
	}
}

func TestCodecTime(t *testing.T) {
	c := codecOf[time.Time](t)
	zone := time.FixedZone("X", -5*3600-30*60)
	for _, v := range []time.Time{{}, time.Unix(0, 0).UTC(), time.Date(2026, 7, 1, 12, 0, 0, 123456789, zone), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)} {
		var back time.Time
		if err := c.Decode(c.Append(nil, &v), &back); err != nil {
			t.Fatal(err)
		}
		if !back.Equal(v) || back.Format(time.RFC3339Nano) != v.Format(time.RFC3339Nano) || back.IsZero() != v.IsZero() {
			t.Errorf("%v came back as %v", v, back)
		}
	}
}

func FuzzCodecDecode(f *testing.F) {
	c := codecOf[everything](f)
	old := must[statestore.Codec[struct{ S string }]](f)(codecOf[struct{ S string }](f).(statestore.Evolver[struct{ S string }]).Reads(c.Schema()))
	r := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		v := randomEverything(r)
		f.Add(c.Append(nil, &v))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		var v everything
		if err := c.Decode(src, &v); err != nil {
			return
		}
		// What decodes must survive a round trip.
		enc := c.Append(nil, &v)
		var back everything
		if err := c.Decode(enc, &back); err != nil {
			t.Fatalf("decode %x: %v", enc, err)
		}
		if again := c.Append(nil, &back); !bytes.Equal(enc, again) {
			t.Fatalf("%x came back as %x", enc, again)
		}
		var part struct{ S string }
		if err := old.Decode(src, &part); err != nil || part.S != v.S {
			t.Fatalf("reading one field of %x: %q, %v, want %q", src, part.S, err, v.S)
		}
	})
}

func TestCodecRefuses(t *testing.T) {
	check := func(name string, err error, parts ...string) {
		t.Helper()
		if err == nil {
			t.Errorf("%s: no error", name)
			return
		}
		for _, p := range parts {
			if !strings.Contains(err.Error(), p) {
				t.Errorf("%s: %q does not say %q", name, err, p)
			}
		}
	}
	type deep struct{ Ch chan int }
	_, err := statestore.CodecOf[struct{ A []deep }]()
	check("chan", err, ".A[].Ch", "chan int")
	_, err = statestore.CodecOf[map[string]func()]()
	check("func", err, "func()")
	_, err = statestore.CodecOf[struct{ v any }]()
	check("interface", err, ".v")
	_, err = statestore.CodecOf[struct{ mu sync.Mutex }]()
	check("mutex", err, ".mu", "sync.Mutex")
	type node struct{ next *node }
	_, err = statestore.CodecOf[node]()
	check("recursive", err, ".next", "contains itself")
	_, err = statestore.CodecOf[struct {
		A int
		B int `state:"A"`
	}]()
	check("names", err, "two fields", "A")
	_, err = statestore.CodecOf[complex128]()
	check("complex", err, "complex128")
}

func TestFlat(t *testing.T) {
	if !codecOf[total](t).Flat() || !codecOf[struct {
		S string
		T time.Time
		A [2]named
	}](t).Flat() {
		t.Error("strings and times are flat")
	}
	if codecOf[struct{ B []byte }](t).Flat() || codecOf[*int](t).Flat() || codecOf[[1]map[int]int](t).Flat() || codecOf[netipBox](t).Flat() {
		t.Error("slices, pointers and maps are not flat")
	}
}

type netipBox struct{ a netip.Addr }

// version 1 and 2 of a program's state.
type v1 struct {
	Count  int32
	Gone   map[string][]struct{ X *int16 }
	Old    string
	Rate   float32
	Parts  []part1
	hidden uint8
	Key    [2]uint16
}

type part1 struct {
	A, B int8
	T    time.Time
}

type v2 struct {
	Parts  []part2
	New    []string
	Rate   float64
	Count  int64
	Name   string `state:"Old"`
	hidden uint64
	Key    [2]uint32
}

type part2 struct {
	C string
	B int64
}

func TestSchemaEvolution(t *testing.T) {
	c1, c2 := codecOf[v1](t), codecOf[v2](t)
	rd := must[statestore.Codec[v2]](t)(c2.(statestore.Evolver[v2]).Reads(c1.Schema()))
	x := int16(5)
	old := v1{Count: -7, Gone: map[string][]struct{ X *int16 }{"a": {{&x}, {nil}}, "b": nil}, Old: "name", Rate: 0.5,
		Parts: []part1{{1, 2, time.Unix(1, 2)}, {3, -4, time.Time{}}}, hidden: 9, Key: [2]uint16{1, 65535}}
	want := v2{Count: -7, Name: "name", Rate: 0.5, Parts: []part2{{B: 2}, {B: -4}}, hidden: 9, Key: [2]uint32{1, 65535}}
	got := v2{New: []string{"must go"}}
	if err := rd.Decode(c1.Append(nil, &old), &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	// The other way round numbers would have to shrink.
	_, err := c1.(statestore.Evolver[v1]).Reads(c2.Schema())
	if err == nil || !strings.Contains(err.Error(), "stored as") {
		t.Errorf("narrowing: %v", err)
	}
	if err := statestore.CanRead(c2.Schema(), c1.Schema()); err != nil {
		t.Errorf("CanRead: %v", err)
	}
	for _, s := range []string{"", "strukt", "struct{a int64", "[]", "[x]int8", "map[string", "struct{a }", "int64 ", strings.Repeat("[]", 1000)} {
		if _, err := c2.(statestore.Evolver[v2]).Reads(s); err == nil {
			t.Errorf("schema %.20q: no error", s)
		}
	}
}

func TestSchemaVersionsInStore(t *testing.T) {
	store := memstore.New()
	open1 := func() (*statestore.State, *statestore.Table[string, v1]) {
		s := statestore.NewState(store, statestore.StateOptions{})
		return s, must[*statestore.Table[string, v1]](t)(statestore.NewTable(s, spec("t", statestore.KindTable), keyOf[string](t), codecOf[v1](t)))
	}
	write := func(s *statestore.State, epoch uint64) []statestore.Change {
		ch := s.Seal(epoch)
		s.Committed()
		if err := s.WriteBehind(statestore.Meta{Epoch: epoch}); err != nil {
			t.Fatal(err)
		}
		return ch
	}
	descriptors := func(ch []statestore.Change) (n int) {
		for _, c := range ch {
			if bytes.HasPrefix(c.Key, []byte{0, 0, 0, 0, 1}) {
				n++
			}
		}
		return n
	}
	s, a := open1()
	if n := len(s.Seal(1)); n != 0 {
		t.Errorf("an epoch without writes has %d changes", n)
	}
	s.Committed()
	a.Set(1, "a", v1{Count: 1, Old: "one"})
	if n := descriptors(write(s, 2)); n != 1 {
		t.Errorf("%d descriptors with the first values, want 1", n)
	}
	s, a = open1()
	a.Set(1, "b", v1{Count: 2})
	if n := descriptors(write(s, 3)); n != 0 {
		t.Errorf("%d descriptors when the schema is known, want 0", n)
	}

	s = statestore.NewState(store, statestore.StateOptions{})
	b := must[*statestore.Table[string, v2]](t)(statestore.NewTable(s, spec("t", statestore.KindTable), keyOf[string](t), codecOf[v2](t)))
	if v := b.Get(1, "a"); v == nil || v.Count != 1 || v.Name != "one" {
		t.Errorf("version 1 read as %+v", v)
	}
	b.Set(1, "a", v2{Count: 1 << 40, New: []string{"x"}})
	if n := descriptors(write(s, 4)); n != 1 {
		t.Errorf("%d descriptors with a new schema, want 1", n)
	}
	s = statestore.NewState(store, statestore.StateOptions{CacheBytes: 1})
	b = must[*statestore.Table[string, v2]](t)(statestore.NewTable(s, spec("t", statestore.KindTable), keyOf[string](t), codecOf[v2](t)))
	if x, y := b.Get(1, "a").Count, b.Get(1, "b").Count; x != 1<<40 || y != 2 {
		t.Errorf("values of both versions read as %d and %d", x, y)
	}

	s = statestore.NewState(store, statestore.StateOptions{})
	if _, err := statestore.NewTable(s, spec("t", statestore.KindTable), keyOf[string](t), codecOf[struct{ Count string }](t)); err == nil ||
		!strings.Contains(err.Error(), "Count") {
		t.Errorf("a string in place of a number: %v", err)
	}
}

func TestCorruptValueIsAFault(t *testing.T) {
	store := memstore.New()
	s := statestore.NewState(store, statestore.StateOptions{})
	a := must[*statestore.Table[string, named]](t)(statestore.NewTable(s, spec("t", statestore.KindTable), keyOf[string](t), codecOf[named](t)))
	a.Set(1, "a", named{"x", 1})
	ch := s.Seal(1)
	s.Committed()
	key := bytes.Clone(ch[0].Key)
	if err := s.WriteBehind(statestore.Meta{Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	putAll(t, store, []statestore.Change{{Key: key, Value: []byte{1, 200, 1}}}, nil)
	s = statestore.NewState(store, statestore.StateOptions{})
	_, err := statestore.NewTable(s, spec("t", statestore.KindTable), keyOf[string](t), codecOf[named](t))
	if !errors.Is(err, statestore.ErrCorrupt) {
		t.Errorf("opening over a damaged value: %v", err)
	}
}
