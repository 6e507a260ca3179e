// Package datagen is the connector of tables whose rows are made up: at a rate, by chance or counted up, for trials, tests
// and benchmarks.
package datagen

import (
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strconv"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/catalog"
)

// New is the connector 'datagen'.
func New() connector.Connector { return maker{} }

type maker struct{}

var options = []format.Option{
	{Name: "rows-per-second", Kind: format.Integer, Default: "10000", Doc: "How many rows are made in a second, by all subtasks together. What is not in time is made up for within a second; more than that is left out."},
	{Name: "number-of-rows", Kind: format.Integer, Doc: "How many rows there are, of all subtasks together: then the table ends. Without it, and without a sequence, it does not end."},
	{Name: "scan.parallelism", Kind: format.Integer, Default: "1", Doc: "In how many subtasks rows are made. The rows are the same whatever the number is."},
	{Name: "seed", Kind: format.Text, Doc: "A number that rows are made from: the same one makes the same rows (times of the present aside). Flink has no such option. By default it is another one at each start of an app that goes on with no state."},
	{Name: "fields.*", Kind: format.Text, Doc: "How the values of a column are made: `fields.<column>.<setting>`. " +
		"**kind**: `random` (default) or `sequence`, which counts from **start** to **end**, after which the table ends (numbers and text). " +
		"**min**, **max**: bounds of random numbers, by default all of the type; of FLOAT, DOUBLE and DECIMAL from 0 on. " +
		"**length**: of random text and bytes, by default that of the type, or 100 if it has none; of ARRAY, MAP and MULTISET, by default 3. " +
		"**var-len**: `true` makes VARCHAR, STRING, VARBINARY and BYTES of any length from 1 to that. " +
		"**max-past**: a TIMESTAMP is of the present, or by chance up to so long ago, as 10 s. " +
		"**null-rate**: which part of the values is NULL, 0 to 1. " +
		"What is inside of a column is named by a path: `fields.a.b.min` of field b of a ROW, `fields.a.element.min` of an ARRAY or MULTISET, `fields.a.key.min` and `fields.a.value.min` of a MAP. DATE and TIME are always of the present."},
}

// Spec is of connector.Connector.
func (maker) Spec() connector.Spec {
	return connector.Spec{Options: options,
		Doc: "Makes up rows of all types, by chance or counted up. A restart goes on behind the last committed row: no row comes twice, and none is left out."}
}

// Traits is of connector.Connector.
func (maker) Traits(t connector.Table) (connector.Traits, error) {
	_, err := read(t)
	return connector.Traits{Reads: catalog.Append, CanRead: true}, err
}

// Sink is of connector.Connector.
func (maker) Sink(connector.Table) (*connector.Sink, error) {
	return nil, errors.New("connector 'datagen' can be read only")
}

// Lookup is of connector.Connector.
func (maker) Lookup(connector.Table, []int) (*connector.Lookup, error) {
	return nil, errors.New("connector 'datagen' can be read only")
}

// recipe is what a table asks for.
type recipe struct {
	rate    int64
	rows    int64 // MaxInt64 = no end
	seed    uint64
	seeded  bool
	workers int
	columns []value // by ordinal of the table; nil of those that are not physical
}

// read checks the options of a table.
func read(t connector.Table) (*recipe, error) {
	o, err := connector.Options(t.Options, options)
	if err != nil {
		return nil, err
	}
	r := &recipe{rate: o.Int("rows-per-second"), rows: math.MaxInt64, workers: int(o.Int("scan.parallelism"))}
	if r.rate < 1 {
		return nil, fmt.Errorf("option 'rows-per-second' = '%d': must be at least 1", r.rate)
	}
	if r.workers < 1 || r.workers > 1024 {
		return nil, fmt.Errorf("option 'scan.parallelism' = '%d': must be 1 to 1024", r.workers)
	}
	if o.Has("number-of-rows") {
		if r.rows = o.Int("number-of-rows"); r.rows < 0 {
			return nil, fmt.Errorf("option 'number-of-rows' = '%d': must not be negative", r.rows)
		}
	}
	if r.seeded = o.Has("seed"); r.seeded {
		n, err := strconv.ParseInt(o.Text("seed"), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("option 'seed' = '%s': must be a whole number", o.Text("seed"))
		}
		r.seed = uint64(n)
	}
	f := fields{set: o.Prefixed("fields."), zone: t.Zone, rows: &r.rows}
	r.columns = make([]value, len(t.Table.Columns))
	for i, c := range t.Table.Columns {
		if c.Kind != catalog.Physical {
			if c.Kind == catalog.Metadata {
				return nil, fmt.Errorf("column %s: connector 'datagen' has no metadata", c.Name)
			}
			continue
		}
		if r.columns[i], err = f.value(c.Name, c.Type); err != nil {
			return nil, err
		}
	}
	return r, f.unused()
}

// Source is of connector.Connector.
func (maker) Source(t connector.Table) (*connector.Source, error) {
	r, err := read(t)
	if err != nil {
		return nil, err
	}
	return &connector.Source{Generate: &connector.Generate{Parallelism: r.workers,
		Open: func(ctx *processor.SubtaskContext, position []byte) (connector.Generator, error) {
			s := ctx.Subtask()
			return open(r, t, int64(s.Index), int64(s.Parallelism), position)
		}}}, nil
}

// generator makes the rows of a subtask: of all rows 0, 1, 2 ... those whose number is subtask modulo subtasks. A row
// depends on its number and the seed alone, so the position is how many were made.
type generator struct {
	*recipe
	t                 connector.Table
	subtask, subtasks int64
	seed              uint64
	made              int64

	draw draw
	pcg  *rand.PCG
	// When made was base it was since, in us: the pace is counted from there.
	base, since int64
	began       bool
}

// open makes the generator of a subtask.
func open(r *recipe, t connector.Table, subtask, subtasks int64, position []byte) (*generator, error) {
	g := &generator{recipe: r, t: t, subtask: subtask, subtasks: subtasks, seed: r.seed, pcg: rand.NewPCG(0, 0)}
	g.draw.Rand = rand.New(g.pcg)
	switch {
	case position != nil:
		if len(position) < 9 {
			return nil, errors.New("the position of the table is damaged")
		}
		if kept := binary.BigEndian.Uint64(position); !r.seeded {
			g.seed = kept
		}
		n, k := binary.Varint(position[8:])
		if k <= 0 || n < 0 {
			return nil, errors.New("the position of the table is damaged")
		}
		g.made = n
	case !r.seeded:
		var b [8]byte
		if _, err := crand.Read(b[:]); err != nil {
			return nil, fmt.Errorf("choose a seed: %w", err)
		}
		g.seed = binary.BigEndian.Uint64(b[:])
	}
	return g, nil
}

// Next is of connector.Generator.
func (g *generator) Next(now int64, next func() *row.Row) (again int64, err error) {
	number := g.subtask + g.made*g.subtasks
	if number >= g.rows {
		return 0, io.EOF
	}
	if due := g.due(now); due > now {
		return due, nil
	}
	r := next()
	r.Kind = row.Insert
	g.draw.number, g.draw.now = number, now
	for i, c := range g.t.Columns {
		column := g.columns[c]
		if column == nil {
			continue
		}
		g.pcg.Seed(g.seed, mix(uint64(number), uint64(c)))
		g.t.Layout.Set(r, i, column(&g.draw))
	}
	g.made++
	if number+g.subtasks >= g.rows {
		return 0, io.EOF
	}
	return g.due(now), nil
}

// due is when the next row is.
func (g *generator) due(now int64) int64 {
	if !g.began {
		g.began, g.base, g.since = true, g.made, now*1000
	}
	// In us: row n of a subtask is due n * subtasks / rate seconds after the first.
	at := g.since + int64(float64(g.made-g.base)*float64(g.subtasks)*1e6/float64(g.rate))
	if late := now*1000 - at; late > 1e6 { // what is more than a second late is not made up for
		g.since += late - 1e6
		at += late - 1e6
	}
	return (at + 999) / 1000
}

// Position is of connector.Generator.
func (g *generator) Position(dst []byte) []byte {
	return binary.AppendVarint(binary.BigEndian.AppendUint64(dst, g.seed), g.made)
}

// Close is of connector.Generator.
func (g *generator) Close() error { return nil }

// mix makes a seed of a row's number and a column.
func mix(number, column uint64) uint64 {
	z := number*0x9e3779b97f4a7c15 + column*0xd1b54a32d192ed03 + 1
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
