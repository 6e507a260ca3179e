package window

import (
	"testing"
	"testing/quick"
	"time"
)

// A window holds its event, is aligned to the offset, and neighbours meet without gap: for times before the epoch too.
func TestStart(t *testing.T) {
	for _, c := range []struct{ size, offset, at, want int64 }{
		{10, 0, 0, 0}, {10, 0, 9, 0}, {10, 0, 10, 10}, {10, 0, -1, -10}, {10, 0, -10, -10}, {10, 0, -11, -20},
		{10, 3, 2, -7}, {10, 3, 3, 3}, {10, -3, 6, -3}, {10, -3, 7, 7}, {10, 23, 3, 3}, {1, 0, -5, -5},
	} {
		a := Offset(Tumbling(time.Duration(c.size)*time.Millisecond), time.Duration(c.offset)*time.Millisecond)
		if err := a.Err(); err != nil {
			t.Fatal(err)
		}
		if got := a.Start(c.at); got != c.want {
			t.Errorf("size %d offset %d: start of %d is %d, want %d", c.size, c.offset, c.at, got, c.want)
		}
	}
	f := func(size uint16, offset int32, at int64) bool {
		a := Offset(Tumbling(time.Duration(int64(size)+1)*time.Millisecond), time.Duration(offset)*time.Millisecond)
		at >>= 3 // event times are bounded
		s := a.Start(at)
		return s <= at && at < s+a.Size() && (s-int64(offset))%a.Size() == 0 && a.Start(s) == s && a.Start(s-1) == s-a.Size()
	}
	if err := quick.Check(f, nil); err != nil {
		t.Error(err)
	}
}

func TestOffsetsAddUp(t *testing.T) {
	a := Offset(Offset(Tumbling(10*time.Millisecond), 4*time.Millisecond), 9*time.Millisecond)
	if got := a.Start(5); got != 3 {
		t.Errorf("start of 5 is %d, want 3", got)
	}
}
