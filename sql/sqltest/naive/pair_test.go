package naive_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/millrace-stream/millrace/connector"
	"github.com/millrace-stream/millrace/row"
	"github.com/millrace-stream/millrace/sql"
	"github.com/millrace-stream/millrace/sql/ast"
	"github.com/millrace-stream/millrace/sql/diag"
	"github.com/millrace-stream/millrace/sql/parse"
	"github.com/millrace-stream/millrace/sql/rel"
	"github.com/millrace-stream/millrace/sql/sqltest"
	"github.com/millrace-stream/millrace/sql/sqltest/naive"
)

// pair is a query with its data.
type pair struct {
	seed   uint64
	tables []*table
	query  ast.Query
	// timed: what comes out waits for watermarks, so only the end is compared, unless end says when it comes.
	timed bool
	quiet bool // see grown
	end   int
	// endName is the name of that column. Pairs with an end read one table, read.
	endName string
	read    *table
	late    bool // rows may be late
}

// byWindow says whether the query still is what end says, and finds the table.
func (p *pair) byWindow(n rel.Node) bool {
	if s := n.Schema(); p.end >= s.Len() || s.Names[p.end] != p.endName {
		return false
	}
	grouped, tables := false, 0
	rel.Walk(n, func(n rel.Node) bool {
		switch n := n.(type) {
		case *rel.Aggregate:
			var names []string
			for _, g := range n.Groups {
				names = append(names, n.Input.Schema().Names[g])
			}
			grouped = slices.Contains(names, "window_start") && slices.Contains(names, "window_end")
		case *rel.Scan:
			p.read = p.tableOf(n.Table.Path.Name)
			tables++
		}
		return true
	})
	return grouped && tables == 1
}

// watermark is that of the table after a line: the greatest time less the delay.
func (p *pair) watermark(line int) int64 {
	wm := int64(math.MinInt64)
	for _, ev := range p.read.events {
		if ts, ok := ev.Values[p.read.time].(row.Stamp); ok && ev.Line <= line {
			wm = max(wm, ts.Ms-int64(p.read.delay)*1000)
		}
	}
	return wm
}

// fired are the rows of windows that are over after a line. Without an end these are all.
func (p *pair) fired(res *naive.Result, line, lines int) *naive.Result {
	if p.end == 0 || line > lines {
		return res
	}
	wm := p.watermark(line)
	out := &naive.Result{Ambiguous: res.Ambiguous}
	for _, v := range res.Rows {
		if v[p.end].(row.Stamp).Ms-1 <= wm {
			out.Rows = append(out.Rows, v)
		}
	}
	return out
}

func (p *pair) ddl() string {
	var b strings.Builder
	for _, t := range p.tables {
		b.WriteString(t.ddl() + "\n")
	}
	return b.String()
}

func (p *pair) text() string { return ast.Print(p.query) }

// jsonOf is a value as it stands in a line of input.
func jsonOf(c column, v row.Value) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case []row.Value:
		var list []string
		for _, e := range v {
			list = append(list, jsonOf(column{class: whole}, e))
		}
		return "[" + strings.Join(list, ",") + "]"
	case row.Dec:
		t := row.Decimal(10, 2)
		if c.typ == "DECIMAL(30, 3)" {
			t = row.Decimal(30, 3)
		}
		return strings.Trim(string(row.AppendResultValue(nil, t, v)), `"`)
	case row.Stamp:
		return string(row.AppendResultValue(nil, row.Timestamp(3), v))
	case string:
		return string(row.AppendResultValue(nil, row.String(), v))
	}
	return fmt.Sprint(v)
}

// testCase is the pair as a case of the runner.
func (p *pair) testCase() *sqltest.Case {
	c := &sqltest.Case{Name: fmt.Sprintf("seed_%d", p.seed), Set: map[string]string{}, Own: map[string]string{}, DDL: p.ddl(), Query: p.text()}
	for _, t := range p.tables {
		for _, ev := range t.events {
			var fields []string
			for i, col := range t.columns {
				fields = append(fields, fmt.Sprintf("%q:%s", col.name, jsonOf(col, ev.Values[i])))
			}
			c.Lines = append(c.Lines, sqltest.Line{Number: ev.Line, Table: t.name, Partition: -1, Kind: ev.Kind, Text: "{" + strings.Join(fields, ",") + "}"})
		}
	}
	slices.SortFunc(c.Lines, func(a, b sqltest.Line) int { return a.Number - b.Number })
	return c
}

// String is the pair as the text of a case, for the oracle.
func (p *pair) String() string {
	var b strings.Builder
	c := p.testCase()
	fmt.Fprintf(&b, "-- name: %s\n-- ddl\n%s", c.Name, c.DDL)
	last := ""
	for _, l := range c.Lines {
		if l.Table != last {
			fmt.Fprintf(&b, "-- input %s\n", l.Table)
			last = l.Table
		}
		kind := ""
		if t := p.tableOf(l.Table); t.mode != "" {
			kind = l.Kind.String() + " "
		}
		fmt.Fprintf(&b, "%s%s\n", kind, l.Text)
	}
	fmt.Fprintf(&b, "-- query\n%s\n", c.Query)
	return b.String()
}

func (p *pair) tableOf(name string) *table {
	return p.tables[slices.IndexFunc(p.tables, func(t *table) bool { return t.name == name })]
}

// input is what has come in up to a line.
func (p *pair) input(line int) *naive.Input {
	in := &naive.Input{Tables: map[string][]naive.Event{}}
	for _, t := range p.tables {
		list := []naive.Event{}
		for _, ev := range t.events {
			if ev.Line <= line {
				list = append(list, ev)
			}
		}
		in.Tables[t.name] = list
	}
	if p.late {
		in.Late = func(line int, end int64) bool { return end-1 <= p.watermark(line-1) }
	}
	return in
}

// bind is the bound tree of the query, read from its text.
func (p *pair) bind() (rel.Node, error) {
	s := sql.NewSession(sql.Options{Collect: func(*rel.Schema) *connector.Sink { return nil }})
	if _, errs := s.Read("ddl", p.ddl()); errs.Err() != nil {
		return nil, errs
	}
	sinks, errs := s.Read("query", p.text())
	if errs.Err() != nil {
		return nil, errs
	}
	return sinks[0].Input, nil
}

// reparsed checks that the text of the query means the query: printed, read and printed again it is the same.
func (p *pair) reparsed() error {
	script, errs := parse.Script(diag.NewSource("query", p.text()), nil)
	if errs.Err() != nil {
		return errs
	}
	q, ok := script.Stmts[0].(*ast.QueryStmt)
	if !ok || len(script.Stmts) != 1 {
		return fmt.Errorf("%d statements, the first a %T", len(script.Stmts), script.Stmts[0])
	}
	if again := ast.Print(q.Query); again != p.text() {
		return fmt.Errorf("printed again it is\n%s", again)
	}
	return nil
}

// verdict is what came of a pair.
type verdict struct {
	// fault says what is wrong; its first word is the kind, which shrinking keeps. "" = nothing.
	fault string
	// refused is the code of the error with which the query was refused; "" = it ran.
	refused string
	// compared: the naive evaluator had one answer.
	compared bool
	modes    int
}

// bag is rows with how often each is there.
type bag map[string]int

func (b bag) add(r string, n int) {
	if b[r] += n; b[r] == 0 {
		delete(b, r)
	}
}

// diff says how two bags differ; "" = they do not.
func diff(want, got bag) string {
	var out []string
	all := maps.Clone(want)
	for r := range got {
		all[r] = 0
	}
	for _, r := range slices.Sorted(maps.Keys(all)) {
		if n := want[r] - got[r]; n > 0 {
			out = append(out, fmt.Sprintf("  missing %d of %s", n, r))
		} else if n < 0 {
			out = append(out, fmt.Sprintf("  %d too many of %s", -n, r))
		}
	}
	return strings.Join(out, "\n")
}

// bagOf is the result of the naive evaluator as rows of text.
func bagOf(n rel.Node, res *naive.Result) bag {
	l := row.NewLayout(n.Schema().Types...)
	b := bag{}
	for _, v := range res.Rows {
		b.add(string(l.AppendResult(nil, l.RowOf(v...))), 1)
	}
	return b
}

// folds are the results after each line, by number; the last is at the end. fault says what no changelog may do.
func folds(out *sqltest.Outcome, lines int) (at []bag, fault string) {
	live := bag{}
	at = make([]bag, lines+2)
	next := 0
	upTo := func(n int) {
		for ; next < n; next++ {
			at[next] = maps.Clone(live)
		}
	}
	keys := make([]map[string]int, len(out.UpsertKeys))
	for i := range keys {
		keys[i] = map[string]int{}
	}
	for _, c := range out.Changes {
		number := c.Number
		if number == sqltest.End {
			number = lines + 1
		}
		upTo(number)
		n := 1
		if !c.Kind.Adds() {
			n = -1
			if live[c.Row] == 0 && fault == "" {
				fault = "withdrawal of a row that is not there: " + c.String()
			}
		}
		live.add(c.Row, n)
		for i, k := range out.UpsertKeys {
			key := c.Key(k)
			keys[i][key] += n
			if keys[i][key] > 1 && fault == "" {
				fault = fmt.Sprintf("upsert key %v has two rows: %s", k, c)
			}
		}
	}
	upTo(lines + 2)
	return at, fault
}

// idle finds an update that changes nothing.
func idle(out *sqltest.Outcome) string {
	for i := 1; i < len(out.Changes); i++ {
		a, b := out.Changes[i-1], out.Changes[i]
		if a.Number == b.Number && a.Row == b.Row && a.Kind == row.UpdateBefore && b.Kind == row.UpdateAfter {
			return "update that changes nothing: " + b.String()
		}
	}
	return ""
}

// check runs a pair in all modes and compares.
func (p *pair) check() (v verdict) {
	defer func() {
		if e := recover(); e != nil {
			v.fault = fmt.Sprintf("panic: %v\n%s", e, debug.Stack())
		}
	}()
	if err := p.reparsed(); err != nil {
		return verdict{fault: "print: " + message(err)}
	}
	node, err := p.bind()
	if err != nil {
		return verdict{fault: "bind: " + message(err)}
	}
	if p.end > 0 && !p.byWindow(node) {
		return verdict{}
	}
	c := p.testCase()
	out := sqltest.Run(c, sqltest.RunOptions{Mode: sqltest.ByLine})
	lines := len(c.Lines)
	if out.Err != nil && out.Phase == sqltest.InPlan {
		if strings.Contains(out.Err.Error(), "panic") {
			return verdict{fault: "panic: " + message(out.Err)}
		}
		code := "?"
		if l := (diag.List)(nil); errors.As(out.Err, &l) && len(l) > 0 {
			code = l[0].Code
		}
		return verdict{refused: code}
	}
	first := 0
	if p.timed && p.end == 0 {
		first = lines + 1
	}
	var want []bag
	for n := first; n <= lines+1; n++ {
		res, err := naive.Eval(node, p.input(n))
		switch {
		case errors.Is(err, naive.ErrUnsupported):
			return verdict{fault: "unsupported: " + err.Error()}
		case err != nil:
			return verdict{refused: "fails"}
		case res.Ambiguous != "":
			want = append(want, nil)
		default:
			want = append(want, bagOf(node, p.fired(res, n, lines)))
			v.compared = true
		}
	}
	if out.Err != nil {
		return verdict{fault: fmt.Sprintf("error: %s: %s", out.Phase, message(out.Err))}
	}
	got, fault := folds(out, lines)
	if fault == "" && p.quiet {
		fault = idle(out)
	}
	if fault != "" {
		return verdict{fault: "changelog: " + fault}
	}
	for i, w := range want {
		if w == nil {
			continue
		}
		if d := diff(w, got[first+i]); d != "" {
			return verdict{fault: fmt.Sprintf("result: after line %d of %d:\n%s", first+i, lines, d)}
		}
	}
	v.fault, v.modes = p.others(c, node, out, got, slices.ContainsFunc(want, func(b bag) bool { return b == nil }))
	return v
}

// others runs the pair in the other modes, whose results must be those of the run line by line, want. open: the query leaves
// open what it gives, so that another plan may give something else.
func (p *pair) others(c *sqltest.Case, node rel.Node, plain *sqltest.Outcome, want []bag, open bool) (fault string, ran int) {
	lines := len(c.Lines)
	type mode struct {
		name    string
		o       sqltest.RunOptions
		endOnly bool
	}
	modes := []mode{{"restart", sqltest.RunOptions{Mode: sqltest.Restart}, false}}
	if !open { // what nobody reads is not waited for
		modes = append(modes, mode{"rules", sqltest.RunOptions{Without: optionalRules}, p.timed})
	}
	anyhow := p.input(lines + 1)
	anyhow.Anyhow = true
	if res, err := naive.Eval(node, anyhow); err == nil && res.Ambiguous == "" && plain.Late == 0 && plain.Behind == 0 {
		modes = append(modes, mode{"batch", sqltest.RunOptions{Mode: sqltest.Batch}, true}, mode{"parallel", sqltest.RunOptions{Mode: sqltest.Parallel, Seed: p.seed}, true})
	}
	if !p.timed && !open && p.seed%3 == 0 && !slices.ContainsFunc(p.tables, func(t *table) bool { return t.mode == "all" }) {
		if fault := p.refusing(c, node); fault != "" {
			return "refuse: " + fault, ran
		}
		ran++
	}
	if !open {
		how := sqltest.RunOptions{Seed: p.seed}
		if len(modes) > 2 && p.seed%2 == 0 {
			how.Mode = sqltest.Parallel
		}
		fault, done := p.sinking(c, node, plain, how)
		if fault != "" {
			return fmt.Sprintf("sink: %s: %s", how.Mode, fault), ran
		}
		ran += done
	}
	for _, m := range modes {
		out := sqltest.Run(c, m.o)
		if out.Err != nil && out.Phase == sqltest.InPlan && m.name == "rules" {
			continue // nobody reads what cannot be planned
		}
		if out.Err != nil {
			return fmt.Sprintf("%s: error: %s", m.name, message(out.Err)), ran
		}
		ran++
		got, fault := folds(out, lines)
		if fault != "" && m.name != "parallel" {
			return fmt.Sprintf("%s: changelog: %s", m.name, fault), ran
		}
		first := 0
		if m.endOnly {
			first = lines + 1
		}
		for n := first; n <= lines+1; n++ {
			if d := diff(want[n], got[n]); d != "" {
				return fmt.Sprintf("%s: after line %d of %d:\n%s", m.name, n, lines, d), ran
			}
		}
	}
	return "", ran
}

// sinking writes the result to a table with a PRIMARY KEY, one or two columns that are never NULL, as upserts: what is left
// for a key is one of the rows that the query gives for it.
func (p *pair) sinking(c *sqltest.Case, node rel.Node, plain *sqltest.Outcome, how sqltest.RunOptions) (fault string, ran int) {
	s := node.Schema()
	var fit []int
	for i, t := range s.Types {
		null := func(ch sqltest.Change) bool { return ch.Key([]int{i}) == "<nil>|" }
		if !t.Kind().Nested() && !t.Kind().Approximate() && !slices.ContainsFunc(plain.Changes, null) {
			fit = append(fit, i)
		}
	}
	if len(fit) == 0 {
		return "", 0
	}
	key := []int{fit[p.seed%uint64(len(fit))]}
	if more := fit[p.seed/7%uint64(len(fit))]; more != key[0] {
		key = append(key, more)
	}
	var columns, names []string
	for i, t := range s.Types {
		null := ""
		if slices.Contains(key, i) {
			null = " NOT NULL"
			names = append(names, ast.QuoteIdent(s.Names[i]))
		}
		typ := t.Plain().Nullable(true).Text()
		if t.Kind().Text() {
			typ = "STRING" // a text may have the length 0, and no column
		}
		columns = append(columns, ast.QuoteIdent(s.Names[i])+" "+typ+null)
	}
	to := *c
	to.DDL += "CREATE TABLE sink (" + strings.Join(columns, ", ") + ", PRIMARY KEY (" + strings.Join(names, ", ") + ") NOT ENFORCED) WITH ('changelog-mode' = 'upsert');\n"
	to.Query = "INSERT INTO sink " + c.Query
	out := sqltest.Run(&to, how)
	if out.Err != nil {
		return "error: " + message(out.Err), 0
	}
	keyOf := func(ch sqltest.Change) string { return ch.Key(key) }
	want := map[string]map[string]int{}
	for _, ch := range plain.Changes {
		k := keyOf(ch)
		if want[k] == nil {
			want[k] = map[string]int{}
		}
		if ch.Kind.Adds() {
			want[k][ch.Row]++
		} else if want[k][ch.Row]--; want[k][ch.Row] == 0 {
			delete(want[k], ch.Row)
		}
	}
	got := map[string]string{}
	for _, ch := range out.Changes {
		if ch.Kind == row.UpdateBefore {
			return "it is told what was before", 0
		}
		if got[keyOf(ch)] = ch.Row; !ch.Kind.Adds() {
			delete(got, keyOf(ch))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(want)) {
		r, there := got[k]
		switch {
		case len(want[k]) == 0 && there:
			return fmt.Sprintf("key %v: %s is left", names, r), 0
		case len(want[k]) > 0 && !there:
			return fmt.Sprintf("key %v: nothing is left of %v", names, want[k]), 0
		case there && want[k][r] == 0:
			return fmt.Sprintf("key %v: %s is left and none of %v", names, r, want[k]), 0
		}
	}
	return "", 1
}

// refusing runs the pair with a sink that refuses what some lines put out: these are undone, as if they had not been.
func (p *pair) refusing(c *sqltest.Case, node rel.Node) string {
	out := sqltest.Run(c, sqltest.RunOptions{Refuse: func(line int) bool { return line > 0 && (uint64(line)*7+p.seed)%4 == 0 }})
	if out.Err != nil {
		return "error: " + message(out.Err)
	}
	lines := len(c.Lines)
	got, fault := folds(out, lines)
	if fault != "" {
		return "changelog: " + fault
	}
	for n := range lines + 2 {
		in := p.input(n)
		for name, list := range in.Tables {
			in.Tables[name] = slices.DeleteFunc(list, func(ev naive.Event) bool { return slices.Contains(out.Refused, ev.Line) })
		}
		res, err := naive.Eval(node, in)
		if err != nil || res.Ambiguous != "" {
			return ""
		}
		if d := diff(bagOf(node, res), got[n]); d != "" {
			return fmt.Sprintf("after line %d of %d, without %v:\n%s", n, lines, out.Refused, d)
		}
	}
	return ""
}

// optionalRules are those that may be switched off without another result.
var optionalRules = map[string]bool{"pruneColumns": true}

func message(err error) string {
	if t, ok := err.(interface{ Text() string }); ok {
		return t.Text()
	}
	return err.Error()
}
