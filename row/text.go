package row

import (
	"bytes"
	"errors"
	"math"
	"math/bits"
	"strconv"
	"unicode/utf8"
	"unsafe"
)

// What is wrong with a text that does not read as a value. The errors are fixed: a TRY_CAST costs no allocation. Who
// reports them adds the text and the type, as Flink does: "For input string: '4x'. Invalid character found."
var (
	ErrEmpty    = errors.New("Input is empty.")                                    //nolint:revive,staticcheck // Flink's words, put behind the text
	ErrSign     = errors.New("Input has only positive or negative symbol.")        //nolint:revive,staticcheck // Flink's words, put behind the text
	ErrSyntax   = errors.New("Invalid character found.")                           //nolint:revive,staticcheck // Flink's words, put behind the text
	ErrOverflow = errors.New("Overflow.")                                          //nolint:revive,staticcheck // Flink's words, put behind the text
	ErrDate     = errors.New("it is no date such as 2024-01-31")                   // CAST to DATE
	ErrTime     = errors.New("it is no time such as 23:59:59")                     // CAST to TIME
	ErrStamp    = errors.New("it is no timestamp such as 2024-01-31 23:59:59.999") // CAST to TIMESTAMP
	ErrBoolean  = errors.New("it is none of true, t, yes, y, 1, false, f, no, n, 0")
)

// text is b as a string that is not kept.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// TrimSpaces cuts blanks (0x20 only) from both ends, as the casts from text do.
func TrimSpaces(b []byte) []byte {
	for len(b) > 0 && b[0] == ' ' {
		b = b[1:]
	}
	for len(b) > 0 && b[len(b)-1] == ' ' {
		b = b[:len(b)-1]
	}
	return b
}

// ParseInt reads an integer of 8, 16, 32 or 64 bits as CAST does: blanks around it, a sign, digits, and a fraction, which
// is cut off ("4.9" is 4; there is no exponent).
func ParseInt(b []byte, size int) (int64, error) {
	b = TrimSpaces(b)
	if len(b) == 0 {
		return 0, ErrEmpty
	}
	negative := b[0] == '-'
	if negative || b[0] == '+' {
		b = b[1:]
		if len(b) == 0 {
			return 0, ErrSign
		}
	}
	limit := uint64(1) << uint(size-1) // the magnitude of the least number
	if !negative {
		limit--
	}
	var n uint64
	for i, c := range b {
		if c == '.' {
			for _, c := range b[i+1:] {
				if c-'0' > 9 {
					return 0, ErrSyntax
				}
			}
			break
		}
		d := uint64(c - '0')
		if d > 9 {
			return 0, ErrSyntax
		}
		if n > (limit-d)/10 {
			return 0, ErrOverflow
		}
		n = n*10 + d
	}
	if negative {
		return -int64(n), nil
	}
	return int64(n), nil
}

// ParseDouble reads a DOUBLE (size 64) or FLOAT (size 32, rounded to a float32) as CAST and Java's parseDouble do: blanks
// around it, an exponent, NaN, Infinity, hexadecimal numbers, a d or f at the end. Too large numbers are infinite.
func ParseDouble(b []byte, size int) (float64, error) {
	for len(b) > 0 && b[0] <= ' ' {
		b = b[1:]
	}
	for len(b) > 0 && b[len(b)-1] <= ' ' {
		b = b[:len(b)-1]
	}
	if len(b) == 0 {
		return 0, ErrEmpty
	}
	s := b
	if s[0] == '-' || s[0] == '+' {
		s = s[1:]
	}
	switch text(s) {
	case "NaN":
		return math.NaN(), nil
	case "Infinity":
		if b[0] == '-' {
			return math.Inf(-1), nil
		}
		return math.Inf(1), nil
	}
	if len(s) == 0 || s[0] != '.' && s[0]-'0' > 9 {
		return 0, ErrSyntax // what strconv takes beyond Java: inf, nan
	}
	hex := len(s) > 1 && s[0] == '0' && s[1]|0x20 == 'x'
	switch b[len(b)-1] | 0x20 {
	case 'd', 'f':
		if !hex || hasExponent(b) {
			b = b[:len(b)-1]
		}
	}
	for _, c := range b {
		if c == '_' {
			return 0, ErrSyntax
		}
	}
	v, err := strconv.ParseFloat(text(b), size)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, ErrSyntax
	}
	return v, nil
}

func hasExponent(b []byte) bool {
	for _, c := range b {
		if c|0x20 == 'p' {
			return true
		}
	}
	return false
}

// ParseDec reads the unscaled number of a DECIMAL(digits, scale) as CAST does: blanks around it, a sign, digits with a
// point, an exponent; digits beyond the scale are rounded half up.
//
// Flink has two readers. The strict one is for more than 18 digits or a text of more than 18 bytes. The other counts
// zeros in front as digits ("0.5" is too long for DECIMAL(1, 1)), takes one odd character behind the number ("1x" is 1,
// "5e" is 5), and an odd character alone as 0; so does this.
func ParseDec(b []byte, digits, scale int) (Dec, error) {
	b = TrimSpaces(b)
	if len(b) == 0 {
		return Dec{}, ErrEmpty
	}
	lax := digits <= 18 && len(b) <= 18
	negative := b[0] == '-'
	if negative || b[0] == '+' {
		b = b[1:]
		if len(b) == 0 {
			return Dec{}, ErrSign
		}
	}
	// The number is n * 10^exp; digits beyond 38 are counted, and the first of them decides the rounding.
	var n u128
	exp, count, seen, point := 0, 0, 0, false
	roundUp := false
	for len(b) > 0 {
		c := b[0]
		if c == '.' {
			if point {
				return Dec{}, ErrSyntax
			}
			point = true
			b = b[1:]
			continue
		}
		d := c - '0'
		if d > 9 {
			break
		}
		b = b[1:]
		seen++
		if point {
			exp--
		}
		if count >= 38 {
			if count == 38 {
				roundUp = d >= 5
			}
			count++
			exp++
			continue
		}
		if count > 0 || d > 0 {
			count++
		}
		hi, lo := bits.Mul64(n.lo, 10)
		lo, carry := bits.Add64(lo, uint64(d), 0)
		n = u128{n.hi*10 + hi + carry, lo}
	}
	if lax {
		e, err := laxTail(b)
		if err != nil {
			return Dec{}, err
		}
		exp += e
		if seen+exp+scale > digits {
			return Dec{}, ErrOverflow
		}
	} else {
		if seen == 0 {
			return Dec{}, ErrSyntax
		}
		if len(b) > 0 {
			if b[0]|0x20 != 'e' {
				return Dec{}, ErrSyntax
			}
			e, err := strconv.Atoi(text(b[1:]))
			if errors.Is(err, strconv.ErrRange) || err == nil && (e > 1<<30 || e < -1<<30) {
				return Dec{}, ErrOverflow
			}
			if err != nil {
				return Dec{}, ErrSyntax
			}
			exp += e
		}
	}
	if n == (u128{}) {
		return Dec{}, nil
	}
	drop := -exp - scale
	x := u256{n.lo, n.hi}
	switch {
	case drop < -38:
		return Dec{}, ErrOverflow
	case drop < 0:
		x = mulU128(n, pow10[-drop])
		drop = 0
	case drop == 0 && roundUp:
		x = x.add(u256{1})
	case drop > 39:
		return Dec{}, nil
	}
	d, ok := x.round(negative, drop, digits)
	if !ok {
		return Dec{}, ErrOverflow
	}
	return d, nil
}

// laxTail reads what is behind the digits of a short text: an exponent, and one odd character.
func laxTail(b []byte) (exp int, err error) {
	if len(b) == 0 {
		return 0, nil
	}
	c := b[0]
	b = b[1:]
	if c|0x20 == 'e' && len(b) > 0 {
		negative := b[0] == '-'
		if negative || b[0] == '+' {
			b = b[1:]
			if len(b) == 0 {
				return 0, ErrSyntax
			}
		}
		for len(b) > 0 {
			d := b[0] - '0'
			b = b[1:]
			if d > 9 {
				break
			}
			exp = min(exp*10+int(d), 1<<20)
		}
		if negative {
			exp = -exp
		}
	}
	if len(TrimSpaces(b)) > 0 {
		return 0, ErrSyntax
	}
	return exp, nil
}

// ParseBool reads a BOOLEAN as CAST does: true, t, yes, y, 1, false, f, no, n, 0, in any case, without blanks.
func ParseBool(b []byte) (bool, error) {
	if len(b) <= 5 {
		var low [5]byte
		for i, c := range b {
			if c >= 'A' && c <= 'Z' {
				c |= 0x20
			}
			low[i] = c
		}
		switch string(low[:len(b)]) {
		case "true", "t", "yes", "y", "1":
			return true, nil
		case "false", "f", "no", "n", "0":
			return false, nil
		}
	}
	return false, ErrBoolean
}

// AppendBool appends TRUE or FALSE.
func AppendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, "TRUE"...)
	}
	return append(dst, "FALSE"...)
}

// AppendInt appends an integer.
func AppendInt(dst []byte, v int64) []byte { return strconv.AppendInt(dst, v, 10) }

// AppendDouble appends a DOUBLE as Java prints it: the shortest digits that read back as v, with one digit behind the
// point at least, and an exponent below 0.001 and from 10,000,000: 1.0E7, NaN, -Infinity.
func AppendDouble(dst []byte, v float64) []byte { return appendJava(dst, v, 64) }

// AppendFloat appends a FLOAT as Java prints it, see AppendDouble.
func AppendFloat(dst []byte, v float64) []byte { return appendJava(dst, v, 32) }

func appendJava(dst []byte, v float64, size int) []byte {
	switch {
	case math.IsNaN(v):
		return append(dst, "NaN"...)
	case math.IsInf(v, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(v, -1):
		return append(dst, "-Infinity"...)
	case v == 0:
		if math.Signbit(v) {
			dst = append(dst, '-')
		}
		return append(dst, "0.0"...)
	}
	a := math.Abs(v)
	if a >= 1e-3 && a < 1e7 {
		at := len(dst)
		dst = strconv.AppendFloat(dst, v, 'f', -1, size)
		for _, c := range dst[at:] {
			if c == '.' {
				return dst
			}
		}
		return append(dst, ".0"...)
	}
	// 1e+07 and 1.5e-10 become 1.0E7 and 1.5E-10.
	var buf [32]byte
	s := strconv.AppendFloat(buf[:0], v, 'e', -1, size)
	e := len(s) - 1
	for s[e] != 'e' {
		e--
	}
	dst = append(dst, s[:e]...)
	if s[e-1] != '.' && (e < 3 || s[1] != '.' && s[2] != '.') {
		dst = append(dst, ".0"...)
	}
	dst = append(dst, 'E')
	if s[e+1] == '-' {
		dst = append(dst, '-')
	}
	s = s[e+2:]
	for len(s) > 1 && s[0] == '0' {
		s = s[1:]
	}
	return append(dst, s...)
}

// AppendDec appends the number d of that scale with all digits of the scale, without exponent: 1.50, -0.05.
func AppendDec(dst []byte, d Dec, scale int) []byte {
	if v, ok := d.Int64(); ok && scale <= 18 {
		return AppendDec64(dst, v, scale)
	}
	if d.Hi < 0 {
		dst = append(dst, '-')
	}
	q, r := (u256{d.magnitude().lo, d.magnitude().hi}).divmod(u128{0, 1e19})
	var buf [48]byte
	i := len(buf)
	low := r.lo
	for range 19 {
		i--
		buf[i] = byte('0' + low%10)
		low /= 10
	}
	high := q
	for high[0]|high[1] != 0 {
		var rem u128
		high, rem = high.divmod(u128{0, 10})
		i--
		buf[i] = byte('0' + rem.lo)
	}
	for len(buf)-i > scale+1 && buf[i] == '0' {
		i++
	}
	for len(buf)-i < scale+1 {
		i--
		buf[i] = '0'
	}
	dst = append(dst, buf[i:len(buf)-scale]...)
	if scale > 0 {
		dst = append(dst, '.')
		dst = append(dst, buf[len(buf)-scale:]...)
	}
	return dst
}

// AppendDec64 is AppendDec for a number of 64 bits; scale is 0 to 18.
func AppendDec64(dst []byte, v int64, scale int) []byte {
	u := uint64(v)
	if v < 0 {
		dst = append(dst, '-')
		u = -u
	}
	if scale == 0 {
		return strconv.AppendUint(dst, u, 10)
	}
	p := pow10[scale].lo
	dst = strconv.AppendUint(dst, u/p, 10)
	dst = append(dst, '.')
	return appendDigits(dst, u%p, scale)
}

// appendDigits appends v with n digits.
func appendDigits(dst []byte, v uint64, n int) []byte {
	at := len(dst)
	for range n {
		dst = append(dst, '0')
	}
	for i := len(dst) - 1; v > 0 && i >= at; i-- {
		dst[i] = byte('0' + v%10)
		v /= 10
	}
	return dst
}

// ToDouble is the DOUBLE next to d of that scale.
func (d Dec) ToDouble(scale int) float64 {
	if v, ok := d.Int64(); ok && scale <= 22 && v > -1<<53 && v < 1<<53 {
		return float64(v) / pow10Float[scale]
	}
	var buf [48]byte
	v, _ := strconv.ParseFloat(text(AppendDec(buf[:0], d, scale)), 64)
	return v
}

var pow10Float = [23]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// DecOfDouble is a DOUBLE as a DECIMAL(digits, scale): the digits that Java prints, rounded half up. ok is false if it
// does not fit, also for NaN and the infinities.
func DecOfDouble(v float64, digits, scale int) (d Dec, ok bool) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return Dec{}, false
	}
	var buf [32]byte
	d, err := ParseDec(strconv.AppendFloat(buf[:0], v, 'e', -1, 64), digits, scale)
	return d, err == nil
}

// DoubleToInt is Java's (and CAST's) conversion of a number to an integer of 32 or 64 bits: towards zero, the nearest one
// if it does not fit, NaN is 0. To TINYINT and SMALLINT CAST goes by 32 bits and then wraps.
func DoubleToInt(v float64, size int) int64 {
	lo, hi := int64(math.MinInt64), int64(math.MaxInt64)
	if size <= 32 {
		lo, hi = math.MinInt32, math.MaxInt32
	}
	switch {
	case v != v:
		return 0
	case v >= float64(hi):
		return hi
	case v <= float64(lo):
		return lo
	}
	return int64(v)
}

// AppendDate appends a date, days since 1970-01-01: 2024-01-31.
func AppendDate(dst []byte, days int64) []byte {
	y, m, d := CivilOf(days)
	dst = appendYear(dst, y)
	return append(dst, '-', byte('0'+m/10), byte('0'+m%10), '-', byte('0'+d/10), byte('0'+d%10))
}

func appendYear(dst []byte, y int64) []byte {
	if y < 0 {
		dst = append(dst, '-')
		y = -y
	}
	if y > 9999 {
		return strconv.AppendInt(dst, y, 10)
	}
	return append(dst, byte('0'+y/1000), byte('0'+y/100%10), byte('0'+y/10%10), byte('0'+y%10))
}

// AppendTime appends a time, ms of the day, with that many digits of the second: 23:59:59, 23:59:59.120.
func AppendTime(dst []byte, ms int64, digits int) []byte {
	return appendClock(dst, ms, 0, digits)
}

// AppendTimestamp appends a local time, ms since 1970-01-01 and the nanoseconds in the ms, with that many digits of the
// second: 2024-01-31 23:59:59.999. A TIMESTAMP_LTZ is made local first ([Zone.Local]).
func AppendTimestamp(dst []byte, ms, nanos int64, digits int) []byte {
	days := FloorDiv(ms, MsPerDay)
	dst = append(AppendDate(dst, days), ' ')
	return appendClock(dst, ms-days*MsPerDay, nanos, digits)
}

func appendClock(dst []byte, ms, nanos int64, digits int) []byte {
	s := ms / MsPerSecond
	h, m := s/3600, s/60%60
	s %= 60
	dst = append(dst, byte('0'+h/10), byte('0'+h%10), ':', byte('0'+m/10), byte('0'+m%10), ':', byte('0'+s/10), byte('0'+s%10))
	if digits == 0 {
		return dst
	}
	dst = append(dst, '.')
	f := uint64(ms%MsPerSecond*1e6 + nanos)
	return appendDigits(dst, f/pow10[9-digits].lo, digits)
}

// AppendIntervalDay appends an interval of ms as CAST does: +1 02:03:04.500.
func AppendIntervalDay(dst []byte, ms int64) []byte {
	sign := byte('+')
	u := uint64(ms)
	if ms < 0 {
		sign = '-'
		u = -u
	}
	dst = strconv.AppendUint(append(dst, sign), u/MsPerDay, 10)
	return appendClock(append(dst, ' '), int64(u%MsPerDay), 0, 3)
}

// AppendIntervalMonth appends an interval of months as CAST does: +1-03.
func AppendIntervalMonth(dst []byte, months int64) []byte {
	sign := byte('+')
	if months < 0 {
		sign, months = '-', -months
	}
	dst = strconv.AppendInt(append(dst, sign), months/12, 10)
	return append(dst, '-', byte('0'+months%12/10), byte('0'+months%12%10))
}

// ParseDate reads a date as CAST does: year, year-month or year-month-day with any number of digits and blanks around it;
// what is behind a blank (a time) is ignored. Years are 0 to 9999; the day must be there in that month.
func ParseDate(b []byte) (days int64, err error) {
	b = TrimSpaces(b)
	if i := bytes.IndexByte(b, ' '); i > 0 {
		b = b[:i]
	}
	var n [3]int64
	n[1], n[2] = 1, 1
	for i := 0; ; i++ {
		part, rest := b, []byte(nil)
		for j, c := range b {
			if c == '-' && i < 2 {
				part, rest = b[:j], b[j+1:]
				break
			}
		}
		v, ok := plainInt(part)
		if !ok {
			return 0, ErrDate
		}
		n[i] = v
		if len(part) == len(b) {
			break
		}
		b = rest
	}
	if n[0] < 0 || n[0] > 9999 || n[1] < 1 || n[1] > 12 || n[2] < 1 || n[2] > int64(DaysInMonth(n[0], int(n[1]))) {
		return 0, ErrDate
	}
	return DaysOf(n[0], int(n[1]), int(n[2])), nil
}

func plainInt(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > 9 {
		return 0, false
	}
	var n int64
	for _, c := range b {
		if c-'0' > 9 {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// ParseTime reads a time as CAST does: hh[:mm[:ss[.fraction]]] with one or two digits each and blanks around it. The
// result is ms of the day.
func ParseTime(b []byte) (ms int64, err error) {
	b = TrimSpaces(b)
	limit, unit := 23, int64(MsPerHour)
	for {
		n, rest, ok := digits12(b)
		if !ok || n > limit {
			return 0, ErrTime
		}
		ms += int64(n) * unit
		b = rest
		if len(b) == 0 {
			return ms, nil
		}
		if unit == MsPerSecond {
			break
		}
		if b[0] != ':' {
			return 0, ErrTime
		}
		b = b[1:]
		limit, unit = 59, unit/60
	}
	nanos, b, ok := fraction(b)
	if !ok || len(b) > 0 {
		return 0, ErrTime
	}
	return ms + nanos/1e6, nil
}

// ParseTimestamp reads a timestamp as CAST and TO_TIMESTAMP do: yyyy-MM-dd[ HH:mm:ss[.fraction]], one or two digits each
// but four for the year, a fraction of up to nine digits. A day up to 31 that the month does not have becomes its last
// one; 24:00:00 is the start of the next day. What it returns is local: ms since 1970-01-01 00:00:00 and the nanoseconds
// in the ms. Digits beyond the precision of a type are the caller's to cut off ([TruncTimestamp]).
func ParseTimestamp(b []byte) (ms, nanos int64, err error) {
	if len(b) < 6 || b[4] != '-' {
		return 0, 0, ErrStamp
	}
	y, ok := plainInt(b[:4])
	if !ok || y < 1 {
		return 0, 0, ErrStamp
	}
	m, b, ok := digits12(b[5:])
	if !ok || m < 1 || m > 12 || len(b) == 0 || b[0] != '-' {
		return 0, 0, ErrStamp
	}
	d, b, ok := digits12(b[1:])
	if !ok || d < 1 || d > 31 {
		return 0, 0, ErrStamp
	}
	ms = DaysOf(y, m, min(d, DaysInMonth(y, m))) * MsPerDay
	if len(b) == 0 {
		return ms, 0, nil
	}
	if b[0] != ' ' {
		return 0, 0, ErrStamp
	}
	h, b, ok := digits12(b[1:])
	if !ok || len(b) == 0 || b[0] != ':' {
		return 0, 0, ErrStamp
	}
	mi, b, ok := digits12(b[1:])
	if !ok || mi > 59 || len(b) == 0 || b[0] != ':' {
		return 0, 0, ErrStamp
	}
	s, b, ok := digits12(b[1:])
	if !ok || s > 59 {
		return 0, 0, ErrStamp
	}
	if len(b) > 0 {
		if nanos, b, ok = fraction(b); !ok || len(b) > 0 {
			return 0, 0, ErrStamp
		}
	}
	if h > 24 || h == 24 && (mi != 0 || s != 0 || nanos != 0) {
		return 0, 0, ErrStamp
	}
	ms += int64(h)*MsPerHour + int64(mi)*MsPerMinute + int64(s)*MsPerSecond + nanos/1e6
	return ms, nanos % 1e6, nil
}

// digits12 reads one or two digits.
func digits12(b []byte) (n int, rest []byte, ok bool) {
	if len(b) == 0 || b[0]-'0' > 9 {
		return 0, nil, false
	}
	n = int(b[0] - '0')
	if len(b) > 1 && b[1]-'0' <= 9 {
		return n*10 + int(b[1]-'0'), b[2:], true
	}
	return n, b[1:], true
}

// fraction reads a point and up to nine digits.
func fraction(b []byte) (nanos int64, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != '.' {
		return 0, nil, false
	}
	i := 1
	for ; i < len(b) && i <= 9 && b[i]-'0' <= 9; i++ {
		nanos = nanos*10 + int64(b[i]-'0')
	}
	for j := i; j <= 9; j++ {
		nanos *= 10
	}
	return nanos, b[i:], true
}

// TruncTimestamp cuts a timestamp to that many digits of the second, 0 to 9, towards the past.
func TruncTimestamp(ms, nanos int64, digits int) (int64, int64) {
	switch {
	case digits >= 9:
		return ms, nanos
	case digits > 3:
		p := int64(pow10[9-digits].lo)
		return ms, nanos / p * p
	}
	p := int64(pow10[3-digits].lo)
	return FloorDiv(ms, p) * p, 0
}

// CharCount is the code points of a text.
func CharCount(b []byte) int { return utf8.RuneCount(b) }
