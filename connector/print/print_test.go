package print //nolint:predeclared,forbidigo // the name of the connector

import (
	"bytes"
	"testing"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/catalog"
)

// TestText: values are printed as Java's classes print them, which Flink's print sink uses.
func TestText(t *testing.T) {
	inner := row.RowOf(row.Field{Name: "x", Type: row.Int()}, row.Field{Name: "y", Type: row.String()})
	dec := func(s string, p, scale int) row.Value {
		d, err := row.ParseDec([]byte(s), p, scale)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for _, c := range []struct {
		t    *row.Type
		v    row.Value
		want string
	}{
		{row.Int(), nil, "null"},
		{row.Boolean(), true, "true"},
		{row.BigInt(), int64(-5), "-5"},
		{row.Double(), 1.0, "1.0"},
		{row.Double(), 1e10, "1.0E10"},
		{row.Float(), float64(float32(0.1)), "0.1"},
		{row.Decimal(10, 2), dec("-1.50", 10, 2), "-1.50"},
		{row.Decimal(10, 8), dec("0.00000012", 10, 8), "1.2E-7"},
		{row.Decimal(10, 8), dec("-0.00000012", 10, 8), "-1.2E-7"},
		{row.Decimal(10, 8), dec("0", 10, 8), "0E-8"},
		{row.Decimal(10, 6), dec("0.000001", 10, 6), "0.000001"},
		{row.String(), "a, b", "a, b"},
		{row.Bytes(), []byte{1, 255}, "[1, -1]"},
		{row.Date(), int64(0), "1970-01-01"},
		{row.Time(0), int64(12 * 3600_000), "12:00"},
		{row.Time(3), int64(12*3600_000 + 1001), "12:00:01.001"},
		{row.Timestamp(3), row.Stamp{Ms: 0}, "1970-01-01T00:00"},
		{row.Timestamp(9), row.Stamp{Ms: 1500, Nanos: 10}, "1970-01-01T00:00:01.500000010"},
		{row.Timestamp(6), row.Stamp{Ms: 1500, Nanos: 1000}, "1970-01-01T00:00:01.500001"},
		{row.TimestampLTZ(3), row.Stamp{Ms: 0}, "1970-01-01T00:00:00Z"},
		{row.Array(row.Int()), []row.Value{int64(1), nil}, "[1, null]"},
		{row.Map(row.String(), row.Int()), []row.Entry{{Key: "a", Value: int64(1)}}, "{a=1}"},
		{row.Multiset(row.String()), []row.Entry{{Key: "a", Value: int64(2)}}, "{a=2}"},
		{inner, []row.Value{int64(1), "z"}, "+I[1, z]"},
	} {
		l := row.NewLayout(c.t, row.Int())
		r := l.RowOf(c.v, int64(7))
		r.Kind = row.UpdateAfter
		if got := string(appendRow(nil, l, r)); got != "+U["+c.want+", 7]" {
			t.Errorf("%s is printed %s, want +U[%s, 7]", c.t, got, c.want)
		}
	}
}

func TestPrefix(t *testing.T) {
	for _, c := range []struct {
		id   string
		s    processor.Subtask
		want string
	}{
		{"", processor.Subtask{Parallelism: 1}, ""},
		{"x", processor.Subtask{Parallelism: 1}, "x> "},
		{"", processor.Subtask{Index: 1, Parallelism: 2}, "2> "},
		{"x", processor.Subtask{Index: 1, Parallelism: 2}, "x:2> "},
	} {
		if got := prefix(c.id, c.s); got != c.want {
			t.Errorf("prefix of %q in subtask %+v is %q, want %q", c.id, c.s, got, c.want)
		}
	}
}

// TestCommitted: lines are printed with their epoch, and those of an epoch that fails not at all.
func TestCommitted(t *testing.T) {
	var out, errs bytes.Buffer
	c := To(&out, &errs)
	open := func(o map[string]string) processor.External {
		s, err := c.Sink(connector.Table{Table: &catalog.Table{}, Options: o, Layout: row.NewLayout()})
		if err != nil {
			t.Fatal(err)
		}
		e, err := s.External(nil)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	e := open(nil)
	write := func(e processor.External, s string) {
		if err := e.Write(nil, []byte(s)); err != nil {
			t.Fatal(err)
		}
		if h, err := e.Prepare(t.Context(), 1, false); h != nil || err != nil {
			t.Fatal(h, err)
		}
	}
	write(e, "a\n")
	if out.Len() != 0 {
		t.Errorf("before the commit: %q", out.String())
	}
	if err := e.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	write(e, "lost\n")
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = open(map[string]string{"standard-error": "true"})
	write(e, "b\n")
	if err := e.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out.String() != "a\n" || errs.String() != "b\n" {
		t.Errorf("output %q, error %q", out.String(), errs.String())
	}
	if _, err := c.Traits(connector.Table{Options: map[string]string{"standard-err": "true"}}); err == nil {
		t.Error("an option that there is not is taken")
	}
}
