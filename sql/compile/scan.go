package compile

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/expr"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
)

// readScans finds the scans of each table: a topic is read once, whatever a plan reads of it.
func (c *compiler) readScans(p *rel.Plan) {
	seen := map[rel.Node]bool{}
	for _, s := range p.Sinks {
		rel.Walk(s, func(n rel.Node) bool {
			if seen[n] {
				return false
			}
			seen[n] = true
			if scan, ok := n.(*rel.PScan); ok {
				key := tableKey(scan)
				c.scans[key] = append(c.scans[key], scan)
			}
			return true
		})
	}
}

// tableKey tells apart what is read by itself.
func tableKey(n *rel.PScan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %v %s", n.Table.Path, n.FromSource, n.LateRowTable)
	for _, k := range slices.Sorted(maps.Keys(n.Options)) {
		fmt.Fprintf(&b, "|%s=%s", k, n.Options[k])
	}
	return b.String()
}

// same says that two scans of a table give the same rows.
func same(a, b *rel.PScan) bool {
	return slices.Equal(a.Columns, b.Columns) && a.Rowtime == b.Rowtime && sameExprs(a.Computed, b.Computed) && rel.Equal(a.Watermark, b.Watermark)
}

func sameExprs(a, b []rel.Expr) bool {
	return slices.EqualFunc(a, b, rel.Equal)
}

// scan reads a table. Where it is read in several ways, one source has all columns that are wanted, and each way is a step
// behind it.
func (c *compiler) scan(n *rel.PScan) (stream, error) {
	all := c.scans[tableKey(n)]
	first := all[0]
	merged := false
	for _, s := range all {
		if !same(s, first) {
			merged = true
		}
		if s.Rowtime >= 0 && first.Rowtime < 0 {
			first = s
		}
	}
	if !merged {
		if n != first {
			return c.node(first)
		}
		return c.source(n)
	}
	key := tableKey(n)
	whole := c.merged[key]
	if whole == nil {
		whole = mergeScans(first, all)
		c.merged[key] = whole
		s, err := c.source(whole)
		if err != nil {
			return stream{}, err
		}
		c.nodes[whole] = s
	}
	part := &rel.PCalc{Phys: rel.Phys{Base: n.Base, In: []rel.Physical{whole}, Traits: n.Traits}}
	at := func(i int) rel.Expr {
		j := slices.Index(whole.Columns, n.Columns[i])
		return rel.NewColumn(n.Out.Types[i], j, 0, n.Out.Names[i], n.Pos)
	}
	for i := range n.Columns {
		part.Exprs = append(part.Exprs, at(i))
	}
	for _, e := range n.Computed {
		part.Exprs = append(part.Exprs, rel.Substitute(e, part.Exprs))
	}
	return c.calc(part, []flow{c.nodes[whole]})
}

// mergeScans makes the scan that has the columns of all, and the event time and watermark of first.
func mergeScans(first *rel.PScan, all []*rel.PScan) *rel.PScan {
	m := *first
	m.Id += "-all"
	m.Columns = nil
	for _, s := range all {
		m.Columns = append(m.Columns, s.Columns...)
	}
	slices.Sort(m.Columns)
	m.Columns = slices.Compact(m.Columns)
	to := func(i int) int {
		if i >= len(first.Columns) {
			return len(m.Columns) + i - len(first.Columns)
		}
		return slices.Index(m.Columns, first.Columns[i])
	}
	m.Out = rel.Schema{}
	for _, col := range m.Columns {
		m.Out.Names = append(m.Out.Names, m.Table.Columns[col].Name)
		m.Out.Types = append(m.Out.Types, m.Table.Columns[col].Type)
	}
	m.Computed = nil
	for i, e := range first.Computed {
		m.Computed = append(m.Computed, rel.Remap(e, to))
		m.Out.Names = append(m.Out.Names, first.Out.Names[len(first.Columns)+i])
		m.Out.Types = append(m.Out.Types, first.Out.Types[len(first.Columns)+i])
	}
	if first.Rowtime >= 0 {
		m.Rowtime = to(first.Rowtime)
	}
	if first.Watermark != nil {
		m.Watermark = rel.Remap(first.Watermark, to)
	}
	return &m
}

// source makes the source of a scan.
func (c *compiler) source(n *rel.PScan) (stream, error) {
	layout := rel.Layout(n)
	conn, err := c.o.Connector(n.Table, n.Options)
	if err != nil {
		return stream{}, fail(n, "E3701", err)
	}
	source, err := conn.Source(connector.Table{Table: n.Table, Options: n.Options, Columns: n.Columns, Layout: layout, Zone: c.o.Zone})
	if err != nil {
		return stream{}, fail(n, "E3702", fmt.Errorf("read table %s: %w", n.Table.Path, err))
	}
	// Once at plan time, for the errors.
	if _, err := newScan(n, layout, c.planEnv()); err != nil {
		return stream{}, err
	}
	var o []processor.Option
	if c.o.OneSubtask {
		o = append(o, processor.Parallelism(1))
	}
	return processor.FromRaw(c.top, processor.RawTopic[*row.Row]{Topics: source.Topics, ID: c.id(n, "scan"), Idle: cmp.Or(source.Idle, c.o.Idle), Start: source.Start,
		Open: func(ctx *processor.SubtaskContext) (processor.Decoder[*row.Row], error) {
			d, err := newScan(n, layout, c.envOf(ctx))
			if err != nil {
				return nil, err
			}
			d.ctx = ctx
			if c.o.Watch != nil {
				d.watch = func(time, before int64) { c.o.Watch(n.Table, time, before, d.highest) }
			}
			d.in, err = source.Open(ctx)
			return d, err
		}}, o...), nil
}

// scanDecoder is the decoder of one partition of a table, with its computed columns, event time and watermark.
type scanDecoder struct {
	ctx    *processor.SubtaskContext
	in     connector.Decoder
	env    *fn.Env
	layout *row.Layout
	rows   []*row.Row // what the record was decoded to are the first used ones
	used   int
	next   func() *row.Row

	computed  []func(out, in *row.Row)
	early     int // so many of them are needed for the event time
	timed     bool
	column    int // that is the event time
	word      int
	watermark func(r *row.Row) (int64, bool)
	timestamp int64 // of the record
	mark      int64
	highest   int64                    // watermark since the start
	watch     func(time, before int64) // Options.Watch
}

func newScan(n *rel.PScan, layout *row.Layout, env *fn.Env) (*scanDecoder, error) {
	d := &scanDecoder{env: env, layout: layout, mark: processor.NoTime, highest: processor.NoTime}
	d.next = func() *row.Row {
		if d.used == len(d.rows) {
			d.rows = append(d.rows, layout.New())
		}
		r := d.rows[d.used]
		d.used++
		r.Kind, r.Time, r.Plain = row.Insert, d.timestamp, 0
		for i := range layout.Len() {
			r.SetNull(i)
		}
		return r
	}
	for i, e := range n.Computed {
		code, err := expr.Compile(env, layout, e)
		if err != nil {
			return nil, err
		}
		at := e.Where()
		d.computed = append(d.computed, expr.Store(layout, len(n.Columns)+i, code, fn.Place{Source: at.Source, Start: at.Span.Start, End: at.Span.End}))
	}
	if d.timed = n.Rowtime >= 0; d.timed {
		d.column, d.word = n.Rowtime, layout.Place(n.Rowtime).Index
		d.early = max(0, n.Rowtime-len(n.Columns)+1)
	}
	if n.Watermark != nil {
		code, err := expr.Compile(env, layout, n.Watermark)
		if err != nil {
			return nil, err
		}
		if d.watermark = code.Int; code.Int == nil {
			return nil, fail(n, "E3703", fmt.Errorf("a watermark must be a TIMESTAMP or TIMESTAMP_LTZ of at most 3 digits, not %s", n.Watermark.Type()))
		}
	}
	return d, nil
}

// Decode is of processor.Decoder.
func (d *scanDecoder) Decode(r *processor.SourceRecord) (int64, error) {
	d.used, d.mark, d.timestamp = 0, processor.NoTime, r.Timestamp
	if r.Timestamp < 0 {
		d.timestamp = processor.NoTime
	}
	if err := d.in.Decode(r, d.next); err != nil {
		return 0, err
	}
	if d.used == 0 {
		return processor.NoTime, nil
	}
	if !d.timed {
		return d.timestamp, nil
	}
	first := d.rows[0]
	if d.early > 0 {
		d.env.Now = d.ctx.Now()
		d.env.Arena.Reset()
		for _, f := range d.computed[:d.early] {
			f(first, first)
		}
	}
	return d.timeOf(first), nil
}

func (d *scanDecoder) timeOf(r *row.Row) int64 {
	if r.Null(d.column) {
		return processor.NoTime
	}
	return r.Int64(d.word)
}

// Run is of processor.Decoder.
func (d *scanDecoder) Run(emit func(r *row.Row) error) error {
	for _, r := range d.rows[:d.used] {
		for _, f := range d.computed {
			f(r, r)
		}
		if d.timed {
			r.Time = d.timeOf(r)
		}
		before := d.highest
		if d.watermark != nil {
			if w, ok := d.watermark(r); ok {
				d.mark = max(d.mark, w)
				d.highest = max(d.highest, w)
			}
		}
		if d.timed && d.watch != nil {
			d.watch(r.Time, before)
		}
		if err := emit(r); err != nil {
			return err
		}
	}
	return nil
}

// Watermark is of processor.Decoder.
func (d *scanDecoder) Watermark() int64 { return d.mark }

// planEnv is an Env for compiling at plan time.
func (c *compiler) planEnv() *fn.Env {
	return &fn.Env{Zone: c.o.Zone, Watermark: math.MinInt64, Rand: func() uint64 { return 0 }}
}
