package row

import (
	"math"
	"strconv"
	"strings"
	"sync"
)

// Kind is what a type is apart from its parameters.
type Kind uint8

// The kinds of types, in Flink's words.
const (
	KindNull Kind = iota // the type of a bare NULL
	KindBoolean
	KindTinyInt
	KindSmallInt
	KindInt
	KindBigInt
	KindFloat
	KindDouble
	KindDecimal
	KindChar
	KindVarChar
	KindBinary
	KindVarBinary
	KindDate
	KindTime
	KindTimestamp
	KindTimestampLTZ
	KindIntervalDay   // INTERVAL DAY TO SECOND: ms
	KindIntervalMonth // INTERVAL YEAR TO MONTH: months
	KindArray
	KindMap
	KindMultiset
	KindRow
)

var kindNames = [...]string{"NULL", "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "CHAR",
	"VARCHAR", "BINARY", "VARBINARY", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ", "INTERVAL DAY TO SECOND",
	"INTERVAL YEAR TO MONTH", "ARRAY", "MAP", "MULTISET", "ROW"}

func (k Kind) String() string { return kindNames[k] }

// Integer says whether k is one of TINYINT, SMALLINT, INT, BIGINT.
func (k Kind) Integer() bool { return k >= KindTinyInt && k <= KindBigInt }

// Approximate says whether k is FLOAT or DOUBLE.
func (k Kind) Approximate() bool { return k == KindFloat || k == KindDouble }

// Numeric says whether k is an integer, FLOAT, DOUBLE or DECIMAL.
func (k Kind) Numeric() bool { return k >= KindTinyInt && k <= KindDecimal }

// Text says whether k is CHAR or VARCHAR.
func (k Kind) Text() bool { return k == KindChar || k == KindVarChar }

// Bytes says whether k is BINARY or VARBINARY.
func (k Kind) Bytes() bool { return k == KindBinary || k == KindVarBinary }

// Interval says whether k is one of the two intervals.
func (k Kind) Interval() bool { return k == KindIntervalDay || k == KindIntervalMonth }

// Datetime says whether k is DATE, TIME, TIMESTAMP or TIMESTAMP_LTZ.
func (k Kind) Datetime() bool { return k >= KindDate && k <= KindTimestampLTZ }

// Nested says whether k is ARRAY, MAP, MULTISET or ROW.
func (k Kind) Nested() bool { return k >= KindArray }

// TimeMark tells that a column is a time attribute.
type TimeMark uint8

// The marks, in the words of Flink's schemas.
const (
	NoMark   TimeMark = iota
	Rowtime           // *ROWTIME*: event time
	Proctime          // *PROCTIME*: processing time
)

// MaxLength is the length of STRING and BYTES.
const MaxLength = math.MaxInt32

// MaxPrecision is the most digits of a DECIMAL.
const MaxPrecision = 38

// Field is a field of a ROW type.
type Field struct {
	Name string
	Type *Type
}

// Type is the type of a value. Types are immutable and interned: equal types are one pointer.
type Type struct {
	kind      Kind
	nullable  bool
	mark      TimeMark
	precision int
	scale     int
	elem      *Type
	key       *Type
	fields    []Field

	text  string // String without NOT NULL and mark
	other *Type  // the same type with the other nullability and no mark
	shape shape
}

// Kind is the kind of the type.
func (t *Type) Kind() Kind { return t.kind }

// IsNullable says whether NULL is a value of the type.
func (t *Type) IsNullable() bool { return t.nullable }

// Precision is the digits of a DECIMAL, or the digits of the fraction of a second of TIME, TIMESTAMP and TIMESTAMP_LTZ;
// for other kinds 0.
func (t *Type) Precision() int {
	if t.kind == KindDecimal || t.kind.Datetime() {
		return t.precision
	}
	return 0
}

// Scale is the digits behind the point of a DECIMAL.
func (t *Type) Scale() int { return t.scale }

// Length is the length of CHAR, VARCHAR (code points), BINARY and VARBINARY (bytes); [MaxLength] for STRING and BYTES.
func (t *Type) Length() int {
	if t.kind.Text() || t.kind.Bytes() {
		return t.precision
	}
	return 0
}

// Elem is the type of the elements of an ARRAY or MULTISET, or of the values of a MAP; else nil.
func (t *Type) Elem() *Type { return t.elem }

// Key is the type of the keys of a MAP; else nil.
func (t *Type) Key() *Type { return t.key }

// NumFields is the number of fields of a ROW.
func (t *Type) NumFields() int { return len(t.fields) }

// Field is field i of a ROW, from 0.
func (t *Type) Field(i int) Field { return t.fields[i] }

// FieldIndex is the index of the field of that name of a ROW, -1 if there is none. Names are case-sensitive.
func (t *Type) FieldIndex(name string) int {
	for i := range t.fields {
		if t.fields[i].Name == name {
			return i
		}
	}
	return -1
}

// Mark tells whether the type is that of a time attribute.
func (t *Type) Mark() TimeMark { return t.mark }

// WithMark is the type with another mark.
func (t *Type) WithMark(m TimeMark) *Type {
	if t.mark == m {
		return t
	}
	u := *t
	u.mark = m
	return intern(u)
}

// Nullable is the type with that nullability. The mark stays.
func (t *Type) Nullable(yes bool) *Type {
	if t.nullable == yes {
		return t
	}
	if t.mark == NoMark && t.other != nil {
		return t.other
	}
	u := *t
	u.nullable = yes
	return intern(u)
}

// NotNull is the type without NULL.
func (t *Type) NotNull() *Type { return t.Nullable(false) }

// Plain is the type with NULL and without mark: two types with one Plain differ in nullability (at the top) or mark only.
func (t *Type) Plain() *Type { return t.WithMark(NoMark).Nullable(true) }

// String is the type as Flink prints it in a schema, such as "ROW<`a` INT NOT NULL> NOT NULL" or
// "TIMESTAMP(3) *ROWTIME*".
func (t *Type) String() string {
	s := t.text
	if !t.nullable {
		s += " NOT NULL"
	}
	switch t.mark {
	case Rowtime:
		s += " *ROWTIME*"
	case Proctime:
		s += " *PROCTIME*"
	}
	return s
}

// Text is String without NOT NULL (of the type itself) and without mark: what TYPEOF and messages about casts name.
func (t *Type) Text() string { return t.text }

// interned has all types by their string. Types come from the text of queries and schemas, so there are few, and none is
// ever let go: a pointer must stay equal to later ones.
var interned struct {
	sync.RWMutex
	types map[string]*Type
}

func intern(u Type) *Type {
	u.text = typeText(&u)
	u.other = nil
	name := u.String()
	interned.RLock()
	t := interned.types[name]
	interned.RUnlock()
	if t != nil {
		return t
	}
	u.shape = shapeOf(&u)
	interned.Lock()
	defer interned.Unlock()
	if interned.types == nil {
		interned.types = map[string]*Type{}
	}
	if t := interned.types[name]; t != nil {
		return t
	}
	t = &u
	if u.mark == NoMark {
		// Both nullabilities are made at once, so that Nullable needs no lookup.
		v := u
		v.nullable = !u.nullable
		v.other, t.other = t, &v
		interned.types[v.String()] = &v
	}
	interned.types[name] = t
	return t
}

func typeText(t *Type) string {
	switch t.kind {
	case KindDecimal:
		return "DECIMAL(" + strconv.Itoa(t.precision) + ", " + strconv.Itoa(t.scale) + ")"
	case KindVarChar:
		if t.precision == MaxLength {
			return "STRING"
		}
	case KindVarBinary:
		if t.precision == MaxLength {
			return "BYTES"
		}
	case KindIntervalDay:
		return "INTERVAL SECOND(3)"
	case KindIntervalMonth:
		return "INTERVAL MONTH"
	case KindArray, KindMultiset:
		return t.kind.String() + "<" + t.elem.String() + ">"
	case KindMap:
		return "MAP<" + t.key.String() + ", " + t.elem.String() + ">"
	case KindRow:
		var b strings.Builder
		b.WriteString("ROW<")
		for i, f := range t.fields {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString("`" + strings.ReplaceAll(f.Name, "`", "``") + "` " + f.Type.String())
		}
		b.WriteByte('>')
		return b.String()
	}
	switch t.kind {
	case KindChar, KindVarChar, KindBinary, KindVarBinary, KindTime, KindTimestamp, KindTimestampLTZ:
		return t.kind.String() + "(" + strconv.Itoa(t.precision) + ")"
	}
	return t.kind.String()
}

func simple(k Kind, precision int) *Type {
	return intern(Type{kind: k, nullable: true, precision: precision})
}

// Null is the type of a bare NULL.
func Null() *Type { return simple(KindNull, 0) }

// Boolean is BOOLEAN.
func Boolean() *Type { return simple(KindBoolean, 0) }

// TinyInt is TINYINT, 8 bits.
func TinyInt() *Type { return simple(KindTinyInt, 0) }

// SmallInt is SMALLINT, 16 bits.
func SmallInt() *Type { return simple(KindSmallInt, 0) }

// Int is INT, 32 bits.
func Int() *Type { return simple(KindInt, 0) }

// BigInt is BIGINT, 64 bits.
func BigInt() *Type { return simple(KindBigInt, 0) }

// Float is FLOAT, 32 bits.
func Float() *Type { return simple(KindFloat, 0) }

// Double is DOUBLE, 64 bits.
func Double() *Type { return simple(KindDouble, 0) }

// Decimal is DECIMAL(precision, scale): precision 1 to 38 digits, of them scale (0 to precision) behind the point.
func Decimal(precision, scale int) *Type {
	return intern(Type{kind: KindDecimal, nullable: true, precision: precision, scale: scale})
}

// Char is CHAR(n). CHAR(0) is the type of the empty literal.
func Char(n int) *Type { return simple(KindChar, n) }

// VarChar is VARCHAR(n).
func VarChar(n int) *Type { return simple(KindVarChar, n) }

// String is STRING, the VARCHAR of the greatest length.
func String() *Type { return simple(KindVarChar, MaxLength) }

// Binary is BINARY(n).
func Binary(n int) *Type { return simple(KindBinary, n) }

// VarBinary is VARBINARY(n).
func VarBinary(n int) *Type { return simple(KindVarBinary, n) }

// Bytes is BYTES, the VARBINARY of the greatest length.
func Bytes() *Type { return simple(KindVarBinary, MaxLength) }

// Date is DATE.
func Date() *Type { return simple(KindDate, 0) }

// Time is TIME(precision), 0 to 9 digits; values have ms at most.
func Time(precision int) *Type { return simple(KindTime, precision) }

// Timestamp is TIMESTAMP(precision), 0 to 9 digits: a local date and time without zone.
func Timestamp(precision int) *Type { return simple(KindTimestamp, precision) }

// TimestampLTZ is TIMESTAMP_LTZ(precision), 0 to 9 digits: an instant, shown in the zone of the session.
func TimestampLTZ(precision int) *Type { return simple(KindTimestampLTZ, precision) }

// IntervalDay is the interval of days, hours, minutes and seconds, whatever its units: "INTERVAL SECOND(3)", ms.
func IntervalDay() *Type { return simple(KindIntervalDay, 0) }

// IntervalMonth is the interval of years and months: "INTERVAL MONTH", months.
func IntervalMonth() *Type { return simple(KindIntervalMonth, 0) }

// Array is ARRAY<elem>.
func Array(elem *Type) *Type { return intern(Type{kind: KindArray, nullable: true, elem: elem}) }

// Map is MAP<key, value>.
func Map(key, value *Type) *Type {
	return intern(Type{kind: KindMap, nullable: true, key: key, elem: value})
}

// Multiset is MULTISET<elem>.
func Multiset(elem *Type) *Type { return intern(Type{kind: KindMultiset, nullable: true, elem: elem}) }

// RowOf is ROW<fields>. It keeps the slice.
func RowOf(fields ...Field) *Type { return intern(Type{kind: KindRow, nullable: true, fields: fields}) } //nolint:revive // the ROW type, beside the Row that is no type
