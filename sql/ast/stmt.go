package ast

// CreateTable is CREATE [TEMPORARY] TABLE in all its forms.
type CreateTable struct {
	Span
	Temporary   bool
	Replace     bool // CREATE OR REPLACE TABLE
	IfNotExists bool
	Name        Name
	// Columns in their order. With As they may be bare names (Column.Type and Expr nil) that only reorder.
	Columns []*Column
	// PrimaryKey is nil if there is none. A key written at its column stands here too.
	PrimaryKey *PrimaryKey
	// Watermark is nil if there is none.
	Watermark *Watermark
	// Comment is nil if there is none.
	Comment *String
	// Distribution is nil if there is none.
	Distribution  *Distribution
	PartitionedBy []Ident
	Options       []Option
	// Like is nil unless LIKE was given.
	Like *Like
	// As is the query of CREATE TABLE .. AS, else nil.
	As Query
}

// ColumnKind says where the value of a column comes from.
type ColumnKind uint8

// The kinds of columns.
const (
	// PhysicalColumn is read from and written to the connector: Type is set (but for the bare names of CREATE TABLE AS).
	PhysicalColumn ColumnKind = iota
	// ComputedColumn is name AS expression: Expr is set.
	ComputedColumn
	// MetadataColumn is name TYPE METADATA [FROM 'key'] [VIRTUAL]: Type is set.
	MetadataColumn
)

// Column is a column of CREATE TABLE.
type Column struct {
	Span
	Name Ident
	Kind ColumnKind
	Type Type
	Expr Expr
	// From is the key of METADATA FROM 'key', nil if not given: then it is the name of the column.
	From *String
	// Virtual columns are read and not written.
	Virtual bool
	Comment *String
}

// PrimaryKey is [CONSTRAINT name] PRIMARY KEY (..) [NOT] ENFORCED.
type PrimaryKey struct {
	Span
	// Name is nil if there is none.
	Name    *Ident
	Columns []Ident
	// NotEnforced is what a stream demands; without it the binder refuses the table.
	NotEnforced bool
	// Enforced is set if the word ENFORCED was written without NOT.
	Enforced bool
}

// Watermark is WATERMARK FOR column AS expression.
type Watermark struct {
	Span
	// Column may be a path into a row.
	Column Name
	Expr   Expr
}

// Distribution is DISTRIBUTED [BY [HASH|RANGE] (..)] [INTO n BUCKETS].
type Distribution struct {
	Span
	// Kind is HASH, RANGE or empty.
	Kind    string
	Columns []Ident
	// Buckets is nil if there is none.
	Buckets *Number
}

// Like is LIKE table (INCLUDING ALL ..).
type Like struct {
	Span
	Table   Name
	Options []LikeOption
}

// LikeOption is one of INCLUDING ALL, EXCLUDING WATERMARKS, OVERWRITING OPTIONS and so on.
type LikeOption struct {
	Span
	// Strategy is INCLUDING, EXCLUDING or OVERWRITING.
	Strategy string
	// Feature is ALL, CONSTRAINTS, DISTRIBUTION, GENERATED, METADATA, OPTIONS, PARTITIONS or WATERMARKS.
	Feature string
}

// CreateView is CREATE [TEMPORARY] VIEW.
type CreateView struct {
	Span
	Temporary   bool
	IfNotExists bool
	Name        Name
	Columns     []ViewColumn
	Comment     *String
	Query       Query
}

// ViewColumn renames a column of a view.
type ViewColumn struct {
	Span
	Name    Ident
	Comment *String
}

// CreateFunction is CREATE [TEMPORARY [SYSTEM]] FUNCTION name AS 'identifier'.
type CreateFunction struct {
	Span
	Temporary   bool
	System      bool
	IfNotExists bool
	Name        Name
	As          String
	// Language is JAVA, SCALA, PYTHON, GO or empty.
	Language string
	// Using are the texts of USING JAR '..'.
	Using   []String
	Options []Option
}

// CreateDatabase is CREATE DATABASE.
type CreateDatabase struct {
	Span
	IfNotExists bool
	Name        Name
	Comment     *String
	Options     []Option
}

// CreateCatalog is CREATE CATALOG.
type CreateCatalog struct {
	Span
	IfNotExists bool
	Name        Ident
	Comment     *String
	Options     []Option
}

// Insert is INSERT INTO or INSERT OVERWRITE.
type Insert struct {
	Span
	Overwrite bool
	Table     Name
	Hints     []Hint
	// Partition are the static values of PARTITION (k = v, ..).
	Partition []PartitionValue
	// Columns are those that the query gives, each perhaps a path into a row; empty for all.
	Columns []Name
	Query   Query
}

// PartitionValue is one k = v of PARTITION; Value is nil for PARTITION (k).
type PartitionValue struct {
	Span
	Column Ident
	Value  Expr
}

// StatementSet is EXECUTE STATEMENT SET BEGIN .. END, also in the form BEGIN STATEMENT SET; .. END;
type StatementSet struct {
	Span
	Inserts []*Insert
}

// QueryStmt is a query alone.
type QueryStmt struct {
	Span
	Query Query
}

// Set is SET 'key' = 'value'; SET alone has no key.
type Set struct {
	Span
	// Key is nil in SET alone, which lists all.
	Key   *String
	Value String
}

// Reset is RESET 'key' or, without a key, RESET of all.
type Reset struct {
	Span
	Key *String
}

// Explain is EXPLAIN.
type Explain struct {
	Span
	// Details are CHANGELOG_MODE, ESTIMATED_COST, JSON_EXECUTION_PLAN, PLAN_ADVICE, in the order written. EXPLAIN
	// PLAN FOR is the same as EXPLAIN.
	Details []string
	Stmt    Stmt
}

// Show is SHOW in all forms.
type Show struct {
	Span
	// What are the words that say what is shown: TABLES, VIEWS, FUNCTIONS, USER FUNCTIONS, DATABASES, CATALOGS,
	// CURRENT CATALOG, CURRENT DATABASE, COLUMNS, PARTITIONS, MODULES, FULL MODULES, JARS, JOBS, CREATE TABLE,
	// CREATE VIEW.
	What string
	// Name is the object, or what FROM or IN names; nil if there is none.
	Name *Name
	// Like is the pattern of [NOT] LIKE or ILIKE, nil if there is none.
	Like    *String
	NotLike bool
	ILike   bool
}

// Describe is DESCRIBE or DESC.
type Describe struct {
	Span
	Extended bool
	// What is CATALOG, DATABASE, FUNCTION or empty, for a table or view.
	What string
	Name Name
}

// Drop is DROP TABLE and its like.
type Drop struct {
	Span
	// What is TABLE, VIEW, FUNCTION, DATABASE or CATALOG.
	What      string
	Temporary bool
	System    bool
	IfExists  bool
	Name      Name
	Cascade   bool // DROP DATABASE .. CASCADE
}

// Use is USE [CATALOG] name or USE MODULES a, b.
type Use struct {
	Span
	// What is CATALOG, DATABASE or MODULES.
	What  string
	Names []Name
}

func (*CreateTable) stmt()    {}
func (*CreateView) stmt()     {}
func (*CreateFunction) stmt() {}
func (*CreateDatabase) stmt() {}
func (*CreateCatalog) stmt()  {}
func (*Insert) stmt()         {}
func (*StatementSet) stmt()   {}
func (*QueryStmt) stmt()      {}
func (*Set) stmt()            {}
func (*Reset) stmt()          {}
func (*Explain) stmt()        {}
func (*Show) stmt()           {}
func (*Describe) stmt()       {}
func (*Drop) stmt()           {}
func (*Use) stmt()            {}
