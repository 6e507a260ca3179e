package bind

import (
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/catalog"
	"github.com/millrace-stream/millrace/sql/diag"
	"github.com/millrace-stream/millrace/sql/fn"
)

// show answers SHOW.
func (b *binder) show(s *ast.Show) Result {
	store := b.session.Store
	here := catalog.Path{Catalog: b.catalog, Database: b.database}
	in := func() (catalog.Path, bool) {
		if s.Name == nil {
			return here, true
		}
		p, ok := b.databasePath(*s.Name)
		if ok && !store.HasDatabase(p) {
			b.errorf(s.Name.Span, "E2012", "database %q not found", nameText(*s.Name)).WithHint("%s", nearest(p.Database, store.Databases(p.Catalog), "databases are"))
			return p, false
		}
		return p, ok
	}
	list := func(column string, names []string) Result {
		r := &Rows{Columns: []string{column}}
		for _, n := range names {
			if b.shown(s, n) {
				r.Rows = append(r.Rows, []string{n})
			}
		}
		return Result{Rows: r}
	}
	switch s.What {
	case "TABLES":
		if p, ok := in(); ok {
			return list("table name", store.Tables(p))
		}
	case "VIEWS":
		if p, ok := in(); ok {
			return list("view name", store.Views(p))
		}
	case "FUNCTIONS", "USER FUNCTIONS":
		p, ok := in()
		if !ok {
			return Result{}
		}
		names := store.Functions(p)
		if s.What == "FUNCTIONS" {
			for _, n := range fn.Names() {
				names = append(names, strings.ToLower(n))
			}
			slices.Sort(names)
			names = slices.Compact(names)
		}
		return list("function name", names)
	case "DATABASES":
		c := b.catalog
		if s.Name != nil {
			c = nameText(*s.Name)
			if !store.HasCatalog(c) {
				b.errorf(s.Name.Span, "E2012", "catalog %q not found", c).WithHint("%s", nearest(c, store.Catalogs(), "catalogs are"))
				return Result{}
			}
		}
		return list("database name", store.Databases(c))
	case "CATALOGS":
		return list("catalog name", store.Catalogs())
	case "CURRENT CATALOG":
		return list("current catalog name", []string{b.catalog})
	case "CURRENT DATABASE":
		return list("current database name", []string{b.database})
	case "MODULES", "FULL MODULES":
		return list("module name", []string{"core"})
	case "JARS":
		return list("jars", nil)
	case "COLUMNS":
		if s.Name == nil {
			b.errorf(s.Span, "E2007", "SHOW COLUMNS needs FROM a table")
			return Result{}
		}
		r := b.columnRows(*s.Name)
		if r == nil {
			return Result{}
		}
		r.Rows = slices.DeleteFunc(r.Rows, func(row []string) bool { return !b.shown(s, row[0]) })
		return Result{Rows: r}
	case "CREATE TABLE", "CREATE VIEW":
		return b.showCreate(s)
	default:
		b.errorf(s.Span, "E2001", "SHOW %s is not supported", s.What)
	}
	return Result{}
}

// shown applies LIKE of SHOW: % and _.
func (b *binder) shown(s *ast.Show, name string) bool {
	if s.Like == nil {
		return true
	}
	p := s.Like.Value
	if s.ILike {
		p, name = strings.ToLower(p), strings.ToLower(name)
	}
	return likeMatch([]rune(p), []rune(name)) != s.NotLike
}

func likeMatch(p, s []rune) bool {
	// Back to the latest % as soon as something does not fit.
	i, j, star, mark := 0, 0, -1, 0
	for j < len(s) {
		switch {
		case i < len(p) && p[i] == '%':
			star, mark = i, j
			i++
		case i < len(p) && (p[i] == '_' || p[i] == s[j]):
			i++
			j++
		case star >= 0:
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}
	for i < len(p) && p[i] == '%' {
		i++
	}
	return i == len(p)
}

func textOf(src *diag.Source, at ast.Span) string {
	if src == nil || at.Start < 0 || at.End > len(src.Text) || at.Start > at.End {
		return ""
	}
	return src.Text[at.Start:at.End]
}

func (b *binder) showCreate(s *ast.Show) Result {
	if s.Name == nil {
		b.errorf(s.Span, "E2007", "SHOW %s needs a name", s.What)
		return Result{}
	}
	p, ok := b.path(*s.Name)
	if !ok {
		return Result{}
	}
	store := b.session.Store
	t, v := store.Table(p), store.View(p)
	switch {
	case s.What == "CREATE TABLE" && t != nil:
		return Result{Rows: &Rows{Columns: []string{"result"}, Rows: [][]string{{textOf(t.Source, t.Decl.Span)}}}}
	case s.What == "CREATE VIEW" && v != nil:
		return Result{Rows: &Rows{Columns: []string{"result"}, Rows: [][]string{{textOf(v.Source, v.Decl.Span)}}}}
	case t != nil:
		b.errorf(s.Name.Span, "E2101", "%q is a table", nameText(*s.Name))
	case v != nil:
		b.errorf(s.Name.Span, "E2101", "%q is a view", nameText(*s.Name))
	default:
		b.unknownTable(*s.Name, p)
	}
	return Result{}
}

// describe answers DESCRIBE.
func (b *binder) describe(d *ast.Describe) Result {
	store := b.session.Store
	switch d.What {
	case "":
		if r := b.columnRows(d.Name); r != nil {
			return Result{Rows: r}
		}
	case "CATALOG":
		name := nameText(d.Name)
		if !store.HasCatalog(name) {
			b.errorf(d.Name.Span, "E2012", "catalog %q not found", name).WithHint("%s", nearest(name, store.Catalogs(), "catalogs are"))
			return Result{}
		}
		return Result{Rows: &Rows{Columns: []string{"info name", "info value"}, Rows: [][]string{{"name", name}, {"type", "generic_in_memory"}}}}
	case "DATABASE":
		p, ok := b.databasePath(d.Name)
		if !ok {
			return Result{}
		}
		if !store.HasDatabase(p) {
			b.errorf(d.Name.Span, "E2012", "database %q not found", nameText(d.Name)).WithHint("%s", nearest(p.Database, store.Databases(p.Catalog), "databases are"))
			return Result{}
		}
		return Result{Rows: &Rows{Columns: []string{"info name", "info value"},
			Rows: [][]string{{"catalog", p.Catalog}, {"name", p.Database}, {"tables", strconv.Itoa(len(store.Tables(p)))}}}}
	case "FUNCTION":
		f := b.function(d.Name)
		if f == nil {
			b.unknownFunction(d.Name)
			return Result{}
		}
		kind := [...]string{"scalar", "aggregate", "table", "window"}[f.Kind]
		return Result{Rows: &Rows{Columns: []string{"info name", "info value"},
			Rows: [][]string{{"name", f.Name}, {"kind", kind}, {"group", f.Group}, {"syntax", f.Syntax}, {"description", f.Doc}}}}
	}
	return Result{}
}

// columnRows describes the columns of a table or a view as Flink does; nil after an error.
func (b *binder) columnRows(name ast.Name) *Rows {
	p, ok := b.path(name)
	if !ok {
		return nil
	}
	store := b.session.Store
	r := &Rows{Columns: []string{"name", "type", "null", "key", "extras", "watermark"}}
	add := func(name string, t *row.Type, key, extras, watermark string) {
		null := "TRUE"
		if !t.IsNullable() {
			null = "FALSE"
		}
		r.Rows = append(r.Rows, []string{name, t.Nullable(true).String(), null, key, extras, watermark})
	}
	if v := store.View(p); v != nil {
		n := b.view(v, name.Span)
		if n == nil {
			return nil
		}
		for i, c := range n.Schema().Names {
			add(c, n.Schema().Types[i], "", "", "")
		}
		return r
	}
	t := store.Table(p)
	if t == nil {
		b.unknownTable(name, p)
		return nil
	}
	var keys []string
	for _, k := range t.Key {
		keys = append(keys, t.Columns[k].Name)
	}
	for i := range t.Columns {
		c := &t.Columns[i]
		key, extras, watermark := "", "", ""
		if slices.Contains(t.Key, i) {
			key = "PRI(" + strings.Join(keys, ", ") + ")"
		}
		switch c.Kind {
		case catalog.Computed:
			extras = "AS " + textOf(t.Source, c.Expr.Range())
		case catalog.Metadata:
			extras = "METADATA"
			if c.Key != c.Name {
				extras += " FROM '" + c.Key + "'"
			}
			if c.Virtual {
				extras += " VIRTUAL"
			}
		}
		if w := t.Watermark; w != nil && w.Column == i {
			watermark = "SOURCE_WATERMARK()"
			if w.Expr != nil {
				watermark = textOf(t.Source, w.Expr.Range())
			}
		}
		add(c.Name, c.Type, key, extras, watermark)
	}
	return r
}
