// Package processor is the public API of Millrace for Go programs: typed streams over Kafka topics, keyed state, event
// time and windows, in the words of Flink's DataStream API.
//
// A function describes the graph: it calls From for the topics that are read, functions such as Map, KeyBy and
// Aggregate that turn one stream into another, and To for the topics that are written. Nothing runs while it is
// called. The functions that it hands over run later, in each subtask: those of stateless steps are shared by all
// subtasks of a process, so they must be pure (or lock); what has memory belongs into Process, whose setup function
// runs once per subtask.
//
// Ids are given exactly where something durable is named (a repartition topic, state); they are mandatory, unique,
// and what a later version of the program finds its state by (Flink: uid).
package processor

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/millrace-stream/millrace/internal/task"
	"github.com/millrace-stream/millrace/statestore"
)

// Defaults are the settings that the operators of a topology inherit.
type Defaults struct {
	// BadInput is the policy for what cannot be decoded, has no event time, cannot be encoded or is too large.
	// Default: DeadLetter.
	BadInput Policy
}

// Topology is the graph of operators of one app. It is built by one goroutine. Errors are collected: Validate and Plan
// report all of them.
type Topology struct {
	defaults Defaults
	nodes    []*node // in order of creation, which is topological: an operator needs its inputs' handles
	ids      map[string]*node
	errs     []error
}

// New starts an empty topology. Main and Run of package millrace do it for the program.
func New(d ...Defaults) *Topology {
	t := &Topology{ids: map[string]*node{}}
	if len(d) > 0 {
		t.defaults = d[0]
	}
	if len(d) > 1 || t.defaults.BadInput > DeadLetter {
		t.errs = append(t.errs, fmt.Errorf("%s: New: want at most one Defaults, with a known policy", callSite()))
	}
	return t
}

// node is one operator of the graph, without its types.
type node struct {
	t           *Topology
	index       int
	kind        string
	id          string // "" for what has no id
	name        string // as Name set it
	site        string
	policy      Policy
	parallelism int
	inputs      []*node
	detail      string // more for Describe

	source            *sourceInfo // a topic is read here
	output            *outputInfo // a topic is written here
	specs             []statestore.Spec
	migrations        []statestore.Migration // of MigrateState
	migrated          map[reflect.Type]bool  // those that begin with that type have a state
	timed             bool                   // it looks at its watermark
	deadLetters       bool                   // it may write dead letters whatever the policies
	sides             map[string]*side
	lateTag, lateType string // of LateTo
	emitsToSides      bool   // its context may emit to any side output
	ttl               *TTL   // of StateTTL
	ttlTaken          bool   // by a state

	joins  bool          // it is a join that has late rows
	lates  [2]lateOutput // of LateLeftTo and LateRightTo
	beside []*node       // inputs that do not hold its watermark back
	loads  []*node       // tables that it looks up the newest values of: their topics are read first
	along  bool          // of a table of a topic: nothing waits until it is loaded

	// globals are the broadcasts that the operator reads: they are in its sub-topology, and hold back no event time of it.
	globals []*node
	readBy  *node // of a broadcast: an operator that reads it; set when the graph is cut

	groupOf func(key []byte) (statestore.Group, error) // of the keys of its stores; set before specs are
}

type sourceInfo struct {
	topic    string
	from     *node // of a repartition topic: the key-by that writes it
	start    task.Start
	end      task.End
	pattern  string
	layout   task.InputLayout
	open     func(b *builder) task.Source
	internal bool
	loads    bool // others wait for what the topic holds; set when the graph is cut
	// Of a repartition topic: how keys and values are written.
	keySchema, valueSchema string
	value, key             any // format.Serde of values and keys of another topic
}

type outputInfo struct {
	topic     string
	internal  bool
	broadcast bool // to each subtask behind it
	maxBytes  int
	value     any // format.Serde of the values
}

// side is a side output of a node: a *stream[T].
type side struct {
	stream interface{ build(b *builder) any }
	what   string // T, for messages
}

var idPattern = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)

// add makes a node. The space tells apart what may have equal ids: operators, sources and sinks.
func (t *Topology) add(kind, space, id string, inputs ...*node) *node {
	n := &node{t: t, index: len(t.nodes), kind: kind, id: id, site: callSite(), inputs: inputs, sides: map[string]*side{}}
	t.nodes = append(t.nodes, n)
	for _, in := range inputs {
		if in.t != t {
			n.fail("its input from %s belongs to another topology", in.site)
		}
	}
	if space == "" {
		return n
	}
	if space == spaceOperator && !idPattern.MatchString(id) {
		n.fail("id must be 1 to 40 of a-z, 0-9 and -")
		return n
	}
	if other := t.ids[space+id]; other != nil {
		n.fail("id is taken by %s at %s", other.kind, other.site)
		return n
	}
	t.ids[space+id] = n
	return n
}

const (
	spaceOperator = "operator "
	spaceSource   = "source "
	spaceSink     = "sink "
)

func (n *node) with(o []Option) *node {
	for _, o := range o {
		if o.apply != nil {
			o.apply(n)
		}
	}
	return n
}

// fail collects a build error: call site, kind and id come before the message.
func (n *node) fail(format string, args ...any) {
	what := n.kind
	if n.id != "" {
		what += fmt.Sprintf(" %q", n.id)
	}
	n.t.errs = append(n.t.errs, fmt.Errorf("%s: %s: %w", n.site, what, fmt.Errorf(format, args...)))
}

// need collects an error for a missing function.
func (n *node) need(given bool, what string) {
	if !given {
		n.fail("%s is nil", what)
	}
}

// store declares a store of the operator; the caller may add to the spec.
func (n *node) store(name string, kind statestore.Kind, key, val string) *statestore.Spec {
	s := statestore.Spec{Name: n.id + "/" + name, Kind: kind, KeyType: key, ValType: val, Operator: n.kind}
	s.ID = statestore.StoreID(s.Name)
	n.specs = append(n.specs, s)
	return &n.specs[len(n.specs)-1]
}

// expiring declares a store whose entries are not needed any more life after their last write.
func (n *node) expiring(name string, kind statestore.Kind, key, val string, life time.Duration) *statestore.Spec {
	s := n.store(name, kind, key, val)
	s.Expiring, s.Life = true, life
	return s
}

// display is the operator's name in errors and metrics.
func (n *node) display() string {
	switch {
	case n.name != "":
		return n.name
	case n.id != "":
		return n.id
	}
	root := n
	for len(root.inputs) > 0 {
		root = root.inputs[0]
	}
	return root.id + "/" + n.kind + "@" + n.site
}

// Validate reports everything that is wrong with the topology, one line for each, with the place in the program.
func (t *Topology) Validate() error {
	_, err := t.Plan()
	return err
}

// Describe shows the topology as text: its sub-topologies, what they read and write, their operators and stores. It
// is what the flag --describe of a program prints.
func (t *Topology) Describe() string {
	subs, _ := t.cut()
	var b strings.Builder
	for _, s := range subs {
		b.WriteString(s.describe(true))
	}
	return b.String()
}

// sub is one sub-topology: the nodes that are connected without a change of partition.
type sub struct {
	t           *Topology
	id          int
	nodes       []*node
	inputs      []*node // with source, in order
	outputs     []task.OutputTopic
	outputOf    map[*node]int // index in outputs
	op          map[*node]int32
	wm          map[*node]int // watermark node
	repart      map[*node]int
	stores      []statestore.Spec
	parallelism int
	layout      task.Layout
}

// cut groups the nodes into sub-topologies, upstream before downstream.
func (t *Topology) cut() ([]*sub, []error) {
	var errs []error
	group := make([]int, len(t.nodes))
	for i := range group {
		group[i] = i
	}
	var find func(i int) int
	find = func(i int) int {
		if group[i] != i {
			group[i] = find(group[i])
		}
		return group[i]
	}
	for _, n := range t.nodes {
		for _, in := range n.inputs {
			if in.t == t {
				a, b := find(n.index), find(in.index)
				group[max(a, b)] = min(a, b)
			}
		}
	}
	for _, n := range t.nodes {
		n.readBy = nil
	}
	for _, n := range t.nodes {
		for _, b := range n.globals {
			switch {
			case b.t != t:
				errs = append(errs, fmt.Errorf("%s: %s %q: %s %q belongs to another topology", n.site, n.kind, n.id, b.kind, b.id))
			case b.readBy == nil:
				b.readBy = n
				group[find(b.index)] = find(n.index)
			case find(b.index) != find(n.index):
				errs = append(errs, fmt.Errorf("%s: %s %q: %s %q is read by %q at %s already, which runs in other subtasks, behind another KeyBy; make a second one with an id of its own for this operator", n.site, n.kind, n.id, b.kind, b.id, b.readBy.display(), b.readBy.site))
			}
		}
	}
	for _, n := range t.nodes {
		if n.source != nil && n.source.layout.Broadcast && n.readBy == nil {
			errs = append(errs, fmt.Errorf("%s: %s %q: no operator reads it; look it up somewhere, or leave it out", n.site, n.kind, n.id))
		}
	}
	byRoot := map[int]*sub{}
	var subs []*sub
	for _, n := range t.nodes {
		r := find(n.index)
		s := byRoot[r]
		if s == nil {
			s = &sub{t: t, id: -1}
			byRoot[r] = s
			subs = append(subs, s)
		}
		s.nodes = append(s.nodes, n)
		if n.source != nil {
			s.inputs = append(s.inputs, n)
		}
	}
	// Kahn's order; among those that are ready, the one made first.
	of := func(n *node) *sub { return byRoot[find(n.index)] }
	var ordered []*sub
	for len(ordered) < len(subs) {
		found := false
		for _, s := range subs {
			if s.id >= 0 {
				continue
			}
			ready := true
			for _, in := range s.inputs {
				if f := in.source.from; f != nil && f != in && of(f).id < 0 {
					ready = false
				}
			}
			if ready {
				s.id = len(ordered)
				ordered = append(ordered, s)
				found = true
				break
			}
		}
		if !found {
			for _, s := range subs {
				if s.id >= 0 {
					continue
				}
				for _, in := range s.inputs {
					if f := in.source.from; f != nil && f != in && of(f).id < 0 {
						errs = append(errs, fmt.Errorf("%s: %s %q: a stream from before it is joined with one from behind it, so it would feed itself; put a KeyBy on the other stream too", f.site, f.kind, f.id))
					}
				}
				s.id = len(ordered)
				ordered = append(ordered, s)
			}
		}
	}
	for _, s := range ordered {
		errs = append(errs, s.compile()...)
	}
	return ordered, errs
}

// compile numbers what the runtime knows by number.
func (s *sub) compile() (errs []error) {
	s.outputOf, s.op, s.wm, s.repart = map[*node]int{}, map[*node]int32{}, map[*node]int{}, map[*node]int{}
	s.layout = task.Layout{BadData: s.t.defaults.BadInput.task(), DeadLetter: -1}
	var fixed *node
	deadLetters := s.t.defaults.BadInput == 0 || s.t.defaults.BadInput == DeadLetter
	for _, n := range s.nodes {
		for _, t := range n.loads {
			t.loadFirst()
		}
	}
	for _, n := range s.inputs {
		l := n.source.layout
		s.wm[n] = len(s.layout.Nodes)
		s.layout.Nodes = append(s.layout.Nodes, task.NodeLayout{ID: n.kind + "/" + n.source.topic})
		s.layout.Inputs = append(s.layout.Inputs, l)
	}
	topics := map[string]int{}
	for _, n := range s.nodes {
		s.op[n] = int32(len(s.layout.Ops))
		s.layout.Ops = append(s.layout.Ops, task.Op{Name: n.display(), Policy: n.policy.task()})
		deadLetters = deadLetters || n.policy == DeadLetter || n.deadLetters
		s.stores = append(s.stores, n.specs...)
		if n.parallelism > 0 {
			if fixed != nil && fixed.parallelism != n.parallelism {
				errs = append(errs, fmt.Errorf("%s: %s: Parallelism(%d) contradicts Parallelism(%d) at %s, which runs in the same subtasks", n.site, n.kind, n.parallelism, fixed.parallelism, fixed.site))
			}
			fixed, s.parallelism = n, n.parallelism
		}
		if n.output != nil {
			key := n.output.topic
			if n.output.internal {
				key = "internal " + key
			}
			i, ok := topics[key]
			if !ok {
				i = len(s.outputs)
				topics[key] = i
				s.outputs = append(s.outputs, task.OutputTopic{Topic: n.output.topic, Internal: n.output.internal, Value: n.output.value})
			}
			s.outputOf[n] = i
		}
		if n.source != nil {
			continue
		}
		var ins []int
		for _, in := range n.inputs {
			if w, ok := s.wm[in]; ok && !slices.Contains(ins, w) && !slices.Contains(n.beside, in) {
				ins = append(ins, w)
			}
		}
		repart := n.output != nil && n.output.internal
		if len(ins) == 1 && !n.timed && !repart {
			s.wm[n] = ins[0]
			continue
		}
		s.wm[n] = len(s.layout.Nodes)
		// Without an id nothing is kept under it, or an operator added in front would make it another's: the watermark
		// follows from the inputs, and those behind it keep their own.
		l := task.NodeLayout{Inputs: ins}
		if n.timed || repart {
			l.ID = n.id
		}
		s.layout.Nodes = append(s.layout.Nodes, l)
		if repart {
			s.repart[n] = len(s.layout.Repartitions)
			r := task.Repartition{Output: s.outputOf[n], Node: s.wm[n], ID: n.id, Broadcast: n.output.broadcast}
			if r.Broadcast {
				r.Loads = s.loads(n)
			}
			s.layout.Repartitions = append(s.layout.Repartitions, r)
		}
	}
	for i, n := range s.inputs {
		s.layout.Inputs[i].Op = s.op[n]
	}
	if deadLetters {
		s.layout.DeadLetter = len(s.outputs)
		s.outputs = append(s.outputs, task.OutputTopic{DeadLetter: true})
	}
	slices.SortFunc(s.stores, func(a, b statestore.Spec) int { return cmp.Compare(a.Name, b.Name) })
	return errs
}

// feeds says that nothing depends on the number of subtasks: see task.SubTopology.Feeds.
func (s *sub) feeds() bool {
	broadcasts := false
	for _, n := range s.nodes {
		if n.output != nil && n.output.internal {
			if !n.output.broadcast {
				return false
			}
			broadcasts = true
		}
	}
	return broadcasts && len(s.stores) == 0
}

// loadFirst makes the topics of a table, or of those that it is joined of, go first.
func (n *node) loadFirst() {
	switch {
	case n.kind == kindJoinTables:
		for _, in := range n.inputs {
			in.loadFirst()
		}
	case n.kind == kindTable && !n.along:
		src := n.inputs[0].source
		src.loads, src.layout.First = true, true
	}
}

// loads are the inputs that a broadcast is made of: what they hold at the first start is to be there before anything else
// is processed behind it. What comes from behind a KeyBy was not there before the first start.
func (s *sub) loads(n *node) (inputs []int) {
	seen := map[*node]bool{}
	internal := false
	var visit func(n *node)
	visit = func(n *node) {
		if seen[n] {
			return
		}
		seen[n] = true
		switch {
		case n.source == nil:
		case n.source.internal:
			internal = true
		default:
			inputs = append(inputs, s.wm[n])
		}
		for _, in := range n.inputs {
			visit(in)
		}
	}
	visit(n)
	if internal {
		return nil
	}
	slices.Sort(inputs)
	for _, i := range inputs {
		s.inputs[i].source.loads = true
	}
	return inputs
}

// describe is the text of one sub-topology. Without places in the source it is what the fingerprint covers.
func (s *sub) describe(sites bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "sub-topology %d", s.id)
	if s.parallelism > 0 {
		fmt.Fprintf(&b, ", parallelism %d", s.parallelism)
	}
	b.WriteByte('\n')
	number := map[*node]int{}
	for i, n := range s.nodes {
		number[n] = i + 1
		fmt.Fprintf(&b, "  %d %s", i+1, n.kind)
		if n.id != "" {
			fmt.Fprintf(&b, " %q", n.id)
		}
		if n.detail != "" {
			b.WriteString(" " + n.detail)
		}
		for j, in := range n.inputs {
			if j == 0 {
				b.WriteString(" <-")
			}
			fmt.Fprintf(&b, " %d", number[in])
		}
		for _, in := range n.globals {
			fmt.Fprintf(&b, " beside %d", number[in])
		}
		if sites {
			fmt.Fprintf(&b, " (%s)", n.site)
		}
		b.WriteByte('\n')
		if n.source != nil && n.source.internal {
			fmt.Fprintf(&b, "    reads repartition topic of %q\n", n.source.topic)
		} else if n.source != nil {
			fmt.Fprintf(&b, "    reads topic %s\n", n.source.topic)
		}
		if n.output != nil && n.output.internal {
			fmt.Fprintf(&b, "    writes repartition topic of %q\n", n.output.topic)
		} else if n.output != nil {
			fmt.Fprintf(&b, "    writes topic %s\n", n.output.topic)
		}
		for _, spec := range n.specs {
			fmt.Fprintf(&b, "    store %s: %s -> %s", spec.Name, spec.KeyType, spec.ValType)
			if spec.Aggregate != "" {
				fmt.Fprintf(&b, " (%s)", spec.Aggregate)
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// Plan validates the topology and compiles it for the engine. The error joins all that Validate reports.
func (t *Topology) Plan() (*task.Plan, error) {
	errs := slices.Clone(t.errs)
	subs, more := t.cut()
	errs = append(errs, more...)
	read := map[string]*node{}
	stores := map[statestore.ID]string{}
	sources := 0
	for _, n := range t.nodes {
		if n.source != nil && n.source.from == n {
			sources++ // Generate
		}
		if n.source != nil && !n.source.internal {
			sources++
			if other := read[n.source.topic]; other != nil && other.id != n.id {
				errs = append(errs, fmt.Errorf("%s: %s %q: topic %s is read at %s already; use that stream twice (a group has one position per partition)", n.site, n.kind, n.id, n.source.topic, other.site))
			} else {
				read[n.source.topic] = n
			}
		}
		for _, m := range n.migrations {
			if from, to := m.Types(); !n.migrated[from] {
				errs = append(errs, fmt.Errorf("%s: %s: MigrateState: migrate %s to %s: it keeps no values of type %s; give the migrations to the operator that does, those of Process to Value, List or MapOf (Migrations)", n.site, n.kind, from, to, to))
			}
		}
		if n.ttl != nil && !n.ttlTaken {
			errs = append(errs, fmt.Errorf("%s: %s: StateTTL: it has no state that could expire; set it on the operator that keeps the state", n.site, n.kind))
		}
		for _, spec := range n.specs {
			if other, ok := stores[spec.ID]; ok {
				errs = append(errs, fmt.Errorf("%s: %s %q: store %s has the same id as store %s; rename one of them", n.site, n.kind, n.id, spec.Name, other))
			}
			stores[spec.ID] = spec.Name
		}
	}
	if sources == 0 {
		errs = append(errs, errors.New("topology reads no topic; start with From"))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	p := &task.Plan{}
	of := map[*node]int{}
	hash := sha256.New()
	for _, s := range subs {
		for _, n := range s.nodes {
			of[n] = s.id
		}
		st := &task.SubTopology{ID: s.id, Outputs: s.outputs, Stores: s.stores, Parallelism: s.parallelism, Feeds: s.feeds(), Describe: s.describe(true), New: s.newTask, KeyGroup: s.keyGroup}
		for _, n := range s.inputs {
			in := task.Input{Topic: n.source.topic, Internal: n.source.internal, Start: n.source.start, End: n.source.end, Pattern: n.source.pattern, Idle: n.source.layout.Idle, Broadcast: n.source.layout.Broadcast, Load: n.source.loads, First: n.source.layout.First, Value: n.source.value, Key: n.source.key}
			if f := n.source.from; f != nil {
				in.Upstream, in.Partitions = of[f], n.parallelism
				in.KeySchema, in.ValueSchema = n.source.keySchema, n.source.valueSchema
			}
			st.Inputs = append(st.Inputs, in)
		}
		p.Subs = append(p.Subs, st)
		hash.Write([]byte(s.describe(false)))
	}
	p.Fingerprint = hex.EncodeToString(hash.Sum(nil)[:16])
	return p, nil
}
