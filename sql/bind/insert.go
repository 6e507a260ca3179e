package bind

import (
	"slices"
	"strings"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/catalog"
	"github.com/millrace-stream/millrace/sql/diag"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
)

// written are the ordinals of the columns of a table that INSERT writes: physical ones, and metadata that is not VIRTUAL.
func written(t *catalog.Table) []int {
	var out []int
	for i := range t.Columns {
		c := &t.Columns[i]
		if c.Kind == catalog.Physical || c.Kind == catalog.Metadata && !c.Virtual {
			out = append(out, i)
		}
	}
	return out
}

// insert binds INSERT; nil after an error.
func (b *binder) insert(i *ast.Insert) *rel.Sink {
	p, ok := b.path(i.Table)
	if !ok {
		return nil
	}
	if i.Overwrite {
		b.errorf(i.Span, "E2001", "INSERT OVERWRITE is not supported: a stream is appended to").WithHint("write INSERT INTO")
		return nil
	}
	store := b.session.Store
	t := store.Table(p)
	if t == nil {
		if store.View(p) != nil {
			b.errorf(i.Table.Span, "E2130", "%q is a view, which nothing can be written to", nameText(i.Table))
		} else {
			b.unknownTable(i.Table, p)
		}
		b.query(i.Query, nil)
		return nil
	}
	options := b.tableOptions(t, i.Hints)
	all := written(t)
	columns, ok := b.insertColumns(i, t, all)
	var static []int
	var values []rel.Expr
	for _, pv := range i.Partition {
		c := t.Column(pv.Column.Name)
		if c < 0 || !slices.Contains(all, c) {
			b.errorf(pv.Column.Span, "E2103", "column %q not found in table %q", pv.Column.Name, t.Path.Name)
			ok = false
			continue
		}
		if pv.Value == nil {
			continue
		}
		v := b.expr(&scope{clause: "PARTITION"}, pv.Value)
		ok = ok && !isBad(v)
		static, values = append(static, c), append(values, v)
	}
	columns = slices.DeleteFunc(slices.Clone(columns), func(c int) bool { return slices.Contains(static, c) })
	types := make([]*row.Type, len(columns))
	for k, c := range columns {
		types[k] = t.Columns[c].Type.WithMark(row.NoMark)
	}
	b.targets = types
	n := b.query(i.Query, nil)
	b.targets = nil
	if n == nil || !ok {
		return nil
	}
	return b.sinkInto(t, n, columns, static, values, options, i.Query.Range(), i.Span)
}

// insertColumns are the ordinals that the query's columns go to.
func (b *binder) insertColumns(i *ast.Insert, t *catalog.Table, all []int) ([]int, bool) {
	if len(i.Columns) == 0 {
		return all, true
	}
	ok := true
	var columns []int
	for _, n := range i.Columns {
		if len(n.Parts) > 1 {
			b.errorf(n.Span, "E2001", "writing to a field of a row is not supported")
			ok = false
			continue
		}
		c := t.Column(n.Parts[0].Name)
		switch {
		case c < 0:
			var names []string
			for _, k := range all {
				names = append(names, t.Columns[k].Name)
			}
			b.errorf(n.Span, "E2103", "column %q not found in table %q", n.Parts[0].Name, t.Path.Name).
				WithHint("%s", nearest(n.Parts[0].Name, names, t.Path.Name+" has"))
			ok = false
		case !slices.Contains(all, c):
			b.errorf(n.Span, "E2130", "column %q is computed or VIRTUAL and cannot be written", n.Parts[0].Name)
			ok = false
		case slices.Contains(columns, c):
			b.errorf(n.Span, "E2130", "column %q is named twice", n.Parts[0].Name)
			ok = false
		default:
			columns = append(columns, c)
		}
	}
	return columns, ok
}

// sinkInto makes the Sink: columns of the query go to columns, values to static.
func (b *binder) sinkInto(t *catalog.Table, n rel.Node, columns, static []int, values []rel.Expr, options map[string]string, query, at ast.Span) *rel.Sink {
	in := n.Schema()
	sinkTypes := make([]*row.Type, len(columns))
	for k, c := range columns {
		sinkTypes[k] = t.Columns[c].Type.WithMark(row.NoMark)
	}
	mismatch := func(cause string) *rel.Sink {
		var want []string
		for k, c := range columns {
			want = append(want, t.Columns[c].Name+" "+sinkTypes[k].String())
		}
		b.errorf(query, "E2131", "the columns of the query do not match those of %q: %s", t.Path.String(), cause).
			WithNote("query: %s", schemaText(in)).WithNote("table: %s", strings.Join(want, ", "))
		return nil
	}
	if in.Len() != len(columns) {
		return mismatch("different number of columns, " + itoa(in.Len()) + " for " + itoa(len(columns)))
	}
	exprs := columnsOf(n)
	changed := false
	for k := range exprs {
		if !ImplicitlyCastable(in.Types[k], sinkTypes[k]) {
			return mismatch("column " + in.Names[k] + " is " + in.Types[k].Text() + ", but " + t.Columns[columns[k]].Name + " is " + sinkTypes[k].Text())
		}
		e := b.coerce(exprs[k], sinkTypes[k])
		changed = changed || e != exprs[k]
		exprs[k] = e
	}
	for k, v := range values {
		ct := t.Columns[static[k]].Type
		if err := fn.Castable(v.Type(), ct); err != nil {
			b.errorf(v.Where().Span, "E2131", "PARTITION: %v", err)
			return nil
		}
		exprs = append(exprs, b.coerce(v, ct.WithMark(row.NoMark)))
		columns = append(slices.Clone(columns), static[k])
		changed = true
	}
	for _, c := range written(t) {
		if !slices.Contains(columns, c) && !t.Columns[c].Type.IsNullable() {
			b.errorf(at, "E2131", "column %q of %q is NOT NULL, but INSERT gives it no value", t.Columns[c].Name, t.Path.String())
			return nil
		}
	}
	if changed {
		names := make([]string, len(columns))
		for k, c := range columns {
			names[k] = t.Columns[c].Name
		}
		n = project(n, exprs, names, n.At())
	}
	s := n.Schema()
	return &rel.Sink{Base: rel.MakeBase(s.Names, s.Types, b.place(at)), Input: n, Table: t, Columns: columns, Options: options}
}

// LateSinks are the writes of late rows to the tables that 'late-records' of the tables below sinks name. A column of such
// a table is the column of its name of the table that is read; there is at least one, and others are NULL.
func (s *Session) LateSinks(sinks []*rel.Sink) ([]*rel.Sink, diag.List) {
	var out []*rel.Sink
	errs := &diag.List{}
	seen := map[string]bool{}
	for _, sink := range sinks {
		timed := map[*catalog.Table]bool{}
		rel.Walk(sink, func(n rel.Node) bool {
			if w, ok := n.(*rel.Watermark); ok {
				rel.Walk(w.Input, func(n rel.Node) bool {
					if scan, ok := n.(*rel.Scan); ok {
						timed[scan.Table] = true
					}
					return true
				})
			}
			scan, ok := n.(*rel.Scan)
			if !ok {
				return true
			}
			to := scan.Options[rel.LateRecords]
			key := scan.Table.Path.String() + " " + to
			if to == "" || seen[key] {
				return true
			}
			seen[key] = true
			at := scan.At()
			b := &binder{session: s, src: at.Source, errs: errs, catalog: scan.Table.Path.Catalog, database: scan.Table.Path.Database}
			if l := b.lateSink(scan, to, timed[scan.Table], at.Span); l != nil {
				out = append(out, l)
			}
			return true
		})
	}
	return out, *errs
}

func (b *binder) lateSink(scan *rel.Scan, to string, timed bool, at ast.Span) *rel.Sink {
	from := scan.Table
	if !timed {
		b.errorf(at, "E2132", "table %q has '%s' and no watermark, so that none of its rows is ever late", from.Path.Name, rel.LateRecords).
			WithHint("declare WATERMARK FOR a time column, or drop the option")
		return nil
	}
	name := ast.Name{Span: at}
	for _, p := range strings.Split(to, ".") {
		name.Parts = append(name.Parts, ast.Ident{Span: at, Name: p})
	}
	p, ok := b.path(name)
	if !ok {
		return nil
	}
	t := b.session.Store.Table(p)
	switch t {
	case nil:
		b.unknownTable(name, p)
		return nil
	case from:
		b.errorf(at, "E2132", "table %q has itself as '%s': its late rows would come again, and be late again", from.Path.Name, rel.LateRecords)
		return nil
	}
	n := &rel.LateRows{Table: from}
	n.Pos = b.place(at)
	var columns []int
	for _, c := range written(t) {
		if i := from.Column(t.Columns[c].Name); i >= 0 {
			columns = append(columns, c)
			n.Out.Names = append(n.Out.Names, t.Columns[c].Name)
			n.Out.Types = append(n.Out.Types, from.Columns[i].Type.WithMark(row.NoMark))
		}
	}
	if columns == nil {
		b.errorf(at, "E2132", "table %q, which is to take the late rows of %q, has no column of the same name", t.Path.Name, from.Path.Name).
			WithNote("%s", "its columns are filled by name")
		return nil
	}
	return b.sinkInto(t, n, columns, nil, nil, t.Options, at, at)
}

func schemaText(s *rel.Schema) string {
	out := make([]string, s.Len())
	for i := range out {
		out[i] = s.Names[i] + " " + s.Types[i].String()
	}
	return strings.Join(out, ", ")
}

// ImplicitlyCastable says whether values of a type are written to a column of another without CAST: no loss of kind, as in
// Flink. Lengths and digits may differ.
func ImplicitlyCastable(from, to *row.Type) bool {
	a, b := from.Kind(), to.Kind()
	switch {
	case a == row.KindNull:
		return true
	case a.Text() && b.Text():
		return a == b || b == row.KindVarChar || a == row.KindChar
	case a.Bytes() && b.Bytes():
		return a == b || b == row.KindVarBinary
	case a.Integer() && b.Integer():
		return a <= b
	case b == row.KindDecimal:
		return a.Numeric()
	case b == row.KindFloat:
		return a.Integer() || a == row.KindFloat || a == row.KindDecimal
	case b == row.KindDouble:
		return a.Numeric()
	case b == row.KindDate:
		return a == row.KindDate || a == row.KindTimestamp
	case b == row.KindTime:
		return a == row.KindTime || a == row.KindTimestamp
	case b == row.KindTimestamp || b == row.KindTimestampLTZ:
		return a == row.KindTimestamp || a == row.KindTimestampLTZ
	case a != b:
		return false
	}
	switch a {
	case row.KindArray, row.KindMultiset:
		return ImplicitlyCastable(from.Elem(), to.Elem())
	case row.KindMap:
		return ImplicitlyCastable(from.Key(), to.Key()) && ImplicitlyCastable(from.Elem(), to.Elem())
	case row.KindRow:
		if from.NumFields() != to.NumFields() {
			return false
		}
		for i := range from.NumFields() {
			if !ImplicitlyCastable(from.Field(i).Type, to.Field(i).Type) {
				return false
			}
		}
	}
	return true
}
