// Package compile makes a topology of package processor out of a physical plan: sources with the decoders of connectors,
// steps of compiled expressions, operators of package exec, exchanges and sinks.
package compile

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/internal/near"
	"github.com/millrace-stream/millrace/processor"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/catalog"
	"github.com/millrace-stream/millrace/sql/diag"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
)

// Options of Plan.
type Options struct {
	Connectors connector.Registry
	// Default is the connector of tables without the option 'connector'; nil = they are refused.
	Default connector.Connector
	// Collect is the sink of a bare SELECT; nil = a plan with one is refused.
	Collect func(s *rel.Schema) *connector.Sink
	// Zone is table.local-time-zone; nil = UTC.
	Zone *row.Zone
	// OneSubtask runs all in one subtask: for plans without exchanges.
	OneSubtask bool
	// BadInput is the policy for what cannot be decoded; 0 = Fail, as in Flink.
	BadInput processor.Policy
	// Watch is called for each row that is read of a table with an event time; nil = nobody wants to know. It is for tests and
	// checks. It gets the event time of the row, or NoTime, and the watermark of its partition before and after it.
	Watch func(t *catalog.Table, time, before, after int64)
	// Idle is that of tables that name none: so long after its last record a partition holds back no event time; 0 = never.
	Idle time.Duration
	// Seed is that of RAND and UUID.
	Seed uint64
}

// stream is rows on their way: each is valid for the call.
type stream = processor.Stream[*row.Row]

// compiler is one run of Plan.
type compiler struct {
	o     Options
	top   *processor.Topology
	nodes map[rel.Physical]stream
	// scans are those of each table; merged is the one that has what all of them have.
	scans    map[string][]*rel.PScan
	merged   map[string]*rel.PScan
	fields   usedFields
	readings map[*rel.PScan]*reading
	// readers are the tables of each topic that is read; common are the topics that several read.
	readers map[string][]*reading
	common  map[string]processor.Stream[*common]
	routed  map[string]bool // by table: see rel.PScan.Routed
	ids     map[string]int
	late    map[*rel.PLateRows]*lateTable
	carries map[rel.Physical][]*lateTable // by exchange and lookup join
	config  map[string]string
	// settings of the cluster, and the table that named each first.
	settings map[string]string
	settled  map[string]*catalog.Table
}

// App is a plan that is ready to run.
type App struct {
	Topology *processor.Topology
	// Settings are what the tables say of the cluster: see connector.Source.
	Settings map[string]string
	// Discover is the least connector.Source.Discover of the tables; 0 = none has one.
	Discover time.Duration
}

// Plan makes the topology of a plan. An error is a *diag.Error with the place of what cannot be run.
func Plan(p *rel.Plan, o Options) (*App, error) {
	if o.Zone == nil {
		o.Zone = row.UTC()
	}
	if o.BadInput == 0 {
		o.BadInput = processor.Fail
	}
	c := &compiler{o: o, top: processor.New(processor.Defaults{BadInput: o.BadInput}), nodes: map[rel.Physical]stream{},
		scans: map[string][]*rel.PScan{}, routed: map[string]bool{}, fields: usedFields{}, merged: map[string]*rel.PScan{}, readings: map[*rel.PScan]*reading{}, readers: map[string][]*reading{},
		common: map[string]processor.Stream[*common]{}, ids: map[string]int{}, settings: map[string]string{}, settled: map[string]*catalog.Table{}}
	if err := c.readScans(p); err != nil {
		return nil, err
	}
	c.config = p.Config
	c.readLate(p)
	for i, s := range p.Sinks {
		if err := c.sinks(i, s); err != nil {
			return nil, err
		}
	}
	if err := c.top.Validate(); err != nil {
		return nil, fmt.Errorf("compile plan: %w", err)
	}
	app := &App{Topology: c.top, Settings: c.settings}
	for _, r := range c.readings {
		if d := r.source.Discover; d > 0 && (app.Discover == 0 || d < app.Discover) {
			app.Discover = d
		}
	}
	return app, nil
}

// settle takes what a table says of the cluster: there is one for an app.
func (c *compiler) settle(n rel.Node, t *catalog.Table, settings map[string]string) error {
	for _, k := range slices.Sorted(maps.Keys(settings)) {
		v := settings[k]
		if was, ok := c.settings[k]; ok && was != v {
			shown := fmt.Sprintf("%q and %q", was, v)
			if strings.Contains(k, "password") {
				shown = "two values"
			}
			return fail(n, "E3710", fmt.Errorf("tables %s and %s differ in %s: %s; all tables of a script lie on one Kafka cluster, which is reached in one way", c.settled[k].Path, t.Path, k, shown))
		}
		if c.settled[k] == nil {
			c.settings[k], c.settled[k] = v, t
		}
	}
	return nil
}

// Connector is that of a table.
func (o *Options) Connector(t *catalog.Table, options map[string]string) (connector.Connector, error) {
	name, ok := options["connector"]
	switch {
	case !ok && o.Default != nil:
		return o.Default, nil
	case !ok:
		return nil, fmt.Errorf("table %s has no option 'connector'; say what it stands for: WITH ('connector' = 'kafka', ...)", t.Path)
	}
	if c := o.Connectors[name]; c != nil {
		return c, nil
	}
	names := make([]string, 0, len(o.Connectors))
	for n := range o.Connectors {
		names = append(names, n)
	}
	hint := ""
	if near, ok := near.Word(name, names); ok {
		hint = fmt.Sprintf("; did you mean '%s'?", near)
	}
	return nil, fmt.Errorf("table %s: connector '%s' is unknown%s", t.Path, name, hint)
}

// fail makes an error of one node.
func fail(n rel.Node, code string, err error) error {
	if d, ok := err.(*diag.Error); ok {
		return d
	}
	at := n.At()
	return diag.New(at.Source, at.Span, code, "%s", err)
}

// scopeKey is that of the Env that the expressions of one subtask share.
type scopeKey struct{}

// envOf is the Env of a subtask.
func (c *compiler) envOf(s processor.SubtaskScope) *fn.Env {
	return processor.Shared(s, scopeKey{}, func() *fn.Env {
		seed := rand.New(rand.NewPCG(c.o.Seed, 0x5e11))
		env := &fn.Env{Zone: c.o.Zone, Watermark: math.MinInt64, Rand: seed.Uint64}
		processor.OnStep(s, func() {
			env.Now = processor.Now(s)
			env.Arena.Reset()
		})
		return env
	})
}

// id makes an id of an operator unique and fit for package processor.
func (c *compiler) id(n rel.Physical, kind string) string {
	id := n.Common().Id
	if id == "" {
		id = kind
	}
	return c.unique(clean(id))
}

func (c *compiler) unique(id string) string {
	c.ids[id]++
	if k := c.ids[id]; k > 1 {
		return fmt.Sprintf("%s-%d", id, k)
	}
	return id
}

// clean makes an id of what may have other characters.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9', r == '-':
			return r
		case 'A' <= r && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, s)
	const most = 36 // room for a number behind it
	if len(s) > most {
		s = s[:most]
	}
	return s
}

// node makes the stream of a node, once for all that read it.
func (c *compiler) node(n rel.Physical) (stream, error) {
	if s, ok := c.nodes[n]; ok {
		return s, nil
	}
	s, err := c.make(n)
	if err == nil {
		c.nodes[n] = s
	}
	return s, err
}

func (c *compiler) inputs(n rel.Physical) ([]processor.Flow[*row.Row], error) {
	var ins []processor.Flow[*row.Row]
	for _, in := range n.Common().In {
		s, err := c.node(in)
		if err != nil {
			return nil, err
		}
		ins = append(ins, s)
	}
	return ins, nil
}

func (c *compiler) make(n rel.Physical) (stream, error) {
	switch n := n.(type) {
	case *rel.PScan:
		s, err := c.scan(n)
		if err != nil || n != c.whole(n) {
			return s, err
		}
		return c.carry(n, s), nil
	case *rel.PValues:
		return c.values(n)
	}
	ins, err := c.inputs(n)
	if err != nil {
		return stream{}, err
	}
	switch n := n.(type) {
	case *rel.PCalc:
		return c.calc(n, ins)
	case *rel.PUnion:
		return c.union(n, ins)
	case *rel.PCorrelate:
		return c.correlate(n, ins)
	case *rel.PLookupJoin:
		return c.lookup(n, ins)
	case *rel.PExchange:
		return c.exchange(n, ins)
	case *rel.PDropBefore:
		return c.nodes[n.In[0]].Filter(func(r *row.Row) bool { return r.Kind != row.UpdateBefore }), nil
	}
	return c.operator(n, ins)
}
