package bind

import (
	"slices"
	"strings"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/catalog"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
)

// function finds a function by its name: a system function of the session, a built-in one, one of the catalog. nil if there
// is none.
func (b *binder) function(n ast.Name) *fn.Func {
	store := b.session.Store
	name := n.Parts[len(n.Parts)-1].Name
	key := strings.ToUpper(name)
	if len(n.Parts) == 1 {
		if f := store.SystemFunction(key); f != nil {
			return f.Func
		}
		if f, ok := fn.Lookup(key); ok && isCallable(key) {
			return f
		}
	}
	p, ok := b.path(n)
	if !ok {
		return nil
	}
	if f := store.Function(catalog.Path{Catalog: p.Catalog, Database: p.Database}, key); f != nil {
		return f.Func
	}
	return nil
}

// isCallable tells names of functions from those of operators.
func isCallable(name string) bool {
	switch name {
	case "AND", "OR", "NOT", "LIKE", "IN", "BETWEEN", "NEGATE", "ITEM":
		return false
	}
	return name != "" && name[0] >= 'A' && name[0] <= 'Z' && !strings.Contains(name, " ")
}

func (b *binder) unknownFunction(n ast.Name) rel.Expr {
	name := n.Parts[len(n.Parts)-1].Name
	known := append(fn.Names(), b.session.Store.Functions(catalog.Path{Catalog: b.catalog, Database: b.database})...)
	known = append(known, "PROCTIME", "TUMBLE_START", "TUMBLE_END", "HOP_START", "HOP_END", "SESSION_START", "SESSION_END")
	slices.Sort(known)
	b.errorf(n.Span, "E2106", "function %q not found", nameText(n)).WithHint("%s", nearest(strings.ToUpper(name), known, ""))
	return b.bad(n.Span)
}

// callExpr binds a call as it is written.
func (b *binder) callExpr(s *scope, e *ast.Call) rel.Expr {
	at := e.Span
	name := ""
	if len(e.Name.Parts) == 1 {
		name = strings.ToUpper(e.Name.Parts[0].Name)
	}
	if s.match != nil {
		if x, ok := b.matchCall(s, name, e); ok {
			return x
		}
	}
	if e.Over == nil {
		switch name {
		case "PROCTIME":
			if len(e.Args) == 0 {
				return rel.NewMarker(row.TimestampLTZ(3).NotNull().WithMark(row.Proctime), rel.ProcTime, b.place(at))
			}
		case "SOURCE_WATERMARK":
			b.errorf(at, "E2007", "SOURCE_WATERMARK() stands alone in WATERMARK FOR")
			return b.bad(at)
		}
		if x, ok := b.windowProperty(s, name, e); ok {
			return x
		}
	}
	f := b.function(e.Name)
	if f == nil {
		// Arguments are bound all the same: their mistakes are told too.
		if !e.Star {
			b.exprs(s, e.Args)
		}
		return b.unknownFunction(e.Name)
	}
	switch f.Kind {
	case fn.Aggregate:
		return b.aggregate(s, f, e)
	case fn.WindowFn:
		if f.Agg != nil || e.Over != nil {
			return b.aggregate(s, f, e)
		}
		b.errorf(at, "E2007", "%s is a function of a table: it stands in FROM TABLE(%s(TABLE t, DESCRIPTOR(ts), ..)), or in GROUP BY", f.Name, f.Name)
		return b.bad(at)
	case fn.Table:
		b.errorf(at, "E2007", "%s gives rows: it stands in FROM, as LATERAL TABLE(%s(..))", f.Name, f.Name)
		return b.bad(at)
	}
	if e.Star || e.Distinct || e.Filter != nil || e.Over != nil || len(e.OrderBy) > 0 || len(e.WithinGroup) > 0 {
		b.errorf(at, "E2007", "%s is no aggregate: *, DISTINCT, ORDER BY, FILTER and OVER do not fit", f.Name)
		return b.bad(at)
	}
	args := b.exprs(s, e.Args)
	switch f.Name {
	case "FLOOR", "CEIL", "CEILING":
		if len(args) == 2 && e.Syntax == ast.KeywordSyntax {
			break
		}
	case "TRIM":
		switch blank := b.text(" ", "", at); {
		case e.Syntax == ast.ParenSyntax && len(args) == 1:
			args = []rel.Expr{b.word("BOTH", at), blank, args[0]}
		case len(args) == 2:
			args = []rel.Expr{args[0], blank, args[1]}
		}
	}
	return b.callFunc(f, at, args...)
}

// jsonCall binds a JSON function, whose words become literals.
func (b *binder) jsonCall(s *scope, e *ast.JSONCall) rel.Expr {
	at := e.Span
	args := b.exprs(s, e.Args)
	word := func(w, deflt string) rel.Expr {
		if w == "" {
			w = deflt
		}
		return b.word(w, at)
	}
	deflt := func(x ast.Expr) rel.Expr {
		if x == nil {
			return rel.NewLiteral(row.Null(), fn.Const{Null: true}, "", b.place(at))
		}
		return b.expr(s, x)
	}
	f, ok := fn.Lookup(e.Name)
	if !ok {
		b.errorf(at, "E2106", "function %s is not there yet", e.Name)
		return b.bad(at)
	}
	switch e.Name {
	case "JSON_VALUE":
		args = append(args, word(e.OnEmpty, "NULL"), deflt(e.DefaultEmpty), word(e.OnError, "NULL"), deflt(e.DefaultError))
		x := b.callFunc(f, at, args...)
		if e.Returning == nil || isBad(x) {
			return x
		}
		t := b.typ(e.Returning)
		if t == nil {
			return b.bad(at)
		}
		c, ok := x.(*rel.Call)
		if !ok {
			return x
		}
		switch k := t.Kind(); {
		case k.Text(), k.Numeric(), k == row.KindBoolean:
		default:
			b.errorf(e.Returning.Range(), "E2112", "JSON_VALUE returns text, numbers and BOOLEAN, not %s", t.Text())
			return b.bad(at)
		}
		return rel.NewCall(t.Plain(), f, c.Args, b.place(at))
	case "JSON_QUERY":
		args = append(args, word(e.Wrapper, "WITHOUT"), word(e.OnEmpty, "NULL"), word(e.OnError, "NULL"))
		x := b.callFunc(f, at, args...)
		if c, ok := x.(*rel.Call); ok && e.Returning != nil {
			if t := b.typ(e.Returning); t != nil {
				return rel.NewCall(t.Plain(), f, c.Args, b.place(at))
			}
			return b.bad(at)
		}
		return x
	case "JSON_EXISTS":
		return b.callFunc(f, at, append(args, word(e.OnError, "FALSE"))...)
	case "JSON_OBJECT":
		return b.callFunc(f, at, append([]rel.Expr{word(e.OnNull, "NULL")}, args...)...)
	case "JSON_ARRAY":
		return b.callFunc(f, at, append([]rel.Expr{word(e.OnNull, "ABSENT")}, args...)...)
	case "JSON_OBJECTAGG":
		return b.aggregateOf(s, f, at, append([]rel.Expr{word(e.OnNull, "NULL")}, args...), e.Filter)
	case "JSON_ARRAYAGG":
		return b.aggregateOf(s, f, at, append([]rel.Expr{word(e.OnNull, "ABSENT")}, args...), e.Filter)
	}
	return b.unsupported(at, e.Name, "")
}
