package sqltest

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/internal/record"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/catalog"
)

// testTables is the connector of users' tests: a table is a topic of packed rows, with the traits that its own connector
// gives it, so that the plan is that of the pipeline.
type testTables struct {
	real connector.Connector
	// found has the rows of tables that are looked up, by topic.
	found map[string][]*row.Row
}

func (c *testTables) Spec() connector.Spec { return c.real.Spec() }

func (c *testTables) Traits(t connector.Table) (connector.Traits, error) { return c.real.Traits(t) }

// tableTopic is the topic that stands for a table in tests.
func tableTopic(t *catalog.Table) string { return topicOf(t.Path.String()) }

// stored are the columns of a table that its topic has: all but the computed ones; and their layout.
func stored(t *catalog.Table) (columns []int, l *row.Layout) {
	var types []*row.Type
	for i := range t.Columns {
		if t.Columns[i].Kind != catalog.Computed {
			columns, types = append(columns, i), append(types, t.Columns[i].Type)
		}
	}
	return columns, row.NewLayout(types...)
}

func (c *testTables) Source(t connector.Table) (*connector.Source, error) {
	return &connector.Source{Topics: []string{tableTopic(t.Table)}, Open: func(*processor.SubtaskContext) (connector.Decoder, error) {
		columns, all := stored(t.Table)
		d := &packedDecoder{all: all, full: all.New(), layout: t.Layout}
		for _, c := range t.Columns {
			d.from = append(d.from, slices.Index(columns, c))
		}
		return d, nil
	}}, nil
}

// packedDecoder reads the columns that are wanted of packed rows.
type packedDecoder struct {
	all, layout *row.Layout
	full        *row.Row
	from        []int
}

func (d *packedDecoder) Decode(r *processor.SourceRecord, next func() *row.Row) error {
	if err := d.all.UnpackKind(r.Value, d.full); err != nil {
		return err
	}
	d.take(d.full, next())
	return nil
}

func (d *packedDecoder) take(full, r *row.Row) {
	r.Kind = full.Kind
	for i, from := range d.from {
		d.layout.CopyColumn(r, i, d.all, full, from)
	}
}

func (c *testTables) Sink(t connector.Table) (*connector.Sink, error) {
	return &connector.Sink{Topic: tableTopic(t.Table), Open: func(_ *processor.SubtaskContext, w *processor.SinkWriter) (func(*row.Row) error, error) {
		columns, all := stored(t.Table)
		full := nulls(all)
		return func(r *row.Row) error {
			for i, c := range t.Columns {
				all.CopyColumn(full, slices.Index(columns, c), t.Layout, r, i)
			}
			full.Kind = r.Kind
			return w.Write(processor.SinkRecord{Value: w.Keep(all.PackKind(w.Buf(), full)), Timestamp: w.Now(), Partition: 0})
		}, nil
	}}, nil
}

func (c *testTables) Lookup(t connector.Table, keys []int) (*connector.Lookup, error) {
	topic := tableTopic(t.Table)
	if c.found[topic] == nil {
		c.found[topic] = []*row.Row{}
	}
	return &connector.Lookup{Open: func() (func(context.Context, *row.Row, func() *row.Row) error, error) {
		columns, all := stored(t.Table)
		d := &packedDecoder{all: all, layout: t.Layout}
		var types []*row.Type
		var of, ask []int
		for i, k := range keys {
			types, ask = append(types, t.Layout.Type(k)), append(ask, i)
			of = append(of, slices.Index(columns, t.Columns[k]))
		}
		for _, c := range t.Columns {
			d.from = append(d.from, slices.Index(columns, c))
		}
		rowKeys, askKeys := row.NewKeyEncoder(all, of...), row.NewKeyEncoder(row.NewLayout(types...), ask...)
		return func(_ context.Context, key *row.Row, next func() *row.Row) error {
			want := askKeys.Append(nil, key)
			for _, full := range c.found[topic] {
				if bytes.Equal(rowKeys.Append(nil, full), want) {
					d.take(full, next())
				}
			}
			return nil
		}, nil
	}}, nil
}

// tableRow makes the row of a table of a JSON object. Columns that it does not name are NULL.
func tableRow(t *catalog.Table, r TestRow) (*row.Row, error) {
	obj, err := parseObject([]byte(r.JSON))
	if err != nil {
		return nil, err
	}
	columns, all := stored(t)
	full := nulls(all)
	full.Kind = r.Kind
	for _, name := range sortedKeys(obj) {
		i := slices.Index(columns, t.Column(name))
		if i < 0 {
			return nil, unknownColumn(t, name)
		}
		v, err := testValue(t.Columns[columns[i]].Type, obj[name])
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", name, err)
		}
		if v == nil {
			full.SetNull(i)
			continue
		}
		all.Set(full, i, v)
	}
	return full, nil
}

// record is the record of a row of a table in its topic.
func rowRecord(t *catalog.Table, r *row.Row, now int64) record.Record {
	_, all := stored(t)
	return record.Record{Value: all.PackKind(nil, r), Timestamp: now}
}
