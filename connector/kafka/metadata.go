package kafka

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/internal/near"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/catalog"
)

// metadata are the columns that tell of the record.
var metadata = []connector.Metadata{
	{Key: "topic", Type: row.String().NotNull(), Doc: "The topic of the record."},
	{Key: "partition", Type: row.Int().NotNull(), Doc: "Its partition."},
	{Key: "headers", Type: row.Map(row.String().NotNull(), row.Bytes()).NotNull(), Writes: true, Doc: "Its headers; of several of one name the last. Also as MAP<STRING, STRING>."},
	{Key: "leader-epoch", Type: row.Int(), Doc: "The epoch of the partition's leader that took it, if it is known."},
	{Key: "offset", Type: row.BigInt().NotNull(), Doc: "Its offset in the partition."},
	{Key: "timestamp", Type: row.TimestampLTZ(3).NotNull(), Writes: true, Doc: "Its timestamp; where NULL or nothing is written, the time of writing. Also as TIMESTAMP, in the session's time zone."},
	{Key: "timestamp-type", Type: row.String().NotNull(), Doc: "Who set the timestamp: CreateTime (the producer), LogAppendTime (the broker) or NoTimestampType."},
}

// ofValue is what stands before the metadata keys of the value's format.
const ofValue = "value."

// checkMetadata checks the METADATA columns of a table.
func (x *table) checkMetadata() error {
	for i := range x.Table.Table.Columns {
		c := &x.Table.Table.Columns[i]
		if c.Kind != catalog.Metadata {
			continue
		}
		if name, ok := strings.CutPrefix(c.Key, ofValue); ok {
			if err := x.checkOfValue(c, name); err != nil {
				return err
			}
			continue
		}
		m := slices.IndexFunc(metadata, func(m connector.Metadata) bool { return m.Key == c.Key })
		if m < 0 {
			var keys []string
			for _, m := range metadata {
				keys = append(keys, m.Key)
			}
			for _, m := range x.value.spec.Metadata {
				keys = append(keys, ofValue+m.Name)
			}
			hint := "there are: " + strings.Join(keys, ", ")
			if n, ok := near.Word(c.Key, keys); ok {
				hint = fmt.Sprintf("did you mean '%s'?", n)
			}
			return fmt.Errorf("metadata column %s: the key '%s' is unknown; %s", c.Name, c.Key, hint)
		}
		if !fits(metadata[m].Type, c.Type) {
			return fmt.Errorf("metadata column %s: '%s' is %s and cannot be %s", c.Name, c.Key, metadata[m].Type, c.Type)
		}
	}
	return nil
}

// checkOfValue checks a METADATA column that the value's format fills.
func (x *table) checkOfValue(c *catalog.Column, name string) error {
	for _, m := range x.value.spec.Metadata {
		if m.Name == name {
			if m.Type.Kind() != c.Type.Kind() {
				return fmt.Errorf("metadata column %s: '%s' is %s and cannot be %s", c.Name, c.Key, m.Type, c.Type)
			}
			return nil
		}
	}
	return fmt.Errorf("metadata column %s: the format of values has no metadata '%s'", c.Name, name)
}

// fits says whether metadata of a type can be had as a column of another one.
func fits(has, wants *row.Type) bool {
	switch has.Kind() {
	case row.KindInt:
		return wants.Kind() == row.KindInt || wants.Kind() == row.KindBigInt
	case row.KindBigInt:
		return wants.Kind() == row.KindBigInt
	case row.KindTimestampLTZ:
		return wants.Kind() == row.KindTimestampLTZ || wants.Kind() == row.KindTimestamp
	case row.KindMap:
		return wants.Kind() == row.KindMap && wants.Key().Kind().Text() && (wants.Elem().Kind().Bytes() || wants.Elem().Kind().Text())
	}
	return wants.Kind().Text()
}

// checkWritten refuses metadata columns that a sink cannot write.
func (x *table) checkWritten() error {
	for _, i := range x.Columns {
		c := &x.Table.Table.Columns[i]
		if c.Kind != catalog.Metadata {
			continue
		}
		m := slices.IndexFunc(metadata, func(m connector.Metadata) bool { return m.Key == c.Key })
		if m < 0 || !metadata[m].Writes {
			return fmt.Errorf("metadata column %s: '%s' can be read only; declare it VIRTUAL, then INSERT leaves it out", c.Name, c.Key)
		}
	}
	return nil
}

// metadataReader sets a METADATA column of a row.
type metadataReader func(row *row.Row, r *processor.SourceRecord)

// reader makes the metadataReader of a column of a record's own metadata.
func (x *table) reader(key string, l *row.Layout, i int) metadataReader {
	t, place := l.Type(i), l.Place(i)
	number := func(f func(r *processor.SourceRecord) int64) metadataReader {
		return func(out *row.Row, r *processor.SourceRecord) {
			out.ClearNull(i)
			out.SetInt64(place.Index, f(r))
		}
	}
	text := func(f func(r *processor.SourceRecord) string) metadataReader {
		var last string
		var b []byte
		return func(out *row.Row, r *processor.SourceRecord) {
			if s := f(r); s != last {
				last, b = s, []byte(s)
			}
			out.ClearNull(i)
			out.SetBytes(place.Index, b)
		}
	}
	switch key {
	case "topic":
		return text(func(r *processor.SourceRecord) string { return r.Topic })
	case "timestamp-type":
		return text(timestampType)
	case "partition":
		return number(func(r *processor.SourceRecord) int64 { return int64(r.Partition) })
	case "offset":
		return number(func(r *processor.SourceRecord) int64 { return r.Offset })
	case "leader-epoch":
		return func(out *row.Row, r *processor.SourceRecord) {
			if r.LeaderEpoch >= 0 {
				out.ClearNull(i)
				out.SetInt64(place.Index, int64(r.LeaderEpoch))
			}
		}
	case "timestamp":
		return func(out *row.Row, r *processor.SourceRecord) {
			if r.Timestamp < 0 {
				return
			}
			ms := r.Timestamp
			if t.Kind() == row.KindTimestamp {
				ms = x.Zone.Local(ms)
			}
			ms, _ = row.TruncTimestamp(ms, 0, t.Precision())
			out.ClearNull(i)
			out.SetInt64(place.Index, ms)
			if place.Words == 2 {
				out.SetInt64(place.Index+1, 0)
			}
		}
	}
	builder := row.NewMapBuilder(t)
	var buf []byte
	return func(out *row.Row, r *processor.SourceRecord) {
		for _, h := range r.Headers {
			builder.Keys.AddBytes([]byte(h.Key))
			if h.Value == nil {
				builder.Values.AddNull()
			} else {
				builder.Values.AddBytes(h.Value)
			}
		}
		buf = builder.Append(buf[:0])
		out.ClearNull(i)
		out.SetBytes(place.Index, buf)
	}
}

func timestampType(r *processor.SourceRecord) string {
	switch {
	case r.Timestamp < 0:
		return "NoTimestampType"
	case r.AppendTime:
		return "LogAppendTime"
	}
	return "CreateTime"
}
