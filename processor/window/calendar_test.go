package window

import (
	"math/rand/v2"
	"testing"
	"time"
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	l, err := time.LoadLocation(name)
	if err != nil {
		t.Skipf("no time zones: %v", err)
	}
	return l
}

// Days of zones with all that zones do: 23 and 25 hours, midnights that do not exist or come twice, half an hour of
// summer time, a date left out.
func TestDays(t *testing.T) {
	for _, c := range []struct{ zone, at, start, end string }{
		{"America/Los_Angeles", "2021-03-14T12:00:00-07:00", "2021-03-14T00:00:00-08:00", "2021-03-15T00:00:00-07:00"}, // 23 h
		{"America/Los_Angeles", "2021-11-07T12:00:00-08:00", "2021-11-07T00:00:00-07:00", "2021-11-08T00:00:00-08:00"}, // 25 h
		{"America/Los_Angeles", "2021-11-07T00:00:00-07:00", "2021-11-07T00:00:00-07:00", "2021-11-08T00:00:00-08:00"},
		{"America/Los_Angeles", "2021-11-06T23:59:59.999-07:00", "2021-11-06T00:00:00-07:00", "2021-11-07T00:00:00-07:00"},
		{"America/Sao_Paulo", "2018-11-04T01:00:00-02:00", "2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00"},   // no midnight
		{"America/Havana", "2021-11-07T00:30:00-05:00", "2021-11-07T00:00:00-04:00", "2021-11-08T00:00:00-05:00"},      // two midnights
		{"America/Goose_Bay", "2010-11-06T23:30:00-04:00", "2010-11-07T00:00:00-03:00", "2010-11-08T00:00:00-04:00"},   // back into the day before
		{"Australia/Lord_Howe", "2021-10-03T12:00:00+11:00", "2021-10-03T00:00:00+10:30", "2021-10-04T00:00:00+11:00"}, // 23.5 h
		{"Pacific/Apia", "2011-12-29T12:00:00-10:00", "2011-12-29T00:00:00-10:00", "2011-12-31T00:00:00+14:00"},        // the 30th was left out
		{"Pacific/Apia", "2011-12-31T00:00:00+14:00", "2011-12-31T00:00:00+14:00", "2012-01-01T00:00:00+14:00"},
		{"UTC", "1969-12-31T23:59:59.999Z", "1969-12-31T00:00:00Z", "1970-01-01T00:00:00Z"},
	} {
		at, _ := time.Parse(time.RFC3339, c.at)
		a := Day(zone(t, c.zone))
		if err := a.Err(); err != nil {
			t.Fatal(err)
		}
		start, end := a.Slice(at.UnixMilli())
		wantStart, _ := time.Parse(time.RFC3339, c.start)
		wantEnd, _ := time.Parse(time.RFC3339, c.end)
		if start != wantStart.UnixMilli() || end != wantEnd.UnixMilli() {
			t.Errorf("%s: day of %s is [%s, %s), want [%s, %s)", c.zone, c.at, time.UnixMilli(start).UTC(), time.UnixMilli(end).UTC(), wantStart.UTC(), wantEnd.UTC())
		}
	}
}

// Periods hold their times and meet without gap, whatever the zone, and begin with the wall clock's time where it exists.
func TestCalendarPeriodsMeet(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for _, name := range []string{"America/Los_Angeles", "Europe/Berlin", "America/Sao_Paulo", "America/Havana", "America/Goose_Bay", "Pacific/Apia", "Asia/Kathmandu", "Africa/Monrovia", "UTC"} {
		z := zone(t, name)
		for _, a := range []Assigner{Day(z), Week(z), Month(z), Offset(Day(z), 6*time.Hour), Offset(Month(z), -90*time.Minute), Offset(Day(z), 23*time.Hour)} {
			if err := a.Err(); err != nil {
				t.Fatal(err)
			}
			for range 300 {
				at := rng.Int64N(4e12) - 2e12 // 1906 to 2033
				s, e := a.Slice(at)
				if s > at || at >= e || e-s > 2*a.Size() {
					t.Fatalf("%s in %s: [%d, %d) of %d", a, name, s, e, at)
				}
				if s2, e2 := a.Slice(s); s2 != s || e2 != e {
					t.Fatalf("%s in %s: [%d, %d) of its start %d", a, name, s2, e2, s)
				}
				if s2, e2 := a.Slice(e - 1); s2 != s || e2 != e {
					t.Fatalf("%s in %s: [%d, %d) of its last ms %d", a, name, s2, e2, e-1)
				}
				if s2, _ := a.Slice(e); s2 != e || a.NextEnd(s) != e || a.StartOf(e) != s {
					t.Fatalf("%s in %s: the period behind %d begins at %d", a, name, e, s2)
				}
			}
		}
	}
	berlin := zone(t, "Europe/Berlin")
	for _, c := range []struct {
		a              Assigner
		at, start, end string
	}{
		{Week(berlin), "2021-03-28T12:00:00+02:00", "2021-03-22T00:00:00+01:00", "2021-03-29T00:00:00+02:00"},
		{Month(berlin), "2021-03-28T12:00:00+02:00", "2021-03-01T00:00:00+01:00", "2021-04-01T00:00:00+02:00"},
		{Offset(Day(berlin), 6*time.Hour), "2021-03-28T05:59:00+02:00", "2021-03-27T06:00:00+01:00", "2021-03-28T06:00:00+02:00"},
	} {
		at, _ := time.Parse(time.RFC3339, c.at)
		start, _ := time.Parse(time.RFC3339, c.start)
		end, _ := time.Parse(time.RFC3339, c.end)
		if s, e := c.a.Slice(at.UnixMilli()); s != start.UnixMilli() || e != end.UnixMilli() {
			t.Errorf("%s of %s: [%s, %s)", c.a, c.at, time.UnixMilli(s).In(berlin), time.UnixMilli(e).In(berlin))
		}
	}
}

// The windows that Ends and NextEnd give for a slice are those that hold it, found by looking at all.
func TestEndsAreTheWindowsThatHoldASlice(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for range 2000 {
		unit := 1 + rng.Int64N(7)
		size, slide, offset := unit*(1+rng.Int64N(12)), unit*(1+rng.Int64N(12)), rng.Int64N(60)-30
		a := Offset(Sliding(ms(size), ms(slide)), ms(offset))
		if rng.IntN(3) == 0 {
			size = slide * (1 + rng.Int64N(6))
			a = Offset(Cumulate(ms(size), ms(slide)), ms(offset))
		}
		if err := a.Err(); err != nil {
			t.Fatal(err)
		}
		at := rng.Int64N(400) - 200
		lo, hi := a.Slice(at)
		if lo > at || at >= hi || hi-lo != a.Unit() {
			t.Fatalf("%s: slice [%d, %d) of %d", a, lo, hi, at)
		}
		var want, got []int64
		for end := at - 200; end < at+800; end++ {
			var start int64
			if a.Kind() == KindCumulate {
				if mod(end-offset, slide) != 0 {
					continue
				}
				start = end - 1 - mod(end-1-offset, size)
			} else {
				if start = end - size; mod(start-offset, slide) != 0 {
					continue
				}
			}
			if a.StartOf(end) != start {
				t.Fatalf("%s: window that ends at %d starts at %d, want %d", a, end, a.StartOf(end), start)
			}
			if start <= at && at < end {
				want = append(want, end)
			}
		}
		first, last := a.Ends(hi)
		for end := first; end <= last; end = a.NextEnd(end) {
			got = append(got, end)
		}
		if len(got) != len(want) {
			t.Fatalf("%s: windows of %d end at %v, want %v", a, at, got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%s: windows of %d end at %v, want %v", a, at, got, want)
			}
		}
	}
}

func TestInvalidAssigners(t *testing.T) {
	for name, a := range map[string]Assigner{
		"zero": {}, "size": Tumbling(0), "part of a ms": Tumbling(1500 * time.Microsecond), "slide": Sliding(time.Second, -1),
		"pieces": Sliding(time.Hour, 1234567*time.Millisecond+1), "cumulate": Cumulate(10*time.Second, 3*time.Second), "gap": Session(0),
		"gap func": SessionFunc[int](nil), "zone": Day(nil), "local": Day(time.Local), "offset": Offset(Tumbling(time.Second), 1),
		"offset of a session": Offset(Session(time.Second), time.Second), "offset of a day": Offset(Day(time.UTC), 24*time.Hour),
		"processing time of counts": ProcessingTime(Count(1, 1)), "count": Count(0, 1), "global": ProcessingTime(Global()),
	} {
		if a.Err() == nil {
			t.Errorf("%s: %s is valid", name, a)
		}
	}
}
