package sql

import (
	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/sql/catalog"
	"github.com/millrace-stream/millrace/sql/diag"
	"github.com/millrace-stream/millrace/sql/rel"
)

// UnusedOption is the warning of an option of a table that does nothing.
const UnusedOption = "W23"

// Unused warns of options of tables that have no effect.
func (a *App) Unused(registry connector.Registry) (list diag.List) {
	seen := map[*catalog.Table]bool{}
	look := func(t *catalog.Table, options map[string]string, at rel.Place) {
		conn := registry[options["connector"]]
		if t == nil || conn == nil || seen[t] {
			return
		}
		seen[t] = true
		tr, err := conn.Traits(connector.Table{Table: t, Options: options})
		if err != nil {
			return // who plans it has told it
		}
		for _, u := range tr.Unused {
			list.Add(diag.New(at.Source, at.Span, UnusedOption, "table %s: %s has no effect: %s", t.Path, u.Option, u.Why))
		}
	}
	for _, sink := range a.Plan.Sinks {
		look(sink.Table, sink.Options, sink.At())
		rel.Walk(sink, func(n rel.Node) bool {
			if scan, ok := n.(*rel.PScan); ok {
				look(scan.Table, scan.Options, scan.At())
			}
			return true
		})
	}
	return list
}

// Warnings are what the planner warns of.
func (a *App) Warnings() (list diag.List) {
	for _, w := range a.Plan.Warnings {
		list.Add(diag.New(w.At.Source, w.At.Span, w.Code, "%s", w.Message))
	}
	return list
}
