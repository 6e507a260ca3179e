package print //nolint:predeclared,forbidigo // the name of the connector

import (
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/millrace-stream/millrace/row"
)

// appendRow appends a row as Flink prints it: its kind and the values in the text forms of Java.
func appendRow(dst []byte, l *row.Layout, r *row.Row) []byte {
	dst = append(append(dst, r.Kind.String()...), '[')
	for i := range l.Len() {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = appendValue(dst, l.Type(i), l.Get(r, i))
	}
	return append(dst, ']')
}

func appendValue(dst []byte, t *row.Type, v row.Value) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...)
	case bool:
		return strconv.AppendBool(dst, v)
	case float64:
		if t.Kind() == row.KindFloat {
			return row.AppendFloat(dst, v)
		}
		return row.AppendDouble(dst, v)
	case row.Dec:
		return appendDecimal(dst, v, t.Scale())
	case string:
		return append(dst, v...)
	case []byte:
		dst = append(dst, '[')
		for i, b := range v {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = strconv.AppendInt(dst, int64(int8(b)), 10) // Java has no unsigned bytes
		}
		return append(dst, ']')
	case row.Stamp:
		at := time.UnixMilli(v.Ms).UTC().Add(time.Duration(v.Nanos))
		if t.Kind() == row.KindTimestampLTZ {
			return append(appendClock(append(at.AppendFormat(dst, time.DateOnly), 'T'), at, true), 'Z')
		}
		return appendClock(append(at.AppendFormat(dst, time.DateOnly), 'T'), at, false)
	case []row.Entry:
		dst = append(dst, '{')
		key, value := t.Elem(), row.Int() // of a MULTISET
		if t.Kind() == row.KindMap {
			key, value = t.Key(), t.Elem()
		}
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = append(appendValue(dst, key, e.Key), '=')
			dst = appendValue(dst, value, e.Value)
		}
		return append(dst, '}')
	case []row.Value:
		if t.Kind() == row.KindRow {
			dst = append(dst, row.Insert.String()...)
		}
		dst = append(dst, '[')
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			et := t.Elem()
			if t.Kind() == row.KindRow {
				et = t.Field(i).Type
			}
			dst = appendValue(dst, et, e)
		}
		return append(dst, ']')
	case int64:
		switch t.Kind() {
		case row.KindDate:
			return row.AppendDate(dst, v)
		case row.KindTime:
			return appendClock(dst, time.UnixMilli(v).UTC(), false)
		case row.KindIntervalDay:
			return row.AppendIntervalDay(dst, v)
		case row.KindIntervalMonth:
			return row.AppendIntervalMonth(dst, v)
		}
		return strconv.AppendInt(dst, v, 10)
	}
	return append(dst, '?')
}

// appendClock appends the time of day as LocalTime does: no seconds if they are 0, unless seconds is set, and 3, 6 or 9
// digits of a fraction.
func appendClock(dst []byte, at time.Time, seconds bool) []byte {
	ns := at.Nanosecond()
	switch {
	case ns == 0 && at.Second() == 0 && !seconds:
		return at.AppendFormat(dst, "15:04")
	case ns == 0:
		return at.AppendFormat(dst, time.TimeOnly)
	case ns%1e6 == 0:
		return at.AppendFormat(dst, "15:04:05.000")
	case ns%1e3 == 0:
		return at.AppendFormat(dst, "15:04:05.000000")
	}
	return at.AppendFormat(dst, "15:04:05.000000000")
}

// appendDecimal appends a number as BigDecimal.toString does: with an exponent if there are more than 6 zeros behind the
// point.
func appendDecimal(dst []byte, d row.Dec, scale int) []byte {
	digits := new(big.Int)
	if _, ok := digits.SetString(strings.Replace(string(row.AppendDec(nil, d, scale)), ".", "", 1), 10); !ok {
		return row.AppendDec(dst, d, scale)
	}
	n := len(new(big.Int).Abs(digits).String())
	exponent := n - 1 - scale
	if exponent >= -6 {
		return row.AppendDec(dst, d, scale)
	}
	text := digits.String()
	if digits.Sign() < 0 {
		dst = append(dst, '-')
		text = text[1:]
	}
	dst = append(dst, text[0])
	if n > 1 {
		dst = append(append(dst, '.'), text[1:]...)
	}
	return strconv.AppendInt(append(dst, 'E'), int64(exponent), 10)
}
