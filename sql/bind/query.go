package bind

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
)

// project computes columns over a node.
func project(n rel.Node, exprs []rel.Expr, names []string, at rel.Place) rel.Node {
	types := make([]*row.Type, len(exprs))
	for i, e := range exprs {
		types[i] = e.Type()
	}
	return &rel.Project{Base: rel.MakeBase(names, types, at), Input: n, Exprs: exprs}
}

func filter(n rel.Node, cond rel.Expr) rel.Node {
	if cond == nil || rel.IsTrue(cond) {
		return n
	}
	s := n.Schema()
	return &rel.Filter{Base: rel.MakeBase(s.Names, s.Types, cond.Where()), Input: n, Cond: cond}
}

// one is one row without columns: what a SELECT without FROM reads.
func (b *binder) one(at ast.Span) rel.Node {
	return &rel.Values{Base: rel.MakeBase(nil, nil, b.place(at)), Rows: [][]rel.Expr{{}}}
}

// query binds a query; nil after an error that leaves no columns. Its columns of Depth 1 belong to outer, which may be nil.
func (b *binder) query(q ast.Query, outer *scope) rel.Node {
	if b.depth++; b.depth > maxDepth {
		b.depth--
		b.errorf(q.Range(), "E2006", "queries are nested too deeply")
		return nil
	}
	defer func() { b.depth-- }()
	switch q := q.(type) {
	case *ast.Select:
		return b.selects(q, outer, nil)
	case *ast.Ordered:
		if s, ok := q.Body.(*ast.Select); ok {
			return b.limit(b.selects(s, outer, q.OrderBy), q)
		}
		return b.limit(b.orderBy(b.query(q.Body, outer), q.OrderBy), q)
	case *ast.SetOp:
		return b.setOp(q, outer)
	case *ast.Values:
		return b.values(q, outer)
	case *ast.TableQuery:
		return b.table(q.Table, nil)
	case *ast.With:
		if q.Recursive {
			b.errorf(q.Span, "E2001", "WITH RECURSIVE is not supported")
			return nil
		}
		saved := b.ctes
		defer func() { b.ctes = saved }()
		for _, t := range q.Tables {
			n := b.subquery(t.Query, nil)
			if n != nil && t.Columns != nil {
				n = b.renamed(n, t.Columns, t.Name.Name)
			}
			b.ctes = &cte{t.Name.Name, n, b.ctes}
		}
		return b.query(q.Body, outer)
	}
	b.errorf(q.Range(), "E2001", "this query is not supported")
	return nil
}

// subquery binds a query whose order nobody sees: as in Flink, ORDER BY without LIMIT is left out then.
func (b *binder) subquery(q ast.Query, outer *scope) rel.Node {
	n := b.query(q, outer)
	switch s := n.(type) {
	case *rel.Sort:
		return s.Input
	case *rel.Project:
		if k, ok := s.Input.(*rel.Sort); ok {
			return s.WithChildren([]rel.Node{k.Input})
		}
	}
	return n
}

// renamed gives columns the names of an alias list.
func (b *binder) renamed(n rel.Node, columns []ast.Ident, table string) rel.Node {
	if len(columns) != n.Schema().Len() {
		b.errorf(columns[0].Span, "E2115", "%q has %d columns, but %d names are given", table, n.Schema().Len(), len(columns))
		return nil
	}
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.Name
	}
	return rename(n, names)
}

// limit puts OFFSET and LIMIT on top.
func (b *binder) limit(n rel.Node, q *ast.Ordered) rel.Node {
	count := func(e ast.Expr, word string, deflt int64) int64 {
		if e == nil {
			return deflt
		}
		if v, ok := e.(*ast.Env); ok {
			e = v.X
		}
		if num, ok := e.(*ast.Number); ok && num.Kind == ast.IntNumber {
			if v, err := strconv.ParseInt(num.Text, 10, 64); err == nil {
				return v
			}
		}
		b.errorf(e.Range(), "E2116", "%s wants a whole number", word)
		return deflt
	}
	offset, fetch := count(q.Offset, "OFFSET", 0), count(q.Limit, "LIMIT", -1)
	if n == nil || q.Offset == nil && q.Limit == nil {
		return n
	}
	on := func(n rel.Node) rel.Node {
		s := n.Schema()
		return &rel.Limit{Base: rel.MakeBase(s.Names, s.Types, b.place(q.Span)), Input: n, Offset: offset, Fetch: fetch}
	}
	// The limit stands right on the order, below the Project that drops what was computed for the order alone.
	if p, ok := n.(*rel.Project); ok {
		if s, ok := p.Input.(*rel.Sort); ok {
			return p.WithChildren([]rel.Node{on(s)})
		}
	}
	return on(n)
}

// sortKey is a key over column c.
func sortKey(c int, o ast.OrderItem) rel.SortKey {
	k := rel.SortKey{Column: c, Desc: o.Desc, NullsLast: o.Desc}
	switch o.Nulls {
	case ast.NullsFirst:
		k.NullsLast = false
	case ast.NullsLast:
		k.NullsLast = true
	}
	return k
}

// ordinal says which column of the output ORDER BY 2 means.
func (b *binder) ordinal(e ast.Expr, width int) (c int, isOrdinal bool) {
	n, ok := e.(*ast.Number)
	if !ok || n.Kind != ast.IntNumber {
		return 0, false
	}
	v, err := strconv.Atoi(n.Text)
	if err != nil || v < 1 || v > width {
		b.errorf(n.Span, "E2116", "ORDER BY %s: there are columns 1 to %d", n.Text, width)
		return -1, true
	}
	return v - 1, true
}

// orderBy sorts the result of a query that is no SELECT, by its columns.
func (b *binder) orderBy(n rel.Node, items []ast.OrderItem) rel.Node {
	if n == nil || len(items) == 0 {
		return n
	}
	s := n.Schema()
	sc := &scope{items: []*item{newItem("", 0, n)}, clause: "ORDER BY"}
	exprs := columnsOf(n)
	var keys []rel.SortKey
	for _, o := range items {
		c, ok := b.ordinal(o.Expr, s.Len())
		if !ok {
			e := b.expr(sc, o.Expr)
			if isBad(e) {
				continue
			}
			c = indexOf(exprs, e)
			if c < 0 {
				c = len(exprs)
				exprs = append(exprs, e)
			}
		}
		if c >= 0 {
			keys = append(keys, sortKey(c, o))
		}
	}
	return sorted(n, exprs, s.Len(), keys, b.place(items[0].Span))
}

// sorted sorts a node by keys over exprs, the first width of which are its columns; the others are computed for the sort
// alone.
func sorted(n rel.Node, exprs []rel.Expr, width int, keys []rel.SortKey, at rel.Place) rel.Node {
	if len(keys) == 0 {
		return n
	}
	names := n.Schema().Names
	if len(exprs) > width {
		all := slices.Clone(names)
		for i := width; i < len(exprs); i++ {
			all = append(all, "$sort"+itoa(i-width))
		}
		n = project(n, exprs, all, at)
	}
	s := n.Schema()
	n = &rel.Sort{Base: rel.MakeBase(s.Names, s.Types, at), Input: n, Keys: keys}
	if len(exprs) > width {
		n = project(n, columnsOf(n)[:width], names, at)
	}
	return n
}

func indexOf(list []rel.Expr, e rel.Expr) int {
	return slices.IndexFunc(list, func(x rel.Expr) bool { return rel.Equal(x, e) })
}

func (b *binder) setOp(q *ast.SetOp, outer *scope) rel.Node {
	// Chains of UNION ALL are long to the left: they become one node.
	var parts []ast.Query
	left := ast.Query(q)
	for {
		s, ok := left.(*ast.SetOp)
		if !ok || s.Kind != q.Kind || s.All != q.All || q.Kind == ast.Except || len(parts) > 0 && q.Kind != ast.Union {
			break
		}
		parts = append(parts, s.Right)
		left = s.Left
	}
	if len(parts) == 0 {
		parts = append(parts, q.Right)
		left = q.Left
	}
	parts = append(parts, left)
	slices.Reverse(parts)
	word := [...]string{"UNION", "INTERSECT", "EXCEPT"}[q.Kind]
	if q.All {
		word += " ALL"
	}
	nodes := make([]rel.Node, len(parts))
	for i, p := range parts {
		nodes[i] = b.query(p, outer)
	}
	if slices.Contains(nodes, nil) {
		return nil
	}
	first := nodes[0].Schema()
	for i, n := range nodes[1:] {
		if w := n.Schema().Len(); w != first.Len() {
			b.errorf(parts[i+1].Range(), "E2115", "the sides of %s have %d and %d columns", word, first.Len(), w)
			return nil
		}
	}
	types := make([]*row.Type, first.Len())
	for c := range types {
		of := make([]*row.Type, len(nodes))
		for i, n := range nodes {
			of[i] = n.Schema().Types[c]
		}
		t := fn.LeastRestrictive(of...)
		if t == nil {
			b.errorf(q.Span, "E2113", "column %d of %s has types with nothing in common: %s", c+1, word, typeNamesOf(of))
			return nil
		}
		if m := of[0].Mark(); m != row.NoMark && of[0].Plain() == t.Plain() {
			t = t.WithMark(m)
		}
		types[c] = t
	}
	for i, n := range nodes {
		nodes[i] = b.castColumns(n, types)
	}
	kind := [...]rel.SetKind{rel.Union, rel.Intersect, rel.Except}[q.Kind]
	return &rel.SetOp{Base: rel.MakeBase(first.Names, types, b.place(q.Span)), Kind: kind, All: q.All, Inputs: nodes}
}

// castColumns brings the columns of a node to types.
func (b *binder) castColumns(n rel.Node, types []*row.Type) rel.Node {
	exprs := columnsOf(n)
	changed := false
	for i, e := range exprs {
		exprs[i] = b.coerce(e, types[i])
		changed = changed || exprs[i] != e
	}
	if !changed {
		return n
	}
	return project(n, exprs, n.Schema().Names, n.At())
}

func (b *binder) values(q *ast.Values, outer *scope) rel.Node {
	s := &scope{parent: outer, clause: "VALUES"}
	targets := b.targets
	b.targets = nil
	var rows [][]rel.Expr
	ok := true
	for _, r := range q.Rows {
		var list []rel.Expr
		for c, e := range r.Items {
			x := b.expr(s, e)
			if c < len(targets) && isNull(x) {
				x = b.null(targets[c], e.Range())
			}
			x = b.noNull(x)
			ok = ok && !isBad(x)
			list = append(list, x)
		}
		if len(rows) > 0 && len(list) != len(rows[0]) {
			b.errorf(r.Span, "E2115", "rows of VALUES have %d and %d columns", len(rows[0]), len(list))
			return nil
		}
		rows = append(rows, list)
	}
	if !ok || len(rows) == 0 {
		return nil
	}
	names := make([]string, len(rows[0]))
	types := make([]*row.Type, len(names))
	for c := range names {
		names[c] = "EXPR$" + itoa(c)
		column := make([]rel.Expr, len(rows))
		for i := range rows {
			column[i] = rows[i][c]
		}
		if types[c] = b.common(q.Span, "column "+itoa(c+1)+" of VALUES", column); types[c] == nil {
			return nil
		}
		types[c] = types[c].WithMark(row.NoMark)
		for i := range rows {
			rows[i][c] = b.coerce(rows[i][c], types[c])
		}
	}
	return &rel.Values{Base: rel.MakeBase(names, types, b.place(q.Span)), Rows: rows}
}

// output is a column of a select list.
type output struct {
	expr rel.Expr
	name string
}

// selects binds SELECT; ORDER BY, if there is one, sees its aliases and its input.
func (b *binder) selects(q *ast.Select, outer *scope, order []ast.OrderItem) rel.Node {
	savedHints := b.hints
	b.hints = q.Hints
	defer func() { b.hints = savedHints }()
	b.checkHints(q.Hints)

	src := source{node: b.one(q.Span)}
	if q.From != nil {
		src = b.from(q.From, outer, nil)
	}
	st := &selectState{query: q, items: src.items}
	for _, i := range q.Items {
		if i.Alias != nil {
			st.aliases = append(st.aliases, i.Alias.Name)
		}
	}
	sc := scope{parent: outer, items: src.items, merged: src.merged, sel: st}
	node := src.node
	in := func(clause string, aggregates, over bool) *scope {
		c := sc
		c.clause = clause
		st.refuseAgg, st.refuseOver = "", ""
		if !aggregates {
			st.refuseAgg = clause
		}
		if !over {
			st.refuseOver = clause
		}
		return &c
	}

	if q.Where != nil {
		where := b.cond(in("WHERE", false, false), q.Where, "WHERE")
		if node != nil && !isBad(where) {
			node = filter(node, where)
		}
	}
	b.groupBy(in("GROUP BY", false, false), q)

	outs := b.items(in("", true, true), q, src)
	var having, qualify rel.Expr
	if q.Having != nil {
		having = b.cond(in("HAVING", true, false), q.Having, "HAVING")
	}
	if q.Qualify != nil {
		qualify = b.cond(in("", true, true), q.Qualify, "QUALIFY")
	}
	keys := b.orderKeys(in("", true, true), order, outs)
	if node == nil {
		return nil
	}
	for _, o := range outs {
		if isBad(o.expr) {
			return nil
		}
	}

	lift := func(e rel.Expr) rel.Expr { return e }
	if st.aggregated() || having != nil {
		node, lift = b.buildAggregate(st, node)
		if having != nil && !isBad(having) {
			node = filter(node, lift(having))
		}
	}
	if len(st.overs) > 0 {
		var columns []int
		node, columns = b.buildOver(st, node, lift)
		before, over := lift, node.Schema()
		lift = func(e rel.Expr) rel.Expr {
			return rel.MapExpr(before(e), func(e rel.Expr) rel.Expr {
				if c, ok := e.(*rel.Column); ok && c.Depth == overDepth {
					i := columns[c.Index]
					return rel.NewColumn(c.Type(), i, 0, over.Names[i], c.Where())
				}
				return e
			})
		}
	}
	if qualify != nil && !isBad(qualify) {
		node = filter(node, lift(qualify))
	}

	var exprs []rel.Expr
	var names []string
	for _, o := range outs {
		exprs, names = append(exprs, lift(o.expr)), append(names, o.name)
	}
	var sort []rel.SortKey
	for _, k := range keys {
		c := k.output
		if c < 0 {
			e := lift(k.expr)
			if c = indexOf(exprs, e); c < 0 {
				if q.Distinct {
					b.errorf(k.item.Span, "E2117", "with SELECT DISTINCT, ORDER BY takes columns of the select list only")
					continue
				}
				c = len(exprs)
				exprs = append(exprs, e)
				names = append(names, "$sort"+itoa(c-len(outs)))
			}
		}
		sort = append(sort, sortKey(c, k.item))
	}
	node = project(node, exprs, names, b.place(q.Span))
	if q.Distinct {
		groups := make([]int, len(exprs))
		for i := range groups {
			groups[i] = i
		}
		s := node.Schema()
		node = &rel.Aggregate{Base: rel.MakeBase(s.Names, s.Types, b.place(q.Span)), Input: node, Groups: groups, TTL: b.ttl(src.items)}
	}
	if len(sort) > 0 {
		s := node.Schema()
		node = &rel.Sort{Base: rel.MakeBase(s.Names, s.Types, b.place(order[0].Span)), Input: node, Keys: sort}
		if len(exprs) > len(outs) {
			node = project(node, columnsOf(node)[:len(outs)], names[:len(outs)], b.place(q.Span))
		}
	}
	return node
}

// orderUse is a key of ORDER BY: a column of the output, or else an expression.
type orderUse struct {
	output int
	expr   rel.Expr
	item   ast.OrderItem
}

func (b *binder) orderKeys(s *scope, order []ast.OrderItem, outs []output) []orderUse {
	var keys []orderUse
	for _, o := range order {
		if c, ok := b.ordinal(o.Expr, len(outs)); ok {
			if c >= 0 {
				keys = append(keys, orderUse{c, nil, o})
			}
			continue
		}
		if r, ok := o.Expr.(*ast.ColumnRef); ok && len(r.Name.Parts) == 1 {
			name := r.Name.Parts[0].Name
			var at []int
			for i, out := range outs {
				if out.name == name && slices.Contains(s.sel.aliases, name) {
					at = append(at, i)
				}
			}
			if len(at) == 1 {
				keys = append(keys, orderUse{at[0], nil, o})
				continue
			}
			if len(at) > 1 {
				b.errorf(r.Span, "E2104", "column %q is ambiguous: the select list has %d of that name", name, len(at))
				continue
			}
		}
		if e := b.expr(s, o.Expr); !isBad(e) {
			keys = append(keys, orderUse{-1, e, o})
		}
	}
	return keys
}

// items binds the select list; stars are spread out.
func (b *binder) items(s *scope, q *ast.Select, src source) []output {
	var outs []output
	seen := map[string]bool{}
	for _, it := range q.Items {
		if star, ok := it.Expr.(*ast.Star); ok {
			for _, o := range b.star(s, star, src) {
				o.name = uniquify(o.name, seen)
				outs = append(outs, o)
			}
			continue
		}
		e := b.noNull(b.expr(s, it.Expr))
		name := exprName(it.Expr)
		if it.Alias != nil {
			name = it.Alias.Name
		}
		if name == "" {
			name = "EXPR$" + itoa(len(outs))
		}
		seen[name] = true
		if c, ok := e.(*rel.Column); ok && c.Depth < 0 {
			s.sel.name(c, name)
		}
		outs = append(outs, output{e, name})
	}
	return outs
}

// exprName is the name that a column of the select list has without an alias: that of a column or field; else "".
func exprName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.ColumnRef:
		return e.Name.Parts[len(e.Name.Parts)-1].Name
	case *ast.Env:
		return exprName(e.X)
	}
	return ""
}

func (b *binder) star(s *scope, star *ast.Star, src source) []output {
	if star.Qualifier == nil {
		if len(src.items) == 0 {
			if b.errs.Err() == nil {
				b.errorf(star.Span, "E2007", "SELECT * needs a FROM")
			}
			return nil
		}
		var outs []output
		for _, m := range src.merged {
			outs = append(outs, output{m.expr, m.name})
		}
		for _, i := range src.items {
			outs = append(outs, b.itemColumns(i, star.Span, false)...)
		}
		return outs
	}
	q := *star.Qualifier
	if len(q.Parts) <= 3 {
		for _, i := range src.items {
			if i.qualifies(q.Parts) {
				return b.itemColumns(i, star.Span, true)
			}
		}
	}
	// r.*: the fields of a row.
	e := b.column(s, q)
	if isBad(e) {
		return nil
	}
	t := e.Type()
	if t.Kind() != row.KindRow {
		b.errorf(star.Span, "E2105", "%s is %s and has no fields for .*", rel.Text(e), t.Text())
		return nil
	}
	var outs []output
	for i := range t.NumFields() {
		f := t.Field(i)
		ft := f.Type.Nullable(f.Type.IsNullable() || t.IsNullable())
		outs = append(outs, output{rel.NewField(ft, e, i, b.place(star.Span)), f.Name})
	}
	return outs
}

func (b *binder) itemColumns(i *item, at ast.Span, all bool) []output {
	var outs []output
	for c, name := range i.names {
		if all || !i.hiddenColumn(c) {
			outs = append(outs, output{rel.NewColumn(i.types[c], i.offset+c, 0, name, b.place(at)), name})
		}
	}
	return outs
}

// checkHints refuses hints that nobody knows.
func (b *binder) checkHints(hints []ast.Hint) {
	for _, h := range hints {
		switch strings.ToUpper(h.Name.Name) {
		case "STATE_TTL":
			for _, o := range h.Options {
				if _, err := row.ParseDuration(o.Value.Value); err != nil {
					b.errorf(o.Span, "E2118", "%q is no length of time", o.Value.Value).WithHint("write '1 d', '12 h', '30 min', '10 s' or '500 ms'")
				}
			}
		case "LOOKUP", "BROADCAST", "SHUFFLE_HASH", "SHUFFLE_MERGE", "NEST_LOOP", "MULTI_JOIN", "STATE_ID":
		case "OPTIONS":
			b.errorf(h.Span, "E2118", "the hint OPTIONS stands behind the name of a table")
		default:
			b.errorf(h.Span, "E2118", "hint %s is not known", h.Name.Name).
				WithHint("%s", nearest(strings.ToUpper(h.Name.Name), []string{"STATE_TTL", "LOOKUP", "STATE_ID", "OPTIONS"}, ""))
		}
	}
}

// ttl is the STATE_TTL hint for one of the tables; nil if there is none.
func (b *binder) ttl(items []*item) *time.Duration {
	for _, h := range b.hints {
		if !strings.EqualFold(h.Name.Name, "STATE_TTL") {
			continue
		}
		for _, o := range h.Options {
			for _, i := range items {
				if i.name == o.Key.Value {
					if d, err := row.ParseDuration(o.Value.Value); err == nil {
						return &d
					}
				}
			}
		}
	}
	return nil
}
