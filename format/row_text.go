package format

import (
	"encoding/binary"
	"strconv"

	"github.com/millrace-stream/millrace/row"
)

// The texts of times that JSON and CSV share. They are stricter than those of CAST: two digits for all but the year.

// readDate reads yyyy-MM-dd at the start of b. A day up to 31 that the month does not have becomes its last one if bend,
// else it is refused.
func readDate(b []byte, bend bool) (days int64, rest []byte, ok bool) {
	if len(b) < 10 {
		return 0, nil, false
	}
	// The two dashes become zeros: then all eight bytes are digits, or the text is wrong.
	const dashes = ('-' ^ '0') * (1<<32 + 1<<56)
	v, ok := eightDigits(binary.LittleEndian.Uint64(b) ^ dashes)
	tens, units := b[8]-'0', b[9]-'0'
	if !ok || tens > 9 || units > 9 {
		return 0, nil, false
	}
	y, m, d := int64(v/10000), int(v/10%1000), int(tens)*10+int(units)
	if m < 1 || m > 12 || d < 1 || d > 31 {
		return 0, nil, false
	}
	if d > 28 {
		if last := row.DaysInMonth(y, m); d > last {
			if !bend {
				return 0, nil, false
			}
			d = last
		}
	}
	return row.DaysOf(y, m, d), b[10:], true
}

// readClock reads HH:mm:ss[.fraction], up to nine digits, at the start of b; with short also HH:mm. 24:00:00 is the end
// of the day.
func readClock(b []byte, short bool) (ms, nanos int64, rest []byte, ok bool) {
	if len(b) < 8 || b[5] != ':' {
		if !short || len(b) < 5 {
			return 0, 0, nil, false
		}
		w := [8]byte{0: b[0], 1: b[1], 2: b[2], 3: b[3], 4: b[4], 5: ':', 6: '0', 7: '0'}
		if ms, _, _, ok = readClock(w[:], false); !ok {
			return 0, 0, nil, false
		}
		return ms, 0, b[5:], true
	}
	const colons = (':' ^ '0') * (1<<16 + 1<<40)
	v, ok := eightDigits(binary.LittleEndian.Uint64(b) ^ colons)
	h, m, s := int64(v/1e6), int64(v/1000%1000), int64(v%1000)
	if !ok || h > 24 || m > 59 || s > 59 {
		return 0, 0, nil, false
	}
	ms = h*row.MsPerHour + m*row.MsPerMinute + s*row.MsPerSecond
	b = b[8:]
	if len(b) > 0 && b[0] == '.' {
		i := 1
		for ; i < len(b) && i <= 9 && b[i]-'0' <= 9; i++ {
			nanos = nanos*10 + int64(b[i]-'0')
		}
		nanos *= int64(tens[10-i])
		ms += nanos / 1e6
		nanos %= 1e6
		b = b[i:]
	}
	if ms > row.MsPerDay || ms == row.MsPerDay && nanos > 0 {
		return 0, 0, nil, false
	}
	return ms, nanos, b, true
}

// tens are the powers of ten of an int64.
var tens = [...]uint64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18}

// stampText reads and writes timestamps. It keeps the last day, which is mostly that of the next one.
type stampText struct {
	// iso says that a T stands between date and time, and not a blank.
	iso bool
	// instant says that it is a TIMESTAMP_LTZ: the text ends with Z or an offset such as +02:00.
	instant bool
	// digits are those of the second that the type has.
	digits int

	day  [10]byte // the last date that was read or written; empty at first
	days int64
}

func newStampText(t *row.Type, iso bool) *stampText {
	return &stampText{iso: iso, instant: t.Kind() == row.KindTimestampLTZ, digits: t.Precision()}
}

// read reads all of b.
func (s *stampText) read(b []byte) (ms, nanos int64, ok bool) {
	if len(b) < 16 {
		return 0, 0, false
	}
	days := s.days
	if *(*[10]byte)(b) != s.day {
		if days, _, ok = readDate(b, !s.iso || s.instant); !ok {
			return 0, 0, false
		}
		s.day, s.days = *(*[10]byte)(b), days
	}
	if sep := b[10]; s.iso && sep|0x20 != 't' || !s.iso && sep != ' ' {
		return 0, 0, false
	}
	ms, nanos, rest, ok := readClock(b[11:], s.iso)
	if !ok {
		return 0, 0, false
	}
	ms += days * row.MsPerDay
	if s.instant {
		offset, ok := readOffset(rest)
		if !ok {
			return 0, 0, false
		}
		ms -= offset
	} else if len(rest) > 0 {
		return 0, 0, false
	}
	if s.digits != 3 || nanos != 0 {
		ms, nanos = row.TruncTimestamp(ms, nanos, s.digits)
	}
	return ms, nanos, true
}

// readOffset reads Z, +hh:mm or +hh, all of b, as ms.
func readOffset(b []byte) (ms int64, ok bool) {
	if len(b) == 1 && b[0] == 'Z' {
		return 0, true
	}
	if len(b) != 3 && (len(b) != 6 || b[3] != ':') || b[0] != '+' && b[0] != '-' {
		return 0, false
	}
	h, m := int64(b[1]-'0')*10+int64(b[2]-'0'), int64(0)
	if b[1]-'0' > 9 || b[2]-'0' > 9 || h > 18 {
		return 0, false
	}
	if len(b) == 6 {
		m = int64(b[4]-'0')*10 + int64(b[5]-'0')
		if b[4]-'0' > 9 || b[5]-'0' > 9 || m > 59 {
			return 0, false
		}
	}
	ms = h*row.MsPerHour + m*row.MsPerMinute
	if b[0] == '-' {
		ms = -ms
	}
	return ms, true
}

// example is a text that read takes.
func (s *stampText) example() string {
	text := "2024-01-31 23:59:59.999"
	if s.iso {
		text = "2024-01-31T23:59:59.999"
	}
	if s.instant {
		text += "Z"
	}
	return text
}

// append writes a timestamp with as many digits of the second as it needs.
func (s *stampText) append(dst []byte, ms, nanos int64) []byte {
	days := row.FloorDiv(ms, row.MsPerDay)
	if days != s.days || s.day[0] == 0 {
		var buf [16]byte
		text := row.AppendDate(buf[:0], days)
		if len(text) != len(s.day) {
			dst = append(dst, text...)
			return s.appendClock(dst, ms-days*row.MsPerDay, nanos)
		}
		s.day, s.days = [10]byte(text), days
	}
	dst = append(dst, s.day[:]...)
	return s.appendClock(dst, ms-days*row.MsPerDay, nanos)
}

func (s *stampText) appendClock(dst []byte, ms, nanos int64) []byte {
	sep := byte(' ')
	if s.iso {
		sep = 'T'
	}
	dst = appendClock(append(dst, sep), ms, nanos)
	if s.instant {
		dst = append(dst, 'Z')
	}
	return dst
}

// appendClock writes a time of the day with as many digits of the second as it needs.
func appendClock(dst []byte, ms, nanos int64) []byte {
	sec := uint64(ms / row.MsPerSecond)
	h, m := sec/3600, sec/60%60
	sec %= 60
	const colons = (':' ^ '0') * (1<<16 + 1<<40)
	dst = binary.LittleEndian.AppendUint64(dst, digits(h*1e6+m*1e3+sec)^colons)
	f := uint64(ms%row.MsPerSecond*1e6 + nanos)
	if f == 0 {
		return dst
	}
	dst = append(dst, '.')
	n := 9
	for f%10 == 0 {
		f /= 10
		n--
	}
	at := len(dst)
	dst = append(dst, "000000000"[:n]...)
	for i := at + n - 1; f > 0; i-- {
		dst[i] = byte('0' + f%10)
		f /= 10
	}
	return dst
}

// trimJava cuts what Java's String.trim does from both ends: blanks and control characters.
func trimJava(b []byte) []byte {
	for len(b) > 0 && b[0] <= ' ' {
		b = b[1:]
	}
	for len(b) > 0 && b[len(b)-1] <= ' ' {
		b = b[:len(b)-1]
	}
	return b
}

// readBool is true for "true" in any case and false for all else, as Java's Boolean.parseBoolean.
func readBool(b []byte) bool {
	const t = "true"
	if len(b) != len(t) {
		return false
	}
	for i, c := range b {
		if c|0x20 != t[i] {
			return false
		}
	}
	return true
}

// readDec reads a number of a DECIMAL. null says that it has too many digits in front of the point; digits behind the
// scale are rounded half up.
func readDec(b []byte, t *row.Type) (d row.Dec, null, ok bool) {
	if v, ok := readDec64(b, t.Scale()); ok {
		d = row.DecInt(v)
		return d, !d.Fits(t.Precision()), true
	}
	// With the most digits ParseDec is strict.
	d, err := row.ParseDec(b, row.MaxPrecision, t.Scale())
	if err == row.ErrOverflow { //nolint:errorlint // is never wrapped
		return row.Dec{}, true, true
	}
	return d, !d.Fits(t.Precision()), err == nil
}

// readDec64 reads the usual numbers: a minus or none, up to 18 digits, not more than scale behind a point.
func readDec64(b []byte, scale int) (v int64, ok bool) {
	neg := len(b) > 0 && b[0] == '-'
	if neg {
		b = b[1:]
	}
	if len(b) == 0 || len(b) > 19 || b[0]-'0' > 9 {
		return 0, false
	}
	frac := -1
	for _, c := range b {
		if c == '.' && frac < 0 {
			frac = 0
			continue
		}
		if c -= '0'; c > 9 {
			return 0, false
		}
		v = v*10 + int64(c)
		if frac >= 0 {
			frac++
		}
	}
	digits := len(b)
	if frac >= 0 {
		digits--
	} else {
		frac = 0
	}
	if frac > scale || digits+scale-frac > 18 {
		return 0, false
	}
	v *= int64(tens[scale-frac])
	if neg {
		v = -v
	}
	return v, true
}

// decimalOf is the number that words of a DECIMAL hold.
func decimalOf(t *row.Type, x, y uint64) row.Dec {
	if t.Precision() <= 18 {
		return row.DecInt(int64(x))
	}
	return row.Dec{Lo: x, Hi: int64(y)}
}

// appendShortDecimal writes a number as Java prints a BigDecimal without zeros at its end: 1.5, 1E+2, 1E-7.
func appendShortDecimal(dst []byte, d row.Dec, scale int) []byte {
	if d.Sign() == 0 {
		return append(dst, '0')
	}
	if d.Sign() < 0 {
		dst = append(dst, '-')
		d = d.Neg()
	}
	var buf [48]byte
	text := row.AppendDec(buf[:0], d, 0)
	for text[len(text)-1] == '0' {
		text = text[:len(text)-1]
		scale--
	}
	exp := len(text) - 1 - scale
	switch {
	case scale == 0:
		return append(dst, text...)
	case scale > 0 && exp >= 0:
		dst = append(dst, text[:exp+1]...)
		return append(append(dst, '.'), text[exp+1:]...)
	case scale > 0 && exp >= -6:
		dst = append(dst, "0.000000"[:1-exp]...)
		return append(dst, text...)
	}
	dst = append(dst, text[0])
	if len(text) > 1 {
		dst = append(append(dst, '.'), text[1:]...)
	}
	dst = append(dst, 'E')
	if exp > 0 {
		dst = append(dst, '+')
	}
	return strconv.AppendInt(dst, int64(exp), 10)
}
