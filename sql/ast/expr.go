package ast

// ColumnRef is a name in an expression: a column, table.column, or a path into rows. The binder finds out which.
type ColumnRef struct {
	Span
	Name Name
}

// Star is * or name.* of a select list. COUNT(*) is a Call with Star set.
type Star struct {
	Span
	// Qualifier is nil for * alone.
	Qualifier *Name
}

// NumberKind is the form of a number.
type NumberKind uint8

// The forms of numbers.
const (
	// IntNumber has digits alone: INT, BIGINT or DECIMAL by its size.
	IntNumber NumberKind = iota
	// DecimalNumber has a point: DECIMAL with exactly the digits written.
	DecimalNumber
	// FloatNumber has an exponent: DOUBLE.
	FloatNumber
)

// Number is an unsigned number literal; a sign is a Unary.
type Number struct {
	Span
	Kind NumberKind
	// Text as written: the digits decide the type.
	Text string
	// Env is the ${NAME} it came from, or empty.
	Env string
}

// String is a text literal.
type String struct {
	Span
	// Value is the text itself.
	Value string
	// Env is the literal as it stood in the source when a part of it came from the environment, for example
	// '${BROKERS}' with its quotes. It is shown in place of the value. Empty otherwise.
	Env string
}

// Binary is x'0AFF'.
type Binary struct {
	Span
	Value []byte
}

// Truth is the value of a Bool.
type Truth uint8

// The truth values.
const (
	False Truth = iota
	True
	Unknown
)

// Bool is TRUE, FALSE or UNKNOWN.
type Bool struct {
	Span
	Value Truth
}

// Null is NULL.
type Null struct{ Span }

// TimeKind is the kind of a Time literal.
type TimeKind uint8

// The kinds of time literals.
const (
	DateLiteral TimeKind = iota
	TimeLiteral
	TimestampLiteral
	// TimestampLTZLiteral is TIMESTAMP WITH LOCAL TIME ZONE '..'.
	TimestampLTZLiteral
)

// Time is DATE '..', TIME '..' or TIMESTAMP '..'. The digits of the text are part of its type.
type Time struct {
	Span
	Kind TimeKind
	Text String
}

// Interval is INTERVAL [-]'..' unit.
type Interval struct {
	Span
	Negative bool
	Text     String
	Unit     IntervalUnit
}

// IntervalUnit is DAY, DAY(3) TO SECOND(3) and the like.
type IntervalUnit struct {
	Span
	// From is YEAR, QUARTER, MONTH, WEEK, DAY, HOUR, MINUTE or SECOND.
	From string
	// To is the finer unit of .. TO .., or empty.
	To string
	// Precision is that of the leading field, Scale that of the fraction of a second; -1 if not written.
	Precision, Scale int
}

// UnaryOp is the operator of a Unary.
type UnaryOp uint8

// The unary operators.
const (
	Not UnaryOp = iota
	Minus
	Plus
	// Running and Final stand before FIRST, LAST and aggregates in MATCH_RECOGNIZE.
	Running
	Final
)

// Unary is an operator before its operand.
type Unary struct {
	Span
	Op UnaryOp
	X  Expr
}

// InfixOp is the operator of an Infix.
type InfixOp uint8

// The infix operators.
const (
	Or InfixOp = iota
	And
	Eq
	NotEq
	Less
	LessEq
	Greater
	GreaterEq
	// Overlaps and those after it compare periods.
	Overlaps
	Contains
	PeriodEquals
	Precedes
	Succeeds
	ImmediatelyPrecedes
	ImmediatelySucceeds
	MemberOf
	SubmultisetOf
	Add
	Subtract
	Concat
	Multiply
	Divide
	Modulo
)

// Infix is an operator between two operands. != is read as NotEq.
type Infix struct {
	Span
	Op   InfixOp
	Not  bool // only with MemberOf and SubmultisetOf
	X, Y Expr
	// OpSpan is the place of the operator.
	OpSpan Span
}

// IsTest is what an Is asks.
type IsTest uint8

// The tests of IS.
const (
	IsNull IsTest = iota
	IsTrue
	IsFalse
	IsUnknown
	IsJSON
	IsJSONValue
	IsJSONObject
	IsJSONArray
	IsJSONScalar
	IsASet
	IsEmpty
)

// Is is x IS [NOT] test.
type Is struct {
	Span
	X    Expr
	Not  bool
	Test IsTest
}

// IsDistinct is x IS [NOT] DISTINCT FROM y.
type IsDistinct struct {
	Span
	X, Y Expr
	Not  bool
}

// Between is x [NOT] BETWEEN [SYMMETRIC] low AND high.
type Between struct {
	Span
	X         Expr
	Not       bool
	Symmetric bool
	Low, High Expr
}

// In is x [NOT] IN (..): List or Query is set.
type In struct {
	Span
	X     Expr
	Not   bool
	List  []Expr
	Query Query
}

// LikeKind is the operator of a Like.
type LikeKind uint8

// The pattern operators.
const (
	LikeLike LikeKind = iota
	LikeSimilar
)

// LikeExpr is x [NOT] LIKE | SIMILAR TO pattern [ESCAPE e].
type LikeExpr struct {
	Span
	X       Expr
	Not     bool
	Kind    LikeKind
	Pattern Expr
	// Escape is nil if not given.
	Escape Expr
}

// Exists is EXISTS (query). NOT EXISTS is a Unary around it.
type Exists struct {
	Span
	Query Query
}

// Quantified is x op ANY | ALL (..), SOME being ANY: List or Query is set.
type Quantified struct {
	Span
	X     Expr
	Op    InfixOp // a comparison
	All   bool
	List  []Expr
	Query Query
}

// Row is (a, b) or ROW(a, b). (a) alone is a and no Row; () is only found in GROUP BY.
type Row struct {
	Span
	// Explicit is set if ROW was written; both mean the same.
	Explicit bool
	Items    []Expr
}

// Array is ARRAY[..]; Query is set for ARRAY(query).
type Array struct {
	Span
	Items []Expr
	Query Query
}

// Map is MAP[k, v, ..]; Query is set for MAP(query).
type Map struct {
	Span
	// Items are keys and values in turn.
	Items []Expr
	Query Query
}

// Multiset is MULTISET[..]; Query is set for MULTISET(query).
type Multiset struct {
	Span
	Items []Expr
	Query Query
}

// QueryExpr is a query in the place of a value.
type QueryExpr struct {
	Span
	Query Query
}

// Index is x[i]: an element of an array or a value of a map.
type Index struct {
	Span
	X, At Expr
}

// Field is x.name where x is no name; a.b.c is one ColumnRef.
type Field struct {
	Span
	X    Expr
	Name Ident
}

// Cast is CAST(x AS type) or TRY_CAST.
type Cast struct {
	Span
	Try  bool
	X    Expr
	Type Type
}

// Case is CASE [operand] WHEN .. THEN .. [ELSE ..] END.
type Case struct {
	Span
	// Operand is nil in the searched form.
	Operand Expr
	Whens   []When
	// Else is nil if there is none.
	Else Expr
}

// When is one branch of a Case. WHEN a, b THEN x is read as two branches with the same Then.
type When struct {
	Span
	Cond, Then Expr
}

// CallSyntax is the form a Call was written in.
type CallSyntax uint8

// The forms of calls.
const (
	// ParenSyntax is f(a, b).
	ParenSyntax CallSyntax = iota
	// BareSyntax is a word without parentheses: CURRENT_DATE, LOCALTIMESTAMP.
	BareSyntax
	// KeywordSyntax is the form with words between the arguments. Args are in this order; what is
	// left out is missing, never nil:
	//
	//	EXTRACT(unit FROM x)                     Symbol unit, x
	//	FLOOR(x TO unit), CEIL, CEILING          x, Symbol unit
	//	POSITION(part IN x [FROM start])         part, x [, start]
	//	SUBSTRING(x FROM start [FOR length])     x, start [, length]
	//	OVERLAY(x PLACING y FROM s [FOR l])      x, y, s [, l]
	//	TRIM(BOTH chars FROM x)                  Symbol BOTH | LEADING | TRAILING, chars, x
	//	TRIM(BOTH FROM x)                        Symbol, x
	//	TRANSLATE(x USING name)                  x, Symbol name
	KeywordSyntax
)

// Call is a function call. TIMESTAMPADD and TIMESTAMPDIFF have ParenSyntax with a *Symbol as first argument.
type Call struct {
	Span
	// Name as written; functions are not case-sensitive.
	Name   Name
	Syntax CallSyntax
	// Star is f(*).
	Star     bool
	Distinct bool
	Args     []Expr
	// OrderBy stands inside the parentheses: ARRAY_AGG(x ORDER BY y).
	OrderBy []OrderItem
	// Nulls is RESPECT NULLS or IGNORE NULLS.
	Nulls NullTreatment
	// WithinGroup is WITHIN GROUP (ORDER BY ..).
	WithinGroup []OrderItem
	// Filter is FILTER (WHERE ..), nil without it.
	Filter Expr
	// Over is nil without OVER.
	Over *Over
}

// NullTreatment says whether NULL arguments count.
type NullTreatment uint8

// The treatments of NULL.
const (
	NullsUnsaid NullTreatment = iota
	RespectNulls
	IgnoreNulls
)

// Over is OVER name, or OVER (..): one of the two is set.
type Over struct {
	Span
	Name *Ident
	Spec *Window
}

// Window is the inside of OVER (..).
type Window struct {
	Span
	// Base is the name of the window that this one refines, nil if there is none.
	Base        *Ident
	PartitionBy []Expr
	OrderBy     []OrderItem
	// Frame is nil if not given.
	Frame *Frame
}

// Frame is ROWS or RANGE BETWEEN .. AND ..; ROWS x alone has End = CURRENT ROW.
type Frame struct {
	Span
	// Rows is set for ROWS, clear for RANGE.
	Rows       bool
	Start, End Bound
}

// BoundKind is the kind of a frame bound.
type BoundKind uint8

// The bounds of frames.
const (
	UnboundedPreceding BoundKind = iota
	Preceding
	CurrentRow
	Following
	UnboundedFollowing
)

// Bound is one end of a frame; Offset is set for Preceding and Following.
type Bound struct {
	Span
	Kind   BoundKind
	Offset Expr
}

// NamedArg is name => x.
type NamedArg struct {
	Span
	Name Ident
	X    Expr
}

// TableArg is TABLE t or a query as the argument of a table function, with PARTITION BY and ORDER BY.
type TableArg struct {
	Span
	// Name or Query is set.
	Name        *Name
	Query       Query
	PartitionBy []Expr
	OrderBy     []OrderItem
}

// Descriptor is DESCRIPTOR(a, b).
type Descriptor struct {
	Span
	Columns []Ident
}

// Symbol is a word that is the argument of a function: a unit of time, BOTH.
type Symbol struct {
	Span
	// Word in upper case.
	Word string
}

// Default is DEFAULT as the argument of a function.
type Default struct{ Span }

// GroupingKind is the kind of a GroupingSets.
type GroupingKind uint8

// The kinds of grouping.
const (
	Sets GroupingKind = iota
	Rollup
	Cube
)

// GroupingSets is GROUPING SETS (..), ROLLUP (..) or CUBE (..) in GROUP BY; a set of several columns, or of none, is a
// *Row.
type GroupingSets struct {
	Span
	Kind  GroupingKind
	Items []Expr
}

// Env is a whole expression that came out of one ${NAME}. It counts as one operand, as if in parentheses.
type Env struct {
	Span
	// Text is the source, ${NAME}.
	Text string
	X    Expr
}

// JSONCall is a JSON function, which has a grammar of its own.
type JSONCall struct {
	Span
	// Name is JSON_EXISTS, JSON_VALUE, JSON_QUERY, JSON_OBJECT, JSON_ARRAY, JSON_OBJECTAGG or JSON_ARRAYAGG.
	Name string
	// Args are the document and the path of the first three, the values of JSON_ARRAY and JSON_ARRAYAGG, keys and
	// values in turn of JSON_OBJECT and JSON_OBJECTAGG.
	Args []Expr
	// Returning is the type of RETURNING, nil without it.
	Returning Type
	// Wrapper of JSON_QUERY: WITHOUT, CONDITIONAL, UNCONDITIONAL or empty.
	Wrapper string
	// OnEmpty and OnError are the words ERROR, NULL, DEFAULT, EMPTY ARRAY, EMPTY OBJECT, TRUE, FALSE, UNKNOWN, or
	// empty. With DEFAULT the expression is beside it.
	OnEmpty, OnError           string
	DefaultEmpty, DefaultError Expr
	// OnNull is NULL, ABSENT or empty.
	OnNull string
	// Filter is FILTER (WHERE ..) of the two aggregates, nil without it.
	Filter Expr
}

func (*ColumnRef) expr()    {}
func (*Star) expr()         {}
func (*Number) expr()       {}
func (*String) expr()       {}
func (*Binary) expr()       {}
func (*Bool) expr()         {}
func (*Null) expr()         {}
func (*Time) expr()         {}
func (*Interval) expr()     {}
func (*Unary) expr()        {}
func (*Infix) expr()        {}
func (*Is) expr()           {}
func (*IsDistinct) expr()   {}
func (*Between) expr()      {}
func (*In) expr()           {}
func (*LikeExpr) expr()     {}
func (*Exists) expr()       {}
func (*Quantified) expr()   {}
func (*Row) expr()          {}
func (*Array) expr()        {}
func (*Map) expr()          {}
func (*Multiset) expr()     {}
func (*QueryExpr) expr()    {}
func (*Index) expr()        {}
func (*Field) expr()        {}
func (*Cast) expr()         {}
func (*Case) expr()         {}
func (*Call) expr()         {}
func (*JSONCall) expr()     {}
func (*NamedArg) expr()     {}
func (*TableArg) expr()     {}
func (*Descriptor) expr()   {}
func (*Symbol) expr()       {}
func (*Default) expr()      {}
func (*GroupingSets) expr() {}
func (*Env) expr()          {}
