package common

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

func TestJSONHasTheSizeThatIsAskedFor(t *testing.T) {
	g := NewGen(1, 10_000_000, true)
	for i, size := range []int{0, 100, 141, 1000, 10_000, 100, 1000} {
		r := g.Next()
		b := r.JSON(0, size)
		if size > 0 && len(b) != size {
			t.Errorf("size %d: the value has %d bytes: %s", size, len(b), b)
		}
		var got struct {
			User   string
			Amount float64
			TS     int64
			Note   string
		}
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatalf("size %d: %v: %s", size, err, b)
		}
		if got.User != string(UserKey(i)) || int(got.Amount*100+0.5) != r.Cents || got.TS != r.TS {
			t.Errorf("size %d: %+v was encoded as %s", size, r, b)
		}
		if size == 0 && len(got.Note) != noteBytes {
			t.Errorf("without a size the note has %d bytes, not %d", len(got.Note), noteBytes)
		}
	}
	if b := (Rec{}).JSON(7, 10); json.Unmarshal(b, &struct{}{}) != nil || string(Field(b, "ts")) != "7" {
		t.Errorf("a size that is too small, with a time: %s", b)
	}
}

func TestUserOfReadsWhatUserKeyMakes(t *testing.T) {
	for _, u := range []int{0, 7, 999_999, 1_000_000, 9_999_999} {
		if got, ok := UserOf(UserKey(u)); !ok || got != u {
			t.Errorf("UserOf(%s) = %d, %v", UserKey(u), got, ok)
		}
	}
	for _, key := range []string{"", "u", "zz00001", "u00x001", "u12345", "v000001", "u99999999999999999999"} {
		if got, ok := UserOf([]byte(key)); ok {
			t.Errorf("UserOf(%q) = %d, but that is no user's key", key, got)
		}
	}
}

func TestGenGivesEachUserOneRecordFirstIfDistinct(t *testing.T) {
	g := NewGen(3, 500, true)
	for i := range 500 {
		if u := g.Next().User; u != i {
			t.Fatalf("record %d is of user %d", i, u)
		}
	}
	a, b := NewGen(9, 100, false), NewGen(9, 100, false)
	for range 1000 {
		if x, y := a.Next(), b.Next(); x != y || x.User >= 100 {
			t.Fatalf("%+v and %+v of the same seed and 100 users", x, y)
		}
	}
}

func TestFlushRecordsReachEveryPartition(t *testing.T) {
	for _, n := range []int{1, 4, 64} {
		p := kgo.StickyKeyPartitioner(nil).ForTopic("in")
		for i, r := range FlushRecords("in", n, 5) {
			if p.Partition(r, n) != i {
				t.Errorf("the record for partition %d of %d goes to %d", i, n, p.Partition(r, n))
			}
			if string(Field(r.Value, "user")) != string(r.Key) || string(Field(r.Value, "ts")) != fmt.Sprint(5) {
				t.Errorf("record %s with key %s", r.Value, r.Key)
			}
		}
	}
}
