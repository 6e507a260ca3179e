// Package jsonschema has the format of JSON with the id of a JSON Schema in a schema registry before each message.
package jsonschema

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/format/registry"
	"github.com/millrace-stream/millrace/row"
)

// Formats is json-confluent.
func Formats() format.RowFormats {
	inner := format.JSONRows()
	return format.RowFormats{"json-confluent": {
		Doc: "The format json with the id of a JSON Schema in a schema registry before each message. Messages are read by their names, whatever their schema says.",
		Options: slices.Concat(registry.Options(), []format.Option{
			{Name: "schema", Doc: "The JSON Schema that a table registers when it is written. Default: the one that follows from the table."},
		}, inner.Options),
		New: func(o *format.Options) (format.RowFormat, error) {
			f := &framed{schema: o.Text("schema")}
			var err error
			if f.reg, err = registry.New(o); err != nil {
				return nil, err
			}
			if f.schema != "" && !json.Valid([]byte(f.schema)) {
				return nil, fmt.Errorf("option 'schema' is no JSON")
			}
			f.inner, err = inner.New(o)
			return f, err
		},
	}}
}

// framed is JSON behind ids.
type framed struct {
	reg    *registry.Client
	schema string
	inner  format.RowFormat
}

// RowDecoder is of format.RowFormat.
func (f *framed) RowDecoder(s format.RowSchema) (format.RowDecoder, error) {
	d, err := f.inner.RowDecoder(s)
	return &decoder{d}, err
}

type decoder struct{ inner format.RowDecoder }

// Decode is of format.RowDecoder.
func (d *decoder) Decode(data []byte, next func() *row.Row) error {
	if data == nil {
		return d.inner.Decode(nil, next)
	}
	_, rest, err := registry.ID(data)
	if err != nil {
		return fmt.Errorf("read json-confluent: %w", err)
	}
	return d.inner.Decode(rest, next)
}

// RowEncoder is of format.RowFormat.
func (f *framed) RowEncoder(s format.RowSchema) (format.RowEncoder, error) {
	if f.reg.Subject() == "" {
		return nil, fmt.Errorf("format json-confluent: %w", registry.ErrNoSubject)
	}
	text := f.schema
	if text == "" {
		b, err := json.Marshal(object("Record", s.All()))
		if err != nil {
			return nil, fmt.Errorf("format json-confluent: %w", err)
		}
		text = string(b)
	}
	inner, err := f.inner.RowEncoder(s)
	if err != nil {
		return nil, err
	}
	return &encoder{inner: inner, reg: f.reg, text: text}, nil
}

// encoder registers the schema with the first message: planning asks no registry.
type encoder struct {
	inner  format.RowEncoder
	reg    *registry.Client
	text   string // the schema
	prefix []byte
}

// Ask is of format.Asker.
func (e *encoder) Ask() (string, error) {
	return e.reg.Takes(e.reg.Subject(), registry.JSON, e.text, e.differs)
}

// differs is which properties another schema has otherwise.
func (e *encoder) differs(latest string) string {
	var theirs, ours struct{ Properties map[string]any }
	if err := json.Unmarshal([]byte(latest), &theirs); err != nil {
		return err.Error()
	}
	if err := json.Unmarshal([]byte(e.text), &ours); err != nil {
		return err.Error()
	}
	var names []string
	for name, p := range theirs.Properties {
		if !reflect.DeepEqual(p, ours.Properties[name]) {
			names = append(names, "/properties/"+name)
		}
	}
	for name := range ours.Properties {
		if _, ok := theirs.Properties[name]; !ok {
			names = append(names, "/properties/"+name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// Append is of format.RowEncoder.
func (e *encoder) Append(dst []byte, r *row.Row) ([]byte, error) {
	if e.prefix == nil {
		id, err := e.reg.Register(e.reg.Subject(), registry.JSON, e.text)
		if err != nil {
			return nil, fmt.Errorf("write json-confluent: %w", err)
		}
		e.prefix = registry.AppendID(nil, id)
	}
	return e.inner.Append(append(dst, e.prefix...), r)
}

// object is the schema of a record of these fields.
func object(title string, fields []row.Field) map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, f := range fields {
		properties[f.Name] = schemaOf(f.Type)
		if !f.Type.IsNullable() {
			required = append(required, f.Name)
		}
	}
	// Closed, so that a later version may have more.
	s := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if title != "" {
		s["$schema"], s["title"] = "http://json-schema.org/draft-07/schema#", title
	}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

func schemaOf(t *row.Type) map[string]any {
	if t.IsNullable() {
		return map[string]any{"oneOf": []any{map[string]any{"type": "null"}, schemaOf(t.NotNull())}}
	}
	switch k := t.Kind(); {
	case k == row.KindBoolean:
		return map[string]any{"type": "boolean"}
	case k.Integer():
		return map[string]any{"type": "integer"}
	case k.Numeric():
		return map[string]any{"type": "number"}
	case k.Bytes():
		return map[string]any{"type": "string", "contentEncoding": "base64"}
	case k == row.KindDate:
		return map[string]any{"type": "string", "format": "date"}
	case k == row.KindArray:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem())}
	case k == row.KindMap:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	case k == row.KindMultiset:
		return map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "integer"}}
	case k == row.KindRow:
		fields := make([]row.Field, t.NumFields())
		for i := range fields {
			fields[i] = t.Field(i)
		}
		return object("", fields)
	}
	return map[string]any{"type": "string"}
}
