package statestore_test

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/statestore"
	"github.com/millrace-stream/millrace/statestore/memstore"
)

func TestExpired(t *testing.T) {
	for _, c := range []struct {
		at, life, now int64
		want          bool
	}{
		{1000, 10, 1009, false}, {1000, 10, 1010, true}, {1000, 10, 999, false}, {statestore.Unstamped, 1, math.MaxInt64, false},
		{-5, 10, 4, false}, {-5, 10, 5, true}, {1000, math.MaxInt64, math.MaxInt64, false}, {math.MinInt64 + 1, 10, math.MaxInt64, true},
	} {
		if got := statestore.Expired(c.at, c.life, c.now); got != c.want {
			t.Errorf("written %d, life %d, now %d: %v", c.at, c.life, c.now, got)
		}
	}
}

// A stamped value is written as a struct with its schema would be, so that all who know schemas can read it.
func TestStampedCodecIsThatOfAStruct(t *testing.T) {
	type likeIt struct {
		At    int64 `state:"@written"`
		Value named `state:"@value"`
	}
	stamped, like := statestore.StampedCodec(codecOf[named](t)), codecOf[likeIt](t)
	if stamped.Schema() != like.Schema() {
		t.Fatalf("%s, want %s", stamped.Schema(), like.Schema())
	}
	v := statestore.Stamped[named]{At: -77, Value: named{"x", 5}}
	b := stamped.Append(nil, &v)
	if want := like.Append(nil, &likeIt{-77, named{"x", 5}}); !bytes.Equal(b, want) {
		t.Fatalf("%x, want %x", b, want)
	}
	var back statestore.Stamped[named]
	if err := stamped.Decode(b, &back); err != nil || back != v {
		t.Fatalf("%+v, %v", back, err)
	}
	for n := range len(b) {
		if err := stamped.Decode(b[:n], &back); err == nil {
			t.Errorf("%d bytes are read", n)
		}
	}
}

// A TTL does not stand in the way of what a state may read, by itself or by a migration.
func TestTTLAndSchemas(t *testing.T) {
	type before struct{ N int32 }
	type after struct {
		N    int64
		Note string
	}
	plain := func(c interface{ Schema() string }) string { return c.Schema() }
	withTTL := func(schema string) string { return "struct{@written int64;@value " + schema + "}" }
	b, a := plain(codecOf[before](t)), plain(codecOf[after](t))
	for _, was := range []string{b, withTTL(b)} {
		for _, now := range []string{a, withTTL(a)} {
			if err := (statestore.Spec{ValType: now}).CanRead(was); err != nil {
				t.Errorf("%s as %s: %v", was, now, err)
			}
			if err := (statestore.Spec{ValType: was}).CanRead(now); err == nil || !strings.Contains(err.Error(), "field N") {
				t.Errorf("%s as %s: %v", now, was, err)
			}
			if lost := statestore.LostFields(now, was); len(lost) > 0 {
				t.Errorf("%s as %s loses %s", was, now, lost)
			}
			if (statestore.Spec{ValType: now}).Migrates(was) || !(statestore.Spec{ValType: now, Migrations: []string{b}}).Migrates(was) {
				t.Errorf("%s as %s: migrations", was, now)
			}
		}
	}
	// The same with bytes, through a migration.
	store := memstore.New()
	s := statestore.NewState(store, statestore.StateOptions{})
	old := must[*statestore.Table[string, statestore.Stamped[before]]](t)(statestore.NewTable(s, spec("t", statestore.KindTable), keyOf[string](t), statestore.StampedCodec(codecOf[before](t))))
	s.Begin()
	old.Set(1, "k", statestore.Stamped[before]{At: 50, Value: before{7}})
	s.End()
	s.Seal(1)
	s.Committed()
	if err := s.WriteBehind(statestore.Meta{Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	migrating, err := statestore.Migrating(codecOf[after](t), statestore.Migrate(func(b before) (after, error) { return after{int64(b.N) * 100, "migrated"}, nil }))
	if err != nil {
		t.Fatal(err)
	}
	s = statestore.NewState(store, statestore.StateOptions{})
	kept := must[*statestore.Table[string, statestore.Stamped[after]]](t)(statestore.NewTable(s, spec("t", statestore.KindTable), keyOf[string](t), statestore.StampedCodec(migrating)))
	if v := kept.Get(1, "k"); v == nil || *v != (statestore.Stamped[after]{At: 50, Value: after{700, "migrated"}}) {
		t.Errorf("%+v", v)
	}
	s = statestore.NewState(store, statestore.StateOptions{})
	bare := must[*statestore.Table[string, after]](t)(statestore.NewTable(s, spec("t", statestore.KindTable), keyOf[string](t), migrating))
	if v := bare.Get(1, "k"); v == nil || *v != (after{700, "migrated"}) {
		t.Errorf("%+v", v)
	}
}
