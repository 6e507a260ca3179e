package compile

import (
	"fmt"
	"math"
	"strings"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/expr"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
)

// scan reads a table. Scans that are the same share one source: a topic is read once.
func (c *compiler) scan(n *rel.PScan) (stream, error) {
	key := scanKey(n)
	if s, ok := c.scans[key]; ok {
		return s, nil
	}
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
	s := processor.FromRaw(c.top, processor.RawTopic[*row.Row]{Topics: source.Topics, ID: c.id(n, "scan"), Idle: source.Idle, Start: source.Start,
		Open: func(ctx *processor.SubtaskContext) (processor.Decoder[*row.Row], error) {
			d, err := newScan(n, layout, c.envOf(ctx))
			if err != nil {
				return nil, err
			}
			d.ctx = ctx
			d.in, err = source.Open(ctx)
			return d, err
		}})
	c.scans[key] = s
	return s, nil
}

// scanKey tells scans apart that are not the same.
func scanKey(n *rel.PScan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %v %d %v", n.Table.Path, n.Columns, n.Rowtime, n.Options)
	for _, e := range n.Computed {
		fmt.Fprintf(&b, "|%v", e)
	}
	fmt.Fprintf(&b, "|%v %s", n.Watermark, n.LateRowTable)
	return b.String()
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
}

func newScan(n *rel.PScan, layout *row.Layout, env *fn.Env) (*scanDecoder, error) {
	d := &scanDecoder{env: env, layout: layout}
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
		if d.watermark != nil {
			if w, ok := d.watermark(r); ok {
				d.mark = max(d.mark, w)
			}
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
