package compile

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/catalog"
	"github.com/millrace-stream/millrace/sql/exec"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
	"github.com/millrace-stream/millrace/statestore"
)

// operator runs an operator of package exec.
func (c *compiler) operator(n rel.Physical, ins []flow) (stream, error) {
	var failed error
	s := processor.Transform(ins, c.id(n, "op"), func(ctx *context) {
		o := &opContext{ctx: ctx, env: c.envOf(ctx), carried: carriedOf(ctx)}
		if in := n.Common().In; len(in) > 0 && in[0].Common().Dist.Topic != "" {
			o.routed = routedOf(ctx)
		}
		op, err := exec.New(n, o)
		if err != nil {
			failed = err
			ctx.Fail(err)
			return
		}
		ctx.OnRecord(func(input int, r *row.Row) error {
			o.env.Watermark = ctx.Watermark()
			return op.Process(input, r)
		})
		if t, ok := op.(exec.Timed); ok {
			ctx.OnWatermark(func(before, watermark int64) error {
				o.env.Watermark = watermark
				return t.OnWatermark(before, watermark)
			})
		}
		if t, ok := op.(exec.ProcTimed); ok {
			ctx.OnTime(t.OnTime)
		}
		if t, ok := op.(exec.Flusher); ok {
			ctx.BeforeCommit(t.BeforeCommit)
		}
		if t, ok := op.(exec.Remembering); ok {
			processor.OnStep(ctx, t.BeginStep)
			processor.OnUndo(ctx, t.UndoStep)
		}
		if t, ok := op.(exec.Starter); ok {
			ctx.OnOpen(t.Start)
		}
		if t, ok := op.(exec.Delayer); ok {
			ctx.DelayWatermark(t.Delay())
		}
	})
	if failed != nil {
		return s, fail(n, "E3707", failed)
	}
	c.lateFrom(n, s)
	return s, nil
}

// opContext is exec.Context in a subtask, or at plan time.
type opContext struct {
	ctx     *context
	env     *fn.Env
	carried *carried
	routed  *routed // of operators whose rows lie together as in their topic
}

// routed is the key group of the record, or of the key, of which a subtask processes what came of it. State of a topic's keys
// lies by it, as their records do.
type routed struct{ group statestore.Group }

type routedKey struct{}

func routedOf(s processor.SubtaskScope) *routed {
	return processor.Shared(s, routedKey{}, func() *routed { return &routed{} })
}

func (o *opContext) Store(s exec.StoreSpec) (statestore.Spec, bool) {
	return o.ctx.Store(processor.StoreSpec{Name: s.Name, Kind: s.Kind, Key: s.Key, Value: s.Value, Life: s.Life, Windows: s.Windows})
}

func (o *opContext) State() *statestore.State { return o.ctx.State() }

func (o *opContext) Sweep(life time.Duration, s *statestore.Sweep) {
	o.ctx.Sweep(processor.TTL{After: life}, s)
}

func (o *opContext) Env() *fn.Env { return o.env }

func (o *opContext) Emit(r *row.Row) error {
	err := o.ctx.EmitAt(r, r.Time)
	o.env.Watermark = o.ctx.Watermark()
	return err
}

func (o *opContext) Group(key []byte) statestore.Group {
	if o.routed != nil {
		return o.routed.group
	}
	return processor.KeyGroup(key)
}

func (o *opContext) Watermark() int64 { return o.ctx.Watermark() }

func (o *opContext) Due(at int64) { o.ctx.Due(at) }

func (o *opContext) DueProcessing(at int64) { o.ctx.DueProcessing(at) }

func (o *opContext) Atomic(g statestore.Group, at int64, key []byte, f func() error) error {
	if o.routed != nil {
		o.routed.group = g
	}
	return o.ctx.Atomic(g, at, key, f)
}

func (o *opContext) Late(int, *row.Row) {
	o.ctx.CountLate()
	o.carried.send(o.ctx)
}

// exchange sends rows to the subtask of their key, as packed rows.
func (c *compiler) exchange(n *rel.PExchange, ins []flow) (stream, error) {
	layout := rel.Layout(n)
	keys := row.NewKeyEncoder(layout, n.Keys...)
	var o []processor.Option
	if len(n.Keys) == 0 {
		o = append(o, processor.Parallelism(1))
	} else if n.Partitions > 0 {
		o = append(o, processor.Parallelism(n.Partitions))
	}
	late := c.carries[n]
	s := processor.ExchangeBy(ins[0], c.id(n, "rp"), processor.Exchange[*row.Row]{
		KeySchema: keys.Schema(), ValueSchema: layout.Schema() + carrySchema(late),
		Writer: func(ctx *processor.SubtaskContext) (processor.ExchangeWriter[*row.Row], error) {
			w := rowWriter{layout, row.NewKeyEncoder(layout, n.Keys...)}
			if late == nil {
				return &w, nil
			}
			return &carryWriter{rowWriter: w, late: late, carried: carriedOf(ctx)}, nil
		},
		Reader: func(ctx *processor.SubtaskContext) (processor.ExchangeReader[*row.Row], error) {
			d := rowReader{layout, layout.New()}
			if late == nil {
				return &d, nil
			}
			own := &carryReader{rowReader: d, late: late}
			readersOf(ctx, n)[d.r] = own
			return own, nil
		},
	}, o...)
	if late == nil {
		return s, nil
	}
	return c.carryOn(n, s), nil
}

type rowWriter struct {
	layout *row.Layout
	keys   *row.KeyEncoder
}

func (w *rowWriter) AppendKey(dst []byte, r *row.Row) []byte   { return w.keys.Append(dst, r) }
func (w *rowWriter) AppendValue(dst []byte, r *row.Row) []byte { return w.layout.PackKind(dst, r) }

type rowReader struct {
	layout *row.Layout
	r      *row.Row
}

func (d *rowReader) Read(_, payload []byte, at int64) (*row.Row, error) {
	if err := d.layout.UnpackKind(payload, d.r); err != nil {
		return nil, err
	}
	d.r.Time = at
	return d.r, nil
}

// sinks is sink, for late rows by the operators that they come from: these may be of different sub-topologies.
func (c *compiler) sinks(i int, n *rel.PSink) error {
	at := n.In[0]
	for len(at.Common().In) > 0 {
		at = at.Common().In[0]
	}
	l, ok := at.(*rel.PLateRows)
	if !ok {
		return c.sink(i, n)
	}
	for _, s := range c.late[l].streams {
		for at := n.In[0]; at != rel.Physical(l); at = at.Common().In[0] {
			delete(c.nodes, at)
		}
		c.nodes[l] = s
		if err := c.sink(i, n); err != nil {
			return err
		}
	}
	return nil
}

// sink writes rows to a table, or to what collects the rows of a bare SELECT.
func (c *compiler) sink(i int, n *rel.PSink) error {
	in, err := c.node(n.In[0])
	if err != nil {
		return err
	}
	var sink *connector.Sink
	id := fmt.Sprintf("collect-%d", i+1)
	switch {
	case n.Table != nil:
		conn, err := c.o.Connector(n.Table, n.Options)
		if err != nil {
			return fail(n, "E3701", err)
		}
		sink, err = conn.Sink(connector.Table{Table: n.Table, Options: n.Options, Columns: n.Columns, Layout: rel.Layout(n), Key: n.Key, Zone: c.o.Zone})
		if err != nil {
			return fail(n, "E3702", fmt.Errorf("write table %s: %w", n.Table.Path, err))
		}
		if err := c.settle(n, n.Table, sink.Settings); err != nil {
			return err
		}
		id = clean("sink-" + n.Table.Path.Name)
	case c.o.Collect == nil:
		return fail(n, "E3708", errors.New("a query alone has nowhere to put its rows; write INSERT INTO a table, or run it in the shell"))
	default:
		sink = c.o.Collect(n.Schema())
	}
	if sink.Discard {
		return nil
	}
	if n.Table != nil && n.Changes == catalog.Upsert {
		sink.Open = deleting(sink.Open)
	}
	var o []processor.Option
	if sink.OnError != 0 {
		o = append(o, processor.OnError(sink.OnError))
	}
	if sink.External != nil {
		processor.ToExternal(in, processor.ExternalSink[*row.Row]{ID: c.unique(id), Encode: sink.Open, Open: sink.External}, o...)
		return nil
	}
	processor.ToRaw(in, processor.RawSink[*row.Row]{Topic: sink.Topic, ID: c.unique(id), Open: sink.Open}, o...)
	return nil
}

// deleting makes a deletion of what was before an update: the row after it may have another key. Where the key stays, the
// plan tells nothing of before.
func deleting(open func(*processor.SubtaskContext, *processor.SinkWriter) (func(*row.Row) error, error)) func(*processor.SubtaskContext, *processor.SinkWriter) (func(*row.Row) error, error) {
	return func(ctx *processor.SubtaskContext, w *processor.SinkWriter) (func(*row.Row) error, error) {
		write, err := open(ctx, w)
		return func(r *row.Row) error {
			if r.Kind != row.UpdateBefore {
				return write(r)
			}
			r.Kind = row.Delete
			defer func() { r.Kind = row.UpdateBefore }()
			return write(r)
		}, err
	}
}
