package shell

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/rivo/uniseg"

	"github.com/millrace-stream/millrace/row"
)

// column is how a column of a result is shown.
type column struct {
	name  string
	typ   *row.Type // nil: text
	right bool      // a number
}

func columnsOf(names []string, types []*row.Type) []column {
	cols := make([]column, len(names))
	for i, n := range names {
		cols[i] = column{name: n}
		if types != nil {
			cols[i].typ = types[i]
			switch types[i].Kind() {
			case row.KindTinyInt, row.KindSmallInt, row.KindInt, row.KindBigInt, row.KindFloat, row.KindDouble, row.KindDecimal:
				cols[i].right = true
			}
		}
	}
	return cols
}

// maxCell is the width of the widest cell that is shown whole in a table.
const maxCell = 60

func width(s string) int { return uniseg.StringWidth(s) }

// null is the cell of NULL, so that no text is like it.
const null = "\x00NULL"

// cut is s in one line and at most n columns wide.
func cut(s string, n int) string {
	if s == null {
		s = "NULL"
	}
	s = strings.NewReplacer("\n", "\\n", "\r", "\\r", "\t", "\\t", "\x1b", "\\x1b").Replace(s)
	if width(s) <= n {
		return s
	}
	var b strings.Builder
	w := 0
	g := uniseg.NewGraphemes(s)
	for g.Next() {
		if w += g.Width(); w > n-1 {
			break
		}
		b.WriteString(g.Str())
	}
	return b.String() + "\u2026"
}

// widths are those of columns for these rows.
func widths(cols []column, rows [][]string) []int {
	ws := make([]int, len(cols))
	for i, c := range cols {
		ws[i] = width(cut(c.name, maxCell))
	}
	for _, r := range rows {
		for i, v := range r {
			ws[i] = max(ws[i], width(cut(v, maxCell)))
		}
	}
	return ws
}

// line writes cells side by side.
func line(b *strings.Builder, cols []column, ws []int, cells []string) {
	b.WriteByte('|')
	for i, v := range cells {
		v = cut(v, ws[i])
		pad := strings.Repeat(" ", ws[i]-width(v))
		b.WriteByte(' ')
		if cols[i].right {
			b.WriteString(pad + v)
		} else {
			b.WriteString(v + pad)
		}
		b.WriteString(" |")
	}
	b.WriteByte('\n')
}

func rule(b *strings.Builder, ws []int) {
	b.WriteByte('+')
	for _, w := range ws {
		b.WriteString(strings.Repeat("-", w+2) + "+")
	}
	b.WriteByte('\n')
}

func names(cols []column) []string {
	out := make([]string, len(cols))
	for i, c := range cols {
		out[i] = c.name
	}
	return out
}

// writeTable writes a table with a frame.
func writeTable(w io.Writer, cols []column, rows [][]string) error {
	var b strings.Builder
	ws := widths(cols, rows)
	rule(&b, ws)
	line(&b, cols, ws, names(cols))
	rule(&b, ws)
	for _, r := range rows {
		line(&b, cols, ws, r)
	}
	if len(rows) > 0 {
		rule(&b, ws)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// count is "1 row" or "3 rows".
func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// changelog writes changes as they come: op and the cells. Its columns are as wide as their types need.
type changelog struct {
	w    io.Writer
	cols []column
	ws   []int
	head bool
}

func newChangelog(w io.Writer, cols []column) *changelog {
	c := &changelog{w: w, cols: append([]column{{name: "op"}}, cols...)}
	for _, col := range c.cols {
		n := width(cut(col.name, maxCell))
		switch {
		case col.name == "op" && col.typ == nil:
		case col.right:
			n = max(n, 12)
		default:
			n = max(n, 24)
		}
		c.ws = append(c.ws, n)
	}
	return c
}

func (c *changelog) write(kind row.RowKind, cells []string) error {
	var b strings.Builder
	if !c.head {
		c.head = true
		rule(&b, c.ws)
		line(&b, c.cols, c.ws, names(c.cols))
		rule(&b, c.ws)
	}
	line(&b, c.cols, c.ws, append([]string{kind.String()}, cells...))
	_, err := io.WriteString(c.w, b.String())
	return err
}

// end closes the frame.
func (c *changelog) end() error {
	if !c.head {
		return nil
	}
	var b strings.Builder
	rule(&b, c.ws)
	_, err := io.WriteString(c.w, b.String())
	return err
}

// writeCSV writes rows with a head.
func writeCSV(w io.Writer, cols []column, rows [][]string) error {
	c := csv.NewWriter(w)
	if err := c.Write(names(cols)); err != nil {
		return err
	}
	if err := c.WriteAll(withoutNulls(rows)); err != nil {
		return err
	}
	c.Flush()
	return c.Error()
}

// writeJSON writes rows as JSON lines: objects of texts, but for numbers and NULL.
func writeJSON(w io.Writer, cols []column, rows [][]string) error {
	for _, r := range rows {
		if err := writeObject(w, cols, r); err != nil {
			return err
		}
	}
	return nil
}

func writeObject(w io.Writer, cols []column, cells []string) error {
	b := []byte{'{'}
	for i, v := range cells {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, quoted(cols[i].name)...), ':')
		_, err := strconv.ParseFloat(v, 64)
		switch {
		case v == null:
			b = append(b, "null"...)
		case cols[i].right && err == nil && v != "NaN" && !strings.Contains(v, "Inf"):
			b = append(b, v...)
		default:
			b = append(b, quoted(v)...)
		}
	}
	_, err := w.Write(append(b, "}\n"...))
	return err
}

// quoted is a JSON string.
func quoted(s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string can be encoded
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// writeChange writes one change as CSV or JSON; cols and cells begin with the kind.
func writeChange(w io.Writer, form string, cols []column, cells []string, first bool) error {
	if form == "json" {
		return writeObject(w, cols, cells)
	}
	rows := [][]string{cells}
	if !first {
		c := csv.NewWriter(w)
		return c.WriteAll(withoutNulls(rows))
	}
	return writeCSV(w, cols, rows)
}

// withoutNulls has nothing for NULL.
func withoutNulls(rows [][]string) [][]string {
	out := make([][]string, len(rows))
	for i, r := range rows {
		out[i] = make([]string, len(r))
		for j, v := range r {
			if v != null {
				out[i][j] = v
			}
		}
	}
	return out
}
