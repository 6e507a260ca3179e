// Package plan turns bound queries into physical plans: small named rules on logical nodes, the choice of operators, the
// algebra of changelogs, where rows are exchanged, names of state, and warnings. It reads no data and opens nothing.
package plan

import (
	"time"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/catalog"
	"github.com/millrace-stream/millrace/sql/diag"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
)

// Options of a plan.
type Options struct {
	// Config has the settings of SET: table.exec.state.ttl, table.exec.emit.* and so on.
	Config map[string]string
	// Table tells what the connector and the format of a table can do. nil: every table reads and takes anything.
	Table func(t *catalog.Table) (Traits, *diag.Error)
	// Exchange puts rows of equal keys together through topics. Without it all operators run in one subtask.
	Exchange bool
	// Without switches optional rules off, by name: results must not change. For tests.
	Without map[string]bool
	// Trace is told of each rule of the stage Rewrite, and of the stages Choose and Place by their names, what was before and
	// after it, as text. For tests.
	Trace func(name, before, after string)
}

// Traits is what a table's connector and format can do.
type Traits struct {
	Reads  catalog.Changes
	Writes catalog.Changes
	// Lookup: it can be asked by key (FOR SYSTEM_TIME AS OF a processing time).
	Lookup bool
	// Keyed: its records lie on partitions by these columns, ordinals of the table, as Kafka's default partitioner puts them.
	Keyed []int
	// KeyForm says how the keys of its records are written: equal values have equal keys in all tables of one form.
	KeyForm string
}

// Script plans the sinks of a script: one app.
func Script(sinks []*rel.Sink, opts Options) (*rel.Plan, []*diag.Error) {
	p := &planner{opts: opts, info: map[rel.Physical]*info{}, late: lateColumns(sinks)}
	out := &rel.Plan{Config: opts.Config}
	for _, s := range sinks {
		if phys := p.sink(s); phys != nil {
			out.Sinks = append(out.Sinks, phys)
		}
	}
	chosen := ""
	if opts.Trace != nil {
		chosen = Text(out)
	}
	if len(p.errs) > 0 {
		return nil, p.errs
	}
	if opts.Exchange {
		p.place(out)
		if opts.Trace != nil {
			opts.Trace(string(Place), chosen, Text(out))
		}
	}
	p.name(out)
	p.preflight(out)
	out.Warnings = p.warnings
	return out, nil
}

// planner is one run.
type planner struct {
	opts     Options
	errs     []*diag.Error
	warnings []rel.Warning
	info     map[rel.Physical]*info
	// late are the columns of tables that are written where rows come too late.
	late map[*catalog.Table][]string
	// drops has the tables above which an operator drops late rows.
	drops map[*catalog.Table]bool
}

// info is what the planner knows of a physical node beside its traits.
type info struct {
	// alive says by column whether it is a time attribute that still moves with the watermark.
	alive []bool
	// window are the columns that name the window of a row; nil = the rows have none.
	window *window
}

// window is where a node has the columns of a window: -1 = not there.
type window struct {
	start, end, time int
	spec             rel.WindowSpec
	session          bool
}

func (p *planner) fail(at rel.Place, code, format string, args ...any) *diag.Error {
	e := diag.New(at.Source, at.Span, code, format, args...)
	p.errs = append(p.errs, e)
	return e
}

func (p *planner) warn(at rel.Place, code, message string) {
	p.warnings = append(p.warnings, rel.Warning{Code: code, Message: message, At: at})
}

// without says that an optional rule is off.
func (p *planner) without(rule string) bool { return p.opts.Without[rule] }

// ttl is the time after which state is forgotten: that of a hint, else table.exec.state.ttl; 0 = never.
func (p *planner) ttl(hint *time.Duration) time.Duration {
	if hint != nil {
		return *hint
	}
	d, err := row.ParseDuration(p.opts.Config["table.exec.state.ttl"])
	if err != nil {
		return 0
	}
	return d
}

// lateColumns are the columns of tables that their late rows are written with.
func lateColumns(sinks []*rel.Sink) map[*catalog.Table][]string {
	out := map[*catalog.Table][]string{}
	for _, s := range sinks {
		rel.Walk(s.Input, func(n rel.Node) bool {
			if l, ok := n.(*rel.LateRows); ok {
				out[l.Table] = append(out[l.Table], l.Out.Names...)
			}
			return true
		})
	}
	return out
}

// tableOf is the table that a scan with its computed columns and watermark reads; nil if n is something else.
func tableOf(n rel.Node) *catalog.Table {
	for {
		switch x := n.(type) {
		case *rel.Watermark:
			n = x.Input
		case *rel.Project:
			n = x.Input
		case *rel.Scan:
			return x.Table
		default:
			return nil
		}
	}
}

// builtin is a function that the planner itself puts in.
func builtin(name string) *fn.Func {
	f, ok := fn.Lookup(name)
	if !ok {
		panic("plan: function " + name + " is missing")
	}
	return f
}
