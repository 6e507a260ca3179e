package kafka

import (
	"errors"
	"fmt"
	"slices"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/catalog"
)

// encoder writes the rows of one subtask.
type encoder struct {
	x          *table
	w          *processor.SinkWriter
	key, value format.RowEncoder // key is nil where records have none
	partition  func() int32
	subtask    int
	turn       int32 // of round-robin
	headers    int   // columns; -1 = none
	timestamp  int
}

func newEncoder(x *table, w *processor.SinkWriter) (*encoder, error) {
	e := &encoder{x: x, w: w, headers: -1, timestamp: -1}
	var err error
	if e.value, err = x.value.RowEncoder(x.schema(&x.value)); err != nil {
		return nil, err
	}
	if len(x.key.columns) > 0 {
		if e.key, err = x.key.RowEncoder(x.schema(&x.key)); err != nil {
			return nil, fmt.Errorf("key: %w", err)
		}
	}
	for i, c := range x.Columns {
		if col := &x.Table.Table.Columns[c]; col.Kind == catalog.Metadata {
			if col.Key == "headers" {
				e.headers = i
			} else {
				e.timestamp = i
			}
		}
	}
	partitioner := "default"
	if !x.upsert {
		partitioner = x.o.Text("sink.partitioner")
	}
	switch partitioner {
	case "default":
		e.partition = func() int32 { return processor.AnyPartition }
	case "fixed":
		e.partition = func() int32 { return int32(e.subtask) % w.Partitions() }
	case "round-robin":
		e.partition = func() int32 {
			e.turn++
			return (int32(e.subtask) + e.turn - 1) % w.Partitions()
		}
	default:
		return nil, fmt.Errorf("option 'sink.partitioner' = '%s': must be default, fixed or round-robin; a class of Java cannot be used", partitioner)
	}
	return e, nil
}

// ask is Sink.Ask: what the formats of key and value ask for.
func ask(x *table) (found []string, err error) {
	e, err := newEncoder(x, nil)
	if err != nil {
		return nil, err
	}
	for _, f := range []format.RowEncoder{e.key, e.value} {
		a, ok := f.(format.Asker)
		if !ok {
			continue
		}
		said, err := a.Ask()
		if err != nil {
			return found, err
		}
		if said != "" {
			found = append(found, said)
		}
	}
	return found, nil
}

// schema is that of messages that are written: all of their columns.
func (x *table) schema(u *used) format.RowSchema {
	s := format.RowSchema{Layout: x.Layout, Message: u.message(x.Table.Table), Zone: x.Zone}
	for i, c := range u.columns {
		s.Columns = append(s.Columns, format.RowColumn{Name: u.names[i], Type: x.Table.Table.Columns[c].Type, Index: slices.Index(x.Columns, c)})
	}
	return s
}

// write writes a row as one record.
func (e *encoder) write(r *row.Row) error {
	rec := processor.SinkRecord{Partition: e.partition(), Timestamp: e.w.Now()}
	if e.key != nil {
		b, err := e.key.Append(e.w.Buf(), r)
		if err != nil {
			return fmt.Errorf("encode key: %w", err)
		}
		if b != nil { // nil is a null message, of a format such as raw
			rec.Key = e.w.Keep(b)
		}
	}
	if !e.x.upsert || r.Kind != row.Delete {
		kind := r.Kind
		if e.x.upsert {
			r.Kind = row.Insert // the format has rows alone
		}
		b, err := e.value.Append(e.w.Buf(), r)
		r.Kind = kind
		if err != nil {
			return fmt.Errorf("encode value: %w", err)
		}
		switch {
		case b != nil:
			rec.Value = e.w.Keep(b)
		case e.x.upsert:
			return errors.New("encode value: the row is a null value in this format, and that deletes the row of its key; use one that can tell them apart, such as json")
		}
	}
	l := e.x.Layout
	if i := e.timestamp; i >= 0 && !r.Null(i) {
		rec.Timestamp = r.Int64(l.Place(i).Index)
		if l.Type(i).Kind() == row.KindTimestamp {
			rec.Timestamp = e.x.Zone.Instant(rec.Timestamp)
		}
	}
	if i := e.headers; i >= 0 && !r.Null(i) {
		m := row.ViewMap(l.Type(i), r.S[l.Place(i).Index])
		for j := range m.Len() {
			h := processor.Header{Key: string(m.Keys().Bytes(j))}
			if !m.Values().Null(j) {
				h.Value = slices.Clone(m.Values().Bytes(j))
			}
			rec.Headers = append(rec.Headers, h)
		}
	}
	return e.w.Write(rec)
}
