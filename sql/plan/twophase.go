package plan

import (
	"strings"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/rel"
)

// aggPhase is the setting that says where aggregates are computed.
const aggPhase = "table.optimizer.agg-phase-strategy"

// twoPhase puts a local aggregate before the exchange that n has got above in: rows of a group then cross it once an epoch. It
// is for aggregates that merge, over rows that only come.
func (p *planner) twoPhase(n, in rel.Physical) {
	if strings.EqualFold(p.opts.Config[aggPhase], "ONE_PHASE") || p.without("splitAggregate") || retracts(in) || p.carriesLate(in) {
		return
	}
	local := &rel.PLocalAgg{}
	switch n := n.(type) {
	case *rel.PGroupAgg:
		if len(n.Aggs) == 0 || !merges(n.Aggs) {
			return
		}
		local.Groups, local.Aggs = n.Groups, n.Aggs
	case *rel.PWindowAgg:
		if n.Attached || n.Spec.Proc || n.Spec.Kind == rel.Session || n.Emit.Updates() || n.Spec.Kind == rel.Hop && n.Spec.Slide > n.Spec.Size || !merges(n.Aggs) {
			return
		}
		spec := n.Spec
		local.Groups, local.Aggs, local.Window = n.Groups, n.Aggs, &spec
	default:
		return
	}
	is := in.Schema()
	var names []string
	var types []*row.Type
	for _, g := range local.Groups {
		names, types = append(names, is.Names[g]), append(types, is.Types[g])
	}
	if local.Window != nil {
		names, types = append(names, "$slice"), append(types, row.BigInt().NotNull())
	}
	names, types = append(names, "$acc"), append(types, row.Bytes().NotNull())
	local.Phys = phys(names, types, n.At(), in)
	local.Kinds = rel.Inserts
	p.add(local, nil, nil)
	local.OrderSensitive = in.Common().OrderSensitive
	x := p.exchange(local, count(len(local.Groups)))
	partial := &rel.Schema{Names: is.Names, Types: is.Types}
	switch n := n.(type) {
	case *rel.PGroupAgg:
		n.Groups, n.Partial = count(len(n.Groups)), partial
	case *rel.PWindowAgg:
		n.Groups, n.Partial = count(len(n.Groups)), partial
	}
	n.Common().In[0] = x
}

// merges says whether the accumulators of calls can be put together: no DISTINCT, and none that goes by the order of rows.
func merges(calls []rel.AggCall) bool {
	for _, c := range calls {
		if c.Distinct || len(c.OrderBy) > 0 || c.Func.Agg == nil || c.Func.Agg.Arrival || c.Func.Agg.OverOnly {
			return false
		}
	}
	return true
}

// carriesLate says whether late rows of a table below are written: they must come one by one.
func (p *planner) carriesLate(in rel.Physical) (yes bool) {
	rel.Walk(in, func(n rel.Node) bool {
		if s, ok := n.(*rel.PScan); ok && s.LateRowTable != "" {
			yes = true
		}
		return !yes
	})
	return yes
}

// localBelow is the local aggregate whose rows come through an exchange; nil if there is none.
func localBelow(n rel.Physical) *rel.PLocalAgg {
	x, ok := n.(*rel.PExchange)
	if !ok {
		return nil
	}
	l, _ := x.In[0].(*rel.PLocalAgg)
	return l
}
