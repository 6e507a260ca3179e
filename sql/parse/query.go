package parse

import (
	"github.com/millrace-stream/millrace/sql/ast"
)

// queryStarts tells whether a query without parentheses starts here.
func (p *parser) queryStarts() bool {
	return p.is(kwSelect) || p.is(kwWith) || p.is(kwValues) || p.is(kwTable)
}

// queryGoesOn tells whether a query in parentheses is only a part of a larger one.
func (p *parser) queryGoesOn() bool {
	return p.is(kwUnion) || p.is(kwExcept) || p.is(kwIntersect) || p.is(kwMinus) || p.is(kwOrder) || p.is(kwLimit) ||
		p.is(kwOffset) || p.is(kwFetch)
}

// query reads [WITH ..] query [ORDER BY ..] [LIMIT ..].
func (p *parser) query() ast.Query {
	defer p.leave()
	if !p.enter() {
		return nil
	}
	start := p.start()
	if !p.take(kwWith) {
		return p.queryBody()
	}
	w := &ast.With{Recursive: p.take(kwRecursive)}
	w.Tables = list(p, p.cte)
	w.Body = p.queryBody()
	w.Span = p.from(start)
	return w
}

func (p *parser) cte() ast.CTE {
	start := p.start()
	c := ast.CTE{Name: p.ident("the name of a table in WITH")}
	if p.at(kLParen) {
		c.Columns = p.identList("the name of a column")
	}
	p.expect(kwAs)
	p.expectKind(kLParen, "( before the query of a table in WITH")
	c.Query = p.query()
	p.expectKind(kRParen, ")")
	c.Span = p.from(start)
	return c
}

// queryBody reads a query without WITH.
func (p *parser) queryBody() ast.Query {
	start := p.start()
	q := p.queryOperand()
	return p.queryRest(start, q)
}

// queryRest goes on behind the first operand of a query.
func (p *parser) queryRest(start int, q ast.Query) ast.Query {
	return p.orderLimit(start, p.setOps(start, q, 0))
}

// Precedences of the set operations.
const (
	precUnion     = 1 // UNION, EXCEPT
	precIntersect = 2
)

func (p *parser) setOps(start int, q ast.Query, low int) ast.Query {
	links := 0
	for p.chain(&links) {
		op, prec := ast.Union, precUnion
		switch {
		case low <= precUnion && p.is(kwUnion):
		case low <= precUnion && (p.is(kwExcept) || p.is(kwMinus)):
			op = ast.Except
		case p.is(kwIntersect):
			op, prec = ast.Intersect, precIntersect
		default:
			return q
		}
		p.advance()
		s := &ast.SetOp{Kind: op, Left: q}
		s.All = p.takeOne(kwAll, kwDistinct) == kwAll
		at := p.start()
		s.Right = p.setOps(at, p.queryOperand(), prec+1)
		s.Span = p.from(start)
		q = s
	}
	return q
}

// queryOperand reads SELECT, VALUES, TABLE t or a query in parentheses.
func (p *parser) queryOperand() ast.Query {
	start := p.start()
	switch {
	case p.is(kwSelect):
		return p.selectQuery()
	case p.take(kwValues):
		v := &ast.Values{Rows: list(p, p.valuesRow)}
		v.Span = p.from(start)
		return v
	case p.take(kwTable):
		name := p.name("the name of a table")
		return &ast.TableQuery{Span: p.from(start), Table: name}
	case p.accept(kLParen):
		q := p.query()
		p.expectKind(kRParen, ")")
		return q
	}
	p.unexpected("a query")
	return nil
}

// valuesRow reads (a, b), ROW(a, b) or one value.
func (p *parser) valuesRow() *ast.Row {
	start := p.start()
	if p.at(kLParen) {
		p.advance()
		r := &ast.Row{}
		if p.queryStarts() {
			q := p.query()
			r.Items = []ast.Expr{&ast.QueryExpr{Span: p.from(start), Query: q}}
		} else {
			r.Items = list(p, p.inner)
		}
		p.expectKind(kRParen, ", or )")
		r.Span = p.from(start)
		return r
	}
	x := p.expr()
	if r, ok := x.(*ast.Row); ok && r.Explicit {
		return r
	}
	return &ast.Row{Span: p.from(start), Items: []ast.Expr{x}}
}

// orderLimit reads ORDER BY, OFFSET, LIMIT and FETCH.
func (p *parser) orderLimit(start int, q ast.Query) ast.Query {
	o := &ast.Ordered{Body: q}
	some := false
	if p.take(kwOrder) {
		some = true
		p.expect(kwBy)
		o.OrderBy = list(p, p.orderItem)
	}
	for range 2 {
		switch {
		case o.Limit == nil && p.take(kwLimit):
			if p.take(kwAll) {
				break
			}
			some = true
			n := p.number("a whole number after LIMIT")
			if p.accept(kComma) {
				o.Offset = n
				n = p.number("a whole number")
			}
			o.Limit = n
		case o.Limit == nil && p.take(kwFetch):
			if p.takeOne(kwFirst, kwNext) == kwNone {
				p.unexpected("FIRST or NEXT")
			}
			some = true
			n := &ast.Number{Text: "1"}
			if p.at(kInt) {
				n = p.takeNumber()
			}
			if p.takeOne(kwRow, kwRows) == kwNone {
				p.unexpected("ROWS")
			}
			p.expect(kwOnly)
			o.Limit = n
		case o.Offset == nil && p.take(kwOffset):
			some = true
			o.Offset = p.number("a whole number after OFFSET")
			p.takeOne(kwRow, kwRows)
		}
	}
	if !some {
		return q
	}
	o.Span = p.from(start)
	return o
}

func (p *parser) selectQuery() ast.Query {
	defer p.leave()
	if !p.enter() {
		return nil
	}
	start := p.start()
	p.advance()
	s := &ast.Select{Hints: p.hints()}
	if p.is(kwStream) && p.ahead(1).kind != kComma {
		p.fail(p.here(), "E1009", "SELECT STREAM is not supported").WithHint("every query is a streaming one: leave STREAM out")
	}
	s.Distinct = p.takeOne(kwDistinct, kwAll) == kwDistinct
	s.Items = list(p, p.selectItem)
	if p.take(kwFrom) {
		s.From = p.fromClause()
		if p.take(kwWhere) {
			s.Where = p.expr()
		}
		if p.take(kwGroup) {
			p.expect(kwBy)
			s.GroupDistinct = p.takeOne(kwDistinct, kwAll) == kwDistinct
			s.GroupBy = list(p, p.groupItem)
		}
		if p.take(kwHaving) {
			s.Having = p.expr()
		}
		if p.take(kwWindow) {
			s.Windows = list(p, p.windowDef)
		}
		if p.take(kwQualify) {
			s.Qualify = p.expr()
		}
	}
	s.Span = p.from(start)
	return s
}

func (p *parser) windowDef() ast.WindowDef {
	start := p.start()
	d := ast.WindowDef{Name: p.ident("the name of a window")}
	p.expect(kwAs)
	d.Spec = p.window()
	d.Span = p.from(start)
	return d
}

func (p *parser) selectItem() ast.SelectItem {
	start := p.start()
	if star := p.star(); star != nil {
		return ast.SelectItem{Span: star.Span, Expr: star}
	}
	item := ast.SelectItem{Expr: p.expr()}
	if p.take(kwAs) {
		alias := p.alias()
		item.Alias = &alias
	} else if isName(p.cur()) {
		p.note(kwFrom)
		alias := p.ident("an alias")
		item.Alias = &alias
	}
	item.Span = p.from(start)
	return item
}

// alias reads the name behind AS.
func (p *parser) alias() ast.Ident {
	if p.at(kString) {
		p.fail(p.here(), "E1001", "an alias is a name, not a text").WithHint("as a name it stands in back-quotes")
		return ast.Ident{}
	}
	return p.ident("a name after AS")
}

// star reads * or name.*, or nothing.
func (p *parser) star() *ast.Star {
	start := p.start()
	if p.accept(kStar) {
		return &ast.Star{Span: p.from(start)}
	}
	n := 0
	for isName(p.ahead(n)) && p.ahead(n+1).kind == kDot {
		n += 2
	}
	if n == 0 || p.ahead(n).kind != kStar {
		return nil
	}
	first := p.pos
	q := ast.Name{}
	for ; n > 0; n -= 2 {
		id := p.identOf(p.pos)
		if t := p.cur(); t.exp != 0 && p.exps[t.exp-1].first == p.exps[t.exp-1].last {
			id.Env = p.source(t)
		}
		q.Parts = append(q.Parts, id)
		p.pos += 2
	}
	q.Span = ast.Span{Start: start, End: p.spanOf(p.pos - 2).End}
	p.markParts(&q, first)
	p.advance()
	return &ast.Star{Span: p.from(start), Qualifier: &q}
}

// starOf reads name.*, or nothing.
func (p *parser) starOf() *ast.Star {
	if p.at(kStar) {
		return nil
	}
	return p.star()
}

// groupItem reads an item of GROUP BY.
func (p *parser) groupItem() ast.Expr {
	defer p.leave()
	if !p.enter() {
		return nil
	}
	start := p.start()
	g := &ast.GroupingSets{}
	switch {
	case p.take(kwGrouping, kwSets):
		g.Kind = ast.Sets
	case p.is(kwRollup) && p.ahead(1).kind == kLParen:
		p.advance()
		g.Kind = ast.Rollup
	case p.is(kwCube) && p.ahead(1).kind == kLParen:
		p.advance()
		g.Kind = ast.Cube
	default:
		return p.expr()
	}
	g.Items = inParens(p, "the sets", p.groupItem)
	g.Span = p.from(start)
	return g
}

// fromClause reads the tables of FROM.
func (p *parser) fromClause() ast.TableRef {
	start := p.start()
	t := p.joins()
	links := 0
	for p.chain(&links) && p.accept(kComma) {
		right := p.joins()
		t = &ast.Join{Span: p.from(start), Kind: ast.CommaJoin, Left: t, Right: right}
	}
	return t
}

// joins reads a table with the tables joined to it.
func (p *parser) joins() ast.TableRef {
	start := p.start()
	return p.joinRest(start, p.tableRef())
}

func (p *parser) joinRest(start int, left ast.TableRef) ast.TableRef {
	links := 0
	for p.chain(&links) {
		at := p.pos
		j := &ast.Join{Left: left, Natural: p.take(kwNatural)}
		switch p.takeOne(kwInner, kwLeft, kwRight, kwFull, kwCross) {
		case kwLeft:
			j.Kind = ast.LeftJoin
		case kwRight:
			j.Kind = ast.RightJoin
		case kwFull:
			j.Kind = ast.FullJoin
		case kwCross:
			j.Kind = ast.CrossJoin
		}
		if j.Kind == ast.LeftJoin || j.Kind == ast.RightJoin || j.Kind == ast.FullJoin {
			p.take(kwOuter)
		}
		if w := p.takeOne(kwSemi, kwAnti); w != kwNone {
			p.fail(p.spanOf(p.pos-1), "E1009", "%s JOIN is not supported", w).
				WithHint("use WHERE %s", map[keyword]string{kwSemi: "EXISTS (..) or IN (..)", kwAnti: "NOT EXISTS (..)"}[w])
		}
		if p.pos == at && !p.is(kwJoin) {
			return left
		}
		p.expect(kwJoin)
		j.Right = p.tableRef()
		switch {
		case j.Kind == ast.CrossJoin || j.Natural:
		case p.take(kwOn):
			j.On = p.expr()
		case p.take(kwUsing):
			j.Using = p.identList("the name of a column")
		}
		j.Span = p.from(start)
		left = j
	}
	return left
}

// tableRef reads one item of FROM.
func (p *parser) tableRef() ast.TableRef {
	defer p.leave()
	if !p.enter() {
		return nil
	}
	start := p.start()
	lateral := p.take(kwLateral)
	switch {
	case p.is(kwTable) && p.ahead(1).kind == kLParen:
		p.pos += 2
		f := &ast.TableFunc{Lateral: lateral}
		f.Call = p.tableCall()
		p.expectKind(kRParen, ")")
		f.Span = p.from(start)
		return p.afterTable(start, f, &f.Alias, &f.Span)
	case p.is(kwTable):
		p.fail(p.here(), "E1001", "unexpected TABLE").WithHint("in FROM a table stands by its name alone; TABLE(..) is for table functions")
		return nil
	case p.take(kwUnnest):
		u := &ast.Unnest{Lateral: lateral}
		u.Exprs = inParens(p, "the array", p.expr)
		u.Ordinality = p.take(kwWith, kwOrdinality)
		u.Span = p.from(start)
		return p.afterTable(start, u, &u.Alias, &u.Span)
	case p.at(kLParen):
		return p.tableParens(start, lateral)
	}
	name := p.name("the name of a table")
	if p.at(kLParen) {
		f := &ast.TableFunc{Lateral: lateral}
		p.tableArgs = true
		f.Call = p.call(start, name)
		f.Span = p.from(start)
		return p.afterTable(start, f, &f.Alias, &f.Span)
	}
	if lateral {
		p.unexpected("TABLE(..), UNNEST(..) or a query after LATERAL")
		return nil
	}
	t := &ast.TableName{Name: name}
	t.Hints = p.hints()
	if p.is(kwTablesample) {
		p.fail(p.here(), "E1009", "TABLESAMPLE is not supported")
	}
	if p.is(kwFor) {
		p.expect(kwFor, kwSystemTime, kwAs, kwOf)
		t.Period = p.expr()
	}
	t.Span = p.from(start)
	return p.afterTable(start, t, &t.Alias, &t.Span)
}

// tableCall reads the function inside TABLE(..).
func (p *parser) tableCall() *ast.Call {
	start := p.start()
	var name ast.Name
	if t := p.cur(); t.kind == kWord && t.kw.callable() && p.ahead(1).kind == kLParen {
		name = ast.Name{Span: p.here(), Parts: []ast.Ident{p.identOf(p.pos)}}
		p.advance()
	} else {
		name = p.name("the name of a table function")
	}
	p.tableArgs = true
	return p.call(start, name)
}

// tableParens reads a query or a join in parentheses.
func (p *parser) tableParens(start int, lateral bool) ast.TableRef {
	p.advance()
	var q ast.Query
	if p.queryStarts() {
		q = p.query()
	} else {
		at := p.start()
		t := p.tableRef()
		d, ok := t.(*ast.Derived)
		switch {
		case ok && d.Alias == nil && !d.Lateral && p.queryGoesOn():
			q = p.queryRest(at, d.Query)
		case ok && d.Alias == nil && !d.Lateral && p.at(kRParen):
			q = d.Query
		default:
			t = p.joinRest(at, t)
			for p.accept(kComma) {
				right := p.joins()
				t = &ast.Join{Span: p.from(at), Kind: ast.CommaJoin, Left: t, Right: right}
			}
			p.expectKind(kRParen, ")")
			if lateral {
				p.unexpected("a query after LATERAL")
			}
			return t
		}
	}
	p.expectKind(kRParen, ")")
	d := &ast.Derived{Lateral: lateral, Query: q}
	d.Span = p.from(start)
	return p.afterTable(start, d, &d.Alias, &d.Span)
}

// afterTable reads MATCH_RECOGNIZE and the alias behind a table.
func (p *parser) afterTable(start int, t ast.TableRef, alias **ast.Alias, span *ast.Span) ast.TableRef {
	if p.is(kwMatchRecognize) {
		m := p.match(start, t)
		t, alias, span = m, &m.Alias, &m.Span
	}
	if p.is(kwPivot) || p.is(kwUnpivot) {
		p.fail(p.here(), "E1009", "%s is not supported", p.cur().kw).WithHint("use aggregates with FILTER (WHERE ..), or UNION ALL")
	}
	at := p.start()
	named := p.take(kwAs)
	if named || isName(p.cur()) && !p.joinWord() {
		a := &ast.Alias{}
		if named {
			a.Name = p.alias()
		} else {
			p.note(kwWhere, kwGroup, kwOrder, kwHaving, kwJoin, kwInner, kwLeft, kwRight, kwFull, kwCross, kwUnion, kwLimit, kwWindow)
			a.Name = p.ident("an alias")
		}
		if p.at(kLParen) {
			a.Columns = p.identList("the name of a column")
		}
		a.Span = p.from(at)
		*alias = a
		*span = p.from(start)
	}
	return t
}

// joinWord tells whether the next name is the start of a join of other dialects.
func (p *parser) joinWord() bool {
	n := p.ahead(1)
	return (p.is(kwSemi) || p.is(kwAnti)) && n.kind == kWord && n.kw == kwJoin
}

// match reads MATCH_RECOGNIZE (..).
func (p *parser) match(start int, input ast.TableRef) *ast.Match {
	m := &ast.Match{Input: input}
	p.advance()
	p.expectKind(kLParen, "( after MATCH_RECOGNIZE")
	if p.take(kwPartition) {
		p.expect(kwBy)
		m.PartitionBy = list(p, p.expr)
	}
	if p.take(kwOrder) {
		p.expect(kwBy)
		m.OrderBy = list(p, p.orderItem)
	}
	if p.take(kwMeasures) {
		m.Measures = list(p, p.measure)
	}
	switch {
	case p.take(kwOne):
		p.expect(kwRow, kwPer, kwMatch)
		m.Rows = ast.OneRow
	case p.take(kwAll):
		p.expect(kwRows, kwPer, kwMatch)
		m.Rows = ast.AllRows
	}
	if p.take(kwAfter) {
		p.expect(kwMatch)
		m.Skip = p.skip()
	}
	p.expect(kwPattern)
	p.expectKind(kLParen, "( after PATTERN")
	m.Pattern = p.pattern()
	p.expectKind(kRParen, "a pattern variable or )")
	if p.take(kwWithin) {
		m.Within = p.expr()
	}
	if p.take(kwSubset) {
		m.Subsets = list(p, p.subset)
	}
	if p.take(kwDefine) {
		m.Defines = list(p, p.define)
	}
	p.expectKind(kRParen, "DEFINE or )")
	m.Span = p.from(start)
	return m
}

func (p *parser) measure() ast.Measure {
	start := p.start()
	m := ast.Measure{Expr: p.expr()}
	p.expect(kwAs)
	m.Name = p.alias()
	m.Span = p.from(start)
	return m
}

func (p *parser) skip() ast.Skip {
	start := p.start()
	s := ast.Skip{}
	p.expect(kwSkip)
	variable := func() {
		v := p.ident("a pattern variable")
		s.Variable = &v
	}
	switch {
	case p.take(kwPast):
		p.expect(kwLast, kwRow)
		s.Kind = ast.SkipPastLastRow
	case p.take(kwTo, kwNext, kwRow):
		s.Kind = ast.SkipToNextRow
	case p.isSeq(kwTo, kwFirst) && isName(p.ahead(2)):
		p.pos += 2
		s.Kind = ast.SkipToFirst
		variable()
	case p.isSeq(kwTo, kwLast) && isName(p.ahead(2)):
		p.pos += 2
		s.Kind = ast.SkipToLast
		variable()
	case p.take(kwTo):
		s.Kind = ast.SkipToVariable
		variable()
	default:
		p.unexpected("PAST LAST ROW, TO NEXT ROW, TO FIRST or TO LAST")
	}
	s.Span = p.from(start)
	return s
}

func (p *parser) subset() ast.Subset {
	start := p.start()
	s := ast.Subset{Name: p.ident("the name of a subset")}
	p.expectKind(kEq, "=")
	s.Variables = p.identList("a pattern variable")
	s.Span = p.from(start)
	return s
}

func (p *parser) define() ast.Define {
	start := p.start()
	d := ast.Define{Name: p.ident("a pattern variable")}
	p.expect(kwAs)
	d.Cond = p.expr()
	d.Span = p.from(start)
	return d
}

// pattern reads a | b | ..
func (p *parser) pattern() ast.Pattern {
	defer p.leave()
	if !p.enter() {
		return nil
	}
	start := p.start()
	parts := []ast.Pattern{p.patternSeq()}
	for p.accept(kBar) {
		parts = append(parts, p.patternSeq())
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return &ast.PatternAlt{Span: p.from(start), Parts: parts}
}

// patternSeq reads a b ..
func (p *parser) patternSeq() ast.Pattern {
	start := p.start()
	parts := []ast.Pattern{p.patternPart()}
	for !p.failed && (isName(p.cur()) || p.at(kLParen) || p.at(kCaret) || p.at(kDollar) || p.is(kwPermute) ||
		p.at(kLBrace) && p.ahead(1).kind == kMinus) {
		parts = append(parts, p.patternPart())
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return &ast.PatternSeq{Span: p.from(start), Parts: parts}
}

// patternPart reads one part with its quantifier.
func (p *parser) patternPart() ast.Pattern {
	start := p.start()
	var part ast.Pattern
	switch {
	case p.accept(kLParen):
		if p.accept(kRParen) {
			part = &ast.PatternEmpty{Span: p.from(start)}
			break
		}
		part = p.pattern()
		p.expectKind(kRParen, "a pattern variable or )")
	case p.accept(kCaret):
		return &ast.PatternAnchor{Span: p.from(start)}
	case p.accept(kDollar):
		return &ast.PatternAnchor{Span: p.from(start), End: true}
	case p.at(kLBrace) && p.ahead(1).kind == kMinus:
		p.pos += 2
		inside := p.pattern()
		p.expectKind(kMinus, "-}")
		p.expectKind(kRBrace, "}")
		part = &ast.PatternExclude{Span: p.from(start), Part: inside}
	case p.is(kwPermute) && p.ahead(1).kind == kLParen:
		p.advance()
		parts := inParens(p, "the parts", p.pattern)
		part = &ast.PatternPermute{Span: p.from(start), Parts: parts}
	default:
		part = &ast.PatternVar{Name: p.ident("a pattern variable")}
		part.(*ast.PatternVar).Span = p.from(start)
	}
	q := &ast.PatternQuant{Part: part, Max: -1}
	switch {
	case p.accept(kStar):
	case p.accept(kPlus):
		q.Min = 1
	case p.accept(kQuestion):
		q.Max = 1
	case p.at(kLBrace) && p.ahead(1).kind != kMinus:
		p.advance()
		p.counts(q)
	default:
		return part
	}
	q.Reluctant = p.accept(kQuestion)
	q.Span = p.from(start)
	return q
}

// counts reads n}, n,}, n,m} or ,m}.
func (p *parser) counts(q *ast.PatternQuant) {
	at := p.here()
	if !p.at(kComma) {
		q.Min = p.integer("a number in {..}")
		q.Max = q.Min
	}
	if p.accept(kComma) {
		q.Max = -1
		if p.at(kInt) {
			q.Max = p.integer("a number")
		} else if q.Min == 0 && p.toks[p.pos-2].kind == kLBrace {
			p.unexpected("a number in {..}")
		}
	}
	p.expectKind(kRBrace, "}")
	if q.Max >= 0 && q.Max < q.Min || q.Max == 0 {
		p.fail(at, "E1005", "a part cannot stand %d to %d times", q.Min, q.Max)
	}
}

// hints reads /*+ .. */ if it is there.
func (p *parser) hints() []ast.Hint {
	if !p.accept(kHintOpen) {
		return nil
	}
	hints := []ast.Hint{p.hintItem()}
	for !p.failed && !p.at(kHintEnd) {
		p.accept(kComma)
		hints = append(hints, p.hintItem())
	}
	p.expectKind(kHintEnd, "*/ at the end of the hint")
	return hints
}

func (p *parser) hintItem() ast.Hint {
	start := p.start()
	h := ast.Hint{Name: p.ident("the name of a hint")}
	if p.accept(kLParen) {
		if !p.at(kRParen) {
			p.hintArg(&h)
			for p.accept(kComma) {
				p.hintArg(&h)
			}
		}
		p.expectKind(kRParen, ", or )")
	}
	h.Span = p.from(start)
	return h
}

func (p *parser) hintArg(h *ast.Hint) {
	start := p.start()
	if t := p.cur(); p.ahead(1).kind == kEq && (t.kind == kString || t.kind == kUnicode || isName(t)) {
		o := ast.Option{}
		if isName(t) {
			id := p.ident("a key")
			o.Key = ast.String{Span: id.Span, Value: id.Name}
		} else {
			o.Key = p.takeString()
		}
		p.expectKind(kEq, "=")
		o.Value = p.stringLit("a value in quotes")
		o.Span = p.from(start)
		h.Options = append(h.Options, o)
	} else {
		h.Args = append(h.Args, p.prec(ast.PrecSign))
	}
	if len(h.Args) > 0 && len(h.Options) > 0 {
		p.fail(p.from(start), "E1001", "a hint has either 'key'='value' pairs or plain arguments")
	}
}
