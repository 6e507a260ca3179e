// Package ast holds the syntax tree of the SQL dialect, as the parser reads it and the printer writes it: plain structs
// with byte spans. It says how a text is built and nothing about what it means: no resolved name, no type of an
// expression. There are five closed interfaces, Stmt, Query, TableRef, Expr and Type; a type switch over the pointers
// listed at each is complete.
//
// Print gives the canonical text of a tree. Parsing that text gives the same tree again, spans apart.
package ast

// Span is a range of bytes in the source text, Start included, End not. What stands inside an expanded ${NAME} has the
// span of that ${NAME}.
type Span struct{ Start, End int }

// Range is the span itself, which makes every struct that embeds one a Node.
func (s Span) Range() Span { return s }

// Node is any part of the tree that has a place in the source.
type Node interface{ Range() Span }

// Stmt is a statement: *CreateTable, *CreateView, *CreateFunction, *CreateDatabase, *CreateCatalog, *Insert,
// *StatementSet, *QueryStmt, *Set, *Reset, *Explain, *Show, *Describe, *Drop, *Use.
type Stmt interface {
	Node
	stmt()
}

// Query is what gives rows: *Select, *SetOp, *Values, *TableQuery, *Ordered, *With.
type Query interface {
	Node
	query()
}

// TableRef is an item of FROM: *TableName, *Derived, *Join, *TableFunc, *Unnest, *Match.
type TableRef interface {
	Node
	tableRef()
}

// Expr is an expression: *ColumnRef, *Star, *Number, *String, *Binary, *Bool, *Null, *Time, *Interval, *Unary, *Infix,
// *Is, *IsDistinct, *Between, *In, *LikeExpr, *Exists, *Quantified, *Row, *Array, *Map, *Multiset, *QueryExpr, *Index,
// *Field, *Cast, *Case, *Call, *JSONCall, *NamedArg, *TableArg, *Descriptor, *Symbol, *Default, *GroupingSets, *Env.
type Expr interface {
	Node
	expr()
}

// Type is a written type: *SimpleType, *ArrayType, *MapType, *MultisetType, *RowType, *IntervalType, *NamedType.
type Type interface {
	Node
	typ()
}

// Script is a parsed file. Statements that could not be read are missing in it.
type Script struct {
	Span
	Stmts []Stmt
}

// Ident is one name.
type Ident struct {
	Span
	// Name is the name itself, without back-quotes.
	Name string
	// Env is the text that stood in the source when the name came wholly or partly from the environment, for example
	// ${TABLE} or `t_${SUFFIX}`. It is shown in place of the name. Empty otherwise. When one ${TABLE} gave several
	// parts of a Name, as db.t, each of them has it, and the same span.
	Env string
}

// Name is a name of one or more parts: catalog.database.table, or a path of columns.
type Name struct {
	Span
	Parts []Ident
}

// Option is one 'key' = 'value' of WITH or of a hint.
type Option struct {
	Span
	Key, Value String
}

// Hint is one hint of /*+ .. */: OPTIONS('k'='v'), STATE_TTL('t'='1d'), BROADCAST(a, b).
type Hint struct {
	Span
	// Name as written.
	Name Ident
	// Options are the 'key'='value' arguments; Args the others, names or literals. A hint has one kind or none.
	Options []Option
	Args    []Expr
}

// Alias is AS name (column, ..).
type Alias struct {
	Span
	Name    Ident
	Columns []Ident
}
