package plan

import (
	"slices"

	"github.com/millrace-stream/millrace/sql/catalog"
	"github.com/millrace-stream/millrace/sql/rel"
)

const all = rel.Inserts | rel.Updates | rel.Deletes

// changes sets which kinds of rows a new node gives, and what identifies a row; it refuses an input that changes where only
// new rows can be taken. An upsert source gets its Normalize.
func (p *planner) changes(n rel.Physical) rel.Physical {
	ph := n.Common()
	in := ph.In
	var kinds rel.Kinds
	for _, i := range in {
		kinds |= i.Common().Kinds
	}
	insertsOnly := func(what string) {
		for _, i := range in {
			if retracts(i) {
				p.refuse(n, what, i)
			}
		}
		ph.Kinds = rel.Inserts
	}
	switch n := n.(type) {
	case *rel.PScan:
		switch n.Changes {
		case catalog.Append:
			ph.Kinds = rel.Inserts
		case catalog.Retract:
			ph.Kinds = all
			p.keyOfTable(n)
		case catalog.Upsert:
			ph.Kinds = all
			key := p.keyOfTable(n)
			if key == nil {
				p.fail(n.At(), "E3601", "table %s reads upserts and has no PRIMARY KEY: which row is updated?", n.Table.Path)
				return nil
			}
			norm := &rel.PNormalize{Phys: like(n, n), Key: key, Time: -1}
			norm.Kinds, norm.UpsertKeys = all, [][]int{key}
			return p.add(norm, slices.Clone(p.info[n].alive), nil)
		}
	case *rel.PValues, *rel.PLateRows:
		ph.Kinds = rel.Inserts
	case *rel.PCalc:
		ph.Kinds = kinds
		ph.UpsertKeys = through(in[0].Common().UpsertKeys, n.Exprs)
	case *rel.PUnion:
		ph.Kinds = kinds
	case *rel.PCorrelate:
		ph.Kinds = kinds
	case *rel.PGroupAgg:
		ph.Kinds = rel.Inserts
		if len(n.Aggs) > 0 {
			ph.Kinds |= rel.Updates
		}
		if kinds != rel.Inserts {
			ph.Kinds |= rel.Deletes
		}
		ph.UpsertKeys = [][]int{count(len(n.Groups))}
		ph.OrderSensitive = arrival(n.Aggs)
	case *rel.PWindowAgg:
		ph.Kinds = rel.Inserts
		if n.Emit.Updates() {
			ph.Kinds |= rel.Updates
			if kinds != rel.Inserts {
				ph.Kinds |= rel.Deletes
			}
		}
		if n.Spec.Kind == rel.Session && !n.Attached && kinds != rel.Inserts && !n.Legacy {
			insertsOnly("SESSION")
		}
		key := count(len(n.Groups))
		for i, pr := range n.Props {
			if pr == rel.WindowStart || pr == rel.WindowEnd {
				key = append(key, len(n.Groups)+len(n.Aggs)+i)
			}
		}
		ph.UpsertKeys = [][]int{key}
		ph.OrderSensitive = n.Spec.Proc || arrival(n.Aggs)
	case *rel.PWindow:
		ph.Kinds = kinds
		if n.Spec.Kind == rel.Session {
			insertsOnly("SESSION")
		}
		ph.OrderSensitive = n.Spec.Proc
	case *rel.PWindowJoin:
		insertsOnly("a window join")
	case *rel.PWindowRank:
		insertsOnly("Top-N of a window")
		// Of equal rows the one that arrived first comes first.
		ph.OrderSensitive = !unique(in[0], slices.Concat(n.Partition, []int{n.Start, n.End}), n.Order)
	case *rel.PIntervalJoin:
		insertsOnly("an interval join")
		ph.OrderSensitive = n.Proc
	case *rel.POverTime:
		insertsOnly("OVER ordered by time")
		ph.OrderSensitive = n.Proc || n.Frame.Rows && !unique(in[0], n.Partition, n.Order)
	case *rel.PTimeSort:
		insertsOnly("ORDER BY time")
	case *rel.PMatch:
		insertsOnly("MATCH_RECOGNIZE")
	case *rel.PDedup:
		insertsOnly("deduplication")
		if n.Last || !n.Proc {
			ph.Kinds |= rel.Updates
		}
		if !n.Last {
			ph.Kinds = rel.Inserts
		}
		ph.UpsertKeys = [][]int{n.Key}
		ph.OrderSensitive = true
	case *rel.PJoin:
		l, r := in[0].Common().Kinds, in[1].Common().Kinds
		switch n.Kind {
		case rel.Inner:
			ph.Kinds = l | r
		case rel.Semi:
			ph.Kinds = l
			if r != rel.Inserts {
				ph.Kinds |= rel.Deletes
			}
		case rel.Anti, rel.NullAwareAnti:
			ph.Kinds = l | rel.Deletes
		case rel.Left:
			ph.Kinds = l | r | rel.Deletes
		case rel.Right:
			ph.Kinds = l | r | rel.Deletes
		default:
			ph.Kinds = all
		}
		ph.UpsertKeys = p.joinKeys(n)
	case *rel.PTemporalJoin:
		ph.Kinds = in[0].Common().Kinds
		ph.UpsertKeys = in[0].Common().UpsertKeys
		for _, i := range in[:1] {
			if retracts(i) {
				p.refuse(n, "FOR SYSTEM_TIME AS OF an event time", i)
			}
		}
	case *rel.PLookupJoin:
		ph.Kinds = kinds
		ph.OrderSensitive = true
	case *rel.PTopN:
		ph.Kinds = all
		// With the rank, a row that moves on is at its new place before it has left the old one.
		if !n.Rank {
			ph.UpsertKeys = append(ph.UpsertKeys, in[0].Common().UpsertKeys...)
		}
		switch {
		case n.Rank:
			ph.UpsertKeys = append(ph.UpsertKeys, append(slices.Clone(n.Partition), n.Schema().Len()-1))
		case n.From == 1 && n.To == 1 && n.ToColumn < 0:
			ph.UpsertKeys = [][]int{slices.Clone(n.Partition)} // an update puts another row there, with other keys
		}
		ph.OrderSensitive = true // ties
	case *rel.PLimit:
		ph.Kinds = rel.Inserts
		if n.Retracts {
			ph.Kinds = all
		}
		ph.OrderSensitive = true
	case *rel.POverColumn:
		ph.Kinds = all
	case *rel.PSetCount:
		ph.Kinds = rel.Inserts | rel.Deletes
		if !n.All {
			ph.UpsertKeys = [][]int{count(n.Schema().Len())}
		}
	}
	for _, i := range in {
		ph.OrderSensitive = ph.OrderSensitive || i.Common().OrderSensitive
	}
	if p.opts.Exchange {
		ph.UpsertKeys = slices.DeleteFunc(slices.Clone(ph.UpsertKeys), func(k []int) bool { return !oneSubtask(n, k) })
	}
	return n
}

// refuse says that an operator cannot take what another one changes.
func (p *planner) refuse(n rel.Physical, what string, in rel.Physical) {
	by := Updater(in)
	p.fail(n.At(), "E3602", "%s takes new rows only, and %s changes rows that it has put out", what, describe(by)).
		WithNote("aggregate in a window, which puts each result out once, or do this step before the rows change")
}

// Updater is the node at or below n because of which rows change.
func Updater(n rel.Physical) rel.Physical {
	for {
		next := rel.Physical(nil)
		switch x := n.(type) {
		case *rel.PCalc, *rel.PUnion, *rel.PCorrelate, *rel.PWindow, *rel.PExchange, *rel.PNormalize, *rel.PLookupJoin, *rel.PDropBefore:
			for _, i := range n.Common().In {
				if retracts(i) {
					next = i
					break
				}
			}
		case *rel.PJoin:
			if x.Kind == rel.Inner || x.Kind == rel.Semi {
				for _, i := range x.In {
					if retracts(i) {
						next = i
						break
					}
				}
			}
		}
		if next == nil {
			return n
		}
		n = next
	}
}

// describe names a node for people.
func describe(n rel.Physical) string {
	switch n := n.(type) {
	case *rel.PScan:
		return "table " + n.Table.Path.String()
	case *rel.PGroupAgg:
		if len(n.Aggs) == 0 {
			return "DISTINCT"
		}
		return "GROUP BY"
	case *rel.PJoin:
		return "the " + n.Kind.String() + " join"
	case *rel.PTopN:
		return "Top-N"
	case *rel.PDedup:
		return "deduplication"
	case *rel.POverColumn:
		return "OVER ordered by an ordinary column"
	case *rel.PSetCount:
		return "a set operation"
	case *rel.PLimit:
		return "LIMIT"
	case *rel.PWindowAgg:
		if n.Emit.Updates() {
			return "a window with early or late firing"
		}
		return "a window aggregate"
	}
	return n.String()
}

func count(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func arrival(aggs []rel.AggCall) bool {
	return slices.ContainsFunc(aggs, func(a rel.AggCall) bool { return a.Func.Agg != nil && a.Func.Agg.Arrival })
}

// keyOfTable notes the PRIMARY KEY of a scan as its upsert key, in terms of its columns; nil if it is not all read.
func (p *planner) keyOfTable(n *rel.PScan) []int {
	var key []int
	for _, c := range n.Table.Key {
		i := slices.Index(n.Columns, c)
		if i < 0 {
			return nil
		}
		key = append(key, i)
	}
	if key != nil {
		n.UpsertKeys = [][]int{key}
	}
	return key
}

// through is the upsert keys of a projection.
func through(keys [][]int, exprs []rel.Expr) (out [][]int) {
next:
	for _, k := range keys {
		var to []int
		for _, c := range k {
			i := slices.IndexFunc(exprs, func(e rel.Expr) bool { return plain(e) == c })
			if i < 0 {
				continue next
			}
			to = append(to, i)
		}
		out = append(out, to)
	}
	return out
}

// joinKeys is the upsert keys of a join: those of both sides together; one side's alone where the other has at most one row
// for it.
func (p *planner) joinKeys(n *rel.PJoin) (out [][]int) {
	l, r := n.In[0].Common().UpsertKeys, n.In[1].Common().UpsertKeys
	if n.Kind == rel.Semi || n.Kind == rel.Anti || n.Kind == rel.NullAwareAnti || n.Kind == rel.Single {
		return l
	}
	off := n.In[0].Schema().Len()
	up := func(k []int) []int {
		o := make([]int, len(k))
		for i, c := range k {
			o[i] = c + off
		}
		return o
	}
	if n.Unique[1] && (n.Kind == rel.Inner || n.Kind == rel.Left) {
		out = append(out, l...)
	}
	if n.Unique[0] && (n.Kind == rel.Inner || n.Kind == rel.Right) {
		for _, k := range r {
			out = append(out, up(k))
		}
	}
	if n.Kind == rel.Inner {
		for _, a := range l {
			for _, b := range r {
				out = append(out, append(slices.Clone(a), up(b)...))
			}
		}
	}
	return out
}

// form tells a node how its updates are wanted, and its inputs in turn. A node that is read twice gives Both if one reader
// wants that.
func (p *planner) form(n rel.Physical, want rel.Form) {
	ph := n.Common()
	if ph.Kinds&rel.Updates == 0 && ph.Kinds&rel.Deletes == 0 {
		want = rel.NoUpdates
	}
	if ph.Form >= want && ph.Form != rel.NoUpdates {
		want = ph.Form
	}
	ph.Form = want
	ask := func(i int) rel.Form {
		switch n := n.(type) {
		case *rel.PCalc:
			if n.Cond != nil {
				return rel.Both
			}
			return want
		case *rel.PUnion, *rel.PLookupJoin:
			return want
		case *rel.PCorrelate:
			return rel.Both
		case *rel.PNormalize, *rel.PDropBefore:
			return rel.After
		case *rel.PTemporalJoin:
			if i == 0 {
				return want
			}
			return rel.After
		}
		return rel.Both
	}
	for i, in := range ph.In {
		p.form(in, max(ask(i), rel.NoUpdates))
	}
}

// unique says whether no two rows of a node are equal in columns and order.
func unique(n rel.Physical, columns []int, order []rel.SortKey) bool {
	named := slices.Clone(columns)
	for _, k := range order {
		named = append(named, k.Column)
	}
	return slices.ContainsFunc(n.Common().UpsertKeys, func(k []int) bool { return subset(k, named) })
}

// oneSubtask says whether all rows with one upsert key leave a node from one subtask. If not, what is put out for an update and
// what is withdrawn may come in any order behind the next exchange, and the key names no row there.
func oneSubtask(n rel.Physical, key []int) bool {
	want, keyed := demand(n)
	if !keyed {
		return true
	}
	kind := rel.Left // of nodes with one input, and of those that give each left row
	switch j := n.(type) {
	case *rel.PJoin:
		kind = j.Kind
	case *rel.PIntervalJoin:
		kind = j.Kind
	case *rel.PWindowJoin:
		kind = j.Kind
	case *rel.PGroupAgg, *rel.PWindowAgg, *rel.PSetCount:
		return true // the keys are their own
	}
	left := subset(want[0], key)
	if len(want) == 1 {
		return left
	}
	lw := n.Common().In[0].Schema().Len()
	right := subset(rel.RemapList(want[1], func(c int) int { return c + lw }), key)
	switch kind {
	case rel.Inner:
		return left || right
	case rel.Right:
		return right
	case rel.Full:
		return left && right
	}
	return left
}
