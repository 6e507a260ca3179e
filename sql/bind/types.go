package bind

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
)

// typ gives a written type; nil after an error.
func (b *binder) typ(t ast.Type) *row.Type {
	switch t := t.(type) {
	case *ast.SimpleType:
		return notNull(b.simpleType(t), t.NotNull)
	case *ast.ArrayType:
		if e := b.typ(t.Elem); e != nil {
			return notNull(row.Array(e), t.NotNull)
		}
	case *ast.MultisetType:
		if e := b.typ(t.Elem); e != nil {
			return notNull(row.Multiset(e), t.NotNull)
		}
	case *ast.MapType:
		k, v := b.typ(t.Key), b.typ(t.Value)
		if k != nil && v != nil {
			return notNull(row.Map(k, v), t.NotNull)
		}
	case *ast.RowType:
		fields := make([]row.Field, 0, len(t.Fields))
		seen := map[string]bool{}
		for _, f := range t.Fields {
			if seen[f.Name.Name] {
				b.errorf(f.Name.Span, "E2004", "field %q is there twice", f.Name.Name)
				return nil
			}
			seen[f.Name.Name] = true
			ft := b.typ(f.Type)
			if ft == nil {
				return nil
			}
			fields = append(fields, row.Field{Name: f.Name.Name, Type: ft})
		}
		return notNull(row.RowOf(fields...), t.NotNull)
	case *ast.IntervalType:
		if t.Unit.From == "YEAR" || t.Unit.From == "MONTH" || t.Unit.From == "QUARTER" {
			return notNull(row.IntervalMonth(), t.NotNull)
		}
		return notNull(row.IntervalDay(), t.NotNull)
	case *ast.NamedType:
		name := nameText(t.Name)
		b.errorf(t.Span, "E2004", "type %q is not known", name).WithHint("%s", nearest(strings.ToUpper(name), typeNames, ""))
	}
	return nil
}

var typeNames = []string{"BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "CHAR", "VARCHAR",
	"STRING", "BINARY", "VARBINARY", "BYTES", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ", "ARRAY", "MAP", "MULTISET", "ROW"}

func notNull(t *row.Type, yes bool) *row.Type {
	if t == nil || !yes {
		return t
	}
	return t.NotNull()
}

func nameText(n ast.Name) string {
	parts := make([]string, len(n.Parts))
	for i, p := range n.Parts {
		parts[i] = p.Name
	}
	return strings.Join(parts, ".")
}

func (b *binder) simpleType(t *ast.SimpleType) *row.Type {
	digits := func(deflt int) (int, bool) {
		switch {
		case t.Precision < 0:
			return deflt, true
		case t.Precision > 9:
			b.errorf(t.Span, "E2004", "%s has 0 to 9 digits, not %d", t.Name, t.Precision)
			return 0, false
		}
		return t.Precision, true
	}
	length := func(deflt int) (int, bool) {
		switch {
		case t.Precision < 0:
			return deflt, true
		case t.Precision == 0:
			b.errorf(t.Span, "E2004", "the length of %s is 1 at least", t.Name)
			return 0, false
		}
		return min(t.Precision, row.MaxLength), true
	}
	made := func(f func(int) *row.Type, n int, ok bool) *row.Type {
		if !ok {
			return nil
		}
		return f(n)
	}
	switch t.Name {
	case "BOOLEAN":
		return row.Boolean()
	case "TINYINT":
		return row.TinyInt()
	case "SMALLINT":
		return row.SmallInt()
	case "INT":
		return row.Int()
	case "BIGINT":
		return row.BigInt()
	case "FLOAT":
		return row.Float()
	case "DOUBLE":
		return row.Double()
	case "DECIMAL":
		p, s := 10, 0
		if t.Precision >= 0 {
			// As in Flink, more than 38 digits are 38.
			p = min(t.Precision, row.MaxPrecision)
		}
		if t.Scale >= 0 {
			s = t.Scale
		}
		if p < 1 || s > p {
			b.errorf(t.Span, "E2004", "DECIMAL(%d, %d) is not possible: precision 1 to 38, scale 0 to precision", p, s)
			return nil
		}
		return row.Decimal(p, s)
	case "CHAR":
		n, ok := length(1)
		return made(row.Char, n, ok)
	case "VARCHAR":
		n, ok := length(1)
		return made(row.VarChar, n, ok)
	case "STRING":
		return row.String()
	case "BINARY":
		n, ok := length(1)
		return made(row.Binary, n, ok)
	case "VARBINARY":
		n, ok := length(1)
		return made(row.VarBinary, n, ok)
	case "BYTES":
		return row.Bytes()
	case "DATE":
		return row.Date()
	case "TIME":
		n, ok := digits(0)
		return made(row.Time, n, ok)
	case "TIMESTAMP":
		n, ok := digits(6)
		return made(row.Timestamp, n, ok)
	case "TIMESTAMP_LTZ":
		n, ok := digits(6)
		return made(row.TimestampLTZ, n, ok)
	}
	b.errorf(t.Span, "E2004", "type %s is not supported", t.Name)
	return nil
}

// literal makes a constant that is never NULL.
func (b *binder) literal(t *row.Type, c fn.Const, text string, at ast.Span) *rel.Literal {
	return rel.NewLiteral(t.NotNull(), c, text, b.place(at))
}

// word is a CHAR literal for a function word of special syntax.
func (b *binder) word(w string, at ast.Span) rel.Expr { return b.text(w, "", at) }

func (b *binder) text(s, env string, at ast.Span) rel.Expr {
	n := utf8.RuneCountInString(s)
	for _, c := range s { // the length counts UTF-16 units, as in Flink
		if c > 0xFFFF {
			n++
		}
	}
	return b.literal(row.Char(n), fn.Const{B: []byte(s)}, env, at)
}

// null is a NULL of a type.
func (b *binder) null(t *row.Type, at ast.Span) rel.Expr {
	return rel.NewLiteral(t.Nullable(true), fn.Const{Null: true}, "", b.place(at))
}

func (b *binder) truth(v bool, at ast.Span) rel.Expr {
	var x uint64
	if v {
		x = 1
	}
	return b.literal(row.Boolean(), fn.Const{X: x}, "", at)
}

// number binds a number, with its sign: -2147483648 is an INT.
func (b *binder) number(n *ast.Number, negative bool, at ast.Span) rel.Expr {
	text := n.Text
	if negative {
		text = "-" + text
	}
	show := text
	if n.Env != "" {
		show = n.Env
	}
	switch n.Kind {
	case ast.IntNumber:
		v, err := strconv.ParseInt(text, 10, 64)
		switch {
		case err != nil:
			b.errorf(at, "E2005", "number %s is out of the range of BIGINT", show).WithHint("as a DECIMAL: %s.0", show)
			return b.bad(at)
		case v < math.MinInt32 || v > math.MaxInt32:
			return b.literal(row.BigInt(), fn.Const{X: uint64(v)}, n.Env, at)
		}
		return b.literal(row.Int(), fn.Const{X: uint64(v)}, n.Env, at)
	case ast.FloatNumber:
		v, err := strconv.ParseFloat(text, 64)
		if err != nil && !math.IsInf(v, 0) {
			b.errorf(at, "E2005", "%s is no number", show)
			return b.bad(at)
		}
		if v == 0 {
			v = 0 // -0e0 is 0.0, as in Flink: the sign belongs to an exact number
		}
		return b.literal(row.Double(), fn.Const{X: math.Float64bits(v)}, show, at)
	}
	whole, frac, _ := strings.Cut(n.Text, ".")
	digits, ok := new(big.Int).SetString(whole+frac, 10)
	p := len(whole) + len(frac)
	if !ok || p > row.MaxPrecision && len(digits.String()) > row.MaxPrecision {
		b.errorf(at, "E2005", "number %s has more than 38 digits", show)
		return b.bad(at)
	}
	p = min(max(p, 1), row.MaxPrecision)
	if negative {
		digits.Neg(digits)
	}
	return b.literal(row.Decimal(p, len(frac)), decConst(digits, p), show, at)
}

func decConst(v *big.Int, precision int) fn.Const {
	if precision <= 18 {
		return fn.Const{X: uint64(v.Int64())}
	}
	a := new(big.Int).Abs(v)
	mask := new(big.Int).SetUint64(math.MaxUint64)
	d := row.Dec{Lo: new(big.Int).And(a, mask).Uint64(), Hi: int64(new(big.Int).Rsh(a, 64).Uint64())}
	if v.Sign() < 0 {
		d = d.Neg()
	}
	return fn.Const{X: d.Lo, Y: uint64(d.Hi)}
}

// timeLiteral binds DATE '..', TIME '..' and TIMESTAMP '..'. As in Flink each part has two digits at most, the year four; a
// TIMESTAMP may be a day alone.
func (b *binder) timeLiteral(t *ast.Time) rel.Expr {
	s := strings.TrimSpace(t.Text.Value)
	fail := func(what, form string) rel.Expr {
		show := "'" + t.Text.Value + "'"
		if t.Text.Env != "" {
			show = t.Text.Env
		}
		b.errorf(t.Span, "E2005", "%s literal %s does not have the form '%s', or there is no such day or time", what, show, form)
		return b.bad(t.Span)
	}
	switch t.Kind {
	case ast.DateLiteral:
		if d, ok := literalDate(s); ok {
			return b.literal(row.Date(), fn.Const{X: uint64(d)}, "", t.Span)
		}
		return fail("DATE", "2024-01-31")
	case ast.TimeLiteral:
		// As in Flink, the fraction of a second is dropped.
		if ms, _, _, ok := literalClock(s); ok {
			return b.literal(row.Time(0), fn.Const{X: uint64(ms - ms%1000)}, "", t.Span)
		}
		return fail("TIME", "23:59:59")
	}
	day, clock, ok := strings.Cut(s, " ")
	if !ok {
		clock, ok = "00:00:00", true
	}
	d, okDay := literalDate(day)
	ms, nanos, digits, okTime := literalClock(clock)
	if !ok || !okDay || !okTime {
		return fail("TIMESTAMP", "2024-01-31 23:59:59.999")
	}
	typ := row.Timestamp(digits)
	if t.Kind == ast.TimestampLTZLiteral {
		typ = row.TimestampLTZ(digits)
		ms = b.instant(d*86400000 + ms)
		return b.literal(typ, fn.Const{X: uint64(ms), Y: uint64(nanos)}, "", t.Span)
	}
	return b.literal(typ, fn.Const{X: uint64(d*86400000 + ms), Y: uint64(nanos)}, "", t.Span)
}

// instant is the time in UTC of a local time in the zone of the session.
func (b *binder) instant(local int64) int64 {
	z, err := row.LoadZone(b.session.Config["table.local-time-zone"])
	if err != nil {
		return local
	}
	return z.Instant(local)
}

func literalDate(s string) (days int64, ok bool) {
	p := strings.Split(s, "-")
	if len(p) != 3 || len(p[0]) > 4 || len(p[1]) > 2 || len(p[2]) > 2 {
		return 0, false
	}
	y, ok1 := plain(p[0])
	m, ok2 := plain(p[1])
	d, ok3 := plain(p[2])
	if !ok1 || !ok2 || !ok3 || m < 1 || m > 12 || d < 1 || d > row.DaysInMonth(int64(y), m) {
		return 0, false
	}
	return row.DaysOf(int64(y), m, d), true
}

// literalClock reads 12:34:56.789: ms of the day, nanoseconds in that ms, digits of the fraction.
func literalClock(s string) (ms, nanos int64, digits int, ok bool) {
	s, frac, dot := strings.Cut(s, ".")
	p := strings.Split(s, ":")
	if len(p) != 3 || len(p[0]) > 2 || len(p[1]) > 2 || len(p[2]) > 2 || dot && frac == "" || len(frac) > 9 {
		return 0, 0, 0, false
	}
	h, ok1 := plain(p[0])
	m, ok2 := plain(p[1])
	sec, ok3 := plain(p[2])
	f, ok4 := plain((frac + "000000000")[:9])
	if !ok1 || !ok2 || !ok3 || !ok4 || h > 23 || m > 59 || sec > 59 {
		return 0, 0, 0, false
	}
	return int64(h*3600+m*60+sec)*1000 + int64(f/1000000), int64(f % 1000000), len(frac), true
}

// plain reads digits alone.
func plain(s string) (int, bool) {
	if s == "" || len(s) > 18 {
		return 0, false
	}
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int(s[i]-'0')
	}
	return n, true
}

// interval binds INTERVAL '..' unit.
func (b *binder) interval(i *ast.Interval) rel.Expr {
	v, months, ok := intervalValue(strings.TrimSpace(i.Text.Value), i.Unit)
	if !ok {
		show := "'" + i.Text.Value + "'"
		if i.Text.Env != "" {
			show = i.Text.Env
		}
		unit := i.Unit.From
		if i.Unit.To != "" {
			unit += " TO " + i.Unit.To
		}
		b.errorf(i.Span, "E2005", "%s is no interval of %s", show, unit)
		return b.bad(i.Span)
	}
	if i.Negative {
		v = -v
	}
	t := row.IntervalDay()
	if months {
		t = row.IntervalMonth()
	}
	return b.literal(t, fn.Const{X: uint64(v)}, "", i.Span)
}

var unitOrder = []string{"YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"}

var unitSize = map[string]int64{"YEAR": 12, "QUARTER": 3, "MONTH": 1, "WEEK": 7 * 86400000, "DAY": 86400000, "HOUR": 3600000,
	"MINUTE": 60000, "SECOND": 1000}

// intervalValue reads the text of an interval: ms, or months.
func intervalValue(s string, u ast.IntervalUnit) (v int64, months, ok bool) {
	negative := false
	if s != "" && (s[0] == '-' || s[0] == '+') {
		negative = s[0] == '-'
		s = strings.TrimSpace(s[1:])
	}
	from := u.From
	months = from == "YEAR" || from == "MONTH" || from == "QUARTER"
	units := []string{from}
	if u.To != "" {
		units = nil
		for _, n := range unitOrder {
			if n == from || units != nil {
				units = append(units, n)
			}
			if n == u.To {
				break
			}
		}
		if len(units) == 0 || units[len(units)-1] != u.To {
			return 0, months, false
		}
	}
	rest := s
	for k, unit := range units {
		part := rest
		if k < len(units)-1 {
			sep := ":"
			switch unit {
			case "YEAR":
				sep = "-"
			case "DAY":
				sep = " "
			}
			var found bool
			if part, rest, found = strings.Cut(rest, sep); !found {
				return 0, months, false
			}
		}
		if unit == "SECOND" {
			whole, frac, dot := strings.Cut(part, ".")
			f := 0
			if dot {
				var okFrac bool
				if len(frac) > 9 {
					return 0, months, false
				}
				if f, okFrac = plain((frac + "000")[:3]); !okFrac {
					return 0, months, false
				}
			}
			part = whole
			v += int64(f)
			if part == "" && dot {
				part = "0"
			}
		}
		n, okN := plain(part)
		if !okN || int64(n) > math.MaxInt64/4/unitSize[unit] {
			return 0, months, false
		}
		v += int64(n) * unitSize[unit]
	}
	if negative {
		v = -v
	}
	return v, months, true
}
