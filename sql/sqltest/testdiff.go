package sqltest

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/millrace-stream/millrace/row"
)

// wantRow is a row that a test expects. Columns that it does not name are not compared.
type wantRow struct {
	kind    row.RowKind
	columns []int       // of the sink
	values  []row.Value // of each of columns
}

// want reads an expected row.
func (s *testSink) want(tr TestRow) (wantRow, error) {
	w := wantRow{kind: tr.Kind}
	obj, err := parseObject([]byte(tr.JSON))
	if err != nil {
		return w, err
	}
	for name := range obj {
		if !slices.Contains(s.names, name) {
			return w, unknownColumn(s.table, name)
		}
	}
	for i, name := range s.names {
		raw, ok := obj[name]
		if !ok {
			continue
		}
		v, err := testValue(s.layout.Type(i), raw)
		if err != nil {
			return w, fmt.Errorf("column %s: %w", name, err)
		}
		w.columns, w.values = append(w.columns, i), append(w.values, v)
	}
	return w, nil
}

// testValue converts a value of JSON to a type: as messages in JSON have it, or as a test's result is printed.
func testValue(t *row.Type, raw any) (row.Value, error) {
	if s, ok := raw.(string); ok && (t.Kind() == row.KindTimestamp || t.Kind() == row.KindTimestampLTZ) {
		if s = plainTime(s); t.Kind() == row.KindTimestampLTZ {
			s += "Z"
		}
		raw = s
	}
	v, err := valueOf(t, raw)
	if err == nil {
		return v, nil
	}
	if w, e := row.ReadResultValue(t, appendJSON(nil, raw)); e == nil {
		return w, nil
	}
	return nil, fmt.Errorf("%s is no %s", appendJSON(nil, raw), t)
}

// differ are the columns, as indexes into w.columns, in which a row is not as expected.
func (s *testSink) differ(w wantRow, c Change) (out []int) {
	for k, i := range w.columns {
		if !s.equal(i, w.values[k], c.values[i]) {
			out = append(out, k)
		}
	}
	return out
}

// equal compares values of a column; numbers with a fraction may differ by rounding.
func (s *testSink) equal(i int, a, b row.Value) bool {
	t := s.layout.Type(i)
	if t.Kind().Approximate() && closeTo(a, b) {
		return true
	}
	return string(row.AppendResultValue(nil, t, a)) == string(row.AppendResultValue(nil, t, b))
}

// compare says which rows are missing and which are too many, in any order; "" = none.
func (s *testSink) compare(want []wantRow, got []Change) string {
	taken := make([]int, len(got)) // by whom, -1 = nobody
	for i := range taken {
		taken[i] = -1
	}
	fits := func(w, g int) bool { return want[w].kind == got[g].Kind && len(s.differ(want[w], got[g])) == 0 }
	// A row that names few columns may take one that another needs: then that one looks for another, and so on.
	var place func(w int, tried []bool) bool
	place = func(w int, tried []bool) bool {
		for g := range got {
			if tried[g] || !fits(w, g) {
				continue
			}
			tried[g] = true
			if taken[g] < 0 || place(taken[g], tried) {
				taken[g] = w
				return true
			}
		}
		return false
	}
	var missing []int
	for w := range want {
		if !place(w, make([]bool, len(got))) {
			missing = append(missing, w)
		}
	}
	var extra []int
	for g := range got {
		if taken[g] < 0 {
			extra = append(extra, g)
		}
	}
	return s.tell(want, got, missing, extra)
}

// tell writes what is missing beside what came in its place.
func (s *testSink) tell(want []wantRow, got []Change, missing, extra []int) string {
	var b strings.Builder
	for _, w := range missing {
		fmt.Fprintf(&b, "    missing     %s\n", s.wantLine(want[w]))
		best, least := -1, math.MaxInt
		for _, g := range extra {
			d := len(s.differ(want[w], got[g]))
			if want[w].kind != got[g].Kind {
				d++
			}
			// A row that has nothing in common does not stand in its place.
			if d < least && d < max(len(want[w].columns), 2) {
				best, least = g, d
			}
		}
		if best < 0 {
			continue
		}
		extra = slices.DeleteFunc(slices.Clone(extra), func(g int) bool { return g == best })
		fmt.Fprintf(&b, "    unexpected  %s\n", s.line(got[best]))
		var notes []string
		if want[w].kind != got[best].Kind {
			notes = append(notes, fmt.Sprintf("the kind is %s, want %s", got[best].Kind, want[w].kind))
		}
		for _, k := range s.differ(want[w], got[best]) {
			i := want[w].columns[k]
			notes = append(notes, fmt.Sprintf("%s is %s, want %s", s.names[i], s.value(i, got[best].values[i]), s.value(i, want[w].values[k])))
		}
		fmt.Fprintf(&b, "                %s\n", strings.Join(notes, "; "))
	}
	for _, g := range extra {
		fmt.Fprintf(&b, "    unexpected  %s\n", s.line(got[g]))
	}
	return strings.TrimRight(b.String(), "\n")
}

func (s *testSink) value(i int, v row.Value) []byte {
	return row.AppendResultValue(nil, s.layout.Type(i), v)
}

// line is a row as a test expects it: +I is not written.
func (s *testSink) line(c Change) string {
	w := wantRow{kind: c.Kind, values: c.values}
	for i := range s.names {
		w.columns = append(w.columns, i)
	}
	return s.wantLine(w)
}

func (s *testSink) wantLine(w wantRow) string {
	var b strings.Builder
	if w.kind != row.Insert {
		b.WriteString(w.kind.String() + " ")
	}
	b.WriteByte('{')
	for k, i := range w.columns {
		if k > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s: %s", appendJSON(nil, s.names[i]), s.value(i, w.values[k]))
	}
	b.WriteByte('}')
	return b.String()
}

// appendJSON appends a value as JSON.
func appendJSON(dst []byte, v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Append(dst, v)
	}
	return append(dst, b...)
}
