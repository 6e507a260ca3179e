package window

import (
	"fmt"
	"time"
)

const dayMillis = 24 * 60 * 60 * 1000

// calendar knows where the periods of a time zone's wall clock begin.
type calendar struct {
	unit string
	zone *time.Location
}

func newCalendar(unit string, zone *time.Location) Assigner {
	a := Assigner{kind: KindCalendar, text: fmt.Sprintf("%s(%v)", unit, zone)}
	switch zone {
	case nil:
		a.err = fmt.Errorf("time zone is nil; use time.UTC or time.LoadLocation")
	case time.Local:
		a.err = fmt.Errorf("time zone is Local, which is another on another machine; use time.UTC or time.LoadLocation")
	}
	switch unit {
	case "day":
		a.size = 2 * dayMillis // as a bound
	case "week":
		a.size = 8 * dayMillis
	default:
		a.size = 32 * dayMillis
	}
	a.slide = a.size
	a.cal = &calendar{unit, zone}
	return a
}

func (c *calendar) String() string { return fmt.Sprintf("%s in %s", c.unit, c.zone) }

// slice is the period [start, end) that holds ts.
func (c *calendar) slice(ts, offset int64) (start, end int64) {
	// The date of the wall clock is at most one period off: where the clock went back over the boundary, or by the
	// offset.
	y, m, d := time.UnixMilli(ts).In(c.zone).Date()
	n := 0
	for start = c.begin(y, m, d, n, offset); start > ts; start = c.begin(y, m, d, n, offset) {
		n--
	}
	for end = c.begin(y, m, d, n+1, offset); end <= ts || end <= start; end = c.begin(y, m, d, n+1, offset) {
		n++
		if end <= ts {
			start = end
		}
	}
	return start, end
}

// begin is the first instant of the n-th period behind the one that holds a date.
func (c *calendar) begin(y int, m time.Month, d, n int, offset int64) int64 {
	switch c.unit {
	case "day":
		d += n
	case "week":
		weekday := int(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Weekday()+6) % 7 // from Monday
		d += 7*n - weekday
	default:
		m, d = m+time.Month(n), 1
	}
	return first(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).UnixMilli()+offset, c.zone)
}

// first is the first instant at which the wall clock of a zone shows wall, the ms that UTC would have then, or later.
func first(wall int64, zone *time.Location) int64 {
	// Zones lie within a day of UTC: look at the offsets that hold around that time, from the earliest on.
	at := time.UnixMilli(wall - 2*dayMillis).In(zone)
	for {
		_, until := at.ZoneBounds()
		_, seconds := at.Zone()
		if i := wall - int64(seconds)*1000; until.IsZero() || i < until.UnixMilli() {
			if begin, _ := at.ZoneBounds(); !begin.IsZero() {
				i = max(i, begin.UnixMilli()) // it lies in what the clock left out when this offset began
			}
			return i
		}
		at = until.In(zone)
	}
}
