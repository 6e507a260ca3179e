package ast

// Select is SELECT .. FROM .. WHERE .. without ORDER BY, which is an Ordered around it.
type Select struct {
	Span
	Hints    []Hint
	Distinct bool
	Items    []SelectItem
	// From is nil without FROM; a list with commas is a Join of kind CommaJoin.
	From  TableRef
	Where Expr
	// GroupBy has a *GroupingSets for GROUPING SETS, CUBE and ROLLUP, and a *Row without items for (). It is nil
	// without GROUP BY.
	GroupBy []Expr
	// GroupDistinct is GROUP BY DISTINCT.
	GroupDistinct bool
	Having        Expr
	// Windows are the definitions of WINDOW name AS (..).
	Windows []WindowDef
	Qualify Expr
}

// SelectItem is an expression of the select list; a *Star has no alias.
type SelectItem struct {
	Span
	Expr Expr
	// Alias is nil if there is none.
	Alias *Ident
}

// WindowDef is name AS (..) of a WINDOW clause.
type WindowDef struct {
	Span
	Name Ident
	Spec Window
}

// SetKind is the operation of a SetOp.
type SetKind uint8

// The set operations.
const (
	Union SetKind = iota
	Intersect
	Except
)

// SetOp is UNION, INTERSECT or EXCEPT (also written MINUS).
type SetOp struct {
	Span
	Kind        SetKind
	All         bool
	Left, Right Query
}

// Values is VALUES (..), (..). A row of one value need not have parentheses in the text.
type Values struct {
	Span
	Rows []*Row
}

// TableQuery is TABLE name in the place of a query.
type TableQuery struct {
	Span
	Table Name
}

// Ordered is a query with ORDER BY, OFFSET and LIMIT (also written FETCH), at least one of them.
type Ordered struct {
	Span
	Body    Query
	OrderBy []OrderItem
	// Offset and Limit are nil if not given; LIMIT ALL is no limit.
	Offset, Limit Expr
}

// NullsOrder says where NULL sorts.
type NullsOrder uint8

// Where NULL sorts.
const (
	NullsDefault NullsOrder = iota
	NullsFirst
	NullsLast
)

// OrderItem is one key of ORDER BY.
type OrderItem struct {
	Span
	Expr  Expr
	Desc  bool
	Nulls NullsOrder
}

// With is WITH name AS (..), .. query.
type With struct {
	Span
	Recursive bool
	Tables    []CTE
	Body      Query
}

// CTE is a common table expression.
type CTE struct {
	Span
	Name    Ident
	Columns []Ident
	Query   Query
}

// TableName is a table or view by its name.
type TableName struct {
	Span
	Name  Name
	Hints []Hint
	// Period is the expression of FOR SYSTEM_TIME AS OF, nil without it.
	Period Expr
	Alias  *Alias
}

// Derived is a query in parentheses.
type Derived struct {
	Span
	Lateral bool
	Query   Query
	Alias   *Alias
}

// JoinKind says which rows a join keeps.
type JoinKind uint8

// The kinds of joins.
const (
	InnerJoin JoinKind = iota
	LeftJoin
	RightJoin
	FullJoin
	CrossJoin
	CommaJoin
)

// Join is two tables joined.
type Join struct {
	Span
	Kind        JoinKind
	Natural     bool
	Left, Right TableRef
	// On is nil without ON, Using without USING.
	On    Expr
	Using []Ident
}

// TableFunc is a table function: TABLE(f(..)), LATERAL TABLE(f(..)), or f(..) alone.
type TableFunc struct {
	Span
	Lateral bool
	Call    *Call
	Alias   *Alias
}

// Unnest is UNNEST(a, ..) [WITH ORDINALITY].
type Unnest struct {
	Span
	Lateral    bool
	Exprs      []Expr
	Ordinality bool
	Alias      *Alias
}

// Match is MATCH_RECOGNIZE over a table.
type Match struct {
	Span
	Input       TableRef
	PartitionBy []Expr
	OrderBy     []OrderItem
	Measures    []Measure
	Rows        RowsPerMatch
	Skip        Skip
	Pattern     Pattern
	// Within is the interval of WITHIN, nil without it.
	Within  Expr
	Subsets []Subset
	Defines []Define
	Alias   *Alias
}

// Measure is one column of MEASURES.
type Measure struct {
	Span
	Expr Expr
	Name Ident
}

// RowsPerMatch is what a match puts out.
type RowsPerMatch uint8

// What a match puts out.
const (
	RowsDefault RowsPerMatch = iota
	OneRow
	AllRows
)

// SkipKind says where the search goes on after a match.
type SkipKind uint8

// Where the search goes on.
const (
	SkipDefault SkipKind = iota
	SkipToNextRow
	SkipPastLastRow
	SkipToFirst
	SkipToLast
	// SkipToVariable is SKIP TO x, the same as SKIP TO LAST x.
	SkipToVariable
)

// Skip is AFTER MATCH SKIP ..; Variable is set for the last three kinds.
type Skip struct {
	Span
	Kind     SkipKind
	Variable *Ident
}

// Subset is u = (a, b) of SUBSET.
type Subset struct {
	Span
	Name      Ident
	Variables []Ident
}

// Define is the condition of a pattern variable.
type Define struct {
	Span
	Name Ident
	Cond Expr
}

// Pattern is a row pattern: *PatternVar, *PatternSeq, *PatternAlt, *PatternQuant, *PatternAnchor, *PatternExclude,
// *PatternPermute, *PatternEmpty.
type Pattern interface {
	Node
	pattern()
}

// PatternVar is one variable.
type PatternVar struct {
	Span
	Name Ident
}

// PatternSeq is one part after the other, two at least.
type PatternSeq struct {
	Span
	Parts []Pattern
}

// PatternAlt is a | b, two parts at least.
type PatternAlt struct {
	Span
	Parts []Pattern
}

// PatternQuant is a quantified part: + * ? {n} {n,} {n,m} {,m}, each reluctant with a ? behind it.
type PatternQuant struct {
	Span
	Part Pattern
	Min  int
	// Max is -1 if there is no bound.
	Max       int
	Reluctant bool
}

// PatternAnchor is ^ (start of the partition) or $ (its end).
type PatternAnchor struct {
	Span
	End bool
}

// PatternExclude is {- part -}.
type PatternExclude struct {
	Span
	Part Pattern
}

// PatternPermute is PERMUTE(a, b, ..).
type PatternPermute struct {
	Span
	Parts []Pattern
}

// PatternEmpty is ().
type PatternEmpty struct{ Span }

func (*Select) query()     {}
func (*SetOp) query()      {}
func (*Values) query()     {}
func (*TableQuery) query() {}
func (*Ordered) query()    {}
func (*With) query()       {}

func (*TableName) tableRef() {}
func (*Derived) tableRef()   {}
func (*Join) tableRef()      {}
func (*TableFunc) tableRef() {}
func (*Unnest) tableRef()    {}
func (*Match) tableRef()     {}

func (*PatternVar) pattern()     {}
func (*PatternSeq) pattern()     {}
func (*PatternAlt) pattern()     {}
func (*PatternQuant) pattern()   {}
func (*PatternAnchor) pattern()  {}
func (*PatternExclude) pattern() {}
func (*PatternPermute) pattern() {}
func (*PatternEmpty) pattern()   {}
