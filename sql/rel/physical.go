package rel

import (
	"time"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/catalog"
)

// Kinds is the set of row kinds that a node gives.
type Kinds uint8

// What a node gives: bits. An append-only stream has Inserts alone.
const (
	Inserts Kinds = 1 << iota
	Updates
	Deletes
)

// Form is how updates are told.
type Form uint8

// The forms of updates.
const (
	NoUpdates Form = iota
	After          // +U only
	Both           // -U, then +U
)

// DistKind is how rows lie on subtasks.
type DistKind uint8

// The distributions.
const (
	AnyDist    DistKind = iota
	KeyedDist           // rows with equal Keys are on one subtask
	SingleDist          // all rows are on one subtask
)

// Distribution of a physical node's output.
type Distribution struct {
	Kind DistKind
	Keys []int // columns
	// Topic: they lie so in the topic that is read. It says how its keys are written: rows of two topics with equal keys are on
	// one subtask if it is the same. "" = an exchange has put them there.
	Topic string
}

// Traits of a physical node, set by the rules of phase 6 and 7.
type Traits struct {
	Kinds      Kinds
	Form       Form
	UpsertKeys [][]int // sets of columns, each of which identifies a row
	Dist       Distribution
	// Alive is the column that is the event time of the rows, or -1.
	Alive int
	// OrderSensitive: the result depends on the order of arrival.
	OrderSensitive bool
	Sub            int // sub-topology
}

// Physical is a node that runs. Id is "" where there is no state.
type Physical interface {
	Node
	Common() *Phys
}

// Phys is what physical nodes share.
type Phys struct {
	Base
	In []Physical
	Traits
	Id string // of the operator and its state: kind and fingerprint
}

// Common is of Physical.
func (p *Phys) Common() *Phys { return p }

// Children is of Node.
func (p *Phys) Children() []Node {
	out := make([]Node, len(p.In))
	for i, n := range p.In {
		out[i] = n
	}
	return out
}

// The physical nodes. Inputs are in Phys.In, in order. Columns and expressions are over the columns of the input (of both,
// with two inputs). All durations are ms.
type (
	// PScan reads a table. Its columns are those of the table that are needed; Filter and Exprs are what the first step after
	// decoding does: Cond drops rows (nil = none), after the watermark has moved. Watermark is the expression over the
	// columns, nil = none; Rowtime the column that is the event time, -1 = none.
	PScan struct {
		Phys
		Table        *catalog.Table
		Columns      []int // ordinals of Table.Columns
		Options      map[string]string
		Computed     []Expr // columns that follow those of the table: over all columns before them
		Rowtime      int
		Watermark    Expr
		FromSource   bool // SOURCE_WATERMARK()
		Changes      catalog.Changes
		LateRowTable string // 'late-records'
		// Routed: an operator needs that records lie on the partitions of their keys, which is checked.
		Routed bool
	}
	// PLateRows is LateRows.
	PLateRows struct {
		Phys
		Table *catalog.Table
	}
	// PValues gives rows once, at the first start.
	PValues struct {
		Phys
		Rows [][]Expr
	}
	// PCalc filters (Cond nil = all) and projects.
	PCalc struct {
		Phys
		Cond  Expr
		Exprs []Expr
	}
	// PUnion is UNION ALL.
	PUnion struct{ Phys }
	// PCorrelate calls a table function or unnests for each row: the columns of the input, then those of the function.
	// Cond is over both; Outer pads with NULL where no row passes.
	PCorrelate struct {
		Phys
		Func       *Call  // a table function, over the input's columns
		Unnest     []Expr // or arrays, maps, multisets
		Ordinality bool
		Cond       Expr
		Outer      bool
	}
	// PExchange sends rows to the subtask of Keys, through a topic; no Keys = to the only subtask.
	PExchange struct {
		Phys
		Keys       []int
		Partitions int // 0 = as the inputs
	}
	// PNormalize makes a full changelog of upserts by key; Cond is a filter above it that was taken in. A deletion tells the
	// row that was there; Time is a column that it has from the deletion itself, if that is not NULL: -1 = none.
	PNormalize struct {
		Phys
		Key  []int
		Cond Expr
		Time int
	}
	// PMaterialize keeps the rows of a key in order of arrival, before an upsert sink.
	PMaterialize struct {
		Phys
		Key []int
	}
	// PDropBefore drops -U.
	PDropBefore struct{ Phys }
	// PGroupAgg is the unbounded GROUP BY: Groups, then Aggs. TTL 0 = none. Retracts: the input withdraws rows. With Partial
	// the rows are those of a PLocalAgg, and Partial is the schema of what that one aggregates, which Aggs speak of.
	PGroupAgg struct {
		Phys
		Groups   []int
		Aggs     []AggCall
		Retracts bool
		TTL      time.Duration
		Partial  *Schema
	}
	// PLocalAgg aggregates the rows of an epoch before an exchange. It gives the groups, with a Window the end of the slice
	// (BIGINT, wall-clock ms), and one VARBINARY column of packed accumulators.
	PLocalAgg struct {
		Phys
		Groups []int
		Aggs   []AggCall
		Window *WindowSpec
	}
	// PWindowAgg aggregates by window: TUMBLE, HOP, CUMULATE by slices, SESSION by merging. The columns are Groups, Aggs, then
	// Props. Legacy is the form GROUP BY TUMBLE(..), which allows Emit. Attached says that the window is already in the input's
	// columns Start and End (cascading windows, window functions over a join); then Spec.Kind and times are not used.
	PWindowAgg struct {
		Phys
		Spec       WindowSpec
		Attached   bool
		Start, End int
		Groups     []int
		Aggs       []AggCall
		Props      []WindowProp
		Legacy     bool
		Retracts   bool
		Emit       EmitOptions
		Partial    *Schema // as in PGroupAgg
	}
	// PWindow adds window_start, window_end, window_time to rows (a window function alone).
	PWindow struct {
		Phys
		Spec WindowSpec
	}
	// PWindowJoin joins rows of equal windows and Keys. The rows of a window come at its end.
	PWindowJoin struct {
		Phys
		Kind  JoinKind
		Keys  [2][]int // without the window columns, by side, each over its own side
		Start [2]int
		End   [2]int
		Cond  Expr // what is left, over both sides
		Spec  WindowSpec
	}
	// PWindowRank is Top-N in a window, or deduplication in it: rows From to To (from 1) of each window and Partition.
	PWindowRank struct {
		Phys
		Start, End int
		Spec       WindowSpec
		Partition  []int // without the window columns
		Order      []SortKey
		From, To   int64
		Rank       bool // a last column has the row number
	}
	// PJoin is the regular join. Keys are the equal columns by side; Cond what is left.
	PJoin struct {
		Phys
		Kind JoinKind
		Keys [2][]int
		Cond Expr
		TTL  [2]time.Duration
		// Unique says by side: an upsert key of it lies inside the join key, so there is one row for a key; nil = no. Else
		// UniqueKey has an upsert key, or nil.
		Unique    [2]bool
		UniqueKey [2][]int
	}
	// PIntervalJoin: Lower <= left time - right time <= Upper.
	PIntervalJoin struct {
		Phys
		Kind         JoinKind
		Keys         [2][]int
		Time         [2]int
		Lower, Upper int64
		Cond         Expr
		Proc         bool
	}
	// PTemporalJoin is FOR SYSTEM_TIME AS OF an event time: the version of the right row at the left row's time.
	PTemporalJoin struct {
		Phys
		Kind JoinKind // Inner or Left
		Keys [2][]int
		Time [2]int
		Cond Expr
	}
	// PLookupJoin asks a table by key for each left row, at processing time.
	PLookupJoin struct {
		Phys
		Kind    JoinKind // Inner or Left
		Table   *catalog.Table
		Columns []int
		// Keys are pairs: a column of the table, and an expression over the left columns that it must equal.
		Keys    []LookupKey
		Cond    Expr
		Options map[string]string
		Hint    map[string]string // of LOOKUP; nil = there is none
	}
	// PTopN keeps rows From to To (from 1) of each partition.
	PTopN struct {
		Phys
		Partition []int
		Order     []SortKey
		From, To  int64
		Rank      bool
		Retracts  bool
		ToColumn  int // N from a column of the input, -1 = To
		TTL       time.Duration
	}
	// PLimit is LIMIT without ORDER BY: the first arrivals, on one subtask.
	PLimit struct {
		Phys
		Offset, Fetch int64
		Retracts      bool
	}
	// PDedup keeps the first or the last row of a key by time.
	PDedup struct {
		Phys
		Key  []int
		Time int
		Last bool
		Proc bool
		TTL  time.Duration
	}
	// POverTime is OVER (ORDER BY a time attribute).
	POverTime struct {
		Phys
		Partition []int
		Order     []SortKey
		Frame     Frame
		Calls     []AggCall
		Proc      bool
	}
	// POverColumn is OVER (ORDER BY an ordinary column): all rows behind a change are updated.
	POverColumn struct {
		Phys
		Partition []int
		Order     []SortKey
		Frame     Frame
		Calls     []AggCall
		Retracts  bool
		TTL       time.Duration
	}
	// PSetCount is INTERSECT and EXCEPT, with ALL or without.
	PSetCount struct {
		Phys
		Kind SetKind
		All  bool
		TTL  time.Duration
	}
	// PTimeSort is ORDER BY time.
	PTimeSort struct {
		Phys
		Keys []SortKey
		Proc bool
	}
	// PMatch is MATCH_RECOGNIZE.
	PMatch struct {
		Phys
		Partition []int
		Order     []SortKey
		Pattern   ast.Pattern
		Variables []string
		Subsets   map[string][]string
		Defines   map[string]Expr
		Measures  []Expr
		Skip      ast.SkipKind
		SkipTo    string
		Within    int64
		Proc      bool
	}
	// PSink writes rows. Table nil is the collect sink of a bare SELECT.
	PSink struct {
		Phys
		Table   *catalog.Table
		Columns []int
		Options map[string]string
		Changes catalog.Changes // what the table takes
		Key     []int           // PRIMARY KEY as columns of the input
	}
)

// DropsLate says whether an operator drops rows that come too late for it.
func DropsLate(n Physical) bool {
	switch n := n.(type) {
	case *PWindowAgg:
		return !n.Spec.Proc
	case *PWindow:
		return n.Spec.Kind == Session && !n.Spec.Proc
	case *PWindowJoin:
		return !n.Spec.Proc
	case *PWindowRank:
		return !n.Spec.Proc
	case *PIntervalJoin:
		return !n.Proc
	case *POverTime:
		return !n.Proc
	case *PTimeSort:
		return !n.Proc
	case *PDedup:
		return !n.Proc && !n.Last
	case *PMatch:
		return !n.Proc
	}
	return false
}

// LookupKey: see PLookupJoin.
type LookupKey struct {
	Column int
	Value  Expr
}

// EmitOptions are table.exec.emit.*, ms; -1 = not set.
type EmitOptions struct {
	EarlyDelay, LateDelay, AllowLateness int64
}

// Updates says whether results come before or behind the end of their window too.
func (o EmitOptions) Updates() bool { return o.EarlyDelay >= 0 || o.LateDelay >= 0 }

// Plan is a whole script that is ready to run.
type Plan struct {
	Sinks    []*PSink
	Warnings []Warning
	Config   map[string]string
}

// Warning is something that preflight noticed: W-codes.
type Warning struct {
	Code, Message string
	At            Place
}

// Layout is the layout of a node's rows.
func Layout(n Node) *row.Layout { return row.NewLayout(n.Schema().Types...) }
