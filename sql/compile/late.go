package compile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/rel"
)

// lateTable is a table whose rows are written elsewhere if they come too late for an operator.
type lateTable struct {
	number  int
	node    *rel.PLateRows
	layout  *row.Layout
	tag     processor.OutputTag[*row.Row]
	streams []stream // of late rows, by operator
}

// carried is the row of a source that a subtask works on, for the operator that finds it too late. It costs nothing where
// the source is read; an exchange takes the row along.
type carried struct {
	late *lateTable // nil = there is none
	row  *row.Row
	take func(r *row.Row) *row.Row // makes a row of late.layout
}

// carriedKey is that of the carried row that the parts of a subtask share.
type carriedKey struct{}

func carriedOf(s processor.SubtaskScope) *carried {
	return processor.Shared(s, carriedKey{}, func() *carried { return &carried{} })
}

// send writes the carried row, if there is one.
func (k *carried) send(ctx *context) {
	if k.late != nil {
		k.late.tag.Emit(ctx, k.take(k.row))
	}
}

// with runs f while a row is carried.
func (k *carried) with(late *lateTable, r *row.Row, take func(r *row.Row) *row.Row, f func() error) error {
	k.late, k.row, k.take = late, r, take
	err := f()
	k.late, k.row = nil, nil
	return err
}

// resume runs f while the row is carried that a reader found beside the one that it read last.
func (k *carried) resume(d *carryReader, f func() error) error {
	if d.of == nil {
		return f()
	}
	i := slices.Index(d.late, d.of)
	if d.rows == nil {
		d.rows = make([]*row.Row, len(d.late))
	}
	if d.rows[i] == nil {
		d.rows[i] = d.of.layout.New()
	}
	was := d.rows[i]
	if err := d.of.layout.UnpackKind(d.row, was); err != nil {
		return err
	}
	was.Time = d.r.Time
	return k.with(d.of, was, func(r *row.Row) *row.Row { return r }, f)
}

// readLate finds the tables whose late rows are written, and the exchanges and calls that must take their rows along.
func (c *compiler) readLate(p *rel.Plan) {
	c.late, c.carries = map[*rel.PLateRows]*lateTable{}, map[rel.Physical][]*lateTable{}
	for _, s := range p.Sinks {
		rel.Walk(s, func(n rel.Node) bool {
			if l, ok := n.(*rel.PLateRows); ok && c.late[l] == nil {
				k := len(c.late)
				c.late[l] = &lateTable{number: k, node: l, layout: rel.Layout(l), tag: processor.NewOutputTag[*row.Row](fmt.Sprintf("late-%d", k+1))}
			}
			return true
		})
	}
	if len(c.late) == 0 {
		return
	}
	type visit struct {
		n     rel.Physical
		above bool
	}
	seen := map[visit]bool{}
	var walk func(n rel.Physical, above bool)
	walk = func(n rel.Physical, above bool) {
		above = above || rel.DropsLate(n)
		if seen[visit{n, above}] {
			return
		}
		seen[visit{n, above}] = true
		switch n.(type) {
		case *rel.PExchange, *rel.PLookupJoin:
			if above {
				c.carries[n] = c.lateBelow(n)
			}
		}
		for _, in := range n.Common().In {
			walk(in, above)
		}
	}
	for _, s := range p.Sinks {
		walk(s, false)
	}
}

// lateBelow are the tables below a node whose late rows are written.
func (c *compiler) lateBelow(n rel.Physical) (out []*lateTable) {
	rel.Walk(n, func(n rel.Node) bool {
		if s, ok := n.(*rel.PScan); ok {
			for _, l := range c.late {
				if l.node.Table == s.Table && s.LateRowTable != "" && !slices.Contains(out, l) {
					out = append(out, l)
				}
			}
		}
		return true
	})
	slices.SortFunc(out, func(a, b *lateTable) int { return a.number - b.number })
	return out
}

// lateFrom takes the late rows of an operator.
func (c *compiler) lateFrom(n rel.Physical, s stream) {
	if !rel.DropsLate(n) {
		return
	}
	for _, l := range c.lateBelow(n) {
		l.streams = append(l.streams, processor.SideOutput(s, l.tag))
	}
}

// carry notes each row of a scan as the one that may be late.
func (c *compiler) carry(n *rel.PScan, in stream) stream {
	late := c.lateBelow(n)
	if len(late) == 0 {
		return in
	}
	l := late[0]
	from := rel.Layout(n)
	var columns []int
	for _, name := range l.node.Out.Names {
		columns = append(columns, slices.Index(n.Out.Names, name))
	}
	return processor.Transform([]flow{in}, "", func(ctx *context) {
		k := carriedOf(ctx)
		out := l.layout.New()
		take := func(r *row.Row) *row.Row {
			out.Kind, out.Time = r.Kind, r.Time
			for i, col := range columns {
				l.layout.CopyColumn(out, i, from, r, col)
			}
			return out
		}
		ctx.OnRecord(func(_ int, r *row.Row) error {
			return k.with(l, r, take, func() error { return ctx.Emit(r) })
		})
	}, processor.Name("carry"))
}

// carrySchema is what an exchange adds to its values.
func carrySchema(late []*lateTable) string {
	var b strings.Builder
	for _, l := range late {
		fmt.Fprintf(&b, "; late %s %s", l.node.Table.Path, l.layout.Schema())
	}
	return b.String()
}

// carryWriter puts the carried row in front of a row: the number of its table among late, from 1, and its length. 0 = none.
type carryWriter struct {
	rowWriter
	late    []*lateTable
	carried *carried
	buf     []byte
}

func (w *carryWriter) AppendValue(dst []byte, r *row.Row) []byte {
	i := slices.Index(w.late, w.carried.late)
	if i < 0 {
		return w.rowWriter.AppendValue(append(dst, 0), r)
	}
	w.buf = w.late[i].layout.PackKind(w.buf[:0], w.carried.take(w.carried.row))
	dst = binary.AppendUvarint(append(dst, byte(i+1)), uint64(len(w.buf)))
	return w.rowWriter.AppendValue(append(dst, w.buf...), r)
}

// carryReader reads what a carryWriter wrote.
type carryReader struct {
	rowReader
	late []*lateTable
	of   *lateTable // of the row that was read; nil = none
	row  []byte
	rows []*row.Row // by late, for resume
}

func (d *carryReader) Read(key, payload []byte, at int64) (*row.Row, error) {
	bad := errors.New("read packed row: the late row in front of it is damaged")
	if len(payload) == 0 || int(payload[0]) > len(d.late) {
		return nil, bad
	}
	d.of, d.row = nil, nil
	i := int(payload[0])
	payload = payload[1:]
	if i > 0 {
		size, n := binary.Uvarint(payload)
		if n <= 0 || size > uint64(len(payload)-n) {
			return nil, bad
		}
		d.of, d.row, payload = d.late[i-1], payload[n:n+int(size)], payload[n+int(size):]
	}
	return d.rowReader.Read(key, payload, at)
}

// readersKey is that of the readers of an exchange in a subtask, by the row that each hands out.
type readersKey struct{ n *rel.PExchange }

func readersOf(s processor.SubtaskScope, n *rel.PExchange) map[*row.Row]*carryReader {
	return processor.Shared(s, readersKey{n}, func() map[*row.Row]*carryReader { return map[*row.Row]*carryReader{} })
}

// carryOn notes the row that an exchange took along as the one that may be late.
func (c *compiler) carryOn(n *rel.PExchange, in stream) stream {
	return processor.Transform([]flow{in}, "", func(ctx *context) {
		k, readers := carriedOf(ctx), readersOf(ctx, n)
		ctx.OnRecord(func(_ int, r *row.Row) error {
			return k.resume(readers[r], func() error { return ctx.Emit(r) })
		})
	}, processor.Name("carry"))
}
