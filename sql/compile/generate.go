package compile

import (
	"cmp"
	"errors"
	"io"
	"math"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/statestore"
)

// atOnce is how many pieces a generator makes before commits and the rest of the subtask are looked at again.
const atOnce = 256

// generate makes the source of a table behind which no topic stands. The generator's position is written once for an
// epoch; its watermark moves piece by piece, as that of a topic does record by record.
func (c *compiler) generate(r *reading) (stream, error) {
	g := r.source.Generate
	keys, err := statestore.KeyCodecOf[uint8]()
	if err != nil {
		return stream{}, err
	}
	codec, err := statestore.CodecOf[[]byte]()
	if err != nil {
		return stream{}, err
	}
	o := []processor.Option{processor.OnError(cmp.Or(r.source.OnError, c.o.BadInput))}
	if g.Parallelism > 1 && !c.o.OneSubtask {
		o = append(o, processor.Parallelism(g.Parallelism))
	}
	return processor.Generate(c.top, c.id(r.scan, "generate"), func(ctx *processor.TransformContext[struct{}, *row.Row]) {
		env := c.envOf(ctx)
		sub := processor.SubtaskOf(ctx)
		spec, open := ctx.Store(processor.StoreSpec{Name: "position", Kind: statestore.KindTable, Key: keys.Schema(), Value: codec.Schema()})
		d, err := newScan(r.scan, r.layout, env)
		if err != nil {
			ctx.Fail(err)
			return
		}
		c.watch(d, r)
		var gen connector.Generator
		var position *statestore.Table[uint8, []byte]
		var group statestore.Group
		if open {
			if position, err = statestore.NewTable(ctx.State(), spec, keys, codec); err != nil {
				ctx.Fail(err)
				return
			}
			d.now = sub.Now
			group = statestore.Group(sub.Subtask().Index)
			ctx.OnOpen(func() (err error) {
				var from []byte
				if p := position.Get(group, 0); p != nil {
					from = *p
				}
				gen, err = g.Open(sub, from)
				ctx.DueProcessing(math.MinInt64)
				return err
			})
			ctx.OnClose(func() error {
				if gen == nil {
					return nil
				}
				return gen.Close()
			})
		}
		send := func(r *row.Row) error { return ctx.EmitAt(r, r.Time) }
		var now, again int64
		ended := false
		piece := func() error {
			d.begin(processor.NoTime)
			var err error
			if again, err = gen.Next(now, d.next); errors.Is(err, io.EOF) {
				ended, err = true, nil
			}
			if err != nil {
				return err
			}
			return d.Run(send)
		}
		ctx.OnTime(func(at int64) error {
			now = at
			for range atOnce {
				again = at
				if err := ctx.Atomic(group, processor.NoTime, nil, piece); err != nil {
					return err
				}
				switch {
				case ended:
					ctx.AdvanceWatermark(math.MaxInt64)
					return nil
				case d.mark != processor.NoTime:
					// It holds for the next piece, so that must wait for it.
					ctx.AdvanceWatermark(d.mark)
					ctx.DueProcessing(again)
					return nil
				case again > at:
					ctx.DueProcessing(again)
					return nil
				}
			}
			ctx.DueProcessing(at)
			return nil
		})
		ctx.BeforeCommit(func() error {
			p, _ := position.Update(group, 0)
			*p = gen.Position(nil)
			return nil
		})
	}, o...), nil
}
