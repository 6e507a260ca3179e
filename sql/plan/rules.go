package plan

import "github.com/millrace-stream/millrace/sql/rel"

// Stage is when a rule works.
type Stage string

// The stages, in order. The rules of the first are steps of their own; those of the others work while operators are chosen and
// rows are placed.
const (
	Rewrite Stage = "rewrite" // the logical plan becomes another logical one
	Choose  Stage = "choose"  // operators for it
	Place   Stage = "place"   // exchanges between them
)

// Rule is a rule of the planner by name.
type Rule struct {
	Name  string
	Stage Stage
	// Optional: it can be switched off with Options.Without, and results do not change.
	Optional bool
	// Made tells what the rule has made in a physical plan, of the stages behind the first.
	Made func(n rel.Physical) bool

	rewrite func(p *planner, n rel.Node) rel.Node // nil after an error, which has been told
}

func made[N rel.Physical](also func(n N) bool) func(rel.Physical) bool {
	return func(n rel.Physical) bool {
		x, ok := n.(N)
		return ok && (also == nil || also(x))
	}
}

// Rules are all rules, in the order of their stages.
func Rules() []Rule {
	return []Rule{
		{Name: "subqueriesToJoins", Stage: Rewrite, rewrite: (*planner).decorrelate},
		{Name: "pushFilters", Stage: Rewrite, rewrite: func(_ *planner, n rel.Node) rel.Node { return pushFilters(n) }},
		{Name: "pruneColumns", Stage: Rewrite, Optional: true, rewrite: (*planner).prune},

		{Name: "mergeCalcs", Stage: Choose, Made: made(func(n *rel.PCalc) bool { return n.Cond != nil })},
		{Name: "groupWindow", Stage: Choose, Made: made(func(n *rel.PWindowAgg) bool { return n.Legacy })},
		{Name: "windowAggregate", Stage: Choose, Made: made(func(n *rel.PWindowAgg) bool { return !n.Legacy && !n.Attached })},
		{Name: "attachedWindow", Stage: Choose, Made: made(func(n *rel.PWindowAgg) bool { return n.Attached })},
		{Name: "windowJoin", Stage: Choose, Made: made[*rel.PWindowJoin](nil)},
		{Name: "windowRank", Stage: Choose, Made: made[*rel.PWindowRank](nil)},
		{Name: "dedup", Stage: Choose, Made: made[*rel.PDedup](nil)},
		{Name: "topN", Stage: Choose, Made: made(func(n *rel.PTopN) bool { return len(n.Partition) > 0 })},
		{Name: "limitToTopN", Stage: Choose, Made: made(func(n *rel.PTopN) bool { return len(n.Partition) == 0 })},
		{Name: "timeSort", Stage: Choose, Made: made[*rel.PTimeSort](nil)},
		{Name: "overTime", Stage: Choose, Made: made[*rel.POverTime](nil)},
		{Name: "overColumn", Stage: Choose, Made: made[*rel.POverColumn](nil)},
		{Name: "temporalJoin", Stage: Choose, Made: made[*rel.PTemporalJoin](nil)},
		{Name: "lookupJoin", Stage: Choose, Made: made[*rel.PLookupJoin](nil)},
		{Name: "intervalJoin", Stage: Choose, Made: made[*rel.PIntervalJoin](nil)},
		{Name: "matchPattern", Stage: Choose, Made: made[*rel.PMatch](nil)},
		{Name: "groupingSets", Stage: Choose, Made: made[*rel.PUnion](nil)},
		{Name: "setOpToCounts", Stage: Choose, Made: made[*rel.PSetCount](nil)},
		{Name: "normaliseSource", Stage: Choose, Made: made[*rel.PNormalize](nil)},
		{Name: "materialiseSink", Stage: Choose, Made: made[*rel.PMaterialize](nil)},

		{Name: "placeExchange", Stage: Place, Made: made[*rel.PExchange](nil)},
		{Name: "elideExchange", Stage: Place, Optional: true, Made: made(func(n *rel.PScan) bool { return n.Routed })},
		{Name: "splitAggregate", Stage: Place, Optional: true, Made: made[*rel.PLocalAgg](nil)},
	}
}
