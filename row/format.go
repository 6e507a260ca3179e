package row

import (
	"fmt"
	"strconv"
	"strings"
)

// DateTimeFormat is a compiled pattern of DATE_FORMAT (of a timestamp) and TO_TIMESTAMP: the letters of Java's
// java.time.format.DateTimeFormatter in English, weeks as in the US (from Sunday, week 1 has January 1).
type DateTimeFormat struct {
	items []fmtItem
	// NoFormat is not nil if the pattern asks for a zone, which a timestamp does not have: Append must not be called, the
	// function fails at the first row.
	NoFormat error
}

// fmtItem is a piece of a pattern: a text, a field, or an optional section (of Java's patterns only).
type fmtItem struct {
	letter byte // 0: text
	n      int
	text   string
	pad    int
	opt    []fmtItem // letter '['

	// How numbers are read: least and most digits, digits of the fixed fields right behind, and sign.
	least, most, behind int
	sign                signStyle
}

type signStyle uint8

const (
	signNormal      signStyle = iota // minus only
	signExceeds                      // plus if there are more digits than the least
	signNotNegative                  // none
)

var monthNames = [...]string{"January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"}
var dayNames = [...]string{"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"}
var ampmNames = [...]string{"AM", "PM"}
var eraNames = [...]string{"BC", "AD"}

// NewDateTimeFormat compiles a pattern. The error is of the kind that Flink reports at run time.
func NewDateTimeFormat(pattern string) (*DateTimeFormat, error) {
	f := &DateTimeFormat{}
	items, rest, err := f.compile(pattern, 0)
	if err == nil && rest != "" {
		err = fmt.Errorf("a ] without [")
	}
	if err != nil {
		return nil, fmt.Errorf("compile pattern %q: %w", pattern, err)
	}
	f.items = items
	return f, nil
}

func (f *DateTimeFormat) compile(p string, depth int) (items []fmtItem, rest string, err error) {
	base := -1 // the number whose digits end where fixed ones follow
	for p != "" {
		c := p[0]
		switch {
		case isLetter(c):
			it := fmtItem{}
			n := run(p)
			if c == 'p' {
				it.pad = n
				p = p[n:]
				if p == "" || !isLetter(p[0]) || p[0] == 'p' {
					return nil, "", fmt.Errorf("pad letter 'p' must be followed by valid pad pattern")
				}
				c, n = p[0], run(p)
			}
			p = p[n:]
			it.letter, it.n = c, n
			if err := f.check(&it); err != nil {
				return nil, "", err
			}
			if it.most == 0 || it.pad > 0 {
				base = -1
				items = append(items, it)
				continue
			}
			if base >= 0 && it.least == it.most && it.sign == signNotNegative {
				items[base].behind += it.most
				it.behind = -1
			} else {
				base = len(items)
			}
			items = append(items, it)
		case c == '\'':
			i := strings.IndexByte(p[1:], '\'')
			if i < 0 {
				return nil, "", fmt.Errorf("pattern ends with an incomplete string literal")
			}
			var b strings.Builder
			if i == 0 {
				b.WriteByte('\'')
				p = p[2:]
			} else {
				p = p[1:]
				for {
					i := strings.IndexByte(p, '\'')
					if i < 0 {
						return nil, "", fmt.Errorf("pattern ends with an incomplete string literal")
					}
					b.WriteString(p[:i])
					p = p[i+1:]
					if !strings.HasPrefix(p, "'") {
						break
					}
					b.WriteByte('\'')
					p = p[1:]
				}
			}
			items = append(items, fmtItem{text: b.String()})
			base = -1
		case c == '[':
			if depth > 20 {
				return nil, "", fmt.Errorf("more than 20 [ inside each other")
			}
			opt, rest, err := f.compile(p[1:], depth+1)
			if err != nil {
				return nil, "", err
			}
			items = append(items, fmtItem{letter: '[', opt: opt})
			p = strings.TrimPrefix(rest, "]")
			base = -1
		case c == ']':
			if depth == 0 {
				return nil, "", fmt.Errorf("pattern invalid as it contains ] without previous [")
			}
			return items, p, nil
		case c == '{' || c == '}' || c == '#':
			return nil, "", fmt.Errorf("pattern includes reserved character: '%c'", c)
		default:
			items = append(items, fmtItem{text: p[:1]})
			p = p[1:]
			base = -1
		}
	}
	return items, "", nil
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// run is how often the first byte of p stands there in a row.
func run(p string) int {
	n := 1
	for n < len(p) && p[n] == p[0] {
		n++
	}
	return n
}

// check sets how a field is read and refuses counts that it does not have.
func (f *DateTimeFormat) check(it *fmtItem) error {
	c, n := it.letter, it.n
	tooMany := fmt.Errorf("too many pattern letters: %c", c)
	number := func(least, most int, s signStyle) { it.least, it.most, it.sign = least, most, s }
	zone := func(cause string) {
		if f.NoFormat == nil {
			f.NoFormat = fmt.Errorf("format a timestamp with pattern letter %c: %s", c, cause)
		}
	}
	switch c {
	case 'y', 'u', 'Y':
		switch {
		case n == 2:
			number(2, 2, signNotNegative)
		case n < 4:
			number(n, 19, signNormal)
		case n > 19:
			return tooMany
		default:
			number(n, 19, signExceeds)
		}
	case 'M', 'L', 'Q', 'q', 'e', 'c':
		switch {
		case n > 5:
			return tooMany
		case n == 1:
			number(1, 19, signNormal)
		case n == 2 && c == 'c':
			return fmt.Errorf("invalid pattern \"cc\"")
		case n == 2:
			number(2, 2, signNotNegative)
		}
	case 'G', 'E':
		if n > 5 {
			return tooMany
		}
	case 'd', 'h', 'H', 'k', 'K', 'm', 's', 'w':
		switch n {
		case 1:
			number(1, 19, signNormal)
		case 2:
			number(2, 2, signNotNegative)
		default:
			return tooMany
		}
	case 'W', 'F':
		if n > 1 {
			return tooMany
		}
		number(1, 19, signNormal)
	case 'D':
		switch n {
		case 1:
			number(1, 19, signNormal)
		case 2, 3:
			number(n, 3, signNotNegative)
		default:
			return tooMany
		}
	case 'S':
		if n > 9 {
			return tooMany
		}
		number(n, n, signNotNegative)
	case 'n', 'N', 'A':
		if n > 19 {
			return tooMany
		}
		number(n, 19, signNotNegative)
	case 'g':
		if n > 19 {
			return tooMany
		}
		number(n, 19, signNormal)
	case 'a':
		if n > 1 {
			return tooMany
		}
	case 'B':
		if n != 1 && n != 4 && n != 5 {
			return fmt.Errorf("wrong number of pattern letters: B")
		}
	case 'z', 'v':
		if n > 4 {
			return tooMany
		}
		zone("unable to extract ZoneId")
	case 'V':
		if n != 2 {
			return fmt.Errorf("pattern letter count must be 2: V")
		}
		zone("unable to extract ZoneId")
	case 'O':
		if n != 1 && n != 4 {
			return fmt.Errorf("pattern letter count must be 1 or 4: O")
		}
		zone("unsupported field: OffsetSeconds")
	case 'Z', 'X', 'x':
		if n > 5 {
			return tooMany
		}
		zone("unsupported field: OffsetSeconds")
	default:
		return fmt.Errorf("unknown pattern letter: %c", c)
	}
	return nil
}

// Append appends a local time, ms since 1970-01-01 and the nanoseconds in the ms.
func (f *DateTimeFormat) Append(dst []byte, ms, nanos int64) []byte {
	return appendItems(dst, f.items, newClock(ms, nanos))
}

// clock is a local time, taken apart.
type clock struct {
	days       int64
	year       int64
	month, day int
	ms         int64 // of the day
	nanos      int64 // of the second
}

func newClock(ms, nanos int64) *clock {
	c := &clock{days: FloorDiv(ms, MsPerDay)}
	c.year, c.month, c.day = CivilOf(c.days)
	c.ms = ms - c.days*MsPerDay
	c.nanos = c.ms%MsPerSecond*1e6 + nanos
	return c
}

// usWeek is the week that a day numbered from the start of a year or month lies in; the first one may be short.
func usWeek(days int64, dayOf int) int {
	sunday := int(FloorMod(days+4, 7)) // 0: Sunday
	first := FloorMod(int64(sunday-(dayOf-1)), 7)
	return (dayOf-1+int(first))/7 + 1
}

// usWeekYear is the year that the week of a day belongs to, and its number.
func usWeekYear(days, year int64) (int64, int) {
	next := DaysOf(year+1, 1, 1)
	if days >= next-FloorMod(next+4, 7) {
		return year + 1, 1
	}
	return year, usWeek(days, int(days-DaysOf(year, 1, 1))+1)
}

func appendItems(dst []byte, items []fmtItem, c *clock) []byte {
	for i := range items {
		it := &items[i]
		at := len(dst)
		switch it.letter {
		case 0:
			dst = append(dst, it.text...)
		case '[':
			dst = appendItems(dst, it.opt, c)
		default:
			dst = it.append(dst, c)
		}
		for it.pad > len(dst)-at {
			dst = append(dst, 0)
			copy(dst[at+1:], dst[at:])
			dst[at] = ' '
		}
	}
	return dst
}

func (it *fmtItem) append(dst []byte, c *clock) []byte {
	hour := int(c.ms / MsPerHour)
	var v int64
	switch it.letter {
	case 'y':
		v = c.year
		if v <= 0 {
			v = 1 - v
		}
	case 'u':
		v = c.year
	case 'Y':
		v, _ = usWeekYear(c.days, c.year)
	case 'G':
		i := 1
		if c.year <= 0 {
			i = 0
		}
		switch it.n {
		case 4:
			return append(dst, [...]string{"Before Christ", "Anno Domini"}[i]...)
		case 5:
			return append(dst, eraNames[i][0])
		}
		return append(dst, eraNames[i]...)
	case 'M', 'L':
		if it.n > 2 {
			return appendName(dst, monthNames[c.month-1], it.n)
		}
		v = int64(c.month)
	case 'Q', 'q':
		q := (c.month-1)/3 + 1
		switch it.n {
		case 3:
			return append(dst, 'Q', byte('0'+q))
		case 4:
			return append(append(dst, [...]string{"1st", "2nd", "3rd", "4th"}[q-1]...), " quarter"...)
		}
		v = int64(q)
		if it.n == 5 {
			return AppendInt(dst, v)
		}
	case 'E':
		return appendName(dst, dayNames[ISODayOfWeek(c.days)-1], max(3, it.n))
	case 'e', 'c':
		if it.n > 2 {
			return appendName(dst, dayNames[ISODayOfWeek(c.days)-1], it.n)
		}
		v = FloorMod(c.days+4, 7) + 1
	case 'd':
		v = int64(c.day)
	case 'D':
		v = c.days - DaysOf(c.year, 1, 1) + 1
	case 'w':
		_, w := usWeekYear(c.days, c.year)
		v = int64(w)
	case 'W':
		v = int64(usWeek(c.days, c.day))
	case 'F':
		v = int64(c.day-1)%7 + 1
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
		return appendDigits(dst, uint64(c.nanos)/pow10[9-it.n].lo, it.n)
	case 'n':
		v = c.nanos
	case 'N':
		v = c.ms/MsPerSecond*1e9 + c.nanos
	case 'A':
		v = c.ms
	case 'g':
		v = c.days + 40587
	case 'a':
		return append(dst, ampmNames[hour/12]...)
	case 'B':
		return append(dst, dayPeriod(c.ms)...)
	}
	if it.letter == 'y' || it.letter == 'u' || it.letter == 'Y' {
		if it.n == 2 {
			if v < 0 {
				v = -v
			}
			v %= 100
		} else if it.sign == signExceeds && it.n < 19 && v >= int64(pow10[it.n].lo) {
			dst = append(dst, '+')
		}
	}
	return appendPadded(dst, v, it.least)
}

// appendPadded appends v with that many digits at least.
func appendPadded(dst []byte, v int64, least int) []byte {
	if v < 0 {
		dst = append(dst, '-')
		v = -v
	}
	for p := least - 1; p > 0 && p < 19 && uint64(v) < pow10[p].lo; p-- {
		dst = append(dst, '0')
	}
	return strconv.AppendInt(dst, v, 10)
}

func appendName(dst []byte, name string, n int) []byte {
	switch n {
	case 4:
	case 5:
		name = name[:1]
	default:
		name = name[:3]
	}
	return append(dst, name...)
}

func dayPeriod(ms int64) string {
	switch h := ms / MsPerHour; {
	case ms < MsPerMinute:
		return "midnight"
	case h == 12 && ms < 12*MsPerHour+MsPerMinute:
		return "noon"
	case h >= 6 && h < 12:
		return "in the morning"
	case h >= 12 && h < 18:
		return "in the afternoon"
	case h >= 18 && h < 21:
		return "in the evening"
	}
	return "at night"
}

// Parse reads a text as TO_TIMESTAMP does: by the pattern, whole and case-sensitive; parts that the pattern does not have
// are those of 1970-01-01 00:00:00, a day up to 31 that the month does not have becomes its last one. A text that does not
// fit the pattern may still be yyyy-[m]m-[d]d[ hh:mm:ss[.fraction]], whose parts may be too large and are carried on.
// ok is false if it is neither. A zone in the text is read and ignored.
func (f *DateTimeFormat) Parse(b []byte) (ms, nanos int64, ok bool) {
	p := parsed{text: text(b)}
	if p.items(f.items) && p.text == "" {
		if ms, nanos, ok = p.resolve(); ok {
			return ms, nanos, true
		}
	}
	return parseJDBC(b)
}

// parsed is a text while it is read, and the fields found by their letter.
type parsed struct {
	text   string
	has    uint64
	values [64]int64
}

func (p *parsed) get(letter byte) (int64, bool) {
	i := letter - 'A'
	return p.values[i], p.has>>i&1 != 0
}

// set notes a field; it fails if the text had another value of it.
func (p *parsed) set(letter byte, v int64) bool {
	i := letter - 'A'
	if p.has>>i&1 != 0 {
		return p.values[i] == v
	}
	p.has |= 1 << i
	p.values[i] = v
	return true
}

func (p *parsed) items(items []fmtItem) bool {
	for i := range items {
		it := &items[i]
		switch it.letter {
		case 0:
			rest, ok := strings.CutPrefix(p.text, it.text)
			if !ok {
				return false
			}
			p.text = rest
		case '[':
			before := *p
			if !p.items(it.opt) {
				*p = before
			}
		default:
			if it.pad > 0 {
				if len(p.text) < it.pad {
					return false
				}
				rest := p.text[it.pad:]
				p.text = strings.TrimLeft(p.text[:it.pad], " ")
				if !p.field(it) || p.text != "" {
					return false
				}
				p.text = rest
			} else if !p.field(it) {
				return false
			}
		}
	}
	return true
}

func (p *parsed) field(it *fmtItem) bool {
	if it.most > 0 {
		return p.number(it)
	}
	switch it.letter {
	case 'M', 'L':
		return p.name('M', monthNames[:], it.n, 1)
	case 'E', 'e', 'c':
		return p.name('E', dayNames[:], max(3, it.n), 1)
	case 'a':
		return p.name('a', ampmNames[:], 4, 0)
	case 'G':
		return it.n <= 3 && p.name('G', eraNames[:], 4, 0)
	case 'Q', 'q':
		if it.n == 3 && len(p.text) > 1 && p.text[0] == 'Q' && p.text[1] >= '1' && p.text[1] <= '4' {
			v := int64(p.text[1] - '0')
			p.text = p.text[2:]
			return p.set('Q', v)
		}
		return false
	case 'X', 'x', 'Z', 'O', 'z', 'v', 'V':
		_, n, ok := readZone(p.text)
		if ok {
			p.text = p.text[n:]
		}
		return ok
	}
	return false
}

func (p *parsed) name(letter byte, names []string, n int, first int64) bool {
	best, length := -1, 0
	for i, s := range names {
		switch n {
		case 3:
			s = s[:3]
		case 5:
			s = s[:1]
		}
		if strings.HasPrefix(p.text, s) && len(s) > length {
			best, length = i, len(s)
		}
	}
	if best < 0 {
		return false
	}
	p.text = p.text[length:]
	return p.set(letter, int64(best)+first)
}

func (p *parsed) number(it *fmtItem) bool {
	s := p.text
	negative, positive := false, false
	if s != "" && (s[0] == '-' || s[0] == '+') {
		negative, positive = s[0] == '-', s[0] == '+'
		if it.sign == signNotNegative || it.sign == signNormal && positive {
			return false
		}
		s = s[1:]
	}
	n := 0
	for n < len(s) && n < it.most+max(it.behind, 0) && s[n]-'0' <= 9 {
		n++
	}
	if it.behind > 0 {
		n = max(it.least, n-it.behind)
	}
	if n < it.least || n == 0 || n > len(s) {
		return false
	}
	v, err := strconv.ParseInt(s[:n], 10, 64)
	if err != nil || negative && v == 0 {
		return false
	}
	if it.sign == signExceeds && !negative && (n > it.least) != positive {
		return false
	}
	if negative {
		v = -v
	}
	p.text = s[n:]
	letter := it.letter
	switch {
	case letter == 'S':
		v *= int64(pow10[9-n].lo)
		letter = 'n'
	case it.n == 2 && (letter == 'y' || letter == 'u' || letter == 'Y'):
		v += 2000
	case letter == 'L':
		letter = 'M'
	case letter == 'q':
		letter = 'Q'
	case letter == 'e' || letter == 'c':
		letter = 'E'
		if v < 1 || v > 7 {
			return false
		}
		v = (v+5)%7 + 1 // Sunday is 1 here, 7 in E
	}
	return p.set(letter, v)
}

// resolve makes a local time of the fields, as Java's SMART resolver and Flink's defaults do.
func (p *parsed) resolve() (ms, nanos int64, ok bool) {
	limits := [...]struct {
		letter byte
		lo, hi int64
	}{{'M', 1, 12}, {'d', 1, 31}, {'D', 1, 366}, {'H', 0, 24}, {'k', 0, 24}, {'K', 0, 11}, {'h', 0, 12}, {'m', 0, 59}, {'s', 0, 59},
		{'n', 0, 999_999_999}, {'A', 0, MsPerDay - 1}, {'N', 0, MsPerDay*1e6 - 1}, {'Q', 1, 4}, {'y', 1, 999_999_999}, {'u', -999_999_999, 999_999_999}}
	for _, l := range limits {
		if v, has := p.get(l.letter); has && (v < l.lo || v > l.hi) {
			return 0, 0, false
		}
	}
	days, ok := p.date()
	if !ok {
		return 0, 0, false
	}
	ms, nanos, ok = p.clock()
	if !ok {
		return 0, 0, false
	}
	if !p.fullDate() && ms >= MsPerDay {
		ms -= MsPerDay
	}
	return days*MsPerDay + ms, nanos, true
}

func (p *parsed) year() (int64, bool) {
	y, has := p.get('y')
	if has {
		if era, _ := p.get('G'); p.has>>('G'-'A')&1 != 0 && era == 0 {
			y = 1 - y
		}
	}
	u, hasU := p.get('u')
	switch {
	case has && hasU && y != u:
		return 0, false
	case hasU:
		return u, true
	}
	return y, has
}

// fullDate says whether the fields name a day.
func (p *parsed) fullDate() bool {
	_, y := p.year()
	_, m := p.get('M')
	_, d := p.get('d')
	_, doy := p.get('D')
	_, wy := p.get('Y')
	_, w := p.get('w')
	_, e := p.get('E')
	_, g := p.get('g')
	return g || y && (m && d || doy) || wy && w && e
}

func (p *parsed) date() (days int64, ok bool) {
	y, hasYear := p.year()
	m, hasMonth := p.get('M')
	d, hasDay := p.get('d')
	doy, hasDoy := p.get('D')
	wy, hasWY := p.get('Y')
	w, hasWeek := p.get('w')
	e, hasE := p.get('E')
	g, hasG := p.get('g')
	switch {
	case hasG:
		days = g - 40587
	case hasYear && hasMonth && hasDay:
		days = DaysOf(y, int(m), min(int(d), DaysInMonth(y, int(m))))
	case hasYear && hasDoy:
		if doy == 366 && !LeapYear(y) {
			return 0, false
		}
		days = DaysOf(y, 1, int(doy))
	case hasWY && hasWeek && hasE:
		first := DaysOf(wy, 1, 1)
		days = first - FloorMod(first+4, 7) + (w-1)*7 + e%7
	default:
		if !hasYear {
			y = 1970
		}
		if !hasMonth {
			m = 1
		}
		if !hasDay {
			d = 1
		}
		if int(d) > DaysInMonth(y, int(m)) {
			return 0, false
		}
		return DaysOf(y, int(m), int(d)), true
	}
	// What else the text says about the day must be true.
	cy, cm, cd := CivilOf(days)
	q, hasQ := p.get('Q')
	if hasE && int(e) != ISODayOfWeek(days) || hasQ && int(q) != (cm-1)/3+1 || hasYear && cy != y || hasMonth && int64(cm) != m ||
		hasDoy && days-DaysOf(cy, 1, 1)+1 != doy || hasDay && cd != min(int(d), DaysInMonth(cy, cm)) {
		return 0, false
	}
	return days, true
}

func (p *parsed) clock() (ms, nanos int64, ok bool) {
	if v, has := p.get('N'); has {
		return v / 1e6, v % 1e6, true
	}
	if v, has := p.get('A'); has {
		return v, 0, true
	}
	h, hasHour := p.get('H')
	if v, has := p.get('k'); has {
		if hasHour && h != v%24 {
			return 0, 0, false
		}
		h, hasHour = v%24, true
	}
	half, hasHalf := p.get('K')
	if v, has := p.get('h'); has {
		if hasHalf && half != v%12 {
			return 0, 0, false
		}
		half, hasHalf = v%12, true
	}
	if pm, has := p.get('a'); has && hasHalf {
		v := half + 12*pm
		if hasHour && h != v {
			return 0, 0, false
		}
		h = v
	}
	m, _ := p.get('m')
	s, _ := p.get('s')
	n, _ := p.get('n')
	if h == 24 && (m != 0 || s != 0 || n != 0) {
		return 0, 0, false
	}
	return h*MsPerHour + m*MsPerMinute + s*MsPerSecond + n/1e6, n % 1e6, true
}

// parseJDBC reads yyyy-[m]m-[d]d and yyyy-[m]m-[d]d hh:mm:ss[.fraction] as java.sql.Date and java.sql.Timestamp do: a
// month is 1 to 12, a day 1 to 31, and what is too large is carried on.
func parseJDBC(b []byte) (ms, nanos int64, ok bool) {
	b = TrimSpaces(b)
	if len(b) < 8 || b[4] != '-' {
		return 0, 0, false
	}
	y, ok := plainInt(b[:4])
	if !ok {
		return 0, 0, false
	}
	m, b, ok := digits12(b[5:])
	if !ok || m < 1 || m > 12 || len(b) == 0 || b[0] != '-' {
		return 0, 0, false
	}
	d, b, ok := digits12(b[1:])
	if !ok || d < 1 || d > 31 {
		return 0, 0, false
	}
	ms = DaysOf(y, m, d) * MsPerDay
	if len(b) == 0 {
		return ms, 0, true
	}
	if b[0] != ' ' {
		return 0, 0, false
	}
	parts := strings.SplitN(string(b[1:]), ":", 3)
	if len(parts) != 3 {
		return 0, 0, false
	}
	sec, frac, hasFrac := strings.Cut(parts[2], ".")
	for i, s := range []string{parts[0], parts[1], sec} {
		v, err := strconv.ParseInt(s, 10, 32)
		if err != nil {
			return 0, 0, false
		}
		ms += v * [...]int64{MsPerHour, MsPerMinute, MsPerSecond}[i]
	}
	if !hasFrac {
		return ms, 0, true
	}
	v, rest, ok := fraction([]byte("." + frac))
	if !ok || frac == "" || len(rest) > 0 {
		return 0, 0, false
	}
	return ms + v/1e6, v % 1e6, true
}

// readZone reads a zone or offset at the start of s; n is how long it is.
func readZone(s string) (z *Zone, n int, ok bool) {
	for n < len(s) && (isLetter(s[n]) || s[n]-'0' <= 9 || strings.IndexByte("/_+-:", s[n]) >= 0) {
		n++
	}
	for ; n > 0; n-- {
		if z, ok := shortZone(s[:n]); ok {
			return z, n, true
		}
		if z, err := LoadZone(s[:n]); err == nil {
			return z, n, true
		}
	}
	return nil, 0, false
}
