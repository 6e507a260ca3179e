package txn

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/statestore"
)

func sampleEpochRecord() *EpochRecord {
	return &EpochRecord{
		Epoch: 71, Incarnation: 2, Owner: "host-1", WallTime: 1764428400123,
		Touched: []bool{true, false}, Positions: []int64{123456, 0},
		Inputs: []InputProgress{
			{Topic: "app-g-repartition", TopicID: [16]byte{2}, Partition: 1, Offset: -1, MaxTime: math.MinInt64, Watermark: math.MinInt64,
				Upstream: []UpstreamMark{{5, false}, {math.MinInt64, true}}},
			{Topic: "orders", TopicID: [16]byte{1, 15: 9}, Partition: 3, Offset: 42, MaxTime: 1000, Watermark: 900},
			{Topic: "orders", TopicID: [16]byte{1, 15: 9}, Partition: 7, Offset: 43, MaxTime: 1001, Watermark: 901, Idle: true},
		},
		Horizons:   []Horizon{{7, -5}, {math.MaxUint32, math.MaxInt64}},
		Watermarks: map[string]int64{"agg": 900, "join": math.MinInt64},
		Sinks:      map[string][]byte{"jdbc": {0, 1, 2}, "s3": {}},
	}
}

func TestEpochRecordRoundTrip(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	check := func(in *EpochRecord) {
		t.Helper()
		enc := in.Append([]byte("prefix"))[len("prefix"):]
		out, err := DecodeEpochRecord(enc)
		if err != nil {
			t.Fatalf("decode %+v: %v", in, err)
		}
		if !reflect.DeepEqual(in, out) {
			t.Fatalf("in  %+v\nout %+v", in, out)
		}
		if again := out.Append(nil); !bytes.Equal(enc, again) {
			t.Fatalf("equal records have different bytes: %x and %x", enc, again)
		}
		for i := range enc {
			if _, err := DecodeEpochRecord(enc[:i]); !errors.Is(err, ErrEpochRecord) {
				t.Fatalf("cut at %d of %d: %v", i, len(enc), err)
			}
		}
		if _, err := DecodeEpochRecord(append(enc, 0)); !errors.Is(err, ErrEpochRecord) {
			t.Fatalf("a byte too many: %v", err)
		}
	}
	check(&EpochRecord{})
	check(sampleEpochRecord())
	for range 200 {
		in := &EpochRecord{Epoch: r.Uint64(), Incarnation: r.Uint64N(9), Owner: strings.Repeat("o", r.IntN(40)), WallTime: int64(r.Uint64())}
		for range r.IntN(3) {
			in.Touched = append(in.Touched, r.IntN(2) == 0)
			in.Positions = append(in.Positions, int64(r.Uint64()))
		}
		for topic := range r.IntN(4) {
			for p := range r.IntN(4) {
				ip := InputProgress{Topic: string(rune('a' + topic)), TopicID: [16]byte{byte(topic)}, Partition: int32(p), Offset: int64(r.Uint64()),
					MaxTime: int64(r.Uint64()), Watermark: int64(r.Uint64()), Idle: r.IntN(2) == 0}
				for range r.IntN(3) {
					ip.Upstream = append(ip.Upstream, UpstreamMark{int64(r.Uint64()), r.IntN(2) == 0})
				}
				in.Inputs = append(in.Inputs, ip)
			}
		}
		for i := range r.IntN(4) {
			in.Horizons = append(in.Horizons, Horizon{statestore.ID(i), int64(r.Uint64())})
		}
		check(in)
	}
}

func TestEpochRecordSortsAndIsCompact(t *testing.T) {
	in := sampleEpochRecord()
	want := in.Append(nil)
	in.Inputs[0], in.Inputs[2] = in.Inputs[2], in.Inputs[0]
	in.Horizons[0], in.Horizons[1] = in.Horizons[1], in.Horizons[0]
	if got := in.Append(nil); !bytes.Equal(got, want) {
		t.Errorf("the order of the fields' entries shows in the bytes")
	}
	if in.Inputs[0].Topic != "orders" {
		t.Errorf("Append sorted the caller's slice")
	}
	big := &EpochRecord{Epoch: 1 << 30, Owner: "h", WallTime: 1764428400123, Touched: []bool{true}, Positions: []int64{1 << 40}}
	for p := range 64 {
		big.Inputs = append(big.Inputs, InputProgress{Topic: "orders-of-today", TopicID: [16]byte{1}, Partition: int32(p), Offset: 1 << 40,
			MaxTime: 1764428400123, Watermark: 1764428400000})
	}
	if n := len(big.Append(nil)); n > 64*24+100 {
		t.Errorf("64 partitions take %d bytes", n)
	}
}

func TestEpochRecordVersion(t *testing.T) {
	enc := sampleEpochRecord().Append(nil)
	enc[0] = 9
	_, err := DecodeEpochRecord(enc)
	if !errors.Is(err, ErrEpochRecord) || !strings.Contains(err.Error(), "version 9") || !strings.Contains(err.Error(), "another version of millrace") {
		t.Fatalf("got %v", err)
	}
	if _, err := DecodeEpochRecord(nil); !errors.Is(err, ErrEpochRecord) {
		t.Fatalf("empty: %v", err)
	}
}

func FuzzEpochRecord(f *testing.F) {
	f.Add(sampleEpochRecord().Append(nil))
	f.Add((&EpochRecord{}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeEpochRecord(b)
		if err != nil {
			if !errors.Is(err, ErrEpochRecord) {
				t.Fatalf("%v does not wrap ErrEpochRecord", err)
			}
			return
		}
		out, err := DecodeEpochRecord(r.Append(nil))
		if err != nil {
			t.Fatalf("what was decoded cannot be encoded: %+v: %v", r, err)
		}
		if !bytes.Equal(out.Append(nil), r.Append(nil)) {
			t.Fatalf("not stable: %+v, %+v", r, out)
		}
	})
}
