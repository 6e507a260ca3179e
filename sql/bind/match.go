package bind

import (
	"slices"
	"strings"

	"github.com/millrace-stream/millrace/internal/near"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
)

// matchState is what expressions of DEFINE and MEASURES see: the columns of the input, by pattern variables.
type matchState struct {
	names     []string
	types     []*row.Type
	variables []string // of the pattern and of SUBSET
	inside    bool     // in the arguments of an aggregate: columns of one row
	variable  *string  // of those columns; nil = none seen yet
	measures  bool
	time      *row.Type // of the first sort key
}

// match binds MATCH_RECOGNIZE.
func (b *binder) match(m *ast.Match, outer *scope) source {
	in := b.from(m.Input, outer, nil)
	if in.node == nil {
		return b.aliased(nil, m.Alias, "")
	}
	s := in.node.Schema()
	n := &rel.Match{Input: in.node, Pattern: m.Pattern, Subsets: map[string][]string{}, Defines: map[string]rel.Expr{}}
	sc := &scope{parent: outer, items: in.items, merged: in.merged, clause: "MATCH_RECOGNIZE"}
	ok := true
	column := func(e ast.Expr, what string) int {
		x := b.expr(sc, e)
		if isBad(x) {
			ok = false
			return -1
		}
		c, isColumn := x.(*rel.Column)
		if !isColumn || c.Depth != 0 {
			b.errorf(e.Range(), "E2128", "%s of MATCH_RECOGNIZE takes columns", what)
			ok = false
			return -1
		}
		return c.Index
	}
	for _, p := range m.PartitionBy {
		n.Partition = append(n.Partition, column(p, "PARTITION BY"))
	}
	for _, o := range m.OrderBy {
		n.Order = append(n.Order, sortKey(column(o.Expr, "ORDER BY"), o))
	}
	st := &matchState{names: s.Names, types: s.Types}
	switch {
	case len(n.Order) == 0:
		b.errorf(m.Span, "E2128", "MATCH_RECOGNIZE needs ORDER BY a time attribute")
		ok = false
	case n.Order[0].Column >= 0:
		st.time = s.Types[n.Order[0].Column]
		if st.time.Mark() == row.NoMark {
			b.errorf(m.OrderBy[0].Span, "E2128", "the first column of ORDER BY in MATCH_RECOGNIZE is a time attribute, which %q is not", s.Names[n.Order[0].Column])
			ok = false
		} else if n.Order[0].Desc {
			b.errorf(m.OrderBy[0].Span, "E2128", "MATCH_RECOGNIZE goes through time in ascending order only")
			ok = false
		}
	}
	if m.Rows == ast.AllRows {
		b.errorf(m.Span, "E2128", "ALL ROWS PER MATCH is not supported").WithHint("write ONE ROW PER MATCH")
		ok = false
	}
	b.patternVariables(m.Pattern, &n.Variables)
	ok = b.checkPattern(m.Pattern) && ok
	if greedyEnd(m.Pattern) {
		b.errorf(m.Pattern.Range(), "E2128", "a pattern cannot end with a greedy quantifier: it would wait for ever").
			WithHint("make it reluctant, as in %s?, or put a variable behind it", rel.PatternText(lastPart(m.Pattern)))
		ok = false
	}
	st.variables = slices.Clone(n.Variables)
	known := func(id ast.Ident) bool {
		if slices.Contains(st.variables, id.Name) {
			return true
		}
		b.errorf(id.Span, "E2128", "%q is no variable of the pattern", id.Name).WithHint("%s", nearest(id.Name, st.variables, "variables are"))
		ok = false
		return false
	}
	for _, u := range m.Subsets {
		var of []string
		for _, v := range u.Variables {
			if known(v) {
				of = append(of, v.Name)
			}
		}
		n.Subsets[u.Name.Name] = of
		st.variables = append(st.variables, u.Name.Name)
	}
	n.Skip = m.Skip.Kind
	switch n.Skip {
	case ast.SkipDefault:
		// As in Flink, the search goes on with the next row only if that is written.
		n.Skip = ast.SkipToNextRow
	case ast.SkipToVariable:
		n.Skip = ast.SkipToLast
	}
	if m.Skip.Variable != nil && known(*m.Skip.Variable) {
		n.SkipTo = m.Skip.Variable.Name
	}
	if m.Within != nil {
		v, good := b.windowLength(&scope{clause: "WITHIN"}, m.Within, "length of WITHIN")
		n.Within, ok = v, ok && good
	}
	inner := &scope{match: st, clause: "DEFINE"}
	for _, d := range m.Defines {
		if !slices.Contains(n.Variables, d.Name.Name) {
			known(d.Name)
			continue
		}
		if n.Defines[d.Name.Name] != nil {
			b.errorf(d.Name.Span, "E2128", "variable %q is defined twice", d.Name.Name)
			ok = false
			continue
		}
		c := b.cond(inner, d.Cond, "DEFINE")
		if isBad(c) {
			ok = false
			continue
		}
		n.Defines[d.Name.Name] = c
	}
	var names []string
	var types []*row.Type
	for _, p := range n.Partition {
		if p >= 0 {
			names = append(names, s.Names[p])
			types = append(types, s.Types[p])
		}
	}
	st.measures = true
	inner.clause = "MEASURES"
	for _, me := range m.Measures {
		x := b.noNull(b.expr(inner, me.Expr))
		if isBad(x) {
			ok = false
			continue
		}
		n.Measures = append(n.Measures, x)
		names = append(names, me.Name.Name)
		types = append(types, x.Type())
	}
	if !ok {
		return b.aliased(nil, m.Alias, "")
	}
	n.Base = rel.MakeBase(names, types, b.place(m.Span))
	return b.aliased(n, m.Alias, "")
}

// patternVariables lists the variables of a pattern in the order of appearance.
func (b *binder) patternVariables(p ast.Pattern, out *[]string) {
	switch p := p.(type) {
	case *ast.PatternVar:
		if !slices.Contains(*out, p.Name.Name) {
			*out = append(*out, p.Name.Name)
		}
	case *ast.PatternSeq:
		for _, q := range p.Parts {
			b.patternVariables(q, out)
		}
	case *ast.PatternAlt:
		for _, q := range p.Parts {
			b.patternVariables(q, out)
		}
	case *ast.PatternPermute:
		for _, q := range p.Parts {
			b.patternVariables(q, out)
		}
	case *ast.PatternQuant:
		b.patternVariables(p.Part, out)
	case *ast.PatternExclude:
		b.patternVariables(p.Part, out)
	}
}

// checkPattern refuses what Flink refuses: branches, groups with a quantifier, exclusion, PERMUTE, anchors.
func (b *binder) checkPattern(p ast.Pattern) bool {
	no := func(what string) bool {
		b.errorf(p.Range(), "E2128", "%s in a pattern is not supported", what)
		return false
	}
	switch p := p.(type) {
	case *ast.PatternSeq:
		seen := map[string]bool{}
		for _, q := range p.Parts {
			if !b.checkPattern(q) {
				return false
			}
			var of []string
			b.patternVariables(q, &of)
			for _, v := range of {
				if seen[v] {
					b.errorf(q.Range(), "E2128", "variable %q stands in the pattern twice", v)
					return false
				}
				seen[v] = true
			}
		}
	case *ast.PatternAlt:
		return no("an alternative (|)")
	case *ast.PatternQuant:
		if _, ok := p.Part.(*ast.PatternVar); !ok {
			return no("a group with a quantifier")
		}
		if p.Max == 0 || p.Max > 0 && p.Max < p.Min {
			b.errorf(p.Span, "E2128", "the quantifier %s means nothing", rel.PatternText(p))
			return false
		}
		if p.Reluctant && p.Min == 0 && p.Max == 1 {
			return no("a reluctant optional variable (??)")
		}
	case *ast.PatternAnchor:
		return no("^ and $")
	case *ast.PatternExclude:
		return no("{- .. -}")
	case *ast.PatternPermute:
		return no("PERMUTE")
	case *ast.PatternEmpty:
		return no("the empty pattern")
	}
	return true
}

func lastPart(p ast.Pattern) ast.Pattern {
	if s, ok := p.(*ast.PatternSeq); ok {
		return lastPart(s.Parts[len(s.Parts)-1])
	}
	return p
}

func greedyEnd(p ast.Pattern) bool {
	q, ok := lastPart(p).(*ast.PatternQuant)
	return ok && !q.Reluctant && (q.Max < 0 || q.Max != q.Min)
}

// lookupMatch finds variable.column, or a column alone, in MATCH_RECOGNIZE.
func (b *binder) lookupMatch(s *scope, n ast.Name) found {
	st := s.match
	at := n.Span
	variable := ""
	column := n.Parts[0]
	taken := 1
	if len(n.Parts) > 1 && slices.Contains(st.variables, n.Parts[0].Name) {
		variable, column, taken = n.Parts[0].Name, n.Parts[1], 2
	}
	i := slices.Index(st.names, column.Name)
	if i < 0 {
		if len(n.Parts) > 1 && variable == "" {
			if v, ok := near.Word(n.Parts[0].Name, st.variables); ok {
				b.errorf(n.Parts[0].Span, "E2128", "%q is no variable of the pattern", n.Parts[0].Name).WithHint("did you mean %q?", v)
				return found{b.bad(at), len(n.Parts)}
			}
		}
		b.errorf(column.Span, "E2103", "column %q not found", column.Name).WithHint("%s", nearest(column.Name, st.names, "the table has"))
		return found{b.bad(at), len(n.Parts)}
	}
	if st.inside {
		if st.variable == nil {
			st.variable = &variable
		} else if *st.variable != variable {
			b.errorf(at, "E2128", "an aggregate of MATCH_RECOGNIZE is over one variable, not %q and %q", *st.variable, variable)
			return found{b.bad(at), len(n.Parts)}
		}
		return found{rel.NewColumn(st.types[i], i, 0, column.Name, b.place(at)), taken}
	}
	r := rel.NewPatternRef(st.types[i].Nullable(true), variable, i, rel.NavLast, 0, b.place(at))
	r.Name = column.Name
	return found{r, taken}
}

var navs = map[string]rel.Nav{"FIRST": rel.NavFirst, "LAST": rel.NavLast, "PREV": rel.NavPrev, "NEXT": rel.NavNext}

// The times of a match are calls that the operator of MATCH_RECOGNIZE answers itself.
var (
	matchRowtime  = &fn.Func{Name: "MATCH_ROWTIME", Group: "temporal", Purity: fn.PerRecord}
	matchProctime = &fn.Func{Name: "MATCH_PROCTIME", Group: "temporal", Purity: fn.PerRecord}
)

// matchCall binds the functions of MATCH_RECOGNIZE; false for all others.
func (b *binder) matchCall(s *scope, name string, e *ast.Call) (rel.Expr, bool) {
	st := s.match
	at := e.Span
	if nav, ok := navs[name]; ok && !st.inside && e.Over == nil {
		return b.navigation(s, nav, name, e), true
	}
	switch name {
	case "MATCH_ROWTIME", "MATCH_PROCTIME":
		if len(e.Args) > 1 {
			b.errorf(at, "E2107", "%s takes no argument", name)
			return b.bad(at), true
		}
		if name == "MATCH_PROCTIME" {
			return rel.NewCall(row.TimestampLTZ(3).NotNull().WithMark(row.Proctime), matchProctime, nil, b.place(at)), true
		}
		t := row.Timestamp(3)
		if st.time != nil && st.time.Kind() == row.KindTimestampLTZ {
			t = row.TimestampLTZ(3)
		}
		return rel.NewCall(t.NotNull().WithMark(row.Rowtime), matchRowtime, nil, b.place(at)), true
	case "CLASSIFIER", "MATCH_NUMBER":
		return b.unsupported(at, name+"()", ""), true
	}
	f := b.function(e.Name)
	if f == nil || f.Kind != fn.Aggregate || f.Agg != nil && f.Agg.OverOnly {
		return nil, false
	}
	if st.inside {
		b.errorf(at, "E2114", "%s stands in an aggregate: aggregates cannot be nested", f.Name)
		return b.bad(at), true
	}
	if e.Over != nil || e.Filter != nil || len(e.OrderBy)+len(e.WithinGroup) > 0 {
		return b.unsupported(at, "OVER, FILTER or ORDER BY of an aggregate in MATCH_RECOGNIZE", ""), true
	}
	st.inside, st.variable = true, nil
	var args []rel.Expr
	if e.Star && f.Name != "COUNT" {
		b.errorf(at, "E2107", "only COUNT takes *")
		args = []rel.Expr{b.bad(at)}
	} else if !e.Star {
		args = b.countVariable(s, f, e)
	}
	variable := ""
	if st.variable != nil {
		variable = *st.variable
	}
	st.inside, st.variable = false, nil
	if anyBad(args...) {
		return b.bad(at), true
	}
	cast, t, ok := b.resolve(f, at, args)
	if !ok {
		return b.bad(at), true
	}
	call := rel.AggCall{Func: f, Args: cast, Distinct: e.Distinct, Type: t, At: b.place(at)}
	return rel.NewPatternAgg(t, variable, call, cast, b.place(at)), true
}

// countVariable binds the arguments of an aggregate; COUNT(A.*) is COUNT(*) over A.
func (b *binder) countVariable(s *scope, f *fn.Func, e *ast.Call) []rel.Expr {
	if len(e.Args) == 1 && f.Name == "COUNT" {
		if star, ok := e.Args[0].(*ast.Star); ok && star.Qualifier != nil && len(star.Qualifier.Parts) == 1 {
			v := star.Qualifier.Parts[0].Name
			if slices.Contains(s.match.variables, v) {
				s.match.variable = &v
				return nil
			}
		}
	}
	return b.exprs(s, e.Args)
}

// navigation binds FIRST(A.x [, n]) and its like.
func (b *binder) navigation(s *scope, nav rel.Nav, name string, e *ast.Call) rel.Expr {
	at := e.Span
	if len(e.Args) < 1 || len(e.Args) > 2 || e.Star {
		b.errorf(at, "E2107", "write %s(variable.column [, number])", name)
		return b.bad(at)
	}
	offset := 0
	if nav >= rel.NavPrev {
		offset = 1
	}
	if len(e.Args) == 2 {
		n, ok := e.Args[1].(*ast.Number)
		v, fits := 0, false
		if ok && n.Kind == ast.IntNumber {
			v, fits = plain(n.Text)
		}
		if !fits {
			b.errorf(e.Args[1].Range(), "E2107", "the second argument of %s is a constant number", name)
			return b.bad(at)
		}
		offset = v
	}
	x := b.expr(s, e.Args[0])
	if isBad(x) {
		return x
	}
	// FIRST(A.x + 1) is FIRST(A.x) + 1.
	seen := false
	nested := false
	moved := rel.MapExpr(x, func(x rel.Expr) rel.Expr {
		switch x := x.(type) {
		case *rel.PatternRef:
			seen = true
			if x.Nav != rel.NavLast || x.Offset != 0 {
				nested = true
				return x
			}
			r := *x
			r.Nav, r.Offset = nav, offset
			return &r
		case *rel.PatternAgg:
			nested = true
		}
		return x
	})
	switch {
	case nested:
		b.errorf(at, "E2128", "FIRST, LAST, PREV, NEXT and aggregates cannot be nested")
		return b.bad(at)
	case !seen:
		b.errorf(at, "E2107", "%s wants a column of the pattern", name)
		return b.bad(at)
	case nav >= rel.NavPrev:
		return b.unsupported(at, strings.ToUpper(name), "use LAST(variable.column, 1)")
	}
	return moved
}
