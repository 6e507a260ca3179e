package plan

import (
	"fmt"

	"github.com/millrace-stream/millrace/sql/rel"
)

// The warnings of preflight. What needs a look at topics and their records is added by the command check.
const (
	ProcessingTime = "W11" // processing time, though the table has an event time
	Unbounded      = "W12" // state that grows without bound: no TTL
	UnboundedJoin  = "W13" // a regular join keeps all rows of both sides
	ZeroDelay      = "W14" // the watermark allows no disorder
	SingleSubtask  = "W15" // all rows go through one subtask
	ArrivalOrder   = "W16" // the result depends on the order of arrival
)

// preflight notes the classic mistakes.
func (p *planner) preflight(plan *rel.Plan) {
	seen := map[rel.Physical]bool{}
	for _, s := range plan.Sinks {
		p.look(s, seen)
	}
}

func (p *planner) look(n rel.Physical, seen map[rel.Physical]bool) {
	if seen[n] {
		return
	}
	seen[n] = true
	for _, in := range n.Common().In {
		p.look(in, seen)
	}
	grows := func(what string) {
		p.warn(n.At(), Unbounded, fmt.Sprintf("%s keeps a row for each key for ever: SET 'table.exec.state.ttl', or aggregate in a window", what))
	}
	proc := func(yes bool, what string) {
		if yes {
			p.warn(n.At(), ProcessingTime, fmt.Sprintf("%s goes by processing time: the result depends on when rows are read, and replaying a topic gives another one; use a column with a watermark", what))
		}
	}
	switch n := n.(type) {
	case *rel.PScan:
		if w, ok := n.Watermark.(*rel.Column); ok && w.Index == n.Rowtime {
			p.warn(n.At(), ZeroDelay, fmt.Sprintf("the watermark of %s is the time itself, so a row that is a ms older than the one before it is late: WATERMARK FOR %s AS %s - INTERVAL '5' SECOND",
				n.Table.Path, n.Out.Names[n.Rowtime], n.Out.Names[n.Rowtime]))
		}
	case *rel.PGroupAgg:
		if n.TTL == 0 && len(n.Groups) > 0 {
			what := "GROUP BY"
			if len(n.Aggs) == 0 {
				what = "DISTINCT"
			}
			grows(what)
		}
	case *rel.PDedup:
		if n.TTL == 0 {
			grows("deduplication")
		}
	case *rel.PTopN:
		if n.TTL == 0 && len(n.Partition) > 0 {
			grows("Top-N")
		}
	case *rel.PSetCount:
		if n.TTL == 0 {
			grows("a set operation")
		}
	case *rel.PJoin:
		if n.TTL[0] == 0 || n.TTL[1] == 0 {
			p.warn(n.At(), UnboundedJoin, fmt.Sprintf("the %s join keeps all rows of both sides for ever, since its condition bounds no time: join on a time interval, use FOR SYSTEM_TIME AS OF, or give it a hint STATE_TTL", n.Kind))
		}
	case *rel.PWindowAgg:
		proc(n.Spec.Proc, "the window")
	case *rel.PWindow:
		proc(n.Spec.Proc, "the window")
	case *rel.PIntervalJoin:
		proc(n.Proc, "the interval join")
	case *rel.POverTime:
		proc(n.Proc, "OVER")
	case *rel.PMatch:
		proc(n.Proc, "MATCH_RECOGNIZE")
	}
	if keys, ok := demand(n); ok && p.opts.Exchange {
		single := true
		for _, k := range keys {
			single = single && len(k) == 0
		}
		if _, values := n.(*rel.PValues); single && !values {
			p.warn(n.At(), SingleSubtask, fmt.Sprintf("%s has no key: all its rows go through one subtask, whatever the number of replicas", describe(n)))
		}
	}
}
