package compile

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/expr"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
	"github.com/millrace-stream/millrace/statestore"
)

// readScans finds the scans of each table, and the tables of each topic: a topic is read once, whatever a plan reads of it.
func (c *compiler) readScans(p *rel.Plan) error {
	var order []*rel.PScan
	seen := map[rel.Node]bool{}
	for _, s := range p.Sinks {
		rel.Walk(s, func(n rel.Node) bool {
			if seen[n] {
				return false
			}
			seen[n] = true
			if scan, ok := n.(*rel.PScan); ok {
				c.fields.scan(scan)
				key := tableKey(scan)
				c.routed[key] = c.routed[key] || scan.Routed
				if c.scans[key] == nil {
					order = append(order, scan)
				}
				c.scans[key] = append(c.scans[key], scan)
			}
			for _, in := range n.Children() {
				if scan, ok := in.(*rel.PScan); ok {
					c.fields.input(n, scan)
				}
			}
			return true
		})
	}
	for _, scan := range order {
		r, err := c.read(c.whole(scan))
		if err != nil {
			return err
		}
		for _, topic := range r.source.Topics {
			c.readers[topic] = append(c.readers[topic], r)
		}
	}
	return nil
}

// whole is the scan that has all that is read of the table of a scan.
func (c *compiler) whole(n *rel.PScan) *rel.PScan {
	key := tableKey(n)
	if w := c.merged[key]; w != nil {
		return w
	}
	all := c.scans[key]
	first, merged := all[0], false
	for _, s := range all {
		if !same(s, all[0]) {
			merged = true
		}
		if s.Rowtime >= 0 && first.Rowtime < 0 {
			first = s
		}
	}
	if merged {
		first = mergeScans(first, all)
	}
	c.merged[key] = first
	return first
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
	whole := c.whole(n)
	if n == whole {
		return c.source(n)
	}
	if same(n, whole) {
		return c.node(whole)
	}
	if _, err := c.node(whole); err != nil {
		return stream{}, err
	}
	part := &rel.PCalc{Phys: rel.Phys{Base: n.Base, In: []rel.Physical{whole}, Traits: n.Traits}, Exprs: []rel.Expr{}} // there may be no column
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

// source makes the source of a scan that has all that is read of its table.
func (c *compiler) source(n *rel.PScan) (stream, error) {
	r, err := c.read(n)
	if err != nil {
		return stream{}, err
	}
	if r.source.Generate != nil {
		return c.generate(r)
	}
	var own []string
	var parts []stream
	for _, topic := range r.source.Topics {
		if len(c.readers[topic]) < 2 {
			own = append(own, topic)
			continue
		}
		s, err := c.shared(topic)
		if err != nil {
			return stream{}, err
		}
		parts = append(parts, c.part(r, topic, s))
	}
	if len(own) > 0 {
		parts = append(parts, processor.FromRaw(c.top, processor.RawTopic[*row.Row]{Topics: own, ID: c.id(n, "scan"), Idle: r.idle, Start: r.source.Start, End: r.source.End, Pattern: r.source.Pattern,
			Open: func(ctx *processor.SubtaskContext) (processor.Decoder[*row.Row], error) { return c.decoder(ctx, r) }}, c.sourceOptions(r.source.OnError)...))
	}
	if len(parts) == 1 {
		return parts[0], nil
	}
	all := make([]flow, len(parts))
	for i, p := range parts {
		all[i] = p
	}
	return processor.Union(all[0], all[1:]...), nil
}

func (c *compiler) sourceOptions(onError processor.Policy) []processor.Option {
	var o []processor.Option
	if c.o.OneSubtask {
		o = append(o, processor.Parallelism(1))
	}
	if onError != 0 {
		o = append(o, processor.OnError(onError))
	}
	return o
}

// reading is a table as it is read: by one scan that has all that is wanted of it.
type reading struct {
	scan   *rel.PScan
	layout *row.Layout
	source *connector.Source
	idle   time.Duration
}

// read asks the connector of a scan for its source.
func (c *compiler) read(n *rel.PScan) (*reading, error) {
	if r := c.readings[n]; r != nil {
		return r, nil
	}
	r := &reading{scan: n, layout: rel.Layout(n)}
	conn, err := c.o.Connector(n.Table, n.Options)
	if err != nil {
		return nil, fail(n, "E3701", err)
	}
	r.source, err = conn.Source(connector.Table{Table: n.Table, Options: n.Options, Columns: n.Columns, Fields: c.fields.of(n), Layout: r.layout, Zone: c.o.Zone})
	if err != nil {
		return nil, fail(n, "E3702", fmt.Errorf("read table %s: %w", n.Table.Path, err))
	}
	r.source.Idle = cmp.Or(r.source.Idle, c.o.Idle)
	r.idle = cmp.Or(r.source.Idle, c.o.Idle)
	if err := c.settle(n, n.Table, r.source.Settings); err != nil {
		return nil, err
	}
	// Once at plan time, for the errors.
	if _, err := newScan(n, r.layout, c.planEnv()); err != nil {
		return nil, err
	}
	c.readings[n] = r
	return r, nil
}

// decoder makes the decoder of a partition.
func (c *compiler) decoder(ctx *processor.SubtaskContext, r *reading) (*scanDecoder, error) {
	d, err := newScan(r.scan, r.layout, c.envOf(ctx))
	if err != nil {
		return nil, err
	}
	c.watch(d, r)
	if c.routed[tableKey(r.scan)] {
		d.routed = routedOf(ctx)
		advice := fmt.Sprintf("table %s says 'partitioned-by' = 'key', which is not so: take the option away", r.scan.Table.Path)
		d.route = func(key []byte) (statestore.Group, error) { return ctx.Routed(key, advice) }
	}
	d.now = ctx.Now
	d.in, err = r.source.Open(ctx)
	return d, err
}

// watch sets what tests and checks want to know.
func (c *compiler) watch(d *scanDecoder, r *reading) {
	if c.o.Watch != nil {
		d.watch = func(time, before int64) { c.o.Watch(r.scan.Table, time, before, d.highest) }
	}
}

// scanDecoder is the decoder of one partition of a table, with its computed columns, event time and watermark.
type scanDecoder struct {
	now    func() int64
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

	key     []byte // of the record
	keyless bool
	route   func(key []byte) (statestore.Group, error)
	routed  *routed
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

// begin forgets the record before; timestamp is that of the one that follows.
func (d *scanDecoder) begin(timestamp int64) {
	d.used, d.mark, d.timestamp = 0, processor.NoTime, timestamp
}

// Decode is of processor.Decoder.
func (d *scanDecoder) Decode(r *processor.SourceRecord) (int64, error) {
	d.begin(r.Timestamp)
	if r.Timestamp < 0 {
		d.timestamp = processor.NoTime
	}
	if d.route != nil {
		d.key = append(d.key[:0], r.Key...)
		d.keyless = r.Key == nil
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
		d.env.Now = d.now()
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
func (d *scanDecoder) Run(emit func(r *row.Row) error) (err error) {
	if d.route != nil && d.used > 0 {
		key := d.key
		if d.keyless {
			key = nil
		}
		if d.routed.group, err = d.route(key); err != nil {
			return err
		}
	}
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
