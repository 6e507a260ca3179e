package plan

import (
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/rel"
)

// visit calls f for every part of an expression.
func visit(e rel.Expr, f func(rel.Expr)) {
	rel.MapExpr(e, func(x rel.Expr) rel.Expr { f(x); return x })
}

// columns marks the columns of depth 0 that e reads.
func columns(e rel.Expr, used []bool) {
	visit(e, func(x rel.Expr) {
		if c, ok := x.(*rel.Column); ok && c.Depth == 0 {
			used[c.Index] = true
		}
	})
}

// reads says whether e reads a column of depth 0 for which f is true.
func reads(e rel.Expr, f func(i int) bool) (yes bool) {
	visit(e, func(x rel.Expr) {
		if c, ok := x.(*rel.Column); ok && c.Depth == 0 && f(c.Index) {
			yes = true
		}
	})
	return yes
}

// conjuncts takes a condition apart at its ANDs; TRUE is none.
func conjuncts(e rel.Expr) []rel.Expr {
	if rel.IsTrue(e) {
		return nil
	}
	if c, ok := e.(*rel.Call); ok && c.Func.Name == "AND" {
		var out []rel.Expr
		for _, a := range c.Args {
			out = append(out, conjuncts(a)...)
		}
		return out
	}
	return []rel.Expr{e}
}

// conjunction puts conditions together; none is nil.
func conjunction(es ...rel.Expr) (out rel.Expr) {
	for _, e := range es {
		out = rel.And(builtin("AND"), out, e)
	}
	return out
}

// column is the expression of column i of a node.
func column(n rel.Node, i int) *rel.Column {
	s := n.Schema()
	return rel.NewColumn(s.Types[i], i, 0, s.Names[i], n.At())
}

// plain is the column that e is, -1 if it is something else. A cast that only changes nullability counts as the column.
func plain(e rel.Expr) int {
	switch e := e.(type) {
	case *rel.Column:
		if e.Depth == 0 {
			return e.Index
		}
	case *rel.Cast:
		if e.Implicit && e.Typ.Plain() == e.X.Type().Plain() {
			return plain(e.X)
		}
	}
	return -1
}

// cheap says whether an expression may be evaluated twice instead of once.
func cheap(e rel.Expr) bool {
	switch e := e.(type) {
	case *rel.Column, *rel.Literal, *rel.Marker:
		return true
	case *rel.Field:
		return cheap(e.X)
	case *rel.Cast:
		return e.Implicit && e.Typ.Plain() == e.X.Type().Plain() && cheap(e.X)
	}
	return false
}

// identity says whether expressions are just the n columns of an input with the same types.
func identity(exprs []rel.Expr, in *rel.Schema) bool {
	if len(exprs) != in.Len() {
		return false
	}
	for i, e := range exprs {
		if c, ok := e.(*rel.Column); !ok || c.Depth != 0 || c.Index != i || c.Typ != in.Types[i] {
			return false
		}
	}
	return true
}

func nullable(types []*row.Type) []*row.Type {
	out := make([]*row.Type, len(types))
	for i, t := range types {
		out[i] = t.Nullable(true)
	}
	return out
}
