package exec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-stream/millrace/internal/nfa"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/expr"
	"github.com/millrace-stream/millrace/sql/fn"
	"github.com/millrace-stream/millrace/sql/rel"
	"github.com/millrace-stream/millrace/statestore"
)

// match is PMatch: MATCH_RECOGNIZE. Rows wait for the watermark, go through the automaton of their key in order of time, and
// are kept as long as a partial match has them.
type match struct {
	c       Context
	n       *rel.PMatch
	in, out *row.Layout
	keys    *row.KeyEncoder
	waiting *timedRows
	states  *valueState[nfa.State]
	events  *mapState[packed]
	machine *nfa.Machine
	memory  nfa.State // nobody's
	refs    []*variables
	leading []string                          // the variable that each match has once, for its first row, if there is such a one
	rows    map[string]map[nfa.Event]*row.Row // by key, of those that lately ran: rows that matches have taken
	cached  int                               // at most so many are in rows
	conds   []*patternExpr
	measure []*patternExpr
	second  *row.KeyEncoder
	row     *row.Row
	word    int
	key     []byte
	place   []byte
	view    matchView

	// Of the running key and event.
	g         statestore.Group
	k         string
	of        map[nfa.Event]*row.Row // in rows
	candidate *row.Row
	at        int64
}

// maxCachedRows is how many rows that matches have taken are kept unpacked.
const maxCachedRows = 16 << 10

// variables is the pattern variables that a name stands for.
type variables struct {
	names   []string // nil = all
	tested  bool     // the variable whose condition reads them is one of them
	ofStage []bool   // by stage
	first   bool     // it is one variable, of the first row of each match and no other
}

// matchStates is the codec of the states of keys: they stay as the automaton works on them as long as they are in memory.
type matchStates struct {
	m      *nfa.Machine
	schema string
}

// Append is of statestore.Codec.
func (c *matchStates) Append(dst []byte, v *nfa.State) []byte {
	c.m.Take(*v)
	dst = c.m.Store(dst)
	*v = c.m.Give() // the same, without gaps
	return dst
}

// Decode is of statestore.Codec.
func (c *matchStates) Decode(src []byte, v *nfa.State) error {
	if err := c.m.Load(src); err != nil {
		return err
	}
	*v = c.m.Give()
	return nil
}

// Flat is of statestore.Codec.
func (*matchStates) Flat() bool { return false }

// Schema is of statestore.Codec.
func (c *matchStates) Schema() string { return c.schema }

// Copy is of statestore.Copier.
func (*matchStates) Copy(dst, src *nfa.State) { dst.Copy(src) }

// Size is of statestore.Copier.
func (*matchStates) Size(v *nfa.State) int { return v.Size() }

// Own is of statestore.Copier.
func (*matchStates) Own(*nfa.State) bool { return true }

// patternExpr is an expression over the rows of a match: what it reads of them is put into a row of its own.
type patternExpr struct {
	variable string // whose condition it is; "" = a measure
	layout   *row.Layout
	row      *row.Row
	fill     []func(v *matchView)
	cond     func(r *row.Row) bool
	store    func(out, in *row.Row)
}

// matchView is the rows that an expression sees.
type matchView struct {
	o         *match
	m         *nfa.Partial // nil = no rows but the candidate
	candidate *row.Row     // that is tested; nil = none
	last      int64        // time of the last row
}

func newMatch(n *rel.PMatch, c Context) (Operator, error) {
	in := rel.Layout(n.In[0])
	o := &match{c: c, n: n, in: in, out: rel.Layout(n), keys: row.NewKeyEncoder(in, n.Partition...), row: rel.Layout(n).New()}
	if len(n.Order) == 0 {
		return nil, errors.New("MATCH_RECOGNIZE wants ORDER BY a time attribute")
	}
	o.word = in.Place(n.Order[0].Column).Index
	o.second = row.NewSortEncoder(in, sortColumns(n.Order[1:])...)
	program, err := o.compile()
	if err != nil {
		return nil, err
	}
	o.machine, o.rows = program.NewMachine(), map[string]map[nfa.Event]*row.Row{}
	for i, m := range n.Measures {
		p, err := o.expression("", m)
		if err != nil {
			return nil, err
		}
		code, err := expr.Compile(c.Env(), p.layout, p.mapped(m))
		if err != nil {
			return nil, err
		}
		p.store = expr.Store(o.out, len(n.Partition)+i, code, fn.Place{})
		o.measure = append(o.measure, p)
	}
	for _, x := range o.refs {
		for _, stage := range program.Stages() {
			x.ofStage = append(x.ofStage, x.names == nil || slices.Contains(x.names, stage))
		}
		x.first = o.leading != nil && slices.Equal(x.names, o.leading)
	}
	if o.waiting, err = newTimedRows(c, "waiting", in, n.Partition, true); err != nil {
		return nil, err
	}
	keys := keysOf(o.keys, in, n.Partition)
	if o.states, err = openTable(c, "partials", keys, statestore.Codec[nfa.State](&matchStates{program.NewMachine(), "nfa1 " + program.Layout()}), 0); err != nil {
		return nil, err
	}
	o.events, err = openMap(c, "events", keys, tailKeys("time, place"), statestore.Codec[packed](packedOf(in)), 0)
	return o, err
}

// compile makes the automaton of the pattern.
func (o *match) compile() (*nfa.Program, error) {
	p := nfa.Pattern{Within: o.n.Within, MustSkip: true}
	switch o.n.Skip {
	case ast.SkipDefault, ast.SkipPastLastRow:
		p.Skip = nfa.SkipPastLast
	case ast.SkipToNextRow:
		p.Skip = nfa.SkipToNext
	case ast.SkipToFirst:
		p.Skip, p.SkipStage = nfa.SkipToFirst, o.n.SkipTo
	default:
		p.Skip, p.SkipStage = nfa.SkipToLast, o.n.SkipTo
	}
	stages, err := o.stages(o.n.Pattern, &p)
	if err != nil {
		return nil, err
	}
	if last := stages[len(stages)-1]; last.Greedy && (last.From != last.To) {
		return nil, errors.New("a greedy quantifier cannot end a pattern: a match would never be complete; make it reluctant (+?) or let a variable follow")
	}
	if s := stages[0]; s.From == 1 && s.To == 1 && !s.Optional && !slices.ContainsFunc(stages[1:], func(x nfa.Stage) bool { return x.Name == s.Name }) {
		o.leading = []string{s.Name}
	}
	p.Stages = stages
	return nfa.Compile(p)
}

// stages are those of a part of the pattern: each follows the one before at once.
func (o *match) stages(part ast.Pattern, p *nfa.Pattern) ([]nfa.Stage, error) {
	switch x := part.(type) {
	case *ast.PatternVar:
		s := nfa.Stage{Name: x.Name.Name, Link: nfa.Next, Inner: nfa.Next, Cond: nfa.Always, Until: nfa.Always, From: 1, To: 1}
		if d := o.n.Defines[x.Name.Name]; d != nil {
			c, err := o.expression(x.Name.Name, d)
			if err != nil {
				return nil, err
			}
			if c.cond, err = expr.Condition(o.c.Env(), c.layout, c.mapped(d)); err != nil {
				return nil, err
			}
			s.Cond = len(p.Conds)
			o.conds = append(o.conds, c)
			kind := nfa.OfEvent
			if looksBack(d, x.Name.Name) {
				kind = nfa.OfMatch
			}
			p.Conds = append(p.Conds, kind)
		}
		return []nfa.Stage{s}, nil
	case *ast.PatternSeq:
		var out []nfa.Stage
		for _, part := range x.Parts {
			s, err := o.stages(part, p)
			if err != nil {
				return nil, err
			}
			out = append(out, s...)
		}
		return out, nil
	case *ast.PatternQuant:
		v, ok := x.Part.(*ast.PatternVar)
		if !ok {
			return nil, errors.New("a quantifier behind a group is not supported in PATTERN; quantify variables")
		}
		s, err := o.stages(v, p)
		if err != nil {
			return nil, err
		}
		st := &s[0]
		st.From, st.To, st.Greedy = x.Min, x.Max, !x.Reluctant && x.Min != x.Max && x.Max != 1
		if x.Max < 0 {
			st.To = nfa.Unbounded
		}
		if x.Min == 0 {
			st.From, st.Optional = 1, true
		}
		return s, nil
	}
	return nil, fmt.Errorf("PATTERN has %s, which is not supported: use variables in sequence with * + ? and {n,m}", rel.PatternText(part))
}

// looksBack says whether a condition reads more than the row that is tested.
func looksBack(e rel.Expr, variable string) (yes bool) {
	rel.WalkExpr(e, func(x rel.Expr) bool {
		switch x := x.(type) {
		case *rel.PatternAgg:
			yes = true
		case *rel.PatternRef:
			if x.Variable != "" && x.Variable != variable || x.Nav != rel.NavLast || x.Offset != 0 {
				yes = true
			}
		}
		return true
	})
	return yes
}

// expression finds what an expression reads of the match.
func (o *match) expression(variable string, e rel.Expr) (*patternExpr, error) {
	p := &patternExpr{variable: variable}
	var types []*row.Type
	var reads []rel.Expr
	rel.WalkExpr(e, func(x rel.Expr) bool {
		switch x := x.(type) {
		case *rel.PatternRef, *rel.PatternAgg:
			reads, types = append(reads, x), append(types, x.Type().Nullable(true))
			return false
		case *rel.Call:
			if x.Func.Name == "MATCH_ROWTIME" || x.Func.Name == "MATCH_PROCTIME" {
				reads, types = append(reads, x), append(types, x.Typ.Nullable(true))
				return false
			}
		}
		return true
	})
	p.layout = row.NewLayout(types...)
	p.row = p.layout.New()
	for i, x := range reads {
		f, err := o.read(p, i, x)
		if err != nil {
			return nil, err
		}
		p.fill = append(p.fill, f)
	}
	return p, nil
}

// mapped is the expression with columns of the patternExpr's own row in place of what it reads, in the order of expression.
func (p *patternExpr) mapped(e rel.Expr) rel.Expr {
	i := 0
	column := func(x rel.Expr) rel.Expr {
		c := rel.NewColumn(x.Type(), i, 0, "", x.Where())
		i++
		return c
	}
	return rel.MapExpr(e, func(x rel.Expr) rel.Expr {
		switch x := x.(type) {
		case *rel.PatternRef, *rel.PatternAgg:
			return column(x)
		case *rel.Call:
			if x.Func.Name == "MATCH_ROWTIME" || x.Func.Name == "MATCH_PROCTIME" {
				return column(x)
			}
		}
		return x
	})
}

// read makes the function that puts what an expression reads into column i.
func (o *match) read(p *patternExpr, i int, x rel.Expr) (func(v *matchView), error) {
	switch x := x.(type) {
	case *rel.PatternRef:
		of := o.members(x.Variable, p.variable)
		return func(v *matchView) {
			r := v.find(of, x.Nav, x.Offset)
			if r == nil {
				p.row.SetNull(i)
				return
			}
			p.layout.CopyColumn(p.row, i, o.in, r, x.Column)
		}, nil
	case *rel.PatternAgg:
		args, err := expr.CompileAll(o.c.Env(), o.in, x.Args)
		if err != nil {
			return nil, err
		}
		acc, err := x.Call.Func.Agg.Compile(o.c.Env(), args, x.Type())
		if err != nil {
			return nil, err
		}
		set := expr.Store(p.layout, i, acc.Value, fn.Place{})
		var distinct []func(r *row.Row) []byte
		if x.Call.Distinct {
			l := row.NewLayout(typesList(x.Args)...)
			scratch := l.New()
			var stores []func(out, in *row.Row)
			var cols []int
			for a, code := range args {
				stores = append(stores, expr.Store(l, a, code, fn.Place{}))
				cols = append(cols, a)
			}
			enc := row.NewKeyEncoder(l, cols...)
			distinct = append(distinct, func(r *row.Row) []byte {
				for _, s := range stores {
					s(scratch, r)
				}
				return enc.Append(nil, scratch)
			})
		}
		of := o.members(x.Variable, p.variable)
		st := fn.State{W: make([]uint64, acc.Words), S: make([][]byte, acc.Views)}
		seen := map[string]bool{}
		return func(v *matchView) {
			clear(st.W)
			clear(st.S)
			if acc.Init != nil {
				acc.Init(st)
			}
			clear(seen)
			v.each(of, func(r *row.Row) {
				if distinct != nil {
					key := string(distinct[0](r))
					if seen[key] {
						return
					}
					seen[key] = true
				}
				acc.Add(st, r)
			})
			acc.Bind(st)
			set(p.row, nil)
		}, nil
	}
	return func(v *matchView) {
		p.row.ClearNull(i)
		p.row.SetInt64(p.layout.Place(i).Index, v.last)
	}, nil
}

func typesList(es []rel.Expr) []*row.Type {
	out := make([]*row.Type, len(es))
	for i, e := range es {
		out[i] = e.Type()
	}
	return out
}

// members are the variables that a name stands for, read in the condition of tested, "" = in a measure.
func (o *match) members(name, tested string) *variables {
	v := &variables{}
	if s, ok := o.n.Subsets[name]; ok {
		v.names = s
	} else if name != "" {
		v.names = []string{name}
	}
	v.tested = v.names == nil || slices.Contains(v.names, tested)
	o.refs = append(o.refs, v)
	return v
}

// each calls f for the rows of variables, in order, the tested one last.
func (v *matchView) each(of *variables, f func(r *row.Row)) {
	if v.m != nil {
		for _, t := range v.m.Taken() {
			if of.ofStage[t.Stage] {
				f(v.o.event(t.Event))
			}
		}
	}
	if v.candidate != nil && of.tested {
		f(v.candidate)
	}
}

// find is the row that a reference means: the n-th from the start or the end of those of the variables. In a condition a
// column without a variable is that of the row that is tested.
func (v *matchView) find(of *variables, nav rel.Nav, n int) *row.Row {
	tested := v.candidate != nil && of.tested
	if nav == rel.NavLast || nav == rel.NavPrev {
		if tested {
			if n == 0 {
				return v.candidate
			}
			n--
		}
		if v.m == nil {
			return nil
		}
		if of.first {
			return v.begin(n)
		}
		var found *row.Row
		v.m.Newest(func(t nfa.Taken) bool {
			if of.ofStage[t.Stage] {
				if n == 0 {
					found = v.o.event(t.Event)
					return false
				}
				n--
			}
			return true
		})
		return found
	}
	if v.m != nil {
		if of.first && !tested {
			return v.begin(n)
		}
		for _, t := range v.m.Taken() {
			if of.ofStage[t.Stage] {
				if n == 0 {
					return v.o.event(t.Event)
				}
				n--
			}
		}
	}
	if tested && n == 0 {
		return v.candidate
	}
	return nil
}

// begin is the n-th row of a variable that has the first row alone.
func (v *matchView) begin(n int) *row.Row {
	if e, ok := v.m.First(); ok && n == 0 {
		return v.o.event(e)
	}
	return nil
}

// eventKey is the key of an event in the store of rows, valid until the next call.
func (o *match) eventKey(e nfa.Event) string {
	o.place = binary.BigEndian.AppendUint32(appendEnd(o.place[:0], e.Time), e.Seq)
	return view(o.place)
}

// event is the row of an event of the running key.
func (o *match) event(e nfa.Event) *row.Row {
	if r := o.of[e]; r != nil {
		return r
	}
	v := o.events.Get(o.g, o.k, o.eventKey(e))
	if v == nil {
		panic(&statestore.Fault{Err: fmt.Errorf("%w: MATCH_RECOGNIZE: the row of an event is missing", statestore.ErrCorrupt)})
	}
	r := o.in.New()
	if err := o.in.Unpack(*v, r); err != nil {
		damaged("MATCH_RECOGNIZE", err)
	}
	o.remember(e, r)
	return r
}

// remember keeps the row of an event of the running key unpacked.
func (o *match) remember(e nfa.Event, r *row.Row) {
	o.drop(e)
	if o.cached++; o.cached > maxCachedRows {
		clear(o.rows)
		o.cached, o.of = 1, nil
	}
	if o.of == nil {
		o.of = map[nfa.Event]*row.Row{}
		o.rows[strings.Clone(o.k)] = o.of
	}
	o.of[e] = r
}

// drop forgets an unpacked row.
func (o *match) drop(e nfa.Event) {
	if _, ok := o.of[e]; ok {
		delete(o.of, e)
		o.cached--
	}
}

// Holds is of nfa.Conditions.
func (o *match) Holds(cond int, _ nfa.Event, m *nfa.Partial) bool {
	p := o.conds[cond]
	o.view = matchView{o: o, m: m, candidate: o.candidate, last: o.at}
	for _, f := range p.fill {
		f(&o.view)
	}
	return p.cond(p.row)
}

// Match is of nfa.Output.
func (o *match) Match(m *nfa.Partial, at int64) error {
	v := matchView{o: o, m: m, last: at}
	if taken := m.Taken(); len(taken) > 0 {
		v.last = taken[len(taken)-1].Event.Time
		first := o.event(taken[0].Event)
		for i, c := range o.n.Partition {
			o.out.CopyColumn(o.row, i, o.in, first, c)
		}
	}
	for _, p := range o.measure {
		for _, f := range p.fill {
			f(&v)
		}
		p.store(o.row, p.row)
	}
	o.row.Kind, o.row.Time = row.Insert, at
	return o.c.Emit(o.row)
}

// TimedOut is of nfa.Output: a match that was not complete in time is none.
func (o *match) TimedOut(*nfa.Partial, int64) error { return nil }

// Release is of nfa.Output.
func (o *match) Release(e nfa.Event) error {
	o.events.Delete(o.g, o.k, o.eventKey(e))
	o.drop(e)
	return nil
}

// The timers of a key.
const (
	timerRows     = 0 // rows of this time wait
	timerDeadline = 1 // a partial match has no time left
)

// Start is of Starter.
func (o *match) Start() error {
	if at, ok := o.waiting.timers.Next(); ok {
		if o.n.Proc {
			o.c.DueProcessing(at)
		} else {
			o.c.Due(at)
		}
	}
	return nil
}

// Process is of Operator.
func (o *match) Process(input int, r *row.Row) error {
	o.key = o.keys.Append(o.key[:0], r)
	g, k := o.c.Group(o.key), view(o.key)
	if o.n.Proc {
		at := o.c.Env().Now
		return o.run(g, string(o.key), at, []*row.Row{r})
	}
	if r.Null(o.n.Order[0].Column) {
		panic(&fn.Failure{Message: "MATCH_RECOGNIZE ordered by a time that is NULL"})
	}
	at := r.Int64(o.word)
	wm := o.c.Watermark()
	if at <= wm {
		o.c.Late(input, r)
		return nil
	}
	o.waiting.add(g, k, at, r, 0)
	o.waiting.timers.Set(at, g, k, timerRows)
	o.c.Due(at)
	return nil
}

// OnWatermark is of Timed.
func (o *match) OnWatermark(_, watermark int64) error { return o.advance(watermark) }

// OnTime is of ProcTimed.
func (o *match) OnTime(now int64) error { return o.advance(now) }

func (o *match) advance(upTo int64) error {
	for {
		at, g, k, id, ok := o.waiting.timers.Pop(upTo)
		if !ok {
			break
		}
		err := o.c.Atomic(g, at, bytesOf(k), func() error {
			if id == timerDeadline {
				return o.run(g, k, at, nil)
			}
			var rows []*row.Row
			o.waiting.each(g, k, at, at, func(_ string, _ *sideRow, r *row.Row) bool {
				c := o.in.New()
				o.in.Copy(c, r)
				rows = append(rows, c)
				return true
			})
			slices.SortStableFunc(rows, func(a, b *row.Row) int {
				return slices.Compare(o.second.Append(nil, a), o.second.Append(nil, b))
			})
			o.waiting.drop(g, k, at, at)
			return o.run(g, k, at, rows)
		})
		if err != nil {
			return err
		}
	}
	return o.Start()
}

// run lets rows of one time through the automaton of their key, or, without rows, the time pass.
func (o *match) run(g statestore.Group, k string, at int64, rows []*row.Row) error {
	o.g, o.k, o.at, o.of = g, k, at, o.rows[k]
	kept, had := o.states.plain.Ref(g, k)
	if had {
		kept.Save()
		o.machine.Take(*kept.Get())
	} else {
		o.machine.Begin(o.memory)
		o.memory = nfa.State{}
	}
	before, timed := o.machine.Deadline()
	if rows == nil {
		if err := o.machine.Advance(at, o); err != nil {
			return err
		}
	}
	seq := uint32(0)
	if o.n.Proc && len(rows) > 0 {
		// Rows of one ms come one by one.
		if last, v := o.events.Before(g, k, string(appendEnd(nil, at))+beyond); v != nil && len(last) == 12 && last[:8] == string(appendEnd(nil, at)) {
			seq = binary.BigEndian.Uint32([]byte(last[8:])) + 1
		}
	}
	for i, r := range rows {
		e := nfa.Event{Time: at, Seq: seq + uint32(i)}
		o.events.Put(g, k, o.eventKey(e), o.in.Pack(nil, r))
		if o.n.Proc {
			o.drop(e) // r is the caller's
		} else {
			o.remember(e, r)
		}
		o.candidate = r
		if err := o.machine.Process(e, o, o); err != nil {
			return err
		}
	}
	o.candidate = nil
	after, ok := o.machine.Deadline()
	o.save(kept, had)
	if timed && (!ok || after != before) {
		o.waiting.timers.Delete(before, g, k, timerDeadline)
	}
	if ok {
		o.waiting.timers.Set(after, g, k, timerDeadline)
		return o.Start()
	}
	return nil
}

// maxMemory is the size up to which the memory of a state without key is kept.
const maxMemory = 4 << 10

// save puts the state of the machine where it was, or where it belongs from now on.
func (o *match) save(kept statestore.Ref[nfa.State], had bool) {
	idle, changed := o.machine.Idle(), o.machine.Changed()
	s := o.machine.Give()
	switch {
	case idle:
		if had {
			kept.Delete()
		}
		if s.Size() <= maxMemory {
			o.memory = s
		}
		if o.of != nil {
			o.cached -= len(o.of)
			delete(o.rows, o.k)
		}
	case !had:
		o.states.Set(o.g, o.k, s)
	case changed:
		*kept.Update() = s
	default:
		*kept.Get() = s // equal, in memory that may be other
	}
}
