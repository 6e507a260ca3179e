package plan

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
)

func argsOf(es ...rel.Expr) []fn.Arg {
	out := make([]fn.Arg, len(es))
	for i, e := range es {
		out[i].Type = e.Type()
		if l, ok := e.(*rel.Literal); ok {
			out[i].Const, out[i].Literal = &l.Const, true
		}
	}
	return out
}

// Canonical is the text of an expression that is the same for all expressions that mean the same in the same way: columns by
// number, operands of AND, OR, + and * in order.
func Canonical(e rel.Expr) string {
	switch e := e.(type) {
	case nil:
		return ""
	case *rel.Column:
		return fmt.Sprintf("$%d.%d:%s", e.Depth, e.Index, e.Typ)
	case *rel.Literal:
		if e.Null {
			return "NULL:" + e.Typ.String()
		}
		return fmt.Sprintf("%x.%x.%q:%s", e.X, e.Y, e.B, e.Typ)
	case *rel.Call:
		parts := make([]string, len(e.Args))
		for i, a := range e.Args {
			parts[i] = Canonical(a)
		}
		switch e.Func.Name {
		case "AND", "OR":
			sort.Strings(parts)
		}
		return e.Func.Name + "(" + strings.Join(parts, ",") + "):" + e.Typ.String()
	case *rel.Cast:
		word := "CAST"
		if e.Try {
			word = "TRY_CAST"
		}
		return word + "(" + Canonical(e.X) + "):" + e.Typ.String()
	case *rel.Case:
		var b strings.Builder
		b.WriteString("CASE(")
		for _, w := range e.Whens {
			b.WriteString(Canonical(w.Cond) + "?" + Canonical(w.Then) + ";")
		}
		return b.String() + Canonical(e.Else) + ")"
	case *rel.Field:
		return fmt.Sprintf("%s.%d", Canonical(e.X), e.Index)
	case *rel.Marker:
		return fmt.Sprintf("marker%d", e.Kind)
	case *rel.PatternRef:
		return fmt.Sprintf("%s.$%d@%d+%d", e.Variable, e.Column, e.Nav, e.Offset)
	case *rel.PatternAgg:
		parts := make([]string, len(e.Args))
		for i, a := range e.Args {
			parts[i] = Canonical(a)
		}
		return e.Variable + "." + e.Call.Func.Name + "(" + strings.Join(parts, ",") + ")"
	}
	panic(fmt.Sprintf("plan: expression %T has no canonical text", e))
}

func canonicalAgg(a rel.AggCall) string {
	parts := make([]string, len(a.Args))
	for i, x := range a.Args {
		parts[i] = Canonical(x)
	}
	return fmt.Sprintf("%s(%v %s) filter %s order %v ignore %v: %s", a.Func.Name, a.Distinct, strings.Join(parts, ","), Canonical(a.Filter), a.OrderBy, a.IgnoreNulls, a.Type)
}

// name gives every operator with state its id: its kind and a fingerprint of what its state means. Editing one query keeps
// the ids of the others.
func (p *planner) name(plan *rel.Plan) {
	f := &fingerprints{of: map[rel.Physical]string{}, used: map[string]int{}}
	for _, s := range plan.Sinks {
		f.walk(s)
	}
}

type fingerprints struct {
	of   map[rel.Physical]string
	used map[string]int
}

func (f *fingerprints) walk(n rel.Physical) string {
	if s, ok := f.of[n]; ok {
		return s
	}
	if l, ok := n.(*rel.PLocalAgg); ok { // one phase or two: the state is the same
		return f.walk(l.In[0])
	}
	kind, meaning := meaningOf(n)
	var b strings.Builder
	b.WriteString(kind + "|" + meaning)
	if _, keyed := demand(n); keyed && n.Common().In != nil && n.Common().In[0].Common().Dist.Topic != "" {
		b.WriteString("|by the topic") // its state lies on other subtasks
	}
	for _, in := range n.Common().In {
		b.WriteString("|" + f.walk(in))
	}
	sum := sha256.Sum256([]byte(b.String()))
	mark := strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:10])
	f.of[n] = mark
	if kind == "" {
		return mark
	}
	if localBelow(n) != nil { // the topic has other values
		kind = "lrp"
	}
	id := kind + "-" + mark
	// Two operators that mean the same, in two queries: each has its own state.
	f.used[id]++
	if k := f.used[id]; k > 1 {
		id = fmt.Sprintf("%s-%d", id, k)
	}
	n.Common().Id = id
	return mark
}

// meaningOf is the kind of an operator, "" for what needs no id, and what its state means.
func meaningOf(n rel.Physical) (kind, meaning string) {
	exprs := func(es []rel.Expr) string {
		parts := make([]string, len(es))
		for i, e := range es {
			parts[i] = Canonical(e)
		}
		return strings.Join(parts, ",")
	}
	aggs := func(as []rel.AggCall) string {
		parts := make([]string, len(as))
		for i, a := range as {
			parts[i] = canonicalAgg(a)
		}
		return strings.Join(parts, ";")
	}
	types := func() string {
		var parts []string
		for _, in := range n.Common().In {
			if l := localBelow(in); l != nil {
				in = l.In[0]
			}
			for _, t := range in.Schema().Types {
				parts = append(parts, t.Plain().String())
			}
		}
		return strings.Join(parts, ",")
	}
	// groups are those of the rows, which a local aggregate puts in front.
	groups := func(own []int) []int {
		if l := localBelow(n.Common().In[0]); l != nil {
			return l.Groups
		}
		return own
	}
	switch n := n.(type) {
	case *rel.PScan:
		var cols []string
		for _, c := range n.Columns {
			col := n.Table.Columns[c]
			cols = append(cols, col.Name+" "+col.Type.Plain().String())
		}
		return "scan", fmt.Sprint(n.Table.Path, cols, options(n.Options, "connector", "topic", "topic-pattern", "format", "value.format", "key.format"), exprs(n.Computed), n.Rowtime, Canonical(n.Watermark), n.Changes)
	case *rel.PLateRows:
		return "", fmt.Sprint("late ", n.Table.Path)
	case *rel.PValues:
		var rows []string
		for _, r := range n.Rows {
			rows = append(rows, exprs(r))
		}
		return "values", strings.Join(rows, ";")
	case *rel.PCalc:
		return "", Canonical(n.Cond) + ":" + exprs(n.Exprs)
	case *rel.PUnion:
		return "", "union"
	case *rel.PCorrelate:
		f := ""
		if n.Func != nil {
			f = Canonical(n.Func)
		}
		return "", fmt.Sprint("correlate", f, exprs(n.Unnest), n.Ordinality, Canonical(n.Cond), n.Outer)
	case *rel.PExchange:
		keys := n.Keys
		if l := localBelow(n); l != nil {
			keys = nil
			for _, k := range n.Keys {
				keys = append(keys, l.Groups[k])
			}
		}
		return "rp", fmt.Sprint(keys)
	case *rel.PNormalize:
		return "norm", fmt.Sprint(n.Key, types(), Canonical(n.Cond))
	case *rel.PMaterialize:
		return "mat", fmt.Sprint(n.Key, types())
	case *rel.PDropBefore:
		return "", "drop"
	case *rel.PGroupAgg:
		return "agg", fmt.Sprint(groups(n.Groups), aggs(n.Aggs), n.Retracts, types())
	case *rel.PLocalAgg:
		return "", ""
	case *rel.PWindowAgg:
		return "win", fmt.Sprint(n.Spec, n.Attached, groups(n.Groups), aggs(n.Aggs), n.Legacy, n.Retracts, types())
	case *rel.PWindow:
		return "tvf", fmt.Sprint(n.Spec, types())
	case *rel.PWindowJoin:
		return "wjoin", fmt.Sprint(n.Kind, n.Keys, n.Start, n.End, types())
	case *rel.PWindowRank:
		return "wtop", fmt.Sprint(n.Partition, n.Order, n.From, n.To, types())
	case *rel.PJoin:
		return "join", fmt.Sprint(n.Kind, n.Keys, n.Unique, n.UniqueKey, types())
	case *rel.PIntervalJoin:
		return "ijoin", fmt.Sprint(n.Kind, n.Keys, n.Time, n.Lower, n.Upper, types())
	case *rel.PTemporalJoin:
		return "tjoin", fmt.Sprint(n.Kind, n.Keys, n.Time, types())
	case *rel.PLookupJoin:
		return "lookup", fmt.Sprint(n.Table.Path, n.Kind, types())
	case *rel.PTopN:
		return "top", fmt.Sprint(n.Partition, n.Order, n.From, n.To, n.ToColumn, n.Retracts, types())
	case *rel.PLimit:
		return "limit", fmt.Sprint(n.Offset, n.Fetch, n.Retracts, types())
	case *rel.PDedup:
		return "dedup", fmt.Sprint(n.Key, n.Time, n.Last, n.Proc, types())
	case *rel.POverTime:
		return "over", fmt.Sprint(n.Partition, n.Order, n.Frame, aggs(n.Calls), types())
	case *rel.POverColumn:
		return "over", fmt.Sprint("column", n.Partition, n.Order, n.Frame, aggs(n.Calls), types())
	case *rel.PSetCount:
		return "set", fmt.Sprint(n.Kind, n.All, types())
	case *rel.PTimeSort:
		return "sort", fmt.Sprint(n.Keys, types())
	case *rel.PMatch:
		var defines []string
		for _, v := range n.Variables {
			if d := n.Defines[v]; d != nil {
				defines = append(defines, v+"="+Canonical(d))
			}
		}
		var subsets []string
		for k, v := range n.Subsets {
			subsets = append(subsets, k+fmt.Sprint(v))
		}
		slices.Sort(subsets)
		return "match", fmt.Sprint(n.Partition, n.Order, rel.PatternText(n.Pattern), defines, subsets, n.Skip, n.SkipTo, n.Within, types())
	case *rel.PSink:
		where := ""
		if n.Table != nil {
			where = n.Table.Path.String()
		}
		return "sink", where
	}
	panic(fmt.Sprintf("plan: node %T has no meaning", n))
}

func options(m map[string]string, keys ...string) string {
	var b strings.Builder
	for _, k := range keys {
		if v, ok := m[k]; ok {
			b.WriteString(k + "=" + v + ";")
		}
	}
	return b.String()
}
