package compile

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/millrace-stream/millrace/format"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
)

// common is the record of a topic that is read as several tables, decoded as each of them.
type common struct {
	tables []*scanDecoder // of the partition, as compiler.readers has the tables
}

// commonDecoder is the decoder of one partition of such a topic.
type commonDecoder struct {
	common
	skips []bool // what a table cannot decode is no row of it, and may be one of another
	ctx   *processor.SubtaskContext
}

// shared reads a topic that is several tables. There is one position in it, so they must begin and end alike.
func (c *compiler) shared(topic string) (processor.Stream[*common], error) {
	if s, ok := c.common[topic]; ok {
		return s, nil
	}
	readers := c.readers[topic]
	first := readers[0]
	policy := processor.Policy(0)
	for _, r := range readers {
		a, b := first.source, r.source
		if !reflect.DeepEqual(a.Start, b.Start) || !reflect.DeepEqual(a.End, b.End) || first.idle != r.idle {
			return processor.Stream[*common]{}, fail(r.scan, "E3711", fmt.Errorf("tables %s and %s read topic %s, which is read once for both; give them the same scan.startup.*, scan.bounded.* and idle time-out", first.scan.Table.Path, r.scan.Table.Path, topic))
		}
		p := cmp.Or(r.source.OnError, c.o.BadInput)
		switch {
		case p == processor.Skip, p == policy:
		case policy == 0:
			policy = p
		default:
			return processor.Stream[*common]{}, fail(r.scan, "E3711", fmt.Errorf("tables %s and %s read topic %s, which is read once for both; a record that cannot be decoded cannot stop the app for one and go to the dead letters for the other: give them the same policy", first.scan.Table.Path, r.scan.Table.Path, topic))
		}
	}
	if policy == 0 {
		policy = processor.Skip
	}
	s := processor.FromRaw(c.top, processor.RawTopic[*common]{Topics: []string{topic}, ID: c.unique(clean("topic-" + topic)), Idle: first.idle, Start: first.source.Start, End: first.source.End, Pattern: first.source.Pattern,
		Open: func(ctx *processor.SubtaskContext) (processor.Decoder[*common], error) {
			d := &commonDecoder{ctx: ctx}
			for _, r := range readers {
				t, err := c.decoder(ctx, r)
				if err != nil {
					return nil, err
				}
				d.tables = append(d.tables, t)
				d.skips = append(d.skips, cmp.Or(r.source.OnError, c.o.BadInput) == processor.Skip)
			}
			return d, nil
		}}, c.sourceOptions(policy)...)
	c.common[topic] = s
	return s, nil
}

// Decode is of processor.Decoder.
func (d *commonDecoder) Decode(r *processor.SourceRecord) (int64, error) {
	at := processor.NoTime
	for i, t := range d.tables {
		own, err := t.Decode(r)
		if err != nil {
			var outside *format.OutsideError
			if !d.skips[i] || errors.As(err, &outside) {
				return 0, err
			}
			t.used = 0
			d.ctx.CountSkipped()
		}
		if at == processor.NoTime { // among partitions the first table says which record goes first
			at = own
		}
	}
	return at, nil
}

// Run is of processor.Decoder.
func (d *commonDecoder) Run(emit func(r *common) error) error { return emit(&d.common) }

// Watermark is of processor.Decoder: each table has its own.
func (d *commonDecoder) Watermark() int64 { return processor.NoTime }

// part is one of the tables of a topic.
func (c *compiler) part(r *reading, topic string, from processor.Stream[*common]) stream {
	i := slices.Index(c.readers[topic], r)
	return processor.Retime(from, c.id(r.scan, "scan"), func(*processor.SubtaskContext) (func(v *common, emit func(*row.Row, int64) error) (int64, error), error) {
		var out func(*row.Row, int64) error
		send := func(r *row.Row) error { return out(r, r.Time) }
		return func(v *common, emit func(*row.Row, int64) error) (int64, error) {
			d := v.tables[i]
			out = emit
			err := d.Run(send)
			return d.Watermark(), err
		}, nil
	})
}
