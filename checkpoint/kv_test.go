package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"
)

type entry struct{ key, value string }

func writeKV(t testing.TB, entries []entry) []byte {
	t.Helper()
	enc, err := newCompressor()
	must(t, err)
	var buf bytes.Buffer
	w := newKVWriter(&buf, enc)
	for _, e := range entries {
		must(t, w.add([]byte(e.key), []byte(e.value)))
	}
	must(t, w.close())
	if w.written != int64(buf.Len()) || w.entries != int64(len(entries)) {
		t.Fatalf("wrote %d bytes, %d entries; says %d, %d", buf.Len(), len(entries), w.written, w.entries)
	}
	return buf.Bytes()
}

func readKV(data []byte) ([]entry, error) {
	dec, err := newDecompressor()
	if err != nil {
		return nil, err
	}
	defer dec.Close()
	r := newKVReader(bytes.NewReader(data), dec)
	var entries []entry
	for {
		key, value, err := r.next()
		if errors.Is(err, io.EOF) {
			return entries, nil
		}
		if err != nil {
			return entries, err
		}
		entries = append(entries, entry{string(key), string(value)})
	}
}

func TestKVRoundTrip(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for _, n := range []int{0, 1, 2, 5000} {
		var entries []entry
		for i := range n {
			value := make([]byte, r.IntN(300))
			if r.IntN(1000) == 0 {
				value = make([]byte, kvBlock*2) // larger than a block
			}
			for j := range value {
				value[j] = byte(r.IntN(20))
			}
			entries = append(entries, entry{fmt.Sprintf("%08d", i), string(value)})
		}
		if n > 0 {
			entries[0].key = "" // the empty key comes first
		}
		data := writeKV(t, entries)
		got, err := readKV(data)
		must(t, err)
		if len(got) != n {
			t.Fatalf("%d entries became %d", n, len(got))
		}
		for i := range got {
			if got[i] != entries[i] {
				t.Fatalf("entry %d: %.40q became %.40q", i, entries[i], got[i])
			}
		}
	}
}

func TestKVRefusesWhatIsOutOfOrder(t *testing.T) {
	enc, err := newCompressor()
	must(t, err)
	w := newKVWriter(io.Discard, enc)
	must(t, w.add([]byte("b"), nil))
	for _, key := range []string{"b", "a", ""} {
		if err := w.add([]byte(key), nil); err == nil {
			t.Fatalf("%q behind b", key)
		}
	}
}

func TestDamagedKVIsRefused(t *testing.T) {
	data := writeKV(t, []entry{{"a", "1"}, {"b", "22"}, {"c", ""}})
	for n := range data {
		if got, err := readKV(data[:n]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("the first %d of %d bytes: %v, %v", n, len(data), got, err)
		}
		flipped := bytes.Clone(data)
		flipped[n] ^= 1
		if got, err := readKV(flipped); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("byte %d flipped: %v, %v", n, got, err)
		}
	}
	if _, err := readKV(append(bytes.Clone(data), 0)); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("a byte too many: %v", err)
	}
}

func FuzzKV(f *testing.F) {
	f.Add([]byte(kvMagic))
	f.Add(writeKV(f, []entry{{"a", "1"}, {"b", "2"}}))
	f.Add(append([]byte(kvMagic), 0x3f, 0xff, 0xff, 0xff, 0x3f, 0xff, 0xff, 0xff, 0, 0, 0, 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := readKV(data)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("error of no kind: %v", err)
			}
			return
		}
		again, err := readKV(writeKV(t, entries))
		if err != nil || len(again) != len(entries) {
			t.Fatalf("%d entries became %d, %v", len(entries), len(again), err)
		}
	})
}
