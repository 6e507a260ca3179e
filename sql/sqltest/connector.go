package sqltest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/catalog"
)

// lines is the connector of case files: a table is a topic of lines, a value is the line as JSON, and a header its kind.
type lines struct {
	// all are the lines of the file by table, for lookups.
	all map[string][]Line
	// collect takes what is written to a table.
	collect func(l *row.Layout) *connector.Sink
}

// kindHeader is the header with the kind of a row.
const kindHeader = "kind"

// TopicOf is the topic that a table of a case is.
func topicOf(name string) string {
	clean := strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '.'
	}, name)
	return "table-" + clean
}

func (c *lines) Spec() connector.Spec { return connector.Spec{Doc: "A table of a case."} }

func (c *lines) Traits(t connector.Table) (connector.Traits, error) {
	tr := connector.Traits{Reads: catalog.Append, Writes: catalog.Retract, CanRead: true, CanWrite: true, CanLookup: t.Options["lookup"] == "true"}
	switch mode := t.Options["changelog-mode"]; mode {
	case "", "append":
	case "all":
		tr.Reads = catalog.Retract
	case "upsert":
		tr.Reads, tr.Writes = catalog.Upsert, catalog.Upsert
		if t.Key == nil && t.Table.Key == nil {
			return tr, errors.New("'changelog-mode' = 'upsert' needs a PRIMARY KEY")
		}
	default:
		return tr, fmt.Errorf("'changelog-mode' = '%s' is none of append, all, upsert", mode)
	}
	if t.Options["format"] == "debezium-json" {
		tr.Reads = catalog.Retract
	}
	for _, name := range keyFields(t.Options) {
		c := t.Column(name)
		tr.Keyed = append(tr.Keyed, c)
		tr.KeyForm += t.Table.Columns[c].Type.Plain().String() + " "
	}
	return tr, nil
}

// keyFields are the columns by which the lines of a table lie on partitions: its option 'partitioned-by', with commas.
func keyFields(options map[string]string) []string {
	if options["partitioned-by"] == "" {
		return nil
	}
	return strings.Split(options["partitioned-by"], ",")
}

func (c *lines) Source(t connector.Table) (*connector.Source, error) {
	return &connector.Source{Topics: []string{topicOf(t.Path.Name)}, Open: func(*processor.SubtaskContext) (connector.Decoder, error) {
		return newLineDecoder(t)
	}}, nil
}

func (c *lines) Sink(t connector.Table) (*connector.Sink, error) { return c.collect(t.Layout), nil }

func (c *lines) Lookup(t connector.Table, keys []int) (*connector.Lookup, error) {
	return &connector.Lookup{Open: func() (func(context.Context, *row.Row, func() *row.Row) error, error) {
		d, err := newLineDecoder(t)
		if err != nil {
			return nil, err
		}
		var found []*row.Row
		for _, l := range c.all[t.Path.Name] {
			if l.Control != "" {
				continue
			}
			if err := d.decode([]byte(l.Text), l.Kind, func() *row.Row {
				found = append(found, nulls(t.Layout))
				return found[len(found)-1]
			}); err != nil {
				return nil, err
			}
		}
		rowKeys := row.NewKeyEncoder(t.Layout, keys...)
		var types []*row.Type
		var columns []int
		for i, k := range keys {
			types = append(types, t.Layout.Type(k))
			columns = append(columns, i)
		}
		askKeys := row.NewKeyEncoder(row.NewLayout(types...), columns...)
		return func(_ context.Context, key *row.Row, next func() *row.Row) error {
			want := askKeys.Append(nil, key)
			for _, r := range found {
				if bytes.Equal(rowKeys.Append(nil, r), want) {
					t.Layout.Assign(next(), r)
				}
			}
			return nil
		}, nil
	}}, nil
}

func nulls(l *row.Layout) *row.Row {
	r := l.New()
	for i := range l.Len() {
		r.SetNull(i)
	}
	return r
}

// lineDecoder reads lines as messages of the table's format.
type lineDecoder struct {
	in   format.RowDecoder
	next func() *row.Row // of Decode
	kind row.RowKind     // that the line says, where the format does not tell kinds
	rows func() *row.Row
}

func newLineDecoder(t connector.Table) (*lineDecoder, error) {
	name, spec := "json", format.JSONRows()
	if t.Options["format"] == "debezium-json" {
		name, spec = "debezium-json", format.DebeziumRows()
	}
	o, err := format.ReadOptions(name+".", t.Options, spec.Options)
	if err != nil {
		return nil, err
	}
	f, err := spec.New(o)
	if err != nil {
		return nil, err
	}
	s := format.RowSchema{Layout: t.Layout, Zone: t.Zone}
	for i, c := range t.Columns {
		s.Columns = append(s.Columns, format.RowColumn{Name: t.Table.Columns[c].Name, Type: t.Table.Columns[c].Type, Index: i, Fields: t.FieldsOf(i)})
	}
	d := &lineDecoder{}
	d.rows = func() *row.Row { return d.next() }
	if !spec.Changes {
		d.rows = func() *row.Row {
			r := d.next()
			r.Kind = d.kind
			return r
		}
	}
	d.in, err = f.RowDecoder(s)
	return d, err
}

func (d *lineDecoder) Decode(r *processor.SourceRecord, next func() *row.Row) error {
	kind := row.Insert
	for _, h := range r.Headers {
		if h.Key == kindHeader {
			kind, _ = row.ParseRowKind(string(h.Value))
		}
	}
	return d.decode(r.Value, kind, next)
}

func (d *lineDecoder) decode(text []byte, kind row.RowKind, next func() *row.Row) error {
	d.next, d.kind = next, kind
	return d.in.Decode(text, d.rows)
}

func parseObject(text []byte) (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var obj map[string]any
	if err := dec.Decode(&obj); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the object")
	}
	return obj, nil
}

// valueOf converts a value of JSON to a type, as the format json does.
func valueOf(t *row.Type, raw any) (row.Value, error) {
	l := row.NewLayout(t)
	d, err := newLineDecoder(connector.Table{Table: &catalog.Table{Columns: []catalog.Column{{Name: "v", Type: t}}}, Columns: []int{0}, Layout: l})
	if err != nil {
		return nil, err
	}
	r := nulls(l)
	if err := d.decode(append(appendJSON([]byte(`{"v":`), raw), '}'), row.Insert, func() *row.Row { return r }); err != nil {
		return nil, err
	}
	return l.Get(r, 0), nil
}
