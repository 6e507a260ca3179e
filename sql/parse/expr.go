package parse

import (
	"encoding/hex"
	"strings"

	"github.com/millrace-stream/millrace/sql/ast"
)

// expr reads a whole expression.
func (p *parser) expr() ast.Expr { return p.prec(ast.PrecLowest) }

// prec reads an expression whose operators bind at least as tight as low.
func (p *parser) prec(low int) ast.Expr {
	defer p.leave()
	if !p.enter() {
		return nil
	}
	start := p.start()
	x := p.prefix()
	links := 0
	for p.chain(&links) {
		y, ok := p.infix(start, x, low)
		if !ok {
			break
		}
		x = y
	}
	return x
}

// prefix reads an operand with the operators before it.
func (p *parser) prefix() ast.Expr {
	start := p.start()
	op, low := ast.Not, ast.PrecNot
	switch t := p.cur(); {
	case t.kind == kPlus:
		op, low = ast.Plus, ast.PrecSign
	case t.kind == kMinus:
		op, low = ast.Minus, ast.PrecSign
	case p.is(kwNot):
	case p.is(kwRunning):
		return p.matchMode(start, ast.Running)
	case p.is(kwFinal) && p.ahead(2).kind == kLParen && (isName(p.ahead(1)) || p.ahead(1).kw.callable()):
		return p.matchMode(start, ast.Final)
	default:
		return p.postfix(start, p.fromVariable(p.primary))
	}
	p.advance()
	x := p.prec(low)
	return &ast.Unary{Span: p.from(start), Op: op, X: x}
}

// matchMode reads the function behind RUNNING or FINAL.
func (p *parser) matchMode(start int, op ast.UnaryOp) ast.Expr {
	p.advance()
	at := p.here()
	x := p.primary()
	if _, ok := x.(*ast.Call); !ok {
		p.fail(at, "E1001", "RUNNING and FINAL stand before a function, as in FINAL LAST(A.price)")
	}
	return &ast.Unary{Span: p.from(start), Op: op, X: x}
}

// fromVariable reads an operand that may be the whole value of one variable: ${COND} is one operand, whatever operators
// are in it. A value that is no whole expression is read as if it stood in the text.
func (p *parser) fromVariable(read func() ast.Expr) ast.Expr {
	t := p.cur()
	if t.exp == 0 || p.quiet {
		return read()
	}
	e := p.exps[t.exp-1]
	if int(e.first) != p.pos || e.first == e.last {
		return read()
	}
	start, end := p.pos, p.end
	p.end, p.quiet = int(e.last)+1, true
	depth := p.depth
	span := p.here()
	text := p.source(t)
	x := p.expr()
	ok := !p.failed && p.pos == p.end
	p.end, p.quiet, p.failed = end, false, false
	if c, isColumn := x.(*ast.ColumnRef); ok && isColumn && c.Name.Parts[0].Env != "" {
		if !p.at(kDot) && !p.at(kLParen) {
			return c
		}
		ok = false // a longer name, or that of a function
	}
	if ok {
		return &ast.Env{Span: span, Text: text, X: x}
	}
	p.pos, p.depth = start, depth
	return read()
}

// postfix reads [i] and .name behind an operand.
func (p *parser) postfix(start int, x ast.Expr) ast.Expr {
	links := 0
	for p.chain(&links) {
		switch {
		case p.accept(kLBracket):
			at := p.expr()
			p.expectKind(kRBracket, "]")
			x = &ast.Index{Span: p.from(start), X: x, At: at}
		case p.at(kDot) && p.ahead(1).kind != kStar:
			p.advance()
			name := p.ident("the name of a field")
			x = &ast.Field{Span: p.from(start), X: x, Name: name}
		default:
			return x
		}
	}
	return x
}

// comparison gives the operator of a comparison sign.
func comparison(k kind) (ast.InfixOp, bool) {
	switch k {
	case kEq:
		return ast.Eq, true
	case kNotEq:
		return ast.NotEq, true
	case kLess:
		return ast.Less, true
	case kLessEq:
		return ast.LessEq, true
	case kGreater:
		return ast.Greater, true
	case kGreaterEq:
		return ast.GreaterEq, true
	}
	return 0, false
}

// infix reads one operator behind x with what follows it, if it binds tight enough.
func (p *parser) infix(start int, x ast.Expr, low int) (ast.Expr, bool) {
	t := p.cur()
	switch t.kind {
	case kPlus:
		return p.binary(start, x, low, ast.Add, 1)
	case kMinus:
		return p.binary(start, x, low, ast.Subtract, 1)
	case kStar:
		return p.binary(start, x, low, ast.Multiply, 1)
	case kSlash:
		return p.binary(start, x, low, ast.Divide, 1)
	case kPercent:
		return p.binary(start, x, low, ast.Modulo, 1)
	case kConcat:
		return p.binary(start, x, low, ast.Concat, 1)
	case kEq, kNotEq, kLess, kLessEq, kGreater, kGreaterEq:
		op, _ := comparison(t.kind)
		if n := p.ahead(1); n.kind == kWord && (n.kw == kwAny || n.kw == kwSome || n.kw == kwAll) && p.ahead(2).kind == kLParen &&
			low <= ast.PrecCompare {
			p.advance()
			p.advance()
			q := &ast.Quantified{X: x, Op: op, All: n.kw == kwAll}
			q.Query, q.List = p.queryOrList()
			q.Span = p.from(start)
			return q, true
		}
		return p.binary(start, x, low, op, 1)
	case kWord:
	default:
		return nil, false
	}
	switch {
	case p.is(kwOr):
		return p.binary(start, x, low, ast.Or, 1)
	case p.is(kwAnd):
		return p.binary(start, x, low, ast.And, 1)
	case p.is(kwIs):
		return p.isTest(start, x, low)
	}
	not, n := false, p.cur()
	if p.is(kwNot) {
		not, n = true, p.ahead(1)
		if n.kind != kWord {
			return nil, false
		}
	}
	word := func(k keyword) bool {
		if not {
			return n.kw == k
		}
		return p.is(k)
	}
	skip := func() {
		if not {
			p.advance()
		}
	}
	switch {
	case word(kwBetween):
		if low > ast.PrecIn {
			return nil, false
		}
		skip()
		return p.between(start, x, not), true
	case word(kwIn):
		if low > ast.PrecIn {
			return nil, false
		}
		skip()
		p.advance()
		in := &ast.In{X: x, Not: not}
		in.Query, in.List = p.queryOrList()
		in.Span = p.from(start)
		return in, true
	case word(kwLike), word(kwSimilar):
		if low > ast.PrecIn {
			return nil, false
		}
		skip()
		return p.like(start, x, not), true
	case word(kwIlike), word(kwRlike):
		skip()
		p.fail(p.here(), "E1009", "%s is not supported", n.kw).
			WithHint("use LIKE with LOWER on both sides, SIMILAR TO, or REGEXP(text, pattern)")
		return nil, false
	case word(kwMember):
		skip()
		return p.setTest(start, x, low, ast.MemberOf, not)
	case word(kwSubmultiset):
		skip()
		return p.setTest(start, x, low, ast.SubmultisetOf, not)
	}
	if not {
		return nil, false
	}
	switch {
	case p.is(kwOverlaps):
		return p.binary(start, x, low, ast.Overlaps, 1)
	case p.is(kwContains):
		return p.binary(start, x, low, ast.Contains, 1)
	case p.is(kwEquals):
		return p.binary(start, x, low, ast.PeriodEquals, 1)
	case p.is(kwPrecedes):
		return p.binary(start, x, low, ast.Precedes, 1)
	case p.is(kwSucceeds):
		return p.binary(start, x, low, ast.Succeeds, 1)
	case p.isSeq(kwImmediately, kwPrecedes):
		return p.binary(start, x, low, ast.ImmediatelyPrecedes, 2)
	case p.isSeq(kwImmediately, kwSucceeds):
		return p.binary(start, x, low, ast.ImmediatelySucceeds, 2)
	}
	return nil, false
}

// binary reads an operator of some tokens and its right operand.
func (p *parser) binary(start int, x ast.Expr, low int, op ast.InfixOp, tokens int) (ast.Expr, bool) {
	prec := op.Precedence()
	if prec < low {
		return nil, false
	}
	at := p.start()
	p.pos += tokens
	span := p.from(at)
	y := p.prec(prec + 1)
	return &ast.Infix{Span: p.from(start), Op: op, X: x, Y: y, OpSpan: span}, true
}

// setTest reads MEMBER OF or SUBMULTISET OF.
func (p *parser) setTest(start int, x ast.Expr, low int, op ast.InfixOp, not bool) (ast.Expr, bool) {
	if low > ast.PrecCompare {
		// NOT was taken already, but nothing else can follow here: the text is wrong either way.
		p.unexpected("an operator that may stand here")
		return nil, false
	}
	at := p.start()
	p.advance()
	p.take(kwOf)
	span := p.from(at)
	y := p.prec(ast.PrecCompare + 1)
	return &ast.Infix{Span: p.from(start), Op: op, Not: not, X: x, Y: y, OpSpan: span}, true
}

// isTest reads IS [NOT] ...
func (p *parser) isTest(start int, x ast.Expr, low int) (ast.Expr, bool) {
	not, n := false, 1
	if t := p.ahead(1); t.kind == kWord && t.kw == kwNot {
		not, n = true, 2
	}
	if t := p.ahead(n); t.kind == kWord && t.kw == kwDistinct {
		if low > ast.PrecCompare {
			return nil, false
		}
		p.pos += n + 1
		p.expect(kwFrom)
		y := p.prec(ast.PrecCompare + 1)
		return &ast.IsDistinct{Span: p.from(start), X: x, Y: y, Not: not}, true
	}
	if low > ast.PrecIs {
		return nil, false
	}
	p.pos += n
	is := &ast.Is{X: x, Not: not}
	switch {
	case p.take(kwNull):
		is.Test = ast.IsNull
	case p.take(kwTrue):
		is.Test = ast.IsTrue
	case p.take(kwFalse):
		is.Test = ast.IsFalse
	case p.take(kwUnknown):
		is.Test = ast.IsUnknown
	case p.take(kwJson):
		is.Test = ast.IsJSON
		switch p.takeOne(kwValue, kwObject, kwArray, kwScalar) {
		case kwValue:
			is.Test = ast.IsJSONValue
		case kwObject:
			is.Test = ast.IsJSONObject
		case kwArray:
			is.Test = ast.IsJSONArray
		case kwScalar:
			is.Test = ast.IsJSONScalar
		}
	case p.take(kwA, kwSet):
		is.Test = ast.IsASet
	case p.take(kwEmpty):
		is.Test = ast.IsEmpty
	default:
		p.unexpected("NULL, TRUE, FALSE, UNKNOWN, DISTINCT FROM or JSON after IS")
	}
	is.Span = p.from(start)
	return is, true
}

func (p *parser) between(start int, x ast.Expr, not bool) ast.Expr {
	p.advance()
	b := &ast.Between{X: x, Not: not}
	b.Symmetric = p.takeOne(kwSymmetric, kwAsymmetric) == kwSymmetric
	b.Low = p.prec(ast.PrecIn + 1)
	p.expect(kwAnd)
	b.High = p.prec(ast.PrecIn + 1)
	b.Span = p.from(start)
	return b
}

func (p *parser) like(start int, x ast.Expr, not bool) ast.Expr {
	l := &ast.LikeExpr{X: x, Not: not}
	if p.takeOne(kwLike, kwSimilar) == kwSimilar {
		l.Kind = ast.LikeSimilar
		p.expect(kwTo)
	}
	l.Pattern = p.prec(ast.PrecIn + 1)
	if p.take(kwEscape) {
		l.Escape = p.prec(ast.PrecIn + 1)
	}
	l.Span = p.from(start)
	return l
}

// queryOrList reads (query) or (a, b, ..).
func (p *parser) queryOrList() (ast.Query, []ast.Expr) {
	p.expectKind(kLParen, "(")
	if p.queryStarts() {
		q := p.query()
		p.expectKind(kRParen, ")")
		return q, nil
	}
	items := list(p, p.inner)
	p.expectKind(kRParen, ", or )")
	if len(items) == 1 {
		if q, ok := items[0].(*ast.QueryExpr); ok {
			return q.Query, nil
		}
	}
	return nil, items
}

// inner reads an expression inside parentheses. If it turns out to be the first part of a query in parentheses, as in
// ((SELECT 1) UNION (SELECT 2)), the whole query is read.
func (p *parser) inner() ast.Expr {
	start := p.start()
	x := p.expr()
	if q, ok := x.(*ast.QueryExpr); ok && p.queryGoesOn() {
		query := p.queryRest(start, q.Query)
		return &ast.QueryExpr{Span: p.from(start), Query: query}
	}
	return x
}

// primary reads an operand.
func (p *parser) primary() ast.Expr {
	start := p.start()
	t := p.cur()
	switch t.kind {
	case kInt, kDecimal, kFloat:
		return p.takeNumber()
	case kString, kUnicode:
		s := p.takeString()
		return &s
	case kBinary:
		return p.binaryLit()
	case kLParen:
		return p.parens(start)
	case kQuoted:
		return p.nameOrCall(start)
	case kWord:
		return p.word(start, t)
	case kStar:
		p.fail(p.here(), "E1001", "unexpected *").WithHint("* stands alone in a select list, in COUNT(*), or behind the name of a table: t.*")
		return nil
	case kQuestion:
		p.fail(p.here(), "E1009", "parameters (?) are not supported").WithHint("use ${NAME}")
		return nil
	}
	p.unexpected("an expression")
	return nil
}

func (p *parser) binaryLit() ast.Expr {
	text := p.text(p.cur())
	value, err := hex.DecodeString(text[2 : len(text)-1])
	if err != nil {
		p.fail(p.here(), "E1005", "%s is no binary text", p.show(p.cur())).
			WithHint("it takes an even number of hexadecimal digits, as in x'0AFF'")
		return nil
	}
	b := &ast.Binary{Span: p.here(), Value: value}
	p.advance()
	return b
}

// parens reads what starts with a parenthesis: a query, a row, or just parentheses.
func (p *parser) parens(start int) ast.Expr {
	p.advance()
	if p.queryStarts() {
		q := p.query()
		p.expectKind(kRParen, ")")
		return &ast.QueryExpr{Span: p.from(start), Query: q}
	}
	if p.accept(kRParen) {
		return &ast.Row{Span: p.from(start)}
	}
	items := list(p, p.inner)
	p.expectKind(kRParen, ", or )")
	if len(items) == 1 {
		return items[0]
	}
	return &ast.Row{Span: p.from(start), Items: items}
}

// word reads what starts with a word.
func (p *parser) word(start int, t *token) ast.Expr {
	paren := p.ahead(1).kind == kLParen
	text := p.ahead(1).kind == kString || p.ahead(1).kind == kUnicode
	switch t.kw {
	case kwTrue, kwFalse, kwUnknown:
		p.advance()
		b := &ast.Bool{Span: p.from(start)}
		switch t.kw {
		case kwTrue:
			b.Value = ast.True
		case kwUnknown:
			b.Value = ast.Unknown
		}
		return b
	case kwNull:
		p.advance()
		return &ast.Null{Span: p.from(start)}
	case kwDefault:
		p.advance()
		return &ast.Default{Span: p.from(start)}
	case kwDate, kwTime:
		if text {
			p.advance()
			kind := ast.DateLiteral
			if t.kw == kwTime {
				kind = ast.TimeLiteral
			}
			s := p.takeString()
			return &ast.Time{Span: p.from(start), Kind: kind, Text: s}
		}
	case kwTimestamp:
		if p.isSeq(kwTimestamp, kwWith, kwLocal, kwTime, kwZone) {
			p.pos += 5
			s := p.stringLit("the text of a TIMESTAMP")
			return &ast.Time{Span: p.from(start), Kind: ast.TimestampLTZLiteral, Text: s}
		}
		if text {
			p.advance()
			s := p.takeString()
			return &ast.Time{Span: p.from(start), Kind: ast.TimestampLiteral, Text: s}
		}
	case kwInterval:
		return p.interval(start)
	case kwCase:
		return p.caseExpr(start)
	case kwCast, kwTryCast:
		return p.cast(start)
	case kwExists:
		p.advance()
		p.expectKind(kLParen, "( after EXISTS")
		q := p.query()
		p.expectKind(kRParen, ")")
		return &ast.Exists{Span: p.from(start), Query: q}
	case kwRow:
		p.advance()
		p.expectKind(kLParen, "( after ROW")
		r := &ast.Row{Explicit: true}
		if !p.at(kRParen) {
			r.Items = list(p, p.inner)
		}
		p.expectKind(kRParen, ", or )")
		r.Span = p.from(start)
		return r
	case kwArray:
		p.advance()
		items, q := p.collection("ARRAY")
		return &ast.Array{Span: p.from(start), Items: items, Query: q}
	case kwMultiset:
		p.advance()
		items, q := p.collection("MULTISET")
		return &ast.Multiset{Span: p.from(start), Items: items, Query: q}
	case kwMap:
		if p.ahead(1).kind == kLBracket || paren {
			p.advance()
			items, q := p.collection("MAP")
			return &ast.Map{Span: p.from(start), Items: items, Query: q}
		}
	case kwJsonExists, kwJsonValue, kwJsonQuery, kwJsonObject, kwJsonArray, kwJsonObjectagg, kwJsonArrayagg:
		return p.json(start, t.kw)
	case kwDescriptor:
		if paren {
			p.advance()
			cols := p.identList("the name of a column")
			return &ast.Descriptor{Span: p.from(start), Columns: cols}
		}
	case kwExtract, kwFloor, kwCeil, kwCeiling, kwPosition, kwSubstring, kwOverlay, kwTrim, kwTranslate, kwTimestampadd, kwTimestampdiff:
		if paren {
			return p.special(start, t)
		}
	case kwUnique, kwPeriod:
		if paren {
			p.fail(p.here(), "E1009", "%s(..) is not supported", t.kw)
			return nil
		}
	case kwSelect, kwValues, kwWith:
		p.fail(p.here(), "E1001", "a query in an expression stands in parentheses").WithHint("( is missing before %s", t.kw)
		return nil
	}
	if !t.kw.reserved() {
		return p.nameOrCall(start)
	}
	if paren && t.kw.callable() {
		name := ast.Name{Span: p.here(), Parts: []ast.Ident{p.identOf(p.pos)}}
		p.advance()
		return p.call(start, name)
	}
	if bareCall(t.kw.String()) {
		word := ast.Ident{Span: p.here(), Name: t.kw.String()}
		p.advance()
		return &ast.Call{Span: p.from(start), Name: ast.Name{Span: word.Span, Parts: []ast.Ident{word}}, Syntax: ast.BareSyntax}
	}
	p.reservedWord(t, "an expression")
	return nil
}

// bareCall tells whether a word is a function without parentheses.
func bareCall(word string) bool {
	switch word {
	case "CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP", "CURRENT_CATALOG",
		"CURRENT_PATH", "CURRENT_ROLE", "CURRENT_SCHEMA", "CURRENT_USER", "SESSION_USER", "SYSTEM_USER", "USER":
		return true
	}
	return false
}

// nameOrCall reads a name, or a function if a parenthesis follows.
func (p *parser) nameOrCall(start int) ast.Expr {
	n := p.name("a name")
	if p.at(kLParen) {
		return p.call(start, n)
	}
	return &ast.ColumnRef{Span: p.from(start), Name: n}
}

// collection reads [a, b] or (query).
func (p *parser) collection(what string) ([]ast.Expr, ast.Query) {
	if p.accept(kLParen) {
		q := p.query()
		p.expectKind(kRParen, ")")
		return nil, q
	}
	p.expectKind(kLBracket, "[ after "+what)
	if p.accept(kRBracket) {
		return nil, nil
	}
	items := list(p, p.expr)
	p.expectKind(kRBracket, ", or ]")
	return items, nil
}

func (p *parser) caseExpr(start int) ast.Expr {
	p.advance()
	c := &ast.Case{}
	if !p.is(kwWhen) {
		c.Operand = p.expr()
	}
	if !p.is(kwWhen) {
		p.unexpected("WHEN")
	}
	for p.is(kwWhen) {
		at := p.start()
		p.advance()
		conds := []ast.Expr{p.expr()}
		for c.Operand != nil && p.accept(kComma) {
			conds = append(conds, p.expr())
		}
		p.expect(kwThen)
		then := p.expr()
		span := p.from(at)
		for _, cond := range conds {
			c.Whens = append(c.Whens, ast.When{Span: span, Cond: cond, Then: then})
		}
	}
	if p.take(kwElse) {
		c.Else = p.expr()
	}
	p.expect(kwEnd)
	c.Span = p.from(start)
	return c
}

func (p *parser) cast(start int) ast.Expr {
	c := &ast.Cast{Try: p.is(kwTryCast)}
	p.advance()
	p.expectKind(kLParen, "(")
	c.X = p.expr()
	p.expect(kwAs)
	c.Type = p.typ()
	p.expectKind(kRParen, ")")
	c.Span = p.from(start)
	return c
}

func (p *parser) interval(start int) ast.Expr {
	p.advance()
	i := &ast.Interval{}
	if p.accept(kMinus) {
		i.Negative = true
	} else {
		p.accept(kPlus)
	}
	if t := p.cur(); t.kind == kInt || t.kind == kDecimal {
		p.fail(p.here(), "E1001", "the amount of an INTERVAL stands in quotes").WithHint("write INTERVAL '%s' ..", p.text(t))
		return nil
	}
	i.Text = p.stringLit("the amount of an INTERVAL in quotes")
	i.Unit = p.intervalUnit()
	i.Span = p.from(start)
	return i
}

// unitWord takes a unit of an interval, in the singular or the plural.
func (p *parser) unitWord(what string) string {
	t := p.cur()
	if t.kind == kWord {
		w := strings.TrimSuffix(strings.ToUpper(p.text(t)), "S")
		switch w {
		case "YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND":
			p.advance()
			return w
		}
	}
	p.note(kwYear, kwQuarter, kwMonth, kwWeek, kwDay, kwHour, kwMinute, kwSecond)
	p.unexpected(what)
	return ""
}

func (p *parser) intervalUnit() ast.IntervalUnit {
	start := p.start()
	u := ast.IntervalUnit{Precision: -1, Scale: -1}
	u.From = p.unitWord("YEAR, QUARTER, MONTH, WEEK, DAY, HOUR, MINUTE or SECOND")
	if p.accept(kLParen) {
		u.Precision = p.integer("the precision of the unit")
		if u.From == "SECOND" && p.accept(kComma) {
			u.Scale = p.integer("the digits of the fraction")
		}
		p.expectKind(kRParen, ")")
	}
	if p.take(kwTo) {
		at := p.here()
		u.To = p.unitWord("MONTH, HOUR, MINUTE or SECOND")
		if !p.failed && !intervalRange(u.From, u.To) {
			p.fail(at, "E1005", "there is no interval %s TO %s", u.From, u.To).
				WithHint("YEAR TO MONTH, or DAY, HOUR, MINUTE to a smaller one of them or SECOND")
		}
		if u.To == "SECOND" && p.accept(kLParen) {
			u.Scale = p.integer("the digits of the fraction")
			p.expectKind(kRParen, ")")
		}
	}
	u.Span = p.from(start)
	return u
}

func intervalRange(from, to string) bool {
	switch from {
	case "YEAR":
		return to == "MONTH"
	case "DAY":
		return to == "HOUR" || to == "MINUTE" || to == "SECOND"
	case "HOUR":
		return to == "MINUTE" || to == "SECOND"
	case "MINUTE":
		return to == "SECOND"
	}
	return false
}

// special reads the functions that may have words between their arguments.
func (p *parser) special(start int, t *token) ast.Expr {
	word := ast.Ident{Span: p.here(), Name: t.kw.String()}
	name := ast.Name{Span: word.Span, Parts: []ast.Ident{word}}
	c := &ast.Call{Name: name, Syntax: ast.KeywordSyntax}
	done := func(closing string) ast.Expr {
		p.expectKind(kRParen, closing)
		c.Span = p.from(start)
		return c
	}
	open := p.pos
	p.pos += 2
	switch t.kw {
	case kwExtract:
		unit := p.symbol("a unit of time, as in EXTRACT(YEAR FROM x)")
		p.expect(kwFrom)
		c.Args = []ast.Expr{unit, p.expr()}
		return done(")")
	case kwTimestampadd, kwTimestampdiff:
		unit := p.symbol("a unit of time, as in TIMESTAMPADD(DAY, 1, x)")
		c.Syntax = ast.ParenSyntax
		c.Args = []ast.Expr{unit}
		for p.accept(kComma) {
			c.Args = append(c.Args, p.expr())
		}
		return done(", or )")
	case kwPosition:
		part := p.prec(ast.PrecIn + 1)
		p.expect(kwIn)
		c.Args = []ast.Expr{part, p.expr()}
		if p.take(kwFrom) {
			c.Args = append(c.Args, p.expr())
		}
		return done(")")
	case kwTrim:
		at := p.here()
		side := p.takeOne(kwBoth, kwLeading, kwTrailing)
		if side == kwNone {
			if p.at(kRParen) {
				break
			}
			x := p.expr()
			if !p.take(kwFrom) {
				break
			}
			c.Args = []ast.Expr{&ast.Symbol{Span: ast.Span{Start: at.Start, End: at.Start}, Word: "BOTH"}, x, p.expr()}
			return done(")")
		}
		c.Args = []ast.Expr{&ast.Symbol{Span: at, Word: side.String()}}
		if !p.take(kwFrom) {
			c.Args = append(c.Args, p.expr())
			p.expect(kwFrom)
		}
		c.Args = append(c.Args, p.expr())
		return done(")")
	case kwFloor, kwCeil, kwCeiling, kwTranslate, kwSubstring, kwOverlay:
		if p.at(kRParen) {
			break
		}
		x := p.expr()
		switch {
		case t.kw == kwSubstring && p.take(kwFrom):
			c.Args = []ast.Expr{x, p.expr()}
			if p.take(kwFor) {
				c.Args = append(c.Args, p.expr())
			}
			return done("FOR or )")
		case t.kw == kwOverlay && p.take(kwPlacing):
			c.Args = []ast.Expr{x, p.expr()}
			p.expect(kwFrom)
			c.Args = append(c.Args, p.expr())
			if p.take(kwFor) {
				c.Args = append(c.Args, p.expr())
			}
			return done("FOR or )")
		case t.kw == kwTranslate && p.take(kwUsing):
			c.Args = []ast.Expr{x, p.symbol("the name of a translation")}
			return done(")")
		case (t.kw == kwFloor || t.kw == kwCeil || t.kw == kwCeiling) && p.take(kwTo):
			c.Args = []ast.Expr{x, p.symbol("a unit of time, as in FLOOR(x TO DAY)")}
			return done(")")
		}
	}
	if p.failed {
		return nil
	}
	// No words in it: an ordinary call.
	p.pos = open
	name.Parts[0] = p.identOf(p.pos)
	p.advance()
	return p.call(start, name)
}

// symbol takes any word that is the argument of a function.
func (p *parser) symbol(what string) ast.Expr {
	t := p.cur()
	if t.kind != kWord {
		p.unexpected(what)
		return nil
	}
	s := &ast.Symbol{Span: p.here(), Word: strings.ToUpper(p.text(t))}
	p.advance()
	return s
}

// call reads the arguments of a function and what may follow them.
func (p *parser) call(start int, name ast.Name) *ast.Call {
	c := &ast.Call{Name: name}
	tables := p.tableArgs
	p.tableArgs = false
	p.expectKind(kLParen, "(")
	switch {
	case p.at(kStar) && p.ahead(1).kind == kRParen:
		p.advance()
		c.Star = true
	case p.at(kRParen):
	default:
		if p.takeOne(kwDistinct, kwAll) == kwDistinct {
			c.Distinct = true
		}
		if s := p.starOf(); s != nil { // COUNT(variable.*)
			c.Args = []ast.Expr{s}
			break
		}
		c.Args = list(p, func() ast.Expr { return p.arg(tables) })
		if p.take(kwOrder) {
			p.expect(kwBy)
			c.OrderBy = list(p, p.orderItem)
		}
		p.nullTreatment(c)
	}
	p.expectKind(kRParen, ", or )")
	p.nullTreatment(c)
	if p.take(kwWithin) {
		p.expect(kwGroup)
		p.expectKind(kLParen, "(")
		p.expect(kwOrder, kwBy)
		c.WithinGroup = list(p, p.orderItem)
		p.expectKind(kRParen, ", or )")
	}
	if p.is(kwFilter) && p.ahead(1).kind == kLParen {
		p.advance()
		c.Filter = p.filter()
	}
	p.nullTreatment(c)
	if p.is(kwOver) {
		c.Over = p.over()
	}
	c.Span = p.from(start)
	return c
}

func (p *parser) nullTreatment(c *ast.Call) {
	switch {
	case p.take(kwRespect, kwNulls):
		c.Nulls = ast.RespectNulls
	case p.take(kwIgnore, kwNulls):
		c.Nulls = ast.IgnoreNulls
	}
}

// filter reads (WHERE condition).
func (p *parser) filter() ast.Expr {
	p.expectKind(kLParen, "(")
	p.expect(kwWhere)
	x := p.expr()
	p.expectKind(kRParen, ")")
	return x
}

// arg reads an argument: name => x, TABLE t, or an expression. Where tables may be arguments, a query is one.
func (p *parser) arg(tables bool) ast.Expr {
	start := p.start()
	if t := p.cur(); p.ahead(1).kind == kArrow && (t.kind == kWord || t.kind == kQuoted) {
		name := p.ident("the name of a parameter")
		p.advance()
		x := p.argValue(tables)
		return &ast.NamedArg{Span: p.from(start), Name: name, X: x}
	}
	return p.argValue(tables)
}

func (p *parser) argValue(tables bool) ast.Expr {
	start := p.start()
	if !p.is(kwTable) {
		x := p.expr()
		if q, ok := x.(*ast.QueryExpr); ok && (tables || p.is(kwPartition)) {
			arg := &ast.TableArg{Query: q.Query}
			p.tableArgOrder(arg)
			arg.Span = p.from(start)
			return arg
		}
		return x
	}
	p.advance()
	if p.at(kLParen) {
		p.fail(p.here(), "E1001", "unexpected \"(\", expected the name of a table").
			WithHint("a query as argument stands in parentheses without TABLE: TUMBLE((SELECT ..), ..)")
		return nil
	}
	name := p.name("the name of a table")
	arg := &ast.TableArg{Name: &name}
	p.tableArgOrder(arg)
	arg.Span = p.from(start)
	return arg
}

// tableArgOrder reads PARTITION BY k or (k, ..), and ORDER BY, behind a table that is an argument.
func (p *parser) tableArgOrder(arg *ast.TableArg) {
	if p.take(kwPartition) {
		p.expect(kwBy)
		if p.at(kLParen) {
			arg.PartitionBy = inParens(p, "the keys", p.expr)
		} else {
			arg.PartitionBy = []ast.Expr{p.expr()}
		}
	}
	if p.take(kwOrder) {
		p.expect(kwBy)
		if p.at(kLParen) {
			arg.OrderBy = inParens(p, "the keys", p.orderItem)
		} else {
			arg.OrderBy = []ast.OrderItem{p.orderItem()}
		}
	}
}

func (p *parser) orderItem() ast.OrderItem {
	start := p.start()
	o := ast.OrderItem{Expr: p.expr()}
	o.Desc = p.takeOne(kwAsc, kwDesc) == kwDesc
	if p.take(kwNulls) {
		switch p.takeOne(kwFirst, kwLast) {
		case kwFirst:
			o.Nulls = ast.NullsFirst
		case kwLast:
			o.Nulls = ast.NullsLast
		default:
			p.unexpected("FIRST or LAST")
		}
	}
	o.Span = p.from(start)
	return o
}

func (p *parser) over() *ast.Over {
	start := p.start()
	p.advance()
	o := &ast.Over{}
	if p.at(kLParen) {
		w := p.window()
		o.Spec = &w
	} else {
		name := p.ident("the name of a window, or (")
		o.Name = &name
	}
	o.Span = p.from(start)
	return o
}

// window reads (base PARTITION BY .. ORDER BY .. frame).
func (p *parser) window() ast.Window {
	start := p.start()
	w := ast.Window{}
	p.expectKind(kLParen, "(")
	if isName(p.cur()) {
		base := p.ident("the name of a window")
		w.Base = &base
	}
	if p.take(kwPartition) {
		p.expect(kwBy)
		w.PartitionBy = list(p, p.expr)
	}
	if p.take(kwOrder) {
		p.expect(kwBy)
		w.OrderBy = list(p, p.orderItem)
	}
	at := p.start()
	switch p.takeOne(kwRows, kwRange, kwGroups) {
	case kwRows:
		w.Frame = p.frame(at, true)
	case kwRange:
		w.Frame = p.frame(at, false)
	case kwGroups:
		p.fail(p.spanOf(p.pos-1), "E1009", "a frame of GROUPS is not supported").WithHint("use ROWS or RANGE")
	}
	if p.is(kwExclude) {
		p.fail(p.here(), "E1009", "EXCLUDE in a frame is not supported")
	}
	p.expectKind(kRParen, "PARTITION BY, ORDER BY, ROWS, RANGE or )")
	w.Span = p.from(start)
	return w
}

func (p *parser) frame(start int, rows bool) *ast.Frame {
	f := &ast.Frame{Rows: rows}
	if p.take(kwBetween) {
		f.Start = p.bound()
		p.expect(kwAnd)
		f.End = p.bound()
	} else {
		f.Start = p.bound()
		f.End = ast.Bound{Span: f.Start.Span, Kind: ast.CurrentRow}
	}
	f.Span = p.from(start)
	return f
}

func (p *parser) bound() ast.Bound {
	start := p.start()
	b := ast.Bound{}
	switch {
	case p.take(kwCurrent, kwRow):
		b.Kind = ast.CurrentRow
	case p.take(kwUnbounded, kwPreceding):
		b.Kind = ast.UnboundedPreceding
	case p.take(kwUnbounded, kwFollowing):
		b.Kind = ast.UnboundedFollowing
	default:
		b.Offset = p.expr()
		switch p.takeOne(kwPreceding, kwFollowing) {
		case kwPreceding:
			b.Kind = ast.Preceding
		case kwFollowing:
			b.Kind = ast.Following
		default:
			p.unexpected("PRECEDING or FOLLOWING")
		}
	}
	b.Span = p.from(start)
	return b
}

// json reads a JSON function.
func (p *parser) json(start int, kw keyword) ast.Expr {
	c := &ast.JSONCall{Name: kw.String()}
	p.advance()
	p.expectKind(kLParen, "( after "+c.Name)
	switch kw {
	case kwJsonObject:
		if !p.at(kRParen) && !p.jsonOnNull(c) {
			p.jsonPair(c)
			for p.accept(kComma) {
				p.jsonPair(c)
			}
			p.jsonOnNull(c)
		}
	case kwJsonObjectagg:
		p.jsonPair(c)
		p.jsonOnNull(c)
	case kwJsonArray:
		if !p.at(kRParen) && !p.jsonOnNull(c) {
			c.Args = list(p, p.expr)
			p.jsonOnNull(c)
		}
	case kwJsonArrayagg:
		c.Args = []ast.Expr{p.expr()}
		p.jsonOnNull(c)
	default:
		doc := p.expr()
		p.expectKind(kComma, ", and a path after the document")
		c.Args = []ast.Expr{doc, p.expr()}
		p.jsonClauses(c, kw)
	}
	p.expectKind(kRParen, ")")
	if (kw == kwJsonObjectagg || kw == kwJsonArrayagg) && p.is(kwFilter) && p.ahead(1).kind == kLParen {
		p.advance()
		c.Filter = p.filter()
	}
	c.Span = p.from(start)
	return c
}

// jsonPair reads [KEY] k VALUE v or k : v.
func (p *parser) jsonPair(c *ast.JSONCall) {
	if p.is(kwKey) {
		switch n := p.ahead(1); {
		case n.kind == kString || n.kind == kUnicode || n.kind == kQuoted || n.kind == kInt || n.kind == kWord && n.kw != kwValue:
			p.advance()
		}
	}
	key := p.expr()
	if !p.accept(kColon) {
		p.expect(kwValue)
	}
	c.Args = append(c.Args, key, p.expr())
}

// jsonOnNull reads NULL ON NULL or ABSENT ON NULL.
func (p *parser) jsonOnNull(c *ast.JSONCall) bool {
	switch {
	case p.take(kwNull, kwOn, kwNull):
		c.OnNull = "NULL"
	case p.take(kwAbsent, kwOn, kwNull):
		c.OnNull = "ABSENT"
	default:
		return false
	}
	return true
}

// jsonClauses reads RETURNING, WRAPPER, ON EMPTY and ON ERROR.
func (p *parser) jsonClauses(c *ast.JSONCall, kw keyword) {
	if kw != kwJsonExists && p.take(kwReturning) {
		c.Returning = p.typ()
	}
	if kw == kwJsonQuery {
		switch p.takeOne(kwWith, kwWithout) {
		case kwWith:
			c.Wrapper = "UNCONDITIONAL"
			if p.takeOne(kwConditional, kwUnconditional) == kwConditional {
				c.Wrapper = "CONDITIONAL"
			}
			p.take(kwArray)
			p.expect(kwWrapper)
		case kwWithout:
			c.Wrapper = "WITHOUT"
			p.take(kwArray)
			p.expect(kwWrapper)
		}
	}
	for range 2 {
		at := p.here()
		var what string
		var def ast.Expr
		switch {
		case p.take(kwError):
			what = "ERROR"
		case kw == kwJsonExists && p.take(kwTrue):
			what = "TRUE"
		case kw == kwJsonExists && p.take(kwFalse):
			what = "FALSE"
		case kw == kwJsonExists && p.take(kwUnknown):
			what = "UNKNOWN"
		case kw != kwJsonExists && p.take(kwNull):
			what = "NULL"
		case kw == kwJsonValue && p.take(kwDefault):
			what = "DEFAULT"
			def = p.expr()
		case kw == kwJsonQuery && p.take(kwEmpty):
			what = "EMPTY ARRAY"
			if p.takeOne(kwArray, kwObject) == kwObject {
				what = "EMPTY OBJECT"
			}
		default:
			return
		}
		p.expect(kwOn)
		onEmpty := false
		switch p.takeOne(kwEmpty, kwError) {
		case kwEmpty:
			onEmpty = true
			if kw == kwJsonExists {
				p.fail(p.spanOf(p.pos-1), "E1001", "JSON_EXISTS has no ON EMPTY").WithHint("ON ERROR?")
				return
			}
		case kwNone:
			p.unexpected("EMPTY or ERROR")
			return
		}
		switch {
		case onEmpty && (c.OnEmpty != "" || c.OnError != ""), !onEmpty && c.OnError != "":
			p.fail(at, "E1001", "ON EMPTY stands once, then ON ERROR once")
			return
		case onEmpty:
			c.OnEmpty, c.DefaultEmpty = what, def
		default:
			c.OnError, c.DefaultError = what, def
		}
	}
}
