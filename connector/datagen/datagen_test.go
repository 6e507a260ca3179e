package datagen

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/catalog"
)

// tableOf makes a table of columns "name TYPE", with all of them read.
func tableOf(options map[string]string, columns ...catalog.Column) connector.Table {
	t := connector.Table{Table: &catalog.Table{Columns: columns, Options: options}, Options: options, Zone: row.UTC()}
	var types []*row.Type
	for i, c := range columns {
		t.Columns = append(t.Columns, i)
		types = append(types, c.Type)
	}
	t.Layout = row.NewLayout(types...)
	return t
}

func col(name string, t *row.Type) catalog.Column { return catalog.Column{Name: name, Type: t} }

const noon = 1_700_000_000_000

// run takes up to n rows from a subtask, restarting it after each stop rows; 0 = never.
func run(t *testing.T, tab connector.Table, subtask, subtasks int64, n, stop int) (rows []string) {
	t.Helper()
	r, err := read(tab)
	if err != nil {
		t.Fatal(err)
	}
	var position []byte
	for {
		g, err := open(r, tab, subtask, subtasks, position)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; ; i++ {
			if len(rows) == n {
				return rows
			}
			if stop > 0 && i == stop {
				position = g.Position(nil)
				break
			}
			var got *row.Row
			_, err := g.Next(noon, func() *row.Row {
				got = tab.Layout.New()
				for i := range tab.Layout.Len() {
					got.SetNull(i)
				}
				return got
			})
			if got != nil {
				rows = append(rows, string(tab.Layout.AppendResult(nil, got)))
			}
			if errors.Is(err, io.EOF) {
				return rows
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// every column type that there is, with settings.
var everything = []catalog.Column{
	col("b", row.Boolean()), col("t", row.TinyInt()), col("s", row.SmallInt()), col("i", row.Int()), col("l", row.BigInt()),
	col("f", row.Float()), col("d", row.Double()), col("m", row.Decimal(10, 2)), col("big", row.Decimal(38, 10)),
	col("c", row.Char(5)), col("v", row.VarChar(7)), col("str", row.String()), col("bin", row.Binary(3)), col("by", row.Bytes()),
	col("da", row.Date()), col("ti", row.Time(3)), col("ts", row.Timestamp(3)), col("tz", row.TimestampLTZ(6)),
	col("arr", row.Array(row.Int())), col("map", row.Map(row.String(), row.Double())), col("ms", row.Multiset(row.Int())),
	col("ro", row.RowOf(row.Field{Name: "x", Type: row.Int()}, row.Field{Name: "y", Type: row.String()})),
}

func settings() map[string]string {
	return map[string]string{"connector": "datagen", "seed": "7", "number-of-rows": "100", "rows-per-second": "1000000000",
		"fields.i.min": "-3", "fields.i.max": "3", "fields.str.length": "4", "fields.by.length": "8", "fields.by.var-len": "true", "fields.ts.max-past": "1 h",
		"fields.v.null-rate": "0.5", "fields.arr.length": "2", "fields.arr.element.max": "9", "fields.arr.element.min": "0", "fields.ro.x.kind": "random", "fields.ro.y.length": "2",
		"fields.map.key.length": "3", "fields.d.min": "1.5", "fields.d.max": "2.5", "fields.m.max": "99.5"}
}

// TestRowsDoNotDependOnRestarts: nor on the number of subtasks.
func TestRowsDoNotDependOnRestarts(t *testing.T) {
	tab := tableOf(settings(), everything...)
	want := run(t, tab, 0, 1, 1000, 0)
	if len(want) != 100 {
		t.Fatalf("%d rows, want 100", len(want))
	}
	if distinct := slices.Compact(slices.Sorted(slices.Values(want))); len(distinct) != 100 {
		t.Errorf("%d distinct rows of 100", len(distinct))
	}
	for _, stop := range []int{1, 7} {
		if got := run(t, tab, 0, 1, 1000, stop); !slices.Equal(got, want) {
			t.Errorf("restarted after each %d rows the rows are others", stop)
		}
	}
	var parts [][]string
	for k := range int64(3) {
		parts = append(parts, run(t, tab, k, 3, 1000, 5))
	}
	for i, w := range want {
		if got := parts[i%3][i/3]; got != w {
			t.Fatalf("row %d of three subtasks is %s, want %s", i, got, w)
		}
	}
}

// TestSeed: without one each first start makes others, and a restart goes on with the same.
func TestSeed(t *testing.T) {
	o := map[string]string{"number-of-rows": "50", "rows-per-second": "1000000000"}
	tab := tableOf(o, col("l", row.BigInt()))
	r, err := read(tab)
	if err != nil {
		t.Fatal(err)
	}
	g, err := open(r, tab, 0, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := open(r, tab, 0, 1, g.Position(nil))
	if err != nil {
		t.Fatal(err)
	}
	other, err := open(r, tab, 0, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	value := func(g *generator) string {
		got := tab.Layout.New()
		if _, err := g.Next(noon, func() *row.Row { return got }); err != nil {
			t.Fatal(err)
		}
		return string(tab.Layout.AppendResult(nil, got))
	}
	a, b, c := value(g), value(again), value(other)
	if a != b || a == c {
		t.Errorf("first %s, after a restart %s, of another app %s", a, b, c)
	}
}

// TestValues looks at what settings ask for.
func TestValues(t *testing.T) {
	tab := tableOf(settings(), everything...)
	nulls := 0
	lengths := map[int]bool{}
	for _, text := range run(t, tab, 0, 1, 1000, 0) {
		vs, err := tab.Layout.ReadResult([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		v := map[string]row.Value{}
		for i, c := range everything {
			v[c.Name] = vs[i]
		}
		if v["v"] == nil {
			nulls++
		} else if len(v["v"].(string)) != 7 {
			t.Errorf("v is %q", v["v"])
		}
		lengths[len(v["by"].([]byte))] = true
		i, d := v["i"].(int64), v["d"].(float64)
		at := v["ts"].(row.Stamp).Ms
		if i < -3 || i > 3 || d < 1.5 || d > 2.5 || at > noon || at < noon-3_600_000 || len(v["str"].(string)) != 4 || len(v["c"].(string)) != 5 ||
			len(v["arr"].([]row.Value)) != 2 || strings.Trim(v["str"].(string), "0123456789abcdef") != "" || v["tz"].(row.Stamp).Ms != noon || v["da"].(int64) != noon/row.MsPerDay {
			t.Errorf("row %v", text)
		}
		for _, e := range v["arr"].([]row.Value) {
			if n := e.(int64); n < 0 || n > 9 {
				t.Errorf("element %d", n)
			}
		}
	}
	if nulls < 30 || nulls > 70 {
		t.Errorf("%d of 100 are NULL, half was asked for", nulls)
	}
	if len(lengths) < 4 || lengths[0] || lengths[9] {
		t.Errorf("lengths %v, want several of 1 to 8", lengths)
	}
}

// TestSequence counts up and ends the table; of two the shorter.
func TestSequence(t *testing.T) {
	o := map[string]string{"rows-per-second": "1000000000", "fields.a.kind": "sequence", "fields.a.start": "-2", "fields.a.end": "1",
		"fields.b.kind": "sequence", "fields.b.start": "5", "fields.b.end": "99", "fields.c.kind": "sequence", "fields.c.start": "5", "fields.c.end": "99"}
	tab := tableOf(o, col("a", row.BigInt()), col("b", row.String()), col("c", row.Decimal(5, 1)))
	got := strings.Join(run(t, tab, 0, 1, 1000, 3), " ")
	if want := `[-2, "5", "5.0"] [-1, "6", "6.0"] [0, "7", "7.0"] [1, "8", "8.0"]`; strings.ReplaceAll(got, ",", ", ") != strings.ReplaceAll(want, ",", ", ") && got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestPace: rows come at their rate, what is late comes at once, and what is very late is left out.
func TestPace(t *testing.T) {
	tab := tableOf(map[string]string{"rows-per-second": "10", "seed": "1"}, col("a", row.Int()))
	r, err := read(tab)
	if err != nil {
		t.Fatal(err)
	}
	g, err := open(r, tab, 0, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	made := 0
	at := func(now int64) (again int64) {
		again, err := g.Next(now, func() *row.Row { made++; return tab.Layout.New() })
		if err != nil {
			t.Fatal(err)
		}
		return again
	}
	if again := at(noon); again != noon+100 || made != 1 {
		t.Errorf("the first row: again at +%d, %d rows", again-noon, made)
	}
	if again := at(noon + 50); again != noon+100 || made != 1 {
		t.Errorf("before its time: again at +%d, %d rows", again-noon, made)
	}
	for i := range 5 { // of +100 to +500
		if again := at(noon + 500); again != noon+200+100*int64(i) || made != i+2 {
			t.Errorf("late row %d: again at +%d, %d rows", i, again-noon, made)
		}
	}
	for n := made; at(noon+60_000) <= noon+60_000; {
		if made > n+20 {
			t.Fatalf("%d rows at once after a minute, want those of a second", made-n)
		}
	}
}

func TestWrongSettings(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{"rows-per-secnd", "1", "did you mean 'rows-per-second'?"},
		{"rows-per-second", "0", "at least 1"},
		{"number-of-rows", "-1", "must not be negative"},
		{"fields.i.mni", "1", "did you mean 'fields.i.min'?"},
		{"fields.j.min", "1", "did you mean"},
		{"fields.i.kind", "some", "must be random or sequence"},
		{"fields.i.kind", "sequence", "'fields.i.start' is missing"},
		{"fields.b.kind", "sequence", "cannot be counted up"},
		{"fields.t.max", "128", "a whole number from -128 to 127"},
		{"fields.i.min", "5", "at most max, 3"},
		{"fields.v.length", "8", "a whole number from 1 to 7"},
		{"fields.ts.max-past", "soon", "must be a duration"},
		{"fields.i.null-rate", "2", "a number from 0 to 1"},
		{"scan.parallelism", "0", "1 to 1024"},
		{"seed", "x", "whole number"},
	} {
		o := settings()
		o[c.name] = c.value
		_, err := New().Traits(tableOf(o, everything...))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s = %s: error %v, want one with %q", c.name, c.value, err, c.want)
		}
	}
	if _, err := New().Traits(tableOf(settings(), everything...)); err != nil {
		t.Errorf("right settings: %v", err)
	}
}

func BenchmarkRow(b *testing.B) {
	tab := tableOf(map[string]string{"seed": "1", "rows-per-second": "1000000000"}, col("l", row.BigInt()), col("s", row.VarChar(20)), col("d", row.Double()), col("t", row.Timestamp(3)))
	r, err := read(tab)
	if err != nil {
		b.Fatal(err)
	}
	g, err := open(r, tab, 0, 1, nil)
	if err != nil {
		b.Fatal(err)
	}
	out := tab.Layout.New()
	now := int64(noon)
	for b.Loop() {
		now++
		if _, err := g.Next(now, func() *row.Row { return out }); err != nil {
			b.Fatal(err)
		}
	}
}
