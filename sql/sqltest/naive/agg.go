package naive

import (
	"math"
	"math/big"
	"slices"
	"strings"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/rel"
)

func (e *eval) aggregate(n *rel.Aggregate) bag {
	in := e.node(n.Input)
	sets := n.Sets
	if sets == nil {
		all := make([]int, len(n.Groups))
		for i := range all {
			all[i] = i
		}
		sets = [][]int{all}
	}
	var out bag
	times := map[string]int{} // how often a set was there already, for GROUP_ID
	for _, set := range sets {
		sorted := slices.Sorted(slices.Values(set))
		name := keyOf(int64s(sorted)...)
		ctx := grouping{n: n, set: set, id: times[name]}
		times[name]++
		var columns []int
		for _, i := range set {
			columns = append(columns, n.Groups[i])
		}
		add := func(g *group, props []row.Value) {
			v := slices.Grow([]row.Value(nil), len(n.Groups)+len(n.Aggs)+len(props))[:len(n.Groups)]
			for k, i := range set {
				v[i] = g.key[k]
			}
			line := 0
			for _, t := range g.rows {
				line = max(line, t.line)
			}
			for i := range n.Aggs {
				v = append(v, e.call1(&n.Aggs[i], g.rows, in.inOrder, &ctx))
			}
			v = append(v, props...)
			out.rows = append(out.rows, tuple{v, line})
		}
		if n.Window == nil {
			if e.emptyRow && len(n.Groups) == 0 && len(in.rows) == 0 {
				add(&group{}, nil)
			}
			for _, g := range by(in.rows, columns) {
				add(g, nil)
			}
			continue
		}
		spec := n.Window.WindowSpec
		spec.Partition = columns
		rows := e.windowed(&spec, in.rows)
		width := n.Input.Schema().Len()
		for _, g := range by(rows, append(slices.Clone(columns), width, width+1)) {
			start, end := g.key[len(columns)].(row.Stamp), g.key[len(columns)+1].(row.Stamp)
			var props []row.Value
			for _, p := range n.Props {
				switch p {
				case rel.WindowStart:
					props = append(props, start)
				case rel.WindowEnd:
					props = append(props, end)
				case rel.WindowTime:
					props = append(props, row.Stamp{Ms: end.Ms - 1})
				default:
					unsupported(p)
				}
			}
			add(g, props)
		}
	}
	return out
}

func int64s(list []int) []row.Value {
	out := make([]row.Value, len(list))
	for i, x := range list {
		out[i] = int64(x)
	}
	return out
}

// grouping is the grouping set that an aggregate is computed in.
type grouping struct {
	n   *rel.Aggregate
	set []int
	id  int
}

// bit is 1 for an argument that is not in the grouping set.
func (g *grouping) bit(x rel.Expr) int64 {
	c := x.(*rel.Column).Index
	for _, i := range g.set {
		if g.n.Groups[i] == c {
			return 0
		}
	}
	return 1
}

// call1 is the value of an aggregate over rows. g is nil in OVER.
func (e *eval) call1(c *rel.AggCall, rows []tuple, inOrder bool, g *grouping) row.Value {
	switch c.Func.Name {
	case "GROUPING", "GROUPING_ID":
		var bits int64
		for _, a := range c.Args {
			bits = bits<<1 | g.bit(a)
		}
		return bits
	case "GROUP_ID":
		return int64(g.id)
	}
	var args [][]row.Value
	seen := map[string]bool{}
	if len(c.OrderBy) > 0 {
		rows, inOrder = e.sorted(rows, inOrder, c.OrderBy), true
	}
	for _, t := range rows {
		if !e.holds(c.Filter, t.v) {
			continue
		}
		a := e.exprs(c.Args, t.v)
		if k := keyOf(a...); c.Distinct {
			if seen[k] {
				continue
			}
			seen[k] = true
		}
		args = append(args, a)
	}
	if c.Func.Agg.Arrival && !inOrder && len(args) > 1 {
		e.leftOpen(c.Func.Name + " of rows in no order")
	}
	if c.Func.Name == "COUNT" {
		n := int64(0)
		for _, a := range args {
			if !slices.Contains(a, nil) {
				n++
			}
		}
		return n
	}
	if c.Func.Name == "ARRAY_AGG" {
		var list []row.Value
		for _, a := range args {
			list = append(list, a[0])
		}
		if list == nil {
			return nil
		}
		return list
	}
	var vs []row.Value
	for _, a := range args {
		if a[0] != nil {
			vs = append(vs, a[0])
		}
	}
	t := c.Type
	switch c.Func.Name {
	case "COLLECT":
		var entries []row.Entry
		for _, v := range vs {
			i := slices.IndexFunc(entries, func(en row.Entry) bool { return keyOf(en.Key) == keyOf(v) })
			if i < 0 {
				entries = append(entries, row.Entry{Key: v, Value: int64(1)})
			} else {
				entries[i].Value = entries[i].Value.(int64) + 1
			}
		}
		return entries
	case "SUM0":
		if len(vs) == 0 {
			return rounded(t, new(big.Rat))
		}
	}
	if len(vs) == 0 {
		return nil
	}
	switch c.Func.Name {
	case "MIN", "MAX":
		best := vs[0]
		for _, v := range vs[1:] {
			if (order3(v, best) < 0) == (c.Func.Name == "MIN") {
				best = v
			}
		}
		return best
	case "FIRST_VALUE":
		return vs[0]
	case "LAST_VALUE":
		return vs[len(vs)-1]
	case "LISTAGG":
		sep := ","
		if len(c.Args) > 1 {
			sep = args[0][1].(string)
		}
		var texts []string
		for _, v := range vs {
			texts = append(texts, v.(string))
		}
		return strings.Join(texts, sep)
	case "SUM", "SUM0", "AVG":
		return average(c, vs)
	case "STDDEV_POP", "STDDEV_SAMP", "VAR_POP", "VAR_SAMP":
		return variance(c, vs)
	}
	unsupported(c.Func.Name)
	return nil
}

// average is SUM, or AVG: integers and DECIMALs exactly, then brought to the type.
func average(c *rel.AggCall, vs []row.Value) row.Value {
	t, of := c.Type, c.Args[0].Type()
	mean := c.Func.Name == "AVG"
	if t.Kind().Approximate() {
		sum := 0.0
		for _, v := range vs {
			sum += v.(float64)
		}
		if mean {
			sum /= float64(len(vs))
		}
		return sum
	}
	sum := new(big.Rat)
	for _, v := range vs {
		sum.Add(sum, exact(of, v))
	}
	switch {
	case !mean:
	case t.Kind().Integer():
		// The sum is a BIGINT, which wraps around; the quotient is cut.
		q := big.NewInt(wrap(row.KindBigInt, sum.Num()))
		return wrap(t.Kind(), q.Quo(q, big.NewInt(int64(len(vs)))))
	default:
		if new(big.Rat).Abs(sum).Cmp(new(big.Rat).SetFrac(power10(row.MaxPrecision), power10(of.Scale()))) >= 0 {
			return nil // the sum has more digits than a DECIMAL
		}
		sum.Quo(sum, new(big.Rat).SetInt64(int64(len(vs))))
	}
	return rounded(t, sum)
}

// variance is that of DOUBLEs and, with integer arithmetic, of integers.
func variance(c *rel.AggCall, vs []row.Value) row.Value {
	n := int64(len(vs))
	by := n
	if strings.HasSuffix(c.Func.Name, "_SAMP") {
		by--
	}
	if by == 0 {
		return nil
	}
	root := strings.HasPrefix(c.Func.Name, "STDDEV")
	switch k := c.Type.Kind(); {
	case k == row.KindDouble:
		var sq, sum float64
		for _, v := range vs {
			sq, sum = sq+v.(float64)*v.(float64), sum+v.(float64)
		}
		v := (sq - sum*sum/float64(n)) / float64(by)
		if root {
			v = math.Sqrt(v)
		}
		return v
	case k.Integer():
		var sq, sum int64
		for _, v := range vs {
			sq, sum = sq+v.(int64)*v.(int64), sum+v.(int64)
		}
		v := (sq - sum*sum/n) / by
		if root {
			v = int64(math.Sqrt(float64(v)))
		}
		return wrap(k, big.NewInt(v))
	}
	unsupported(c.Func.Name + " of " + c.Type.String())
	return nil
}

// window adds the windows of each row: window_start, window_end, window_time.
func (e *eval) window(n *rel.WindowTVF) bag {
	return bag{rows: e.windowed(&n.WindowSpec, e.node(n.Input).rows)}
}

func (e *eval) windowed(w *rel.WindowSpec, rows []tuple) []tuple {
	if w.Proc || w.LTZ {
		unsupported("windows over processing time or TIMESTAMP_LTZ")
	}
	var out []tuple
	add := func(t tuple, start, end int64) {
		if e.in.Late != nil && e.in.Late(t.line, end) {
			return
		}
		v := concat(t.v, []row.Value{row.Stamp{Ms: start}, row.Stamp{Ms: end}, row.Stamp{Ms: end - 1}})
		out = append(out, tuple{v, t.line})
	}
	timeOf := func(t tuple) int64 {
		if t.v[w.Time] == nil {
			fail("NULL is no time of a window")
		}
		return t.v[w.Time].(row.Stamp).Ms
	}
	if w.Kind == rel.Session {
		for _, g := range by(rows, w.Partition) {
			slices.SortStableFunc(g.rows, func(a, b tuple) int { return int(timeOf(a) - timeOf(b)) })
			for i := 0; i < len(g.rows); {
				j := i + 1
				for j < len(g.rows) && timeOf(g.rows[j])-timeOf(g.rows[j-1]) <= w.Size {
					j++
				}
				for _, t := range g.rows[i:j] {
					add(t, timeOf(g.rows[i]), timeOf(g.rows[j-1])+w.Size)
				}
				i = j
			}
		}
		return out
	}
	for _, t := range rows {
		at := timeOf(t)
		// base is the start of the last window, by steps of its size, that begins not after the row.
		base := func(step int64) int64 {
			d := (at - w.Offset) % step
			if d < 0 {
				d += step
			}
			return at - d
		}
		switch w.Kind {
		case rel.Tumble:
			s := base(w.Size)
			add(t, s, s+w.Size)
		case rel.Hop:
			for s := base(w.Slide); s > at-w.Size; s -= w.Slide {
				add(t, s, s+w.Size)
			}
		case rel.Cumulate:
			s := base(w.Size)
			for end := s + w.Slide; end <= s+w.Size; end += w.Slide {
				if at < end {
					add(t, s, end)
				}
			}
		}
	}
	return out
}

// over adds the columns of window functions.
func (e *eval) over(n *rel.Over) bag {
	in := e.node(n.Input)
	var out bag
	compare := byKeys(n.Order)
	for _, g := range by(in.rows, n.Partition) {
		// Of equal times the later arrival is the last row, the earlier one the first; but a Top-N by time, descending, is no
		// deduplication, and which it is the filter above says.
		inOrder := in.inOrder && !(len(n.Order) > 0 && n.Order[0].Desc && n.Input.Schema().Types[n.Order[0].Column].Mark() == row.Rowtime)
		rows := e.sorted(g.rows, inOrder || !n.Frame.Rows, n.Order)
		for i, t := range rows {
			v := slices.Clone(t.v)
			// The frame ends with the row or, in RANGE, with the last of equal order.
			end := i + 1
			for !n.Frame.Rows && end < len(rows) && compare(rows[end], t) == 0 {
				end++
			}
			start := 0
			switch {
			case n.Frame.From < 0:
			case n.Frame.Rows:
				start = max(0, i-int(n.Frame.From))
			default:
				at, ok := t.v[n.Order[0].Column].(row.Stamp)
				if !ok {
					unsupported("RANGE over " + n.Input.Schema().Types[n.Order[0].Column].String())
				}
				for start < i && rows[start].v[n.Order[0].Column].(row.Stamp).Ms < at.Ms-n.Frame.From {
					start++
				}
			}
			for k := range n.Calls {
				v = append(v, e.overCall(&n.Calls[k], rows, i, start, end, in.inOrder || n.Frame.Rows, compare))
			}
			out.rows = append(out.rows, tuple{v, t.line})
		}
	}
	return out
}

func (e *eval) overCall(c *rel.AggCall, rows []tuple, i, start, end int, inOrder bool, compare func(a, b tuple) int) row.Value {
	switch c.Func.Name {
	case "ROW_NUMBER":
		return int64(i + 1)
	case "RANK", "DENSE_RANK":
		rank, dense := int64(1), int64(1)
		for k := 1; k <= i; k++ {
			if compare(rows[k-1], rows[k]) != 0 {
				rank, dense = int64(k+1), dense+1
			}
		}
		if c.Func.Name == "RANK" {
			return rank
		}
		return dense
	case "LAG":
		by := int64(1)
		if len(c.Args) > 1 {
			by = e.expr(c.Args[1], rows[i].v).(int64)
		}
		if k := int64(i) - by; k >= 0 {
			return e.expr(c.Args[0], rows[k].v)
		}
		if len(c.Args) > 2 {
			return e.expr(c.Args[2], rows[i].v)
		}
		return nil
	}
	return e.call1(c, rows[start:end], inOrder, nil)
}
