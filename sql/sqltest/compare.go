package sqltest

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/catalog"
)

// Check runs a case in a mode and compares: "" = it is as expected, else the differences. ran is false where the mode says
// nothing about the case.
func Check(c *Case, o RunOptions) (diff string, ran bool) {
	if len(c.Exprs) > 0 {
		if o.Mode == Parallel || o.Mode == Batch {
			return "", false
		}
		return checkExprs(c, o), true
	}
	if o.Mode == Batch || o.Mode == Parallel {
		if c.Expect.Error != "" || !c.Expect.HasFinal || c.Own["key"] != "" {
			return "", false
		}
		plain := Run(c, RunOptions{Without: o.Without})
		if plain.Err != nil || plain.OrderSensitive || plain.Late > 0 || plain.Behind > 0 || c.hasControls() {
			return "", false
		}
	}
	out := Run(c, o)
	return compare(c, out, o.Mode), true
}

func (c *Case) hasControls() bool {
	return c.Own["end-of-input"] == "false" || slices.ContainsFunc(c.Lines, func(l Line) bool { return l.Control != "" })
}

// compare says how what came out differs from what is expected.
func compare(c *Case, out *Outcome, mode Mode) string {
	e := &c.Expect
	if e.Error != "" {
		switch {
		case out.Err == nil:
			return fmt.Sprintf("no error, want one (%s)", e.Error)
		case (e.Error == "runtime") != (out.Phase == AtRunTime):
			return fmt.Sprintf("error in phase %s, want %s: %s", out.Phase, e.Error, text(out.Err))
		}
		return ""
	}
	if out.Err != nil {
		return fmt.Sprintf("error (%s): %s", out.Phase, text(out.Err))
	}
	var diffs []string
	if d := compareSchema(e.Schema, out.Schema); d != "" {
		diffs = append(diffs, d)
	}
	want, err := read(e.Changelog, out.layout)
	if err != nil {
		return strings.Join(append(diffs, err.Error()), "\n")
	}
	if e.HasLog && c.Own["key"] == "" && mode != Batch && mode != Parallel {
		if d := compareLog(want, out.Changes); d != "" {
			diffs = append(diffs, d)
		}
	}
	if e.HasFinal {
		var final []Change
		for _, f := range e.Final {
			final = append(final, Change{Row: f})
		}
		if final, err = read(final, out.layout); err != nil {
			return strings.Join(append(diffs, err.Error()), "\n")
		}
		changes := out.Changes
		if key := c.Own["key"]; key != "" {
			changes = byKey(changes, out, strings.Split(key, ","))
		}
		if d := compareBag(net(final), net(changes)); d != "" {
			diffs = append(diffs, "final:\n"+d)
		}
	}
	return strings.Join(diffs, "\n")
}

func text(err error) string {
	if t, ok := err.(interface{ Text() string }); ok {
		return t.Text()
	}
	return err.Error()
}

// read brings expected rows into the form of those that came out.
func read(changes []Change, l *row.Layout) ([]Change, error) {
	out := slices.Clone(changes)
	for i := range out {
		vs, err := l.ReadResult([]byte(out[i].Row))
		if err != nil {
			return nil, fmt.Errorf("expected row %s does not fit the types that came out: %w", out[i].Row, err)
		}
		out[i].values = vs
		out[i].Row = string(l.AppendResult(nil, l.RowOf(vs...)))
	}
	return out, nil
}

var notNull = regexp.MustCompile(` NOT NULL`)

func compareSchema(want, got []Column) string {
	if want == nil {
		return ""
	}
	ok := len(want) == len(got)
	for i := range want {
		if !ok {
			break
		}
		w, g := want[i], got[i]
		if strings.HasPrefix(w.Name, "EXPR$") {
			w.Name = g.Name
		}
		// Names with spaces are printed without quotes, so the whole line counts.
		ok = notNull.ReplaceAllString(w.Name+" "+w.Type, "") == notNull.ReplaceAllString(g.Name+" "+g.Type, "")
	}
	if ok {
		return ""
	}
	var b strings.Builder
	b.WriteString("schema:")
	for _, c := range want {
		b.WriteString("\n  want " + c.Name + " " + c.Type)
	}
	for _, c := range got {
		b.WriteString("\n  got  " + c.Name + " " + c.Type)
	}
	return b.String()
}

// bag is rows with how often each is there; what is taken away is negative.
type bag map[string]*entry

type entry struct {
	n      int
	values []row.Value
}

func net(changes []Change) bag {
	b := bag{}
	for _, c := range changes {
		e := b[c.Row]
		if e == nil {
			e = &entry{values: c.values}
			b[c.Row] = e
		}
		if c.Kind.Adds() {
			e.n++
		} else {
			e.n--
		}
	}
	return b
}

// compareLog compares the net change of each number, and the order in which rows come and go.
func compareLog(want, got []Change) string {
	group := func(cs []Change) map[int][]Change {
		m := map[int][]Change{}
		for _, c := range cs {
			m[c.Number] = append(m[c.Number], c)
		}
		return m
	}
	w, g := group(want), group(got)
	numbers := slices.Collect(maps.Keys(w))
	for n := range g {
		if _, ok := w[n]; !ok {
			numbers = append(numbers, n)
		}
	}
	order := func(n int) int {
		if n == End {
			return math.MaxInt
		}
		return n
	}
	slices.SortFunc(numbers, func(a, b int) int { return cmp.Compare(order(a), order(b)) })
	var diffs []string
	for _, n := range numbers {
		if d := compareBag(net(w[n]), net(g[n])); d != "" {
			name := fmt.Sprint(n)
			if n == End {
				name = "end"
			}
			diffs = append(diffs, "line "+name+":\n"+d)
		}
	}
	if len(diffs) == 0 {
		if c, bad := takesWhatIsNotThere(got); bad {
			if _, alsoWanted := takesWhatIsNotThere(want); !alsoWanted {
				diffs = append(diffs, "it takes away a row that is not there: "+c.String())
			}
		}
	}
	return strings.Join(diffs, "\n")
}

func takesWhatIsNotThere(changes []Change) (Change, bool) {
	there := map[string]int{}
	for _, c := range changes {
		if c.Kind.Adds() {
			there[c.Row]++
			continue
		}
		if there[c.Row]--; there[c.Row] < 0 {
			return c, true
		}
	}
	return Change{}, false
}

// compareBag says how two bags differ; numbers with a fraction may differ a little.
func compareBag(want, got bag) string {
	type side struct {
		row    string
		n      int // so many more are wanted; below 0: so many too many
		values []row.Value
	}
	var missing, extra []side
	add := func(r string, n int, values []row.Value) {
		if n > 0 {
			missing = append(missing, side{r, n, values})
		} else if n < 0 {
			extra = append(extra, side{r, n, values})
		}
	}
	for _, r := range sortedKeys(want) {
		n := want[r].n
		if g := got[r]; g != nil {
			n -= g.n
		}
		add(r, n, want[r].values)
	}
	for _, r := range sortedKeys(got) {
		if want[r] == nil {
			add(r, -got[r].n, got[r].values)
		}
	}
	for i := range missing {
		for j := range extra {
			if m, x := &missing[i], &extra[j]; m.n > 0 && x.n < 0 && closeTo(m.values, x.values) {
				k := min(m.n, -x.n)
				m.n -= k
				x.n += k
			}
		}
	}
	var left []string
	for _, m := range missing {
		if m.n != 0 {
			left = append(left, fmt.Sprintf("  missing %+d %s", m.n, m.row))
		}
	}
	for _, x := range extra {
		if x.n != 0 {
			left = append(left, fmt.Sprintf("  extra   %+d %s", -x.n, x.row))
		}
	}
	const most = 20
	if n := len(left); n > most {
		left = append(left[:most], fmt.Sprintf("  ... %d more", n-most))
	}
	return strings.Join(left, "\n")
}

// closeTo says that values are the same but for rounding.
func closeTo(a, b row.Value) bool {
	switch x := a.(type) {
	case []row.Value:
		y, ok := b.([]row.Value)
		return ok && len(x) == len(y) && allNear(x, y)
	case []row.Entry:
		y, ok := b.([]row.Entry)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !closeTo(x[i].Key, y[i].Key) || !closeTo(x[i].Value, y[i].Value) {
				return false
			}
		}
		return true
	case float64:
		y, ok := b.(float64)
		if !ok {
			return false
		}
		tolerance := 1e-12
		if float64(float32(x)) == x && float64(float32(y)) == y {
			tolerance = 1e-6
		}
		return x == y || math.IsNaN(x) && math.IsNaN(y) || math.Abs(x-y) <= tolerance*max(math.Abs(x), math.Abs(y))
	case []byte:
		y, ok := b.([]byte)
		return ok && string(x) == string(y)
	}
	return a == b
}

func allNear(x, y []row.Value) bool {
	for i := range x {
		if !closeTo(x[i], y[i]) {
			return false
		}
	}
	return true
}

// byKey is what remains for each key.
func byKey(changes []Change, out *Outcome, key []string) []Change {
	var at []int
	for _, k := range key {
		at = append(at, slices.IndexFunc(out.Schema, func(c Column) bool { return c.Name == strings.TrimSpace(k) }))
	}
	last := map[string]Change{}
	for _, c := range changes {
		var k strings.Builder
		for _, i := range at {
			fmt.Fprintf(&k, "%v|", c.values[i])
		}
		if c.Kind.Adds() {
			last[k.String()] = c
		} else if last[k.String()].Row == c.Row {
			delete(last, k.String())
		}
	}
	var all []Change
	for _, k := range slices.Sorted(maps.Keys(last)) {
		all = append(all, last[k])
	}
	return all
}

// checkExprs checks each expression by itself.
func checkExprs(c *Case, o RunOptions) string {
	var diffs []string
	for i, x := range c.Exprs {
		if i >= len(c.Expect.Exprs) || c.Expect.Exprs[i].Expr != x {
			return fmt.Sprintf("no expectation for %s", x)
		}
		want := c.Expect.Exprs[i]
		out := RunExpr(c, x, o)
		if d := compareExpr(want, out, len(c.Lines) == 0); d != "" {
			diffs = append(diffs, x+"\n    "+strings.ReplaceAll(strings.TrimSpace(d), "\n", "\n    "))
		}
	}
	return strings.Join(diffs, "\n")
}

func compareExpr(want ExprResult, out *Outcome, constant bool) string {
	if want.Error != "" {
		switch {
		case out.Err == nil:
			return fmt.Sprintf("no error, want one (%s)", want.Error)
		case !constant && (want.Error == "runtime") != (out.Phase == AtRunTime):
			return fmt.Sprintf("error in phase %s, want %s: %s", out.Phase, want.Error, text(out.Err))
		}
		return ""
	}
	if out.Err != nil {
		return fmt.Sprintf("error (%s): %s", out.Phase, text(out.Err))
	}
	if got := out.Schema[0].Type; notNull.ReplaceAllString(want.Type, "") != notNull.ReplaceAllString(got, "") {
		return fmt.Sprintf("type %s, want %s", got, want.Type)
	}
	var rows []string
	var values []row.Value
	for _, ch := range out.Changes {
		rows = append(rows, strings.TrimSuffix(strings.TrimPrefix(ch.Row, "["), "]"))
		values = append(values, ch.values[0])
	}
	got := "[" + strings.Join(rows, ", ") + "]"
	if got == want.Values {
		return ""
	}
	list := row.NewLayout(row.Array(out.layout.Type(0).Nullable(true)))
	vs, err := list.ReadResult([]byte("[" + want.Values + "]"))
	if err != nil {
		return fmt.Sprintf("got %s, want %s (%v)", got, want.Values, err)
	}
	elems, _ := vs[0].([]row.Value)
	if len(elems) == len(values) && allNear(elems, values) {
		return ""
	}
	return fmt.Sprintf("got %s, want %s", got, want.Values)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func pathOf(name string) catalog.Path {
	return catalog.Path{Catalog: catalog.DefaultCatalog, Database: catalog.DefaultDatabase, Name: name}
}

func declaredName(stmt ast.Stmt) (string, bool) {
	var n ast.Name
	switch s := stmt.(type) {
	case *ast.CreateTable:
		n = s.Name
	case *ast.CreateView:
		n = s.Name
	default:
		return "", false
	}
	return n.Parts[len(n.Parts)-1].Name, true
}
