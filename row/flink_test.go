package row

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var callForm = regexp.MustCompile(`^(\w+)\((.*)\)$`)
var castForm = regexp.MustCompile(`^'((?:[^']|'')*)' AS (\w+)(?:\((\d+)(?:, (\d+))?\))?$`)
var argForm = regexp.MustCompile(`^(?:'((?:[^']|'')*)'|([^',]+))(?:, |$)`)

// TestTextAgreesWithFlink runs each line of testdata/flink.txt: patterns, and casts from text.
func TestTextAgreesWithFlink(t *testing.T) {
	file, err := os.Open("testdata/flink.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	n := 0
	for sc := bufio.NewScanner(file); sc.Scan(); {
		line := sc.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		part := strings.Split(line, " ==> ")
		want := part[len(part)-1]
		call := callForm.FindStringSubmatch(part[0])
		if call == nil {
			t.Fatalf("%s: not a call", line)
		}
		var got string
		if call[1] == "CAST" || call[1] == "TRY_CAST" {
			got = castText(t, call[1], call[2])
		} else {
			var args []string
			for rest := call[2]; rest != ""; {
				m := argForm.FindStringSubmatch(rest)
				if m == nil {
					t.Fatalf("%s: arguments %s", line, rest)
				}
				args = append(args, strings.ReplaceAll(m[1], "''", "'")+m[2])
				rest = rest[len(m[0]):]
			}
			got = callText(t, call[1], args)
		}
		if got == "" {
			continue // not of this package
		}
		n++
		if got != want {
			t.Errorf("%s: got %s, want %s", part[0], got, want)
		}
	}
	if n < 200 {
		t.Errorf("only %d lines were checked", n)
	}
}

func result(t *Type, v Value) string { return "[" + string(AppendResultValue(nil, t, v)) + "]" }

func callText(t *testing.T, name string, args []string) string {
	const failed = "error runtime"
	arg := func(i int, missing string) string {
		if i < len(args) {
			return args[i]
		}
		return missing
	}
	simple := func(p string) *SimpleFormat {
		f, err := NewSimpleFormat(p)
		if err != nil {
			return nil
		}
		return f
	}
	const standard = "yyyy-MM-dd HH:mm:ss"
	switch name {
	case "DATE_FORMAT":
		at, ok := map[string]Stamp{"c": {1709658489012, 345678}, "d": {1730592000000, 0}, "z": {1720163289000, 0}}[args[0]]
		if !ok {
			in, out := simple(standard), simple(args[1])
			ms, ok := in.Parse([]byte(args[0]), UTC())
			if !ok {
				return "[null]"
			}
			return result(String(), string(out.Append(nil, ms, UTC())))
		}
		f, err := NewDateTimeFormat(args[1])
		if err != nil || f.NoFormat != nil {
			return failed
		}
		return result(String(), string(f.Append(nil, at.Ms, at.Nanos)))
	case "FROM_UNIXTIME":
		f := simple(arg(1, standard))
		if f == nil {
			return failed
		}
		s, _ := strconv.ParseInt(args[0], 10, 64)
		return result(String(), string(f.Append(nil, s*1000, UTC())))
	case "UNIX_TIMESTAMP":
		ms, ok := simple(arg(1, standard)).Parse([]byte(args[0]), UTC())
		if !ok {
			return "[-9223372036854775808]"
		}
		return result(BigInt(), ms/1000)
	case "TO_DATE":
		if len(args) == 1 {
			days, err := ParseDate([]byte(args[0]))
			if err != nil {
				return "[null]"
			}
			return result(Date(), days)
		}
		ms, ok := simple(args[1]).Parse([]byte(args[0]), UTC())
		if !ok {
			return "[null]"
		}
		return result(Date(), FloorDiv(ms, MsPerDay))
	case "TO_TIMESTAMP":
		var ms, nanos int64
		ok := false
		if len(args) == 1 {
			var err error
			ms, nanos, err = ParseTimestamp([]byte(args[0]))
			ok = err == nil
		} else if f, err := NewDateTimeFormat(args[1]); err == nil {
			ms, nanos, ok = f.Parse([]byte(args[0]))
		}
		if !ok {
			return "[null]"
		}
		ms, nanos = TruncTimestamp(ms, nanos, 3)
		return result(Timestamp(3), Stamp{ms, nanos})
	case "CONVERT_TZ":
		f := simple(standard)
		ms, ok := f.Parse([]byte(args[0]), ZoneOrUTC(args[1]))
		if !ok {
			return "[null]"
		}
		return result(String(), string(f.Append(nil, ms, ZoneOrUTC(args[2]))))
	}
	t.Fatalf("no function %s", name)
	return ""
}

func castText(t *testing.T, cast, args string) string {
	m := castForm.FindStringSubmatch(args)
	if m == nil {
		return ""
	}
	b := []byte(strings.ReplaceAll(m[1], "''", "'"))
	p, _ := strconv.Atoi(m[3])
	s, _ := strconv.Atoi(m[4])
	var typ *Type
	var v Value
	var err error
	switch m[2] {
	case "TINYINT", "SMALLINT", "INT", "BIGINT":
		typ = map[string]*Type{"TINYINT": TinyInt(), "SMALLINT": SmallInt(), "INT": Int(), "BIGINT": BigInt()}[m[2]]
		v, err = ParseInt(b, 8*int(typ.shape.width))
	case "DOUBLE":
		typ = Double()
		v, err = ParseDouble(b, 64)
	case "FLOAT":
		typ = Float()
		v, err = ParseDouble(b, 32)
	case "DECIMAL":
		typ = Decimal(p, s)
		v, err = ParseDec(b, p, s)
	case "BOOLEAN":
		typ = Boolean()
		v, err = ParseBool(b)
	case "DATE":
		typ = Date()
		v, err = ParseDate(b)
	case "TIME":
		typ = Time(0)
		v, err = ParseTime(b)
	case "TIMESTAMP", "TIMESTAMP_LTZ":
		typ = Timestamp(p)
		if m[2] == "TIMESTAMP_LTZ" {
			typ = TimestampLTZ(p)
		}
		var at Stamp
		at.Ms, at.Nanos, err = ParseTimestamp(b)
		at.Ms, at.Nanos = TruncTimestamp(at.Ms, at.Nanos, p)
		v = at
	default:
		return ""
	}
	if err != nil {
		if cast == "CAST" {
			return "error runtime"
		}
		return "[null]"
	}
	return result(typ, v)
}

func TestTypesPrintAsFlinkDoes(t *testing.T) {
	r := RowOf(Field{"a", Int()}, Field{"b`c", Decimal(10, 2).NotNull()})
	for want, typ := range map[string]*Type{
		"BOOLEAN":                              Boolean(),
		"DECIMAL(38, 18) NOT NULL":             Decimal(38, 18).NotNull(),
		"STRING":                               String(),
		"BYTES NOT NULL":                       Bytes().NotNull(),
		"VARCHAR(3)":                           VarChar(3),
		"CHAR(1) NOT NULL":                     Char(1).NotNull(),
		"VARBINARY(2)":                         VarBinary(2),
		"TIME(0)":                              Time(0),
		"TIMESTAMP(3) NOT NULL *ROWTIME*":      Timestamp(3).NotNull().WithMark(Rowtime),
		"TIMESTAMP_LTZ(3) NOT NULL *PROCTIME*": TimestampLTZ(3).WithMark(Proctime).NotNull(),
		"INTERVAL SECOND(3)":                   IntervalDay(),
		"INTERVAL MONTH NOT NULL":              IntervalMonth().NotNull(),
		"ARRAY<INT NOT NULL> NOT NULL":         Array(Int().NotNull()).NotNull(),
		"MAP<STRING, ARRAY<INT>>":              Map(String(), Array(Int())),
		"MULTISET<INT> NOT NULL":               Multiset(Int()).NotNull(),
		"ROW<`a` INT, `b``c` DECIMAL(10, 2) NOT NULL>": r,
		"ARRAY<ROW<`key` STRING, `value` INT>>":        Array(RowOf(Field{"key", String()}, Field{"value", Int()})),
		"ROW<`x` ROW<`y` MULTISET<STRING>> NOT NULL>":  RowOf(Field{"x", RowOf(Field{"y", Multiset(String())}).NotNull()}),
		"NULL":         Null(),
		"TIMESTAMP(9)": Timestamp(9),
	} {
		if typ.String() != want {
			t.Errorf("%s, want %s", typ, want)
		}
		for _, u := range []*Type{typ.Nullable(true).Nullable(typ.IsNullable()), typ.WithMark(Rowtime).WithMark(typ.Mark())} {
			if u != typ {
				t.Errorf("there and back %s is another pointer: %s", typ, u)
			}
		}
	}
	if RowOf(Field{"a", Int()}, Field{"b`c", Decimal(10, 2).NotNull()}) != r || RowOf(Field{"A", Int()}, Field{"b`c", Decimal(10, 2).NotNull()}) == r {
		t.Error("equal types are not one pointer, or others are")
	}
	if fmt.Sprint(Timestamp(3).WithMark(Rowtime).Plain()) != "TIMESTAMP(3)" {
		t.Error("Plain keeps the mark")
	}
}
