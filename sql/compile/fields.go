package compile

import (
	"maps"
	"slices"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/rel"
)

// usedFields has, by table, the fields that a plan uses of columns that are ROWs, by ordinal of the column; nil = all. A
// column that is in no map is not used, or only asked whether it is NULL.
type usedFields map[string]map[int]map[int]bool

// scan counts what a scan uses of its own columns.
func (u usedFields) scan(n *rel.PScan) {
	if n.LateRowTable != "" {
		u.whole(n)
		return
	}
	for _, e := range append(slices.Clone(n.Computed), n.Watermark) {
		u.expr(n, e)
	}
}

// input counts what a node uses of a scan below it.
func (u usedFields) input(n rel.Node, scan *rel.PScan) {
	calc, ok := n.(*rel.PCalc)
	if !ok {
		u.whole(scan)
		return
	}
	u.expr(scan, calc.Cond)
	for _, e := range calc.Exprs {
		u.expr(scan, e)
	}
}

func (u usedFields) whole(n *rel.PScan) {
	for i := range n.Columns {
		u.use(n, i, -1)
	}
}

// expr counts what an expression over the columns of a scan uses.
func (u usedFields) expr(n *rel.PScan, e rel.Expr) {
	rel.WalkExpr(e, func(e rel.Expr) bool {
		switch e := e.(type) {
		case *rel.Column:
			u.use(n, e.Index, -1)
		case *rel.Field:
			if c, ok := e.X.(*rel.Column); ok {
				u.use(n, c.Index, e.Index)
				return false
			}
		case *rel.Call:
			if e.Func.Name == "IS NULL" || e.Func.Name == "IS NOT NULL" {
				_, ok := e.Args[0].(*rel.Column)
				return !ok
			}
		}
		return true
	})
}

// use counts a field of a column of a scan; -1 is the whole column.
func (u usedFields) use(n *rel.PScan, column, field int) {
	if column >= len(n.Columns) {
		return // computed
	}
	key, ordinal := tableKey(n), n.Columns[column]
	if u[key] == nil {
		u[key] = map[int]map[int]bool{}
	}
	fields, known := u[key][ordinal]
	switch {
	case field < 0:
		u[key][ordinal] = nil
	case !known:
		u[key][ordinal] = map[int]bool{field: true}
	case fields != nil:
		fields[field] = true
	}
}

// of is what connector.Table wants: the fields of each column of a scan.
func (u usedFields) of(n *rel.PScan) [][]int {
	out := make([][]int, len(n.Columns))
	for i, ordinal := range n.Columns {
		if n.Table.Columns[ordinal].Type.Kind() != row.KindRow {
			continue
		}
		fields, known := u[tableKey(n)][ordinal]
		if fields != nil || !known {
			out[i] = append([]int{}, slices.Sorted(maps.Keys(fields))...)
		}
	}
	return out
}
