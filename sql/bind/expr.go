package bind

import (
	"strings"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
)

// badText marks the expression that stands for one that could not be bound.
const badText = "<error>"

// bad is an expression that fits everywhere; errors have been told.
func (b *binder) bad(at ast.Span) rel.Expr {
	return rel.NewLiteral(row.Null(), fn.Const{Null: true}, badText, b.place(at))
}

func isBad(e rel.Expr) bool {
	l, ok := e.(*rel.Literal)
	return ok && l.Text == badText
}

func anyBad(exprs ...rel.Expr) bool {
	for _, e := range exprs {
		if isBad(e) {
			return true
		}
	}
	return false
}

func isNull(e rel.Expr) bool { return e.Type().Kind() == row.KindNull && !isBad(e) }

// coerce puts an implicit cast around an expression whose values are not of the type; its nullability is that of e.
func (b *binder) coerce(e rel.Expr, t *row.Type) rel.Expr {
	from := e.Type()
	switch {
	case isBad(e) || t == nil || t.Kind() == row.KindNull:
		return e
	case from.Kind() == row.KindNull:
		return rel.NewLiteral(t.Plain(), fn.Const{Null: true}, "", e.Where())
	case from.Plain() == t.Plain():
		return e
	}
	return rel.NewCast(t.WithMark(row.NoMark).Nullable(from.IsNullable()), e, false, true, e.Where())
}

// call applies a built-in function by its name.
func (b *binder) call(name string, at ast.Span, args ...rel.Expr) rel.Expr {
	f, ok := fn.Lookup(name)
	if !ok {
		b.errorf(at, "E2106", "function %s is not there yet", name)
		return b.bad(at)
	}
	return b.callFunc(f, at, args...)
}

// callFunc applies a scalar function.
func (b *binder) callFunc(f *fn.Func, at ast.Span, args ...rel.Expr) rel.Expr {
	if anyBad(args...) {
		return b.bad(at)
	}
	cast, t, ok := b.resolve(f, at, args)
	if !ok {
		return b.bad(at)
	}
	if f.Name == "=" || f.Name == "IS NOT DISTINCT FROM" {
		b.sameKind(cast)
	}
	return rel.NewCall(t.WithMark(row.NoMark), f, cast, b.place(at))
}

// sameKind brings two sides of an equality that are no literals to one type, where they have the same meaning but another
// width: rules make keys of such sides, and keys are equal if their bytes are.
func (b *binder) sameKind(sides []rel.Expr) {
	if len(sides) != 2 {
		return
	}
	x, y := sides[0].Type(), sides[1].Type()
	_, xl := sides[0].(*rel.Literal)
	_, yl := sides[1].(*rel.Literal)
	if xl || yl || x.Plain() == y.Plain() {
		return
	}
	exact := func(t *row.Type) bool { return t.Kind().Integer() || t.Kind() == row.KindDecimal }
	switch {
	case exact(x) && exact(y):
		p1, s1 := fn.Exact(x)
		p2, s2 := fn.Exact(y)
		if max(p1-s1, p2-s2)+max(s1, s2) > row.MaxPrecision {
			return
		}
	case x.Kind() == y.Kind() && (x.Kind() == row.KindTimestamp || x.Kind() == row.KindTimestampLTZ):
	default:
		return
	}
	if t := fn.LeastRestrictive(x, y); t != nil {
		sides[0], sides[1] = b.coerce(sides[0], t), b.coerce(sides[1], t)
	}
}

// resolve finds the signature of a call and casts the arguments.
func (b *binder) resolve(f *fn.Func, at ast.Span, args []rel.Expr) ([]rel.Expr, *row.Type, bool) {
	in := make([]fn.Arg, len(args))
	for i, a := range args {
		in[i] = fn.Arg{Type: a.Type().WithMark(row.NoMark)}
		if l, ok := a.(*rel.Literal); ok {
			c := l.Const
			in[i].Const, in[i].Literal = &c, true
		} else if v, ok := b.constantInt(a); ok {
			in[i].Const = &fn.Const{X: uint64(v)}
		}
	}
	r, err := f.Resolve(in)
	if err != nil {
		if text := err.Error(); strings.Contains(text, " cannot be ") || strings.HasPrefix(text, f.Name+" ") {
			b.errorf(at, "E2107", "%s", text)
		} else {
			b.errorf(at, "E2107", "cannot apply %s: %s", callName(f), text)
		}
		return nil, nil, false
	}
	cast := make([]rel.Expr, len(args))
	for i, a := range args {
		cast[i] = a
		if i < len(r.Args) {
			cast[i] = b.coerce(a, r.Args[i])
		}
	}
	return cast, r.Result, true
}

func callName(f *fn.Func) string {
	if c := f.Name[0]; c >= 'A' && c <= 'Z' {
		return f.Name
	}
	return "'" + f.Name + "'"
}

// cond binds a condition.
func (b *binder) cond(s *scope, e ast.Expr, clause string) rel.Expr {
	x := b.expr(s, e)
	if isBad(x) {
		return x
	}
	if isNull(x) {
		return b.null(row.Boolean(), e.Range())
	}
	if x.Type().Kind() != row.KindBoolean {
		b.errorf(e.Range(), "E2108", "%s wants a condition, but %s is %s", clause, rel.Text(x), x.Type().Text())
		return b.bad(e.Range())
	}
	return x
}

var infixNames = map[ast.InfixOp]string{ast.Or: "OR", ast.And: "AND", ast.Eq: "=", ast.NotEq: "<>", ast.Less: "<", ast.LessEq: "<=",
	ast.Greater: ">", ast.GreaterEq: ">=", ast.Add: "+", ast.Subtract: "-", ast.Concat: "||", ast.Multiply: "*", ast.Divide: "/",
	ast.Modulo: "%"}

// exprs binds a list.
func (b *binder) exprs(s *scope, list []ast.Expr) []rel.Expr {
	out := make([]rel.Expr, len(list))
	for i, e := range list {
		out[i] = b.expr(s, e)
	}
	return out
}

// expr binds an expression on the row of a scope.
func (b *binder) expr(s *scope, e ast.Expr) rel.Expr {
	at := e.Range()
	if b.depth++; b.depth > maxDepth {
		b.depth--
		b.errorf(at, "E2006", "expressions are nested too deeply")
		return b.bad(at)
	}
	defer func() { b.depth-- }()
	switch e := e.(type) {
	case *ast.ColumnRef:
		return b.column(s, e.Name)
	case *ast.Number:
		return b.number(e, false, at)
	case *ast.String:
		return b.text(e.Value, e.Env, at)
	case *ast.Binary:
		return b.literal(row.Binary(len(e.Value)), fn.Const{B: e.Value}, "", at)
	case *ast.Bool:
		if e.Value == ast.Unknown {
			return b.null(row.Boolean(), at)
		}
		return b.truth(e.Value == ast.True, at)
	case *ast.Null:
		return rel.NewLiteral(row.Null(), fn.Const{Null: true}, "", b.place(at))
	case *ast.Time:
		return b.timeLiteral(e)
	case *ast.Interval:
		return b.interval(e)
	case *ast.Unary:
		return b.unary(s, e)
	case *ast.Infix:
		return b.infix(s, e)
	case *ast.Is:
		return b.is(s, e)
	case *ast.IsDistinct:
		name := "IS DISTINCT FROM"
		if e.Not {
			name = "IS NOT DISTINCT FROM"
		}
		return b.call(name, at, b.expr(s, e.X), b.expr(s, e.Y))
	case *ast.Between:
		return b.between(s, e)
	case *ast.In:
		return b.in(s, e)
	case *ast.LikeExpr:
		return b.like(s, e)
	case *ast.Exists:
		if n := b.subquery(e.Query, s); n != nil {
			return rel.NewSubquery(row.Boolean().NotNull(), rel.ExistsQuery, nil, "", false, n, b.place(at))
		}
		return b.bad(at)
	case *ast.Quantified:
		return b.quantified(s, e)
	case *ast.QueryExpr:
		return b.scalarQuery(s, e)
	case *ast.Row:
		return b.row(s, e)
	case *ast.Array:
		if e.Query != nil {
			return b.unsupported(at, "ARRAY(query)", "use ARRAY_AGG in a subquery")
		}
		return b.call("ARRAY", at, b.exprs(s, e.Items)...)
	case *ast.Map:
		if e.Query != nil {
			return b.unsupported(at, "MAP(query)", "")
		}
		return b.call("MAP", at, b.exprs(s, e.Items)...)
	case *ast.Multiset:
		return b.unsupported(at, "MULTISET as an expression", "use ARRAY[..], or COLLECT")
	case *ast.Index:
		return b.index(s, e)
	case *ast.Field:
		return b.field(b.expr(s, e.X), e.Name, at)
	case *ast.Cast:
		return b.cast(s, e)
	case *ast.Case:
		return b.caseOf(s, e)
	case *ast.Call:
		return b.callExpr(s, e)
	case *ast.JSONCall:
		return b.jsonCall(s, e)
	case *ast.Env:
		return b.expr(s, e.X)
	case *ast.Symbol:
		return b.word(e.Word, at)
	case *ast.Star:
		b.errorf(at, "E2007", "* stands alone in a select list, or in COUNT(*)")
	case *ast.Default:
		b.errorf(at, "E2001", "DEFAULT is not supported")
	case *ast.GroupingSets:
		b.errorf(at, "E2007", "GROUPING SETS, ROLLUP and CUBE stand in GROUP BY")
	case *ast.NamedArg:
		b.errorf(at, "E2007", "this function takes no named arguments")
	case *ast.TableArg, *ast.Descriptor:
		b.errorf(at, "E2007", "TABLE and DESCRIPTOR are arguments of table functions in FROM")
	default:
		b.errorf(at, "E2001", "this expression is not supported")
	}
	return b.bad(at)
}

// maxDepth is how deep expressions and queries may be nested: far above what the parser lets through.
const maxDepth = 2000

func (b *binder) unsupported(at ast.Span, what, hint string) rel.Expr {
	e := b.errorf(at, "E2001", "%s is not supported", what)
	if hint != "" {
		e.WithHint("%s", hint)
	}
	return b.bad(at)
}

// noNull refuses a bare NULL, whose type nothing tells.
func (b *binder) noNull(e rel.Expr) rel.Expr {
	if isNull(e) {
		at := e.Where().Span
		b.errorf(at, "E2109", "NULL has no type here").WithHint("write CAST(NULL AS type)")
		return b.bad(at)
	}
	return e
}

func (b *binder) unary(s *scope, e *ast.Unary) rel.Expr {
	switch e.Op {
	case ast.Minus:
		x := e.X
		if v, ok := x.(*ast.Env); ok {
			x = v.X
		}
		if n, ok := x.(*ast.Number); ok {
			return b.number(n, true, e.Span)
		}
		return b.call("NEGATE", e.Span, b.noNull(b.expr(s, e.X)))
	case ast.Plus:
		x := b.noNull(b.expr(s, e.X))
		if k := x.Type().Kind(); !isBad(x) && !k.Numeric() && !k.Interval() {
			b.errorf(e.Span, "E2107", "cannot apply '+' to %s", x.Type().Text())
			return b.bad(e.Span)
		}
		return x
	case ast.Not:
		return b.call("NOT", e.Span, b.cond(s, e.X, "NOT"))
	}
	// RUNNING is what MATCH_RECOGNIZE computes anyway in DEFINE, and FINAL in MEASURES.
	if s.match == nil {
		b.errorf(e.Span, "E2007", "RUNNING and FINAL stand in MATCH_RECOGNIZE")
		return b.bad(e.Span)
	}
	return b.expr(s, e.X)
}

func (b *binder) infix(s *scope, e *ast.Infix) rel.Expr {
	switch e.Op {
	case ast.And, ast.Or:
		// Chains are long to the left: no recursion there.
		var chain []*ast.Infix
		left := ast.Expr(e)
		for {
			i, ok := left.(*ast.Infix)
			if !ok || i.Op != e.Op {
				break
			}
			chain = append(chain, i)
			left = i.X
		}
		name := infixNames[e.Op]
		x := b.cond(s, left, name)
		for i := len(chain) - 1; i >= 0; i-- {
			x = b.call(name, chain[i].Span, x, b.cond(s, chain[i].Y, name))
		}
		return x
	case ast.Overlaps, ast.Contains, ast.PeriodEquals, ast.Precedes, ast.Succeeds, ast.ImmediatelyPrecedes, ast.ImmediatelySucceeds:
		return b.period(s, e)
	}
	name, ok := infixNames[e.Op]
	if !ok {
		return b.unsupported(e.Span, "an operator on multisets", "")
	}
	x, y := b.expr(s, e.X), b.expr(s, e.Y)
	switch e.Op {
	case ast.Add, ast.Subtract, ast.Multiply, ast.Divide, ast.Modulo:
		x, y = b.noNull(x), b.noNull(y)
	}
	return b.call(name, e.Span, x, y)
}

// period binds (start, end) OVERLAPS (start, end) and its like; an end may be an interval from the start.
func (b *binder) period(s *scope, e *ast.Infix) rel.Expr {
	at := e.Span
	side := func(x ast.Expr) (from, to rel.Expr) {
		r, ok := x.(*ast.Row)
		if !ok || len(r.Items) != 2 {
			b.errorf(x.Range(), "E2007", "a period is (start, end) or (start, interval)")
			return b.bad(at), b.bad(at)
		}
		from, to = b.noNull(b.copied(s, r.Items[0], 8)), b.noNull(b.copied(s, r.Items[1], 4))
		if to.Type().Kind().Interval() {
			to = b.call("+", r.Items[1].Range(), from, to)
		}
		if anyBad(from, to) {
			return b.bad(at), b.bad(at)
		}
		swap := b.call(">", at, from, to)
		first := b.chooseOf(at, swap, to, from)
		return first, b.chooseOf(at, swap, from, to)
	}
	s0, e0 := side(e.X)
	s1, e1 := side(e.Y)
	if anyBad(s0, e0, s1, e1) {
		return b.bad(at)
	}
	and := func(x, y rel.Expr) rel.Expr { return b.call("AND", at, x, y) }
	switch e.Op {
	case ast.Overlaps:
		return and(b.call(">=", at, e0, s1), b.call(">=", at, e1, s0))
	case ast.Contains:
		return and(b.call(">=", at, e0, e1), b.call("<=", at, s0, s1))
	case ast.PeriodEquals:
		return and(b.call("=", at, s0, s1), b.call("=", at, e0, e1))
	case ast.Precedes:
		return b.call("<=", at, e0, s1)
	case ast.Succeeds:
		return b.call(">=", at, s0, e1)
	case ast.ImmediatelyPrecedes:
		return b.call("=", at, e0, s1)
	}
	return b.call("=", at, s0, e1)
}

// chooseOf is CASE WHEN cond THEN x ELSE y END of two expressions of kindred types.
func (b *binder) chooseOf(at ast.Span, cond, x, y rel.Expr) rel.Expr {
	t := fn.LeastRestrictive(x.Type(), y.Type())
	if t == nil || anyBad(cond, x, y) {
		return b.bad(at)
	}
	return rel.NewCase(t, []rel.When{{Cond: cond, Then: b.coerce(x, t)}}, b.coerce(y, t), b.place(at))
}

func (b *binder) is(s *scope, e *ast.Is) rel.Expr {
	not := ""
	if e.Not {
		not = "NOT "
	}
	x := b.expr(s, e.X)
	switch e.Test {
	case ast.IsNull:
		return b.call("IS "+not+"NULL", e.Span, x)
	case ast.IsTrue:
		return b.call("IS "+not+"TRUE", e.Span, x)
	case ast.IsFalse:
		return b.call("IS "+not+"FALSE", e.Span, x)
	case ast.IsUnknown:
		return b.call("IS "+not+"UNKNOWN", e.Span, x)
	case ast.IsASet, ast.IsEmpty:
		return b.unsupported(e.Span, "IS A SET and IS EMPTY", "")
	}
	name := map[ast.IsTest]string{ast.IsJSON: "JSON", ast.IsJSONValue: "JSON VALUE", ast.IsJSONObject: "JSON OBJECT",
		ast.IsJSONArray: "JSON ARRAY", ast.IsJSONScalar: "JSON SCALAR"}[e.Test]
	if _, ok := fn.Lookup("IS " + not + name); ok {
		return b.call("IS "+not+name, e.Span, x)
	}
	if _, ok := fn.Lookup("IS " + name); !ok && e.Test == ast.IsJSONValue {
		name = "JSON"
	}
	is := b.call("IS "+name, e.Span, x)
	if e.Not {
		return b.call("NOT", e.Span, is)
	}
	return is
}

// maxCopies bounds how large a plan a short text can make, where an operand is needed several times.
const maxCopies = 4096

// copied binds an operand that will stand in the plan n times: nested ones multiply.
func (b *binder) copied(s *scope, e ast.Expr, n int) rel.Expr {
	before := b.copies
	defer func() { b.copies = before }()
	b.copies = max(before, 1) * max(n, 1)
	if b.copies > maxCopies && !simple(e) {
		b.errorf(e.Range(), "E2006", "this expression would be evaluated more than %d times for a row", maxCopies).
			WithHint("compute it in a query in FROM (..) first")
		return b.bad(e.Range())
	}
	return b.expr(s, e)
}

// simple tells operands that cost nothing when they stand in a plan often.
func simple(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.ColumnRef, *ast.Number, *ast.String, *ast.Time, *ast.Bool, *ast.Null:
		return true
	case *ast.Env:
		return simple(e.X)
	}
	return false
}

func (b *binder) between(s *scope, e *ast.Between) rel.Expr {
	n := 2
	if e.Symmetric {
		n = 4
	}
	x, low, high := b.copied(s, e.X, n), b.copied(s, e.Low, n/2), b.copied(s, e.High, n/2)
	if anyBad(x, low, high) {
		return b.bad(e.Span)
	}
	inside := func(low, high rel.Expr) rel.Expr {
		return b.call("AND", e.Span, b.call(">=", e.Span, x, low), b.call("<=", e.Span, x, high))
	}
	r := inside(low, high)
	if e.Symmetric && !isBad(r) {
		r = b.call("OR", e.Span, r, inside(high, low))
	}
	if e.Not {
		r = b.call("NOT", e.Span, r)
	}
	return r
}

func (b *binder) like(s *scope, e *ast.LikeExpr) rel.Expr {
	name := "LIKE"
	if e.Kind == ast.LikeSimilar {
		name = "SIMILAR TO"
	}
	args := []rel.Expr{b.expr(s, e.X), b.expr(s, e.Pattern)}
	if e.Escape != nil {
		args = append(args, b.expr(s, e.Escape))
	}
	r := b.call(name, e.Span, args...)
	if e.Not {
		r = b.call("NOT", e.Span, r)
	}
	return r
}

// inChain is how many values of IN become a chain of OR; more, all of them literals, become a call of IN.
const inChain = 20

func (b *binder) in(s *scope, e *ast.In) rel.Expr {
	at := e.Span
	if e.Query != nil {
		return b.inQuery(s, at, e.X, e.Query, rel.InQuery, "=", e.Not)
	}
	x := b.copied(s, e.X, len(e.List))
	values := b.exprs(s, e.List)
	var r rel.Expr
	if f, ok := fn.Lookup("IN"); ok && len(values) > inChain && allLiterals(values) && !isBad(x) {
		r = b.callFunc(f, at, append([]rel.Expr{x}, values...)...)
	} else {
		for i, v := range values {
			eq := b.call("=", e.List[i].Range(), x, v)
			if r == nil {
				r = eq
			} else {
				r = b.call("OR", at, r, eq)
			}
			if isBad(r) && i > 0 && !isBad(v) {
				break // the same mistake for every value
			}
		}
	}
	if r == nil {
		return b.bad(at)
	}
	if e.Not {
		r = b.call("NOT", at, r)
	}
	return r
}

func allLiterals(list []rel.Expr) bool {
	for _, e := range list {
		if _, ok := e.(*rel.Literal); !ok {
			return false
		}
	}
	return true
}

// inQuery binds x IN (query) and x op ANY | ALL (query): both sides are brought to one type.
func (b *binder) inQuery(s *scope, at ast.Span, left ast.Expr, q ast.Query, kind rel.SubqueryKind, op string, not bool) rel.Expr {
	var xs []rel.Expr
	if r, ok := left.(*ast.Row); ok {
		xs = b.exprs(s, r.Items)
	} else {
		xs = []rel.Expr{b.expr(s, left)}
	}
	n := b.subquery(q, s)
	if n == nil || anyBad(xs...) {
		return b.bad(at)
	}
	sch := n.Schema()
	if sch.Len() != len(xs) {
		b.errorf(at, "E2110", "the subquery has %d columns, to be compared with %d values", sch.Len(), len(xs))
		return b.bad(at)
	}
	null := false
	casts := columnsOf(n)
	changed := false
	for i := range xs {
		// The operator decides whether and as what the two are compared.
		c := b.call(op, at, xs[i], casts[i])
		if isBad(c) {
			return c
		}
		cmp, ok := c.(*rel.Call)
		if ok && len(cmp.Args) == 2 {
			changed = changed || cmp.Args[1] != casts[i]
			xs[i], casts[i] = cmp.Args[0], cmp.Args[1]
		}
		null = null || xs[i].Type().IsNullable() || sch.Types[i].IsNullable()
	}
	if changed {
		n = project(n, casts, sch.Names, n.At())
	}
	return rel.NewSubquery(row.Boolean().Nullable(null), kind, xs, op, not, n, b.place(at))
}

func (b *binder) quantified(s *scope, e *ast.Quantified) rel.Expr {
	op := infixNames[e.Op]
	if e.Query != nil {
		switch {
		case !e.All && e.Op == ast.Eq:
			return b.inQuery(s, e.Span, e.X, e.Query, rel.InQuery, "=", false)
		case e.All && e.Op == ast.NotEq:
			return b.inQuery(s, e.Span, e.X, e.Query, rel.InQuery, "=", true)
		case e.All:
			return b.inQuery(s, e.Span, e.X, e.Query, rel.AllQuery, op, false)
		}
		return b.inQuery(s, e.Span, e.X, e.Query, rel.AnyQuery, op, false)
	}
	x := b.copied(s, e.X, len(e.List))
	join := "OR"
	if e.All {
		join = "AND"
	}
	var r rel.Expr
	for _, v := range e.List {
		c := b.call(op, e.Span, x, b.expr(s, v))
		if r == nil {
			r = c
		} else {
			r = b.call(join, e.Span, r, c)
		}
	}
	if r == nil {
		return b.bad(e.Span)
	}
	return r
}

func (b *binder) scalarQuery(s *scope, e *ast.QueryExpr) rel.Expr {
	n := b.subquery(e.Query, s)
	if n == nil {
		return b.bad(e.Span)
	}
	if c := n.Schema().Len(); c != 1 {
		b.errorf(e.Span, "E2110", "a query in the place of a value has one column, not %d", c)
		return b.bad(e.Span)
	}
	return rel.NewSubquery(n.Schema().Types[0].WithMark(row.NoMark).Nullable(true), rel.ScalarQuery, nil, "", false, n, b.place(e.Span))
}

func (b *binder) row(s *scope, e *ast.Row) rel.Expr {
	items := b.exprs(s, e.Items)
	for i := range items {
		items[i] = b.noNull(items[i])
	}
	if anyBad(items...) {
		return b.bad(e.Span)
	}
	return b.call("ROW", e.Span, items...)
}

func (b *binder) index(s *scope, e *ast.Index) rel.Expr {
	x, i := b.expr(s, e.X), b.expr(s, e.At)
	if anyBad(x, i) {
		return b.bad(e.Span)
	}
	if x.Type().Kind() == row.KindRow {
		// r[1] is the first field.
		l, ok := i.(*rel.Literal)
		if !ok || !l.Type().Kind().Integer() || int64(l.X) < 1 || int64(l.X) > int64(x.Type().NumFields()) {
			b.errorf(e.At.Range(), "E2105", "a field of %s is asked for by its name, or its constant number from 1", rel.Text(x))
			return b.bad(e.Span)
		}
		f := x.Type().Field(int(l.X) - 1)
		return rel.NewField(f.Type.Nullable(f.Type.IsNullable() || x.Type().IsNullable()), x, int(l.X)-1, b.place(e.Span))
	}
	if n, ok := b.constantInt(i); ok && n < 1 && x.Type().Kind() == row.KindArray {
		b.errorf(e.At.Range(), "E2111", "the elements of an array are counted from 1, not %d", n)
		return b.bad(e.Span)
	}
	return b.call("ITEM", e.Span, x, i)
}

// constantInt is the value of a whole number that is a literal, or computed from some.
func (b *binder) constantInt(e rel.Expr) (int64, bool) {
	if !e.Type().Kind().Integer() {
		return 0, false
	}
	if c, ok := e.(*rel.Cast); ok {
		l, ok := b.constant(c.X).(*rel.Literal)
		if !ok {
			return 0, false
		}
		code, err := fn.Cast(&fn.Env{Zone: row.UTC()}, fn.ConstCode(l.Type(), l.Const), c.Type(), c.Try)
		if err != nil {
			return 0, false
		}
		v, err := code.TryEval(nil)
		return int64(v.X), err == nil && !v.Null
	}
	l, ok := b.constant(e).(*rel.Literal)
	if !ok || l.Null {
		return 0, false
	}
	return int64(l.X), true
}

func (b *binder) cast(s *scope, e *ast.Cast) rel.Expr {
	x := b.expr(s, e.X)
	t := b.typ(e.Type)
	if t == nil || isBad(x) {
		return b.bad(e.Span)
	}
	return b.castTo(x, t, e.Try, e.Span)
}

func (b *binder) castTo(x rel.Expr, t *row.Type, try bool, at ast.Span) rel.Expr {
	from := x.Type()
	if from.Kind() == row.KindNull {
		return b.null(t.Plain(), at)
	}
	if err := fn.Castable(from, t); err != nil {
		b.errorf(at, "E2112", "cannot cast: %v", err)
		return b.bad(at)
	}
	return rel.NewCast(t.WithMark(row.NoMark).Nullable(from.IsNullable() || try), x, try, false, b.place(at))
}

func (b *binder) caseOf(s *scope, e *ast.Case) rel.Expr {
	var operand rel.Expr
	if e.Operand != nil {
		operand = b.copied(s, e.Operand, len(e.Whens))
	}
	ok := true
	var whens []rel.When
	var results []rel.Expr
	for _, w := range e.Whens {
		var c rel.Expr
		if operand == nil {
			c = b.cond(s, w.Cond, "WHEN")
		} else {
			c = b.call("=", w.Span, operand, b.expr(s, w.Cond))
		}
		then := b.expr(s, w.Then)
		ok = ok && !isBad(c) && !isBad(then)
		whens = append(whens, rel.When{Cond: c, Then: then})
		results = append(results, then)
	}
	other := rel.Expr(rel.NewLiteral(row.Null(), fn.Const{Null: true}, "", b.place(e.Span)))
	if e.Else != nil {
		other = b.expr(s, e.Else)
	}
	if !ok || isBad(other) {
		return b.bad(e.Span)
	}
	results = append(results, other)
	t := b.common(e.Span, "CASE", results)
	if t == nil {
		return b.bad(e.Span)
	}
	for i := range whens {
		whens[i].Then = b.coerce(whens[i].Then, t)
	}
	return rel.NewCase(t, whens, b.coerce(other, t), b.place(e.Span))
}

// common is the type that all expressions can have; nil after an error.
func (b *binder) common(at ast.Span, what string, exprs []rel.Expr) *row.Type {
	types := make([]*row.Type, len(exprs))
	for i, e := range exprs {
		types[i] = e.Type()
	}
	t := fn.LeastRestrictive(types...)
	if t == nil {
		b.errorf(at, "E2113", "the results of %s have no type in common: %s", what, typeNamesOf(types))
		return nil
	}
	if t.Kind() == row.KindNull {
		b.errorf(at, "E2109", "all results of %s are NULL", what).WithHint("write CAST(NULL AS type)")
		return nil
	}
	return t
}

func typeNamesOf(types []*row.Type) string {
	var out []string
	for _, t := range types {
		if n := t.Text(); len(out) == 0 || out[len(out)-1] != n {
			out = append(out, n)
		}
	}
	return strings.Join(out, ", ")
}
