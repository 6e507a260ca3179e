// Package sql is the front door of streaming SQL: it reads a script in the Flink dialect, binds and plans it, and makes a
// topology of it that runs as any other.
package sql

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/bind"
	"github.com/millrace-stream/millrace/sql/catalog"
	"github.com/millrace-stream/millrace/sql/compile"
	"github.com/millrace-stream/millrace/sql/diag"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/parse"
	"github.com/millrace-stream/millrace/sql/plan"
	"github.com/millrace-stream/millrace/sql/rel"
)

// Options of a session.
type Options struct {
	// Env gives the values of ${NAME}; nil = there are none.
	Env parse.Env
	// Connectors are what tables may stand for, by the value of the option 'connector'. Default is that of tables without
	// the option; nil = they are refused.
	Connectors connector.Registry
	Default    connector.Connector
	// Collect takes the rows of a query alone; nil = a script has INSERTs only.
	Collect func(s *rel.Schema) *connector.Sink
	// Config has settings as of SET, before the first statement.
	Config map[string]string
	// Functions are user functions by the identifier that CREATE FUNCTION .. AS names.
	Functions map[string]*fn.Func
	// OneSubtask runs every operator in one subtask: then rows are exchanged through no topic.
	OneSubtask bool
	// BadInput is the policy for what cannot be decoded; 0 = Fail, as in Flink.
	BadInput processor.Policy
	// Watch is that of compile.Options.
	Watch func(t *catalog.Table, time, before, after int64)
	// Without switches optional rules of the planner off, by name, for tests.
	Without map[string]bool
	// Seed is that of RAND and UUID.
	Seed uint64
}

// Session is what statements share: tables, views, functions and settings.
type Session struct {
	*bind.Session
	o Options
}

// NewSession is a session without tables.
func NewSession(o Options) *Session {
	s := &Session{bind.NewSession(), o}
	maps.Copy(s.Config, o.Config)
	maps.Copy(s.Functions, o.Functions)
	return s
}

// App is a script that is ready to run.
type App struct {
	Plan     *rel.Plan
	Topology *processor.Topology
	// Settings are what the tables say of the Kafka cluster, as keys of the configuration: see connector.Source.
	Settings map[string]string
	// Discover is how often tables want to be asked for topics that came later; 0 = none does. See connector.Source.
	Discover time.Duration
}

// Script reads a script, whose INSERTs become one app. name is that of the file, for messages. The list has all errors,
// or warnings alone.
func Script(name, text string, o Options) (*App, diag.List) {
	s := NewSession(o)
	sinks, errs := s.Read(name, text)
	if errs.Err() != nil {
		return nil, errs
	}
	if len(sinks) == 0 {
		return nil, append(errs, diag.New(nil, ast.Span{}, "E2004", "the script writes nothing").WithHint("add INSERT INTO a table SELECT ..."))
	}
	return s.App(sinks)
}

// Read reads statements and carries them out as far as that changes the session. It returns what is to be written: the
// INSERTs, and queries alone where they are collected. After an error in a statement the others are looked at all the
// same.
func (s *Session) Read(name, text string) ([]*rel.Sink, diag.List) {
	src := diag.NewSource(name, text)
	script, errs := parse.Script(src, s.o.Env)
	var sinks []*rel.Sink
	for _, stmt := range script.Stmts {
		r, list := s.Statement(stmt, src)
		errs = append(errs, list...)
		if r.Explain != nil {
			continue
		}
		sinks = append(sinks, r.Sinks...)
		switch {
		case r.Node == nil:
		case s.o.Collect != nil:
			sinks = append(sinks, Collected(r.Node))
		default:
			at := r.Node.At()
			errs.Add(diag.New(at.Source, at.Span, "E3708", "a query alone has nowhere to put its rows").WithHint("write INSERT INTO a table SELECT ..., or run it in the shell"))
		}
	}
	errs.Sort()
	return sinks, errs
}

// Collected is the implicit sink of a query alone.
func Collected(n rel.Node) *rel.Sink {
	return &rel.Sink{Base: rel.Base{Out: *n.Schema(), Pos: n.At()}, Input: n}
}

// App plans sinks and makes their topology.
func (s *Session) App(sinks []*rel.Sink) (*App, diag.List) {
	p, list := s.Plan(sinks)
	if list.Err() != nil {
		return nil, list
	}
	zone, err := s.Zone()
	if err != nil {
		return nil, append(list, asDiag(err))
	}
	idle, err := row.ParseDuration(s.Config["table.exec.source.idle-timeout"])
	if err != nil {
		return nil, append(list, asDiag(fmt.Errorf("SET 'table.exec.source.idle-timeout': %w", err)))
	}
	app, err := compile.Plan(p, compile.Options{Connectors: s.o.Connectors, Default: s.o.Default, Collect: s.o.Collect, Zone: zone, OneSubtask: s.o.OneSubtask, BadInput: s.o.BadInput, Watch: s.o.Watch, Idle: idle, Seed: s.o.Seed})
	if err != nil {
		return nil, append(list, asDiag(err))
	}
	return &App{p, app.Topology, app.Settings, app.Discover}, list
}

// Plan plans sinks.
func (s *Session) Plan(sinks []*rel.Sink) (*rel.Plan, diag.List) {
	late, list := s.LateSinks(sinks)
	if list.Err() != nil {
		return nil, list
	}
	p, errs := plan.Script(slices.Concat(sinks, late), plan.Options{Config: s.Config, Table: s.traits, Exchange: !s.o.OneSubtask, Without: s.o.Without})
	list = append(list, errs...)
	list.Sort()
	return p, list
}

// Zone is table.local-time-zone.
func (s *Session) Zone() (*row.Zone, error) {
	name, ok := s.Config["table.local-time-zone"]
	if !ok || name == "default" {
		return row.UTC(), nil
	}
	return row.LoadZone(name)
}

// traits asks the connector of a table what it can do.
func (s *Session) traits(t *catalog.Table) (plan.Traits, *diag.Error) {
	o := compile.Options{Connectors: s.o.Connectors, Default: s.o.Default}
	c, err := o.Connector(t, t.Options)
	if err != nil {
		return plan.Traits{}, asDiag(err)
	}
	tr, err := c.Traits(connector.Table{Table: t, Options: t.Options})
	if err != nil {
		return plan.Traits{}, asDiag(err)
	}
	return plan.Traits{Reads: tr.Reads, Writes: tr.Writes, Lookup: tr.CanLookup, Keyed: tr.Keyed, KeyForm: tr.KeyForm}, nil
}

func asDiag(err error) *diag.Error {
	var d *diag.Error
	if errors.As(err, &d) {
		return d
	}
	return diag.New(nil, ast.Span{}, "E3709", "%s", err)
}
