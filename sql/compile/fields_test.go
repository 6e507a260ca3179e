package compile

import (
	"fmt"
	"testing"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/catalog"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
)

func TestUsedFields(t *testing.T) {
	typ := row.RowOf(row.Field{Name: "x", Type: row.Int()}, row.Field{Name: "y", Type: row.Timestamp(3)}, row.Field{Name: "z", Type: row.Int()})
	table := &catalog.Table{Columns: []catalog.Column{{Name: "k", Type: row.Int()}, {Name: "r", Type: typ}, {Name: "s", Type: typ}}}
	column := func(i int) rel.Expr { return rel.NewColumn(typ, i, 0, "", rel.Place{}) }
	field := func(i, f int) rel.Expr { return rel.NewField(typ.Field(f).Type, column(i), f, rel.Place{}) }
	isNull, ok := fn.Lookup("IS NULL")
	if !ok {
		t.Fatal("IS NULL is gone")
	}
	null := func(e rel.Expr) rel.Expr {
		return rel.NewCall(row.Boolean().NotNull(), isNull, []rel.Expr{e}, rel.Place{})
	}
	scan := func() *rel.PScan { return &rel.PScan{Table: table, Columns: []int{0, 1, 2}, Rowtime: -1} }
	calc := func(cond rel.Expr, exprs ...rel.Expr) rel.Node { return &rel.PCalc{Cond: cond, Exprs: exprs} }
	for name, test := range map[string]struct {
		scan  func(n *rel.PScan)
		above []rel.Node
		want  string
	}{
		"fields":         {above: []rel.Node{calc(field(1, 2), field(1, 0), column(0))}, want: "[[] [0 2] []]"},
		"a whole column": {above: []rel.Node{calc(nil, field(1, 2), column(1))}, want: "[[] all []]"},
		"is it NULL":     {above: []rel.Node{calc(null(column(1)), field(2, 0), null(field(2, 1)))}, want: "[[] [] [0 1]]"},
		"another node":   {above: []rel.Node{calc(nil, field(1, 2)), &rel.PUnion{}}, want: "[[] all all]"},
		"two nodes":      {above: []rel.Node{calc(nil, field(1, 2)), calc(nil, field(1, 1))}, want: "[[] [1 2] []]"},
		"watermark":      {scan: func(n *rel.PScan) { n.Watermark, n.Computed = field(1, 1), []rel.Expr{field(2, 2)} }, above: []rel.Node{calc(nil, rel.NewColumn(row.Int(), 3, 0, "", rel.Place{}))}, want: "[[] [1] [2]]"},
		"late rows":      {scan: func(n *rel.PScan) { n.LateRowTable = "late" }, above: []rel.Node{calc(nil, field(1, 1))}, want: "[[] all all]"},
	} {
		u, n := usedFields{}, scan()
		if test.scan != nil {
			test.scan(n)
		}
		u.scan(n)
		for _, a := range test.above {
			u.input(a, n)
		}
		got := u.of(n)
		text := "[[]"
		for _, f := range got[1:] {
			if f == nil {
				text += " all"
			} else {
				text += " " + fmt.Sprint(f)
			}
		}
		if text += "]"; text != test.want || got[0] != nil {
			t.Errorf("%s: %s, want %s", name, text, test.want)
		}
	}
}
