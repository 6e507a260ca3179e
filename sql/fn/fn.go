// Package fn has the functions of SQL: one table that the binder, the reference, completion and tests read, and behind
// it the compiled forms of scalar functions, casts and aggregates. Operators are functions too: +, =, AND, NOT, IS NULL.
//
// It knows no query and no clock: what changes from record to record comes from an [Env].
package fn

import "github.com/millrace-stream/millrace/row"

// Kind is what a function is called on.
type Kind uint8

// The kinds of functions.
const (
	Scalar    Kind = iota // one value for one row
	Aggregate             // one value for many rows
	Table                 // rows for one row
	WindowFn              // TUMBLE, HOP, CUMULATE, SESSION over a table; RANK and the like in OVER
)

// Nulls says what a scalar function makes of NULL arguments.
type Nulls uint8

// The treatments.
const (
	Strict Nulls = iota // NULL if an argument is NULL
	Custom              // it looks at NULL itself
	Never               // like Custom, and the result is never NULL
)

// Purity says when a function may be evaluated.
type Purity uint8

// The purities.
const (
	Pure      Purity = iota // constant arguments: once, at plan time
	PerRecord               // NOW(): the same for one record
	Volatile                // RAND(), UUID(): at every call
)

// Func is a function of SQL, built in or the user's own.
type Func struct {
	// Name in upper case, or the operator ("+", "AND", "IS NULL"). Aliases are other names of it.
	Name    string
	Aliases []string
	Kind    Kind
	// Group is the chapter of the reference: comparison, logical, arithmetic, string, temporal, conditional, conversion,
	// collection, json, construction, hash, regexp, aggregate, window.
	Group string
	// Resolve finds the signature that fits. It returns the types that the arguments are to be cast to (the binder puts the
	// casts in) and the type of the result, or an error that names what is wrong and what would fit.
	Resolve func(args []Arg) (Resolved, error)
	Nulls   Nulls
	Purity  Purity
	// Fails says that it may fail at run time (a Failure): the compiler keeps the span of the call.
	Fails bool
	// Compile makes the closure of a scalar function. args have the types of Resolved.Args, apart from nullability. The
	// closure tests NULL itself, also with Nulls Strict. Constant arguments (Code.Const) may be evaluated at once. An error
	// means that the call is wrong and is shown at its place.
	Compile func(env *Env, args []Code, result *row.Type) (Code, error)
	// Rows makes the function that a table function is: it calls emit with each row, whose layout has the fields of result,
	// a ROW, as its columns. The row may be used again after emit.
	Rows func(env *Env, args []Code, result *row.Type) (func(r *row.Row, emit func(out *row.Row) error) error, error)
	// Agg is set for aggregates.
	Agg *Agg
	// Doc is one or two sentences for the reference. Examples are run by the tests.
	Doc      string
	Syntax   string // for example "SUBSTRING(string, start [, length])"
	Examples []Example
}

// Arg is what Resolve knows about an argument.
type Arg struct {
	Type *row.Type
	// Const is the value of a constant argument, nil for others.
	Const *Const
	// Literal says that it is an untyped NULL or a bare literal, which bends to other types more easily.
	Literal bool
}

// Const is a constant value as a row would hold it: words of the type, or bytes.
type Const struct {
	Null bool
	X, Y uint64
	B    []byte
}

// Resolved is a signature that fits.
type Resolved struct {
	Args   []*row.Type
	Result *row.Type
}

// Example is an expression with the type and the value that it has, as the oracle prints them.
type Example struct{ SQL, Type, Result string }

// Tri is the value of a condition.
type Tri uint8

// The truth values.
const (
	False Tri = iota
	True
	Unknown
)

// Code is a compiled expression: closures over rows of one layout. Exactly one closure is set, by the class of Type. ok is
// false for NULL; the value is meaningless then. What Bytes returns is valid until the record has been processed, and must
// not be changed.
type Code struct {
	Type *row.Type
	// Const says that the value does not depend on the row: the closure may be called with nil, at compile time too.
	Const bool
	// JSON says that the text is JSON that a function made: it goes into other JSON as it is.
	JSON bool
	// Column is set for a bare column, so that operators on it need no call.
	Column *ColumnAt
	// Cond: BOOLEAN.
	Cond func(r *row.Row) Tri
	// Int: TINYINT to BIGINT, DATE (days), TIME (ms), INTERVAL (ms, months), TIMESTAMP and TIMESTAMP_LTZ of 0 to 3 digits
	// (ms), DECIMAL of up to 18 digits (unscaled).
	Int func(r *row.Row) (v int64, ok bool)
	// Float: FLOAT (rounded to float32) and DOUBLE.
	Float func(r *row.Row) (v float64, ok bool)
	// Dec: DECIMAL of 19 to 38 digits, unscaled.
	Dec func(r *row.Row) (v row.Dec, ok bool)
	// Stamp: TIMESTAMP and TIMESTAMP_LTZ of 4 to 9 digits: ms, and nanoseconds in it.
	Stamp func(r *row.Row) (ms, nanos int64, ok bool)
	// Bytes: CHAR, VARCHAR, BINARY, VARBINARY; ARRAY, MAP, MULTISET, ROW in packed form.
	Bytes func(r *row.Row) (v []byte, ok bool)
}

// ColumnAt is where a bare column lies: its number, for the null bit, and its first word or its view.
type ColumnAt struct{ Index, At int }

// Env is what closures of one subtask share. The operator sets Now and resets Arena for each record.
type Env struct {
	// Now is the processing time of the running record, ms since the epoch.
	Now int64
	// Watermark is that of the running operator, for CURRENT_WATERMARK; math.MinInt64 = none.
	Watermark int64
	// Zone is table.local-time-zone.
	Zone *row.Zone
	// Arena holds results of functions until the record has been processed.
	Arena Arena
	// Rand gives RAND, RAND_INTEGER and UUID their bits: seeded by who makes the Env.
	Rand func() uint64
	// Place is that of the call being compiled: functions that fail put it into their Failure.
	Place Place
}

// Place is the byte range of an expression in its text. Source is the text, for who makes the message.
type Place struct {
	Source     any
	Start, End int
}

// arenaBlock is the most bytes that an Arena keeps from record to record.
const arenaBlock = 1 << 20

// Arena is a bump allocator for bytes that live as long as the running record.
type Arena struct {
	buf []byte
}

// Reset gives all memory back. The next record may overwrite what was handed out.
func (a *Arena) Reset() { a.buf = a.buf[:0] }

// Begin returns an empty slice to append to; Keep ends it. Between the two nothing else may use the arena: a function that
// evaluates arguments does so before Begin.
func (a *Arena) Begin() []byte { return a.buf[len(a.buf):] }

// Keep ends what Begin began, and returns it with no room behind it.
func (a *Arena) Keep(b []byte) []byte {
	n := len(b)
	switch free := cap(a.buf) - len(a.buf); {
	case n == 0:
	case n <= free && &a.buf[:len(a.buf)+1][len(a.buf)] == &b[0]:
		a.buf = a.buf[:len(a.buf)+n]
	case n > free: // it has grown out of the block: the next one is larger, and this one lives as long as its views
		a.buf = make([]byte, 0, max(4096, min(2*cap(a.buf)+2*n, arenaBlock)))
	}
	return b[:n:n]
}

// Failure is a run-time error of an expression, such as a division by zero. Closures panic with one; the guard around the
// record catches it, undoes the record, and its operator's policy decides. The compiler of expressions adds the place.
type Failure struct {
	// Message says what happened with the value in it: `cast 'abc' to INT: it is no number`.
	Message string
	// Place is that of the expression, zero if it has none.
	Place
}

func (f *Failure) Error() string { return f.Message }

// Expected tells the runtime that the data are to blame, and no fault of a program.
func (f *Failure) Expected() {}

// Store says what an aggregate needs beside its accumulator when rows are withdrawn from it.
type Store uint8

// The stores.
const (
	// NoStore: the accumulator is enough (COUNT, SUM, AVG, STDDEV..).
	NoStore Store = iota
	// Ordered: the operator keeps how often each value of the argument is there, in order; the result is the first or the
	// last of them (MIN, MAX).
	Ordered
	// Replay: the operator keeps the rows in the order of arrival and adds them anew when one is withdrawn (FIRST_VALUE,
	// LAST_VALUE, LISTAGG, COLLECT, ARRAY_AGG).
	Replay
)

// Agg is how an aggregate is computed. DISTINCT and FILTER are the operator's business: Add is called for rows that count.
type Agg struct {
	// Compile makes the accumulator for arguments of the types of Resolved.Args.
	Compile func(env *Env, args []Code, result *row.Type) (*Acc, error)
	// Store is needed when the input withdraws rows; 0 if Retract does.
	Store Store
	// Last is set for Ordered if the result is the greatest value: MAX.
	Last bool
	// Arrival: the result depends on the order of arrival (FIRST_VALUE, LISTAGG).
	Arrival bool
	// OverOnly: only with OVER (ROW_NUMBER, RANK, LAG, LEAD..). The operator computes these itself by name.
	OverOnly bool
}

// State is an accumulator at work: words and byte values, as a row has them. Whoever changes S[i] puts a new slice there
// and never writes into the old one.
type State struct {
	W []uint64
	S [][]byte
}

// Acc is a compiled accumulator. Functions are handed the part of the state that belongs to them.
type Acc struct {
	Words, Views int
	// Init sets the state of no rows. Zero words and nil views if it is nil.
	Init func(s State)
	// Add counts a row in. What it keeps in S it copies.
	Add func(s State, r *row.Row)
	// Retract takes a row out that was added; nil if that cannot be done (Agg.Store).
	Retract func(s State, r *row.Row)
	// Merge adds what another state has counted; nil if that cannot be done.
	Merge func(s, from State)
	// Value makes closures that read the state that was last handed to Bind, without allocation per call.
	Value Code
	Bind  func(s State)
}
