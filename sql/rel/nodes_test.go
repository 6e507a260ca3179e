package rel

import (
	"testing"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/fn"
)

// Every node is one, at compile time.
var _ = []Node{&Scan{}, &Watermark{}, &Values{}, &Project{}, &Filter{}, &Join{}, &Correlate{}, &TableFunc{}, &Unnest{},
	&Aggregate{}, &WindowTVF{}, &SetOp{}, &Over{}, &Sort{}, &Limit{}, &Match{}, &Sink{}}

var _ = []Physical{&PScan{}, &PValues{}, &PCalc{}, &PUnion{}, &PCorrelate{}, &PExchange{}, &PNormalize{}, &PMaterialize{},
	&PDropBefore{}, &PGroupAgg{}, &PLocalAgg{}, &PWindowAgg{}, &PWindow{}, &PWindowJoin{}, &PWindowRank{},
	&PJoin{}, &PIntervalJoin{}, &PTemporalJoin{}, &PLookupJoin{}, &PTopN{}, &PLimit{}, &PDedup{}, &POverTime{},
	&POverColumn{}, &PSetCount{}, &PTimeSort{}, &PMatch{}, &PSink{}}

func call(name string, args ...Expr) *Call {
	return NewCall(row.Boolean(), &fn.Func{Name: name}, args, Place{})
}

func col(i, depth int, name string) *Column { return NewColumn(row.Int(), i, depth, name, Place{}) }

func num(v int64) *Literal {
	return NewLiteral(row.Int().NotNull(), fn.Const{X: uint64(v)}, "", Place{})
}

func TestTextHasFewParentheses(t *testing.T) {
	a, b := col(0, 0, "a"), col(1, 0, "b")
	e := call("AND", call(">", call("*", call("+", a, num(1)), num(2)), b), call("NOT", call("OR", call("IS NULL", a), call("=", a, call("NEGATE", b)))))
	if got, want := Text(e), "(a + 1) * 2 > b AND NOT (a IS NULL OR a = -b)"; got != want {
		t.Errorf("text is %s, want %s", got, want)
	}
}

func TestCanonicalSortsConditions(t *testing.T) {
	x, y, z := call("=", col(0, 0, "a"), num(1)), call(">", col(1, 0, "b"), num(2)), call("<", col(1, 0, "b"), num(9))
	a := call("AND", call("AND", x, y), z)
	b := call("AND", z, call("AND", y, x))
	if Canonical(a, nil) != Canonical(b, nil) || !Equal(a, b) {
		t.Errorf("%s and %s differ", Canonical(a, nil), Canonical(b, nil))
	}
	if Equal(a, call("AND", x, z)) {
		t.Error("conditions with other parts are equal")
	}
}

// A filter with a subquery that is correlated two levels deep, one of them through the right side of a Correlate.
func nested() *Subquery {
	inner := &Filter{Cond: call("=", col(3, 2, "outer"), col(0, 1, "middle"))}
	inner.Input = &Values{}
	node := &Correlate{Left: &Filter{Input: &Values{}, Cond: call("=", col(3, 1, "outer"), col(7, 0, "own"))}, Right: inner}
	return NewSubquery(row.Boolean(), ExistsQuery, nil, "", false, node, Place{})
}

func TestUsedLooksIntoSubqueries(t *testing.T) {
	got := Used(call("AND", col(1, 0, "x"), nested()))
	if len(got) != 2 || got[0] != 1 || got[1] != 3 {
		t.Errorf("used are %v, want [1 3]", got)
	}
	if !Correlated(nested().Node) {
		t.Error("the subquery is correlated")
	}
}

func TestRemapMovesOuterColumnsOnly(t *testing.T) {
	before := nested()
	after := Remap(before, func(i int) int { return i + 10 }).(*Subquery)
	var idx []int
	WalkOuter(after.Node, func(c *Column, up int) {
		if up == 1 {
			idx = append(idx, c.Index)
		}
	})
	if len(idx) != 2 || idx[0] != 13 || idx[1] != 13 {
		t.Errorf("outer columns are %v, want [13 13]", idx)
	}
	own := after.Node.(*Correlate).Left.(*Filter).Cond.(*Call).Args[1].(*Column)
	if own.Index != 7 {
		t.Errorf("own column of the subquery has moved to %d", own.Index)
	}
	WalkOuter(before.Node, func(c *Column, _ int) {
		if c.Index != 3 && c.Index != 0 {
			t.Errorf("the original was changed: %d", c.Index)
		}
	})
	if Equal(before, after) {
		t.Error("both are equal")
	}
}

func TestSubstituteRaisesDepth(t *testing.T) {
	e := Substitute(nested(), []Expr{nil, nil, nil, call("+", col(5, 0, "p"), num(1))}).(*Subquery)
	got := Text(e.Node.(*Correlate).Right.(*Filter).Cond)
	c := e.Node.(*Correlate).Right.(*Filter).Cond.(*Call).Args[0].(*Call).Args[0].(*Column)
	if got != "outer.outer.p + 1 = outer.middle" || c.Depth != 2 || c.Index != 5 {
		t.Errorf("got %s, depth %d, index %d", got, c.Depth, c.Index)
	}
}

func TestMapRebuildsOnlyWhatChanged(t *testing.T) {
	values := &Values{}
	same := &Filter{Input: values, Cond: num(1)}
	other := &Filter{Input: &Values{}, Cond: num(2)}
	join := &Join{Left: same, Right: other}
	got := Map(join, func(n Node) Node {
		if f, ok := n.(*Filter); ok && f == other {
			return f.Input
		}
		return n
	}).(*Join)
	if got == join || got.Left != Node(same) || got.Right != other.Input || join.Right != Node(other) {
		t.Errorf("got %s", Tree(got))
	}
	if Map(join, func(n Node) Node { return n }) != Node(join) {
		t.Error("nothing changed, but the plan is another")
	}
}
