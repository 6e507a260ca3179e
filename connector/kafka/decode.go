package kafka

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/catalog"
)

// decoder decodes the records of one partition.
type decoder struct {
	x        *table
	value    format.RowDecoder
	key      format.RowDecoder // nil = nothing of the key is wanted
	keyRow   *row.Row          // the key of the record
	columns  []int             // of the row, that keyRow has
	identity []int             // of them, that must not be NULL: of upsert-kafka
	metadata []metadataReader

	record  *processor.SourceRecord
	next    func() *row.Row // of Decode
	filled  func() *row.Row // gives a row with key and metadata
	nextKey func() *row.Row
	keys    int
}

func newDecoder(x *table) (*decoder, error) {
	d := &decoder{x: x}
	var key, value []format.RowColumn
	for i, c := range x.Columns {
		col := &x.Table.Table.Columns[c]
		name, ofFormat := strings.CutPrefix(col.Key, ofValue)
		switch {
		case col.Kind == catalog.Metadata && ofFormat:
			value = append(value, format.RowColumn{Name: name, Type: col.Type, Index: i, Metadata: true})
		case col.Kind == catalog.Metadata:
			d.metadata = append(d.metadata, x.reader(col.Key, x.Layout, i))
		case x.fromKey(c):
			key = append(key, format.RowColumn{Name: x.key.names[slices.Index(x.key.columns, c)], Type: col.Type, Index: i})
			d.columns = append(d.columns, i)
		default:
			value = append(value, format.RowColumn{Name: col.Name, Type: col.Type, Index: i, Fields: x.FieldsOf(i)})
		}
	}
	var err error
	if d.value, err = x.value.RowDecoder(format.RowSchema{Layout: x.Layout, Columns: value, Message: x.value.message(x.Table.Table), Zone: x.Zone}); err != nil {
		return nil, err
	}
	if len(key) > 0 || x.upsert {
		if d.key, err = x.key.RowDecoder(format.RowSchema{Layout: x.Layout, Columns: key, Message: x.key.message(x.Table.Table), Zone: x.Zone}); err != nil {
			return nil, fmt.Errorf("key: %w", err)
		}
		d.keyRow = x.Layout.New()
		if x.upsert {
			d.identity = d.columns
		}
	}
	d.filled = func() *row.Row {
		r := d.next()
		for _, c := range d.columns {
			x.Layout.CopyColumn(r, c, x.Layout, d.keyRow, c)
		}
		for _, f := range d.metadata {
			f(r, d.record)
		}
		return r
	}
	d.nextKey = func() *row.Row {
		d.keys++
		d.keyRow.Kind = row.Insert
		for _, c := range d.columns {
			d.keyRow.SetNull(c)
		}
		return d.keyRow
	}
	return d, nil
}

// fromKey says that a column is read from the record's key: where the value has it too, that counts, but for the
// PRIMARY KEY of upsert-kafka, which a record with a null value has as well.
func (x *table) fromKey(column int) bool {
	return slices.Contains(x.key.columns, column) && (x.upsert || !slices.Contains(x.value.columns, column))
}

// Decode is of connector.Decoder.
func (d *decoder) Decode(r *processor.SourceRecord, next func() *row.Row) error {
	d.record, d.next = r, next
	if d.key != nil {
		if err := d.decodeKey(r); err != nil {
			return err
		}
	}
	if d.x.upsert && r.Value == nil {
		d.filled().Kind = row.Delete
		return nil
	}
	if d.key != nil || len(d.metadata) > 0 {
		next = d.filled
	}
	if err := d.value.Decode(r.Value, next); err != nil {
		return fmt.Errorf("decode value: %w", err)
	}
	return nil
}

// decodeKey puts the key into keyRow. A null key has NULL in all columns.
func (d *decoder) decodeKey(r *processor.SourceRecord) error {
	d.keys = 0
	if r.Key == nil {
		d.nextKey()
		if d.identity != nil || d.x.upsert {
			return errors.New("decode key: it is null, and it is the PRIMARY KEY of the table")
		}
		return nil
	}
	if err := d.key.Decode(r.Key, d.nextKey); err != nil {
		return fmt.Errorf("decode key: %w", err)
	}
	if d.keys == 0 {
		d.nextKey()
	}
	for _, c := range d.identity {
		if d.keyRow.Null(c) {
			return fmt.Errorf("decode key: %s is NULL, and it is the PRIMARY KEY of the table", d.x.Table.Table.Columns[d.x.Columns[c]].Name)
		}
	}
	return nil
}
