package format

import (
	"math"
	"math/rand/v2"
	"strconv"

	"github.com/millrace-stream/millrace/row"
)

// rowGen makes random tables and rows.
type rowGen struct {
	*rand.Rand
	nested bool // ARRAY, MAP, MULTISET and ROW too
	least  int  // columns
}

func newRowGen(seed uint64) *rowGen {
	return &rowGen{Rand: rand.New(rand.NewPCG(seed, 1)), nested: true, least: 1}
}

// schema is a table of up to 8 columns, which lie in another order in the layout, among others.
func (g *rowGen) schema() RowSchema {
	n := g.least + g.IntN(7)
	if g.IntN(20) == 0 {
		n = 80 // more views than Plain has bits, and more columns than a word of NULLs
	}
	types := make([]*row.Type, n+2)
	for i := range types {
		types[i] = g.typ(2)
	}
	s := RowSchema{Layout: row.NewLayout(types...), Zone: row.UTC()}
	for i, at := range g.Perm(n + 2)[:n] {
		s.Columns = append(s.Columns, RowColumn{Name: g.name(i), Type: types[at], Index: at})
	}
	return s
}

// name is a name that no other column has.
func (g *rowGen) name(i int) string {
	return [...]string{"a", "", "Name", "with space", "q\"uote", "back\\slash", "gr\u00f6\u00dfe", "tab\t", "x.y", "\u65e5\u672c"}[i%10] + strconv.Itoa(i)
}

func (g *rowGen) typ(depth int) *row.Type {
	n := 20
	if !g.nested || depth == 0 {
		n = 15
	}
	switch g.IntN(n) {
	case 0:
		return row.Boolean()
	case 1:
		return row.TinyInt()
	case 2:
		return row.SmallInt()
	case 3:
		return row.Int()
	case 4:
		return row.BigInt()
	case 5:
		return row.Float()
	case 6:
		return row.Double()
	case 7:
		p := 1 + g.IntN(38)
		return row.Decimal(p, g.IntN(p+1))
	case 8:
		return row.Char(3)
	case 9, 10:
		return row.String()
	case 11:
		return row.Bytes()
	case 12:
		return row.Date()
	case 13:
		return row.Time(3)
	case 14:
		if g.IntN(2) == 0 {
			return row.TimestampLTZ(g.IntN(10))
		}
		return row.Timestamp(g.IntN(10))
	case 15, 16:
		return row.Array(g.typ(depth - 1))
	case 17:
		return row.Map(row.String(), g.typ(depth-1))
	case 18:
		return row.Multiset(row.String())
	}
	fields := make([]row.Field, 1+g.IntN(4))
	for i := range fields {
		fields[i] = row.Field{Name: g.name(i), Type: g.typ(depth - 1)}
	}
	return row.RowOf(fields...)
}

// row is a row of a schema; the columns that are none of it are NULL.
func (g *rowGen) row(s RowSchema) *row.Row {
	r := nullRow(s.Layout)
	for _, c := range s.Columns {
		s.Layout.Set(r, c.Index, g.value(c.Type))
	}
	return r
}

func nullRow(l *row.Layout) *row.Row {
	r := l.New()
	for i := range l.Len() {
		r.SetNull(i)
	}
	return r
}

func (g *rowGen) integer(bits int) int64 {
	switch g.IntN(4) {
	case 0:
		return -1 << (bits - 1)
	case 1:
		return 1<<(bits-1) - 1
	case 2:
		return g.Int64N(200) - 100
	}
	return int64(g.Uint64()) >> (64 - bits)
}

func (g *rowGen) text() string {
	const parts = "ab \"\\/\b\f\n\r\t\x00\x1f{}[]:,0.\u00c4\u00e9U\u65e5\U0001d11e\u2028'"
	all := []rune(parts)
	b := make([]rune, g.IntN(12))
	for i := range b {
		b[i] = all[g.IntN(len(all))]
	}
	return string(b)
}

// stamp is a time of the years 1 to 9999 that a type has.
func (g *rowGen) stamp(digits int) row.Stamp {
	lo, hi := row.DaysOf(1, 1, 2)*row.MsPerDay, row.DaysOf(9999, 12, 31)*row.MsPerDay
	ms, nanos := lo+g.Int64N(hi-lo), g.Int64N(1e6)
	if g.IntN(2) == 0 {
		ms = g.Int64N(2e12)
	}
	ms, nanos = row.TruncTimestamp(ms, nanos, digits)
	return row.Stamp{Ms: ms, Nanos: nanos}
}

func (g *rowGen) value(t *row.Type) row.Value {
	if g.IntN(8) == 0 {
		return nil
	}
	switch t.Kind() {
	case row.KindBoolean:
		return g.IntN(2) == 0
	case row.KindTinyInt:
		return g.integer(8)
	case row.KindSmallInt:
		return g.integer(16)
	case row.KindInt:
		return g.integer(32)
	case row.KindBigInt:
		return g.integer(64)
	case row.KindFloat:
		return float64(float32(g.float()))
	case row.KindDouble:
		return g.float()
	case row.KindDecimal:
		d := row.Dec{Lo: g.Uint64(), Hi: int64(g.Uint64())}
		d.Hi >>= g.IntN(64)
		if g.IntN(2) == 0 {
			d = row.DecInt(g.Int64N(2000) - 1000)
		}
		for !d.Fits(t.Precision()) {
			d = d.Trunc(1, 0)
		}
		return d
	case row.KindChar, row.KindVarChar:
		return g.text()
	case row.KindVarBinary:
		return []byte(g.text())
	case row.KindDate:
		return row.FloorDiv(g.stamp(3).Ms, row.MsPerDay)
	case row.KindTime:
		return g.Int64N(row.MsPerDay)
	case row.KindTimestamp, row.KindTimestampLTZ:
		return g.stamp(t.Precision())
	case row.KindArray:
		return g.list(func(int) *row.Type { return t.Elem() }, g.IntN(4))
	case row.KindRow:
		return g.list(func(i int) *row.Type { return t.Field(i).Type }, t.NumFields())
	}
	value := t.Elem()
	if t.Kind() == row.KindMultiset {
		value = row.Int().NotNull()
	}
	var es []row.Entry
	for i := range g.IntN(4) {
		v := g.value(value)
		if v == nil && !value.IsNullable() {
			v = int64(1)
		}
		es = append(es, row.Entry{Key: g.name(i), Value: v})
	}
	return es
}

func (g *rowGen) list(typ func(int) *row.Type, n int) row.Value {
	vs := make([]row.Value, n)
	for i := range vs {
		vs[i] = g.value(typ(i))
	}
	return vs
}

func (g *rowGen) float() float64 {
	switch g.IntN(6) {
	case 0:
		return []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat64, math.SmallestNonzeroFloat64}[g.IntN(7)]
	case 1:
		return float64(g.IntN(100000)) / 100
	case 2:
		return float64(g.Int64())
	}
	return math.Float64frombits(g.Uint64())
}
