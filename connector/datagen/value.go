package datagen

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-stream/millrace/internal/near"
	"github.com/millrace-stream/millrace/row"
)

// value makes one value of a column.
type value func(d *draw) row.Value

// draw is the row that is made.
type draw struct {
	*rand.Rand
	number int64 // of the row, from 0
	now    int64 // ms
}

// fields reads the settings of columns.
type fields struct {
	set  map[string]string // without "fields."
	used map[string]bool
	zone *row.Zone
	rows *int64 // of the table: a sequence may end it earlier
}

// unused is an error that names a setting of no column.
func (f *fields) unused() error {
	for _, name := range slices.Sorted(maps.Keys(f.set)) {
		if _, known := f.used[name]; !known {
			names := slices.Sorted(maps.Keys(f.used))
			if n, ok := near.Word(name, names); ok {
				return fmt.Errorf("option 'fields.%s' is unknown; did you mean 'fields.%s'?", name, n)
			}
			return fmt.Errorf("option 'fields.%s' is unknown: no column, or its type, has it", name)
		}
	}
	return nil
}

// text is a setting of a path; the settings that are asked for are those that it may have.
func (f *fields) text(path, name string) (string, bool) {
	if f.used == nil {
		f.used = map[string]bool{}
	}
	f.used[path+"."+name] = true
	v, ok := f.set[path+"."+name]
	return v, ok
}

func wrong(path, name, v, want string) error {
	return fmt.Errorf("option 'fields.%s.%s' = '%s': must be %s", path, name, v, want)
}

func (f *fields) integer(path, name string, least, most, otherwise int64) (int64, error) {
	v, ok := f.text(path, name)
	if !ok {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < least || n > most {
		return 0, wrong(path, name, v, fmt.Sprintf("a whole number from %d to %d", least, most))
	}
	return n, nil
}

func (f *fields) number(path, name string, least, most, otherwise float64) (float64, error) {
	v, ok := f.text(path, name)
	if !ok {
		return otherwise, nil
	}
	n, err := strconv.ParseFloat(v, 64)
	if err != nil || !(n >= least && n <= most) {
		return 0, wrong(path, name, v, fmt.Sprintf("a number from %g to %g", least, most))
	}
	return n, nil
}

// value makes what makes the values of a column, or of what is inside of one.
func (f *fields) value(path string, t *row.Type) (value, error) {
	kind, _ := f.text(path, "kind")
	var v value
	var err error
	switch strings.ToLower(kind) {
	case "", "random":
		v, err = f.random(path, t)
	case "sequence":
		return f.sequence(path, t)
	default:
		return nil, wrong(path, "kind", kind, "random or sequence")
	}
	if err != nil {
		return nil, err
	}
	rate, err := f.number(path, "null-rate", 0, 1, 0)
	if err != nil || rate == 0 {
		return v, err
	}
	if !t.IsNullable() {
		return nil, wrong(path, "null-rate", fmt.Sprint(rate), "0, since the column is NOT NULL")
	}
	return func(d *draw) row.Value {
		if d.Float64() < rate {
			return nil
		}
		return v(d)
	}, nil
}

// bounds of integers by kind.
var bounds = map[row.Kind][2]int64{
	row.KindTinyInt: {math.MinInt8, math.MaxInt8}, row.KindSmallInt: {math.MinInt16, math.MaxInt16},
	row.KindInt: {math.MinInt32, math.MaxInt32}, row.KindBigInt: {math.MinInt64, math.MaxInt64},
	row.KindIntervalDay: {0, math.MaxInt32}, row.KindIntervalMonth: {0, 120000},
}

func (f *fields) random(path string, t *row.Type) (value, error) {
	switch k := t.Kind(); {
	case k == row.KindBoolean:
		return func(d *draw) row.Value { return d.Uint64()&1 == 1 }, nil
	case k.Integer(), k.Interval():
		b := bounds[k]
		lo, err := f.integer(path, "min", b[0], b[1], b[0])
		if err != nil {
			return nil, err
		}
		hi, err := f.integer(path, "max", b[0], b[1], b[1])
		if err != nil {
			return nil, err
		}
		if lo > hi {
			return nil, wrong(path, "min", fmt.Sprint(lo), fmt.Sprintf("at most max, %d", hi))
		}
		span := uint64(hi) - uint64(lo) + 1 // 0 = all
		return func(d *draw) row.Value {
			if span == 0 {
				return int64(d.Uint64())
			}
			return int64(uint64(lo) + d.Uint64N(span))
		}, nil
	case k.Approximate(), k == row.KindDecimal:
		return f.real(path, t)
	case k.Text(), k.Bytes():
		return f.chars(path, t)
	case k == row.KindDate:
		return func(d *draw) row.Value { return row.FloorDiv(f.local(d.now), row.MsPerDay) }, nil
	case k == row.KindTime:
		return func(d *draw) row.Value { return row.FloorMod(f.local(d.now), row.MsPerDay) }, nil
	case k == row.KindTimestamp, k == row.KindTimestampLTZ:
		past := int64(0)
		if v, ok := f.text(path, "max-past"); ok {
			d, err := row.ParseDuration(v)
			if err != nil {
				return nil, wrong(path, "max-past", v, "a duration, as 10 s")
			}
			past = d.Milliseconds()
		}
		return func(d *draw) row.Value {
			at := d.now
			if past > 0 {
				at -= d.Int64N(past + 1)
			}
			if k == row.KindTimestamp {
				at = f.local(at)
			}
			ms, _ := row.TruncTimestamp(at, 0, t.Precision())
			return row.Stamp{Ms: ms}
		}, nil
	case k == row.KindRow:
		parts := make([]value, t.NumFields())
		for i := range parts {
			var err error
			if parts[i], err = f.value(path+"."+t.Field(i).Name, t.Field(i).Type); err != nil {
				return nil, err
			}
		}
		return func(d *draw) row.Value {
			vs := make([]row.Value, len(parts))
			for i, p := range parts {
				vs[i] = p(d)
			}
			return vs
		}, nil
	case k == row.KindArray, k == row.KindMultiset, k == row.KindMap:
		return f.collection(path, t)
	}
	return nil, fmt.Errorf("column %s: connector 'datagen' makes no values of type %s", path, t)
}

// local is a time as clocks show it in table.local-time-zone.
func (f *fields) local(ms int64) int64 {
	if f.zone == nil {
		return ms
	}
	return f.zone.Local(ms)
}

// real makes FLOAT, DOUBLE and DECIMAL.
func (f *fields) real(path string, t *row.Type) (value, error) {
	most := math.MaxFloat64
	switch t.Kind() {
	case row.KindFloat:
		most = math.MaxFloat32
	case row.KindDecimal:
		most = math.Pow10(t.Precision()-t.Scale()) - math.Pow10(-t.Scale())
	}
	lo, err := f.number(path, "min", -most, most, 0)
	if err != nil {
		return nil, err
	}
	hi, err := f.number(path, "max", -most, most, most)
	if err != nil {
		return nil, err
	}
	if lo > hi {
		return nil, wrong(path, "min", fmt.Sprint(lo), fmt.Sprintf("at most max, %g", hi))
	}
	between := func(d *draw) float64 {
		x := d.Float64()
		return min(max(lo*(1-x)+hi*x, lo), hi) // without the overflow of hi - lo
	}
	if t.Kind() != row.KindDecimal {
		return func(d *draw) row.Value { return between(d) }, nil
	}
	return func(d *draw) row.Value {
		v, ok := row.DecOfDouble(between(d), t.Precision(), t.Scale())
		if !ok { // rounded up beyond the precision
			return row.DecInt(0)
		}
		return v
	}, nil
}

const hex = "0123456789abcdef"

// defaultLength is that of text and bytes without one of their own.
const defaultLength = 100

// chars makes text of hexadecimal digits, and bytes.
func (f *fields) chars(path string, t *row.Type) (value, error) {
	k := t.Kind()
	fixed := k == row.KindChar || k == row.KindBinary
	most := int64(t.Length())
	n := most
	vary := false
	if !fixed {
		otherwise := most
		if most == row.MaxLength {
			otherwise = defaultLength
		}
		var err error
		if n, err = f.integer(path, "length", 1, most, otherwise); err != nil {
			return nil, err
		}
		if v, ok := f.text(path, "var-len"); ok {
			if vary, err = strconv.ParseBool(strings.ToLower(v)); err != nil {
				return nil, wrong(path, "var-len", v, "true or false")
			}
		}
	}
	return func(d *draw) row.Value {
		size := n
		if vary {
			size = 1 + d.Int64N(n)
		}
		b := make([]byte, size)
		for i := 0; i < len(b); {
			x := d.Uint64()
			for range 8 {
				if i == len(b) {
					break
				}
				if b[i] = byte(x); k.Text() {
					b[i] = hex[x&15]
				}
				x >>= 8
				i++
			}
		}
		if k.Text() {
			return string(b)
		}
		return b
	}, nil
}

// collection makes ARRAY, MULTISET and MAP.
func (f *fields) collection(path string, t *row.Type) (value, error) {
	n, err := f.integer(path, "length", 0, 1<<20, 3)
	if err != nil {
		return nil, err
	}
	if t.Kind() == row.KindMap {
		key, err := f.value(path+".key", t.Key().NotNull())
		if err != nil {
			return nil, err
		}
		val, err := f.value(path+".value", t.Elem())
		if err != nil {
			return nil, err
		}
		return func(d *draw) row.Value { return entries(d, n, key, val) }, nil
	}
	elem, err := f.value(path+".element", t.Elem())
	if err != nil {
		return nil, err
	}
	if t.Kind() == row.KindMultiset {
		return func(d *draw) row.Value {
			return entries(d, n, elem, func(d *draw) row.Value { return 1 + d.Int64N(10) })
		}, nil
	}
	return func(d *draw) row.Value {
		vs := make([]row.Value, n)
		for i := range vs {
			vs[i] = elem(d)
		}
		return vs
	}, nil
}

// entries are at most n, since keys that come twice count once.
func entries(d *draw, n int64, key, val value) []row.Entry {
	es := []row.Entry{}
	seen := map[string]bool{}
	for range n {
		k := key(d)
		if name := fmt.Sprintf("%v", k); !seen[name] {
			seen[name] = true
			es = append(es, row.Entry{Key: k, Value: val(d)})
		}
	}
	return es
}

// sequence counts up.
func (f *fields) sequence(path string, t *row.Type) (value, error) {
	k := t.Kind()
	least, most := int64(math.MinInt64), int64(math.MaxInt64)
	switch {
	case k.Integer():
		least, most = bounds[k][0], bounds[k][1]
	case k == row.KindDecimal && t.Scale() < t.Precision() && t.Precision()-t.Scale() <= 18:
		most = int64(math.Pow10(t.Precision()-t.Scale())) - 1
		least = -most
	case k.Approximate(), k.Text(), k == row.KindDecimal:
	default:
		return nil, fmt.Errorf("option 'fields.%s.kind' = 'sequence': a %s cannot be counted up", path, t)
	}
	var ends [2]int64
	for i, name := range []string{"start", "end"} {
		if _, ok := f.text(path, name); !ok {
			return nil, fmt.Errorf("option 'fields.%s.%s' is missing: a sequence needs start and end", path, name)
		}
		var err error
		if ends[i], err = f.integer(path, name, least, most, 0); err != nil {
			return nil, err
		}
	}
	start, end := ends[0], ends[1]
	if start > end {
		return nil, wrong(path, "start", fmt.Sprint(start), fmt.Sprintf("at most end, %d", end))
	}
	if n := uint64(end) - uint64(start) + 1; n > 0 && n < uint64(*f.rows) {
		*f.rows = int64(n)
	}
	return func(d *draw) row.Value {
		v := start + d.number
		switch {
		case k.Approximate():
			return float64(v)
		case k == row.KindDecimal:
			dec, _ := row.ParseDec(strconv.AppendInt(nil, v, 10), t.Precision(), t.Scale())
			return dec
		case k.Text():
			s := strconv.FormatInt(v, 10)
			if k == row.KindChar && len(s) < t.Length() {
				s += strings.Repeat(" ", t.Length()-len(s))
			}
			return s[:min(len(s), t.Length())]
		}
		return v
	}, nil
}
