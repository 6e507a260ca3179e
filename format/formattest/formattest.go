// Package formattest has what tests of formats have in common.
package formattest

import (
	"testing"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/row"
)

// Open makes a format from its options, whose names have no prefix.
func Open(formats format.RowFormats, name string, options map[string]string) (format.RowFormat, error) {
	spec := formats[name]
	prefixed := map[string]string{}
	for k, v := range options {
		prefixed[name+"."+k] = v
	}
	o, err := format.ReadOptions(name+".", prefixed, spec.Options)
	if err != nil {
		return nil, err
	}
	return spec.New(o)
}

// New is Open for options that are right.
func New(t testing.TB, formats format.RowFormats, name string, options map[string]string) format.RowFormat {
	t.Helper()
	f, err := Open(formats, name, options)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Table is the schema of messages of these columns.
func Table(fields ...row.Field) format.RowSchema {
	types := make([]*row.Type, len(fields))
	s := format.RowSchema{Zone: row.UTC()}
	for i, f := range fields {
		types[i] = f.Type
		s.Columns = append(s.Columns, format.RowColumn{Name: f.Name, Type: f.Type, Index: i})
	}
	s.Layout = row.NewLayout(types...)
	return s
}

// Rows decodes a message. The values of nested types are checked.
func Rows(t testing.TB, d format.RowDecoder, s format.RowSchema, data []byte) ([]*row.Row, error) {
	t.Helper()
	var rows []*row.Row
	err := d.Decode(data, func() *row.Row {
		r := s.Layout.New()
		for i := range s.Layout.Len() {
			r.SetNull(i)
		}
		rows = append(rows, r)
		return r
	})
	for _, r := range rows {
		for i, typ := range s.Layout.Types() {
			if p := s.Layout.Place(i); p.Words == 0 && typ.Kind().Nested() && !r.Null(i) {
				if err := row.CheckNested(typ, r.S[p.Index]); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return rows, err
}
