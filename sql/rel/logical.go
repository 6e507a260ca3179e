package rel

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/ast"
)

// Children is of Node.
func (n *Scan) Children() []Node { return nil }

// Children is of Node.
func (n *LateRows) Children() []Node { return nil }

// Children is of Node.
func (n *Watermark) Children() []Node { return []Node{n.Input} }

// Children is of Node.
func (n *Values) Children() []Node { return nil }

// Children is of Node.
func (n *Project) Children() []Node { return []Node{n.Input} }

// Children is of Node.
func (n *Filter) Children() []Node { return []Node{n.Input} }

// Children is of Node.
func (n *Join) Children() []Node { return []Node{n.Left, n.Right} }

// Children is of Node.
func (n *Correlate) Children() []Node { return []Node{n.Left, n.Right} }

// Children is of Node.
func (n *TableFunc) Children() []Node { return nil }

// Children is of Node.
func (n *Unnest) Children() []Node { return nil }

// Children is of Node.
func (n *Aggregate) Children() []Node { return []Node{n.Input} }

// Children is of Node.
func (n *WindowTVF) Children() []Node { return []Node{n.Input} }

// Children is of Node.
func (n *SetOp) Children() []Node { return n.Inputs }

// Children is of Node.
func (n *Over) Children() []Node { return []Node{n.Input} }

// Children is of Node.
func (n *Sort) Children() []Node { return []Node{n.Input} }

// Children is of Node.
func (n *Limit) Children() []Node { return []Node{n.Input} }

// Children is of Node.
func (n *Match) Children() []Node { return []Node{n.Input} }

// Children is of Node.
func (n *Sink) Children() []Node { return []Node{n.Input} }

// WithChildren is of Node.
func (n *Scan) WithChildren([]Node) Node { return n }

// WithChildren is of Node.
func (n *LateRows) WithChildren([]Node) Node { return n }

// WithChildren is of Node.
func (n *Watermark) WithChildren(in []Node) Node {
	c := *n
	c.Input = in[0]
	return &c
}

// WithChildren is of Node.
func (n *Values) WithChildren([]Node) Node { return n }

// WithChildren is of Node.
func (n *Project) WithChildren(in []Node) Node {
	c := *n
	c.Input = in[0]
	return &c
}

// WithChildren is of Node.
func (n *Filter) WithChildren(in []Node) Node {
	c := *n
	c.Input = in[0]
	return &c
}

// WithChildren is of Node.
func (n *Join) WithChildren(in []Node) Node {
	c := *n
	c.Left, c.Right = in[0], in[1]
	return &c
}

// WithChildren is of Node.
func (n *Correlate) WithChildren(in []Node) Node {
	c := *n
	c.Left, c.Right = in[0], in[1]
	return &c
}

// WithChildren is of Node.
func (n *TableFunc) WithChildren([]Node) Node { return n }

// WithChildren is of Node.
func (n *Unnest) WithChildren([]Node) Node { return n }

// WithChildren is of Node.
func (n *Aggregate) WithChildren(in []Node) Node {
	c := *n
	c.Input = in[0]
	return &c
}

// WithChildren is of Node.
func (n *WindowTVF) WithChildren(in []Node) Node {
	c := *n
	c.Input = in[0]
	return &c
}

// WithChildren is of Node.
func (n *SetOp) WithChildren(in []Node) Node {
	c := *n
	c.Inputs = slices.Clone(in)
	return &c
}

// WithChildren is of Node.
func (n *Over) WithChildren(in []Node) Node {
	c := *n
	c.Input = in[0]
	return &c
}

// WithChildren is of Node.
func (n *Sort) WithChildren(in []Node) Node {
	c := *n
	c.Input = in[0]
	return &c
}

// WithChildren is of Node.
func (n *Limit) WithChildren(in []Node) Node {
	c := *n
	c.Input = in[0]
	return &c
}

// WithChildren is of Node.
func (n *Match) WithChildren(in []Node) Node {
	c := *n
	c.Input = in[0]
	return &c
}

// WithChildren is of Node.
func (n *Sink) WithChildren(in []Node) Node {
	c := *n
	c.Input = in[0]
	return &c
}

// line joins the parts of a node's line that are not empty by two spaces.
func line(parts ...string) string {
	parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
	return strings.Join(parts, "  ")
}

// part is a part of a node's line, left out if it says nothing.
func part(word, text string) string {
	if text == "" {
		return ""
	}
	return word + " " + text
}

// flag is word if on.
func flag(word string, on bool) string {
	if on {
		return word
	}
	return ""
}

// columnName is the name of column i, or $i if it has none.
func columnName(s *Schema, i int) string {
	if i >= 0 && i < len(s.Names) && s.Names[i] != "" {
		return s.Names[i]
	}
	return "$" + strconv.Itoa(i)
}

// columnNames are the names of columns, with commas.
func columnNames(s *Schema, columns []int) string {
	out := make([]string, len(columns))
	for i, c := range columns {
		out[i] = columnName(s, c)
	}
	return strings.Join(out, ", ")
}

// aliased is the list of expressions, each with the name of its column where that is another.
func aliased(s *Schema, exprs []Expr) string {
	out := make([]string, len(exprs))
	for i, e := range exprs {
		out[i] = Text(e)
		if i < len(s.Names) && s.Names[i] != "" && s.Names[i] != out[i] {
			out[i] += " AS " + s.Names[i]
		}
	}
	return strings.Join(out, ", ")
}

func options(m map[string]string) string {
	if len(m) == 0 {
		return ""
	}
	keys := slices.Sorted(maps.Keys(m))
	for i, k := range keys {
		keys[i] = "'" + k + "' = '" + m[k] + "'"
	}
	return strings.Join(keys, ", ")
}

// SortText is a list of sort keys over columns of a schema: "ts, price DESC".
func SortText(s *Schema, keys []SortKey) string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = columnName(s, k.Column)
		if k.Desc {
			out[i] += " DESC"
		}
		if k.NullsLast != k.Desc {
			if k.NullsLast {
				out[i] += " NULLS LAST"
			} else {
				out[i] += " NULLS FIRST"
			}
		}
	}
	return strings.Join(out, ", ")
}

// AggText is a list of aggregates over columns of a schema, with the name of each: "COUNT(*) AS n, SUM(price) AS s".
func AggText(s *Schema, calls []AggCall) string {
	out := make([]string, len(calls))
	for i := range calls {
		out[i] = aggText(s, &calls[i])
		if n := calls[i].Name; n != "" && n != out[i] {
			out[i] += " AS " + n
		}
	}
	return strings.Join(out, ", ")
}

func aggText(s *Schema, c *AggCall) string {
	var b strings.Builder
	b.WriteString(c.Func.Name + "(")
	if c.Distinct {
		b.WriteString("DISTINCT ")
	}
	if len(c.Args) == 0 && c.Func.Name == "COUNT" {
		b.WriteByte('*')
	}
	for i, a := range c.Args {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(Text(a))
	}
	b.WriteByte(')')
	if c.IgnoreNulls {
		b.WriteString(" IGNORE NULLS")
	}
	if len(c.OrderBy) > 0 {
		b.WriteString(" WITHIN GROUP (ORDER BY " + SortText(s, c.OrderBy) + ")")
	}
	if c.Filter != nil {
		b.WriteString(" FILTER (" + Text(c.Filter) + ")")
	}
	return b.String()
}

// Millis is a length of time for EXPLAIN, in its largest even unit: "10 s", "1 h", "250 ms".
func Millis(ms int64) string {
	for _, u := range []struct {
		n    int64
		name string
	}{{86400000, "d"}, {3600000, "h"}, {60000, "min"}, {1000, "s"}} {
		if ms != 0 && ms%u.n == 0 {
			return strconv.FormatInt(ms/u.n, 10) + " " + u.name
		}
	}
	return strconv.FormatInt(ms, 10) + " ms"
}

// String is the window for EXPLAIN: "HOP(ts, slide 5 s, size 10 s)". s is the schema of the input.
func (w *WindowSpec) text(s *Schema) string {
	out := w.Kind.String() + "(" + columnName(s, w.Time)
	switch w.Kind {
	case Hop:
		out += ", slide " + Millis(w.Slide)
	case Cumulate:
		out += ", step " + Millis(w.Slide)
	}
	if w.Kind == Session {
		out += ", gap " + Millis(w.Size)
	} else {
		out += ", size " + Millis(w.Size)
	}
	if w.Offset != 0 {
		out += ", offset " + Millis(w.Offset)
	}
	if len(w.Partition) > 0 {
		out += ", by " + columnNames(s, w.Partition)
	}
	return out + ")"
}

func (f Frame) String() string {
	unit := "range"
	if f.Rows {
		unit = "rows"
	}
	switch {
	case f.From < 0:
		return unit + " unbounded"
	case f.Rows:
		return unit + " " + strconv.FormatInt(f.From, 10)
	}
	return unit + " " + Millis(f.From)
}

// String is of Node.
func (n *Scan) String() string {
	names := make([]string, len(n.Columns))
	for i, c := range n.Columns {
		names[i] = n.Table.Columns[c].Name
	}
	return line("Scan "+n.Table.Path.String(), "columns "+strings.Join(names, ", "))
}

// String is of Node.
func (n *Watermark) String() string {
	what := "from the source"
	if n.Expr != nil {
		what = Text(n.Expr)
	}
	return line("Watermark "+columnName(&n.Out, n.Column), what)
}

// String is of Node.
func (n *Values) String() string {
	rows := make([]string, 0, len(n.Rows))
	for i, r := range n.Rows {
		if i == 8 {
			rows = append(rows, fmt.Sprintf("and %d more", len(n.Rows)-i))
			break
		}
		rows = append(rows, "("+Texts(r)+")")
	}
	return line("Values", strings.Join(rows, ", "))
}

// String is of Node.
func (n *Project) String() string { return line("Project", aliased(&n.Out, n.Exprs)) }

// String is of Node.
func (n *Filter) String() string { return line("Filter", Text(n.Cond)) }

// String is of Node.
func (n *Join) String() string {
	cond := ""
	if n.Cond != nil {
		cond = Text(n.Cond)
	}
	asOf := ""
	if n.AsOf != nil {
		asOf = Text(n.AsOf)
	}
	ttl := ""
	for i, side := range [...]string{"left", "right"} {
		if d := n.TTL[i]; d != nil {
			ttl = line(ttl, side+" TTL "+d.String())
		}
	}
	return line("Join "+n.Kind.String(), part("on", cond), part("as of", asOf), ttl, part("lookup", options(n.Lookup)))
}

// String is of Node.
func (n *Correlate) String() string { return "Correlate " + n.Kind.String() }

// String is of Node.
func (n *TableFunc) String() string { return line("TableFunc", Text(n.Call)) }

// String is of Node.
func (n *Unnest) String() string {
	return line("Unnest", Texts(n.Exprs), flag("with ordinality", n.Ordinality))
}

// String is of Node.
func (n *Aggregate) String() string {
	in := n.Input.Schema()
	window, ttl := "", ""
	if n.Window != nil {
		window = n.Window.text(in)
	}
	if n.TTL != nil {
		ttl = n.TTL.String()
	}
	return line("Aggregate", part("by", columnNames(in, n.Groups)), part("sets", setsText(in, n.Groups, n.Sets)),
		part("window", window), AggText(in, n.Aggs), propsText(n.Props), part("TTL", ttl))
}

func setsText(in *Schema, groups []int, sets [][]int) string {
	out := make([]string, len(sets))
	for i, set := range sets {
		columns := make([]int, len(set))
		for j, g := range set {
			columns[j] = groups[g]
		}
		out[i] = "(" + columnNames(in, columns) + ")"
	}
	return strings.Join(out, ", ")
}

func propsText(props []WindowProp) string {
	out := make([]string, len(props))
	for i, p := range props {
		out[i] = p.String()
	}
	return strings.Join(out, ", ")
}

// String is the name of the column that a window function gives.
func (p WindowProp) String() string {
	return [...]string{"window_start", "window_end", "window_time", "window_proctime"}[p]
}

// String is of Node.
func (n *WindowTVF) String() string { return "WindowTVF " + n.text(n.Input.Schema()) }

// String is the word of SQL.
func (k SetKind) String() string { return [...]string{"UNION", "INTERSECT", "EXCEPT"}[k] }

// String is of Node.
func (n *LateRows) String() string { return "LateRows of " + n.Table.Path.String() }

// String is of Node.
func (n *SetOp) String() string { return n.Kind.String() + flag(" ALL", n.All) }

// String is of Node.
func (n *Over) String() string {
	return overText("Over", n.Input.Schema(), n.Partition, n.Order, n.Frame, n.Calls)
}

func overText(name string, in *Schema, partition []int, order []SortKey, frame Frame, calls []AggCall) string {
	return line(name, part("by", columnNames(in, partition)), part("order", SortText(in, order)), frame.String(), AggText(in, calls))
}

// String is of Node.
func (n *Sort) String() string { return line("Sort", SortText(&n.Out, n.Keys)) }

// String is of Node.
func (n *Limit) String() string { return limitText("Limit", n.Offset, n.Fetch) }

func limitText(name string, offset, fetch int64) string {
	out := name
	if fetch >= 0 {
		out = line(out, strconv.FormatInt(fetch, 10))
	}
	if offset > 0 {
		out = line(out, "offset "+strconv.FormatInt(offset, 10))
	}
	return out
}

// String is of Node.
func (n *Match) String() string {
	return matchText("Match", n.Input.Schema(), &n.Out, n.Partition, n.Order, n.Pattern, n.Variables, n.Defines, n.Measures, n.Skip, n.SkipTo, n.Within)
}

func matchText(name string, in, out *Schema, partition []int, order []SortKey, pattern ast.Pattern, variables []string,
	defines map[string]Expr, measures []Expr, skip ast.SkipKind, skipTo string, within int64) string {
	var def []string
	for _, v := range variables {
		if d := defines[v]; d != nil {
			def = append(def, v+" AS "+Text(d))
		}
	}
	names := Schema{Types: make([]*row.Type, len(measures))}
	if n := len(out.Names) - len(measures); n >= 0 {
		names.Names = out.Names[n:]
	}
	during := ""
	if within > 0 {
		during = Millis(within)
	}
	skips := [...]string{"", "to next row", "past last row", "to first " + skipTo, "to last " + skipTo, "to " + skipTo}
	return line(name, part("by", columnNames(in, partition)), part("order", SortText(in, order)),
		"pattern "+PatternText(pattern), part("define", strings.Join(def, ", ")), part("measures", aliased(&names, measures)),
		part("skip", skips[skip]), part("within", during))
}

// PatternText is a row pattern as it is written in PATTERN.
func PatternText(p ast.Pattern) string {
	switch p := p.(type) {
	case *ast.PatternVar:
		return p.Name.Name
	case *ast.PatternSeq:
		return patternList(p.Parts, " ")
	case *ast.PatternAlt:
		return "(" + patternList(p.Parts, " | ") + ")"
	case *ast.PatternQuant:
		inner := PatternText(p.Part)
		if _, ok := p.Part.(*ast.PatternSeq); ok {
			inner = "(" + inner + ")"
		}
		return inner + quantText(p)
	case *ast.PatternAnchor:
		if p.End {
			return "$"
		}
		return "^"
	case *ast.PatternExclude:
		return "{- " + PatternText(p.Part) + " -}"
	case *ast.PatternPermute:
		return "PERMUTE(" + patternList(p.Parts, ", ") + ")"
	}
	return "()"
}

func patternList(parts []ast.Pattern, sep string) string {
	out := make([]string, len(parts))
	for i, p := range parts {
		out[i] = PatternText(p)
	}
	return strings.Join(out, sep)
}

func quantText(p *ast.PatternQuant) string {
	var q string
	switch {
	case p.Min == 0 && p.Max < 0:
		q = "*"
	case p.Min == 1 && p.Max < 0:
		q = "+"
	case p.Min == 0 && p.Max == 1:
		q = "?"
	case p.Max < 0:
		q = fmt.Sprintf("{%d,}", p.Min)
	case p.Min == p.Max:
		q = fmt.Sprintf("{%d}", p.Min)
	default:
		q = fmt.Sprintf("{%d,%d}", p.Min, p.Max)
	}
	return q + flag("?", p.Reluctant)
}

// String is of Node.
func (n *Sink) String() string {
	if n.Table == nil {
		return "Sink collect"
	}
	return line("Sink "+n.Table.Path.String(), "columns "+tableColumns(n.Table, n.Columns))
}
