package bind

import (
	"maps"
	"slices"
	"strings"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/catalog"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
)

// source is what FROM gives: a node, nil after an error, and the names that its columns have.
type source struct {
	node   rel.Node
	items  []*item
	merged []merged
}

func single(name string, n rel.Node) source {
	return source{node: n, items: []*item{newItem(name, 0, n)}}
}

// from binds an item of FROM. outer is the row of the query around; left, not nil to the right of a join, is what stands
// left of it, which LATERAL, table functions and UNNEST see.
func (b *binder) from(t ast.TableRef, outer, left *scope) source {
	if b.depth++; b.depth > maxDepth {
		b.depth--
		b.errorf(t.Range(), "E2006", "FROM is nested too deeply")
		return single("", nil)
	}
	defer func() { b.depth-- }()
	switch t := t.(type) {
	case *ast.TableName:
		if t.Period != nil {
			b.errorf(t.Period.Range(), "E2125", "FOR SYSTEM_TIME AS OF stands on the right side of a join")
		}
		return b.tableName(t)
	case *ast.Derived:
		over := outer
		if t.Lateral && left != nil {
			over = left
		}
		return b.aliased(b.subquery(t.Query, over), t.Alias, "")
	case *ast.Join:
		return b.join(t, outer)
	case *ast.TableFunc:
		if isWindowFunc(t.Call) {
			return b.aliased(b.windowFunc(t.Call, outer), t.Alias, "")
		}
		return b.correlated(b.tableFunc(t, b.lateralScope(outer, left)), left, t.Span)
	case *ast.Unnest:
		return b.correlated(b.unnest(t, b.lateralScope(outer, left)), left, t.Span)
	case *ast.Match:
		return b.match(t, outer)
	}
	b.errorf(t.Range(), "E2001", "this item of FROM is not supported")
	return single("", nil)
}

// lateralScope is the row that the arguments of a table function see, as a row outside of it.
func (b *binder) lateralScope(outer, left *scope) *scope {
	if left == nil {
		left = &scope{parent: outer}
	}
	return &scope{parent: left}
}

// correlated gives a table function without a left side one: a row without columns.
func (b *binder) correlated(s source, left *scope, at ast.Span) source {
	if left != nil || s.node == nil {
		return s
	}
	sch := s.node.Schema()
	s.node = &rel.Correlate{Base: rel.MakeBase(sch.Names, sch.Types, b.place(at)), Kind: rel.Inner, Left: b.one(at), Right: s.node}
	return s
}

// aliased names what a node gives. plain is its name without an alias.
func (b *binder) aliased(n rel.Node, a *ast.Alias, plain string) source {
	if a == nil {
		return single(plain, n)
	}
	if n != nil && len(a.Columns) > 0 {
		n = b.renamed(n, a.Columns, a.Name.Name)
	}
	return single(a.Name.Name, n)
}

func (b *binder) tableName(t *ast.TableName) source {
	s := b.aliased(b.table(t.Name, t.Hints), t.Alias, t.Name.Parts[len(t.Name.Parts)-1].Name)
	if t.Alias == nil && len(t.Name.Parts) <= 3 {
		if p, ok := b.path(t.Name); ok {
			s.items[0].path = []string{p.Catalog, p.Database, p.Name}
		}
	}
	return s
}

// table binds a table, a view or a table of WITH by its name.
func (b *binder) table(name ast.Name, hints []ast.Hint) rel.Node {
	if len(name.Parts) == 1 {
		for c := b.ctes; c != nil; c = c.next {
			if c.name == name.Parts[0].Name {
				return c.node
			}
		}
	}
	p, ok := b.path(name)
	if !ok {
		return nil
	}
	store := b.session.Store
	if v := store.View(p); v != nil {
		return b.view(v, name.Span)
	}
	t := store.Table(p)
	if t == nil {
		b.unknownTable(name, p)
		return nil
	}
	return b.scan(t, b.tableOptions(t, hints), name.Span)
}

func (b *binder) unknownTable(name ast.Name, p catalog.Path) {
	store := b.session.Store
	var known []string
	for c := b.ctes; c != nil; c = c.next {
		known = append(known, c.name)
	}
	e := b.errorf(name.Span, "E2101", "table %q not found", nameText(name))
	switch {
	case !store.HasCatalog(p.Catalog):
		e.WithHint("%s", nearest(p.Catalog, store.Catalogs(), "catalogs are"))
	case !store.HasDatabase(p):
		e.WithHint("%s", nearest(p.Database, store.Databases(p.Catalog), "databases are"))
	default:
		known = append(known, store.Tables(p)...)
		slices.Sort(known)
		e.WithHint("%s", nearest(p.Name, known, "there are"))
		if len(known) == 0 {
			e.WithHint("no table has been created yet")
		}
	}
}

// tableOptions are the options of a table with those of an OPTIONS hint over them.
func (b *binder) tableOptions(t *catalog.Table, hints []ast.Hint) map[string]string {
	options := t.Options
	for _, h := range hints {
		if !strings.EqualFold(h.Name.Name, "OPTIONS") {
			b.errorf(h.Span, "E2118", "behind a table the only hint is OPTIONS").WithHint("STATE_TTL and LOOKUP stand behind SELECT")
			continue
		}
		options = maps.Clone(options)
		if options == nil {
			options = map[string]string{}
		}
		for _, o := range h.Options {
			options[o.Key.Value] = o.Value.Value
		}
	}
	return options
}

// view binds the query of a view in its own place.
func (b *binder) view(v *catalog.View, at ast.Span) rel.Node {
	if b.views >= maxViews {
		b.errorf(at, "E2006", "views are nested more than %d deep", maxViews)
		return nil
	}
	c := &binder{session: b.session, src: v.Source, errs: b.errs, catalog: v.Catalog, database: v.Database, views: b.views + 1}
	n := c.result(v.Query)
	if n == nil {
		return nil
	}
	if v.Columns != nil && len(v.Columns) == n.Schema().Len() {
		n = rename(n, v.Columns)
	}
	return n
}

// scan binds a table: Watermark(Project(Scan)).
func (b *binder) scan(t *catalog.Table, options map[string]string, at ast.Span) rel.Node {
	pl := b.place(at)
	var in []int
	var inNames, names []string
	var inTypes, types []*row.Type
	computed := false
	for i := range t.Columns {
		c := &t.Columns[i]
		names = append(names, c.Name)
		types = append(types, c.Type)
		if c.Kind == catalog.Computed {
			computed = true
			continue
		}
		in = append(in, i)
		inNames = append(inNames, c.Name)
		inTypes = append(inTypes, c.Type.WithMark(row.NoMark))
	}
	var n rel.Node = &rel.Scan{Base: rel.MakeBase(inNames, inTypes, pl), Table: t, Columns: in, Options: options}
	if computed {
		// Computed columns see the physical ones, and not each other.
		c := &binder{session: b.session, src: t.Source, errs: b.errs, catalog: t.Path.Catalog, database: t.Path.Database, views: b.views + 1}
		s := &scope{items: []*item{{name: t.Path.Name, names: inNames, types: inTypes}}, clause: "a computed column"}
		exprs := make([]rel.Expr, len(names))
		k := 0
		for i := range t.Columns {
			col := &t.Columns[i]
			if col.Kind == catalog.Computed {
				exprs[i] = c.expr(s, col.Expr)
				if isBad(exprs[i]) {
					return nil
				}
				continue
			}
			exprs[i] = rel.NewColumn(inTypes[k], k, 0, col.Name, pl)
			k++
		}
		n = project(n, exprs, names, pl)
	}
	if w := t.Watermark; w != nil {
		m := &rel.Watermark{Base: rel.MakeBase(names, types, pl), Input: n, Column: w.Column}
		if !w.FromSource {
			c := &binder{session: b.session, src: t.Source, errs: b.errs, catalog: t.Path.Catalog, database: t.Path.Database, views: b.views + 1}
			m.Expr = c.watermarkExpr(t.Path.Name, n, w.Expr)
			if isBad(m.Expr) {
				return nil
			}
		}
		n = m
	}
	return n
}

// watermarkExpr binds the expression of WATERMARK FOR over the columns of a table.
func (b *binder) watermarkExpr(table string, n rel.Node, e ast.Expr) rel.Expr {
	s := &scope{items: []*item{newItem(table, 0, n)}, clause: "WATERMARK"}
	return b.expr(s, e)
}

var joinKinds = map[ast.JoinKind]rel.JoinKind{ast.InnerJoin: rel.Inner, ast.LeftJoin: rel.Left, ast.RightJoin: rel.Right,
	ast.FullJoin: rel.Full, ast.CrossJoin: rel.Inner, ast.CommaJoin: rel.Inner}

// lateral says whether the right side of a join sees the left one.
func lateral(t ast.TableRef) bool {
	switch t := t.(type) {
	case *ast.Derived:
		return t.Lateral
	case *ast.TableFunc:
		return !isWindowFunc(t.Call)
	case *ast.Unnest:
		return true
	}
	return false
}

func (b *binder) join(j *ast.Join, outer *scope) source {
	kind := joinKinds[j.Kind]
	left := b.from(j.Left, outer, nil)
	ls := &scope{parent: outer, items: left.items, merged: left.merged}
	var asOf rel.Expr
	var right source
	if t, ok := j.Right.(*ast.TableName); ok && t.Period != nil {
		c := *ls
		c.clause = "FOR SYSTEM_TIME AS OF"
		asOf = b.asOf(&c, t.Period)
		right = b.tableName(t)
		if kind == rel.Right || kind == rel.Full {
			b.errorf(t.Period.Range(), "E2125", "FOR SYSTEM_TIME AS OF works with JOIN and LEFT JOIN only")
		}
	} else {
		right = b.from(j.Right, outer, ls)
	}
	lat := lateral(j.Right)
	if lat && (kind == rel.Right || kind == rel.Full) {
		b.errorf(j.Span, "E2126", "LATERAL, table functions and UNNEST work with JOIN, LEFT JOIN and CROSS JOIN only")
		kind = rel.Inner
	}
	width := ls.width()
	out := source{items: slices.Clone(left.items), merged: left.merged}
	for _, i := range right.items {
		c := *i
		c.offset += width
		out.items = append(out.items, &c)
	}
	for _, m := range right.merged {
		out.merged = append(out.merged, merged{m.name, rel.Shift(m.expr, 0, width)})
	}
	b.sameNames(left.items, right.items, j)
	cond := b.joinCond(j, kind, left, &out, outer)

	if left.node == nil || right.node == nil || isBad2(cond) || asOf != nil && isBad(asOf) {
		return out
	}
	l, r := left.node.Schema(), right.node.Schema()
	names := slices.Concat(l.Names, r.Names)
	types := slices.Clone(l.Types)
	if kind == rel.Right || kind == rel.Full {
		types = nullable(types)
	}
	rt := slices.Clone(r.Types)
	if kind == rel.Left || kind == rel.Full {
		rt = nullable(rt)
	}
	types = append(types, rt...)
	base := rel.MakeBase(names, types, b.place(j.Span))
	for _, i := range out.items {
		i.types = types[i.offset : i.offset+len(i.names)]
	}
	for i := range out.merged {
		if c, ok := out.merged[i].expr.(*rel.Column); ok {
			out.merged[i].expr = rel.NewColumn(types[c.Index], c.Index, 0, c.Name, c.Where())
		}
	}
	switch {
	case lat:
		rn := right.node
		if cond != nil && kind == rel.Left {
			// The condition decides which rows of the right side there are: its left columns are those outside.
			rn = filter(rn, rel.MapColumns(cond, func(c *rel.Column, up, inside int) rel.Expr {
				d := *c
				if up > 0 {
					d.Depth++
				} else if c.Index < width {
					d.Depth = inside + 1
				} else {
					d.Index -= width
				}
				return &d
			}))
			cond = nil
		}
		out.node = filter(&rel.Correlate{Base: base, Kind: kind, Left: left.node, Right: rn}, cond)
	default:
		join := &rel.Join{Base: base, Kind: kind, Left: left.node, Right: right.node, Cond: cond, AsOf: asOf}
		join.TTL[0], join.TTL[1] = b.ttl(left.items), b.ttl(right.items)
		if asOf != nil {
			join.Lookup = b.lookupHint(right.items)
		}
		out.node = join
	}
	return out
}

func isBad2(e rel.Expr) bool { return e != nil && isBad(e) }

func nullable(types []*row.Type) []*row.Type {
	out := make([]*row.Type, len(types))
	for i, t := range types {
		out[i] = t.Nullable(true)
	}
	return out
}

// sameNames refuses two tables of one name in FROM.
func (b *binder) sameNames(left, right []*item, j *ast.Join) {
	for _, l := range left {
		for _, r := range right {
			if l.name != "" && l.name == r.name && slices.Equal(l.path, r.path) {
				b.errorf(j.Right.Range(), "E2102", "FROM has two tables named %q", l.name).WithHint("give one of them another name with AS")
				return
			}
		}
	}
}

func (b *binder) asOf(s *scope, e ast.Expr) rel.Expr {
	x := b.expr(s, e)
	if isBad(x) {
		return x
	}
	if k := x.Type().Kind(); k != row.KindTimestamp && k != row.KindTimestampLTZ {
		b.errorf(e.Range(), "E2125", "FOR SYSTEM_TIME AS OF wants a time attribute, but %s is %s", rel.Text(x), x.Type().Text())
		return b.bad(e.Range())
	}
	if c, ok := x.(*rel.Column); !ok || c.Depth != 0 || x.Type().Mark() == row.NoMark {
		b.errorf(e.Range(), "E2125", "FOR SYSTEM_TIME AS OF wants a time attribute of the left side, which %s is not", rel.Text(x)).
			WithNote("a time attribute is a column with a WATERMARK, or AS PROCTIME(), that no expression has changed")
		return b.bad(e.Range())
	}
	return x
}

// lookupHint has the options of /*+ LOOKUP('table'='d', ..) */ for a table.
func (b *binder) lookupHint(items []*item) map[string]string {
	for _, h := range b.hints {
		if !strings.EqualFold(h.Name.Name, "LOOKUP") {
			continue
		}
		options := map[string]string{}
		for _, o := range h.Options {
			options[o.Key.Value] = o.Value.Value
		}
		for _, i := range items {
			if i.name == options["table"] {
				return options
			}
		}
	}
	return nil
}

// joinCond binds ON, USING and NATURAL over both sides; the columns that the last two merge are noted in out.
func (b *binder) joinCond(j *ast.Join, kind rel.JoinKind, left source, out *source, outer *scope) rel.Expr {
	using := j.Using
	if j.Natural {
		for _, i := range left.items {
			for c, n := range i.names {
				if i.hiddenColumn(c) || slices.ContainsFunc(using, func(u ast.Ident) bool { return u.Name == n }) {
					continue
				}
				for _, r := range out.items[len(left.items):] {
					if slices.Contains(r.names, n) {
						using = append(using, ast.Ident{Span: j.Span, Name: n})
						break
					}
				}
			}
		}
	}
	if len(using) == 0 {
		if j.On == nil {
			if !j.Natural && (j.Kind == ast.LeftJoin || j.Kind == ast.RightJoin || j.Kind == ast.FullJoin || j.Kind == ast.InnerJoin) && !lateral(j.Right) {
				b.errorf(j.Span, "E2126", "JOIN needs ON or USING").WithHint("without a condition write CROSS JOIN")
			}
			return nil
		}
		s := &scope{parent: outer, items: out.items, merged: out.merged, clause: "ON"}
		cond := b.cond(s, j.On, "ON")
		if !isBad(cond) && rel.IsTrue(cond) {
			return nil
		}
		return cond
	}
	ls := &scope{items: left.items, merged: left.merged}
	rs := &scope{items: out.items[len(left.items):]}
	var cond rel.Expr
	var added []merged
	for _, u := range using {
		n := ast.Name{Span: u.Span, Parts: []ast.Ident{u}}
		l, okL := b.lookup(ls, n, 0)
		r, okR := b.lookup(rs, n, 0)
		if !okL || !okR {
			side := "right"
			if !okL {
				side = "left"
			}
			b.errorf(u.Span, "E2103", "column %q not found on the %s side of the join", u.Name, side)
			return b.bad(u.Span)
		}
		eq := b.call("=", u.Span, l.expr, r.expr)
		if isBad(eq) {
			return eq
		}
		if cond == nil {
			cond = eq
		} else {
			cond = b.call("AND", u.Span, cond, eq)
		}
		m := l.expr
		switch kind {
		case rel.Right:
			m = r.expr
		case rel.Full:
			m = b.call("COALESCE", u.Span, nullableExpr(l.expr), nullableExpr(r.expr))
		}
		added = append(added, merged{u.Name, m})
		hide(out.items, u.Name)
	}
	var kept []merged
	for _, m := range out.merged {
		if !slices.ContainsFunc(added, func(a merged) bool { return a.name == m.name }) {
			kept = append(kept, m)
		}
	}
	out.merged = append(added, kept...)
	return cond
}

func nullableExpr(e rel.Expr) rel.Expr {
	if c, ok := e.(*rel.Column); ok {
		return rel.NewColumn(c.Type().Nullable(true), c.Index, c.Depth, c.Name, c.Where())
	}
	return e
}

// hide makes the columns of a name found by their qualified name only. Items are shared with the left side's, which are
// done with, so they are copied.
func hide(items []*item, name string) {
	for k, i := range items {
		for c, n := range i.names {
			if n != name {
				continue
			}
			d := *i
			d.hidden = make([]bool, len(i.names))
			copy(d.hidden, i.hidden)
			d.hidden[c] = true
			items[k] = &d
			i = &d
		}
	}
}

// unnest binds UNNEST(..). s is empty, with the left side around it.
func (b *binder) unnest(u *ast.Unnest, s *scope) source {
	exprs := b.exprs(s, u.Exprs)
	var names []string
	var types []*row.Type
	for i, e := range exprs {
		if isBad(e) {
			return b.aliased(nil, u.Alias, "")
		}
		t := e.Type()
		pad := len(exprs) > 1 // the shorter ones are filled up with NULL
		switch t.Kind() {
		case row.KindArray, row.KindMultiset:
			el := t.Elem()
			if el.Kind() == row.KindRow {
				for f := range el.NumFields() {
					ft := el.Field(f).Type
					names = append(names, el.Field(f).Name)
					types = append(types, ft.Nullable(ft.IsNullable() || el.IsNullable() || pad))
				}
				continue
			}
			names = append(names, "EXPR$"+itoa(len(names)))
			types = append(types, el.Nullable(el.IsNullable() || pad))
		case row.KindMap:
			names = append(names, "KEY", "VALUE")
			types = append(types, t.Key().Nullable(t.Key().IsNullable() || pad), t.Elem().Nullable(t.Elem().IsNullable() || pad))
		default:
			b.errorf(u.Exprs[i].Range(), "E2127", "UNNEST wants an ARRAY, a MAP or a MULTISET, but %s is %s", rel.Text(e), t.Text())
			return b.aliased(nil, u.Alias, "")
		}
	}
	if u.Ordinality {
		names = append(names, "ORDINALITY")
		types = append(types, row.Int().NotNull())
	}
	n := &rel.Unnest{Base: rel.MakeBase(names, types, b.place(u.Span)), Exprs: exprs, Ordinality: u.Ordinality}
	if u.Alias != nil && len(u.Alias.Columns) > 0 {
		return b.aliased(b.renamedLeaf(n, u.Alias), &ast.Alias{Name: u.Alias.Name}, "")
	}
	if u.Alias != nil && len(names) == 1 {
		// UNNEST(a) AS x: the only column is x too.
		c := *n
		c.Out.Names = []string{u.Alias.Name.Name}
		return b.aliased(&c, u.Alias, "")
	}
	return b.aliased(n, u.Alias, "")
}

// renamedLeaf is renamed for nodes whose names are their own to choose: no Project is needed.
func (b *binder) renamedLeaf(n rel.Node, a *ast.Alias) rel.Node {
	if len(a.Columns) != n.Schema().Len() {
		b.errorf(a.Span, "E2115", "%q has %d columns, but %d names are given", a.Name.Name, n.Schema().Len(), len(a.Columns))
		return nil
	}
	names := make([]string, len(a.Columns))
	for i, c := range a.Columns {
		names[i] = c.Name
	}
	switch n := n.(type) {
	case *rel.Unnest:
		c := *n
		c.Out.Names = names
		return &c
	case *rel.TableFunc:
		c := *n
		c.Out.Names = names
		return &c
	}
	return rename(n, names)
}

// tableFunc binds a table function; s as in unnest.
func (b *binder) tableFunc(t *ast.TableFunc, s *scope) source {
	f := b.function(t.Call.Name)
	if f == nil {
		b.exprs(s, t.Call.Args)
		b.unknownFunction(t.Call.Name)
		return b.aliased(nil, t.Alias, "")
	}
	if f.Kind != fn.Table {
		b.errorf(t.Call.Span, "E2007", "%s is no table function", f.Name)
		return b.aliased(nil, t.Alias, "")
	}
	args := b.exprs(s, t.Call.Args)
	if anyBad(args...) {
		return b.aliased(nil, t.Alias, "")
	}
	cast, rt, ok := b.resolve(f, t.Call.Span, args)
	if !ok {
		return b.aliased(nil, t.Alias, "")
	}
	names, types := []string{"EXPR$0"}, []*row.Type{rt}
	if rt.Kind() == row.KindRow {
		names, types = fieldNames(rt), nil
		for i := range rt.NumFields() {
			types = append(types, rt.Field(i).Type)
		}
	}
	n := &rel.TableFunc{Base: rel.MakeBase(names, types, b.place(t.Span)), Call: rel.NewCall(rt, f, cast, b.place(t.Call.Span))}
	if t.Alias != nil && len(t.Alias.Columns) > 0 {
		return b.aliased(b.renamedLeaf(n, t.Alias), &ast.Alias{Name: t.Alias.Name}, "")
	}
	return b.aliased(n, t.Alias, "")
}

var windowKinds = map[string]rel.WindowKind{"TUMBLE": rel.Tumble, "HOP": rel.Hop, "CUMULATE": rel.Cumulate, "SESSION": rel.Session}

func isWindowFunc(c *ast.Call) bool {
	if len(c.Name.Parts) != 1 {
		return false
	}
	_, ok := windowKinds[strings.ToUpper(c.Name.Parts[0].Name)]
	return ok
}

// windowParams are the arguments by position.
var windowParams = map[rel.WindowKind][]string{
	rel.Tumble:   {"DATA", "TIMECOL", "SIZE", "OFFSET"},
	rel.Hop:      {"DATA", "TIMECOL", "SLIDE", "SIZE", "OFFSET"},
	rel.Cumulate: {"DATA", "TIMECOL", "STEP", "SIZE", "OFFSET"},
	rel.Session:  {"DATA", "TIMECOL", "GAP"},
}

// windowFunc binds TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL ..) and its like in FROM.
func (b *binder) windowFunc(c *ast.Call, outer *scope) rel.Node {
	name := strings.ToUpper(c.Name.Parts[0].Name)
	kind := windowKinds[name]
	params := windowParams[kind]
	args := map[string]ast.Expr{}
	named := false
	for i, a := range c.Args {
		var p string
		if n, ok := a.(*ast.NamedArg); ok {
			named = true
			p, a = strings.ToUpper(n.Name.Name), n.X
			if !slices.Contains(params, p) {
				b.errorf(n.Name.Span, "E2122", "%s has no argument %s", name, n.Name.Name).WithHint("%s", nearest(p, params, "arguments are"))
				return nil
			}
		} else if i < len(params) && !named {
			p = params[i]
		} else {
			b.errorf(a.Range(), "E2122", "%s takes the arguments %s", name, strings.Join(params, ", "))
			return nil
		}
		if args[p] != nil {
			b.errorf(a.Range(), "E2122", "%s has %s twice", name, p)
			return nil
		}
		args[p] = a
	}
	for _, p := range params {
		if args[p] == nil && p != "OFFSET" {
			b.errorf(c.Span, "E2122", "%s needs the argument %s", name, p).WithHint("arguments are: %s", strings.Join(params, ", "))
			return nil
		}
	}
	data, ok := args["DATA"].(*ast.TableArg)
	if !ok {
		b.errorf(args["DATA"].Range(), "E2122", "the first argument of %s is a table: TABLE t", name)
		return nil
	}
	var n rel.Node
	if data.Query != nil {
		n = b.subquery(data.Query, outer)
	} else {
		n = b.table(*data.Name, nil)
	}
	if n == nil {
		return nil
	}
	in := n.Schema()
	w := rel.WindowSpec{Kind: kind}
	bad := false
	d, ok := args["TIMECOL"].(*ast.Descriptor)
	if !ok || len(d.Columns) != 1 {
		b.errorf(args["TIMECOL"].Range(), "E2122", "the time of %s is given as DESCRIPTOR(column)", name)
		return nil
	}
	w.Time = b.inputColumn(in, d.Columns[0])
	if w.Time < 0 {
		return nil
	}
	tt := in.Types[w.Time]
	if tt.Mark() == row.NoMark {
		b.errorf(d.Columns[0].Span, "E2121", "column %q is %s and no time attribute: a window wants one", d.Columns[0].Name, tt.Text()).
			WithNote("a time attribute is a column with a WATERMARK, or AS PROCTIME(), that no expression has changed")
		bad = true
	}
	w.Proc = tt.Mark() == row.Proctime
	s := &scope{clause: "the arguments of a window"}
	length := func(p, what string) int64 {
		if args[p] == nil {
			return 0
		}
		v, ok := b.windowLength(s, args[p], what)
		bad = bad || !ok
		return v
	}
	switch kind {
	case rel.Session:
		w.Size = length("GAP", "gap")
	case rel.Hop:
		w.Slide, w.Size = length("SLIDE", "slide"), length("SIZE", "size")
	case rel.Cumulate:
		w.Slide, w.Size = length("STEP", "step"), length("SIZE", "size")
		if !bad && w.Size%w.Slide != 0 {
			b.errorf(args["SIZE"].Range(), "E2122", "the size of CUMULATE is a multiple of its step")
			bad = true
		}
	default:
		w.Size = length("SIZE", "size")
	}
	w.Offset = length("OFFSET", "offset")
	if len(data.PartitionBy) > 0 {
		if kind != rel.Session {
			b.errorf(data.PartitionBy[0].Range(), "E2122", "only SESSION takes PARTITION BY")
			bad = true
		}
		for _, p := range data.PartitionBy {
			r, ok := p.(*ast.ColumnRef)
			if !ok || len(r.Name.Parts) != 1 {
				b.errorf(p.Range(), "E2122", "PARTITION BY of SESSION takes columns")
				bad = true
				continue
			}
			k := b.inputColumn(in, r.Name.Parts[0])
			bad = bad || k < 0
			w.Partition = append(w.Partition, k)
		}
	}
	if bad {
		return nil
	}
	names := append(slices.Clone(in.Names), "window_start", "window_end", "window_time")
	time := tt.NotNull()
	types := append(slices.Clone(in.Types), row.Timestamp(3).NotNull(), row.Timestamp(3).NotNull(), time)
	return &rel.WindowTVF{Base: rel.MakeBase(names, types, b.place(c.Span)), Input: n, WindowSpec: w}
}

// inputColumn finds a column by its bare name; -1 after an error.
func (b *binder) inputColumn(s *rel.Schema, c ast.Ident) int {
	at := positions(s.Names, c.Name)
	switch len(at) {
	case 1:
		return at[0]
	case 0:
		b.errorf(c.Span, "E2103", "column %q not found", c.Name).WithHint("%s", nearest(c.Name, s.Names, "the table has"))
	default:
		b.errorf(c.Span, "E2104", "column %q is ambiguous: there are %d of that name", c.Name, len(at))
	}
	return -1
}
