package ast

import (
	"encoding/hex"
	"strconv"
	"strings"
)

// Print writes a Stmt, Query, TableRef, Expr, Type, Pattern or Script in its one canonical form: keywords in upper case,
// the parentheses that are needed and no others, names in back-quotes where they must be. Statements have no semicolon,
// but in a Script each ends with one and a newline. What came from the environment is written as its ${NAME}. Print
// panics if the tree has a nil where a node must be.
func Print(n Node) string {
	p := &printer{}
	switch n := n.(type) {
	case *Script:
		for _, s := range n.Stmts {
			p.stmt(s)
			p.w(";\n")
		}
	case Stmt:
		p.stmt(n)
	case Query:
		p.query(n)
	case TableRef:
		p.tableRef(n)
	case Expr:
		p.expr(n, PrecLowest)
	case Type:
		p.typ(n)
	case Pattern:
		p.pattern(n)
	}
	return p.b.String()
}

// QuoteIdent is a name as it must stand in a text: in back-quotes unless it is a plain word.
func QuoteIdent(name string) string {
	if plain(name) && !reserved[strings.ToUpper(name)] && !unsafe[strings.ToUpper(name)] {
		return name
	}
	return quote(name, "`")
}

// QuoteString is a text as a literal.
func QuoteString(text string) string { return quote(text, "'") }

// quote doubles quotes inside, and keeps ${ from being read as a variable.
func quote(s, q string) string {
	return q + strings.ReplaceAll(strings.ReplaceAll(s, q, q+q), "${", "$${") + q
}

func plain(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

type printer struct {
	b      strings.Builder
	indent int
	flat   int // inside an expression: all on one line
}

func (p *printer) w(parts ...string) {
	for _, s := range parts {
		p.b.WriteString(s)
	}
}

// line starts a new line, or writes a space where all stands on one line.
func (p *printer) line() {
	if p.flat > 0 {
		p.w(" ")
		return
	}
	p.w("\n", strings.Repeat("  ", p.indent))
}

// opt writes a word and a space if the condition holds.
func (p *printer) opt(cond bool, word string) {
	if cond {
		p.w(word, " ")
	}
}

func (p *printer) ident(i Ident) {
	if i.Env != "" {
		p.w(i.Env)
		return
	}
	p.w(QuoteIdent(i.Name))
}

// name writes the parts with points between; neighbours that came out of one variable are written once.
func (p *printer) name(n Name) {
	for i, part := range n.Parts {
		if i > 0 {
			before := n.Parts[i-1]
			if part.Env != "" && part.Env == before.Env && part.Span == before.Span {
				continue
			}
			p.w(".")
		}
		p.ident(part)
	}
}

func (p *printer) str(s String) {
	if s.Env != "" {
		p.w(s.Env)
		return
	}
	p.w(QuoteString(s.Value))
}

// sep writes items with commas between.
func sep[T any](p *printer, items []T, write func(T)) {
	for i, item := range items {
		if i > 0 {
			p.w(", ")
		}
		write(item)
	}
}

func (p *printer) idents(ids []Ident) {
	p.w("(")
	sep(p, ids, p.ident)
	p.w(")")
}

func (p *printer) exprs(xs []Expr) { sep(p, xs, func(x Expr) { p.expr(x, PrecLowest) }) }

func (p *printer) orderItems(items []OrderItem) {
	sep(p, items, func(o OrderItem) {
		p.expr(o.Expr, PrecLowest)
		if o.Desc {
			p.w(" DESC")
		}
		switch o.Nulls {
		case NullsFirst:
			p.w(" NULLS FIRST")
		case NullsLast:
			p.w(" NULLS LAST")
		}
	})
}

// Statements.

func (p *printer) stmt(s Stmt) {
	switch s := s.(type) {
	case *QueryStmt:
		p.query(s.Query)
	case *CreateTable:
		p.createTable(s)
	case *CreateView:
		p.w("CREATE ")
		p.opt(s.Temporary, "TEMPORARY")
		p.w("VIEW ")
		p.opt(s.IfNotExists, "IF NOT EXISTS")
		p.name(s.Name)
		if len(s.Columns) > 0 {
			p.w(" (")
			sep(p, s.Columns, func(c ViewColumn) {
				p.ident(c.Name)
				p.comment(c.Comment)
			})
			p.w(")")
		}
		p.comment(s.Comment)
		p.w(" AS")
		p.line()
		p.query(s.Query)
	case *CreateFunction:
		p.w("CREATE ")
		p.opt(s.Temporary, "TEMPORARY")
		p.opt(s.System, "SYSTEM")
		p.w("FUNCTION ")
		p.opt(s.IfNotExists, "IF NOT EXISTS")
		p.name(s.Name)
		p.w(" AS ")
		p.str(s.As)
		if s.Language != "" {
			p.w(" LANGUAGE ", s.Language)
		}
		if len(s.Using) > 0 {
			p.w(" USING ")
			sep(p, s.Using, func(u String) {
				p.w("JAR ")
				p.str(u)
			})
		}
		p.with(s.Options)
	case *CreateDatabase:
		p.w("CREATE DATABASE ")
		p.opt(s.IfNotExists, "IF NOT EXISTS")
		p.name(s.Name)
		p.comment(s.Comment)
		p.with(s.Options)
	case *CreateCatalog:
		p.w("CREATE CATALOG ")
		p.opt(s.IfNotExists, "IF NOT EXISTS")
		p.ident(s.Name)
		p.comment(s.Comment)
		p.with(s.Options)
	case *Insert:
		p.insert(s)
	case *StatementSet:
		p.w("EXECUTE STATEMENT SET BEGIN")
		p.indent++
		for _, i := range s.Inserts {
			p.line()
			p.insert(i)
			p.w(";")
		}
		p.indent--
		p.line()
		p.w("END")
	case *Set:
		p.w("SET")
		if s.Key != nil {
			p.w(" ")
			p.str(*s.Key)
			p.w(" = ")
			p.str(s.Value)
		}
	case *Reset:
		p.w("RESET")
		if s.Key != nil {
			p.w(" ")
			p.str(*s.Key)
		}
	case *Explain:
		p.w("EXPLAIN ")
		if len(s.Details) > 0 {
			p.w(strings.Join(s.Details, ", "), " ")
		}
		p.stmt(s.Stmt)
	case *Show:
		p.show(s)
	case *Describe:
		p.w("DESCRIBE ")
		p.opt(s.What != "", s.What)
		p.opt(s.Extended, "EXTENDED")
		p.name(s.Name)
	case *Drop:
		p.w("DROP ")
		p.opt(s.Temporary, "TEMPORARY")
		p.opt(s.System, "SYSTEM")
		p.w(s.What, " ")
		p.opt(s.IfExists, "IF EXISTS")
		p.name(s.Name)
		if s.Cascade {
			p.w(" CASCADE")
		}
	case *Use:
		p.w("USE ")
		p.opt(s.What != "DATABASE", s.What)
		sep(p, s.Names, p.name)
	}
}

func (p *printer) show(s *Show) {
	p.w("SHOW ", s.What)
	if s.Name != nil {
		switch s.What {
		case "CREATE TABLE", "CREATE VIEW", "PARTITIONS":
			p.w(" ")
		default:
			p.w(" FROM ")
		}
		p.name(*s.Name)
	}
	if s.Like != nil {
		p.w(" ")
		p.opt(s.NotLike, "NOT")
		if s.ILike {
			p.w("I")
		}
		p.w("LIKE ")
		p.str(*s.Like)
	}
}

func (p *printer) comment(c *String) {
	if c != nil {
		p.w(" COMMENT ")
		p.str(*c)
	}
}

func (p *printer) option(o Option) {
	p.str(o.Key)
	p.w(" = ")
	p.str(o.Value)
}

func (p *printer) with(options []Option) {
	if len(options) == 0 {
		return
	}
	p.w(" WITH (")
	p.indent++
	for i, o := range options {
		if i > 0 {
			p.w(",")
		}
		p.line()
		p.option(o)
	}
	p.indent--
	p.line()
	p.w(")")
}

func (p *printer) createTable(t *CreateTable) {
	p.w("CREATE ")
	p.opt(t.Replace, "OR REPLACE")
	p.opt(t.Temporary, "TEMPORARY")
	p.w("TABLE ")
	p.opt(t.IfNotExists, "IF NOT EXISTS")
	p.name(t.Name)
	if len(t.Columns) > 0 || t.PrimaryKey != nil || t.Watermark != nil {
		p.w(" (")
		p.indent++
		first := true
		item := func() {
			if !first {
				p.w(",")
			}
			first = false
			p.line()
		}
		for _, c := range t.Columns {
			item()
			p.column(c)
		}
		if w := t.Watermark; w != nil {
			item()
			p.w("WATERMARK FOR ")
			p.name(w.Column)
			p.w(" AS ")
			p.expr(w.Expr, PrecLowest)
		}
		if k := t.PrimaryKey; k != nil {
			item()
			if k.Name != nil {
				p.w("CONSTRAINT ")
				p.ident(*k.Name)
				p.w(" ")
			}
			p.w("PRIMARY KEY ")
			p.idents(k.Columns)
			if k.NotEnforced {
				p.w(" NOT ENFORCED")
			} else if k.Enforced {
				p.w(" ENFORCED")
			}
		}
		p.indent--
		p.line()
		p.w(")")
	}
	p.comment(t.Comment)
	if d := t.Distribution; d != nil {
		p.w(" DISTRIBUTED")
		if len(d.Columns) > 0 {
			p.w(" BY ")
			p.opt(d.Kind != "", d.Kind)
			p.idents(d.Columns)
		}
		if d.Buckets != nil {
			p.w(" INTO ")
			p.expr(d.Buckets, PrecLowest)
			p.w(" BUCKETS")
		}
	}
	if len(t.PartitionedBy) > 0 {
		p.w(" PARTITIONED BY ")
		p.idents(t.PartitionedBy)
	}
	p.with(t.Options)
	if l := t.Like; l != nil {
		p.w(" LIKE ")
		p.name(l.Table)
		if len(l.Options) > 0 {
			p.w(" (")
			for i, o := range l.Options {
				if i > 0 {
					p.w(" ")
				}
				p.w(o.Strategy, " ", o.Feature)
			}
			p.w(")")
		}
	}
	if t.As != nil {
		p.w(" AS")
		p.line()
		p.query(t.As)
	}
}

func (p *printer) column(c *Column) {
	p.ident(c.Name)
	switch c.Kind {
	case ComputedColumn:
		p.w(" AS ")
		p.expr(c.Expr, PrecLowest)
	default:
		if c.Type != nil {
			p.w(" ")
			p.typ(c.Type)
		}
		if c.Kind == MetadataColumn {
			p.w(" METADATA")
			if c.From != nil {
				p.w(" FROM ")
				p.str(*c.From)
			}
			if c.Virtual {
				p.w(" VIRTUAL")
			}
		}
	}
	p.comment(c.Comment)
}

func (p *printer) insert(i *Insert) {
	p.w("INSERT ")
	if i.Overwrite {
		p.w("OVERWRITE ")
	} else {
		p.w("INTO ")
	}
	p.name(i.Table)
	p.hints(i.Hints)
	if len(i.Partition) > 0 {
		p.w(" PARTITION (")
		sep(p, i.Partition, func(v PartitionValue) {
			p.ident(v.Column)
			if v.Value != nil {
				p.w(" = ")
				p.expr(v.Value, PrecLowest)
			}
		})
		p.w(")")
	}
	if len(i.Columns) > 0 {
		p.w(" (")
		sep(p, i.Columns, p.name)
		p.w(")")
	}
	p.line()
	p.query(i.Query)
}

func (p *printer) hints(hints []Hint) {
	if len(hints) == 0 {
		return
	}
	p.w(" /*+ ")
	sep(p, hints, func(h Hint) {
		p.ident(h.Name)
		if len(h.Options) == 0 && len(h.Args) == 0 {
			return
		}
		p.w("(")
		sep(p, h.Options, p.option)
		sep(p, h.Args, func(x Expr) { p.expr(x, PrecSign) })
		p.w(")")
	})
	p.w(" */")
}

// Queries.

// queryPrec is how tight a query binds as the operand of a set operation.
func queryPrec(q Query) int {
	switch q := q.(type) {
	case *Ordered, *With:
		return 0
	case *SetOp:
		if q.Kind == Intersect {
			return 2
		}
		return 1
	}
	return 3
}

// operand writes a query, in parentheses if it binds less tight than low.
func (p *printer) operand(q Query, low int) {
	if queryPrec(q) >= low {
		p.query(q)
		return
	}
	p.parenQuery(q)
}

// parenQuery writes a query in parentheses, on lines of its own unless inside an expression.
func (p *printer) parenQuery(q Query) {
	p.w("(")
	p.query(q)
	p.w(")")
}

// nested writes a query in parentheses with its lines indented.
func (p *printer) nested(q Query) {
	if p.flat > 0 {
		p.parenQuery(q)
		return
	}
	p.w("(")
	p.indent++
	p.line()
	p.query(q)
	p.indent--
	p.line()
	p.w(")")
}

func (p *printer) query(q Query) {
	switch q := q.(type) {
	case *Select:
		p.selectQuery(q)
	case *SetOp:
		prec := queryPrec(q)
		p.operand(q.Left, prec)
		p.line()
		p.w([...]string{Union: "UNION", Intersect: "INTERSECT", Except: "EXCEPT"}[q.Kind])
		if q.All {
			p.w(" ALL")
		}
		p.line()
		p.operand(q.Right, prec+1)
	case *Values:
		p.w("VALUES ")
		sep(p, q.Rows, func(r *Row) { p.row(r) })
	case *TableQuery:
		p.w("TABLE ")
		p.name(q.Table)
	case *Ordered:
		p.operand(q.Body, 1)
		if len(q.OrderBy) > 0 {
			p.line()
			p.w("ORDER BY ")
			p.orderItems(q.OrderBy)
		}
		if q.Limit != nil {
			p.line()
			p.w("LIMIT ")
			p.expr(q.Limit, PrecLowest)
		}
		if q.Offset != nil {
			p.line()
			p.w("OFFSET ")
			p.expr(q.Offset, PrecLowest)
		}
	case *With:
		p.w("WITH ")
		p.opt(q.Recursive, "RECURSIVE")
		for i, t := range q.Tables {
			if i > 0 {
				p.w(",")
				p.line()
			}
			p.ident(t.Name)
			if len(t.Columns) > 0 {
				p.w(" ")
				p.idents(t.Columns)
			}
			p.w(" AS ")
			p.nested(t.Query)
		}
		p.line()
		if _, ok := q.Body.(*With); ok {
			p.parenQuery(q.Body)
		} else {
			p.query(q.Body)
		}
	}
}

func (p *printer) selectQuery(s *Select) {
	p.w("SELECT")
	p.hints(s.Hints)
	p.w(" ")
	p.opt(s.Distinct, "DISTINCT")
	sep(p, s.Items, func(i SelectItem) {
		p.expr(i.Expr, PrecLowest)
		if i.Alias != nil {
			p.w(" AS ")
			p.ident(*i.Alias)
		}
	})
	if s.From == nil {
		return
	}
	p.line()
	p.w("FROM ")
	p.tableRef(s.From)
	if s.Where != nil {
		p.line()
		p.w("WHERE ")
		p.expr(s.Where, PrecLowest)
	}
	if len(s.GroupBy) > 0 {
		p.line()
		p.w("GROUP BY ")
		p.opt(s.GroupDistinct, "DISTINCT")
		p.exprs(s.GroupBy)
	}
	if s.Having != nil {
		p.line()
		p.w("HAVING ")
		p.expr(s.Having, PrecLowest)
	}
	if len(s.Windows) > 0 {
		p.line()
		p.w("WINDOW ")
		sep(p, s.Windows, func(d WindowDef) {
			p.ident(d.Name)
			p.w(" AS ")
			p.window(d.Spec)
		})
	}
	if s.Qualify != nil {
		p.line()
		p.w("QUALIFY ")
		p.expr(s.Qualify, PrecLowest)
	}
}

func (p *printer) alias(a *Alias) {
	if a == nil {
		return
	}
	p.w(" AS ")
	p.ident(a.Name)
	if len(a.Columns) > 0 {
		p.w(" ")
		p.idents(a.Columns)
	}
}

func (p *printer) tableRef(t TableRef) {
	switch t := t.(type) {
	case *TableName:
		p.name(t.Name)
		p.hints(t.Hints)
		if t.Period != nil {
			p.w(" FOR SYSTEM_TIME AS OF ")
			p.expr(t.Period, PrecLowest)
		}
		p.alias(t.Alias)
	case *Derived:
		p.opt(t.Lateral, "LATERAL")
		p.nested(t.Query)
		p.alias(t.Alias)
	case *Join:
		p.join(t)
	case *TableFunc:
		p.opt(t.Lateral, "LATERAL")
		p.w("TABLE(")
		p.flat++
		p.call(t.Call)
		p.flat--
		p.w(")")
		p.alias(t.Alias)
	case *Unnest:
		p.opt(t.Lateral, "LATERAL")
		p.w("UNNEST(")
		p.exprs(t.Exprs)
		p.w(")")
		if t.Ordinality {
			p.w(" WITH ORDINALITY")
		}
		p.alias(t.Alias)
	case *Match:
		p.match(t)
	}
}

func (p *printer) join(j *Join) {
	side := func(t TableRef, parens bool) {
		if parens {
			p.w("(")
			p.tableRef(t)
			p.w(")")
			return
		}
		p.tableRef(t)
	}
	l, ok := j.Left.(*Join)
	side(j.Left, ok && l.Kind == CommaJoin && j.Kind != CommaJoin)
	r, ok := j.Right.(*Join)
	if j.Kind == CommaJoin {
		p.w(", ")
		side(j.Right, ok && r.Kind == CommaJoin)
		return
	}
	p.line()
	p.opt(j.Natural, "NATURAL")
	p.w([...]string{InnerJoin: "", LeftJoin: "LEFT ", RightJoin: "RIGHT ", FullJoin: "FULL ", CrossJoin: "CROSS "}[j.Kind], "JOIN ")
	side(j.Right, ok)
	switch {
	case j.On != nil:
		p.w(" ON ")
		p.expr(j.On, PrecLowest)
	case len(j.Using) > 0:
		p.w(" USING ")
		p.idents(j.Using)
	}
}

func (p *printer) match(m *Match) {
	p.tableRef(m.Input)
	p.w(" MATCH_RECOGNIZE (")
	p.indent++
	if len(m.PartitionBy) > 0 {
		p.line()
		p.w("PARTITION BY ")
		p.exprs(m.PartitionBy)
	}
	if len(m.OrderBy) > 0 {
		p.line()
		p.w("ORDER BY ")
		p.orderItems(m.OrderBy)
	}
	if len(m.Measures) > 0 {
		p.line()
		p.w("MEASURES ")
		sep(p, m.Measures, func(x Measure) {
			p.expr(x.Expr, PrecLowest)
			p.w(" AS ")
			p.ident(x.Name)
		})
	}
	switch m.Rows {
	case OneRow:
		p.line()
		p.w("ONE ROW PER MATCH")
	case AllRows:
		p.line()
		p.w("ALL ROWS PER MATCH")
	}
	if m.Skip.Kind != SkipDefault {
		p.line()
		p.w("AFTER MATCH SKIP ", [...]string{SkipToNextRow: "TO NEXT ROW", SkipPastLastRow: "PAST LAST ROW", SkipToFirst: "TO FIRST ",
			SkipToLast: "TO LAST ", SkipToVariable: "TO "}[m.Skip.Kind])
		if m.Skip.Variable != nil {
			p.ident(*m.Skip.Variable)
		}
	}
	p.line()
	p.w("PATTERN (")
	p.pattern(m.Pattern)
	p.w(")")
	if m.Within != nil {
		p.w(" WITHIN ")
		p.expr(m.Within, PrecLowest)
	}
	if len(m.Subsets) > 0 {
		p.line()
		p.w("SUBSET ")
		sep(p, m.Subsets, func(s Subset) {
			p.ident(s.Name)
			p.w(" = ")
			p.idents(s.Variables)
		})
	}
	if len(m.Defines) > 0 {
		p.line()
		p.w("DEFINE ")
		sep(p, m.Defines, func(d Define) {
			p.ident(d.Name)
			p.w(" AS ")
			p.expr(d.Cond, PrecLowest)
		})
	}
	p.indent--
	p.line()
	p.w(")")
	p.alias(m.Alias)
}

func (p *printer) pattern(x Pattern) {
	parts := func(xs []Pattern, between string) {
		for i, x := range xs {
			if i > 0 {
				p.w(between)
			}
			p.patternPart(x, between == " | ")
		}
	}
	switch x := x.(type) {
	case *PatternVar:
		p.ident(x.Name)
	case *PatternSeq:
		parts(x.Parts, " ")
	case *PatternAlt:
		parts(x.Parts, " | ")
	case *PatternQuant:
		_, quant := x.Part.(*PatternQuant)
		if quant {
			p.w("(")
			p.pattern(x.Part)
			p.w(")")
		} else {
			p.patternPart(x.Part, false)
		}
		switch {
		case x.Max == -1 && x.Min == 0:
			p.w("*")
		case x.Max == -1 && x.Min == 1:
			p.w("+")
		case x.Max == 1 && x.Min == 0:
			p.w("?")
		case x.Max == -1:
			p.w("{", strconv.Itoa(x.Min), ",}")
		case x.Max == x.Min:
			p.w("{", strconv.Itoa(x.Min), "}")
		default:
			p.w("{", strconv.Itoa(x.Min), ",", strconv.Itoa(x.Max), "}")
		}
		if x.Reluctant {
			p.w("?")
		}
	case *PatternAnchor:
		if x.End {
			p.w("$")
		} else {
			p.w("^")
		}
	case *PatternExclude:
		p.w("{- ")
		p.pattern(x.Part)
		p.w(" -}")
	case *PatternPermute:
		p.w("PERMUTE(")
		sep(p, x.Parts, p.pattern)
		p.w(")")
	case *PatternEmpty:
		p.w("()")
	}
}

// patternPart writes a part of a sequence or alternative, in parentheses if it has parts itself.
func (p *printer) patternPart(x Pattern, alt bool) {
	parens := false
	switch x.(type) {
	case *PatternAlt:
		parens = true
	case *PatternSeq:
		parens = !alt
	}
	if parens {
		p.w("(")
	}
	p.pattern(x)
	if parens {
		p.w(")")
	}
}

// Types.

func (p *printer) typ(t Type) {
	notNull := false
	switch t := t.(type) {
	case *SimpleType:
		notNull = t.NotNull
		switch t.Name {
		case "TIMESTAMP_TZ":
			p.w("TIMESTAMP")
		default:
			p.w(t.Name)
		}
		if t.Precision >= 0 {
			p.w("(", strconv.Itoa(t.Precision))
			if t.Scale >= 0 {
				p.w(", ", strconv.Itoa(t.Scale))
			}
			p.w(")")
		}
		if t.Name == "TIMESTAMP_TZ" {
			p.w(" WITH TIME ZONE")
		}
	case *ArrayType:
		notNull = t.NotNull
		p.w("ARRAY<")
		p.typ(t.Elem)
		p.w(">")
	case *MultisetType:
		notNull = t.NotNull
		p.w("MULTISET<")
		p.typ(t.Elem)
		p.w(">")
	case *MapType:
		notNull = t.NotNull
		p.w("MAP<")
		p.typ(t.Key)
		p.w(", ")
		p.typ(t.Value)
		p.w(">")
	case *RowType:
		notNull = t.NotNull
		p.w("ROW<")
		sep(p, t.Fields, func(f RowField) {
			p.ident(f.Name)
			p.w(" ")
			p.typ(f.Type)
			if f.Comment != nil {
				p.w(" ")
				p.str(*f.Comment)
			}
		})
		p.w(">")
	case *IntervalType:
		notNull = t.NotNull
		p.w("INTERVAL ")
		p.unit(t.Unit)
	case *NamedType:
		notNull = t.NotNull
		p.name(t.Name)
	}
	if notNull {
		p.w(" NOT NULL")
	}
}

func (p *printer) unit(u IntervalUnit) {
	p.w(u.From)
	if u.Precision >= 0 {
		p.w("(", strconv.Itoa(u.Precision))
		if u.To == "" && u.Scale >= 0 {
			p.w(", ", strconv.Itoa(u.Scale))
		}
		p.w(")")
	}
	if u.To != "" {
		p.w(" TO ", u.To)
		if u.Scale >= 0 {
			p.w("(", strconv.Itoa(u.Scale), ")")
		}
	}
}

// Expressions.

// precOf is how tight an expression binds.
func precOf(x Expr) int {
	switch x := x.(type) {
	case *Infix:
		return x.Op.Precedence()
	case *Unary:
		if x.Op == Not {
			return PrecNot
		}
		return PrecSign
	case *Is:
		return PrecIs
	case *IsDistinct, *Quantified:
		return PrecCompare
	case *Between, *In, *LikeExpr:
		return PrecIn
	}
	return PrecPostfix
}

// expr writes an expression, in parentheses if it binds less tight than low.
func (p *printer) expr(x Expr, low int) {
	parens := precOf(x) < low
	if parens {
		p.w("(")
	}
	p.flat++
	p.bare(x)
	p.flat--
	if parens {
		p.w(")")
	}
}

// tight writes an operand that [..], .name or TO follows: in parentheses if that could be read as a part of it.
func (p *printer) tight(x Expr, field bool) {
	ok := false
	switch x.(type) {
	case *ColumnRef:
		ok = !field
	case *Index, *Field, *Call, *JSONCall, *Cast, *Row, *Array, *Map, *Multiset, *QueryExpr, *Env:
		ok = true
	}
	if ok {
		p.expr(x, PrecPostfix)
		return
	}
	p.w("(")
	p.expr(x, PrecLowest)
	p.w(")")
}

func (p *printer) not(cond bool) { p.opt(cond, "NOT") }

func (p *printer) bare(x Expr) {
	switch x := x.(type) {
	case *ColumnRef:
		p.name(x.Name)
	case *Star:
		if x.Qualifier != nil {
			p.name(*x.Qualifier)
			p.w(".")
		}
		p.w("*")
	case *Number:
		if x.Env != "" {
			p.w(x.Env)
		} else {
			p.w(x.Text)
		}
	case *String:
		p.str(*x)
	case *Binary:
		p.w("x'", strings.ToUpper(hex.EncodeToString(x.Value)), "'")
	case *Bool:
		p.w([...]string{False: "FALSE", True: "TRUE", Unknown: "UNKNOWN"}[x.Value])
	case *Null:
		p.w("NULL")
	case *Default:
		p.w("DEFAULT")
	case *Symbol:
		p.w(x.Word)
	case *Env:
		p.w(x.Text)
	case *Time:
		p.w([...]string{DateLiteral: "DATE ", TimeLiteral: "TIME ", TimestampLiteral: "TIMESTAMP ",
			TimestampLTZLiteral: "TIMESTAMP WITH LOCAL TIME ZONE "}[x.Kind])
		p.str(x.Text)
	case *Interval:
		p.w("INTERVAL ")
		if x.Negative {
			p.w("-")
		}
		p.str(x.Text)
		p.w(" ")
		p.unit(x.Unit)
	case *Unary:
		p.unary(x)
	case *Infix:
		prec := x.Op.Precedence()
		p.expr(x.X, prec)
		p.w(" ")
		p.not(x.Not)
		p.w(x.Op.String(), " ")
		p.expr(x.Y, prec+1)
	case *Is:
		p.expr(x.X, PrecIs)
		p.w(" IS ")
		p.not(x.Not)
		p.w([...]string{IsNull: "NULL", IsTrue: "TRUE", IsFalse: "FALSE", IsUnknown: "UNKNOWN", IsJSON: "JSON", IsJSONValue: "JSON VALUE",
			IsJSONObject: "JSON OBJECT", IsJSONArray: "JSON ARRAY", IsJSONScalar: "JSON SCALAR", IsASet: "A SET", IsEmpty: "EMPTY"}[x.Test])
	case *IsDistinct:
		p.expr(x.X, PrecCompare)
		p.w(" IS ")
		p.not(x.Not)
		p.w("DISTINCT FROM ")
		p.expr(x.Y, PrecCompare+1)
	case *Between:
		p.expr(x.X, PrecIn)
		p.w(" ")
		p.not(x.Not)
		p.w("BETWEEN ")
		p.opt(x.Symmetric, "SYMMETRIC")
		p.expr(x.Low, PrecIn+1)
		p.w(" AND ")
		p.expr(x.High, PrecIn+1)
	case *In:
		p.expr(x.X, PrecIn)
		p.w(" ")
		p.not(x.Not)
		p.w("IN (")
		p.queryOrList(x.Query, x.List)
		p.w(")")
	case *LikeExpr:
		p.expr(x.X, PrecIn)
		p.w(" ")
		p.not(x.Not)
		if x.Kind == LikeSimilar {
			p.w("SIMILAR TO ")
		} else {
			p.w("LIKE ")
		}
		p.expr(x.Pattern, PrecIn+1)
		if x.Escape != nil {
			p.w(" ESCAPE ")
			p.expr(x.Escape, PrecIn+1)
		}
	case *Exists:
		p.w("EXISTS ")
		p.parenQuery(x.Query)
	case *Quantified:
		p.expr(x.X, PrecCompare)
		p.w(" ", x.Op.String(), " ")
		if x.All {
			p.w("ALL (")
		} else {
			p.w("ANY (")
		}
		p.queryOrList(x.Query, x.List)
		p.w(")")
	case *Row:
		p.row(x)
	case *Array:
		p.collection("ARRAY", x.Items, x.Query)
	case *Map:
		p.collection("MAP", x.Items, x.Query)
	case *Multiset:
		p.collection("MULTISET", x.Items, x.Query)
	case *QueryExpr:
		p.parenQuery(x.Query)
	case *Index:
		p.tight(x.X, false)
		p.w("[")
		p.expr(x.At, PrecLowest)
		p.w("]")
	case *Field:
		p.tight(x.X, true)
		p.w(".")
		p.ident(x.Name)
	case *Cast:
		if x.Try {
			p.w("TRY_")
		}
		p.w("CAST(")
		p.expr(x.X, PrecLowest)
		p.w(" AS ")
		p.typ(x.Type)
		p.w(")")
	case *Case:
		p.w("CASE")
		if x.Operand != nil {
			p.w(" ")
			p.expr(x.Operand, PrecLowest)
		}
		for _, w := range x.Whens {
			p.w(" WHEN ")
			p.expr(w.Cond, PrecLowest)
			p.w(" THEN ")
			p.expr(w.Then, PrecLowest)
		}
		if x.Else != nil {
			p.w(" ELSE ")
			p.expr(x.Else, PrecLowest)
		}
		p.w(" END")
	case *Call:
		p.call(x)
	case *JSONCall:
		p.json(x)
	case *NamedArg:
		p.ident(x.Name)
		p.w(" => ")
		p.expr(x.X, PrecLowest)
	case *TableArg:
		p.tableArg(x)
	case *Descriptor:
		p.w("DESCRIPTOR")
		p.idents(x.Columns)
	case *GroupingSets:
		p.w([...]string{Sets: "GROUPING SETS (", Rollup: "ROLLUP (", Cube: "CUBE ("}[x.Kind])
		p.exprs(x.Items)
		p.w(")")
	}
}

func (p *printer) row(r *Row) {
	if r.Explicit {
		p.w("ROW")
	}
	p.w("(")
	p.exprs(r.Items)
	p.w(")")
}

func (p *printer) unary(x *Unary) {
	switch x.Op {
	case Not:
		p.w("NOT ")
		p.expr(x.X, PrecNot)
		return
	case Running:
		p.w("RUNNING ")
	case Final:
		p.w("FINAL ")
	case Plus:
		p.w("+")
	case Minus:
		p.w("-")
		if inner, ok := x.X.(*Unary); ok && inner.Op == Minus {
			p.w(" ") // two of them would start a comment
		}
	}
	p.expr(x.X, PrecSign)
}

func (p *printer) queryOrList(q Query, xs []Expr) {
	if q != nil {
		p.query(q)
		return
	}
	p.exprs(xs)
}

func (p *printer) collection(word string, items []Expr, q Query) {
	p.w(word)
	if q != nil {
		p.parenQuery(q)
		return
	}
	p.w("[")
	p.exprs(items)
	p.w("]")
}

// functionName writes the name of a function. Words with a grammar of their own stand in back-quotes if the call is an
// ordinary one that this grammar would not read.
func (p *printer) functionName(c *Call) {
	if len(c.Name.Parts) != 1 || c.Name.Parts[0].Env != "" {
		p.name(c.Name)
		return
	}
	name := c.Name.Parts[0].Name
	word := strings.ToUpper(name)
	ordinary := true // what any call may look like can be read
	if len(c.Args) > 0 {
		switch c.Args[0].(type) {
		case *NamedArg, *TableArg:
			ordinary = false
		}
	}
	switch word {
	case "EXTRACT", "POSITION", "DESCRIPTOR":
		ordinary = false
	case "TRIM", "SUBSTRING", "OVERLAY", "FLOOR", "CEIL", "CEILING", "TRANSLATE":
		ordinary = ordinary && !c.Star && !c.Distinct
	case "TIMESTAMPADD", "TIMESTAMPDIFF":
		ordinary = false
		if len(c.Args) > 0 {
			_, ordinary = c.Args[0].(*Symbol)
		}
		ordinary = ordinary && !c.Distinct
	default:
		ordinary = true
	}
	if ordinary && callable[word] && plain(name) {
		p.w(name)
		return
	}
	if !ordinary {
		p.w(quote(name, "`"))
		return
	}
	p.ident(c.Name.Parts[0])
}

func (p *printer) call(c *Call) {
	switch c.Syntax {
	case BareSyntax:
		p.w(c.Name.Parts[0].Name)
		return
	case KeywordSyntax:
		p.keywordCall(c)
		return
	}
	p.functionName(c)
	p.w("(")
	if c.Star {
		p.w("*")
	}
	p.opt(c.Distinct, "DISTINCT")
	p.exprs(c.Args)
	if len(c.OrderBy) > 0 {
		p.w(" ORDER BY ")
		p.orderItems(c.OrderBy)
	}
	p.w(")")
	if len(c.WithinGroup) > 0 {
		p.w(" WITHIN GROUP (ORDER BY ")
		p.orderItems(c.WithinGroup)
		p.w(")")
	}
	if c.Filter != nil {
		p.w(" FILTER (WHERE ")
		p.expr(c.Filter, PrecLowest)
		p.w(")")
	}
	switch c.Nulls {
	case RespectNulls:
		p.w(" RESPECT NULLS")
	case IgnoreNulls:
		p.w(" IGNORE NULLS")
	}
	if c.Over != nil {
		p.w(" OVER ")
		if c.Over.Name != nil {
			p.ident(*c.Over.Name)
		} else {
			p.window(*c.Over.Spec)
		}
	}
}

func (p *printer) keywordCall(c *Call) {
	word := c.Name.Parts[0].Name
	arg := func(i int) { p.expr(c.Args[i], PrecLowest) }
	p.w(word, "(")
	switch word {
	case "EXTRACT":
		arg(0)
		p.w(" FROM ")
		arg(1)
	case "POSITION":
		p.expr(c.Args[0], PrecIn+1)
		p.w(" IN ")
		arg(1)
		if len(c.Args) > 2 {
			p.w(" FROM ")
			arg(2)
		}
	case "SUBSTRING":
		arg(0)
		p.w(" FROM ")
		arg(1)
		if len(c.Args) > 2 {
			p.w(" FOR ")
			arg(2)
		}
	case "OVERLAY":
		arg(0)
		p.w(" PLACING ")
		arg(1)
		p.w(" FROM ")
		arg(2)
		if len(c.Args) > 3 {
			p.w(" FOR ")
			arg(3)
		}
	case "TRIM":
		arg(0)
		if len(c.Args) > 2 {
			p.w(" ")
			arg(1)
		}
		p.w(" FROM ")
		arg(len(c.Args) - 1)
	case "TRANSLATE":
		arg(0)
		p.w(" USING ")
		arg(1)
	default: // FLOOR, CEIL
		p.tight(c.Args[0], false)
		p.w(" TO ")
		arg(1)
	}
	p.w(")")
}

func (p *printer) window(w Window) {
	p.w("(")
	space := ""
	if w.Base != nil {
		p.ident(*w.Base)
		space = " "
	}
	if len(w.PartitionBy) > 0 {
		p.w(space, "PARTITION BY ")
		p.exprs(w.PartitionBy)
		space = " "
	}
	if len(w.OrderBy) > 0 {
		p.w(space, "ORDER BY ")
		p.orderItems(w.OrderBy)
		space = " "
	}
	if f := w.Frame; f != nil {
		p.w(space)
		if f.Rows {
			p.w("ROWS BETWEEN ")
		} else {
			p.w("RANGE BETWEEN ")
		}
		p.bound(f.Start)
		p.w(" AND ")
		p.bound(f.End)
	}
	p.w(")")
}

func (p *printer) bound(b Bound) {
	switch b.Kind {
	case UnboundedPreceding:
		p.w("UNBOUNDED PRECEDING")
	case UnboundedFollowing:
		p.w("UNBOUNDED FOLLOWING")
	case CurrentRow:
		p.w("CURRENT ROW")
	case Preceding, Following:
		// AND inside would be read as the end of the bound.
		p.expr(b.Offset, PrecNot)
		if b.Kind == Preceding {
			p.w(" PRECEDING")
		} else {
			p.w(" FOLLOWING")
		}
	}
}

func (p *printer) tableArg(t *TableArg) {
	if t.Name != nil {
		p.w("TABLE ")
		p.name(*t.Name)
	} else {
		p.parenQuery(t.Query)
	}
	if len(t.PartitionBy) > 0 {
		p.w(" PARTITION BY ")
		_, column := t.PartitionBy[0].(*ColumnRef)
		alone := column && len(t.PartitionBy) == 1
		if !alone {
			p.w("(")
		}
		p.exprs(t.PartitionBy)
		if !alone {
			p.w(")")
		}
	}
	if len(t.OrderBy) > 0 {
		p.w(" ORDER BY ")
		_, column := t.OrderBy[0].Expr.(*ColumnRef)
		alone := column && len(t.OrderBy) == 1
		if !alone {
			p.w("(")
		}
		p.orderItems(t.OrderBy)
		if !alone {
			p.w(")")
		}
	}
}

func (p *printer) json(c *JSONCall) {
	p.w(c.Name, "(")
	switch c.Name {
	case "JSON_OBJECT", "JSON_OBJECTAGG":
		for i := 0; i+1 < len(c.Args); i += 2 {
			if i > 0 {
				p.w(", ")
			}
			p.expr(c.Args[i], PrecIs+1) // x IS JSON VALUE y would be read otherwise
			p.w(" VALUE ")
			p.expr(c.Args[i+1], PrecLowest)
		}
	default:
		p.exprs(c.Args)
	}
	if c.Returning != nil {
		p.w(" RETURNING ")
		p.typ(c.Returning)
	}
	switch c.Wrapper {
	case "WITHOUT":
		p.w(" WITHOUT WRAPPER")
	case "":
	default:
		p.w(" WITH ", c.Wrapper, " WRAPPER")
	}
	behaviour := func(what string, def Expr, on string) {
		if what == "" {
			return
		}
		p.w(" ", what)
		if def != nil {
			p.w(" ")
			p.expr(def, PrecLowest)
		}
		p.w(" ON ", on)
	}
	behaviour(c.OnEmpty, c.DefaultEmpty, "EMPTY")
	behaviour(c.OnError, c.DefaultError, "ERROR")
	if c.OnNull != "" {
		if len(c.Args) > 0 {
			p.w(" ")
		}
		p.w(c.OnNull, " ON NULL")
	}
	p.w(")")
	if c.Filter != nil {
		p.w(" FILTER (WHERE ")
		p.expr(c.Filter, PrecLowest)
		p.w(")")
	}
}
