package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/rel"
)

func itoa(v int64) string { return strconv.FormatInt(v, 10) }

// windowTime checks the time column of a window: it must still move with the watermark, or be processing time.
func (p *planner) windowTime(what string, in rel.Physical, spec *rel.WindowSpec, at rel.Place) bool {
	t := in.Schema().Types[spec.Time]
	name := in.Schema().Names[spec.Time]
	switch {
	case t.Mark() == row.NoMark:
		e := p.fail(at, "E3201", "%s wants a time attribute, and %q is an ordinary column of type %s", what, name, t)
		e.WithNote("declare WATERMARK FOR %s in the table, or add a column AS PROCTIME(); an expression over a time attribute is none any more", name)
		return false
	case !p.info[in].alive[spec.Time]:
		p.fail(at, "E3202", "%s over %q: it does not follow the watermark any more, since the rows come out of %s", what, name, p.killer(in)).
			WithNote("put the window below it, or use a join with time bounds in place of a regular one")
		return false
	}
	spec.Proc = t.Mark() == row.Proctime
	spec.LTZ = t.Kind() == row.KindTimestampLTZ
	return true
}

// killer names the operator below n after which event time is no more.
func (p *planner) killer(n rel.Physical) string {
	for {
		switch x := n.(type) {
		case *rel.PCalc:
			n = x.In[0]
			continue
		case *rel.PJoin:
			return "a regular join"
		case *rel.PGroupAgg:
			return "a GROUP BY without window"
		}
		return "an operator that does not keep it"
	}
}

func (p *planner) windowTVF(n *rel.WindowTVF) rel.Physical {
	in := p.node(n.Input)
	if in == nil {
		return nil
	}
	spec := n.WindowSpec
	if !p.windowTime(spec.Kind.String(), in, &spec, n.At()) {
		return nil
	}
	if (spec.Kind == rel.Hop || spec.Kind == rel.Cumulate) && spec.Size%spec.Slide != 0 {
		p.fail(n.At(), "E3205", "%s: the size must be a multiple of the step: %d ms is none of %d ms", spec.Kind, spec.Size, spec.Slide).
			WithNote("GROUP BY HOP(..), the older form, allows it")
		return nil
	}
	width := in.Schema().Len()
	alive := make([]bool, width+3)
	for i, a := range p.info[in].alive {
		alive[i] = a && spec.Proc && in.Schema().Types[i].Mark() == row.Proctime
	}
	alive[width+2] = true
	w := &window{start: width, end: width + 1, time: width + 2, spec: spec, session: spec.Kind == rel.Session}
	return p.changes(p.add(&rel.PWindow{Phys: like(n, in), Spec: spec}, alive, w))
}

// windowAggregate plans GROUP BY window_start, window_end.
func (p *planner) windowAggregate(n *rel.Aggregate, in rel.Physical, w *window, groups []int, aggs []rel.AggCall, out *rel.Schema) rel.Physical {
	if p.fires(earlyFire) || p.fires(lateFire) {
		p.fail(n.At(), "E3206", "an aggregate by window_start and window_end does not fire before or behind the end of its window, and '%s.enabled' or '%s.enabled' is set", earlyFire, lateFire).
			WithNote("RESET the setting, or use the older form: GROUP BY TUMBLE(ts, INTERVAL ..)")
		return nil
	}
	agg := &rel.PWindowAgg{Aggs: aggs, Retracts: retracts(in), Spec: w.spec, Start: w.start, End: w.end, Attached: true,
		Emit: rel.EmitOptions{EarlyDelay: -1, LateDelay: -1, AllowLateness: -1}}
	// Where the columns of the aggregate go in the order start, end, time of the properties.
	prop := func(c int) (rel.WindowProp, bool) {
		switch c {
		case w.start:
			return rel.WindowStart, true
		case w.end:
			return rel.WindowEnd, true
		case w.time:
			return rel.WindowTime, true
		}
		return 0, false
	}
	var keys []int // positions in groups of what is no window column
	for i, g := range groups {
		if _, ok := prop(g); !ok {
			keys = append(keys, i)
		}
	}
	if below, ok := p.pulled(in, w, groups, aggs); ok {
		agg.Attached = false
		in = below.in
		w0 := *w
		mapped := func(c int) int { return below.place[c] }
		for _, k := range keys {
			agg.Groups = append(agg.Groups, mapped(groups[k]))
		}
		agg.Aggs = slices.Clone(aggs)
		for i := range agg.Aggs {
			a := &agg.Aggs[i]
			a.Args = slices.Clone(a.Args)
			for j, x := range a.Args {
				a.Args[j] = rel.Remap(x, mapped)
			}
			if a.Filter != nil {
				a.Filter = rel.Remap(a.Filter, mapped)
			}
			a.OrderBy = slices.Clone(a.OrderBy)
			for j := range a.OrderBy {
				a.OrderBy[j].Column = mapped(a.OrderBy[j].Column)
			}
		}
		agg.Spec = w0.spec
		agg.Spec.Time = below.time
		agg.Spec.Partition = nil
		for _, c := range w0.spec.Partition {
			agg.Spec.Partition = append(agg.Spec.Partition, below.partition[c])
		}
		if agg.Spec.Kind == rel.Session && !sameSet(agg.Spec.Partition, agg.Groups) {
			p.fail(n.At(), "E3203", "SESSION with PARTITION BY must be grouped by the same columns, and by window_start and window_end").
				WithNote("GROUP BY the columns of PARTITION BY; sessions of other keys would overlap")
			return nil
		}
	} else {
		for _, k := range keys {
			agg.Groups = append(agg.Groups, groups[k])
		}
	}
	var names []string
	var types []*row.Type
	place := make([]int, len(groups)+len(aggs))
	for i, k := range keys {
		place[k] = i
		names, types = append(names, out.Names[k]), append(types, out.Types[k])
	}
	for i := range aggs {
		place[len(groups)+i] = len(names)
		names, types = append(names, out.Names[len(groups)+i]), append(types, out.Types[len(groups)+i])
	}
	// The properties that are grouped by, and always start and end: what comes above may need them.
	nw := &window{start: -1, end: -1, time: -1, spec: w.spec, session: w.session}
	var alive []bool
	for i, g := range groups {
		if pr, ok := prop(g); ok {
			place[i] = len(names)
			switch pr {
			case rel.WindowStart:
				nw.start = len(names)
			case rel.WindowEnd:
				nw.end = len(names)
			case rel.WindowTime:
				nw.time = len(names)
			}
			agg.Props = append(agg.Props, pr)
			names, types = append(names, out.Names[i]), append(types, out.Types[i])
		}
	}
	alive = make([]bool, len(names))
	if nw.time >= 0 {
		alive[nw.time] = true
	}
	agg.Phys = phys(names, types, n.At(), in)
	res := p.changes(p.add(agg, alive, nw))
	exprs := make([]rel.Expr, len(place))
	for i, c := range place {
		exprs[i] = column(res, c)
	}
	return p.calc(res, nil, exprs, out.Names, n.At())
}

func sameSet(a, b []int) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(slices.Compact(a), slices.Compact(b))
}

// pull is the input of a window function without its columns.
type pull struct {
	in        rel.Physical
	place     []int // of a column above in in; -1 for window columns
	time      int
	partition []int // by column of the function's input
}

// pulled takes the window function out from below an aggregate, so that windows share slices: where the columns of the window
// are used as keys alone.
func (p *planner) pulled(in rel.Physical, w *window, groups []int, aggs []rel.AggCall) (out pull, ok bool) {
	windowCol := func(c int) bool { return c == w.start || c == w.end || c == w.time }
	for _, a := range aggs {
		for _, x := range a.Args {
			if reads(x, windowCol) {
				return out, false
			}
		}
		if reads(a.Filter, windowCol) {
			return out, false
		}
	}
	var calc *rel.PCalc
	tvf, isTVF := in.(*rel.PWindow)
	if !isTVF {
		if calc, ok = in.(*rel.PCalc); !ok {
			return out, false
		}
		if tvf, isTVF = calc.In[0].(*rel.PWindow); !isTVF {
			return out, false
		}
	}
	src := tvf.In[0]
	width := src.Schema().Len()
	identityOf := make([]int, width)
	for i := range identityOf {
		identityOf[i] = i
	}
	if calc == nil {
		out.in, out.time, out.partition = src, tvf.Spec.Time, identityOf
		out.place = slices.Concat(identityOf, []int{-1, -1, -1})
		return out, true
	}
	inWindow := func(c int) bool { return c >= width }
	if reads(calc.Cond, inWindow) {
		return out, false
	}
	var exprs []rel.Expr
	var names []string
	for i, e := range calc.Exprs {
		if c := plain(e); c >= width {
			out.place = append(out.place, -1)
			continue
		}
		if reads(e, inWindow) {
			return out, false
		}
		out.place = append(out.place, len(exprs))
		exprs, names = append(exprs, e), append(names, calc.Out.Names[i])
	}
	// The time and the session's keys go along, if they are not there yet.
	need := func(c int) int {
		for i, e := range exprs {
			if plain(e) == c && e.Type() == src.Schema().Types[c] {
				return i
			}
		}
		exprs, names = append(exprs, column(src, c)), append(names, src.Schema().Names[c])
		return len(exprs) - 1
	}
	out.time = need(tvf.Spec.Time)
	out.partition = make([]int, width)
	for _, c := range tvf.Spec.Partition {
		out.partition[c] = need(c)
	}
	out.in = p.calc(src, calc.Cond, exprs, names, calc.At())
	if s := out.in.Schema(); s.Len() != len(exprs) {
		return out, false
	}
	return out, true
}

// legacyWindow plans GROUP BY TUMBLE(..), HOP(..), SESSION(..).
func (p *planner) legacyWindow(n *rel.Aggregate, in rel.Physical) rel.Physical {
	spec := n.Window.WindowSpec
	if !p.windowTime(spec.Kind.String(), in, &spec, n.At()) {
		return nil
	}
	if n.Sets != nil {
		p.fail(n.At(), "E3204", "grouping sets and a window in GROUP BY exclude each other").
			WithNote("use the window functions: FROM TABLE(TUMBLE(..)) and GROUP BY window_start, window_end, GROUPING SETS (..)")
		return nil
	}
	emit, ok := p.emit(&spec, n.At())
	if !ok {
		return nil
	}
	agg := &rel.PWindowAgg{Phys: like(n, in), Spec: spec, Groups: n.Groups, Aggs: n.Aggs, Props: n.Props, Legacy: true, Retracts: retracts(in), Emit: emit}
	alive := make([]bool, n.Schema().Len())
	base := len(n.Groups) + len(n.Aggs)
	w := &window{start: -1, end: -1, time: -1, spec: spec, session: spec.Kind == rel.Session}
	for i, pr := range n.Props {
		switch pr {
		case rel.WindowStart:
			w.start = base + i
		case rel.WindowEnd:
			w.end = base + i
		case rel.WindowTime, rel.WindowProcTime:
			w.time = base + i
			alive[base+i] = true
		}
	}
	return p.changes(p.add(agg, alive, w))
}

// The settings of early and late firing.
const (
	earlyFire     = "table.exec.emit.early-fire"
	lateFire      = "table.exec.emit.late-fire"
	allowLateness = "table.exec.emit.allow-lateness"
)

// fires says whether early or late firing is switched on.
func (p *planner) fires(what string) bool {
	return strings.EqualFold(p.opts.Config[what+".enabled"], "true")
}

// emit reads table.exec.emit.* for a window in GROUP BY.
func (p *planner) emit(spec *rel.WindowSpec, at rel.Place) (rel.EmitOptions, bool) {
	out := rel.EmitOptions{EarlyDelay: -1, LateDelay: -1, AllowLateness: -1}
	early, late := p.fires(earlyFire), p.fires(lateFire)
	if !early && !late {
		return out, true
	}
	if spec.Kind == rel.Session {
		p.fail(at, "E3206", "SESSION does not fire before or behind its end, and '%s.enabled' or '%s.enabled' is set", earlyFire, lateFire).
			WithNote("RESET the setting: sessions that merge would have to take results back")
		return out, false
	}
	ok := true
	ms := func(key string, to *int64) {
		v := p.opts.Config[key]
		if v == "" {
			return
		}
		d, err := row.ParseDuration(v)
		if err != nil || d < 0 {
			if err == nil {
				err = fmt.Errorf("%s is negative", v)
			}
			p.fail(at, "E3003", "SET '%s': %s", key, err)
			ok = false
			return
		}
		*to = d.Milliseconds()
	}
	delay := func(what string, on bool, to *int64) {
		if !on {
			return
		}
		if ms(what+".delay", to); *to < 0 && ok {
			p.fail(at, "E3207", "'%s.enabled' is set, and '%s.delay' is not", what, what).
				WithNote("SET '%s.delay' = '10 s'; 0 s fires with each row", what)
			ok = false
		}
	}
	delay(earlyFire, early, &out.EarlyDelay)
	delay(lateFire, late, &out.LateDelay)
	ms("table.exec.state.ttl", &out.AllowLateness)
	ms(allowLateness, &out.AllowLateness)
	if late && !spec.Proc && out.AllowLateness <= 0 && ok {
		p.fail(at, "E3207", "'%s.enabled' is set, and '%s' is not: a window would be gone before it could fire late", lateFire, allowLateness).
			WithNote("SET '%s' = '1 h', as long as windows are to take late rows", allowLateness)
		ok = false
	}
	return out, ok
}
