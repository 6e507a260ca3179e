package ast

// Precedences of expressions: the higher binds tighter. The parser and the printer share them, so that the printer sets
// exactly the parentheses that are needed. An operator of the same precedence groups to the left.
const (
	PrecLowest  = 0
	PrecOr      = 22
	PrecAnd     = 24
	PrecNot     = 26 // NOT x
	PrecIs      = 28 // IS NULL and its like
	PrecCompare = 30 // = <> < <= > >=, IS DISTINCT FROM, OVERLAPS, MEMBER OF
	PrecIn      = 32 // IN, BETWEEN, LIKE, SIMILAR TO
	PrecAdd     = 40 // + -
	PrecMul     = 60 // * / % ||
	PrecSign    = 80 // -x +x
	PrecPostfix = 100
)

// infixTable has the text and precedence of each infix operator.
var infixTable = [...]struct {
	text string
	prec int
}{
	Or:                  {"OR", PrecOr},
	And:                 {"AND", PrecAnd},
	Eq:                  {"=", PrecCompare},
	NotEq:               {"<>", PrecCompare},
	Less:                {"<", PrecCompare},
	LessEq:              {"<=", PrecCompare},
	Greater:             {">", PrecCompare},
	GreaterEq:           {">=", PrecCompare},
	Overlaps:            {"OVERLAPS", PrecCompare},
	Contains:            {"CONTAINS", PrecCompare},
	PeriodEquals:        {"EQUALS", PrecCompare},
	Precedes:            {"PRECEDES", PrecCompare},
	Succeeds:            {"SUCCEEDS", PrecCompare},
	ImmediatelyPrecedes: {"IMMEDIATELY PRECEDES", PrecCompare},
	ImmediatelySucceeds: {"IMMEDIATELY SUCCEEDS", PrecCompare},
	MemberOf:            {"MEMBER OF", PrecCompare},
	SubmultisetOf:       {"SUBMULTISET OF", PrecCompare},
	Add:                 {"+", PrecAdd},
	Subtract:            {"-", PrecAdd},
	Concat:              {"||", PrecMul},
	Multiply:            {"*", PrecMul},
	Divide:              {"/", PrecMul},
	Modulo:              {"%", PrecMul},
}

// String is the operator as it is written.
func (op InfixOp) String() string { return infixTable[op].text }

// Precedence is how tight the operator binds.
func (op InfixOp) Precedence() int { return infixTable[op].prec }
