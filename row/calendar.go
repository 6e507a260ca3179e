package row

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // zones must be there in an image without files
)

// Ms of the units of time.
const (
	MsPerSecond = 1000
	MsPerMinute = 60 * MsPerSecond
	MsPerHour   = 60 * MsPerMinute
	MsPerDay    = 24 * MsPerHour
)

// FloorDiv is a / b towards minus infinity, b > 0.
func FloorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// FloorMod is a - b*FloorDiv(a, b): 0 to b-1.
func FloorMod(a, b int64) int64 {
	m := a % b
	if m < 0 {
		m += b
	}
	return m
}

// DaysOf is the days from 1970-01-01 to a date of the proleptic Gregorian calendar. Months beyond 1 to 12 and days beyond
// the month count on. Year 0 is 1 BC.
func DaysOf(year int64, month, day int) int64 {
	m := int64(month) - 1
	year += FloorDiv(m, 12)
	m = FloorMod(m, 12) - 2 // March is 0: a leap day ends the year
	if m < 0 {
		m += 12
		year--
	}
	era := FloorDiv(year, 400)
	yoe := year - era*400
	doy := (153*m + 2) / 5
	return era*146097 + yoe*365 + yoe/4 - yoe/100 + doy + int64(day) - 1 - 719468
}

// CivilOf is the date of a day number, as DaysOf counts.
func CivilOf(days int64) (year int64, month, day int) {
	z := days + 719468
	era := FloorDiv(z, 146097)
	doe := z - era*146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	day = int(doy - (153*mp+2)/5 + 1)
	month = int(mp) + 3
	year = yoe + era*400
	if month > 12 {
		month -= 12
		year++
	}
	return year, month, day
}

// LeapYear says whether a year has a February 29.
func LeapYear(year int64) bool { return year%4 == 0 && (year%100 != 0 || year%400 == 0) }

// DaysInMonth is the length of a month, 1 to 12.
func DaysInMonth(year int64, month int) int {
	switch month {
	case 2:
		if LeapYear(year) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

// DayOfYear is 1 to 366.
func DayOfYear(days int64) int {
	y, _, _ := CivilOf(days)
	return int(days-DaysOf(y, 1, 1)) + 1
}

// ISODayOfWeek is 1 (Monday) to 7 (Sunday).
func ISODayOfWeek(days int64) int { return int(FloorMod(days+3, 7)) + 1 }

// ISOWeek is the week of ISO 8601 and the year that it belongs to: week 1 has the first Thursday.
func ISOWeek(days int64) (year int64, week int) {
	thursday := days - int64(ISODayOfWeek(days)) + 4
	year, _, _ = CivilOf(thursday)
	return year, int(thursday-DaysOf(year, 1, 1))/7 + 1
}

// AddMonths adds months to a date; a day beyond the end of the month becomes its last day.
func AddMonths(days int64, months int64) int64 {
	y, m, d := CivilOf(days)
	n := y*12 + int64(m-1) + months
	y, m = FloorDiv(n, 12), int(FloorMod(n, 12))+1
	return DaysOf(y, m, min(d, DaysInMonth(y, m)))
}

// AddMonthsMs is AddMonths for a timestamp in ms; the time of the day stays.
func AddMonthsMs(ms int64, months int64) int64 {
	return AddMonths(FloorDiv(ms, MsPerDay), months)*MsPerDay + FloorMod(ms, MsPerDay)
}

// Zone is a time zone with its rules: the session's `table.local-time-zone`, or an argument of a function. It is immutable.
type Zone struct {
	name  string
	loc   *time.Location
	utc   bool
	spans []zoneSpan // in order, without gaps, up to the year 2100
}

// zoneSpan is a time without transition: from lo, including it, to hi the offset holds.
type zoneSpan struct{ lo, hi, offset int64 }

func newZone(name string, loc *time.Location) *Zone {
	z := &Zone{name: name, loc: loc}
	for at := int64(math.MinInt64); at < DaysOf(2100, 1, 1)*MsPerDay; {
		s := z.lookup(max(at, DaysOf(-9999, 1, 1)*MsPerDay))
		// Package time may name an end that is not behind the time asked for, at the end of a leap year.
		at, s.lo = max(s.hi, at+MsPerHour), at
		s.hi = at
		if n := len(z.spans); n > 0 && z.spans[n-1].offset == s.offset {
			z.spans[n-1].hi = at
			continue
		}
		z.spans = append(z.spans, s)
	}
	z.utc = len(z.spans) == 1 && z.spans[0].offset == 0
	return z
}

// UTC is the zone UTC.
func UTC() *Zone { return newZone("UTC", time.UTC) }

// LoadZone is the zone of a name: an IANA name ("Europe/Berlin"), "UTC", "GMT", "Z", an offset ("+08:00", "GMT+8",
// "UTC-03:30"), as Java's ZoneId takes them. The error names what it takes.
func LoadZone(name string) (*Zone, error) {
	switch name {
	case "UTC", "GMT", "UT", "Z", "Etc/UTC":
		return newZone(name, time.UTC), nil
	}
	offset := name
	for _, p := range []string{"UTC", "GMT", "UT"} {
		if s, ok := strings.CutPrefix(name, p); ok {
			offset = s
			break
		}
	}
	if offset != "" && (offset[0] == '+' || offset[0] == '-') {
		if s, ok := parseOffset(offset); ok {
			return newZone(name, time.FixedZone(name, s)), nil
		}
	} else if name != "" && name != "Local" {
		if loc, err := time.LoadLocation(name); err == nil {
			return newZone(name, loc), nil
		}
	}
	return nil, fmt.Errorf("load time zone %q: it is neither a name such as Europe/Berlin or UTC nor an offset such as +08:00 or GMT+8", name)
}

// parseOffset reads +h, +hh, +hh:mm, +hhmm, +hh:mm:ss and +hhmmss, at most 18 hours.
func parseOffset(s string) (seconds int, ok bool) {
	sign := 1
	if s[0] == '-' {
		sign = -1
	}
	d := strings.ReplaceAll(s[1:], ":", "")
	switch {
	case len(s) == 2 || len(s) == 3:
		d = strings.Repeat("0", 3-len(s)) + d + "0000"
	case (len(s) == 5 || len(s) == 6 && s[3] == ':') && len(d) == 4:
		d += "00"
	case (len(s) == 7 || len(s) == 9 && s[3] == ':' && s[6] == ':') && len(d) == 6:
	default:
		return 0, false
	}
	for _, c := range d {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	h, _ := strconv.Atoi(d[:2])
	m, _ := strconv.Atoi(d[2:4])
	sec, _ := strconv.Atoi(d[4:])
	n := h*3600 + m*60 + sec
	if m > 59 || sec > 59 || n > 18*3600 {
		return 0, false
	}
	return sign * n, true
}

// Name is the name that the zone was loaded by.
func (z *Zone) Name() string { return z.name }

// IsUTC says whether local time is UTC at all times.
func (z *Zone) IsUTC() bool { return z.utc }

// Offset is the ms by which local time is ahead of UTC at an instant (ms since 1970-01-01 UTC).
func (z *Zone) Offset(ms int64) int64 {
	if z.utc {
		return 0
	}
	lo, hi := 0, len(z.spans)
	for hi-lo > 1 {
		if m := int(uint(lo+hi) >> 1); ms >= z.spans[m].lo {
			lo = m
		} else {
			hi = m
		}
	}
	if s := &z.spans[lo]; ms < s.hi || s.hi == math.MaxInt64 {
		return s.offset
	}
	return z.lookup(ms).offset
}

func (z *Zone) lookup(ms int64) zoneSpan {
	t := time.UnixMilli(ms).In(z.loc)
	_, seconds := t.Zone()
	s := zoneSpan{lo: math.MinInt64, hi: math.MaxInt64, offset: int64(seconds) * MsPerSecond}
	lo, hi := t.ZoneBounds()
	if !lo.IsZero() {
		s.lo = lo.UnixMilli()
	}
	if !hi.IsZero() {
		s.hi = hi.UnixMilli()
	}
	return s
}

// Local is the local time of an instant, as ms since 1970-01-01 00:00:00 on the wall clock.
func (z *Zone) Local(ms int64) int64 { return ms + z.Offset(ms) }

// Instant is the instant of a local time: a time that summer time skips moves on by the gap, of a doubled one the earlier
// is meant. So CAST goes.
func (z *Zone) Instant(local int64) int64 {
	earlier, _ := z.instants(local)
	return earlier
}

// InstantLater is Instant with the later of a doubled time. So UNIX_TIMESTAMP goes.
func (z *Zone) InstantLater(local int64) int64 {
	_, later := z.instants(local)
	return later
}

func (z *Zone) instants(local int64) (earlier, later int64) {
	if z.utc {
		return local, local
	}
	// The offsets a day before and after are those on both sides of a transition near this time, if there is one.
	before, after := z.Offset(local-MsPerDay), z.Offset(local+MsPerDay)
	if before == after {
		return local - before, local - before
	}
	earlier, later = local-before, local-after
	if later < earlier {
		earlier, later = later, earlier
	}
	okEarlier := z.Offset(earlier) == local-earlier
	okLater := z.Offset(later) == local-later
	switch {
	case okEarlier && okLater:
		return earlier, later
	case okEarlier:
		return earlier, earlier
	case okLater:
		return later, later
	}
	// In the gap: the offset from before the transition moves it on by the gap.
	return local - before, local - before
}
