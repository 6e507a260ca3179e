package plan

import (
	"slices"

	"github.com/millrace-stream/millrace/sql/catalog"
	"github.com/millrace-stream/millrace/sql/rel"
)

// sink plans one INSERT, or a bare query.
func (p *planner) sink(n *rel.Sink) *rel.PSink {
	before := len(p.errs)
	logical := p.rewrite(n.Input)
	if logical == nil {
		return nil
	}
	in := p.node(logical)
	if in == nil || len(p.errs) > before {
		return nil
	}
	out := &rel.PSink{Table: n.Table, Columns: n.Columns, Options: n.Options, Changes: catalog.Retract}
	want := rel.Both
	if n.Table != nil {
		tr, ok := p.traits(n.Table, n.At())
		if !ok {
			return nil
		}
		out.Changes = tr.Writes
		for _, c := range n.Table.Key {
			i := slices.Index(n.Columns, c)
			if i < 0 {
				p.fail(n.At(), "E3603", "the PRIMARY KEY column %q of %s is not written", n.Table.Columns[c].Name, n.Table.Path)
				return nil
			}
			out.Key = append(out.Key, i)
		}
		switch tr.Writes {
		case catalog.Append:
			if retracts(in) {
				by := Updater(in)
				p.fail(by.At(), "E3604", "table %s takes new rows only, and %s changes rows that it has put out", n.Table.Path, describe(by)).
					WithNote("write to a table with 'connector' = 'upsert-kafka' and a PRIMARY KEY").
					WithNote("or with a format that has changes: 'format' = 'debezium-json'").
					WithNote("or aggregate in a window, which puts each result out once")
				return nil
			}
		case catalog.Upsert:
			if out.Key == nil {
				p.fail(n.At(), "E3605", "table %s writes upserts and has no PRIMARY KEY", n.Table.Path)
				return nil
			}
			want = rel.Both
			exact, within := false, !retracts(in)
			for _, u := range in.Common().UpsertKeys {
				exact = exact || sameSet(u, out.Key)
				within = within || subset(u, out.Key)
			}
			if exact {
				want = rel.After
			}
			if retracts(in) && !within {
				m := &rel.PMaterialize{Phys: like(in, in), Key: out.Key}
				m.Kinds, m.UpsertKeys = all, [][]int{out.Key}
				in = p.add(m, nil, nil)
				want = rel.After
			}
		}
	}
	out.Phys = phys(in.Schema().Names, in.Schema().Types, n.At(), in)
	out.Kinds = in.Common().Kinds
	p.info[out] = &info{alive: p.info[in].alive}
	p.form(in, want)
	out.Form = want
	if p.opts.Trace != nil {
		p.opts.Trace(string(Choose), rel.Tree(logical), Text(&rel.Plan{Sinks: []*rel.PSink{out}}))
	}
	return out
}
