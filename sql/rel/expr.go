// Package rel has the bound form of queries: typed expressions over column ordinals, the logical nodes that the binder
// makes, the physical nodes that rules turn them into, their traits and their fingerprints. Everything is immutable.
//
// The binder makes Scan, Watermark, Values, Project, Filter, Join, Correlate, TableFunc, Unnest, Aggregate, SetOp,
// WindowTVF, Over, Sort, Limit, Match and Sink. Rules leave only physical nodes, which package exec and compile run.
package rel

import (
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/diag"
	"github.com/millrace-stream/millrace/sql/fn"
)

// Place is where something stands in a text, for messages.
type Place struct {
	Source *diag.Source // nil = nowhere
	Span   ast.Span
}

// Expr is a bound expression: *Column, *Literal, *Call, *Cast, *Case, *Field, *Subquery, *Marker, or, in MATCH_RECOGNIZE
// only, *PatternRef and *PatternAgg.
type Expr interface {
	Type() *row.Type
	Where() Place
}

type common struct {
	Typ *row.Type
	At  Place
}

// Type is of Expr.
func (c *common) Type() *row.Type { return c.Typ }

// Where is of Expr.
func (c *common) Where() Place { return c.At }

// Column is a column of the input: with two inputs, those of the right one follow those of the left.
type Column struct {
	common
	Index int
	// Depth counts queries outwards: 0 is the node's own input, 1 the row of the query around it (correlation).
	Depth int
	Name  string // for messages and EXPLAIN
}

// Literal is a constant.
type Literal struct {
	common
	fn.Const
	// Text is how it is printed; ${NAME} where it came from the environment.
	Text string
}

// Call is a function or an operator, with arguments of exactly the types that Func.Resolve asked for. Words of special
// syntax (YEAR in EXTRACT, BOTH in TRIM) are CHAR literals.
type Call struct {
	common
	Func *fn.Func
	Args []Expr
}

// Cast is CAST, TRY_CAST, or a conversion that the binder put in (Implicit).
type Cast struct {
	common
	X             Expr
	Try, Implicit bool
}

// Case is the searched CASE; COALESCE, IF, NULLIF and the simple form are made of it or are calls. Whens and Else have the
// type of the whole.
type Case struct {
	common
	Whens []When
	Else  Expr // never nil: a NULL literal
}

// When is a branch of a Case.
type When struct{ Cond, Then Expr }

// Field is a field of a ROW.
type Field struct {
	common
	X     Expr
	Index int
}

// SubqueryKind is what a Subquery asks.
type SubqueryKind uint8

// The kinds of subqueries.
const (
	ScalarQuery SubqueryKind = iota // its one value, NULL without a row
	ExistsQuery
	InQuery  // X IN (query): one X for each column
	AnyQuery // X Op ANY (query)
	AllQuery // X Op ALL (query)
)

// Subquery is a query in an expression; rules turn it into a join.
type Subquery struct {
	common
	Kind SubqueryKind
	X    []Expr
	Op   string // of AnyQuery and AllQuery: "=", "<" ...
	Not  bool   // NOT IN, NOT EXISTS
	Node Node   // its columns of Depth 1 belong to the query around it
}

// Marker is a value that the runtime knows: nothing else depends on it.
type Marker struct {
	common
	Kind MarkerKind
}

// MarkerKind is what a Marker stands for.
type MarkerKind uint8

// The markers.
const (
	ProcTime     MarkerKind = iota // PROCTIME()
	RowTimestamp                   // the Kafka timestamp, in a watermark expression
	SourceWatermark
)

// AggCall is an aggregate or a window function (ROW_NUMBER, LAG ..). Its arguments are Columns of the input (the binder
// projects first) or Literals.
type AggCall struct {
	Func     *fn.Func
	Args     []Expr
	Distinct bool
	Filter   Expr      // BOOLEAN column, nil = all rows
	OrderBy  []SortKey // of LISTAGG .. WITHIN GROUP and ARRAY_AGG
	// IgnoreNulls of FIRST_VALUE, LAST_VALUE, LAG, LEAD.
	IgnoreNulls bool
	Type        *row.Type
	Name        string
	At          Place
}

// SortKey orders by a column of the input. NULL is the least value, unless NullsFirst and NullsLast say otherwise.
type SortKey struct {
	Column    int
	Desc      bool
	NullsLast bool // resolved: in ASC false, in DESC true unless NULLS FIRST|LAST was written
}

// NewColumn, NewLiteral and the like make nodes with their type.
func NewColumn(t *row.Type, index, depth int, name string, at Place) *Column {
	return &Column{common{t, at}, index, depth, name}
}

// NewLiteral makes a constant.
func NewLiteral(t *row.Type, c fn.Const, text string, at Place) *Literal {
	return &Literal{common{t, at}, c, text}
}

// NewCall makes a call.
func NewCall(t *row.Type, f *fn.Func, args []Expr, at Place) *Call {
	return &Call{common{t, at}, f, args}
}

// NewCast makes a cast.
func NewCast(t *row.Type, x Expr, try, implicit bool, at Place) *Cast {
	return &Cast{common{t, at}, x, try, implicit}
}

// NewCase makes a CASE.
func NewCase(t *row.Type, whens []When, other Expr, at Place) *Case {
	return &Case{common{t, at}, whens, other}
}

// NewField makes a field access.
func NewField(t *row.Type, x Expr, index int, at Place) *Field {
	return &Field{common{t, at}, x, index}
}

// NewSubquery makes a subquery.
func NewSubquery(t *row.Type, kind SubqueryKind, x []Expr, op string, not bool, node Node, at Place) *Subquery {
	return &Subquery{common{t, at}, kind, x, op, not, node}
}

// NewMarker makes a marker.
func NewMarker(t *row.Type, kind MarkerKind, at Place) *Marker { return &Marker{common{t, at}, kind} }

// PatternRef is variable.column in DEFINE and MEASURES, perhaps within FIRST, LAST, PREV or NEXT.
type PatternRef struct {
	common
	Variable string // "" = any row of the match
	Column   int
	Nav      Nav
	Offset   int    // of Nav; LAST(A.x, 1) has 1
	Name     string // of the column, for messages and EXPLAIN; may be empty
}

// Nav is the navigation of a PatternRef.
type Nav uint8

// The navigations: A.x alone is NavLast with offset 0.
const (
	NavLast Nav = iota
	NavFirst
	NavPrev
	NavNext
)

// PatternAgg is an aggregate over the rows of a variable, as SUM(A.price) in DEFINE and MEASURES. Args are expressions
// over one row: their Columns are those of the input.
type PatternAgg struct {
	common
	Variable string // "" = all rows of the match
	Call     AggCall
	Args     []Expr
}

// NewPatternRef makes a reference.
func NewPatternRef(t *row.Type, variable string, column int, nav Nav, offset int, at Place) *PatternRef {
	return &PatternRef{common{t, at}, variable, column, nav, offset, ""}
}

// NewPatternAgg makes an aggregate of a pattern.
func NewPatternAgg(t *row.Type, variable string, call AggCall, args []Expr, at Place) *PatternAgg {
	return &PatternAgg{common{t, at}, variable, call, args}
}
