// Package catalog has what statements declare: tables, views and functions by name, and the contract of connectors and
// formats: which options there are. It opens nothing.
package catalog

import (
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/diag"
)

// Path is the name of an object.
type Path struct{ Catalog, Database, Name string }

// The catalog and the database of a new session, as in Flink.
const (
	DefaultCatalog  = "default_catalog"
	DefaultDatabase = "default_database"
)

// String is `name` in the default place, else with all parts.
func (p Path) String() string {
	if p.Catalog == DefaultCatalog && p.Database == DefaultDatabase {
		return p.Name
	}
	return p.Catalog + "." + p.Database + "." + p.Name
}

// ColumnKind says where the value of a column comes from.
type ColumnKind uint8

// The kinds of columns.
const (
	Physical ColumnKind = iota
	Computed
	Metadata
)

// Column is a column of a table.
type Column struct {
	Name string
	// Type as declared; of a computed column that of its expression. A time attribute has its mark.
	Type *row.Type
	Kind ColumnKind
	// Expr of a computed column.
	Expr ast.Expr
	// Key is the metadata key of a Metadata column; Virtual ones are read and not written.
	Key     string
	Virtual bool
	Comment string
}

// Table is a declared table.
type Table struct {
	Path    Path
	Columns []Column
	// Key are the ordinals of the PRIMARY KEY, nil = none.
	Key []int
	// Watermark is nil if there is none.
	Watermark *Watermark
	// Options of WITH, by key, and where each was written.
	Options map[string]string
	Places  map[string]ast.Span
	Comment string
	// Source is the text that declares it, for messages; Decl its statement, for SHOW CREATE TABLE and LIKE.
	Source *diag.Source
	Decl   *ast.CreateTable
}

// Watermark is WATERMARK FOR column AS expression.
type Watermark struct {
	Column int
	Expr   ast.Expr
	// FromSource is AS SOURCE_WATERMARK().
	FromSource bool
}

// Option gives the value of an option.
func (t *Table) Option(key string) (string, bool) {
	v, ok := t.Options[key]
	return v, ok
}

// Column finds a column by its name, which is case-sensitive; -1 = none.
func (t *Table) Column(name string) int {
	for i := range t.Columns {
		if t.Columns[i].Name == name {
			return i
		}
	}
	return -1
}

// Changes says which kinds of rows a table's connector reads or takes.
type Changes uint8

// The kinds of changelogs.
const (
	Append  Changes = iota // +I
	Upsert                 // +I/+U by PRIMARY KEY, -D
	Retract                // +I -U +U -D
)

// View is a named query.
type View struct {
	Path    Path
	Query   ast.Query
	Columns []string // renamed, nil = as the query has them
	// Catalog and Database are those that the names of the query are looked up in.
	Catalog, Database string
	// Temporary, Comment as declared.
	Temporary bool
	Comment   string
	Source    *diag.Source
	Decl      *ast.CreateView
}
