package rel

import (
	"encoding/hex"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/fn"
)

// Text is an expression for people, as EXPLAIN and messages show it: columns by name.
func Text(e Expr) string {
	p := printer{column: func(c *Column) string {
		outer := strings.Repeat("outer.", max(c.Depth, 0))
		if c.Name != "" {
			return outer + c.Name
		}
		return outer + "$" + strconv.Itoa(c.Index)
	}}
	p.expr(e, 0)
	return p.b.String()
}

// Texts is a list of expressions, with commas.
func Texts(exprs []Expr) string {
	out := make([]string, len(exprs))
	for i, e := range exprs {
		out[i] = Text(e)
	}
	return strings.Join(out, ", ")
}

// Canonical is a text that two expressions share only if they mean the same: columns by ordinal and depth, literals by
// value and type, the parts of AND and OR in order of their text, casts with their types. With column the columns of depth
// 0 are named by it instead, for fingerprints that outlive a change of ordinals.
func Canonical(e Expr, column func(c *Column) string) string {
	p := printer{canonical: true, column: func(c *Column) string {
		if column != nil && c.Depth == 0 {
			return column(c)
		}
		if c.Depth == 0 {
			return "$" + strconv.Itoa(c.Index)
		}
		return "$" + strconv.Itoa(c.Depth) + "." + strconv.Itoa(c.Index)
	}}
	p.expr(e, 0)
	return p.b.String()
}

// Equal says whether two expressions mean the same: their types and canonical texts are equal. nil equals nil.
func Equal(a, b Expr) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	if a == b {
		return true
	}
	if a.Type() != b.Type() || reflect.TypeOf(a) != reflect.TypeOf(b) {
		return false
	}
	if c, ok := a.(*Column); ok {
		d := b.(*Column)
		return c.Index == d.Index && c.Depth == d.Depth
	}
	return Canonical(a, nil) == Canonical(b, nil)
}

// Tree is a plan with its inputs below, each step in a line and indented by two spaces, also the plans of subqueries.
func Tree(n Node) string {
	var b strings.Builder
	tree(&b, n, 0)
	return b.String()
}

func tree(b *strings.Builder, n Node, depth int) {
	b.WriteString(strings.Repeat("  ", depth))
	b.WriteString(n.String())
	b.WriteByte('\n')
	for _, e := range Exprs(n) {
		WalkExpr(e, func(e Expr) bool {
			if s, ok := e.(*Subquery); ok {
				b.WriteString(strings.Repeat("  ", depth+2) + "subquery\n")
				tree(b, s.Node, depth+3)
			}
			return true
		})
	}
	for _, c := range n.Children() {
		tree(b, c, depth+1)
	}
}

// printer writes expressions with as few parentheses as the precedence of SQL asks for.
type printer struct {
	b         strings.Builder
	canonical bool
	column    func(c *Column) string
}

var precedence = map[string]int{"OR": 1, "AND": 2, "NOT": 3, "=": 5, "<>": 5, "<": 5, "<=": 5, ">": 5, ">=": 5,
	"IS DISTINCT FROM": 5, "IS NOT DISTINCT FROM": 5, "+": 6, "-": 6, "||": 6, "*": 7, "/": 7, "%": 7}

func (p *printer) open(yes bool) {
	if yes {
		p.b.WriteByte('(')
	}
}

func (p *printer) closed(yes bool) {
	if yes {
		p.b.WriteByte(')')
	}
}

func (p *printer) list(exprs []Expr) {
	for i, e := range exprs {
		if i > 0 {
			p.b.WriteString(", ")
		}
		p.expr(e, 0)
	}
}

func (p *printer) expr(e Expr, outer int) {
	switch e := e.(type) {
	case nil:
		p.b.WriteString("TRUE")
	case *Column:
		p.b.WriteString(p.column(e))
	case *Literal:
		if p.canonical {
			p.b.WriteString(ConstText(e.Typ, e.Const) + ":" + e.Typ.String())
		} else if e.Text != "" {
			p.b.WriteString(e.Text)
		} else {
			p.b.WriteString(ConstText(e.Typ, e.Const))
		}
	case *Call:
		p.call(e, outer)
	case *Cast:
		if e.Implicit && !p.canonical {
			p.expr(e.X, outer)
			return
		}
		if e.Try {
			p.b.WriteString("TRY_")
		}
		p.b.WriteString("CAST(")
		p.expr(e.X, 0)
		p.b.WriteString(" AS " + e.Typ.Text() + ")")
	case *Case:
		p.b.WriteString("CASE")
		for _, w := range e.Whens {
			p.b.WriteString(" WHEN ")
			p.expr(w.Cond, 0)
			p.b.WriteString(" THEN ")
			p.expr(w.Then, 0)
		}
		if l, ok := e.Else.(*Literal); !ok || !l.Null {
			p.b.WriteString(" ELSE ")
			p.expr(e.Else, 0)
		}
		p.b.WriteString(" END")
	case *Field:
		p.expr(e.X, 9)
		p.b.WriteByte('.')
		if t := e.X.Type(); t.Kind() == row.KindRow && e.Index < t.NumFields() {
			p.b.WriteString(t.Field(e.Index).Name)
		} else {
			p.b.WriteString(strconv.Itoa(e.Index))
		}
	case *Subquery:
		p.subquery(e)
	case *Marker:
		p.b.WriteString([...]string{"PROCTIME()", "ROW_TIMESTAMP()", "SOURCE_WATERMARK()"}[e.Kind])
	case *PatternRef:
		p.patternRef(e)
	case *PatternAgg:
		p.patternAgg(e)
	}
}

func (p *printer) call(e *Call, outer int) {
	name := e.Func.Name
	prec := precedence[name]
	switch {
	case (name == "AND" || name == "OR") && p.canonical:
		var parts []string
		for _, x := range flatten(e, name, nil) {
			q := printer{canonical: true, column: p.column}
			q.expr(x, prec+1)
			parts = append(parts, q.b.String())
		}
		slices.Sort(parts)
		p.open(outer > prec)
		p.b.WriteString(strings.Join(slices.Compact(parts), " "+name+" "))
		p.closed(outer > prec)
	case prec > 0 && len(e.Args) == 2:
		p.open(outer > prec)
		p.expr(e.Args[0], prec)
		p.b.WriteString(" " + name + " ")
		p.expr(e.Args[1], prec+1)
		p.closed(outer > prec)
	case name == "NOT" && len(e.Args) == 1:
		p.open(outer > prec)
		p.b.WriteString("NOT ")
		p.expr(e.Args[0], prec+1)
		p.closed(outer > prec)
	case name == "NEGATE" && len(e.Args) == 1:
		p.b.WriteByte('-')
		p.expr(e.Args[0], 8)
	case strings.HasPrefix(name, "IS ") && len(e.Args) == 1:
		p.open(outer > 4)
		p.expr(e.Args[0], 5)
		p.b.WriteString(" " + name)
		p.closed(outer > 4)
	case name == "ITEM" && len(e.Args) == 2:
		p.expr(e.Args[0], 9)
		p.b.WriteByte('[')
		p.expr(e.Args[1], 0)
		p.b.WriteByte(']')
	case (name == "ARRAY" || name == "MAP") && !p.canonical:
		p.b.WriteString(name + "[")
		p.list(e.Args)
		p.b.WriteByte(']')
	case (name == "LIKE" || name == "SIMILAR TO") && len(e.Args) == 2:
		p.open(outer > 4)
		p.expr(e.Args[0], 5)
		p.b.WriteString(" " + name + " ")
		p.expr(e.Args[1], 5)
		p.closed(outer > 4)
	default:
		p.b.WriteString(name + "(")
		p.list(e.Args)
		p.b.WriteByte(')')
	}
}

// flatten lists the parts of a chain of AND or OR.
func flatten(e Expr, name string, out []Expr) []Expr {
	if c, ok := e.(*Call); ok && c.Func.Name == name {
		for _, a := range c.Args {
			out = flatten(a, name, out)
		}
		return out
	}
	return append(out, e)
}

// Conjuncts lists the parts of a chain of AND; nil for nil.
func Conjuncts(e Expr) []Expr {
	if e == nil {
		return nil
	}
	return flatten(e, "AND", nil)
}

func (p *printer) subquery(e *Subquery) {
	if e.Not {
		p.b.WriteString("NOT ")
	}
	switch e.Kind {
	case ExistsQuery:
		p.b.WriteString("EXISTS ")
	case InQuery, AnyQuery, AllQuery:
		p.open(len(e.X) > 1)
		p.list(e.X)
		p.closed(len(e.X) > 1)
		switch e.Kind {
		case InQuery:
			p.b.WriteString(" IN ")
		case AnyQuery:
			p.b.WriteString(" " + e.Op + " ANY ")
		case AllQuery:
			p.b.WriteString(" " + e.Op + " ALL ")
		}
	}
	if p.canonical {
		// The lines of a plan have names of columns but no ordinals, so what they compute stands beside them.
		p.b.WriteString("(" + CanonicalTree(e.Node) + ")")
		return
	}
	p.b.WriteString("(query)")
}

// CanonicalTree is a logical plan in one line, with the canonical texts of its expressions.
func CanonicalTree(n Node) string {
	var b strings.Builder
	b.WriteString(n.String())
	for _, e := range Exprs(n) {
		b.WriteString(";" + Canonical(e, nil))
	}
	for _, c := range n.Children() {
		b.WriteString("[" + CanonicalTree(c) + "]")
	}
	return b.String()
}

func (p *printer) patternRef(e *PatternRef) {
	text := "$" + strconv.Itoa(e.Column)
	if !p.canonical && e.Name != "" {
		text = e.Name
	}
	if e.Variable != "" {
		text = e.Variable + "." + text
	}
	switch {
	case e.Nav == NavLast && e.Offset == 0:
	case e.Offset == 0 || e.Offset == 1 && e.Nav >= NavPrev:
		text = navNames[e.Nav] + "(" + text + ")"
	default:
		text = navNames[e.Nav] + "(" + text + ", " + strconv.Itoa(e.Offset) + ")"
	}
	p.b.WriteString(text)
}

var navNames = [...]string{"LAST", "FIRST", "PREV", "NEXT"}

func (p *printer) patternAgg(e *PatternAgg) {
	p.b.WriteString(e.Call.Func.Name + "(")
	if e.Call.Distinct {
		p.b.WriteString("DISTINCT ")
	}
	if len(e.Args) == 0 {
		if e.Variable != "" {
			p.b.WriteString(e.Variable + ".")
		}
		p.b.WriteByte('*')
	}
	for i, a := range e.Args {
		if i > 0 {
			p.b.WriteString(", ")
		}
		if e.Variable != "" {
			p.b.WriteString(e.Variable + ".")
		}
		p.expr(a, 9)
	}
	p.b.WriteByte(')')
}

// ConstText is a constant as it is written in SQL: NULL, 5, 'text', DATE '2024-01-31', x'0AFF'. Nested values are hex.
func ConstText(t *row.Type, c fn.Const) string {
	if c.Null {
		return "NULL"
	}
	switch k := t.Kind(); {
	case k == row.KindBoolean:
		if c.X != 0 {
			return "TRUE"
		}
		return "FALSE"
	case k.Integer():
		return strconv.FormatInt(int64(c.X), 10)
	case k.Approximate():
		return strconv.FormatFloat(math.Float64frombits(c.X), 'E', -1, 64)
	case k == row.KindDecimal:
		d := row.DecInt(int64(c.X))
		if t.Precision() > 18 {
			d = row.Dec{Lo: c.X, Hi: int64(c.Y)}
		}
		return decText(d, t.Scale())
	case k.Text():
		return "'" + strings.ReplaceAll(string(c.B), "'", "''") + "'"
	case k == row.KindDate:
		return "DATE '" + time.Unix(int64(c.X)*86400, 0).UTC().Format("2006-01-02") + "'"
	case k == row.KindTime:
		return "TIME '" + time.UnixMilli(int64(c.X)).UTC().Format("15:04:05.000") + "'"
	case k == row.KindTimestamp || k == row.KindTimestampLTZ:
		layout := "2006-01-02 15:04:05"
		if n := t.Precision(); n > 0 {
			layout += "." + strings.Repeat("0", n)
		}
		at := time.UnixMilli(int64(c.X)).UTC()
		if t.Precision() > 3 {
			at = at.Add(time.Duration(c.Y))
		}
		return k.String() + " '" + at.Format(layout) + "'"
	case k == row.KindIntervalDay:
		return "INTERVAL " + Millis(int64(c.X))
	case k == row.KindIntervalMonth:
		return "INTERVAL " + strconv.FormatInt(int64(c.X), 10) + " months"
	}
	return "x'" + hex.EncodeToString(c.B) + "'"
}

func decText(d row.Dec, scale int) string {
	a := d.Abs()
	n := new(big.Int).SetUint64(uint64(a.Hi))
	digits := n.Add(n.Lsh(n, 64), new(big.Int).SetUint64(a.Lo)).String()
	for len(digits) <= scale {
		digits = "0" + digits
	}
	if scale > 0 {
		digits = digits[:len(digits)-scale] + "." + digits[len(digits)-scale:]
	}
	if d.Sign() < 0 {
		return "-" + digits
	}
	return digits
}
