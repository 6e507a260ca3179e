package bind

import (
	"maps"
	"slices"
	"strings"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/catalog"
	"github.com/millrace-stream/millrace/sql/rel"
)

// features of LIKE, and whether they are taken over: INCLUDING, EXCLUDING or OVERWRITING.
type likeRules map[string]string

var likeFeatures = []string{"CONSTRAINTS", "DISTRIBUTION", "GENERATED", "METADATA", "OPTIONS", "PARTITIONS", "WATERMARKS"}

func (b *binder) likeRules(l *ast.Like) likeRules {
	r := likeRules{}
	for _, f := range likeFeatures {
		r[f] = "INCLUDING"
	}
	r["OPTIONS"] = "OVERWRITING"
	for _, o := range l.Options {
		if o.Feature == "ALL" {
			for _, f := range likeFeatures {
				r[f] = o.Strategy
			}
		}
	}
	for _, o := range l.Options {
		if o.Feature == "ALL" {
			continue
		}
		if o.Strategy == "OVERWRITING" && (o.Feature == "CONSTRAINTS" || o.Feature == "PARTITIONS" || o.Feature == "DISTRIBUTION") {
			b.errorf(o.Span, "E2132", "OVERWRITING %s is not possible", o.Feature)
		}
		r[o.Feature] = o.Strategy
	}
	return r
}

// createTable binds CREATE TABLE in all its forms.
func (b *binder) createTable(c *ast.CreateTable) Result {
	p, ok := b.target(c.Name)
	store := b.session.Store
	if ok && (store.Table(p) != nil || store.View(p) != nil) {
		switch {
		case c.IfNotExists:
			return Result{Done: "table " + p.String() + " is there already"}
		case c.Replace:
		default:
			b.errorf(c.Name.Span, "E2133", "table %q exists already", nameText(c.Name)).WithHint("CREATE TABLE IF NOT EXISTS, or DROP TABLE first")
		}
	}
	if c.Replace && c.As == nil {
		b.errorf(c.Span, "E2001", "CREATE OR REPLACE TABLE is for CREATE TABLE .. AS only")
	}
	t := &catalog.Table{Path: p, Options: map[string]string{}, Places: map[string]ast.Span{}, Source: b.src, Decl: c}
	if c.Comment != nil {
		t.Comment = c.Comment.Value
	}
	rules := likeRules{}
	var base *catalog.Table
	if c.Like != nil {
		rules = b.likeRules(c.Like)
		if base = b.likeBase(c.Like, rules, t); base == nil {
			return Result{}
		}
	}
	var query rel.Node
	if c.As != nil {
		if query = b.result(c.As); query == nil {
			return Result{}
		}
		b.asColumns(c, query, t)
	} else {
		b.declaredColumns(c, rules, t)
	}
	for _, o := range c.Options {
		if _, there := t.Options[o.Key.Value]; there && base != nil && rules["OPTIONS"] == "INCLUDING" {
			b.errorf(o.Span, "E2132", "option '%s' is there already in %q", o.Key.Value, base.Path.Name).WithHint("write LIKE %s (OVERWRITING OPTIONS)", base.Path.Name)
		}
		t.Options[o.Key.Value] = o.Value.Value
		t.Places[o.Key.Value] = o.Span
	}
	b.primaryKey(c, t)
	for _, pc := range c.PartitionedBy {
		if t.Column(pc.Name) < 0 {
			b.errorf(pc.Span, "E2103", "column %q not found in table %q", pc.Name, p.Name)
		}
	}
	b.computedColumns(t)
	b.watermark(c, rules, base, t)
	if b.errs.Err() != nil {
		return Result{}
	}
	b.apply = func() { store.PutTable(t) }
	r := Result{Done: "table " + p.String() + " created"}
	if query != nil {
		// The columns of the query stand under their names; the table may have them in another order.
		columns := make([]int, query.Schema().Len())
		for i, name := range query.Schema().Names {
			columns[i] = t.Column(name)
		}
		if s := b.sinkInto(t, query, columns, nil, nil, t.Options, c.As.Range(), c.Span); s != nil {
			r.Sinks = []*rel.Sink{s}
		}
	}
	return r
}

// likeBase finds the table of LIKE and takes over what the rules say; nil after an error.
func (b *binder) likeBase(l *ast.Like, rules likeRules, t *catalog.Table) *catalog.Table {
	p, ok := b.path(l.Table)
	if !ok {
		return nil
	}
	base := b.session.Store.Table(p)
	if base == nil {
		b.unknownTable(l.Table, p)
		return nil
	}
	moved := map[int]int{}
	for i, c := range base.Columns {
		if c.Kind == catalog.Computed && rules["GENERATED"] == "EXCLUDING" || c.Kind == catalog.Metadata && rules["METADATA"] == "EXCLUDING" {
			continue
		}
		moved[i] = len(t.Columns)
		c.Type = c.Type.WithMark(row.NoMark)
		t.Columns = append(t.Columns, c)
	}
	if rules["OPTIONS"] != "EXCLUDING" {
		maps.Copy(t.Options, base.Options)
	}
	if rules["CONSTRAINTS"] != "EXCLUDING" && base.Key != nil {
		for _, k := range base.Key {
			t.Key = append(t.Key, moved[k])
		}
	} else {
		// Columns of the key were made NOT NULL by it, which is kept: Flink does so too.
		t.Key = nil
	}
	return base
}

func (b *binder) declaredColumns(c *ast.CreateTable, rules likeRules, t *catalog.Table) {
	fromBase := len(t.Columns)
	for _, d := range c.Columns {
		col := catalog.Column{Name: d.Name.Name}
		if d.Comment != nil {
			col.Comment = d.Comment.Value
		}
		switch d.Kind {
		case ast.PhysicalColumn:
			if d.Type == nil {
				b.errorf(d.Span, "E2004", "column %q has no type", d.Name.Name)
				continue
			}
			if col.Type = b.typ(d.Type); col.Type == nil {
				col.Type = row.Null()
			}
		case ast.MetadataColumn:
			col.Kind, col.Virtual, col.Key = catalog.Metadata, d.Virtual, d.Name.Name
			if d.From != nil {
				col.Key = d.From.Value
			}
			if col.Type = b.typ(d.Type); col.Type == nil {
				col.Type = row.Null()
			}
		case ast.ComputedColumn:
			col.Kind, col.Expr, col.Type = catalog.Computed, d.Expr, row.Null()
		}
		if at := t.Column(col.Name); at >= 0 {
			feature := map[catalog.ColumnKind]string{catalog.Computed: "GENERATED", catalog.Metadata: "METADATA"}[col.Kind]
			if at < fromBase && feature != "" && t.Columns[at].Kind == col.Kind && rules[feature] == "OVERWRITING" {
				t.Columns[at] = col
				continue
			}
			e := b.errorf(d.Name.Span, "E2134", "column %q is there twice", col.Name)
			if at < fromBase && feature != "" {
				e.WithHint("write LIKE .. (OVERWRITING %s)", feature)
			}
			continue
		}
		t.Columns = append(t.Columns, col)
	}
	if len(t.Columns) == 0 {
		b.errorf(c.Span, "E2134", "a table has one column at least")
	}
}

// asColumns makes the columns of CREATE TABLE AS: those of the query, in the order of the list if there is one, and declared
// ones beside them.
func (b *binder) asColumns(c *ast.CreateTable, query rel.Node, t *catalog.Table) {
	s := query.Schema()
	of := func(name string) *catalog.Column {
		if i := slices.Index(s.Names, name); i >= 0 {
			qt := s.Types[i].WithMark(row.NoMark)
			if qt.Kind().Text() && qt.Length() == 0 {
				qt = row.String().Nullable(qt.IsNullable())
			}
			return &catalog.Column{Name: name, Type: qt}
		}
		return nil
	}
	bare := len(c.Columns) > 0
	for _, d := range c.Columns {
		bare = bare && d.Kind == ast.PhysicalColumn && d.Type == nil
	}
	if bare {
		for _, d := range c.Columns {
			q := of(d.Name.Name)
			if q == nil {
				b.errorf(d.Span, "E2103", "column %q not found in the query", d.Name.Name).WithHint("%s", nearest(d.Name.Name, s.Names, "the query has"))
				continue
			}
			if t.Column(q.Name) >= 0 {
				b.errorf(d.Span, "E2134", "column %q is there twice", q.Name)
				continue
			}
			t.Columns = append(t.Columns, *q)
		}
		for _, name := range s.Names {
			if t.Column(name) < 0 && len(t.Columns) == len(c.Columns) {
				b.errorf(c.Columns[0].Span, "E2115", "the list of columns leaves out %q of the query", name)
				return
			}
		}
		return
	}
	if len(c.Columns) > 0 {
		b.declaredColumns(c, likeRules{}, t)
	}
	for _, name := range s.Names {
		q := of(name)
		if at := t.Column(name); at >= 0 {
			if t.Columns[at].Kind != catalog.Physical {
				b.errorf(c.Span, "E2134", "column %q of the query is declared as a computed or metadata column", name)
			}
			continue // declared: the query is cast to its type
		}
		t.Columns = append(t.Columns, *q)
	}
}

func (b *binder) primaryKey(c *ast.CreateTable, t *catalog.Table) {
	k := c.PrimaryKey
	if k == nil {
		return
	}
	if t.Key != nil {
		b.errorf(k.Span, "E2135", "the table of LIKE has a PRIMARY KEY already").WithHint("write LIKE .. (EXCLUDING CONSTRAINTS)")
		return
	}
	if !k.NotEnforced {
		b.errorf(k.Span, "E2135", "a PRIMARY KEY has to be NOT ENFORCED: a stream cannot check it").WithHint("write PRIMARY KEY (..) NOT ENFORCED")
		return
	}
	for _, id := range k.Columns {
		i := t.Column(id.Name)
		switch {
		case i < 0:
			var names []string
			for _, col := range t.Columns {
				names = append(names, col.Name)
			}
			b.errorf(id.Span, "E2103", "column %q of the PRIMARY KEY not found", id.Name).WithHint("%s", nearest(id.Name, names, "the table has"))
		case t.Columns[i].Kind != catalog.Physical:
			b.errorf(id.Span, "E2135", "column %q of the PRIMARY KEY is no physical column", id.Name)
		case slices.Contains(t.Key, i):
			b.errorf(id.Span, "E2135", "the PRIMARY KEY has column %q twice", id.Name)
		default:
			t.Key = append(t.Key, i)
			t.Columns[i].Type = t.Columns[i].Type.NotNull()
		}
	}
}

// computedColumns finds the types of computed columns: they see the physical and metadata columns.
func (b *binder) computedColumns(t *catalog.Table) {
	it := &item{name: t.Path.Name}
	for i := range t.Columns {
		if c := &t.Columns[i]; c.Kind != catalog.Computed {
			it.names = append(it.names, c.Name)
			it.types = append(it.types, c.Type)
		}
	}
	s := &scope{items: []*item{it}, clause: "a computed column"}
	for i := range t.Columns {
		c := &t.Columns[i]
		if c.Kind != catalog.Computed {
			continue
		}
		if e := b.noNull(b.expr(s, c.Expr)); !isBad(e) {
			c.Type = e.Type()
		}
	}
}

// watermark binds WATERMARK FOR, the own or that of LIKE.
func (b *binder) watermark(c *ast.CreateTable, rules likeRules, base *catalog.Table, t *catalog.Table) {
	w := c.Watermark
	if base != nil && base.Watermark != nil && rules["WATERMARKS"] != "EXCLUDING" {
		if w != nil && rules["WATERMARKS"] != "OVERWRITING" {
			b.errorf(w.Span, "E2136", "the table of LIKE has a WATERMARK already").WithHint("write LIKE .. (OVERWRITING WATERMARKS)")
			return
		}
		if w == nil {
			i := t.Column(base.Columns[base.Watermark.Column].Name)
			if i < 0 {
				b.errorf(c.Like.Span, "E2136", "the column of the WATERMARK of %q is left out", base.Path.Name).WithHint("write EXCLUDING WATERMARKS too")
				return
			}
			m := *base.Watermark
			m.Column = i
			t.Watermark = &m
			t.Columns[i].Type = t.Columns[i].Type.WithMark(row.Rowtime)
			return
		}
	}
	if w == nil {
		return
	}
	if len(w.Column.Parts) > 1 {
		b.errorf(w.Column.Span, "E2136", "WATERMARK FOR takes a column, not a field of a row").WithHint("make it a computed column first: ts AS %s", nameText(w.Column))
		return
	}
	name := w.Column.Parts[0].Name
	i := t.Column(name)
	if i < 0 {
		var names []string
		for _, col := range t.Columns {
			names = append(names, col.Name)
		}
		b.errorf(w.Column.Span, "E2103", "column %q of WATERMARK not found", name).WithHint("%s", nearest(name, names, "the table has"))
		return
	}
	ct := t.Columns[i].Type
	isTime := func(x *row.Type) bool {
		return (x.Kind() == row.KindTimestamp || x.Kind() == row.KindTimestampLTZ) && x.Precision() <= 3
	}
	if ct.Kind() == row.KindNull {
		return // told already
	}
	if !isTime(ct) || ct.Mark() == row.Proctime {
		b.errorf(w.Column.Span, "E2136", "WATERMARK FOR wants a column of TIMESTAMP(0..3) or TIMESTAMP_LTZ(0..3), but %q is %s", name, ct.String()).
			WithHint("%s", "a computed column can convert it: ts AS CAST(x AS TIMESTAMP(3)), ts AS TO_TIMESTAMP_LTZ(ms, 3)")
		return
	}
	t.Watermark = &catalog.Watermark{Column: i, Expr: w.Expr}
	if call, ok := w.Expr.(*ast.Call); ok && len(call.Name.Parts) == 1 && strings.EqualFold(call.Name.Parts[0].Name, "SOURCE_WATERMARK") && len(call.Args) == 0 {
		t.Watermark.FromSource, t.Watermark.Expr = true, nil
	} else {
		it := &item{name: t.Path.Name}
		for k := range t.Columns {
			it.names = append(it.names, t.Columns[k].Name)
			it.types = append(it.types, t.Columns[k].Type)
		}
		e := b.expr(&scope{items: []*item{it}, clause: "WATERMARK"}, w.Expr)
		switch {
		case isBad(e):
			return
		case !isTime(e.Type()):
			b.errorf(w.Expr.Range(), "E2136", "the watermark is a TIMESTAMP(0..3) or TIMESTAMP_LTZ(0..3), but %s is %s", rel.Text(e), e.Type().Text())
			return
		}
	}
	t.Columns[i].Type = ct.WithMark(row.Rowtime)
}

func (b *binder) createView(c *ast.CreateView) Result {
	p, ok := b.target(c.Name)
	store := b.session.Store
	if ok && (store.Table(p) != nil || store.View(p) != nil) {
		if c.IfNotExists {
			return Result{Done: "view " + p.String() + " is there already"}
		}
		b.errorf(c.Name.Span, "E2133", "table or view %q exists already", nameText(c.Name)).WithHint("CREATE VIEW IF NOT EXISTS, or DROP VIEW first")
	}
	n := b.result(c.Query)
	v := &catalog.View{Path: p, Query: c.Query, Catalog: b.catalog, Database: b.database, Temporary: c.Temporary, Source: b.src, Decl: c}
	if c.Comment != nil {
		v.Comment = c.Comment.Value
	}
	seen := map[string]bool{}
	for _, col := range c.Columns {
		if seen[col.Name.Name] {
			b.errorf(col.Name.Span, "E2134", "column %q is there twice", col.Name.Name)
		}
		seen[col.Name.Name] = true
		v.Columns = append(v.Columns, col.Name.Name)
	}
	if n != nil && v.Columns != nil && n.Schema().Len() != len(v.Columns) {
		b.errorf(c.Columns[0].Span, "E2115", "the query has %d columns, but the view names %d", n.Schema().Len(), len(v.Columns))
	}
	b.apply = func() { store.PutView(v) }
	return Result{Done: "view " + p.String() + " created"}
}

func (b *binder) createFunction(c *ast.CreateFunction) Result {
	name := c.Name.Parts[len(c.Name.Parts)-1].Name
	key := strings.ToUpper(name)
	store := b.session.Store
	var p catalog.Path
	if c.System {
		p = catalog.Path{Name: name}
		if len(c.Name.Parts) > 1 {
			b.errorf(c.Name.Span, "E2002", "a system function has a bare name")
		}
	} else {
		var ok bool
		if p, ok = b.target(c.Name); !ok {
			return Result{}
		}
	}
	f := b.session.Functions[c.As.Value]
	if f == nil {
		known := slices.Sorted(maps.Keys(b.session.Functions))
		e := b.errorf(c.As.Span, "E2137", "no Go function is registered as '%s'", c.As.Value)
		if c.Language != "" && c.Language != "GO" {
			e.WithHint("functions in %s cannot run here: port it to Go and register it", c.Language)
		} else {
			e.WithHint("%s", nearest(c.As.Value, known, "registered are"))
		}
		if len(known) == 0 {
			e.WithNote("functions are written in Go and compiled in: build a program of the library that has them, see docs/sql.md")
		}
		return Result{}
	}
	exists := c.System && store.SystemFunction(key) != nil || !c.System && store.Function(p, key) != nil
	if exists {
		if c.IfNotExists {
			return Result{Done: "function " + name + " is there already"}
		}
		b.errorf(c.Name.Span, "E2133", "function %q exists already", nameText(c.Name))
		return Result{}
	}
	named := *f
	named.Name = key
	b.apply = func() { store.PutFunction(p, key, &catalog.Function{Path: p, As: c.As.Value, Func: &named}) }
	return Result{Done: "function " + name + " created"}
}

func (b *binder) createDatabase(c *ast.CreateDatabase) Result {
	p, ok := b.databasePath(c.Name)
	if !ok {
		return Result{}
	}
	if b.session.Store.HasDatabase(p) {
		if !c.IfNotExists {
			b.errorf(c.Name.Span, "E2133", "database %q exists already", nameText(c.Name))
		}
		return Result{Done: "database " + p.Database + " is there already"}
	}
	b.apply = func() { b.session.Store.AddDatabase(p) }
	return Result{Done: "database " + p.Database + " created"}
}

// databasePath reads the name of a database; its catalog exists.
func (b *binder) databasePath(n ast.Name) (catalog.Path, bool) {
	p := catalog.Path{Catalog: b.catalog}
	switch len(n.Parts) {
	case 1:
		p.Database = n.Parts[0].Name
	case 2:
		p.Catalog, p.Database = n.Parts[0].Name, n.Parts[1].Name
	default:
		b.errorf(n.Span, "E2002", "the name of a database has at most two parts: catalog.database")
		return p, false
	}
	if !b.session.Store.HasCatalog(p.Catalog) {
		b.errorf(n.Span, "E2012", "catalog %q not found", p.Catalog).WithHint("%s", nearest(p.Catalog, b.session.Store.Catalogs(), "catalogs are"))
		return p, false
	}
	return p, true
}

func (b *binder) createCatalog(c *ast.CreateCatalog) Result {
	for _, o := range c.Options {
		if o.Key.Value == "type" && o.Value.Value != "generic_in_memory" {
			b.errorf(o.Span, "E2001", "catalogs of the type '%s' are not supported", o.Value.Value).WithHint("'generic_in_memory' is")
		}
	}
	if b.session.Store.HasCatalog(c.Name.Name) {
		if !c.IfNotExists {
			b.errorf(c.Name.Span, "E2133", "catalog %q exists already", c.Name.Name)
		}
		return Result{Done: "catalog " + c.Name.Name + " is there already"}
	}
	b.apply = func() { b.session.Store.AddCatalog(c.Name.Name) }
	return Result{Done: "catalog " + c.Name.Name + " created"}
}

func (b *binder) drop(d *ast.Drop) Result {
	store := b.session.Store
	name := nameText(d.Name)
	gone := func(what string, known []string) Result {
		if !d.IfExists {
			b.errorf(d.Name.Span, "E2101", "%s %q not found", what, name).WithHint("%s", nearest(d.Name.Parts[len(d.Name.Parts)-1].Name, known, "there are"))
		}
		return Result{Done: "there is no " + what + " " + name}
	}
	switch d.What {
	case "TABLE", "VIEW":
		what := strings.ToLower(d.What)
		p, ok := b.path(d.Name)
		if !ok {
			return Result{}
		}
		t, v := store.Table(p), store.View(p)
		switch {
		case d.What == "TABLE" && v != nil:
			b.errorf(d.Name.Span, "E2101", "%q is a view", name).WithHint("write DROP VIEW %s", name)
			return Result{}
		case d.What == "VIEW" && t != nil:
			b.errorf(d.Name.Span, "E2101", "%q is a table", name).WithHint("write DROP TABLE %s", name)
			return Result{}
		case t == nil && v == nil:
			return gone(what, store.Tables(p))
		}
		b.apply = func() { store.Drop(p) }
		return Result{Done: what + " " + p.String() + " dropped"}
	case "FUNCTION":
		key := strings.ToUpper(d.Name.Parts[len(d.Name.Parts)-1].Name)
		var p catalog.Path
		if d.System {
			if store.SystemFunction(key) == nil {
				return gone("function", store.Functions(catalog.Path{}))
			}
		} else {
			var ok bool
			if p, ok = b.path(d.Name); !ok {
				return Result{}
			}
			if store.Function(p, key) == nil {
				return gone("function", store.Functions(p))
			}
		}
		b.apply = func() { store.PutFunction(p, key, nil) }
		return Result{Done: "function " + name + " dropped"}
	case "DATABASE":
		p, ok := b.databasePath(d.Name)
		if !ok {
			return Result{}
		}
		if !store.HasDatabase(p) {
			return gone("database", store.Databases(p.Catalog))
		}
		if p.Catalog == b.session.Catalog && p.Database == b.session.Database {
			b.errorf(d.Name.Span, "E2012", "database %q is the current one", p.Database).WithHint("USE another one first")
			return Result{}
		}
		tables := len(store.Tables(p)) + len(store.Functions(p))
		if tables > 0 && !d.Cascade {
			b.errorf(d.Name.Span, "E2012", "database %q is not empty", p.Database).WithHint("write CASCADE to drop what is in it")
			return Result{}
		}
		b.apply = func() { _ = store.DropDatabase(p, true) }
		return Result{Done: "database " + p.Database + " dropped"}
	case "CATALOG":
		if !store.HasCatalog(name) {
			return gone("catalog", store.Catalogs())
		}
		if name == b.session.Catalog {
			b.errorf(d.Name.Span, "E2012", "catalog %q is the current one", name).WithHint("USE another one first")
			return Result{}
		}
		b.apply = func() { store.DropCatalog(name) }
		return Result{Done: "catalog " + name + " dropped"}
	}
	b.errorf(d.Span, "E2001", "DROP %s is not supported", d.What)
	return Result{}
}

func (b *binder) use(u *ast.Use) Result {
	s := b.session
	switch u.What {
	case "CATALOG":
		name := nameText(u.Names[0])
		if !s.Store.HasCatalog(name) {
			b.errorf(u.Names[0].Span, "E2012", "catalog %q not found", name).WithHint("%s", nearest(name, s.Store.Catalogs(), "catalogs are"))
			return Result{}
		}
		b.apply = func() {
			s.Catalog, s.Database = name, "default"
			if name == catalog.DefaultCatalog {
				s.Database = catalog.DefaultDatabase
			}
		}
		return Result{Done: "catalog " + name}
	case "DATABASE", "":
		p, ok := b.databasePath(u.Names[0])
		if !ok {
			return Result{}
		}
		if !s.Store.HasDatabase(p) {
			b.errorf(u.Names[0].Span, "E2012", "database %q not found in catalog %q", p.Database, p.Catalog).
				WithHint("%s", nearest(p.Database, s.Store.Databases(p.Catalog), "databases are"))
			return Result{}
		}
		b.apply = func() { s.Catalog, s.Database = p.Catalog, p.Database }
		return Result{Done: "database " + p.Database}
	}
	for _, n := range u.Names {
		if nameText(n) != "core" {
			b.errorf(n.Span, "E2001", "module %q is not there: core is the only one", nameText(n))
		}
	}
	return Result{Done: "modules core"}
}
