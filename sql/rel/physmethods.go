package rel

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/millrace-stream/millrace/sql/catalog"
)

// physical gives nodes that are known to be physical their type.
func physical(in []Node) []Physical {
	out := make([]Physical, len(in))
	for i, n := range in {
		out[i] = n.(Physical)
	}
	return out
}

// in is the schema of input i.
func (p *Phys) in(i int) *Schema {
	if i < len(p.In) {
		return p.In[i].Schema()
	}
	return &Schema{}
}

func tableColumns(t *catalog.Table, columns []int) string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = t.Columns[c].Name
	}
	return strings.Join(names, ", ")
}

func ttlText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return "TTL " + d.String()
}

func condText(word string, e Expr) string {
	if e == nil {
		return ""
	}
	return word + " " + Text(e)
}

// keysText is "a = x, b = y" for the key columns of two inputs.
func (p *Phys) keysText(keys [2][]int) string {
	out := make([]string, len(keys[0]))
	for i := range out {
		out[i] = columnName(p.in(0), keys[0][i]) + " = " + columnName(p.in(1), keys[1][i])
	}
	return strings.Join(out, ", ")
}

// WithChildren is of Node.
func (p *PScan) WithChildren(in []Node) Node {
	c := *p
	c.In = physical(in)
	return &c
}

// WithChildren is of Node.
func (p *PLateRows) WithChildren(in []Node) Node {
	c := *p
	c.In = physical(in)
	return &c
}

// WithChildren is of Node.
func (p *PValues) WithChildren(in []Node) Node {
	c := *p
	c.In = physical(in)
	return &c
}

// WithChildren is of Node.
func (p *PCalc) WithChildren(in []Node) Node {
	c := *p
	c.In = physical(in)
	return &c
}

// WithChildren is of Node.
func (p *PUnion) WithChildren(in []Node) Node {
	c := *p
	c.In = physical(in)
	return &c
}

// WithChildren is of Node.
func (p *PCorrelate) WithChildren(in []Node) Node {
	c := *p
	c.In = physical(in)
	return &c
}

// WithChildren is of Node.
func (p *PExchange) WithChildren(in []Node) Node {
	c := *p
	c.In = physical(in)
	return &c
}

// WithChildren is of Node.
func (p *PNormalize) WithChildren(in []Node) Node {
	c := *p
	c.In = physical(in)
	return &c
}

// WithChildren is of Node.
func (p *PMaterialize) WithChildren(in []Node) Node {
	c := *p
	c.In = physical(in)
	return &c
}

// WithChildren is of Node.
func (p *PDropBefore) WithChildren(in []Node) Node {
	c := *p
	c.In = physical(in)
	return &c
}

// WithChildren is of Node.
func (p *PGroupAgg) WithChildren(in []Node) Node {
	c := *p
	c.In = physical(in)
	return &c
}

// WithChildren is of Node.
func (p *PLocalAgg) WithChildren(in []Node) Node {
	c := *p
	c.In = physical(in)
	return &c
}

// WithChildren is of Node.
func (p *PWindowAgg) WithChildren(in []Node) Node {
	c := *p
	c.In = physical(in)
	return &c
}

// WithChildren is of Node.
func (p *PWindow) WithChildren(in []Node) Node {
	c := *p
	c.In = physical(in)
	return &c
}

// WithChildren is of Node.
func (p *PWindowJoin) WithChildren(in []Node) Node {
	c := *p
	c.In = physical(in)
	return &c
}

// WithChildren is of Node.
func (p *PWindowRank) WithChildren(in []Node) Node {
	c := *p
	c.In = physical(in)
	return &c
}

// WithChildren is of Node.
func (p *PJoin) WithChildren(in []Node) Node {
	c := *p
	c.In = physical(in)
	return &c
}

// WithChildren is of Node.
func (p *PIntervalJoin) WithChildren(in []Node) Node {
	c := *p
	c.In = physical(in)
	return &c
}

// WithChildren is of Node.
func (p *PTemporalJoin) WithChildren(in []Node) Node {
	c := *p
	c.In = physical(in)
	return &c
}

// WithChildren is of Node.
func (p *PLookupJoin) WithChildren(in []Node) Node {
	c := *p
	c.In = physical(in)
	return &c
}

// WithChildren is of Node.
func (p *PTopN) WithChildren(in []Node) Node {
	c := *p
	c.In = physical(in)
	return &c
}

// WithChildren is of Node.
func (p *PLimit) WithChildren(in []Node) Node {
	c := *p
	c.In = physical(in)
	return &c
}

// WithChildren is of Node.
func (p *PDedup) WithChildren(in []Node) Node {
	c := *p
	c.In = physical(in)
	return &c
}

// WithChildren is of Node.
func (p *POverTime) WithChildren(in []Node) Node {
	c := *p
	c.In = physical(in)
	return &c
}

// WithChildren is of Node.
func (p *POverColumn) WithChildren(in []Node) Node {
	c := *p
	c.In = physical(in)
	return &c
}

// WithChildren is of Node.
func (p *PSetCount) WithChildren(in []Node) Node {
	c := *p
	c.In = physical(in)
	return &c
}

// WithChildren is of Node.
func (p *PTimeSort) WithChildren(in []Node) Node {
	c := *p
	c.In = physical(in)
	return &c
}

// WithChildren is of Node.
func (p *PMatch) WithChildren(in []Node) Node {
	c := *p
	c.In = physical(in)
	return &c
}

// WithChildren is of Node.
func (p *PSink) WithChildren(in []Node) Node {
	c := *p
	c.In = physical(in)
	return &c
}

// String is of Node.
func (p *PScan) String() string {
	wm, rt, routed := "", "", ""
	if p.Rowtime >= 0 {
		rt = columnName(&p.Out, p.Rowtime)
	}
	if p.Routed {
		routed = "key"
	}
	if p.FromSource {
		wm = "from the source"
	}
	if p.Watermark != nil {
		wm = Text(p.Watermark)
	}
	return line("Scan "+p.Table.Path.String(), "columns "+tableColumns(p.Table, p.Columns), part("computed", Texts(p.Computed)),
		part("time", rt), part("watermark", wm), part("late to", p.LateRowTable), part("partitioned by", routed))
}

// String is of Node.
func (p *PLateRows) String() string { return "LateRows of " + p.Table.Path.String() }

// String is of Node.
func (p *PValues) String() string {
	return (&Values{Rows: p.Rows}).String()
}

// String is of Node.
func (p *PCalc) String() string {
	return line("Calc", condText("where", p.Cond), aliased(&p.Out, p.Exprs))
}

// String is of Node.
func (p *PUnion) String() string {
	return "Union"
}

// String is of Node.
func (p *PCorrelate) String() string {
	what := part("unnest", Texts(p.Unnest))
	if p.Func != nil {
		what = Text(p.Func)
	}
	return line("Correlate "+map[bool]string{false: "inner", true: "left"}[p.Outer], what, flag("with ordinality", p.Ordinality), condText("on", p.Cond))
}

// String is of Node.
func (p *PExchange) String() string {
	if len(p.Keys) == 0 {
		return "Exchange single"
	}
	n := ""
	if p.Partitions > 0 {
		n = fmt.Sprintf("partitions %d", p.Partitions)
	}
	return line("Exchange", "key "+columnNames(p.in(0), p.Keys), n)
}

// String is of Node.
func (p *PNormalize) String() string {
	return line("Normalize", "key "+columnNames(p.in(0), p.Key), condText("where", p.Cond))
}

// String is of Node.
func (p *PMaterialize) String() string {
	return line("Materialize", "key "+columnNames(p.in(0), p.Key))
}

// String is of Node.
func (p *PDropBefore) String() string {
	return "DropBefore"
}

// String is of Node.
func (p *PGroupAgg) String() string {
	in := p.in(0)
	return line(global("GroupAgg", p.Partial), part("key", columnNames(in, p.Groups)), AggText(aggregated(in, p.Partial), p.Aggs), ttlText(p.TTL))
}

// String is of Node.
func (p *PLocalAgg) String() string {
	in := p.in(0)
	return line("LocalAgg", part("key", columnNames(in, p.Groups)), AggText(in, p.Aggs), windowText(p.Window, in))
}

// String is of Node.
func (p *PWindowAgg) String() string {
	in := p.in(0)
	var window string
	if p.Attached {
		window = "window " + columnNames(in, []int{p.Start, p.End})
	} else {
		window = windowText(&p.Spec, aggregated(in, p.Partial))
	}
	return line(global("WindowAgg", p.Partial), window, part("key", columnNames(in, p.Groups)), AggText(aggregated(in, p.Partial), p.Aggs), propsText(p.Props), p.Emit.text())
}

// global is the name of an aggregate, which says if it merges what local ones gave.
func global(name string, partial *Schema) string {
	if partial != nil {
		return "Global" + name
	}
	return name
}

// aggregated is the schema that aggregates speak of.
func aggregated(in, partial *Schema) *Schema {
	if partial != nil {
		return partial
	}
	return in
}

// String is of Node.
func (p *PWindow) String() string {
	return line("Window", windowText(&p.Spec, p.in(0)))
}

// String is of Node.
func (p *PWindowJoin) String() string {
	return line("WindowJoin "+p.Kind.String(), part("key", p.keysText(p.Keys)), "window "+columnNames(p.in(0), []int{p.Start[0], p.End[0]}), condText("on", p.Cond))
}

// String is of Node.
func (p *PWindowRank) String() string {
	in := p.in(0)
	return line("WindowRank", "window "+columnNames(in, []int{p.Start, p.End}), part("by", columnNames(in, p.Partition)), "order "+SortText(in, p.Order), rankText(p.From, p.To, -1, in), flag("with rank", p.Rank))
}

// String is of Node.
func (p *PJoin) String() string {
	ttl := ""
	if p.TTL[0] != 0 || p.TTL[1] != 0 {
		ttl = "TTL " + p.TTL[0].String() + ", " + p.TTL[1].String()
	}
	return line("Join "+p.Kind.String(), part("key", p.keysText(p.Keys)), condText("on", p.Cond), ttl)
}

// String is of Node.
func (p *PIntervalJoin) String() string {
	return line("IntervalJoin "+p.Kind.String(), part("key", p.keysText(p.Keys)), "time "+columnName(p.in(0), p.Time[0])+" - "+columnName(p.in(1), p.Time[1])+
		" in ["+Millis(p.Lower)+", "+Millis(p.Upper)+"]", condText("on", p.Cond))
}

// String is of Node.
func (p *PTemporalJoin) String() string {
	return line("TemporalJoin "+p.Kind.String(), part("key", p.keysText(p.Keys)), "time "+columnName(p.in(0), p.Time[0])+", "+columnName(p.in(1), p.Time[1]), condText("on", p.Cond))
}

// String is of Node.
func (p *PLookupJoin) String() string {
	keys := make([]string, len(p.Keys))
	for i, k := range p.Keys {
		keys[i] = p.Table.Columns[k.Column].Name + " = " + Text(k.Value)
	}
	return line("LookupJoin "+p.Kind.String(), p.Table.Path.String(), "columns "+tableColumns(p.Table, p.Columns), part("key", strings.Join(keys, ", ")), condText("on", p.Cond))
}

// String is of Node.
func (p *PTopN) String() string {
	in := p.in(0)
	return line("TopN", part("by", columnNames(in, p.Partition)), "order "+SortText(in, p.Order), rankText(p.From, p.To, p.ToColumn, in), flag("with rank", p.Rank), ttlText(p.TTL))
}

// String is of Node.
func (p *PLimit) String() string {
	return limitText("Limit", p.Offset, p.Fetch)
}

// String is of Node.
func (p *PDedup) String() string {
	in := p.in(0)
	which := "first"
	if p.Last {
		which = "last"
	}
	return line("Dedup "+which, "key "+columnNames(in, p.Key), "time "+columnName(in, p.Time), ttlText(p.TTL))
}

// String is of Node.
func (p *POverTime) String() string {
	return overText("OverTime", p.in(0), p.Partition, p.Order, p.Frame, p.Calls)
}

// String is of Node.
func (p *POverColumn) String() string {
	return line(overText("OverColumn", p.in(0), p.Partition, p.Order, p.Frame, p.Calls), ttlText(p.TTL))
}

// String is of Node.
func (p *PSetCount) String() string {
	return line(p.Kind.String()+flag(" ALL", p.All), ttlText(p.TTL))
}

// String is of Node.
func (p *PTimeSort) String() string {
	return line("TimeSort", SortText(p.in(0), p.Keys))
}

// String is of Node.
func (p *PMatch) String() string {
	return matchText("Match", p.in(0), &p.Out, p.Partition, p.Order, p.Pattern, p.Variables, p.Defines, p.Measures, p.Skip, p.SkipTo, p.Within)
}

// String is of Node.
func (p *PSink) String() string {
	if p.Table == nil {
		return "Sink collect"
	}
	return line("Sink "+p.Table.Path.String(), "columns "+tableColumns(p.Table, p.Columns), part("key", columnNames(p.in(0), p.Key)))
}

func windowText(w *WindowSpec, in *Schema) string {
	if w == nil {
		return ""
	}
	return w.text(in)
}

func rankText(from, to int64, column int, in *Schema) string {
	last := strconv.FormatInt(to, 10)
	if column >= 0 {
		last = columnName(in, column)
	}
	return "rows " + strconv.FormatInt(from, 10) + " to " + last
}

func (o EmitOptions) text() string {
	out := ""
	if o.EarlyDelay >= 0 {
		out = line(out, "early "+Millis(o.EarlyDelay))
	}
	if o.LateDelay >= 0 {
		out = line(out, "late "+Millis(o.LateDelay))
	}
	if o.AllowLateness >= 0 {
		out = line(out, "lateness "+Millis(o.AllowLateness))
	}
	return out
}
