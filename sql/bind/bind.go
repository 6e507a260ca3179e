// Package bind gives the syntax tree its meaning: names are looked up, types and implicit casts are found, and what comes
// out is a plan of package rel, or a change of the catalog. It opens no connector and runs nothing.
//
// The first error does not end it: an expression that cannot be bound gets a type of its own that fits everywhere, so that
// one mistake is told once, and other mistakes of the statement too.
package bind

import (
	"maps"
	"slices"
	"strings"

	"github.com/millrace-stream/millrace/internal/near"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/catalog"
	"github.com/millrace-stream/millrace/sql/diag"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
)

// Session is what statements share: the catalog, the place in it where names are looked up, and SET values. It is for one
// goroutine.
type Session struct {
	Store *catalog.Store
	// Catalog and Database are the current ones.
	Catalog, Database string
	// Config has the values of SET.
	Config map[string]string
	// Functions are user functions by the identifier that CREATE FUNCTION .. AS names. They are not to be changed after the
	// first statement.
	Functions map[string]*fn.Func
}

// NewSession is a session with an empty catalog.
func NewSession() *Session {
	return &Session{Store: catalog.NewStore(), Catalog: catalog.DefaultCatalog, Database: catalog.DefaultDatabase,
		Config: map[string]string{}, Functions: map[string]*fn.Func{}}
}

// Result is what a statement means. What is set depends on the statement.
type Result struct {
	// Node is the plan of a query; its root has the columns of the result, with names that are unique.
	Node rel.Node
	// Sinks are the plans of INSERT, CREATE TABLE AS, and a statement set.
	Sinks []*rel.Sink
	// Explain is set with EXPLAIN: Node or Sinks are what it explains.
	Explain *ast.Explain
	// Rows is the answer of SHOW, DESCRIBE and SET alone.
	Rows *Rows
	// Done says in a few words what a statement without rows did: "table t created".
	Done string
}

// Rows is a small table of text.
type Rows struct {
	Columns []string
	Rows    [][]string
}

// Statement binds a statement and carries it out as far as that changes the session: DDL, SET, USE. With errors (at most
// ten, by position) nothing was changed. The statements of a script are to be bound in their order.
func (s *Session) Statement(stmt ast.Stmt, src *diag.Source) (Result, diag.List) {
	b := &binder{session: s, src: src, errs: &diag.List{}, catalog: s.Catalog, database: s.Database}
	r := b.statement(stmt)
	if b.errs.Err() != nil {
		b.errs.Sort()
		list := *b.errs
		if len(list) > diag.Limit {
			list = list[:diag.Limit]
		}
		return Result{}, list
	}
	if b.apply != nil {
		b.apply()
	}
	return r, *b.errs
}

// Expr binds an expression over the columns of a table or view, as a test of expressions has it; name "" is no table. It
// returns the plan that gives its value for each row, as the only column.
func (s *Session) Expr(e ast.Expr, name string, src *diag.Source) (rel.Node, diag.List) {
	item := ast.SelectItem{Span: e.Range(), Expr: e}
	q := &ast.Select{Items: []ast.SelectItem{item}}
	if name != "" {
		q.From = &ast.TableName{Name: ast.Name{Parts: []ast.Ident{{Name: name}}}}
	}
	r, errs := s.Statement(&ast.QueryStmt{Query: q}, src)
	return r.Node, errs
}

// binder binds one statement; a view in it has a binder of its own that shares errs.
type binder struct {
	session           *Session
	src               *diag.Source
	errs              *diag.List
	catalog, database string
	apply             func() // what changes the session, once all is well
	ctes              *cte
	hints             []ast.Hint
	targets           []*row.Type // of INSERT, for the NULLs of its VALUES
	views             int         // how deep in views
	depth             int         // how deep in queries and expressions
	copies            int         // how often the running expression will stand in the plan; 0 = once
}

// cte is a table of WITH; the latest stands first.
type cte struct {
	name string
	node rel.Node
	next *cte
}

// maxViews is how deep views may stand in views.
const maxViews = 64

// told is a message that has been put into the list, to be given a hint and notes.
type told struct{ e *diag.Error }

// errorf tells an error.
func (b *binder) errorf(at ast.Span, code, format string, args ...any) told {
	return b.tell(diag.New(b.src, at, code, format, args...))
}

func (b *binder) tell(e *diag.Error) told {
	b.errs.Add(e)
	return told{e}
}

// WithHint sets the hint beside the caret.
func (t told) WithHint(format string, args ...any) told {
	_ = t.e.WithHint(format, args...)
	return t
}

// WithNote adds a line below.
func (t told) WithNote(format string, args ...any) told {
	_ = t.e.WithNote(format, args...)
	return t
}

func (b *binder) place(at ast.Span) rel.Place { return rel.Place{Source: b.src, Span: at} }

func (b *binder) statement(stmt ast.Stmt) Result {
	switch s := stmt.(type) {
	case *ast.QueryStmt:
		return Result{Node: b.result(s.Query)}
	case *ast.Insert:
		return Result{Sinks: b.sinks(s)}
	case *ast.StatementSet:
		var sinks []*rel.Sink
		for _, i := range s.Inserts {
			sinks = append(sinks, b.sinks(i)...)
		}
		return Result{Sinks: sinks}
	case *ast.Explain:
		switch s.Stmt.(type) {
		case *ast.QueryStmt, *ast.Insert, *ast.StatementSet, *ast.CreateTable:
		default:
			b.errorf(s.Range(), "E2003", "EXPLAIN is for queries, INSERT, statement sets and CREATE TABLE AS")
			return Result{}
		}
		if c, ok := s.Stmt.(*ast.CreateTable); ok && c.As == nil {
			b.errorf(s.Range(), "E2003", "EXPLAIN is for queries, INSERT, statement sets and CREATE TABLE AS")
			return Result{}
		}
		r := b.statement(s.Stmt)
		b.apply = nil
		return Result{Node: r.Node, Sinks: r.Sinks, Explain: s}
	case *ast.CreateTable:
		return b.createTable(s)
	case *ast.CreateView:
		return b.createView(s)
	case *ast.CreateFunction:
		return b.createFunction(s)
	case *ast.CreateDatabase:
		return b.createDatabase(s)
	case *ast.CreateCatalog:
		return b.createCatalog(s)
	case *ast.Drop:
		return b.drop(s)
	case *ast.Use:
		return b.use(s)
	case *ast.Set:
		return b.set(s)
	case *ast.Reset:
		return b.reset(s)
	case *ast.Show:
		return b.show(s)
	case *ast.Describe:
		return b.describe(s)
	}
	b.errorf(stmt.Range(), "E2001", "this statement is not supported")
	return Result{}
}

func (b *binder) sinks(i *ast.Insert) []*rel.Sink {
	if s := b.insert(i); s != nil {
		return []*rel.Sink{s}
	}
	return nil
}

// result binds a query whose columns somebody sees: their names are made unique.
func (b *binder) result(q ast.Query) rel.Node {
	n := b.query(q, nil)
	if n == nil {
		return nil
	}
	return uniqueNames(n)
}

// uniqueNames appends a number to names that were there before: a, a0. Only the schema of the root changes.
func uniqueNames(n rel.Node) rel.Node {
	s := n.Schema()
	seen := map[string]bool{}
	names := make([]string, len(s.Names))
	changed := false
	for i, name := range s.Names {
		u := uniquify(name, seen)
		changed = changed || u != name
		names[i] = u
	}
	if !changed {
		return n
	}
	return rename(n, names)
}

func uniquify(name string, seen map[string]bool) string {
	u := name
	for i := 0; seen[u]; i++ {
		u = name + itoa(i)
	}
	seen[u] = true
	return u
}

// rename gives the columns of a node other names.
func rename(n rel.Node, names []string) rel.Node {
	if slices.Equal(n.Schema().Names, names) {
		return n
	}
	if p, ok := n.(*rel.Project); ok {
		c := *p
		c.Base = rel.MakeBase(names, p.Out.Types, p.Pos)
		return &c
	}
	return &rel.Project{Base: rel.MakeBase(names, n.Schema().Types, n.At()), Input: n, Exprs: columnsOf(n)}
}

// columnsOf are all columns of a node as expressions.
func columnsOf(n rel.Node) []rel.Expr {
	s := n.Schema()
	out := make([]rel.Expr, s.Len())
	for i := range out {
		out[i] = rel.NewColumn(s.Types[i], i, 0, s.Names[i], n.At())
	}
	return out
}

// path completes the name of an object with the current catalog and database.
func (b *binder) path(n ast.Name) (catalog.Path, bool) {
	p := catalog.Path{Catalog: b.catalog, Database: b.database}
	switch len(n.Parts) {
	case 1:
		p.Name = n.Parts[0].Name
	case 2:
		p.Database, p.Name = n.Parts[0].Name, n.Parts[1].Name
	case 3:
		p.Catalog, p.Database, p.Name = n.Parts[0].Name, n.Parts[1].Name, n.Parts[2].Name
	default:
		b.errorf(n.Span, "E2002", "the name of a table has at most three parts: catalog.database.table")
		return p, false
	}
	return p, true
}

// target is path for something to be made: its database must exist.
func (b *binder) target(n ast.Name) (catalog.Path, bool) {
	p, ok := b.path(n)
	if !ok {
		return p, false
	}
	if !b.session.Store.HasDatabase(p) {
		b.errorf(n.Span, "E2012", "database %q not found in catalog %q", p.Database, p.Catalog).
			WithHint("%s", nearest(p.Database, b.session.Store.Databases(p.Catalog), "databases are"))
		return p, false
	}
	return p, true
}

// nearest is the hint for a name that was not found.
func nearest(word string, known []string, listing string) string {
	var parts []string
	if n, ok := near.Word(word, known); ok && (len(word) > 1 || strings.EqualFold(n, word)) {
		parts = append(parts, `did you mean "`+n+`"?`)
	}
	if len(known) > 0 && listing != "" {
		show := known
		more := ""
		if len(show) > 20 {
			show, more = show[:20], ", .."
		}
		parts = append(parts, listing+": "+strings.Join(show, ", ")+more)
	}
	return strings.Join(parts, "  ")
}

func (b *binder) set(s *ast.Set) Result {
	c := b.session.Config
	if s.Key == nil {
		r := &Rows{Columns: []string{"key", "value"}}
		for _, k := range slices.Sorted(maps.Keys(c)) {
			r.Rows = append(r.Rows, []string{k, c[k]})
		}
		return Result{Rows: r}
	}
	b.apply = func() { c[s.Key.Value] = s.Value.Value }
	return Result{Done: s.Key.Value + " set"}
}

func (b *binder) reset(s *ast.Reset) Result {
	if s.Key == nil {
		b.apply = func() { clear(b.session.Config) }
		return Result{Done: "all values reset"}
	}
	b.apply = func() { delete(b.session.Config, s.Key.Value) }
	return Result{Done: s.Key.Value + " reset"}
}
