package plan

import (
	"fmt"
	"slices"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/catalog"
	"github.com/millrace-stream/millrace/sql/rel"
)

// The warnings of preflight. What needs a look at topics and their records is added by the command check.
const (
	ProcessingTime = "W11" // processing time, though the table has an event time
	Unbounded      = "W12" // state that grows without bound: no TTL
	UnboundedJoin  = "W13" // a regular join keeps all rows of both sides
	ZeroDelay      = "W14" // the watermark allows no disorder
	SingleSubtask  = "W15" // all rows go through one subtask
	NoWatermark    = "W18" // a table with times has no watermark, and what reads it keeps state for ever or goes by processing time
	NeverLate      = "W17" // late rows are asked for where no operator drops any
)

// preflight notes the classic mistakes.
func (p *planner) preflight(plan *rel.Plan) {
	p.drops = map[*catalog.Table]bool{}
	for _, s := range plan.Sinks {
		rel.Walk(s, func(n rel.Node) bool {
			if rel.DropsLate(n.(rel.Physical)) {
				rel.Walk(n, func(n rel.Node) bool {
					if scan, ok := n.(*rel.PScan); ok {
						p.drops[scan.Table] = true
					}
					return true
				})
			}
			return true
		})
	}
	seen := map[rel.Physical]bool{}
	for _, s := range plan.Sinks {
		p.look(s, seen)
	}
	if !slices.ContainsFunc(p.warnings, func(w rel.Warning) bool {
		return w.Code == ProcessingTime || w.Code == Unbounded || w.Code == UnboundedJoin
	}) {
		return
	}
	told := map[*catalog.Table]bool{}
	for _, s := range plan.Sinks {
		rel.Walk(s, func(n rel.Node) bool {
			if scan, ok := n.(*rel.PScan); ok && !told[scan.Table] {
				told[scan.Table] = true
				p.timeless(scan)
			}
			return true
		})
	}
}

// timeless notes a table of events that has a column with a time and no watermark.
func (p *planner) timeless(n *rel.PScan) {
	t := n.Table
	if t.Watermark != nil || n.Changes != catalog.Append {
		return
	}
	for i := range t.Columns {
		c := &t.Columns[i]
		if c.Kind != catalog.Computed && (c.Type.Kind() == row.KindTimestamp || c.Type.Kind() == row.KindTimestampLTZ) {
			p.warn(n.At(), NoWatermark, fmt.Sprintf("table %s has no watermark, so that no window and no join on a time interval can go by %s: WATERMARK FOR %s AS %s - INTERVAL '5' SECOND",
				t.Path, c.Name, c.Name, c.Name))
			return
		}
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
	case *rel.PLateRows:
		if !p.drops[n.Table] {
			p.warn(n.At(), NeverLate, fmt.Sprintf("table %s has '%s', and no operator here drops late rows: nothing is written there", n.Table.Path, rel.LateRecords))
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
