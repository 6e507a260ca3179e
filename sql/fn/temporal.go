package fn

import (
	"fmt"
	"math"
	"strings"

	"github.com/millrace-stream/millrace/row"
)

// unit is a unit of time: a number of ms, or of months.
type unit struct{ ms, months int64 }

var units = map[string]unit{
	"MILLISECOND": {ms: 1}, "SECOND": {ms: row.MsPerSecond}, "MINUTE": {ms: row.MsPerMinute}, "HOUR": {ms: row.MsPerHour},
	"DAY": {ms: row.MsPerDay}, "WEEK": {ms: 7 * row.MsPerDay}, "MONTH": {months: 1}, "QUARTER": {months: 3}, "YEAR": {months: 12},
	"DECADE": {months: 120}, "CENTURY": {months: 1200}, "MILLENNIUM": {months: 12000},
}

func unitWord(c Code) string {
	w, _ := constText(c)
	return strings.TrimPrefix(strings.ToUpper(w), "SQL_TSI_")
}

// wall reads a date or time as local time, ms since 1970-01-01 00:00:00: a TIMESTAMP_LTZ in the zone.
func wall(env *Env, c Code) Get[Stamp] {
	switch c.Type.Kind() {
	case row.KindDate:
		return lift1(c.Int, func(d int64) Stamp { return Stamp{Ms: d * row.MsPerDay} })
	case row.KindTime:
		return lift1(c.Int, func(ms int64) Stamp { return Stamp{Ms: ms} })
	case row.KindTimestampLTZ:
		return lift1(c.Stamps(), func(s Stamp) Stamp { return Stamp{Ms: env.Zone.Local(s.Ms), Nanos: s.Nanos} })
	}
	return c.Stamps()
}

var fields = map[string]func(s Stamp) int64{
	"YEAR":        func(s Stamp) int64 { y, _, _ := civil(s); return y },
	"QUARTER":     func(s Stamp) int64 { _, m, _ := civil(s); return int64(m+2) / 3 },
	"MONTH":       func(s Stamp) int64 { _, m, _ := civil(s); return int64(m) },
	"DAY":         func(s Stamp) int64 { _, _, d := civil(s); return int64(d) },
	"WEEK":        func(s Stamp) int64 { _, w := row.ISOWeek(day(s)); return int64(w) },
	"ISOYEAR":     func(s Stamp) int64 { y, _ := row.ISOWeek(day(s)); return y },
	"DOY":         func(s Stamp) int64 { return int64(row.DayOfYear(day(s))) },
	"DOW":         func(s Stamp) int64 { return int64(row.ISODayOfWeek(day(s))%7) + 1 },
	"ISODOW":      func(s Stamp) int64 { return int64(row.ISODayOfWeek(day(s))) },
	"DECADE":      func(s Stamp) int64 { y, _, _ := civil(s); return y / 10 },
	"CENTURY":     func(s Stamp) int64 { y, _, _ := civil(s); return (y + 99) / 100 },
	"MILLENNIUM":  func(s Stamp) int64 { y, _, _ := civil(s); return (y + 999) / 1000 },
	"HOUR":        func(s Stamp) int64 { return row.FloorMod(s.Ms, row.MsPerDay) / row.MsPerHour },
	"MINUTE":      func(s Stamp) int64 { return row.FloorMod(s.Ms, row.MsPerHour) / row.MsPerMinute },
	"SECOND":      func(s Stamp) int64 { return row.FloorMod(s.Ms, row.MsPerMinute) / row.MsPerSecond },
	"MILLISECOND": func(s Stamp) int64 { return row.FloorMod(s.Ms, row.MsPerSecond) },
	"MICROSECOND": func(s Stamp) int64 { return row.FloorMod(s.Ms, row.MsPerSecond)*1000 + s.Nanos/1000 },
	"NANOSECOND":  func(s Stamp) int64 { return row.FloorMod(s.Ms, row.MsPerSecond)*1e6 + s.Nanos },
}

func day(s Stamp) int64 { return row.FloorDiv(s.Ms, row.MsPerDay) }

func civil(s Stamp) (year int64, month, dayOfMonth int) { return row.CivilOf(day(s)) }

func compileExtract(env *Env, word string, x Code, t *row.Type) (Code, error) {
	switch x.Type.Kind() {
	case row.KindIntervalMonth:
		switch word {
		case "YEAR":
			return IntCode(t, lift1(x.Int, func(m int64) int64 { return m / 12 })), nil
		case "QUARTER":
			return IntCode(t, lift1(x.Int, func(m int64) int64 { return m%12/3 + 1 })), nil
		case "MONTH":
			return IntCode(t, lift1(x.Int, func(m int64) int64 { return m % 12 })), nil
		}
		return Code{}, fmt.Errorf("an interval of months has no %s", word)
	case row.KindIntervalDay:
		if word == "EPOCH" {
			return IntCode(t, lift1(x.Int, func(ms int64) int64 { return ms / row.MsPerSecond })), nil
		}
		u, ok := units[word]
		if !ok || u.ms == 0 || word == "WEEK" {
			return Code{}, fmt.Errorf("an interval of days and seconds has no %s", word)
		}
		limit := map[string]int64{"HOUR": 24, "MINUTE": 60, "SECOND": 60, "MILLISECOND": 1000}[word]
		return IntCode(t, lift1(x.Int, func(ms int64) int64 {
			if limit > 0 {
				return ms / u.ms % limit
			}
			return ms / u.ms
		})), nil
	}
	if word == "EPOCH" {
		// Of an instant, not of local time; towards 1970.
		if k := x.Type.Kind(); k == row.KindTimestampLTZ || k == row.KindTimestamp {
			return IntCode(t, lift1(x.Stamps(), func(s Stamp) int64 { return s.Ms / row.MsPerSecond })), nil
		}
		return IntCode(t, lift1(wall(env, x), func(s Stamp) int64 { return s.Ms / row.MsPerSecond })), nil
	}
	f, ok := fields[word]
	if !ok {
		return Code{}, fmt.Errorf("there is no unit %s", word)
	}
	return IntCode(t, lift1(wall(env, x), f)), nil
}

var wantMoment = kindWant("date, time or interval", row.Timestamp(3), func(k row.Kind) bool { return k.Datetime() || k.Interval() })

func fieldFunc(name, word, doc string, example Example) *Func {
	return &Func{
		Name: name, Group: "temporal", Syntax: name + "(date or time)", Doc: doc, Examples: []Example{example},
		Resolve: sigs(of(strictly(row.BigInt()), wantMoment)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) { return compileExtract(env, word, args[0], t) },
	}
}

// floorMonths is the start of the period of that many months that a local time lies in.
func floorMonths(ms, months int64) int64 {
	y, m, _ := row.CivilOf(row.FloorDiv(ms, row.MsPerDay))
	n := y*12 + int64(m) - 1
	switch months {
	case 1200, 12000: // centuries start with the year 1
		n = row.FloorDiv(n-12, months)*months + 12
	default:
		n = row.FloorDiv(n, months) * months
	}
	return row.DaysOf(row.FloorDiv(n, 12), int(row.FloorMod(n, 12))+1, 1) * row.MsPerDay
}

// floorTo rounds a local time down to a unit. Weeks start on Sunday.
func (u unit) floorTo(ms int64) int64 {
	switch {
	case u.months > 0:
		return floorMonths(ms, u.months)
	case u.ms == 7*row.MsPerDay:
		return row.FloorDiv(ms+4*row.MsPerDay, u.ms)*u.ms - 4*row.MsPerDay
	}
	return ms - row.FloorMod(ms, u.ms)
}

func (u unit) next(floor int64) int64 {
	if u.months > 0 {
		return row.AddMonthsMs(floor, u.months)
	}
	return floor + u.ms
}

func floorFunc(name string, aliases []string, up bool, doc string, examples ...Example) *Func {
	numeric := func(args []Arg) *row.Type {
		t := args[0].Type
		if t.Kind() == row.KindDecimal {
			t = row.Decimal(t.Precision(), 0)
		}
		return t.Nullable(anyNullable(args))
	}
	return &Func{
		Name: name, Aliases: aliases, Group: "arithmetic", Syntax: name + "(number), " + name + "(date or time TO unit)", Doc: doc, Examples: examples,
		Resolve: sigs(of(numeric, wantNumber), of(sameAs(0), wantTime, wantWord)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			if len(args) == 2 {
				return compileFloor(env, up, args[0], unitWord(args[1]), t)
			}
			switch a := args[0]; {
			case t.Kind().Approximate():
				f := math.Floor
				if up {
					f = math.Ceil
				}
				return FloatCode(t, lift1(a.Float, f)), nil
			case t.Kind() == row.KindDecimal:
				f, scale, p := row.Dec.Floor, a.Type.Scale(), t.Precision()
				if up {
					f = row.Dec.Ceil
				}
				return DecCode(t, try1(a.Decs(), func(d row.Dec) (row.Dec, bool) {
					d = f(d, scale, 0)
					return d, d.Fits(p)
				})), nil
			default:
				return IntCode(t, a.Int), nil
			}
		},
	}
}

func compileFloor(env *Env, up bool, x Code, word string, t *row.Type) (Code, error) {
	u, ok := units[word]
	if !ok {
		return Code{}, fmt.Errorf("a date or time cannot be rounded to %s", word)
	}
	round := func(s Stamp) int64 {
		f := u.floorTo(s.Ms)
		if up && (f != s.Ms || s.Nanos != 0) {
			f = u.next(f)
		}
		return f
	}
	local := wall(env, x)
	switch t.Kind() {
	case row.KindDate:
		if u.ms > 0 && u.ms < row.MsPerDay {
			return IntCode(t, x.Int), nil
		}
		return IntCode(t, lift1(local, func(s Stamp) int64 { return row.FloorDiv(round(s), row.MsPerDay) })), nil
	case row.KindTime:
		if u.ms == 0 || u.ms > row.MsPerHour {
			return Code{}, fmt.Errorf("a TIME cannot be rounded to %s", word)
		}
		return IntCode(t, lift1(local, func(s Stamp) int64 { return row.FloorMod(round(s), row.MsPerDay) })), nil
	case row.KindTimestampLTZ:
		return StampCode(t, lift1(local, func(s Stamp) Stamp { return Stamp{Ms: env.Zone.Instant(round(s))} })), nil
	}
	return StampCode(t, lift1(local, func(s Stamp) Stamp { return Stamp{Ms: round(s)} })), nil
}

// monthsBetween is the number of whole months from a to b, local times in ms.
func monthsBetween(a, b int64) int64 {
	if b < a {
		return -monthsBetween(b, a)
	}
	d1, d0 := row.FloorDiv(a, row.MsPerDay), row.FloorDiv(b, row.MsPerDay)
	m := (d0 - d1) / 31
	for row.AddMonths(d1, m) < d0 && row.AddMonths(d1, m+1) <= d0 {
		m++
	}
	if row.AddMonths(d1, m) == d0 && row.FloorMod(b, row.MsPerDay) < row.FloorMod(a, row.MsPerDay) {
		m--
	}
	return m
}

// datetimeMs reads a date or time as ms, a TIMESTAMP_LTZ as its instant.
func datetimeMs(c Code) Get[int64] {
	switch {
	case c.Type.Kind() == row.KindDate:
		return lift1(c.Int, func(d int64) int64 { return d * row.MsPerDay })
	case c.Int != nil:
		return c.Int
	}
	return lift1(c.Stamps(), func(s Stamp) int64 { return s.Ms })
}

// addType is the type of TIMESTAMPADD.
func addType(args []Arg) *row.Type {
	t := args[2].Type.WithMark(row.NoMark).Nullable(anyNullable(args))
	word := strings.TrimPrefix(strings.ToUpper(string(args[0].Const.B)), "SQL_TSI_")
	u, known := units[word]
	digits := map[string]int{"MILLISECOND": 3, "MICROSECOND": 6, "NANOSECOND": 9}[word]
	switch k := t.Kind(); {
	case k == row.KindDate && known && (u.months > 0 || u.ms >= row.MsPerDay):
	case k == row.KindDate:
		t = row.Timestamp(max(6, digits)).Nullable(t.IsNullable())
	case k == row.KindTimestamp:
		t = row.Timestamp(max(t.Precision(), digits)).Nullable(t.IsNullable())
	case k == row.KindTimestampLTZ:
		t = row.TimestampLTZ(max(t.Precision(), digits)).Nullable(t.IsNullable())
	}
	return t
}

func compileTimestampAdd(_ *Env, args []Code, t *row.Type) (Code, error) {
	word := unitWord(args[0])
	n, x := args[1].Int, args[2]
	nanos := map[string]int64{"MICROSECOND": 1000, "NANOSECOND": 1, "FRAC_SECOND": 1000}[word]
	u, ok := units[word]
	if !ok && nanos == 0 {
		return Code{}, fmt.Errorf("there is no unit %s", word)
	}
	add := func(s Stamp, n int64) Stamp {
		switch {
		case nanos > 0:
			ms := n / (1e6 / nanos)
			total := s.Nanos + n%(1e6/nanos)*nanos
			return Stamp{Ms: s.Ms + ms + row.FloorDiv(total, 1e6), Nanos: row.FloorMod(total, 1e6)}
		case u.months > 0:
			return Stamp{Ms: row.AddMonthsMs(s.Ms, n*u.months), Nanos: s.Nanos}
		}
		return Stamp{Ms: s.Ms + n*u.ms, Nanos: s.Nanos}
	}
	if t.Kind() == row.KindTime {
		return IntCode(t, lift2(x.Int, n, func(ms, n int64) int64 { return row.FloorMod(add(Stamp{Ms: ms}, n).Ms, row.MsPerDay) })), nil
	}
	stamps := x.Stamps
	if x.Type.Kind() == row.KindDate {
		stamps = func() Get[Stamp] { return lift1(x.Int, func(d int64) Stamp { return Stamp{Ms: d * row.MsPerDay} }) }
	}
	sum := lift2(stamps(), n, add)
	if t.Kind() == row.KindDate {
		return IntCode(t, lift1(sum, day)), nil
	}
	return StampCode(t, sum), nil
}

// formats caches compiled patterns: a constant one is compiled once.
type formats[F any] struct {
	compile func(pattern string) (F, error)
	cache   map[string]F
	last    string
	format  F
}

func newFormats[F any](compile func(string) (F, error)) *formats[F] {
	return &formats[F]{compile: compile, cache: map[string]F{}}
}

// get is the compiled pattern; it fails for one that means nothing.
func (f *formats[F]) get(at Place, pattern []byte) F {
	if len(f.cache) > 0 && string(pattern) == f.last {
		return f.format
	}
	c, ok := f.cache[string(pattern)]
	if !ok {
		var err error
		if c, err = f.compile(string(pattern)); err != nil {
			at.failf("%s", err)
		}
		if len(f.cache) > 100 {
			clear(f.cache)
		}
		f.cache[string(pattern)] = c
	}
	f.last, f.format = string(pattern), c
	return c
}

const usualFormat = "yyyy-MM-dd HH:mm:ss"

func compileDateFormat(env *Env, args []Code, t *row.Type) (Code, error) {
	at := env.Place
	if args[0].Bytes != nil {
		usual, err := row.NewSimpleFormat(usualFormat)
		if err != nil {
			return Code{}, err
		}
		from, to := newFormats(row.NewSimpleFormat), newFormats(row.NewSimpleFormat)
		utc := row.UTC()
		if len(args) == 3 {
			return BytesCode(t, try3(args[0].Bytes, args[1].Bytes, args[2].Bytes, func(b, p, q []byte) ([]byte, bool) {
				ms, ok := from.get(at, p).Parse(b, utc)
				if !ok {
					return nil, false
				}
				return env.Arena.Keep(to.get(at, q).Append(env.Arena.Begin(), ms, utc)), true
			})), nil
		}
		return BytesCode(t, try2(args[0].Bytes, args[1].Bytes, func(b, p []byte) ([]byte, bool) {
			ms, ok := usual.Parse(b, utc)
			if !ok {
				return nil, false
			}
			return env.Arena.Keep(to.get(at, p).Append(env.Arena.Begin(), ms, utc)), true
		})), nil
	}
	list := newFormats(row.NewDateTimeFormat)
	local := wall(env, args[0])
	if p, ok := constText(args[1]); ok && !strings.ContainsAny(p, "sSAnN['") {
		same := int64(row.MsPerMinute)
		if !strings.ContainsAny(p, "HhKkmaB") {
			same = row.MsPerDay
		}
		return BytesCode(t, keptFormat(at, list, local, []byte(p), same)), nil
	}
	return BytesCode(t, lift2(local, args[1].Bytes, func(s Stamp, p []byte) []byte {
		f := list.get(at, p)
		if f.NoFormat != nil {
			at.failf("DATE_FORMAT: %s", f.NoFormat)
		}
		return env.Arena.Keep(f.Append(env.Arena.Begin(), s.Ms, s.Nanos))
	})), nil
}

// keptFormat formats with a pattern that gives one text for all times of a day or minute: the last text is kept.
func keptFormat(at Place, list *formats[*row.DateTimeFormat], local Get[Stamp], pattern []byte, same int64) Get[[]byte] {
	var last int64
	var text []byte
	return func(r *row.Row) ([]byte, bool) {
		s, ok := local(r)
		if !ok {
			return nil, false
		}
		if d := row.FloorDiv(s.Ms, same); d != last || text == nil {
			f := list.get(at, pattern)
			if f.NoFormat != nil {
				at.failf("DATE_FORMAT: %s", f.NoFormat)
			}
			text = f.Append(make([]byte, 0, 16), s.Ms, s.Nanos)
			last = d
		}
		return text, true
	}
}

func nowFunc(name string, aliases []string, res *row.Type, doc string, f func(env *Env) Stamp) *Func {
	return &Func{
		Name: name, Aliases: aliases, Group: "temporal", Purity: PerRecord, Nulls: Never, Syntax: name, Doc: doc, Resolve: sigs(of(notNull(res))),
		Compile: func(env *Env, _ []Code, t *row.Type) (Code, error) {
			return StampCode(t, func(*row.Row) (Stamp, bool) { return f(env), true }), nil
		},
	}
}

func toLTZ(at Place, f float64, n int64, digits int64) int64 {
	switch digits {
	case 0:
		if f != 0 {
			return int64(f * 1000)
		}
		return n * 1000
	case 3:
		if f != 0 {
			return int64(f)
		}
		return n
	}
	at.failf("TO_TIMESTAMP_LTZ: the precision %d is neither 0 (seconds) nor 3 (milliseconds)", digits)
	return 0
}

var temporalFuncs = []*Func{
	{
		Name: "EXTRACT", Group: "temporal", Syntax: "EXTRACT(unit FROM date, time or interval)",
		Doc:     "A part of a date or time: MILLENNIUM, CENTURY, DECADE, YEAR, ISOYEAR, QUARTER, MONTH, WEEK (ISO), DAY, DOW (1 = Sunday), ISODOW (1 = Monday), DOY, HOUR, MINUTE, SECOND, MILLISECOND, MICROSECOND, NANOSECOND, EPOCH.",
		Resolve: sigs(of(strictly(row.BigInt()), wantWord, wantMoment)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			return compileExtract(env, unitWord(args[0]), args[1], t)
		},
		Examples: []Example{{"EXTRACT(WEEK FROM DATE '2021-01-01')", "BIGINT NOT NULL", "53"}},
	},
	fieldFunc("YEAR", "YEAR", "The year.", Example{"YEAR(DATE '2024-03-05')", "BIGINT NOT NULL", "2024"}),
	fieldFunc("QUARTER", "QUARTER", "The quarter, 1 to 4.", Example{"QUARTER(DATE '2024-03-05')", "BIGINT NOT NULL", "1"}),
	fieldFunc("MONTH", "MONTH", "The month, 1 to 12.", Example{"MONTH(DATE '2024-03-05')", "BIGINT NOT NULL", "3"}),
	fieldFunc("WEEK", "WEEK", "The week of ISO 8601, 1 to 53.", Example{"WEEK(DATE '2024-01-01')", "BIGINT NOT NULL", "1"}),
	fieldFunc("DAYOFYEAR", "DOY", "The day of the year, 1 to 366.", Example{"DAYOFYEAR(DATE '2024-02-29')", "BIGINT NOT NULL", "60"}),
	fieldFunc("DAYOFMONTH", "DAY", "The day of the month.", Example{"DAYOFMONTH(DATE '2024-02-29')", "BIGINT NOT NULL", "29"}),
	fieldFunc("DAYOFWEEK", "DOW", "The day of the week, 1 (Sunday) to 7.", Example{"DAYOFWEEK(DATE '2024-03-03')", "BIGINT NOT NULL", "1"}),
	fieldFunc("HOUR", "HOUR", "The hour, 0 to 23.", Example{"HOUR(TIMESTAMP '2024-03-05 17:08:09')", "BIGINT NOT NULL", "17"}),
	fieldFunc("MINUTE", "MINUTE", "The minute, 0 to 59.", Example{"MINUTE(TIME '17:08:09')", "BIGINT NOT NULL", "8"}),
	fieldFunc("SECOND", "SECOND", "The second, 0 to 59.", Example{"SECOND(TIMESTAMP '2024-03-05 17:08:09.9')", "BIGINT NOT NULL", "9"}),
	floorFunc("FLOOR", nil, false, "The number rounded down to an integer; the date or time rounded down to a unit. Weeks start on Sunday.",
		Example{"FLOOR(-1.5)", "DECIMAL(2, 0) NOT NULL", "-2"}, Example{"FLOOR(DATE '2024-03-05' TO MONTH)", "DATE NOT NULL", "2024-03-01"}),
	floorFunc("CEIL", []string{"CEILING"}, true, "The number rounded up to an integer; the date or time rounded up to a unit.",
		Example{"CEIL(1.5)", "DECIMAL(2, 0) NOT NULL", "2"}, Example{"CEIL(DATE '2024-03-05' TO YEAR)", "DATE NOT NULL", "2025-01-01"}),
	{
		Name: "TIMESTAMPADD", Group: "temporal", Syntax: "TIMESTAMPADD(unit, integer, date or time)", Doc: "The date or time that many units later.",
		Resolve: sigs(of(addType, wantWord, wantInteger, wantTime)), Compile: compileTimestampAdd,
		Examples: []Example{{"TIMESTAMPADD(DAY, -1, DATE '2024-03-01')", "DATE NOT NULL", "2024-02-29"}},
	},
	{
		Name: "TIMESTAMPDIFF", Group: "temporal", Syntax: "TIMESTAMPDIFF(unit, date or time 1, date or time 2)", Doc: "The number of whole units from the first to the second.",
		Resolve: sigs(of(strictly(row.Int()), wantWord, wantTime, wantTime)),
		Compile: func(_ *Env, args []Code, t *row.Type) (Code, error) {
			word := unitWord(args[0])
			u, ok := units[word]
			if !ok {
				return Code{}, fmt.Errorf("there is no unit %s", word)
			}
			return IntCode(t, lift2(datetimeMs(args[1]), datetimeMs(args[2]), func(a, b int64) int64 {
				if u.months > 0 {
					return int64(int32(monthsBetween(a, b) / u.months))
				}
				return int64(int32((b - a) / u.ms))
			})), nil
		},
		Examples: []Example{{"TIMESTAMPDIFF(MONTH, DATE '2024-01-31', DATE '2024-02-29')", "INT NOT NULL", "1"}},
	},
	{
		Name: "DATE_FORMAT", Group: "temporal", Fails: true, Syntax: "DATE_FORMAT(timestamp | string, pattern)",
		Doc:     "The timestamp in a pattern of Java's DateTimeFormatter. A text has the form yyyy-MM-dd HH:mm:ss; NULL if it has not.",
		Resolve: sigs(of(nullable(row.String()), kindWant("timestamp", row.Timestamp(3), func(k row.Kind) bool { return k.Datetime() && k != row.KindTime }), wantText), of(nullable(row.String()), wantText, wantText), of(nullable(row.String()), wantText, wantText, wantText)),
		Compile: compileDateFormat, Examples: []Example{{"DATE_FORMAT(TIMESTAMP '2024-03-05 17:08:09', 'hh:mm a')", "STRING", "05:08 PM"}},
	},
	{
		Name: "TO_TIMESTAMP", Group: "temporal", Fails: true, Syntax: "TO_TIMESTAMP(string [, pattern])", Doc: "The timestamp that a text says, in the form yyyy-MM-dd HH:mm:ss[.fraction] or in a pattern; NULL if it has not that form.",
		Resolve: sigs(of(nullable(row.Timestamp(3)), wantText), of(nullable(row.Timestamp(3)), wantText, wantText)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			at := env.Place
			if len(args) == 1 {
				return IntCode(t, try1(args[0].Bytes, func(b []byte) (int64, bool) {
					ms, _, err := row.ParseTimestamp(b)
					return ms, err == nil
				})), nil
			}
			list := newFormats(row.NewDateTimeFormat)
			return IntCode(t, try2(args[0].Bytes, args[1].Bytes, func(b, p []byte) (int64, bool) {
				ms, _, ok := list.get(at, p).Parse(b)
				return ms, ok
			})), nil
		},
		Examples: []Example{{"TO_TIMESTAMP('2024-03-05 17:08:09')", "TIMESTAMP(3)", "2024-03-05 17:08:09.000"}},
	},
	{
		Name: "TO_DATE", Group: "temporal", Fails: true, Syntax: "TO_DATE(string [, pattern])", Doc: "The date that a text says, in the form yyyy-MM-dd or in a pattern; NULL if it has not that form.",
		Resolve: sigs(of(nullable(row.Date()), wantText), of(nullable(row.Date()), wantText, wantText)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			at := env.Place
			if len(args) == 1 {
				return IntCode(t, try1(args[0].Bytes, func(b []byte) (int64, bool) {
					d, err := row.ParseDate(b)
					return d, err == nil
				})), nil
			}
			list, utc := newFormats(row.NewSimpleFormat), row.UTC()
			return IntCode(t, try2(args[0].Bytes, args[1].Bytes, func(b, p []byte) (int64, bool) {
				ms, ok := list.get(at, p).Parse(b, utc)
				return row.FloorDiv(ms, row.MsPerDay), ok
			})), nil
		},
		Examples: []Example{{"TO_DATE('05.03.2024', 'dd.MM.yyyy')", "DATE", "2024-03-05"}},
	},
	{
		Name: "TO_TIMESTAMP_LTZ", Group: "temporal", Fails: true, Syntax: "TO_TIMESTAMP_LTZ(number [, precision]), TO_TIMESTAMP_LTZ(string [, pattern [, zone]])",
		Doc: "The instant of seconds (precision 0) or milliseconds (precision 3, also if not given) since 1970; of a text, in UTC or in the zone.",
		Resolve: sigs(of(nullable(row.TimestampLTZ(3)), wantNumber), of(nullable(row.TimestampLTZ(3)), wantNumber, wantInt),
			sig{args: []want{wantText, wantText, wantText}, optional: 2, result: nullable(row.TimestampLTZ(3))}),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			at := env.Place
			if args[0].Bytes != nil {
				return compileTextLTZ(env, args, t)
			}
			digits := constGet[int64](3)
			if len(args) == 2 {
				digits = args[1].Int
			}
			if !args[0].Type.Kind().Integer() {
				x, err := Cast(env, args[0], row.Double(), false)
				if err != nil {
					return x, err
				}
				return IntCode(t, lift2(x.Float, digits, func(f float64, d int64) int64 { return toLTZ(at, f, 0, d) })), nil
			}
			return IntCode(t, lift2(args[0].Int, digits, func(n, d int64) int64 { return toLTZ(at, 0, n, d) })), nil
		},
		Examples: []Example{{"TO_TIMESTAMP_LTZ(1709658489, 0)", "TIMESTAMP_LTZ(3)", "2024-03-05 17:08:09.000Z"}},
	},
	{
		Name: "FROM_UNIXTIME", Group: "temporal", Fails: true, Syntax: "FROM_UNIXTIME(seconds [, pattern])", Doc: "The instant of seconds since 1970 in the zone of the session, in the form yyyy-MM-dd HH:mm:ss or in a pattern of Java's SimpleDateFormat.",
		Resolve: sigs(sig{args: []want{wantInteger, wantText}, optional: 1, result: nullable(row.String())}),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			at, pattern := env.Place, constGet([]byte(usualFormat))
			if len(args) == 2 {
				pattern = args[1].Bytes
			}
			list := newFormats(row.NewSimpleFormat)
			return BytesCode(t, lift2(args[0].Int, pattern, func(n int64, p []byte) []byte {
				return env.Arena.Keep(list.get(at, p).Append(env.Arena.Begin(), n*1000, env.Zone))
			})), nil
		},
		Examples: []Example{{"FROM_UNIXTIME(0, 'yyyy/MM/dd')", "STRING", "1970/01/01"}},
	},
	{
		Name: "UNIX_TIMESTAMP", Group: "temporal", Fails: true, Purity: PerRecord, Syntax: "UNIX_TIMESTAMP([string [, pattern]])",
		Doc:     "Seconds since 1970: now, or of a text in the zone of the session. A text of another form gives the least BIGINT.",
		Resolve: sigs(of(notNull(row.BigInt())), of(strictly(row.BigInt()), wantText), of(strictly(row.BigInt()), wantText, wantText)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			if len(args) == 0 {
				return IntCode(t, func(*row.Row) (int64, bool) { return row.FloorDiv(env.Now, 1000), true }), nil
			}
			at, pattern := env.Place, constGet([]byte(usualFormat))
			if len(args) == 2 {
				pattern = args[1].Bytes
			}
			list := newFormats(row.NewSimpleFormat)
			return IntCode(t, lift2(args[0].Bytes, pattern, func(b, p []byte) int64 {
				ms, ok := list.get(at, p).Parse(b, env.Zone)
				if !ok || len(p) == 0 {
					return math.MinInt64
				}
				return ms / 1000
			})), nil
		},
		Examples: []Example{{"UNIX_TIMESTAMP('1970-01-01 00:00:10')", "BIGINT NOT NULL", "10"}},
	},
	{
		Name: "CONVERT_TZ", Group: "temporal", Syntax: "CONVERT_TZ(string, zone1, zone2)", Doc: "A time of the form yyyy-MM-dd HH:mm:ss in zone1 as the time in zone2; NULL if it has not that form. An unknown zone is UTC.",
		Resolve: sigs(of(nullable(row.String()), wantText, wantText, wantText)),
		Compile: func(env *Env, args []Code, t *row.Type) (Code, error) {
			usual, err := row.NewSimpleFormat(usualFormat)
			if err != nil {
				return Code{}, err
			}
			zones := newFormats(zoneOrUTC)
			return BytesCode(t, try3(args[0].Bytes, args[1].Bytes, args[2].Bytes, func(b, from, to []byte) ([]byte, bool) {
				ms, ok := usual.Parse(b, zones.get(Place{}, from))
				if !ok {
					return nil, false
				}
				return env.Arena.Keep(usual.Append(env.Arena.Begin(), ms, zones.get(Place{}, to))), true
			})), nil
		},
		Examples: []Example{{"CONVERT_TZ('2024-03-05 17:08:09', 'UTC', 'America/Los_Angeles')", "STRING", "2024-03-05 09:08:09"}},
	},
	nowFunc("CURRENT_TIMESTAMP", []string{"NOW", "CURRENT_ROW_TIMESTAMP"}, row.TimestampLTZ(3), "The instant at which the record is processed.", func(env *Env) Stamp { return Stamp{Ms: env.Now} }),
	nowFunc("LOCALTIMESTAMP", nil, row.Timestamp(3), "The time at which the record is processed, in the zone of the session.", func(env *Env) Stamp { return Stamp{Ms: env.Zone.Local(env.Now)} }),
	nowFunc("CURRENT_DATE", nil, row.Date(), "The date at which the record is processed, in the zone of the session.", func(env *Env) Stamp { return Stamp{Ms: row.FloorDiv(env.Zone.Local(env.Now), row.MsPerDay)} }),
	nowFunc("LOCALTIME", []string{"CURRENT_TIME"}, row.Time(0), "The time of the day at which the record is processed, in the zone of the session.", func(env *Env) Stamp {
		return Stamp{Ms: truncTime(row.FloorMod(env.Zone.Local(env.Now), row.MsPerDay), 0)}
	}),
	{
		Name: "CURRENT_WATERMARK", Group: "temporal", Purity: PerRecord, Nulls: Custom, Syntax: "CURRENT_WATERMARK(rowtime)", Doc: "The watermark of the running operator in the type of the time attribute; NULL before there is one.",
		Resolve: sigs(of(func(args []Arg) *row.Type {
			if args[0].Type.Kind() == row.KindTimestampLTZ {
				return row.TimestampLTZ(3)
			}
			return row.Timestamp(3)
		}, kindWant("time attribute", row.Timestamp(3), func(k row.Kind) bool { return k == row.KindTimestamp || k == row.KindTimestampLTZ }))),
		Compile: func(env *Env, _ []Code, t *row.Type) (Code, error) {
			return IntCode(t, func(*row.Row) (int64, bool) { return env.Watermark, env.Watermark != math.MinInt64 }), nil
		},
	},
}

func zoneOrUTC(name string) (*row.Zone, error) {
	z, err := row.LoadZone(name)
	if err != nil {
		return row.UTC(), nil //nolint:nilerr // as Java's TimeZone.getTimeZone does
	}
	return z, nil
}

// compileTextLTZ is TO_TIMESTAMP_LTZ of a text.
func compileTextLTZ(env *Env, args []Code, t *row.Type) (Code, error) {
	at, pattern, zone := env.Place, constGet([]byte(nil)), constGet([]byte("UTC"))
	if len(args) > 1 {
		pattern = args[1].Bytes
	}
	if len(args) > 2 {
		zone = args[2].Bytes
	}
	list, zones := newFormats(row.NewDateTimeFormat), newFormats(row.LoadZone)
	return IntCode(t, try3(args[0].Bytes, pattern, zone, func(b, p, z []byte) (int64, bool) {
		if p == nil {
			ms, _, err := row.ParseTimestamp(b)
			return ms, err == nil
		}
		ms, _, ok := list.get(at, p).Parse(b)
		if !ok {
			return 0, false
		}
		return zones.get(at, z).Instant(ms), true
	})), nil
}
