package parse

import (
	"strings"

	"github.com/millrace-stream/millrace/sql/ast"
)

// starts are the words that a statement may start with, for the hint at a misspelt one.
var starts = []keyword{kwSelect, kwWith, kwValues, kwInsert, kwCreate, kwExecute, kwBegin, kwSet, kwReset, kwExplain, kwShow,
	kwDescribe, kwDrop, kwUse}

// statement reads one statement, without its semicolon.
func (p *parser) statement() ast.Stmt {
	start := p.start()
	switch {
	case p.queryStarts(), p.at(kLParen):
		q := p.query()
		return &ast.QueryStmt{Span: p.from(start), Query: q}
	case p.is(kwInsert):
		return p.insert()
	case p.is(kwCreate):
		return p.create(start)
	case p.is(kwExecute), p.is(kwBegin):
		return p.execute(start)
	case p.is(kwSet):
		return p.set(start)
	case p.take(kwReset):
		r := &ast.Reset{Key: p.configKey(false)}
		r.Span = p.from(start)
		return r
	case p.is(kwExplain):
		return p.explain(start)
	case p.is(kwShow):
		return p.showStmt(start)
	case p.takeOne(kwDescribe, kwDesc) != kwNone:
		return p.describe(start)
	case p.is(kwDrop):
		return p.drop(start)
	case p.is(kwUse):
		return p.use(start)
	}
	t := p.cur()
	if t.kind == kWord {
		if what, hint := refused(p, t.kw); what != "" {
			e := p.fail(p.here(), "E1008", "%s is not supported", what)
			if hint != "" {
				e.WithHint("%s", hint)
			}
			return nil
		}
	}
	p.note(starts...)
	p.unexpected("a statement")
	return nil
}

// refused says what a statement that other systems know is called, and what to do instead.
func refused(p *parser, kw keyword) (what, hint string) {
	next := p.ahead(1).kw
	switch kw {
	case kwAlter:
		return strings.TrimSpace("ALTER " + next.String()), "change the CREATE statement: the script says how things are, and state of what did not change is kept"
	case kwUpdate:
		return "UPDATE", "rows change by what INSERT INTO writes to a table with a PRIMARY KEY"
	case kwDelete:
		return "DELETE", "rows go when an INSERT INTO withdraws them from a table with a PRIMARY KEY"
	case kwMerge, kwUpsert:
		return kw.String(), "INSERT INTO a table with a PRIMARY KEY replaces rows of the same key"
	case kwTruncate:
		return "TRUNCATE TABLE", ""
	case kwCall:
		return "CALL", "there are no procedures"
	case kwAnalyze:
		return "ANALYZE TABLE", "plans use no statistics: leave it out"
	case kwLoad, kwUnload:
		return kw.String() + " MODULE", "all functions are there: leave it out"
	case kwAdd, kwRemove:
		return kw.String() + " JAR", "functions are written in Go and compiled in"
	case kwCompile:
		return "COMPILE PLAN", "state is found again by the structure of the query, no plan need be kept"
	case kwStop:
		return "STOP JOB", "stop the process, or use the API"
	case kwReplace:
		return "REPLACE", "write CREATE OR REPLACE"
	}
	return "", ""
}

// script reads all statements.
func (p *parser) script() *ast.Script {
	s := &ast.Script{Span: ast.Span{End: len(p.src.Text)}}
	for {
		for p.accept(kSemicolon) {
		}
		if p.pos >= p.end {
			return s
		}
		stmt := p.statement()
		p.endStatement(stmt)
		if p.failed {
			p.recover()
			continue
		}
		s.Stmts = append(s.Stmts, stmt)
	}
}

// endStatement demands that nothing stands between a statement and its semicolon.
func (p *parser) endStatement(ast.Stmt) {
	if p.failed || p.at(kSemicolon) || p.pos >= p.end {
		return
	}
	if t := p.cur(); t.kind == kWord && (t.kw == kwInsert || t.kw == kwCreate || t.kw == kwSelect || t.kw == kwExecute || t.kw == kwSet ||
		t.kw == kwDrop || t.kw == kwUse) {
		p.fail(p.here(), "E1001", "unexpected %s", t.kw).WithHint("a statement ends with ;")
		return
	}
	p.unexpected("; or the end of the statement")
}

// recover goes on at the semicolon behind a statement that could not be read. A statement set that had not come to its
// first INSERT is skipped to its END.
func (p *parser) recover() {
	p.failed, p.depth, p.tableArgs = false, 0, false
	p.pos = p.failPos
	for block := false; p.pos < p.end; p.pos++ {
		switch t := &p.toks[p.pos]; {
		case t.kind == kSemicolon && !block:
			return
		case t.kw == kwBegin && p.pos > 0 && p.toks[p.pos-1].kw == kwSet:
			block = true
		case block && t.kw == kwEnd && p.toks[p.pos-1].kind == kSemicolon:
			block = false
		}
	}
}

func (p *parser) create(start int) ast.Stmt {
	p.advance()
	replace := p.take(kwOr)
	if replace {
		p.expect(kwReplace)
	}
	temporary := p.take(kwTemporary)
	system := temporary && p.take(kwSystem)
	switch {
	case p.is(kwTable) && !system:
		return p.createTable(start, replace, temporary)
	case p.is(kwView) && !system && !replace:
		return p.createView(start, temporary)
	case p.is(kwFunction) && !replace:
		return p.createFunction(start, temporary, system)
	case p.is(kwDatabase) && !temporary && !replace:
		p.advance()
		d := &ast.CreateDatabase{IfNotExists: p.take(kwIf, kwNot, kwExists)}
		d.Name = p.name("the name of a database")
		d.Comment = p.comment()
		d.Options = p.with()
		d.Span = p.from(start)
		return d
	case p.is(kwCatalog) && !temporary && !replace:
		p.advance()
		c := &ast.CreateCatalog{IfNotExists: p.take(kwIf, kwNot, kwExists)}
		c.Name = p.ident("the name of a catalog")
		c.Comment = p.comment()
		c.Options = p.with()
		c.Span = p.from(start)
		return c
	case p.is(kwMaterialized), p.is(kwModel):
		p.fail(p.here(), "E1008", "CREATE %s is not supported", p.cur().kw)
		return nil
	case replace && p.is(kwView):
		p.fail(p.here(), "E1008", "CREATE OR REPLACE VIEW is not supported").WithHint("write DROP VIEW IF EXISTS before CREATE VIEW")
		return nil
	}
	p.unexpected("TABLE, VIEW, FUNCTION, DATABASE or CATALOG")
	return nil
}

// comment reads COMMENT 'text' if it is there.
func (p *parser) comment() *ast.String {
	if !p.take(kwComment) {
		return nil
	}
	s := p.stringLit("a text after COMMENT")
	return &s
}

// with reads WITH ('key' = 'value', ..) if it is there.
func (p *parser) with() []ast.Option {
	if !p.take(kwWith) {
		return nil
	}
	p.expectKind(kLParen, "( after WITH")
	if p.accept(kRParen) {
		return nil
	}
	options := list(p, p.option)
	p.expectKind(kRParen, ", or )")
	return options
}

func (p *parser) option() ast.Option {
	start := p.start()
	if t := p.cur(); isName(t) && t.exp == 0 {
		p.fail(p.here(), "E1001", "unexpected %s, expected a key in quotes", p.show(t)).
			WithHint("'%s' = '..'", strings.Trim(p.text(t), "`"))
		return ast.Option{}
	}
	o := ast.Option{Key: p.stringLit("a key in quotes")}
	p.expectKind(kEq, "= after the key")
	if t := p.cur(); t.kind == kInt || t.kind == kDecimal || t.kind == kWord && (t.kw == kwTrue || t.kw == kwFalse) {
		p.fail(p.here(), "E1001", "unexpected %s, expected a value in quotes", p.show(t)).WithHint("'%s'", p.text(t))
		return o
	}
	o.Value = p.stringLit("a value in quotes")
	o.Span = p.from(start)
	return o
}

func (p *parser) createTable(start int, replace, temporary bool) ast.Stmt {
	p.advance()
	t := &ast.CreateTable{Temporary: temporary, Replace: replace}
	t.IfNotExists = p.take(kwIf, kwNot, kwExists)
	t.Name = p.name("the name of a table")
	bare := false // some columns have no type: only right with AS
	if p.accept(kLParen) {
		if !p.at(kRParen) {
			bare = p.tableElement(t) || bare
			for p.accept(kComma) {
				bare = p.tableElement(t) || bare
			}
		}
		p.expectKind(kRParen, ", or )")
	}
	t.Comment = p.comment()
	t.Distribution = p.distribution()
	if p.take(kwPartitioned) {
		p.expect(kwBy)
		t.PartitionedBy = p.identList("the name of a column")
	}
	t.Options = p.with()
	switch {
	case p.is(kwLike):
		t.Like = p.likeTable()
		if t.Options == nil {
			t.Options = p.with()
		}
	case p.take(kwAs):
		t.As = p.query()
	}
	if bare && t.As == nil && !p.failed {
		for _, c := range t.Columns {
			if c.Kind == ast.PhysicalColumn && c.Type == nil {
				p.fail(c.Span, "E1001", "column %q has no type", c.Name.Name).WithHint("only CREATE TABLE .. AS SELECT may leave types out")
			}
		}
	}
	t.Span = p.from(start)
	return t
}

// tableElement reads a column, a key or a watermark. It tells whether it was a column without a type.
func (p *parser) tableElement(t *ast.CreateTable) (bare bool) {
	start := p.start()
	switch {
	case p.is(kwPrimary), p.is(kwConstraint):
		k := &ast.PrimaryKey{}
		if p.take(kwConstraint) {
			name := p.ident("the name of a constraint")
			k.Name = &name
		}
		if p.is(kwUnique) {
			p.fail(p.here(), "E1009", "UNIQUE is not supported").WithHint("use PRIMARY KEY (..) NOT ENFORCED")
			return false
		}
		p.expect(kwPrimary, kwKey)
		k.Columns = p.identList("the name of a column")
		p.enforced(k)
		k.Span = p.from(start)
		p.setKey(t, k)
	case p.is(kwUnique):
		p.fail(p.here(), "E1009", "UNIQUE is not supported").WithHint("use PRIMARY KEY (..) NOT ENFORCED")
	case p.take(kwWatermark):
		p.expect(kwFor)
		w := &ast.Watermark{Column: p.name("the name of a column")}
		p.expect(kwAs)
		w.Expr = p.expr()
		w.Span = p.from(start)
		if t.Watermark != nil {
			p.fail(w.Span, "E1010", "a table has one WATERMARK, here is a second one")
		}
		t.Watermark = w
	default:
		c := p.column(start, t)
		t.Columns = append(t.Columns, c)
		return c.Kind == ast.PhysicalColumn && c.Type == nil
	}
	return false
}

func (p *parser) setKey(t *ast.CreateTable, k *ast.PrimaryKey) {
	if t.PrimaryKey != nil {
		p.fail(k.Span, "E1010", "a table has one PRIMARY KEY, here is a second one").WithHint("PRIMARY KEY (a, b) has several columns")
	}
	t.PrimaryKey = k
}

func (p *parser) enforced(k *ast.PrimaryKey) {
	if p.take(kwNot, kwEnforced) {
		k.NotEnforced = true
	} else {
		k.Enforced = p.take(kwEnforced)
	}
}

func (p *parser) column(start int, t *ast.CreateTable) *ast.Column {
	c := &ast.Column{Name: p.ident("the name of a column")}
	if p.take(kwAs) {
		c.Kind = ast.ComputedColumn
		c.Expr = p.expr()
		c.Comment = p.comment()
		c.Span = p.from(start)
		return c
	}
	if p.at(kComma) || p.at(kRParen) {
		c.Span = p.from(start)
		return c
	}
	c.Type = p.typ()
	if p.take(kwMetadata) {
		c.Kind = ast.MetadataColumn
		if p.take(kwFrom) {
			s := p.stringLit("the key of the metadata in quotes")
			c.From = &s
		}
		c.Virtual = p.take(kwVirtual)
	}
	at := p.start()
	var name *ast.Ident
	if p.take(kwConstraint) {
		n := p.ident("the name of a constraint")
		name = &n
	}
	switch {
	case p.take(kwPrimary):
		p.expect(kwKey)
		k := &ast.PrimaryKey{Name: name, Columns: []ast.Ident{c.Name}}
		p.enforced(k)
		k.Span = p.from(at)
		p.setKey(t, k)
	case p.is(kwUnique):
		p.fail(p.here(), "E1009", "UNIQUE is not supported").WithHint("use PRIMARY KEY (..) NOT ENFORCED")
	case name != nil:
		p.unexpected("PRIMARY KEY")
	case p.is(kwDefault):
		p.fail(p.here(), "E1009", "DEFAULT values are not supported")
	}
	c.Comment = p.comment()
	c.Span = p.from(start)
	return c
}

func (p *parser) distribution() *ast.Distribution {
	start := p.start()
	if !p.take(kwDistributed) {
		return nil
	}
	d := &ast.Distribution{}
	if p.take(kwBy) {
		if k := p.takeOne(kwHash, kwRange); k != kwNone {
			d.Kind = k.String()
		}
		d.Columns = p.identList("the name of a column")
	} else if !p.is(kwInto) {
		p.unexpected("BY or INTO")
	}
	if p.take(kwInto) {
		d.Buckets = p.number("a number of buckets")
		p.expect(kwBuckets)
	}
	d.Span = p.from(start)
	return d
}

var likeFeatures = []keyword{kwAll, kwConstraints, kwDistribution, kwGenerated, kwMetadata, kwOptions, kwPartitions, kwWatermarks}

func (p *parser) likeTable() *ast.Like {
	start := p.start()
	p.advance()
	l := &ast.Like{Table: p.name("the name of a table")}
	if p.accept(kLParen) {
		for !p.failed && !p.at(kRParen) {
			at := p.start()
			strategy := p.takeOne(kwIncluding, kwExcluding, kwOverwriting)
			if strategy == kwNone {
				p.unexpected("INCLUDING, EXCLUDING or OVERWRITING")
				break
			}
			feature := p.takeOne(likeFeatures...)
			if feature == kwNone {
				p.unexpected("ALL, CONSTRAINTS, DISTRIBUTION, GENERATED, METADATA, OPTIONS, PARTITIONS or WATERMARKS")
				break
			}
			l.Options = append(l.Options, ast.LikeOption{Span: p.from(at), Strategy: strategy.String(), Feature: feature.String()})
			p.accept(kComma)
		}
		p.expectKind(kRParen, ")")
	}
	l.Span = p.from(start)
	return l
}

func (p *parser) createView(start int, temporary bool) ast.Stmt {
	p.advance()
	v := &ast.CreateView{Temporary: temporary}
	v.IfNotExists = p.take(kwIf, kwNot, kwExists)
	v.Name = p.name("the name of a view")
	if p.at(kLParen) {
		v.Columns = inParens(p, "the columns", func() ast.ViewColumn {
			at := p.start()
			c := ast.ViewColumn{Name: p.ident("the name of a column")}
			c.Comment = p.comment()
			c.Span = p.from(at)
			return c
		})
	}
	v.Comment = p.comment()
	p.expect(kwAs)
	v.Query = p.query()
	v.Span = p.from(start)
	return v
}

func (p *parser) createFunction(start int, temporary, system bool) ast.Stmt {
	p.advance()
	f := &ast.CreateFunction{Temporary: temporary, System: system}
	f.IfNotExists = p.take(kwIf, kwNot, kwExists)
	f.Name = p.name("the name of a function")
	p.expect(kwAs)
	f.As = p.stringLit("the identifier of the function in quotes")
	if p.take(kwLanguage) {
		t := p.cur()
		if t.kind != kWord {
			p.unexpected("a language")
			return nil
		}
		f.Language = strings.ToUpper(p.text(t))
		p.advance()
	}
	if p.take(kwUsing) {
		f.Using = list(p, func() ast.String {
			p.expect(kwJar)
			return p.stringLit("the path of a file in quotes")
		})
	}
	f.Options = p.with()
	f.Span = p.from(start)
	return f
}

func (p *parser) insert() *ast.Insert {
	start := p.start()
	i := &ast.Insert{}
	p.expect(kwInsert)
	switch p.takeOne(kwInto, kwOverwrite) {
	case kwOverwrite:
		i.Overwrite = true
	case kwNone:
		p.unexpected("INTO or OVERWRITE")
		return i
	}
	if p.is(kwTable) {
		p.fail(p.here(), "E1001", "unexpected TABLE").WithHint("write INSERT INTO and the name alone")
		return i
	}
	i.Table = p.name("the name of a table")
	i.Hints = p.hints()
	if p.take(kwPartition) {
		i.Partition = inParens(p, "the partition", func() ast.PartitionValue {
			at := p.start()
			v := ast.PartitionValue{Column: p.ident("the name of a column")}
			if p.accept(kEq) {
				v.Value = p.expr()
			}
			v.Span = p.from(at)
			return v
		})
	}
	if n := p.ahead(1); p.at(kLParen) && isName(n) {
		i.Columns = inParens(p, "the columns", func() ast.Name { return p.name("the name of a column") })
	}
	i.Query = p.query()
	i.Span = p.from(start)
	return i
}

// execute reads EXECUTE STATEMENT SET BEGIN .. END, BEGIN STATEMENT SET; .. END, and EXECUTE INSERT ..
func (p *parser) execute(start int) ast.Stmt {
	if p.take(kwBegin) {
		p.expect(kwStatement, kwSet)
		p.expectKind(kSemicolon, "; after BEGIN STATEMENT SET")
		return p.statementSet(start)
	}
	p.advance()
	switch {
	case p.is(kwInsert):
		i := p.insert()
		i.Span = p.from(start)
		return i
	case p.queryStarts():
		q := p.query()
		return &ast.QueryStmt{Span: p.from(start), Query: q}
	case p.is(kwPlan):
		p.fail(p.here(), "E1008", "EXECUTE PLAN is not supported").WithHint("run the script itself")
		return nil
	}
	p.expect(kwStatement, kwSet, kwBegin)
	return p.statementSet(start)
}

// statementSet reads the statements up to END. An INSERT that cannot be read is skipped to its semicolon and the others
// are read; the set as a whole is then missing.
func (p *parser) statementSet(start int) ast.Stmt {
	s := &ast.StatementSet{}
	bad := false
	for !p.failed {
		for p.accept(kSemicolon) {
		}
		if p.is(kwEnd) || p.pos >= p.end {
			break
		}
		if !p.is(kwInsert) && !p.isSeq(kwExecute, kwInsert) {
			p.unexpected("INSERT INTO, or END of the statement set")
		} else {
			p.take(kwExecute)
			s.Inserts = append(s.Inserts, p.insert())
			if !p.failed && !p.at(kSemicolon) {
				p.unexpected("; after an INSERT of a statement set")
			}
		}
		if p.failed {
			bad = true
			p.failed, p.depth, p.tableArgs = false, 0, false
			for p.pos = p.failPos; p.pos < p.end && !p.at(kSemicolon); p.pos++ {
			}
		}
	}
	p.expect(kwEnd)
	if bad && !p.failed {
		p.failed, p.failPos = true, p.pos // said already
	}
	if !p.failed && len(s.Inserts) == 0 {
		p.fail(p.from(start), "E1001", "a statement set without an INSERT")
	}
	s.Span = p.from(start)
	return s
}

// set reads SET 'key' = 'value', SET key = value, or SET alone.
func (p *parser) set(start int) ast.Stmt {
	p.advance()
	s := &ast.Set{Key: p.configKey(true)}
	if s.Key == nil {
		s.Span = p.from(start)
		return s
	}
	p.expectKind(kEq, "= after the key")
	if p.failed {
		return nil
	}
	if (p.at(kString) || p.at(kUnicode)) && (p.ahead(1).kind == kSemicolon || p.ahead(1).kind == kEOF) {
		s.Value = p.takeString()
	} else {
		s.Value = p.bareValue()
	}
	s.Span = p.from(start)
	return s
}

// configKey reads a key, in quotes or as words with points between, or nothing.
func (p *parser) configKey(value bool) *ast.String {
	if p.at(kString) || p.at(kUnicode) {
		s := p.takeString()
		return &s
	}
	start, first := p.start(), p.pos
	for !p.failed && !p.at(kEq) && !p.at(kSemicolon) && p.pos < p.end {
		switch p.cur().kind {
		case kWord, kQuoted, kDot, kMinus, kInt, kDecimal, kColon:
			p.advance()
		default:
			what := "the end of the statement"
			if value {
				what = "= and a value"
			}
			p.unexpected(what)
		}
	}
	if p.failed || p.pos == first {
		return nil
	}
	span := p.from(start)
	s := p.rawText(span)
	return &s
}

// rawText is a piece of the source as a text. Variables in it are replaced.
func (p *parser) rawText(span ast.Span) ast.String {
	raw := p.src.Text[span.Start:span.End]
	s := ast.String{Span: span, Value: expandText(raw, p.env)}
	if hasVariable(raw) {
		s.Env = quoteAround(raw)
	}
	return s
}

// quoteAround puts a raw text with variables into quotes.
func quoteAround(raw string) string {
	var b strings.Builder
	b.WriteByte('\'')
	for raw != "" {
		if v, ok := variable(raw); ok {
			b.WriteString(raw[:v.size])
			raw = raw[v.size:]
			continue
		}
		if raw[0] == '\'' {
			b.WriteByte('\'')
		}
		b.WriteByte(raw[0])
		raw = raw[1:]
	}
	b.WriteByte('\'')
	return b.String()
}

// bareValue reads a value without quotes: all up to the semicolon or a comment. What the lexer had to say about its
// characters does not count.
func (p *parser) bareValue() ast.String {
	text := p.src.Text
	from := p.spanOf(p.pos - 1).End
	to := from
	for to < len(text) && text[to] != ';' && !strings.HasPrefix(text[to:], "--") {
		to++
	}
	for p.pos < p.end && int(p.toks[p.pos].start) < to {
		p.pos++
	}
	raw := strings.TrimSpace(text[from:to])
	if raw == "" {
		p.unexpected("a value")
		return ast.String{}
	}
	begin := from + strings.Index(text[from:to], raw)
	span := ast.Span{Start: begin, End: begin + len(raw)}
	kept := p.errs[:0]
	for _, e := range p.errs {
		inside := span.Start <= e.Span.Start && e.Span.Start < span.End
		if inside && e.Code != "E1006" {
			continue
		}
		kept = append(kept, e)
		if inside {
			p.failed, p.failPos = true, p.pos // a variable is missing, as the lexer has said
		}
	}
	p.errs = kept
	return p.rawText(span)
}

func (p *parser) explain(start int) ast.Stmt {
	p.advance()
	e := &ast.Explain{}
	if !p.take(kwPlan, kwFor) {
		for {
			d := p.takeOne(kwEstimatedCost, kwChangelogMode, kwJsonExecutionPlan, kwPlanAdvice)
			if d == kwNone {
				break
			}
			e.Details = append(e.Details, d.String())
			p.accept(kComma)
		}
	}
	at := p.start()
	switch {
	case p.queryStarts(), p.at(kLParen):
		q := p.query()
		e.Stmt = &ast.QueryStmt{Span: p.from(at), Query: q}
	case p.is(kwInsert):
		e.Stmt = p.insert()
	case p.is(kwCreate):
		e.Stmt = p.create(at)
		if c, ok := e.Stmt.(*ast.CreateTable); !p.failed && (!ok || c.As == nil) {
			p.fail(p.from(at), "E1001", "EXPLAIN takes a query, an INSERT, a statement set or CREATE TABLE .. AS")
		}
	case p.is(kwExecute), p.is(kwBegin):
		e.Stmt = p.execute(at)
	case p.is(kwStatement):
		p.expect(kwStatement, kwSet, kwBegin)
		e.Stmt = p.statementSet(at)
	default:
		p.unexpected("a query, an INSERT or a statement set")
	}
	e.Span = p.from(start)
	return e
}

func (p *parser) showStmt(start int) ast.Stmt {
	p.advance()
	s := &ast.Show{}
	in := func() {
		if p.takeOne(kwFrom, kwIn) != kwNone {
			n := p.name("a name")
			s.Name = &n
		}
	}
	must := func(what string) {
		n := p.name(what)
		s.Name = &n
	}
	switch {
	case p.take(kwTables):
		s.What = "TABLES"
		in()
	case p.take(kwViews):
		s.What = "VIEWS"
		in()
	case p.take(kwDatabases):
		s.What = "DATABASES"
		in()
	case p.take(kwCatalogs):
		s.What = "CATALOGS"
	case p.take(kwFunctions):
		s.What = "FUNCTIONS"
		in()
	case p.take(kwUser):
		p.expect(kwFunctions)
		s.What = "USER FUNCTIONS"
		in()
	case p.take(kwCurrent):
		switch p.takeOne(kwCatalog, kwDatabase) {
		case kwCatalog:
			s.What = "CURRENT CATALOG"
		case kwDatabase:
			s.What = "CURRENT DATABASE"
		default:
			p.unexpected("CATALOG or DATABASE")
		}
	case p.take(kwColumns):
		s.What = "COLUMNS"
		if p.takeOne(kwFrom, kwIn) == kwNone {
			p.unexpected("FROM")
		}
		must("the name of a table")
	case p.take(kwPartitions):
		s.What = "PARTITIONS"
		must("the name of a table")
	case p.take(kwModules):
		s.What = "MODULES"
	case p.take(kwFull):
		p.expect(kwModules)
		s.What = "FULL MODULES"
	case p.take(kwJars):
		s.What = "JARS"
	case p.take(kwJobs):
		s.What = "JOBS"
	case p.take(kwCreate):
		switch p.takeOne(kwTable, kwView) {
		case kwTable:
			s.What = "CREATE TABLE"
			must("the name of a table")
		case kwView:
			s.What = "CREATE VIEW"
			must("the name of a view")
		default:
			p.unexpected("TABLE or VIEW")
		}
	default:
		p.unexpected("TABLES, VIEWS, COLUMNS, FUNCTIONS, CREATE TABLE, CURRENT DATABASE or the like")
	}
	s.NotLike = p.isSeq(kwNot, kwLike) || p.isSeq(kwNot, kwIlike)
	if s.NotLike {
		p.advance()
	}
	if k := p.takeOne(kwLike, kwIlike); k != kwNone {
		s.ILike = k == kwIlike
		l := p.stringLit("a pattern in quotes")
		s.Like = &l
	}
	s.Span = p.from(start)
	return s
}

func (p *parser) describe(start int) ast.Stmt {
	d := &ast.Describe{}
	if isName(p.ahead(1)) || p.ahead(1).kind == kWord && p.ahead(1).kw == kwExtended {
		if k := p.takeOne(kwCatalog, kwDatabase, kwFunction); k != kwNone {
			d.What = k.String()
		}
	}
	d.Extended = p.take(kwExtended)
	d.Name = p.name("the name of a table or view")
	d.Span = p.from(start)
	return d
}

func (p *parser) drop(start int) ast.Stmt {
	p.advance()
	d := &ast.Drop{Temporary: p.take(kwTemporary)}
	d.System = d.Temporary && p.take(kwSystem)
	k := p.takeOne(kwTable, kwView, kwFunction, kwDatabase, kwCatalog)
	if k == kwNone {
		p.unexpected("TABLE, VIEW, FUNCTION, DATABASE or CATALOG")
		return nil
	}
	d.What = k.String()
	d.IfExists = p.take(kwIf, kwExists)
	d.Name = p.name("a name")
	if k == kwDatabase {
		d.Cascade = p.takeOne(kwCascade, kwRestrict) == kwCascade
	}
	d.Span = p.from(start)
	return d
}

func (p *parser) use(start int) ast.Stmt {
	p.advance()
	u := &ast.Use{What: "DATABASE"}
	switch {
	case p.is(kwCatalog) && isName(p.ahead(1)):
		p.advance()
		u.What = "CATALOG"
		u.Names = []ast.Name{p.name("the name of a catalog")}
	case p.take(kwModules):
		u.What = "MODULES"
		u.Names = list(p, func() ast.Name { return p.name("the name of a module") })
	default:
		u.Names = []ast.Name{p.name("the name of a database")}
	}
	u.Span = p.from(start)
	return u
}
