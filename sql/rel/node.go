package rel

import (
	"time"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/catalog"
	"github.com/millrace-stream/millrace/sql/fn"
)

// Schema is the columns of a node. Names may repeat.
type Schema struct {
	Names []string
	Types []*row.Type
}

// Len is the number of columns.
func (s *Schema) Len() int { return len(s.Types) }

// Node is a step of a plan.
type Node interface {
	// Schema is what it gives.
	Schema() *Schema
	Children() []Node
	// WithChildren is the node with other inputs, which have the same schemas up to nullability and marks.
	WithChildren(in []Node) Node
	// String is the node without its inputs, as EXPLAIN shows it in one line.
	String() string
	// At is the part of the text that it was made of, for messages.
	At() Place
}

// Scan reads a table: its physical and metadata columns, in the order of the declaration. Computed columns are a Project
// above it and the watermark a Watermark above that, so that a table is Watermark(Project(Scan)); either is left out where
// it has nothing to do.
type Scan struct {
	Base
	Table *catalog.Table
	// Columns are ordinals of Table.Columns, one for each column of the schema.
	Columns []int
	// Options are those of the table with those of an OPTIONS hint over them.
	Options map[string]string
}

// Watermark makes a column the event time of the rows, and says how late they may be.
type Watermark struct {
	Base
	Input  Node
	Column int
	// Expr is the watermark after a row; nil for SOURCE_WATERMARK().
	Expr Expr
}

// Values is rows of constants.
type Values struct {
	Base
	Rows [][]Expr // without columns: constants and functions of them
}

// Project computes columns.
type Project struct {
	Base
	Input Node
	Exprs []Expr
}

// Filter keeps the rows for which Cond is true.
type Filter struct {
	Base
	Input Node
	Cond  Expr
}

// JoinKind says which rows a join gives.
type JoinKind uint8

// The kinds of joins. Semi, Anti and NullAwareAnti give the columns of the left side only; Single gives each left row once, with the one
// right row or NULLs, and fails at run time if there are two.
const (
	Inner JoinKind = iota
	Left
	Right
	Full
	Semi
	Anti
	NullAwareAnti // NOT IN
	Single        // a scalar subquery
)

// String is the word for EXPLAIN.
func (k JoinKind) String() string {
	return [...]string{"inner", "left", "right", "full", "semi", "anti", "null-aware anti", "single"}[k]
}

// Join joins two inputs; columns of Cond are those of the left, then those of the right.
type Join struct {
	Base
	Kind        JoinKind
	Left, Right Node
	Cond        Expr // nil = TRUE
	// AsOf is the time of FOR SYSTEM_TIME AS OF on the right side, an expression over the left columns; else nil.
	AsOf Expr
	// Hints of the query that apply: STATE_TTL by side, LOOKUP options.
	TTL    [2]*time.Duration
	Lookup map[string]string
}

// Correlate runs Right for each row of Left: its columns of Depth 1 are those of Left. Kind is Inner or Left. Right is a
// TableFunc, an Unnest, or any query of a LATERAL, perhaps below Projects and Filters.
type Correlate struct {
	Base
	Kind        JoinKind
	Left, Right Node
}

// TableFunc calls a table function; its arguments have Columns of Depth 1.
type TableFunc struct {
	Base
	Call *Call
}

// Unnest gives the elements of arrays, maps and multisets, side by side.
type Unnest struct {
	Base
	Exprs      []Expr // with Columns of Depth 1
	Ordinality bool
}

// Aggregate groups rows. Its columns are those of Groups, then the aggregates, then, with a Window, its properties.
type Aggregate struct {
	Base
	Input  Node
	Groups []int // columns of the input
	// Sets are the grouping sets as indexes into Groups; nil without GROUPING SETS. Columns of Groups that a set has not are
	// NULL. GROUPING, GROUPING_ID and GROUP_ID are in Aggs.
	Sets [][]int
	Aggs []AggCall
	// Window of the legacy form GROUP BY TUMBLE(..); its columns follow Aggs as Props say.
	Window *GroupWindow
	Props  []WindowProp
	TTL    *time.Duration
}

// LateRecords is the option of a table that names the table to which its late rows go.
const LateRecords = "late-records"

// LateRows is the rows of a table that come too late for an operator, with those columns of it that the schema names: what
// its option 'late-records' writes to another table.
type LateRows struct {
	Base
	Table *catalog.Table
}

// WindowKind is the shape of windows.
type WindowKind uint8

// The windows.
const (
	Tumble WindowKind = iota
	Hop
	Cumulate
	Session
)

// String is the name of the function.
func (k WindowKind) String() string {
	return [...]string{"TUMBLE", "HOP", "CUMULATE", "SESSION"}[k]
}

// WindowSpec is how windows lie; times in ms.
type WindowSpec struct {
	Kind WindowKind
	Time int // column of the input: a time attribute
	// Size of TUMBLE and HOP, the largest size of CUMULATE, the gap of SESSION.
	Size int64
	// Slide of HOP, step of CUMULATE.
	Slide  int64
	Offset int64
	// Partition of SESSION(TABLE t PARTITION BY ..).
	Partition []int
	Proc      bool // over processing time
	// LTZ: the time is a TIMESTAMP_LTZ, so windows lie in the wall clock of the session's zone.
	LTZ bool
}

// GroupWindow is a window in GROUP BY.
type GroupWindow struct{ WindowSpec }

// WindowProp is a property of the window that is put out.
type WindowProp uint8

// The properties.
const (
	WindowStart    WindowProp = iota // TIMESTAMP(3)
	WindowEnd                        // TIMESTAMP(3), exclusive
	WindowTime                       // a time attribute: end - 1 ms
	WindowProcTime                   // *PROCTIME*
)

// WindowTVF is a window function over a table: the input's columns, then window_start, window_end, window_time.
type WindowTVF struct {
	Base
	Input Node
	WindowSpec
}

// SetKind is a set operation.
type SetKind uint8

// The set operations.
const (
	Union SetKind = iota
	Intersect
	Except
)

// SetOp is UNION, INTERSECT or EXCEPT of inputs with equal types.
type SetOp struct {
	Base
	Kind   SetKind
	All    bool
	Inputs []Node
}

// Frame is the frame of OVER. From is how far it reaches back: rows or ms, -1 = unbounded. It ends with the current row.
type Frame struct {
	Rows bool
	From int64
}

// Over adds the columns of window functions that share PARTITION BY, ORDER BY and frame to those of the input.
type Over struct {
	Base
	Input     Node
	Partition []int
	Order     []SortKey
	Frame     Frame
	Calls     []AggCall
}

// Sort orders rows.
type Sort struct {
	Base
	Input Node
	Keys  []SortKey
}

// Limit keeps rows. Fetch -1 = all.
type Limit struct {
	Base
	Input         Node
	Offset, Fetch int64
}

// Match is MATCH_RECOGNIZE. Its columns are those of Partition, then the measures.
type Match struct {
	Base
	Input     Node
	Partition []int
	Order     []SortKey // the first is a time attribute
	Pattern   ast.Pattern
	Variables []string // of the pattern, in order of appearance
	Subsets   map[string][]string
	Defines   map[string]Expr // conditions over PatternRef and PatternAgg
	Measures  []Expr
	Skip      ast.SkipKind
	SkipTo    string
	Within    int64 // ms, 0 = none
}

// Sink writes rows to a table. Input has exactly the columns of Columns.
type Sink struct {
	Base
	Input   Node
	Table   *catalog.Table // nil = the implicit sink of a bare SELECT
	Columns []int          // ordinals of Table.Columns that are given; others are NULL
	Options map[string]string
}

// Base is what nodes share: embed it and set it with MakeBase.
type Base struct {
	Out Schema
	Pos Place
}

// Schema is of Node.
func (b *Base) Schema() *Schema { return &b.Out }

// At is of Node.
func (b *Base) At() Place { return b.Pos }

// MakeBase makes the Base of a node.
func MakeBase(names []string, types []*row.Type, at Place) Base {
	return Base{Schema{names, types}, at}
}

// IsTrue says whether e is the literal TRUE or nil.
func IsTrue(e Expr) bool {
	l, ok := e.(*Literal)
	return e == nil || ok && l.Typ.Kind() == row.KindBoolean && !l.Null && l.X != 0
}

// And is the conjunction of two conditions, either of which may be nil.
func And(and *fn.Func, a, b Expr) Expr {
	switch {
	case a == nil || IsTrue(a):
		return b
	case b == nil || IsTrue(b):
		return a
	}
	t := row.Boolean()
	if !a.Type().IsNullable() && !b.Type().IsNullable() {
		t = t.NotNull()
	}
	return NewCall(t, and, []Expr{a, b}, a.Where())
}
