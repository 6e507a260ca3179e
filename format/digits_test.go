package format

import (
	"encoding/binary"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// TestDigitsMatchStrconv writes and reads integers of all lengths by words and compares with strconv.
func TestDigitsMatchStrconv(t *testing.T) {
	check := func(v uint64) {
		t.Helper()
		want := strconv.FormatUint(v, 10)
		if got := string(appendUint([]byte("x"), v)); got != "x"+want {
			t.Fatalf("appendUint(%s) = %q", want, got)
		}
		if got := string(appendInt(nil, int64(v))); got != strconv.FormatInt(int64(v), 10) {
			t.Fatalf("appendInt(%d) = %q", int64(v), got)
		}
		if len(want) == 8 {
			if got, ok := eightDigits(binary.LittleEndian.Uint64([]byte(want))); !ok || got != v {
				t.Fatalf("eightDigits(%s) = %d, %v", want, got, ok)
			}
		}
	}
	for p := uint64(1); ; p *= 10 {
		for d := range uint64(3) {
			check(p - 1 + d)
			check(-(p - 1 + d)) // a negative int64, a huge uint64
		}
		if p > 1e19/2 {
			break
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		check(rng.Uint64() >> rng.IntN(64))
		check(10_000_000 + rng.Uint64N(90_000_000))
	}
}

// TestEightDigitsRefusesOthers puts every byte that is no digit in every place.
func TestEightDigitsRefusesOthers(t *testing.T) {
	for i := range 8 {
		for c := range 256 {
			b := []byte("98765432")
			b[i] = byte(c)
			if _, ok := eightDigits(binary.LittleEndian.Uint64(b)); ok != (c >= '0' && c <= '9') {
				t.Fatalf("eightDigits(%q) says %v", b, ok)
			}
		}
	}
}

// TestIsASCIISeesEveryByte puts a byte above 0x7f in every place of strings of every length.
func TestIsASCIISeesEveryByte(t *testing.T) {
	for n := range 40 {
		if s := strings.Repeat("\x7f", n); !isASCII(s) {
			t.Fatalf("%d bytes are ASCII", n)
		}
		for i := range n {
			if s := strings.Repeat("a", i) + "\x80" + strings.Repeat("a", n-i-1); isASCII(s) {
				t.Fatalf("byte %d of %d went unseen", i, n)
			}
		}
	}
}
