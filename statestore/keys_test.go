package statestore_test

import (
	"bytes"
	"cmp"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/millrace-stream/millrace/statestore"
)

type region struct {
	name string
	zone int16
	id   [2]uint32
	rate float64
	live bool
	tag  [3]byte
	f    float32
	x    int64
}

func compareRegion(a, b region) int {
	c := cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.zone, b.zone), cmp.Compare(a.id[0], b.id[0]), cmp.Compare(a.id[1], b.id[1]),
		compareFloat(a.rate, b.rate))
	if c == 0 && a.live != b.live {
		if b.live {
			return -1
		}
		return 1
	}
	return cmp.Or(c, bytes.Compare(a.tag[:], b.tag[:]), compareFloat(float64(a.f), float64(b.f)), cmp.Compare(a.x, b.x))
}

// compareFloat sorts NaN last.
func compareFloat(a, b float64) int {
	switch an, bn := math.IsNaN(a), math.IsNaN(b); {
	case an && bn:
		return 0
	case an:
		return 1
	case bn:
		return -1
	}
	return cmp.Compare(a, b)
}

func checkKey[K comparable](t *testing.T, kc statestore.KeyCodec[K], a, b K, compare func(a, b K) int) {
	t.Helper()
	ea, eb := kc.Append(nil, a), kc.Append(nil, b)
	want := compare(a, b)
	if got := bytes.Compare(ea, eb); got != want {
		t.Fatalf("%#v and %#v: bytes %x and %x compare as %d, want %d", a, b, ea, eb, got, want)
	}
	if want != 0 && (bytes.HasPrefix(ea, eb) || bytes.HasPrefix(eb, ea)) {
		t.Fatalf("%#v and %#v: one of %x and %x is a prefix of the other", a, b, ea, eb)
	}
	back, rest, err := kc.Decode(append(ea, eb...))
	if err != nil || compare(back, a) != 0 || !bytes.Equal(rest, eb) {
		t.Fatalf("decode %#v: %#v, rest %x, %v", a, back, rest, err)
	}
	for i := range ea {
		if _, _, err := kc.Decode(ea[:i]); err == nil {
			t.Fatalf("decode %x of %x: no error", ea[:i], ea)
		}
	}
}

func FuzzKeyOrder(f *testing.F) {
	f.Add("a", "a\x00b", int64(-1), int64(1), 0.5, math.Inf(-1))
	f.Add("a\x00", "a", int64(math.MinInt64), int64(math.MaxInt64), math.NaN(), math.Copysign(0, -1))
	f.Add("", "\x00\x01", int64(0), int64(1<<32), math.Copysign(0, -1), 0.0)
	f.Add("12345678\x00", "12345678", int64(255), int64(256), -1.5, 1e300)
	ks, ki, ku, kf, kr := keyOf[string](f), keyOf[int64](f), keyOf[uint64](f), keyOf[float64](f), keyOf[region](f)
	k32, k16, k8 := keyOf[int32](f), keyOf[uint16](f), keyOf[int8](f)
	f.Fuzz(func(t *testing.T, sa, sb string, ia, ib int64, fa, fb float64) {
		checkKey(t, ks, sa, sb, cmp.Compare[string])
		checkKey(t, ki, ia, ib, cmp.Compare[int64])
		checkKey(t, ku, uint64(ia), uint64(ib), cmp.Compare[uint64])
		checkKey(t, k32, int32(ia), int32(ib), cmp.Compare[int32])
		checkKey(t, k16, uint16(ia), uint16(ib), cmp.Compare[uint16])
		checkKey(t, k8, int8(ia), int8(ib), cmp.Compare[int8])
		checkKey(t, kf, fa, fb, compareFloat)
		mk := func(s string, i int64, x float64) region {
			r := region{name: s, zone: int16(i), id: [2]uint32{uint32(i >> 3), uint32(i)}, rate: x, live: i&1 == 1, f: float32(x), x: i}
			copy(r.tag[:], s)
			return r
		}
		a, b := mk(sa, ia, fa), mk(sb, ib, fb)
		checkKey(t, kr, a, b, compareRegion)
		b.name = a.name
		checkKey(t, kr, a, b, compareRegion)
		b.zone, b.id = a.zone, a.id
		checkKey(t, kr, a, b, compareRegion)
	})
}

func TestKeyCodecRefuses(t *testing.T) {
	wantErr := func(what string, err error, parts ...string) {
		t.Helper()
		if err == nil {
			t.Errorf("%s: no error", what)
			return
		}
		for _, p := range parts {
			if !strings.Contains(err.Error(), p) {
				t.Errorf("%s: %q does not say %q", what, err, p)
			}
		}
	}
	type withPointer struct {
		A int
		B *int
	}
	_, err := statestore.KeyCodecOf[withPointer]()
	wantErr("pointer", err, "withPointer.B", "*int")
	_, err = statestore.KeyCodecOf[any]()
	wantErr("interface", err, "interface")
	_, err = statestore.KeyCodecOf[struct{ At time.Time }]()
	wantErr("time", err, ".At", "UnixMilli")
	_, err = statestore.KeyCodecOf[[5000]int]()
	wantErr("array", err, "1024")
}

func TestKeySchema(t *testing.T) {
	if got, want := keyOf[region](t).Schema(), "struct{name string;zone int16;id [2]uint32;rate float64;live bool;tag [3]uint8;f float32;x int64}"; got != want {
		t.Errorf("schema %s, want %s", got, want)
	}
	type id string
	if got := keyOf[id](t).Schema(); got != "string" {
		t.Errorf("schema of a named string: %s", got)
	}
}

func TestStoreIDIsStable(t *testing.T) {
	// These ids are on disk and in changelogs: they must never change.
	for name, want := range map[string]statestore.ID{"count/state": 0xeb7a6072, "": 2166136261} {
		if got := statestore.StoreID(name); got != want {
			t.Errorf("StoreID(%q) = %#x, want %#x", name, got, want)
		}
	}
}

func TestKeyOrder(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	ks, kf, ki := keyOf[string](t), keyOf[float32](t), keyOf[int16](t)
	str := func() string {
		b := make([]byte, r.IntN(20))
		for i := range b {
			b[i] = "\x00\x01\xfe\xffab"[r.IntN(6)]
		}
		return string(b)
	}
	for range 50_000 {
		a, b := str(), str()
		if r.IntN(2) == 0 {
			b = a + b
		}
		checkKey(t, ks, a, b, cmp.Compare[string])
		fa, fb := math.Float32frombits(r.Uint32()), math.Float32frombits(r.Uint32())
		checkKey(t, kf, fa, fb, func(a, b float32) int { return compareFloat(float64(a), float64(b)) })
		checkKey(t, ki, int16(r.Uint32()), int16(r.Uint32()), cmp.Compare[int16])
	}
}
