package sqltest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/catalog"
)

// lines is the connector of case files: a table is a topic of lines, a value is the line as JSON, and a header its kind.
type lines struct {
	// all are the lines of the file by table, for lookups.
	all map[string][]Line
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
		tr.Reads = catalog.Upsert
		if t.Key == nil && t.Table.Key == nil {
			return tr, errors.New("'changelog-mode' = 'upsert' needs a PRIMARY KEY")
		}
	default:
		return tr, fmt.Errorf("'changelog-mode' = '%s' is none of append, all, upsert", mode)
	}
	if t.Options["format"] == "debezium-json" {
		tr.Reads = catalog.Retract
	}
	return tr, nil
}

func (c *lines) Source(t connector.Table) (*connector.Source, error) {
	return &connector.Source{Topics: []string{topicOf(t.Path.Name)}, Open: func(*processor.SubtaskContext) (connector.Decoder, error) {
		return newLineDecoder(t), nil
	}}, nil
}

func (c *lines) Sink(connector.Table) (*connector.Sink, error) {
	return nil, errors.New("a case has no sinks")
}

func (c *lines) Lookup(t connector.Table, keys []int) (*connector.Lookup, error) {
	return &connector.Lookup{Open: func(*processor.SubtaskContext) (func(*row.Row, func() *row.Row) error, error) {
		d := newLineDecoder(t)
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
		return func(key *row.Row, next func() *row.Row) error {
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

// lineDecoder reads JSON as Flink's format does.
type lineDecoder struct {
	t              connector.Table
	debezium, lazy bool
}

func newLineDecoder(t connector.Table) *lineDecoder {
	return &lineDecoder{t: t, debezium: t.Options["format"] == "debezium-json", lazy: t.Options["json.ignore-parse-errors"] == "true"}
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
	obj, err := parseObject(text)
	if err != nil {
		if d.lazy {
			return nil
		}
		return fmt.Errorf("decode JSON: %w", err)
	}
	if !d.debezium {
		r := next()
		r.Kind = kind
		return d.fill(r, obj)
	}
	put := func(field string, kind row.RowKind) error {
		inner, ok := obj[field].(map[string]any)
		if !ok {
			return fmt.Errorf("decode debezium message: it has no %s", field)
		}
		r := next()
		r.Kind = kind
		return d.fill(r, inner)
	}
	switch obj["op"] {
	case "c", "r":
		return put("after", row.Insert)
	case "u":
		if err := put("before", row.UpdateBefore); err != nil {
			return err
		}
		return put("after", row.UpdateAfter)
	case "d":
		return put("before", row.Delete)
	}
	return fmt.Errorf("decode debezium message: op is %v", obj["op"])
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

func (d *lineDecoder) fill(r *row.Row, obj map[string]any) error {
	for i, c := range d.t.Columns {
		col := &d.t.Table.Columns[c]
		v, err := valueOf(col.Type, obj[col.Name])
		if err != nil {
			if d.lazy {
				continue
			}
			return fmt.Errorf("decode JSON: column %s: %w", col.Name, err)
		}
		if v == nil {
			r.SetNull(i)
			continue
		}
		d.t.Layout.Set(r, i, v)
	}
	return nil
}

// valueOf converts a value of JSON to a type, as Flink does.
func valueOf(t *row.Type, raw any) (row.Value, error) {
	if raw == nil {
		return nil, nil
	}
	text := ""
	switch v := raw.(type) {
	case string:
		text = v
	case json.Number:
		text = v.String()
	case bool:
		text = strconv.FormatBool(v)
	}
	b := []byte(strings.TrimSpace(text))
	switch k := t.Kind(); {
	case k == row.KindBoolean:
		return strings.EqualFold(string(b), "true"), nil
	case k.Integer():
		size := map[row.Kind]int{row.KindTinyInt: 8, row.KindSmallInt: 16, row.KindInt: 32, row.KindBigInt: 64}[k]
		return strconv.ParseInt(string(b), 10, size)
	case k.Approximate():
		size := 64
		if k == row.KindFloat {
			size = 32
		}
		return row.ParseDouble(b, size)
	case k == row.KindDecimal:
		v, err := row.ParseDec(b, t.Precision(), t.Scale())
		if errors.Is(err, row.ErrOverflow) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return v, nil
	case k.Text():
		switch raw.(type) {
		case string, json.Number, bool:
			return text, nil
		}
		out, err := json.Marshal(raw)
		return string(out), err
	case k.Bytes():
		return base64.StdEncoding.DecodeString(text)
	case k == row.KindDate:
		return row.ParseDate(b)
	case k == row.KindTime:
		return row.ParseTime(b)
	case k == row.KindTimestamp, k == row.KindTimestampLTZ:
		ms, nanos, err := row.ParseTimestamp(bytes.TrimSuffix(b, []byte("Z")))
		if err != nil {
			return nil, err
		}
		ms, nanos = row.TruncTimestamp(ms, nanos, t.Precision())
		return row.Stamp{Ms: ms, Nanos: nanos}, nil
	case k == row.KindArray:
		list, ok := raw.([]any)
		if !ok {
			return nil, fmt.Errorf("%v is no array", raw)
		}
		vs := make([]row.Value, len(list))
		for i, e := range list {
			var err error
			if vs[i], err = valueOf(t.Elem(), e); err != nil {
				return nil, err
			}
		}
		return vs, nil
	case k == row.KindRow:
		obj, ok := raw.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%v is no object", raw)
		}
		vs := make([]row.Value, t.NumFields())
		for i := range vs {
			var err error
			if vs[i], err = valueOf(t.Field(i).Type, obj[t.Field(i).Name]); err != nil {
				return nil, err
			}
		}
		return vs, nil
	case k == row.KindMap, k == row.KindMultiset:
		obj, ok := raw.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%v is no object", raw)
		}
		keyType, valueType := t.Key(), t.Elem()
		if k == row.KindMultiset {
			keyType, valueType = t.Elem(), row.Int()
		}
		var es []row.Entry
		for _, name := range sortedKeys(obj) {
			key, err := valueOf(keyType, name)
			if err != nil {
				return nil, err
			}
			v, err := valueOf(valueType, obj[name])
			if err != nil {
				return nil, err
			}
			es = append(es, row.Entry{Key: key, Value: v})
		}
		return es, nil
	}
	return nil, fmt.Errorf("no value of %s can be read", t)
}
