package avro

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/twmb/avro"

	"github.com/millrace-stream/millrace/row"
)

// The namespace and the name of the record of a table, as Flink gives them. A ROW inside has the names on the way to it
// behind that, with _ between them.
const (
	namespace = "org.apache.flink.avro.generated"
	rowName   = "record"
)

// derive is the schema of a table of these columns, as Flink derives it.
func derive(fields []row.Field, d deriver) (string, error) {
	head := fmt.Sprintf(`{"type":"record","name":"%s","namespace":"%s","fields":`, rowName, namespace)
	b, err := d.fields([]byte(head), fields, rowName)
	if err != nil {
		return "", err
	}
	return string(append(b, '}')), nil
}

type deriver struct {
	legacy bool // timestamp_mapping.legacy
	bare   bool // without logical types
}

func (d deriver) fields(b []byte, fields []row.Field, name string) ([]byte, error) {
	b = append(b, '[')
	for i, f := range fields {
		if i > 0 {
			b = append(b, ',')
		}
		text, err := json.Marshal(f.Name)
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, `{"name":`...), text...), `,"type":`...)
		if b, err = d.typ(b, f.Type, name+"_"+f.Name); err != nil {
			return nil, fmt.Errorf("column %s: %w", f.Name, err)
		}
		if f.Type.IsNullable() {
			b = append(b, `,"default":null`...)
		}
		b = append(b, '}')
	}
	return append(b, ']'), nil
}

func (d deriver) typ(b []byte, t *row.Type, name string) ([]byte, error) {
	if t.IsNullable() {
		b, err := d.typ(append(b, `["null",`...), t.NotNull(), name)
		return append(b, ']'), err
	}
	logical := func(base, name string) ([]byte, error) {
		if d.bare {
			return fmt.Appendf(b, `"%s"`, base), nil
		}
		return fmt.Appendf(b, `{"type":"%s","logicalType":"%s"}`, base, name), nil
	}
	switch t.Kind() {
	case row.KindBoolean:
		return append(b, `"boolean"`...), nil
	case row.KindTinyInt, row.KindSmallInt, row.KindInt:
		return append(b, `"int"`...), nil
	case row.KindBigInt:
		return append(b, `"long"`...), nil
	case row.KindFloat:
		return append(b, `"float"`...), nil
	case row.KindDouble:
		return append(b, `"double"`...), nil
	case row.KindDecimal:
		if d.bare {
			return append(b, `"bytes"`...), nil
		}
		return fmt.Appendf(b, `{"type":"bytes","logicalType":"decimal","precision":%d,"scale":%d}`, t.Precision(), t.Scale()), nil
	case row.KindChar, row.KindVarChar:
		return append(b, `"string"`...), nil
	case row.KindBinary, row.KindVarBinary:
		return append(b, `"bytes"`...), nil
	case row.KindDate:
		return logical("int", "date")
	case row.KindTime:
		if t.Precision() > 3 {
			return nil, fmt.Errorf("%s has more digits than Avro's time-millis; declare TIME(3)", t)
		}
		return logical("int", "time-millis")
	case row.KindTimestamp, row.KindTimestampLTZ:
		name := "timestamp-"
		if !d.legacy && t.Kind() == row.KindTimestamp {
			name = "local-timestamp-"
		}
		switch p := t.Precision(); {
		case p <= 3:
			return logical("long", name+"millis")
		case p <= 6:
			return logical("long", name+"micros")
		}
		return nil, fmt.Errorf("%s has more digits than Avro's %smicros; declare one of 6 digits at most", t, name)
	case row.KindArray:
		b, err := d.typ(append(b, `{"type":"array","items":`...), t.Elem(), name)
		return append(b, '}'), err
	case row.KindMap, row.KindMultiset:
		key, value := t.Key(), t.Elem()
		if t.Kind() == row.KindMultiset {
			key, value = t.Elem(), row.Int()
		}
		if !key.Kind().Text() {
			return nil, fmt.Errorf("the keys of a map of Avro are text, not %s", key)
		}
		b, err := d.typ(append(b, `{"type":"map","values":`...), value, name)
		return append(b, '}'), err
	case row.KindRow:
		fields := make([]row.Field, t.NumFields())
		for i := range fields {
			fields[i] = t.Field(i)
		}
		b, err := d.fields(fmt.Appendf(b, `{"type":"record","name":"%s","fields":`, name), fields, name)
		return append(b, '}'), err
	}
	return nil, fmt.Errorf("%s has no type in Avro", t)
}

// schema is a parsed schema as the compilers walk it.
type schema struct {
	*avro.Schema
	root *avro.SchemaNode
	refs map[*avro.SchemaNode]*avro.SchemaNode // the definitions that references to named types mean
}

// parse parses a schema and what it refers to, whose texts come before it.
func parse(text string, references ...string) (*schema, error) {
	var cache avro.SchemaCache
	for _, r := range references {
		if _, err := cache.Parse(r); err != nil {
			return nil, err
		}
	}
	s, err := cache.Parse(text)
	if err != nil {
		return nil, err
	}
	if len(references) > 0 {
		// What comes of references is put into the text, so that all definitions stand in one tree.
		root := s.Root()
		if s, err = root.Schema(); err != nil {
			return nil, err
		}
	}
	n := &schema{Schema: s, root: s.Root(), refs: map[*avro.SchemaNode]*avro.SchemaNode{}}
	names := map[string]*avro.SchemaNode{}
	walk(n.root, "", func(n *avro.SchemaNode, _ string) {
		switch n.Type {
		case "record", "error", "enum", "fixed":
			names[fullName(n)] = n
		}
	})
	walk(n.root, "", func(ref *avro.SchemaNode, space string) {
		if slices.Contains(builtin, ref.Type) {
			return
		}
		if def, ok := names[space+"."+ref.Type]; ok {
			n.refs[ref] = def
		} else if def, ok := names[ref.Type]; ok {
			n.refs[ref] = def
		}
	})
	return n, nil
}

// builtin are the types that no named type can hide: Flink's records are called record.
var builtin = []string{"null", "boolean", "int", "long", "float", "double", "bytes", "string", "record", "error", "enum", "array", "map", "fixed", "union"}

// walk calls f for a node and all below it, with the namespace in which names stand.
func walk(n *avro.SchemaNode, space string, f func(n *avro.SchemaNode, space string)) {
	if n == nil {
		return
	}
	f(n, space)
	switch n.Type {
	case "record", "error", "enum", "fixed":
		space = n.Namespace
	}
	for i := range n.Fields {
		walk(&n.Fields[i].Type, space, f)
	}
	for i := range n.Branches {
		walk(&n.Branches[i], space, f)
	}
	walk(n.Items, space, f)
	walk(n.Values, space, f)
}

func fullName(n *avro.SchemaNode) string {
	if n.Namespace == "" {
		return n.Name
	}
	return n.Namespace + "." + n.Name
}

// resolve is the definition of a reference to a named type; any other node is itself.
func (s *schema) resolve(n *avro.SchemaNode) *avro.SchemaNode {
	if def, ok := s.refs[n]; ok {
		return def
	}
	return n
}

// describe names the type of a node in messages.
func describe(n *avro.SchemaNode) string {
	switch {
	case n.Type == "union":
		text := "union of"
		for i := range n.Branches {
			if i > 0 {
				text += ","
			}
			text += " " + describe(&n.Branches[i])
		}
		return text
	case n.LogicalType == "decimal":
		return fmt.Sprintf("%s (decimal(%d, %d))", n.Type, n.Precision, n.Scale)
	case n.LogicalType != "":
		return fmt.Sprintf("%s (%s)", n.Type, n.LogicalType)
	case n.Name != "":
		return n.Type + " " + n.Name
	}
	return n.Type
}
