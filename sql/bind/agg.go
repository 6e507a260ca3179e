package bind

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/diag"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
)

// selectState gathers what a SELECT needs between its input and its select list. Expressions are first bound on the input
// row, with placeholders (Columns of negative depth) for aggregates; lift then moves them above the aggregation.
type selectState struct {
	query   *ast.Select
	aliases []string
	items   []*item

	grouped  bool
	badGroup bool // a column of GROUP BY has an error: others are not missed then
	groups   []rel.Expr
	sets     [][]int // nil without GROUPING SETS
	aggs     []aggUse
	window   *windowUse
	props    []rel.WindowProp
	overs    []overUse

	inside                bool   // in the arguments of an aggregate
	refuseAgg, refuseOver string // the clause that has no aggregates, no OVER
}

type aggUse struct {
	call   rel.AggCall // without Args, Filter, OrderBy
	args   []rel.Expr
	filter rel.Expr
	order  []orderExpr
}

type orderExpr struct {
	expr rel.Expr
	item ast.OrderItem
}

type overUse struct {
	aggUse
	partition []rel.Expr
	sort      []orderExpr
	frame     rel.Frame
}

// windowUse is TUMBLE, HOP or SESSION in GROUP BY.
type windowUse struct {
	spec rel.WindowSpec
	time rel.Expr
}

func (st *selectState) aggregated() bool { return st.grouped || len(st.aggs) > 0 }

func (st *selectState) alias(name string) bool { return slices.Contains(st.aliases, name) }

// name gives an aggregate the name of its column.
func (st *selectState) name(c *rel.Column, name string) {
	switch {
	case c.Depth == aggDepth && st.aggs[c.Index].call.Name == "":
		st.aggs[c.Index].call.Name = name
	case c.Depth == overDepth && st.overs[c.Index].call.Name == "":
		st.overs[c.Index].call.Name = name
	}
}

// groupBy binds GROUP BY.
func (b *binder) groupBy(s *scope, q *ast.Select) {
	st := s.sel
	if q.GroupBy == nil {
		return
	}
	st.grouped = true
	all := [][]int{{}}
	hasSets := false
	for _, g := range q.GroupBy {
		sets, multi := b.groupItem(s, g)
		hasSets = hasSets || multi
		if len(all)*len(sets) > maxSets {
			b.errorf(g.Range(), "E2119", "GROUP BY has more than %d grouping sets", maxSets)
			st.badGroup = true
			return
		}
		var next [][]int
		for _, a := range all {
			for _, x := range sets {
				set := slices.Clone(a)
				for _, i := range x {
					if !slices.Contains(set, i) {
						set = append(set, i)
					}
				}
				next = append(next, set)
			}
		}
		all = next
	}
	if !hasSets {
		return
	}
	if q.GroupDistinct {
		seen := map[string]bool{}
		all = slices.DeleteFunc(all, func(set []int) bool {
			set = slices.Clone(set)
			slices.Sort(set)
			key := fmt.Sprint(set)
			again := seen[key]
			seen[key] = true
			return again
		})
	}
	st.sets = all
}

// maxSets is the most grouping sets of a GROUP BY: CUBE of 10 columns has 1024.
const maxSets = 4096

// groupItem gives the grouping sets of one item of GROUP BY; multi says that it was written as such.
func (b *binder) groupItem(s *scope, e ast.Expr) (sets [][]int, multi bool) {
	switch e := e.(type) {
	case *ast.GroupingSets:
		switch e.Kind {
		case ast.Sets:
			for _, i := range e.Items {
				inner, _ := b.groupItem(s, i)
				sets = append(sets, inner...)
			}
			return sets, true
		case ast.Rollup:
			var parts [][]int
			for _, i := range e.Items {
				parts = append(parts, b.groupColumns(s, i))
			}
			for n := len(parts); n >= 0; n-- {
				sets = append(sets, slices.Concat(parts[:n]...))
			}
			return sets, true
		}
		if len(e.Items) > 12 {
			b.errorf(e.Span, "E2119", "CUBE has at most 12 columns")
			return [][]int{{}}, true
		}
		var parts [][]int
		for _, i := range e.Items {
			parts = append(parts, b.groupColumns(s, i))
		}
		for mask := 1<<len(parts) - 1; mask >= 0; mask-- {
			set := []int{}
			for i, p := range parts {
				if mask>>(len(parts)-1-i)&1 != 0 {
					set = append(set, p...)
				}
			}
			sets = append(sets, set)
		}
		return sets, true
	case *ast.Row:
		if len(e.Items) == 0 {
			return [][]int{{}}, false
		}
	}
	return [][]int{b.groupColumns(s, e)}, false
}

// groupColumns binds a column of GROUP BY, or a list of them in parentheses, as indexes into groups.
func (b *binder) groupColumns(s *scope, e ast.Expr) []int {
	if r, ok := e.(*ast.Row); ok && !r.Explicit {
		set := []int{}
		for _, i := range r.Items {
			set = append(set, b.groupColumns(s, i)...)
		}
		return set
	}
	if c, ok := e.(*ast.Call); ok && b.groupWindow(s, c) {
		return []int{}
	}
	st := s.sel
	x := b.noNull(b.expr(s, e))
	if isBad(x) {
		st.badGroup = true
		return []int{}
	}
	i := indexOf(st.groups, x)
	if i < 0 {
		i = len(st.groups)
		st.groups = append(st.groups, x)
	}
	return []int{i}
}

// legacyWindow tells the kind of a window in GROUP BY from the name of its function or of one of its properties.
func legacyWindow(name string) (kind rel.WindowKind, prop string, ok bool) {
	base, prop, _ := strings.Cut(name, "_")
	switch base {
	case "TUMBLE":
		kind = rel.Tumble
	case "HOP":
		kind = rel.Hop
	case "SESSION":
		kind = rel.Session
	default:
		return 0, "", false
	}
	switch prop {
	case "", "START", "END", "ROWTIME", "PROCTIME":
		return kind, prop, true
	}
	return 0, "", false
}

// groupWindow binds TUMBLE(ts, size), HOP(ts, slide, size) or SESSION(ts, gap) in GROUP BY; false if it is something else.
func (b *binder) groupWindow(s *scope, c *ast.Call) bool {
	if len(c.Name.Parts) != 1 {
		return false
	}
	kind, prop, ok := legacyWindow(strings.ToUpper(c.Name.Parts[0].Name))
	if !ok || prop != "" {
		return false
	}
	w := b.legacySpec(s, kind, c)
	if w == nil {
		return true
	}
	st := s.sel
	if st.window != nil {
		b.errorf(c.Span, "E2120", "GROUP BY has one window only")
		return true
	}
	st.window = w
	return true
}

// legacySpec binds the arguments of a window in GROUP BY or of one of its properties; nil after an error.
func (b *binder) legacySpec(s *scope, kind rel.WindowKind, c *ast.Call) *windowUse {
	want := map[rel.WindowKind]string{rel.Tumble: "TUMBLE(time, size)", rel.Hop: "HOP(time, slide, size)", rel.Session: "SESSION(time, gap)"}[kind]
	n := 2
	if kind == rel.Hop {
		n = 3
	}
	if len(c.Args) != n {
		b.errorf(c.Span, "E2107", "%s has %d arguments: write %s", strings.ToUpper(c.Name.Parts[0].Name), len(c.Args), want)
		return nil
	}
	t := b.expr(s, c.Args[0])
	if isBad(t) {
		return nil
	}
	if _, ok := t.(*rel.Column); !ok || t.Type().Mark() == row.NoMark {
		b.errorf(c.Args[0].Range(), "E2121", "%s is %s and no time attribute: a window wants one", rel.Text(t), t.Type().Text()).
			WithNote("a time attribute is a column with a WATERMARK, or AS PROCTIME(), that no expression has changed")
		return nil
	}
	w := &windowUse{time: t}
	w.spec.Kind = kind
	w.spec.Proc = t.Type().Mark() == row.Proctime
	ok := true
	last := func(i int) int64 {
		v, good := b.windowLength(s, c.Args[i], "size")
		ok = ok && good
		return v
	}
	if kind == rel.Hop {
		w.spec.Slide, w.spec.Size = last(1), last(2)
	} else {
		w.spec.Size = last(1)
	}
	if !ok {
		return nil
	}
	return w
}

// windowLength binds a length of time of a window: a constant interval of days to seconds, ms.
func (b *binder) windowLength(s *scope, e ast.Expr, what string) (int64, bool) {
	x := b.expr(s, e)
	if isBad(x) {
		return 0, false
	}
	l, ok := b.constant(x).(*rel.Literal)
	if !ok || l.Null || l.Type().Kind() != row.KindIntervalDay {
		if x.Type().Kind() == row.KindIntervalMonth {
			b.errorf(e.Range(), "E2122", "the %s of a window is given in days, hours, minutes or seconds: months differ in length", what)
		} else {
			b.errorf(e.Range(), "E2122", "the %s of a window is a constant interval, such as INTERVAL '10' SECOND", what)
		}
		return 0, false
	}
	v := int64(l.X)
	if v <= 0 && what != "offset" {
		b.errorf(e.Range(), "E2122", "the %s of a window is greater than zero", what)
		return 0, false
	}
	return v, true
}

// constant folds what an interval may be written as: -x, and n * x.
func (b *binder) constant(e rel.Expr) rel.Expr {
	c, ok := e.(*rel.Call)
	if !ok {
		return e
	}
	args := make([]*rel.Literal, len(c.Args))
	for i, a := range c.Args {
		l, ok := b.constant(a).(*rel.Literal)
		if !ok || l.Null {
			return e
		}
		args[i] = l
	}
	fold := func(v int64) rel.Expr { return rel.NewLiteral(c.Type(), fn.Const{X: uint64(v)}, "", c.Where()) }
	whole := func(i int) bool {
		return args[i].Type().Kind().Integer() || args[i].Type().Kind() == row.KindIntervalDay
	}
	switch {
	case c.Func.Name == "NEGATE" && len(args) == 1 && whole(0):
		return fold(-int64(args[0].X))
	case len(args) == 2 && whole(0) && whole(1) && c.Func.Name == "*":
		return fold(int64(args[0].X) * int64(args[1].X))
	case len(args) == 2 && whole(0) && whole(1) && c.Func.Name == "+":
		return fold(int64(args[0].X) + int64(args[1].X))
	}
	return e
}

// windowProperty binds TUMBLE_START(..) and its like.
func (b *binder) windowProperty(s *scope, name string, c *ast.Call) (rel.Expr, bool) {
	kind, prop, ok := legacyWindow(name)
	if !ok || prop == "" {
		return nil, false
	}
	at := c.Span
	if s.sel == nil || s.sel.refuseAgg != "" || s.sel.inside {
		b.errorf(at, "E2120", "%s stands in the select list or in HAVING of a GROUP BY %s(..)", name, kind)
		return b.bad(at), true
	}
	st := s.sel
	if st.window == nil {
		b.exprs(s, c.Args)
		b.errorf(at, "E2120", "%s needs GROUP BY %s(..)", name, kind)
		return b.bad(at), true
	}
	w := b.legacySpec(s, kind, c)
	if w == nil {
		return b.bad(at), true
	}
	if w.spec.Kind != st.window.spec.Kind || w.spec.Size != st.window.spec.Size || w.spec.Slide != st.window.spec.Slide ||
		!rel.Equal(w.time, st.window.time) {
		b.errorf(at, "E2120", "the arguments of %s are not those of the window in GROUP BY", name)
		return b.bad(at), true
	}
	t := w.time.Type()
	var p rel.WindowProp
	var pt *row.Type
	switch prop {
	case "START":
		p, pt = rel.WindowStart, row.Timestamp(3).NotNull()
	case "END":
		p, pt = rel.WindowEnd, row.Timestamp(3).NotNull()
	case "ROWTIME":
		if t.Mark() != row.Rowtime {
			b.errorf(at, "E2120", "%s: the window is over processing time", name)
			return b.bad(at), true
		}
		p, pt = rel.WindowTime, t
	default:
		p, pt = rel.WindowProcTime, row.TimestampLTZ(3).NotNull().WithMark(row.Proctime)
	}
	i := slices.Index(st.props, p)
	if i < 0 {
		i = len(st.props)
		st.props = append(st.props, p)
	}
	return rel.NewColumn(pt, i, propDepth, strings.ToLower(name), b.place(at)), true
}

// aggregate binds a call of an aggregate or of a window function such as ROW_NUMBER.
func (b *binder) aggregate(s *scope, f *fn.Func, e *ast.Call) rel.Expr {
	at := e.Span
	if e.Over != nil {
		return b.overCall(s, f, e)
	}
	if f.Agg != nil && f.Agg.OverOnly || f.Kind == fn.WindowFn {
		b.errorf(at, "E2123", "%s needs OVER (PARTITION BY .. ORDER BY ..)", f.Name)
		return b.bad(at)
	}
	use, ok := b.aggUse(s, f, e)
	if !ok {
		return b.bad(at)
	}
	return b.addAgg(s, use)
}

// aggregateOf is aggregate for a call with a syntax of its own.
func (b *binder) aggregateOf(s *scope, f *fn.Func, at ast.Span, args []rel.Expr, filter ast.Expr) rel.Expr {
	if !b.mayAggregate(s, f, at) || anyBad(args...) {
		return b.bad(at)
	}
	use := aggUse{}
	cast, t, ok := b.resolve(f, at, args)
	if !ok {
		return b.bad(at)
	}
	use.args = cast
	use.call = rel.AggCall{Func: f, Type: t, At: b.place(at)}
	if filter != nil {
		s.sel.inside = true
		use.filter = b.cond(s, filter, "FILTER")
		s.sel.inside = false
		if isBad(use.filter) {
			return use.filter
		}
	}
	return b.addAgg(s, use)
}

// mayAggregate refuses aggregates where they have no place.
func (b *binder) mayAggregate(s *scope, f *fn.Func, at ast.Span) bool {
	switch {
	case s.sel == nil:
		clause := s.clause
		if clause == "" {
			clause = "this expression"
		}
		b.errorf(at, "E2114", "%s is an aggregate, which %s cannot have", f.Name, clause)
	case s.sel.inside:
		b.errorf(at, "E2114", "%s stands in an aggregate: aggregates cannot be nested", f.Name).WithHint("aggregate in a query in FROM (..) first")
	case s.sel.refuseAgg != "":
		e := b.errorf(at, "E2114", "%s is an aggregate, which %s cannot have", f.Name, s.sel.refuseAgg)
		if s.sel.refuseAgg == "WHERE" {
			e.WithHint("conditions on aggregates stand in HAVING")
		}
	default:
		return true
	}
	return false
}

// aggUse binds arguments, FILTER and order of an aggregate.
func (b *binder) aggUse(s *scope, f *fn.Func, e *ast.Call) (aggUse, bool) {
	var use aggUse
	at := e.Span
	if !b.mayAggregate(s, f, at) {
		return use, false
	}
	s.sel.inside = true
	defer func() { s.sel.inside = false }()
	var args []rel.Expr
	switch {
	case e.Star && f.Name != "COUNT":
		b.errorf(at, "E2107", "only COUNT takes *")
		return use, false
	case !e.Star:
		args = b.exprs(s, e.Args)
	}
	ok := !anyBad(args...)
	order := e.WithinGroup
	if len(order) == 0 {
		order = e.OrderBy
	}
	for _, o := range order {
		x := b.expr(s, o.Expr)
		ok = ok && !isBad(x)
		use.order = append(use.order, orderExpr{x, o})
	}
	if e.Filter != nil {
		use.filter = b.cond(s, e.Filter, "FILTER")
		ok = ok && !isBad(use.filter)
	}
	if !ok {
		return use, false
	}
	cast, t, ok := b.resolve(f, at, args)
	if !ok {
		return use, false
	}
	if (f.Name == "MIN" || f.Name == "MAX") && len(args) == 1 {
		if c, isColumn := args[0].(*rel.Column); isColumn && c.Type().Mark() != row.NoMark && t.Plain() == c.Type().Plain() {
			t = t.WithMark(c.Type().Mark())
		}
	}
	use.args = cast
	use.call = rel.AggCall{Func: f, Distinct: e.Distinct, IgnoreNulls: e.Nulls == ast.IgnoreNulls, Type: t, At: b.place(at)}
	return use, true
}

// addAgg gives the placeholder for an aggregate; equal ones are computed once.
func (b *binder) addAgg(s *scope, use aggUse) rel.Expr {
	st := s.sel
	i := slices.IndexFunc(st.aggs, func(o aggUse) bool { return sameAgg(&o, &use) })
	if i < 0 {
		i = len(st.aggs)
		st.aggs = append(st.aggs, use)
	}
	return rel.NewColumn(use.call.Type, i, aggDepth, use.call.Func.Name, use.call.At)
}

func sameAgg(a, b *aggUse) bool {
	return a.call.Func == b.call.Func && a.call.Distinct == b.call.Distinct && a.call.IgnoreNulls == b.call.IgnoreNulls &&
		slices.EqualFunc(a.args, b.args, rel.Equal) && rel.Equal(a.filter, b.filter) && slices.EqualFunc(a.order, b.order, sameOrder) &&
		a.call.Func.Purity == fn.Pure
}

func sameOrder(a, b orderExpr) bool {
	return rel.Equal(a.expr, b.expr) && sortKey(0, a.item) == sortKey(0, b.item)
}

// columns gathers the columns of a Project.
type columns struct {
	exprs []rel.Expr
	names []string
}

// add gives the place of an expression, which is computed once.
func (c *columns) add(e rel.Expr) int {
	if i := indexOf(c.exprs, e); i >= 0 {
		return i
	}
	name := ""
	switch e := e.(type) {
	case *rel.Column:
		name = e.Name
	case *rel.Field:
		name = rel.Text(e)
	}
	if name == "" {
		name = "$f" + itoa(len(c.exprs))
	}
	c.exprs = append(c.exprs, e)
	c.names = append(c.names, name)
	return len(c.exprs) - 1
}

func (c *columns) column(e rel.Expr) rel.Expr {
	i := c.add(e)
	return rel.NewColumn(e.Type(), i, 0, c.names[i], e.Where())
}

// call turns an aggregate's expressions into columns.
func (c *columns) call(u *aggUse) rel.AggCall {
	call := u.call
	for _, a := range u.args {
		// MIN and MAX read a column, so that they can order the values of a group.
		if _, ok := a.(*rel.Literal); ok && (call.Func.Agg == nil || call.Func.Agg.Store != fn.Ordered) {
			call.Args = append(call.Args, a)
			continue
		}
		call.Args = append(call.Args, c.column(a))
	}
	if u.filter != nil && !rel.IsTrue(u.filter) {
		call.Filter = c.column(u.filter)
	}
	for _, o := range u.order {
		call.OrderBy = append(call.OrderBy, sortKey(c.add(o.expr), o.item))
	}
	return call
}

// buildAggregate puts the aggregation on a node. What it returns moves expressions of the input row above it.
func (b *binder) buildAggregate(st *selectState, n rel.Node) (rel.Node, func(rel.Expr) rel.Expr) {
	at := b.place(st.query.Span)
	var in columns
	agg := &rel.Aggregate{Sets: st.sets}
	var names []string
	var types []*row.Type
	for i, g := range st.groups {
		k := in.add(g)
		agg.Groups = append(agg.Groups, k)
		t := g.Type()
		if st.sets != nil && slices.ContainsFunc(st.sets, func(s []int) bool { return !slices.Contains(s, i) }) {
			t = t.Nullable(true)
		}
		names = append(names, in.names[k])
		types = append(types, t)
	}
	for i := range st.aggs {
		call := in.call(&st.aggs[i])
		if call.Name == "" {
			call.Name = "$agg" + itoa(i)
		}
		agg.Aggs = append(agg.Aggs, call)
		names = append(names, call.Name)
		types = append(types, call.Type)
	}
	if st.window != nil {
		w := &rel.GroupWindow{WindowSpec: st.window.spec}
		w.Time = in.add(st.window.time)
		agg.Window = w
		agg.Props = st.props
		for _, p := range st.props {
			names = append(names, p.String())
			t := row.Timestamp(3).NotNull()
			switch p {
			case rel.WindowTime:
				t = st.window.time.Type()
			case rel.WindowProcTime:
				t = row.TimestampLTZ(3).NotNull().WithMark(row.Proctime)
			}
			types = append(types, t)
		}
	}
	agg.Input = project(n, in.exprs, in.names, at)
	agg.Base = rel.MakeBase(names, types, at)
	agg.TTL = b.ttl(st.items)

	group := func(e rel.Expr, depth int) rel.Expr {
		i := indexOf(st.groups, e)
		if i < 0 {
			return nil
		}
		return rel.NewColumn(types[i], i, depth, names[i], e.Where())
	}
	told := map[string]bool{}
	missing := func(c *rel.Column) rel.Expr {
		if !told[c.Name] && !st.badGroup {
			told[c.Name] = true
			b.missingGroup(c, st)
		}
		return b.bad(c.Where().Span)
	}
	var lift func(e rel.Expr) rel.Expr
	lift = func(e rel.Expr) rel.Expr {
		return rel.MapDown(e, func(e rel.Expr) (rel.Expr, bool) {
			if g := group(e, 0); g != nil {
				return g, true
			}
			switch e := e.(type) {
			case *rel.Column:
				switch e.Depth {
				case aggDepth:
					i := len(st.groups) + e.Index
					return rel.NewColumn(types[i], i, 0, names[i], e.Where()), true
				case propDepth:
					i := len(st.groups) + len(st.aggs) + e.Index
					return rel.NewColumn(types[i], i, 0, names[i], e.Where()), true
				case 0:
					return missing(e), true
				}
			case *rel.Subquery:
				s := *e
				s.X = make([]rel.Expr, len(e.X))
				for i, x := range e.X {
					s.X[i] = lift(x)
				}
				s.Node = rel.MapOuter(e.Node, func(c *rel.Column, up, inside int) rel.Expr {
					if up != 0 {
						return c
					}
					own := *c
					own.Depth = 0
					if g := group(&own, inside); g != nil {
						return g
					}
					return missing(c)
				})
				return &s, true
			}
			return e, false
		})
	}
	return agg, lift
}

func (b *binder) missingGroup(c *rel.Column, st *selectState) {
	at := c.Where()
	e := b.tell(diag.New(at.Source, at.Span, "E2124", "column %q stands neither in GROUP BY nor in an aggregate", c.Name))
	if len(st.groups) > 0 {
		e.WithHint("GROUP BY has: %s", rel.Texts(st.groups))
	} else {
		e.WithHint("there is no GROUP BY, so there is one row for all")
	}
}

// overCall binds f(..) OVER (..).
func (b *binder) overCall(s *scope, f *fn.Func, e *ast.Call) rel.Expr {
	at := e.Span
	st := s.sel
	switch {
	case st == nil || st.inside:
		b.errorf(at, "E2123", "OVER has no place here")
		return b.bad(at)
	case st.refuseOver != "":
		b.errorf(at, "E2123", "OVER has no place in %s", st.refuseOver).WithHint("filter in a query around this one, or in QUALIFY")
		return b.bad(at)
	}
	spec := b.overSpec(st, e.Over)
	if spec == nil {
		return b.bad(at)
	}
	// Aggregates of the GROUP BY may stand in OVER: SUM(COUNT(*)) OVER (..).
	var use overUse
	var args []rel.Expr
	if !e.Star {
		args = b.exprs(s, e.Args)
	} else if f.Name != "COUNT" {
		b.errorf(at, "E2107", "only COUNT takes *")
		return b.bad(at)
	}
	ok := !anyBad(args...)
	if e.Filter != nil {
		use.filter = b.cond(s, e.Filter, "FILTER")
		ok = ok && !isBad(use.filter)
	}
	for _, p := range spec.PartitionBy {
		x := b.noNull(b.expr(s, p))
		ok = ok && !isBad(x)
		use.partition = append(use.partition, x)
	}
	for _, o := range spec.OrderBy {
		x := b.noNull(b.expr(s, o.Expr))
		ok = ok && !isBad(x)
		use.sort = append(use.sort, orderExpr{x, o})
	}
	if len(e.WithinGroup)+len(e.OrderBy) > 0 {
		b.errorf(at, "E2123", "an ordered aggregate cannot have OVER")
		ok = false
	}
	frame, frameOK := b.frame(s, f, spec)
	if !ok || !frameOK {
		return b.bad(at)
	}
	use.frame = frame
	cast, t, ok := b.resolve(f, at, args)
	if !ok {
		return b.bad(at)
	}
	use.args = cast
	use.call = rel.AggCall{Func: f, Distinct: e.Distinct, IgnoreNulls: e.Nulls == ast.IgnoreNulls, Type: t.WithMark(row.NoMark), At: b.place(at)}
	i := slices.IndexFunc(st.overs, func(o overUse) bool {
		return sameAgg(&o.aggUse, &use.aggUse) && sameWindow(&o, &use)
	})
	if i < 0 {
		i = len(st.overs)
		st.overs = append(st.overs, use)
	}
	return rel.NewColumn(use.call.Type, i, overDepth, f.Name, b.place(at))
}

func sameWindow(a, b *overUse) bool {
	return a.frame == b.frame && slices.EqualFunc(a.partition, b.partition, rel.Equal) && slices.EqualFunc(a.sort, b.sort, sameOrder)
}

// overSpec finds the window that OVER means, with what named windows it stands on; nil after an error.
func (b *binder) overSpec(st *selectState, o *ast.Over) *ast.Window {
	var find func(name *ast.Ident, steps int) *ast.Window
	merge := func(w *ast.Window, steps int) *ast.Window {
		if w.Base == nil {
			return w
		}
		base := find(w.Base, steps+1)
		if base == nil {
			return nil
		}
		m := *w
		m.Base = nil
		if len(m.PartitionBy) > 0 || len(base.OrderBy) > 0 && len(m.OrderBy) > 0 {
			b.errorf(w.Span, "E2123", "window %q has that clause already", w.Base.Name)
			return nil
		}
		m.PartitionBy = base.PartitionBy
		if len(m.OrderBy) == 0 {
			m.OrderBy = base.OrderBy
		}
		if m.Frame == nil {
			m.Frame = base.Frame
		}
		return &m
	}
	find = func(name *ast.Ident, steps int) *ast.Window {
		if steps <= len(st.query.Windows) {
			for i := range st.query.Windows {
				if d := &st.query.Windows[i]; d.Name.Name == name.Name {
					return merge(&d.Spec, steps)
				}
			}
		}
		var known []string
		for _, d := range st.query.Windows {
			known = append(known, d.Name.Name)
		}
		b.errorf(name.Span, "E2123", "window %q not found", name.Name).WithHint("%s", nearest(name.Name, known, "WINDOW has"))
		return nil
	}
	if o.Name != nil {
		return find(o.Name, 0)
	}
	return merge(o.Spec, 0)
}

// frame finds the frame of an OVER window.
func (b *binder) frame(s *scope, f *fn.Func, w *ast.Window) (rel.Frame, bool) {
	// The numbering functions and LAG look at rows, whatever the frame.
	if f.Kind == fn.WindowFn || f.Agg != nil && f.Agg.OverOnly {
		if w.Frame != nil {
			b.errorf(w.Frame.Span, "E2123", "%s takes no ROWS or RANGE", f.Name)
			return rel.Frame{}, false
		}
		return rel.Frame{Rows: true, From: -1}, true
	}
	if w.Frame == nil {
		return rel.Frame{From: -1}, true
	}
	fr := rel.Frame{Rows: w.Frame.Rows, From: -1}
	if k := w.Frame.End.Kind; k != ast.CurrentRow {
		b.errorf(w.Frame.End.Span, "E2123", "a frame ends with CURRENT ROW: rows that follow are not known in a stream")
		return fr, false
	}
	start := w.Frame.Start
	switch start.Kind {
	case ast.UnboundedPreceding:
		return fr, true
	case ast.CurrentRow:
		fr.From = 0
		return fr, true
	case ast.Preceding:
	default:
		b.errorf(start.Span, "E2123", "a frame begins before CURRENT ROW: rows that follow are not known in a stream")
		return fr, false
	}
	x := b.expr(s, start.Offset)
	if isBad(x) {
		return fr, false
	}
	l, ok := b.constant(x).(*rel.Literal)
	want := "a constant interval of days to seconds"
	if fr.Rows {
		want = "a constant number of rows"
		ok = ok && l.Type().Kind().Integer()
	} else {
		ok = ok && l.Type().Kind() == row.KindIntervalDay
	}
	if !ok || l.Null || int64(l.X) < 0 {
		b.errorf(start.Span, "E2123", "PRECEDING wants %s", want)
		return fr, false
	}
	fr.From = int64(l.X)
	return fr, true
}

// buildOver puts the OVER aggregates on a node, those of one window in one step. columns tells where each of them lies.
func (b *binder) buildOver(st *selectState, n rel.Node, lift func(rel.Expr) rel.Expr) (rel.Node, []int) {
	width := n.Schema().Len()
	in := columns{exprs: columnsOf(n), names: slices.Clone(n.Schema().Names)}
	type group struct {
		first *overUse
		over  *rel.Over
		uses  []int
	}
	var groups []*group
	for i := range st.overs {
		u := &st.overs[i]
		for k := range u.args {
			u.args[k] = lift(u.args[k])
		}
		if u.filter != nil {
			u.filter = lift(u.filter)
		}
		for k := range u.partition {
			u.partition[k] = lift(u.partition[k])
		}
		for k := range u.sort {
			u.sort[k].expr = lift(u.sort[k].expr)
		}
		call := in.call(&u.aggUse)
		if call.Name == "" {
			call.Name = "$over" + itoa(i)
		}
		k := slices.IndexFunc(groups, func(g *group) bool { return sameWindow(g.first, u) })
		if k < 0 {
			k = len(groups)
			o := &rel.Over{Frame: u.frame}
			for _, p := range u.partition {
				if c := in.add(p); !slices.Contains(o.Partition, c) {
					o.Partition = append(o.Partition, c)
				}
			}
			for _, s := range u.sort {
				o.Order = append(o.Order, sortKey(in.add(s.expr), s.item))
			}
			groups = append(groups, &group{u, o, nil})
		}
		g := groups[k]
		g.over.Calls = append(g.over.Calls, call)
		g.uses = append(g.uses, i)
	}
	if len(in.exprs) > width {
		n = project(n, in.exprs, in.names, b.place(st.query.Span))
	}
	where := make([]int, len(st.overs))
	for _, g := range groups {
		s := n.Schema()
		names, types := slices.Clone(s.Names), slices.Clone(s.Types)
		for k, c := range g.over.Calls {
			where[g.uses[k]] = len(names)
			names = append(names, c.Name)
			types = append(types, c.Type)
		}
		g.over.Base = rel.MakeBase(names, types, g.over.Calls[0].At)
		g.over.Input = n
		n = g.over
	}
	return n, where
}
