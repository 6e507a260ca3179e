package row

import (
	"fmt"
	"strings"
	"time"
)

// SimpleFormat is a compiled pattern of FROM_UNIXTIME, UNIX_TIMESTAMP, CONVERT_TZ, TO_DATE, and of DATE_FORMAT of a text:
// the letters of Java's older java.text.SimpleDateFormat in English. It reads leniently: what is too large is carried on,
// and what is behind the pattern's end is ignored. Dates before 1582-10-15 are those of the Julian calendar.
type SimpleFormat struct{ items []fmtItem }

// twoDigitStart is the first year that two digits may mean. Java takes 80 years ago from now; a result must not depend on
// the day on which it is made.
const twoDigitStart = 1946

// gregorianStart is 1582-10-15, the first day of the Gregorian calendar.
const gregorianStart = -141427

// NewSimpleFormat compiles a pattern. The error is of the kind that Flink reports at run time.
func NewSimpleFormat(pattern string) (*SimpleFormat, error) {
	f := &SimpleFormat{}
	fail := func(cause string, args ...any) (*SimpleFormat, error) {
		return nil, fmt.Errorf("compile pattern %q: %s", pattern, fmt.Sprintf(cause, args...))
	}
	for p := pattern; p != ""; {
		c := p[0]
		switch {
		case isLetter(c):
			n := run(p)
			p = p[n:]
			if strings.IndexByte("GyMdkHmsSEDFwWahKzZYuXL", c) < 0 {
				return fail("illegal pattern character '%c'", c)
			}
			if c == 'X' && n > 3 {
				return fail("invalid ISO 8601 format: length=%d", n)
			}
			f.items = append(f.items, fmtItem{letter: c, n: n})
		case c == '\'':
			if strings.HasPrefix(p, "''") {
				f.items = append(f.items, fmtItem{text: "'"})
				p = p[2:]
				continue
			}
			var b strings.Builder
			for p = p[1:]; ; {
				i := strings.IndexByte(p, '\'')
				if i < 0 {
					return fail("unterminated quote")
				}
				b.WriteString(p[:i])
				p = p[i+1:]
				if !strings.HasPrefix(p, "'") {
					break
				}
				b.WriteByte('\'')
				p = p[1:]
			}
			f.items = append(f.items, fmtItem{text: b.String()})
		default:
			f.items = append(f.items, fmtItem{text: p[:1]})
			p = p[1:]
		}
	}
	return f, nil
}

// Append appends an instant (ms since 1970-01-01 UTC) in a zone.
func (f *SimpleFormat) Append(dst []byte, ms int64, zone *Zone) []byte {
	offset := zone.Offset(ms)
	c := newClock(ms+offset, 0)
	if c.days < gregorianStart {
		c.year, c.month, c.day = julianOf(c.days)
	}
	hour := int(c.ms / MsPerHour)
	for i := range f.items {
		it := &f.items[i]
		least := it.n
		var v int64
		switch it.letter {
		case 0:
			dst = append(dst, it.text...)
			continue
		case 'G':
			if c.year <= 0 {
				dst = append(dst, "BC"...)
			} else {
				dst = append(dst, "AD"...)
			}
			continue
		case 'y', 'Y':
			v = c.year
			if it.letter == 'Y' {
				v, _ = usWeekYear(c.days, c.year)
			}
			if v <= 0 {
				v = 1 - v
			}
			if it.n == 2 {
				v %= 100
			}
		case 'M', 'L':
			if it.n > 2 {
				dst = appendName(dst, monthNames[c.month-1], min(it.n, 4))
				continue
			}
			v = int64(c.month)
		case 'E':
			dst = appendName(dst, dayNames[ISODayOfWeek(c.days)-1], max(3, min(it.n, 4)))
			continue
		case 'a':
			dst = append(dst, ampmNames[hour/12]...)
			continue
		case 'u':
			v = int64(ISODayOfWeek(c.days))
		case 'd':
			v = int64(c.day)
		case 'D':
			v = c.days - daysOfMixed(c.year, 1, 1) + 1
		case 'w':
			_, w := usWeekYear(c.days, c.year)
			v = int64(w)
		case 'W':
			v = int64(usWeek(c.days, c.day))
		case 'F':
			v = int64(c.day-1)/7 + 1
		case 'H':
			v = int64(hour)
		case 'k':
			v = int64((hour+23)%24) + 1
		case 'K':
			v = int64(hour % 12)
		case 'h':
			v = int64((hour+11)%12) + 1
		case 'm':
			v = c.ms / MsPerMinute % 60
		case 's':
			v = c.ms / MsPerSecond % 60
		case 'S':
			v = c.ms % MsPerSecond
		case 'z':
			dst = append(dst, zoneName(zone, ms, it.n >= 4)...)
			continue
		case 'Z':
			dst = appendOffset(dst, offset, 2, false)
			continue
		case 'X':
			if offset == 0 {
				dst = append(dst, 'Z')
			} else {
				dst = appendOffset(dst, offset, min(it.n, 2), it.n == 3)
			}
			continue
		}
		dst = appendPadded(dst, v, least)
	}
	return dst
}

// appendOffset appends +hh, +hhmm or +hh:mm.
func appendOffset(dst []byte, offset int64, parts int, colon bool) []byte {
	sign := byte('+')
	if offset < 0 {
		sign, offset = '-', -offset
	}
	h, m := offset/MsPerHour, offset/MsPerMinute%60
	dst = append(dst, sign, byte('0'+h/10), byte('0'+h%10))
	if parts < 2 {
		return dst
	}
	if colon {
		dst = append(dst, ':')
	}
	return append(dst, byte('0'+m/10), byte('0'+m%10))
}

// zoneName is the short name of a zone at an instant, as its rules have it. Long names are there for UTC only.
func zoneName(z *Zone, ms int64, long bool) string {
	if z.utc {
		if long {
			return "Coordinated Universal Time"
		}
		return "UTC"
	}
	name, _ := time.UnixMilli(ms).In(z.loc).Zone()
	if name == "" || name[0] == '+' || name[0] == '-' || name == z.name {
		return "GMT" + string(appendOffset(nil, z.Offset(ms), 2, true))
	}
	return name
}

// julianOf is the date of a day in the Julian calendar.
func julianOf(days int64) (year int64, month, day int) {
	// 1461 days are four years; counted from March 1 of year 0 (Julian), so that a leap day ends a year.
	z := days + 719470
	era := FloorDiv(z, 1461)
	doe := z - era*1461
	yoe := min(doe/365, 3)
	doy := doe - yoe*365
	mp := (5*doy + 2) / 153
	day = int(doy-(153*mp+2)/5) + 1
	month = int(mp) + 3
	year = era*4 + yoe
	if month > 12 {
		month -= 12
		year++
	}
	return year, month, day
}

// daysOfMixed is DaysOf in the Julian calendar before 1582-10-15.
func daysOfMixed(year int64, month, day int) int64 {
	days := DaysOf(year, month, day)
	if days >= gregorianStart {
		return days
	}
	m := int64(month) - 1
	y := year + FloorDiv(m, 12)
	m = FloorMod(m, 12) - 2
	if m < 0 {
		m += 12
		y--
	}
	return FloorDiv(y*1461, 4) + (153*m+2)/5 + int64(day) - 1 - 719470
}

// Parse reads a text at its start and returns the instant in ms since 1970-01-01 UTC. A time in a zone that summer time
// skips moves on, of a doubled one the later is meant. A zone in the text, where the pattern has one, counts.
func (f *SimpleFormat) Parse(b []byte, zone *Zone) (ms int64, ok bool) {
	p := parsed{text: text(b)}
	for i := range f.items {
		it := &f.items[i]
		if it.letter == 0 {
			rest, ok := strings.CutPrefix(p.text, it.text)
			if !ok {
				return 0, false
			}
			p.text = rest
			continue
		}
		p.text = strings.TrimLeft(p.text, " \t")
		if p.text == "" {
			return 0, false
		}
		abutting := i+1 < len(f.items) && f.items[i+1].letter != 0
		if it.letter == 'z' || it.letter == 'Z' || it.letter == 'X' {
			z, n, ok := readZone(p.text)
			if !ok {
				return 0, false
			}
			zone = z
			p.text = p.text[n:]
			continue
		}
		if !p.lenient(it, abutting) {
			return 0, false
		}
	}
	return p.instant(zone)
}

// lenient reads one field; of several values the last one counts.
func (p *parsed) lenient(it *fmtItem, abutting bool) bool {
	letter := it.letter
	switch letter {
	case 'M', 'L':
		if it.n > 2 {
			return p.anyCase('M', monthNames[:], 1)
		}
		letter = 'M'
	case 'E':
		return p.anyCase('E', dayNames[:], 1)
	case 'a':
		return p.anyCase('a', ampmNames[:], 0)
	case 'G':
		return p.anyCase('G', eraNames[:], 0)
	}
	s := p.text
	if abutting && len(s) > it.n {
		s = s[:it.n]
	}
	i := 0
	if s[0] == '-' {
		i = 1
	}
	digits := i
	var v int64
	for i < len(s) && s[i]-'0' <= 9 {
		v = min(v*10+int64(s[i]-'0'), 1<<40)
		i++
	}
	if i == digits {
		return false
	}
	if digits == 1 {
		v = -v
	}
	if v > 1<<31-1 || v < -1<<31 {
		v = int64(int32(v))
	}
	p.text = p.text[i:]
	switch letter {
	case 'y', 'Y':
		if it.n <= 2 && i == 2 && digits == 0 {
			v += twoDigitStart / 100 * 100
			if v < twoDigitStart {
				v += 100
			}
		}
	case 'k':
		if v == 24 {
			v = 0
		}
		letter = 'H'
	case 'h':
		if v == 12 {
			v = 0
		}
		letter = 'K'
	case 'u':
		letter = 'E'
	}
	j := letter - 'A'
	p.has |= 1 << j
	p.values[j] = v
	return true
}

func (p *parsed) anyCase(letter byte, names []string, first int64) bool {
	best, length := 0, 0
	for i, s := range names {
		for _, n := range []int{len(s), min(3, len(s))} {
			if n > length && len(p.text) >= n && strings.EqualFold(p.text[:n], s[:n]) {
				best, length = i, n
			}
		}
	}
	p.text = p.text[length:]
	j := letter - 'A'
	p.has |= 1 << j
	p.values[j] = int64(best) + first
	return length > 0
}

func (p *parsed) instant(zone *Zone) (ms int64, ok bool) {
	get := func(letter byte, missing int64) int64 {
		if v, has := p.get(letter); has {
			return v
		}
		return missing
	}
	year := get('y', 1970)
	if get('G', 1) == 0 {
		year = 1 - year
	}
	month := int(get('M', 1))
	doy, hasDoy := p.get('D')
	_, hasDay := p.get('d')
	dow, hasDow := p.get('E')
	_, hasWeek := p.get('w')
	_, hasWeek2 := p.get('W')
	if hasWeek || hasWeek2 || p.has>>('F'-'A')&1 != 0 || p.has>>('Y'-'A')&1 != 0 {
		if !hasDay && !hasDoy {
			return 0, false // weeks are formatted, but not read
		}
	}
	var days int64
	switch {
	case hasDay:
		days = daysOfMixed(year, month, 1) + get('d', 1) - 1
		if days >= gregorianStart != (daysOfMixed(year, month, 1) >= gregorianStart) {
			days = daysOfMixed(year, month, int(get('d', 1)))
		}
	case hasDoy:
		days = daysOfMixed(year, 1, 1) + doy - 1
	case hasDow:
		first := daysOfMixed(year, month, 1)
		days = first + FloorMod(dow-int64(ISODayOfWeek(first)), 7)
	default:
		days = daysOfMixed(year, month, 1)
	}
	hour, hasHour := p.get('H')
	if !hasHour {
		hour = get('K', 0) + 12*get('a', 0)
	}
	local := days*MsPerDay + hour*MsPerHour + get('m', 0)*MsPerMinute + get('s', 0)*MsPerSecond + get('S', 0)
	return zone.InstantLater(local), true
}

// shortZones are Java's three-letter zones.
var shortZones = map[string]string{"ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
	"ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka", "CAT": "Africa/Harare",
	"CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai", "EAT": "Africa/Addis_Ababa",
	"ECT": "Europe/Paris", //nolint:misspell // a zone of Java
	"EST": "-05:00", "HST": "-10:00", "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata", "JST": "Asia/Tokyo",
	"MIT": "Pacific/Apia", "MST": "-07:00", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland", "PLT": "Asia/Karachi",
	"PNT": "America/Phoenix", "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh"}

func shortZone(name string) (*Zone, bool) {
	if full, ok := shortZones[name]; ok {
		z, err := LoadZone(full)
		return z, err == nil
	}
	return nil, false
}

// ZoneOrUTC is the zone of a name as java.util.TimeZone takes it (CONVERT_TZ does): IANA names, three-letter names (PST),
// GMT+8, GMT-03:30; anything else, "+08:00" and "UTC+8" too, is UTC.
func ZoneOrUTC(name string) *Zone {
	if z, ok := shortZone(name); ok {
		return z
	}
	if name != "" && name[0] != '+' && name[0] != '-' && (!strings.HasPrefix(name, "UT") || name == "UTC" || name == "UT") {
		if z, err := LoadZone(name); err == nil {
			return z
		}
	}
	return UTC()
}
