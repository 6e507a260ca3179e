package bind

import (
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-stream/millrace/internal/near"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/rel"
)

func itoa(i int) string { return strconv.Itoa(i) }

// Columns that stand for something that is not there yet while a SELECT is bound, told by a negative depth. They are replaced
// before the SELECT is finished.
const (
	aggDepth  = -1 - iota // an aggregate
	overDepth             // an OVER aggregate
	propDepth             // a property of the window of GROUP BY
)

// scope is the row that an expression is evaluated on, in terms of names. parent is the row of the query around it: its
// columns have a Depth that is greater by one.
type scope struct {
	parent *scope
	items  []*item
	// merged are columns of JOIN USING and NATURAL JOIN: found before those of the items, and first in *.
	merged []merged
	sel    *selectState // of a SELECT that can aggregate, else nil
	match  *matchState  // in MATCH_RECOGNIZE
	clause string       // what is bound, for messages: WHERE
}

// item is a table of FROM: columns offset .. offset+len(names)-1 of the row.
type item struct {
	name   string   // alias, or the last part of the table's name; "" = none
	path   []string // catalog, database, name: only without alias
	offset int
	names  []string
	types  []*row.Type
	hidden []bool // columns that USING has merged: found by their qualified name only; nil = none
	broken bool   // the table could not be bound: has every column
}

type merged struct {
	name string
	expr rel.Expr
}

// width is the number of columns of the row.
func (s *scope) width() int {
	n := 0
	for _, i := range s.items {
		n += len(i.names)
	}
	return n
}

// newItem is a table of FROM for a node.
func newItem(name string, offset int, n rel.Node) *item {
	if n == nil {
		return &item{name: name, offset: offset, broken: true}
	}
	s := n.Schema()
	return &item{name: name, offset: offset, names: s.Names, types: s.Types}
}

// qualifies says whether the parts before a column name this item.
func (i *item) qualifies(parts []ast.Ident) bool {
	switch {
	case len(parts) == 1:
		return i.name == parts[0].Name
	case len(parts) > 3 || i.path == nil:
		return false
	}
	for k := range parts {
		if i.path[3-len(parts)+k] != parts[k].Name {
			return false
		}
	}
	return true
}

func (i *item) hiddenColumn(c int) bool { return i.hidden != nil && i.hidden[c] }

// found is a column that a name means. taken is how many parts of the name it used up.
type found struct {
	expr  rel.Expr
	taken int
}

// lookup finds the column that a name begins with in this scope alone. ok is false if there is none; an ambiguous name is an
// error and gives a bad expression.
func (b *binder) lookup(s *scope, n ast.Name, depth int) (found, bool) {
	if s.match != nil {
		if depth > 0 {
			return found{}, false // a query in DEFINE or MEASURES sees no rows of the pattern
		}
		return b.lookupMatch(s, n), true
	}
	// A qualified name first: t.a, db.t.a, cat.db.t.a; then a column with a path into it.
	for q := min(3, len(n.Parts)-1); q >= 1; q-- {
		name := n.Parts[q].Name
		for _, i := range s.items {
			if !i.qualifies(n.Parts[:q]) {
				continue
			}
			if i.broken {
				return found{b.bad(n.Span), len(n.Parts)}, true
			}
			switch at := positions(i.names, name); len(at) {
			case 0:
			case 1:
				c := at[0]
				return found{rel.NewColumn(i.types[c], i.offset+c, depth, name, b.place(n.Span)), q + 1}, true
			default:
				b.errorf(n.Parts[q].Span, "E2104", "column %q is ambiguous: %q has %d of that name", name, i.name, len(at))
				return found{b.bad(n.Span), len(n.Parts)}, true
			}
		}
	}
	first := n.Parts[0].Name
	for _, m := range s.merged {
		if m.name == first {
			e := m.expr
			if depth > 0 {
				e = rel.Deepen(e, depth)
			}
			return found{e, 1}, true
		}
	}
	var hit []*item
	column := 0
	for _, i := range s.items {
		if i.broken {
			return found{b.bad(n.Span), len(n.Parts)}, true
		}
		for _, c := range positions(i.names, first) {
			if !i.hiddenColumn(c) {
				hit = append(hit, i)
				column = c
			}
		}
	}
	switch len(hit) {
	case 0:
		return found{}, false
	case 1:
		return found{rel.NewColumn(hit[0].types[column], hit[0].offset+column, depth, first, b.place(n.Span)), 1}, true
	}
	var tables []string
	for _, i := range hit {
		if i.name != "" {
			tables = append(tables, i.name+"."+first)
		}
	}
	e := b.errorf(n.Parts[0].Span, "E2104", "column %q is ambiguous", first)
	if tables = slices.Compact(tables); len(tables) > 1 {
		e.WithHint("write %s", strings.Join(tables, " or "))
	}
	return found{b.bad(n.Span), len(n.Parts)}, true
}

func positions(names []string, name string) []int {
	var at []int
	for i, n := range names {
		if n == name {
			at = append(at, i)
		}
	}
	return at
}

// column binds a name: a column, and the rest of the parts as fields of rows.
func (b *binder) column(s *scope, n ast.Name) rel.Expr {
	depth := 0
	for o := s; o != nil; o = o.parent {
		f, ok := b.lookup(o, n, depth)
		if !ok {
			depth++
			continue
		}
		e := f.expr
		for _, p := range n.Parts[f.taken:] {
			e = b.field(e, p, n.Span)
		}
		return e
	}
	b.unknownColumn(s, n)
	return b.bad(n.Span)
}

// field is a field of a row.
func (b *binder) field(e rel.Expr, p ast.Ident, at ast.Span) rel.Expr {
	if isBad(e) {
		return e
	}
	t := e.Type()
	if t.Kind() != row.KindRow {
		b.errorf(p.Span, "E2105", "%s is %s and has no field %q", rel.Text(e), t.Text(), p.Name)
		return b.bad(at)
	}
	i := t.FieldIndex(p.Name)
	if i < 0 {
		names := fieldNames(t)
		b.errorf(p.Span, "E2105", "field %q not found", p.Name).WithHint("%s", nearest(p.Name, names, rel.Text(e)+" has"))
		return b.bad(at)
	}
	ft := t.Field(i).Type
	return rel.NewField(ft.Nullable(ft.IsNullable() || t.IsNullable()), e, i, b.place(at))
}

func fieldNames(t *row.Type) []string {
	names := make([]string, t.NumFields())
	for i := range names {
		names[i] = t.Field(i).Name
	}
	return names
}

// unknownColumn tells that a name means nothing, with the nearest that does.
func (b *binder) unknownColumn(s *scope, n ast.Name) {
	first := n.Parts[0]
	if s == nil {
		b.errorf(n.Span, "E2103", "column %q not found: there is no table here", first.Name)
		return
	}
	// table.column: say what the table has.
	if len(n.Parts) > 1 {
		var tables []string
		for o := s; o != nil; o = o.parent {
			for _, i := range o.items {
				if i.qualifies(n.Parts[:1]) {
					p := n.Parts[1]
					b.errorf(p.Span, "E2103", "column %q not found in %q", p.Name, first.Name).
						WithHint("%s", nearest(p.Name, i.names, i.name+" has")).WithNote("column names are case-sensitive, as in Flink")
					return
				}
				if i.name != "" {
					tables = append(tables, i.name)
				}
			}
		}
		b.errorf(first.Span, "E2103", "table %q not found in FROM", first.Name).WithHint("%s", nearest(first.Name, tables, "there are"))
		return
	}
	var names []string
	for o := s; o != nil; o = o.parent {
		for _, i := range o.items {
			names = append(names, i.names...)
		}
	}
	e := b.errorf(first.Span, "E2103", "column %q not found", first.Name)
	switch {
	case len(s.items) == 1 && s.parent == nil && s.items[0].name != "":
		e.WithHint("%s", nearest(first.Name, names, s.items[0].name+" has"))
	default:
		e.WithHint("%s", nearest(first.Name, names, ""))
	}
	if s.sel != nil && s.sel.alias(first.Name) && s.clause != "" {
		e.e.Hint = ""
		e.WithNote("%q is an alias of the select list, which %s does not see: write the expression, or put the query into FROM (..)", first.Name, s.clause)
		return
	}
	if _, ok := near.Word(first.Name, names); ok {
		e.WithNote("column names are case-sensitive, as in Flink")
	}
}
